//! Reports: what the manager and the pods say of themselves, put together for a client.

use std::time::{Duration, Instant};

use aegis_link::control::{FromGuest, ToGuest};
use aegis_link::frame::{Kind, SOCKET_BYTES_MAX};
use aegis_link::orders::{Action, PodState, TicketHolder};
use aegis_link::phase::PodPhase;

use super::logs::Next;
use super::state::{ControlServer, Environment, Job, OrderReason, ReportJob};
use crate::relay::ending::outcome;
use crate::relay::pod_link::PodLink;
use crate::remote::record::{Record, RecordedLine};
use crate::remote::report::{CurrencyReport, MachineReport, PodReport, ProcessReport, Usage, json};
use crate::remote::request::Bytes;

/// The longest time for an answer from inside the machine.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The longest time for what pods have to say about their processes, if one does not say it.
const PROCESSES_LIMIT: Duration = Duration::from_secs(3);
/// About what a process takes beside its arguments.
const PROCESS_BYTES: usize = 100;
/// Most bytes of that.
const PROCESSES_BYTES_MAX: usize = 8 << 20;

impl ControlServer {
    /// Orders that a report takes.
    pub(super) fn report_order_count(&self) -> usize {
        self.pods.len() + self.payers.count()
    }

    /// Asks the manager about all pods, and those that run about their processes. A manager that has not taken what it
    /// was asked before is not asked.
    pub(super) fn ask_all(&mut self, number: u64, links: Option<&mut [PodLink]>) -> Result<(), String> {
        let mut deadline = Instant::now() + ANSWER_LIMIT;
        let currencies = (0..self.payers.count() as u32).map(TicketHolder::Currency);
        let asked = (0..self.pods.len() as u32).map(TicketHolder::Pod).chain(currencies);
        let is_asked = self.orders.takes(self.report_order_count());
        let orders_left =
            asked.filter(|it| is_asked && self.orders.give(Action::Read, *it, 0, OrderReason::Report(number))).count();
        let (states, currencies) = (vec![None; self.pods.len()], vec![None; self.payers.count()]);
        let mut silent = Vec::new();
        self.last_token += 1;
        let token = self.last_token;
        for (pod, link) in links.into_iter().flatten().enumerate() {
            if link.phase() == PodPhase::Running && self.pods[pod].environment != Environment::Gone {
                deadline = Instant::now() + PROCESSES_LIMIT;
                link.send(ToGuest::Processes { token });
                silent.push(pod);
            }
        }
        self.begin(
            number,
            Job::Report(ReportJob {
                states,
                currencies,
                traffic: vec![None; self.pods.len()],
                processes: vec![Vec::new(); self.pods.len()],
                has_said: vec![false; self.pods.len()],
                command_bytes: 0,
                orders_left,
                silent,
                token,
                deadline,
            }),
        )
    }

    /// A pod says something about its processes.
    pub(crate) fn on_processes(&mut self, pod: usize, message: FromGuest) {
        let (FromGuest::Traffic { token, .. } | FromGuest::Process { token, .. } | FromGuest::Processes { token, .. }) =
            message
        else {
            return;
        };
        let mut reports = self.clients.values_mut().filter_map(|client| match &mut client.job {
            Job::Report(report) => Some(report),
            _ => None,
        });
        let asked = reports.find(|report| report.token == token && report.silent.contains(&pod));
        let Some(report) = asked else { return };
        match message {
            FromGuest::Traffic { traffic, .. } => report.traffic[pod] = Some(traffic.into()),
            FromGuest::Process { process: it, .. } => {
                report.command_bytes += it.command.len() + PROCESS_BYTES;
                report.processes[pod].push(ProcessReport {
                    pid: it.pid,
                    ppid: it.parent,
                    state: it.state,
                    time_ns: it.used_ns,
                    resident_bytes: it.resident_bytes,
                    command: it.command,
                });
                // More than a pod says is a pod that does not stop saying it.
                if report.command_bytes > PROCESSES_BYTES_MAX {
                    report.silent.clear();
                }
            }
            _ => {
                report.has_said[pod] = true;
                report.silent.retain(|silent| *silent != pod);
            }
        }
    }

    pub(super) fn finish_report(&mut self, number: u64, links: &[PodLink]) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Job::Report(job) = std::mem::replace(&mut client.job, Job::Nothing) else { return };
        let is_web = client.web.is_some();
        self.forget_orders();
        let report = self.machine_report(job, links);
        if is_web {
            return self.report_to_web(number, report);
        }
        let Some(client) = self.clients.get_mut(&number) else { return };
        for contents in json(&report).as_bytes().chunks(SOCKET_BYTES_MAX) {
            client.send(Kind::Output, contents);
        }
        client.end(0, "");
    }

    fn machine_report(&self, job: ReportJob, links: &[PodLink]) -> MachineReport {
        let ReportJob { states, currencies, traffic, mut processes, has_said, .. } = job;
        let currency = |(number, state): (usize, &Option<PodState>)| CurrencyReport {
            name: self.payers.name(number).to_owned(),
            tickets: state.map_or(0, |state| state.tickets),
            currency: self.payers.of_currency(number).to_owned(),
        };
        let mut pods = Vec::new();
        for (number, link) in links.iter().enumerate().take(self.pods.len()) {
            let state = states[number];
            let shown = match (link.phase(), state) {
                (phase @ (PodPhase::Waiting | PodPhase::Ended), _) => Some(phase),
                (_, None) => None,
                (_, Some(state)) if state.phase.is_over() => Some(PodPhase::Lost),
                (phase, Some(_)) => Some(phase),
            };
            pods.push(PodReport {
                usage: state.map(Usage::from),
                traffic: traffic[number],
                processes: std::mem::take(&mut processes[number]),
                has_all_processes: has_said[number] || link.phase().is_over(),
                ..self.pod_report(number, link, shown)
            });
        }
        let currencies = currencies.iter().enumerate().map(currency).collect();
        MachineReport { machine: self.machine_name(), pods, currencies }
    }

    /// What is known of a pod without asking anybody.
    fn pod_report(&self, number: usize, link: &PodLink, state: Option<PodPhase>) -> PodReport {
        let pod = &self.pods[number];
        PodReport {
            name: pod.name.clone(),
            state,
            status: link.life.report().map(|report| outcome(report).0),
            has_crashed: state == Some(PodPhase::Lost) && !pod.is_taken_apart,
            health: pod.watch.as_ref().filter(|_| !link.phase().is_over()).map(|watch| watch.health.name().to_owned()),
            restarts: link.restart_count,
            currency: self.payers.of_pod(number).to_owned(),
            ports: pod.ports.clone(),
            ..PodReport::default()
        }
    }

    /// Leaves behind what the machine was, for commands that come when it has ended. Without a place nobody comes.
    pub(crate) fn leave_record(&self, links: &[PodLink]) {
        let Some(address) = &self.address else { return };
        let pods = links.iter().enumerate().take(self.pods.len());
        let pods = pods.map(|(number, link)| self.pod_report(number, link, Some(link.phase()))).collect();
        let report = MachineReport { machine: self.machine_name(), pods, currencies: Vec::new() };
        let mut position = self.logs.position_of_last(None, u64::MAX);
        let mut lines = Vec::new();
        loop {
            match self.logs.read(None, &mut position) {
                Next::Line(pod, line) => lines.push(RecordedLine {
                    pod: self.pods[pod].name.clone(),
                    error: line.is_error,
                    text: Bytes(line.text.clone()),
                }),
                Next::Lost(_) => {}
                Next::Nothing => break,
            }
        }
        // The machine's end is not to fail for want of a place for this.
        let _ = Record { report, lines }.write(&address.record());
    }
}
