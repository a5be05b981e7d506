//! Readiness of descriptions and the queues that tell about its change: the ground for sleeping, `poll` and
//! `epoll`.
//!
//! A waiter is told "something changed", never "you may read now": it looks again at the description's
//! readiness. That makes wake-ups idempotent, and a spurious one harmless. Waiters run without any lock
//! held (INV-F1).
//!
//! A queue counts what it tells. A waiter that has read the count before its look can join only if it is still the same
//! ([`WaitQueue::register_unless_told`]), so one look is enough: a change that came after it, and was told before the
//! waiter joined, keeps it out.
//!
//! A place in a queue cannot be refused: a task that sleeps without one sleeps for ever. It is taken from exos's
//! reserve where there is no other memory, so a call that takes many asks before ([`crate::reserve::check`]), and lists
//! are short: later waiters stand behind them ([`Waiters::overflow`]).

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bitflags::bitflags;

use crate::preempt::Pace;
use crate::reserve::CALL_BYTES_MAX;
use crate::sync::Mutex;

bitflags! {
    /// What a description is ready for; the meaning of poll(2)'s events, not their numbers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Readiness: u32 {
        /// A read would not block (end of file counts).
        const READ = 1 << 0;
        /// A write would not block.
        const WRITE = 1 << 1;
        /// Exceptional data.
        const PRIORITY = 1 << 2;
        /// An error condition; reported whether asked or not (a pipe whose readers are gone).
        const ERROR = 1 << 3;
        /// The other side has gone; reported whether asked or not.
        const HANG_UP = 1 << 4;
        /// The other side will not write any more.
        const READ_HANG_UP = 1 << 5;
        /// No event, and never told: the interest of a thread that takes events itself, rather than pass them on.
        const TAKER = 1 << 6;
    }
}

impl Readiness {
    /// What regular files always are.
    pub const ALWAYS: Self = Self::READ.union(Self::WRITE);
    /// All that can happen.
    pub const EVENTS: Self = Self::all().difference(Self::TAKER);
}

/// What waits: a sleeping task, an epoll entry.
pub trait Waiter: Send + Sync {
    /// The readiness of what one waits for may have changed to contain `events`. Called without locks; must
    /// not block.
    fn wake(&self, events: Readiness);

    /// As [`Self::wake`], of a waiter that is to be woken alone: whether it takes the event on, so that no other of its
    /// kind need be woken.
    fn wake_alone(&self, events: Readiness) -> bool {
        self.wake(events);
        true
    }
}

/// Most places of the list of waiters: a call may wait in as many queues as [`UNASKED_COUNT`], and each list may be
/// about to grow.
const LIST_COUNT_MAX: usize = 16;
/// Places that are taken for one call without asking for the reserve between them.
pub const UNASKED_COUNT: usize = 64;
const _: () = assert!(UNASKED_COUNT * LIST_COUNT_MAX * size_of::<Entry>() < CALL_BYTES_MAX, "nothing of it can fail");

struct Entry {
    id: u64,
    interest: Readiness,
    waiter: Weak<dyn Waiter>,
    has_left: bool,
    /// Of waiters that are alone one is woken at a time.
    is_alone: bool,
}

/// A waiter that has left, while its place is still there: it cannot be woken.
struct Gone;

impl Waiter for Gone {
    fn wake(&self, _: Readiness) {}
}

#[derive(Default)]
struct Waiters {
    next_id: u64,
    /// In the order in which they came, so by `id`. Entries that left are in it without a waiter while they are not
    /// most of it; the last is never one of them.
    list: Vec<Entry>,
    left_count: usize,
    /// Waiters that came when the list was full, or this map was not empty, by `id`.
    overflow: BTreeMap<u64, Entry>,
}

impl Waiters {
    #[inline]
    fn is_empty(&self) -> bool {
        self.list.is_empty() && self.overflow.is_empty()
    }

    fn add(&mut self, entry: Entry) {
        if self.list.len() < LIST_COUNT_MAX && self.overflow.is_empty() {
            self.list.push(entry);
        } else {
            self.overflow.insert(entry.id, entry);
        }
    }

    fn remove(&mut self, id: u64) {
        if self.list.last().is_some_and(|entry| entry.id == id) {
            self.list.pop();
            if self.left_count > 0 {
                self.trim();
            }
        } else if let Ok(place) = self.list.binary_search_by_key(&id, |entry| entry.id) {
            self.take_from_middle(place);
        } else {
            self.overflow.remove(&id);
        }
    }

    /// All present entries, in the order in which they came.
    fn those_there(&self) -> impl Iterator<Item = &Entry> {
        self.list.iter().filter(|entry| !entry.has_left).chain(self.overflow.values())
    }

    /// Has the last of the list be a present entry.
    #[cold]
    fn trim(&mut self) {
        while self.list.pop_if(|entry| entry.has_left).is_some() {
            self.left_count -= 1;
        }
    }

    /// Has an entry leave that is not the last. Those behind it move up when half of the list has left, so that many
    /// may leave in any order.
    #[cold]
    fn take_from_middle(&mut self, place: usize) {
        let entry = &mut self.list[place];
        (entry.waiter, entry.has_left) = (Weak::<Gone>::new(), true);
        self.left_count += 1;
        if self.left_count * 2 > self.list.len() {
            self.list.retain(|entry| !entry.has_left);
            self.left_count = 0;
        }
    }

    /// The first waiter with a number in `ids` that `events` concern, whether it is to be woken alone, and the number
    /// to go on with unless none came after it.
    #[inline]
    fn next_concerned(&self, events: Readiness, ids: &Range<u64>) -> Option<(Option<u64>, bool, Arc<dyn Waiter>)> {
        let always = Readiness::ERROR | Readiness::HANG_UP;
        let first = self.list.partition_point(|entry| entry.id < ids.start);
        let mut all = self.list[first..].iter().chain(self.overflow.range(ids.clone()).map(|(_, entry)| entry));
        while let Some(entry) = all.next().filter(|entry| entry.id < ids.end) {
            if events.intersects(entry.interest | always)
                && let Some(waiter) = entry.waiter.upgrade()
            {
                return Some((all.next().map(|_| entry.id + 1), entry.is_alone, waiter));
            }
        }
        None
    }
}

/// The waiters for one object.
#[derive(Default)]
pub struct WaitQueue {
    /// How often something was told.
    told_count: AtomicU64,
    /// Whether there are waiters, changed under the lock of `waiters`. A teller counts first and looks then; a joining
    /// waiter is here first and looks at the count, or at what it waits for, then: one of the two sees the other.
    has_waiters: AtomicBool,
    waiters: Mutex<Waiters>,
}

impl WaitQueue {
    /// An empty queue.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds a waiter for the events of `interest`. It stays until the registration is dropped; the queue
    /// does not keep it alive.
    pub fn register(self: &Arc<Self>, waiter: Weak<dyn Waiter>, interest: Readiness) -> Registration {
        self.join(&mut self.waiters.lock(), waiter, interest, false)
    }

    /// As [`Self::register`], of one of several waiters of which one at a time is to be woken ([`Waiter::wake_alone`]).
    pub fn register_alone(self: &Arc<Self>, waiter: Weak<dyn Waiter>, interest: Readiness) -> Registration {
        self.join(&mut self.waiters.lock(), waiter, interest, true)
    }

    /// As [`Self::register`], unless anything was told since [`Self::told_count`] answered `told_count`.
    pub fn register_unless_told(
        self: &Arc<Self>,
        waiter: Weak<dyn Waiter>,
        interest: Readiness,
        told_count: u64,
    ) -> Option<Registration> {
        let mut waiters = self.waiters.lock();
        self.has_waiters.swap(true, Ordering::SeqCst);
        if self.told_count() != told_count {
            self.has_waiters.store(!waiters.is_empty(), Ordering::Relaxed);
            return None;
        }
        Some(self.join(&mut waiters, waiter, interest, false))
    }

    #[inline]
    fn join(
        self: &Arc<Self>,
        waiters: &mut Waiters,
        waiter: Weak<dyn Waiter>,
        interest: Readiness,
        is_alone: bool,
    ) -> Registration {
        let id = waiters.next_id;
        waiters.next_id += 1;
        self.has_waiters.swap(true, Ordering::SeqCst);
        waiters.add(Entry { id, interest, waiter, has_left: false, is_alone });
        Registration { queue: self.clone(), id }
    }

    /// How often something was told. Read before a look, it says later whether the look is out of date.
    pub fn told_count(&self) -> u64 {
        self.told_count.load(Ordering::Acquire)
    }

    /// Wakes all waiters whose interest meets `events`, in the order in which they came, but of those that are alone
    /// only up to the first that takes it; errors and hang-ups meet every interest.
    #[inline(always)]
    pub fn notify(&self, events: Readiness) {
        self.told_count.fetch_add(1, Ordering::SeqCst);
        if self.has_waiters.load(Ordering::SeqCst) {
            self.wake_all(events);
        }
    }

    #[inline(never)]
    fn wake_all(&self, events: Readiness) {
        let mut waiters = self.waiters.lock();
        let (mut ids, mut pace) = (0..waiters.next_id, Pace::default());
        // What has ended concerns each of those that are alone.
        let (is_end, mut is_taken) = (events.intersects(Readiness::ERROR | Readiness::HANG_UP), false);
        while let Some((next, is_alone, waiter)) = waiters.next_concerned(events, &ids) {
            drop(waiters);
            if !is_alone || is_end {
                waiter.wake(events);
            } else if !is_taken {
                is_taken = waiter.wake_alone(events);
            }
            drop(waiter);
            let Some(next) = next else { return };
            ids.start = next;
            pace.offer_page();
            waiters = self.waiters.lock();
        }
    }

    /// Registered waiters.
    pub fn waiter_count(&self) -> usize {
        self.waiters.lock().those_there().count()
    }

    /// Registered waiters that take events themselves.
    pub fn taker_count(&self) -> usize {
        let waiters = self.waiters.lock();
        waiters.those_there().filter(|entry| entry.interest.contains(Readiness::TAKER)).count()
    }
}

/// A place in a [`WaitQueue`]; dropping it leaves the queue.
pub struct Registration {
    queue: Arc<WaitQueue>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut waiters = self.queue.waiters.lock();
        waiters.remove(self.id);
        if waiters.is_empty() {
            self.queue.has_waiters.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LIST_COUNT_MAX, Readiness, Registration, WaitQueue, Waiter};
    use crate::fs::Count;
    use crate::reserve::{Level, set_level};
    use crate::sync::Mutex;
    use alloc::sync::{Arc, Weak};
    use core::sync::atomic::Ordering;

    fn register<W: Waiter + 'static>(queue: &Arc<WaitQueue>, waiter: &Arc<W>, interest: Readiness) -> Registration {
        queue.register(Arc::<W>::downgrade(waiter), interest)
    }

    #[test]
    fn wakes_only_the_concerned_and_only_while_registered() {
        let queue = WaitQueue::new();
        let count = Arc::new(Count::default());
        let registration = register(&queue, &count, Readiness::READ);
        queue.notify(Readiness::WRITE);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        queue.notify(Readiness::READ);
        queue.notify(Readiness::HANG_UP);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        drop(registration);
        queue.notify(Readiness::READ);
        assert_eq!((count.0.load(Ordering::Relaxed), queue.waiter_count()), (2, 0));
    }

    /// Takes what it is woken for if it is free.
    struct Alone {
        is_free: bool,
        count: Count,
    }

    impl Waiter for Alone {
        fn wake(&self, events: Readiness) {
            self.count.wake(events);
        }

        fn wake_alone(&self, events: Readiness) -> bool {
            self.wake(events);
            self.is_free
        }
    }

    #[test]
    fn of_those_who_are_alone_the_first_who_is_free_is_woken() {
        let queue = WaitQueue::new();
        let alone = [false, true, true].map(|is_free| Arc::new(Alone { is_free, count: Count::default() }));
        let counts = || alone.each_ref().map(|one| one.count.0.load(Ordering::Relaxed));
        let _places = alone.each_ref().map(|one| queue.register_alone(Arc::<Alone>::downgrade(one), Readiness::READ));
        let other = Arc::new(Count::default());
        let _registration = register(&queue, &other, Readiness::READ);
        queue.notify(Readiness::READ);
        assert_eq!((counts(), other.0.load(Ordering::Relaxed)), ([1, 1, 0], 1));
        queue.notify(Readiness::READ | Readiness::HANG_UP);
        assert_eq!((counts(), other.0.load(Ordering::Relaxed)), ([2, 2, 1], 2));
    }

    #[test]
    fn whoever_missed_a_change_between_look_and_registration_is_kept_out() {
        let queue = WaitQueue::new();
        let count = Arc::new(Count::default());
        let waiter = || -> Weak<dyn Waiter> { Arc::<Count>::downgrade(&count) };
        let before = queue.told_count();
        queue.notify(Readiness::READ);
        assert!(queue.register_unless_told(waiter(), Readiness::READ, before).is_none());
        assert_eq!(queue.waiter_count(), 0);
        let now = queue.told_count();
        let _registration = queue.register_unless_told(waiter(), Readiness::READ, now).expect("nothing came since");
        queue.notify(Readiness::READ);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    /// Notes its number; joins the queue again with a number of its own, or lets another leave.
    struct Meddler {
        number: usize,
        order: Arc<Mutex<Vec<usize>>>,
        leaves: Mutex<Option<Registration>>,
        queue: Arc<WaitQueue>,
        joined: Mutex<Vec<Registration>>,
        me: Weak<Meddler>,
    }

    impl Waiter for Meddler {
        fn wake(&self, _: Readiness) {
            self.order.lock().push(self.number);
            drop(self.leaves.lock().take());
            let me: Weak<dyn Waiter> = self.me.clone();
            self.joined.lock().push(self.queue.register(me, Readiness::READ));
        }
    }

    #[test]
    fn waiters_are_woken_in_order_while_others_join_and_leave() {
        let (queue, order) = (WaitQueue::new(), Arc::new(Mutex::new(Vec::new())));
        let meddlers: [Arc<Meddler>; 4] = core::array::from_fn(|number| {
            Arc::new_cyclic(|me| Meddler {
                number,
                order: order.clone(),
                leaves: Mutex::new(None),
                queue: queue.clone(),
                joined: Mutex::default(),
                me: me.clone(),
            })
        });
        let mut registrations: Vec<_> =
            meddlers.iter().map(|meddler| register(&queue, meddler, Readiness::READ)).collect();
        // The second one to be woken makes the third leave; those that join are for the next time.
        *meddlers[1].leaves.lock() = Some(registrations.remove(2));
        queue.notify(Readiness::READ);
        assert_eq!(*order.lock(), [0, 1, 3]);
        assert_eq!(queue.waiter_count(), 6);
    }

    #[test]
    fn who_comes_has_a_place_though_there_is_no_memory_and_though_the_list_is_full() {
        const COUNT: usize = LIST_COUNT_MAX + 100;
        let (queue, count) = (WaitQueue::new(), Arc::new(Count::default()));
        let waiter = || Arc::<Count>::downgrade(&count);
        set_level(Level::Low);
        let mut places: Vec<_> = (0..COUNT).map(|_| Some(queue.register(waiter(), Readiness::READ))).collect();
        set_level(Level::Whole);
        let told = |left| {
            let before = count.0.load(Ordering::Relaxed);
            queue.notify(Readiness::READ);
            assert_eq!((count.0.load(Ordering::Relaxed) - before, queue.waiter_count()), (left, left));
        };
        told(COUNT);
        // Of both, in any order; a later waiter is woken after those that are there.
        places.iter_mut().step_by(3).for_each(|place| drop(place.take()));
        let left = COUNT - COUNT.div_ceil(3);
        told(left);
        let last = queue.register(waiter(), Readiness::READ);
        assert_eq!(queue.waiters.lock().those_there().last().map(|entry| entry.id), Some(COUNT as u64));
        told(left + 1);
        drop(last);
        places.drain(..LIST_COUNT_MAX);
        told(100 - (LIST_COUNT_MAX..COUNT).filter(|number| number % 3 == 0).count());
        drop(places);
        told(0);
        assert!(!queue.has_waiters.load(Ordering::Relaxed));
    }

    #[test]
    fn many_leave_in_any_order_and_the_others_are_woken_as_they_came() {
        let (queue, count) = (WaitQueue::new(), Arc::new(Count::default()));
        let waiter = || Arc::<Count>::downgrade(&count);
        for step in [1, 3, 7, 99, 100] {
            let mut places: Vec<_> = (0..100).map(|_| Some(queue.register(waiter(), Readiness::READ))).collect();
            let mut left = 100;
            for index in (0..100).map(|index| index * step % 101 % 100) {
                left -= usize::from(places[index].take().is_some());
                assert_eq!(queue.waiter_count(), left);
                let before = count.0.load(Ordering::Relaxed);
                queue.notify(Readiness::READ);
                assert_eq!(count.0.load(Ordering::Relaxed) - before, left);
            }
            drop(places);
            assert!(queue.waiters.lock().list.is_empty() && queue.waiters.lock().left_count == 0);
        }
    }
}
