//! A ring of frames that a program maps (`PACKET_RX_RING`, `TPACKET_V2`; Linux's `networking/packet_mmap`).
//!
//! Each frame begins with a word that says whose it is. Only the side whose it is writes there, but the program may do
//! as it likes: nothing that is read from the ring is used but whether that word is 0.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::{Errno, Result};
use crate::mem::frames::{FramePool, FrameRef};
use crate::mem::source::{FileIdentity, FilePage, PageError, PageIntent, PageSource};
use crate::preempt::Pace;
use crate::reserve;

const PAGE_BYTES: usize = 4096;
/// Bytes of `struct tpacket2_hdr`, and where the sender's address stands.
const HEADER_BYTES: usize = 32;
/// The same with the address (`TPACKET2_HDRLEN`).
pub(super) const HEADER_BYTES_MIN: usize = HEADER_BYTES + 20;
/// To what frames are aligned (`TPACKET_ALIGNMENT`).
const ALIGNMENT: usize = 16;

/// `struct tpacket_req`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingRequest {
    /// Bytes of a block, which are pages.
    pub block_bytes: u32,
    /// How many there are.
    pub block_count: u32,
    /// Bytes of a frame, of which a block has as many as fit.
    pub frame_bytes: u32,
    /// Frames of all blocks.
    pub frame_count: u32,
}

/// The memory of a ring.
pub struct RingMemory {
    pool: Arc<FramePool>,
    pages: Vec<FrameRef>,
}

impl RingMemory {
    fn new(pool: &Arc<FramePool>, page_count: usize) -> Result<Arc<Self>> {
        let mut pages = reserve::vector(page_count)?;
        let mut pace = Pace::default();
        for _ in 0..page_count {
            pages.push(pool.allocate_ref().map_err(|_| Errno::ENOMEM)?);
            pace.offer();
        }
        Ok(Arc::new(Self { pool: pool.clone(), pages }))
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let (mut offset, mut rest) = (offset, bytes);
        while let Some(page) = self.pages.get(offset / PAGE_BYTES)
            && !rest.is_empty()
        {
            let at = offset % PAGE_BYTES;
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - at));
            self.pool.bytes().write(page.frame(), at, now);
            (offset, rest) = (offset + now.len(), later);
        }
    }

    /// Replaces a word that is 0. `Err`: it is another one.
    fn replace_zero(&self, offset: usize, new: u32) -> core::result::Result<(), ()> {
        let page = self.pages.get(offset / PAGE_BYTES).ok_or(())?;
        let exchanged = self.pool.bytes().compare_exchange_u32(page.frame(), offset % PAGE_BYTES, 0, new);
        exchanged.map(|_| ()).map_err(|_| ())
    }
}

impl PageSource for RingMemory {
    fn page(&self, index: u64, _: PageIntent) -> core::result::Result<FilePage, PageError> {
        self.resident_page(index).ok_or(PageError::BeyondEnd)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let frame = self.pages.get(usize::try_from(index).ok()?)?.clone();
        Some(FilePage { frame, valid_bytes: PAGE_BYTES })
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 9, inode: 0 }
    }

    fn path(&self) -> String {
        String::from("socket:[packet]")
    }
}

/// What is told of a frame besides its bytes.
pub(super) struct Entry<'a> {
    pub(super) status: u32,
    /// Bytes that the frame has.
    pub(super) length_bytes: usize,
    /// Its bytes in parts, as many as are taken of those from `skipped_bytes` on.
    pub(super) parts: &'a [&'a [u8]],
    pub(super) skipped_bytes: usize,
    pub(super) taken_bytes: usize,
    /// Bytes of the link's header that it has.
    pub(super) link_bytes: usize,
    pub(super) realtime_ns: u64,
    pub(super) address: [u8; 20],
}

/// A ring.
pub(super) struct Ring {
    memory: Arc<RingMemory>,
    request: RingRequest,
    reserve_bytes: usize,
    head: u32,
}

impl Ring {
    /// A ring as it is asked for, with so many bytes before each frame's own.
    pub(super) fn new(pool: &Arc<FramePool>, request: RingRequest, reserve_bytes: usize) -> Result<Self> {
        let RingRequest { block_bytes, block_count, frame_bytes, frame_count } = request;
        let is_block = block_bytes > 0 && block_bytes <= i32::MAX as u32 && block_bytes % PAGE_BYTES as u32 == 0;
        let is_frame = frame_bytes as usize >= HEADER_BYTES_MIN + reserve_bytes && frame_bytes % ALIGNMENT as u32 == 0;
        if !is_block || !is_frame {
            return Err(Errno::EINVAL);
        }
        let per_block = block_bytes / frame_bytes;
        if per_block == 0 || per_block.checked_mul(block_count) != Some(frame_count) {
            return Err(Errno::EINVAL);
        }
        let page_count = u64::from(block_bytes) * u64::from(block_count) / PAGE_BYTES as u64;
        let page_count = usize::try_from(page_count).map_err(|_| Errno::ENOMEM)?;
        Ok(Self { memory: RingMemory::new(pool, page_count)?, request, reserve_bytes, head: 0 })
    }

    pub(super) fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    fn offset_of(&self, frame: u32) -> usize {
        let per_block = (self.request.block_bytes / self.request.frame_bytes).max(1);
        let block = (frame / per_block) as usize * self.request.block_bytes as usize;
        block + (frame % per_block * self.request.frame_bytes) as usize
    }

    /// Whether the program has a frame to look at: the last one that was filled.
    pub(super) fn is_readable(&self) -> bool {
        let last = self.head.checked_sub(1).unwrap_or(self.request.frame_count - 1);
        self.memory.replace_zero(self.offset_of(last), 0).is_err()
    }

    /// Fills the next frame; false: it is the program's still.
    pub(super) fn put(&mut self, entry: &Entry<'_>) -> bool {
        let at = self.offset_of(self.head);
        if self.memory.replace_zero(at, 0).is_err() {
            return false;
        }
        let align = |bytes: usize| bytes.next_multiple_of(ALIGNMENT);
        let network = match entry.link_bytes {
            0 => align(HEADER_BYTES_MIN) + ALIGNMENT,
            link_bytes => align(HEADER_BYTES_MIN + link_bytes.max(ALIGNMENT)),
        } + self.reserve_bytes;
        let begin = network - entry.link_bytes;
        let room = (self.request.frame_bytes as usize).saturating_sub(begin);
        let taken_bytes = entry.taken_bytes.min(room);
        let mut header = [0; HEADER_BYTES_MIN];
        let seconds = entry.realtime_ns / 1_000_000_000;
        header[4..8].copy_from_slice(&(entry.length_bytes as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(taken_bytes as u32).to_le_bytes());
        header[12..14].copy_from_slice(&(begin as u16).to_le_bytes());
        header[14..16].copy_from_slice(&(network as u16).to_le_bytes());
        header[16..20].copy_from_slice(&(seconds as u32).to_le_bytes());
        header[20..24].copy_from_slice(&((entry.realtime_ns % 1_000_000_000) as u32).to_le_bytes());
        header[HEADER_BYTES..].copy_from_slice(&entry.address);
        self.memory.write(at + 4, &header[4..]);
        let (mut skipped, mut place, mut left) = (entry.skipped_bytes, at + begin, taken_bytes);
        for part in entry.parts {
            let rest = &part[skipped.min(part.len())..];
            skipped = skipped.saturating_sub(part.len());
            let now = &rest[..rest.len().min(left)];
            self.memory.write(place, now);
            (place, left) = (place + now.len(), left - now.len());
        }
        let is_told = self.memory.replace_zero(at, entry.status).is_ok();
        self.head = (self.head + 1) % self.request.frame_count.max(1);
        is_told
    }
}
