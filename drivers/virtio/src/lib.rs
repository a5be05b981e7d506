//! Virtio 1.x devices, driven by safe code that trusts nothing the device writes.
//!
//! Layers, bottom up: [`Transport`] (the registers, over memory: [`MmioTransport`], over PCI:
//! [`PciTransport`]), [`device`] (the order of status bits and features that all devices share),
//! [`Queue`] (the split virtqueue) and one module per device: [`block`], [`console`], [`net`], [`ninep`]. Beside them
//! [`guard`]: a device that one domain owns and another drives. Section numbers in comments are those of "Virtual I/O
//! Device (VIRTIO) Version 1.2".
//!
//! # Invariants
//!
//! - VIRTIO-1 Nothing that the device can write is believed: driver state lives in ordinary memory,
//!   never in the rings; an identifier, index or length from the device is checked against that
//!   state before use, and read once.
//! - VIRTIO-2 Whatever the device writes, whenever, the answer is an [`VirtioError`], ignored data,
//!   or wrong bytes in the payload. Never a panic, an access outside a buffer, or a loop without a
//!   bound.
//! - VIRTIO-3 A queue that caught its device at a protocol violation stays failed until the device
//!   is reset.
//! - VIRTIO-4 Buffers go back to [`aegis_hal::Dma`] only after the device's status has been seen as
//!   zero; otherwise to quarantine.
//! - VIRTIO-5 No allocation but DMA pages, no time, no randomness: waits are bounded by a count
//!   that the caller gives.
//!
//! # Why not an existing crate
//!
//! See `docs/dependencies.md`: the common one neither negotiates `VIRTIO_F_ACCESS_PLATFORM`,
//! without which a device behind an IOMMU is not confined, nor has an allocator per device.
#![no_std]
#![forbid(unsafe_code)]

pub mod block;
mod bus;
pub mod console;
pub mod device;
mod error;
// The device model needs an allocator, which a kernel that places the driver in itself does not
// have.
#[cfg(not(target_os = "none"))]
pub mod fake;
pub mod guard;
pub mod net;
pub mod ninep;
mod queue;
mod transport;
mod transport_mmio;
mod transport_pci;

pub use bus::{AnyTransport, Function, FunctionKind, device_type, open};
pub use error::{Blame, CallerFault, ConfigurationFault, DeviceFault, VirtioError};
pub use queue::{Interrupts, QUEUE_SIZE_MAX, Queue, Segment, Used, ring_page_count};
pub use transport::{InterruptCause, QueueAddresses, Transport};
pub use transport_mmio::MmioTransport;
pub use transport_pci::{
    ConfigSpace, PciInterrupt, PciLayout, PciTransport, PciWindow, PciWindows, find_layout, modern_or_transitional_type,
};
