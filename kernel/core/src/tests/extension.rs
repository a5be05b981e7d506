//! Call 59, and what an extension is told and may ask.

use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

use aegis_abi::call::{
    BellCreate, BellTake, Call, CapDerive, CapDrop, CapGrant, CapRevoke, DeviceControl, DeviceDmaBind, DeviceDmaUnbind,
    DeviceInterruptAsk, DeviceInterruptBind, DeviceMap, DevicePort, DeviceRead, ExtensionCall,
};
use aegis_abi::memory::{BindEntry, BindFlags, entry};
use aegis_abi::types::{CapSlot, FrameNumber, Rights, SLOT_DEVICE_FIRST, Status};
use aegis_abi::upcall::UpcallFrame;

use super::check::check;
use super::world::{Fake, S, World};
use crate::State;
use crate::id::{DeviceId, Id};
use crate::machine::Extension;
use crate::object::{DeviceDescription, Tables};
use crate::space::Flush;

/// Drives function 0, and writes down what it is told.
struct Recorder(Mutex<Vec<(&'static str, u64)>>);

impl Recorder {
    fn leaked() -> &'static Self {
        std::boxed::Box::leak(std::boxed::Box::new(Self(Mutex::new(Vec::new()))))
    }

    fn told(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.0.lock().expect("no test panicked"))
    }
}

/// What the second operand asks of function 0: the frames that it reaches by a place of the table.
const REACHED: u64 = 7;
/// Closes the page at the second operand.
const WITHHOLD: u64 = 8;
const VA: u64 = 0x4000_0000;

impl Extension<Fake> for Recorder {
    fn drives(&self, device: DeviceId, _: &DeviceDescription) -> bool {
        device.index() == 0
    }

    fn call(&self, state: &mut State<'_, Fake>, by: Tables, call: &ExtensionCall) -> Result<u64, Status> {
        self.0.lock().expect("no test panicked").push(("call", call.operation));
        match call.operation {
            REACHED => {
                let device = DeviceId::from_index(call.first as usize).ok_or(Status::BadArgument)?;
                let (FrameNumber(first), count) =
                    state.reached_frames(device, by.environment, call.second as usize).ok_or(Status::WrongState)?;
                Ok(first << 16 | count)
            }
            // Its own way with a page: stores are withheld.
            WITHHOLD => {
                let (place, leaf) = state.program_page(by, call.first).ok_or(Status::BadAddress)?;
                let mut flush = Flush::new(by);
                if state.change_leaf(place, leaf, (entry::WRITE | entry::USER, entry::WITHHELD)) {
                    flush.add(call.first);
                }
                flush.finish(&mut state.machine);
                Ok(0)
            }
            sum => Ok(sum + call.first + call.second + call.third + call.fourth + call.fifth),
        }
    }

    fn stop(&self, state: &mut State<'_, Fake>, device: DeviceId) {
        assert_eq!(state.machine.enabled.last(), Some(&(device.index(), false)), "it is switched off before");
        self.0.lock().expect("no test panicked").push(("stop", device.index() as u64));
    }

    fn exception(&self, state: &mut State<'_, Fake>, by: Tables, frame: &UpcallFrame) -> bool {
        let page = state.program_page(by, frame.fault_address);
        let Some((place, leaf)) = page.filter(|(_, leaf)| leaf & entry::WITHHELD != 0) else { return false };
        state.change_leaf(place, leaf, (entry::WITHHELD, entry::WRITE | entry::USER))
    }

    fn interrupt(&self, state: &mut State<'_, Fake>, device: DeviceId) {
        let rung: u64 = state.bells.iter().map(|(_, bell)| bell.count()).sum();
        self.0.lock().expect("no test panicked").push(("interrupt", (device.index() as u64) << 8 | rung));
    }
}

fn call(operation: u64, first: u64, second: u64) -> Call {
    Call::ExtensionCall(ExtensionCall { operation, first, second, third: 30, fourth: 400, fifth: 5000 })
}

#[test]
fn a_kernel_without_extension_knows_no_such_call() {
    assert_eq!(World::new().call(call(1, 0, 0)), (Status::UnknownCall, 0));
}

#[test]
fn words_go_to_the_extension_and_its_value_comes_back() {
    let extension = Recorder::leaked();
    let mut world = World::extended(extension);
    assert_eq!(world.ok(call(1, 0, 2)), 5433);
    assert_eq!(world.refused(call(REACHED, 0, u64::MAX)), Status::WrongState);
    assert_eq!(extension.told(), [("call", 1), ("call", REACHED)]);
}

#[test]
fn nobody_else_gets_at_a_function_that_it_drives() {
    let mut world = World::extended(Recorder::leaked());
    let slot = SLOT_DEVICE_FIRST;
    let port = DevicePort { slot, region: 2, offset: 0, width_bytes: 1, is_write: 1, value: 0 };
    for refused in [
        Call::DeviceRead(DeviceRead { slot, field: 0, index: 0 }),
        Call::DeviceMap(DeviceMap { slot, region: 0, virtual_address: 0x5000_0000 }),
        Call::DevicePort(port),
        Call::DevicePort(DevicePort { is_write: 0, ..port }),
    ] {
        assert_eq!(world.refused(refused), Status::MissingRight, "{refused:?}");
    }
    for operation in 0..3 {
        let refused = Call::DeviceControl(DeviceControl { slot, operation });
        assert_eq!(world.refused(refused), Status::WrongState, "{refused:?}");
    }
    let another = CapSlot(slot.0 + 1);
    world.ok(Call::DeviceRead(DeviceRead { slot: another, field: 0, index: 0 }));
    world.ok(Call::DeviceControl(DeviceControl { slot: another, operation: 0 }));
}

#[test]
fn it_learns_what_an_environment_lets_a_function_reach_and_for_how_long() {
    let extension = Recorder::leaked();
    let mut world = World::extended(extension);
    let first = world.frames(S, 4);
    let slot = SLOT_DEVICE_FIRST;
    let bind = Call::DeviceDmaBind(DeviceDmaBind { slot, frames: CapSlot(S), offset: 1, count: 2 });
    assert_eq!(world.ok(bind), (first + 1) << 12);
    assert_eq!(world.ok(call(REACHED, 0, 0)), (first + 1) << 16 | 2);
    assert_eq!(world.refused(call(REACHED, 1, 0)), Status::WrongState, "another function");
    assert_eq!(world.refused(call(REACHED, 0, 1)), Status::WrongState, "another place");
    world.ok(Call::DeviceDmaUnbind(DeviceDmaUnbind { slot, frames: CapSlot(S), offset: 1, count: 2 }));
    assert_eq!(world.refused(call(REACHED, 0, 0)), Status::WrongState);
    assert_eq!(world.state.machine.enabled, [(0, false)], "it does not reach what it may not any more");
    assert!(extension.told().contains(&("stop", 0)), "and was still before it lost it");
    // With the right to say so, all of it goes, and the function is at rest before.
    world.ok(bind);
    world.ok(Call::CapDrop(CapDrop { slot }));
    assert_eq!(world.state.machine.reset, vec![0; world.state.machine.reset.len()]);
    assert_eq!(world.refused(call(REACHED, 0, 0)), Status::WrongState);
}

#[test]
fn an_interrupt_is_its_own_before_the_bell_rings() {
    let extension = Recorder::leaked();
    let mut world = World::extended(extension);
    let (slot, bell) = (SLOT_DEVICE_FIRST, CapSlot(S + 1));
    world.ok(Call::BellCreate(BellCreate { slot: bell, processor: CapSlot(0) }));
    world.ok(Call::DeviceInterruptBind(DeviceInterruptBind { slot, interrupt: 1, bell, cpu: 0 }));
    world.ok(Call::DeviceInterruptAsk(DeviceInterruptAsk { slot, interrupt: 1 }));
    world.interrupt(0, 0, 1);
    assert_eq!(extension.told(), [("interrupt", 0)], "nothing had rung");
    assert_eq!(world.ok(Call::BellTake(BellTake { slot: bell })), 1);
    // One that it does not drive.
    let other = CapSlot(slot.0 + 1);
    world.ok(Call::DeviceInterruptBind(DeviceInterruptBind { slot: other, interrupt: 0, bell, cpu: 0 }));
    world.interrupt(0, 1, 0);
    assert_eq!(extension.told(), []);
    assert_eq!(world.ok(Call::BellTake(BellTake { slot: bell })), 1);
}

/// A world with a page at [`VA`], from a capability with all rights at `S`, whose stores and loads are withheld.
fn withheld() -> (World, u64) {
    let mut world = World::extended(Recorder::leaked());
    let frame = world.frames(S, 1);
    let map = BindEntry::map(VA, frame, 1, CapSlot(S), BindFlags::WRITE);
    assert_eq!(world.bind(&[map]), (Status::Ok, 1));
    world.ok(call(WITHHOLD, VA, 0));
    (world, frame)
}

fn leaf(world: &World) -> Option<u64> {
    let tables = world.state.home_tables(world.first);
    world.state.program_page(tables, VA).map(|(_, leaf)| leaf & (entry::WRITE | entry::USER | entry::WITHHELD))
}

#[test]
fn a_fault_that_it_answers_is_nobody_elses() {
    let (mut world, _) = withheld();
    assert_eq!(leaf(&world), Some(entry::WITHHELD));
    assert!(world.state.machine.flushed.contains(&VA));
    world.frame[0].rip = 0x40_0000;
    world.exception(0, 14, VA + 8);
    assert_eq!((leaf(&world), world.frame[0].rip), (Some(entry::WRITE | entry::USER), 0x40_0000), "repeated");
    check(&world.state);
}

#[test]
fn a_right_that_is_withheld_is_no_right_that_was_taken_meanwhile() {
    // The library OS sets other rights: what was withheld is forgotten.
    let (mut world, _) = withheld();
    let protect = BindEntry::protect(VA, 1, CapSlot(S), BindFlags::empty());
    assert_eq!(world.bind(&[protect]), (Status::Ok, 1));
    assert_eq!(leaf(&world), Some(entry::USER));
    // Maps it anew.
    let (mut world, frame) = withheld();
    assert_eq!(world.bind(&[BindEntry::map(VA, frame, 1, CapSlot(S), BindFlags::empty())]), (Status::Ok, 1));
    assert_eq!(leaf(&world), Some(entry::USER));
}

#[test]
fn a_mapping_whose_right_is_withheld_goes_with_that_right() {
    let mut world = World::extended(Recorder::leaked());
    let frame = world.frames(S + 1, 1);
    let child = world.environment(S + 10, 50);
    for (target, rights) in [(5, Rights::READ), (6, Rights::READ | Rights::WRITE)] {
        let (source, rights) = (CapSlot(S + target), rights | Rights::GRANT);
        let derive = CapDerive { source: CapSlot(S + 1), target: source, rights: rights.bits(), offset: 0, count: 1 };
        world.ok(Call::CapDerive(derive));
        let (environment, target, rights) = (CapSlot(S + 10), CapSlot(target), rights.bits());
        world.ok(Call::CapGrant(CapGrant { source, environment, target, rights }));
    }
    let map = BindEntry::map(VA, frame, 1, CapSlot(S + 6), BindFlags::WRITE);
    assert_eq!(world.bind_in(CapSlot(S + 10), &[map]).0, Status::Ok);
    let tables = world.state.home_tables(child);
    let (place, word) = world.state.program_page(tables, VA).expect("it was mapped");
    assert!(world.state.change_leaf(place, word, (entry::WRITE, entry::WITHHELD)));
    check(&world.state);
    world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(S + 6) }));
    assert!(world.state.program_page(tables, VA).is_none(), "it could be made writable again");
    check(&world.state);
}

#[test]
fn only_memory_of_programs_is_shown() {
    let (world, _) = withheld();
    let tables = world.state.home_tables(world.first);
    for address in [VA + 0x1000, 0, super::world::CODE, 1 << 47, u64::MAX] {
        assert!(world.state.program_page(tables, address).is_none(), "{address:#x}");
    }
}
