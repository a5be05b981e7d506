//! The service against a naive model: two clients with an extent each on a disk that completes in any order, breaks,
//! hangs; the service itself is lost at any point and another takes its place. No request is lost, none is told twice,
//! no block is wrong. And a client that writes anything into its own memory ends itself alone.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use aegis_hal::DeviceAddress;
use aegis_hal::block::{BlockError, BlockMemory, SECTOR_BYTES};
use aegis_hal::fake::{CompletionOrder, FakeBus, FakeClientMemory, FakeDisk};
use aegis_hal::net::{DmaWindow, Place};
use aegis_lottery::Random;
use aegis_lottery::random::Keyed;
use aegis_proto::block::{
    Client, Extent, Operation, Outcome, RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE, Request, Segment, Segments, Session,
    Shape, State, SubmitError,
};
use aegis_service::disk::{Buffer, DiskService, Health, Host, STUCK_NS, ServedExtent};
use proptest::prelude::*;

const SHAPE: Shape = Shape { depth: 8, indirect_page_count: 2 };
/// Sectors of an extent, and between two.
const EXTENT_SECTORS: u64 = 32;
const EXTENT_STRIDE: u64 = 48;
/// Pages of a client; each request has one of its own, by its tag.
const PAGE_COUNT: u64 = 16;
const RIGHTS: u8 = RIGHT_READ | RIGHT_WRITE | RIGHT_DISCARD;

/// What the host keeps beside the service, which may be lost.
#[derive(Default)]
struct World {
    bound: Vec<(usize, u32)>,
    released: Vec<usize>,
    wake_counts: [u32; 2],
}

struct TestHost {
    memory: Rc<FakeClientMemory>,
    sessions: [Rc<Vec<AtomicU64>>; 2],
    world: Rc<RefCell<World>>,
}

impl DmaWindow for TestHost {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        self.memory.device_address(place)
    }
}

impl BlockMemory for TestHost {
    fn copy_in(&self, place: Place, from: &[u8]) -> bool {
        self.memory.copy_in(place, from)
    }
    fn copy_out(&self, place: Place, into: &mut [u8]) -> bool {
        self.memory.copy_out(place, into)
    }
}

impl Host for TestHost {
    type Words = [AtomicU64];
    fn words(&self, client: usize) -> &[AtomicU64] {
        &self.sessions[client]
    }
    fn wake(&mut self, client: usize) {
        self.world.borrow_mut().wake_counts[client] += 1;
    }
    fn bind(&mut self, client: usize, buffer: Buffer) -> Option<u64> {
        // A client's memory is its half; the slot is the first page in it.
        let end = u64::from(buffer.slot) + u64::from(buffer.page_count);
        if buffer.page_count == 0 || end > PAGE_COUNT {
            return None;
        }
        self.world.borrow_mut().bound.push((client, buffer.slot));
        Some((client as u64 * PAGE_COUNT + u64::from(buffer.slot)) * 4096)
    }
    fn unbind(&mut self, client: usize, buffer: Buffer, first_offset: u64) {
        assert_eq!(first_offset, (client as u64 * PAGE_COUNT + u64::from(buffer.slot)) * 4096);
        let mut world = self.world.borrow_mut();
        let position = world.bound.iter().position(|bound| *bound == (client, buffer.slot)).unwrap();
        world.bound.remove(position);
    }
    fn release(&mut self, client: usize) {
        self.world.borrow_mut().released.push(client);
    }
}

type Service = DiskService<FakeDisk, TestHost, 2, 32>;

/// What is under way of a client, by its tag.
#[derive(Clone, Copy, Debug)]
struct Asked {
    operation: Operation,
    sector: u64,
    value: u8,
}

struct Side {
    client: Client,
    generation: u32,
    asked: BTreeMap<u64, Asked>,
    /// What each sector is.
    sectors: Vec<u8>,
    next_value: u8,
}

struct Test {
    disk: FakeDisk,
    memory: Rc<FakeClientMemory>,
    sessions: [Rc<Vec<AtomicU64>>; 2],
    world: Rc<RefCell<World>>,
    service: Service,
    sides: [Side; 2],
    now_ns: u64,
    random: Keyed,
    is_damaged: bool,
}

fn extents(index: usize) -> [ServedExtent; 1] {
    let extent = Extent { sector_count: EXTENT_SECTORS, rights: RIGHTS };
    [ServedExtent { first_sector: 8 + index as u64 * EXTENT_STRIDE, extent }]
}

impl Test {
    fn new(order: CompletionOrder) -> Self {
        let bus = FakeBus::new(2 * PAGE_COUNT as usize);
        let memory = Rc::new(FakeClientMemory::new(&bus, 2 * PAGE_COUNT as usize).unwrap());
        let words = || Rc::new((0..SHAPE.page_count() * 512).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let sessions = [words(), words()];
        let disk = FakeDisk::new(256);
        disk.set_order(order);
        disk.set_bytes(0, &[0xee; 256 * SECTOR_BYTES as usize]);
        let world = Rc::new(RefCell::new(World::default()));
        let side = |index: usize| Side {
            client: Client::new(&**sessions[index], SHAPE, 2).unwrap(),
            generation: 2,
            asked: BTreeMap::new(),
            sectors: vec![0xee; EXTENT_SECTORS as usize],
            next_value: 1,
        };
        let sides = [side(0), side(1)];
        let service = Self::service(&disk, &memory, &sessions, &world);
        let mut test = Self {
            disk,
            memory,
            sessions,
            world,
            service,
            sides,
            now_ns: 0,
            random: Keyed::new([1, 2]),
            is_damaged: false,
        };
        test.attach();
        test
    }

    fn service(
        disk: &FakeDisk,
        memory: &Rc<FakeClientMemory>,
        sessions: &[Rc<Vec<AtomicU64>>; 2],
        world: &Rc<RefCell<World>>,
    ) -> Service {
        *world.borrow_mut() = World::default();
        let host = TestHost { memory: memory.clone(), sessions: sessions.clone(), world: world.clone() };
        DiskService::new(disk.clone(), host)
    }

    fn attach(&mut self) {
        for (index, side) in self.sides.iter().enumerate() {
            let words = &**self.sessions[index];
            // Two buffers of eight pages, as the tags have them.
            side.client.set_buffer(words, 0, Buffer { slot: 0, page_count: 8 });
            side.client.set_buffer(words, 1, Buffer { slot: 8, page_count: 8 });
            self.service.attach(index, &extents(index), 1 + index as u32).unwrap();
            assert_eq!(side.client.state(words), State::Up);
        }
    }

    fn submit(&mut self, index: usize, operation: Operation, sector: u64, is_listed: bool) {
        let words = &**self.sessions[index];
        let side = &mut self.sides[index];
        let Some(tag) = (0..PAGE_COUNT).find(|tag| !side.asked.contains_key(tag)) else { return };
        // What overlaps may come in any order, so nothing does.
        if side.asked.values().any(|asked| asked.operation != Operation::Flush && asked.sector == sector) {
            return;
        }
        let value = side.next_value;
        let offset = (index as u64 * PAGE_COUNT + tag) * 4096;
        let fill = if operation == Operation::Write { value } else { 0xaa };
        self.memory.fill(offset, &[fill; SECTOR_BYTES as usize]);
        let segment = |offset_bytes| Segment {
            buffer: (tag / 8) as u16,
            offset_bytes: (tag % 8) as u32 * 4096 + offset_bytes,
            length_bytes: 256,
        };
        let segments = if !operation.has_memory() {
            Segments::Inline(Default::default(), 0)
        } else if is_listed && tag < 2 {
            assert!(side.client.set_listed(words, tag as u32, 0, segment(0)));
            assert!(side.client.set_listed(words, tag as u32, 1, segment(256)));
            Segments::Listed(tag as u32, 2)
        } else {
            Segments::Inline([segment(0), segment(256), Segment::default(), Segment::default()], 2)
        };
        let request = Request { operation, extent: 0, first_sector: sector, sector_count: 1, segments, tag };
        match side.client.submit(words, &request) {
            Ok(()) => {
                side.next_value = side.next_value.checked_add(1).unwrap_or(1);
                side.asked.insert(tag, Asked { operation, sector, value });
            }
            Err(error) => assert_eq!(error, SubmitError::Full),
        }
        let _ = side.client.publish(words);
    }

    fn poll(&mut self, index: usize) {
        let words = &**self.sessions[index];
        let Side { client, asked, sectors, .. } = &mut self.sides[index];
        let (memory, is_damaged) = (&self.memory, self.is_damaged);
        let told = client.poll(words, &mut |tag, outcome| {
            let Asked { operation, sector, value } = asked.remove(&tag).expect("told once");
            if is_damaged && outcome == Outcome::Input {
                return;
            }
            assert_eq!(outcome, Outcome::Done);
            match operation {
                Operation::Write => sectors[sector as usize] = value,
                Operation::WriteZeroes => sectors[sector as usize] = 0,
                Operation::Read => {
                    let bytes = memory.bytes((index as u64 * PAGE_COUNT + tag) * 4096, SECTOR_BYTES as usize);
                    assert_eq!(bytes, [sectors[sector as usize]; SECTOR_BYTES as usize], "sector {sector}");
                }
                _ => {}
            }
        });
        told.expect("the service is honest");
    }

    fn visit(&mut self) {
        self.now_ns += 1_000_000;
        let _ = self.service.visit(self.now_ns, &mut self.random);
    }

    /// The service and its disk are lost; another service takes its place.
    fn replace(&mut self) {
        for index in 0..2 {
            self.poll(index);
        }
        use aegis_hal::block::BlockDevice;
        self.disk.reset().unwrap();
        self.service = Self::service(&self.disk, &self.memory, &self.sessions, &self.world);
        for (index, side) in self.sides.iter_mut().enumerate() {
            side.generation += 2;
            side.client.recover(&**self.sessions[index], side.generation);
        }
        self.attach();
    }

    /// Everything that was asked ends, and the disk is what the model is.
    fn settle(&mut self) {
        self.disk.set_order(CompletionOrder::Oldest);
        for _ in 0..200 {
            self.visit();
            (0..2).for_each(|index| self.poll(index));
        }
        for (index, side) in self.sides.iter().enumerate() {
            assert!(side.asked.is_empty(), "lost: {:?}", side.asked);
            assert_eq!(side.client.under_way_count(), 0);
            self.assert_content(index);
        }
        assert_eq!(self.service.flight_count(), 0);
        assert!(!self.service.ask(self.now_ns));
    }

    fn assert_content(&self, index: usize) {
        let first = extents(index)[0].first_sector;
        for (sector, value) in self.sides[index].sectors.iter().enumerate() {
            let bytes = self.disk.bytes(first + sector as u64, SECTOR_BYTES as usize);
            assert!(self.is_damaged || bytes == [*value; SECTOR_BYTES as usize], "sector {sector} of {index}");
        }
        for beside in [first - 1, first + EXTENT_SECTORS] {
            assert_eq!(self.disk.bytes(beside, SECTOR_BYTES as usize), [0xee; SECTOR_BYTES as usize]);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit(usize, Operation, u64, bool),
    Visit,
    Poll(usize),
    Finish(usize),
    BreakDown,
    Hang,
    Replace,
}

fn step() -> impl Strategy<Value = Step> {
    let operation = prop_oneof![
        4 => Just(Operation::Read),
        4 => Just(Operation::Write),
        1 => Just(Operation::Flush),
        1 => Just(Operation::WriteZeroes),
    ];
    prop_oneof![
        12 => (0..2_usize, operation, 0..EXTENT_SECTORS, any::<bool>())
            .prop_map(|(index, operation, sector, is_listed)| Step::Submit(index, operation, sector, is_listed)),
        8 => Just(Step::Visit),
        6 => (0..2_usize).prop_map(Step::Poll),
        6 => (0..8_usize).prop_map(Step::Finish),
        1 => Just(Step::BreakDown),
        1 => Just(Step::Hang),
        1 => Just(Step::Replace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_lost_told_twice_or_wrong(
        steps in proptest::collection::vec(step(), 1..150),
        seed in any::<u64>(),
        is_by_hand in any::<bool>(),
    ) {
        let order = if is_by_hand { CompletionOrder::ByHand } else { CompletionOrder::Shuffled(seed) };
        let mut test = Test::new(order);
        for step in steps {
            match step {
                Step::Submit(index, operation, sector, is_listed) => test.submit(index, operation, sector, is_listed),
                Step::Visit => test.visit(),
                Step::Poll(index) => test.poll(index),
                Step::Finish(number) => {
                    if let Some(request) = test.disk.under_way().get(number) {
                        prop_assert!(test.disk.finish(request.tag));
                    }
                }
                Step::BreakDown => {
                    // Not more often than a disk may.
                    test.now_ns += 20_000_000_000;
                    test.disk.break_down();
                }
                Step::Hang => {
                    test.now_ns += STUCK_NS.max(20_000_000_000);
                    test.service.watch(test.now_ns);
                }
                Step::Replace => test.replace(),
            }
        }
        test.settle();
        prop_assert_eq!(test.service.health(), Health::Up);
    }

    /// Client 1 writes anything into its session at any time; client 0 gets everything, once and right, and no sector
    /// outside of client 1's extent changes by it.
    #[test]
    fn a_hostile_client_ends_itself_alone(
        steps in proptest::collection::vec((step(), 0..2048_usize, any::<u64>(), 0..4_u8), 1..120),
    ) {
        let mut test = Test::new(CompletionOrder::Shuffled(7));
        for (step, place, value, kind) in steps {
            match step {
                Step::Submit(_, operation, sector, is_listed) => test.submit(0, operation, sector, is_listed),
                Step::Poll(_) => test.poll(0),
                _ => test.visit(),
            }
            let words = &test.sessions[1];
            let small = value % 16;
            // A likely request of its own, garbage, a counter, a buffer.
            match kind {
                0 => {
                    let slot = 320 + 16 + (place % 8) * 8;
                    let first = (1 + small % 6) | (small % 3) << 16;
                    let request = [first, value % 40, value % 3, value, value >> 3, 0, 0, value];
                    for (offset, word) in request.into_iter().enumerate() {
                        words[slot + offset].store(word, Ordering::Relaxed);
                    }
                    words[320].fetch_add(1, Ordering::Relaxed);
                }
                1 => words[place % words.len()].store(value, Ordering::Relaxed),
                2 => words[320].store(small, Ordering::Relaxed),
                _ => words[64 + place % 256].store(value & 0xf_0000_000f, Ordering::Relaxed),
            }
        }
        test.disk.set_order(CompletionOrder::Oldest);
        for _ in 0..100 {
            test.visit();
            test.poll(0);
        }
        prop_assert!(test.sides[0].asked.is_empty());
        test.assert_content(0);
        prop_assert_eq!(test.sides[0].client.state(&**test.sessions[0]), State::Up);
        let first = extents(1)[0].first_sector;
        for beside in [first - 1, first + EXTENT_SECTORS] {
            prop_assert_eq!(test.disk.bytes(beside, SECTOR_BYTES as usize), [0xee; SECTOR_BYTES as usize].to_vec());
        }
        // What the hostile one gave and lost is not bound any more.
        if test.world.borrow().released.contains(&1) {
            prop_assert!(test.world.borrow().bound.iter().all(|(client, _)| *client == 0));
        }
    }
}

#[test]
fn an_error_of_the_disk_is_told_once() {
    let mut test = Test::new(CompletionOrder::Oldest);
    test.is_damaged = true;
    test.disk.fail_next(BlockError::Input);
    test.submit(0, Operation::Write, 3, false);
    test.visit();
    test.visit();
    test.poll(0);
    test.poll(0);
    assert!(test.sides[0].asked.is_empty());
    assert_eq!(test.service.restart_count(), 0);
}

/// A client asked to be told while nothing was under way, and sleeps: the disk is asked to interrupt as soon as it has
/// something, and again when a reset has made it forget that.
#[test]
fn who_asked_while_the_disk_had_nothing_is_told() {
    let mut test = Test::new(CompletionOrder::ByHand);
    test.visit();
    assert!(!test.service.ask(test.now_ns));
    test.submit(0, Operation::Write, 3, false);
    test.visit();
    let finish = |test: &Test| {
        let tag = test.disk.under_way()[0].tag;
        assert!(test.disk.finish(tag));
    };
    finish(&test);
    assert_eq!(test.disk.interrupt_count(), 1);
    test.visit();
    test.submit(0, Operation::Write, 4, false);
    test.visit();
    assert!(!test.service.ask(test.now_ns));
    test.disk.break_down();
    test.visit();
    test.visit();
    assert_eq!(test.service.restart_count(), 1);
    finish(&test);
    assert_eq!(test.disk.interrupt_count(), 2);
    test.visit();
    test.poll(0);
    assert!(test.sides[0].asked.is_empty());
}

/// A disk that is cut off as often as anybody likes, for the sake of another on the same controller, works.
#[test]
fn a_client_that_begins_anew_is_taken_when_the_disk_is_done_with_what_was_before() {
    let mut test = Test::new(CompletionOrder::ByHand);
    test.submit(0, Operation::Write, 3, false);
    test.submit(1, Operation::Write, 5, false);
    test.visit();
    assert_eq!(test.service.flight_count(), 2);
    let words = test.sessions.clone();
    assert!(!test.service.adopt(0, &extents(0), 1), "it is there already");
    test.sides[0].client.restart(&**words[0], 4);
    let buffers = [Buffer { slot: 0, page_count: 8 }, Buffer { slot: 8, page_count: 8 }];
    buffers.iter().enumerate().for_each(|(index, buffer)| test.sides[0].client.set_buffer(&**words[0], index, *buffer));
    for _ in 0..3 {
        assert!(!test.service.adopt(0, &extents(0), 1), "its write is under way");
        assert_eq!(test.sides[0].client.state(&**words[0]), State::Down);
        test.visit();
    }
    // What was written is on the disk, and told to nobody.
    test.sides[0].asked.clear();
    test.sides[0].sectors[3] = 1;
    for request in test.disk.under_way() {
        assert!(test.disk.finish(request.tag));
    }
    test.visit();
    assert!(test.service.adopt(0, &extents(0), 1));
    assert_eq!(test.sides[0].client.state(&**words[0]), State::Up);
    assert_eq!(test.world.borrow().released, [0]);
    test.submit(0, Operation::Read, 3, false);
    test.settle();
    assert!(!test.service.adopt(1, &extents(1), 1) && test.sides[1].client.state(&**words[1]) == State::Up);
}

#[test]
fn a_session_that_is_none_is_looked_at_again_with_its_next_generation() {
    let mut test = Test::new(CompletionOrder::Oldest);
    let words = test.sessions.clone();
    Session::withdraw(&**words[0], false);
    assert!(!test.service.adopt(0, &extents(0), 1), "what was withdrawn has ended");
    assert_eq!(test.sides[0].client.state(&**words[0]), State::Ended);
    // Half made, then of a shape that cannot be, then whole.
    let offer = |generation: u32, shape: u64| {
        words[0][0].store(u64::from_le_bytes(*b"aegisbq1"), Ordering::Relaxed);
        words[0][3].store(shape, Ordering::Relaxed);
        words[0][1].store(u64::from(generation), Ordering::Release);
    };
    offer(5, 8 | 2 << 32);
    assert!(!test.service.adopt(0, &extents(0), 1));
    offer(6, u64::MAX);
    assert!(!test.service.adopt(0, &extents(0), 1));
    offer(6, 8 | 2 << 32);
    assert!(!test.service.adopt(0, &extents(0), 1), "it was judged");
    test.sides[0].client.restart(&**words[0], 8);
    assert!(test.service.adopt(0, &extents(0), 1));
    assert_eq!(test.sides[0].client.state(&**words[0]), State::Up);
    test.submit(1, Operation::Write, 9, false);
    test.settle();
}

#[test]
fn clients_that_are_limited_ask_for_a_turn_at_most() {
    let mut test = Test::new(CompletionOrder::Oldest);
    test.service.limit_requests();
    let words = test.sessions.clone();
    test.sides[0].client.restart(&**words[0], 4);
    assert!(test.service.adopt(
        0,
        &[ServedExtent { first_sector: 0, extent: Extent { sector_count: 256, rights: RIGHTS } }],
        1
    ));
    let said = test.sides[0].client.description(&**words[0]);
    assert_eq!(said.sector_count_max, 128);
    let ranges = [said.discard, said.write_zeroes];
    assert!(ranges.iter().flatten().all(|range| range.sector_count_max <= 32_768));
    let segments = Segments::Inline(Default::default(), 0);
    for (tag, sector_count) in [(0, 129), (1, 128)] {
        // The driver's own limit would let it through.
        let operation = if tag == 0 { Operation::Read } else { Operation::WriteZeroes };
        let request = Request { operation, extent: 0, first_sector: 0, sector_count, segments, tag };
        test.sides[0].client.submit(&**words[0], &request).unwrap();
    }
    let _ = test.sides[0].client.publish(&**words[0]);
    test.visit();
    test.visit();
    let mut told = Vec::new();
    test.sides[0].client.poll(&**words[0], &mut |tag, outcome| told.push((tag, outcome))).unwrap();
    told.sort_by_key(|(tag, _)| *tag);
    assert_eq!(told, [(0, Outcome::Refused), (1, Outcome::Done)]);
}

#[test]
fn a_disk_that_was_cut_off_goes_on_and_is_not_to_blame() {
    use aegis_hal::block::BlockDevice;
    let mut test = Test::new(CompletionOrder::ByHand);
    test.submit(0, Operation::Write, 3, false);
    test.submit(1, Operation::Write, 3, false);
    test.visit();
    assert!(!test.service.ask(test.now_ns));
    for _ in 0..20 {
        test.disk.reset().unwrap();
        test.service.resume(test.now_ns);
        test.visit();
    }
    assert_eq!((test.service.restart_count(), test.service.health()), (0, Health::Up));
    assert_eq!(test.disk.under_way().len(), 2);
    let tag = test.disk.under_way()[0].tag;
    assert!(test.disk.finish(tag));
    assert_eq!(test.disk.interrupt_count(), 1);
    test.settle();
}

#[test]
fn a_disk_that_breaks_too_often_is_dead_and_ends_every_session() {
    let mut test = Test::new(CompletionOrder::ByHand);
    test.is_damaged = true;
    test.submit(0, Operation::Write, 3, false);
    test.submit(1, Operation::Read, 3, false);
    test.visit();
    for _ in 0..10 {
        test.disk.break_down();
        test.visit();
    }
    assert_eq!(test.service.health(), Health::Dead);
    // Nobody is told of an error: sessions end, and those who have them keep what was under way.
    (0..2).for_each(|index| test.poll(index));
    assert!(test.sides.iter().all(|side| side.asked.len() == 1));
    assert!((0..2).all(|index| test.sides[index].client.state(&**test.sessions[index]) == State::Ended));
    // A dead disk may still reach their buffers: those stay bound until it is there again.
    assert_eq!(test.world.borrow().released, []);
    test.service.revive().unwrap();
    assert_eq!(test.service.health(), Health::Up);
    assert_eq!(test.world.borrow().released, [0, 1]);
    for (index, side) in test.sides.iter_mut().enumerate() {
        side.generation += 2;
        side.client.recover(&**test.sessions[index], side.generation);
    }
    test.attach();
    test.is_damaged = false;
    test.disk.set_order(CompletionOrder::Oldest);
    for index in 0..2 {
        test.submit(index, Operation::Write, 5, false);
        test.visit();
        test.visit();
        test.poll(index);
        assert!(test.sides[index].asked.is_empty());
    }
}

#[test]
fn clients_get_the_disk_by_their_tickets() {
    let mut test = Test::new(CompletionOrder::ByHand);
    let mut served = [0_u32; 2];
    for turn in 0..4000 {
        for index in 0..2 {
            (0..EXTENT_SECTORS).for_each(|sector| test.submit(index, Operation::Read, sector, false));
        }
        test.visit();
        let number = test.random.below(16) as usize + turn % 2;
        if let Some(request) = test.disk.under_way().get(number % test.disk.under_way().len().max(1)) {
            served[usize::from(request.first_sector >= extents(1)[0].first_sector)] += 1;
            assert!(test.disk.finish(request.tag));
        }
        test.visit();
        (0..2).for_each(|index| test.poll(index));
    }
    // Both always have something, and neither is shut out.
    assert!(served.iter().all(|count| *count > 400), "{served:?}");
}
