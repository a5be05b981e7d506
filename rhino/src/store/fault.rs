//! First touches: locks, pages brought into memory, and what each detector does before the first store.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::entry::{self, Entry, KIND_HOLD};
use super::replay::Hold;
use super::{Declared, RegionId, Store, Touch, TransactionId};
use crate::Detector;
use crate::error::Error;
use crate::lock::{Answer, Mode, PageName};
use crate::log::LogError;
use crate::medium::Medium;
use crate::memory::{Access, Memory, PAGE_BYTES};

/// What became of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program may go on.
    Done,
    /// Another transaction has the page: ask again when [`Store::release_count`] has grown.
    Wait,
}

impl<M: Medium, P: Memory> Store<M, P> {
    /// The program touched a page that it may not touch yet.
    ///
    /// # Errors
    /// [`Error::NotDeclared`]: a store without a set range, which is the program's mistake. [`Error::Deadlock`],
    /// [`Error::Busy`], [`Error::LogFull`], the medium's, the memory's: the transaction can only be aborted from now
    /// on, and [`Store::failure`] says why. [`Error::NoTransaction`], [`Error::NoRegion`], [`Error::OutOfRange`].
    pub fn fault(
        &mut self,
        transaction: TransactionId,
        region: RegionId,
        page: usize,
        want: Access,
    ) -> Result<Outcome, Error> {
        let name = self.name(transaction, region, page)?;
        // Of all detectors: what makes room must not take a page that was touched meanwhile.
        self.take_touched(transaction.0)?;
        let result = if self.regions[&region.0].detector == Detector::DirtyBits {
            self.open_dirty(name, region.0)
        } else {
            self.touch(transaction.0, region.0, name, want)
        };
        self.remember_failure(transaction.0, result)
    }

    /// The program will change these bytes of a region (counted from its beginning). For other detectors than
    /// [`Detector::SetRange`] there is nothing to declare.
    ///
    /// # Errors
    /// As [`Store::fault`]. After [`Outcome::Wait`] the same call is made again.
    pub fn set_range(
        &mut self,
        transaction: TransactionId,
        region: RegionId,
        offset: u64,
        length: u64,
    ) -> Result<Outcome, Error> {
        let end = offset.checked_add(length).ok_or(Error::OutOfRange)?;
        let known = self.regions.get(&region.0).ok_or(Error::NoRegion)?;
        if end > known.page_count * PAGE_BYTES as u64 {
            return Err(Error::OutOfRange);
        }
        if length == 0 || known.detector != Detector::SetRange {
            return self.name(transaction, region, 0).map(|_| Outcome::Done);
        }
        let page_bytes = PAGE_BYTES as u64;
        self.take_touched(transaction.0)?;
        for page in offset / page_bytes..end.div_ceil(page_bytes) {
            let name = self.name(transaction, region, page as usize)?;
            let start = offset.saturating_sub(page * page_bytes) as usize;
            let stop = (end - page * page_bytes).min(page_bytes) as usize;
            let result = self.declare_and_open(transaction.0, region.0, name, (start, stop));
            if self.remember_failure(transaction.0, result)? == Outcome::Wait {
                return Ok(Outcome::Wait);
            }
        }
        Ok(Outcome::Done)
    }

    /// The page of the segment, if transaction and region belong together.
    pub(super) fn name(&self, transaction: TransactionId, region: RegionId, page: usize) -> Result<PageName, Error> {
        let known = self.transactions.get(&transaction.0).filter(|known| !known.is_ending);
        let owner = known.ok_or(Error::NoTransaction)?.owner;
        let region = self.regions.get(&region.0).filter(|region| region.owner == owner).ok_or(Error::NoRegion)?;
        if page as u64 >= region.page_count {
            return Err(Error::OutOfRange);
        }
        Ok((region.segment, region.first_page + page as u64))
    }

    pub(super) fn remember_failure(
        &mut self,
        transaction: u64,
        result: Result<Outcome, Error>,
    ) -> Result<Outcome, Error> {
        if let Err(error) = result
            && error != Error::NotDeclared
            && let Some(known) = self.transactions.get_mut(&transaction)
        {
            known.failure.get_or_insert(error);
        }
        result
    }

    /// Takes the lock and has the page in memory. What was touched meanwhile has been taken note of, so that making
    /// room for this page takes none of that.
    pub(super) fn acquire(
        &mut self,
        transaction: u64,
        region: u32,
        name: PageName,
        mode: Mode,
    ) -> Result<Outcome, Error> {
        Ok(self.acquire_for(transaction, region, name, (mode, Access::None))?.map_or(Outcome::Wait, |_| Outcome::Done))
    }

    /// The same for a page that is going to be open for such an access. `None`: wait; else what it was open for before.
    fn acquire_for(
        &mut self,
        transaction: u64,
        region: u32,
        name: PageName,
        (mode, opens): (Mode, Access),
    ) -> Result<Option<Access>, Error> {
        let known = self.transactions.get(&transaction).ok_or(Error::NoTransaction)?;
        if let Some(error) = known.failure {
            return Err(error);
        }
        if self.transactions.len() > 1 && !known.touches.contains_key(&name) {
            let owner = known.owner;
            let is_other = |id: &u64, other: &super::Transaction| *id != transaction && other.owner == owner;
            let segment = (name.0, 0)..=(name.0, u64::MAX);
            let mut others = self.transactions.iter().filter(|(id, other)| is_other(id, other));
            if others.any(|(_, other)| other.touches.range(segment.clone()).next().is_some()) {
                return Err(Error::Busy);
            }
        }
        match self.locks.lock(transaction, name, mode) {
            Answer::Wait => return Ok(None),
            Answer::Victim => return Err(Error::Deadlock),
            Answer::Granted => {}
        }
        self.fetch(name, region)?;
        let page = self.regions.get(&region).and_then(|region| region.page(name)).ok_or(Error::OutOfRange)?;
        let Some(known) = self.transactions.get_mut(&transaction) else { return Err(Error::NoTransaction) };
        let touch = known.touches.entry(name).or_insert_with(|| Touch::new(region, page));
        let before = touch.access;
        touch.access = before.max(opens);
        Ok(Some(before))
    }

    fn touch(&mut self, transaction: u64, region: u32, name: PageName, want: Access) -> Result<Outcome, Error> {
        let ways = if want == Access::Write { (Mode::Write, Access::None) } else { (Mode::Read, want) };
        let Some(before) = self.acquire_for(transaction, region, name, ways)? else { return Ok(Outcome::Wait) };
        if before >= want {
            return Ok(Outcome::Done);
        }
        if want == Access::Read {
            self.open_page(region, name, want)?;
            return Ok(Outcome::Done);
        }
        let Some(touch) = self.touch_of(transaction, name) else { return Err(Error::NoTransaction) };
        let (is_declared, is_logged) = (touch.declared.is_some(), touch.is_logged);
        match self.regions[&region].detector {
            Detector::SetRange if !is_declared => return Err(Error::NotDeclared),
            Detector::Page if !is_logged => self.log_old_page(transaction, region, name)?,
            Detector::Diff => self.make_shadow(region, name)?,
            Detector::SetRange | Detector::Page | Detector::DirtyBits => {}
        }
        self.grant(transaction, region, name, want)?;
        Ok(Outcome::Done)
    }

    pub(super) fn touch_of(&mut self, transaction: u64, name: PageName) -> Option<&mut Touch> {
        self.transactions.get_mut(&transaction)?.touches.get_mut(&name)
    }

    fn open_page(&mut self, region: u32, name: PageName, access: Access) -> Result<(), Error> {
        let Some(known) = self.regions.get_mut(&region) else { return Err(Error::NoRegion) };
        let page = known.page(name).ok_or(Error::OutOfRange)?;
        Ok(known.memory.protect(page..page + 1, access)?)
    }

    fn grant(&mut self, transaction: u64, region: u32, name: PageName, access: Access) -> Result<(), Error> {
        let result = self.open_page(region, name, access);
        // After a failure it may be open as well, and is closed with the others.
        if let Some(touch) = self.touch_of(transaction, name) {
            touch.access = access;
        }
        result
    }

    fn make_shadow(&mut self, region: u32, name: PageName) -> Result<(), Error> {
        self.make_room(1, name)?;
        let Some(known) = self.regions.get_mut(&region) else { return Err(Error::NoRegion) };
        let page = known.page(name).ok_or(Error::OutOfRange)?;
        known.memory.make_shadow(page)?;
        self.shadow_count += 1;
        Ok(())
    }

    /// Page-grain logging: the old page goes to the log before the first store.
    pub(super) fn log_old_page(&mut self, transaction: u64, region: u32, name: PageName) -> Result<(), Error> {
        let mut old = Box::new([0; PAGE_BYTES]);
        let known = &self.regions[&region];
        known.memory.read(known.page(name).ok_or(Error::OutOfRange)?, &mut old);
        entry::begin(&mut self.payload, transaction);
        let offset = name.1 * PAGE_BYTES as u64;
        entry::push(&mut self.payload, Entry { segment: name.0, is_old: true, offset, bytes: &old[..] })?;
        self.append_hold(transaction)?;
        if let Some(touch) = self.touch_of(transaction, name) {
            touch.is_logged = true;
        }
        Ok(())
    }

    /// Appends the payload as a hold of the transaction (STORE-5).
    pub(super) fn append_hold(&mut self, transaction: u64) -> Result<(), Error> {
        self.find_room(self.payload.len(), self.spare_count(1))?;
        let start = self.log.ring.end();
        let appended = self.log.ring.append(KIND_HOLD, &[&self.payload])?;
        if let Some(known) = self.transactions.get_mut(&transaction) {
            known.holds.push(Hold { position: appended.position, sequence: appended.sequence });
            known.hold_start.get_or_insert(start);
        }
        Ok(())
    }

    /// Succeeds if there is room in the log, after a truncation if need be.
    pub(super) fn find_room(&mut self, payload_bytes: usize, spare_count: usize) -> Result<(), Error> {
        match self.log.ring.has_room(payload_bytes, spare_count) {
            Err(LogError::Full) => {
                self.truncate()?;
                Ok(self.log.ring.has_room(payload_bytes, spare_count)?)
            }
            result => Ok(result?),
        }
    }

    /// Set range: the program will store there itself.
    fn declare_and_open(
        &mut self,
        transaction: u64,
        region: u32,
        name: PageName,
        range: (usize, usize),
    ) -> Result<Outcome, Error> {
        if self.declare(transaction, region, name, range)? == Outcome::Wait {
            return Ok(Outcome::Wait);
        }
        if self.touch_of(transaction, name).is_some_and(|touch| touch.access < Access::Write) {
            self.grant(transaction, region, name, Access::Write)?;
        }
        Ok(Outcome::Done)
    }

    /// Keeps the old bytes of what was not declared yet.
    pub(super) fn declare(
        &mut self,
        transaction: u64,
        region: u32,
        name: PageName,
        (start, stop): (usize, usize),
    ) -> Result<Outcome, Error> {
        // A structure that is changed again and again is declared again and again.
        let known = self.transactions.get(&transaction).filter(|known| known.failure.is_none());
        if known.and_then(|known| known.touches.get(&name)).is_some_and(|touch| touch.covers((start, stop))) {
            return Ok(Outcome::Done);
        }
        if self.acquire(transaction, region, name, Mode::Write)? == Outcome::Wait {
            return Ok(Outcome::Wait);
        }
        let Self { transactions, regions, .. } = self;
        let region = &regions[&region];
        let page = region.page(name).ok_or(Error::OutOfRange)?;
        let Some(known) = transactions.get_mut(&transaction) else { return Err(Error::NoTransaction) };
        let is_kept = region.detector != Detector::SetRange || known.restore == crate::Restore::Yes;
        let Some(touch) = known.touches.get_mut(&name) else { return Err(Error::NoTransaction) };
        let (mut first, mut end, mut at) = (start, stop, start);
        let mut kept = Vec::new();
        let declared = touch.declared.get_or_insert_with(|| Box::new(Declared::new()));
        declared.ranges.retain(|&(other_start, other_stop)| {
            if other_stop < start || stop < other_start {
                return true;
            }
            if at < other_start {
                kept.push((at, other_start));
            }
            at = at.max(other_stop);
            (first, end) = (first.min(other_start), end.max(other_stop));
            false
        });
        if at < stop {
            kept.push((at, stop));
        }
        let place = declared.ranges.partition_point(|range| range.0 < first);
        declared.ranges.insert(place, (first, end));
        // What the program may have stored itself is in a shadow as it was.
        let has_shadow = region.detector == Detector::Diff && touch.access == Access::Write;
        for (start, stop) in kept.into_iter().filter(|_| is_kept && !has_shadow) {
            let mut old = alloc::vec![0; stop - start];
            region.memory.read_part(page, start, &mut old);
            declared.old.push((start, old));
        }
        Ok(Outcome::Done)
    }

    /// Dirty bits: the page comes back after it was evicted, open for good.
    fn open_dirty(&mut self, name: PageName, region: u32) -> Result<Outcome, Error> {
        self.fetch(name, region)?;
        let Some(known) = self.regions.get_mut(&region) else { return Err(Error::NoRegion) };
        let page = known.page(name).ok_or(Error::OutOfRange)?;
        known.memory.protect(page..page + 1, Access::Write)?;
        Ok(Outcome::Done)
    }

    /// Dirty bits: brings pages of a new region into memory, as many as there is room for.
    pub(super) fn open_all(&mut self, region: u32) -> Result<(), Error> {
        let known = &self.regions[&region];
        let (segment, first_page, page_count) = (known.segment, known.first_page, known.page_count);
        for page in 0..page_count {
            if self.present_count + self.shadow_count >= self.options.frame_count_max {
                break;
            }
            self.open_dirty((segment, first_page + page), region)?;
        }
        if let Some(known) = self.regions.get_mut(&region) {
            let mut bits = alloc::vec![0; page_count.div_ceil(64) as usize];
            known.memory.dirty(0..page_count as usize, &mut bits, true)?;
        }
        Ok(())
    }

    /// Has a page in memory.
    pub(super) fn fetch(&mut self, name: PageName, region: u32) -> Result<(), Error> {
        if self.segments[name.0 as usize].is_present(name.1) {
            return Ok(());
        }
        self.make_room(1, name)?;
        let mut page = self.take_scratch();
        self.segments[name.0 as usize].read(name.1, &mut page)?;
        let Some(known) = self.regions.get_mut(&region) else { return Err(Error::NoRegion) };
        let index = known.page(name).ok_or(Error::OutOfRange)?;
        known.memory.write(index, 0, &page[..]);
        self.put_scratch(page);
        self.segments[name.0 as usize].set_present(name.1, true);
        self.present_count += 1;
        self.counters.fetch_count += 1;
        Ok(())
    }
}
