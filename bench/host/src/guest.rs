//! Starts a process that is or holds a machine, and reads its lines within two limits: of silence, and of the
//! whole time.
//!
//! The process never outlives the tool: it is killed and reaped when its [`Guest`] is dropped, and the host's
//! kernel kills it when the tool dies. Output is limited, so a machine that shouts cannot fill the memory.
#![allow(unsafe_code, reason = "Command::pre_exec is the only way to prepare the child before QEMU runs")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::failure::Failure;

/// Most bytes of output that are read.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The executable.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

/// How long a machine may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Longest time without a line.
    pub(crate) silence: Duration,
    /// Longest time altogether.
    pub(crate) total: Duration,
}

/// What reading a line came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A line, without its end, and when it came, counted from the start.
    Line(String, Duration),
    /// The output has ended.
    End,
    /// A limit was reached; the words say which.
    Limit(&'static str),
}

/// How a process ended by itself.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Its exit status; `None` if it had to be ended, or a signal did.
    pub(crate) status: Option<i32>,
    /// What it wrote to standard error.
    pub(crate) errors: String,
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Guest {
    child: Child,
    lines: Receiver<(String, Instant)>,
    errors: Option<JoinHandle<String>>,
    start: Instant,
    limits: Limits,
}

impl Guest {
    /// Starts it, with nothing on its standard input.
    pub(crate) fn start(line: &Line, limits: Limits) -> Result<Self, Failure> {
        Self::start_on(line, limits, Stdio::null())
    }

    /// Starts it with an input that [`Self::take_input`] gives.
    pub(crate) fn start_with_input(line: &Line, limits: Limits) -> Result<Self, Failure> {
        Self::start_on(line, limits, Stdio::piped())
    }

    /// The end of its input that is written to, once.
    pub(crate) fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The process's number.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    fn start_on(line: &Line, limits: Limits, input: Stdio) -> Result<Self, Failure> {
        let mut command = Command::new(&line.program);
        command.args(&line.arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let prepare = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: the closure makes one system call (`prctl`) through a wrapper that neither allocates nor
        // locks, which is what may be done between fork and exec.
        unsafe { command.pre_exec(prepare) };
        let start = Instant::now();
        let mut child = command.spawn().map_err(|error| Failure::File("starting", line.program.clone(), error))?;
        let (sender, lines) = channel();
        let output = child.stdout.take();
        let errors = child.stderr.take();
        std::thread::spawn(move || {
            let Some(output) = output else { return };
            let mut reader = BufReader::new(output.take(OUTPUT_BYTES_MAX));
            let mut bytes = Vec::new();
            while reader.read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&bytes);
                // Nobody listens any more: the guest is being dropped.
                if sender.send((text.trim_end().to_string(), Instant::now())).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let errors = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(errors) = errors {
                // What could be read is good enough for a message.
                let _ = errors.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Self { child, lines, errors: Some(errors), start, limits })
    }

    /// Other limits from now on; the whole time still counts from the start.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The next line, the end, or a limit.
    pub(crate) fn next(&mut self) -> Event {
        let left = self.limits.total.checked_sub(self.start.elapsed());
        let Some(left) = left else {
            return Event::Limit("the time limit was reached");
        };
        match self.lines.recv_timeout(left.min(self.limits.silence)) {
            Ok((line, at)) => Event::Line(line, at.duration_since(self.start)),
            Err(RecvTimeoutError::Disconnected) => Event::End,
            Err(RecvTimeoutError::Timeout) => Event::Limit("it fell silent"),
        }
    }

    /// All lines up to the end or a limit, and what it wrote to standard error. The process has ended then.
    pub(crate) fn lines(mut self) -> (Vec<String>, String) {
        let mut lines = Vec::new();
        while let Event::Line(line, _) = self.next() {
            lines.push(line);
        }
        (lines, self.finish())
    }

    /// Ends the process if it has not ended, and answers what it wrote to standard error.
    pub(crate) fn finish(mut self) -> String {
        self.stop();
        let errors = self.errors.take().map(JoinHandle::join);
        errors.and_then(Result::ok).unwrap_or_default()
    }

    /// Waits for the end of the process by itself, then answers its status and what it wrote to standard error.
    pub(crate) fn finish_by_itself(mut self) -> Ending {
        while let Event::Line(..) = self.next() {}
        // A process that has closed its output ends soon; one that does not is ended by `stop`.
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = self.child.try_wait().ok().flatten().and_then(|it| it.code());
        Ending { status, errors: self.finish() }
    }

    fn stop(&mut self) {
        // The only failures are that it has ended, or was waited for, already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Guest, Limits, Line};
    use std::time::Duration;

    fn shell(script: &str, silence: Duration) -> Guest {
        let line = Line { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] };
        let limits = Limits { silence, total: Duration::from_secs(60) };
        Guest::start(&line, limits).unwrap()
    }

    #[test]
    fn lines_then_the_end() {
        let mut guest = shell("printf 'a\\r\\nb'; echo why >&2", Duration::from_secs(60));
        assert!(matches!(guest.next(), Event::Line(line, _) if line == "a"));
        assert!(matches!(guest.next(), Event::Line(line, _) if line == "b"));
        assert_eq!(guest.next(), Event::End);
        let ending = guest.finish_by_itself();
        assert_eq!((ending.status, ending.errors.as_str()), (Some(0), "why\n"));
    }

    #[test]
    fn all_lines_at_once() {
        let (lines, errors) = shell("echo a; echo why >&2; echo b", Duration::from_secs(60)).lines();
        assert_eq!((lines, errors.as_str()), (vec!["a".to_string(), "b".to_string()], "why\n"));
    }

    #[test]
    fn silence_is_an_event_and_the_process_is_ended() {
        let mut guest = shell("exec sleep 1000", Duration::from_millis(1));
        assert_eq!(guest.next(), Event::Limit("it fell silent"));
        assert_eq!(guest.finish(), "");
    }

    #[test]
    fn what_is_not_there_is_a_failure() {
        let line = Line { program: "/nonexistent/qemu".into(), arguments: vec![] };
        let limits = Limits { silence: Duration::ZERO, total: Duration::ZERO };
        assert!(Guest::start(&line, limits).is_err());
    }
}
