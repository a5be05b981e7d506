//! Traps in Rust: the interrupt table, the dispatch of what `trap.s` delivers, and the frames with which contexts are
//! resumed.
//!
//! A handler gets the interrupted context's frame and returns; what the frame then holds is resumed. Writing another
//! context's saved frame into it switches contexts, writing [`idle_frame`] idles. Handlers run with interrupts off on
//! the processor's one kernel stack and never wait for anything but the kernel lock.
#![allow(unsafe_code, reason = "assembly entry points and the interrupt table")]

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use aegis_abi::call::{BellAwait, GateCall, GateReply, SpaceEnter, Yield};
use aegis_abi::layout::{LIBOS_BASE, LIBOS_END};
use aegis_abi::upcall::{ControlPage, UpcallKind};

use super::processor::{self, STACK_DOUBLE_FAULT, STACK_MACHINE_CHECK, STACK_NMI};
use super::{instructions, interrupt, panic, power, start};
use crate::descriptor::{self, KERNEL_CODE, USER_CODE, USER_DATA};
use crate::{PROCESSOR_COUNT_MAX, TrapFrame, VECTOR_KERNEL_CALL, VECTOR_PROGRAM_SYSCALL};

const VECTOR_BREAKPOINT: u64 = 3;
const VECTOR_OVERFLOW: u64 = 4;
const VECTOR_NMI: u64 = 2;
const VECTOR_DOUBLE_FAULT: u64 = 8;
const VECTOR_GENERAL_PROTECTION: u64 = 13;
const VECTOR_PAGE_FAULT: u64 = 14;
const VECTOR_MACHINE_CHECK: u64 = 18;
/// First vector that is not an exception.
const VECTOR_INTERRUPT_FIRST: u64 = 32;

/// What addresses of the library OS window have in common: all bits from this one on.
const LIBOS_SHIFT: u32 = (LIBOS_END - LIBOS_BASE).trailing_zeros();
const _: () = assert!(LIBOS_END - LIBOS_BASE == 1 << LIBOS_SHIFT && LIBOS_BASE.is_multiple_of(1 << LIBOS_SHIFT));

/// Flags that user mode may have when it is resumed: CF PF AF ZF SF TF DF OF RF AC ID.
const USER_FLAGS: u32 = 0x0025_0dd5;

global_asm!(
    include_str!("boot.s"),
    include_str!("trap.s"),
    stacks = sym processor::STACKS,
    kernel_stack_end = const processor::KERNEL_STACK_END,
    stacks_bytes = const size_of::<processor::Stacks>(),
    interrupt_stack_bytes = const processor::INTERRUPT_STACK_BYTES,
    start = sym super::machine_start,
    start_page = const start::START_PAGE,
    started_count = sym start::STARTED_COUNT,
    start_processor = sym start::start_processor,
    processor_count_max = const PROCESSOR_COUNT_MAX,
    user_rsp = const processor::OFFSET_USER_RSP,
    kernel_stack_top = const processor::OFFSET_KERNEL_STACK_TOP,
    control = const processor::OFFSET_CONTROL,
    syscall_upcall_count = const processor::OFFSET_SYSCALL_UPCALL_COUNT,
    short_call_count = const processor::OFFSET_SHORT_CALL_COUNT,
    syscall_rip = const offset_of!(ControlPage, syscall_rip),
    syscall_rflags = const offset_of!(ControlPage, syscall_rflags),
    syscall_rsp = const offset_of!(ControlPage, syscall_rsp),
    masked = const offset_of!(ControlPage, masked),
    syscall_entry_point = const offset_of!(ControlPage, entries) + 8 * UpcallKind::Syscall as usize,
    exception_entry_point = const offset_of!(ControlPage, entries) + 8 * UpcallKind::Exception as usize,
    exception_upcall_count = const processor::OFFSET_EXCEPTION_UPCALL_COUNT,
    save_area = const processor::OFFSET_SAVE_AREA,
    libos_shift = const LIBOS_SHIFT,
    libos_number = const LIBOS_BASE >> LIBOS_SHIFT,
    kind_exception = const UpcallKind::Exception as u32,
    vector_page_fault = const VECTOR_PAGE_FAULT,
    vector_interrupt_first = const VECTOR_INTERRUPT_FIRST,
    frame_r15 = const offset_of!(TrapFrame, r15),
    frame_kind = const offset_of!(TrapFrame, kind),
    frame_vector = const offset_of!(TrapFrame, vector),
    frame_error_code = const offset_of!(TrapFrame, error_code),
    frame_fault_address = const offset_of!(TrapFrame, fault_address),
    frame_rip = const offset_of!(TrapFrame, rip),
    frame_cs = const offset_of!(TrapFrame, cs),
    frame_rflags = const offset_of!(TrapFrame, rflags),
    frame_rsp = const offset_of!(TrapFrame, rsp),
    frame_ss = const offset_of!(TrapFrame, ss),
    frame_bytes = const size_of::<TrapFrame>(),
    user_code = const USER_CODE,
    user_data = const USER_DATA,
    user_flags = const USER_FLAGS,
    vector_kernel_call = const VECTOR_KERNEL_CALL,
    vector_program_syscall = const VECTOR_PROGRAM_SYSCALL,
    handlers = sym HANDLERS,
    handlers_syscall = const offset_of!(Handlers, syscall),
    handlers_transfer = const offset_of!(Handlers, transfer),
    handlers_space_enter = const offset_of!(Handlers, space_enter),
    space_enter = const SpaceEnter::NUMBER,
    special = const 1_u64 << GateCall::NUMBER | 1 << GateReply::NUMBER | 1 << Yield::NUMBER
        | 1 << BellAwait::NUMBER | 1 << SpaceEnter::NUMBER,
    dispatch_trap = sym dispatch_trap,
    dispatch_own_stack = sym dispatch_own_stack,
    dispatch_noncanonical = sym dispatch_noncanonical,
);

unsafe extern "C" {
    fn syscall_entry();
    fn enter_context(unused: u64, frame: *const TrapFrame) -> !;
    static trap_stubs: [[u8; 16]; 257];
}

/// What the kernel does about each kind of trap. All get the frame of what was interrupted and return with what to
/// resume.
#[derive(Debug)]
pub struct Handlers {
    /// A `syscall` in the upper half, or one in the lower half whose control page has no entry point for it.
    pub syscall: extern "C" fn(&mut TrapFrame),
    /// One whose RAX says `GateCall`, `GateReply`, `Yield` or `BellAwait`.
    pub transfer: extern "C" fn(&mut TrapFrame),
    /// A `SpaceEnter`, with its argument: 0 if that is all, and has been done; its number if nothing has.
    pub space_enter: extern "C" fn(u64) -> u64,
    /// An exception in user mode that `trap.s` could not deliver: `vector`, `error_code` and, for page faults,
    /// `fault_address` are set.
    pub exception: fn(&mut TrapFrame),
    /// An interrupt, of user mode or of the idle loop (see [`frame_is_user`]); acknowledged already, but for a
    /// device's, whose line the handler holds back.
    pub interrupt: fn(&mut TrapFrame, u8),
}

/// Also read by `trap.s`, which user mode enters only after they were set.
static HANDLERS: AtomicPtr<Handlers> = AtomicPtr::new(ptr::null_mut());

/// Sets the kernel's handlers, before the first context is entered or another processor started.
pub fn set_handlers(handlers: &'static Handlers) {
    HANDLERS.store(ptr::from_ref(handlers).cast_mut(), Ordering::Release);
}

fn handlers() -> &'static Handlers {
    // SAFETY: null or a reference that lives for ever, never written through.
    let handlers = unsafe { HANDLERS.load(Ordering::Acquire).as_ref() };
    handlers.expect("INV-3: handlers are set before any context runs")
}

/// Whether the frame is user mode's; otherwise it is the idle loop's.
#[must_use]
pub fn frame_is_user(frame: &TrapFrame) -> bool {
    frame.cs & 3 == 3
}

/// The frame that idles: interrupts on, nothing to save.
#[must_use]
pub fn idle_frame() -> TrapFrame {
    TrapFrame { cs: u64::from(KERNEL_CODE), ..TrapFrame::default() }
}

/// Resumes a context from a processor's main function, which is over then.
pub fn enter(frame: &TrapFrame) -> ! {
    // SAFETY: the frame is moved to the top of this processor's stack, from its end on; nothing of this call chain is
    // used afterwards.
    unsafe { enter_context(0, frame) }
}

struct InterruptTable(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: written by the boot processor before it is loaded, read by hardware afterwards.
unsafe impl Sync for InterruptTable {}

static INTERRUPT_TABLE: InterruptTable = InterruptTable(UnsafeCell::new([[0; 2]; 256]));

/// Fills the interrupt table and loads it.
pub(crate) fn initialize() {
    let stubs = (&raw const trap_stubs) as u64;
    for vector in 0..256_u64 {
        let stack = match vector {
            VECTOR_NMI => STACK_NMI,
            VECTOR_DOUBLE_FAULT => STACK_DOUBLE_FAULT,
            VECTOR_MACHINE_CHECK => STACK_MACHINE_CHECK,
            _ => 0,
        };
        // `int3` and `into` are what user mode may raise itself.
        let privilege = if vector == VECTOR_BREAKPOINT || vector == VECTOR_OVERFLOW { 3 } else { 0 };
        let gate = descriptor::interrupt_gate(stubs + vector * 16, stack, privilege);
        // SAFETY: the boot processor is alone and the table is not loaded yet.
        unsafe { (*INTERRUPT_TABLE.0.get())[vector as usize] = gate };
    }
    load_table();
}

/// Has the handler hear of each page fault of user mode before its library OS does: for what extends the kernel. Before
/// the first context runs.
pub fn hear_page_faults() {
    let gate = descriptor::interrupt_gate((&raw const trap_stubs) as u64 + 256 * 16, 0, 0);
    // SAFETY: the boot processor is alone, in code that raises no page fault.
    unsafe { (*INTERRUPT_TABLE.0.get())[VECTOR_PAGE_FAULT as usize] = gate };
}

/// Loads the interrupt table on this processor.
pub(crate) fn load_table() {
    let pointer = processor::descriptor_pointer(256 * 16 - 1, INTERRUPT_TABLE.0.get() as u64);
    // SAFETY: the table is complete and lives for ever.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(nostack, preserves_flags)) };
}

/// Points `syscall` at `trap.s` on this processor, which has it.
pub(crate) fn install_syscall_entry() {
    // SAFETY: it is the system-call entry.
    unsafe { instructions::set_syscall_entry(syscall_entry as *const () as u64) };
}

/// An exception or interrupt.
extern "C" fn dispatch_trap(frame: &mut TrapFrame) {
    let from_user = frame_is_user(frame);
    if frame.vector >= VECTOR_INTERRUPT_FIRST {
        let vector = frame.vector as u8;
        return interrupt::take(vector, || (handlers().interrupt)(frame, vector));
    }
    if frame.vector == VECTOR_PAGE_FAULT {
        frame.fault_address = instructions::read_cr2();
    }
    if !from_user {
        panic::exception(frame);
    }
    (handlers().exception)(frame);
}

/// A frame that was to be resumed at an address that is not canonical.
extern "C" fn dispatch_noncanonical(frame: &mut TrapFrame) {
    debug_assert_eq!(frame.vector, VECTOR_GENERAL_PROTECTION);
    (handlers().exception)(frame);
}

/// NMI, double fault, machine check. Only an NMI returns.
extern "C" fn dispatch_own_stack(frame: &mut TrapFrame) {
    if frame.vector == VECTOR_NMI {
        power::stop_if_panicking();
        return;
    }
    panic::exception(frame)
}
