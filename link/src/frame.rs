//! The frame in which everything travels between the tool, the machine and the commands that ask the tool: lines of the
//! control port, orders and answers, messages of sessions, requests on the tool's socket.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | a mark that no text has |
//! | 4..8 | the kind: whose language the contents are in |
//! | 8..12 | the channel: a session's number, an order's; 0 where a line has only one |
//! | 12..16 | the length of the contents, at most [`Kind::bytes_max`] |
//! | 16.. | the contents |
//!
//! Little-endian, and pure. A receiver that finds something else says what ([`Foreign`]) and can go on at the next
//! mark, so that lost or foreign bytes cost the frames that they hit and no more; or it takes that as the end, where
//! nothing is lost on the way. [`Frame::find`] needs no memory, [`FrameBuffer`] keeps what is not whole yet.

use alloc::vec::Vec;
use core::fmt;

use aegis_image::bytes::{put, u32_at};

use crate::numbered::numbered;
use crate::{control, orders, sessions};

/// Bytes in front of the contents.
pub const FRAME_HEADER_BYTES: usize = 16;
/// Longest contents of a frame on the tool's socket.
pub const SOCKET_BYTES_MAX: usize = 64 * 1024;

const MARK: [u8; 4] = *b"\xffAEG";

numbered! {
    /// Whose language the contents of a frame are in.
    pub enum Kind: u32 {
        /// A line of the control port (`crate::control`).
        Control = 1,
        /// To the manager (`crate::orders`).
        Order = 2,
        /// From the manager.
        Answer = 3,
        /// What a line of sessions begins with (`crate::sessions`).
        Opening = 4,
        /// A message of a session.
        Session = 5,
        /// To the tool of a machine: what is wanted.
        Request = 16,
        /// To a command: for its standard output.
        Output = 17,
        /// To a command: for its standard error.
        Errors = 18,
        /// To a command: the last one, an exit status and a line, which may be empty.
        End = 19,
    }
}

impl Kind {
    /// Most bytes of its contents.
    #[must_use]
    pub const fn bytes_max(self) -> usize {
        match self {
            Self::Control => control::LINE_BYTES_MAX,
            Self::Order => orders::ORDER_CONTENTS_BYTES,
            Self::Answer => orders::ANSWER_CONTENTS_BYTES,
            Self::Opening => sessions::OPENING_CONTENTS_BYTES,
            Self::Session => sessions::MESSAGE_BYTES_MAX,
            Self::Request | Self::Output | Self::Errors | Self::End => SOCKET_BYTES_MAX,
        }
    }

    /// What stands in front of contents of this length.
    #[must_use]
    pub fn header(self, channel: u32, length: usize) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        put(&mut bytes, 0, MARK);
        put(&mut bytes, 4, (self as u32).to_le_bytes());
        put(&mut bytes, 8, channel.to_le_bytes());
        put(&mut bytes, 12, (length as u32).to_le_bytes());
        bytes
    }
}

/// A frame, whose contents lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind of message.
    pub kind: Kind,
    /// Which of several it belongs to.
    pub channel: u32,
    /// What is in it.
    pub contents: &'a [u8],
}

/// Why bytes are no frame. The sender is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// They do not begin with the mark.
    NoFrame,
    /// A kind that this version does not know.
    Kind(u32),
    /// More contents than the kind may have.
    TooLong(Kind, u32),
}

impl fmt::Display for Foreign {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFrame => out.write_str("bytes that are no frame"),
            Self::Kind(kind) => write!(out, "a frame of kind {kind}, which this version does not know"),
            Self::TooLong(kind, length) => {
                write!(out, "a frame of {length} bytes, the limit of {kind:?} is {}", kind.bytes_max())
            }
        }
    }
}

/// What is at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A frame of this many bytes.
    Frame(Frame<'a>, usize),
    /// The beginning of one, perhaps: more bytes are wanted.
    More,
    /// No frame begins before this many bytes.
    Foreign(Foreign, usize),
}

impl<'a> Frame<'a> {
    /// A frame where there is one channel.
    #[must_use]
    pub const fn new(kind: Kind, contents: &'a [u8]) -> Self {
        Self { kind, channel: 0, contents }
    }

    /// Looks at the beginning of what was received.
    #[must_use]
    pub fn find(bytes: &'a [u8]) -> Found<'a> {
        let begins = |start: usize| bytes[start..].iter().zip(&MARK).all(|(left, right)| left == right);
        match (0..bytes.len()).find(|start| begins(*start)) {
            Some(0) => Self::first(bytes),
            Some(start) => Found::Foreign(Foreign::NoFrame, start),
            None if bytes.is_empty() => Found::More,
            None => Found::Foreign(Foreign::NoFrame, bytes.len()),
        }
    }

    fn first(bytes: &'a [u8]) -> Found<'a> {
        let header = (u32_at(bytes, 4), u32_at(bytes, 8), u32_at(bytes, 12));
        let (Some(number), Some(channel), Some(length)) = header else { return Found::More };
        let Some(kind) = Kind::from_number(number) else { return Found::Foreign(Foreign::Kind(number), MARK.len()) };
        if length as usize > kind.bytes_max() {
            return Found::Foreign(Foreign::TooLong(kind, length), MARK.len());
        }
        let end = FRAME_HEADER_BYTES + length as usize;
        match bytes.get(FRAME_HEADER_BYTES..end) {
            Some(contents) => Found::Frame(Self { kind, channel, contents }, end),
            None => Found::More,
        }
    }

    /// Adds its bytes. Contents that are too long are cut; senders cut them before.
    pub fn append(&self, out: &mut Vec<u8>) {
        let contents = &self.contents[..self.contents.len().min(self.kind.bytes_max())];
        out.extend_from_slice(&self.kind.header(self.channel, contents.len()));
        out.extend_from_slice(contents);
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append(&mut bytes);
        bytes
    }
}

/// Bytes that have come: less than a frame is kept of those whose frames were all taken.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    held: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    /// Nothing has come.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: Vec::new(), start: 0 }
    }

    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.start);
        self.start = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next frame that is whole.
    ///
    /// # Errors
    /// What comes is none; the next look goes on behind it.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Foreign> {
        match Frame::find(&self.held[self.start..]) {
            Found::Frame(frame, count) => {
                self.start += count;
                Ok(Some(frame))
            }
            Found::More => Ok(None),
            Found::Foreign(why, count) => {
                self.start += count;
                Err(why)
            }
        }
    }

    /// Passes over everything up to the end of these bytes; false if they have not come.
    pub fn skip_past(&mut self, awaited: &[u8]) -> bool {
        let found = self.held.windows(awaited.len()).position(|window| window == awaited);
        self.start = match found {
            Some(start) => start + awaited.len(),
            None => self.held.len().saturating_sub(awaited.len().saturating_sub(1)),
        };
        found.is_some()
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len() - self.start
    }

    /// Nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{FRAME_HEADER_BYTES, Foreign, Frame, FrameBuffer, Kind, SOCKET_BYTES_MAX};
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::{any, proptest};

    /// What a receiver makes of a stream that comes in pieces: frames as bytes, and what is wrong.
    fn received(stream: &[u8], step: usize) -> (Vec<Vec<u8>>, Vec<Foreign>) {
        let (mut buffer, mut found, mut wrong) = (FrameBuffer::new(), Vec::new(), Vec::new());
        for piece in stream.chunks(step) {
            buffer.push(piece);
            loop {
                match buffer.next_frame() {
                    Ok(None) => break,
                    Ok(Some(frame)) => found.push(frame.encode()),
                    Err(why) => wrong.push(why),
                }
            }
            assert!(buffer.len() < FRAME_HEADER_BYTES + SOCKET_BYTES_MAX);
        }
        (found, wrong)
    }

    #[test]
    fn frames_are_the_same_however_the_stream_is_cut() {
        let long = vec![0; SOCKET_BYTES_MAX];
        let frames = [
            Frame::new(Kind::Request, b"wanted"),
            Frame::new(Kind::Output, &long),
            Frame { kind: Kind::Session, channel: 7, contents: b"\xffAEG" },
            Frame::new(Kind::Control, b""),
        ];
        let stream: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for step in [1, 2, 1000, stream.len()] {
            let (found, wrong) = received(&stream, step);
            assert!(found.iter().flatten().eq(&stream) && wrong.is_empty(), "{step}");
        }
        let cut = Frame::new(Kind::Order, &long).encode();
        assert_eq!(cut.len(), FRAME_HEADER_BYTES + Kind::Order.bytes_max());
    }

    #[test]
    fn foreign_bytes_are_named_and_cost_no_frame_behind_them() {
        let good = Frame::new(Kind::Control, b"hello 1").encode();
        let header = |kind: u32, length: u32| {
            let mut header = Kind::Control.header(0, length as usize).to_vec();
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header
        };
        for (foreign, why) in [
            (b"noise\n".to_vec(), Foreign::NoFrame),
            (b"\xff\xffAE".to_vec(), Foreign::NoFrame),
            (vec![0; 100], Foreign::NoFrame),
            (header(99, 0), Foreign::Kind(99)),
            (header(1, 4097), Foreign::TooLong(Kind::Control, 4097)),
            (header(16, u32::MAX), Foreign::TooLong(Kind::Request, u32::MAX)),
        ] {
            for step in [1, 7, 1000] {
                let (found, wrong) = received(&[&foreign[..], &good].concat(), step);
                assert_eq!((found.as_slice(), wrong[0]), (&[good.clone()][..], why), "{foreign:?} {step}");
            }
        }
        let text = Foreign::TooLong(Kind::Control, 4097).to_string();
        assert_eq!(text, "a frame of 4097 bytes, the limit of Control is 4096");
    }

    proptest! {
        #[test]
        fn no_input_stops_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300), step in 1usize..40) {
            received(&bytes, step);
        }
    }
}
