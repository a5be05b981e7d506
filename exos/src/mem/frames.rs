//! The pod's frames: taken from the kernel in chunks, handed out one by one, counted by their
//! users.
//!
//! A frame is allocated with one reference; each mapping, page-cache entry or shared object that
//! names it holds one more, and the last release makes it free again. [`FrameRef`] holds one
//! reference by itself; address spaces keep bare [`FrameNumber`]s in their page maps and call
//! [`FramePool::retain`] and [`FramePool::release`].
//!
//! - A free frame is found through a bitmap per 2 MiB region, lowest first, so that frames taken
//!   one after the other are neighbours and one bind entry covers many. Allocation, release and the
//!   way from a frame to its capability are O(1).
//! - Two kinds of frame are never counted, written or freed: those of the boot bundle
//!   ([`FramePool::add_borrowed`]) and the one zero frame ([`FramePool::zero_frame`]). `retain` and
//!   `release` pass them over, so callers need no cases.
//! - Limit: what [`Kernel::frame_limit`] says, at most `limit_bytes` of the pod, looked at whenever the pool grows.
//!   Reaching it, and the kernel having no frames left, are both `ENOMEM`. [`FramePool::shrink`] goes below a new one.
//! - Frames come with unknown contents; [`FramePool::allocate_zeroed`] clears.
//!
//! Neighbours: [`giving`], how frames go back. The heap that serves exos's own allocations must take its frames from
//! the kernel directly, not from here: the pool allocates a region's table while it is locked.

mod giving;

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use aegis_abi::layout::{LARGE_PAGE_FRAMES, PAGE_SIZE};
use aegis_abi::types::SLOT_NONE;
use aegis_abi::{CapSlot, FrameNumber};

use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Errno, Result};
use crate::platform::{FrameBytes, FrameGrant, Kernel};
use crate::reserve;
use crate::sync::{Mutex, MutexGuard};

/// Frames in a region, the unit of bookkeeping: 2 MiB.
const REGION_FRAMES: usize = LARGE_PAGE_FRAMES as usize;
/// Frames in the smallest grant that is asked for, when memory is nearly gone.
pub(crate) const GROUP_FRAMES: usize = 16;
const GROUPS: usize = REGION_FRAMES / GROUP_FRAMES;
const WORDS: usize = REGION_FRAMES / 64;
/// "No region" in the table from frame to region.
const NO_REGION: u32 = u32::MAX;
/// The frame of a handle that holds no reference any more.
const GIVEN_UP: FrameNumber = FrameNumber(u64::MAX);
/// The count of a frame that is never freed.
pub(crate) const PINNED: u32 = u32::MAX;
/// Highest region number: 2^52 bytes of physical address would need 2^31 regions; this is 1 TiB, and no more is taken.
const REGION_NUMBER_MAX: u64 = 1 << 19;

/// Regions among which one is looked for that is all free.
const BLOCK_LOOK_COUNT: usize = 256;
/// Frames that a pool without any asks for at a time.
const RECLAIM_FRAMES: u64 = 64;
/// Of a limit below two regions a pool asks for one part in so many at a time.
const GROWTH_SHARE: u64 = 8;
/// Of how many frames of the limit one is set aside, and the most.
const RESERVE_SHARE: u64 = 64;
const RESERVE_FRAMES_MAX: u64 = 256;

/// A holder of frames that can be had again: a cache.
pub trait Reclaim: Send + Sync {
    /// Releases up to `frame_count` frames; answers how many were. Called while the asker holds locks of its own, so a
    /// lock is only tried.
    fn reclaim(&self, frame_count: u64) -> u64;

    /// Tells of every frame that [`Self::reclaim_from`] would release now.
    fn visit(&self, seen: &mut dyn FnMut(FrameNumber));

    /// Lets go of all that is in the chosen frames, also of what is in use: it is lost.
    fn forget(&self, is_chosen: &dyn Fn(FrameNumber) -> bool);

    /// Releases the frames that are chosen, as far as it can, and answers how many were.
    fn reclaim_from(&self, is_chosen: &dyn Fn(FrameNumber) -> bool) -> u64;
}

/// The frames of one pod. Shared by everything that holds frames.
pub struct FramePool {
    kernel: Arc<dyn Kernel>,
    bytes: Arc<dyn FrameBytes>,
    /// As [`Kernel::frame_limit`] said last, and the most that it can say.
    limit_frames: AtomicU64,
    limit_frames_max: u64,
    /// What the pool held and what the kernel had then, when that was last asked: it can be less than the limit,
    /// because exos's own structures take frames as well.
    attainable_frames: AtomicU64,
    state: Mutex<State>,
    reclaimer: Mutex<Option<Weak<dyn Reclaim>>>,
    /// Number of threads that take from the reserve just now.
    urgent_count: AtomicU32,
    /// How often frames in use were taken by force.
    taken_count: AtomicU64,
}

/// Frames of the boot bundle that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedRun {
    /// The first.
    pub first: FrameNumber,
    /// How many: at least one.
    pub count: u64,
}

/// Frames that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameRun {
    pub(crate) first: u64,
    pub(crate) count: u32,
}

/// How the pool is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStatistics {
    /// Frames taken from the kernel.
    pub held: u64,
    /// Of these, frames that nobody references.
    pub free: u64,
    /// Frames that the pod may hold at most.
    pub limit: u64,
}

struct State {
    /// From region number (frame / 512) to index in `regions`.
    index: Vec<u32>,
    regions: Vec<Region>,
    /// Regions with a free frame; the last one is used first.
    available: Vec<u32>,
    grants: Vec<FrameGrant>,
    borrowed: Vec<FrameGrant>,
    zero_frame: Option<FrameNumber>,
    held: u64,
    free: u64,
    /// Set aside, with a reference each.
    reserve: Vec<FrameNumber>,
}

struct Region {
    first: u64,
    free_count: u32,
    free: [u64; WORDS],
    slots: [CapSlot; GROUPS],
    counts: Box<[u32; REGION_FRAMES]>,
}

impl FramePool {
    /// An empty pool that will take at most `limit_bytes` from `kernel`.
    #[must_use]
    pub fn new(kernel: Arc<dyn Kernel>, bytes: Arc<dyn FrameBytes>, limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            kernel,
            bytes,
            limit_frames: AtomicU64::new(limit_bytes / PAGE_SIZE),
            limit_frames_max: limit_bytes / PAGE_SIZE,
            attainable_frames: AtomicU64::new(u64::MAX),
            state: Mutex::new(State {
                index: Vec::new(),
                regions: Vec::new(),
                available: Vec::new(),
                grants: Vec::new(),
                borrowed: Vec::new(),
                zero_frame: None,
                reserve: Vec::new(),
                held: 0,
                free: 0,
            }),
            reclaimer: Mutex::new(None),
            urgent_count: AtomicU32::new(0),
            taken_count: AtomicU64::new(0),
        })
    }

    /// Sets the cache that is asked before there is `ENOMEM`.
    pub fn set_reclaimer(&self, reclaimer: Weak<dyn Reclaim>) {
        *self.reclaimer.lock() = Some(reclaimer);
    }

    /// The kernel that the pool takes from.
    #[must_use]
    pub fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.kernel
    }

    /// The bytes of the frames.
    #[must_use]
    pub fn bytes(&self) -> &Arc<dyn FrameBytes> {
        &self.bytes
    }

    /// Makes frames known that are not the pool's: readable, mappable through `grant.slot`, never
    /// written or freed (the boot bundle).
    pub fn add_borrowed(&self, grant: FrameGrant) {
        self.state.lock().borrowed.push(grant);
    }

    /// A frame with unknown contents and one reference. `ENOMEM` at the limit or when the kernel has none.
    pub fn allocate(&self) -> Result<FrameNumber> {
        let mut frame = [FrameNumber(0)];
        self.allocate_many(&mut frame)?;
        Ok(frame[0])
    }

    /// A frame of zeros with one reference.
    pub fn allocate_zeroed(&self) -> Result<FrameNumber> {
        let frame = self.allocate()?;
        self.bytes.zero(frame, 1);
        Ok(frame)
    }

    /// A frame with the bytes of `from` and one reference.
    pub fn allocate_copy(&self, from: FrameNumber) -> Result<FrameNumber> {
        let frame = self.allocate()?;
        if Some(from) == self.state.lock().zero_frame {
            self.bytes.zero(frame, 1);
        } else {
            self.bytes.copy(from, frame);
        }
        Ok(frame)
    }

    /// Up to `into.len()` frames of unknown contents at once, each with one reference: how many
    /// came. At least one, or `ENOMEM`.
    pub fn allocate_many(&self, into: &mut [FrameNumber]) -> Result<usize> {
        match self.take_many(into) {
            Err(_) if self.reclaim(RECLAIM_FRAMES.max(into.len() as u64)) > 0 => self.take_many(into),
            Err(error) if self.urgent_count.load(Ordering::Relaxed) > 0 => {
                let frame = self.state.lock().reserve.pop().ok_or(error)?;
                *into.first_mut().ok_or(error)? = frame;
                Ok(1)
            }
            Err(error) => {
                self.kernel.note_shortage();
                Err(error)
            }
            taken => taken,
        }
    }

    fn take_many(&self, into: &mut [FrameNumber]) -> Result<usize> {
        let mut state = self.state.lock();
        let mut count = 0;
        while count < into.len() {
            if state.available.is_empty() {
                match self.grow(&mut state) {
                    Ok(()) => {}
                    Err(_) if count > 0 => return Ok(count),
                    Err(error) => return Err(error),
                }
            }
            count += state.take_some(&mut into[count..]);
        }
        Ok(count)
    }

    /// A frame of zeros with one reference, as a handle.
    pub fn allocate_ref(self: &Arc<Self>) -> Result<FrameRef> {
        let frame = self.allocate_zeroed()?;
        Ok(FrameRef { pool: Arc::clone(self), frame })
    }

    /// Takes over one reference to `frame`, which the caller holds, as a handle. Borrowed frames
    /// have any number of them.
    #[must_use]
    pub fn adopt(self: &Arc<Self>, frame: FrameNumber) -> FrameRef {
        FrameRef { pool: Arc::clone(self), frame }
    }

    /// The frame of zeros that is mapped for reads of untouched memory. Never to be written.
    pub fn zero_frame(&self) -> Result<FrameNumber> {
        if let Some(frame) = self.state.lock().zero_frame {
            return Ok(frame);
        }
        let frame = self.allocate_zeroed()?;
        let mut state = self.state.lock();
        if let Some(earlier) = state.zero_frame {
            state.release(frame);
            return Ok(earlier);
        }
        state.zero_frame = Some(frame);
        *state.count_mut(frame).expect("INV-4: the pool's own frame") = PINNED;
        Ok(frame)
    }

    /// Whether `frame` is the frame of zeros.
    #[must_use]
    pub fn is_zero_frame(&self, frame: FrameNumber) -> bool {
        self.state.lock().zero_frame == Some(frame)
    }

    /// One more reference to `frame`.
    pub fn retain(&self, frame: FrameNumber) {
        self.state.lock().retain(frame);
    }

    /// One reference less; the last one frees. Nothing may map the frame in the name of the reference that ends.
    pub fn release(&self, frame: FrameNumber) {
        self.state.lock().release(frame);
    }

    /// One reference less for each.
    pub fn release_all(&self, frames: &[FrameNumber]) {
        let mut state = self.state.lock();
        frames.iter().for_each(|&frame| state.release(frame));
    }

    /// The same by runs.
    pub(crate) fn release_runs(&self, runs: &[FrameRun]) {
        let mut state = self.state.lock();
        runs.iter().for_each(|&run| state.release_run(run));
    }

    /// The first of the frames of a whole region, with unknown contents and one reference each, all of one capability;
    /// `None` if there is none at hand and the kernel has none.
    pub(crate) fn allocate_block(&self) -> Option<FrameNumber> {
        let mut state = self.state.lock();
        if let Some(first) = state.take_block() {
            return Some(first);
        }
        if state.held + LARGE_PAGE_FRAMES > self.limits().0 {
            return None;
        }
        let grant = self.kernel.allocate_frames(LARGE_PAGE_FRAMES, LARGE_PAGE_FRAMES.trailing_zeros()).ok()?;
        self.accept(&mut state, grant).ok()?;
        state.take_block()
    }

    /// References to `frame`; `u32::MAX` for a frame that is never freed or not the pool's.
    #[must_use]
    pub fn reference_count(&self, frame: FrameNumber) -> u32 {
        self.state.lock().count(frame).unwrap_or(PINNED)
    }

    /// Whether the frame is read-only for everybody: of the boot bundle, or the zero frame.
    #[must_use]
    pub fn is_immutable(&self, frame: FrameNumber) -> bool {
        self.reference_count(frame) == PINNED
    }

    /// The capability through which `frame` is mapped; slot 0 for a frame that the pool does not know.
    #[must_use]
    pub fn slot_of(&self, frame: FrameNumber) -> CapSlot {
        self.state.lock().slot_of(frame)
    }

    /// The counts, for a caller that goes through many frames. Nothing else may be asked of the pool meanwhile, and no
    /// [`FrameRef`] dropped.
    pub(crate) fn lock(&self) -> FrameCounts<'_> {
        FrameCounts { state: self.state.lock(), recent: Cell::new((u64::MAX, NO_REGION)) }
    }

    /// How the pool is filled.
    #[must_use]
    pub fn statistics(&self) -> FrameStatistics {
        let (limit, _) = self.limits();
        let state = self.state.lock();
        FrameStatistics { held: state.held, free: state.free, limit }
    }

    /// Takes one more grant: a whole region, or what is left; a part where the limit is little.
    fn grow(&self, state: &mut State) -> Result<()> {
        let (limit, _) = self.limits();
        self.note_attainable(state);
        let is_small = limit < 2 * REGION_FRAMES as u64;
        let mut count = if is_small { GROUP_FRAMES } else { REGION_FRAMES } as u64;
        while is_small && count < limit / GROWTH_SHARE {
            count *= 2;
        }
        while count > limit.saturating_sub(state.held) {
            count /= 2;
        }
        while count >= GROUP_FRAMES as u64 {
            if let Ok(grant) = self.kernel.allocate_frames(count, count.trailing_zeros()) {
                return self.accept(state, grant);
            }
            count /= 2;
        }
        Err(Errno::ENOMEM)
    }

    fn accept(&self, state: &mut State, grant: FrameGrant) -> Result<()> {
        let number = grant.first.0 / LARGE_PAGE_FRAMES;
        let is_known = number < REGION_NUMBER_MAX && state.make_room(number as usize).is_ok();
        if !is_known || self.bytes.attach(grant).is_err() {
            // A grant that cannot be used is worth nothing; if the kernel does not take it back, it stays its.
            let _ = self.kernel.free_frames(grant);
            return Err(Errno::ENOMEM);
        }
        state.add(grant);
        Ok(())
    }
}

impl State {
    /// Room for one more grant, in region `number`. `ENOMEM`.
    fn make_room(&mut self, number: usize) -> Result<()> {
        let missing = (number + 1).saturating_sub(self.index.len());
        reserve::reserve(&mut self.index, missing)?;
        reserve::reserve(&mut self.regions, 1)?;
        reserve::reserve(&mut self.available, self.regions.len() + 1)?;
        reserve::reserve(&mut self.grants, 1)
    }

    fn add(&mut self, grant: FrameGrant) {
        let number = (grant.first.0 / LARGE_PAGE_FRAMES) as usize;
        if self.index.len() <= number {
            self.index.resize(number + 1, NO_REGION);
        }
        if self.index[number] == NO_REGION {
            self.index[number] = self.regions.len() as u32;
            self.regions.push(Region {
                first: number as u64 * LARGE_PAGE_FRAMES,
                free_count: 0,
                free: [0; WORDS],
                slots: [SLOT_NONE; GROUPS],
                counts: Box::new([0; REGION_FRAMES]),
            });
        }
        let region_index = self.index[number];
        let region = &mut self.regions[region_index as usize];
        let was_full = region.free_count == 0;
        let offset = (grant.first.0 - region.first) as usize;
        for place in offset..offset + grant.count as usize {
            region.free[place / 64] |= 1 << (place % 64);
            region.slots[place / GROUP_FRAMES] = grant.slot;
        }
        region.free_count += grant.count as u32;
        if was_full {
            self.available.push(region_index);
        }
        self.held += grant.count;
        self.free += grant.count;
        self.grants.push(grant);
    }

    /// Undoes `add` for a grant whose frames are all free. Its region stays, without these frames.
    fn forget(&mut self, grant: FrameGrant) {
        let region_index = self.index[(grant.first.0 / LARGE_PAGE_FRAMES) as usize];
        let region = &mut self.regions[region_index as usize];
        let offset = (grant.first.0 - region.first) as usize;
        for place in offset..offset + grant.count as usize {
            region.free[place / 64] &= !(1 << (place % 64));
            region.slots[place / GROUP_FRAMES] = SLOT_NONE;
        }
        region.free_count -= grant.count as u32;
        if region.free_count == 0 {
            self.available.retain(|&other| other != region_index);
        }
        self.held -= grant.count;
        self.free -= grant.count;
    }

    fn is_grant_free(&self, grant: FrameGrant) -> bool {
        let frames = grant.first.0..grant.first.0 + grant.count;
        frames.into_iter().all(|frame| self.count(FrameNumber(frame)) == Some(0))
    }

    /// Has a frame neither free nor counted any more; itself, if it was in use.
    fn take_away(&mut self, frame: FrameNumber) -> Option<FrameNumber> {
        let (region_index, place) = self.locate(frame)?;
        self.held -= 1;
        let region = &mut self.regions[region_index as usize];
        region.counts[place] = PINNED;
        if region.free[place / 64] & 1 << (place % 64) == 0 {
            return Some(frame);
        }
        region.free[place / 64] &= !(1 << (place % 64));
        region.free_count -= 1;
        self.free -= 1;
        if region.free_count == 0 {
            self.available.retain(|&other| other != region_index);
        }
        None
    }

    /// Frames of a grant that somebody references.
    fn used_count(&self, grant: FrameGrant) -> u32 {
        let Some((region_index, place)) = self.locate(grant.first) else { return 0 };
        let region = &self.regions[region_index as usize];
        let places = place..place + grant.count as usize;
        let is_used = |place: &usize| region.free[place / 64] & 1 << (place % 64) == 0;
        places.filter(is_used).count() as u32
    }

    /// The lowest free frames of the region in use, ascending, as far as one word of its bits goes: how many, at least
    /// one. A region is `available` exactly while it has a free frame.
    fn take_some(&mut self, into: &mut [FrameNumber]) -> usize {
        let region_index = *self.available.last().expect("INV: grown before taking");
        let region = &mut self.regions[region_index as usize];
        let word = region.free.iter().position(|&word| word != 0);
        let word = word.expect("INV: an available region has a free frame");
        let mut bits = region.free[word];
        let count = into.len().min(bits.count_ones() as usize);
        for frame in &mut into[..count] {
            let place = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            region.counts[place] = 1;
            *frame = FrameNumber(region.first + place as u64);
        }
        region.free[word] = bits;
        region.free_count -= count as u32;
        self.free -= count as u64;
        if region.free_count == 0 {
            self.available.pop();
        }
        count
    }

    /// The first frame of a region that is all free and of one grant, all of which are taken.
    fn take_block(&mut self) -> Option<FrameNumber> {
        let is_whole = |index: &u32| {
            let region = &self.regions[*index as usize];
            region.free_count == REGION_FRAMES as u32 && region.slots.iter().all(|slot| *slot == region.slots[0])
        };
        let place = self.available.iter().rev().take(BLOCK_LOOK_COUNT).position(is_whole)?;
        let index = self.available.remove(self.available.len() - 1 - place);
        let region = &mut self.regions[index as usize];
        region.counts.fill(1);
        (region.free, region.free_count) = ([0; WORDS], 0);
        self.free -= LARGE_PAGE_FRAMES;
        Some(FrameNumber(region.first))
    }

    /// One reference less for each frame of a run.
    fn release_run(&mut self, run: FrameRun) {
        if run.count == 1 {
            return self.release(FrameNumber(run.first));
        }
        let (mut frame, end) = (run.first, run.first + u64::from(run.count));
        while frame < end {
            let next = end.min((frame / LARGE_PAGE_FRAMES + 1) * LARGE_PAGE_FRAMES);
            let number = usize::try_from(frame / LARGE_PAGE_FRAMES).unwrap_or(usize::MAX);
            if let Some(&index) = self.index.get(number)
                && let Some(region) = self.regions.get_mut(index as usize)
            {
                let first = region.first;
                let freed = region.release((frame - first) as usize..(next - first) as usize);
                let was_full = region.free_count == 0;
                region.free_count += freed;
                self.free += u64::from(freed);
                if was_full && freed > 0 {
                    self.available.push(index);
                }
            }
            frame = next;
        }
    }

    fn retain(&mut self, frame: FrameNumber) {
        if let Some(count) = self.count_mut(frame)
            && *count != PINNED
        {
            assert!(*count > 0, "retain of a free frame {frame:?}");
            *count += 1;
        }
    }

    #[inline(always)]
    fn release(&mut self, frame: FrameNumber) {
        let Some((region_index, place)) = self.locate(frame) else {
            return;
        };
        let region = &mut self.regions[region_index as usize];
        let count = &mut region.counts[place];
        if *count == PINNED {
            return;
        }
        assert!(*count > 0, "release of a free frame {frame:?}");
        *count -= 1;
        if *count > 0 {
            return;
        }
        region.free[place / 64] |= 1 << (place % 64);
        region.free_count += 1;
        self.free += 1;
        if region.free_count == 1 {
            self.available.push(region_index);
        }
    }

    fn locate(&self, frame: FrameNumber) -> Option<(u32, usize)> {
        let number = usize::try_from(frame.0 / LARGE_PAGE_FRAMES).ok()?;
        let region_index = *self.index.get(number)?;
        let place = (frame.0 % LARGE_PAGE_FRAMES) as usize;
        let region = self.regions.get(region_index as usize)?;
        (region.slots[place / GROUP_FRAMES] != SLOT_NONE).then_some((region_index, place))
    }

    fn count(&self, frame: FrameNumber) -> Option<u32> {
        let (region_index, place) = self.locate(frame)?;
        Some(self.regions[region_index as usize].counts[place])
    }

    fn count_mut(&mut self, frame: FrameNumber) -> Option<&mut u32> {
        let (region_index, place) = self.locate(frame)?;
        Some(&mut self.regions[region_index as usize].counts[place])
    }

    fn slot_of(&self, frame: FrameNumber) -> CapSlot {
        if let Some((region_index, place)) = self.locate(frame) {
            return self.regions[region_index as usize].slots[place / GROUP_FRAMES];
        }
        self.borrowed_slot(frame)
    }

    fn borrowed_slot(&self, frame: FrameNumber) -> CapSlot {
        let holds = |grant: &&FrameGrant| (grant.first.0..grant.first.0 + grant.count).contains(&frame.0);
        self.borrowed.iter().find(holds).map_or(SLOT_NONE, |grant| grant.slot)
    }
}

impl Region {
    /// One reference less for each frame; how many are free now.
    fn release(&mut self, places: Range<usize>) -> u32 {
        if places.len() == REGION_FRAMES && self.counts.iter().all(|count| *count == 1) {
            self.counts.fill(0);
            self.free = [u64::MAX; WORDS];
            return REGION_FRAMES as u32;
        }
        let mut freed = 0;
        let start = places.start;
        for (place, count) in (start..).zip(&mut self.counts[places]) {
            match *count {
                1 => {
                    *count = 0;
                    self.free[place / 64] |= 1 << (place % 64);
                    freed += 1;
                }
                PINNED => {}
                _ if self.slots[place / GROUP_FRAMES] == SLOT_NONE => {}
                0 => panic!("release of a free frame {}", self.first + place as u64),
                _ => *count -= 1,
            }
        }
        freed
    }
}

/// The references to the pool's frames, behind its lock.
pub(crate) struct FrameCounts<'a> {
    state: MutexGuard<'a, State>,
    /// Number and index of the region that was looked at last.
    recent: Cell<(u64, u32)>,
}

impl FrameCounts<'_> {
    /// See [`FramePool::retain`].
    pub(crate) fn retain(&mut self, frame: FrameNumber) {
        self.state.retain(frame);
    }

    /// See [`FramePool::release`].
    pub(crate) fn release(&mut self, frame: FrameNumber) {
        self.state.release(frame);
    }

    /// See [`FramePool::release_runs`].
    pub(crate) fn release_run(&mut self, run: FrameRun) {
        self.state.release_run(run);
    }

    /// Whether each frame of a region from `first` on has one reference.
    pub(crate) fn is_block_exclusive(&self, first: FrameNumber) -> bool {
        let region = self.region_of(first).filter(|(_, place)| *place == 0);
        region.is_some_and(|(region, _)| region.counts.iter().all(|count| *count == 1))
    }

    /// See [`FramePool::reference_count`].
    #[inline]
    pub(crate) fn reference_count(&self, frame: FrameNumber) -> u32 {
        self.region_of(frame).map_or(PINNED, |(region, place)| region.counts[place])
    }

    /// See [`FramePool::slot_of`].
    #[inline]
    pub(crate) fn slot_of(&self, frame: FrameNumber) -> CapSlot {
        match self.region_of(frame) {
            Some((region, place)) => region.slots[place / GROUP_FRAMES],
            None => self.state.borrowed_slot(frame),
        }
    }

    /// The capability of frames that are not the pool's and that nobody writes; `None`: not all are such frames of one.
    pub(crate) fn borrowed_slot(&self, run: FixedRun) -> Option<CapSlot> {
        let FixedRun { first, count } = run;
        let holds = |grant: &&FrameGrant| {
            first.0 >= grant.first.0 && first.0.saturating_add(count) <= grant.first.0 + grant.count
        };
        self.state.borrowed.iter().find(holds).map(|grant| grant.slot)
    }

    /// The region that a frame of the pool is in, and where. Most frames lie near the one before.
    #[inline]
    fn region_of(&self, frame: FrameNumber) -> Option<(&Region, usize)> {
        let number = frame.0 / LARGE_PAGE_FRAMES;
        let (recent, mut index) = self.recent.get();
        if number != recent {
            index = *self.state.index.get(usize::try_from(number).ok()?)?;
            self.recent.set((number, index));
        }
        let region = self.state.regions.get(index as usize)?;
        let place = (frame.0 % LARGE_PAGE_FRAMES) as usize;
        (region.slots[place / GROUP_FRAMES] != SLOT_NONE).then_some((region, place))
    }
}

/// One reference to a frame, released when dropped; `clone` makes another.
pub struct FrameRef {
    pool: Arc<FramePool>,
    frame: FrameNumber,
}

impl FrameRef {
    /// The frame.
    #[must_use]
    pub fn frame(&self) -> FrameNumber {
        self.frame
    }

    /// The pool that counts it.
    #[must_use]
    pub fn pool(&self) -> &Arc<FramePool> {
        &self.pool
    }

    /// Gives up the handle and keeps the reference: the caller releases it.
    #[must_use]
    pub fn into_frame(mut self) -> FrameNumber {
        core::mem::replace(&mut self.frame, GIVEN_UP)
    }
}

impl Clone for FrameRef {
    fn clone(&self) -> Self {
        self.pool.retain(self.frame);
        Self { pool: Arc::clone(&self.pool), frame: self.frame }
    }
}

impl Drop for FrameRef {
    fn drop(&mut self) {
        if self.frame != GIVEN_UP {
            self.pool.release(self.frame);
        }
    }
}

impl core::fmt::Debug for FrameRef {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("FrameRef").field(&self.frame.0).finish()
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
