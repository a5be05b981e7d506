//! A client of a disk whose driver is in the kernel, that says and writes whatever it likes: it gets no further than to
//! the end of its own session, and who comes after it is served.
//!
//! The host boots the extended kernel with a virtio disk of zeros that takes its time (`tests/tests/s14_extension.rs`);
//! where the kernel is another, a case has nothing to do. Honest reads go through `aegis_proto`, as exos's do.

use core::sync::atomic::{AtomicU64, Ordering};

use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::memory::BindFlags;
use aegis_abi::types::{SLOT_DEVICE_FIRST, Status};
use aegis_abi::{CapSlot, FrameNumber};
use aegis_proto::block::{
    Buffer, Client, INLINE_SEGMENT_COUNT, KernelCall, Operation, Outcome as Told, Request, Segment, Segments, Shape,
    State,
};
use aegis_rt::call::{self, Outcome};

use crate::memory::{SCRATCH_BASE, free_slot, map, take, unmap};
use crate::suite::{CaseResult, Machine, Suite};
use crate::{expect, expect_equal, expect_ok, expect_refused, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s14_extension",
    cases: &[
        ("without_a_session_nothing_is_done", without_a_session),
        ("a_session_is_what_was_bound_for_the_disk", wrong_sessions),
        ("a_forged_request_ends_its_session", forged_requests),
        ("garbage_in_a_session_is_borne", garbage),
        ("memory_that_was_taken_back_is_not_written", taken_back),
    ],
};

const SHAPE: Shape = Shape { depth: 8, indirect_page_count: 1 };
const SESSION_PAGE_COUNT: u64 = SHAPE.page_count() as u64;
const DATA_PAGE_COUNT: u64 = 4;
/// Where the session, the data and a page that nobody is told of are.
const DATA: u64 = SCRATCH_BASE + 64 * PAGE_SIZE;
const BESIDE: u64 = SCRATCH_BASE + 96 * PAGE_SIZE;
const DISK: u64 = 0;
const PATTERN: u64 = 0x5ca1_ab1e_0ddb_a11a;
/// Rounds of garbage, and from one honest client to the next.
const GARBAGE_ROUND_COUNT: u64 = 300;
const HONEST_EVERY: u64 = 30;
const TAKEN_ROUND_COUNT: u64 = 40;

fn extension(operation: KernelCall, words: [u64; 3]) -> Outcome {
    number(operation as u64, [DISK, words[0], words[1], words[2]])
}

fn number(operation: u64, [first, second, third, fourth]: [u64; 4]) -> Outcome {
    // SAFETY: the extension writes where a case has bound memory for the disk, and nothing else of ours is there.
    unsafe { call::extension_call(operation, [first, second, third, fourth, 0]) }
}

/// Whether this kernel is extended by nothing.
fn is_without() -> bool {
    extension(KernelCall::Find, [0; 3]).is_err_and(|refusal| refusal.status == Status::UnknownCall)
}

/// Words of memory that a case has mapped.
fn words(address: u64, page_count: u64) -> &'static [AtomicU64] {
    // SAFETY: mapped to write until the case is over, and accessed by whole words only.
    unsafe { core::slice::from_raw_parts(address as *const AtomicU64, (page_count * PAGE_SIZE / 8) as usize) }
}

fn fill(address: u64, page_count: u64, value: u64) {
    words(address, page_count).iter().for_each(|word| word.store(value, Ordering::Relaxed));
}

fn is_all(address: u64, page_count: u64, value: u64) -> bool {
    words(address, page_count).iter().all(|word| word.load(Ordering::Relaxed) == value)
}

/// A function with memory for a session and for data, both bound for it.
struct Bound {
    device: CapSlot,
    session: (CapSlot, FrameNumber),
    data: (CapSlot, FrameNumber),
}

impl Bound {
    fn new() -> Result<Self, call::Refusal> {
        let found = extension(KernelCall::Find, [0; 3])?;
        let device = CapSlot(SLOT_DEVICE_FIRST.0 + found as u32);
        let (session, data) = (free_slot(0), free_slot(1));
        let (first, data_first) = (take(session, SESSION_PAGE_COUNT)?, take(data, DATA_PAGE_COUNT)?);
        map(SCRATCH_BASE, first.0, SESSION_PAGE_COUNT as u32, session, BindFlags::WRITE)?;
        map(DATA, data_first.0, DATA_PAGE_COUNT as u32, data, BindFlags::WRITE)?;
        fill(SCRATCH_BASE, SESSION_PAGE_COUNT, 0);
        let bound = Self { device, session: (session, first), data: (data, data_first) };
        bound.bind(session, SESSION_PAGE_COUNT)?;
        bound.bind(data, DATA_PAGE_COUNT)?;
        Ok(bound)
    }

    fn bind(&self, slot: CapSlot, count: u64) -> Outcome {
        // SAFETY: frames of the case only.
        unsafe { call::device_dma_bind(self.device, slot, 0, count) }
    }

    fn unbind(&self, slot: CapSlot, count: u64) -> Outcome {
        // SAFETY: the kernel stops the function before it loses memory.
        unsafe { call::device_dma_unbind(self.device, slot, 0, count) }
    }

    /// Begins a session with the data as its buffer 0.
    fn attach(&self) -> Result<Client, call::Refusal> {
        let session = words(SCRATCH_BASE, SESSION_PAGE_COUNT);
        let refused = call::Refusal { status: Status::WrongState, value: 0 };
        let client = Client::new(session, SHAPE, 2).ok_or(refused)?;
        extension(KernelCall::Attach, [self.session.1.0, SESSION_PAGE_COUNT, 0])?;
        extension(KernelCall::Register, [self.data.1.0, DATA_PAGE_COUNT, 0])?;
        client.set_buffer(session, 0, Buffer { slot: 0, page_count: DATA_PAGE_COUNT as u32 });
        Ok(client)
    }

    /// Gives everything back.
    fn end(&self) -> CaseResult {
        // Refused where the session has ended.
        let _ = extension(KernelCall::Detach, [0; 3]);
        expect_ok!(self.unbind(self.session.0, SESSION_PAGE_COUNT));
        expect_ok!(self.unbind(self.data.0, DATA_PAGE_COUNT));
        expect_ok!(unmap(SCRATCH_BASE, SESSION_PAGE_COUNT as u32));
        expect_ok!(unmap(DATA, DATA_PAGE_COUNT as u32));
        for slot in [self.session.0, self.data.0] {
            // SAFETY: nothing is mapped by it any more.
            expect_ok!(unsafe { call::cap_drop(slot) });
        }
        Ok(())
    }
}

fn read_request(segment: Segment) -> Request {
    let mut segments = [Segment::default(); INLINE_SEGMENT_COUNT];
    segments[0] = segment;
    Request {
        operation: Operation::Read,
        extent: 0,
        first_sector: 0,
        sector_count: 8,
        segments: Segments::Inline(segments, 1),
        tag: 7,
    }
}

const PAGE: Segment = Segment { buffer: 0, offset_bytes: 0, length_bytes: 4096 };

/// What a request comes to; none: its session has ended.
fn outcome_of(client: &mut Client, request: &Request) -> Option<Told> {
    let session = words(SCRATCH_BASE, SESSION_PAGE_COUNT);
    client.submit(session, request).ok()?;
    let _ = client.publish(session);
    let mut told = None;
    wait::until(|| {
        let visited = extension(KernelCall::Visit, [0; 3]);
        let polled = client.poll(session, &mut |_, outcome| told = Some(outcome));
        told.is_some() || visited.is_err() || polled.is_err() || client.state(session) != State::Up
    });
    told
}

/// Somebody who does everything right is served.
fn honest() -> CaseResult {
    let bound = expect_ok!(Bound::new());
    fill(DATA, DATA_PAGE_COUNT, PATTERN);
    let mut client = expect_ok!(bound.attach());
    expect!(outcome_of(&mut client, &read_request(PAGE)) == Some(Told::Done));
    expect!(is_all(DATA, 1, 0));
    expect!(is_all(DATA + PAGE_SIZE, DATA_PAGE_COUNT - 1, PATTERN));
    bound.end()
}

fn without_a_session(_: &Machine) -> CaseResult {
    if is_without() {
        return Ok(());
    }
    expect_ok!(extension(KernelCall::Find, [0; 3]));
    for operation in [
        KernelCall::Register,
        KernelCall::Attach,
        KernelCall::Visit,
        KernelCall::Ask,
        KernelCall::Watch,
        KernelCall::Detach,
    ] {
        for words in [[0; 3], [u64::MAX; 3], [1 << 63, 1, 5]] {
            expect!(extension(operation, words).is_err());
        }
        for disk in [1, 4, 5, 1 << 32, u64::MAX] {
            expect!(number(operation as u64, [disk, 0, 0, 0]).is_err());
        }
    }
    for unknown in [1000, 1 << 32, u64::MAX] {
        expect_refused!(number(unknown, [0; 4]), Status::BadArgument);
    }
    honest()
}

fn wrong_sessions(_: &Machine) -> CaseResult {
    if is_without() {
        return Ok(());
    }
    let bound = expect_ok!(Bound::new());
    let first = bound.session.1.0;
    let beside = expect_ok!(take(free_slot(2), 1)).0;
    for (frame, count) in
        [(beside, 1), (0, 1), (u64::MAX, u64::MAX), (first, 1), (first, 0), (first + 1, SESSION_PAGE_COUNT - 1)]
    {
        expect_refused!(extension(KernelCall::Attach, [frame, count, 0]), Status::WrongState);
    }
    // Bound, and none: all zeros.
    expect_refused!(extension(KernelCall::Attach, [first, SESSION_PAGE_COUNT, 0]), Status::WrongState);
    let mut client = expect_ok!(bound.attach());
    // Another on top, and ranges under numbers that are taken, too large, or not bound: the session goes on.
    expect_refused!(extension(KernelCall::Attach, [first, SESSION_PAGE_COUNT, 0]), Status::WrongState);
    let data = bound.data.1.0;
    for (frame, number) in [(data, 0), (data, 256), (data, u64::MAX), (beside, 1)] {
        expect_refused!(extension(KernelCall::Register, [frame, DATA_PAGE_COUNT, number]), Status::WrongState);
    }
    expect!(outcome_of(&mut client, &read_request(PAGE)) == Some(Told::Done));
    bound.end()
}

fn forged_requests(_: &Machine) -> CaseResult {
    if is_without() {
        return Ok(());
    }
    expect_ok!(take(free_slot(2), 1).and_then(|frame| map(BESIDE, frame.0, 1, free_slot(2), BindFlags::WRITE)));
    fill(BESIDE, 1, PATTERN);
    let read = read_request(PAGE);
    let end = (DATA_PAGE_COUNT * PAGE_SIZE) as u32;
    // A buffer that was not given, one that is larger than what was, bytes behind its end: the session ends.
    for (forged, pages) in [
        (Request { extent: 9, ..read }, DATA_PAGE_COUNT),
        (read_request(Segment { buffer: 1, ..PAGE }), DATA_PAGE_COUNT),
        (read_request(Segment { buffer: 255, ..PAGE }), DATA_PAGE_COUNT),
        (read_request(Segment { offset_bytes: end - 512, ..PAGE }), DATA_PAGE_COUNT),
        (read, DATA_PAGE_COUNT + 1),
        (read, 1 << 31),
    ] {
        let bound = expect_ok!(Bound::new());
        let mut client = expect_ok!(bound.attach());
        let session = words(SCRATCH_BASE, SESSION_PAGE_COUNT);
        client.set_buffer(session, 0, Buffer { slot: 0, page_count: pages as u32 });
        expect!(outcome_of(&mut client, &forged).is_none());
        expect!(client.state(session) != State::Up);
        bound.end()?;
        honest()?;
    }
    // What is only not to be had is an answer.
    let bound = expect_ok!(Bound::new());
    let mut client = expect_ok!(bound.attach());
    for refused in [
        Request { first_sector: u64::MAX - 3, ..read },
        Request { first_sector: 1 << 40, ..read },
        Request { sector_count: 16, ..read },
    ] {
        expect!(outcome_of(&mut client, &refused) == Some(Told::Refused));
    }
    bound.end()?;
    expect!(is_all(BESIDE, 1, PATTERN));
    honest()
}

/// A sequence of words that is the same in each run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn garbage(_: &Machine) -> CaseResult {
    if is_without() {
        return Ok(());
    }
    expect_ok!(take(free_slot(2), 1).and_then(|frame| map(BESIDE, frame.0, 1, free_slot(2), BindFlags::WRITE)));
    fill(BESIDE, 1, PATTERN);
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    for round in 0..GARBAGE_ROUND_COUNT {
        let bound = expect_ok!(Bound::new());
        let mut client = expect_ok!(bound.attach());
        let session = words(SCRATCH_BASE, SESSION_PAGE_COUNT);
        let _ = client.submit(session, &read_request(PAGE));
        let _ = client.publish(session);
        // A word, a few, or most of them, and of some only the low bits.
        let count = 1_u64 << (chance.next() % 12);
        for _ in 0..count {
            let (at, value, mask) = (chance.next() as usize % session.len(), chance.next(), chance.next() % 65);
            let value = if mask == 64 { value } else { value & ((1 << mask) - 1) };
            session[at].store(value, Ordering::Relaxed);
        }
        for operation in [KernelCall::Visit, KernelCall::Ask, KernelCall::Visit, KernelCall::Watch] {
            // Served or refused: neither is anybody else's affair.
            let _ = extension(operation, [0; 3]);
        }
        bound.end()?;
        if round % HONEST_EVERY == 0 {
            honest()?;
        }
    }
    expect!(is_all(BESIDE, 1, PATTERN));
    honest()
}

fn taken_back(_: &Machine) -> CaseResult {
    if is_without() {
        return Ok(());
    }
    for _ in 0..TAKEN_ROUND_COUNT {
        let bound = expect_ok!(Bound::new());
        fill(DATA, DATA_PAGE_COUNT, PATTERN);
        let mut client = expect_ok!(bound.attach());
        let session = words(SCRATCH_BASE, SESSION_PAGE_COUNT);
        expect!(client.submit(session, &read_request(PAGE)).is_ok());
        let _ = client.publish(session);
        expect_ok!(extension(KernelCall::Visit, [0; 3]));
        // The disk has it. From here on the memory is ours alone.
        expect_ok!(bound.unbind(bound.data.0, DATA_PAGE_COUNT));
        fill(DATA, DATA_PAGE_COUNT, !PATTERN);
        let until_ns = wait::now_ns() + 3_000_000;
        wait::until(|| wait::now_ns() >= until_ns);
        expect!(is_all(DATA, DATA_PAGE_COUNT, !PATTERN));
        expect_ok!(bound.bind(bound.data.0, DATA_PAGE_COUNT));
        bound.end()?;
    }
    expect_equal!(extension(KernelCall::Visit, [0; 3]).is_ok() as u64, 0);
    honest()
}
