//! A region's pages: a memory file, mapped once for the program and once for the store.
#![allow(unsafe_code, reason = "maps memory, and copies between mappings")]

use alloc::boxed::Box;
use core::ops::Range;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec;
use std::vec::Vec;

use super::kernel::Placed;
use super::native;
use crate::Detector;
use crate::memory::{Access, Memory, MemoryError, PAGE_BYTES, Page, Touched};

/// Of `linux/fs.h`; the C library's headers leave it out.
const BLKSSZGET: libc::Ioctl = 0x1268;

/// One mapping of a memory file.
#[derive(Debug)]
struct View {
    address: usize,
    length: usize,
}

impl View {
    fn new(file: &OwnedFd, length: usize, wanted: usize, protection: i32) -> io::Result<Self> {
        let fixed = if wanted == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
        // SAFETY: a new mapping, which replaces none.
        let address =
            unsafe { libc::mmap(wanted as *mut _, length, protection, libc::MAP_SHARED | fixed, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let view = Self { address: address as usize, length };
        // Old kernels take the address as a suggestion.
        if wanted != 0 && view.address != wanted { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(view) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's; whoever had its address was told that it ends.
        unsafe { libc::munmap(self.address as *mut _, self.length) };
    }
}

/// The program's mapping, and what is needed to put private copies into it.
#[derive(Debug)]
pub(super) struct ProgramView {
    view: View,
    file: OwnedFd,
    /// On Aegis: pages have all rights and are watched.
    is_watched: bool,
    /// What the store lets the program do with each page.
    access: Mutex<Vec<Access>>,
    /// Where the kernel's extension answers touches.
    placed: Option<Placed>,
}

impl ProgramView {
    /// Maps a memory file for the program, closed. A detector that hears of no touches has nothing watched.
    pub(super) fn new(file: OwnedFd, length: usize, wanted: usize, detector: Detector) -> io::Result<Self> {
        let is_watched = native::is_there() && detector != Detector::DirtyBits;
        let view = View::new(&file, length, wanted, Self::closed(is_watched))?;
        let access = Mutex::new(vec![Access::None; length / PAGE_BYTES]);
        if is_watched {
            native::close(view.address, length, Access::None).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        Ok(Self { view, file, is_watched, access, placed: None })
    }

    /// Has the kernel answer touches of one detector that it can answer, for a store that is in this process.
    fn place(&mut self, detector: Detector) {
        if self.is_watched && detector == Detector::Diff {
            self.placed = Placed::new(self.view.address, self.view.length);
        }
    }

    /// The thread that runs this is in a transaction from now on, or is not any more.
    pub(super) fn set_owner(&self, is_this_thread: bool) {
        if let Some(placed) = &self.placed {
            placed.set_owner(is_this_thread);
        }
    }

    /// The rights of a page that is closed.
    fn closed(is_watched: bool) -> i32 {
        if is_watched { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE }
    }

    /// Sets what the program may do with pages.
    pub(super) fn protect(&self, pages: Range<usize>, access: Access) -> Result<(), MemoryError> {
        let protection = match access {
            Access::None => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        if pages.end > self.view.length / PAGE_BYTES || pages.start > pages.end {
            return Err(MemoryError::Refused);
        }
        let place = self.view.address + pages.start * PAGE_BYTES;
        if self.is_watched {
            let mut known = self.access.lock().unwrap_or_else(PoisonError::into_inner);
            let known = &mut known[pages.clone()];
            // Opening is the touch's own doing, before the store hears of it.
            let is_closing = known.iter().any(|known| *known > access);
            known.fill(access);
            return if is_closing { self.close(place, pages.len() * PAGE_BYTES, access) } else { Ok(()) };
        }
        // SAFETY: pages of the program's mapping, which Rust code has no references into.
        let result = unsafe { libc::mprotect(place as *mut _, pages.len() * PAGE_BYTES, protection) };
        // Linux refuses for want of memory alone: the mapping would have too many parts.
        if result == 0 { Ok(()) } else { Err(MemoryError::NoMemory) }
    }

    /// The kernel has opened a page.
    fn note(&self, touched: Touched) {
        let mut known = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(access) = known.get_mut(touched.page) {
            *access = touched.access.max(*access);
        }
    }

    fn close(&self, place: usize, length: usize, access: Access) -> Result<(), MemoryError> {
        let is_closed = |placed: &Placed| placed.close(place, length, access == Access::None);
        if self.placed.as_ref().is_some_and(is_closed) { Ok(()) } else { native::close(place, length, access) }
    }

    /// The memory file's descriptor.
    pub(super) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    pub(super) fn address(&self) -> usize {
        self.view.address
    }

    pub(super) fn length(&self) -> usize {
        self.view.length
    }

    /// Puts a private, open copy of a page in its place, or the shared page, closed.
    pub(super) fn set_private(&self, page: usize, is_private: bool) -> io::Result<()> {
        let offset = page * PAGE_BYTES;
        let (sharing, protection) = if is_private {
            (libc::MAP_PRIVATE, libc::PROT_READ | libc::PROT_WRITE)
        } else {
            (libc::MAP_SHARED, Self::closed(self.is_watched))
        };
        if offset >= self.view.length {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let place = (self.view.address + offset) as *mut _;
        // SAFETY: replaces a page of the program's mapping, whose contents belong to a transaction that was aborted.
        let address = unsafe {
            libc::mmap(
                place,
                PAGE_BYTES,
                protection,
                sharing | libc::MAP_FIXED,
                self.file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if !is_private && self.is_watched {
            native::close(place as usize, PAGE_BYTES, Access::None).map_err(|_| io::ErrorKind::OutOfMemory)?;
            // If it cannot be again, the handler is told.
            let _ = self.placed.as_ref().is_some_and(Placed::place);
        }
        Ok(())
    }
}

/// A page as it was.
#[derive(Debug)]
enum Shadow {
    Own(Box<Page>),
    /// One that the kernel has made.
    Placed(usize),
}

/// A region's pages on Linux.
#[derive(Debug)]
pub struct Mapped {
    /// None in a service, whose programs have their own.
    program: Option<Arc<ProgramView>>,
    /// Always open; nobody but the store has its address.
    own: Arc<View>,
    /// By page; as many as there are pages, from the first shadow on.
    shadows: Vec<Option<Shadow>>,
    /// Those of them that the kernel has made.
    placed_count: usize,
    /// Shadows that were given back, for the next ones.
    spare: Vec<Box<Page>>,
}

/// Most shadows that are kept for the next ones.
const SPARE_COUNT_MAX: usize = 64;

impl Mapped {
    /// Pages of zeros, at an address if one is wanted (not 0).
    ///
    /// # Errors
    /// The system's; `AlreadyExists` if something lies there.
    pub fn new(page_count: usize, wanted: usize, detector: Detector) -> io::Result<Self> {
        let length = page_count.checked_mul(PAGE_BYTES).filter(|&length| length > 0);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: makes a descriptor, which is owned from here on.
        let file = unsafe { libc::memfd_create(c"rhino".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: sets the length of that file.
        if unsafe { libc::ftruncate(file.as_raw_fd(), length as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let own = Arc::new(View::new(&file, length, 0, libc::PROT_READ | libc::PROT_WRITE)?);
        let mut program = ProgramView::new(file, length, wanted, detector)?;
        program.place(detector);
        let program = Some(Arc::new(program));
        Ok(Self { program, own, shadows: Vec::new(), placed_count: 0, spare: Vec::new() })
    }

    /// The same pages for another address space, which closes and opens them for itself.
    pub(super) fn sharing(&self) -> Self {
        Self { program: None, own: Arc::clone(&self.own), shadows: Vec::new(), placed_count: 0, spare: Vec::new() }
    }

    pub(super) fn program(&self) -> Option<Arc<ProgramView>> {
        self.program.clone()
    }

    fn place(&self, page: usize, offset: usize) -> *mut u8 {
        (self.own.address + page * PAGE_BYTES + offset) as *mut u8
    }

    fn placed(&self) -> Option<&Placed> {
        self.program.as_ref()?.placed.as_ref()
    }

    fn shadow(&self, page: usize) -> Option<&Shadow> {
        self.shadows.get(page)?.as_ref()
    }

    fn put_shadow(&mut self, page: usize, shadow: Option<Shadow>) {
        let is_placed = |shadow: &Option<Shadow>| usize::from(matches!(shadow, Some(Shadow::Placed(_))));
        self.placed_count += is_placed(&shadow);
        if shadow.is_some() && self.shadows.is_empty() {
            self.shadows.resize_with(self.own.length / PAGE_BYTES, || None);
        }
        let Some(place) = self.shadows.get_mut(page) else { return };
        let before = core::mem::replace(place, shadow);
        self.placed_count -= is_placed(&before);
        if let Some(Shadow::Own(page)) = before {
            if self.spare.len() < SPARE_COUNT_MAX {
                self.spare.push(page);
            }
            return;
        }
        if is_placed(&before) == 1
            && self.placed_count == 0
            && let Some(placed) = self.placed()
        {
            placed.reset_shadows();
        }
    }

    fn is_inside(&self, page: usize, offset: usize, length: usize) -> bool {
        page < self.own.length / PAGE_BYTES && offset + length <= PAGE_BYTES
    }
}

impl Memory for Mapped {
    fn page_count(&self) -> usize {
        self.own.length / PAGE_BYTES
    }

    fn protect(&mut self, pages: Range<usize>, access: Access) -> Result<(), MemoryError> {
        match &self.program {
            Some(program) => program.protect(pages, access),
            None => Ok(()),
        }
    }

    fn can_close(&self) -> bool {
        self.program.is_some()
    }

    fn read(&self, page: usize, into: &mut Page) {
        if self.is_inside(page, 0, PAGE_BYTES) {
            // SAFETY: inside the mapping; the program cannot store to the page now (the store has closed it, or opened
            // it for loads alone).
            unsafe { core::ptr::copy_nonoverlapping(self.place(page, 0), into.as_mut_ptr(), PAGE_BYTES) };
        }
    }

    fn read_part(&self, page: usize, offset: usize, into: &mut [u8]) {
        if self.is_inside(page, offset, into.len()) {
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(self.place(page, offset), into.as_mut_ptr(), into.len()) };
        }
    }

    fn write(&mut self, page: usize, offset: usize, from: &[u8]) {
        if self.is_inside(page, offset, from.len()) {
            // SAFETY: inside the mapping, which no reference points into.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), self.place(page, offset), from.len()) };
        }
    }

    fn make_shadow(&mut self, page: usize) -> Result<(), MemoryError> {
        let mut shadow = self.spare.pop().unwrap_or_else(|| Box::new([0; PAGE_BYTES]));
        self.read(page, &mut shadow);
        self.put_shadow(page, Some(Shadow::Own(shadow)));
        Ok(())
    }

    fn read_shadow(&self, page: usize, into: &mut Page) -> bool {
        match (self.shadow(page), self.placed()) {
            (Some(Shadow::Own(shadow)), _) => into.copy_from_slice(&shadow[..]),
            (Some(Shadow::Placed(shadow)), Some(placed)) => placed.read_shadow(*shadow, into),
            _ => return false,
        }
        true
    }

    fn drop_shadow(&mut self, page: usize) {
        self.put_shadow(page, None);
    }

    fn answers_touches(&self) -> bool {
        self.placed().is_some()
    }

    fn take_touched(&mut self, each: &mut dyn FnMut(Touched)) {
        let Some(program) = self.program.as_ref().filter(|program| program.placed.is_some()).cloned() else { return };
        let Some(placed) = &program.placed else { return };
        let page_count = self.page_count();
        placed.take(|touched, shadow| {
            if touched.page >= page_count {
                return;
            }
            // Of a page that was closed within the transaction, the first shadow is what was there before.
            if let Some(shadow) = shadow.filter(|_| self.shadow(touched.page).is_none()) {
                self.put_shadow(touched.page, Some(Shadow::Placed(shadow)));
            }
            program.note(touched);
            each(touched);
        });
        if self.placed_count == 0 {
            placed.reset_shadows();
        }
    }

    fn dirty(&mut self, pages: Range<usize>, bits: &mut [u64], clears: bool) -> Result<(), MemoryError> {
        let Some(program) = self.program.as_ref().filter(|_| native::is_there()) else {
            return Err(MemoryError::Unsupported);
        };
        if pages.end > self.page_count() || pages.start > pages.end {
            return Err(MemoryError::Refused);
        }
        native::dirty(program.address() + pages.start * PAGE_BYTES, pages.len(), bits, clears)
    }

    fn evict(&mut self, pages: Range<usize>) {
        let place = self.own.address + pages.start * PAGE_BYTES;
        let length = pages.len() * PAGE_BYTES;
        // SAFETY: pages of the store's mapping; their contents are not needed.
        let is_kept = unsafe { libc::madvise(place as *mut _, length, libc::MADV_REMOVE) } != 0;
        // Failure keeps the memory, no more: nobody may answer a touch of it without the store.
        if let Some(program) = self.program.as_ref().filter(|program| is_kept && program.placed.is_some()) {
            let _ = native::close(program.address() + pages.start * PAGE_BYTES, length, Access::None);
        }
    }
}

/// Bytes of a block of a disk (`BLKSSZGET`).
pub(super) fn sector_bytes(descriptor: i32) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: fills the number.
    let result = unsafe { libc::ioctl(descriptor, BLKSSZGET, &raw mut bytes) };
    if result == 0 { usize::try_from(bytes).map_err(io::Error::other) } else { Err(io::Error::last_os_error()) }
}

/// Has this process be the only one that has the file open as a database.
pub(super) fn lock_file(descriptor: i32) -> io::Result<()> {
    // SAFETY: locks an open file.
    if unsafe { libc::flock(descriptor, libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A number of the system's.
pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: fills the array.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if count == 8 { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}
