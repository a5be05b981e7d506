//! The members of a tar archive that nobody trusts: one after the other, with bounds on everything.
//!
//! The crate `tar` reads the fields of a header; which header follows which is walked here, because it keeps extended
//! headers in memory whatever their length, and knows only one of the ways in which sparse files are written. Formats:
//! ustar, PAX, GNU's long names, numbers in base 256, sparse files as GNU tar writes them (old GNU, PAX 0.1 and 1.0).
//!
//! An extended header belongs to the next member, its size too, and wins over the member's own (what other readers got
//! wrong: CVE-2026-33055, CVE-2025-62518). Contents are not read; a member says where they are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use aegis_image::erofs::extended::{FILE_BYTES_MAX as ATTRIBUTE_BYTES_MAX, can_hold};
use aegis_image::tree::ExtendedAttribute;
use tar::{EntryType, Header};

use crate::images::errors::{ImageError, shown};
use crate::root::pack::Segment;

/// Bytes of a header, and the unit of everything.
const BLOCK_BYTES: u64 = 512;
/// Longest extended header.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;
/// Most members of an archive.
const MEMBER_COUNT_MAX: u64 = 2_000_000;
/// Longest path of a member.
const PATH_BYTES_MAX: usize = 4096;
/// Records of a header for all members that are kept; the others say nothing that a root holds.
const OF_ALL: [&str; 3] = ["uid", "gid", "mtime"];
/// Longest text of a number or time, which a header for all has looked at for each member.
const NUMBER_BYTES_MAX: usize = 64;
/// What stands before the name of an extended attribute in a record's key.
const ATTRIBUTE_PREFIX: &str = "SCHILY.xattr.";
/// Most pieces of a sparse file.
const SEGMENT_COUNT_MAX: usize = 1 << 16;

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: EntryType,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime_s: i64,
    pub(crate) mtime_ns: u32,
    /// Target of a link.
    pub(crate) link: Vec<u8>,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
    /// Where its contents are in the archive.
    pub(crate) offset_bytes: u64,
    /// How many bytes of the archive they are.
    pub(crate) stored_bytes: u64,
    /// Length of a sparse file, and its pieces.
    pub(crate) sparse: Option<(u64, Vec<Segment>)>,
    /// Extended attributes that a root image holds.
    pub(crate) extended: Vec<ExtendedAttribute>,
    /// It has extended attributes of programs' rights, which give none here.
    pub(crate) has_file_capabilities: bool,
}

/// The members of an archive, from where it begins to where it ends.
pub(crate) struct Members<'a> {
    file: &'a File,
    offset_bytes: u64,
    end_bytes: u64,
    member_count: u64,
    /// What was said for all members from here on.
    global: Pax,
    /// Whether that has to do with programs' rights.
    global_has_capabilities: bool,
}

/// Records of extended headers by their keys.
type Pax = BTreeMap<String, Vec<u8>>;

/// What extended headers said.
#[derive(Debug, Default)]
struct Records {
    pax: Pax,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

type Result<T> = std::result::Result<T, ImageError>;

/// Whether bytes of the file follow a header of such a kind.
fn has_contents(kind: EntryType) -> bool {
    let is_link = matches!(kind, EntryType::Link | EntryType::Symlink);
    !is_link && !matches!(kind, EntryType::Char | EntryType::Block | EntryType::Directory | EntryType::Fifo)
}

impl<'a> Members<'a> {
    pub(crate) fn new(file: &'a File) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| ImageError::Io("reading a layer".into(), error))?;
        let (global, end_bytes) = (Pax::new(), metadata.len());
        Ok(Self { file, offset_bytes: 0, end_bytes, member_count: 0, global, global_has_capabilities: false })
    }

    fn damaged(&self, why: impl Into<String>) -> ImageError {
        ImageError::Member { path: format!("at byte {}", self.offset_bytes), why: why.into() }
    }

    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let is_inside = offset_bytes.checked_add(buffer.len() as u64).is_some_and(|end| end <= self.end_bytes);
        let read = if is_inside {
            self.file.read_exact_at(buffer, offset_bytes)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        };
        read.map_err(|error| self.damaged(format!("the archive ends too early ({error})")))
    }

    /// The next header; `None` at the end.
    fn header(&mut self) -> Result<Option<Header>> {
        // Two empty blocks are the end, and so is the end of the file.
        if self.end_bytes.saturating_sub(self.offset_bytes) == 0 {
            return Ok(None);
        }
        let mut block = [0; BLOCK_BYTES as usize];
        self.read(self.offset_bytes, &mut block)?;
        if block == [0; BLOCK_BYTES as usize] {
            let rest = self.end_bytes - self.offset_bytes - BLOCK_BYTES;
            if rest >= BLOCK_BYTES {
                self.read(self.offset_bytes + BLOCK_BYTES, &mut block)?;
            }
            if block != [0; BLOCK_BYTES as usize] {
                return Err(self.damaged("an empty block between members"));
            }
            return Ok(None);
        }
        if !has_checksum(&block) {
            return Err(self.damaged("no header of a member is here"));
        }
        self.member_count += 1;
        if self.member_count > MEMBER_COUNT_MAX {
            return Err(ImageError::TooLarge(format!("a layer of more than {MEMBER_COUNT_MAX} members")));
        }
        self.offset_bytes += BLOCK_BYTES;
        Ok(Some(Header::from_byte_slice(&block).clone()))
    }

    /// The next member; `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Member>> {
        let mut own = Records::default();
        let mut extension_bytes = 0;
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.entry_type();
            let is_extension = matches!(
                kind,
                EntryType::XHeader | EntryType::XGlobalHeader | EntryType::GNULongName | EntryType::GNULongLink
            );
            let size = header.entry_size().map_err(|error| self.damaged(error.to_string()))?;
            if !is_extension {
                return self.member(&header, size, &own).map(Some);
            }
            extension_bytes = size.saturating_add(extension_bytes);
            if extension_bytes > EXTENSION_BYTES_MAX {
                return Err(self.damaged(format!("extended headers of more than {EXTENSION_BYTES_MAX} bytes")));
            }
            let mut bytes = vec![0; size as usize];
            self.read(self.offset_bytes, &mut bytes)?;
            self.skip(size)?;
            match kind {
                EntryType::XHeader => self.records(&bytes, &mut own.pax)?,
                EntryType::XGlobalHeader => self.set_global(&bytes)?,
                EntryType::GNULongName => own.long_name = Some(until_zero(bytes)),
                _ => own.long_link = Some(until_zero(bytes)),
            }
        }
    }

    /// Takes a header for all members: what of it counts for one whose own says nothing else.
    fn set_global(&mut self, bytes: &[u8]) -> Result<()> {
        let mut all = Pax::new();
        self.records(bytes, &mut all)?;
        let of_one = ["path", "linkpath", "size"];
        if let Some(key) = all.keys().find(|key| of_one.contains(&key.as_str()) || key.starts_with("GNU.")) {
            return Err(self.damaged(format!("{key} in a header for all members")));
        }
        self.global_has_capabilities |= all.keys().any(|key| is_capability(key));
        all.retain(|key, _| OF_ALL.contains(&key.as_str()));
        self.global.extend(all);
        Ok(())
    }

    /// What an extended header says of a member.
    fn pax<'b>(&'b self, own: &'b Records, key: &str) -> Option<&'b Vec<u8>> {
        own.pax.get(key).or_else(|| self.global.get(key))
    }

    /// Goes on behind contents and their padding.
    fn skip(&mut self, size_bytes: u64) -> Result<()> {
        let padded = size_bytes.checked_next_multiple_of(BLOCK_BYTES);
        let next = padded.and_then(|padded| self.offset_bytes.checked_add(padded));
        let is_inside = self.offset_bytes.checked_add(size_bytes).is_some_and(|end| end <= self.end_bytes);
        match next.filter(|_| is_inside) {
            // The last member's padding may be missing.
            Some(next) => self.offset_bytes = next.min(self.end_bytes),
            None => return Err(self.damaged("the archive ends inside a member")),
        }
        Ok(())
    }

    /// Reads `LENGTH KEY=VALUE` records.
    fn records(&self, mut bytes: &[u8], into: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
        let wrong = || self.damaged("an extended header that is none");
        while !bytes.is_empty() {
            let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or_else(wrong)?;
            let length = number(&bytes[..space]).ok_or_else(wrong)? as usize;
            let record = bytes.get(space + 1..length).ok_or_else(wrong)?;
            bytes = &bytes[length..];
            let record = record.strip_suffix(b"\n").ok_or_else(wrong)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
            let key = std::str::from_utf8(&record[..equals]).map_err(|_| wrong())?;
            if key.is_empty() {
                return Err(wrong());
            }
            if key == "GNU.sparse.offset" || key == "GNU.sparse.numbytes" {
                return Err(self.damaged("a sparse file of PAX's first form, which is not read; use tar 1.14 or later"));
            }
            into.insert(key.into(), record[equals + 1..].to_vec());
        }
        Ok(())
    }

    fn member(&mut self, header: &Header, header_size: u64, own: &Records) -> Result<Member> {
        let text = |error: io::Error| self.damaged(error.to_string());
        let pax_number = |key: &str| match self.pax(own, key) {
            None => Ok(None),
            Some(value) => {
                let value = number(value).map(Some);
                value.ok_or_else(|| self.damaged(format!("{key} of an extended header is no number")))
            }
        };
        let kind = header.entry_type();
        let identity = |key, own: io::Result<u64>| {
            let value = match pax_number(key)? {
                Some(value) => value,
                None => own.map_err(text)?,
            };
            u32::try_from(value).map_err(|_| self.damaged(format!("a {key} of {value}, beyond what there is")))
        };
        let (uid, gid) = (identity("uid", header.uid())?, identity("gid", header.gid())?);
        let (mtime_s, mtime_ns) = match self.pax(own, "mtime") {
            Some(value) => time(value).ok_or_else(|| self.damaged("mtime of an extended header is no time"))?,
            None => (header.mtime().unwrap_or(0).cast_signed(), 0),
        };
        let name_of = |pax: &str, long: &Option<Vec<u8>>, plain: Vec<u8>| {
            own.pax.get(pax).cloned().or_else(|| long.clone()).unwrap_or(plain)
        };
        let sparse_name = own.pax.get("GNU.sparse.name").cloned();
        let path = sparse_name.unwrap_or_else(|| name_of("path", &own.long_name, header.path_bytes().into_owned()));
        let plain_link = header.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default();
        let link = name_of("linkpath", &own.long_link, plain_link);
        let too_long = path.len().max(link.len()) > PATH_BYTES_MAX;
        if too_long || path.contains(&0) || link.contains(&0) {
            let why = format!("a path of more than {PATH_BYTES_MAX} bytes, or with a zero byte in it");
            return Err(ImageError::Member { path: shown(&path), why });
        }
        let size = pax_number("size")?.unwrap_or(header_size);
        let device = |number: io::Result<Option<u32>>| number.ok().flatten().unwrap_or(0);
        let is_device = matches!(kind, EntryType::Char | EntryType::Block);
        let device = if is_device { (device(header.device_major()), device(header.device_minor())) } else { (0, 0) };
        let permissions = (header.mode().map_err(text)? & 0o7777) as u16;
        let extended = self.extended(&own.pax)?;
        let has_file_capabilities = self.global_has_capabilities || own.pax.keys().any(|key| is_capability(key));
        let mut member = Member {
            path,
            kind,
            permissions,
            uid,
            gid,
            mtime_s,
            mtime_ns,
            link,
            device,
            offset_bytes: self.offset_bytes,
            stored_bytes: size,
            sparse: None,
            extended,
            has_file_capabilities,
        };
        member.sparse = if kind == EntryType::GNUSparse {
            Some(self.old_sparse(header, &mut member)?)
        } else {
            self.pax_sparse(own, &member)?
        };
        self.skip(if has_contents(kind) { size } else { 0 })?;
        Ok(member)
    }

    /// Extended attributes as GNU tar and the engines write them; others, such as access control lists, are left out.
    fn extended(&self, pax: &Pax) -> Result<Vec<ExtendedAttribute>> {
        let named = pax.iter().filter_map(|(key, value)| Some((key.strip_prefix(ATTRIBUTE_PREFIX)?, value)));
        let held = named.filter(|(name, _)| can_hold(name.as_bytes()));
        let all: Vec<ExtendedAttribute> = held.map(|(name, value)| (name.into(), value.clone())).collect();
        let byte_count: usize = all.iter().map(|(name, value)| name.len() + value.len()).sum();
        if byte_count > ATTRIBUTE_BYTES_MAX {
            return Err(self.damaged(format!("extended attributes of more than {ATTRIBUTE_BYTES_MAX} bytes")));
        }
        Ok(all)
    }

    /// GNU tar's own form: the map is in the header and in blocks behind it.
    fn old_sparse(&mut self, header: &Header, member: &mut Member) -> Result<(u64, Vec<Segment>)> {
        let gnu = header.as_gnu().ok_or_else(|| self.damaged("a sparse file without GNU's header"))?;
        let length = gnu.real_size().map_err(|error| self.damaged(error.to_string()))?;
        let mut pairs = Vec::new();
        let mut take = |these: &Self, entry: &tar::GnuSparseHeader| {
            if entry.is_empty() {
                return Ok(());
            }
            let offset = entry.offset().map_err(|error| these.damaged(error.to_string()))?;
            let count = entry.length().map_err(|error| these.damaged(error.to_string()))?;
            pairs.push((offset, count));
            if pairs.len() > SEGMENT_COUNT_MAX { Err(these.damaged("too many pieces")) } else { Ok(()) }
        };
        gnu.sparse.iter().try_for_each(|entry| take(self, entry))?;
        let mut is_extended = gnu.is_extended();
        while is_extended {
            let mut extension = tar::GnuExtSparseHeader::new();
            let mut block = [0; BLOCK_BYTES as usize];
            self.read(self.offset_bytes, &mut block)?;
            extension.as_mut_bytes().copy_from_slice(&block);
            self.offset_bytes += BLOCK_BYTES;
            extension.sparse().iter().try_for_each(|entry| take(self, entry))?;
            is_extended = extension.is_extended();
        }
        member.offset_bytes = self.offset_bytes;
        let segments = self.segments(length, &pairs, member.offset_bytes, member.stored_bytes)?;
        Ok((length, segments))
    }

    /// PAX's forms 0.1 (the map is a record) and 1.0 (the map stands before the contents).
    fn pax_sparse(&self, own: &Records, member: &Member) -> Result<Option<(u64, Vec<Segment>)>> {
        let text = |key: &str| own.pax.get(key).map(Vec::as_slice);
        let form = (text("GNU.sparse.major"), text("GNU.sparse.minor"), text("GNU.sparse.map"));
        let wrong = || self.damaged("the map of a sparse file is damaged");
        let (length, numbers, map_bytes) = match form {
            (None, None, None) => return Ok(None),
            (None, None, Some(map)) => {
                let length = text("GNU.sparse.size").and_then(number).ok_or_else(wrong)?;
                let numbers = map.split(|byte| *byte == b',').filter(|it| !it.is_empty());
                (length, numbers.map(number).collect::<Option<Vec<u64>>>().ok_or_else(wrong)?, 0)
            }
            (Some(b"1"), Some(b"0"), None) => {
                let length = text("GNU.sparse.realsize").and_then(number).ok_or_else(wrong)?;
                let (numbers, map_bytes) = self.map_before_contents(member)?;
                (length, numbers, map_bytes)
            }
            _ => return Err(self.damaged("a sparse file in a form that is not known")),
        };
        let (pairs, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() || pairs.len() > SEGMENT_COUNT_MAX {
            return Err(wrong());
        }
        let pairs: Vec<(u64, u64)> = pairs.iter().map(|[offset, count]| (*offset, *count)).collect();
        let stored_bytes = member.stored_bytes.checked_sub(map_bytes).ok_or_else(wrong)?;
        let segments = self.segments(length, &pairs, member.offset_bytes + map_bytes, stored_bytes)?;
        Ok(Some((length, segments)))
    }

    /// Lines of decimal numbers, how many pairs first, padded to whole blocks; and how many bytes they are.
    fn map_before_contents(&self, member: &Member) -> Result<(Vec<u64>, u64)> {
        let wrong = || self.damaged("the map of a sparse file is damaged");
        let (mut lines, mut line, mut map_bytes) = (Vec::new(), Vec::new(), 0);
        let mut wanted = None;
        while wanted.is_none_or(|wanted| lines.len() < wanted) {
            if map_bytes + BLOCK_BYTES > member.stored_bytes {
                return Err(wrong());
            }
            let mut block = [0; BLOCK_BYTES as usize];
            self.read(member.offset_bytes + map_bytes, &mut block)?;
            map_bytes += BLOCK_BYTES;
            for byte in block {
                if wanted.is_some_and(|wanted| lines.len() >= wanted) {
                    break;
                }
                if byte != b'\n' {
                    line.push(byte);
                    continue;
                }
                let value = number(&std::mem::take(&mut line)).ok_or_else(wrong)?;
                match wanted {
                    None if value <= SEGMENT_COUNT_MAX as u64 => wanted = Some(value as usize * 2),
                    None => return Err(wrong()),
                    Some(_) => lines.push(value),
                }
            }
        }
        Ok((lines, map_bytes))
    }

    /// Checks that pieces follow each other, lie in the file, and come to what is stored.
    fn segments(&self, length: u64, pairs: &[(u64, u64)], start: u64, stored_bytes: u64) -> Result<Vec<Segment>> {
        let wrong = || self.damaged("the map of a sparse file contradicts itself");
        let (mut segments, mut position, mut stored) = (Vec::new(), 0, 0_u64);
        for (offset, count) in pairs {
            let end = offset.checked_add(*count).filter(|end| *end <= length).ok_or_else(wrong)?;
            if *offset < position {
                return Err(wrong());
            }
            if *count > 0 {
                let stored_at = start.checked_add(stored).ok_or_else(wrong)?;
                segments.push(Segment { offset_bytes: *offset, length_bytes: *count, stored_at });
            }
            stored = stored.checked_add(*count).ok_or_else(wrong)?;
            position = end;
        }
        if stored > stored_bytes { Err(wrong()) } else { Ok(segments) }
    }
}

/// Whether a header's checksum is right, also where its name is empty because an extended header has it.
fn has_checksum(block: &[u8; BLOCK_BYTES as usize]) -> bool {
    let byte_at = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) };
    let sum: u32 = block.iter().enumerate().map(byte_at).sum();
    Header::from_byte_slice(block).cksum().is_ok_and(|stored| stored == sum)
}

fn until_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// Whether a record is the extended attribute of a program's rights.
fn is_capability(key: &str) -> bool {
    key.ends_with(".xattr.security.capability")
}

/// A text that is no longer than one of a number or time.
fn short(text: &[u8]) -> Option<&str> {
    if text.len() > NUMBER_BYTES_MAX { None } else { std::str::from_utf8(text).ok() }
}

/// A decimal number that fits.
fn number(digits: &[u8]) -> Option<u64> {
    let text = short(digits)?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A time as PAX writes it: seconds with a fraction.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = short(text)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    Some(if whole.starts_with('-') && nanoseconds > 0 {
        (seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds)
    } else {
        (seconds, nanoseconds)
    })
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
