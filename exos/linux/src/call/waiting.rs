//! Waiting for a description: the loop around [`Context::wait`] that every blocking transfer shares.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::{Readiness, Registration};
use exos::sync::Mutex;

use crate::context::{Context, Restart};

/// The waits of one call.
pub(crate) struct Waiting {
    deadline_ns: Option<u64>,
    /// From the first wait on: what changes afterwards ends the next.
    watching: Mutex<Option<Registration>>,
}

impl Waiting {
    /// Begins now; `timeout_ns` of 0 is for ever. As on Linux, a call that a signal interrupts starts again only if
    /// it has no timeout.
    pub(crate) fn begin(context: &mut Context<'_>, timeout_ns: u64) -> Self {
        context.restart = if timeout_ns == 0 { Restart::UnlessHandlerForbids } else { Restart::Never };
        let deadline_ns = (timeout_ns > 0).then(|| context.now_ns().saturating_add(timeout_ns));
        Self { deadline_ns, watching: Mutex::new(None) }
    }

    /// Waits until the description may be ready; the first time only sees to it that changes are told, so that none
    /// between the caller's attempt and the wait is missed. `EAGAIN`: the time is over. `EINTR`.
    pub(crate) fn wait(&self, context: &mut Context<'_>, description: &Arc<Description>) -> Result<()> {
        if self.deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            return Err(Errno::EAGAIN);
        }
        let mut watching = self.watching.lock();
        if let (None, Some(queue)) = (&*watching, description.wait_queue()) {
            *watching = Some(context.watch(&queue, Readiness::all()));
            return Ok(());
        }
        drop(watching);
        context.wait(self.deadline_ns)
    }
}

/// Repeats `attempt` until it does not answer `EAGAIN`, waiting in between, unless the description does not wait.
pub(crate) fn until_ready_by<T>(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    timeout_ns: u64,
    mut attempt: impl FnMut(&mut Context<'_>) -> Result<T>,
) -> Result<T> {
    let waiting = Waiting::begin(context, timeout_ns);
    loop {
        match attempt(context) {
            Err(Errno::EAGAIN) if !description.is_non_blocking() => waiting.wait(context, description)?,
            outcome => return outcome,
        }
    }
}
