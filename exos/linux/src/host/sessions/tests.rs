//! Sessions of a pod whose processes have no programs: the test is the host, and each process's thread.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use aegis_abi::upcall::UpcallFrame;
use aegis_link::config::{Config, Flags};
use aegis_link::sessions::{FromPod, Receiver, SESSION_COUNT_MAX, Stream, ToPod, WINDOW_BYTES, opening};
use exos::error::Errno;
use exos::fs::description::Description;
use exos::fs::metadata::Timestamp;
use exos::fs::terminal::modes::Terminal;
use exos::fs::transfer::Buffer;
use exos::task::signal::Signal;

use super::{Line, Sessions};
use crate::task::caller::Caller;
use crate::task::exit::exit_thread;
use crate::task::process::{Ending, Process};
use crate::testing::pod::World;

const TOKEN: u64 = 0x1234_5678_9abc_def0;

/// The host's end of a line that takes `room` bytes.
#[derive(Default)]
struct Wire {
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
    room: usize,
}

struct FakeLine(Arc<Mutex<Wire>>);

impl Line for FakeLine {
    fn read(&self, into: &mut [u8]) -> usize {
        let mut wire = self.0.lock().unwrap();
        let count = into.len().min(wire.incoming.len());
        into[..count].fill_with(|| wire.incoming.pop_front().unwrap_or_default());
        count
    }

    fn write(&self, from: &[u8]) -> usize {
        let mut wire = self.0.lock().unwrap();
        let count = from.len().min(wire.room);
        wire.room -= count;
        wire.outgoing.extend(&from[..count]);
        count
    }
}

/// A pod and the host that talks to it.
struct Host {
    world: World,
    sessions: Sessions,
    wire: Arc<Mutex<Wire>>,
    receiver: Receiver,
}

/// What a session said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    is_accepted: bool,
    outputs: [Vec<u8>; 2],
    taken: u32,
    end: Option<String>,
}

impl Host {
    fn new() -> Self {
        let (world, sessions) = (World::new(), Sessions::new(|| {}));
        assert!(!sessions.wants(true), "a line that is not open costs nothing");
        sessions.open(&world.pod.system, TOKEN);
        let wire = Arc::new(Mutex::new(Wire { room: usize::MAX, ..Wire::default() }));
        wire.lock().unwrap().incoming.extend(opening(TOKEN));
        Self { world, sessions, wire, receiver: Receiver::new(TOKEN) }
    }

    fn send(&self, session: u32, messages: &[ToPod<'_>]) {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| message.append_frame(session, &mut bytes));
        self.wire.lock().unwrap().incoming.extend(bytes);
        self.sessions.pump(&self.world.pod.system, &FakeLine(self.wire.clone()));
    }

    fn begin(&self, session: u32, config: &Config) {
        let description = config.encode().unwrap();
        let pieces: Vec<ToPod<'_>> = description.chunks(100).map(ToPod::Describe).collect();
        self.send(session, &pieces);
        self.send(session, &[ToPod::Start]);
    }

    /// What was said about a session since the last look; nothing may be said about others.
    fn said(&mut self, session: u32) -> Said {
        self.sessions.pump(&self.world.pod.system, &FakeLine(self.wire.clone()));
        let bytes = core::mem::take(&mut self.wire.lock().unwrap().outgoing);
        self.receiver.push(&bytes);
        let mut said = Said::default();
        while let Some((number, message)) = self.receiver.next().unwrap() {
            let is_of_line = FromPod::parse(message) == Ok(FromPod::LineEnd);
            assert_eq!(number, if is_of_line { 0 } else { session });
            assert_eq!(said.end, None, "the end is the last");
            match FromPod::parse(message).unwrap() {
                FromPod::Accepted => said.is_accepted = true,
                FromPod::Output(stream, data) => said.outputs[stream as usize].extend(data),
                FromPod::Taken(count) => said.taken += count,
                FromPod::Exited(status) => said.end = Some(format!("exited {status}")),
                FromPod::Killed(signal, text) => said.end = Some(format!("killed {signal} {}", text.escape_ascii())),
                FromPod::Failed(status, text) => said.end = Some(format!("failed {status} {}", text.escape_ascii())),
                FromPod::LineEnd => said.end = Some("line".to_owned()),
            }
        }
        said
    }

    fn process(&self, pid: u32) -> Arc<Process> {
        self.world.pod.system.processes.get(pid).expect("it was made")
    }

    /// Gives a session's process its streams, as its thread would.
    fn connect(&self, pid: u32) -> Arc<Process> {
        self.try_connect(pid).unwrap()
    }

    fn try_connect(&self, pid: u32) -> Result<Arc<Process>, Errno> {
        let process = self.process(pid);
        let start = self.sessions.starts.waiting.lock().remove(&pid).expect("it has not begun");
        start.connect(&self.world.pod.system, &process).map(|()| process)
    }

    fn leave(&self, process: &Arc<Process>) {
        let thread = process.threads.lock()[0].clone();
        let (system, memory) = (&self.world.pod.system, &self.world.memory);
        exit_thread(&Caller { system, process, thread: &thread, memory });
    }
}

fn config(flags: Flags) -> Config {
    Config { program: b"/bin/none".to_vec(), arguments: vec![b"none".to_vec()], flags, ..Config::default() }
}

fn descriptor(process: &Process, number: u64) -> Arc<Description> {
    process.files.get(number).unwrap()
}

fn write(description: &Description, mut bytes: &[u8]) -> Result<usize, Errno> {
    description.write(&mut bytes, Timestamp::default())
}

fn read(description: &Description) -> Result<Vec<u8>, Errno> {
    let mut buffer = Buffer::with_limit(1 << 20);
    description.read(&mut buffer, Timestamp::default()).map(|_| buffer.bytes)
}

fn has_pending(process: &Process, signal: Signal) -> bool {
    process.signals.lock().pending.set().contains(signal)
}

#[test]
fn streams_travel_apart_and_the_end_comes_last() {
    let mut host = Host::new();
    host.begin(7, &config(Flags::INPUT));
    assert!(host.said(7).is_accepted);
    let process = host.connect(2);
    assert_eq!((*process.group.lock(), *process.session.lock(), process.visible_parent()), (2, 2, 1));
    host.send(7, &[ToPod::Input(b"ab"), ToPod::Input(b"c")]);
    assert_eq!(read(&descriptor(&process, 0)), Ok(b"abc".to_vec()));
    assert_eq!(host.said(7).taken, 3);
    assert_eq!(read(&descriptor(&process, 0)), Err(Errno::EAGAIN));
    host.send(7, &[ToPod::InputEnd]);
    assert_eq!(read(&descriptor(&process, 0)), Ok(Vec::new()));
    assert_eq!(write(&descriptor(&process, 1), b"out"), Ok(3));
    assert_eq!(write(&descriptor(&process, 2), b"err"), Ok(3));
    assert_eq!(host.said(7).outputs, [b"out".to_vec(), b"err".to_vec()]);
    // A process that has the pipe goes on writing behind the end.
    let kept = descriptor(&process, 1);
    assert_eq!(write(&kept, b"last"), Ok(4));
    process.end(Ending::Exited(3));
    host.leave(&process);
    let said = host.said(7);
    assert_eq!((said.outputs[0].as_slice(), said.end.as_deref()), (&b"last"[..], Some("exited 3")));
    assert_eq!(write(&kept, b"more"), Err(Errno::EPIPE));
    assert!(host.world.pod.system.processes.get(2).is_none(), "nobody has to wait for it");
    host.send(7, &[ToPod::Credit(Stream::Output, 4), ToPod::Signal(9)]);
    assert_eq!(host.said(7), Said::default(), "late words about it are passed over");
}

#[test]
fn without_input_there_is_an_empty_one() {
    let host = Host::new();
    host.begin(1, &config(Flags::empty()));
    let process = host.connect(2);
    assert_eq!(read(&descriptor(&process, 0)), Ok(Vec::new()));
    host.send(1, &[ToPod::Input(b"x"), ToPod::InputEnd]);
    assert!(host.sessions.wants(true), "input for nobody is no fault");
}

#[test]
fn what_cannot_be_started_says_why() {
    let mut host = Host::new();
    let bad = Config { working_directory: b"/nowhere".to_vec(), ..config(Flags::empty()) };
    for (number, config, why) in [
        (1, config(Flags::empty()), "failed 127 /bin/none: not found"),
        (2, bad, "failed 125 the working directory /nowhere cannot be used (ENOENT)"),
    ] {
        host.begin(number, &config);
        let process = host.process(number + 1);
        let thread = process.threads.lock()[0].clone();
        let (system, memory) = (&host.world.pod.system, &host.world.memory);
        let caller = Caller { system, process: &process, thread: &thread, memory };
        host.sessions.enter(&caller, &mut UpcallFrame::default());
        assert!(process.has_ended());
        exit_thread(&caller);
        assert_eq!(host.said(number).end.as_deref(), Some(why));
    }
    host.send(3, &[ToPod::Describe(b"no configuration"), ToPod::Start]);
    assert_eq!(host.said(3).end.as_deref(), Some("failed 125 no run configuration"));
}

#[test]
fn slow_callers_hold_up_their_own_process_only() {
    let mut host = Host::new();
    host.begin(1, &config(Flags::INPUT));
    let process = host.connect(2);
    let output = descriptor(&process, 1);
    let mut written = 0;
    loop {
        match write(&output, &[7; 3000]) {
            Ok(count) => written += count,
            Err(error) => break assert_eq!(error, Errno::EAGAIN),
        }
        host.sessions.pump(&host.world.pod.system, &FakeLine(host.wire.clone()));
    }
    let said = host.said(1);
    assert_eq!(said.outputs[0].len(), WINDOW_BYTES as usize, "a window's worth, and a pipe is full behind it");
    assert!(written > WINDOW_BYTES as usize + 60_000 && written <= 2 * WINDOW_BYTES as usize);
    assert_eq!(write(&descriptor(&process, 2), b"e"), Ok(1));
    assert_eq!(host.said(1).outputs, [Vec::new(), b"e".to_vec()]);
    host.send(1, &[ToPod::Credit(Stream::Output, 10)]);
    assert_eq!(host.said(1).outputs[0].len(), 10);

    // And a process that does not read its caller.
    for _ in 0..32 {
        host.send(1, &[ToPod::Input(&[1; 2000])]);
    }
    assert!(host.said(1).taken >= 60_000, "the pipe holds it");
    host.send(1, &[ToPod::Closed(Stream::Output)]);
    assert_eq!(write(&output, b"x"), Err(Errno::EPIPE));
}

#[test]
fn a_line_that_is_full_loses_nothing() {
    let mut host = Host::new();
    host.wire.lock().unwrap().room = 5;
    host.begin(1, &config(Flags::empty()));
    let process = host.connect(2);
    let all: Vec<u8> = (0..50_000_u32).map(|number| number as u8).collect();
    let (mut written, mut seen) = (0, Vec::new());
    while seen.len() < all.len() {
        written += write(&descriptor(&process, 1), &all[written..all.len().min(written + 4096)]).unwrap_or(0);
        host.wire.lock().unwrap().room = 1234;
        seen.extend(host.said(1).outputs.into_iter().flatten());
    }
    assert!(seen == all);
}

#[test]
fn callers_that_go_leave_a_process_with_sighup() {
    let host = Host::new();
    host.begin(1, &config(Flags::INPUT));
    host.begin(2, &config(Flags::empty()));
    let (first, second) = (host.connect(2), host.connect(3));
    host.send(1, &[ToPod::HangUp]);
    assert!(has_pending(&first, Signal::HUP) && !has_pending(&second, Signal::HUP));
    assert_eq!(read(&descriptor(&first, 0)), Ok(Vec::new()));
    assert_eq!(write(&descriptor(&first, 1), b"x"), Err(Errno::EPIPE));
    host.send(2, &[ToPod::Signal(15)]);
    assert!(has_pending(&second, Signal::TERM));
    // The host begins anew.
    host.sessions.open(&host.world.pod.system, TOKEN + 1);
    assert!(has_pending(&second, Signal::HUP));
}

#[test]
fn a_terminal_has_a_keyboard_a_screen_and_a_session() {
    let mut host = Host::new();
    let config = Config { terminal_rows: 25, terminal_columns: 81, ..config(Flags::TERMINAL | Flags::INPUT) };
    host.begin(4, &config);
    let process = host.connect(2);
    let slave = descriptor(&process, 0);
    let size = slave.terminal().unwrap().window_size();
    assert_eq!((size.row_count, size.column_count), (25, 81));
    let terminals = &host.world.pod.system.files.terminals;
    assert_eq!(terminals.controlling(2).map(|tty| tty.foreground_group()), Some(2));
    host.send(4, &[ToPod::Input(b"ls\r")]);
    assert_eq!(read(&slave), Ok(b"ls\n".to_vec()));
    assert_eq!(write(&descriptor(&process, 2), b"a\n"), Ok(2));
    let said = host.said(4);
    assert_eq!((said.outputs[0].as_slice(), said.taken), (&b"ls\r\na\r\n"[..], 3));
    host.send(4, &[ToPod::Window { rows: 10, columns: 20 }, ToPod::Input(b"\x03")]);
    assert!(has_pending(&process, Signal::INT));
    assert_eq!(slave.terminal().unwrap().window_size().row_count, 10);
    host.send(4, &[ToPod::InputEnd]);
    assert_eq!(read(&slave), Ok(Vec::new()), "the character that means the end");
    host.send(4, &[ToPod::HangUp]);
    assert!(has_pending(&process, Signal::HUP));
    assert_eq!(write(&slave, b"x"), Err(Errno::EIO));
}

#[test]
fn there_is_a_most_of_sessions() {
    let mut host = Host::new();
    let most = SESSION_COUNT_MAX as u32;
    for number in 0..most {
        host.begin(number, &config(Flags::empty()));
        assert!(host.said(number).is_accepted);
    }
    host.begin(most, &config(Flags::empty()));
    let end = host.said(most).end.expect("it was refused");
    assert_eq!(end, "failed 125 more than 16 sessions at a time in one pod");
    host.send(0, &[ToPod::HangUp]);
    host.begin(most + 1, &config(Flags::empty()));
    assert!(host.said(most + 1).is_accepted);
}

#[test]
fn a_host_that_breaks_the_rules_is_not_listened_to() {
    let more = vec![0; 4000];
    let too_much = vec![ToPod::Input(&more); 17];
    for nonsense in [
        &[ToPod::Start][..],
        &[ToPod::Describe(b"x")],
        &[ToPod::InputEnd, ToPod::InputEnd],
        &[ToPod::InputEnd, ToPod::Input(b"x")],
        &[ToPod::Credit(Stream::Errors, 1)],
        &too_much,
    ] {
        let mut host = Host::new();
        host.begin(1, &config(Flags::INPUT));
        let process = host.connect(2);
        host.said(1);
        host.send(1, nonsense);
        assert!(has_pending(&process, Signal::HUP), "{nonsense:?}");
        host.begin(9, &config(Flags::empty()));
        assert_eq!(host.said(9), Said { end: Some("line".to_owned()), ..Said::default() });
        assert!(!host.sessions.wants(true));
        host.begin(9, &config(Flags::empty()));
        assert_eq!(host.said(9), Said::default());
        // Until it opens the line again.
        host.sessions.open(&host.world.pod.system, TOKEN);
        let mut wire = host.wire.lock().unwrap();
        wire.incoming.extend(opening(TOKEN));
        drop(wire);
        host.receiver = Receiver::new(TOKEN);
        host.begin(2, &config(Flags::empty()));
        assert!(host.said(2).is_accepted);
    }
}

#[test]
fn no_order_of_messages_does_harm() {
    // Chance that is the same in each run.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    for _ in 0..300 {
        let host = Host::new();
        let description = config(if draw(2) == 0 { Flags::INPUT } else { Flags::TERMINAL }).encode().unwrap();
        for _ in 0..draw(60) {
            let session = draw(4) as u32;
            let message = match draw(11) {
                0 | 1 => ToPod::Describe(&description),
                2 | 3 => ToPod::Start,
                4 => ToPod::Input(b"some input\r"),
                5 => ToPod::InputEnd,
                6 => ToPod::Signal(1 + draw(64) as u8),
                7 => ToPod::Window { rows: 1, columns: 2 },
                8 => ToPod::Credit(Stream::Output, 1 + draw(5) as u32),
                9 => ToPod::Closed(if draw(2) == 0 { Stream::Output } else { Stream::Errors }),
                _ => ToPod::HangUp,
            };
            host.wire.lock().unwrap().room = draw(50) as usize;
            host.send(session, &[message]);
            let waiting: Vec<u32> = host.sessions.starts.waiting.lock().keys().copied().collect();
            // One whose caller has hung up may have no terminal any more.
            if let Some(pid) = waiting.first().filter(|_| draw(3) == 0)
                && let Ok(process) = host.try_connect(*pid)
            {
                let _ = write(&descriptor(&process, 1), &[b'x'; 500]);
                if draw(2) == 0 {
                    process.end(Ending::Exited(0));
                    host.leave(&process);
                }
            }
        }
    }
}
