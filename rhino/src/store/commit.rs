//! How transactions end.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::ops::Range;

use super::entry::{self, KIND_ABORT, KIND_COMMIT};
use super::replay::{each_part, undo};
use super::truncate::STEP_RECORD_COUNT;
use super::{Mark, OwnerId, Span, Store, Touch, Transaction, TransactionId, diff};
use crate::error::Error;
use crate::lock::{Answer, Mode, PageName};
use crate::log::{Flush, LogError};
use crate::medium::{Medium, MediumError};
use crate::memory::{Access, Memory, PAGE_BYTES, Page};
use crate::{Detector, Durability};

/// A commit that is in the log and may not last yet; its locks are held until [`Store::commit_end`].
#[derive(Debug)]
#[must_use = "the transaction goes on until Store::commit_end"]
pub struct Pending {
    transaction: u64,
    /// The record; 0 if nothing was changed.
    sequence: u64,
    /// Pages that the record has bytes of.
    changed: Vec<Changed>,
}

impl Pending {
    /// The commit lasts when the log is flushed through this record; 0 if there is none.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

#[derive(Debug)]
struct Changed {
    name: PageName,
    region: u32,
    /// The new page, where dirty bits will be compared with it.
    image: Option<Box<Page>>,
}

impl<M: Medium, P: Memory> Store<M, P> {
    /// Ends a transaction: all of its changes, or none.
    ///
    /// # Errors
    /// The transaction was aborted: [`Error::TooLarge`], [`Error::LogFull`], [`Error::Deadlock`] and other failures of
    /// its touches, the medium's. After [`Error::Broken`] or a flush that failed, opening the store again says whether
    /// it was committed. [`Error::NoTransaction`].
    pub fn commit(&mut self, transaction: TransactionId, durability: Durability) -> Result<(), Error> {
        let pending = self.commit_begin(transaction)?;
        let result = match durability {
            Durability::Flush if pending.sequence != 0 => self.flush(),
            Durability::Flush | Durability::Lazy => Ok(()),
        };
        self.commit_end(pending, result)?;
        self.truncate_if_full()
    }

    /// Writes a transaction's changes to the log. To have others share its flush: call [`Store::flush_begin`], flush
    /// the log's medium without holding the store, call [`Store::flush_end`], and [`Store::commit_end`] for each.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn commit_begin(&mut self, transaction: TransactionId) -> Result<Pending, Error> {
        if self.transactions.get(&transaction.0).is_none_or(|known| known.is_ending) {
            return Err(Error::NoTransaction);
        }
        let result = match self.failure(transaction) {
            Some(error) => Err(error),
            None => self.append_commit(transaction.0),
        };
        result.or_else(|error| {
            self.abort_any(transaction.0)?;
            Err(error)
        })
    }

    /// Ends a commit whose flush ended so: keeps the changes, or takes them back.
    ///
    /// # Errors
    /// The flush's.
    pub fn commit_end(&mut self, pending: Pending, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Ok(()) => {
                self.settle(&pending);
                Ok(())
            }
            Err(error) => {
                self.abort_any(pending.transaction)?;
                Err(error)
            }
        }
    }

    /// Begins a flush of the log that others may share.
    pub fn flush_begin(&self) -> Flush {
        self.log.ring.flush_begin()
    }

    /// Takes how the flush of the log's medium ended.
    ///
    /// # Errors
    /// The flush's; the store is broken then.
    pub fn flush_end(&mut self, flush: Flush, result: Result<(), MediumError>) -> Result<(), Error> {
        Ok(self.log.ring.flush_end(flush, result)?)
    }

    /// Takes on a part of a truncation if the log is fuller than the options say.
    ///
    /// # Errors
    /// [`Error::Broken`]; other failures are met again by whoever needs the room.
    pub fn truncate_if_full(&mut self) -> Result<(), Error> {
        let ring = &self.log.ring;
        let is_full =
            ring.used_bytes() as u128 * 100 >= ring.ring_bytes() as u128 * u128::from(self.options.truncate_percent);
        if self.truncation.is_some() || is_full {
            // The commit has succeeded; that its segments could not be written is no news for its program.
            let _ = self.truncate_step(STEP_RECORD_COUNT);
        }
        Ok(())
    }

    fn append_commit(&mut self, id: u64) -> Result<Pending, Error> {
        self.take_touched(id)?;
        self.close(id)?;
        let changed = self.collect(id)?;
        let has_holds = self.transactions.get(&id).is_some_and(|transaction| !transaction.holds.is_empty());
        if changed.is_empty() && !has_holds {
            self.set_ending(id);
            return Ok(Pending { transaction: id, sequence: 0, changed });
        }
        // The end of this one is the record itself.
        self.find_room(self.payload.len(), self.spare_count(0))?;
        let appended = self.log.ring.append(KIND_COMMIT, &[&self.payload])?;
        self.counters.payload_bytes += self.payload.len() as u64;
        self.set_ending(id);
        Ok(Pending { transaction: id, sequence: appended.sequence, changed })
    }

    fn set_ending(&mut self, id: u64) {
        if let Some(known) = self.transactions.get_mut(&id) {
            known.is_ending = true;
        }
    }

    /// Takes the locks and notes the touches that the back end has answered by itself.
    #[inline]
    pub(super) fn take_touched(&mut self, id: u64) -> Result<(), Error> {
        if self.has_answering { self.take_answered(id) } else { Ok(()) }
    }

    fn take_answered(&mut self, id: u64) -> Result<(), Error> {
        let Self { transactions, regions, locks, shadow_count, .. } = self;
        let Some(transaction) = transactions.get_mut(&id) else { return Err(Error::NoTransaction) };
        let mut is_locked = true;
        for (region_id, region) in regions.iter_mut().filter(|(_, region)| region.owner == transaction.owner) {
            let (segment, first_page, detector) = (region.segment, region.first_page, region.detector);
            region.memory.take_touched(&mut |touched| {
                let name = (segment, first_page + touched.page as u64);
                let is_write = touched.access == Access::Write;
                let mode = if is_write { Mode::Write } else { Mode::Read };
                is_locked &= locks.lock(id, name, mode) == Answer::Granted;
                let touch = transaction.touches.entry(name).or_insert_with(|| Touch::new(*region_id, touched.page));
                if is_write && touch.access < Access::Write && detector == Detector::Diff {
                    *shadow_count += 1;
                }
                touch.access = touch.access.max(touched.access);
            });
        }
        if is_locked { Ok(()) } else { Err(Error::Busy) }
    }

    /// Closes all pages that a transaction has touched; what it knows of them stays.
    fn close(&mut self, id: u64) -> Result<(), Error> {
        let Self { transactions, regions, .. } = self;
        let Some(transaction) = transactions.get(&id) else { return Err(Error::NoTransaction) };
        // Neighbours are closed by one call.
        let mut run: Option<(u32, Range<usize>)> = None;
        let mut protect = |run: Option<(u32, Range<usize>)>| {
            let region = run.and_then(|(region, pages)| Some((regions.get_mut(&region)?, pages)));
            region.map_or(Ok(()), |(region, pages)| region.memory.protect(pages, Access::None))
        };
        for touch in transaction.touches.values().filter(|touch| touch.access > Access::None) {
            match &mut run {
                Some((region, pages)) if *region == touch.region && pages.end == touch.page => pages.end += 1,
                _ => protect(run.replace((touch.region, touch.page..touch.page + 1)))?,
            }
        }
        Ok(protect(run)?)
    }

    /// Puts the changes into the payload.
    fn collect(&mut self, id: u64) -> Result<Vec<Changed>, Error> {
        let (mut new, mut old) = (self.take_scratch(), self.take_scratch());
        entry::begin(&mut self.payload, id);
        let mut changed = Vec::new();
        let Self { transactions, regions, payload, .. } = self;
        let Some(transaction) = transactions.get(&id) else { return Err(Error::NoTransaction) };
        for (&name, touch) in transaction.touches.iter().filter(|(_, touch)| touch.is_changed()) {
            let region = &regions[&touch.region];
            let page = region.page(name).ok_or(Error::OutOfRange)?;
            let before = payload.len();
            let first = name.1 * PAGE_BYTES as u64;
            let mut push = |start: usize, bytes: &[u8]| {
                let offset = first + start as u64;
                entry::push(payload, entry::Entry { segment: name.0, is_old: false, offset, bytes })
            };
            region.memory.read(page, &mut new);
            match region.detector {
                Detector::Diff if touch.access == Access::Write && region.memory.read_shadow(page, &mut old) => {
                    diff::runs(&old, &new, |run| push(run.start, &new[run]))?;
                }
                Detector::Page => push(0, &new[..])?,
                Detector::SetRange | Detector::Diff | Detector::DirtyBits => {}
            }
            touch.declared().ranges.iter().try_for_each(|&(start, stop)| push(start, &new[start..stop]))?;
            if payload.len() > before {
                let image = (region.detector == Detector::DirtyBits).then(|| new.clone());
                changed.push(Changed { name, region: touch.region, image });
            }
        }
        let owner = transaction.owner;
        let dirty = self.dirty_pages(owner)?;
        if let Some(transaction) = self.transactions.get_mut(&id) {
            transaction.dirty.extend(dirty.iter().map(|(name, region, _)| (*name, *region)));
        }
        for (name, region, image) in dirty {
            self.last_page(name, &mut old)?;
            let before = self.payload.len();
            let payload = &mut self.payload;
            diff::runs(&old, &image, |run| {
                let offset = name.1 * PAGE_BYTES as u64 + run.start as u64;
                entry::push(payload, entry::Entry { segment: name.0, is_old: false, offset, bytes: &image[run] })
            })?;
            if self.payload.len() > before {
                changed.push(Changed { name, region, image: Some(image) });
            }
        }
        self.put_scratch(new);
        self.put_scratch(old);
        Ok(changed)
    }

    /// Dirty bits: copies of the owner's dirty pages, whose bits are clear afterwards.
    fn dirty_pages(&mut self, owner: OwnerId) -> Result<Vec<(PageName, u32, Box<Page>)>, Error> {
        let mut pages = Vec::new();
        let is_meant = |region: &super::Region<P>| region.owner == owner && region.detector == Detector::DirtyBits;
        for (id, region) in self.regions.iter_mut().filter(|(_, region)| is_meant(region)) {
            let mut bits = alloc::vec![0; region.page_count.div_ceil(64) as usize];
            region.memory.dirty(0..region.page_count as usize, &mut bits, true)?;
            for (index, mut word) in bits.into_iter().enumerate() {
                while word != 0 {
                    let page = index * 64 + word.trailing_zeros() as usize;
                    word &= word - 1;
                    let name = (region.segment, region.first_page + page as u64);
                    if !self.segments[name.0 as usize].is_present(name.1) {
                        continue;
                    }
                    let mut image = Box::new([0; PAGE_BYTES]);
                    region.memory.read(page, &mut image);
                    pages.push((name, *id, image));
                }
            }
        }
        Ok(pages)
    }

    /// The commit stands: memory is as its segment will be.
    fn settle(&mut self, pending: &Pending) {
        let id = pending.transaction;
        let Some(transaction) = self.transactions.remove(&id) else { return };
        if pending.sequence == 0 {
            self.counters.read_only_count += 1;
        } else {
            self.counters.commit_count += 1;
        }
        let sequence = pending.sequence;
        for (&name, _) in transaction.touches.iter().filter(|(_, touch)| touch.is_stolen) {
            // Its segment has it as it was stolen, unless it has changed since.
            self.marks.insert(name, Mark { committed: sequence, written: sequence });
        }
        let mut by_region: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for changed in &pending.changed {
            let mark = self.marks.entry(changed.name).or_default();
            mark.committed = sequence;
            mark.written = mark.written.min(sequence - 1);
            if let Some(image) = &changed.image {
                self.images.insert(changed.name, image.clone());
            }
            if let Some(page) = self.regions.get(&changed.region).and_then(|region| region.page(changed.name)) {
                by_region.entry(changed.region).or_default().push(page);
            }
        }
        for (region, pages) in by_region {
            if let Some(region) = self.regions.get_mut(&region) {
                region.memory.publish(&pages);
            }
        }
        self.end(id, &transaction, sequence);
    }

    /// Ends a transaction: nothing of its changes stays.
    ///
    /// # Errors
    /// [`Error::NoTransaction`]; the medium's, and the store is broken then.
    pub fn abort(&mut self, transaction: TransactionId) -> Result<(), Error> {
        if self.transactions.get(&transaction.0).is_none_or(|known| known.is_ending) {
            return Err(Error::NoTransaction);
        }
        self.abort_any(transaction.0)
    }

    fn abort_any(&mut self, id: u64) -> Result<(), Error> {
        self.take_touched(id).or_else(|error| if error == Error::Busy { Ok(()) } else { Err(error) })?;
        let result = self.take_back(id);
        if result.is_err() {
            self.log.ring.set_broken();
        }
        if let Some(transaction) = self.transactions.remove(&id) {
            self.end(id, &transaction, self.log.ring.last_sequence());
        }
        self.counters.abort_count += 1;
        result
    }

    fn take_back(&mut self, id: u64) -> Result<(), Error> {
        self.close(id)?;
        self.restore_memory(id)?;
        let Some(transaction) = self.transactions.get(&id) else { return Err(Error::NoTransaction) };
        if transaction.holds.is_empty() {
            return Ok(());
        }
        let holds = transaction.holds.clone();
        let mut absent: BTreeMap<PageName, Box<Page>> = BTreeMap::new();
        let mut touched = Vec::new();
        let Self { log, segments, segment_bytes, regions, .. } = self;
        undo(&log.ring, segment_bytes, &holds, &mut |entry| {
            each_part(entry, &mut |name, offset, bytes| {
                touched.push(name);
                let segment = &segments[name.0 as usize];
                if segment.is_present(name.1) {
                    let mut mapping = regions.values_mut().filter_map(|region| Some((region.page(name)?, region)));
                    if let Some((page, region)) = mapping.next() {
                        region.memory.write(page, offset, bytes);
                    }
                    return Ok(());
                }
                let page = match absent.entry(name) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => {
                        let mut page = Box::new([0; PAGE_BYTES]);
                        segment.read(name.1, &mut page)?;
                        place.insert(page)
                    }
                };
                page[offset..offset + bytes.len()].copy_from_slice(bytes);
                Ok(())
            })
        })?;
        entry::begin(&mut self.payload, id);
        let appended = match self.log.ring.append(KIND_ABORT, &[&self.payload]) {
            // Recovery undoes it as well.
            Err(LogError::Broken) => return Ok(()),
            result => result?,
        };
        if !absent.is_empty() {
            self.log.ring.flush()?;
        }
        for name in touched {
            let written = self.marks.get(&name).map_or(0, |mark| mark.written.min(appended.sequence - 1));
            self.marks.insert(name, Mark { committed: appended.sequence, written });
        }
        let absent: Vec<(PageName, &Page)> = absent.iter().map(|(name, page)| (*name, &**page)).collect();
        self.write_pages(&absent)
    }

    /// Stores what was kept in memory of the old bytes.
    fn restore_memory(&mut self, id: u64) -> Result<(), Error> {
        let mut page_bytes = Box::new([0; PAGE_BYTES]);
        let Some(transaction) = self.transactions.get(&id) else { return Err(Error::NoTransaction) };
        let mut lost = Vec::new();
        for (&name, touch) in transaction.touches.iter().filter(|(_, touch)| touch.is_changed()) {
            let Some(region) = self.regions.get_mut(&touch.region) else { continue };
            let Some(page) = region.page(name) else { continue };
            match region.detector {
                Detector::SetRange if transaction.restore == crate::Restore::No => lost.push((name, touch.region)),
                Detector::Diff if touch.access == Access::Write && region.memory.read_shadow(page, &mut page_bytes) => {
                    region.memory.write(page, 0, &page_bytes[..]);
                }
                Detector::SetRange | Detector::Page | Detector::Diff | Detector::DirtyBits => {}
            }
            touch.declared().old.iter().for_each(|(start, bytes)| region.memory.write(page, *start, bytes));
        }
        let owner = transaction.owner;
        lost.extend_from_slice(&transaction.dirty);
        lost.extend(self.dirty_pages(owner)?.into_iter().map(|(name, region, _)| (name, region)));
        for (name, id) in lost {
            let is_dirty_bits = self.regions.get(&id).is_some_and(|region| region.detector == Detector::DirtyBits);
            if is_dirty_bits {
                self.last_page(name, &mut page_bytes)?;
            } else {
                self.committed_page(name, &mut page_bytes)?;
            }
            if let Some(region) = self.regions.get_mut(&id)
                && let Some(page) = region.page(name)
            {
                region.memory.write(page, 0, &page_bytes[..]);
            }
        }
        Ok(())
    }

    /// What every end has in common.
    fn end(&mut self, id: u64, transaction: &Transaction, sequence: u64) {
        for (&name, touch) in transaction.touches.iter().filter(|(_, touch)| touch.access == Access::Write) {
            self.drop_shadow(touch.region, name);
        }
        if let Some(start) = transaction.hold_start {
            self.spans.push(Span { start, end: sequence });
        }
        self.locks.release(id);
    }
}
