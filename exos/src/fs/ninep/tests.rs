//! Host directories as inodes and in a name space, over an honest server that changes meanwhile.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::cache::PageCache;
use super::fake_server::FakeServer;
use super::inode::NinepInode;
use super::message::R_ERROR;
use super::{ATTRIBUTE_AGE_NS_MAX, Consistency, OPEN_FILE_COUNT_MAX, Options, attach};
use crate::error::Errno;
use crate::fake::FakeMachine;
use crate::fs::description::StatusFlags;
use crate::fs::memory_fs::Identity;
use crate::fs::metadata::{DeviceNumber, FileKind};
use crate::fs::namespace::{Access, OpenFlags};
use crate::fs::overlay::{OVERLAY_MAGIC, over_live};
use crate::fs::page::{MappedFile, PAGE_BYTES};
use crate::fs::permission::Credentials;
use crate::fs::test_support::{BY_ROOT, LARGE, NOW, World, contents};
use crate::fs::transfer::Buffer;
use crate::fs::vnode::{InodeRef, NewNode, RenameMode, downcast};
use crate::fs::walk::LookupFlags;
use crate::mem::frames::FramePool;
use crate::mem::source::{PageError, PageIntent, PageSource};

const DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 40 };
const READ_DIRECTORY: u8 = 40;
const PLAIN: OpenFlags = OpenFlags::empty();
const NONE: StatusFlags = StatusFlags::empty();

struct Rig {
    server: Arc<FakeServer>,
    machine: Arc<FakeMachine>,
    pool: Arc<FramePool>,
    cache: Arc<PageCache>,
    root: InodeRef,
    world: World,
}

impl Rig {
    fn new(consistency: Consistency) -> Self {
        Self::over(FakeServer::new(), consistency, 64 << 20)
    }

    /// A name space whose root is a served directory.
    fn over(server: Arc<FakeServer>, consistency: Consistency, limit_bytes: u64) -> Self {
        let machine = FakeMachine::new();
        machine.set_now_ns(1_000_000_000);
        let pool = FramePool::new(machine.clone(), machine.clone(), limit_bytes);
        let cache = PageCache::new(&pool);
        let options = Options { device: DEVICE, consistency, uid: 0, layer: 0 };
        let root = attach(server.clone(), &pool, &cache, options).unwrap();
        let world = World::over(pool.clone(), root.clone());
        Self { server, machine, pool, cache, root, world }
    }

    /// A name space whose root is the overlay over a served directory.
    fn overlaid(server: Arc<FakeServer>) -> Self {
        let mut rig = Self::over(server, Consistency::Fixed, 64 << 20);
        let identity = Identity { device: DEVICE, magic: OVERLAY_MAGIC };
        let root = over_live(rig.pool.clone(), identity, LARGE, &rig.root).unwrap();
        rig.world = World::over(rig.pool.clone(), root);
        rig
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, Errno> {
        self.world.get(path)
    }

    fn exists(&self, path: &str) -> Result<FileKind, Errno> {
        let world = &self.world;
        let found = world.namespace.lookup(&world.caller(), &world.root, path.as_bytes(), LookupFlags::NO_FOLLOW);
        found.map(|location| location.inode().kind())
    }

    fn later(&self) {
        use crate::platform::Kernel;
        self.machine.set_now_ns(self.machine.now_ns() + ATTRIBUTE_AGE_NS_MAX + 1);
    }

    fn names(&self, path: &str) -> Vec<Vec<u8>> {
        let directory = self.world.open(path, Access::Read, PLAIN, NONE).unwrap();
        let mut names = Vec::new();
        let mut list = |entry: crate::fs::vnode::DirectoryEntry<'_>| {
            names.push(entry.name.to_vec());
            true
        };
        directory.read_directory(&self.world.root, &mut list, NOW).unwrap();
        directory.read_directory(&self.world.root, |_| panic!("the end was reached"), NOW).unwrap();
        names.split_off(2)
    }

    fn mapped(&self, path: &str, access: Access) -> Arc<MappedFile> {
        let file = self.world.open(path, access, PLAIN, NONE).unwrap();
        MappedFile::new(file.location().clone(), self.world.root.clone()).unwrap()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 7 + index) as u8).collect()
}

#[test]
fn files_links_and_directories_show_as_they_are() {
    let rig = Rig::new(Consistency::Fixed);
    rig.server.make("d", FileKind::Directory, b"");
    rig.server.put("d/f", &pattern(300_000));
    rig.server.make("l", FileKind::Symlink, b"d/f");
    rig.server.put("empty", b"");
    assert_eq!(rig.get("/l").unwrap(), pattern(300_000));
    assert_eq!(rig.get("/empty").unwrap(), b"");
    assert_eq!(rig.get("/d"), Err(Errno::EISDIR));
    assert_eq!(rig.get("/none"), Err(Errno::ENOENT));
    assert_eq!(rig.get("/d/f/x"), Err(Errno::ENOTDIR));
    assert_eq!(rig.names("/"), [&b"d"[..], b"empty", b"l"]);
    assert_eq!(rig.exists("/l"), Ok(FileKind::Symlink));
    let metadata = rig.root.lookup(b"d").unwrap().metadata();
    assert_eq!((metadata.device, metadata.uid, metadata.gid, metadata.permissions), (DEVICE, 10, 20, 0o755));
    assert_eq!(rig.root.statistics().magic, super::NINEP_MAGIC);
}

#[test]
fn servers_that_give_little_at_a_time_are_understood() {
    let server = FakeServer::with_messages(5000);
    server.put("f", &pattern(100_000));
    for index in 0..400 {
        server.put(&alloc::format!("name{index:04}"), b"");
    }
    server.tree.lock().read_bytes_max = 3000;
    let rig = Rig::over(server, Consistency::Fixed, 64 << 20);
    assert_eq!(rig.get("/f").unwrap(), pattern(100_000));
    assert_eq!(rig.names("/").len(), 401);
}

#[test]
fn an_unchanging_tree_is_asked_once() {
    let rig = Rig::new(Consistency::Fixed);
    rig.server.put("f", &pattern(200_000));
    rig.get("/f").unwrap();
    assert_eq!(rig.exists("/none"), Err(Errno::ENOENT));
    let before = rig.server.request_count();
    rig.later();
    assert_eq!(rig.get("/f").unwrap(), pattern(200_000));
    assert_eq!(rig.exists("/none"), Err(Errno::ENOENT));
    assert_eq!(rig.server.request_count(), before);
    let runs = rig.server.tree.lock().counts[&116];
    assert!(runs <= 6, "200,000 bytes came in {runs} reads");
}

#[test]
fn a_changing_tree_shows_what_the_host_did() {
    let rig = Rig::new(Consistency::Checked);
    rig.server.make("d", FileKind::Directory, b"");
    rig.server.put("d/f", b"one");
    assert_eq!(rig.get("/d/f").unwrap(), b"one");
    rig.server.put("d/f", b"three");
    assert_eq!(rig.get("/d/f").unwrap(), b"three");
    rig.server.change("d/f", |node| node.permissions = 0o600);
    let file = rig.world.open("/d/f", Access::Read, PLAIN, NONE).unwrap();
    assert_eq!(file.metadata().permissions, 0o600);
    rig.server.remove("d/f");
    assert_eq!(rig.exists("/d/f"), Err(Errno::ENOENT));
    assert!(file.location().is_deleted());
    assert_eq!(contents(&file).unwrap(), b"three", "it was open");
    rig.server.put("d/f", b"new");
    assert_eq!(rig.get("/d/f").unwrap(), b"new");
    rig.server.rename("d", "e");
    assert_eq!(rig.exists("/d"), Err(Errno::ENOENT));
    assert_eq!(rig.get("/e/f").unwrap(), b"new");
    rig.server.make("d", FileKind::Directory, b"");
    assert_eq!(rig.exists("/d/f"), Err(Errno::ENOENT));
    assert_eq!(rig.names("/"), [&b"d"[..], b"e"]);
}

#[test]
fn an_open_file_follows_the_host_within_its_age() {
    let rig = Rig::new(Consistency::Checked);
    rig.server.put("log", b"a");
    let file = rig.world.open("/log", Access::Read, PLAIN, NONE).unwrap();
    assert_eq!(contents(&file).unwrap(), b"a");
    rig.server.put("log", b"ab");
    rig.later();
    assert_eq!(contents(&file).unwrap(), b"ab");
    // The same length: only time and version tell.
    rig.server.put("log", b"xy");
    rig.later();
    assert_eq!(contents(&file).unwrap(), b"xy");
}

#[test]
fn listings_of_a_changing_directory_keep_their_place() {
    let rig = Rig::new(Consistency::Checked);
    for index in 0..50 {
        rig.server.put(&alloc::format!("f{index:02}"), b"");
    }
    let list = |cookie: u64, limit: usize| {
        let mut names = Vec::new();
        let reached = rig.root.read_directory(cookie, &mut |entry| {
            if names.len() == limit {
                return false;
            }
            names.push(entry.name.to_vec());
            true
        });
        (names, reached.unwrap())
    };
    let (first, cookie) = list(0, 20);
    rig.server.remove("f03");
    rig.server.put("a-new-name", b"");
    rig.later();
    // Somebody else lists anew meanwhile.
    assert_eq!(list(0, usize::MAX).0.len(), 50);
    let (rest, end) = list(cookie, usize::MAX);
    for index in 20..50 {
        assert!(rest.contains(&alloc::format!("f{index}").into_bytes()), "f{index}");
    }
    assert!(rest.iter().all(|name| !first.contains(name)));
    assert_eq!(list(end, usize::MAX), (Vec::new(), end));
}

#[test]
fn a_listing_goes_on_where_entries_go_while_it_is_read() {
    let rig = Rig::new(Consistency::Checked);
    (0..200).for_each(|index| rig.server.put(&alloc::format!("f{index:03}"), b""));
    let list = || {
        let mut names = Vec::new();
        let reached = rig.root.read_directory(0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        });
        reached.map(|_| names)
    };
    let all: Vec<Vec<u8>> = (0..200).map(|index| alloc::format!("f{index:03}").into_bytes()).collect();
    // As QEMU's server: a whole reply fails when an entry went; here each large one, and of the small ones every third.
    let mut count = 0;
    rig.server.tree.lock().spoil = Some(Box::new(move |kind, reply| {
        count += u32::from(kind == READ_DIRECTORY);
        let fails = kind == READ_DIRECTORY && (reply.len() > 2000 || count % 3 == 0);
        Some(if fails { gone(&reply) } else { reply })
    }));
    assert_eq!(list().unwrap(), all);
    // A directory that went for good says so after a bounded number of requests.
    rig.later();
    rig.server.tree.lock().spoil =
        Some(Box::new(|kind, reply| Some(if kind == READ_DIRECTORY { gone(&reply) } else { reply })));
    let count = || rig.server.tree.lock().counts[&READ_DIRECTORY];
    let before = count();
    assert_eq!(list(), Err(Errno::ENOENT));
    assert_eq!(count() - before, 32);
    rig.server.tree.lock().spoil = None;
    assert_eq!(list().unwrap(), all);
}

/// Linux's ENOENT in place of a reply.
fn gone(reply: &[u8]) -> Vec<u8> {
    [&[11, 0, 0, 0, R_ERROR], &reply[5..7], &[2, 0, 0, 0]].concat()
}

#[test]
fn what_the_guest_writes_is_on_the_host_at_once() {
    let rig = Rig::new(Consistency::Checked);
    let world = &rig.world;
    world.put("/f", &pattern(100_000));
    assert_eq!(rig.server.data("f").unwrap(), pattern(100_000));
    let file = world.open("/f", Access::ReadWrite, PLAIN, StatusFlags::APPEND).unwrap();
    rig.server.put("f", b"host");
    assert_eq!(file.write(&mut &b"guest"[..], NOW), Ok(5));
    assert_eq!(rig.server.data("f").unwrap(), b"hostguest");
    assert_eq!(contents(&file).unwrap(), b"hostguest");
    file.truncate(&Credentials::ROOT, 3, NOW).unwrap();
    assert_eq!(rig.server.data("f").unwrap(), b"hos");
    assert_eq!(contents(&file).unwrap(), b"hos");
    let (caller, root) = (world.caller(), &world.root);
    world.namespace.create(&caller, root, b"/d", NewNode::Directory, 0o755).unwrap();
    world.namespace.create(&caller, root, b"/d/l", NewNode::Symlink(b"../f"), 0o777).unwrap();
    assert_eq!(rig.get("/d/l").unwrap(), b"hos");
    let location = world.namespace.lookup(&caller, root, b"/f", LookupFlags::FOLLOW).unwrap();
    world.namespace.set_permissions(&caller, &location, 0o640).unwrap();
    assert_eq!(location.inode().metadata().permissions, 0o640);
    world.namespace.link(&caller, (root, b"/f"), false, (root, b"/d/g")).unwrap();
    assert_eq!(location.inode().metadata().link_count, 2);
    world.namespace.rename(&caller, (root, b"/d"), (root, b"/e"), RenameMode::Replace).unwrap();
    assert_eq!(rig.server.data("e/g").unwrap(), b"hos");
    world.namespace.unlink(&caller, root, b"/f").unwrap();
    assert_eq!(rig.get("/e/g").unwrap(), b"hos");
    assert_eq!(rig.server.data("f"), None);
    assert_eq!(world.namespace.remove_directory(&caller, root, b"/e"), Err(Errno::ENOTEMPTY));
    let swap = world.namespace.rename(&caller, (root, b"/e/g"), (root, b"/e/l"), RenameMode::Exchange);
    assert_eq!(swap, Err(Errno::EINVAL));
    let keep = world.namespace.rename(&caller, (root, b"/e/g"), (root, b"/e/l"), RenameMode::NoReplace);
    assert_eq!(keep, Err(Errno::EEXIST));
    assert_eq!(rig.server.make_count(), 4, "root, e, g, l");
}

#[test]
fn a_removed_file_lives_while_it_is_open() {
    let rig = Rig::new(Consistency::Checked);
    let world = &rig.world;
    let file = world.create("/t");
    world.namespace.unlink(&world.caller(), &world.root, b"/t").unwrap();
    assert_eq!(file.write_at(0, &mut &b"still here"[..], NOW), Ok(10));
    rig.later();
    assert_eq!(contents(&file).unwrap(), b"still here");
    assert_eq!(file.metadata().link_count, 0);
    assert_eq!(rig.exists("/t"), Err(Errno::ENOENT));
    world.put("/t", b"another");
    assert_eq!(contents(&file).unwrap(), b"still here");
}

#[test]
fn mappings_share_pages_and_dirty_ones_reach_the_host() {
    let rig = Rig::new(Consistency::Checked);
    rig.server.put("f", &pattern(PAGE_BYTES + 100));
    let (first, second) = (rig.mapped("/f", Access::ReadWrite), rig.mapped("/f", Access::Read));
    let page = first.page(1, PageIntent::WriteShared).unwrap();
    let same = second.page(1, PageIntent::Read).unwrap();
    assert_eq!((page.frame.frame(), page.valid_bytes), (same.frame.frame(), 100));
    assert_eq!(first.page(2, PageIntent::Read).err(), Some(PageError::BeyondEnd));
    rig.pool.bytes().write(page.frame.frame(), 0, b"stored");
    assert_eq!(rig.get("/f").unwrap()[PAGE_BYTES..PAGE_BYTES + 6], *b"stored");
    assert_ne!(rig.server.data("f").unwrap()[PAGE_BYTES..PAGE_BYTES + 6], *b"stored");
    first.sync(0, 2).unwrap();
    assert_eq!(rig.server.data("f").unwrap()[PAGE_BYTES..PAGE_BYTES + 6], *b"stored");
    assert_eq!(rig.server.data("f").unwrap().len(), PAGE_BYTES + 100);
    // A second store needs no fault, and is written all the same.
    rig.pool.bytes().write(page.frame.frame(), 0, b"STORED");
    drop((page, same));
    rig.world.namespace.sync().unwrap();
    assert_eq!(rig.server.data("f").unwrap()[PAGE_BYTES..PAGE_BYTES + 6], *b"STORED");
    rig.world.namespace.sync().unwrap();
    assert!(rig.cache.page_count() >= 2);
}

#[test]
fn a_mapped_page_keeps_its_frame_when_the_host_changes_the_file() {
    let rig = Rig::new(Consistency::Checked);
    rig.server.put("f", b"before");
    let mapped = rig.mapped("/f", Access::Read);
    let page = mapped.page(0, PageIntent::Read).unwrap();
    rig.server.put("f", b"after!!");
    assert_eq!(rig.get("/f").unwrap(), b"after!!");
    let again = mapped.page(0, PageIntent::Read).unwrap();
    assert_eq!(page.frame.frame(), again.frame.frame());
    let mut bytes = [0; 8];
    rig.pool.bytes().read(page.frame.frame(), 0, &mut bytes);
    assert_eq!(&bytes, b"after!!\0");
}

#[test]
fn what_the_host_refuses_is_refused_when_it_is_opened() {
    for is_overlaid in [false, true] {
        let server = FakeServer::new();
        server.put("shadow", b"secret");
        server.make("closed", FileKind::Directory, b"");
        for path in ["shadow", "closed"] {
            server.change(path, |node| node.is_readable = false);
        }
        let rig = if is_overlaid { Rig::overlaid(server) } else { Rig::over(server, Consistency::Checked, 64 << 20) };
        for path in ["/shadow", "/closed"] {
            let open = rig.world.open(path, Access::Read, PLAIN, NONE);
            assert_eq!(open.err(), Some(Errno::EACCES), "{path}");
        }
        assert!(rig.exists("/shadow").is_ok());
        assert_eq!(rig.server.open_count(), 0);
    }
}

#[test]
fn a_layer_in_memory_leaves_the_host_alone() {
    let server = FakeServer::new();
    server.make("d", FileKind::Directory, b"");
    server.put("d/f", &pattern(3 * PAGE_BYTES));
    let rig = Rig::overlaid(server);
    let mapped = rig.mapped("/d/f", Access::Read);
    let shown = mapped.page(2, PageIntent::Read).unwrap();
    let base = rig.root.lookup(b"d").unwrap().lookup(b"f").unwrap();
    assert_eq!(shown.frame.frame(), base.resident_page(2).unwrap().frame.frame(), "shared, not copied");
    let file = rig.world.open("/d/f", Access::ReadWrite, PLAIN, NONE).unwrap();
    assert_eq!(file.write_at(5000, &mut &b"guest"[..], NOW), Ok(5));
    let mut expected = pattern(3 * PAGE_BYTES);
    expected[5000..5005].copy_from_slice(b"guest");
    assert_eq!(contents(&file).unwrap(), expected);
    rig.world.put("/d/new", b"x");
    rig.world.namespace.unlink(&rig.world.caller(), &rig.world.root, b"/d/f").unwrap();
    assert_eq!(rig.names("/d"), [b"new"]);
    assert_eq!(rig.server.data("d/f").unwrap(), pattern(3 * PAGE_BYTES));
    assert_eq!(rig.server.data("d/new"), None);
    let counts = &rig.server.tree.lock().counts;
    for change in [14, 16, 18, 26, 70, 72, 74, 76, 118] {
        assert_eq!(counts.get(&change), None, "request {change}");
    }
}

#[test]
fn a_walk_over_everything_leaves_neither_fids_nor_memory() {
    let server = FakeServer::new();
    for outer in 0..40 {
        server.make(&alloc::format!("d{outer}"), FileKind::Directory, b"");
        for inner in 0..60 {
            server.put(&alloc::format!("d{outer}/f{inner}"), &pattern(100));
        }
    }
    let rig = Rig::overlaid(server);
    for round in 0..3 {
        for outer in 0..40 {
            for name in rig.names(&alloc::format!("/d{outer}")) {
                let path = alloc::format!("/d{outer}/{}", alloc::string::String::from_utf8(name).unwrap());
                assert_eq!(rig.get(&path).unwrap().len(), 100);
            }
        }
        // The entries that the mount remembers, the files that are kept open, and what goes along next time.
        let fid_count = rig.server.fid_count();
        assert!(fid_count < 512 + 2 * OPEN_FILE_COUNT_MAX + 64, "round {round}: {fid_count} fids");
        assert!(rig.server.open_count() <= OPEN_FILE_COUNT_MAX + 16, "round {round}");
        assert!(rig.cache.page_count() < 1000, "round {round}: {} pages", rig.cache.page_count());
    }
    assert!(downcast::<NinepInode>(&rig.root).unwrap().fs.session.fid_count() < 1200);
}

#[test]
fn the_cache_grows_with_what_its_pod_is_given() {
    let server = FakeServer::new();
    server.put("big", &pattern(6 << 20));
    let rig = Rig::over(server, Consistency::Fixed, 64 << 20);
    rig.machine.set_frame_limit(512);
    let read_all = || {
        let mut buffer = Buffer::with_limit(6 << 20);
        rig.root.lookup(b"big").unwrap().read_at(0, &mut buffer).unwrap()
    };
    assert_eq!(read_all(), 6 << 20);
    assert!(rig.cache.page_count() <= 448);
    rig.machine.set_frame_limit(4096);
    assert_eq!(read_all(), 6 << 20);
    assert_eq!(rig.cache.page_count(), 6 << 8);
}

#[test]
fn cached_pages_give_way_to_programs() {
    let server = FakeServer::new();
    server.put("big", &pattern(3 << 20));
    let rig = Rig::over(server, Consistency::Fixed, 2 << 20);
    assert_eq!(rig.get("/big").unwrap()[..], pattern(1 << 20)[..]);
    assert!(rig.cache.page_count() <= 448, "seven eighths of the frames at most");
    let mapped = rig.mapped("/big", Access::Read);
    let held = mapped.page(700, PageIntent::Read).unwrap();
    // All the pool has, but for the page that is mapped.
    let mut frames = Vec::new();
    while let Ok(frame) = rig.pool.allocate_ref() {
        frames.push(frame);
    }
    assert_eq!(frames.len(), 511);
    assert_eq!(mapped.page(0, PageIntent::Read).err(), Some(PageError::OutOfMemory));
    let mut first = [0; 4];
    rig.pool.bytes().read(held.frame.frame(), 0, &mut first);
    assert_eq!(first[..], pattern(3 << 20)[700 * PAGE_BYTES..][..4]);
    frames.truncate(100);
    let mut buffer = Buffer::with_limit(3 << 20);
    let inode = rig.root.lookup(b"big").unwrap();
    assert_eq!(inode.read_at(0, &mut buffer), Ok(3 << 20));
    assert!(buffer.bytes == pattern(3 << 20));
}

#[test]
fn special_files_work_within_the_guest() {
    let rig = Rig::new(Consistency::Checked);
    rig.root.create(b"pipe", NewNode::Fifo, BY_ROOT).unwrap();
    let both = rig.world.open("/pipe", Access::ReadWrite, PLAIN, NONE).unwrap();
    assert_eq!(both.write(&mut &b"abc"[..], NOW), Ok(3));
    let mut buffer = Buffer::with_limit(10);
    assert_eq!(both.read(&mut buffer, NOW), Ok(3));
    rig.server.make("socket", FileKind::Socket, b"");
    assert_eq!(rig.world.open("/socket", Access::Read, PLAIN, NONE).err(), Some(Errno::ENXIO));
    assert_eq!(rig.server.open_count(), 0);
}
