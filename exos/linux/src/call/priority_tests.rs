//! Priorities and policies that are kept, namespaces that are not there, policies of memory, hanging up.

use exos::error::Errno::{E2BIG, EBADF, EFAULT, EINVAL, ENODEV, EOPNOTSUPP, EPERM, ESRCH};
use syscalls::Sysno;

use crate::abi::bytes::{Encoder, get};
use crate::testing::calls::{NOWHERE, World};

/// `struct sched_attr`: policy, flags, nice, priority.
fn attributes(world: &World, size: u32, policy: u32, flags: u64, nice: i32, priority: u32) -> u64 {
    let encoder = Encoder::new().u32(size).u32(policy).u64(flags).u32(nice as u32).u32(priority);
    world.put(&encoder.zero_to(64).finish())
}

#[test]
fn attributes_of_scheduling_are_kept() {
    let world = World::new();
    let room = world.room(64);
    let set = |attributes| world.call(Sysno::sched_setattr, [0, attributes, 0]);
    assert_eq!(set(attributes(&world, 48, 3, 1, 7, 0)), Ok(0));
    assert_eq!(world.call(Sysno::sched_getattr, [0, room, 64, 0]), Ok(0));
    let found = world.get(room, 56);
    assert_eq!((get::u32(&found, 0), get::u32(&found, 4), get::u64(&found, 8), get::u32(&found, 16)), (56, 3, 1, 7));
    assert_eq!(world.call(Sysno::getpriority, [0, 0]), Ok(13));
    assert_eq!(world.call(Sysno::sched_getscheduler, [0]), Ok(0x4000_0003));
    assert_eq!(set(attributes(&world, 48, 77, 8 | 0x10, -20, 0)), Ok(0), "policy and nice value are kept");
    assert_eq!(world.call(Sysno::sched_getscheduler, [0]), Ok(0x4000_0003));
    assert_eq!(world.call(Sysno::getpriority, [0, 0]), Ok(13));
    assert_eq!(set(attributes(&world, 48, 0, 0, 99, 0)), Ok(0), "cut to 19");
    assert_eq!(world.call(Sysno::getpriority, [0, 0]), Ok(1));
}

#[test]
fn wrong_attributes_of_scheduling_are_refused() {
    let world = World::new();
    let set = |attributes| world.call(Sysno::sched_setattr, [0, attributes, 0]);
    let small = attributes(&world, 47, 0, 0, 0, 0);
    assert_eq!(set(small), Err(E2BIG));
    assert_eq!(get::u32(&world.get(small, 4), 0), 56, "what it could have been is told");
    let long = Encoder::new().u32(64).zero_to(60).u32(1).finish();
    assert_eq!(set(world.put(&long)), Err(E2BIG));
    assert_eq!(set(attributes(&world, 64, 0, 0, 0, 0)), Ok(0), "more, but nothing in it");
    assert_eq!(set(attributes(&world, 48, 0, 0x20, 0, 0)), Err(EINVAL));
    assert_eq!(set(attributes(&world, 56, 0, 0x20, 0, 0)), Err(EOPNOTSUPP));
    assert_eq!(set(attributes(&world, 48, 0, 0x80, 0, 0)), Err(EINVAL));
    assert_eq!(set(attributes(&world, 48, 0, 0, 0, 1)), Err(EINVAL));
    assert_eq!(set(attributes(&world, 48, 1, 0, 0, 0)), Err(EINVAL));
    assert_eq!(set(attributes(&world, 48, 1, 0, 0, 5)), Err(EPERM));
    assert_eq!(set(attributes(&world, 48, 4, 0, 0, 0)), Err(EINVAL));
    assert_eq!((set(0), set(NOWHERE)), (Err(EINVAL), Err(EFAULT)));
    let room = world.room(64);
    for (tid, size, flags, error) in [(0, 47, 0, EINVAL), (0, 4097, 0, EINVAL), (0, 48, 1, EINVAL), (99, 48, 0, ESRCH)]
    {
        assert_eq!(world.call(Sysno::sched_getattr, [tid, room, size, flags]), Err(error));
    }
}

#[test]
fn priorities_of_input_and_output_are_kept() {
    let world = World::new();
    let set = |which, who, priority| world.call(Sysno::ioprio_set, [which, who, priority]);
    let of = |which| world.call(Sysno::ioprio_get, [which, 0]);
    assert_eq!(of(1), Ok(0));
    assert_eq!(of(2), Ok(2 << 13 | 4), "follows from the nice value");
    assert_eq!(set(1, 0, 2 << 13 | 5), Ok(0));
    assert_eq!((of(1), of(3)), (Ok(2 << 13 | 5), Ok(2 << 13 | 5)));
    assert_eq!(set(3, 0, 1 << 13 | 1), Ok(0), "with the right to");
    assert_eq!(of(1), Ok(1 << 13 | 1));
    assert_eq!((set(1, 0, 3), set(1, 0, 5 << 13)), (Err(EINVAL), Err(EINVAL)));
    assert_eq!(set(1, 0, 2 << 13 | 8), Ok(0), "a hint beside the level 0");
    assert_eq!((set(4, 0, 0), set(1, 99, 0), of(4)), (Err(EINVAL), Err(ESRCH), Err(EINVAL)));
    assert_eq!(set(1, 0, 0), Ok(0));
    assert_eq!(of(1), Ok(0));
}

#[test]
fn policies_of_memory_are_those_of_one_node() {
    let world = World::new();
    let (mode, mask) = (world.room(8), world.room(16));
    let get_policy = |mask, bits, address, flags| world.call(Sysno::get_mempolicy, [mode, mask, bits, address, flags]);
    let told = || (get::u32(&world.get(mode, 4), 0), get::u64(&world.get(mask, 8), 0));
    assert_eq!(get_policy(mask, 65, 0, 0), Ok(0));
    assert_eq!(told(), (0, 0));
    assert_eq!(get_policy(mask, 65, 0, 4), Ok(0));
    assert_eq!(told(), (0, 1));
    let nodes = world.put(&3_u64.to_le_bytes());
    assert_eq!(world.call(Sysno::set_mempolicy, [3, nodes, 65]), Ok(0));
    assert_eq!(get_policy(mask, 65, 0, 0), Ok(0));
    assert_eq!(told(), (3, 1));
    assert_eq!(get_policy(mask, 65, 0, 1), Ok(0), "the node that comes next");
    assert_eq!(told().0, 0);
    for (bits, address, flags) in [(0, 0, 0), (65, 0, 8), (65, 0, 5), (65, NOWHERE, 0)] {
        assert_eq!(get_policy(mask, bits, address, flags), Err(EINVAL));
    }
    assert_eq!(get_policy(mask, 65, NOWHERE, 2), Err(EFAULT));
    assert_eq!(world.call(Sysno::set_mempolicy, [2, nodes, 1 << 20]), Err(EINVAL));
    assert_eq!(world.call(Sysno::set_mempolicy, [0, 0, 0]), Ok(0));
    assert_eq!(world.call(Sysno::set_mempolicy, [2, 0, 0]), Err(EINVAL));
}

#[test]
fn pages_are_where_they_can_be() {
    let world = World::new();
    let mapped = world.call(Sysno::mmap, [0, 8192, 3, 0x8022, u64::MAX, 0]).expect("maps");
    let pages = world.put(&[mapped.to_le_bytes(), NOWHERE.to_le_bytes()].concat());
    let (nodes, statuses) = (world.put(&[0; 8]), world.room(8));
    let moved = |count, nodes, flags| world.call(Sysno::move_pages, [0, count, pages, nodes, statuses, flags]);
    assert_eq!((moved(2, 0, 0), moved(2, nodes, 2)), (Ok(0), Ok(0)));
    assert_eq!(world.get(statuses, 8), [[0; 4], (-14_i32).to_le_bytes()].concat());
    assert_eq!((moved(1, 0, 1), moved(1, 0, 4)), (Err(EINVAL), Ok(0)));
    assert_eq!(moved(1, world.put(&[1; 4]), 0), Err(ENODEV));
    let one = world.put(&1_u64.to_le_bytes());
    let migrate = |to| world.call(Sysno::migrate_pages, [0, 65, one, to]);
    assert_eq!((migrate(one), migrate(world.put(&[0; 8]))), (Ok(0), Err(EINVAL)));
    let bind = |start, mode, nodes, flags| world.call(Sysno::mbind, [start, 8192, mode, nodes, 65, flags]);
    assert_eq!((bind(mapped, 2, one, 0), bind(mapped, 0, 0, 1)), (Ok(0), Ok(0)));
    assert_eq!((bind(mapped + 4096, 2, one, 0), bind(NOWHERE, 0, 0, 0)), (Err(EFAULT), Err(EFAULT)));
    assert_eq!((bind(mapped + 1, 2, one, 0), bind(mapped, 2, one, 8)), (Err(EINVAL), Err(EINVAL)));
    let home = |start, node| world.call(Sysno::set_mempolicy_home_node, [start, 4096, node, 0]);
    assert_eq!((home(mapped, 0), home(mapped, 1), home(mapped + 1, 0)), (Ok(0), Err(EINVAL), Err(EINVAL)));
}

#[test]
fn there_are_no_namespaces() {
    let world = World::new();
    let unshare = |flags| world.call(Sysno::unshare, [flags]);
    for flags in [0, 0x100, 0x200, 0x400, 0x800, 0x4_0000, 0x1_0000, 0x4_0600] {
        assert_eq!(unshare(flags), Ok(0), "{flags:x}");
    }
    for (flags, error) in [(1, EINVAL), (0x2_0000, EPERM), (0x400_0000, EINVAL), (0x1000_0000, EINVAL)] {
        assert_eq!(unshare(flags), Err(error), "{flags:x}");
    }
    let own = world.call(Sysno::pidfd_open, [world.pod.process.pid.into(), 0]).expect("opens");
    let join = |descriptor, kinds| world.call(Sysno::setns, [descriptor, kinds]);
    assert_eq!((join(99, 0), join(0, 0x2_0000), join(own, 0)), (Err(EBADF), Err(EINVAL), Err(EINVAL)));
    assert_eq!((join(own, 0x2_0000), join(own, 0x400_0000)), (Err(EPERM), Err(EINVAL)));
}
