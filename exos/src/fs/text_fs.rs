//! A read-only tree of short texts: `/sys` as far as programs look at it (numbers of processors, interfaces, an empty
//! cgroup directory).
//!
//! A part of it is built when something in it is first looked at ([`Later`]): most programs never do, and a start pays
//! for none of it. From then on it never changes, so nothing is locked; a text may be made each time it is read
//! ([`Entry::Live`]).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, SetAttributes, Timestamp};
use super::open_file::{OpenFile, OpenRequest};
use super::permission::Credentials;
use super::transfer::{Destination, put_from};
use super::vnode::{Creation, DirectoryEntry, EntryConsumer, Inode, InodeRef, NewNode, RenameMode};
use crate::error::{Errno, Result};
use crate::sync::Once;

/// The root's number, as Linux has it.
const ROOT_NUMBER: u64 = 1;

/// sysfs's magic number (Linux `magic.h`).
pub const SYSFS_MAGIC: u64 = 0x6265_6572;

/// A node of the tree.
pub struct TextNode {
    number: u64,
    device: DeviceNumber,
    created: Timestamp,
    content: Content,
}

enum Content {
    File(Entry),
    Directory(Entries),
    Later(Later),
}

type Entries = BTreeMap<Vec<u8>, Arc<TextNode>>;

/// Says what is at paths. It is the same each time.
pub type Files = Arc<dyn Fn() -> Vec<(Vec<u8>, Entry)> + Send + Sync>;

/// A directory of which it is known how it is made.
struct Later {
    entries: Once<Entries>,
    files: Files,
    /// Its own path and a slash: what else there is stands in others.
    prefix: Vec<u8>,
    next_number: Arc<AtomicU64>,
}

impl Content {
    fn is_directory(&self) -> bool {
        !matches!(self, Self::File(_))
    }
}

/// Makes a text that is read. Its errors are those of the read.
pub type LiveText = Arc<dyn Fn() -> Result<Vec<u8>> + Send + Sync>;

/// What is at a path.
#[derive(Clone)]
pub enum Entry {
    /// A text.
    Text(Vec<u8>),
    /// A text that is made each time it is read.
    Live(LiveText),
    /// A symbolic link.
    Link(Vec<u8>),
}

/// A path and what is there.
type EntryAt<'a> = (&'a [u8], &'a Entry);

/// What nodes of a tree have in common.
#[derive(Clone, Copy)]
struct Common<'a> {
    device: DeviceNumber,
    created: Timestamp,
    next_number: &'a Arc<AtomicU64>,
}

impl Common<'_> {
    fn node(&self, content: Content) -> Arc<TextNode> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Arc::new(TextNode { number, device: self.device, created: self.created, content })
    }

    /// What a directory has whose files are at these paths; a path that ends with `/` makes an empty one.
    fn entries(&self, files: &[EntryAt<'_>]) -> Entries {
        let mut below: BTreeMap<&[u8], Vec<EntryAt<'_>>> = BTreeMap::new();
        let mut entries = BTreeMap::new();
        for (path, entry) in files {
            match path.iter().position(|byte| *byte == b'/') {
                Some(slash) => below.entry(&path[..slash]).or_default().push((&path[slash + 1..], *entry)),
                None if path.is_empty() => {}
                None => {
                    entries.insert(path.to_vec(), self.node(Content::File((*entry).clone())));
                }
            }
        }
        for (name, files) in below {
            entries.insert(name.to_vec(), self.node(Content::Directory(self.entries(&files))));
        }
        entries
    }
}

impl TextNode {
    /// What a directory has; `None`: it is a file.
    fn entries(&self) -> Option<&Entries> {
        match &self.content {
            Content::File(_) => None,
            Content::Directory(entries) => Some(entries),
            Content::Later(later) => Some(later.entries.call_once(|| {
                let common = Common { device: self.device, created: self.created, next_number: &later.next_number };
                let files = (later.files)();
                let own = files.iter().filter_map(|(path, entry)| Some((path.strip_prefix(&later.prefix[..])?, entry)));
                common.entries(&own.collect::<Vec<_>>())
            })),
        }
    }
}

/// `/sys` for a machine with that many processors, and what else there is.
pub fn system_tree(processor_count: u32, more: Files, device: DeviceNumber, now: Timestamp) -> InodeRef {
    let next_number = Arc::new(AtomicU64::new(ROOT_NUMBER + 1));
    let common = Common { device, created: now, next_number: &next_number };
    let files: Files = Arc::new(move || {
        let mut files = more();
        files.extend(processor_files(processor_count));
        files
    });
    let later = |name: &[u8]| {
        let (files, next_number) = (files.clone(), next_number.clone());
        let content = Later { entries: Once::new(), files, prefix: [name, b"/"].concat(), next_number };
        (name.to_vec(), common.node(Content::Later(content)))
    };
    let mut entries: Entries = [&b"block"[..], b"class", b"devices", b"kernel"].into_iter().map(later).collect();
    // What others are mounted on is there from the start.
    let empty = Entry::Text(Vec::new());
    entries.extend(common.entries(&[(b"fs/cgroup/", &empty), (b"fs/lottery/", &empty)]));
    Arc::new(TextNode { number: ROOT_NUMBER, device, created: now, content: Content::Directory(entries) })
}

/// What `/sys` says of processors and their memory.
fn processor_files(processor_count: u32) -> Vec<(Vec<u8>, Entry)> {
    let list = match processor_count {
        0 | 1 => Vec::from(b"0\n"),
        count => format!("0-{}\n", count - 1).into_bytes(),
    };
    let mut files = Vec::new();
    let mut put = |path: Vec<u8>, text: &[u8]| files.push((path, Entry::Text(text.to_vec())));
    for name in ["online", "possible", "present"] {
        put(format!("devices/system/cpu/{name}").into_bytes(), &list);
    }
    put(b"devices/system/cpu/kernel_max".to_vec(), b"63\n");
    for index in 0..processor_count.max(1) {
        let topology = format!("devices/system/cpu/cpu{index}/topology");
        put(format!("{topology}/core_id").into_bytes(), format!("{index}\n").as_bytes());
        let package = format!("{topology}/physical_package_id").into_bytes();
        put(package, b"0\n");
    }
    put(b"devices/system/node/online".to_vec(), b"0\n");
    let large_pages: [(&str, &[u8]); 3] = [
        ("enabled", b"[always] madvise never\n"),
        ("shmem_enabled", b"always within_size advise [never] deny force\n"),
        ("hpage_pmd_size", b"2097152\n"),
    ];
    for (name, text) in large_pages {
        put(format!("kernel/mm/transparent_hugepage/{name}").into_bytes(), text);
    }
    files
}

impl Inode for TextNode {
    fn metadata(&self) -> Metadata {
        let kind = self.kind();
        let (permissions, link_count, size_bytes) = match self.entries() {
            None if kind == FileKind::Symlink => (0o777, 1, 0),
            None => (0o444, 1, 4096),
            Some(entries) => {
                let count = entries.values().filter(|node| node.content.is_directory()).count() as u32;
                (0o755, 2 + count, 0)
            }
        };
        Metadata {
            device: self.device,
            inode_number: self.number,
            kind,
            permissions,
            link_count,
            uid: 0,
            gid: 0,
            device_node: DeviceNumber::default(),
            size_bytes,
            block_count: 0,
            accessed: self.created,
            modified: self.created,
            changed: self.created,
            created: None,
        }
    }

    fn kind(&self) -> FileKind {
        match &self.content {
            Content::File(Entry::Link(_)) => FileKind::Symlink,
            Content::File(_) => FileKind::Regular,
            Content::Directory(_) | Content::Later(_) => FileKind::Directory,
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        let found = self.entries().ok_or(Errno::ENOTDIR)?.get(name).cloned().ok_or(Errno::ENOENT)?;
        Ok(found)
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        let entries = self.entries().ok_or(Errno::ENOTDIR)?;
        let mut position = cookie;
        let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
        for (index, (name, node)) in entries.iter().enumerate().skip(skip) {
            let next_cookie = index as u64 + 1;
            let kind = node.kind();
            if !consumer(DirectoryEntry { name, inode_number: node.number, kind, next_cookie }) {
                break;
            }
            position = next_cookie;
        }
        Ok(position)
    }

    fn create(&self, _: &[u8], node: NewNode<'_>, _: Creation) -> Result<InodeRef> {
        Err(if node == NewNode::Regular { Errno::EACCES } else { Errno::EPERM })
    }

    fn link(&self, _: &[u8], _: &InodeRef, _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn unlink(&self, _: &[u8], _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn remove_directory(&self, _: &[u8], _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn rename(&self, _: &[u8], _: &InodeRef, _: &[u8], _: RenameMode, _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn set_attributes(&self, _: SetAttributes, _: Timestamp) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn open(&self, request: OpenRequest, _: &Credentials) -> Result<Option<Arc<dyn OpenFile>>> {
        // Root too may write only what has a writer.
        if request.write && matches!(self.content, Content::File(_)) { Err(Errno::EACCES) } else { Ok(None) }
    }

    fn read_at(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        match &self.content {
            Content::File(Entry::Text(text)) => put_from(text, offset, destination),
            Content::File(Entry::Live(make)) => put_from(&make()?, offset, destination),
            Content::File(Entry::Link(_)) => Err(Errno::EINVAL),
            Content::Directory(_) | Content::Later(_) => Err(Errno::EISDIR),
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.content {
            Content::File(Entry::Link(target)) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            magic: SYSFS_MAGIC,
            block_bytes: 4096,
            block_count: 0,
            free_block_count: 0,
            inode_count: 0,
            free_inode_count: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Files, system_tree};
    use crate::error::Errno;
    use crate::fs::metadata::{DeviceNumber, Timestamp};
    use crate::fs::transfer::Buffer;
    use alloc::sync::Arc;
    use alloc::vec;
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn shows_processors() {
        let count = Arc::new(AtomicUsize::new(0));
        let files: Files = {
            let count = count.clone();
            Arc::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
                vec![(b"class/net/lo".to_vec(), Entry::Link(b"../../devices/lo".to_vec()))]
            })
        };
        let root = system_tree(4, files, DeviceNumber { major: 0, minor: 20 }, Timestamp::default());
        let mut here = root.clone();
        for name in [&b"devices"[..], b"system", b"cpu", b"online"] {
            here = here.lookup(name).unwrap();
        }
        let mut text = Buffer::with_limit(64);
        assert_eq!(here.read_at(0, &mut text), Ok(4));
        assert_eq!(text.bytes, b"0-3\n");
        assert_eq!(here.lookup(b"x").err(), Some(Errno::ENOTDIR));
        let cgroup = root.lookup(b"fs").unwrap().lookup(b"cgroup").unwrap();
        assert_eq!(cgroup.read_directory(0, &mut |_| panic!("empty")), Ok(0));
        assert_eq!((root.metadata().link_count, count.load(Ordering::Relaxed)), (7, 1), "devices alone was looked at");
        let link = root.lookup(b"class").unwrap().lookup(b"net").unwrap().lookup(b"lo").unwrap();
        assert_eq!(link.read_link().unwrap(), b"../../devices/lo");
        let classes = root.lookup(b"class").unwrap();
        assert_eq!((classes.metadata().link_count, count.load(Ordering::Relaxed)), (3, 2));
        let mut numbers = vec![root.metadata().inode_number, classes.metadata().inode_number];
        numbers.extend([link, here, cgroup].map(|node| node.metadata().inode_number));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len(), root.metadata().inode_number), (5, 1), "each has its own, the root Linux's");
    }
}
