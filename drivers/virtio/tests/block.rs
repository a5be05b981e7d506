//! The disk with a device that keeps to the rules, over both transports, and with one that does not.

use aegis_hal::block::{BlockDevice, BlockError, BlockLimits, BlockOperation, BlockRequest};
use aegis_hal::fake::{FakeBus, FakeClientMemory, FakeDma, FakeMmio};
use aegis_hal::net::Place;
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk, Limits};
use aegis_virtio::fake::{FakeSerial, MmioModel, Pace, SharedSerial, mmio, pci};
use aegis_virtio::{MmioTransport, PciInterrupt, PciTransport, Transport, VirtioError};

const LIMITS: Limits =
    Limits { request_count: 256, segment_count_max: 16, queue_count_max: 4, reset_poll_count_max: 10 };
const SECTOR_COUNT: u64 = 512;
const SECTOR: usize = 512;
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const SIZE_MAX: u64 = 1 << 1;
const READ_ONLY: u64 = 1 << 5;
const FLUSH: u64 = 1 << 9;
const CACHE_MODE: u64 = 1 << 11;
/// Everything that a disk can be without.
const ALL: u64 = INDIRECT | EVENT_INDEX | 1 << 2 | 1 << 6 | FLUSH | 1 << 10 | CACHE_MODE | 1 << 12 | 1 << 13 | 1 << 14;
const PAGE_COUNT: usize = 40;

type TestDisk = Disk<MmioTransport<FakeMmio<MmioModel>>, FakeDma>;
type Told = Vec<(u16, Result<(), BlockError>)>;

struct World {
    bus: FakeBus,
    device: SharedSerial,
    memory: FakeClientMemory,
}

impl World {
    fn new(queue_count: u16) -> Self {
        let bus = FakeBus::new(512);
        let device = FakeSerial::disk(&bus, SECTOR_COUNT, queue_count);
        let memory = FakeClientMemory::new(&bus, PAGE_COUNT).expect("room");
        for sector in 0..SECTOR_COUNT as usize {
            let mut device = device.borrow_mut();
            device.medium().content[sector * SECTOR..(sector + 1) * SECTOR].copy_from_slice(&pattern(sector));
        }
        Self { bus, device, memory }
    }

    fn without(features: u64) -> Self {
        let world = Self::new(1);
        world.device.borrow_mut().offered &= !features;
        world
    }

    fn with_limits(&self, limits: Limits) -> Result<TestDisk, VirtioError> {
        let transport = MmioTransport::new(mmio(&self.device)).expect("a modern device");
        Disk::new(transport, self.bus.dma(), limits)
    }

    fn disk(&self) -> Result<TestDisk, VirtioError> {
        self.with_limits(LIMITS)
    }

    fn told<T: Transport>(&self, disk: &mut Disk<T, FakeDma>) -> Told {
        let mut told = Vec::new();
        let count = disk.poll(&self.memory, &mut |tag, result| told.push((tag, result))).expect("honest");
        assert_eq!(count as usize, told.len());
        told
    }

    /// Submits, shows and waits for it.
    fn perform<T: Transport>(&self, disk: &mut Disk<T, FakeDma>, request: BlockRequest<'_>) -> Result<(), BlockError> {
        disk.submit(&request, &self.memory)
            .unwrap_or_else(|error| panic!("{error:?} of {request:?} by {:?}", disk.limits()));
        disk.notify().expect("honest");
        assert!(disk.has_completed());
        let told = self.told(disk);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].0, request.tag);
        told[0].1
    }

    fn sector(&self, sector: usize) -> Vec<u8> {
        self.device.borrow_mut().medium().content[sector * SECTOR..(sector + 1) * SECTOR].to_vec()
    }

    /// Nobody did what it must not; the memory of requests is the only one that is not given back.
    fn assert_clean(&self) {
        assert_eq!(self.device.borrow().driver_faults, []);
        assert_eq!(self.bus.violations(), []);
    }
}

/// A sector that says which it is.
fn pattern(sector: usize) -> Vec<u8> {
    (0..SECTOR).map(|index| (index * 7 + sector * 31 + sector / 256) as u8).collect()
}

fn request(tag: u16, operation: BlockOperation, first_sector: u64, pieces: &[Place]) -> BlockRequest<'_> {
    let byte_count: u32 = pieces.iter().map(|piece| piece.length_bytes).sum();
    let sector_count = byte_count / SECTOR as u32;
    BlockRequest { tag, queue: 0, operation, first_sector, sector_count, pieces }
}

fn range(tag: u16, operation: BlockOperation, first_sector: u64, sector_count: u32) -> BlockRequest<'static> {
    BlockRequest { tag, queue: 0, operation, first_sector, sector_count, pieces: &[] }
}

fn exercise<T: Transport>(world: &World, disk: &mut Disk<T, FakeDma>) {
    let whole = [Place { offset: 0, length_bytes: 4096 }];
    let parts = [Place { offset: 100, length_bytes: 1000 }, Place { offset: 9000, length_bytes: 3096 }];
    for round in 0..100u64 {
        let tag = (round * 17 % u64::from(disk.limits().depth)) as u16;
        let pieces = if round % 2 == 0 || disk.limits().segment_count_max < 2 { &whole[..] } else { &parts[..] };
        assert_eq!(world.perform(disk, request(tag, BlockOperation::Read, 3 * round, pieces)), Ok(()));
        let read: Vec<u8> =
            pieces.iter().flat_map(|piece| world.memory.bytes(piece.offset, piece.length_bytes as usize)).collect();
        let expected: Vec<u8> = (0..8).flat_map(|index| world.sector(3 * round as usize + index)).collect();
        assert_eq!(read, expected);
        world.memory.fill(20_000, &[round as u8; SECTOR]);
        let place = [Place { offset: 20_000, length_bytes: 512 }];
        assert_eq!(world.perform(disk, request(tag, BlockOperation::Write, 400 + round, &place)), Ok(()));
        assert_eq!(world.sector(400 + round as usize), [round as u8; SECTOR]);
        assert_eq!(world.perform(disk, range(tag, BlockOperation::Flush, 0, 0)), Ok(()));
    }
    world.assert_clean();
}

#[test]
fn sectors_go_both_ways_over_both_transports_and_without_what_can_be_missing() {
    let world = World::new(1);
    let mut disk = world.disk().expect("honest");
    exercise(&world, &mut disk);
    let statistics = disk.statistics();
    assert_eq!((statistics.request_count, statistics.sector_count), (300, 900));
    assert_eq!(disk.stop().outcome, Ok(()));
    assert_eq!(world.bus.live_page_count(), PAGE_COUNT);
    let world = World::new(1);
    let (windows, multiplier) = pci(&world.device);
    let transport = PciTransport::new(windows, multiplier, DEVICE_TYPE_BLOCK, PciInterrupt::Message { vector: 0 });
    exercise(&world, &mut Disk::new(transport, world.bus.dma(), LIMITS).expect("honest"));
    for missing in [INDIRECT, EVENT_INDEX, ALL] {
        let world = World::without(missing);
        exercise(&world, &mut world.disk().expect("honest"));
    }
}

#[test]
fn what_the_device_says_of_itself_is_read() {
    let world = World::new(1);
    let limits = world.disk().expect("honest").limits();
    let expected = BlockLimits {
        sector_count: SECTOR_COUNT,
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        segment_count_max: 16,
        segment_bytes_max: u32::MAX,
        sector_count_max: 0x3f_fff8,
        depth: 256,
        queue_count: 1,
        has_write_cache: true,
        ..limits
    };
    assert_eq!(limits, expected);
    assert_eq!(limits.discard.map(|range| (range.sector_count_max, range.alignment_sectors)), Some((0x3f_ffff, 8)));
    assert_eq!(limits.write_zeroes.map(|range| range.sector_count_max), Some(0x3f_ffff));
    world.device.borrow_mut().offered |= SIZE_MAX | READ_ONLY;
    world.device.borrow_mut().medium().cache_mode = 0;
    let limits = world.disk().expect("honest").limits();
    assert_eq!((limits.segment_bytes_max, limits.sector_count_max), (0x10000, 16 * 128));
    assert!(limits.is_read_only && !limits.has_write_cache);
    let world = World::without(ALL);
    let limits = world.disk().expect("honest").limits();
    assert_eq!((limits.depth, limits.segment_count_max, limits.physical_block_bytes), (85, 1, 512));
    assert!(limits.discard.is_none() && limits.write_zeroes.is_none() && !limits.has_write_cache);
}

#[test]
fn a_queue_of_256_holds_256_requests_of_several_pieces() {
    let world = World::new(1);
    let mut disk = world.disk().expect("honest");
    world.device.borrow_mut().pace = Pace::Stepped;
    let pieces: Vec<Place> = (0..16).map(|index| Place { offset: 8192 - 512 * index, length_bytes: 512 }).collect();
    for tag in 0..256 {
        disk.submit(&request(tag, BlockOperation::Read, u64::from(tag), &pieces), &world.memory).expect("room");
    }
    disk.notify().expect("honest");
    assert_eq!(world.device.borrow().notification_count, 1);
    assert!(!disk.has_completed());
    world.device.borrow_mut().step();
    let mut tags: Vec<u16> = world.told(&mut disk).into_iter().map(|(tag, _)| tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, Vec::from_iter(0..256));
    assert_eq!(world.memory.bytes(8192, 512), pattern(255));
    assert!(!world.device.borrow().is_interrupting(), "none was asked for");
    world.assert_clean();
}
