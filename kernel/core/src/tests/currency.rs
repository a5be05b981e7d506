//! Environments that pay for each other: the currency that a ticket is of, the environments that may change it, and
//! what is left when one ends.

use std::collections::BTreeMap;
use std::vec::Vec;

use aegis_abi::call::{
    BellCreate, BellTake, Call, CapDerive, CapGrant, EnvironmentDestroy, EnvironmentWatch, ProcessorStop, TicketAmount,
    TicketField, TicketFund, TicketIssue, TicketRead,
};
use aegis_abi::share::Table;
use aegis_abi::types::{CapSlot, Rights, SLOT_FIRST_PROCESSOR, SLOT_NONE, SLOT_SELF, Status};

use super::random::Random;
use super::world::{S, SLICE_NS, World};
use crate::id::EnvironmentId;

/// Slot of the environment with this number; its frames are in the next one, its processor behind them.
fn slot(number: u32) -> u32 {
    S + 10 + 5 * number
}

fn amount(slot: u32, amount: u64) -> Call {
    Call::TicketAmount(TicketAmount { slot: CapSlot(slot), amount })
}

fn issue(slot: u32, payer: u32) -> Call {
    Call::TicketIssue(TicketIssue { slot: CapSlot(slot), payer: CapSlot(payer) })
}

fn fund(slot: u32, target: u32) -> Call {
    Call::TicketFund(TicketFund { slot: CapSlot(slot), target: CapSlot(target) })
}

fn read(slot: u32, field: TicketField) -> Call {
    Call::TicketRead(TicketRead { slot: CapSlot(slot), field: field as u32 })
}

/// Environments without processors.
fn world(count: u32) -> (World, Vec<EnvironmentId>) {
    let mut world = World::new();
    let environments = (0..count).map(|number| world.environment(slot(number), 20)).collect();
    (world, environments)
}

/// Gives it a processor that wants to run.
fn run(world: &mut World, number: u32) {
    world.processor(slot(number) + 2, slot(number));
    world.start(slot(number) + 2);
}

/// Lets `maker` have made `environment`, as it would by a call of its own.
fn adopt(world: &mut World, environment: EnvironmentId, maker: EnvironmentId) {
    let before = world.state.environments[environment].parent.replace(maker).expect("it was made");
    world.state.environments[before].count_entry(Table::Environments, false);
    world.state.environments[maker].count_entry(Table::Environments, true);
    world.state.issue_ticket(environment, maker).expect("no cycle");
}

fn value(world: &mut World, number: u32) -> u64 {
    world.ok(read(slot(number), TicketField::Value)) / aegis_lottery::VALUE_ONE
}

fn destroy(world: &mut World, number: u32) {
    world.ok(Call::EnvironmentDestroy(EnvironmentDestroy { slot: CapSlot(slot(number)) }));
    world.check();
}

/// Figure 9 of the paper, in values: what is issued in a currency is felt in it alone.
#[test]
fn currencies_insulate() {
    let (mut world, _) = world(7);
    let [a, b] = [5, 6];
    for (number, payer, tickets) in [(0, a, 100), (1, a, 200), (2, b, 100), (3, b, 200), (4, b, 300)] {
        run(&mut world, number);
        world.ok(amount(slot(number), tickets));
        world.ok(issue(slot(number), slot(payer)));
    }
    world.ok(amount(slot(a), 600_000));
    world.ok(amount(slot(b), 600_000));
    world.ok(fund(slot(4), 0));
    // The caller runs and competes with its 1,000.
    world.ok(amount(SLOT_FIRST_PROCESSOR.0, 1));
    let values = |world: &mut World| [0, 1, 2, 3, 4].map(|number| value(world, number));
    assert_eq!(values(&mut world), [166, 333, 166, 333, 0]);
    world.ok(fund(slot(4), slot(4)));
    assert_eq!(values(&mut world), [166, 333, 83, 166, 249]);
    assert_eq!(world.ok(read(slot(b), TicketField::IssuedAmount)), 600);
    // A currency that nobody competes with gives its part to the others.
    for number in [2, 3, 4] {
        world.ok(Call::ProcessorStop(ProcessorStop { slot: CapSlot(slot(number) + 2) }));
    }
    assert_eq!(values(&mut world), [333, 666, 0, 0, 0]);
    world.check();
}

#[test]
fn draws_follow_currencies() {
    let (mut world, _) = world(4);
    run(&mut world, 0);
    run(&mut world, 1);
    run(&mut world, 2);
    // Half for 0; of the other half, which is 3's, a fifth for 1.
    world.ok(issue(slot(1), slot(3)));
    world.ok(issue(slot(2), slot(3)));
    world.ok(amount(slot(2), 4000));
    world.check_after_entry = false;
    let processors = world.state.processors.ids().take(4).collect::<Vec<_>>();
    world.enter(0, Call::ProcessorStop(ProcessorStop { slot: SLOT_FIRST_PROCESSOR }));
    let slices = 6_000.0_f64;
    let mut won = [0.0; 4];
    for _ in 0..slices as u32 {
        world.state.machine.now_ns += SLICE_NS;
        world.timer(0);
        let winner = world.current(0).expect("somebody runs");
        won[processors.iter().position(|processor| *processor == winner).expect("one of them")] += 1.0;
    }
    for (won, chance) in won.into_iter().zip([0.0, 0.5, 0.1, 0.4]) {
        let deviation = (slices * chance * (1.0_f64 - chance)).sqrt();
        assert!((won - slices * chance).abs() <= 3.0 * deviation, "{won} for {chance}");
    }
    world.check();
}

#[test]
fn cycles_and_strangers_are_refused_and_change_nothing() {
    let (mut world, _) = world(3);
    let [a, b, c] = [0, 1, 2].map(slot);
    world.ok(issue(a, b));
    world.ok(issue(b, c));
    world.ok(issue(b, c));
    for (ticket, payer) in [(a, a), (c, a), (c, b), (c, c)] {
        assert_eq!(world.call(issue(ticket, payer)), (Status::BadArgument, 1), "{ticket} {payer}");
    }
    assert_eq!(world.refused(issue(SLOT_SELF.0, a)), Status::MissingRight, "nobody pays for the first environment");
    assert_eq!(world.refused(issue(99, a)), Status::BadSlot);
    assert_eq!(world.refused(issue(a, 99)), Status::BadSlot);
    assert_eq!(world.refused(issue(SLOT_FIRST_PROCESSOR.0, a)), Status::WrongType);
    assert_eq!(world.refused(issue(a, SLOT_FIRST_PROCESSOR.0)), Status::WrongType);
    let (source, target) = (CapSlot(a), CapSlot(90));
    let rights = Rights::READ.bits();
    world.ok(Call::CapDerive(CapDerive { source, target, rights, offset: 0, count: 0 }));
    assert_eq!(world.refused(issue(90, b)), Status::MissingRight);
    assert_eq!(world.refused(issue(c, 90)), Status::MissingRight);
    // What is not funded closes no cycle until it is.
    world.ok(fund(c, 0));
    world.ok(issue(c, a));
    assert_eq!(world.refused(fund(c, c)), Status::WrongState);
    world.ok(issue(c, SLOT_SELF.0));
    world.ok(fund(c, c));
    run(&mut world, 0);
    assert_eq!([0, 1, 2].map(|number| value(&mut world, number)), [500, 500, 500]);
    world.check();
}

#[test]
fn only_who_is_above_both_payers_changes_them() {
    let (mut world, environments) = world(3);
    let [maker, made, other] = environments[..] else { unreachable!() };
    adopt(&mut world, made, maker);
    run(&mut world, 0);
    // The maker holds all rights to what it made, to itself and to the other.
    for (source, target) in [(slot(1), 8), (slot(2), 9)] {
        let rights = Rights::all().bits();
        let (source, target) = (CapSlot(source), CapSlot(target));
        world.ok(Call::CapGrant(CapGrant { source, environment: CapSlot(slot(0)), target, rights }));
    }
    world.enter(0, Call::ProcessorStop(ProcessorStop { slot: SLOT_FIRST_PROCESSOR }));
    while world.environment_of(0) != maker {
        world.timer(0);
    }
    assert_eq!(world.refused(issue(8, 9)), Status::MissingRight, "the other is not its own");
    assert_eq!(world.refused(issue(9, SLOT_SELF.0)), Status::MissingRight);
    assert_eq!(world.refused(issue(SLOT_SELF.0, 9)), Status::MissingRight);
    world.ok(issue(8, SLOT_SELF.0));
    world.ok(amount(8, 5));
    // The environment above had the other pay; now the maker has no say in it.
    world.state.issue_ticket(made, other).expect("no cycle");
    assert_eq!(world.refused(amount(8, 6)), Status::MissingRight);
    assert_eq!(world.refused(issue(8, SLOT_SELF.0)), Status::MissingRight);
    assert_eq!(world.refused(fund(8, 0)), Status::MissingRight);
    world.check();
}

#[test]
fn when_a_payer_ends_its_tickets_fund_nothing_and_the_watcher_is_told() {
    let (mut world, environments) = world(5);
    run(&mut world, 0);
    world.ok(amount(slot(0), 7));
    world.ok(issue(slot(0), slot(1)));
    world.ok(issue(slot(1), slot(2)));
    let bell = CapSlot(95);
    world.ok(Call::BellCreate(BellCreate { slot: bell, processor: SLOT_NONE }));
    world.ok(Call::EnvironmentWatch(EnvironmentWatch { slot: CapSlot(slot(0)), bell }));
    destroy(&mut world, 1);
    assert_eq!(world.state.environments[environments[0]].payer, Some(world.first));
    assert_eq!(world.ok(read(slot(0), TicketField::Amount)), 7);
    assert_eq!(world.ok(read(slot(0), TicketField::IsFunding)), 0);
    assert_eq!(world.ok(Call::BellTake(BellTake { slot: bell })), 1, "told once");
    assert_eq!(value(&mut world, 0), 0);
    world.ok(fund(slot(0), slot(0)));
    world.ok(amount(slot(0), 1000));
    assert_eq!(value(&mut world, 0), 500);
    // An environment that was without funding stays so.
    world.ok(fund(slot(0), 0));
    world.ok(issue(slot(0), slot(2)));
    destroy(&mut world, 2);
    assert_eq!(world.ok(read(slot(0), TicketField::IsFunding)), 0);
    // A maker that is paid for by what it made gets the ticket back all the same: what funds nothing closes no cycle.
    let (mut world, environments) = self::world(3);
    let [maker, made, payer] = environments[..] else { unreachable!() };
    adopt(&mut world, made, maker);
    world.ok(issue(slot(1), slot(2)));
    world.ok(issue(slot(0), slot(1)));
    world.check();
    destroy(&mut world, 2);
    assert_eq!(world.state.environments[payer].serial, 0);
    let payers = [maker, made].map(|environment| world.state.environments[environment].payer);
    assert_eq!(payers, [Some(made), Some(maker)]);
    assert_eq!(world.refused(fund(slot(1), slot(1))), Status::WrongState, "that would");
    destroy(&mut world, 0);
    assert_eq!(world.state.environments[made].serial, 0, "it goes with its maker");
}

/// What a naive mind knows of an environment.
#[derive(Clone)]
struct Known {
    maker: u32,
    payer: u32,
    amount: u64,
    is_funded: bool,
}

/// The first environment's number, which has no slot of the others'.
const FIRST: u32 = 100;

struct Model(BTreeMap<u32, Known>);

impl Model {
    fn funds(&self, number: u32, other: u32) -> bool {
        let paid = |it: u32| self.0.get(&it).filter(|known| known.is_funded).map(|known| known.payer);
        std::iter::successors(Some(other), |it| paid(*it)).any(|it| it == number)
    }

    /// Its part of all; every environment has a processor, which counts 1,000 in its currency.
    fn part(&self, number: u32) -> f64 {
        let Some(known) = self.0.get(&number) else { return 1.0 };
        if !known.is_funded {
            return 0.0;
        }
        let issued = |payer: u32| self.0.values().filter(move |it| it.payer == payer && it.is_funded);
        let all: u64 = 1000 + issued(known.payer).map(|it| it.amount).sum::<u64>();
        self.part(known.payer) * known.amount as f64 / all as f64
    }

    /// Its maker has the ticket, which funds nothing.
    fn end(&mut self, number: u32) {
        self.0.remove(&number);
        for it in self.0.values_mut().filter(|it| it.payer == number) {
            (it.payer, it.is_funded) = (it.maker, false);
        }
    }
}

#[test]
fn random_changes_agree_with_a_naive_model() {
    for seed in 0..8 {
        let (mut random, mut model) = (Random::new(seed), Model(BTreeMap::new()));
        let (mut world, _) = world(0);
        world.check_after_entry = false;
        let slot_of = |number: u32| if number == FIRST { SLOT_SELF.0 } else { slot(number) };
        for step in 0..300 {
            let number = random.below(8) as u32;
            let other = if random.below(6) == 0 { FIRST } else { random.below(8) as u32 };
            let is_there = model.0.contains_key(&number);
            match random.below(8) {
                0 | 1 if !is_there => {
                    let environment = world.environment(slot(number), 0);
                    run(&mut world, number);
                    let mut maker = FIRST;
                    if model.0.contains_key(&other) {
                        let at = crate::object::CapRef { environment: world.first, slot: slot(other) };
                        let object = world.state.capability(at).expect("it is there").object & 0xffff;
                        let id = <EnvironmentId as crate::id::Id>::from_index(object as usize).expect("one");
                        adopt(&mut world, environment, id);
                        maker = other;
                    }
                    model.0.insert(number, Known { maker, payer: maker, amount: 1000, is_funded: true });
                }
                2 if is_there && model.0.values().all(|it| it.maker != number) => {
                    destroy(&mut world, number);
                    for it in [1, 2, 3] {
                        let _ =
                            world.call(Call::CapDrop(aegis_abi::call::CapDrop { slot: CapSlot(slot(number) + it) }));
                    }
                    model.end(number);
                }
                3..=5 if is_there && (other == FIRST || model.0.contains_key(&other)) => {
                    let is_cycle = model.0[&number].is_funded && model.funds(number, other);
                    let outcome = world.call(issue(slot(number), slot_of(other)));
                    assert_eq!(outcome.0, if is_cycle { Status::BadArgument } else { Status::Ok });
                    if !is_cycle {
                        model.0.get_mut(&number).expect("it is there").payer = other;
                    }
                }
                6 if is_there => {
                    let tickets = 1 + random.below(3000);
                    world.ok(amount(slot(number), tickets));
                    model.0.get_mut(&number).expect("it is there").amount = tickets;
                }
                7 if is_there => {
                    let is_funded = random.below(3) != 0;
                    let closes =
                        is_funded && !model.0[&number].is_funded && model.funds(number, model.0[&number].payer);
                    let outcome = world.call(fund(slot(number), if is_funded { slot(number) } else { 0 }));
                    assert_eq!(outcome.0, if closes { Status::WrongState } else { Status::Ok });
                    if !closes {
                        model.0.get_mut(&number).expect("it is there").is_funded = is_funded;
                    }
                }
                _ => {}
            }
            if step % 20 == 0 {
                world.check();
            }
            for number in model.0.keys().copied() {
                let (due, got) = (model.part(number) * 1000.0, value(&mut world, number) as f64);
                assert!((due - got).abs() <= 1.5, "{seed}: {number} is worth {got}, due {due}");
            }
        }
    }
}
