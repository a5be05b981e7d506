//! The ownership table: what each frame of the machine is, whose it is, how often it is mapped and
//! pinned.
//!
//! Invariants:
//! - a frame becomes free only when its map count and pin count are 0 (INV-4);
//! - a block's summary is the sum over its 512 frames, so that a range is judged in one step per
//!   block;
//! - `owner` of a free frame is the environment that had it last, so that a frame is zeroed only when it crosses
//!   environments; 0 is nobody;
//! - donated frames of an environment that are not in use form a list through `next`.

use aegis_abi::layout::LARGE_PAGE_FRAMES;
use aegis_abi::types::{FrameNumber, Status};

/// What a frame is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// No memory, or the kernel's own: never given to anybody.
    Reserved = 0,
    /// Nobody owns it.
    Free = 1,
    /// An environment owns it and has an original capability for it.
    Owned = 2,
    /// Donated, not yet used.
    Donated = 3,
    /// A page table of an environment.
    PageTable = 4,
    /// A table of capabilities.
    CapabilityTable = 5,
    /// A virtual processor's vector state.
    VectorState = 6,
    /// The system page, which every environment sees.
    Shared = 7,
}

/// One frame. The glue reserves `size_of::<FrameEntry>()` bytes for each frame up to the highest.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FrameEntry {
    owner: u32,
    map_count: u32,
    next: u32,
    pin_count: u16,
    kind: FrameKind,
}

impl FrameEntry {
    /// No memory.
    pub const RESERVED: Self = Self { owner: 0, map_count: 0, next: 0, pin_count: 0, kind: FrameKind::Reserved };
}

/// The sum over 512 aligned frames. The glue reserves one for every started block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BlockEntry {
    /// Large pages that map the block.
    large_map_count: u32,
    /// Frames with a map count.
    mapped_frame_count: u16,
    /// Frames with a pin count.
    pinned_frame_count: u16,
    free_frame_count: u16,
}

impl BlockEntry {
    /// A block without frames.
    pub const EMPTY: Self =
        Self { large_map_count: 0, mapped_frame_count: 0, pinned_frame_count: 0, free_frame_count: 0 };
}

const BLOCK: u64 = LARGE_PAGE_FRAMES;
/// Steps of a search for free frames in one call, some five instructions each: frames that are looked at. More than
/// are looked at for the longest run of free frames, of which a part of a block lies at either end.
const SEARCH_STEPS: u64 = 8192;
/// Steps that going on by a block, or by a run of frames in it, counts for.
const RUN_STEPS: u64 = 16;

/// How far a search for free frames is.
pub(crate) struct Search {
    /// Where it goes on.
    pub(crate) at: u64,
    /// Frames that it has not looked at yet.
    pub(crate) left: u64,
}

/// The table. Empty until `install`.
pub(crate) struct FrameTable<'a> {
    frames: Option<&'a mut [FrameEntry]>,
    blocks: Option<&'a mut [BlockEntry]>,
    free_count: u64,
    next_fit: u64,
}

impl<'a> FrameTable<'a> {
    pub(crate) const EMPTY: Self = Self { frames: None, blocks: None, free_count: 0, next_fit: 0 };

    /// Takes the tables' memory; all frames start reserved. Returns false if the block table is too
    /// short.
    pub(crate) fn install(&mut self, frames: &'a mut [FrameEntry], blocks: &'a mut [BlockEntry]) -> bool {
        let fits = blocks.len() as u64 >= (frames.len() as u64).div_ceil(BLOCK) && u32::try_from(frames.len()).is_ok();
        if fits {
            frames.fill(FrameEntry::RESERVED);
            blocks.fill(BlockEntry::EMPTY);
            (self.frames, self.blocks) = (Some(frames), Some(blocks));
        }
        fits
    }

    pub(crate) fn count(&self) -> u64 {
        self.frames.as_deref().map_or(0, |f| f.len() as u64)
    }

    pub(crate) fn free_count(&self) -> u64 {
        self.free_count
    }

    /// Whether `[first, first + count)` lies in the table.
    pub(crate) fn contains(&self, first: u64, count: u64) -> bool {
        first.checked_add(count).is_some_and(|end| end <= self.count())
    }

    fn entry(&self, frame: u64) -> Option<&FrameEntry> {
        self.frames.as_deref()?.get(usize::try_from(frame).ok()?)
    }

    fn entry_mut(&mut self, frame: u64) -> Option<&mut FrameEntry> {
        self.frames.as_deref_mut()?.get_mut(usize::try_from(frame).ok()?)
    }

    fn block(&self, block: u64) -> BlockEntry {
        self.blocks.as_deref().and_then(|b| b.get(usize::try_from(block).ok()?)).copied().unwrap_or(BlockEntry::EMPTY)
    }

    fn block_mut(&mut self, frame: u64) -> Option<&mut BlockEntry> {
        self.blocks.as_deref_mut()?.get_mut(usize::try_from(frame / BLOCK).ok()?)
    }

    pub(crate) fn kind(&self, frame: FrameNumber) -> FrameKind {
        self.entry(frame.0).map_or(FrameKind::Reserved, |e| e.kind)
    }

    /// The serial of the environment that owns the frame, or had it last.
    #[cfg(test)]
    pub(crate) fn owner(&self, frame: FrameNumber) -> u32 {
        self.entry(frame.0).map_or(0, |e| e.owner)
    }

    /// The frames of the range that lie in the table.
    fn entries(&self, first: u64, count: u64) -> &[FrameEntry] {
        let end = first.saturating_add(count).min(self.count()) as usize;
        self.frames.as_deref().and_then(|frames| frames.get(first as usize..end)).unwrap_or(&[])
    }

    /// How many frames of the range there are up to the last that another had last.
    pub(crate) fn foreign_count(&self, first: u64, count: u64, owner: u32) -> u64 {
        self.entries(first, count).iter().rposition(|e| e.owner != owner).map_or(0, |last| last as u64 + 1)
    }

    pub(crate) fn set(&mut self, frame: FrameNumber, kind: FrameKind, owner: u32) {
        self.set_range(frame.0, 1, kind, owner);
    }

    /// Some seven instructions a frame, and one look at the summary a block.
    pub(crate) fn set_range(&mut self, first: u64, count: u64, kind: FrameKind, owner: u32) {
        let (mut at, end) = (first, first.saturating_add(count).min(self.count()));
        while at < end {
            let next = ((at / BLOCK + 1) * BLOCK).min(end);
            let entries = self.frames.as_deref_mut().and_then(|frames| frames.get_mut(at as usize..next as usize));
            let mut freed = if kind == FrameKind::Free { (next - at) as i16 } else { 0 };
            for entry in entries.unwrap_or(&mut []) {
                freed -= i16::from(entry.kind == FrameKind::Free);
                (entry.kind, entry.owner) = (kind, owner);
            }
            if let Some(block) = self.block_mut(at) {
                block.free_frame_count = block.free_frame_count.wrapping_add_signed(freed);
            }
            self.free_count = self.free_count.wrapping_add_signed(i64::from(freed));
            at = next;
        }
    }

    pub(crate) fn next(&self, frame: FrameNumber) -> u32 {
        self.entry(frame.0).map_or(0, |e| e.next)
    }

    pub(crate) fn set_next(&mut self, frame: FrameNumber, next: u32) {
        if let Some(entry) = self.entry_mut(frame.0) {
            entry.next = next;
        }
    }

    /// Raises one of a frame's counts, as `raise` does it: whether it was 0, or `None` if it is full. `frames` is the
    /// block's number of frames that have any. False if the count is full.
    fn raise(
        &mut self,
        frame: FrameNumber,
        raise: impl FnOnce(&mut FrameEntry) -> Option<bool>,
        frames: impl FnOnce(&mut BlockEntry) -> &mut u16,
    ) -> bool {
        let was_zero = self.entry_mut(frame.0).and_then(raise);
        if let (Some(true), Some(block)) = (was_zero, self.block_mut(frame.0)) {
            *frames(block) += 1;
        }
        was_zero.is_some()
    }

    /// Counts a small mapping of an owned frame, others not; false if the counter is full.
    pub(crate) fn count_mapping(&mut self, frame: FrameNumber) -> bool {
        let raise = |entry: &mut FrameEntry| {
            entry.map_count = entry.map_count.checked_add(1)?;
            Some(entry.map_count == 1)
        };
        self.kind(frame) != FrameKind::Owned || self.raise(frame, raise, |block| &mut block.mapped_frame_count)
    }

    /// Uncounts a small mapping of an owned frame, which was counted.
    pub(crate) fn uncount_mapping(&mut self, frame: FrameNumber) {
        let Some(entry) = self.entry_mut(frame.0).filter(|entry| entry.kind == FrameKind::Owned) else { return };
        debug_assert_ne!(entry.map_count, 0, "every mapping was counted");
        entry.map_count -= 1;
        if entry.map_count == 0
            && let Some(block) = self.block_mut(frame.0)
        {
            block.mapped_frame_count -= 1;
        }
    }

    /// Counts a large mapping of the block that starts at `frame`; false if the counter is full.
    pub(crate) fn count_large_mapping(&mut self, frame: FrameNumber) -> bool {
        let Some(block) = self.block_mut(frame.0) else { return false };
        let count = block.large_map_count.checked_add(1);
        block.large_map_count = count.unwrap_or(block.large_map_count);
        count.is_some()
    }

    pub(crate) fn uncount_large_mapping(&mut self, frame: FrameNumber) {
        if let Some(block) = self.block_mut(frame.0) {
            debug_assert_ne!(block.large_map_count, 0, "every mapping was counted");
            block.large_map_count -= 1;
        }
    }

    /// Pins a frame: it cannot be freed, donated or taken. False if the counter is full.
    pub(crate) fn pin(&mut self, frame: FrameNumber) -> bool {
        let raise = |entry: &mut FrameEntry| {
            entry.pin_count = entry.pin_count.checked_add(1)?;
            Some(entry.pin_count == 1)
        };
        self.raise(frame, raise, |block| &mut block.pinned_frame_count)
    }

    /// Pins a range; if a counter is full, pins nothing and returns false.
    pub(crate) fn pin_range(&mut self, first: u64, count: u64) -> bool {
        for frame in first..first.saturating_add(count) {
            if !self.pin(FrameNumber(frame)) {
                self.unpin_range(first, frame - first);
                return false;
            }
        }
        true
    }

    pub(crate) fn unpin(&mut self, frame: FrameNumber) {
        let Some(entry) = self.entry_mut(frame.0) else { return };
        debug_assert_ne!(entry.pin_count, 0, "every pin was counted");
        entry.pin_count -= 1;
        if entry.pin_count == 0
            && let Some(block) = self.block_mut(frame.0)
        {
            block.pinned_frame_count -= 1;
        }
    }

    pub(crate) fn unpin_range(&mut self, first: u64, count: u64) {
        for frame in first..first.saturating_add(count) {
            self.unpin(FrameNumber(frame));
        }
    }

    /// Whether a frame of the range satisfies `frame`, where `block` says that a whole block has
    /// none that does.
    fn any(
        &self,
        first: u64,
        count: u64,
        block_has: impl Fn(&BlockEntry) -> bool,
        frame_has: impl Fn(&FrameEntry) -> bool,
    ) -> bool {
        let end = first.saturating_add(count).min(self.count());
        let mut frame = first;
        while frame < end {
            let next_block = (frame / BLOCK + 1) * BLOCK;
            if block_has(&self.block(frame / BLOCK)) {
                let whole = frame.is_multiple_of(BLOCK) && next_block <= end;
                if whole || (frame..next_block.min(end)).any(|f| self.entry(f).is_some_and(&frame_has)) {
                    return true;
                }
            }
            frame = next_block;
        }
        false
    }

    /// Whether any frame of the range is mapped anywhere. One step per block.
    pub(crate) fn any_mapped(&self, first: u64, count: u64) -> bool {
        let end = first.saturating_add(count).min(self.count());
        (first / BLOCK..end.div_ceil(BLOCK)).any(|block| self.block(block).large_map_count != 0)
            || self.any(first, count, |b| b.mapped_frame_count != 0, |f| f.map_count != 0)
    }

    /// Whether any frame of the range is pinned. One step per block.
    pub(crate) fn any_pinned(&self, first: u64, count: u64) -> bool {
        self.any(first, count, |b| b.pinned_frame_count != 0, |f| f.pin_count != 0)
    }

    /// Whether any frame of the range is mapped or pinned.
    pub(crate) fn any_used(&self, first: u64, count: u64) -> bool {
        self.any_mapped(first, count) || self.any_pinned(first, count)
    }

    /// Whether the range lies in the table and nobody owns any of it. One step per block.
    pub(crate) fn all_free(&self, first: u64, count: u64) -> bool {
        let is_full = |b: &BlockEntry| u64::from(b.free_frame_count) == BLOCK;
        self.contains(first, count) && !self.any(first, count, |b| !is_full(b), |f| f.kind != FrameKind::Free)
    }

    /// Where a search begins: next fit.
    pub(crate) fn new_search(&self, count: u64) -> Search {
        // A run that begins before that place and ends behind it is found too.
        Search { at: self.next_fit.min(self.count()), left: self.count() + count }
    }

    /// Finds `count` contiguous free frames, the first a multiple of `alignment`: frames are looked at in those blocks
    /// only that are neither full nor empty.
    /// `Err(Status::Again)` after `SEARCH_STEPS` steps, with `search` where to go on; it gets there whatever others do.
    pub(crate) fn find_free(&mut self, count: u64, alignment: u64, search: &mut Search) -> Result<FrameNumber, Status> {
        let mut run_start = search.at.next_multiple_of(alignment);
        let mut frame = run_start;
        search.left = search.left.saturating_sub(frame.min(self.count()).saturating_sub(search.at));
        let mut steps = 0;
        while steps < SEARCH_STEPS {
            if search.left == 0 || count > self.free_count {
                return Err(Status::NoFrames);
            }
            if frame >= self.count() {
                (frame, run_start) = (0, 0);
            }
            let block_end = ((frame / BLOCK + 1) * BLOCK).min(self.count());
            let free_in_block = self.block(frame / BLOCK).free_frame_count;
            let is_free = self.kind(FrameNumber(frame)) == FrameKind::Free;
            let skips = u64::from(free_in_block) == BLOCK || free_in_block == 0;
            // No more is looked at of a run than is asked for.
            let end = if is_free && !skips { block_end.min(frame.max(run_start) + count) } else { block_end };
            let looked = if skips { &[] } else { self.entries(frame, end - frame) };
            let run_end = looked.iter().position(|e| (e.kind == FrameKind::Free) != is_free);
            let mut next = run_end.map_or(end, |length| frame + length as u64);
            steps += RUN_STEPS + if skips { 0 } else { next - frame };
            if !is_free {
                next = next.next_multiple_of(alignment);
                run_start = next;
            }
            search.left = search.left.saturating_sub(next.min(self.count()) - frame);
            frame = next;
            if frame >= run_start && frame - run_start >= count {
                self.next_fit = run_start + count;
                return Ok(FrameNumber(run_start));
            }
        }
        search.left += frame.saturating_sub(run_start);
        search.at = run_start;
        Err(Status::Again)
    }

    #[cfg(test)]
    pub(crate) fn take_tables(&mut self) -> Option<(&'a mut [FrameEntry], &'a mut [BlockEntry])> {
        self.frames.take().zip(self.blocks.take())
    }

    #[cfg(test)]
    pub(crate) fn counts(&self, frame: FrameNumber) -> (u32, u16) {
        self.entry(frame.0).map_or((0, 0), |e| (e.map_count, e.pin_count))
    }

    #[cfg(test)]
    pub(crate) fn large_count(&self, frame: FrameNumber) -> u32 {
        self.block(frame.0 / BLOCK).large_map_count
    }

    /// Recomputes every summary from the entries.
    #[cfg(test)]
    pub(crate) fn summaries_hold(&self) -> bool {
        (0..self.count().div_ceil(BLOCK)).all(|index| {
            let block = self.block(index);
            let frames = index * BLOCK..((index + 1) * BLOCK).min(self.count());
            let sum = |has: &dyn Fn(&FrameEntry) -> bool| {
                frames.clone().filter(|f| self.entry(*f).is_some_and(has)).count() as u16
            };
            block.mapped_frame_count == sum(&|f| f.map_count != 0)
                && block.pinned_frame_count == sum(&|f| f.pin_count != 0)
                && block.free_frame_count == sum(&|f| f.kind == FrameKind::Free)
        })
    }
}
