//! How virtual processors come about, and what they do when they run no thread.
//!
//! A processor that has nothing to do sleeps on its own bell, which is the kernel's cheapest sleep. Whatever else rings
//! for it, console, card, disks, shares and the timer, is bound to processor 0 and ends its sleep as it would interrupt
//! a program there; all of those are taken each time that one has rung ([`super::machine::MachinePlatform::absorb`]).

use aegis_abi::CapSlot;
use aegis_abi::layout::LIBOS_BASE;
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_SELF};
use aegis_abi::upcall::UpcallKind;
use aegis_rt::upcall::UpcallHandlers;
use aegis_rt::{call, control};
use core::sync::atomic::Ordering;

use super::heap::HEAP;
use super::pod::POD;
use super::processor::{ARMED_WITHIN_NS, COUNT_MAX, PROCESSORS, this_number, this_processor};
use super::run::RUN;
use super::stack::Stack;
use super::{
    PROCESSOR_BASE, WORD_PROCESSOR, WORD_PROCESSOR_PLACE, disk, entry, fast, fiber, kernel, lock_wait, memory,
    net_card, preemption,
};

/// Frames of a save area: it holds one frame at a time, before it is moved to a thread's stack.
const SAVE_AREA_FRAME_COUNT: u64 = 2;
/// From one processor's pages to the next: control page, guard, save area.
const STRIDE_BYTES: u64 = 64 << 10;

/// Makes the calling processor number `index`, with a bell, ready to take upcalls.
fn join(index: usize, slot: CapSlot) -> Result<(), ()> {
    control::set_masked(true);
    control::set_library_word::<WORD_PROCESSOR>(index as u64);
    control::set_library_word::<WORD_PROCESSOR_PLACE>(&raw const PROCESSORS[index] as u64);
    let bell = kernel::next_slot();
    call::bell_create(bell, slot).map_err(|_| ())?;
    PROCESSORS[index].bell.store(bell.0, Ordering::Release);
    // Others may have wanted it to ring before it was there; the processor looks for work now without that.
    ARMED_WITHIN_NS[index].store(u64::MAX, Ordering::Release);
    PROCESSORS[index].control_address.store(control::control_address(), Ordering::Release);
    Ok(())
}

/// Short calls that all processors have answered.
pub(crate) fn short_call_count() -> u64 {
    sum_of_words(fast::COUNT_OFFSET)
}

/// The other rewritten calls that all processors have taken.
pub(crate) fn long_call_count() -> u64 {
    sum_of_words(fast::LONG_COUNT_OFFSET)
}

/// What a word of the control pages comes to over all processors.
fn sum_of_words(offset: u64) -> u64 {
    let pages = PROCESSORS.iter().map(|processor| processor.control_address.load(Ordering::Acquire));
    let counts = pages.filter(|address| *address != 0).map(|address| {
        // SAFETY: control pages stay mapped; the word is another processor's to write and read here whole.
        unsafe { ((address + offset) as *const u64).read_volatile() }
    });
    counts.sum()
}

/// Prepares processor 0, which is the caller.
pub(crate) fn join_first() -> Result<(), ()> {
    join(0, SLOT_FIRST_PROCESSOR)
}

/// Makes processors 1 to `count - 1`. They find work when there is some. How many there are in all.
pub(crate) fn make_others(count: usize) -> usize {
    (1..count).take_while(|index| make(*index).is_ok()).count() + 1
}

fn make(index: usize) -> Result<(), ()> {
    let stack = Stack::new().map_err(|_| ())?;
    let stack_top = stack.top();
    PROCESSORS[index].idle_stack.call_once(|| stack);
    let control_address = PROCESSOR_BASE + index as u64 * STRIDE_BYTES;
    let save_area_base = control_address + 2 * 4096;
    let frame_count = 1 + SAVE_AREA_FRAME_COUNT;
    let grant = kernel::take_frames(frame_count, 0).map_err(|_| ())?;
    let entries = [
        BindEntry::map(control_address, grant.first.0, 1, grant.slot, BindFlags::WRITE),
        BindEntry::map(save_area_base, grant.first.0 + 1, SAVE_AREA_FRAME_COUNT as u32, grant.slot, BindFlags::WRITE),
    ];
    // SAFETY: this part of the window is used only here, and each processor's pages once.
    unsafe { kernel::bind_all(SLOT_SELF, &entries) }.map_err(|_| ())?;
    let slot = kernel::next_slot();
    kernel::with_tables(|| {
        call::processor_create(
            slot,
            SLOT_SELF,
            grant.slot,
            SAVE_AREA_FRAME_COUNT as u32,
            control_address,
            save_area_base,
        )
    })
    .map_err(|_| ())?;
    let argument = (index as u64) << 32 | u64::from(slot.0);
    let start = processor_entry as *const () as u64;
    // SAFETY: the entry is written for this; the stack is the new processor's own.
    unsafe { call::processor_start(slot, start, stack_top, argument) }.map(|_| ()).map_err(|_| ())
}

unsafe extern "C" {
    fn processor_entry();
}

core::arch::global_asm!(
    ".balign 16",
    ".global processor_entry",
    "processor_entry:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {main}",
    "ud2",
    main = sym processor_main,
);

extern "C" fn processor_main(argument: u64) -> ! {
    let (index, slot) = ((argument >> 32) as usize, CapSlot(argument as u32));
    if join(index, slot).is_err() {
        panic!("processor {index} has no bell");
    }
    idle()
}

/// Leaves the boot stack for the idle loop of processor 0.
pub(crate) fn idle_first() -> ! {
    let Ok(stack) = Stack::new() else { panic!("no stack for the first processor") };
    let top = stack.top();
    PROCESSORS[0].idle_stack.call_once(|| stack);
    // SAFETY: nothing on the old stack is used again; the new one is this processor's own.
    unsafe {
        core::arch::asm!("mov rsp, {top}", "xor ebp, ebp", "call {idle}", "ud2", top = in(reg) top,
            idle = sym idle_entry, options(noreturn));
    }
}

extern "C" fn idle_entry() -> ! {
    idle()
}

/// Runs what is ready, and sleeps when nothing is.
fn idle() -> ! {
    let kinds = [UpcallKind::SliceBegin, UpcallKind::Bell, UpcallKind::Revocation, UpcallKind::Repossession];
    let handlers = UpcallHandlers { syscall: entry::syscall, other: entry::other };
    aegis_rt::upcall::register(handlers, &kinds);
    lock_wait::begin();
    preemption::begin();
    let (pod, run) = POD.get().zip(RUN.get()).expect("processors start after the run has begun");
    fast::register(pod.system.options.trace);
    let number = this_number();
    // Bells may have rung before the upcalls were registered.
    let mut kinds = 1 << UpcallKind::Bell as u32;
    loop {
        kinds |= control::take_pending();
        this_processor().take_in(kinds);
        if core::mem::take(&mut kinds) & 1 << UpcallKind::Bell as u32 != 0 {
            this_processor().take_bell_if_rung();
        }
        if number == 0 {
            run.platform.absorb();
        }
        let now_ns = kernel::now_ns();
        match pod.system.scheduler.pick(number, now_ns) {
            Some(task) => fiber::run(task, now_ns),
            None => {
                memory::answer(&pod.system);
                if number == 0 {
                    if HEAP.give_surplus() {
                        continue;
                    }
                    memory::count_spare(&pod.system.pool, false);
                    if !net_card::may_sleep() {
                        net_card::look(&pod.system.files.inet, &run.platform.bells);
                        continue;
                    }
                    if !disk::may_sleep(&run.platform.bells) {
                        continue;
                    }
                }
                sleep();
            }
        }
    }
}

/// Sleeps until something rings for this processor.
fn sleep() {
    fiber::enter_home();
    // Whatever ended the sleep, the caller looks again; an early end only costs a look.
    if call::bell_await(this_processor().bell()).is_ok() {
        this_processor().note_rung();
    }
}

const _: () = assert!(PROCESSOR_BASE + COUNT_MAX as u64 * STRIDE_BYTES <= LIBOS_BASE + (16 << 20));
