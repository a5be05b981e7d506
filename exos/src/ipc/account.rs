//! What objects cost exos, and the bound on it.
//!
//! A [`Charge`] is a part of an account that goes back when it is dropped, so it lives in what it pays for.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Errno, Result};

/// A bound on bytes.
pub struct Account {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl Account {
    /// An account of which nothing is used.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, used_bytes: AtomicU64::new(0) })
    }

    /// Takes `count` bytes. `ENOMEM`: there are not so many left.
    pub fn take(self: &Arc<Self>, count: u64) -> Result<Charge> {
        let limit = self.limit_bytes;
        let fits = |used: u64| used.checked_add(count).filter(|sum| *sum <= limit);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Charge { account: self.clone(), count }),
            Err(_) => Err(Errno::ENOMEM),
        }
    }

    /// Bytes that somebody has.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

/// A part of an account.
pub struct Charge {
    account: Arc<Account>,
    count: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.used_bytes.fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Account;
    use crate::error::Errno;

    #[test]
    fn an_account_refuses_what_it_does_not_have_and_takes_back() {
        let account = Account::new(10);
        let first = account.take(7).expect("there is room");
        assert_eq!(account.take(4).err(), Some(Errno::ENOMEM));
        assert_eq!(account.take(u64::MAX).err(), Some(Errno::ENOMEM));
        let second = account.take(3).expect("exactly the rest");
        drop(first);
        assert_eq!(account.used_bytes(), 3);
        drop(second);
        assert_eq!(account.used_bytes(), 0);
    }
}
