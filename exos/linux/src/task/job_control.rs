//! Job control as terminals ask for it, for the processes of a pod.

use alloc::sync::{Arc, Weak};

use exos::fs::terminal::job_control::JobControl;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::abi::linux::SI_KERNEL;
use crate::task::process::Process;
use crate::task::system::System;

/// The process table of a pod.
pub struct PodJobs(Weak<System>);

impl PodJobs {
    /// Over that pod.
    #[must_use]
    pub fn new(system: &Arc<System>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(system)))
    }
}

fn raise(process: &Process, signal: Signal) {
    let payload = SignalPayload::Sender { pid: 0, uid: 0, value: 0 };
    process.raise(signal, SignalInfo { code: SI_KERNEL, errno: 0, payload });
}

impl JobControl for PodJobs {
    fn signal_group(&self, group: u32, signal: Signal) {
        if let Some(system) = self.0.upgrade() {
            system.processes.in_group(group).for_each(|process| raise(&process, signal));
        }
    }

    fn signal_leader(&self, session: u32, signal: Signal) {
        if let Some(leader) = self.0.upgrade().and_then(|system| system.processes.get(session)) {
            raise(&leader, signal);
        }
    }

    fn session_of_group(&self, group: u32) -> Option<u32> {
        let system = self.0.upgrade()?;
        let member = system.processes.in_group(group).next()?;
        Some(*member.session.lock())
    }

    fn is_orphaned(&self, group: u32) -> bool {
        self.0.upgrade().is_none_or(|system| crate::task::exit::is_orphaned(&system, group))
    }
}
