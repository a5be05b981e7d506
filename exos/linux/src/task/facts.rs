//! What a thread may ask about itself that is one word: answered by the entry of rewritten system calls in a few
//! instructions, without a lock and without a frame (`glue/fast.rs`).
//!
//! Invariant: each word is what the call's handler in [`crate::call::identity`] would answer. A thread that changes a
//! parent or an identity publishes it here before its own call ends.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::task::identities::Identities;

/// The words, in an order that assembly knows.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Facts {
    /// `getpid`.
    pub pid: AtomicU32,
    /// `getppid`.
    pub parent: AtomicU32,
    /// `getuid`.
    pub uid: AtomicU32,
    /// `geteuid`.
    pub effective_uid: AtomicU32,
    /// `getgid`.
    pub gid: AtomicU32,
    /// `getegid`.
    pub effective_gid: AtomicU32,
}

impl Facts {
    /// The facts of a thread of a process.
    #[must_use]
    pub fn new(pid: u32, parent: u32, identities: &Identities) -> Self {
        let facts = Self { pid: AtomicU32::new(pid), parent: AtomicU32::new(parent), ..Self::default() };
        facts.publish(identities);
        facts
    }

    /// Takes identities over.
    pub fn publish(&self, identities: &Identities) {
        self.uid.store(identities.uid[0], Ordering::Relaxed);
        self.effective_uid.store(identities.uid[1], Ordering::Relaxed);
        self.gid.store(identities.gid[0], Ordering::Relaxed);
        self.effective_gid.store(identities.gid[1], Ordering::Relaxed);
    }
}
