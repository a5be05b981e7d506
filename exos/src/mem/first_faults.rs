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
//!
//! Libraries and the heap: nothing lies there when the program is loaded, and nobody knows where it will. But an
//! interpreter makes the same mappings in the same order in each run of a program. So the mappings that follow a load
//! are counted, and a place in the third is known by its distance from the third's start, as long as the third is of
//! the same part of the same file with the same rights ([`MappedAs`]); where it is not, what was noted of it and of
//! those behind it is forgotten. What was noted of a mapping of a file is not resolved when it is made, but with the
//! first fault or the first anonymous memory that comes after it: an interpreter maps a library part by part, the
//! later over the first, and one change of the page tables does for all. What was noted of anonymous memory and of the
//! heap is resolved at once.
//!
//! A fault brings its neighbours, of which a short run touches few. So the first runs of a program are looked at when
//! they end ([`AddressSpace::note_touched`]): the page tables say what they touched of its files. What is resolved
//! ahead is that and no neighbour more; a fault of its own still brings all of them.
//!
//! Limits: [`CHILD_FAULT_COUNT`] and [`START_FAULT_COUNT`] faults, [`MAPPING_COUNT_MAX`] mappings, those of
//! [`PROGRAM_COUNT_MAX`] programs, and of each program's parts the first [`TOUCHED_PAGE_COUNT_MAX`] pages.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::PAGE_SHIFT;

use crate::mem::area::{Access, Area, AreaLabel, Backing, Protection};
use crate::mem::page_map::PageFlags;
use crate::mem::source::FileIdentity;
use crate::mem::window::FAULT_AROUND_PAGES;
use crate::sync::Mutex;

mod in_space;

/// Faults of children that are remembered for the next.
const CHILD_FAULT_COUNT: usize = 12;
/// Faults of a program's runs that are remembered for the next.
const START_FAULT_COUNT: usize = 96;
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
/// Mappings of a start in which faults are noted.
const MAPPING_COUNT_MAX: usize = 64;
/// So many faults in memory that is no file's are worth being resolved ahead: one costs what resolving it ahead does.
const ANONYMOUS_FAULT_COUNT_MIN: usize = 2;
/// Of a few of them the list has room from its start.
const MAPPING_ROOM: usize = 12;
/// A program and its interpreter, which come before the mappings among its parts.
const LOADED_PART_COUNT: usize = 2;
/// Bits of a distance in pages.
const PLACE_BITS: u32 = u64::BITS - PAGE_SHIFT;
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
    /// Where the heap is going to begin.
    pub(crate) heap: u64,
    /// What was mapped since, in its order.
    pub(crate) mappings: Vec<Range<u64>>,
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
    Heap,
    /// The mapping of this number since the start.
    Mapping(u8),
}

impl Anchor {
    /// The place of its first page; those of the next anchor come behind its last.
    fn first_place(self) -> u64 {
        let rank = match self {
            Self::Zero => 0,
            Self::Image => 1,
            Self::Interpreter => 2,
            Self::Vdso => 3,
            Self::Stack => 4,
            Self::Heap => 5,
            Self::Mapping(number) => 6 + u64::from(number),
        };
        rank << PLACE_BITS
    }
}

impl StartPlaces {
    fn address_of(&self, anchor: Anchor) -> u64 {
        match anchor {
            Anchor::Zero => 0,
            Anchor::Image => self.image.start,
            Anchor::Interpreter => self.interpreter.start,
            Anchor::Vdso => self.vdso,
            Anchor::Stack => self.stack_top,
            Anchor::Heap => self.heap,
            Anchor::Mapping(number) => self.mappings.get(usize::from(number)).map_or(0, |mapping| mapping.start),
        }
    }

    fn anchor_of(&self, area: &Area, address: u64) -> Option<Anchor> {
        match area.label {
            AreaLabel::Stack => Some(Anchor::Stack),
            AreaLabel::Vdso | AreaLabel::Vvar => Some(Anchor::Vdso),
            AreaLabel::Heap => Some(Anchor::Heap),
            _ if self.image.contains(&area.start) => Some(Anchor::Image),
            _ if self.interpreter.contains(&area.start) => Some(Anchor::Interpreter),
            _ => mapping_of(&self.mappings, address).map(|number| Anchor::Mapping(number as u8)),
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

/// What runs touched of a program, of its interpreter and of what it mapped, and how many of them were looked at.
#[derive(Clone, Debug, Default)]
struct Touched {
    parts: Vec<TouchedPages>,
    look_count: u8,
}

/// What is worth resolving ahead in a space: what was touched, from where its parts lie.
pub(crate) struct Ahead {
    touched: Arc<Touched>,
    loaded: [Range<u64>; LOADED_PART_COUNT],
    mappings: Vec<Range<u64>>,
}

impl Ahead {
    /// The part that holds an address, and its number.
    fn part_of(&self, address: u64) -> Option<(usize, &Range<u64>)> {
        let numbered = |first, parts: &'_ [Range<u64>]| mapping_of(parts, address).map(|number| (first, number));
        let (first, number) = numbered(LOADED_PART_COUNT, &self.mappings).or_else(|| numbered(0, &self.loaded))?;
        let parts = if first == 0 { &self.loaded[..] } else { &self.mappings };
        Some((first + number, parts.get(number)?))
    }

    /// Of the 64 pages from the start of `block` on, a bit each; with `page`, and with the few between two.
    fn of(&self, block: &Range<u64>, page: u64) -> u64 {
        let Some((number, part)) = self.part_of(page << PAGE_SHIFT) else { return u64::MAX };
        let Some(pages) = self.touched.parts.get(number).filter(|pages| !pages.0.is_empty()) else {
            return around(block, page);
        };
        let first = part.start >> PAGE_SHIFT;
        let touched = match block.start.checked_sub(first) {
            Some(distance) => pages.from(distance),
            // A block may begin before the part does.
            None => pages.from(0).checked_shl((first - block.start) as u32).unwrap_or(0),
        };
        let own = 1_u64.checked_shl((page - block.start) as u32).unwrap_or(0);
        bridged(touched | own)
    }
}

/// What a page has to be for an access.
fn flags_of(access: Access) -> PageFlags {
    if access == Access::Write { PageFlags::WRITE } else { PageFlags::MAPPED }
}

/// The neighbours that a fault has, of the 64 pages from the start of `block` on.
fn around(block: &Range<u64>, page: u64) -> u64 {
    let first = (page & !(FAULT_AROUND_PAGES - 1)).max(block.start);
    let count = FAULT_AROUND_PAGES - first % FAULT_AROUND_PAGES;
    ((1 << count) - 1_u64).checked_shl((first - block.start) as u32).unwrap_or(0)
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
    /// Its image, its interpreter, and what it mapped.
    parts: Vec<Range<u64>>,
}

/// A fault at a distance from an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    anchor: Anchor,
    /// Its page, in the order of anchors and of distances from them, which are in pages.
    place: u64,
    access: Access,
    /// The last run that had it.
    run: u64,
    /// It is resolved ahead.
    is_known: bool,
}

impl Fault {
    fn new(anchor: Anchor, distance: u64, access: Access, run: u64, is_known: bool) -> Self {
        Self { anchor, place: anchor.first_place() | distance >> PAGE_SHIFT, access, run, is_known }
    }

    /// Of its page from the anchor, which begins a page itself.
    fn distance(&self) -> u64 {
        self.place << PAGE_SHIFT
    }
}

/// The faults that come first, in the order of their places.
#[derive(Clone)]
pub(crate) struct FirstFaults {
    /// The list stays as it was while a caller resolves it.
    faults: Arc<Vec<Fault>>,
    count_max: usize,
    /// How many runs began.
    run: u64,
    touched: Arc<Touched>,
    /// What the last run mapped after it was loaded.
    mappings: Vec<MappedAs>,
}

impl Default for FirstFaults {
    /// Of children.
    fn default() -> Self {
        Self {
            faults: Arc::default(),
            count_max: CHILD_FAULT_COUNT,
            run: 0,
            touched: Arc::default(),
            mappings: Vec::new(),
        }
    }
}

impl FirstFaults {
    fn is_full(&self) -> bool {
        self.faults.len() >= self.count_max
    }

    /// A new run: what the last one did not repeat of those before it is forgotten. Answers its number.
    fn begin(&mut self) -> u64 {
        let last = self.run;
        let stays = |fault: &Fault| fault.is_known || fault.run == last;
        if !self.faults.iter().all(stays) {
            Arc::make_mut(&mut self.faults).retain(stays);
        }
        self.run += 1;
        self.run
    }

    /// A page that is stored to after it was read is noted once.
    fn note(&mut self, fault: Fault) {
        let (place, is_full) = (fault.place, self.is_full());
        // In the order of places: what is known of neighbouring pages is found together.
        let at = self.faults.partition_point(|other| other.place < place);
        let is_noted = self.faults.get(at).is_some_and(|other| other.place == place);
        let faults = Arc::make_mut(&mut self.faults);
        match faults.get_mut(at).filter(|_| is_noted) {
            Some(known) => {
                known.is_known |= fault.run > known.run;
                known.run = known.run.max(fault.run);
                if fault.access == Access::Write {
                    known.access = Access::Write;
                }
            }
            None if !is_full => faults.insert(at, fault),
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
    pending: Pending,
    /// Enough is known of the heap to be resolved ahead.
    knows_heap: bool,
    /// Mappings that are made are still looked at.
    counts_mappings: bool,
}

impl Notes {
    fn address_of(&self, fault: &Fault) -> u64 {
        self.places.as_ref().map_or(0, |places| places.address_of(fault.anchor)).wrapping_add(fault.distance())
    }

    fn fault_in(&self, area: &Area, address: u64, access: Access) -> Option<Fault> {
        let Some(places) = &self.places else {
            return Some(Fault::new(Anchor::Zero, address, access, self.run, true));
        };
        let anchor = places.anchor_of(area, address)?;
        let distance = address.wrapping_sub(places.address_of(anchor));
        Some(Fault::new(anchor, distance, access, self.run, false))
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
        if let Some((last, faults)) = programs.last()
            && *last == program
        {
            return Arc::clone(faults);
        }
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

/// What a mapping is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MappedAs {
    /// Where the file lies, and which page of it comes first.
    file: Option<(usize, u64)>,
    page_count: u64,
    protection: Protection,
    is_shared: bool,
}

impl MappedAs {
    fn of(range: &Range<u64>, protection: Protection, backing: &Backing) -> Self {
        let file = match backing {
            Backing::Anonymous => None,
            Backing::File(file) => Some(file),
        };
        Self {
            file: file.map(|file| (file.source.place(), file.first_index)),
            page_count: (range.end - range.start) >> PAGE_SHIFT,
            protection,
            is_shared: file.is_some_and(|file| file.is_shared),
        }
    }
}

/// What of a run's mappings was looked at already.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// What was noted of those from this one on is still to be resolved.
    first: usize,
    /// There is some.
    has_some: bool,
    /// Some of it is a file's.
    has_files: bool,
    /// It is resolved now, and waits for no fault.
    is_due: bool,
    /// So much of the heap is new, as distances from its start, and what was noted of it is still to be resolved.
    heap: Option<(u64, u64)>,
}

impl FirstFaults {
    /// A run's mapping `number`: how many faults in it are known.
    fn mapped_as(&mut self, number: usize, mapped_as: MappedAs) -> usize {
        if self.mappings.get(number) != Some(&mapped_as) {
            self.forget_mappings_from(number);
            if self.mappings.len() != number || self.mappings.try_reserve(1).is_err() {
                return 0;
            }
            self.mappings.push(mapped_as);
        }
        let anchor = Anchor::Mapping(number as u8);
        self.known_count(self.between(anchor, anchor))
    }

    /// The faults between two distances from the heap's start.
    fn of_heap(&self, (start, end): (u64, u64)) -> Range<usize> {
        let all = self.between(Anchor::Heap, Anchor::Heap);
        let of_heap = &self.faults[all.clone()];
        let before = |distance: u64| all.start + of_heap.partition_point(|fault| fault.distance() < distance);
        before(start)..before(end)
    }

    /// The faults from one anchor to another.
    fn between(&self, first: Anchor, last: Anchor) -> Range<usize> {
        let (first, end) = (first.first_place(), last.first_place() + (1 << PLACE_BITS));
        let start = self.faults.partition_point(|fault| fault.place < first);
        start..start + self.faults[start..].partition_point(|fault| fault.place < end)
    }

    /// How many of them are resolved ahead.
    fn known_count(&self, noted: Range<usize>) -> usize {
        self.faults[noted].iter().filter(|fault| fault.is_known).count()
    }

    fn forget_mappings_from(&mut self, number: usize) {
        if number >= self.mappings.len() {
            return;
        }
        self.mappings.truncate(number);
        Arc::make_mut(&mut self.faults).retain(|fault| fault.anchor < Anchor::Mapping(number as u8));
        let touched = Arc::make_mut(&mut self.touched);
        touched.parts.truncate(LOADED_PART_COUNT + number);
        // One more run says what is touched of the others.
        touched.look_count = touched.look_count.min(LOOK_COUNT - 1);
    }
}

impl Notes {
    /// Notes a mapping of a program that starts; answers its number, if it has one.
    fn note_mapping(&mut self, range: &Range<u64>, label: AreaLabel, mapped_as: MappedAs) -> Option<usize> {
        let places = self.places.as_mut()?;
        let mappings = &mut places.mappings;
        match label {
            AreaLabel::Heap if self.knows_heap => {
                let heap = places.heap;
                let new = (range.start.saturating_sub(heap), range.end.saturating_sub(heap));
                let faults = self.faults.lock();
                if faults.known_count(faults.of_heap(new)) >= ANONYMOUS_FAULT_COUNT_MIN {
                    self.pending = Pending { heap: Some(new), has_some: true, is_due: true, ..self.pending };
                }
                None
            }
            AreaLabel::None if mappings.len() < MAPPING_COUNT_MAX && mappings.try_reserve(MAPPING_ROOM).is_ok() => {
                let number = mappings.len();
                mappings.push(range.clone());
                let known_count = self.faults.lock().mapped_as(number, mapped_as);
                let has_file = mapped_as.file.is_some() && known_count > 0;
                self.pending.has_some |= has_file || known_count >= ANONYMOUS_FAULT_COUNT_MIN;
                self.pending.has_files |= has_file;
                self.pending.is_due |= self.pending.has_some && mapped_as.file.is_none();
                Some(number)
            }
            _ => {
                self.counts_mappings &= mappings.len() < MAPPING_COUNT_MAX;
                None
            }
        }
    }

    /// What was noted, and which of it is of the mappings and of the heap that there are since the last call.
    fn take_pending(&mut self) -> (Arc<Vec<Fault>>, [Range<usize>; 2]) {
        let Pending { first, heap, .. } = self.pending;
        let count = self.places.as_ref().map_or(0, |places| places.mappings.len());
        self.pending = Pending { first: count, ..Pending::default() };
        let faults = self.faults.lock();
        let heap = heap.map_or(0..0, |new| faults.of_heap(new));
        let mapped = match count.checked_sub(1) {
            Some(last) if first <= last => faults.between(Anchor::Mapping(first as u8), Anchor::Mapping(last as u8)),
            _ => 0..0,
        };
        (Arc::clone(&faults.faults), [heap, mapped])
    }

    /// What runs touched of the parts and mappings of this one, if enough of them were looked at.
    fn ahead(&self) -> Option<Ahead> {
        let touched = self.faults.lock().touched.clone();
        let places = self.places.as_ref().filter(|_| touched.look_count >= LOOK_COUNT_MIN)?;
        let loaded = [places.image.clone(), places.interpreter.clone()];
        Some(Ahead { touched, loaded, mappings: places.mappings.clone() })
    }
}

/// The mapping that holds an address: the last, if it was made over another.
fn mapping_of(mappings: &[Range<u64>], address: u64) -> Option<usize> {
    mappings.iter().rposition(|range| range.contains(&address))
}

#[cfg(test)]
#[path = "first_faults_tests.rs"]
mod tests;
