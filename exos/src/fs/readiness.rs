//! Readiness of descriptions and the queues that tell about its change: the ground for sleeping, `poll` and
//! `epoll`.
//!
//! A waiter is told "something changed", never "you may read now": it looks again at the description's
//! readiness. That makes wake-ups idempotent, and a spurious one harmless. Waiters run without any lock
//! held (INV-F1).

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use bitflags::bitflags;

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
    }
}

impl Readiness {
    /// What regular files always are.
    pub const ALWAYS: Self = Self::READ.union(Self::WRITE);
}

/// Somebody who waits: a sleeping task, an epoll entry.
pub trait Waiter: Send + Sync {
    /// The readiness of what one waits for may have changed to contain `events`. Called without locks; must
    /// not block.
    fn wake(&self, events: Readiness);
}

#[derive(Default)]
struct Waiters {
    next_id: u64,
    list: Vec<(u64, Readiness, Weak<dyn Waiter>)>,
}

/// Those who wait for one object.
#[derive(Default)]
pub struct WaitQueue {
    waiters: Mutex<Waiters>,
}

impl WaitQueue {
    /// An empty queue.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds a waiter for the events of `interest`. It stays until the registration is dropped; the queue
    /// does not keep it alive.
    pub fn register(self: &Arc<Self>, waiter: &Arc<dyn Waiter>, interest: Readiness) -> Registration {
        let mut waiters = self.waiters.lock();
        let id = waiters.next_id;
        waiters.next_id += 1;
        waiters.list.push((id, interest, Arc::downgrade(waiter)));
        Registration { queue: self.clone(), id }
    }

    /// Wakes all whose interest meets `events`; errors and hang-ups meet every interest.
    pub fn notify(&self, events: Readiness) {
        let always = Readiness::ERROR | Readiness::HANG_UP;
        let waiters = self.waiters.lock();
        if waiters.list.is_empty() {
            return;
        }
        let concerned: Vec<Arc<dyn Waiter>> = waiters
            .list
            .iter()
            .filter(|(_, interest, _)| events.intersects(*interest | always))
            .filter_map(|(_, _, waiter)| waiter.upgrade())
            .collect();
        drop(waiters);
        for waiter in concerned {
            waiter.wake(events);
        }
    }

    /// Registered waiters.
    pub fn waiter_count(&self) -> usize {
        self.waiters.lock().list.len()
    }
}

/// A place in a [`WaitQueue`]; dropping it leaves the queue.
pub struct Registration {
    queue: Arc<WaitQueue>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.queue.waiters.lock().list.retain(|(id, _, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::{Readiness, WaitQueue, Waiter};
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Waiter for Count {
        fn wake(&self, _: Readiness) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_only_the_concerned_and_only_while_registered() {
        let queue = WaitQueue::new();
        let count = Arc::new(Count::default());
        let waiter: Arc<dyn Waiter> = count.clone();
        let registration = queue.register(&waiter, Readiness::READ);
        queue.notify(Readiness::WRITE);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        queue.notify(Readiness::READ);
        queue.notify(Readiness::HANG_UP);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        drop(registration);
        queue.notify(Readiness::READ);
        assert_eq!((count.0.load(Ordering::Relaxed), queue.waiter_count()), (2, 0));
    }
}
