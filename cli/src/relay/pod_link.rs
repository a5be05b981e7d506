//! The tool's link to one pod: its control port, its input, and where in its life the pod is.
//!
//! `relay` has one for each pod and drives them all; nothing here waits.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use aegis_launch::errors::{Doing, Error, STATUS_TOOL};
use aegis_link::control::{FromGuest, Malformed, Report, ToGuest, printable};
use aegis_link::frame::{Frame, FrameBuffer, Kind};
use aegis_link::phase::PodPhase;

use crate::relay::pump::InputPump;
use crate::relay::stream::Stream;

/// A message, or a line that is none, and why.
pub(crate) type Received = Result<FromGuest, (Malformed, String)>;

/// How far a pod's life has come: a [`PodPhase`], and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its library OS has not greeted.
    Starting,
    /// It has.
    Running,
    /// It was told to end, or is to be told when it can hear.
    Ending {
        /// It can hear.
        has_greeted: bool,
        /// What was done about it last.
        stage: Stage,
        /// When the next is done.
        next: Instant,
    },
    /// It is over.
    Over {
        /// How, and what comes next.
        end: LifeEnd,
        /// All that it wrote has been read.
        is_flushed: bool,
    },
}

/// What is done about a pod that is to end, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// SIGTERM is to be sent when the pod can hear it.
    Waiting,
    /// SIGTERM was sent.
    Terminated,
    /// SIGKILL was sent.
    Killed,
    /// The manager was told to take it apart.
    Destroyed,
    /// Nothing helps.
    Failed,
}

/// How a life ended, or that none has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LifeEnd {
    /// It waits for other pods before its first life; if they have come so far, when that begins.
    Unbegun { due: Option<Instant> },
    /// As the report says, or without a word; it is to be started again.
    Waiting {
        due: Instant,
        /// What its library OS said.
        report: Option<Report>,
    },
    /// As the report says, for good.
    Ended(Report),
    /// Without a word, for good.
    Lost,
}

impl LifeEnd {
    /// One for good.
    pub(crate) fn of(report: Option<Report>) -> Self {
        report.map_or(Self::Lost, Self::Ended)
    }
}

impl Life {
    /// What the library OS said of the end.
    pub(crate) fn report(&self) -> Option<&Report> {
        match self {
            Self::Over { end: LifeEnd::Ended(report), .. } => Some(report),
            Self::Over { end: LifeEnd::Waiting { report, .. }, .. } => report.as_ref(),
            _ => None,
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
            life: Life::Starting,
            restart_count: 0,
            frames: FrameBuffer::new(),
        }
    }

    /// Where in its life the pod is.
    pub(crate) fn phase(&self) -> PodPhase {
        match &self.life {
            Life::Starting => PodPhase::Starting,
            Life::Running => PodPhase::Running,
            Life::Ending { .. } => PodPhase::Ending,
            Life::Over { end: LifeEnd::Waiting { .. } | LifeEnd::Unbegun { .. }, .. } => PodPhase::Waiting,
            Life::Over { end: LifeEnd::Ended(_), .. } => PodPhase::Ended,
            Life::Over { end: LifeEnd::Lost, .. } => PodPhase::Lost,
        }
    }

    /// Its library OS has said `hello` in this life, or will not any more.
    pub(crate) fn has_greeted(&self) -> bool {
        !matches!(self.life, Life::Starting | Life::Ending { has_greeted: false, .. })
    }

    /// Its library OS says `hello`.
    pub(crate) fn greet(&mut self) {
        match &mut self.life {
            Life::Starting => self.life = Life::Running,
            Life::Ending { has_greeted, .. } => *has_greeted = true,
            Life::Running | Life::Over { .. } => {}
        }
    }

    /// It is to end: `stage` has been done about it, and `next` is when to go on. A second time only shortens that.
    pub(crate) fn begin_ending(&mut self, stage: Stage, next: Instant) {
        match &mut self.life {
            Life::Ending { stage: Stage::Waiting | Stage::Terminated, next: at, .. } => *at = next.min(*at),
            Life::Ending { stage: Stage::Killed | Stage::Destroyed, .. } | Life::Over { .. } => {}
            Life::Starting | Life::Running | Life::Ending { stage: Stage::Failed, .. } => {
                self.life = Life::Ending { has_greeted: self.has_greeted(), stage, next };
            }
        }
    }

    /// All that could be done to end it was done.
    pub(crate) fn has_failed_to_stop(&self) -> bool {
        matches!(self.life, Life::Ending { stage: Stage::Failed, .. })
    }

    /// All that it wrote has been read, and it writes no more.
    pub(crate) fn is_flushed(&self) -> bool {
        matches!(self.life, Life::Over { is_flushed: true, .. })
    }

    /// When it is to be started again.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.life {
            Life::Over { end: LifeEnd::Waiting { due, .. }, .. } => Some(due),
            Life::Over { end: LifeEnd::Unbegun { due }, .. } => due,
            _ => None,
        }
    }

    /// It waits for its first life.
    pub(crate) fn is_unbegun(&self) -> bool {
        matches!(self.life, Life::Over { end: LifeEnd::Unbegun { .. }, .. })
    }

    /// It has been started again, or late: what was said before is not its own.
    pub(crate) fn begin_again(&mut self) {
        self.restart_count += u32::from(!self.is_unbegun());
        self.life = Life::Starting;
        self.frames = FrameBuffer::new();
        self.control.clear();
    }

    /// It is not started again, or at all, if it was to be.
    pub(crate) fn stop_waiting(&mut self) {
        if self.is_unbegun() {
            return self.end_unbegun("was not started".into());
        }
        if let Life::Over { end: end @ LifeEnd::Waiting { .. }, .. } = &mut self.life
            && let LifeEnd::Waiting { report, .. } = std::mem::replace(end, LifeEnd::Lost)
        {
            *end = LifeEnd::of(report);
        }
    }

    /// It never begins; why.
    pub(crate) fn end_unbegun(&mut self, text: String) {
        let end = LifeEnd::Ended(Report::Fail { status: STATUS_TOOL, text });
        self.life = Life::Over { end, is_flushed: true };
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
