//! An open disk over a fake one: bytes against a model, alignment, the end, errors, what a power cut would leave.

use core::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;
use crate::block::device::{DiskCarrier, DiskDescription, Disks};
use crate::block::disk::Disk;
use crate::block::fake::{FakeDisk, fake_limits};
use crate::block::queue::{BlockQueue, LOOK_NS_MAX};
use crate::block::request::PriorityClass;
use crate::block::transfer::Transfer;
use crate::fake::FakeMachine;
use crate::fs::metadata::DeviceNumber;
use crate::fs::transfer::SliceDestination;
use crate::mem::frames::FramePool;

const SECTORS: u64 = 1000;
const BYTES: usize = SECTORS as usize * 512;

struct Carrier {
    disk: Arc<FakeDisk>,
    now_ns: AtomicU64,
}

impl DiskCarrier for Carrier {
    fn open(&self, _: usize) -> Option<Arc<dyn Disk>> {
        Some(self.disk.clone())
    }

    fn attach(&self, _: usize, _: &Arc<BlockQueue>) {}

    fn wait(&self, queue: &BlockQueue, transfer: &Transfer) -> Result<()> {
        for _ in 0..1000 {
            queue.look(self.now_ns.fetch_add(LOOK_NS_MAX, Ordering::Relaxed));
            if let Some(outcome) = transfer.outcome() {
                return outcome;
            }
        }
        panic!("it does not end");
    }

    fn class(&self) -> PriorityClass {
        PriorityClass::BestEffort
    }
}

struct Setup {
    disk: Arc<FakeDisk>,
    pool: Arc<FramePool>,
    device: Arc<DiskDevice>,
}

const READ_WRITE: OpenRequest = OpenRequest { read: true, write: true, non_blocking: false };

impl Setup {
    fn new(is_read_only: bool) -> Self {
        let machine = FakeMachine::new();
        let pool = FramePool::new(machine.clone(), machine.clone(), 64 << 20);
        let disk = FakeDisk::new(fake_limits(SECTORS), Some(machine));
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 512 * 3 + at) as u8).collect();
        disk.set_content(0, &bytes);
        let carrier: Arc<dyn DiskCarrier> = Arc::new(Carrier { disk: disk.clone(), now_ns: AtomicU64::new(0) });
        let number = DeviceNumber { major: 254, minor: 0 };
        let description = DiskDescription { name: "vda".into(), number, is_read_only, order: None };
        let disks = Disks::new([description], &carrier, &pool);
        Self { disk, pool, device: disks.all()[0].clone() }
    }

    fn open(&self) -> Arc<DiskFile> {
        DiskFile::open(&self.device, READ_WRITE).unwrap()
    }
}

fn read(file: &DiskFile, offset: u64, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let done = file.read(offset, &mut SliceDestination::new(&mut bytes))?;
    bytes.truncate(done);
    Ok(bytes)
}

fn write(file: &DiskFile, offset: u64, bytes: &[u8]) -> Result<usize> {
    file.write(offset, &mut &*bytes)
}

/// Memory as a program has it, for transfers past the cache.
struct Pinnable<'a> {
    pool: &'a Arc<FramePool>,
    frame: aegis_abi::FrameNumber,
    offset: u32,
    left: usize,
}

impl Destination for Pinnable<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn put(&mut self, _: &[u8]) -> usize {
        panic!("past the cache nothing is copied");
    }

    fn pin(&mut self, count: u64, memory: &mut PinnedMemory) -> Result<u64> {
        self.pool.retain(self.frame);
        memory.push(self.frame, self.offset, count as u32)?;
        self.left -= count as usize;
        Ok(count)
    }
}

fn read_direct(setup: &Setup, file: &DiskFile, at: u64, offset: u32, count: usize) -> Result<Vec<u8>> {
    let frame = setup.pool.allocate_ref().unwrap();
    let mut memory = Pinnable { pool: &setup.pool, frame: frame.frame(), offset, left: count };
    let done = file.read(at, &mut memory)?;
    let mut bytes = vec![0; done];
    setup.pool.bytes().read(frame.frame(), offset as usize, &mut bytes);
    Ok(bytes)
}

#[test]
fn a_disk_ends_as_linux_has_it() {
    let setup = Setup::new(false);
    let file = setup.open();
    let end = BYTES as u64;
    assert_eq!((read(&file, end, 10), read(&file, u64::MAX / 2, 10)), (Ok(vec![]), Ok(vec![])));
    assert_eq!(read(&file, end - 3, 10).unwrap(), setup.disk.content()[BYTES - 3..]);
    assert_eq!((write(&file, end, b"x"), write(&file, end, b"")), (Err(Errno::ENOSPC), Ok(0)));
    assert_eq!(write(&file, end - 3, b"abcde"), Ok(3));
    file.sync().unwrap();
    assert_eq!(setup.disk.content()[BYTES - 3..], *b"abc");
    assert_eq!(file.size_bytes(), Some(end));
}

#[test]
fn past_the_cache_everything_is_in_whole_blocks() {
    let setup = Setup::new(false);
    let file = setup.open();
    file.set_mode(true, false);
    let content = setup.disk.content();
    assert_eq!(read_direct(&setup, &file, 512, 512, 1024).unwrap(), content[512..1536]);
    for (at, offset, count) in [(1, 0, 512), (0, 1, 512), (0, 0, 511), (512, 256, 512)] {
        assert_eq!(read_direct(&setup, &file, at, offset, count), Err(Errno::EINVAL), "{at} {offset} {count}");
    }
    assert_eq!(read_direct(&setup, &file, BYTES as u64 - 512, 0, 4096).unwrap(), content[BYTES - 512..]);
    assert_eq!(read_direct(&setup, &file, BYTES as u64, 0, 512), Ok(vec![]));
    let statistics = setup.pool.statistics();
    assert_eq!(statistics.held, statistics.free);
}

#[test]
fn past_the_cache_is_seen_what_is_in_it_and_the_reverse() {
    let setup = Setup::new(false);
    let (cached, direct) = (setup.open(), setup.open());
    direct.set_mode(true, false);
    write(&cached, 100, b"new").unwrap();
    assert_eq!(read_direct(&setup, &direct, 0, 0, 512).unwrap()[100..103], *b"new");
    read(&cached, 8192, 100).unwrap();
    direct.change_range(DiskOperation::WriteZeroes, 8192, 4096).unwrap();
    assert_eq!(read(&cached, 8192, 100).unwrap(), [0; 100]);
}

#[test]
fn what_is_written_is_on_the_medium_when_that_was_promised() {
    let setup = Setup::new(false);
    let (file, other) = (setup.open(), setup.open());
    write(&file, 0, b"first").unwrap();
    assert_ne!(setup.disk.content()[..5], *b"first");
    file.sync().unwrap();
    let last = setup.disk.log().pop().unwrap();
    assert_eq!((&setup.disk.content()[..5], last.operation), (&b"first"[..], DiskOperation::Flush));
    file.set_mode(false, true);
    write(&file, 5, b"second").unwrap();
    assert_eq!(setup.disk.content()[..11], *b"firstsecond");
    write(&other, 20, b"third").unwrap();
    drop(file);
    assert_ne!(setup.disk.content()[20..25], *b"third");
    drop(other);
    assert_eq!(setup.disk.content()[20..25], *b"third");
}

#[test]
fn a_failed_write_back_is_told_once_to_each_open_file() {
    let setup = Setup::new(false);
    let (file, other) = (setup.open(), setup.open());
    write(&file, 4096, b"lost").unwrap();
    setup.disk.behave(|disk| disk.bad_sectors = [8].into());
    assert_eq!((file.sync(), file.sync()), (Err(Errno::EIO), Ok(())));
    assert_eq!((other.sync(), other.sync()), (Err(Errno::EIO), Ok(())));
    assert_eq!(setup.open().sync(), Ok(()));
}

#[test]
fn what_cannot_be_read_ahead_hinders_nobody() {
    let setup = Setup::new(false);
    let file = setup.open();
    setup.disk.behave(|disk| disk.bad_sectors = [40].into());
    for page in 0..5 {
        assert_eq!(read(&file, page * 4096, 4096).map(|bytes| bytes.len()), Ok(4096), "{page}");
    }
    assert_eq!(read(&file, 5 * 4096, 4096), Err(Errno::EIO));
    assert_eq!(read(&file, 6 * 4096, 4096).map(|bytes| bytes.len()), Ok(4096));
}

#[test]
fn a_read_only_disk_is_not_opened_for_writing() {
    let setup = Setup::new(true);
    assert_eq!(DiskFile::open(&setup.device, READ_WRITE).err(), Some(Errno::EACCES));
    let file = DiskFile::open(&setup.device, OpenRequest { write: false, ..READ_WRITE }).unwrap();
    assert_eq!(read(&file, 0, 10).map(|bytes| bytes.len()), Ok(10));
    assert_eq!(file.change_range(DiskOperation::Discard, 0, 512), Err(Errno::EROFS));
}

#[test]
fn ranges_are_whole_blocks_on_the_disk() {
    let setup = Setup::new(false);
    let file = setup.open();
    for (offset, count) in [(1, 512), (0, 100), (0, 0), (BYTES as u64, 512), (!511, 512)] {
        assert_eq!(file.change_range(DiskOperation::Discard, offset, count), Err(Errno::EINVAL), "{offset} {count}");
    }
    assert_eq!(file.allocate(Allocate::PunchHole, 512, 1024), Ok(()));
    assert_eq!(file.allocate(Allocate::Extend, 512, 1024), Err(Errno::EOPNOTSUPP));
    assert_eq!(setup.disk.content()[512..1536], [0; 1024]);
    // A disk that does not write zeros by itself is written to.
    setup.disk.set_limits(crate::block::disk::DiskLimits { write_zeroes: None, ..fake_limits(SECTORS) });
    let other = Setup::new(false);
    other.disk.set_limits(crate::block::disk::DiskLimits { write_zeroes: None, ..fake_limits(SECTORS) });
    let file = other.open();
    assert_eq!(file.change_range(DiskOperation::WriteZeroes, 0, 300 * 512), Ok(()));
    assert_eq!(other.disk.content()[..300 * 512], [0; 300 * 512]);
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, usize),
    Write(u64, Vec<u8>),
    Zero(u64, u64),
    Sync,
    Forget,
}

fn steps() -> impl Strategy<Value = Step> {
    let offset = 0..BYTES as u64 + 2000;
    prop_oneof![
        4 => (offset.clone(), 0_usize..30_000).prop_map(|(offset, count)| Step::Read(offset, count)),
        4 => (offset, prop::collection::vec(any::<u8>(), 0..9000)).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        1 => (0..SECTORS, 1_u64..50).prop_map(|(first, count)| Step::Zero(first, count)),
        1 => Just(Step::Sync),
        1 => Just(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever is done, a program sees what a plain array would show, and after a sync so does the disk.
    #[test]
    fn bytes_are_those_of_an_array(steps in prop::collection::vec(steps(), 1..40)) {
        let setup = Setup::new(false);
        let mut model = setup.disk.content();
        let file = setup.open();
        for step in steps {
            match step {
                Step::Read(offset, count) => {
                    let start = (offset as usize).min(BYTES);
                    let wanted = &model[start..(start + count).min(BYTES)];
                    let bytes = read(&file, offset, count);
                    prop_assert_eq!(bytes.as_deref(), Ok(wanted));
                }
                Step::Write(offset, bytes) => {
                    let start = (offset as usize).min(BYTES);
                    let count = bytes.len().min(BYTES - start);
                    let done = write(&file, offset, &bytes);
                    if count > 0 || bytes.is_empty() {
                        prop_assert_eq!(done, Ok(count));
                        model[start..start + count].copy_from_slice(&bytes[..count]);
                    } else {
                        prop_assert_eq!(done, Err(Errno::ENOSPC));
                    }
                }
                Step::Zero(first, count) => {
                    let end = (first + count).min(SECTORS);
                    file.change_range(DiskOperation::WriteZeroes, first * 512, (end - first) * 512).unwrap();
                    model[first as usize * 512..end as usize * 512].fill(0);
                }
                Step::Sync => {
                    file.sync().unwrap();
                    prop_assert!(setup.disk.content() == model);
                }
                Step::Forget => file.flush_pages().unwrap(),
            }
        }
        drop(file);
        prop_assert!(setup.disk.content() == model);
    }
}
