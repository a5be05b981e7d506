//! What the host hands to the kernel, and the kernel to the first environment: boot bundle, flat image, boot
//! information.
//!
//! All integers are little-endian. Offsets are from the start of the bundle and multiples of the page size, so that
//! every part can be mapped straight from where the machine's loader put it. The writer is `image::bundle`; the
//! readers are the kernel's loader (magic, version and the first part only) and the library OS (all other parts, whose
//! meaning the kernel does not know).

/// First eight bytes of a bundle.
pub const BUNDLE_MAGIC: u64 = u64::from_le_bytes(*b"AEGISBND");
/// Bundle and flat image layout version.
pub const BUNDLE_VERSION: u32 = 1;
/// Most parts in a bundle.
pub const BUNDLE_PART_COUNT_MAX: usize = 16;

/// The first part of every bundle, in its second page: the library OS that the first environment starts with (a flat
/// image). The kernel looks at no other.
pub const PART_INIT: u32 = 1;
/// A bundle part for the library OS: the run configuration.
pub const PART_CONFIG: u32 = 2;
/// A bundle part for the library OS: a root image.
pub const PART_ROOT: u32 = 3;

/// One part of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BundlePart {
    /// `PART_*`; unknown kinds are passed on untouched.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// Page-aligned offset from the start of the bundle.
    pub offset_bytes: u64,
    /// Exact length; the rest of the last page is zero.
    pub length_bytes: u64,
}

/// The first page of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BundleHeader {
    /// [`BUNDLE_MAGIC`].
    pub magic: u64,
    /// [`BUNDLE_VERSION`].
    pub version: u32,
    /// Parts in use, at most [`BUNDLE_PART_COUNT_MAX`].
    pub part_count: u32,
    /// The parts, in ascending order of offset.
    pub parts: [BundlePart; BUNDLE_PART_COUNT_MAX],
}

/// First eight bytes of a flat image.
pub const FLAT_MAGIC: u64 = u64::from_le_bytes(*b"AEGISIMG");
/// Most segments in a flat image.
pub const FLAT_SEGMENT_COUNT_MAX: usize = 8;
/// Flat segment flag: writable.
pub const FLAT_WRITE: u32 = 1;
/// Flat segment flag: executable.
pub const FLAT_EXECUTE: u32 = 2;

/// A segment of a flat image: whole pages, stored in full (also the zero-filled tail), mapped where they lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FlatSegment {
    /// Page-aligned virtual address in the library OS window.
    pub virtual_address: u64,
    /// Page index from the start of the flat image.
    pub page_offset: u32,
    /// Length in pages of 4 KiB.
    pub page_count: u32,
    /// `FLAT_*`; readable always.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// The first page of a flat image: a library OS, already relocated to its virtual addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FlatHeader {
    /// [`FLAT_MAGIC`].
    pub magic: u64,
    /// [`BUNDLE_VERSION`].
    pub version: u32,
    /// Segments in use.
    pub segment_count: u32,
    /// First instruction.
    pub entry: u64,
    /// Segments in ascending order of address, not overlapping.
    pub segments: [FlatSegment; FLAT_SEGMENT_COUNT_MAX],
}

/// First eight bytes of the boot information page.
pub const BOOT_INFO_MAGIC: u64 = u64::from_le_bytes(*b"AEGISINF");

/// What the kernel tells the first environment, in a read-only page at [`crate::layout::BOOT_INFO_BASE`].
///
/// The capabilities that go with it are at the `SLOT_*` constants of [`crate::types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BootInfo {
    /// [`BOOT_INFO_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// Device functions, at slots `SLOT_DEVICE_FIRST..`.
    pub device_count: u32,
    /// First frame of the bundle, whose capability is `SLOT_BUNDLE` (all rights of an original; the init part's
    /// frames are mapped already).
    pub bundle_frame: u64,
    /// Frames of the bundle.
    pub bundle_frame_count: u64,
    /// One more than the highest frame number of the machine's memory, which may have holes.
    pub frame_count_total: u64,
    /// Frames that nobody owned when the first environment started.
    pub frame_count_free: u64,
    /// Virtual address of the mapped control page of processor 0.
    pub control_address: u64,
    /// Nanoseconds from the kernel's first instruction to the first environment's first.
    pub boot_ns: u64,
}

/// Time and processors, one page for all environments, mapped read-only at [`crate::layout::SYSTEM_PAGE_BASE`].
///
/// Time is `clock_base_ns + ((rdtsc - clock_base_tsc) * clock_multiplier >> clock_shift)`, with a 128-bit product:
/// nanoseconds since the kernel's start. The kernel writes the page once before the first environment runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SystemPage {
    /// See the formula.
    pub clock_base_ns: u64,
    /// See the formula.
    pub clock_base_tsc: u64,
    /// See the formula.
    pub clock_multiplier: u64,
    /// See the formula.
    pub clock_shift: u32,
    /// Processors that run.
    pub processor_count: u32,
    /// Processor time-stamp frequency.
    pub tsc_hz: u64,
    /// XCR0: vector state that the kernel saves and restores.
    pub vector_state_mask: u64,
    /// Slice length.
    pub slice_ns: u64,
}

impl SystemPage {
    /// Its words in the order in which they are stored.
    #[must_use]
    pub const fn to_words(&self) -> [u64; 7] {
        [
            self.clock_base_ns,
            self.clock_base_tsc,
            self.clock_multiplier,
            self.clock_shift as u64 | (self.processor_count as u64) << 32,
            self.tsc_hz,
            self.vector_state_mask,
            self.slice_ns,
        ]
    }
}
