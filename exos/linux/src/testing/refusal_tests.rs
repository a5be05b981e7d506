//! Every family of calls with each of its allocations refused once, and with every number of frames left: the call
//! fails with an error that Linux has for it or does not notice, nothing is lost, and done again it does what it does
//! otherwise. What one call takes of the reserve is bounded (ADR 0035).

use exos::error::Errno::{self, EAGAIN, ENFILE, ENOBUFS, ENOLCK, ENOMEM, ENOSPC};
use exos::error::Result;
use exos::reserve::CALL_BYTES_MAX;
use syscalls::Sysno;

use crate::abi::bytes::Encoder;
use crate::testing::allocator::{Refusal, live_bytes};
use crate::testing::calls::{HERE, World};

const ERRORS: [Errno; 6] = [ENOMEM, ENOSPC, ENFILE, EAGAIN, ENOBUFS, ENOLCK];
/// More than any call allocates that is tried here.
const ALLOCATION_COUNT_MAX: u64 = 2000;
/// How often a refused call is done again.
const REPEAT_COUNT: i64 = 8;
const CREATE: u64 = 0o102;
const MINUS_ONE: u64 = u64::MAX;
/// `PROT_READ | PROT_WRITE`, `MAP_PRIVATE | MAP_ANONYMOUS`.
const WRITABLE: u64 = 3;
const ANONYMOUS: u64 = 0x22;

/// A call, and what is done before it: gives its arguments.
type Case = (Sysno, fn(&World) -> [u64; 6]);

fn file(world: &World, text: &[u8]) -> u64 {
    let file = world.open("/file", CREATE).expect("creates");
    assert_eq!(world.write(file, text), Ok(text.len() as u64));
    assert_eq!(world.call(Sysno::lseek, [file, 0, 0]), Ok(0));
    file
}

/// The name of a file that is there.
fn existing(world: &World) -> u64 {
    file(world, b"x");
    world.path("/file")
}

/// Two descriptors that a call makes.
fn pair(world: &World, number: Sysno, arguments: [u64; 3]) -> [u64; 2] {
    let at = world.room(8);
    let all = if number == Sysno::socketpair { [arguments[0], arguments[1], arguments[2], at] } else { [at, 0, 0, 0] };
    assert_eq!(world.call(number, all), Ok(0));
    [0, 4].map(|place| u64::from(world.get(at + place, 4)[0]))
}

fn pipe(world: &World) -> [u64; 2] {
    pair(world, Sysno::pipe, [0; 3])
}

fn sockets(world: &World, kind: u64) -> [u64; 2] {
    pair(world, Sysno::socketpair, [1, kind, 0])
}

/// The address of a local socket: where it is and how long.
fn address(world: &World, name: &str) -> [u64; 2] {
    [world.put(&[&[1, 0], name.as_bytes(), b"\0"].concat()), name.len() as u64 + 3]
}

fn mapped(world: &World, pages: u64) -> u64 {
    world.call(Sysno::mmap, [0, pages * 4096, WRITABLE, ANONYMOUS, MINUS_ONE, 0]).expect("maps")
}

fn event(world: &World) -> u64 {
    world.call(Sysno::eventfd2, [0u64, 0]).expect("makes")
}

fn listener(world: &World) -> u64 {
    let socket = world.call(Sysno::socket, [1u64, 1, 0]).expect("makes");
    let [at, length] = address(world, "/socket");
    assert_eq!(world.call(Sysno::bind, [socket, at, length]), Ok(0));
    assert_eq!(world.call(Sysno::listen, [socket, 8]), Ok(0));
    socket
}

const FILES: &[Case] = &[
    (Sysno::open, |world| [world.path("/new"), CREATE, 0o644, 0, 0, 0]),
    (Sysno::openat, |world| [HERE, existing(world), 0, 0, 0, 0]),
    (Sysno::mkdir, |world| [world.path("/directory"), 0o755, 0, 0, 0, 0]),
    (Sysno::mknod, |world| [world.path("/fifo"), 0o010_644, 0, 0, 0, 0]),
    (Sysno::symlink, |world| [world.path(&"target/".repeat(500)), world.path("/link"), 0, 0, 0, 0]),
    (Sysno::link, |world| [existing(world), world.path("/other"), 0, 0, 0, 0]),
    (Sysno::rename, |world| [existing(world), world.path("/other"), 0, 0, 0, 0]),
    (Sysno::unlink, |world| [existing(world), 0, 0, 0, 0, 0]),
    (Sysno::write, |world| [file(world, b"x"), world.room(20_000), 20_000, 0, 0, 0]),
    (Sysno::pwrite64, |world| [file(world, b"x"), world.room(100), 100, 1 << 30, 0, 0]),
    (Sysno::read, |world| [file(world, &[1; 9000]), world.room(9000), 9000, 0, 0, 0]),
    (Sysno::ftruncate, |world| [file(world, &[1; 9000]), 100, 0, 0, 0, 0]),
    (Sysno::fallocate, |world| [file(world, b"x"), 0, 0, 40_000, 0, 0]),
    (Sysno::getdents64, |world| {
        file(world, b"x");
        [world.open("/", 0).expect("opens"), world.room(4096), 4096, 0, 0, 0]
    }),
    (Sysno::setxattr, |world| {
        file(world, b"x");
        [world.path("/file"), world.path("user.name"), world.room(3000), 3000, 0, 0]
    }),
    (Sysno::chdir, |world| [world.path("/"), 0, 0, 0, 0, 0]),
    (Sysno::stat, |world| [world.path("/"), world.room(144), 0, 0, 0, 0]),
    (Sysno::dup, |world| [file(world, b"x"), 0, 0, 0, 0, 0]),
    (Sysno::dup2, |world| [file(world, b"x"), 200, 0, 0, 0, 0]),
    (Sysno::fcntl, |world| {
        let lock = Encoder::new().u16(1).u16(0).u32(0).u64(10).u64(5).u64(0).finish();
        [file(world, b"x"), 6, world.put(&lock), 0, 0, 0]
    }),
    (Sysno::flock, |world| [file(world, b"x"), 2, 0, 0, 0, 0]),
    (Sysno::sendfile, |world| [pipe(world)[1], file(world, &[1; 9000]), 0, 9000, 0, 0]),
    (Sysno::memfd_create, |world| [world.path("memory"), 0, 0, 0, 0, 0]),
];

const STREAMS: &[Case] = &[
    (Sysno::pipe2, |world| [world.room(8), 0, 0, 0, 0, 0]),
    (Sysno::write, |world| [pipe(world)[1], world.room(9000), 9000, 0, 0, 0]),
    (Sysno::splice, |world| {
        let [from, to] = [pipe(world), pipe(world)];
        assert_eq!(world.write(from[1], &[7; 5000]), Ok(5000));
        [from[0], 0, to[1], 0, 5000, 0]
    }),
    (Sysno::tee, |world| {
        let [from, to] = [pipe(world), pipe(world)];
        assert_eq!(world.write(from[1], &[7; 5000]), Ok(5000));
        [from[0], to[1], 5000, 0, 0, 0]
    }),
    (Sysno::socket, |_| [1, 1, 0, 0, 0, 0]),
    (Sysno::socketpair, |world| [1, 1, 0, world.room(8), 0, 0]),
    (Sysno::sendto, |world| [sockets(world, 1)[0], world.room(9000), 9000, 0x40, 0, 0]),
    (Sysno::sendto, |world| [sockets(world, 2)[0], world.room(9000), 9000, 0x40, 0, 0]),
    (Sysno::bind, |world| {
        let [at, length] = address(world, "/socket");
        [world.call(Sysno::socket, [1u64, 1, 0]).expect("makes"), at, length, 0, 0, 0]
    }),
    (Sysno::connect, |world| {
        listener(world);
        let [at, length] = address(world, "/socket");
        [world.call(Sysno::socket, [1u64, 1, 0]).expect("makes"), at, length, 0, 0, 0]
    }),
    (Sysno::accept4, |world| {
        let server = listener(world);
        let [at, length] = address(world, "/socket");
        let client = world.call(Sysno::socket, [1u64, 1, 0]).expect("makes");
        assert_eq!(world.call(Sysno::connect, [client, at, length]), Ok(0));
        [server, 0, 0, 0, 0, 0]
    }),
    (Sysno::eventfd2, |_| [0; 6]),
    (Sysno::timerfd_create, |_| [1, 0, 0, 0, 0, 0]),
    (Sysno::signalfd4, |world| [MINUS_ONE, world.room(8), 8, 0, 0, 0]),
    (Sysno::epoll_create1, |_| [0; 6]),
    (Sysno::epoll_ctl, |world| {
        let set = world.call(Sysno::epoll_create1, [0u64]).expect("makes");
        [set, 1, event(world), world.put(&[1; 12]), 0, 0]
    }),
    (Sysno::poll, |world| {
        let wanted = Encoder::new().u32(event(world) as u32).u16(4).u16(0).finish();
        [world.put(&wanted), 1, 0, 0, 0, 0]
    }),
    (Sysno::inotify_init1, |_| [0; 6]),
    (Sysno::inotify_add_watch, |world| {
        [world.call(Sysno::inotify_init1, [0u64]).expect("makes"), world.path("/"), 0xfff, 0, 0, 0]
    }),
];

const OTHERS: &[Case] = &[
    (Sysno::mmap, |_| [0, 8192, WRITABLE, ANONYMOUS, MINUS_ONE, 0]),
    (Sysno::mmap, |world| [0, 8192, 1, 2, file(world, &[1; 9000]), 0]),
    (Sysno::munmap, |world| [mapped(world, 5) + 8192, 4096, 0, 0, 0, 0]),
    (Sysno::mprotect, |world| [mapped(world, 5) + 8192, 4096, 1, 0, 0, 0]),
    (Sysno::mremap, |world| [mapped(world, 5), 5 * 4096, 50 * 4096, 1, 0, 0]),
    (Sysno::madvise, |world| [mapped(world, 5), 4096, 4, 0, 0, 0]),
    (Sysno::mlock, |world| [mapped(world, 5), 8192, 0, 0, 0, 0]),
    (Sysno::timer_create, |world| [1, 0, world.room(8), 0, 0, 0]),
    (Sysno::rt_sigaction, |world| [10, world.room(32), 0, 8, 0, 0]),
    (Sysno::rt_sigqueueinfo, |world| {
        assert_eq!(world.call(Sysno::rt_sigprocmask, [0, world.put(&[0xff; 8]), 0, 8]), Ok(0));
        let info = Encoder::new().u32(40).u32(0).u32(MINUS_ONE as u32).zero_to(128).finish();
        [u64::from(world.pod.process.pid), 40, world.put(&info), 0, 0, 0]
    }),
    (Sysno::setgroups, |world| [1000, world.room(4000), 0, 0, 0, 0]),
    (Sysno::shmget, |_| [0, 9000, 0o1600, 0, 0, 0]),
    (Sysno::shmat, |world| [world.call(Sysno::shmget, [0u64, 9000, 0o1600]).expect("makes"), 0, 0, 0, 0, 0]),
    (Sysno::semget, |_| [0, 200, 0o1600, 0, 0, 0]),
    (Sysno::semop, |world| {
        let set = world.call(Sysno::semget, [0u64, 2, 0o1600]).expect("makes");
        // With an undoing.
        [set, world.put(&[0, 0, 1, 0, 0, 0x10]), 1, 0, 0, 0]
    }),
    (Sysno::msgget, |_| [0, 0o1600, 0, 0, 0, 0]),
    (Sysno::msgsnd, |world| {
        let queue = world.call(Sysno::msgget, [0u64, 0o1600]).expect("makes");
        [queue, world.put(&[1; 4008]), 4000, 0o4000, 0, 0]
    }),
    (Sysno::mq_open, |world| [world.path("queue"), CREATE, 0o600, 0, 0, 0]),
    (Sysno::mq_timedsend, |world| {
        let queue = world.call(Sysno::mq_open, [world.path("queue"), CREATE, 0o600, 0]).expect("makes");
        [queue, world.room(4000), 4000, 1, 0, 0]
    }),
];

fn all() -> impl Iterator<Item = Case> {
    [FILES, STREAMS, OTHERS].into_iter().flatten().copied()
}

fn unhindered((number, prepare): Case) -> Result<u64> {
    let world = World::new();
    world.call(number, prepare(&world))
}

/// A refused call says so and has done nothing: done again it does what it would have done.
///
/// Where something is mapped is chance.
fn judge(what: &str, number: Sysno, expected: Result<u64>, result: Result<u64>, again: Option<Result<u64>>) {
    let is_address = matches!(number, Sysno::mmap | Sysno::mremap | Sysno::shmat);
    let told = |result: Result<u64>| result.map(|value| if is_address { 0 } else { value });
    let (expected, result, again) = (told(expected), told(result), again.map(told));
    match result {
        Err(error) => {
            assert!(ERRORS.contains(&error), "{what}: {error:?}");
            assert_eq!(again, Some(expected), "{what}: after {error:?}");
        }
        // Less at a time is an answer, too.
        Ok(value) => assert!(Ok(value) == expected || expected.is_ok_and(|all| value < all), "{what}: {value}"),
    }
}

/// A call whose allocations end after `count`: what it answers, and whether there was an end.
fn refused(world: &World, number: Sysno, arguments: [u64; 6], count: u64) -> (Result<u64>, bool) {
    let refusal = Refusal::after(count);
    let result = world.call(number, arguments);
    let taken = refusal.taken();
    drop(refusal);
    if let Some((bytes, large_count)) = taken {
        let what = alloc::format!("{number} after {count} allocations: {bytes} bytes and {large_count} tables");
        assert!(bytes <= CALL_BYTES_MAX && large_count <= 1, "{what}");
    }
    (result, taken.is_some())
}

/// Tries a call with its allocations ending after `count`; whether there was an end.
fn try_refused((number, prepare): Case, expected: Result<u64>, count: u64) -> bool {
    let what = alloc::format!("{number} after {count} allocations");
    let world = World::new();
    let arguments = prepare(&world);
    let (result, was_refused) = refused(&world, number, arguments, count);
    let mut again = None;
    if result.is_err() {
        // Whatever it made is gone: many times as much as once.
        let before = live_bytes();
        again = (0..REPEAT_COUNT).map(|_| refused(&world, number, arguments, count).0).find(Result::is_ok);
        let kept = live_bytes() - before;
        assert!(again.is_some() || kept < REPEAT_COUNT, "{what}: it keeps {kept} bytes of {REPEAT_COUNT} calls");
        again = again.or_else(|| Some(world.call(number, arguments)));
    }
    judge(&what, number, expected, result, again);
    was_refused
}

/// Run by the test below, alone in a process.
#[test]
#[ignore = "changes the reserve of the whole process"]
fn each_allocation_is_refused_alone() {
    for case in all() {
        let expected = unhindered(case);
        assert!(expected.is_ok(), "{}: {expected:?}", case.0);
        let refusal_count = (0..ALLOCATION_COUNT_MAX).find(|count| !try_refused(case, expected, *count));
        let refusal_count = refusal_count.expect("a call comes to an end");
        std::println!("{}: {refusal_count} allocations", case.0);
    }
}

#[test]
fn each_allocation_of_each_call_can_be_refused() {
    let own = std::env::current_exe().expect("a test has a program");
    let name = "testing::refusal_tests::each_allocation_is_refused_alone";
    let ended = std::process::Command::new(own).args(["--exact", name, "--ignored", "--nocapture"]).output();
    let ended = ended.expect("it starts");
    let text = std::string::String::from_utf8_lossy(&ended.stdout).into_owned();
    let errors = std::string::String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success() && text.contains("1 passed"), "{text}{errors}");
}

#[test]
fn each_frame_of_each_call_can_be_refused() {
    for case in all() {
        let expected = unhindered(case);
        for left in 0..4 {
            let what = alloc::format!("{} with {left} frames", case.0);
            let take_all = |world: &World| {
                let pool = &world.pod.system.pool;
                world.machine.set_frame_limit(pool.statistics().held);
                let frames: alloc::vec::Vec<_> = core::iter::from_fn(|| pool.allocate_ref().ok()).collect();
                frames.into_iter().skip(left).collect::<alloc::vec::Vec<_>>()
            };
            let world = World::new();
            let arguments = (case.1)(&world);
            let frames = take_all(&world);
            let result = world.call(case.0, arguments);
            drop(frames);
            world.machine.set_frame_limit(u64::MAX);
            let again = result.is_err().then(|| world.call(case.0, arguments));
            judge(&what, case.0, expected, result, again);
        }
    }
}
