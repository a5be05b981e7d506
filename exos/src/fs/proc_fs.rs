//! `/proc`: what processes and the system tell about themselves, as texts made when they are asked for.
//!
//! The tree is here; the facts come from a [`ProcessProvider`], which the personality implements. A file's
//! text is made at the first read after `open` and stays the same until the offset returns to 0 by a read
//! there, so that a text that is read in pieces fits together. Names are volatile (processes come and go),
//! sizes are 0, and links to files jump ([`LinkTarget::Jump`]).

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

mod texts;

pub use texts::{ProcessText, SystemText};

use super::location::Location;
use super::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, Protection, SetAttributes, Timestamp};
use super::open_file::{OpenFile, OpenRequest, SeekSupport};
use super::permission::Credentials;
use super::transfer::{Destination, Source, put_from};
use super::vnode::{Creation, DirectoryEntry, EntryConsumer, Inode, InodeRef, LinkTarget, NewNode, ProcessName};
use crate::error::{Errno, Result};
use crate::preempt;
use crate::sync::Mutex;

/// procfs's magic number (Linux `magic.h`).
pub const PROC_MAGIC: u64 = 0x9fa0;
/// Longest text that can be written to a file here.
const WRITE_BYTES_MAX: usize = 4096;

/// Where a process's links lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessLink {
    /// `exe`: the program.
    Program,
    /// `cwd`: the working directory.
    WorkingDirectory,
    /// `root`: the root directory.
    Root,
}

/// Files of a process that are no texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFile {
    /// `mem`: its memory, by address.
    Memory,
    /// `pagemap`: eight bytes for each of its pages.
    PageMap,
}

/// An open descriptor as `/proc/PID/fd` shows it.
pub struct DescriptorView {
    /// Where the link leads.
    pub location: Location,
    /// Open for reading.
    pub is_readable: bool,
    /// Open for writing.
    pub is_writable: bool,
}

/// A text about a process, which was found when the text was opened. What has its number later is another, and is not
/// told of.
pub trait OpenText: Send + Sync {
    /// Appends the text as it is now. `ESRCH`, `ENOENT`: what it tells of is gone.
    fn append(&self, out: &mut Vec<u8>) -> Result<()>;
    /// Takes a text that a program wrote. `EPERM`, `EINVAL`, `EACCES` for what cannot be set.
    fn set(&self, value: &[u8]) -> Result<()>;
}

/// The facts, from the personality. Nothing here may wait or touch a program's memory through a fault. All process
/// calls answer `ESRCH` or `ENOENT` for a process that is gone, and for another that has its number.
pub trait ProcessProvider: Send + Sync {
    /// Process and thread that ask: `self` and `thread-self`.
    fn current(&self) -> (u32, u32);
    /// All processes, ascending.
    fn processes(&self) -> Vec<u32>;
    /// Whether the process (and the thread of it) exists; its user and group.
    fn owner(&self, name: ProcessName) -> Option<(u32, u32)>;
    /// The name of the process that has that name now, and of none later.
    fn named(&self, name: ProcessName) -> Option<ProcessName>;
    /// The threads of a process, ascending; none: it is gone.
    fn threads(&self, process: ProcessName) -> Vec<u32>;
    /// Opens a text. `EACCES`: the caller may not look into the process.
    fn open_text(&self, name: ProcessName, text: ProcessText) -> Result<Arc<dyn OpenText>>;
    /// Checks that the caller may look into a process. `EACCES`.
    fn check_look(&self, _: ProcessName) -> Result<()> {
        Ok(())
    }
    /// Where a link leads.
    fn process_link(&self, name: ProcessName, link: ProcessLink) -> Result<Location>;
    /// What the link to a name space leads to, by its place in [`SPACES`].
    fn space(&self, _: usize) -> Result<Location> {
        Err(Errno::ENOENT)
    }
    /// Opens the memory of a process. `EACCES`: the caller may not look into it.
    fn memory_file(&self, _: ProcessName, _: MemoryFile) -> Result<Arc<dyn OpenFile>> {
        Err(Errno::EACCES)
    }
    /// Open descriptors, ascending.
    fn descriptors(&self, process: ProcessName) -> Vec<u32>;
    /// One of them.
    fn descriptor(&self, process: ProcessName, number: u32) -> Result<DescriptorView>;
    /// Opens the text of `fdinfo/N`.
    fn open_descriptor_text(&self, process: ProcessName, number: u32) -> Result<Arc<dyn OpenText>>;
    /// Appends a text about the system.
    fn system_text(&self, text: SystemText, out: &mut Vec<u8>) -> Result<()>;
    /// Takes a system text that a program wrote.
    fn set_system_text(&self, text: SystemText, value: &[u8]) -> Result<()>;
}

struct ProcFs {
    provider: Arc<dyn ProcessProvider>,
    device: DeviceNumber,
    created: Timestamp,
}

/// The root directory of `/proc`.
pub fn root(provider: Arc<dyn ProcessProvider>, device: DeviceNumber, now: Timestamp) -> InodeRef {
    let fs = Arc::new(ProcFs { provider, device, created: now });
    Arc::new(ProcInode { fs, node: Node::System("") })
}

struct ProcInode {
    fs: Arc<ProcFs>,
    node: Node,
}

/// Where an inode is in the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    /// A directory of system texts: the part of the path that its texts begin with, `""` for the root.
    System(&'static str),
    SystemText(SystemText),
    /// `self`, `thread-self`, `mounts`.
    Link(&'static str),
    Process(ProcessName),
    ProcessText(ProcessName, ProcessText),
    ProcessLink(ProcessName, ProcessLink),
    Memory(ProcessName, MemoryFile),
    Descriptors(ProcessName),
    Descriptor(ProcessName, u32),
    DescriptorTexts(ProcessName),
    DescriptorText(ProcessName, u32),
    Threads(ProcessName),
    /// `ns`, and the links in it by their place in [`SPACES`].
    Spaces(ProcessName),
    Space(ProcessName, usize),
}

/// Names in a process's directory that are not texts.
const PROCESS_ENTRIES: [&str; 9] = ["exe", "cwd", "root", "fd", "fdinfo", "mem", "ns", "pagemap", "task"];
/// The name spaces that a process is in, and their numbers: there is one of each kind.
pub const SPACES: [(&str, &str, u64); 8] = [
    ("cgroup", "cgroup", 0xefff_fffb),
    ("ipc", "ipc", 0xefff_ffff),
    ("mnt", "mnt", 0xefff_fff8),
    ("net", "net", 0xefff_fff9),
    ("pid", "pid", 0xefff_fffc),
    ("pid_for_children", "pid", 0xefff_fffc),
    ("user", "user", 0xefff_fffd),
    ("uts", "uts", 0xefff_fffe),
];
/// Links in the root.
const ROOT_LINKS: [&str; 3] = ["self", "thread-self", "mounts"];

/// A decimal number without sign and leading zeros.
fn parse_number(name: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(name).ok()?;
    let is_plain = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    if is_plain { text.parse().ok() } else { None }
}

/// The names directly below a directory of system texts, in order, each once; with the text if it is one.
fn system_names(prefix: &'static str) -> Vec<(&'static str, Node)> {
    let mut names: Vec<(&'static str, Node)> = Vec::new();
    for (path, text, _) in SystemText::ALL {
        let Some(rest) = path.strip_prefix(prefix) else {
            continue;
        };
        let (name, node) = match rest.find('/') {
            Some(slash) => (&rest[..slash], Node::System(&path[..prefix.len() + slash + 1])),
            None => (rest, Node::SystemText(*text)),
        };
        if names.last().is_none_or(|(last, _)| *last != name) {
            names.push((name, node));
        }
    }
    names
}

/// What `name` directly below a directory of system texts stands for.
fn system_name(prefix: &'static str, name: &[u8]) -> Option<Node> {
    SystemText::ALL.iter().find_map(|(path, text, _)| {
        match path.as_bytes().strip_prefix(prefix.as_bytes())?.strip_prefix(name)? {
            [] => Some(Node::SystemText(*text)),
            [b'/', ..] => Some(Node::System(&path[..prefix.len() + name.len() + 1])),
            _ => None,
        }
    })
}

impl ProcInode {
    fn child(&self, node: Node) -> InodeRef {
        Arc::new(Self { fs: self.fs.clone(), node })
    }

    fn provider(&self) -> &dyn ProcessProvider {
        &*self.fs.provider
    }

    /// The process that a node tells about.
    fn process(&self) -> Option<ProcessName> {
        match self.node {
            Node::Process(name) | Node::ProcessText(name, _) | Node::ProcessLink(name, _) => Some(name),
            Node::Spaces(name) | Node::Space(name, _) | Node::Memory(name, _) => Some(name),
            Node::Descriptors(name)
            | Node::Descriptor(name, _)
            | Node::DescriptorTexts(name)
            | Node::DescriptorText(name, _)
            | Node::Threads(name) => Some(name),
            Node::System(_) | Node::SystemText(_) | Node::Link(_) => None,
        }
    }

    fn inode_number(&self) -> u64 {
        const SYSTEM_NUMBERS: u64 = 1 << 16;
        let in_process = |name: ProcessName, index: u64| {
            let number = name.thread.unwrap_or(name.process);
            (u64::from(number) << 17) | (u64::from(name.thread.is_some()) << 16) | (256 + index)
        };
        let of_descriptor = |name: ProcessName, number: u32| {
            let owner = u64::from(name.thread.unwrap_or(name.process));
            (1 << 50) | (u64::from(name.thread.is_some()) << 51) | (owner << 24) | (u64::from(number) << 1)
        };
        match self.node {
            Node::System("") => 1,
            Node::System(prefix) => {
                let first = SystemText::ALL.iter().position(|row| row.0.starts_with(prefix));
                SYSTEM_NUMBERS / 2 + (first.unwrap_or(0) as u64) * 8 + prefix.matches('/').count() as u64
            }
            Node::SystemText(text) => 16 + text as u64,
            Node::Link(name) => 2 + name.len() as u64,
            Node::Process(name) => in_process(name, 0),
            Node::ProcessText(name, text) => in_process(name, 16 + text as u64),
            Node::ProcessLink(name, link) => in_process(name, 1 + link as u64),
            Node::Descriptors(process) => in_process(process, 8),
            Node::DescriptorTexts(process) => in_process(process, 9),
            Node::Threads(process) => in_process(process, 10),
            Node::Spaces(name) => in_process(name, 11),
            Node::Memory(name, file) => in_process(name, 12 + file as u64),
            Node::Space(name, index) => in_process(name, 128 + index as u64),
            Node::Descriptor(name, number) => of_descriptor(name, number),
            Node::DescriptorText(name, number) => of_descriptor(name, number) | 1,
        }
    }

    fn kind_and_permissions(&self) -> (FileKind, u32) {
        let mode_of =
            |rows: &[(&str, SystemText, u32)], text| rows.iter().find(|row| row.1 == text).map_or(0o444, |row| row.2);
        match self.node {
            Node::System(_) | Node::Process(_) | Node::Threads(_) => (FileKind::Directory, 0o555),
            Node::Descriptors(_) => (FileKind::Directory, 0o500),
            Node::Spaces(_) => (FileKind::Directory, 0o511),
            Node::DescriptorTexts(_) => (FileKind::Directory, 0o555),
            Node::SystemText(text) => (FileKind::Regular, mode_of(SystemText::ALL, text)),
            Node::ProcessText(_, text) => {
                let row = ProcessText::ALL.iter().find(|row| row.1 == text);
                (FileKind::Regular, row.map_or(0o444, |row| row.2))
            }
            Node::DescriptorText(..) => (FileKind::Regular, 0o444),
            Node::Memory(_, MemoryFile::Memory) => (FileKind::Regular, 0o600),
            Node::Memory(_, MemoryFile::PageMap) => (FileKind::Regular, 0o400),
            Node::Link(_) | Node::ProcessLink(..) | Node::Space(..) => (FileKind::Symlink, 0o777),
            Node::Descriptor(process, number) => {
                let permissions = self
                    .provider()
                    .descriptor(process, number)
                    .map_or(0, |view| (u32::from(view.is_readable) * 0o500) | (u32::from(view.is_writable) * 0o300));
                (FileKind::Symlink, permissions)
            }
        }
    }

    fn lookup_in_root(&self, name: &[u8]) -> Option<Node> {
        if let Some(link) = ROOT_LINKS.iter().find(|link| link.as_bytes() == name) {
            return Some(Node::Link(link));
        }
        let process = ProcessName { process: parse_number(name)?, thread: None, birth: 0 };
        self.provider().named(process).map(Node::Process)
    }

    fn lookup_in_process(&self, process: ProcessName, name: &[u8]) -> Option<Node> {
        self.provider().owner(process)?;
        if let Some(row) = ProcessText::ALL.iter().find(|row| row.0.as_bytes() == name) {
            return Some(Node::ProcessText(process, row.1));
        }
        match name {
            b"exe" => Some(Node::ProcessLink(process, ProcessLink::Program)),
            b"cwd" => Some(Node::ProcessLink(process, ProcessLink::WorkingDirectory)),
            b"root" => Some(Node::ProcessLink(process, ProcessLink::Root)),
            b"fd" => Some(Node::Descriptors(process)),
            b"fdinfo" => Some(Node::DescriptorTexts(process)),
            b"mem" => Some(Node::Memory(process, MemoryFile::Memory)),
            b"ns" => Some(Node::Spaces(process)),
            b"pagemap" => Some(Node::Memory(process, MemoryFile::PageMap)),
            b"task" if process.thread.is_none() => Some(Node::Threads(process)),
            _ => None,
        }
    }

    fn find(&self, name: &[u8]) -> Result<Option<Node>> {
        Ok(match self.node {
            Node::System(prefix) => {
                let in_root = if prefix.is_empty() { self.lookup_in_root(name) } else { None };
                in_root.or_else(|| system_name(prefix, name))
            }
            Node::Process(process) => self.lookup_in_process(process, name),
            Node::Spaces(process) => {
                self.provider().owner(process).ok_or(Errno::ENOENT)?;
                let place = SPACES.iter().position(|row| row.0.as_bytes() == name);
                place.map(|place| Node::Space(process, place))
            }
            Node::Descriptors(process) | Node::DescriptorTexts(process) => {
                let number = parse_number(name).ok_or(Errno::ENOENT)?;
                self.provider().descriptor(process, number)?;
                Some(match self.node {
                    Node::Descriptors(_) => Node::Descriptor(process, number),
                    _ => Node::DescriptorText(process, number),
                })
            }
            Node::Threads(process) => {
                let thread = Some(parse_number(name).ok_or(Errno::ENOENT)?);
                self.provider().owner(process).ok_or(Errno::ENOENT)?;
                self.provider().named(ProcessName { process: process.process, thread, birth: 0 }).map(Node::Process)
            }
            _ => return Err(Errno::ENOTDIR),
        })
    }

    /// Names with fixed positions, then numbers with the positions that they have among all numbers.
    fn names(&self) -> Result<(Vec<&'static str>, Vec<u32>)> {
        let fixed_of_process = || -> Vec<&'static str> {
            let texts = ProcessText::ALL.iter().map(|row| row.0);
            texts.chain(PROCESS_ENTRIES).collect()
        };
        if let Some(name) = self.process() {
            self.provider().owner(name).ok_or(Errno::ENOENT)?;
        }
        Ok(match self.node {
            Node::System(prefix) => {
                let mut fixed: Vec<_> = system_names(prefix).iter().map(|row| row.0).collect();
                if !prefix.is_empty() {
                    return Ok((fixed, Vec::new()));
                }
                fixed.extend(ROOT_LINKS);
                (fixed, self.provider().processes())
            }
            Node::Process(name) => {
                let mut fixed = fixed_of_process();
                if name.thread.is_some() {
                    fixed.retain(|entry| *entry != "task");
                }
                (fixed, Vec::new())
            }
            Node::Descriptors(process) | Node::DescriptorTexts(process) => {
                (Vec::new(), self.provider().descriptors(process))
            }
            Node::Threads(process) => (Vec::new(), self.provider().threads(process)),
            Node::Spaces(_) => (SPACES.map(|row| row.0).to_vec(), Vec::new()),
            _ => return Err(Errno::ENOTDIR),
        })
    }

    /// Whether the process, by its number or a thread's, is the one that asks.
    fn is_own(&self, process: u32) -> bool {
        let (own, thread) = self.provider().current();
        process == own || process == thread
    }

    /// A text below `sys` that not even root may write.
    fn is_fixed_setting(&self) -> bool {
        let Node::SystemText(text) = self.node else { return false };
        SystemText::ALL.iter().any(|row| row.1 == text && row.2 & 0o222 == 0 && row.0.starts_with("sys/"))
    }

    /// Checks that the caller may look into the process that a node tells of.
    fn check_look(&self) -> Result<()> {
        self.process().map_or(Ok(()), |name| self.provider().check_look(name))
    }
}

impl Inode for ProcInode {
    fn metadata(&self) -> Metadata {
        let (kind, permissions) = self.kind_and_permissions();
        let owner = self.process().and_then(|name| self.provider().owner(name));
        let (uid, gid) = owner.unwrap_or((0, 0));
        Metadata {
            device: self.fs.device,
            inode_number: self.inode_number(),
            kind,
            permissions,
            link_count: if kind == FileKind::Directory { 2 } else { 1 },
            uid,
            gid,
            device_node: DeviceNumber::default(),
            size_bytes: if matches!(self.node, Node::Descriptor(..)) { 64 } else { 0 },
            block_count: 0,
            accessed: self.fs.created,
            modified: self.fs.created,
            changed: self.fs.created,
            created: None,
        }
    }

    /// A process finds its own descriptors, also where root owns the directory of a closed process.
    fn protection(&self) -> Protection {
        let protection = self.metadata().protection();
        match self.node {
            Node::Descriptors(name) if self.is_own(name.process) => Protection { permissions: 0o555, ..protection },
            _ => protection,
        }
    }

    fn kind(&self) -> FileKind {
        match self.node {
            Node::Descriptor(..) => FileKind::Symlink,
            _ => self.kind_and_permissions().0,
        }
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn check_search(&self) -> Result<()> {
        match self.node {
            Node::Process(name) | Node::Threads(name) | Node::DescriptorTexts(name) => {
                self.provider().owner(name).map(|_| ()).ok_or(Errno::ESRCH)
            }
            _ => Ok(()),
        }
    }

    fn process_name(&self) -> Option<ProcessName> {
        match self.node {
            Node::Process(name) if name.thread.is_none() => Some(name),
            _ => None,
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        let gone = |error| match error {
            Errno::EBADF | Errno::ESRCH => Errno::ENOENT,
            other => other,
        };
        let found = self.find(name).map_err(gone)?.ok_or(Errno::ENOENT)?;
        Ok(self.child(found))
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        /// Numbers come behind all fixed names; a number's cookie is itself, so others may come and go.
        const NUMBER_COOKIES: u64 = 1 << 16;
        let (fixed, numbers) = self.names()?;
        let mut position = cookie;
        let mut emit = |name: &[u8], next_cookie: u64| {
            let Ok(inode) = self.lookup(name) else {
                return true;
            };
            let metadata = inode.metadata();
            let (inode_number, kind) = (metadata.inode_number, metadata.kind);
            let accepted = consumer(DirectoryEntry { name, inode_number, kind, next_cookie });
            if accepted {
                position = next_cookie;
            }
            accepted
        };
        if cookie < NUMBER_COOKIES {
            for (index, name) in fixed.iter().enumerate().skip(cookie as usize) {
                if !emit(name.as_bytes(), index as u64 + 1) {
                    return Ok(position);
                }
            }
        }
        for number in numbers {
            let next_cookie = NUMBER_COOKIES + u64::from(number) + 1;
            if next_cookie > cookie && !emit(format!("{number}").as_bytes(), next_cookie) {
                break;
            }
        }
        Ok(position)
    }

    fn create(&self, _: &[u8], _: NewNode<'_>, _: Creation) -> Result<InodeRef> {
        Err(Errno::ENOENT)
    }

    /// Nothing comes of it, as on Linux.
    fn truncate(&self, _: u64, _: Timestamp) -> Result<()> {
        if self.kind() == FileKind::Regular { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn unlink(&self, _: &[u8], _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn remove_directory(&self, _: &[u8], _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        let (process, thread) = self.provider().current();
        match self.node {
            Node::Link("self") => Ok(format!("{process}").into_bytes()),
            Node::Link("thread-self") => Ok(format!("{process}/task/{thread}").into_bytes()),
            Node::Link(name) => Ok(format!("self/{name}").into_bytes()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn follow_link(&self) -> Result<LinkTarget> {
        match self.node {
            Node::ProcessLink(name, link) => self.provider().process_link(name, link).map(LinkTarget::Jump),
            Node::Space(_, place) => {
                self.check_look()?;
                self.provider().space(place).map(LinkTarget::Jump)
            }
            Node::Descriptor(process, number) => {
                self.check_look()?;
                let view = self.provider().descriptor(process, number);
                view.map(|view| LinkTarget::Jump(view.location)).map_err(|_| Errno::ENOENT)
            }
            _ => self.read_link().map(LinkTarget::Path),
        }
    }

    fn open(&self, request: OpenRequest, _: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        match self.node {
            Node::SystemText(_) if request.write && self.is_fixed_setting() => Err(Errno::EACCES),
            Node::SystemText(_) | Node::ProcessText(..) | Node::DescriptorText(..) => {
                let about = match self.node {
                    Node::ProcessText(name, text) => Some(self.provider().open_text(name, text)?),
                    Node::DescriptorText(process, number) => {
                        self.check_look()?;
                        Some(self.provider().open_descriptor_text(process, number)?)
                    }
                    _ => None,
                };
                let inode = Self { fs: self.fs.clone(), node: self.node };
                Ok(Some(Arc::new(TextFile { inode, about, text: Mutex::new(None) })))
            }
            Node::DescriptorTexts(_) => self.check_look().map(|()| None),
            Node::Memory(name, file) => self.provider().memory_file(name, file).map(Some),
            _ => Ok(None),
        }
    }

    /// Owner and times can be set and are not kept: each look at a node makes it anew, as on Linux.
    fn set_attributes(&self, attributes: SetAttributes, _: Timestamp) -> Result<()> {
        if attributes.permissions.is_some() { Err(Errno::EPERM) } else { Ok(()) }
    }

    fn read_at(&self, _: u64, _: &mut dyn Destination) -> Result<usize> {
        match self.kind() {
            FileKind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            magic: PROC_MAGIC,
            block_bytes: 4096,
            block_count: 0,
            free_block_count: 0,
            inode_count: 0,
            free_inode_count: 0,
        }
    }
}

/// An open text.
struct TextFile {
    inode: ProcInode,
    /// What it tells of, if that is a process.
    about: Option<Arc<dyn OpenText>>,
    text: Mutex<Option<Arc<Vec<u8>>>>,
}

impl TextFile {
    fn append(&self, out: &mut Vec<u8>) -> Result<()> {
        match (&self.about, self.inode.node) {
            (Some(about), _) => about.append(out),
            (None, Node::SystemText(text)) => self.inode.provider().system_text(text, out),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl OpenFile for TextFile {
    fn read(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        let known = self.text.lock().clone().filter(|_| offset != 0);
        let text = match known {
            Some(text) => text,
            None => {
                let mut made = Vec::new();
                self.append(&mut made)?;
                // A killed reader may have made a part of it, which none is to see.
                preempt::unless_killed()?;
                let made = Arc::new(made);
                *self.text.lock() = Some(made.clone());
                made
            }
        };
        put_from(&text, offset, destination)
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        let length = source.remaining();
        if length > WRITE_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        // Root may open what nobody may write.
        if self.inode.kind_and_permissions().1 & 0o222 == 0 {
            return Err(if self.inode.process().is_some() { Errno::EINVAL } else { Errno::EIO });
        }
        let mut value = alloc::vec![0; length];
        if source.take(&mut value) < length {
            return Err(Errno::EFAULT);
        }
        match (&self.about, self.inode.node) {
            // Nothing that is written to a setting sets nothing.
            (None, Node::SystemText(_)) if length == 0 => {}
            (None, Node::SystemText(text)) => self.inode.provider().set_system_text(text, &value)?,
            (Some(about), _) => about.set(&value)?,
            _ => return Err(Errno::EINVAL),
        }
        Ok(length)
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Offsets
    }
}

#[cfg(test)]
mod tests;
