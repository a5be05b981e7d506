//! Upcalls: every exception arrives with what happened, resumes without the kernel, and its defined ends are the
//! defined ones.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::call::{EnvironmentField, StopReason};
use aegis_abi::counter::Counter;
use aegis_abi::layout::{
    FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, KERNEL_BASE, LIBOS_END, PAGE_SIZE, PAGE_TABLE_WINDOW, PROGRAM_BASE,
};
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::{SLOT_FIRST_PROCESSOR, SLOT_NONE};
use aegis_abi::upcall::{ControlPage, USER_CODE_SELECTOR, USER_STACK_SELECTOR, UpcallFrame, UpcallKind};
use aegis_rt::upcall::{KIND_HELD_BACK, UpcallHandlers, register};
use aegis_rt::{call, control};

use crate::child::{self, CHILD_SHARED_BASE, shared};
use crate::memory::{SCRATCH_BASE, free_slot, map, slot, take};
use crate::probe::{self, Fault, GENERAL_PROTECTION, PAGE_FAULT};
use crate::s03_routines::{
    EXCEPTIONS, breakpoint_once, breakpoint_selectors, cli_probe, misaligned_load, other_stack_call, program_code,
    program_code_end, raise_divide, registers_check, registers_check_fault, resume_with_flags,
};
use crate::suite::{CaseResult, Failure, Machine, Suite};
use crate::{expect, expect_equal, expect_ok, thread, vector, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s03_upcall",
    cases: &[
        ("every_exception_arrives", every_exception_arrives),
        ("page_faults_tell_what_was_tried", page_faults_tell),
        ("alignment_check_arrives_if_the_processor_checks", alignment_check),
        ("frame_has_every_register_and_gives_it_back", frame_has_every_register),
        ("resume_does_not_enter_the_kernel", resume_without_kernel),
        ("resume_gains_no_privilege", resume_gains_no_privilege),
        ("resume_of_a_broken_frame_faults_in_user_mode", resume_of_broken_frame),
        ("upcalls_nest_on_the_save_area", upcalls_nest),
        ("upcall_from_another_stack_starts_at_the_top", upcall_from_another_stack),
        ("program_syscall_is_an_upcall", program_syscall),
        ("bell_upcall_waits_while_masked", bell_upcall_waits),
        ("bell_upcall_comes_at_once_when_not_masked", bell_upcall_comes),
        ("held_back_upcall_is_seen_at_resume", held_back_at_resume),
        ("no_handler_stops_the_environment", no_handler_stops),
        ("handler_outside_the_window_is_none", handler_outside_window),
        ("fault_in_the_fault_handler_fills_the_save_area", fault_in_handler),
        ("program_syscall_without_handler_stops", syscall_without_handler),
        ("unmapped_save_area_does_not_harm_the_kernel", unmapped_save_area),
    ],
};

fn every_exception_arrives(_: &Machine) -> CaseResult {
    let before = expect_ok!(call::counter_read(Counter::UpcallsException));
    let mut arrived = 0;
    for (index, (routine, vector, error_code)) in EXCEPTIONS.iter().enumerate() {
        let fault = probe::run(*routine, 0, 0).err();
        vector::set_control(0x1f80);
        reset_x87();
        // QEMU's translator (7.2) raises no SIMD exceptions; nothing else may come instead.
        if *vector == 19 && fault.is_none() {
            continue;
        }
        arrived += 1;
        // What the selectors and gates of the kernel are is not the contract's business.
        let any_error = *vector == GENERAL_PROTECTION && *error_code == 0;
        // QEMU's translator (7.2) reports a non-canonical stack access as a general protection fault.
        let stack_fault = |f: &Fault| *vector == 12 && f.vector == GENERAL_PROTECTION;
        let is_expected = fault
            .is_some_and(|f| (f.vector == *vector || stack_fault(&f)) && (f.error_code == *error_code || any_error));
        if !is_expected {
            let found = (index as u64) << 32 | fault.map_or(0xffff, |f| f.vector << 16 | f.error_code);
            return Err(Failure { line: line!(), found });
        }
        let start = *routine as *const () as u64;
        expect!(fault.is_some_and(|f| f.rip >= start && f.rip < start + 48));
    }
    let after = expect_ok!(call::counter_read(Counter::UpcallsException));
    expect_equal!(after - before, arrived);
    expect!(arrived + 1 >= EXCEPTIONS.len() as u64);
    Ok(())
}

fn reset_x87() {
    // SAFETY: Rust code here uses no floating point.
    unsafe { core::arch::asm!("fninit", options(nomem, nostack)) };
}

fn page_faults_tell(_: &Machine) -> CaseResult {
    let frame = expect_ok!(take(slot(0), 1)).0;
    let expect_code =
        |fault: Option<Fault>, address: u64, code: u64| fault.is_some_and(|f| f.is_page_fault(address, code));
    let hole = SCRATCH_BASE + 5 * PAGE_SIZE + 0x123;
    expect!(expect_code(probe::read(hole).err(), hole, 0b0_0100));
    expect!(expect_code(probe::write(hole, 1).err(), hole, 0b0_0110));
    expect!(expect_code(probe::execute(hole).err(), hole, 0b1_0100));
    expect_ok!(map(SCRATCH_BASE, frame, 1, slot(0), BindFlags::empty()));
    let there = SCRATCH_BASE + 0x456;
    expect!(expect_code(probe::write(there, 1).err(), there, 0b0_0111));
    expect!(expect_code(probe::execute(there).err(), there, 0b1_0101));
    // An access that crosses into the hole names the first byte of the page that is missing.
    let crossing = probe::read(SCRATCH_BASE + PAGE_SIZE - 4).err();
    expect!(expect_code(crossing, SCRATCH_BASE + PAGE_SIZE, 0b0_0100));
    Ok(())
}

fn alignment_check(_: &Machine) -> CaseResult {
    // QEMU's translator (7.2) does not raise it; a processor does if the kernel sets CR0.AM. What must not be is
    // anything else.
    let before = expect_ok!(call::counter_read(Counter::KernelCalls));
    if let Err(fault) = probe::run(misaligned_load, 0, 0) {
        expect_equal!(fault.vector, 17);
        expect_equal!(fault.error_code, 0);
    }
    // The flag is gone again: kernel calls and misaligned accesses work.
    expect_equal!(call::counter_read(Counter::KernelCalls), Ok(before + 1));
    Ok(())
}

/// What handlers of this suite record; cases run one after another.
static SEEN: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

fn seen(index: usize) -> u64 {
    SEEN[index].load(Ordering::SeqCst)
}

fn see(index: usize, value: u64) {
    SEEN[index].store(value, Ordering::SeqCst);
}

fn forget_seen() {
    for word in &SEEN {
        word.store(0, Ordering::SeqCst);
    }
}

/// The registers of a frame in its order.
fn registers(frame: &mut UpcallFrame) -> [&mut u64; 15] {
    [
        &mut frame.r15,
        &mut frame.r14,
        &mut frame.r13,
        &mut frame.r12,
        &mut frame.r11,
        &mut frame.r10,
        &mut frame.r9,
        &mut frame.r8,
        &mut frame.rdi,
        &mut frame.rsi,
        &mut frame.rbp,
        &mut frame.rbx,
        &mut frame.rdx,
        &mut frame.rcx,
        &mut frame.rax,
    ]
}

/// Takes what was held back, if that is why the handler was called. Every handler does, or it would be called for
/// ever.
fn is_held_back(frame: &UpcallFrame) -> bool {
    let is_held_back = frame.kind == KIND_HELD_BACK;
    if is_held_back {
        let _ = control::take_pending();
    }
    is_held_back
}

extern "C" fn on_registers(frame: &mut UpcallFrame) {
    if is_held_back(frame) {
        return;
    }
    see(16, frame.rip);
    see(17, frame.cs << 32 | frame.ss);
    see(18, frame.rflags);
    see(19, u64::from(frame.kind) << 32 | u64::from(frame.masked_before));
    see(20, frame.vector);
    see(21, frame.rsp);
    see(22, frame.error_code | frame.fault_address);
    see(23, &raw const *frame as u64);
    for (index, register) in registers(frame).into_iter().enumerate() {
        see(index, *register);
        *register = !*register;
    }
    frame.rip += 2;
}

fn frame_has_every_register(_: &Machine) -> CaseResult {
    forget_seen();
    let patterns: [u64; 15] = core::array::from_fn(|index| 0x0101_0101_0101_0101 * (index as u64 + 1));
    let mut found = [0; 15];
    probe::install_with(on_registers, &[]);
    // SAFETY: the routine keeps the calling convention; the handler gives every register a value that it can return
    // with.
    unsafe { registers_check(&patterns, &mut found) };
    probe::reset();
    for (index, pattern) in patterns.iter().enumerate() {
        expect_equal!(seen(index), *pattern);
        expect_equal!(found[index], !*pattern);
    }
    expect_equal!(seen(16), registers_check_fault as *const () as u64);
    expect_equal!(seen(17), USER_CODE_SELECTOR << 32 | USER_STACK_SELECTOR);
    // Carry, direction and interrupt flags as they were; no privilege in the others.
    expect_equal!(seen(18) & 0x0003_7701, 0x0000_0601);
    expect_equal!(seen(19), (UpcallKind::Exception as u64) << 32);
    expect_equal!(seen(20), 6);
    expect_equal!(seen(22), 0);
    // The frame lies in the save area, below the stack pointer that it interrupted and the red zone.
    expect!(seen(23) + 192 + 128 <= seen(21));
    expect!(seen(23) >= FIRST_SAVE_AREA_BASE);
    expect_equal!(seen(23) % 16, 0);
    Ok(())
}

extern "C" fn on_counted(frame: &mut UpcallFrame) {
    if frame.kind == UpcallKind::Exception as u32 && frame.vector == 3 {
        SEEN[0].fetch_add(1, Ordering::SeqCst);
    }
    is_held_back(frame);
}

fn resume_without_kernel(_: &Machine) -> CaseResult {
    forget_seen();
    probe::install_with(on_counted, &[]);
    let calls = expect_ok!(call::counter_read(Counter::KernelCalls));
    let upcalls = expect_ok!(call::counter_read(Counter::UpcallsException));
    for _ in 0..1000 {
        // SAFETY: the handler resumes after the breakpoint.
        unsafe { breakpoint_once() };
    }
    let upcalls_after = expect_ok!(call::counter_read(Counter::UpcallsException));
    let calls_after = expect_ok!(call::counter_read(Counter::KernelCalls));
    expect_equal!(seen(0), 1000);
    expect_equal!(upcalls_after - upcalls, 1000);
    // Only the two that read counters.
    expect_equal!(calls_after - calls, 3);
    Ok(())
}

extern "C" fn on_flags(frame: &mut UpcallFrame) {
    if probe_is_breakpoint(frame) {
        // I/O privilege 3, nested task, virtual-8086 mode, virtual interrupts: nothing of that for user mode.
        frame.rflags |= 0x1a_7000;
    } else {
        probe::on_upcall(frame);
    }
}

fn probe_is_breakpoint(frame: &UpcallFrame) -> bool {
    frame.kind == UpcallKind::Exception as u32 && frame.vector == 3
}

fn resume_gains_no_privilege(_: &Machine) -> CaseResult {
    probe::install_with(on_flags, &[]);
    let flags = probe::run(resume_with_flags, 0, 0).unwrap_or(0x3000);
    expect_equal!(flags & 0x1a_3000, 0);
    expect!(probe::run(cli_probe, 0, 0).is_err_and(|f| f.vector == GENERAL_PROTECTION));
    // A kernel call resumes through another instruction: it filters as well.
    let after: u64;
    // SAFETY: pushes and pops its own words.
    unsafe {
        core::arch::asm!(
            "pushfq", "or qword ptr [rsp], 0x1000", "popfq", "xor eax, eax", "syscall", "pushfq", "pop rdx",
            out("rax") _, out("rcx") _, out("r11") _, out("rdx") after,
        );
    }
    expect_equal!(after & 0x3000, 0);
    Ok(())
}

extern "C" fn on_broken(frame: &mut UpcallFrame) {
    if !probe_is_breakpoint(frame) {
        SEEN[8].fetch_add(1, Ordering::SeqCst);
        see(9, frame.cs);
        probe::on_upcall(frame);
        return;
    }
    match seen(0) {
        0 => frame.rip = 0x5555_0000_0000_0000,
        1 => frame.rip = KERNEL_BASE,
        2 => frame.rip = 0xffff_ffff_8020_0000,
        3 => frame.rip = 0,
        4 => (frame.cs, frame.ss) = (0x10, 0x18),
        5 => (frame.cs, frame.ss) = (0, 0),
        _ => (frame.cs, frame.ss, frame.rflags) = (0x13, 0x1b, !0x100),
    }
}

fn resume_of_broken_frame(_: &Machine) -> CaseResult {
    for variant in 0..7 {
        forget_seen();
        see(0, variant);
        probe::install_with(on_broken, &[]);
        let outcome = probe::run(breakpoint_selectors, 0, 0);
        // A bad address faults there, in user mode. Bad selectors and flags either fault or change nothing.
        let is_good = match outcome {
            Ok(selectors) => variant >= 4 && selectors == USER_CODE_SELECTOR << 16 | USER_STACK_SELECTOR,
            Err(fault) => matches!(fault.vector, 10..=14) && (seen(8), seen(9)) == (1, USER_CODE_SELECTOR),
        };
        if !is_good {
            let found = variant << 32 | outcome.unwrap_or_else(|f| 1 << 31 | f.vector);
            return Err(Failure { line: line!(), found });
        }
    }
    Ok(())
}

/// How deep the nesting case goes: each level costs a frame, a red zone and what the handler uses.
const NESTING: u64 = 12;

extern "C" fn on_nested(frame: &mut UpcallFrame) {
    if is_held_back(frame) || !probe_is_breakpoint(frame) {
        return;
    }
    let level = seen(0);
    see(0, level + 1);
    see(1 + level as usize, u64::from(frame.masked_before));
    if level + 1 < NESTING {
        // SAFETY: this handler resumes it.
        unsafe { breakpoint_once() };
    }
    SEEN[31].fetch_add(1, Ordering::SeqCst);
}

fn upcalls_nest(_: &Machine) -> CaseResult {
    forget_seen();
    probe::install_with(on_nested, &[]);
    // SAFETY: the handler resumes it.
    unsafe { breakpoint_once() };
    expect_equal!(seen(0), NESTING);
    expect_equal!(seen(31), NESTING);
    // The first interrupted unmasked code, the others a handler.
    expect_equal!(seen(1), 0);
    for level in 1..NESTING {
        expect_equal!(seen(1 + level as usize), 1);
    }
    expect_equal!(mask_word(), 0);
    Ok(())
}

/// `masked` of our control page.
fn mask_word() -> u32 {
    // SAFETY: the control page of the first processor is always mapped.
    unsafe { (&raw const (*(FIRST_CONTROL_BASE as *const ControlPage)).masked).read_volatile() }
}

extern "C" fn on_other_stack(frame: &mut UpcallFrame) {
    if !is_held_back(frame) && probe_is_breakpoint(frame) {
        see(0, &raw const *frame as u64);
        see(1, frame.rsp);
        see(2, control::save_area_top());
        SEEN[3].fetch_add(1, Ordering::SeqCst);
    }
}

extern "C" fn other_stack_thread(_: u64) -> ! {
    probe::install_with(on_other_stack, &[]);
    // SAFETY: the handler resumes it.
    unsafe { breakpoint_once() };
    see(4, 1);
    wait::forever()
}

fn upcall_from_another_stack(_: &Machine) -> CaseResult {
    forget_seen();
    let thread = expect_ok!(thread::spawn(0, other_stack_thread, 0));
    expect!(wait::until(|| seen(4) == 1));
    expect_equal!(seen(3), 1);
    expect_equal!(seen(0), seen(2) - 192);
    expect!(seen(1) < thread.stack_top());
    expect!(seen(1) > thread.stack_top() - PAGE_SIZE);
    Ok(())
}

/// Where the program of the system-call case lies, and its stack.
const PROGRAM_AT: u64 = 0x40_0000;
const PROGRAM_STACK: u64 = 0x7fff_0000_0000;
const SYSCALLS: u64 = 500;

extern "C" fn on_program_syscall(frame: &mut UpcallFrame) {
    SEEN[0].fetch_add(1, Ordering::SeqCst);
    see(1, frame.rsp);
    see(2, frame.rip);
    let words = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9, frame.rbx];
    if words != [1, 2, 3, 4, 5, 6, 7] || frame.rax != 39 || frame.rflags & 1 == 0 {
        SEEN[3].fetch_add(1, Ordering::SeqCst);
    }
    frame.rax += 1000;
}

extern "C" fn syscall_thread(_: u64) -> ! {
    register(UpcallHandlers { syscall: on_program_syscall, other: probe::on_upcall }, &[]);
    let stack = PROGRAM_STACK + PAGE_SIZE - 64;
    let calls = call::counter_read(Counter::KernelCalls).unwrap_or(0);
    let upcalls = call::counter_read(Counter::UpcallsSyscall).unwrap_or(0);
    // SAFETY: the program's code and stack are mapped; it keeps the calling convention.
    let good = unsafe { other_stack_call(stack, PROGRAM_AT, SYSCALLS) };
    see(4, good);
    see(5, call::counter_read(Counter::UpcallsSyscall).unwrap_or(0) - upcalls);
    see(6, call::counter_read(Counter::KernelCalls).unwrap_or(0) - calls);
    see(7, 1);
    wait::forever()
}

fn map_program() -> Result<(), Failure> {
    let frame = expect_ok!(take(slot(0), 2)).0;
    expect_ok!(map(PROGRAM_AT, frame, 1, slot(0), BindFlags::WRITE));
    let start = program_code as *const () as u64;
    let length = program_code_end as *const () as u64 - start;
    expect!(length <= PAGE_SIZE);
    // SAFETY: both ranges are mapped and do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(start as *const u8, PROGRAM_AT as *mut u8, length as usize);
    }
    expect_ok!(map(PROGRAM_AT, frame, 1, slot(0), BindFlags::EXECUTE));
    expect_ok!(map(PROGRAM_STACK, frame + 1, 1, slot(0), BindFlags::WRITE));
    Ok(())
}

fn unmap_program() {
    let _ = crate::memory::unmap(PROGRAM_AT, 1);
    let _ = crate::memory::unmap(PROGRAM_STACK, 1);
}

fn program_syscall(_: &Machine) -> CaseResult {
    forget_seen();
    map_program()?;
    expect_ok!(thread::spawn(0, syscall_thread, 0));
    let is_done = wait_idle(|| seen(7) == 1);
    unmap_program();
    expect!(is_done);
    expect_equal!(seen(4), SYSCALLS);
    expect_equal!(seen(0), SYSCALLS);
    expect_equal!(seen(3), 0);
    expect_equal!(seen(5), SYSCALLS);
    expect!(seen(1) < PROGRAM_STACK + PAGE_SIZE);
    expect!(seen(1) >= PROGRAM_STACK);
    expect!((PROGRAM_AT..PROGRAM_AT + PAGE_SIZE).contains(&seen(2)));
    // The thread's own two counter reads, and what this case did meanwhile: one sleep at a time.
    expect!(seen(6) < SYSCALLS / 2);
    Ok(())
}

/// Waits with few kernel calls.
fn wait_idle(mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..2000 {
        if condition() {
            return true;
        }
        wait::pause(10_000_000);
    }
    false
}

const BELL_BIT: u32 = 1 << UpcallKind::Bell as u32;

extern "C" fn on_bell(frame: &mut UpcallFrame) {
    if frame.kind == KIND_HELD_BACK {
        see(1, u64::from(control::take_pending()));
    } else if frame.kind == UpcallKind::Bell as u32 {
        SEEN[0].fetch_add(1, Ordering::SeqCst);
        see(2, u64::from(frame.masked_before));
        if seen(5) != 0 {
            // Rung in the handler: held back until it resumes.
            see(5, 0);
            let _ = call::bell_ring(slot(0));
            see(6, seen(0));
        }
    } else {
        probe::on_upcall(frame);
    }
}

fn bell_upcall_waits(_: &Machine) -> CaseResult {
    forget_seen();
    expect_ok!(call::bell_create(slot(0), SLOT_FIRST_PROCESSOR));
    probe::install_with(on_bell, &[UpcallKind::Bell]);
    control::set_masked(true);
    expect_ok!(call::bell_ring(slot(0)));
    expect_ok!(call::bell_ring(slot(0)));
    let during = seen(0);
    let pending = control::take_pending();
    control::set_masked(false);
    expect_equal!(during, 0);
    expect_equal!(pending & BELL_BIT, BELL_BIT);
    expect_equal!(control::take_pending(), 0);
    expect_ok!(call::null());
    expect_equal!(seen(0), 0);
    expect_equal!(call::bell_take(slot(0)), Ok(2));
    Ok(())
}

fn bell_upcall_comes(_: &Machine) -> CaseResult {
    forget_seen();
    expect_ok!(call::bell_create(slot(0), SLOT_FIRST_PROCESSOR));
    probe::install_with(on_bell, &[UpcallKind::Bell]);
    let before = expect_ok!(call::counter_read(Counter::UpcallsBell));
    for round in 1..=10 {
        expect_ok!(call::bell_ring(slot(0)));
        expect_equal!(seen(0), round);
    }
    expect_equal!(call::counter_read(Counter::UpcallsBell), Ok(before + 10));
    expect_equal!(seen(2), 0);
    expect_equal!(mask_word(), 0);
    // Without an entry it becomes a pending bit.
    control::set_entry(UpcallKind::Bell, 0);
    expect_ok!(call::bell_ring(slot(0)));
    expect_equal!(seen(0), 10);
    expect_equal!(control::take_pending() & BELL_BIT, BELL_BIT);
    Ok(())
}

fn held_back_at_resume(_: &Machine) -> CaseResult {
    forget_seen();
    expect_ok!(call::bell_create(slot(0), SLOT_FIRST_PROCESSOR));
    probe::install_with(on_bell, &[UpcallKind::Bell]);
    see(5, 1);
    expect_ok!(call::bell_ring(slot(0)));
    // The second ring came while the handler ran: no second upcall, but a look at what was held back before the
    // resume.
    expect_equal!(seen(0), 1);
    expect_equal!(seen(6), 1);
    expect_equal!(seen(1) & u64::from(BELL_BIT), u64::from(BELL_BIT));
    expect_equal!(mask_word(), 0);
    Ok(())
}

/// What the children of the stop cases do.
const WITHOUT_HANDLER: u64 = 0;
const BREAKPOINT_WITHOUT_HANDLER: u64 = 1;
const DIVIDE_WITHOUT_HANDLER: u64 = 2;
const FAULT_IN_HANDLER: u64 = 3;
const SYSCALL_WITHOUT_HANDLER: u64 = 4;
/// Word of the shared page: the handler of the child's exceptions.
const ENTRY: usize = 0;
const FAULT_ADDRESS: u64 = 0x6660;

extern "C" fn faulting_child(what: u64) -> ! {
    let entry = shared().get(ENTRY);
    if what == FAULT_IN_HANDLER {
        probe::install_with(on_fault_again, &[]);
    } else {
        control::set_entry(UpcallKind::Exception, entry);
    }
    match what {
        BREAKPOINT_WITHOUT_HANDLER => {
            // SAFETY: ends the child.
            unsafe { breakpoint_once() };
        }
        DIVIDE_WITHOUT_HANDLER => {
            // SAFETY: ends the child.
            unsafe { raise_divide() };
        }
        SYSCALL_WITHOUT_HANDLER => {
            let _ = probe::execute(PROGRAM_AT);
        }
        _ => load_bad(),
    }
    shared().set(1, 1);
    wait::forever()
}

/// A load that faults and that nobody probes for.
fn load_bad() {
    // SAFETY: the fault is the purpose; no value is used.
    unsafe { core::arch::asm!("mov rax, [{}]", in(reg) FAULT_ADDRESS, out("rax") _, options(nostack)) };
}

extern "C" fn on_fault_again(_: &mut UpcallFrame) {
    shared().increment(2);
    load_bad();
}

/// Runs a child to its stop; checks reason, vector, address.
fn expect_stop(
    machine: &Machine,
    (what, entry): (u64, u64),
    (reason, vector, address): (StopReason, u64, u64),
) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    child.shared.set(ENTRY, entry);
    expect_ok!(call::bell_create(free_slot(0), SLOT_NONE));
    expect_ok!(call::environment_watch(child.environment, free_slot(0)));
    expect_ok!(child::start(&child, faulting_child, what));
    expect_equal!(child::await_stop(&child), reason as u64);
    let read = |field| call::environment_read(child.environment, field);
    expect_equal!(read(EnvironmentField::StopVector), Ok(vector));
    expect_equal!(read(EnvironmentField::StopAddress), Ok(address));
    expect!(read(EnvironmentField::StopRip).is_ok_and(|rip| rip != 0));
    expect_equal!(call::bell_take(free_slot(0)), Ok(1));
    expect_equal!(child.shared.get(1), 0);
    probe::reset();
    crate::memory::release_scratch();
    Ok(())
}

fn no_handler_stops(machine: &Machine) -> CaseResult {
    let reason = StopReason::NoHandler;
    expect_stop(machine, (WITHOUT_HANDLER, 0), (reason, PAGE_FAULT, FAULT_ADDRESS))?;
    expect_stop(machine, (BREAKPOINT_WITHOUT_HANDLER, 0), (reason, 3, 0))?;
    expect_stop(machine, (DIVIDE_WITHOUT_HANDLER, 0), (reason, 0, 0))
}

fn handler_outside_window(machine: &Machine) -> CaseResult {
    let entries = [
        PROGRAM_BASE,
        PROGRAM_AT,
        LIBOS_END,
        PAGE_TABLE_WINDOW,
        KERNEL_BASE,
        0xffff_ffff_8020_0000,
        0x5555_0000_0000_0000,
        u64::MAX,
    ];
    for entry in entries {
        let expected = (StopReason::NoHandler, PAGE_FAULT, FAULT_ADDRESS);
        expect_stop(machine, (WITHOUT_HANDLER, entry), expected)?;
    }
    Ok(())
}

fn fault_in_handler(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(child::start(&child, faulting_child, FAULT_IN_HANDLER));
    expect_equal!(child::await_stop(&child), StopReason::SaveAreaFull as u64);
    let read = |field| call::environment_read(child.environment, field);
    expect_equal!(read(EnvironmentField::StopVector), Ok(PAGE_FAULT));
    expect_equal!(read(EnvironmentField::StopAddress), Ok(FAULT_ADDRESS));
    // It got as far as the save area allows: more than ten, fewer than frames would fit alone.
    let depth = child.shared.get(2);
    expect!(depth > 10);
    expect!(depth <= 8 * PAGE_SIZE / 192);
    Ok(())
}

fn syscall_without_handler(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    // A page of the child's lower half with nothing but `syscall`, through the frame that it shares with us.
    child.shared.set(8, 0x050f_050f_050f_050f);
    let frame = expect_ok!(call::cap_read(child.shared_slot, 1));
    let rights = aegis_abi::Rights::READ | aegis_abi::Rights::EXECUTE;
    let target = child::CHILD_SLOT_FREE;
    expect_ok!(call::cap_grant(child.shared_slot, child.environment, target, rights));
    let program = PROGRAM_AT & !(PAGE_SIZE - 1);
    let entry = BindEntry::map(program, frame, 1, child.shared_slot, BindFlags::EXECUTE);
    expect_ok!(crate::memory::bind_in(child.environment, entry));
    expect_ok!(child::start_at(&child, program + 64, child::stack_top() - 8, 0));
    expect_equal!(child::await_stop(&child), StopReason::NoHandler as u64);
    let rip = call::environment_read(child.environment, EnvironmentField::StopRip);
    expect_equal!(rip, Ok(program + 66));
    expect_equal!(child.shared.get(1), 0);
    expect!(CHILD_SHARED_BASE > program);
    Ok(())
}

/// Unmaps its own save area and control page, then faults: the kernel writes by frame, the child faults again and
/// again.
extern "C" fn unmapping_child(_: u64) -> ! {
    probe::install();
    let entries = [BindEntry::unmap(FIRST_SAVE_AREA_BASE, 8), BindEntry::unmap(FIRST_CONTROL_BASE, 1)];
    // SAFETY: nothing is; the case is about what the kernel makes of it.
    let _ = unsafe { call::bind(aegis_abi::types::SLOT_SELF, &entries) };
    wait::forever()
}

fn unmapped_save_area(machine: &Machine) -> CaseResult {
    let child = expect_ok!(child::make(machine, 0, 0));
    expect_ok!(child::start(&child, unmapping_child, 0));
    expect_equal!(child::await_stop(&child), StopReason::SaveAreaFull as u64);
    let address = call::environment_read(child.environment, EnvironmentField::StopAddress);
    expect!(address.is_ok_and(|address| address != 0));
    Ok(())
}
