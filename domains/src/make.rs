//! A domain's environment: made, started, ended, and made anew out of the same frames.
#![allow(unsafe_code, reason = "calls that change memory, of environments that do not run")]

use aegis_abi::boot::{FLAT_EXECUTE, FLAT_WRITE, FlatHeader, FlatSegment};
use aegis_abi::call::EnvironmentField;
use aegis_abi::layout::{FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, PAGE_SIZE};
use aegis_abi::memory::{BIND_PAGE_COUNT_MAX, BindEntry, BindFlags};
use aegis_abi::share::Table;
use aegis_abi::types::SLOT_FIRST_PROCESSOR;
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call::{self, Outcome, Refusal};

use crate::layout::{
    CLIENT_COUNT_MAX, PAGE_CONTROL, PAGE_DRIVER, PAGE_PLAN, PAGE_SAVE_AREA, PAGE_STACK, PLAN_BASE, PLAN_WORD_COUNT_MAX,
    SAVE_AREA_PAGE_COUNT, SLOT_BELL, SLOT_DEVICE, SLOT_IMAGE, SLOT_MEMORY, STACK_BASE, STACK_PAGE_COUNT, buffer_slot,
    client_slots,
};

/// Frames that pay for the domain's tables.
pub const TABLE_FRAME_COUNT: u64 = 96;

const READ_WRITE: Rights = Rights::READ.union(Rights::WRITE);

/// What a maker does for a domain.
pub trait Maker {
    /// Repeats a call for as long as only a part of it is done, or the maker's tables have no room for what it makes.
    ///
    /// # Errors
    /// Why it is refused.
    fn repeat(&mut self, call: &mut dyn FnMut() -> Outcome) -> Outcome;
    /// Writes bytes to a page of the domain's frames, and zeros to its rest.
    ///
    /// # Errors
    /// The page cannot be reached.
    fn write_page(&mut self, frame: u64, bytes: &[u8]) -> Result<(), Refusal>;
}

/// The domain's flat image.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The maker's capability of its frames: to read and to run, and to give.
    pub slot: CapSlot,
    /// Its first frame.
    pub first_frame: u64,
    /// Its header.
    pub header: FlatHeader,
    /// All of it.
    pub bytes: &'a [u8],
    /// Pages of its driver's memory.
    pub driver_page_count: u64,
    /// Ranges that its device may reach.
    pub dma_range_count: u32,
}

impl Image<'_> {
    fn segments(&self) -> impl Iterator<Item = &FlatSegment> {
        self.header.segments.iter().take(self.header.segment_count as usize)
    }

    /// The first page of what the image writes.
    const fn data_page(&self) -> u64 {
        PAGE_DRIVER + self.driver_page_count
    }

    /// Frames that the maker gives a domain of this image.
    #[must_use]
    pub fn memory_page_count(&self) -> u64 {
        let written = self.segments().filter(|segment| segment.flags & FLAT_WRITE != 0);
        self.data_page() + written.map(|segment| u64::from(segment.page_count)).sum::<u64>()
    }
}

/// The maker's slots for a domain. Those of environment, tables and processor are empty while there is none.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The environment.
    pub environment: CapSlot,
    /// Frames on their way to its tables.
    pub tables: CapSlot,
    /// Its processor.
    pub processor: CapSlot,
    /// Its memory: [`Image::memory_page_count`] frames with all rights of an original.
    pub memory: CapSlot,
    /// The device function.
    pub device: CapSlot,
    /// The bell that it sleeps on.
    pub bell: CapSlot,
    /// The bell that rings when the kernel has stopped it.
    pub watch: CapSlot,
    /// What a session gives besides being read and written.
    pub session_rights: Rights,
    /// Of each client: frames of its session, its bell, and frames that are its buffer 0 from the start; 0 where there
    /// is none.
    pub clients: [[CapSlot; 3]; CLIENT_COUNT_MAX],
}

/// What a domain is told: a page of words, and where its memory is.
#[derive(Clone, Copy, Debug)]
pub struct PlanPage<'a> {
    /// First frame of what the maker gives.
    pub memory_frame: u64,
    /// The words, at most [`PLAN_WORD_COUNT_MAX`].
    pub words: &'a [u64],
}

/// Makes a domain and lets it run. What is half made when this fails ends with [`end`].
///
/// # Errors
/// What the kernel refuses.
pub fn start(maker: &mut impl Maker, image: &Image<'_>, slots: &Slots, plan: &PlanPage<'_>) -> Result<(), Refusal> {
    let environment = slots.environment;
    maker.repeat(&mut || call::frame_allocate(slots.tables, TABLE_FRAME_COUNT, None, 0))?;
    maker.repeat(&mut || call::environment_create(environment, slots.tables, 0))?;
    call::environment_share(environment, Table::DmaRanges, image.dma_range_count)?;
    // It has its home space alone, and programs' processes are many.
    call::environment_share(environment, Table::Spaces, 0)?;
    call::environment_watch(environment, slots.watch)?;
    let grants = [
        (slots.memory, SLOT_MEMORY, READ_WRITE | Rights::DMA),
        (slots.bell, SLOT_BELL, Rights::RING | Rights::WAIT),
        (image.slot, SLOT_IMAGE, Rights::READ | Rights::EXECUTE),
        (slots.device, SLOT_DEVICE, READ_WRITE | Rights::CONTROL),
    ];
    for (source, target, rights) in grants {
        maker.repeat(&mut || call::cap_grant(source, environment, target, rights))?;
    }
    for (client, [session, bell, buffer]) in slots.clients.iter().enumerate() {
        let [session_slot, bell_slot] = client_slots(client);
        if session.0 != 0 {
            maker.repeat(&mut || {
                call::cap_grant(*session, environment, session_slot, READ_WRITE | slots.session_rights)
            })?;
            maker.repeat(&mut || call::cap_grant(*bell, environment, bell_slot, Rights::RING))?;
        }
        if let Some(slot) = buffer_slot(client, 0).filter(|_| buffer.0 != 0) {
            maker.repeat(&mut || call::cap_grant(*buffer, environment, slot, Rights::DMA))?;
        }
    }
    map_image(maker, image, slots, plan.memory_frame)?;
    make_processor(maker, slots, plan)?;
    let stack_top = STACK_BASE + STACK_PAGE_COUNT * PAGE_SIZE;
    // SAFETY: it runs in memory of its own.
    unsafe { call::processor_start(slots.processor, image.header.entry, stack_top, PLAN_BASE) }?;
    Ok(())
}

/// Maps the image: what is only read from frames that nobody writes, what is written from copies.
fn map_image(maker: &mut impl Maker, image: &Image<'_>, slots: &Slots, memory_frame: u64) -> Result<(), Refusal> {
    let mut data_frame = memory_frame + image.data_page();
    for segment in image.segments() {
        let page_count = u64::from(segment.page_count);
        let mut flags = BindFlags::empty();
        flags.set(BindFlags::EXECUTE, segment.flags & FLAT_EXECUTE != 0);
        let (mut slot, mut frame) = (image.slot, image.first_frame + u64::from(segment.page_offset));
        if segment.flags & FLAT_WRITE != 0 {
            let start = segment.page_offset as usize * PAGE_SIZE as usize;
            let pages = image.bytes.get(start..start + (page_count * PAGE_SIZE) as usize).unwrap_or_default();
            for (page, bytes) in pages.chunks(PAGE_SIZE as usize).enumerate() {
                maker.write_page(data_frame + page as u64, bytes)?;
            }
            flags |= BindFlags::WRITE;
            (slot, frame) = (slots.memory, data_frame);
            data_frame += page_count;
        }
        map(maker, slots.environment, segment.virtual_address, frame, page_count, slot, flags)?;
    }
    Ok(())
}

/// Its processor with its pages, its stack and the plan.
fn make_processor(maker: &mut impl Maker, slots: &Slots, plan: &PlanPage<'_>) -> Result<(), Refusal> {
    let frame = plan.memory_frame;
    maker.write_page(frame + PAGE_CONTROL, &[])?;
    let mut page = [0; PLAN_WORD_COUNT_MAX * 8];
    for (bytes, word) in page.chunks_exact_mut(8).zip(plan.words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    maker.write_page(frame + PAGE_PLAN, &page)?;
    let places = [
        (FIRST_CONTROL_BASE, PAGE_CONTROL, 1, BindFlags::WRITE),
        (FIRST_SAVE_AREA_BASE, PAGE_SAVE_AREA, SAVE_AREA_PAGE_COUNT, BindFlags::WRITE),
        (PLAN_BASE, PAGE_PLAN, 1, BindFlags::empty()),
        (STACK_BASE, PAGE_STACK, STACK_PAGE_COUNT, BindFlags::WRITE),
    ];
    for (address, page, page_count, flags) in places {
        map(maker, slots.environment, address, frame + page, page_count, slots.memory, flags)?;
    }
    let (control, save_area, count) = (FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, SAVE_AREA_PAGE_COUNT as u32);
    maker.repeat(&mut || {
        call::processor_create(slots.processor, slots.environment, slots.memory, count, control, save_area)
    })?;
    maker.repeat(&mut || call::cap_grant(slots.processor, slots.environment, SLOT_FIRST_PROCESSOR, Rights::READ))?;
    Ok(())
}

fn map(
    maker: &mut impl Maker,
    environment: CapSlot,
    address: u64,
    frame: u64,
    page_count: u64,
    slot: CapSlot,
    flags: BindFlags,
) -> Result<(), Refusal> {
    let step = u64::from(BIND_PAGE_COUNT_MAX);
    for first in (0..page_count).step_by(step as usize) {
        let count = (page_count - first).min(step) as u32;
        let entry = BindEntry::map(address + first * PAGE_SIZE, frame + first, count, slot, flags);
        // SAFETY: addresses of an environment that does not run are none of Rust's.
        maker.repeat(&mut || unsafe { call::bind(environment, &[entry]) })?;
    }
    Ok(())
}

/// Whether the kernel has stopped it.
#[must_use]
pub fn is_stopped(slots: &Slots) -> bool {
    call::environment_read(slots.environment, EnvironmentField::Stopped) != Ok(0)
}

/// Ends a domain, wherever it was: its device function is stopped and reset, so its memory and its clients' are not
/// touched any more, and the slots are as before [`start`].
///
/// # Errors
/// What the kernel refuses. `Ok(false)`: the device does not come to rest; its memory must not be used again.
pub fn end(maker: &mut impl Maker, slots: &Slots) -> Result<bool, Refusal> {
    if call::cap_read(slots.environment, 0).is_ok() {
        // SAFETY: nothing of ours is in the domain's memory.
        maker.repeat(&mut || unsafe { call::environment_destroy(slots.environment) })?;
    }
    for slot in [slots.processor, slots.tables] {
        if call::cap_read(slot, 0).is_ok() {
            // SAFETY: nothing is mapped by it.
            maker.repeat(&mut || unsafe { call::cap_drop(slot) })?;
        }
    }
    // What the environment lost was reset already; that is repeated until the function is at rest.
    // SAFETY: the function has no driver, and nothing is bound for it any more.
    let reset = maker.repeat(&mut || unsafe { reset_unless_busy(slots.device) });
    Ok(reset.is_ok())
}

/// Resets a function. One that is being taken from somebody is on its way.
///
/// # Safety
/// As for any change of a device function.
unsafe fn reset_unless_busy(device: CapSlot) -> Outcome {
    // SAFETY: passed on to our caller.
    let outcome = unsafe { call::device_control(device, aegis_abi::device::DeviceOperation::Reset) };
    outcome.map_err(|refusal| match refusal.status {
        Status::Busy => Refusal { status: Status::Again, ..refusal },
        _ => refusal,
    })
}
