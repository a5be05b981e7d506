//! What a driver may touch of the world, as four traits: [`Volatile`], [`Port`], [`Dma`] and [`Irq`].
//!
//! A driver is written once over these traits, as a crate that forbids unsafe code, and is *placed*
//! by its constructor's caller: in the kernel, in a driver domain, or in a program's library OS.
//! The constructor of the placement owns the facts that make an access sound (which address is
//! mapped, which frame the device may reach); it states them once, in the `unsafe fn new` of
//! [`MmioRegion`] and [`DmaRegion`]. Those two types are the only unsafe code on the driver side.
//!
//! # Invariants
//!
//! - HAL-1 Every access is checked against the length of its region and against its own alignment.
//!   A failed check is an [`AccessError`], never a panic and never an access.
//! - HAL-2 No reference (`&T`, `&[T]`) to memory that a device can write ever exists: all access to
//!   it is volatile and by value, so the compiler may neither assume that it stays the same nor
//!   read it twice.
//! - HAL-3 Memory that a device may still reach is not reused. The order is: stop the device, wait
//!   until it has stopped, unmap (translation for the device), flush (its translation cache), free.
//!   [`Dma::release`] is the last three; its caller has done the first two, or else calls
//!   [`Dma::quarantine`].
//! - HAL-4 Dropping a [`DmaBuffer`] frees nothing: the safe way to forget a buffer is to leak it.
//!
//! # Neighbours
//!
//! Below: the kernel's device objects, which decide what can be mapped at all; nothing here widens
//! that. Above: `drivers/virtio` and later drivers; [`net`] says what those of network cards offer, [`block`]
//! what those of disks do.
//! Beside: `fake` (hosted targets only), a world for host tests with a device that may be hostile; `qtest` (a feature
//! for tests), the world of a real QEMU without a guest.
//!
//! Everything is little-endian, as the machine and the devices are.
#![no_std]

pub mod barrier;
pub mod block;
mod dma;
mod either;
// The fakes need an allocator, which a kernel that places a driver in itself does not have.
#[cfg(not(target_os = "none"))]
pub mod fake;
mod irq;
mod mmio;
pub mod net;
mod pool;
mod port;
#[cfg(feature = "qtest")]
pub mod qtest;
mod region;

pub use dma::{DeviceAddress, Dma, DmaBuffer, DmaError, PAGE_BYTES};
pub use either::{EitherCard, EitherDisk, EitherError};
pub use irq::{Irq, IrqError};
pub use mmio::{AccessError, Volatile, Width, check_access, check_range};
pub use pool::{DmaPool, DmaRun};
pub use port::Port;
pub use region::{DmaRegion, Doorbell, MmioRegion};

// Values cross the traits as integers; on a big-endian target each of them would need a swap.
const _: () = assert!(cfg!(target_endian = "little"));
