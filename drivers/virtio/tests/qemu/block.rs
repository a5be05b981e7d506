//! The disk of a real QEMU over a file of the host: every operation, errors at its end, many requests at once, before
//! and after a reset, over both transports.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use aegis_hal::block::{BlockDevice, BlockError, BlockMemory, BlockOperation, BlockRequest};
use aegis_hal::fake::FakeIrq;
use aegis_hal::net::{DmaWindow, Place};
use aegis_hal::qtest::{Machine, MachineBuffer, MachineDma};
use aegis_hal::{DeviceAddress, Dma, DmaBuffer, Volatile};
use aegis_virtio::Transport;
use aegis_virtio::block::{DEVICE_TYPE_BLOCK, Disk, Limits};

use crate::host_ends::HostEnds;
use crate::{POLL_COUNT_MAX, pattern, transport};

const LIMITS: Limits =
    Limits { request_count: 64, segment_count_max: 8, queue_count_max: 2, reset_poll_count_max: 100 };
const DISK_BYTES: u64 = 1 << 20;
const SECTOR_COUNT: u64 = DISK_BYTES / 512;

/// Memory of requests.
struct Memory(MachineBuffer);

impl Memory {
    fn bytes(&self, offset: usize, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.copy_out(offset, &mut bytes).expect("within it");
        bytes
    }
}

impl DmaWindow for Memory {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        let end = place.offset + u64::from(place.length_bytes);
        (end <= self.0.length_bytes() as u64).then_some(self.0.device_address().offset(place.offset as usize))
    }
}

impl BlockMemory for Memory {
    fn copy_in(&self, _: Place, _: &[u8]) -> bool {
        false
    }

    fn copy_out(&self, _: Place, _: &mut [u8]) -> bool {
        false
    }
}

/// A file that is a disk, and what QEMU has to be told of it.
fn medium(host: &HostEnds) -> (File, Vec<String>) {
    let path: PathBuf = host.directory().join("disk.raw");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a scratch file");
    file.write_all_at(&pattern(DISK_BYTES as usize, 1), 0).expect("a scratch file");
    let drive =
        format!("file={},format=raw,if=none,id=disk,cache=writeback,werror=report,rerror=report", path.display());
    (file, ["-drive".into(), drive].into())
}

fn content(file: &File, sector: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * 512];
    file.read_exact_at(&mut bytes, sector * 512).expect("within it");
    bytes
}

fn request(tag: u16, operation: BlockOperation, first_sector: u64, pieces: &[Place]) -> BlockRequest<'_> {
    let byte_count: u32 = pieces.iter().map(|piece| piece.length_bytes).sum();
    BlockRequest { tag, queue: 0, operation, first_sector, sector_count: byte_count / 512, pieces }
}

type Told = Vec<(u16, Result<(), BlockError>)>;

/// Shows what was submitted, and waits for so many completions.
fn wait<T: Transport>(disk: &mut Disk<T, MachineDma>, memory: &Memory, count: usize) -> Told {
    let mut told = Vec::new();
    disk.notify().expect("honest");
    for _ in 0..POLL_COUNT_MAX {
        disk.poll(memory, &mut |tag, result| told.push((tag, result))).expect("honest");
        if told.len() >= count {
            break;
        }
    }
    told.sort_unstable_by_key(|(tag, _)| *tag);
    assert_eq!(told.len(), count);
    told
}

fn exercise<T: Transport>(transport: T, machine: &Machine, file: &File) {
    let memory = Memory(MachineDma::new(machine).allocate(16).expect("memory"));
    let mut dma = MachineDma::new(machine);
    // Behind what the test's own memory took.
    let _ = dma.allocate(16);
    let mut disk = Disk::new(transport, dma, LIMITS).expect("a device of QEMU");
    let limits = disk.limits();
    assert_eq!((limits.sector_count, limits.logical_block_bytes, limits.depth), (SECTOR_COUNT, 512, 64));
    assert!(limits.has_write_cache && !limits.is_read_only && limits.discard.is_some());
    let mut irq = FakeIrq::new();
    for round in 0..3u64 {
        // Many reads of several pieces at once.
        for tag in 0..64u16 {
            let offset = u64::from(tag) * 1024;
            let pieces = [Place { offset: offset + 512, length_bytes: 512 }, Place { offset, length_bytes: 512 }];
            let request = request(tag, BlockOperation::Read, 8 * u64::from(tag) + round, &pieces);
            disk.submit(&request, &memory).expect("room");
        }
        let _ = disk.ask_for_interrupt().expect("honest");
        assert_eq!(wait(&mut disk, &memory, 64), Vec::from_iter((0..64).map(|tag| (tag, Ok(())))));
        disk.acknowledge(&mut irq).expect("honest");
        for tag in 0..64usize {
            let expected = content(file, 8 * tag as u64 + round, 2);
            assert_eq!(memory.bytes(tag * 1024 + 512, 512), expected[..512]);
            assert_eq!(memory.bytes(tag * 1024, 512), expected[512..]);
        }
        // A write, a flush, zeros, a discard.
        let written = [Place { offset: 0, length_bytes: 4096 }];
        let bytes = memory.bytes(0, 4096);
        disk.submit(&request(1, BlockOperation::Write, 1000 + round, &written), &memory).expect("room");
        assert_eq!(wait(&mut disk, &memory, 1), [(1, Ok(()))]);
        disk.submit(&request(2, BlockOperation::Flush, 0, &[]), &memory).expect("room");
        assert_eq!(wait(&mut disk, &memory, 1), [(2, Ok(()))]);
        assert_eq!(content(file, 1000 + round, 8), bytes);
        for (tag, operation) in [(3, BlockOperation::WriteZeroes), (4, BlockOperation::Discard)] {
            let zeroes = BlockRequest { sector_count: 8, ..request(tag, operation, 1200 + round, &[]) };
            disk.submit(&zeroes, &memory).expect("room");
            assert_eq!(wait(&mut disk, &memory, 1), [(tag, Ok(()))]);
        }
        assert_eq!(content(file, 1200 + round, 8), [0; 4096]);
        disk.reset().expect("a device of QEMU");
    }
    assert_eq!(disk.statistics().error_count, 0);
    let stopped = disk.stop();
    assert_eq!(stopped.outcome, Ok(()));
    assert_eq!(stopped.dma.live_page_count(), 16);
}

#[test]
fn disk_of_microvm_over_mmio() {
    let host = HostEnds::new("block-mmio");
    let (file, mut arguments) = medium(&host);
    arguments.extend(["-M", "microvm", "-global", "virtio-mmio.force-legacy=false"].map(String::from));
    arguments.extend(["-device".into(), "virtio-blk-device,drive=disk,discard=on".into()]);
    let Some(machine) = Machine::start(host.directory(), &arguments) else {
        return;
    };
    let transport = transport::of_microvm(&machine, DEVICE_TYPE_BLOCK);
    exercise(transport, &machine, &file);
}

#[test]
fn disk_of_q35_over_pci() {
    let host = HostEnds::new("block-pci");
    let (file, mut arguments) = medium(&host);
    arguments.extend(["-M", "q35"].map(String::from));
    let device = "virtio-blk-pci-non-transitional,drive=disk,discard=on,num-queues=2,addr=4";
    arguments.extend(["-device".into(), device.into()]);
    let Some(machine) = Machine::start(host.directory(), &arguments) else {
        return;
    };
    let transport = transport::of_q35(&machine, DEVICE_TYPE_BLOCK);
    exercise(transport, &machine, &file);
}
