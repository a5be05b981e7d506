//! The end of the pod's memory: which process has to go, so that the others can go on.
//!
//! As on Linux: the one whose end frees most, after `oom_score_adj`, and the first process of the pod only where there
//! is no other, because its end is the pod's. What counts is what exos gets back: pages, page tables, stacks, what
//! waits in pipes, files without a name, and something for each area and descriptor. It is killed by a mark as by any
//! `SIGKILL`, gives its memory back where it next looks, and the thread that met the end of memory waits for that and
//! tries again.
//!
//! Neighbours: page faults (`glue/entry.rs`), `/proc/PID/oom_score` and `oom_score_adj`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use exos::mem::FramePool;
use exos::platform::LogLevel;
use exos::reserve::{self, Level};
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::abi::linux::SI_KERNEL;
use crate::task::caller::Caller;
use crate::task::process::FIRST_PID;
use crate::task::process::Process;
use crate::task::system::System;

/// How long to wait for a process that is ending before looking again.
const LOOK_AGAIN_NS: u64 = 1_000_000;
/// Looks that have to find nobody but the first process before it has to go: its end is the pod's, and the memory of a
/// process that has ended comes back a moment after that.
const LOOK_COUNT_OF_FIRST: u64 = 100;
/// With more free frames than these somebody has given some back meanwhile.
const FREE_ENOUGH_FRAMES: u64 = 64;
/// Frames that are given back at a time for exos's heap to take, while the pool has more free ones than these, and in
/// all: more than exos has to leave to programs before its heap may grow.
const GIVEN_BACK_FRAMES: u64 = 1024;
const GIVEN_BACK_FRAMES_MAX: u64 = (24 << 20) / 4096;
/// What an area, a descriptor and a thread take of exos's memory, about.
const AREA_BYTES: u64 = 128;
const DESCRIPTOR_BYTES: u64 = 512;
const THREAD_BYTES: u64 = 72 << 10;
/// An `oom_score_adj` that says: never this one.
const ADJUST_NEVER: i32 = -1000;

/// How much there is to be had from a process, in thousandths of all memory and its adjustment; `None`: it is not to be
/// killed.
fn score(held_bytes: u64, total_bytes: u64, adjust: i32) -> Option<i64> {
    let share = (held_bytes.saturating_mul(1000) / total_bytes.max(1)).min(1000);
    (adjust > ADJUST_NEVER).then(|| (share as i64 + i64::from(adjust)).max(0))
}

/// What the end of a process frees, in bytes, as far as that can be seen from it alone.
fn freed_bytes(process: &Process) -> u64 {
    let (pages, areas) = {
        let memory = process.space();
        let space = memory.lock();
        // No leaf was mapped more often than once for each table.
        (space.totals().resident_anonymous + space.page_table_bound(), space.areas().count() as u64)
    };
    let threads = process.threads.lock().len() as u64;
    let mut freed = pages * 4096 + areas * AREA_BYTES + threads * THREAD_BYTES;
    let size = process.files.table().size() as u32;
    for number in 0..size {
        let Ok(description) = process.files.get(u64::from(number)) else { continue };
        freed += DESCRIPTOR_BYTES;
        if let Some(pipe) = description.pipe() {
            freed += pipe.readable_bytes() as u64;
        } else {
            let metadata = description.metadata();
            freed += if metadata.link_count == 0 { metadata.block_count * 512 } else { 0 };
        }
    }
    freed
}

/// `oom_score` of a process.
#[must_use]
pub fn score_of(system: &System, process: &Process) -> Option<i64> {
    score(freed_bytes(process), system.memory_bytes().0, *process.out_of_memory_adjust.lock())
}

/// Which of several is to go: `first` only if it is the only one, then the one with most points, then the youngest.
fn chosen<T>(candidates: impl Iterator<Item = (i64, u32, T)>, first: u32) -> Option<T> {
    candidates.max_by_key(|(score, pid, _)| (*pid != first, *score, *pid)).map(|(_, _, chosen)| chosen)
}

fn is_ending(process: &Process) -> bool {
    process.has_ended() && !process.is_zombie.load(Ordering::Acquire)
}

/// Has the process killed that holds most, unless one is ending already, or so many frames are free.
fn choose_victim(system: &System, own: Option<&Arc<Process>>, enough_frames: u64) {
    let made_count = system.processes.made_count();
    let alive = system.processes.all().filter(|process| !process.has_ended());
    let scored = alive.filter_map(|process| Some((score_of(system, &process)?, process.pid, process)));
    let victim = chosen(scored, FIRST_PID).or_else(|| own.cloned());
    // A process that ends, or has just ended, makes room. Looked at last: one that was alive above may be ending.
    let makes_room = system.processes.all().any(|process| is_ending(&process));
    if makes_room || system.pool.statistics().free > enough_frames {
        system.counters.looks_at_first.store(0, Ordering::Relaxed);
        return;
    }
    let Some(victim) = victim else { return };
    if victim.pid != FIRST_PID {
        system.counters.looks_at_first.store(0, Ordering::Relaxed);
    } else if system.processes.made_count() != made_count
        || system.counters.looks_at_first.fetch_add(1, Ordering::Relaxed) < LOOK_COUNT_OF_FIRST
    {
        // To look at all takes long where one holds its space's lock: others may have come and gone meanwhile, and what
        // a process had that is gone already may be on its way.
        return;
    }
    if victim.was_chosen_to_end.swap(true, Ordering::Relaxed) {
        return;
    }
    system.counters.ended_for_memory.fetch_add(1, Ordering::Relaxed);
    let held_kib = freed_bytes(&victim) / 1024;
    system.kernel.log(
        LogLevel::Warning,
        format_args!("out of memory: process {} is killed, which holds {held_kib} KiB", victim.pid),
    );
    let payload = SignalPayload::Sender { pid: 0, uid: 0, value: 0 };
    victim.raise(Signal::KILL, SignalInfo { code: SI_KERNEL, errno: 0, payload });
}

/// How much of the reserve is there, after the pool gave back what it has free for the heap to take, as long as there
/// is less than `wanted`.
pub fn level_after_giving(pool: &FramePool, wanted: Level) -> Level {
    let mut level = reserve::refilled_level();
    let mut given = 0;
    while level < wanted && given < GIVEN_BACK_FRAMES_MAX && pool.statistics().free > GIVEN_BACK_FRAMES {
        match pool.give_back(GIVEN_BACK_FRAMES) {
            0 => break,
            count => given += count,
        }
        level = reserve::refilled_level();
    }
    level
}

/// Whether exos's own structures have little memory left, after an attempt to let them have more.
pub fn is_heap_low(system: &System) -> bool {
    let is_low = || reserve::refilled_level() == Level::Low;
    level_after_giving(&system.pool, Level::Short) == Level::Low
        && (system.pool.give_back(GIVEN_BACK_FRAMES) == 0 || is_low())
}

/// Memory has come to its end for the calling thread, which holds no lock: waits until there may be some again.
/// Afterwards the caller looks whether its own process was the one to go.
pub fn make_room(caller: &Caller<'_>) {
    let system = caller.system;
    system.counters.memory_ends.fetch_add(1, Ordering::Relaxed);
    system.shared.end_kept_spaces();
    let was_low = reserve::level() == Level::Low;
    let needs_heap = is_heap_low(system);
    if was_low && !needs_heap {
        return;
    }
    if !system.platform.ask_for_memory() {
        // exos's own structures have none: frames that are free in the pool are no use to them.
        let enough_frames = if needs_heap { u64::MAX } else { FREE_ENOUGH_FRAMES };
        choose_victim(system, Some(caller.process), enough_frames);
    }
    if !is_ending(caller.process) {
        system.platform.wait(Some(system.kernel.now_ns() + LOOK_AGAIN_NS));
    }
    system.pool.fill_reserve();
}

/// More is owned than may be, and nothing is left that could be given without harm.
pub fn give_way(system: &System) {
    system.shared.end_kept_spaces();
    choose_victim(system, None, u64::MAX);
}

/// Frames were taken by force: ends the processes that had them.
pub fn forget_taken(system: &System) {
    let taken = system.shared.forget_taken();
    if taken.is_empty() {
        return;
    }
    let mut count = 0;
    for process in system.processes.all() {
        if process.space().lock().forget_taken(&taken) && !process.has_ended() {
            let payload = SignalPayload::Sender { pid: 0, uid: 0, value: 0 };
            process.raise(Signal::KILL, SignalInfo { code: SI_KERNEL, errno: 0, payload });
            count += 1;
        }
    }
    system.kernel.log(
        LogLevel::Warning,
        format_args!("{} frames in use were taken; {count} processes that had them are ended", taken.len()),
    );
}

#[cfg(test)]
mod tests {
    use super::{chosen, score};

    #[test]
    fn the_first_process_goes_last_and_of_equals_the_youngest() {
        let pick = |candidates: &[(i64, u32)]| chosen(candidates.iter().map(|(score, pid)| (*score, *pid, *pid)), 1);
        assert_eq!(pick(&[(900, 1), (1, 7), (0, 9)]), Some(7));
        assert_eq!(pick(&[(900, 1), (5, 7), (5, 9)]), Some(9));
        assert_eq!(pick(&[(0, 1)]), Some(1));
        assert_eq!(pick(&[]), None);
    }

    #[test]
    fn the_adjustment_counts_in_thousandths_of_all_memory() {
        assert_eq!(score(512, 1024, 0), Some(500));
        assert_eq!(score(512, 1024, -400), Some(100));
        assert_eq!(score(512, 1024, -600), Some(0));
        assert_eq!(score(0, 1024, 1000), Some(1000));
        assert_eq!(score(1024, 1024, -1000), None);
        assert_eq!(score(u64::MAX, 0, 0), Some(1000));
    }
}
