//! A database for several processes: one process has the store, the others ask it by a socket and share its pages.
//!
//! The service sees the end of a client at once, and undoes what it had not committed. Commits that come while the log
//! is flushed share the next flush. Clients can store into all pages of the database whether they hold locks or not, so
//! they are of one user, and trusted as threads of a program are.
//!
//! # Invariants
//!
//! - SERVICE-1 A client has one request under way; what comes beside it ends the client.
//! - SERVICE-2 Nothing that a client sends or does not read keeps the others waiting: sockets do not block.
#![allow(unsafe_code, reason = "poll")]

use alloc::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use super::file::FileMedium;
use super::layout::{self, FileStore, Settings, io_error};
use super::memory::Mapped;
use super::wire::{REQUEST_BYTES, Request, reply_bytes};
use crate::Detector;
use crate::error::Error;
use crate::medium::Medium;
use crate::memory::{Access, PAGE_BYTES};
use crate::store::{Outcome, OwnerId, Pending, RegionId, TransactionId};
use crate::{Durability, Restore};

/// Most clients at once.
const CLIENT_COUNT_MAX: usize = 256;

struct Client {
    stream: UnixStream,
    request: Vec<u8>,
    region: Option<RegionId>,
    transaction: Option<TransactionId>,
    /// A request that waits for a lock.
    waiting: Option<Request>,
    is_gone: bool,
}

impl Client {
    fn answer(&mut self, result: Result<u64, Error>) {
        // A client that does not take 16 bytes has not read answers before.
        self.is_gone |= self.stream.write_all(&reply_bytes(result)).is_err();
    }
}

/// Serves a database.
pub struct Service {
    store: FileStore,
    log: Arc<FileMedium>,
    pages: Mapped,
    page_count: u64,
    listener: UnixListener,
    clients: BTreeMap<u64, Client>,
    next_client: u64,
    release_count: u64,
}

impl Service {
    /// Opens a database, and listens at a path (which is made anew).
    ///
    /// # Errors
    /// As [`super::Database::open`].
    pub fn new(path: &Path, socket: &Path, settings: Settings) -> Result<Self, Error> {
        let (log, store, _) = layout::open(path, settings)?;
        let page_count = store.segment_bytes(0).unwrap_or(0) / PAGE_BYTES as u64;
        let pages = Mapped::new(page_count as usize, 0, Detector::Diff).map_err(io_error)?;
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket).map_err(io_error)?;
        listener.set_nonblocking(true).map_err(io_error)?;
        let clients = BTreeMap::new();
        Ok(Self { store, log, pages, page_count, listener, clients, next_client: 1, release_count: 0 })
    }

    /// Does what there is to do, or waits so long for something; true if there was something.
    ///
    /// # Errors
    /// The system's; [`Error::Broken`] after a failure of the medium that leaves open what is on it.
    pub fn turn(&mut self, timeout: Duration) -> Result<bool, Error> {
        let ready = self.poll(timeout).map_err(io_error)?;
        if ready.is_empty() {
            return Ok(false);
        }
        let mut pending = Vec::new();
        for id in ready {
            if id == 0 {
                self.accept();
            } else if let Some(request) = self.receive(id) {
                self.serve(id, request, &mut pending);
            }
        }
        // Victims are told before the disk is waited for.
        self.retry();
        self.finish(pending);
        self.retry();
        self.bury()?;
        Ok(true)
    }

    fn poll(&self, timeout: Duration) -> io::Result<Vec<u64>> {
        let entry = |descriptor| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        let mut ids = std::vec![0];
        let mut entries = std::vec![entry(self.listener.as_raw_fd())];
        for (id, client) in &self.clients {
            ids.push(*id);
            entries.push(entry(client.stream.as_raw_fd()));
        }
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: as many entries as are said.
        let count = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == ErrorKind::Interrupted { Ok(Vec::new()) } else { Err(error) };
        }
        Ok(ids.into_iter().zip(&entries).filter(|(_, entry)| entry.revents != 0).map(|(id, _)| id).collect())
    }

    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        if self.clients.len() >= CLIENT_COUNT_MAX || stream.set_nonblocking(true).is_err() {
            return;
        }
        let (request, region, transaction) = (Vec::new(), None, None);
        let client = Client { stream, request, region, transaction, waiting: None, is_gone: false };
        self.clients.insert(self.next_client, client);
        self.next_client += 1;
    }

    /// The request that a client has sent, when all of it is there.
    fn receive(&mut self, id: u64) -> Option<Request> {
        let client = self.clients.get_mut(&id)?;
        let mut bytes = [0; REQUEST_BYTES];
        let wanted = REQUEST_BYTES - client.request.len();
        match client.stream.read(&mut bytes[..wanted]) {
            Ok(0) => client.is_gone = true,
            Ok(count) => client.request.extend_from_slice(&bytes[..count]),
            Err(error) => client.is_gone |= error.kind() != ErrorKind::WouldBlock,
        }
        let bytes: [u8; REQUEST_BYTES] = client.request.as_slice().try_into().ok()?;
        client.request.clear();
        let request = Request::from_bytes(&bytes).filter(|_| client.waiting.is_none());
        client.is_gone |= request.is_none();
        request
    }

    fn serve(&mut self, id: u64, request: Request, pending: &mut Vec<(u64, Pending, bool)>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let (region, transaction) = (client.region, client.transaction);
        let result = match request {
            Request::Map(detector) => {
                let mapped = match region {
                    Some(_) => Err(Error::Busy),
                    None => self.store.map(OwnerId(id), 0, 0, detector, self.pages.sharing()),
                };
                client.region = mapped.ok().or(region);
                let program = self.pages.program().ok_or(Error::NoMemory);
                let result = mapped.and(program).map(|program| program.descriptor() as u64);
                client.answer(result.map(|descriptor| u64::from(std::process::id()) << 32 | descriptor));
                result.map(|_| self.page_count)
            }
            Request::Begin if transaction.is_some() => Err(Error::Busy),
            Request::Begin => self.store.begin(OwnerId(id), Restore::Yes).map(|begun| {
                client.transaction = Some(begun);
                begun.number()
            }),
            Request::Fault { .. } | Request::SetRange { .. } => return self.touch(id, request),
            Request::Commit { is_lazy } => {
                client.transaction = None;
                match transaction.ok_or(Error::NoTransaction).and_then(|begun| self.store.commit_begin(begun)) {
                    Ok(commit) => return pending.push((id, commit, is_lazy)),
                    Err(error) => Err(error),
                }
            }
            Request::Abort => {
                client.transaction = None;
                transaction.ok_or(Error::NoTransaction).and_then(|begun| self.store.abort(begun)).map(|()| 0)
            }
            Request::Flush => self.store.flush().map(|()| 0),
        };
        client.answer(result);
    }

    /// A touch is answered when it is done, refused, or a lock is free.
    fn touch(&mut self, id: u64, request: Request) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let result = match (client.transaction, client.region, request) {
            (Some(transaction), Some(region), Request::Fault { page, want }) => {
                self.store.fault(transaction, region, page as usize, want)
            }
            (Some(transaction), Some(region), Request::SetRange { offset, length }) => {
                self.store.set_range(transaction, region, offset, length)
            }
            _ => Err(Error::NoTransaction),
        };
        client.waiting = (result == Ok(Outcome::Wait)).then_some(request);
        if client.waiting.is_some() {
            return;
        }
        if let Err(error) = result
            && error != Error::NotDeclared
            && let Some(transaction) = client.transaction.take()
        {
            // Its locks are needed by others, now.
            let _ = self.store.abort(transaction);
        }
        client.answer(result.map(|_| 0));
    }

    /// Ends the commits of this turn, by one flush.
    fn finish(&mut self, pending: Vec<(u64, Pending, bool)>) {
        let mut result = Ok(());
        if pending.iter().any(|(_, commit, is_lazy)| commit.sequence() != 0 && !is_lazy) {
            let flush = self.store.flush_begin();
            let flushed = self.log.flush();
            result = self.store.flush_end(flush, flushed);
        }
        for (id, commit, is_lazy) in pending {
            let needs_flush = commit.sequence() != 0 && !is_lazy;
            let result = self.store.commit_end(commit, if needs_flush { result } else { Ok(()) });
            if let Some(client) = self.clients.get_mut(&id) {
                client.answer(result.map(|()| 0));
            }
        }
        let _ = self.store.truncate_if_full();
    }

    /// Asks again for those that wait, while anything changes.
    fn retry(&mut self) {
        while self.release_count != self.store.release_count() {
            self.release_count = self.store.release_count();
            let waiting = |(id, client): (&u64, &Client)| client.waiting.map(|request| (*id, request));
            let waiting: Vec<(u64, Request)> = self.clients.iter().filter_map(waiting).collect();
            for (id, request) in waiting {
                self.touch(id, request);
            }
        }
    }

    /// Undoes what clients that are gone had not committed.
    fn bury(&mut self) -> Result<(), Error> {
        let gone: Vec<u64> = self.clients.iter().filter(|(_, client)| client.is_gone).map(|(id, _)| *id).collect();
        for id in gone {
            self.clients.remove(&id);
            self.store.owner_died(OwnerId(id))?;
        }
        self.retry();
        if self.store.log().ring.is_broken() { Err(Error::Broken) } else { Ok(()) }
    }

    /// How many clients there are.
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }
}

/// What a touch wants, in words of a request.
pub(super) fn touch_request(page: usize, want: Access) -> Request {
    Request::Fault { page: page as u64, want }
}

/// A commit, in words of a request.
pub(super) fn commit_request(durability: Durability) -> Request {
    Request::Commit { is_lazy: durability == Durability::Lazy }
}
