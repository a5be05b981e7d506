//! Memory that a program maps and exos writes and reads as it likes: rings of requests and of what became of them.
//!
//! The program may write there at any time, so every word is read once, and what is read is an allegation. Words that
//! both sides look at while the other changes them are loaded and stored whole ([`RingMemory::load`],
//! [`RingMemory::store`]); a store is seen after what was written before it. The frames live for as long as somebody
//! holds the memory or a mapping of it; no access here faults or needs the program's address space.
//!
//! Neighbours: [`super::source`], by which it is mapped. Its users are the personality's (`io_uring`, `io_setup`).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::{Errno, Result};
use crate::mem::frames::{FramePool, FrameRef};
use crate::mem::source::{FileIdentity, FilePage, PageError, PageIntent, PageSource};
use crate::preempt::Pace;
use crate::reserve;

const PAGE_BYTES: usize = 4096;

/// Pages that a program and exos share.
pub struct RingMemory {
    pool: Arc<FramePool>,
    pages: Vec<FrameRef>,
    path: &'static str,
}

impl RingMemory {
    /// Zeros, at least `byte_count` of them; `path` is what `/proc/self/maps` shows.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(pool: &Arc<FramePool>, byte_count: usize, path: &'static str) -> Result<Arc<Self>> {
        let page_count = byte_count.div_ceil(PAGE_BYTES);
        let (mut pages, mut pace) = (reserve::vector(page_count)?, Pace::default());
        for _ in 0..page_count {
            pages.push(pool.allocate_ref().map_err(|_| Errno::ENOMEM)?);
            pace.offer();
        }
        Ok(Arc::new(Self { pool: pool.clone(), pages, path }))
    }

    /// Bytes that there are: whole pages.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// Copies bytes that lie in one page; zeros from beyond the end.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        match self.pages.get(offset / PAGE_BYTES) {
            Some(page) => self.pool.bytes().read(page.frame(), offset % PAGE_BYTES, into),
            None => into.fill(0),
        }
    }

    /// Writes bytes that lie in one page; none beyond the end.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        if let Some(page) = self.pages.get(offset / PAGE_BYTES) {
            self.pool.bytes().write(page.frame(), offset % PAGE_BYTES, from);
        }
    }

    /// The aligned word at `offset`, whole, and before whatever is read after it; 0 beyond the end.
    #[must_use]
    #[inline]
    pub fn load(&self, offset: usize) -> u32 {
        let page = self.pages.get(offset / PAGE_BYTES);
        page.map_or(0, |page| self.pool.bytes().load_u32(page.frame(), offset % PAGE_BYTES))
    }

    /// Replaces the aligned word at `offset`, whole, and after whatever was written before it.
    #[inline]
    pub fn store(&self, offset: usize, word: u32) {
        if let Some(page) = self.pages.get(offset / PAGE_BYTES) {
            self.pool.bytes().store_u32(page.frame(), offset % PAGE_BYTES, word);
        }
    }
}

impl PageSource for RingMemory {
    fn page(&self, index: u64, _: PageIntent) -> core::result::Result<FilePage, PageError> {
        self.resident_page(index).ok_or(PageError::BeyondEnd)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let frame = self.pages.get(usize::try_from(index).ok()?)?.clone();
        Some(FilePage { frame, valid_bytes: PAGE_BYTES })
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 14, inode: 0 }
    }

    fn path(&self) -> String {
        String::from(self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::RingMemory;
    use crate::mem::source::{PageIntent, PageSource};
    use crate::mem::test_support::Setup;

    #[test]
    fn begins_with_zeros_and_ends_with_its_pages() {
        let memory = RingMemory::new(&Setup::new().pool, 4097, "[ring]").unwrap();
        assert_eq!(memory.byte_count(), 8192);
        assert_eq!((memory.load(8188), memory.load(8192)), (0, 0));
        memory.store(8188, 7);
        memory.store(8192, 7);
        memory.write(0, &[1, 2, 3, 4]);
        memory.write(1 << 30, &[1]);
        let mut bytes = [9; 4];
        memory.read(1 << 30, &mut bytes);
        assert_eq!(bytes, [0; 4]);
        assert_eq!((memory.load(0), memory.load(8188), memory.load(8192)), (0x0403_0201, 7, 0));
        assert!(memory.page(1, PageIntent::WriteShared).is_ok());
        assert!(memory.page(2, PageIntent::Read).is_err());
    }
}
