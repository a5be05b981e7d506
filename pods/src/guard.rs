//! The guard of a pod's device functions: a processor of the manager's, which runs only when the pod calls it.
//!
//! What it does with a request is `aegis_virtio::guard`; here is what it needs of the kernel: memory for each function,
//! of which the pod gets a part (see there), a bell that the function's interrupt rings on the pod's own processor, and
//! a gate. Its processor has no ticket: it runs in its caller's slice, and is paid by its waiters. So a pod pays for
//! its guard, has it for itself, and cannot hold up another's.
//!
//! The order at the end: the pod is no more, the guard's processor is stopped in whatever it does, each function is
//! reset and has said so, then its memory is let go. A function that does not say so keeps its memory for good, and the
//! pod that had it is not started again.
#![allow(unsafe_code, reason = "memory and processors are made of frames here")]

use core::convert::Infallible;
use core::ptr::NonNull;

use aegis_abi::CapSlot;
use aegis_abi::Rights;
use aegis_abi::device::DeviceOperation;
use aegis_abi::layout::{LIBOS_BASE, PAGE_SIZE};
use aegis_abi::memory::BindFlags;
use aegis_abi::types::{SLOT_NONE, SLOT_SELF};
use aegis_hal::{DeviceAddress, DmaRegion, MmioRegion, PAGE_BYTES};
use aegis_link::config::MOUNT_COUNT_MAX;
use aegis_link::pods::{
    GUARDED_SLOT_BELL, GUARDED_SLOT_COUNT, GUARDED_SLOT_USED, POD_COUNT_MAX, SLOT_GUARDED_FIRST, SLOT_POD_GUARD,
};
use aegis_rt::call;
use aegis_rt::gate::{Message, gate_entry, register, serve};
use aegis_virtio::guard::{FunctionMemory, Geometry, GuardedFunction, operation, outcome};
use aegis_virtio::{AnyTransport, ConfigurationFault, VirtioError, device_type, open};

use crate::device::{DEVICE_COUNT_MAX, Device, DeviceError};
use crate::memory::{drop_slot, map, repeat, take_clear, unmap};

/// Most functions of a pod: a console, its directories, a network card.
const FUNCTION_COUNT_MAX: usize = 2 + MOUNT_COUNT_MAX;
/// Slots of ours that guards use, from here on, and each of them.
const SLOT_FIRST: u32 = 512;
const SLOT_STRIDE: u32 = 3;
/// Slots of ours that functions use, and each of them.
const SLOT_FUNCTION_FIRST: u32 = SLOT_FIRST + POD_COUNT_MAX as u32 * SLOT_STRIDE;
const SLOT_FUNCTION_STRIDE: u32 = 4;
const _: () = assert!(SLOT_FUNCTION_FIRST + DEVICE_COUNT_MAX as u32 * SLOT_FUNCTION_STRIDE < 4096);

/// Where guards are in our window, and how far apart.
const GUARD_BASE: u64 = LIBOS_BASE + (256 << 30);
const GUARD_STRIDE: u64 = 1 << 30;
/// From a guard's first page: its save area, its table, its functions.
const SAVE_AREA_OFFSET: u64 = 1 << 20;
const TABLE_OFFSET: u64 = 2 << 20;
const FUNCTION_OFFSET: u64 = 16 << 20;
const FUNCTION_STRIDE: u64 = 16 << 20;
/// Frames of the save area, which is the guard's stack.
const SAVE_AREA_FRAME_COUNT: u64 = 4;
/// Control page, save area, table.
const FRAME_COUNT: u64 = 1 + SAVE_AREA_FRAME_COUNT + 1;

type Transport = AnyTransport<MmioRegion, Infallible>;

/// A function, and how its interrupt is asked for.
struct Served {
    device: Device,
    function: GuardedFunction<Transport, DmaRegion>,
}

/// Pages of a function's place that only we can reach and that no device knows.
const SERVED_PAGE_COUNT: usize = size_of::<Served>().div_ceil(PAGE_BYTES);

/// What a guard has in hand: functions in the order of the pod's numbers.
struct Table {
    functions: [Option<NonNull<Served>>; FUNCTION_COUNT_MAX],
}

const _: () = assert!(size_of::<Table>() <= PAGE_BYTES);

/// The guard of a pod.
#[derive(Clone, Copy)]
pub(crate) struct Guard {
    number: u32,
    first_device: usize,
    device_count: usize,
    frames: CapSlot,
    processor: CapSlot,
    gate: CapSlot,
}

/// A pod to be, for its guard.
pub(crate) struct Client<'a> {
    pub(crate) number: u32,
    /// Its environment and first processor.
    pub(crate) environment: CapSlot,
    pub(crate) processor: CapSlot,
    /// Our slots of its functions, and the number of the first among all functions of pods.
    pub(crate) devices: &'a [CapSlot],
    pub(crate) first_device: usize,
}

/// Frames of ours that the guard of these functions takes.
pub(crate) fn frame_count(devices: &[CapSlot]) -> Result<u64, DeviceError> {
    let mut sum = FRAME_COUNT;
    for device in devices {
        sum += Layout::of(Device(*device))?.end as u64;
    }
    Ok(sum)
}

/// Where a function's pages are, counted from its first.
struct Layout {
    geometry: Geometry,
    used: usize,
    device: usize,
    served: usize,
    end: usize,
}

impl Layout {
    fn of(device: Device) -> Result<Self, DeviceError> {
        let found = device_type(&device)?.unwrap_or(0);
        let unknown = ConfigurationFault::DeviceType { expected: 0, found };
        let geometry = Geometry::of(found).ok_or(VirtioError::from(unknown))?;
        let used = geometry.driver_page_count();
        let device = used + geometry.queue_count;
        let served = device + geometry.device_page_count();
        Ok(Self { geometry, used, device, served, end: served + SERVED_PAGE_COUNT })
    }
}

impl Guard {
    /// Makes the guard of a pod whose environment and processor are made and do not run.
    pub(crate) fn make(client: &Client<'_>) -> Result<Self, DeviceError> {
        let slot = |index| CapSlot(SLOT_FIRST + client.number * SLOT_STRIDE + index);
        let guard = Self {
            number: client.number,
            first_device: client.first_device,
            device_count: client.devices.len().min(FUNCTION_COUNT_MAX),
            frames: slot(0),
            processor: slot(1),
            gate: slot(2),
        };
        guard.make_processor()?;
        for (index, device) in client.devices.iter().enumerate().take(FUNCTION_COUNT_MAX) {
            let served = guard.make_function(client, index, Device(*device))?;
            // SAFETY: made above; the guard does not run yet.
            let table = unsafe { &mut *guard.table() };
            table.functions[index] = Some(served);
        }
        call::gate_create(guard.gate, guard.processor, gate_entry as *const () as u64, guard.table() as u64)?;
        call::cap_grant(guard.gate, client.environment, SLOT_POD_GUARD, Rights::CALL)?;
        let stack_top = guard.base() + SAVE_AREA_OFFSET + SAVE_AREA_FRAME_COUNT * PAGE_SIZE;
        // SAFETY: it runs on a stack of its own, in the routine below.
        unsafe { call::processor_start(guard.processor, guard_start as *const () as u64, stack_top, 0) }?;
        Ok(guard)
    }

    fn base(&self) -> u64 {
        GUARD_BASE + u64::from(self.number) * GUARD_STRIDE
    }

    fn table(&self) -> *mut Table {
        (self.base() + TABLE_OFFSET) as *mut Table
    }

    fn make_processor(&self) -> Result<(), DeviceError> {
        let first = take_clear(self.frames, FRAME_COUNT)?;
        let (control, save_area) = (self.base(), self.base() + SAVE_AREA_OFFSET);
        let last = first + FRAME_COUNT - 1;
        let pages =
            [(control, first, 1), (save_area, first + 1, SAVE_AREA_FRAME_COUNT), (self.table() as u64, last, 1)];
        for (address, frame, page_count) in pages {
            map(SLOT_SELF, address, frame, page_count, self.frames, BindFlags::WRITE)?;
        }
        // SAFETY: just mapped, for this alone; a page is long enough.
        unsafe { self.table().write(Table { functions: [None; FUNCTION_COUNT_MAX] }) };
        let count = SAVE_AREA_FRAME_COUNT as u32;
        repeat(|| call::processor_create(self.processor, SLOT_SELF, self.frames, count, control, save_area))?;
        call::ticket_fund(self.processor, SLOT_NONE)?;
        Ok(())
    }

    /// Our slots for a function: its frames, the pod's two parts of them, its bell.
    fn function_slots(&self, index: usize) -> [CapSlot; 4] {
        let first = SLOT_FUNCTION_FIRST + (self.first_device + index) as u32 * SLOT_FUNCTION_STRIDE;
        [0, 1, 2, 3].map(|index| CapSlot(first + index))
    }

    fn function_base(&self, index: usize) -> u64 {
        self.base() + FUNCTION_OFFSET + index as u64 * FUNCTION_STRIDE
    }

    fn make_function(&self, client: &Client<'_>, index: usize, device: Device) -> Result<NonNull<Served>, DeviceError> {
        let layout = Layout::of(device)?;
        let [frames, written, used, bell] = self.function_slots(index);
        let count = layout.end as u64;
        let first = take_clear(frames, count)?;
        let transport = open(&device)?.ok_or(VirtioError::from(ConfigurationFault::NotVirtio))?;
        // SAFETY: the frames are new; what the device is told of them is up to the guard.
        let physical = unsafe { call::device_dma_bind(device.0, frames, 0, layout.served as u64) }?;
        let rings = layout.geometry.window_page_count;
        let base = self.function_base(index);
        map(SLOT_SELF, base, first + rings as u64, (layout.end - rings) as u64, frames, BindFlags::WRITE)?;
        let region = |from: usize, to: usize| {
            let address = (base as usize + (from - rings) * PAGE_BYTES) as *mut u8;
            let place = NonNull::new(address).unwrap_or(NonNull::dangling());
            let device_address = DeviceAddress(physical).offset(from * PAGE_BYTES);
            // SAFETY: mapped above and unmapped only when this guard is no more; no Rust object is there; the frames
            // follow each other. The pod reaches the rings too, and is treated as a device.
            unsafe { DmaRegion::new(place, (to - from) * PAGE_BYTES, device_address) }
        };
        let regions = (region(rings, layout.used), region(layout.used, layout.device));
        let (Some(rings_region), Some(used_region), Some(device_region)) =
            (regions.0, regions.1, region(layout.device, layout.served))
        else {
            return Err(VirtioError::from(ConfigurationFault::Guard).into());
        };
        let driver_base = DeviceAddress(physical);
        let memory = FunctionMemory { driver_base, rings: rings_region, used: used_region, device: device_region };
        let function = GuardedFunction::new(transport, memory).ok_or(VirtioError::from(ConfigurationFault::Guard))?;
        let place = (base as usize + (layout.served - rings) * PAGE_BYTES) as *mut Served;
        // SAFETY: mapped above, page-aligned and long enough, for this alone.
        unsafe { place.write(Served { device, function }) };
        call::cap_derive(frames, written, WRITTEN | Rights::GRANT, 0, layout.used as u64)?;
        call::cap_derive(
            frames,
            used,
            Rights::READ | Rights::GRANT,
            layout.used as u64,
            layout.geometry.queue_count as u64,
        )?;
        call::bell_create(bell, client.processor)?;
        call::device_interrupt_bind(device.0, 0, bell)?;
        let slot = |offset| CapSlot(SLOT_GUARDED_FIRST.0 + index as u32 * GUARDED_SLOT_COUNT + offset);
        call::cap_grant(written, client.environment, slot(0), WRITTEN)?;
        call::cap_grant(used, client.environment, slot(GUARDED_SLOT_USED), Rights::READ)?;
        call::cap_grant(bell, client.environment, slot(GUARDED_SLOT_BELL), Rights::READ | Rights::WAIT)?;
        NonNull::new(place).ok_or(VirtioError::from(ConfigurationFault::Guard).into())
    }

    /// Takes it apart, after the pod. False if a function could not be stopped: it and its memory are lost.
    pub(crate) fn end(&self) -> Result<bool, DeviceError> {
        if call::cap_read(self.processor, 0).is_ok() {
            // SAFETY: its memory is its own.
            repeat(|| unsafe { call::processor_stop(self.processor) })?;
            repeat(|| call::processor_destroy(self.processor))?;
        }
        let mut has_stopped = true;
        for index in 0..self.device_count {
            has_stopped &= self.end_function(index)?;
        }
        for slot in [self.processor, self.gate] {
            drop_slot(slot)?;
        }
        let pages =
            [(self.base(), 1), (self.base() + SAVE_AREA_OFFSET, SAVE_AREA_FRAME_COUNT), (self.table() as u64, 1)];
        for (address, page_count) in pages {
            unmap(address, page_count)?;
        }
        drop_slot(self.frames)?;
        Ok(has_stopped)
    }

    fn end_function(&self, index: usize) -> Result<bool, DeviceError> {
        // SAFETY: nobody runs on the guard's processor any more.
        let Some(mut served) = (unsafe { (*self.table()).functions[index].take() }) else { return Ok(true) };
        // SAFETY: as above; made by `make_function` and mapped until below.
        let served = unsafe { served.as_mut() };
        let device = served.device.0;
        let has_stopped = served.function.stop();
        // SAFETY: takes from the function what it has.
        unsafe { call::device_control(device, DeviceOperation::Disable) }?;
        call::device_interrupt_bind(device, 0, SLOT_NONE)?;
        let [frames, written, used, bell] = self.function_slots(index);
        drop_slot(bell)?;
        if !has_stopped {
            return Ok(false);
        }
        let layout = Layout::of(served.device)?;
        // SAFETY: the device has stopped.
        unsafe { call::device_dma_unbind(device, frames, 0, layout.served as u64) }?;
        unmap(self.function_base(index), (layout.end - layout.geometry.window_page_count) as u64)?;
        for slot in [written, used, frames] {
            drop_slot(slot)?;
        }
        Ok(true)
    }
}

/// What the pod may do with the frames that are its to write.
const WRITTEN: Rights = Rights::READ.union(Rights::WRITE);

/// Where a guard's processor begins.
extern "C" fn guard_begin() -> ! {
    register(serve_request);
    // SAFETY: nothing in the save area is needed any more.
    unsafe { serve() }
}

unsafe extern "C" {
    fn guard_start();
}

core::arch::global_asm!(
    ".global guard_start",
    "guard_start:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {begin}",
    "ud2",
    begin = sym guard_begin,
);

/// A request of the pod, whose guard's table the gate names.
extern "C" fn serve_request(badge: u64, message: &mut Message) {
    // SAFETY: we made the gate with this badge; the table is this processor's alone while it runs.
    let table = unsafe { &mut *(badge as *mut Table) };
    let [operation, function, first, second, third, ..] = *message;
    let served = usize::try_from(function).ok().and_then(|function| *table.functions.get(function)?);
    let answer = match served {
        // SAFETY: as the table.
        Some(mut served) => unsafe { served.as_mut() }.answer(operation, [first, second, third]),
        None if operation == operation::DESCRIBE => [outcome::DONE, 0, 0],
        None => [outcome::REFUSED, 0, 0],
    };
    *message = [0; _];
    message[..answer.len()].copy_from_slice(&answer);
}

impl Served {
    fn answer(&mut self, operation: u64, arguments: [u64; 3]) -> [u64; 3] {
        let answer = self.function.serve(operation, arguments);
        if operation == operation::INTERRUPT {
            // The cause is gone, so the next interrupt may come; it is bound as long as there is a guard.
            let _ = call::device_interrupt_ask(self.device.0, 0);
        }
        answer
    }
}
