//! Which processes are in which control group, and moving them (`exos::fs::group_fs`).

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::fs::group_fs::tree::{ControlGroups, GroupProvider, MemoryUse};
use exos::fs::proc_fs::ProcessProvider;
use exos::task::schedule::{GroupId, Scheduler};

use super::{Member, ProcFacts};
use crate::task::process::Process;

impl ProcFacts {
    /// Tells which groups there are; only the first call counts.
    pub fn set_groups(&self, groups: &Arc<ControlGroups>) {
        self.groups.call_once(|| Arc::downgrade(groups));
    }

    /// The path of a process's group, as `/proc/PID/cgroup` shows it.
    pub(super) fn group_path(&self, process: &Process) -> Vec<u8> {
        let groups = self.groups.get().and_then(Weak::upgrade);
        let path = groups.and_then(|groups| groups.path(process.control_group.load(Ordering::Relaxed)));
        // A zombie stays in its group, which may be gone.
        path.unwrap_or_else(|| b"/ (deleted)".to_vec())
    }

    /// The control group at a path such as `/batch`.
    #[must_use]
    pub fn group_of_path(&self, path: &[u8]) -> Option<GroupId> {
        self.groups.get().and_then(Weak::upgrade)?.at_path(path)
    }

    /// The path of a control group that the scheduler knows by this number.
    #[must_use]
    pub fn path_of_group(&self, group: GroupId) -> Option<Vec<u8>> {
        self.groups.get().and_then(Weak::upgrade)?.path_of(group)
    }

    fn in_group(&self, group: u64) -> impl Iterator<Item = Member> {
        let is_there = move |member: &Member| {
            member.process.control_group.load(Ordering::Relaxed) == group
                && !member.process.is_zombie.load(Ordering::Acquire)
        };
        self.members().into_iter().filter(is_there)
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
            anonymous: self.members().iter().map(anonymous).sum(),
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
        let all = self.members();
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
