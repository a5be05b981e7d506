//! The tool's end of a pod's line of sessions (`aegis_link::sessions`): which caller each session belongs to, and what
//! pod and caller may still send.
//!
//! Messages pass unchanged but for the session's number. Both sides are held to their windows here: a caller that sends
//! more is refused alone, a pod that does loses its line and all sessions on it. The line is opened when a session
//! wants it, with a new number each time, so what a pod that was started again finds of its forerunner is passed over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use aegis_launch::errors::{STATUS_SIGNAL_BASE, STATUS_TOOL};
use aegis_link::config::Config;
use aegis_link::control::printable;
use aegis_link::sessions::{
    DATA_BYTES_MAX, DESCRIPTION_BYTES_MAX, FromPod, Malformed, Receiver, SESSION_COUNT_MAX, ToPod, Window, opening,
};

use crate::relay::stream::Stream;

/// The longest time from a session's start to a word from the pod.
const ACCEPT_LIMIT: Duration = Duration::from_secs(30);
/// Most bytes that wait for a pod that does not listen: its callers may send no more than their windows hold.
const OUT_BYTES_MAX: usize = 8 << 20;

/// Reads from a pod that has ended.
const END_READ_COUNT_MAX: usize = 64;

/// Something for a caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    /// This message.
    Message(u64, Vec<u8>),
    /// Its session is over: status and line.
    End(u64, u8, String),
}

#[derive(Debug)]
struct Caller {
    client: u64,
    input: Window,
    has_input_ended: bool,
    outputs: [Window; 2],
    is_accepted: bool,
    deadline: Instant,
}

/// One pod's line.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) stream: Stream,
    /// What the pod's program was started with.
    pub(crate) config: Config,
    /// While the line is open.
    receiver: Option<Receiver>,
    sessions: BTreeMap<u32, Caller>,
    last_session: u32,
}

impl Channel {
    /// A line that is not open, over a socket, which must be non-blocking.
    pub(crate) fn new(stream: UnixStream, config: Config) -> Self {
        let (stream, sessions) = (Stream::new(stream), BTreeMap::new());
        Self { stream, config, receiver: None, sessions, last_session: 0 }
    }

    /// Begins a session. Where the line has to be opened for it, the pod is to be told so with the number in the
    /// answer.
    pub(crate) fn begin(&mut self, client: u64, config: &Config) -> Result<(u32, Option<u64>), String> {
        let description = config.encode().map_err(|error| error.to_string())?;
        if description.len() > DESCRIPTION_BYTES_MAX {
            let most = DESCRIPTION_BYTES_MAX >> 10;
            return Err(format!("arguments and environment are longer than {most} KiB together"));
        }
        if self.sessions.len() >= SESSION_COUNT_MAX {
            return Err(format!("more than {SESSION_COUNT_MAX} sessions at a time in one pod"));
        }
        // Also for callers that come and go: what they leave waits as well.
        if self.stream.pending_bytes() > OUT_BYTES_MAX {
            return Err("the pod does not listen".into());
        }
        let token = match self.receiver {
            Some(_) => None,
            None => Some(self.open().map_err(|error| format!("/dev/urandom: {error}"))?),
        };
        self.last_session = self.last_session.wrapping_add(1);
        let session = self.last_session;
        let mut frames = Vec::new();
        for piece in description.chunks(DATA_BYTES_MAX) {
            ToPod::Describe(piece).append_frame(session, &mut frames);
        }
        ToPod::Start.append_frame(session, &mut frames);
        let (input, outputs, deadline) = (Window::default(), Default::default(), Instant::now() + ACCEPT_LIMIT);
        let caller = Caller { client, input, has_input_ended: false, outputs, is_accepted: false, deadline };
        self.sessions.insert(session, caller);
        self.stream.send(&frames);
        Ok((session, token))
    }

    fn open(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let token = u64::from_le_bytes(bytes);
        self.receiver = Some(Receiver::new(token));
        self.last_session = 0;
        self.stream.clear();
        self.stream.send(&opening(token));
        Ok(token)
    }

    /// A caller's message. The error says what is wrong with it.
    pub(crate) fn pass_on(&mut self, session: u32, message: &[u8]) -> Result<(), &'static str> {
        let Some(caller) = self.sessions.get_mut(&session) else { return Ok(()) };
        let mut judge = |message: ToPod<'_>| match message {
            ToPod::Input(_) | ToPod::InputEnd if caller.has_input_ended => Err(Malformed),
            ToPod::Input(data) => caller.input.take(data.len()),
            ToPod::InputEnd => {
                caller.has_input_ended = true;
                Ok(())
            }
            ToPod::Credit(stream, count) => caller.outputs[stream as usize].give(count),
            ToPod::Signal(_) | ToPod::Window { .. } | ToPod::Closed(_) => Ok(()),
            ToPod::Describe(_) | ToPod::Start | ToPod::HangUp => Err(Malformed),
        };
        let message = ToPod::parse(message).and_then(|message| judge(message).map(|()| message));
        let message = message.map_err(|Malformed| "this is no message of a session")?;
        if self.stream.pending_bytes() > OUT_BYTES_MAX {
            return Err("the pod does not listen");
        }
        self.send(session, message);
        Ok(())
    }

    /// The caller is gone.
    pub(crate) fn hang_up(&mut self, session: u32) {
        if self.sessions.remove(&session).is_some() {
            self.send(session, ToPod::HangUp);
        }
    }

    /// Takes in what has come.
    pub(crate) fn read(&mut self, pod: &str) -> Vec<SessionEvent> {
        let mut news = Vec::new();
        let mut buffer = [0; 64 * 1024];
        let length = self.stream.read(&mut buffer).ok().flatten().unwrap_or(0);
        let Some(mut receiver) = self.receiver.take_if(|_| length > 0) else { return news };
        receiver.push(&buffer[..length]);
        loop {
            let heard = match receiver.next() {
                Ok(None) => break self.receiver = Some(receiver),
                Ok(Some((_, message))) if FromPod::parse(message) == Ok(FromPod::LineEnd) => {
                    news.extend(self.close(STATUS_TOOL, &format!("{pod}: its library OS has closed the line")));
                    break;
                }
                Ok(Some((session, message))) => self.hear(session, message),
                Err(fault) => Err(fault),
            };
            match heard {
                Ok(heard) => news.extend(heard),
                Err(Malformed) => {
                    let text = format!("{pod}: what its library OS says makes no sense");
                    news.extend(self.close(STATUS_TOOL, &text));
                    break;
                }
            }
        }
        news
    }

    fn hear(&mut self, session: u32, message: &[u8]) -> Result<Option<SessionEvent>, Malformed> {
        let heard = FromPod::parse(message)?;
        // It is still said about a session whose caller has gone.
        let Some(caller) = self.sessions.get_mut(&session) else { return Ok(None) };
        let (status, text) = match heard {
            FromPod::Failed(status, text) => (status, text),
            FromPod::LineEnd => return Err(Malformed),
            FromPod::Accepted if caller.is_accepted => return Err(Malformed),
            FromPod::Accepted => {
                caller.is_accepted = true;
                return Ok(Some(SessionEvent::Message(caller.client, message.to_vec())));
            }
            _ if !caller.is_accepted => return Err(Malformed),
            FromPod::Output(stream, data) => {
                caller.outputs[stream as usize].take(data.len())?;
                return Ok(Some(SessionEvent::Message(caller.client, message.to_vec())));
            }
            FromPod::Taken(count) => {
                caller.input.give(count)?;
                return Ok(Some(SessionEvent::Message(caller.client, message.to_vec())));
            }
            FromPod::Exited(status) => (status, &b""[..]),
            FromPod::Killed(signal, text) => (STATUS_SIGNAL_BASE + signal, text),
        };
        let client = caller.client;
        self.sessions.remove(&session);
        Ok(Some(SessionEvent::End(client, status, printable(text))))
    }

    /// Ends all sessions, with this status and line, and the line with them.
    pub(crate) fn close(&mut self, status: u8, text: &str) -> Vec<SessionEvent> {
        self.receiver = None;
        self.stream.clear();
        let sessions = std::mem::take(&mut self.sessions).into_values();
        sessions.map(|caller| SessionEvent::End(caller.client, status, text.to_owned())).collect()
    }

    /// The pod has ended: reads what it has said, and ends all sessions.
    pub(crate) fn end(&mut self, pod: &str) -> Vec<SessionEvent> {
        let mut news = Vec::new();
        // More than all windows hold does not come from one that has ended.
        for _ in 0..END_READ_COUNT_MAX {
            if self.receiver.is_none() || self.sessions.is_empty() {
                break;
            }
            if self.stream.unread_bytes() == 0 {
                break;
            }
            news.extend(self.read(pod));
        }
        news.extend(self.close(STATUS_SIGNAL_BASE + libc::SIGKILL as u8, &format!("{pod}: has ended")));
        news
    }

    /// Ends the sessions that the pod should have answered by now.
    pub(crate) fn give_up(&mut self, pod: &str, now: Instant) -> Vec<SessionEvent> {
        let is_late = |caller: &Caller| !caller.is_accepted && now >= caller.deadline;
        let late: Vec<u32> = self.sessions.iter().filter(|(_, it)| is_late(it)).map(|(number, _)| *number).collect();
        let mut news = Vec::new();
        for session in late {
            let client = self.sessions.get(&session).map(|caller| caller.client);
            self.hang_up(session);
            news.extend(client.map(|client| SessionEvent::End(client, STATUS_TOOL, format!("{pod}: does not answer"))));
        }
        news
    }

    /// When [`Channel::give_up`] has something to do.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.sessions.values().filter(|caller| !caller.is_accepted).map(|caller| caller.deadline).min()
    }

    fn send(&mut self, session: u32, message: ToPod<'_>) {
        let mut frame = Vec::new();
        message.append_frame(session, &mut frame);
        self.stream.send(&frame);
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
