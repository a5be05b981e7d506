//! Pages of a disk: what buffered reads and writes go through.
//!
//! A page is read before a part of it changes, and written back at `fsync`, at the last close, at `sync`, before a
//! transfer past the cache meets it, and when there are more than [`DIRTY_PAGE_COUNT_MAX`] dirty ones: the writer does
//! that itself then. Pages are dropped oldest first when there are more than the cache may have.
//!
//! Invariants: the lock is held over waits for the disk, never while bytes go to or from a program (INV-F1): those go
//! to frames that a reference holds. A page is in the map only when its bytes are the disk's, or newer. A page whose
//! write-back has failed counts as clean, as on Linux; the error is told by the next `fsync` of each open file.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use aegis_abi::layout::PAGE_SIZE;

use super::device::DiskDevice;
use super::disk::{DiskOperation, SECTOR_BYTES};
use crate::error::{Errno, Result};
use crate::fs::transfer::{Destination, Source, partial};
use crate::mem::frames::{FramePool, FrameRef};
use crate::mem::pinned::PinnedMemory;
use crate::preempt;
use crate::sync::Mutex;

const PAGE_BYTES: usize = PAGE_SIZE as usize;
const PAGE_SECTORS: u64 = PAGE_SIZE / SECTOR_BYTES as u64;
/// Dirty pages of a disk.
const DIRTY_PAGE_COUNT_MAX: usize = 1024;
/// Of how many frames of the pod a disk's pages may take one, and how many it may have in any pod.
const PAGE_SHARE: u64 = 8;
const PAGE_COUNT_MIN: u64 = 64;
const PAGE_COUNT_MAX: u64 = 16_384;
/// Pages that go to or from a program between two looks at the map.
const STEP_PAGES: u64 = 16;
/// Pages of one transfer.
const RUN_PAGES: u64 = 256;

#[derive(Default)]
struct Pages {
    map: BTreeMap<u64, FrameRef>,
    dirty: BTreeSet<u64>,
    /// Oldest first; may name pages that are gone.
    ages: VecDeque<u64>,
}

/// Pages of a disk.
pub(super) struct DiskCache {
    pool: Arc<FramePool>,
    pages: Mutex<Pages>,
    page_count: AtomicUsize,
    /// Write-backs that failed.
    error_count: AtomicU64,
}

/// Pages that bytes are in.
fn pages_of(offset: u64, count: u64) -> Range<u64> {
    offset / PAGE_SIZE..offset.saturating_add(count).div_ceil(PAGE_SIZE)
}

impl DiskCache {
    pub(super) fn new(pool: Arc<FramePool>) -> Self {
        Self { pool, pages: Mutex::default(), page_count: AtomicUsize::new(0), error_count: AtomicU64::new(0) }
    }

    /// Write-backs that failed so far.
    pub(super) fn error_count(&self) -> u64 {
        self.error_count.load(Ordering::Relaxed)
    }

    pub(super) fn page_count(&self) -> usize {
        self.page_count.load(Ordering::Relaxed)
    }

    /// Bytes from `offset` on, which is before the end at `size_bytes`; up to `ahead` pages more are read with them.
    pub(super) fn read(
        &self,
        device: &DiskDevice,
        mut offset: u64,
        size_bytes: u64,
        ahead: u64,
        destination: &mut dyn Destination,
    ) -> Result<usize> {
        let mut done = 0;
        while destination.remaining() > 0 && offset < size_bytes {
            let left = (destination.remaining() as u64).min(size_bytes - offset);
            let wanted = pages_of(offset, left);
            let step = wanted.start..wanted.end.min(wanted.start + STEP_PAGES);
            let last = (wanted.end + ahead).min(size_bytes.div_ceil(PAGE_SIZE)).min(step.start + RUN_PAGES);
            let frames = match self.frames(device, step.clone(), last.max(step.end)) {
                Ok(frames) => frames,
                Err(error) => return partial(done, error),
            };
            for frame in &frames {
                let start = (offset % PAGE_SIZE) as usize;
                let count = (PAGE_BYTES - start).min(destination.remaining()).min((size_bytes - offset) as usize);
                let copied = destination.put_frame(&**self.pool.bytes(), frame.frame(), start, count);
                (done, offset) = (done + copied, offset + copied as u64);
                if copied < count {
                    return partial(done, Errno::EFAULT);
                }
            }
            drop(frames);
            if preempt::unless_killed().is_err() {
                return partial(done, Errno::EINTR);
            }
        }
        Ok(done)
    }

    /// The frames of pages, read if need be, with those behind them up to `last`.
    fn frames(&self, device: &DiskDevice, wanted: Range<u64>, last: u64) -> Result<Vec<FrameRef>> {
        let mut frames = Vec::with_capacity(STEP_PAGES as usize);
        let mut pages = self.pages.lock();
        for index in wanted.clone() {
            if let Some(frame) = pages.map.get(&index) {
                frames.push(frame.clone());
                continue;
            }
            let end = pages.map.range(index..last).next().map_or(last, |(next, _)| *next);
            match self.fill(device, &mut pages, index..end) {
                Err(Errno::EIO) if end > wanted.end.max(index + 1) => {
                    // What was only read ahead may be what cannot be read.
                    self.fill(device, &mut pages, index..wanted.end)?;
                }
                outcome => outcome?,
            }
            frames.push(pages.map.get(&index).cloned().ok_or(Errno::EIO)?);
        }
        Ok(frames)
    }

    /// Reads pages that are not there.
    fn fill(&self, device: &DiskDevice, pages: &mut Pages, wanted: Range<u64>) -> Result<()> {
        self.make_room(device, pages, wanted.end - wanted.start)?;
        let sector_count_max = device.limits()?.sector_count;
        let mut frames = Vec::new();
        frames.try_reserve((wanted.end - wanted.start) as usize).map_err(|_| Errno::ENOMEM)?;
        let mut memory = PinnedMemory::new(self.pool.clone());
        for index in wanted.clone() {
            let sector_count = PAGE_SECTORS.min(sector_count_max.saturating_sub(index * PAGE_SECTORS));
            let frame = match self.pool.allocate_ref() {
                Ok(frame) if sector_count > 0 => frame,
                // As many as there are memory and sectors for.
                _ => break,
            };
            self.pool.retain(frame.frame());
            memory.push(frame.frame(), 0, sector_count as u32 * SECTOR_BYTES)?;
            frames.push(frame);
        }
        if frames.is_empty() {
            return Err(Errno::ENOMEM);
        }
        let sector_count = memory.byte_count() / u64::from(SECTOR_BYTES);
        device.transfer(DiskOperation::Read, wanted.start * PAGE_SECTORS, sector_count, Some(memory))?;
        for (index, frame) in wanted.zip(frames) {
            self.keep(pages, index, frame);
        }
        Ok(())
    }

    fn keep(&self, pages: &mut Pages, index: u64, frame: FrameRef) {
        if pages.map.insert(index, frame).is_none() {
            pages.ages.push_back(index);
        }
        self.page_count.store(pages.map.len(), Ordering::Relaxed);
    }

    fn page_count_max(&self) -> u64 {
        (self.pool.statistics().limit / PAGE_SHARE).clamp(PAGE_COUNT_MIN, PAGE_COUNT_MAX)
    }

    /// Drops old pages until there is room for so many; writes back if it has to.
    fn make_room(&self, device: &DiskDevice, pages: &mut Pages, count: u64) -> Result<()> {
        let count_max = self.page_count_max().saturating_sub(count) as usize;
        for _ in 0..2 {
            let mut looks = pages.ages.len();
            while pages.map.len() > count_max && looks > 0 {
                looks -= 1;
                let Some(oldest) = pages.ages.pop_front() else { break };
                if pages.dirty.contains(&oldest) {
                    pages.ages.push_back(oldest);
                } else {
                    pages.map.remove(&oldest);
                }
            }
            if pages.map.len() <= count_max {
                break;
            }
            self.write_range(device, pages, 0..u64::MAX)?;
        }
        self.page_count.store(pages.map.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes bytes for `offset` on, before the end at `size_bytes`; they are dirty then.
    pub(super) fn write(
        &self,
        device: &DiskDevice,
        mut offset: u64,
        size_bytes: u64,
        source: &mut dyn Source,
    ) -> Result<usize> {
        let mut done = 0;
        while source.remaining() > 0 && offset < size_bytes {
            let start = (offset % PAGE_SIZE) as usize;
            let left = (source.remaining() as u64).min(size_bytes - offset);
            let count = ((PAGE_BYTES - start) as u64).min(left) as usize;
            let is_whole = start == 0 && (count == PAGE_BYTES || offset + count as u64 == size_bytes);
            let copied = match self.write_page(device, offset, count, is_whole, source) {
                Ok(copied) => copied,
                Err(error) => return partial(done, error),
            };
            (done, offset) = (done + copied, offset + copied as u64);
            if copied < count {
                return partial(done, Errno::EFAULT);
            }
            if done.is_multiple_of(preempt::PIECE_BYTES) && preempt::unless_killed().is_err() {
                return partial(done, Errno::EINTR);
            }
        }
        Ok(done)
    }

    /// The bytes of one page.
    fn write_page(
        &self,
        device: &DiskDevice,
        offset: u64,
        count: usize,
        is_whole: bool,
        source: &mut dyn Source,
    ) -> Result<usize> {
        let (index, start) = (offset / PAGE_SIZE, (offset % PAGE_SIZE) as usize);
        let present = self.pages.lock().map.get(&index).cloned();
        let is_new = present.is_none() && is_whole;
        let frame = match present {
            Some(frame) => frame,
            None if is_whole => {
                self.make_room(device, &mut self.pages.lock(), 1)?;
                self.pool.allocate_ref()?
            }
            None => self.frames(device, index..index + 1, index + 1)?.pop().ok_or(Errno::EIO)?,
        };
        let copied = self.take(source, &frame, start, count);
        if copied == 0 || (is_new && copied < count) {
            // What is not there whole is not the page.
            return if is_new && copied > 0 { self.merge(device, index, &frame, copied) } else { Ok(copied) };
        }
        let mut pages = self.pages.lock();
        let kept = pages.map.get(&index).cloned();
        match kept {
            // Another has it, or it was dropped meanwhile: these bytes are newer.
            Some(kept) if kept.frame() != frame.frame() => {
                self.copy(&frame, &kept, start, copied);
            }
            Some(_) => {}
            None => self.keep(&mut pages, index, frame),
        }
        pages.dirty.insert(index);
        if pages.dirty.len() >= DIRTY_PAGE_COUNT_MAX {
            self.write_range(device, &mut pages, 0..u64::MAX)?;
        }
        Ok(copied)
    }

    /// The first bytes of a page that was to be written whole, of which the rest could not be had.
    #[cold]
    fn merge(&self, device: &DiskDevice, index: u64, from: &FrameRef, count: usize) -> Result<usize> {
        let frame = self.frames(device, index..index + 1, index + 1)?.pop().ok_or(Errno::EIO)?;
        self.copy(from, &frame, 0, count);
        let mut pages = self.pages.lock();
        self.keep(&mut pages, index, frame);
        pages.dirty.insert(index);
        Ok(count)
    }

    fn copy(&self, from: &FrameRef, to: &FrameRef, start: usize, count: usize) {
        let mut bytes = [0; 512];
        let mut done = 0;
        while done < count {
            let step = (count - done).min(bytes.len());
            self.pool.bytes().read(from.frame(), start + done, &mut bytes[..step]);
            self.pool.bytes().write(to.frame(), start + done, &bytes[..step]);
            done += step;
        }
    }

    /// Copies a program's bytes into a frame; how many.
    fn take(&self, source: &mut dyn Source, frame: &FrameRef, start: usize, count: usize) -> usize {
        let bytes = &**self.pool.bytes();
        let mut done = source.take_frame_nofault(bytes, frame.frame(), start, count);
        let mut bounce = [0; 512];
        while done < count {
            let step = (count - done).min(bounce.len());
            let taken = source.take(&mut bounce[..step]);
            bytes.write(frame.frame(), start + done, &bounce[..taken]);
            done += taken;
            if taken < step {
                break;
            }
        }
        done
    }

    /// Writes back all that is dirty.
    pub(super) fn write_back(&self, device: &DiskDevice) -> Result<()> {
        if self.page_count() == 0 {
            return Ok(());
        }
        self.write_range(device, &mut self.pages.lock(), 0..u64::MAX)
    }

    /// Has nothing of these bytes that is newer than the disk, and with `forgets` nothing at all: a transfer goes past
    /// the cache.
    pub(super) fn settle(&self, device: &DiskDevice, offset: u64, count: u64, forgets: bool) -> Result<()> {
        if self.page_count() == 0 {
            return Ok(());
        }
        let mut pages = self.pages.lock();
        let range = pages_of(offset, count);
        let outcome = self.write_range(device, &mut pages, range.clone());
        if forgets {
            let gone: Vec<u64> = pages.map.range(range).map(|(index, _)| *index).collect();
            gone.iter().for_each(|index| drop(pages.map.remove(index)));
            if !gone.is_empty() {
                let Pages { map, ages, .. } = &mut *pages;
                ages.retain(|index| map.contains_key(index));
            }
            self.page_count.store(pages.map.len(), Ordering::Relaxed);
        }
        outcome
    }

    /// Writes dirty pages back, neighbours together.
    fn write_range(&self, device: &DiskDevice, pages: &mut Pages, range: Range<u64>) -> Result<()> {
        let mut outcome = Ok(());
        let mut next = range.start;
        while let Some(&first) = pages.dirty.range(next..range.end).next() {
            let mut end = first + 1;
            while end < range.end && end - first < RUN_PAGES && pages.dirty.contains(&end) {
                end += 1;
            }
            let written = self.write_run(device, pages, first..end);
            if written.is_err() {
                self.error_count.fetch_add(1, Ordering::Relaxed);
            }
            outcome = outcome.and(written);
            for index in first..end {
                pages.dirty.remove(&index);
            }
            next = end;
        }
        outcome
    }

    fn write_run(&self, device: &DiskDevice, pages: &Pages, run: Range<u64>) -> Result<()> {
        let sector_count_max = device.limits()?.sector_count;
        let mut memory = PinnedMemory::new(self.pool.clone());
        for index in run.clone() {
            let sector_count = PAGE_SECTORS.min(sector_count_max.saturating_sub(index * PAGE_SECTORS));
            let frame = pages.map.get(&index).ok_or(Errno::EIO)?;
            self.pool.retain(frame.frame());
            memory.push(frame.frame(), 0, sector_count as u32 * SECTOR_BYTES)?;
        }
        let sector_count = memory.byte_count() / u64::from(SECTOR_BYTES);
        device.transfer(DiskOperation::Write, run.start * PAGE_SECTORS, sector_count, Some(memory))
    }
}
