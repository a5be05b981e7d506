//! IDE disks behind the bus master of a PIIX, driven by safe code that trusts nothing the device says.
//!
//! A [`Channel`] is two devices, 0 and 1, of which one command at a time is under way; a [`Disk`] is one of the two as
//! a [`aegis_hal::block::BlockDevice`]. Requests wait in the channel, in the order in which they were given, so the
//! depth of a disk is that of a queue in front of it and no more: a caller that wants an order of its own says 1.
//!
//! Data moves by the bus master where the disk has DMA, the function a bus master, and the pieces lie at even addresses
//! below 4 GiB; else the processor moves it, by blocks of "multiple": nothing is refused for where it lies, and nothing
//! is bounced. Every access to a port may be a call to a kernel, so their number is what this driver saves: a DMA
//! command is ten (a place of 28 bits and as many sectors as those commands have; device, direction and table are
//! written where they change).
//!
//! Trust: the device decides whether a command succeeds, and the bytes of a read. A status that asks for data where
//! there is none to move, or a bus master that is done and has not moved what it was told, is the end of the channel
//! ([`IdeError`]) until a reset. The driver waits only for what a count bounds; a command that does not end is its
//! caller's to notice.
//!
//! # Invariants
//!
//! - IDE-1 No call makes more than a bounded number of accesses, whatever the device answers.
//! - IDE-2 The bus master's tables are written before the command is, and name only memory of the request under way.
//! - IDE-3 Memory goes back to [`aegis_hal::Dma`] only after the bus master has been seen at rest; else to quarantine.
//! - BLK-1 to BLK-4 of [`aegis_hal::block`].
//!
//! Not done: ATAPI, TRIM, sectors that are not of 512 bytes, modes above Ultra DMA 2 (no look at the cable), timings of
//! the controller (firmware's).
#![no_std]
#![forbid(unsafe_code)]

mod channel;
mod disk;
mod error;
// The device model needs an allocator, which a kernel that places the driver in itself does not have.
#[cfg(not(target_os = "none"))]
pub mod fake;
mod identity;
mod registers;
mod start;
mod table;

pub use channel::{Channel, Limits, REQUEST_COUNT_MAX, SEGMENT_COUNT_MAX, Stopped};
pub use disk::Disk;
pub use error::IdeError;
pub use identity::Identity;
pub use registers::Ports;
