//! First faults as an address space notes and repeats them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use aegis_abi::layout::PAGE_SHIFT;

use super::{
    ANONYMOUS_FAULT_COUNT_MIN, Ahead, Anchor, Fault, FirstFaults, LOADED_PART_COUNT, LOOK_COUNT, LOOK_COUNT_MIN,
    MappedAs, Notes, Pending, START_FAULT_REACH, Start, StartPlaces, TOUCHED_PAGE_COUNT_MAX, Touched, TouchedPages,
    flags_of,
};
use crate::mem::area::{Access, Area, AreaFlags, AreaLabel, Backing, Protection};
use crate::mem::fault::SCARCE_FRAMES;
use crate::mem::page_map::{PageEntry, PageFlags};
use crate::mem::source::{FileIdentity, Wait};
use crate::mem::space::AddressSpace;
use crate::sync::Mutex;

impl AddressSpace {
    /// In a child: what the children before it touched first.
    pub(crate) fn start_as_child(&mut self, faults: Arc<Mutex<FirstFaults>>) {
        let pending = Pending::default();
        self.repeat_first_faults(Notes {
            faults,
            places: None,
            run: 0,
            left_count: u64::MAX,
            pending,
            knows_heap: false,
            counts_mappings: false,
        });
    }

    /// For a program that was loaded: what its runs before touched first.
    pub(crate) fn start_as_before(&mut self, program: FileIdentity, places: StartPlaces) {
        let image = if places.is_image_fixed { places.image.clone() } else { 0..0 };
        self.keep_for_start(program, [image, places.interpreter.clone()]);
        self.adopt_start();
        let faults = self.shared.start_faults().of(program);
        let (run, touched) = {
            let mut faults = faults.lock();
            (faults.begin(), faults.touched.clone())
        };
        let loaded = [places.image.clone(), places.interpreter.clone()];
        if touched.look_count < LOOK_COUNT {
            self.start = Some(Start { faults: faults.clone(), parts: loaded.clone().into() });
        }
        if touched.look_count >= LOOK_COUNT_MIN {
            self.ahead = Some(Ahead { touched, loaded, mappings: Vec::new() });
        }
        let (places, pending) = (Some(places), Pending::default());
        self.repeat_first_faults(Notes {
            faults,
            places,
            run,
            left_count: START_FAULT_REACH,
            pending,
            knows_heap: false,
            counts_mappings: true,
        });
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
        if touched.parts.len() < parts.len() {
            touched.parts.resize(parts.len(), TouchedPages::default());
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
    fn repeat_first_faults(&mut self, mut notes: Notes) {
        let noted = notes.faults.lock().faults.clone();
        // What is not mapped yet comes last.
        let loaded_count = noted.partition_point(|fault| fault.place < Anchor::Heap.first_place());
        self.resolve_noted(&notes, &noted[..loaded_count]);
        let heap = noted[loaded_count..].iter().take_while(|fault| fault.anchor == Anchor::Heap);
        notes.knows_heap = heap.filter(|fault| fault.is_known).count() >= ANONYMOUS_FAULT_COUNT_MIN;
        // A refused mapping is not in the page map, and faults again.
        let _ = self.flush();
        self.notes = Some(notes);
    }

    /// Queues the mappings for faults that were noted, as far as they can be had without a wait.
    fn resolve_noted(&mut self, notes: &Notes, faults: &[Fault]) {
        if self.pool.frames_available() < SCARCE_FRAMES {
            return;
        }
        for fault in faults.iter().filter(|fault| fault.is_known) {
            let address = notes.address_of(fault);
            let known = self.pages.get(address >> PAGE_SHIFT);
            // Most came with the space.
            if known.is_some_and(|entry| entry.has(flags_of(fault.access))) {
                continue;
            }
            if let Some((area, access)) = self.access_ahead(address, fault.access, known) {
                let _ = self.resolve_in(&area, address >> PAGE_SHIFT, access, Wait::Refused);
            }
        }
    }

    /// In which area and as which access a fault that may not come is resolved; `None`: it is not, or was.
    ///
    /// A store to shared memory tells the file's source, which one that does not come must not. A private page of a
    /// file that can change shows the changes until it is stored to, so it is only read ahead.
    #[inline(always)]
    fn access_ahead(&self, address: u64, access: Access, known: Option<PageEntry>) -> Option<(Area, Access)> {
        let page = address >> PAGE_SHIFT;
        let area = self.areas.find(address).filter(|area| !area.is_shared())?;
        let can_change = |frame| !self.pool.is_immutable(frame);
        let shows_file = || match (&area.backing, known) {
            (Backing::Anonymous, _) => false,
            (_, Some(entry)) => !entry.has(PageFlags::OWNED) && can_change(entry.frame()),
            (Backing::File(file), None) => {
                file.source.resident_page(area.file_index(page)).is_none_or(|found| can_change(found.frame.frame()))
            }
        };
        let access = if access == Access::Write && shows_file() { Access::Read } else { access };
        let is_there = known.is_some_and(|entry| entry.has(flags_of(access)));
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

impl AddressSpace {
    /// Counts a new area, if it is one of those that follow a program's load.
    #[inline(always)]
    pub(crate) fn note_mapping(
        &mut self,
        range: &Range<u64>,
        (protection, label): (Protection, AreaLabel),
        backing: &Backing,
    ) {
        if self.notes.as_ref().is_some_and(|notes| notes.counts_mappings) {
            self.note_first_mapping(range, (protection, label), backing);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_first_mapping(
        &mut self,
        range: &Range<u64>,
        (protection, label): (Protection, AreaLabel),
        backing: &Backing,
    ) {
        let mapped_as = MappedAs::of(range, protection, backing);
        let number = self.notes.as_mut().and_then(|notes| notes.note_mapping(range, label, mapped_as));
        let (Some(number), Some(start)) = (number, self.start.as_mut()) else { return };
        if start.parts.len() == LOADED_PART_COUNT + number && start.parts.try_reserve(1).is_ok() {
            // Of memory that is no file's, what is touched of it says nothing.
            start.parts.push(if mapped_as.file.is_some() { range.clone() } else { 0..0 });
        }
    }

    /// A mapping was made: resolves what was noted of anonymous memory, with all that waits for that.
    #[inline(always)]
    pub(crate) fn repeat_in_mapping(&mut self) {
        if self.notes.as_ref().is_some_and(|notes| notes.pending.is_due) {
            self.repeat_in_new_mapping();
        }
    }

    #[cold]
    #[inline(never)]
    fn repeat_in_new_mapping(&mut self) {
        if self.resolve_pending() {
            // A refused mapping is not in the page map, and faults again.
            let _ = self.flush();
        }
    }

    /// At a fault: queues what was noted of mappings that were made since the last. True: the page at `address` came
    /// with them, for this access.
    pub(crate) fn repeat_in_mappings(&mut self, address: u64, access: Access) -> bool {
        let page = address >> PAGE_SHIFT;
        let was_known = self.pages.get(page).is_some();
        self.resolve_pending() && !was_known && self.pages.get(page).is_some_and(|entry| entry.has(flags_of(access)))
    }

    /// Whether there is anything for [`Self::repeat_in_mappings`].
    pub(crate) fn has_pending_notes(&self) -> bool {
        self.notes.as_ref().is_some_and(|notes| notes.pending.has_some)
    }

    fn resolve_pending(&mut self) -> bool {
        let Some(mut notes) = self.notes.take_if(|notes| notes.pending.has_some) else { return false };
        if notes.pending.has_files {
            self.ahead = notes.ahead();
        }
        let (noted, pending) = notes.take_pending();
        for part in pending.into_iter().filter(|part| !part.is_empty()) {
            self.resolve_noted(&notes, &noted[part]);
        }
        self.ahead = None;
        self.notes = Some(notes);
        true
    }
}
