//! The layout of a session: `FORMAT.md` in code. Nothing here believes what it reads.

use crate::{RingPlace, SharedWords};

/// First word of a session.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"aegisnq1");
/// Most frames of a direction that are under way.
pub const RING_CAPACITY_MAX: u32 = 512;
/// Most bytes of headers of a frame that is cut into segments.
pub const SEGMENTED_HEADER_BYTES_MAX: usize = 256;

pub(super) const TRANSMIT_WORD_COUNT: usize = 2;
pub(super) const RECEIVE_WORD_COUNT: usize = 1;
const PAGE_BYTES: usize = 4096;
const PAGE_WORD_COUNT: usize = PAGE_BYTES / 8;

pub(super) const WORD_MAGIC: usize = 0;
pub(super) const WORD_GENERATION: usize = 1;
pub(super) const WORD_SHAPE: usize = 3;
pub(super) const WORD_STATE: usize = 8;
pub(super) const WORD_LINK: usize = 9;
pub(super) const WORD_DROPPED: usize = 10;
const WORD_DESCRIPTION: usize = 16;
const WORD_RINGS: usize = 32;

/// How large a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Frames that can be under way in each direction: a power of two, up to [`RING_CAPACITY_MAX`].
    pub capacity: u32,
    /// Pages for frames that go out.
    pub transmit_page_count: u32,
}

impl Shape {
    /// Bytes that a frame which comes in has.
    pub const RECEIVE_BYTES: usize = PAGE_BYTES / 2;
    const TRANSMIT_PAGE_COUNT_MAX: u32 = 1024;

    /// Pages of words, from the first on.
    #[must_use]
    pub const fn word_page_count(self) -> usize {
        let end = self.receive_word() + RingPlace::word_count::<RECEIVE_WORD_COUNT>(self.capacity);
        end.div_ceil(PAGE_WORD_COUNT)
    }

    /// Pages of the session.
    #[must_use]
    pub const fn page_count(self) -> usize {
        self.word_page_count() + self.byte_page_count()
    }

    /// Pages of bytes of frames, behind those of words.
    #[must_use]
    pub const fn byte_page_count(self) -> usize {
        self.transmit_page_count as usize + self.capacity as usize * Self::RECEIVE_BYTES / PAGE_BYTES
    }

    const fn receive_word(self) -> usize {
        WORD_RINGS + RingPlace::word_count::<TRANSMIT_WORD_COUNT>(self.capacity)
    }

    /// Bytes for frames that go out: the first of all bytes.
    pub(super) const fn transmit_bytes(self) -> u32 {
        self.transmit_page_count * PAGE_BYTES as u32
    }

    /// The first byte of a frame that comes in, by its number.
    pub(super) const fn receive_place(self, counter: u32) -> usize {
        self.transmit_bytes() as usize + (counter & (self.capacity - 1)) as usize * Self::RECEIVE_BYTES
    }

    /// Where the rings are; `None`: memory does not have this shape.
    pub(super) fn rings(self, memory: &(impl SharedWords + ?Sized)) -> Option<[RingPlace; 2]> {
        let is_allowed = (2..=RING_CAPACITY_MAX).contains(&self.capacity)
            && self.capacity.is_power_of_two()
            && (1..=Self::TRANSMIT_PAGE_COUNT_MAX).contains(&self.transmit_page_count);
        if !is_allowed || self.word_page_count() * PAGE_WORD_COUNT > memory.word_count() {
            return None;
        }
        let transmit = RingPlace::new::<TRANSMIT_WORD_COUNT>(WORD_RINGS, self.capacity, memory)?;
        let receive = RingPlace::new::<RECEIVE_WORD_COUNT>(self.receive_word(), self.capacity, memory)?;
        Some([transmit, receive])
    }

    pub(super) fn to_word(self) -> u64 {
        u64::from(self.capacity) | u64::from(self.transmit_page_count) << 32
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self { capacity: word as u32, transmit_page_count: (word >> 32) as u32 }
    }
}

/// How a frame is cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Payload bytes of each segment.
    pub payload_bytes: u16,
    /// Bytes of all headers, which each segment repeats: at most [`SEGMENTED_HEADER_BYTES_MAX`].
    pub header_bytes: u16,
    /// The packet is IPv6.
    pub is_ip6: bool,
}

/// A frame that goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// Its first byte among those of the session.
    pub offset_bytes: u32,
    /// Its bytes.
    pub length_bytes: u32,
    /// Where the sum of a transport checksum begins, and how far behind that it goes.
    pub checksum: Option<(u16, u16)>,
    /// Segments to cut it into; asks for a checksum too.
    pub segmentation: Option<Segmentation>,
}

const LENGTH_BITS: u32 = 20;
const HAS_CHECKSUM: u64 = 1 << 52;
const HAS_SEGMENTS: u64 = 1 << 53;
const IS_IP6: u64 = 1 << 54;

impl Transmission {
    /// The slot. `None`: a number is too large for it.
    pub(super) fn to_words(self) -> Option<[u64; TRANSMIT_WORD_COUNT]> {
        let mut words = [u64::from(self.offset_bytes) | u64::from(self.length_bytes) << 32, 0];
        if let Some((start, offset)) = self.checksum {
            words[0] |= HAS_CHECKSUM;
            words[1] |= u64::from(start) | u64::from(offset) << 16;
        }
        if let Some(segmentation) = self.segmentation {
            words[0] |= HAS_SEGMENTS | if segmentation.is_ip6 { IS_IP6 } else { 0 };
            words[1] |= u64::from(segmentation.payload_bytes) << 32 | u64::from(segmentation.header_bytes) << 48;
        }
        (self.length_bytes < 1 << LENGTH_BITS).then_some(words)
    }

    /// What a slot says, held against the bytes that there are. `None`: it is no frame.
    pub(super) fn from_words([first, second]: [u64; TRANSMIT_WORD_COUNT], shape: Shape) -> Option<Self> {
        let (offset_bytes, length_bytes) = (first as u32, (first >> 32) as u32 & ((1 << LENGTH_BITS) - 1));
        let known = HAS_CHECKSUM | HAS_SEGMENTS | IS_IP6 | ((1 << (32 + LENGTH_BITS)) - 1);
        let end = offset_bytes.checked_add(length_bytes)?;
        let segmentation = (first & HAS_SEGMENTS != 0).then_some(Segmentation {
            payload_bytes: (second >> 32) as u16,
            header_bytes: (second >> 48) as u16,
            is_ip6: first & IS_IP6 != 0,
        });
        let header_bytes = segmentation.map_or(0, |cut| u32::from(cut.header_bytes));
        let is_whole = first & !known == 0
            && length_bytes > 0
            && end <= shape.transmit_bytes()
            && header_bytes < length_bytes
            && header_bytes as usize <= SEGMENTED_HEADER_BYTES_MAX;
        is_whole.then_some(Self {
            offset_bytes,
            length_bytes,
            checksum: (first & HAS_CHECKSUM != 0).then_some((second as u16, (second >> 16) as u16)),
            segmentation,
        })
    }
}

/// A frame that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its first byte among those of the session.
    pub offset_bytes: usize,
    /// Its bytes: at most [`Shape::RECEIVE_BYTES`].
    pub length_bytes: usize,
    /// The card or the host has looked at the transport checksum, or the frame never left the host.
    pub is_checksum_valid: bool,
}

const IS_CHECKSUM_VALID: u64 = 1 << 32;

impl Received {
    pub(super) fn to_words(self) -> [u64; RECEIVE_WORD_COUNT] {
        [self.length_bytes as u64 | if self.is_checksum_valid { IS_CHECKSUM_VALID } else { 0 }]
    }

    /// What a slot says of the frame at a place. `None`: there is none that long.
    pub(super) fn from_words([word]: [u64; RECEIVE_WORD_COUNT], offset_bytes: usize) -> Option<Self> {
        let length_bytes = word as u32 as usize;
        let is_whole = word & !(IS_CHECKSUM_VALID | u64::from(u32::MAX)) == 0 && length_bytes <= Shape::RECEIVE_BYTES;
        is_whole.then_some(Self { offset_bytes, length_bytes, is_checksum_valid: word & IS_CHECKSUM_VALID != 0 })
    }
}

/// What the card is; the service says it before the session is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Its Ethernet address.
    pub hardware_address: [u8; 6],
    /// Longest packet, in bytes, without the Ethernet header.
    pub packet_bytes_max: u16,
    /// It fills in a transport checksum of a frame that is sent.
    pub fills_checksums: bool,
    /// It cuts TCP packets of both versions of IP into segments.
    pub segments: bool,
}

impl Description {
    pub(super) fn store(&self, memory: &(impl SharedWords + ?Sized)) {
        let [a, b, c, d, e, f] = self.hardware_address;
        let [low, high] = self.packet_bytes_max.to_le_bytes();
        memory.store(WORD_DESCRIPTION, u64::from_le_bytes([a, b, c, d, e, f, low, high]));
        memory.store(WORD_DESCRIPTION + 1, u64::from(self.fills_checksums) | u64::from(self.segments) << 1);
    }

    pub(super) fn load(memory: &(impl SharedWords + ?Sized)) -> Self {
        let [a, b, c, d, e, f, low, high] = memory.load(WORD_DESCRIPTION).to_le_bytes();
        let flags = memory.load(WORD_DESCRIPTION + 1);
        Self {
            hardware_address: [a, b, c, d, e, f],
            packet_bytes_max: u16::from_le_bytes([low, high]),
            fills_checksums: flags & 1 != 0,
            segments: flags & 2 != 0,
        }
    }
}
