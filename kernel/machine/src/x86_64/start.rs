//! Starting the other processors: INIT, then START at a page below 1 MiB that leads through `boot.s` to
//! [`start_processor`].
//!
//! The boot processor does not wait for them: each joins when it is ready, and until then nobody sends it anything.
//! Processor numbers are given in order of arrival.
#![allow(unsafe_code, reason = "copies code to low memory")]

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::memory::direct_address;
use super::{instructions, local_apic, paging, power, processor, trap, vector_state};
use crate::PROCESSOR_COUNT_MAX;
use crate::acpi::Topology;

/// Where a starting processor begins: usable memory on every PC, never given away.
pub(crate) const START_PAGE: u64 = 0x8000;

/// Processors that have come through `boot.s`, the boot processor included.
pub(crate) static STARTED_COUNT: AtomicU32 = AtomicU32::new(1);
static TOTAL_COUNT: AtomicUsize = AtomicUsize::new(1);
static FIRMWARE_IDS: [AtomicU32; PROCESSOR_COUNT_MAX] = [const { AtomicU32::new(0) }; PROCESSOR_COUNT_MAX];
static MAIN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Remembers which processors there are.
pub(crate) fn set_topology(topology: &Topology) {
    local_apic::note_started(0);
    for (slot, identifier) in FIRMWARE_IDS.iter().zip(topology.apic_ids()) {
        slot.store(*identifier, Ordering::Relaxed);
    }
    TOTAL_COUNT.store(topology.apic_ids().len().clamp(1, PROCESSOR_COUNT_MAX), Ordering::Relaxed);
}

/// Processors that the machine has (and that are or will be started), at most [`PROCESSOR_COUNT_MAX`].
#[must_use]
pub fn processor_count() -> usize {
    TOTAL_COUNT.load(Ordering::Relaxed)
}

/// Starts all other processors at `main(index)`, with traps ready and interrupts off. Returns at once.
pub fn start_processors(main: fn(usize) -> !) {
    unsafe extern "C" {
        static processor_start_begin: u8;
        static processor_start_end: u8;
    }
    if processor_count() == 1 {
        return;
    }
    MAIN.store(main as *mut (), Ordering::Release);
    let begin = &raw const processor_start_begin;
    let length = (&raw const processor_start_end) as usize - begin as usize;
    let page = core::ptr::with_exposed_provenance_mut::<u8>(direct_address(START_PAGE) as usize);
    for offset in 0..length {
        // SAFETY: the symbols bound the code; the page is low memory, which is mapped writable and owned by nobody.
        unsafe { page.add(offset).write_volatile(begin.add(offset).read()) };
    }
    let others = FIRMWARE_IDS[..processor_count()].iter().map(|slot| slot.load(Ordering::Relaxed));
    for identifier in others.clone().filter(|identifier| *identifier != local_apic::apic_id(0)) {
        local_apic::send_init(identifier);
    }
    // Real processors want 10 ms after INIT; a virtual machine's take both at once, in order.
    for identifier in others.filter(|identifier| *identifier != local_apic::apic_id(0)) {
        local_apic::send_start(identifier, (START_PAGE >> 12) as u8);
    }
}

/// Where `boot.s` enters on another processor.
pub(crate) extern "C" fn start_processor(index: usize) -> ! {
    paging::activate_kernel_root();
    processor::install(index);
    trap::load_table();
    let features = instructions::enable_features();
    trap::install_syscall_entry();
    vector_state::apply(features);
    local_apic::initialize();
    local_apic::note_started(index);
    // A processor that panicked before the bit was set did not stop us.
    power::stop_if_panicking();
    let main = MAIN.load(Ordering::Acquire);
    // SAFETY: `start_processors` stored a function of this type before it started us.
    let main: fn(usize) -> ! = unsafe { core::mem::transmute(main) };
    main(index)
}
