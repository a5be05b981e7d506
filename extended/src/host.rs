//! Where the disk service is placed: clients' memory, as their environments have bound it for the function.
//!
//! A client *registers* a range that it has bound (`DeviceDmaBind`) under a number, and names it by that. The
//! kernel can take a range back at any time, so before the service does anything each is looked up again
//! ([`KernelHost::forget_gone`]); while it runs, under the kernel's lock, nothing can change.

use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::types::FrameNumber;
use aegis_hal::block::BlockMemory;
use aegis_hal::net::{DmaWindow, Place};
use aegis_hal::{DeviceAddress, Irq, IrqError};
use aegis_kernel::Hardware;
use aegis_kernel_core::{DeviceId, EnvironmentId, State};
use aegis_machine as machine;
use aegis_proto::{SharedWords, load_all, store_all};
use aegis_service::disk::{Buffer, Host};
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Ranges that a disk's client can register.
pub(crate) const RANGE_COUNT_MAX: usize = 256;
/// Places of the kernel's table of ranges.
const PLACE_COUNT: usize = 512;
const FRAME_WORD_COUNT: usize = 512;

/// The function's interrupt as a driver sees it: the kernel has masked it, and lets it through when it is asked for.
pub(crate) struct Masked;

impl Irq for Masked {
    fn count(&self) -> u64 {
        0
    }
    fn unmask(&mut self) -> Result<(), IrqError> {
        Ok(())
    }
}

/// A range that a client has bound for the function.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    /// Its place in the kernel's table.
    place: u16,
    pub(crate) first: FrameNumber,
    pub(crate) count: u64,
}

/// A range that an environment has bound for a function.
pub(crate) fn find_range(
    state: &State<'_, Hardware>,
    device: DeviceId,
    by: EnvironmentId,
    (first, count): (FrameNumber, u64),
) -> Option<Range> {
    let is_it = |place: &usize| state.reached_frames(device, by, *place) == Some((first, count));
    let place = (0..PLACE_COUNT).find(is_it)?;
    Some(Range { place: place as u16, first, count })
}

/// Whether it still is.
pub(crate) fn has_range(state: &State<'_, Hardware>, device: DeviceId, by: EnvironmentId, range: &Range) -> bool {
    state.reached_frames(device, by, usize::from(range.place)) == Some((range.first, range.count))
}

/// A session: frames that follow each other, as words.
pub(crate) struct FrameWords {
    range: Option<Range>,
}

impl FrameWords {
    /// Those of a range.
    pub(crate) const fn new(range: Range) -> Self {
        Self { range: Some(range) }
    }

    fn word(&self, word: usize) -> Option<&'static AtomicU64> {
        let frame = (word / FRAME_WORD_COUNT) as u64;
        let range = self.range.filter(|range| frame < range.count)?;
        Some(&machine::words(FrameNumber(range.first.0 + frame))[word % FRAME_WORD_COUNT])
    }

    /// Words that follow each other in one frame, as all slots of a ring do.
    fn run<const W: usize>(&self, first: usize) -> Option<&'static [AtomicU64; W]> {
        let frame = (first / FRAME_WORD_COUNT) as u64;
        let range = self.range.filter(|range| frame < range.count)?;
        machine::words(FrameNumber(range.first.0 + frame)).get(first % FRAME_WORD_COUNT..)?.first_chunk()
    }
}

impl SharedWords for FrameWords {
    fn word_count(&self) -> usize {
        self.range.map_or(0, |range| range.count as usize) * FRAME_WORD_COUNT
    }
    fn load(&self, word: usize) -> u64 {
        self.word(word).map_or(0, |word| word.load(Ordering::Relaxed))
    }
    fn store(&self, word: usize, value: u64) {
        if let Some(word) = self.word(word) {
            word.store(value, Ordering::Relaxed);
        }
    }
    fn load_run<const W: usize>(&self, first: usize) -> [u64; W] {
        match self.run(first) {
            Some(run) => load_all(Some(run)),
            None => core::array::from_fn(|index| self.load(first + index)),
        }
    }
    fn store_run<const W: usize>(&self, first: usize, values: &[u64; W]) {
        match self.run(first) {
            Some(run) => store_all(Some(run), values),
            None => values.iter().enumerate().for_each(|(index, value)| self.store(first + index, *value)),
        }
    }
    fn load_acquire(&self, word: usize) -> u64 {
        self.word(word).map_or(0, |word| word.load(Ordering::Acquire))
    }
    fn store_release(&self, word: usize, value: u64) {
        if let Some(word) = self.word(word) {
            word.store(value, Ordering::Release);
        }
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The service's host. A disk has one client for now, which has all of it.
pub(crate) struct KernelHost {
    /// The client's environment, while there is a client.
    pub(crate) client: Option<EnvironmentId>,
    session: FrameWords,
    ranges: [Option<Range>; RANGE_COUNT_MAX],
    /// No range has a number from here on.
    range_end: usize,
}

impl KernelHost {
    pub(crate) const fn new() -> Self {
        Self { client: None, session: FrameWords { range: None }, ranges: [None; RANGE_COUNT_MAX], range_end: 0 }
    }

    /// Gives a range that an environment has bound for the function a number that is free.
    pub(crate) fn register(
        &mut self,
        state: &State<'_, Hardware>,
        device: DeviceId,
        by: EnvironmentId,
        range: (FrameNumber, u64),
        number: usize,
    ) -> bool {
        let place = self.ranges.get_mut(number).filter(|place| place.is_none());
        let (Some(place), Some(found)) = (place, find_range(state, device, by, range)) else { return false };
        *place = Some(found);
        self.range_end = self.range_end.max(number + 1);
        true
    }

    /// Makes a range that an environment has bound the session of a new client.
    pub(crate) fn begin_client(
        &mut self,
        state: &State<'_, Hardware>,
        device: DeviceId,
        by: EnvironmentId,
        range: (FrameNumber, u64),
    ) -> bool {
        let Some(found) = find_range(state, device, by, range) else { return false };
        self.forget_all();
        (self.client, self.session) = (Some(by), FrameWords { range: Some(found) });
        true
    }

    /// Forgets everything that was registered if a part of it is not bound any more; whether that is so.
    pub(crate) fn forget_gone(&mut self, state: &State<'_, Hardware>, device: DeviceId) -> bool {
        let Some(by) = self.client else { return false };
        let is_gone = |range: &Range| !has_range(state, device, by, range);
        let any_gone = self.ranges[..self.range_end].iter().chain([&self.session.range]).flatten().any(is_gone);
        if any_gone {
            self.forget_all();
        }
        any_gone
    }

    /// Forgets the client and everything that it registered.
    pub(crate) fn forget_all(&mut self) {
        *self = Self::new();
    }
}

impl DmaWindow for KernelHost {
    /// Places are addresses: nothing translates for devices, and the service keeps within what [`Host::bind`] gave.
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        Some(DeviceAddress(place.offset))
    }
}

impl BlockMemory for KernelHost {
    fn copy_in(&self, place: Place, from: &[u8]) -> bool {
        let (chunks, rest) = from.as_chunks::<8>();
        let is_whole = rest.is_empty() && place.offset.is_multiple_of(8);
        if is_whole {
            for (index, chunk) in chunks.iter().enumerate() {
                word_at(place.offset + 8 * index as u64).store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
            }
        }
        is_whole
    }

    fn copy_out(&self, place: Place, into: &mut [u8]) -> bool {
        let (chunks, rest) = into.as_chunks_mut::<8>();
        let is_whole = rest.is_empty() && place.offset.is_multiple_of(8);
        if is_whole {
            for (index, chunk) in chunks.iter_mut().enumerate() {
                *chunk = word_at(place.offset + 8 * index as u64).load(Ordering::Relaxed).to_le_bytes();
            }
        }
        is_whole
    }
}

/// A word of memory, by its address.
fn word_at(address: u64) -> &'static AtomicU64 {
    &machine::words(FrameNumber(address / PAGE_SIZE))[(address % PAGE_SIZE / 8) as usize]
}

impl Host for KernelHost {
    type Words = FrameWords;

    fn words(&self, _: usize) -> &FrameWords {
        &self.session
    }

    /// The client is the one who calls, or hears by the bell that is bound to the function's interrupt.
    fn wake(&mut self, _: usize) {}

    fn bind(&mut self, _: usize, buffer: Buffer) -> Option<u64> {
        let range = self.ranges.get(buffer.slot as usize).copied().flatten()?;
        (u64::from(buffer.page_count) <= range.count).then(|| range.first.address())
    }

    fn unbind(&mut self, _: usize, buffer: Buffer, _: u64) {
        if let Some(place) = self.ranges.get_mut(buffer.slot as usize) {
            *place = None;
        }
    }

    fn release(&mut self, _: usize) {
        self.forget_all();
    }
}
