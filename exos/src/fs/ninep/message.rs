//! Messages of 9P2000.L as bytes: a writer for requests, a reader for replies. Pure, total, without allocation beyond
//! the message itself.
//!
//! A message is `size[4] type[1] tag[2]` and its fields, all little-endian; a string is `count[2]` and its bytes. The
//! dialect is the one that Linux's client and QEMU's server speak (`Documentation/filesystems/9p.rst`; the field lists
//! are those of diod's `protocol.md`). Everything in a reply is the server's word and may be anything: the reader
//! answers `None` for what does not fit, and never panics, allocates by a count it was told, or reads twice.

use alloc::vec::Vec;

use super::super::metadata::{FileKind, Timestamp};
use super::super::vnode::{NAME_BYTES_MAX, PATH_BYTES_MAX};

/// Size, type and tag.
pub(super) const HEADER_BYTES: usize = 7;
/// Bytes of a write request before its data: header, fid, offset, count. A read's reply has fewer.
pub(super) const DATA_HEADER_BYTES: usize = HEADER_BYTES + 4 + 8 + 4;
/// A clunk whole.
pub const CLUNK_BYTES: usize = HEADER_BYTES + 4;
/// Longest of the messages that go many at once, either way: a walk by the longest name; the reply to a question for
/// attributes is shorter.
pub const SHORT_BYTES_MAX: usize = HEADER_BYTES + 4 + 4 + 2 + 2 + NAME_BYTES_MAX;
/// Names no fid.
pub(super) const NO_FID: u32 = u32::MAX;
/// The tag of `Tversion`.
pub(super) const NO_TAG: u16 = u16::MAX;
/// The dialect.
pub(super) const VERSION: &[u8] = b"9P2000.L";

/// Requests; a reply's number is one more. An error is [`R_ERROR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Request {
    Statfs = 8,
    Open = 12,
    Create = 14,
    Symlink = 16,
    MakeNode = 18,
    ReadLink = 22,
    GetAttributes = 24,
    SetAttributes = 26,
    ReadDirectory = 40,
    Sync = 50,
    Link = 70,
    MakeDirectory = 72,
    Rename = 74,
    Unlink = 76,
    Version = 100,
    Attach = 104,
    Walk = 110,
    Read = 116,
    Write = 118,
    Clunk = 120,
}

impl Request {
    /// The type of the reply.
    pub(super) fn reply(self) -> u8 {
        self as u8 + 1
    }
}

/// `Rlerror`.
pub(super) const R_ERROR: u8 = 7;

/// Open flags of the dialect (those of Linux on most machines).
pub(super) mod open_flag {
    pub(in crate::fs::ninep) const READ: u32 = 0;
    pub(in crate::fs::ninep) const WRITE: u32 = 1;
    pub(in crate::fs::ninep) const READ_WRITE: u32 = 2;
    pub(in crate::fs::ninep) const CREATE: u32 = 0o100;
    pub(in crate::fs::ninep) const EXCLUSIVE: u32 = 0o200;
    pub(in crate::fs::ninep) const DIRECTORY: u32 = 0o200_000;
    pub(in crate::fs::ninep) const NO_FOLLOW: u32 = 0o400_000;
}

/// What `Tsetattr` sets.
pub(super) mod set_flag {
    pub(in crate::fs::ninep) const PERMISSIONS: u32 = 1;
    pub(in crate::fs::ninep) const UID: u32 = 1 << 1;
    pub(in crate::fs::ninep) const GID: u32 = 1 << 2;
    pub(in crate::fs::ninep) const SIZE: u32 = 1 << 3;
    pub(in crate::fs::ninep) const ACCESSED: u32 = 1 << 4;
    pub(in crate::fs::ninep) const MODIFIED: u32 = 1 << 5;
    pub(in crate::fs::ninep) const ACCESSED_GIVEN: u32 = 1 << 7;
    pub(in crate::fs::ninep) const MODIFIED_GIVEN: u32 = 1 << 8;
}

/// `Tunlinkat`: the name is a directory's.
pub(super) const UNLINK_DIRECTORY: u32 = 0x200;
/// `Tgetattr`: everything that `stat` tells.
pub(super) const ATTRIBUTES_BASIC: u64 = 0x7ff;

/// Writes one request.
pub(super) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Starts a request in `bytes`, whose contents go.
    pub(super) fn new(bytes: &'a mut Vec<u8>, request: Request, tag: u16) -> Self {
        bytes.clear();
        bytes.extend_from_slice(&[0, 0, 0, 0, request as u8]);
        bytes.extend_from_slice(&tag.to_le_bytes());
        Self { bytes }
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A string of at most 65535 bytes; names and paths are shorter.
    pub(super) fn string(&mut self, text: &[u8]) -> &mut Self {
        let text = &text[..text.len().min(usize::from(u16::MAX))];
        self.u16(text.len() as u16);
        self.bytes.extend_from_slice(text);
        self
    }

    /// Data with its count in front.
    pub(super) fn data(&mut self, data: &[u8]) -> &mut Self {
        self.u32(data.len() as u32);
        self.bytes.extend_from_slice(data);
        self
    }

    /// A point in time.
    pub(super) fn time(&mut self, time: Timestamp) -> &mut Self {
        self.u64(time.seconds.cast_unsigned()).u64(u64::from(time.nanoseconds))
    }

    /// Writes the size; the message is whole.
    pub(super) fn finish(self) {
        let size = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&size.to_le_bytes());
    }
}

/// A clunk that goes along with another message.
pub(super) fn clunk(fid: u32, tag: u16) -> [u8; CLUNK_BYTES] {
    let mut message = [0; CLUNK_BYTES];
    message[..4].copy_from_slice(&(CLUNK_BYTES as u32).to_le_bytes());
    message[4] = Request::Clunk as u8;
    message[5..7].copy_from_slice(&tag.to_le_bytes());
    message[7..].copy_from_slice(&fid.to_le_bytes());
    message
}

/// Several messages in a row of bytes.
#[derive(Clone, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    count: usize,
}

/// Bytes of the length before a message.
const LENGTH_BYTES: usize = 4;

impl Messages {
    /// Puts a message behind the others, with its length before it.
    pub fn push(bytes: &mut Vec<u8>, message: &[u8]) {
        bytes.extend_from_slice(&(message.len() as u32).to_le_bytes());
        bytes.extend_from_slice(message);
    }

    /// One more message.
    pub fn add(&mut self, message: &[u8]) {
        Self::push(&mut self.bytes, message);
        self.count += 1;
    }

    /// How many they are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        Self::split(&self.bytes)
    }

    /// What was [`push`](Self::push)ed, up to the first that is cut off.
    pub fn split(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
        core::iter::from_fn(move || {
            let (length, tail) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let (message, behind) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(message)
        })
    }
}

/// What stands in front of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) tag: u16,
}

/// Reads a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The header of a reply, and what follows it. The message's own size must be that of `bytes`.
    pub(super) fn open(bytes: &'a [u8]) -> Option<(Header, Self)> {
        let mut reader = Self { rest: bytes };
        let size = reader.u32()?;
        let header = Header { kind: reader.u8()?, tag: reader.u16()? };
        (size as usize == bytes.len()).then_some((header, reader))
    }

    /// Bytes without a header: the entries of a directory.
    pub(super) fn of(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count)?;
        self.rest = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string of at most `bytes_max` bytes.
    pub(super) fn string(&mut self, bytes_max: usize) -> Option<&'a [u8]> {
        let count = usize::from(self.u16()?);
        if count > bytes_max { None } else { self.take(count) }
    }

    /// Data with its count in front, which is at most `bytes_max`; nothing follows.
    pub(super) fn data(mut self, bytes_max: usize) -> Option<&'a [u8]> {
        let count = self.u32()? as usize;
        (count <= bytes_max && count == self.rest.len()).then_some(self.rest)
    }

    /// A link's target: 1 to 4095 bytes without NUL.
    pub(super) fn target(mut self) -> Option<&'a [u8]> {
        self.string(PATH_BYTES_MAX).filter(|target| !target.is_empty() && !target.contains(&0))
    }

    pub(super) fn qid(&mut self) -> Option<Qid> {
        Some(Qid { kind: self.u8()?, version: self.u32()?, path: self.u64()? })
    }

    fn time(&mut self) -> Option<Timestamp> {
        let seconds = self.u64()?.cast_signed();
        let nanoseconds = u32::try_from(self.u64()?).ok().filter(|count| *count < 1_000_000_000)?;
        Some(Timestamp { seconds, nanoseconds })
    }
}

/// A server's name for a file, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Qid {
    pub(super) kind: u8,
    pub(super) version: u32,
    pub(super) path: u64,
}

/// What `Rgetattr` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) qid: Qid,
    pub(super) kind: FileKind,
    pub(super) permissions: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) link_count: u64,
    pub(super) device: u64,
    pub(super) size_bytes: u64,
    pub(super) block_count: u64,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
}

/// The kind that type bits of a mode say; `None` for what is none.
fn kind_of_mode(mode: u32) -> Option<FileKind> {
    let kinds = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::CharacterDevice,
        FileKind::BlockDevice,
        FileKind::Fifo,
        FileKind::Socket,
    ];
    kinds.into_iter().find(|kind| kind.mode_bits() == mode & 0o170_000)
}

impl Attributes {
    pub(super) fn read(mut reader: Reader<'_>) -> Option<Self> {
        let valid = reader.u64()?;
        let qid = reader.qid()?;
        let mode = reader.u32()?;
        let (uid, gid) = (reader.u32()?, reader.u32()?);
        let (link_count, device, size_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (_block_bytes, block_count) = (reader.u64()?, reader.u64()?);
        let (accessed, modified, changed) = (reader.time()?, reader.time()?, reader.time()?);
        let is_whole = valid & ATTRIBUTES_BASIC == ATTRIBUTES_BASIC && i64::try_from(size_bytes).is_ok();
        is_whole.then_some(Self {
            qid,
            kind: kind_of_mode(mode)?,
            permissions: mode & 0o7777,
            uid,
            gid,
            link_count,
            device,
            size_bytes,
            block_count,
            accessed,
            modified,
            changed,
        })
    }
}

/// One entry of a directory as the server lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListedEntry<'a> {
    pub(super) qid: Qid,
    /// Where the server goes on behind it.
    pub(super) next_offset: u64,
    pub(super) kind: FileKind,
    pub(super) name: &'a [u8],
}

impl<'a> ListedEntry<'a> {
    /// The next entry; `None` if it is cut off or its name is none that a directory can have.
    pub(super) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let qid = reader.qid()?;
        let next_offset = reader.u64()?;
        let type_number = reader.u8()?;
        let name = reader.string(NAME_BYTES_MAX)?;
        if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return None;
        }
        // Directory entries number kinds as modes do, without the twelve bits of permissions. Zero: unknown.
        let kind = kind_of_mode(u32::from(type_number) << 12).unwrap_or(match qid.kind {
            kind if kind & 0x80 != 0 => FileKind::Directory,
            kind if kind & 0x02 != 0 => FileKind::Symlink,
            _ => FileKind::Regular,
        });
        Some(Self { qid, next_offset, kind, name })
    }
}
