//! Which processes are in which control group, and moving them (`exos::fs::group_fs`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::fs::group_fs::tree::{ControlGroups, GroupProvider, MemoryUse};
use exos::fs::proc_fs::ProcessProvider;
use exos::task::schedule::{GroupId, Scheduler};

use super::ProcFacts;
use crate::task::listing::Member;

impl ProcFacts {
    /// Tells which groups there are; only the first call counts.
    pub fn set_groups(&self, groups: &Arc<ControlGroups>) {
        self.listing.set_groups(groups);
    }

    fn in_group(&self, group: u64) -> impl Iterator<Item = Member> {
        let is_there = move |member: &Member| {
            member.process.control_group.load(Ordering::Relaxed) == group
                && !member.process.is_zombie.load(Ordering::Acquire)
        };
        self.listing.members().into_iter().filter(is_there)
    }
}

impl GroupProvider for ProcFacts {
    fn now_ns(&self) -> u64 {
        self.system().map_or(0, |system| system.kernel.now_ns())
    }

    fn scheduler(&self) -> Result<Arc<Scheduler>> {
        self.system().map(|system| system.scheduler.clone()).map_err(|_| Errno::ENODEV)
    }

    fn processes(&self, group: u64) -> Vec<u32> {
        self.in_group(group).map(|member| member.process.pid).collect()
    }

    fn threads(&self, group: u64) -> Vec<u32> {
        self.in_group(group).flat_map(|member| member.threads).map(|thread| thread.tid()).collect()
    }

    fn memory(&self) -> Result<MemoryUse> {
        let system = self.system().map_err(|_| Errno::ENODEV)?;
        let (total, free) = system.memory_bytes();
        let (guaranteed, limit) = system.platform.memory_bounds().unwrap_or((total, total));
        let own = system.platform.own_memory();
        let anonymous = |member: &Member| member.process.space().lock().totals().resident_anonymous * 4096;
        Ok(MemoryUse {
            current: total.saturating_sub(free),
            anonymous: self.listing.members().iter().map(anonymous).sum(),
            guaranteed,
            limit: limit.max(total),
            structures: own.heap_bytes,
            stacks: own.stack_bytes,
            end_count: system.counters.memory_ends.load(Ordering::Relaxed),
            killed_count: system.counters.ended_for_memory.load(Ordering::Relaxed),
        })
    }

    fn attach(&self, process: u32, group: u64, tasks: GroupId) -> Result<()> {
        let number = if process == 0 { self.current().0 } else { process };
        let all = self.listing.members();
        // As on Linux, a thread's number stands for its process.
        let found = all
            .iter()
            .find(|member| member.process.pid == number || member.threads.iter().any(|thread| thread.tid() == number));
        let process = &found.ok_or(Errno::ESRCH)?.process;
        if process.is_zombie.load(Ordering::Acquire) {
            return Err(Errno::ESRCH);
        }
        let now_ns = self.now_ns();
        process.control_group.store(group, Ordering::Relaxed);
        let threads = process.threads.lock();
        threads.iter().try_for_each(|thread| thread.task.set_group(tasks, now_ns))
    }
}
