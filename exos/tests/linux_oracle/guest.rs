//! The side of exos: a name space over a memory file system, or over the overlay of an EROFS image.

use std::sync::Arc;

use aegis_image::erofs::write::Layout;
use aegis_image::tree::{Attributes, Content, Tree};
use exos::error::Result;
use exos::fake::FakeMachine;
use exos::fs::description::{Description, SeekFrom, StatusFlags};
use exos::fs::erofs_root::ErofsRoot;
use exos::fs::location::{Location, MountDescription, MountFlags};
use exos::fs::memory_fs::{Identity, Limits, MemoryFs, TMPFS_MAGIC};
use exos::fs::metadata::{DeviceNumber, FileKind, Timestamp};
use exos::fs::namespace::{Access, Namespace, OpenFlags, OpenHow};
use exos::fs::permission::Credentials;
use exos::fs::transfer::Buffer;
use exos::fs::vnode::{Allocate, Creation, InodeRef, NewNode, RenameMode};
use exos::fs::walk::{Caller, LookupFlags};
use exos::fs::{overlay, transfer};
use exos::mem::frames::FramePool;

use super::generate::{FileStep, Flags, Mode, Operation};
use super::host::pattern;
use super::{Described, Initial, Outcome, START, initial_tree};

const NOW: Timestamp = Timestamp { seconds: 1, nanoseconds: 0 };
const DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 40 };
const LIMITS: Limits = Limits { bytes_max: 1 << 30, inode_count_max: 1 << 20 };
const IDENTITY: Identity = Identity { device: DEVICE, magic: TMPFS_MAGIC };

pub(crate) struct Guest {
    namespace: Arc<Namespace>,
    root: Location,
    start: Location,
    credentials: Credentials,
}

fn pool() -> Arc<FramePool> {
    let machine = FakeMachine::new();
    FramePool::new(machine.clone(), machine, 64 << 20)
}

/// The initial tree as an image; it is leaked, for tests only.
fn image() -> &'static [u8] {
    let plain = Attributes::root_owned(0o755);
    let file_attributes = Attributes::root_owned(0o644);
    let mut tree = Tree::<Vec<u8>>::new(plain);
    let start = tree.ensure_directory(START.join("/").as_bytes(), plain).unwrap();
    for (path, what) in initial_tree() {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let in_start = |path: &str| [&START.join("/"), path].join("/");
        let follow = aegis_image::tree::LastLink::Keep;
        let parent = tree.resolve(in_start(parent).as_bytes(), follow).unwrap();
        let (attributes, content) = match what {
            Initial::Directory => (plain, Content::empty_directory()),
            Initial::File(bytes) => (file_attributes, Content::File(bytes)),
            Initial::Symlink(target) => (Attributes::root_owned(0o777), Content::Symlink(target.into())),
            Initial::Fifo => (file_attributes, Content::Fifo),
            Initial::Link(target) => {
                let node = tree.lookup(start, target.as_bytes()).unwrap();
                tree.link(parent, name.as_bytes(), node).unwrap();
                continue;
            }
        };
        tree.add(parent, name.as_bytes(), attributes, content).unwrap();
    }
    let mut bytes = Vec::new();
    Layout::new(&tree).unwrap().write(&mut bytes).unwrap();
    bytes.leak()
}

impl Guest {
    pub(crate) fn on_memory() -> Self {
        let creation = Creation { permissions: 0o755, uid: 0, gid: 0, now: NOW };
        let root = MemoryFs::create(pool(), IDENTITY, LIMITS, creation).unwrap();
        let guest = Self::over(root, false);
        guest.fill();
        guest
    }

    pub(crate) fn on_overlay() -> Self {
        static IMAGE: std::sync::OnceLock<&'static [u8]> = std::sync::OnceLock::new();
        let base = ErofsRoot::open(IMAGE.get_or_init(image), None, DEVICE).unwrap();
        Self::over(overlay::over(pool(), IDENTITY, LIMITS, &base).unwrap(), true)
    }

    fn over(root: InodeRef, is_overlay: bool) -> Self {
        let description = MountDescription { kind: "test", source: "test", flags: MountFlags::empty() };
        let namespace = Namespace::new(root, description);
        let root = namespace.root().clone();
        let credentials = Credentials::ROOT;
        let mut guest = Self { namespace, start: root.clone(), root, credentials };
        for name in START {
            if !is_overlay {
                guest.create(name, NewNode::Directory, 0o755).unwrap();
            }
            guest.start = guest.find(name, LookupFlags::FOLLOW).unwrap();
        }
        guest
    }

    fn fill(&self) {
        for (path, what) in initial_tree() {
            match what {
                Initial::Directory => self.create(path, NewNode::Directory, 0o755).map(drop),
                Initial::File(bytes) => {
                    let flags = OpenFlags::CREATE;
                    let status = StatusFlags::empty();
                    let how = OpenHow { access: Access::Write, flags, status, permissions: 0o644, ..OpenHow::READ };
                    let caller = self.caller();
                    let file = self.namespace.open(&caller, &self.start, path.as_bytes(), &how);
                    file.unwrap().write(&mut &bytes[..], NOW).map(drop)
                }
                Initial::Link(target) => self.namespace.link(
                    &self.caller(),
                    (&self.start, target.as_bytes()),
                    false,
                    (&self.start, path.as_bytes()),
                ),
                Initial::Symlink(target) => self.create(path, NewNode::Symlink(target.as_bytes()), 0o777).map(drop),
                Initial::Fifo => self.create(path, NewNode::Fifo, 0o644).map(drop),
            }
            .unwrap();
        }
    }

    fn caller(&self) -> Caller<'_> {
        Caller { root: &self.root, credentials: &self.credentials, umask: 0o022, now: NOW }
    }

    fn find(&self, path: &str, flags: LookupFlags) -> Result<Location> {
        self.namespace.lookup(&self.caller(), &self.start, path.as_bytes(), flags)
    }

    fn create(&self, path: &str, node: NewNode<'_>, permissions: u32) -> Result<Location> {
        let path = path.as_bytes();
        self.namespace.create(&self.caller(), &self.start, path, node, permissions)
    }

    fn open(&self, path: &str, flags: Flags) -> Result<Arc<Description>> {
        let access = match (flags.read, flags.write) {
            (true, true) => Access::ReadWrite,
            (false, true) => Access::Write,
            _ => Access::Read,
        };
        let mut open_flags = OpenFlags::empty();
        open_flags.set(OpenFlags::CREATE, flags.create);
        open_flags.set(OpenFlags::EXCLUSIVE, flags.exclusive);
        open_flags.set(OpenFlags::TRUNCATE, flags.truncate);
        let mut status = StatusFlags::NON_BLOCKING;
        status.set(StatusFlags::APPEND, flags.append);
        status.set(StatusFlags::DIRECTORY, flags.directory);
        status.set(StatusFlags::NO_FOLLOW, flags.no_follow);
        status.set(StatusFlags::PATH_ONLY, flags.path_only);
        let how = OpenHow { access, flags: open_flags, status, permissions: 0o666, ..OpenHow::READ };
        self.namespace.open(&self.caller(), &self.start, path.as_bytes(), &how)
    }

    pub(crate) fn run(&self, operation: &Operation) -> Outcome {
        let (caller, start) = (self.caller(), &self.start);
        let namespace = &self.namespace;
        match operation {
            Operation::Open { path, flags, steps } => outcome(self.open(path, *flags), |file| {
                let run = |(index, step): (usize, &FileStep)| run_step(&file, index, *step);
                Outcome::Steps(steps.iter().enumerate().map(run).collect())
            }),
            Operation::MakeDirectory(path) => done(self.create(path, NewNode::Directory, 0o777)),
            Operation::RemoveDirectory(path) => done(namespace.remove_directory(&caller, start, path.as_bytes())),
            Operation::Unlink(path) => done(namespace.unlink(&caller, start, path.as_bytes())),
            Operation::Rename(old, new, mode) => {
                let mode = match mode {
                    Mode::Replace => RenameMode::Replace,
                    Mode::NoReplace => RenameMode::NoReplace,
                    Mode::Exchange => RenameMode::Exchange,
                };
                let (old, new) = ((start, old.as_bytes()), (start, new.as_bytes()));
                done(namespace.rename(&caller, old, new, mode))
            }
            Operation::Link(old, new, follow) => {
                let (old, new) = ((start, old.as_bytes()), (start, new.as_bytes()));
                done(namespace.link(&caller, old, *follow, new))
            }
            Operation::Symlink(target, path) => done(self.create(path, NewNode::Symlink(target.as_bytes()), 0o777)),
            Operation::MakeFifo(path) => done(self.create(path, NewNode::Fifo, 0o666)),
            Operation::ReadLink(path) => outcome(namespace.read_link(&caller, start, path.as_bytes()), Outcome::Bytes),
            Operation::Stat(path, follow) => {
                let flags = LookupFlags { follow: *follow, directory: false };
                outcome(self.find(path, flags), |found| Outcome::Number(found.inode().metadata().mode().into()))
            }
            Operation::Truncate(path, size_bytes) => {
                done(namespace.truncate(&caller, start, path.as_bytes(), *size_bytes))
            }
            Operation::SetPermissions(path, permissions) => {
                let found = self.find(path, LookupFlags::FOLLOW);
                done(found.and_then(|found| namespace.set_permissions(&caller, &found, *permissions)))
            }
        }
    }

    pub(crate) fn tree(&self) -> Vec<Described> {
        let mut described = Vec::new();
        describe(self.root.inode(), "", &mut described);
        described.sort();
        described
    }
}

fn describe(directory: &InodeRef, prefix: &str, out: &mut Vec<Described>) {
    let mut names = Vec::new();
    directory
        .read_directory(0, &mut |entry| {
            names.push((entry.name.to_vec(), entry.inode_number, entry.kind));
            true
        })
        .unwrap();
    for (name, inode_number, kind) in names {
        let inode = directory.lookup(&name).unwrap();
        let metadata = inode.metadata();
        assert_eq!((metadata.inode_number, metadata.kind), (inode_number, kind));
        assert_eq!(metadata.device, DEVICE);
        let path = format!("{prefix}{}", std::str::from_utf8(&name).unwrap());
        let content = match kind {
            FileKind::Regular => {
                let mut buffer = Buffer::with_limit(1 << 20);
                inode.read_at(0, &mut buffer).unwrap();
                buffer.bytes
            }
            FileKind::Symlink => inode.read_link().unwrap(),
            _ => Vec::new(),
        };
        let is_directory = kind == FileKind::Directory;
        out.push(Described {
            path: path.clone(),
            mode: metadata.mode(),
            link_count: metadata.link_count.into(),
            size_bytes: if is_directory { 0 } else { metadata.size_bytes },
            content,
        });
        if is_directory {
            describe(&inode, &format!("{path}/"), out);
        }
    }
}

fn outcome<T>(result: Result<T>, good: impl FnOnce(T) -> Outcome) -> Outcome {
    match result {
        Ok(value) => good(value),
        Err(error) => Outcome::Failed(error),
    }
}

fn done<T>(result: Result<T>) -> Outcome {
    outcome(result, |_| Outcome::Done)
}

fn run_step(file: &Description, index: usize, step: FileStep) -> Outcome {
    let read = |length: u64, at: Option<u64>| {
        let mut buffer = Buffer::with_limit(length as usize);
        let count = match at {
            Some(offset) => file.read_at(offset, &mut buffer, NOW),
            None => file.read(&mut buffer, NOW),
        };
        outcome(count, |count| {
            assert_eq!(count, buffer.bytes.len());
            Outcome::Bytes(buffer.bytes)
        })
    };
    let count = |result| outcome(result, |count: usize| Outcome::Number(count as u64));
    let seek = |from| outcome(file.seek(from), Outcome::Number);
    let allocate = |mode, offset: u64, length: u64| {
        done(file.allocate(&Credentials::ROOT, mode, offset.cast_signed(), length.cast_signed(), NOW))
    };
    match step {
        FileStep::Read(length) => read(length, None),
        FileStep::ReadAt(offset, length) => read(length, Some(offset)),
        FileStep::Write(length) => count(file.write(&mut &pattern(index, length)[..], NOW)),
        FileStep::WriteAt(offset, length) => {
            let bytes = pattern(index, length);
            let mut source: &[u8] = &bytes;
            let source: &mut dyn transfer::Source = &mut source;
            count(file.write_at(offset, source, NOW))
        }
        FileStep::SeekStart(distance) => seek(SeekFrom::Start(distance.max(0))),
        FileStep::SeekCurrent(distance) => seek(SeekFrom::Current(distance)),
        FileStep::SeekEnd(distance) => seek(SeekFrom::End(distance)),
        FileStep::SeekData(offset) => seek(SeekFrom::Data(offset.cast_signed())),
        FileStep::SeekHole(offset) => seek(SeekFrom::Hole(offset.cast_signed())),
        FileStep::Truncate(size_bytes) => done(file.truncate(&Credentials::ROOT, size_bytes, NOW)),
        FileStep::Extend(offset, length) => allocate(Allocate::Extend, offset, length),
        FileStep::KeepSize(offset, length) => allocate(Allocate::KeepSize, offset, length),
        FileStep::PunchHole(offset, length) => allocate(Allocate::PunchHole, offset, length),
    }
}
