//! Rewriting a program's `syscall` instructions into jumps to exos: what may be rewritten, and with which bytes.
//!
//! A five-byte jump replaces whole instructions before (or, where there are none that can move, around) a `syscall`;
//! it goes to a *trampoline* within reach that holds copies of them and then enters exos. Pushing nothing, it leaves
//! the red zone alone; RCX is the return address and R11 the flags afterwards, as the instruction leaves them.
//!
//! Invariants, which the modules here prove or refuse ([`Refusal`]):
//! - the replaced bytes are whole instructions of a function whose bounds are known and which decodes from its start
//!   ([`functions`], [`plan`]);
//! - no direct jump of the function goes into the middle of the five bytes;
//! - the first byte of every replaced instruction but the first reads, after the patch, as one that faults at once
//!   ([`trampoline::TRAPPING`]). So a thread that comes to the middle after all (another processor between two of the
//!   instructions, a signal handler's return, a computed jump) faults, and [`sites::SiteTable::forward`] tells where
//!   the copy of that instruction is.
//!
//! Everything is arithmetic over bytes and runs on the host. Neighbours: `crate::mem::rewrite` owns the pages;
//! `exos/linux` decides when, and has the entry that trampolines jump to. Reasons: `docs/adr/0011`.

pub mod functions;
pub mod plan;
pub mod sites;
pub mod trampoline;

#[cfg(test)]
mod tests;

/// Why a site keeps its trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refusal {
    /// The code is not a private mapping of a file: generated code, or shared.
    NotFileText,
    /// The mapping is writable.
    Writable,
    /// The page is no longer the file's.
    PageModified,
    /// Neither unwind information nor symbols say where the function begins and ends.
    NoFunction,
    /// The function is longer than [`plan::FUNCTION_BYTES_MAX`].
    FunctionTooLong,
    /// The function has bytes that do not decode.
    Undecodable,
    /// Decoding the function does not meet the `syscall`.
    NotAnInstruction,
    /// No five bytes of movable instructions are there without a jump into them.
    NoRoom,
    /// The instructions to replace lie on two pages.
    TwoPages,
    /// They belong to another site already.
    Overlap,
    /// No free page for a trampoline is in reach.
    NoReach,
    /// No frame or page table for it.
    NoMemory,
    /// The table of sites is full.
    TableFull,
}

impl Refusal {
    /// Whether it is because of what the file says: then it is the same in each process that maps the file.
    #[must_use]
    pub fn is_of_text(self) -> bool {
        matches!(
            self,
            Self::NoFunction
                | Self::FunctionTooLong
                | Self::Undecodable
                | Self::NotAnInstruction
                | Self::NoRoom
                | Self::TwoPages
        )
    }
}

/// Number of refusals.
pub const REFUSAL_COUNT: usize = 13;

/// Each refusal, with its key in `--stats`.
pub const REFUSALS: [(Refusal, &str); REFUSAL_COUNT] = [
    (Refusal::NotFileText, "not_file_text"),
    (Refusal::Writable, "writable"),
    (Refusal::PageModified, "page_modified"),
    (Refusal::NoFunction, "no_function"),
    (Refusal::FunctionTooLong, "function_too_long"),
    (Refusal::Undecodable, "undecodable"),
    (Refusal::NotAnInstruction, "not_an_instruction"),
    (Refusal::NoRoom, "no_room"),
    (Refusal::TwoPages, "two_pages"),
    (Refusal::Overlap, "overlap"),
    (Refusal::NoReach, "no_reach"),
    (Refusal::NoMemory, "no_memory"),
    (Refusal::TableFull, "table_full"),
];
