//! A database of this process: a file, its log, and the store over them behind a lock.
#![forbid(unsafe_code)]

use alloc::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::vec::Vec;

use super::file::{FileCounts, FileMedium};
use super::layout::{self, FileStore, Settings, io_error};
use super::memory::{Mapped, ProgramView};
use super::signal::{self, Faults};
use crate::error::Error;
use crate::log::LogError;
use crate::medium::Medium;
use crate::memory::Access;
use crate::store::{Counters, Outcome, OwnerId, RegionId, Report, TransactionId};
use crate::{Detector, Durability, Restore};

/// The one address space of a database that is open in a process.
const OWNER: OwnerId = OwnerId(1);

#[derive(Debug)]
struct State {
    store: FileStore,
    is_flushing: bool,
    /// The one transaction there is: threads share the mappings, so that two would have each other's pages.
    current: Option<TransactionId>,
    /// It has failed, and its thread has not ended it yet: why, and which pages are private.
    failed: Option<(Error, Vec<(RegionId, usize)>)>,
    views: BTreeMap<RegionId, Arc<ProgramView>>,
}

impl State {
    /// This thread is in the transaction from now on, or nobody is: where touches are answered without the store.
    fn set_owner(&self, is_this_thread: bool) {
        self.views.values().for_each(|view| view.set_owner(is_this_thread));
    }
}

/// What threads and the signal handler share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// A flush has ended.
    changed: Condvar,
    log: Arc<FileMedium>,
}

/// Of one transaction at a time, nothing is to be waited for.
fn done(answer: Result<Outcome, Error>) -> Result<(), Error> {
    match answer? {
        Outcome::Done => Ok(()),
        Outcome::Wait => Err(Error::Busy),
    }
}

impl Faults for Shared {
    fn fault(&self, transaction: u64, region: RegionId, page: usize, want: Access) -> bool {
        self.take(TransactionId::from_number(transaction), region, page, want)
    }

    fn identity(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a fault; false if it is the program's mistake.
    fn take(&self, transaction: TransactionId, region: RegionId, page: usize, want: Access) -> bool {
        let mut state = self.lock();
        if state.failed.is_none() {
            match done(state.store.fault(transaction, region, page, want)) {
                Ok(()) => return true,
                Err(Error::NotDeclared | Error::NoTransaction | Error::NoRegion | Error::OutOfRange) => return false,
                Err(error) => {
                    state.set_owner(false);
                    let _ = state.store.abort(transaction);
                    state.failed = Some((error, Vec::new()));
                }
            }
        }
        if let Some((_, pages)) = &mut state.failed {
            pages.push((region, page));
        }
        state.views.get(&region).is_some_and(|view| view.set_private(page, true).is_ok())
    }

    /// Ends the transaction if it has failed before; `None` if it has not.
    fn end_failed(&self) -> Option<Error> {
        let mut state = self.lock();
        let (error, pages) = state.failed.take()?;
        state.current = None;
        for (region, page) in pages {
            if let Some(view) = state.views.get(&region) {
                // Of a page that stays private nothing is ever committed.
                let _ = view.set_private(page, false);
            }
        }
        Some(error)
    }

    fn commit(&self, transaction: TransactionId, durability: Durability) -> Result<(), Error> {
        if let Some(error) = self.end_failed() {
            return Err(error);
        }
        let mut state = self.lock();
        state.set_owner(false);
        let pending = match state.store.commit_begin(transaction) {
            Ok(pending) => pending,
            Err(error) => {
                state.current = None;
                return Err(error);
            }
        };
        let mut result = Ok(());
        if durability == Durability::Flush {
            (state, result) = self.flush_through(state, pending.sequence());
        }
        let result = state.store.commit_end(pending, result);
        state.current = None;
        result?;
        state.store.truncate_if_full()
    }

    /// Has the log be flushed through a record: by this thread, or by one that has begun already, whose next flush it
    /// shares with all that wait (group commit).
    fn flush_through<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        sequence: u64,
    ) -> (MutexGuard<'a, State>, Result<(), Error>) {
        loop {
            let ring = &state.store.log().ring;
            if ring.flushed_through() >= sequence {
                return (state, Ok(()));
            }
            if ring.is_broken() {
                return (state, Err(LogError::Broken.into()));
            }
            if state.is_flushing {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_flushing = true;
            let flush = state.store.flush_begin();
            drop(state);
            let result = self.log.flush();
            state = self.lock();
            state.is_flushing = false;
            let result = state.store.flush_end(flush, result);
            self.changed.notify_all();
            if result.is_err() {
                return (state, result);
            }
        }
    }
}

/// A database. Clones are the same one; it is closed with the last.
#[derive(Clone, Debug)]
pub struct Database {
    shared: Arc<Shared>,
    report: Report,
}

impl Database {
    /// Makes a database of zeros: so many bytes, whole pages, in a file, or on a disk that has none.
    ///
    /// # Errors
    /// [`Error::Busy`] if there is one, [`Error::OutOfRange`] if they are none, the medium's.
    pub fn create(path: &Path, bytes: u64) -> Result<(), Error> {
        layout::create(path, bytes, false)
    }

    /// As [`Database::create`], for a disk that may spoil a block while it writes it, when it loses power: pages are
    /// written twice.
    ///
    /// # Errors
    /// As [`Database::create`].
    pub fn create_doubled(path: &Path, bytes: u64) -> Result<(), Error> {
        layout::create(path, bytes, true)
    }

    /// Opens a database, and makes its log if there is none: what the file holds is its first state then.
    ///
    /// # Errors
    /// [`Error::NoSegment`] if there is no such file, [`Error::Busy`] if another process has it open,
    /// [`Error::Damage`], the medium's.
    pub fn open(path: &Path, settings: Settings) -> Result<Self, Error> {
        let (log, store, report) = layout::open(path, settings)?;
        let state = State { store, is_flushing: false, current: None, failed: None, views: BTreeMap::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), log });
        Ok(Self { shared, report })
    }

    /// What opening it found.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Bytes of the database.
    pub fn bytes(&self) -> u64 {
        self.shared.lock().store.segment_bytes(0).unwrap_or(0)
    }

    /// What was done since it was opened.
    pub fn counters(&self) -> Counters {
        self.shared.lock().store.counters()
    }

    /// Writes and flushes of the log since it was opened.
    pub fn log_counts(&self) -> FileCounts {
        self.shared.log.counts()
    }

    /// Maps pages of the database, at an address if one is wanted (not 0).
    ///
    /// # Errors
    /// [`Error::Busy`] if something lies there or the pages are mapped, [`Error::OutOfRange`], [`Error::NoMemory`].
    pub fn map(&self, first_page: u64, page_count: usize, detector: Detector, wanted: usize) -> Result<Mapping, Error> {
        let memory = Mapped::new(page_count, wanted, detector).map_err(io_error)?;
        let view = memory.program().ok_or(Error::NoMemory)?;
        let mut state = self.shared.lock();
        let region = state.store.map(OWNER, 0, first_page, detector, memory)?;
        state.views.insert(region, Arc::clone(&view));
        drop(state);
        let shared: Weak<Shared> = Arc::downgrade(&self.shared);
        let range = signal::Range { start: view.address(), length: view.length(), region, shared };
        signal::add(range).map_err(io_error)?;
        Ok(Mapping { shared: Arc::clone(&self.shared), region, view })
    }

    /// Begins a transaction of this thread.
    ///
    /// # Errors
    /// [`Error::Busy`] if the thread is in one, or another thread is in one of this database: they would have each
    /// other's pages. [`Error::Limit`], [`Error::Broken`].
    pub fn begin(&self, restore: Restore) -> Result<Transaction, Error> {
        if signal::current().is_some() {
            return Err(Error::Busy);
        }
        let mut state = self.shared.lock();
        if state.current.is_some() {
            return Err(Error::Busy);
        }
        let id = state.store.begin(OWNER, restore)?;
        state.current = Some(id);
        state.set_owner(true);
        drop(state);
        signal::set_current(Some((self.shared.identity(), id.number())));
        Ok(Transaction { shared: Arc::clone(&self.shared), id, is_ended: false })
    }

    /// Makes all that was committed last.
    ///
    /// # Errors
    /// The medium's.
    pub fn flush(&self) -> Result<(), Error> {
        let state = self.shared.lock();
        let last = state.store.log().ring.last_sequence();
        self.shared.flush_through(state, last).1
    }

    /// Stores what the log has into the database, as far as it can be now.
    ///
    /// # Errors
    /// The medium's.
    pub fn truncate(&self) -> Result<(), Error> {
        self.shared.lock().store.truncate()
    }

    /// Flushes and truncates: the log is empty then but for transactions that go on.
    ///
    /// # Errors
    /// The medium's.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.shared.lock().store.checkpoint()
    }
}

/// Pages of a database in memory.
#[derive(Debug)]
pub struct Mapping {
    shared: Arc<Shared>,
    region: RegionId,
    view: Arc<ProgramView>,
}

impl Mapping {
    /// Where it begins. Its bytes may be touched within a transaction.
    pub fn address(&self) -> *mut u8 {
        self.view.address() as *mut u8
    }

    /// Bytes of it.
    pub fn length(&self) -> usize {
        self.view.length()
    }

    /// Which region of the store it is.
    pub fn region(&self) -> RegionId {
        self.region
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        signal::remove(self.view.address());
        // A region that a transaction has touched, or that cannot be written back, is the store's until that is closed.
        if state.store.unmap(self.region).is_ok() {
            state.views.remove(&self.region);
        }
    }
}

/// A transaction of a thread; it is aborted if it is dropped.
#[derive(Debug)]
pub struct Transaction {
    shared: Arc<Shared>,
    id: TransactionId,
    is_ended: bool,
}

impl Transaction {
    /// Says which bytes of a mapping will be changed; needed with [`Detector::SetRange`] alone.
    ///
    /// # Errors
    /// As [`crate::Store::set_range`].
    pub fn set_range(&self, mapping: &Mapping, offset: u64, length: u64) -> Result<(), Error> {
        let mut state = self.shared.lock();
        if let Some((error, _)) = state.failed {
            return Err(error);
        }
        done(state.store.set_range(self.id, mapping.region, offset, length))
    }

    /// Loads bytes of a mapping without a fault.
    ///
    /// # Errors
    /// As [`crate::Store::read`].
    pub fn read(&self, mapping: &Mapping, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut state = self.shared.lock();
        if let Some((error, _)) = state.failed {
            return Err(error);
        }
        done(state.store.read(self.id, mapping.region, offset, into))
    }

    /// Stores bytes into a mapping without a fault, and without a set range.
    ///
    /// # Errors
    /// As [`crate::Store::write`].
    pub fn write(&self, mapping: &Mapping, offset: u64, from: &[u8]) -> Result<(), Error> {
        let mut state = self.shared.lock();
        if let Some((error, _)) = state.failed {
            return Err(error);
        }
        done(state.store.write(self.id, mapping.region, offset, from))
    }

    /// Why it can only be aborted; `None` while it can commit.
    pub fn failure(&self) -> Option<Error> {
        let state = self.shared.lock();
        state.failed.as_ref().map(|failed| failed.0).or_else(|| state.store.failure(self.id))
    }

    /// Ends it with all of its changes.
    ///
    /// # Errors
    /// It was aborted: as [`crate::Store::commit`].
    pub fn commit(mut self, durability: Durability) -> Result<(), Error> {
        self.is_ended = true;
        signal::set_current(None);
        self.shared.commit(self.id, durability)
    }

    /// Ends it without.
    ///
    /// # Errors
    /// The medium's; the database has to be opened again.
    pub fn abort(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        self.is_ended = true;
        signal::set_current(None);
        if self.shared.end_failed().is_some() {
            return Ok(());
        }
        let mut state = self.shared.lock();
        state.set_owner(false);
        state.current = None;
        state.store.abort(self.id)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.is_ended {
            // Nobody is left to tell.
            let _ = self.end();
        }
    }
}
