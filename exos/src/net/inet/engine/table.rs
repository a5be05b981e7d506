//! Which connection a segment is for, and what is due when.
//!
//! Connections, those that are being made and those that are remembered stand in one table by their two ends, in
//! [`SHARD_COUNT`] parts with a lock each. A part is a tree ordered by a keyed hash, so a segment's way is short, and
//! no peer can make it long by the choice of its numbers. What is due stands in one tree by time: each connection once.
//!
//! Invariants: an entry that leaves the table gives back what it was counted as. Locks: a part's before that of times,
//! neither while a flow's or a socket's is taken.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use siphasher::sip::SipHasher13;

use super::flow::Flow;
use super::handshake::HalfOpen;
use super::remembered::Remembered;
use crate::sync::Mutex;

const SHARD_COUNT: usize = 16;
/// Connections that are being made from outside, in all.
pub(in super::super) const HALF_OPEN_COUNT_MAX: usize = 4096;
/// Ended connections that are remembered.
const REMEMBERED_COUNT_MAX: usize = 16_384;
/// Connections whose sockets are closed (`tcp_max_orphans`).
pub(in super::super) const ORPHAN_COUNT_MAX: usize = 4096;

/// The two ends of a connection, this machine's first, and their hash in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Key {
    hash: u64,
    pub(in super::super) local: SocketAddr,
    pub(in super::super) remote: SocketAddr,
}

/// What stands in the table.
pub(super) enum Entry {
    Flow(Arc<Flow>),
    HalfOpen(Box<HalfOpen>),
    Remembered(Box<Remembered>),
}

/// What is due.
#[derive(Clone)]
pub(super) enum Due {
    Flow(Weak<Flow>),
    Entry(Key),
    Other(Weak<dyn Timed>),
}

/// Something else that is called at a time, if it is still there. Called with no lock held.
pub(in super::super) trait Timed: Send + Sync {
    fn come_due(&self);
}

/// When something is due: an entry of the tree of times.
pub(in super::super) type Appointment = (u64, u64);

/// The tables.
pub(in super::super) struct Tables {
    key: [u64; 2],
    shards: [Mutex<BTreeMap<Key, Entry>>; SHARD_COUNT],
    times: Mutex<BTreeMap<Appointment, Due>>,
    appointment_count: AtomicU64,
    half_open_count: AtomicUsize,
    remembered_count: AtomicUsize,
    orphan_count: AtomicUsize,
    /// Until when cookies are believed.
    cookies_until_ns: AtomicU64,
    #[cfg(test)]
    pub(in super::super) sender: crate::sync::Once<Arc<dyn super::super::wire::SegmentSender>>,
}

fn write_end(hasher: &mut SipHasher13, end: SocketAddr) {
    match end.ip() {
        IpAddr::V4(address) => hasher.write_u32(address.to_bits()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    hasher.write_u16(end.port());
}

impl Tables {
    pub(in super::super) fn new(key: [u64; 2]) -> Self {
        Self {
            key,
            shards: core::array::from_fn(|_| Mutex::default()),
            times: Mutex::default(),
            appointment_count: AtomicU64::new(0),
            half_open_count: AtomicUsize::new(0),
            remembered_count: AtomicUsize::new(0),
            orphan_count: AtomicUsize::new(0),
            cookies_until_ns: AtomicU64::new(0),
            #[cfg(test)]
            sender: crate::sync::Once::new(),
        }
    }

    /// A number that nobody outside can tell, by two ends and something more.
    pub(super) fn hash(&self, local: SocketAddr, remote: SocketAddr, more: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        write_end(&mut hasher, local);
        write_end(&mut hasher, remote);
        if more != 0 {
            hasher.write_u64(more);
        }
        hasher.finish()
    }

    pub(super) fn key(&self, local: SocketAddr, remote: SocketAddr) -> Key {
        Key { hash: self.hash(local, remote, 0), local, remote }
    }

    fn shard(&self, key: &Key) -> &Mutex<BTreeMap<Key, Entry>> {
        &self.shards[key.hash as usize % SHARD_COUNT]
    }

    fn count_of(&self, entry: &Entry) -> Option<&AtomicUsize> {
        match entry {
            Entry::Flow(_) => None,
            Entry::HalfOpen(_) => Some(&self.half_open_count),
            Entry::Remembered(_) => Some(&self.remembered_count),
        }
    }

    fn uncount(&self, entry: Option<&Entry>) {
        if let Some(entry) = entry {
            if let Some(count) = self.count_of(entry) {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            if let Entry::HalfOpen(half) = entry {
                half.uncount();
                half.appointment.into_iter().for_each(|appointment| self.cancel(appointment));
            }
        }
    }

    /// Does something with the entry of two ends, under the lock of its part.
    pub(super) fn with<T>(&self, key: &Key, act: impl FnOnce(Option<&mut Entry>) -> T) -> T {
        act(self.shard(key).lock().get_mut(key))
    }

    /// Puts an entry in place if `fits` says so of the one that is there. False: it did not.
    pub(super) fn put(&self, key: Key, entry: Entry, fits: impl FnOnce(Option<&Entry>) -> bool) -> bool {
        let mut shard = self.shard(&key).lock();
        if !fits(shard.get(&key)) {
            return false;
        }
        if let Some(count) = self.count_of(&entry) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let old = shard.insert(key, entry);
        drop(shard);
        self.uncount(old.as_ref());
        true
    }

    /// Removes the entry of two ends if `fits` says so of it.
    pub(super) fn remove(&self, key: &Key, fits: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let mut shard = self.shard(key).lock();
        if !shard.get(key).is_some_and(fits) {
            return None;
        }
        let old = shard.remove(key);
        drop(shard);
        self.uncount(old.as_ref());
        old
    }

    pub(super) fn has_room_half_open(&self) -> bool {
        self.half_open_count.load(Ordering::Relaxed) < HALF_OPEN_COUNT_MAX && crate::reserve::check().is_ok()
    }

    pub(super) fn has_room_remembered(&self) -> bool {
        self.remembered_count.load(Ordering::Relaxed) < REMEMBERED_COUNT_MAX && crate::reserve::check().is_ok()
    }

    /// A cookie was given that is believed until then.
    pub(super) fn note_cookie(&self, until_ns: u64) {
        self.cookies_until_ns.store(until_ns, Ordering::Relaxed);
    }

    pub(super) fn believes_cookies(&self, now_ns: u64) -> bool {
        now_ns < self.cookies_until_ns.load(Ordering::Relaxed)
    }

    pub(super) fn orphan_count(&self) -> &AtomicUsize {
        &self.orphan_count
    }

    /// Has something called at a time, in place of an earlier appointment. True: nothing is due before it.
    pub(super) fn appoint(&self, at_ns: u64, due: Due, old: Option<Appointment>) -> (Appointment, bool) {
        let appointment = (at_ns, self.appointment_count.fetch_add(1, Ordering::Relaxed));
        let mut times = self.times.lock();
        if let Some(old) = old {
            times.remove(&old);
        }
        times.insert(appointment, due);
        let is_first = times.keys().next() == Some(&appointment);
        (appointment, is_first)
    }

    pub(in super::super) fn cancel(&self, appointment: Appointment) {
        self.times.lock().remove(&appointment);
    }

    /// The next thing that is due by now.
    pub(super) fn next_due(&self, now_ns: u64) -> Option<(Appointment, Due)> {
        let mut times = self.times.lock();
        let (appointment, _) = times.first_key_value()?;
        if appointment.0 <= now_ns { times.pop_first() } else { None }
    }

    /// When something is due next.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.times.lock().keys().next().map(|(at_ns, _)| *at_ns)
    }

    /// Entries, by kind: connections, half open, remembered.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let all: usize = self.shards.iter().map(|shard| shard.lock().len()).sum();
        let half = self.half_open_count.load(Ordering::Relaxed);
        let remembered = self.remembered_count.load(Ordering::Relaxed);
        (all - half - remembered, half, remembered)
    }
}
