//! The contents of a regular file: pages by index, over the base's pages where it has a base.

use aegis_abi::FrameNumber;
use core::ops::Range;

use super::super::page::{PAGE_BYTES, valid_bytes};
use super::super::transfer::SliceDestination;
use super::super::vnode::{InodeRef, OFFSET_MAX, SeekTarget};
use super::MemoryFs;
use super::page_map::{PageMap, Taken};
use crate::error::{Errno, Result};
use crate::mem::frames::{FixedRun, FrameRef};
use crate::mem::source::{FilePage, PageError, PageIntent};

const PAGE: u64 = PAGE_BYTES as u64;

/// Pages of a file that are looked at, made or freed under one lock.
pub(super) const PIECE_PAGES: u64 = 128;

/// Pages that were taken out of a file, and holes.
pub(super) type Pages = Taken<Option<FrameRef>>;

/// Contents of a file. Bytes behind `size_bytes` in the last page are zero.
#[derive(Default)]
pub(super) struct Content {
    pub(super) size_bytes: u64,
    /// Own pages. `None`: a hole where the base has a page.
    pages: PageMap<Option<FrameRef>>,
    own_page_count: u64,
    /// How much of the base still shows, where there is no own page.
    base_bytes: u64,
    /// All of the base shows.
    is_base_whole: bool,
}

/// What backs a page.
pub(super) enum Backing {
    Own(FrameRef),
    /// The base, up to this many bytes of the page.
    Base(usize),
    Zeros,
}

impl Content {
    /// All of the base shows.
    pub(super) fn over(base_bytes: u64) -> Self {
        Self { size_bytes: base_bytes, base_bytes, is_base_whole: true, ..Self::default() }
    }

    /// Pages that are not holes.
    pub(super) fn block_page_count(&self) -> u64 {
        let base_pages = self.base_bytes.div_ceil(PAGE);
        if base_pages == 0 {
            return self.own_page_count;
        }
        base_pages - self.pages.count_below(base_pages) + self.own_page_count
    }

    /// Pages of the base that may show.
    pub(super) fn base_page_count(&self) -> u64 {
        self.base_bytes.div_ceil(PAGE)
    }

    pub(super) fn own_page_count(&self) -> u64 {
        self.own_page_count
    }

    /// The frame of the file's own page `index`, for as long as the content is locked.
    #[inline]
    pub(super) fn own_frame(&self, index: u64) -> Option<FrameNumber> {
        self.pages.get(index)?.as_ref().map(FrameRef::frame)
    }

    pub(super) fn backing(&self, index: u64) -> Backing {
        match self.pages.get(index) {
            Some(Some(page)) => Backing::Own(page.clone()),
            Some(None) => Backing::Zeros,
            None => match self.base_bytes.saturating_sub(index.saturating_mul(PAGE)).min(PAGE) {
                0 => Backing::Zeros,
                count => Backing::Base(count as usize),
            },
        }
    }

    /// The file's own page `index`, made from the base or from zeros if there is none.
    pub(super) fn own_page(&mut self, fs: &MemoryFs, base: Option<&InodeRef>, index: u64) -> Result<FrameRef> {
        let base_count = match self.backing(index) {
            Backing::Own(page) => return Ok(page),
            Backing::Base(count) => count,
            Backing::Zeros => 0,
        };
        fs.take_page()?;
        let page = fs.pool.allocate_ref().inspect_err(|_| fs.give_pages(1))?;
        if let (Some(base), 1..) = (base, base_count) {
            let filled = copy_from_base(fs, base, index, base_count, &page);
            filled.inspect_err(|_| fs.give_pages(1))?;
        }
        self.pages.insert(index, Some(page.clone()));
        self.own_page_count += 1;
        Ok(page)
    }

    /// The file's own page `index` for a call that writes: a new one may not take from the reserve.
    fn page_to_write(&mut self, fs: &MemoryFs, base: Option<&InodeRef>, index: u64) -> Result<FrameRef> {
        if let Backing::Own(page) = self.backing(index) {
            return Ok(page);
        }
        fs.check_reserve()?;
        // Frames that the pool may have and the kernel has not: for a file there is no room either way.
        let page = self.own_page(fs, base, index);
        page.map_err(|error| if error == Errno::ENOMEM { Errno::ENOSPC } else { error })
    }

    /// Writes `bytes` at `offset`, page by page; returns how many before an error stopped it.
    pub(super) fn write(
        &mut self,
        fs: &MemoryFs,
        base: Option<&InodeRef>,
        offset: u64,
        bytes: &[u8],
    ) -> (usize, Option<Errno>) {
        let mut done = 0;
        while done < bytes.len() {
            let position = offset + done as u64;
            let within = (position % PAGE) as usize;
            let count = (PAGE_BYTES - within).min(bytes.len() - done);
            match self.page_to_write(fs, base, position / PAGE) {
                Ok(page) => {
                    fs.pool.bytes().write(page.frame(), within, &bytes[done..done + count]);
                }
                Err(error) => return (done, Some(error)),
            }
            done += count;
            self.size_bytes = self.size_bytes.max(position + count as u64);
        }
        (done, None)
    }

    /// Sets the size; what is cut off will read as zeros if the file grows again. The pages that are cut off are the
    /// caller's: it drops them without a lock and tells [`Self::note_dropped`].
    pub(super) fn resize(&mut self, fs: &MemoryFs, size_bytes: u64) -> Result<Option<Pages>> {
        if size_bytes > OFFSET_MAX {
            return Err(Errno::EFBIG);
        }
        let mut cut_off = None;
        // A file that does not shrink may still have room behind its end.
        if size_bytes <= self.size_bytes {
            self.is_base_whole &= size_bytes >= self.base_bytes;
            self.base_bytes = self.base_bytes.min(size_bytes);
            cut_off = Some(self.pages.take(size_bytes.div_ceil(PAGE)..u64::MAX));
            if let Some(Some(page)) = self.pages.get(size_bytes / PAGE) {
                zero_range(fs, page, (size_bytes % PAGE) as usize, PAGE_BYTES);
            }
        }
        self.size_bytes = size_bytes;
        Ok(cut_off)
    }

    /// So many own pages that were taken out are dropped.
    pub(super) fn note_dropped(&mut self, fs: &MemoryFs, count: u64) {
        self.give_back(fs, count);
    }

    /// All pages, of a file that is gone.
    pub(super) fn take_pages(&mut self) -> Pages {
        self.pages.take_all()
    }

    /// The end of the first piece of a range of bytes, in which at most [`PIECE_PAGES`] pages have to be looked at.
    pub(super) fn piece_end(&self, start: u64, end: u64) -> u64 {
        let index = start / PAGE;
        let first = if index < self.base_page_count() { Some(index) } else { self.pages.next_index(index) };
        let behind = first.map(|first| first.saturating_add(PIECE_PAGES).saturating_mul(PAGE));
        behind.map_or(end, |behind| behind.min(end))
    }

    /// Makes the range read as zeros and frees its whole pages.
    pub(super) fn punch(&mut self, fs: &MemoryFs, base: Option<&InodeRef>, start: u64, end: u64) -> Result<()> {
        let end = end.min(self.size_bytes);
        if start >= end {
            return Ok(());
        }
        // The rest of the last page is zeros anyway, so a range up to the end takes it whole.
        let whole_end = if end == self.size_bytes { end.div_ceil(PAGE) } else { end / PAGE };
        let whole_start = start.div_ceil(PAGE);
        for (from, to) in
            [(start, end.min(whole_start.saturating_mul(PAGE))), (start.max((whole_end * PAGE).min(end)), end)]
        {
            if from < to && !matches!(self.backing(from / PAGE), Backing::Zeros) {
                let page = self.own_page(fs, base, from / PAGE)?;
                let first = (from % PAGE) as usize;
                zero_range(fs, &page, first, first + (to - from) as usize);
            }
        }
        if whole_start < whole_end {
            let freed = self.pages.take(whole_start..whole_end);
            self.give_back(fs, freed.flatten().count() as u64);
            let base_pages = self.base_bytes.div_ceil(PAGE);
            for index in whole_start..whole_end.min(base_pages) {
                self.pages.insert(index, None);
            }
        }
        Ok(())
    }

    /// Makes own pages for the whole range, which is short, so that later writes cannot fail for space. On error those
    /// made so far stay.
    pub(super) fn reserve(&mut self, fs: &MemoryFs, base: Option<&InodeRef>, start: u64, end: u64) -> Result<()> {
        for index in start / PAGE..end.div_ceil(PAGE) {
            self.page_to_write(fs, base, index)?;
        }
        Ok(())
    }

    /// `SEEK_DATA` and `SEEK_HOLE` by pages.
    pub(super) fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        if offset >= self.size_bytes {
            return Err(Errno::ENXIO);
        }
        let mut index = offset / PAGE;
        let end_index = self.size_bytes.div_ceil(PAGE);
        while index < end_index {
            let is_hole = matches!(self.backing(index), Backing::Zeros);
            if is_hole == (target == SeekTarget::Hole) {
                return Ok(offset.max(index * PAGE));
            }
            index = if is_hole { self.next_data_index(index + 1, end_index) } else { index + 1 };
        }
        match target {
            SeekTarget::Hole => Ok(self.size_bytes),
            SeekTarget::Data => Err(Errno::ENXIO),
        }
    }

    /// A lower bound for the next page with data, so that a huge hole is passed in one step.
    fn next_data_index(&self, index: u64, end_index: u64) -> u64 {
        if index < self.base_bytes.div_ceil(PAGE) {
            return index;
        }
        self.pages.next_index(index).unwrap_or(end_index)
    }

    /// The page for a mapping. A hole becomes a page, so that all mappings of it show the same frame.
    pub(super) fn page(
        &mut self,
        fs: &MemoryFs,
        base: Option<&InodeRef>,
        index: u64,
        intent: PageIntent,
    ) -> core::result::Result<FilePage, PageError> {
        let valid_bytes = valid_bytes(self.size_bytes, index).ok_or(PageError::BeyondEnd)?;
        if intent == PageIntent::Read {
            if let Some(page) = self.resident_page(base, index) {
                return Ok(page);
            }
            // A base that has pages, but none at hand yet. Where it cannot give them, its bytes are copied.
            if let (Backing::Base(shown), Some(base)) = (self.backing(index), base)
                && let Ok(page) = base.page(index, intent)
                && page.valid_bytes == shown
            {
                return Ok(FilePage { valid_bytes, ..page });
            }
        }
        // One that the file does not have yet, and that no image has either, unless it is to be changed.
        let is_new = match self.backing(index) {
            Backing::Own(_) => false,
            Backing::Base(_) => intent == PageIntent::WriteShared,
            Backing::Zeros => true,
        };
        if is_new && !fs.has_room_for_mapping() {
            return Err(PageError::Failed);
        }
        let made = self.own_page(fs, base, index).map_err(|error| match error {
            Errno::ENOMEM => PageError::OutOfMemory,
            _ => PageError::Failed,
        });
        made.map(|frame| FilePage { frame, valid_bytes })
    }

    /// The page for a mapping that reads, if there is one: the file's own, or the image's if all that it
    /// shows is the file's.
    pub(super) fn resident_page(&self, base: Option<&InodeRef>, index: u64) -> Option<FilePage> {
        let valid_bytes = valid_bytes(self.size_bytes, index)?;
        match self.backing(index) {
            Backing::Own(frame) => Some(FilePage { frame, valid_bytes }),
            Backing::Base(shown) => {
                let page = base?.resident_page(index)?;
                (page.valid_bytes == shown).then_some(FilePage { valid_bytes, ..page })
            }
            Backing::Zeros => None,
        }
    }

    /// As [`Self::resident_page`] for several pages.
    pub(super) fn resident_pages(
        &self,
        base: Option<&InodeRef>,
        indices: Range<u64>,
        take: &mut dyn FnMut(u64, FilePage),
    ) {
        match base.filter(|_| self.is_base_alone()) {
            Some(base) => base.resident_pages(indices, take),
            None => {
                for index in indices {
                    if let Some(page) = self.resident_page(base, index) {
                        take(index, page);
                    }
                }
            }
        }
    }

    /// Of the base's pages, as [`crate::mem::PageSource::fixed_run`].
    pub(super) fn fixed_run(&self, base: &InodeRef, indices: Range<u64>) -> Option<FixedRun> {
        if self.is_base_alone() { base.fixed_run(indices) } else { None }
    }

    /// Whether the file is what its base is.
    pub(super) fn is_base_alone(&self) -> bool {
        self.is_base_whole && self.pages.is_empty() && self.size_bytes == self.base_bytes
    }

    fn give_back(&mut self, fs: &MemoryFs, count: u64) {
        self.own_page_count -= count;
        fs.give_pages(count);
    }
}

fn copy_from_base(fs: &MemoryFs, base: &InodeRef, index: u64, count: usize, page: &FrameRef) -> Result<()> {
    let mut bounce = [0; 512];
    let mut done = 0;
    while done < count {
        let step = (count - done).min(bounce.len());
        let mut destination = SliceDestination::new(&mut bounce[..step]);
        let read = base.read_at(index * PAGE + done as u64, &mut destination)?;
        if read == 0 {
            return Err(Errno::EIO);
        }
        fs.pool.bytes().write(page.frame(), done, &bounce[..read]);
        done += read;
    }
    Ok(())
}

fn zero_range(fs: &MemoryFs, page: &FrameRef, start: usize, end: usize) {
    const ZEROS: [u8; 512] = [0; 512];
    let mut at = start;
    while at < end {
        let step = (end - at).min(ZEROS.len());
        fs.pool.bytes().write(page.frame(), at, &ZEROS[..step]);
        at += step;
    }
}
