//! Shares against processors that try for more: over simulated time, on one processor and on several, with fixed keys.
//!
//! Each processor has an actor, which says how long it computes next and what it does then. Time goes from event to
//! event: the end of a computation, a timer, a kick.

use std::vec;
use std::vec::Vec;

use aegis_abi::call::{Call, GateCall, GateReply, GateSend, ProcessorStop, Sleep, Yield};
use aegis_abi::sleep::TermOperator;
use aegis_abi::types::{CapSlot, Rights, SLOT_FIRST_PROCESSOR};
use aegis_abi::upcall::UpcallKind;
use aegis_lottery::Random;
use aegis_lottery::random::Keyed;

use super::world::{CODE, S, SLICE_NS, World, cpu};
use crate::id::{Id, Named, ProcessorId};
use crate::object::{CheckedTerm, Source};

pub(super) const KEYS: u64 = 30;
pub(super) const MS: u64 = 1_000_000;
const SLICE_END: u32 = UpcallKind::SliceEnd as u32;
/// The slot in which an environment's first processor finds its second, and where that one's gate is.
const MATE: CapSlot = CapSlot(9);
const GATE: CapSlot = CapSlot(10);

/// What a processor does, for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Actor {
    /// Computes.
    Honest,
    /// Holds the slice's end back, computes this much beyond it, and yields in time.
    Greedy(u64),
    /// By turns: as `Greedy`, and yields at once.
    Alternating(u64),
    /// Computes so long, then yields.
    Yielding(u64),
    /// Computes so long, then yields to the environment's other processor, or to any if that one is not ready.
    Passing(u64),
    /// Computes so long, then sleeps so long.
    Sleeping(u64, u64),
    /// Computes so long, then calls the environment's other processor, which is `Serving`.
    Calling(u64),
    /// As that, and does not wait.
    Sending(u64),
    /// Computes so long, then replies.
    Serving(u64),
    /// Something of all that.
    Random,
}

/// A processor and what it is about.
pub(super) struct Player {
    pub(super) processor: ProcessorId,
    actor: Actor,
    used_ns: u64,
    /// Until it does something.
    left_ns: u64,
    turn: u32,
    held_back: bool,
}

pub(super) struct Game {
    pub(super) world: World,
    pub(super) players: Vec<Player>,
    cpu_count: usize,
    random: Keyed,
    /// A timer fires so late where another physical processor runs one that is greedy.
    late_ns: u64,
}

impl Game {
    /// An environment with as many tickets as it says for each entry, with a processor for each actor.
    pub(super) fn new(key: u64, cpu_count: usize, environments: &[(u64, &[Actor])]) -> Self {
        let mut world = World::new();
        world.check_after_entry = false;
        world.state.random = Keyed::new([key, 3]);
        let mut players = Vec::new();
        for (index, (amount, actors)) in environments.iter().enumerate() {
            let slot = S + 40 * index as u32;
            let environment = world.environment(slot, 50);
            let ticket = world.state.environments[environment].ticket.expect("it has one");
            world.state.lottery.set_amount(ticket, *amount).expect("a good amount");
            for (number, actor) in actors.iter().enumerate() {
                let processor = world.processor(slot + 2 + 2 * number as u32, slot);
                players.push(Player { processor, actor: *actor, used_ns: 0, left_ns: 0, turn: 0, held_back: false });
                world.set_entry(processor, SLICE_END as usize, CODE + 0x200);
                world.set_masks(processor, 1, 0);
                if matches!(actor, Actor::Honest) {
                    world.set_entry(processor, SLICE_END as usize, 0);
                }
                world.start(slot + 2 + 2 * number as u32);
                if number == 1 {
                    let serial = world.state.processors[processor].serial;
                    let named = Named { id: processor, serial };
                    let with = crate::object::CapRef { environment: world.first, slot: slot + 2 + 2 };
                    let gate = world.state.new_gate(environment, Some((named, with)), CODE + 0x400, 0).expect("room");
                    for (slot, kind, rights, named) in [
                        (MATE, aegis_abi::types::CapType::Processor, Rights::READ, (processor.index() as u64, serial)),
                        (GATE, aegis_abi::types::CapType::Gate, Rights::CALL, (gate.id.index() as u64, gate.serial)),
                    ] {
                        let at = world.state.empty_slot(environment, slot).expect("an empty slot");
                        let capability = match kind {
                            aegis_abi::types::CapType::Gate => crate::object::Capability::object(kind, rights, gate),
                            _ => crate::object::Capability::object(
                                kind,
                                rights,
                                Named { id: processor, serial: named.1 },
                            ),
                        };
                        world.state.store_capability(at, &capability);
                    }
                }
            }
        }
        world.enter(0, Call::ProcessorStop(ProcessorStop { slot: SLOT_FIRST_PROCESSOR }));
        for index in 1..cpu_count {
            world.kick(index);
        }
        Self { world, players, cpu_count, random: Keyed::new([key, 4]), late_ns: 0 }
    }

    fn player(&self, index: usize) -> Option<usize> {
        let processor = self.world.current(index)?;
        self.players.iter().position(|player| player.processor == processor)
    }

    /// When a physical processor's timer fires.
    fn timer_ns(&self, index: usize) -> u64 {
        let is_beside = |other: usize| {
            let player = self.player(other).map(|number| self.players[number].actor);
            other != index && matches!(player, Some(Actor::Greedy(_)))
        };
        let late_ns = if (0..self.cpu_count).any(is_beside) { self.late_ns } else { 0 };
        self.world.state.cpus[cpu(index)].armed_ns.saturating_add(late_ns)
    }

    /// What a player does after its computation.
    fn act(&mut self, index: usize, number: usize) {
        let (processor, actor) = (self.players[number].processor, self.players[number].actor);
        let now_ns = self.world.state.machine.now_ns;
        let yields = Call::Yield(Yield { processor: CapSlot(0) });
        let is_over = self.world.masks(processor).1 & 1 << SLICE_END != 0;
        let player = &mut self.players[number];
        player.turn += 1;
        let (left_ns, call) = match actor {
            Actor::Honest => (SLICE_NS, None),
            Actor::Alternating(_) if player.turn.is_multiple_of(2) && !player.held_back => (1000, Some(yields)),
            Actor::Greedy(over_ns) | Actor::Alternating(over_ns) if is_over && !player.held_back => {
                player.held_back = true;
                player.turn -= 1;
                (over_ns, None)
            }
            Actor::Greedy(_) | Actor::Alternating(_) if player.held_back => {
                player.held_back = false;
                (MS / 10, Some(yields))
            }
            Actor::Greedy(_) | Actor::Alternating(_) => {
                player.turn -= 1;
                (MS / 10, None)
            }
            Actor::Yielding(run_ns) => (run_ns, Some(yields)),
            Actor::Passing(run_ns) => {
                let mate = self.players.get(number + 1).map(|mate| mate.processor);
                let is_ready = mate.is_some_and(|mate| self.world.state.is_in_ready(mate));
                let call = if is_ready { Call::Yield(Yield { processor: MATE }) } else { yields };
                (run_ns, Some(call))
            }
            Actor::Sleeping(run_ns, sleep_ns) => (run_ns, Some(self.sleep(processor, now_ns + sleep_ns))),
            Actor::Calling(run_ns) => (run_ns, Some(Call::GateCall(GateCall { gate: GATE }))),
            Actor::Sending(run_ns) => (run_ns, Some(Call::GateSend(GateSend { gate: GATE }))),
            Actor::Serving(run_ns) => (run_ns, Some(Call::GateReply(GateReply {}))),
            Actor::Random => {
                let over = [0, MS, 2 * MS, 3 * MS][self.random.below(4) as usize];
                let left_ns = [1000, MS / 10, MS, 3 * MS][self.random.below(4) as usize];
                let serves = self.world.state.processors[processor].transfer.serving.is_some();
                let call = match self.random.below(8) {
                    _ if is_over && !player.held_back && over != 0 => {
                        player.held_back = true;
                        player.left_ns = over;
                        return;
                    }
                    0 | 1 => yields,
                    2 => Call::Yield(Yield { processor: MATE }),
                    3 => self.sleep(processor, now_ns + left_ns),
                    4 => Call::GateCall(GateCall { gate: GATE }),
                    5 => Call::GateSend(GateSend { gate: GATE }),
                    6 if serves => Call::GateReply(GateReply {}),
                    _ if is_over => yields,
                    _ => Call::Null(aegis_abi::call::Null {}),
                };
                self.players[number].held_back = false;
                (left_ns, Some(call))
            }
        };
        self.players[number].left_ns = left_ns;
        if let Some(call) = call {
            self.world.set_masks(processor, 1, 0);
            self.world.enter(index, call);
        }
    }

    fn sleep(&mut self, processor: ProcessorId, until_ns: u64) -> Call {
        let clock = CheckedTerm { product: 0, source: Source::Clock, operator: TermOperator::AtLeast, value: until_ns };
        self.world.state.processors[processor].predicate.push(clock);
        Call::Sleep(Sleep { terms: 0, term_count: 0 })
    }

    pub(super) fn run(&mut self, duration_ns: u64) {
        let end_ns = self.world.state.machine.now_ns + duration_ns;
        while self.world.state.machine.now_ns < end_ns {
            while let Some(kicked) = self.world.state.machine.kicked.pop() {
                if kicked.index() < self.cpu_count {
                    self.world.kick(kicked.index());
                }
            }
            let now_ns = self.world.state.machine.now_ns;
            let mut next_ns = end_ns;
            for index in 0..self.cpu_count {
                next_ns = next_ns.min(self.timer_ns(index).max(now_ns));
                if let Some(number) = self.player(index) {
                    next_ns = next_ns.min(now_ns + self.players[number].left_ns);
                }
            }
            let passed_ns = next_ns - now_ns;
            self.world.state.machine.now_ns = next_ns;
            for index in 0..self.cpu_count {
                if let Some(number) = self.player(index) {
                    self.players[number].used_ns += passed_ns;
                    self.players[number].left_ns -= passed_ns;
                }
            }
            for index in 0..self.cpu_count {
                if next_ns >= self.timer_ns(index) {
                    self.world.timer(index);
                } else if let Some(number) = self.player(index)
                    && self.players[number].left_ns == 0
                {
                    self.act(index, number);
                }
            }
        }
    }

    /// The part of all time that the players of each environment used.
    pub(super) fn shares(&self) -> Vec<f64> {
        let environment = |player: &Player| self.world.state.processors[player.processor].environment;
        let mut sums: Vec<(Option<crate::id::EnvironmentId>, f64)> = Vec::new();
        for player in &self.players {
            let of = environment(player);
            match sums.iter_mut().find(|(id, _)| *id == of) {
                Some((_, sum)) => *sum += player.used_ns as f64,
                None => sums.push((of, player.used_ns as f64)),
            }
        }
        let all: f64 = sums.iter().map(|(_, sum)| sum).sum();
        sums.iter().map(|(_, sum)| sum / all).collect()
    }
}

/// The shares of the environments for each key.
fn games(cpu_count: usize, slices: u64, late_ns: u64, environments: &[(u64, &[Actor])]) -> Vec<Vec<f64>> {
    let one = |key| {
        let mut game = Game::new(key, cpu_count, environments);
        game.late_ns = late_ns;
        game.run(slices * SLICE_NS);
        game.world.check();
        game.shares()
    };
    (0..KEYS).map(one).collect()
}

/// The mean, and its standard deviation.
fn mean(all: impl Iterator<Item = f64>) -> (f64, f64) {
    let all: Vec<f64> = all.collect();
    let count = all.len() as f64;
    let mean = all.iter().sum::<f64>() / count;
    let square = all.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (square / count).sqrt())
}

/// The mean share of each environment over all keys, and its standard deviation.
fn play(cpu_count: usize, slices: u64, environments: &[(u64, &[Actor])]) -> Vec<(f64, f64)> {
    let games = games(cpu_count, slices, 0, environments);
    (0..environments.len()).map(|index| mean(games.iter().map(|shares| shares[index]))).collect()
}

/// `actors` in one environment gain nothing, and if `is_busy` lose nothing, beside honest ones: alone, with unequal
/// tickets, and on as many processors as it says.
fn gains_nothing(actors: &[Actor], is_busy: bool) {
    for environments in [
        [(500, actors), (500, &[Actor::Honest])].as_slice(),
        &[(300, actors), (200, &[Actor::Honest]), (100, &[Actor::Honest])],
    ] {
        let whole: u64 = environments.iter().map(|(amount, _)| amount).sum();
        let due = environments[0].0 as f64 / whole as f64;
        let got = play(1, 200, environments);
        let (share, deviation) = got[0];
        assert!(share < due + 3.0 * deviation + 0.002, "{actors:?}: {got:?}");
        assert!(!is_busy || share > due - 3.0 * deviation - 0.015, "{actors:?}: {got:?}");
        if let [_, (two, a), (one, b)] = got.as_slice() {
            let deviation = (a / two).hypot(b / one) * two / one;
            assert!(
                (two / one - 2.0).abs() < 3.0 * deviation + 0.02,
                "{actors:?}: the others keep their ratio, {got:?}"
            );
        }
    }
}

#[test]
fn overrun_gains_nothing() {
    gains_nothing(&[Actor::Greedy(5 * MS)], true);
    gains_nothing(&[Actor::Greedy(MS)], true);
}

#[test]
fn overrun_by_turns_with_next_to_nothing_gains_nothing() {
    gains_nothing(&[Actor::Alternating(5 * MS)], false);
}

#[test]
fn yielding_late_loses_nothing_and_yielding_early_gains_nothing() {
    gains_nothing(&[Actor::Yielding(95 * MS / 10)], true);
    gains_nothing(&[Actor::Yielding(5 * MS)], false);
    gains_nothing(&[Actor::Yielding(1000)], false);
}

#[test]
fn yielding_to_each_other_gains_nothing() {
    gains_nothing(&[Actor::Yielding(1000), Actor::Yielding(1000)], false);
    gains_nothing(&[Actor::Yielding(1000), Actor::Honest], true);
    gains_nothing(&[Actor::Yielding(3 * MS), Actor::Greedy(5 * MS)], false);
}

#[test]
fn passing_slices_on_gains_nothing() {
    gains_nothing(&[Actor::Passing(5 * MS), Actor::Greedy(5 * MS)], true);
    gains_nothing(&[Actor::Passing(1000), Actor::Honest], true);
    gains_nothing(&[Actor::Calling(1000), Actor::Serving(3 * MS)], true);
    gains_nothing(&[Actor::Sending(1000), Actor::Serving(3 * MS)], false);
}

#[test]
fn chance_gains_nothing() {
    gains_nothing(&[Actor::Random, Actor::Random, Actor::Random], false);
    gains_nothing(&[Actor::Random, Actor::Greedy(5 * MS), Actor::Sleeping(4 * MS, MS)], false);
}

/// A sleeper that wants more than its tickets say gets what they say, and one that wants less gets that.
#[test]
fn a_sleeper_gets_what_it_is_due() {
    for (environments, due) in [
        ([(500, [Actor::Sleeping(4 * MS, MS)].as_slice()), (500, &[Actor::Honest])].as_slice(), 0.5),
        (&[(300, &[Actor::Sleeping(4 * MS, MS)]), (200, &[Actor::Honest]), (100, &[Actor::Honest])], 0.5),
        (&[(300, &[Actor::Sleeping(9 * MS, MS)]), (200, &[Actor::Honest]), (100, &[Actor::Honest])], 0.5),
        (&[(500, &[Actor::Sleeping(MS, 4 * MS)]), (500, &[Actor::Honest])], 0.2),
        (&[(900, &[Actor::Sleeping(MS / 10, MS)]), (100, &[Actor::Honest])], 1.0 / 11.0),
    ] {
        let got = play(1, 300, environments);
        let (share, deviation) = got[0];
        assert!((share - due).abs() < 3.0 * deviation + 0.01 * due, "{environments:?}: {got:?}");
    }
}

/// Sleeps in the company of whatever else the same tickets fund take nothing from others.
#[test]
fn sleeping_gains_nothing() {
    gains_nothing(&[Actor::Sleeping(4 * MS, MS)], true);
    gains_nothing(&[Actor::Sleeping(4 * MS, MS), Actor::Honest], true);
    gains_nothing(&[Actor::Sleeping(MS, MS), Actor::Sleeping(MS, MS)], false);
    gains_nothing(&[Actor::Sleeping(4 * MS, 4 * MS), Actor::Sleeping(4 * MS, 4 * MS)], false);
    gains_nothing(&[Actor::Sleeping(MS / 10, MS), Actor::Yielding(MS), Actor::Greedy(3 * MS)], false);
    gains_nothing(&[Actor::Sleeping(2 * MS, 2 * MS), Actor::Passing(MS)], false);
    gains_nothing(&[Actor::Sleeping(MS, MS / 100)], true);
    gains_nothing(&[Actor::Sleeping(MS / 5, MS / 20)], false);
}

/// On several processors, with half as many environments again as there are processors.
#[test]
fn an_honest_one_keeps_its_part_of_several_processors() {
    for (cpu_count, actors) in [
        (2, &[Actor::Greedy(5 * MS)][..]),
        (2, &[Actor::Yielding(1000), Actor::Greedy(5 * MS)]),
        (4, &[Actor::Greedy(5 * MS)]),
        (4, &[Actor::Alternating(3 * MS)]),
    ] {
        let honest = (500, [Actor::Honest].as_slice());
        let mut environments = vec![(500, actors)];
        environments.resize(cpu_count * 3 / 2, honest);
        let got = play(cpu_count, 100, &environments);
        let due = 1.0 / environments.len() as f64;
        let (share, deviation) = got[0];
        assert!(share < due + 3.0 * deviation + 0.002, "{cpu_count}, {actors:?}: {got:?}");
    }
}

/// Where timers are late beside one that is greedy, a slice is long or short by what runs beside it, and which one runs
/// there when it ends is no chance. A running processor takes part in the draws of the others, so shares do not feel
/// it.
#[test]
fn timers_late_by_company_change_no_share() {
    for (cpu_count, late_ns) in [(2, 0), (2, 5 * MS), (2, 15 * MS), (4, 15 * MS)] {
        let mut environments = vec![(500, [Actor::Honest].as_slice()); cpu_count];
        environments.resize(2 * cpu_count, (500, &[Actor::Greedy(5 * MS)]));
        let games = games(cpu_count, 200, late_ns, &environments);
        let (share, deviation) = mean(games.iter().map(|shares| shares[..cpu_count].iter().sum()));
        assert!((share - 0.5).abs() < 3.0 * deviation, "{cpu_count}, {late_ns}: {share}, {deviation}");
    }
}

/// On two processors each gets what its tickets say, one processor at most: with one virtual processor or two, and
/// whether it computes all the time or sleeps.
#[test]
fn tickets_are_worth_the_same_on_two_processors() {
    const HONEST: &[Actor] = &[Actor::Honest];
    let pair = [Actor::Honest, Actor::Honest];
    let sleeping = [Actor::Sleeping(4 * MS, MS)];
    for (environments, due) in [
        ([(300, HONEST), (200, HONEST), (100, HONEST), (100, HONEST), (100, HONEST)].as_slice(), 0.375),
        (&[(200, HONEST), (100, HONEST), (100, HONEST)], 0.5),
        (&[(1000, HONEST), (100, HONEST), (100, HONEST)], 0.5),
        (&[(100, &pair), (100, HONEST), (100, HONEST), (100, HONEST)], 0.25),
        (&[(300, &pair), (100, HONEST), (100, HONEST), (100, HONEST)], 0.5),
        (&[(100, &sleeping), (100, HONEST), (100, HONEST), (100, HONEST)], 0.25),
    ] {
        let got = play(2, 400, environments);
        let (share, deviation) = got[0];
        // One that is due a whole processor waits for one now and then.
        let least = if due == 0.5 { 0.94 * due } else { 0.98 * due };
        assert!(share > least - 3.0 * deviation && share < due + 3.0 * deviation + 0.002, "{environments:?}: {got:?}");
    }
}

/// Where nobody else wants to run, an overrun costs nothing later; what is given unasked costs a slice at most.
#[test]
fn time_that_nobody_wants_is_free() {
    let mut game = Game::new(1, 1, &[(500, &[Actor::Honest])]);
    game.run(1000 * SLICE_NS);
    let processor = game.players[0].processor;
    assert_eq!(game.world.state.processors[processor].funding.unpaid_ns, 0);
    let mut game = Game::new(1, 1, &[(500, &[Actor::Honest]), (500, &[Actor::Yielding(1000)])]);
    game.run(1000 * SLICE_NS);
    let processor = game.players[0].processor;
    assert!(game.world.state.processors[processor].funding.unpaid_ns <= 2 * SLICE_NS);
}

/// What the kernel does for a wake by the clock is the time of the processor that wakes, not of the one that runs then.
#[test]
fn who_wakes_by_the_clock_pays_for_it() {
    let mut game = Game::new(1, 1, &[(500, &[Actor::Honest]), (500, &[Actor::Sleeping(MS, MS)])]);
    let [honest, sleeper] = [0, 1].map(|number: usize| game.players[number].processor);
    while game.world.state.processors[sleeper].state() != aegis_abi::call::ProcessorState::Asleep {
        game.run(MS / 10);
    }
    assert_eq!(game.world.current(0), Some(honest));
    let state = &mut game.world.state;
    state.processors[sleeper].funding.unpaid_ns = 0;
    state.machine.now_ns += 2 * MS;
    state.machine.clock_looks.set(0);
    state.machine.look_ns = 1000;
    game.world.timer(0);
    let state = &game.world.state;
    let debt_ns = |processor: ProcessorId| state.environments[state.processors[processor].environment_id()].debt_ns;
    assert!(debt_ns(sleeper) + state.processors[sleeper].funding.unpaid_ns >= 1000);
    assert_eq!(debt_ns(honest), 0);
}

/// A processor that is unmade leaves what it owes to its environment, and one that is stopped keeps it.
#[test]
fn a_debt_outlives_its_processor() {
    let mut world = World::new();
    let environment = world.environment(S, 50);
    let processor = world.processor(S + 2, S);
    world.state.processors[processor].funding.unpaid_ns = 3 * SLICE_NS;
    world.start(S + 2);
    assert_eq!(world.state.processors[processor].funding.unpaid_ns, 3 * SLICE_NS);
    world.ok(Call::ProcessorStop(ProcessorStop { slot: CapSlot(S + 2) }));
    world.ok(Call::ProcessorDestroy(aegis_abi::call::ProcessorDestroy { slot: CapSlot(S + 2) }));
    assert_eq!(world.state.environments[environment].debt_ns, 2 * SLICE_NS);
    let other = world.processor(S + 5, S);
    world.state.pay(other);
    assert_eq!(world.state.processors[other].funding.unpaid_ns, 2 * SLICE_NS);
    world.state.environments[environment].debt_ns = 77;
    world.ok(Call::ProcessorDestroy(aegis_abi::call::ProcessorDestroy { slot: CapSlot(S + 5) }));
    world.ok(Call::EnvironmentDestroy(aegis_abi::call::EnvironmentDestroy { slot: CapSlot(S) }));
    assert_eq!(world.state.environments[world.first].debt_ns, 77 + SLICE_NS);
}
