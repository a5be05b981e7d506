//! Page-table binding: the batch entry of [`crate::call::Bind`].

use bitflags::bitflags;

use crate::types::CapSlot;

numbered! {
    /// What a [`BindEntry`] does.
    pub enum BindOperation {
        /// Map `page_count` pages from `frame` on at `virtual_address`; an existing mapping there is replaced.
        Map = 0,
        /// Remove the mappings of the range; pages that are not mapped are passed over.
        Unmap = 1,
        /// Set the rights of the mapped pages of the range to `flags`, at most what `slot` allows for each frame.
        Protect = 2,
        /// Clear accessed and dirty bits of the range.
        Clean = 3,
    }
}

bitflags! {
    /// How a page is mapped. Readable always.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BindFlags: u32 {
        /// Stores are allowed (needs `Rights::WRITE`).
        const WRITE = 1 << 0;
        /// Instruction fetches are allowed (needs `Rights::EXECUTE`).
        const EXECUTE = 1 << 1;
        /// The range consists of 2 MiB pages: address, frame and count are multiples of 512 pages.
        const LARGE = 1 << 2;
        /// Not cached (device memory).
        const UNCACHED = 1 << 3;
    }
}

/// One entry of a bind batch, read by the kernel from the caller's memory (8-byte aligned).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BindEntry {
    /// [`BindOperation`].
    pub operation: u32,
    /// [`BindFlags`].
    pub flags: u32,
    /// First address, page-aligned, in the program's half or the library OS window.
    pub virtual_address: u64,
    /// `Map`: the first frame.
    pub frame: u64,
    /// Small pages in the range; 1..=[`BIND_PAGE_COUNT_MAX`] (large pages: 512 each, up to
    /// [`BIND_LARGE_PAGE_COUNT_MAX`] of them).
    pub page_count: u32,
    /// `Map` and `Protect`: the frames capability, in the caller's table, that covers the frames.
    pub slot: u32,
}

impl BindEntry {
    /// Maps the frames from `frame` on, which `slot` covers.
    #[must_use]
    pub const fn map(virtual_address: u64, frame: u64, page_count: u32, slot: CapSlot, flags: BindFlags) -> Self {
        let operation = BindOperation::Map as u32;
        Self { operation, flags: flags.bits(), virtual_address, frame, page_count, slot: slot.0 }
    }

    /// Gives the pages of a range other rights; `slot` covers their frames.
    #[must_use]
    pub const fn protect(virtual_address: u64, page_count: u32, slot: CapSlot, flags: BindFlags) -> Self {
        let operation = BindOperation::Protect as u32;
        Self { operation, ..Self::map(virtual_address, 0, page_count, slot, flags) }
    }

    /// Unmaps a range.
    #[must_use]
    pub const fn unmap(virtual_address: u64, page_count: u32) -> Self {
        let operation = BindOperation::Unmap as u32;
        Self { operation, flags: 0, virtual_address, frame: 0, page_count, slot: 0 }
    }

    /// Clears a range's accessed and dirty bits.
    #[must_use]
    pub const fn clean(virtual_address: u64, page_count: u32) -> Self {
        Self { operation: BindOperation::Clean as u32, ..Self::unmap(virtual_address, page_count) }
    }
}

/// Most small pages in one entry, and most that one call handles before it answers `Again`.
pub const BIND_PAGE_COUNT_MAX: u32 = 512;
/// Most large pages in one entry.
pub const BIND_LARGE_PAGE_COUNT_MAX: u32 = 512;
/// Most entries in one call.
pub const BIND_ENTRY_COUNT_MAX: u32 = 512;

/// Bits of a page-table entry as a library OS reads it in the page-table window (Intel SDM vol. 3, 4.5).
pub mod entry {
    /// The entry maps something (bit 0).
    pub const PRESENT: u64 = 1 << 0;
    /// Writable.
    pub const WRITE: u64 = 1 << 1;
    /// Ring 3 may access it (bit 2).
    pub const USER: u64 = 1 << 2;
    /// Set by the processor on first use.
    pub const ACCESSED: u64 = 1 << 5;
    /// Set by the processor on first store.
    pub const DIRTY: u64 = 1 << 6;
    /// In a page-directory entry: a 2 MiB page.
    pub const LARGE: u64 = 1 << 7;
    /// Stores are withheld by the kernel's extension, which may let them through again (bit 9, which the processor does
    /// not look at); one that withholds loads has taken [`USER`] away.
    pub const WITHHELD: u64 = 1 << 9;
    /// No instruction fetch.
    pub const NO_EXECUTE: u64 = 1 << 63;
    /// The frame's physical address.
    pub const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;
}
