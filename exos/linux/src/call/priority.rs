//! Nice values, attributes of scheduling, and priorities of input and output.
//!
//! A nice value and a policy are a thread's, as on Linux, come to threads and children that it makes, and say how many
//! tickets it has in its group (`exos::task::weight`). Nobody acts on priorities of input and output: there is no queue
//! before a disk. What Linux checks is checked, what it would report is reported.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::block::request::PriorityClass;
use exos::error::{Errno, Result};
use exos::task::capability::Capability;
use exos::task::limits::Resource;
use exos::task::weight::{NICE_MAX, NICE_MIN};

use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::{
    SCHED_FLAG_ALL, SCHED_FLAG_KEEP_PARAMS, SCHED_FLAG_KEEP_POLICY, SCHED_FLAG_RESET_ON_FORK, SCHED_FLAG_UTIL_CLAMP,
};
use crate::abi::linux::{SCHED_IDLE, SCHED_RESET_ON_FORK};
use crate::abi::user_memory::{read_array, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::process::{Process, Thread};

entries! {
    getpriority;
    setpriority;
    sched_setattr(Int, Pointer, Hex): "as sched_setscheduler";
    sched_getattr(Int, Pointer, Size, Hex);
    ioprio_set(Int, Int, Hex): "acted on for disks, by class";
    ioprio_get(Int, Int);
}

/// Bytes of the first `struct sched_attr` and of Linux 6.1's.
const SCHED_ATTR_SIZE_VER0: u64 = 48;
const ATTRIBUTES_BYTES: usize = 56;
/// Most bytes of one that a program may pass.
const ATTRIBUTES_BYTES_MAX: u64 = 4096;

/// A thread and its process; 0 is the caller. `EINVAL` for a negative number, `ESRCH`.
fn find(context: &Context<'_>, tid: u64) -> Result<(Arc<Process>, Arc<Thread>)> {
    let tid = tid as u32;
    if (tid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    if tid == 0 || tid == context.thread.tid() {
        return Ok((context.process.clone(), context.thread.clone()));
    }
    let mut all = context.system.processes.all();
    let found = all.find_map(|process| process.thread(tid).map(|thread| (process, thread)));
    found.or_else(|| context.system.listing.ended(tid)).ok_or(Errno::ESRCH)
}

/// What a program asks `sched_setattr` for.
struct SchedAttributes {
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of `SCHED_DEADLINE`.
    deadline_ns: u64,
}

/// `E2BIG`, with the size that is known in the place of the one passed: too small, too big, or with something set that
/// is not known.
fn read_attributes(context: &Context<'_>, address: u64) -> Result<SchedAttributes> {
    let size = u32::from_le_bytes(read_array(context.memory, address)?);
    let size = if size == 0 { SCHED_ATTR_SIZE_VER0 } else { u64::from(size) };
    let refuse = || {
        write_all(context.memory, address, &(ATTRIBUTES_BYTES as u32).to_le_bytes())?;
        Err(Errno::E2BIG)
    };
    if !(SCHED_ATTR_SIZE_VER0..=ATTRIBUTES_BYTES_MAX).contains(&size) {
        return refuse();
    }
    let mut bytes = read_vec(context.memory, address, size, ATTRIBUTES_BYTES_MAX as usize)?;
    bytes.resize(bytes.len().max(ATTRIBUTES_BYTES), 0);
    if bytes[ATTRIBUTES_BYTES..].iter().any(|byte| *byte != 0) {
        return refuse();
    }
    let flags = get::u64(&bytes, 8);
    if flags & SCHED_FLAG_UTIL_CLAMP != 0 && size < ATTRIBUTES_BYTES as u64 {
        return Err(Errno::EINVAL);
    }
    let nice = (get::u32(&bytes, 16) as i32).clamp(NICE_MIN, NICE_MAX);
    let deadline_ns = get::u64(&bytes, 32);
    Ok(SchedAttributes { policy: get::u32(&bytes, 4), flags, nice, priority: get::u32(&bytes, 20), deadline_ns })
}

/// `sched_setattr(2)`.
pub fn sched_setattr(context: &mut Context<'_>, [tid, address, flags, ..]: Arguments) -> Result<u64> {
    if address == 0 || (tid as u32 as i32) < 0 || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = read_attributes(context, address)?;
    if (wanted.policy as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let (process, thread) = find(context, tid)?;
    let before = thread.policy.load(Ordering::Relaxed);
    let (policy, resets) = if wanted.flags & SCHED_FLAG_KEEP_POLICY != 0 {
        (before & !SCHED_RESET_ON_FORK, before & SCHED_RESET_ON_FORK != 0)
    } else {
        (wanted.policy, wanted.flags & SCHED_FLAG_RESET_ON_FORK != 0)
    };
    let keeps = wanted.flags & SCHED_FLAG_KEEP_PARAMS != 0;
    let priority = if keeps { 0 } else { wanted.priority };
    match policy {
        0 | 3 | 5 | 6 if priority != 0 => return Err(Errno::EINVAL),
        1 | 2 if !(1..=99).contains(&priority) => return Err(Errno::EINVAL),
        0..=3 | 5 | 6 if wanted.flags & !SCHED_FLAG_ALL != 0 => return Err(Errno::EINVAL),
        0 | 3 | 5 => {}
        6 if wanted.deadline_ns == 0 => return Err(Errno::EINVAL),
        // Promised turns do not exist here.
        1 | 2 | 6 => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    }
    let sets_nice = !keeps && policy != SCHED_IDLE;
    let limit = process.limits.lock().soft(Resource::Nice);
    let is_less = sets_nice && wanted.nice < thread.nice() && (20 - wanted.nice) as u64 > limit
        || leaves_idle(&process, &thread, policy)
        || before & SCHED_RESET_ON_FORK != 0 && !resets
        || !is_own(context, &process);
    if is_less && !context.can(Capability::SYS_NICE) {
        return Err(Errno::EPERM);
    }
    if wanted.flags & SCHED_FLAG_UTIL_CLAMP != 0 {
        // As of a kernel without clamps of how busy a thread looks.
        return Err(Errno::EOPNOTSUPP);
    }
    thread.policy.store(policy | if resets { SCHED_RESET_ON_FORK } else { 0 }, Ordering::Relaxed);
    if sets_nice {
        thread.nice.store(wanted.nice, Ordering::Relaxed);
    }
    thread.weigh();
    Ok(0)
}

/// Whether a thread is to have an idle one's policy no more, whose nice value the process could not choose.
pub(super) fn leaves_idle(process: &Process, thread: &Thread, policy: u32) -> bool {
    let limit = process.limits.lock().soft(Resource::Nice);
    let is_idle = thread.policy.load(Ordering::Relaxed) & !SCHED_RESET_ON_FORK == SCHED_IDLE;
    is_idle && policy != SCHED_IDLE && (20 - thread.nice()) as u64 > limit
}

/// Whether a process is of the caller's user.
fn is_own(context: &Context<'_>, process: &Arc<Process>) -> bool {
    if Arc::ptr_eq(context.process, process) {
        return true;
    }
    let user = context.thread.identities.lock().uid[1];
    let theirs = process.identities.lock().uid;
    user == theirs[0] || user == theirs[1]
}

/// `sched_getattr(2)`.
pub fn sched_getattr(context: &mut Context<'_>, [tid, address, size, flags, ..]: Arguments) -> Result<u64> {
    let size = u64::from(size as u32);
    let is_size = (SCHED_ATTR_SIZE_VER0..=ATTRIBUTES_BYTES_MAX).contains(&size);
    if address == 0 || !is_size || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let (_, thread) = find(context, tid)?;
    let policy = thread.policy.load(Ordering::Relaxed);
    let nice = thread.nice();
    let length = size.min(ATTRIBUTES_BYTES as u64) as u32;
    let bytes = Encoder::new()
        .u32(length)
        .u32(policy & !SCHED_RESET_ON_FORK)
        .u64(if policy & SCHED_RESET_ON_FORK != 0 { SCHED_FLAG_RESET_ON_FORK } else { 0 })
        .u32(if policy & !SCHED_RESET_ON_FORK == SCHED_IDLE { 0 } else { nice as u32 })
        .zero_to(ATTRIBUTES_BYTES)
        .finish();
    write_all(context.memory, address, &bytes[..length as usize])?;
    Ok(0)
}

/// `getpriority(2)`: the answer is 20 minus the nice value, of the most favoured if several are meant.
pub fn getpriority(context: &mut Context<'_>, [which, who, ..]: Arguments) -> Result<u64> {
    let targets = priority_targets(context, which, who)?;
    let nice = targets.iter().map(|(_, thread)| thread.nice()).min().ok_or(Errno::ESRCH)?;
    Ok((20 - nice) as u64)
}

/// `setpriority(2)`: of each that is meant where it is allowed; the last refusal is the answer.
pub fn setpriority(context: &mut Context<'_>, [which, who, value, ..]: Arguments) -> Result<u64> {
    let wanted = (value as u32 as i32).clamp(NICE_MIN, NICE_MAX);
    let is_privileged = context.can(Capability::SYS_NICE);
    let mut result = Ok(0);
    for (process, thread) in priority_targets(context, which, who)? {
        let limit = process.limits.lock().soft(Resource::Nice);
        if !is_privileged && !is_own(context, &process) {
            result = Err(Errno::EPERM);
        } else if !is_privileged && wanted < thread.nice() && (20 - wanted) as u64 > limit {
            result = Err(Errno::EACCES);
        } else {
            thread.nice.store(wanted, Ordering::Relaxed);
            thread.weigh();
        }
    }
    result
}

/// As [`targets`], with the numbers of `PRIO_PROCESS` and its kin. `EINVAL`, `ESRCH`.
fn priority_targets(context: &Context<'_>, which: u64, who: u64) -> Result<Vec<(Arc<Process>, Arc<Thread>)>> {
    match which as u32 {
        which @ 0..=2 => targets(context, u64::from(which) + 1, who),
        _ => Err(Errno::EINVAL),
    }
}

/// The class of a priority of input and output, and what it is within the class.
fn class_of(priority: u32) -> (u32, u32) {
    const IOPRIO_CLASS_SHIFT: u32 = 13;
    ((priority >> IOPRIO_CLASS_SHIFT) & 7, priority & ((1 << IOPRIO_CLASS_SHIFT) - 1))
}

/// Classes: real time, best effort, idle.
const IOPRIO_CLASS_NONE: u32 = 0;
const IOPRIO_CLASS_RT: u32 = 1;
const IOPRIO_CLASS_BE: u32 = 2;
const IOPRIO_CLASS_IDLE: u32 = 3;
const IOPRIO_NR_LEVELS: u32 = 8;

/// `ioprio_set(2)`.
pub fn ioprio_set(context: &mut Context<'_>, [which, who, priority, ..]: Arguments) -> Result<u64> {
    let priority = priority as u32;
    match class_of(priority) {
        (IOPRIO_CLASS_RT, _) if !context.can(Capability::SYS_ADMIN) && !context.can(Capability::SYS_NICE) => {
            return Err(Errno::EPERM);
        }
        // Above the level are hints, which nothing looks at.
        (IOPRIO_CLASS_RT | IOPRIO_CLASS_BE | IOPRIO_CLASS_IDLE, _) => {}
        (IOPRIO_CLASS_NONE, data) if data % IOPRIO_NR_LEVELS == 0 => {}
        _ => return Err(Errno::EINVAL),
    }
    for (process, thread) in targets(context, which, who)? {
        let real = context.thread.identities.lock().uid[0];
        let is_real_user = process.identities.lock().uid[0] == real;
        if !is_real_user && !is_own(context, &process) && !context.can(Capability::SYS_NICE) {
            return Err(Errno::EPERM);
        }
        thread.io_priority.store(priority, Ordering::Relaxed);
    }
    Ok(0)
}

/// `ioprio_get(2)`: of one what was set, of several the highest that would count.
pub fn ioprio_get(context: &mut Context<'_>, [which, who, ..]: Arguments) -> Result<u64> {
    let targets = targets(context, which, who)?;
    if which as u32 == IOPRIO_WHO_PROCESS {
        let thread = targets.first().map(|(_, thread)| thread.io_priority.load(Ordering::Relaxed));
        return thread.map(u64::from).ok_or(Errno::ESRCH);
    }
    let highest = targets.iter().map(|(_, thread)| effective(thread)).min();
    highest.map(u64::from).ok_or(Errno::ESRCH)
}

/// What counts for a thread: a priority that was not set follows from policy and nice value.
fn effective(thread: &Thread) -> u32 {
    let set = thread.io_priority.load(Ordering::Relaxed);
    if class_of(set).0 != IOPRIO_CLASS_NONE {
        return set;
    }
    let is_idle = thread.policy.load(Ordering::Relaxed) & !SCHED_RESET_ON_FORK == SCHED_IDLE;
    let class = if is_idle { IOPRIO_CLASS_IDLE } else { IOPRIO_CLASS_BE };
    class << 13 | ((thread.nice() + 20) / 5) as u32
}

/// Whose disk requests those of a thread are.
pub fn io_class(thread: &Thread) -> PriorityClass {
    match class_of(effective(thread)).0 {
        IOPRIO_CLASS_RT => PriorityClass::RealTime,
        IOPRIO_CLASS_IDLE => PriorityClass::Idle,
        _ => PriorityClass::BestEffort,
    }
}

/// `IOPRIO_WHO_PROCESS`.
const IOPRIO_WHO_PROCESS: u32 = 1;

/// The threads that `which` and `who` mean: one, a group's, a user's. `ESRCH`: none.
fn targets(context: &Context<'_>, which: u64, who: u64) -> Result<Vec<(Arc<Process>, Arc<Thread>)>> {
    let who = who as u32;
    let processes: Vec<_> = match which as u32 {
        IOPRIO_WHO_PROCESS if (who as i32) < 0 => return Err(Errno::ESRCH),
        IOPRIO_WHO_PROCESS => return Ok(alloc::vec![find(context, u64::from(who))?]),
        2 => {
            let group = if who == 0 { *context.process.group.lock() } else { who };
            context.system.processes.in_group(group).collect()
        }
        3 => {
            let uid = if who == 0 { context.thread.identities.lock().uid[0] } else { who };
            let all = context.system.processes.all();
            all.filter(|process| process.identities.lock().uid[0] == uid).collect()
        }
        _ => return Err(Errno::EINVAL),
    };
    let threads = processes.into_iter().flat_map(|process| {
        let threads = process.threads.lock().clone();
        threads.into_iter().map(move |thread| (process.clone(), thread))
    });
    let threads: Vec<_> = threads.collect();
    if threads.is_empty() { Err(Errno::ESRCH) } else { Ok(threads) }
}
