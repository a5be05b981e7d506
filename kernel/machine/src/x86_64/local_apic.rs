//! The local APIC: identity of this processor and of those that have started, acknowledgement, interrupts to other
//! processors, the one-shot timer.
//!
//! Memory-mapped (xAPIC), or by registers if firmware left it in x2APIC mode (Intel SDM vol. 3, 11.4 and 11.12).
//! Under QEMU and KVM the timer's clock is 1 GHz, so a count is a nanosecond; see [`super::time`].
#![allow(unsafe_code, reason = "device registers")]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::instructions::{mmio_read, mmio_write, read_msr, write_msr};
use super::interrupt::{VECTOR_SPURIOUS, VECTOR_TIMER};
use super::memory::direct_address;
use crate::PROCESSOR_COUNT_MAX;

const APIC_BASE: u32 = 0x1b;
const BASE_X2APIC: u64 = 1 << 10;
const BASE_ENABLE: u64 = 1 << 11;
const BASE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const X2APIC_FIRST: u32 = 0x800;

const REGISTER_ID: u32 = 0x20;
const REGISTER_TASK_PRIORITY: u32 = 0x80;
const REGISTER_END_OF_INTERRUPT: u32 = 0xb0;
const REGISTER_SPURIOUS: u32 = 0xf0;
const REGISTER_COMMAND_LOW: u32 = 0x300;
const REGISTER_COMMAND_HIGH: u32 = 0x310;
const REGISTER_TIMER: u32 = 0x320;
const REGISTER_LINT0: u32 = 0x350;
const REGISTER_LINT1: u32 = 0x360;
const REGISTER_ERROR: u32 = 0x370;
const REGISTER_TIMER_COUNT: u32 = 0x380;
const REGISTER_TIMER_CURRENT: u32 = 0x390;
const REGISTER_TIMER_DIVIDE: u32 = 0x3e0;

const SOFTWARE_ENABLE: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const DIVIDE_BY_1: u32 = 0xb;
const DELIVERY_NMI: u32 = 4 << 8;
const DELIVERY_INIT: u32 = 5 << 8;
const DELIVERY_START: u32 = 6 << 8;
const LEVEL_ASSERT: u32 = 1 << 14;
const COMMAND_PENDING: u32 = 1 << 12;

static X2APIC: AtomicBool = AtomicBool::new(false);
static REGISTERS: AtomicU64 = AtomicU64::new(0);
/// Bit n: processor n takes interrupts between processors.
static STARTED_MASK: AtomicU32 = AtomicU32::new(1);
static APIC_IDS: [AtomicU32; PROCESSOR_COUNT_MAX] = [const { AtomicU32::new(0) }; PROCESSOR_COUNT_MAX];

/// Turns this processor's local APIC on, with a timer that does not count; also after [`start_free_running`].
pub(crate) fn initialize() {
    let base = read_msr(APIC_BASE);
    let x2apic = base & BASE_X2APIC != 0;
    if !x2apic {
        assert!(base & BASE_ADDRESS < 4 << 30, "the local APIC is above 4 GiB");
        REGISTERS.store(direct_address(base & BASE_ADDRESS), Ordering::Relaxed);
        // SAFETY: only the enable bit changes.
        unsafe { write_msr(APIC_BASE, base | BASE_ENABLE) };
    }
    X2APIC.store(x2apic, Ordering::Relaxed);
    write(REGISTER_TASK_PRIORITY, 0);
    write(REGISTER_LINT0, MASKED);
    write(REGISTER_LINT1, MASKED);
    write(REGISTER_ERROR, MASKED);
    write(REGISTER_TIMER, u32::from(VECTOR_TIMER));
    write(REGISTER_TIMER_DIVIDE, DIVIDE_BY_1);
    write(REGISTER_SPURIOUS, SOFTWARE_ENABLE | u32::from(VECTOR_SPURIOUS));
}

/// This processor's identifier.
pub(crate) fn identifier() -> u32 {
    let value = read(REGISTER_ID);
    if X2APIC.load(Ordering::Relaxed) { value } else { value >> 24 }
}

/// This processor, which is number `index`, takes interrupts between processors from now on.
pub(crate) fn note_started(index: usize) {
    APIC_IDS[index].store(identifier(), Ordering::Relaxed);
    STARTED_MASK.fetch_or(1 << index, Ordering::SeqCst);
}

/// Processors that have started, as bits.
pub(crate) fn started_mask() -> u32 {
    STARTED_MASK.load(Ordering::SeqCst)
}

/// The identifier of a started processor.
pub(crate) fn apic_id(index: usize) -> u32 {
    APIC_IDS[index].load(Ordering::Relaxed)
}

/// Says that the interrupt in service is over.
pub(crate) fn end_of_interrupt() {
    write(REGISTER_END_OF_INTERRUPT, 0);
}

/// Sends a vector to one processor.
pub(crate) fn send(apic_id: u32, vector: u8) {
    command(apic_id, u32::from(vector) | LEVEL_ASSERT);
}

/// Sends a non-maskable interrupt to one processor.
pub(crate) fn send_nmi(apic_id: u32) {
    command(apic_id, DELIVERY_NMI | LEVEL_ASSERT);
}

/// Resets a processor so that it waits for [`send_start`].
pub(crate) fn send_init(apic_id: u32) {
    command(apic_id, DELIVERY_INIT | LEVEL_ASSERT);
}

/// Starts a waiting processor in real mode at `page` << 12.
pub(crate) fn send_start(apic_id: u32, page: u8) {
    command(apic_id, DELIVERY_START | LEVEL_ASSERT | u32::from(page));
}

/// Counts down from `count` and interrupts with [`VECTOR_TIMER`] at 0.
pub(crate) fn start_timer(count: u32) {
    write(REGISTER_TIMER_COUNT, count);
}

/// Counts down from the largest value without interrupting.
pub(crate) fn start_free_running() {
    write(REGISTER_TIMER, MASKED | u32::from(VECTOR_TIMER));
    write(REGISTER_TIMER_COUNT, u32::MAX);
}

/// Stops the timer.
pub(crate) fn stop_timer() {
    write(REGISTER_TIMER_COUNT, 0);
}

/// What is left of the count.
pub(crate) fn timer_current() -> u32 {
    read(REGISTER_TIMER_CURRENT)
}

fn command(apic_id: u32, low: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        let value = u64::from(apic_id) << 32 | u64::from(low);
        // Writing this register waits for no store before it (Intel's manual, "MSR Access in x2APIC Mode"), and the
        // interrupted processor must see what it is told: a shootdown that is not seen is waited for for ever. SAFETY:
        // interrupts, resets and starts of processors go to entry points of this kernel.
        unsafe {
            core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags));
            write_msr(X2APIC_FIRST + (REGISTER_COMMAND_LOW >> 4), value);
        }
        return;
    }
    while read(REGISTER_COMMAND_LOW) & COMMAND_PENDING != 0 {
        core::hint::spin_loop();
    }
    write(REGISTER_COMMAND_HIGH, apic_id << 24);
    write(REGISTER_COMMAND_LOW, low);
}

fn read(register: u32) -> u32 {
    if X2APIC.load(Ordering::Relaxed) {
        return read_msr(X2APIC_FIRST + (register >> 4)) as u32;
    }
    // SAFETY: the registers are mapped uncached; reading them has no side effect.
    unsafe { mmio_read(REGISTERS.load(Ordering::Relaxed) + u64::from(register)) }
}

fn write(register: u32, value: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        // SAFETY: as below.
        unsafe { write_msr(X2APIC_FIRST + (register >> 4), u64::from(value)) };
        return;
    }
    // SAFETY: the registers are mapped uncached; a local APIC reaches no memory, its vectors are all handled.
    unsafe { mmio_write(REGISTERS.load(Ordering::Relaxed) + u64::from(register), value) };
}
