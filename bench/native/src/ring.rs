//! A specialised pipe: a ring of bytes in memory that two environments share, with one writer and one reader.
//!
//! Reading and writing enter the kernel only to wait. Positions only grow, as 64-bit counts of bytes; each is written
//! by one side.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::CapSlot;
use aegis_rt::call;

use crate::peer::{RING_BYTES, Shared, WORD_READ, WORD_WRITTEN};

/// How a side waits for the other.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// By giving the slice to it: both are on one processor.
    Yield(CapSlot),
    /// By looking again: both have a processor.
    Spin,
}

impl Wait {
    /// Waits once.
    #[inline]
    pub(crate) fn wait(self) {
        match self {
            // The other is not in the queue if it runs on another processor; then it is there soon anyway.
            Self::Yield(processor) => {
                let _ = call::yield_to(processor);
            }
            Self::Spin => core::hint::spin_loop(),
        }
    }
}

/// One direction.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    written: &'static AtomicU64,
    read: &'static AtomicU64,
    bytes: *mut u8,
    wait: Wait,
}

impl Ring {
    /// Ring 0 or 1 of the shared pages.
    pub(crate) fn new(shared: &'static Shared, index: usize, wait: Wait) -> Self {
        let index = index % 2;
        Self {
            written: shared.word(WORD_WRITTEN + 16 * index),
            read: shared.word(WORD_READ + 16 * index),
            bytes: shared.rings[index].as_ptr().cast_mut().cast(),
            wait,
        }
    }

    /// Writes all of it.
    #[inline]
    pub(crate) fn write(&self, mut message: &[u8]) {
        while !message.is_empty() {
            let written = self.written.load(Ordering::Relaxed);
            let room = RING_BYTES - (written - self.read.load(Ordering::Acquire)) as usize;
            let at = written as usize % RING_BYTES;
            let count = message.len().min(room).min(RING_BYTES - at);
            if count == 0 {
                self.wait.wait();
                continue;
            }
            // SAFETY: `at + count` is in the ring, and the reader stays away from what it has not been told of.
            unsafe { copy(message.as_ptr(), self.bytes.add(at), count) };
            self.written.store(written + count as u64, Ordering::Release);
            message = &message[count..];
        }
    }

    /// Reads until the buffer is full.
    #[inline]
    pub(crate) fn read(&self, mut buffer: &mut [u8]) {
        while !buffer.is_empty() {
            let read = self.read.load(Ordering::Relaxed);
            let there = (self.written.load(Ordering::Acquire) - read) as usize;
            let at = read as usize % RING_BYTES;
            let count = buffer.len().min(there).min(RING_BYTES - at);
            if count == 0 {
                self.wait.wait();
                continue;
            }
            // SAFETY: `at + count` is in the ring, and the writer stays away from what was not read.
            unsafe { copy(self.bytes.add(at), buffer.as_mut_ptr(), count) };
            self.read.store(read + count as u64, Ordering::Release);
            buffer = &mut buffer[count..];
        }
    }
}

/// Copies by words, then bytes.
///
/// # Safety
/// `count` bytes can be read and written, and the two do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: passed on to our caller.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            "mov ecx, {rest:e}",
            "rep movsb",
            rest = in(reg) count & 7,
            inout("rcx") count >> 3 => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}
