//! A thread's buffer for its vector state on the way to and from a signal frame.
//!
//! Clearing a page costs more than all the rest of a delivery, so each thread keeps one buffer for good. It is taken
//! out while it is used, so that nothing is locked while program memory is copied. Invariant: the header's reserved
//! bytes are zero whenever it is given to XSAVE (which does not write them) or to XRSTOR (which demands it).

use alloc::boxed::Box;

use exos::sync::Mutex;

/// Most bytes of vector state; the kernel keeps XCR0's state below a page.
pub const VECTOR_BYTES_MAX: usize = 4096;
/// Room for the magic word that signal frames have behind the state, in whole cache lines.
const TRAILER_BYTES: usize = 64;

/// An XSAVE area in the standard format, with room for what signal frames add.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct VectorBuffer([u8; VECTOR_BYTES_MAX + TRAILER_BYTES]);

impl VectorBuffer {
    /// All zero: the initial state.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; VECTOR_BYTES_MAX + TRAILER_BYTES])
    }

    /// The bytes, 64-byte aligned.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8; VECTOR_BYTES_MAX + TRAILER_BYTES] {
        &mut self.0
    }
}

impl Default for VectorBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a thread keeps its buffer.
#[derive(Debug, Default)]
pub struct VectorCache(Mutex<Option<Box<VectorBuffer>>>);

impl VectorCache {
    /// Lends the buffer to `work`, on a new one if it is lent already or has not been made.
    pub fn lend<T>(&self, work: impl FnOnce(&mut VectorBuffer) -> T) -> T {
        let kept = self.0.lock().take();
        let mut buffer = kept.unwrap_or_default();
        let result = work(&mut buffer);
        *self.0.lock() = Some(buffer);
        result
    }
}
