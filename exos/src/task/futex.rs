//! Threads that wait for words of memory: the queues behind `futex(2)`.
//!
//! A [`FutexKey`] names a word independently of where processes map it. [`FutexTable::wait_if`] looks at the word and
//! joins the queue in one step, and [`FutexTable::wake`] takes waiters out in the order in which they came; so a wake
//! between the look and the sleep is never lost. A waiter learns from its [`FutexWait`] whether it was woken, and
//! leaves the queue by dropping it. Waiters can be moved to another word (requeue) without waking them.
//!
//! Queues live in a fixed number of buckets that keep their memory, and a thread has one [`FutexWaiter`] for all its
//! waits, so waiting and waking allocate nothing in the steady state.
//!
//! The word is read under the table's lock; reading may fault, and the fault handler does not take that lock.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::error::{Errno, Result};
use crate::preempt::{self, Pace};
use crate::sync::Mutex;

/// Queues of different words share a bucket of so many.
const BUCKET_COUNT: usize = 256;

/// All bits of a wake mask.
pub const MATCH_ANY: u32 = u32::MAX;

/// Stands for the address space of a shared word: no number of one.
const SHARED: u64 = u64::MAX;

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FutexKey {
    space: u64,
    address: u64,
}

impl FutexKey {
    /// Of private memory: the address space's number, and the address in it.
    #[must_use]
    #[inline(always)]
    pub const fn private(space: u64, address: u64) -> Self {
        Self { space, address }
    }

    /// Of shared memory: the physical place (frame number times the page size, plus the offset).
    #[must_use]
    pub const fn shared(physical_address: u64) -> Self {
        Self { space: SHARED, address: physical_address }
    }

    /// Where its queue is.
    #[inline(always)]
    fn bucket(self) -> usize {
        let number = (self.address / 4) ^ (self.space << 32);
        // Fibonacci hashing: the upper bits of the product depend on all of the number's.
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKET_COUNT.ilog2())) as usize
    }
}

/// What can be woken.
pub trait Sleeper: Send + Sync {
    /// Makes it look again.
    fn wake_up(self: &Arc<Self>);
}

/// A waiter for one word at a time: made once, used for all its waits. But for `sleeper`, all of it changes under the
/// table's lock.
pub struct FutexWaiter<S: Sleeper> {
    sleeper: Arc<S>,
    /// Somebody took it out of its queue to wake it.
    is_woken: AtomicBool,
    /// What it waits for: requeues change it.
    space: AtomicU64,
    address: AtomicU64,
    mask: AtomicU32,
    /// Grows from wait to wait.
    id: AtomicU64,
}

impl<S: Sleeper> FutexWaiter<S> {
    /// A waiter that `sleeper` is woken for.
    pub fn new(sleeper: Arc<S>) -> Arc<Self> {
        let word = || AtomicU64::new(0);
        let (is_woken, mask) = (AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Self { sleeper, is_woken, space: word(), address: word(), mask, id: word() })
    }

    #[inline(always)]
    fn key(&self) -> FutexKey {
        FutexKey { space: self.space.load(Ordering::Relaxed), address: self.address.load(Ordering::Relaxed) }
    }

    #[inline(always)]
    fn set_key(&self, key: FutexKey, id: u64) {
        self.space.store(key.space, Ordering::Relaxed);
        self.address.store(key.address, Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
    }

    /// Whether it waits for `key` by a mask that meets `mask`, and came before `id_end`.
    #[inline(always)]
    fn is_meant(&self, key: FutexKey, mask: u32, id_end: u64) -> bool {
        self.key() == key
            && (mask == MATCH_ANY || self.mask.load(Ordering::Relaxed) & mask != 0)
            && (id_end == u64::MAX || self.id.load(Ordering::Relaxed) < id_end)
    }
}

/// Queues of words whose keys meet here, in the order in which their waiters came.
type Bucket<S> = VecDeque<Arc<FutexWaiter<S>>>;

struct Queues<S: Sleeper> {
    next_id: u64,
    buckets: [Bucket<S>; BUCKET_COUNT],
}

/// The queues of a pod.
pub struct FutexTable<S: Sleeper> {
    queues: Mutex<Queues<S>>,
}

impl<S: Sleeper> Default for FutexTable<S> {
    fn default() -> Self {
        let buckets = core::array::from_fn(|_| Bucket::new());
        Self { queues: Mutex::new(Queues { next_id: 0, buckets }) }
    }
}

/// A place in a queue.
pub struct FutexWait<'a, S: Sleeper> {
    table: &'a FutexTable<S>,
    waiter: &'a Arc<FutexWaiter<S>>,
}

impl<S: Sleeper> FutexWait<'_, S> {
    /// Whether somebody woke this waiter, rather than something else.
    #[must_use]
    #[inline]
    pub fn is_woken(&self) -> bool {
        self.waiter.is_woken.load(Ordering::Acquire)
    }

    /// Ends it if it was woken: there is no place to leave then.
    #[inline]
    pub fn end_if_woken(self) -> Option<Self> {
        if !self.is_woken() {
            return Some(self);
        }
        core::mem::forget(self);
        None
    }
}

impl<S: Sleeper> Drop for FutexWait<'_, S> {
    #[inline]
    fn drop(&mut self) {
        // A woken waiter has left the queue.
        if !self.is_woken() {
            self.leave();
        }
    }
}

impl<S: Sleeper> FutexWait<'_, S> {
    #[cold]
    fn leave(&self) {
        let mut queues = self.table.queues.lock();
        let bucket = &mut queues.buckets[self.waiter.key().bucket()];
        if let Some(place) = bucket.iter().position(|waiter| Arc::ptr_eq(waiter, self.waiter)) {
            bucket.remove(place);
        }
    }
}

impl<S: Sleeper> Queues<S> {
    /// Takes the first waiter of `key` out whose mask meets `mask` and that came before `id_end`.
    #[inline(always)]
    fn take(&mut self, key: FutexKey, mask: u32, id_end: u64) -> Option<Arc<FutexWaiter<S>>> {
        let bucket = &mut self.buckets[key.bucket()];
        let first = bucket.pop_front()?;
        // Nearly always.
        if first.is_meant(key, mask, id_end) {
            return Some(first);
        }
        bucket.push_front(first);
        Self::take_behind(bucket, key, mask, id_end)
    }

    #[cold]
    fn take_behind(bucket: &mut Bucket<S>, key: FutexKey, mask: u32, id_end: u64) -> Option<Arc<FutexWaiter<S>>> {
        bucket.remove(bucket.iter().position(|waiter| waiter.is_meant(key, mask, id_end))?)
    }

    /// As [`Self::take`], to be woken.
    #[inline(always)]
    fn take_to_wake(&mut self, key: FutexKey, mask: u32, id_end: u64) -> Option<Arc<FutexWaiter<S>>> {
        let waiter = self.take(key, mask, id_end)?;
        waiter.is_woken.store(true, Ordering::Release);
        Some(waiter)
    }
}

impl<S: Sleeper> FutexTable<S> {
    /// Joins the queue of `key` if `look` says that the word still has the value that was expected. `waiter` waits for
    /// nothing else meanwhile.
    ///
    /// # Errors
    /// `EAGAIN` if it has not; what `look` fails with.
    #[inline]
    pub fn wait_if<'a>(
        &'a self,
        key: FutexKey,
        mask: u32,
        waiter: &'a Arc<FutexWaiter<S>>,
        look: impl FnOnce() -> Result<bool>,
    ) -> Result<FutexWait<'a, S>> {
        let mut queues = self.queues.lock();
        if !look()? {
            return Err(Errno::EAGAIN);
        }
        queues.next_id += 1;
        waiter.is_woken.store(false, Ordering::Relaxed);
        waiter.set_key(key, queues.next_id);
        waiter.mask.store(mask, Ordering::Relaxed);
        queues.buckets[key.bucket()].push_back(waiter.clone());
        Ok(FutexWait { table: self, waiter })
    }

    /// Wakes up to `count` of the present waiters whose mask meets `mask`; says how many.
    #[inline]
    pub fn wake(&self, key: FutexKey, count: usize, mask: u32) -> usize {
        if count != 1 {
            return self.wake_several(key, count, mask);
        }
        self.wake_one(key, mask)
    }

    /// As [`FutexTable::wake`] of one.
    #[inline(always)]
    pub fn wake_one(&self, key: FutexKey, mask: u32) -> usize {
        let first = self.queues.lock().take_to_wake(key, mask, u64::MAX);
        first.map_or(0, |waiter| {
            waiter.sleeper.wake_up();
            1
        })
    }

    #[inline(never)]
    fn wake_several(&self, key: FutexKey, count: usize, mask: u32) -> usize {
        let mut queues = self.queues.lock();
        let id_end = queues.next_id + 1;
        let (mut woken, mut pace) = (0, Pace::default());
        while woken < count
            && let Some(waiter) = queues.take_to_wake(key, mask, id_end)
        {
            drop(queues);
            waiter.sleeper.wake_up();
            woken += 1;
            if woken == count {
                break;
            }
            pace.offer();
            queues = self.queues.lock();
        }
        woken
    }

    /// Wakes up to `wake_count` waiters of `from` and moves up to `move_count` more to `to`, if `look` agrees; says
    /// how many were woken and how many were moved.
    ///
    /// # Errors
    /// `EAGAIN` if `look` does not agree; what `look` fails with.
    pub fn requeue(
        &self,
        from: FutexKey,
        to: FutexKey,
        wake_count: usize,
        move_count: usize,
        look: impl FnOnce() -> Result<bool>,
    ) -> Result<(usize, usize)> {
        let mut queues = self.queues.lock();
        if !look()? {
            return Err(Errno::EAGAIN);
        }
        let id_end = queues.next_id + 1;
        let take_one = |queues: &mut Queues<S>| queues.take_to_wake(from, MATCH_ANY, id_end);
        let woken: Vec<_> = core::iter::from_fn(|| take_one(&mut queues)).take(wake_count).collect();
        let (mut moved_count, mut pace) = (0, Pace::default());
        while moved_count < move_count
            && let Some(waiter) = queues.take(from, MATCH_ANY, id_end)
        {
            // Behind those that are there; with a new number, so that a move to the same word ends.
            queues.next_id += 1;
            waiter.set_key(to, queues.next_id);
            queues.buckets[to.bucket()].push_back(waiter);
            moved_count += 1;
            if pace.is_due() {
                // A waiter that comes meanwhile is not meant, and one that goes is not there any more.
                drop(queues);
                preempt::offer();
                queues = self.queues.lock();
            }
        }
        drop(queues);
        for waiter in &woken {
            waiter.sleeper.wake_up();
            pace.offer();
        }
        Ok((woken.len(), moved_count))
    }

    /// Waiters on all words of an address space, or on all words.
    #[must_use]
    pub fn waiter_count(&self, space: Option<u64>) -> usize {
        let queues = self.queues.lock();
        let waiters = queues.buckets.iter().flatten();
        waiters.filter(|waiter| space.is_none_or(|space| waiter.key().space == space)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{FutexKey, FutexTable, FutexWait, FutexWaiter, MATCH_ANY, Sleeper};
    use crate::error::{Errno, Result};
    use crate::fs::Count;
    use crate::sync::Once;
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicUsize, Ordering};

    const A: FutexKey = FutexKey::private(1, 0x1000);
    const B: FutexKey = FutexKey::shared(0x5000);

    impl Sleeper for Count {
        fn wake_up(self: &Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waiters<const N: usize>(count: &Arc<Count>) -> [Arc<FutexWaiter<Count>>; N] {
        core::array::from_fn(|_| FutexWaiter::new(count.clone()))
    }

    fn wait<'a, S: Sleeper>(table: &'a FutexTable<S>, mask: u32, waiter: &'a Arc<FutexWaiter<S>>) -> FutexWait<'a, S> {
        table.wait_if(A, mask, waiter, || Ok(true)).unwrap()
    }

    #[test]
    fn the_first_who_came_is_woken_first_and_masks_choose() {
        let (table, count) = (FutexTable::default(), Arc::new(Count::default()));
        let threads: [_; 3] = waiters(&count);
        let [first, second, third] = [1, 2, 3].map(|mask| wait(&table, mask, &threads[mask as usize - 1]));
        assert_eq!(table.wake(A, 1, 2), 1);
        assert_eq!((first.is_woken(), second.is_woken(), third.is_woken()), (false, true, false));
        assert_eq!(table.wake(A, 9, MATCH_ANY), 2);
        assert_eq!((table.waiter_count(None), count.0.load(Ordering::Relaxed)), (0, 3));
        // Used again, it has to be woken again.
        drop((first, second, third));
        let again = wait(&table, 1, &threads[0]);
        assert!(!again.is_woken());
        drop(again);
        assert_eq!((table.waiter_count(None), table.wake(A, 1, MATCH_ANY)), (0, 0));
    }

    #[test]
    fn a_changed_word_and_a_fault_keep_one_out() {
        let (table, [waiter]) = (FutexTable::default(), waiters(&Arc::default()));
        let outcome = |look: Result<bool>| table.wait_if(A, 1, &waiter, || look).err();
        assert_eq!(outcome(Ok(false)), Some(Errno::EAGAIN));
        assert_eq!(outcome(Err(Errno::EFAULT)), Some(Errno::EFAULT));
        assert_eq!(table.waiter_count(None), 0);
    }

    #[test]
    fn a_moved_waiter_is_woken_at_its_new_word_and_leaves_it_when_dropped() {
        let (table, count) = (FutexTable::default(), Arc::new(Count::default()));
        let threads: [_; 4] = waiters(&count);
        let waits = threads.each_ref().map(|waiter| wait(&table, MATCH_ANY, waiter));
        assert_eq!(table.requeue(A, B, 1, 2, || Ok(true)), Ok((1, 2)));
        assert_eq!((table.waiter_count(Some(1)), table.waiter_count(None)), (1, 3));
        assert_eq!(table.wake(B, 1, MATCH_ANY), 1);
        assert!(waits[1].is_woken() && !waits[2].is_woken());
        drop(waits);
        assert_eq!(table.waiter_count(None), 0);
    }

    #[test]
    fn a_move_to_the_same_word_ends_and_keeps_the_order() {
        let (table, count) = (FutexTable::default(), Arc::new(Count::default()));
        let threads: [_; 3] = waiters(&count);
        let waits = threads.each_ref().map(|waiter| wait(&table, MATCH_ANY, waiter));
        assert_eq!(table.requeue(A, A, 0, usize::MAX, || Ok(true)), Ok((0, 3)));
        assert_eq!(table.wake(A, 1, MATCH_ANY), 1);
        assert_eq!(waits.each_ref().map(FutexWait::is_woken), [true, false, false]);
    }

    /// A sleeper that waits again at once: a thread that finds the word as it was.
    struct Stubborn {
        table: FutexTable<Self>,
        other: Once<Arc<FutexWaiter<Self>>>,
        round_count: AtomicUsize,
    }

    impl Sleeper for Stubborn {
        fn wake_up(self: &Arc<Self>) {
            self.round_count.fetch_add(1, Ordering::Relaxed);
            core::mem::forget(wait(&self.table, MATCH_ANY, self.other.get().unwrap()));
        }
    }

    #[test]
    fn one_wake_wakes_only_those_who_were_there() {
        let stubborn =
            Arc::new(Stubborn { table: FutexTable::default(), other: Once::new(), round_count: AtomicUsize::new(0) });
        stubborn.other.call_once(|| FutexWaiter::new(stubborn.clone()));
        let waiter = FutexWaiter::new(stubborn.clone());
        let _wait = wait(&stubborn.table, MATCH_ANY, &waiter);
        assert_eq!(stubborn.table.wake(A, usize::MAX, MATCH_ANY), 1);
        assert_eq!((stubborn.round_count.load(Ordering::Relaxed), stubborn.table.waiter_count(None)), (1, 1));
    }
}
