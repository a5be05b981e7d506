//! The processes of a pod, by number, from their making until they are waited for.
//!
//! Numbers of processes and threads come from one row and are not used again while they are in use, as a process, a
//! thread, a group or a session. Lock order: this table's lock is a leaf; nobody is called under it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::sync::Mutex;

use crate::task::process::Process;

/// Largest number, as `/proc/sys/kernel/pid_max` tells it, less one.
pub const NUMBER_MAX: u32 = 32_767;
/// Most processes and threads together.
pub const COUNT_MAX: usize = 16_384;

#[derive(Default)]
struct Table {
    processes: BTreeMap<u32, Arc<Process>>,
    /// Numbers of processes and threads.
    numbers: BTreeSet<u32>,
    last: u32,
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
        loop {
            table.last = if table.last >= NUMBER_MAX { 2 } else { table.last + 1 };
            let number = table.last;
            let is_in = |process: &Arc<Process>| [*process.group.lock(), *process.session.lock()].contains(&number);
            if !table.numbers.contains(&number) && !table.processes.values().any(is_in) {
                table.numbers.insert(number);
                return Ok(number);
            }
        }
    }

    /// Gives back the number of a thread that has ended, or that never came about.
    pub fn give_number(&self, number: u32) {
        self.table.lock().numbers.remove(&number);
    }

    /// Adds a process under its number, which was taken.
    pub fn add(&self, process: Arc<Process>) {
        self.table.lock().processes.insert(process.pid, process);
    }

    /// Takes a process away that was waited for; its number is free then.
    pub fn remove(&self, pid: u32) {
        let removed = {
            let mut table = self.table.lock();
            table.numbers.remove(&pid);
            table.processes.remove(&pid)
        };
        // The last reference may be this one: not under the lock.
        drop(removed);
    }

    /// The process with that number; zombies too.
    #[must_use]
    pub fn get(&self, pid: u32) -> Option<Arc<Process>> {
        self.table.lock().processes.get(&pid).cloned()
    }

    /// The process that a number names which may be one of its threads'; zombies too.
    #[must_use]
    pub fn named(&self, number: u32) -> Option<Arc<Process>> {
        self.get(number).or_else(|| self.all().into_iter().find(|process| process.thread(number).is_some()))
    }

    /// All of them, ascending by number; zombies too.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Process>> {
        self.table.lock().processes.values().cloned().collect()
    }

    /// The children of a process.
    #[must_use]
    pub fn children_of(&self, pid: u32) -> Vec<Arc<Process>> {
        self.all().into_iter().filter(|process| process.parent() == pid).collect()
    }

    /// The members of a group.
    #[must_use]
    pub fn in_group(&self, group: u32) -> Vec<Arc<Process>> {
        self.all().into_iter().filter(|process| *process.group.lock() == group).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.lock().processes.len()
    }
}
