//! A disk whose driver is in the kernel: its session is reached by calls of the kernel's extension, and its memory by
//! ranges that are bound for the function.
//!
//! The function is the kernel's: what this pod has of it is the right to say what it reaches and what bell its
//! interrupts ring. Taking a range back stops it (ADR 0075), so that is done only where the session ends with it.
//!
//! Neighbours: [`exos_linux::host::disk_session`] is the disk over a session, `aegis_proto::block::KernelCall` says
//! what the calls are, `disk` makes one at the disk's first use.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

use aegis_abi::boot::BootInfo;
use aegis_abi::types::SLOT_DEVICE_FIRST;
use aegis_abi::{CapSlot, FrameNumber, Status};
use aegis_link::disks::KERNEL_DISK_COUNT_MAX;
use aegis_proto::block::{KernelCall, Visits};
use aegis_rt::call;
use exos::platform::FrameGrant;
use exos::sync::SpinMutex;
use exos_linux::host::disk_session::{DiskPlace, SHAPE};
use exos_linux::host::session_place::{SessionPlace, Sessions, visit_while_more};

use super::domain::take_session;
use super::kernel;

/// A range that is bound for the function: a capability, and its frames from the first on.
#[derive(Clone, Copy)]
struct Bound {
    slot: CapSlot,
    first: FrameNumber,
    count: u64,
}

/// Where a disk of the kernel's is reached.
pub(crate) struct Place {
    /// Of the kernel's disks.
    number: u64,
    device: CapSlot,
    session: FrameGrant,
    words: &'static [AtomicU64],
    bound: SpinMutex<Vec<Bound>>,
    sessions: Sessions,
    visits: Visits,
}

impl Place {
    /// Finds a disk of the kernel's, whose interrupts ring a bell.
    pub(crate) fn find(info: &BootInfo, number: usize, bell: CapSlot) -> Result<Self, Status> {
        let (number, device, interrupt) = find_own(info, number)?;
        call::device_interrupt_bind(device, interrupt, bell).map_err(|refusal| refusal.status)?;
        let (session, words) = take_session(SHAPE.page_count() as u64, SHAPE.page_count() as u64)?;
        let bound = SpinMutex::new(Vec::new());
        Ok(Self { number, device, session, words, bound, sessions: Sessions::new(), visits: Visits::new() })
    }

    /// Lets the function reach a range, of which the kernel takes note in `call`.
    fn bind(&self, range: Bound, call: KernelCall, number: u64) -> bool {
        let mut bound = self.bound.lock();
        // SAFETY: frames of programs, or of the session, in which no Rust object lies but words of the session.
        let reached = unsafe { call::device_dma_bind(self.device, range.slot, 0, range.count) };
        if bound.try_reserve(1).is_err() || reached.is_err() {
            return false;
        }
        bound.push(range);
        extension(call as u64, [self.number, range.first.0, range.count, number]).is_ok()
    }

    fn call(&self, call: KernelCall) -> Option<u64> {
        self.sessions.call(|| extension(call as u64, [self.number, 0, 0, 0]))
    }
}

/// The kernel's number of the disk that is this pod's number `wanted`, its function and its interrupt there. The kernel
/// counts all that it drives; this pod's are those whose function it has.
fn find_own(info: &BootInfo, wanted: usize) -> Result<(u64, CapSlot, u32), Status> {
    let mut count = 0;
    for number in 0..KERNEL_DISK_COUNT_MAX as u64 {
        let found = match extension(KernelCall::Find as u64, [number, 0, 0, 0]) {
            // There are no more.
            Err(Status::WrongState) => break,
            found => found?,
        };
        let Some(device) = function_slot(info, found as u32) else { continue };
        if count == wanted {
            return Ok((number, device, (found >> 32) as u32));
        }
        count += 1;
    }
    Err(Status::WrongState)
}

/// This pod's slot of the machine's function `number`, if it has it.
pub(super) fn function_slot(info: &BootInfo, number: u32) -> Option<CapSlot> {
    let mut slots = (0..info.device_count).map(|index| CapSlot(SLOT_DEVICE_FIRST.0 + index));
    slots.find(|slot| call::cap_read(*slot, 1) == Ok(u64::from(number)))
}

/// A call of the kernel's extension.
pub(super) fn extension(operation: u64, [first, second, third, fourth]: [u64; 4]) -> Result<u64, Status> {
    // SAFETY: the extension writes where ranges were bound for its function, and nowhere else.
    let answer = unsafe { call::extension_call(operation, [first, second, third, fourth, 0]) };
    answer.map_err(|refusal| refusal.status)
}

impl SessionPlace for Place {
    const IS_CALLED: bool = true;

    fn words(&self) -> &[AtomicU64] {
        self.words
    }

    fn ring(&self) {
        self.visits.visit(|| visit_while_more(|| self.call(KernelCall::Visit)));
    }

    fn listen(&self) -> bool {
        // What is lost is for a look to find.
        self.call(KernelCall::Ask) != Some(0)
    }

    fn end(&self) -> bool {
        // Refused where the kernel has ended it already.
        let _ = extension(KernelCall::Detach as u64, [self.number, 0, 0, 0]);
        for range in self.bound.lock().drain(..) {
            // SAFETY: the function is stopped before it loses a range; one that was taken by force is none any more.
            let _ = unsafe { call::device_dma_unbind(self.device, range.slot, 0, range.count) };
        }
        true
    }

    fn start(&self) -> bool {
        let FrameGrant { slot, first, count } = self.session;
        let is_there = self.bind(Bound { slot, first, count }, KernelCall::Attach, 0);
        self.sessions.begin();
        is_there
    }

    fn is_stopped(&self) -> bool {
        self.sessions.is_lost()
    }

    fn now_ns(&self) -> u64 {
        kernel::now_ns()
    }
}

impl DiskPlace for Place {
    fn give(&self, number: usize, frame: FrameNumber) -> Option<(FrameNumber, u64)> {
        let slot = kernel::program_grant_of(frame)?;
        let (first, count) = (FrameNumber(call::cap_read(slot, 1).ok()?), call::cap_read(slot, 2).ok()?);
        self.bind(Bound { slot, first, count }, KernelCall::Register, number as u64).then_some((first, count))
    }

    const TIMEOUT_FACTOR: u64 = 1;

    fn is_given_up(&self) -> bool {
        false
    }

    fn take_back(&self, grant: CapSlot) {
        let mut bound = self.bound.lock();
        let Some(index) = bound.iter().position(|range| range.slot == grant) else { return };
        let range = bound.swap_remove(index);
        // SAFETY: the function is stopped before it loses the range.
        let _ = unsafe { call::device_dma_unbind(self.device, range.slot, 0, range.count) };
        self.sessions.lose();
    }
}
