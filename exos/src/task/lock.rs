//! Locks whose word in memory names the holder: the queues behind `FUTEX_LOCK_PI`.
//!
//! The word is a thread's number, or 0. A thread that finds another's there waits here and lends its tickets to the
//! holder ([`LockShare`]); the holder hands the lock on by writing the next one's number, so no thread overtakes the
//! waiters. A holder that ends leaves the lock to the waiter that looks first. Between the moment in which its word
//! says so ([`OWNER_DIED`], no thread's number) and the one in which it is abandoned here, others only queue up.
//!
//! [`LockTable::acquire`] looks at the word and queues up in one step under the table's lock; the word is changed under
//! it, which may fault (the fault handler does not take that lock). A table has an entry for a word only while somebody
//! waits for it.
//!
//! Invariants: an entry has at least one waiter. Each waiter in an entry lends to its share, and is marked
//! [`Claim::Waits`].

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

use super::futex::FutexKey;
use super::schedule::{LockShare, Scheduler, Task};
use crate::error::{Errno, Result};
use crate::sync::{Mutex, SpinMutex};

/// The bits of a word that name the holder.
pub const OWNER: u32 = 0x3fff_ffff;
/// The bit that says that an unlocking thread has to ask here.
pub const WAITERS: u32 = 1 << 31;
/// The bit that says that a holder ended without unlocking.
pub const OWNER_DIED: u32 = 1 << 30;

/// Looks at a word whose holder is not found, each of which finds another holder.
const LOOK_COUNT_MAX: u32 = 8;

/// The word in memory that names a lock's holder.
pub trait LockWord {
    /// Changes it in one step; what it was before.
    ///
    /// # Errors
    /// `EFAULT`, and those of `change`, which leave it as it is.
    fn update(&self, change: &dyn Fn(u32) -> Result<u32>) -> Result<u32>;
}

/// A thread as locks know it.
#[derive(Clone)]
pub struct Holder {
    /// Its number, not 0.
    pub tid: u32,
    /// Task that is scheduled.
    pub task: Arc<Task>,
}

/// What a waiter has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The lock is held by another.
    Waits,
    /// It holds the lock.
    Holds,
    /// The thread with this number held it, and ended: it has to ask again.
    Orphaned(u32),
}

struct Waiter {
    it: Holder,
    claim: SpinMutex<Claim>,
}

struct Lock {
    holder: Holder,
    share: LockShare,
    waiters: Vec<Arc<Waiter>>,
}

/// The locks of a pod that somebody waits for.
pub struct LockTable {
    scheduler: Arc<Scheduler>,
    locks: Mutex<BTreeMap<FutexKey, Lock>>,
}

/// A place among the waiters. Dropping it gives the place up.
pub struct LockWait<'a> {
    table: &'a LockTable,
    key: FutexKey,
    waiter: Arc<Waiter>,
}

impl LockWait<'_> {
    /// What it has come to.
    #[must_use]
    pub fn claim(&self) -> Claim {
        *self.waiter.claim.lock()
    }
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        let mut locks = self.table.locks.lock();
        if self.claim() != Claim::Waits {
            return;
        }
        let Some(lock) = locks.get_mut(&self.key) else { return };
        lock.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        lock.share.reclaim(&self.table.scheduler, &self.waiter.it.task);
        self.table.close_if_empty(&mut locks, self.key);
    }
}

impl LockTable {
    /// A table for the tasks of `scheduler`.
    #[must_use]
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self { scheduler, locks: Mutex::new(BTreeMap::new()) }
    }

    fn close_if_empty(&self, locks: &mut BTreeMap<FutexKey, Lock>, key: FutexKey) {
        if locks.get(&key).is_some_and(|lock| lock.waiters.is_empty())
            && let Some(lock) = locks.remove(&key)
        {
            lock.share.close(&self.scheduler);
        }
    }

    /// Takes a lock that is free.
    ///
    /// # Errors
    /// `EAGAIN`: a thread holds it that `is_there` knows. `ESRCH`: no thread has the holder's number. `EDEADLK`: `tid`
    /// holds it. Those of `word`.
    pub fn try_acquire(
        &self,
        key: FutexKey,
        tid: u32,
        word: &dyn LockWord,
        is_there: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let locks = self.locks.lock();
        let is_wanted = locks.contains_key(&key);
        let holder = Cell::new(0);
        let taken = word.update(&|value| match value & OWNER {
            0 if is_wanted && value & OWNER_DIED != 0 => Err(Errno::EAGAIN),
            0 => Ok(tid | value & OWNER_DIED | if is_wanted { WAITERS } else { 0 }),
            owner if owner == tid => Err(Errno::EDEADLK),
            owner => {
                holder.set(owner);
                Err(Errno::EAGAIN)
            }
        });
        match taken {
            Err(Errno::EAGAIN) if holder.get() != 0 && !is_there(holder.get()) => Err(Errno::ESRCH),
            taken => taken.map(drop),
        }
    }

    /// Takes a lock, or a place among its waiters. `find` knows threads by number until they [`abandon`](Self::abandon)
    /// their locks; `orphan` is the number that [`Claim::Orphaned`] said.
    ///
    /// # Errors
    /// `EDEADLK`: `me` holds it, or the holder waits for `me`. `ESRCH`: there is no holder of that number. `EINVAL`:
    /// the word was changed behind the holder's back. `EAGAIN`: it names somebody else whenever it is looked at.
    /// `ENOMEM`, and those of `word`.
    pub fn acquire<'a>(
        &'a self,
        key: FutexKey,
        me: &Holder,
        orphan: Option<u32>,
        word: &dyn LockWord,
        find: impl Fn(u32) -> Option<Arc<Task>>,
    ) -> Result<Option<LockWait<'a>>> {
        let mut locks = self.locks.lock();
        let is_wanted = locks.contains_key(&key);
        let others = if is_wanted { WAITERS } else { 0 };
        // The holder has ended, and is about to abandon the waiters.
        let is_dying = |value: u32| is_wanted && value & (OWNER | OWNER_DIED) == OWNER_DIED;
        let ask = || {
            word.update(&|value| match value & OWNER {
                0 if is_dying(value) => Ok(value | WAITERS),
                0 => Ok(me.tid | value & OWNER_DIED | others),
                owner if Some(owner) == orphan => Ok(me.tid | OWNER_DIED | others),
                owner if owner == me.tid => Err(Errno::EDEADLK),
                _ => Ok(value | WAITERS),
            })
        };
        let (mut before, mut found, mut look_count) = (ask()?, None, 0);
        loop {
            let owner = before & OWNER;
            if Some(owner) == orphan || owner == 0 && !is_dying(before) {
                return Ok(None);
            }
            if is_wanted {
                break;
            }
            found = find(owner);
            if found.is_some() {
                break;
            }
            // A holder that was not found may have ended since its number was read, and its word says so now.
            let again = ask()?;
            if again & OWNER == owner {
                return Err(Errno::ESRCH);
            }
            // Nobody holds up all locks by a word that changes all the time.
            look_count += 1;
            if look_count == LOOK_COUNT_MAX {
                return Err(Errno::EAGAIN);
            }
            before = again;
        }
        let owner = before & OWNER;
        let lock = match locks.get_mut(&key) {
            Some(lock) if lock.holder.tid == owner || is_dying(before) => lock,
            Some(_) => return Err(Errno::EINVAL),
            None => {
                let task = found.ok_or(Errno::ESRCH)?;
                let share = LockShare::open(&self.scheduler, &task)?;
                let holder = Holder { tid: owner, task };
                locks.entry(key).or_insert(Lock { holder, share, waiters: Vec::new() })
            }
        };
        if let Err(error) = lock.share.lend(&self.scheduler, &me.task) {
            self.close_if_empty(&mut locks, key);
            return Err(error);
        }
        let waiter = Arc::new(Waiter { it: me.clone(), claim: SpinMutex::new(Claim::Waits) });
        lock.waiters.push(waiter.clone());
        Ok(Some(LockWait { table: self, key, waiter }))
    }

    /// Gives a lock up: to one of the waiters, if there is one.
    ///
    /// # Errors
    /// `EPERM`: the word does not name `tid`; and those of `word`.
    pub fn release(&self, key: FutexKey, tid: u32, word: &dyn LockWord) -> Result<()> {
        let mut locks = self.locks.lock();
        let own = |value: u32, to: u32| if value & OWNER == tid { Ok(to) } else { Err(Errno::EPERM) };
        let Some(lock) = locks.get_mut(&key) else { return word.update(&|value| own(value, 0)).map(drop) };
        // Nothing is handed on before it is known that the word can be written.
        word.update(&|value| own(value, value))?;
        let next = lock.share.pass(&self.scheduler);
        let is_it = |waiter: &Arc<Waiter>| next.as_ref().is_some_and(|next| Arc::ptr_eq(next, &waiter.it.task));
        let Some(index) = lock.waiters.iter().position(is_it) else {
            return word.update(&|value| own(value, 0)).map(drop);
        };
        let waiter = lock.waiters.remove(index);
        lock.holder = waiter.it.clone();
        let others = if lock.waiters.is_empty() { 0 } else { WAITERS };
        self.close_if_empty(&mut locks, key);
        *waiter.claim.lock() = Claim::Holds;
        let written = word.update(&|_| Ok(waiter.it.tid | others));
        drop(locks);
        waiter.it.task.wake_up();
        written.map(drop)
    }

    /// A thread ends, and is not found by its number any more: the waiters for what it holds ask again.
    pub fn abandon(&self, task: &Arc<Task>) {
        let mut locks = self.locks.lock();
        let keys: Vec<_> =
            locks.iter().filter(|(_, lock)| Arc::ptr_eq(&lock.holder.task, task)).map(|(key, _)| *key).collect();
        let mut orphaned = Vec::new();
        for lock in keys.iter().filter_map(|key| locks.remove(key)) {
            lock.share.close(&self.scheduler);
            lock.waiters.iter().for_each(|waiter| *waiter.claim.lock() = Claim::Orphaned(lock.holder.tid));
            orphaned.extend(lock.waiters);
        }
        drop(locks);
        orphaned.iter().for_each(|waiter| waiter.it.task.wake_up());
    }

    /// How many words somebody waits for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locks.lock().len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
