//! Pipes: order, atomicity, ends, faults.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::{PIPE_BUFFER_BYTES, PIPE_CAPACITY_BYTES, Pipe, PipeEnd, Taken};
use crate::error::Errno;
use crate::fs::block_queue::BLOCK_BYTES;
use crate::fs::open_file::{OpenFile, OpenRequest};
use crate::fs::readiness::{Readiness, Waiter};
use crate::fs::step::Attempt;
use crate::fs::transfer::{Buffer, Destination, SliceDestination, Source};
use crate::fs::{Count, Faulty};
use crate::task::schedule::{NoProcessors, Scheduler};

fn write(end: &PipeEnd, bytes: &[u8]) -> Result<usize, Errno> {
    end.write(0, &mut &bytes[..])
}

fn read(end: &PipeEnd, length: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = Buffer::with_limit(length);
    end.read(0, &mut buffer)?;
    Ok(buffer.bytes)
}

#[test]
fn small_writes_are_whole_or_nothing() {
    let (reader, writer) = PipeEnd::pair(1);
    assert_eq!(read(&reader, 1), Err(Errno::EAGAIN));
    assert_eq!(write(&writer, &[1; PIPE_CAPACITY_BYTES - 100]), Ok(PIPE_CAPACITY_BYTES - 100));
    assert!(!writer.readiness().contains(Readiness::WRITE));
    assert_eq!(write(&writer, &[2; 101]), Err(Errno::EAGAIN));
    assert_eq!(write(&writer, &[2; PIPE_BUFFER_BYTES + 1]), Ok(100));
    assert_eq!(write(&writer, &[2; PIPE_BUFFER_BYTES + 1]), Err(Errno::EAGAIN));
    assert_eq!(read(&reader, PIPE_BUFFER_BYTES).map(|bytes| bytes.len()), Ok(PIPE_BUFFER_BYTES));
    assert!(writer.readiness().contains(Readiness::WRITE));
    assert_eq!(reader.readable_byte_count(), Some(PIPE_CAPACITY_BYTES - PIPE_BUFFER_BYTES));
}

/// Reads straight into memory, as programs do.
fn read_straight(end: &PipeEnd, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let count = end.read(0, &mut SliceDestination::new(&mut bytes))?;
    bytes.truncate(count);
    Ok(bytes)
}

#[test]
fn a_read_gathers_what_lies_in_several_blocks_and_leaves_the_rest() {
    let (reader, writer) = PipeEnd::pair(1);
    for value in [1_u8, 2, 3] {
        assert_eq!(write(&writer, &[value; PIPE_BUFFER_BYTES - 1]), Ok(PIPE_BUFFER_BYTES - 1));
    }
    assert_eq!(read_straight(&reader, 10), Ok(vec![1; 10]));
    let gathered = read_straight(&reader, PIPE_BUFFER_BYTES).unwrap();
    assert_eq!((gathered.len(), gathered.first(), gathered.last()), (PIPE_BUFFER_BYTES, Some(&1), Some(&2)));
    assert_eq!(reader.readable_byte_count(), Some(3 * (PIPE_BUFFER_BYTES - 1) - 10 - PIPE_BUFFER_BYTES));
    assert_eq!(read_straight(&reader, 0), Ok(Vec::new()));
}

#[test]
fn writers_are_told_when_room_comes_back_that_one_could_have_been_refused_for() {
    let (reader, writer) = PipeEnd::pair(1);
    let count = Arc::new(Count::default());
    let waiter: Weak<dyn Waiter> = Arc::<Count>::downgrade(&count);
    let _registration = writer.wait_queue().unwrap().register(waiter, Readiness::WRITE);
    let told = || count.0.load(Ordering::Relaxed);
    for is_straight in [true, false] {
        assert_eq!(write(&writer, &[1; PIPE_CAPACITY_BYTES]), Ok(PIPE_CAPACITY_BYTES));
        let before = told();
        // Up to a whole atomic write of room each read tells; then nobody can be waiting.
        for _ in 0..PIPE_BUFFER_BYTES / 1024 {
            if is_straight { read_straight(&reader, 1024) } else { read(&reader, 1024) }.unwrap();
        }
        assert_eq!(told() - before, PIPE_BUFFER_BYTES / 1024);
        assert_eq!(write(&writer, &[2; PIPE_BUFFER_BYTES]), Ok(PIPE_BUFFER_BYTES));
        read(&reader, PIPE_BUFFER_BYTES).unwrap();
        let before = told();
        read(&reader, PIPE_CAPACITY_BYTES).unwrap();
        assert_eq!((told() - before, reader.readable_byte_count()), (0, Some(0)));
    }
}

#[test]
fn a_reader_that_faults_tells_whoever_found_nothing_meanwhile() {
    let (reader, writer) = PipeEnd::pair(1);
    let count = Arc::new(Count::default());
    let waiter: Weak<dyn Waiter> = Arc::<Count>::downgrade(&count);
    write(&writer, b"abc").unwrap();
    let _registration = writer.wait_queue().unwrap().register(waiter, Readiness::READ);
    let mut nowhere = Faulty { wanted: 9, taken: Vec::new(), good: 0 };
    assert_eq!(reader.read(0, &mut nowhere), Err(Errno::EFAULT));
    assert_eq!((count.0.load(Ordering::Relaxed), read(&reader, 9)), (1, Ok(b"abc".to_vec())));
}

/// Bytes that are only given while nothing can be read.
struct Watched<'a> {
    reader: &'a PipeEnd,
    left: usize,
}

impl Source for Watched<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn take(&mut self, into: &mut [u8]) -> usize {
        assert_eq!(self.reader.readable_byte_count(), Some(0), "half a write is seen");
        self.left -= into.len();
        into.fill(7);
        into.len()
    }
}

#[test]
fn no_reader_finds_half_of_a_write_that_there_is_room_for() {
    let (reader, writer) = PipeEnd::pair(1);
    let mut source = Watched { reader: &reader, left: PIPE_CAPACITY_BYTES + 1 };
    assert_eq!(writer.write(0, &mut source), Ok(PIPE_CAPACITY_BYTES));
    assert_eq!(read(&reader, PIPE_CAPACITY_BYTES + 1), Ok(vec![7; PIPE_CAPACITY_BYTES]));
}

/// Takes bytes only while a writer finds no room.
struct Greedy<'a> {
    writer: &'a PipeEnd,
    left: usize,
}

impl Destination for Greedy<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn put(&mut self, from: &[u8]) -> usize {
        assert_eq!(write(self.writer, &[1]), Err(Errno::EAGAIN), "half of the room is seen");
        self.left -= from.len();
        from.len()
    }
}

#[test]
fn no_writer_finds_half_of_the_room_of_a_read() {
    let (reader, writer) = PipeEnd::pair(1);
    assert_eq!(write(&writer, &[7; PIPE_CAPACITY_BYTES]), Ok(PIPE_CAPACITY_BYTES));
    let mut destination = Greedy { writer: &writer, left: PIPE_CAPACITY_BYTES };
    assert_eq!(reader.read(0, &mut destination), Ok(PIPE_CAPACITY_BYTES));
    assert_eq!(write(&writer, &[7; PIPE_CAPACITY_BYTES]), Ok(PIPE_CAPACITY_BYTES));
}

#[test]
fn what_is_not_used_of_bytes_that_were_taken_goes_back() {
    let (reader, writer) = PipeEnd::pair(1);
    let bytes: Vec<u8> = (0..PIPE_CAPACITY_BYTES).map(|index| (index % 251) as u8).collect();
    assert_eq!(write(&writer, &bytes), Ok(bytes.len()));
    let mut taken = Taken::new(&reader.pipe, 3 * PIPE_BUFFER_BYTES + 1).unwrap();
    let mut first = vec![0; PIPE_BUFFER_BYTES + 10];
    assert_eq!((taken.take(&mut first), taken.remaining()), (first.len(), 2 * PIPE_BUFFER_BYTES - 9));
    assert_eq!((first.as_slice(), write(&writer, &[1])), (&bytes[..first.len()], Err(Errno::EAGAIN)));
    drop(taken);
    assert_eq!(write(&writer, &vec![9; first.len() + 1]), Ok(first.len()));
    let rest = read(&reader, PIPE_CAPACITY_BYTES).unwrap();
    assert_eq!(rest[..bytes.len() - first.len()], bytes[first.len()..]);
    assert!(rest[bytes.len() - first.len()..].iter().all(|byte| *byte == 9));
    assert_eq!(Taken::new(&reader.pipe, 1).err(), Some(Errno::EAGAIN));
    drop(writer);
    assert_eq!(Taken::new(&reader.pipe, 1).map(|taken| taken.remaining()), Ok(0));
}

#[test]
fn ends_tell_each_other() {
    let (reader, writer) = PipeEnd::pair(1);
    write(&writer, b"last").unwrap();
    drop(writer);
    assert_eq!(reader.readiness(), Readiness::READ | Readiness::HANG_UP);
    assert_eq!(read(&reader, 9), Ok(b"last".to_vec()));
    assert_eq!(read(&reader, 9), Ok(Vec::new()));
    let (reader, writer) = PipeEnd::pair(2);
    drop(reader);
    assert_eq!(write(&writer, b"x"), Err(Errno::EPIPE));
    assert_eq!(writer.readiness(), Readiness::WRITE | Readiness::ERROR);
}

#[test]
fn named_pipes_wait_for_their_other_end() {
    let pipe = Pipe::new(3);
    let request = |read, write, non_blocking| OpenRequest { read, write, non_blocking };
    let refused = PipeEnd::open_named(&pipe, request(false, true, true));
    assert_eq!(refused.err(), Some(Errno::ENXIO));
    let reader = PipeEnd::open_named(&pipe, request(true, false, false)).unwrap();
    assert!(!reader.is_connected());
    let writer = PipeEnd::open_named(&pipe, request(false, true, false)).unwrap();
    assert!(reader.is_connected() && writer.is_connected());
    drop(writer);
    assert!(reader.is_connected(), "a writer came and went");
    let both = PipeEnd::open_named(&Pipe::new(4), request(true, true, false)).unwrap();
    assert!(both.is_connected());
    write(&both, b"self").unwrap();
    assert_eq!(read(&both, 4), Ok(b"self".to_vec()));
}

#[test]
fn unnamed_pipes_wait_for_nobody() {
    let (reader, writer) = PipeEnd::pair(5);
    write(&writer, b"left").unwrap();
    drop(writer);
    let pipe = reader.pipe().unwrap().clone();
    let again = PipeEnd::open_unnamed(&pipe, OpenRequest { read: true, write: false, non_blocking: false });
    assert!(again.is_connected(), "every writer has gone, and none will come");
    drop(reader);
    assert_eq!(read(&again, 9), Ok(b"left".to_vec()));
    assert_eq!(read(&again, 9), Ok(Vec::new()));
    drop(again);
    let writer = PipeEnd::open_unnamed(&pipe, OpenRequest { read: false, write: true, non_blocking: true });
    assert!(writer.is_connected());
}

#[test]
fn capacity_changes_keep_the_bytes() {
    let (reader, writer) = PipeEnd::pair(1);
    write(&writer, &[1; 5000]).unwrap();
    read(&reader, 3000).unwrap();
    let pipe = reader.pipe().unwrap();
    assert_eq!(pipe.set_capacity_bytes(1, false), Ok(4096));
    assert_eq!(pipe.set_capacity_bytes(1 << 21, true), Ok(1 << 21));
    assert_eq!(pipe.set_capacity_bytes(1 << 30, true), Err(Errno::ENOMEM));
    assert_eq!(pipe.set_capacity_bytes(70_000, false), Ok(131_072));
    assert_eq!(pipe.set_capacity_bytes(1 << 21, false), Err(Errno::EPERM));
    assert_eq!(write(&writer, &[2; 129_072]), Ok(129_072));
    assert_eq!(pipe.set_capacity_bytes(65_536, false), Err(Errno::EBUSY));
    let all = read(&reader, 200_000).unwrap();
    assert_eq!((all.len(), all[1999], all[2000]), (131_072, 1, 2));
}

proptest! {
    /// Against a queue of bytes: what goes in comes out, in order, also when readers fault.
    #[test]
    fn bytes_stay_in_order(
        steps in proptest::collection::vec((0_u8..3, 0_usize..9000, 0_usize..9000), 1..60),
        seed in any::<u8>(),
    ) {
        let (reader, writer) = PipeEnd::pair(1);
        let mut model: VecDeque<u8> = VecDeque::new();
        let mut next = seed;
        for (kind, first, second) in steps {
            match kind {
                0 => {
                    let bytes: Vec<u8> = (0..first).map(|_| { next = next.wrapping_add(1); next }).collect();
                    let done = match write(&writer, &bytes) {
                        Ok(done) => done,
                        Err(error) => {
                            prop_assert_eq!(error, Errno::EAGAIN);
                            0
                        }
                    };
                    let room = PIPE_CAPACITY_BYTES - model.len();
                    let expected = if first <= PIPE_BUFFER_BYTES && room < first { 0 } else { first.min(room) };
                    prop_assert_eq!(done, expected);
                    model.extend(&bytes[..done]);
                }
                1 => {
                    let expected: Vec<u8> = model.drain(..first.min(model.len())).collect();
                    match read(&reader, first) {
                        Ok(bytes) => prop_assert_eq!(bytes, expected),
                        Err(error) => prop_assert!(error == Errno::EAGAIN && expected.is_empty()),
                    }
                }
                _ => {
                    let mut faulty = Faulty { wanted: first.max(second), taken: Vec::new(), good: first.min(second) };
                    let (good, wanted) = (faulty.good, faulty.wanted.min(model.len()));
                    let done = reader.read(0, &mut faulty).unwrap_or(0);
                    // Whole blocks, or all.
                    prop_assert!(done <= good && (done == wanted || good < wanted && good - done < BLOCK_BYTES));
                    prop_assert_eq!(&faulty.taken[..done], &model.drain(..done).collect::<Vec<_>>()[..]);
                }
            }
        }
    }
}

/// Room that takes bytes at once.
struct AtOnce(Vec<u8>, usize);

impl Destination for AtOnce {
    fn remaining(&self) -> usize {
        self.1 - self.0.len()
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        self.0.extend_from_slice(bytes);
        bytes.len()
    }

    fn put_nofault(&mut self, bytes: &[u8]) -> bool {
        self.put(bytes) == bytes.len()
    }
}

/// Whether a task that sleeps in front of an empty pipe is woken by that, and not before.
fn sleeps_until(pipe: &Pipe, wakes: impl FnOnce()) {
    let scheduler = Scheduler::new(1, Arc::new(NoProcessors));
    let (task, other) = (scheduler.new_task(None), scheduler.new_task(None));
    let mut room = AtOnce(Vec::new(), 4);
    assert_eq!(pipe.read_or_sleep(&mut room, &task), Attempt::Asleep);
    // There is one of them, and it may look again.
    assert_eq!(pipe.read_or_sleep(&mut room, &other), Attempt::Unknown);
    assert_eq!(pipe.read_or_sleep(&mut room, &task), Attempt::Asleep);
    scheduler.adopt(0, &task);
    scheduler.block(0, None, 0);
    pipe.set_capacity_bytes(PIPE_CAPACITY_BYTES, false).unwrap();
    assert!(task.is_blocked());
    wakes();
    assert!(!task.is_blocked());
    assert!(scheduler.pick(0, 0).is_some());
    pipe.leave(&task);
}

#[test]
fn a_sleeper_is_woken_by_all_that_may_end_its_wait() {
    let (reader, writer) = PipeEnd::pair(1);
    let pipe = reader.pipe().unwrap();
    sleeps_until(pipe, || assert_eq!(write(&writer, b"a"), Ok(1)));
    let taken = Taken::new(pipe, 1).unwrap();
    sleeps_until(pipe, || drop(taken));
    assert_eq!(read(&reader, 1), Ok(Vec::from(b"a")));
    let long = [1; PIPE_BUFFER_BYTES + 1];
    sleeps_until(pipe, || assert_eq!(write(&writer, &long), Ok(long.len())));
    assert_eq!(read(&reader, long.len()).map(|bytes| bytes.len()), Ok(long.len()));
    sleeps_until(pipe, || drop(writer));
}

#[test]
fn who_left_is_not_woken_and_leaves_its_place() {
    let scheduler = Scheduler::new(1, Arc::new(NoProcessors));
    let (task, other) = (scheduler.new_task(None), scheduler.new_task(None));
    let mut room = AtOnce(Vec::new(), 4);
    let (reader, writer) = PipeEnd::pair(1);
    let pipe = reader.pipe().unwrap().clone();
    assert_eq!(pipe.read_or_sleep(&mut room, &task), Attempt::Asleep);
    pipe.leave(&other);
    assert_eq!(pipe.read_or_sleep(&mut room, &other), Attempt::Unknown);
    pipe.leave(&task);
    assert_eq!(pipe.read_or_sleep(&mut room, &other), Attempt::Asleep);
    scheduler.adopt(0, &task);
    scheduler.block(0, None, 0);
    assert_eq!(write(&writer, b"abc"), Ok(3));
    assert!(task.is_blocked());
    assert_eq!((pipe.read_or_sleep(&mut room, &task), &room.0[..]), (Attempt::Done(3), &b"abc"[..]));
    // The end of the file is told in the way of all others.
    drop(writer);
    assert_eq!(pipe.read_or_sleep(&mut room, &task), Attempt::Unknown);
}
