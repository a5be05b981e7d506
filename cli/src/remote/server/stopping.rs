//! Stopping pods: SIGTERM, SIGKILL after a grace, then the manager takes the pod apart.

use std::time::{Duration, Instant};

use aegis_link::control::ToGuest;
use aegis_link::orders::{Action, TicketHolder};
use aegis_link::phase::PodPhase;

use super::state::{ControlServer, Job, OrderReason, Stage, Stopping};
use crate::relay::pod_link::PodLink;

/// The longest grace that can be asked for.
const GRACE_MAX: Duration = Duration::from_secs(24 * 3600);
/// From SIGKILL to taking the pod apart, and from there to giving up.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(2);
pub(super) const DESTROY_LIMIT: Duration = Duration::from_secs(5);
const SIGTERM: u8 = libc::SIGTERM as u8;
const SIGKILL: u8 = libc::SIGKILL as u8;

impl ControlServer {
    pub(super) fn stop(
        &mut self,
        number: u64,
        grace_ms: u64,
        names: &[String],
        links: &mut [PodLink],
    ) -> Result<(), String> {
        let grace = Duration::from_millis(grace_ms).min(GRACE_MAX);
        let named = names.iter().map(|name| self.pod(name)).collect::<Result<Vec<usize>, String>>()?;
        let pods = if named.is_empty() { (0..self.pods.len()).collect() } else { named };
        let now = Instant::now();
        for pod in pods.iter().copied() {
            if links[pod].phase() == PodPhase::Waiting {
                links[pod].stop_waiting();
                self.let_go(pod);
            }
            self.pods[pod].is_final = true;
            // A second command can shorten the grace and does not begin anew.
            let next = now + grace;
            match &mut self.pods[pod].stopping {
                Some(stopping) if stopping.stage < Stage::Killed => stopping.next = stopping.next.min(next),
                Some(stopping) if stopping.stage != Stage::Failed => {}
                other => *other = Some(Stopping { stage: Stage::Waiting, next }),
            }
            self.go_on_stopping(pod, links, now);
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Stop { pods };
        }
        Ok(())
    }

    pub(super) fn go_on_stopping(&mut self, pod: usize, links: &mut [PodLink], now: Instant) {
        let is_over = self.is_over(pod, links);
        let Some(mut stopping) = self.pods[pod].stopping else { return };
        if is_over {
            self.pods[pod].stopping = None;
            return;
        }
        if stopping.stage == Stage::Waiting && links[pod].has_greeted {
            links[pod].send(ToGuest::Signal(SIGTERM));
            stopping.stage = Stage::Terminated;
        }
        if now >= stopping.next {
            (stopping.stage, stopping.next) = match stopping.stage {
                Stage::Waiting | Stage::Terminated => {
                    links[pod].send(ToGuest::Signal(SIGKILL));
                    (Stage::Killed, now + KILL_LIMIT)
                }
                Stage::Killed => {
                    self.orders.give(Action::Destroy, TicketHolder::Pod(pod as u32), 0, OrderReason::Destroy);
                    (Stage::Destroyed, now + DESTROY_LIMIT)
                }
                Stage::Destroyed | Stage::Failed => (Stage::Failed, now + GRACE_MAX),
            };
        }
        self.pods[pod].stopping = Some(stopping);
    }

    /// No pod is started again from now on, and one that goes on in spite of its signal is ended after the grace.
    pub(crate) fn end_all(&mut self, links: &mut [PodLink], grace: Duration) {
        let next = Instant::now() + grace;
        for (pod, link) in links.iter_mut().enumerate() {
            self.let_go(pod);
            link.stop_waiting();
            let stopping = self.pods[pod].stopping.get_or_insert(Stopping { stage: Stage::Terminated, next });
            stopping.next = stopping.next.min(next);
        }
    }

    /// A pod is still there after all that can be done to it.
    pub(crate) fn has_failed_to_stop(&self) -> bool {
        self.pods.iter().any(|pod| pod.stopping.is_some_and(|it| it.stage == Stage::Failed))
    }
}
