//! Starting pods late: when those that they depend on have come so far.
//!
//! The manager makes such a pod by the order that starts one again. It is started once: what becomes of the others
//! later does not matter to it. One whose dependency cannot come so far any more ends without a life, with status 125.

use std::time::Instant;

use aegis_link::phase::PodPhase;

use super::health::Health;
use super::state::{ControlServer, Environment};
use crate::relay::ending::outcome;
use crate::relay::pod_link::{Life, LifeEnd, PodLink};
use crate::verb::up_dependencies::{Condition, Dependency};

/// What has become of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Met,
    Open,
    /// It will never be met; the word for why.
    Lost(&'static str),
}

impl ControlServer {
    /// Knows what each pod waits for.
    pub(crate) fn with_dependencies(mut self, dependencies: impl Iterator<Item = Vec<Dependency>>) -> Self {
        for (pod, dependencies) in self.pods.iter_mut().zip(dependencies) {
            if !dependencies.is_empty() {
                (pod.is_held, pod.environment) = (true, Environment::Gone);
            }
            pod.dependencies = dependencies;
        }
        self
    }

    /// Has the links of pods that wait for others say so, before anything is heard of them.
    pub(crate) fn hold_back(&self, links: &mut [PodLink]) {
        for (pod, link) in self.pods.iter().zip(links).filter(|(pod, _)| !pod.dependencies.is_empty()) {
            debug_assert!(pod.is_held);
            link.life = Life::Over { end: LifeEnd::Unbegun { due: None }, is_flushed: true };
        }
    }

    /// Has pods begin whose dependencies are met, and ends those whose never will be.
    pub(super) fn go_on_depending(&mut self, links: &mut [PodLink], now: Instant) {
        for pod in 0..self.pods.len().min(links.len()) {
            if !links[pod].is_unbegun() || links[pod].due().is_some() {
                continue;
            }
            let mut is_open = false;
            let mut lost = None;
            for it in &self.pods[pod].dependencies {
                match self.standing(*it, &links[it.pod]) {
                    Standing::Met => {}
                    Standing::Open => is_open = true,
                    Standing::Lost(why) if it.is_required => lost = Some((it.pod, why)),
                    // It is not waited for any longer.
                    Standing::Lost(_) => {}
                }
            }
            if let Some((other, why)) = lost {
                let text = format!("was not started: {} {why}", self.pods[other].name);
                self.told.push((pod, text.clone()));
                links[pod].end_unbegun(text);
                self.let_go(pod);
            } else if !is_open {
                let end = LifeEnd::Unbegun { due: Some(now) };
                links[pod].life = Life::Over { end, is_flushed: true };
            }
        }
    }

    fn standing(&self, it: Dependency, link: &PodLink) -> Standing {
        let health = self.pods[it.pod].watch.as_ref().map(|watch| watch.health);
        match (it.condition, &link.life) {
            (_, Life::Over { end: LifeEnd::Unbegun { .. }, .. }) | (_, Life::Starting) => Standing::Open,
            (_, Life::Over { end: LifeEnd::Ended(aegis_link::control::Report::Fail { .. }), .. }) => {
                Standing::Lost("could not be started")
            }
            (Condition::Started, _) => Standing::Met,
            (Condition::Healthy, _) if link.phase() == PodPhase::Running => match health {
                Some(Health::Healthy) => Standing::Met,
                Some(Health::Unhealthy) => Standing::Lost("is unhealthy"),
                Some(Health::Starting) | None => Standing::Open,
            },
            (Condition::Completed, Life::Over { end: LifeEnd::Ended(report), .. }) if outcome(report).0 == 0 => {
                Standing::Met
            }
            (Condition::Completed, Life::Over { end: LifeEnd::Ended(_) | LifeEnd::Lost, .. }) => {
                Standing::Lost("has failed")
            }
            (Condition::Healthy, Life::Over { end: LifeEnd::Ended(_) | LifeEnd::Lost, .. }) => {
                Standing::Lost("has ended")
            }
            _ => Standing::Open,
        }
    }

    /// What is to be said of pods that could not be started, once.
    pub(crate) fn take_told(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.told)
    }
}
