//! What a process may ask about itself that is one word: answered by the entry of rewritten system calls in a few
//! instructions, without a lock and without a frame (`glue/fast.rs`); and what the processor wants to know of it
//! whenever it runs one of its threads.
//!
//! Invariant: each word is what the call's handler in [`crate::call::identity`] would answer. Whoever changes a parent
//! or an identity publishes it here before its own call ends.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::process::Identities;

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
    /// It has handled faults of its own ([`crate::native`]), so that its faults are offered to it first.
    pub has_handled_faults: AtomicBool,
}

impl Facts {
    /// The facts of a process.
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
