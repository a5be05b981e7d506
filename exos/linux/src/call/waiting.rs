//! Waiting for a description: the loop around [`Context::wait`] that every blocking transfer shares.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::{Readiness, Registration};

use crate::call::context::Context;
use crate::task::caller::Restart;

/// The waits of one call for one description. Made before the first attempt, so that no change between an attempt and
/// the wait after it is missed.
pub(crate) struct Waiting<'a> {
    description: &'a Arc<Description>,
    interest: Readiness,
    deadline_ns: Option<u64>,
    /// What the description's queue had told when it was last looked at without being registered there.
    told_count: u64,
    /// From the first wait on.
    watching: Option<Registration>,
}

impl<'a> Waiting<'a> {
    /// Begins now; `timeout_ns` of 0 is for ever. As on Linux, a call that a signal interrupts starts again only if
    /// it has no timeout.
    pub(crate) fn begin(
        context: &mut Context<'_>,
        description: &'a Arc<Description>,
        interest: Readiness,
        timeout_ns: u64,
    ) -> Self {
        context.restart = if timeout_ns == 0 { Restart::UnlessHandlerForbids } else { Restart::Never };
        let deadline_ns = (timeout_ns > 0).then(|| context.now_ns().saturating_add(timeout_ns));
        let told_count = description.wait_queue().map_or(0, |queue| queue.told_count());
        Self { description, interest, deadline_ns, told_count, watching: None }
    }

    /// Waits until the description may be ready; not at all if something was told since the attempt that found it was
    /// not. `EAGAIN`: the time is over. `EINTR`.
    pub(crate) fn wait(&mut self, context: &mut Context<'_>) -> Result<()> {
        if self.deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            return Err(Errno::EAGAIN);
        }
        if let (None, Some(queue)) = (&self.watching, self.description.wait_queue()) {
            self.watching = context.watch_unless_told(queue, self.interest, self.told_count);
            if self.watching.is_none() {
                self.told_count = queue.told_count();
                return Ok(());
            }
        }
        context.wait(self.deadline_ns)
    }
}

/// Repeats `attempt` until it does not answer `EAGAIN`, waiting for `interest` in between, unless the description does
/// not wait.
pub(crate) fn until_ready_by<T>(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    interest: Readiness,
    timeout_ns: u64,
    mut attempt: impl FnMut(&mut Context<'_>) -> Result<T>,
) -> Result<T> {
    let mut waiting = Waiting::begin(context, description, interest, timeout_ns);
    loop {
        match attempt(context) {
            Err(Errno::EAGAIN) if !description.is_non_blocking() => {
                if let Err(error) = waiting.wait(context) {
                    // As on Linux, what is there by now counts before the signal that ended the wait, or the time.
                    return attempt(context).map_err(|last| if last == Errno::EAGAIN { error } else { last });
                }
            }
            outcome => return outcome,
        }
    }
}

/// As [`until_ready_by`], however long it takes.
pub(crate) fn until_ready<T>(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    interest: Readiness,
    attempt: impl FnMut(&mut Context<'_>) -> Result<T>,
) -> Result<T> {
    until_ready_by(context, description, interest, 0, attempt)
}
