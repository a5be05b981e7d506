//! The loop that a run spends its life in: bytes between the host and the machine's pods, signals, times, the
//! machine's end.
//!
//! One thread and one `poll`: the tool can be killed at any moment, no lock exists, and the thread that
//! started QEMU lives as long as the tool (see `machine::process`). Invariants:
//! - No call here blocks but `poll` itself, so a full pipe or a stopped terminal cannot delay a time limit or
//!   a signal.
//! - Output that the machine sent is written before the loop ends, unless the tool ended the machine; then it
//!   gets [`DRAIN_LIMIT`].
//! - The loop ends only when QEMU has ended.

pub(crate) mod ending;
pub(crate) mod line_marks;
pub(crate) mod pod_link;
pub(crate) mod pump;
pub(crate) mod signals;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod terminal;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::ChildStderr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use aegis_launch::errors::{Doing, Error};
use aegis_launch::machine::accel::is_kvm_failure;
use aegis_launch::machine::process::{HostEnds, Machine, QemuEnd};
use aegis_link::control::{FromGuest, Level, Mapping, Report, ToGuest, VERSION, printable};
use aegis_link::phase::PodPhase;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::options::groups::MachineOptions;
use crate::relay::ending::{Cause, Ending, outcome};
use crate::relay::line_marks::{Marker, marks};
use crate::relay::pod_link::{Life, LifeEnd, PodLink};
use crate::relay::pump::{InputPump, Outcome, OutputPump, Sink, Source, input_is_empty, read_some};
use crate::relay::signals::{Event, Signals};
use crate::relay::stats::Stats;
use crate::remote::server::{ControlServer, ServerSlot};

/// The longest time from the machine's start to `hello`.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// The longest time from the ending line to QEMU's end.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(2);
/// The longest time for writing what is left after the tool ended the machine.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// How long a pod of several may go on after the signal that ends the machine, as with other engines.
const GRACE: Duration = Duration::from_secs(10);
/// How much of the end of the kernel's log is kept.
const LOG_BYTES_MAX: usize = 64 * 1024;
/// How much QEMU may say before the rest is dropped.
const QEMU_ERROR_BYTES_MAX: usize = 16 * 1024;
/// Above this much unread standard error, the control port is not read.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// How a machine is watched while it runs.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    /// The pods' names, where there are several.
    pub(crate) names: &'a [String],
    /// Lines of output say whose they are, where there are names.
    pub(crate) has_marks: bool,
    /// Where commands for the machine come in.
    pub(crate) server: Option<ControlServer>,
    /// It has a terminal of its own.
    pub(crate) has_terminal: bool,
    /// Signals that would end the machine go to the program as others do, each time.
    pub(crate) hands_on: bool,
    /// When the tool started; all times count from here.
    pub(crate) start: Instant,
    /// Where a profile wants to hear of mappings.
    pub(crate) mappings: Option<Sender<Mapping>>,
}

/// What a finished run leaves behind.
#[derive(Debug)]
pub(crate) struct Finished {
    /// How the machine ended; its report is the only pod's.
    pub(crate) ending: Ending,
    /// How each pod ended, where there are several.
    pub(crate) reports: Vec<Option<Report>>,
    /// The first of them to say that it failed.
    pub(crate) first_failure: Option<usize>,
    /// The end of the kernel's log.
    pub(crate) log: Vec<u8>,
}

/// Moves everything until QEMU has ended. Without names there is one pod, which has the tool's own standard streams;
/// with names the pods have no input, and their output is passed on by lines.
pub(crate) fn relay(
    machine: Machine,
    ends: HostEnds,
    options: &MachineOptions,
    session: Session<'_>,
    signals: &mut Signals,
    stats: &mut Stats,
) -> Result<Finished, Error> {
    let mut relay = Relay::new(machine, ends, options, session, signals, stats)?;
    loop {
        if let Some(finished) = relay.step()? {
            return Ok(finished);
        }
    }
}

/// What a descriptor in the poll set stands for.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Signals,
    InputSource(usize),
    InputSink(usize),
    Output(usize, usize),
    OutputSink(usize),
    Control(usize),
    ControlOut(usize),
    Log,
    QemuErrors,
    Server(ServerSlot),
}

const STDOUT: usize = 0;
const STDERR: usize = 1;
/// Numbers of the ports that carry the outputs (`docs/control-port.md`).
const OUTPUT_PORTS: [u8; 2] = [2, 3];
/// Linux error numbers.
const EPIPE: i32 = rustix::io::Errno::PIPE.raw_os_error();
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

struct Relay<'a> {
    machine: Machine,
    signals: &'a mut Signals,
    stats: &'a mut Stats,
    options: &'a MachineOptions,
    server: Option<ControlServer>,
    mappings: Option<Sender<Mapping>>,
    start: Instant,
    /// Where there are several pods, they are told apart.
    is_marked: bool,
    links: Vec<PodLink>,
    outputs: [OutputPump; 2],
    log: Option<UnixStream>,
    log_tail: Vec<u8>,
    qemu_stderr: Option<ChildStderr>,
    qemu_errors: Vec<u8>,
    terminated: Option<u8>,
    hands_on: bool,
    first_failure: Option<usize>,
    cause: Option<Cause>,
    output_error: Option<io::Error>,
    qemu_end: Option<QemuEnd>,
    /// When patience ends: with the boot, the power-off, or the last output.
    limit: Option<Instant>,
}

impl<'a> Relay<'a> {
    fn new(
        mut machine: Machine,
        ends: HostEnds,
        options: &'a MachineOptions,
        session: Session<'_>,
        signals: &'a mut Signals,
        stats: &'a mut Stats,
    ) -> Result<Self, Error> {
        let what = "taking over the standard streams";
        let marks = if session.has_marks { marks(session.names) } else { vec![String::new(); session.names.len()] };
        let (mut links, mut outs, mut errs) = (Vec::new(), Vec::new(), Vec::new());
        for (number, pod) in ends.pods.into_iter().enumerate() {
            let mark = marks.get(number);
            let input = match mark {
                Some(_) => InputPump::new(File::open("/dev/null").doing(what)?, pod.stdin),
                None if input_is_empty() => Ok(InputPump::empty(pod.stdin)),
                None => InputPump::new(io::stdin(), pod.stdin),
            };
            let marker = || mark.map(|mark| Marker::new(mark.clone()));
            outs.push(Source::new(pod.stdout, marker()));
            errs.push(Source::new(pod.stderr, marker()));
            links.push(PodLink::new(mark.cloned().unwrap_or_default(), pod.control, input.doing(what)?));
        }
        if let Some(server) = &session.server {
            server.hold_back(&mut links);
        }
        let stdout = Sink::new(io::stdout()).doing(what)?;
        let stderr = Sink::new(io::stderr()).doing(what)?;
        let qemu_stderr = machine.take_errors();
        if let Some(errors) = &qemu_stderr {
            rustix::io::ioctl_fionbio(errors, true).doing(what)?;
        }
        Ok(Self {
            machine,
            signals,
            stats,
            options,
            server: session.server,
            mappings: session.mappings,
            start: session.start,
            is_marked: !session.names.is_empty(),
            links,
            outputs: [OutputPump::new(outs, stdout), OutputPump::new(errs, stderr)],
            log: Some(ends.log),
            log_tail: Vec::new(),
            qemu_stderr,
            qemu_errors: Vec::new(),
            terminated: None,
            hands_on: session.hands_on,
            first_failure: None,
            cause: None,
            output_error: None,
            qemu_end: None,
            limit: Some(Instant::now() + BOOT_LIMIT),
        })
    }

    /// Waits once and handles what came. Answers when all is over.
    fn step(&mut self) -> Result<Option<Finished>, Error> {
        for slot in self.wait()? {
            self.handle(slot)?;
        }
        self.serve_commands();
        self.check_times();
        if self.qemu_end.is_none() {
            self.qemu_end = self.machine.poll_end().doing("waiting for QEMU")?;
            if self.qemu_end.is_some() {
                self.links.iter_mut().for_each(PodLink::stop);
                if !self.have_all_ended() || self.cause.is_some() {
                    self.limit = Some(Instant::now() + DRAIN_LIMIT);
                } else {
                    self.limit = None;
                }
            }
        }
        Ok(self.qemu_end.filter(|_| self.is_drained()).map(|qemu| self.finished(qemu)))
    }

    fn finished(&mut self, qemu: QemuEnd) -> Finished {
        if let Some(server) = self.server.as_ref().filter(|_| self.is_marked) {
            server.leave_record(&self.links);
        }
        let mut reports: Vec<Option<Report>> = self.links.iter().map(|link| link.life.report().cloned()).collect();
        let has_failed = |report: &Option<Report>| report.as_ref().is_some_and(|report| outcome(report).0 != 0);
        // One that was to be started again and then was not.
        let first_failure = self.first_failure.or_else(|| reports.iter().position(has_failed));
        let report = if self.is_marked { None } else { reports.pop().flatten() };
        Finished {
            ending: Ending {
                report,
                cause: self.cause.take(),
                output_error: self.output_error.take(),
                qemu,
                qemu_errors: printable_lines(&self.qemu_errors),
            },
            reports,
            first_failure,
            log: std::mem::take(&mut self.log_tail),
        }
    }

    fn have_all_ended(&self) -> bool {
        self.links.iter().all(|link| link.phase() == PodPhase::Ended)
    }

    fn is_drained(&self) -> bool {
        let over = self.limit.is_some_and(|limit| Instant::now() >= limit);
        over || (self.outputs.iter().all(OutputPump::is_done)
            && self.links.iter().all(|link| !link.control.is_open())
            && self.log.is_none()
            && self.qemu_stderr.is_none())
    }

    fn wait(&self) -> Result<Vec<Slot>, Error> {
        let interests = self.interests();
        let mut fds: Vec<PollFd<'_>> =
            interests.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let server = self.server.as_ref().and_then(|server| server.next_time(&self.links));
        let timeout = self.next_time().into_iter().chain(server).min().map(|time| {
            let left = time.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing("waiting for input"),
        }
        let ready = interests.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|((slot, ..), _)| *slot).collect())
    }

    fn interests(&self) -> Vec<(Slot, BorrowedFd<'_>, PollFlags)> {
        let (read, write) = (PollFlags::IN, PollFlags::OUT);
        let mut list = vec![(Slot::Signals, self.signals.as_fd(), read)];
        let mut add = |slot, fd, flags| {
            if let Some(fd) = fd {
                list.push((slot, fd, flags));
            }
        };
        let can_hear = |link: &PodLink| link.has_greeted() && !link.phase().is_over();
        for (number, link) in self.links.iter().enumerate().filter(|(_, link)| can_hear(link)) {
            add(Slot::InputSource(number), link.input.wants_to_read(), read);
            add(Slot::InputSink(number), link.input.wants_to_write(), write);
        }
        for (index, output) in self.outputs.iter().enumerate() {
            for (source, fd) in output.wants_to_read() {
                add(Slot::Output(index, source), Some(fd), read);
            }
            add(Slot::OutputSink(index), output.wants_to_write(), write);
        }
        let has_room = self.outputs[STDERR].pending_bytes() < MESSAGE_BYTES_MAX;
        for (number, link) in self.links.iter().enumerate() {
            add(Slot::Control(number), link.control.wants_to_read().filter(|_| has_room), read);
            add(Slot::ControlOut(number), link.control.wants_to_write(), write);
        }
        add(Slot::Log, self.log.as_ref().map(AsFd::as_fd).filter(|_| has_room), read);
        add(Slot::QemuErrors, self.qemu_stderr.as_ref().map(AsFd::as_fd), read);
        let server = self.server.iter().flat_map(ControlServer::interests);
        list.extend(server.map(|(slot, fd, flags)| (Slot::Server(slot), fd, flags)));
        list
    }

    /// Gives the server what pods wrote, and lets it go on.
    fn serve_commands(&mut self) {
        let mut told = Vec::new();
        for (number, link) in self.links.iter_mut().enumerate() {
            let mut finish = || self.outputs.iter_mut().all(|output| output.finish(number));
            if let Life::Over { is_flushed, .. } = &mut link.life {
                *is_flushed = *is_flushed || finish();
            } else if let Some(server) = &mut self.server
                && server.has_gone(number)
                && link.control.unread_bytes() == 0
                && finish()
            {
                // Whatever it had to say has been read.
                told.extend(server.on_end(number, None, link).map(|line| (number, line)));
            }
        }
        let copies = self.outputs.each_mut().map(OutputPump::take_copies);
        let Some(server) = &mut self.server else { return };
        for (index, copies) in copies.into_iter().enumerate() {
            for (number, lines) in copies {
                server.keep(number, index == STDERR, &lines);
            }
        }
        server.tick(&mut self.links);
        for (number, line) in server.take_told() {
            self.first_failure.get_or_insert(number);
            told.push((number, line));
        }
        let has_failed = self.links.iter().any(PodLink::has_failed_to_stop);
        for (number, line) in told {
            self.tell(number, &format!("aegis: {line}"));
        }
        if let Some(signal) = self.terminated.filter(|_| has_failed && self.cause.is_none()) {
            self.end(Cause::Signal(signal));
        }
    }

    /// A line about a pod, on standard error and in its log.
    fn tell(&mut self, number: usize, text: &str) {
        let mark = &self.links[number].mark;
        self.outputs[STDERR].push(format!("{mark}{text}\n").as_bytes());
        if let Some(server) = &mut self.server {
            server.keep(number, true, format!("{text}\n").as_bytes());
        }
    }

    fn handle(&mut self, slot: Slot) -> Result<(), Error> {
        match slot {
            Slot::Signals => {
                while let Some(event) = self.signals.next().doing("reading signals")? {
                    self.on_signal(event);
                }
            }
            Slot::InputSource(number) => {
                let link = &mut self.links[number];
                link.input.fill();
                if let Some(bytes) = link.input.take_end() {
                    self.send(number, ToGuest::Eof { bytes });
                }
                self.links[number].input.flush();
            }
            Slot::InputSink(number) => self.links[number].input.flush(),
            Slot::Output(index, source) => {
                self.outputs[index].fill(source).doing("reading the machine's output")?;
            }
            Slot::OutputSink(index) => self.flush_output(index),
            Slot::Control(number) => self.read_control(number)?,
            Slot::ControlOut(number) => self.links[number].control.write(),
            Slot::Log => self.read_log(),
            Slot::QemuErrors => self.read_qemu_errors(),
            Slot::Server(slot) => {
                if let Some(server) = &mut self.server {
                    server.handle(slot, &mut self.links);
                }
            }
        }
        Ok(())
    }

    fn flush_output(&mut self, index: usize) {
        let outcome = self.outputs[index].flush();
        if self.outputs[index].has_carried() {
            self.stats.times.first_output.get_or_insert_with(|| self.start.elapsed());
        }
        // What that means is the program's affair: its next write fails as it would on the host.
        let port = OUTPUT_PORTS[index];
        match outcome {
            Outcome::Fine => {}
            Outcome::Closed => self.send_all(ToGuest::Closed { port, errno: EPIPE }),
            Outcome::Failed(error) => {
                self.send_all(ToGuest::Closed { port, errno: error.raw_os_error().unwrap_or(EIO) });
                if index == STDOUT {
                    self.output_error = Some(error);
                }
            }
        }
    }

    fn read_control(&mut self, number: usize) -> Result<(), Error> {
        for message in self.links[number].read()? {
            match message {
                Ok(message) => self.on_message(number, message),
                Err((fault, text)) if self.options.verbose => {
                    let mark = self.links[number].mark.clone();
                    self.say(&format!("{mark}unknown line on the control port ({fault:?}): {text}"));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn on_message(&mut self, number: usize, message: FromGuest) {
        match message {
            FromGuest::Hello { version: VERSION } => {
                self.links[number].greet();
                if self.links.iter().all(PodLink::has_greeted) {
                    self.limit = None;
                }
                self.stats.times.hello.get_or_insert_with(|| self.start.elapsed());
                self.send_window_size();
                if self.links[number].restart_count > 0 {
                    self.send(number, ToGuest::Eof { bytes: 0 });
                }
            }
            FromGuest::Hello { version } => self.end(Cause::Version(version)),
            FromGuest::Ended(report) => self.on_report(number, report),
            FromGuest::Stats(counters) => {
                for (key, value) in counters {
                    self.stats.count(key, value);
                }
            }
            FromGuest::Map(mapping) => {
                // A profile that has ended early does not listen any more.
                let _ = self.mappings.as_ref().map(|mappings| mappings.send(mapping));
            }
            FromGuest::Traffic { .. } | FromGuest::Process { .. } | FromGuest::Processes { .. } => {
                if let Some(server) = &mut self.server {
                    server.on_processes(number, message);
                }
            }
            FromGuest::Log(level, text) => {
                let shown = match level {
                    Level::Error | Level::Trace => true,
                    Level::Warn => !self.options.quiet,
                    Level::Info | Level::Debug => self.options.verbose,
                };
                if shown {
                    self.tell(number, &format!("exos: {text}"));
                }
            }
        }
    }

    fn on_report(&mut self, number: usize, report: Report) {
        let link = &mut self.links[number];
        if link.phase().is_over() {
            return;
        }
        link.input.stop();
        let (status, line) = outcome(&report);
        let Some(server) = &mut self.server else {
            link.life = Life::Over { end: LifeEnd::Ended(report), is_flushed: false };
            return self.note_end();
        };
        let next = server.on_end(number, Some(report), link);
        if status != 0 && link.phase() != PodPhase::Waiting {
            self.first_failure.get_or_insert(number);
        }
        let line = line.or_else(|| (status != 0).then(|| format!("ended with status {status}")));
        // One alone says by its status how it ended.
        let is_marked = self.is_marked;
        for line in line.into_iter().chain(next).filter(|_| is_marked) {
            self.tell(number, &format!("aegis: {line}"));
        }
        self.note_end();
    }

    /// The time that the machine has to power off begins with the end of its last pod.
    fn note_end(&mut self) {
        if self.have_all_ended() {
            self.limit = Some(Instant::now() + POWER_OFF_LIMIT);
            self.stats.times.ended = Some(self.start.elapsed());
        }
    }

    fn on_signal(&mut self, event: Event) {
        match event {
            // The machine is gone; the user does not want to wait for the last output.
            Event::Terminate(_) if self.qemu_end.is_some() => self.limit = Some(Instant::now()),
            Event::Terminate(signal) if self.terminated.is_some() || !self.links.iter().any(PodLink::has_greeted) => {
                self.end(Cause::Signal(signal));
            }
            Event::Terminate(signal) if self.hands_on => self.send_all(ToGuest::Signal(signal)),
            Event::Terminate(signal) => {
                self.terminated = Some(signal);
                if let Some(server) = &mut self.server {
                    server.end_all(&mut self.links, GRACE);
                }
                for number in 0..self.links.len() {
                    let own = self.server.as_ref().map_or(signal, |server| server.ending_signal(number, signal));
                    if self.links[number].has_greeted() {
                        self.send(number, ToGuest::Signal(own));
                    }
                }
            }
            Event::Forward(signal) => self.send_all(ToGuest::Signal(signal)),
            Event::WindowSize => self.send_window_size(),
            Event::Suspend => {
                self.machine.suspend();
                // Continues here when the user says so; a failure to stop oneself leaves nothing to do but go
                // on.
                terminal::pause();
                let own = rustix::process::getpid();
                let _ = rustix::process::kill_process(own, rustix::process::Signal::STOP);
                terminal::resume();
                self.machine.resume();
            }
            // `step` asks for QEMU's end after every wait.
            Event::Child => {}
        }
    }

    fn send_window_size(&mut self) {
        let size = rustix::termios::tcgetwinsize(io::stdout()).or_else(|_| rustix::termios::tcgetwinsize(io::stdin()));
        if let (false, Ok(size)) = (self.is_marked, size) {
            self.send_all(ToGuest::WindowSize { rows: size.ws_row, columns: size.ws_col });
        }
    }

    fn send(&mut self, number: usize, message: ToGuest) {
        if self.qemu_end.is_none() {
            self.links[number].send(message);
        }
    }

    /// To every pod that can hear it.
    fn send_all(&mut self, message: ToGuest) {
        for number in 0..self.links.len() {
            // One that waits to begin would hear in its life what was sent before.
            if self.links[number].has_greeted() && !self.links[number].phase().is_over() {
                self.send(number, message);
            }
        }
    }

    fn read_log(&mut self) {
        let Some(log) = &mut self.log else { return };
        let mut buffer = [0; 4096];
        match read_some(log, &mut buffer) {
            Ok(0) => self.log = None,
            Ok(length) => {
                let bytes = &buffer[..length];
                self.log_tail.extend_from_slice(bytes);
                // Cut rarely, not for every byte.
                if self.log_tail.len() > 2 * LOG_BYTES_MAX {
                    self.log_tail.drain(..self.log_tail.len() - LOG_BYTES_MAX);
                }
                if self.options.verbose {
                    self.outputs[STDERR].push(bytes);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.log = None,
        }
    }

    fn read_qemu_errors(&mut self) {
        let Some(errors) = &mut self.qemu_stderr else {
            return;
        };
        let mut buffer = [0; 4096];
        match read_some(errors, &mut buffer) {
            Ok(length) if length > 0 => {
                let room = QEMU_ERROR_BYTES_MAX.saturating_sub(self.qemu_errors.len());
                self.qemu_errors.extend_from_slice(&buffer[..length.min(room)]);
                if is_kvm_failure(&self.qemu_errors) {
                    // QEMU would wait for a debugger.
                    self.end(Cause::KvmFailed);
                }
                if self.options.verbose {
                    self.outputs[STDERR].push(&buffer[..length]);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => self.qemu_stderr = None,
        }
    }

    /// The tool ends the machine; the first cause counts.
    fn end(&mut self, cause: Cause) {
        self.cause.get_or_insert(cause);
        self.machine.kill();
    }

    fn next_time(&self) -> Option<Instant> {
        let timeout = self.options.timeout.filter(|_| self.cause.is_none() && !self.have_all_ended());
        let timeout = timeout.and_then(|limit| self.start.checked_add(limit));
        [timeout, self.limit].into_iter().flatten().min()
    }

    fn check_times(&mut self) {
        if self.qemu_end.is_some() || self.next_time().is_none_or(|time| Instant::now() < time) {
            return;
        }
        if self.have_all_ended() {
            self.machine.kill();
            self.limit = None;
        } else if let Some(limit) =
            self.options.timeout.filter(|limit| self.start.elapsed() >= *limit && self.cause.is_none())
        {
            self.end(Cause::Timeout(limit));
            self.limit = None;
        } else if self.limit.is_some_and(|limit| Instant::now() >= limit) {
            self.end(Cause::BootLimit(BOOT_LIMIT));
            self.limit = None;
        }
    }

    fn say(&mut self, text: &str) {
        self.outputs[STDERR].push(format!("aegis: {text}\n").as_bytes());
    }
}

/// Text of several lines without other control characters.
pub(crate) fn printable_lines(bytes: &[u8]) -> String {
    let lines = bytes.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| printable(line.strip_suffix(b"\r").unwrap_or(line)));
    lines.collect::<Vec<_>>().join("\n")
}
