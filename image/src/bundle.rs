//! The boot bundle: one file that the machine's loader puts into memory, with the parts of `abi::boot::BundleHeader`.
//!
//! Every part starts at a page, so that it can be mapped from where the loader put it; padding is zero. The header says
//! every length before the parts are written, hence a [`Writer`] wants them first; it is a [`Sink`] itself, so an image
//! writer writes its part straight into the bundle's file. [`parse`] validates all of the header; what the parts hold
//! is their own readers' business, and unknown kinds are passed on.

use alloc::vec;
use alloc::vec::Vec;

use aegis_abi::boot::{BUNDLE_MAGIC, BUNDLE_PART_COUNT_MAX, BUNDLE_VERSION, BundleHeader, BundlePart};

use crate::PAGE_BYTES;
use crate::bytes::{page_round_up, put, slice, u32_at, u64_at};
use crate::sink::{Sink, write_zeros};

/// Bytes of a part in the header.
const PART_BYTES: usize = 24;
/// Offset of the first part in the header.
const PARTS_OFFSET: usize = 16;

const _: () = assert!(size_of::<BundlePart>() == PART_BYTES);
const _: () = assert!(size_of::<BundleHeader>() == PARTS_OFFSET + PART_BYTES * BUNDLE_PART_COUNT_MAX);

/// Kind and length of a part that will be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartPlan {
    /// `abi::boot::PART_*`.
    pub kind: u32,
    /// Exact length.
    pub length_bytes: u64,
}

/// Why a bundle could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError<E> {
    /// The output failed.
    Sink(E),
    /// The caller planned too many parts, or lengths whose sum overflows.
    Plan,
    /// The caller wrote more or less than planned.
    Length,
}

impl<E: core::fmt::Display> core::fmt::Display for WriteError<E> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Sink(error) => write!(formatter, "cannot write the boot bundle: {error}"),
            Self::Plan => formatter.write_str("the boot bundle has too many or too large parts"),
            Self::Length => formatter.write_str("a part of the boot bundle has another length than planned"),
        }
    }
}

/// Computes the parts' places; `None` for too many parts or an overflow. The second value is the bundle's length.
pub fn place(plans: &[PartPlan]) -> Option<(Vec<BundlePart>, u64)> {
    if plans.len() > BUNDLE_PART_COUNT_MAX {
        return None;
    }
    let mut offset_bytes = PAGE_BYTES;
    let mut parts = Vec::with_capacity(plans.len());
    for &PartPlan { kind, length_bytes } in plans {
        parts.push(BundlePart { kind, reserved: 0, offset_bytes, length_bytes });
        offset_bytes = page_round_up(offset_bytes.checked_add(length_bytes)?)?;
    }
    Some((parts, offset_bytes))
}

/// Writes a bundle: the header at once, then the parts in order, byte by byte through [`Sink`], then
/// [`Writer::finish`].
///
/// A part that is full is padded, and the next bytes belong to the next part; one write must not cross parts.
#[derive(Debug)]
pub struct Writer<S> {
    sink: S,
    parts: Vec<BundlePart>,
    /// The part being written.
    current: usize,
    /// Bytes of it that are written.
    written_bytes: u64,
}

impl<S: Sink> Writer<S> {
    /// Writes the header.
    ///
    /// # Errors
    /// `Plan`, `Sink`.
    pub fn new(mut sink: S, plans: &[PartPlan]) -> Result<Self, WriteError<S::Error>> {
        let (parts, _) = place(plans).ok_or(WriteError::Plan)?;
        let mut header = vec![0; PAGE_BYTES as usize];
        put(&mut header, 0, BUNDLE_MAGIC.to_le_bytes());
        put(&mut header, 8, BUNDLE_VERSION.to_le_bytes());
        put(&mut header, 12, (parts.len() as u32).to_le_bytes());
        for (index, part) in parts.iter().enumerate() {
            let at = PARTS_OFFSET + index * PART_BYTES;
            put(&mut header, at, part.kind.to_le_bytes());
            put(&mut header, at + 8, part.offset_bytes.to_le_bytes());
            put(&mut header, at + 16, part.length_bytes.to_le_bytes());
        }
        sink.write_all(&header).map_err(WriteError::Sink)?;
        let mut writer = Self { sink, parts, current: 0, written_bytes: 0 };
        writer.skip_full_parts().map_err(WriteError::Sink)?;
        Ok(writer)
    }

    /// Checks that all parts are complete and gives the output back.
    ///
    /// # Errors
    /// `Length`.
    pub fn finish(self) -> Result<S, WriteError<S::Error>> {
        if self.current == self.parts.len() { Ok(self.sink) } else { Err(WriteError::Length) }
    }

    fn skip_full_parts(&mut self) -> Result<(), S::Error> {
        while let Some(part) = self.parts.get(self.current) {
            if self.written_bytes < part.length_bytes {
                break;
            }
            let padding = part.length_bytes.next_multiple_of(PAGE_BYTES) - part.length_bytes;
            write_zeros(&mut self.sink, padding)?;
            self.current += 1;
            self.written_bytes = 0;
        }
        Ok(())
    }
}

impl<S: Sink> Sink for Writer<S> {
    type Error = WriteError<S::Error>;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let part = self.parts.get(self.current).ok_or(WriteError::Length)?;
        if part.length_bytes - self.written_bytes < bytes.len() as u64 {
            return Err(WriteError::Length);
        }
        self.sink.write_all(bytes).map_err(WriteError::Sink)?;
        self.written_bytes += bytes.len() as u64;
        self.skip_full_parts().map_err(WriteError::Sink)
    }
}

/// Writes a bundle from parts in memory.
///
/// # Errors
/// `Plan`, `Sink`.
pub fn write<S: Sink>(sink: S, parts: &[(u32, &[u8])]) -> Result<S, WriteError<S::Error>> {
    let plans: Vec<PartPlan> =
        parts.iter().map(|(kind, bytes)| PartPlan { kind: *kind, length_bytes: bytes.len() as u64 }).collect();
    let mut writer = Writer::new(sink, &plans)?;
    for (_, bytes) in parts {
        writer.write_all(bytes)?;
    }
    writer.finish()
}

/// What is wrong with a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleDamage {
    /// Shorter than a page, or without the magic number.
    NotBundle,
    /// Another version of the layout.
    Version(u32),
    /// More parts than fit the header.
    PartCount(u32),
    /// The part with this index is misaligned, out of order or outside the bundle.
    Part(usize),
}

impl core::fmt::Display for BundleDamage {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NotBundle => formatter.write_str("not a boot bundle"),
            Self::Version(version) => write!(formatter, "boot bundle of unknown version {version}"),
            Self::PartCount(count) => write!(formatter, "boot bundle with {count} parts"),
            Self::Part(index) => write!(formatter, "part {index} of the boot bundle is misplaced"),
        }
    }
}

impl core::error::Error for BundleDamage {}

/// A validated bundle.
#[derive(Clone, Copy, Debug)]
pub struct Bundle<'a> {
    bytes: &'a [u8],
    header: BundleHeader,
}

/// Validates a bundle's header: every part it names lies inside `bytes`, in ascending order, without overlap.
///
/// The padding of the last part may be missing; the machine's loader may cut it.
///
/// # Errors
/// See [`BundleDamage`].
pub fn parse(bytes: &[u8]) -> Result<Bundle<'_>, BundleDamage> {
    Ok(Bundle { bytes, header: read_header(bytes, bytes.len() as u64)? })
}

/// As [`parse`], for a reader that has only the first page of a bundle of this length at hand.
///
/// # Errors
/// See [`BundleDamage`].
pub fn read_header(bytes: &[u8], length_bytes: u64) -> Result<BundleHeader, BundleDamage> {
    let page = slice(bytes, 0, PAGE_BYTES).ok_or(BundleDamage::NotBundle)?;
    let u32_field = |offset| u32_at(page, offset).unwrap_or_default();
    let u64_field = |offset| u64_at(page, offset).unwrap_or_default();
    if u64_field(0) != BUNDLE_MAGIC {
        return Err(BundleDamage::NotBundle);
    }
    let (version, part_count) = (u32_field(8), u32_field(12));
    if version != BUNDLE_VERSION {
        return Err(BundleDamage::Version(version));
    }
    if part_count as usize > BUNDLE_PART_COUNT_MAX {
        return Err(BundleDamage::PartCount(part_count));
    }
    let mut parts = [BundlePart::default(); BUNDLE_PART_COUNT_MAX];
    let mut free_from = PAGE_BYTES;
    for (index, part) in parts.iter_mut().enumerate().take(part_count as usize) {
        let at = PARTS_OFFSET + index * PART_BYTES;
        *part = BundlePart {
            kind: u32_field(at),
            reserved: u32_field(at + 4),
            offset_bytes: u64_field(at + 8),
            length_bytes: u64_field(at + 16),
        };
        let end = part.offset_bytes.checked_add(part.length_bytes).filter(|end| *end <= length_bytes);
        let is_placed = part.offset_bytes.is_multiple_of(PAGE_BYTES) && part.offset_bytes >= free_from;
        let end = end.filter(|_| is_placed).and_then(page_round_up).ok_or(BundleDamage::Part(index))?;
        free_from = end;
    }
    Ok(BundleHeader { magic: BUNDLE_MAGIC, version, part_count, parts })
}

impl<'a> Bundle<'a> {
    /// The parts in use.
    pub fn parts(&self) -> &[BundlePart] {
        &self.header.parts[..self.header.part_count as usize]
    }

    /// The first part of a kind.
    pub fn find(&self, kind: u32) -> Option<&BundlePart> {
        self.parts().iter().find(|part| part.kind == kind)
    }

    /// The contents of a part of this bundle; empty for a part of another one that does not fit.
    pub fn contents(&self, part: &BundlePart) -> &'a [u8] {
        slice(self.bytes, part.offset_bytes, part.length_bytes).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
