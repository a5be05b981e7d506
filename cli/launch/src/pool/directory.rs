//! The directory of a pool: which extents there are, whose they are, and where. Bytes in, a table out, and back.
//!
//! `FORMAT.md` in code. Pure. Whatever is read is checked: extents that come out of here are apart from each other,
//! within the image and behind the directory, so that nobody above looks again.

use std::ops::Range;

use aegis_image::bytes::{put, slice, u32_at, u64_at};
use aegis_link::pods::{POD_NAME_BYTES_MAX, is_name};
use sha2::{Digest, Sha256};

use crate::pool::errors::PoolError;

/// Bytes of a sector.
pub const SECTOR_BYTES: u64 = 512;
/// Sectors of what extents begin and end at: 1 MiB.
pub const UNIT_SECTORS: u64 = (1 << 20) / SECTOR_BYTES;
/// Most extents of an image.
pub const EXTENT_COUNT_MAX: usize = 1024;
/// First sector behind the directory.
pub(crate) const DATA_SECTOR: u64 = UNIT_SECTORS;
/// Bytes from the first copy to the second.
const COPY_STRIDE: u64 = DATA_SECTOR * SECTOR_BYTES / 2;
/// Where the copies begin, in bytes.
pub(crate) const COPY_OFFSETS: [u64; 2] = [0, COPY_STRIDE];

const MAGIC: u64 = u64::from_le_bytes(*b"AEGISPOL");
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 512;
const ENTRY_BYTES: usize = 96;
/// Bytes of a copy that are written.
pub(crate) const COPY_BYTES: usize = HEADER_BYTES + EXTENT_COUNT_MAX * ENTRY_BYTES;
const CHECKSUM: Range<usize> = 32..64;
const NAME_OFFSET: usize = 32;
const OWNER_OFFSET: usize = 64;
/// Largest generation: one a nanosecond for 292 years.
const GENERATION_MAX: u64 = u64::MAX / 2;

const _: () = assert!(COPY_BYTES as u64 <= COPY_STRIDE);
const _: () = assert!(OWNER_OFFSET + POD_NAME_BYTES_MAX == ENTRY_BYTES);

/// How far a change of an extent has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its owner's, or nobody's yet.
    InUse = 1,
    /// To be set to zeros, then its owner's.
    Clearing = 2,
    /// To be set to zeros, then free.
    Removing = 3,
}

impl State {
    const ALL: [Self; 3] = [Self::InUse, Self::Clearing, Self::Removing];

    /// As it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InUse => "in use",
            Self::Clearing | Self::Removing => "being cleared",
        }
    }
}

/// A part of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its name, a pod's or another that a pod could have.
    pub name: String,
    /// The pod that it belongs to; `None`: none has used it.
    pub owner: Option<String>,
    /// First sector.
    pub first_sector: u64,
    /// Sectors.
    pub sector_count: u64,
    /// How far it is.
    pub state: State,
}

impl Extent {
    /// First sector behind it.
    fn end_sector(&self) -> Option<u64> {
        self.first_sector.checked_add(self.sector_count)
    }
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    generation: u64,
    /// The extents, in the order in which they were made.
    pub extents: Vec<Extent>,
}

/// What a copy's bytes are.
#[derive(Debug, PartialEq, Eq)]
enum Copy {
    Whole(Directory),
    Damaged,
    Version(u32),
}

/// What both copies come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) directory: Directory,
    /// The copies to be written first, since they do not say that.
    pub(crate) is_stale: [bool; 2],
}

impl Directory {
    /// The directory that an image has first.
    pub(crate) fn first() -> Self {
        Self { generation: 1, extents: Vec::new() }
    }

    /// An extent's place in the table.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.extents.iter().position(|extent| extent.name == name)
    }

    /// Sectors in a row from the first place that has so many, within an image of this size.
    pub(crate) fn place(&self, sector_count: u64, image_sectors: u64) -> Option<u64> {
        self.gaps(image_sectors).find(|gap| gap.end - gap.start >= sector_count).map(|gap| gap.start)
    }

    /// What is free, upwards.
    pub(crate) fn gaps(&self, image_sectors: u64) -> impl Iterator<Item = Range<u64>> {
        let mut used: Vec<Range<u64>> = self
            .extents
            .iter()
            .map(|extent| extent.first_sector..extent.first_sector.saturating_add(extent.sector_count))
            .collect();
        used.sort_by_key(|range| range.start);
        let end = image_sectors - image_sectors % UNIT_SECTORS;
        used.push(end..end);
        let mut next = DATA_SECTOR;
        let gaps = used.into_iter().map(move |range| {
            let gap = next..range.start;
            next = range.end;
            gap
        });
        gaps.filter(|gap| gap.start < gap.end)
    }

    /// The same table, one change later.
    pub(crate) fn advance(&mut self) {
        self.generation = (self.generation + 1).min(GENERATION_MAX);
    }

    /// The bytes of a copy.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.encode_unsealed();
        let checksum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&checksum);
        bytes
    }

    /// The same with zeros for its checksum.
    fn encode_unsealed(&self) -> Vec<u8> {
        let mut bytes = vec![0; COPY_BYTES];
        put(&mut bytes, 0, MAGIC.to_le_bytes());
        put(&mut bytes, 8, VERSION.to_le_bytes());
        put(&mut bytes, 12, (self.extents.len() as u32).to_le_bytes());
        put(&mut bytes, 16, self.generation.to_le_bytes());
        for (extent, entry) in self.extents.iter().zip(bytes[HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES)) {
            let owner = extent.owner.as_deref().unwrap_or_default().as_bytes();
            let name = extent.name.as_bytes();
            (entry[0], entry[1], entry[2]) = (extent.state as u8, name.len() as u8, owner.len() as u8);
            put(entry, 8, extent.first_sector.to_le_bytes());
            put(entry, 16, extent.sector_count.to_le_bytes());
            entry[NAME_OFFSET..NAME_OFFSET + name.len()].copy_from_slice(name);
            entry[OWNER_OFFSET..OWNER_OFFSET + owner.len()].copy_from_slice(owner);
        }
        bytes
    }

    /// What the first [`DATA_SECTOR`] sectors of an image come to; `None` for a new image.
    pub(crate) fn read(area: &[u8], image_sectors: u64) -> Result<Option<Found>, PoolError> {
        let copies = COPY_OFFSETS.map(|offset| decode(slice(area, offset, COPY_BYTES as u64).unwrap_or_default()));
        let found = match copies {
            [Copy::Version(version), _] | [_, Copy::Version(version)] => return Err(PoolError::Version(version)),
            [Copy::Whole(first), Copy::Whole(second)] => {
                if first.generation == second.generation && first != second {
                    return Err(PoolError::Damaged);
                }
                let is_stale = [first.generation < second.generation, second.generation < first.generation];
                Found { directory: if is_stale[0] { second } else { first }, is_stale }
            }
            [Copy::Whole(directory), Copy::Damaged] => Found { directory, is_stale: [false, true] },
            [Copy::Damaged, Copy::Whole(directory)] => Found { directory, is_stale: [true, false] },
            [Copy::Damaged, Copy::Damaged] if is_new(area) => return Ok(None),
            [Copy::Damaged, Copy::Damaged] => return Err(PoolError::Damaged),
        };
        let is_outside = |extent: &&Extent| extent.end_sector().is_none_or(|end| end > image_sectors);
        match found.directory.extents.iter().find(is_outside) {
            Some(extent) => Err(PoolError::Outside(extent.name.clone())),
            None => Ok(Some(found)),
        }
    }
}

/// Whether an image was never used as a pool, or lost its power in the very first write.
fn is_new(area: &[u8]) -> bool {
    let first = Directory::first().encode();
    let written = first.iter().copied().chain(std::iter::repeat(0));
    area.iter().zip(written).all(|(byte, written)| *byte == 0 || *byte == written)
}

fn checksum(copy: &[u8]) -> [u8; 32] {
    let hash = Sha256::new();
    let hash = hash.chain_update(&copy[..CHECKSUM.start]).chain_update([0; 32]);
    hash.chain_update(&copy[CHECKSUM.end..]).finalize().into()
}

fn decode(bytes: &[u8]) -> Copy {
    let fields = (u64_at(bytes, 0), u32_at(bytes, 8), u32_at(bytes, 12), u64_at(bytes, 16));
    let (Some(MAGIC), Some(version), Some(count), Some(generation)) = fields else { return Copy::Damaged };
    // A write of which only the first bytes are there is no later version.
    if ![0, VERSION].contains(&version) {
        return Copy::Version(version);
    }
    let is_sound = version == VERSION
        && bytes.len() == COPY_BYTES
        && count as usize <= EXTENT_COUNT_MAX
        && (1..=GENERATION_MAX).contains(&generation)
        && bytes[CHECKSUM] == checksum(bytes);
    if !is_sound {
        return Copy::Damaged;
    }
    let entries = bytes[HEADER_BYTES..].chunks_exact(ENTRY_BYTES).take(count as usize);
    let Some(extents) = entries.map(decode_entry).collect::<Option<Vec<_>>>() else { return Copy::Damaged };
    let directory = Directory { generation, extents };
    // Nothing but what was understood: a later version's words have another number.
    let again = directory.encode_unsealed();
    let is_all = again[..CHECKSUM.start] == bytes[..CHECKSUM.start] && again[CHECKSUM.end..] == bytes[CHECKSUM.end..];
    if is_all && are_apart(&directory.extents) { Copy::Whole(directory) } else { Copy::Damaged }
}

fn decode_entry(entry: &[u8]) -> Option<Extent> {
    let [state, name_bytes, owner_bytes, ..] = *entry else { return None };
    let name = |offset: usize, length: u8| {
        let bytes = slice(entry, offset as u64, u64::from(length).min(POD_NAME_BYTES_MAX as u64))?;
        std::str::from_utf8(bytes).ok().filter(|name| is_name(name)).map(str::to_owned)
    };
    let owner = if owner_bytes == 0 { None } else { Some(name(OWNER_OFFSET, owner_bytes)?) };
    Some(Extent {
        name: name(NAME_OFFSET, name_bytes)?,
        owner,
        first_sector: u64_at(entry, 8)?,
        sector_count: u64_at(entry, 16)?,
        state: State::ALL.into_iter().find(|it| *it as u8 == state)?,
    })
}

/// Whether these can be in one image that is large enough.
fn are_apart(extents: &[Extent]) -> bool {
    let is_placed = |extent: &Extent| {
        let is_whole = extent.first_sector.is_multiple_of(UNIT_SECTORS)
            && extent.sector_count.is_multiple_of(UNIT_SECTORS)
            && extent.sector_count > 0;
        is_whole && extent.first_sector >= DATA_SECTOR && extent.end_sector().is_some()
    };
    let mut ranges: Vec<_> = extents.iter().map(|extent| (extent.first_sector, extent.end_sector())).collect();
    ranges.sort_unstable();
    let mut names: Vec<&str> = extents.iter().map(|extent| extent.name.as_str()).collect();
    names.sort_unstable();
    extents.iter().all(is_placed)
        && ranges.windows(2).all(|pair| pair[0].1 <= Some(pair[1].0))
        && names.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
