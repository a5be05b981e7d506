//! Call 59, and what an extension is told and may ask.

use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

use aegis_abi::call::{
    BellCreate, BellTake, Call, CapDrop, DeviceControl, DeviceDmaBind, DeviceDmaUnbind, DeviceInterruptAsk,
    DeviceInterruptBind, DeviceMap, DevicePort, DeviceRead, ExtensionCall,
};
use aegis_abi::types::{CapSlot, FrameNumber, SLOT_DEVICE_FIRST, Status};

use super::world::{Fake, S, World};
use crate::State;
use crate::id::{DeviceId, EnvironmentId, Id};
use crate::machine::Extension;
use crate::object::DeviceDescription;

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

impl Extension<Fake> for Recorder {
    fn drives(&self, device: DeviceId, _: &DeviceDescription) -> bool {
        device.index() == 0
    }

    fn call(&self, state: &mut State<'_, Fake>, by: EnvironmentId, call: &ExtensionCall) -> Result<u64, Status> {
        self.0.lock().expect("no test panicked").push(("call", call.operation));
        match call.operation {
            REACHED => {
                let device = DeviceId::from_index(call.first as usize).ok_or(Status::BadArgument)?;
                let (FrameNumber(first), count) =
                    state.reached_frames(device, by, call.second as usize).ok_or(Status::WrongState)?;
                Ok(first << 16 | count)
            }
            sum => Ok(sum + call.first + call.second + call.third + call.fourth + call.fifth),
        }
    }

    fn stop(&self, state: &mut State<'_, Fake>, device: DeviceId) {
        assert_eq!(state.machine.enabled.last(), Some(&(device.index(), false)), "it is switched off before");
        self.0.lock().expect("no test panicked").push(("stop", device.index() as u64));
    }

    fn interrupt(&self, state: &mut State<'_, Fake>, device: DeviceId) {
        let rung: u64 = state.bells.iter().map(|(_, bell)| bell.count).sum();
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
