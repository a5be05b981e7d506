//! Stores made and opened: recovery.
#![forbid(unsafe_code)]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::double::Area;
use super::replay::{Cache, Replayer, each_part};
use super::{Counters, Options, Segment, Store};
use crate::bytes::u64_at;
use crate::error::Error;
use crate::lock::LockTable;
use crate::log::{Damage, Log, USER_BYTES_MAX};
use crate::medium::Medium;
use crate::memory::{Memory, PAGE_BYTES};

/// Most segments of a store.
pub const SEGMENT_COUNT_MAX: usize = USER_BYTES_MAX / 8 - 1;

const USER_MAGIC: &[u8; 8] = b"rhinoseg";
/// Of a store whose pages are written twice: it is not opened without the area.
const USER_MAGIC_DOUBLED: &[u8; 8] = b"rhinose2";

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Transactions whose changes were stored into segments.
    pub replayed_count: u64,
    /// Transactions that had stolen pages and had not ended.
    pub undone_count: u64,
    /// Bytes of the log that were read for it.
    pub log_bytes: u64,
}

impl<M: Medium, P: Memory> Store<M, P> {
    /// Makes a store in place of what the log's medium holds. Segments keep their bytes; they are as many whole pages
    /// as fit on their media. `log_id` is drawn at random.
    ///
    /// # Errors
    /// [`Error::Limit`] too many segments, [`Error::Shape`] a log's medium that is too small, the medium's.
    pub fn create(log: M, segments: Vec<M>, log_id: u64, options: Options) -> Result<Self, Error> {
        Self::create_with(log, segments, None, log_id, options)
    }

    /// As [`Store::create`], for segments on media that may spoil a block which is being written: pages are written to
    /// the area first, of [`super::AREA_BYTES_MIN`] to [`super::AREA_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// As [`Store::create`]; [`Error::Shape`] too if the area is too small.
    pub fn create_doubled(log: M, segments: Vec<M>, area: M, log_id: u64, options: Options) -> Result<Self, Error> {
        Self::create_with(log, segments, Some(area), log_id, options)
    }

    fn create_with(log: M, segments: Vec<M>, area: Option<M>, log_id: u64, options: Options) -> Result<Self, Error> {
        let mut user = if area.is_some() { USER_MAGIC_DOUBLED } else { USER_MAGIC }.to_vec();
        let mut area = area.map(Area::new).transpose()?;
        for segment in &segments {
            user.extend_from_slice(&(segment.capacity_bytes() / PAGE_BYTES as u64).to_le_bytes());
        }
        if segments.len() > SEGMENT_COUNT_MAX {
            return Err(Error::Limit);
        }
        // What a segment holds is its first state: it has to last before the log says that there is a store.
        segments.iter().try_for_each(Medium::flush)?;
        // A batch of another store must not be written over it.
        area.iter_mut().try_for_each(Area::clear)?;
        let log = Log::create(log, log_id, &user)?;
        Ok(Self::over(log, segments, area, options))
    }

    /// Opens a store: what was committed is in its segments afterwards, and nothing else.
    ///
    /// # Errors
    /// [`Error::Damage`] if the media do not hold what a crash leaves; nothing was written then, and opening again
    /// answers the same. The medium's; opening again goes on.
    pub fn open(log: M, segments: Vec<M>, options: Options) -> Result<(Self, Report), Error> {
        Self::open_with(log, segments, None, options)
    }

    /// As [`Store::open`], of a store that was made with an area.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_doubled(log: M, segments: Vec<M>, area: M, options: Options) -> Result<(Self, Report), Error> {
        Self::open_with(log, segments, Some(area), options)
    }

    fn open_with(log: M, segments: Vec<M>, area: Option<M>, options: Options) -> Result<(Self, Report), Error> {
        let log = Log::recover(log)?;
        let page_counts: Vec<u64> =
            log.user().get(8..).unwrap_or_default().chunks_exact(8).map(|word| u64_at(word, 0)).collect();
        let holds = |(segment, &page_count): (&M, &u64)| {
            page_count.checked_mul(PAGE_BYTES as u64).is_some_and(|bytes| bytes <= segment.capacity_bytes())
        };
        let magic = if area.is_some() { USER_MAGIC_DOUBLED } else { USER_MAGIC };
        let is_whole = log.user().starts_with(magic) && page_counts.len() == segments.len();
        if !is_whole || !segments.iter().zip(&page_counts).all(holds) {
            return Err(Error::Damage(Damage::Shape));
        }
        let area = area.map(Area::new).transpose()?;
        let mut store = Self::over(log, segments, area, options);
        for (segment, page_count) in store.segments.iter_mut().zip(&page_counts) {
            segment.page_count = *page_count;
        }
        store.segment_bytes = page_counts.iter().map(|page_count| page_count * PAGE_BYTES as u64).collect();
        let report = store.recover()?;
        Ok((store, report))
    }

    fn over(log: Log<M>, segments: Vec<M>, area: Option<Area<M>>, options: Options) -> Self {
        let segments: Vec<Segment<M>> = segments
            .into_iter()
            .map(|medium| {
                let page_count = medium.capacity_bytes() / PAGE_BYTES as u64;
                let present = alloc::vec![0; page_count.div_ceil(64) as usize];
                Segment { medium, page_count, present }
            })
            .collect();
        Self {
            log,
            segment_bytes: segments.iter().map(|segment| segment.page_count * PAGE_BYTES as u64).collect(),
            segments,
            area,
            regions: BTreeMap::new(),
            transactions: BTreeMap::new(),
            locks: LockTable::default(),
            has_answering: false,
            marks: BTreeMap::new(),
            images: BTreeMap::new(),
            spans: Vec::new(),
            truncation: None,
            options,
            counters: Counters::default(),
            next_region: 0,
            next_transaction: 1,
            present_count: 0,
            shadow_count: 0,
            hand: (0, 0),
            payload: Vec::new(),
            scratch: Vec::new(),
        }
    }

    fn recover(&mut self) -> Result<Report, Error> {
        let ring = &self.log.ring;
        let (start, last) = (ring.start(), ring.last_sequence());
        let mut report = Report { log_bytes: ring.used_bytes(), ..Report::default() };
        // All is judged before anything is written.
        let mut judge = Replayer::default();
        ring.replay(start, last, |head, place, payload| {
            judge.record(ring, &self.segment_bytes, (head, place, payload), &mut |_, _| Ok(()))
        })?;
        // A record that was read may still be nothing but a cached write, and must last before its page does.
        self.log.ring.flush()?;
        // The log has bytes of pages, not pages: what a crash has spoilt in place comes first.
        let Self { area, segments, .. } = self;
        let segments: &[Segment<M>] = segments;
        area.iter_mut().try_for_each(|area| area.restore(segments))?;
        let ring = &self.log.ring;
        let mut cache = Cache::default();
        let mut replayer = Replayer::default();
        ring.replay(start, last, |head, place, payload| {
            replayer.record(ring, &self.segment_bytes, (head, place, payload), &mut |entry, _| {
                each_part(entry, &mut |name, offset, bytes| cache.store((segments, &mut *area), name, offset, bytes))
            })
        })?;
        report.replayed_count = replayer.commit_count;
        report.undone_count = replayer.finish(ring, &self.segment_bytes, &mut |entry| {
            each_part(entry, &mut |name, offset, bytes| cache.store((segments, &mut *area), name, offset, bytes))
        })?;
        cache.write_all(segments, area)?;
        segments.iter().try_for_each(|segment| segment.medium.flush())?;
        self.log.renew()?;
        Ok(report)
    }
}
