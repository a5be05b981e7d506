//! From processor exceptions to signals (`arch/x86/kernel/traps.c`, `arch/x86/mm/fault.c`).

use crate::abi::linux::SI_KERNEL;
use aegis_abi::upcall::UpcallFrame;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

/// Vector of the debug exception, which single-stepping raises.
pub const VECTOR_DEBUG: u64 = 1;
/// Vector of an opcode without meaning.
pub const VECTOR_INVALID_OPCODE: u64 = 6;
/// Vector of the general protection fault, which privileged instructions raise.
pub const VECTOR_PROTECTION: u64 = 13;
/// Vector of the page fault.
pub const VECTOR_PAGE_FAULT: u64 = 14;
/// Error code of a page fault: a store.
pub const PAGE_FAULT_WRITE: u64 = 1 << 1;
/// Error code of a page fault: an instruction fetch.
pub const PAGE_FAULT_FETCH: u64 = 1 << 4;

/// The signal for an exception other than a page fault.
#[must_use]
pub fn signal_for(frame: &UpcallFrame) -> (Signal, SignalInfo) {
    let at_instruction = SignalPayload::Fault { address: frame.rip };
    let (signal, code, payload) = match frame.vector {
        0 => (Signal::FPE, 1, at_instruction),
        1 => (Signal::TRAP, 2, at_instruction),
        3 => (Signal::TRAP, SI_KERNEL, SignalPayload::None),
        6 => (Signal::ILL, 2, at_instruction),
        11 | 12 => (Signal::BUS, SI_KERNEL, SignalPayload::None),
        16 | 19 => (Signal::FPE, 0, at_instruction),
        17 => (Signal::BUS, 1, SignalPayload::None),
        _ => (Signal::SEGV, SI_KERNEL, SignalPayload::None),
    };
    (signal, SignalInfo { code, errno: 0, payload })
}

/// The signal for a page fault that could not be resolved.
#[must_use]
pub fn signal_for_fault(address: u64, cause: FaultCause) -> (Signal, SignalInfo) {
    let payload = SignalPayload::Fault { address };
    let (signal, code) = match cause {
        FaultCause::NotMapped => (Signal::SEGV, 1),
        FaultCause::NotAllowed => (Signal::SEGV, 2),
        FaultCause::BeyondFile => (Signal::BUS, 2),
    };
    (signal, SignalInfo { code, errno: 0, payload })
}

/// Why a page fault could not be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultCause {
    /// No area there (`SEGV_MAPERR`).
    NotMapped,
    /// The area does not allow it (`SEGV_ACCERR`).
    NotAllowed,
    /// A file mapping behind the end of its file (`BUS_ADRERR`).
    BeyondFile,
}
