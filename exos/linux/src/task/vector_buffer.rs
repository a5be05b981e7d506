//! Where a thread's vector state is kept while it does not run.
//!
//! Invariant: the header's reserved bytes are zero whenever it is given to XSAVE (which does not write them) or to
//! XRSTOR (which demands it). Signal frames do not pass through it: `glue/vector.rs`.

/// Most bytes of vector state; the kernel keeps XCR0's state below a page.
pub const VECTOR_BYTES_MAX: usize = 4096;
/// An XSAVE area in the standard format.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct VectorBuffer([u8; VECTOR_BYTES_MAX]);

impl VectorBuffer {
    /// All zero: the initial state.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; VECTOR_BYTES_MAX])
    }

    /// The bytes, 64-byte aligned.
    #[must_use]
    pub fn bytes(&mut self) -> &mut [u8; VECTOR_BYTES_MAX] {
        &mut self.0
    }
}

impl Default for VectorBuffer {
    fn default() -> Self {
        Self::new()
    }
}
