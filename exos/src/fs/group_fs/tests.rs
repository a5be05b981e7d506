//! The rules and the formats, against a pod whose processes are numbers.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::tree::{ControlGroups, GroupProvider, MemoryUse, ROOT};
use super::{Text, weight_of};
use crate::error::{Errno, Result};
use crate::sync::Mutex;
use crate::task::schedule::{GroupId, Holder, NoProcessors, Scheduler};

struct Numbers {
    scheduler: Arc<Scheduler>,
    /// Where each process is.
    places: Mutex<BTreeMap<u32, u64>>,
}

impl GroupProvider for Numbers {
    fn memory(&self) -> Result<MemoryUse> {
        let (current, anonymous, guaranteed, limit) = (5000, 2000, 8000, 9000);
        let (structures, stacks, end_count, killed_count) = (70, 30, 4, 2);
        Ok(MemoryUse { current, anonymous, guaranteed, limit, structures, stacks, end_count, killed_count })
    }

    fn now_ns(&self) -> u64 {
        0
    }
    fn scheduler(&self) -> Result<Arc<Scheduler>> {
        Ok(self.scheduler.clone())
    }
    fn processes(&self, group: u64) -> Vec<u32> {
        self.places.lock().iter().filter(|(_, place)| **place == group).map(|(process, _)| *process).collect()
    }
    fn threads(&self, group: u64) -> Vec<u32> {
        self.processes(group)
    }
    fn attach(&self, process: u32, group: u64, _: GroupId) -> Result<()> {
        *self.places.lock().get_mut(&process.max(1)).ok_or(Errno::ESRCH)? = group;
        Ok(())
    }
}

struct World(Arc<ControlGroups>, Arc<Scheduler>);

impl World {
    fn new() -> Self {
        let places = Mutex::new(BTreeMap::from([(1, ROOT), (2, ROOT)]));
        let scheduler = Scheduler::new(1, Arc::new(NoProcessors));
        Self(ControlGroups::new(Arc::new(Numbers { scheduler: scheduler.clone(), places })), scheduler)
    }

    fn make(&self, group: u64, name: &str) -> Result<u64> {
        self.0.lock().make(group, name.as_bytes())
    }

    fn remove(&self, group: u64, name: &str) -> Result<()> {
        self.0.lock().remove(group, name.as_bytes())
    }

    fn read(&self, group: u64, text: Text) -> Result<String> {
        text.make(group, &self.0.lock())
    }

    fn write(&self, group: u64, text: Text, value: &str) -> Result<()> {
        text.take(group, &mut self.0.lock(), value)
    }
}

#[test]
fn texts_are_where_they_say() {
    for (index, row) in Text::ALL.iter().enumerate() {
        assert_eq!(row.1 as usize, index, "{}", row.0);
        assert_eq!(Text::of(row.0.as_bytes()), Some(row.1));
    }
}

#[test]
fn a_group_has_the_files_of_the_controllers_that_it_gets() {
    let world = World::new();
    let group = world.make(ROOT, "a").unwrap();
    assert_eq!(world.read(group, Text::Weight), Err(Errno::ENODEV));
    assert_eq!(world.read(group, Text::Controllers).unwrap(), "");
    assert_eq!(world.read(ROOT, Text::Controllers).unwrap(), "cpu\n");
    assert_eq!(world.read(ROOT, Text::Type), Err(Errno::ENODEV));
    world.write(ROOT, Text::Control, "+cpu").unwrap();
    assert_eq!(world.read(ROOT, Text::Control).unwrap(), "cpu\n");
    assert_eq!(world.read(group, Text::Controllers).unwrap(), "cpu\n");
    assert_eq!(world.read(group, Text::Weight).unwrap(), "100\n");
    assert_eq!(world.read(group, Text::WeightNice).unwrap(), "0\n");
    assert_eq!(world.read(group, Text::Max).unwrap(), "max 100000\n");
    let expected = "usage_usec 0\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
    assert_eq!(world.read(group, Text::CpuStatistics).unwrap(), expected);
    assert_eq!(world.read(ROOT, Text::CpuStatistics).unwrap(), "usage_usec 0\nuser_usec 0\nsystem_usec 0\n");
    world.write(group, Text::Weight, "250").unwrap();
    world.write(ROOT, Text::Control, "-cpu").unwrap();
    world.write(ROOT, Text::Control, "+cpu -cpu +cpu").unwrap();
    assert_eq!(world.read(group, Text::Weight).unwrap(), "100\n", "forgotten with the controller");
}

#[test]
fn weights_and_limits_are_checked() {
    let world = World::new();
    world.write(ROOT, Text::Control, "+cpu").unwrap();
    let group = world.make(ROOT, "a").unwrap();
    let weigh = |value: &str| world.write(group, Text::Weight, value);
    assert_eq!((weigh("0"), weigh("10001"), weigh("x")), (Err(Errno::ERANGE), Err(Errno::ERANGE), Err(Errno::EINVAL)));
    for weight in [1, 2, 99, 100, 101, 200, 333, 9999, 10_000] {
        weigh(&format!("{weight}")).unwrap();
        assert_eq!(world.read(group, Text::Weight).unwrap(), format!("{weight}\n"));
    }
    let nice = |value| world.write(group, Text::WeightNice, value);
    assert_eq!((nice("20"), nice("-21"), nice("")), (Err(Errno::ERANGE), Err(Errno::ERANGE), Err(Errno::EINVAL)));
    nice("5").unwrap();
    assert_eq!(world.read(group, Text::WeightNice).unwrap(), "5\n");
    assert_eq!(world.read(group, Text::Weight).unwrap(), "33\n");
    let limit = |value| world.write(group, Text::Max, value);
    for wrong in ["", "x", "5 x", "999", "20000 999", "20000 1000001", "18446744073709551615"] {
        assert_eq!(limit(wrong), Err(Errno::EINVAL), "{wrong}");
    }
    assert_eq!(world.read(group, Text::Max).unwrap(), "max 100000\n", "what is refused changes nothing");
    limit("20000").unwrap();
    assert_eq!(world.read(group, Text::Max).unwrap(), "20000 100000\n");
    limit("max 50000").unwrap();
    assert_eq!(world.read(group, Text::Max).unwrap(), "max 50000\n");
    assert_eq!(weight_of(1), 1);
}

#[test]
fn groups_with_something_in_them_stay() {
    let world = World::new();
    let group = world.make(ROOT, "a").unwrap();
    let inner = world.make(group, "b").unwrap();
    assert_eq!((world.make(ROOT, "a"), world.make(ROOT, "x\ny")), (Err(Errno::EEXIST), Err(Errno::EINVAL)));
    assert_eq!(world.remove(ROOT, "a"), Err(Errno::EBUSY));
    assert_eq!(world.remove(ROOT, "c"), Err(Errno::ENOENT));
    world.write(inner, Text::Processes, "2").unwrap();
    assert_eq!(world.remove(group, "b"), Err(Errno::EBUSY));
    assert_eq!(world.read(group, Text::Events).unwrap(), "populated 1\nfrozen 0\n");
    assert_eq!(world.read(inner, Text::Processes).unwrap(), "2\n");
    assert_eq!(world.0.path(inner).unwrap(), b"/a/b");
    world.write(ROOT, Text::Processes, "2").unwrap();
    assert_eq!(world.read(group, Text::Events).unwrap(), "populated 0\nfrozen 0\n");
    assert_eq!(world.read(ROOT, Text::Statistics).unwrap(), "nr_descendants 2\nnr_dying_descendants 0\n");
    world.remove(group, "b").unwrap();
    world.remove(ROOT, "a").unwrap();
    assert_eq!((world.0.path(inner), world.0.path(ROOT).unwrap()), (None, b"/".to_vec()));
    assert_eq!(world.read(inner, Text::Events), Err(Errno::ENODEV));
    assert_eq!(world.make(group, "d"), Err(Errno::ENOENT));
}

#[test]
fn what_is_refused_ends_no_limit_and_no_weight() {
    let world = World::new();
    world.write(ROOT, Text::Control, "+cpu").unwrap();
    let (first, second) = (world.make(ROOT, "a").unwrap(), world.make(ROOT, "b").unwrap());
    for group in [first, second] {
        world.write(group, Text::Max, "20000").unwrap();
        world.write(group, Text::Weight, "300").unwrap();
    }
    let issuer = Holder::Group(world.0.at_path(b"b").unwrap());
    let ticket = world.1.issue_ticket(0, 10, &issuer).unwrap();
    assert_eq!(world.remove(ROOT, "b"), Err(Errno::EBUSY));
    assert_eq!(world.write(ROOT, Text::Control, "-cpu"), Err(Errno::EBUSY));
    for group in [first, second] {
        assert_eq!(world.read(group, Text::Max).unwrap(), "20000 100000\n");
        assert_eq!(world.read(group, Text::Weight).unwrap(), "300\n");
    }
    world.1.remove_ticket(0, ticket).unwrap();
    world.remove(ROOT, "b").unwrap();
    world.write(ROOT, Text::Control, "-cpu").unwrap();
    world.write(ROOT, Text::Control, "+cpu").unwrap();
    assert_eq!(world.read(first, Text::Max).unwrap(), "max 100000\n", "what was set is forgotten");
}

#[test]
fn who_cannot_be_moved_is_told_why() {
    let world = World::new();
    let group = world.make(ROOT, "a").unwrap();
    let attach = |value| world.write(group, Text::Processes, value);
    assert_eq!((attach("x"), attach("-1"), attach("99")), (Err(Errno::EINVAL), Err(Errno::EINVAL), Err(Errno::ESRCH)));
    attach("0").unwrap();
    assert_eq!(world.read(group, Text::Processes).unwrap(), "1\n", "the caller's");
    assert_eq!(world.write(group, Text::Threads, "1"), Ok(()));
    assert_eq!(world.write(group, Text::Threads, "2"), Err(Errno::EOPNOTSUPP));
    assert_eq!(world.write(group, Text::Type, "threaded"), Err(Errno::EOPNOTSUPP));
    assert_eq!(world.write(group, Text::Type, "x"), Err(Errno::EINVAL));
}

#[test]
fn processes_are_not_beside_groups_that_are_controlled() {
    let world = World::new();
    let group = world.make(ROOT, "a").unwrap();
    let inner = world.make(group, "b").unwrap();
    let control = |group, value| world.write(group, Text::Control, value);
    assert_eq!((control(group, "+cpu"), control(ROOT, "+io")), (Err(Errno::ENOENT), Err(Errno::EINVAL)));
    control(ROOT, "+cpu").unwrap();
    control(group, "+cpu").unwrap();
    assert_eq!(control(ROOT, "-cpu"), Err(Errno::EBUSY));
    // Nobody is below, so it becomes one whose groups could only hold threads of its processes.
    world.write(group, Text::Processes, "2").unwrap();
    assert_eq!(world.read(group, Text::Type).unwrap(), "domain threaded\n");
    assert_eq!(world.read(inner, Text::Type).unwrap(), "domain invalid\n");
    assert_eq!(world.write(inner, Text::Processes, "1"), Err(Errno::EOPNOTSUPP));
    assert_eq!(control(inner, "+cpu"), Err(Errno::EOPNOTSUPP));
    world.write(ROOT, Text::Processes, "2").unwrap();
    world.write(inner, Text::Processes, "1").unwrap();
    assert_eq!(world.write(group, Text::Processes, "2"), Err(Errno::EBUSY));
    control(group, "-cpu").unwrap();
    world.write(group, Text::Processes, "2").unwrap();
    assert_eq!(control(group, "+cpu"), Err(Errno::EBUSY));
}

#[test]
fn groups_are_at_most_so_many_and_so_deep() {
    let world = World::new();
    let mut at = ROOT;
    let depth = core::iter::from_fn(|| world.make(at, "d").ok().inspect(|next| at = *next)).take(100).count();
    assert_eq!((depth, world.make(at, "d")), (31, Err(Errno::EAGAIN)));
    let count = (0..2000).map_while(|index| world.make(ROOT, &format!("g{index}")).ok()).count();
    assert_eq!((count, world.make(ROOT, "x")), (1023 - 31, Err(Errno::EAGAIN)));
}

#[test]
fn the_root_tells_the_memory_of_the_pod() {
    let world = World::new();
    assert_eq!(world.read(ROOT, Text::MemoryCurrent), Ok(String::from("5000\n")));
    assert_eq!(world.read(ROOT, Text::MemoryMin), Ok(String::from("8000\n")));
    assert_eq!(world.read(ROOT, Text::MemoryMax), Ok(String::from("9000\n")));
    assert_eq!(world.read(ROOT, Text::MemoryHigh), Ok(String::from("max\n")));
    let events = world.read(ROOT, Text::MemoryEvents).unwrap();
    assert!(events.contains("oom 4\noom_kill 2\n"), "{events}");
    let statistics = world.read(ROOT, Text::MemoryStatistics).unwrap();
    assert!(statistics.starts_with("anon 2000\nfile 3000\nkernel 100\n"), "{statistics}");
    let group = world.make(ROOT, "g").unwrap();
    assert_eq!(world.read(group, Text::MemoryCurrent), Err(Errno::ENODEV));
    assert_eq!(world.write(ROOT, Text::MemoryMax, "1"), Err(Errno::EINVAL));
}
