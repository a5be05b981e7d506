//! A QEMU that runs no guest, for tests of drivers against the devices that users have: registers, ports and memory
//! over its test protocol (`-qtest`) on standard input and output, one line each way per access.
//!
//! A driver does not notice the difference: [`MachineMmio`], [`MachinePorts`] and [`MachineDma`] are the traits of this
//! crate. What goes wrong on the test's side of the protocol is a panic, as in any test. Without QEMU
//! [`Machine::start`] says so and the test passes. Only tests turn the feature `qtest` on; `fake` is the world without
//! QEMU.

extern crate std;

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::string::String;
use std::{format, println, vec};

use crate::{
    AccessError, DeviceAddress, Dma, DmaBuffer, DmaError, PAGE_BYTES, Port, Volatile, Width, check_access, check_range,
};

/// Where the memory for DMA starts: above what firmware images occupy.
const DMA_BASE: u64 = 0x100_0000;
/// Pages there.
const DMA_PAGE_COUNT: u64 = 512;

/// A folder of a test's own; removed when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it; two tests of one process give different names.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-qtest-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A directory that stays behind is no reason to fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The process and its two pipes.
struct Process {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("QEMU takes commands");
        loop {
            let mut line = String::new();
            let count = self.answers.read_line(&mut line).expect("QEMU answers");
            assert!(count > 0, "QEMU ended at {command:?}");
            if let Some(answer) = line.trim_end().strip_prefix("OK") {
                return answer.trim_start().into();
            }
            assert!(line.starts_with("IRQ"), "{command:?} was answered by {line:?}");
        }
    }

    fn ask_number(&mut self, command: &str) -> u64 {
        let answer = self.ask(command);
        let digits = answer.strip_prefix("0x").expect("a number");
        u64::from_str_radix(digits, 16).expect("a number")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // No QEMU may outlive its test; if it has ended already, so much the better.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Firmware of one instruction and a jump back to it, so that the processor runs and does nothing:
/// QEMU delivers no input while a machine is paused. The reset vector is 16 bytes below the end.
fn write_idle_firmware(path: &Path) {
    const HALT_AND_JUMP_BACK: [u8; 3] = [0xf4, 0xeb, 0xfd];
    let mut image = vec![0; 0x1_0000];
    image[0xfff0..0xfff3].copy_from_slice(&HALT_AND_JUMP_BACK);
    std::fs::write(path, image).expect("a scratch file");
}

/// A running QEMU. Clones share it.
#[derive(Clone)]
pub struct Machine {
    process: Rc<RefCell<Process>>,
}

impl Machine {
    /// Starts QEMU, or says that there is none. Its files go to `directory`.
    pub fn start(directory: &Path, arguments: &[String]) -> Option<Self> {
        let firmware = directory.join("idle.bin");
        write_idle_firmware(&firmware);
        let spawned = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-qtest", "stdio", "-qtest-log", "/dev/null"])
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
        let process = Process { child, commands, answers };
        Some(Self { process: Rc::new(RefCell::new(process)) })
    }

    fn ask(&self, command: &str) -> String {
        self.process.borrow_mut().ask(command)
    }

    fn ask_number(&self, command: &str) -> u64 {
        self.process.borrow_mut().ask_number(command)
    }

    fn load(&self, address: u64, width: Width) -> u64 {
        self.ask_number(&format!("read{} {address:#x}", suffix(width)))
    }

    fn store(&self, address: u64, width: Width, value: u64) {
        self.ask(&format!("write{} {address:#x} {value:#x}", suffix(width)));
    }

    /// Registers that the machine has in its memory, at `base`.
    pub fn mmio(&self, base: u64, length_bytes: usize) -> MachineMmio {
        MachineMmio { machine: self.clone(), base, length_bytes }
    }

    /// A piece of the machine's memory that a test chooses itself.
    pub fn memory(&self, base: u64, length_bytes: usize) -> MachineBuffer {
        MachineBuffer { machine: self.clone(), base, length_bytes }
    }

    /// `count` ports from `first` on.
    pub fn ports(&self, first: u16, count: usize) -> MachinePorts {
        MachinePorts { machine: self.clone(), first, count }
    }

    /// Configuration space of a function of a device on bus 0.
    pub fn pci_config(&self, device: u8, function: u8) -> PciConfig {
        PciConfig { machine: self.clone(), address: 0x8000_0000 | u32::from(device) << 11 | u32::from(function) << 8 }
    }
}

const fn suffix(width: Width) -> &'static str {
    match width {
        Width::U8 => "b",
        Width::U16 => "w",
        Width::U32 => "l",
        Width::U64 => "q",
    }
}

/// Registers of the machine.
pub struct MachineMmio {
    machine: Machine,
    base: u64,
    length_bytes: usize,
}

impl Volatile for MachineMmio {
    fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    fn read(&self, offset: usize, width: Width) -> Result<u64, AccessError> {
        check_access(0, offset, width, self.length_bytes)?;
        Ok(self.machine.load(self.base + offset as u64, width))
    }

    fn write(&mut self, offset: usize, width: Width, value: u64) -> Result<(), AccessError> {
        check_access(0, offset, width, self.length_bytes)?;
        self.machine.store(self.base + offset as u64, width, value);
        Ok(())
    }
}

/// Configuration space through ports 0xcf8 and 0xcfc.
pub struct PciConfig {
    machine: Machine,
    address: u32,
}

impl PciConfig {
    fn select(&self, offset: u8) {
        self.machine.ask(&format!("outl 0xcf8 {:#x}", self.address | u32::from(offset)));
    }

    /// Reads the register at `offset`, a multiple of four.
    pub fn read_u32(&self, offset: u8) -> u32 {
        self.select(offset);
        self.machine.ask_number("inl 0xcfc") as u32
    }

    /// Writes the register at `offset`, a multiple of four.
    pub fn write_u32(&self, offset: u8, value: u32) {
        self.select(offset);
        self.machine.ask(&format!("outl 0xcfc {value:#x}"));
    }

    /// Vendor and device.
    pub fn identifier(&self) -> (u16, u16) {
        let identifier = self.read_u32(0);
        (identifier as u16, (identifier >> 16) as u16)
    }

    /// What firmware would do: places the base address register `bar` and lets the function decode ports and memory
    /// and be bus master.
    pub fn enable(&self, bar: u8, address: u32) {
        self.write_u32(0x10 + 4 * bar, address);
        self.write_u32(4, 0x7);
    }

    /// As [`Self::enable`] for a register of 64 bits.
    pub fn enable_wide(&self, bar: u8, address: u64) {
        self.write_u32(0x14 + 4 * bar, (address >> 32) as u32);
        self.enable(bar, address as u32);
    }
}

/// Ports of the machine.
pub struct MachinePorts {
    machine: Machine,
    first: u16,
    count: usize,
}

impl MachinePorts {
    fn number(&self, offset: usize, width: Width) -> Result<usize, AccessError> {
        check_range(offset, width.bytes(), self.count)?;
        Ok(usize::from(self.first) + offset)
    }
}

impl Port for MachinePorts {
    fn port_count(&self) -> usize {
        self.count
    }

    fn input(&self, offset: usize, width: Width) -> Result<u32, AccessError> {
        let port = self.number(offset, width)?;
        Ok(self.machine.ask_number(&format!("in{} {port:#x}", suffix(width))) as u32)
    }

    fn output(&mut self, offset: usize, width: Width, value: u32) -> Result<(), AccessError> {
        let port = self.number(offset, width)?;
        self.machine.ask(&format!("out{} {port:#x} {value:#x}", suffix(width)));
        Ok(())
    }
}

/// Memory of the machine, never used twice.
pub struct MachineDma {
    machine: Machine,
    next_page: u64,
    live_page_count: Rc<Cell<usize>>,
}

impl MachineDma {
    /// All of it; two of one machine give out the same pages.
    pub fn new(machine: &Machine) -> Self {
        Self { machine: machine.clone(), next_page: 0, live_page_count: Rc::default() }
    }

    /// Pages that were given out and not given back.
    pub fn live_page_count(&self) -> usize {
        self.live_page_count.get()
    }
}

impl Dma for MachineDma {
    type Buffer = MachineBuffer;

    fn allocate(&mut self, page_count: usize) -> Result<MachineBuffer, DmaError> {
        if self.next_page + page_count as u64 > DMA_PAGE_COUNT {
            return Err(DmaError::Exhausted);
        }
        let base = DMA_BASE + self.next_page * PAGE_BYTES as u64;
        self.next_page += page_count as u64;
        self.live_page_count.set(self.live_page_count.get() + page_count);
        Ok(MachineBuffer { machine: self.machine.clone(), base, length_bytes: page_count * PAGE_BYTES })
    }

    fn release(&mut self, buffer: MachineBuffer) {
        let page_count = buffer.length_bytes / PAGE_BYTES;
        self.live_page_count.set(self.live_page_count.get() - page_count);
    }
}

/// A piece of the machine's memory is reached as its registers are.
pub type MachineBuffer = MachineMmio;

impl DmaBuffer for MachineBuffer {
    fn device_address(&self) -> DeviceAddress {
        DeviceAddress(self.base)
    }

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.length_bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let address = self.base + offset as u64;
        let mut command = format!("write {address:#x} {:#x} 0x", bytes.len());
        for byte in bytes {
            write!(command, "{byte:02x}").expect("a string takes everything");
        }
        self.machine.ask(&command);
        Ok(())
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), AccessError> {
        check_range(offset, bytes.len(), self.length_bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let address = self.base + offset as u64;
        let answer = self.machine.ask(&format!("read {address:#x} {:#x}", bytes.len()));
        let digits = answer.strip_prefix("0x").expect("bytes");
        assert_eq!(digits.len(), 2 * bytes.len());
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).expect("digits");
            *byte = u8::from_str_radix(pair, 16).expect("digits");
        }
        Ok(())
    }
}
