//! Physical memory through the direct map: what is free at boot, and words of frames afterwards.
//!
//! Invariant: every accessor checks that the frame is memory and not part of the kernel image, so that no frame
//! number, however wrong, reaches the machine's own state. Frames that the kernel took for its tables
//! ([`BootMemory`]) are not in the core's ownership table, so the core never names them. Words are accessed
//! atomically, because user mode may write the same frames meanwhile.
#![allow(unsafe_code, reason = "frames are raw memory behind the direct map")]

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::FrameNumber;
use aegis_abi::layout::{KERNEL_BASE, PAGE_SHIFT, PAGE_SIZE};

use super::paging;
use crate::PhysicalReader;
use crate::frame_range::{FrameRange, FrameRangeList};
use crate::start_info::{MEMORY_TYPE_RAM, StartInfo};

/// Words in a frame.
const WORD_COUNT: usize = PAGE_SIZE as usize / 8;
/// Memory below this is left to firmware tables and the start of processors.
const LOW_MEMORY_FRAMES: u64 = 256;
/// Longest command line that is kept, in bytes; the rest is cut off.
const COMMAND_LINE_BYTES_MAX: usize = 4096;
/// What the boot tables map.
const BOOT_MAP_BYTES: u64 = 1 << 30;
/// What the final tables map whether it is memory or not.
const LOW_MAP_BYTES: u64 = 4 << 30;

/// One past the highest frame of memory.
static MEMORY_END: AtomicU64 = AtomicU64::new(0);
/// One past the last frame of the kernel's image.
static ABOVE_IMAGE_FIRST: AtomicU64 = AtomicU64::new(0);
/// How many frames follow the image: nearly all there are.
static ABOVE_IMAGE_COUNT: AtomicU64 = AtomicU64::new(0);

/// Memory that nobody uses yet, for the kernel's tables first and for environments afterwards.
#[derive(Debug)]
pub struct BootMemory {
    free: FrameRangeList,
}

impl BootMemory {
    /// All memory of the map above the first MiB.
    pub(crate) fn from_map(info: &StartInfo) -> BootMemory {
        let mut free = FrameRangeList::new();
        let mut end = 0;
        let visited = info.for_each_memory(&BootReader, |address, length_bytes, kind| {
            let range = FrameRange::inside_bytes(address, length_bytes);
            let mappable = range.end() << PAGE_SHIFT <= paging::DIRECT_MAP_BYTES_MAX;
            if kind == MEMORY_TYPE_RAM && mappable {
                free.add(range);
                end = range.end().max(end);
            }
        });
        if let Err(error) = visited {
            panic!("the memory map is not readable: {error:?}");
        }
        free.subtract(FrameRange { start: 0, count: LOW_MEMORY_FRAMES });
        MEMORY_END.store(end, Ordering::Relaxed);
        let image_end = paging::image_frames().end();
        ABOVE_IMAGE_FIRST.store(image_end, Ordering::Relaxed);
        ABOVE_IMAGE_COUNT.store(end.saturating_sub(image_end), Ordering::Relaxed);
        BootMemory { free }
    }

    /// Keeps these frames out of what is given away.
    pub(crate) fn reserve(&mut self, range: FrameRange) {
        self.free.subtract(range);
    }

    /// One past the highest frame of memory: what a table indexed by frame must cover.
    #[must_use]
    pub fn frame_end(&self) -> u64 {
        MEMORY_END.load(Ordering::Relaxed)
    }

    /// The free ranges.
    #[must_use]
    pub fn free_ranges(&self) -> &[FrameRange] {
        self.free.as_slice()
    }

    /// Takes `count` frames that start at a multiple of `align_frames`, for good. Their content is undefined.
    pub fn take_frames(&mut self, count: u64, align_frames: u64) -> Option<FrameRange> {
        self.free.take(count, align_frames, u64::MAX)
    }

    /// Takes a frame that the boot tables map, for a table of the machine itself.
    pub(crate) fn take_boot_frame(&mut self) -> Option<FrameNumber> {
        self.free.take(1, 1, BOOT_MAP_BYTES >> PAGE_SHIFT).map(|range| FrameNumber(range.start))
    }

    /// Takes memory for a table of the kernel, for good, with every element set to `value`.
    pub fn take_slice<T: Copy + Send + 'static>(&mut self, count: usize, value: T) -> Option<&'static mut [T]> {
        let length_bytes = size_of::<T>().checked_mul(count)? as u64;
        if count == 0 || length_bytes == 0 || align_of::<T>() as u64 > PAGE_SIZE {
            return Some(&mut []);
        }
        let range = self.free.take(length_bytes.div_ceil(PAGE_SIZE), 1, u64::MAX)?;
        let first = core::ptr::with_exposed_provenance_mut::<T>(direct_address(range.start << PAGE_SHIFT) as usize);
        for index in 0..count {
            // SAFETY: inside the range just taken, which nobody else can name; page-aligned, so aligned for T.
            unsafe { first.add(index).write(value) };
        }
        // SAFETY: all elements are initialised, the range is ours for ever.
        Some(unsafe { core::slice::from_raw_parts_mut(first, count) })
    }
}

/// Reads what the boot tables map.
pub(crate) struct BootReader;

/// Reads what the final tables map in every machine.
pub(crate) struct DirectReader;

impl PhysicalReader for BootReader {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        read_below(BOOT_MAP_BYTES, address, into)
    }
}

impl PhysicalReader for DirectReader {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        read_below(LOW_MAP_BYTES, address, into)
    }
}

fn read_below(limit: u64, address: u64, into: &mut [u8]) -> Option<()> {
    if address.checked_add(into.len() as u64)? > limit {
        return None;
    }
    let source = core::ptr::with_exposed_provenance::<u8>(direct_address(address) as usize);
    for (index, byte) in into.iter_mut().enumerate() {
        // SAFETY: the tables in force map every address below the limit; reading firmware's memory has no effect.
        *byte = unsafe { source.add(index).read_volatile() };
    }
    Some(())
}

/// Copies the zero-terminated command line out of the monitor's memory. Bytes that are not UTF-8 end it.
pub(crate) fn copy_command_line(address: u64) -> &'static str {
    use core::cell::UnsafeCell;
    struct Buffer(UnsafeCell<[u8; COMMAND_LINE_BYTES_MAX]>);
    // SAFETY: written once, by the boot processor before any other runs.
    unsafe impl Sync for Buffer {}
    static BUFFER: Buffer = Buffer(UnsafeCell::new([0; COMMAND_LINE_BYTES_MAX]));

    if address == 0 {
        return "";
    }
    // SAFETY: called once at boot; the shared reference below outlives no later write.
    let bytes: &'static mut [u8] = unsafe { &mut *BUFFER.0.get() };
    let mut length = 0;
    while let Some(byte) = bytes.get_mut(length..=length)
        && BootReader.read(address + length as u64, byte).is_some()
        && byte != [0]
    {
        length += 1;
    }
    bytes[..length].utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Keeps the kernel image out of free memory.
pub(crate) fn reserve_image(memory: &mut BootMemory) {
    memory.reserve(paging::image_frames());
}

/// The kernel's address of a physical one.
pub(crate) fn direct_address(address: u64) -> u64 {
    KERNEL_BASE + address
}

/// The kernel's address of a frame of memory; panics on any other, which is a bug of the kernel core.
#[inline(always)]
pub fn frame_address(frame: FrameNumber) -> u64 {
    // Below the image, or above it; one of the two is said by one comparison.
    if frame.0 >= paging::image_frames().start {
        let above = frame.0.wrapping_sub(ABOVE_IMAGE_FIRST.load(Ordering::Relaxed));
        if above >= ABOVE_IMAGE_COUNT.load(Ordering::Relaxed) {
            no_memory(frame);
        }
    }
    direct_address(frame.address())
}

/// Out of the way of those that do not come here.
#[cold]
fn no_memory(frame: FrameNumber) -> ! {
    panic!("INV-4: {frame:?} is no frame of memory");
}

/// The words of a frame of memory; panics on any other.
#[inline(always)]
pub fn words(frame: FrameNumber) -> &'static [AtomicU64; WORD_COUNT] {
    // SAFETY: `frame_address` vouches for a whole mapped frame of memory; all access is atomic.
    unsafe { &*core::ptr::with_exposed_provenance(frame_address(frame) as usize) }
}

/// Loads words of a frame from an index on (acquire: what the last writer of one wrote before is seen); panics beyond
/// its end.
#[inline(always)]
pub fn physical_words<const COUNT: usize>(frame: FrameNumber) -> impl Fn(usize) -> [u64; COUNT] {
    let words = words(frame);
    // By one comparison a word: mostly it is one.
    move |index| core::array::from_fn(|at| words[index + at].load(Ordering::Acquire))
}

/// The first word of a frame from an index on that is wanted, and where it is.
#[inline(always)]
pub fn physical_find_word(frame: FrameNumber, from: usize, wanted: impl Fn(u64) -> bool) -> Option<(usize, u64)> {
    const TURN: usize = 8;
    let (words, mut index) = (words(frame), from);
    while index < WORD_COUNT {
        let word = words[index].load(Ordering::Acquire);
        if wanted(word) {
            return Some((index, word));
        }
        index += 1;
        while index.is_multiple_of(TURN)
            && let Some(turn) = words.get(index..index + TURN)
            && !turn.iter().fold(false, |found, word| found | wanted(word.load(Ordering::Relaxed)))
        {
            index += TURN;
        }
    }
    None
}

/// Stores consecutive words of a frame (release); panics beyond its end.
#[inline(always)]
pub fn physical_store_words<const COUNT: usize>(frame: FrameNumber, index: usize, values: [u64; COUNT]) {
    let words = words(frame);
    for (at, value) in values.into_iter().enumerate() {
        words[index + at].store(value, Ordering::Release);
    }
}

/// Replaces `old` by `new` in a word of a frame, or returns what else it holds.
pub fn physical_compare_exchange(frame: FrameNumber, index: usize, old: u64, new: u64) -> Result<(), u64> {
    let word = &words(frame)[index];
    word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
}

/// Fills a frame with zeros.
pub fn physical_zero(frame: FrameNumber) {
    // Eight stores a turn: under an emulator this beats a string instruction, which is a loop of its own there.
    for chunk in words(frame).as_chunks::<8>().0 {
        for word in chunk {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Stores to a 32-bit device register below 4 GiB; panics if something else than device space is there.
///
/// What the device does with it is the caller's responsibility, as with [`port_write`](super::port_write).
pub fn device_register_write(address: u64, value: u32) {
    assert!(address.is_multiple_of(4) && paging::is_device_space(address), "INV-4: {address:#x} is no device");
    // SAFETY: mapped uncached and not memory.
    unsafe { super::instructions::mmio_write(direct_address(address), value) };
}

/// Makes device registers at a physical address reachable for the machine, uncached. `None` if no table has room for
/// them.
///
/// Everything below 4 GiB already is; above, whole GiB are mapped once and stay.
pub fn map_device(address: u64, length_bytes: u64) -> Option<u64> {
    let end = address.checked_add(length_bytes)?;
    if end > LOW_MAP_BYTES {
        paging::map_device_gib(address >> 30, end.div_ceil(1 << 30))?;
    }
    Some(direct_address(address))
}
