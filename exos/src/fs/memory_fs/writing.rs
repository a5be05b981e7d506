//! How bytes get into a file of the in-memory file system.
//!
//! What is there already is written in place, under the file's lock, as far as the program's memory is there. The rest
//! goes by way of chunks that are filled without a lock and written under it, with a preemption point in between
//! (`crate::preempt`). A [`LongWrite`] keeps other writers away from the first chunk to the last, so that no write is
//! torn, however long and whatever runs in between.
//!
//! Neighbours: [`super::node`], [`super::content`].

use super::super::metadata::{Protection, Timestamp};
use super::super::permission::Credentials;
use super::super::transfer::{Source, partial};
use super::super::vnode::{Inode, OFFSET_MAX, WritePosition};
use super::guards::Guards;
use super::node::{Body, MemoryNode, State, pages_of};
use crate::error::{Errno, Result};
use crate::{preempt, sync};

impl MemoryNode {
    fn write_chunk(
        &self,
        position: WritePosition,
        bytes: &[u8],
        now: Timestamp,
        long: &mut LongWrite<'_>,
        writer: &dyn Source,
    ) -> Result<(u64, usize, Option<Errno>)> {
        loop {
            let outcome = self.try_write_chunk(position, bytes, now, long)?;
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            if long.writer.is_none() {
                long.writer = Some(writer.writer());
            }
            preempt::unless_killed()?;
            sync::relax();
        }
    }

    /// `None`: another writer is in the middle of a long write, or the file has set-ID bits and the writer is not
    /// known.
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
            let State { body: Body::File(content), guards, permissions, uid, gid, .. } = state else {
                return Err(Errno::EINVAL);
            };
            if !long.enter(guards) {
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
            if guards.intersects(Guards::WRITES) {
                return Err(Errno::EPERM);
            }
            if guards.contains(Guards::SET_IDS) {
                let Some(writer) = &long.writer else { return Ok(None) };
                let file = Protection { kind: self.kind, permissions: *permissions, uid: *uid, gid: *gid };
                if let Some(kept) = writer.as_ref().and_then(|writer| writer.permissions_after_change(file)) {
                    *permissions = kept;
                    *guards = guards.with_permissions(kept);
                }
            }
            if grows && guards.contains(Guards::GROW) {
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
        writer: &dyn Source,
    ) -> Result<(u64, usize, Option<Errno>)> {
        let mut start = None;
        let mut done = 0;
        loop {
            let to = start.map_or(position, |start| WritePosition::At(start + done as u64));
            let error = match self.write_chunk(to, &bytes[done..], now, long, writer) {
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
        let mut long = LongWrite::new(self, source.remaining() > chunk.len());
        while source.remaining() > 0 || start.is_none() {
            let wanted = source.remaining().min(chunk.len());
            let taken = source.take(&mut chunk[..wanted]);
            let to = start.map_or(position, |start| WritePosition::At(start + done as u64));
            if taken == 0 && wanted > 0 {
                // Asked before it is known that nothing comes, as on Linux.
                source.writer().map_or(Ok(false), |writer| self.end_set_ids(&writer, now))?;
                let begin = start.unwrap_or(0);
                return partial(done, Errno::EFAULT).map(|count| (begin, count));
            }
            let (begin, written, error) = match self.write_all(to, &chunk[..taken], now, &mut long, source) {
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
    pub(super) fn write_nofault(&self, offset: u64, source: &mut dyn Source, now: Timestamp) -> usize {
        let (done, is_first) = {
            let mut state = self.state.lock();
            let Body::File(content) = &state.body else { return 0 };
            if state.guards.intersects(Guards::AT_ONCE) {
                return 0;
            }
            let wanted = source.remaining();
            let done = self.move_nofault(content, offset, wanted, |frames, frame, within, count| {
                source.take_frame_nofault(frames, frame, within, count)
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
    /// The writer, once it was asked for: one that may not keep set-ID bits takes them from the file.
    writer: Option<Option<Credentials>>,
}

impl<'a> LongWrite<'a> {
    fn new(node: &'a MemoryNode, is_wanted: bool) -> Self {
        Self { node, is_wanted, has_begun: false, writer: None }
    }

    /// Whether a chunk may be written now; `guards` are the file's, which is locked.
    fn enter(&mut self, guards: &mut Guards) -> bool {
        if self.has_begun {
            return true;
        }
        let is_free = !guards.contains(Guards::LONG_WRITE);
        if is_free && self.is_wanted {
            *guards |= Guards::LONG_WRITE;
            self.has_begun = true;
        }
        is_free
    }
}

impl Drop for LongWrite<'_> {
    fn drop(&mut self) {
        if self.has_begun {
            self.node.state.lock().guards -= Guards::LONG_WRITE;
        }
    }
}
