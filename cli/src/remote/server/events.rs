//! What happened to pods, in order: the last [`EVENT_COUNT_MAX`] changes of where they are in their lives.
//!
//! A change is seen by looking at every pod after each wait, so what came and went between two looks is told as one.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use aegis_launch::errors::STATUS_TOOL;
use aegis_link::frame::Kind;
use aegis_link::phase::PodPhase;

use super::state::{ControlServer, Job, OUT_BYTES_ENOUGH};
use crate::relay::ending::outcome;
use crate::relay::pod_link::PodLink;
use crate::remote::report::{EventReport, json};

/// Events that are kept; a reader that comes later does not learn of those before.
const EVENT_COUNT_MAX: usize = 1024;

/// The events, and where each pod was last.
#[derive(Debug, Default)]
pub(super) struct Events {
    kept: VecDeque<EventReport>,
    /// Number of the first that is kept.
    first: u64,
    /// By pod: its phase, and how often it was started again.
    seen: Vec<(PodPhase, u32)>,
}

impl Events {
    fn push(&mut self, event: EventReport) {
        self.kept.push_back(event);
        if self.kept.len() > EVENT_COUNT_MAX {
            self.kept.pop_front();
            self.first += 1;
        }
    }

    /// The one with this number, or the first behind it that is kept, and the number after that.
    fn after(&self, number: u64) -> Option<(&EventReport, u64)> {
        let index = number.saturating_sub(self.first);
        let event = self.kept.get(usize::try_from(index).ok()?)?;
        Some((event, self.first + index + 1))
    }
}

/// The word for a change to this phase.
fn word(phase: PodPhase) -> &'static str {
    match phase {
        PodPhase::Starting => "start",
        PodPhase::Running => "running",
        PodPhase::Ending => "stop",
        PodPhase::Waiting | PodPhase::Ended => "exit",
        PodPhase::Lost => "lost",
    }
}

/// The status of a pod that is over, as its machine's tool would end with it.
pub(super) fn status_of(link: &PodLink) -> u8 {
    link.life.report().map_or(STATUS_TOOL, |report| outcome(report).0)
}

impl ControlServer {
    /// Notes where pods are now.
    pub(super) fn note_phases(&mut self, links: &[PodLink]) {
        for (pod, link) in links.iter().enumerate().take(self.pods.len()) {
            let now = (link.phase(), link.restart_count);
            match self.events.seen.get_mut(pod) {
                Some(seen) if *seen == now => continue,
                Some(seen) => *seen = now,
                None => self.events.seen.push(now),
            }
            // Nothing has happened to one that waits for others.
            if links[pod].is_unbegun() {
                continue;
            }
            let is_exit = matches!(now.0, PodPhase::Waiting | PodPhase::Ended | PodPhase::Lost);
            self.push_event(pod, word(now.0), is_exit.then(|| status_of(link)));
        }
    }

    /// Notes that something happened to a pod.
    pub(super) fn push_event(&mut self, pod: usize, event: &str, status: Option<u8>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.events.push(EventReport {
            time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            machine: self.machine_name(),
            pod: self.pods[pod].name.clone(),
            event: event.to_owned(),
            status,
            restarts: self.events.seen.get(pod).map_or(0, |(_, restarts)| *restarts),
        });
    }

    pub(super) fn go_on_with_events(&mut self, number: u64, links: &[PodLink]) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Job::Events { follows, mut next } = client.job else { return };
        while client.stream.pending_bytes() < OUT_BYTES_ENOUGH && !client.is_over {
            let Some((event, after)) = self.events.after(next) else {
                let is_over = |link: &PodLink| link.phase().is_over() && link.phase() != PodPhase::Waiting;
                if !follows || links.iter().all(is_over) {
                    client.end(0, "");
                    return;
                }
                break;
            };
            client.send(Kind::Output, format!("{}\n", json(event)).as_bytes());
            next = after;
        }
        client.job = Job::Events { follows, next };
    }

    /// Answers with the status of each of these pods once all are over.
    pub(super) fn wait(&mut self, number: u64, names: &[String]) -> Result<(), String> {
        let named = names.iter().map(|name| self.pod(name)).collect::<Result<Vec<usize>, String>>()?;
        let pods = if named.is_empty() { (0..self.pods.len()).collect() } else { named };
        self.begin(number, Job::Wait { pods })
    }

    pub(super) fn go_on_waiting(&mut self, number: u64, links: &[PodLink]) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Job::Wait { pods } = &client.job else { return };
        let is_over = |pod: &usize| links[*pod].phase().is_over() && links[*pod].phase() != PodPhase::Waiting;
        if pods.iter().all(is_over) {
            let lines: String = pods.iter().map(|pod| format!("{}\n", status_of(&links[*pod]))).collect();
            client.send(Kind::Output, lines.as_bytes());
            client.end(0, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENT_COUNT_MAX, Events};
    use crate::remote::report::EventReport;

    #[test]
    fn old_events_go_and_a_reader_goes_on_behind_them() {
        let mut events = Events::default();
        assert!(events.after(0).is_none());
        for restarts in 0..EVENT_COUNT_MAX as u32 + 5 {
            events.push(EventReport { restarts, ..EventReport::default() });
        }
        let (first, next) = events.after(2).expect("kept");
        assert_eq!((first.restarts, next), (5, 6));
        let last = EVENT_COUNT_MAX as u64 + 4;
        assert_eq!(events.after(last).map(|(event, next)| (u64::from(event.restarts), next)), Some((last, last + 1)));
        assert!(events.after(last + 1).is_none());
    }
}
