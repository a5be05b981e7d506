//! Frames on the socket of a running machine: a length of four bytes (little-endian), a kind, and that many bytes.
//!
//! Pure. A frame that is too long or of no kind is the end of a conversation: its sender is another program.

use alloc::string::String;
use alloc::vec::Vec;

use crate::numbered::numbered;

/// Status of an answer that has none: the tool's own failure.
const STATUS_TOOL: u8 = 125;
/// Longest contents of a frame.
pub const CONTENTS_BYTES_MAX: usize = 64 * 1024;
const HEADER_BYTES: usize = 5;

numbered! {
    /// What a frame is.
    pub enum Kind: u8 {
        /// To the machine: what is wanted, words separated by NUL.
        Request = 1,
        /// Either way: a message of a session (`crate::sessions`).
        Session = 2,
        /// To the client: for its standard output.
        Output = 16,
        /// To the client: for its standard error.
        Errors = 17,
        /// To the client: the last one; an exit status and a line, which may be empty.
        End = 18,
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind of message.
    pub kind: Kind,
    /// What is in it.
    pub contents: Vec<u8>,
}

impl Frame {
    /// A request of these words.
    pub fn request<W: AsRef<[u8]>>(words: &[W]) -> Self {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        Self { kind: Kind::Request, contents: words.join(&0) }
    }

    /// The words of a request.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.contents.split(|byte| *byte == 0)
    }

    /// The last frame of an answer.
    pub fn end(status: u8, text: &str) -> Self {
        Self { kind: Kind::End, contents: [&[status], text.as_bytes()].concat() }
    }

    /// Status and line of a last frame.
    pub fn status(&self) -> (u8, String) {
        let (status, text) = self.contents.split_first().unwrap_or((&STATUS_TOOL, &[]));
        (*status, crate::control::printable(text))
    }

    /// Its bytes. Contents that are too long are cut; senders cut them before.
    pub fn encode(&self) -> Vec<u8> {
        let contents = &self.contents[..self.contents.len().min(CONTENTS_BYTES_MAX)];
        let mut bytes = (contents.len() as u32).to_le_bytes().to_vec();
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(contents);
        bytes
    }
}

/// The other side does not speak this language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

/// Bytes that are not a whole frame yet.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    held: Vec<u8>,
}

impl FrameBuffer {
    /// Takes bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next frame that is whole.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Foreign> {
        let Some(header) = self.held.get(..HEADER_BYTES) else { return Ok(None) };
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = Kind::from_number(header[4]).ok_or(Foreign)?;
        if length > CONTENTS_BYTES_MAX {
            return Err(Foreign);
        }
        let Some(contents) = self.held.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
        let frame = Frame { kind, contents: contents.to_vec() };
        self.held.drain(..HEADER_BYTES + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTENTS_BYTES_MAX, Foreign, Frame, FrameBuffer, Kind};
    use alloc::borrow::ToOwned;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn frames_are_the_same_however_the_stream_is_cut() {
        let frames = [
            Frame::request(&["tickets", "", "web"]),
            Frame { kind: Kind::Output, contents: vec![0; CONTENTS_BYTES_MAX] },
            Frame::end(3, "why"),
        ];
        let stream: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for step in [1, 2, 1000, stream.len()] {
            let (mut buffer, mut found) = (FrameBuffer::default(), Vec::new());
            for piece in stream.chunks(step) {
                buffer.push(piece);
                while let Some(frame) = buffer.next_frame().expect("all are sound") {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames, "{step}");
        }
        assert!(frames[0].words().eq([&b"tickets"[..], b"", b"web"]));
        assert_eq!(frames[2].status(), (3, "why".to_owned()));
        assert_eq!(Frame { kind: Kind::End, contents: Vec::new() }.status().0, 125);
    }

    #[test]
    fn what_is_no_frame_is_refused_before_it_is_kept() {
        for header in [[0, 0, 1, 1, 1], [255, 255, 255, 255, 16], [1, 0, 0, 0, 0], [1, 0, 0, 0, 99]] {
            let mut buffer = FrameBuffer::default();
            buffer.push(&header);
            assert_eq!(buffer.next_frame(), Err(Foreign), "{header:?}");
        }
    }
}
