//! Threads that wait for words of memory: the queues behind `futex(2)`.
//!
//! A [`FutexKey`] names a word independently of who maps it where. [`FutexTable::wait_if`] looks at the word and joins
//! the queue in one step, and [`FutexTable::wake`] takes waiters out in the order in which they came; so a wake
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
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, Waiter};
use crate::preempt::{self, Pace};
use crate::sync::Mutex;

/// Queues of different words share a bucket of so many.
const BUCKET_COUNT: usize = 256;

/// All bits of a wake mask.
pub const MATCH_ANY: u32 = u32::MAX;

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FutexKey {
    /// Of private memory: the address space's number and the address.
    Private {
        /// Which address space.
        space: u64,
        /// Where in it.
        address: u64,
    },
    /// Of shared memory: the physical place.
    Shared {
        /// Frame number times the page size, plus the offset.
        physical_address: u64,
    },
}

/// Stands for the address space of a shared word: no number of one.
const SHARED: u64 = u64::MAX;

/// A key as it is compared: address space and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    space: u64,
    address: u64,
}

impl From<FutexKey> for Word {
    #[inline(always)]
    fn from(key: FutexKey) -> Self {
        match key {
            FutexKey::Private { space, address } => Self { space, address },
            FutexKey::Shared { physical_address } => Self { space: SHARED, address: physical_address },
        }
    }
}

impl Word {
    /// Where its queue is.
    #[inline(always)]
    fn bucket(self) -> usize {
        let number = (self.address / 4) ^ (self.space << 32);
        // Fibonacci hashing: the upper bits of the product depend on all of the number's.
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKET_COUNT.ilog2())) as usize
    }
}

/// Somebody who waits for one word at a time: made once, used for all its waits.
pub struct FutexWaiter {
    waiter: Arc<dyn Waiter>,
    /// Somebody took it out of its queue to wake it. Changes under the table's lock.
    is_woken: AtomicBool,
    /// The bucket that it is in while it waits: requeues move it. Changes under the table's lock.
    bucket: AtomicUsize,
}

impl FutexWaiter {
    /// One whom `waiter` is woken for.
    pub fn new(waiter: Arc<dyn Waiter>) -> Arc<Self> {
        Arc::new(Self { waiter, is_woken: AtomicBool::new(false), bucket: AtomicUsize::new(0) })
    }

    #[inline]
    fn wake(&self) {
        self.waiter.wake(Readiness::empty());
    }
}

struct Entry {
    word: Word,
    mask: u32,
    /// Grows from wait to wait.
    id: u64,
    waiter: Arc<FutexWaiter>,
}

/// Queues of words whose keys meet here, in the order in which their waiters came.
type Bucket = VecDeque<Entry>;

struct Queues {
    next_id: u64,
    buckets: [Bucket; BUCKET_COUNT],
}

/// The queues of a pod.
pub struct FutexTable {
    queues: Mutex<Queues>,
}

impl Default for FutexTable {
    fn default() -> Self {
        let buckets = core::array::from_fn(|_| Bucket::new());
        Self { queues: Mutex::new(Queues { next_id: 0, buckets }) }
    }
}

/// A place in a queue.
pub struct FutexWait<'a> {
    table: &'a FutexTable,
    waiter: &'a Arc<FutexWaiter>,
}

impl FutexWait<'_> {
    /// Whether somebody woke this waiter, rather than something else.
    #[must_use]
    #[inline]
    pub fn is_woken(&self) -> bool {
        self.waiter.is_woken.load(Ordering::Acquire)
    }
}

impl Drop for FutexWait<'_> {
    #[inline]
    fn drop(&mut self) {
        // Whoever is woken has left the queue.
        if !self.is_woken() {
            self.leave();
        }
    }
}

impl FutexWait<'_> {
    #[cold]
    fn leave(&self) {
        let mut queues = self.table.queues.lock();
        let bucket = &mut queues.buckets[self.waiter.bucket.load(Ordering::Relaxed)];
        if let Some(place) = bucket.iter().position(|entry| Arc::ptr_eq(&entry.waiter, self.waiter)) {
            bucket.remove(place);
        }
    }
}

impl Queues {
    /// Takes the first waiter of `word` out whose mask meets `mask` and who came before `id_end`.
    #[inline]
    fn take(&mut self, word: Word, mask: u32, id_end: u64) -> Option<Entry> {
        let bucket = &mut self.buckets[word.bucket()];
        let is_meant = |entry: &Entry| entry.word == word && entry.mask & mask != 0 && entry.id < id_end;
        // Nearly always the first one.
        if is_meant(bucket.front()?) {
            return bucket.pop_front();
        }
        Self::take_behind(bucket, is_meant)
    }

    #[cold]
    fn take_behind(bucket: &mut Bucket, is_meant: impl Fn(&Entry) -> bool) -> Option<Entry> {
        bucket.remove(bucket.iter().position(is_meant)?)
    }

    /// As [`Self::take`], to be woken.
    #[inline]
    fn take_to_wake(&mut self, word: Word, mask: u32, id_end: u64) -> Option<Arc<FutexWaiter>> {
        let Entry { waiter, .. } = self.take(word, mask, id_end)?;
        waiter.is_woken.store(true, Ordering::Release);
        Some(waiter)
    }
}

impl FutexTable {
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
        waiter: &'a Arc<FutexWaiter>,
        look: impl FnOnce() -> Result<bool>,
    ) -> Result<FutexWait<'a>> {
        let mut queues = self.queues.lock();
        if !look()? {
            return Err(Errno::EAGAIN);
        }
        queues.next_id += 1;
        let word = Word::from(key);
        let (id, bucket) = (queues.next_id, word.bucket());
        waiter.is_woken.store(false, Ordering::Relaxed);
        waiter.bucket.store(bucket, Ordering::Relaxed);
        queues.buckets[bucket].push_back(Entry { word, mask, id, waiter: waiter.clone() });
        Ok(FutexWait { table: self, waiter })
    }

    /// Wakes up to `count` of those who wait now and whose mask meets `mask`; says how many.
    #[inline]
    pub fn wake(&self, key: FutexKey, count: usize, mask: u32) -> usize {
        if count != 1 {
            return self.wake_several(key, count, mask);
        }
        let first = self.queues.lock().take_to_wake(key.into(), mask, u64::MAX);
        first.map_or(0, |waiter| {
            waiter.wake();
            1
        })
    }

    fn wake_several(&self, key: FutexKey, count: usize, mask: u32) -> usize {
        let mut queues = self.queues.lock();
        let id_end = queues.next_id + 1;
        let (mut woken, mut pace) = (0, Pace::default());
        while woken < count
            && let Some(waiter) = queues.take_to_wake(key.into(), mask, id_end)
        {
            drop(queues);
            waiter.wake();
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
        let (from, to) = (Word::from(from), Word::from(to));
        let id_end = queues.next_id + 1;
        let take_one = |queues: &mut Queues| queues.take_to_wake(from, MATCH_ANY, id_end);
        let woken: Vec<_> = core::iter::from_fn(|| take_one(&mut queues)).take(wake_count).collect();
        let (mut moved_count, mut pace) = (0, Pace::default());
        while moved_count < move_count
            && let Some(entry) = queues.take(from, MATCH_ANY, id_end)
        {
            // Behind those who are there; with a new number, so that a move to the same word ends.
            queues.next_id += 1;
            let (id, bucket) = (queues.next_id, to.bucket());
            entry.waiter.bucket.store(bucket, Ordering::Relaxed);
            queues.buckets[bucket].push_back(Entry { word: to, id, ..entry });
            moved_count += 1;
            if pace.is_due() {
                // Who comes meanwhile is not meant, and who goes is not there any more.
                drop(queues);
                preempt::offer();
                queues = self.queues.lock();
            }
        }
        drop(queues);
        for waiter in &woken {
            waiter.wake();
            pace.offer();
        }
        Ok((woken.len(), moved_count))
    }

    /// Waiters on all words of an address space, or on all words.
    #[must_use]
    pub fn waiter_count(&self, space: Option<u64>) -> usize {
        let queues = self.queues.lock();
        let entries = queues.buckets.iter().flatten();
        entries.filter(|entry| space.is_none_or(|space| entry.word.space == space)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{FutexKey, FutexTable, FutexWait, FutexWaiter, MATCH_ANY};
    use crate::error::{Errno, Result};
    use crate::fs::Count;
    use crate::fs::readiness::{Readiness, Waiter};
    use crate::sync::Once;
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicUsize, Ordering};

    const A: FutexKey = FutexKey::Private { space: 1, address: 0x1000 };
    const B: FutexKey = FutexKey::Shared { physical_address: 0x5000 };

    fn waiters<const N: usize>(count: &Arc<Count>) -> [Arc<FutexWaiter>; N] {
        core::array::from_fn(|_| FutexWaiter::new(count.clone()))
    }

    fn wait<'a>(table: &'a FutexTable, mask: u32, waiter: &'a Arc<FutexWaiter>) -> FutexWait<'a> {
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

    /// Whoever is woken waits again at once: a thread that finds the word as it was.
    struct Stubborn {
        table: FutexTable,
        other: Once<Arc<FutexWaiter>>,
        round_count: AtomicUsize,
    }

    impl Waiter for Stubborn {
        fn wake(&self, _: Readiness) {
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
