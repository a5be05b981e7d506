//! A binding lives as long as the capability that it was made with.

use aegis_abi::call::{
    BellCreate, BellRing, BellRingAt, BellTake, Call, CapDerive, CapDrop, CapGrant, CapRevoke, DeviceInterruptAsk,
    DeviceInterruptBind, EnvironmentWatch, GateCall, GateCreate, ProcessorState, Sleep,
};
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{CapSlot, Rights, SLOT_DEVICE_FIRST, SLOT_NONE, Status};
use aegis_abi::upcall::UpcallKind;

use super::world::{CODE, S, SCRATCH, World};

fn copy(source: u32, target: u32) -> Call {
    let (source, target) = (CapSlot(source), CapSlot(target));
    Call::CapDerive(CapDerive { source, target, rights: Rights::all().bits(), offset: 0, count: 0 })
}

fn drop(slot: u32) -> Call {
    Call::CapDrop(CapDrop { slot: CapSlot(slot) })
}

fn bell(slot: u32, processor: CapSlot) -> Call {
    Call::BellCreate(BellCreate { slot: CapSlot(slot), processor })
}

fn ring(slot: u32) -> Call {
    Call::BellRing(BellRing { slot: CapSlot(slot) })
}

fn take(slot: u32) -> Call {
    Call::BellTake(BellTake { slot: CapSlot(slot) })
}

#[test]
fn a_bell_makes_no_upcall_at_a_processor_whose_capability_is_gone() {
    let mut world = World::new();
    world.environment(S, 50);
    let processor = world.processor(S + 10, S);
    world.set_entry(processor, UpcallKind::Bell as usize, CODE + 0x100);
    world.ok(copy(S + 10, S + 30));
    world.ok(bell(S + 31, CapSlot(S + 30)));
    world.ok(bell(S + 32, CapSlot(S + 10)));
    world.ok(ring(S + 31));
    let bell_due = 1 << UpcallKind::Bell as u32;
    assert_ne!(world.state.processors[processor].due & bell_due, 0);
    world.state.processors[processor].due = 0;
    // Another capability for the processor is there, but the bell was not bound with that.
    world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(S + 10) }));
    world.ok(ring(S + 31));
    assert_eq!(world.state.processors[processor].due, 0);
    world.ok(ring(S + 32));
    assert_ne!(world.state.processors[processor].due & bell_due, 0);
}

#[test]
fn a_gate_leads_nowhere_without_its_processors_capability() {
    let mut world = World::new();
    world.ok(copy(aegis_abi::types::SLOT_FIRST_PROCESSOR.0, S));
    let gate = GateCreate { slot: CapSlot(S + 1), processor: CapSlot(S), rip: CODE, badge: 0 };
    world.ok(Call::GateCreate(gate));
    let call = Call::GateCall(GateCall { gate: CapSlot(S + 1) });
    assert_eq!(world.refused(call), Status::WrongState, "its own processor");
    world.ok(drop(S));
    assert_eq!(world.refused(call), Status::PeerGone);
}

#[test]
fn who_waits_for_a_bell_is_interrupted_when_it_may_not_any_more() {
    let mut world = World::new();
    world.environment(S, 50);
    let processor = world.processor(S + 10, S);
    let frame = world.frames(S + 20, 1);
    world.ok(bell(S + 30, SLOT_NONE));
    for (source, target) in [(S + 20, 6), (S + 30, 7)] {
        let (source, target) = (CapSlot(source), CapSlot(target));
        let rights = Rights::all().bits();
        world.ok(Call::CapGrant(CapGrant { source, environment: CapSlot(S), target, rights }));
    }
    let entry = aegis_abi::memory::BindEntry {
        operation: 0,
        flags: 1,
        virtual_address: SCRATCH,
        frame,
        page_count: 1,
        slot: S + 20,
    };
    assert_eq!(world.bind_in(CapSlot(S), &[entry]).0, Status::Ok);
    let term = Term {
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: 7,
        value: 1,
        ..Term::default()
    };
    let words = [u64::from(term.source) << 32, u64::from(term.operator) | u64::from(term.slot) << 32, 0, term.value];
    world.state.machine.memory[frame as usize][..4].copy_from_slice(&words);
    world.start(S + 10);
    world.kick(1);
    world.enter(1, Call::Sleep(Sleep { terms: SCRATCH, term_count: 1 }));
    assert_eq!(world.state.processors[processor].state(), ProcessorState::Asleep);
    world.ok(Call::CapRevoke(CapRevoke { slot: CapSlot(S + 30) }));
    world.kick(1);
    assert_eq!(world.current(1), Some(processor));
    assert_eq!(world.result(1).0, Status::Interrupted);
}

#[test]
fn a_deadline_goes_with_the_capability_that_set_it() {
    let mut world = World::new();
    world.ok(bell(S, SLOT_NONE));
    world.ok(copy(S, S + 1));
    let at = |slot: u32, deadline_ns: u64| Call::BellRingAt(BellRingAt { slot: CapSlot(slot), deadline_ns });
    world.ok(at(S + 1, 2_000_000));
    world.ok(drop(S + 1));
    world.state.machine.now_ns = 3_000_000;
    world.timer(0);
    assert_eq!(world.ok(take(S)), 0);
    world.ok(copy(S, S + 1));
    world.ok(at(S, 4_000_000));
    world.ok(drop(S + 1));
    world.state.machine.now_ns = 5_000_000;
    world.timer(0);
    assert_eq!(world.ok(take(S)), 1);
}

#[test]
fn an_interrupt_rings_no_bell_without_both_capabilities() {
    let mut world = World::new();
    let device = SLOT_DEVICE_FIRST.0;
    world.ok(bell(S, SLOT_NONE));
    for is_bell in [true, false] {
        world.ok(copy(S, S + 1));
        world.ok(copy(device, S + 2));
        let (slot, bell) = (CapSlot(S + 2), CapSlot(S + 1));
        world.ok(Call::DeviceInterruptBind(DeviceInterruptBind { slot, interrupt: 0, bell, cpu: 0 }));
        world.ok(Call::DeviceInterruptAsk(DeviceInterruptAsk { slot, interrupt: 0 }));
        assert_eq!(world.state.machine.unmasked, [(0, 0)]);
        world.ok(drop(if is_bell { S + 1 } else { S + 2 }));
        assert_eq!(world.state.machine.unmasked, []);
        world.interrupt(0, 0, 0);
        assert_eq!(world.ok(take(S)), 0);
        world.ok(drop(if is_bell { S + 2 } else { S + 1 }));
    }
}

#[test]
fn a_watch_goes_with_either_of_its_capabilities() {
    for is_bell in [true, false] {
        let mut world = World::new();
        let environment = world.environment(S, 50);
        world.ok(bell(S + 30, SLOT_NONE));
        world.ok(copy(S + 30, S + 31));
        world.ok(copy(S, S + 32));
        let (slot, bell) = (CapSlot(S + 32), CapSlot(S + 31));
        world.ok(Call::EnvironmentWatch(EnvironmentWatch { slot, bell }));
        world.ok(drop(if is_bell { S + 31 } else { S + 32 }));
        assert!(world.state.environments[environment].watch.is_none());
    }
}
