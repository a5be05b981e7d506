//! The layout of a session: `FORMAT.md` in code. Nothing here believes what it reads.

use crate::{RingPlace, SharedWords};

/// First word of a session.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"aegisbq1");
/// What the word of the state says when nobody will serve the session any more.
pub(super) const GIVEN_UP: u64 = 3 << 32;
/// Most requests of a session that are under way.
pub const DEPTH_MAX: u32 = 256;
/// Most extents of a client.
pub const EXTENT_COUNT_MAX: usize = 16;
/// Most registered buffers.
pub const BUFFER_COUNT_MAX: usize = 256;
/// Most pages with lists of segments.
pub const INDIRECT_PAGE_COUNT_MAX: u32 = 256;
/// Most segments of a request.
pub const SEGMENT_COUNT_MAX: usize = 256;
/// Segments that a slot has room for.
pub const INLINE_SEGMENT_COUNT: usize = 4;

/// Words of a request, and of a completion.
pub(super) const REQUEST_WORD_COUNT: usize = 8;
pub(super) const COMPLETION_WORD_COUNT: usize = 2;
const PAGE_WORD_COUNT: usize = 512;

pub(super) const WORD_MAGIC: usize = 0;
pub(super) const WORD_GENERATION: usize = 1;
pub(super) const WORD_OLDEST: usize = 2;
pub(super) const WORD_SHAPE: usize = 3;
pub(super) const WORD_STATE: usize = 8;
pub(super) const WORD_PROGRESS: usize = 9;
const WORD_DESCRIPTION: usize = 16;
const WORD_EXTENTS: usize = 32;
const WORD_BUFFERS: usize = 64;
const WORD_RINGS: usize = WORD_BUFFERS + BUFFER_COUNT_MAX;

/// Sectors of an extent may be read.
pub const RIGHT_READ: u8 = 1;
/// They may be written, and set to zeros; and a flush asked for.
pub const RIGHT_WRITE: u8 = 2;
/// They may be discarded.
pub const RIGHT_DISCARD: u8 = 4;

/// How large a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Requests that can be under way: 1 to [`DEPTH_MAX`].
    pub depth: u32,
    /// Pages for lists of segments, up to [`INDIRECT_PAGE_COUNT_MAX`].
    pub indirect_page_count: u32,
}

impl Shape {
    /// Pages of 4 KiB that the session takes.
    #[must_use]
    pub const fn page_count(self) -> usize {
        self.first_list_word() / PAGE_WORD_COUNT + self.indirect_page_count as usize
    }

    /// Where the lists of segments begin: a whole page.
    const fn first_list_word(self) -> usize {
        let completions = RingPlace::word_count::<COMPLETION_WORD_COUNT>(self.depth);
        (self.completion_word() + completions).next_multiple_of(PAGE_WORD_COUNT)
    }

    const fn completion_word(self) -> usize {
        WORD_RINGS + RingPlace::word_count::<REQUEST_WORD_COUNT>(self.depth)
    }

    /// The word of segment `index` in the list on a page.
    pub(super) fn list_word(self, page: u32, index: usize) -> usize {
        self.first_list_word() + page as usize * PAGE_WORD_COUNT + index
    }

    /// Where the rings are; `None`: memory does not have this shape.
    pub(super) fn rings(self, memory: &(impl SharedWords + ?Sized)) -> Option<[RingPlace; 2]> {
        let is_allowed = (1..=DEPTH_MAX).contains(&self.depth) && self.indirect_page_count <= INDIRECT_PAGE_COUNT_MAX;
        if !is_allowed || self.page_count() * PAGE_WORD_COUNT > memory.word_count() {
            return None;
        }
        let requests = RingPlace::new::<REQUEST_WORD_COUNT>(WORD_RINGS, self.depth, memory)?;
        let completions = RingPlace::new::<COMPLETION_WORD_COUNT>(self.completion_word(), self.depth, memory)?;
        Some([requests, completions])
    }

    pub(super) fn to_word(self) -> u64 {
        u64::from(self.depth) | u64::from(self.indirect_page_count) << 32
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self { depth: word as u32, indirect_page_count: (word >> 32) as u32 }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sectors into memory.
    Read = 1,
    /// Memory into sectors.
    Write = 2,
    /// What completed is on the medium.
    Flush = 3,
    /// The sectors' content is not needed any more.
    Discard = 4,
    /// The sectors become zeros.
    WriteZeroes = 5,
    /// A buffer is not used any more; its number is where the first sector would be.
    Forget = 6,
}

impl Operation {
    fn from_number(number: u8) -> Option<Self> {
        let all = [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::WriteZeroes, Self::Forget];
        all.into_iter().find(|operation| *operation as u8 == number)
    }

    /// Whether it names memory.
    #[must_use]
    pub fn has_memory(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// The right that it asks of its extent; a flush that of who writes.
    #[must_use]
    pub fn right(self) -> u8 {
        match self {
            Self::Read => RIGHT_READ,
            Self::Write | Self::WriteZeroes | Self::Flush => RIGHT_WRITE,
            Self::Discard => RIGHT_DISCARD,
            Self::Forget => 0,
        }
    }
}

/// Bytes of a registered buffer, in one word: 24 bits of bytes, 28 of offset, 12 of buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The buffer.
    pub buffer: u16,
    /// First byte in it.
    pub offset_bytes: u32,
    /// Bytes.
    pub length_bytes: u32,
}

impl Segment {
    /// The segment as a word; `None`: a number is too large for it.
    #[must_use]
    pub fn to_word(self) -> Option<u64> {
        let fits = self.length_bytes < 1 << 24 && self.offset_bytes < 1 << 28 && self.buffer < 1 << 12;
        let word = u64::from(self.length_bytes) | u64::from(self.offset_bytes) << 24 | u64::from(self.buffer) << 52;
        fits.then_some(word)
    }

    /// What a word says.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Self {
            buffer: (word >> 52) as u16,
            offset_bytes: (word >> 24) as u32 & ((1 << 28) - 1),
            length_bytes: word as u32 & ((1 << 24) - 1),
        }
    }
}

/// Where a request's segments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments {
    /// In the slot: the first so many.
    Inline([Segment; INLINE_SEGMENT_COUNT], usize),
    /// On a page with a list: its number, and how many.
    Listed(u32, usize),
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub operation: Operation,
    /// The client's extent that it is about.
    pub extent: u16,
    /// First sector, counted in the extent.
    pub first_sector: u64,
    /// Sectors.
    pub sector_count: u32,
    /// Memory.
    pub segments: Segments,
    /// The client's name for it.
    pub tag: u64,
}

const LISTED: u64 = 1 << 8;

impl Request {
    /// The slot. `None`: a number is too large for it.
    pub(super) fn to_words(self) -> Option<[u64; REQUEST_WORD_COUNT]> {
        let mut words = [0; REQUEST_WORD_COUNT];
        let (count, flags) = match self.segments {
            Segments::Inline(segments, count) => {
                for (word, segment) in words[3..7].iter_mut().zip(segments.iter().take(count)) {
                    *word = segment.to_word()?;
                }
                (count, 0)
            }
            Segments::Listed(page, count) => {
                words[3] = u64::from(page);
                (count, LISTED)
            }
        };
        if count > SEGMENT_COUNT_MAX || (flags == 0 && count > INLINE_SEGMENT_COUNT) {
            return None;
        }
        words[0] = self.operation as u64 | flags | (count as u64) << 16 | u64::from(self.extent) << 32;
        words[1] = self.first_sector;
        words[2] = u64::from(self.sector_count);
        words[7] = self.tag;
        Some(words)
    }

    /// What a slot says, as far as the slot alone can be judged. `None`: it is no request.
    pub(super) fn from_words(words: &[u64; REQUEST_WORD_COUNT]) -> Option<Self> {
        let operation = Operation::from_number(words[0] as u8)?;
        let count = (words[0] >> 16) as u16 as usize;
        let segments = if words[0] & LISTED == 0 {
            let inline = core::array::from_fn(|index| Segment::from_word(words[3 + index]));
            (count <= INLINE_SEGMENT_COUNT).then_some(Segments::Inline(inline, count))?
        } else {
            (count <= SEGMENT_COUNT_MAX).then_some(Segments::Listed(words[3] as u32, count))?
        };
        let known = 0xff | LISTED | 0xffff << 16 | 0xffff << 32;
        let is_whole = words[0] & !known == 0 && words[2] >> 32 == 0;
        is_whole.then_some(Self {
            operation,
            extent: (words[0] >> 32) as u16,
            first_sector: words[1],
            sector_count: words[2] as u32,
            segments,
            tag: words[7],
        })
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Done = 0,
    /// The disk tells of an error.
    Input = 1,
    /// The disk does not do that.
    Unsupported = 2,
    /// It was outside of the extent, or against its rights or the disk's limits.
    Refused = 3,
}

/// A request's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number of its slot.
    pub position: u32,
    /// The client's name for it.
    pub tag: u64,
    /// How it ended.
    pub outcome: Outcome,
}

impl Completion {
    pub(super) fn to_words(self) -> [u64; COMPLETION_WORD_COUNT] {
        [u64::from(self.position) | (self.outcome as u64) << 32, self.tag]
    }

    pub(super) fn from_words([first, tag]: [u64; COMPLETION_WORD_COUNT]) -> Option<Self> {
        let all = [Outcome::Done, Outcome::Input, Outcome::Unsupported, Outcome::Refused];
        let outcome = all.into_iter().find(|outcome| *outcome as u64 == first >> 32)?;
        Some(Self { position: first as u32, tag, outcome })
    }
}

/// A part of the disk, as its client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Its size; 0: there is none of this number.
    pub sector_count: u64,
    /// `RIGHT_` bits.
    pub rights: u8,
}

/// How much one request may discard or set to zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Most sectors of one request.
    pub sector_count_max: u32,
    /// Ranges begin and end at multiples of this.
    pub alignment_sectors: u32,
}

impl Limit {
    fn to_word(limit: Option<Self>) -> u64 {
        limit.map_or(0, |limit| u64::from(limit.sector_count_max) | u64::from(limit.alignment_sectors) << 32)
    }

    fn from_word(word: u64) -> Option<Self> {
        let limit = Self { sector_count_max: word as u32, alignment_sectors: (word >> 32) as u32 };
        (limit.sector_count_max > 0).then_some(limit)
    }
}

/// Where a description's flags have the depth.
const DEPTH_SHIFT: u32 = 16;

/// What the disk is and takes; the service says it before the session is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Bytes of the smallest unit that a request can name.
    pub logical_block_bytes: u32,
    /// Bytes of the unit that it writes without reading first.
    pub physical_block_bytes: u32,
    /// Most segments of a request.
    pub segment_count_max: u32,
    /// Most bytes of one of them.
    pub segment_bytes_max: u32,
    /// Most sectors of a read or a write.
    pub sector_count_max: u32,
    /// What completed may still be lost without a flush.
    pub has_write_cache: bool,
    /// Requests cost by their distance.
    pub is_rotational: bool,
    /// Requests that the disk has at once, up to 65,535; what a session has beyond waits in its order. 0: not said.
    pub depth: u32,
    /// Whether, and how much, it discards.
    pub discard: Option<Limit>,
    /// Whether, and how much, it sets to zeros.
    pub write_zeroes: Option<Limit>,
}

impl Description {
    pub(super) fn store(&self, memory: &(impl SharedWords + ?Sized)) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let flags = u32::from(self.has_write_cache) | u32::from(self.is_rotational) << 1 | self.depth << DEPTH_SHIFT;
        let words = [
            pair(self.logical_block_bytes, self.physical_block_bytes),
            pair(self.segment_count_max, self.segment_bytes_max),
            pair(self.sector_count_max, flags),
            Limit::to_word(self.discard),
            Limit::to_word(self.write_zeroes),
        ];
        words.into_iter().enumerate().for_each(|(index, word)| memory.store(WORD_DESCRIPTION + index, word));
    }

    pub(super) fn load(memory: &(impl SharedWords + ?Sized)) -> Self {
        let words: [u64; 5] = core::array::from_fn(|index| memory.load(WORD_DESCRIPTION + index));
        Self {
            logical_block_bytes: words[0] as u32,
            physical_block_bytes: (words[0] >> 32) as u32,
            segment_count_max: words[1] as u32,
            segment_bytes_max: (words[1] >> 32) as u32,
            sector_count_max: words[2] as u32,
            has_write_cache: words[2] >> 32 & 1 != 0,
            is_rotational: words[2] >> 33 & 1 != 0,
            depth: (words[2] >> (32 + DEPTH_SHIFT)) as u32,
            discard: Limit::from_word(words[3]),
            write_zeroes: Limit::from_word(words[4]),
        }
    }
}

impl Extent {
    pub(super) fn store(self, memory: &(impl SharedWords + ?Sized), index: usize) {
        memory.store(WORD_EXTENTS + 2 * index, self.sector_count);
        memory.store(WORD_EXTENTS + 2 * index + 1, u64::from(self.rights));
    }

    pub(super) fn load(memory: &(impl SharedWords + ?Sized), index: usize) -> Self {
        if index >= EXTENT_COUNT_MAX {
            return Self::default();
        }
        let word = |offset| memory.load(WORD_EXTENTS + 2 * index + offset);
        Self { sector_count: word(0), rights: word(1) as u8 }
    }
}

/// An entry of the table of buffers: what the client gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Where the service finds the capability: a slot, in the terms of the placement.
    pub slot: u32,
    /// Its frames that are meant, from the first on; 0: no buffer.
    pub page_count: u32,
}

impl Buffer {
    pub(super) fn store(self, memory: &(impl SharedWords + ?Sized), index: usize) {
        if index < BUFFER_COUNT_MAX {
            memory.store(WORD_BUFFERS + index, u64::from(self.slot) | u64::from(self.page_count) << 32);
        }
    }

    pub(super) fn load(memory: &(impl SharedWords + ?Sized), index: usize) -> Self {
        if index >= BUFFER_COUNT_MAX {
            return Self::default();
        }
        let word = memory.load(WORD_BUFFERS + index);
        Self { slot: word as u32, page_count: (word >> 32) as u32 }
    }
}
