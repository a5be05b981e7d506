//! A process that uses a database which a service has open.
//!
//! The pages are the service's memory file, mapped here. A fault asks the service for the lock and opens the page; a
//! commit closes what was opened, and asks. One transaction at a time: the service knows a process, not its threads.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::vec::Vec;

use super::layout::io_error;
use super::memory::ProgramView;
use super::service::{commit_request, touch_request};
use super::signal::{self, Faults};
use super::wire::{REPLY_BYTES, Request, reply};
use crate::error::Error;
use crate::memory::{Access, PAGE_BYTES};
use crate::store::RegionId;
use crate::{Detector, Durability};

#[derive(Debug)]
struct State {
    stream: UnixStream,
    /// Pages that are open.
    opened: Vec<usize>,
    /// Why the transaction was aborted, and which pages are private since.
    failed: Option<(Error, Vec<usize>)>,
    /// A thread is in a transaction. Threads share the pages, so that two would have each other's.
    is_taken: bool,
}

impl State {
    fn ask(&mut self, request: Request) -> Result<u64, Error> {
        let sent = self.stream.write_all(&request.to_bytes());
        sent.map_err(|_| Error::Broken).and_then(|()| self.receive())
    }

    fn receive(&mut self) -> Result<u64, Error> {
        let mut bytes = [0; REPLY_BYTES];
        // A service that is gone has committed or not: opening the database tells.
        self.stream.read_exact(&mut bytes).map_err(|_| Error::Broken)?;
        reply(&bytes)
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    view: ProgramView,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what is open, neighbours by one call.
    fn close(&self, state: &mut State) {
        let mut pages = core::mem::take(&mut state.opened);
        pages.sort_unstable();
        pages.dedup();
        for run in pages.chunk_by(|page, next| page + 1 == *next) {
            // Closing needs no memory but for the parts of a mapping, which were there when it was opened.
            let _ = self.view.protect(run[0]..run[0] + run.len(), Access::None);
        }
    }

    /// Ends a transaction that has failed; its error.
    fn end_failed(&self, state: &mut State) -> Option<Error> {
        let (error, pages) = state.failed.take()?;
        for page in pages {
            let _ = self.view.set_private(page, false);
        }
        Some(error)
    }
}

impl Faults for Shared {
    fn fault(&self, _transaction: u64, _region: RegionId, page: usize, want: Access) -> bool {
        let mut state = self.lock();
        if state.failed.is_none() {
            match state.ask(touch_request(page, want)) {
                Ok(_) => {
                    state.opened.push(page);
                    return self.view.protect(page..page + 1, want).is_ok();
                }
                Err(Error::NotDeclared) => return false,
                Err(error) => {
                    self.close(&mut state);
                    state.failed = Some((error, Vec::new()));
                }
            }
        }
        if let Some((_, pages)) = &mut state.failed {
            pages.push(page);
        }
        self.view.set_private(page, true).is_ok()
    }

    fn identity(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }
}

/// A connection to a service, with all pages of its database mapped.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Connects to the service that listens at a path.
    ///
    /// # Errors
    /// [`Error::NoSegment`] if none does, the system's.
    pub fn connect(socket: &Path, detector: Detector) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket).map_err(io_error)?;
        let mut state = State { stream, opened: Vec::new(), failed: None, is_taken: false };
        let place = state.ask(Request::Map(detector))?;
        let page_count = state.receive()?;
        let path = PathBuf::from(std::format!("/proc/{}/fd/{}", place >> 32, place & 0xffff_ffff));
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io_error)?;
        let view = ProgramView::new(file.into(), page_count as usize * PAGE_BYTES, 0, detector).map_err(io_error)?;
        let (start, length) = (view.address(), view.length());
        let shared = Arc::new(Shared { state: Mutex::new(state), view });
        let faults: Weak<Shared> = Arc::downgrade(&shared);
        signal::add(signal::Range { start, length, region: RegionId::default(), shared: faults }).map_err(io_error)?;
        Ok(Self { shared })
    }

    /// Where the pages lie.
    pub fn address(&self) -> *mut u8 {
        self.shared.view.address() as *mut u8
    }

    /// Bytes of them.
    pub fn length(&self) -> usize {
        self.shared.view.length()
    }

    /// Begins a transaction of this thread.
    ///
    /// # Errors
    /// [`Error::Busy`] if the process is in one, the service's.
    pub fn begin(&self) -> Result<(), Error> {
        if signal::current().is_some() {
            return Err(Error::Busy);
        }
        let mut state = self.shared.lock();
        if state.is_taken {
            return Err(Error::Busy);
        }
        let number = state.ask(Request::Begin)?;
        state.is_taken = true;
        signal::set_current(Some((self.shared.identity(), number)));
        Ok(())
    }

    /// Says which bytes will be changed; needed with [`Detector::SetRange`] alone.
    ///
    /// # Errors
    /// As [`crate::Store::set_range`]; the transaction was aborted.
    pub fn set_range(&self, offset: u64, length: u64) -> Result<(), Error> {
        let mut state = self.shared.lock();
        if let Some((error, _)) = &state.failed {
            return Err(*error);
        }
        if let Err(error) = state.ask(Request::SetRange { offset, length }) {
            self.shared.close(&mut state);
            state.failed = Some((error, Vec::new()));
            return Err(error);
        }
        // The pages are opened by the faults of their stores.
        Ok(())
    }

    /// Why the transaction can only be aborted; `None` while it can commit.
    pub fn failure(&self) -> Option<Error> {
        self.shared.lock().failed.as_ref().map(|failed| failed.0)
    }

    /// Ends the thread's transaction with all of its changes.
    ///
    /// # Errors
    /// It was aborted: as [`crate::Store::commit`].
    pub fn commit(&self, durability: Durability) -> Result<(), Error> {
        self.end(commit_request(durability))
    }

    /// Ends it without.
    ///
    /// # Errors
    /// The service's.
    pub fn abort(&self) -> Result<(), Error> {
        self.end(Request::Abort).or_else(|error| if error == Error::Broken { Err(error) } else { Ok(()) })
    }

    fn end(&self, request: Request) -> Result<(), Error> {
        if signal::current().is_none_or(|current| current.0 != self.shared.identity()) {
            return Err(Error::NoTransaction);
        }
        signal::set_current(None);
        let mut state = self.shared.lock();
        self.shared.close(&mut state);
        state.is_taken = false;
        match self.shared.end_failed(&mut state) {
            Some(error) => Err(error),
            None => state.ask(request).map(|_| ()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A thread that was in a transaction has none any more; the service aborts it.
        if signal::current().is_some_and(|current| current.0 == self.shared.identity()) {
            signal::set_current(None);
        }
        signal::remove(self.shared.view.address());
    }
}
