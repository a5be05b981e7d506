//! Sleeping and wakeup predicates.

use std::vec::Vec;

use aegis_abi::call::{
    BellAwait, BellCreate, BellRing, BellRingAt, Call, CapDerive, CapDrop, DeviceInterruptAsk, DeviceInterruptBind,
    FrameFree, ProcessorState, Sleep, Yield,
};
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{
    CapSlot, FrameNumber, Rights, SLOT_DEVICE_FIRST, SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF, Status,
};

use super::world::{S, SCRATCH, SLICE_NS, World};
use crate::object::WORD_POLL_NS;
use crate::object::{CheckedTerm, Source};

const BELL: u32 = S + 50;
const CLOCK_NS: u64 = 5_000_000;

fn word(product: u32, source: TermSource, operator: TermOperator, address: u64, value: u64) -> Term {
    Term { product, source: source as u32, operator: operator as u32, slot: S, address, value }
}

fn clock(product: u32, value: u64) -> Term {
    Term { product, source: TermSource::Clock as u32, operator: TermOperator::AtLeast as u32, value, ..Term::default() }
}

fn bell(product: u32, value: u64) -> Term {
    Term {
        product,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: BELL,
        value,
        ..Term::default()
    }
}

fn sleep(world: &mut World, terms: &[Term]) -> Call {
    world.write_terms(terms);
    Call::Sleep(Sleep { terms: SCRATCH, term_count: terms.len() as u32 })
}

/// A world with a frame in slot `S` and a bell.
fn world() -> (World, u64) {
    let mut world = World::new();
    let frame = world.frames(S, 2);
    world.ok(Call::BellCreate(BellCreate { slot: CapSlot(BELL), processor: SLOT_NONE }));
    (world, frame)
}

fn is_asleep(world: &World) -> bool {
    world.state.processors[world.first_processor].state() == ProcessorState::Asleep
}

#[test]
fn what_holds_already_ends_the_sleep_before_it_begins() {
    let (mut world, frame) = world();
    world.state.machine.memory[frame as usize][1] = 0x5_0000_0007;
    let cases = [
        (TermSource::Word32, TermOperator::Equal, 8, 7, true),
        (TermSource::Word32, TermOperator::Equal, 12, 5, true),
        (TermSource::Word32, TermOperator::NotEqual, 8, 7, false),
        (TermSource::Word64, TermOperator::Equal, 8, 0x5_0000_0007, true),
        (TermSource::Word64, TermOperator::AtLeast, 8, 0x5_0000_0008, false),
        (TermSource::Word64, TermOperator::Less, 8, 0x5_0000_0008, true),
    ];
    for (source, operator, offset, value, holds) in cases {
        let term = word(3, source, operator, (frame << 12) + offset, value);
        // The second product ends the sleep if the first does not.
        let call = sleep(&mut world, &[term, clock(9, 0)]);
        let product = if holds { 3 } else { 9 };
        assert_eq!(world.call(call), (Status::Ok, product), "{operator:?}");
    }
}

#[test]
fn all_terms_of_a_product_must_hold() {
    let (mut world, frame) = world();
    let zero = word(1, TermSource::Word64, TermOperator::Equal, frame << 12, 0);
    let call = sleep(&mut world, &[zero, clock(1, CLOCK_NS)]);
    let decision = world.enter(0, call);
    assert_eq!((decision.next, is_asleep(&world)), (None, true));
    world.state.machine.memory[frame as usize][0] = 1;
    world.state.machine.now_ns = CLOCK_NS;
    assert_eq!(world.timer(0).next, None);
    world.state.machine.memory[frame as usize][0] = 0;
    assert_eq!(world.timer(0).next, Some(world.first_processor), "words are looked at when idle");
    assert_eq!(world.result(0), (Status::Ok, 1));
}

#[test]
fn the_clock_sets_the_timer() {
    let (mut world, _) = world();
    let call = sleep(&mut world, &[clock(4, CLOCK_NS), clock(5, CLOCK_NS + 1)]);
    let decision = world.enter(0, call);
    assert_eq!((decision.next, decision.deadline_ns), (None, Some(CLOCK_NS)));
    world.state.machine.now_ns = CLOCK_NS - 1;
    assert_eq!(world.timer(0).deadline_ns, Some(CLOCK_NS));
    world.state.machine.now_ns = CLOCK_NS;
    assert_eq!(world.timer(0).next, Some(world.first_processor));
    assert_eq!(world.result(0), (Status::Ok, 4));
}

#[test]
fn an_idle_processor_looks_at_words_again_and_again() {
    let (mut world, frame) = world();
    let term = word(0, TermSource::Word32, TermOperator::NotEqual, frame << 12, 0);
    let call = sleep(&mut world, &[term]);
    let decision = world.enter(0, call);
    assert!(decision.deadline_ns.is_some_and(|ns| ns < 1_000_000));
    assert_eq!(world.state.frames.counts(aegis_abi::FrameNumber(frame)), (0, 1), "pinned while asleep");
    world.state.machine.memory[frame as usize][0] = 1 << 32;
    assert_eq!(world.timer(0).next, None);
    world.state.machine.memory[frame as usize][0] = 1;
    assert_eq!(world.timer(0).next, Some(world.first_processor));
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S) }));
}

#[test]
fn a_yield_looks_at_words_too() {
    let (mut world, frame) = world();
    let other = world.processor(S + 10, SLOT_SELF.0);
    world.start(S + 10);
    let term = word(3, TermSource::Word64, TermOperator::AtLeast, frame << 12, 1);
    let call = sleep(&mut world, &[term]);
    assert_eq!(world.enter(0, call).next, Some(other));
    let give_way = Call::Yield(Yield { processor: SLOT_NONE });
    assert_eq!(world.enter(0, give_way).next, Some(other));
    world.state.machine.memory[frame as usize][0] = 1;
    assert_eq!(world.enter(0, give_way).next, Some(world.first_processor));
    assert!(!is_asleep(&world));
    assert_eq!(world.result(0), (Status::Ok, 3));
}

#[test]
fn a_bell_wakes_who_waits_for_its_count() {
    let (mut world, _) = world();
    let other = world.processor(S + 10, SLOT_SELF.0);
    world.start(S + 10);
    let call = sleep(&mut world, &[bell(2, 2)]);
    let decision = world.enter(0, call);
    assert_eq!(decision.next, Some(other));
    let ring = Call::BellRing(BellRing { slot: CapSlot(BELL) });
    world.ok(ring);
    assert!(is_asleep(&world));
    world.ok(ring);
    assert!(!is_asleep(&world));
    assert_eq!(world.kick(1).next, Some(world.first_processor));
    assert_eq!(world.result(1), (Status::Ok, 2));
}

#[test]
fn an_upcall_interrupts_and_what_is_pending_keeps_awake() {
    let (mut world, _) = world();
    let other = world.processor(S + 10, SLOT_SELF.0);
    world.ok(Call::BellCreate(BellCreate { slot: CapSlot(S + 40), processor: SLOT_FIRST_PROCESSOR }));
    world.start(S + 10);
    let call = sleep(&mut world, &[]);
    assert_eq!(world.enter(0, call).next, Some(other));
    world.ok(Call::BellRing(BellRing { slot: CapSlot(S + 40) }));
    assert_eq!(world.kick(1).next, Some(world.first_processor));
    assert_eq!(world.result(1).0, Status::Interrupted);
    assert_eq!(world.call_on(1, call).0, Status::Interrupted, "still pending");
    world.set_masks(world.first_processor, 1, 0);
    assert_eq!(world.enter(1, call).next, None);
}

#[test]
fn losing_the_word_ends_the_sleep() {
    let (mut world, frame) = world();
    world.ok(Call::CapDerive(CapDerive {
        source: CapSlot(S),
        target: CapSlot(S + 1),
        rights: Rights::READ.bits(),
        offset: 0,
        count: 1,
    }));
    world.processor(S + 10, SLOT_SELF.0);
    world.start(S + 10);
    let mut term = word(0, TermSource::Word32, TermOperator::NotEqual, frame << 12, 0);
    term.slot = S + 1;
    let call = sleep(&mut world, &[term]);
    world.enter(0, call);
    assert!(is_asleep(&world));
    world.ok(Call::CapDrop(CapDrop { slot: CapSlot(S + 1) }));
    assert!(!is_asleep(&world));
    world.ok(Call::FrameFree(FrameFree { slot: CapSlot(S) }));
}

#[test]
fn every_bad_term_is_refused() {
    let (mut world, frame) = world();
    let good = word(0, TermSource::Word32, TermOperator::Equal, frame << 12, 1);
    let mut bad = |change: &dyn Fn(&mut Term)| {
        let mut term = good;
        change(&mut term);
        let call = sleep(&mut world, &[good, term]);
        let (status, value) = world.call(call);
        assert_eq!(value, 1, "the second term");
        status
    };
    assert_eq!(bad(&|t| t.source = 4), Status::BadArgument);
    assert_eq!(bad(&|t| t.operator = 4), Status::BadArgument);
    assert_eq!(bad(&|t| t.source = TermSource::Clock as u32), Status::BadArgument);
    assert_eq!(bad(&|t| t.address += 2), Status::BadAddress);
    assert_eq!(bad(&|t| t.address -= 4), Status::BadAddress);
    assert_eq!(bad(&|t| t.address = u64::MAX - 3), Status::BadAddress);
    assert_eq!(bad(&|t| t.slot = 0), Status::BadSlot);
    assert_eq!(bad(&|t| t.slot = BELL), Status::WrongType);
    let mut raw = |terms: u64, term_count: u32| world.call(Call::Sleep(Sleep { terms, term_count }));
    assert_eq!(raw(SCRATCH, 33), (Status::BadArgument, 1));
    assert_eq!(raw(SCRATCH + 4, 1).0, Status::BadAddress);
    assert_eq!(raw(0x40_0000, 1).0, Status::BadAddress);
    assert_eq!(raw(u64::MAX, 1).0, Status::BadAddress);
}

#[test]
fn a_time_that_came_while_somebody_else_woke_is_not_missed() {
    let (mut world, _) = world();
    let other = world.processor(S + 10, SLOT_SELF.0);
    let third = world.processor(S + 20, SLOT_SELF.0);
    world.start(S + 10);
    world.start(S + 20);
    let call = sleep(&mut world, &[clock(1, CLOCK_NS)]);
    // Whichever of them wins the draw.
    let second = world.enter(0, call).next;
    assert!(second == Some(other) || second == Some(third));
    let call = sleep(&mut world, &[bell(2, 1), clock(3, 2 * CLOCK_NS)]);
    assert_ne!(world.enter(0, call).next, second);
    // The time comes, but before the timer fires a bell wakes the other one.
    world.state.machine.now_ns = CLOCK_NS + 1;
    world.ok(Call::BellRing(BellRing { slot: CapSlot(BELL) }));
    let decision = world.kick(0);
    assert!(decision.deadline_ns.is_some_and(|ns| ns <= CLOCK_NS + 1));
    world.timer(0);
    assert!(!is_asleep(&world));
}

/// Sleepers with many terms: no scheduling decision looks at many of them, none starves, and they pay.
#[test]
fn words_of_many_sleepers_are_looked_at_in_turn() {
    let (mut world, frame) = world();
    world.check_after_entry = false;
    let slots = (0..8).map(|index| S + 100 + 2 * index);
    let sleepers: Vec<_> = slots.map(|slot| world.processor(slot, SLOT_SELF.0)).collect();
    let source = |word_index| Source::Word { frame: FrameNumber(frame), word_index, shift: 0, mask: u64::MAX };
    for (number, sleeper) in (0..).zip(&sleepers) {
        for index in 0..32 {
            // Products stand mixed: each is put together.
            let (product, operator) = (index % 4, TermOperator::Equal);
            let term = CheckedTerm { product, source: source(number), operator, value: 1 };
            assert!(world.state.processors[*sleeper].predicate.push(term));
        }
        let full = CheckedTerm { product: 0, source: source(0), operator: TermOperator::Equal, value: 1 };
        assert!(!world.state.processors[*sleeper].predicate.push(full), "32 are all");
        let products: Vec<_> = world.state.processors[*sleeper].predicate.terms().map(|term| term.product).collect();
        assert!(products.is_sorted());
        assert!(world.state.begin_sleep(*sleeper));
    }
    let order = |world: &World| world.state.sleepers.all(&world.state.links);
    let mut now_ns = 10 * WORD_POLL_NS;
    world.state.wake_for_words(now_ns);
    let (before, unpaid_ns) = (order(&world), world.state.processors[sleepers[0]].funding.unpaid_ns);
    assert!(unpaid_ns > super::world::SLICE_NS, "the look was charged");
    for _ in 0..100 {
        now_ns += 1;
        world.state.wake_for_words(now_ns);
    }
    assert_eq!(order(&world), before, "none of that size is looked at so often");
    assert_eq!(world.state.processors[sleepers[0]].funding.unpaid_ns, unpaid_ns);
    // Those with few terms are, at every decision; and whatever holds is found within a few long looks.
    world.state.machine.memory[frame as usize][5] = 1;
    now_ns += WORD_POLL_NS;
    world.state.wake_for_words(now_ns);
    assert_eq!(world.state.processors[sleepers[5]].state(), ProcessorState::Ready);
    assert_eq!(world.state.sleepers.count_for_words(), 7);
}

#[test]
fn a_bell_is_awaited_and_its_count_taken() {
    for (at_once, has_other) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut world, _) = world();
        world.transfers_at_once = at_once;
        let wait = Call::BellAwait(BellAwait { slot: CapSlot(BELL) });
        for _ in 0..3 {
            world.ok(Call::BellRing(BellRing { slot: CapSlot(BELL) }));
        }
        assert_eq!(world.call(wait), (Status::Ok, 3), "it was rung already");
        if has_other {
            world.environment(S + 10, 20);
            world.processor(S + 12, S + 10);
            world.start(S + 12);
        }
        world.ok(Call::BellRingAt(BellRingAt { slot: CapSlot(BELL), deadline_ns: CLOCK_NS }));
        let decision = world.enter(0, wait);
        assert_eq!((decision.next.is_some(), is_asleep(&world)), (has_other, true));
        world.state.machine.now_ns = CLOCK_NS;
        world.timer(0);
        assert!(!is_asleep(&world));
        if world.current(0) != Some(world.first_processor) {
            world.enter(0, Call::Yield(Yield { processor: SLOT_NONE }));
        }
        assert_eq!(world.current(0), Some(world.first_processor));
        assert_eq!(world.result(0), (Status::Ok, 1), "the count came with it");
        let late = Call::BellRingAt(BellRingAt { slot: CapSlot(BELL), deadline_ns: 0 });
        world.ok(late);
        assert_eq!(world.call(wait), (Status::Ok, 1));
        assert_eq!(world.refused(Call::BellAwait(BellAwait { slot: CapSlot(S) })), Status::WrongType);
        world.set_masks(world.first_processor, 1, 1 << aegis_abi::upcall::UpcallKind::Bell as u32);
        assert_eq!(world.refused(wait), Status::Interrupted);
    }
}

/// However many bells the clock rings at once, sleepers are looked at once, and those that wait for such bells pay for
/// that.
#[test]
fn bells_that_ring_at_once_cost_one_look_at_sleepers() {
    const COUNT: u32 = 24;
    let never = Some(clock(0, u64::MAX));
    // A sleeper is woken by its sleep's terms, by an upcall, or not at all.
    for (also, last, wakes) in [(None, SLOT_NONE, true), (never, SLOT_FIRST_PROCESSOR, true), (never, SLOT_NONE, false)]
    {
        let (mut world, _) = world();
        world.environment(S + 10, 20);
        let other = world.processor(S + 12, S + 10);
        world.start(S + 12);
        let slots = BELL + 1..=BELL + COUNT;
        for slot in slots.clone().map(CapSlot) {
            let processor = if slot.0 == BELL + COUNT { last } else { SLOT_NONE };
            world.ok(Call::BellCreate(BellCreate { slot, processor }));
            world.ok(Call::BellRingAt(BellRingAt { slot, deadline_ns: CLOCK_NS }));
        }
        let terms: Vec<Term> = slots.map(|slot| Term { slot, ..bell(0, 1) }).chain(also).collect();
        let call = sleep(&mut world, &terms);
        world.enter(0, call);
        assert!(is_asleep(&world) && world.current(0) == Some(other));
        let environment = world.first;
        world.state.environments[environment].debt_ns = 0;
        world.state.machine.now_ns = CLOCK_NS;
        world.state.machine.clock_looks.set(0);
        world.state.machine.look_ns = 1000;
        world.timer(0);
        assert_eq!(is_asleep(&world), !wakes);
        assert!(world.state.machine.clock_looks.get() < u64::from(COUNT), "one look for each bell");
        let funding = &world.state.processors[world.first_processor].funding;
        assert!(world.state.environments[environment].debt_ns + funding.unpaid_ns >= 1000, "it pays");
    }
}

/// A timer that fires at once would be a second interrupt for each of a device.
#[test]
fn one_that_wakes_on_an_idle_processor_is_not_drawn_for_by_the_clock() {
    let mut world = World::new();
    let (slot, bell) = (SLOT_DEVICE_FIRST, CapSlot(S));
    world.ok(Call::BellCreate(BellCreate { slot: bell, processor: SLOT_NONE }));
    world.ok(Call::DeviceInterruptBind(DeviceInterruptBind { slot, interrupt: 0, bell, cpu: 0 }));
    for _ in 0..4 {
        world.ok(Call::DeviceInterruptAsk(DeviceInterruptAsk { slot, interrupt: 0 }));
        let asleep = world.enter(0, Call::BellAwait(BellAwait { slot: bell }));
        assert_eq!(asleep.next, None);
        world.state.machine.now_ns += 3 * SLICE_NS;
        let now_ns = world.state.machine.now_ns;
        let woken = world.interrupt(0, 0, 0);
        assert_eq!(woken.next, Some(world.first_processor));
        let deadline_ns = woken.deadline_ns.unwrap_or(u64::MAX);
        assert!(deadline_ns > now_ns, "the clock is set to {deadline_ns} at {now_ns}");
    }
}
