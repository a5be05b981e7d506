//! Whether one process may look into another (`ptrace(2)`, "access mode checking").

use alloc::sync::Arc;

use exos::task::capability::Capability;

use crate::task::memory::DUMPABLE_BY_USER;
use crate::task::process::{Process, Thread};

/// Whose rights count where one process looks into another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// The real user's, with what may be made effective: calls.
    Real,
    /// The user's for files, with what is effective: `/proc`.
    ForFiles,
}

/// Whether a thread of a process may look into `target`.
pub(crate) fn may_trace_by((process, thread): (&Arc<Process>, &Thread), rights: Rights, target: &Arc<Process>) -> bool {
    if Arc::ptr_eq(target, process) {
        return true;
    }
    let (own_uid, own_gid, own_held) = {
        let own = thread.identities.lock();
        if own.can(Capability::SYS_PTRACE) {
            return true;
        }
        match rights {
            Rights::Real => (own.uid[0], own.gid[0], own.capabilities.permitted),
            Rights::ForFiles => (own.uid[3], own.gid[3], own.capabilities.effective),
        }
    };
    let (theirs, held) = {
        let identities = target.identities.lock();
        ((identities.uid, identities.gid), identities.capabilities.permitted)
    };
    let is_same = theirs.0[..3].iter().all(|uid| *uid == own_uid) && theirs.1[..3].iter().all(|gid| *gid == own_gid);
    is_same && held.is_within(own_held) && target.space().dumpable() == DUMPABLE_BY_USER
}
