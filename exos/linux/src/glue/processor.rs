//! The pod's virtual processors: what each runs, how it idles, how it is told.
//!
//! Processor 0 is the one that the kernel started; it looks after the console and the clock. Each has a bell of its
//! own, for being told that there is work and for the end of a slice. An idle processor sleeps in the kernel on its
//! bells; a ring between its look and its sleep ends the sleep at once.

use aegis_abi::CapSlot;
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::SLOT_SELF;
use aegis_abi::upcall::UpcallKind;
use aegis_rt::{call, control};
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use exos::sync::Once;
use exos::task::earliest;
use exos::task::schedule::{Processors, Task};
use exos_linux::task::used_time::SAMPLE_NS;

use super::pod::POD;
use super::stack::Stack;
use super::{WORD_PROCESSOR, WORD_PROCESSOR_PLACE, fiber, kernel, shortage};

/// Most virtual processors that exos makes.
pub(crate) const COUNT_MAX: usize = 16;

/// One virtual processor.
pub(crate) struct Processor {
    /// The stack pointer of its idle loop while a fiber runs.
    idle_rsp: UnsafeCell<u64>,
    /// The task that it runs, and the one that it is just leaving.
    running: UnsafeCell<Option<Arc<Task>>>,
    left: UnsafeCell<Option<Arc<Task>>>,
    has_ended: AtomicBool,
    space_slot: AtomicU32,
    pub(super) bell: AtomicU32,
    /// Somebody has rung its bell since it was taken.
    is_rung: AtomicBool,
    /// When its bell was asked to ring; all ones: never.
    ring_ns: AtomicU64,
    /// What runs here now must not be left for another thread.
    keeps_running: AtomicBool,
    /// Looks at locks that were taken.
    lock_look_count: AtomicU32,
    /// When it last gave the rest of its slice to other environments.
    yielded_ns: AtomicU64,
    /// Its control page, 0 until it has joined.
    pub(super) control_address: AtomicU64,
    /// Time that others had it for, as far as its tasks were forgiven that.
    forgiven_ns: AtomicU64,
    /// When it looked last whether its thread was in exos.
    sampled_ns: AtomicU64,
    pub(super) idle_stack: Once<Stack>,
}

// SAFETY: the cells are touched by their own processor only.
unsafe impl Sync for Processor {}

impl Processor {
    /// Whether a program that yields, though nobody here is ready, should be passed on to the kernel now. One that
    /// yields in a loop lets other environments run as soon as that, and enters the kernel no more often.
    pub(crate) fn is_yield_due(&self, now_ns: u64) -> bool {
        const INTERVAL_NS: u64 = 50_000;
        let is_due = now_ns.wrapping_sub(self.yielded_ns.load(Ordering::Relaxed)) >= INTERVAL_NS;
        if is_due {
            self.yielded_ns.store(now_ns, Ordering::Relaxed);
        }
        is_due
    }

    /// Takes in what the processor was told, its caller: bit n for an upcall of kind n.
    pub(crate) fn take_in(&self, kinds: u32) {
        shortage::note(kinds);
        if kinds & 1 << UpcallKind::Bell as u32 != 0 {
            HAVE_BELLS_RUNG.store(true, Ordering::Relaxed);
        }
        if kinds & 1 << UpcallKind::SliceBegin as u32 != 0 {
            self.forgive();
        }
    }

    /// Other environments had it: that is no time of the task that was interrupted.
    #[cold]
    fn forgive(&self) {
        let preempted_ns = control::preempted_ns();
        let lost_ns = preempted_ns.wrapping_sub(self.forgiven_ns.load(Ordering::Relaxed));
        let Some(pod) = POD.get().filter(|_| lost_ns != 0) else { return };
        self.forgiven_ns.store(preempted_ns, Ordering::Relaxed);
        let now_ns = kernel::now_ns();
        pod.system.scheduler.forgive(this_number(), lost_ns, now_ns);
        if let Some(fiber) = fiber::current() {
            fiber.owner().1.time.forgive(lost_ns, now_ns);
        }
    }

    const fn new() -> Self {
        Self {
            idle_rsp: UnsafeCell::new(0),
            running: UnsafeCell::new(None),
            left: UnsafeCell::new(None),
            has_ended: AtomicBool::new(false),
            space_slot: AtomicU32::new(SLOT_SELF.0),
            bell: AtomicU32::new(0),
            is_rung: AtomicBool::new(true),
            ring_ns: AtomicU64::new(u64::MAX),
            keeps_running: AtomicBool::new(false),
            lock_look_count: AtomicU32::new(0),
            yielded_ns: AtomicU64::new(0),
            control_address: AtomicU64::new(0),
            forgiven_ns: AtomicU64::new(0),
            sampled_ns: AtomicU64::new(0),
            idle_stack: Once::new(),
        }
    }

    pub(crate) fn idle_rsp(&self) -> u64 {
        // SAFETY: its own processor's.
        unsafe { *self.idle_rsp.get() }
    }

    pub(crate) fn idle_rsp_place(&self) -> *mut u64 {
        self.idle_rsp.get()
    }

    /// Notes what runs from now on; what ran is left when the switch is over.
    pub(crate) fn set_running(&self, task: Option<Arc<Task>>) {
        // SAFETY: its own processor's; nobody borrows the cells across calls.
        unsafe {
            let before = core::mem::replace(&mut *self.running.get(), task);
            if before.is_none() {
                self.arm_slice(SAMPLE_NS);
            }
            *self.left.get() = before;
        }
    }

    pub(crate) fn take_left(&self) -> Option<Arc<Task>> {
        // SAFETY: as above.
        unsafe { (*self.left.get()).take() }
    }

    pub(crate) fn note_end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Whether what is just left has ended.
    pub(crate) fn has_end(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn take_end(&self) {
        self.has_ended.store(false, Ordering::Relaxed);
    }

    pub(crate) fn space_slot(&self) -> u32 {
        self.space_slot.load(Ordering::Relaxed)
    }

    pub(crate) fn set_space_slot(&self, slot: u32) {
        self.space_slot.store(slot, Ordering::Relaxed);
    }

    /// While `work` runs, nothing else may run on this processor: it interrupted exos in the middle.
    pub(crate) fn keep_running(&self, work: impl FnOnce()) {
        self.keeps_running.store(true, Ordering::Relaxed);
        work();
        self.keeps_running.store(false, Ordering::Relaxed);
    }

    pub(crate) fn keeps_running(&self) -> bool {
        self.keeps_running.load(Ordering::Relaxed)
    }

    /// Notes another look at a lock that is taken; how many there were.
    pub(crate) fn count_lock_look(&self) -> u32 {
        let count = self.lock_look_count.load(Ordering::Relaxed);
        self.lock_look_count.store(count.wrapping_add(1), Ordering::Relaxed);
        count
    }

    pub(super) fn bell(&self) -> CapSlot {
        CapSlot(self.bell.load(Ordering::Acquire))
    }

    /// Takes its bell: true if it rang.
    pub(crate) fn take_bell(&self) -> bool {
        self.is_rung.store(false, Ordering::SeqCst);
        let has_rung = call::bell_take(self.bell()).unwrap_or(0) > 0;
        if has_rung {
            self.note_rung();
        }
        has_rung
    }

    /// Its bell has rung and was taken.
    pub(crate) fn note_rung(&self) {
        self.ring_ns.store(u64::MAX, Ordering::Release);
        ARMED_WITHIN_NS[self.index()].store(u64::MAX, Ordering::Release);
    }

    /// Takes its bell, without a kernel call where nobody has rung it and its time is far. Called before a sleep on the
    /// bell, which ends at once if it has rung all the same.
    pub(crate) fn take_bell_if_rung(&self) {
        if self.is_rung.load(Ordering::Acquire) || is_near(self.ring_ns.load(Ordering::Acquire), kernel::now_ns()) {
            self.take_bell();
        }
    }

    /// The same while a program's thread runs here, in exos or not: it is told where it spends its time.
    pub(crate) fn take_bell_of_runner(&self, is_in_system: bool) {
        if !self.take_bell() {
            return;
        }
        let Some(fiber) = fiber::current() else { return };
        let now_ns = kernel::now_ns();
        // Bells that ring for other reasons come when something happens, and would see nothing else.
        if now_ns.wrapping_sub(self.sampled_ns.load(Ordering::Relaxed)) >= SAMPLE_NS {
            self.sampled_ns.store(now_ns, Ordering::Relaxed);
            fiber.owner().1.time.sample(is_in_system, now_ns);
        }
        self.arm_slice(SAMPLE_NS);
    }

    /// Has an upcall come as soon as none is masked.
    pub(crate) fn ring(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
        let _ = call::bell_ring(self.bell());
    }

    /// Has the bell ring within a time, unless it will already.
    fn arm_slice(&self, within_ns: u64) {
        earliest::arm(&ARMED_WITHIN_NS[self.index()], within_ns, |within_ns| {
            let deadline_ns = kernel::now_ns() + within_ns;
            self.ring_ns.store(deadline_ns, Ordering::Release);
            let _ = call::bell_ring_at(self.bell(), deadline_ns);
        });
    }

    fn index(&self) -> usize {
        let offset = core::ptr::from_ref(self) as usize - PROCESSORS.as_ptr() as usize;
        offset / size_of::<Self>() % COUNT_MAX
    }
}

/// Whether a clock may have rung that was asked to at a time: the kernel's and exos's need not agree to the digit.
fn is_near(ring_ns: u64, now_ns: u64) -> bool {
    const DOUBT_NS: u64 = 1_000_000;
    ring_ns <= now_ns.saturating_add(DOUBT_NS)
}

/// For each processor the time within which its bell was asked to ring; all ones if it was not, or has rung since.
pub(super) static ARMED_WITHIN_NS: [AtomicU64; COUNT_MAX] = [const { AtomicU64::new(u64::MAX) }; COUNT_MAX];

pub(super) static PROCESSORS: [Processor; COUNT_MAX] = [const { Processor::new() }; COUNT_MAX];

/// A processor was told that bells have rung. All bells of devices and clocks are the first processor's.
static HAVE_BELLS_RUNG: AtomicBool = AtomicBool::new(true);

/// Whether bells may have rung since the last time this was asked. Without, none needs to be looked at: a kernel call
/// each.
pub(crate) fn take_bells_rung() -> bool {
    HAVE_BELLS_RUNG.swap(false, Ordering::Relaxed)
}

/// The number of the processor that runs this.
pub(crate) fn this_number() -> usize {
    control::library_word::<WORD_PROCESSOR>() as usize
}

/// The processor that runs this.
#[inline(always)]
pub(crate) fn this_processor() -> &'static Processor {
    let place = control::library_word::<WORD_PROCESSOR_PLACE>() as *const Processor;
    // SAFETY: null before the processor has joined (`join`), from then on its own part of the static.
    unsafe { place.as_ref() }.unwrap_or(&PROCESSORS[0])
}

/// As [`this_processor`], of one that has joined.
///
/// # Safety
/// It has: nothing switches before.
#[inline(always)]
pub(crate) unsafe fn joined_processor() -> &'static Processor {
    // SAFETY: by contract, and as above.
    unsafe { &*(control::library_word::<WORD_PROCESSOR_PLACE>() as *const Processor) }
}

/// Has processor 0 look after the console soon.
pub(crate) fn ring_first() {
    PROCESSORS[0].ring();
}

/// The scheduler's way to the processors.
pub(crate) struct Bells {
    /// Rung at the earliest end of a wait; bound to processor 0.
    pub(crate) timer_bell: CapSlot,
    /// When it will ring.
    pub(crate) armed_ns: AtomicU64,
}

impl Bells {
    /// Takes the timer's bell: whether it has rung. Where its time is far it is not asked.
    pub(crate) fn take_timer(&self) -> bool {
        is_near(self.armed_ns.load(Ordering::Acquire), kernel::now_ns())
            && call::bell_take(self.timer_bell).unwrap_or(0) > 0
    }

    /// Rings the timer's bell at `deadline_ns` unless it rings before.
    pub(crate) fn arm_timer(&self, deadline_ns: u64) {
        earliest::arm(&self.armed_ns, deadline_ns, |deadline_ns| {
            let _ = call::bell_ring_at(self.timer_bell, deadline_ns);
        });
    }
}

impl Processors for Bells {
    fn kick(&self, index: usize) {
        if index != this_number() {
            PROCESSORS[index].ring();
        }
    }

    fn arm(&self, deadline_ns: u64) {
        self.arm_timer(deadline_ns);
    }

    fn arm_slice(&self, index: usize, within_ns: u64) {
        PROCESSORS[index].arm_slice(within_ns);
    }

    fn armed_within_ns(&self) -> &'static [AtomicU64] {
        &ARMED_WITHIN_NS
    }
}

/// A term that holds from `until_ns` on, the second of a predicate.
pub(crate) fn clock_term(until_ns: u64) -> Term {
    let (source, operator) = (TermSource::Clock as u32, TermOperator::AtLeast as u32);
    Term { product: 1, source, operator, slot: 0, address: 0, value: until_ns }
}

/// A term that waits for a bell.
pub(crate) fn bell_term(product: u32, bell: CapSlot) -> Term {
    let (source, operator) = (TermSource::Bell as u32, TermOperator::AtLeast as u32);
    Term { product, source, operator, slot: bell.0, address: 0, value: 1 }
}
