//! Where things are in an environment's address space, and the sizes that both sides must agree on.
//!
//! The reasons for an upper-half window are in `docs/adr/0001-library-os-in-the-upper-half.md`.

/// Bytes in a frame and in a small page.
pub const PAGE_SIZE: u64 = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a large page (one page-directory entry).
pub const LARGE_PAGE_SIZE: u64 = 2 * 1024 * 1024;
/// Small pages in a large page.
pub const LARGE_PAGE_FRAMES: u64 = LARGE_PAGE_SIZE / PAGE_SIZE;

/// First address that a program mapping may use; the pages below stay unmapped so that null pointers fault.
pub const PROGRAM_BASE: u64 = 0x1_0000;
/// First address above the program's half (Linux's `TASK_SIZE` for 4-level paging).
pub const PROGRAM_END: u64 = 0x7fff_ffff_f000;

/// First address of the library OS window (PML4 slot 256).
pub const LIBOS_BASE: u64 = 0xffff_8000_0000_0000;
/// First address above the library OS window (end of PML4 slot 263).
pub const LIBOS_END: u64 = 0xffff_8400_0000_0000;
/// The environment's own page tables, readable by it: 512 GiB whose n-th 8-byte word is the entry of virtual page n.
pub const PAGE_TABLE_WINDOW: u64 = 0xffff_8400_0000_0000;
/// The PML4 slot that [`PAGE_TABLE_WINDOW`] occupies.
pub const PAGE_TABLE_SLOT: usize = 264;

/// First address of the kernel's half that no environment can name (PML4 slot 384).
pub const KERNEL_BASE: u64 = 0xffff_c000_0000_0000;

/// First environment: read-only boot information, see [`crate::boot::BootInfo`].
pub const BOOT_INFO_BASE: u64 = LIBOS_BASE + 0x1000;
/// Every environment's view of time and processors, read-only, kept up to date by the kernel. See
/// [`crate::boot::SystemPage`].
pub const SYSTEM_PAGE_BASE: u64 = LIBOS_BASE + 0x2000;
/// First environment: the control page of virtual processor 0.
pub const FIRST_CONTROL_BASE: u64 = LIBOS_BASE + 0x3000;
/// First environment: lowest address of the save area of virtual processor 0 (unmapped guard below).
pub const FIRST_SAVE_AREA_BASE: u64 = LIBOS_BASE + 0x10_0000;
/// First environment: frames in that save area.
pub const FIRST_SAVE_AREA_FRAME_COUNT: u64 = 32;
/// Where flat images of library OSes are linked and loaded.
pub const LIBOS_IMAGE_BASE: u64 = LIBOS_BASE + 0x100_0000;
