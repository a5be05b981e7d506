//! An epoll instance: descriptions that are watched, as one more file.
//!
//! Each entry remembers what it is interested in. When its description says that something changed ([`Waiter`]), it is
//! put on the instance's list, and a look asks only the descriptions of listed entries what they are ready for: its
//! cost grows with what is ready, not with what is watched. A level-triggered entry that is reported stays on the list,
//! at its end, so that with more ready than asked for all get their turn; one that is found idle leaves it. An
//! edge-triggered one is reported only if there was a change since it was reported last. Nothing is missed when a
//! change comes during a look, because an entry leaves the list before its description is asked.
//!
//! Descriptions that do not announce every change ([`Description::announces`]) stay on the list for good.
//!
//! Entries do not keep descriptions open: one whose last descriptor is closed is forgotten when that is told, and at
//! the latest when the instance has grown to twice its size. No lock is held while descriptions are asked, as an epoll
//! instance can itself be watched; cycles and nesting beyond [`EP_MAX_NESTS`] are refused when they are made.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::open_file::{OpenFile, SeekSupport};
use exos::fs::readiness::{Readiness, Registration, WaitQueue, Waiter};
use exos::fs::transfer::{Destination, Source};
use exos::preempt::Pace;
use exos::reserve;
use exos::sync::Mutex;

use crate::abi::linux::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, POLLERR, POLLHUP};
use crate::abi::poll::{events_of, interest_of};

/// Most epoll instances that watch one another in a row (`EP_MAX_NESTS` and the outermost).
pub const EP_MAX_NESTS: usize = 5;
/// Most entries of an instance.
pub const ENTRY_COUNT_MAX: usize = 1 << 20;
/// What an instance's queue is told when ready entries were put back that another look may have missed meanwhile: a
/// thread that sleeps in `epoll_wait` waits for everything, while one that watches the instance knows of them already.
/// (No instance is ever ready for writing.)
const PUT_BACK: Readiness = Readiness::WRITE;
/// Events with which an entry is not reported at all.
const DISARMED: u32 = 0;

/// Held while an instance is put into another: that they form no circle holds for all of a pod's together.
static NESTING: Mutex<()> = Mutex::new(());

/// What is watched: a descriptor's number and the description that it was one for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    descriptor: u32,
    description: u64,
}

/// The entries that may have something to report, and the threads that wait for that.
#[derive(Default)]
struct ReadyList {
    entries: Mutex<VecDeque<Arc<Watched>>>,
    /// Waiters that were woken for a change that they were to take alone, until one of them looks.
    claimed_count: AtomicUsize,
    queue: Arc<WaitQueue>,
}

/// One watched description.
struct Watched {
    key: Key,
    me: Weak<Self>,
    description: Weak<Description>,
    /// The instance that watches. Once it is closed nothing is passed on: a look for circles sees it no more.
    own: Weak<Description>,
    events: AtomicU32,
    data: AtomicU64,
    /// Its description said that something changed, and it was not reported since.
    has_changed: AtomicBool,
    /// It is on the list, or about to be.
    is_listed: AtomicBool,
    ready: Weak<ReadyList>,
    registration: Mutex<Option<Registration>>,
}

impl Waiter for Watched {
    fn wake(&self, _: Readiness) {
        if self.own.strong_count() == 0 {
            return;
        }
        self.has_changed.store(true, Ordering::Release);
        if let Some(ready) = self.ready.upgrade() {
            ready.list(self);
            ready.queue.notify(Readiness::READ);
        }
    }

    fn wake_alone(&self, events: Readiness) -> bool {
        let is_taken = self.ready.upgrade().is_some_and(|ready| ready.claim());
        self.wake(events);
        is_taken
    }
}

impl ReadyList {
    /// Has one of the threads in `epoll_wait` take on what happens; whether there is one that has not yet. A thread
    /// that only watches the instance takes nothing.
    fn claim(&self) -> bool {
        let sleeper_count = self.queue.taker_count();
        let more = |claimed: usize| (claimed < sleeper_count).then_some(claimed + 1);
        self.claimed_count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Puts an entry at the end, unless it is there.
    fn list(&self, watched: &Watched) {
        if !watched.is_listed.swap(true, Ordering::AcqRel)
            && let Some(watched) = watched.me.upgrade()
        {
            self.entries.lock().push_back(watched);
        }
    }

    /// As [`Self::list`], of an entry that is at hand.
    #[inline]
    fn put_back(&self, watched: Arc<Watched>) {
        if !watched.is_listed.swap(true, Ordering::AcqRel) {
            self.entries.lock().push_back(watched);
        }
    }

    /// Takes the first entry off; what changes from now on puts it on again. And how many there were.
    #[inline]
    fn take_first(&self) -> Option<(Arc<Watched>, usize)> {
        let mut entries = self.entries.lock();
        let count = entries.len();
        let watched = entries.pop_front()?;
        drop(entries);
        watched.is_listed.store(false, Ordering::Release);
        Some((watched, count))
    }

    /// The entry that is alone on the list, which stays there.
    #[inline]
    fn only(&self) -> Option<Arc<Watched>> {
        let entries = self.entries.lock();
        if entries.len() == 1 { entries.front().cloned() } else { None }
    }
}

/// What is found by a look at one entry.
enum Look {
    /// The description is closed.
    Gone,
    /// Nothing to report; whether a change would be told.
    Idle { announces: bool },
    /// These events.
    Ready(u32),
}

/// What becomes of an entry that is ready, and of the look.
struct Found {
    stays: bool,
    goes_on: bool,
}

impl Watched {
    #[inline]
    fn look(&self) -> Look {
        let Some(description) = self.description.upgrade() else {
            return Look::Gone;
        };
        let wanted = self.events.load(Ordering::Acquire);
        if wanted == DISARMED {
            return Look::Idle { announces: true };
        }
        // Asking may itself bring a change to light, which is noted before the note is looked at.
        let events = events_of(description.readiness()) & (wanted | POLLERR | POLLHUP);
        let is_due = wanted & EPOLLET == 0 || self.has_changed.load(Ordering::Acquire);
        if events == 0 || !is_due {
            return Look::Idle { announces: description.announces() };
        }
        Look::Ready(events)
    }

    /// What it is ready for, if it is level-triggered and stays so: then it can be reported by several at a time, and
    /// no change has to be noted or forgotten for it.
    #[inline]
    fn level(&self) -> Option<u32> {
        let wanted = self.events.load(Ordering::Acquire);
        if wanted == DISARMED || wanted & (EPOLLET | EPOLLONESHOT) != 0 {
            return None;
        }
        let events = events_of(self.description.upgrade()?.readiness()) & (wanted | POLLERR | POLLHUP);
        if events == 0 { None } else { Some(events) }
    }

    /// Notes that it is being reported; whether it may have more to report without another change.
    fn reported(&self) -> bool {
        let wanted = self.events.load(Ordering::Acquire);
        self.has_changed.store(false, Ordering::Release);
        if wanted & EPOLLONESHOT != 0 {
            self.events.store(DISARMED, Ordering::Release);
        }
        wanted & EPOLLONESHOT == 0
    }

    fn arm(self: &Arc<Self>, description: &Description, events: u32, data: u64) -> Result<()> {
        let queue = description.wait_queue().ok_or(Errno::EPERM)?;
        self.data.store(data, Ordering::Release);
        self.events.store(events | POLLERR | POLLHUP, Ordering::Release);
        let me = Arc::<Self>::downgrade(self);
        let registration = match events & EPOLLEXCLUSIVE {
            0 => queue.register(me, interest_of(events)),
            _ => queue.register_alone(me, interest_of(events)),
        };
        let before = self.registration.lock().replace(registration);
        drop(before);
        // It may be ready now.
        self.wake(Readiness::READ);
        Ok(())
    }

    /// It is not watched any more.
    fn disarm(&self) {
        self.events.store(DISARMED, Ordering::Release);
        let before = self.registration.lock().take();
        drop(before);
    }
}

#[derive(Default)]
struct State {
    watched: BTreeMap<Key, Arc<Watched>>,
    /// With so many entries it is worth looking for those whose descriptions are closed.
    sweep_at: usize,
}

impl State {
    /// Takes out the entries whose descriptions are closed, each time that their number has doubled.
    fn sweep(&mut self) -> Vec<Arc<Watched>> {
        const SWEEP_AT_MIN: usize = 64;
        if self.watched.len() < self.sweep_at.max(SWEEP_AT_MIN) {
            return Vec::new();
        }
        let is_closed = |_: &Key, watched: &mut Arc<Watched>| watched.description.strong_count() == 0;
        let closed = self.watched.extract_if(.., is_closed).map(|(_, watched)| watched).collect();
        self.sweep_at = self.watched.len() * 2;
        closed
    }
}

/// An epoll instance.
#[derive(Default)]
pub struct Epoll {
    state: Mutex<State>,
    /// The instances that watch this one, once for each entry.
    watchers: Mutex<Vec<Weak<Description>>>,
    ready: Arc<ReadyList>,
}

/// One reported entry: events and what the program gave to recognise it by.
pub type Report = (u32, u64);

impl Epoll {
    /// An instance that watches nothing.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// FaultReport whenever there may be something to report.
    #[must_use]
    pub fn queue(&self) -> &Arc<WaitQueue> {
        &self.ready.queue
    }

    /// Entries, those of closed descriptions included that nobody has noticed yet.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.state.lock().watched.len()
    }

    /// The number of the description that is watched as `descriptor`: of those that had that number one after the other
    /// the one at `place`.
    #[must_use]
    pub fn watched_at(&self, descriptor: u32, place: usize) -> Option<u64> {
        let (first, last) = (Key { descriptor, description: 0 }, Key { descriptor, description: u64::MAX });
        let state = self.state.lock();
        let watched = state.watched.range(first..=last);
        watched.filter(|(_, it)| it.description.strong_count() > 0).nth(place).map(|(key, _)| key.description)
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
        // Two that are added at once must not each overlook the other, and close a circle.
        let nesting = inner.map(|_| NESTING.lock());
        if let Some(inner) = inner {
            let row = self.height(EP_MAX_NESTS) + inner.depth(EP_MAX_NESTS);
            if row > EP_MAX_NESTS || inner.leads_to(self, EP_MAX_NESTS) {
                return Err(Errno::ELOOP);
            }
        }
        let key = Self::key(descriptor, description);
        let watched = Arc::new_cyclic(|me| Watched {
            key,
            me: me.clone(),
            description: Arc::downgrade(description),
            own: Arc::downgrade(own),
            events: AtomicU32::new(DISARMED),
            data: AtomicU64::new(0),
            has_changed: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            ready: Arc::downgrade(&self.ready),
            registration: Mutex::new(None),
        });
        let closed = {
            let mut state = self.state.lock();
            if state.watched.contains_key(&key) {
                return Err(Errno::EEXIST);
            }
            if state.watched.len() >= ENTRY_COUNT_MAX {
                return Err(Errno::ENOMEM);
            }
            let watched_count = state.watched.len();
            let mut entries = self.ready.entries.lock();
            // Each has a place on the list when it is ready: nothing fails then.
            reserve::reserve_queue(&mut entries, watched_count + 1)?;
            drop(entries);
            state.watched.insert(key, watched.clone());
            state.sweep()
        };
        drop(closed);
        if let Some(inner) = inner {
            let mut watchers = inner.watchers.lock();
            watchers.retain(|watcher| watcher.strong_count() > 0);
            if let Err(error) = reserve::reserve(&mut watchers, 1) {
                drop(watchers);
                self.take_out(&key);
                return Err(error);
            }
            watchers.push(Arc::downgrade(own));
        }
        drop(nesting);
        watched.arm(description, events, data).inspect_err(|_| self.take_out(&key))
    }

    /// Takes an entry out again that did not come about.
    fn take_out(&self, key: &Key) {
        let watched = self.state.lock().watched.remove(key);
        if let Some(watched) = watched {
            watched.disarm();
        }
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
        if watched.events.load(Ordering::Acquire) & EPOLLEXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        watched.arm(description, events, data)
    }

    /// Watches one no more.
    ///
    /// # Errors
    /// `ENOENT`: it is not watched.
    pub fn remove(&self, descriptor: u32, description: &Description) -> Result<()> {
        let key = Self::key(descriptor, description);
        let removed = self.state.lock().watched.remove(&key);
        removed.ok_or(Errno::ENOENT)?.disarm();
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

    /// Looks at the listed entries until `found` says `false`; it gets those that are ready with their events and says
    /// whether they stay on the list.
    fn for_each_ready(&self, mut found: impl FnMut(&Watched, u32) -> Found) {
        let mut has_put_back = false;
        // Those that come or come back meanwhile are for the next look.
        let mut left = 1;
        let (mut is_first, mut pace) = (true, Pace::default());
        while left > 0
            && let Some((watched, count)) = self.ready.take_first()
        {
            left = if core::mem::take(&mut is_first) { count - 1 } else { left - 1 };
            pace.offer();
            match watched.look() {
                Look::Gone => self.forget(watched.key),
                Look::Idle { announces: true } => {}
                // A waiter asks these again whenever it wakes.
                Look::Idle { announces: false } => self.ready.put_back(watched),
                Look::Ready(events) => {
                    let Found { stays, goes_on } = found(&watched, events);
                    if stays {
                        self.ready.put_back(watched);
                        has_put_back = true;
                    }
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        if has_put_back {
            self.ready.queue.notify(PUT_BACK);
        }
    }

    /// What the only entry on the list has to report, if it stays there: it is first and last, so it need not leave.
    #[inline]
    pub fn only(&self) -> Option<Report> {
        self.ready.claimed_count.store(0, Ordering::Relaxed);
        let watched = self.ready.only()?;
        Some((watched.level()?, watched.data.load(Ordering::Acquire)))
    }

    /// Reports up to `limit` entries that have something to report; how many they were. A failed `report` ends it.
    ///
    /// # Errors
    /// Those of `report`.
    pub fn take(&self, limit: usize, mut report: impl FnMut(Report) -> Result<()>) -> Result<usize> {
        self.ready.claimed_count.store(0, Ordering::Relaxed);
        let (mut count, mut outcome) = (0, Ok(()));
        self.for_each_ready(|watched, events| {
            let stays = watched.reported();
            outcome = report((events, watched.data.load(Ordering::Acquire)));
            count += 1;
            Found { stays, goes_on: outcome.is_ok() && count < limit }
        });
        outcome.map(|()| count)
    }

    fn forget(&self, key: Key) {
        let removed = self.state.lock().watched.remove(&key);
        drop(removed);
    }

    /// The instances that this one watches.
    fn inner(&self) -> Vec<Arc<Description>> {
        let state = self.state.lock();
        let upgraded: Vec<_> = state.watched.values().filter_map(|watched| watched.description.upgrade()).collect();
        drop(state);
        upgraded.into_iter().filter(|description| description.extension::<Self>().is_some()).collect()
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

impl Drop for Epoll {
    fn drop(&mut self) {
        // The last that came goes first: many may be in one queue, and leaving its end costs no search.
        let mut pace = Pace::default();
        while self.state.get_mut().watched.pop_last().is_some() {
            pace.offer();
        }
    }
}

impl OpenFile for Epoll {
    fn read(&self, _: u64, _: &mut dyn Destination) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Accepted
    }

    fn readiness(&self) -> Readiness {
        let mut ready = Readiness::empty();
        self.for_each_ready(|_, _| {
            ready = Readiness::READ;
            Found { stays: true, goes_on: false }
        });
        ready
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.ready.queue)
    }

    fn announces(&self) -> bool {
        // What it watches may not.
        false
    }

    fn extension(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
