//! Calls 30 to 39: device functions and the machine.

use std::vec::Vec;

use aegis_abi::call::{
    BellCreate, BellTake, Call, CapDerive, CapDrop, CapGrant, CapRevoke, DeviceControl, DeviceDmaBind, DeviceDmaUnbind,
    DeviceInterruptAsk, DeviceInterruptBind, DeviceMap, DevicePort, DeviceRead, EnvironmentDestroy, FrameFree,
    MachineLog, MachineOff,
};
use aegis_abi::device::DeviceField;
use aegis_abi::memory::entry;
use aegis_abi::types::{CapSlot, Rights, SLOT_DEVICE_FIRST, SLOT_MACHINE, SLOT_NONE, SLOT_SELF, Status};

use super::world::{DEVICE_FRAME, S, SHARED_LINE, World};
use crate::space::Directory;

const DEVICE: CapSlot = SLOT_DEVICE_FIRST;
const VA: u64 = 0x5000_0000;

fn read(field: DeviceField, index: u32) -> Call {
    Call::DeviceRead(DeviceRead { slot: DEVICE, field: field as u32, index })
}

#[test]
fn a_function_describes_itself() {
    let mut world = World::new();
    let expected = [
        (DeviceField::Kind, 0, 1),
        (DeviceField::Identity, 0, 0x1043_1af4),
        (DeviceField::Location, 0, 0x18),
        (DeviceField::RegionCount, 0, 3),
        (DeviceField::InterruptCount, 0, 2),
        (DeviceField::Class, 0, 0x07_8000),
        (DeviceField::RegionLength, 0, 4 * 4096),
        (DeviceField::RegionLength, 1, 0),
        (DeviceField::RegionIsPorts, 2, 1),
        (DeviceField::RegionOffset, 0, 0),
        (DeviceField::Config, 0x40, 0x18 << 16 | 0x40),
        (DeviceField::DmaConfined, 0, 0),
    ];
    for (field, index, value) in expected {
        assert_eq!(world.ok(read(field, index)), value, "{field:?}");
    }
    for (field, index) in [
        (DeviceField::RegionLength, 6),
        (DeviceField::Config, 256),
        (DeviceField::Config, 3),
        (DeviceField::Config, u32::MAX),
    ] {
        assert_eq!(world.call(read(field, index)), (Status::BadArgument, 2));
    }
    let unknown = Call::DeviceRead(DeviceRead { slot: DEVICE, field: 11, index: 0 });
    assert_eq!(world.call(unknown), (Status::BadArgument, 1));
}

fn map(region: u32, virtual_address: u64) -> Call {
    Call::DeviceMap(DeviceMap { slot: DEVICE, region, virtual_address })
}

fn leaf(world: &World, va: u64) -> u64 {
    let root = world.state.environments[world.first].root;
    match world.state.directory(root, va >> 12) {
        Directory::Table(table) => world.state.machine.memory[table.0 as usize][(va >> 12) as usize % 512],
        _ => 0,
    }
}

#[test]
fn regions_are_mapped_uncached_without_their_reserved_pages() {
    let mut world = World::new();
    assert_eq!(world.ok(map(0, VA)), 4 * 4096);
    let bits = entry::PRESENT | entry::USER | entry::WRITE | entry::NO_EXECUTE | 0x18;
    assert_eq!(leaf(&world, VA), DEVICE_FRAME << 12 | bits);
    assert_eq!(leaf(&world, VA + 0x2000), 0, "interrupt tables are the kernel's");
    assert_eq!(leaf(&world, VA + 0x3000), (DEVICE_FRAME + 3) << 12 | bits);
    for region in [1, 2, 3, 6, u32::MAX] {
        assert_eq!(world.call(map(region, VA)), (Status::BadArgument, 1));
    }
    for va in [1, 0, 0xffff_ffff_8000_0000, !0xfff] {
        assert_eq!(world.call(map(0, va)).0, Status::BadAddress);
    }
    world.ok(Call::CapDrop(CapDrop { slot: DEVICE }));
    assert_eq!(leaf(&world, VA), 0);
    assert_eq!(world.refused(map(0, VA)), Status::BadSlot);
}

#[test]
fn ports_are_bounded() {
    let mut world = World::new();
    let port = |region: u32, offset: u32, width_bytes: u32, is_write: u32| {
        Call::DevicePort(DevicePort { slot: DEVICE, region, offset, width_bytes, is_write, value: 0x55 })
    };
    assert_eq!(world.ok(port(2, 4, 4, 0)), 0xc005);
    assert_eq!(world.ok(port(2, 0x1f, 1, 1)), 0);
    assert_eq!(world.state.machine.ports, [(0xc01f, 0x55)]);
    assert_eq!(world.call(port(0, 0, 1, 0)), (Status::BadArgument, 1));
    assert_eq!(world.call(port(2, 0x1f, 2, 0)), (Status::BadArgument, 2));
    assert_eq!(world.call(port(2, u32::MAX, 4, 0)), (Status::BadArgument, 2));
    assert_eq!(world.call(port(2, 0, 3, 0)), (Status::BadArgument, 3));
    assert_eq!(world.call(port(2, 0, 1, 2)), (Status::BadArgument, 4));
    world.ok(Call::CapDerive(CapDerive {
        source: DEVICE,
        target: CapSlot(S),
        rights: Rights::READ.bits(),
        offset: 0,
        count: 0,
    }));
    let mut write = port(2, 0, 1, 1);
    if let Call::DevicePort(call) = &mut write {
        call.slot = CapSlot(S);
    }
    assert_eq!(world.refused(write), Status::MissingRight);
}

fn bell(world: &mut World) -> CapSlot {
    world.ok(Call::BellCreate(BellCreate { slot: CapSlot(S + 9), processor: SLOT_NONE }));
    CapSlot(S + 9)
}

#[test]
fn interrupts_are_counted_and_masked_until_asked_for() {
    let mut world = World::new();
    let bell = bell(&mut world);
    let ask = Call::DeviceInterruptAsk(DeviceInterruptAsk { slot: DEVICE, interrupt: 1 });
    assert_eq!(world.refused(ask), Status::WrongState);
    let bind = |interrupt: u32, bell: CapSlot| {
        Call::DeviceInterruptBind(DeviceInterruptBind { slot: DEVICE, interrupt, bell, cpu: 0 })
    };
    assert_eq!(world.call(bind(2, bell)), (Status::BadArgument, 1));
    assert_eq!(world.refused(bind(1, DEVICE)), Status::WrongType);
    world.ok(bind(1, bell));
    assert_eq!(world.state.machine.unmasked, []);
    world.ok(ask);
    assert_eq!(world.state.machine.unmasked, [(0, 1)]);
    world.interrupt(0, 0, 1);
    assert_eq!(world.state.machine.unmasked, []);
    let take = Call::BellTake(BellTake { slot: bell });
    assert_eq!(world.ok(take), 1);
    world.interrupt(0, 0, 0);
    world.interrupt(0, 0, 99);
    world.interrupt(0, 63, 1);
    assert_eq!(world.ok(take), 0);
    world.ok(bind(1, SLOT_NONE));
    world.interrupt(0, 0, 1);
    assert_eq!(world.ok(take), 0);
}

/// Of a function that one drives for another, whose processor its bell calls: the other causes them.
#[test]
fn whose_processor_an_interrupt_calls_pays_for_it() {
    for is_for_other in [false, true] {
        let mut world = World::new();
        let other = world.environment(S + 10, 20);
        world.processor(S + 12, S + 10);
        let slot = CapSlot(S + 9);
        let processor = if is_for_other { CapSlot(S + 12) } else { SLOT_NONE };
        world.ok(Call::BellCreate(BellCreate { slot, processor }));
        world.ok(Call::DeviceInterruptBind(DeviceInterruptBind { slot: DEVICE, interrupt: 1, bell: slot, cpu: 0 }));
        world.ok(Call::DeviceInterruptAsk(DeviceInterruptAsk { slot: DEVICE, interrupt: 1 }));
        world.state.machine.look_ns = 1000;
        world.interrupt(0, 0, 1);
        let owes = [world.first, other].map(|environment| world.state.environments[environment].debt_ns >= 1000);
        assert_eq!(owes, [!is_for_other, is_for_other]);
    }
}

fn dma(frames: u32, offset: u64, count: u64) -> Call {
    Call::DeviceDmaBind(DeviceDmaBind { slot: DEVICE, frames: CapSlot(frames), offset, count })
}

#[test]
fn frames_that_a_device_reaches_are_pinned() {
    let mut world = World::new();
    let first = world.frames(S, 4);
    assert_eq!(world.ok(dma(S, 1, 2)), (first + 1) << 12);
    assert_eq!(world.call(dma(S, 4, 1)), (Status::BadArgument, 2));
    assert_eq!(world.call(dma(S, 0, 0)), (Status::BadArgument, 3));
    assert_eq!(world.call(dma(S, 1, 4)), (Status::BadArgument, 3));
    assert_eq!(world.refused(dma(DEVICE.0, 0, 1)), Status::WrongType);
    let free = Call::FrameFree(FrameFree { slot: CapSlot(S) });
    let drop = Call::CapDrop(CapDrop { slot: CapSlot(S) });
    assert_eq!(world.refused(free), Status::Busy);
    assert_eq!(world.refused(drop), Status::Busy);
    let unbind = |offset: u64, count: u64| {
        Call::DeviceDmaUnbind(DeviceDmaUnbind { slot: DEVICE, frames: CapSlot(S), offset, count })
    };
    assert_eq!(world.refused(unbind(1, 1)), Status::WrongState);
    assert_eq!(world.refused(unbind(u64::MAX, 1)), Status::BadArgument);
    world.ok(unbind(1, 2));
    assert_eq!(world.refused(unbind(1, 2)), Status::WrongState);
    world.ok(free);
}

#[test]
fn losing_the_device_stops_it_before_its_frames_are_let_go() {
    let mut world = World::new();
    world.frames(S, 4);
    world.ok(dma(S, 0, 4));
    world.ok(Call::CapDrop(CapDrop { slot: DEVICE }));
    assert_eq!(world.state.machine.enabled, [], "nobody ever touched it");
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S) }));
    world.frames(S, 4);
    let second = CapSlot(DEVICE.0 + 1);
    // It is in the same page.
    world.ok(Call::CapDrop(CapDrop { slot: CapSlot(DEVICE.0 + 2) }));
    world.ok(Call::DeviceMap(DeviceMap { slot: second, region: 0, virtual_address: VA }));
    world.ok(Call::DeviceDmaBind(DeviceDmaBind { slot: second, frames: CapSlot(S), offset: 0, count: 4 }));
    world.state.machine.reset_steps[0] = 3;
    let drop = Call::CapDrop(CapDrop { slot: second });
    for _ in 0..3 {
        assert_eq!(world.refused(drop), Status::Again);
        assert_eq!(leaf(&world, VA), 0, "its registers are out of reach before it is brought to rest");
        assert_eq!(world.refused(Call::FrameFree(FrameFree { slot: CapSlot(S) })), Status::Busy);
    }
    world.ok(drop);
    assert_eq!(world.state.machine.reset, [1]);
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S) }));
}

#[test]
fn a_granted_device_comes_back_with_what_was_bound() {
    let mut world = World::new();
    let child = world.environment(S, 50);
    world.processor(S + 10, S);
    world.frames(S + 20, 2);
    for (source, target) in [(DEVICE.0, 5), (S + 20, 6)] {
        world.ok(Call::CapGrant(CapGrant {
            source: CapSlot(source),
            environment: CapSlot(S),
            target: CapSlot(target),
            rights: Rights::all().bits(),
        }));
    }
    world.start(S + 10);
    world.kick(1);
    let mut calls = [map(0, VA), dma(6, 0, 2)];
    for call in &mut calls {
        match call {
            Call::DeviceMap(call) => call.slot = CapSlot(5),
            Call::DeviceDmaBind(call) => call.slot = CapSlot(5),
            _ => {}
        }
        assert_eq!(world.call_on(1, *call).0, Status::Ok);
    }
    // The granter of the frames has them back: the device is stopped first.
    let drop_frames = Call::CapDrop(CapDrop { slot: CapSlot(6) });
    assert_eq!(world.call_on(1, drop_frames).0, Status::Busy, "a device uses them");
    world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(S + 20) }));
    assert_eq!(world.state.machine.enabled, [(0, false)]);
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S + 20) }));
    world.ok(Call::CapRevoke(CapRevoke { slot: DEVICE }));
    let root = world.state.environments[child].root;
    assert_eq!(world.state.translate(root, VA >> 12), None);
}

#[test]
fn a_device_is_enabled_and_disabled() {
    let mut world = World::new();
    let control = |operation: u32| Call::DeviceControl(DeviceControl { slot: DEVICE, operation });
    world.ok(control(0));
    world.ok(control(1));
    assert_eq!(world.state.machine.enabled, [(0, true), (0, false)]);
    assert_eq!(world.call(control(3)), (Status::BadArgument, 1));
}

#[test]
fn a_reset_is_the_holders_until_somebody_loses_the_function() {
    let mut world = World::new();
    let derived = |target: u32, rights: Rights| {
        Call::CapDerive(CapDerive {
            source: DEVICE,
            target: CapSlot(target),
            rights: rights.bits(),
            offset: 0,
            count: 0,
        })
    };
    let control = |slot: CapSlot, operation: u32| Call::DeviceControl(DeviceControl { slot, operation });
    world.ok(derived(S, Rights::CONTROL));
    assert_eq!(world.refused(control(CapSlot(S), 2)), Status::MissingRight, "it is the whole function's");
    world.state.machine.reset_steps[0] = 2;
    world.ok(control(DEVICE, 0));
    for _ in 0..2 {
        assert_eq!(world.refused(control(DEVICE, 2)), Status::Again);
        assert_eq!(world.refused(control(DEVICE, 0)), Status::Busy);
    }
    world.ok(control(DEVICE, 2));
    world.ok(control(DEVICE, 0));
    assert_eq!(world.state.machine.reset, [0]);
    // Another environment has it, and loses it.
    world.environment(S + 1, 50);
    let rights = Rights::all().bits();
    world.ok(Call::CapGrant(CapGrant { source: DEVICE, environment: CapSlot(S + 1), target: CapSlot(5), rights }));
    let destroy = Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(S + 1) });
    assert_eq!(world.refused(destroy), Status::Again);
    assert_eq!(world.refused(control(DEVICE, 0)), Status::Busy);
    assert_eq!(world.refused(control(DEVICE, 2)), Status::Busy, "the loser's reset is not to be prolonged");
    while world.call(destroy).0 == Status::Again {}
    assert_eq!(world.state.machine.reset, [0, 0], "once, not at every step of the end");
    world.ok(control(DEVICE, 0));
}

#[test]
fn functions_that_share_a_line_do_not_wait_for_each_other() {
    let mut world = World::new();
    let bell = bell(&mut world);
    world.ok(Call::BellCreate(BellCreate { slot: CapSlot(S + 10), processor: SLOT_NONE }));
    let devices = [DEVICE, CapSlot(DEVICE.0 + 1)];
    for (slot, bell) in devices.into_iter().zip([bell, CapSlot(S + 10)]) {
        world.ok(Call::DeviceInterruptBind(DeviceInterruptBind { slot, interrupt: 0, bell, cpu: 0 }));
    }
    let ask = |world: &mut World, number: usize| {
        world.ok(Call::DeviceInterruptAsk(DeviceInterruptAsk { slot: devices[number], interrupt: 0 }))
    };
    world.state.machine.sharers = Vec::from([(0, 0), (1, 0)]);
    world.state.machine.raised = Vec::from([(0, 0)]);
    ask(&mut world, 0);
    ask(&mut world, 1);
    let take = |world: &mut World, slot: u32| world.ok(Call::BellTake(BellTake { slot: CapSlot(slot) }));
    world.source(0, SHARED_LINE);
    assert_eq!((take(&mut world, S + 9), take(&mut world, S + 10)), (1, 0), "only who raised it is told");
    // The first never acknowledges: it is held back itself, and the second goes on.
    world.state.machine.raised.push((1, 0));
    for _ in 0..3 {
        assert_eq!(world.state.machine.unmasked, [(1, 0)]);
        world.source(0, SHARED_LINE);
        assert_eq!((take(&mut world, S + 9), take(&mut world, S + 10)), (0, 1));
        ask(&mut world, 1);
    }
    ask(&mut world, 0);
    world.source(1, SHARED_LINE);
    assert_eq!((take(&mut world, S + 9), take(&mut world, S + 10)), (1, 1), "both at once");
    world.source(0, SHARED_LINE);
    assert_eq!((take(&mut world, S + 9), take(&mut world, S + 10)), (0, 0));
}

#[test]
fn an_interrupt_goes_to_the_processor_that_was_named() {
    let mut world = World::new();
    let bell = bell(&mut world);
    let bind = |cpu: u32| Call::DeviceInterruptBind(DeviceInterruptBind { slot: DEVICE, interrupt: 1, bell, cpu });
    world.ok(bind(0));
    assert_eq!(world.state.machine.routed[0], (0, 1, 0), "where the caller is");
    world.ok(bind(3));
    assert_eq!(world.state.machine.routed[0], (0, 1, 2));
    for cpu in [5, 17, u32::MAX] {
        assert_eq!(world.call(bind(cpu)), (Status::BadArgument, 3));
    }
}

#[test]
fn who_can_only_write_registers_leaves_the_function_at_rest() {
    let mut world = World::new();
    world.environment(S, 50);
    world.processor(S + 10, S);
    let rights = (Rights::READ | Rights::WRITE).bits();
    world.ok(Call::CapGrant(CapGrant { source: DEVICE, environment: CapSlot(S), target: CapSlot(5), rights }));
    world.start(S + 10);
    world.kick(1);
    let map = Call::DeviceMap(DeviceMap { slot: CapSlot(5), region: 0, virtual_address: VA });
    assert_eq!(world.call_on(1, map).0, Status::Ok);
    let destroy = Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(S) });
    while world.call(destroy).0 == Status::Again {
        world.kick(1);
    }
    assert_eq!(world.state.machine.reset, [0]);
}

#[test]
fn the_log_takes_few_bytes_and_no_orders_to_a_terminal() {
    let mut world = World::new();
    let log = |slot, text: [u8; 16], length: u64| {
        let (low, high) = (u128::from_le_bytes(text) as u64, (u128::from_le_bytes(text) >> 64) as u64);
        Call::MachineLog(MachineLog { slot, length, low, high })
    };
    assert_eq!(world.ok(log(SLOT_MACHINE, *b"hello, world\n\x1b[\x9b", 16)), 16);
    assert_eq!(world.ok(log(SLOT_MACHINE, *b"again, not these", 5)), 5);
    assert_eq!(world.state.machine.log, b"hello, world\n?[?again");
    for length in [17, 1 << 32, u64::MAX] {
        assert_eq!(world.call(log(SLOT_MACHINE, [0; 16], length)), (Status::BadArgument, 1));
    }
    assert_eq!(world.refused(log(SLOT_SELF, [0; 16], 1)), Status::WrongType);
}

#[test]
fn the_machine_ends_for_who_may_end_it() {
    let mut world = World::new();
    world.ok(Call::CapDerive(CapDerive {
        source: SLOT_MACHINE,
        target: CapSlot(S),
        rights: Rights::LOG.bits(),
        offset: 0,
        count: 0,
    }));
    let off = |slot: CapSlot| Call::MachineOff(MachineOff { slot, code: 7 });
    assert_eq!(world.refused(off(CapSlot(S))), Status::MissingRight);
    world.ok(off(SLOT_MACHINE));
    assert_eq!(world.state.machine.power_off, Some(7));
}

#[test]
fn a_page_of_several_functions_goes_with_the_last_of_their_capabilities() {
    let mut world = World::new();
    let mut map_first = map(0, VA);
    let (first, second) = (CapSlot(DEVICE.0 + 1), CapSlot(DEVICE.0 + 2));
    if let Call::DeviceMap(call) = &mut map_first {
        call.slot = first;
    }
    world.ok(map_first);
    let drop = |slot: CapSlot| Call::CapDrop(CapDrop { slot });
    world.ok(drop(first));
    assert_ne!(leaf(&world, VA), 0, "the others' capabilities cover the page");
    world.ok(drop(DEVICE));
    assert_ne!(leaf(&world, VA), 0);
    world.ok(drop(second));
    assert_eq!(leaf(&world, VA), 0);
}

#[test]
fn a_driver_that_polls_leaves_no_function_at_work() {
    let mut world = World::new();
    world.environment(S, 50);
    world.processor(S + 10, S);
    let rights = Rights::all().bits();
    world.ok(Call::CapGrant(CapGrant { source: DEVICE, environment: CapSlot(S), target: CapSlot(5), rights }));
    world.start(S + 10);
    world.kick(1);
    // No interrupt, no range of frames: it knows where its memory is and tells the registers.
    let enable = Call::DeviceControl(DeviceControl { slot: CapSlot(5), operation: 0 });
    assert_eq!(world.call_on(1, enable).0, Status::Ok);
    let destroy = Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(S) });
    while world.call(destroy).0 == Status::Again {
        world.kick(1);
    }
    assert_eq!(world.state.machine.enabled.last(), Some(&(0, false)));
}
