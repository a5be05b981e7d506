//! Directories as roots: a host directory with everything below it.
//!
//! Links stay links, hard links are found by device and inode number, and mounts of kernel file systems (`/proc`,
//! `/sys`, …) become empty directories, so that even `/` can be packed. The walk keeps its own stack: depth is
//! limited by the host's path limit only.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use aegis_image::tree::{Content, DeviceNumber, LastLink, NodeId};

use crate::root::pack::{HostData, PackError, Packed, Root, Warning, attributes_of, bytes_of, place};

/// File systems that hold the kernel's state and no files.
const KERNEL_FILE_SYSTEMS: [&str; 17] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "mqueue",
    "proc",
    "pstore",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// Packs a directory.
///
/// # Errors
/// `Io` if the directory itself cannot be read, `Tree` if there are too many files.
pub(crate) fn pack_dir(directory: &Path) -> Result<Packed, PackError> {
    let directory = fs::canonicalize(directory).map_err(PackError::io(directory))?;
    let metadata = fs::metadata(&directory).map_err(PackError::io(&directory))?;
    fs::read_dir(&directory).map_err(PackError::io(&directory))?;
    let mut tree = Root::new(attributes_of(&metadata));
    let mut copier = Copier::new();
    copier.copy_below(&mut tree, b"/", &directory, &mut |_, _| {})?;
    Ok(Packed { tree, warnings: copier.warnings })
}

/// Copies host files into a tree and remembers what it has met.
#[derive(Debug)]
pub(crate) struct Copier {
    /// Nodes of files with several names, by device and inode number.
    linked: HashMap<(u64, u64), NodeId>,
    /// Mount points of kernel file systems.
    kernel_mounts: HashSet<PathBuf>,
    /// What was left out.
    pub(crate) warnings: Vec<Warning>,
}

impl Copier {
    /// Reads the host's mounts; without them, every directory is taken for files.
    pub(crate) fn new() -> Self {
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        Self { linked: HashMap::new(), kernel_mounts: kernel_mounts(&mounts), warnings: Vec::new() }
    }

    /// Copies what is below the host directory `source` into the directory at the path `target` of the tree, and tells
    /// `seen` of every regular file. `source` is canonical. Where the tree has a link to a directory and the host a
    /// directory, the link stays and is followed, as `tar` does it.
    ///
    /// # Errors
    /// `Tree`; what the host refuses is a warning.
    pub(crate) fn copy_below(
        &mut self,
        tree: &mut Root,
        target: &[u8],
        source: &Path,
        seen: &mut dyn FnMut(&Path, &Metadata),
    ) -> Result<(), PackError> {
        let node = tree.resolve(target, LastLink::Follow).map_err(PackError::tree(source))?;
        let mut pending = vec![(source.to_path_buf(), node, target.to_vec())];
        while let Some((directory, node, tree_path)) = pending.pop() {
            if self.kernel_mounts.contains(&directory) {
                continue;
            }
            let Ok(entries) = fs::read_dir(&directory) else {
                self.warnings.push(Warning::Unreadable(directory));
                continue;
            };
            // The order of warnings and node numbers should not depend on the host's directory order.
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort_unstable();
            for path in paths {
                let Ok(metadata) = fs::symlink_metadata(&path) else {
                    self.warnings.push(Warning::Unreadable(path));
                    continue;
                };
                let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
                if metadata.is_dir() {
                    let tree_path = [&tree_path, name].join(&b'/');
                    let copied = match linked_directory(tree, node, name, &tree_path) {
                        Some(existing) => Some(existing),
                        None => self.copy_node(tree, node, name, &path, &metadata)?,
                    };
                    pending.extend(copied.map(|copied| (path, copied, tree_path)));
                } else if self.copy_node(tree, node, name, &path, &metadata)?.is_some() && metadata.is_file() {
                    seen(&path, &metadata);
                }
            }
        }
        Ok(())
    }

    /// Copies one file (a directory without its contents) to a name in the tree; `None` if it was left out.
    ///
    /// # Errors
    /// `Io` for a link that vanished, `Tree`.
    pub(crate) fn copy_node(
        &mut self,
        tree: &mut Root,
        directory: NodeId,
        name: &[u8],
        path: &Path,
        metadata: &Metadata,
    ) -> Result<Option<NodeId>, PackError> {
        let has_more_names = metadata.nlink() > 1 && !metadata.is_dir();
        let identity = (metadata.dev(), metadata.ino());
        if has_more_names && let Some(node) = self.linked.get(&identity).copied() {
            if tree.lookup(directory, name) == Some(node) {
                return Ok(Some(node));
            }
            if tree.lookup(directory, name).is_some() {
                tree.remove(directory, name).map_err(PackError::tree(path))?;
            }
            tree.link(directory, name, node).map_err(PackError::tree(path))?;
            return Ok(Some(node));
        }
        if metadata.is_file() && !is_readable(path, metadata) {
            self.warnings.push(Warning::Unreadable(path.to_path_buf()));
            return Ok(None);
        }
        let content = content_of(path, metadata)?;
        let node = place(tree, directory, name, attributes_of(metadata), content).map_err(PackError::tree(path))?;
        if has_more_names {
            self.linked.insert(identity, node);
        }
        Ok(Some(node))
    }
}

/// The directory that a link of the tree leads to; `None` if there is no link, or it leads elsewhere.
fn linked_directory(tree: &Root, directory: NodeId, name: &[u8], path: &[u8]) -> Option<NodeId> {
    let existing = tree.lookup(directory, name)?;
    let is_link = matches!(tree.node(existing).content(), Content::Symlink(_));
    let target = is_link.then(|| tree.resolve(path, LastLink::Follow).ok())??;
    tree.node(target).is_directory().then_some(target)
}

/// Files that everybody may read need not be tried.
fn is_readable(path: &Path, metadata: &Metadata) -> bool {
    metadata.mode() & 0o444 == 0o444 || File::open(path).is_ok()
}

fn content_of(path: &Path, metadata: &Metadata) -> Result<Content<HostData>, PackError> {
    let kind = metadata.file_type();
    Ok(if kind.is_dir() {
        Content::empty_directory()
    } else if kind.is_symlink() {
        let target = fs::read_link(path).map_err(PackError::io(path))?;
        Content::Symlink(bytes_of(&target).to_vec())
    } else if kind.is_char_device() {
        Content::CharacterDevice(device_number(metadata.rdev()))
    } else if kind.is_block_device() {
        Content::BlockDevice(device_number(metadata.rdev()))
    } else if kind.is_fifo() {
        Content::Fifo
    } else if kind.is_socket() {
        Content::Socket
    } else {
        Content::File(HostData::Path { path: path.to_path_buf(), length_bytes: metadata.len() })
    })
}

/// Splits the device number of glibc's `stat`: 32 bits each, interleaved (`gnu_dev_major`, `gnu_dev_minor`).
fn device_number(device: u64) -> DeviceNumber {
    DeviceNumber {
        major: (((device >> 8) & 0xfff) | ((device >> 32) & !0xfff)) as u32,
        minor: ((device & 0xff) | ((device >> 12) & !0xff)) as u32,
    }
}

/// The mount points of kernel file systems in `/proc/self/mountinfo` (proc(5)).
fn kernel_mounts(mounts: &[u8]) -> HashSet<PathBuf> {
    let lines = mounts.split(|byte| *byte == b'\n');
    lines.filter_map(kernel_mount).collect()
}

fn kernel_mount(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = fields.nth(4)?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let is_kernel = KERNEL_FILE_SYSTEMS.iter().any(|name| name.as_bytes() == kind);
    is_kernel.then(|| PathBuf::from(std::ffi::OsStr::from_bytes(&unescape(point))))
}

/// Undoes the octal escapes of blanks in mountinfo.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) if *first == b'\\' => {
                plain.push(byte);
                rest = &behind[3..];
            }
            _ => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
#[path = "pack_dir_tests.rs"]
mod tests;
