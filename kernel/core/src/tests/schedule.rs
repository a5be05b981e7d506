//! Slices, their ends, yields, and several physical processors.

use aegis_abi::call::{
    Call, EnvironmentField, EnvironmentRead, ProcessorField, ProcessorRead, ProcessorState, ProcessorStop, Sleep,
    StopReason, Yield,
};
use aegis_abi::sleep::TermOperator;
use aegis_abi::types::{CapSlot, SLOT_NONE, Status};
use aegis_abi::upcall::{SLICE_END_LIMIT_NS, SLICE_END_MISS_COUNT_MAX, UpcallKind};

use super::world::{CODE, S, SLICE_NS, World, cpu};
use crate::id::ProcessorId;
use crate::object::{CheckedTerm, Source, control_word};

const ENTRY: u64 = CODE + 0x300;
const SLICE_BEGIN: usize = UpcallKind::SliceBegin as usize;
const SLICE_END: usize = UpcallKind::SliceEnd as usize;
const CHILD: u32 = S + 10;

/// The first processor runs, one of a child environment is ready.
fn two() -> (World, ProcessorId) {
    let mut world = World::new();
    world.environment(S, 50);
    let processor = world.processor(CHILD, S);
    world.start(CHILD);
    (world, processor)
}

fn yield_to(slot: u32) -> Call {
    Call::Yield(Yield { processor: CapSlot(slot) })
}

/// Lets slices end until somebody wins the draw.
fn slices_until(world: &mut World, winner: ProcessorId) -> crate::Decision {
    for _ in 0..64 {
        world.state.machine.now_ns += SLICE_NS;
        let decision = world.timer(0);
        if world.current(0) == Some(winner) {
            return decision;
        }
    }
    panic!("{winner:?} never wins");
}

fn read(field: ProcessorField) -> Call {
    Call::ProcessorRead(ProcessorRead { slot: CapSlot(CHILD), field: field as u32 })
}

#[test]
fn alone_the_slice_goes_on_without_an_upcall() {
    let mut world = World::new();
    world.set_entry(world.first_processor, SLICE_END, ENTRY);
    let before = world.frame[0];
    world.state.machine.now_ns += SLICE_NS;
    let decision = world.timer(0);
    assert_eq!(decision.next, Some(world.first_processor));
    assert_eq!(world.frame[0], before);
    assert_eq!(decision.deadline_ns, Some(world.state.machine.now_ns + SLICE_NS));
}

#[test]
fn without_a_slice_end_entry_the_processor_is_taken_away() {
    let (mut world, child) = two();
    world.frame[0].rbx = 5;
    let before = world.frame[0];
    let decision = slices_until(&mut world, child);
    assert_eq!((decision.previous, decision.next), (Some(world.first_processor), Some(child)));
    assert_eq!((world.frame[0].rip, world.frame[0].rdi), (CODE, 7));
    let first = world.first_processor;
    slices_until(&mut world, first);
    assert_eq!(world.frame[0], before);
    assert_eq!(world.masks(world.first_processor).1, 1 << SLICE_BEGIN, "told when it looks");
}

/// What the first processor is told of the time that it lost.
fn preempted_ns(world: &World) -> u64 {
    let control = world.state.processors[world.first_processor].pages.first_frame;
    world.state.machine.memory[control as usize][control_word!(preempted_ns)]
}

#[test]
fn the_time_that_others_had_is_counted_and_a_wait_is_not() {
    let (mut world, child) = two();
    let first = world.first_processor;
    assert_eq!(preempted_ns(&world), 0);
    // The child's whole turn is what the first one lost, and what the child lost is the first one's before.
    slices_until(&mut world, child);
    let since_ns = world.state.machine.now_ns;
    slices_until(&mut world, first);
    let lost_ns = world.state.machine.now_ns - since_ns;
    assert_eq!(preempted_ns(&world), lost_ns);
    // A sleep is no such time, though others run meanwhile.
    let woken_ns = world.state.machine.now_ns + 10 * SLICE_NS;
    let clock = CheckedTerm { product: 0, source: Source::Clock, operator: TermOperator::AtLeast, value: woken_ns };
    world.state.processors[first].predicate.push(clock);
    world.enter(0, Call::Sleep(Sleep { terms: 0, term_count: 0 }));
    assert_eq!(world.current(0), Some(child));
    world.state.machine.now_ns = woken_ns;
    world.timer(0);
    slices_until(&mut world, first);
    let waited_ns = preempted_ns(&world) - lost_ns;
    assert!(waited_ns <= world.state.machine.now_ns - woken_ns, "{waited_ns}");
}

#[test]
fn a_slice_end_upcall_yields_and_a_slice_begin_upcall_comes_back() {
    let (mut world, child) = two();
    world.set_entry(world.first_processor, SLICE_END, ENTRY);
    world.set_entry(world.first_processor, SLICE_BEGIN, ENTRY + 8);
    world.state.machine.now_ns += SLICE_NS;
    let decision = world.timer(0);
    assert_eq!(decision.next, Some(world.first_processor));
    assert_eq!(world.frame[0].rip, ENTRY);
    assert_eq!(decision.deadline_ns, Some(world.state.machine.now_ns + SLICE_END_LIMIT_NS));
    world.set_masks(world.first_processor, 0, 0);
    // The slice is over: a draw, which the one that yields can win.
    while world.enter(0, yield_to(0)).next != Some(child) {
        world.state.machine.now_ns += SLICE_NS;
        world.timer(0);
        world.set_masks(world.first_processor, 0, 0);
    }
    let first = world.first_processor;
    slices_until(&mut world, first);
    assert_eq!(world.frame[0].rip, ENTRY + 8);
    assert_eq!(world.current(0), Some(world.first_processor));
}

#[test]
fn who_overruns_its_slice_end_is_stopped() {
    for masked in [0, 1] {
        let (mut world, child) = two();
        world.set_entry(child, SLICE_END, ENTRY);
        world.set_masks(child, masked, 0);
        world.enter(0, yield_to(CHILD));
        assert_eq!(world.current(0), Some(child));
        // A directed yield gives the rest of the slice, not a new one.
        world.state.machine.now_ns += SLICE_NS;
        world.timer(0);
        assert_eq!(world.current(0), Some(child));
        let is_pending = world.masks(child).1 & 1 << SLICE_END != 0;
        assert_eq!(is_pending, masked == 1);
        // Each miss but the last is charged and forgiven.
        for _ in 1..SLICE_END_MISS_COUNT_MAX {
            world.state.machine.now_ns += SLICE_END_LIMIT_NS + 100;
            let decision = world.timer(0);
            assert_eq!(decision.next, Some(child));
            assert_eq!(decision.deadline_ns, Some(world.state.machine.now_ns + SLICE_END_LIMIT_NS));
        }
        world.state.machine.now_ns += SLICE_END_LIMIT_NS + 100;
        let decision = world.timer(0);
        assert_eq!(decision.next, Some(world.first_processor));
        let environment = world.state.processors[child].environment_id();
        let report = world.state.environments[environment].stop;
        assert_eq!(report.reason, StopReason::SliceOverrun);
        assert_eq!(world.ok(read(ProcessorField::OverrunNs)), 100 * u64::from(SLICE_END_MISS_COUNT_MAX));
        assert_eq!(world.ok(read(ProcessorField::State)), ProcessorState::Stopped as u64);
    }
}

#[test]
fn yielding_to_nobody_comes_straight_back() {
    let mut world = World::new();
    assert_eq!(world.call(yield_to(0)), (Status::Ok, 0));
    assert_eq!(world.call(yield_to(2)), (Status::WrongState, 0), "it runs");
    assert_eq!(world.call(yield_to(1)), (Status::WrongType, 0));
    assert_eq!(world.call(yield_to(77)), (Status::BadSlot, 0));
    assert_eq!(SLOT_NONE, CapSlot(0));
}

#[test]
fn an_idle_processor_is_woken_and_time_is_charged() {
    let mut world = World::new();
    assert_eq!(world.kick(1).next, None);
    world.environment(S, 50);
    let child = world.processor(CHILD, S);
    world.start(CHILD);
    assert_eq!(world.state.machine.kicked.len(), 1);
    assert_eq!(world.kick(1).next, Some(child));
    world.state.machine.now_ns += 1234;
    assert_eq!(world.ok(read(ProcessorField::TimeUsedNs)), 1234);
    assert_eq!(world.ok(read(ProcessorField::Slices)), 1);
    assert_eq!(world.ok(read(ProcessorField::State)), ProcessorState::Running as u64);
    let (status, value) = world.call(Call::ProcessorRead(ProcessorRead { slot: CapSlot(CHILD), field: 5 }));
    assert_eq!((status, value), (Status::BadArgument, 1));
}

#[test]
fn time_of_an_environment_is_that_of_its_processors() {
    let (mut world, child) = two();
    let of_all =
        Call::EnvironmentRead(EnvironmentRead { slot: CapSlot(S), field: EnvironmentField::TimeUsedNs as u32 });
    assert_eq!(world.ok(of_all), 0);
    assert_eq!(world.kick(1).next, Some(child));
    world.state.machine.now_ns += 1234;
    assert_eq!(world.ok(of_all), 1234);
    let slot = CapSlot(CHILD);
    world.ok(Call::ProcessorStop(ProcessorStop { slot }));
    world.kick(1);
    assert_eq!(world.ok(of_all), 1234);
    world.ok(Call::ProcessorDestroy(aegis_abi::call::ProcessorDestroy { slot }));
    assert_eq!(world.ok(of_all), 1234, "also when the processor is gone");
}

#[test]
fn a_processor_that_is_stopped_elsewhere_leaves_first() {
    let (mut world, child) = two();
    assert_eq!(world.kick(1).next, Some(child));
    let slot = CapSlot(CHILD);
    world.ok(Call::ProcessorStop(ProcessorStop { slot }));
    assert!(!world.state.machine.kicked.is_empty());
    let start = Call::ProcessorStart(aegis_abi::call::ProcessorStart { slot, rip: CODE, rsp: 0, argument: 0 });
    let destroy = Call::ProcessorDestroy(aegis_abi::call::ProcessorDestroy { slot });
    assert_eq!(world.refused(start), Status::Again);
    assert_eq!(world.refused(destroy), Status::Again);
    // What it asks for on its way out counts for nothing.
    let before = world.state.frames.free_count();
    world.frame[1].rax = 6;
    let decision = world.enter_raw(1, 6, [90, 5, u64::MAX, 0, 0, 0]);
    assert_eq!((decision.previous, decision.next), (Some(child), None));
    assert_eq!(world.state.frames.free_count(), before);
    world.ok(destroy);
    assert_eq!(world.refused(start), Status::BadSlot);
}

#[test]
fn the_last_one_to_stop_leaves_the_machine_idle() {
    let mut world = World::new();
    let slot = CapSlot(2);
    let decision = world.enter(0, Call::ProcessorStop(ProcessorStop { slot }));
    // The timer fires once more, then never.
    assert_eq!((decision.next, decision.deadline_ns), (None, None));
    let decision = world.timer(0);
    assert_eq!((decision.next, decision.deadline_ns), (None, Some(u64::MAX)));
}

#[test]
fn the_timer_is_set_only_to_fire_sooner() {
    let (mut world, child) = two();
    let armed_ns = world.state.cpus[cpu(0)].armed_ns;
    world.state.machine.now_ns += 1000;
    let decision = world.enter(0, Call::Yield(Yield { processor: SLOT_NONE }));
    assert_eq!((decision.next, decision.deadline_ns), (Some(child), None));
    assert_eq!(world.state.cpus[cpu(0)].slice_end_ns, armed_ns, "the rest of a slice ends when the slice does");
    world.state.stop_processor(child);
    let decision = world.kick(0);
    // The next slice ends later than the timer fires; then it is set anew.
    assert_eq!(decision.next, Some(world.first_processor));
    assert!(world.state.cpus[cpu(0)].slice_end_ns > armed_ns);
    assert_eq!(world.timer(0).deadline_ns, Some(world.state.cpus[cpu(0)].slice_end_ns));
}
