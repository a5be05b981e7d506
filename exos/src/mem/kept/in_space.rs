//! How an address space is made from one that was kept, and left for the next.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PROGRAM_END};
use aegis_abi::{CapSlot, FrameNumber, Status};

use super::{
    KeptSpace, KeptSpaces, Next, OWNED_COUNT_MAX, PART_COUNT_MAX, Part, Residue, UNSEEN_COUNT_MAX, sites_of, stays_of,
};
use crate::error::{Errno, Result};
use crate::mem::area::{Area, AreaLabel};
use crate::mem::area_list::AreaList;
use crate::mem::binder::{Binder, PIECE_PAGES};
use crate::mem::first_faults::FirstFaults;
use crate::mem::frames::{FixedRun, FrameCounts};
use crate::mem::page_map::blocks::Whole;
use crate::mem::page_map::{KeptLeaf, LeafLook, PageEntry, PageFlags};
use crate::mem::patched_text::TEXT_RIGHTS;
use crate::mem::shared::SharedState;
use crate::mem::source::FileIdentity;
use crate::mem::space::{AddressSpace, MapRequest, Placement, SpaceLimits};
use crate::preempt;
use crate::sync::Mutex;

impl AddressSpace {
    /// An empty space of its own: one that was kept for a process that runs this program, or another. `ENOMEM`.
    pub fn make(
        shared: &Arc<SharedState>,
        mapping_base: u64,
        limits: SpaceLimits,
        program: Option<FileIdentity>,
    ) -> Result<Self> {
        let wanted = program.map(Next::Start);
        let (slot, residue) = take_space(shared, wanted.as_ref())?;
        let mut space = Self::new(shared.clone(), slot, mapping_base, limits);
        let is_wanted = residue.as_ref().zip(wanted.as_ref()).is_some_and(|(residue, next)| residue.next.is(next));
        space.kept.residue = residue;
        if !is_wanted {
            space.drop_residue();
            if let Err(error) = space.flush() {
                drop(space);
                let _ = shared.pool().kernel().destroy_space(slot);
                return Err(error);
            }
        }
        Ok(space)
    }

    /// A copy of this space by copy on write, in a space of its own. As [`Self::clone_cow`].
    pub fn fork(&mut self) -> Result<Self> {
        let next = Next::Child(self.child_faults.clone());
        let (slot, mut residue) = take_space(&self.shared, Some(&next))?;
        let copy = self.clone_into(slot, &mut residue);
        if copy.is_err() {
            KeptSpaces::end(&self.pool, KeptSpace { slot, residue });
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
            let spare = self.shared.kept_spaces().put(space);
            if let Some(spare) = spare {
                KeptSpaces::end(&self.pool, spare);
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
        let before = offer_count.replace(self.shared.patched_text().offer_count());
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
            self.shared.patched_text().note_taken(sites.site_count());
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
        all & self.shared.patched_text().offered_of(run) << (start - leaf.first())
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
                && self.shared.patched_text().is_whole(original, patched, has_page)
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

/// A space for a process: one that was kept, with what it maps still, or a new one. `EAGAIN` if there are as many as
/// can be, `ENOMEM`.
fn take_space(shared: &SharedState, wanted: Option<&Next>) -> Result<(CapSlot, Option<Box<Residue>>)> {
    if let Some(space) = shared.kept_spaces().take(wanted) {
        return Ok((space.slot, space.residue));
    }
    match shared.pool().kernel().create_space() {
        Ok(slot) => Ok((slot, None)),
        // Then it is any that is kept.
        Err(Status::TableFull) => {
            let space = shared.kept_spaces().take_oldest().ok_or(Errno::EAGAIN)?;
            Ok((space.slot, space.residue))
        }
        Err(_) => Err(Errno::ENOMEM),
    }
}
