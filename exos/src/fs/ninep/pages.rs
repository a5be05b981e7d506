//! Contents of files at a server: pages in the pod's frames, read in runs, written through.
//!
//! A page is read once and then shared by all readers and mappings of the file. A page that may be out of date is
//! *doubted*: it is read again, into the same frame, before it is shown to any other. A page that a shared mapping may
//! store to is *dirty* for as long as it is mapped, because nothing tells of the single stores; it is written by
//! [`NinepInode::write_dirty_pages`] and never doubted.
//!
//! Reading ahead: a reader that goes on where the last run ended gets runs that double up to [`RUN_PAGES_MAX`]; a
//! page fault reads the aligned block of [`FAULT_PAGES`] around it, which is what the fault handler then maps.

use aegis_abi::FrameNumber;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::super::metadata::{SetAttributes, Timestamp};
use super::super::page::{PAGE_BYTES, valid_bytes};
use super::super::transfer::{Destination, Source, partial};
use super::super::vnode::{OFFSET_MAX, WritePosition};
use super::inode::NinepInode;
use super::message::Request;
use super::session::Fid;
use crate::error::{Errno, Result};
use crate::mem::frames::{FramePool, FrameRef};
use crate::mem::source::{FilePage, PageError, PageIntent};
use crate::preempt::{self, Pace};

const PAGE: u64 = PAGE_BYTES as u64;
/// Pages that one run of reading ahead has at most.
const RUN_PAGES_MAX: u64 = 32;
/// Pages that the first run of a reader has, and each after a jump.
const RUN_PAGES_MIN: u64 = 4;
/// Pages that a page fault reads: what `exos::mem` maps around a fault.
const FAULT_PAGES: u64 = 16;
/// Replies to one run of reading, so that a server that gives byte by byte comes to an end.
const REPLY_COUNT_MAX: usize = 64;
/// Bytes that a write takes from the program at a time.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// A cached page.
pub(super) struct Page {
    frame: FrameRef,
    is_doubted: bool,
    is_dirty: bool,
}

impl Page {
    /// It may be out of date.
    pub(super) fn doubt(&mut self) {
        self.is_doubted = !self.is_dirty;
    }

    pub(super) fn frame(&self) -> FrameNumber {
        self.frame.frame()
    }

    /// Whether it is held outside of the cache, or needed.
    pub(super) fn is_in_use(&self, pool: &FramePool) -> bool {
        self.is_dirty || pool.reference_count(self.frame.frame()) != 1
    }
}

/// A page that a run of reading fills.
struct Target {
    index: u64,
    frame: FrameRef,
    is_new: bool,
}

/// What a run of reading has to do.
enum Missing {
    /// The page that is wanted is there.
    Nothing(FrameRef),
    /// It and perhaps others are to be read.
    Pages(Vec<Target>),
}

impl NinepInode {
    /// Reads from `offset` to the end of the file or of `destination`.
    pub(super) fn read_pages(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        self.refresh(super::ATTRIBUTE_AGE_NS_MAX);
        let (mut done, mut pace) = (0, Pace::default());
        while destination.remaining() > 0 {
            let position = offset.saturating_add(done as u64);
            let left = self.size_bytes().saturating_sub(position);
            let within = position % PAGE;
            let count = (PAGE - within).min(left).min(destination.remaining() as u64) as usize;
            if count == 0 {
                break;
            }
            let frame = match self.frame_for_reading(position / PAGE) {
                Ok(frame) => frame,
                Err(error) => return partial(done, error),
            };
            let copied = destination.put_frame(&**self.fs.pool.bytes(), frame.frame(), within as usize, count);
            done += copied;
            if copied < count {
                return partial(done, Errno::EFAULT);
            }
            if pace.page_unless_killed().is_err() {
                return Ok(done);
            }
        }
        Ok(done)
    }

    /// The frame of a page that is there and not doubted.
    fn frame_at_hand(&self, index: u64) -> Option<FrameRef> {
        let state = self.state.lock();
        state.pages.get(&index).filter(|page| !page.is_doubted).map(|page| page.frame.clone())
    }

    fn frame_for_reading(&self, index: u64) -> Result<FrameRef> {
        if let Some(frame) = self.frame_at_hand(index) {
            return Ok(frame);
        }
        let run = {
            let mut state = self.state.lock();
            let goes_on = index == state.read_end;
            let doubled = if goes_on { state.read_window * 2 } else { 0 };
            state.read_window = doubled.clamp(RUN_PAGES_MIN, RUN_PAGES_MAX);
            index..index.saturating_add(state.read_window)
        };
        let end = run.end;
        let frame = self.read_run(run, index)?;
        self.state.lock().read_end = end;
        Ok(frame)
    }

    /// A page for a mapping, by the rules of [`crate::mem::source::PageSource`].
    pub(super) fn page_for_mapping(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        let is_write = intent == PageIntent::WriteShared;
        if is_write && self.fs.is_fixed() {
            return Err(PageError::Failed);
        }
        let valid_bytes = valid_bytes(self.size_bytes(), index).ok_or(PageError::BeyondEnd)?;
        let frame = match self.frame_at_hand(index) {
            Some(frame) => frame,
            None => {
                let start = index & !(FAULT_PAGES - 1);
                self.read_run(start..start + FAULT_PAGES, index).map_err(|error| match error {
                    Errno::ENOMEM => PageError::OutOfMemory,
                    _ => PageError::Failed,
                })?
            }
        };
        if is_write {
            self.note_dirty(index, &frame)?;
        }
        Ok(FilePage { frame, valid_bytes })
    }

    /// The page, if that takes no request.
    pub(super) fn page_at_hand(&self, index: u64) -> Option<FilePage> {
        let valid_bytes = valid_bytes(self.size_bytes(), index)?;
        self.frame_at_hand(index).map(|frame| FilePage { frame, valid_bytes })
    }

    fn note_dirty(&self, index: u64, frame: &FrameRef) -> core::result::Result<(), PageError> {
        let own = self.own.upgrade().ok_or(PageError::Failed)?;
        {
            let mut state = self.state.lock();
            match state.pages.get_mut(&index) {
                Some(page) if page.frame.frame() == frame.frame() => page.is_dirty = true,
                _ => return Err(PageError::Failed),
            }
        }
        self.fs.dirty_files.lock().insert(self.number, own);
        Ok(())
    }

    /// Reads those pages of `run` that are not at hand, and returns the frame of `wanted`, which somebody else may have
    /// read meanwhile.
    pub(super) fn read_run(&self, run: Range<u64>, wanted: u64) -> Result<FrameRef> {
        let size_bytes = self.size_bytes();
        let end = run.end.min(size_bytes.div_ceil(PAGE));
        let targets = match self.targets(run.start..end, wanted)? {
            Missing::Nothing(frame) => return Ok(frame),
            Missing::Pages(targets) => targets,
        };
        let (Some(first), Some(last)) = (targets.first(), targets.last()) else { return Err(Errno::EIO) };
        let start = first.index * PAGE;
        let length = (last.index * PAGE + PAGE).min(size_bytes).saturating_sub(start);
        let fid = self.opened(false)?;
        let done = self.read_into(&fid, start, length, &targets)?;
        for target in &targets {
            let from = (start + done).saturating_sub(target.index * PAGE).min(PAGE) as usize;
            zero_range(&self.fs.pool, &target.frame, from);
        }
        self.take_over(targets, wanted)
    }

    /// What of `run` is to be read if `wanted` is not there: pages that are not there get frames, as far as there is
    /// memory.
    fn targets(&self, run: Range<u64>, wanted: u64) -> Result<Missing> {
        let known: Vec<_> = {
            let state = self.state.lock();
            if let Some(page) = state.pages.get(&wanted).filter(|page| !page.is_doubted) {
                return Ok(Missing::Nothing(page.frame.clone()));
            }
            run.map(|index| (index, state.pages.get(&index).map(|page| (page.frame.clone(), page.is_doubted))))
                .collect()
        };
        let mut targets = Vec::new();
        for (index, known) in known {
            match known {
                Some((_, false)) => {}
                Some((frame, true)) => targets.push(Target { index, frame, is_new: false }),
                None => match self.fs.pool.allocate() {
                    Ok(frame) => targets.push(Target { index, frame: self.fs.pool.adopt(frame), is_new: true }),
                    Err(error) if index <= wanted => return Err(error),
                    Err(_) => break,
                },
            }
        }
        Ok(Missing::Pages(targets))
    }

    /// Reads `length` bytes from `start` on into the targets; returns how many there were.
    fn read_into(&self, fid: &Arc<Fid>, start: u64, length: u64, targets: &[Target]) -> Result<u64> {
        let payload_bytes_max = self.fs.session.payload_bytes_max() as u64;
        let mut done = 0;
        for _ in 0..REPLY_COUNT_MAX {
            if done == length {
                return Ok(done);
            }
            let count = (length - done).min(payload_bytes_max);
            let offset = start + done;
            let got = self.fs.session.call(
                Request::Read,
                |writer| {
                    writer.u32(fid.number()).u64(offset).u32(count as u32);
                },
                |reply| {
                    let data = reply.data(count as usize)?;
                    self.scatter(data, offset, targets);
                    Some(data.len() as u64)
                },
            )?;
            if got == 0 {
                return Ok(done);
            }
            done += got;
        }
        if done == length { Ok(done) } else { Err(Errno::EIO) }
    }

    /// Copies `data`, which is at `offset` in the file, into the targets that it covers.
    fn scatter(&self, data: &[u8], offset: u64, targets: &[Target]) {
        let end = offset + data.len() as u64;
        for target in targets {
            let page_start = target.index * PAGE;
            let (from, to) = (offset.max(page_start), end.min(page_start + PAGE));
            if from < to {
                let bytes = &data[(from - offset) as usize..(to - offset) as usize];
                self.fs.pool.bytes().write(target.frame.frame(), (from - page_start) as usize, bytes);
            }
        }
    }

    /// Makes what was read the file's pages. Where somebody was faster, theirs stay.
    fn take_over(&self, targets: Vec<Target>, wanted: u64) -> Result<FrameRef> {
        let mut found = None;
        let mut added = Vec::new();
        {
            let mut state = self.state.lock();
            for Target { index, frame, is_new } in targets {
                let page = match state.pages.get_mut(&index) {
                    Some(page) => {
                        page.is_doubted &= page.frame.frame() != frame.frame();
                        page
                    }
                    None => {
                        if is_new {
                            added.push(index);
                        }
                        state.pages.entry(index).or_insert(Page { frame, is_doubted: false, is_dirty: false })
                    }
                };
                if index == wanted {
                    found = Some(page.frame.clone());
                }
            }
        }
        self.fs.cache.add(&self.own, added.into_iter());
        found.ok_or(Errno::EIO)
    }

    /// Writes to the server; cached pages follow. Returns where the write began and how many bytes it took.
    pub(super) fn write_through(
        &self,
        position: WritePosition,
        source: &mut dyn Source,
        now: Timestamp,
    ) -> Result<(u64, usize)> {
        let fid = self.opened(true)?;
        // Else two who append would both be told the same end.
        let _appending = matches!(position, WritePosition::End).then(|| self.appending.lock());
        let begin = match position {
            WritePosition::At(offset) => offset,
            WritePosition::End => {
                self.refresh(0);
                self.size_bytes()
            }
        };
        let mut chunk = Vec::new();
        let length = source.remaining().min(WRITE_BYTES_MAX).min(self.fs.session.payload_bytes_max());
        chunk.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        chunk.resize(length, 0);
        let mut done = 0;
        while source.remaining() > 0 {
            let wanted = source.remaining().min(chunk.len());
            let taken = source.take(&mut chunk[..wanted]);
            if taken == 0 {
                return partial(done, Errno::EFAULT).map(|count| (begin, count));
            }
            let offset = begin.saturating_add(done as u64);
            let room = OFFSET_MAX.saturating_sub(offset).min(taken as u64) as usize;
            if room == 0 {
                return partial(done, Errno::EFBIG).map(|count| (begin, count));
            }
            match self.send(&fid, offset, &chunk[..room]) {
                Ok(written) => {
                    self.note_written(offset, &chunk[..written], now);
                    done += written;
                    if written < wanted || preempt::unless_killed().is_err() {
                        break;
                    }
                }
                Err(error) => return partial(done, error).map(|count| (begin, count)),
            }
        }
        Ok((begin, done))
    }

    /// Sends `bytes` to be written at `offset`; how many were.
    fn send(&self, fid: &Arc<Fid>, offset: u64, bytes: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let written = self.fs.session.call(
                Request::Write,
                |writer| {
                    writer.u32(fid.number()).u64(offset + done as u64).data(rest);
                },
                |mut reply| reply.u32().map(|count| count as usize).filter(|count| *count <= rest.len()),
            );
            match written {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Brings cached pages and attributes up to a write that the server has taken.
    fn note_written(&self, offset: u64, bytes: &[u8], now: Timestamp) {
        let end = offset + bytes.len() as u64;
        let stamp = self.fs.stamp();
        let mut state = self.state.lock();
        let pages = state.pages.range(offset / PAGE..end.div_ceil(PAGE));
        for (index, page) in pages.filter(|(_, page)| !page.is_doubted) {
            let page_start = index * PAGE;
            let (from, to) = (offset.max(page_start), end.min(page_start + PAGE));
            let part = &bytes[(from - offset) as usize..(to - offset) as usize];
            self.fs.pool.bytes().write(page.frame.frame(), (from - page_start) as usize, part);
        }
        let attributes = &mut state.attributes;
        attributes.size_bytes = attributes.size_bytes.max(end);
        attributes.modified = now;
        attributes.changed = now;
        state.written = Some(stamp);
        state.change_count += 1;
    }

    /// Sets the size, at the server and here.
    pub(super) fn resize(&self, size_bytes: u64, now: Timestamp) -> Result<()> {
        if size_bytes > OFFSET_MAX {
            return Err(Errno::EFBIG);
        }
        // The server goes by names: of one that has none the end is cut off here, and what is behind it becomes zeros.
        match self.is_unlinked() {
            true => self.clear_from(size_bytes)?,
            false => self.send_attributes(SetAttributes::default(), Some(size_bytes))?,
        }
        let gone = {
            let mut state = self.state.lock();
            let attributes = &mut state.attributes;
            attributes.size_bytes = size_bytes;
            attributes.modified = now;
            attributes.changed = now;
            state.change_count += 1;
            if let Some(page) = state.pages.get(&(size_bytes / PAGE)) {
                zero_range(&self.fs.pool, &page.frame, (size_bytes % PAGE) as usize);
            }
            state.pages.split_off(&size_bytes.div_ceil(PAGE))
        };
        self.fs.cache.remove(gone.len() as u64);
        Ok(())
    }

    /// Writes zeros from `first` to the file's end at the server.
    fn clear_from(&self, first: u64) -> Result<()> {
        const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        let (mut at, end) = (first, self.size_bytes());
        if at >= end {
            return Ok(());
        }
        let fid = self.opened(true)?;
        let mut pace = Pace::default();
        while at < end {
            let count = (end - at).min(PAGE - at % PAGE) as usize;
            if self.send(&fid, at, &ZEROS[..count])? < count {
                return Err(Errno::EIO);
            }
            at += count as u64;
            pace.offer_page();
        }
        Ok(())
    }

    /// Writes every page that a shared mapping may have stored to. Pages that nobody maps any more are clean then.
    pub(super) fn write_dirty_pages(&self) -> Result<()> {
        let dirty: Vec<(u64, FrameRef)> = {
            let state = self.state.lock();
            let dirty = state.pages.iter().filter(|(_, page)| page.is_dirty);
            dirty.map(|(index, page)| (*index, page.frame.clone())).collect()
        };
        if dirty.is_empty() {
            return Ok(());
        }
        let fid = self.opened(true)?;
        let mut bytes = alloc::vec![0; PAGE_BYTES];
        let (mut outcome, mut pace) = (Ok(()), Pace::default());
        for (index, frame) in dirty {
            let Some(count) = valid_bytes(self.size_bytes(), index) else { continue };
            self.fs.pool.bytes().read(frame.frame(), 0, &mut bytes);
            let sent = self.send(&fid, index * PAGE, &bytes[..count]);
            outcome = outcome.and(sent.and_then(|sent| if sent == count { Ok(()) } else { Err(Errno::EIO) }));
            pace.offer_page();
        }
        self.forget_clean_pages();
        outcome
    }

    /// Pages that were written and are mapped no more can go again like others.
    fn forget_clean_pages(&self) {
        let is_clean = {
            let mut state = self.state.lock();
            for page in state.pages.values_mut() {
                page.is_dirty &= self.fs.pool.reference_count(page.frame.frame()) != 1;
            }
            !state.pages.values().any(|page| page.is_dirty)
        };
        if is_clean {
            let gone = self.fs.dirty_files.lock().remove(&self.number);
            drop(gone);
        }
    }
}

/// Zeros behind byte `from` of a page.
fn zero_range(pool: &FramePool, page: &FrameRef, from: usize) {
    const ZEROS: [u8; 512] = [0; 512];
    let mut at = from;
    while at < PAGE_BYTES {
        let step = (PAGE_BYTES - at).min(ZEROS.len());
        pool.bytes().write(page.frame(), at, &ZEROS[..step]);
        at += step;
    }
}
