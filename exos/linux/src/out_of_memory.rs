//! The end of the pod's memory: which process has to go, so that the others can go on.
//!
//! As on Linux: the one that holds most, after `oom_score_adj`. It is killed by a mark as by any `SIGKILL`, gives its
//! memory back where it next looks, and whoever met the end of memory waits for that and tries again.
//!
//! Neighbours: page faults (`glue/entry.rs`), `/proc/PID/oom_score` and `oom_score_adj`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use exos::platform::LogLevel;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::deliver::Target;
use crate::process::Process;
use crate::system::System;

/// `SI_KERNEL`.
const CODE_KERNEL: i32 = 0x80;
/// How long to wait for a process that is ending before looking again.
const LOOK_AGAIN_NS: u64 = 1_000_000;
/// With more free frames than these somebody has given some back meanwhile.
const FREE_ENOUGH_FRAMES: u64 = 64;
/// An `oom_score_adj` that says: never this one.
const ADJUST_NEVER: i32 = -1000;

/// How much there is to be had from a process, in thousandths of all memory and its adjustment; `None`: it is not to be
/// killed.
fn score(held_bytes: u64, total_bytes: u64, adjust: i32) -> Option<i64> {
    let share = (held_bytes.saturating_mul(1000) / total_bytes.max(1)).min(1000);
    (adjust > ADJUST_NEVER).then(|| (share as i64 + i64::from(adjust)).max(0))
}

/// `oom_score` of a process.
#[must_use]
pub fn score_of(system: &System, process: &Process) -> Option<i64> {
    let totals = process.space().lock().totals();
    let held_bytes = totals.resident_anonymous * 4096;
    score(held_bytes, system.memory_bytes().0, *process.out_of_memory_adjust.lock())
}

fn is_ending(process: &Process) -> bool {
    process.has_ended() && !process.is_zombie.load(Ordering::Acquire)
}

/// Has the process killed that holds most, unless one is ending already, or so many frames are free.
fn choose_victim(system: &System, own: Option<&Arc<Process>>, enough_frames: u64) {
    let processes = system.processes.all();
    let alive = processes.iter().filter(|process| !process.has_ended());
    let scored = alive.filter_map(|process| Some((score_of(system, process)?, process.pid, process)));
    let victim = scored.max_by_key(|(score, pid, _)| (*score, *pid)).map(|(_, _, most)| most).or(own);
    // Somebody who ends, or has just ended, makes room. Looked at last: one who was alive above may be on his way.
    let makes_room = processes.iter().any(|process| is_ending(process));
    if makes_room || system.pool.statistics().free > enough_frames {
        return;
    }
    let Some(victim) = victim else { return };
    if victim.was_chosen_to_end.swap(true, Ordering::Relaxed) {
        return;
    }
    let held_kib = victim.space().lock().totals().resident_anonymous * 4;
    system.kernel.log(
        LogLevel::Warning,
        format_args!("out of memory: process {} is killed, which holds {held_kib} KiB", victim.pid),
    );
    let payload = SignalPayload::Sender { pid: 0, uid: 0, value: 0 };
    victim.raise(Signal::KILL, SignalInfo { code: CODE_KERNEL, errno: 0, payload });
}

/// Memory has come to its end for the calling thread, which holds no lock: waits until there may be some again.
/// Afterwards the caller looks whether its own process was the one to go.
pub fn make_room(target: &Target<'_>) {
    let system = target.system;
    if !system.platform.ask_for_memory() {
        choose_victim(system, Some(target.process), FREE_ENOUGH_FRAMES);
    }
    if !is_ending(target.process) {
        system.platform.wait(Some(system.kernel.now_ns() + LOOK_AGAIN_NS));
    }
    system.pool.fill_reserve();
}

/// More is owned than may be, and nothing is left that could be given without harm.
pub fn give_way(system: &System) {
    choose_victim(system, None, u64::MAX);
}

/// Frames were taken by force: ends the processes that had them.
pub fn forget_taken(system: &System) {
    let taken = system.pool.forget_taken();
    if taken.is_empty() {
        return;
    }
    let mut count = 0;
    for process in system.processes.all() {
        if process.space().lock().forget_taken(&taken) && !process.has_ended() {
            let payload = SignalPayload::Sender { pid: 0, uid: 0, value: 0 };
            process.raise(Signal::KILL, SignalInfo { code: CODE_KERNEL, errno: 0, payload });
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
    use super::score;

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
