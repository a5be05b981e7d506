//! The tool's link to one pod: its control port, its input, and where in its life the pod is.
//!
//! `relay` has one for each pod and drives them all; nothing here waits.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use aegis_launch::errors::{Doing, Error};
use aegis_link::control::{FromGuest, Malformed, Report, ToGuest, printable};
use aegis_link::frame::{Frame, FrameBuffer, Kind};
use aegis_link::phase::PodPhase;

use crate::relay::pump::InputPump;
use crate::relay::stream::Stream;

/// A message, or a line that is none, and why.
pub(crate) type Received = Result<FromGuest, (Malformed, String)>;

/// How far a pod's life has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It starts or runs.
    Live,
    /// It has ended so, or was lost, and is to be started again.
    Waiting {
        /// When.
        due: Instant,
        /// What its library OS said.
        report: Option<Report>,
    },
    /// It has ended so, for good.
    Ended(Report),
    /// It is over, for good, without a word.
    Lost,
}

impl Life {
    /// One that is over for good.
    pub(crate) fn over(report: Option<Report>) -> Self {
        report.map_or(Self::Lost, Self::Ended)
    }

    /// What the library OS said of the end.
    pub(crate) fn report(&self) -> Option<&Report> {
        match self {
            Self::Ended(report) => Some(report),
            Self::Waiting { report, .. } => report.as_ref(),
            Self::Live | Self::Lost => None,
        }
    }
}

/// One pod, as the tool sees it.
#[derive(Debug)]
pub(crate) struct PodLink {
    /// What stands in front of the lines about it; empty where there is only one.
    pub(crate) mark: String,
    /// Standard input.
    pub(crate) input: InputPump,
    pub(crate) control: Stream,
    /// How far its life has come.
    pub(crate) life: Life,
    /// Its library OS has said `hello` in this life.
    pub(crate) has_greeted: bool,
    /// Its life is over, and all that it wrote has been read.
    pub(crate) is_flushed: bool,
    /// Times that it was started again.
    pub(crate) restart_count: u32,
    frames: FrameBuffer,
}

impl PodLink {
    /// The link to a pod that has not spoken yet.
    pub(crate) fn new(mark: String, control: UnixStream, input: InputPump) -> Self {
        Self {
            mark,
            input,
            control: Stream::new(control),
            life: Life::Live,
            has_greeted: false,
            is_flushed: false,
            restart_count: 0,
            frames: FrameBuffer::new(),
        }
    }

    /// Where in its life the pod is.
    pub(crate) fn phase(&self) -> PodPhase {
        match self.life {
            Life::Live if self.has_greeted => PodPhase::Running,
            Life::Live => PodPhase::Starting,
            Life::Waiting { .. } => PodPhase::Waiting,
            Life::Ended(_) => PodPhase::Ended,
            Life::Lost => PodPhase::Lost,
        }
    }

    /// When it is to be started again.
    pub(crate) fn due(&self) -> Option<Instant> {
        if let Life::Waiting { due, .. } = self.life { Some(due) } else { None }
    }

    /// It has been started again: what was said before is not its own.
    pub(crate) fn begin_again(&mut self) {
        (self.life, self.has_greeted, self.is_flushed) = (Life::Live, false, false);
        self.restart_count += 1;
        self.frames = FrameBuffer::new();
        self.control.clear();
    }

    /// It is not started again, if it was to be.
    pub(crate) fn stop_waiting(&mut self) {
        if let Life::Waiting { report, .. } = &mut self.life {
            self.life = Life::over(report.take());
        }
    }

    /// Reads what has come: messages, and lines that are none.
    pub(crate) fn read(&mut self) -> Result<Vec<Received>, Error> {
        let mut buffer = [0; 16 * 1024];
        let length = self.control.read(&mut buffer).doing("reading the control port")?.unwrap_or(0);
        let mut messages = Vec::new();
        self.frames.push(&buffer[..length]);
        loop {
            messages.push(match self.frames.next_frame() {
                Ok(None) => return Ok(messages),
                Ok(Some(Frame { kind: Kind::Control, contents, .. })) => {
                    FromGuest::parse(contents).map_err(|fault| (fault, printable(contents)))
                }
                Ok(Some(frame)) => Err((Malformed::UnknownVerb, format!("{:?}", frame.kind))),
                Err(why) => Err((Malformed::Frame(why), why.to_string())),
            });
        }
    }

    /// Sends a line, now or when there is room.
    pub(crate) fn send(&mut self, message: ToGuest) {
        self.control.send(&message.encode());
    }

    /// Nothing goes to the pod any more.
    pub(crate) fn stop(&mut self) {
        self.input.stop();
        self.control.clear();
    }
}
