//! From the glue's findings to the first environment.
//!
//! Order: `State::init`, `add_free_frames` for each range of memory that nobody uses, `add_device`
//! for each function, then `start_first_environment`. The bundle comes from the host and is not
//! trusted: every number that is read of it is checked, and a bad one is a [`BootError`] that names it. The library
//! OS follows the header; what other parts there are the kernel does not look at. Segments are mapped where they lie
//! in the bundle, whose frames belong to the first environment.

use aegis_abi::boot::{
    BOOT_INFO_MAGIC, BUNDLE_MAGIC, BUNDLE_VERSION, FLAT_EXECUTE, FLAT_MAGIC, FLAT_SEGMENT_COUNT_MAX, FLAT_WRITE,
};
use aegis_abi::layout::{
    BOOT_INFO_BASE, FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, FIRST_SAVE_AREA_FRAME_COUNT, LIBOS_END, LIBOS_IMAGE_BASE,
    PAGE_SHIFT, PAGE_SIZE, SYSTEM_PAGE_BASE,
};
use aegis_abi::memory::BindFlags;
use aegis_abi::types::{
    CapSlot, CapType, FrameNumber, Rights, SLOT_BUNDLE, SLOT_DEVICE_FIRST, SLOT_FIRST_FRAMES, SLOT_FIRST_PROCESSOR,
    SLOT_MACHINE, SLOT_SELF, Status,
};
use aegis_lottery::random::Keyed;

use crate::id::{DeviceId, EnvironmentId, Id, Named, ProcessorId};
use crate::object::{
    BlockEntry, CapRef, Capability, Device, DeviceDescription, ENVIRONMENT_RIGHTS, FrameEntry, FrameKind,
    PROCESSOR_RIGHTS, Pages,
};
use crate::outcome::refuse_if;
use crate::space::{Flush, leaf_bits};
use crate::{Machine, State};

/// Frames that the first environment starts with for its tables.
const DONATED_FRAME_COUNT: u64 = 128;
/// Control page, save area, boot information page.
const FIRST_FRAME_COUNT: u64 = 1 + FIRST_SAVE_AREA_FRAME_COUNT + 1;
const DEVICE_RIGHTS: Rights = Rights::READ.union(Rights::WRITE).union(Rights::CONTROL).union(Rights::GRANT);
/// Of a function that the kernel's extension drives: to say what it reaches, and what its interrupts ring.
const DRIVEN_RIGHTS: Rights = Rights::CONTROL.union(Rights::GRANT);
const MACHINE_RIGHTS: Rights = Rights::READ.union(Rights::CONTROL).union(Rights::LOG).union(Rights::GRANT);

/// What the glue hands over once.
pub struct Setup<'a> {
    /// One entry for each frame up to the highest.
    pub frames: &'a mut [FrameEntry],
    /// One entry for each started block of 512 frames.
    pub blocks: &'a mut [BlockEntry],
    /// A root table whose entries 265 to 511 are the kernel's.
    pub template_root: FrameNumber,
    /// The filled system page.
    pub system_page: FrameNumber,
    /// Slice length.
    pub slice_ns: u64,
    /// Key of the draws.
    pub lottery_key: [u64; 2],
}

/// Why the machine cannot start. Each is the fault of the bundle's maker, except the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootError {
    /// The block table is too short for the frame table, or a frame number does not fit.
    FrameTable,
    /// Too little memory for the first environment.
    NoMemory,
    /// The bundle lies outside the frame table or overlaps memory that was given as free.
    BundleRange,
    /// The bundle's magic or version is wrong.
    BundleHeader,
    /// The flat image's magic, version or number of segments is wrong.
    ImageHeader,
    /// Segment `n` is misaligned, out of range, overlapping, or has unknown flags.
    ImageSegment(u8),
    /// The entry point is in no executable segment.
    ImageEntry,
    /// The library OS needs more page tables than there are frames for.
    ImageTooLarge,
}

/// The first environment's part of the machine.
#[derive(Clone, Copy, Debug)]
pub struct FirstEnvironment {
    /// First frame of the boot bundle.
    pub bundle_frame: FrameNumber,
    /// Frames of the boot bundle.
    pub bundle_frame_count: u64,
}

impl<'a, M: Machine> State<'a, M> {
    /// Takes the tables' memory. Everything is reserved until `add_free_frames`.
    pub fn init(&mut self, setup: Setup<'a>) -> Result<(), BootError> {
        refuse_if(!self.frames.install(setup.frames, setup.blocks), BootError::FrameTable)?;
        (self.template_root, self.system_page) = (setup.template_root, setup.system_page);
        (self.slice_ns, self.random) = (setup.slice_ns.max(1), Keyed::new(setup.lottery_key));
        self.alarms.begin_look();
        self.frames.set(setup.system_page, FrameKind::Shared, 0);
        Ok(())
    }

    /// Makes a range of memory free. Frame 0 and what is beyond the table stay reserved.
    pub fn add_free_frames(&mut self, first: FrameNumber, count: u64) {
        let end = first.0.saturating_add(count).min(self.frames.count());
        for frame in first.0.max(1)..end {
            if self.frames.kind(FrameNumber(frame)) == FrameKind::Reserved {
                self.frames.set(FrameNumber(frame), FrameKind::Free, 0);
            }
        }
    }

    /// Adds a device function; `None` if the table is full.
    pub fn add_device(&mut self, description: DeviceDescription) -> Option<DeviceId> {
        let device = self.devices.find(|d| d.description.is_none())?;
        let is_driven = self.machine.extension().is_some_and(|extension| extension.drives(device, &description));
        self.devices[device] = Device { description: Some(description), is_driven, ..Device::EMPTY };
        Some(device)
    }

    /// Maps the page that every environment sees.
    pub(crate) fn map_system_page(&mut self, environment: EnvironmentId) -> Result<(), Status> {
        let mut flush = Flush::new(self.home_tables(environment));
        let bits = leaf_bits(BindFlags::empty());
        let page = self.system_page;
        self.map_small(SYSTEM_PAGE_BASE, page, bits, &mut flush)
    }

    /// Makes the first environment and its processor, which the scheduler picks at the next
    /// `on_kick`.
    pub fn start_first_environment(&mut self, first: FirstEnvironment) -> Result<ProcessorId, BootError> {
        self.check_bundle(&first)?;
        let frame_count_free = self.frames.free_count();
        let environment = self.new_environment(None).map_err(|_| BootError::NoMemory)?;
        self.environments[environment].frame_quota = frame_count_free.saturating_add(first.bundle_frame_count);
        self.first_environment = Some(environment);
        self.adopt(environment, first.bundle_frame.0, first.bundle_frame_count);
        let donated = self.allocate(environment, DONATED_FRAME_COUNT)?;
        for frame in (donated.0..donated.0 + DONATED_FRAME_COUNT).rev() {
            self.donate_frame(environment, FrameNumber(frame));
        }
        let frames = self.allocate(environment, FIRST_FRAME_COUNT)?;
        let pages = Pages {
            first_frame: frames.0,
            save_area_frame_count: FIRST_SAVE_AREA_FRAME_COUNT,
            control_address: FIRST_CONTROL_BASE,
            save_area_base: FIRST_SAVE_AREA_BASE,
        };
        let boot_info = FrameNumber(frames.0 + FIRST_FRAME_COUNT - 1);
        self.build_first(environment, &pages, boot_info).map_err(|_| BootError::ImageTooLarge)?;
        let entry = self.map_image(environment, &first)?;
        let paid_with = CapRef { environment, slot: SLOT_FIRST_FRAMES.0 };
        let processor = self.make_processor(environment, pages, paid_with).map_err(|_| BootError::NoMemory)?;
        self.fill_first_table(environment, processor, &first, frames).map_err(|_| BootError::NoMemory)?;
        self.write_boot_info(boot_info, &first, frame_count_free);
        let top = pages.save_area_top();
        self.start_processor(processor.id, entry, top, BOOT_INFO_BASE).map_err(|_| BootError::NoMemory)?;
        Ok(processor.id)
    }

    fn adopt(&mut self, environment: EnvironmentId, first: u64, count: u64) {
        let serial = self.environments[environment].serial;
        self.frames.set_range(first, count, FrameKind::Owned, serial);
        self.environments[environment].frames_owned += count;
    }

    fn allocate(&mut self, environment: EnvironmentId, count: u64) -> Result<FrameNumber, BootError> {
        let mut search = self.frames.new_search(count);
        let first = self.frames.find_free(count, 1, &mut search).map_err(|_| BootError::NoMemory)?;
        self.adopt(environment, first.0, count);
        for frame in first.0..first.0 + count {
            self.machine.zero_frame(FrameNumber(frame));
        }
        Ok(first)
    }

    fn build_first(&mut self, environment: EnvironmentId, pages: &Pages, boot_info: FrameNumber) -> Result<(), Status> {
        self.build_environment(environment)?;
        let fixed = [
            (pages.control_address, pages.first_frame, 1, BindFlags::WRITE),
            (pages.save_area_base, pages.first_frame + 1, pages.save_area_frame_count, BindFlags::WRITE),
            (BOOT_INFO_BASE, boot_info.0, 1, BindFlags::empty()),
        ];
        for pages in fixed {
            self.map_range(environment, pages)?;
        }
        Ok(())
    }

    /// Maps so many pages from an address on to the frames from one on.
    fn map_range(&mut self, environment: EnvironmentId, pages: (u64, u64, u64, BindFlags)) -> Result<(), Status> {
        let (address, frame, page_count, flags) = pages;
        // Nothing runs with this root yet, so nothing has to be flushed.
        let mut flush = Flush::new(self.home_tables(environment));
        for page in 0..page_count {
            let address = address + (page << PAGE_SHIFT);
            self.map_small(address, FrameNumber(frame + page), leaf_bits(flags), &mut flush)?;
        }
        Ok(())
    }

    fn fill_first_table(
        &mut self,
        environment: EnvironmentId,
        processor: Named<ProcessorId>,
        first: &FirstEnvironment,
        frames: FrameNumber,
    ) -> Result<(), Status> {
        let machine = Named { id: environment, serial: 0 };
        let fixed = [
            (
                SLOT_SELF,
                Capability::object(CapType::Environment, ENVIRONMENT_RIGHTS, self.named_environment(environment)),
            ),
            (SLOT_FIRST_PROCESSOR, Capability::object(CapType::Processor, PROCESSOR_RIGHTS, processor)),
            (SLOT_MACHINE, Capability::object(CapType::Machine, MACHINE_RIGHTS, machine)),
            (SLOT_BUNDLE, Capability::frames(first.bundle_frame, first.bundle_frame_count)),
            (SLOT_FIRST_FRAMES, Capability::frames(frames, FIRST_FRAME_COUNT)),
        ];
        for (slot, capability) in fixed {
            let at = self.empty_slot(environment, slot)?;
            self.store_capability(at, &capability);
        }
        for device in self.devices.ids() {
            if self.devices[device].description.is_none() {
                continue;
            }
            let slot = CapSlot(SLOT_DEVICE_FIRST.0 + device.index() as u32);
            let at = self.empty_slot(environment, slot)?;
            let rights = if self.devices[device].is_driven { DRIVEN_RIGHTS } else { DEVICE_RIGHTS };
            let capability = Capability::object(CapType::Device, rights, Named { id: device, serial: 0 });
            self.store_capability(at, &capability);
        }
        Ok(())
    }

    fn write_boot_info(&mut self, boot_info: FrameNumber, first: &FirstEnvironment, frame_count_free: u64) {
        let device_count = self.devices.iter().filter(|(_, d)| d.description.is_some()).count() as u64;
        let words = [
            BOOT_INFO_MAGIC,
            u64::from(aegis_abi::ABI_VERSION) | device_count << 32,
            first.bundle_frame.0,
            first.bundle_frame_count,
            self.frames.count(),
            frame_count_free,
            FIRST_CONTROL_BASE,
            self.machine.now_ns(),
        ];
        self.machine.store_words(boot_info, 0, words);
    }

    /// Word `index` of the memory that starts at `frame`; the caller checked that it is in the
    /// bundle.
    fn bundle_word(&self, frame: u64, index: u64) -> u64 {
        self.machine.load(FrameNumber(frame + index / 512), (index % 512) as usize)
    }

    fn check_bundle(&self, first: &FirstEnvironment) -> Result<(), BootError> {
        let (base, count) = (first.bundle_frame.0, first.bundle_frame_count);
        let is_ours = count > 1
            && self.frames.contains(base, count)
            && (base..base + count).all(|f| self.frames.kind(FrameNumber(f)) == FrameKind::Reserved);
        refuse_if(!is_ours, BootError::BundleRange)?;
        let is_good = self.bundle_word(base, 0) == BUNDLE_MAGIC && self.bundle_word(base, 1) as u32 == BUNDLE_VERSION;
        if is_good { Ok(()) } else { Err(BootError::BundleHeader) }
    }

    /// Maps the flat image that is the bundle's first part and follows its header; the entry point.
    fn map_image(&mut self, environment: EnvironmentId, first: &FirstEnvironment) -> Result<u64, BootError> {
        let base = first.bundle_frame.0 + 1;
        let [magic, counts, entry] = [0, 1, 2].map(|index| self.bundle_word(base, index));
        let segment_count = counts >> 32;
        let is_known = magic == FLAT_MAGIC && counts as u32 == BUNDLE_VERSION;
        let has_segments = (1..=FLAT_SEGMENT_COUNT_MAX as u64).contains(&segment_count);
        refuse_if(!is_known || !has_segments, BootError::ImageHeader)?;
        let mut lowest = LIBOS_IMAGE_BASE;
        let mut is_entry_good = false;
        for number in 0..segment_count {
            let [address, extent, flags] = [3, 4, 5].map(|index| self.bundle_word(base, number * 3 + index));
            let (page_offset, page_count) = (extent & 0xffff_ffff, extent >> 32);
            let end = address.saturating_add(page_count << PAGE_SHIFT);
            let is_good = address.is_multiple_of(PAGE_SIZE)
                && (address >= lowest && end <= LIBOS_END)
                && page_count != 0
                && page_offset + page_count < first.bundle_frame_count
                && flags as u32 & !(FLAT_WRITE | FLAT_EXECUTE) == 0;
            refuse_if(!is_good, BootError::ImageSegment(number as u8))?;
            let mut bind_flags = BindFlags::empty();
            bind_flags.set(BindFlags::WRITE, flags as u32 & FLAT_WRITE != 0);
            bind_flags.set(BindFlags::EXECUTE, flags as u32 & FLAT_EXECUTE != 0);
            self.map_range(environment, (address, base + page_offset, page_count, bind_flags))
                .map_err(|_| BootError::ImageTooLarge)?;
            is_entry_good |= bind_flags.contains(BindFlags::EXECUTE) && (address..end).contains(&entry);
            lowest = end;
        }
        if is_entry_good { Ok(entry) } else { Err(BootError::ImageEntry) }
    }
}
