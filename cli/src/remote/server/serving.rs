//! Serving: descriptors, clients that come and go, requests, the manager's answers, and the clock.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use aegis_link::frame::Kind;
use aegis_link::orders::{Answer, Outcome, TicketHolder};
use rustix::event::PollFlags;

use super::channel::Channel;
use super::state::{Client, ControlServer, Environment, Job, OrderReason, ReportJob};
use super::tickets::too_much;
use super::web::WEB_COUNT_MAX;
use crate::relay::pod_link::{Life, PodLink};
use crate::relay::stream::Stream;
use crate::remote::request::Request;

/// Clients at the same time.
const CLIENT_COUNT_MAX: usize = 32;

/// A descriptor of the server in the relay's poll set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServerSlot {
    Listener,
    WebListener,
    Read(u64),
    Write(u64),
    OrdersIn,
    OrdersOut,
    SessionsIn(usize),
    SessionsOut(usize),
}

impl ControlServer {
    /// The descriptors to wait for.
    pub(crate) fn interests(&self) -> Vec<(ServerSlot, BorrowedFd<'_>, PollFlags)> {
        let (read, write) = (PollFlags::IN, PollFlags::OUT);
        let mut list: Vec<_> =
            self.orders.stream.wants_to_read().map(|fd| (ServerSlot::OrdersIn, fd, read)).into_iter().collect();
        list.extend(self.orders.stream.wants_to_write().map(|fd| (ServerSlot::OrdersOut, fd, write)));
        for (number, channel) in self.channels.iter().enumerate() {
            list.extend(channel.stream.wants_to_read().map(|fd| (ServerSlot::SessionsIn(number), fd, read)));
            list.extend(channel.stream.wants_to_write().map(|fd| (ServerSlot::SessionsOut(number), fd, write)));
        }
        for (number, client) in &self.clients {
            let reads = client.stream.wants_to_read().filter(|_| client.is_heard());
            list.extend(reads.map(|fd| (ServerSlot::Read(*number), fd, read)));
            list.extend(client.stream.wants_to_write().map(|fd| (ServerSlot::Write(*number), fd, write)));
        }
        // Behind those that hang up: they make room.
        let web = self.web.as_ref().filter(|_| self.web_count() < WEB_COUNT_MAX);
        list.extend(web.map(|place| (ServerSlot::WebListener, place.as_fd(), read)));
        list.extend(self.address.as_ref().map(|address| (ServerSlot::Listener, address.listener.as_fd(), read)));
        list
    }

    /// Something can be done at a descriptor.
    pub(crate) fn handle(&mut self, slot: ServerSlot, links: &mut [PodLink]) {
        match slot {
            ServerSlot::Listener => self.accept(),
            ServerSlot::WebListener => self.accept_web(),
            ServerSlot::Read(number) if self.clients.get(&number).is_some_and(|client| client.web.is_some()) => {
                self.read_web(number, links);
            }
            ServerSlot::Read(number) => self.read(number, links),
            ServerSlot::Write(number) => {
                if let Some(client) = self.clients.get_mut(&number) {
                    client.stream.write();
                    client.is_over |= client.stream.is_deaf();
                }
                self.take_requests(number, links);
            }
            ServerSlot::OrdersIn => {
                for (why, answer) in self.orders.read() {
                    self.on_answer(why, answer, links);
                }
            }
            ServerSlot::OrdersOut => self.orders.stream.write(),
            ServerSlot::SessionsIn(pod) => self.read_sessions(pod),
            ServerSlot::SessionsOut(pod) => self.channels[pod].stream.write(),
        }
    }

    /// What time has brought, and what can go on. Call it after every wait.
    pub(crate) fn tick(&mut self, links: &mut [PodLink]) {
        let now = Instant::now();
        self.go_on_with_sessions(links, now);
        for (number, link) in links.iter_mut().enumerate() {
            self.go_on_stopping(number, link, now);
        }
        self.note_phases(links);
        self.go_on_checking(links, now);
        self.go_on_depending(links, now);
        for (number, link) in links.iter_mut().enumerate() {
            self.go_on_starting(number, link, now);
        }
        self.note_phases(links);
        self.end_late_callers(now);
        let numbers: Vec<u64> = self.clients.keys().copied().collect();
        for number in numbers {
            self.go_on(number, links, now);
        }
        self.clients.retain(|_, client| !client.is_over || client.stream.pending_bytes() > 0);
        self.forget_orders();
    }

    /// The manager said that the pod has ended.
    pub(crate) fn has_gone(&self, pod: usize) -> bool {
        self.pods[pod].environment == Environment::Gone
    }

    /// When [`ControlServer::tick`] has something to do although nothing came.
    pub(crate) fn next_time(&self, links: &[PodLink]) -> Option<Instant> {
        let turns = self.pods.iter().zip(links).filter_map(|(pod, link)| match link.life {
            Life::Ending { next, .. } if pod.environment != Environment::Gone => Some(next),
            _ if pod.environment == Environment::Gone => link.due(),
            _ => None,
        });
        let jobs = self.clients.values().filter_map(|client| match &client.job {
            Job::Report(ReportJob { deadline, .. }) | Job::Tickets { deadline } => Some(*deadline),
            _ => None,
        });
        let sessions = self.channels.iter().filter_map(Channel::next_time);
        let checks = self.pods.iter().filter_map(|pod| pod.watch.as_ref()?.next_time());
        turns.chain(jobs).chain(sessions).chain(self.web_time()).chain(checks).min()
    }

    pub(super) fn accept(&mut self) {
        let Some(Ok((stream, _))) = self.address.as_ref().map(|address| address.listener.accept()) else { return };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        self.last_client += 1;
        let mut client = Client::new(Stream::new(stream));
        if self.clients.values().filter(|client| !client.is_over && client.web.is_none()).count() >= CLIENT_COUNT_MAX {
            client.refuse(&format!("more than {CLIENT_COUNT_MAX} commands at a time"));
            return;
        }
        self.clients.insert(self.last_client, client);
    }

    pub(super) fn read(&mut self, number: u64, links: &mut [PodLink]) {
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
        self.take_requests(number, links);
    }

    /// Takes what a client has sent, as far as it takes the answers.
    fn take_requests(&mut self, number: u64, links: &mut [PodLink]) {
        let Some(client) = self.clients.get_mut(&number).filter(|client| client.web.is_none()) else { return };
        let mut input = std::mem::take(&mut client.input);
        while let Some(client) = self.clients.get_mut(&number).filter(|client| !client.is_over) {
            if !client.is_heard() {
                client.input = input;
                break;
            }
            let why = match (input.next_frame(), &client.job) {
                (Ok(None), _) => {
                    client.input = input;
                    break;
                }
                (Ok(Some(frame)), Job::Nothing) if frame.kind == Kind::Request => {
                    self.request(number, frame.contents, links);
                    continue;
                }
                (Ok(Some(frame)), Job::Nothing | Job::Session { .. }) if frame.kind == Kind::Session => {
                    self.pass_on(number, frame.contents);
                    continue;
                }
                (Ok(Some(frame)), _) => format!("{:?} is not expected", frame.kind),
                (Err(why), _) => why.to_string(),
            };
            client.refuse(&format!("this is no request: {why}"));
            client.is_over = true;
        }
    }

    pub(super) fn request(&mut self, number: u64, contents: &[u8], links: &mut [PodLink]) {
        let outcome = match serde_json::from_slice(contents) {
            Ok(Request::Pods) => self.ask_all(number, None),
            Ok(Request::Processes) => self.ask_all(number, Some(links)),
            Ok(Request::Tickets { holder, amount }) => self.change_tickets(number, &holder, amount),
            Ok(Request::Memory { pod, guaranteed, limit }) => self.change_memory(number, &pod, guaranteed, limit),
            Ok(Request::Exec(exec)) => self.begin_session(number, exec, links),
            Ok(Request::Stop { grace_ms, pods }) => self.stop(number, grace_ms, &pods, links),
            Ok(Request::Signal { pod, number: signal }) => self.signal(number, &pod, signal, links),
            Ok(Request::Wait { pods }) => self.wait(number, &pods),
            Ok(Request::Events { follows }) => self.begin(number, Job::Events { follows, next: 0 }),
            Ok(Request::Inspect { pod }) => self.inspect(number, pod.as_deref(), links),
            Ok(Request::Logs { follows, pod, last }) => self.show_logs(number, follows, (pod.as_deref(), last)),
            Err(_) => Err("this version of the tool does not know that".to_owned()),
        };
        if let Err(text) = outcome {
            self.refuse(number, &text);
        }
    }

    pub(super) fn is_over(&self, pod: usize, links: &[PodLink]) -> bool {
        self.has_gone(pod) || links[pod].phase().is_over()
    }

    pub(super) fn on_answer(&mut self, why: Option<OrderReason>, answer: Answer, links: &mut [PodLink]) {
        if let TicketHolder::Pod(pod) = answer.holder
            && let Some(known) = self.pods.get_mut(pod as usize)
            && answer.outcome != Some(Outcome::NoSuchPod)
            // What was said before it was started again is of the one before.
            && (known.environment != Environment::AskedFor || matches!(why, Some(OrderReason::Restart(_))))
        {
            let is_gone = answer.state.phase.is_over();
            known.environment = if is_gone { Environment::Gone } else { Environment::Made };
        }
        match why {
            Some(OrderReason::Report(number)) => {
                let Some(client) = self.clients.get_mut(&number) else { return };
                let Job::Report(report) = &mut client.job else { return };
                report.orders_left = report.orders_left.saturating_sub(1);
                let said = match answer.holder {
                    TicketHolder::Pod(pod) => report.states.get_mut(pod as usize),
                    TicketHolder::Currency(number) => report.currencies.get_mut(number as usize),
                };
                if let Some(said) = said {
                    *said = Some(answer.state);
                }
            }
            Some(OrderReason::Tickets(number)) => {
                let name = self.ticket_holder_name(answer.holder);
                let Some(client) = self.clients.get_mut(&number) else { return };
                match answer.outcome {
                    Some(Outcome::Done) => client.end(0, ""),
                    Some(Outcome::HasEnded) => client.refuse(&format!("{name}: has ended")),
                    Some(Outcome::NoMemory) => client.refuse(&too_much(&name)),
                    other => client.refuse(&format!("{name}: the machine's manager refused it ({other:?})")),
                }
            }
            Some(OrderReason::Restart(pod)) => self.on_started(pod, answer.outcome, &mut links[pod]),
            Some(OrderReason::Destroy) | None => {}
        }
    }

    /// Lets a client's request go on as far as it can.
    pub(super) fn go_on(&mut self, number: u64, links: &[PodLink], now: Instant) {
        let Some(client) = self.clients.get(&number) else { return };
        match &client.job {
            Job::Nothing | Job::Session { .. } => {}
            Job::Report(report) => {
                if report.orders_left == 0 && report.silent.is_empty() || now >= report.deadline {
                    self.finish_report(number, links);
                }
            }
            Job::Tickets { deadline } => {
                if now >= *deadline {
                    self.refuse(number, "the machine's manager does not answer");
                    self.forget_orders();
                }
            }
            Job::Stop { pods } => {
                let failed = pods.iter().find(|pod| links[**pod].has_failed_to_stop());
                if let Some(pod) = failed {
                    let text = format!("{}: cannot be stopped", self.pods[*pod].name);
                    self.refuse(number, &text);
                } else if pods.iter().all(|pod| self.is_over(*pod, links))
                    && let Some(client) = self.clients.get_mut(&number)
                {
                    client.end(0, "");
                }
            }
            Job::Wait { .. } => self.go_on_waiting(number, links),
            Job::Events { .. } => self.go_on_with_events(number, links),
            Job::Logs { .. } => self.go_on_with_logs(number, links),
        }
    }
}
