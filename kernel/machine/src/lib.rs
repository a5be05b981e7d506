//! The machine: boot, paging, traps, interrupts, processors, time. The only unsafe code of ring 0.
//!
//! What can be decided without touching hardware (boot structures, ACPI tables, descriptors, clock arithmetic, the
//! symbol table) is in the modules of this level and is tested on the host. What touches hardware is in `x86_64`,
//! which exists on the bare target only.
//!
//! The crate holds no policy. It offers mechanisms whose safe functions cannot break memory safety of the kernel
//! image itself; whether a frame may be written or a page mapped is decided by the kernel core before it calls here.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod acpi;
pub mod clock;
pub mod command_line;
pub mod descriptor;
pub mod frame_range;
pub mod start_info;
#[cfg(test)]
mod start_tests;

#[cfg(target_os = "none")]
pub mod x86_64;
#[cfg(target_os = "none")]
pub use x86_64::*;

/// The saved state of an interrupted context: the layout of an upcall frame, so that delivering one is a copy.
///
/// Every field may hold any value when it comes back to the machine: the way out forces selectors and privileged flags.
pub use aegis_abi::upcall::UpcallFrame as TrapFrame;

/// Where the kernel image is mapped: a virtual address there, less its physical one.
pub const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;
/// Most processors that are started.
pub const PROCESSOR_COUNT_MAX: usize = 8;

/// [`TrapFrame::vector`] of a `syscall` from the upper half: a kernel call.
pub const VECTOR_KERNEL_CALL: u64 = 0x100;
/// [`TrapFrame::vector`] of a `syscall` from the lower half that has no valid entry point to go to.
pub const VECTOR_PROGRAM_SYSCALL: u64 = 0x101;

/// Reads physical memory whose extent is not yet known to be sound: boot structures and firmware tables.
pub trait PhysicalReader {
    /// Fills `into` from `address`; `None` if any byte of it is outside what can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()>;

    /// A little-endian word at `address`.
    fn read_u32(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// A little-endian double word at `address`.
    fn read_u64(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// Physical memory for tests: bytes at a base address.
#[cfg(test)]
pub(crate) struct FakeMemory {
    pub(crate) base: u64,
    pub(crate) bytes: std::vec::Vec<u8>,
}

#[cfg(test)]
impl PhysicalReader for FakeMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        into.copy_from_slice(self.bytes.get(start..start.checked_add(into.len())?)?);
        Some(())
    }
}
