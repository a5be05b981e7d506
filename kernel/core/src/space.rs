//! Address spaces: page tables in donated frames, written only here.
//!
//! Invariants (INV-4):
//! - a small page's frame counts its mappings, a large page's block does, and only frames of kind
//!   `Owned` are counted;
//! - every mapping of an owned frame in an environment is covered by a capability in that
//!   environment's own table, with the rights that the mapping uses; when a capability goes, what
//!   only it covered is broken before the call ends;
//! - a page table is reachable by its environment only through slot 264 of its root, which points
//!   at the root itself and is not writable, so nothing below it is; slots from 265 on are the
//!   kernel's.
//!
//! A large page's directory entry shows up in the page-table window as a small page that maps the
//! large page's first frame, so breaking a large page flushes that address too.

use core::ops::Range;

use aegis_abi::counter::Counter;
use aegis_abi::layout::{
    LARGE_PAGE_FRAMES, LIBOS_BASE, LIBOS_END, PAGE_SHIFT, PAGE_SIZE, PAGE_TABLE_SLOT, PAGE_TABLE_WINDOW, PROGRAM_BASE,
    PROGRAM_END,
};
use aegis_abi::memory::{BindFlags, entry};
use aegis_abi::share::Table;
use aegis_abi::types::{FrameNumber, Rights, Status};

use crate::id::{DEVICE_COUNT_MAX, DeviceId, EnvironmentId, Id, ProcessorId, SPACE_COUNT_MAX, SpaceId};
use crate::machine::Holders;
use crate::object::{CapRef, Cover, FrameKind, HeldDevices, Tables};
use crate::outcome::Progress;
use crate::{Machine, State};

/// Page-level cache disable and write-through: uncacheable with the power-on PAT.
const UNCACHED: u64 = 1 << 3 | 1 << 4;
const TABLE_FLAGS: u64 = entry::PRESENT | entry::WRITE | entry::USER;
const ENTRIES: usize = 512;
/// First slot of the root that belongs to the library OS window, which all spaces of an environment share.
pub(crate) const WINDOW_SLOT: usize = PAGE_TABLE_SLOT - 8;
/// A cursor of `break_mappings` counts pages of a space below this bit and spaces from it on.
const CURSOR_SPACE_SHIFT: u32 = 36;
/// What a mapping that goes with its table costs of an entry's budget: some 40 instructions.
const UNCOUNT_COST: usize = 12;
/// What one costs that is looked at closely, and broken: some 180.
const BREAK_COST: usize = 48;
/// Pages from which on an unmapping looks for the next page that is mapped rather than at each.
const UNMAP_SKIP_PAGES: u64 = 16;
/// Done as a whole, or not at all.
pub(crate) type Done = Result<(), Status>;

/// A range of the caller's memory, checked to lie in its windows and to be aligned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserSlice {
    address: u64,
    length_bytes: u64,
}

impl UserSlice {
    pub(crate) fn new(address: u64, length_bytes: u64, alignment: u64) -> Result<Self, Status> {
        let is_good = address.is_multiple_of(alignment) && in_windows(address, length_bytes);
        if is_good { Ok(Self { address, length_bytes }) } else { Err(Status::BadAddress) }
    }
}

/// Whether `[address, address + length)` lies in the program's half or in the library OS window.
pub(crate) fn in_windows(address: u64, length_bytes: u64) -> bool {
    let Some(end) = address.checked_add(length_bytes) else { return false };
    (address >= PROGRAM_BASE && end <= PROGRAM_END) || (address >= LIBOS_BASE && end <= LIBOS_END)
}

/// Whether code may be entered there.
pub(crate) fn is_user_code_address(address: u64) -> bool {
    in_windows(address, 1)
}

/// Runs of pages that are flushed one by one, and pages in them; beyond that everything is flushed.
const FLUSH_RUN_COUNT_MAX: usize = 8;
const FLUSH_PAGE_COUNT_MAX: u64 = 32;

/// Translations to remove before a call ends, or an extension's. In this order it is made without being copied.
#[repr(C)]
pub struct Flush {
    /// First address of each run, with its pages in the bits that are 0 there.
    runs: [u64; FLUSH_RUN_COUNT_MAX],
    run_count: usize,
    page_count: u64,
    pub(crate) tables: Tables,
    has_window: bool,
}

impl Flush {
    /// None yet, of a space.
    pub fn new(tables: Tables) -> Self {
        Self { tables, runs: [0; FLUSH_RUN_COUNT_MAX], run_count: 0, page_count: 0, has_window: false }
    }

    /// One more page.
    pub fn add(&mut self, address: u64) {
        self.page_count += 1;
        self.has_window |= address >= LIBOS_BASE;
        if self.page_count > FLUSH_PAGE_COUNT_MAX {
            return;
        }
        if let Some(last) = self.run_count.checked_sub(1).and_then(|last| self.runs.get_mut(last))
            && address == (*last & !(PAGE_SIZE - 1)) + ((*last % PAGE_SIZE) << PAGE_SHIFT)
        {
            *last += 1;
            return;
        }
        if let Some(place) = self.runs.get_mut(self.run_count) {
            *place = address | 1;
        }
        self.run_count += 1;
    }

    pub(crate) fn add_large(&mut self, address: u64) {
        self.add(address);
        self.add(window_address(address));
    }

    /// No processor has them any more.
    pub fn finish<M: Machine>(&self, machine: &mut M) {
        match self.runs.get(..self.run_count).filter(|_| self.page_count <= FLUSH_PAGE_COUNT_MAX) {
            Some(runs) => {
                for run in runs {
                    let address = run & !(PAGE_SIZE - 1);
                    machine.flush_pages(self.tables.holders(address >= LIBOS_BASE), address, run % PAGE_SIZE);
                }
            }
            None => machine.flush_all(self.tables.holders(self.has_window)),
        }
    }
}

/// Where the page table that translates `address` is seen in the page-table window.
fn window_address(address: u64) -> u64 {
    PAGE_TABLE_WINDOW + ((page_number(address) / ENTRIES as u64) << PAGE_SHIFT)
}

pub(crate) fn page_number(address: u64) -> u64 {
    (address & 0x0000_ffff_ffff_ffff) >> PAGE_SHIFT
}

/// The canonical address of a page number.
fn page_address(page: u64) -> u64 {
    (((page << PAGE_SHIFT) << 16) as i64 >> 16) as u64
}

fn index_at(page: u64, level: u32) -> usize {
    (page >> (9 * level)) as usize % ENTRIES
}

pub(crate) fn frame_of(word: u64) -> FrameNumber {
    FrameNumber((word & entry::FRAME_MASK) >> PAGE_SHIFT)
}

fn is_used(word: u64) -> bool {
    word != 0
}

fn is_present(word: u64) -> bool {
    word & entry::PRESENT != 0
}

/// The bits of a leaf entry.
pub(crate) fn leaf_bits(flags: BindFlags) -> u64 {
    let mut bits = entry::PRESENT | entry::USER;
    if flags.contains(BindFlags::WRITE) {
        bits |= entry::WRITE;
    }
    if !flags.contains(BindFlags::EXECUTE) {
        bits |= entry::NO_EXECUTE;
    }
    if flags.contains(BindFlags::UNCACHED) {
        bits |= UNCACHED;
    }
    if flags.contains(BindFlags::LARGE) {
        bits |= entry::LARGE;
    }
    bits
}

/// The rights that a mapping with these flags needs.
pub(crate) fn flag_rights(flags: BindFlags) -> Rights {
    rights(flags.contains(BindFlags::WRITE), flags.contains(BindFlags::EXECUTE))
}

fn leaf_rights(word: u64) -> Rights {
    rights(word & (entry::WRITE | entry::WITHHELD) != 0, word & entry::NO_EXECUTE == 0)
}

#[inline(always)]
fn rights(is_writable: bool, is_executable: bool) -> Rights {
    let mut rights = Rights::READ;
    if is_writable {
        rights |= Rights::WRITE;
    }
    if is_executable {
        rights |= Rights::EXECUTE;
    }
    rights
}

/// A word of a page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    table: FrameNumber,
    index: usize,
}

/// What a page-directory entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directory {
    Absent,
    Large(Place),
    Table(FrameNumber),
}

/// Whose mappings are broken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Broken {
    /// Mappings of these frames that no capability but the one at `except` covers.
    Frames { first: u64, count: u64, except: Option<CapRef> },
    /// Mappings of a device function's regions that none of the functions that are still held has too.
    Device { device: DeviceId, held: HeldDevices },
}

/// Reads the caller's memory through its page tables: no fault can happen.
pub(crate) struct UserReader {
    root: FrameNumber,
    slice: UserSlice,
    /// Page number and frame of the last access.
    last: Option<(u64, FrameNumber)>,
}

impl<M: Machine> State<'_, M> {
    /// The tables of the space that every environment has from the start.
    pub(crate) fn home_tables(&self, environment: EnvironmentId) -> Tables {
        Tables { environment, root: self.environments[environment].root }
    }

    /// The tables of the space that a processor is in.
    pub(crate) fn current_tables(&self, processor: ProcessorId) -> Tables {
        let object = &self.processors[processor];
        Tables { environment: object.environment_id(), root: object.root }
    }

    /// Reads memory of the space that `processor` is in.
    pub(crate) fn user_reader(&self, processor: ProcessorId, slice: UserSlice) -> UserReader {
        UserReader { root: self.processors[processor].root, slice, last: None }
    }

    /// Record number `index` of the slice, which is an array of records of `N` words and 8-byte aligned.
    #[inline(always)]
    pub(crate) fn read_user<const N: usize>(&self, reader: &mut UserReader, index: u64) -> Result<[u64; N], Status> {
        let first = index.checked_mul(N as u64 * 8).ok_or(Status::BadAddress)?;
        if first + (N as u64 - 1) * 8 >= reader.slice.length_bytes {
            return Err(Status::BadAddress);
        }
        let mut address = reader.slice.address + first;
        let at = (address % PAGE_SIZE / 8) as usize;
        if at + N <= ENTRIES {
            return Ok(self.machine.words(self.user_frame(reader, address)?)(at));
        }
        let mut words = [0; N];
        for word in &mut words {
            *word = self.machine.load(self.user_frame(reader, address)?, (address % PAGE_SIZE / 8) as usize);
            address += 8;
        }
        Ok(words)
    }

    /// The frame that the slice's byte at `address` is in.
    #[inline(always)]
    fn user_frame(&self, reader: &mut UserReader, address: u64) -> Result<FrameNumber, Status> {
        let page = page_number(address);
        if let Some((last, frame)) = reader.last
            && last == page
        {
            return Ok(frame);
        }
        let frame = self
            .translate(reader.root, page)
            .filter(|frame| matches!(self.frames.kind(*frame), FrameKind::Owned | FrameKind::Shared))
            .ok_or(Status::BadAddress)?;
        reader.last = Some((page, frame));
        Ok(frame)
    }

    /// The frame that a user page is mapped to.
    #[inline(always)]
    pub(crate) fn translate(&self, root: FrameNumber, page: u64) -> Option<FrameNumber> {
        match self.directory(root, page) {
            Directory::Absent => None,
            Directory::Large(place) => {
                let first = frame_of(self.load(place)).0;
                Some(FrameNumber(first + page % LARGE_PAGE_FRAMES))
            }
            Directory::Table(table) => {
                let word = self.machine.load(table, index_at(page, 0));
                is_present(word).then(|| frame_of(word))
            }
        }
    }

    fn load(&self, place: Place) -> u64 {
        self.machine.load(place.table, place.index)
    }

    #[inline(always)]
    pub(crate) fn directory(&self, root: FrameNumber, page: u64) -> Directory {
        let mut table = root;
        for level in [3, 2] {
            let word = self.machine.load(table, index_at(page, level));
            if !is_present(word) {
                return Directory::Absent;
            }
            table = frame_of(word);
        }
        let place = Place { table, index: index_at(page, 1) };
        let word = self.load(place);
        if !is_present(word) {
            Directory::Absent
        } else if word & entry::LARGE != 0 {
            Directory::Large(place)
        } else {
            Directory::Table(frame_of(word))
        }
    }

    /// The entry that `page` has at `level` (0 page table, 1 directory), with the tables above it
    /// made from donated frames.
    fn make_place(&mut self, tables: Tables, page: u64, level: u32) -> Result<Place, Status> {
        let mut table = tables.root;
        for above in (level + 1..=3).rev() {
            let index = index_at(page, above);
            let word = self.machine.load(table, index);
            if is_present(word) {
                if word & entry::LARGE != 0 {
                    return Err(Status::WrongState);
                }
                table = frame_of(word);
            } else {
                let frame = self.take_donated(tables.environment, FrameKind::PageTable).ok_or(Status::NoTables)?;
                let word = frame.address() | TABLE_FLAGS;
                if above == 3 && index >= WINDOW_SLOT {
                    self.store_window_slot(tables.environment, index, word);
                } else {
                    self.machine.store(table, index, word);
                }
                table = frame;
            }
        }
        Ok(Place { table, index: index_at(page, level) })
    }

    /// Maps one small page; what was there is replaced.
    pub(crate) fn map_small(&mut self, address: u64, frame: FrameNumber, bits: u64, flush: &mut Flush) -> Done {
        let place = self.make_place(flush.tables, page_number(address), 0)?;
        self.map_at(place, address, frame.address() | bits, flush)
    }

    /// For an extension: the small page of memory that a program has at an address, and its entry.
    #[must_use]
    pub fn program_page(&self, tables: Tables, address: u64) -> Option<(Place, u64)> {
        let page = (PROGRAM_BASE..PROGRAM_END).contains(&address).then(|| page_number(address))?;
        let Directory::Table(table) = self.directory(tables.root, page) else { return None };
        let place = Self::small_place(table, page);
        let leaf = self.leaf(place).filter(|leaf| self.frames.kind(frame_of(*leaf)) == FrameKind::Owned)?;
        Some((place, leaf))
    }

    /// The place for a small page at `address`, where that of the page before it may be known.
    #[inline(always)]
    pub(crate) fn place_after(&mut self, tables: Tables, address: u64, last: Option<Place>) -> Result<Place, Status> {
        let page = page_number(address);
        match last.filter(|last| last.index + 1 < ENTRIES) {
            Some(last) => Ok(Place { index: last.index + 1, ..last }),
            None => match self.directory(tables.root, page) {
                Directory::Table(table) => Ok(Self::small_place(table, page)),
                _ => self.make_place(tables, page, 0),
            },
        }
    }

    /// Maps one small page at its place.
    #[inline(always)]
    pub(crate) fn map_at(&mut self, place: Place, address: u64, leaf: u64, flush: &mut Flush) -> Done {
        if !self.frames.count_mapping(frame_of(leaf)) {
            return Err(Status::TableFull);
        }
        let old = self.load(place);
        self.machine.store(place.table, place.index, leaf);
        if is_present(old) {
            self.uncount(flush.tables.environment, old, false);
            flush.add(address);
        }
        self.count(flush.tables.environment, Counter::PagesBound, 1);
        Ok(())
    }

    /// Puts a small page's word, which is counted already or 0, in the place of what was there.
    #[inline(always)]
    pub(crate) fn replace_page(&mut self, tables: Tables, place: Place, (address, new): (u64, u64)) {
        let old = self.load(place);
        if old | new != 0 {
            self.machine.store(place.table, place.index, new);
        }
        if new != 0 {
            self.count(tables.environment, Counter::PagesBound, 1);
        }
        if is_present(old) {
            self.uncount(tables.environment, old, false);
            self.machine.flush_pages(tables.holders(address >= LIBOS_BASE), address, 1);
        }
    }

    /// Maps one large page; an empty page table in its place goes back to the donation.
    pub(crate) fn map_large(&mut self, address: u64, frame: FrameNumber, bits: u64, flush: &mut Flush) -> Done {
        let tables = flush.tables;
        let place = self.make_place(tables, page_number(address), 1)?;
        let old = self.load(place);
        let is_table = is_present(old) && old & entry::LARGE == 0;
        if is_table {
            self.spend(ENTRIES);
            if self.machine.find_word(frame_of(old), 0, is_used).is_some() {
                return Err(Status::WrongState);
            }
        }
        if !self.frames.count_large_mapping(frame) {
            return Err(Status::TableFull);
        }
        self.machine.store(place.table, place.index, frame.address() | bits);
        if is_table {
            flush.add_large(address);
            self.donate_frame(tables.environment, frame_of(old));
        } else {
            self.forget_large(old, address, flush);
        }
        self.count(tables.environment, Counter::PagesBound, LARGE_PAGE_FRAMES);
        Ok(())
    }

    /// Uncounts a mapping that is no longer in the tables.
    fn uncount(&mut self, environment: EnvironmentId, old: u64, is_large: bool) {
        let page_count = if is_large {
            self.frames.uncount_large_mapping(frame_of(old));
            LARGE_PAGE_FRAMES
        } else {
            self.frames.uncount_mapping(frame_of(old));
            1
        };
        self.count(environment, Counter::PagesUnbound, page_count);
    }

    fn forget_large(&mut self, old: u64, address: u64, flush: &mut Flush) {
        if is_present(old) {
            self.uncount(flush.tables.environment, old, true);
            flush.add_large(address);
        }
    }

    /// Unmaps small pages that lie in one page table; passes over the others by many at a time.
    pub(crate) fn unmap_pages(&mut self, table: FrameNumber, pages: Range<u64>, flush: &mut Flush) {
        let mut page = pages.start;
        let mut unbound_count = 0;
        while page < pages.end {
            let index = index_at(page, 0);
            let old = self.machine.load(table, index);
            if old == 0 && pages.end - page >= UNMAP_SKIP_PAGES {
                let found = self.machine.find_word(table, index, is_used).map_or(ENTRIES, |found| found.0);
                page += (found - index) as u64;
                continue;
            }
            if old != 0 {
                self.machine.store(table, index, 0);
            }
            if is_present(old) {
                self.frames.uncount_mapping(frame_of(old));
                flush.add(page_address(page));
                unbound_count += 1;
            }
            page += 1;
        }
        self.count(flush.tables.environment, Counter::PagesUnbound, unbound_count);
    }

    pub(crate) fn unmap_large(&mut self, place: Place, page: u64, flush: &mut Flush) {
        let old = self.load(place);
        self.machine.store(place.table, place.index, 0);
        self.forget_large(old, page_address(page), flush);
    }

    /// The place of a small page in its table.
    pub(crate) fn small_place(table: FrameNumber, page: u64) -> Place {
        Place { table, index: index_at(page, 0) }
    }

    /// A leaf that maps something.
    pub(crate) fn leaf(&self, place: Place) -> Option<u64> {
        Some(self.load(place)).filter(|word| is_present(*word))
    }

    /// Clears and sets bits of a leaf that was `old`, without losing accessed and dirty bits that the
    /// processor sets meanwhile; true if that changes it, so that it is to be flushed. Inline: a call of it is a fifth
    /// of what protecting a page costs.
    #[inline(always)]
    pub fn change_leaf(&mut self, place: Place, mut old: u64, (clear, set): (u64, u64)) -> bool {
        if old & !clear | set == old {
            return false;
        }
        // The processor sets at most two more bits.
        for _ in 0..4 {
            let new = old & !clear | set;
            match self.machine.compare_exchange(place.table, place.index, old, new) {
                Ok(()) => break,
                Err(seen) => old = seen,
            }
        }
        true
    }

    /// As that, of a small page that maps something, and no translation of it is left.
    #[inline(always)]
    pub(crate) fn change_page(&mut self, tables: Tables, place: Place, bits: (u64, u64), address: u64) {
        let old = self.load(place);
        if self.change_leaf(place, old, bits) {
            self.machine.flush_pages(tables.holders(address >= LIBOS_BASE), address, 1);
        }
    }

    /// The first page from `page` on and before `end` whose directory entry is present, with that entry; or, with
    /// `Absent`, where to go on when the budget is used up.
    fn next_directory(&mut self, root: FrameNumber, mut page: u64, end: u64) -> Option<(u64, Directory)> {
        'from_root: while page < end {
            if self.work_left == 0 {
                return Some((page, Directory::Absent));
            }
            let mut table = root;
            for level in [3, 2, 1] {
                let from = index_at(page, level);
                let found = self.machine.find_word(table, from, is_used);
                let index = found.map_or(ENTRIES, |found| found.0);
                self.spend(index - from + 1);
                if index != from {
                    page = ((page >> (9 * level)) + (index - from) as u64) << (9 * level);
                }
                let Some((_, word)) = found.filter(|_| page < end) else {
                    continue 'from_root;
                };
                if level > 1 {
                    table = frame_of(word);
                } else if word & entry::LARGE != 0 {
                    return Some((page, Directory::Large(Place { table, index })));
                } else {
                    return Some((page, Directory::Table(frame_of(word))));
                }
            }
        }
        None
    }

    /// Breaks mappings in every space of an environment, from `cursor` on, which it advances, until the budget is used
    /// up. The window is looked at once, in the home space.
    pub(crate) fn break_mappings(&mut self, environment: EnvironmentId, broken: Broken, cursor: &mut u64) -> Progress {
        loop {
            let number = (*cursor >> CURSOR_SPACE_SHIFT) as usize;
            let (tables, slot_end) = match number.checked_sub(1) {
                None => (Some(self.home_tables(environment)), PAGE_TABLE_SLOT),
                Some(index) => match SpaceId::from_index(index) {
                    None => return Ok(()),
                    Some(space) => (self.space_tables(space, environment), WINDOW_SLOT),
                },
            };
            if let Some(tables) = tables {
                let space_bits = *cursor >> CURSOR_SPACE_SHIFT << CURSOR_SPACE_SHIFT;
                let mut page = *cursor ^ space_bits;
                let progress = self.break_mappings_in(tables, (slot_end as u64) << 27, broken, &mut page);
                *cursor = space_bits | page;
                progress?;
            }
            let space_count = self.environments[environment].used[Table::Spaces as usize];
            let end = if space_count == 0 { number } else { SPACE_COUNT_MAX };
            let mut spaces = (number..end).filter_map(SpaceId::from_index);
            let next = spaces.find(|space| self.spaces[*space].environment == Some(environment));
            self.spend(2 * (next.map_or(end, |space| space.index()) - number) + 1);
            let Some(next) = next else { return Ok(()) };
            *cursor = (next.index() as u64 + 1) << CURSOR_SPACE_SHIFT;
            self.check_budget()?;
        }
    }

    fn break_mappings_in(&mut self, tables: Tables, page_end: u64, broken: Broken, cursor: &mut u64) -> Progress {
        let mut flush = Flush::new(tables);
        let mut cover = Cover::EMPTY;
        let mut progress = Ok(());
        while let Some((page, directory)) = self.next_directory(tables.root, *cursor, page_end) {
            // A cursor in the middle of a page table goes on there.
            let next = (page / LARGE_PAGE_FRAMES + 1) * LARGE_PAGE_FRAMES;
            *cursor = match directory {
                Directory::Absent => page,
                Directory::Large(place) => {
                    if self.is_broken(tables.environment, broken, self.load(place), &mut cover) {
                        self.unmap_large(place, next - LARGE_PAGE_FRAMES, &mut flush);
                    }
                    next
                }
                Directory::Table(table) => self.break_pages(table, page..next, broken, (&mut cover, &mut flush)),
            };
            progress = self.check_budget();
            if progress.is_err() {
                break;
            }
        }
        flush.finish(&mut self.machine);
        progress
    }

    /// Breaks mappings of pages that lie in one page table; the first page that was not looked at.
    fn break_pages(
        &mut self,
        table: FrameNumber,
        pages: Range<u64>,
        broken: Broken,
        (cover, flush): (&mut Cover, &mut Flush),
    ) -> u64 {
        let mut page = pages.start;
        while page < pages.end && self.work_left != 0 {
            let from = index_at(page, 0);
            // Few words lead to what is broken, and those alone are looked at closely.
            let found = self.machine.find_word(table, from, |word| match broken {
                Broken::Frames { first, count, .. } => frame_of(word).0.wrapping_sub(first) < count,
                Broken::Device { .. } => is_used(word),
            });
            let passed = found.map_or(ENTRIES, |found| found.0) - from;
            self.spend(passed + 1);
            page += passed as u64;
            if let Some((_, word)) = found {
                if is_used(word) && self.is_broken(flush.tables.environment, broken, word, cover) {
                    self.unmap_pages(table, page..page + 1, flush);
                }
                page += 1;
            }
        }
        page
    }

    /// Whether a leaf has to go.
    fn is_broken(&mut self, environment: EnvironmentId, broken: Broken, word: u64, cover: &mut Cover) -> bool {
        let frame = frame_of(word).0;
        let is_large = word & entry::LARGE != 0;
        let pages = if is_large { LARGE_PAGE_FRAMES } else { 1 };
        match broken {
            Broken::Frames { first, count, except } => {
                self.spend(BREAK_COST);
                frame < first.saturating_add(count)
                    && first < frame + pages
                    && !self.is_covered(environment, (frame, pages), leaf_rights(word), except, cover)
            }
            Broken::Device { device, held } => {
                if is_large
                    || self.frames.kind(FrameNumber(frame)) != FrameKind::Reserved
                    || !self.devices[device].has_page(frame)
                {
                    return false;
                }
                self.spend(DEVICE_COUNT_MAX);
                let kind = if leaf_rights(word).contains(Rights::WRITE) { 2 } else { 1 };
                !self.devices.iter().any(|(id, other)| held.has(id, kind) && other.has_page(frame))
            }
        }
    }

    /// Takes the user page tables below the first `slot_end` slots of a root apart, a bounded piece
    /// at a time. No processor is in that space any more.
    pub(crate) fn tear_down(&mut self, tables: Tables, slot_end: usize) -> Progress {
        self.tear_down_below(tables.environment, tables.root, 3, slot_end)?;
        self.machine.flush_all(Holders::Root(tables.root));
        Ok(())
    }

    /// Takes apart what the first words of a table at `level` (3 the root, 0 a page table) lead to. A page table is
    /// done as a whole, so that no mapping is uncounted twice.
    fn tear_down_below(&mut self, environment: EnvironmentId, table: FrameNumber, level: u32, end: usize) -> Progress {
        self.spend(ENTRIES);
        let mut from = 0;
        while let Some((index, word)) = self.machine.find_word(table, from, is_used).filter(|next| next.0 < end) {
            from = index + 1;
            if level == 0 {
                self.spend(UNCOUNT_COST);
                self.uncount(environment, word, false);
                continue;
            }
            if level == 1 && word & entry::LARGE != 0 {
                self.uncount(environment, word, true);
            } else {
                let below = frame_of(word);
                self.tear_down_below(environment, below, level - 1, ENTRIES)?;
                self.donate_frame(environment, below);
            }
            self.machine.store(table, index, 0);
            self.check_budget()?;
        }
        Ok(())
    }

    /// Fills a new root table: the kernel's shared entries, and the environment's read-only view of
    /// its own tables.
    pub(crate) fn prepare_root(&mut self, root: FrameNumber) {
        for index in PAGE_TABLE_SLOT + 1..ENTRIES {
            // Whatever the template says, user mode reaches nothing through these.
            let word = self.machine.load(self.template_root, index) & !entry::USER;
            self.machine.store(root, index, word);
        }
        let own = root.address() | entry::PRESENT | entry::USER | entry::NO_EXECUTE;
        self.machine.store(root, PAGE_TABLE_SLOT, own);
    }
}
