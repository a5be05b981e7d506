//! Where mapped pages come from: the seam between address spaces and files.
//!
//! A [`PageSource`] is a file as its mapper sees it: pages by index. File systems implement it over
//! their page cache or over the boot bundle; [`SharedMemory`] is the source of shared anonymous
//! memory. A source hands out frames with a reference of their own ([`FrameRef`]), so that a page
//! stays alive while it is mapped, even when the file is gone.
//!
//! What a source promises: the page at one index stays the same frame until the file is truncated
//! below it (else two mappings of one file would diverge), and the bytes of a counted frame behind
//! the end of the file are zero. For frames of the boot bundle the reader of the page takes care of
//! the latter.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use aegis_abi::FrameNumber;

use crate::error::{Errno, Result};
use crate::mem::frames::{FixedRun, FramePool, FrameRef};
use crate::preempt::Pace;
use crate::sync::Mutex;

/// What a page is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageIntent {
    /// It will be mapped read-only or copied.
    Read,
    /// It will be mapped writable and shared: stores change the file. The source may mark it dirty now.
    WriteShared,
}

/// A page of a file.
#[derive(Clone, Debug)]
pub struct FilePage {
    /// The frame; the reference goes to the mapping.
    pub frame: FrameRef,
    /// Bytes of the page that are the file's: 4096, or less in the last page. Not 0.
    pub valid_bytes: usize,
}

/// Why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The page begins at or behind the end of the file: SIGBUS.
    BeyondEnd,
    /// The page could not be read or must not be written: SIGBUS.
    Failed,
    /// No frames.
    OutOfMemory,
}

/// What names a file in `/proc/self/maps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// A file that can be mapped.
pub trait PageSource: Send + Sync {
    /// Page `index` (file offset / 4096), read or made if need be.
    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError>;

    /// Page `index` for reading, if that takes neither input nor a new frame; for mapping neighbours of a fault.
    fn resident_page(&self, index: u64) -> Option<FilePage>;

    /// As [`Self::resident_page`] for several pages: `take` gets those that are at hand, in any order.
    fn resident_pages(&self, indices: Range<u64>, take: &mut dyn FnMut(u64, FilePage)) {
        for index in indices {
            if let Some(page) = self.resident_page(index) {
                take(index, page);
            }
        }
    }

    /// Of the pages from the first of `indices` on, those that are whole, that nobody ever writes and whose frames lie
    /// one behind the other: they need no counting. `None`: the first is not such a page.
    fn fixed_run(&self, _indices: Range<u64>) -> Option<FixedRun> {
        None
    }

    /// Whether page `index` is this frame of the source's own, so that a store to it needs neither [`Self::page`] nor
    /// another frame. `false` where it would have to be told, or to look for long.
    fn owns(&self, _index: u64, _frame: FrameNumber) -> bool {
        false
    }

    /// Whether [`Self::page`] may wait for somebody outside of the pod. Then it is asked without the address space's
    /// lock, as far as possible.
    fn may_wait(&self) -> bool {
        false
    }

    /// The identity of the file behind it.
    fn identity(&self) -> FileIdentity;

    /// What tells it from other files for as long as somebody holds it, and costs nothing: where it lies. A hint.
    fn place(&self) -> usize {
        0
    }

    /// The path for `/proc/self/maps`, with ` (deleted)` if it has no name any more.
    fn path(&self) -> String;

    /// The number of the System V shared memory segment that it is.
    fn segment(&self) -> Option<i32> {
        None
    }

    /// `msync(MS_SYNC)`: writes the pages back. Sources without a disk have nothing to do.
    fn sync(&self, _first_index: u64, _page_count: u64) -> Result<()> {
        Ok(())
    }

    /// `madvise(MADV_REMOVE)`: frees the pages, which read as zero afterwards. `EOPNOTSUPP` where a
    /// file cannot have holes.
    fn remove(&self, _first_index: u64, _page_count: u64) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
}

/// Whether a page of a file that is not at hand may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It is read, however long that takes.
    Allowed,
    /// The answer is that it is wanted ([`WantedPage`]), and nothing is changed.
    Refused,
}

/// A page that was not at hand.
#[derive(Clone)]
pub struct WantedPage {
    source: Arc<dyn PageSource>,
    index: u64,
}

impl WantedPage {
    /// Page `index` of `source`.
    #[must_use]
    pub fn new(source: &Arc<dyn PageSource>, index: u64) -> Self {
        Self { source: source.clone(), index }
    }

    /// Has it at hand for as long as the answer is kept. May wait: called without locks.
    ///
    /// # Errors
    /// [`PageError`].
    pub fn fetch(&self) -> core::result::Result<FilePage, PageError> {
        self.source.page(self.index, PageIntent::Read)
    }
}

impl PartialEq for WantedPage {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source) && self.index == other.index
    }
}

impl fmt::Debug for WantedPage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "page {} of {}", self.index, self.source.path())
    }
}

/// A file of which only those pages are shown that are at hand; the first that was not is remembered.
pub(crate) struct AtHand {
    source: Arc<dyn PageSource>,
    missing: Mutex<Option<u64>>,
}

impl AtHand {
    pub(crate) fn new(source: &Arc<dyn PageSource>) -> Arc<Self> {
        Arc::new(Self { source: source.clone(), missing: Mutex::new(None) })
    }

    /// The first page that was asked for and not at hand.
    pub(crate) fn missing(&self) -> Option<WantedPage> {
        self.missing.lock().map(|index| WantedPage::new(&self.source, index))
    }
}

impl PageSource for AtHand {
    fn page(&self, index: u64, _intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        self.source.resident_page(index).ok_or_else(|| {
            self.missing.lock().get_or_insert(index);
            PageError::Failed
        })
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        self.source.resident_page(index)
    }

    fn identity(&self) -> FileIdentity {
        self.source.identity()
    }

    fn path(&self) -> String {
        self.source.path()
    }
}

/// Memory that several areas share and no file names (`MAP_SHARED | MAP_ANONYMOUS`): zero until
/// written, gone with its last area.
pub struct SharedMemory {
    pool: Arc<FramePool>,
    pages: Mutex<BTreeMap<u64, FrameRef>>,
}

impl SharedMemory {
    /// An object without pages. It has no size: areas bound what is reached.
    #[must_use]
    pub fn new(pool: Arc<FramePool>) -> Arc<Self> {
        Arc::new(Self { pool, pages: Mutex::new(BTreeMap::new()) })
    }

    /// Pages that there are.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.pages.lock().len() as u64
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let mut pace = Pace::default();
        for frame in core::mem::take(self.pages.get_mut()).into_values() {
            drop(frame);
            pace.offer();
        }
    }
}

/// Pages that exos itself provides (the vDSO and its data). Read-only for programs: a private
/// mapping may copy them, a shared one may not write.
pub struct FixedPages {
    frames: Vec<FrameRef>,
}

impl FixedPages {
    /// Pages in the order of their index.
    #[must_use]
    pub fn new(frames: Vec<FrameRef>) -> Arc<Self> {
        Arc::new(Self { frames })
    }

    /// The frames.
    #[must_use]
    pub fn frames(&self) -> &[FrameRef] {
        &self.frames
    }
}

impl PageSource for FixedPages {
    fn page(&self, index: u64, intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        if intent == PageIntent::WriteShared {
            return Err(PageError::Failed);
        }
        self.resident_page(index).ok_or(PageError::BeyondEnd)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let frame = self.frames.get(usize::try_from(index).ok()?)?.clone();
        Some(FilePage { frame, valid_bytes: 4096 })
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity::default()
    }

    fn path(&self) -> String {
        String::new()
    }
}

impl PageSource for SharedMemory {
    fn page(&self, index: u64, _intent: PageIntent) -> core::result::Result<FilePage, PageError> {
        let mut pages = self.pages.lock();
        let frame = match pages.get(&index) {
            Some(frame) => frame.clone(),
            None => {
                let frame = self.pool.allocate_ref().map_err(|_| PageError::OutOfMemory)?;
                pages.insert(index, frame.clone());
                frame
            }
        };
        Ok(FilePage { frame, valid_bytes: 4096 })
    }

    fn owns(&self, index: u64, frame: FrameNumber) -> bool {
        self.pages.lock().get(&index).is_some_and(|own| own.frame() == frame)
    }

    fn resident_page(&self, index: u64) -> Option<FilePage> {
        let frame = self.pages.lock().get(&index)?.clone();
        Some(FilePage { frame, valid_bytes: 4096 })
    }

    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 1, inode: 0 }
    }

    fn path(&self) -> String {
        String::from("/dev/zero (deleted)")
    }

    fn remove(&self, first_index: u64, page_count: u64) -> Result<()> {
        let end = first_index.saturating_add(page_count);
        self.pages.lock().retain(|index, _| !(first_index..end).contains(index));
        Ok(())
    }
}
