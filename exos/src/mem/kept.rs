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

use aegis_abi::{CapSlot, FrameNumber};

use crate::mem::area::{Area, AreaLabel, Protection};
use crate::mem::area_list::AreaList;
use crate::mem::first_faults::FirstFaults;
use crate::mem::frames::{FixedRun, FramePool};
use crate::mem::page_map::{KeptLeaf, LeafLook};
use crate::mem::patched_text::{TEXT_RIGHTS, base_of};
use crate::mem::source::FileIdentity;
use crate::rewrite::sites::SiteTable;
use crate::sync::Mutex;

mod in_space;

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

/// Unused spaces, the one that was used last at the end.
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

    /// The one that was used longest ago, whatever it was kept for.
    fn take_oldest(&self) -> Option<KeptSpace> {
        let mut spaces = self.spaces.lock();
        if spaces.is_empty() { None } else { Some(spaces.remove(0)) }
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

    /// Ends a kept space, and gives back what it has.
    fn end(pool: &FramePool, space: KeptSpace) {
        // Nobody runs in it, so it cannot be busy for long; if it is, its mappings stay until it is ended later.
        let ended = pool.kernel().destroy_space(space.slot);
        let Some(residue) = space.residue else { return };
        match ended {
            Ok(()) => residue.leaves.into_iter().for_each(|leaf| leaf.into_frames(|frame| pool.release(frame))),
            // The frames are never free again, which is better than free and mapped.
            Err(_) => core::mem::forget(residue),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.spaces.lock().len()
    }

    /// Ends all of them.
    pub(super) fn end_all(&self, pool: &FramePool) {
        loop {
            let space = self.spaces.lock().pop();
            match space {
                Some(space) => Self::end(pool, space),
                None => return,
            }
        }
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
