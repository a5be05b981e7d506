//! What a process's threads do on the way, because something they wait for elsewhere has come about.
//!
//! A request of a ring that could not be done at once goes on when its file tells of a change. Whoever tells it may be
//! another process, which has not the memory to do it with: it only notes the request, and calls a thread of the
//! process ([`Process::note_work`]). That does the work ([`WorkList::run`]) when it waits, or before its program goes
//! on. Work does not wait where it can help it, and is not begun in the middle of work.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use exos::error::Result;
use exos::reserve;
use exos::sync::Mutex;

use crate::task::caller::Caller;
use crate::task::process::{Process, Thread};

/// Something with work to do.
pub trait Work: Send + Sync {
    /// Does what has become possible of the caller's process's.
    fn run(&self, caller: &Caller<'_>);

    /// Ends what is over by now (monotonic); when to ask again.
    fn expire(&self, now_ns: u64) -> Option<u64>;

    /// The process ends, or runs another program: nothing goes on that it began.
    fn end(&self, process: &Process);
}

/// What has work for the threads of one process.
#[derive(Default)]
pub struct WorkList {
    has_work: AtomicBool,
    /// One was added at some time: most processes never have any.
    is_used: AtomicBool,
    list: Mutex<Vec<Weak<dyn Work>>>,
}

impl WorkList {
    /// Adds one, unless it is there.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn add(&self, work: &Weak<dyn Work>) -> Result<()> {
        let mut list = self.list.lock();
        if list.iter().any(|other| other.ptr_eq(work)) {
            return Ok(());
        }
        list.retain(|other| other.strong_count() > 0);
        reserve::reserve(&mut list, 1)?;
        list.push(work.clone());
        self.is_used.store(true, Ordering::Release);
        Ok(())
    }

    /// One by one, as the last reference to one may be dropped here, which must not be under the lock.
    fn for_each(&self, mut act: impl FnMut(Arc<dyn Work>)) {
        let one = |index| self.list.lock().get(index).map(Weak::upgrade);
        (0..).map_while(one).flatten().for_each(&mut act);
    }

    /// Does what there is to do, unless the caller is at it.
    #[inline]
    pub fn run(&self, caller: &Caller<'_>) {
        if self.has_work.load(Ordering::Acquire) {
            self.run_all(caller);
        }
    }

    #[cold]
    fn run_all(&self, caller: &Caller<'_>) {
        if caller.thread.is_at_work.swap(true, Ordering::Relaxed) {
            return;
        }
        // What comes from now on is for the next time.
        if self.has_work.swap(false, Ordering::AcqRel) {
            self.for_each(|work| work.run(caller));
        }
        caller.thread.is_at_work.store(false, Ordering::Relaxed);
    }

    /// Whether one was added at some time.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Ends what is over; when to ask again.
    pub fn expire(&self, now_ns: u64) -> Option<u64> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let mut next_ns: Option<u64> = None;
        self.for_each(|work| next_ns = next_ns.into_iter().chain(work.expire(now_ns)).min());
        next_ns
    }

    /// The process ends, or runs another program.
    pub fn end(&self, process: &Process) {
        if self.is_used.load(Ordering::Acquire) {
            self.for_each(|work| work.end(process));
        }
    }
}

impl Process {
    /// There is work for one of the threads: `thread`, if it is one of them still.
    pub fn note_work(&self, thread: Option<&Arc<Thread>>) {
        self.work.has_work.store(true, Ordering::Release);
        let called = {
            let threads = self.threads.lock();
            let is_there = |thread: &&Arc<Thread>| threads.iter().any(|other| Arc::ptr_eq(other, thread));
            thread.filter(is_there).or_else(|| threads.first()).cloned()
        };
        if let Some(thread) = called {
            thread.summon();
        }
    }
}
