//! Segments of shared memory that come and go with a whole memory: `fork`, `execve`, the end of a process.

use alloc::vec::Vec;

use crate::task::memory::Space;
use crate::task::process::Process;
use crate::task::system::System;

/// The segments that are attached in a memory, once for each area.
fn attached(space: &Space) -> Vec<i32> {
    space.lock().areas().filter_map(|area| area.file()?.source.segment()).collect()
}

/// Notes that a child has its parent's attachments too.
pub(crate) fn note_attached(system: &System, parent: &Process, memory: &Space) {
    note(system, memory, |id, now_s| system.ipc.segments.note_attached(id, parent.pid, now_s));
}

/// Notes that a process lets go of all that it has attached.
pub(crate) fn note_detached(system: &System, process: &Process, memory: &Space) {
    note(system, memory, |id, now_s| system.ipc.segments.note_detached(id, process.pid, now_s));
}

#[inline]
fn note(system: &System, memory: &Space, tell: impl Fn(i32, u64)) {
    if system.ipc.segments.is_unused() {
        return;
    }
    let now_s = system.realtime_ns() / 1_000_000_000;
    attached(memory).into_iter().for_each(|id| tell(id, now_s));
}
