//! One direction of bytes between a descriptor of the host and ports of the machine.
//!
//! Pumps never block and hold one buffer each; a pump reads only when its buffer is empty, so a slow reader
//! slows the program down instead of filling the tool's memory. The host's own descriptors (0, 1, 2) stay in
//! blocking mode, because they are shared with other processes: before a write the loop has seen them
//! writable, and the size of the write is what a writable descriptor of that kind takes without blocking.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::FileType;
use rustix::net::SendFlags;

use crate::relay::line_marks::Marker;

/// Bytes that a pump moves at a time.
const BUFFER_BYTES: usize = 64 * 1024;
/// What a pipe takes without blocking once it polls writable (`PIPE_BUF`, pipe(7)).
const PIPE_WRITE_BYTES_MAX: usize = 4096;

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Go on.
    Fine,
    /// The reader is gone.
    Closed,
    /// The host refuses the bytes, for example for want of space.
    Failed(io::Error),
}

/// Where the program's output goes: the tool's standard output or standard error.
#[derive(Debug)]
pub(crate) struct Sink {
    file: File,
    kind: FileType,
}

impl Sink {
    /// Takes over a copy of a standard descriptor.
    pub(crate) fn new(fd: impl AsFd) -> io::Result<Self> {
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        Ok(Self { file, kind })
    }

    /// Writes some, without blocking if the descriptor polls writable.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let some = &bytes[..bytes.len().min(PIPE_WRITE_BYTES_MAX)];
        match self.kind {
            FileType::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                Ok(rustix::net::send(&self.file, bytes, flags)?)
            }
            FileType::RegularFile => self.file.write(bytes),
            _ => self.file.write(some),
        }
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A port of the machine that output comes from.
#[derive(Debug)]
pub(crate) struct Source {
    stream: Option<UnixStream>,
    /// Where there are several, each line says whose it is.
    marker: Option<Marker>,
}

impl Source {
    /// A source; `stream` must be non-blocking.
    pub(crate) fn new(stream: UnixStream, marker: Option<Marker>) -> Self {
        Self { stream: Some(stream), marker }
    }
}

/// From ports of the machine, one or several, to the host.
#[derive(Debug)]
pub(crate) struct OutputPump {
    sources: Vec<Source>,
    /// The source that is looked at first: nobody has to wait for one that always has something.
    turn: usize,
    sink: Option<Sink>,
    pending: Vec<u8>,
    written: usize,
    read_bytes: u64,
    /// Lines as they came, with the numbers of their sources, for the log.
    copies: Vec<(usize, Vec<u8>)>,
}

impl OutputPump {
    /// A pump from `sources` to `sink`.
    pub(crate) fn new(sources: Vec<Source>, sink: Sink) -> Self {
        let pending = Vec::with_capacity(BUFFER_BYTES);
        Self { sources, turn: 0, sink: Some(sink), pending, written: 0, read_bytes: 0, copies: Vec::new() }
    }

    /// The descriptors to wait for before [`OutputPump::fill`], with the numbers of their sources.
    pub(crate) fn wants_to_read(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let count = if self.pending.is_empty() { self.sources.len() } else { 0 };
        let numbers = (0..count).map(move |number| (number + self.turn) % count);
        numbers.filter_map(|number| Some((number, self.sources[number].stream.as_ref()?.as_fd())))
    }

    /// The descriptor to wait for before [`OutputPump::flush`].
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        if self.pending.is_empty() { None } else { self.sink.as_ref().map(|s| s.file.as_fd()) }
    }

    /// The machine has sent something.
    pub(crate) fn has_carried(&self) -> bool {
        self.read_bytes > 0
    }

    /// Bytes that wait to be written.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.len() - self.written
    }

    /// The machine will send no more and everything is written, or nobody reads it.
    pub(crate) fn is_done(&self) -> bool {
        self.sources.iter().all(|source| source.stream.is_none()) && self.pending.is_empty()
    }

    /// Reads what the machine sent at a source, if the buffer is empty.
    pub(crate) fn fill(&mut self, number: usize) -> io::Result<()> {
        let Some(source) = self.sources.get_mut(number).filter(|_| self.pending.is_empty()) else {
            return Ok(());
        };
        let Some(stream) = source.stream.as_mut() else { return Ok(()) };
        self.turn = number + 1;
        self.pending.resize(BUFFER_BYTES, 0);
        let length = match read_some(stream, &mut self.pending) {
            Ok(length) => length,
            Err(error) => {
                self.pending.clear();
                return if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) };
            }
        };
        self.pending.truncate(length);
        self.read_bytes += length as u64;
        if length == 0 {
            source.stream = None;
        }
        if let Some(marker) = &mut source.marker {
            let bytes = std::mem::take(&mut self.pending);
            marker.push(&bytes, &mut self.pending);
            if length == 0 {
                marker.finish(&mut self.pending);
            }
            self.copies.push((number, marker.unmarked(&self.pending)));
        }
        if self.sink.is_none() {
            self.pending.clear();
        }
        Ok(())
    }

    /// A source whose pod has ended: true if nothing of it is unread, and its last line has been passed on.
    pub(crate) fn finish(&mut self, number: usize) -> bool {
        let Some(source) = self.sources.get_mut(number) else { return true };
        let unread = source.stream.as_ref().map_or(0, |stream| rustix::io::ioctl_fionread(stream).unwrap_or(0));
        if let (0, Some(marker)) = (unread, &mut source.marker) {
            let mut last = Vec::new();
            marker.finish(&mut last);
            self.copies.push((number, marker.unmarked(&last)));
            if self.sink.is_some() {
                self.pending.append(&mut last);
            }
        }
        unread == 0
    }

    /// Lines that came since the last look, without marks, and the numbers of their sources.
    pub(crate) fn take_copies(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.copies)
    }

    /// Writes some of what is pending.
    pub(crate) fn flush(&mut self) -> Outcome {
        let Some(sink) = &mut self.sink else {
            return Outcome::Fine;
        };
        let left = &self.pending[self.written..];
        let left = if self.sources.iter().any(|source| source.marker.is_some()) { whole_lines(left) } else { left };
        match sink.write(left) {
            Ok(length) => {
                self.written += length;
                if self.written == self.pending.len() {
                    self.discard();
                }
                Outcome::Fine
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Outcome::Fine,
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    self.close();
                    Outcome::Closed
                }
                _ => {
                    self.close();
                    Outcome::Failed(error)
                }
            },
        }
    }

    /// Adds text of the tool's own behind what is pending.
    pub(crate) fn push(&mut self, text: &[u8]) {
        if self.sink.is_some() {
            self.pending.extend_from_slice(text);
        }
    }

    /// From now on bytes are read and thrown away.
    fn close(&mut self) {
        self.sink = None;
        self.discard();
    }

    fn discard(&mut self) {
        self.pending.clear();
        self.written = 0;
    }
}

/// From the tool's standard input to the machine.
#[derive(Debug)]
pub(crate) struct InputPump {
    source: Option<File>,
    sink: Option<UnixStream>,
    pending: Vec<u8>,
    written: usize,
    read_bytes: u64,
    ended: bool,
}

impl InputPump {
    /// A pump to `sink`, which must be non-blocking, from a copy of `source`.
    pub(crate) fn new(source: impl AsFd, sink: UnixStream) -> io::Result<Self> {
        let source = Some(File::from(source.as_fd().try_clone_to_owned()?));
        let (pending, sink) = (Vec::with_capacity(BUFFER_BYTES), Some(sink));
        Ok(Self { source, sink, pending, written: 0, read_bytes: 0, ended: false })
    }

    /// A pump without a source, whose end is never told. The machine's port stays open.
    pub(crate) fn empty(sink: UnixStream) -> Self {
        Self { source: None, sink: Some(sink), pending: Vec::new(), written: 0, read_bytes: 0, ended: false }
    }

    /// The descriptor to wait for before [`InputPump::fill`].
    pub(crate) fn wants_to_read(&self) -> Option<BorrowedFd<'_>> {
        if self.pending.is_empty() && self.sink.is_some() { self.source.as_ref().map(AsFd::as_fd) } else { None }
    }

    /// The descriptor to wait for before [`InputPump::flush`].
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        if self.pending.is_empty() { None } else { self.sink.as_ref().map(AsFd::as_fd) }
    }

    /// Reads from standard input. An input that cannot be read (a directory, a terminal that is gone) has
    /// ended.
    pub(crate) fn fill(&mut self) {
        let Some(source) = &mut self.source else {
            return;
        };
        self.pending.resize(BUFFER_BYTES, 0);
        let length = match read_some(source, &mut self.pending) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.pending.clear();
                return;
            }
            Err(_) => 0,
        };
        self.pending.truncate(length);
        self.read_bytes += length as u64;
        if length == 0 {
            self.source = None;
            self.ended = true;
        }
    }

    /// Writes to the machine. A machine that takes no more has ended, which is seen elsewhere.
    pub(crate) fn flush(&mut self) {
        let Some(sink) = &mut self.sink else { return };
        match sink.write(&self.pending[self.written..]) {
            Ok(length) => self.written += length,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => self.stop(),
            },
        }
        if self.written == self.pending.len() {
            self.pending.clear();
            self.written = 0;
        }
    }

    /// The total, once, when the input has ended.
    pub(crate) fn take_end(&mut self) -> Option<u64> {
        std::mem::take(&mut self.ended).then_some(self.read_bytes)
    }

    /// Reads and writes nothing from now on.
    pub(crate) fn stop(&mut self) {
        self.source = None;
        self.sink = None;
        self.pending.clear();
        self.written = 0;
    }
}

/// Whether standard input is `/dev/null`: nothing will ever come from it, and the machine knows before it starts.
pub(crate) fn input_is_empty() -> bool {
    let null_device = rustix::fs::makedev(1, 3);
    rustix::fs::fstat(io::stdin()).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice && status.st_rdev == null_device
    })
}

/// As many lines as go into one write, so that what another stream writes to the same place comes between lines.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let some = &bytes[..bytes.len().min(PIPE_WRITE_BYTES_MAX)];
    let end = some.iter().rposition(|byte| *byte == b'\n').map_or(some.len(), |last| last + 1);
    &some[..end]
}

/// Reads once, again when interrupted. A socket whose other end went away with unread bytes says so once,
/// after its own bytes; that is the end of the stream like any other.
pub(crate) fn read_some(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputPump, Sink, Source, read_some, whole_lines};
    use crate::relay::line_marks::Marker;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn sources_take_turns_and_lines_stay_whole() {
        let (mut read_end, write_end) = UnixStream::pair().expect("a pair");
        let (mut first, one) = UnixStream::pair().expect("a pair");
        let (mut second, two) = UnixStream::pair().expect("a pair");
        for stream in [&one, &two] {
            stream.set_nonblocking(true).expect("a socket");
        }
        let sources = vec![
            Source::new(one, Some(Marker::new("a | ".into()))),
            Source::new(two, Some(Marker::new("b | ".into()))),
        ];
        let mut pump = OutputPump::new(sources, Sink::new(write_end).expect("a socket"));
        first.write_all(b"x\ny").expect("room");
        second.write_all(b"z\n").expect("room");
        assert!(pump.wants_to_read().map(|(number, _)| number).eq([0, 1]));
        pump.fill(0).expect("there is something");
        pump.fill(1).expect("the buffer is full, nothing happens");
        assert!(pump.wants_to_read().next().is_none() && pump.wants_to_write().is_some());
        let _ = pump.flush();
        assert!(pump.wants_to_read().map(|(number, _)| number).eq([1, 0]), "the other one is first now");
        pump.fill(1).expect("there is something");
        let _ = pump.flush();
        drop((first, second));
        for number in [0, 1] {
            pump.fill(number).expect("the end");
            let _ = pump.flush();
        }
        assert!(pump.is_done());
        let mut text = [0; 100];
        let length = read_some(&mut read_end, &mut text).expect("all of it");
        assert_eq!(&text[..length], b"a | x\nb | z\na | y\n");
    }

    #[test]
    fn writes_end_with_a_line_where_they_can() {
        assert_eq!(whole_lines(b"a\nb"), b"a\n");
        assert_eq!(whole_lines(b"ab"), b"ab");
        let long = [vec![b'x'; 4095], b"\nyy".to_vec()].concat();
        assert_eq!(whole_lines(&long).len(), 4096);
    }
}
