//! What the comparison with Linux (`tests/linux_oracle`) leaves out: absolute paths, mounts, other users,
//! paths of places, devices.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::{Access, Namespace, OpenFlags, OpenHow, OwnerChange, PseudoInode, TimeChange, TimesChange};
use crate::error::{Errno, Result};
use crate::fake::FakeMachine;
use crate::fs::description::{Description, SeekFrom, StatusFlags};
use crate::fs::device_fs;
use crate::fs::location::{Location, MountFlags};
use crate::fs::metadata::{DeviceNumber, FileKind, Protection, SetAttributes, Timestamp};
use crate::fs::page::MappedFile;
use crate::fs::permission::{AccessMask, Credentials, Owner};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::seals::Seals;
use crate::fs::stream::Stream;
use crate::fs::stream_inode::StreamInode;
use crate::fs::terminal::modes::{TerminalState, WindowSize};
use crate::fs::test_support::{BY_ROOT, LARGE, NOW, World, contents, described, tmpfs_root};
use crate::fs::transfer::{Buffer, Destination, Source};
use crate::fs::vnode::{Allocate, InodeRef, NewNode, RenameMode, WritePosition};
use crate::fs::walk::{Caller, LookupFlags};
use crate::mem::source::PageSource;
use crate::platform::Kernel;

const NONE: StatusFlags = StatusFlags::empty();
const PLAIN: OpenFlags = OpenFlags::empty();

fn make(world: &World, path: &str, node: NewNode<'_>) -> Location {
    world.namespace.create(&world.caller(), &world.root, path.as_bytes(), node, 0o755).unwrap()
}

fn find(world: &World, path: &str) -> Result<Location> {
    let flags = LookupFlags::FOLLOW;
    world.namespace.lookup(&world.caller(), &world.root, path.as_bytes(), flags)
}

fn path_of(world: &World, location: &Location) -> Vec<u8> {
    location.path_from(&world.root)
}

fn rename(world: &World, old: &str, new: &str) -> Result<()> {
    let (old, new) = ((&world.root, old.as_bytes()), (&world.root, new.as_bytes()));
    world.namespace.rename(&world.caller(), old, new, RenameMode::Replace)
}

fn read(file: &Description, length: usize) -> Result<Vec<u8>> {
    let mut buffer = Buffer::with_limit(length);
    file.read(&mut buffer, NOW).map(|_| buffer.bytes)
}

/// `/a/b`, and another file system with `/sub/file` over `/a/b`.
fn mounted(flags: MountFlags) -> World {
    let world = World::tmpfs();
    make(&world, "/a", NewNode::Directory);
    let over = make(&world, "/a/b", NewNode::Directory);
    let other = tmpfs_root(&world.pool, 31, LARGE);
    let sub = other.create(b"sub", NewNode::Directory, BY_ROOT).unwrap();
    sub.create(b"file", NewNode::Regular, BY_ROOT).unwrap();
    world.namespace.mount(&over, other, described(flags));
    world
}

#[test]
fn walks_cross_mounts_both_ways() {
    let world = mounted(MountFlags::empty());
    make(&world, "/a/link", NewNode::Symlink(b"/a/b/sub/../sub"));
    let file = find(&world, "/a/link/file").unwrap();
    assert_eq!(path_of(&world, &file), b"/a/b/sub/file");
    assert_eq!(path_of(&world, &find(&world, "/a/b/..").unwrap()), b"/a");
    assert_eq!(path_of(&world, &find(&world, "/a/b/sub/../../../../..").unwrap()), b"/");
    assert_eq!(find(&world, "/a/b").unwrap().inode().metadata().device.minor, 31);
    let caller = world.caller();
    let remove = |path: &[u8]| world.namespace.remove_directory(&caller, &world.root, path);
    assert_eq!(remove(b"/a/b"), Err(Errno::EBUSY));
    assert_eq!(remove(b"/"), Err(Errno::EBUSY));
    assert_eq!(rename(&world, "/a/b", "/a/c"), Err(Errno::EBUSY));
    assert_eq!(rename(&world, "/a/b/sub/file", "/a/file"), Err(Errno::EXDEV));
    let (old, new) = ((&world.root, &b"/a/b/sub/file"[..]), (&world.root, &b"/f"[..]));
    assert_eq!(world.namespace.link(&caller, old, false, new), Err(Errno::EXDEV));
    assert_eq!(rename(&world, "/a", "/z"), Ok(()));
    assert_eq!(path_of(&world, &file), b"/z/b/sub/file");
    assert_eq!(world.namespace.mounts().len(), 2);
    world.namespace.unmount(&find(&world, "/z/b").unwrap()).unwrap();
    assert_eq!(find(&world, "/z/b/sub").err(), Some(Errno::ENOENT));
    assert_eq!(world.namespace.unmount(&world.root), Err(Errno::EBUSY));
}

#[test]
fn read_only_mounts_refuse_changes() {
    let world = mounted(MountFlags::READ_ONLY | MountFlags::NO_EXECUTE);
    let open = |path, access, flags| world.open(path, access, flags, NONE).map(drop);
    assert_eq!(open("/a/b/sub/file", Access::Read, PLAIN), Ok(()));
    assert_eq!(open("/a/b/sub/file", Access::Write, PLAIN), Err(Errno::EROFS));
    assert_eq!(open("/a/b/sub/file", Access::Read, OpenFlags::TRUNCATE), Err(Errno::EROFS));
    assert_eq!(open("/a/b/sub/file", Access::Read, OpenFlags::CREATE), Ok(()));
    assert_eq!(open("/a/b/new", Access::Read, OpenFlags::CREATE), Err(Errno::EROFS));
    assert_eq!(open("/a/b/sub/file", Access::Read, OpenFlags::EXECUTE), Err(Errno::EACCES));
    let (caller, root) = (world.caller(), &world.root);
    let file = find(&world, "/a/b/sub/file").unwrap();
    assert_eq!(world.namespace.unlink(&caller, root, b"/a/b/sub/file"), Err(Errno::EROFS));
    assert_eq!(world.namespace.set_permissions(&caller, &file, 0), Err(Errno::EROFS));
    assert_eq!(world.namespace.check_access(&caller, &file, AccessMask::WRITE), Err(Errno::EROFS));
    assert_eq!(rename(&world, "/a/b/sub/file", "/a/b/x"), Err(Errno::EROFS));
}

#[test]
fn a_sealed_root_refuses_changes_and_what_is_mounted_in_it_does_not() {
    let world = mounted(MountFlags::empty());
    world.put("/old", b"");
    let open = |path, access, flags| world.open(path, access, flags, NONE).map(drop);
    assert_eq!(open("/new", Access::Write, OpenFlags::CREATE), Ok(()));
    world.namespace.seal_root();
    assert_eq!(open("/newer", Access::Write, OpenFlags::CREATE), Err(Errno::EROFS));
    assert_eq!(open("/old", Access::Write, PLAIN), Err(Errno::EROFS));
    assert_eq!(open("/old", Access::Read, PLAIN), Ok(()));
    assert_eq!(open("/a/b/new", Access::Write, OpenFlags::CREATE), Ok(()));
    assert!(world.root.mount().flags().contains(MountFlags::READ_ONLY));
}

#[test]
fn paths_follow_renames_and_removals() {
    let world = World::tmpfs();
    make(&world, "/d", NewNode::Directory);
    let deep = make(&world, "/d/e", NewNode::Directory);
    let file = world.create("/d/e/f");
    assert_eq!(rename(&world, "/d", "/new"), Ok(()));
    assert_eq!(path_of(&world, file.location()), b"/new/e/f");
    world.put("/other", b"");
    assert_eq!(rename(&world, "/other", "/new/e/f"), Ok(()));
    assert_eq!(path_of(&world, file.location()), b"/new/e/f (deleted)");
    assert_eq!(path_of(&world, &find(&world, "/new/e/f").unwrap()), b"/new/e/f");
    let inside = Caller { root: &deep, ..world.caller() };
    let up = world.namespace.lookup(&inside, &deep, b"/../../f", LookupFlags::FOLLOW);
    assert_eq!(up.unwrap().path_from(&deep), b"/f");
    assert_eq!(world.root.path_from(&deep), b"(unreachable)/");
    world.namespace.unlink(&world.caller(), &world.root, b"/new/e/f").unwrap();
    world.namespace.remove_directory(&world.caller(), &world.root, b"/new/e").unwrap();
    assert!(deep.is_deleted());
    let create = |path: &[u8]| {
        let node = NewNode::Directory;
        world.namespace.create(&world.caller(), &deep, path, node, 0o755).map(drop)
    };
    assert_eq!(create(b"x"), Err(Errno::ENOENT));
    let above = world.namespace.lookup(&world.caller(), &deep, b"..", LookupFlags::FOLLOW);
    assert_eq!(path_of(&world, &above.unwrap()), b"/new");
    let directory = world.namespace.open_at(&world.caller(), deep, &OpenHow::READ).unwrap();
    let listed = directory.read_directory(&world.root, |_| true, NOW);
    assert_eq!(listed, Err(Errno::ENOENT));
}

/// Directories that anybody, nobody else and everybody with care may write; files of root in them; then
/// somebody else.
fn as_another_user() -> (World, Location) {
    let mut world = World::tmpfs();
    for (path, permissions) in [("/open", 0o777), ("/shut", 0o700), ("/sticky", 0o1777)] {
        let location = make(&world, path, NewNode::Directory);
        world.namespace.set_permissions(&world.caller(), &location, permissions).unwrap();
    }
    world.put("/open/root", b"x");
    world.put("/shut/file", b"x");
    world.put("/sticky/root", b"x");
    let file = find(&world, "/open/root").unwrap();
    assert_eq!(world.open("/open/root", Access::Read, OpenFlags::EXECUTE, NONE).err(), Some(Errno::EACCES));
    world.credentials = Credentials { groups: [7].to_vec(), ..Credentials::of_user(5, 6) };
    (world, file)
}

#[test]
fn other_users_are_held_to_permissions() {
    let (world, _) = as_another_user();
    let (caller, root) = (world.caller(), &world.root);
    let open = |path, access, flags| world.open(path, access, flags, NONE).map(drop);
    assert_eq!(open("/shut/file", Access::Read, PLAIN), Err(Errno::EACCES));
    assert_eq!(open("/shut/none/x", Access::Read, PLAIN), Err(Errno::EACCES));
    assert_eq!(open("/shut", Access::Read, PLAIN), Err(Errno::EACCES));
    assert_eq!(open("/open/root", Access::Read, PLAIN), Ok(()));
    assert_eq!(open("/open/root", Access::Write, PLAIN), Err(Errno::EACCES));
    assert_eq!(open("/new", Access::Write, OpenFlags::CREATE), Err(Errno::EACCES));
    assert_eq!(open("/open/new", Access::Write, OpenFlags::CREATE), Ok(()));
    let own = find(&world, "/open/new").unwrap();
    let metadata = own.inode().metadata();
    assert_eq!((metadata.uid, metadata.gid, metadata.permissions), (5, 6, 0o644));
    assert_eq!(world.namespace.unlink(&caller, root, b"/sticky/root"), Err(Errno::EPERM));
    assert_eq!(world.namespace.unlink(&caller, root, b"/open/root"), Ok(()));
}

#[test]
fn other_users_own_what_they_create() {
    let (world, file) = as_another_user();
    let (caller, root) = (world.caller(), &world.root);
    world.open("/open/new", Access::Write, OpenFlags::CREATE, NONE).unwrap();
    let own = find(&world, "/open/new").unwrap();
    assert_eq!(world.namespace.set_permissions(&caller, &file, 0), Err(Errno::EPERM));
    assert_eq!(world.namespace.set_permissions(&caller, &own, 0o6755), Ok(()));
    let give = |uid, gid| world.namespace.set_owner(&caller, &own, OwnerChange { uid, gid });
    assert_eq!(give(Some(9), None), Err(Errno::EPERM));
    assert_eq!(give(Some(5), Some(8)), Err(Errno::EPERM));
    assert_eq!(give(None, Some(7)), Ok(()));
    assert_eq!(own.inode().metadata().permissions, 0o755);
    let times = |location: &Location, time| {
        let change = TimesChange { accessed: time, modified: TimeChange::Now };
        world.namespace.set_times(&caller, location, change)
    };
    assert_eq!(times(&file, TimeChange::Set(NOW)), Err(Errno::EPERM));
    assert_eq!(times(&file, TimeChange::Now), Err(Errno::EACCES));
    let past = Timestamp { seconds: -5, nanoseconds: 3 };
    assert_eq!(times(&own, TimeChange::Set(past)), Ok(()));
    assert_eq!(own.inode().metadata().accessed, past);
    let device = |minor| NewNode::CharacterDevice(DeviceNumber { major: 0, minor });
    let made = |minor| world.namespace.create(&caller, root, b"/open/device", device(minor), 0o666);
    assert_eq!(made(1).err(), Some(Errno::EPERM));
    assert!(made(0).is_ok(), "what marks a name as removed is no device");
}

#[test]
fn no_way_makes_a_name_that_cannot_be_looked_up() {
    let world = World::tmpfs();
    make(&world, "/d", NewNode::Directory);
    let (file, caller) = (make(&world, "/f", NewNode::Regular), world.caller());
    let long = [&b"/d/"[..], &[b'n'; 256]].concat();
    // The last of several times goes by what is known of the walk.
    for _ in 0..4 {
        for flags in [OpenFlags::CREATE, OpenFlags::CREATE | OpenFlags::EXCLUSIVE] {
            let how = OpenHow { access: Access::Write, flags, permissions: 0o644, ..OpenHow::READ };
            let opened = world.namespace.open(&caller, &world.root, &long, &how);
            assert_eq!(opened.err(), Some(Errno::ENAMETOOLONG), "{flags:?}");
        }
        for node in [NewNode::Regular, NewNode::Directory, NewNode::Symlink(b"/f"), NewNode::Fifo, NewNode::Socket] {
            let made = world.namespace.create(&caller, &world.root, &long, node, 0o755);
            assert_eq!(made.err(), Some(Errno::ENAMETOOLONG), "{node:?}");
        }
        let new = (&world.root, &long[..]);
        assert_eq!(world.namespace.link_location(&caller, &file, new), Err(Errno::ENAMETOOLONG));
        for mode in [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange] {
            let renamed = world.namespace.rename(&caller, (&world.root, b"/f"), new, mode);
            assert_eq!(renamed, Err(Errno::ENAMETOOLONG), "{mode:?}");
        }
    }
    assert_eq!(world.namespace.remove_directory(&caller, &world.root, b"/d"), Ok(()), "nothing is in it");
}

/// A byte that somebody writes.
struct Written(Credentials, usize);

impl Source for Written {
    fn remaining(&self) -> usize {
        self.1
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = self.1.min(into.len());
        into[..count].fill(b'y');
        self.1 -= count;
        count
    }

    fn writer(&self) -> Option<Credentials> {
        Some(self.0.clone())
    }
}

#[test]
fn what_is_set_is_decided_under_the_lock() {
    let world = World::tmpfs();
    let inodes: [InodeRef; 2] = [
        make(&world, "/f", NewNode::Regular).inode().clone(),
        PseudoInode::new(9, FileKind::Fifo, Owner::default(), NOW, None),
    ];
    for inode in &inodes {
        let (has_begun, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let chown = || {
                has_begun.store(true, Ordering::SeqCst);
                inode.set_attributes(SetAttributes { uid: Some(7), ..Default::default() }, NOW).unwrap();
                is_done.store(true, Ordering::SeqCst);
            };
            let mut decide = |file: Protection| {
                assert_eq!(file.uid, 0);
                scope.spawn(chown);
                while !has_begun.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                // Time to do it, where nothing keeps it from that.
                (0..1000).for_each(|_| std::thread::yield_now());
                assert!(!is_done.load(Ordering::SeqCst), "{:?} was changed in between", file.kind);
                Ok(Some(SetAttributes { permissions: Some(0o4755), ..Default::default() }))
            };
            assert_eq!(inode.decide_attributes(&mut decide, NOW), Ok(true));
        });
        assert_eq!((inode.metadata().uid, inode.metadata().permissions), (7, 0o4755));
    }
}

/// Runs `others` over and over in another thread until `rounds` of `own` are over.
fn against(rounds: usize, others: impl Fn() + Sync, own: impl Fn()) {
    let (is_running, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                others();
                is_running.store(true, Ordering::Relaxed);
            }
        });
        while !is_running.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..rounds).for_each(|_| own())));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
}

#[test]
fn who_loses_a_file_does_not_make_it_run_as_its_new_owner() {
    let world = World::tmpfs();
    let (file, user) = (make(&world, "/f", NewNode::Regular), Credentials::of_user(1000, 1000));
    let of_user = Caller { credentials: &user, ..world.caller() };
    let set_owner = |id| {
        let change = OwnerChange { uid: Some(id), gid: Some(id) };
        world.namespace.set_owner(&world.caller(), &file, change).unwrap();
    };
    let others = || {
        let _ = world.namespace.set_permissions(&of_user, &file, 0o4755);
    };
    against(20_000, others, || {
        set_owner(1000);
        set_owner(0);
        for _ in 0..20 {
            assert_eq!(file.inode().metadata().permissions & 0o4000, 0);
        }
    });
}

#[test]
fn a_write_that_takes_set_ids_does_not_undo_what_was_set_meanwhile() {
    let world = World::tmpfs();
    let (file, user) = (make(&world, "/f", NewNode::Regular), Credentials::of_user(1000, 1000));
    let set = |permissions| world.namespace.set_permissions(&world.caller(), &file, permissions).unwrap();
    let others = || {
        let mut written = Written(user.clone(), 1);
        file.inode().write_at(WritePosition::At(0), &mut written, NOW).unwrap();
    };
    against(20_000, others, || {
        set(0o4666);
        set(0o600);
        for _ in 0..20 {
            assert_eq!(file.inode().metadata().permissions, 0o600);
        }
    });
    set(0o6666);
    others();
    assert_eq!(file.inode().metadata().permissions, 0o666);
}

#[test]
fn unnamed_files_get_names() {
    let world = World::tmpfs();
    make(&world, "/d", NewNode::Directory);
    let open = |access| world.open("/d", access, OpenFlags::UNNAMED, NONE);
    assert_eq!(open(Access::Read).err(), Some(Errno::EINVAL));
    let file = open(Access::ReadWrite).unwrap();
    assert!(path_of(&world, file.location()).ends_with(b" (deleted)"));
    file.write(&mut &b"text"[..], NOW).unwrap();
    let new = (&world.root, &b"/d/name"[..]);
    world.namespace.link_location(&world.caller(), file.location(), new).unwrap();
    assert_eq!(world.get("/d/name"), Ok(b"text".to_vec()));
    let memory = world.namespace.memory_file(world.root.inode(), b"x", Seals::empty(), BY_ROOT);
    let memory = memory.unwrap();
    assert_eq!(path_of(&world, memory.location()), b"/memfd:x (deleted)");
    memory.truncate(&Credentials::ROOT, 10, NOW).unwrap();
    assert_eq!(contents(&memory), Ok([0; 10].to_vec()));
    assert!(memory.inode().seals().is_some());
    let mapped = MappedFile::new(memory.location().clone(), world.root.clone()).unwrap();
    assert_eq!(mapped.path(), "/memfd:x (deleted)");
    assert!(mapped.page(0, crate::mem::source::PageIntent::WriteShared).is_ok());
}

#[test]
fn directories_list_dots_first_and_seek() {
    let world = World::tmpfs();
    make(&world, "/d", NewNode::Directory);
    for name in ["/d/a", "/d/b", "/d/c"] {
        world.create(name);
    }
    let directory = world.open("/d", Access::Read, PLAIN, StatusFlags::DIRECTORY).unwrap();
    let list = |limit: usize| {
        let mut names: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut consumer = |entry: crate::fs::vnode::DirectoryEntry<'_>| {
            if names.len() == limit {
                return false;
            }
            names.push((entry.name.to_vec(), entry.next_cookie));
            true
        };
        directory.read_directory(&world.root, &mut consumer, NOW).unwrap();
        names
    };
    let all = list(99);
    let names: Vec<&[u8]> = all.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [&b"."[..], b"..", b"a", b"b", b"c"]);
    assert_eq!(list(99), []);
    for (index, (_, cookie)) in all.iter().enumerate() {
        directory.seek(SeekFrom::Start(cookie.cast_signed())).unwrap();
        assert_eq!(list(99), all[index + 1..]);
    }
    directory.seek(SeekFrom::Start(0)).unwrap();
    let pieces: Vec<_> = (0..6).flat_map(|_| list(1)).collect();
    assert_eq!(pieces, all);
    assert_eq!(directory.seek(SeekFrom::End(0)), Err(Errno::EINVAL));
    assert_eq!(read(&directory, 1), Err(Errno::EISDIR));
}

/// A stream with fixed input that remembers its output.
struct Console {
    input: crate::sync::Mutex<Vec<u8>>,
    output: crate::sync::Mutex<Vec<u8>>,
    queue: Arc<WaitQueue>,
}

impl Stream for Console {
    fn read(&self, destination: &mut dyn Destination) -> Result<usize> {
        let bytes = core::mem::take(&mut *self.input.lock());
        let count = bytes.len().min(destination.remaining());
        Ok(destination.put(&bytes[..count]))
    }

    fn write(&self, source: &mut dyn Source) -> Result<usize> {
        let mut bytes = alloc::vec![0; source.remaining()];
        let count = source.take(&mut bytes);
        self.output.lock().extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn readiness(&self) -> Readiness {
        Readiness::ALWAYS
    }

    fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }
}

#[test]
fn streams_look_like_pipes_or_terminals() {
    let world = World::tmpfs();
    let console = Arc::new(Console {
        input: crate::sync::Mutex::new(b"input".to_vec()),
        output: crate::sync::Mutex::default(),
        queue: WaitQueue::new(),
    });
    let pipe = StreamInode::pipe(console.clone(), super::PSEUDO_DEVICE, 55, Owner { uid: 7, gid: 8 }, NOW);
    let file = world.namespace.stream(pipe, Access::Read).unwrap();
    assert_eq!(file.metadata().kind, FileKind::Fifo);
    assert_eq!(path_of(&world, file.location()), b"pipe:[55]");
    assert_eq!(file.terminal().err(), Some(Errno::ENOTTY));
    assert_eq!(read(&file, 9), Ok(b"input".to_vec()));
    assert_eq!(file.seek(SeekFrom::Start(0)), Err(Errno::ESPIPE));
    assert_eq!(file.write(&mut &b"x"[..], NOW), Err(Errno::EBADF));
    let state = TerminalState::new(WindowSize { row_count: 25, ..WindowSize::default() });
    let terminal = StreamInode::terminal(console.clone(), super::PSEUDO_DEVICE, 0, state, Owner::default(), NOW);
    let file = world.namespace.stream(terminal.clone(), Access::Write).unwrap();
    let node = file.metadata().device_node;
    assert_eq!((file.metadata().kind, node.major, node.minor), (FileKind::CharacterDevice, 136, 0));
    assert_eq!(file.terminal().map(|terminal| terminal.window_size().row_count), Ok(25));
    file.write(&mut &b"out"[..], NOW).unwrap();
    assert_eq!(*console.output.lock(), b"out");
    assert_eq!(path_of(&world, file.location()), b"/dev/pts/0");
}

fn with_devices() -> World {
    let world = World::tmpfs();
    let over = make(&world, "/dev", NewNode::Directory);
    let devices = tmpfs_root(&world.pool, 32, LARGE);
    device_fs::populate(&devices, NOW).unwrap();
    device_fs::populate(&devices, NOW).unwrap();
    world.namespace.mount(&over, devices, described(MountFlags::empty()));
    let kernel: Arc<dyn Kernel> = FakeMachine::new();
    device_fs::register(&world.namespace, &kernel);
    world
}

#[test]
fn devices_work() {
    let world = with_devices();
    let open = |path| world.open(path, Access::ReadWrite, OpenFlags::TRUNCATE, NONE);
    let (null, zero, full) = (open("/dev/null").unwrap(), open("/dev/zero").unwrap(), open("/dev/full").unwrap());
    assert_eq!((read(&null, 5), read(&zero, 3)), (Ok(Vec::new()), Ok([0; 3].to_vec())));
    assert_eq!(null.write(&mut &b"gone"[..], NOW), Ok(4));
    assert_eq!(full.write(&mut &b"gone"[..], NOW), Err(Errno::ENOSPC));
    assert_eq!(read(&full, 2), Ok([0; 2].to_vec()));
    assert_eq!(null.seek(SeekFrom::End(-1)), Ok(0));
    let mut buffer = Buffer::with_limit(4);
    assert_eq!(zero.read_at(77, &mut buffer, NOW), Ok(4));
    let random = open("/dev/urandom").unwrap();
    let (first, second) = (read(&random, 1000).unwrap(), read(&random, 1000).unwrap());
    assert!(first.len() == 1000 && first != second);
    assert_eq!(open("/dev/ptmx").err(), Some(Errno::ENOENT), "no terminals are mounted here");
    assert_eq!(open("/dev/tty").err(), Some(Errno::ENXIO));
    assert_eq!(find(&world, "/dev/null").unwrap().inode().metadata().mode(), 0o020_666);
    assert_eq!(find(&world, "/dev/stdin").err(), Some(Errno::ENOENT), "no /proc here");
    assert_eq!(null.truncate(&Credentials::ROOT, 0, NOW), Err(Errno::EINVAL));
    assert_eq!(null.allocate(&Credentials::ROOT, Allocate::Extend, 0, 1, NOW), Err(Errno::ENODEV));
}

#[test]
fn counters_pipes_and_status_flags() {
    let world = World::tmpfs();
    let status = StatusFlags::NON_BLOCKING;
    let counter = world.namespace.event_counter(1, false, status, NOW);
    assert!(counter.is_plain(), "its reads and writes take the short way");
    assert_eq!(path_of(&world, counter.location()), b"anon_inode:[eventfd]");
    assert!(counter.is_non_blocking());
    counter.set_status(StatusFlags::APPEND | StatusFlags::PATH_ONLY);
    assert_eq!(counter.status(), StatusFlags::APPEND);
    assert_eq!(counter.read_at(0, &mut Buffer::with_limit(8), NOW), Err(Errno::ESPIPE));
    assert_eq!(read(&counter, 8), Ok(1_u64.to_ne_bytes().to_vec()));
    assert_eq!(counter.readiness(), Readiness::WRITE);
    let (reader, writer) = world.namespace.pipe(NONE, Owner { uid: 7, gid: 8 }, NOW);
    assert!(writer.pipe().is_some() && reader.pipe().is_some());
    assert_eq!(reader.truncate(&Credentials::ROOT, 0, NOW), Err(Errno::EINVAL));
    assert_eq!(writer.allocate(&Credentials::ROOT, Allocate::Extend, 0, 1, NOW), Err(Errno::ESPIPE));
    assert_eq!(reader.metadata().inode_number, writer.metadata().inode_number);
    assert_eq!((reader.metadata().uid, writer.metadata().gid), (7, 8), "a pipe is its maker's");
}

#[test]
fn reads_leave_a_time_once() {
    let world = World::tmpfs();
    world.put("/f", b"x");
    let later = |seconds| Timestamp { seconds: NOW.seconds + seconds, nanoseconds: 0 };
    let file = world.open("/f", Access::Read, PLAIN, NONE).unwrap();
    let read_at = |now| {
        file.read_at(0, &mut Buffer::with_limit(1), now).unwrap();
        file.metadata().accessed
    };
    assert_eq!(read_at(later(5)), later(5));
    assert_eq!(read_at(later(6)), later(5));
    assert_eq!(read_at(later(5 + 24 * 3600)), later(5 + 24 * 3600));
}

#[test]
fn what_loses_its_name_gives_its_memory_back() {
    let world = World::tmpfs();
    let frames_used = || {
        let statistics = world.pool.statistics();
        statistics.held - statistics.free
    };
    for name in ["/a", "/b", "/c"] {
        world.put(name, &[1; 5000]);
    }
    assert_eq!(frames_used(), 6);
    world.namespace.unlink(&world.caller(), &world.root, b"a").unwrap();
    assert_eq!(frames_used(), 4);
    rename(&world, "/b", "/c").unwrap();
    assert_eq!(frames_used(), 2);
    assert!(find(&world, "/c").is_ok());
}

#[test]
fn deep_trees_need_no_deep_stack() {
    let world = World::tmpfs();
    let mut here = world.root.clone();
    for _ in 0..20_000 {
        let caller = world.caller();
        here = world.namespace.create(&caller, &here, b"d", NewNode::Directory, 0o755).unwrap();
    }
    drop(here);
    // The tree itself hangs on its root and is torn down with it, level by level.
    let World { namespace, root, .. } = world;
    drop((root, namespace));
}

#[test]
fn forty_links_and_no_more() {
    let world = World::tmpfs();
    world.put("/l0", b"end");
    for index in 1..=41 {
        let target = alloc::format!("l{}", index - 1);
        make(&world, &alloc::format!("/l{index}"), NewNode::Symlink(target.as_bytes()));
    }
    assert_eq!(world.get("/l40"), Ok(b"end".to_vec()));
    assert_eq!(world.get("/l41"), Err(Errno::ELOOP));
    let namespace: &Namespace = &world.namespace;
    let text = namespace.read_link(&world.caller(), &world.root, b"/l41");
    assert_eq!(text, Ok(b"l40".to_vec()));
}

#[test]
fn the_last_name_begins_behind_the_last_slash() {
    for length in 0..20_usize {
        for slashes in 0..1_usize << length.min(12) {
            let is_slash = |at: usize| slashes >> (at % 12) & 1 == 1;
            // Letters next to the slash and with its lower bits.
            let path: Vec<u8> = (0..length).map(|at| if is_slash(at) { b'/' } else { b".0\xaf\x2e"[at % 4] }).collect();
            let expected = path.iter().rposition(|byte| *byte == b'/').map(|index| index + 1);
            assert_eq!(super::behind_last_slash(&path), expected, "{path:?}");
        }
    }
}
