//! Numbers, children and timers as the table of processes knows them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{AT_ONCE, NUMBER_MAX, Processes};
use crate::file::files::ProcessFiles;
use crate::task::identities::Identities;
use crate::task::process::{Birth, Process};
use crate::testing::pod::World;

/// A process that was just made, in a group and a session.
fn born(world: &World, pid: u32, parent: u32, group: u32) -> Arc<Process> {
    let system = &world.pod.system;
    let namespace = &system.files.namespace;
    let identities: Identities = world.pod.process.identities.lock().clone();
    Arc::new(Process::new(Birth {
        pid,
        parent,
        group,
        session: group,
        memory: system.empty_space.clone(),
        files: ProcessFiles::new(namespace, namespace.root().clone()),
        identities,
        start_ns: 0,
    }))
}

fn add(world: &World, processes: &Processes, parent: u32, group: Option<u32>) -> Arc<Process> {
    let pid = processes.take_number().unwrap();
    let process = born(world, pid, parent, group.unwrap_or(pid));
    processes.add(process.clone());
    process
}

fn pids(processes: &[Arc<Process>]) -> Vec<u32> {
    processes.iter().map(|process| process.pid).collect()
}

fn walked(processes: impl Iterator<Item = Arc<Process>>) -> Vec<u32> {
    processes.map(|process| process.pid).collect()
}

#[test]
fn a_number_waits_for_the_group_that_outlives_its_leader() {
    let world = World::new();
    let processes = Processes::default();
    let leader = add(&world, &processes, 0, None);
    let [member, other] = [(); 2].map(|()| add(&world, &processes, leader.pid, Some(leader.pid)));
    let second = add(&world, &processes, 0, None);
    let orphan = add(&world, &processes, 0, Some(second.pid));
    assert_eq!([leader.pid, member.pid, other.pid, second.pid, orphan.pid], [1, 2, 3, 4, 5]);
    processes.remove(leader.pid);
    processes.remove(second.pid);
    // Once around, and each number is given back at once.
    for number in 6..=NUMBER_MAX {
        assert_eq!(processes.take_number(), Ok(number));
        processes.give_number(number);
    }
    // 2, 3 and 5 are processes, 4 is a group. A number below 2 is the first process's alone.
    assert_eq!(processes.take_number(), Ok(6));
    // A leader whose number lies ahead goes, and its group stays.
    let third = born(&world, 9, 0, 9);
    let fourth = born(&world, 8, 0, 9);
    processes.add(third.clone());
    processes.add(fourth);
    processes.remove(third.pid);
    assert_eq!([(); 2].map(|()| processes.take_number().unwrap()), [7, 8]);
    assert_eq!(processes.take_number(), Ok(10), "9 is a group");
    processes.remove(8);
    for number in 11..=NUMBER_MAX {
        assert_eq!(processes.take_number(), Ok(number));
        processes.give_number(number);
    }
    processes.remove(orphan.pid);
    assert_eq!([(); 4].map(|()| processes.take_number().unwrap()), [4, 5, 8, 9], "groups that are gone");
}

#[test]
fn children_go_with_their_parent_to_another() {
    let world = World::new();
    let processes = Processes::default();
    let parent = add(&world, &processes, 0, None);
    let heir = add(&world, &processes, 0, None);
    let children: Vec<_> = (0..5).map(|_| add(&world, &processes, parent.pid, Some(parent.pid))).collect();
    assert_eq!(walked(processes.children_of(parent.pid)), pids(&children));
    processes.remove(children[1].pid);
    processes.set_parent(&children[3], heir.pid);
    processes.set_parent(&children[0], heir.pid);
    assert_eq!(walked(processes.children_of(heir.pid)), pids(&[children[0].clone(), children[3].clone()]));
    assert_eq!(walked(processes.children_of(parent.pid)), pids(&[children[2].clone(), children[4].clone()]));
    assert_eq!(children[3].parent(), heir.pid);
    // One that was waited for is nobody's child, whatever comes later.
    processes.set_parent(&children[1], heir.pid);
    assert_eq!(processes.children_of(heir.pid).count(), 2);
    assert_eq!(processes.in_group(parent.pid).count(), 5);
    processes.set_parent(&children[2], 0);
    processes.remove(parent.pid);
    assert_eq!(processes.children_of(parent.pid).count(), 0);
    assert_eq!(processes.number_count(), 5);
}

#[test]
fn many_children_come_in_parts() {
    let world = World::new();
    let processes = Processes::default();
    let parent = add(&world, &processes, 0, None);
    for count in [AT_ONCE, 2 * AT_ONCE + 5] {
        let before = processes.children_of(parent.pid).count();
        let children: Vec<_> = (before..count).map(|_| add(&world, &processes, parent.pid, None)).collect();
        let seen: Vec<_> = processes.children_of(parent.pid).collect();
        assert_eq!((seen.len(), pids(&seen[before..])), (count, pids(&children)));
    }
    // What goes and comes between two parts, and what comes behind the last one.
    let mut all = processes.all();
    let first: Vec<_> = all.by_ref().take(AT_ONCE).map(|process| process.pid).collect();
    processes.remove(first[0] + AT_ONCE as u32);
    let late = add(&world, &processes, 0, None);
    let rest: Vec<_> = all.by_ref().map(|process| process.pid).collect();
    assert_eq!((rest[0], rest.last()), (first[0] + AT_ONCE as u32 + 1, Some(&late.pid)));
    assert!(all.next().is_none() && add(&world, &processes, 0, None).pid > late.pid && all.next().is_none());
    assert_eq!(processes.made_count(), 2 * AT_ONCE as u64 + 8);
}

#[test]
fn the_timer_looks_at_those_that_have_something_for_it() {
    let world = World::new();
    let processes = Processes::default();
    let sleepers: Vec<_> = (0..3).map(|_| add(&world, &processes, 0, None)).collect();
    assert_eq!(processes.take_timed().count(), 0);
    processes.note_timed(&sleepers[2]);
    processes.note_timed(&sleepers[0]);
    processes.note_timed(&sleepers[2]);
    assert_eq!(walked(processes.take_timed()), [1, 3]);
    assert_eq!(processes.take_timed().count(), 0);
    // What is noted while it looks is looked at the next time.
    processes.note_timed(&sleepers[2]);
    processes.remove(sleepers[2].pid);
    assert_eq!(processes.take_timed().count(), 0);
}
