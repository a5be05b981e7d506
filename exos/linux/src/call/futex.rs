//! `futex(2)` and its kin.
//!
//! The queues are `exos::task::futex`, the program's words [`crate::task::futex_word`]. A word that Linux changes
//! atomically is changed atomically in its frame, because other processors may run the same program.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::task::futex::{FutexKey, FutexTable, FutexWait, FutexWaiter, MATCH_ANY};
use exos::task::lock::{Claim, Holder, LockWord};
use exos::task::schedule::Task;

use super::pidfd::may_trace;
use crate::abi::bytes::get;
use crate::abi::linux::{FUTEX_32, FUTEX_CLOCK_REALTIME, FUTEX_PRIVATE_FLAG, FUTEX_WAITV_MAX};
use crate::abi::time as abi;
use crate::abi::user_memory::{UserMemory, read_array, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::caller::Caller;
use crate::task::caller::Restart;
use crate::task::futex_word::{key_of, private_key};
use crate::task::process::{Process, Thread};
use crate::task::system::System;

entries! {
    futex(Pointer, Word(FUTEX_OPERATIONS), Int, Pointer): "no FUTEX_FD, no requeue to PI words";
    futex_waitv;
    set_robust_list(Pointer, Size);
    get_robust_list;
}

/// Bytes of `struct robust_list_head`.
const ROBUST_HEAD_BYTES: u64 = 24;

/// `FUTEX_WAIT` and `FUTEX_WAKE` with the flag for words that other processes do not know.
pub(crate) const WAIT_PRIVATE: u32 = FUTEX_PRIVATE_FLAG as u32;
/// See [`WAIT_PRIVATE`].
pub(crate) const WAKE_PRIVATE: u32 = 1 | FUTEX_PRIVATE_FLAG as u32;

/// [`WAKE_PRIVATE`].
#[inline(always)]
pub(crate) fn wake_private(caller: &Caller<'_>, address: u64, count: u32) -> Result<u64> {
    let futexes = &caller.system.futexes;
    if wake_count(count) > 1 {
        return wake_several_private(futexes, caller.process, address, count);
    }
    Ok(futexes.wake_one(private_key(caller.process, address)?, MATCH_ANY) as u64)
}

#[inline(never)]
fn wake_several_private(futexes: &FutexTable<Task>, process: &Process, address: u64, count: u32) -> Result<u64> {
    Ok(futexes.wake(private_key(process, address)?, wake_count(count), MATCH_ANY) as u64)
}

/// [`WAIT_PRIVATE`] without a time.
#[inline(always)]
pub(crate) fn wait_private(context: &mut Context<'_>, address: u64, expected: u32) -> Result<u64> {
    let key = private_key(context.process, address)?;
    wait(context, key, address, expected, MATCH_ANY, None)
}

/// How many waiters a wake means: as on Linux one also for 0 and for negative numbers.
#[inline]
fn wake_count(word: u32) -> usize {
    (word as i32).max(1) as usize
}

/// How many waiters a move means. `EINVAL`.
fn move_count(word: u64) -> Result<usize> {
    usize::try_from(word as u32 as i32).map_err(|_| Errno::EINVAL)
}

fn read_word(memory: &dyn UserMemory, address: u64) -> Result<u32> {
    Ok(u32::from_le_bytes(read_array(memory, address)?))
}

/// When a wait ends: relative on the monotonic clock for `FUTEX_WAIT`, else absolute.
fn deadline(context: &mut Context<'_>, operation: u64, flags: u64, timeout: u64) -> Result<Option<u64>> {
    if timeout == 0 {
        return Ok(None);
    }
    let ns = abi::read_timespec(context.memory, timeout)?;
    Ok(Some(match operation {
        0 => context.deadline_after(ns),
        // LOCK_PI is always on the realtime clock; LOCK_PI2 (13) has the flag.
        6 => context.now_ns().saturating_add(ns.saturating_sub(context.system.realtime_ns())),
        _ if flags & FUTEX_CLOCK_REALTIME != 0 => {
            context.now_ns().saturating_add(ns.saturating_sub(context.system.realtime_ns()))
        }
        _ => ns,
    }))
}

/// `futex(2)`.
pub fn futex(context: &mut Context<'_>, [address, operation, value, timeout, second, third]: Arguments) -> Result<u64> {
    let flags = operation & (FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    let operation = u64::from(operation as u32) & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    let is_private = flags & FUTEX_PRIVATE_FLAG != 0;
    // Which operations take their time from the realtime clock if it is said so.
    if flags & FUTEX_CLOCK_REALTIME != 0 && !matches!(operation, 9 | 11 | 13) {
        return Err(Errno::ENOSYS);
    }
    let mask = if matches!(operation, 9 | 10) { third as u32 } else { MATCH_ANY };
    if mask == 0 {
        return Err(Errno::EINVAL);
    }
    let key = |context: &Context<'_>, address| key_of(context.process, address, is_private);
    match operation {
        0 | 9 => {
            let deadline_ns = deadline(context, operation, flags, timeout)?;
            let key = key(context, address)?;
            wait(context, key, address, value as u32, mask, deadline_ns)
        }
        1 | 10 => {
            let key = key(context, address)?;
            Ok(context.system.futexes.wake(key, wake_count(value as u32), mask) as u64)
        }
        3 | 4 => {
            let counts = (move_count(value)?, move_count(timeout)?);
            let (from, to) = (key(context, address)?, key(context, second)?);
            let memory = context.memory;
            let look = || Ok(operation == 3 || read_word(memory, address)? == third as u32);
            let (woken, moved) = context.system.futexes.requeue(from, to, counts.0, counts.1, look)?;
            Ok((woken + moved) as u64)
        }
        5 => wake_operation(context, [address, second], [value, timeout], third as u32, is_private),
        6 | 13 => {
            let deadline_ns = deadline(context, operation, flags, timeout)?;
            let key = key(context, address)?;
            lock_owned(context, key, address, deadline_ns)
        }
        7 | 8 => {
            let (key, tid) = (key(context, address)?, context.thread.tid());
            let (locks, word) = (&context.system.locks, ProgramWord { process: context.process, address });
            let is_there = |tid| holder_of(context.system, context.process, tid).is_some();
            let done = match operation {
                7 => locks.release(key, tid, &word),
                _ => locks.try_acquire(key, tid, &word, is_there),
            };
            done.map(|()| 0)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// Joins the queue of a word whose page was not at hand: it is made present before the queues are locked.
#[cold]
fn wait_for_present<'a>(
    (system, thread, memory): (&'a System, &'a Thread, &dyn UserMemory),
    key: FutexKey,
    (address, expected): (u64, u32),
    mask: u32,
) -> Result<FutexWait<'a, Task>> {
    read_word(memory, address)?;
    system.futexes.wait_if(key, mask, &thread.futex, || Ok(read_word(memory, address)? == expected))
}

#[inline(always)]
fn wait(
    context: &mut Context<'_>,
    key: FutexKey,
    address: u64,
    expected: u32,
    mask: u32,
    deadline_ns: Option<u64>,
) -> Result<u64> {
    // A wait with a time does not start again after a handler.
    context.restart = match (deadline_ns, context.restart) {
        (None, _) => Restart::UnlessHandlerForbids,
        (Some(_), relative @ Restart::UnlessHandlerUntil(_)) => relative,
        (Some(_), _) => Restart::UnlessHandler,
    };
    let (system, thread, memory) = (context.system, context.thread, context.memory);
    let look = || memory.word_nofault(address).map(|word| word == expected).ok_or(Errno::EFAULT);
    let mut waiting = match system.futexes.wait_if(key, mask, &thread.futex, look) {
        Err(Errno::EFAULT) => wait_for_present((system, thread, memory), key, (address, expected), mask)?,
        outcome => outcome?,
    };
    loop {
        let Some(still) = waiting.end_if_woken() else { return Ok(0) };
        waiting = still;
        if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            return Err(Errno::ETIMEDOUT);
        }
        if context.has_signal() {
            return if waiting.is_woken() { Ok(0) } else { Err(Errno::EINTR) };
        }
        context.sleep(deadline_ns);
    }
}

/// Bytes of `struct futex_waitv`.
const VECTOR_ENTRY_BYTES: usize = 24;

/// `futex_waitv(2)`: until any of several words is woken; which one it was.
pub fn futex_waitv(context: &mut Context<'_>, [entries, count, flags, timeout, clock, _]: Arguments) -> Result<u64> {
    let count = u64::from(count as u32);
    if flags as u32 != 0 || count == 0 || count > FUTEX_WAITV_MAX || entries == 0 {
        return Err(Errno::EINVAL);
    }
    let deadline_ns = match (timeout, clock as u32) {
        (0, _) => None,
        (_, 0 | 1) => {
            let clock_ns = if clock as u32 == 0 { context.system.realtime_ns() } else { context.now_ns() };
            let ns = abi::read_timespec(context.memory, timeout)?;
            Some(context.now_ns().saturating_add(ns.saturating_sub(clock_ns)))
        }
        _ => return Err(Errno::EINVAL),
    };
    let limit = FUTEX_WAITV_MAX as usize * VECTOR_ENTRY_BYTES;
    let bytes = read_vec(context.memory, entries, count * VECTOR_ENTRY_BYTES as u64, limit)?;
    let entries = bytes.chunks_exact(VECTOR_ENTRY_BYTES);
    let is_good =
        |entry: &[u8]| get::u32(entry, 16) & !(FUTEX_PRIVATE_FLAG as u32) == FUTEX_32 && get::u32(entry, 20) == 0;
    if !entries.clone().all(is_good) {
        return Err(Errno::EINVAL);
    }
    let words = entries.map(|entry| {
        let (value, address) = (get::u64(entry, 0) as u32, get::u64(entry, 8));
        let is_private = get::u32(entry, 16) & FUTEX_PRIVATE_FLAG as u32 != 0;
        Ok((key_of(context.process, address, is_private)?, address, value))
    });
    let words = words.collect::<Result<Vec<_>>>()?;
    wait_for_any(context, &words, deadline_ns)
}

fn wait_for_any(context: &mut Context<'_>, words: &[(FutexKey, u64, u32)], deadline_ns: Option<u64>) -> Result<u64> {
    context.restart = Restart::UnlessHandlerForbids;
    let (system, memory) = (context.system, context.memory);
    let new_waiter = |_: &_| FutexWaiter::new(context.thread.task.clone());
    let waiters: Vec<_> = words.iter().map(new_waiter).collect();
    let mut waits = Vec::with_capacity(words.len());
    // As on Linux, the last of those that were woken is told.
    let woken = |waits: &[FutexWait<'_, Task>]| waits.iter().rposition(FutexWait::is_woken).map(|index| index as u64);
    for ((key, address, expected), waiter) in words.iter().zip(&waiters) {
        read_word(memory, *address)?;
        let look = || Ok(read_word(memory, *address)? == *expected);
        match system.futexes.wait_if(*key, MATCH_ANY, waiter, look) {
            Ok(wait) => waits.push(wait),
            Err(error) => return woken(&waits).ok_or(error),
        }
    }
    loop {
        if let Some(index) = woken(&waits) {
            return Ok(index);
        }
        if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            return Err(Errno::ETIMEDOUT);
        }
        if let Err(error) = context.wait(deadline_ns) {
            return woken(&waits).ok_or(error);
        }
    }
}

/// `FUTEX_WAKE_OP`: changes the second word, wakes waiters of the first, and those of the second if it was so.
fn wake_operation(
    context: &Context<'_>,
    [first, second]: [u64; 2],
    [count, second_count]: [u64; 2],
    encoded: u32,
    is_private: bool,
) -> Result<u64> {
    let signed = |bits: u32| (bits as i32) << 20 >> 20;
    let (operand, compared) = (signed(encoded >> 12 & 0xfff), signed(encoded & 0xfff));
    let operand = if encoded & 1 << 31 == 0 { operand as u32 } else { 1_u32.wrapping_shl(operand as u32 & 31) };
    let keys = [first, second].map(|address| key_of(context.process, address, is_private));
    let [first_key, second_key] = keys;
    let (first_key, second_key) = (first_key?, second_key?);
    let before = context.process.space().update_u32(second, |word| {
        Ok(match encoded >> 28 & 7 {
            0 => operand,
            1 => word.wrapping_add(operand),
            2 => word | operand,
            3 => word & !operand,
            4 => word ^ operand,
            _ => return Err(Errno::ENOSYS),
        })
    })?;
    let before = before as i32;
    let holds = match encoded >> 24 & 15 {
        0 => before == compared,
        1 => before != compared,
        2 => before < compared,
        3 => before <= compared,
        4 => before > compared,
        5 => before >= compared,
        _ => return Err(Errno::ENOSYS),
    };
    let mut woken = context.system.futexes.wake(first_key, wake_count(count as u32), MATCH_ANY);
    if holds {
        woken += context.system.futexes.wake(second_key, wake_count(second_count as u32), MATCH_ANY);
    }
    Ok(woken as u64)
}

/// A lock's word in a program's memory.
struct ProgramWord<'a> {
    process: &'a Process,
    address: u64,
}

impl LockWord for ProgramWord<'_> {
    fn update(&self, change: &dyn Fn(u32) -> Result<u32>) -> Result<u32> {
        self.process.space().update_u32(self.address, change)
    }
}

/// `FUTEX_LOCK_PI`: the word holds its owner's number.
fn lock_owned(context: &mut Context<'_>, key: FutexKey, address: u64, deadline_ns: Option<u64>) -> Result<u64> {
    context.restart = Restart::Always;
    let (system, process) = (context.system, context.process);
    let me = Holder { tid: context.thread.tid(), task: context.thread.task.clone() };
    let mut orphan = None;
    loop {
        let word = ProgramWord { process, address };
        let find = |tid| holder_of(system, process, tid);
        let Some(waiting) = system.locks.acquire(key, &me, orphan, &word, find)? else { return Ok(0) };
        orphan = Some(loop {
            match waiting.claim() {
                Claim::Holds => return Ok(0),
                Claim::Orphaned(tid) => break tid,
                Claim::Waits => {}
            }
            if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
                return Err(Errno::ETIMEDOUT);
            }
            if let Err(error) = context.wait(deadline_ns)
                && waiting.claim() == Claim::Waits
            {
                return Err(error);
            }
        });
    }
}

/// A thread of the pod, the caller's process first.
fn thread_of(system: &System, process: &Process, tid: u32) -> Option<Arc<Thread>> {
    process.thread(tid).or_else(|| system.processes.all().find_map(|process| process.thread(tid)))
}

/// The task of a thread that could hold a lock: one that has not yet left those that it held.
fn holder_of(system: &System, process: &Process, tid: u32) -> Option<Arc<Task>> {
    let thread = thread_of(system, process, tid).filter(|thread| !thread.has_left_locks.load(Ordering::Acquire))?;
    Some(thread.task.clone())
}

/// `set_robust_list(2)`.
pub fn set_robust_list(context: &mut Context<'_>, [head, length, ..]: Arguments) -> Result<u64> {
    if length != ROBUST_HEAD_BYTES {
        return Err(Errno::EINVAL);
    }
    *context.thread.robust_list.lock() = (head, length);
    Ok(0)
}

/// `get_robust_list(2)`: of the caller or another thread that it may look into.
pub fn get_robust_list(context: &mut Context<'_>, [tid, head, length, ..]: Arguments) -> Result<u64> {
    let thread = match tid as u32 {
        0 => context.thread.clone(),
        tid if context.process.thread(tid).is_some() => context.process.thread(tid).ok_or(Errno::ESRCH)?,
        tid => {
            let owner = context.system.processes.named(tid).ok_or(Errno::ESRCH)?;
            if !may_trace(context, &owner) {
                return Err(Errno::EPERM);
            }
            owner.thread(tid).ok_or(Errno::ESRCH)?
        }
    };
    let (address, bytes) = *thread.robust_list.lock();
    write_all(context.memory, length, &bytes.to_le_bytes())?;
    write_all(context.memory, head, &address.to_le_bytes())?;
    Ok(0)
}
