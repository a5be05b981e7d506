//! A process's memory: an address space behind a lock.
//!
//! The lock is taken by the page-fault upcall, so it is never held while program memory is copied (which may fault).
//! Pages of files that have to be waited for are fetched without it ([`Space::resolve`]).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use aegis_abi::CapSlot;
use aegis_abi::types::SLOT_SELF;
use aegis_abi::upcall::UpcallFrame;
use exos::error::Errno;
use exos::mem::{
    Access, AddressSpace, DeferredUnmap, FaultOutcome, FileIdentity, Handler, SegvReason, SharedState, SpaceLimits,
    Wait, WantedPage,
};
use exos::platform::Kernel;
use exos::rewrite::Refusal;
use exos::sync::{Mutex, MutexGuard};
use exos::task::limits::{Limits, Resource};

use crate::task::aio::Contexts;
use crate::task::exception::{FaultCause, PAGE_FAULT_FETCH, PAGE_FAULT_WRITE};

/// Times that a word is tried again while others change it.
const EXCHANGE_COUNT_MAX: usize = 1 << 16;
/// A space with more page tables than this is ended with its process; one with fewer is emptied for the next.
const KEPT_TABLE_COUNT_MAX: u64 = 64;
/// Pages that are fetched without the lock for one thing to do.
const FETCH_COUNT_MAX: usize = 64;

/// A process's memory. The drop of the last reference ends the address space; no processor may be in it then.
pub struct Space {
    inner: Mutex<AddressSpace>,
    slot: CapSlot,
    kernel: Arc<dyn Kernel>,
    dumpable: AtomicU8,
    has_threads: AtomicBool,
    /// Contexts of asynchronous input and output, which end with it.
    pub async_contexts: Contexts,
}

/// Access to a process's memory, by the numbers of `PR_SET_DUMPABLE`: only processes that may trace everything, or (1)
/// others of its user. Processes that share memory have it in common.
pub const DUMPABLE_BY_USER: u8 = 1;

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

/// What became of a page fault of the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultReport {
    /// Outcome of the fault.
    pub result: FaultResult,
    /// The program's own handler that is entered if the fault is not resolved.
    pub handler: Option<Handler>,
    /// Where the program's own text has the instruction, if it stands in a trampoline.
    pub own_rip: Option<u64>,
}

impl Space {
    /// Memory that nobody else uses yet.
    #[must_use]
    pub fn new(kernel: &Arc<dyn Kernel>, space: AddressSpace) -> Self {
        let slot = space.environment();
        Self {
            inner: Mutex::new(space),
            slot,
            kernel: kernel.clone(),
            dumpable: AtomicU8::new(DUMPABLE_BY_USER),
            has_threads: AtomicBool::new(false),
            async_contexts: Contexts::default(),
        }
    }

    /// Which processes may look into it ([`DUMPABLE_BY_USER`]).
    #[must_use]
    pub fn dumpable(&self) -> u8 {
        self.dumpable.load(Ordering::Acquire)
    }

    /// Sets which processes may look into it.
    pub fn set_dumpable(&self, who: u8) {
        self.dumpable.store(who, Ordering::Release);
    }

    /// More than one thread is going to use it, at once where there are several processors.
    pub fn note_threads(&self, is_parallel: bool) {
        if !self.has_threads.load(Ordering::Relaxed) {
            self.has_threads.store(true, Ordering::Relaxed);
            self.lock().note_threads(is_parallel);
        }
    }

    /// `munmap`, without the lock while other processors forget the pages.
    pub fn unmap(&self, address: u64, length: u64) -> exos::error::Result<()> {
        let mut space = self.lock();
        if !space.unmaps_apart() {
            return space.unmap(address, length);
        }
        let rest = space.unmap_apart(address, length)?;
        drop(space);
        rest.map_or(Ok(()), DeferredUnmap::finish)
    }

    /// The kernel's name of the address space.
    #[must_use]
    pub fn slot(&self) -> CapSlot {
        self.slot
    }

    /// An empty address space with its own page table, where `program` is to be loaded. Until it is, nobody looks into
    /// it. `ENOMEM`.
    pub fn create(
        kernel: &Arc<dyn Kernel>,
        shared: &Arc<SharedState>,
        base: u64,
        limits: SpaceLimits,
        program: Option<FileIdentity>,
    ) -> exos::error::Result<Self> {
        let space = Self::new(kernel, AddressSpace::make(shared, base, limits, program)?);
        space.set_dumpable(0);
        Ok(space)
    }

    /// A copy by copy on write, for `fork`. `ENOMEM`.
    pub fn fork(&self) -> exos::error::Result<Self> {
        let copy = self.lock().fork()?;
        let copy = Self::new(&self.kernel, copy);
        copy.set_dumpable(self.dumpable());
        Ok(copy)
    }

    /// The address space, for one call.
    pub fn lock(&self) -> MutexGuard<'_, AddressSpace> {
        self.inner.lock()
    }

    /// Resolves the page fault in `frame`, which exos had while it did what the program asked for.
    pub fn resolve(&self, frame: &UpcallFrame) -> FaultResult {
        let (address, access) = (frame.fault_address, access_of(frame));
        self.fetching(|space, wait| {
            if space.is_watched(address) {
                return Ok(FaultResult::Failed(FaultCause::NotAllowed));
            }
            result_of(space.handle_fault(address, access, wait))
        })
    }

    /// The same for a fault of the program itself; and what is to be known where exos has no answer.
    pub fn resolve_or_report(&self, frame: &UpcallFrame) -> FaultReport {
        let (address, access) = (frame.fault_address, access_of(frame));
        let mut space = self.lock();
        if let Some(reason) = space.refuses(address, access) {
            let handler = space.fault_handler(address);
            return FaultReport { result: reason.into(), handler, own_rip: space.sites().original(frame.rip) };
        }
        // Nearly always nothing has to be waited for.
        match space.handle_fault(address, access, Wait::Refused) {
            FaultOutcome::Resolved { pages } => {
                let handler = space.watcher(address);
                FaultReport { result: FaultResult::Resolved(pages), handler, own_rip: None }
            }
            outcome => {
                drop(space);
                self.report_by_fetching(frame, outcome)
            }
        }
    }

    /// The same after the first attempt had this outcome.
    #[cold]
    fn report_by_fetching(&self, frame: &UpcallFrame, outcome: FaultOutcome) -> FaultReport {
        let (address, access) = (frame.fault_address, access_of(frame));
        let mut outcome = Some(outcome);
        self.fetching(|space, wait| {
            let outcome = outcome.take().unwrap_or_else(|| space.handle_fault(address, access, wait));
            let result = result_of(outcome)?;
            let handler = match result {
                FaultResult::Resolved(_) => {
                    return Ok(FaultReport { result, handler: space.watcher(address), own_rip: None });
                }
                FaultResult::Failed(_) => space.fault_handler(address),
                FaultResult::OutOfMemory => space.take_shortage_handler(),
            };
            Ok(FaultReport { result, handler, own_rip: space.sites().original(frame.rip) })
        })
    }

    /// The program's own handler of a fault that the areas refuse. It waits for nothing and changes nothing: `None` is
    /// also a lock that is taken.
    #[inline]
    #[must_use]
    pub fn report_nofault(&self, frame: &UpcallFrame) -> Option<(Handler, FaultResult)> {
        let space = self.inner.try_lock()?;
        let handler = space.fault_handler(frame.fault_address)?;
        let reason = space.refuses(frame.fault_address, access_of(frame))?;
        Some((handler, reason.into()))
    }

    /// As [`AddressSpace::rewrite_site`].
    pub fn rewrite_site(&self, return_address: u64, entry_offset: u32) -> Option<core::result::Result<(), Refusal>> {
        self.fetching(|space, wait| space.rewrite_site(return_address, entry_offset, wait))
    }

    /// Does what may want pages of files under the lock. A page that it wants is fetched without the lock, so that
    /// others can use the space meanwhile, and kept until it was tried again. A page that cannot be had, or comes and
    /// goes, is waited for under the lock.
    fn fetching<R>(&self, mut work: impl FnMut(&mut AddressSpace, Wait) -> core::result::Result<R, WantedPage>) -> R {
        let mut fetched = None;
        let mut count = 0;
        loop {
            let wait = if count < FETCH_COUNT_MAX { Wait::Refused } else { Wait::Allowed };
            let outcome = work(&mut self.lock(), wait);
            drop(fetched);
            match outcome {
                Ok(done) => return done,
                Err(wanted) => fetched = wanted.fetch().ok(),
            }
            count = if fetched.is_some() { count + 1 } else { FETCH_COUNT_MAX };
        }
    }

    /// Replaces the aligned word at `address` by what `change` makes of it, atomically; the word before. `EFAULT`, and
    /// what `change` refuses with.
    pub fn update_u32(
        &self,
        address: u64,
        mut change: impl FnMut(u32) -> exos::error::Result<u32>,
    ) -> exos::error::Result<u32> {
        if !address.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        let mut space = self.lock();
        let pool = space.pool().clone();
        let frame =
            pool.with_reserve(|| space.frame_for(address, Access::Write, Wait::Allowed)).map_err(|_| Errno::EFAULT)?;
        let (bytes, offset) = (space.pool().bytes().clone(), (address % 4096) as usize);
        let mut word = [0; 4];
        bytes.read(frame, offset, &mut word);
        let mut before = u32::from_le_bytes(word);
        for _ in 0..EXCHANGE_COUNT_MAX {
            match bytes.compare_exchange_u32(frame, offset, before, change(before)?) {
                Ok(word) => return Ok(word),
                Err(seen) => before = seen,
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Takes over the limits that concern memory.
    pub fn apply_limits(&self, limits: &Limits) {
        self.lock().set_limits(space_limits(limits));
    }

    /// Pages present; `None` while somebody else has the memory in hand.
    #[must_use]
    pub fn try_resident_pages(&self) -> Option<u64> {
        let totals = self.inner.try_lock()?.totals();
        Some(totals.resident_anonymous + totals.resident_file)
    }

    /// The most memory that was present at once.
    #[must_use]
    pub fn resident_peak_bytes(&self) -> u64 {
        self.lock().resident_peak() * 4096
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let space = self.inner.get_mut();
        if self.slot == SLOT_SELF {
            space.clear();
            return;
        }
        let table_count = space.page_table_bound();
        let is_gone = table_count <= KEPT_TABLE_COUNT_MAX && space.unmap_all() && space.keep();
        if is_gone || self.kernel.destroy_space(self.slot).is_ok() {
            space.abandon();
        } else {
            space.clear();
        }
    }
}

/// What became of a fault, or the page that it wants first.
#[inline]
fn result_of(outcome: FaultOutcome) -> core::result::Result<FaultResult, WantedPage> {
    Ok(match outcome {
        FaultOutcome::Resolved { pages } => FaultResult::Resolved(pages),
        FaultOutcome::Segv(reason) => reason.into(),
        FaultOutcome::Bus => FaultResult::Failed(FaultCause::BeyondFile),
        FaultOutcome::OutOfMemory => FaultResult::OutOfMemory,
        FaultOutcome::Wants(page) => return Err(page),
    })
}

/// What a page fault was about to do.
fn access_of(frame: &UpcallFrame) -> Access {
    if frame.error_code & PAGE_FAULT_FETCH != 0 {
        Access::Execute
    } else if frame.error_code & PAGE_FAULT_WRITE != 0 {
        Access::Write
    } else {
        Access::Read
    }
}

impl From<SegvReason> for FaultResult {
    fn from(reason: SegvReason) -> Self {
        Self::Failed(match reason {
            SegvReason::NotMapped => FaultCause::NotMapped,
            SegvReason::NotAllowed => FaultCause::NotAllowed,
        })
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
