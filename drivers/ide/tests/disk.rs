//! Disks of a channel that keeps to the rules, and of one that does not.

use aegis_hal::block::{BlockDevice, BlockError, BlockOperation, BlockRequest, SubmitError};
use aegis_hal::fake::{FakeBus, FakeClientMemory, FakeDma, FakePort};
use aegis_hal::net::Place;
use aegis_ide::fake::{DriverFault, FakeChannel, FakeIdeDisk, Mischief, PortsModel, SharedChannel, ports};
use aegis_ide::{Channel, Disk, IdeError, Limits};
use proptest::prelude::*;

const SECTOR: usize = 512;
const SECTOR_COUNT: usize = 2048;
const PAGE_COUNT: usize = 80;
const LIMITS: Limits = Limits { request_count: 8, segment_count_max: 16, uses_dma: true, poll_count_max: 10 };

type TestChannel = Channel<FakePort<PortsModel>, FakeDma>;
type TestDisk = Disk<TestChannel, FakePort<PortsModel>, FakeDma>;
type Told = Vec<(u16, Result<(), BlockError>)>;

struct World {
    bus: FakeBus,
    model: SharedChannel,
    memory: FakeClientMemory,
}

impl World {
    fn new(disks: [Option<FakeIdeDisk>; 2]) -> Self {
        Self::at(0x10_0000, disks)
    }

    /// With memory from here on.
    fn at(base: u64, disks: [Option<FakeIdeDisk>; 2]) -> Self {
        let bus = FakeBus::with_base(256, base);
        let model = FakeChannel::new(&bus, disks);
        for disk in model.borrow_mut().disks.iter_mut().flatten() {
            for (sector, bytes) in disk.content.chunks_mut(SECTOR).enumerate() {
                bytes.copy_from_slice(&pattern(sector));
            }
        }
        let memory = FakeClientMemory::new(&bus, PAGE_COUNT).expect("room");
        Self { bus, model, memory }
    }

    fn single() -> Self {
        Self::new([Some(FakeIdeDisk::new(SECTOR_COUNT)), None])
    }

    fn channel(&self, limits: Limits) -> Result<TestChannel, IdeError> {
        Channel::new(ports(&self.model), self.bus.dma(), limits)
    }

    fn disk(&self, limits: Limits) -> TestDisk {
        Disk::new(self.channel(limits).expect("honest"), 0).expect("a disk")
    }

    fn told(&self, disk: &mut impl BlockDevice<Error = IdeError>) -> Told {
        let mut told = Vec::new();
        let count = disk.poll(&self.memory, &mut |tag, result| told.push((tag, result))).expect("honest");
        assert_eq!(count as usize, told.len());
        told
    }

    fn perform(
        &self,
        disk: &mut impl BlockDevice<Error = IdeError>,
        request: BlockRequest<'_>,
    ) -> Result<(), BlockError> {
        disk.submit(&request, &self.memory).unwrap_or_else(|error| panic!("{error:?} of {request:?}"));
        disk.notify().expect("honest");
        assert!(disk.has_completed());
        let told = self.told(disk);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].0, request.tag);
        told[0].1
    }

    fn sectors(&self, device: usize, sector: usize, count: usize) -> Vec<u8> {
        self.model.borrow_mut().disk(device).content[sector * SECTOR..(sector + count) * SECTOR].to_vec()
    }

    fn assert_clean(&self) {
        assert_eq!(self.model.borrow().driver_faults, []);
        assert_eq!(self.bus.violations(), []);
    }
}

fn pattern(sector: usize) -> Vec<u8> {
    (0..SECTOR).map(|index| (index * 7 + sector * 31 + sector / 256) as u8).collect()
}

fn request(tag: u16, operation: BlockOperation, first_sector: u64, pieces: &[Place]) -> BlockRequest<'_> {
    let byte_count: u32 = pieces.iter().map(|piece| piece.length_bytes).sum();
    BlockRequest { tag, queue: 0, operation, first_sector, sector_count: byte_count / SECTOR as u32, pieces }
}

fn place(offset: u64, length_bytes: u32) -> Place {
    Place { offset, length_bytes }
}

/// Pieces of every kind: one, several, across lines of 64 KiB, of no whole sectors, at odd addresses.
fn shapes() -> [Vec<Place>; 6] {
    [
        vec![place(0, 4096)],
        vec![place(8192, 512), place(0, 1024), place(100_000, 2560)],
        vec![place(0xf000, 0x10000), place(0x2f_000, 0x2000)],
        vec![place(10, 100), place(1000, 300), place(5000, 112)],
        vec![place(1, 4096)],
        (0..16).map(|index| place(index * 16_384 + 512, 2048)).collect(),
    ]
}

fn exercise(world: &World, disk: &mut impl BlockDevice<Error = IdeError>, device: usize) {
    for round in 0..20usize {
        for (index, pieces) in shapes().iter().enumerate() {
            let first = 17 * round + index;
            let count = pieces.iter().map(|piece| piece.length_bytes as usize).sum::<usize>() / SECTOR;
            let tag = (round % 8) as u16;
            assert_eq!(world.perform(disk, request(tag, BlockOperation::Read, first as u64, pieces)), Ok(()));
            let read: Vec<u8> =
                pieces.iter().flat_map(|piece| world.memory.bytes(piece.offset, piece.length_bytes as usize)).collect();
            assert!(read == world.sectors(device, first, count), "shape {index}");
            for (number, piece) in pieces.iter().enumerate() {
                world.memory.fill(piece.offset, &vec![(round * 8 + number) as u8; piece.length_bytes as usize]);
            }
            let written: Vec<u8> =
                pieces.iter().flat_map(|piece| world.memory.bytes(piece.offset, piece.length_bytes as usize)).collect();
            let first = first + 1000;
            assert_eq!(world.perform(disk, request(tag, BlockOperation::Write, first as u64, pieces)), Ok(()));
            assert!(written == world.sectors(device, first, count), "shape {index}");
        }
        assert_eq!(world.perform(disk, request(3, BlockOperation::Flush, 0, &[])), Ok(()));
        assert_eq!(world.model.borrow_mut().disk(device).flush_count, round + 1);
    }
    assert_eq!(disk.statistics().error_count, 0);
    world.assert_clean();
}

#[test]
fn sectors_go_both_ways_by_dma_and_by_the_processor() {
    for limits in [LIMITS, Limits { uses_dma: false, ..LIMITS }] {
        let world = World::single();
        let mut disk = world.disk(limits);
        exercise(&world, &mut disk, 0);
        assert_eq!(disk.into_channel().stop().outcome, Ok(()));
        assert_eq!(world.bus.live_page_count(), PAGE_COUNT);
    }
    // Above the bus master's reach, without "multiple", with 28 bits.
    let world = World::at(1 << 32, [Some(FakeIdeDisk::new(SECTOR_COUNT)), None]);
    exercise(&world, &mut world.disk(LIMITS), 0);
    let mut old = FakeIdeDisk::new(SECTOR_COUNT);
    old.set_word(83, 0x5000);
    old.set_word(47, 0);
    let world = World::new([None, Some(old)]);
    let channel = world.channel(Limits { uses_dma: false, ..LIMITS }).expect("honest");
    assert_eq!(Disk::new(channel, 0).err(), Some(IdeError::Absent));
    let mut disk = Disk::new(world.channel(LIMITS).expect("honest"), 1).expect("a disk");
    assert_eq!(disk.limits().sector_count_max, 256);
    exercise(&world, &mut disk, 1);
}

#[test]
fn a_dma_command_is_ten_accesses_to_ports() {
    let world = World::single();
    let mut disk = world.disk(LIMITS);
    let pieces = [place(0, 4096)];
    for (operation, expected) in [
        (BlockOperation::Read, None),
        (BlockOperation::Read, Some(10)),
        (BlockOperation::Write, Some(11)),
        (BlockOperation::Write, Some(10)),
    ] {
        let before = disk.channel().access_count();
        assert_eq!(world.perform(&mut disk, request(0, operation, 9, &pieces)), Ok(()));
        let count = disk.channel().access_count() - before;
        assert!(expected.is_none_or(|expected| expected == count), "{count} accesses, {operation:?}");
    }
    assert_eq!(disk.channel().access_count(), world.model.borrow().access_count);
}

#[test]
fn a_channel_has_two_disks_and_one_command_at_a_time() {
    let world = World::new([Some(FakeIdeDisk::new(SECTOR_COUNT)), Some(FakeIdeDisk::new(1024))]);
    let mut channel = world.channel(LIMITS).expect("honest");
    exercise(&world, &mut Disk::new(&mut channel, 0).expect("a disk"), 0);
    let pieces = [place(0, 1024)];
    for limits in [LIMITS, Limits { uses_dma: false, ..LIMITS }] {
        let mut channel = world.channel(limits).expect("honest");
        world.model.borrow_mut().is_stepped = true;
        for device in [0, 1] {
            let mut disk = Disk::new(&mut channel, device).expect("a disk");
            for tag in 0..8 {
                disk.submit(&request(tag, BlockOperation::Read, u64::from(tag), &pieces), &world.memory).expect("room");
            }
            disk.notify().expect("honest");
        }
        let mut told = [Vec::new(), Vec::new()];
        for _ in 0..50 {
            world.model.borrow_mut().step();
            for device in [0, 1] {
                let mut disk = Disk::new(&mut channel, device).expect("a disk");
                let tags = world.told(&mut disk);
                told[usize::from(device)].extend(tags);
            }
        }
        let all: Told = (0..8).map(|tag| (tag, Ok(()))).collect();
        assert_eq!(told, [all.clone(), all]);
        world.model.borrow_mut().is_stepped = false;
    }
    world.assert_clean();
}

#[test]
fn errors_are_told_once_and_the_next_command_goes_on() {
    for limits in [LIMITS, Limits { uses_dma: false, ..LIMITS }] {
        let world = World::single();
        world.model.borrow_mut().disk(0).bad = 100..101;
        let mut disk = world.disk(limits);
        let pieces = [place(0, 4096)];
        assert_eq!(world.perform(&mut disk, request(1, BlockOperation::Read, 95, &pieces)), Err(BlockError::Input));
        assert_eq!(world.perform(&mut disk, request(1, BlockOperation::Write, 100, &pieces)), Err(BlockError::Input));
        assert_eq!(world.perform(&mut disk, request(1, BlockOperation::Read, 101, &pieces)), Ok(()));
        assert_eq!(disk.statistics().error_count, 2);
        world.assert_clean();
    }
}

#[test]
fn what_is_against_the_limits_is_refused() {
    let world = World::single();
    let mut disk = world.disk(Limits { request_count: 2, segment_count_max: 3, ..LIMITS });
    let limits = disk.limits();
    assert_eq!((limits.depth, limits.segment_count_max, limits.sector_count_max), (2, 3, 3 * 128));
    let (good, long, many) = ([place(0, 512)], [place(0, 0x10200)], [place(0, 512); 4]);
    let outside = [place(PAGE_COUNT as u64 * 4096, 512)];
    let bad = [
        request(2, BlockOperation::Read, 0, &good),
        BlockRequest { queue: 1, ..request(0, BlockOperation::Read, 0, &good) },
        BlockRequest { sector_count: 2, ..request(0, BlockOperation::Read, 0, &good) },
        BlockRequest { sector_count: 0, ..request(0, BlockOperation::Read, 0, &[]) },
        request(0, BlockOperation::Read, SECTOR_COUNT as u64, &good),
        request(0, BlockOperation::Read, u64::MAX, &good),
        request(0, BlockOperation::Read, 0, &long),
        request(0, BlockOperation::Read, 0, &many),
        request(0, BlockOperation::Read, 0, &outside),
        request(0, BlockOperation::Flush, 0, &good),
        BlockRequest { sector_count: 1, ..request(0, BlockOperation::Discard, 0, &[]) },
        BlockRequest { sector_count: 1, ..request(0, BlockOperation::WriteZeroes, 0, &[]) },
    ];
    for bad in bad {
        assert_eq!(disk.submit(&bad, &world.memory), Err(SubmitError::Request), "{bad:?}");
    }
    disk.submit(&request(0, BlockOperation::Read, 0, &good), &world.memory).expect("room");
    let again = disk.submit(&request(0, BlockOperation::Read, 0, &good), &world.memory);
    assert_eq!(again, Err(SubmitError::Request));
    world.assert_clean();
}

#[test]
fn a_command_that_hangs_is_forgotten_by_a_reset_and_the_other_disk_goes_on() {
    let world = World::new([Some(FakeIdeDisk::new(SECTOR_COUNT)), Some(FakeIdeDisk::new(1024))]);
    let mut channel = world.channel(LIMITS).expect("honest");
    let pieces = [place(0, 1024)];
    world.model.borrow_mut().hangs = true;
    for device in [1, 0] {
        let mut disk = Disk::new(&mut channel, device).expect("a disk");
        for tag in 0..3 {
            disk.submit(&request(tag, BlockOperation::Read, u64::from(tag), &pieces), &world.memory).expect("room");
        }
        disk.notify().expect("honest");
        assert!(!disk.has_completed());
        assert_eq!(world.told(&mut disk), []);
    }
    world.model.borrow_mut().hangs = false;
    let mut first = Disk::new(&mut channel, 0).expect("a disk");
    first.reset().expect("honest again");
    assert_eq!(first.statistics().reset_count, 1);
    let mut second = Disk::new(&mut channel, 1).expect("a disk");
    let mut told = Vec::new();
    for _ in 0..5 {
        told.extend(world.told(&mut second));
    }
    assert_eq!(told, [0, 1, 2].map(|tag| (tag, Ok(()))));
    let mut first = Disk::new(&mut channel, 0).expect("a disk");
    assert_eq!(world.told(&mut first), []);
    assert_eq!(world.perform(&mut first, request(2, BlockOperation::Read, 5, &pieces)), Ok(()));
    world.assert_clean();
}

#[test]
fn lies_end_the_channel_until_its_reset() {
    let pieces = [place(0, 1024)];
    // Without the bus master nothing moves, and the command succeeds.
    let world = World::single();
    let mut disk = world.disk(LIMITS);
    world.model.borrow_mut().is_bus_master = false;
    disk.submit(&request(0, BlockOperation::Read, 0, &pieces), &world.memory).expect("room");
    disk.notify().expect("so far");
    assert_eq!(disk.poll(&world.memory, &mut |_, _| ()), Err(IdeError::BusMaster));
    assert_eq!(disk.notify(), Err(IdeError::BusMaster));
    assert!(disk.has_completed());
    world.model.borrow_mut().is_bus_master = true;
    disk.reset().expect("honest again");
    assert_eq!(world.perform(&mut disk, request(0, BlockOperation::Read, 5, &pieces)), Ok(()));
    assert_eq!(world.memory.bytes(0, 512), pattern(5));
    // It asks for no data where there is some to write.
    let mut disk = world.disk(Limits { uses_dma: false, ..LIMITS });
    disk.submit(&request(0, BlockOperation::Write, 0, &pieces), &world.memory).expect("room");
    disk.notify().expect("so far");
    world.model.borrow_mut().misbehave(&Mischief::Status(Some(0x50)));
    assert_eq!(disk.poll(&world.memory, &mut |_, _| ()), Err(IdeError::Phase));
    // Always busy, or not there.
    for status in [0xff, 0x80] {
        world.model.borrow_mut().misbehave(&Mischief::Status(Some(status)));
        assert_eq!(disk.reset(), Err(IdeError::Busy));
    }
    world.model.borrow_mut().misbehave(&Mischief::Status(None));
    world.model.borrow_mut().disk(0).set_word(60, 7);
    world.model.borrow_mut().disk(0).set_word(100, 7);
    assert_eq!(disk.reset(), Err(IdeError::Changed));
    assert_eq!(disk.notify(), Err(IdeError::Changed));
    world.assert_clean();
}

#[test]
fn what_cannot_be_a_disk_is_refused() {
    let refused = |index: usize, value: u16| {
        let mut disk = FakeIdeDisk::new(SECTOR_COUNT);
        disk.set_word(index, value);
        World::new([Some(disk), None]).channel(LIMITS).err()
    };
    assert_eq!(refused(49, 0x0900), Some(IdeError::Layout), "no LBA");
    assert_eq!(refused(0, 0x8000), Some(IdeError::Layout), "no disk");
    assert_eq!(refused(106, 0x5000), Some(IdeError::Layout), "long sectors");
    assert_eq!(refused(255, 0x01a5), Some(IdeError::Layout), "wrong checksum");
    assert_eq!(refused(103, 0x8000), Some(IdeError::Layout), "too large");
    assert_eq!(refused(106, 0x2003), None, "not valid, so not looked at");
    assert_eq!(World::new([None, None]).channel(LIMITS).err(), Some(IdeError::Absent));
}

#[derive(Clone, Debug)]
enum Act {
    Submit(u16, BlockOperation, u64, usize),
    Notify,
    Poll,
    Ask,
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    let transfer = prop_oneof![Just(BlockOperation::Read), Just(BlockOperation::Write)];
    let operation = prop_oneof![8 => transfer, 1 => Just(BlockOperation::Flush)];
    prop_oneof![
        6 => (0..9u16, operation, 0..SECTOR_COUNT as u64 + 4, 0..6usize)
            .prop_map(|(tag, operation, first, shape)| Act::Submit(tag, operation, first, shape)),
        4 => Just(Act::Notify),
        6 => Just(Act::Poll),
        1 => Just(Act::Ask),
        1 => Just(Act::Reset),
    ]
}

fn mischief() -> impl Strategy<Value = Mischief> {
    let value = prop_oneof![1 => Just(None), 1 => any::<u8>().prop_map(Some)];
    prop_oneof![
        8 => Just(Mischief::Behave),
        1 => value.clone().prop_map(Mischief::Status),
        1 => value.prop_map(Mischief::BusMaster),
        2 => (any::<usize>(), any::<usize>(), proptest::collection::vec(any::<u8>(), 1..32))
            .prop_map(|(buffer, offset, bytes)| Mischief::Scribble { buffer, offset, bytes }),
        1 => Just(Mischief::Interrupt),
        1 => Just(Mischief::Forget),
        1 => Just(Mischief::Lie),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// The channel does anything: errors or wrong bytes, never a panic, never a tag that is not under way, never more
    /// accesses than a bound; and it begins again when it behaves.
    #[test]
    fn hostile_channel_never_breaks_the_driver(
        steps in proptest::collection::vec((mischief(), act()), 0..80),
        uses_dma in any::<bool>(),
        is_stepped in any::<bool>(),
    ) {
        let world = World::single();
        let mut disk = world.disk(Limits { uses_dma, ..LIMITS });
        world.model.borrow_mut().is_stepped = is_stepped;
        let pages = world.bus.live_page_count();
        let mut under_way = [false; 9];
        for (mischief, act) in &steps {
            world.model.borrow_mut().misbehave(mischief);
            let before = disk.channel().access_count();
            match act {
                Act::Submit(tag, operation, first, shape) => {
                    let has_memory = *operation != BlockOperation::Flush;
                    let pieces = if has_memory { shapes()[*shape].clone() } else { Vec::new() };
                    if disk.submit(&request(*tag, *operation, *first, &pieces), &world.memory).is_ok() {
                        prop_assert!(!std::mem::replace(&mut under_way[usize::from(*tag)], true));
                    }
                }
                Act::Notify => drop(disk.notify()),
                Act::Poll => {
                    let mut told = Vec::new();
                    let _ = disk.poll(&world.memory, &mut |tag, _| told.push(tag));
                    for tag in told {
                        prop_assert!(std::mem::replace(&mut under_way[usize::from(tag)], false));
                    }
                }
                Act::Ask => drop(disk.ask_for_interrupt()),
                Act::Reset => {
                    let _ = disk.reset();
                    under_way = [false; 9];
                }
            }
            // The longest request by the processor, and a little.
            let count = disk.channel().access_count() - before;
            prop_assert!(count < 0x12000 / 4 + 1000, "{} accesses", count);
            prop_assert_eq!(world.bus.live_page_count(), pages);
        }
        world.model.borrow_mut().reform();
        // What it scribbled over is its own table's, or memory of requests.
        world.model.borrow_mut().driver_faults.clear();
        disk.reset().expect("a channel that behaves");
        let pieces = [place(3, 1024)];
        for tag in 0..8 {
            world.memory.fill(3, &[tag as u8; 1024]);
            prop_assert_eq!(world.perform(&mut disk, request(tag, BlockOperation::Write, 9, &pieces)), Ok(()));
            prop_assert_eq!(world.sectors(0, 9, 2), vec![tag as u8; 1024]);
        }
        prop_assert_eq!(world.model.borrow().driver_faults.clone(), Vec::<DriverFault>::new());
        prop_assert_eq!(disk.into_channel().stop().outcome, Ok(()));
        prop_assert_eq!(world.bus.live_page_count(), PAGE_COUNT);
    }

    /// With an honest channel what is read and written is what a naive disk has, in the order of submission.
    #[test]
    fn content_is_that_of_a_naive_disk(
        steps in proptest::collection::vec(act(), 0..80),
        uses_dma in any::<bool>(),
        is_stepped in any::<bool>(),
    ) {
        let world = World::single();
        let mut disk = world.disk(Limits { uses_dma, ..LIMITS });
        world.model.borrow_mut().is_stepped = is_stepped;
        let mut model: Vec<u8> = (0..SECTOR_COUNT).flat_map(pattern).collect();
        // One at a time, so that memory is compared when it ends.
        let mut current: Option<(u16, BlockOperation, usize, Vec<Place>)> = None;
        for (index, act) in steps.iter().enumerate() {
            match act {
                Act::Submit(tag, operation, first, shape) if current.is_none() => {
                    let has_memory = *operation != BlockOperation::Flush;
                    let pieces = if has_memory { shapes()[*shape].clone() } else { Vec::new() };
                    if *operation == BlockOperation::Write {
                        for (number, piece) in pieces.iter().enumerate() {
                            let bytes = vec![(index * 5 + number) as u8; piece.length_bytes as usize];
                            world.memory.fill(piece.offset, &bytes);
                        }
                    }
                    let request = request(*tag, *operation, *first, &pieces);
                    let is_good = *tag < 8
                        && (!has_memory || *first as usize + request.sector_count as usize <= SECTOR_COUNT);
                    match disk.submit(&request, &world.memory) {
                        Ok(()) => {
                            prop_assert!(is_good);
                            current = Some((*tag, *operation, *first as usize, pieces));
                        }
                        Err(error) => prop_assert!(!is_good && error == SubmitError::Request),
                    }
                }
                Act::Reset => {
                    // Only between requests: half a write is nobody's to say.
                    if current.is_none() {
                        world.model.borrow_mut().is_stepped = false;
                        disk.reset().expect("honest");
                        world.model.borrow_mut().is_stepped = is_stepped;
                    }
                }
                _ => {
                    disk.notify().expect("honest");
                    world.model.borrow_mut().step();
                    for (tag, result) in world.told(&mut disk) {
                        let (expected, operation, first, pieces) = current.take().expect("one is under way");
                        prop_assert_eq!((tag, result), (expected, Ok(())));
                        let mut at = first * SECTOR;
                        for piece in pieces {
                            let end = at + piece.length_bytes as usize;
                            let bytes = world.memory.bytes(piece.offset, piece.length_bytes as usize);
                            if operation == BlockOperation::Write {
                                model[at..end].copy_from_slice(&bytes);
                            }
                            prop_assert!(bytes == model[at..end]);
                            at = end;
                        }
                    }
                }
            }
        }
        world.assert_clean();
    }
}
