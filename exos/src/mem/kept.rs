//! Address spaces between two processes, with the pages that both have.
//!
//! A process that ends or runs another program leaves page tables behind, and the next one needs the same: another run
//! of the program, or the next child of a parent that forks again and again. Making them anew is half of what a start
//! costs. So a space is kept with its tables, and what its tables map of files that nobody can write stays mapped:
//! pages of the boot bundle and patched copies of them ([`super::patched_text`]) or, for a child, any that its parent
//! has, too; read-only, in areas that nobody may write to. All else is unmapped, and its frames are released.
//!
//! What stays is only a guess at what the next process maps, so the process that takes the space compares before any of
//! it can be reached: of a program that was loaded, an area has to be where it was, with the same rights, and its file
//! has to name the same frames ([`AddressSpace::adopt_start`]); of a child, its parent has to know the same frame at
//! the page ([`AddressSpace::adopt_child`]). What differs is unmapped first. A program that lies elsewhere in each run
//! keeps nothing of itself, only of its interpreter.
//!
//! Runs of a program mostly leave what they found. So once one has left the same as the one before, the next keeps its
//! note of what it took over, with references of its own, by which none of these pages changes in place; if all of it
//! is there at the end as it was ([`AddressSpace::leave_as_taken`]), it is left again without a look at what else could
//! be. Now and then ([`UNSEEN_COUNT_MAX`]) somebody looks.
//!
//! Invariant: a page that stays mapped after its process is known to the [`Residue`], which has a reference to its
//! frame.
//!
//! Limits: [`SPACE_COUNT_MAX`] spaces, of each the first [`PART_COUNT_MAX`] areas, [`OWNED_COUNT_MAX`] private pages.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PROGRAM_END};
use aegis_abi::{CapSlot, FrameNumber, Status};

use crate::error::{Errno, Result};
use crate::mem::area::{Area, AreaLabel, Protection};
use crate::mem::area_list::AreaList;
use crate::mem::binder::Binder;
use crate::mem::first_faults::FirstFaults;
use crate::mem::frames::{FrameCounts, FramePool};
use crate::mem::large::Whole;
use crate::mem::page_map::{KeptLeaf, LeafLook, PageEntry, PageFlags};
use crate::mem::patched_text::{TEXT_RIGHTS, base_of};
use crate::mem::pieces::PIECE_PAGES;
use crate::mem::source::{FileIdentity, FixedRun};
use crate::mem::space::{AddressSpace, MapRequest, Placement, SpaceLimits};
use crate::preempt;
use crate::rewrite::sites::SiteTable;
use crate::sync::Mutex;

/// Most spaces that are kept. A process that forks, whose child executes a program, uses two.
const SPACE_COUNT_MAX: usize = 12;
/// With so many kept, a process that none of them is for gets the oldest rather than a new one.
const SPACE_COUNT_ENOUGH: usize = 6;
/// Private pages that stay mapped in a space, with a reference to each: so that no process leaves memory behind that
/// nobody uses.
pub(super) const OWNED_COUNT_MAX: usize = 128;
/// Areas of which pages stay mapped.
const PART_COUNT_MAX: usize = 64;
/// Processes, one after the other, that leave the same pages without a look at others.
const UNSEEN_COUNT_MAX: u32 = 31;

/// The process that a space is kept for.
#[derive(Clone)]
pub(crate) enum Next {
    /// A run of this program.
    Start(FileIdentity),
    /// A child of the process whose children have these faults.
    Child(Arc<Mutex<FirstFaults>>),
}

impl Next {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Start(one), Self::Start(other)) => one == other,
            (Self::Child(one), Self::Child(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// An area of which pages stay.
struct Part {
    area: Range<u64>,
    protection: Protection,
    /// Its pages that may stay.
    pages: Range<u64>,
    /// The frame of the first; `None`: the area holds trampolines.
    first: Option<FrameNumber>,
    /// Where the first byte of its file is, or would be.
    base: u64,
    /// Patched pages or trampolines are among what stays.
    has_patches: bool,
}

impl Part {
    /// What may stay of an area.
    fn of(area: &Area) -> Option<Self> {
        let whole = Self {
            area: area.start..area.end,
            protection: area.protection,
            pages: area.pages(),
            first: None,
            base: base_of(area).unwrap_or(0),
            has_patches: false,
        };
        if area.label == AreaLabel::Trampolines {
            return Some(whole);
        }
        let run = run_of(area)?;
        Some(Self { pages: whole.pages.start..whole.pages.start + run.count, first: Some(run.first), ..whole })
    }

    /// Whether it is the same part of the same memory.
    fn is_in(&self, areas: &AreaList) -> bool {
        let Some(first) = self.first else { return areas.is_free(self.area.clone()) };
        let area = areas.find(self.area.start).filter(|area| self.is_like(area));
        area.and_then(run_of).is_some_and(|run| run.first == first && run.count >= self.pages.end - self.pages.start)
    }

    /// Whether an area lies there with the same rights, and nobody shares what is stored to it.
    fn is_like(&self, area: &Area) -> bool {
        (area.start..area.end) == self.area && area.protection == self.protection && !area.is_shared()
    }
}

/// The frames of a private mapping that nobody may write to, from its first page on, if they are the boot bundle's.
fn run_of(area: &Area) -> Option<FixedRun> {
    let file = area.file().filter(|file| !file.is_shared)?;
    if area.protection.is_empty() || area.protection.contains(Protection::WRITE) {
        return None;
    }
    file.source.fixed_run(file.first_index..file.first_index + area.page_count())
}

/// What the page tables of a kept space map.
pub(crate) struct Residue {
    next: Next,
    parts: Vec<Part>,
    leaves: Vec<KeptLeaf>,
    /// The rewritten sites in pages that stay; `None`: patched pages are of no use.
    sites: Option<Arc<SiteTable>>,
    /// With so many patched pages on offer, none of its pages of files is one of them; `None`: nobody has looked.
    offer_count: Option<usize>,
    /// What its leaves are told from others by.
    fingerprint: u64,
    /// How often frames had been taken by force when it was left: of an earlier time, it names some that are gone.
    taken_count: u64,
    /// How many processes may leave it as they found it, without a look at what they could leave beside it: none, until
    /// one has left the same as the one before.
    left_count: u32,
}

/// What a space has to do with the last and the next process of its page tables.
#[derive(Default)]
pub(crate) struct Kept {
    /// The process that it will be kept for.
    next: Option<Next>,
    /// Where the next start maps what this one did.
    reach: [Range<u64>; 2],
    /// What its page tables map beside the pages that are known.
    residue: Option<Box<Residue>>,
    /// What was taken over of what they mapped, which was all: with references of its own, so that none of it changes
    /// in place. A process that leaves it as it was passes it on again.
    taken: Option<Box<Residue>>,
    /// Its fingerprint, whatever became of it.
    taken_fingerprint: Option<u64>,
}

struct KeptSpace {
    slot: CapSlot,
    residue: Option<Box<Residue>>,
}

/// Spaces that are nobody's, the one that was used last at the end.
#[derive(Default)]
pub(crate) struct KeptSpaces {
    spaces: Mutex<Vec<KeptSpace>>,
}

impl KeptSpaces {
    fn take(&self, wanted: Option<&Next>) -> Option<KeptSpace> {
        let mut spaces = self.spaces.lock();
        let is_wanted = |space: &KeptSpace| {
            let next = space.residue.as_ref().map(|residue| &residue.next);
            next.zip(wanted).is_some_and(|(next, wanted)| next.is(wanted))
        };
        let place = spaces
            .iter()
            .rposition(is_wanted)
            .or_else(|| spaces.iter().rposition(|space| space.residue.is_none()))
            .or_else(|| (spaces.len() >= SPACE_COUNT_ENOUGH).then_some(0))?;
        Some(spaces.remove(place))
    }

    /// Keeps a space; answers the oldest if there are too many.
    fn put(&self, space: KeptSpace) -> Option<KeptSpace> {
        let mut spaces = self.spaces.lock();
        if spaces.capacity() == spaces.len() && spaces.try_reserve(SPACE_COUNT_MAX).is_err() {
            return Some(space);
        }
        spaces.push(space);
        (spaces.len() > SPACE_COUNT_MAX).then(|| spaces.remove(0))
    }
}

impl FramePool {
    /// Ends a kept space, and gives back what it has.
    fn end_kept(&self, space: KeptSpace) {
        // Nobody runs in it, so it cannot be busy for long; if it is, its mappings stay until it is ended later.
        let ended = self.kernel().destroy_space(space.slot);
        let Some(residue) = space.residue else { return };
        match ended {
            Ok(()) => residue.leaves.into_iter().for_each(|leaf| leaf.into_frames(|frame| self.release(frame))),
            // The frames are never free again, which is better than free and mapped.
            Err(_) => core::mem::forget(residue),
        }
    }

    /// Spaces that are kept.
    #[must_use]
    pub fn kept_space_count(&self) -> usize {
        self.kept_spaces().spaces.lock().len()
    }

    /// Ends all kept spaces, so that none of them maps a frame that the pod does not have any more.
    pub fn end_kept_spaces(&self) {
        loop {
            let space = self.kept_spaces().spaces.lock().pop();
            match space {
                Some(space) => self.end_kept(space),
                None => return,
            }
        }
    }
}

impl AddressSpace {
    /// An empty space of its own: one that was kept for a process that runs this program, or another. `ENOMEM`.
    pub fn make(
        pool: &Arc<FramePool>,
        mapping_base: u64,
        limits: SpaceLimits,
        program: Option<FileIdentity>,
    ) -> Result<Self> {
        let wanted = program.map(Next::Start);
        let (slot, residue) = take_space(pool, wanted.as_ref())?;
        let mut space = Self::new(pool.clone(), slot, mapping_base, limits);
        let is_wanted = residue.as_ref().zip(wanted.as_ref()).is_some_and(|(residue, next)| residue.next.is(next));
        space.kept.residue = residue;
        if !is_wanted {
            space.drop_residue();
            if let Err(error) = space.flush() {
                drop(space);
                let _ = pool.kernel().destroy_space(slot);
                return Err(error);
            }
        }
        Ok(space)
    }

    /// A copy of this space by copy on write, in a space of its own. As [`Self::clone_cow`].
    pub fn fork(&mut self) -> Result<Self> {
        let next = Next::Child(self.child_faults.clone());
        let (slot, mut residue) = take_space(&self.pool, Some(&next))?;
        let copy = self.clone_into(slot, &mut residue);
        if copy.is_err() {
            self.pool.end_kept(KeptSpace { slot, residue });
        }
        copy
    }

    /// Says that the next child of the same parent will want this space.
    pub(crate) fn keep_for_child(&mut self, siblings: &Arc<Mutex<FirstFaults>>, residue: Option<Box<Residue>>) {
        self.kept.next = Some(Next::Child(siblings.clone()));
        self.kept.residue = residue;
    }

    /// Says that the next run of a program will want this space, where it maps the same in `reach`.
    pub(crate) fn keep_for_start(&mut self, program: FileIdentity, reach: [Range<u64>; 2]) {
        self.kept.next = Some(Next::Start(program));
        self.kept.reach = reach;
    }

    /// Unmaps everything, so that the page tables can be another process's, but for what [`Self::keep`] keeps with
    /// them; what is known of the other pages stays. False: the kernel refused.
    pub fn unmap_all(&mut self) -> bool {
        self.drop_residue();
        self.settle_large(&(0..PROGRAM_END), Whole::Unmap);
        if self.leave_as_taken() {
            return self.flush().is_ok();
        }
        self.forget_adopted();
        let taken_count = self.pool.taken_count();
        let mut parts = self.parts_to_keep();
        let offered = self.offered_pages(&parts);
        let unmap = unmapper(&mut self.binder);
        let (mut used, mut patched, mut left) = (0, 0, OWNED_COUNT_MAX);
        let keeps = |frames: &FrameCounts<'_>, look: &LeafLook<'_>| {
            let is_good = |page: u64, frame: FrameNumber| match &offered {
                Some(offered) => offered.binary_search(&(page, frame)).is_ok(),
                // Somebody else has it, too: the parent, as a rule.
                None => (2..u32::MAX).contains(&frames.reference_count(frame)),
            };
            let (files, owned) = stays_of(&parts, (&mut used, &mut patched), &is_good, look);
            let rest = left.checked_sub(owned.count_ones() as usize);
            left = rest.unwrap_or(left);
            (files, if rest.is_some() { owned } else { 0 })
        };
        let leaves = self.pages.unmap_others(&mut self.pool.lock(), keeps, unmap);
        for (index, part) in parts.iter_mut().enumerate() {
            part.has_patches = patched >> index & 1 != 0;
        }
        let mut bits = used;
        parts.retain(|_| (bits & 1 != 0, bits >>= 1).0);
        if let Some(next) = self.kept.next.take().filter(|_| !leaves.is_empty()) {
            let sites = match next {
                Next::Start(_) => sites_of(&self.sites, &parts, &leaves),
                Next::Child(_) => None,
            };
            let fingerprint = leaves.iter().fold(parts.len() as u64, |seed, leaf| leaf.mix(seed));
            let is_known = self.kept.taken_fingerprint == Some(fingerprint);
            let left_count = if is_known { UNSEEN_COUNT_MAX } else { 0 };
            let offer_count = None;
            let residue = Residue { next, parts, leaves, sites, offer_count, fingerprint, taken_count, left_count };
            self.kept.residue = Some(Box::new(residue));
        }
        self.flush().is_ok()
    }

    /// [`Self::unmap_all`] where what was taken over is as it was, and nobody has to look what else could stay: all of
    /// it stays. False: that is not so.
    fn leave_as_taken(&mut self) -> bool {
        let Some(mut taken) = self.kept.taken.take_if(|taken| taken.left_count > 0) else { return false };
        if !self.is_as_taken(&taken) {
            self.kept.taken = Some(taken);
            return false;
        }
        taken.left_count -= 1;
        taken.leaves.iter_mut().for_each(KeptLeaf::give_back);
        self.pages.unmap_beside(&taken.leaves, unmapper(&mut self.binder));
        self.kept.next = None;
        self.kept.residue = Some(taken);
        true
    }

    /// Whether all that was taken over is still there as it was, for the next process.
    fn is_as_taken(&self, taken: &Residue) -> bool {
        let has_sites = match taken.next {
            // The same table, or what became of it by patches in what was mapped since: the same jumps to the same
            // trampolines. Another patch of a page that was taken over has another frame.
            Next::Start(_) => taken.sites.as_ref().is_some_and(|sites| self.sites.extends(sites)),
            Next::Child(_) => true,
        };
        let mut areas = self.areas.iter();
        let is_there = |part: &Part| {
            let area = areas.find(|area| area.start >= part.area.start);
            area.is_some_and(|area| {
                part.is_like(area) && (part.first.is_some() || area.label == AreaLabel::Trampolines)
            })
        };
        self.kept.next.as_ref().is_some_and(|next| next.is(&taken.next))
            && taken.taken_count == self.pool.taken_count()
            && has_sites
            && taken.parts.iter().all(is_there)
            && self.pages.shows_all(&taken.leaves)
    }

    /// Lets go of what was noted of what was taken over.
    pub(crate) fn forget_adopted(&mut self) {
        if let Some(taken) = self.kept.taken.take() {
            taken.leaves.into_iter().for_each(|leaf| leaf.into_frames(|frame| self.pool.release(frame)));
        }
    }

    /// Keeps the page tables, of which all is unmapped that was unmapped by [`Self::unmap_all`], for another process.
    /// False: nobody wants them, and the space is to be ended.
    pub fn keep(&mut self) -> bool {
        let is_wanted = self.pool.kernel().keep_space(self.environment, self.pages.table_bound());
        if is_wanted {
            let space = KeptSpace { slot: self.environment, residue: self.kept.residue.take() };
            let spare = self.pool.kept_spaces().put(space);
            if let Some(spare) = spare {
                self.pool.end_kept(spare);
            }
        }
        is_wanted
    }

    /// Releases everything without touching page tables: the address space is gone, and its mappings with it.
    pub fn abandon(&mut self) {
        self.areas = AreaList::new();
        self.forget_adopted();
        if let Some(residue) = self.kept.residue.take() {
            residue.leaves.into_iter().for_each(|leaf| leaf.into_frames(|frame| self.pool.release(frame)));
        }
        let mut left = self.pages.take_leaves();
        loop {
            let mut frames = self.pool.lock();
            if !left.release_some(PIECE_PAGES, |run| frames.release_run(run)) {
                return;
            }
            drop(frames);
            preempt::offer();
        }
    }

    /// Has unmapped what is mapped beside the known pages.
    pub(crate) fn drop_residue(&mut self) {
        if let Some(residue) = self.kept.residue.take() {
            residue.leaves.into_iter().for_each(|leaf| self.drop_kept(leaf));
        }
    }

    /// What can be taken over: nothing that was left before frames in use were taken by force.
    fn take_residue(&mut self) -> Option<Box<Residue>> {
        let taken_count = self.pool.taken_count();
        if self.kept.residue.as_ref().is_some_and(|residue| residue.taken_count != taken_count) {
            self.drop_residue();
        }
        self.kept.residue.take()
    }

    /// After the leaves of a residue were taken over as far as its parts are there: unmaps the rest, and notes what was
    /// taken over if it may be left again as it is.
    fn settle_residue(&mut self, mut residue: Box<Residue>, is_there: &[bool; PART_COUNT_MAX]) {
        self.kept.taken_fingerprint = Some(residue.fingerprint);
        if residue.left_count == 0 {
            residue.leaves.into_iter().for_each(|leaf| self.drop_kept(leaf));
            return;
        }
        let mut is_there = is_there.iter();
        residue.parts.retain(|_| is_there.next().is_some_and(|is_there| *is_there));
        residue.leaves.retain_mut(|leaf| {
            if leaf.taken() != leaf.pages() {
                self.unmap_untaken(leaf);
                let before = leaf.narrow(&mut self.pool.lock());
                before.into_frames(|frame| self.binder.release(frame));
            }
            leaf.pages() != 0
        });
        self.kept.taken = (!residue.leaves.is_empty()).then_some(residue);
    }

    /// The end of a leaf, of which only what was taken over stays mapped.
    fn drop_kept(&mut self, leaf: KeptLeaf) {
        self.unmap_untaken(&leaf);
        leaf.into_frames(|frame| self.binder.release(frame));
    }

    /// Has unmapped the pages of a leaf that were not taken over, unless something else is to be mapped there.
    fn unmap_untaken(&mut self, leaf: &KeptLeaf) {
        let mut rest = leaf.pages() & !leaf.taken() & !self.pages.mapped_of(leaf);
        let first = leaf.first();
        if self.pages.is_empty() {
            // Nothing is between them that could be hit.
            let last = 63 - u64::from(rest.leading_zeros());
            self.binder.unmap_run(first + u64::from(rest.trailing_zeros())..first + last + 1);
            rest = 0;
        }
        while rest != 0 {
            let (start, length) = (rest.trailing_zeros(), (!(rest >> rest.trailing_zeros())).trailing_zeros());
            self.binder.seal();
            self.binder.unmap_run(first + u64::from(start)..first + u64::from(start + length));
            rest &= rest.wrapping_add(1 << start);
            self.binder.seal();
        }
    }

    /// After a program was loaded: takes over what is mapped of it already.
    pub(crate) fn adopt_start(&mut self) {
        let Some(mut residue) = self.take_residue() else { return };
        let Residue { parts, leaves, sites, offer_count, .. } = &mut *residue;
        let before = offer_count.replace(self.pool.patched_text().offer_count());
        let has_new_offers = before != *offer_count;
        let mut is_there = [false; PART_COUNT_MAX];
        parts.iter().zip(&mut is_there).for_each(|(part, is_there)| *is_there = part.is_in(&self.areas));
        // Patched pages are of use with all their trampolines alone. What else the program has made of its memory, by
        // a change of rights, is nothing that the next run has to agree with.
        let is_ready = parts.iter().zip(is_there).all(|(part, is_there)| is_there || !part.has_patches);
        let sites = sites.clone().filter(|_| self.sites.is_empty() && is_ready);
        let sites = sites.filter(|_| self.map_kept_trampolines(parts).is_ok());
        let found = || parts.iter().zip(is_there).filter_map(|(part, is_there)| is_there.then_some(part));
        for leaf in leaves {
            let only_files = sites.is_none();
            let mut wanted = found().fold(0, |bits, part| bits | leaf.within(&part.pages));
            if only_files {
                wanted &= leaf.files();
            }
            if has_new_offers {
                wanted &= !found().fold(0, |bits, part| bits | self.offered_meanwhile(part, leaf));
            }
            self.pages.put_kept(leaf, wanted, &mut self.pool.lock());
        }
        self.settle_residue(residue, &is_there);
        if let Some(sites) = sites {
            self.pool.patched_text().note_taken(sites.site_count());
            self.sites = sites;
        }
    }

    /// Which pages of a leaf that are text of a part as its file has it were patched meanwhile.
    fn offered_meanwhile(&self, part: &Part, leaf: &KeptLeaf) -> u64 {
        let all = leaf.within(&part.pages) & leaf.files();
        let Some(first) = part.first.filter(|_| part.protection == TEXT_RIGHTS && all != 0) else { return 0 };
        let start = part.pages.start.max(leaf.first());
        let count = part.pages.end.min(leaf.first() + 64) - start;
        let run = FixedRun { first: FrameNumber(first.0 + (start - part.pages.start)), count };
        all & self.pool.patched_text().offered_of(run) << (start - leaf.first())
    }

    /// In a child: takes over what is mapped of its parent's pages already.
    pub(crate) fn adopt_child(&mut self) {
        let Some(mut residue) = self.take_residue() else { return };
        let Residue { parts, leaves, .. } = &mut *residue;
        let mut is_same = [false; PART_COUNT_MAX];
        for (part, is_same) in parts.iter().zip(&mut is_same) {
            *is_same = self.areas.find(part.area.start).is_some_and(|area| part.is_like(area));
        }
        for leaf in leaves {
            let same = parts.iter().zip(is_same).filter_map(|(part, is_same)| is_same.then_some(part));
            let wanted = same.fold(0, |bits, part| bits | leaf.within(&part.pages));
            self.pages.note_kept(leaf, wanted);
        }
        self.settle_residue(residue, &is_same);
    }

    /// Areas for the trampolines of patched pages, in free places.
    fn map_kept_trampolines(&mut self, parts: &[Part]) -> Result<()> {
        for part in parts.iter().filter(|part| part.first.is_none()) {
            let length = part.area.end - part.area.start;
            let place = Placement::FixedNoReplace(part.area.start);
            let label = AreaLabel::Trampolines;
            self.map(MapRequest { label, ..MapRequest::anonymous(place, length, part.protection) })?;
        }
        Ok(())
    }

    /// The pages of `parts` that others of the program get as they are for what was patched: text with all the
    /// trampolines that it jumps to, and these; ascending, each with its frame. Only such pass from one run to the
    /// next, which may be another user's: what a debugger stored to text is the process's own, also where its children
    /// have it, too. `None`: a child will have the space, which compares each page with its parent's.
    fn offered_pages(&self, parts: &[Part]) -> Option<Vec<(u64, FrameNumber)>> {
        let Some(Next::Start(_)) = self.kept.next else { return None };
        let mut texts: Vec<(u64, FrameNumber)> = Vec::new();
        let mut trampolines: Vec<(u64, FrameNumber)> = Vec::new();
        for page in self.sites.pages_with_jumps() {
            let is_around = |part: &&Part| part.protection == TEXT_RIGHTS && part.pages.contains(&page);
            let Some(part) = parts.iter().find(is_around) else { continue };
            let Some(original) = part.first.map(|first| FrameNumber(first.0 + (page - part.pages.start))) else {
                continue;
            };
            if texts.try_reserve(1).is_err() {
                break;
            }
            let has_page = |place: u64, frame: FrameNumber| {
                let known = (part.base.wrapping_add(place) >> PAGE_SHIFT, frame);
                trampolines.contains(&known)
                    || (self.mapped_frame(known.0) == Some(frame) && trampolines.try_reserve(1).is_ok())
                        && (trampolines.push(known), true).1
            };
            if let Some(patched) = self.mapped_frame(page)
                && self.pool.patched_text().is_whole(original, patched, has_page)
            {
                texts.push((page, patched));
            }
        }
        let reserved = texts.try_reserve(trampolines.len());
        if reserved.is_err() {
            return Some(Vec::new());
        }
        if texts.len() + trampolines.len() > OWNED_COUNT_MAX {
            // No page goes along without the others that it needs.
            return Some(Vec::new());
        }
        texts.extend(trampolines);
        texts.sort_unstable();
        Some(texts)
    }

    /// The frame that the page table has at a page.
    fn mapped_frame(&self, page: u64) -> Option<FrameNumber> {
        self.pages.get(page).filter(|entry| entry.has(PageFlags::MAPPED)).map(PageEntry::frame)
    }

    /// The areas of which pages may stay mapped, ascending; none if no process is known that would want them.
    fn parts_to_keep(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        let (Some(next), Ok(())) = (&self.kept.next, crate::reserve::reserve(&mut parts, PART_COUNT_MAX)) else {
            return parts;
        };
        let lies_there = |area: &Area| match next {
            Next::Child(_) => true,
            Next::Start(_) if area.label == AreaLabel::Trampolines => {
                area.start >= self.mapping_base || !self.kept.reach[0].is_empty()
            }
            Next::Start(_) => self.kept.reach.iter().any(|range| range.contains(&area.start)),
        };
        let areas = self.areas.overlapping(0..PROGRAM_END).filter(|area| lies_there(area));
        parts.extend(areas.filter_map(Part::of).take(PART_COUNT_MAX));
        parts
    }
}

/// Has runs unmapped; one that is apart does not become one with the run before it.
fn unmapper(binder: &mut Binder) -> impl FnMut(Range<u64>, bool) {
    |pages, is_apart| {
        if is_apart {
            binder.seal();
        }
        binder.unmap_run(pages);
    }
}

/// Which pages of a leaf stay mapped, a bit each: the bundle's own, and patched ones and trampolines that are good. The
/// bits of the parts that have some are set, and of those with patches.
fn stays_of(
    parts: &[Part],
    (used, patched): (&mut u64, &mut u64),
    is_good: &dyn Fn(u64, FrameNumber) -> bool,
    look: &LeafLook<'_>,
) -> (u64, u64) {
    let (mut files, mut owned) = (0, 0);
    let end = look.first + 64;
    for (index, part) in parts.iter().enumerate() {
        if part.pages.end <= look.first {
            continue;
        }
        // They ascend.
        if part.pages.start >= end {
            break;
        }
        let bits = look.within(&part.pages);
        if bits == 0 {
            continue;
        }
        let of_run = part
            .first
            .map_or(0, |first| look.in_run(bits, first.0.wrapping_add(look.first.wrapping_sub(part.pages.start))));
        let may_be_patched = part.first.is_none() || part.protection == TEXT_RIGHTS;
        let rest = if may_be_patched { bits & !of_run } else { 0 };
        let of_others = look.select_owned(rest, |page, entry| is_good(page, entry.frame()));
        files |= of_run;
        owned |= of_others;
        *used |= u64::from(of_run | of_others != 0) << index;
        *patched |= u64::from(of_others != 0) << index;
    }
    (files, owned)
}

/// The rewritten sites in what stays of a program. `None`: there is no memory for them, or a jump stays without its
/// trampoline, because of a limit or a shortage.
fn sites_of(sites: &Arc<SiteTable>, parts: &[Part], leaves: &[KeptLeaf]) -> Option<Arc<SiteTable>> {
    let stays = |page: u64| {
        let place = leaves.partition_point(|leaf| leaf.first() + 64 <= page);
        let leaf = leaves.get(place).filter(|leaf| leaf.first() <= page);
        leaf.is_some_and(|leaf| leaf.pages() >> (page - leaf.first()) & 1 != 0)
    };
    let is_inside = |page: u64| parts.iter().any(|part| part.first.is_some() && part.pages.contains(&page));
    if sites.is_whole_in(stays) { SiteTable::only(sites, stays, is_inside).ok() } else { None }
}

/// A space for a process: one that was kept, with what it maps still, or a new one. `ENOMEM`.
fn take_space(pool: &Arc<FramePool>, wanted: Option<&Next>) -> Result<(CapSlot, Option<Box<Residue>>)> {
    if let Some(space) = pool.kept_spaces().take(wanted) {
        return Ok((space.slot, space.residue));
    }
    let slot = pool.kernel().create_space().map_err(|_: Status| Errno::ENOMEM)?;
    Ok((slot, None))
}
