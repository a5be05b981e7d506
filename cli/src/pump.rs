//! One direction of bytes between a descriptor of the host and a port of the machine.
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

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
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

/// From a port of the machine to the host.
#[derive(Debug)]
pub(crate) struct OutputPump {
    source: Option<UnixStream>,
    sink: Option<Sink>,
    pending: Vec<u8>,
    written: usize,
    read_bytes: u64,
}

impl OutputPump {
    /// A pump from `source`, which must be non-blocking, to `sink`.
    pub(crate) fn new(source: UnixStream, sink: Sink) -> Self {
        let pending = Vec::with_capacity(BUFFER_BYTES);
        Self { source: Some(source), sink: Some(sink), pending, written: 0, read_bytes: 0 }
    }

    /// The descriptor to wait for before [`OutputPump::fill`].
    pub(crate) fn wants_to_read(&self) -> Option<BorrowedFd<'_>> {
        if self.pending.is_empty() { self.source.as_ref().map(AsFd::as_fd) } else { None }
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
        self.source.is_none() && self.pending.is_empty()
    }

    /// Reads what the machine sent, if the buffer is empty.
    pub(crate) fn fill(&mut self) -> io::Result<()> {
        let Some(source) = self.source.as_mut().filter(|_| self.pending.is_empty()) else {
            return Ok(());
        };
        self.pending.resize(BUFFER_BYTES, 0);
        let length = match read_some(source, &mut self.pending) {
            Ok(length) => length,
            Err(error) => {
                self.pending.clear();
                return if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) };
            }
        };
        self.pending.truncate(length);
        self.read_bytes += length as u64;
        if length == 0 {
            self.source = None;
        }
        if self.sink.is_none() {
            self.pending.clear();
        }
        Ok(())
    }

    /// Writes some of what is pending.
    pub(crate) fn flush(&mut self) -> Outcome {
        let Some(sink) = &mut self.sink else {
            return Outcome::Fine;
        };
        match sink.write(&self.pending[self.written..]) {
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
