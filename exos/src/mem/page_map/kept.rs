//! Pages that stay mapped in the page tables of a space whose process has gone ([`crate::mem::kept`]).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::FrameNumber;

use super::{LEAF_SHIFT, Leaf, PageEntry, PageFlags, PageMap, View, bits_of, slots_in, take_slot};
use crate::mem::frames::FrameCounts;

/// Leaves of which something stays, in most programs.
const KEPT_COUNT_USUAL: usize = 32;

/// Entries of a leaf whose pages are mapped read-only, all of them, and nobody's: with a reference to each frame.
pub(crate) struct KeptLeaf {
    number: u64,
    files: u64,
    /// Those that the space has taken over.
    taken: u64,
    leaf: Arc<Leaf>,
}

/// A leaf that somebody looks at to say what of it stays.
pub(crate) struct LeafLook<'a> {
    pub(crate) first: u64,
    /// The pages that are mapped read-only, a bit each.
    pub(crate) read_only: u64,
    leaf: &'a Leaf,
}

impl LeafLook<'_> {
    /// The pages that are mapped read-only and lie in `pages`, a bit each.
    pub(crate) fn within(&self, pages: &Range<u64>) -> u64 {
        self.read_only & bits_within(self.first, pages)
    }

    /// Those of `bits` that show pages of a file whose frames lie one behind the other, from `first` on for this leaf's
    /// first page.
    pub(crate) fn in_run(&self, mut bits: u64, first: u64) -> u64 {
        let word = PageEntry::new(FrameNumber(first), PageFlags::FILE).0;
        let mut same = bits;
        while bits != 0 {
            // Most lie one behind the other.
            let start = bits.trailing_zeros();
            let length = (!(bits >> start)).trailing_zeros();
            let mut expected = word.wrapping_add(u64::from(start) << super::FRAME_SHIFT);
            let mut bit = 1 << start;
            for entry in &self.leaf.entries[start as usize..(start + length) as usize] {
                if *entry != expected {
                    same &= !bit;
                }
                expected = expected.wrapping_add(1 << super::FRAME_SHIFT);
                bit <<= 1;
            }
            bits &= bits.wrapping_add(1 << start);
        }
        same
    }

    /// Those of `bits` that are private pages and `wanted`.
    pub(crate) fn select_owned(&self, mut bits: u64, mut wanted: impl FnMut(u64, PageEntry) -> bool) -> u64 {
        let mut found = 0;
        while bits != 0 {
            let index = take_slot(&mut bits);
            let entry = PageEntry(self.leaf.entries[index]);
            let is_found = entry.has(PageFlags::OWNED) && wanted(self.first + index as u64, entry);
            found |= u64::from(is_found) << index;
        }
        found
    }
}

/// What of a leaf that begins with page `first` lies in `pages`, a bit each.
fn bits_within(first: u64, pages: &Range<u64>) -> u64 {
    let within = pages.start.max(first)..pages.end.min(first + super::LEAF_PAGES as u64);
    if within.is_empty() { 0 } else { bits_of(&slots_in(first >> LEAF_SHIFT, &within).1) }
}

impl KeptLeaf {
    pub(crate) fn first(&self) -> u64 {
        self.number << LEAF_SHIFT
    }

    /// Its pages, a bit each.
    pub(crate) fn pages(&self) -> u64 {
        self.leaf.known
    }

    /// Those that are pages of a file rather than private ones.
    pub(crate) fn files(&self) -> u64 {
        self.files
    }

    /// Those that were taken over.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Says that nobody has taken any over.
    pub(crate) fn give_back(&mut self) {
        self.taken = 0;
    }

    /// Becomes a leaf of those that were taken over alone, with references of its own; the one before.
    pub(crate) fn narrow(&mut self, frames: &mut FrameCounts<'_>) -> Self {
        let files = self.files & self.taken;
        let leaf = Arc::new(part_of(&self.leaf, self.taken));
        leaf.frames().for_each(|frame| frames.retain(frame));
        core::mem::replace(self, Self { files, leaf, ..*self })
    }

    /// Something that two leaves with different pages differ in nearly always.
    pub(crate) fn mix(&self, seed: u64) -> u64 {
        (seed ^ self.number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ self.leaf.known
    }

    /// Those that lie in `pages`.
    pub(crate) fn within(&self, pages: &Range<u64>) -> u64 {
        self.leaf.known & bits_within(self.first(), pages)
    }

    /// The frames to which it has a reference that counts, if nobody else shares it.
    pub(crate) fn into_frames(self, mut release: impl FnMut(FrameNumber)) {
        let files = self.files;
        super::if_last(self.leaf, |leaf| {
            let mut bits = leaf.known & !files;
            while bits != 0 {
                release(PageEntry(leaf.entries[take_slot(&mut bits)]).frame());
            }
        });
    }
}

/// A copy of some entries of a leaf.
fn part_of(leaf: &Leaf, bits: u64) -> Leaf {
    let mut part = Leaf { known: bits, entries: [0; super::LEAF_PAGES] };
    let mut left = bits;
    while left != 0 {
        let index = take_slot(&mut left);
        part.entries[index] = leaf.entries[index];
    }
    part
}

impl PageMap {
    /// Notes of all pages that the page table does not map them any more, but for those that `keeps` names, pages of
    /// files and private ones, which are taken out as they are. `unmap` gets ranges without any of these that hold all
    /// that is to be unmapped, ascending, and whether a page that stays may lie between a range and the one before.
    pub(crate) fn unmap_others(
        &mut self,
        frames: &mut FrameCounts<'_>,
        mut keeps: impl FnMut(&FrameCounts<'_>, &LeafLook<'_>) -> (u64, u64),
        mut unmap: impl FnMut(Range<u64>, bool),
    ) -> Vec<KeptLeaf> {
        let mut kept: Vec<KeptLeaf> = Vec::new();
        // Where there is no room for all of them, there may be for some.
        let _ = kept.try_reserve(self.leaves.len().min(KEPT_COUNT_USUAL));
        let mut was_kept = false;
        self.leaves.retain(|number, view| {
            let (number, first) = (*number, number << LEAF_SHIFT);
            let mapped = core::mem::take(&mut view.mapped);
            let read_only = mapped & !core::mem::take(&mut view.writable);
            let (mut files, mut owned) = (0, 0);
            if read_only != 0 && kept.try_reserve(1).is_ok() {
                (files, owned) = keeps(frames, &LeafLook { first, read_only, leaf: &view.leaf });
            }
            let stays = files | owned;
            unmap_rest(first, (mapped, stays), &mut was_kept, &mut unmap);
            stays == 0 || {
                let (leaf, is_left) = take_out(view, stays, frames);
                kept.push(KeptLeaf { number, files, taken: 0, leaf });
                is_left
            }
        });
        kept
    }

    /// Whether all pages of these leaves are known here with the same frames, and mapped read-only.
    pub(crate) fn shows_all(&self, kept: &[KeptLeaf]) -> bool {
        let shows = |kept: &KeptLeaf| {
            let Some(view) = self.leaves.get(&kept.number) else { return false };
            let mut bits = kept.leaf.known;
            if bits & !(view.mapped & !view.writable) != 0 {
                return false;
            }
            // Nobody changes a leaf that others have.
            if Arc::ptr_eq(&view.leaf, &kept.leaf) {
                return true;
            }
            while bits != 0 {
                let index = take_slot(&mut bits);
                if view.leaf.entries[index] != kept.leaf.entries[index] {
                    return false;
                }
            }
            true
        };
        kept.iter().all(shows)
    }

    /// As [`Self::unmap_others`], where what stays are these leaves, ascending. What is known of their pages here stays
    /// as well: with references of its own.
    pub(crate) fn unmap_beside(&mut self, kept: &[KeptLeaf], mut unmap: impl FnMut(Range<u64>, bool)) {
        let mut kept = kept.iter().peekable();
        let mut was_kept = false;
        for (number, view) in self.leaves.range_mut(..) {
            let mapped = core::mem::take(&mut view.mapped);
            view.writable = 0;
            let stays = kept.next_if(|leaf| leaf.number == *number).map_or(0, |leaf| leaf.leaf.known);
            unmap_rest(number << LEAF_SHIFT, (mapped, stays), &mut was_kept, &mut unmap);
        }
    }

    /// Takes over pages of a leaf that are mapped already, `wanted` of them, where nothing is known.
    pub(crate) fn put_kept(&mut self, kept: &mut KeptLeaf, wanted: u64, frames: &mut FrameCounts<'_>) {
        let there = self.leaves.get(&kept.number).map(|view| view.leaf.known);
        let taken = kept.leaf.known & wanted & !there.unwrap_or(0);
        kept.taken = taken;
        if taken == 0 {
            return;
        }
        if there.is_none() && taken == kept.leaf.known {
            let view = View { leaf: Arc::clone(&kept.leaf), mapped: taken, writable: 0 };
            self.leaves.insert(kept.number, view);
        } else {
            let view = self.leaves.get_or_insert_with(kept.number, || View::empty(None));
            let mut bits = taken;
            while bits != 0 {
                let index = take_slot(&mut bits);
                let entry = PageEntry(kept.leaf.entries[index]);
                frames.retain(entry.frame());
                view.set(index, Some(entry.with(PageFlags::MAPPED)), frames);
            }
        }
        self.counts.file += u64::from((taken & kept.files).count_ones());
        self.counts.owned += u64::from((taken & !kept.files).count_ones());
        self.note_peak();
    }

    /// Notes which pages of a leaf, of those `wanted`, are known here with the same frames, so that they are mapped
    /// already.
    pub(crate) fn note_kept(&mut self, kept: &mut KeptLeaf, wanted: u64) {
        let Some(view) = self.leaves.get_mut(&kept.number) else { return };
        let mut taken = kept.leaf.known & view.leaf.known & wanted;
        if !Arc::ptr_eq(&kept.leaf, &view.leaf) {
            let mut bits = taken;
            while bits != 0 {
                let index = take_slot(&mut bits);
                let is_same = kept.leaf.entries[index] == view.leaf.entries[index];
                taken &= !(u64::from(!is_same) << index);
            }
        }
        view.mapped |= taken;
        kept.taken = taken;
    }

    /// Whether no page is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Which pages of a leaf the page table maps, a bit each.
    pub(crate) fn mapped_of(&self, kept: &KeptLeaf) -> u64 {
        self.leaves.get(&kept.number).map_or(0, |view| view.mapped)
    }
}

/// The pages of a leaf that are mapped and do not stay, by runs: see [`PageMap::unmap_others`].
#[inline]
fn unmap_rest(first: u64, (mapped, stays): (u64, u64), was_kept: &mut bool, unmap: &mut impl FnMut(Range<u64>, bool)) {
    let mut rest = mapped & !stays;
    while rest != 0 {
        let start = rest.trailing_zeros();
        // Up to the next page that stays.
        let end = (stays & u64::MAX << start).trailing_zeros();
        let run = rest & u64::MAX >> (64 - end);
        unmap(first + u64::from(start)..first + 64 - u64::from(run.leading_zeros()), *was_kept || stays != 0);
        rest &= !run;
        *was_kept = false;
    }
    *was_kept |= stays != 0;
}

/// The entries of a view that stay mapped, and whether there are others in it.
fn take_out(view: &mut View, stays: u64, frames: &mut FrameCounts<'_>) -> (Arc<Leaf>, bool) {
    if view.leaf.known == stays {
        return (Arc::clone(&view.leaf), false);
    }
    let part = Arc::new(part_of(&view.leaf, stays));
    match Arc::get_mut(&mut view.leaf) {
        Some(leaf) => {
            let mut bits = stays;
            while bits != 0 {
                leaf.put(take_slot(&mut bits), 0);
            }
        }
        // The others have theirs.
        None => part.frames().for_each(|frame| frames.retain(frame)),
    }
    (part, true)
}
