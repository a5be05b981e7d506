//! A list of what is looked at for every packet, in the order in which it came; to see that it is empty costs a load.
//!
//! Neighbours: [`super::raw`], [`super::room`].

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Result;
use crate::reserve;
use crate::sync::Mutex;

/// The list.
pub(super) struct SocketList<T> {
    members: Mutex<Vec<Weak<T>>>,
    count: AtomicUsize,
}

impl<T> Default for SocketList<T> {
    fn default() -> Self {
        Self { members: Mutex::default(), count: AtomicUsize::new(0) }
    }
}

impl<T> SocketList<T> {
    /// Adds one, unless it is there.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn add(&self, member: &Arc<T>) -> Result<()> {
        let mut members = self.members.lock();
        // Those that went without a word.
        members.retain(|known| known.strong_count() > 0);
        if members.iter().any(|known| core::ptr::eq(known.as_ptr(), Arc::as_ptr(member))) {
            return Ok(());
        }
        reserve::reserve(&mut members, 1)?;
        members.push(Arc::downgrade(member));
        self.count.store(members.len(), Ordering::Release);
        Ok(())
    }

    /// Takes all away.
    pub(super) fn take(&self) -> Vec<Weak<T>> {
        let mut members = self.members.lock();
        self.count.store(0, Ordering::Release);
        core::mem::take(&mut *members)
    }

    /// Takes one away, and what is gone already.
    pub(super) fn remove(&self, member: &T) {
        let mut members = self.members.lock();
        members.retain(|known| known.strong_count() > 0 && !core::ptr::eq(known.as_ptr(), member));
        self.count.store(members.len(), Ordering::Release);
    }

    /// Whether there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Those that `wants` says yes to.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn select(&self, wants: impl Fn(&T) -> bool) -> Result<Vec<Arc<T>>> {
        let mut found = Vec::new();
        for member in self.members.lock().iter().filter_map(Weak::upgrade) {
            if wants(&member) {
                reserve::reserve(&mut found, 1)?;
                found.push(member);
            }
        }
        Ok(found)
    }

    /// Calls `action` with each. It looks at nothing that a lock protects.
    pub(super) fn for_each(&self, action: impl FnMut(&Arc<T>)) {
        let all = self.select(|_| true).unwrap_or_default();
        all.iter().for_each(action);
    }
}
