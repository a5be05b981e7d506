//! The kernel's placement on Aegis: its extension answers first touches by itself (`exos_native`'s `place_watch`), and
//! the store hears of them at the end of the transaction.
//!
//! For page diffing alone: other detectors have more to do at a store than a copy. What the extension does not answer
//! (a page that is not mapped yet, no shadow or note left, a thread that is in no transaction) is told to the handler,
//! as ever ([`super::native`]), so that nothing depends on its being there.
//!
//! The page of notes is shared with the kernel, which writes it only for the thread that the notes name. Whoever reads
//! it names nobody before ([`Placed::stop`]).
#![allow(unsafe_code, reason = "memory that the kernel writes to")]

use core::sync::atomic::{AtomicU64, Ordering, fence};

use exos_native::abi;
use exos_native::call::{WatchPlacement, close_watched, forget_watch, place_watch};

use crate::memory::Access;
use crate::memory::{PAGE_BYTES, Page, Touched};

/// Shadows of a region. A transaction that stores to more pages has the others told.
const SHADOW_COUNT: usize = 256;
/// Set to anything, this has the handler told of each touch, as without an extension: to compare.
const LIBRARY_VARIABLE: &str = "RHINO_LIBRARY";

/// A region that is placed in the kernel.
#[derive(Debug)]
pub(super) struct Placed {
    /// The program's mapping.
    start: usize,
    length: usize,
    /// Anonymous memory: a page of notes, then shadows.
    notes: usize,
}

impl Placed {
    /// Places a region, all of whose pages are watched; `None` where nothing takes it, or memory is short.
    pub(super) fn new(start: usize, length: usize) -> Option<Self> {
        if std::env::var_os(LIBRARY_VARIABLE).is_some() {
            return None;
        }
        let bytes = (1 + SHADOW_COUNT) * PAGE_BYTES;
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, in small pages that are there at once: the kernel writes to no page that is not.
        let notes = unsafe { libc::mmap(core::ptr::null_mut(), bytes, rights, kind, -1, 0) };
        if notes == libc::MAP_FAILED {
            return None;
        }
        let placed = Self { start, length, notes: notes as usize };
        // SAFETY: as above; advice, whose refusal leaves what was.
        unsafe { libc::madvise(notes, bytes, libc::MADV_NOHUGEPAGE) };
        for page in 0..=SHADOW_COUNT {
            placed.word(page * PAGE_BYTES / 8).store(0, Ordering::Relaxed);
        }
        placed.place().then_some(placed)
    }

    /// Places it again, after a part of it was mapped anew.
    pub(super) fn place(&self) -> bool {
        let placement =
            WatchPlacement { notes: self.notes, shadow: self.notes + PAGE_BYTES, shadow_count: SHADOW_COUNT };
        // SAFETY: the mapping is nothing's but this one's, until it is dropped.
        unsafe { place_watch(self.start, self.length, &placement) }.is_ok()
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < (1 + SHADOW_COUNT) * PAGE_BYTES / 8);
        // SAFETY: inside the mapping, aligned; the kernel's accesses are atomic too.
        unsafe { &*(self.notes as *const AtomicU64).add(index) }
    }

    /// Closes pages; false if the kernel does not.
    pub(super) fn close(&self, start: usize, length: usize, loads: bool) -> bool {
        const PART: usize = abi::CLOSE_PAGE_COUNT_MAX as usize * PAGE_BYTES;
        (start..start + length).step_by(PART).all(|part| {
            let part_length = PART.min(start + length - part);
            // SAFETY: pages of the program's mapping keep their contents.
            unsafe { close_watched(part, part_length, loads) }.is_ok()
        })
    }

    /// Has touches of this thread answered from now on, or nobody's.
    pub(super) fn set_owner(&self, is_this_thread: bool) {
        if is_this_thread {
            self.word(abi::NOTES_OWNER).store(thread_pointer(), Ordering::Release);
        } else {
            let _ = self.stop();
        }
    }

    /// Nobody's touches are answered when this returns; whose were. An answer to another thread that is under way is
    /// over then: the kernel gives it under its lock, and so does it place a range.
    fn stop(&self) -> u64 {
        let owner = self.word(abi::NOTES_OWNER).swap(0, Ordering::AcqRel);
        if owner != 0 && owner != thread_pointer() {
            let _ = self.place();
        }
        owner
    }

    /// Takes the touches that stand in the notes, with the shadow of each that has one.
    pub(super) fn take(&self, each: impl FnMut(Touched, Option<usize>)) {
        let owner = self.stop();
        self.take_stopped(each);
        self.word(abi::NOTES_OWNER).store(owner, Ordering::Release);
    }

    fn take_stopped(&self, mut each: impl FnMut(Touched, Option<usize>)) {
        let count = self.word(abi::NOTES_TOUCH_COUNT).load(Ordering::Acquire) as usize;
        for index in 0..count.min(abi::NOTES_TOUCH_COUNT_MAX) {
            let word = self.word(abi::NOTES_TOUCH_FIRST + index).load(Ordering::Relaxed);
            let access = if word & 1 == 0 { Access::Read } else { Access::Write };
            let shadow = ((word >> 1 & 0x7fff) as usize).checked_sub(1).filter(|shadow| *shadow < SHADOW_COUNT);
            each(Touched { page: (word >> 16) as usize, access }, shadow);
        }
        self.word(abi::NOTES_TOUCH_COUNT).store(0, Ordering::Release);
    }

    /// Copies a shadow out.
    pub(super) fn read_shadow(&self, shadow: usize, into: &mut Page) {
        let words = (1 + shadow) * PAGE_BYTES / 8;
        fence(Ordering::Acquire);
        for (index, chunk) in into.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *chunk = self.word(words + index).load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    /// No shadow is needed any more, but of touches that were not taken yet.
    pub(super) fn reset_shadows(&self) {
        if self.word(abi::NOTES_TOUCH_COUNT).load(Ordering::Acquire) == 0 {
            self.word(abi::NOTES_SHADOW_COUNT).store(0, Ordering::Release);
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let _ = forget_watch(self.start);
        // SAFETY: the mapping is this one's; the kernel does not know it any more.
        unsafe { libc::munmap(self.notes as *mut _, (1 + SHADOW_COUNT) * PAGE_BYTES) };
    }
}

/// The FS base: the first word of the thread's control block is its own address (the x86-64 ABI's thread-local storage,
/// variant II).
fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads that word.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}
