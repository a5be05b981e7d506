//! How bytes get into a file of the in-memory file system.
//!
//! What is there already is written in place, under the file's lock, as far as the program's memory is there. The rest
//! goes by way of chunks that are filled without a lock and written under it, with a preemption point in between
//! (`crate::preempt`). A [`LongWrite`] keeps other writers away from the first chunk to the last, so that no write is
//! torn, however long and whoever runs in between.
//!
//! Neighbours: [`super::node`], [`super::content`].

use super::super::transfer::{Source, partial};
use super::super::vnode::{OFFSET_MAX, Seals, Timestamp, WritePosition};
use super::node::{Body, MemoryNode, State, pages_of};
use crate::error::{Errno, Result};
use crate::preempt;
use crate::sync;

impl MemoryNode {
    fn write_chunk(
        &self,
        position: WritePosition,
        bytes: &[u8],
        now: Timestamp,
        long: &mut LongWrite<'_>,
    ) -> Result<(u64, usize, Option<Errno>)> {
        loop {
            let outcome = self.try_write_chunk(position, bytes, now, long)?;
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            preempt::unless_killed()?;
            sync::relax();
        }
    }

    /// `None`: somebody else is in the middle of a long write.
    fn try_write_chunk(
        &self,
        position: WritePosition,
        bytes: &[u8],
        now: Timestamp,
        long: &mut LongWrite<'_>,
    ) -> Result<Option<(u64, usize, Option<Errno>)>> {
        self.with_content(|_| Ok(()))?;
        let start = match position {
            WritePosition::At(offset) => offset,
            WritePosition::End => self.with_content(|state| Ok(state.body.size_bytes()))?,
        };
        let _fetched = self.fetch(pages_of(start, bytes.len() as u64));
        self.change(|state| {
            let State { body: Body::File(content), seals, is_in_long_write, .. } = state else {
                return Err(Errno::EINVAL);
            };
            if !long.enter(is_in_long_write) {
                return Ok(None);
            }
            let offset = match position {
                WritePosition::At(offset) => offset,
                WritePosition::End => content.size_bytes,
            };
            let mut room = OFFSET_MAX.saturating_sub(offset).min(bytes.len() as u64) as usize;
            if room == 0 && !bytes.is_empty() {
                return Err(Errno::EFBIG);
            }
            let grows = offset + room as u64 > content.size_bytes;
            if seals.intersects(Seals::WRITE | Seals::FUTURE_WRITE) {
                return Err(Errno::EPERM);
            }
            if grows && seals.contains(Seals::GROW) {
                // As on Linux, the whole pages before the end are written.
                let kept = (content.size_bytes & !4095).saturating_sub(offset);
                if kept == 0 {
                    return Err(Errno::EPERM);
                }
                room = kept as usize;
            }
            let (done, error) = content.write(&self.fs, self.base.as_ref(), offset, &bytes[..room]);
            if let (0, Some(error)) = (done, error) {
                return Err(error);
            }
            state.modified = now;
            state.changed = now;
            Ok(Some((offset, done, error)))
        })
    }

    /// As [`Self::write_chunk`], waiting for memory where it is what is missing.
    fn write_all(
        &self,
        position: WritePosition,
        bytes: &[u8],
        now: Timestamp,
        long: &mut LongWrite<'_>,
    ) -> Result<(u64, usize, Option<Errno>)> {
        let mut start = None;
        let mut done = 0;
        loop {
            let to = start.map_or(position, |start| WritePosition::At(start + done as u64));
            let error = match self.write_chunk(to, &bytes[done..], now, long) {
                Ok((begin, written, error)) => {
                    start.get_or_insert(begin);
                    done += written;
                    error
                }
                Err(error) => Some(error),
            };
            match (error, start) {
                (Some(error), _) if self.fs.awaits_room(error) => {}
                (Some(error), None) => return Err(error),
                (error, start) => return Ok((start.unwrap_or(0), done, error)),
            }
        }
    }

    /// Writes what `source` has by way of `chunk`.
    pub(super) fn write_by(
        &self,
        chunk: &mut [u8],
        position: WritePosition,
        source: &mut dyn Source,
        now: Timestamp,
    ) -> Result<(u64, usize)> {
        let mut start = None;
        let mut done = 0;
        let mut long = LongWrite { node: self, is_wanted: source.remaining() > chunk.len(), has_begun: false };
        while source.remaining() > 0 || start.is_none() {
            let wanted = source.remaining().min(chunk.len());
            let taken = source.take(&mut chunk[..wanted]);
            let to = start.map_or(position, |start| WritePosition::At(start + done as u64));
            if taken == 0 && wanted > 0 {
                let begin = start.unwrap_or(0);
                return partial(done, Errno::EFAULT).map(|count| (begin, count));
            }
            let (begin, written, error) = match self.write_all(to, &chunk[..taken], now, &mut long) {
                Ok(outcome) => outcome,
                Err(error) => {
                    return partial(done, error).map(|count| (start.unwrap_or(0), count));
                }
            };
            start.get_or_insert(begin);
            done += written;
            if written < wanted || error.is_some() || (source.remaining() > 0 && preempt::unless_killed().is_err()) {
                break;
            }
        }
        Ok((start.unwrap_or(0), done))
    }

    /// The beginning of a write over what is there, without a buffer in between. What it cannot do is left to
    /// [`Self::write_by`], which says why.
    pub(super) fn write_at_once(&self, offset: u64, source: &mut dyn Source, now: Timestamp) -> usize {
        let (done, is_first) = {
            let mut state = self.state.lock();
            let Body::File(content) = &state.body else { return 0 };
            if state.is_in_long_write || state.seals.intersects(Seals::WRITE | Seals::FUTURE_WRITE | Seals::GROW) {
                return 0;
            }
            let wanted = source.remaining();
            let done = self.move_at_once(content, offset, wanted, |frames, frame, within, count| {
                source.take_frame_at_once(frames, frame, within, count)
            });
            if done == 0 {
                return 0;
            }
            state.modified = now;
            state.changed = now;
            (done, self.keep(&mut state))
        };
        if is_first {
            self.kept();
        }
        done
    }
}

/// A write of more than one chunk, between which others run. From its first chunk to its end nobody else writes, so
/// that it is not torn, however long: as on Linux, where the file is locked meanwhile.
struct LongWrite<'a> {
    node: &'a MemoryNode,
    is_wanted: bool,
    has_begun: bool,
}

impl LongWrite<'_> {
    /// Whether a chunk may be written now; `is_in_long_write` is the file's mark, which is locked.
    fn enter(&mut self, is_in_long_write: &mut bool) -> bool {
        if self.has_begun {
            return true;
        }
        let is_free = !*is_in_long_write;
        if is_free && self.is_wanted {
            *is_in_long_write = true;
            self.has_begun = true;
        }
        is_free
    }
}

impl Drop for LongWrite<'_> {
    fn drop(&mut self) {
        if self.has_begun {
            self.node.state.lock().is_in_long_write = false;
        }
    }
}
