//! What a lock is worth to its waiters: a lottery lock (`aegis_lottery::mutex`) among the tasks of a pod.
//!
//! A waiter lends what it is worth to the holder, so a holder of little weight does not hold up others for long; and
//! among the waiters the next holder is drawn, by what each is worth. While all tasks are equal the one that has waited
//! longest is next, since a draw would change nothing in the mean. Which lock is meant, its holder by the word in
//! memory, and how waiters sleep is [`crate::task::lock`]'s.
//!
//! Invariant: a task that ends holds no lock here and waits for none; its owner closes or reclaims them before.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_lottery::mutex::{MutexIn, Place};
use aegis_lottery::{COMPENSATION_ONE, CurrencyId, Error};

use super::lots::with_room;
use super::queue::Queues;
use super::{Scheduler, Task};
use crate::error::{Errno, Result};

/// Places for waiters that a lock's table grows by.
const GROWTH: usize = 8;

/// A lock that somebody holds and others wait for.
pub struct LockShare(MutexIn<Vec<Place>>);

fn errno(error: Error) -> Errno {
    match error {
        Error::Cycle | Error::WrongState => Errno::EDEADLK,
        _ => Errno::ENOMEM,
    }
}

impl Queues {
    fn client_of(&mut self, task: &Task) -> Result<CurrencyId> {
        let tag = self.lots.admit(task, &self.groups).map_err(errno)?;
        self.lots.unsettle(tag);
        self.lots.client(tag).ok_or(Errno::ENOMEM)
    }
}

impl LockShare {
    /// A lock that `holder` holds and nobody waits for.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn open(scheduler: &Scheduler, holder: &Task) -> Result<Self> {
        let queues = &mut scheduler.inner.lock().queues;
        let client = queues.client_of(holder)?;
        let (tables, _) = queues.lots.parts();
        let mut lock = with_room(tables, |tables| MutexIn::with_places(tables, Vec::new())).map_err(errno)?;
        lock.acquire(tables, client).map_err(errno)?;
        Ok(Self(lock))
    }

    /// `waiter` waits, and lends what it is worth to the holder.
    ///
    /// # Errors
    /// `EDEADLK`: the holder waits for the waiter, through any number of locks. `ENOMEM`.
    pub fn lend(&mut self, scheduler: &Scheduler, waiter: &Task) -> Result<()> {
        let queues = &mut scheduler.inner.lock().queues;
        let client = queues.client_of(waiter)?;
        let (tables, _) = queues.lots.parts();
        let outcome = match self.0.acquire(tables, client) {
            Err(Error::TableFull) => {
                self.0.grow(GROWTH);
                tables.grow(0, GROWTH);
                self.0.acquire(tables, client)
            }
            done => done,
        };
        outcome.map(drop).map_err(errno)
    }

    /// A waiter gives up.
    pub fn reclaim(&mut self, scheduler: &Scheduler, waiter: &Task) {
        let queues = &mut scheduler.inner.lock().queues;
        if let Ok(client) = queues.client_of(waiter) {
            let ended = self.0.cancel(queues.lots.parts().0, client);
            debug_assert!(ended.is_ok(), "INV-locks: whoever reclaims has lent");
        }
    }

    /// The holder gives it up: the holder from now on. `None`: no task waits.
    pub fn pass(&mut self, scheduler: &Scheduler) -> Option<Arc<Task>> {
        let queues = &mut scheduler.inner.lock().queues;
        let holder = self.0.holder()?;
        let is_drawn = queues.is_uneven();
        let (tables, random) = queues.lots.parts();
        let next = if is_drawn {
            // A running task takes no part in draws, and what is lent to it is worth nothing until it does.
            let _ = tables.set_client(holder, true, COMPENSATION_ONE);
            self.0.release(tables, holder, random)
        } else {
            self.0.release_in_turn(tables, holder)
        };
        let tag = tables.tag(holder);
        queues.lots.unsettle(tag);
        queues.lots.task_of(next.ok()??)
    }

    /// Ends it; waiters lend nothing any more.
    pub fn close(mut self, scheduler: &Scheduler) {
        let queues = &mut scheduler.inner.lock().queues;
        let (tables, _) = queues.lots.parts();
        while let Some(holder) = self.0.holder() {
            let passed = self.0.release_in_turn(tables, holder);
            debug_assert!(passed.is_ok(), "INV-locks: the holder holds it");
        }
        let ended = self.0.destroy(tables);
        debug_assert!(ended.is_ok(), "INV-locks: nobody holds it or waits");
    }
}
