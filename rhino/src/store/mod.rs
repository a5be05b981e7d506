//! Transactions on segments: what is open, what is in memory, what is on the medium.
//!
//! Calls come from one thread at a time; a back end puts a lock around the store, and may flush the log without it
//! ([`Store::commit_begin`], [`Store::flush_begin`]), so that commits that come meanwhile share the next flush.
//!
//! # Invariants
//!
//! - STORE-1 A commit is one write and one flush at the medium of the log, or none if nothing was changed.
//! - STORE-2 A page with uncommitted changes goes to its segment only when its old bytes are in the log, flushed; a
//!   page with committed ones only when their record is flushed.
//! - STORE-3 Between transactions the program has access to nothing (but for [`Detector::DirtyBits`]): each first touch
//!   is a fault, which takes the lock.
//! - STORE-4 A page that is not in memory is in its segment as memory would have it.
//! - STORE-5 The log always has room for the end of every transaction that has holds.
//! - STORE-6 What fails changes nothing: a commit that fails is an abort.
//!
//! Neighbours: [`crate::log`] keeps the records, [`crate::lock`] the locks, [`Memory`] is a region's pages. The files
//! here: `fault` (touches), `direct` (loads and stores by call), `commit`, `evict` (steal), `truncate`, `double` (pages
//! written twice), `replay` (what records mean), `entry` (their bytes).
#![forbid(unsafe_code)]

mod commit;
mod diff;
mod direct;
mod double;
mod entry;
mod evict;
mod fault;
mod open;
mod replay;
mod truncate;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use self::double::Area;
use self::replay::Hold;
use self::truncate::Truncation;
use crate::error::Error;
use crate::lock::{LockTable, PageName};
use crate::log::{Log, Start};
use crate::medium::{Medium, MediumError};
use crate::memory::{Access, Memory, PAGE_BYTES, Page};
use crate::{Detector, Restore};

pub use self::commit::Pending;
pub use self::double::{AREA_BYTES_MAX, AREA_BYTES_MIN};
pub use self::fault::Outcome;
pub use self::open::{Report, SEGMENT_COUNT_MAX};

/// Most regions of a store.
pub const REGION_COUNT_MAX: usize = 1024;
/// Most transactions at once.
pub const TRANSACTION_COUNT_MAX: usize = 1024;

/// Most pages that are kept to work on.
const SCRATCH_COUNT_MAX: usize = 2;

/// A region: pages of a segment in an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionId(u32);

/// A transaction. A larger number is younger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(u64);

impl TransactionId {
    /// The transaction's number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The transaction with a number; the store knows whether there is one.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// An address space: a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerId(pub u64);

/// How a store behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Pages in memory and shadows, all regions together: above this the store writes pages to their segments and takes
    /// them out of memory, uncommitted ones too.
    pub frame_count_max: usize,
    /// How full the log is, in percent, when commits begin to truncate it; above 100 they never do.
    pub truncate_percent: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self { frame_count_max: usize::MAX, truncate_percent: 50 }
    }
}

/// What a store has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commits that wrote.
    pub commit_count: u64,
    /// Commits that had changed nothing.
    pub read_only_count: u64,
    /// Aborts, asked for or not.
    pub abort_count: u64,
    /// Pages read from segments.
    pub fetch_count: u64,
    /// Pages taken out of memory.
    pub evict_count: u64,
    /// Pages that were looked at for that.
    pub examined_count: u64,
    /// Those of them with uncommitted changes.
    pub steal_count: u64,
    /// Bytes of payload that commits wrote.
    pub payload_bytes: u64,
    /// Truncations that ended.
    pub truncation_count: u64,
}

/// A segment on its medium.
#[derive(Debug)]
struct Segment<M> {
    medium: M,
    page_count: u64,
    /// A bit for each page: it is in memory.
    present: Vec<u64>,
}

impl<M: Medium> Segment<M> {
    fn read(&self, page: u64, into: &mut Page) -> Result<(), MediumError> {
        self.medium.read(page * PAGE_BYTES as u64, into)
    }

    fn write(&self, page: u64, from: &Page) -> Result<(), MediumError> {
        self.medium.write(page * PAGE_BYTES as u64, from)
    }

    fn is_present(&self, page: u64) -> bool {
        self.present.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    fn set_present(&mut self, page: u64, is_present: bool) {
        if let Some(word) = self.present.get_mut((page / 64) as usize) {
            let bit = 1 << (page % 64);
            if is_present { *word |= bit } else { *word &= !bit }
        }
    }
}

#[derive(Debug)]
struct Region<P> {
    owner: OwnerId,
    segment: u32,
    first_page: u64,
    page_count: u64,
    detector: Detector,
    memory: P,
}

impl<P> Region<P> {
    /// The page of the region that is this one of the segment.
    fn page(&self, name: PageName) -> Option<usize> {
        let page = name.1.checked_sub(self.first_page).filter(|&page| page < self.page_count)?;
        (name.0 == self.segment).then_some(page as usize)
    }
}

/// What a page's segment knows of it; numbers are those of records.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The last commit or abort that changed it.
    committed: u64,
    /// The segment on the medium has everything up to here.
    written: u64,
}

/// What a transaction has declared of a page.
#[derive(Debug)]
struct Declared {
    /// Set ranges, in order and apart from each other.
    ranges: Vec<(usize, usize)>,
    /// What was in them.
    old: Vec<(usize, Vec<u8>)>,
}

impl Declared {
    const fn new() -> Self {
        Self { ranges: Vec::new(), old: Vec::new() }
    }
}

/// What a transaction has done to a page.
#[derive(Debug)]
struct Touch {
    region: u32,
    /// Counted from the region's first.
    page: usize,
    /// What the program may do with the page now.
    access: Access,
    /// Few touches have any: apart, the map of touches moves less.
    declared: Option<Box<Declared>>,
    /// The log has the old page (page-grain).
    is_logged: bool,
    /// The store has stored into it for the program (page-grain; others declare).
    is_stored: bool,
    /// The segment has uncommitted bytes of the page.
    is_stolen: bool,
}

impl Touch {
    fn new(region: u32, page: usize) -> Self {
        Self {
            region,
            page,
            access: Access::None,
            declared: None,
            is_logged: false,
            is_stored: false,
            is_stolen: false,
        }
    }

    /// These bytes are declared. So the page is locked and in memory: what leaves it is declared no more.
    fn covers(&self, (start, stop): (usize, usize)) -> bool {
        let ranges = &self.declared().ranges;
        let next = ranges.partition_point(|range| range.0 <= start);
        next.checked_sub(1).and_then(|place| ranges.get(place)).is_some_and(|range| range.1 >= stop)
    }

    fn declared(&self) -> &Declared {
        static NOTHING: Declared = Declared::new();
        self.declared.as_deref().unwrap_or(&NOTHING)
    }

    /// The program may touch the page, or has bytes in it that are nowhere else.
    fn is_open(&self) -> bool {
        self.access > Access::None || self.is_changed()
    }

    /// The page may have uncommitted bytes that are not in its segment.
    fn is_changed(&self) -> bool {
        self.access == Access::Write || self.is_stored || self.declared.is_some()
    }

    /// What the page was before stores by call, if `page` is what it was before the program's own.
    fn take_back(&self, page: &mut Page) {
        for (start, bytes) in &self.declared().old {
            page[*start..*start + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// It is not in memory any more; what was changed is in the log.
    fn leave_memory(&mut self) {
        self.access = Access::None;
        self.is_stored = false;
        self.declared = None;
    }
}

#[derive(Debug)]
struct Transaction {
    owner: OwnerId,
    restore: Restore,
    touches: BTreeMap<PageName, Touch>,
    holds: Vec<Hold>,
    /// Where the first hold lies: the log is not truncated beyond.
    hold_start: Option<Start>,
    /// Why it can only be aborted.
    failure: Option<Error>,
    /// Its commit is in the log, and may not last yet.
    is_ending: bool,
    /// Pages whose dirty bits its commit has cleared.
    dirty: Vec<(PageName, u32)>,
}

/// The bytes of a transaction that has ended with holds, in the log.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Start,
    end: u64,
}

/// Segments, their log, and the transactions on them.
#[derive(Debug)]
pub struct Store<M, P> {
    log: Log<M>,
    segments: Vec<Segment<M>>,
    area: Option<Area<M>>,
    /// Bytes of each segment.
    segment_bytes: Vec<u64>,
    regions: BTreeMap<u32, Region<P>>,
    transactions: BTreeMap<u64, Transaction>,
    locks: LockTable,
    /// A region's memory answers touches by itself, or did.
    has_answering: bool,
    marks: BTreeMap<PageName, Mark>,
    /// Committed pages whose segment is behind, for dirty bits to compare with.
    images: BTreeMap<PageName, Box<Page>>,
    spans: Vec<Span>,
    truncation: Option<Truncation>,
    options: Options,
    counters: Counters,
    next_region: u32,
    next_transaction: u64,
    present_count: usize,
    shadow_count: usize,
    /// Where the search for a page to evict goes on.
    hand: PageName,
    payload: Vec<u8>,
    /// Pages to work on, for the next that needs one; what is in them means nothing.
    scratch: Vec<Box<Page>>,
}

impl<M: Medium, P: Memory> Store<M, P> {
    /// A page to work on, with anything in it.
    fn take_scratch(&mut self) -> Box<Page> {
        self.scratch.pop().unwrap_or_else(|| Box::new([0; PAGE_BYTES]))
    }

    /// Has a page be the next that is worked on.
    fn put_scratch(&mut self, page: Box<Page>) {
        if self.scratch.len() < SCRATCH_COUNT_MAX {
            self.scratch.push(page);
        }
    }

    /// Maps pages of a segment. The memory is closed, but for [`Detector::DirtyBits`]; regions of one segment share
    /// their pages.
    ///
    /// # Errors
    /// [`Error::NoSegment`], [`Error::OutOfRange`], [`Error::Limit`]; [`Error::Busy`] if the owner has mapped some of
    /// the pages, or one of two owners of the segment wants dirty bits; the memory's.
    pub fn map(
        &mut self,
        owner: OwnerId,
        segment: u32,
        first_page: u64,
        detector: Detector,
        mut memory: P,
    ) -> Result<RegionId, Error> {
        let page_count = memory.page_count() as u64;
        let end = first_page.checked_add(page_count).ok_or(Error::OutOfRange)?;
        let known = self.segments.get(segment as usize).ok_or(Error::NoSegment)?;
        if page_count == 0 || end > known.page_count {
            return Err(Error::OutOfRange);
        }
        if self.regions.len() >= REGION_COUNT_MAX {
            return Err(Error::Limit);
        }
        for other in self.regions.values().filter(|other| other.segment == segment) {
            let is_apart = other.first_page + other.page_count <= first_page || end <= other.first_page;
            let is_alone = detector == Detector::DirtyBits || other.detector == Detector::DirtyBits;
            if (other.owner == owner && !is_apart) || (other.owner != owner && is_alone) {
                return Err(Error::Busy);
            }
        }
        memory.protect(0..page_count as usize, Access::None)?;
        self.has_answering |= memory.answers_touches();
        let id = self.next_region;
        self.next_region += 1;
        self.regions.insert(id, Region { owner, segment, first_page, page_count, detector, memory });
        if detector == Detector::DirtyBits
            && let Err(error) = self.open_all(id)
        {
            // What came into memory for it goes, as when any region ends.
            self.unmap(RegionId(id))?;
            return Err(error);
        }
        Ok(RegionId(id))
    }

    /// Ends a region; what was committed in it stays.
    ///
    /// # Errors
    /// [`Error::NoRegion`]; [`Error::Busy`] while a transaction has touched it; the medium's, and the region is still
    /// there.
    pub fn unmap(&mut self, region: RegionId) -> Result<P, Error> {
        let owner = self.regions.get(&region.0).ok_or(Error::NoRegion)?.owner;
        let theirs = self.transactions.iter().filter(|(_, known)| known.owner == owner && !known.is_ending);
        for id in theirs.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.take_touched(id)?;
        }
        let known = self.regions.get(&region.0).ok_or(Error::NoRegion)?;
        let is_touched = |transaction: &Transaction| transaction.touches.values().any(|touch| touch.region == region.0);
        if self.transactions.values().any(is_touched) {
            return Err(Error::Busy);
        }
        let (segment, first, end) = (known.segment, known.first_page, known.first_page + known.page_count);
        for page in first..end {
            let name = (segment, page);
            let is_elsewhere = self.regions.iter().any(|(id, other)| *id != region.0 && other.page(name).is_some());
            if self.segments[segment as usize].is_present(page) && !is_elsewhere {
                self.evict_committed(name)?;
            }
        }
        self.regions.remove(&region.0).map(|region| region.memory).ok_or(Error::NoRegion)
    }

    /// A region's memory.
    pub fn memory(&mut self, region: RegionId) -> Option<&mut P> {
        self.regions.get_mut(&region.0).map(|region| &mut region.memory)
    }

    /// Begins a transaction of an address space.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::Busy`] if it has another and a region with dirty bits, which tell no two apart;
    /// [`Error::Broken`].
    pub fn begin(&mut self, owner: OwnerId, restore: Restore) -> Result<TransactionId, Error> {
        if self.log.ring.is_broken() {
            return Err(Error::Broken);
        }
        if self.transactions.len() >= TRANSACTION_COUNT_MAX {
            return Err(Error::Limit);
        }
        let has_dirty_bits =
            || self.regions.values().any(|region| region.owner == owner && region.detector == Detector::DirtyBits);
        if self.transactions.values().any(|transaction| transaction.owner == owner) && has_dirty_bits() {
            return Err(Error::Busy);
        }
        let id = self.next_transaction;
        self.next_transaction += 1;
        let transaction = Transaction {
            owner,
            restore,
            touches: BTreeMap::new(),
            holds: Vec::new(),
            hold_start: None,
            failure: None,
            is_ending: false,
            dirty: Vec::new(),
        };
        self.transactions.insert(id, transaction);
        Ok(TransactionId(id))
    }

    /// Why the transaction can only be aborted; `None` while it can commit.
    pub fn failure(&self, transaction: TransactionId) -> Option<Error> {
        let known = self.transactions.get(&transaction.0)?;
        known.failure.or_else(|| self.locks.is_victim(transaction.0).then_some(Error::Deadlock))
    }

    /// Grows whenever a transaction that waits for a lock should ask again.
    pub fn release_count(&self) -> u64 {
        self.locks.release_count()
    }

    /// An address space is gone: its transactions are aborted and its regions unmapped. Commits that are in the log
    /// already end as they would have; call again after them.
    ///
    /// # Errors
    /// The medium's; the store is broken then. [`Error::Busy`] while one of its commits is under way.
    pub fn owner_died(&mut self, owner: OwnerId) -> Result<(), Error> {
        let dead = |(id, transaction): (&u64, &Transaction)| {
            (transaction.owner == owner && !transaction.is_ending).then_some(*id)
        };
        let transactions: Vec<u64> = self.transactions.iter().filter_map(dead).collect();
        for id in transactions {
            self.abort(TransactionId(id))?;
        }
        let regions: Vec<u32> =
            self.regions.iter().filter(|(_, region)| region.owner == owner).map(|(id, _)| *id).collect();
        for id in regions {
            self.unmap(RegionId(id))?;
        }
        Ok(())
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The log: how full it is, what was flushed.
    pub fn log(&self) -> &Log<M> {
        &self.log
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self, segment: u32) -> Option<u64> {
        self.segment_bytes.get(segment as usize).copied()
    }

    /// Makes all that was committed last.
    ///
    /// # Errors
    /// The medium's; the store is broken then.
    pub fn flush(&mut self) -> Result<(), Error> {
        Ok(self.log.ring.flush()?)
    }

    /// True if the segment is behind what was committed of the page.
    fn is_behind(&self, name: PageName) -> bool {
        let start = self.log.ring.start().sequence;
        self.marks.get(&name).is_some_and(|mark| mark.committed > mark.written && mark.committed >= start)
    }

    /// A live transaction that may have changed the page.
    fn writer(&self, name: PageName) -> Option<u64> {
        let writes = |touch: &Touch| touch.is_changed() || touch.is_stolen || touch.is_logged;
        self.transactions
            .iter()
            .find(|(_, transaction)| transaction.touches.get(&name).is_some_and(writes))
            .map(|(id, _)| *id)
    }

    /// Records of a block for which room is kept: the ends of transactions that have holds, and of `more`.
    fn spare_count(&self, more: usize) -> usize {
        self.transactions.values().filter(|transaction| transaction.hold_start.is_some()).count() + more
    }
}
