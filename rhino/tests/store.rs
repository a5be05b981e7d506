//! What a store promises besides surviving crashes: what a commit costs the medium, what is refused, what happens when
//! the medium fails or is full.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use rhino::fake::{Disk, Fate, Fault, Pages};
use rhino::log::LOG_BYTES_MIN;
use rhino::{
    Access, Detector, Durability, Error, MediumError, Options, Outcome, OwnerId, PAGE_BYTES, RegionId, Restore, Store,
    TransactionId,
};

const OWNER: OwnerId = OwnerId(1);
const OTHER: OwnerId = OwnerId(2);

struct Machine {
    log: Disk,
    segment: Disk,
    store: Store<Disk, Pages>,
}

impl Machine {
    fn new(log_bytes: usize, page_count: usize) -> Self {
        Self::with_frames(log_bytes, page_count, usize::MAX)
    }

    fn with_frames(log_bytes: usize, page_count: usize, frame_count_max: usize) -> Self {
        let (log, segment) = (Disk::new(log_bytes), Disk::new(page_count * PAGE_BYTES));
        let options = Options { truncate_percent: 101, frame_count_max };
        let store = Store::create(log.clone(), vec![segment.clone()], 77, options).unwrap();
        Self { log, segment, store }
    }

    fn map(&mut self, owner: OwnerId, detector: Detector, pages: &Pages) -> RegionId {
        self.store.map(owner, 0, 0, detector, pages.clone()).unwrap()
    }

    fn put(&mut self, id: TransactionId, region: RegionId, pages: &Pages, page: usize, bytes: &[u8]) -> Outcome {
        let declared = self.store.set_range(id, region, (page * PAGE_BYTES) as u64, bytes.len() as u64).unwrap();
        if declared == Outcome::Wait {
            return Outcome::Wait;
        }
        while let Err(want) = pages.store(page, 0, bytes) {
            if self.store.fault(id, region, page, want).unwrap() == Outcome::Wait {
                return Outcome::Wait;
            }
        }
        Outcome::Done
    }

    /// Segment 0 as recovery makes it of what is on the media.
    fn recovered(&self) -> Vec<u8> {
        let (log, segment) = (Disk::silent(self.log.image()), Disk::silent(self.segment.image()));
        Store::<Disk, Pages>::open(log, vec![segment.clone()], Options::default()).unwrap();
        segment.image().bytes
    }
}

#[test]
fn a_commit_is_one_write_and_one_flush() {
    for detector in [Detector::SetRange, Detector::Diff, Detector::DirtyBits] {
        let mut machine = Machine::new(1 << 20, 8);
        let pages = Pages::new(8);
        let region = machine.map(OWNER, detector, &pages);
        for round in 0..5 {
            let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
            for page in 0..4 {
                machine.put(id, region, &pages, page, &[round + 1; 8]);
            }
            let before = machine.log.counts();
            machine.store.commit(id, Durability::Flush).unwrap();
            let after = machine.log.counts();
            assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (1, 1), "{detector:?}");
            assert_eq!(machine.segment.counts().writes, 0);
        }
        // One that has changed nothing costs nothing; one that is lazy is not flushed.
        let before = machine.log.counts();
        let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
        let mut byte = [0];
        while let Err(want) = pages.load(0, 0, &mut byte) {
            assert_eq!(machine.store.fault(id, region, 0, want).unwrap(), Outcome::Done);
        }
        machine.store.commit(id, Durability::Flush).unwrap();
        assert_eq!(machine.log.counts(), before);
        let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
        machine.put(id, region, &pages, 0, b"lazy");
        machine.store.commit(id, Durability::Lazy).unwrap();
        let after = machine.log.counts();
        assert_eq!((after.writes - before.writes, after.flushes - before.flushes), (1, 0));
        assert_eq!(machine.recovered()[..4], *b"lazy");
    }
}

/// Commits that are in the log before a flush begins share it.
#[test]
fn commits_share_a_flush() {
    let mut machine = Machine::new(1 << 20, 8);
    let pages = Pages::new(8);
    let mut pending = Vec::new();
    for number in 0..4 {
        let memory = pages.sharing();
        let region = machine.map(OwnerId(number), Detector::Diff, &memory);
        let id = machine.store.begin(OwnerId(number), Restore::Yes).unwrap();
        machine.put(id, region, &memory, number as usize, &[9; 8]);
        pending.push(machine.store.commit_begin(id).unwrap());
    }
    let before = machine.log.counts().flushes;
    let flush = machine.store.flush_begin();
    let result = rhino::Medium::flush(&machine.log);
    machine.store.flush_end(flush, result).unwrap();
    for commit in pending {
        assert!(machine.store.log().ring.flushed_through() >= commit.sequence());
        machine.store.commit_end(commit, Ok(())).unwrap();
    }
    assert_eq!(machine.log.counts().flushes - before, 1);
    assert!((0..4).all(|page| machine.recovered()[page * PAGE_BYTES] == 9));
}

#[test]
fn a_transaction_that_the_log_cannot_hold_is_aborted() {
    for detector in [Detector::SetRange, Detector::Diff, Detector::DirtyBits, Detector::Page] {
        let mut machine = Machine::new(LOG_BYTES_MIN as usize, 8);
        let pages = Pages::new(8);
        let region = machine.map(OWNER, detector, &pages);
        let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
        let mut failed = None;
        'pages: for page in 0..8 {
            while let Err(want) = pages.store(page, 0, &[7; PAGE_BYTES]) {
                let range = machine.store.set_range(id, region, (page * PAGE_BYTES) as u64, PAGE_BYTES as u64);
                if let Err(error) = range.and_then(|_| machine.store.fault(id, region, page, want)) {
                    failed = Some(error);
                    break 'pages;
                }
            }
        }
        let error = machine.store.commit(id, Durability::Flush).unwrap_err();
        assert!(matches!(error, Error::TooLarge | Error::LogFull), "{detector:?}: {error:?}");
        assert!(failed.is_none_or(|failed| failed == error));
        // It has left nothing, and the next one commits.
        let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
        machine.put(id, region, &pages, 1, b"small");
        let mut byte = [1];
        while let Err(want) = pages.load(0, 100, &mut byte) {
            assert_eq!(machine.store.fault(id, region, 0, want).unwrap(), Outcome::Done);
        }
        assert_eq!(byte, [0], "{detector:?}");
        let result = machine.store.commit(id, Durability::Flush);
        if detector != Detector::Page {
            result.unwrap();
            assert_eq!(machine.recovered()[PAGE_BYTES..PAGE_BYTES + 5], *b"small");
        }
        assert_eq!(machine.recovered()[..PAGE_BYTES], [0; PAGE_BYTES]);
    }
}

/// Every write and flush of a commit fails once, or for ever: it is aborted, and what was committed before stays.
#[test]
fn a_medium_that_fails_loses_nothing() {
    for detector in [Detector::SetRange, Detector::Page, Detector::Diff, Detector::DirtyBits] {
        for number in 0..4 {
            for (is_lasting, error) in
                [(false, MediumError::NoSpace), (true, MediumError::NoSpace), (true, MediumError::Io)]
            {
                let mut machine = Machine::new(1 << 20, 8);
                let pages = Pages::new(8);
                let region = machine.map(OWNER, detector, &pages);
                let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
                machine.put(id, region, &pages, 0, b"first");
                machine.store.commit(id, Durability::Flush).unwrap();
                let counts = machine.log.counts();
                let operation = counts.writes + counts.flushes + number;
                let fate = Fate::Before(0);
                machine.log.set_fault(Some(Fault { operation, is_lasting, error, fate }));
                let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
                let declared = machine.store.set_range(id, region, 0, 5);
                let mut is_stored = declared.is_ok();
                while let Err(want) = pages.store(0, 0, b"other") {
                    if machine.store.fault(id, region, 0, want).is_err() {
                        is_stored = false;
                        break;
                    }
                }
                let result = machine.store.commit(id, Durability::Flush);
                machine.log.set_fault(None);
                let found = machine.recovered();
                let next = machine.store.begin(OWNER, Restore::Yes);
                match (result, next) {
                    (Ok(()), _) => assert!(is_stored && found[..5] == *b"other"),
                    // A flush that failed leaves open what is on the medium, and the store says so at the next call.
                    (Err(_), Err(error)) => {
                        assert_eq!(error, Error::Broken);
                        assert!(found[..5] == *b"first" || found[..5] == *b"other");
                    }
                    (Err(error), Ok(id)) => {
                        assert_eq!(found[..5], *b"first", "{detector:?} {error:?}");
                        machine.put(id, region, &pages, 0, b"third");
                        machine.store.commit(id, Durability::Flush).unwrap();
                        assert_eq!(machine.recovered()[..5], *b"third");
                    }
                }
            }
        }
    }
}

/// Segments that cannot be written keep the log from being truncated, and nothing else.
#[test]
fn segments_on_a_full_disk_lose_nothing() {
    let mut machine = Machine::new(LOG_BYTES_MIN as usize, 8);
    let pages = Pages::new(8);
    let region = machine.map(OWNER, Detector::Diff, &pages);
    let fate = Fate::Before(1);
    machine.segment.set_fault(Some(Fault { operation: 0, is_lasting: true, error: MediumError::NoSpace, fate }));
    let mut committed = 0;
    let error = loop {
        let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
        machine.put(id, region, &pages, 0, &[committed + 1; 600]);
        match machine.store.commit(id, Durability::Flush) {
            Ok(()) => committed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::Medium(MediumError::NoSpace));
    machine.segment.set_fault(None);
    assert_eq!(machine.recovered()[..600], [committed; 600]);
    let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
    machine.put(id, region, &pages, 0, &[99; 600]);
    machine.store.commit(id, Durability::Flush).unwrap();
    assert_eq!(machine.recovered()[..600], [99; 600]);
}

/// A transaction that changes far more pages than there are frames: each fault looks at few of them, and those that go
/// share flushes. (It looked at all of them, and flushed for each.)
#[test]
fn a_transaction_over_budget_costs_in_proportion() {
    const PAGE_COUNT: usize = 2000;
    let value = |page: usize| 1 + (page % 251) as u8;
    for detector in [Detector::Page, Detector::Diff, Detector::DirtyBits] {
        let mut machine = Machine::with_frames(64 << 20, PAGE_COUNT, 500);
        let pages = Pages::new(PAGE_COUNT);
        let region = machine.map(OWNER, detector, &pages);
        let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
        let before = machine.log.counts().flushes;
        for page in 0..PAGE_COUNT {
            machine.put(id, region, &pages, page, &[value(page); 16]);
        }
        let (counters, flushes) = (machine.store.counters(), machine.log.counts().flushes - before);
        assert!(counters.steal_count as usize >= PAGE_COUNT - 500, "{detector:?}: {counters:?}");
        assert!(counters.examined_count <= 8 * counters.evict_count + 500, "{detector:?}: {counters:?}");
        assert!(flushes <= counters.steal_count / 10 + 10, "{detector:?}: {flushes} flushes, {counters:?}");
        machine.store.commit(id, Durability::Flush).unwrap();
        let found = machine.recovered();
        assert!((0..PAGE_COUNT).all(|page| found[page * PAGE_BYTES] == value(page)), "{detector:?}");
    }
}

/// A segment that cannot be written while pages are stolen: their transaction is aborted, and its old bytes are back.
#[test]
fn a_theft_that_fails_aborts() {
    for detector in [Detector::Page, Detector::Diff] {
        for by_call in [false, true] {
            let mut machine = Machine::with_frames(1 << 20, 40, 8);
            let pages = Pages::new(40);
            let region = machine.map(OWNER, detector, &pages);
            let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
            for page in 0..3 {
                machine.put(id, region, &pages, page, &[7; 16]);
            }
            machine.store.commit(id, Durability::Flush).unwrap();
            let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
            let (fate, error) = (Fate::Lost, MediumError::Io);
            machine.segment.set_fault(Some(Fault { operation: 0, is_lasting: true, error, fate }));
            let failed = (0..40).find_map(|page| {
                let at = (page * PAGE_BYTES) as u64;
                if by_call {
                    return machine.store.write(id, region, at, &[9; 16]).err();
                }
                machine.store.fault(id, region, page, Access::Write).err().or_else(|| {
                    pages.store(page, 0, &[9; 16]).unwrap();
                    None
                })
            });
            assert_eq!(failed, Some(Error::Medium(MediumError::Io)), "{detector:?}");
            assert_eq!(machine.store.failure(id), failed);
            machine.segment.set_fault(None);
            assert_eq!(machine.store.commit(id, Durability::Flush).err(), failed);
            let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
            for page in 0..40 {
                let mut bytes = [0; 16];
                assert_eq!(machine.store.read(id, region, (page * PAGE_BYTES) as u64, &mut bytes), Ok(Outcome::Done));
                assert_eq!(bytes, [if page < 3 { 7 } else { 0 }; 16], "{detector:?} page {page}");
            }
            machine.store.commit(id, Durability::Flush).unwrap();
            let found = machine.recovered();
            assert!((0..40).all(|page| found[page * PAGE_BYTES] == if page < 3 { 7 } else { 0 }));
        }
    }
}

#[test]
fn address_spaces_are_kept_apart() {
    let mut machine = Machine::new(1 << 20, 8);
    let (mine, yours) = (Pages::new(8), Pages::new(8));
    let _ = yours;
    let other = mine.sharing();
    let (first, second) = (machine.map(OWNER, Detector::Diff, &mine), machine.map(OTHER, Detector::Diff, &other));
    assert_eq!(machine.store.map(OWNER, 0, 0, Detector::Diff, Pages::new(8)).unwrap_err(), Error::Busy);
    assert_eq!(machine.store.map(OTHER, 0, 0, Detector::DirtyBits, Pages::new(8)).unwrap_err(), Error::Busy);
    let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
    let twin = machine.store.begin(OWNER, Restore::Yes).unwrap();
    let rival = machine.store.begin(OTHER, Restore::Yes).unwrap();
    machine.put(id, first, &mine, 0, b"mine");
    // Two transactions of one process on one segment.
    assert_eq!(machine.store.fault(twin, first, 3, Access::Read), Err(Error::Busy));
    // The page of another process.
    assert_eq!(machine.store.fault(rival, second, 0, Access::Read), Ok(Outcome::Wait));
    assert_eq!(machine.store.fault(rival, first, 0, Access::Read), Err(Error::NoRegion));
    let count = machine.store.release_count();
    // A process that dies within its transaction leaves nothing of it.
    machine.store.owner_died(OWNER).unwrap();
    assert!(machine.store.release_count() > count);
    assert_eq!(machine.store.fault(rival, second, 0, Access::Read), Ok(Outcome::Done));
    let mut bytes = [1; 4];
    other.load(0, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4]);
}

#[test]
fn an_upgrade_of_two_readers_makes_the_younger_a_victim() {
    let mut machine = Machine::new(1 << 20, 8);
    let mine = Pages::new(8);
    let other = mine.sharing();
    let regions = [machine.map(OWNER, Detector::Diff, &mine), machine.map(OTHER, Detector::Diff, &other)];
    let old = machine.store.begin(OWNER, Restore::Yes).unwrap();
    let young = machine.store.begin(OTHER, Restore::Yes).unwrap();
    assert_eq!(machine.store.fault(old, regions[0], 0, Access::Read), Ok(Outcome::Done));
    assert_eq!(machine.store.fault(young, regions[1], 0, Access::Read), Ok(Outcome::Done));
    assert_eq!(machine.store.fault(young, regions[1], 0, Access::Write), Ok(Outcome::Wait));
    assert_eq!(machine.store.fault(old, regions[0], 0, Access::Write), Ok(Outcome::Wait));
    assert_eq!(machine.store.failure(young), Some(Error::Deadlock));
    assert_eq!(machine.store.fault(young, regions[1], 0, Access::Write), Err(Error::Deadlock));
    assert_eq!(machine.store.commit(young, Durability::Flush), Err(Error::Deadlock));
    assert_eq!(machine.store.fault(old, regions[0], 0, Access::Write), Ok(Outcome::Done));
    mine.store(0, 0, b"x").unwrap();
    machine.store.commit(old, Durability::Flush).unwrap();
    // Between transactions nothing is open.
    assert_eq!((mine.access(0), other.access(0), mine.shadow_count()), (Access::None, Access::None, 0));
}

/// A store where nothing was declared is the program's mistake, and is told before anything is lost.
#[test]
fn a_forgotten_range_is_told() {
    let mut machine = Machine::new(1 << 20, 8);
    let pages = Pages::new(8);
    let region = machine.map(OWNER, Detector::SetRange, &pages);
    let id = machine.store.begin(OWNER, Restore::Yes).unwrap();
    assert_eq!(machine.store.fault(id, region, 2, Access::Write), Err(Error::NotDeclared));
    machine.put(id, region, &pages, 2, b"said");
    machine.store.commit(id, Durability::Flush).unwrap();
    assert_eq!(machine.recovered()[2 * PAGE_BYTES..2 * PAGE_BYTES + 4], *b"said");
}
