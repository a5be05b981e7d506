//! The IDE function of a real QEMU's `pc`, without a guest, through QEMU's test protocol: two disks on the first
//! channel and one on the second, by DMA and by the processor, with 28 and 48 bits of place. Without QEMU the test says
//! so and passes.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use aegis_hal::block::{BlockDevice, BlockError, BlockMemory, BlockOperation, BlockRequest};
use aegis_hal::net::{DmaWindow, Place};
use aegis_hal::qtest::{Folder, Machine, MachineBuffer, MachineDma, MachinePorts};
use aegis_hal::{DeviceAddress, DmaBuffer};
use aegis_ide::{Channel, Disk, IdeError, Limits, Ports};

/// Where the test, in place of firmware, puts the bus master's ports.
const BUS_MASTER: u16 = 0xc000;
/// Memory of requests, apart from that of [`MachineDma`]: a line of 64 KiB is within it.
const CLIENT_BASE: u64 = 0x200_0000 + 0x8000;
const CLIENT_BYTES: u64 = 0x20_000;
const POLL_COUNT_MAX: u32 = 100_000;
const LIMITS: Limits = Limits { request_count: 4, segment_count_max: 16, uses_dma: true, poll_count_max: 100_000 };

/// Memory of requests.
struct Memory(RefCell<MachineBuffer>);

impl Memory {
    fn is_there(place: Place) -> bool {
        place.offset.checked_add(u64::from(place.length_bytes)).is_some_and(|end| end <= CLIENT_BYTES)
    }

    fn bytes(&self, pieces: &[Place]) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in pieces {
            let mut bytes = vec![0; piece.length_bytes as usize];
            assert!(self.copy_out(*piece, &mut bytes));
            all.extend(bytes);
        }
        all
    }
}

impl DmaWindow for Memory {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        Self::is_there(place).then_some(DeviceAddress(CLIENT_BASE + place.offset))
    }
}

impl BlockMemory for Memory {
    fn copy_in(&self, place: Place, from: &[u8]) -> bool {
        self.0.borrow_mut().copy_in(place.offset as usize, from).is_ok()
    }

    fn copy_out(&self, place: Place, into: &mut [u8]) -> bool {
        self.0.borrow().copy_out(place.offset as usize, into).is_ok()
    }
}

type MachineChannel = Channel<MachinePorts, MachineDma>;

fn channel(machine: &Machine, second: bool, limits: Limits) -> Result<MachineChannel, IdeError> {
    let port = |first: u16, count| machine.ports(first, count);
    let (command, control) = if second { (0x170, 0x376) } else { (0x1f0, 0x3f6) };
    let ports = Ports {
        command: port(command, 8),
        control: port(control, 1),
        bus_master: Some(port(BUS_MASTER, 16)),
        bus_master_offset: if second { 8 } else { 0 },
    };
    Channel::new(ports, MachineDma::new(machine), limits)
}

/// A file that is a disk; the path is in `directory`.
fn medium(directory: &Path, index: u32, byte_count: u64) -> (File, Vec<String>) {
    let path = directory.join(format!("disk{index}.raw"));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
    file.set_len(byte_count).expect("a scratch file");
    let bytes: Vec<u8> = (0..1 << 20).map(|place: u32| (place * 31 + place / 253 + index) as u8).collect();
    file.write_all_at(&bytes, 0).expect("a scratch file");
    file.write_all_at(&bytes, byte_count - bytes.len() as u64).expect("a scratch file");
    let options = "format=raw,if=ide,cache=writeback,werror=report,rerror=report";
    (file, ["-drive".into(), format!("file={},{options},index={index}", path.display())].into())
}

fn perform<C>(disk: &mut Disk<C, MachinePorts, MachineDma>, memory: &Memory, request: BlockRequest<'_>)
where
    C: std::borrow::BorrowMut<MachineChannel>,
{
    disk.submit(&request, memory).unwrap_or_else(|error| panic!("{error:?} of {request:?}"));
    disk.notify().expect("honest");
    let mut told: Vec<(u16, Result<(), BlockError>)> = Vec::new();
    for _ in 0..POLL_COUNT_MAX {
        if disk.has_completed() {
            disk.poll(memory, &mut |tag, result| told.push((tag, result))).expect("honest");
            if !told.is_empty() {
                break;
            }
        }
    }
    assert_eq!(told, [(request.tag, Ok(()))], "{request:?}");
}

fn exercise(machine: &Machine, channel: &mut MachineChannel, device: u8, file: &File) {
    let memory = Memory(RefCell::new(machine.memory(CLIENT_BASE, CLIENT_BYTES as usize)));
    let mut disk = Disk::new(channel, device).expect("a disk of QEMU");
    let sector_count = disk.limits().sector_count;
    assert_eq!(sector_count, file.metadata().expect("a file").len() / 512);
    let place = |offset, length_bytes| Place { offset, length_bytes };
    let shapes = [
        vec![place(0, 4096)],
        vec![place(0x7000, 0x2000)],
        vec![place(0, 512), place(0x9000, 1024)],
        vec![place(1, 512)],
    ];
    for (round, first) in [5, 100, sector_count - 40].into_iter().enumerate() {
        for pieces in &shapes {
            let byte_count: usize = pieces.iter().map(|piece| piece.length_bytes as usize).sum();
            let request = |operation, first_sector| BlockRequest {
                tag: round as u16,
                queue: 0,
                operation,
                first_sector,
                sector_count: byte_count as u32 / 512,
                pieces,
            };
            perform(&mut disk, &memory, request(BlockOperation::Read, first));
            let mut expected = vec![0; byte_count];
            file.read_exact_at(&mut expected, first * 512).expect("within it");
            assert!(memory.bytes(pieces) == expected);
            // Somewhere else, so that it changes.
            perform(&mut disk, &memory, request(BlockOperation::Write, first + 20));
            let flush = BlockRequest { pieces: &[], ..request(BlockOperation::Flush, 0) };
            perform(&mut disk, &memory, flush);
            let mut written = vec![0; byte_count];
            file.read_exact_at(&mut written, (first + 20) * 512).expect("within it");
            assert!(written == expected);
        }
        if round == 1 {
            disk.reset().expect("a device of QEMU");
        }
    }
    assert_eq!(disk.statistics().error_count, 0);
}

#[test]
fn disks_of_both_channels() {
    let folder = Folder::new("ide");
    // The second disk is so large that its end needs 48 bits; its file has holes.
    let sizes = [(0, 4 << 20), (1, 130 << 30), (2, 2 << 20)];
    let (files, arguments): (Vec<File>, Vec<Vec<String>>) =
        sizes.into_iter().map(|(index, byte_count)| medium(folder.path(), index, byte_count)).unzip();
    let arguments = [["-M", "pc"].map(String::from).to_vec(), arguments.concat()].concat();
    let Some(machine) = Machine::start(folder.path(), &arguments) else { return };
    machine.pci_config(1, 1).enable(4, u32::from(BUS_MASTER) | 1);
    for uses_dma in [true, false] {
        let limits = Limits { uses_dma, ..LIMITS };
        let mut first = channel(&machine, false, limits).expect("two disks");
        exercise(&machine, &mut first, 0, &files[0]);
        exercise(&machine, &mut first, 1, &files[1]);
        exercise(&machine, &mut first, 0, &files[0]);
        assert_eq!(first.stop().outcome, Ok(()));
        let mut second = channel(&machine, true, limits).expect("a disk");
        exercise(&machine, &mut second, 0, &files[2]);
        assert_eq!(Disk::new(&mut second, 1).err(), Some(IdeError::Absent));
    }
}
