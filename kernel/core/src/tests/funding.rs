//! Shares of processor time, over simulated time and with fixed keys: no verdict here depends on luck.

use std::vec;
use std::vec::Vec;

use aegis_abi::call::{
    Call, CapGrant, GateCall, GateReply, ProcessorState, ProcessorStop, Sleep, TICKET_AMOUNT_MAX, TicketAmount,
    TicketField, TicketFund, TicketRead,
};
use aegis_abi::share::Table;
use aegis_abi::types::{CapSlot, Rights, SLOT_FIRST_PROCESSOR, Status};
use aegis_lottery::CurrencyId;
use aegis_lottery::random::Keyed;

use super::world::{CODE, S, SLICE_NS, World};
use crate::id::{EnvironmentId, ProcessorId};

const KEYS: u64 = 30;
/// How far, in standard deviations, 99 % of what is normally distributed lies.
const NINETY_NINE: f64 = 2.576;
/// The slot of a test's gate, and of the first environment of `world`.
const GATE: u32 = S + 60;
const FIRST: u32 = S + 10;

/// Environments with these amounts, each with one processor that is started; the first processor is stopped.
fn world(key: u64, amounts: &[u64]) -> (World, Vec<ProcessorId>) {
    let mut world = World::new();
    world.check_after_entry = false;
    world.state.random = Keyed::new([key, 7]);
    let processors = amounts
        .iter()
        .zip(0..)
        .map(|(amount, index)| {
            let slot = FIRST + 5 * index;
            let environment = world.environment(slot, 50);
            set_amount(&mut world, environment, *amount);
            let processor = world.processor(slot + 2, slot);
            world.start(slot + 2);
            processor
        })
        .collect();
    (world, processors)
}

fn set_amount(world: &mut World, environment: EnvironmentId, amount: u64) {
    let ticket = world.state.environments[environment].ticket.expect("it has one");
    world.state.lottery.set_amount(ticket, amount).expect("a good amount");
}

fn retire_first(world: &mut World) {
    world.enter(0, Call::ProcessorStop(ProcessorStop { slot: SLOT_FIRST_PROCESSOR }));
}

/// The processor that runs on a physical one.
fn current(world: &World, index: usize) -> ProcessorId {
    world.current(index).expect("somebody runs")
}

fn slice_passes(world: &mut World) {
    world.state.machine.now_ns += SLICE_NS;
    world.timer(0);
}

#[test]
fn shares_are_as_the_tickets_say() {
    let parts = [8, 3, 1];
    let mut pooled = [0.0; 3];
    let mut outside = 0;
    let slices = 600.0;
    let deviation = |count: f64, part: u64| {
        let chance = part as f64 / 12.0;
        (count * chance, (count * chance * (1.0 - chance)).sqrt())
    };
    for key in 0..KEYS {
        let (mut world, processors) = world(key, &parts);
        retire_first(&mut world);
        let mut won = [0.0; 3];
        for _ in 0..slices as u32 {
            slice_passes(&mut world);
            let winner = current(&world, 0);
            won[processors.iter().position(|p| *p == winner).expect("one of them")] += 1.0;
        }
        world.check();
        for (index, part) in parts.into_iter().enumerate() {
            let (mean, deviation) = deviation(slices, part);
            outside += u32::from((won[index] - mean).abs() > NINETY_NINE * deviation);
            pooled[index] += won[index];
        }
    }
    for (index, part) in parts.into_iter().enumerate() {
        let (mean, deviation) = deviation(slices * KEYS as f64, part);
        assert!((pooled[index] - mean).abs() < NINETY_NINE * deviation, "{pooled:?}");
    }
    // 90 intervals of 99 %: one is due outside, and more than four seldom.
    assert!(outside <= 4, "{outside}");
}

/// Runs until the time is over: on each turn the processor that runs computes for what `part` says of its slice, and
/// then does what `then` does if that was less than a slice. Gives the time that each used.
fn compute(
    world: &mut World,
    processors: &[ProcessorId],
    turns: u32,
    part: impl Fn(usize) -> f64,
    mut then: impl FnMut(&mut World),
) -> Vec<f64> {
    let mut used = vec![0.0; processors.len()];
    for _ in 0..turns {
        let running = current(world, 0);
        let index = processors.iter().position(|p| *p == running).expect("one of them");
        let time_ns = (SLICE_NS as f64 * part(index)) as u64;
        used[index] += time_ns as f64;
        world.state.machine.now_ns += time_ns;
        if part(index) < 1.0 {
            then(world);
        } else {
            world.timer(0);
        }
    }
    used
}

fn share(used: &[f64], index: usize) -> f64 {
    used[index] / used.iter().sum::<f64>()
}

fn sleep_for(world: &mut World, processor: ProcessorId) {
    let call = Call::Sleep(Sleep { terms: 0, term_count: 0 });
    world.enter(0, call);
    assert_eq!(world.state.processors[processor].state(), ProcessorState::Asleep);
    // Something wakes it at once: it was away for no time.
    world.state.wake(processor, aegis_abi::Status::Ok, 0);
}

#[test]
fn who_sleeps_before_its_slice_ends_gets_its_share() {
    for part in [0.5, 0.2, 0.05] {
        let (mut world, processors) = world(3, &[1, 1, 2]);
        retire_first(&mut world);
        let sleeper = processors[0];
        let part_of = |index| if index == 0 { part } else { 1.0 };
        let used = compute(&mut world, &processors, 30_000, part_of, |world| sleep_for(world, sleeper));
        // It is woken after the next draw. So of each round a slice is the others' alone, and of the rest it has its
        // quarter: against 1 + 3 slices of theirs without compensation.
        let due = part / (part + 1.0 + 3.0 * part);
        assert!((share(&used, 0) / due - 1.0).abs() < 0.03, "{part}: {} for {due}", share(&used, 0));
    }
}

#[test]
fn fifty_children_gain_nothing() {
    let (mut world, mut processors) = world(5, &[1, 1]);
    world.ok(super::share::share(FIRST, Table::Processors, 60));
    for index in 0..50 {
        let slot = S + 100 + 2 * index;
        processors.push(world.processor(slot, FIRST));
        world.start(slot);
    }
    retire_first(&mut world);
    let used = compute(&mut world, &processors, 20_000, |_| 1.0, |_| {});
    assert!((0.485..0.515).contains(&share(&used, 1)), "{}", share(&used, 1));
    world.check();
}

#[test]
fn what_is_made_is_funded_by_its_maker() {
    let (mut world, processors) = world(6, &[1, 3]);
    retire_first(&mut world);
    slice_passes(&mut world);
    world.state.settle_funding(true);
    let unit = aegis_lottery::VALUE_ONE;
    let state = &mut world.state;
    let first = state.environments[world.first].currency;
    let makers = processors
        .iter()
        .map(|p| state.environments[state.processors[*p].environment_id()].currency)
        .collect::<Vec<_>>();
    let mut value = |currency| state.lottery.value(currency).expect("it is there") / unit;
    assert_eq!((value(CurrencyId::BASE), value(first)), (1000, 1000));
    assert_eq!((value(makers[0]), value(makers[1])), (250, 750));
}

/// Clients with these amounts, and servers without tickets in a row, each of which calls the next one.
struct Service {
    world: World,
    clients: Vec<ProcessorId>,
    servers: Vec<ProcessorId>,
}

impl Service {
    fn new(key: u64, amounts: &[u64], server_count: u32) -> Self {
        let (mut world, clients) = world(key, amounts);
        let mut servers = Vec::new();
        for index in 0..server_count {
            let slot = S + 200 + 10 * index;
            let environment = world.environment(slot, 50);
            let server = world.processor(slot + 2, slot);
            servers.push(server);
            // A gate of the server's own environment, made as that would make it.
            let named = crate::id::Named { id: server, serial: world.state.processors[server].serial };
            let with = crate::object::CapRef { environment: world.first, slot: slot + 2 };
            let gate = world.state.new_gate(environment, Some((named, with)), CODE + 0x400, 0).expect("room");
            let capability =
                crate::object::Capability::object(aegis_abi::types::CapType::Gate, Rights::CALL | Rights::GRANT, gate);
            let at = world.state.empty_slot(world.first, CapSlot(GATE + index)).expect("an empty slot");
            world.state.store_capability(at, &capability);
            let ticket = world.state.environments[environment].ticket.expect("it has one");
            world.state.lottery.unfund(ticket).expect("it is there");
            world.start(slot + 2);
        }
        let environments = (0..amounts.len() as u32).map(|index| FIRST + 5 * index);
        let callers =
            environments.map(|slot| (slot, GATE)).chain((1..server_count).map(|n| (S + 190 + 10 * n, GATE + n)));
        for (slot, gate) in callers.collect::<Vec<_>>() {
            world.ok(Call::CapGrant(CapGrant {
                source: CapSlot(gate),
                environment: CapSlot(slot),
                target: CapSlot(9),
                rights: Rights::CALL.bits(),
            }));
        }
        retire_first(&mut world);
        Self { world, clients, servers }
    }

    /// Every client calls again and again; each request takes the last server `work_ns`. Counts replies.
    fn run(&mut self, replies: u32, work_ns: u64) -> Vec<f64> {
        let mut counts = vec![0.0; self.clients.len()];
        let mut got = 0;
        for _ in 0..replies * 40 {
            if got >= replies {
                return counts;
            }
            let running = current(&self.world, 0);
            let world = &mut self.world;
            if let Some(client) = self.clients.iter().position(|p| *p == running) {
                if world.frame[0].rax == 0 && world.frame[0].rbx == 0x77 {
                    counts[client] += 1.0;
                    got += 1;
                }
                world.frame[0].rbx = 0;
                world.enter(0, Call::GateCall(GateCall { gate: CapSlot(9) }));
                continue;
            }
            let number = self.servers.iter().position(|p| *p == running).expect("a server");
            let serves = world.state.processors[running].transfer.serving.is_some();
            let is_last = number + 1 == self.servers.len();
            let was_answered = world.frame[0].rbx == 0x77;
            if serves && !is_last && !was_answered {
                world.enter(0, Call::GateCall(GateCall { gate: CapSlot(9) }));
                continue;
            }
            if serves && is_last {
                // The work goes over several slices, and is funded all the while.
                let mut left_ns = work_ns;
                while left_ns != 0 && current(world, 0) == running {
                    let step_ns = left_ns.min(SLICE_NS);
                    left_ns -= step_ns;
                    world.state.machine.now_ns += step_ns;
                    if world.state.machine.now_ns >= world.state.cpus[super::world::cpu(0)].slice_end_ns {
                        world.timer(0);
                    }
                }
                if current(world, 0) != running {
                    continue;
                }
            }
            world.frame[0].rbx = 0x77;
            world.enter(0, Call::GateReply(GateReply {}));
        }
        panic!("only {got} replies: {counts:?}");
    }
}

fn is_in_ratio(counts: &[f64], parts: &[u64]) -> bool {
    let (all, sum) = (counts.iter().sum::<f64>(), parts.iter().sum::<u64>() as f64);
    counts.iter().zip(parts).all(|(count, part)| {
        let chance = *part as f64 / sum;
        (count - all * chance).abs() < NINETY_NINE * (all * chance * (1.0 - chance)).sqrt()
    })
}

/// Figure 7's transfer: a server without tickets answers in the ratio of those that ask, by funding alone.
#[test]
fn a_server_without_tickets_answers_in_its_callers_ratio() {
    for server_count in [1, 2] {
        let mut service = Service::new(8, &[8, 3, 1], server_count);
        let counts = service.run(3_000, SLICE_NS / 10);
        assert!(is_in_ratio(&counts, &[8, 3, 1]), "{server_count}: {counts:?}");
        service.world.check();
    }
}

/// An unfunded server would never run beside one that computes; a call that waits funds it.
#[test]
fn a_call_that_waits_funds_its_server() {
    let mut service = Service::new(9, &[1, 1], 1);
    let (world, server) = (&mut service.world, service.servers[0]);
    let [computing, calling] = [service.clients[0], service.clients[1]];
    for _ in 0..200 {
        slice_passes(world);
        assert_ne!(current(world, 0), server, "it has no tickets");
    }
    // Now one of the two calls, without the slice going over at once: the server was not waiting for calls.
    while current(world, 0) != calling {
        slice_passes(world);
    }
    world.enter(0, Call::GateCall(GateCall { gate: CapSlot(9) }));
    let mut won = 0;
    for _ in 0..1_000 {
        slice_passes(world);
        let winner = current(world, 0);
        assert!(winner == computing || winner == server);
        won += u32::from(winner == server);
    }
    assert!((440..560).contains(&won), "the caller's whole half: {won}");
    world.check();
    // The caller dies: the server is without tickets again, and the one that computes has all.
    world.state.stop_processor(calling);
    for _ in 0..100 {
        slice_passes(world);
        assert_eq!(current(world, 0), computing);
    }
    // Nobody else wants to run: then it does.
    world.state.stop_processor(computing);
    world.kick(0);
    assert_eq!(current(world, 0), server);
    world.check();
}

#[test]
fn a_server_that_dies_gives_its_callers_their_funding_back() {
    let mut service = Service::new(10, &[3, 1], 1);
    service.run(100, SLICE_NS / 10);
    let world = &mut service.world;
    world.state.stop_processor(service.servers[0]);
    world.kick(0);
    world.check();
    // Both have learned that it is gone, and compete as before.
    let mut won = [0.0; 2];
    for _ in 0..4_000 {
        slice_passes(world);
        let winner = current(world, 0);
        won[service.clients.iter().position(|p| *p == winner).expect("a client")] += 1.0;
    }
    assert!(is_in_ratio(&won, &[3, 1]), "{won:?}");
    let end = world.state.end_environment(world.first);
    assert_eq!(end, Err(crate::outcome::More), "somebody still runs");
    for _ in 0..100 {
        world.kick(0);
        if world.state.end_environment(world.first).is_ok() {
            break;
        }
    }
    assert!(world.state.lottery.check());
    assert_eq!(world.state.lottery.issued_amount(CurrencyId::BASE), 0, "nothing is left");
}

/// What each gets of two processors: a holder of more than one processor's worth gets what the draws leave it.
fn two_processors(key: u64, amounts: &[u64]) -> Vec<f64> {
    let (mut world, processors) = world(key, amounts);
    retire_first(&mut world);
    world.kick(1);
    let mut used = vec![0.0; amounts.len()];
    let turns = 40_000;
    for turn in 0..turns {
        // The slices of the two end by turns.
        world.state.machine.now_ns += SLICE_NS / 2;
        for index in 0..2 {
            let running = current(&world, index);
            used[processors.iter().position(|p| *p == running).expect("one of them")] += 1.0 / f64::from(turns);
        }
        world.timer(turn as usize % 2);
    }
    world.check();
    used
}

#[test]
fn on_two_processors_nobody_starves_and_none_idles() {
    for (amounts, least) in [
        ([1, 1, 1].as_slice(), [0.6, 0.6, 0.6].as_slice()),
        (&[10, 1, 1], &[0.8, 0.4, 0.4]),
        (&[2, 1, 1], &[0.7, 0.5, 0.5]),
        (&[100, 2, 1], &[0.9, 0.5, 0.3]),
    ] {
        let used = two_processors(11, amounts);
        assert!((used.iter().sum::<f64>() - 2.0).abs() < 1e-6, "{used:?}");
        assert!(used.iter().zip(least).all(|(used, least)| used >= least), "{amounts:?}: {used:?}");
    }
}

fn amount(slot: u32, amount: u64) -> Call {
    Call::TicketAmount(TicketAmount { slot: CapSlot(slot), amount })
}

fn fund(slot: u32, target: u32) -> Call {
    Call::TicketFund(TicketFund { slot: CapSlot(slot), target: CapSlot(target) })
}

fn read(slot: u32, field: TicketField) -> Call {
    Call::TicketRead(TicketRead { slot: CapSlot(slot), field: field as u32 })
}

#[test]
fn tickets_are_read_and_changed_by_calls() {
    let (mut world, _) = world(12, &[1000, 1000]);
    let [one, two] = [FIRST, FIRST + 5];
    let unit = aegis_lottery::VALUE_ONE;
    assert_eq!(world.ok(read(one, TicketField::Amount)), 1000);
    // The caller runs and so competes too: a third each.
    assert_eq!(world.ok(read(one, TicketField::Value)) / unit, 333);
    world.ok(amount(one, 7000));
    world.ok(amount(SLOT_FIRST_PROCESSOR.0, 2000));
    assert_eq!(world.ok(read(one, TicketField::Value)) / unit, 700);
    assert_eq!(world.ok(read(two, TicketField::Value)) / unit, 100);
    assert_eq!(world.ok(read(one + 2, TicketField::Value)) / unit, 700, "its only processor");
    assert_eq!(world.ok(read(1, TicketField::ActiveAmount)), 10_000);
    world.ok(fund(one, 0));
    world.ok(fund(one, 0));
    assert_eq!(world.ok(read(one, TicketField::IsFunding)), 0);
    assert_eq!(world.ok(read(one, TicketField::Value)), 0);
    assert_eq!(world.ok(read(1, TicketField::IssuedAmount)), 10_000);
    world.ok(fund(one, one));
    world.ok(fund(one, one));
    assert_eq!(world.ok(read(one, TicketField::Value)) / unit, 700);
    // Above the payer is good enough.
    world.ok(amount(one + 2, 5));
    assert_eq!(world.ok(read(one, TicketField::IssuedAmount)), 5);
    world.check();
}

#[test]
fn bad_changes_of_tickets_are_refused_and_change_nothing() {
    let (mut world, processors) = world(13, &[1000, 1000]);
    let one = FIRST;
    let refused = |world: &mut World, call: Call| {
        let (status, value) = world.call(call);
        assert_eq!(world.ok(read(one, TicketField::Amount)), 1000);
        assert_eq!(world.ok(read(one, TicketField::IsFunding)), 1);
        (status, value)
    };
    for bad in [0, TICKET_AMOUNT_MAX + 1, u64::MAX] {
        assert_eq!(refused(&mut world, amount(one, bad)), (Status::BadArgument, 1));
    }
    assert_eq!(refused(&mut world, fund(one, one + 5)), (Status::BadArgument, 1));
    assert_eq!(refused(&mut world, fund(one, one + 2)), (Status::BadArgument, 1));
    assert_eq!(refused(&mut world, fund(one, 99)).0, Status::BadSlot);
    assert_eq!(refused(&mut world, amount(99, 1)).0, Status::BadSlot);
    assert_eq!(refused(&mut world, amount(3, 1)).0, Status::WrongType);
    assert_eq!(refused(&mut world, amount(1, 1)).0, Status::MissingRight, "nobody pays for the first environment");
    assert_eq!(refused(&mut world, fund(1, 0)).0, Status::MissingRight);
    let no_field = Call::TicketRead(TicketRead { slot: CapSlot(one), field: 5 });
    assert_eq!(refused(&mut world, no_field), (Status::BadArgument, 1));
    // The child holds all rights to itself but does not pay for itself. It pays for its processor.
    world.ok(Call::CapGrant(CapGrant {
        source: CapSlot(one + 2),
        environment: CapSlot(one),
        target: CapSlot(9),
        rights: Rights::all().bits(),
    }));
    world.enter(0, Call::ProcessorStop(ProcessorStop { slot: SLOT_FIRST_PROCESSOR }));
    while current(&world, 0) != processors[0] {
        slice_passes(&mut world);
    }
    assert_eq!(world.refused(amount(1, TICKET_AMOUNT_MAX)), Status::MissingRight);
    assert_eq!(world.refused(fund(1, 0)), Status::MissingRight);
    world.ok(amount(9, 77));
    assert_eq!(world.ok(read(9, TicketField::Amount)), 77);
    world.check();
}
