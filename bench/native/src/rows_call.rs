//! The kernel's call and its upcalls: null call, a program's system call that is answered in its own address space,
//! exceptions that a handler answers and resumes from without the kernel.

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::memory::{BindEntry, BindFlags, entry};
use aegis_abi::upcall::{ControlPage, UpcallFrame, UpcallKind};
use aegis_rt::control;
use aegis_rt::upcall::{self, UpcallHandlers};

use crate::harness::{HANDLED, Row, check_handled, count_handled, handle, timed};
use crate::memory::{Measured, PROGRAM_ADDRESS, bind, table_entry, take_addresses, take_frames, take_pages};

pub(crate) const ROWS: &[Row] = &[
    ("native_null_call", null_call),
    ("native_syscall_no_stack", syscall_no_stack),
    ("native_syscall_with_stack", syscall_with_stack),
    ("native_exc_unaligned", exception_unaligned),
    ("native_exc_overflow", exception_overflow),
    ("native_exc_illegal", exception_illegal),
    ("native_exc_protection", exception_protection),
    ("native_trap", trap),
];

unsafe extern "C" {
    fn null_calls(count: u64) -> u64;
    fn run_program(count: u64, address: u64);
    fn answer_without_stack();
    fn illegal_instructions(count: u64);
    fn divide_overflows(count: u64);
    fn refused_stores(count: u64, address: u64);
    fn unaligned_loads(count: u64, address: u64);
}

global_asm!(
    // The sum of the statuses: 0 if all went well.
    "null_calls:",
    "xor r9d, r9d",
    "2:",
    "xor eax, eax", // Call::Null
    "syscall",
    "add r9, rax",
    "dec rdi",
    "jnz 2b",
    "mov rax, r9",
    "ret",
    "run_program:",
    "push rbx",
    "mov rbx, rdi",
    "call rsi",
    "pop rbx",
    "ret",
    // The least that an entry for system calls can do: answer, unmask, see that nothing was held back, go on. Only
    // RCX and R11 are its own, as for every program.
    "answer_without_stack:",
    "mov eax, 1",
    "mov dword ptr gs:[{masked}], 0",
    "cmp dword ptr gs:[{pending}], 0",
    "jne 3f",
    "mov rcx, gs:[{syscall_rip}]",
    "jmp rcx",
    "3:",
    "mov dword ptr gs:[{pending}], 0",
    "mov rcx, gs:[{syscall_rip}]",
    "jmp rcx",
    // What these trap on has two bytes each.
    "illegal_instructions:",
    "ud2",
    "dec rdi",
    "jnz illegal_instructions",
    "ret",
    // The smallest number divided by minus one: the quotient does not fit.
    "divide_overflows:",
    "mov eax, 0x80000000",
    "cdq",
    "mov ecx, -1",
    "2:",
    "idiv ecx",
    "dec rdi",
    "jnz 2b",
    "ret",
    "refused_stores:",
    "mov [rsi], cl",
    "dec rdi",
    "jnz refused_stores",
    "ret",
    // With alignment checked (EFLAGS.AC).
    "unaligned_loads:",
    "pushfq",
    "or dword ptr [rsp], {alignment_check}",
    "popfq",
    "2:",
    "mov eax, [rsi]",
    "dec rdi",
    "jnz 2b",
    "pushfq",
    "and dword ptr [rsp], ~{alignment_check}",
    "popfq",
    "ret",
    masked = const offset_of!(ControlPage, masked),
    pending = const offset_of!(ControlPage, pending),
    syscall_rip = const offset_of!(ControlPage, syscall_rip),
    alignment_check = const 1 << 18,
);

fn null_call(count: u64) -> Measured {
    let mut failures = 0;
    // SAFETY: the routine keeps the calling convention; the call changes nothing.
    let elapsed_ns = timed(|| failures = unsafe { null_calls(count) });
    if failures == 0 { Ok(elapsed_ns) } else { Err("Null") }
}

/// `mov eax, 39; syscall; dec rbx; jnz` to the first, `ret`.
const PROGRAM: [u8; 13] = [0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0x48, 0xff, 0xcb, 0x75, 0xf4, 0xc3];

/// Runs the program of one system call, in the program's half, under the entry that is registered.
fn program(count: u64) -> Measured {
    let (address, frames) = take_pages(1)?;
    // SAFETY: just mapped, writable, and nobody else's.
    unsafe { core::ptr::copy_nonoverlapping(PROGRAM.as_ptr(), address as *mut u8, PROGRAM.len()) };
    bind(BindEntry::map(PROGRAM_ADDRESS, frames.first, 1, frames.slot, BindFlags::EXECUTE))?;
    // SAFETY: the program uses RBX, which the routine keeps, and what a system call may change.
    Ok(timed(|| unsafe { run_program(count, PROGRAM_ADDRESS) }))
}

fn syscall_no_stack(count: u64) -> Measured {
    control::set_entry(UpcallKind::Syscall, answer_without_stack as *const () as u64);
    program(count)
}

extern "C" fn answer(frame: &mut UpcallFrame) {
    frame.rax = 1;
    count_handled();
}

fn syscall_with_stack(count: u64) -> Measured {
    handle(skip);
    upcall::register(UpcallHandlers { syscall: answer, other: skip }, &[]);
    let elapsed_ns = program(count)?;
    check_handled(count)?;
    Ok(elapsed_ns)
}

/// Passes over the instruction.
extern "C" fn skip(frame: &mut UpcallFrame) {
    frame.rip += 2;
    count_handled();
}

/// Times a routine whose every round raises an exception that `skip` answers.
fn skipped(count: u64, routine: impl FnOnce()) -> Measured {
    handle(skip);
    let elapsed_ns = timed(routine);
    check_handled(count)?;
    Ok(elapsed_ns)
}

fn exception_illegal(count: u64) -> Measured {
    // SAFETY: the routine keeps the calling convention, and so does every resume.
    skipped(count, || unsafe { illegal_instructions(count) })
}

fn exception_overflow(count: u64) -> Measured {
    // SAFETY: as above.
    skipped(count, || unsafe { divide_overflows(count) })
}

fn exception_protection(count: u64) -> Measured {
    let frames = take_frames(1)?;
    let address = take_addresses(1);
    bind(BindEntry::map(address, frames.first, 1, frames.slot, BindFlags::empty()))?;
    // SAFETY: as above; no store succeeds.
    skipped(count, || unsafe { refused_stores(count, address) })
}

fn exception_unaligned(count: u64) -> Measured {
    let (address, _) = take_pages(1)?;
    // SAFETY: as above.
    let measured = skipped(count, || unsafe { unaligned_loads(count, address + 1) });
    match HANDLED.load(Ordering::Relaxed) {
        // The kernel lets a program ask for the check (CR0.AM), but QEMU's translator does not make it.
        0 => Err("no exception arrived: this processor does not check alignment"),
        _ => measured,
    }
}

/// First and last page of what [`trap`] looks after.
static REGION: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
const TRAP_PAGE_COUNT: u64 = 100;

/// What a handler of protection does before it knows what to do: is the address ours, and what does our page table say?
extern "C" fn look_and_skip(frame: &mut UpcallFrame) {
    let [first, end] = [0, 1].map(|index| REGION[index].load(Ordering::Relaxed));
    let is_ours = (first..end).contains(&frame.fault_address);
    if is_ours && table_entry(frame.fault_address) & (entry::PRESENT | entry::WRITE) == entry::PRESENT {
        count_handled();
    }
    frame.rip += 2;
}

fn trap(count: u64) -> Measured {
    let (address, frames) = take_pages(TRAP_PAGE_COUNT as u32)?;
    bind(BindEntry::protect(address, TRAP_PAGE_COUNT as u32, frames.slot, BindFlags::empty()))?;
    REGION[0].store(address, Ordering::Relaxed);
    REGION[1].store(address + TRAP_PAGE_COUNT * PAGE_SIZE, Ordering::Relaxed);
    handle(look_and_skip);
    // SAFETY: the routine keeps the calling convention; no store succeeds.
    let elapsed_ns = timed(|| unsafe { refused_stores(count, address + 50 * PAGE_SIZE) });
    check_handled(count)?;
    Ok(elapsed_ns)
}
