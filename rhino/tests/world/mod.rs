//! A store on a recording disk, two address spaces that use it, and a naive model of what they see: every load is
//! compared, and after a crash the segments must be one of the states that may have lasted.
#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests")]

use std::collections::BTreeMap;

use rhino::fake::{Disk, DiskPart, Draws, Image, Pages};
use rhino::{
    Counters, Detector, Durability, Error, MemoryError, Options, Outcome, OwnerId, PAGE_BYTES, RegionId, Restore,
    Store, TransactionId,
};

/// Pages of the two segments.
pub(crate) const SEGMENT_PAGES: [usize; 2] = [5, 2];
pub(crate) const SEGMENTS_BYTES: usize = (SEGMENT_PAGES[0] + SEGMENT_PAGES[1]) * PAGE_BYTES;
/// Room for two pages: longer batches are parted.
const AREA_BYTES: u64 = 3 * PAGE_BYTES as u64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) detector: Detector,
    /// Frames for 14 pages and shadows.
    pub(crate) frame_count_max: usize,
    pub(crate) truncate_percent: u8,
    pub(crate) log_bytes: usize,
    pub(crate) restore: Restore,
    /// Segments' blocks may be spoilt, and pages are written to an area before.
    pub(crate) is_doubled: bool,
    /// Set in [`begin_life`]: the part whose flushes do nothing.
    pub(crate) lying_part: Option<u64>,
    pub(crate) lying_flush: Option<u64>,
}

impl Setting {
    /// Log, segments, and the area behind them.
    pub(crate) fn parts(&self) -> [(u64, u64); 4] {
        let page = PAGE_BYTES as u64;
        let (log, first) = (self.log_bytes as u64, SEGMENT_PAGES[0] as u64 * page);
        [
            (0, log),
            (log, first),
            (log + first, SEGMENT_PAGES[1] as u64 * page),
            (log + SEGMENTS_BYTES as u64, AREA_BYTES),
        ]
    }

    pub(crate) fn options(&self) -> Options {
        Options { frame_count_max: self.frame_count_max, truncate_percent: self.truncate_percent }
    }

    fn media(&self, disk: &Disk) -> (DiskPart, Vec<DiskPart>, DiskPart) {
        let [log, first, second, area] = self.parts().map(|(first, length)| disk.part(first, length));
        (log, vec![first, second], area)
    }

    pub(crate) fn open(&self, disk: &Disk) -> Result<(Store<DiskPart, Pages>, rhino::Report), Error> {
        let (log, segments, area) = self.media(disk);
        if self.is_doubled {
            return Store::open_doubled(log, segments, area, self.options());
        }
        Store::open(log, segments, self.options())
    }

    pub(crate) fn create(&self, disk: &Disk, log_id: u64) -> Store<DiskPart, Pages> {
        let (log, segments, area) = self.media(disk);
        if self.is_doubled {
            return Store::create_doubled(log, segments, area, log_id, self.options()).unwrap();
        }
        Store::create(log, segments, log_id, self.options()).unwrap()
    }

    /// A disk that holds this, whose segments' blocks are never spoilt by a crash unless pages are written twice.
    pub(crate) fn disk(&self, image: Image) -> Disk {
        let disk = Disk::from_image(image);
        if !self.is_doubled {
            disk.set_atomic_from(self.log_bytes as u64);
        }
        disk
    }

    pub(crate) fn blank(&self) -> Disk {
        Disk::new(self.log_bytes + SEGMENTS_BYTES + AREA_BYTES as usize)
    }

    /// The segments' bytes on a disk, which can all be read.
    pub(crate) fn segments(&self, image: &Image) -> Vec<u8> {
        let (first, end) = (self.log_bytes, self.log_bytes + SEGMENTS_BYTES);
        let bad = image.unreadable.range(first as u64 / 512..end as u64 / 512).next();
        assert_eq!(bad, None, "a block of a segment cannot be read after recovery: {self:?}");
        image.bytes[first..end].to_vec()
    }
}

/// What holds from a point of the disk on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promise {
    pub(crate) point: usize,
    /// This state has lasted, or a later one.
    pub(crate) flushed: usize,
    /// No later state than this has been asked for.
    pub(crate) latest: usize,
}

struct Live {
    id: TransactionId,
    /// Changed pages: segment and page, to bytes.
    changes: BTreeMap<(usize, usize), Vec<u8>>,
}

struct Owner {
    id: OwnerId,
    regions: Vec<(RegionId, Pages)>,
    live: Option<Live>,
}

pub(crate) struct World {
    pub(crate) setting: Setting,
    pub(crate) disk: Disk,
    pub(crate) store: Store<DiskPart, Pages>,
    owners: Vec<Owner>,
    /// Committed states, the oldest first.
    pub(crate) states: Vec<Vec<u8>>,
    pub(crate) promises: Vec<Promise>,
    flushed: usize,
    pub(crate) undone_count: u64,
}

/// What a step of a transaction came to.
enum Step {
    Done,
    Blocked,
    Failed(Error),
}

impl World {
    /// Opens the store on a disk that holds this.
    pub(crate) fn begin_life(setting: Setting, image: Image) -> Self {
        let disk = setting.disk(image);
        if let Some(part) = setting.lying_part {
            disk.lie_about_part(part);
        }
        if let Some(number) = setting.lying_flush {
            disk.lie_about_flush(number);
        }
        let (mut store, report) = setting.open(&disk).unwrap();
        let first = setting.segments(&disk.image());
        let owner_count = if setting.detector == Detector::DirtyBits { 1 } else { 2 };
        let shared: Vec<Pages> = SEGMENT_PAGES.iter().map(|&page_count| Pages::new(page_count)).collect();
        let owners = (0..owner_count)
            .map(|number| {
                let id = OwnerId(number);
                let map = |(segment, pages): (usize, &Pages)| {
                    let memory = pages.sharing();
                    let region = store.map(id, segment as u32, 0, setting.detector, memory.clone()).unwrap();
                    (region, memory)
                };
                let regions = shared.iter().enumerate().map(map).collect();
                Owner { id, regions, live: None }
            })
            .collect();
        let point = disk.point();
        Self {
            setting,
            disk,
            store,
            owners,
            states: vec![first],
            promises: vec![Promise { point, flushed: 0, latest: 0 }],
            flushed: 0,
            undone_count: report.undone_count,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.store.counters()
    }

    fn latest(&self) -> usize {
        self.states.len() - 1
    }

    fn promise(&mut self, latest: usize) {
        self.promises.push(Promise { point: self.disk.point(), flushed: self.flushed, latest });
    }

    /// What a crash at `point` may leave: the states from the first to the second.
    pub(crate) fn allowed(&self, point: usize) -> (usize, usize) {
        let before = self.promises.iter().filter(|promise| promise.point <= point);
        let (mut flushed, mut latest) = (0, 0);
        for promise in before {
            flushed = flushed.max(promise.flushed);
            latest = latest.max(promise.latest);
        }
        (flushed, latest)
    }

    pub(crate) fn step(&mut self, draws: &mut Draws) {
        let number = draws.below(self.owners.len());
        match draws.below(20) {
            0 => self.store.truncate_step(1 + draws.below(3)).map(|_| ()).unwrap(),
            1 => {
                self.store.checkpoint().unwrap();
                self.flushed = self.latest();
            }
            2 => {
                let count = draws.below(4);
                self.store.shrink(count).unwrap();
            }
            3 => {
                self.store.flush().unwrap();
                self.flushed = self.latest();
            }
            4 | 5 if self.owners[number].live.is_some() => self.abort(number),
            6..10 if self.owners[number].live.is_some() => self.commit(number, draws),
            _ => self.work(number, draws),
        }
        self.promise(self.latest());
    }

    fn abort(&mut self, number: usize) {
        let live = self.owners[number].live.take().unwrap();
        self.store.abort(live.id).unwrap();
    }

    fn commit(&mut self, number: usize, draws: &mut Draws) {
        let durability = if draws.once_in(2) { Durability::Flush } else { Durability::Lazy };
        let live = self.owners[number].live.take().unwrap();
        let mut state = self.states.last().unwrap().clone();
        for ((segment, page), bytes) in &live.changes {
            let first = (segment * SEGMENT_PAGES[0] + page) * PAGE_BYTES;
            state[first..first + PAGE_BYTES].copy_from_slice(bytes);
        }
        // From the first write on it may be there.
        self.states.push(state);
        self.promise(self.latest());
        match self.store.commit(live.id, durability) {
            Ok(()) if durability == Durability::Flush && !live.changes.is_empty() => self.flushed = self.latest(),
            Ok(()) => {}
            Err(error) => {
                assert!(is_expected(error), "{error:?}");
                self.states.pop();
                self.promises.pop();
            }
        }
    }

    /// Begins a transaction, or does something in it.
    fn work(&mut self, number: usize, draws: &mut Draws) {
        if self.owners[number].live.is_none() {
            let id = self.store.begin(self.owners[number].id, self.setting.restore).unwrap();
            self.owners[number].live = Some(Live { id, changes: BTreeMap::new() });
        }
        for _ in 0..=draws.below(3) {
            let segment = draws.below(2);
            let page = draws.below(SEGMENT_PAGES[segment]);
            let by_call = draws.once_in(3);
            let step = if draws.once_in(3) {
                self.load(number, segment, page, by_call)
            } else {
                let length = if draws.once_in(8) { PAGE_BYTES } else { 1 + draws.below(120) };
                let offset = draws.below(PAGE_BYTES - length + 1);
                let bytes: Vec<u8> = (0..length).map(|_| draws.number() as u8).collect();
                self.save(number, segment, page, (offset, &bytes), by_call)
            };
            match step {
                Step::Done => {}
                Step::Blocked => return,
                Step::Failed(error) => {
                    assert!(is_expected(error), "{error:?}");
                    return self.abort(number);
                }
            }
        }
    }

    fn expected(&self, number: usize, segment: usize, page: usize) -> Vec<u8> {
        let live = self.owners[number].live.as_ref().unwrap();
        live.changes.get(&(segment, page)).cloned().unwrap_or_else(|| {
            let first = (segment * SEGMENT_PAGES[0] + page) * PAGE_BYTES;
            self.states.last().unwrap()[first..first + PAGE_BYTES].to_vec()
        })
    }

    fn load(&mut self, number: usize, segment: usize, page: usize, by_call: bool) -> Step {
        let id = self.owners[number].live.as_ref().unwrap().id;
        let (region, pages) = self.owners[number].regions[segment].clone();
        let mut found = vec![0; PAGE_BYTES];
        if by_call {
            match self.store.read(id, region, (page * PAGE_BYTES) as u64, &mut found) {
                Ok(Outcome::Done) => {}
                Ok(Outcome::Wait) => return Step::Blocked,
                Err(error) => return Step::Failed(error),
            }
        }
        while !by_call && let Err(want) = pages.load(page, 0, &mut found) {
            match self.store.fault(id, region, page, want) {
                Ok(Outcome::Done) => {}
                Ok(Outcome::Wait) => return Step::Blocked,
                Err(error) => return Step::Failed(error),
            }
        }
        let expected = self.expected(number, segment, page);
        let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(differs, None, "segment {segment} page {page}: {:?}", self.setting);
        Step::Done
    }

    fn save(
        &mut self,
        number: usize,
        segment: usize,
        page: usize,
        (offset, bytes): (usize, &[u8]),
        by_call: bool,
    ) -> Step {
        let id = self.owners[number].live.as_ref().unwrap().id;
        let (region, pages) = self.owners[number].regions[segment].clone();
        loop {
            if by_call {
                match self.store.write(id, region, (page * PAGE_BYTES + offset) as u64, bytes) {
                    Ok(Outcome::Done) => break,
                    Ok(Outcome::Wait) => return Step::Blocked,
                    Err(error) => return Step::Failed(error),
                }
            }
            // A program that touches everything may lose the page again between the two.
            let declared = self.store.set_range(id, region, (page * PAGE_BYTES + offset) as u64, bytes.len() as u64);
            match declared {
                Ok(Outcome::Done) => {}
                Ok(Outcome::Wait) => return Step::Blocked,
                Err(error) => return Step::Failed(error),
            }
            let Err(want) = pages.store(page, offset, bytes) else { break };
            match self.store.fault(id, region, page, want) {
                Ok(Outcome::Done) => {}
                Ok(Outcome::Wait) => return Step::Blocked,
                Err(error) => return Step::Failed(error),
            }
        }
        let mut now = self.expected(number, segment, page);
        now[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.owners[number].live.as_mut().unwrap().changes.insert((segment, page), now);
        Step::Done
    }
}

/// What may end a transaction without a fault of the medium.
fn is_expected(error: Error) -> bool {
    matches!(error, Error::Deadlock | Error::LogFull | Error::TooLarge | Error::Memory(MemoryError::NoMemory))
}
