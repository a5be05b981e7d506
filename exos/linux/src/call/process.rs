//! Making processes and threads, and waiting for them: `fork`, `vfork`, `clone`, `clone3`, `exit`, `wait4`, `waitid`.
//!
//! A new thread shares everything; a new process has a copy of memory by copy on write, or borrows its parent's until
//! it calls `execve` or ends (`vfork`), and a copy of the descriptor table. What lies between the two (a table shared
//! by processes, say) is refused by name rather than half done.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::fs::description::StatusFlags;
use exos::fs::readiness::Readiness;
use exos::preempt::Interruption;
use exos::reserve;
use exos::task::capability::Capability;
use exos::task::limits::Resource;
use exos::task::signal::Signal;

use super::pidfd;
use super::schedule::{inherited_nice, inherited_policy};
use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::{__WALL, __WCLONE, __WNOTHREAD};
use crate::abi::linux::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_DETACHED, CLONE_FILES, CLONE_FS,
    CLONE_INTO_CGROUP, CLONE_IO, CLONE_PARENT, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_SETTLS, CLONE_SIGHAND,
    CLONE_SYSVSEM, CLONE_THREAD, CLONE_UNTRACED, CLONE_VFORK, CLONE_VM, WCONTINUED, WEXITED, WNOHANG, WNOWAIT,
    WUNTRACED,
};
use crate::abi::time::timeval;
use crate::abi::user_memory::{read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::caller::Restart;
use crate::task::exit::{ChildChange, child_code, claim, forget};
use crate::task::interruption::interruption;
use crate::task::process::{Birth, Ending, Process, Thread};
use crate::task::system::ThreadStart;
use crate::task::timers::arm_processor_limit;
use crate::task::used_time::UsedTime;

entries! {
    fork();
    vfork();
    clone: "no namespaces; processes do not share a descriptor table";
    clone3: "no namespaces, chosen numbers or CLONE_INTO_CGROUP";
    exit(Int) -> Never;
    exit_group(Int) -> Never;
    wait4(Int, Pointer, Hex, Pointer);
    waitid;
    set_tid_address(Pointer);
}

const CLONE_KNOWN: u64 = CLONE_VM
    | CLONE_FS
    | CLONE_FILES
    | CLONE_SIGHAND
    | CLONE_PIDFD
    | CLONE_VFORK
    | CLONE_PARENT
    | CLONE_THREAD
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_DETACHED
    | CLONE_UNTRACED
    | CLONE_CHILD_SETTID
    | CLONE_IO
    | CLONE_CLEAR_SIGHAND;
/// Bytes of the first version of `struct clone_args`.
const CLONE_ARGUMENTS_BYTES_MIN: u64 = 64;
/// Most bytes of it that a program may pass.
const CLONE_ARGUMENTS_BYTES_MAX: u64 = 4096;
/// Bytes of it that are looked at.
const CLONE_ARGUMENTS_BYTES: usize = 88;

/// What `clone` is to make.
#[derive(Clone, Copy, Debug, Default)]
struct CloneArgs {
    flags: u64,
    exit_signal: u8,
    /// The new stack pointer, 0 for the caller's.
    stack: u64,
    thread_storage: u64,
    parent_tid: u64,
    child_tid: u64,
    /// Where the descriptor of `CLONE_PIDFD` goes.
    descriptor: u64,
}

/// `fork(2)`.
pub fn fork(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    make(context, CloneArgs { exit_signal: Signal::CHLD.number(), ..CloneArgs::default() })
}

/// `vfork(2)`.
pub fn vfork(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    let flags = CLONE_VM | CLONE_VFORK;
    make(context, CloneArgs { flags, exit_signal: Signal::CHLD.number(), ..CloneArgs::default() })
}

/// `clone(2)` with x86-64's order of arguments.
pub fn clone(
    context: &mut Context<'_>,
    [flags, stack, parent_tid, child_tid, thread_storage, _]: Arguments,
) -> Result<u64> {
    let (flags, exit_signal, descriptor) = (flags & 0xffff_ff00, flags as u8, parent_tid);
    make(context, CloneArgs { flags, exit_signal, stack, thread_storage, parent_tid, child_tid, descriptor })
}

/// `clone3(2)`.
pub fn clone3(context: &mut Context<'_>, [address, length, ..]: Arguments) -> Result<u64> {
    if length < CLONE_ARGUMENTS_BYTES_MIN {
        return Err(Errno::EINVAL);
    }
    if length > CLONE_ARGUMENTS_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let mut bytes = [0; CLONE_ARGUMENTS_BYTES];
    let passed = read_vec(context.memory, address, length, CLONE_ARGUMENTS_BYTES_MAX as usize)?;
    let (known, unknown) = passed.split_at(passed.len().min(CLONE_ARGUMENTS_BYTES));
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    bytes[..known.len()].copy_from_slice(known);
    let field = |index: usize| get::u64(&bytes, index * 8);
    let [flags, exit_signal, stack, stack_bytes] = [field(0), field(4), field(5), field(6)];
    // set_tid, set_tid_size; and the flags that only `clone` passes over, or that leave no signal to choose.
    if field(8) != 0 || field(9) != 0 || flags & CLONE_DETACHED != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & (CLONE_THREAD | CLONE_PARENT) != 0 && exit_signal != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = if flags & CLONE_INTO_CGROUP == 0 { flags } else { without_group(context, flags, field(10))? };
    let exit_signal = u8::try_from(exit_signal).ok().filter(|number| *number <= 64).ok_or(Errno::EINVAL)?;
    if (stack == 0) != (stack_bytes == 0) {
        return Err(Errno::EINVAL);
    }
    let stack = stack.checked_add(stack_bytes).ok_or(Errno::EINVAL)?;
    let (child_tid, parent_tid, thread_storage) = (field(2), field(3), field(7));
    let descriptor = field(1);
    make(context, CloneArgs { flags, exit_signal, stack, thread_storage, parent_tid, child_tid, descriptor })
}

/// `CLONE_INTO_CGROUP`: a group is joined by writing to its `cgroup.procs` only, so no descriptor names one.
fn without_group(context: &Context<'_>, flags: u64, descriptor: u64) -> Result<u64> {
    let descriptor = i32::try_from(descriptor).map_err(|_| Errno::EINVAL)?;
    context.process.files.get(descriptor as u64)?;
    let is_good = flags & !(CLONE_KNOWN | CLONE_INTO_CGROUP) == 0;
    Err(if is_good { Errno::EBADF } else { Errno::EINVAL })
}

/// Checks a combination as Linux does (`copy_process`), and for what is not there.
fn check(args: &CloneArgs) -> Result<()> {
    let has = |flag| args.flags & flag != 0;
    let is_bad = args.flags & !CLONE_KNOWN != 0
        || has(CLONE_THREAD) && !has(CLONE_SIGHAND)
        || has(CLONE_SIGHAND) && !has(CLONE_VM)
        || has(CLONE_CLEAR_SIGHAND) && has(CLONE_SIGHAND)
        || has(CLONE_PIDFD) && (has(CLONE_THREAD) || has(CLONE_DETACHED))
        || has(CLONE_PIDFD) && has(CLONE_PARENT_SETTID) && args.descriptor == args.parent_tid;
    if is_bad {
        return Err(Errno::EINVAL);
    }
    // Memory, descriptors or directories shared by processes that both run, or signal handlers without threads: no C
    // library asks for it.
    let is_shared = has(CLONE_VM) || has(CLONE_FILES) || has(CLONE_FS);
    let is_half = is_shared && !has(CLONE_THREAD) && !has(CLONE_VFORK);
    if is_half { Err(Errno::ENOSYS) } else { Ok(()) }
}

fn make(context: &mut Context<'_>, args: CloneArgs) -> Result<u64> {
    check(&args)?;
    if args.flags & CLONE_THREAD != 0 { make_thread(context, &args) } else { make_process(context, &args) }
}

/// The first registers of what is made: the caller's, with 0 as the call's result.
fn first_frame(context: &Context<'_>, args: &CloneArgs) -> UpcallFrame {
    let mut frame = *context.frame;
    frame.rax = 0;
    if args.stack != 0 {
        frame.rsp = args.stack;
    }
    frame
}

/// A thread of `process` with the caller's identities, mask and name.
fn new_thread(context: &Context<'_>, process: &Process, tid: u32, args: &CloneArgs) -> Arc<Thread> {
    let identities = context.thread.identities.lock().clone();
    let thread = Thread::new(tid, process, identities, context.system.scheduler.new_task(Some(&context.thread.task)));
    if process.pid == context.process.pid {
        process.files.note_threads(true);
    }
    thread.task.set_affinity(context.thread.task.affinity());
    thread.policy.store(inherited_policy(context.thread), Ordering::Relaxed);
    thread.nice.store(inherited_nice(context.thread), Ordering::Relaxed);
    if thread.nice() != context.thread.nice() {
        thread.weigh();
    }
    thread.io_priority.store(context.thread.io_priority.load(Ordering::Relaxed), Ordering::Relaxed);
    thread.timer_slack_ns.store(context.thread.timer_slack_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    thread.flags.store(context.thread.flags.load(Ordering::Relaxed), Ordering::Relaxed);
    *thread.memory_policy.lock() = *context.thread.memory_policy.lock();
    thread.signals.lock().mask = context.thread.signals.lock().mask;
    thread.name.lock().clone_from(&context.thread.name.lock());
    if args.flags & CLONE_CHILD_CLEARTID != 0 {
        *thread.clear_tid_address.lock() = args.child_tid;
    }
    Arc::new(thread)
}

fn thread_start(args: &CloneArgs) -> ThreadStart {
    ThreadStart { fs_base: (args.flags & CLONE_SETTLS != 0).then_some(args.thread_storage) }
}

fn check_thread_storage(args: &CloneArgs) -> Result<()> {
    let is_bad = args.flags & CLONE_SETTLS != 0 && args.thread_storage >= aegis_abi::layout::PROGRAM_END;
    if is_bad { Err(Errno::EPERM) } else { Ok(()) }
}

/// `EAGAIN` if the user has as many processes and threads as allowed.
fn check_count(context: &Context<'_>) -> Result<()> {
    let limit = context.process.limits.lock().soft(Resource::Processes);
    let uid = context.thread.identities.lock().uid[0];
    if uid == 0 || context.can(Capability::SYS_RESOURCE) || context.can(Capability::SYS_ADMIN) {
        return Ok(());
    }
    if (context.system.processes.number_count() as u64) < limit {
        return Ok(());
    }
    let own = context.system.processes.all();
    let count: usize = own
        .filter(|process| process.identities.lock().uid[0] == uid)
        .map(|process| process.threads.lock().len().max(1))
        .sum();
    if count as u64 >= limit { Err(Errno::EAGAIN) } else { Ok(()) }
}

fn make_thread(context: &mut Context<'_>, args: &CloneArgs) -> Result<u64> {
    check_thread_storage(args)?;
    check_count(context)?;
    let tid = context.system.processes.take_number()?;
    let thread = new_thread(context, context.process, tid, args);
    context.process.space().note_threads(context.system.processor_count > 1);
    let frame = first_frame(context, args);
    let started = write_tids(context, args, tid).and_then(|()| {
        context.system.listing.make_room(context.process.pid)?;
        let mut threads = context.process.threads.lock();
        reserve::reserve(&mut threads, 1)?;
        // In the list before it runs, so that the end of the process reaches it.
        threads.push(thread.clone());
        drop(threads);
        thread.facts.parent.store(context.process.visible_parent(), Ordering::Relaxed);
        context.system.listing.add_process(context.process.clone(), thread.clone());
        context.system.platform.start_thread(context.process, &thread, &frame, thread_start(args))
    });
    if let Err(error) = started {
        context.process.threads.lock().retain(|other| other.tid() != tid);
        context.system.listing.remove_thread(context.process.pid, tid);
        context.system.processes.give_number(tid);
        return Err(error);
    }
    if context.process.has_ended() {
        thread.summon();
    }
    Ok(u64::from(tid))
}

/// Both words are in memory that the caller sees: a thread's. A failed write is passed over, as on Linux.
fn write_tids(context: &Context<'_>, args: &CloneArgs, tid: u32) -> Result<()> {
    let words = [(CLONE_PARENT_SETTID, args.parent_tid), (CLONE_CHILD_SETTID, args.child_tid)];
    for (flag, address) in words {
        if args.flags & flag != 0 {
            let _ = write_all(context.memory, address, &tid.to_le_bytes());
        }
    }
    Ok(())
}

fn make_process(context: &mut Context<'_>, args: &CloneArgs) -> Result<u64> {
    check_thread_storage(args)?;
    check_count(context)?;
    if !context.system.shared.may_fork() {
        return Err(Errno::EAGAIN);
    }
    let pid = context.system.processes.take_number()?;
    let made = new_process(context, pid, args).and_then(|process| {
        let descriptor = open_descriptor(context, &process, args)?;
        start_process(context, &process, args).inspect_err(|_| close_descriptor(context, descriptor))
    });
    match made {
        Ok(process) => {
            if args.flags & CLONE_VFORK != 0 {
                wait_for_memory(context, &process);
            }
            Ok(u64::from(pid))
        }
        Err(error) => {
            context.system.listing.remove_process(pid);
            context.system.processes.remove(pid);
            Err(error)
        }
    }
}

/// The descriptor of `CLONE_PIDFD`, which the new process does not have.
fn open_descriptor(context: &Context<'_>, process: &Arc<Process>, args: &CloneArgs) -> Result<Option<u64>> {
    if args.flags & CLONE_PIDFD == 0 {
        return Ok(None);
    }
    let descriptor = pidfd::open(context, process, StatusFlags::empty())?;
    let written = write_all(context.memory, args.descriptor, &(descriptor as u32).to_le_bytes());
    written.map(|()| Some(descriptor)).inspect_err(|_| close_descriptor(context, Some(descriptor)))
}

fn close_descriptor(context: &Context<'_>, descriptor: Option<u64>) {
    if let Some(descriptor) = descriptor {
        let removed = context.process.files.table().remove(descriptor as u32);
        drop(removed);
    }
}

/// A copy of the calling process without threads.
fn new_process(context: &Context<'_>, pid: u32, args: &CloneArgs) -> Result<Arc<Process>> {
    let caller = context.process;
    let borrows = args.flags & CLONE_VM != 0;
    if args.flags & CLONE_PARENT_SETTID != 0 {
        let _ = write_all(context.memory, args.parent_tid, &pid.to_le_bytes());
    }
    let memory = if borrows { caller.space() } else { Arc::new(caller.space().fork()?) };
    if !borrows {
        crate::task::attachments::note_attached(context.system, caller, &memory);
    }
    if args.flags & CLONE_CHILD_SETTID != 0 {
        let _ = memory.lock().write_all(args.child_tid, &pid.to_le_bytes());
    }
    let parent = if args.flags & CLONE_PARENT != 0 { caller.parent() } else { caller.pid };
    let identities = context.thread.identities.lock().clone();
    let process = Process::new(Birth {
        pid,
        parent,
        group: *caller.group.lock(),
        session: *caller.session.lock(),
        memory,
        files: caller.files.fork(&context.system.files.namespace)?,
        identities,
        start_ns: context.now_ns(),
    });
    process.exit_signal.store(args.exit_signal, Ordering::Relaxed);
    let is_sibling = args.flags & CLONE_PARENT != 0;
    let maker = if is_sibling { caller.maker.load(Ordering::Relaxed) } else { context.thread.tid() };
    process.maker.store(maker, Ordering::Relaxed);
    process.control_group.store(caller.control_group.load(Ordering::Relaxed), Ordering::Relaxed);
    process.borrows_memory.store(borrows, Ordering::Release);
    process.persona.store(caller.persona.load(Ordering::Relaxed), Ordering::Relaxed);
    process.has_left_terminal.store(caller.has_left_terminal.load(Ordering::Relaxed), Ordering::Relaxed);
    process.has_registered_barriers.store(caller.has_registered_barriers.load(Ordering::Relaxed), Ordering::Relaxed);
    process.has_no_large_pages.store(caller.has_no_large_pages.load(Ordering::Relaxed), Ordering::Relaxed);
    process.was_key_asked.store(caller.was_key_asked.load(Ordering::Relaxed), Ordering::Relaxed);
    process.limits.lock().clone_from(&caller.limits.lock());
    process.image.lock().clone_from(&caller.image.lock());
    {
        let mut signals = process.signals.lock();
        signals.dispositions.clone_from(&caller.signals.lock().dispositions);
        signals.dispositions.is_init = false;
        if args.flags & CLONE_CLEAR_SIGHAND != 0 {
            signals.dispositions.reset_for_exec();
        }
    }
    *process.out_of_memory_adjust.lock() = *caller.out_of_memory_adjust.lock();
    Ok(Arc::new(process))
}

fn start_process(context: &Context<'_>, process: &Arc<Process>, args: &CloneArgs) -> Result<Arc<Process>> {
    let thread = new_thread(context, process, process.pid, args);
    if args.flags & CLONE_VM == 0 {
        // A copy has the caller's alternate stack too; one that borrows memory must not use it.
        *thread.stack.lock() = *context.thread.stack.lock();
    }
    context.system.listing.make_room(process.pid)?;
    process.threads.lock().push(thread.clone());
    context.system.processes.add(process.clone());
    // Who kills many goes through them in the order of their numbers. One that came by has no child afterwards: its
    // child is in the table before, with a higher number as a rule, or does not come about.
    if interruption(context.process, context.thread) == Interruption::Kill {
        return Err(Errno::EINTR);
    }
    arm_processor_limit(context.system, process);
    context.system.listing.add_process(process.clone(), thread.clone());
    let frame = first_frame(context, args);
    context.system.platform.start_thread(process, &thread, &frame, thread_start(args))?;
    Ok(process.clone())
}

/// Waits until `child` has let go of the memory that it borrowed. Only the caller's own end cuts this short, or a
/// signal that is going to end it; then the child keeps the memory alive.
fn wait_for_memory(context: &mut Context<'_>, child: &Arc<Process>) {
    let _registration = context.watch(&child.changes, Readiness::READ);
    let is_killed = || interruption(context.process, context.thread) == Interruption::Kill;
    while child.borrows_memory.load(Ordering::Acquire) && !is_killed() {
        context.system.platform.wait(None);
    }
}

/// `exit(2)`: of one thread. The last one's status is the process's.
pub fn exit(context: &mut Context<'_>, [status, ..]: Arguments) -> Result<u64> {
    if context.process.threads.lock().len() == 1 {
        context.process.end(Ending::Exited(status as u8));
    }
    context.thread.is_ending.store(true, Ordering::Release);
    context.thread.call_attention();
    context.replaces_registers = true;
    Ok(0)
}

/// `exit_group(2)`.
pub fn exit_group(context: &mut Context<'_>, [status, ..]: Arguments) -> Result<u64> {
    context.process.end(Ending::Exited(status as u8));
    context.replaces_registers = true;
    Ok(0)
}

/// `set_tid_address(2)`.
pub fn set_tid_address(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    *context.thread.clear_tid_address.lock() = address;
    Ok(u64::from(context.thread.tid()))
}

/// `__WNOTHREAD`, `__WALL`, `__WCLONE`.
const KINDS: u64 = 0xe000_0000;

/// Which children are waited for.
enum Choice {
    Any,
    Same(Arc<Process>),
    Process(u32),
    Group(u32),
}

/// What was found of a child.
struct Found {
    pid: u32,
    uid: u32,
    change: ChildChange,
    code: i32,
    status: i32,
    used: UsedTime,
    peak_bytes: u64,
}

fn is_chosen(context: &Context<'_>, child: &Arc<Process>, choice: &Choice, options: u64) -> bool {
    if options & __WNOTHREAD != 0 && parent_thread(context, child) != context.thread.tid() {
        return false;
    }
    let is_named = match choice {
        Choice::Any => true,
        Choice::Same(target) => Arc::ptr_eq(child, target),
        Choice::Process(pid) => child.pid == *pid,
        Choice::Group(group) => *child.group.lock() == *group,
    };
    let is_clone = child.exit_signal.load(Ordering::Relaxed) != Signal::CHLD.number();
    is_named && (options & __WALL != 0 || is_clone == (options & __WCLONE != 0))
}

/// The thread of the caller's process whose child it is: its maker, or the first one that is left.
fn parent_thread(context: &Context<'_>, child: &Process) -> u32 {
    let maker = child.maker.load(Ordering::Relaxed);
    let threads = context.process.threads.lock();
    let is_there = threads.iter().any(|thread| thread.tid() == maker);
    if is_there { maker } else { threads.first().map_or(maker, |thread| thread.tid()) }
}

/// The first answer about one of the children that are chosen, of which there may be thousands.
fn find_child<T>(
    context: &Context<'_>,
    choice: &Choice,
    options: u64,
    mut look: impl FnMut(&Arc<Process>) -> Option<T>,
) -> Option<T> {
    let (processes, own) = (&context.system.processes, context.process.pid);
    let mut look = |child: &Arc<Process>| is_chosen(context, child, choice, options).then(|| look(child)).flatten();
    // One that is named is not looked for among all.
    if let Choice::Process(pid) = choice {
        return look(&processes.get(*pid).filter(|child| child.parent() == own)?);
    }
    processes.children_of(own).find_map(|child| look(&child))
}

/// The first change among the children that are chosen; `ECHILD` if there are no such children.
fn look(context: &Context<'_>, choice: &Choice, options: u64) -> Result<Option<Found>> {
    // Of one that has ended nothing but that can be told, and once.
    let is_told = |child: &Process| options & WEXITED == 0 || child.is_claimed.load(Ordering::Acquire);
    let may_tell = |child: &Arc<Process>| !child.is_zombie.load(Ordering::Acquire) || !is_told(child);
    let found = find_child(context, choice, options, |child| look_at(context, child, options));
    // Asked after the look: of one that another thread has claimed during it no news will come.
    let told = |child: &Arc<Process>| may_tell(child).then_some(());
    if found.is_none() && find_child(context, choice, options, told).is_none() {
        return Err(Errno::ECHILD);
    }
    Ok(found)
}

fn look_at(context: &Context<'_>, child: &Arc<Process>, options: u64) -> Option<Found> {
    let reaps = options & WNOWAIT == 0;
    let change = {
        let mut pause = child.pause.lock();
        if child.is_zombie.load(Ordering::Acquire) {
            let is_there = options & WEXITED != 0 && !child.is_claimed.load(Ordering::Acquire);
            (is_there && (!reaps || claim(child))).then_some(ChildChange::Ended)?
        } else if let Some(status) = child.trace.report(context.process.pid, reaps) {
            // A tracer hears of it without asking.
            ChildChange::Trapped(status)
        } else if options & WUNTRACED != 0 && pause.is_stop_unreported {
            pause.is_stop_unreported = !reaps;
            ChildChange::Stopped(pause.stopped_by?)
        } else if options & WCONTINUED != 0 && pause.is_continue_unreported {
            pause.is_continue_unreported = !reaps;
            ChildChange::Continued
        } else {
            return None;
        }
    };
    let (code, status) = child_code(child, change);
    let uid = child.identities.lock().uid[0];
    let mut used = child.used_time(context.now_ns());
    let mut peak_bytes = child.peak_bytes();
    {
        let times = child.times.lock();
        used += times.children;
        peak_bytes = peak_bytes.max(times.children_peak_bytes);
    }
    if change == ChildChange::Ended && reaps {
        // What nobody waits for is not counted.
        let mut times = context.process.times.lock();
        times.children += used;
        times.children_peak_bytes = times.children_peak_bytes.max(peak_bytes);
        drop(times);
        forget(context.system, child);
    }
    Some(Found { pid: child.pid, uid, change, code, status, used, peak_bytes })
}

/// Waits for a change; `None` with `WNOHANG` if there is none.
fn wait_for(context: &mut Context<'_>, choice: Choice, options: u64) -> Result<Option<Found>> {
    context.restart = Restart::UnlessHandlerForbids;
    let _registration = context.watch(&context.process.changes, Readiness::READ);
    loop {
        match look(context, &choice, options)? {
            None if options & WNOHANG == 0 => {
                if let Err(error) = context.wait(None) {
                    // The signal may be the child's own news, which comes first.
                    return look(context, &choice, options)?.map(Some).ok_or(error);
                }
            }
            found => return Ok(found),
        }
    }
}

/// The status word of `wait4`.
fn status_word(found: &Found) -> u32 {
    let status = found.status as u32;
    match found.change {
        ChildChange::Stopped(_) | ChildChange::Trapped(_) => status << 8 | 0x7f,
        ChildChange::Continued => 0xffff,
        ChildChange::Ended if found.code == 1 => (status & 0xff) << 8,
        ChildChange::Ended => status & 0x7f | if found.code == 3 { 0x80 } else { 0 },
    }
}

fn usage(found: &Found) -> Vec<u8> {
    let times = [timeval(found.used.user_ns()), timeval(found.used.system_ns)];
    Encoder::new().raw(&times[0]).raw(&times[1]).u64(found.peak_bytes / 1024).zero_to(144).finish()
}

/// `wait4(2)`.
pub fn wait4(context: &mut Context<'_>, [pid, status, options, resources, ..]: Arguments) -> Result<u64> {
    let options = u64::from(options as u32);
    if options & !(WNOHANG | WUNTRACED | WCONTINUED | KINDS) != 0 {
        return Err(Errno::EINVAL);
    }
    let choice = match pid as u32 as i32 {
        -1 => Choice::Any,
        0 => Choice::Group(*context.process.group.lock()),
        i32::MIN => return Err(Errno::ESRCH),
        pid if pid < 0 => Choice::Group(pid.unsigned_abs()),
        pid => Choice::Process(pid.unsigned_abs()),
    };
    let Some(found) = wait_for(context, choice, options | WEXITED)? else { return Ok(0) };
    if status != 0 {
        write_all(context.memory, status, &status_word(&found).to_le_bytes())?;
    }
    if resources != 0 {
        write_all(context.memory, resources, &usage(&found))?;
    }
    Ok(u64::from(found.pid))
}

/// `waitid(2)`: what it tells of nothing found, or of a failure, is zeros.
pub fn waitid(context: &mut Context<'_>, [kind, number, info, options, resources, _]: Arguments) -> Result<u64> {
    let outcome = look_for(context, [kind, number, options]);
    let found = outcome.as_ref().ok().and_then(Option::as_ref);
    if resources != 0
        && let Some(found) = found
    {
        write_all(context.memory, resources, &usage(found))?;
    }
    if info != 0 {
        let [signal, code, pid, uid, status] = found.map_or([0; 5], |found| {
            [u32::from(Signal::CHLD.number()), found.code as u32, found.pid, found.uid, found.status as u32]
        });
        // The word between the two parts and what is behind them stay as they are.
        write_all(context.memory, info, [signal, 0, code].map(u32::to_le_bytes).as_flattened())?;
        write_all(context.memory, info.wrapping_add(16), [pid, uid, status].map(u32::to_le_bytes).as_flattened())?;
    }
    outcome.map(|_| 0)
}

/// What `waitid` waits for.
fn look_for(context: &mut Context<'_>, [kind, number, options]: [u64; 3]) -> Result<Option<Found>> {
    let options = u64::from(options as u32);
    let wanted = options & (WEXITED | WUNTRACED | WCONTINUED);
    if options & !(WNOHANG | WUNTRACED | WEXITED | WCONTINUED | WNOWAIT | KINDS) != 0 || wanted == 0 {
        return Err(Errno::EINVAL);
    }
    let mut is_non_blocking = false;
    let choice = match kind as u32 {
        3 if (number as u32 as i32) < 0 => return Err(Errno::EINVAL),
        3 => {
            let (description, target) = pidfd::named(context, number)?;
            is_non_blocking = description.is_non_blocking();
            Choice::Same(target)
        }
        0 => Choice::Any,
        1 if number as u32 as i32 > 0 => Choice::Process(number as u32),
        2 if number as u32 == 0 => Choice::Group(*context.process.group.lock()),
        2 if number as u32 as i32 > 0 => Choice::Group(number as u32),
        _ => return Err(Errno::EINVAL),
    };
    let waits = if is_non_blocking { options | WNOHANG } else { options };
    let found = wait_for(context, choice, waits)?;
    if found.is_none() && options & WNOHANG == 0 {
        return Err(Errno::EAGAIN);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use exos::error::Errno;
    use exos::task::signal::{Signal, SignalInfo};
    use syscalls::Sysno;

    use crate::testing::calls::World;

    #[test]
    fn who_is_killed_as_it_forks_leaves_no_child_and_no_attachment() {
        let world = World::new();
        let segment = world.call(Sysno::shmget, [0u64, 9000, 0o1600]).expect("makes");
        world.call(Sysno::shmat, [segment, 0, 0]).expect("attaches");
        let system = world.pod.system.clone();
        let attached = || system.ipc.segments.list()[0].attached_count;
        let before = (system.processes.count(), attached());
        world.pod.process.raise(Signal::KILL, SignalInfo::default());
        assert_eq!(world.call(Sysno::fork, [0u64; 0]), Err(Errno::EINTR));
        assert_eq!((system.processes.count(), attached()), before);
    }
}
