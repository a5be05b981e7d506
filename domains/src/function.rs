//! What domains have in common: the device function with its registers, its interrupt and the memory that it reaches; a
//! client's session; the clock; and how a domain ends.
#![allow(unsafe_code, reason = "maps device registers, the driver's memory and sessions of clients")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::device::{DeviceField, DeviceKind, DeviceOperation};
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_NONE, SLOT_SELF};
use aegis_abi::{CapSlot, Status};
use aegis_hal::{DeviceAddress, DmaRegion, Irq, IrqError, MmioRegion, PAGE_BYTES};
use aegis_rt::call::{self, Refusal};
use aegis_rt::clock;
use aegis_virtio::guard::{Answer, Guard, Request};
use aegis_virtio::{ConfigSpace, Function, FunctionKind, PciWindow, VirtioError};

use crate::layout::{
    DEVICE_BASE, DRIVER_BASE, MISDEED_HANG, MISDEED_LIE, PAGE_DRIVER, SLOT_BELL, SLOT_DEVICE, SLOT_MEMORY,
    client_slots, session_base,
};

/// The bell that the function's interrupt rings: the domain's own.
pub const SLOT_INTERRUPT: CapSlot = CapSlot(8);
/// Address space for one region.
const REGION_STRIDE: u64 = 16 << 20;
/// Most pages of a session.
const SESSION_PAGE_COUNT_MAX: u64 = 2048;

/// Why there is no device.
#[derive(Clone, Copy, Debug)]
pub enum DeviceError {
    /// The function is none.
    NotFound,
    /// The kernel refused something.
    Refused,
    /// The driver could not start it.
    Driver,
}

impl From<VirtioError> for DeviceError {
    fn from(_: VirtioError) -> Self {
        Self::Driver
    }
}

impl From<Refusal> for DeviceError {
    fn from(_: Refusal) -> Self {
        Self::Refused
    }
}

/// Nobody guards the domain's function.
pub struct NoGuard;

impl Guard for NoGuard {
    fn call(&self, _: Request) -> Option<Answer> {
        None
    }
}

/// The domain's function.
pub struct Own;

impl ConfigSpace for Own {
    fn read_u32(&self, offset: u8) -> u32 {
        call::device_read(SLOT_DEVICE, DeviceField::Config, u32::from(offset)).map_or(u32::MAX, |value| value as u32)
    }
}

impl Function for Own {
    type Registers = MmioRegion;
    type Error = DeviceError;

    fn kind(&self) -> Result<FunctionKind, DeviceError> {
        let read = |field| call::device_read(SLOT_DEVICE, field, 0);
        let (kind, identity) = (read(DeviceField::Kind)?, read(DeviceField::Identity)?);
        Ok(if kind == DeviceKind::VirtioMmio as u64 {
            FunctionKind::Mmio { device_type: identity as u32 }
        } else if kind == DeviceKind::Pci as u64 {
            FunctionKind::Pci { vendor: identity as u16, device: (identity >> 16) as u16 }
        } else {
            FunctionKind::Other
        })
    }

    fn enable(&self) -> Result<(), DeviceError> {
        loop {
            // SAFETY: the function is told only frames that are bound for it.
            match unsafe { call::device_control(SLOT_DEVICE, DeviceOperation::Enable) } {
                // The domain before this one has lost it a moment ago.
                Err(Refusal { status: Status::Busy | Status::Again, .. }) => {
                    let _ = call::yield_to(SLOT_NONE);
                }
                outcome => return outcome.map(|_| ()).map_err(DeviceError::from),
            }
        }
    }

    fn map(&self, region: u32, window: Option<PciWindow>) -> Result<MmioRegion, DeviceError> {
        let offset = call::device_read(SLOT_DEVICE, DeviceField::RegionOffset, region)?;
        let length = call::device_read(SLOT_DEVICE, DeviceField::RegionLength, region)?;
        let address = DEVICE_BASE + u64::from(region) * REGION_STRIDE;
        // SAFETY: each region has its own place. Mapping it again is the same mapping.
        unsafe { call::device_map(SLOT_DEVICE, region, address) }?;
        let place = NonNull::new((address + offset) as *mut u8).ok_or(DeviceError::NotFound)?;
        // SAFETY: just mapped uncached, for good; no Rust object lives there; DMA is told only addresses of DMA buffers
        // and of clients' buffers that are bound.
        let registers = unsafe { MmioRegion::new(place, length as usize) };
        match window {
            None => Ok(registers),
            Some(window) => registers
                .window(window.offset as usize, window.length_bytes as usize)
                .map_err(|_| DeviceError::NotFound),
        }
    }
}

/// The function's interrupt, which rings a bell of its own, so that it is known when the next has to be asked for.
pub struct BellIrq {
    interrupt: u32,
}

impl BellIrq {
    /// Binds interrupt `interrupt` of the function.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn bind(interrupt: u32) -> Result<Self, DeviceError> {
        call::bell_create(SLOT_INTERRUPT, SLOT_NONE)?;
        call::device_interrupt_bind(SLOT_DEVICE, interrupt, SLOT_INTERRUPT)?;
        call::device_interrupt_ask(SLOT_DEVICE, interrupt)?;
        Ok(Self { interrupt })
    }
}

impl Irq for BellIrq {
    fn count(&self) -> u64 {
        0
    }

    fn unmask(&mut self) -> Result<(), IrqError> {
        call::device_interrupt_ask(SLOT_DEVICE, self.interrupt).map(|_| ()).map_err(|_| IrqError::Revoked)
    }
}

/// Lets the function reach the driver's memory; called once.
///
/// # Errors
/// The kernel refuses it.
pub fn driver_memory(memory_frame: u64, page_count: u64) -> Result<DmaRegion, DeviceError> {
    let entry =
        BindEntry::map(DRIVER_BASE, memory_frame + PAGE_DRIVER, page_count as u32, SLOT_MEMORY, BindFlags::WRITE);
    // SAFETY: a place that is used for nothing else.
    unsafe { call::bind(SLOT_SELF, &[entry]) }?;
    // SAFETY: these frames are the driver's alone.
    let address = unsafe { call::device_dma_bind(SLOT_DEVICE, SLOT_MEMORY, PAGE_DRIVER, page_count) }?;
    let base = NonNull::new(DRIVER_BASE as *mut u8).ok_or(DeviceError::NotFound)?;
    // SAFETY: mapped just now and bound for the device at `address`, for good; used for nothing else.
    let region = unsafe { DmaRegion::new(base, page_count as usize * PAGE_BYTES, DeviceAddress(address)) };
    region.ok_or(DeviceError::NotFound)
}

/// Maps a client's session, for good; as many pages of it as are words. None: an empty slice.
pub fn show_session(index: usize, page_count: u64, word_page_count: u64) -> &'static [AtomicU64] {
    let slot = client_slots(index)[0];
    let Ok(first) = call::cap_read(slot, 1) else { return &[] };
    let base = session_base(index);
    if page_count == 0 || page_count > SESSION_PAGE_COUNT_MAX || word_page_count > page_count {
        return &[];
    }
    let entry = BindEntry::map(base, first, page_count as u32, slot, BindFlags::WRITE);
    // SAFETY: a place that is used for nothing else.
    if unsafe { call::bind(SLOT_SELF, &[entry]) }.is_err() {
        return &[];
    }
    let word_count = (word_page_count * PAGE_SIZE / 8) as usize;
    // SAFETY: mapped just now, for good: frames that the client takes away end the domain by a fault, and nothing else.
    // Everybody who writes there does so by whole words, which is what atomics are about.
    unsafe { core::slice::from_raw_parts(base as *const AtomicU64, word_count) }
}

/// Lets the function reach the pages of a session that was shown that are no words.
///
/// # Errors
/// The kernel refuses it.
pub fn session_memory(index: usize, page_count: u64, word_page_count: u64) -> Result<DmaRegion, DeviceError> {
    let byte_page_count = page_count.checked_sub(word_page_count).ok_or(DeviceError::NotFound)?;
    let slot = client_slots(index)[0];
    // SAFETY: a client's frames, of which no Rust object lives in those behind the words.
    let address = unsafe { call::device_dma_bind(SLOT_DEVICE, slot, word_page_count, byte_page_count) }?;
    let base = session_base(index) + word_page_count * PAGE_SIZE;
    let base = NonNull::new(base as *mut u8).ok_or(DeviceError::NotFound)?;
    // SAFETY: mapped by `show_session`, for good, and bound for the device at `address`. The client accesses them too,
    // as a device would: nothing here believes what it reads, and every access is volatile.
    let region = unsafe { DmaRegion::new(base, byte_page_count as usize * PAGE_BYTES, DeviceAddress(address)) };
    region.ok_or(DeviceError::NotFound)
}

/// Sleeps until the function interrupts or the domain's bell rings, and takes that bell; whether it was the function.
pub fn sleep() -> bool {
    let terms = [(0, SLOT_INTERRUPT), (1, SLOT_BELL)].map(|(product, bell)| Term {
        product,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: bell.0,
        address: 0,
        value: 1,
    });
    // The value is the product that held: the first is the device's.
    let has_interrupted = call::sleep(&terms) == Ok(0);
    let _ = call::bell_take(if has_interrupted { SLOT_INTERRUPT } else { SLOT_BELL });
    has_interrupted
}

/// The machine's clock.
pub fn now_ns() -> u64 {
    // SAFETY: the kernel maps the system page for every environment.
    let page = unsafe { clock::system_page() };
    clock::nanoseconds_at(page, clock::time_stamp())
}

/// What a domain does wrong, for tests.
#[derive(Clone, Copy)]
pub struct Misdeed {
    kind: u64,
    /// When it is due; `u64::MAX`: never.
    pub due_ns: u64,
}

impl Misdeed {
    /// What a plan says, of a domain that begins now.
    #[must_use]
    pub fn new([kind, after_ns]: [u64; 2]) -> Self {
        Self { kind, due_ns: if kind == 0 { u64::MAX } else { now_ns() + after_ns } }
    }

    /// Does it, if it is due. One who lies calls `wake` afterwards, and is as one that hangs from then on: what it was
    /// told to is done.
    pub fn do_if_due(self, now_ns: u64, session: &[AtomicU64], wake: impl FnOnce()) {
        if now_ns < self.due_ns {
            return;
        }
        match self.kind {
            MISDEED_LIE => {
                // Every word that the client could believe in, by turns.
                session.iter().for_each(|word| {
                    word.fetch_xor(now_ns | 1 << 40 | 1 << 5, Ordering::Relaxed);
                });
                wake();
            }
            MISDEED_HANG => {}
            _ => fault(),
        }
        loop {
            sleep();
        }
    }
}

/// Ends the domain: nobody takes its exceptions.
pub fn fault() -> ! {
    // SAFETY: an invalid instruction; the kernel stops the environment.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
