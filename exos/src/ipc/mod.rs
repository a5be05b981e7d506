//! Objects that processes find by a key or a name and that outlive them: System V shared memory, semaphores and message
//! queues, and POSIX message queues.
//!
//! Pure tables. Each family has one lock, under which no waiter is called and no program memory is touched: a sender
//! has copied its bytes before, and a receiver copies them afterwards. A thread that has to wait leaves a
//! [`sleeper::Sleeper`] in the object; the thread that makes its request come true does it for the sleeper, under the
//! same lock, in the order in which sleepers came, and wakes it when the lock is free again. So no request is half done
//! when its thread is killed: it is either settled or taken out.
//!
//! - [`id_table`] gives numbers as Linux gives them; [`permission`] checks access;
//! - [`shared_memory`], [`semaphore`], [`message_queue`] are System V's; [`posix_queue`] has names and priorities.
//!
//! What objects cost is taken from one [`account::Account`]; an empty one is `ENOMEM`. The limits of Linux come on top.
//! Errors and their order are Linux 6.1's.

pub mod account;
pub mod id_table;
pub mod message_queue;
#[cfg(test)]
mod message_queue_tests;
pub mod permission;
pub mod posix_queue;
#[cfg(test)]
mod posix_queue_tests;
pub mod semaphore;
#[cfg(test)]
mod semaphore_tests;
pub mod shared_memory;
#[cfg(test)]
mod shared_memory_tests;
pub mod sleeper;

use alloc::sync::Arc;

use crate::mem::FramePool;

/// The part of a pod's memory that these objects may cost beside the pages of shared memory: one in so many.
const ACCOUNT_PART: u64 = 8;

/// All objects of a pod.
pub struct Ipc {
    /// Shared memory.
    pub segments: shared_memory::Segments,
    /// Semaphores.
    pub semaphores: semaphore::Semaphores,
    /// Message queues of System V.
    pub messages: message_queue::MessageQueues,
    /// Message queues of POSIX.
    pub queues: posix_queue::PosixQueues,
}

impl Ipc {
    /// None yet; shared memory comes from `pool`, whose size bounds what the rest may cost.
    #[must_use]
    pub fn new(pool: &Arc<FramePool>) -> Self {
        let account = account::Account::new(pool.limit_at_most() * 4096 / ACCOUNT_PART);
        Self {
            segments: shared_memory::Segments::new(pool.clone()),
            semaphores: semaphore::Semaphores::new(account.clone()),
            messages: message_queue::MessageQueues::new(account.clone()),
            queues: posix_queue::PosixQueues::new(account),
        }
    }
}
