//! Faults that come again: what a process's children and a program's runs touch first.
//!
//! A child that is made, and a program that is loaded, have resolved in one batch what those before them touched first,
//! copies too, and add what else they meet. So what they have in common costs one kernel call instead of a fault each.
//! What one child did once costs the others a page or two. Runs of a program differ more, as their arguments do, so a
//! fault counts when two runs, one after the other, had it, and is forgotten otherwise.
//!
//! What is noted is a hint and nothing else: it is resolved as the fault would be, as far as that can be had without
//! waiting, and the areas of the space decide, as they do for the fault. A file that has changed, or another program of
//! the same number, has other pages at hand than it touches.
//!
//! Places: what is loaded lies elsewhere in each run, so a fault in it is noted by its distance ([`StartPlaces`]).
//! Where nothing lies when the program starts (its heap, its libraries), nothing is noted of its start.
//!
//! A fault brings its neighbours, of which a short run touches few. So the first runs of a program are looked at when
//! they end ([`AddressSpace::note_touched`]): the page tables say what they touched of its files. What is resolved
//! ahead is that and no neighbour more; a fault of its own still brings all of them.
//!
//! Limits: [`CHILD_FAULT_COUNT`] and [`START_FAULT_COUNT`] faults, those of [`PROGRAM_COUNT_MAX`] programs, and of each
//! program's parts the first [`TOUCHED_PAGE_COUNT_MAX`] pages.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::PAGE_SHIFT;

use crate::mem::area::{Area, AreaFlags, AreaLabel, Backing};
use crate::mem::fault::{Access, SCARCE_FRAMES};
use crate::mem::page_map::PageFlags;
use crate::mem::source::FileIdentity;
use crate::mem::space::AddressSpace;
use crate::sync::Mutex;

/// Faults of children that are remembered for the next.
const CHILD_FAULT_COUNT: usize = 12;
/// Faults of a program's runs that are remembered for the next.
const START_FAULT_COUNT: usize = 32;
/// A program's start is over after so many.
const START_FAULT_REACH: u64 = 48;
/// Runs that are looked at when they end.
const LOOK_COUNT: u8 = 4;
/// So many of them have to have been before neighbours are left out.
const LOOK_COUNT_MIN: u8 = 2;
/// Pages of a program or an interpreter of which is remembered whether they were touched.
const TOUCHED_PAGE_COUNT_MAX: u64 = 4096;
/// Pages between two that were touched that are mapped with them: an entry of a batch costs what these cost.
const BRIDGED_PAGE_COUNT: u32 = 2;
/// Programs whose faults are remembered.
const PROGRAM_COUNT_MAX: usize = 32;

/// Where a program's parts lie when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartPlaces {
    pub(crate) image: Range<u64>,
    /// The image lies there in every run.
    pub(crate) is_image_fixed: bool,
    /// Empty if there is none.
    pub(crate) interpreter: Range<u64>,
    pub(crate) vdso: u64,
    pub(crate) stack_top: u64,
}

/// From where the distance of a place counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Anchor {
    /// The place is an address.
    Zero,
    Image,
    Interpreter,
    Vdso,
    Stack,
}

impl StartPlaces {
    fn address_of(&self, anchor: Anchor) -> u64 {
        match anchor {
            Anchor::Zero => 0,
            Anchor::Image => self.image.start,
            Anchor::Interpreter => self.interpreter.start,
            Anchor::Vdso => self.vdso,
            Anchor::Stack => self.stack_top,
        }
    }

    fn anchor_in(&self, area: &Area) -> Option<Anchor> {
        match area.label {
            AreaLabel::Stack => Some(Anchor::Stack),
            AreaLabel::Vdso | AreaLabel::Vvar => Some(Anchor::Vdso),
            _ if self.image.contains(&area.start) => Some(Anchor::Image),
            _ if self.interpreter.contains(&area.start) => Some(Anchor::Interpreter),
            _ => None,
        }
    }
}

/// What runs of a program touched of a part of it, a bit a page, from its first on.
#[derive(Clone, Debug, Default)]
struct TouchedPages(Vec<u64>);

impl TouchedPages {
    /// A page that there is no memory to note is not noted.
    fn add(&mut self, page: u64) {
        let index = (page / 64) as usize;
        if page >= TOUCHED_PAGE_COUNT_MAX {
            return;
        }
        if index >= self.0.len() {
            let missing = index + 1 - self.0.len();
            if self.0.try_reserve(missing).is_err() {
                return;
            }
            self.0.resize(index + 1, 0);
        }
        self.0[index] |= 1 << (page % 64);
    }

    /// Of 64 pages from `page` on.
    fn from(&self, page: u64) -> u64 {
        let word = |index: u64| self.0.get(index as usize).copied().unwrap_or(0);
        let (index, shift) = (page / 64, page % 64);
        let high = word(index + 1).checked_shl(64 - shift as u32).unwrap_or(0);
        word(index) >> shift | high
    }
}

/// What runs touched of a program and of its interpreter, and how many of them were looked at.
#[derive(Clone, Debug, Default)]
struct Touched {
    parts: [TouchedPages; 2],
    look_count: u8,
}

/// What is worth resolving ahead in a space: what was touched, from where its parts lie.
pub(crate) struct Ahead {
    touched: Arc<Touched>,
    parts: [Range<u64>; 2],
}

impl Ahead {
    /// Of the 64 pages from the start of `block` on, a bit each; with `page`, and with the few between two.
    fn of(&self, block: &Range<u64>, page: u64) -> u64 {
        let part = self.parts.iter().position(|part| part.contains(&(page << PAGE_SHIFT)));
        let Some(part) = part else { return u64::MAX };
        let first = self.parts[part].start >> PAGE_SHIFT;
        let touched = match block.start.checked_sub(first) {
            Some(distance) => self.touched.parts[part].from(distance),
            // A block may begin before the part does.
            None => self.touched.parts[part].from(0).checked_shl((first - block.start) as u32).unwrap_or(0),
        };
        let own = 1_u64.checked_shl((page - block.start) as u32).unwrap_or(0);
        bridged(touched | own)
    }
}

/// With the bits between two that are set, if they are few.
fn bridged(bits: u64) -> u64 {
    let distances =
        (1..=BRIDGED_PAGE_COUNT).flat_map(|low| (1..=BRIDGED_PAGE_COUNT + 1 - low).map(move |high| (low, high)));
    distances.fold(bits, |all, (low, high)| all | bits << low & bits >> high)
}

/// Which program a space was loaded with, and where.
pub(crate) struct Start {
    faults: Arc<Mutex<FirstFaults>>,
    parts: [Range<u64>; 2],
}

/// A fault at a distance from an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    anchor: Anchor,
    distance: u64,
    access: Access,
    /// The last run that had it.
    run: u64,
    /// It is resolved ahead.
    is_known: bool,
}

/// The faults that come first, in the order in which they were met.
#[derive(Clone)]
pub(crate) struct FirstFaults {
    faults: Vec<Fault>,
    count_max: usize,
    /// How many runs began.
    run: u64,
    touched: Arc<Touched>,
}

impl Default for FirstFaults {
    /// Of children.
    fn default() -> Self {
        Self { faults: Vec::new(), count_max: CHILD_FAULT_COUNT, run: 0, touched: Arc::default() }
    }
}

impl FirstFaults {
    fn is_full(&self) -> bool {
        self.faults.len() >= self.count_max
    }

    /// A new run: what the last one did not repeat of those before it is forgotten. Answers its number.
    fn begin(&mut self) -> u64 {
        let last = self.run;
        self.faults.retain(|fault| fault.is_known || fault.run == last);
        self.run += 1;
        self.run
    }

    /// A page that is stored to after it was read is noted once.
    fn note(&mut self, fault: Fault) {
        let place = |fault: &Fault| (fault.anchor, fault.distance >> PAGE_SHIFT);
        let is_here = |other: &&mut Fault| place(other) == place(&fault);
        let is_full = self.is_full();
        match self.faults.iter_mut().find(is_here) {
            Some(known) => {
                known.is_known |= fault.run > known.run;
                known.run = known.run.max(fault.run);
                if fault.access == Access::Write {
                    known.access = Access::Write;
                }
            }
            // In the order of places: what is known of neighbouring pages is found together.
            None if !is_full => {
                let at = self.faults.partition_point(|other| place(other) < place(&fault));
                self.faults.insert(at, fault);
            }
            None => {}
        }
    }
}

/// Where a space's own faults are noted.
pub(crate) struct Notes {
    faults: Arc<Mutex<FirstFaults>>,
    /// `None`: places are addresses, as in a child.
    places: Option<StartPlaces>,
    /// Which run it is.
    run: u64,
    /// How many faults are still looked at.
    left_count: u64,
}

impl Notes {
    fn address_of(&self, fault: &Fault) -> u64 {
        self.places.as_ref().map_or(0, |places| places.address_of(fault.anchor)).wrapping_add(fault.distance)
    }

    fn fault_in(&self, area: &Area, address: u64, access: Access) -> Option<Fault> {
        let Some(places) = &self.places else {
            return Some(Fault { anchor: Anchor::Zero, distance: address, access, run: self.run, is_known: true });
        };
        let anchor = places.anchor_in(area)?;
        let distance = address.wrapping_sub(places.address_of(anchor));
        Some(Fault { anchor, distance, access, run: self.run, is_known: false })
    }
}

/// The first faults of the programs of a pod, the last used last.
#[derive(Default)]
pub(crate) struct StartFaults {
    programs: Mutex<Vec<(FileIdentity, Arc<Mutex<FirstFaults>>)>>,
}

impl StartFaults {
    fn of(&self, program: FileIdentity) -> Arc<Mutex<FirstFaults>> {
        let mut programs = self.programs.lock();
        let known = programs.iter().position(|(other, _)| *other == program);
        if known.is_none() && programs.len() >= PROGRAM_COUNT_MAX {
            programs.remove(0);
        }
        let entry = match known {
            Some(index) => programs.remove(index),
            None => {
                let faults = FirstFaults { count_max: START_FAULT_COUNT, ..FirstFaults::default() };
                (program, Arc::new(Mutex::new(faults)))
            }
        };
        let faults = Arc::clone(&entry.1);
        programs.push(entry);
        faults
    }
}

impl AddressSpace {
    /// In a child: what the children before it touched first.
    pub(crate) fn start_as_child(&mut self, faults: Arc<Mutex<FirstFaults>>) {
        self.repeat_first_faults(Notes { faults, places: None, run: 0, left_count: u64::MAX });
    }

    /// For a program that was loaded: what its runs before touched first.
    pub(crate) fn start_as_before(&mut self, program: FileIdentity, places: StartPlaces) {
        let image = if places.is_image_fixed { places.image.clone() } else { 0..0 };
        self.keep_for_start(program, [image, places.interpreter.clone()]);
        self.adopt_start();
        let faults = self.pool.start_faults().of(program);
        let (run, touched) = {
            let mut faults = faults.lock();
            (faults.begin(), faults.touched.clone())
        };
        let parts = [places.image.clone(), places.interpreter.clone()];
        if touched.look_count >= LOOK_COUNT_MIN {
            self.ahead = Some(Ahead { touched: touched.clone(), parts: parts.clone() });
        }
        if touched.look_count < LOOK_COUNT {
            self.start = Some(Start { faults: faults.clone(), parts });
        }
        self.repeat_first_faults(Notes { faults, places: Some(places), run, left_count: START_FAULT_REACH });
        self.ahead = None;
    }

    /// For a program that ends: what it touched of its files, if that is still to be learned. `is_accessed` says it of
    /// the page at an address.
    pub fn note_touched(&mut self, is_accessed: impl Fn(u64) -> bool) {
        let Some(Start { faults, parts }) = self.start.take() else { return };
        let mut touched = Touched::clone(&faults.lock().touched);
        if touched.look_count >= LOOK_COUNT {
            return;
        }
        for (part, known) in parts.iter().zip(&mut touched.parts) {
            let pages = part.start >> PAGE_SHIFT..part.end >> PAGE_SHIFT;
            let first = pages.start;
            self.pages.mapped_in(first..pages.end.min(first + TOUCHED_PAGE_COUNT_MAX), |page| {
                if is_accessed(page << PAGE_SHIFT) {
                    known.add(page - first);
                }
            });
        }
        touched.look_count += 1;
        // Another run that ended meanwhile is looked at for nothing.
        faults.lock().touched = Arc::new(touched);
    }

    /// Which of the 64 pages from the start of `block` on are worth mapping with `page`, one of them: a bit each.
    pub(crate) fn worth_ahead(&self, block: &Range<u64>, page: u64) -> u64 {
        self.ahead.as_ref().map_or(u64::MAX, |ahead| ahead.of(block, page))
    }

    /// Resolves in one batch what was noted, and goes on noting. What cannot be had without waiting or at all is left
    /// to the fault.
    fn repeat_first_faults(&mut self, notes: Notes) {
        let noted = notes.faults.lock().clone();
        let is_scarce = self.pool.frames_available() < SCARCE_FRAMES;
        self.waits_for_no_page = true;
        for fault in noted.faults.iter().filter(|fault| fault.is_known && !is_scarce) {
            let address = notes.address_of(fault);
            if let Some((area, access)) = self.access_ahead(address, fault.access) {
                let _ = self.resolve_in(&area, address >> PAGE_SHIFT, access);
            }
        }
        self.waits_for_no_page = false;
        self.wanted = None;
        // A refused mapping is not in the page map, and faults again.
        let _ = self.flush();
        self.notes = Some(notes);
    }

    /// In which area and as which access a fault that may not come is resolved; `None`: it is not, or was.
    ///
    /// A store to shared memory tells the file's source, which one that does not come must not. A private page of a
    /// file that can change shows the changes until it is stored to, so it is only read ahead.
    fn access_ahead(&self, address: u64, access: Access) -> Option<(Area, Access)> {
        let wanted_for = |access| if access == Access::Write { PageFlags::WRITE } else { PageFlags::MAPPED };
        let page = address >> PAGE_SHIFT;
        let known = self.pages.get(page);
        // Most came with the space.
        if known.is_some_and(|entry| entry.has(wanted_for(access))) {
            return None;
        }
        let area = self.areas.find(address).filter(|area| !area.is_shared())?;
        let can_change = |frame| !self.pool.is_immutable(frame);
        let shows_file = match (&area.backing, known) {
            (Backing::Anonymous, _) => false,
            (_, Some(entry)) => !entry.has(PageFlags::OWNED) && can_change(entry.frame()),
            (Backing::File(file), None) => {
                file.source.resident_page(area.file_index(page)).is_none_or(|found| can_change(found.frame.frame()))
            }
        };
        let access = if access == Access::Write && shows_file { Access::Read } else { access };
        let is_there = known.is_some_and(|entry| entry.has(wanted_for(access)));
        (!is_there).then(|| (area.clone(), access))
    }

    /// Notes a fault, as long as it is one of the first.
    pub(crate) fn note_first_fault(&mut self, address: u64, access: Access) {
        let Some(notes) = &mut self.notes else { return };
        let area = self.areas.find_at_or_above(address);
        let is_inside = |area: &&Area| area.start <= address || area.flags.contains(AreaFlags::GROWS_DOWN);
        let fault = area.filter(is_inside).and_then(|area| notes.fault_in(area, address, access));
        let mut faults = notes.faults.lock();
        if let Some(fault) = fault {
            faults.note(fault);
        }
        notes.left_count -= 1;
        let is_over = notes.left_count == 0 || notes.places.is_none() && faults.is_full();
        drop(faults);
        if is_over {
            self.notes = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::{
        Ahead, Anchor, Fault, FirstFaults, LOOK_COUNT, PROGRAM_COUNT_MAX, START_FAULT_COUNT, StartFaults,
        TOUCHED_PAGE_COUNT_MAX, Touched, TouchedPages,
    };
    use crate::mem::fault::Access;
    use crate::mem::source::FileIdentity;

    fn fault(page: u64, access: Access, run: u64) -> Fault {
        Fault { anchor: Anchor::Image, distance: (page << 12) + page % 7, access, run, is_known: false }
    }

    #[test]
    fn two_runs_one_after_the_other_make_a_fault_known_and_others_are_forgotten() {
        let mut faults = FirstFaults { count_max: START_FAULT_COUNT, ..FirstFaults::default() };
        let runs: [&[(u64, Access)]; 4] = [
            &[(1, Access::Execute), (2, Access::Read), (3, Access::Read)],
            &[(1, Access::Execute), (2, Access::Write), (4, Access::Read)],
            &[(3, Access::Read)],
            &[(3, Access::Write), (4, Access::Read)],
        ];
        for places in runs {
            let run = faults.begin();
            places.iter().for_each(|(page, access)| faults.note(fault(*page, *access, run)));
        }
        let known = faults.faults.iter().filter(|fault| fault.is_known);
        let known: alloc::vec::Vec<_> = known.map(|fault| (fault.distance >> 12, fault.access)).collect();
        assert_eq!(known, [(1, Access::Execute), (2, Access::Write), (3, Access::Write)]);
        let run = faults.begin();
        (0..1000).for_each(|page| faults.note(fault(page, Access::Read, run)));
        assert_eq!(faults.faults.len(), START_FAULT_COUNT);
    }

    #[test]
    fn what_was_touched_is_mapped_with_what_lies_between() {
        let mut pages = TouchedPages::default();
        [0, 3, 10, 63, 64, 70, 130, TOUCHED_PAGE_COUNT_MAX].into_iter().for_each(|page| pages.add(page));
        assert_eq!(pages.0.len(), 3, "what is far is not noted");
        assert_eq!(pages.from(60) & 0xffff, 1 << 3 | 1 << 4 | 1 << 10);
        assert_eq!(pages.from(128), 1 << 2);
        let touched = Touched { parts: [pages, TouchedPages::default()], look_count: LOOK_COUNT };
        let parts = [0x40_0000..0x50_0000, 0x7000_0000..0x7001_0000];
        let ahead = Ahead { touched: Arc::new(touched), parts };
        assert_eq!(ahead.of(&(0x400..0x410), 0x405) & 0xffff, 0b100_0011_1111, "0 and 3, 5, 10, and what lies between");
        assert_eq!(ahead.of(&(0x3fe..0x410), 0x400) & 0xff, 0b0011_1100);
        assert_eq!(ahead.of(&(0x7_0000..0x7_0010), 0x7_0008), 1 << 8, "nothing was touched there");
        assert_eq!(ahead.of(&(0x1000..0x1010), 0x1008), u64::MAX, "other files have all neighbours");
        assert_eq!(super::bridged(0b1_0001), 0b1_0001);
    }

    #[test]
    fn programs_that_were_not_run_for_long_are_forgotten() {
        let all = StartFaults::default();
        let program = |inode| FileIdentity { device: 1, inode };
        let first = all.of(program(0));
        for inode in 1..PROGRAM_COUNT_MAX as u64 {
            all.of(program(inode));
        }
        assert!(Arc::ptr_eq(&first, &all.of(program(0))), "used last now");
        let second = all.of(program(1));
        all.of(program(1000));
        all.of(program(1001));
        assert!(Arc::ptr_eq(&first, &all.of(program(0))) && Arc::ptr_eq(&second, &all.of(program(1))));
        assert_eq!(all.programs.lock().len(), PROGRAM_COUNT_MAX);
        assert!(!all.programs.lock().iter().any(|(other, _)| [2, 3].contains(&other.inode)));
    }
}
