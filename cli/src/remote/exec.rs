//! `aegis exec`: a program in a running pod, with the caller's streams, signals and terminal.
//!
//! One thread and one `poll`, as in `relay`. What is on its way is bounded by the windows of `aegis_link::sessions`:
//! standard input is read only when the program may be sent some, and output is said to be taken when it has been
//! written.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use aegis_launch::errors::{Doing, Error, STATUS_SIGNAL_BASE, STATUS_TOOL};
use aegis_link::frame::{Frame, FrameBuffer, Kind, SOCKET_BYTES_MAX};
use aegis_link::sessions::{DATA_BYTES_MAX, FromPod, Stream, ToPod, Window};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use rustix::event::{PollFd, PollFlags, poll};

use super::report::json;
use super::request::{Bytes, End, Exec, Request};
use super::verbs::{MachineChoice, finish};
use crate::options::values::{parse_variable, with_values};
use crate::relay::pump::{Sink, read_some};
use crate::relay::signals::{Event, Signals};
use crate::relay::stream::Stream as Socket;
use crate::relay::terminal::{self, RawTerminal};

const NOTES: &str = "\
The program runs in the pod beside those that are there, with the pod's files, memory and share of the
processors, and with the environment, the directory and the user that the pod's own program was started
with. It is looked for in the pod. Options stand before POD.

Without -i its standard input is empty. With -t it has a terminal, whose output is all standard output;
with -i and -t every key goes there. Ctrl-C and SIGTERM go to the program (its process group); a second
one ends this command, and with it the program's connection: it gets SIGHUP, as when this command is
killed.

Exit status: the program's own; 128+n if signal n ended it; 125 if the tool, the machine or an option is
to blame; 126 if PROGRAM cannot be executed; 127 if there is no such program; 137 if the pod ended.";

/// `aegis exec`.
#[derive(Debug, Args)]
#[command(override_usage = "aegis exec [OPTIONS] POD PROGRAM [ARGS]...", after_help = NOTES)]
pub(crate) struct ExecOptions {
    #[command(flatten)]
    choice: MachineChoice,
    /// Give the program this command's standard input
    #[arg(short = 'i', long = "interactive")]
    input: bool,
    /// Give the program a terminal
    #[arg(short = 't', long = "tty")]
    terminal: bool,
    /// Set a variable of its environment; without =VALUE it is copied (repeatable)
    #[arg(
        short = 'e',
        long = "env",
        value_name = "NAME[=VALUE]",
        value_parser = OsStringValueParser::new().try_map(parse_variable)
    )]
    environment: Vec<OsString>,
    /// Directory in the pod where it starts [default: the pod's]
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    working_directory: Option<PathBuf>,
    /// User and group that it runs as, in numbers; in a pod of an image by name too [default: the pod's]
    #[arg(short = 'u', long = "user", value_name = "USER[:GROUP]", value_parser = parse_user)]
    user: Option<User>,
    // Further groups, where an engine says them with the user.
    #[arg(skip)]
    pub(crate) groups: Vec<u32>,
    /// The pod
    pod: OsString,
    /// The program, by a path in the pod or a name that is looked for there, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// A user as it was written, and the numbers that this is where no accounts are known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    text: String,
    numbers: Option<(u32, u32)>,
}

/// `UID`, whose group has the same number, `UID:GID`, or with names.
fn parse_user(text: &str) -> Result<User, String> {
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    if user.is_empty() || group.is_empty() {
        return Err("a user, or a user and a group, such as 1000:1000".into());
    }
    Ok(User { text: text.into(), numbers: user.parse().ok().zip(group.parse().ok()) })
}

/// Runs it; the answer is the tool's exit status.
pub(crate) fn exec(options: &ExecOptions) -> Result<u8, Error> {
    let stream = options.choice.open_for(Some(&options.pod))?.into_stream();
    let told_size = if options.terminal { window_size().unwrap_or((0, 0)) } else { (0, 0) };
    let request = json(&Request::Exec(request(options, told_size)));
    if request.len() > SOCKET_BYTES_MAX {
        return Err(Error::Usage(format!("arguments and variables are longer than {} KiB", SOCKET_BYTES_MAX >> 10)));
    }
    let what = "preparing the streams";
    let signals = Signals::block().doing("preparing for signals")?;
    stream.set_nonblocking(true).doing(what)?;
    let input = options.input.then(|| io::stdin().as_fd().try_clone_to_owned()).transpose().doing(what)?;
    let sinks = [Sink::new(io::stdout()).doing(what)?, Sink::new(io::stderr()).doing(what)?];
    let mut asking = Socket::new(stream);
    asking.send(&Frame::new(Kind::Request, request.as_bytes()).encode());
    let mut caller = Caller {
        stream: asking,
        frames: FrameBuffer::new(),
        signals,
        input: input.map(File::from),
        input_window: Window::default(),
        outputs: sinks.map(|sink| Pending { sink: Some(sink), bytes: Vec::new(), written: 0 }),
        has_terminal: options.terminal,
        told_size,
        is_accepted: false,
        was_told_to_end: false,
        ending: None,
    };
    let is_raw = options.terminal && options.input;
    let raw = is_raw.then(|| RawTerminal::enter().doing("preparing the terminal")).transpose()?;
    let outcome = caller.run();
    // Before anything is said.
    drop(raw);
    finish(outcome?)
}

/// What is asked for.
fn request(options: &ExecOptions, size: (u16, u16)) -> Exec {
    let bytes = |text: &OsStr| Bytes(text.as_bytes().to_vec());
    let is_term = |variable: &OsString| variable.as_bytes().starts_with(b"TERM=");
    let has_term = !options.terminal || options.environment.iter().any(is_term);
    let term = std::env::var_os("TERM").filter(|_| !has_term);
    let given = with_values(options.environment.clone(), std::env::vars_os());
    let term = term.map(|term| Bytes([b"TERM=", term.as_bytes()].concat()));
    Exec {
        pod: options.pod.to_string_lossy().into_owned(),
        input: options.input,
        terminal: options.terminal.then_some(size),
        user: options.user.as_ref().and_then(|user| user.numbers),
        user_text: options.user.as_ref().map(|user| user.text.clone()),
        groups: options.groups.clone(),
        directory: options.working_directory.as_ref().map(|path| bytes(path.as_os_str())),
        variables: term.into_iter().chain(given.iter().map(|text| bytes(text))).collect(),
        words: options.words.iter().map(|word| bytes(word)).collect(),
    }
}

fn window_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).or_else(|_| rustix::termios::tcgetwinsize(io::stdin()));
    size.ok().map(|size| (size.ws_row, size.ws_col))
}

/// Output on its way to a descriptor.
struct Pending {
    /// `None`: nobody takes it any more.
    sink: Option<Sink>,
    bytes: Vec<u8>,
    written: usize,
}

impl Pending {
    /// Writes some; how much of it is done with, and whether nobody takes it any more.
    fn flush(&mut self) -> (usize, Option<io::Error>) {
        let Some(sink) = &mut self.sink else { return (0, None) };
        match sink.write(&self.bytes[self.written..]) {
            Ok(count) => {
                self.written += count;
                if self.written == self.bytes.len() {
                    (self.bytes, self.written) = (Vec::new(), 0);
                }
                (count, None)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => (0, None),
            Err(error) => {
                (self.sink, self.bytes, self.written) = (None, Vec::new(), 0);
                (0, Some(error))
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Slot {
    Signals,
    Read,
    Write,
    Input,
    Output(Stream),
}

/// The side of the caller.
struct Caller {
    stream: Socket,
    frames: FrameBuffer,
    signals: Signals,
    /// Standard input, until its end.
    input: Option<File>,
    input_window: Window,
    outputs: [Pending; 2],
    has_terminal: bool,
    /// Lines and characters of the terminal, as the pod was told last.
    told_size: (u16, u16),
    is_accepted: bool,
    was_told_to_end: bool,
    /// Status and line, once they are known.
    ending: Option<End>,
}

impl Caller {
    fn run(&mut self) -> Result<End, Error> {
        loop {
            for slot in self.wait()? {
                if let Some(status) = self.handle(slot)? {
                    return Ok(End { status, text: String::new() });
                }
            }
            if self.outputs.iter().all(|output| output.bytes.is_empty())
                && let Some(ending) = self.ending.take()
            {
                return Ok(ending);
            }
        }
    }

    fn wait(&self) -> Result<Vec<Slot>, Error> {
        let (read, write) = (PollFlags::IN, PollFlags::OUT);
        let mut list: Vec<(Slot, BorrowedFd<'_>, PollFlags)> = vec![(Slot::Signals, self.signals.as_fd(), read)];
        if self.ending.is_none() {
            list.extend(self.stream.wants_to_read().map(|fd| (Slot::Read, fd, read)));
            list.extend(self.stream.wants_to_write().map(|fd| (Slot::Write, fd, write)));
            let input = self.input.as_ref().filter(|_| self.is_accepted && self.input_window.left() > 0);
            list.extend(input.map(|input| (Slot::Input, input.as_fd(), read)));
        }
        for (output, stream) in self.outputs.iter().zip([Stream::Output, Stream::Errors]) {
            let sink = output.sink.as_ref().filter(|_| !output.bytes.is_empty());
            list.extend(sink.map(|sink| (Slot::Output(stream), sink.as_fd(), write)));
        }
        let mut fds: Vec<PollFd<'_>> =
            list.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing("waiting for input"),
        }
        let ready = list.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|((slot, ..), _)| *slot).collect())
    }

    /// Acts; a status if the command ends now.
    fn handle(&mut self, slot: Slot) -> Result<Option<u8>, Error> {
        match slot {
            Slot::Signals => {
                while let Some(event) = self.signals.next().doing("reading signals")? {
                    if let Some(signal) = self.on_signal(event) {
                        return Ok(Some(STATUS_SIGNAL_BASE + signal));
                    }
                }
            }
            Slot::Read => self.read()?,
            Slot::Write => self.stream.write(),
            Slot::Input => self.read_input(),
            Slot::Output(stream) => self.flush(stream),
        }
        Ok(None)
    }

    /// The signal that ends the command, if it is one.
    fn on_signal(&mut self, event: Event) -> Option<u8> {
        match event {
            Event::Terminate(signal) if self.was_told_to_end || !self.is_accepted || self.ending.is_some() => {
                return Some(signal);
            }
            Event::Terminate(signal) => {
                self.was_told_to_end = true;
                self.send(ToPod::Signal(signal));
            }
            Event::Forward(signal) if self.is_accepted => self.send(ToPod::Signal(signal)),
            Event::WindowSize => self.tell_window_size(),
            Event::Suspend => {
                terminal::pause();
                // Continues here when the user says so.
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
                terminal::resume();
            }
            Event::Forward(_) | Event::Child => {}
        }
        None
    }

    /// Tells the terminal's size where it is another than the pod knows of.
    fn tell_window_size(&mut self) {
        let size = window_size().filter(|_| self.has_terminal && self.is_accepted);
        if let Some((rows, columns)) = size.filter(|size| *size != self.told_size) {
            self.told_size = (rows, columns);
            self.send(ToPod::Window { rows, columns });
        }
    }

    fn send(&mut self, message: ToPod<'_>) {
        if self.ending.is_none() {
            let mut contents = Vec::new();
            message.append(&mut contents);
            self.stream.send(&Frame::new(Kind::Session, &contents).encode());
        }
    }

    fn read(&mut self) -> Result<(), Error> {
        let mut buffer = [0; 16 * 1024];
        let read = self.stream.read(&mut buffer).doing("asking the machine's tool")?;
        let Some(length) = read else { return Ok(()) };
        let mut frames = std::mem::take(&mut self.frames);
        frames.push(&buffer[..length]);
        let foreign = || Error::Usage("the machine's tool is another version".into());
        while let Some(frame) = frames.next_frame().map_err(|_| foreign())? {
            match frame.kind {
                Kind::End => self.ending = Some(End::read(frame.contents).ok_or_else(foreign)?),
                Kind::Session => self.hear(FromPod::parse(frame.contents).map_err(|_| foreign())?),
                _ => return Err(foreign()),
            }
        }
        self.frames = frames;
        if length == 0 && self.ending.is_none() {
            return Err(Error::Usage("the machine ended".into()));
        }
        Ok(())
    }

    fn hear(&mut self, message: FromPod<'_>) {
        match message {
            FromPod::Accepted => {
                self.is_accepted = true;
                // It may have another size by now than it was told of.
                self.tell_window_size();
            }
            FromPod::Output(stream, data) => {
                let output = &mut self.outputs[stream as usize];
                if output.sink.is_some() {
                    output.bytes.extend_from_slice(data);
                }
            }
            // The machine's tool sees that there are never more than were sent.
            FromPod::Taken(count) => drop(self.input_window.give(count)),
            // These come as the end of the conversation.
            FromPod::Exited(_) | FromPod::Killed(..) | FromPod::Failed(..) | FromPod::LineEnd => {}
        }
    }

    fn read_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        let mut buffer = [0; DATA_BYTES_MAX];
        let most = DATA_BYTES_MAX.min(self.input_window.left() as usize);
        match read_some(input, &mut buffer[..most]) {
            Ok(length) if length > 0 => {
                // As much as there was room for.
                let _ = self.input_window.take(length);
                self.send(ToPod::Input(&buffer[..length]));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // An input that cannot be read has ended.
            _ => {
                self.input = None;
                self.send(ToPod::InputEnd);
            }
        }
    }

    fn flush(&mut self, stream: Stream) {
        let (count, failure) = self.outputs[stream as usize].flush();
        if count > 0 {
            self.send(ToPod::Credit(stream, count as u32));
        }
        let Some(error) = failure else { return };
        self.send(ToPod::Closed(stream));
        let is_lost = error.kind() != ErrorKind::BrokenPipe && error.kind() != ErrorKind::ConnectionReset;
        if is_lost && stream == Stream::Output {
            // Not what was asked for, whatever the program will say.
            self.ending = Some(End { status: STATUS_TOOL, text: format!("standard output: {error}") });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Exec, ExecOptions, parse_user, request};
    use crate::options::{Command, Parsed, parse};

    fn exec(line: &str) -> ExecOptions {
        let all = std::iter::once("aegis").chain(line.split_whitespace()).map(Into::into);
        match parse(all) {
            Ok(Parsed::Command(Command::Exec(options))) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn everything_behind_the_program_is_the_programs() {
        let options = exec("exec -i -e A=1 -w /x -u 1:2 -e B= web ls -la -i --help -- x");
        assert!(options.input && !options.terminal);
        let list = |words: &[&str]| words.iter().map(|word| Bytes(word.as_bytes().to_vec())).collect();
        let wanted = Exec {
            pod: "web".into(),
            input: true,
            user: Some((1, 2)),
            user_text: Some("1:2".into()),
            directory: Some(Bytes(b"/x".to_vec())),
            variables: list(&["A=1", "B="]),
            words: list(&["ls", "-la", "-i", "--help", "--", "x"]),
            ..Exec::default()
        };
        assert_eq!(request(&options, (0, 0)), wanted);
        assert_eq!(request(&exec("exec -t -e TERM=x web sh"), (3, 4)).terminal, Some((3, 4)));
        // As kubectl's users write it.
        assert_eq!(exec("exec web -- ls -l").words, ["ls", "-l"]);
        assert_eq!(exec("exec -it web sh").words, ["sh"]);
    }

    #[test]
    fn users_are_numbers_or_names() {
        let numbers = |text| parse_user(text).expect("a user").numbers;
        assert_eq!((numbers("7"), numbers("7:8")), (Some((7, 7)), Some((7, 8))));
        for text in ["root", "-1", "1:2:3", "4294967296", "1:staff"] {
            assert_eq!(numbers(text), None, "{text}");
        }
        for text in ["", "1:", ":1"] {
            assert!(parse_user(text).is_err(), "{text}");
        }
    }
}
