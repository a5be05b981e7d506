//! Waiting for descriptors: poll, select, epoll, timers and signals as files.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::Errno::{self, EAGAIN, EBADF, EEXIST, EFAULT, EINTR, EINVAL, ELOOP, ENOENT, EPERM};
use exos::fs::description::Description;
use exos::fs::metadata::Timestamp;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};
use syscalls::Sysno;

use crate::abi::bytes::{Encoder, get};
use crate::file::epoll::Epoll;
use crate::task::caller::Restart;
use crate::testing::calls::{NOWHERE, REALTIME_S, START_NS, World};

const IN: u32 = 1;
const OUT: u32 = 4;
const ERROR: u32 = 8;
const HANG_UP: u32 = 0x10;
const INVALID: u32 = 0x20;
const EDGE: u32 = 1 << 31;
const ONE_SHOT: u32 = 1 << 30;
const EXCLUSIVE: u32 = 1 << 28;
const ADD: u64 = 1;
const REMOVE: u64 = 2;
const MODIFY: u64 = 3;
const FOREVER: u64 = u64::MAX;
const MILLISECOND_NS: u64 = 1_000_000;

/// A world with a pipe as descriptors 3 and 4.
fn with_pipe() -> World {
    let world = World::new();
    assert_eq!(world.call(Sysno::pipe2, [world.room(8), 0o4000]), Ok(0));
    world
}

fn description(world: &World, descriptor: u64) -> Arc<Description> {
    world.pod.process.files.get(descriptor).expect("is open")
}

/// Writes to a descriptor while the next call waits.
fn write_during_wait(world: &World, descriptor: u64) {
    let writer = description(world, descriptor);
    world.during_wait(move || {
        assert_eq!(writer.write(&mut &b"x"[..], Timestamp::default()), Ok(1));
    });
}

/// `poll` on pairs of descriptor and events; the answer is the count and the events found.
fn poll(world: &World, wanted: &[(i32, u32)], timeout_ms: u64) -> Result<(u64, Vec<u32>), Errno> {
    let mut bytes = Encoder::new();
    for (descriptor, events) in wanted {
        bytes = bytes.i32(*descriptor).u16(*events as u16).u16(0xffff);
    }
    let address = world.put(&bytes.finish());
    let count = world.call(Sysno::poll, [address, wanted.len() as u64, timeout_ms])?;
    let bytes = world.get(address, wanted.len() * 8);
    let found = bytes.chunks_exact(8).map(|entry| u32::from(get::u16(entry, 6)));
    Ok((count, found.collect()))
}

#[test]
fn poll_tells_what_is_ready_at_once() {
    let world = with_pipe();
    let both = [(3, IN), (4, OUT | 0x100), (-1, IN), (99, IN)];
    assert_eq!(poll(&world, &both, 0), Ok((2, [0, OUT | 0x100, 0, INVALID].into())));
    assert_eq!(world.write(4, b"x"), Ok(1));
    assert_eq!(poll(&world, &[(3, IN | 0x40), (3, OUT)], FOREVER), Ok((1, [IN | 0x40, 0].into())));
    assert_eq!(world.call(Sysno::close, [4u64]), Ok(0));
    assert_eq!(poll(&world, &[(3, 0)], FOREVER), Ok((1, [HANG_UP].into())));
    assert!(world.waits().is_empty());
    world.open("/f", 0o100).expect("creates");
    assert_eq!(poll(&world, &[(4, IN | OUT | 2)], 0), Ok((1, [IN | OUT].into())));
    assert_eq!(world.call(Sysno::poll, [NOWHERE, 1, 0]), Err(EFAULT));
    assert_eq!(world.call(Sysno::poll, [NOWHERE, 1025, 0]), Err(EINVAL));
    assert_eq!(world.call(Sysno::poll, [NOWHERE, 0, 0]), Ok(0));
}

#[test]
fn poll_looks_at_each_of_many() {
    let world = with_pipe();
    let only_path = world.open("/", 0o10_000_000).expect("is there") as i32;
    assert_eq!(world.write(4, b"x"), Ok(1));
    let kinds = [((3, IN), IN), ((-7, IN), 0), ((4, OUT), OUT), ((3, OUT), 0), ((only_path, IN), INVALID)];
    for count in [63, 64, 65, 128, 1001] {
        let (wanted, found): (Vec<_>, Vec<_>) = kinds.iter().copied().cycle().take(count).unzip();
        let ready = found.iter().filter(|found| **found != 0).count() as u64;
        assert_eq!(poll(&world, &wanted, 0), Ok((ready, found)), "{count}");
    }
}

#[test]
fn poll_waits_until_something_comes_or_time_is_up() {
    let world = with_pipe();
    world.during_wait(|| {});
    write_during_wait(&world, 4);
    assert_eq!(poll(&world, &[(3, IN)], 100), Ok((1, [IN].into())));
    let deadline = Some(START_NS + 100 * MILLISECOND_NS);
    assert_eq!(world.waits(), [deadline, deadline]);
    assert_eq!(poll(&world, &[(4, IN)], 100), Ok((0, [0].into())));
    assert_eq!(world.machine_now(), START_NS + 100 * MILLISECOND_NS);
    let process = world.pod.process.clone();
    world.during_wait(move || process.raise(Signal::TERM, SignalInfo::default()));
    assert_eq!(poll(&world, &[(4, IN)], FOREVER), Err(EINTR));
    assert_eq!(*world.restart.lock(), Restart::UnlessHandler);
}

#[test]
fn ppoll_replaces_the_mask_and_tells_what_is_left() {
    let world = with_pipe();
    let entry = world.put(&Encoder::new().i32(3).u16(1).u16(0).finish());
    let timeout = |ns: i64| world.put(&Encoder::new().i64(0).i64(ns).finish());
    let time = timeout(900);
    world.machine.set_now_ns(START_NS);
    let machine = world.machine.clone();
    let writer = description(&world, 4);
    world.during_wait(move || {
        machine.set_now_ns(START_NS + 300);
        assert_eq!(writer.write(&mut &b"x"[..], Timestamp::default()), Ok(1));
    });
    assert_eq!(world.call(Sysno::ppoll, [entry, 1, time, 0, 8]), Ok(1));
    assert_eq!(get::i64(&world.get(time, 16), 8), 600);
    assert_eq!(world.call(Sysno::ppoll, [entry, 1, timeout(-1), 0, 8]), Err(EINVAL));
    assert_eq!(world.call(Sysno::ppoll, [entry, 1, NOWHERE, 0, 8]), Err(EFAULT));
    let mask = world.put(&0u64.to_le_bytes());
    assert_eq!(world.call(Sysno::ppoll, [entry, 1, 0, mask, 4]), Err(EINVAL));
    // A signal that is blocked until then ends the wait, and stays with the mask for its handler.
    let blocked = Signal::USR1.bit();
    world.pod.thread.signals.lock().set_mask(blocked);
    assert_eq!(world.call(Sysno::ppoll, [entry, 1, 0, mask, 8]), Ok(1));
    assert_eq!(world.pod.thread.signals.lock().mask, blocked);
    assert_eq!(world.read(3, 9), Ok(b"x".to_vec()));
    world.pod.process.raise(Signal::USR1, SignalInfo::default());
    // It does so even if there is no time to wait.
    assert_eq!(world.call(Sysno::ppoll, [entry, 1, timeout(0), mask, 8]), Err(EINTR));
    let signals = world.pod.thread.signals.lock();
    assert_eq!((signals.mask.is_empty(), signals.saved_mask), (true, Some(blocked)));
}

#[test]
fn select_counts_bits_in_all_sets() {
    let world = with_pipe();
    let set = |bits: u64| world.put(&bits.to_le_bytes());
    let (readable, writable, exceptional) = (set(1 << 3), set(1 << 4), set(1 << 3));
    let zero = world.put(&[0; 16]);
    let select = |count, timeout| world.call(Sysno::select, [count, readable, writable, exceptional, timeout]);
    assert_eq!(select(5, zero), Ok(1));
    let bits = |address| get::u64(&world.get(address, 8), 0);
    assert_eq!((bits(readable), bits(writable), bits(exceptional)), (0, 1 << 4, 0));
    assert_eq!(world.write(4, b"x"), Ok(1));
    let readable = set(1 << 3);
    let both = |count| world.call(Sysno::select, [count, readable, writable, 0, 0]);
    assert_eq!(both(5), Ok(2));
    assert_eq!((bits(readable), bits(writable)), (1 << 3, 1 << 4));
    // Only the first descriptors are asked for.
    assert_eq!(both(4), Ok(1));
    assert_eq!((bits(readable), bits(writable)), (1 << 3, 0));
    assert_eq!(both(u64::MAX), Err(EINVAL));
    assert_eq!(world.call(Sysno::select, [6, set(1 << 5), 0, 0, zero]), Err(EBADF));
    assert_eq!(world.call(Sysno::select, [6, NOWHERE, 0, 0, zero]), Err(EFAULT));
    let bad = world.put(&Encoder::new().i64(-1).i64(0).finish());
    assert_eq!(world.call(Sysno::select, [0, 0, 0, 0, bad]), Err(EINVAL));
    // Microseconds may be more than a second, and what is left is written back.
    let long = world.put(&Encoder::new().i64(0).i64(2_500_000).finish());
    assert_eq!(world.call(Sysno::select, [0, 0, 0, 0, long]), Ok(0));
    assert_eq!(world.waits(), [Some(START_NS + 2_500 * MILLISECOND_NS)]);
    assert_eq!(world.get(long, 16), [0; 16]);
    let mask = world.put(&Encoder::new().u64(0).u64(8).finish());
    assert_eq!(world.call(Sysno::pselect6, [0, 0, 0, 0, zero, mask]), Ok(0));
}

fn control(world: &World, epoll: u64, operation: u64, descriptor: u64, events: u32) -> Result<u64, Errno> {
    // What the program recognises the entry by is the descriptor times a hundred.
    let event = world.put(&Encoder::new().u32(events).u64(descriptor * 100).finish());
    world.call(Sysno::epoll_ctl, [epoll, operation, descriptor, event])
}

fn wait(world: &World, epoll: u64, count: usize, timeout_ms: u64) -> Result<Vec<(u32, u64)>, Errno> {
    let buffer = world.room(12 * count);
    let found = world.call(Sysno::epoll_wait, [epoll, buffer, count as u64, timeout_ms])?;
    let bytes = world.get(buffer, 12 * found as usize);
    Ok(bytes.chunks_exact(12).map(|event| (get::u32(event, 0), get::u64(event, 4))).collect())
}

#[test]
fn epoll_refuses_what_linux_refuses() {
    let world = with_pipe();
    assert_eq!(world.call(Sysno::epoll_create, [0u64]), Err(EINVAL));
    assert_eq!(world.call(Sysno::epoll_create1, [1u64]), Err(EINVAL));
    assert_eq!(world.call(Sysno::epoll_create1, [0o2_000_000]), Ok(5));
    world.open("/f", 0o100).expect("creates");
    assert_eq!(control(&world, 5, ADD, 3, IN), Ok(0));
    assert_eq!(control(&world, 5, ADD, 3, IN), Err(EEXIST));
    assert_eq!(control(&world, 5, ADD, 6, IN), Err(EPERM));
    assert_eq!(control(&world, 5, ADD, 5, IN), Err(EINVAL));
    assert_eq!(control(&world, 3, ADD, 4, IN), Err(EINVAL));
    assert_eq!(control(&world, 9, ADD, 3, IN), Err(EBADF));
    assert_eq!(control(&world, 5, ADD, 9, IN), Err(EBADF));
    assert_eq!(control(&world, 5, MODIFY, 4, IN), Err(ENOENT));
    assert_eq!(control(&world, 5, REMOVE, 4, IN), Err(ENOENT));
    assert_eq!(control(&world, 5, 9, 4, IN), Err(EINVAL));
    assert_eq!(control(&world, 5, MODIFY, 3, IN | EXCLUSIVE), Err(EINVAL));
    assert_eq!(control(&world, 5, ADD, 4, OUT | EXCLUSIVE), Ok(0));
    assert_eq!(control(&world, 5, MODIFY, 4, OUT), Err(EINVAL));
    assert_eq!(world.call(Sysno::epoll_ctl, [5, ADD, 0, NOWHERE]), Err(EFAULT));
    assert_eq!(world.call(Sysno::epoll_ctl, [5, REMOVE, 4, NOWHERE]), Ok(0));
    for (arguments, error) in [
        ([5, NOWHERE, 0, 0], EINVAL),
        ([5, NOWHERE, u64::MAX, 0], EINVAL),
        ([5, 1 << 60, 1, 0], EFAULT),
        ([9, NOWHERE, 1, 0], EBADF),
        ([3, NOWHERE, 1, 0], EINVAL),
    ] {
        assert_eq!(world.call(Sysno::epoll_wait, arguments), Err(error), "{arguments:?}");
    }
    assert_eq!(world.read(5, 9), Err(EINVAL));
}

#[test]
fn level_triggered_entries_are_told_again_and_in_turn() {
    let world = with_pipe();
    assert_eq!(world.call(Sysno::epoll_create1, [0u64]), Ok(5));
    assert_eq!(control(&world, 5, ADD, 3, IN), Ok(0));
    assert_eq!(wait(&world, 5, 4, 0), Ok(Vec::new()));
    write_during_wait(&world, 4);
    assert_eq!(wait(&world, 5, 4, FOREVER), Ok([(IN, 300)].into()));
    assert_eq!(wait(&world, 5, 4, FOREVER), Ok([(IN, 300)].into()));
    assert_eq!(control(&world, 5, ADD, 4, OUT), Ok(0));
    assert_eq!(wait(&world, 5, 4, FOREVER), Ok([(IN, 300), (OUT, 400)].into()));
    assert_eq!(wait(&world, 5, 1, FOREVER), Ok([(IN, 300)].into()));
    assert_eq!(wait(&world, 5, 1, FOREVER), Ok([(OUT, 400)].into()));
    assert_eq!(wait(&world, 5, 1, FOREVER), Ok([(IN, 300)].into()));
    // An entry goes with the last descriptor of its description.
    assert_eq!(world.call(Sysno::dup, [3u64]), Ok(6));
    assert_eq!(world.call(Sysno::close, [3u64]), Ok(0));
    assert_eq!(wait(&world, 5, 4, FOREVER), Ok([(OUT, 400), (IN, 300)].into()));
    assert_eq!(world.call(Sysno::close, [6u64]), Ok(0));
    assert_eq!(wait(&world, 5, 4, FOREVER), Ok([(OUT | ERROR, 400)].into()));
    assert_eq!(control(&world, 5, MODIFY, 4, 0), Ok(0));
    assert_eq!(wait(&world, 5, 4, FOREVER), Ok([(ERROR, 400)].into()));
    let process = world.pod.process.clone();
    assert_eq!(control(&world, 5, REMOVE, 4, 0), Ok(0));
    world.during_wait(move || process.raise(Signal::TERM, SignalInfo::default()));
    assert_eq!(wait(&world, 5, 4, FOREVER), Err(EINTR));
    assert_eq!(*world.restart.lock(), Restart::Never);
}

#[test]
fn edge_triggered_entries_are_told_once_for_each_change() {
    let world = with_pipe();
    assert_eq!(world.call(Sysno::epoll_create1, [0u64]), Ok(5));
    assert_eq!(control(&world, 5, ADD, 3, IN | EDGE), Ok(0));
    assert_eq!(world.write(4, b"x"), Ok(1));
    assert_eq!(wait(&world, 5, 4, 0), Ok([(IN, 300)].into()));
    assert_eq!(wait(&world, 5, 4, 0), Ok(Vec::new()));
    assert_eq!(world.write(4, b"x"), Ok(1));
    assert_eq!(wait(&world, 5, 4, 0), Ok([(IN, 300)].into()));
    assert_eq!(control(&world, 5, MODIFY, 3, IN | EDGE | ONE_SHOT), Ok(0));
    assert_eq!(wait(&world, 5, 4, 0), Ok([(IN, 300)].into()));
    assert_eq!(world.write(4, b"x"), Ok(1));
    assert_eq!(world.call(Sysno::close, [4u64]), Ok(0));
    // Not even a hang-up is told while it is disarmed.
    assert_eq!(wait(&world, 5, 4, 0), Ok(Vec::new()));
    assert_eq!(control(&world, 5, MODIFY, 3, IN | ONE_SHOT), Ok(0));
    assert_eq!(wait(&world, 5, 4, 0), Ok([(IN | HANG_UP, 300)].into()));
    assert_eq!(wait(&world, 5, 4, 0), Ok(Vec::new()));
}

#[test]
fn entries_whose_descriptions_are_closed_do_not_pile_up() {
    let world = with_pipe();
    assert_eq!(world.call(Sysno::epoll_create1, [0u64]), Ok(5));
    assert_eq!(control(&world, 5, ADD, 3, IN), Ok(0));
    // Counters tell nobody that they are closed.
    for _ in 0..500 {
        assert_eq!(world.call(Sysno::eventfd2, [0u64, 0]), Ok(6));
        assert_eq!(control(&world, 5, ADD, 6, IN), Ok(0));
        assert_eq!(wait(&world, 5, 4, 0), Ok(Vec::new()));
        assert_eq!(world.call(Sysno::close, [6u64]), Ok(0));
    }
    let own = description(&world, 5);
    assert!(own.extension::<Epoll>().is_some_and(|instance| instance.entry_count() <= 64));
    assert_eq!(world.write(4, b"x"), Ok(1));
    assert_eq!(wait(&world, 5, 4, 0), Ok([(IN, 300)].into()));
}

#[test]
fn an_entry_that_was_reported_is_looked_at_again_by_who_looks_next() {
    let world = with_pipe();
    assert_eq!(world.call(Sysno::epoll_create1, [0u64]), Ok(5));
    assert_eq!(control(&world, 5, ADD, 3, IN), Ok(0));
    assert_eq!(control(&world, 5, ADD, 4, OUT), Ok(0));
    assert_eq!(world.write(4, b"x"), Ok(1));
    let own = description(&world, 5);
    let instance = own.extension::<Epoll>().expect("is one");
    // Somebody else looks between this one's count and its registration: it is told.
    let before = instance.queue().told_count();
    assert_eq!(instance.take(1, |_| Ok(())), Ok(1));
    assert_ne!(instance.queue().told_count(), before);
    // One that is alone stays where every look finds it, so nobody need be told.
    let look = || instance.only().map_or_else(|| instance.take(1, |_| Ok(())), |_| Ok(1));
    assert_eq!(control(&world, 5, REMOVE, 4, 0), Ok(0));
    assert_eq!(look(), Ok(1));
    let before = instance.queue().told_count();
    assert_eq!(look(), Ok(1));
    assert_eq!(look(), Ok(1));
    assert_eq!(instance.queue().told_count(), before);
    // A look that finds nothing tells no waiter, so that a thread that finds nothing can sleep.
    assert_eq!(world.read(3, 9), Ok(b"x".to_vec()));
    assert_eq!(look(), Ok(0));
    let before = instance.queue().told_count();
    assert_eq!(look(), Ok(0));
    assert_eq!(instance.queue().told_count(), before);
}

#[test]
fn epoll_instances_watch_one_another_but_not_in_circles() {
    let world = with_pipe();
    for expected in 5..11 {
        assert_eq!(world.call(Sysno::epoll_create1, [0u64]), Ok(expected));
    }
    // From the outermost inwards, so that each addition looks short from below.
    assert_eq!(control(&world, 5, ADD, 6, IN | EDGE), Ok(0));
    assert_eq!(control(&world, 6, ADD, 7, IN), Ok(0));
    assert_eq!(control(&world, 7, ADD, 5, IN), Err(ELOOP));
    assert_eq!(control(&world, 7, ADD, 8, IN), Ok(0));
    assert_eq!(control(&world, 8, ADD, 9, IN), Ok(0));
    assert_eq!(control(&world, 9, ADD, 10, IN), Err(ELOOP));
    assert_eq!(control(&world, 6, REMOVE, 7, IN), Ok(0));
    assert_eq!(control(&world, 9, ADD, 10, IN), Ok(0));
    assert_eq!(control(&world, 6, ADD, 7, IN), Err(ELOOP));
    assert_eq!(control(&world, 9, REMOVE, 10, IN), Ok(0));
    assert_eq!(control(&world, 6, ADD, 7, IN), Ok(0));
    assert_eq!(control(&world, 9, ADD, 3, IN), Ok(0));
    assert_eq!(wait(&world, 5, 4, 0), Ok(Vec::new()));
    write_during_wait(&world, 4);
    assert_eq!(wait(&world, 5, 4, FOREVER), Ok([(IN, 600)].into()));
    assert_eq!(wait(&world, 5, 4, 0), Ok(Vec::new()));
    assert_eq!(poll(&world, &[(6, IN), (5, IN)], 0), Ok((1, [IN, 0].into())));
    assert_eq!(world.write(4, b"y"), Ok(1));
    assert_eq!(wait(&world, 5, 4, 0), Ok([(IN, 600)].into()));
}

#[test]
fn timers_expire_while_others_wait() {
    let world = World::new();
    let create = |clock: u64, flags: u64| world.call(Sysno::timerfd_create, [clock, flags]);
    assert_eq!(create(1, 0), Ok(3));
    assert_eq!(create(0, 0o4000), Ok(4));
    assert_eq!(create(2, 0), Err(EINVAL));
    assert_eq!(create(1, 1), Err(EINVAL));
    let spec = |period: i64, value_s: i64, value_ns: i64| {
        world.put(&Encoder::new().i64(0).i64(period).i64(value_s).i64(value_ns).finish())
    };
    let set = |descriptor: u64, flags: u64, new: u64, old: u64| {
        world.call(Sysno::timerfd_settime, [descriptor, flags, new, old])
    };
    assert_eq!(set(3, 4, spec(0, 1, 0), 0), Err(EINVAL));
    assert_eq!(set(3, 0, spec(-1, 1, 0), 0), Err(EINVAL));
    assert_eq!(set(3, 0, spec(0, 1, 1_000_000_000), 0), Err(EINVAL));
    assert_eq!(set(0, 0, spec(0, 1, 0), 0), Err(EINVAL));
    assert_eq!(set(9, 0, spec(0, 1, 0), 0), Err(EBADF));
    assert_eq!(set(9, 0, NOWHERE, 0), Err(EFAULT));
    assert_eq!(world.read(4, 8), Err(EAGAIN));
    assert_eq!(set(3, 0, spec(100, 0, 250), 0), Ok(0));
    assert_eq!(world.call(Sysno::read, [3, world.room(8), 7]), Err(EINVAL));
    assert_eq!(world.read(3, 8), Ok(1u64.to_le_bytes().to_vec()));
    assert_eq!(world.waits(), [Some(START_NS + 250)]);
    world.machine.set_now_ns(START_NS + 600);
    assert_eq!(world.read(3, 99), Ok(3u64.to_le_bytes().to_vec()));
    let old = world.room(32);
    assert_eq!(world.call(Sysno::timerfd_gettime, [3, old]), Ok(0));
    assert_eq!((get::i64(&world.get(old, 32), 8), get::i64(&world.get(old, 32), 24)), (100, 50));
    assert_eq!(set(3, 0, spec(0, 0, 0), old), Ok(0));
    assert_eq!(get::i64(&world.get(old, 32), 24), 50);
    // An absolute time on the realtime clock, waited for by way of epoll.
    let at_s = REALTIME_S as i64 + 7;
    assert_eq!(set(4, 1, spec(0, at_s, 0), 0), Ok(0));
    assert_eq!(world.call(Sysno::epoll_create1, [0u64]), Ok(5));
    assert_eq!(control(&world, 5, ADD, 4, IN | EDGE), Ok(0));
    assert_eq!(wait(&world, 5, 1, FOREVER), Ok([(IN, 400)].into()));
    assert_eq!(world.machine_now(), 7_000_000_000);
    assert_eq!(wait(&world, 5, 1, 0), Ok(Vec::new()));
    assert_eq!(world.read(4, 8), Ok(1u64.to_le_bytes().to_vec()));
    // One in the past expires at once.
    assert_eq!(set(4, 1, spec(0, 1, 0), 0), Ok(0));
    assert_eq!(wait(&world, 5, 1, FOREVER), Ok([(IN, 400)].into()));
}

#[test]
fn signals_are_read_instead_of_handled() {
    let world = World::new();
    let signals = Signal::USR1.bit().union(Signal::KILL.bit());
    let mask = world.put(&signals.0.to_le_bytes());
    let create = |descriptor: u64, mask: u64, size: u64, flags: u64| {
        world.call(Sysno::signalfd4, [descriptor, mask, size, flags])
    };
    assert_eq!(create(u64::MAX, mask, 4, 0), Err(EINVAL));
    assert_eq!(create(u64::MAX, NOWHERE, 8, 0), Err(EFAULT));
    assert_eq!(create(u64::MAX, mask, 8, 1), Err(EINVAL));
    assert_eq!(create(u64::from(u32::MAX), mask, 8, 0), Ok(3));
    assert_eq!(create(9, mask, 8, 0), Err(EBADF));
    assert_eq!(create(0, mask, 8, 0), Err(EINVAL));
    assert_eq!(create(3, mask, 8, 0), Ok(3));
    world.pod.thread.signals.lock().set_mask(signals);
    let process = world.pod.process.clone();
    world.during_wait(move || {
        let payload = SignalPayload::Sender { pid: 7, uid: 8, value: 0x1_0000_0009 };
        process.raise(Signal::USR1, SignalInfo { code: -1, errno: 0, payload });
    });
    assert_eq!(poll(&world, &[(3, IN)], FOREVER), Ok((1, [IN].into())));
    let info = world.read(3, 300).expect("is there");
    assert_eq!(info.len(), 128);
    assert_eq!((get::u32(&info, 0), get::i32(&info, 8)), (10, -1));
    assert_eq!((get::u32(&info, 12), get::u32(&info, 16)), (7, 8));
    assert_eq!((get::i32(&info, 44), get::u64(&info, 48)), (9, 0x1_0000_0009));
    assert!(!world.pod.process.signals.lock().pending.set().contains(Signal::USR1));
    assert_eq!(world.call(Sysno::read, [3, world.room(8), 127]), Err(EINVAL));
}
