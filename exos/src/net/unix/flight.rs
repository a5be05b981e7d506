//! Descriptions on the way (`SCM_RIGHTS`), and what becomes of those that nobody can receive any more.
//!
//! [`Rights`] keep descriptions alive while they lie in a queue. A socket's description can lie in its own queue, or
//! two in each other's; then no count ever falls to zero. So sockets on the way are counted here, and whenever a
//! socket closes [`Flight::collect`] looks for such rings: descriptions whose every reference lies in the queue of
//! another such description are garbage, and their queues are emptied.
//!
//! The search costs as much as there are sockets on the way, so with many of them not every close pays for one
//! ([`CARRIED_PER_CLOSE`]): what a ring holds may then stay for some closes more.
//!
//! The search is conservative: any other reference keeps a description alive, also one that a call holds for a moment;
//! then the next close finds it. So it is where there is no memory to search with. Emptying happens one by one from a
//! list ([`Flight::bury`]), so that a chain of sockets that lie in each other needs no deep stack; closing must not
//! fail, so the sender makes sure that the list has room.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::UnixDomain;
use crate::error::{Errno, Result};
use crate::fs::description::Description;
use crate::net::file::SocketFile;
use crate::reserve;
use crate::sync::Mutex;

/// Most descriptions in one message (`SCM_MAX_FD`).
pub const RIGHTS_COUNT_MAX: usize = 253;
/// Most descriptions on the way in a pod.
pub const IN_FLIGHT_COUNT_MAX: usize = 16_384;

/// A search is made as soon as closes since the last one, each counted this many times, are as many as the sockets on
/// the way.
const CARRIED_PER_CLOSE: usize = 64;

/// Descriptions that travel with a message.
pub struct Rights {
    descriptions: Vec<Arc<Description>>,
    domain: Arc<UnixDomain>,
}

impl Rights {
    /// Sends descriptions on their way.
    ///
    /// # Errors
    /// `EINVAL`: more than [`RIGHTS_COUNT_MAX`]. `ETOOMANYREFS`: [`IN_FLIGHT_COUNT_MAX`] would be passed. `ENOMEM`.
    pub fn new(domain: &Arc<UnixDomain>, descriptions: Vec<Arc<Description>>) -> Result<Self> {
        if descriptions.len() > RIGHTS_COUNT_MAX {
            return Err(Errno::EINVAL);
        }
        let flight = &domain.flight;
        let total = flight.total.fetch_add(descriptions.len(), Ordering::Relaxed) + descriptions.len();
        if total > IN_FLIGHT_COUNT_MAX {
            flight.total.fetch_sub(descriptions.len(), Ordering::Relaxed);
            return Err(Errno::ETOOMANYREFS);
        }
        if let Err(error) = flight.prepare_burial() {
            flight.total.fetch_sub(descriptions.len(), Ordering::Relaxed);
            return Err(error);
        }
        let mut sockets = flight.sockets.lock();
        for description in descriptions.iter().filter(|description| is_socket(description)) {
            let fresh = || Carried { description: Arc::downgrade(description), count: 0 };
            sockets.entry(description.number()).or_insert_with(fresh).count += 1;
        }
        drop(sockets);
        Ok(Self { descriptions, domain: domain.clone() })
    }

    /// Descriptions that travel.
    pub fn descriptions(&self) -> &[Arc<Description>] {
        &self.descriptions
    }

    /// Others to the same descriptions, for a look without taking (`MSG_PEEK`). `None`: the limit is reached.
    pub(super) fn duplicate(&self) -> Option<Self> {
        Self::new(&self.domain, self.descriptions.clone()).ok()
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        let flight = &self.domain.flight;
        flight.total.fetch_sub(self.descriptions.len(), Ordering::Relaxed);
        let mut sockets = flight.sockets.lock();
        for description in self.descriptions.iter().filter(|description| is_socket(description)) {
            let number = description.number();
            let is_last = sockets.get_mut(&number).is_some_and(|carried| {
                carried.count -= 1;
                carried.count == 0
            });
            if is_last {
                sockets.remove(&number);
            }
        }
        drop(sockets);
        flight.rights_count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn is_socket(description: &Description) -> bool {
    SocketFile::unix_of(description).is_some()
}

/// A socket's description that lies in queues.
struct Carried {
    description: Weak<Description>,
    count: usize,
}

/// What is on the way in a pod.
#[derive(Default)]
pub(super) struct Flight {
    sockets: Mutex<BTreeMap<u64, Carried>>,
    total: AtomicUsize,
    closes: AtomicUsize,
    is_collecting: AtomicBool,
    is_burying: AtomicBool,
    /// All [`Rights`] that there are.
    rights_count: AtomicUsize,
    /// The room of the graveyard: for all of them.
    room: AtomicUsize,
    graveyard: Mutex<Vec<Rights>>,
}

/// A description that is garbage unless somebody outside of the ring reaches it.
struct Candidate {
    number: u64,
    description: Arc<Description>,
    count: usize,
    /// References that have not been found in a candidate's queue.
    outside_count: Cell<usize>,
    is_alive: Cell<bool>,
}

impl Candidate {
    /// Whether nothing but queues (and this search) refers to it.
    fn is_only_carried(&self) -> bool {
        Arc::strong_count(&self.description) == self.count + 1
    }

    fn for_each_carried(&self, action: &mut dyn FnMut(&Arc<Description>)) -> Result<()> {
        SocketFile::unix_of(&self.description).map_or(Ok(()), |socket| socket.for_each_carried(action))
    }
}

impl Flight {
    /// Descriptions on the way.
    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Counts rights that are about to be made; they can be laid into the graveyard from then on.
    fn prepare_burial(&self) -> Result<()> {
        let count = self.rights_count.fetch_add(1, Ordering::Relaxed) + 1;
        if count <= self.room.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut graveyard = self.graveyard.lock();
        // Those that lie there are counted, too.
        let more = count.saturating_sub(graveyard.len());
        let outcome = reserve::reserve(&mut graveyard, more);
        self.room.store(graveyard.capacity(), Ordering::Relaxed);
        if outcome.is_err() {
            self.rights_count.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Lays rights where [`Self::bury`] finds them, which the caller calls when it holds no lock.
    pub(super) fn lay(&self, rights: Rights) {
        self.graveyard.lock().push(rights);
    }

    /// Lets go of the rights that were laid down, one after the other, whatever closing them closes.
    pub(super) fn bury(&self) {
        if self.rights_count.load(Ordering::Relaxed) == 0 || self.graveyard.lock().is_empty() {
            return;
        }
        while !self.is_burying.swap(true, Ordering::Acquire) {
            loop {
                let next = self.graveyard.lock().pop();
                let Some(next) = next else { break };
                drop(next);
            }
            self.is_burying.store(false, Ordering::Release);
            if self.graveyard.lock().is_empty() {
                break;
            }
        }
    }

    /// A socket was closed: looks for rings of sockets that nobody reaches and empties their queues.
    pub(super) fn collect(&self) {
        let carried_count = self.sockets.lock().len();
        let closes = self.closes.fetch_add(1, Ordering::Relaxed) + 1;
        if carried_count == 0
            || closes.saturating_mul(CARRIED_PER_CLOSE) < carried_count
            || self.is_burying.load(Ordering::Relaxed)
            || self.is_collecting.swap(true, Ordering::Acquire)
        {
            return;
        }
        // Without memory the next close searches.
        if let Ok(garbage) = self.garbage(carried_count) {
            self.closes.store(0, Ordering::Relaxed);
            if garbage.iter().all(Candidate::is_only_carried) {
                for socket in garbage.iter().filter_map(|candidate| SocketFile::unix_of(&candidate.description)) {
                    socket.lay_carried();
                }
            }
        }
        self.is_collecting.store(false, Ordering::Release);
        self.bury();
    }

    /// Those sockets on the way that nobody can receive any more, ascending. `ENOMEM`; also where more of them have
    /// come than `carried_count`.
    fn garbage(&self, carried_count: usize) -> Result<Vec<Candidate>> {
        let mut candidates: Vec<Candidate> = reserve::vector(carried_count)?;
        let mut reached: Vec<usize> = reserve::vector(carried_count)?;
        {
            let sockets = self.sockets.lock();
            if sockets.len() > carried_count {
                return Err(Errno::ENOMEM);
            }
            candidates.extend(sockets.iter().filter_map(|(&number, carried)| {
                let (description, count) = (carried.description.upgrade()?, carried.count);
                let (outside_count, is_alive) = (Cell::new(count), Cell::new(false));
                Some(Candidate { number, description, count, outside_count, is_alive })
            }));
        }
        candidates.retain(Candidate::is_only_carried);
        let find = |number: u64| candidates.binary_search_by_key(&number, |candidate| candidate.number).ok();
        for candidate in &candidates {
            candidate.for_each_carried(&mut |inner| {
                if let Some(found) = find(inner.number()) {
                    let outside_count = &candidates[found].outside_count;
                    outside_count.set(outside_count.get().saturating_sub(1));
                }
            })?;
        }
        // Each is reached once, so there is room for all.
        let reach = |found: usize, reached: &mut Vec<usize>| {
            if !candidates[found].is_alive.replace(true) {
                reached.push(found);
            }
        };
        for (found, candidate) in candidates.iter().enumerate() {
            if candidate.outside_count.get() > 0 {
                reach(found, &mut reached);
            }
        }
        while let Some(number) = reached.pop() {
            candidates[number].for_each_carried(&mut |inner| {
                if let Some(found) = find(inner.number()) {
                    reach(found, &mut reached);
                }
            })?;
        }
        candidates.retain(|candidate| !candidate.is_alive.get());
        Ok(candidates)
    }
}
