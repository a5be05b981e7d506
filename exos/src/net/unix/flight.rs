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
//! The search is conservative: any other reference keeps a description alive, also one that a call holds for a
//! moment; then the next close finds it. Emptying happens one by one from a list ([`Flight::bury`]), so that a chain
//! of sockets that lie in each other needs no deep stack.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::UnixDomain;
use super::socket::SocketFile;
use crate::error::{Errno, Result};
use crate::fs::description::Description;
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
    /// `EINVAL`: more than [`RIGHTS_COUNT_MAX`]. `ETOOMANYREFS`: [`IN_FLIGHT_COUNT_MAX`] would be passed.
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
        let mut sockets = flight.sockets.lock();
        for description in descriptions.iter().filter(|description| is_socket(description)) {
            let fresh = || Carried { description: Arc::downgrade(description), count: 0 };
            sockets.entry(description.number()).or_insert_with(fresh).count += 1;
        }
        drop(sockets);
        Ok(Self { descriptions, domain: domain.clone() })
    }

    /// What travels.
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
    }
}

fn is_socket(description: &Description) -> bool {
    description.extension::<SocketFile>().is_some()
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
    graveyard: Mutex<Vec<Rights>>,
}

/// A description that is garbage unless somebody outside of the ring reaches it.
struct Candidate {
    description: Arc<Description>,
    count: usize,
    /// References that have not been found in a candidate's queue.
    outside_count: usize,
    is_alive: bool,
}

impl Candidate {
    /// Whether nothing but queues (and this search) refers to it.
    fn is_only_carried(&self) -> bool {
        Arc::strong_count(&self.description) == self.count + 1
    }

    fn for_each_carried(&self, action: &mut dyn FnMut(&Arc<Description>)) {
        if let Some(file) = self.description.extension::<SocketFile>() {
            file.socket().for_each_carried(action);
        }
    }
}

impl Flight {
    /// Descriptions on the way.
    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Lets go of rights, one after the other, whatever closing them closes.
    pub(super) fn bury(&self, rights: Vec<Rights>) {
        if rights.is_empty() {
            return;
        }
        self.graveyard.lock().extend(rights);
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
        self.closes.store(0, Ordering::Relaxed);
        let garbage = self.garbage();
        let mut rights = Vec::new();
        if garbage.values().all(Candidate::is_only_carried) {
            for candidate in garbage.values() {
                if let Some(file) = candidate.description.extension::<SocketFile>() {
                    rights.append(&mut file.socket().take_carried());
                }
            }
        }
        drop(garbage);
        self.is_collecting.store(false, Ordering::Release);
        self.bury(rights);
    }

    fn garbage(&self) -> BTreeMap<u64, Candidate> {
        let carried: Vec<(u64, Arc<Description>, usize)> = {
            let sockets = self.sockets.lock();
            let living = |(number, carried): (&u64, &Carried)| {
                carried.description.upgrade().map(|description| (*number, description, carried.count))
            };
            sockets.iter().filter_map(living).collect()
        };
        let candidate = |(number, description, count)| {
            (number, Candidate { description, count, outside_count: count, is_alive: false })
        };
        let mut candidates: BTreeMap<u64, Candidate> =
            carried.into_iter().map(candidate).filter(|(_, candidate)| candidate.is_only_carried()).collect();
        let mut found = Vec::new();
        for candidate in candidates.values() {
            candidate.for_each_carried(&mut |inner| found.push(inner.number()));
        }
        for number in found {
            if let Some(candidate) = candidates.get_mut(&number) {
                candidate.outside_count = candidate.outside_count.saturating_sub(1);
            }
        }
        let reached = candidates.iter().filter(|(_, candidate)| candidate.outside_count > 0);
        let mut reached: Vec<u64> = reached.map(|(number, _)| *number).collect();
        while let Some(number) = reached.pop() {
            let Some(candidate) = candidates.get_mut(&number) else { continue };
            if !core::mem::replace(&mut candidate.is_alive, true) {
                candidate.for_each_carried(&mut |inner| reached.push(inner.number()));
            }
        }
        candidates.retain(|_, candidate| !candidate.is_alive);
        candidates
    }
}
