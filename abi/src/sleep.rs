//! Wakeup predicates: a bounded sum of products over words, bells and the clock.
//!
//! Terms with the same `product` are joined by *and*, products by *or*; the first product that holds ends the sleep
//! and its number is the call's value. The kernel evaluates a predicate when the sleep begins, when a bell it names
//! is rung, when its clock term is due, and at every scheduling decision of an otherwise idle processor. Source:
//! Xok's wakeup predicates (`wkpred`).

/// Most terms of a predicate.
pub const PREDICATE_TERM_COUNT_MAX: usize = 32;

numbered! {
    /// What a term looks at.
    pub enum TermSource {
        /// The 32-bit word at physical address `address`, inside the frames of `slot` (READ). Pinned while asleep.
        Word32 = 0,
        /// The count of the bell in `slot` (WAIT).
        Bell = 1,
        /// Nanoseconds since the kernel's start.
        Clock = 2,
        /// The 64-bit word at physical address `address`.
        Word64 = 3,
    }
}

numbered! {
    /// How a term compares its source with `value`, unsigned.
    pub enum TermOperator {
        /// Source = value.
        Equal = 0,
        /// Source ≠ value.
        NotEqual = 1,
        /// Source ≥ value.
        AtLeast = 2,
        /// Source < value.
        Less = 3,
    }
}

/// One term, read by the kernel from the caller's memory (8-byte aligned).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Term {
    /// The product that the term belongs to.
    pub product: u32,
    /// [`TermSource`].
    pub source: u32,
    /// [`TermOperator`]. For `Bell` and `Clock` only `AtLeast`.
    pub operator: u32,
    /// Capability slot, as the source says.
    pub slot: u32,
    /// Words: naturally aligned physical address.
    pub address: u64,
    /// What the source is compared with.
    pub value: u64,
}
