//! Threads that wait for words of memory: the queues behind `futex(2)`.
//!
//! A [`FutexKey`] names a word independently of who maps it where. [`FutexTable::wait_if`] looks at the word and joins
//! the queue in one step, and [`FutexTable::wake`] takes waiters out in the order in which they came; so a wake
//! between the look and the sleep is never lost. A waiter learns from its [`FutexWait`] whether it was woken, and
//! leaves the queue by dropping it. Waiters can be moved to another word (requeue) without waking them.
//!
//! The word is read under the table's lock; reading may fault, and the fault handler does not take that lock.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Errno, Result};
use crate::fs::readiness::{Readiness, Waiter};
use crate::sync::Mutex;

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

impl FutexKey {
    /// The address space of a private word.
    fn space(self) -> Option<u64> {
        match self {
            Self::Private { space, .. } => Some(space),
            Self::Shared { .. } => None,
        }
    }
}

struct Entry {
    id: u64,
    mask: u32,
    is_woken: Arc<AtomicBool>,
    waiter: Arc<dyn Waiter>,
}

#[derive(Default)]
struct Queues {
    next_id: u64,
    by_key: BTreeMap<FutexKey, VecDeque<Entry>>,
    /// Where each waiter is now: requeues move it.
    places: BTreeMap<u64, FutexKey>,
}

/// The queues of a pod.
#[derive(Default)]
pub struct FutexTable {
    queues: Mutex<Queues>,
}

/// A place in a queue.
pub struct FutexWait<'a> {
    table: &'a FutexTable,
    id: u64,
    is_woken: Arc<AtomicBool>,
}

impl FutexWait<'_> {
    /// Whether somebody woke this waiter, rather than something else.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Acquire)
    }
}

impl Drop for FutexWait<'_> {
    fn drop(&mut self) {
        let mut queues = self.table.queues.lock();
        if let Some(key) = queues.places.remove(&self.id) {
            let is_empty = queues.by_key.get_mut(&key).is_some_and(|queue| {
                queue.retain(|entry| entry.id != self.id);
                queue.is_empty()
            });
            if is_empty {
                queues.by_key.remove(&key);
            }
        }
    }
}

impl Queues {
    /// Takes up to `count` waiters of `key` out whose mask meets `mask`.
    fn take(&mut self, key: FutexKey, count: usize, mask: u32) -> VecDeque<Entry> {
        let mut taken = VecDeque::new();
        let Some(queue) = self.by_key.get_mut(&key) else { return taken };
        let mut index = 0;
        while index < queue.len() && taken.len() < count {
            if queue[index].mask & mask != 0 {
                taken.extend(queue.remove(index));
            } else {
                index += 1;
            }
        }
        if queue.is_empty() {
            self.by_key.remove(&key);
        }
        taken
    }
}

impl FutexTable {
    /// Joins the queue of `key` if `look` says that the word still has the value that was expected.
    ///
    /// # Errors
    /// `EAGAIN` if it has not; what `look` fails with.
    pub fn wait_if(
        &self,
        key: FutexKey,
        mask: u32,
        waiter: Arc<dyn Waiter>,
        look: impl FnOnce() -> Result<bool>,
    ) -> Result<FutexWait<'_>> {
        let mut queues = self.queues.lock();
        if !look()? {
            return Err(Errno::EAGAIN);
        }
        queues.next_id += 1;
        let id = queues.next_id;
        let is_woken = Arc::new(AtomicBool::new(false));
        queues.by_key.entry(key).or_default().push_back(Entry { id, mask, is_woken: is_woken.clone(), waiter });
        queues.places.insert(id, key);
        Ok(FutexWait { table: self, id, is_woken })
    }

    /// Wakes up to `count` waiters whose mask meets `mask`; says how many.
    pub fn wake(&self, key: FutexKey, count: usize, mask: u32) -> usize {
        let taken = {
            let mut queues = self.queues.lock();
            let taken = queues.take(key, count, mask);
            for entry in &taken {
                queues.places.remove(&entry.id);
            }
            taken
        };
        let woken = taken.len();
        for entry in taken {
            entry.is_woken.store(true, Ordering::Release);
            entry.waiter.wake(Readiness::empty());
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
        let (woken, moved) = {
            let mut queues = self.queues.lock();
            if !look()? {
                return Err(Errno::EAGAIN);
            }
            let woken = queues.take(from, wake_count, MATCH_ANY);
            for entry in &woken {
                queues.places.remove(&entry.id);
            }
            let moved = queues.take(from, move_count, MATCH_ANY);
            let count = moved.len();
            for entry in &moved {
                queues.places.insert(entry.id, to);
            }
            if count > 0 {
                queues.by_key.entry(to).or_default().extend(moved);
            }
            (woken, count)
        };
        let count = woken.len();
        for entry in woken {
            entry.is_woken.store(true, Ordering::Release);
            entry.waiter.wake(Readiness::empty());
        }
        Ok((count, moved))
    }

    /// Does `act` while nobody can join or leave a queue: for words that are changed and looked at in one step.
    pub fn locked<T>(&self, act: impl FnOnce() -> T) -> T {
        let _queues = self.queues.lock();
        act()
    }

    /// Waiters on all words of an address space, or on all words.
    #[must_use]
    pub fn waiter_count(&self, space: Option<u64>) -> usize {
        let queues = self.queues.lock();
        let concerned = |key: &FutexKey| space.is_none() || key.space() == space;
        queues.by_key.iter().filter(|(key, _)| concerned(key)).map(|(_, queue)| queue.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{FutexKey, FutexTable, MATCH_ANY};
    use crate::error::Errno;
    use crate::fs::readiness::{Readiness, Waiter};
    use alloc::sync::Arc;

    struct Nobody;

    impl Waiter for Nobody {
        fn wake(&self, _: Readiness) {}
    }

    const A: FutexKey = FutexKey::Private { space: 1, address: 0x1000 };
    const B: FutexKey = FutexKey::Shared { physical_address: 0x5000 };

    #[test]
    fn the_first_who_came_is_woken_first_and_masks_choose() {
        let table = FutexTable::default();
        let first = table.wait_if(A, 1, Arc::new(Nobody), || Ok(true)).unwrap();
        let second = table.wait_if(A, 2, Arc::new(Nobody), || Ok(true)).unwrap();
        let third = table.wait_if(A, 3, Arc::new(Nobody), || Ok(true)).unwrap();
        assert_eq!(table.wake(A, 1, 2), 1);
        assert_eq!((first.is_woken(), second.is_woken(), third.is_woken()), (false, true, false));
        assert_eq!(table.wake(A, 9, MATCH_ANY), 2);
        assert_eq!(table.waiter_count(None), 0);
    }

    #[test]
    fn a_changed_word_and_a_fault_keep_one_out() {
        let table = FutexTable::default();
        assert_eq!(table.wait_if(A, 1, Arc::new(Nobody), || Ok(false)).err(), Some(Errno::EAGAIN));
        assert_eq!(table.wait_if(A, 1, Arc::new(Nobody), || Err(Errno::EFAULT)).err(), Some(Errno::EFAULT));
        assert_eq!(table.waiter_count(None), 0);
    }

    #[test]
    fn a_moved_waiter_is_woken_at_its_new_word_and_leaves_it_when_dropped() {
        let table = FutexTable::default();
        let waits: alloc::vec::Vec<_> =
            (0..4).map(|_| table.wait_if(A, MATCH_ANY, Arc::new(Nobody), || Ok(true)).unwrap()).collect();
        assert_eq!(table.requeue(A, B, 1, 2, || Ok(true)), Ok((1, 2)));
        assert_eq!((table.waiter_count(Some(1)), table.waiter_count(None)), (1, 3));
        assert_eq!(table.wake(B, 1, MATCH_ANY), 1);
        assert!(waits[1].is_woken() && !waits[2].is_woken());
        drop(waits);
        assert_eq!(table.waiter_count(None), 0);
    }
}
