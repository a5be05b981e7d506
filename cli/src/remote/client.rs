//! The side of a command: finds a running machine, asks it, and hands on what it answers.

use std::io;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use aegis_launch::errors::{Doing, Error};
use aegis_link::frame::{Frame, FrameBuffer, Kind};

use super::address;
use super::report::{MachineReport, json};
use super::request::{End, Request};
use super::socket;
use crate::relay::pump::read_some;

/// The longest time without a word from the machine's tool, where an answer is due.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// A machine that runs.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: String,
    path: PathBuf,
}

impl Machine {
    /// The one that listens there.
    pub(crate) fn at(name: &str, path: PathBuf) -> Self {
        Self { name: name.into(), path }
    }

    /// Asks for something whose answer is that it was done.
    pub(crate) fn tell(&self, request: &Request) -> Result<(), Error> {
        Conversation::open(self)?.output(request).map(drop)
    }
}

/// All that run.
pub(crate) fn running() -> Result<Vec<Machine>, Error> {
    let found = address::running().map_err(|why| Error::Usage(format!("looking for running machines: {why}")))?;
    Ok(found.into_iter().map(|(name, path)| Machine { name, path }).collect())
}

/// The records of those that have ended.
pub(crate) fn ended() -> Result<Vec<(String, PathBuf)>, Error> {
    address::ended().map_err(|why| Error::Usage(format!("looking for machines that have ended: {why}")))
}

/// How long a machine's tool may take to say whether it has a pod, for which it asks nobody.
const PODS_LIMIT: Duration = Duration::from_secs(5);

impl Machine {
    /// Whether it has a pod of this name; one that does not say so has none.
    pub(crate) fn has_pod(&self, pod: &str) -> bool {
        let request = Request::Inspect { pod: Some(pod.into()) };
        let ask = |mut conversation: Conversation| conversation.ask(&request, Some(PODS_LIMIT), |_, _| Ok(()));
        Conversation::open(self).and_then(ask).is_ok_and(|end| end.status == 0)
    }
}

/// The one that is meant: by its name, or the only one, or the one that is called as the pod, or the only one with it.
pub(crate) fn the_machine(name: Option<&str>, pod: Option<&str>) -> Result<Machine, Error> {
    let all = running()?;
    let of_pod = pod.filter(|_| name.is_none() && all.len() > 1);
    if let Some(machine) = of_pod.and_then(|pod| all.iter().find(|machine| machine.name == pod)) {
        return Ok(machine.clone());
    }
    if let Some(pod) = of_pod {
        let having: Vec<&Machine> = all.iter().filter(|machine| machine.has_pod(pod)).collect();
        if let [only] = having[..] {
            return Ok(only.clone());
        }
    }
    let names = || all.iter().map(|machine| machine.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match (name, &all[..]) {
        (_, []) => return Err(Error::Usage("no machine with pods runs; `aegis up FILE` starts one".into())),
        (Some(name), _) => all.iter().find(|machine| machine.name == name),
        (None, [only]) => Some(only),
        (None, _) => {
            return Err(Error::Usage(format!("several machines run, say --machine with one of {}", names())));
        }
    };
    match (found, name) {
        (Some(machine), _) => Ok(machine.clone()),
        (None, name) => {
            Err(Error::Usage(format!("no machine called {} runs; there is {}", name.unwrap_or_default(), names())))
        }
    }
}

/// Requests to a machine, one after another.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: UnixStream,
    frames: FrameBuffer,
    machine: String,
}

impl Conversation {
    /// Begins.
    pub(crate) fn open(machine: &Machine) -> Result<Self, Error> {
        let stream = socket::connect(&machine.path).doing("calling the machine's tool")?;
        Ok(Self { stream, frames: FrameBuffer::new(), machine: machine.name.clone() })
    }

    /// Asks and hands output on as it comes, up to the end of the answer: its status and line. `limit` is how long the
    /// machine's tool may be silent.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        limit: Option<Duration>,
        mut take: impl FnMut(Kind, &[u8]) -> io::Result<()>,
    ) -> Result<End, Error> {
        let what = "asking the machine's tool";
        self.stream.set_read_timeout(limit).doing(what)?;
        match self.stream.write_all(&Frame::new(Kind::Request, json(request).as_bytes()).encode()) {
            // It has hung up; why is what is there to read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written.doing(what)?,
        }
        loop {
            while let Some(frame) = self.frames.next_frame().map_err(|_| other_version(&self.machine))? {
                match frame.kind {
                    Kind::End => return End::read(frame.contents).ok_or_else(|| other_version(&self.machine)),
                    kind => take(kind, frame.contents).doing("writing what the machine said")?,
                }
            }
            let mut buffer = [0; 16 * 1024];
            match read_some(&mut self.stream, &mut buffer) {
                Ok(0) => return Err(Error::Usage(format!("{}: the machine ended", self.machine))),
                Ok(length) => self.frames.push(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Error::Usage(format!("{}: the machine's tool does not answer", self.machine)));
                }
                Err(error) => return Err(error).doing(what),
            }
        }
    }

    /// The socket, of a machine with which nothing has been spoken yet.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Asks for a report: of pods, or of their processes too.
    pub(crate) fn report(&mut self, request: &Request) -> Result<MachineReport, Error> {
        let text = self.output(request)?;
        serde_json::from_slice(&text).map_err(|_| other_version(&self.machine))
    }

    /// As [`Conversation::ask`] for an answer without streams, which a status other than 0 makes an error.
    pub(crate) fn output(&mut self, request: &Request) -> Result<Vec<u8>, Error> {
        let mut output = Vec::new();
        let end = self.ask(request, Some(SILENCE_LIMIT), |_, bytes| {
            output.extend_from_slice(bytes);
            Ok(())
        })?;
        if end.status == 0 { Ok(output) } else { Err(Error::Usage(end.text)) }
    }
}

fn other_version(machine: &str) -> Error {
    Error::Usage(format!("{machine}: its tool is another version"))
}
