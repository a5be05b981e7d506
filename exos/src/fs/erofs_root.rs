//! The read-only root over an EROFS image that lies in memory.
//!
//! The bundle is immutable and belongs to the pod for its whole life, so the image is a `&'static [u8]` and
//! pages of files are handed out as the bundle's own frames: program text is mapped straight from the
//! image. Files whose data are not contiguous and page-aligned cannot be mapped this way; the overlay
//! copies their pages instead.
//!
//! The image may hold anything: what the reader refuses becomes `EIO` for the call that met it, never a panic.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::FrameNumber;
use aegis_image::erofs::read::{Image, Inode as ImageInode, InodeNumber, ReadError};
use aegis_image::erofs::{self, SUPER_MAGIC};

use super::extended_attribute;
use super::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, Protection, Timestamp};
use super::page::{PAGE_BYTES, valid_bytes};
use super::transfer::{Destination, partial, put_from};
use super::vnode::{DirectoryEntry, EntryConsumer, Inode, InodeRef};
use crate::error::{Errno, Result};
use crate::mem::frames::{FixedRun, FramePool};
use crate::mem::source::{FilePage, PageError, PageIntent};
use crate::preempt::Pace;

/// Bytes of a directory with the entries `.` and `..` alone: two entries of twelve bytes, and their names.
const EMPTY_DIRECTORY_BYTES: u64 = 2 * 12 + 3;

/// Where the image's bytes are in frames, so that pages can be mapped.
#[derive(Clone)]
pub struct ImageFrames {
    /// The frame of the image's first page. The pool knows the image's frames as borrowed ones.
    pub first: FrameNumber,
    /// The pod's frames.
    pub pool: Arc<FramePool>,
}

/// A root image.
pub struct ErofsRoot {
    image: Image<'static>,
    frames: Option<ImageFrames>,
    device: DeviceNumber,
}

impl ErofsRoot {
    /// Opens the image and returns its root directory. Without `frames` nothing of it can be mapped.
    ///
    /// # Errors
    /// The reader's, which says what is wrong with the image.
    pub fn open(
        bytes: &'static [u8],
        frames: Option<ImageFrames>,
        device: DeviceNumber,
    ) -> core::result::Result<InodeRef, ReadError> {
        let image = Image::open(bytes)?;
        let inode = image.inode(image.root())?;
        let root = Arc::new(Self { image, frames, device });
        Ok(Arc::new(ErofsInode { root, inode }))
    }
}

struct ErofsInode {
    root: Arc<ErofsRoot>,
    inode: ImageInode,
}

fn kind_of(kind: erofs::FileKind) -> FileKind {
    match kind {
        erofs::FileKind::Regular => FileKind::Regular,
        erofs::FileKind::Directory => FileKind::Directory,
        erofs::FileKind::CharacterDevice => FileKind::CharacterDevice,
        erofs::FileKind::BlockDevice => FileKind::BlockDevice,
        erofs::FileKind::Fifo => FileKind::Fifo,
        erofs::FileKind::Socket => FileKind::Socket,
        erofs::FileKind::Symlink => FileKind::Symlink,
    }
}

fn damaged(_: ReadError) -> Errno {
    Errno::EIO
}

impl ErofsInode {
    fn open_number(&self, number: InodeNumber) -> Result<InodeRef> {
        let inode = self.root.image.inode(number).map_err(damaged)?;
        Ok(Arc::new(Self { root: self.root.clone(), inode }))
    }
}

impl Inode for ErofsInode {
    fn metadata(&self) -> Metadata {
        let modified = Timestamp { seconds: self.inode.mtime_s, nanoseconds: self.inode.mtime_ns.min(999_999_999) };
        Metadata {
            device: self.root.device,
            inode_number: self.inode.number.0,
            kind: kind_of(self.inode.kind),
            permissions: u32::from(self.inode.permissions),
            link_count: self.inode.link_count,
            uid: self.inode.uid,
            gid: self.inode.gid,
            device_node: DeviceNumber::decoded(self.inode.device),
            size_bytes: self.inode.size_bytes,
            block_count: self.inode.size_bytes.div_ceil(PAGE_BYTES as u64) * 8,
            accessed: modified,
            modified,
            changed: modified,
            created: None,
        }
    }

    fn inode_number(&self) -> u64 {
        self.inode.number.0
    }

    fn protection(&self) -> Protection {
        Protection {
            kind: self.kind(),
            permissions: u32::from(self.inode.permissions),
            uid: self.inode.uid,
            gid: self.inode.gid,
        }
    }

    fn kind(&self) -> FileKind {
        kind_of(self.inode.kind)
    }

    fn size_bytes(&self) -> u64 {
        self.inode.size_bytes
    }

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        if self.inode.kind != erofs::FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let found = self.root.image.lookup(&self.inode, name).map_err(damaged)?;
        self.open_number(found.ok_or(Errno::ENOENT)?.number)
    }

    fn is_always_empty(&self) -> bool {
        self.inode.kind == erofs::FileKind::Directory && self.inode.size_bytes <= EMPTY_DIRECTORY_BYTES
    }

    fn ends_at(&self, cookie: u64) -> bool {
        cookie >= self.inode.size_bytes
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        if self.inode.kind != erofs::FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let image = &self.root.image;
        let mut kind_error = None;
        let reached = image.visit(&self.inode, cookie, |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            let kind = match entry.kind.map_or_else(|| image.inode(entry.number).map(|inode| inode.kind), Ok) {
                Ok(kind) => kind,
                Err(error) => {
                    kind_error = Some(error);
                    return false;
                }
            };
            consumer(DirectoryEntry {
                name: entry.name,
                inode_number: entry.number.0,
                kind: kind_of(kind),
                next_cookie: entry.next_position,
            })
        });
        match kind_error {
            Some(error) => Err(damaged(error)),
            None => reached.map_err(damaged),
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match self.root.image.read_link(&self.inode) {
            Ok(target) => Ok(target.to_vec()),
            Err(ReadError::NotLink) => Err(Errno::EINVAL),
            Err(error) => Err(damaged(error)),
        }
    }

    fn read_at(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        match self.inode.kind {
            erofs::FileKind::Regular => {}
            erofs::FileKind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        if let Some(extent) = self.root.image.extent(&self.inode) {
            let start = extent.offset_bytes as usize;
            let bytes = self.root.image.bytes().get(start..start + extent.length_bytes as usize);
            return put_from(bytes.ok_or(Errno::EIO)?, offset, destination);
        }
        let mut bounce = [0; 512];
        let (mut done, mut pace) = (0, Pace::default());
        while destination.remaining() > 0 {
            let step = destination.remaining().min(bounce.len());
            let position = offset.saturating_add(done as u64);
            let count = self.root.image.read_at(&self.inode, position, &mut bounce[..step]);
            if count == 0 {
                break;
            }
            let copied = destination.put(&bounce[..count]);
            done += copied;
            if copied < count {
                return partial(done, Errno::EFAULT);
            }
            if pace.page_unless_killed().is_err() {
                return Ok(done);
            }
        }
        Ok(done)
    }

    fn is_mappable(&self) -> bool {
        self.inode.kind == erofs::FileKind::Regular
    }

    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        if intent == PageIntent::WriteShared {
            return Err(PageError::Failed);
        }
        if index >= self.inode.size_bytes.div_ceil(PAGE_BYTES as u64) {
            return Err(PageError::BeyondEnd);
        }
        self.resident_page(index).ok_or(PageError::Failed)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let valid_bytes = valid_bytes(self.inode.size_bytes, index)?;
        let frames = self.root.frames.as_ref()?;
        let first_page = self.root.image.extent(&self.inode)?.offset_bytes / PAGE_BYTES as u64;
        let frame = FrameNumber(frames.first.0 + first_page + index);
        Some(FilePage { frame: frames.pool.adopt(frame), valid_bytes })
    }

    fn resident_pages(&self, indices: Range<u64>, take: &mut dyn FnMut(u64, FilePage)) {
        let (Some(frames), Some(extent)) = (self.root.frames.as_ref(), self.root.image.extent(&self.inode)) else {
            return;
        };
        let first = frames.first.0 + extent.offset_bytes / PAGE_BYTES as u64;
        for index in indices {
            let Some(valid_bytes) = valid_bytes(self.inode.size_bytes, index) else { return };
            take(index, FilePage { frame: frames.pool.adopt(FrameNumber(first + index)), valid_bytes });
        }
    }

    fn fixed_run(&self, indices: Range<u64>) -> Option<FixedRun> {
        let frames = self.root.frames.as_ref()?;
        let extent = self.root.image.extent(&self.inode)?;
        let end = indices.end.min(self.inode.size_bytes / PAGE_BYTES as u64);
        let count = end.checked_sub(indices.start).filter(|count| *count > 0)?;
        let first = FrameNumber(frames.first.0 + extent.offset_bytes / PAGE_BYTES as u64 + indices.start);
        Some(FixedRun { first, count })
    }

    fn has_extended_attributes(&self) -> bool {
        self.inode.has_extended()
    }

    fn extended_attribute(&self, name: &[u8]) -> Result<Vec<u8>> {
        for attribute in self.root.image.extended(&self.inode) {
            let attribute = attribute.map_err(damaged)?;
            if attribute.is_named(name) {
                return extended_attribute::copy(&[attribute.value]);
            }
        }
        Err(Errno::ENODATA)
    }

    fn extended_attribute_names(&self) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        for attribute in self.root.image.extended(&self.inode) {
            let attribute = attribute.map_err(damaged)?;
            let [prefix, rest] = attribute.name();
            // Attributes may be shared, so an image can name more than it is long.
            if names.len() + prefix.len() + rest.len() >= extended_attribute::FILE_BYTES_MAX {
                return Err(Errno::EIO);
            }
            names.try_reserve(prefix.len() + rest.len() + 1).map_err(|_| Errno::ENOMEM)?;
            [prefix, rest, b"\0"].iter().for_each(|part| names.extend_from_slice(part));
        }
        Ok(names)
    }

    fn statistics(&self) -> FileSystemStatistics {
        FileSystemStatistics {
            magic: u64::from(SUPER_MAGIC),
            block_bytes: PAGE_BYTES as u64,
            block_count: (self.root.image.bytes().len() / PAGE_BYTES) as u64,
            free_block_count: 0,
            inode_count: 0,
            free_inode_count: 0,
        }
    }
}

#[cfg(test)]
mod tests;
