//! Locks of exos: the single import point, so that what happens where a lock is taken is decided in one place.
//!
//! [`Mutex`] and [`RwLock`] may be held by a thread that waits for the world outside (an answer of the host's file
//! server, while it changes a name or holds an address space). A thread that meets such a lock taken must not keep the
//! processor from its holder: between looks it does what [`set_lock_wait`] named, which in the machine lets others run.
//! No thread waits in the sense of the scheduler for a lock, so no wake is lost by it.
//!
//! [`SpinMutex`] is for what that itself is made of: the scheduler, the heap, processors, devices. It is held for
//! moments, never over a wait, and never while a lock of the other kind is taken.
//!
//! Neighbours: everything that a pod shares; `exos/linux/src/glue/lock_wait.rs`.

pub use spin::Once;
use spin::relax::RelaxStrategy;

/// A lock whose holder may wait.
pub type Mutex<T> = spin::mutex::Mutex<T, LockWait>;
/// A [`Mutex`] that is held.
pub type MutexGuard<'a, T> = spin::mutex::MutexGuard<'a, T, LockWait>;
/// A lock for many readers, whose holders may wait.
pub type RwLock<T> = spin::rwlock::RwLock<T, LockWait>;
/// A lock whose holder does not wait.
pub type SpinMutex<T> = spin::mutex::Mutex<T, spin::relax::Spin>;
/// A [`SpinMutex`] that is held.
pub type SpinMutexGuard<'a, T> = spin::mutex::MutexGuard<'a, T, spin::relax::Spin>;

/// What is done between two looks at a lock that is taken.
pub struct LockWait;

static LOCK_WAIT: Once<fn()> = Once::new();

/// Names what is done while a lock is taken; the first call counts. Without one the processor spins.
pub fn set_lock_wait(relax: fn()) {
    LOCK_WAIT.call_once(|| relax);
}

/// What is done between two looks at a lock that is taken, for one that is a word under another lock.
pub fn relax() {
    LockWait::relax();
}

impl RelaxStrategy for LockWait {
    #[cold]
    fn relax() {
        match LOCK_WAIT.get() {
            Some(relax) => relax(),
            None => core::hint::spin_loop(),
        }
    }
}
