//! Waiting for a description: the loop around [`Context::wait`] that every blocking transfer shares. The open file says
//! for what, and for how long, its readers and writers wait ([`Step`]).

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::{Readiness, Registration};
use exos::fs::step::{Step, Transfer};
use exos::preempt;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::call::context::Context;
use crate::task::caller::Restart;

/// The waits of one call for one description. Made before the first attempt, so that no change between an attempt and
/// the wait after it is missed.
struct Waiting<'a> {
    description: &'a Arc<Description>,
    /// What the description's queue had told when it was last looked at without being registered there.
    told_count: u64,
    /// From the first wait on.
    watching: Option<Registration>,
}

impl Waiting<'_> {
    /// Waits until the description may be ready; not at all if something was told since the attempt that found it was
    /// not. `EAGAIN`: the time is over. `EINTR`.
    fn wait(&mut self, context: &mut Context<'_>, transfer: &Transfer) -> Result<()> {
        if transfer.deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            return Err(Errno::EAGAIN);
        }
        if let (None, Some(queue)) = (&self.watching, self.description.wait_queue()) {
            self.watching = context.watch_unless_told(queue, transfer.interest, self.told_count);
            if self.watching.is_none() {
                self.told_count = queue.told_count();
                return Ok(());
            }
        }
        context.wait(transfer.deadline_ns)
    }
}

/// A transfer of `description`, attempt by attempt, with the waits in between.
#[inline(always)]
pub(crate) fn in_steps(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    mut transfer: Transfer,
    mut attempt: impl FnMut(&mut Context<'_>, &mut Transfer) -> Step,
) -> Result<u64> {
    context.restart = Restart::UnlessHandlerForbids;
    let told_count = description.wait_queue().map_or(0, |queue| queue.told_count());
    let mut waiting = Waiting { description, told_count, watching: None };
    let mut has_looked = false;
    let error = loop {
        match attempt(context, &mut transfer) {
            Step::Done(count) => return Ok(count as u64),
            Step::Again if preempt::unless_killed().is_ok() => {}
            Step::Again => return Ok(transfer.done as u64),
            Step::Wait => match transfer.ended_by {
                // As on Linux, what is there by now counts before the signal that ended the wait, or the time.
                Some(error) => break error,
                // One that does not wait gets what lies at the door, once.
                None if !transfer.may_wait => {
                    if has_looked || !context.system.platform.look() {
                        break Errno::EAGAIN;
                    }
                    has_looked = true;
                }
                None => {
                    if !transfer.starts_again {
                        context.restart = Restart::Never;
                    }
                    transfer.ended_by = waiting.wait(context, &transfer).err();
                }
            },
            Step::Stopped => break Errno::EINTR,
            Step::Raise(signal) => {
                raise_own(context, signal);
                break Errno::EPIPE;
            }
            Step::Failed(error) => break error,
        }
    };
    transfer.outcome(error).map(|count| count as u64)
}

/// A signal that the process brought upon itself.
pub(super) fn raise_own(context: &Context<'_>, signal: Signal) {
    let payload = SignalPayload::Sender { pid: context.process.pid, uid: 0, value: 0 };
    context.process.raise(signal, SignalInfo { code: 0, errno: 0, payload });
}

/// Repeats `attempt` until it does not answer `EAGAIN`, waiting for `interest` in between, for `timeout_ns` (0 is for
/// ever), unless the description does not wait.
pub(crate) fn until_ready_by<T>(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    interest: Readiness,
    timeout_ns: u64,
    attempt: impl FnMut(&mut Context<'_>) -> Result<T>,
) -> Result<T> {
    let limit = WaitLimit { timeout_ns, may_wait: !description.is_non_blocking() };
    until_ready_with(context, description, interest, limit, attempt)
}

/// Whether a caller waits, and for how long (0 is for ever).
#[derive(Clone, Copy)]
pub(crate) struct WaitLimit {
    pub(crate) timeout_ns: u64,
    pub(crate) may_wait: bool,
}

/// As [`until_ready_by`], of a caller that says itself whether it waits.
pub(crate) fn until_ready_with<T>(
    context: &mut Context<'_>,
    description: &Arc<Description>,
    interest: Readiness,
    limit: WaitLimit,
    mut attempt: impl FnMut(&mut Context<'_>) -> Result<T>,
) -> Result<T> {
    let mut answer = None;
    let WaitLimit { timeout_ns, may_wait } = limit;
    let transfer = Transfer::new(interest, may_wait);
    in_steps(context, description, transfer, |context, transfer| match attempt(context) {
        Ok(value) => {
            answer = Some(value);
            Step::Done(0)
        }
        Err(Errno::EAGAIN) => transfer.wait_at_most(timeout_ns, &context.caller),
        Err(error) => Step::Failed(error),
    })?;
    answer.ok_or(Errno::EAGAIN)
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
