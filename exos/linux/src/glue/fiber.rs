//! Threads as the processor knows them: a stack of exos, saved registers, vector state; and the switch between them.
//!
//! A fiber runs on its own stack whenever it is in exos: upcalls are moved there by `aegis_rt::upcall`. The program's
//! registers lie at the top of that stack, so a switch in exos only changes stacks. Its program's vector state and FS
//! base stay in the processor while exos runs (exos is soft-float code), and are exchanged by the switch.
//!
//! Invariants: upcalls are masked while exos runs, so a switch is never interrupted on its processor. A fiber's stack
//! and registers belong to one processor at a time: `Task::is_on_processor` is cleared by the fiber that runs after the
//! switch, on another stack, and a processor that picks a fiber waits for that.

use aegis_abi::upcall::UpcallFrame;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aegis_rt::{call, control};
use exos::error::Result;
use exos::task::schedule::{Choice, Task};
use exos_linux::task::memory::Space;
use exos_linux::task::process::{Process, Thread};
use exos_linux::task::system::ThreadStart;
use exos_linux::task::vector_buffer::VectorBuffer;

use super::processor::{Processor, joined_processor, this_processor};
use super::stack::Stack;
use super::vector;
use super::{WORD_FIBER, call_words};

/// Words that the first switch to a fiber takes from its stack: six registers, the return address.
const SWITCH_WORD_COUNT: u64 = 7;

/// A thread's machine part, kept in its task.
pub(crate) struct Fiber {
    stack: Stack,
    /// The stack pointer while it is switched out.
    saved_rsp: UnsafeCell<u64>,
    vector: UnsafeCell<Box<VectorBuffer>>,
    fs_base: AtomicU64,
    /// The space that its program is in.
    space_slot: AtomicU32,
    /// `None` once it has ended.
    owner: UnsafeCell<Option<(Arc<Process>, Arc<Thread>)>>,
}

// SAFETY: the cells are touched only by the processor that the fiber is on (`Task::is_on_processor`), and before it
// starts by its maker.
unsafe impl Send for Fiber {}
// SAFETY: as above.
unsafe impl Sync for Fiber {}

impl Fiber {
    pub(crate) fn owner(&self) -> &(Arc<Process>, Arc<Thread>) {
        // SAFETY: only read while it runs; cleared after its end by the processor that it was on.
        let owner = unsafe { &*self.owner.get() };
        owner.as_ref().expect("a fiber that runs has an owner")
    }

    /// As that, where it is known.
    ///
    /// # Safety
    /// It has not ended.
    #[inline(always)]
    unsafe fn live_owner(&self) -> &(Arc<Process>, Arc<Thread>) {
        // SAFETY: as in `owner`, and by contract.
        match unsafe { &*self.owner.get() } {
            Some(owner) => owner,
            // SAFETY: by contract.
            None => unsafe { core::hint::unreachable_unchecked() },
        }
    }
}

unsafe extern "C" {
    /// Pushes what a call must preserve, stores RSP at `save`, loads it from `load` and pops.
    fn exos_switch(save: *mut u64, load: u64);
    /// Where a fiber begins: with RSP at the top of its stack less the program's frame.
    fn exos_fiber_entry();
}

core::arch::global_asm!(
    ".balign 16",
    ".global exos_switch",
    "exos_switch:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".balign 16",
    ".global exos_fiber_entry",
    "exos_fiber_entry:",
    "mov rbx, rsp",
    "mov rdi, rsp",
    "call exos_thread_begins", // entry.rs, which stands above all of this
    "mov rdi, rbx",
    "jmp upcall_resume",
);

/// The fiber that runs on this processor; `None` while it is idle.
pub(crate) fn current() -> Option<&'static Fiber> {
    let address = control::library_word::<WORD_FIBER>() as *const Fiber;
    // SAFETY: the word is null or points into the current task, which the scheduler and the fiber's own thread keep
    // alive until after it has been switched out for good.
    unsafe { address.as_ref() }
}

/// Whose the fiber is that runs on this processor.
///
/// # Safety
/// One runs, and has not ended.
#[inline(always)]
pub(crate) unsafe fn owner_of_program() -> &'static (Arc<Process>, Arc<Thread>) {
    // SAFETY: by contract, and as in `current`.
    unsafe { (*(control::library_word::<WORD_FIBER>() as *const Fiber)).live_owner() }
}

/// Gives `thread` a stack that resumes `frame`, and makes it ready.
pub(crate) fn start(
    process: &Arc<Process>,
    thread: &Arc<Thread>,
    frame: &UpcallFrame,
    start: ThreadStart,
    system: &exos_linux::task::system::System,
) -> Result<()> {
    let stack = Stack::new()?;
    let frame_address = (stack.top() - size_of::<UpcallFrame>() as u64) & !15;
    let first_rsp = frame_address - 8 * SWITCH_WORD_COUNT;
    // SAFETY: the stack is bound and nobody else's.
    unsafe {
        (frame_address as *mut UpcallFrame).write(*frame);
        let words = first_rsp as *mut u64;
        for index in 0..SWITCH_WORD_COUNT - 1 {
            words.add(index as usize).write(0);
        }
        words.add(SWITCH_WORD_COUNT as usize - 1).write(exos_fiber_entry as *const () as u64);
    }
    let mut vector: Box<VectorBuffer> = Box::default();
    vector::save(&mut vector);
    let fs_base = start.fs_base.unwrap_or_else(read_fs_base);
    let fiber = Fiber {
        stack,
        saved_rsp: UnsafeCell::new(first_rsp),
        vector: UnsafeCell::new(vector),
        fs_base: AtomicU64::new(fs_base),
        space_slot: AtomicU32::new(process.space().slot().0),
        owner: UnsafeCell::new(Some((process.clone(), thread.clone()))),
    };
    let kept = thread.task.machine.call_once(|| Box::new(fiber)).downcast_ref::<Fiber>();
    thread.task.place.store(kept.map_or(0, |fiber| core::ptr::from_ref(fiber) as usize), Ordering::Release);
    system.scheduler.start(&thread.task);
    Ok(())
}

#[inline]
fn fiber_of(task: &Task) -> &Fiber {
    let place = task.place.load(Ordering::Relaxed) as *const Fiber;
    // SAFETY: null, or the task's own fiber, which it keeps (`start`).
    unsafe { place.as_ref() }.expect("a task that was started has a fiber")
}

/// The frame of a fiber's program, which lies at the top of its stack while it is in exos: of this one, or of one that
/// is blocked. It is looked at without a lock, so the caller looks again whether it was blocked all the time.
pub(crate) fn program_registers(task: &Task) -> Option<UpcallFrame> {
    const WORD_COUNT: usize = size_of::<UpcallFrame>() / size_of::<u64>();
    let fiber = task.machine.get()?.downcast_ref::<Fiber>()?;
    let place = (fiber.stack.top() - size_of::<UpcallFrame>() as u64) as *const AtomicU64;
    let mut frame = UpcallFrame::ZERO;
    let words = core::ptr::from_mut(&mut frame).cast::<u64>();
    for index in 0..WORD_COUNT {
        // SAFETY: the stack is there as long as the fiber, and a frame is words of any value; each is read as a whole.
        unsafe { words.add(index).write((*place.add(index)).load(Ordering::Relaxed)) };
    }
    Some(frame)
}

/// Does what the scheduler chose for this processor. Comes back when this fiber is chosen again (at once for `Stay`).
/// It was made at `now_ns`.
#[inline]
pub(crate) fn carry_out(choice: Choice, now_ns: u64) {
    match choice {
        Choice::Stay => {}
        Choice::Switch(task) => switch_to(Some(task), now_ns),
        Choice::Idle => switch_to(None, now_ns),
    }
}

/// As that, in the place of the caller: nearly always it is not `Stay`.
#[inline(always)]
pub(crate) fn carry_out_here(choice: Choice, now_ns: u64) {
    match choice {
        Choice::Stay => {}
        Choice::Switch(task) => switch_here(Some(task), now_ns),
        Choice::Idle => switch_to(None, now_ns),
    }
}

/// From idle to a task; comes back when the processor is idle again.
pub(crate) fn run(task: Arc<Task>, now_ns: u64) {
    switch_to(Some(task), now_ns);
}

/// Ends the running fiber: its process and thread are let go of once its stack is not in use any more.
pub(crate) fn end(choice: Choice, now_ns: u64) -> ! {
    this_processor().note_end();
    carry_out(choice, now_ns);
    unreachable!("a task that has ended is never chosen")
}

#[inline(never)]
fn switch_to(next: Option<Arc<Task>>, now_ns: u64) {
    switch_here(next, now_ns);
}

#[inline(always)]
fn switch_here(next: Option<Arc<Task>>, now_ns: u64) {
    // SAFETY: a processor joins before it takes a fiber.
    let processor = unsafe { joined_processor() };
    let before = current();
    if let Some(fiber) = before {
        // SAFETY: the fiber is on this processor.
        unsafe { vector::save(&mut *fiber.vector.get()) };
        fiber.fs_base.store(read_fs_base(), Ordering::Relaxed);
        // SAFETY: its owner is taken from it on another stack, after it was switched from for good.
        unsafe { fiber.live_owner() }.1.time.note_dispatch(false, now_ns);
    }
    let load = match &next {
        Some(task) => take(processor, task, now_ns),
        None => {
            control::set_library_word::<WORD_FIBER>(0);
            processor.idle_rsp()
        }
    };
    let save = before.map_or_else(|| processor.idle_rsp_place(), |fiber| fiber.saved_rsp.get());
    processor.set_running(next);
    // SAFETY: `load` is a stack pointer that an earlier switch saved, or that `start` prepared, of a context that is
    // on no other processor; `save` is this context's own place.
    unsafe { exos_switch(save, load) };
    finish_switch();
}

/// Makes a task's state that of this processor; its stack pointer.
#[inline(always)]
fn take(processor: &Processor, task: &Arc<Task>, now_ns: u64) -> u64 {
    // Its last processor may be just about to leave it.
    while task.is_on_processor.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    let fiber = fiber_of(task);
    enter_slot(processor, fiber.space_slot.load(Ordering::Relaxed));
    // SAFETY: exos does not use FS; the address was checked when it was set.
    unsafe { write_fs_base(fiber.fs_base.load(Ordering::Relaxed)) };
    // SAFETY: the fiber is on this processor now.
    unsafe { vector::load(&*fiber.vector.get()) };
    aegis_rt::upcall::set_stack_top(fiber.stack.top());
    control::set_library_word::<WORD_FIBER>(core::ptr::from_ref(fiber) as u64);
    // SAFETY: a fiber that has ended is not chosen.
    let (process, thread) = unsafe { fiber.live_owner() };
    call_words::set_thread(process, thread);
    thread.time.note_dispatch(true, now_ns);
    // SAFETY: as above.
    unsafe { *fiber.saved_rsp.get() }
}

/// On the new stack: lets go of what ran before.
pub(super) fn finish_switch() {
    // SAFETY: as in `switch_here`, which came here.
    let processor = unsafe { joined_processor() };
    let Some(task) = processor.take_left() else { return };
    if processor.has_end() {
        return finish_end(processor, task);
    }
    task.is_on_processor.store(false, Ordering::Release);
}

/// As that, where what ran before has ended.
#[cold]
fn finish_end(processor: &Processor, task: Arc<Task>) {
    processor.take_end();
    // SAFETY: the fiber has ended and is on this processor until the store below.
    let owner = unsafe { (*fiber_of(&task).owner.get()).take() };
    task.is_on_processor.store(false, Ordering::Release);
    // The thread holds the task; so the order matters only in that nothing is dropped on a stack in use.
    drop(owner);
    drop(task);
}

/// The running program's memory is `space` from now on.
pub(crate) fn enter_space(space: &Space) {
    if let Some(fiber) = current() {
        fiber.space_slot.store(space.slot().0, Ordering::Relaxed);
        // The thread may have another number in it.
        call_words::renumber(&fiber.owner().1);
    }
    enter_slot(this_processor(), space.slot().0);
}

#[inline]
fn enter_slot(processor: &Processor, slot: u32) {
    if processor.space_slot() != slot {
        // A space outlives the fibers in it, so this does not fail; if it did, the program would fault at once.
        // SAFETY: exos's code, stacks and data are all in the window, which every space has.
        let _ = unsafe { call::space_enter_here(aegis_abi::CapSlot(slot)) };
        processor.set_space_slot(slot);
    }
}

/// An idle processor is in no process's memory, so that any can end.
pub(crate) fn enter_home() {
    enter_slot(this_processor(), aegis_abi::types::SLOT_SELF.0);
}

/// The FS base.
pub(crate) fn read_fs_base() -> u64 {
    let base: u64;
    // SAFETY: the kernel enables FSGSBASE; reading changes nothing.
    unsafe { core::arch::asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Sets the FS base.
///
/// # Safety
/// `base` is canonical.
pub(crate) unsafe fn write_fs_base(base: u64) {
    // SAFETY: exos itself does not use FS.
    unsafe { core::arch::asm!("wrfsbase {}", in(reg) base, options(nomem, nostack, preserves_flags)) };
}
