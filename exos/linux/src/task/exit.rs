//! How threads and processes end.
//!
//! [`exit_thread`] is the last thing that a thread does in the personality: it tells the thread's waiters, and the last
//! thread of a process gives back its files and memory and tells the parent. What is left is a zombie until the parent
//! waits. The caller then ends the task, and with it the thread's stack.
//!
//! A process ends by itself only here, at the end of a call or of an upcall, when its threads hold no lock: so none of
//! the pod's shared state is ever left half changed by a process that is killed.

use alloc::sync::Arc;
use core::sync::atomic::{Ordering, fence};

use exos::fs::readiness::Readiness;
use exos::task::limits::Resource;
use exos::task::signal::{Disposition, HANDLER_IGNORE, Signal, SignalInfo, SignalPayload};

use crate::abi::linux::{SA_NOCLDSTOP, SA_NOCLDWAIT};
use crate::task::caller::Caller;
use crate::task::futex_word::{release_robust, wake_address};
use crate::task::memory::Space;
use crate::task::process::{Ending, FIRST_PID, NO_PARENT, Process};
use crate::task::system::System;

/// The processor's note in a page-table entry that it was used.
const ACCESSED: u64 = aegis_abi::memory::entry::ACCESSED;
/// What `wait` and `SIGCHLD` say of a change in a child (`CLD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildChange {
    /// It ended.
    Ended,
    /// It stopped.
    Stopped(Signal),
    /// It waits for its tracer, at that signal.
    Trapped(u8),
    /// It goes on.
    Continued,
}

/// `si_code` and `si_status` of a change.
#[must_use]
pub fn child_code(child: &Process, change: ChildChange) -> (i32, i32) {
    match change {
        ChildChange::Trapped(status) => (4, i32::from(status)),
        ChildChange::Stopped(signal) => (5, i32::from(signal.number())),
        ChildChange::Continued => (6, i32::from(Signal::CONT.number())),
        ChildChange::Ended => match &*child.ending.lock() {
            Some(Ending::Killed { signal, has_core, .. }) => {
                // Of a limit of 0, which is how it starts, Linux writes no core file.
                let is_written = *has_core && child.limits.lock().soft(Resource::Core) > 0;
                (if is_written { 3 } else { 2 }, i32::from(signal.number()))
            }
            Some(Ending::Exited(status)) => (1, i32::from(*status)),
            None => (1, 0),
        },
    }
}

/// Ends the calling thread: afterwards its task must be ended, and nothing of the program touched.
pub fn exit_thread(caller: &Caller<'_>) {
    let (system, process, thread) = (caller.system, caller.process, caller.thread);
    release_thread_words(caller);
    thread.time.note_dispatch(false, system.kernel.now_ns());
    let is_last = {
        let mut threads = process.threads.lock();
        process.times.lock().ended_threads += thread.time.used_in_all();
        // Threads mostly end in the order in which they began.
        if let Some(place) = threads.iter().position(|other| other.tid() == thread.tid()) {
            threads.remove(place);
        }
        if threads.len() == 1 {
            process.files.note_threads(false);
        }
        threads.is_empty()
    };
    if thread.tid() != process.pid {
        system.processes.give_number(thread.tid());
        system.listing.remove_thread(process.pid, thread.tid());
    }
    // One that waits in `execve` or for a thread of the same process looks again.
    process.changes.notify(Readiness::READ);
    // The others are woken only for what this thread may have been told of and not taken: so that the end of many
    // threads costs each of them the same.
    if process.has_news() {
        process.interrupt_threads();
    }
    if is_last {
        exit_process(system, process);
    }
}

/// The words of program memory that others wait on: robust mutexes that the thread holds, and the one that
/// `pthread_join` waits for. A thread that ends gives them back, and one that runs another program.
pub fn release_thread_words(caller: &Caller<'_>) {
    release_robust(caller);
    // From here on no thread begins to wait for it; one that has begun is told below.
    caller.thread.has_left_locks.store(true, Ordering::Release);
    caller.system.locks.abandon(&caller.thread.task);
    let address = core::mem::take(&mut *caller.thread.clear_tid_address.lock());
    let is_seen = caller.process.threads.lock().len() > 1 || caller.process.borrows_memory.load(Ordering::Acquire);
    if address != 0
        && is_seen
        && crate::abi::user_memory::write_all(caller.memory, address, &0_u32.to_le_bytes()).is_ok()
    {
        wake_address(caller.system, caller.process, address, usize::MAX);
    }
}

/// Gives back what the process held, and tells its parent.
fn exit_process(system: &Arc<System>, process: &Arc<Process>) {
    process.ending.lock().get_or_insert(Ending::Exited(0));
    process.work.end(process);
    process.files.close_all();
    system.ipc.semaphores.process_ends(process.pid, system.realtime_ns() / 1_000_000_000);
    // A program that has ended can be written again; a zombie has no command line on Linux either.
    let image = core::mem::take(&mut *process.image.lock());
    drop(image);
    release_memory(system, process);
    adopt_children(system, process);
    if *process.session.lock() == process.pid {
        system.files.terminals.end_session(process.pid);
    }
    // A child whose parent does not want to know of ends cannot be waited for, not for a moment.
    let parent = system.processes.get(process.parent());
    let is_claimed = parent.is_some_and(|parent| is_unwanted(process, &child_disposition(&parent)) && claim(process));
    process.is_zombie.store(true, Ordering::Release);
    // Either the parent that ends sees a zombie, or this process its new parent (`adopt_children`).
    fence(Ordering::SeqCst);
    tell_parent(system, process, (ChildChange::Ended, is_claimed));
    process.changes.notify(Readiness::READ);
}

/// Leaves the process's memory and drops it, or gives it back to the parent that lent it.
pub fn release_memory(system: &Arc<System>, process: &Arc<Process>) {
    {
        let space = process.space();
        let mut memory = space.lock();
        if !process.borrows_memory.load(Ordering::Acquire) {
            // Nobody changes the tables while the space is locked, and the processor is in it until it is left below.
            memory.note_touched(|address| system.platform.page_entry(address) & ACCESSED != 0);
        }
        process.note_peak(memory.resident_peak() * 4096);
    }
    let before = process.replace_space(system.empty_space.clone());
    give_memory_back(system, process, before);
}

/// Lets go of memory that the process ran in until now: the processor leaves it first.
pub fn give_memory_back(system: &Arc<System>, process: &Arc<Process>, before: Arc<Space>) {
    if !process.borrows_memory.load(Ordering::Acquire) {
        crate::task::attachments::note_detached(system, process, &before);
        system.note_faults(before.lock().fault_counts());
    }
    system.platform.enter_space(&process.space());
    drop(before);
    if process.borrows_memory.swap(false, Ordering::AcqRel) {
        process.changes.notify(Readiness::READ);
    }
}

/// Children without a parent go to the nearest ancestor that asked for them, to the first process, where it is an
/// `init`, or to exos.
fn adopt_children(system: &Arc<System>, process: &Arc<Process>) {
    let mut children = system.processes.children_of(process.pid).peekable();
    if children.peek().is_none() {
        return;
    }
    let heir = heir_of(system, process);
    // Its end was noted before: a child that begins to be traced sees that, or is seen here (`traced::begin`).
    fence(Ordering::SeqCst);
    for child in children {
        if child.trace.is_on() {
            if child.trace.tracer_ends(process.pid) {
                child.raise(Signal::KILL, SignalInfo::default());
            }
            child.interrupt_threads();
        }
        system.processes.set_parent(&child, heir);
        fence(Ordering::SeqCst);
        if let Ok(signal) = Signal::new(u64::from(child.parent_death_signal.load(Ordering::Relaxed))) {
            child.raise(signal, SignalInfo::default());
        }
        if child.is_zombie.load(Ordering::Acquire) {
            tell_parent(system, &child, (ChildChange::Ended, false));
        }
    }
    orphaned_groups(system, process);
}

fn heir_of(system: &Arc<System>, process: &Process) -> u32 {
    let mut at = process.parent();
    // Ends: each step goes to a parent, and chains are no longer than the table.
    for _ in 0..crate::task::processes::COUNT_MAX {
        match system.processes.get(at) {
            Some(ancestor) if ancestor.is_subreaper.load(Ordering::Relaxed) && !ancestor.has_ended() => return at,
            Some(ancestor) => at = ancestor.parent(),
            None => break,
        }
    }
    let has_init = || system.processes.get(FIRST_PID).is_some_and(|first| !first.has_ended());
    if system.options.has_init && has_init() { FIRST_PID } else { NO_PARENT }
}

/// Whether nobody outside of a group, but in its session, is the parent of a member.
#[must_use]
pub fn is_orphaned(system: &System, group: u32) -> bool {
    let has_guardian = |member: Arc<Process>| {
        let session = *member.session.lock();
        system.processes.get(member.parent()).is_some_and(|parent| {
            let is_outside = *parent.group.lock() != group;
            is_outside && *parent.session.lock() == session && !parent.has_ended()
        })
    };
    !system.processes.in_group(group).filter(|member| !member.has_ended()).any(has_guardian)
}

/// A stopped group that nobody is left to continue gets `SIGHUP` and `SIGCONT`.
fn orphaned_groups(system: &Arc<System>, process: &Process) {
    let group = *process.group.lock();
    let members = || system.processes.in_group(group).filter(|member| member.pid != process.pid);
    let is_stopped = members().any(|member| member.pause.lock().stopped_by.is_some());
    if is_stopped && is_orphaned(system, group) {
        for member in members() {
            member.raise(Signal::HUP, SignalInfo::default());
            member.raise(Signal::CONT, SignalInfo::default());
        }
    }
}

/// Whether the caller is the one that [`forget`]s a process that has ended. Several threads of its parent may find it
/// at once, and its number is soon another's.
#[must_use]
pub fn claim(child: &Process) -> bool {
    !child.is_claimed.swap(true, Ordering::AcqRel)
}

/// Whether a parent that treats its children's signal so has a child forgotten when it ends.
fn is_unwanted(child: &Process, wanted: &Disposition) -> bool {
    child.exit_signal.load(Ordering::Relaxed) == Signal::CHLD.number()
        && (wanted.handler == HANDLER_IGNORE || wanted.flags & SA_NOCLDWAIT != 0)
}

/// Tells the parent about a change: its signal and its waiters. A parent that does not want to know of ends has the
/// child forgotten, and so is a child without a parent; the caller says whether it has claimed it.
pub fn tell_parent(system: &Arc<System>, child: &Arc<Process>, (change, is_claimed): (ChildChange, bool)) {
    let is_end = change == ChildChange::Ended;
    let Some(parent) = system.processes.get(child.parent()) else {
        if is_end && child.pid != FIRST_PID && (is_claimed || claim(child)) {
            forget(system, child);
        }
        return;
    };
    let wanted = child_disposition(&parent);
    let exit_signal = child.exit_signal.load(Ordering::Relaxed);
    let is_silent = match change {
        ChildChange::Ended => exit_signal == 0,
        ChildChange::Stopped(_) | ChildChange::Trapped(_) | ChildChange::Continued => wanted.flags & SA_NOCLDSTOP != 0,
    };
    let number = if is_end { exit_signal } else { Signal::CHLD.number() };
    if is_end && (is_claimed || is_unwanted(child, &wanted) && claim(child)) {
        forget(system, child);
    }
    if let Ok(signal) = Signal::new(u64::from(number))
        && !is_silent
    {
        let (code, status) = child_code(child, change);
        let uid = child.identities.lock().uid[0];
        let payload = SignalPayload::Child { pid: child.pid, uid, status };
        parent.raise(signal, SignalInfo { code, errno: 0, payload });
    }
    parent.changes.notify(Readiness::READ);
}

fn child_disposition(parent: &Process) -> Disposition {
    parent.signals.lock().dispositions.get(Signal::CHLD)
}

/// Takes a zombie out of all tables. The caller has [`claim`]ed it.
pub fn forget(system: &Arc<System>, child: &Arc<Process>) {
    system.listing.remove_process(child.pid);
    system.processes.remove(child.pid);
}
