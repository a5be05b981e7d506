//! Stopping pods: SIGTERM or what else ends a program, SIGKILL after a grace, then the manager takes the pod apart.

use std::time::{Duration, Instant};

use super::state::{ControlServer, Environment, Job, OrderReason};
use crate::relay::pod_link::{Life, PodLink, Stage};
use aegis_link::control::ToGuest;
use aegis_link::orders::{Action, TicketHolder};

/// The longest grace that can be asked for.
const GRACE_MAX: Duration = Duration::from_secs(24 * 3600);
/// From SIGKILL to taking the pod apart, and from there to giving up.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(2);
pub(super) const DESTROY_LIMIT: Duration = Duration::from_secs(5);
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
            links[pod].stop_waiting();
            self.let_go(pod);
            links[pod].begin_ending(Stage::Waiting, now + grace);
            self.go_on_stopping(pod, &mut links[pod], now);
        }
        self.begin(number, Job::Stop { pods })
    }

    pub(super) fn go_on_stopping(&mut self, pod: usize, link: &mut PodLink, now: Instant) {
        let Life::Ending { has_greeted, mut stage, mut next } = link.life else { return };
        if self.pods[pod].environment == Environment::Gone {
            return;
        }
        if stage == Stage::Waiting && has_greeted {
            link.send(ToGuest::Signal(self.pods[pod].stop_signal));
            stage = Stage::Terminated;
        }
        if now >= next {
            (stage, next) = match stage {
                Stage::Waiting | Stage::Terminated => {
                    link.send(ToGuest::Signal(SIGKILL));
                    (Stage::Killed, now + KILL_LIMIT)
                }
                Stage::Killed => {
                    self.pods[pod].is_taken_apart = true;
                    self.orders.give(Action::Destroy, TicketHolder::Pod(pod as u32), 0, OrderReason::Destroy);
                    (Stage::Destroyed, now + DESTROY_LIMIT)
                }
                Stage::Destroyed | Stage::Failed => (Stage::Failed, now + GRACE_MAX),
            };
        }
        link.life = Life::Ending { has_greeted, stage, next };
    }

    /// No pod is started again from now on, and one that goes on in spite of its signal is ended after the grace.
    pub(crate) fn end_all(&mut self, links: &mut [PodLink], grace: Duration) {
        let next = Instant::now() + grace;
        for (pod, link) in links.iter_mut().enumerate() {
            self.let_go(pod);
            link.stop_waiting();
            link.begin_ending(Stage::Terminated, next);
        }
    }
}
