//! What passes between the host tool and a pod's library OS about processes that are started in a running pod.
//!
//! Each such process is a *session*. All sessions of a pod share one line, a byte stream that loses nothing but may
//! begin in the middle of something: a pod that is started again finds what its forerunner left. So the tool that opens
//! the line names a number that cannot be guessed ([`opening`]), and each side passes over what comes before it. Then
//! come frames whose channel is the session's number and whose contents are a message ([`ToPod`], [`FromPod`]).
//!
//! Neither side trusts the other. What is no such frame is the end of the line ([`Malformed`]), of which the pod tells
//! ([`FromPod::LineEnd`]); the tool opens it again with another number. Bytes of streams are bounded by a [`Window`]: a
//! sender has at most [`WINDOW_BYTES`] on the way that the receiver has not said to have passed on, so that a slow
//! reader holds up no other and fills no memory; more than that is malformed too.
//!
//! A description of what is to run is a [`crate::config::Config`], of which program, arguments, environment, working
//! directory, user, group, the terminal's size and `Flags::TERMINAL` count, and [`Flags::INPUT`].
//!
//! [`Flags::INPUT`]: crate::config::Flags::INPUT

use alloc::vec::Vec;

use aegis_image::bytes::{put as put_at, u16_at, u32_at};

use crate::frame::{FRAME_HEADER_BYTES, Frame, FrameBuffer, Kind};
use crate::numbered::numbered;

/// Most sessions of a pod.
pub const SESSION_COUNT_MAX: usize = 16;
/// Bytes of a stream that may be on their way.
pub const WINDOW_BYTES: u32 = 64 * 1024;
/// Longest encoded description.
pub const DESCRIPTION_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of a stream or a description in one message.
pub const DATA_BYTES_MAX: usize = 4000;
/// Longest text for the user; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Longest message.
pub const MESSAGE_BYTES_MAX: usize = 4080;
/// Bytes of an opening.
pub const OPENING_BYTES: usize = FRAME_HEADER_BYTES + OPENING_CONTENTS_BYTES;

pub(crate) const OPENING_CONTENTS_BYTES: usize = 8;

/// What the other side sent makes no sense, or is more than it may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

numbered! {
    /// Which output of a process.
    pub enum Stream: u8 {
        /// Standard output, and all that a terminal shows.
        Output = 0,
        /// Standard error.
        Errors = 1,
    }
}

/// A message to the pod's library OS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToPod<'a> {
    /// A part of the description. The first one begins the session.
    Describe(&'a [u8]),
    /// The description is whole: start.
    Start,
    /// Standard input, or what is typed.
    Input(&'a [u8]),
    /// Standard input has ended.
    InputEnd,
    /// A signal for the process group.
    Signal(u8),
    /// The terminal's size.
    Window {
        /// Lines.
        rows: u16,
        /// Characters in a line.
        columns: u16,
    },
    /// So many bytes of an output have been passed on, at least one.
    Credit(Stream, u32),
    /// Nobody takes this output any more.
    Closed(Stream),
    /// The caller is gone; nothing more is said about the session by either side.
    HangUp,
}

/// A message from the pod's library OS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromPod<'a> {
    /// The description is understood and the process made; it looks for its program next. Comes once, before the others
    /// but `Failed`.
    Accepted,
    /// What the process wrote.
    Output(Stream, &'a [u8]),
    /// So many bytes of the input have been passed on, at least one.
    Taken(u32),
    /// It has ended with this status. The session is over, as after the next two.
    Exited(u8),
    /// A signal ended it; the text, which may be empty, is for the user.
    Killed(u8, &'a [u8]),
    /// It was not started: the status that a shell would give, and why.
    Failed(u8, &'a [u8]),
    /// The pod listens to this line no more, and all its sessions are hung up. Said of session 0.
    LineEnd,
}

impl<'a> ToPod<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let (kind, rest) = message.split_first().ok_or(Malformed)?;
        let read = || {
            Some(match (kind, rest) {
                (1, data @ [_, ..]) => Self::Describe(data),
                (2, []) => Self::Start,
                (3, data @ [_, ..]) => Self::Input(data),
                (4, []) => Self::InputEnd,
                (5, [number @ 1..=64]) => Self::Signal(*number),
                (6, [_, _, _, _]) => Self::Window { rows: u16_at(rest, 0)?, columns: u16_at(rest, 2)? },
                (7, [stream, count @ ..]) => Self::Credit(Stream::from_number(*stream)?, count_of(count)?),
                (8, [stream]) => Self::Closed(Stream::from_number(*stream)?),
                (9, []) => Self::HangUp,
                _ => return None,
            })
        };
        read().filter(|_| rest.len() <= DATA_BYTES_MAX).ok_or(Malformed)
    }

    /// Adds the message. Data is at most [`DATA_BYTES_MAX`] bytes and not none.
    pub fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Describe(data) => put(out, 1, &[data]),
            Self::Start => put(out, 2, &[]),
            Self::Input(data) => put(out, 3, &[data]),
            Self::InputEnd => put(out, 4, &[]),
            Self::Signal(number) => put(out, 5, &[&[*number]]),
            Self::Window { rows, columns } => put(out, 6, &[&rows.to_le_bytes(), &columns.to_le_bytes()]),
            Self::Credit(stream, count) => put(out, 7, &[&[*stream as u8], &count.to_le_bytes()]),
            Self::Closed(stream) => put(out, 8, &[&[*stream as u8]]),
            Self::HangUp => put(out, 9, &[]),
        }
    }

    /// Adds the message as a frame.
    pub fn append_frame(&self, session: u32, out: &mut Vec<u8>) {
        let mut contents = Vec::new();
        self.append(&mut contents);
        Frame { kind: Kind::Session, channel: session, contents: &contents }.append(out);
    }
}

impl<'a> FromPod<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let (kind, rest) = message.split_first().ok_or(Malformed)?;
        let read = || {
            Some(match (kind, rest) {
                (33, []) => Self::Accepted,
                (34, [stream, data @ ..]) if !data.is_empty() => Self::Output(Stream::from_number(*stream)?, data),
                (35, count) => Self::Taken(count_of(count)?),
                (36, [status]) => Self::Exited(*status),
                (37, [signal @ 1..=64, text @ ..]) => Self::Killed(*signal, text),
                (38, [status, text @ ..]) => Self::Failed(*status, text),
                (39, []) => Self::LineEnd,
                _ => return None,
            })
        };
        read().filter(|_| rest.len() <= DATA_BYTES_MAX + 1).ok_or(Malformed)
    }

    /// Adds the message. Data is at most [`DATA_BYTES_MAX`] bytes and not none.
    pub fn append(&self, out: &mut Vec<u8>) {
        let cut = |text: &'a [u8]| &text[..text.len().min(TEXT_BYTES_MAX)];
        match self {
            Self::Accepted => put(out, 33, &[]),
            Self::Output(stream, data) => put(out, 34, &[&[*stream as u8], data]),
            Self::Taken(count) => put(out, 35, &[&count.to_le_bytes()]),
            Self::Exited(status) => put(out, 36, &[&[*status]]),
            Self::Killed(signal, text) => put(out, 37, &[&[*signal], cut(text)]),
            Self::Failed(status, text) => put(out, 38, &[&[*status], cut(text)]),
            Self::LineEnd => put(out, 39, &[]),
        }
    }

    /// Adds the message as a frame.
    pub fn append_frame(&self, session: u32, out: &mut Vec<u8>) {
        let mut contents = Vec::new();
        self.append(&mut contents);
        Frame { kind: Kind::Session, channel: session, contents: &contents }.append(out);
    }
}

/// A number of bytes of a stream: within a window, and not none.
fn count_of(bytes: &[u8]) -> Option<u32> {
    let count = if bytes.len() == 4 { u32_at(bytes, 0)? } else { 0 };
    (1..=WINDOW_BYTES).contains(&count).then_some(count)
}

fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    out.push(kind);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// What stands before the first message on a line that was opened with `token`.
#[must_use]
pub fn opening(token: u64) -> [u8; OPENING_BYTES] {
    let mut bytes = [0; OPENING_BYTES];
    put_at(&mut bytes, 0, Kind::Opening.header(0, OPENING_CONTENTS_BYTES));
    put_at(&mut bytes, FRAME_HEADER_BYTES, token.to_le_bytes());
    bytes
}

/// How much more of a stream may be on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(u32);

impl Default for Window {
    fn default() -> Self {
        Self(WINDOW_BYTES)
    }
}

impl Window {
    /// Bytes that may be sent.
    #[must_use]
    pub const fn left(self) -> u32 {
        self.0
    }

    /// Bytes that are on their way.
    #[must_use]
    pub const fn on_the_way(self) -> u32 {
        WINDOW_BYTES - self.0
    }

    /// These are sent.
    ///
    /// # Errors
    /// They may not be.
    pub fn take(&mut self, count: usize) -> Result<(), Malformed> {
        self.0 = u32::try_from(count).ok().and_then(|count| self.0.checked_sub(count)).ok_or(Malformed)?;
        Ok(())
    }

    /// These have been passed on.
    ///
    /// # Errors
    /// They were never sent.
    pub fn give(&mut self, count: u32) -> Result<(), Malformed> {
        if count > self.on_the_way() {
            return Err(Malformed);
        }
        self.0 += count;
        Ok(())
    }
}

/// Makes messages of what comes on a line.
#[derive(Debug)]
pub struct Receiver {
    /// What is passed over everything for.
    awaited: Option<[u8; OPENING_BYTES]>,
    frames: FrameBuffer,
}

impl Receiver {
    /// For a line that was opened with `token`.
    #[must_use]
    pub fn new(token: u64) -> Self {
        Self { awaited: Some(opening(token)), frames: FrameBuffer::new() }
    }

    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.frames.push(bytes);
        self.awaited.take_if(|awaited| self.frames.skip_past(awaited));
    }

    /// The next message that is whole, and its session.
    ///
    /// # Errors
    /// What comes is no message.
    #[allow(clippy::should_implement_trait, reason = "it lends what it holds")]
    pub fn next(&mut self) -> Result<Option<(u32, &[u8])>, Malformed> {
        if self.awaited.is_some() {
            return Ok(None);
        }
        match self.frames.next_frame() {
            Ok(Some(Frame { kind: Kind::Session, channel, contents })) => Ok(Some((channel, contents))),
            Ok(None) => Ok(None),
            Ok(Some(_)) | Err(_) => Err(Malformed),
        }
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
