//! Ends of pipes as open files.

use alloc::sync::Arc;

use super::{PIPE_BUFFER_BYTES, Pipe};
use crate::error::{Errno, Result};
use crate::fs::open_file::{OpenFile, OpenRequest};
use crate::fs::readiness::{Readiness, WaitQueue};
use crate::fs::transfer::{Destination, Source};

/// An open end (or both) of a pipe.
pub struct PipeEnd {
    pub(super) pipe: Arc<Pipe>,
    request: OpenRequest,
    /// How often the other end had been opened when this one was; `None` if it was open.
    awaited_opens: Option<u64>,
}

impl PipeEnd {
    /// Both ends of a new pipe: for reading, for writing.
    pub fn pair(number: u64) -> (Arc<Self>, Arc<Self>) {
        let pipe = Pipe::new(number);
        let ends = [(true, false), (false, true)]
            .map(|(read, write)| Self::open_unnamed(&pipe, OpenRequest { read, write, non_blocking: false }));
        let [reader, writer] = ends;
        (reader, writer)
    }

    /// One more end of a pipe without a name, as `/dev/fd/N` gives it: no other end is waited for.
    pub fn open_unnamed(pipe: &Arc<Pipe>, request: OpenRequest) -> Arc<Self> {
        Self::attach(pipe, request, false)
    }

    /// Opens an end of a named pipe (fifo(7)). The end is there at once, so that two openers find each
    /// other; a blocking opener then waits for [`OpenFile::is_connected`].
    ///
    /// # Errors
    /// `ENXIO`: for writing only, non-blocking, and nobody reads.
    pub fn open_named(pipe: &Arc<Pipe>, request: OpenRequest) -> Result<Arc<Self>> {
        let writes_only = request.write && !request.read;
        if writes_only && request.non_blocking && pipe.state.lock().reader_count == 0 {
            return Err(Errno::ENXIO);
        }
        Ok(Self::attach(pipe, request, !request.non_blocking))
    }

    fn attach(pipe: &Arc<Pipe>, request: OpenRequest, waits: bool) -> Arc<Self> {
        let awaited_opens = {
            let mut state = pipe.state.lock();
            state.reader_count += u32::from(request.read);
            state.writer_count += u32::from(request.write);
            state.reader_opens += u64::from(request.read);
            state.writer_opens += u64::from(request.write);
            let (other_count, other_opens) = if request.read {
                (state.writer_count, state.writer_opens)
            } else {
                (state.reader_count, state.reader_opens)
            };
            (other_count == 0 && waits).then_some(other_opens)
        };
        pipe.tell(Readiness::ALWAYS);
        Arc::new(Self { pipe: pipe.clone(), request, awaited_opens })
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let mut state = self.pipe.state.lock();
        state.reader_count -= u32::from(self.request.read);
        state.writer_count -= u32::from(self.request.write);
        if state.reader_count == 0 && state.writer_count == 0 {
            // A named pipe forgets its contents with its last end.
            state.queue.clear();
        }
        drop(state);
        self.pipe.tell(Readiness::ALWAYS | Readiness::HANG_UP | Readiness::ERROR);
    }
}

impl OpenFile for PipeEnd {
    fn read(&self, _: u64, destination: &mut dyn Destination) -> Result<usize> {
        self.pipe.read(destination)
    }

    fn write(&self, _: u64, source: &mut dyn Source) -> Result<usize> {
        // Nothing to write is not even refused by a pipe that nobody reads.
        if source.remaining() == 0 { Ok(0) } else { self.pipe.write(source) }
    }

    fn readiness(&self) -> Readiness {
        let state = self.pipe.state.lock();
        let mut ready = Readiness::empty();
        if self.request.read {
            ready.set(Readiness::READ, state.queue.length() > 0);
            // A reader that waits for its first writer is not hung up yet.
            let is_awaiting = self.awaited_opens == Some(state.writer_opens)
                || (self.request.non_blocking && state.writer_opens == 0);
            ready.set(Readiness::HANG_UP, state.writer_count == 0 && !is_awaiting);
        }
        if self.request.write {
            ready.set(Readiness::WRITE, state.room() >= PIPE_BUFFER_BYTES);
            ready.set(Readiness::ERROR, state.reader_count == 0);
            if state.reader_count == 0 {
                ready |= Readiness::WRITE;
            }
        }
        ready
    }

    fn wait_queue(&self) -> Option<&Arc<WaitQueue>> {
        Some(&self.pipe.waiters)
    }

    fn writes_all(&self) -> bool {
        true
    }

    fn is_connected(&self) -> bool {
        let state = self.pipe.state.lock();
        self.awaited_opens
            .is_none_or(|opens| opens != if self.request.read { state.writer_opens } else { state.reader_opens })
    }

    fn readable_byte_count(&self) -> Option<usize> {
        Some(self.pipe.state.lock().queue.length())
    }

    fn pipe(&self) -> Option<&Arc<Pipe>> {
        Some(&self.pipe)
    }
}
