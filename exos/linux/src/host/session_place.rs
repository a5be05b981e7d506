//! Where a device's service is placed, and what it is reached by: a domain, or the extended kernel. Disks and cards
//! ([`super::disk_session`], [`super::card_session`]) stand over the same.
//!
//! Neighbours: `glue::domain`, `glue::disk_kernel` and `glue::net_kernel` are the places.

use core::sync::atomic::{AtomicU64, Ordering};

/// Visits of a service in a row while it says that there is more to do.
const VISIT_COUNT_MAX: u32 = 8;

/// Visits a service that is called, again while it says by 1 that there is more to do.
pub fn visit_while_more(mut visit: impl FnMut() -> Option<u64>) {
    let _ = (0..VISIT_COUNT_MAX).take_while(|_| visit() == Some(1)).count();
}

/// A place of a service.
pub trait SessionPlace: Send + Sync {
    /// The service does not look by itself, so it is called for everything.
    const IS_CALLED: bool;
    /// The session's words.
    fn words(&self) -> &[AtomicU64];
    /// Wakes the service.
    fn ring(&self);
    /// Has a bell rung when there is something next, where that is more than a word of the session. `true`: there is
    /// already.
    fn listen(&self) -> bool;
    /// Ends the service, and all that it was given; false: its device may still use memory.
    fn end(&self) -> bool;
    /// Starts one.
    fn start(&self) -> bool;
    /// Whether it is there no more.
    fn is_stopped(&self) -> bool;
    /// Time.
    fn now_ns(&self) -> u64;
}

/// Which sessions with a service there were, and whether the last is still there, for a place whose calls are refused
/// when it is not.
///
/// Calls come without a lock, so one that is refused may belong to a session before the one that is there by now, and
/// says nothing about that: a loss is one of the session that was there when the call began.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Sessions that were begun.
    begun: AtomicU64,
    /// The number of the last that was lost.
    lost: AtomicU64,
}

impl Sessions {
    /// None was begun.
    #[must_use]
    pub const fn new() -> Self {
        Self { begun: AtomicU64::new(0), lost: AtomicU64::new(0) }
    }

    /// Another is there: to be called when the service has taken it, as whatever is called before is refused.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// Calls the service; a refusal ends the session that was there before.
    pub fn call<E>(&self, call: impl FnOnce() -> Result<u64, E>) -> Option<u64> {
        let session = self.begun.load(Ordering::Acquire);
        let answer = call();
        if answer.is_err() {
            self.lost.fetch_max(session, Ordering::AcqRel);
        }
        answer.ok()
    }

    /// The session that is there is one no more.
    pub fn lose(&self) {
        self.lost.fetch_max(self.begun.load(Ordering::Acquire), Ordering::AcqRel);
    }

    /// Whether the last that was begun is lost, or none was.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) == self.begun.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::{Sessions, VISIT_COUNT_MAX, visit_while_more};

    #[test]
    fn visits_have_an_end() {
        for (answers, wanted) in [(vec![Some(0)], 1), (vec![Some(1), Some(1), None], 3)] {
            let mut count = 0;
            visit_while_more(|| {
                count += 1;
                answers[count - 1]
            });
            assert_eq!(count, wanted);
        }
        let mut count = 0;
        visit_while_more(|| {
            count += 1;
            Some(1)
        });
        assert_eq!(count, VISIT_COUNT_MAX);
    }

    #[test]
    fn a_refusal_is_of_the_session_that_was_called() {
        let sessions = Sessions::new();
        assert!(sessions.is_lost());
        sessions.begin();
        assert_eq!(sessions.call(|| Ok::<_, ()>(7)), Some(7));
        assert!(!sessions.is_lost());
        // Another begins while a call of the first is under way.
        let refused = sessions.call(|| {
            sessions.begin();
            Err(())
        });
        assert_eq!((refused, sessions.is_lost()), (None, false));
        assert_eq!(sessions.call(|| Err(())), None);
        assert!(sessions.is_lost());
        sessions.begin();
        assert!(!sessions.is_lost());
        sessions.lose();
        assert!(sessions.is_lost());
    }
}
