//! One session: a process, the ends of its streams, and what is on its way to and from them.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use aegis_link::sessions::{DATA_BYTES_MAX, FromPod, Malformed, Stream, ToPod, Window};
use exos::error::Errno;
use exos::fs::open_file::OpenFile;
use exos::fs::pipe::PIPE_BUFFER_BYTES;
use exos::fs::readiness::{Readiness, Registration};
use exos::fs::terminal::modes::WindowSize;
use exos::fs::transfer::SliceDestination;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use super::News;
use super::start::Start;
use crate::task::process::{Ending, Process};
use crate::task::system::System;

/// The place of the character that means the end of input in a terminal's modes (`VEOF`).
const END_CHARACTER: usize = 4;

/// An output of the process.
struct Output {
    /// `None`: it has ended, or nobody takes it.
    end: Option<Arc<dyn OpenFile>>,
    window: Window,
    /// Once the process has ended: what of it is still passed on.
    left: Option<usize>,
}

/// A session whose process has been made.
pub(super) struct Session {
    process: Arc<Process>,
    start: Arc<Start>,
    /// Where input goes; `None`: nowhere any more.
    input: Option<Arc<dyn OpenFile>>,
    /// Input that has not been passed on.
    pending: VecDeque<u8>,
    input_window: Window,
    has_input_ended: bool,
    outputs: [Output; 2],
    /// The master side, if it has a terminal; input and output go there.
    terminal: Option<Arc<dyn OpenFile>>,
    _watches: Vec<Registration>,
}

/// Ends of a session's streams.
pub(super) struct Ends {
    pub(super) input: Option<Arc<dyn OpenFile>>,
    /// Where output comes from.
    pub(super) outputs: [Option<Arc<dyn OpenFile>>; 2],
    /// The master side, if these are a terminal's.
    pub(super) terminal: Option<Arc<dyn OpenFile>>,
}

impl Session {
    pub(super) fn new(process: Arc<Process>, start: Arc<Start>, ends: Ends, news: &Arc<News>) -> Self {
        let Ends { input, outputs, terminal } = ends;
        let watch = |queue: &Arc<exos::fs::readiness::WaitQueue>, interest| {
            let waiter = Arc::<News>::downgrade(news);
            queue.register(waiter, interest)
        };
        let wanted = |(file, interest): (&Arc<dyn OpenFile>, _)| Some(watch(file.wait_queue()?, interest));
        let mut watches = Vec::from([watch(&process.changes, Readiness::READ)]);
        watches.extend(input.iter().map(|file| (file, Readiness::WRITE)).filter_map(wanted));
        watches.extend(outputs.iter().flatten().map(|file| (file, Readiness::READ)).filter_map(wanted));
        Self {
            process,
            start,
            input,
            pending: VecDeque::new(),
            input_window: Window::default(),
            has_input_ended: false,
            outputs: outputs.map(|end| Output { end, window: Window::default(), left: None }),
            terminal,
            _watches: watches,
        }
    }

    /// Does what the host wants, as far as that needs no session to begin or to end.
    pub(super) fn act(&mut self, system: &System, message: ToPod<'_>) -> Result<(), Malformed> {
        match message {
            ToPod::Input(data) if !self.has_input_ended => {
                self.input_window.take(data.len())?;
                self.pending.extend(data);
            }
            ToPod::InputEnd if !self.has_input_ended => {
                self.has_input_ended = true;
                // A terminal's input has no end; what is typed for one is a character.
                if let Some(terminal) = self.terminal.as_ref().and_then(|file| file.terminal()) {
                    self.pending.push_back(terminal.modes().characters[END_CHARACTER]);
                }
            }
            ToPod::Signal(number) => self.signal(system, number),
            ToPod::Window { rows, columns } => {
                if let Some(terminal) = self.terminal.as_ref().and_then(|file| file.terminal()) {
                    let size = WindowSize { row_count: rows, column_count: columns, ..terminal.window_size() };
                    terminal.set_window_size(size);
                }
            }
            ToPod::Credit(stream, count) => self.outputs[stream as usize].window.give(count)?,
            ToPod::Closed(stream) if self.terminal.is_none() => self.outputs[stream as usize].end = None,
            // What a terminal shows nobody sees any more: it hangs up.
            ToPod::Closed(_) => self.let_go(),
            ToPod::Input(_) | ToPod::InputEnd | ToPod::Describe(_) | ToPod::Start | ToPod::HangUp => {
                return Err(Malformed);
            }
        }
        Ok(())
    }

    /// To the group that the process leads, as keys of a terminal would send it.
    fn signal(&self, system: &System, number: u8) {
        let Ok(signal) = Signal::new(u64::from(number)) else { return };
        let payload = SignalPayload::Sender { pid: 0, uid: 0, value: 0 };
        for process in system.processes.in_group(self.process.pid) {
            process.raise(signal, SignalInfo { code: 0, errno: 0, payload });
        }
    }

    fn let_go(&mut self) {
        self.input = None;
        self.outputs.iter_mut().for_each(|output| output.end = None);
        self.terminal = None;
    }

    /// The caller is gone.
    pub(super) fn hang_up(mut self, system: &System) {
        self.signal(system, Signal::HUP.number());
        self.signal(system, Signal::CONT.number());
        self.let_go();
    }

    /// Passes input on, and says how much.
    pub(super) fn feed(&mut self, number: u32, out: &mut Vec<u8>) {
        let mut done = 0;
        while let (Some(input), false) = (&self.input, self.pending.is_empty()) {
            let (first, _) = self.pending.as_slices();
            let mut piece = &first[..first.len().min(PIPE_BUFFER_BYTES)];
            match input.write(0, &mut piece) {
                Ok(count) => {
                    self.pending.drain(..count);
                    done += count;
                }
                Err(Errno::EAGAIN) => break,
                Err(_) => self.input = None,
            }
        }
        if self.input.is_none() {
            // Nobody reads it: it is gone as if it had been read, which is all that a caller has to know.
            done += self.pending.len();
            self.pending.clear();
        }
        if self.has_input_ended && self.pending.is_empty() && self.terminal.is_none() {
            self.input = None;
        }
        // The character of the end is not the host's.
        let count = (done as u32).min(self.input_window.on_the_way());
        if count > 0 && self.input_window.give(count).is_ok() {
            FromPod::Taken(count).append_frame(number, out);
        }
    }

    /// Takes a piece of each output that has one and may send it. True if there was any.
    pub(super) fn drain(&mut self, number: u32, out: &mut Vec<u8>) -> bool {
        self.note_end();
        let mut has_moved = false;
        for (output, stream) in self.outputs.iter_mut().zip([Stream::Output, Stream::Errors]) {
            let room = output.window.left() as usize;
            let wanted = DATA_BYTES_MAX.min(room).min(output.left.unwrap_or(usize::MAX));
            let Some(end) = output.end.as_ref().filter(|_| wanted > 0) else { continue };
            let mut bytes = [0; DATA_BYTES_MAX];
            match end.read(0, &mut SliceDestination::new(&mut bytes[..wanted])) {
                Ok(count) if count > 0 && output.window.take(count).is_ok() => {
                    FromPod::Output(stream, &bytes[..count]).append_frame(number, out);
                    output.left = output.left.map(|left| left - count);
                    has_moved = true;
                }
                Err(Errno::EAGAIN) if output.left.is_none() => {}
                // Memory is short: at the next news.
                Err(Errno::ENOMEM) => {}
                // A terminal's end stays: it may be opened again.
                Err(Errno::EIO) if self.terminal.is_some() && output.left.is_none() => {}
                _ => output.end = None,
            }
        }
        has_moved
    }

    /// Once the process has ended, what is in its pipes by then is passed on and no more: another process that has them
    /// may write for ever.
    fn note_end(&mut self) {
        if self.process.is_zombie.load(Ordering::Acquire) {
            for output in &mut self.outputs {
                let count = || output.end.as_ref().and_then(|end| end.readable_byte_count()).unwrap_or(0);
                output.left = Some(output.left.unwrap_or_else(count));
            }
        }
    }

    /// Whether it is over; then that is the last that is said about it.
    pub(super) fn has_ended(&self, number: u32, out: &mut Vec<u8>) -> bool {
        let is_drained = |output: &Output| output.left == Some(0) || output.left.is_some() && output.end.is_none();
        if !self.outputs.iter().all(is_drained) {
            return false;
        }
        let failure = self.start.failure.lock().take();
        match (failure, &*self.process.ending.lock()) {
            (Some((status, text)), _) => FromPod::Failed(status, text.as_bytes()).append_frame(number, out),
            (None, Some(Ending::Killed { signal, text, .. })) => {
                FromPod::Killed(signal.number(), text.as_bytes()).append_frame(number, out);
            }
            (None, Some(Ending::Exited(status))) => FromPod::Exited(*status).append_frame(number, out),
            (None, None) => FromPod::Failed(125, b"the process ended in no known way").append_frame(number, out),
        }
        true
    }
}
