//! The bare machine: from the monitor's entry to the kernel's main function, and everything that the kernel asks of
//! hardware.
//!
//! Boot order: `boot.s` (32-bit to 64-bit, boot tables) → [`machine_start`] (start structure, processor features,
//! final page tables, traps, ACPI, interrupt controllers, clock) → the function given to
//! [`kernel_main!`](crate::kernel_main). Nothing allocates; what the kernel wants for its tables it takes from
//! [`BootMemory`] before the first environment runs.

mod instructions;
mod interrupt;
mod io_apic;
mod local_apic;
mod lock;
mod memory;
mod paging;
mod panic;
mod pci_ports;
mod ports;
mod power;
mod processor;
mod serial;
mod shootdown;
mod start;
mod time;
mod trap;
mod vector_state;
mod virtio_mmio;

pub use instructions::{UserBases, read_tsc, set_user_bases, user_bases};
pub use interrupt::{DEVICE_VECTOR_FIRST, DEVICE_VECTOR_LAST, VECTOR_RESCHEDULE, VECTOR_TIMER, send_reschedule};
pub use io_apic::{line_mask, line_route};
pub use lock::{KernelGuard, KernelLock};
pub use memory::{
    BootMemory, device_register_write, frame_address, map_device, physical_compare_exchange, physical_find_word,
    physical_store_words, physical_words, physical_zero, words,
};
pub use paging::{
    KERNEL_SLOT_DIRECT, KERNEL_SLOT_IMAGE, activate_kernel_root, activate_root, flush_all, flush_page, kernel_root,
    kernel_slot_entry,
};
pub use pci_ports::{PciPorts, msi_route, msi_x_mask, msi_x_route};
pub use ports::{port_read, port_write};
pub use power::{ExitCode, power_off};
pub use processor::{ContextPlaces, clear_upcall_places, processor_index, set_upcall_places, take_entry_counts};
pub use serial::{LogLevel, log_bytes, log_enabled, log_write};
pub use shootdown::{Flush, shootdown};
pub use start::{processor_count, start_processors};
pub use time::{now_ns, timer_set_ns, timer_stop};
pub use trap::{Handlers, enter, frame_is_user, hear_page_faults, idle_frame, set_handlers};
pub use vector_state::{vector_initialize, vector_restore, vector_save, vector_state_mask};
pub use virtio_mmio::{VIRTIO_BLOCK_BYTES, VirtioMmioSlot, virtio_mmio_slots};

use crate::acpi::Topology;
use crate::clock::ClockScale;
use crate::frame_range::FrameRange;
use crate::start_info::StartInfo;
use crate::{PROCESSOR_COUNT_MAX, command_line};

/// What the kernel's main function gets.
#[derive(Debug)]
pub struct Boot {
    /// The kernel's command line.
    pub command_line: &'static str,
    /// The boot bundle: its first byte's physical address and its exact length. Its frames are not in `memory`.
    pub bundle: Option<(u64, u64)>,
    /// All memory that nobody uses yet.
    pub memory: BootMemory,
    /// Usable processors and interrupt controllers.
    pub topology: Topology,
    /// Time: 0 is the kernel's first instruction.
    pub clock: ClockScale,
}

/// Names the kernel's main function: `kernel_main!(main)` with `fn main(boot: Boot) -> !`.
#[macro_export]
macro_rules! kernel_main {
    ($main:path) => {
        #[allow(unsafe_code, reason = "the machine finds the kernel's main function by its symbol")]
        #[unsafe(no_mangle)]
        extern "Rust" fn aegis_kernel_main(boot: $crate::Boot) -> ! {
            let main: fn($crate::Boot) -> ! = $main;
            main(boot)
        }
    };
}

/// The boot processor's way from `boot.s` to the kernel. `start_info` is physical, `entry_tsc` the counter at the
/// first instruction.
#[allow(unsafe_code, reason = "calls the kernel's main function by its symbol")]
extern "C" fn machine_start(start_info: u64, entry_tsc: u64) -> ! {
    processor::install_boot();
    serial::initialize();
    trap::initialize();
    let features = instructions::enable_features();
    trap::install_syscall_entry();
    let reader = memory::BootReader;
    let info = StartInfo::parse(&reader, start_info)
        .unwrap_or_else(|error| panic!("the start structure at {start_info:#x} is not usable: {error:?}"));
    let command_line = memory::copy_command_line(info.command_line);
    serial::set_level(command_line::value(command_line, "log"));
    let mut memory = BootMemory::from_map(&info);
    if let Some(module) = info.module {
        memory.reserve(FrameRange::covering_bytes(module.address, module.length_bytes));
    }
    memory::reserve_image(&mut memory);
    paging::install_final(&info, &mut memory, features);
    vector_state::initialize(features);
    crate::log!(Debug, "{} frames of memory, features {features:?}", memory.frame_end());

    local_apic::initialize();
    let calibration = time::start_calibration();
    let topology = Topology::from_acpi(&memory::DirectReader, info.rsdp)
        .unwrap_or_else(|| Topology::fallback(local_apic::identifier()));
    start::set_topology(&topology);
    io_apic::initialize(&topology);
    let clock = time::finish_calibration(calibration, entry_tsc);
    crate::log!(Debug, "{} processors, TSC {} Hz", topology.apic_ids().len().min(PROCESSOR_COUNT_MAX), clock.tsc_hz);

    unsafe extern "Rust" {
        safe fn aegis_kernel_main(boot: Boot) -> !;
    }
    aegis_kernel_main(Boot {
        command_line,
        bundle: info.module.map(|module| (module.address, module.length_bytes)),
        memory,
        topology,
        clock,
    })
}
