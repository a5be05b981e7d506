//! The side of a running machine: answers whoever asks at its socket.
//!
//! The relay drives it: it waits for the desk's descriptors with its own and calls [`Desk::handle`] and
//! [`Desk::tick`]. Nothing here waits. A client has one request at a time; what it costs to answer one is bounded, and
//! so is what is kept of answers that a client does not take.

mod memory;
pub(crate) mod sessions;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use aegis_abi::call::TICKET_AMOUNT_MAX;
use aegis_launch::errors::STATUS_TOOL;
use aegis_link::control::{FromGuest, ToGuest};
use aegis_link::frame::{CONTENTS_BYTES_MAX, Frame, FrameBuffer, Kind};
use aegis_link::orders::{Action, Answer, CURRENCY_FIRST, Outcome, PodState};
use rustix::event::PollFlags;

use super::channel::Channel;
use super::logs::{Logs, Next, Position};
use super::orders::Orders;
use super::payers::Payers;
use super::place::Place;
use super::report::{CurrencyReport, MachineReport, PodReport, ProcessReport, Usage, json};
use super::restart::{Restart, STEADY};
use crate::relay::ending::outcome;
use crate::relay::side::Side;
use crate::relay::stream::Stream;

/// Clients at the same time.
const CLIENT_COUNT_MAX: usize = 32;
/// Bytes of an answer above which no more of it is made until the client takes some.
const OUT_BYTES_ENOUGH: usize = 128 * 1024;
/// The longest time for an answer from inside the machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The longest time for what pods have to say about their processes, if one does not say it.
const PROCESSES_LIMIT: Duration = Duration::from_secs(3);
/// About what a process takes beside its arguments.
const PROCESS_BYTES: usize = 100;
/// Most bytes of that.
const PROCESSES_BYTES_MAX: usize = 8 << 20;
/// The longest grace that can be asked for.
const GRACE_MAX: Duration = Duration::from_secs(24 * 3600);
/// From SIGKILL to taking the pod apart, and from there to giving up.
const KILL_LIMIT: Duration = Duration::from_secs(2);
const DESTROY_LIMIT: Duration = Duration::from_secs(5);
const SIGTERM: u8 = libc::SIGTERM as u8;
const SIGKILL: u8 = libc::SIGKILL as u8;

/// A descriptor of the desk in the relay's poll set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeskSlot {
    Listener,
    Read(u64),
    Write(u64),
    OrdersIn,
    OrdersOut,
    SessionsIn(usize),
    SessionsOut(usize),
}

/// Why the manager was asked.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// For this client's report.
    Report(u64),
    /// For this client, to change a ticket or a pod's memory.
    Tickets(u64),
    /// To take a pod apart, or to let it go for good.
    Destroy,
    /// To start a pod again.
    Restart(usize),
}

/// How far stopping a pod has come, and when it goes on.
#[derive(Clone, Copy, Debug)]
struct Stopping {
    stage: Stage,
    next: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// SIGTERM is to be sent when the pod can hear it.
    Waiting,
    Terminated,
    Killed,
    Destroyed,
    Failed,
}

/// What the desk knows of a pod.
#[derive(Debug)]
struct PodDesk {
    name: String,
    mark: String,
    /// The manager said that it has ended.
    has_gone: bool,
    stopping: Option<Stopping>,
    restart: Restart,
    /// Starts without a steady run in between, and in all.
    starts_in_a_row: u32,
    starts: u32,
    started: Instant,
    /// When it is to be started again.
    due: Option<Instant>,
    /// The manager was told to, and has not answered.
    is_asked: bool,
    /// It ended for good, or is to.
    is_final: bool,
    /// Its end is known here.
    is_end_seen: bool,
}

/// What a client waits for.
#[derive(Debug)]
enum Job {
    Nothing,
    Report(Report),
    Tickets { deadline: Instant },
    Stop { pods: Vec<usize> },
    Logs { pod: Option<usize>, follows: bool, position: Position },
    Session { pod: usize, session: u32 },
}

/// An answer that is being put together.
#[derive(Debug)]
struct Report {
    states: Vec<Option<PodState>>,
    /// What the currencies' tickets are.
    currency_tickets: Vec<Option<u64>>,
    /// Each pod's processes, and the bytes of their commands.
    processes: Vec<Vec<ProcessReport>>,
    command_bytes: usize,
    /// Answers of the manager that are missing.
    orders_left: usize,
    /// Pods that have not said which processes they have.
    silent: Vec<usize>,
    /// Number of the question to the pods.
    token: u64,
    deadline: Instant,
}

#[derive(Debug)]
struct Client {
    stream: Stream,
    input: FrameBuffer,
    job: Job,
    /// Nothing more is read; it goes when all has been written.
    is_over: bool,
}

impl Client {
    fn send(&mut self, frame: &Frame) {
        self.stream.send(&frame.encode());
        self.is_over |= self.stream.is_deaf();
    }

    /// The last frame of an answer.
    fn end(&mut self, status: u8, text: &str) {
        self.job = Job::Nothing;
        self.send(&Frame::end(status, text));
    }

    fn refuse(&mut self, text: &str) {
        self.end(STATUS_TOOL, text);
    }
}

/// The desk.
#[derive(Debug)]
pub(crate) struct Desk {
    place: Option<Place>,
    orders: Orders<Why>,
    logs: Logs,
    pods: Vec<PodDesk>,
    payers: Payers,
    /// The pods' lines of sessions.
    channels: Vec<Channel>,
    clients: BTreeMap<u64, Client>,
    last_client: u64,
    last_token: u64,
}

impl Desk {
    /// A desk at a place, if there is one, for pods of these names, with the lines to their manager and to them.
    pub(crate) fn new(
        place: Option<Place>,
        names: &[String],
        restarts: Vec<Restart>,
        payers: Payers,
        orders: UnixStream,
        channels: Vec<Channel>,
    ) -> Self {
        let pod = |((name, mark), restart): ((&String, String), Restart)| PodDesk {
            name: name.clone(),
            mark,
            has_gone: false,
            stopping: None,
            restart,
            starts_in_a_row: 0,
            starts: 0,
            started: Instant::now(),
            due: None,
            is_asked: false,
            is_final: false,
            is_end_seen: false,
        };
        Self {
            place,
            orders: Orders::new(orders),
            logs: Logs::new(names.len()),
            pods: names.iter().zip(crate::relay::marks::marks(names)).zip(restarts).map(pod).collect(),
            payers,
            channels,
            clients: BTreeMap::new(),
            last_client: 0,
            last_token: 0,
        }
    }

    /// Keeps whole lines that a pod wrote, or that were written about it.
    pub(crate) fn keep(&mut self, pod: usize, is_error: bool, text: &[u8]) {
        self.logs.keep(pod, is_error, text);
    }

    /// The descriptors to wait for.
    pub(crate) fn interests(&self) -> Vec<(DeskSlot, BorrowedFd<'_>, PollFlags)> {
        let (read, write) = (PollFlags::IN, PollFlags::OUT);
        let mut list: Vec<_> =
            self.orders.stream.wants_to_read().map(|fd| (DeskSlot::OrdersIn, fd, read)).into_iter().collect();
        list.extend(self.orders.stream.wants_to_write().map(|fd| (DeskSlot::OrdersOut, fd, write)));
        for (number, channel) in self.channels.iter().enumerate() {
            list.extend(channel.stream.wants_to_read().map(|fd| (DeskSlot::SessionsIn(number), fd, read)));
            list.extend(channel.stream.wants_to_write().map(|fd| (DeskSlot::SessionsOut(number), fd, write)));
        }
        for (number, client) in &self.clients {
            let reads = client.stream.wants_to_read().filter(|_| !client.is_over);
            list.extend(reads.map(|fd| (DeskSlot::Read(*number), fd, read)));
            list.extend(client.stream.wants_to_write().map(|fd| (DeskSlot::Write(*number), fd, write)));
        }
        // Behind those that hang up: they make room.
        list.extend(self.place.as_ref().map(|place| (DeskSlot::Listener, place.listener.as_fd(), read)));
        list
    }

    /// Something can be done at a descriptor.
    pub(crate) fn handle(&mut self, slot: DeskSlot, sides: &mut [Side]) {
        match slot {
            DeskSlot::Listener => self.accept(),
            DeskSlot::Read(number) => self.read(number, sides),
            DeskSlot::Write(number) => {
                if let Some(client) = self.clients.get_mut(&number) {
                    client.stream.write();
                    client.is_over |= client.stream.is_deaf();
                }
            }
            DeskSlot::OrdersIn => {
                for (why, answer) in self.orders.read() {
                    self.on_answer(why, answer);
                }
            }
            DeskSlot::OrdersOut => self.orders.stream.write(),
            DeskSlot::SessionsIn(pod) => self.read_sessions(pod),
            DeskSlot::SessionsOut(pod) => self.channels[pod].stream.write(),
        }
    }

    /// What time has brought, and what can go on. Call it after every wait. What is to be said about pods comes back.
    pub(crate) fn tick(&mut self, sides: &mut [Side]) -> Vec<(usize, String)> {
        let now = Instant::now();
        let mut told = Vec::new();
        self.go_on_with_sessions(sides, now);
        for number in 0..self.pods.len() {
            self.go_on_stopping(number, sides, now);
            let side = &mut sides[number];
            // Whatever it had to say has been read.
            if self.pods[number].has_gone && side.is_flushed && !self.pods[number].is_end_seen {
                told.extend(self.on_end(number, None, side).map(|line| (number, line)));
            }
            self.go_on_starting(number, &mut sides[number], now);
        }
        let numbers: Vec<u64> = self.clients.keys().copied().collect();
        for number in numbers {
            self.go_on(number, sides, now);
        }
        self.clients.retain(|_, client| !client.is_over || client.stream.pending_bytes() > 0);
        told
    }

    /// The manager said that the pod has ended.
    pub(crate) fn has_gone(&self, pod: usize) -> bool {
        self.pods[pod].has_gone
    }

    /// A pod has ended, with this status or without saying how: decides whether it is started again, which the side is
    /// told, and what is to be said about it.
    pub(crate) fn on_end(&mut self, pod: usize, status: Option<u8>, side: &mut Side) -> Option<String> {
        let known = &mut self.pods[pod];
        known.is_end_seen = true;
        if known.started.elapsed() >= STEADY {
            known.starts_in_a_row = 0;
        }
        let is_wanted = known.restart.wants(status) && !known.is_final && known.stopping.is_none();
        let count_max = known.restart.count_max;
        if !is_wanted || known.starts_in_a_row >= count_max {
            self.let_go(pod);
            return is_wanted.then(|| format!("not started again: it ended {count_max} times in a row"));
        }
        let wait = Restart::back_off(known.starts_in_a_row);
        known.due = Some(Instant::now() + wait);
        known.starts_in_a_row += 1;
        side.is_waiting = true;
        Some(format!("starts again in {} s ({} of {count_max})", wait.as_secs_f64(), known.starts_in_a_row))
    }

    /// The pod is not wanted any more: the machine may end without it.
    fn let_go(&mut self, pod: usize) {
        self.pods[pod].is_final = true;
        self.pods[pod].due = None;
        if self.pods[pod].restart.is_ever() {
            self.orders.give(Action::Release, pod, 0, Why::Destroy);
        }
    }

    /// No pod is started again from now on, and one that goes on in spite of its signal is ended after the grace.
    pub(crate) fn end_all(&mut self, sides: &mut [Side], grace: Duration) {
        let next = Instant::now() + grace;
        for (pod, side) in sides.iter_mut().enumerate() {
            self.let_go(pod);
            side.is_waiting = false;
            let stopping = self.pods[pod].stopping.get_or_insert(Stopping { stage: Stage::Terminated, next });
            stopping.next = stopping.next.min(next);
        }
    }

    /// A pod is still there after all that can be done to it.
    pub(crate) fn has_failed_to_stop(&self) -> bool {
        self.pods.iter().any(|pod| pod.stopping.is_some_and(|it| it.stage == Stage::Failed))
    }

    /// Starts a pod again when it is time and nothing of it is left. What it says comes perhaps before the manager's
    /// answer, so it is a new one from here on.
    fn go_on_starting(&mut self, pod: usize, side: &mut Side, now: Instant) {
        let known = &mut self.pods[pod];
        let is_due = known.due.is_some_and(|due| now >= due);
        if !is_due || !known.has_gone || !side.is_flushed {
            return;
        }
        if self.orders.give(Action::Restart, pod, 0, Why::Restart(pod)) {
            (known.due, known.is_asked, known.has_gone, known.is_end_seen) = (None, true, false, false);
            known.starts += 1;
            known.started = now;
            side.begin_again();
        }
    }

    fn on_started(&mut self, pod: usize, outcome: Option<Outcome>) {
        let known = &mut self.pods[pod];
        known.is_asked = false;
        if outcome != Some(Outcome::Done) {
            (known.has_gone, known.is_end_seen) = (true, true);
            self.let_go(pod);
        } else if known.is_final {
            // Somebody stopped it after it was asked for.
            known.stopping = Some(Stopping { stage: Stage::Waiting, next: Instant::now() });
        }
    }

    /// When [`Desk::tick`] has something to do although nothing came.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let stops = self.pods.iter().filter_map(|pod| Some(pod.stopping?.next));
        let starts = self.pods.iter().filter(|pod| pod.has_gone).filter_map(|pod| pod.due);
        let jobs = self.clients.values().filter_map(|client| match &client.job {
            Job::Report(Report { deadline, .. }) | Job::Tickets { deadline } => Some(*deadline),
            _ => None,
        });
        let sessions = self.channels.iter().filter_map(Channel::next_time);
        stops.chain(starts).chain(jobs).chain(sessions).min()
    }

    fn accept(&mut self) {
        let Some(Ok((stream, _))) = self.place.as_ref().map(|place| place.listener.accept()) else { return };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        self.last_client += 1;
        let (stream, input) = (Stream::new(stream), FrameBuffer::default());
        let mut client = Client { stream, input, job: Job::Nothing, is_over: false };
        if self.clients.values().filter(|client| !client.is_over).count() >= CLIENT_COUNT_MAX {
            client.refuse(&format!("more than {CLIENT_COUNT_MAX} commands at a time"));
            return;
        }
        self.clients.insert(self.last_client, client);
    }

    fn read(&mut self, number: u64, sides: &mut [Side]) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let mut buffer = [0; 16 * 1024];
        match client.stream.read(&mut buffer) {
            Ok(None) => {}
            Ok(Some(length)) if length > 0 => client.input.push(&buffer[..length]),
            _ => {
                // A client that has hung up needs no answer.
                client.is_over = true;
                client.stream.clear();
            }
        }
        while let Some(client) = self.clients.get_mut(&number).filter(|client| !client.is_over) {
            match (client.input.next(), &client.job) {
                (Ok(None), _) => break,
                (Ok(Some(frame)), Job::Nothing) if frame.kind == Kind::Request => self.request(number, &frame, sides),
                (Ok(Some(frame)), Job::Nothing | Job::Session { .. }) if frame.kind == Kind::Session => {
                    self.pass_on(number, &frame);
                }
                (Ok(Some(_)) | Err(_), _) => {
                    client.refuse("this is no request");
                    client.is_over = true;
                }
            }
        }
    }

    fn request(&mut self, number: u64, frame: &Frame, sides: &mut [Side]) {
        let words: Vec<&str> = frame.words().map(|word| str::from_utf8(word).unwrap_or("\u{fffd}")).collect();
        let refusal = match words[..] {
            ["pods"] => {
                self.ask_all(number, None);
                None
            }
            ["processes"] => {
                self.ask_all(number, Some(sides));
                None
            }
            ["tickets", pod, amount] => self.change_tickets(number, pod, amount).err(),
            ["memory", pod, range] => self.change_memory(number, pod, range).err(),
            ["exec", ..] => self.begin_session(number, frame, sides).err(),
            ["stop", grace_ms, ref pods @ ..] => self.stop(number, grace_ms, pods, sides).err(),
            ["logs", follows, ref pods @ ..] => self.show_logs(number, follows == "follow", pods).err(),
            _ => Some("this version of the tool does not know that".to_owned()),
        };
        if let (Some(text), Some(client)) = (refusal, self.clients.get_mut(&number)) {
            client.refuse(&text);
        }
    }

    fn pod(&self, name: &str) -> Result<usize, String> {
        let found = self.pods.iter().position(|pod| pod.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.pods.iter().map(|pod| pod.name.as_str()).collect();
            format!("{name}: no such pod; there are {}", names.join(", "))
        })
    }

    /// The manager's number of a pod or currency.
    fn ticket_holder(&self, name: &str) -> Result<usize, String> {
        if let Some(number) = self.payers.find(name) {
            return Ok(CURRENCY_FIRST as usize + number);
        }
        self.pod(name).map_err(|why| match self.payers.names().collect::<Vec<_>>()[..] {
            [] => why,
            ref names => format!("{why}; currencies are {}", names.join(", ")),
        })
    }

    /// A pod's or currency's name by that number.
    fn ticket_holder_name(&self, number: usize) -> String {
        match number.checked_sub(CURRENCY_FIRST as usize) {
            Some(number) => self.payers.name(number).to_owned(),
            None => self.pods.get(number).map_or_else(String::new, |pod| pod.name.clone()),
        }
    }

    /// Asks the manager about all pods, and those that run about their processes.
    fn ask_all(&mut self, number: u64, sides: Option<&mut [Side]>) {
        let mut deadline = Instant::now() + ANSWER_LIMIT;
        let currencies = (0..self.payers.count()).map(|number| CURRENCY_FIRST as usize + number);
        let asked = (0..self.pods.len()).chain(currencies);
        let orders_left = asked.filter(|it| self.orders.give(Action::Read, *it, 0, Why::Report(number))).count();
        let (states, currency_tickets) = (vec![None; self.pods.len()], vec![None; self.payers.count()]);
        let mut silent = Vec::new();
        self.last_token += 1;
        let token = self.last_token;
        for (pod, side) in sides.into_iter().flatten().enumerate() {
            if side.is_live() && !self.pods[pod].has_gone {
                deadline = Instant::now() + PROCESSES_LIMIT;
                side.send(ToGuest::Processes { token });
                silent.push(pod);
            }
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Report(Report {
                states,
                currency_tickets,
                processes: vec![Vec::new(); self.pods.len()],
                command_bytes: 0,
                orders_left,
                silent,
                token,
                deadline,
            });
        }
    }

    /// A pod says something about its processes.
    pub(crate) fn on_processes(&mut self, pod: usize, message: FromGuest) {
        let (FromGuest::Process { token, .. } | FromGuest::Processes { token, .. }) = message else { return };
        let mut reports = self.clients.values_mut().filter_map(|client| match &mut client.job {
            Job::Report(report) => Some(report),
            _ => None,
        });
        let asked = reports.find(|report| report.token == token && report.silent.contains(&pod));
        let Some(report) = asked else { return };
        match message {
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

    fn change_tickets(&mut self, number: u64, pod: &str, amount: &str) -> Result<(), String> {
        let pod = self.ticket_holder(pod)?;
        let wanted = || format!("{amount}: a number of tickets from 1 to {TICKET_AMOUNT_MAX} is wanted");
        let amount: u64 = amount.parse().map_err(|_| wanted())?;
        if !(1..=TICKET_AMOUNT_MAX).contains(&amount) {
            return Err(wanted());
        }
        if !self.orders.give(Action::Tickets, pod, amount, Why::Tickets(number)) {
            return Err("the machine's manager does not listen".into());
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Tickets { deadline: Instant::now() + ANSWER_LIMIT };
        }
        Ok(())
    }

    fn stop(&mut self, number: u64, grace_ms: &str, names: &[&str], sides: &mut [Side]) -> Result<(), String> {
        let grace = grace_ms.parse().map_or(GRACE_MAX, Duration::from_millis).min(GRACE_MAX);
        let named = names.iter().map(|name| self.pod(name)).collect::<Result<Vec<usize>, String>>()?;
        let pods = if named.is_empty() { (0..self.pods.len()).collect() } else { named };
        let now = Instant::now();
        for pod in pods.iter().copied() {
            if sides[pod].is_waiting {
                sides[pod].is_waiting = false;
                self.let_go(pod);
            }
            self.pods[pod].is_final = true;
            // A second wish can shorten the grace and does not begin anew.
            let next = now + grace;
            match &mut self.pods[pod].stopping {
                Some(stopping) if stopping.stage < Stage::Killed => stopping.next = stopping.next.min(next),
                Some(stopping) if stopping.stage != Stage::Failed => {}
                other => *other = Some(Stopping { stage: Stage::Waiting, next }),
            }
            self.go_on_stopping(pod, sides, now);
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Stop { pods };
        }
        Ok(())
    }

    fn show_logs(&mut self, number: u64, follows: bool, names: &[&str]) -> Result<(), String> {
        let pod = match names {
            [] => None,
            [name] => Some(self.pod(name)?),
            _ => return Err("one pod or all".into()),
        };
        if let Some(client) = self.clients.get_mut(&number) {
            client.job = Job::Logs { pod, follows, position: Position::default() };
        }
        Ok(())
    }

    fn is_over(&self, pod: usize, sides: &[Side]) -> bool {
        self.pods[pod].has_gone || sides[pod].report.is_some()
    }

    fn go_on_stopping(&mut self, pod: usize, sides: &mut [Side], now: Instant) {
        let is_over = self.is_over(pod, sides);
        let Some(mut stopping) = self.pods[pod].stopping else { return };
        if is_over {
            self.pods[pod].stopping = None;
            return;
        }
        if stopping.stage == Stage::Waiting && sides[pod].greeted {
            sides[pod].send(ToGuest::Signal(SIGTERM));
            stopping.stage = Stage::Terminated;
        }
        if now >= stopping.next {
            (stopping.stage, stopping.next) = match stopping.stage {
                Stage::Waiting | Stage::Terminated => {
                    sides[pod].send(ToGuest::Signal(SIGKILL));
                    (Stage::Killed, now + KILL_LIMIT)
                }
                Stage::Killed => {
                    self.orders.give(Action::Destroy, pod, 0, Why::Destroy);
                    (Stage::Destroyed, now + DESTROY_LIMIT)
                }
                Stage::Destroyed | Stage::Failed => (Stage::Failed, now + GRACE_MAX),
            };
        }
        self.pods[pod].stopping = Some(stopping);
    }

    fn on_answer(&mut self, why: Option<Why>, answer: Answer) {
        let pod = answer.pod as usize;
        let currency = pod.checked_sub(CURRENCY_FIRST as usize);
        if let Some(known) = self.pods.get_mut(pod)
            && answer.outcome != Some(Outcome::NoSuchPod)
            // What was said before it was started again is of the one before.
            && (!known.is_asked || matches!(why, Some(Why::Restart(_))))
        {
            known.has_gone = !answer.state.is_running;
        }
        match why {
            Some(Why::Report(number)) => {
                let Some(client) = self.clients.get_mut(&number) else { return };
                let Job::Report(report) = &mut client.job else { return };
                report.orders_left = report.orders_left.saturating_sub(1);
                if let Some(state) = report.states.get_mut(pod) {
                    *state = Some(answer.state);
                } else if let Some(tickets) = currency.and_then(|number| report.currency_tickets.get_mut(number)) {
                    *tickets = Some(answer.state.tickets);
                }
            }
            Some(Why::Tickets(number)) => {
                let name = self.ticket_holder_name(pod);
                let Some(client) = self.clients.get_mut(&number) else { return };
                match answer.outcome {
                    Some(Outcome::Done) => client.end(0, ""),
                    Some(Outcome::HasEnded) => client.refuse(&format!("{name}: has ended")),
                    Some(Outcome::NoMemory) => client.refuse(&memory::too_much(&name)),
                    other => client.refuse(&format!("{name}: the machine's manager refused it ({other:?})")),
                }
            }
            Some(Why::Restart(pod)) => self.on_started(pod, answer.outcome),
            Some(Why::Destroy) | None => {}
        }
    }

    /// Lets a client's request go on as far as it can.
    fn go_on(&mut self, number: u64, sides: &[Side], now: Instant) {
        let Some(client) = self.clients.get(&number) else { return };
        match &client.job {
            Job::Nothing | Job::Session { .. } => {}
            Job::Report(report) => {
                if report.orders_left == 0 && report.silent.is_empty() || now >= report.deadline {
                    self.finish_report(number, sides);
                }
            }
            Job::Tickets { deadline } => {
                if now >= *deadline {
                    self.refuse(number, "the machine's manager does not answer");
                }
            }
            Job::Stop { pods } => {
                let failed = pods
                    .iter()
                    .find(|pod| self.pods[**pod].stopping.is_some_and(|stopping| stopping.stage == Stage::Failed));
                if let Some(pod) = failed {
                    let text = format!("{}: cannot be stopped", self.pods[*pod].name);
                    self.refuse(number, &text);
                } else if pods.iter().all(|pod| self.is_over(*pod, sides))
                    && let Some(client) = self.clients.get_mut(&number)
                {
                    client.end(0, "");
                }
            }
            Job::Logs { .. } => self.go_on_with_logs(number, sides),
        }
    }

    fn refuse(&mut self, number: u64, text: &str) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.refuse(text);
        }
    }

    fn finish_report(&mut self, number: u64, sides: &[Side]) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Job::Report(Report { states, currency_tickets, processes, .. }) = &mut client.job else { return };
        let currency = |(number, tickets): (usize, &Option<u64>)| CurrencyReport {
            name: self.payers.name(number).to_owned(),
            tickets: tickets.unwrap_or(0),
            currency: self.payers.of_currency(number).to_owned(),
        };
        let mut pods = Vec::new();
        for (number, (pod, side)) in self.pods.iter().zip(sides).enumerate() {
            let state = states[number];
            let status = side.report.as_ref().map(|report| outcome(report).0);
            let shown = match (state, status) {
                _ if side.is_waiting => "waiting",
                (_, Some(_)) => "ended",
                (None, None) => "silent",
                (Some(state), None) if !state.is_running => "stopped",
                (Some(_), None) if !side.greeted => "starting",
                (Some(_), None) => "running",
            };
            pods.push(PodReport {
                name: pod.name.clone(),
                state: shown.to_owned(),
                status,
                restarts: pod.starts,
                currency: self.payers.of_pod(number).to_owned(),
                usage: state.map(Usage::from),
                processes: std::mem::take(&mut processes[number]),
            });
        }
        let machine = self.place.as_ref().map_or_else(String::new, |place| place.name.clone());
        let currencies = currency_tickets.iter().enumerate().map(currency).collect();
        for contents in json(&MachineReport { machine, pods, currencies }).as_bytes().chunks(CONTENTS_BYTES_MAX) {
            client.send(&Frame { kind: Kind::Output, contents: contents.to_vec() });
        }
        client.end(0, "");
    }

    fn go_on_with_logs(&mut self, number: u64, sides: &[Side]) {
        let is_over = |pod: usize| sides[pod].is_flushed && !sides[pod].is_waiting;
        let Some(client) = self.clients.get_mut(&number) else { return };
        let mut job = std::mem::replace(&mut client.job, Job::Nothing);
        let Job::Logs { pod, follows, position } = &mut job else { return };
        while client.stream.pending_bytes() < OUT_BYTES_ENOUGH && !client.is_over {
            let frame = match self.logs.read(*pod, position) {
                Next::Line(writer, line) => {
                    let kind = if line.is_error { Kind::Errors } else { Kind::Output };
                    let mark = if pod.is_none() { self.pods[writer].mark.as_bytes() } else { b"" };
                    Frame { kind, contents: [mark, &line.text].concat() }
                }
                Next::Lost(writer) => {
                    let text = format!("aegis: {}: lines are missing here\n", self.pods[writer].name);
                    Frame { kind: Kind::Errors, contents: text.into_bytes() }
                }
                Next::Nothing => {
                    let ends = match *pod {
                        Some(pod) => is_over(pod),
                        None => (0..self.pods.len()).all(is_over),
                    };
                    if ends || !*follows {
                        client.end(0, "");
                        return;
                    }
                    break;
                }
            };
            client.send(&frame);
        }
        client.job = job;
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for client in self.clients.values_mut() {
            client.stream.write();
        }
    }
}
