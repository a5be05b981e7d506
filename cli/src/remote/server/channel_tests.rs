//! A pod's line of sessions with a pod at its other end that does what the test wants.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use aegis_link::config::Config;
use aegis_link::sessions::{FromPod, Receiver, Stream, ToPod, WINDOW_BYTES, opening};

use super::{Channel, SessionEvent};

/// A line, and the pod at its other end.
struct Pod {
    channel: Channel,
    stream: UnixStream,
    receiver: Receiver,
}

impl Pod {
    fn new() -> Self {
        let (ours, stream) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("a socket");
        stream.set_nonblocking(true).expect("a socket");
        Self { channel: Channel::new(ours, Config::default()), stream, receiver: Receiver::new(0) }
    }

    /// Begins a session; where that opens the line, the pod answers.
    fn begin(&mut self, client: u64) -> u32 {
        let config = Config { program: b"p".to_vec(), ..Config::default() };
        let (session, token) = self.channel.begin(client, &config).expect("there is room");
        if let Some(token) = token {
            self.receiver = Receiver::new(token);
            self.stream.write_all(&opening(token)).expect("room");
        }
        session
    }

    fn say(&mut self, session: u32, messages: &[FromPod<'_>]) -> Vec<SessionEvent> {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| message.append_frame(session, &mut bytes));
        self.stream.write_all(&bytes).expect("room");
        // All that was written is there; it is read in pieces.
        (0..4).flat_map(|_| self.channel.read("pod")).collect()
    }

    /// What the pod hears, as debug text.
    fn heard(&mut self) -> Vec<String> {
        let mut bytes = vec![0; 1 << 20];
        let count = self.stream.read(&mut bytes).unwrap_or(0);
        self.receiver.push(&bytes[..count]);
        let mut heard = Vec::new();
        while let Some((session, message)) = self.receiver.next().expect("sound") {
            match ToPod::parse(message).expect("sound") {
                ToPod::Describe(_) => {}
                message => heard.push(format!("{session} {message:?}")),
            }
        }
        heard
    }
}

fn bytes(message: &ToPod<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.append(&mut bytes);
    bytes
}

fn end(client: u64, status: u8, text: &str) -> SessionEvent {
    SessionEvent::End(client, status, text.to_owned())
}

#[test]
fn sessions_share_a_line_and_end_apart() {
    let mut pod = Pod::new();
    let (first, second) = (pod.begin(10), pod.begin(11));
    assert_eq!(pod.heard(), ["1 Start", "2 Start"]);
    let news = pod.say(first, &[FromPod::Accepted, FromPod::Output(Stream::Errors, b"x")]);
    assert_eq!(news, [SessionEvent::Message(10, vec![33]), SessionEvent::Message(10, vec![34, 1, b'x'])]);
    assert_eq!(pod.channel.pass_on(first, &bytes(&ToPod::Input(b"ab"))), Ok(()));
    assert_eq!(pod.channel.pass_on(second, &bytes(&ToPod::Signal(15))), Ok(()));
    assert_eq!(pod.heard(), ["1 Input([97, 98])", "2 Signal(15)"]);
    assert_eq!(pod.say(second, &[FromPod::Failed(127, b"no\x1bne")]), [end(11, 127, "no\u{fffd}ne")]);
    assert_eq!(pod.say(first, &[FromPod::Taken(2), FromPod::Exited(3)])[1], end(10, 3, ""));
    // Late words on both sides.
    assert_eq!(pod.channel.pass_on(first, &bytes(&ToPod::InputEnd)), Ok(()));
    assert_eq!((pod.say(first, &[FromPod::Taken(1)]), pod.heard().len()), (Vec::new(), 0));
    let third = pod.begin(12);
    pod.say(third, &[FromPod::Accepted]);
    assert_eq!(pod.say(third, &[FromPod::Killed(9, b"why")]), [end(12, 137, "why")]);
}

#[test]
fn a_pod_that_breaks_the_rules_loses_its_line_and_its_sessions() {
    let more = [0; 4000];
    let too_much = [&[FromPod::Accepted][..], &[FromPod::Output(Stream::Output, &more); 17]].concat();
    for (number, nonsense) in [
        &[FromPod::Taken(1)][..],
        &[FromPod::Accepted, FromPod::Accepted],
        &[FromPod::Accepted, FromPod::Taken(1)],
        &[FromPod::Exited(0)],
        &too_much,
    ]
    .into_iter()
    .enumerate()
    {
        let mut pod = Pod::new();
        let (session, _) = (pod.begin(1), pod.begin(2));
        let news = pod.say(session, nonsense);
        let why = "pod: what its library OS says makes no sense";
        assert!(news[news.len() - 2..] == [end(1, 125, why), end(2, 125, why)], "{number}");
        assert_eq!(pod.say(session, &[FromPod::Exited(0)]), []);
        // The next session opens it anew, and what came before is passed over.
        let next = pod.begin(3);
        assert_eq!(pod.say(next, &[FromPod::Accepted]).len(), 1);
    }
}

#[test]
fn a_pod_that_closes_its_line_says_so() {
    let mut pod = Pod::new();
    let (first, _) = (pod.begin(1), pod.begin(2));
    pod.say(first, &[FromPod::Accepted]);
    let why = "pod: its library OS has closed the line";
    assert_eq!(pod.say(0, &[FromPod::LineEnd, FromPod::LineEnd]), [end(1, 125, why), end(2, 125, why)]);
    assert_eq!((pod.channel.next_time(), pod.say(first, &[FromPod::Exited(0)])), (None, Vec::new()));
    let next = pod.begin(3);
    assert_eq!(pod.say(next, &[FromPod::Accepted]).len(), 1, "the next session opens it anew");
}

#[test]
fn a_caller_that_breaks_the_rules_is_refused_alone() {
    let mut pod = Pod::new();
    let session = pod.begin(1);
    for message in [&[][..], &[2], &[9], &[1, 1], &[99], &bytes(&ToPod::Credit(Stream::Output, 1))] {
        assert!(pod.channel.pass_on(session, message).is_err(), "{message:?}");
    }
    let piece = bytes(&ToPod::Input(&[1; 4000]));
    let taken = (0..100).take_while(|_| pod.channel.pass_on(session, &piece).is_ok()).count();
    assert_eq!(taken, WINDOW_BYTES as usize / 4000);
    assert_eq!(pod.channel.pass_on(session, &bytes(&ToPod::InputEnd)), Ok(()));
    assert!(pod.channel.pass_on(session, &bytes(&ToPod::InputEnd)).is_err(), "an input ends once");
    pod.channel.hang_up(session);
    pod.channel.hang_up(session);
    assert_eq!(pod.heard().last().map(String::as_str), Some("1 HangUp"));
}

#[test]
fn silence_and_ends_are_told() {
    let mut pod = Pod::new();
    let (first, second) = (pod.begin(1), pod.begin(2));
    pod.say(first, &[FromPod::Accepted]);
    let later = Instant::now() + Duration::from_secs(60);
    assert!(pod.channel.next_time().is_some_and(|time| time < later));
    assert_eq!(pod.channel.give_up("pod", later), [end(2, 125, "pod: does not answer")]);
    assert_eq!((pod.channel.next_time(), pod.say(second, &[FromPod::Accepted])), (None, Vec::new()));
    let third = pod.begin(3);
    let mut bytes = Vec::new();
    FromPod::Accepted.append_frame(third, &mut bytes);
    FromPod::Exited(4).append_frame(third, &mut bytes);
    pod.stream.write_all(&bytes).expect("room");
    // What it said last is heard before its end.
    let news = pod.channel.end("pod");
    assert_eq!(news[1..], [end(3, 4, ""), end(1, 137, "pod: has ended")]);
    assert_eq!(pod.channel.end("pod"), []);
}

#[test]
fn there_is_a_most_of_sessions_and_of_words() {
    let mut pod = Pod::new();
    let long = Config { program: b"p".to_vec(), arguments: vec![vec![b'x'; 300 << 10]], ..Config::default() };
    assert!(pod.channel.begin(1, &long).expect_err("too long").contains("longer than 256 KiB"));
    assert!(pod.channel.begin(1, &Config::default()).is_err(), "no program");
    for client in 0..16 {
        pod.begin(client);
    }
    let config = Config { program: b"p".to_vec(), ..Config::default() };
    assert!(pod.channel.begin(17, &config).expect_err("full").contains("more than 16"));
}

#[test]
fn callers_that_come_and_go_fill_no_memory_while_a_pod_does_not_listen() {
    let mut pod = Pod::new();
    let config = Config { program: b"p".to_vec(), arguments: vec![vec![b'x'; 200_000]], ..Config::default() };
    let refused = (0..1000).find_map(|client| match pod.channel.begin(client, &config) {
        Ok((session, _)) => {
            pod.channel.hang_up(session);
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(refused.as_deref(), Some("the pod does not listen"));
    assert!(
        pod.channel.stream.pending_bytes() < super::OUT_BYTES_MAX + (1 << 20),
        "{} bytes wait",
        pod.channel.stream.pending_bytes()
    );
}
