//! What a task is at: words that change under the scheduler's lock and may be read without.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Made, not started.
    New,
    Ready,
    Running(usize),
    Blocked {
        deadline_ns: Option<u64>,
    },
    Ended,
}

/// What a task is at. Changes under the scheduler's lock only, so that a load and a store are enough; what it says may
/// be read without.
pub(super) struct State {
    /// See [`State::set`].
    status: AtomicU32,
    /// When a blocked task is woken; [`NEVER_NS`]: at no time.
    deadline_ns: AtomicU64,
    /// A wake came while it was not blocked.
    is_woken: AtomicBool,
}

/// No time that comes.
const NEVER_NS: u64 = u64::MAX;

const NEW: u32 = 0;
pub(super) const READY: u32 = 1;
const BLOCKED: u32 = 2;
pub(super) const ENDED: u32 = 3;
/// And more: the processor's number.
const RUNNING: u32 = 4;

impl State {
    pub(super) const fn new() -> Self {
        let (status, deadline_ns) = (AtomicU32::new(NEW), AtomicU64::new(NEVER_NS));
        Self { status, deadline_ns, is_woken: AtomicBool::new(false) }
    }

    pub(super) fn get(&self) -> Status {
        match self.status.load(Ordering::Acquire) {
            NEW => Status::New,
            READY => Status::Ready,
            BLOCKED => Status::Blocked { deadline_ns: self.deadline_ns() },
            ENDED => Status::Ended,
            running => Status::Running((running - RUNNING) as usize),
        }
    }

    #[inline(always)]
    pub(super) fn set(&self, status: u32) {
        self.status.store(status, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn set_running(&self, processor: usize) {
        self.set(RUNNING + processor as u32);
    }

    #[inline(always)]
    pub(super) fn is_blocked(&self) -> bool {
        self.status.load(Ordering::Acquire) == BLOCKED
    }

    #[inline(always)]
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        Some(self.deadline_ns.load(Ordering::Relaxed)).filter(|deadline_ns| *deadline_ns != NEVER_NS)
    }

    /// It waits until then, if that is a time that comes: which is the answer.
    #[inline(always)]
    pub(super) fn block(&self, deadline_ns: Option<u64>) -> Option<u64> {
        let deadline_ns = deadline_ns.unwrap_or(NEVER_NS);
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        self.set(BLOCKED);
        Some(deadline_ns).filter(|deadline_ns| *deadline_ns != NEVER_NS)
    }

    /// A wake came while it was not blocked.
    #[inline(always)]
    pub(super) fn note_wake(&self) {
        self.is_woken.store(true, Ordering::Relaxed);
    }

    /// Whether a wake came, which is taken.
    #[inline(always)]
    pub(super) fn take_wake(&self) -> bool {
        let is_woken = self.is_woken.load(Ordering::Relaxed);
        if is_woken {
            self.is_woken.store(false, Ordering::Relaxed);
        }
        is_woken
    }
}
