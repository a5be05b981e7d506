//! One pod: its environment made, started and taken apart.
//!
//! A pod finds what the kernel gives to a first environment, at the same slots and addresses, so that its library OS
//! need not know that it is not alone. What differs: it can neither end the machine nor write to its log,
//! so there is a bell to say that the pod has ended and a page for the reason; the bundle's frames are a derived
//! capability; the boot information tells of the pod's own devices and frames.
#![allow(unsafe_code, reason = "calls that change memory, of environments that do not run")]

use aegis_abi::boot::{BOOT_INFO_MAGIC, BootInfo, FLAT_EXECUTE, FLAT_WRITE, FlatHeader, FlatSegment};
use aegis_abi::call::EnvironmentField;
use aegis_abi::counter::Counter;
use aegis_abi::layout::{
    BOOT_INFO_BASE, FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE, FIRST_SAVE_AREA_FRAME_COUNT, PAGE_SIZE,
};
use aegis_abi::memory::BindFlags;
use aegis_abi::share::{FIELD_SHARE_FIRST, FIELD_USED_FIRST, TABLE_COUNT, TABLES, Table};
use aegis_abi::types::{
    SLOT_BUNDLE, SLOT_DEVICE_FIRST, SLOT_FIRST_FRAMES, SLOT_FIRST_PROCESSOR, SLOT_MACHINE, SLOT_NONE, SLOT_SELF,
};
use aegis_abi::{ABI_VERSION, CapSlot, Rights};
use aegis_link::orders::PodState;
use aegis_link::phase::PodPhase;
use aegis_link::pods::{
    POD_COUNT_MAX, POD_WORDS_BASE, POD_WORDS_BYTES_MAX, PodPlan, SLOT_POD_DATA, SLOT_POD_END, SLOT_POD_IMAGE,
};
use aegis_rt::call::{self, Refusal};
use aegis_rt::clock;

use crate::device::{DeviceError, rights_of};
use crate::guard::{self, Client, Guard};
use crate::memory::{Bundle, drop_slot, fill, map, repeat, take_clear};
use crate::report::say;

/// Slots of ours that pods use, from here on.
const SLOT_POD_FIRST: u32 = 128;
/// Slots of ours that a pod uses.
const SLOT_STRIDE: u32 = 8;
/// The first behind them.
pub(crate) const SLOT_CURRENCY_FIRST: u32 = SLOT_POD_FIRST + POD_COUNT_MAX as u32 * SLOT_STRIDE;
/// Frames that pay for a pod's tables at first; its library OS donates more of its own.
const TABLE_FRAME_COUNT: u64 = 128;
/// Control page, save area, boot information page, page of the last words.
const FIRST_FRAME_COUNT: u64 = 1 + FIRST_SAVE_AREA_FRAME_COUNT + 1 + 1;

const READ_WRITE: Rights = Rights::READ.union(Rights::WRITE);

/// The library OS of all pods.
#[derive(Clone, Copy)]
pub(crate) struct Image {
    /// Our capability for its frames, without WRITE.
    pub(crate) slot: CapSlot,
    pub(crate) frame: u64,
    pub(crate) header: FlatHeader,
    pub(crate) bytes: &'static [u8],
}

impl Image {
    fn segments(&self) -> impl Iterator<Item = &FlatSegment> {
        self.header.segments.iter().take(self.header.segment_count as usize)
    }
}

/// What a pod is made from.
pub(crate) struct Making<'a> {
    pub(crate) plan: &'a PodPlan,
    /// Amount of its ticket, if that was changed since.
    pub(crate) ticket_amount: u64,
    /// Our slot of the currency that this ticket is in; without one it is ours.
    pub(crate) payer: Option<CapSlot>,
    /// First frame and number of frames of its own bundle.
    pub(crate) bundle: Bundle,
    /// Where that is in ours, in frames.
    pub(crate) bundle_offset: u64,
    /// Entries of the kernel's tables that it gets, in the order of `TABLES`.
    pub(crate) share: [u32; TABLE_COUNT],
    /// Our slots of its device functions, and the number of the first among all functions of pods.
    pub(crate) devices: &'a [CapSlot],
    pub(crate) first_device: usize,
    /// It drives them itself.
    pub(crate) trusts_devices: bool,
    /// Frames of what it may have that its part of the pool takes.
    pub(crate) pool_frame_count: u64,
    /// The library OS.
    pub(crate) image: &'a Image,
    /// What the kernel told us.
    pub(crate) info: &'a BootInfo,
}

/// A pod that was made.
#[derive(Clone, Copy)]
pub(crate) struct Pod {
    environment: CapSlot,
    processor: CapSlot,
    frames: CapSlot,
    data: CapSlot,
    bundle: CapSlot,
    bell: CapSlot,
    entry: u64,
    words_frame: u64,
    guard: Option<Guard>,
}

impl Pod {
    /// Makes pod `number`, which does not run yet.
    pub(crate) fn make(number: u32, making: &Making<'_>) -> Result<Self, DeviceError> {
        let slot = |index| CapSlot(SLOT_POD_FIRST + number * SLOT_STRIDE + index);
        let [environment, processor, frames, data, bundle, bell, tables] = core::array::from_fn(|n| slot(n as u32));
        let entry = making.image.header.entry;
        let mut pod = Self { environment, processor, frames, data, bundle, bell, entry, words_frame: 0, guard: None };
        // What its guard and its part of the pool take is of what it may have.
        let guard_count = if making.trusts_devices { 0 } else { guard::frame_count(making.devices)? };
        let quota = making.plan.frame_quota.saturating_sub(guard_count + making.pool_frame_count);
        repeat(|| call::frame_allocate(tables, TABLE_FRAME_COUNT, None, 0))?;
        call::environment_create(environment, tables, quota)?;
        pass_share(environment, &making.share)?;
        call::ticket_amount(environment, making.ticket_amount)?;
        if let Some(payer) = making.payer {
            call::ticket_issue(environment, payer)?;
        }
        call::bell_create(bell, SLOT_NONE)?;
        call::environment_watch(environment, bell)?;
        call::cap_grant(bell, environment, SLOT_POD_END, Rights::RING)?;
        call::cap_grant(SLOT_MACHINE, environment, SLOT_MACHINE, Rights::READ)?;
        pod.make_bundle(making)?;
        pod.make_image(making.image)?;
        pod.make_processor(making)?;
        if making.trusts_devices {
            for (device, index) in making.devices.iter().zip(0..) {
                // It may make a domain for it.
                let slot = CapSlot(SLOT_DEVICE_FIRST.0 + index);
                call::cap_grant(*device, environment, slot, rights_of(*device))?;
            }
            return Ok(pod);
        }
        let (devices, first_device) = (making.devices, making.first_device);
        let client = Client { number, environment, processor, devices, first_device };
        pod.guard = Some(Guard::make(&client)?);
        Ok(pod)
    }

    /// Its configuration and root are its own, to read, to run and to write.
    fn make_bundle(&self, making: &Making<'_>) -> Result<(), Refusal> {
        let mut rights = READ_WRITE | Rights::EXECUTE | Rights::DMA;
        // Images of domains are there, and what those are made of is given on.
        rights.set(Rights::GRANT, making.trusts_devices);
        let count = making.bundle.frame_count;
        call::cap_derive(SLOT_BUNDLE, self.bundle, rights | Rights::GRANT, making.bundle_offset, count)?;
        call::cap_grant(self.bundle, self.environment, SLOT_BUNDLE, rights)?;
        Ok(())
    }

    /// Maps the library OS: what is only read from the frames that all pods share, what is written from copies.
    fn make_image(&self, image: &Image) -> Result<(), Refusal> {
        call::cap_grant(image.slot, self.environment, SLOT_POD_IMAGE, Rights::READ | Rights::EXECUTE)?;
        let is_written = |segment: &&FlatSegment| segment.flags & FLAT_WRITE != 0;
        let data_count: u64 = image.segments().filter(is_written).map(|segment| u64::from(segment.page_count)).sum();
        let mut data_frame = 0;
        if data_count > 0 {
            data_frame = repeat(|| call::frame_allocate(self.data, data_count, None, 0))?;
            let rights = READ_WRITE | Rights::EXECUTE;
            call::cap_grant(self.data, self.environment, SLOT_POD_DATA, rights)?;
        }
        for segment in image.segments() {
            let page_count = u64::from(segment.page_count);
            let mut flags = BindFlags::empty();
            flags.set(BindFlags::EXECUTE, segment.flags & FLAT_EXECUTE != 0);
            let (mut slot, mut frame) = (image.slot, image.frame + u64::from(segment.page_offset));
            if is_written(&segment) {
                let start = segment.page_offset as usize * PAGE_SIZE as usize;
                let contents = &image.bytes[start..start + (page_count * PAGE_SIZE) as usize];
                fill(self.data, data_frame, page_count, |bytes| bytes.copy_from_slice(contents))?;
                flags |= BindFlags::WRITE;
                (slot, frame) = (self.data, data_frame);
                data_frame += page_count;
            }
            map(self.environment, segment.virtual_address, frame, page_count, slot, flags)?;
        }
        Ok(())
    }

    /// Its first processor and boot information, as the kernel makes them.
    fn make_processor(&mut self, making: &Making<'_>) -> Result<(), Refusal> {
        let first = take_clear(self.frames, FIRST_FRAME_COUNT)?;
        let info_frame = first + FIRST_FRAME_COUNT - 2;
        self.words_frame = info_frame + 1;
        let info = boot_info(making);
        fill(self.frames, info_frame, 1, |bytes| {
            // SAFETY: a page is aligned and long enough for it, and the structure has no padding.
            unsafe { bytes.as_mut_ptr().cast::<BootInfo>().write(info) };
        })?;
        call::cap_grant(self.frames, self.environment, SLOT_FIRST_FRAMES, READ_WRITE)?;
        let places = [
            (FIRST_CONTROL_BASE, first, 1, BindFlags::WRITE),
            (FIRST_SAVE_AREA_BASE, first + 1, FIRST_SAVE_AREA_FRAME_COUNT, BindFlags::WRITE),
            (BOOT_INFO_BASE, info_frame, 1, BindFlags::empty()),
            (POD_WORDS_BASE, self.words_frame, 1, BindFlags::WRITE),
        ];
        for (address, frame, page_count, flags) in places {
            map(self.environment, address, frame, page_count, self.frames, flags)?;
        }
        let save_area_count = FIRST_SAVE_AREA_FRAME_COUNT as u32;
        let (control, save_area) = (FIRST_CONTROL_BASE, FIRST_SAVE_AREA_BASE);
        call::processor_create(self.processor, self.environment, self.frames, save_area_count, control, save_area)?;
        let rights = Rights::READ | Rights::CONTROL | Rights::GRANT;
        call::cap_grant(self.processor, self.environment, SLOT_FIRST_PROCESSOR, rights)?;
        Ok(())
    }

    /// Frames of ours that it takes besides its quota, at most.
    pub(crate) const FRAME_COUNT_BESIDE: u64 = TABLE_FRAME_COUNT + FIRST_FRAME_COUNT + 512;

    /// Our slot of its first processor.
    pub(crate) fn processor(&self) -> CapSlot {
        self.processor
    }

    /// Our slot of its environment.
    pub(crate) fn environment(&self) -> CapSlot {
        self.environment
    }

    /// Lets it run.
    pub(crate) fn start(&self) -> Result<(), Refusal> {
        let stack_top = FIRST_SAVE_AREA_BASE + FIRST_SAVE_AREA_FRAME_COUNT * PAGE_SIZE;
        // SAFETY: it runs in memory of its own.
        unsafe { call::processor_start(self.processor, self.entry, stack_top, BOOT_INFO_BASE) }?;
        Ok(())
    }

    /// The bell that rings when it has ended, whether it says so or the kernel stopped it.
    pub(crate) fn bell(&self) -> CapSlot {
        self.bell
    }

    /// Changes the amount of its ticket.
    pub(crate) fn set_tickets(&self, amount: u64) -> Result<(), Refusal> {
        call::ticket_amount(self.environment, amount).map(|_| ())
    }

    /// How it is; the kernel refuses no reading of what we made.
    pub(crate) fn state(&self) -> PodState {
        let read = |field| call::environment_read(self.environment, field).unwrap_or(0);
        let count = |counter| call::counter_read_of(self.environment, counter).unwrap_or(0);
        let interrupts = [Counter::Interrupts, Counter::UpcallsBell, Counter::UpcallsSlice];
        PodState {
            phase: PodPhase::Running,
            time_used_ns: read(EnvironmentField::TimeUsedNs),
            frames_owned: read(EnvironmentField::FramesOwned),
            frame_quota: read(EnvironmentField::FrameQuota),
            kernel_calls: count(Counter::KernelCalls),
            system_call_traps: count(Counter::UpcallsSyscall),
            exceptions: count(Counter::UpcallsException),
            interrupts: interrupts.map(count).iter().sum(),
            slices: count(Counter::Slices),
            ..PodState::default()
        }
    }

    /// Why the kernel stopped it, and where; 0 if it did not.
    pub(crate) fn stop(&self) -> [u64; 4] {
        use EnvironmentField::{StopAddress, StopRip, StopVector, Stopped};
        [Stopped, StopVector, StopAddress, StopRip]
            .map(|field| call::environment_read(self.environment, field).unwrap_or(0))
    }

    /// Takes it apart: afterwards its frames are free and its devices stopped, and what it left as its last words is
    /// said under its name. False if one of the devices did not stop.
    pub(crate) fn end(&self, name: &str) -> Result<bool, DeviceError> {
        // SAFETY: nothing of ours is in the pod's memory; the work place was unmapped when it was made.
        repeat(|| unsafe { call::environment_destroy(self.environment) })?;
        // Nobody writes there any more. Whatever the bytes are, the kernel's log shows letters alone.
        fill(self.frames, self.words_frame, 1, |bytes| {
            let words = bytes[..POD_WORDS_BYTES_MAX].split(|byte| *byte == 0).next().unwrap_or_default();
            let words = words.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            words.lines().for_each(|line| say(format_args!("{name}: {line}")));
        })?;
        let has_stopped = self.guard.map_or(Ok(true), |guard| guard.end())?;
        for slot in [self.processor, self.frames, self.data, self.bundle, self.bell] {
            drop_slot(slot)?;
        }
        Ok(has_stopped)
    }
}

/// What a pod gets of each of the kernel's tables: equal parts of what we have, of which we keep an eighth for what we
/// make ourselves.
pub(crate) fn equal_share(pod_count: usize) -> Result<[u32; TABLE_COUNT], Refusal> {
    let mut share = [0; TABLE_COUNT];
    for (table, count) in TABLES.into_iter().zip(&mut share) {
        let read = |first| call::environment_read_share(SLOT_SELF, first, table);
        // Each pod is an environment of ours.
        let pods = if table == Table::Environments { pod_count as u64 } else { 0 };
        let left = read(FIELD_SHARE_FIRST)?.saturating_sub(read(FIELD_USED_FIRST)? + pods);
        *count = ((left - left.div_ceil(8)) / pod_count.max(1) as u64) as u32;
    }
    Ok(share)
}

/// Gives an environment exactly this of each table.
pub(crate) fn pass_share(environment: CapSlot, share: &[u32; TABLE_COUNT]) -> Result<(), Refusal> {
    for (table, count) in TABLES.into_iter().zip(share) {
        call::environment_share(environment, table, *count)?;
    }
    Ok(())
}

fn boot_info(making: &Making<'_>) -> BootInfo {
    BootInfo {
        magic: BOOT_INFO_MAGIC,
        abi_version: ABI_VERSION,
        device_count: if making.trusts_devices { making.devices.len() as u32 } else { 0 },
        bundle_frame: making.bundle.frame,
        bundle_frame_count: making.bundle.frame_count,
        frame_count_total: making.info.frame_count_total,
        frame_count_free: making.plan.frame_quota,
        control_address: FIRST_CONTROL_BASE,
        boot_ns: now_ns(),
    }
}

/// The machine's clock.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the kernel maps the system page for every environment.
    let page = unsafe { clock::system_page() };
    clock::nanoseconds_at(page, clock::time_stamp())
}
