//! Advisory locks on files: `flock` on whole files, and record locks of `fcntl` on ranges.
//!
//! Locks belong to owners, not to descriptors: a record lock to a process or (open file description locks)
//! to a description, a `flock` lock to a description. The two families do not see each other, as on Linux.
//! Nothing here waits: a conflict is `EAGAIN`, and [`LockTable::wait_queue`] tells of every release.
//!
//! A process that sleeps for a record lock says so ([`LockTable::begin_wait`]), so that a circle of processes that wait
//! for each other is found by the one that would close it (`EDEADLK`). Descriptions are not looked at, as on Linux.
//!
//! What a personality attaches to a description until it is closed ([`LockTable::attach`]) stands here too, and leases
//! ([`super::lease`]): descriptions and `open` look at one word to learn that there is nothing of all this.
//!
//! Limit: [`LOCK_COUNT_MAX`] locks per file, beyond it `ENOLCK`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::lease::Lease;
use super::metadata::{DeviceNumber, Metadata};
use super::readiness::{Readiness, WaitQueue};
use crate::error::{Errno, Result};
use crate::reserve;
use crate::sync::Mutex;

/// Most locks of one family on one file.
pub const LOCK_COUNT_MAX: usize = 4096;

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockOwner {
    /// A process's (its descriptor table's), as its number.
    Process(u64),
    /// An open file description's.
    Description(u64),
}

/// What a lock allows others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Other shared locks.
    Shared,
    /// No other lock.
    Exclusive,
}

/// Bytes from `start` to `last`, both included; to the end of everything if `last` is `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
}

impl LockRange {
    /// The whole file.
    pub const ALL: Self = Self { start: 0, last: u64::MAX };

    fn meets(&self, other: &Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// What is left of this range in front of and behind `other`.
    fn without(&self, other: &Self) -> [Option<Self>; 2] {
        let front =
            (self.start < other.start).then(|| Self { start: self.start, last: self.last.min(other.start - 1) });
        let back = (self.last > other.last).then(|| Self { start: self.start.max(other.last + 1), last: self.last });
        [front, back]
    }
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Process or description that holds it.
    pub owner: LockOwner,
    /// The process that took it, for `F_GETLK`.
    pub process: u32,
    /// What it allows others.
    pub kind: LockKind,
    /// Bytes of the file that it covers.
    pub range: LockRange,
}

impl HeldLock {
    fn conflicts(&self, other: &Self) -> bool {
        self.owner != other.owner
            && self.range.meets(&other.range)
            && (self.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive)
    }
}

/// The file that a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockedFile {
    pub(super) device: DeviceNumber,
    pub(super) inode_number: u64,
}

impl From<&Metadata> for LockedFile {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.device, inode_number: metadata.inode_number }
    }
}

/// Which of the two families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockFamily {
    /// `flock`.
    Whole,
    /// `fcntl`.
    Record,
}

/// All locks of a pod.
pub struct LockTable {
    held: Mutex<BTreeMap<(LockedFile, LockFamily), Vec<HeldLock>>>,
    /// Entries of `held`, changed under its lock.
    entry_count: AtomicUsize,
    /// Record locks that processes sleep for, with a number for each wait. Taken after `held`.
    waits: Mutex<Vec<(u64, LockedFile, HeldLock)>>,
    /// By the number of the description.
    attached: Mutex<BTreeMap<u64, Attachment>>,
    pub(super) leases: Mutex<Vec<Lease>>,
    queue: Arc<WaitQueue>,
}

/// What is kept with a description until it is closed.
pub type Attachment = Arc<dyn Any + Send + Sync>;

/// A process sleeps for a lock, until this is dropped.
pub struct LockWait<'a> {
    table: &'a LockTable,
    number: u64,
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        self.table.waits.lock().retain(|(number, ..)| *number != self.number);
    }
}

impl Default for LockTable {
    fn default() -> Self {
        Self {
            held: Mutex::default(),
            waits: Mutex::default(),
            entry_count: AtomicUsize::new(0),
            attached: Mutex::default(),
            leases: Mutex::default(),
            queue: WaitQueue::new(),
        }
    }
}

impl LockTable {
    /// Takes a lock, in place of whatever the owner holds in that range. A `flock` lock has the range
    /// [`LockRange::ALL`], and one of the other kind that the owner had is gone even if this fails.
    ///
    /// # Errors
    /// `EAGAIN`: somebody else's lock is in the way. `ENOLCK`: too many locks, or no memory for one more.
    pub fn lock(&self, file: LockedFile, family: LockFamily, lock: HeldLock) -> Result<()> {
        reserve::check().map_err(|_| Errno::ENOLCK)?;
        let mut table = self.held.lock();
        let held = table.entry((file, family)).or_insert_with(|| {
            self.entry_count.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        });
        // As on Linux, a `flock` lock of another kind is given up before the new one is looked for.
        let mut has_given_up = false;
        if family == LockFamily::Whole
            && let Some(own) = held.iter().position(|other| other.owner == lock.owner)
        {
            if held[own].kind == lock.kind {
                return Ok(());
            }
            held.swap_remove(own);
            has_given_up = true;
        }
        // One look at each, as there may be many: where they lie says most of them have nothing to do with it.
        let mut replaces_own = false;
        for other in held.iter().filter(|other| lock.range.meets(&other.range)) {
            if other.conflicts(&lock) {
                drop(table);
                if has_given_up {
                    self.queue.notify(Readiness::ALWAYS);
                }
                return Err(Errno::EAGAIN);
            }
            replaces_own |= other.owner == lock.owner;
        }
        // What it replaces is cut into two at most.
        if held.len() + 2 > LOCK_COUNT_MAX || reserve::reserve(held, 2).is_err() {
            return Err(Errno::ENOLCK);
        }
        if replaces_own {
            cut(held, lock.owner, &lock.range);
        }
        let lock = joined(held, lock);
        held.push(lock);
        drop(table);
        // A lock that became weaker lets others in.
        self.queue.notify(Readiness::ALWAYS);
        Ok(())
    }

    /// Notes that a process is about to sleep until `lock` can be had.
    ///
    /// # Errors
    /// `EDEADLK`: the processes that it would wait for wait for it. `ENOMEM`.
    pub fn begin_wait(&self, file: LockedFile, lock: HeldLock) -> Result<LockWait<'_>> {
        let table = self.held.lock();
        let mut waits = self.waits.lock();
        let mut seen: Vec<LockOwner> = Vec::new();
        let note = |seen: &mut Vec<LockOwner>, file: LockedFile, wanted: &HeldLock| -> Result<()> {
            let held = table.get(&(file, LockFamily::Record)).map_or(&[][..], Vec::as_slice);
            for other in held.iter().filter(|other| other.conflicts(wanted)) {
                if !seen.contains(&other.owner) {
                    seen.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                    seen.push(other.owner);
                }
            }
            Ok(())
        };
        note(&mut seen, file, &lock)?;
        let mut next = 0;
        while let Some(&owner) = seen.get(next) {
            if owner == lock.owner {
                return Err(Errno::EDEADLK);
            }
            for (_, file, wanted) in waits.iter().filter(|(_, _, wanted)| wanted.owner == owner) {
                // Another finds its own circle: only the processes that it waits for count.
                note(&mut seen, *file, wanted)?;
            }
            next += 1;
        }
        let number = waits.last().map_or(1, |(number, ..)| number + 1);
        waits.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        waits.push((number, file, lock));
        Ok(LockWait { table: self, number })
    }

    /// Gives up what the owner holds in a range.
    pub fn unlock(&self, file: LockedFile, family: LockFamily, owner: LockOwner, range: LockRange) {
        {
            let mut table = self.held.lock();
            let Some(held) = table.get_mut(&(file, family)) else {
                return;
            };
            cut(held, owner, &range);
            if held.is_empty() {
                table.remove(&(file, family));
                self.entry_count.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.queue.notify(Readiness::ALWAYS);
    }

    /// Keeps `attachment` with the description of that number until it is closed, in place of what was kept before.
    /// `ENOMEM`.
    pub(super) fn attach(&self, description: u64, attachment: Attachment) -> Result<()> {
        reserve::check()?;
        let before = self.attached.lock().insert(description, attachment);
        if before.is_none() {
            self.count_entry(true);
        }
        Ok(())
    }

    /// What is kept with a description.
    pub(super) fn attachment(&self, description: u64) -> Option<Attachment> {
        if self.is_idle() { None } else { self.attached.lock().get(&description).cloned() }
    }

    /// A description is closed: what was kept with it, and its lease.
    #[cold]
    pub(super) fn forget(&self, description: u64) {
        let attachment = self.attached.lock().remove(&description);
        if attachment.is_some() {
            self.count_entry(false);
        }
        self.end_lease(description);
    }

    pub(super) fn count_entry(&self, is_new: bool) {
        match is_new {
            true => self.entry_count.fetch_add(1, Ordering::Relaxed),
            false => self.entry_count.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Whether nobody holds any lock, so that there is nothing to give up.
    pub fn is_idle(&self) -> bool {
        self.entry_count.load(Ordering::Relaxed) == 0
    }

    /// The locks on a file, in order: those of whole files first.
    pub fn on_file(&self, file: LockedFile) -> Vec<(LockFamily, HeldLock)> {
        let table = self.held.lock();
        let mut all = Vec::new();
        for family in [LockFamily::Whole, LockFamily::Record] {
            let held = table.get(&(file, family)).map_or(&[][..], Vec::as_slice);
            let begin = all.len();
            if all.try_reserve(held.len()).is_err() {
                break;
            }
            all.extend(held.iter().map(|held| (family, *held)));
            all[begin..].sort_unstable_by_key(|(_, held)| held.range.start);
        }
        all
    }

    /// The first lock that is in the way of `lock` (`F_GETLK`).
    pub fn conflict(&self, file: LockedFile, family: LockFamily, lock: &HeldLock) -> Option<HeldLock> {
        let table = self.held.lock();
        let held = table.get(&(file, family))?;
        held.iter().filter(|other| other.conflicts(lock)).min_by_key(|held| held.range.start).copied()
    }

    /// The queue that is told when locks are given up.
    pub fn wait_queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }
}

/// Takes what the owner holds of the same kind right beside a new lock out of `held`: the lock that covers both.
fn joined(held: &mut Vec<HeldLock>, mut lock: HeldLock) -> HeldLock {
    held.retain(|other| {
        let touches = other.range.last.checked_add(1) == Some(lock.range.start)
            || lock.range.last.checked_add(1) == Some(other.range.start);
        let is_part = touches && other.owner == lock.owner && other.kind == lock.kind;
        if is_part {
            lock.range.start = lock.range.start.min(other.range.start);
            lock.range.last = lock.range.last.max(other.range.last);
        }
        !is_part
    });
    lock
}

/// Takes a range out of an owner's locks.
fn cut(held: &mut Vec<HeldLock>, owner: LockOwner, range: &LockRange) {
    let mut index = 0;
    while index < held.len() {
        let lock = held[index];
        if lock.owner != owner || !lock.range.meets(range) {
            index += 1;
            continue;
        }
        held.swap_remove(index);
        for rest in lock.range.without(range).into_iter().flatten() {
            held.push(HeldLock { range: rest, ..lock });
        }
        // What was put at the end does not meet the range, and what took this place has not been looked at.
    }
}

#[cfg(test)]
mod tests {
    use super::{HeldLock, LockFamily, LockKind, LockOwner, LockRange, LockTable, LockedFile};
    use crate::error::Errno;
    use crate::fs::metadata::DeviceNumber;

    const FILE: LockedFile = LockedFile { device: DeviceNumber { major: 0, minor: 1 }, inode_number: 1 };

    fn lock(owner: u64, kind: LockKind, start: u64, last: u64) -> HeldLock {
        let owner = LockOwner::Process(owner);
        HeldLock { owner, process: 1, kind, range: LockRange { start, last } }
    }

    #[test]
    fn who_would_close_a_circle_is_told() {
        let table = LockTable::default();
        let other = LockedFile { inode_number: 2, ..FILE };
        let mine = |owner| lock(owner, LockKind::Exclusive, 0, 9);
        assert_eq!(table.lock(FILE, LockFamily::Record, mine(1)), Ok(()));
        assert_eq!(table.lock(other, LockFamily::Record, mine(2)), Ok(()));
        assert_eq!(table.lock(other, LockFamily::Record, lock(3, LockKind::Exclusive, 10, 19)), Ok(()));
        let wait = table.begin_wait(FILE, mine(2)).ok();
        assert!(wait.is_some());
        assert_eq!(table.begin_wait(other, mine(1)).err(), Some(Errno::EDEADLK));
        let third = table.begin_wait(FILE, mine(3)).ok();
        assert_eq!(table.begin_wait(other, lock(1, LockKind::Shared, 12, 12)).err(), Some(Errno::EDEADLK));
        drop((wait, third));
        assert!(table.begin_wait(other, mine(1)).is_ok());
        assert!(table.waits.lock().is_empty());
    }

    #[test]
    fn ranges_split_and_conflict() {
        let table = LockTable::default();
        let record = LockFamily::Record;
        assert_eq!(table.lock(FILE, record, lock(1, LockKind::Exclusive, 0, 99)), Ok(()));
        let other = lock(2, LockKind::Shared, 50, 60);
        assert_eq!(table.lock(FILE, record, other), Err(Errno::EAGAIN));
        table.unlock(FILE, record, LockOwner::Process(1), LockRange { start: 40, last: 70 });
        assert_eq!(table.lock(FILE, record, other), Ok(()));
        let probe = lock(3, LockKind::Shared, 0, u64::MAX);
        let found = table.conflict(FILE, record, &probe).map(|held| held.range);
        assert_eq!(found, Some(LockRange { start: 0, last: 39 }));
        assert_eq!(table.lock(FILE, record, lock(1, LockKind::Shared, 0, u64::MAX)), Ok(()));
        assert_eq!(table.conflict(FILE, record, &probe), None);
        assert!(!table.is_idle());
        table.unlock(FILE, record, LockOwner::Process(1), LockRange::ALL);
        table.unlock(FILE, record, LockOwner::Process(2), LockRange::ALL);
        assert!(table.is_idle());
        table.unlock(FILE, record, LockOwner::Process(2), LockRange::ALL);
        assert!(table.is_idle());
        assert_eq!(table.lock(FILE, LockFamily::Whole, lock(9, LockKind::Exclusive, 0, 9)), Ok(()));
    }

    #[test]
    fn a_conversion_that_fails_leaves_no_lock() {
        let table = LockTable::default();
        let whole = |owner, kind| {
            let owner = LockOwner::Description(owner);
            table.lock(FILE, LockFamily::Whole, HeldLock { owner, process: 1, kind, range: LockRange::ALL })
        };
        assert_eq!(whole(1, LockKind::Shared), Ok(()));
        assert_eq!(whole(2, LockKind::Shared), Ok(()));
        assert_eq!(whole(2, LockKind::Shared), Ok(()));
        assert_eq!(whole(1, LockKind::Exclusive), Err(Errno::EAGAIN));
        assert_eq!(whole(2, LockKind::Exclusive), Ok(()));
        assert_eq!(whole(1, LockKind::Shared), Err(Errno::EAGAIN));
    }
}
