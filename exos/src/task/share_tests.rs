//! Shares of tasks: weights, groups and limits, judged as statistics over fixed keys.

use alloc::sync::Arc;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{
    Choice, GROUP_WEIGHT_DEFAULT, GroupId, Limit, NoProcessors, SLICE_NS, Scheduler, Status, Task, WEIGHT_DEFAULT,
};
use crate::error::Errno;

const SEEDS: core::ops::Range<u64> = 0..30;
const SLICES: u64 = 1000;
/// 99 % of a normal distribution are within this many standard deviations.
const DEVIATIONS: f64 = 2.576;
/// Among 30 fair runs more than this many outside of the interval are a chance of one in 300.
const OUTSIDE_MAX: usize = 2;

/// A pod on one processor whose clock is a number.
pub(super) struct Pod {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) now_ns: u64,
    /// All that were made, and what each has used.
    pub(super) tasks: Vec<(Arc<Task>, u64)>,
}

impl Pod {
    pub(super) fn new(seed: u64) -> Self {
        let scheduler = Scheduler::new(1, Arc::new(NoProcessors));
        scheduler.set_key([seed, 17]);
        assert!(scheduler.pick(0, 0).is_none());
        Self { scheduler, now_ns: 0, tasks: Vec::new() }
    }

    pub(super) fn add(&mut self, group: GroupId, weight: u64) -> Arc<Task> {
        let task = self.scheduler.new_task(None);
        task.set_weight(weight);
        task.set_group(group, self.now_ns).expect("the group is there");
        self.scheduler.start(&task);
        self.tasks.push((task.clone(), 0));
        task
    }

    pub(super) fn group(&self, weight: u64) -> GroupId {
        let group = self.scheduler.create_group(GroupId::ROOT).expect("there is room");
        self.scheduler.set_group_funded(group, true).expect("a currency");
        self.scheduler.set_group_weight(group, weight).expect("a weight");
        group
    }

    /// The running task runs on for a time; then there is a tick.
    pub(super) fn pass(&mut self, time_ns: u64) {
        self.scheduler.expire(self.now_ns);
        let Some(current) = self.scheduler.current(0).or_else(|| self.scheduler.pick(0, self.now_ns)) else {
            self.now_ns += time_ns;
            return;
        };
        self.now_ns += time_ns;
        let entry = self.tasks.iter_mut().find(|(task, _)| Arc::ptr_eq(task, &current)).expect("it was made");
        entry.1 += time_ns;
        let _ = self.scheduler.tick(0, self.now_ns);
    }

    /// All tasks compute for `SLICES` slices, after the turns that they began with; answers the first's wins.
    fn share_of_first(&mut self) -> u64 {
        for _ in 0..self.tasks.len() {
            self.pass(SLICE_NS);
        }
        self.tasks.iter_mut().for_each(|(_, used_ns)| *used_ns = 0);
        for _ in 0..SLICES {
            self.pass(SLICE_NS);
        }
        self.tasks[0].1 / SLICE_NS
    }
}

/// Whether wins in `SLICES` draws each, over all seeds, are those of this chance.
pub(super) fn is_fair(wins: &[u64], chance: f64) -> bool {
    let is_within = |won: u64, draws: u64| {
        let (mean, draws) = (draws as f64 * chance, draws as f64);
        (won as f64 - mean).abs() <= DEVIATIONS * (draws * chance * (1.0 - chance)).sqrt() + 1.0
    };
    let outside = wins.iter().filter(|won| !is_within(**won, SLICES)).count();
    outside <= OUTSIDE_MAX && is_within(wins.iter().sum(), SLICES * wins.len() as u64)
}

pub(super) fn wins(make: impl Fn(&mut Pod)) -> Vec<u64> {
    let run = |seed| {
        let mut pod = Pod::new(seed);
        make(&mut pod);
        pod.share_of_first()
    };
    SEEDS.map(run).collect()
}

#[test]
fn turns_are_in_the_ratio_of_weights() {
    for weight in [335, 1024 * 10, 3] {
        let wins = wins(|pod| {
            pod.add(GroupId::ROOT, WEIGHT_DEFAULT);
            pod.add(GroupId::ROOT, weight);
        });
        assert!(is_fair(&wins, 1024.0 / (1024 + weight) as f64), "{weight}: {wins:?}");
    }
}

#[test]
fn the_judge_refuses_what_is_biased() {
    let wins = wins(|pod| {
        pod.add(GroupId::ROOT, WEIGHT_DEFAULT);
        pod.add(GroupId::ROOT, 315);
    });
    assert!(!is_fair(&wins, 1024.0 / (1024.0 + 335.0)), "six per cent off: {wins:?}");
    let mut late = wins.clone();
    late.fill(SLICES * 3 / 4);
    late[..15].fill(SLICES * 3 / 4 + 60);
    late[15..].fill(SLICES * 3 / 4 - 60);
    assert!(!is_fair(&late, 0.75), "right in the mean, but not by draws");
}

#[test]
fn groups_share_by_their_weights_whatever_is_in_them() {
    let wins = wins(|pod| {
        let (first, second) = (pod.group(GROUP_WEIGHT_DEFAULT), pod.group(3 * GROUP_WEIGHT_DEFAULT));
        pod.add(first, 15);
        pod.add(second, 88_761);
    });
    assert!(is_fair(&wins, 0.25), "{wins:?}");
}

#[test]
fn fifty_in_one_group_gain_nothing_over_one_in_another() {
    let wins = wins(|pod| {
        let (first, second) = (pod.group(GROUP_WEIGHT_DEFAULT), pod.group(GROUP_WEIGHT_DEFAULT));
        pod.add(first, WEIGHT_DEFAULT);
        for _ in 0..50 {
            pod.add(second, WEIGHT_DEFAULT);
        }
    });
    assert!(is_fair(&wins, 0.5), "{wins:?}");
}

#[test]
fn a_group_in_a_group_has_a_part_of_its_part() {
    let wins = wins(|pod| {
        let outer = pod.group(GROUP_WEIGHT_DEFAULT);
        let inner = pod.scheduler.create_group(outer).expect("there is room");
        pod.scheduler.set_group_funded(inner, true).expect("a currency");
        pod.add(inner, WEIGHT_DEFAULT);
        pod.add(outer, WEIGHT_DEFAULT);
        pod.add(GroupId::ROOT, WEIGHT_DEFAULT);
    });
    assert!(is_fair(&wins, 0.25), "{wins:?}");
}

#[test]
fn a_group_that_is_not_funded_changes_nothing() {
    let wins = wins(|pod| {
        let outer = pod.group(3 * GROUP_WEIGHT_DEFAULT);
        let inner = pod.scheduler.create_group(outer).expect("there is room");
        pod.add(inner, WEIGHT_DEFAULT);
        pod.add(outer, 2 * WEIGHT_DEFAULT);
        pod.add(GroupId::ROOT, WEIGHT_DEFAULT);
    });
    assert!(is_fair(&wins, 0.25), "{wins:?}");
}

/// Fifty that sleep by turns, and one in a group of the same weight that computes: they have no more than half.
#[test]
fn sleeping_by_turns_wins_a_group_nothing() {
    let mut pod = Pod::new(11);
    let (first, second) = (pod.group(GROUP_WEIGHT_DEFAULT), pod.group(GROUP_WEIGHT_DEFAULT));
    let computer = pod.add(first, WEIGHT_DEFAULT);
    let sleepers: Vec<_> = (0..50).map(|_| pod.add(second, WEIGHT_DEFAULT)).collect();
    for step in 0..40_000 {
        let before = pod.scheduler.current(0);
        pod.pass(SLICE_NS / 4);
        if before.is_some_and(|task| task.is_running() && !Arc::ptr_eq(&task, &computer)) {
            let _ = pod.scheduler.block(0, None, pod.now_ns);
        }
        sleepers[step * 7 % 50].wake_up();
    }
    let part = pod.tasks[0].1 as f64 / pod.now_ns as f64;
    assert!((0.45..0.6).contains(&part), "{part}");
}

/// One gives each turn up just before its end; the other computes.
#[test]
fn yielding_wins_nothing() {
    let mut pod = Pod::new(5);
    let yielder = pod.add(GroupId::ROOT, 2048);
    pod.add(GroupId::ROOT, 2048);
    for _ in 0..SLICES {
        let is_yielder = pod.scheduler.current(0).is_some_and(|task| Arc::ptr_eq(&task, &yielder));
        pod.pass(SLICE_NS / 10 * 9);
        if is_yielder {
            let _ = pod.scheduler.yield_turn(0, pod.now_ns);
        } else {
            pod.pass(SLICE_NS / 10);
        }
    }
    let [yielded_ns, computed_ns] = [0, 1].map(|index: usize| pod.tasks[index].1);
    assert!(yielded_ns <= computed_ns, "{yielded_ns} {computed_ns}");
}

/// One blocks often, for as long as it ran: it keeps what it has left of its turn, and has no more than its part.
#[test]
fn blocking_wins_nothing_and_loses_no_turn() {
    let mut pod = Pod::new(6);
    let sleeper = pod.add(GroupId::ROOT, 2048);
    pod.add(GroupId::ROOT, 2048);
    for _ in 0..20 * SLICES {
        let is_sleeper = pod.scheduler.current(0).is_some_and(|task| Arc::ptr_eq(&task, &sleeper));
        pod.pass(SLICE_NS / 20);
        if is_sleeper && sleeper.is_running() {
            let _ = pod.scheduler.block(0, None, pod.now_ns);
        } else if sleeper.is_blocked() {
            sleeper.wake_up();
        }
    }
    let part = pod.tasks[0].1 as f64 / pod.now_ns as f64;
    // Half of the time is what it can use, and its part.
    assert!((0.2..0.5).contains(&part), "{part}");
}

#[test]
fn a_group_with_a_limit_gets_it_and_no_more() {
    const MS: u64 = 1_000_000;
    for has_other in [false, true] {
        let mut pod = Pod::new(7);
        let group = pod.group(GROUP_WEIGHT_DEFAULT);
        let limit = Limit { quota_ns: 20 * MS, period_ns: 100 * MS };
        pod.scheduler.set_group_limit(group, Some(limit), 0).expect("a limit");
        let inner = pod.scheduler.create_group(group).expect("there is room");
        pod.add(inner, WEIGHT_DEFAULT);
        pod.add(group, WEIGHT_DEFAULT);
        if has_other {
            pod.add(GroupId::ROOT, WEIGHT_DEFAULT);
        }
        for _ in 0..10_000 {
            pod.pass(MS);
        }
        let limited_ns = pod.tasks[0].1 + pod.tasks[1].1;
        assert!(limited_ns.abs_diff(2_000 * MS) <= 20 * MS, "{limited_ns}");
        let usage = pod.scheduler.group_usage(group, pod.now_ns).expect("it is there");
        assert_eq!(usage.used_ns, limited_ns);
        assert!(usage.period_count.abs_diff(100) <= 1 && usage.throttled_count.abs_diff(100) <= 1, "{usage:?}");
        assert!(usage.throttled_ns > 3_000 * MS, "{usage:?}");
        let all = pod.scheduler.group_usage(GroupId::ROOT, pod.now_ns).expect("it is there");
        assert_eq!(all.used_ns, pod.tasks.iter().map(|(_, used_ns)| used_ns).sum::<u64>());
        pod.scheduler.set_group_limit(group, None, pod.now_ns).expect("no limit");
        assert_eq!(pod.scheduler.inner.lock().queues.groups.parked_count(), 0);
    }
}

#[test]
fn without_differences_there_are_rounds_again() {
    let mut pod = Pod::new(8);
    let tasks: Vec<_> = (0..3).map(|_| pod.add(GroupId::ROOT, WEIGHT_DEFAULT)).collect();
    tasks[1].set_weight(5000);
    for _ in 0..100 {
        pod.pass(SLICE_NS);
    }
    tasks[1].set_weight(WEIGHT_DEFAULT);
    let before: Vec<u64> = pod.tasks.iter().map(|(_, used_ns)| *used_ns).collect();
    for _ in 0..300 {
        pod.pass(SLICE_NS);
    }
    for ((_, used_ns), before_ns) in pod.tasks.iter().zip(before) {
        assert!((used_ns - before_ns).abs_diff(100 * SLICE_NS) <= SLICE_NS);
    }
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    let pod = Pod::new(9);
    let group = pod.group(1);
    let inner = pod.scheduler.create_group(group).expect("there is room");
    assert_eq!(pod.scheduler.set_group_weight(inner, 5), Err(Errno::EINVAL));
    let deep = pod.scheduler.create_group(inner).expect("there is room");
    assert_eq!(pod.scheduler.set_group_funded(deep, true), Err(Errno::EINVAL));
    assert_eq!(pod.scheduler.remove_group(deep), Ok(()));
    assert_eq!(pod.scheduler.set_group_funded(inner, true), Ok(()));
    assert_eq!(pod.scheduler.set_group_funded(group, false), Err(Errno::EBUSY));
    assert_eq!(pod.scheduler.set_group_funded(inner, false), Ok(()));
    assert_eq!(pod.scheduler.remove_group(group), Err(Errno::EBUSY));
    assert_eq!(pod.scheduler.remove_group(GroupId::ROOT), Err(Errno::EBUSY));
    assert_eq!(pod.scheduler.set_group_weight(group, 0), Err(Errno::ERANGE));
    assert_eq!(pod.scheduler.set_group_weight(group, u64::MAX), Err(Errno::ERANGE));
    assert_eq!(pod.scheduler.set_group_weight(GroupId::ROOT, 5), Err(Errno::EINVAL));
    let limit = |quota_ns, period_ns| pod.scheduler.set_group_limit(group, Some(Limit { quota_ns, period_ns }), 0);
    assert_eq!((limit(0, 5), limit(5, 0)), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
    assert_eq!(pod.scheduler.remove_group(inner), Ok(()));
    assert_eq!(pod.scheduler.set_group_weight(inner, 5), Err(Errno::ENOENT));
    assert_eq!(pod.scheduler.remove_group(group), Err(Errno::EBUSY));
    assert_eq!(pod.scheduler.set_group_funded(group, false), Ok(()));
    assert_eq!(pod.scheduler.remove_group(group), Ok(()));
    let made = core::iter::from_fn(|| pod.scheduler.create_group(GroupId::ROOT).ok()).take(2000).count();
    assert_eq!(made, super::GROUP_COUNT_MAX - 1);
    assert_eq!(pod.scheduler.create_group(GroupId::ROOT), Err(Errno::EAGAIN));
}

#[derive(Clone, Debug)]
enum Act {
    Add { group: usize, weight: u64 },
    Weigh { task: usize, weight: u64 },
    Move { task: usize, group: usize },
    Limit { group: usize, quota_ns: u64 },
    Fund(bool),
    Wake(usize),
    Block,
    Yield,
    End,
    Fork,
}

fn act() -> impl Strategy<Value = (u64, Act)> {
    let (group, weight) = (0..4_usize, prop_oneof![Just(WEIGHT_DEFAULT), 1..5000_u64]);
    let quota = prop_oneof![Just(0), SLICE_NS / 2..3 * SLICE_NS];
    let what = prop_oneof![
        (group.clone(), weight.clone()).prop_map(|(group, weight)| Act::Add { group, weight }),
        (any::<usize>(), weight).prop_map(|(task, weight)| Act::Weigh { task, weight }),
        (any::<usize>(), group.clone()).prop_map(|(task, group)| Act::Move { task, group }),
        (group, quota).prop_map(|(group, quota_ns)| Act::Limit { group, quota_ns }),
        any::<bool>().prop_map(Act::Fund),
        any::<usize>().prop_map(Act::Wake),
        Just(Act::Block),
        Just(Act::Yield),
        Just(Act::End),
        Just(Act::Fork),
    ];
    (prop_oneof![Just(0), 1..2 * SLICE_NS], what)
}

fn play(pod: &mut Pod, groups: &[GroupId], act: &Act) {
    let scheduler = pod.scheduler.clone();
    let live: Vec<_> = pod.tasks.iter().filter(|(task, _)| status(task) != Status::Ended).collect();
    let chosen = |index: usize| live.get(index % live.len().max(1)).map(|(task, _)| task.clone());
    match *act {
        Act::Add { group, weight } if live.len() < 12 => {
            let _ = pod.add(groups[group], weight);
        }
        Act::Weigh { task, weight } => chosen(task).iter().for_each(|task| task.set_weight(weight)),
        Act::Move { task, group } => {
            if let Some(task) = chosen(task) {
                task.set_group(groups[group], pod.now_ns).expect("the group is there");
            }
        }
        Act::Limit { group, quota_ns } if groups[group] != GroupId::ROOT => {
            let limit = (quota_ns != 0).then_some(Limit { quota_ns, period_ns: 5 * SLICE_NS });
            let _ = scheduler.set_group_limit(groups[group], limit, pod.now_ns);
        }
        Act::Fund(is_funded) => drop(scheduler.set_group_funded(groups[3], is_funded)),
        Act::Wake(task) => chosen(task).iter().for_each(|task| task.wake_up()),
        Act::Block => drop(scheduler.block(0, None, pod.now_ns)),
        Act::Yield => drop(scheduler.yield_turn(0, pod.now_ns)),
        Act::End if live.len() > 3 => drop(scheduler.end(0, pod.now_ns)),
        Act::Fork if live.len() < 12 => {
            if let Some(maker) = scheduler.current(0) {
                let task = scheduler.new_task(Some(&maker));
                scheduler.start(&task);
                pod.tasks.push((task, 0));
            }
        }
        _ => {}
    }
}

fn status(task: &Task) -> Status {
    task.state.get()
}

/// A ready task is in one queue or parked; the lottery's sums are right.
fn check(pod: &Pod) {
    let inner = pod.scheduler.inner.lock();
    let ready = pod.tasks.iter().filter(|(task, _)| status(task) == Status::Ready).count();
    assert_eq!(ready, inner.queues.len() + inner.queues.groups.parked_count());
    assert_eq!(inner.queues.len(), inner.queues.all().count());
    assert!(inner.queues.lots.tables.check());
    let is_uneven = |task: &Task| task.is_uneven() && status(task) != Status::Ended;
    assert_eq!(inner.queues.is_uneven(), pod.tasks.iter().any(|(task, _)| is_uneven(task)));
}

proptest! {
    /// Whatever is done to weights, groups and limits: nobody is lost, and in the end everybody gets some time.
    #[test]
    fn nobody_is_lost(seed in any::<u64>(), acts in proptest::collection::vec(act(), 0..200)) {
        let mut pod = Pod::new(seed);
        let mut groups = alloc::vec![GroupId::ROOT, pod.group(100), pod.group(3000)];
        groups.push(pod.scheduler.create_group(groups[1]).expect("there is room"));
        for (time_ns, act) in &acts {
            pod.pass(*time_ns);
            play(&mut pod, &groups, act);
            check(&pod);
        }
        for group in &groups[1..] {
            pod.scheduler.set_group_limit(*group, None, pod.now_ns).expect("no limit");
        }
        for (task, used_ns) in &mut pod.tasks {
            // With equal weights each waits for a geometric number of draws: here at most one of many.
            if status(task) != Status::Ended {
                task.set_weight(WEIGHT_DEFAULT);
                task.set_group(GroupId::ROOT, pod.now_ns).expect("the pod is there");
                task.wake_up();
            }
            *used_ns = 0;
        }
        for _ in 0..30 {
            pod.pass(SLICE_NS);
        }
        check(&pod);
        for (task, used_ns) in &pod.tasks {
            prop_assert!(*used_ns > 0 || status(task) == Status::Ended);
        }
    }
}

/// A lock's holder may be parked; its waiter looks and yields, and hears no timer.
#[test]
fn yielding_brings_a_parked_task_back() {
    let mut pod = Pod::new(12);
    let group = pod.group(100);
    pod.scheduler.set_group_limit(group, Some(Limit { quota_ns: 1000, period_ns: 10_000 }), 0).expect("a limit");
    let holder = pod.add(group, WEIGHT_DEFAULT);
    assert!(pod.scheduler.pick(0, 0).is_some());
    assert!(matches!(pod.scheduler.tick(0, 1000), Choice::Idle));
    pod.add(GroupId::ROOT, WEIGHT_DEFAULT);
    assert!(pod.scheduler.pick(0, 1000).is_some());
    assert!(matches!(pod.scheduler.yield_turn(0, 9000), Choice::Stay));
    assert!(matches!(pod.scheduler.yield_turn(0, 10_000), Choice::Switch(task) if Arc::ptr_eq(&task, &holder)));
}

#[test]
fn a_choice_says_what_it_is() {
    let pod = Pod::new(10);
    let group = pod.group(100);
    pod.scheduler.set_group_limit(group, Some(Limit { quota_ns: 1000, period_ns: 10_000 }), 0).expect("a limit");
    let task = pod.scheduler.new_task(None);
    task.set_group(group, 0).expect("the group is there");
    pod.scheduler.start(&task);
    assert!(pod.scheduler.pick(0, 0).is_some());
    assert!(matches!(pod.scheduler.tick(0, 900), Choice::Stay));
    assert!(matches!(pod.scheduler.tick(0, 1100), Choice::Idle));
    assert_eq!(pod.scheduler.next_deadline_ns(), Some(10_000));
    pod.scheduler.expire(9_999);
    assert!(pod.scheduler.pick(0, 9_999).is_none());
    pod.scheduler.expire(10_000);
    assert!(pod.scheduler.pick(0, 10_000).is_some());
    // The tenth beyond the limit is taken from this period.
    assert!(matches!(pod.scheduler.tick(0, 10_900), Choice::Idle));
}
