//! The processes of a pod, by number, from their making until they are waited for.
//!
//! Numbers of processes and threads come from one row and are not used again while they are in use, as a process, a
//! thread, a group or a session. Thousands of processes that sleep cost those that do not sleep nothing: what is asked
//! at every fork, wait and ring of the timer is looked up, and not searched among all. Lock order: under this table's
//! lock only the numbers of groups and sessions are read; nobody is called under it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::reserve;
use exos::sync::Mutex;

use crate::task::process::Process;

/// Largest number, as `/proc/sys/kernel/pid_max` tells it, less one.
pub const NUMBER_MAX: u32 = 32_767;
/// Most processes and threads together.
pub const COUNT_MAX: usize = 16_384;

/// Children that are looked at before the table is asked for more.
pub const CHILDREN_AT_ONCE: usize = 32;

struct Entry {
    process: Arc<Process>,
    /// Numbers of its children, ascending.
    children: Vec<u32>,
}

#[derive(Default)]
struct Table {
    processes: BTreeMap<u32, Entry>,
    /// Numbers of processes and threads.
    numbers: BTreeSet<u32>,
    /// The number that was given last.
    last: u32,
    /// No number behind the last and before this one is a group's or a session's that has outlived its leader.
    names_from: u32,
    /// Processes that the timer has to look at, or had to.
    timed: Vec<u32>,
}

impl Table {
    /// Counts a number on, and says whether nobody has it.
    fn step(&mut self) -> bool {
        if self.last >= NUMBER_MAX {
            (self.last, self.names_from) = (1, 0);
        }
        self.last += 1;
        if self.numbers.contains(&self.last) {
            return false;
        }
        if self.last >= self.names_from {
            self.names_from = self.next_name(self.last);
        }
        self.last < self.names_from
    }

    /// The first group or session from a number on whose leader is gone.
    fn next_name(&self, first: u32) -> u32 {
        let names = self.processes.values().map(|entry| [*entry.process.group.lock(), *entry.process.session.lock()]);
        let is_left = |name: &u32| *name >= first && !self.numbers.contains(name);
        names.flatten().filter(is_left).min().unwrap_or(u32::MAX)
    }

    fn add_child(&mut self, parent: u32, child: u32) {
        if let Some(entry) = self.processes.get_mut(&parent)
            && let Err(place) = entry.children.binary_search(&child)
        {
            entry.children.insert(place, child);
        }
    }

    fn remove_child(&mut self, parent: u32, child: u32) {
        if let Some(entry) = self.processes.get_mut(&parent)
            && let Ok(place) = entry.children.binary_search(&child)
        {
            entry.children.remove(place);
        }
    }
}

/// The table.
#[derive(Default)]
pub struct Processes {
    table: Mutex<Table>,
}

impl Processes {
    /// A number that nobody has; `EAGAIN` if there are too many.
    pub fn take_number(&self) -> Result<u32> {
        let mut table = self.table.lock();
        if table.numbers.len() >= COUNT_MAX {
            return Err(Errno::EAGAIN);
        }
        // Ends: there are more numbers than can be in use.
        while !table.step() {}
        let number = table.last;
        table.numbers.insert(number);
        Ok(number)
    }

    /// How many numbers of processes and threads are in use.
    #[must_use]
    pub fn number_count(&self) -> usize {
        self.table.lock().numbers.len()
    }

    /// Gives back the number of a thread that has ended, or that never came about.
    pub fn give_number(&self, number: u32) {
        self.table.lock().numbers.remove(&number);
    }

    /// Room for one more child of a process, so that [`Self::add`] takes little memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make_room(&self, parent: u32) -> Result<()> {
        let mut table = self.table.lock();
        table.processes.get_mut(&parent).map_or(Ok(()), |entry| reserve::reserve(&mut entry.children, 1))
    }

    /// Adds a process under its number, which was taken.
    pub fn add(&self, process: Arc<Process>) {
        let mut table = self.table.lock();
        let (pid, parent) = (process.pid, process.parent());
        table.processes.insert(pid, Entry { process, children: Vec::new() });
        table.add_child(parent, pid);
    }

    /// Gives a process another parent.
    pub fn set_parent(&self, process: &Process, parent: u32) {
        let mut table = self.table.lock();
        table.remove_child(process.parent(), process.pid);
        process.parent.store(parent, Ordering::Release);
        // It may have been waited for meanwhile.
        if table.processes.get(&process.pid).is_some_and(|entry| core::ptr::eq(&*entry.process, process)) {
            table.add_child(parent, process.pid);
        }
        drop(table);
        process.show_parent();
    }

    /// Has the timer look at a process whenever it rings, until [`Self::take_timed`]. What it is to find was noted
    /// before.
    pub fn note_timed(&self, process: &Process) {
        if !process.is_timed.swap(true, Ordering::AcqRel) {
            self.table.lock().timed.push(process.pid);
        }
    }

    /// The processes that the timer has to look at, which it will not have to again unless that is noted again.
    #[must_use]
    pub fn take_timed(&self) -> Vec<Arc<Process>> {
        let mut table = self.table.lock();
        let pids = core::mem::take(&mut table.timed);
        let timed = pids.iter().filter_map(|pid| Some(table.processes.get(pid)?.process.clone()));
        timed.inspect(|process| process.is_timed.store(false, Ordering::Release)).collect()
    }

    /// Takes a process away that was waited for; its number is free then.
    pub fn remove(&self, pid: u32) {
        let removed = {
            let mut table = self.table.lock();
            table.numbers.remove(&pid);
            if pid > table.last {
                // Its group or session may outlive it.
                table.names_from = table.names_from.min(pid);
            }
            let removed = table.processes.remove(&pid);
            if let Some(entry) = &removed {
                table.remove_child(entry.process.parent(), pid);
            }
            removed
        };
        // The last reference may be this one: not under the lock.
        drop(removed);
    }

    /// The process with that number; zombies too.
    #[must_use]
    pub fn get(&self, pid: u32) -> Option<Arc<Process>> {
        self.table.lock().processes.get(&pid).map(|entry| entry.process.clone())
    }

    /// The process that a number names which may be one of its threads'; zombies too.
    #[must_use]
    pub fn named(&self, number: u32) -> Option<Arc<Process>> {
        self.get(number).or_else(|| self.all().into_iter().find(|process| process.thread(number).is_some()))
    }

    /// All of them, ascending by number; zombies too.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Process>> {
        self.table.lock().processes.values().map(|entry| entry.process.clone()).collect()
    }

    /// The children of a process, ascending by number; zombies too.
    #[must_use]
    pub fn children_of(&self, pid: u32) -> Vec<Arc<Process>> {
        let table = self.table.lock();
        let children = table.processes.get(&pid).map_or(&[][..], |entry| &entry.children);
        children.iter().filter_map(|child| Some(table.processes.get(child)?.process.clone())).collect()
    }

    /// The children of a process whose numbers are above one, ascending: the first [`CHILDREN_AT_ONCE`] of them.
    #[must_use]
    pub fn children_after(&self, pid: u32, after: u32) -> Vec<Arc<Process>> {
        let table = self.table.lock();
        let children = table.processes.get(&pid).map_or(&[][..], |entry| &entry.children);
        let first = children.partition_point(|child| *child <= after);
        let children = children[first..].iter().take(CHILDREN_AT_ONCE);
        children.filter_map(|child| Some(table.processes.get(child)?.process.clone())).collect()
    }

    /// The members of a group.
    #[must_use]
    pub fn in_group(&self, group: u32) -> Vec<Arc<Process>> {
        let table = self.table.lock();
        let processes = table.processes.values().map(|entry| &entry.process);
        processes.filter(|process| *process.group.lock() == group).cloned().collect()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.lock().processes.len()
    }
}

#[cfg(test)]
#[path = "processes_tests.rs"]
mod tests;
