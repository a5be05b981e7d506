//! The host's end of a run: standard streams and the control port, as `docs/control-port.md` says.
//!
//! [`HostPorts`] is the one owner of the console driver. Streams read and write through it without blocking;
//! [`HostPorts::pump`] is called on every interrupt and before every sleep, takes control lines in and remembers what
//! they ask for.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use aegis_link::control::{LINE_BYTES_MAX, ToGuest};
use aegis_link::frame::{FRAME_HEADER_BYTES, Frame, FrameBuffer, Kind};
use exos::error::{Errno, Result};
use exos::reserve;
use exos::sync::Mutex;

use crate::host::sessions::Line;

/// Control bytes kept while the host does not read; then lines are dropped, so that a silent host cannot stop the
/// program.
const CONTROL_BACKLOG_BYTES_MAX: usize = 1 << 20;
/// Signals that the host sent and nobody has looked at yet.
const SIGNAL_COUNT_MAX: usize = 64;

/// A port of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error.
    Error,
    /// Control lines.
    Control,
    /// Sessions, if the machine has a port for them.
    Sessions,
}

/// The console driver as this module uses it. A device that fails answers as one that is closed.
pub trait Console: Send {
    /// Looks at the device; true if anything arrived or got room.
    fn poll(&mut self) -> bool;
    /// Takes received bytes.
    fn read(&mut self, port: Port, into: &mut [u8]) -> usize;
    /// Bytes that could be read now.
    fn readable_bytes(&mut self, port: Port) -> usize;
    /// Gives bytes to the device, as many as fit.
    fn write(&mut self, port: Port, from: &[u8]) -> usize;
    /// Bytes that the device has not consumed; arranges for an interrupt when that changes.
    fn pending_bytes(&mut self, port: Port) -> usize;
    /// Whether the host can never take or give anything again on this port.
    fn is_gone(&mut self, port: Port) -> bool;
    /// Whether it has interrupted, or a poll is due in any case.
    fn may_have_news(&mut self) -> bool {
        true
    }
}

#[derive(Default)]
struct State {
    input_read: u64,
    input_end: Option<u64>,
    /// Control lines that have not come whole.
    frames: FrameBuffer,
    signals: VecDeque<u8>,
    window: Option<(u16, u16)>,
    wants_stats: bool,
    /// The host asked for the processes, by this number.
    wants_processes: Option<u64>,
    /// The host opened the line of sessions, with this number.
    wants_sessions: Option<u64>,
    /// Why standard output and standard error take nothing any more.
    closed: [Option<Errno>; 2],
    backlog: VecDeque<u8>,
}

/// Console and control state.
pub struct HostPorts<C> {
    inner: Mutex<(C, State)>,
}

impl<C: Console> HostPorts<C> {
    /// Ports over a console that is up.
    pub const fn new(console: C) -> Self {
        let state = State {
            input_read: 0,
            input_end: None,
            frames: FrameBuffer::new(),
            signals: VecDeque::new(),
            window: None,
            wants_stats: false,
            wants_processes: None,
            wants_sessions: None,
            closed: [None; 2],
            backlog: VecDeque::new(),
        };
        Self { inner: Mutex::new((console, state)) }
    }

    /// Takes memory for one line, so that there is always some for the last.
    pub fn prepare(&self) {
        self.inner.lock().1.backlog.reserve(FRAME_HEADER_BYTES + LINE_BYTES_MAX);
    }

    /// Standard input is known to be empty: its end has been reached.
    pub fn end_input(&self) {
        self.inner.lock().1.input_end = Some(0);
    }

    /// Looks at the device and takes control lines in. True if anything happened.
    pub fn pump(&self) -> bool {
        let mut inner = self.inner.lock();
        let (console, state) = &mut *inner;
        state.pump(console)
    }

    /// The same on the way of whoever may come often: `None` if the console has said nothing that was not heard.
    pub fn look(&self) -> Option<bool> {
        let mut inner = self.inner.lock();
        let (console, state) = &mut *inner;
        (console.may_have_news() || !state.backlog.is_empty()).then(|| state.pump(console))
    }
    /// Reads standard input: `None` if nothing is there yet, `Some(0)` at the end.
    pub fn read_input(&self, into: &mut [u8]) -> Option<usize> {
        let mut inner = self.inner.lock();
        let (console, state) = &mut *inner;
        if into.is_empty() {
            return Some(0);
        }
        let count = console.read(Port::Input, into);
        state.input_read += count as u64;
        if count > 0 {
            return Some(count);
        }
        let has_ended = state.input_end.is_some_and(|end| state.input_read >= end) || console.is_gone(Port::Input);
        has_ended.then_some(0)
    }

    /// Bytes of standard input at hand, and whether its end has been reached.
    pub fn input_state(&self) -> (usize, bool) {
        let mut inner = self.inner.lock();
        let (console, state) = &mut *inner;
        let count = console.readable_bytes(Port::Input);
        let has_ended = state.input_end.is_some_and(|end| state.input_read >= end) || console.is_gone(Port::Input);
        (count, count == 0 && has_ended)
    }

    /// Writes to an output port: the bytes taken. `EPIPE`: nobody reads them any more; other errors are as the host
    /// met them.
    pub fn write(&self, port: Port, from: &[u8]) -> Result<usize> {
        let mut inner = self.inner.lock();
        let (console, state) = &mut *inner;
        if let Some(errno) = state.closed(port) {
            return Err(errno);
        }
        if console.is_gone(port) {
            return Err(Errno::EPIPE);
        }
        let count = console.write(port, from);
        if count < from.len() {
            // So that a thread that waits for room is woken.
            console.pending_bytes(port);
        }
        Ok(count)
    }

    /// Bytes of `port` that the host has not taken yet.
    pub fn pending_bytes(&self, port: Port) -> usize {
        let mut inner = self.inner.lock();
        if inner.0.is_gone(port) { 0 } else { inner.0.pending_bytes(port) }
    }

    /// Sends a control line; `text` is made one line of at most [`LINE_BYTES_MAX`]. Dropped if the host does not
    /// read, or where there is no memory for it.
    pub fn send_line(&self, text: &str) {
        let mut inner = self.inner.lock();
        let (console, state) = &mut *inner;
        let text = &text[..text.floor_char_boundary(LINE_BYTES_MAX)];
        let has_memory = reserve::reserve_queue(&mut state.backlog, FRAME_HEADER_BYTES + text.len()).is_ok();
        if state.backlog.len() < CONTROL_BACKLOG_BYTES_MAX && has_memory {
            state.backlog.extend(Kind::Control.header(0, text.len()));
            state.backlog.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
        }
        state.push_backlog(console);
    }

    /// A message for the user.
    pub fn log(&self, level: &str, text: &str) {
        self.send_line(&format!("log {level} {text}"));
    }

    /// Bytes of control lines that have not left the guest.
    pub fn control_backlog_bytes(&self) -> usize {
        let mut inner = self.inner.lock();
        let (console, state) = &mut *inner;
        state.push_backlog(console);
        if console.is_gone(Port::Control) { 0 } else { state.backlog.len() + console.pending_bytes(Port::Control) }
    }

    /// The next signal that the host sent.
    pub fn take_signal(&self) -> Option<u8> {
        self.inner.lock().1.signals.pop_front()
    }

    /// Whether the host asked for statistics since the last look.
    pub fn take_stats_request(&self) -> bool {
        core::mem::take(&mut self.inner.lock().1.wants_stats)
    }

    /// By which number the host asked for the processes since the last look.
    pub fn take_processes_request(&self) -> Option<u64> {
        self.inner.lock().1.wants_processes.take()
    }

    /// With which number the host opened the line of sessions since the last look.
    pub fn take_sessions_request(&self) -> Option<u64> {
        self.inner.lock().1.wants_sessions.take()
    }

    /// The terminal's new size, rows and columns, if it changed.
    pub fn take_window(&self) -> Option<(u16, u16)> {
        self.inner.lock().1.window.take()
    }
}

impl<C: Console> Line for HostPorts<C> {
    fn read(&self, into: &mut [u8]) -> usize {
        self.inner.lock().0.read(Port::Sessions, into)
    }

    fn write(&self, from: &[u8]) -> usize {
        let mut inner = self.inner.lock();
        let (console, mut done) = (&mut inner.0, 0);
        // Twice, as all may have left between the first look and the request to be told.
        for _ in 0..2 {
            done += console.write(Port::Sessions, &from[done..]);
            if done == from.len() || console.pending_bytes(Port::Sessions) > 0 {
                break;
            }
        }
        done
    }
}

impl State {
    fn closed(&self, port: Port) -> Option<Errno> {
        match port {
            Port::Output => self.closed[0],
            Port::Error => self.closed[1],
            Port::Input | Port::Control | Port::Sessions => None,
        }
    }

    fn pump(&mut self, console: &mut impl Console) -> bool {
        let mut happened = console.poll();
        let mut chunk = [0; 512];
        loop {
            let count = console.read(Port::Control, &mut chunk);
            if count == 0 {
                break;
            }
            happened = true;
            self.take_control(&chunk[..count]);
        }
        self.push_backlog(console);
        happened
    }

    fn push_backlog(&mut self, console: &mut impl Console) {
        while !self.backlog.is_empty() {
            let (head, _) = self.backlog.as_slices();
            let count = console.write(Port::Control, head);
            if count == 0 {
                return;
            }
            self.backlog.drain(..count);
        }
    }

    /// Takes in what has come; what is no line is passed over.
    fn take_control(&mut self, bytes: &[u8]) {
        let mut frames = core::mem::take(&mut self.frames);
        frames.push(bytes);
        loop {
            match frames.next_frame() {
                Ok(None) => break,
                Ok(Some(Frame { kind: Kind::Control, contents, .. })) => self.act(&String::from_utf8_lossy(contents)),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        self.frames = frames;
    }

    /// Acts on one line; what is not understood is passed over.
    fn act(&mut self, line: &str) {
        match ToGuest::parse(line) {
            Some(ToGuest::Eof { bytes }) => self.input_end = Some(bytes),
            Some(ToGuest::Signal(number)) if self.signals.len() < SIGNAL_COUNT_MAX => self.signals.push_back(number),
            Some(ToGuest::WindowSize { rows, columns }) => self.window = Some((rows, columns)),
            Some(ToGuest::Closed { port: port @ 2..=3, errno }) => {
                self.closed[usize::from(port - 2)] = Some(match errno {
                    27 => Errno::EFBIG,
                    28 => Errno::ENOSPC,
                    32 => Errno::EPIPE,
                    _ => Errno::EIO,
                });
            }
            Some(ToGuest::Stats) => self.wants_stats = true,
            Some(ToGuest::Processes { token }) => self.wants_processes = Some(token),
            Some(ToGuest::Sessions { token }) => self.wants_sessions = Some(token),
            Some(ToGuest::Signal(_) | ToGuest::Closed { .. }) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Console, Errno, Frame, HostPorts, Kind, Port};
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Wires {
        input: VecDeque<u8>,
        control_in: VecDeque<u8>,
        output: Vec<u8>,
        control_out: Vec<u8>,
        room: usize,
    }

    struct Fake(Arc<Mutex<Wires>>);

    fn take(from: &mut VecDeque<u8>, into: &mut [u8]) -> usize {
        let count = into.len().min(from.len());
        for (slot, byte) in into.iter_mut().zip(from.drain(..count)) {
            *slot = byte;
        }
        count
    }

    impl Console for Fake {
        fn poll(&mut self) -> bool {
            false
        }
        fn read(&mut self, port: Port, into: &mut [u8]) -> usize {
            let mut wires = self.0.lock().expect("no panic inside");
            match port {
                Port::Input => take(&mut wires.input, into),
                _ => take(&mut wires.control_in, into),
            }
        }
        fn readable_bytes(&mut self, _: Port) -> usize {
            self.0.lock().expect("no panic inside").input.len()
        }
        fn write(&mut self, port: Port, from: &[u8]) -> usize {
            let mut wires = self.0.lock().expect("no panic inside");
            let count = from.len().min(wires.room);
            wires.room -= count;
            match port {
                Port::Control => wires.control_out.extend(&from[..count]),
                _ => wires.output.extend(&from[..count]),
            }
            count
        }
        fn pending_bytes(&mut self, _: Port) -> usize {
            0
        }
        fn is_gone(&mut self, _: Port) -> bool {
            false
        }
    }

    /// Control lines as they travel.
    fn lines(lines: &[&str]) -> Vec<u8> {
        lines.iter().flat_map(|line| Frame::new(Kind::Control, line.as_bytes()).encode()).collect()
    }

    fn ports() -> (HostPorts<Fake>, Arc<Mutex<Wires>>) {
        let wires = Arc::new(Mutex::new(Wires { room: 1 << 20, ..Wires::default() }));
        (HostPorts::new(Fake(wires.clone())), wires)
    }

    #[test]
    fn the_end_of_input_is_told_by_the_count_not_by_silence() {
        let (ports, wires) = ports();
        let mut buffer = [0; 8];
        assert_eq!(ports.read_input(&mut buffer), None);
        wires.lock().expect("sound").control_in.extend(lines(&["eof 3"]));
        ports.pump();
        assert_eq!(ports.read_input(&mut buffer), None, "three bytes are still to come");
        wires.lock().expect("sound").input.extend(b"abc");
        assert_eq!(ports.read_input(&mut buffer), Some(3));
        assert_eq!(ports.read_input(&mut buffer), Some(0));
        assert_eq!(ports.input_state(), (0, true));
    }

    #[test]
    fn an_input_that_is_empty_has_ended_before_the_host_says_anything() {
        let (ports, _wires) = ports();
        assert_eq!(ports.input_state(), (0, false));
        ports.end_input();
        assert_eq!(ports.input_state(), (0, true));
        assert_eq!(ports.read_input(&mut [0; 8]), Some(0));
    }

    #[test]
    fn lines_are_acted_on_whole_and_nonsense_is_passed_over() {
        let (ports, wires) = ports();
        let sent = lines(&["signal 2", "signal 0", "signal 65", "", "noise", "winsize 24 80", "signal 15"]);
        for piece in sent.chunks(37) {
            wires.lock().expect("sound").control_in.extend(piece);
            ports.pump();
        }
        wires.lock().expect("sound").control_in.extend(vec![b'x'; 10_000]);
        let sent = lines(&["stats", "processes", "processes 7", "sessions 8", "sessions x"]);
        wires.lock().expect("sound").control_in.extend(sent);
        ports.pump();
        assert_eq!((ports.take_signal(), ports.take_signal(), ports.take_signal()), (Some(2), Some(15), None));
        assert_eq!(ports.take_window(), Some((24, 80)));
        assert!(ports.take_stats_request());
        assert!(!ports.take_stats_request());
        assert_eq!((ports.take_processes_request(), ports.take_processes_request()), (Some(7), None));
        assert_eq!((ports.take_sessions_request(), ports.take_sessions_request()), (Some(8), None));
    }

    #[test]
    fn a_closed_output_takes_nothing_and_says_why() {
        let (ports, wires) = ports();
        let closed = lines(&["closed 1 32", "closed 2", "closed 2 28", "closed 9 5"]);
        wires.lock().expect("sound").control_in.extend(closed);
        ports.pump();
        assert_eq!(ports.write(Port::Output, b"a"), Err(Errno::ENOSPC));
        assert_eq!(ports.write(Port::Error, b"a"), Ok(1));
        wires.lock().expect("sound").control_in.extend(lines(&["closed 3 32"]));
        ports.pump();
        assert_eq!(ports.write(Port::Error, b"a"), Err(Errno::EPIPE));
        assert_eq!(wires.lock().expect("sound").output, b"a");
    }

    #[test]
    fn lines_wait_for_room_and_are_cut_to_one_line() {
        let (ports, wires) = ports();
        wires.lock().expect("sound").room = 20;
        ports.send_line("exit\n7");
        assert_eq!(wires.lock().expect("sound").control_out, lines(&["exit 7"])[..20]);
        assert_ne!(ports.control_backlog_bytes(), 0);
        wires.lock().expect("sound").room = 100;
        ports.pump();
        assert_eq!(wires.lock().expect("sound").control_out, lines(&["exit 7"]));
    }
}
