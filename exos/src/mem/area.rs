//! Areas: ranges of an address space with one backing and one set of rights.
//!
//! Areas are page-aligned and not empty. [`super::area_list`] holds those of an address space.

use alloc::string::String;
use alloc::sync::Arc;
use core::ops::Range;

use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};
use bitflags::bitflags;

use crate::mem::source::{FileIdentity, PageSource};
use crate::mem::window::FaultWindow;

/// Most areas of an address space (Linux's `vm.max_map_count`).
pub const AREA_COUNT_MAX: usize = 65_530;
/// Bytes kept free below a growing stack (Linux's `stack_guard_gap`, 256 pages).
pub const STACK_GUARD_BYTES: u64 = 256 * PAGE_SIZE;

bitflags! {
    /// What a program may do with memory; the bits are `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Protection: u8 {
        /// Loads. On this processor, granted with any other right as well.
        const READ = 1 << 0;
        /// Stores.
        const WRITE = 1 << 1;
        /// Instruction fetches.
        const EXECUTE = 1 << 2;
    }
}

/// How a program touched memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

impl Protection {
    /// What the processor would allow: any right implies loads, stores need `WRITE`, fetches `EXECUTE`.
    pub(crate) fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => !self.is_empty(),
            Access::Write => self.contains(Self::WRITE),
            Access::Execute => self.contains(Self::EXECUTE),
        }
    }
}

bitflags! {
    /// Properties of an area.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AreaFlags: u16 {
        /// A stack: grows downwards when the page below is touched (`MAP_GROWSDOWN`).
        const GROWS_DOWN = 1 << 0;
        /// Not counted as a promise of memory (`MAP_NORESERVE`).
        const NO_RESERVE = 1 << 1;
        /// Counted as locked (`mlock`, `MAP_LOCKED`). Nothing is ever paged out, so this is accounting.
        const LOCKED = 1 << 2;
        /// Not inherited by a forked child (`MADV_DONTFORK`).
        const DONT_FORK = 1 << 3;
        /// Zero in a forked child (`MADV_WIPEONFORK`).
        const WIPE_ON_FORK = 1 << 4;
        /// Large pages at the first store (`MADV_HUGEPAGE`).
        const LARGE = 1 << 5;
        /// No large pages (`MADV_NOHUGEPAGE`).
        const NO_LARGE = 1 << 6;
        /// The program is told of touches ([`super::watched`]).
        const WATCHED = 1 << 7;
        /// The kernel's extension withholds rights that the map of pages says a page has ([`super::watched`]).
        const WITHHELD = 1 << 8;
    }
}

/// What an area is for, where `/proc/self/maps` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AreaLabel {
    /// A mapping of the program.
    #[default]
    None,
    /// The memory of `brk`.
    Heap,
    /// The first thread's stack.
    Stack,
    /// The vDSO's code.
    Vdso,
    /// The vDSO's data.
    Vvar,
    /// Where rewritten system-call sites jump to.
    Trampolines,
}

/// Where an area's pages come from.
#[derive(Clone)]
pub enum Backing {
    /// Zeros, private to the address space.
    Anonymous,
    /// A file, or shared memory.
    File(FileBacking),
}

/// A part of a file.
#[derive(Clone)]
pub struct FileBacking {
    /// The file.
    pub source: Arc<dyn PageSource>,
    /// Its page at the area's start.
    pub first_index: u64,
    /// Stores go to the file (else to private copies).
    pub is_shared: bool,
}

/// One range.
#[derive(Clone)]
pub struct Area {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) protection: Protection,
    pub(crate) maximum: Protection,
    pub(crate) flags: AreaFlags,
    pub(crate) label: AreaLabel,
    pub(crate) backing: Backing,
    pub(crate) window: FaultWindow,
}

impl Area {
    /// First address.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// First address behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Current rights.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Properties.
    #[must_use]
    pub fn flags(&self) -> AreaFlags {
        self.flags
    }

    /// What it is for.
    #[must_use]
    pub fn label(&self) -> AreaLabel {
        self.label
    }

    /// Whether stores are seen by others.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(&self.backing, Backing::File(file) if file.is_shared)
    }

    /// Whether stores to it go to a file, or could after a change of rights.
    #[must_use]
    pub fn takes_stores(&self) -> bool {
        self.is_shared() && self.maximum.contains(Protection::WRITE)
    }

    /// Whether it is private anonymous memory.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        matches!(self.backing, Backing::Anonymous)
    }

    /// Offset in the file; 0 for anonymous memory.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.file().map_or(0, |file| file.first_index << PAGE_SHIFT)
    }

    /// The file, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&FileBacking> {
        match &self.backing {
            Backing::Anonymous => None,
            Backing::File(file) => Some(file),
        }
    }

    /// The file's identity; zeros for anonymous memory.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.file().map_or_else(FileIdentity::default, |file| file.source.identity())
    }

    /// The name in `/proc/self/maps`, empty if there is none.
    #[must_use]
    pub fn name(&self) -> String {
        match self.label {
            AreaLabel::Heap => String::from("[heap]"),
            AreaLabel::Stack => String::from("[stack]"),
            AreaLabel::Vdso => String::from("[vdso]"),
            AreaLabel::Vvar => String::from("[vvar]"),
            AreaLabel::Trampolines => String::from("[exos]"),
            AreaLabel::None => self.file().map_or_else(String::new, |file| file.source.path()),
        }
    }

    pub(crate) fn pages(&self) -> Range<u64> {
        self.start >> PAGE_SHIFT..self.end >> PAGE_SHIFT
    }

    pub(crate) fn page_count(&self) -> u64 {
        (self.end - self.start) >> PAGE_SHIFT
    }

    /// Page of the file that lies at `page`.
    pub(crate) fn file_index(&self, page: u64) -> u64 {
        self.file().map_or(0, |file| file.first_index + (page - (self.start >> PAGE_SHIFT)))
    }

    /// Counted under `RLIMIT_DATA`: private, writable, no stack (Linux's `is_data_mapping`).
    pub(crate) fn is_data(&self) -> bool {
        is_data(self.protection, self.flags, self.is_shared())
    }

    /// Cuts at `address`; returns the upper part.
    pub(super) fn split_off(&mut self, address: u64) -> Area {
        let mut upper = self.clone();
        if let Backing::File(file) = &mut upper.backing {
            file.first_index += (address - self.start) >> PAGE_SHIFT;
        }
        upper.start = address;
        self.end = address;
        upper
    }

    /// Whether `upper`, which begins where this one ends, continues it in every respect.
    #[inline]
    pub(super) fn continues_in(&self, upper: &Area) -> bool {
        // Nearly always one of the two says no.
        self.end == upper.start && self.protection == upper.protection && self.is_one_with(upper)
    }

    /// Whether nothing but place and rights could tell them apart.
    fn is_one_with(&self, upper: &Area) -> bool {
        let same_backing = match (&self.backing, &upper.backing) {
            (Backing::Anonymous, Backing::Anonymous) => true,
            (Backing::File(low), Backing::File(high)) => {
                Arc::ptr_eq(&low.source, &high.source)
                    && low.is_shared == high.is_shared
                    && low.first_index + self.page_count() == high.first_index
            }
            _ => false,
        };
        self.maximum == upper.maximum && self.flags == upper.flags && self.label == upper.label && same_backing
    }
}

/// See [`Area::is_data`].
pub(crate) fn is_data(protection: Protection, flags: AreaFlags, is_shared: bool) -> bool {
    protection.contains(Protection::WRITE) && !is_shared && !flags.contains(AreaFlags::GROWS_DOWN)
}

/// Sums over all areas, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaTotals {
    /// All.
    pub total: u64,
    /// Private writable, without stacks.
    pub data: u64,
    /// Pages of stacks.
    pub stack: u64,
    /// Executable and not writable.
    pub code: u64,
    /// Pages that `mlock` keeps.
    pub locked: u64,
}

/// Where a hole below `area` must end.
pub(crate) fn lower_bound(area: &Area) -> u64 {
    if area.flags.contains(AreaFlags::GROWS_DOWN) { area.start.saturating_sub(STACK_GUARD_BYTES) } else { area.start }
}
