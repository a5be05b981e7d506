//! A read-only tree of short texts: `/sys` as far as programs look at it (numbers of processors, interfaces, an empty
//! cgroup directory).
//!
//! The tree is built once and never changes, so nothing is locked; a text may be made each time it is read
//! ([`Entry::Live`]).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, SetAttributes, Timestamp};
use super::open_file::{OpenFile, OpenRequest};
use super::permission::Credentials;
use super::transfer::{Destination, put_from};
use super::vnode::{Creation, DirectoryEntry, EntryConsumer, Inode, InodeRef, NewNode, RenameMode};
use crate::error::{Errno, Result};

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
    Directory(BTreeMap<Vec<u8>, Arc<TextNode>>),
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

/// Builds a tree from what is at paths; a path that ends with `/` makes an empty directory.
pub fn build(files: &[(Vec<u8>, Entry)], device: DeviceNumber, now: Timestamp) -> InodeRef {
    let mut next_number = 1;
    let files: Vec<EntryAt<'_>> = files.iter().map(|(path, entry)| (path.as_slice(), entry)).collect();
    directory(&files, device, now, &mut next_number)
}

/// A path and what is there.
type EntryAt<'a> = (&'a [u8], &'a Entry);

fn directory(files: &[EntryAt<'_>], device: DeviceNumber, now: Timestamp, next_number: &mut u64) -> Arc<TextNode> {
    let number = *next_number;
    *next_number += 1;
    let mut below: BTreeMap<&[u8], Vec<EntryAt<'_>>> = BTreeMap::new();
    let mut entries = BTreeMap::new();
    for (path, entry) in files {
        match path.iter().position(|byte| *byte == b'/') {
            Some(slash) => below.entry(&path[..slash]).or_default().push((&path[slash + 1..], *entry)),
            None if path.is_empty() => {}
            None => {
                let content = Content::File((*entry).clone());
                let file = TextNode { number: *next_number, device, created: now, content };
                *next_number += 1;
                entries.insert(path.to_vec(), Arc::new(file));
            }
        }
    }
    for (name, files) in below {
        entries.insert(name.to_vec(), directory(&files, device, now, next_number));
    }
    Arc::new(TextNode { number, device, created: now, content: Content::Directory(entries) })
}

/// `/sys` for a machine with that many processors, and what else there is.
pub fn system_tree(
    processor_count: u32,
    more: Vec<(Vec<u8>, Entry)>,
    device: DeviceNumber,
    now: Timestamp,
) -> InodeRef {
    let list = match processor_count {
        0 | 1 => Vec::from(b"0\n"),
        count => format!("0-{}\n", count - 1).into_bytes(),
    };
    let mut files = more;
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
    put(b"fs/cgroup/".to_vec(), b"");
    put(b"fs/lottery/".to_vec(), b"");
    let large_pages: [(&str, &[u8]); 3] = [
        ("enabled", b"[always] madvise never\n"),
        ("shmem_enabled", b"always within_size advise [never] deny force\n"),
        ("hpage_pmd_size", b"2097152\n"),
    ];
    for (name, text) in large_pages {
        put(format!("kernel/mm/transparent_hugepage/{name}").into_bytes(), text);
    }
    build(&files, device, now)
}

impl Inode for TextNode {
    fn metadata(&self) -> Metadata {
        let (kind, permissions, link_count, size_bytes) = match &self.content {
            Content::File(Entry::Link(_)) => (FileKind::Symlink, 0o777, 1, 0),
            Content::File(_) => (FileKind::Regular, 0o444, 1, 4096),
            Content::Directory(entries) => {
                let is_directory = |node: &&Arc<Self>| matches!(node.content, Content::Directory(_));
                let count = entries.values().filter(is_directory).count() as u32;
                (FileKind::Directory, 0o755, 2 + count, 0)
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

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        match &self.content {
            Content::Directory(entries) => {
                let found = entries.get(name).cloned().ok_or(Errno::ENOENT)?;
                Ok(found)
            }
            Content::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        let Content::Directory(entries) = &self.content else {
            return Err(Errno::ENOTDIR);
        };
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
            Content::Directory(_) => Err(Errno::EISDIR),
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
    use super::system_tree;
    use crate::error::Errno;
    use crate::fs::metadata::{DeviceNumber, Timestamp};
    use crate::fs::transfer::Buffer;

    #[test]
    fn shows_processors() {
        let root = system_tree(4, Vec::new(), DeviceNumber { major: 0, minor: 20 }, Timestamp::default());
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
    }
}
