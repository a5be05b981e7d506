//! A file tree in memory: what goes into a root image, before it is written.
//!
//! A [`Tree`] is an arena of nodes; directories map names to nodes, and a file that two names lead to is a hard link.
//! File contents stay where they are: a node holds a [`FileData`] that is read when the image is written.
//!
//! Invariants: node 0 is the root directory; every directory has exactly one name (so the tree has no cycle); names are
//! 1 to [`NAME_BYTES_MAX`] bytes without `/` and NUL, and neither `.` nor `..`. Names are kept in byte order, which is
//! the order that the image needs, so the order of insertion leaves no trace (INV-I2).
//!
//! Paths are resolved as Linux does it, inside the tree: `..` above the root stays at the root, an absolute link starts
//! at the root, and more than [`LINK_FOLLOW_MAX`] links are a loop.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;

/// Longest name of a directory entry in bytes (Linux `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link in bytes (Linux `PATH_MAX` less the final NUL).
pub const LINK_TARGET_BYTES_MAX: usize = 4095;
/// Most symbolic links followed for one path (as on Linux).
pub const LINK_FOLLOW_MAX: usize = 40;
/// Most nodes in a tree.
pub const NODE_COUNT_MAX: usize = 1 << 24;

/// The contents of a regular file.
pub trait FileData {
    /// Why contents could not be read.
    type Error;

    /// Length in bytes. It must not change between two calls.
    fn length_bytes(&self) -> u64;

    /// Fills all of `buffer` from `offset_bytes`; the range lies inside the file.
    ///
    /// # Errors
    /// The provider's own, also when the file has become shorter.
    fn read_exact_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), Self::Error>;
}

impl FileData for Vec<u8> {
    type Error = Infallible;

    fn length_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), Infallible> {
        let start = offset_bytes as usize;
        buffer.copy_from_slice(&self[start..start + buffer.len()]);
        Ok(())
    }
}

/// Names a node of the tree that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// Position in the arena.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Permissions, owner and time of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits with set-user-ID, set-group-ID and sticky bit; the file type is not in here. At most 0o7777.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last modification, seconds since the epoch.
    pub mtime_s: i64,
    /// Nanoseconds within that second, below 1e9.
    pub mtime_ns: u32,
}

impl Attributes {
    /// Owned by root, modified at the epoch.
    pub const fn root_owned(permissions: u16) -> Self {
        Self { permissions, uid: 0, gid: 0, mtime_s: 0, mtime_ns: 0 }
    }
}

/// Major and minor number of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Driver; at most 0xfff.
    pub major: u32,
    /// Unit; at most 0xf_ffff.
    pub minor: u32,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Content<D> {
    /// A directory: its names, in byte order.
    Directory(BTreeMap<Vec<u8>, NodeId>),
    /// A regular file.
    File(D),
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A character device.
    CharacterDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
}

impl<D> Content<D> {
    /// A directory without entries.
    pub const fn empty_directory() -> Self {
        Self::Directory(BTreeMap::new())
    }
}

/// A name of an extended attribute, with its prefix, and its value.
pub type ExtendedAttribute = (Vec<u8>, Vec<u8>);

/// A node: attributes and content.
#[derive(Clone, Debug)]
pub struct Node<D> {
    /// Permissions, owner, time.
    pub attributes: Attributes,
    extended: Box<[ExtendedAttribute]>,
    content: Content<D>,
}

impl<D> Node<D> {
    /// What the node is. Directories change only through [`Tree`].
    pub fn content(&self) -> &Content<D> {
        &self.content
    }

    /// Extended attributes.
    pub fn extended(&self) -> &[ExtendedAttribute] {
        &self.extended
    }

    /// True for directories.
    pub fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory(_))
    }
}

/// Why the tree refused; always the caller's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// The name exists already.
    Exists,
    /// No such name.
    NotFound,
    /// A component that should be a directory is not one.
    NotDirectory,
    /// A directory can have only one name.
    IsDirectory,
    /// A name is empty, too long, `.` or `..`, or holds `/` or NUL.
    NameInvalid,
    /// A link target is empty, too long or holds NUL.
    TargetInvalid,
    /// Too many symbolic links on the way.
    LinkLoop,
    /// [`NODE_COUNT_MAX`] is reached.
    TooManyNodes,
}

impl core::fmt::Display for TreeError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::Exists => "the name exists already",
            Self::NotFound => "no such file or directory",
            Self::NotDirectory => "not a directory",
            Self::IsDirectory => "is a directory",
            Self::NameInvalid => "the name is empty, too long or holds a forbidden byte",
            Self::TargetInvalid => "the link target is empty, too long or holds a zero byte",
            Self::LinkLoop => "too many symbolic links",
            Self::TooManyNodes => "too many files for one image",
        })
    }
}

impl core::error::Error for TreeError {}

/// Whether a symbolic link in the last component is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Follow it.
    Follow,
    /// Give the link itself.
    Keep,
}

/// A file tree.
#[derive(Clone, Debug)]
pub struct Tree<D> {
    nodes: Vec<Node<D>>,
}

impl<D> Tree<D> {
    /// A tree with nothing but its root directory.
    pub fn new(root_attributes: Attributes) -> Self {
        let root = Node { attributes: root_attributes, extended: Box::default(), content: Content::empty_directory() };
        Self { nodes: vec![root] }
    }

    /// The root directory.
    pub fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// A node by its id. Ids of another tree may panic or name another node.
    pub fn node(&self, id: NodeId) -> &Node<D> {
        &self.nodes[id.index()]
    }

    /// Nodes ever made; removed ones stay counted.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Replaces permissions, owner and time.
    pub fn set_attributes(&mut self, id: NodeId, attributes: Attributes) {
        self.nodes[id.index()].attributes = attributes;
    }

    /// Replaces extended attributes. A root image holds those of which
    /// [`crate::erofs::extended::can_hold`] says so.
    pub fn set_extended(&mut self, id: NodeId, extended: Vec<ExtendedAttribute>) {
        self.nodes[id.index()].extended = extended.into_boxed_slice();
    }

    /// The node that `name` leads to in `directory`, if any.
    pub fn lookup(&self, directory: NodeId, name: &[u8]) -> Option<NodeId> {
        match &self.node(directory).content {
            Content::Directory(entries) => entries.get(name).copied(),
            _ => None,
        }
    }

    /// Adds a node. A directory starts empty, whatever `content` holds.
    ///
    /// # Errors
    /// `NameInvalid`, `TargetInvalid`, `Exists`, `NotDirectory`, `TooManyNodes`; the tree is unchanged then.
    pub fn add(
        &mut self,
        directory: NodeId,
        name: &[u8],
        attributes: Attributes,
        content: Content<D>,
    ) -> Result<NodeId, TreeError> {
        check_name(name)?;
        if let Content::Symlink(target) = &content {
            check_target(target)?;
        }
        let content = match content {
            Content::Directory(_) => Content::empty_directory(),
            other => other,
        };
        if self.nodes.len() >= NODE_COUNT_MAX {
            return Err(TreeError::TooManyNodes);
        }
        let id = NodeId(self.nodes.len() as u32);
        self.insert_name(directory, name, id)?;
        self.nodes.push(Node { attributes, extended: Box::default(), content });
        Ok(id)
    }

    /// Gives a file another name (a hard link).
    ///
    /// # Errors
    /// `IsDirectory` if `node` is a directory; `NameInvalid`, `Exists`, `NotDirectory`.
    pub fn link(&mut self, directory: NodeId, name: &[u8], node: NodeId) -> Result<(), TreeError> {
        check_name(name)?;
        if self.node(node).is_directory() {
            return Err(TreeError::IsDirectory);
        }
        self.insert_name(directory, name, node)
    }

    /// Removes a name; what was below it goes with it.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`.
    pub fn remove(&mut self, directory: NodeId, name: &[u8]) -> Result<(), TreeError> {
        match &mut self.nodes[directory.index()].content {
            Content::Directory(entries) => entries.remove(name).map(|_| ()).ok_or(TreeError::NotFound),
            _ => Err(TreeError::NotDirectory),
        }
    }

    /// Finds the node at a path from the root; a leading `/` makes no difference.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `LinkLoop`.
    pub fn resolve(&self, path: &[u8], last_link: LastLink) -> Result<NodeId, TreeError> {
        let mut walk = Walk::new(self.root(), path);
        while let Some(name) = walk.next_name() {
            let next = self.step(walk.here(), &name)?.ok_or(TreeError::NotFound)?;
            let keep = walk.is_finished() && last_link == LastLink::Keep;
            match &self.node(next).content {
                Content::Symlink(target) if !keep => walk.follow(target)?,
                _ => walk.enter(next),
            }
        }
        Ok(walk.here())
    }

    /// Finds the directory at a path from the root, following links, and makes the directories that are missing.
    ///
    /// # Errors
    /// `NotDirectory` if something else is in the way, `NameInvalid`, `LinkLoop`, `TooManyNodes`.
    pub fn ensure_directory(&mut self, path: &[u8], attributes: Attributes) -> Result<NodeId, TreeError> {
        let mut walk = Walk::new(self.root(), path);
        while let Some(name) = walk.next_name() {
            let next = match self.step(walk.here(), &name)? {
                Some(next) => next,
                None => self.add(walk.here(), &name, attributes, Content::empty_directory())?,
            };
            match &self.node(next).content {
                Content::Symlink(target) => walk.follow(target)?,
                _ => walk.enter(next),
            }
        }
        if self.node(walk.here()).is_directory() { Ok(walk.here()) } else { Err(TreeError::NotDirectory) }
    }

    fn step(&self, here: NodeId, name: &[u8]) -> Result<Option<NodeId>, TreeError> {
        match &self.node(here).content {
            Content::Directory(entries) => Ok(entries.get(name).copied()),
            _ => Err(TreeError::NotDirectory),
        }
    }

    fn insert_name(&mut self, directory: NodeId, name: &[u8], node: NodeId) -> Result<(), TreeError> {
        let Content::Directory(entries) = &mut self.nodes[directory.index()].content else {
            return Err(TreeError::NotDirectory);
        };
        if entries.contains_key(name) {
            return Err(TreeError::Exists);
        }
        entries.insert(name.to_vec(), node);
        Ok(())
    }
}

/// A path on its way through a tree or an image: names still to go, and the nodes from the root to here.
///
/// `..` is handled here, so that trees and images need only a step downwards.
pub(crate) struct Walk<N> {
    stack: Vec<N>,
    names: VecDeque<Vec<u8>>,
    link_count: usize,
}

impl<N: Copy> Walk<N> {
    pub(crate) fn new(root: N, path: &[u8]) -> Self {
        let mut walk = Self { stack: vec![root], names: VecDeque::new(), link_count: 0 };
        walk.push_front(path);
        walk
    }

    /// The last node entered.
    pub(crate) fn here(&self) -> N {
        self.stack.last().copied().expect("INV: the root never leaves the stack")
    }

    /// The next name to look up in [`Walk::here`].
    pub(crate) fn next_name(&mut self) -> Option<Vec<u8>> {
        loop {
            let name = self.names.pop_front()?;
            if name != b".." {
                return Some(name);
            }
            if self.stack.len() > 1 {
                self.stack.pop();
            }
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.names.is_empty()
    }

    pub(crate) fn enter(&mut self, node: N) {
        self.stack.push(node);
    }

    pub(crate) fn follow(&mut self, target: &[u8]) -> Result<(), TreeError> {
        self.link_count += 1;
        if self.link_count > LINK_FOLLOW_MAX {
            return Err(TreeError::LinkLoop);
        }
        if target.first() == Some(&b'/') {
            self.stack.truncate(1);
        }
        self.push_front(target);
        Ok(())
    }

    fn push_front(&mut self, path: &[u8]) {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        for name in names.filter(|name| *name != b".").rev() {
            self.names.push_front(name.to_vec());
        }
    }
}

fn check_name(name: &[u8]) -> Result<(), TreeError> {
    if name_is_valid(name) && name != b"." && name != b".." { Ok(()) } else { Err(TreeError::NameInvalid) }
}

/// Most bytes of a name, and at least one: what [`name_is_valid`] says of its length alone.
#[inline]
pub(crate) fn name_length_is_valid(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
}

/// Whether a byte of a word may not stand in a name: `/` or NUL.
#[inline]
pub(crate) fn has_forbidden(bytes: &[u8; 8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const SLASHES: u64 = u64::from_le_bytes([b'/'; 8]);
    // The top bit of some byte, if one of them is zero.
    let with_zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let word = u64::from_le_bytes(*bytes);
    with_zero(word) | with_zero(word ^ SLASHES) != 0
}

/// True for 1 to 255 bytes without `/` and NUL; looks at eight bytes at a time.
#[inline]
pub(crate) fn name_is_valid(name: &[u8]) -> bool {
    let is_forbidden = |bytes: &[u8]| match bytes.last_chunk::<8>() {
        Some(last) => bytes.as_chunks::<8>().0.iter().any(has_forbidden) || has_forbidden(last),
        None => bytes.iter().any(|byte| matches!(byte, b'/' | 0)),
    };
    name_length_is_valid(name) && !is_forbidden(name)
}

fn check_target(target: &[u8]) -> Result<(), TreeError> {
    if (1..=LINK_TARGET_BYTES_MAX).contains(&target.len()) && !target.contains(&0) {
        Ok(())
    } else {
        Err(TreeError::TargetInvalid)
    }
}

#[cfg(test)]
mod tests {
    use super::{Attributes, Content, LastLink, Tree, TreeError};
    use alloc::vec::Vec;

    const PLAIN: Attributes = Attributes::root_owned(0o755);

    fn link(target: &[u8]) -> Content<Vec<u8>> {
        Content::Symlink(target.to_vec())
    }

    #[test]
    fn resolves_through_links_and_parents() {
        let mut tree = Tree::<Vec<u8>>::new(PLAIN);
        let usr_lib = tree.ensure_directory(b"usr/lib", PLAIN).unwrap();
        tree.add(tree.root(), b"lib", PLAIN, link(b"usr/lib")).unwrap();
        let file = tree.add(usr_lib, b"x", PLAIN, Content::File(Vec::new())).unwrap();
        tree.add(usr_lib, b"up", PLAIN, link(b"../../lib/x")).unwrap();
        for path in [&b"/lib/x"[..], b"lib/../../usr//lib/./x", b"/lib/up"] {
            assert_eq!(tree.resolve(path, LastLink::Follow), Ok(file));
        }
        assert_ne!(tree.resolve(b"/lib/up", LastLink::Keep), Ok(file));
        assert_eq!(tree.ensure_directory(b"/lib", PLAIN), Ok(usr_lib));
        assert_eq!(tree.ensure_directory(b"/lib/x", PLAIN), Err(TreeError::NotDirectory));
        assert_eq!(tree.resolve(b"/lib/x/y", LastLink::Keep), Err(TreeError::NotDirectory));
        assert_eq!(tree.resolve(b"/none", LastLink::Keep), Err(TreeError::NotFound));
    }

    #[test]
    fn refuses_loops_bad_names_and_second_names_of_directories() {
        let mut tree = Tree::<Vec<u8>>::new(PLAIN);
        let root = tree.root();
        tree.add(root, b"a", PLAIN, link(b"b")).unwrap();
        tree.add(root, b"b", PLAIN, link(b"/a")).unwrap();
        assert_eq!(tree.resolve(b"a", LastLink::Follow), Err(TreeError::LinkLoop));
        for name in [&b""[..], b".", b"..", b"x/y", b"x\0", &[b'x'; 256]] {
            let added = tree.add(root, name, PLAIN, Content::Fifo);
            assert_eq!(added, Err(TreeError::NameInvalid), "{name:?}");
        }
        assert_eq!(tree.add(root, b"l", PLAIN, link(b"")), Err(TreeError::TargetInvalid));
        let directory = tree.ensure_directory(b"d", PLAIN).unwrap();
        assert_eq!(tree.link(directory, b"again", root), Err(TreeError::IsDirectory));
        assert_eq!(tree.add(root, b"d", PLAIN, Content::Fifo), Err(TreeError::Exists));
        assert_eq!(tree.remove(root, b"d"), Ok(()));
        assert_eq!(tree.lookup(root, b"d"), None);
    }
}
