//! Short ways answer what their handlers answer; those that may wait leave to them what a signal interrupts.

use aegis_abi::upcall::UpcallFrame;
use exos::error::Errno::{self, EAGAIN, EBADF, EFAULT, EINTR, EINVAL};
use exos::fs::metadata::Timestamp;
use exos::task::futex::{FutexKey, MATCH_ANY};
use exos::task::signal::{Signal, SignalInfo};
use syscalls::Sysno;

use super::{Answer, Choice, fcntl, futex, getdents64, handled, newfstatat, openat, pread64, read, write};
use crate::task::caller::{Caller, Restart};
use crate::testing::calls::{MEMORY_BASE, MEMORY_BYTES, NOWHERE, World};

const WAIT_PRIVATE: u64 = 128;
const WAKE_PRIVATE: u64 = 129;

type Way = fn(&Caller<'_>, &mut UpcallFrame) -> Answer;

fn by_fast_path(world: &World, way: Way, [rdi, rsi, rdx]: [u64; 3]) -> Answer {
    way(&world.caller(), &mut UpcallFrame { rdi, rsi, rdx, ..UpcallFrame::default() })
}

type ChoosingWay = fn(&Caller<'_>, &mut UpcallFrame) -> Choice;

fn by_choice(world: &World, way: ChoosingWay, [rdi, rsi, rdx, r10]: [u64; 4]) -> Answer {
    let (caller, mut frame) = (world.caller(), UpcallFrame { rdi, rsi, rdx, r10, ..UpcallFrame::default() });
    match way(&caller, &mut frame) {
        Choice::Answer(result) => Some(result),
        Choice::Handler(handler) => handled(&caller, &mut frame, handler),
        Choice::Nothing => None,
    }
}

/// Worlds in which what is written to descriptor 4 is read from 3: a pipe, and stream sockets.
fn with_channels() -> [World; 2] {
    let [pipe, sockets] = [World::new(), World::new()];
    assert_eq!(pipe.call(Sysno::pipe2, [pipe.room(8), 0]), Ok(0));
    assert_eq!(sockets.call(Sysno::socketpair, [1, 1, 0, sockets.room(8)]), Ok(0));
    [pipe, sockets]
}

fn raise_during_wait(world: &World) {
    let process = world.pod.process.clone();
    world.during_wait(move || process.raise(Signal::TERM, SignalInfo::default()));
}

#[test]
fn a_transfer_that_waits_is_done_by_its_short_way() {
    for world in with_channels() {
        let (from, to) = (world.put(b"abc"), world.room(8));
        let writer = world.pod.process.files.get(4).expect("is open");
        world.during_wait(move || assert_eq!(writer.write(&mut &b"x"[..], Timestamp::default()), Ok(1)));
        assert_eq!(by_fast_path(&world, read, [3, to, 8]), Some(Ok(1)));
        assert_eq!((world.get(to, 1), world.waits().len()), (b"x".to_vec(), 1));
        assert_eq!(by_fast_path(&world, write, [4, from, 3]), Some(Ok(3)));
        assert_eq!(by_fast_path(&world, read, [3, to, 8]), Some(Ok(3)));
        assert_eq!((world.get(to, 3), world.waits().len()), (b"abc".to_vec(), 1));
    }
}

#[test]
fn one_that_does_not_wait_says_so_and_so_does_its_handler() {
    let world = World::new();
    assert_eq!(world.call(Sysno::pipe2, [world.room(8), 0o4000]), Ok(0));
    let to = world.room(8);
    assert_eq!(by_fast_path(&world, read, [3, to, 8]), Some(Err(EAGAIN)));
    assert_eq!(world.call(Sysno::read, [3, to, 8]), Err(EAGAIN));
    // The end for writing.
    assert_eq!(by_fast_path(&world, read, [4, to, 8]), Some(Err(EBADF)));
}

#[test]
fn an_interrupted_transfer_is_left_to_its_handler() {
    for world in with_channels() {
        let to = world.room(8);
        raise_during_wait(&world);
        assert_eq!(by_fast_path(&world, read, [3, to, 8]), None);
        // It finds the signal and does not wait again.
        assert_eq!(world.call(Sysno::read, [3, to, 8]), Err(EINTR));
        assert_eq!((*world.restart.lock(), world.waits().len()), (Restart::UnlessHandlerForbids, 1));
        assert_eq!(world.write(4, b"late"), Ok(4));
        assert_eq!(by_fast_path(&world, read, [3, to, 8]), Some(Ok(4)));
    }
}

#[test]
fn a_word_is_waited_for_and_woken() {
    let world = World::new();
    let word = world.put(&7u32.to_le_bytes());
    let system = world.pod.system.clone();
    let key = FutexKey::private(world.pod.process.space_number(), word);
    world.during_wait(move || assert_eq!(system.futexes.wake(key, 1, MATCH_ANY), 1));
    assert_eq!(by_fast_path(&world, futex, [word, WAIT_PRIVATE, 7]), Some(Ok(0)));
    assert_eq!(by_fast_path(&world, futex, [word, WAIT_PRIVATE, 8]), Some(Err(EAGAIN)));
    assert_eq!(by_fast_path(&world, futex, [word + 1, WAIT_PRIVATE, 7]), Some(Err(EINVAL)));
    assert_eq!(by_fast_path(&world, futex, [word, WAKE_PRIVATE, 1]), Some(Ok(0)));
    assert_eq!(by_fast_path(&world, futex, [word + 2, WAKE_PRIVATE, 1]), Some(Err(EINVAL)));
    raise_during_wait(&world);
    assert_eq!(by_fast_path(&world, futex, [word, WAIT_PRIVATE, 7]), None);
    assert_eq!(world.pod.system.futexes.waiter_count(None), 0);
    assert_eq!(world.call(Sysno::futex, [word, WAIT_PRIVATE, 7, 0]), Err(EINTR));
    assert_eq!((world.waits().len(), world.pod.system.futexes.waiter_count(None)), (2, 0));
}

#[test]
fn zeros_are_read_as_by_the_handler() {
    const ACCESSED: u64 = 1;
    const NON_BLOCKING: u64 = 0o4000;
    for path in ["/dev/zero", "/dev/full"] {
        let world = World::new();
        let (zeros, written) = (world.open(path, 0).unwrap(), world.open(path, 1).unwrap());
        let watcher = world.call(Sysno::inotify_init1, [NON_BLOCKING]).unwrap();
        assert_eq!(world.call(Sysno::inotify_add_watch, [watcher, world.path(path), ACCESSED]), Ok(1));
        let end = MEMORY_BASE + MEMORY_BYTES as u64;
        let buffer = world.put(&[7; 5]);
        for (address, length, outcome) in [
            (buffer, 0, Ok(0)),
            (NOWHERE, 0, Ok(0)),
            (NOWHERE, 4, Err(EFAULT)),
            (end - 3, 8, Ok(3)),
            (buffer, 4, Ok(4)),
        ] {
            assert_eq!(world.call(Sysno::read, [zeros, address, length]), outcome);
            let told = world.read(watcher, 256);
            for way in [read, pread64] {
                assert_eq!(by_fast_path(&world, way, [zeros, address, length]), Some(outcome), "{path} {address:#x}");
                // Watchers are told of reads that moved something, and of no others.
                assert_eq!(world.read(watcher, 256), told);
                assert_eq!(told.is_ok(), outcome.is_ok_and(|count| count > 0));
            }
        }
        assert_eq!(world.get(buffer, 5), [0, 0, 0, 0, 7]);
        assert_eq!(by_fast_path(&world, read, [zeros, u64::MAX, 1]), None);
        assert_eq!(world.call(Sysno::read, [zeros, u64::MAX, 1]), Err(EFAULT));
        assert_eq!(by_fast_path(&world, read, [written, buffer, 1]), Some(Err(EBADF)));
        assert_eq!(world.call(Sysno::read, [written, buffer, 1]), Err(EBADF));
    }
    let world = World::new();
    let (nothing, buffer) = (world.open("/dev/null", 0).unwrap(), world.put(&[7; 2]));
    assert_eq!(by_fast_path(&world, read, [nothing, buffer, 2]), Some(Ok(0)));
    assert_eq!(world.get(buffer, 2), [7; 2]);
}

#[test]
fn what_is_asked_of_names_is_answered_as_by_the_handlers() {
    const EMPTY_PATH: u64 = 0x1000;
    const NO_FOLLOW: u64 = 0x100;
    const DUPLICATE: u64 = 0;
    const GET_STATUS: u64 = 3;
    const SET_STATUS: u64 = 4;
    let world = World::new();
    assert_eq!(world.call(Sysno::mkdir, [world.path("/short"), 0o755]), Ok(0));
    let directory = world.open("/short", 0).unwrap();
    let (name, empty) = (world.path("f"), world.path(""));
    let [status, listing] = [world.room(144), world.room(128)];
    assert_eq!(by_choice(&world, openat, [directory, name, 0, 0]), Some(Err(Errno::ENOENT)));
    assert_eq!(by_choice(&world, openat, [directory, name, 0o101, 0o640]), Some(Ok(directory + 1)));
    assert_eq!(by_choice(&world, openat, [99, name, 0, 0]), None);
    assert_eq!(world.call(Sysno::openat, [99, name, 0]), Err(EBADF));
    let file = directory + 1;
    let asked = [(directory, name, NO_FOLLOW), (directory, name, 0), (file, empty, EMPTY_PATH)];
    for (start, path, flags) in asked.into_iter().chain([(directory, name, EMPTY_PATH)]) {
        assert_eq!(by_choice(&world, newfstatat, [start, path, status, flags]), Some(Ok(0)), "{flags:#x}");
        let answered = world.get(status, 144);
        assert_eq!(world.call(Sysno::newfstatat, [start, path, status, flags]), Ok(0));
        assert_eq!((world.get(status, 144), answered[24..28].to_vec()), (answered, 0o100_640_u32.to_le_bytes().into()));
    }
    for (start, path, flags) in [(99, empty, EMPTY_PATH), (file, NOWHERE, EMPTY_PATH), (file, empty, 0)] {
        let answer = by_choice(&world, newfstatat, [start, path, status, flags]);
        let outcome = world.call(Sysno::newfstatat, [start, path, status, flags]);
        assert!(outcome.is_err() && answer.is_none_or(|answer| answer == outcome), "{outcome:?} {answer:?}");
    }
    assert_eq!(by_choice(&world, getdents64, [directory, listing, 128, 0]), Some(Ok(72)));
    assert_eq!(by_choice(&world, getdents64, [directory, listing, 128, 0]), Some(Ok(0)));
    assert_eq!(world.get(listing + 48 + 18, 3), b"\x08f\0");
    assert_eq!(by_choice(&world, fcntl, [file, GET_STATUS, 0, 0]), Some(world.call(Sysno::fcntl, [file, GET_STATUS])));
    assert_eq!(by_choice(&world, fcntl, [file, DUPLICATE, 9, 0]), Some(Ok(9)));
    assert_eq!(by_choice(&world, fcntl, [file, SET_STATUS, 0, 0]), None);
}

#[test]
fn the_status_of_a_name_in_a_directory_is_what_its_handler_says() {
    const NO_FOLLOW: u64 = 0x100;
    let world = World::new();
    for path in ["/short", "/short/below", "/short/gone"] {
        assert_eq!(world.call(Sysno::mkdir, [world.path(path), 0o755]), Ok(0));
    }
    let directory = world.open("/short", 0).unwrap();
    let file = world.open("/short/f", 0o102).unwrap();
    assert_eq!(world.call(Sysno::symlink, [world.path("f"), world.path("/short/link")]), Ok(0));
    assert_eq!(world.call(Sysno::symlink, [world.path("link2"), world.path("/short/link2")]), Ok(0));
    let gone = world.open("/short/gone", 0).unwrap();
    assert_eq!(world.call(Sysno::rmdir, [world.path("/short/gone")]), Ok(0));
    let status = world.room(144);
    let names =
        ["f", "link", "link2", "below", ".", "..", "../short/f", "below/", "f/", "none", "gone", "/short/f", ""];
    for start in [directory, file, gone, 99] {
        for (name, flags) in names.iter().flat_map(|name| [(name, 0), (name, NO_FOLLOW)]) {
            let arguments = [start, world.path(name), status, flags];
            let answer = by_choice(&world, newfstatat, arguments);
            let answered = world.get(status, 144);
            let outcome = world.call(Sysno::newfstatat, arguments);
            // What is not answered by the short way is by the handler.
            assert!(answer.is_none_or(|answer| answer == outcome), "{start} {name} {flags}: {answer:?} {outcome:?}");
            assert!(answer.is_none() || answered == world.get(status, 144), "{start} {name} {flags}");
        }
    }
    // A name that is removed is none for the short way either, nor is one that another is renamed over.
    let name = world.path("f");
    assert_eq!(by_choice(&world, newfstatat, [directory, name, status, 0]), Some(Ok(0)));
    let before = world.get(status, 144);
    assert_eq!(world.call(Sysno::unlink, [world.path("/short/f")]), Ok(0));
    assert_eq!(by_choice(&world, newfstatat, [directory, name, status, 0]), Some(Err(Errno::ENOENT)));
    assert_eq!(world.call(Sysno::rename, [world.path("/short/below"), world.path("/short/f")]), Ok(0));
    assert_eq!(by_choice(&world, newfstatat, [directory, name, status, 0]), Some(Ok(0)));
    assert_ne!(world.get(status, 144), before);
}

#[test]
fn what_a_thread_has_seen_is_closed_and_replaced_by_others() {
    let world = World::new();
    let files = &world.pod.process.files;
    files.note_threads(true);
    assert_eq!(world.call(Sysno::pipe2, [world.room(8), 0o4000]), Ok(0));
    assert_eq!(world.call(Sysno::pipe2, [world.room(8), 0o4000]), Ok(0));
    let (to, from) = (world.room(8), world.put(b"abc"));
    assert_eq!(by_fast_path(&world, write, [4, from, 2]), Some(Ok(2)));
    for _ in 0..2 {
        assert_eq!(by_fast_path(&world, read, [3, to, 1]), Some(Ok(1)));
    }
    // Another's: the second pipe, which is empty, and then nothing.
    assert_eq!(world.call(Sysno::dup2, [5, 3]), Ok(3));
    assert_eq!(by_fast_path(&world, write, [6, from, 3]), Some(Ok(3)));
    assert_eq!(by_fast_path(&world, read, [3, to, 8]), Some(Ok(3)));
    assert_eq!(world.call(Sysno::close, [3]), Ok(0));
    assert_eq!(by_fast_path(&world, read, [3, to, 8]), None);
    assert_eq!(world.call(Sysno::read, [3, to, 8]), Err(EBADF));
    // Nothing is kept open: the first pipe has no reader any more.
    assert_eq!(world.call(Sysno::write, [4, from, 1]), Err(Errno::EPIPE));
    // A number that is taken again.
    assert_eq!(world.call(Sysno::dup, [5]), Ok(3));
    assert_eq!(by_fast_path(&world, write, [6, from, 1]), Some(Ok(1)));
    assert_eq!(by_fast_path(&world, read, [3, to, 8]), Some(Ok(1)));
}
