//! A process's memory: an address space behind a lock.
//!
//! The lock is taken by the page-fault upcall, so it is never held while program memory is copied (which may fault).

use aegis_abi::upcall::UpcallFrame;
use exos::mem::{Access, AddressSpace, FaultOutcome, SegvReason, SpaceLimits};
use exos::sync::{Mutex, MutexGuard};
use exos::task::limits::{Limits, Resource};

use crate::exception::{FaultCause, PAGE_FAULT_FETCH, PAGE_FAULT_WRITE};

/// A process's memory.
pub struct Space {
    inner: Mutex<AddressSpace>,
}

/// What became of a page fault, as the upcall handler needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultResult {
    /// Repeat the access; so many pages were mapped.
    Resolved(u32),
    /// The program's fault.
    Failed(FaultCause),
    /// No memory is left for it.
    OutOfMemory,
}

impl Space {
    /// Memory that nobody else uses yet.
    #[must_use]
    pub fn new(space: AddressSpace) -> Self {
        Self { inner: Mutex::new(space) }
    }

    /// The address space, for one call.
    pub fn lock(&self) -> MutexGuard<'_, AddressSpace> {
        self.inner.lock()
    }

    /// Resolves the page fault in `frame`.
    pub fn resolve(&self, frame: &UpcallFrame) -> FaultResult {
        let access = if frame.error_code & PAGE_FAULT_FETCH != 0 {
            Access::Execute
        } else if frame.error_code & PAGE_FAULT_WRITE != 0 {
            Access::Write
        } else {
            Access::Read
        };
        match self.lock().handle_fault(frame.fault_address, access) {
            FaultOutcome::Resolved { pages } => FaultResult::Resolved(pages),
            FaultOutcome::Segv(SegvReason::NotMapped) => FaultResult::Failed(FaultCause::NotMapped),
            FaultOutcome::Segv(SegvReason::NotAllowed) => FaultResult::Failed(FaultCause::NotAllowed),
            FaultOutcome::Bus => FaultResult::Failed(FaultCause::BeyondFile),
            FaultOutcome::OutOfMemory => FaultResult::OutOfMemory,
        }
    }

    /// Takes over the limits that concern memory.
    pub fn apply_limits(&self, limits: &Limits) {
        self.lock().set_limits(space_limits(limits));
    }

    /// The most memory that was present at once.
    #[must_use]
    pub fn resident_peak_bytes(&self) -> u64 {
        self.lock().totals().resident_peak * 4096
    }
}

/// The limits that concern memory.
#[must_use]
pub fn space_limits(limits: &Limits) -> SpaceLimits {
    SpaceLimits {
        address_space_bytes: limits.soft(Resource::AddressSpace),
        data_bytes: limits.soft(Resource::Data),
        stack_bytes: limits.soft(Resource::Stack),
        locked_bytes: limits.soft(Resource::LockedMemory),
    }
}
