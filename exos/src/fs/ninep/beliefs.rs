//! What names of a tree of our own lead to, as far as it was told lately ([`super::Consistency::Own`] only).
//!
//! A root that a machine has for itself is changed by others seldom, and walked at every step. So what a look-up found,
//! or that it found nothing, is believed for a bounded time, and no longer than until somebody speaks to the
//! pod (`Requester::input`): who changed a file and then runs a program that looks for it is believed at once.
//!
//! A change that the pod makes is known at once. An answer that a change may have overtaken is not kept: a look-up
//! takes the number of changes before it asks, and its answer counts only while that number is the same.
//!
//! Limit: [`BELIEF_COUNT_MAX`] names; when there are more, all go.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::sync::Mutex;

/// Most names that are believed. Each holds a fid at most, of which there are twice as many.
pub(super) const BELIEF_COUNT_MAX: usize = 4096;

/// When something was asked for: the time, and how often somebody had spoken to the pod before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) at_ns: u64,
    pub(super) input: u64,
}

/// What a name leads to.
struct Belief<Child> {
    /// Nothing: the name is not there.
    child: Option<Arc<Child>>,
    stamp: Stamp,
}

struct Known<Child> {
    /// By the directory's number, and the name.
    directories: BTreeMap<u64, BTreeMap<Box<[u8]>, Belief<Child>>>,
    count: usize,
    change_count: u64,
}

/// All beliefs of a file system, whose files are each a `Child`.
pub(super) struct Beliefs<Child> {
    known: Mutex<Known<Child>>,
}

impl<Child> Default for Beliefs<Child> {
    fn default() -> Self {
        Self { known: Mutex::new(Known { directories: BTreeMap::new(), count: 0, change_count: 0 }) }
    }
}

impl<Child> Beliefs<Child> {
    /// How many names the pod has changed.
    pub(super) fn change_count(&self) -> u64 {
        self.known.lock().change_count
    }

    /// What a name leads to, if `is_young` says so of when that was asked.
    pub(super) fn get(
        &self,
        directory: u64,
        name: &[u8],
        is_young: impl Fn(Stamp) -> bool,
    ) -> Option<Option<Arc<Child>>> {
        let known = self.known.lock();
        let belief = known.directories.get(&directory)?.get(name)?;
        is_young(belief.stamp).then(|| belief.child.clone())
    }

    /// Keeps an answer that was asked for at `stamp`, when there had been so many changes.
    pub(super) fn note(
        &self,
        (directory, name): (u64, &[u8]),
        child: Option<Arc<Child>>,
        stamp: Stamp,
        change_count: u64,
    ) {
        let mut known = self.known.lock();
        if known.change_count != change_count {
            return;
        }
        let is_full = known.count >= BELIEF_COUNT_MAX;
        let gone = if is_full { core::mem::take(&mut known.directories) } else { BTreeMap::new() };
        if is_full {
            known.count = 0;
        }
        let names = known.directories.entry(directory).or_default();
        let before = names.insert(name.into(), Belief { child, stamp });
        known.count += usize::from(before.is_none());
        drop(known);
        // Without the lock: inodes go with them.
        drop((gone, before));
    }

    /// The pod has changed a name.
    pub(super) fn change(&self, directory: u64, name: &[u8]) {
        let mut known = self.known.lock();
        known.change_count += 1;
        let Some(names) = known.directories.get_mut(&directory) else { return };
        let gone = names.remove(name);
        if names.is_empty() {
            known.directories.remove(&directory);
        }
        known.count -= usize::from(gone.is_some());
        drop(known);
        drop(gone);
    }

    /// Lets all go.
    pub(super) fn forget(&self) {
        let mut known = self.known.lock();
        let gone = core::mem::take(&mut known.directories);
        known.count = 0;
        drop(known);
        drop(gone);
    }
}
