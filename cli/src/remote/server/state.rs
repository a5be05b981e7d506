//! What the server of a running machine knows: pods, clients with what they wait for, and the lines to the manager and
//! the pods.
//!
//! The types stand here, below the files that act on them, each of which has one of the server's jobs.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use aegis_launch::errors::STATUS_TOOL;
use aegis_launch::images::accounts::Accounts;
use aegis_link::frame::{Frame, FrameBuffer, Kind};
use aegis_link::orders::PodState;

use super::channel::Channel;
use super::events::Events;
use super::health::Watch;
use super::logs::{Logs, Position};
use super::orders::Orders;
use super::payers::Payers;
use super::restart::Restart;
use super::web::{Web, WebPlace};
use crate::options::image::ImageOptions;
use crate::relay::stream::Stream;
use crate::remote::address::Address;
use crate::remote::report::{ProcessReport, TrafficReport, json};
use crate::remote::request::End;
use crate::verb::up_dependencies::Dependency;

/// What tells a program to end, unless something else is said.
pub(super) const STOP_SIGNAL: u8 = libc::SIGTERM as u8;

/// Bytes of answers above which no more are made until the client takes some.
pub(super) const OUT_BYTES_ENOUGH: usize = 128 * 1024;

/// Why the manager was asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum OrderReason {
    /// For this client's report.
    Report(u64),
    /// For this client, to change a ticket or a pod's memory.
    Tickets(u64),
    /// To take a pod apart, or to let it go for good.
    Destroy,
    /// To start a pod again.
    Restart(usize),
}

/// What the manager says of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Environment {
    /// It is there.
    Made,
    /// The manager was told to make it anew, and has not answered.
    AskedFor,
    /// It has been taken apart.
    Gone,
}

/// What the server knows of a pod besides its link.
#[derive(Debug)]
pub(super) struct PodRecord {
    pub(super) name: String,
    pub(super) mark: String,
    /// Ports of the host that lead to it, as they are shown.
    pub(super) ports: Vec<String>,
    /// What tells its program to end.
    pub(super) stop_signal: u8,
    pub(super) labels: BTreeMap<String, String>,
    /// Those of its image.
    pub(super) accounts: Option<Accounts>,
    /// Extents of the pool, for each of which it has a little more memory.
    pub(super) extent_count: usize,
    /// How it is looked whether it is well.
    pub(super) watch: Option<Watch>,
    pub(super) environment: Environment,
    /// The manager was told to take it apart.
    pub(super) is_taken_apart: bool,
    /// The manager keeps a place for it, and the machine does not end without it.
    pub(super) is_held: bool,
    /// What its first start waits for.
    pub(super) dependencies: Vec<Dependency>,
    /// Never, once it is not wanted any more.
    pub(super) restart: Restart,
    /// Starts without a steady run in between.
    pub(super) starts_in_a_row: u32,
    pub(super) started: Instant,
}

/// What a client waits for.
#[derive(Debug)]
pub(super) enum Job {
    Nothing,
    Report(ReportJob),
    Tickets { deadline: Instant },
    Stop { pods: Vec<usize> },
    Wait { pods: Vec<usize> },
    Events { follows: bool, next: u64 },
    Logs { pod: Option<usize>, follows: bool, position: Position },
    Session { pod: usize, session: u32 },
}

/// An answer that is being put together.
#[derive(Debug)]
pub(super) struct ReportJob {
    /// What the manager says of the pods.
    pub(super) states: Vec<Option<PodState>>,
    /// The same of currencies.
    pub(super) currencies: Vec<Option<PodState>>,
    /// What went through each pod's card.
    pub(super) traffic: Vec<Option<TrafficReport>>,
    /// Each pod's processes, and the bytes of their commands.
    pub(super) processes: Vec<Vec<ProcessReport>>,
    /// Pods that have said all of them.
    pub(super) has_said: Vec<bool>,
    pub(super) command_bytes: usize,
    /// Answers of the manager that are missing.
    pub(super) orders_left: usize,
    /// Pods that have not said which processes they have.
    pub(super) silent: Vec<usize>,
    /// Number of the question to the pods.
    pub(super) token: u64,
    pub(super) deadline: Instant,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: Stream,
    pub(super) input: FrameBuffer,
    pub(super) job: Job,
    /// It speaks HTTP.
    pub(super) web: Option<Web>,
    /// Nothing more is read; it goes when all has been written.
    pub(super) is_over: bool,
}

impl Client {
    /// One that has asked for nothing yet.
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, input: FrameBuffer::new(), job: Job::Nothing, web: None, is_over: false }
    }

    pub(super) fn send(&mut self, kind: Kind, contents: &[u8]) {
        self.stream.send(&Frame::new(kind, contents).encode());
        self.is_over |= self.stream.is_deaf();
    }

    /// Whether requests are read: not while it has yet to take what earlier ones were answered with.
    pub(super) fn is_heard(&self) -> bool {
        !self.is_over && (!matches!(self.job, Job::Nothing) || self.stream.pending_bytes() < OUT_BYTES_ENOUGH)
    }

    /// The last frame of an answer.
    pub(super) fn end(&mut self, status: u8, text: &str) {
        self.job = Job::Nothing;
        self.send(Kind::End, json(&End { status, text: text.to_owned() }).as_bytes());
    }

    pub(super) fn refuse(&mut self, text: &str) {
        self.end(STATUS_TOOL, text);
    }
}

/// The end of a running machine that answers commands.
#[derive(Debug)]
pub(crate) struct ControlServer {
    pub(super) address: Option<Address>,
    pub(super) orders: Orders<OrderReason>,
    pub(super) logs: Logs,
    pub(super) events: Events,
    pub(super) web: Option<WebPlace>,
    pub(super) pods: Vec<PodRecord>,
    pub(super) payers: Payers,
    /// What is to be said of pods that could not be started.
    pub(super) told: Vec<(usize, String)>,
    /// The pods' lines of sessions.
    pub(super) channels: Vec<Channel>,
    pub(super) clients: BTreeMap<u64, Client>,
    pub(super) last_client: u64,
    pub(super) last_token: u64,
}

impl ControlServer {
    /// A server at an address, if there is one, for pods of these names, with the lines to their manager and to them.
    pub(crate) fn new(
        address: Option<Address>,
        names: &[String],
        restarts: Vec<Restart>,
        payers: Payers,
        orders: UnixStream,
        channels: Vec<Channel>,
    ) -> Self {
        let pod = |((name, mark), restart): ((&String, String), Restart)| PodRecord {
            name: name.clone(),
            mark,
            ports: Vec::new(),
            stop_signal: STOP_SIGNAL,
            labels: BTreeMap::new(),
            accounts: None,
            extent_count: 0,
            watch: None,
            environment: Environment::Made,
            is_taken_apart: false,
            is_held: restart.is_ever(),
            dependencies: Vec::new(),
            restart,
            starts_in_a_row: 0,
            started: Instant::now(),
        };
        Self {
            address,
            orders: Orders::new(orders),
            logs: Logs::new(names.len()),
            events: Events::default(),
            web: None,
            pods: names.iter().zip(crate::relay::line_marks::marks(names)).zip(restarts).map(pod).collect(),
            payers,
            told: Vec::new(),
            channels,
            clients: BTreeMap::new(),
            last_client: 0,
            last_token: 0,
        }
    }

    /// Knows which ports of the host lead to each pod.
    pub(crate) fn with_ports(mut self, ports: Vec<Vec<String>>) -> Self {
        self.pods.iter_mut().zip(ports).for_each(|(pod, ports)| pod.ports = ports);
        self
    }

    /// Knows what each pod's image and the words beside it say.
    pub(crate) fn with_images<'a>(mut self, images: impl Iterator<Item = &'a ImageOptions>) -> Self {
        for (pod, image) in self.pods.iter_mut().zip(images) {
            pod.labels = image.labels.iter().cloned().collect();
            pod.accounts.clone_from(&image.accounts);
            pod.stop_signal = image.stop_signal.unwrap_or(STOP_SIGNAL);
        }
        self
    }

    /// Knows how many extents of the pool each pod has.
    pub(crate) fn with_extents(mut self, counts: impl Iterator<Item = usize>) -> Self {
        self.pods.iter_mut().zip(counts).for_each(|(pod, count)| pod.extent_count = count);
        self
    }

    /// What a pod is sent when this signal ends the machine: what tells the tool to end is told to each in its way.
    pub(crate) fn ending_signal(&self, pod: usize, signal: u8) -> u8 {
        let is_polite = [libc::SIGINT, libc::SIGTERM].map(|it| it as u8).contains(&signal);
        let own = self.pods.get(pod).map_or(STOP_SIGNAL, |pod| pod.stop_signal);
        if is_polite && own != STOP_SIGNAL { own } else { signal }
    }

    /// The name by which commands find the machine; empty if they do not.
    pub(super) fn machine_name(&self) -> String {
        self.address.as_ref().map_or_else(String::new, |address| address.name.clone())
    }

    /// Keeps whole lines that a pod wrote, or that were written about it.
    pub(crate) fn keep(&mut self, pod: usize, is_error: bool, text: &[u8]) {
        self.logs.keep(pod, is_error, text);
    }

    pub(super) fn pod(&self, name: &str) -> Result<usize, String> {
        let found = self.pods.iter().position(|pod| pod.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.pods.iter().map(|pod| pod.name.as_str()).collect();
            format!("{name}: no such pod; there are {}", names.join(", "))
        })
    }

    /// What a client waits for from now on.
    pub(super) fn begin(&mut self, number: u64, job: Job) -> Result<(), String> {
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = job;
        }
        Ok(())
    }

    /// Forgets what the manager was asked for clients that do not wait for it any more.
    pub(super) fn forget_orders(&mut self) {
        let clients = &self.clients;
        self.orders.keep_those(|why| match why {
            OrderReason::Report(number) | OrderReason::Tickets(number) => clients
                .get(number)
                .is_some_and(|client| !client.is_over && matches!(client.job, Job::Report(_) | Job::Tickets { .. })),
            OrderReason::Destroy | OrderReason::Restart(_) => true,
        });
    }

    pub(super) fn refuse(&mut self, number: u64, text: &str) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.refuse(text);
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        for client in self.clients.values_mut() {
            client.stream.write();
        }
    }
}
