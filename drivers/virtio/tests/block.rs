//! The disk with a device that keeps to the rules, over both transports, and with one that does not.

use std::collections::BTreeMap;

use aegis_hal::block::{BlockDevice, BlockError, BlockLimits, BlockOperation, BlockRequest, SubmitError};
use aegis_hal::fake::{FakeBus, FakeClientMemory, FakeDma, FakeMmio};
use aegis_hal::net::Place;
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk, Limits};
use aegis_virtio::fake::{FakeSerial, Mischief, MmioModel, Pace, SharedSerial, mmio, pci};
use aegis_virtio::{DeviceFault, MmioTransport, PciInterrupt, PciTransport, Transport, VirtioError};
use proptest::prelude::*;

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

#[test]
fn completions_come_in_any_order_and_an_interrupt_once_for_each_time_it_is_asked_for() {
    for missing in [0, EVENT_INDEX] {
        let world = World::without(missing);
        let mut disk = world.disk().expect("honest");
        let place = [Place { offset: 0, length_bytes: 512 }];
        for _ in 0..300 {
            world.device.borrow_mut().medium().holds = true;
            for tag in 0..4 {
                disk.submit(&request(tag, BlockOperation::Read, 1, &place), &world.memory).expect("room");
            }
            assert!(!disk.ask_for_interrupt().expect("honest"), "which shows them, too");
            let mut irq = world.device.borrow().irq.clone();
            world.device.borrow_mut().medium().holds = false;
            world.device.borrow_mut().medium().is_reversed = true;
            world.device.borrow_mut().step();
            assert!(world.device.borrow().is_interrupting());
            assert!(disk.ask_for_interrupt().expect("honest"), "something is there");
            disk.acknowledge(&mut irq).expect("honest");
            assert_eq!(world.told(&mut disk), [3, 2, 1, 0].map(|tag| (tag, Ok(()))));
            assert_eq!(world.perform(&mut disk, range(9, BlockOperation::Flush, 0, 0)), Ok(()));
            assert!(!world.device.borrow().is_interrupting(), "nobody asked again");
        }
        world.assert_clean();
    }
}

#[test]
fn errors_are_told_once_to_the_request_that_they_are_of() {
    let world = World::new(1);
    world.device.borrow_mut().medium().bad = vec![(10..11, 1), (20..21, 2)];
    let mut disk = world.disk().expect("honest");
    let place = [Place { offset: 0, length_bytes: 1024 }];
    assert_eq!(world.perform(&mut disk, request(0, BlockOperation::Read, 9, &place)), Err(BlockError::Input));
    assert_eq!(world.perform(&mut disk, request(0, BlockOperation::Write, 20, &place)), Err(BlockError::Unsupported));
    assert_eq!(world.perform(&mut disk, request(0, BlockOperation::Read, 11, &place)), Ok(()));
    assert_eq!(disk.statistics().error_count, 2);
    world.assert_clean();
}

#[test]
fn sectors_are_discarded_and_set_to_zeros_without_memory() {
    let world = World::new(1);
    let mut disk = world.disk().expect("honest");
    for (operation, first) in [(BlockOperation::Discard, 8), (BlockOperation::WriteZeroes, 100)] {
        assert_eq!(world.perform(&mut disk, range(5, operation, first, 16)), Ok(()));
        let first = first as usize;
        assert_eq!(world.sector(first), [0; SECTOR]);
        assert_eq!(world.sector(first + 15), [0; SECTOR]);
        assert_eq!(world.sector(first + 16), pattern(first + 16));
        assert_eq!(world.sector(first - 1), pattern(first - 1));
    }
    assert_eq!(world.device.borrow_mut().medium().history, [(11, 0), (13, 0)]);
    world.assert_clean();
}

#[test]
fn a_flush_of_a_disk_without_a_cache_needs_no_device() {
    let world = World::without(FLUSH | CACHE_MODE);
    let mut disk = world.disk().expect("honest");
    assert!(!disk.limits().has_write_cache);
    disk.submit(&range(7, BlockOperation::Flush, 0, 0), &world.memory).expect("room");
    let again = disk.submit(&range(7, BlockOperation::Flush, 0, 0), &world.memory);
    assert_eq!(again, Err(SubmitError::Request), "it is under way");
    assert!(disk.has_completed() && disk.ask_for_interrupt().expect("honest"));
    assert_eq!(world.told(&mut disk), [(7, Ok(()))]);
    assert!(!disk.has_completed());
    assert_eq!(world.device.borrow_mut().medium().history, []);
}

#[test]
fn what_is_against_the_limits_is_refused_and_leaves_the_tag_free() {
    let world = World::new(1);
    world.device.borrow_mut().medium().block_bytes = 1024;
    let mut disk = world.with_limits(Limits { request_count: 8, ..LIMITS }).expect("honest");
    let place = |offset, length_bytes| [Place { offset, length_bytes }];
    let read = |first, pieces| request(3, BlockOperation::Read, first, pieces);
    let (block, byte, odd) = (place(0, 1024), place(0, 1), place(0, 512));
    let (outside, nothing, many) = (place(PAGE_COUNT as u64 * 4096 - 512, 1024), place(0, 0), [place(0, 1024)[0]; 17]);
    let bad = [
        BlockRequest { tag: 8, ..read(0, &block) },
        BlockRequest { tag: u16::MAX, ..read(0, &block) },
        BlockRequest { queue: 1, ..read(0, &block) },
        BlockRequest { queue: u16::MAX, ..read(0, &block) },
        BlockRequest { sector_count: 4, ..read(0, &block) },
        BlockRequest { sector_count: 0, ..read(0, &[]) },
        BlockRequest { sector_count: 2, ..read(0, &[]) },
        read(1, &block),
        read(0, &odd),
        BlockRequest { sector_count: 2, ..read(0, &byte) },
        read(SECTOR_COUNT, &block),
        read(u64::MAX - 1, &block),
        read(0, &outside),
        BlockRequest { sector_count: 0, ..read(0, &nothing) },
        read(0, &many),
        BlockRequest { pieces: &block, ..range(3, BlockOperation::Flush, 0, 0) },
        BlockRequest { pieces: &block, ..range(3, BlockOperation::Discard, 0, 2) },
        range(3, BlockOperation::Discard, 0, 0),
        range(3, BlockOperation::WriteZeroes, 0, u32::MAX - 1),
    ];
    for bad in bad {
        assert_eq!(disk.submit(&bad, &world.memory), Err(SubmitError::Request), "{bad:?}");
    }
    assert_eq!(world.perform(&mut disk, read(0, &block)), Ok(()));
    disk.submit(&read(0, &block), &world.memory).expect("room");
    assert_eq!(disk.submit(&read(0, &block), &world.memory), Err(SubmitError::Request), "the tag is under way");
    world.device.borrow_mut().offered |= READ_ONLY;
    let mut disk = world.disk().expect("honest");
    for bad in [
        request(0, BlockOperation::Write, 0, &block),
        range(0, BlockOperation::Discard, 0, 2),
        range(0, BlockOperation::WriteZeroes, 0, 2),
    ] {
        assert_eq!(disk.submit(&bad, &world.memory), Err(SubmitError::Request));
    }
    world.assert_clean();
}

#[test]
fn a_queue_without_indirect_descriptors_says_when_it_is_full() {
    let world = World::without(INDIRECT);
    let mut disk = world.disk().expect("honest");
    world.device.borrow_mut().pace = Pace::Stepped;
    let pieces = [Place { offset: 0, length_bytes: 512 }; 16];
    let mut taken = 0;
    while disk.submit(&request(taken, BlockOperation::Read, 0, &pieces), &world.memory).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 256 / 18);
    let full = disk.submit(&request(taken, BlockOperation::Read, 0, &pieces), &world.memory);
    assert_eq!(full, Err(SubmitError::Full));
    disk.notify().expect("honest");
    world.device.borrow_mut().step();
    assert_eq!(world.told(&mut disk).len(), usize::from(taken));
    disk.submit(&request(taken, BlockOperation::Read, 0, &pieces), &world.memory).expect("room");
    world.assert_clean();
}

#[test]
fn several_queues_are_used_and_notified_apart() {
    let world = World::new(3);
    let mut disk = world.disk().expect("honest");
    assert_eq!(disk.limits().queue_count, 3);
    world.device.borrow_mut().pace = Pace::Stepped;
    let place = [Place { offset: 0, length_bytes: 512 }];
    for tag in 0..30 {
        let request = BlockRequest { queue: tag % 3, ..request(tag, BlockOperation::Read, u64::from(tag), &place) };
        disk.submit(&request, &world.memory).expect("room");
    }
    disk.notify().expect("honest");
    assert_eq!(world.device.borrow().notification_count, 3);
    world.device.borrow_mut().step();
    let mut tags: Vec<u16> = world.told(&mut disk).into_iter().map(|(tag, _)| tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, Vec::from_iter(0..30));
    assert_eq!(World::new(9).disk().expect("honest").limits().queue_count, 4, "what the driver has");
    world.assert_clean();
}

/// What a device does, and what comes of it.
type Lie<'a> = (&'a dyn Fn(&mut FakeSerial), VirtioError);

#[test]
fn lies_about_completions_end_the_disk_until_its_reset() {
    let place = [Place { offset: 0, length_bytes: 512 }];
    let used_id = |id| VirtioError::from(DeviceFault::UsedId { queue: 0, id });
    let lies: [Lie<'_>; 6] = [
        (&|device| device.medium().status_forced = Some(3), DeviceFault::RequestStatus { status: 3 }.into()),
        (&|device| device.medium().status_forced = Some(0xff), DeviceFault::RequestStatus { status: 0xff }.into()),
        (&|device| device.misbehave(&Mischief::Return { queue: 0, id: 77, length_bytes: 1 }), used_id(77)),
        (&|device| device.misbehave(&Mischief::Return { queue: 0, id: 256, length_bytes: 1 }), used_id(256)),
        (&|device| device.misbehave(&Mischief::Return { queue: 0, id: u32::MAX, length_bytes: 1 }), used_id(u32::MAX)),
        (
            &|device| device.misbehave(&Mischief::UsedIndexAdd { queue: 0, count: 9 }),
            DeviceFault::UsedIndex { queue: 0 }.into(),
        ),
    ];
    for (lie, error) in lies {
        let world = World::new(1);
        let mut disk = world.disk().expect("honest so far");
        let pages = world.bus.live_page_count();
        world.device.borrow_mut().medium().holds = true;
        for tag in [1, 2, 3] {
            disk.submit(&request(tag, BlockOperation::Read, 0, &place), &world.memory).expect("room");
        }
        disk.notify().expect("honest so far");
        lie(&mut world.device.borrow_mut());
        let is_finished = world.device.borrow_mut().medium().status_forced.is_some();
        world.device.borrow_mut().medium().holds = !is_finished;
        world.device.borrow_mut().step();
        let mut told = 0;
        assert_eq!(disk.poll(&world.memory, &mut |_, _| told += 1), Err(error));
        assert_eq!(disk.poll(&world.memory, &mut |_, _| told += 1), Err(error));
        assert!(disk.has_completed(), "there is something to see");
        assert_eq!(disk.notify(), Err(error));
        assert_eq!(disk.ask_for_interrupt(), Err(error));
        let refused = disk.submit(&request(9, BlockOperation::Read, 0, &place), &world.memory);
        assert_eq!(refused, Err(SubmitError::Broken(error)));
        world.device.borrow_mut().medium().status_forced = None;
        world.device.borrow_mut().medium().holds = false;
        disk.reset().expect("honest again");
        assert_eq!(world.told(&mut disk), [], "BLK-2");
        for tag in 0..10 {
            assert_eq!(world.perform(&mut disk, request(tag, BlockOperation::Read, 5, &place)), Ok(()));
            assert_eq!(world.memory.bytes(0, 512), pattern(5));
        }
        assert_eq!(disk.statistics().reset_count, 1);
        assert_eq!(world.bus.live_page_count(), pages);
    }
}

#[test]
fn a_disk_is_the_same_after_a_reset_but_for_its_size() {
    let world = World::new(2);
    let mut disk = world.disk().expect("honest");
    let mut irq = world.device.borrow().irq.clone();
    world.device.borrow_mut().resize(600);
    disk.acknowledge(&mut irq).expect("honest");
    assert_eq!(disk.limits().sector_count, 600);
    world.device.borrow_mut().resize(SECTOR_COUNT);
    disk.reset().expect("the same");
    assert_eq!(disk.limits().sector_count, SECTOR_COUNT);
    world.device.borrow_mut().medium().block_bytes = 2048;
    assert_eq!(disk.reset(), Err(DeviceFault::Changed.into()));
    assert_eq!(disk.notify(), Err(DeviceFault::Changed.into()));
    world.device.borrow_mut().medium().block_bytes = 512;
    world.device.borrow_mut().medium().queue_count = 1;
    assert_eq!(disk.reset(), Err(DeviceFault::Changed.into()));
    world.device.borrow_mut().medium().queue_count = 2;
    disk.reset().expect("the same");
    world.device.borrow_mut().need_reset();
    assert_eq!(disk.acknowledge(&mut irq), Err(DeviceFault::NeedsReset.into()));
    disk.reset().expect("the same");
    world.device.borrow_mut().refuses_reset = true;
    assert_eq!(disk.reset(), Err(DeviceFault::ResetTimeout.into()));
    let stopped = disk.stop();
    assert_eq!(stopped.outcome, Err(DeviceFault::ResetTimeout.into()));
    assert_eq!(world.bus.quarantined_buffer_count(), 3);
}

#[test]
fn a_message_that_may_be_for_the_configuration_costs_a_look_only_now_and_then() {
    let world = World::new(1);
    let (windows, multiplier) = pci(&world.device);
    let transport = PciTransport::new(windows, multiplier, DEVICE_TYPE_BLOCK, PciInterrupt::Message { vector: 0 });
    let mut disk = Disk::new(transport, world.bus.dma(), LIMITS).expect("honest");
    let mut irq = world.device.borrow().irq.clone();
    world.device.borrow_mut().resize(600);
    let place = [Place { offset: 0, length_bytes: 512 }];
    let mut look = |world: &World, is_busy: bool| {
        if is_busy {
            disk.submit(&request(0, BlockOperation::Read, 1, &place), &world.memory).expect("room");
            disk.notify().expect("honest");
        }
        disk.acknowledge(&mut irq).expect("honest");
        let _ = world.told(&mut disk);
        disk.limits().sector_count
    };
    assert_eq!(look(&world, true), SECTOR_COUNT, "the request was why");
    assert_eq!(look(&world, false), 600, "nothing else was");
    world.device.borrow_mut().resize(700);
    let count = (0..100).take_while(|_| look(&world, true) == 600).count();
    assert_eq!(count, 64, "but not for ever");
}

#[test]
fn a_device_that_cannot_be_a_disk_is_refused() {
    let refused = |change: &dyn Fn(&mut FakeSerial)| {
        let world = World::new(1);
        change(&mut world.device.borrow_mut());
        let error = world.disk().expect_err("refused");
        assert_eq!(world.bus.live_page_count(), PAGE_COUNT);
        world.assert_clean();
        error
    };
    for block_bytes in [0, 1, 256, 513, 8192, u32::MAX] {
        assert_eq!(refused(&|disk| disk.medium().block_bytes = block_bytes), DeviceFault::DiskLayout.into());
    }
    let error = refused(&|disk| {
        disk.offered |= SIZE_MAX;
        disk.medium().size_max = 511;
    });
    assert_eq!(error, DeviceFault::DiskLayout.into());
    assert_eq!(refused(&|disk| disk.set_queue_size_max(0, 0)), DeviceFault::QueueMissing { queue: 0 }.into());
    assert_eq!(refused(&|disk| disk.refuses_features = true), DeviceFault::FeaturesRefused.into());
    let world = World::new(1);
    world.device.borrow_mut().medium().segment_max = 0;
    world.device.borrow_mut().medium().queue_count = 0;
    world.device.borrow_mut().medium().physical_exponent = 200;
    world.device.borrow_mut().medium().range_sectors_max = 0;
    let limits = world.disk().expect("odd, but a disk").limits();
    assert_eq!((limits.segment_count_max, limits.queue_count, limits.physical_block_bytes), (1, 1, 512));
    assert!(limits.discard.is_none() && limits.write_zeroes.is_none());
}

#[derive(Clone, Debug)]
enum Act {
    Submit { tag: u16, operation: BlockOperation, first: u64, sizes: Vec<u8> },
    Notify,
    Poll,
    Ask,
    Acknowledge,
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    let operation = prop_oneof![
        4 => Just(BlockOperation::Read),
        4 => Just(BlockOperation::Write),
        1 => Just(BlockOperation::Flush),
        1 => Just(BlockOperation::WriteZeroes),
    ];
    let submit = (0..40u16, operation, 0..SECTOR_COUNT + 8, proptest::collection::vec(1..4u8, 1..5))
        .prop_map(|(tag, operation, first, sizes)| Act::Submit { tag, operation, first, sizes });
    prop_oneof![
        8 => submit,
        4 => Just(Act::Notify),
        4 => Just(Act::Poll),
        1 => Just(Act::Ask),
        1 => Just(Act::Acknowledge),
        1 => Just(Act::Reset),
    ]
}

/// Each tag has a page of its own.
fn pieces_of(tag: u16, sizes: &[u8]) -> Vec<Place> {
    let mut offset = u64::from(tag) * 4096 + 7;
    let mut pieces = Vec::new();
    for size in sizes.iter().take(4) {
        let length_bytes = u32::from((*size).min(2)) * 512;
        pieces.push(Place { offset, length_bytes });
        offset += u64::from(length_bytes);
    }
    pieces.truncate(3);
    pieces
}

fn mischief() -> impl Strategy<Value = Mischief> {
    let queue = 0..2u16;
    prop_oneof![
        8 => Just(Mischief::Behave),
        1 => (queue.clone(), any::<u16>()).prop_map(|(queue, value)| Mischief::UsedIndex { queue, value }),
        1 => (queue.clone(), 0..20u16).prop_map(|(queue, count)| Mischief::UsedIndexAdd { queue, count }),
        3 => (queue, prop_oneof![0..80u32, any::<u32>()], any::<u32>())
            .prop_map(|(queue, id, length_bytes)| Mischief::Return { queue, id, length_bytes }),
        3 => (any::<usize>(), any::<usize>(), proptest::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(buffer, offset, bytes)| Mischief::Scribble { buffer, offset, bytes }),
        1 => any::<u8>().prop_map(|cause| Mischief::Interrupt { cause }),
        1 => any::<u8>().prop_map(|value| Mischief::Status { value }),
    ]
}

fn missing() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 1 => Just(INDIRECT), 1 => Just(EVENT_INDEX), 1 => Just(INDIRECT | EVENT_INDEX)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// The device does anything, from the first moment: errors or wrong bytes, never a panic, and never a tag that is
    /// not under way; and a disk that was ended by it begins again when the device behaves.
    #[test]
    fn hostile_device_never_breaks_the_driver(
        steps in proptest::collection::vec((mischief(), act()), 0..80),
        immediate in any::<bool>(),
        status in prop_oneof![4 => Just(None), 1 => any::<u8>().prop_map(Some)],
        missing in missing(),
    ) {
        let world = World::new(2);
        world.device.borrow_mut().offered &= !missing;
        world.device.borrow_mut().pace = if immediate { Pace::Immediate } else { Pace::Stepped };
        let mut disk = world.disk().expect("honest so far");
        world.device.borrow_mut().medium().status_forced = status;
        let pages = world.bus.live_page_count();
        let mut under_way = [false; 40];
        for (mischief, act) in &steps {
            world.device.borrow_mut().misbehave(mischief);
            match act {
                Act::Submit { tag, operation, first, sizes } => {
                    let has_memory = matches!(operation, BlockOperation::Read | BlockOperation::Write);
                    let pieces = if has_memory { pieces_of(*tag, sizes) } else { Vec::new() };
                    let request = BlockRequest { queue: tag % 2, ..request(*tag, *operation, *first, &pieces) };
                    if disk.submit(&request, &world.memory).is_ok() {
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
                Act::Acknowledge => {
                    let mut irq = world.device.borrow().irq.clone();
                    let _ = disk.acknowledge(&mut irq);
                }
                Act::Reset => {
                    let _ = disk.reset();
                    under_way = [false; 40];
                }
            }
            prop_assert_eq!(world.bus.live_page_count(), pages);
        }
        world.device.borrow_mut().medium().status_forced = None;
        world.device.borrow_mut().pace = Pace::Immediate;
        disk.reset().expect("a device that behaves");
        let place = [Place { offset: 3, length_bytes: 1024 }];
        for tag in 0..40 {
            world.memory.fill(3, &[tag as u8; 1024]);
            prop_assert_eq!(world.perform(&mut disk, request(tag, BlockOperation::Write, 9, &place)), Ok(()));
            prop_assert_eq!(world.perform(&mut disk, request(tag, BlockOperation::Read, 9, &place)), Ok(()));
            prop_assert_eq!(world.memory.bytes(3, 1024), vec![tag as u8; 1024]);
        }
        prop_assert_eq!(disk.stop().outcome, Ok(()));
        prop_assert_eq!(world.bus.live_page_count(), PAGE_COUNT);
    }

    /// With an honest device that finishes in any order, what is read is what a naive disk has at the moment of its
    /// completion, and every tag is told once.
    #[test]
    fn content_is_that_of_a_naive_disk(
        steps in proptest::collection::vec(act(), 0..120),
        is_reversed in any::<bool>(),
        immediate in any::<bool>(),
        missing in missing(),
    ) {
        let world = World::without(missing);
        world.device.borrow_mut().pace = if immediate { Pace::Immediate } else { Pace::Stepped };
        world.device.borrow_mut().medium().is_reversed = is_reversed;
        let mut disk = world.disk().expect("honest");
        let mut model: Vec<Vec<u8>> = (0..SECTOR_COUNT as usize).map(pattern).collect();
        // By tag: what is under way, and the bytes of a write.
        let mut under_way: BTreeMap<u16, (BlockOperation, u64, Vec<Place>)> = BTreeMap::new();
        let mut shown: Vec<u16> = Vec::new();
        let mut waiting: Vec<u16> = Vec::new();
        for (index, act) in steps.iter().enumerate() {
            match act {
                Act::Submit { tag, operation, first, sizes } => {
                    let has_memory = matches!(operation, BlockOperation::Read | BlockOperation::Write);
                    let pieces = if has_memory { pieces_of(*tag, sizes) } else { Vec::new() };
                    let sectors: u64 = pieces.iter().map(|piece| u64::from(piece.length_bytes) / 512).sum();
                    let request = match operation {
                        BlockOperation::WriteZeroes => range(*tag, *operation, *first, 2),
                        BlockOperation::Flush => range(*tag, *operation, 0, 0),
                        _ => request(*tag, *operation, *first, &pieces),
                    };
                    let sectors = if *operation == BlockOperation::WriteZeroes { 2 } else { sectors };
                    let is_good = *operation == BlockOperation::Flush || first + sectors <= SECTOR_COUNT;
                    if is_good && *operation == BlockOperation::Write && !under_way.contains_key(tag) {
                        for piece in &pieces {
                            world.memory.fill(piece.offset, &vec![index as u8; piece.length_bytes as usize]);
                        }
                    }
                    let is_free = !under_way.contains_key(tag);
                    match disk.submit(&request, &world.memory) {
                        Ok(()) => {
                            prop_assert!(is_good && is_free);
                            under_way.insert(*tag, (*operation, *first, pieces));
                            waiting.push(*tag);
                        }
                        Err(SubmitError::Request) => prop_assert!(!is_good || !is_free),
                        Err(error) => prop_assert_eq!(error, SubmitError::Full),
                    }
                }
                Act::Notify | Act::Ask => {
                    if matches!(act, Act::Ask) {
                        let _ = disk.ask_for_interrupt().expect("honest");
                    }
                    disk.notify().expect("honest");
                    shown.append(&mut waiting);
                }
                Act::Poll | Act::Acknowledge | Act::Reset => {
                    world.device.borrow_mut().step();
                    let mut expected = std::mem::take(&mut shown);
                    if is_reversed && !immediate {
                        expected.reverse();
                    }
                    let told = world.told(&mut disk);
                    let mut tags: Vec<u16> = told.iter().map(|(tag, _)| *tag).collect();
                    prop_assert!(told.iter().all(|(_, result)| result.is_ok()));
                    let history = std::mem::take(&mut world.device.borrow_mut().medium().history);
                    prop_assert_eq!(history.len(), tags.len());
                    // The order of completions is the order of their effects.
                    for tag in &tags {
                        let (operation, first, pieces) = under_way.remove(tag).expect("under way");
                        let mut sector = first as usize;
                        match operation {
                            BlockOperation::WriteZeroes => {
                                model[sector].fill(0);
                                model[sector + 1].fill(0);
                            }
                            BlockOperation::Read | BlockOperation::Write => for piece in pieces {
                                let bytes = world.memory.bytes(piece.offset, piece.length_bytes as usize);
                                for part in bytes.chunks(SECTOR) {
                                    if operation == BlockOperation::Write {
                                        model[sector] = part.to_vec();
                                    }
                                    prop_assert_eq!(part, &model[sector][..]);
                                    sector += 1;
                                }
                            },
                            _ => {}
                        }
                    }
                    tags.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(tags, expected);
                }
            }
        }
        world.assert_clean();
    }
}
