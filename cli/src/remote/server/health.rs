//! Health checks of pods: a program in the pod now and then, whose status says whether the pod is well.
//!
//! A check is a session as those of `aegis exec`, with a number of a client that nobody is. It never holds up anything:
//! one that takes too long is killed and counts as failed, what it writes is let go, and no other is begun meanwhile.
//! One that fails counts only if its pod still runs a moment later: the end of a pod kills its checks, and is heard of
//! by another line, perhaps after theirs.

use std::time::{Duration, Instant};

use aegis_link::control::ToGuest;
use aegis_link::phase::PodPhase;
use aegis_link::sessions::{FromPod, ToPod};

use super::sessions::description;
use super::state::ControlServer;
use crate::options::health::HealthCheck;
use crate::relay::pod_link::PodLink;
use crate::remote::request::{Bytes, Exec};

/// Numbers of clients that are checks; those of commands count from 1 and never come here.
const CHECK_BASE: u64 = 1 << 63;

/// After a check's failure: its pod's end is heard of by then, if that was why.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// How a pod with a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Starting,
    Healthy,
    Unhealthy,
}

impl Health {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// A pod's check, and what came of it in the pod's present life.
#[derive(Debug)]
pub(super) struct Watch {
    check: HealthCheck,
    pub(super) health: Health,
    failures_in_a_row: u32,
    /// Since when the pod runs, and which of its lives it is.
    life: Option<(Instant, u32)>,
    next: Instant,
    /// The session that is under way, and when it takes too long.
    under_way: Option<(u32, Instant)>,
    /// One has failed, and when that counts.
    failed: Option<Instant>,
}

impl Watch {
    pub(super) fn new(check: HealthCheck) -> Self {
        let now = Instant::now();
        Self {
            check,
            health: Health::Starting,
            failures_in_a_row: 0,
            life: None,
            next: now,
            under_way: None,
            failed: None,
        }
    }

    /// Takes note of whether the pod runs, and in which of its lives.
    fn note_life(&mut self, is_running: bool, number: u32, now: Instant) {
        let is_same = self.life.is_some_and(|(_, old)| old == number);
        if is_running == self.life.is_some() && (is_same || !is_running) {
            return;
        }
        (self.health, self.failures_in_a_row) = (Health::Starting, 0);
        (self.under_way, self.failed) = (None, None);
        self.life = is_running.then_some((now, number));
        self.next = now + self.check.interval;
    }

    /// A check has ended; whether that changed how the pod is. A failure counts later, if the pod runs on.
    fn note_end(&mut self, is_well: bool, now: Instant) -> bool {
        if self.life.is_none() || self.under_way.take().is_none() {
            return false;
        }
        if !is_well {
            self.failed = Some(now + SETTLE_TIME);
            return false;
        }
        self.note_result(true, now)
    }

    /// A failure of which enough time has passed counts; whether that changed how the pod is.
    fn settle(&mut self, now: Instant) -> bool {
        self.failed.take_if(|time| now >= *time).is_some() && self.note_result(false, now)
    }

    /// A check counts; whether that changed how the pod is.
    fn note_result(&mut self, is_well: bool, now: Instant) -> bool {
        self.under_way = None;
        self.next = now + self.check.interval;
        let before = self.health;
        if is_well {
            (self.health, self.failures_in_a_row) = (Health::Healthy, 0);
        } else {
            let is_early = self.life.is_some_and(|(since, _)| now < since + self.check.start_period);
            if before != Health::Starting || !is_early {
                self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
            }
            if self.failures_in_a_row >= self.check.retries {
                self.health = Health::Unhealthy;
            }
        }
        self.health != before
    }

    /// When there is something to do.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.life.map(|_| self.failed.or(self.under_way.map(|(_, deadline)| deadline)).unwrap_or(self.next))
    }
}

/// The pod whose check has this number as a client.
pub(super) fn checked_pod(client: u64) -> Option<usize> {
    usize::try_from(client.checked_sub(CHECK_BASE)?).ok()
}

impl ControlServer {
    /// Knows how to look whether each pod is well.
    pub(crate) fn with_health(mut self, checks: impl Iterator<Item = Option<HealthCheck>>) -> Self {
        self.pods.iter_mut().zip(checks).for_each(|(pod, check)| pod.watch = check.map(Watch::new));
        self
    }

    /// Begins checks that are due and ends those that take too long.
    pub(super) fn go_on_checking(&mut self, links: &mut [PodLink], now: Instant) {
        for (pod, link) in links.iter_mut().enumerate().take(self.channels.len()) {
            let is_running = link.phase() == PodPhase::Running;
            let Some(watch) = self.pods[pod].watch.as_mut() else { continue };
            watch.note_life(is_running, link.restart_count, now);
            if watch.settle(now) {
                let word = watch.health.name();
                self.push_event(pod, word, None);
                continue;
            }
            match (watch.next_time(), watch.under_way) {
                (Some(time), _) if now < time => {}
                (Some(_), Some((session, _))) => {
                    let mut kill = Vec::new();
                    ToPod::Signal(libc::SIGKILL as u8).append(&mut kill);
                    // A pod that does not listen is one whose check has failed.
                    let _ = self.channels[pod].pass_on(session, &kill);
                    self.channels[pod].hang_up(session);
                    if let Some(watch) = self.pods[pod].watch.as_mut() {
                        (watch.under_way, watch.failed) = (None, Some(now));
                    }
                }
                (Some(_), None) => {
                    let words = watch.check.words.iter().map(|word| Bytes(word.clone().into_bytes())).collect();
                    let deadline = now + watch.check.timeout;
                    let channel = &mut self.channels[pod];
                    let config = description(&channel.config, Exec { words, ..Exec::default() });
                    match config.and_then(|config| channel.begin(CHECK_BASE + pod as u64, &config)) {
                        Ok((session, token)) => {
                            if let Some(token) = token {
                                link.send(ToGuest::Sessions { token });
                            }
                            watch.under_way = Some((session, deadline));
                        }
                        // There is no room for a session, which says nothing of the pod.
                        Err(_) => watch.next = now + watch.check.interval,
                    }
                }
                (None, _) => {}
            }
        }
    }

    /// A check's program has written something, which nobody reads.
    pub(super) fn on_check_message(&mut self, pod: usize, contents: &[u8]) {
        let session = self.pods.get(pod).and_then(|pod| pod.watch.as_ref()?.under_way);
        if let (Some((session, _)), Ok(FromPod::Output(stream, data))) = (session, FromPod::parse(contents)) {
            let mut credit = Vec::new();
            ToPod::Credit(stream, data.len() as u32).append(&mut credit);
            let _ = self.channels[pod].pass_on(session, &credit);
        }
    }

    /// A check has ended.
    pub(super) fn on_checked(&mut self, pod: usize, is_well: bool, now: Instant) {
        let Some(watch) = self.pods.get_mut(pod).and_then(|pod| pod.watch.as_mut()) else { return };
        if watch.note_end(is_well, now) {
            let word = watch.health.name();
            self.push_event(pod, word, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECK_BASE, Health, SETTLE_TIME, Watch, checked_pod};
    use crate::options::health::HealthCheck;
    use std::time::{Duration, Instant};

    #[test]
    fn failures_in_a_row_make_a_pod_unhealthy_and_a_success_well() {
        let mut watch = Watch::new(HealthCheck { start_period: Duration::from_secs(60), ..HealthCheck::shell("x") });
        let start = Instant::now();
        assert_eq!(watch.next_time(), None, "nothing runs");
        watch.note_life(true, 0, start);
        assert_eq!(watch.next_time(), Some(start + Duration::from_secs(30)));
        for _ in 0..9 {
            assert!(!watch.note_result(false, start + Duration::from_secs(59)), "it is starting");
        }
        let late = start + Duration::from_secs(61);
        assert!(!watch.note_result(false, late) && !watch.note_result(false, late));
        assert!(watch.note_result(false, late) && watch.health == Health::Unhealthy);
        assert!(watch.note_result(true, late) && watch.health == Health::Healthy);
        // Once it was well, failures count from the beginning on.
        assert!(!watch.note_result(false, start) && !watch.note_result(false, start));
        assert!(watch.note_result(false, start) && watch.health == Health::Unhealthy);
        watch.note_life(true, 1, late);
        assert_eq!((watch.health, watch.failures_in_a_row), (Health::Starting, 0), "it was started again");
        watch.note_life(false, 1, late);
        assert_eq!(watch.next_time(), None);
    }

    #[test]
    fn a_failure_counts_if_the_pod_runs_on() {
        let mut watch = Watch::new(HealthCheck { retries: 1, ..HealthCheck::shell("x") });
        let start = Instant::now();
        watch.note_life(true, 0, start);
        assert!(!watch.note_end(false, start) && watch.failed.is_none(), "nothing was under way");
        watch.under_way = Some((1, start));
        assert!(!watch.note_end(false, start) && !watch.settle(start));
        assert_eq!(watch.next_time(), Some(start + SETTLE_TIME));
        watch.note_life(false, 0, start);
        watch.note_life(true, 1, start);
        assert!(!watch.settle(start + SETTLE_TIME) && watch.health == Health::Starting, "its pod ended meanwhile");
        watch.under_way = Some((2, start));
        assert!(!watch.note_end(false, start) && watch.settle(start + SETTLE_TIME));
        assert_eq!((watch.health, watch.failed), (Health::Unhealthy, None));
    }

    #[test]
    fn checks_are_told_from_commands() {
        assert_eq!((checked_pod(1), checked_pod(CHECK_BASE), checked_pod(CHECK_BASE + 3)), (None, Some(0), Some(3)));
    }
}
