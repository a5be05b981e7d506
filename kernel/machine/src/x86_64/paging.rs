//! The kernel's page tables: built once at boot, shared by every environment through two level-4 slots.
//!
//! Slot 384 is the direct map: all memory, writable, never executable, in the largest pages that fit; the frames of
//! the kernel's text and read-only data are read-only there too. What is not memory below 4 GiB is mapped uncached,
//! for device registers. Slot 511 is the kernel image by small pages: text read and execute, read-only data, the rest
//! writable and not executable; stack guards are holes. All of it is global: switching environments keeps these
//! translations.
#![allow(unsafe_code, reason = "page tables are what memory safety rests on")]

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::FrameNumber;
use aegis_abi::layout::{KERNEL_BASE, PAGE_SHIFT, PAGE_SIZE};

use super::instructions::{self, Features};
use super::memory::{BootMemory, BootReader};
use super::processor::{GUARD_BYTES, STACKS};
use crate::IMAGE_BASE;
use crate::PROCESSOR_COUNT_MAX;
use crate::frame_range::FrameRange;
use crate::start_info::{MEMORY_TYPE_RAM, StartInfo};

/// The level-4 slot of the direct map.
pub const KERNEL_SLOT_DIRECT: usize = (KERNEL_BASE >> 39) as usize & 511;
/// The level-4 slot of the kernel image.
pub const KERNEL_SLOT_IMAGE: usize = 511;

/// One level-4 slot's worth.
pub(crate) const DIRECT_MAP_BYTES_MAX: u64 = 512 << 30;

const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_DISABLE: u64 = 1 << 4;
const UNCACHED: u64 = WRITE_THROUGH | CACHE_DISABLE;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const DATA: u64 = PRESENT | WRITE | GLOBAL | NO_EXECUTE;
const READ_ONLY: u64 = PRESENT | GLOBAL | NO_EXECUTE;
const TABLE: u64 = PRESENT | WRITE;

const MIB_2: u64 = 2 << 20;
const GIB: u64 = 1 << 30;
/// Directories for the first 4 GiB.
const LOW_DIRECTORY_COUNT: usize = 4;
/// Tables for the image: 8 MiB, as `kernel.ld` asserts.
const IMAGE_TABLE_COUNT: usize = 4;

#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

impl Table {
    const fn empty() -> Table {
        Table([const { AtomicU64::new(0) }; 512])
    }

    fn set(&self, index: usize, entry: u64) {
        self.0[index].store(entry, Ordering::Relaxed);
    }

    fn get(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    /// The physical address: tables are part of the image.
    fn physical(&self) -> u64 {
        core::ptr::from_ref(self) as u64 - IMAGE_BASE
    }
}

static ROOT: Table = Table::empty();
static DIRECT: Table = Table::empty();
static LOW_DIRECTORIES: [Table; LOW_DIRECTORY_COUNT] = [const { Table::empty() }; LOW_DIRECTORY_COUNT];
/// The direct map of the 2 MiB that hold text and read-only data.
static IMAGE_FRAMES: Table = Table::empty();
static IMAGE_LEVEL_3: Table = Table::empty();
static IMAGE_DIRECTORY: Table = Table::empty();
static IMAGE_TABLES: [Table; IMAGE_TABLE_COUNT] = [const { Table::empty() }; IMAGE_TABLE_COUNT];

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __image_frame_first: u8;
    static __image_frame_count: u8;
}

fn address_of(symbol: *const u8) -> u64 {
    symbol as u64
}

/// The frames of the kernel image.
pub(crate) fn image_frames() -> FrameRange {
    // The linker script's symbols are numbers, not places.
    let (start, count) = (address_of(&raw const __image_frame_first), address_of(&raw const __image_frame_count));
    FrameRange { start, count }
}

/// Builds the final tables and switches to them. Takes frames only where the processor lacks 1 GiB pages and has much
/// memory.
pub(crate) fn install_final(info: &StartInfo, memory: &mut BootMemory, features: Features) {
    for (index, directory) in (0..).zip(&LOW_DIRECTORIES) {
        for entry in 0..512 {
            let address = index * GIB + entry * MIB_2;
            directory.set(entry as usize, address | DATA | UNCACHED | LARGE);
        }
        DIRECT.set(index as usize, directory.physical() | TABLE);
    }
    let mapped = info.for_each_memory(&BootReader, |address, length_bytes, kind| {
        let end = address + length_bytes;
        if kind == MEMORY_TYPE_RAM && end <= DIRECT_MAP_BYTES_MAX {
            map_memory(address, end, memory, features);
        }
    });
    assert!(mapped.is_ok(), "the memory map was readable a moment ago");
    map_image();
    ROOT.set(KERNEL_SLOT_DIRECT, DIRECT.physical() | TABLE);
    ROOT.set(KERNEL_SLOT_IMAGE, IMAGE_LEVEL_3.physical() | TABLE);
    if !features.smap {
        remove_smap_instructions();
    }
    activate_kernel_root();
}

fn map_memory(start: u64, end: u64, memory: &mut BootMemory, features: Features) {
    let low_end = end.min(LOW_DIRECTORY_COUNT as u64 * GIB);
    let mut address = start & !(MIB_2 - 1);
    while address < low_end {
        let directory = &LOW_DIRECTORIES[(address / GIB) as usize];
        directory.set((address % GIB / MIB_2) as usize, address | DATA | LARGE);
        address += MIB_2;
    }
    let first = (start / GIB).max(LOW_DIRECTORY_COUNT as u64);
    for gib in first..end.div_ceil(GIB) {
        let slot = gib as usize;
        if DIRECT.get(slot) != 0 {
            continue;
        }
        let large = (gib * GIB) | DATA | LARGE;
        DIRECT.set(slot, if features.large_gib_pages { large } else { large_page_directory(gib, memory) | TABLE });
    }
}

/// A directory of 2 MiB pages for one GiB, in a frame that the boot tables map; returns its physical address.
fn large_page_directory(gib: u64, memory: &mut BootMemory) -> u64 {
    let frame = memory.take_boot_frame();
    let address = frame.unwrap_or_else(|| panic!("no memory in the first GiB for the map of GiB {gib}")).address();
    // SAFETY: a free frame, just taken, below what the boot tables map.
    let table: &Table = unsafe { &*core::ptr::with_exposed_provenance((KERNEL_BASE + address) as usize) };
    for entry in 0..512 {
        table.set(entry, (gib * GIB + entry as u64 * MIB_2) | DATA | LARGE);
    }
    address
}

fn map_image() {
    let image = image_frames();
    let text = address_of(&raw const __text_start)..address_of(&raw const __text_end);
    let read_only_end = address_of(&raw const __rodata_end);
    let window = (image.start << PAGE_SHIFT) / MIB_2;
    for entry in 0..512_u64 {
        IMAGE_FRAMES.set(entry as usize, (window * MIB_2 + entry * PAGE_SIZE) | DATA);
    }
    for frame in image.start..image.end() {
        let physical = frame << PAGE_SHIFT;
        let address = IMAGE_BASE + physical;
        let entry = if text.contains(&address) {
            physical | PRESENT | GLOBAL
        } else if address < read_only_end {
            physical | READ_ONLY
        } else {
            physical | DATA
        };
        let page = (physical / PAGE_SIZE) as usize;
        let first_page = (window * MIB_2 / PAGE_SIZE) as usize;
        IMAGE_TABLES[(page - first_page) / 512].set(page % 512, entry);
        if address < read_only_end {
            IMAGE_FRAMES.set(page % 512, physical | READ_ONLY);
        }
    }
    for processor in 0..PROCESSOR_COUNT_MAX {
        let guard = (STACKS.address(processor) - IMAGE_BASE) / PAGE_SIZE;
        for page in guard..guard + GUARD_BYTES as u64 / PAGE_SIZE {
            let from_window = (page - window * MIB_2 / PAGE_SIZE) as usize;
            IMAGE_TABLES[from_window / 512].set(page as usize % 512, 0);
        }
    }
    for (index, table) in IMAGE_TABLES.iter().enumerate() {
        IMAGE_DIRECTORY.set(window as usize + index, table.physical() | TABLE);
    }
    IMAGE_LEVEL_3.set(510, IMAGE_DIRECTORY.physical() | TABLE);
    LOW_DIRECTORIES[0].set(window as usize, IMAGE_FRAMES.physical() | TABLE);
}

/// Replaces CLAC by nothing on a processor that does not know them. The boot tables still let text be written.
fn remove_smap_instructions() {
    const LONG_NOP: [u8; 3] = [0x0f, 0x1f, 0x00];
    unsafe extern "C" {
        static __smap_sites_start: u64;
        static __smap_sites_end: u64;
    }
    let start = &raw const __smap_sites_start;
    let count = (address_of((&raw const __smap_sites_end).cast()) - address_of(start.cast())) / 8;
    for index in 0..count as usize {
        // SAFETY: the assembly wrote `count` addresses of three-byte instructions; nobody runs them before traps are
        // taken.
        unsafe {
            let site = start.add(index).read();
            core::ptr::with_exposed_provenance_mut::<[u8; 3]>(site as usize).write_volatile(LONG_NOP);
        }
    }
}

/// Whether an address below 4 GiB is mapped as device space.
pub(crate) fn is_device_space(address: u64) -> bool {
    let directory = LOW_DIRECTORIES.get((address / GIB) as usize);
    let entry = directory.map(|table| table.get((address % GIB / MIB_2) as usize));
    entry.is_some_and(|entry| entry & (UNCACHED | LARGE) == UNCACHED | LARGE)
}

/// Maps whole GiB uncached where nothing is mapped yet.
pub(crate) fn map_device_gib(first: u64, end: u64) -> Option<()> {
    if end > DIRECT_MAP_BYTES_MAX / GIB || instructions::cpuid(0x8000_0001, 0).edx >> 26 & 1 == 0 {
        return None;
    }
    for gib in first..end {
        if DIRECT.get(gib as usize) == 0 {
            DIRECT.set(gib as usize, (gib * GIB) | DATA | UNCACHED | LARGE);
        }
    }
    Some(())
}

/// The kernel's own root: no environment's mappings. What an idle processor uses.
#[must_use]
pub fn kernel_root() -> FrameNumber {
    FrameNumber(ROOT.physical() >> PAGE_SHIFT)
}

/// What a new root must hold in [`KERNEL_SLOT_DIRECT`] and [`KERNEL_SLOT_IMAGE`], before it is activated.
#[must_use]
pub fn kernel_slot_entry(slot: usize) -> u64 {
    ROOT.get(slot)
}

/// Switches this processor to another root; translations that are not the kernel's are forgotten.
///
/// Panics if the frame's kernel slots are not the kernel's: such a root would take the machine down with the next
/// instruction.
#[inline]
pub fn activate_root(root: FrameNumber) {
    let words = super::memory::words(root);
    let same = |slot: usize| words[slot].load(Ordering::Relaxed) == ROOT.get(slot);
    assert!(same(KERNEL_SLOT_DIRECT) && same(KERNEL_SLOT_IMAGE), "INV-3: {root:?} does not map the kernel");
    // SAFETY: both kernel slots are those of the kernel's root, so everything that the kernel uses stays mapped.
    unsafe { instructions::write_cr3(root.address()) };
}

/// Switches this processor to the kernel's own root.
pub fn activate_kernel_root() {
    // SAFETY: it maps all that the kernel uses: the image and the direct map.
    unsafe { instructions::write_cr3(ROOT.physical()) };
}

/// Forgets the translation of one page on this processor.
pub fn flush_page(address: u64) {
    instructions::invalidate_page(address);
}

/// Forgets all translations that are not the kernel's on this processor.
pub fn flush_all() {
    // SAFETY: the root stays the same.
    unsafe { instructions::write_cr3(instructions::read_cr3()) };
}
