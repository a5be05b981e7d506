//! Job control as terminals ask for it, for the one process that there is.

use alloc::sync::{Arc, Weak};

use exos::fs::terminal::job_control::JobControl;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::process::Process;

/// `SI_KERNEL`.
const CODE_KERNEL: i32 = 0x80;

/// The process table of a pod with one process.
pub struct SingleProcess(Weak<Process>);

impl SingleProcess {
    /// Over that process.
    #[must_use]
    pub fn new(process: &Arc<Process>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(process)))
    }

    fn raise_if(&self, signal: Signal, is_meant: impl FnOnce(&Process) -> bool) {
        if let Some(process) = self.0.upgrade()
            && is_meant(&process)
        {
            let payload = SignalPayload::Sender { pid: 0, uid: 0, value: 0 };
            process.raise(signal, SignalInfo { code: CODE_KERNEL, errno: 0, payload });
        }
    }
}

impl JobControl for SingleProcess {
    fn signal_group(&self, group: u32, signal: Signal) {
        self.raise_if(signal, |process| *process.group.lock() == group);
    }

    fn signal_leader(&self, session: u32, signal: Signal) {
        self.raise_if(signal, |process| process.pid == session);
    }

    fn session_of_group(&self, group: u32) -> Option<u32> {
        let process = self.0.upgrade()?;
        let own = *process.group.lock();
        (own == group).then(|| *process.session.lock())
    }

    fn is_orphaned(&self, _: u32) -> bool {
        // Its parent is outside of the pod.
        true
    }
}
