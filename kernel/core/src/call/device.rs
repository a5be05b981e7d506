//! Calls 30 to 37: device functions.

use aegis_abi::call::{
    DeviceControl, DeviceDmaBind, DeviceDmaUnbind, DeviceInterruptAsk, DeviceInterruptBind, DeviceMap, DevicePort,
    DeviceRead,
};
use aegis_abi::device::{DeviceField, DeviceKind, DeviceOperation};
use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};
use aegis_abi::memory::BindFlags;
use aegis_abi::share::Table;
use aegis_abi::types::{CapType, FrameNumber, Rights, SLOT_NONE, Status};

use crate::id::{CpuId, DMA_BINDING_COUNT_MAX, DeviceId, Id};
use crate::object::{CapRef, DeviceDescription, DmaBinding, FrameKind, FunctionState, Region, Route};
use crate::outcome::{Answer, Caller, Refusal, bad_argument, refuse_if};
use crate::space::{Flush, in_windows, leaf_bits};
use crate::{Machine, State};

/// Pages of a region that one call maps at most.
const MAP_PAGE_COUNT_MAX: u64 = 4096;
/// Frames in one range that a device may reach.
const DMA_FRAME_COUNT_MAX: u64 = 8192;
/// Bytes of a function's configuration space that can be read.
const CONFIG_BYTES: u32 = 256;

fn description<'a, M: Machine>(
    state: &'a State<M>,
    caller: Caller,
    slot: aegis_abi::CapSlot,
    rights: Rights,
) -> Result<(DeviceId, &'a DeviceDescription), Status> {
    let device = state.lookup_device(caller.environment, slot, rights)?;
    let description = state.devices[device].description.as_ref().ok_or(Status::WrongState)?;
    Ok((device, description))
}

pub(super) fn read<M: Machine>(state: &mut State<M>, caller: Caller, call: DeviceRead) -> Answer {
    let (_, &device) = description(state, caller, call.slot, Rights::READ)?;
    let region = || device.regions.get(call.index as usize).ok_or(bad_argument(2));
    Ok(match DeviceField::from_number(call.field).ok_or(bad_argument(1))? {
        DeviceField::Kind => device.kind as u64,
        DeviceField::Identity => u64::from(device.identity),
        DeviceField::Location => u64::from(device.location),
        DeviceField::RegionCount => device.region_count(),
        DeviceField::InterruptCount => u64::from(device.interrupt_count),
        DeviceField::Class => u64::from(device.class),
        DeviceField::RegionOffset => region()?.base % PAGE_SIZE,
        DeviceField::RegionLength => region()?.length_bytes,
        DeviceField::RegionIsPorts => u64::from(region()?.is_ports),
        DeviceField::Config => {
            refuse_if(device.kind != DeviceKind::Pci, Status::WrongState)?;
            refuse_if(call.index >= CONFIG_BYTES || !call.index.is_multiple_of(4), bad_argument(2))?;
            u64::from(state.machine.config_read(device.location, call.index))
        }
        DeviceField::DmaConfined => 0,
    })
}

pub(super) fn control<M: Machine>(state: &mut State<M>, caller: Caller, call: DeviceControl) -> Answer {
    let (device, &description) = description(state, caller, call.slot, Rights::CONTROL)?;
    let operation = DeviceOperation::from_number(call.operation).ok_or(bad_argument(1))?;
    refuse_if(state.devices[device].is_driven, Status::WrongState)?;
    let function_state = state.devices[device].state;
    match operation {
        DeviceOperation::Enable => {
            refuse_if(matches!(function_state, FunctionState::Resetting | FunctionState::Releasing), Status::Busy)?;
            state.machine.device_enable(device, true);
            state.devices[device].state = FunctionState::InUse;
        }
        DeviceOperation::Disable => {
            state.machine.device_enable(device, false);
            for interrupt in 0..description.interrupt_count as usize {
                state.machine.interrupt_mask(device, interrupt, true);
            }
        }
        DeviceOperation::Reset => {
            state.lookup_device(caller.environment, call.slot, Rights::READ | Rights::WRITE)?;
            refuse_if(function_state == FunctionState::Releasing, Status::Busy)?;
            state.reset_device(device, FunctionState::Resetting)?;
        }
    }
    Ok(0)
}

/// Remembers that somebody can have set a function to work.
fn touch<M: Machine>(state: &mut State<M>, device: DeviceId) {
    let function_state = &mut state.devices[device].state;
    if *function_state == FunctionState::Untouched {
        *function_state = FunctionState::InUse;
    }
}

fn region_at(device: &DeviceDescription, index: u32) -> Result<&Region, Refusal> {
    device.regions.get(index as usize).filter(|region| region.length_bytes != 0).ok_or(bad_argument(1))
}

pub(super) fn map<M: Machine>(state: &mut State<M>, caller: Caller, call: DeviceMap) -> Answer {
    let (device, &description) = description(state, caller, call.slot, Rights::READ)?;
    let (_, capability) = state.lookup(caller.environment, call.slot, CapType::Device, Rights::READ)?;
    let region = region_at(&description, call.region)?;
    refuse_if(region.is_ports, bad_argument(1))?;
    let (first, count) = region.pages();
    let count = count.min(MAP_PAGE_COUNT_MAX);
    let is_in_place = call.virtual_address.is_multiple_of(PAGE_SIZE);
    refuse_if(!is_in_place || !in_windows(call.virtual_address, count << PAGE_SHIFT), Status::BadAddress)?;
    // A description that names memory which somebody could own is the glue's mistake; it must not
    // become a hole.
    let is_memory = |frame| state.frames.kind(FrameNumber(frame)) != FrameKind::Reserved;
    refuse_if((first..first + count).any(is_memory), Status::WrongState)?;
    let mut flags = BindFlags::UNCACHED;
    flags.set(BindFlags::WRITE, capability.rights.contains(Rights::WRITE));
    state.environments[caller.environment].maps_devices = true;
    touch(state, device);
    let tables = state.current_tables(caller.processor);
    let mut flush = Flush::new(tables);
    let mut result = Ok(());
    for index in (0..count).filter(|index| region.is_mappable(*index)) {
        let address = call.virtual_address + (index << PAGE_SHIFT);
        let frame = FrameNumber(first + index);
        result = state.map_small(address, frame, leaf_bits(flags), &mut flush);
        if result.is_err() {
            break;
        }
    }
    flush.finish(&mut state.machine);
    result?;
    Ok(count << PAGE_SHIFT)
}

pub(super) fn port<M: Machine>(state: &mut State<M>, caller: Caller, call: DevicePort) -> Answer {
    let rights = match call.is_write {
        0 => Rights::READ,
        1 => Rights::WRITE,
        _ => return Err(bad_argument(4)),
    };
    let (device, description) = description(state, caller, call.slot, rights)?;
    let region = region_at(description, call.region)?;
    refuse_if(!region.is_ports, bad_argument(1))?;
    refuse_if(!matches!(call.width_bytes, 1 | 2 | 4), bad_argument(3))?;
    let end = u64::from(call.offset) + u64::from(call.width_bytes);
    refuse_if(end > region.length_bytes, bad_argument(2))?;
    let port = u16::try_from(region.base + u64::from(call.offset)).map_err(|_| bad_argument(2))?;
    if call.is_write == 1 {
        touch(state, device);
        state.machine.port_write(port, call.width_bytes, call.value);
        return Ok(0);
    }
    Ok(u64::from(state.machine.port_read(port, call.width_bytes)))
}

fn interrupt_index(device: &DeviceDescription, interrupt: u32) -> Result<usize, Refusal> {
    if interrupt < device.interrupt_count { Ok(interrupt as usize) } else { Err(bad_argument(1)) }
}

pub(super) fn interrupt_bind<M: Machine>(state: &mut State<M>, caller: Caller, call: DeviceInterruptBind) -> Answer {
    let (device, description) = description(state, caller, call.slot, Rights::CONTROL)?;
    let interrupt = interrupt_index(description, call.interrupt)?;
    let cpu = match call.cpu {
        0 => caller.cpu,
        name => CpuId::from_index(name as usize - 1).ok_or(bad_argument(3))?,
    };
    let route = if call.bell == SLOT_NONE {
        Route::EMPTY
    } else {
        Route {
            environment: Some(caller.environment),
            bell: Some(state.lookup_bell(caller.environment, call.bell, Rights::RING)?),
            bound_with: Some(
                [call.slot, call.bell].map(|slot| CapRef { environment: caller.environment, slot: slot.0 }),
            ),
        }
    };
    refuse_if(!state.machine.interrupt_route(device, interrupt, cpu), bad_argument(3))?;
    let place = state.devices[device].routes.get_mut(interrupt).ok_or(bad_argument(1))?;
    *place = route;
    state.machine.interrupt_mask(device, interrupt, true);
    Ok(0)
}

pub(super) fn interrupt_ask<M: Machine>(state: &mut State<M>, caller: Caller, call: DeviceInterruptAsk) -> Answer {
    let (device, description) = description(state, caller, call.slot, Rights::CONTROL)?;
    let interrupt = interrupt_index(description, call.interrupt)?;
    let is_bound = state.devices[device].routes.get(interrupt).is_some_and(|route| route.bell.is_some());
    refuse_if(!is_bound, Status::WrongState)?;
    state.machine.interrupt_mask(device, interrupt, false);
    Ok(0)
}

pub(super) fn dma_bind<M: Machine>(state: &mut State<M>, caller: Caller, call: DeviceDmaBind) -> Answer {
    let (device, _) = description(state, caller, call.slot, Rights::CONTROL)?;
    let environment = caller.environment;
    let (at, frames) = state.lookup(environment, call.frames, CapType::Frames, Rights::DMA)?;
    refuse_if(call.offset >= frames.count, bad_argument(2))?;
    let count_max = DMA_FRAME_COUNT_MAX.min(frames.count - call.offset);
    refuse_if(!(1..=count_max).contains(&call.count), bad_argument(3))?;
    let first = frames.object + call.offset;
    state.environments[environment].check_share(Table::DmaRanges)?;
    let is_free = |binding: &DmaBinding| binding.environment.is_none();
    let place = state.dma_bindings.iter().position(is_free).ok_or(Status::TableFull)?;
    refuse_if(!state.frames.pin_range(first, call.count), Status::TableFull)?;
    state.environments[environment].count_entry(Table::DmaRanges, true);
    let (device, environment, bound_with) = (Some(device), Some(environment), Some(at));
    state.dma_bindings[place] = DmaBinding { device, environment, bound_with, first, count: call.count };
    Ok(FrameNumber(first).address())
}

pub(super) fn dma_unbind<M: Machine>(state: &mut State<M>, caller: Caller, call: DeviceDmaUnbind) -> Answer {
    let (device, _) = description(state, caller, call.slot, Rights::CONTROL)?;
    let environment = caller.environment;
    let (_, frames) = state.lookup(environment, call.frames, CapType::Frames, Rights::empty())?;
    let first = frames.object.checked_add(call.offset).ok_or(bad_argument(2))?;
    let range = Some((FrameNumber(first), call.count));
    let place = (0..DMA_BINDING_COUNT_MAX).find(|at| state.reached_frames(device, environment, *at) == range);
    let place = place.ok_or(Status::WrongState)?;
    if state.devices[device].is_driven {
        // What the extension has under way there is not the environment's to know.
        state.stop_device(device);
    }
    state.release_dma_binding(place);
    Ok(0)
}
