//! The processes of a pod, by number, from their making until they are waited for.
//!
//! Numbers of processes and threads come from one row and are not used again while they are in use, as a process, a
//! thread, a group or a session. Thousands of processes that sleep cost those that do not sleep nothing: what is asked
//! at every fork, wait and ring of the timer is looked up, and not searched among all. Whoever goes through all takes
//! [`AT_ONCE`] of them at a time: memory's end is met by walks that need none. Lock order: under this table's lock only
//! the numbers of groups and sessions are read; nobody is called under it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::sync::Mutex;

use crate::task::process::Process;

/// Largest number, as `/proc/sys/kernel/pid_max` tells it, less one.
pub const NUMBER_MAX: u32 = 32_767;
/// Most processes and threads together.
pub const COUNT_MAX: usize = 16_384;

/// Processes that are looked at before the table is asked for more.
pub const AT_ONCE: usize = 8;

struct Entry {
    process: Arc<Process>,
    /// Numbers of its children.
    children: BTreeSet<u32>,
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
    timed: BTreeSet<u32>,
    /// How many processes there have been.
    made_count: u64,
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
        if let Some(entry) = self.processes.get_mut(&parent) {
            entry.children.insert(child);
        }
    }

    fn remove_child(&mut self, parent: u32, child: u32) {
        if let Some(entry) = self.processes.get_mut(&parent) {
            entry.children.remove(&child);
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

    /// Adds a process under its number, which was taken.
    pub fn add(&self, process: Arc<Process>) {
        let mut table = self.table.lock();
        let (pid, parent) = (process.pid, process.parent());
        table.processes.insert(pid, Entry { process, children: BTreeSet::new() });
        table.made_count += 1;
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
            self.table.lock().timed.insert(process.pid);
        }
    }

    /// The processes that the timer has to look at, which it will not have to again unless that is noted again.
    pub fn take_timed(&self) -> impl Iterator<Item = Arc<Process>> {
        let pids = core::mem::take(&mut self.table.lock().timed);
        let timed = pids.into_iter().filter_map(|pid| self.get(pid));
        timed.inspect(|process| process.is_timed.store(false, Ordering::Release))
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
        self.get(number).or_else(|| self.all().find(|process| process.thread(number).is_some()))
    }

    /// All of them, ascending by number; zombies too. One that comes meanwhile is among them if its number is higher
    /// than those that were looked at.
    pub fn all(&self) -> impl Iterator<Item = Arc<Process>> {
        self.walk(|table, after, part| part.fill(table.processes.range(after + 1..).map(|(_, entry)| &entry.process)))
    }

    /// The children of a process; as [`Self::all`].
    pub fn children_of(&self, pid: u32) -> impl Iterator<Item = Arc<Process>> {
        self.walk(move |table, after, part| {
            let Some(parent) = table.processes.get(&pid) else { return };
            let children = parent.children.range(after + 1..).filter_map(|child| table.processes.get(child));
            part.fill(children.map(|entry| &entry.process));
        })
    }

    /// The members of a group; as [`Self::all`].
    pub fn in_group(&self, group: u32) -> impl Iterator<Item = Arc<Process>> {
        self.walk(move |table, after, part| {
            let processes = table.processes.range(after + 1..).map(|(_, entry)| &entry.process);
            part.fill(processes.filter(|process| *process.group.lock() == group));
        })
    }

    fn walk<F: FnMut(&Table, u32, &mut Part)>(&self, more: F) -> Walk<'_, F> {
        Walk { processes: self, more, part: Part::default(), is_over: false }
    }

    /// Grows with each process that is made.
    #[must_use]
    pub fn made_count(&self) -> u64 {
        self.table.lock().made_count
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.lock().processes.len()
    }
}

/// Processes that were copied out of the table, to be looked at without its lock.
#[derive(Default)]
struct Part {
    processes: [Option<Arc<Process>>; AT_ONCE],
    count: usize,
    next: usize,
    /// The number of the last one.
    last: u32,
}

impl Part {
    /// The first ones.
    fn fill<'a>(&mut self, processes: impl Iterator<Item = &'a Arc<Process>>) {
        for (place, process) in self.processes.iter_mut().zip(processes) {
            *place = Some(process.clone());
            self.count += 1;
            self.last = process.pid;
        }
    }
}

/// A walk through the table, in ascending order of numbers. It ends: each step goes to a higher one.
struct Walk<'a, F> {
    processes: &'a Processes,
    /// Fills a part with those behind a number.
    more: F,
    part: Part,
    /// A part that was not full was the last.
    is_over: bool,
}

impl<F: FnMut(&Table, u32, &mut Part)> Iterator for Walk<'_, F> {
    type Item = Arc<Process>;

    fn next(&mut self) -> Option<Arc<Process>> {
        if self.part.next == self.part.count {
            if self.is_over {
                return None;
            }
            (self.part.count, self.part.next) = (0, 0);
            (self.more)(&self.processes.table.lock(), self.part.last, &mut self.part);
            self.is_over = self.part.count < AT_ONCE;
        }
        let process = self.part.processes.get_mut(self.part.next).and_then(Option::take)?;
        self.part.next += 1;
        Some(process)
    }
}

#[cfg(test)]
#[path = "processes_tests.rs"]
mod tests;
