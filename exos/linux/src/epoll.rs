//! An epoll instance: descriptions that are watched, as one more file.
//!
//! Each entry remembers what it is interested in and whether its description said that something changed
//! ([`Waiter`]). A look asks every entry's description what it is ready for; that is what decides for level-triggered
//! entries, while an edge-triggered one is reported only if there was a change since it was reported last. Nothing is
//! missed when a change comes between the report and the next look, because the change is noted before readiness is
//! asked for.
//!
//! Entries do not keep descriptions open: one whose last descriptor is closed is forgotten at the next look. No lock
//! is held while descriptions are asked, as an epoll instance can itself be watched; cycles and nesting beyond
//! [`NESTING_MAX`] are refused when they are made. A look costs time in proportion to the entries.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::{Readiness, Registration, WaitQueue, Waiter};
use exos::fs::transfer::{Destination, Source};
use exos::fs::vnode::OpenFile;
use exos::sync::Mutex;

use crate::call::poll::{ERROR, HANG_UP, events_of, interest_of};

/// Most epoll instances that watch one another in a row (`EP_MAX_NESTS` and the outermost).
pub const NESTING_MAX: usize = 5;
/// Most entries of an instance.
pub const ENTRY_COUNT_MAX: usize = 1 << 20;
/// `EPOLLEXCLUSIVE`.
pub const EXCLUSIVE: u32 = 1 << 28;
/// `EPOLLONESHOT`.
pub const ONE_SHOT: u32 = 1 << 30;
/// `EPOLLET`.
pub const EDGE_TRIGGERED: u32 = 1 << 31;
/// Events with which an entry is not reported at all.
const DISARMED: u32 = 0;

/// What is watched: a descriptor's number and the description that it was one for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    descriptor: u32,
    description: u64,
}

/// One watched description.
struct Watched {
    description: Weak<Description>,
    events: AtomicU32,
    data: AtomicU64,
    /// Its description said that something changed, and it was not reported since.
    has_changed: AtomicBool,
    /// The instance's own queue.
    queue: Arc<WaitQueue>,
    registration: Mutex<Option<Registration>>,
}

impl Waiter for Watched {
    fn wake(&self, _: Readiness) {
        self.has_changed.store(true, Ordering::Release);
        self.queue.notify(Readiness::READ);
    }
}

/// What is found by a look at one entry.
enum Look {
    /// The description is closed.
    Gone,
    /// Nothing to report.
    Idle,
    /// These events.
    Ready(u32),
}

impl Watched {
    fn look(&self) -> Look {
        let Some(description) = self.description.upgrade() else {
            return Look::Gone;
        };
        let wanted = self.events.load(Ordering::Acquire);
        if wanted == DISARMED {
            return Look::Idle;
        }
        // Asking may itself bring a change to light, which is noted before the note is looked at.
        let events = events_of(description.readiness()) & (wanted | ERROR | HANG_UP);
        let is_due = wanted & EDGE_TRIGGERED == 0 || self.has_changed.load(Ordering::Acquire);
        if events == 0 || !is_due { Look::Idle } else { Look::Ready(events) }
    }

    /// Notes that it is being reported.
    fn reported(&self) {
        let wanted = self.events.load(Ordering::Acquire);
        self.has_changed.store(false, Ordering::Release);
        if wanted & ONE_SHOT != 0 {
            self.events.store(DISARMED, Ordering::Release);
        }
    }

    fn arm(self: &Arc<Self>, description: &Description, events: u32, data: u64) -> Result<()> {
        let queue = description.wait_queue().ok_or(Errno::EPERM)?;
        self.data.store(data, Ordering::Release);
        self.events.store(events | ERROR | HANG_UP, Ordering::Release);
        self.has_changed.store(true, Ordering::Release);
        let registration = queue.register(Arc::<Self>::downgrade(self), interest_of(events));
        let before = self.registration.lock().replace(registration);
        drop(before);
        Ok(())
    }
}

#[derive(Default)]
struct State {
    watched: BTreeMap<Key, Arc<Watched>>,
    /// Where the next look begins, so that with more ready than asked for all get their turn.
    next: Option<Key>,
}

/// An epoll instance.
#[derive(Default)]
pub struct Epoll {
    state: Mutex<State>,
    /// The instances that watch this one, once for each entry.
    watchers: Mutex<Vec<Weak<Description>>>,
    queue: Arc<WaitQueue>,
}

/// One reported entry: events and what the program gave to recognise it by.
pub type Report = (u32, u64);

impl Epoll {
    /// An instance that watches nothing.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn key(descriptor: u32, description: &Description) -> Key {
        Key { descriptor, description: description.number() }
    }

    /// Watches one more; `own` is this instance's description.
    ///
    /// # Errors
    /// `EEXIST`: watched already. `EPERM`: always ready, so there is nothing to watch. `ELOOP`. `ENOMEM`: too many.
    pub fn add(
        &self,
        own: &Arc<Description>,
        descriptor: u32,
        description: &Arc<Description>,
        events: u32,
        data: u64,
    ) -> Result<()> {
        if description.wait_queue().is_none() {
            return Err(Errno::EPERM);
        }
        let inner = description.extension::<Self>();
        if let Some(inner) = inner {
            let row = self.height(NESTING_MAX) + inner.depth(NESTING_MAX);
            if row > NESTING_MAX || inner.leads_to(self, NESTING_MAX) {
                return Err(Errno::ELOOP);
            }
        }
        let watched = Arc::new(Watched {
            description: Arc::downgrade(description),
            events: AtomicU32::new(DISARMED),
            data: AtomicU64::new(0),
            has_changed: AtomicBool::new(false),
            queue: self.queue.clone(),
            registration: Mutex::new(None),
        });
        let key = Self::key(descriptor, description);
        {
            let mut state = self.state.lock();
            if state.watched.contains_key(&key) {
                return Err(Errno::EEXIST);
            }
            if state.watched.len() >= ENTRY_COUNT_MAX {
                return Err(Errno::ENOMEM);
            }
            state.watched.insert(key, watched.clone());
        }
        if let Some(inner) = inner {
            let mut watchers = inner.watchers.lock();
            watchers.retain(|watcher| watcher.strong_count() > 0);
            watchers.push(Arc::downgrade(own));
        }
        watched.arm(description, events, data)?;
        self.queue.notify(Readiness::READ);
        Ok(())
    }

    fn find(&self, descriptor: u32, description: &Description) -> Result<Arc<Watched>> {
        let key = Self::key(descriptor, description);
        self.state.lock().watched.get(&key).cloned().ok_or(Errno::ENOENT)
    }

    /// Changes what one is watched for.
    ///
    /// # Errors
    /// `ENOENT`: it is not watched. `EINVAL`: it is watched exclusively.
    pub fn modify(&self, descriptor: u32, description: &Description, events: u32, data: u64) -> Result<()> {
        let watched = self.find(descriptor, description)?;
        if watched.events.load(Ordering::Acquire) & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        watched.arm(description, events, data)?;
        self.queue.notify(Readiness::READ);
        Ok(())
    }

    /// Watches one no more.
    ///
    /// # Errors
    /// `ENOENT`: it is not watched.
    pub fn remove(&self, descriptor: u32, description: &Description) -> Result<()> {
        let key = Self::key(descriptor, description);
        let removed = self.state.lock().watched.remove(&key);
        drop(removed.ok_or(Errno::ENOENT)?);
        if let Some(inner) = description.extension::<Self>() {
            let is_own = |watcher: &Arc<Description>| {
                watcher.extension::<Self>().is_some_and(|outer| core::ptr::eq(outer, self))
            };
            let mut watchers = inner.watchers.lock();
            let place = watchers.iter().position(|watcher| watcher.upgrade().is_some_and(|w| is_own(&w)));
            place.map(|place| watchers.swap_remove(place));
        }
        Ok(())
    }

    /// Up to `limit` entries that have something to report, which is hereby reported.
    #[must_use]
    pub fn take(&self, limit: usize) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut last = None;
        for (key, watched) in self.in_turn() {
            match watched.look() {
                Look::Gone => self.forget(key),
                Look::Idle => {}
                Look::Ready(events) => {
                    watched.reported();
                    reports.push((events, watched.data.load(Ordering::Acquire)));
                    last = Some(key);
                    if reports.len() == limit {
                        break;
                    }
                }
            }
        }
        if let Some(last) = last {
            let mut state = self.state.lock();
            let after = (core::ops::Bound::Excluded(last), core::ops::Bound::Unbounded);
            state.next = state.watched.range(after).next().map(|(key, _)| *key);
        }
        reports
    }

    /// The entries, beginning with the one whose turn it is.
    fn in_turn(&self) -> Vec<(Key, Arc<Watched>)> {
        let state = self.state.lock();
        let copy = |(key, watched): (&Key, &Arc<Watched>)| (*key, watched.clone());
        match state.next {
            None => state.watched.iter().map(copy).collect(),
            Some(next) => {
                let (behind, before) = (state.watched.range(next..), state.watched.range(..next));
                behind.chain(before).map(copy).collect()
            }
        }
    }

    fn forget(&self, key: Key) {
        let removed = self.state.lock().watched.remove(&key);
        drop(removed);
    }

    /// The instances that this one watches.
    fn inner(&self) -> Vec<Arc<Description>> {
        let upgraded = self.in_turn().into_iter().filter_map(|(_, watched)| watched.description.upgrade());
        upgraded.filter(|description| description.extension::<Self>().is_some()).collect()
    }

    /// How many instances stand in a row from this one on; counting stops at `limit`.
    fn depth(&self, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        let depth = |inner: &Arc<Description>| inner.extension::<Self>().map_or(0, |inner| inner.depth(limit - 1));
        1 + self.inner().iter().map(depth).max().unwrap_or(0)
    }

    /// How many instances stand in a row up to this one; counting stops at `limit`.
    fn height(&self, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        let watchers: Vec<_> = self.watchers.lock().iter().filter_map(Weak::upgrade).collect();
        let height = |outer: &Arc<Description>| outer.extension::<Self>().map_or(0, |outer| outer.height(limit - 1));
        1 + watchers.iter().map(height).max().unwrap_or(0)
    }

    /// Whether `other` is this one or watched by it, directly or not.
    fn leads_to(&self, other: &Self, limit: usize) -> bool {
        core::ptr::eq(self, other)
            || (limit > 0
                && self
                    .inner()
                    .iter()
                    .any(|inner| inner.extension::<Self>().is_some_and(|inner| inner.leads_to(other, limit - 1))))
    }
}

impl OpenFile for Epoll {
    fn read(&self, _: u64, _: &mut dyn Destination) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn readiness(&self) -> Readiness {
        let is_ready = |(_, watched): (Key, Arc<Watched>)| matches!(watched.look(), Look::Ready(_));
        if self.in_turn().into_iter().any(is_ready) { Readiness::READ } else { Readiness::empty() }
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.queue)
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
