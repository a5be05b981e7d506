//! The processes and threads of a pod as they are listed: what `/proc` and control groups look them up in, and what is
//! kept of those that ended until somebody has waited for them.
//!
//! The texts are made in `crate::proc`. Locks are taken for a field's access only.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::fs::group_fs::tree::ControlGroups;
use exos::fs::proc_fs::SystemText;
use exos::fs::vnode::ProcessName;
use exos::reserve;
use exos::sync::{Mutex, Once};
use exos::task::schedule::GroupId;

use crate::task::process::{Process, Thread};
use crate::task::settings::Settings;

/// A process with what `/proc` keeps about it.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) process: Arc<Process>,
    /// Ascending by number, the first thread first; not empty.
    pub(crate) threads: Vec<Arc<Thread>>,
}

/// Answers process and thread of the caller.
pub type CurrentSource = fn() -> Option<(u32, u32)>;

/// All that are listed.
#[derive(Default)]
pub struct Listing {
    /// Ascending by number.
    members: Mutex<Vec<Member>>,
    /// The first process and thread, for as long as there is no source.
    current: Mutex<(u32, u32)>,
    current_source: Once<CurrentSource>,
    groups: Once<Weak<ControlGroups>>,
    /// What programs have set below `/proc/sys`.
    pub(crate) settings: Settings,
}

impl Listing {
    /// Room for one more thread of a process that may be new, so that [`Self::add_process`] takes little memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make_room(&self, pid: u32) -> Result<()> {
        let mut members = self.members.lock();
        match members.binary_search_by_key(&pid, |member| member.process.pid) {
            Ok(index) => reserve::reserve(&mut members[index].threads, 1),
            Err(_) => reserve::reserve(&mut members, 1),
        }
    }

    /// Adds a process with its first thread, or another thread to a process that is there. The
    /// first of all is the current one.
    pub fn add_process(&self, process: Arc<Process>, thread: Arc<Thread>) {
        let mut members = self.members.lock();
        if members.is_empty() {
            *self.current.lock() = (process.pid, thread.tid());
        }
        match members.binary_search_by_key(&process.pid, |member| member.process.pid) {
            Ok(index) => {
                let threads = &mut members[index].threads;
                let place = threads.partition_point(|known| known.tid() < thread.tid());
                threads.insert(place, thread);
            }
            Err(index) => {
                let threads = alloc::vec![thread];
                members.insert(index, Member { process, threads });
            }
        }
    }

    /// Makes a thread the only one of a process, and its first.
    pub fn set_first(&self, pid: u32, thread: Arc<Thread>) {
        let mut members = self.members.lock();
        if let Ok(index) = members.binary_search_by_key(&pid, |member| member.process.pid) {
            let before = core::mem::replace(&mut members[index].threads, alloc::vec![thread]);
            drop(members);
            // Not under the lock: the first thread goes here, which had ended before.
            drop(before);
        }
    }

    /// Takes a thread away that has ended, unless it is the last one: `/proc` shows a zombie with its first.
    pub fn remove_thread(&self, pid: u32, tid: u32) {
        let mut members = self.members.lock();
        if let Ok(index) = members.binary_search_by_key(&pid, |member| member.process.pid)
            && members[index].threads.len() > 1
        {
            let threads = &mut members[index].threads;
            if let Ok(place) = threads.binary_search_by_key(&tid, |thread| thread.tid()) {
                threads.remove(place);
            }
        }
    }

    /// A process that has ended and was not waited for, with the thread that it began with.
    #[must_use]
    pub fn ended(&self, pid: u32) -> Option<(Arc<Process>, Arc<Thread>)> {
        let member = self.member(pid).ok().filter(|member| member.process.pid == pid)?;
        member.threads.first().map(|thread| (member.process.clone(), thread.clone()))
    }

    /// Takes a process away that was waited for.
    pub fn remove_process(&self, pid: u32) {
        let removed = {
            let mut members = self.members.lock();
            let found = members.binary_search_by_key(&pid, |member| member.process.pid);
            found.ok().map(|index| members.remove(index))
        };
        // The last reference may be this one, and dropping a process drops files and memory: not
        // under the lock.
        drop(removed);
    }

    /// Sets the function that knows which process and thread run now on the processor that asks: `self` and
    /// `thread-self`.
    pub fn set_current_source(&self, source: CurrentSource) {
        self.current_source.call_once(|| source);
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        self.members.lock().clone()
    }

    pub(crate) fn member(&self, pid: u32) -> Result<Member> {
        let members = self.members.lock();
        let found = members.binary_search_by_key(&pid, |member| member.process.pid);
        let has_thread = |member: &&Member| member.threads.iter().any(|thread| thread.tid() == pid);
        // A thread's number leads to its process, though no directory lists it.
        let found = found.map(|index| &members[index]).ok().or_else(|| members.iter().find(has_thread));
        found.cloned().ok_or(Errno::ESRCH)
    }

    /// A process, and the thread that the name means: the first one if it names none. `ESRCH`: it is gone.
    pub(crate) fn find(&self, name: ProcessName) -> Result<(Member, Arc<Thread>)> {
        let member = self.member(name.process)?;
        let wanted = match name.thread {
            None if name.process == member.process.pid => member.threads.first(),
            None => member.threads.iter().find(|thread| thread.tid() == name.process),
            Some(tid) => member.threads.iter().find(|thread| thread.tid() == tid),
        };
        let thread = wanted.cloned().ok_or(Errno::ESRCH)?;
        let is_same = name.birth == 0 || name.birth == birth_of(name, &member, &thread);
        if is_same { Ok((member, thread)) } else { Err(Errno::ESRCH) }
    }

    /// The process that a name means. `ESRCH`: it is gone.
    pub(crate) fn process(&self, name: ProcessName) -> Result<Arc<Process>> {
        Ok(self.find(name)?.0.process)
    }

    /// Process and thread that ask.
    #[must_use]
    pub fn current_numbers(&self) -> (u32, u32) {
        self.current_source.get().and_then(|source| source()).unwrap_or_else(|| *self.current.lock())
    }

    /// The value of `PR_SET_DUMPABLE` of a process whose identity has changed (`/proc/sys/fs/suid_dumpable`).
    #[must_use]
    pub fn dumpable_of_changed(&self) -> u8 {
        self.settings.get(SystemText::RightsOfDumps).map_or(0, |value| value as u8)
    }

    /// Tells which groups there are; only the first call counts.
    pub fn set_groups(&self, groups: &Arc<ControlGroups>) {
        self.groups.call_once(|| Arc::downgrade(groups));
    }

    /// The path of a process's group, as `/proc/PID/cgroup` shows it.
    pub(crate) fn group_path(&self, process: &Process) -> Vec<u8> {
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
}

/// What tells the one that a name means from all that had its number before.
pub(crate) fn birth_of(name: ProcessName, member: &Member, thread: &Thread) -> u64 {
    let is_whole = name.thread.is_none() && name.process == member.process.pid;
    if is_whole { member.process.birth } else { thread.birth }
}
