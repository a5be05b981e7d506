//! How long the waiter for a device waits for a processor, beside others that compute or wake often: over simulated
//! time, with fixed keys.

use std::vec;
use std::vec::Vec;

use aegis_abi::call::{Call, Sleep};
use aegis_abi::sleep::TermOperator;
use aegis_lottery::Random;
use aegis_lottery::random::Keyed;

use super::shares::{Actor, Game, KEYS, MS};
use crate::id::{BellId, DeviceId, Id, Named, ProcessorId};
use crate::object::{CheckedTerm, Route, Source};

/// How finely waits are measured.
const STEP_NS: u64 = 5_000;
const ROUNDS: u64 = 40;

/// A game whose first environment drives a device.
struct Driven {
    game: Game,
    driver: ProcessorId,
    bell: Named<BellId>,
    cpu_count: usize,
}

impl Driven {
    fn new(key: u64, cpu_count: usize, others: &[Actor]) -> Self {
        let actors: Vec<_> = others.iter().map(|actor| [*actor]).collect();
        let mut environments = vec![(100, [Actor::Honest].as_slice())];
        environments.extend(actors.iter().map(|actor| (100, actor.as_slice())));
        let mut game = Game::new(key, cpu_count, &environments);
        let driver = game.players.remove(0).processor;
        let environment = game.world.state.processors[driver].environment_id();
        let bell = game.world.state.new_bell(environment, None).expect("room");
        let device = DeviceId::from_index(0).expect("a device");
        game.world.state.devices[device].routes[0] =
            Route { environment: Some(environment), bell: Some(bell), ..Route::EMPTY };
        Self { game, driver, bell, cpu_count }
    }

    /// Where the driver runs.
    fn place(&self) -> Option<usize> {
        (0..self.cpu_count).find(|index| self.game.world.current(*index) == Some(self.driver))
    }

    /// How long it is until the driver runs.
    fn wait(&mut self) -> u64 {
        let begin_ns = self.game.world.state.machine.now_ns;
        // A processor that the entry just made told to look does so before time goes on.
        self.game.run(1);
        while self.place().is_none() {
            self.game.run(STEP_NS);
        }
        self.game.world.state.machine.now_ns - begin_ns
    }

    /// Works for so long, then waits for the next interrupt.
    fn serve(&mut self, service_ns: u64) {
        let end_ns = self.game.world.state.machine.now_ns + service_ns;
        loop {
            self.wait();
            let now_ns = self.game.world.state.machine.now_ns;
            if now_ns >= end_ns {
                break;
            }
            self.game.run(end_ns - now_ns);
        }
        let index = self.place().expect("it runs");
        self.game.world.state.bells[self.bell.id].take();
        let source = Source::Bell(self.bell);
        let rung = CheckedTerm { product: 0, source, operator: TermOperator::AtLeast, value: 1 };
        self.game.world.state.processors[self.driver].predicate.push(rung);
        self.game.world.enter(index, Call::Sleep(Sleep { terms: 0, term_count: 0 }));
    }
}

/// The waits after interrupts that come at random, one after `pace_ns` in the mean, on any processor: all, sorted.
fn waits(keys: u64, cpu_count: usize, (pace_ns, service_ns): (u64, u64), others: &[Actor]) -> Vec<u64> {
    let mut all = Vec::new();
    for key in 0..keys {
        let mut driven = Driven::new(key, cpu_count, others);
        let mut random = Keyed::new([key, 7]);
        driven.wait();
        driven.serve(service_ns);
        // What was missed before is for the first ones.
        driven.game.run(50 * MS);
        for _ in 0..ROUNDS {
            driven.game.run(1 + random.below(2 * pace_ns));
            driven.game.world.interrupt(random.below(cpu_count as u64) as usize, 0, 0);
            all.push(driven.wait());
            driven.serve(service_ns);
        }
    }
    all.sort_unstable();
    all
}

/// That part of the waits is no longer.
fn part(all: &[u64], per_cent: usize) -> u64 {
    all[(all.len() * per_cent).div_ceil(100) - 1]
}

/// Whatever the pace of the interrupts, if the part of the driver pays for what it does: it waits for no other's slice.
#[test]
fn a_device_interrupt_is_served_at_once() {
    for cpu_count in [1, 2, 4] {
        for (pace_ns, service_ns) in [(13 * MS, 20_000), (2 * MS, 20_000), (MS, 20_000), (MS / 2, 10_000)] {
            let all = waits(KEYS, cpu_count, (pace_ns, service_ns), &[Actor::Honest; 10]);
            let (median, most) = (part(&all, 50), part(&all, 99));
            assert!(most <= 2 * MS, "{cpu_count}, {pace_ns}, {service_ns}: median {median}, most {most}");
            assert!(pace_ns < MS || median <= 100_000, "{cpu_count}, {pace_ns}, {service_ns}: median {median}");
        }
    }
}

/// Others that wake all the time, each with a part of its own, keep it waiting no longer than one win for each.
#[test]
fn those_that_wake_often_keep_nobody_waiting() {
    for wakers in [[Actor::Sleeping(20_000, MS / 10); 8], [Actor::Sleeping(5_000, MS / 40); 8]] {
        for cpu_count in [1, 2] {
            let mut others = vec![Actor::Honest; 10];
            others.extend(wakers);
            let all = waits(KEYS / 3, cpu_count, (5 * MS, 20_000), &others);
            let (median, most) = (part(&all, 50), part(&all, 99));
            assert!(most <= 9 * MS, "{wakers:?} {cpu_count}: median {median}, most {most}");
        }
    }
}
