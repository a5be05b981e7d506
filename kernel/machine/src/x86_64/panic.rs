//! The kernel's end by its own fault: registers and the addresses of a backtrace on the console, then the machine goes
//! down. The host tool, which has the image with its symbols, puts names to them.
//!
//! Nothing here takes a lock or allocates. The first processor to get here stops the others by NMI; a panic inside a
//! panic ends the machine at once. The backtrace follows frame pointers (the build forces them) inside this
//! processor's own stacks only.
#![allow(unsafe_code, reason = "reads stacks and registers")]

use core::arch::asm;

use super::power::{self, ExitCode, power_off};
use super::processor::{INTERRUPT_STACK_BYTES, KERNEL_STACK_END, STACKS};
use super::{instructions, interrupt, processor, serial};
use crate::{IMAGE_BASE, PROCESSOR_COUNT_MAX, TrapFrame};

/// Longest backtrace.
const BACKTRACE_COUNT_MAX: usize = 32;

macro_rules! print {
    ($($argument:tt)*) => { serial::write(format_args!($($argument)*)) };
}

/// An exception in ring 0 that no place expects.
pub(crate) fn exception(frame: &TrapFrame) -> ! {
    begin();
    let vector = frame.vector;
    print!("\naegis: kernel panic on processor {}: exception {vector}\n", processor::processor_index());
    print_frame(frame);
    print!("  at {:016x}\n", frame.rip);
    finish(frame.rbp, frame.rsp)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    begin();
    let (rbp, rsp): (u64, u64);
    // SAFETY: plain register reads.
    unsafe { asm!("mov {}, rbp", "mov {}, rsp", out(reg) rbp, out(reg) rsp, options(nomem, nostack)) };
    print!("\naegis: kernel panic on processor {}: {}", processor::processor_index(), info.message());
    if let Some(location) = info.location() {
        print!(" at {location}");
    }
    print!("\n");
    print_control_registers();
    finish(rbp, rsp)
}

/// Makes this processor the one that reports.
fn begin() {
    let own = processor::processor_index();
    match power::begin_panic(own) {
        Ok(()) => interrupt::stop_others(),
        Err(first) if first == own => power_off(ExitCode::Panic),
        Err(_) => instructions::halt_forever(),
    }
}

fn finish(rbp: u64, rsp: u64) -> ! {
    let top = processor::kernel_stack_top();
    let interrupted = top - size_of::<TrapFrame>() as u64;
    print_backtrace(rbp, rsp);
    if rsp < interrupted && rsp >= top - KERNEL_STACK_END as u64 {
        // SAFETY: entries from user mode put their frame at the top of the kernel stack; any bytes make a frame.
        let frame: TrapFrame = unsafe { core::ptr::with_exposed_provenance::<TrapFrame>(interrupted as usize).read() };
        if super::trap::frame_is_user(&frame) {
            print!("  entered from user mode, vector {}:\n", frame.vector);
            print_frame(&frame);
        }
    }
    power_off(ExitCode::Panic)
}

fn print_frame(frame: &TrapFrame) {
    let f = frame;
    print!("  rip {:016x} rsp {:016x} rflags {:08x} cs {:02x} ss {:02x}\n", f.rip, f.rsp, f.rflags, f.cs, f.ss);
    print!("  rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}\n", f.rax, f.rbx, f.rcx, f.rdx);
    print!("  rsi {:016x} rdi {:016x} rbp {:016x} r8  {:016x}\n", f.rsi, f.rdi, f.rbp, f.r8);
    print!("  r9  {:016x} r10 {:016x} r11 {:016x} r12 {:016x}\n", f.r9, f.r10, f.r11, f.r12);
    print!("  r13 {:016x} r14 {:016x} r15 {:016x}\n", f.r13, f.r14, f.r15);
    print!("  error code {:x}, fault address {:016x}\n", f.error_code, f.fault_address);
    print_control_registers();
}

fn print_control_registers() {
    print!("  cr2 {:016x} cr3 {:016x}\n", instructions::read_cr2(), instructions::read_cr3());
}

/// Follows saved frame pointers: `[rbp]` is the caller's, `[rbp + 8]` the return address.
fn print_backtrace(rbp: u64, rsp: u64) {
    print!("  backtrace:\n");
    let mut at = rbp;
    let mut lowest = rsp;
    for _ in 0..BACKTRACE_COUNT_MAX {
        if at < lowest || !in_stacks(at) {
            return;
        }
        // SAFETY: two aligned words inside this processor's stacks, which are mapped.
        let [next, address] = unsafe { core::ptr::with_exposed_provenance::<[u64; 2]>(at as usize).read() };
        if address < IMAGE_BASE {
            return;
        }
        // The return address is after the call; one less is in the calling function even at its end.
        print!("    {:016x}\n", address - 1);
        lowest = at + 16;
        at = next;
    }
}

/// Whether 16 bytes at `address` are in the kernel stack or an interrupt stack of this processor, guard excluded.
fn in_stacks(address: u64) -> bool {
    let index = processor::processor_index().min(PROCESSOR_COUNT_MAX - 1);
    let base = STACKS.address(index) + processor::GUARD_BYTES as u64;
    let end = STACKS.address(index) + (KERNEL_STACK_END + 3 * INTERRUPT_STACK_BYTES) as u64;
    address.is_multiple_of(8) && address >= base && address <= end - 16
}
