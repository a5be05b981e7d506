//! The server with a manager and pods at the other ends of its sockets that do what the test wants.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use aegis_link::control::{Report, ToGuest};
use aegis_link::frame::{Found, Frame, FrameBuffer, Kind};
use aegis_link::orders::{
    Action, Answer, EVENT_ID, ORDER_BYTES, Order, Outcome, PodState, TicketHolder, amount_of_memory,
};
use aegis_link::phase::PodPhase;

use super::payers::Payers;
use super::restart::Restart;
use super::state::{Client, ControlServer, OUT_BYTES_ENOUGH};
use super::web::Web;
use super::{ServerSlot, stopping};
use crate::relay::pod_link::{Life, LifeEnd, PodLink};
use crate::relay::pump::InputPump;
use crate::relay::stream::Stream;
use crate::remote::report::{MachineReport, json};
use crate::remote::request::{End, Request};

const CLIENT: u64 = 1;

/// A machine with pods `a` and `b`, of which `a` is started again when it fails.
struct World {
    server: ControlServer,
    links: Vec<PodLink>,
    manager: UnixStream,
    pods: Vec<UnixStream>,
    client: UnixStream,
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("a socket");
    theirs.set_nonblocking(true).expect("a socket");
    (ours, theirs)
}

impl World {
    fn new() -> Self {
        let (orders, manager) = pair();
        let names = ["a", "b"].map(String::from);
        let restarts = vec![Restart::parse("on-failure:2").expect("known"), Restart::NO];
        let payers = Payers::new(&[], vec![None, None]);
        let mut server = ControlServer::new(None, &names, restarts, payers, orders, Vec::new());
        let (mut links, mut pods) = (Vec::new(), Vec::new());
        for name in &names {
            let ((control, pod), (input, _)) = (pair(), pair());
            links.push(PodLink::new(name.clone(), control, InputPump::empty(input)));
            pods.push(pod);
        }
        let (ours, client) = pair();
        server.clients.insert(CLIENT, Client::new(Stream::new(ours)));
        Self { server, links, manager, pods, client }
    }

    fn greet(&mut self) {
        self.links.iter_mut().for_each(PodLink::greet);
    }

    /// What the manager was ordered since the last look.
    fn orders(&mut self) -> Vec<Order> {
        let mut bytes = vec![0; 4096];
        let count = self.manager.read(&mut bytes).unwrap_or(0);
        let order = |bytes: &[u8]| match Frame::find(bytes) {
            Found::Frame(frame, _) => Order::read(&frame).expect("an order"),
            other => panic!("{other:?}"),
        };
        bytes[..count].chunks(ORDER_BYTES).map(order).collect()
    }

    fn actions(&mut self) -> Vec<(Action, u32)> {
        self.orders().iter().map(|order| (order.action.expect("known"), order.holder.number())).collect()
    }

    /// The manager says how a pod is, in answer to an order or by itself.
    fn answer(&mut self, id: u32, pod: u32, outcome: Outcome, phase: PodPhase) {
        let state = PodState { phase, tickets: 7, ..PodState::default() };
        let answer = Answer { id, holder: TicketHolder::Pod(pod), outcome: Some(outcome), state };
        self.manager.write_all(&answer.encode()).expect("room");
        self.server.handle(ServerSlot::OrdersIn, &mut self.links);
    }

    /// What a pod was sent since the last look.
    fn sent(&mut self, pod: usize) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let count = self.pods[pod].read(&mut bytes).unwrap_or(0);
        bytes[..count].to_vec()
    }

    fn ask(&mut self, request: &Request) {
        self.ask_in_words(&json(request));
    }

    fn ask_in_words(&mut self, text: &str) {
        self.client.write_all(&Frame::new(Kind::Request, text.as_bytes()).encode()).expect("room");
        self.server.handle(ServerSlot::Read(CLIENT), &mut self.links);
    }

    /// The frames that the client has got since the last look.
    fn answers(&mut self) -> Vec<(Kind, Vec<u8>)> {
        let mut bytes = vec![0; 1 << 16];
        let count = self.client.read(&mut bytes).unwrap_or(0);
        let mut frames = FrameBuffer::new();
        frames.push(&bytes[..count]);
        let owned = |frame: Frame<'_>| (frame.kind, frame.contents.to_vec());
        std::iter::from_fn(|| frames.next_frame().expect("sound").map(owned)).collect()
    }

    /// The end of an answer that is nothing else.
    fn end(&mut self) -> (u8, String) {
        let [(Kind::End, contents)] = &self.answers()[..] else { panic!("an end") };
        let end = End::read(contents).expect("an end");
        (end.status, end.text)
    }

    fn report(&mut self) -> MachineReport {
        let [(Kind::Output, output), (Kind::End, end)] = &self.answers()[..] else { panic!("an output and an end") };
        assert_eq!(End::read(end).map(|end| end.status), Some(0));
        serde_json::from_slice(output).expect("a report")
    }
}

/// All that the pod wrote has been read.
fn flush(link: &mut PodLink) {
    if let Life::Over { is_flushed, .. } = &mut link.life {
        *is_flushed = true;
    }
}

fn ended(link: &PodLink) -> Option<&LifeEnd> {
    if let Life::Over { end, .. } = &link.life { Some(end) } else { None }
}

#[test]
fn a_pod_that_fails_waits_is_made_anew_and_given_up_after_so_many_starts() {
    let mut world = World::new();
    world.greet();
    for number in 1..=2 {
        let said = world.server.on_end(0, Some(Report::Exit(3)), &mut world.links[0]).expect("it starts again");
        assert!(said.starts_with("starts again in ") && said.ends_with(&format!("({number} of 2)")), "{said}");
        let due = world.links[0].due().expect("it waits");
        // It is not made anew before the manager and its output say that nothing of it is left.
        world.server.go_on_starting(0, &mut world.links[0], due);
        assert!(world.actions().is_empty() && world.links[0].phase() == PodPhase::Waiting);
        world.answer(EVENT_ID, 0, Outcome::HasEnded, PodPhase::Waiting);
        flush(&mut world.links[0]);
        world.server.go_on_starting(0, &mut world.links[0], due);
        let orders = world.orders();
        assert_eq!((orders.len(), orders[0].action), (1, Some(Action::Restart)));
        assert_eq!((world.links[0].phase(), world.links[0].restart_count), (PodPhase::Starting, number));
        // What the manager says of the one before does not count.
        world.answer(EVENT_ID, 0, Outcome::HasEnded, PodPhase::Waiting);
        assert!(!world.server.has_gone(0));
        world.answer(orders[0].id, 0, Outcome::Done, PodPhase::Running);
        world.links[0].greet();
        assert_eq!(world.links[0].phase(), PodPhase::Running);
    }
    let said = world.server.on_end(0, Some(Report::Exit(3)), &mut world.links[0]);
    assert_eq!(said.as_deref(), Some("not started again: it was, 2 times in a row"));
    assert_eq!(ended(&world.links[0]), Some(&LifeEnd::Ended(Report::Exit(3))));
    assert_eq!(world.actions(), [(Action::Release, 0)]);
}

#[test]
fn a_pod_that_cannot_be_made_anew_is_lost() {
    let mut world = World::new();
    world.server.on_end(0, None, &mut world.links[0]).expect("it starts again");
    world.answer(EVENT_ID, 0, Outcome::HasEnded, PodPhase::Waiting);
    flush(&mut world.links[0]);
    let due = world.links[0].due().expect("it waits");
    assert_eq!(world.server.next_time(&world.links), Some(due));
    world.server.go_on_starting(0, &mut world.links[0], due);
    let id = world.orders()[0].id;
    world.answer(id, 0, Outcome::Refused, PodPhase::Ended);
    assert!(world.links[0].phase() == PodPhase::Lost && world.server.has_gone(0));
    assert_eq!(world.actions(), [(Action::Release, 0)]);
}

#[test]
fn a_pod_without_a_word_is_lost_when_all_it_wrote_is_read() {
    let mut world = World::new();
    world.answer(EVENT_ID, 1, Outcome::HasEnded, PodPhase::Ended);
    world.server.tick(&mut world.links);
    assert_eq!(world.links[1].phase(), PodPhase::Starting, "it may have said more");
    assert_eq!(world.server.on_end(1, None, &mut world.links[1]), None);
    assert_eq!(world.links[1].life, Life::Over { end: LifeEnd::Lost, is_flushed: true });
}

#[test]
fn stopping_goes_from_sigterm_to_giving_up() {
    let mut world = World::new();
    world.ask(&Request::Stop { grace_ms: 1000, pods: vec!["b".into()] });
    assert!(world.sent(1).is_empty(), "it cannot hear yet");
    world.greet();
    let start = Instant::now();
    world.server.go_on_stopping(1, &mut world.links[1], start);
    assert_eq!(world.sent(1), ToGuest::Signal(15).encode());
    let later = start + Duration::from_secs(60);
    world.server.go_on_stopping(1, &mut world.links[1], later);
    assert_eq!(world.sent(1), ToGuest::Signal(9).encode());
    world.server.go_on_stopping(1, &mut world.links[1], later + stopping::KILL_LIMIT);
    assert_eq!(world.actions(), [(Action::Destroy, 1)]);
    world.server.go_on_stopping(1, &mut world.links[1], later + stopping::KILL_LIMIT + stopping::DESTROY_LIMIT);
    assert!(world.links[1].has_failed_to_stop());
    world.server.tick(&mut world.links);
    assert_eq!(world.end(), (125, "b: cannot be stopped".to_owned()));
}

#[test]
fn a_pod_that_waits_and_is_stopped_has_ended() {
    let mut world = World::new();
    world.greet();
    world.server.on_end(0, Some(Report::Exit(3)), &mut world.links[0]).expect("it starts again");
    world.ask(&Request::Stop { grace_ms: 1000, pods: vec!["a".into()] });
    assert_eq!(ended(&world.links[0]), Some(&LifeEnd::Ended(Report::Exit(3))));
    assert_eq!(world.actions(), [(Action::Release, 0)]);
    world.server.tick(&mut world.links);
    assert_eq!(world.end().0, 0);
}

#[test]
fn reports_name_the_phase_and_what_the_manager_says() {
    let mut world = World::new();
    world.links[0].greet();
    world.ask(&Request::Pods);
    let ids: Vec<u32> = world.orders().iter().map(|order| order.id).collect();
    world.answer(ids[0], 0, Outcome::Done, PodPhase::Running);
    world.answer(ids[1], 1, Outcome::Done, PodPhase::Running);
    world.server.tick(&mut world.links);
    let report = world.report();
    let states: Vec<&str> = report.pods.iter().map(|pod| pod.state_name()).collect();
    assert_eq!((states, report.pods[0].usage().tickets), (vec!["running", "starting"], 7));

    world.server.on_end(0, Some(Report::Exit(3)), &mut world.links[0]);
    world.ask(&Request::Pods);
    let id = world.orders()[1].id;
    // The first does not answer, the second is gone without a word.
    world.answer(id, 1, Outcome::Done, PodPhase::Ended);
    world.server.finish_report(CLIENT, &world.links);
    let report = world.report();
    let states: Vec<(&str, Option<u8>)> = report.pods.iter().map(|pod| (pod.state_name(), pod.status)).collect();
    assert_eq!(states, [("waiting", Some(3)), ("stopped", None)]);
    assert_eq!(report.pods[0].usage, None);
}

#[test]
fn a_client_that_speaks_another_language_is_refused_and_goes() {
    let mut world = World::new();
    world.ask_in_words("\"else\"");
    assert_eq!(world.end(), (125, "this version of the tool does not know that".to_owned()));
    world.client.write_all(&[254; 16]).expect("room");
    world.server.handle(ServerSlot::Read(CLIENT), &mut world.links);
    assert_eq!(world.end(), (125, "this is no request: bytes that are no frame".to_owned()));
    world.server.tick(&mut world.links);
    assert!(world.server.clients.is_empty());
}

/// A caller of HTTP that asks for metrics; its end of the socket.
fn collector(world: &mut World, number: u64) -> UnixStream {
    let (ours, mut caller) = pair();
    let client = Client { web: Some(Web::new(Instant::now())), ..Client::new(Stream::new(ours)) };
    world.server.clients.insert(number, client);
    caller.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("room");
    world.server.handle(ServerSlot::Read(number), &mut world.links);
    caller
}

#[test]
fn collectors_of_a_silent_manager_leave_room_for_what_the_tool_orders() {
    let mut world = World::new();
    world.greet();
    let mut refused = 0;
    let mut callers = Vec::new();
    // Each round is that of callers whose time is over before the manager has said a word.
    for round in 0..200 {
        for number in 0..8 {
            let mut caller = collector(&mut world, 100 + number);
            let mut answer = String::new();
            let _ = caller.read_to_string(&mut answer);
            refused += usize::from(answer.starts_with("HTTP/1.1 503 "));
            callers.push(caller);
        }
        world.server.end_late_callers(Instant::now() + Duration::from_secs(60));
        world.server.tick(&mut world.links);
        assert!(world.server.orders.takes(1) || round > 0, "nobody waits any more");
        callers.clear();
        world.orders();
    }
    assert!(refused >= 4 * 200, "at most four reports are made at a time: {refused}");
    world.server.on_end(0, Some(Report::Exit(3)), &mut world.links[0]).expect("it starts again");
    let due = world.links[0].due().expect("it waits");
    world.answer(EVENT_ID, 0, Outcome::HasEnded, PodPhase::Waiting);
    flush(&mut world.links[0]);
    world.server.go_on_starting(0, &mut world.links[0], due);
    assert_eq!(world.links[0].restart_count, 1, "what the tool orders has room");
}

#[test]
fn a_late_answer_is_not_that_to_the_next_question() {
    let mut world = World::new();
    world.ask(&Request::Pods);
    let ids: Vec<u32> = world.orders().iter().map(|order| order.id).collect();
    world.server.finish_report(CLIENT, &world.links);
    assert!(world.report().pods.iter().all(|pod| pod.state_name() == "silent"));
    world.ask(&Request::Pods);
    for (id, pod) in ids.into_iter().zip(0..) {
        world.answer(id, pod, Outcome::Done, PodPhase::Running);
    }
    world.server.tick(&mut world.links);
    assert!(world.answers().is_empty(), "the second question has no answer yet");
}

#[test]
fn a_client_that_takes_no_answers_is_not_heard_until_it_does() {
    let mut world = World::new();
    let question = Frame::new(Kind::Request, json(&Request::Inspect { pod: None }).as_bytes()).encode();
    let mut written = 0;
    for _ in 0..50_000 {
        written += usize::from(world.client.write(&question).is_ok_and(|length| length == question.len()));
        let client = &world.server.clients[&CLIENT];
        if client.is_heard() {
            world.server.handle(ServerSlot::Read(CLIENT), &mut world.links);
        }
    }
    let pending_bytes = |world: &World| world.server.clients[&CLIENT].stream.pending_bytes();
    assert!(written > 100 && pending_bytes(&world) < 2 * OUT_BYTES_ENOUGH, "{written} {}", pending_bytes(&world));
    // All that it asked is answered once it reads.
    let (mut frames, mut ends) = (FrameBuffer::new(), 0);
    let mut bytes = vec![0; 1 << 16];
    while ends < written {
        world.server.handle(ServerSlot::Write(CLIENT), &mut world.links);
        if world.server.clients[&CLIENT].is_heard() {
            world.server.handle(ServerSlot::Read(CLIENT), &mut world.links);
        }
        let count = world.client.read(&mut bytes).unwrap_or(0);
        frames.push(&bytes[..count]);
        while let Some(frame) = frames.next_frame().expect("sound") {
            ends += usize::from(frame.kind == Kind::End);
        }
    }
    assert_eq!(ends, written);
}

#[test]
fn memory_that_is_changed_holds_a_pods_extents_too() {
    for (pod, frame_count) in [("a", 80 * 256), ("b", 80 * 256 + 2 * 592)] {
        let mut world = World::new();
        world.server.pods[1].extent_count = 2;
        world.ask(&Request::Memory { pod: pod.into(), guaranteed: 64 << 20, limit: 64 << 20 });
        let amounts: Vec<u64> = world.orders().iter().map(|order| order.amount).collect();
        assert_eq!(amounts, [amount_of_memory(frame_count, frame_count)], "{pod}");
    }
}
