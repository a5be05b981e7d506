//! The IDE function of a real QEMU's `pc`, without a guest, through QEMU's test protocol: two disks on the first
//! channel and one on the second, by DMA and by the processor, with 28 and 48 bits of place. Without QEMU the test says
//! so and passes.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

use aegis_hal::block::{BlockDevice, BlockError, BlockMemory, BlockOperation, BlockRequest};
use aegis_hal::net::{DmaWindow, Place};
use aegis_hal::{
    AccessError, DeviceAddress, Dma, DmaBuffer, DmaError, PAGE_BYTES, Port, Volatile, Width, check_access, check_range,
};
use aegis_ide::{Channel, Disk, IdeError, Limits, Ports};

/// Where the test, in place of firmware, puts the bus master's ports.
const BUS_MASTER: u16 = 0xc000;
/// Memory for DMA, above what firmware images occupy.
const MEMORY_BASE: u64 = 0x100_0000;
/// Memory of requests: a line of 64 KiB is within it.
const CLIENT_BASE: u64 = 0x200_0000 + 0x8000;
const CLIENT_BYTES: u64 = 0x20_000;
const POLL_COUNT_MAX: u32 = 100_000;
const LIMITS: Limits = Limits { request_count: 4, segment_count_max: 16, uses_dma: true, poll_count_max: 100_000 };

struct Process {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // No QEMU may outlive its test; if it has ended already, so much the better.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone)]
struct Machine(Rc<RefCell<Process>>);

impl Machine {
    fn start(directory: &Path, arguments: &[String]) -> Option<Self> {
        // Firmware of one instruction and a jump back to it: the machine runs, and does nothing.
        let firmware = directory.join("idle.bin");
        let mut image = vec![0; 0x1_0000];
        image[0xfff0..0xfff3].copy_from_slice(&[0xf4, 0xeb, 0xfd]);
        std::fs::write(&firmware, image).expect("a scratch file");
        let spawned = Command::new("qemu-system-x86_64")
            .args(["-M", "pc", "-accel", "tcg", "-qtest", "stdio", "-qtest-log", "/dev/null"])
            .args(["-nodefaults", "-display", "none", "-m", "64M", "-bios"])
            .arg(firmware)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                println!("not tested: qemu-system-x86_64 does not start: {error}");
                return None;
            }
        };
        let commands = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Some(Self(Rc::new(RefCell::new(Process { child, commands, answers }))))
    }

    fn ask(&self, command: &str) -> String {
        let mut process = self.0.borrow_mut();
        writeln!(process.commands, "{command}").expect("QEMU takes commands");
        loop {
            let mut line = String::new();
            let count = process.answers.read_line(&mut line).expect("QEMU answers");
            assert!(count > 0, "QEMU ended at {command:?}");
            if let Some(answer) = line.trim_end().strip_prefix("OK") {
                return answer.trim_start().into();
            }
            assert!(line.starts_with("IRQ"), "{command:?} was answered by {line:?}");
        }
    }

    fn number(&self, command: &str) -> u64 {
        let answer = self.ask(command);
        u64::from_str_radix(answer.strip_prefix("0x").expect("a number"), 16).expect("a number")
    }

    fn config(&self, offset: u32, value: u32) {
        self.ask(&format!("outl 0xcf8 {:#x}", 0x8000_0900 | offset));
        self.ask(&format!("outl 0xcfc {value:#x}"));
    }

    fn read(&self, address: u64, bytes: &mut [u8]) {
        let answer = self.ask(&format!("read {address:#x} {:#x}", bytes.len()));
        let digits = answer.strip_prefix("0x").expect("bytes");
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        let mut command = format!("write {address:#x} {:#x} 0x", bytes.len());
        for byte in bytes {
            write!(command, "{byte:02x}").expect("a string takes everything");
        }
        self.ask(&command);
    }
}

struct MachinePort(Machine, u16, usize);

const fn suffix(width: Width) -> &'static str {
    match width {
        Width::U8 => "b",
        Width::U16 => "w",
        _ => "l",
    }
}

impl Port for MachinePort {
    fn port_count(&self) -> usize {
        self.2
    }

    fn input(&self, offset: usize, width: Width) -> Result<u32, AccessError> {
        check_range(offset, width.bytes(), self.2)?;
        Ok(self.0.number(&format!("in{} {:#x}", suffix(width), usize::from(self.1) + offset)) as u32)
    }

    fn output(&mut self, offset: usize, width: Width, value: u32) -> Result<(), AccessError> {
        check_range(offset, width.bytes(), self.2)?;
        self.0.ask(&format!("out{} {:#x} {value:#x}", suffix(width), usize::from(self.1) + offset));
        Ok(())
    }
}

/// One piece of memory, once.
struct MachineDma(Machine, bool);

struct MachineBuffer(Machine, usize);

impl Dma for MachineDma {
    type Buffer = MachineBuffer;

    fn allocate(&mut self, page_count: usize) -> Result<MachineBuffer, DmaError> {
        if std::mem::replace(&mut self.1, true) {
            return Err(DmaError::Exhausted);
        }
        Ok(MachineBuffer(self.0.clone(), page_count * PAGE_BYTES))
    }

    fn release(&mut self, _: MachineBuffer) {
        self.1 = false;
    }
}

impl Volatile for MachineBuffer {
    fn length_bytes(&self) -> usize {
        self.1
    }

    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError> {
        check_access(0, offset, width, self.1)?;
        let mut value = [0; 8];
        self.0.read(MEMORY_BASE + offset as u64, &mut value[..width.bytes()]);
        Ok(u64::from_le_bytes(value))
    }

    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError> {
        check_access(0, offset, width, self.1)?;
        self.0.write(MEMORY_BASE + offset as u64, &value.to_le_bytes()[..width.bytes()]);
        Ok(())
    }
}

impl DmaBuffer for MachineBuffer {
    fn device_address(&self) -> DeviceAddress {
        DeviceAddress(MEMORY_BASE)
    }

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.1)?;
        self.0.write(MEMORY_BASE + offset as u64, bytes);
        Ok(())
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.1)?;
        self.0.read(MEMORY_BASE + offset as u64, bytes);
        Ok(())
    }
}

/// Memory of requests.
struct Memory(Machine);

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
        self.0.write(CLIENT_BASE + place.offset, from);
        Self::is_there(place)
    }

    fn copy_out(&self, place: Place, into: &mut [u8]) -> bool {
        self.0.read(CLIENT_BASE + place.offset, into);
        Self::is_there(place)
    }
}

type MachineChannel = Channel<MachinePort, MachineDma>;

fn channel(machine: &Machine, second: bool, limits: Limits) -> Result<MachineChannel, IdeError> {
    let port = |first: u16, count| MachinePort(machine.clone(), first, count);
    let (command, control) = if second { (0x170, 0x376) } else { (0x1f0, 0x3f6) };
    let ports = Ports {
        command: port(command, 8),
        control: port(control, 1),
        bus_master: Some(port(BUS_MASTER, 16)),
        bus_master_offset: if second { 8 } else { 0 },
    };
    Channel::new(ports, MachineDma(machine.clone(), false), limits)
}

/// A file that is a disk; the path is in `directory`.
fn medium(directory: &Path, index: u32, byte_count: u64) -> (File, Vec<String>) {
    std::fs::create_dir_all(directory).expect("a scratch directory");
    let path = directory.join(format!("disk{index}.raw"));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
    file.set_len(byte_count).expect("a scratch file");
    let bytes: Vec<u8> = (0..1 << 20).map(|place: u32| (place * 31 + place / 253 + index) as u8).collect();
    file.write_all_at(&bytes, 0).expect("a scratch file");
    file.write_all_at(&bytes, byte_count - bytes.len() as u64).expect("a scratch file");
    let options = "format=raw,if=ide,cache=writeback,werror=report,rerror=report";
    (file, ["-drive".into(), format!("file={},{options},index={index}", path.display())].into())
}

fn perform<C>(disk: &mut Disk<C, MachinePort, MachineDma>, memory: &Memory, request: BlockRequest<'_>)
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
    let memory = Memory(machine.clone());
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
    let directory = std::env::temp_dir().join(format!("aegis-ide-{}", std::process::id()));
    // The second disk is so large that its end needs 48 bits; its file has holes.
    let sizes = [(0, 4 << 20), (1, 130 << 30), (2, 2 << 20)];
    let (files, arguments): (Vec<File>, Vec<Vec<String>>) =
        sizes.into_iter().map(|(index, byte_count)| medium(&directory, index, byte_count)).unzip();
    let Some(machine) = Machine::start(&directory, &arguments.concat()) else { return };
    machine.config(0x20, u32::from(BUS_MASTER) | 1);
    machine.config(4, 5);
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
    // A file that stays behind is no reason to fail.
    let _ = std::fs::remove_dir_all(&directory);
}
