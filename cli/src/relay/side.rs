//! The tool's side of one pod: its control port, its input, and what it has said so far.
//!
//! `relay` has one for each pod and drives them all; nothing here waits.

use std::os::unix::net::UnixStream;

use aegis_launch::errors::{Doing, Error};
use aegis_link::control::{FromGuest, LineBuffer, Malformed, Report, ToGuest, printable};

use crate::relay::pump::InputPump;
use crate::relay::stream::Stream;

/// A message, or a line that is none, and why.
pub(crate) type Heard = Result<FromGuest, (Malformed, String)>;

/// One pod, as the tool sees it.
#[derive(Debug)]
pub(crate) struct Side {
    /// What stands in front of the lines about it; empty where there is only one.
    pub(crate) mark: String,
    /// Standard input.
    pub(crate) input: InputPump,
    /// It has said `hello`.
    pub(crate) greeted: bool,
    /// How it ended.
    pub(crate) report: Option<Report>,
    /// It has ended and will be started again.
    pub(crate) is_waiting: bool,
    /// It was started again.
    pub(crate) is_again: bool,
    /// It has ended, and all that it wrote has been read.
    pub(crate) is_flushed: bool,
    /// Its control port.
    pub(crate) control: Stream,
    lines: LineBuffer,
}

impl Side {
    /// The side of a pod that has not spoken yet.
    pub(crate) fn new(mark: String, control: UnixStream, input: InputPump) -> Self {
        Self {
            mark,
            input,
            greeted: false,
            report: None,
            is_waiting: false,
            is_again: false,
            is_flushed: false,
            control: Stream::new(control),
            lines: LineBuffer::default(),
        }
    }

    /// It runs: it has greeted and not ended.
    pub(crate) fn is_live(&self) -> bool {
        self.greeted && self.report.is_none()
    }

    /// It has been started again: what was said before is not its own.
    pub(crate) fn begin_again(&mut self) {
        (self.greeted, self.report, self.is_flushed) = (false, None, false);
        (self.is_waiting, self.is_again) = (false, true);
        self.lines = LineBuffer::default();
        self.control.clear();
    }

    /// Reads what has come: messages, and lines that are none.
    pub(crate) fn read(&mut self) -> Result<Vec<Heard>, Error> {
        let mut buffer = [0; 16 * 1024];
        let length = self.control.read(&mut buffer).doing("reading the control port")?.unwrap_or(0);
        let mut messages = Vec::new();
        self.lines.push(&buffer[..length], |line| {
            messages.push(FromGuest::parse(line).map_err(|fault| (fault, printable(line))));
        });
        Ok(messages)
    }

    /// Sends a line, now or when there is room.
    pub(crate) fn send(&mut self, message: ToGuest) {
        self.control.send(message.to_string().as_bytes());
    }

    /// Nothing goes to the pod any more.
    pub(crate) fn stop(&mut self) {
        self.input.stop();
        self.control.clear();
    }
}
