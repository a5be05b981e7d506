//! Protected control transfer.

use aegis_abi::call::{
    Call, CapGrant, GateCall, GateCreate, GateReply, GateSend, ProcessorState, ProcessorStop, Yield,
};
use aegis_abi::layout::LIBOS_END;
use aegis_abi::types::{CapSlot, Rights, SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF, Status};
use aegis_abi::upcall::{SLICE_END_LIMIT_NS, UpcallFrame, UpcallKind};
use aegis_lottery::random::{Keyed, Random};

use super::world::{CODE, S, SLICE_NS, World};
use crate::id::ProcessorId;

const SERVER: u32 = S + 10;
const OTHER: u32 = S + 20;
const GATE: u32 = S + 30;
const BADGE: u64 = 0xbadc;

fn create(processor: u32, slot: u32) -> Call {
    Call::GateCreate(GateCreate { slot: CapSlot(slot), processor: CapSlot(processor), rip: CODE + 0x400, badge: BADGE })
}

fn call(slot: u32) -> Call {
    Call::GateCall(GateCall { gate: CapSlot(slot) })
}

fn send(slot: u32) -> Call {
    Call::GateSend(GateSend { gate: CapSlot(slot) })
}

fn reply() -> Call {
    Call::GateReply(GateReply {})
}

/// A second processor of the first environment that accepts calls through `GATE`.
fn server() -> (World, ProcessorId) {
    let mut world = World::new();
    let server = world.processor(SERVER, SLOT_SELF.0);
    world.start(SERVER);
    world.ok(create(SERVER, GATE));
    let yield_to = Call::Yield(aegis_abi::call::Yield { processor: CapSlot(SERVER) });
    assert_eq!(world.enter(0, yield_to).next, Some(server));
    assert_eq!(world.enter(0, reply()).next, Some(world.first_processor));
    assert_eq!(world.state.processors[server].state(), ProcessorState::Accepting);
    (world, server)
}

#[test]
fn a_call_carries_registers_and_the_slice_there_and_back() {
    let (mut world, server) = server();
    let slice_end = world.state.cpus[super::world::cpu(0)].slice_end_ns;
    world.frame[0].rbx = 1;
    world.frame[0].r15 = 2;
    world.frame[0].rsp = 0x5000;
    let words = [u64::from(GATE), 11, 12, 13, 14, 15];
    let decision = world.enter_raw(0, GateCall::NUMBER, words);
    // The slice ends when it would have ended: the timer stays as it is.
    assert_eq!((decision.next, decision.deadline_ns), (Some(server), None));
    let frame = world.frame[0];
    assert_eq!((frame.rip, frame.rdi), (CODE + 0x400, BADGE));
    assert_eq!((frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9), (11, 12, 13, 14, 15));
    assert_eq!((frame.rbx, frame.r15), (1, 2));
    assert_eq!(frame.rsp, world.state.processors[server].pages.save_area_top());
    assert_eq!(world.state.cpus[super::world::cpu(0)].slice_end_ns, slice_end);
    world.frame[0].rbx = 100;
    let decision = world.enter_raw(0, GateReply::NUMBER, [0, 21, 22, 23, 24, 25]);
    assert_eq!(decision.next, Some(world.first_processor));
    let frame = world.frame[0];
    assert_eq!((frame.rax, frame.rsi, frame.rdx, frame.r9), (0, 21, 22, 25));
    assert_eq!((frame.rbx, frame.rsp, frame.r15), (100, 0x5000, 2));
    assert_eq!(world.state.processors[server].state(), ProcessorState::Accepting);
}

#[test]
fn callers_queue_in_order() {
    let (mut world, server) = server();
    let other = world.processor(OTHER, SLOT_SELF.0);
    world.start(OTHER);
    assert_eq!(world.enter(0, call(GATE)).next, Some(server));
    assert_eq!(world.kick(1).next, Some(other));
    // The server is busy with the first call.
    assert_eq!(world.enter(1, send(GATE)).next, Some(other));
    assert_eq!(world.result(1).0, Status::PeerBusy);
    assert_eq!(world.enter(1, call(GATE)).next, None);
    assert_eq!(world.state.processors[other].state(), ProcessorState::Calling);
    // The reply goes back at once; the server is ready for the next call.
    assert_eq!(world.enter(0, reply()).next, Some(world.first_processor));
    assert_eq!(world.kick(1).next, Some(server));
    assert_eq!(world.frame[1].rdi, BADGE);
    assert_eq!(world.enter(1, reply()).next, Some(other));
    assert_eq!(world.result(1).0, Status::Ok);
}

#[test]
fn calls_nest_through_several_servers_and_cycles_are_refused() {
    let (mut world, server) = server();
    let other = world.processor(OTHER, SLOT_SELF.0);
    world.ok(create(OTHER, GATE + 1));
    world.ok(create(SLOT_FIRST_PROCESSOR.0, GATE + 2));
    world.start(OTHER);
    assert_eq!(world.kick(1).next, Some(other));
    assert_eq!(world.enter(1, reply()).next, None);
    assert_eq!(world.enter(0, call(GATE + 2)).next, Some(world.first_processor));
    assert_eq!(world.result(0).0, Status::WrongState, "itself");
    assert_eq!(world.enter(0, call(GATE)).next, Some(server));
    assert_eq!(world.enter(0, call(GATE + 1)).next, Some(other));
    assert_eq!(world.enter(0, call(GATE + 2)).next, Some(other));
    assert_eq!(world.result(0).0, Status::PeerBusy, "it waits for us");
    assert_eq!(world.enter(0, call(GATE)).next, Some(other));
    assert_eq!(world.result(0).0, Status::PeerBusy);
    assert_eq!(world.enter(0, reply()).next, Some(server));
    assert_eq!(world.enter(0, reply()).next, Some(world.first_processor));
}

#[test]
fn a_send_gives_the_slice_away_and_expects_nothing() {
    let (mut world, server) = server();
    assert_eq!(world.enter(0, send(GATE)).next, Some(server));
    assert_eq!(world.frame[0].rdi, BADGE);
    assert_eq!(world.enter(0, reply()).next, Some(world.first_processor));
    assert_eq!(world.result(0), (Status::Ok, 0));
}

#[test]
fn a_callee_that_ends_answers_with_peer_gone() {
    let (mut world, server) = server();
    let other = world.processor(OTHER, SLOT_SELF.0);
    world.start(OTHER);
    assert_eq!(world.enter(0, call(GATE)).next, Some(server));
    world.kick(1);
    assert_eq!(world.enter(1, call(GATE)).next, None);
    let stop = Call::ProcessorStop(ProcessorStop { slot: CapSlot(SERVER) });
    // Both of them, in the order of the draw.
    let first = world.first_processor;
    let next = world.enter(0, stop).next;
    assert!(next == Some(first) || next == Some(other));
    assert_eq!(world.result(0).0, Status::PeerGone);
    assert_eq!(world.kick(1).next, if next == Some(first) { Some(other) } else { Some(first) });
    assert_eq!(world.result(1).0, Status::PeerGone);
    assert_eq!(world.refused(call(GATE)), Status::PeerGone);
    assert_eq!(world.refused(send(GATE)), Status::PeerGone);
}

#[test]
fn a_caller_that_ends_is_forgotten() {
    let (mut world, server) = server();
    assert_eq!(world.enter(0, call(GATE)).next, Some(server));
    let stop = Call::ProcessorStop(ProcessorStop { slot: SLOT_FIRST_PROCESSOR });
    assert_eq!(world.call(stop).0, Status::Ok);
    assert_eq!(world.enter(0, reply()).next, None);
    assert_eq!(world.state.processors[server].state(), ProcessorState::Accepting);
}

#[test]
fn a_bell_interrupts_who_waits_for_calls() {
    let (mut world, server) = server();
    world.ok(Call::BellCreate(aegis_abi::call::BellCreate { slot: CapSlot(S + 40), processor: CapSlot(SERVER) }));
    world.ok(Call::BellRing(aegis_abi::call::BellRing { slot: CapSlot(S + 40) }));
    assert_eq!(world.kick(1).next, Some(server));
    assert_eq!(world.result(1).0, Status::Interrupted);
    // A bell that is still pending keeps it from waiting.
    assert_eq!(world.enter(1, reply()).next, Some(server));
    assert_eq!(world.result(1).0, Status::Interrupted);
    world.set_masks(server, 0, 0);
    assert_eq!(world.enter(1, reply()).next, None);
}

#[test]
fn a_slice_that_is_over_cannot_be_passed_on() {
    let (mut world, server) = server();
    let other = world.processor(OTHER, SLOT_SELF.0);
    world.start(OTHER);
    let end = UpcallKind::SliceEnd as usize;
    world.set_entry(world.first_processor, end, CODE + 0x500);
    world.state.machine.now_ns += SLICE_NS;
    world.timer(0);
    assert_eq!(world.current(0), Some(world.first_processor));
    let next = world.enter(0, call(GATE)).next;
    assert!(next == Some(other) || next == Some(server), "a draw decides");
    assert_eq!(world.state.cpus[super::world::cpu(0)].slice_end_ns, world.state.machine.now_ns + SLICE_NS);
    world.state.machine.now_ns += SLICE_END_LIMIT_NS;
    world.timer(0);
    assert_eq!(world.current(0), next, "nobody overran");
    let waits = if next == Some(other) { server } else { other };
    assert_eq!(world.state.processors[waits].state(), ProcessorState::Ready);
}

#[test]
fn gates_are_checked_when_they_are_made_and_used() {
    let mut world = World::new();
    world.environment(S, 50);
    world.processor(SERVER, S);
    assert_eq!(world.call(create(SERVER, GATE)), (Status::BadArgument, 1), "another's");
    let gate = |rip: u64, slot: u32| {
        Call::GateCreate(GateCreate { slot: CapSlot(slot), processor: SLOT_FIRST_PROCESSOR, rip, badge: 0 })
    };
    assert_eq!(world.call(gate(0x40_0000, GATE)), (Status::BadArgument, 2));
    assert_eq!(world.call(gate(LIBOS_END, GATE)), (Status::BadArgument, 2));
    assert_eq!(world.refused(gate(CODE, 1)), Status::SlotInUse);
    // A sixteenth is the other environment's.
    for slot in 0..240 {
        world.ok(gate(CODE, GATE + slot));
    }
    assert_eq!(world.refused(gate(CODE, GATE + 240)), Status::TableFull);
    assert_eq!(world.refused(call(1)), Status::WrongType);
    assert_eq!(world.refused(call(0)), Status::BadSlot);
    world.ok(Call::CapGrant(CapGrant {
        source: CapSlot(GATE),
        environment: SLOT_SELF,
        target: CapSlot(GATE + 260),
        rights: Rights::GRANT.bits(),
    }));
    assert_eq!(world.refused(call(GATE + 260)), Status::MissingRight);
    // The gate ends with its original.
    world.ok(Call::CapRevoke(aegis_abi::call::CapRevoke { slot: CapSlot(GATE) }));
    world.ok(Call::CapDrop(aegis_abi::call::CapDrop { slot: CapSlot(GATE) }));
    assert_eq!(world.state.gates.iter().filter(|(_, g)| g.serial != 0).count(), 239);
}

/// Two worlds get the same entries; in one of them nothing is handed over at once. What each processor sees, where it
/// is, and what is pending for it, is the same after every entry.
#[test]
fn what_is_handed_over_at_once_goes_as_if_it_were_not() {
    let visible = |frame: &UpcallFrame| UpcallFrame { rcx: 0, r11: 0, ..*frame };
    for seed in 20..28 {
        let mut random = Keyed::new([seed, 5]);
        let ((at_once, server), (mut step_by_step, _)) = (self::server(), self::server());
        step_by_step.transfers_at_once = false;
        let mut worlds = [at_once, step_by_step];
        for world in &mut worlds {
            let other = world.processor(OTHER, SLOT_SELF.0);
            world.ok(create(OTHER, GATE + 1));
            world.start(OTHER);
            assert!(world.current(0).is_some() && other != server);
            world.check_after_entry = false;
        }
        for _ in 0..300 {
            let slots = [SLOT_FIRST_PROCESSOR.0, SERVER, OTHER, SLOT_NONE.0, SLOT_NONE.0, 7, GATE];
            let mut pick = |slots: &[u32]| u64::from(slots[random.below(slots.len() as u64) as usize]);
            let (number, argument) = match pick(&[0, 1, 2, 3, 4]) {
                0 => (GateCall::NUMBER, pick(&[GATE, GATE + 1, GATE + 2])),
                1 | 2 => (GateReply::NUMBER, 0),
                _ => (Yield::NUMBER, pick(&slots)),
            };
            let (kind, value) = (pick(&[0, 1, 2, 3, 4, 5, 6, 7]), pick(&[0, 1, 2, 3]));
            let words = [argument, pick(&[1, 2]), pick(&[3, 4]), pick(&[5, 6]), pick(&[7, 8]), pick(&[9, 10])];
            let (registers, wait_ns) = (pick(&[11, 12]), pick(&[0, 1000, 1_000_000, 12_000_000]));
            for world in &mut worlds {
                let ids = [world.first_processor, server];
                let target = ids[value as usize % 2];
                world.state.machine.now_ns += wait_ns;
                match kind {
                    0 => world.set_entry(target, UpcallKind::SliceBegin as usize, if value < 2 { CODE } else { 0 }),
                    1 => world.set_masks(target, value as u32 % 2, world.masks(target).1),
                    2 if wait_ns > 1_000_000 => drop(world.timer(0)),
                    _ => {}
                }
                if world.current(0).is_some() {
                    (world.frame[0].rbx, world.frame[0].rbp, world.frame[0].r13) = (registers, registers + 1, value);
                    world.enter_raw(0, number, words);
                } else {
                    world.kick(0);
                }
            }
            let [left, right] = &worlds;
            assert_eq!(left.current(0), right.current(0), "seed {seed}");
            assert_eq!(left.state.idle_cpus, right.state.idle_cpus);
            if left.current(0).is_some() {
                assert_eq!(visible(&left.frame[0]), visible(&right.frame[0]), "seed {seed}");
            }
            for id in left.state.processors.ids().filter(|id| left.state.processors[*id].serial != 0) {
                let [a, b] = [&left.state.processors[id], &right.state.processors[id]];
                assert_eq!((a.state(), a.due, a.time_used_ns), (b.state(), b.due, b.time_used_ns), "seed {seed}");
                assert_eq!(left.masks(id), right.masks(id), "seed {seed}");
            }
        }
    }
}
