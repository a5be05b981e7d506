//! Reports: what the manager and the pods say of themselves, put together for a client.

use std::time::{Duration, Instant};

use aegis_link::control::{FromGuest, ToGuest};
use aegis_link::frame::{Kind, SOCKET_BYTES_MAX};
use aegis_link::orders::{Action, PodState, TicketHolder};
use aegis_link::phase::PodPhase;

use super::state::{ControlServer, Environment, Job, OrderReason, ReportJob};
use crate::relay::ending::outcome;
use crate::relay::pod_link::PodLink;
use crate::remote::report::{CurrencyReport, MachineReport, PodReport, ProcessReport, Usage, json};

/// The longest time for an answer from inside the machine.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The longest time for what pods have to say about their processes, if one does not say it.
const PROCESSES_LIMIT: Duration = Duration::from_secs(3);
/// About what a process takes beside its arguments.
const PROCESS_BYTES: usize = 100;
/// Most bytes of that.
const PROCESSES_BYTES_MAX: usize = 8 << 20;

impl ControlServer {
    /// Asks the manager about all pods, and those that run about their processes.
    pub(super) fn ask_all(&mut self, number: u64, links: Option<&mut [PodLink]>) -> Result<(), String> {
        let mut deadline = Instant::now() + ANSWER_LIMIT;
        let currencies = (0..self.payers.count() as u32).map(TicketHolder::Currency);
        let asked = (0..self.pods.len() as u32).map(TicketHolder::Pod).chain(currencies);
        let orders_left =
            asked.filter(|it| self.orders.give(Action::Read, *it, 0, OrderReason::Report(number))).count();
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
            _ => report.silent.retain(|silent| *silent != pod),
        }
    }

    pub(super) fn finish_report(&mut self, number: u64, links: &[PodLink]) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Job::Report(ReportJob { states, currencies, traffic, processes, .. }) = &mut client.job else { return };
        let currency = |(number, state): (usize, &Option<PodState>)| CurrencyReport {
            name: self.payers.name(number).to_owned(),
            tickets: state.map_or(0, |state| state.tickets),
            currency: self.payers.of_currency(number).to_owned(),
        };
        let mut pods = Vec::new();
        for (number, (pod, link)) in self.pods.iter().zip(links).enumerate() {
            let state = states[number];
            let shown = match (link.phase(), state) {
                (phase @ (PodPhase::Waiting | PodPhase::Ended), _) => Some(phase),
                (_, None) => None,
                (_, Some(state)) if state.phase.is_over() => Some(PodPhase::Lost),
                (phase, Some(_)) => Some(phase),
            };
            pods.push(PodReport {
                name: pod.name.clone(),
                state: shown,
                status: link.life.report().map(|report| outcome(report).0),
                restarts: link.restart_count,
                currency: self.payers.of_pod(number).to_owned(),
                usage: state.map(Usage::from),
                ports: pod.ports.clone(),
                traffic: traffic[number],
                processes: std::mem::take(&mut processes[number]),
            });
        }
        let machine = self.address.as_ref().map_or_else(String::new, |address| address.name.clone());
        let currencies = currencies.iter().enumerate().map(currency).collect();
        for contents in json(&MachineReport { machine, pods, currencies }).as_bytes().chunks(SOCKET_BYTES_MAX) {
            client.send(Kind::Output, contents);
        }
        client.end(0, "");
    }
}
