//! Starting pods again that have ended, as [`Restart`] says.

use std::time::Instant;

use aegis_link::control::Report;
use aegis_link::orders::{Action, Outcome, TicketHolder};

use super::restart::{Restart, STEADY};
use super::state::{ControlServer, Environment, OrderReason};
use crate::relay::ending::outcome;
use crate::relay::pod_link::{Life, LifeEnd, PodLink, Stage};

impl ControlServer {
    /// A pod's life is over, as its library OS said, or without a word and with all read that it wrote. Decides whether
    /// it is started again, which its link is told, and what is to be said about it.
    pub(crate) fn on_end(&mut self, pod: usize, report: Option<Report>, link: &mut PodLink) -> Option<String> {
        let known = &mut self.pods[pod];
        if known.started.elapsed() >= STEADY {
            known.starts_in_a_row = 0;
        }
        let status = report.as_ref().map(|report| outcome(report).0);
        let is_wanted = known.restart.wants(status);
        // One that says so may have written more.
        let is_flushed = report.is_none();
        let count_max = known.restart.count_max;
        if !is_wanted || known.starts_in_a_row >= count_max {
            link.life = Life::Over { end: LifeEnd::of(report), is_flushed };
            self.let_go(pod);
            return is_wanted.then(|| format!("not started again: it was, {count_max} times in a row"));
        }
        let wait = Restart::back_off(known.starts_in_a_row);
        known.starts_in_a_row += 1;
        link.life = Life::Over { end: LifeEnd::Waiting { due: Instant::now() + wait, report }, is_flushed };
        Some(format!("starts again in {} s ({} of {count_max})", wait.as_secs_f64(), known.starts_in_a_row))
    }

    /// The pod is not wanted any more: the machine may end without it.
    pub(super) fn let_go(&mut self, pod: usize) {
        self.pods[pod].restart = Restart::NO;
        if std::mem::take(&mut self.pods[pod].is_held) {
            self.orders.give(Action::Release, TicketHolder::Pod(pod as u32), 0, OrderReason::Destroy);
        }
    }

    /// Starts a pod again when it is time and nothing of it is left. What it says comes perhaps before the manager's
    /// answer, so it is a new one from here on.
    pub(super) fn go_on_starting(&mut self, pod: usize, link: &mut PodLink, now: Instant) {
        let known = &mut self.pods[pod];
        let is_due = link.due().is_some_and(|due| now >= due);
        if !is_due || known.environment != Environment::Gone || !link.is_flushed() {
            return;
        }
        if self.orders.give(Action::Restart, TicketHolder::Pod(pod as u32), 0, OrderReason::Restart(pod)) {
            (known.environment, known.started) = (Environment::AskedFor, now);
            link.begin_again();
        }
    }

    /// The manager has answered.
    pub(super) fn on_started(&mut self, pod: usize, outcome: Option<Outcome>, link: &mut PodLink) {
        let known = &mut self.pods[pod];
        if outcome != Some(Outcome::Done) {
            (known.environment, link.life) = (Environment::Gone, Life::Over { end: LifeEnd::Lost, is_flushed: false });
            self.let_go(pod);
        } else if !known.is_held {
            // It was stopped after it was asked for.
            link.begin_ending(Stage::Waiting, Instant::now());
        }
    }
}
