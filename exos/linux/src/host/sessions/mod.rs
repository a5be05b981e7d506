//! Processes that the host starts in a running pod (`aegis exec`), and the line by which their streams, signals and
//! ends travel (`aegis_link::sessions`).
//!
//! [`Sessions`] owns the pod's end of the line. The host opens it before the first session and after whatever went
//! wrong; until then nothing here costs anything. [`Sessions::pump`] moves what can be moved and never waits: it is
//! called on the processor that looks after the console, when that had news, or when [`News`] were told: by a pipe or
//! terminal that has something or has room, or by a process that has ended. `session` is one session, `start` makes its
//! process.
//!
//! Invariants: what is kept for a session is bounded by its windows and its description; a message that makes no sense
//! hangs up all sessions and closes the line; a session whose caller is gone leaves nothing behind but its process,
//! which was sent `SIGHUP` and then is a process without a parent as any other. Only `pump` takes the lock of the
//! state; a thread that finds it taken leaves the work to its holder, which looks again afterwards.

mod session;
mod start;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use aegis_link::sessions::{DESCRIPTION_BYTES_MAX, FromPod, Malformed, Receiver, SESSION_COUNT_MAX, ToPod, opening};
use exos::fs::readiness::{Readiness, Waiter};
use exos::sync::Mutex;

use crate::task::system::System;
use session::Session;
use start::Starts;

/// Bytes for the host above which no more output is taken from processes.
const OUT_BYTES_ENOUGH: usize = 32 * 1024;
/// Bytes that are read from the line at a time.
const CHUNK_BYTES: usize = 4096;

/// The pod's end of the line, as bytes.
pub trait Line {
    /// Takes bytes that have come; 0: there are none now.
    fn read(&self, into: &mut [u8]) -> usize;
    /// Gives bytes, as many as there is room for. Where that is not all, the console has news when there is room.
    fn write(&self, from: &[u8]) -> usize;
}

/// What a session tells when it has something to do.
pub struct News {
    is_due: AtomicBool,
    /// Has [`Sessions::pump`] called soon.
    call: fn(),
}

impl Waiter for News {
    fn wake(&self, _: Readiness) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            (self.call)();
        }
    }
}

/// The sessions of a pod.
pub struct Sessions {
    news: Arc<News>,
    is_open: AtomicBool,
    state: Mutex<State>,
    starts: Starts,
}

#[derive(Default)]
struct State {
    receiver: Option<Receiver>,
    /// What has not left yet: from `sent` on.
    out: Vec<u8>,
    sent: usize,
    /// By number: those whose description comes, and those that run.
    sessions: BTreeMap<u32, Stage>,
    /// Sessions with lower numbers have begun: each number is used once.
    next_number: u64,
}

enum Stage {
    Described(Vec<u8>),
    Running(Session),
}

impl Sessions {
    /// None, and a line that is not open. `call` has [`Sessions::pump`] called soon.
    #[must_use]
    pub fn new(call: fn()) -> Self {
        Self {
            news: Arc::new(News { is_due: AtomicBool::new(false), call }),
            is_open: AtomicBool::new(false),
            state: Mutex::default(),
            starts: Starts::default(),
        }
    }

    /// Whether there may be something to do; `has_news`: the console had some.
    pub fn wants(&self, has_news: bool) -> bool {
        self.is_open.load(Ordering::Acquire) && (has_news || self.news.is_due.load(Ordering::Acquire))
    }

    /// The host opens the line, with this number. What there was before is hung up.
    pub fn open(&self, system: &Arc<System>, token: u64) {
        let mut state = self.state.lock();
        state.hang_up_all(system);
        (state.receiver, state.sent, state.next_number) = (Some(Receiver::new(token)), 0, 0);
        state.out = opening(token).to_vec();
        self.is_open.store(true, Ordering::Release);
        self.news.is_due.store(true, Ordering::Release);
    }

    /// Moves what can be moved.
    pub fn pump(&self, system: &Arc<System>, line: &dyn Line) {
        loop {
            let Some(mut state) = self.state.try_lock() else { return };
            self.news.is_due.store(false, Ordering::Release);
            if self.take_in(&mut state, system, line).is_err() {
                state.hang_up_all(system);
                state.receiver = None;
                FromPod::LineEnd.append_frame(0, &mut state.out);
            }
            state.move_streams(line);
            if state.receiver.is_none() && state.out.is_empty() {
                self.is_open.store(false, Ordering::Release);
            }
            drop(state);
            if !self.news.is_due.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// The first thing that a session's process does, as the thread that runs this: `frame` becomes its program's first
    /// state, or the process has ended. May wait for files.
    pub fn enter(&self, caller: &crate::task::caller::Caller<'_>, frame: &mut aegis_abi::upcall::UpcallFrame) {
        self.starts.enter(caller, frame);
    }

    fn take_in(&self, state: &mut State, system: &Arc<System>, line: &dyn Line) -> Result<(), Malformed> {
        let mut chunk = [0; CHUNK_BYTES];
        while let Some(mut receiver) = state.receiver.take() {
            let count = line.read(&mut chunk);
            receiver.push(&chunk[..count]);
            let outcome = loop {
                match receiver.next() {
                    Ok(Some((number, message))) => {
                        if let Err(fault) = ToPod::parse(message).and_then(|it| self.act(state, system, number, it)) {
                            break Err(fault);
                        }
                    }
                    Ok(None) => break Ok(()),
                    Err(fault) => break Err(fault),
                }
            };
            state.receiver = Some(receiver);
            outcome?;
            if count == 0 {
                break;
            }
        }
        Ok(())
    }

    fn act(&self, state: &mut State, system: &Arc<System>, number: u32, message: ToPod<'_>) -> Result<(), Malformed> {
        let stage = state.sessions.remove(&number);
        let is_new = stage.is_none() && u64::from(number) >= state.next_number;
        state.next_number = state.next_number.max(u64::from(number) + 1);
        let next = match (stage, message) {
            // It has ended, and the host did not know that yet.
            (None, _) if !is_new => None,
            (None, ToPod::Describe(data)) if state.sessions.len() < SESSION_COUNT_MAX => {
                Some(Stage::Described(data.to_vec()))
            }
            (None, ToPod::Describe(_)) => {
                let text = alloc::format!("more than {SESSION_COUNT_MAX} sessions at a time in one pod");
                FromPod::Failed(125, text.as_bytes()).append_frame(number, &mut state.out);
                None
            }
            (Some(Stage::Described(mut bytes)), ToPod::Describe(data)) => {
                if bytes.len() + data.len() > DESCRIPTION_BYTES_MAX {
                    return Err(Malformed);
                }
                bytes.extend_from_slice(data);
                Some(Stage::Described(bytes))
            }
            (Some(Stage::Described(bytes)), ToPod::Start) => match self.starts.make(system, &self.news, &bytes) {
                Ok(session) => {
                    FromPod::Accepted.append_frame(number, &mut state.out);
                    Some(Stage::Running(session))
                }
                Err(text) => {
                    FromPod::Failed(125, text.as_bytes()).append_frame(number, &mut state.out);
                    None
                }
            },
            (Some(Stage::Described(_)), ToPod::HangUp) => None,
            (None | Some(Stage::Described(_)), _) => return Err(Malformed),
            (Some(Stage::Running(session)), ToPod::Describe(_) | ToPod::Start) => {
                session.hang_up(system);
                return Err(Malformed);
            }
            (Some(Stage::Running(session)), ToPod::HangUp) => {
                session.hang_up(system);
                None
            }
            (Some(Stage::Running(mut session)), message) => {
                let acted = session.act(system, message);
                state.sessions.insert(number, Stage::Running(session));
                return acted;
            }
        };
        state.sessions.extend(next.map(|stage| (number, stage)));
        Ok(())
    }
}

impl State {
    fn hang_up_all(&mut self, system: &Arc<System>) {
        for stage in core::mem::take(&mut self.sessions).into_values() {
            if let Stage::Running(session) = stage {
                session.hang_up(system);
            }
        }
    }

    /// Moves bytes of all sessions, as far as the line takes them. Those with much to say take turns.
    fn move_streams(&mut self, line: &dyn Line) {
        let Self { out, sent, sessions, .. } = self;
        loop {
            let mut has_moved = false;
            sessions.retain(|number, stage| {
                let Stage::Running(session) = stage else { return true };
                session.feed(*number, out);
                if out.len() - *sent < OUT_BYTES_ENOUGH {
                    has_moved |= session.drain(*number, out);
                }
                !session.has_ended(*number, out)
            });
            while *sent < out.len() {
                let count = line.write(&out[*sent..]);
                *sent += count;
                if count == 0 {
                    break;
                }
            }
            if *sent == out.len() {
                out.clear();
                *sent = 0;
            }
            if !has_moved || out.len() - *sent >= OUT_BYTES_ENOUGH {
                return;
            }
        }
    }
}
