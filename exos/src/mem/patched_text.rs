//! Patched pages of text that all processes of a pod share.
//!
//! A process that has rewritten a site offers the page with its jumps ([`AddressSpace::offer_rewrites`]); another that
//! first fetches from the same page of the same file gets that instead of the file's, with the trampolines that it
//! needs ([`AddressSpace::take_offer`]). So a site is decoded, proven and patched once, traps in the first process that
//! runs it only, and costs one page for all.
//!
//! Positions: patched text and trampolines have only distances in them. An offer is kept in addresses from the place of
//! the file's first byte on, so it fits wherever the file is mapped, as long as the page of the trampolines is free
//! there or has these very trampolines already. Where something else lies, the process has the file's page, and patches
//! that for itself when its sites are hot.
//!
//! Truth: an offer is found by the frame of the file's page, and taken only if that frame still says what was patched,
//! but for the jumps; a page that nobody can write, as those of the boot bundle, was compared when it was offered. It
//! is taken only for the first touch of a page that nobody can write, so what ADR 0012 promises of pages that become
//! writable holds as it does for a process's own patches: those are private copies, too. It is never taken for a load:
//! a program that reads text without executing it, as valgrind does with its client's, translates it, and a trampoline
//! is nothing that can be translated.
//!
//! Limits: [`OFFER_COUNT_MAX`] pages, and one in [`OFFER_SHARE`] of the pod's frames; further pages are patched by each
//! process for itself.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use aegis_abi::FrameNumber;
use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};

use crate::mem::area::{Area, Protection};
use crate::mem::frames::{FixedRun, FramePool};
use crate::rewrite::plan::{JUMP_BYTES, Plan};
use crate::rewrite::trampoline::{Site, TRAMPOLINE_BYTES_MAX};
use crate::sync::Mutex;

mod in_space;

/// Most pages that are offered.
const OFFER_COUNT_MAX: usize = 1024;
/// One in so many frames of the pod may be of offers.
const OFFER_SHARE: u64 = 256;
/// Rights of text, and of trampolines.
pub(crate) const TEXT_RIGHTS: Protection = Protection::READ.union(Protection::EXECUTE);

/// A patched page; addresses count from the place of the file's first byte. It has a reference to each frame.
#[derive(Clone)]
struct Offer {
    patched: FrameNumber,
    sites: Vec<Site>,
    /// Pages with trampolines: place, frame.
    trampolines: Vec<(u64, FrameNumber)>,
    /// Nobody can write to the file's page: what was compared once stays the same.
    is_original_fixed: bool,
}

/// What is offered in a pod, by the frame of the file's page, to which there is a reference as well.
#[derive(Default)]
pub struct PatchedText {
    offers: Mutex<BTreeMap<u64, Arc<Offer>>>,
    /// How many there have been.
    count: AtomicUsize,
    taken_count: AtomicU64,
}

impl PatchedText {
    /// Sites that processes got with a page, without a trap.
    #[must_use]
    pub fn taken_count(&self) -> u64 {
        self.taken_count.load(Ordering::Relaxed)
    }

    /// Counts sites that a process got with pages that were mapped for it already.
    pub(crate) fn note_taken(&self, site_count: usize) {
        self.taken_count.fetch_add(site_count as u64, Ordering::Relaxed);
    }

    /// Pages that have been offered patched, counted up with each.
    pub(crate) fn offer_count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The offer for a page of a file. Its frames are retained: the caller releases them.
    fn find(&self, pool: &FramePool, original: FrameNumber) -> Option<Arc<Offer>> {
        let offers = self.offers.lock();
        let offer = offers.get(&original.0)?;
        offer.frames().for_each(|frame| pool.retain(frame));
        Some(Arc::clone(offer))
    }

    /// Whether the page of this frame is offered.
    fn has(&self, original: FrameNumber) -> bool {
        self.count.load(Ordering::Acquire) != 0 && self.offers.lock().contains_key(&original.0)
    }

    /// Which of a run's pages are offered, a bit each from its first on; no more than 64 are looked at.
    pub(crate) fn offered_of(&self, run: FixedRun) -> u64 {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let frames = run.first.0..run.first.0 + run.count.min(64);
        self.offers.lock().range(frames.clone()).fold(0, |bits, (frame, _)| bits | 1 << (frame - frames.start))
    }

    /// Whether a page of a file is offered patched as it is in `patched`, with all its trampolines where `has_page`
    /// finds them: it gets the place of each page of trampolines, from the file's first byte on, and its frame.
    pub(crate) fn is_whole(
        &self,
        original: FrameNumber,
        patched: FrameNumber,
        mut has_page: impl FnMut(u64, FrameNumber) -> bool,
    ) -> bool {
        let offers = self.offers.lock();
        let offer = offers.get(&original.0).filter(|offer| offer.patched == patched);
        offer.is_some_and(|offer| offer.trampolines.iter().all(|(place, frame)| has_page(*place, *frame)))
    }

    /// Offers nothing any more that has frames which were taken by force.
    pub(crate) fn forget(&self, pool: &FramePool, is_taken: impl Fn(FrameNumber) -> bool) {
        let is_gone =
            |original: &u64, offer: &mut Arc<Offer>| is_taken(FrameNumber(*original)) || offer.frames().any(&is_taken);
        let gone: Vec<(u64, Arc<Offer>)> = self.offers.lock().extract_if(.., is_gone).collect();
        for (original, offer) in gone {
            offer.frames().for_each(|frame| pool.release(frame));
            pool.release(FrameNumber(original));
        }
    }

    /// Has every offer use `better` in place of `before`, of which it has all trampolines: files that lie beside each
    /// other share a page of trampolines, and the next process that maps them need not compare again.
    fn prefer(&self, pool: &FramePool, better: FrameNumber, before: FrameNumber) {
        for offer in self.offers.lock().values_mut() {
            let frames = offer.trampolines.iter();
            if frames.clone().all(|(_, frame)| *frame != before) {
                continue;
            }
            for (_, frame) in Arc::make_mut(offer).trampolines.iter_mut().filter(|(_, frame)| *frame == before) {
                pool.retain(better);
                pool.release(core::mem::replace(frame, better));
            }
        }
    }

    /// Takes an offer on, with the references that it has and one to `original`; or gives them back.
    fn put(&self, pool: &FramePool, original: FrameNumber, offer: Offer) {
        let count_max = OFFER_COUNT_MAX.min((pool.statistics().limit / OFFER_SHARE) as usize);
        let gone = {
            let mut offers = self.offers.lock();
            if offers.len() >= count_max && !offers.contains_key(&original.0) {
                Some(Arc::new(offer))
            } else {
                // A process that uses one just now goes on with it as it was, and has references to its frames.
                offers.values_mut().for_each(|other| Arc::make_mut(other).take_trampolines_of(pool, &offer));
                let before = offers.insert(original.0, Arc::new(offer));
                self.count.fetch_add(usize::from(before.is_none()), Ordering::Release);
                before
            }
        };
        if let Some(gone) = gone {
            gone.frames().for_each(|frame| pool.release(frame));
            pool.release(original);
        }
    }
}

impl Offer {
    /// Uses the trampoline pages of `newer` where they are at the same place and hold all that this offer needs: so
    /// that one page of trampolines fits for all pages of text that a process patched.
    fn take_trampolines_of(&mut self, pool: &FramePool, newer: &Self) {
        let Self { trampolines, sites, .. } = self;
        for (place, frame) in trampolines {
            let same_place =
                newer.trampolines.iter().find(|(other, other_frame)| other == place && other_frame != frame);
            if let Some((_, better)) = same_place.filter(|(_, better)| has_same(pool, (*frame, *better), *place, sites))
            {
                pool.retain(*better);
                pool.release(core::mem::replace(frame, *better));
            }
        }
    }

    fn frames(&self) -> impl Iterator<Item = FrameNumber> {
        core::iter::once(self.patched).chain(self.trampolines.iter().map(|(_, frame)| *frame))
    }
}

/// A site, moved by `distance`.
fn moved(site: &Site, distance: u64) -> Site {
    let to = |address: u64| address.wrapping_add(distance);
    let Plan { jump, syscall, end, starts } = site.plan;
    let plan = Plan { jump: to(jump), syscall: to(syscall), end: to(end), starts };
    Site { plan, trampoline: to(site.trampoline) }
}

/// Whether a page of `area` may be a patched one: text that nobody writes to.
pub(crate) fn is_text(area: &Area) -> bool {
    area.protection == TEXT_RIGHTS
}

/// Where the first byte of an area's file is, or would be.
pub(crate) fn base_of(area: &Area) -> Option<u64> {
    let file = area.file().filter(|file| !file.is_shared)?;
    Some(area.start.wrapping_sub(file.first_index << PAGE_SHIFT))
}

/// Whether two frames have the same trampolines for those of `sites` that have theirs in the page at `address`.
fn has_same(pool: &FramePool, frames: (FrameNumber, FrameNumber), address: u64, sites: &[Site]) -> bool {
    let is_same = |site: &Site| {
        let (offset, length) = ((site.trampoline % PAGE_SIZE) as usize, Site::length_bytes(&site.plan) as usize);
        let mut bytes = [[0; TRAMPOLINE_BYTES_MAX as usize]; 2];
        let [first, second] = &mut bytes;
        pool.bytes().read(frames.0, offset, &mut first[..length]);
        pool.bytes().read(frames.1, offset, &mut second[..length]);
        first == second
    };
    sites.iter().filter(|site| site.trampoline >> PAGE_SHIFT == address >> PAGE_SHIFT).all(is_same)
}

/// Whether every trampoline of `before` is in `after`, too.
fn has_all(pool: &FramePool, before: FrameNumber, after: FrameNumber) -> bool {
    const SLOT_BYTES: usize = TRAMPOLINE_BYTES_MAX as usize;
    const PART_BYTES: usize = SLOT_BYTES * 8;
    let mut parts = [[0; PART_BYTES]; 2];
    let [old, new] = &mut parts;
    (0..PAGE_SIZE as usize).step_by(PART_BYTES).all(|offset| {
        pool.bytes().read(before, offset, old);
        pool.bytes().read(after, offset, new);
        let slots = old.as_chunks::<SLOT_BYTES>().0.iter().zip(new.as_chunks::<SLOT_BYTES>().0);
        slots.fold(true, |has_all, (old, new)| has_all & is_in_slot(old, new))
    })
}

/// Whether a slot is empty or the same in `new`, by words.
fn is_in_slot(old: &[u8; TRAMPOLINE_BYTES_MAX as usize], new: &[u8; TRAMPOLINE_BYTES_MAX as usize]) -> bool {
    let words = old.as_chunks::<8>().0.iter().zip(new.as_chunks::<8>().0);
    let (any, difference) = words.fold((0, 0), |(any, difference), (old, new)| {
        let (old, new) = (u64::from_ne_bytes(*old), u64::from_ne_bytes(*new));
        (any | old, difference | (old ^ new))
    });
    any == 0 || difference == 0
}

/// Whether the page of an offer is `original` but for the jumps.
fn says_the_same(pool: &FramePool, original: FrameNumber, offer: &Offer) -> bool {
    const PART_BYTES: usize = 512;
    let mut parts = [[0; PART_BYTES]; 2];
    let [before, patched] = &mut parts;
    (0..PAGE_SIZE as usize).step_by(PART_BYTES).all(|start| {
        pool.bytes().read(original, start, before);
        pool.bytes().read(offer.patched, start, patched);
        for site in &offer.sites {
            let jump = (site.plan.jump % PAGE_SIZE) as usize;
            for place in (jump..jump + JUMP_BYTES as usize).filter(|place| (start..start + PART_BYTES).contains(place))
            {
                before[place - start] = patched[place - start];
            }
        }
        let words = before.as_chunks::<8>().0.iter().zip(patched.as_chunks::<8>().0);
        // By words: a comparison of bytes is a call that goes byte by byte.
        words.fold(0, |all, (one, other)| all | (u64::from_ne_bytes(*one) ^ u64::from_ne_bytes(*other))) == 0
    })
}
