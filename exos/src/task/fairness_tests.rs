//! How long tasks wait: the scheduler in a simulated machine whose clock is a number, against a naive model of its
//! rules and against the bound that it promises.

use alloc::sync::Arc;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{Choice, Processors, SLICE_NS, Scheduler, Status, TICK_NS, Task};
use crate::sync::Mutex;

const PROCESSOR_COUNT_MAX: usize = 3;
const TASK_COUNT_MAX: usize = 12;

/// What the scheduler asked for and the machine has not done yet.
#[derive(Default)]
struct Wanted {
    kicked: Mutex<Vec<usize>>,
    ticks: Mutex<Vec<(usize, u64)>>,
}

impl Processors for Wanted {
    fn kick(&self, index: usize) {
        self.kicked.lock().push(index);
    }
    fn arm(&self, _: u64) {}
    fn arm_slice(&self, index: usize, within_ns: u64) {
        self.ticks.lock().push((index, within_ns));
    }
}

struct Machine {
    scheduler: Arc<Scheduler>,
    wanted: Arc<Wanted>,
    now_ns: u64,
    processor_count: usize,
    tick_at_ns: [Option<u64>; PROCESSOR_COUNT_MAX],
    /// All that were ever made, and since when each is ready.
    tasks: Vec<(Arc<Task>, Option<u64>)>,
    /// Longest time that a task was ready and did not run.
    longest_wait_ns: u64,
    live_count_max: usize,
}

impl Machine {
    fn new(processor_count: usize) -> Self {
        let wanted = Arc::new(Wanted::default());
        let scheduler = Scheduler::new(processor_count, wanted.clone());
        let mut machine = Self {
            scheduler,
            wanted,
            now_ns: 0,
            processor_count,
            tick_at_ns: [None; PROCESSOR_COUNT_MAX],
            tasks: Vec::new(),
            longest_wait_ns: 0,
            live_count_max: 0,
        };
        for processor in 0..processor_count {
            assert!(machine.scheduler.pick(processor, 0).is_none());
        }
        machine.settle();
        machine
    }

    fn status(task: &Task) -> Status {
        task.state.get()
    }

    fn make(&mut self, maker: Option<&Arc<Task>>, affinity: u64) {
        let live_count = self.tasks.iter().filter(|(task, _)| Self::status(task) != Status::Ended).count();
        if live_count < TASK_COUNT_MAX {
            let task = self.scheduler.new_task(maker);
            task.set_affinity(affinity);
            self.scheduler.start(&task);
            self.tasks.push((task, None));
            self.live_count_max = self.live_count_max.max(live_count + 1);
        }
        self.settle();
    }

    /// Does what was asked for, and looks which tasks wait.
    fn settle(&mut self) {
        loop {
            for (processor, within_ns) in self.wanted.ticks.lock().drain(..) {
                let at_ns = self.now_ns + within_ns;
                let tick = &mut self.tick_at_ns[processor];
                *tick = Some(tick.map_or(at_ns, |before_ns| before_ns.min(at_ns)));
            }
            let Some(processor) = self.wanted.kicked.lock().pop() else { break };
            if self.scheduler.current(processor).is_none() {
                let _ = self.scheduler.pick(processor, self.now_ns);
            }
        }
        for (task, since_ns) in &mut self.tasks {
            if Self::status(task) == Status::Ready {
                let waited_ns = self.now_ns - *since_ns.get_or_insert(self.now_ns);
                self.longest_wait_ns = self.longest_wait_ns.max(waited_ns);
            } else {
                *since_ns = None;
            }
        }
    }

    /// Lets time pass, with every tick when it is due.
    fn pass(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while let Some((at_ns, processor)) =
            (0..self.processor_count).filter_map(|p| Some((self.tick_at_ns[p]?, p))).min()
            && at_ns <= end_ns
        {
            self.now_ns = self.now_ns.max(at_ns);
            self.tick_at_ns[processor] = None;
            let _ = self.scheduler.tick(processor, self.now_ns);
            self.settle();
        }
        self.now_ns = end_ns;
        self.settle();
    }

    fn wake(&mut self, index: usize) {
        if let Some((task, _)) = self.tasks.get(index % self.tasks.len().max(1)) {
            task.wake_up();
        }
        self.settle();
    }

    /// What no task may wait longer than: two rounds and one turn.
    fn bound_ns(&self) -> u64 {
        (2 * self.live_count_max as u64 + 1) * (SLICE_NS + TICK_NS)
    }
}

#[derive(Clone, Debug)]
enum Act {
    Make { affinity: u64 },
    Fork(usize),
    Run,
    Wake(usize),
    Block(usize),
    Yield(usize),
    End(usize),
}

fn act() -> impl Strategy<Value = (u64, Act)> {
    let processor = 0..PROCESSOR_COUNT_MAX;
    let what = prop_oneof![
        (1..8_u64).prop_map(|affinity| Act::Make { affinity }),
        processor.clone().prop_map(Act::Fork),
        Just(Act::Run),
        any::<usize>().prop_map(Act::Wake),
        any::<usize>().prop_map(Act::Wake),
        processor.clone().prop_map(Act::Block),
        processor.clone().prop_map(Act::Yield),
        processor.prop_map(Act::End),
    ];
    (prop_oneof![Just(0), 1..TICK_NS / 10, 1..3 * SLICE_NS], what)
}

fn play(machine: &mut Machine, act: &Act) {
    let (scheduler, now_ns) = (machine.scheduler.clone(), machine.now_ns);
    let current = |processor: usize| scheduler.current(processor % machine.processor_count);
    match *act {
        Act::Make { affinity } => {
            let all = (1 << machine.processor_count) - 1;
            machine.make(None, if affinity & all == 0 { all } else { affinity & all });
        }
        Act::Fork(processor) => {
            if let Some(maker) = current(processor) {
                machine.make(Some(&maker), maker.affinity());
            }
        }
        Act::Run => {}
        Act::Wake(index) => machine.wake(index),
        Act::Block(processor) if current(processor).is_some() => {
            let _ = scheduler.block(processor % machine.processor_count, None, now_ns);
        }
        Act::Yield(processor) if current(processor).is_some() => {
            let _ = scheduler.yield_turn(processor % machine.processor_count, now_ns);
        }
        Act::End(processor) if current(processor).is_some() => {
            let _ = scheduler.end(processor % machine.processor_count, now_ns);
        }
        _ => {}
    }
    machine.settle();
}

proptest! {
    /// Whatever tasks do, no ready one waits longer than the bound.
    #[test]
    fn nobody_starves(processor_count in 1..=PROCESSOR_COUNT_MAX,
                      acts in proptest::collection::vec(act(), 0..300)) {
        let mut machine = Machine::new(processor_count);
        for (time_ns, act) in &acts {
            machine.pass(*time_ns);
            play(&mut machine, act);
        }
        machine.pass(4 * machine.bound_ns());
        prop_assert!(machine.longest_wait_ns <= machine.bound_ns());
    }
}

/// Tasks that never block, and one that wakes every 10 ms for a tenth of a tick: how long it waits each time.
#[test]
fn a_task_that_mostly_sleeps_runs_within_a_tick_beside_any_number_that_compute() {
    let mut machine = Machine::new(1);
    machine.make(None, 1);
    let sleeper = machine.tasks[0].0.clone();
    assert!(matches!(machine.scheduler.block(0, None, 0), Choice::Idle));
    for _ in 0..TASK_COUNT_MAX - 1 {
        machine.make(None, 1);
    }
    for _ in 0..500 {
        machine.pass(10 * TICK_NS);
        machine.wake(0);
        machine.pass(TICK_NS);
        assert!(sleeper.is_running());
        machine.pass(TICK_NS / 10);
        let _ = machine.scheduler.block(0, None, machine.now_ns);
        machine.settle();
    }
    assert!(machine.longest_wait_ns <= machine.bound_ns());
}

/// Two that wake each other for ever and one that computes: each round gives all three their turn.
#[test]
fn a_pair_that_wakes_each_other_does_not_shut_out_a_third() {
    let mut machine = Machine::new(1);
    for _ in 0..3 {
        machine.make(None, 1);
    }
    let mut used_ns = [0; 3];
    for _ in 0..10_000 {
        let current = machine.scheduler.current(0).expect("somebody always runs");
        let index = machine.tasks.iter().position(|(task, _)| Arc::ptr_eq(task, &current)).expect("it was made");
        machine.pass(TICK_NS / 20);
        used_ns[index] += TICK_NS / 20;
        if index < 2 && machine.scheduler.current(0).is_some_and(|now| Arc::ptr_eq(&now, &current)) {
            machine.wake(1 - index);
            let _ = machine.scheduler.block(0, None, machine.now_ns);
            machine.settle();
        }
    }
    assert!(used_ns[2] * 4 > used_ns.iter().sum::<u64>(), "{used_ns:?}");
}

/// A child starts at once beside tasks that compute, but making children wins no time.
#[test]
fn children_share_the_turn_of_their_maker() {
    let mut machine = Machine::new(1);
    for _ in 0..2 {
        machine.make(None, 1);
    }
    let (maker, other) = (machine.tasks[0].0.clone(), machine.tasks[1].0.clone());
    let mut others_ns = 0;
    let step_ns = TICK_NS / 20;
    for _ in 0..10_000 {
        let current = machine.scheduler.current(0).expect("somebody always runs");
        let is_other = Arc::ptr_eq(&current, &other);
        machine.pass(step_ns);
        others_ns += if is_other { step_ns } else { 0 };
        if is_other || !current.is_running() {
            continue;
        }
        if Arc::ptr_eq(&current, &maker) {
            machine.make(Some(&maker), 1);
            let _ = machine.scheduler.block(0, None, machine.now_ns);
        } else {
            maker.wake_up();
            let _ = machine.scheduler.end(0, machine.now_ns);
        }
        machine.settle();
        machine.tasks.retain(|(task, _)| Machine::status(task) != Status::Ended);
    }
    assert!(others_ns * 5 > 2 * 10_000 * step_ns, "{others_ns}");
}

/// The rules for one processor once more, as a list that is searched: a place is when somebody began to wait there.
#[derive(Default)]
struct Model {
    round: u64,
    clock: i64,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Woken(i64),
    Waiting(i64),
    Spent(i64),
    Running,
    Blocked,
}

struct Entry {
    place: Place,
    round: u64,
    left_ns: u64,
}

impl Model {
    fn running(&mut self) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.place == Place::Running)
    }

    fn make(&mut self) {
        self.entries.push(Entry { place: Place::Blocked, round: 0, left_ns: SLICE_NS });
        self.wake(self.entries.len() - 1);
    }

    fn wake(&mut self, index: usize) {
        self.clock += 1;
        let entry = &mut self.entries[index];
        if entry.round < self.round {
            (entry.round, entry.left_ns) = (self.round, SLICE_NS);
        }
        entry.place = if entry.left_ns > 0 { Place::Woken(self.clock) } else { Place::Spent(self.clock) };
    }

    /// The one that runs stops, for one of the other places.
    fn leave(&mut self, place: Place) {
        if let Some(entry) = self.running() {
            entry.place = place;
        }
        self.choose();
    }

    fn choose(&mut self) {
        let Some(first) = self.entries.iter().map(|entry| entry.place).min() else { return };
        if let Place::Spent(_) = first {
            self.round += 1;
            for entry in &mut self.entries {
                if let Place::Spent(at) = entry.place {
                    entry.place = Place::Waiting(at);
                }
            }
            return self.choose();
        }
        let round = self.round;
        if let Place::Woken(_) | Place::Waiting(_) = first
            && let Some(entry) = self.entries.iter_mut().find(|entry| entry.place == first)
        {
            entry.place = Place::Running;
            if entry.round < round {
                (entry.round, entry.left_ns) = (round, SLICE_NS);
            }
        }
    }

    fn tick(&mut self) {
        self.clock += 1;
        let clock = self.clock;
        let is_ready = |entry: &Entry| entry.place < Place::Running;
        let has_woken = self.entries.iter().any(|entry| matches!(entry.place, Place::Woken(_)));
        let has_any = self.entries.iter().any(is_ready);
        let Some(entry) = self.running() else { return };
        let left_ns = entry.left_ns;
        if has_woken || left_ns == 0 && has_any {
            // In front of all that wait: earlier than any time so far.
            self.leave(if left_ns > 0 { Place::Waiting(-clock) } else { Place::Spent(clock) });
        }
    }
}

proptest! {
    /// On one processor the scheduler chooses as the model does.
    #[test]
    fn it_chooses_as_the_model_does(acts in proptest::collection::vec((0..SLICE_NS, 0..6_u8, 0..6_usize), 0..300)) {
        let scheduler = Scheduler::new(1, Arc::new(Wanted::default()));
        let (mut model, mut tasks, mut now_ns) = (Model::default(), Vec::new(), 0);
        for (time_ns, what, index) in acts {
            if let Some(entry) = model.running() {
                entry.left_ns = entry.left_ns.saturating_sub(time_ns);
                now_ns += time_ns;
            }
            // The scheduler learns of the time when it next looks; the model at once.
            let is_busy = scheduler.current(0).is_some();
            match what {
                0 if tasks.len() < 6 => {
                    let task = scheduler.new_task(None);
                    scheduler.start(&task);
                    tasks.push(task);
                    model.make();
                }
                1 | 2 if index < tasks.len() && tasks[index].is_blocked() => {
                    tasks[index].wake_up();
                    model.wake(index);
                }
                3 if is_busy => {
                    let _ = scheduler.tick(0, now_ns);
                    model.tick();
                }
                4 if is_busy => {
                    let _ = scheduler.block(0, None, now_ns);
                    model.leave(Place::Blocked);
                }
                5 if !is_busy => {
                    let _ = scheduler.pick(0, now_ns);
                    model.choose();
                }
                _ => {}
            }
            let runs: Vec<bool> = tasks.iter().map(|task| task.is_running()).collect();
            let expected: Vec<bool> = model.entries.iter().map(|entry| entry.place == Place::Running).collect();
            prop_assert_eq!(runs, expected);
        }
    }
}
