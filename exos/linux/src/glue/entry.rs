//! Upcalls: a program's system calls and faults, faults of exos's own copies, bells.
//!
//! They run on the stack of the thread that was interrupted. Invariant: asynchronous upcalls are masked while these run
//! (the kernel masks on delivery, resume unmasks), so a handler is interrupted by its own page faults only, and gives
//! its processor to another thread only where it blocks.

use aegis_abi::FrameNumber;
use aegis_abi::layout::{LIBOS_BASE, LIBOS_IMAGE_BASE};
use aegis_abi::upcall::{UpcallFrame, UpcallKind};
use aegis_rt::control;
use aegis_rt::upcall::KIND_HELD_BACK;
use core::sync::atomic::{AtomicBool, Ordering};
use exos::error::{Errno, Result};
use exos::fs::permission::Credentials;
use exos::mem::Handler;
use exos::mem::pinned::PinnedMemory;
use exos::platform::FrameBytes;
use exos::reserve::{self, Level};
use exos::rewrite::trampoline::ENTRY_JUMP;
use exos::task::signal::{Signal, SignalInfo};
use exos_linux::abi::time::timespec_words;
use exos_linux::abi::user_memory::UserMemory;
use exos_linux::call::context::{Arguments, Context, Handler as CallHandler};
use exos_linux::call::signal::return_from_handler;
use exos_linux::entry::hot_sites::Heat;
use exos_linux::entry::{
    fast_path::{self, Choice},
    table,
};
use exos_linux::host::boot::Pod;
use exos_linux::task::caller::{Caller, Restart};
use exos_linux::task::exception::{
    FaultCause, PAGE_FAULT_FETCH, VECTOR_DEBUG, VECTOR_INVALID_OPCODE, VECTOR_PAGE_FAULT, VECTOR_PROTECTION,
    signal_for, signal_for_fault,
};
use exos_linux::task::exit::exit_thread;
use exos_linux::task::fault_handler;
use exos_linux::task::memory::{FaultReport, FaultResult};
use exos_linux::task::out_of_memory::{is_heap_low, make_room};
use exos_linux::task::process::FIRST_PID;
use exos_linux::task::signal_delivery::{EndedCall, catch, enter_handler, finish, raise_fault, result_word};
use exos_linux::task::traced;
use exos_linux::trace;

use super::pod::POD;
use super::processor::{this_number, this_processor};
use super::run::{RUN, Run, end};
use super::user::Faulted;
use super::{HEAP_BASE, direct, fast, fiber, kernel, memory, shortage, user, vector};
use exos_linux::abi::linux::{CLOCK_MONOTONIC, CLOCK_REALTIME};

/// RFLAGS: trap after each instruction.
const TRAP_FLAG: u64 = 1 << 8;

/// A call had to use frames that were set aside: at its end somebody has to make room.
static IS_SHORT_OF_MEMORY: AtomicBool = AtomicBool::new(false);

/// The program's memory through faulting copies.
pub(crate) struct ProgramMemory;

impl UserMemory for ProgramMemory {
    fn copy_in(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        user::copy_in(address, into)
    }
    fn copy_out(&self, address: u64, from: &[u8]) -> Result<usize> {
        user::copy_out(address, from)
    }
    fn copy_in_nofault(&self, address: u64, into: &mut [u8]) -> usize {
        user::copy_in_nofault(address, into)
    }
    fn word_nofault(&self, address: u64) -> Option<u32> {
        user::word_nofault(address)
    }
    fn copy_out_nofault(&self, address: u64, from: &[u8]) -> usize {
        user::copy_out_nofault(address, from)
    }
    fn copy_frame_out(
        &self,
        address: u64,
        _: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        length: usize,
    ) -> Result<usize> {
        user::copy_frame_out(address, frame, offset, length)
    }
    fn copy_frame_out_nofault(
        &self,
        address: u64,
        _: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        length: usize,
    ) -> usize {
        user::copy_frame_out_nofault(address, frame, offset, length)
    }
    fn copy_frame_in_nofault(
        &self,
        address: u64,
        _: &dyn FrameBytes,
        frame: FrameNumber,
        offset: usize,
        length: usize,
    ) -> usize {
        user::copy_frame_in_nofault(address, frame, offset, length)
    }
    fn copy_words_out(&self, address: u64, from: &[u64]) -> Result<usize> {
        user::copy_words_out(address, from)
    }
    fn copy_words_out_nofault(&self, address: u64, from: &[u64]) -> usize {
        user::copy_words_out_nofault(address, from)
    }
    fn copy_words_in(&self, address: u64, into: &mut [u64]) -> Result<usize> {
        user::copy_words_in(address, into)
    }
    fn save_vector(&self, address: u64, format: (u64, usize)) -> Result<()> {
        vector::save_in_frame(address, format)
    }
    fn load_vector(&self, address: u64, format: (u64, usize)) -> Result<()> {
        vector::load_from_frame(address, format)
    }
    fn pin(&self, address: u64, length: u64, is_written: bool, memory: &mut PinnedMemory) -> Result<u64> {
        let access = if is_written { exos::mem::Access::Write } else { exos::mem::Access::Read };
        fiber::current().ok_or(Errno::EINVAL)?.owner().0.space().lock().pin(address, length, access, memory)
    }
    fn caller(&self) -> Option<Credentials> {
        let (_, thread) = fiber::current()?.owner();
        Some(thread.identities.lock().for_files())
    }
    #[inline]
    fn zero_out(&self, address: u64, length: usize) -> usize {
        user::zero_out(address, length)
    }
}

fn pod() -> &'static Pod {
    POD.get().expect("upcalls are registered after the run has begun")
}

fn run() -> &'static Run {
    RUN.get().expect("upcalls are registered after the run has begun")
}

/// The running thread.
fn caller(pod: &Pod) -> Caller<'_> {
    let fiber = fiber::current().expect("upcalls come from fibers: idle processors mask them and do not fault");
    let (process, thread) = fiber.owner();
    Caller { system: &pod.system, process, thread, memory: &ProgramMemory }
}

/// As [`caller`], of a call that came through a rewritten site: nobody but a program comes from there.
#[inline(always)]
fn program() -> Caller<'static> {
    // SAFETY: a program runs after the run has begun, and on a fiber that has not ended.
    let (pod, (process, thread)) = unsafe { (POD.get_unchecked(), fiber::owner_of_program()) };
    Caller { system: &pod.system, process, thread, memory: &ProgramMemory }
}

/// A program's `syscall`.
pub(crate) extern "C" fn syscall(frame: &mut UpcallFrame) {
    let pod = pod();
    pod.system.counters.syscalls_trapped.fetch_add(1, Ordering::Relaxed);
    if pod.system.options.rewrite {
        consider_rewriting(pod, frame.rip);
    }
    let served =
        if pod.system.shows_calls.load(Ordering::Relaxed) { serve_shown(pod, frame) } else { serve(pod, frame) };
    if served.is_plain(frame) {
        return end_served(pod, frame, &served);
    }
    let served = served_again(pod, frame, served);
    end_served(pod, frame, &served);
}

/// How a rewritten call ends: RAX, and whether the program's other registers are in the frame, not where they were.
#[repr(C)]
pub(crate) struct Ended {
    word: u64,
    takes_frame: u64,
}

/// A program's system call through a rewritten site.
pub(crate) extern "C" fn rewritten(frame: &mut UpcallFrame) -> Ended {
    fast::clear_attention();
    let pod = pod();
    let served = serve(pod, frame);
    if served.is_plain(frame) && !served.replaces_registers {
        return Ended { word: result_word(served.result), takes_frame: 0 };
    }
    end_rewritten(pod, frame, served)
}

/// What [`Ended::takes_frame`] says of a short way that has nothing more to say: the handler of the table is asked.
pub(crate) const UNANSWERED: u64 = 2;
/// The short way has answered, and [`fast_path_end`] sees to what follows.
const LOOKS_FOR_SIGNALS: u64 = 3;

/// A rewritten call that has a short way. Of `frame` only what Rust code does not preserve is there
/// (`EXOS_LIGHT_FRAME`).
#[inline(always)]
pub(crate) fn by_fast_path(
    frame: &mut UpcallFrame,
    way: impl FnOnce(&Caller<'_>, &mut UpcallFrame) -> fast_path::Answer,
) -> Ended {
    fast::clear_attention();
    let caller = program();
    match way(&caller, frame) {
        Some(result) => fast_answer(&caller, frame, result),
        None => Ended { word: 0, takes_frame: UNANSWERED },
    }
}

/// The same where a handler may be asked.
#[inline(always)]
pub(crate) fn by_choice(frame: &mut UpcallFrame, way: impl FnOnce(&Caller<'_>, &mut UpcallFrame) -> Choice) -> Ended {
    fast::clear_attention();
    let caller = program();
    match way(&caller, frame) {
        Choice::Answer(result) => fast_answer(&caller, frame, result),
        Choice::Handler(handler) => by_handler(frame, handler),
        Choice::Nothing => Ended { word: 0, takes_frame: UNANSWERED },
    }
}

/// By its handler: once for all calls, and from where there is nothing yet to be kept.
#[inline(never)]
fn by_handler(frame: &mut UpcallFrame, handler: CallHandler) -> Ended {
    by_fast_path(frame, |caller, frame| fast_path::handled(caller, frame, handler))
}

#[inline(always)]
fn fast_answer(caller: &Caller<'_>, frame: &UpcallFrame, result: Result<u64>) -> Ended {
    let is_plain = !caller.thread.needs_attention() && frame.rflags & TRAP_FLAG == 0;
    Ended { word: result_word(result), takes_frame: if is_plain { 0 } else { LOOKS_FOR_SIGNALS } }
}

/// The end of a short way after which signals are to be looked at: the frame is whole now, and `word` is the result.
pub(crate) extern "C" fn fast_path_end(frame: &mut UpcallFrame, word: u64) -> Ended {
    let pod = pod();
    let (return_address, continuation) = (frame.rip, core::mem::take(&mut frame.fault_address));
    let number = core::mem::replace(&mut frame.rax, word);
    leave(pod, frame, Some(EndedCall { number, interrupted: None }));
    if frame.rip == return_address {
        frame.rip = continuation;
    }
    Ended { word: frame.rax, takes_frame: 1 }
}

/// `clock_gettime` of the clocks that everybody asks for, with the program's own arguments: a clock and an address. It
/// cannot wait and concerns nobody, so it looks for nothing.
pub(crate) extern "C" fn clock_gettime(clock: u64, address: u64) -> Ended {
    let now_ns = kernel::now_ns();
    let ns = match clock {
        CLOCK_REALTIME => pod().system.realtime_at(now_ns),
        CLOCK_MONOTONIC => now_ns,
        _ => return Ended { word: 0, takes_frame: UNANSWERED },
    };
    let time = timespec_words(ns);
    Ended { word: 0, takes_frame: if user::put_pair(address, time) { 0 } else { UNANSWERED } }
}

/// `tkill`, `tgkill`: a thread that raises a signal itself goes straight to its handler.
pub(crate) extern "C" fn thread_kill(frame: &mut UpcallFrame) -> Ended {
    fast::clear_attention();
    let pod = pod();
    let caller = caller(pod);
    let Some((signal, info)) = fast_path::own_signal(&caller, frame).filter(|_| frame.rflags & TRAP_FLAG == 0) else {
        return rewritten(frame);
    };
    let Some(caught) = catch(&caller, signal) else { return rewritten(frame) };
    let (return_address, continuation) = (frame.rip, core::mem::take(&mut frame.fault_address));
    frame.rax = 0;
    if !enter_handler(&caller, frame, signal, &info, &caught) {
        leave(pod, frame, None);
        if frame.rip == return_address {
            frame.rip = continuation;
        }
    }
    Ended { word: frame.rax, takes_frame: 1 }
}

/// `rt_sigreturn`.
pub(crate) extern "C" fn rt_sigreturn(frame: &mut UpcallFrame) -> Ended {
    fast::clear_attention();
    let pod = pod();
    let caller = caller(pod);
    frame.fault_address = 0;
    return_from_handler(&caller, frame);
    if caller.thread.needs_attention() || frame.rflags & TRAP_FLAG != 0 {
        leave(pod, frame, None);
    }
    Ended { word: frame.rax, takes_frame: 1 }
}

/// The same, with a line for the trace.
pub(crate) extern "C" fn rewritten_shown(frame: &mut UpcallFrame) -> Ended {
    fast::clear_attention();
    let pod = pod();
    let served = serve_shown(pod, frame);
    end_rewritten(pod, frame, served)
}

/// The end of a rewritten call by its frame.
#[cold]
fn end_rewritten(pod: &Pod, frame: &mut UpcallFrame, served: Served) -> Ended {
    let served = served_again(pod, frame, served);
    let (return_address, continuation) = (frame.rip, core::mem::take(&mut frame.fault_address));
    end_served(pod, frame, &served);
    if !served.replaces_registers && frame.rip == return_address {
        frame.rip = continuation;
    }
    Ended { word: frame.rax, takes_frame: 1 }
}

/// The end of a short call during which an upcall came.
pub(crate) extern "C" fn fast_end(frame: &mut UpcallFrame) {
    let pod = pod();
    fast::clear_attention();
    let (return_address, continuation) = (frame.rip, core::mem::take(&mut frame.fault_address));
    leave(pod, frame, None);
    if frame.rip == return_address {
        frame.rip = continuation;
    }
}

/// The first thing that a fiber does, on its own stack, with its program's first registers. Its thread may have been
/// killed, or sent a signal, before: the sender found no processor to tell.
#[unsafe(no_mangle)]
extern "C" fn exos_thread_begins(frame: &mut UpcallFrame) {
    fiber::finish_switch();
    let pod = pod();
    // A copy of a rewritten call's frame, or none of a program's at all.
    frame.fault_address = 0;
    if frame.rip == 0 {
        run().platform.sessions.enter(&caller(pod), frame);
    }
    if caller(pod).thread.needs_attention() {
        leave(pod, frame, None);
    }
}

/// Counts a trap, and rewrites its site when it has trapped often.
fn consider_rewriting(pod: &Pod, return_address: u64) {
    let counters = &pod.system.counters;
    match caller(pod).process.traps.count(return_address) {
        Heat::Cold => {}
        Heat::New => {
            counters.sites_found.fetch_add(1, Ordering::Relaxed);
        }
        Heat::Hot => match caller(pod).process.space().rewrite_site(return_address, fast::ENTRY_OFFSET) {
            Some(Ok(())) => {
                counters.sites_patched.fetch_add(1, Ordering::Relaxed);
                caller(pod).process.space().lock().offer_rewrites(return_address);
            }
            Some(Err(refusal)) => {
                counters.sites_refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
            }
            None => {}
        },
    }
}

/// A system call that has been done.
struct Served {
    number: u64,
    result: Result<u64>,
    replaces_registers: bool,
    restart: Restart,
    needs_attention: bool,
}

impl Served {
    /// Whether nothing is left to be done but to tell the result: nearly always.
    #[inline]
    fn is_plain(&self, frame: &UpcallFrame) -> bool {
        let is_final = match self.result {
            Ok(_) => true,
            Err(error) => !matches!(error, Errno::EINTR | Errno::ENOMEM | Errno::ENOSPC),
        };
        is_final && frame.rflags & TRAP_FLAG == 0 && !self.needs_attention
    }
}

/// Does the system call in `frame`.
#[inline(always)]
fn serve(pod: &Pod, frame: &mut UpcallFrame) -> Served {
    let number = frame.rax;
    let mut context = context(pod, frame);
    let arguments = arguments(context.frame);
    let result = table::dispatch(&mut context, number, arguments);
    let Context { caller, replaces_registers, restart, .. } = context;
    Served { number, result, replaces_registers, restart, needs_attention: caller.thread.needs_attention() }
}

/// The same, with a line for the trace, and the stop that a tracer in the pod asked for.
#[cold]
fn serve_shown(pod: &Pod, frame: &mut UpcallFrame) -> Served {
    let number = frame.rax;
    let mut context = context(pod, frame);
    if traced::stops(&context.caller)
        && let Err(error) = traced::enter_call(&context.caller, context.frame)
    {
        let result = Err(error);
        return Served { number, result, replaces_registers: false, restart: Restart::Never, needs_attention: true };
    }
    if !pod.system.options.trace {
        return serve(pod, frame);
    }
    let arguments = arguments(context.frame);
    let pending = trace::enter(&context, number, arguments);
    let result = table::dispatch(&mut context, number, arguments);
    let mut line = pending.finish(&context, result);
    // As strace marks them: the first needs no number.
    let number_of_thread = context.caller.thread.tid();
    if number_of_thread != pod.thread.tid() {
        line.insert_str(0, &alloc::format!("[pid {number_of_thread}] "));
    }
    pod.system.platform.trace(&line);
    let Context { caller, replaces_registers, restart, .. } = context;
    Served { number, result, replaces_registers, restart, needs_attention: caller.thread.needs_attention() }
}

/// What has failed for want of memory has done nothing: it is done once more whenever there may be some again.
#[cold]
fn served_again(pod: &Pod, frame: &mut UpcallFrame, mut served: Served) -> Served {
    let mut gifts_left = memory::GIFT_COUNT_MAX;
    while matches!(served.result, Err(Errno::ENOMEM | Errno::ENOSPC))
        && !served.needs_attention
        && memory::await_for_call(&mut gifts_left)
    {
        served = serve(pod, frame);
    }
    served
}

/// Tells the result by the frame, and does what follows a call.
fn end_served(pod: &Pod, frame: &mut UpcallFrame, served: &Served) {
    if !served.replaces_registers {
        frame.rax = result_word(served.result);
    }
    if !served.is_plain(frame) {
        let interrupted = (served.result == Err(Errno::EINTR)).then_some(served.restart);
        leave(pod, frame, Some(EndedCall { number: served.number, interrupted }));
    }
}

#[inline]
fn context<'a>(pod: &'a Pod, frame: &'a mut UpcallFrame) -> Context<'a> {
    Context::new(&caller(pod), frame)
}

fn arguments(frame: &UpcallFrame) -> Arguments {
    [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9]
}

/// Acts on signals, and ends the thread if it or its process has ended.
fn leave(pod: &Pod, frame: &mut UpcallFrame, ended: Option<EndedCall>) {
    let caller = caller(pod);
    finish(&caller, frame, ended);
    if frame.rflags & TRAP_FLAG != 0 {
        // Resuming into a single step needs an `iretq` that QEMU before 9.1 cannot do (docs/adr/0003): the program
        // gets the trap that it has had and runs on without more.
        frame.rflags &= !TRAP_FLAG;
    }
    if caller.process.has_ended() || caller.thread.is_ending.load(Ordering::Acquire) {
        exit_thread(&caller);
        if caller.process.pid == FIRST_PID && caller.process.is_zombie.load(Ordering::Acquire) {
            end();
        }
        let now_ns = kernel::now_ns();
        fiber::end(pod.system.scheduler.end(this_number(), now_ns), now_ns);
    }
}

/// Everything else. Afterwards the frame's place is one for calls, some of which do not say what they are.
pub(crate) extern "C" fn other(frame: &mut UpcallFrame) {
    take_other(pod(), frame);
    frame.kind = UpcallKind::Syscall as u32;
}

#[inline(always)]
fn take_other(pod: &Pod, frame: &mut UpcallFrame) {
    if frame.kind == UpcallKind::Exception as u32 {
        return exception(pod, frame);
    }
    let taken = if frame.kind == KIND_HELD_BACK { 0 } else { 1 << frame.kind };
    let kinds = taken | control::take_pending();
    this_processor().take_in(kinds);
    if kinds == 1 << UpcallKind::SliceBegin as u32 {
        // Time is all that this is about: what was interrupted goes on where it was.
        return;
    }
    this_processor().take_bell_of_runner(frame.kind == KIND_HELD_BACK || frame.rip >= LIBOS_BASE);
    if this_number() == 0 {
        if frame.rip < LIBOS_BASE {
            run().platform.absorb();
        } else {
            this_processor().keep_running(|| run().platform.absorb());
        }
    }
    if fast::contains(frame.rip) {
        fast::complete(frame);
    }
    if frame.rip < LIBOS_BASE {
        let now_ns = kernel::now_ns();
        fiber::carry_out(pod.system.scheduler.tick(this_number(), now_ns), now_ns);
        if IS_SHORT_OF_MEMORY.swap(false, Ordering::Relaxed) {
            make_room(&caller(pod));
        }
        if shortage::is_asked() {
            memory::answer(&pod.system);
        }
        show_own_text(pod, frame);
        leave(pod, frame, None);
    } else {
        // A rewritten call has just begun. Signals are looked at when it ends; the turns of others soon.
        pod.system.scheduler.ask_tick(this_number());
    }
}

#[inline]
fn exception(pod: &Pod, frame: &mut UpcallFrame) {
    // A program that jumps to an upper address where no code is faults there as anywhere else; exos itself never does.
    let is_wild_jump = frame.error_code & PAGE_FAULT_FETCH != 0 && frame.vector == VECTOR_PAGE_FAULT;
    if (LIBOS_IMAGE_BASE..HEAP_BASE).contains(&frame.rip) && !is_wild_jump {
        return own_exception(pod, frame);
    }
    let caller = caller(pod);
    if frame.vector != VECTOR_PAGE_FAULT {
        return other_exception(pod, &caller, frame);
    }
    if reserve::level() == Level::Low && is_heap_low(caller.system) {
        // What describes pages has no memory: as where pages have none.
        let handler = caller.process.space().lock().take_shortage_handler();
        if handler.is_some_and(|handler| ask_handler(&caller, &handler, frame, FaultResult::OutOfMemory)) {
            return;
        }
        make_room(&caller);
        return leave(pod, frame, None);
    }
    let FaultReport { result, handler, own_rip } = caller.process.space().resolve_or_report(frame);
    if let FaultResult::Resolved(_) = result {
        if handler.is_some_and(|handler| !ask_handler(&caller, &handler, frame, result)) {
            // The store of watched memory that cannot be told may not go through.
            let (signal, info) = signal_for_fault(frame.fault_address, FaultCause::NotAllowed);
            raise_own(pod, &caller, frame, signal, &info);
        }
        return;
    }
    if own_rip.is_some() && is_at_entry_jump(frame.rip) {
        return;
    }
    if handler.is_some_and(|handler| ask_handler(&caller, &handler, frame, result)) {
        return;
    }
    // Handlers of signals know the program's own text.
    frame.rip = own_rip.unwrap_or(frame.rip);
    if let FaultResult::Failed(cause) = result {
        let (signal, info) = signal_for_fault(frame.fault_address, cause);
        return raise_own(pod, &caller, frame, signal, &info);
    }
    make_room(&caller);
    leave(pod, frame, None);
}

/// Whether the program's handler of a fault, or of a shortage, is entered.
fn ask_handler(caller: &Caller<'_>, handler: &Handler, frame: &mut UpcallFrame, result: FaultResult) -> bool {
    let is_entered = fault_handler::ask(handler, frame, &ProgramMemory, result);
    if is_entered {
        fast::offer_faults(caller.process);
    }
    is_entered
}

/// An exception of a program whose process handles faults itself, on the save area: whether its handler is entered.
///
/// Nothing here waits, gives the processor away or resolves a fault. What would have to comes to [`other`].
#[unsafe(no_mangle)]
extern "C" fn exos_fault_nofault(frame: &mut UpcallFrame) -> bool {
    frame.vector == VECTOR_PAGE_FAULT
        && fiber::current().is_some_and(|fiber| fault_handler::ask_nofault(&fiber.owner().0, frame, &ProgramMemory))
}

/// Raises a fault of the program's own. Nearly always its handler is all that follows.
fn raise_own(pod: &Pod, caller: &Caller<'_>, frame: &mut UpcallFrame, signal: Signal, info: &SignalInfo) {
    match catch(caller, signal) {
        Some(caught) if enter_handler(caller, frame, signal, info, &caught) => return,
        Some(_) => {}
        None => raise_fault(caller, signal, *info),
    }
    leave(pod, frame, None);
}

/// An exception of a program other than a page fault.
fn other_exception(pod: &Pod, caller: &Caller<'_>, frame: &mut UpcallFrame) {
    if matches!(frame.vector, VECTOR_INVALID_OPCODE | VECTOR_PROTECTION)
        && let Some(copy) = caller.process.space().lock().sites().forward(frame.rip)
    {
        // In the middle of a rewritten site: the instruction that stood there is in its trampoline.
        frame.rip = copy;
        return;
    }
    show_own_text(pod, frame);
    let (signal, info) = signal_for(frame);
    raise_own(pod, caller, frame, signal, &info);
}

/// Makes a frame that stands in a trampoline stand at the same place of the program's own text, which is what handlers
/// of signals know.
fn show_own_text(pod: &Pod, frame: &mut UpcallFrame) {
    if let Some(original) = caller(pod).process.space().lock().sites().original(frame.rip) {
        frame.rip = original;
    }
}

/// Whether a trampoline was about to enter exos: as [`is_base_lost`].
#[cold]
fn is_at_entry_jump(rip: u64) -> bool {
    let mut code = [0; ENTRY_JUMP.len()];
    ProgramMemory.copy_in(rip, &mut code) == Ok(code.len()) && code == ENTRY_JUMP
}

/// Whether exos's own instruction there reaches the control page by GS. Its fault is over: a program had loaded GS, and
/// the kernel gave exos its base back in order to tell it of the fault.
fn is_base_lost(rip: u64) -> bool {
    const PREFIX_GS: u8 = 0x65;
    const PREFIX_LOCK: u8 = 0xf0;
    // SAFETY: the processor has read the instruction there, which is of two bytes at least.
    let [first, second] = unsafe { (rip as *const [u8; 2]).read_volatile() };
    first == PREFIX_GS || first == PREFIX_LOCK && second == PREFIX_GS
}

/// A fault of exos itself: a copy from or to the program, or a bug.
fn own_exception(pod: &Pod, frame: &mut UpcallFrame) {
    if frame.vector == VECTOR_DEBUG && fast::contains(frame.rip) {
        // A program that single-steps itself into a rewritten call: the steps in exos are not its business.
        frame.rflags &= !TRAP_FLAG;
        return;
    }
    if frame.vector == VECTOR_PAGE_FAULT && (is_base_lost(frame.rip) || direct::repair(frame.fault_address)) {
        return;
    }
    match user::faulted(frame.rip).filter(|copy| copy.expects(frame)) {
        Some(Faulted { stop, is_nofault: true, .. }) => frame.rip = stop,
        Some(Faulted { stop, .. }) if frame.vector != VECTOR_PAGE_FAULT => frame.rip = stop,
        Some(Faulted { stop, .. }) => {
            let caller = caller(pod);
            if reserve::level() == Level::Low && reserve::refilled_level() == Level::Low {
                IS_SHORT_OF_MEMORY.store(true, Ordering::Relaxed);
                this_processor().ring();
                frame.rip = stop;
                return;
            }
            let mut result = caller.process.space().resolve(frame);
            if matches!(result, FaultResult::OutOfMemory) {
                // Locks may be held here, so nobody is killed or waited for before the call is over.
                IS_SHORT_OF_MEMORY.store(true, Ordering::Relaxed);
                this_processor().ring();
                result = caller.system.pool.with_reserve(|| caller.process.space().resolve(frame));
            }
            if !matches!(result, FaultResult::Resolved(_)) {
                frame.rip = stop;
            }
        }
        None => panic!(
            "exception {} in exos at {:#x}, address {:#x}, error {:#x}",
            frame.vector, frame.rip, frame.fault_address, frame.error_code
        ),
    }
}
