//! Pages out of memory: clean ones, committed ones, and, by *steal*, ones with uncommitted changes.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::double::write_pages;
use super::entry::{self, Entry};
use super::replay::{Replayer, each_part, undo};
use super::{Store, diff};
use crate::Detector;
use crate::error::Error;
use crate::lock::PageName;
use crate::medium::Medium;
use crate::memory::{Access, Memory, MemoryError, PAGE_BYTES, Page};

/// Pages in memory that are looked at for one that costs no log before others are stolen.
const SCAN_COUNT: usize = 64;
/// Most pages that are stolen at once: they share a flush.
const STEAL_COUNT: usize = 16;

/// A page with uncommitted changes, and whose they are.
#[derive(Clone, Copy, Debug)]
struct Theft {
    transaction: u64,
    region: u32,
    name: PageName,
}

/// What came of an attempt to take a page out of memory.
enum Eviction {
    Done,
    Changed(Theft),
    Stays,
}

impl<M: Medium, P: Memory> Store<M, P> {
    /// Takes pages out of memory, uncommitted ones if nothing else is near: the system wants them back. Answers how
    /// many it were.
    ///
    /// # Errors
    /// The medium's.
    pub fn shrink(&mut self, page_count: usize) -> Result<usize, Error> {
        let mut count = 0;
        while count < page_count {
            match self.evict_some(None, page_count - count)? {
                0 => break,
                evicted => count += evicted,
            }
        }
        Ok(count)
    }

    /// Evicts until so many more frames fit; never `except`.
    pub(super) fn make_room(&mut self, count: usize, except: PageName) -> Result<(), Error> {
        while self.present_count + self.shadow_count + count > self.options.frame_count_max {
            // What is stolen ahead must not be most of what the program works on.
            let most = (self.options.frame_count_max / 2).clamp(1, STEAL_COUNT);
            if self.evict_some(Some(except), most)? == 0 {
                return Err(Error::Memory(MemoryError::NoMemory));
            }
        }
        Ok(())
    }

    /// Evicts a page that costs no log; if there is none near, at most so many that do. Answers how many it were.
    ///
    /// A transaction that has changed all that is in memory would have every fault look at all of it in vain. So the
    /// search gives up after some pages, and takes what it has seen, by one flush for all.
    fn evict_some(&mut self, except: Option<PageName>, most: usize) -> Result<usize, Error> {
        let mut changed = Vec::new();
        for number in 1..=self.present_count {
            let Some(name) = self.next_present(self.hand) else { return Ok(0) };
            self.hand = (name.0, name.1 + 1);
            self.counters.examined_count += 1;
            if Some(name) != except {
                match self.evict(name)? {
                    Eviction::Done => return Ok(1),
                    Eviction::Changed(theft) if changed.len() < most.min(STEAL_COUNT) => changed.push(theft),
                    Eviction::Changed(_) | Eviction::Stays => {}
                }
            }
            if number % SCAN_COUNT == 0 || number == self.present_count {
                let count = self.steal_all(&core::mem::take(&mut changed))?;
                if count > 0 {
                    return Ok(count);
                }
            }
        }
        Ok(0)
    }

    /// The first page in memory from `from` on, around the end.
    fn next_present(&self, from: PageName) -> Option<PageName> {
        let search = |segment: u32, first: u64| {
            let known = self.segments.get(segment as usize)?;
            let mut word = (first / 64) as usize;
            let mut mask = u64::MAX << (first % 64);
            while let Some(bits) = known.present.get(word) {
                if bits & mask != 0 {
                    return Some((segment, word as u64 * 64 + u64::from((bits & mask).trailing_zeros())));
                }
                word += 1;
                mask = u64::MAX;
            }
            None
        };
        let segment_count = self.segments.len() as u32;
        search(from.0, from.1)
            .or_else(|| (1..=segment_count).find_map(|distance| search((from.0 + distance) % segment_count.max(1), 0)))
    }

    /// Takes a page out of memory if it has no uncommitted changes.
    fn evict(&mut self, name: PageName) -> Result<Eviction, Error> {
        let mapping = self.mapping(name);
        let Some(&first) = mapping.first() else { return Ok(Eviction::Stays) };
        let is_touched = |known: &super::Transaction| known.touches.get(&name).is_some_and(|touch| touch.is_open());
        let can_close = mapping.iter().all(|id| self.regions[id].memory.can_close());
        if !can_close && self.transactions.values().any(is_touched) {
            return Ok(Eviction::Stays);
        }
        let is_dirty_bits = self.regions[&first].detector == Detector::DirtyBits;
        let writer = if is_dirty_bits {
            // Only what is closed can be compared.
            self.close_page(&mapping, name)?;
            match self.dirty_writer(first, name)? {
                Ok(writer) => writer,
                Err(()) => {
                    self.reopen(first, name)?;
                    return Ok(Eviction::Stays);
                }
            }
        } else {
            self.open_writer(name)
        };
        let Some((transaction, region)) = writer else {
            self.close_page(&mapping, name)?;
            if self.is_behind(name) {
                self.write_committed(first, name)?;
            }
            self.leave_memory(name, &mapping);
            return Ok(Eviction::Done);
        };
        if is_dirty_bits {
            self.reopen(region, name)?;
        }
        let is_ending = self.transactions.get(&transaction).is_some_and(|known| known.is_ending);
        let must_stay = is_ending || self.regions[&region].detector == Detector::SetRange;
        Ok(if must_stay { Eviction::Stays } else { Eviction::Changed(Theft { transaction, region, name }) })
    }

    fn mapping(&self, name: PageName) -> Vec<u32> {
        self.regions.iter().filter(|(_, region)| region.page(name).is_some()).map(|(id, _)| *id).collect()
    }

    /// The page is closed, and its segment has it.
    fn leave_memory(&mut self, name: PageName, mapping: &[u32]) {
        for transaction in self.transactions.values_mut() {
            if let Some(touch) = transaction.touches.get_mut(&name) {
                touch.leave_memory();
            }
        }
        for id in mapping {
            if let Some(region) = self.regions.get_mut(id)
                && let Some(page) = region.page(name)
            {
                region.memory.evict(page..page + 1);
            }
        }
        self.forget_present(name);
    }

    /// A region ends: its pages go out of memory, which no transaction has touched.
    pub(super) fn evict_committed(&mut self, name: PageName) -> Result<(), Error> {
        match self.evict(name)? {
            Eviction::Done => Ok(()),
            Eviction::Changed(_) | Eviction::Stays => Err(Error::Busy),
        }
    }

    fn forget_present(&mut self, name: PageName) {
        self.segments[name.0 as usize].set_present(name.1, false);
        self.present_count -= 1;
        self.counters.evict_count += 1;
        self.images.remove(&name);
    }

    fn close_page(&mut self, mapping: &[u32], name: PageName) -> Result<(), Error> {
        for id in mapping {
            if let Some(region) = self.regions.get_mut(id)
                && let Some(page) = region.page(name)
            {
                region.memory.protect(page..page + 1, Access::None)?;
            }
        }
        Ok(())
    }

    /// The page stays: the program may do with it what it might before.
    fn reopen(&mut self, region: u32, name: PageName) -> Result<bool, Error> {
        let mut touches = self.transactions.values().filter_map(|transaction| transaction.touches.get(&name));
        let access = touches.find(|touch| touch.region == region).map_or(Access::None, |touch| touch.access);
        if let Some(region) = self.regions.get_mut(&region)
            && let Some(page) = region.page(name)
        {
            let access = if region.detector == Detector::DirtyBits { Access::Write } else { access };
            region.memory.protect(page..page + 1, access)?;
        }
        Ok(false)
    }

    /// The transaction that has changed the page or may do so now, and its region.
    fn open_writer(&self, name: PageName) -> Option<(u64, u32)> {
        self.transactions.iter().find_map(|(id, transaction)| {
            let touch = transaction.touches.get(&name).filter(|touch| touch.is_changed())?;
            Some((*id, touch.region))
        })
    }

    /// Dirty bits: the transaction to which a difference from the committed page belongs; an error if there is a
    /// difference and no transaction.
    fn dirty_writer(&self, region: u32, name: PageName) -> Result<Result<Option<(u64, u32)>, ()>, Error> {
        let known = &self.regions[&region];
        let (mut new, mut old) = (Box::new([0; PAGE_BYTES]), Box::new([0; PAGE_BYTES]));
        known.memory.read(known.page(name).ok_or(Error::OutOfRange)?, &mut new);
        self.last_page(name, &mut old)?;
        if new == old {
            return Ok(Ok(None));
        }
        let mut owners = self.transactions.iter().filter(|(_, transaction)| transaction.owner == known.owner);
        Ok(owners.next().map(|(id, _)| Some((*id, region))).ok_or(()))
    }

    /// Takes pages with uncommitted changes out of memory, after what undoes them is in the log, flushed (STORE-2).
    /// Answers how many it were: what does not fit into the log stays.
    fn steal_all(&mut self, thefts: &[Theft]) -> Result<usize, Error> {
        let mut ready: Vec<Theft> = Vec::new();
        for theft in thefts {
            let closed = self.close_page(&self.mapping(theft.name), theft.name);
            match closed.and_then(|()| self.log_changes(*theft)) {
                Ok(()) => ready.push(*theft),
                Err(error) => {
                    self.reopen(theft.region, theft.name)?;
                    if !matches!(error, Error::LogFull | Error::TooLarge) {
                        return self.give_up(&ready, error);
                    }
                }
            }
        }
        if ready.is_empty() {
            return Ok(0);
        }
        if let Err(error) = self.log.ring.flush() {
            return self.give_up(&ready, error.into());
        }
        if let Err(error) = self.write_stolen(&ready) {
            return self.give_up(&ready, error);
        }
        for theft in &ready {
            let touch = self.transactions.get(&theft.transaction).and_then(|known| known.touches.get(&theft.name));
            if touch.is_some_and(|touch| touch.access == Access::Write) {
                self.drop_shadow(theft.region, theft.name);
            }
            self.counters.steal_count += 1;
            let mapping = self.mapping(theft.name);
            self.leave_memory(theft.name, &mapping);
        }
        Ok(ready.len())
    }

    /// The medium failed: the pages stay. What is in the log of them is not what a commit would mean, so that their
    /// transactions can only be aborted.
    fn give_up(&mut self, thefts: &[Theft], error: Error) -> Result<usize, Error> {
        for theft in thefts {
            self.reopen(theft.region, theft.name)?;
            if let Some(known) = self.transactions.get_mut(&theft.transaction) {
                known.failure.get_or_insert(error);
            }
        }
        Err(error)
    }

    /// Logs what a closed page was and what it is.
    fn log_changes(&mut self, Theft { transaction, region, name }: Theft) -> Result<(), Error> {
        let (mut new, mut old) = (Box::new([0; PAGE_BYTES]), Box::new([0; PAGE_BYTES]));
        let known = &self.regions[&region];
        let page = known.page(name).ok_or(Error::OutOfRange)?;
        known.memory.read(page, &mut new);
        entry::begin(&mut self.payload, transaction);
        let (segment, first) = (name.0, name.1 * PAGE_BYTES as u64);
        let touch = self.transactions.get(&transaction).and_then(|known| known.touches.get(&name));
        if known.detector == Detector::Page {
            entry::push(&mut self.payload, Entry { segment, is_old: false, offset: first, bytes: &new[..] })?;
        } else {
            if known.detector == Detector::DirtyBits {
                self.last_page(name, &mut old)?;
            } else {
                let has_shadow = touch.is_some_and(|touch| touch.access == Access::Write);
                if !(has_shadow && known.memory.read_shadow(page, &mut old)) {
                    old.copy_from_slice(&new[..]);
                }
                touch.into_iter().for_each(|touch| touch.take_back(&mut old));
            }
            let payload = &mut self.payload;
            diff::runs(&old, &new, |run| {
                let offset = first + run.start as u64;
                entry::push(payload, Entry { segment, is_old: true, offset, bytes: &old[run.clone()] })?;
                entry::push(payload, Entry { segment, is_old: false, offset, bytes: &new[run] })
            })?;
        }
        // Without a difference there is nothing to undo.
        if self.payload.len() > 8 {
            self.append_hold(transaction)?;
            if let Some(known) = self.transactions.get_mut(&transaction) {
                known.touches.entry(name).or_insert_with(|| super::Touch::new(region, page)).is_stolen = true;
            }
        }
        Ok(())
    }

    /// Writes pages whose changes are in the log, flushed.
    fn write_stolen(&mut self, thefts: &[Theft]) -> Result<(), Error> {
        let mut pages = Vec::new();
        for Theft { region, name, .. } in thefts {
            let mut page = Box::new([0; PAGE_BYTES]);
            let known = &self.regions[region];
            known.memory.read(known.page(*name).ok_or(Error::OutOfRange)?, &mut page);
            pages.push((*name, page));
        }
        let pages: Vec<(PageName, &Page)> = pages.iter().map(|(name, page)| (*name, &**page)).collect();
        self.write_pages(&pages)
    }

    pub(super) fn drop_shadow(&mut self, region: u32, name: PageName) {
        if let Some(known) = self.regions.get_mut(&region)
            && known.detector == Detector::Diff
            && let Some(page) = known.page(name)
        {
            known.memory.drop_shadow(page);
            self.shadow_count = self.shadow_count.saturating_sub(1);
        }
    }

    /// Writes a page whose changes are all committed.
    fn write_committed(&mut self, region: u32, name: PageName) -> Result<(), Error> {
        let mut page = Box::new([0; PAGE_BYTES]);
        let known = &self.regions[&region];
        known.memory.read(known.page(name).ok_or(Error::OutOfRange)?, &mut page);
        if self.marks.get(&name).is_some_and(|mark| mark.committed > self.log.ring.flushed_through()) {
            self.log.ring.flush()?;
        }
        self.write_pages(&[(name, &page)])
    }

    /// Writes pages to their segments, which have everything up to now then.
    pub(super) fn write_pages(&mut self, pages: &[(PageName, &Page)]) -> Result<(), Error> {
        if let Some(truncation) = &mut self.truncation {
            pages.iter().for_each(|(name, _)| truncation.cache.forget(*name));
        }
        write_pages(&mut self.area, &self.segments, pages)?;
        let written = self.log.ring.last_sequence();
        pages.iter().for_each(|(name, _)| self.marks.entry(*name).or_default().written = written);
        Ok(())
    }

    /// The page as the last fetch or commit left it: what a dirty page is compared with.
    pub(super) fn last_page(&self, name: PageName, into: &mut Page) -> Result<(), Error> {
        if let Some(image) = self.images.get(&name) {
            into.copy_from_slice(&image[..]);
            return Ok(());
        }
        self.segments[name.0 as usize].read(name.1, into)?;
        if self.is_behind(name) { self.replay_page(name, into, None) } else { Ok(()) }
    }

    /// The committed page, whatever a transaction has done to memory and segment: slow, and always possible.
    pub(super) fn committed_page(&self, name: PageName, into: &mut Page) -> Result<(), Error> {
        let writer = self.writer(name);
        self.segments[name.0 as usize].read(name.1, into)?;
        self.replay_page(name, into, writer)
    }

    /// Does to a page, as its segment has it, what the log says; then undoes what a transaction has stolen of it.
    fn replay_page(&self, name: PageName, into: &mut Page, undone: Option<u64>) -> Result<(), Error> {
        let ring = &self.log.ring;
        let written = self.marks.get(&name).map_or(0, |mark| mark.written);
        let mut replayer = Replayer::default();
        ring.replay(ring.start(), ring.last_sequence(), |head, place, payload| {
            replayer.record(ring, &self.segment_bytes, (head, place, payload), &mut |entry, sequence| {
                each_part(entry, &mut |other, offset, bytes| {
                    if other == name && sequence > written {
                        into[offset..offset + bytes.len()].copy_from_slice(bytes);
                    }
                    Ok(())
                })
            })
        })?;
        let holds = undone.and_then(|id| self.transactions.get(&id)).map(|transaction| &transaction.holds[..]);
        undo(ring, &self.segment_bytes, holds.unwrap_or_default(), &mut |entry| {
            each_part(entry, &mut |other, offset, bytes| {
                if other == name {
                    into[offset..offset + bytes.len()].copy_from_slice(bytes);
                }
                Ok(())
            })
        })
    }
}
