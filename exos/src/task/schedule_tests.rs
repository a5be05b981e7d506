//! The scheduler against a model of what may be lost: wakes, tasks, kicks.

use alloc::sync::Arc;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{Choice, Processors, SLICE_NS, Scheduler, Status, TICK_NS, Task};
use crate::sync::Mutex;

#[derive(Default)]
struct Notice {
    kicked: Mutex<Vec<usize>>,
    armed: Mutex<Vec<u64>>,
    slices: Mutex<Vec<(usize, u64)>>,
}

impl Processors for Notice {
    fn kick(&self, index: usize) {
        self.kicked.lock().push(index);
    }
    fn arm(&self, deadline_ns: u64) {
        self.armed.lock().push(deadline_ns);
    }
    fn arm_slice(&self, index: usize, within_ns: u64) {
        self.slices.lock().push((index, within_ns));
    }
}

fn world(processor_count: usize) -> (Arc<Scheduler>, Arc<Notice>) {
    let told = Arc::new(Notice::default());
    (Scheduler::new(processor_count, told.clone()), told)
}

fn switched(choice: Choice) -> Arc<Task> {
    match choice {
        Choice::Switch(task) => task,
        Choice::Stay => panic!("stays"),
        Choice::Idle => panic!("idles"),
    }
}

#[test]
fn a_wake_before_the_block_is_not_lost() {
    let (scheduler, _) = world(1);
    let task = scheduler.new_task(None);
    scheduler.adopt(0, &task);
    task.wake_up();
    assert!(matches!(scheduler.block(0, None, 0), Choice::Stay));
    assert!(matches!(scheduler.block(0, None, 0), Choice::Idle));
    task.wake_up();
    assert!(Arc::ptr_eq(&scheduler.pick(0, 0).unwrap(), &task));
}

#[test]
fn two_take_turns_and_a_sleeper_comes_back_in_time() {
    let (scheduler, told) = world(1);
    let (first, second) = (scheduler.new_task(None), scheduler.new_task(None));
    scheduler.adopt(0, &first);
    assert!(matches!(scheduler.tick(0, 0), Choice::Stay));
    scheduler.start(&second);
    assert_eq!(*told.slices.lock(), [(0, TICK_NS)]);
    assert!(Arc::ptr_eq(&switched(scheduler.tick(0, 0)), &second));
    assert!(Arc::ptr_eq(&switched(scheduler.block(0, Some(100), 0)), &first));
    assert_eq!((told.armed.lock().clone(), scheduler.next_deadline_ns()), (alloc::vec![100], Some(100)));
    scheduler.expire(99);
    assert!(second.is_blocked());
    scheduler.expire(100);
    assert!(Arc::ptr_eq(&switched(scheduler.end(0, 0)), &second));
    assert_eq!(scheduler.next_deadline_ns(), None);
}

#[test]
fn time_that_others_had_is_not_charged() {
    let (scheduler, _) = world(1);
    let (first, second) = (scheduler.new_task(None), scheduler.new_task(None));
    scheduler.adopt(0, &first);
    scheduler.start(&second);
    assert!(Arc::ptr_eq(&switched(scheduler.tick(0, 0)), &second));
    // More than a turn has passed, of which a tenth was the task's own: it goes on.
    scheduler.forgive(0, SLICE_NS, SLICE_NS + SLICE_NS / 10);
    assert!(matches!(scheduler.tick(0, SLICE_NS + SLICE_NS / 10), Choice::Stay));
    // No more is forgiven than has passed.
    scheduler.forgive(0, u64::MAX, SLICE_NS + SLICE_NS / 5);
    assert!(matches!(scheduler.tick(0, SLICE_NS + SLICE_NS / 5), Choice::Stay));
    assert!(Arc::ptr_eq(&switched(scheduler.tick(0, 3 * SLICE_NS)), &first));
}

#[test]
fn affinity_decides_who_is_told_and_who_runs() {
    let (scheduler, told) = world(2);
    assert!(scheduler.pick(0, 0).is_none() && scheduler.pick(1, 0).is_none());
    let task = scheduler.new_task(None);
    task.set_affinity(2);
    scheduler.start(&task);
    assert_eq!(told.kicked.lock().clone(), [1]);
    assert!(scheduler.pick(0, 0).is_none());
    assert!(scheduler.pick(1, 0).is_some());
    task.set_affinity(1);
    assert!(matches!(scheduler.tick(1, 0), Choice::Idle));
    assert!(scheduler.pick(0, 0).is_some());
}

#[test]
fn a_task_that_may_only_run_elsewhere_is_passed_on() {
    let (scheduler, told) = world(3);
    let (mover, other) = (scheduler.new_task(None), scheduler.new_task(None));
    scheduler.adopt(0, &mover);
    scheduler.adopt(1, &other);
    assert!(scheduler.pick(2, 0).is_none());
    mover.set_affinity(4);
    assert_eq!(told.kicked.lock().drain(..).collect::<Vec<_>>(), [0], "it runs where it may not any more");
    assert!(idles(scheduler.yield_turn(0, 0)));
    assert_eq!(told.kicked.lock().drain(..).collect::<Vec<_>>(), [2], "nobody else can go on with it");
    mover.set_affinity(2);
    assert_eq!(told.slices.lock().drain(..).collect::<Vec<_>>(), [(1, SLICE_NS)], "that one is busy");
    mover.set_affinity(1);
    assert_eq!(told.kicked.lock().drain(..).collect::<Vec<_>>(), [0], "it waits, and that one has nothing to do");
    assert!(Arc::ptr_eq(&scheduler.pick(0, 0).unwrap(), &mover));
}

#[test]
fn an_interrupt_reaches_a_running_task_where_it_runs() {
    let (scheduler, told) = world(2);
    let task = scheduler.new_task(None);
    scheduler.adopt(1, &task);
    task.interrupt();
    assert_eq!(told.kicked.lock().clone(), [1]);
    assert!(matches!(scheduler.block(1, None, 0), Choice::Stay));
}

fn idles(choice: Choice) -> bool {
    matches!(choice, Choice::Idle)
}

#[derive(Clone, Debug)]
enum Act {
    Start,
    Wake(usize),
    Block(usize, Option<u64>),
    Tick(usize, u64),
    Yield(usize),
    End(usize),
    Pick(usize),
    Expire(u64),
    Pin(usize, u64),
}

fn act() -> impl Strategy<Value = Act> {
    let processor = 0..3_usize;
    prop_oneof![
        Just(Act::Start),
        (0..20_usize).prop_map(Act::Wake),
        (processor.clone(), proptest::option::of(0..50_u64)).prop_map(|(p, at)| Act::Block(p, at)),
        (processor.clone(), 0..3 * SLICE_NS).prop_map(|(p, now_ns)| Act::Tick(p, now_ns)),
        processor.clone().prop_map(Act::Yield),
        processor.clone().prop_map(Act::End),
        processor.prop_map(Act::Pick),
        (0..60_u64).prop_map(Act::Expire),
        (0..20_usize, 1..8_u64).prop_map(|(index, mask)| Act::Pin(index, mask)),
    ]
}

proptest! {
    /// Each task is in one place, and a ready task that an idle processor may run has had that processor told.
    #[test]
    fn nobody_is_lost_or_twice(acts in proptest::collection::vec(act(), 0..200)) {
        let (scheduler, told) = world(3);
        let mut tasks: Vec<Arc<Task>> = Vec::new();
        // Processors that sleep in the kernel: told since they found nothing, or not.
        let mut asleep = [false; 3];
        for act in acts {
            match act {
                Act::Start if tasks.len() < 20 => {
                    let task = scheduler.new_task(None);
                    scheduler.start(&task);
                    tasks.push(task);
                }
                Act::Start => {}
                Act::Wake(index) => tasks.get(index).into_iter().for_each(|task| task.wake_up()),
                Act::Block(p, at) if scheduler.current(p).is_some() => asleep[p] = idles(scheduler.block(p, at, 0)),
                Act::Tick(p, now_ns) if scheduler.current(p).is_some() => asleep[p] = idles(scheduler.tick(p, now_ns)),
                Act::Yield(p) if scheduler.current(p).is_some() => asleep[p] = idles(scheduler.yield_turn(p, 0)),
                Act::End(p) if scheduler.current(p).is_some() => asleep[p] = idles(scheduler.end(p, 0)),
                Act::Pick(p) if scheduler.current(p).is_none() => asleep[p] = scheduler.pick(p, 0).is_none(),
                Act::Expire(now_ns) => scheduler.expire(now_ns),
                Act::Pin(index, mask) => tasks.get(index).into_iter().for_each(|task| task.set_affinity(mask)),
                _ => {}
            }
            for processor in told.kicked.lock().drain(..) {
                asleep[processor] = false;
            }
            let inner = scheduler.inner.lock();
            for task in &tasks {
                let ready = inner.queues.all().filter(|other| Arc::ptr_eq(other, task)).count();
                let seated = inner.seats.iter().filter_map(|seat| seat.current.as_ref());
                let current = seated.filter(|other| Arc::ptr_eq(other, task)).count();
                let sleeping = inner.sleepers.values().filter(|other| Arc::ptr_eq(other, task)).count();
                let expected = match task.state.get() {
                    Status::Ready => (1, 0, 0),
                    Status::Running(_) => (0, 1, 0),
                    Status::Blocked { deadline_ns } => (0, 0, usize::from(deadline_ns.is_some())),
                    Status::New | Status::Ended => (0, 0, 0),
                };
                prop_assert_eq!((ready, current, sleeping), expected);
            }
            // Work is left waiting only if a processor that may do it is busy or has been told.
            for task in inner.queues.all() {
                prop_assert!((0..3).any(|processor| task.may_run_on(processor) && !asleep[processor]));
            }
        }
    }
}
