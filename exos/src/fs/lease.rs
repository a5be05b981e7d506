//! Leases (`F_SETLEASE`): the holder of one on a file is told before another process opens it in a way that does not go
//! with it, and has [`BREAK_S`] to let go.
//!
//! A shared lease goes with readers, an exclusive one with no other. `open` finds what is in its way
//! ([`LockTable::break_leases`]), has the holders told, and answers `EAGAIN`; a caller that may wait does so on the
//! table's queue and opens again.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::file_lock::{LockKind, LockTable, LockedFile};
use super::readiness::{Readiness, Waiter};
use crate::error::{Errno, Result};
use crate::reserve;

/// Seconds that a holder has (`/proc/sys/fs/lease-break-time`).
pub const BREAK_S: u64 = 45;

/// A lease on a file.
pub struct Lease {
    file: LockedFile,
    description: u64,
    kind: LockKind,
    /// Somebody waits: what is to become of it, and by when (seconds of the caller's clock).
    breaking: Option<(Option<LockKind>, u64)>,
    holder: Weak<dyn Waiter>,
}

impl LockTable {
    /// Gives a description a lease, or changes the one that it has. `holder` is told, as of a priority event, when it
    /// is to let go.
    ///
    /// # Errors
    /// `EAGAIN`: there is another that does not go with it. `ENOMEM`.
    pub fn set_lease(
        &self,
        file: LockedFile,
        description: u64,
        kind: LockKind,
        holder: Weak<dyn Waiter>,
    ) -> Result<()> {
        let mut leases = self.leases.lock();
        let is_other = |lease: &&Lease| lease.file == file && lease.description != description;
        let is_exclusive = |wanted: LockKind| wanted == LockKind::Exclusive;
        if leases.iter().filter(is_other).any(|lease| is_exclusive(lease.kind) || is_exclusive(kind)) {
            return Err(Errno::EAGAIN);
        }
        if let Some(own) = leases.iter_mut().find(|lease| lease.description == description) {
            if own.breaking.is_some_and(|(target, _)| target != Some(kind)) {
                return Err(Errno::EAGAIN);
            }
            (own.kind, own.breaking) = (kind, None);
        } else {
            reserve::reserve(&mut leases, 1)?;
            leases.push(Lease { file, description, kind, breaking: None, holder });
            self.count_entry(true);
        }
        drop(leases);
        self.wait_queue().notify(Readiness::ALWAYS);
        Ok(())
    }

    /// Ends a description's lease. False: it has none.
    pub fn end_lease(&self, description: u64) -> bool {
        let taken = {
            let mut leases = self.leases.lock();
            let place = leases.iter().position(|lease| lease.description == description);
            place.map(|place| leases.swap_remove(place))
        };
        if taken.is_some() {
            self.count_entry(false);
            self.wait_queue().notify(Readiness::ALWAYS);
        }
        taken.is_some()
    }

    /// A description's lease, or what is to become of it.
    pub fn lease(&self, description: u64) -> Option<LockKind> {
        let leases = self.leases.lock();
        let lease = leases.iter().find(|lease| lease.description == description)?;
        lease.breaking.map_or(Some(lease.kind), |(target, _)| target)
    }

    /// Somebody opens a file, to write or not: has those told whose leases do not go with it.
    ///
    /// # Errors
    /// `EAGAIN`: there are such.
    pub fn break_leases(&self, file: LockedFile, writes: bool, now_s: u64) -> Result<()> {
        let mut told: Vec<Arc<dyn Waiter>> = Vec::new();
        let (mut is_in_way, mut ended_count) = (false, 0usize);
        {
            let mut leases = self.leases.lock();
            leases.retain_mut(|lease| {
                if lease.file != file || !(writes || lease.kind == LockKind::Exclusive) {
                    return true;
                }
                let target = if writes { None } else { Some(LockKind::Shared) };
                match lease.breaking {
                    Some((target, deadline_s)) if now_s >= deadline_s => {
                        let Some(kind) = target else {
                            ended_count += 1;
                            return false;
                        };
                        (lease.kind, lease.breaking) = (kind, None);
                        is_in_way |= writes;
                    }
                    Some((before, deadline_s)) => {
                        lease.breaking = Some((before.and(target), deadline_s));
                        is_in_way = true;
                    }
                    None => {
                        lease.breaking = Some((target, now_s + BREAK_S));
                        told.extend(lease.holder.upgrade());
                        is_in_way = true;
                    }
                }
                true
            });
        }
        (0..ended_count).for_each(|_| self.count_entry(false));
        told.iter().for_each(|holder| holder.wake(Readiness::PRIORITY));
        if is_in_way { Err(Errno::EAGAIN) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{BREAK_S, LockKind, LockTable, LockedFile};
    use crate::error::Errno;
    use crate::fs::Count;
    use crate::fs::metadata::DeviceNumber;
    use crate::fs::readiness::Waiter;
    use alloc::sync::{Arc, Weak};
    use core::sync::atomic::Ordering;

    #[test]
    fn a_lease_is_in_the_way_until_it_is_given_up_or_its_time_is_over() {
        let (table, count) = (LockTable::default(), Arc::new(Count::default()));
        let holder = || -> Weak<dyn Waiter> { Arc::<Count>::downgrade(&count) };
        let file = LockedFile { device: DeviceNumber { major: 0, minor: 1 }, inode_number: 1 };
        assert_eq!(table.set_lease(file, 1, LockKind::Shared, holder()), Ok(()));
        assert_eq!(table.set_lease(file, 2, LockKind::Shared, holder()), Ok(()));
        assert_eq!(table.set_lease(file, 3, LockKind::Exclusive, holder()), Err(Errno::EAGAIN));
        assert_eq!(table.break_leases(file, false, 0), Ok(()));
        assert_eq!(table.break_leases(file, true, 0), Err(Errno::EAGAIN));
        assert_eq!((count.0.load(Ordering::Relaxed), table.lease(1)), (2, None));
        assert!(table.end_lease(1) && !table.end_lease(1) && !table.is_idle());
        assert_eq!(table.break_leases(file, true, BREAK_S), Ok(()));
        assert!(table.is_idle());
        assert_eq!(table.set_lease(file, 3, LockKind::Exclusive, holder()), Ok(()));
        assert_eq!(table.break_leases(file, false, 0), Err(Errno::EAGAIN));
        assert_eq!(table.lease(3), Some(LockKind::Shared));
        assert_eq!(table.set_lease(file, 3, LockKind::Shared, holder()), Ok(()));
        assert_eq!(table.break_leases(file, false, 0), Ok(()));
        table.forget(3);
        assert!(table.is_idle());
    }
}
