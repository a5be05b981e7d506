//! The tool's side of one pod: its control port, its input, and what it has said so far.
//!
//! `relay` has one for each pod and drives them all; nothing here waits.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use aegis_launch::errors::{Doing, Error};
use aegis_link::control::{FromGuest, LineBuffer, Malformed, Report, ToGuest, printable};

use crate::relay::pump::{InputPump, read_some};

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
    control: Option<UnixStream>,
    lines: LineBuffer,
    out: VecDeque<u8>,
}

impl Side {
    /// The side of a pod that has not spoken yet.
    pub(crate) fn new(mark: String, control: UnixStream, input: InputPump) -> Self {
        let (lines, out) = (LineBuffer::default(), VecDeque::new());
        Self {
            mark,
            input,
            greeted: false,
            report: None,
            is_waiting: false,
            is_again: false,
            is_flushed: false,
            control: Some(control),
            lines,
            out,
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
        self.out.clear();
    }

    /// Bytes that the pod has sent and nobody has read.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.control.as_ref().map_or(0, |control| rustix::io::ioctl_fionread(control).unwrap_or(0))
    }

    /// The control port, while it is open.
    pub(crate) fn control(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    /// The control port, if there are lines for it.
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        if self.out.is_empty() { None } else { self.control() }
    }

    /// Reads what has come: messages, and lines that are none.
    pub(crate) fn read(&mut self) -> Result<Vec<Heard>, Error> {
        let Some(control) = &mut self.control else { return Ok(Vec::new()) };
        let mut buffer = [0; 16 * 1024];
        let length = match read_some(control, &mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Vec::new()),
            Err(error) => return Err(error).doing("reading the control port"),
        };
        if length == 0 {
            self.control = None;
        }
        let mut messages = Vec::new();
        self.lines.push(&buffer[..length], |line| {
            messages.push(FromGuest::parse(line).map_err(|fault| (fault, printable(line))));
        });
        Ok(messages)
    }

    /// Sends a line, now or when there is room.
    pub(crate) fn send(&mut self, message: ToGuest) {
        if self.control.is_some() {
            self.out.extend(message.to_string().as_bytes());
            self.write();
        }
    }

    /// Sends what waits.
    pub(crate) fn write(&mut self) {
        let Some(control) = &mut self.control else { return };
        match io::Write::write(control, self.out.as_slices().0) {
            Ok(length) => drop(self.out.drain(..length)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                // The machine is gone; reading will say so.
                _ => self.out.clear(),
            },
        }
    }

    /// Nothing goes to the pod any more.
    pub(crate) fn stop(&mut self) {
        self.input.stop();
        self.out.clear();
    }
}
