//! Bare drivers of real functions: e1000, IDE, AHCI. Interrupts by line, by shared line and by message; reset; and
//! environments that end with work under way, whose memory is looked at afterwards.
//!
//! The host puts the functions into the machine (`tests/tests/s12_drivers.rs`); a case whose function is not there has
//! nothing to do. What the disk holds is zeros, and it takes its time to say so.

use aegis_abi::device::{DeviceField, DeviceKind, DeviceOperation};
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::memory::BindFlags;
use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::{SLOT_DEVICE_FIRST, SLOT_NONE};
use aegis_abi::{CapSlot, Rights, Status};
use aegis_rt::call::{self, Outcome, Refusal};

use crate::child::{self, CHILD_SCRATCH_BASE, CHILD_SLOT_FREE, Child, shared};
use crate::memory::{SCRATCH_BASE, free_slot, map, repeat, take};
use crate::suite::{CaseResult, Failure, Machine, Suite};
use crate::wait::{clock_term, now_ns};
use crate::{expect, expect_equal, expect_ok, expect_refused, probe, wait};

pub(crate) const SUITE: Suite = Suite {
    name: "s12_drivers",
    cases: &[
        ("ports_and_registers_have_places", places),
        ("ide_reads_and_interrupts_by_its_own_line", ide_reads),
        ("a_frame_comes_back_and_interrupts_by_line", nic_by_line),
        ("functions_on_one_line_do_not_wait_for_each_other", shared_line),
        ("ahci_interrupts_by_message", ahci_by_message),
        ("an_interrupt_goes_where_it_is_sent", affinity),
        ("a_function_is_reset_on_demand", reset_on_demand),
        ("environments_end_with_receive_buffers_out", nic_ends),
        ("environments_end_with_disk_reads_under_way", disk_ends),
    ],
};

const E1000: u64 = 0x100e_8086;
const CLASS_IDE: u64 = 0x0101;
const CLASS_AHCI: u64 = 0x0106;
/// Where registers and memory of function `n` of a case are mapped, from here on.
const STRIDE: u64 = 64 * PAGE_SIZE;
const MEMORY: u64 = 48 * PAGE_SIZE;
const FRAME_COUNT: u64 = 4;
/// Environments that end in each of the two last cases.
const ROUND_COUNT: u64 = 100;
const PATTERN: u64 = 0x5ca1_ab1e_0ddb_a11a;

fn read(device: CapSlot, field: DeviceField, index: u32) -> u64 {
    call::device_read(device, field, index).unwrap_or(u64::MAX)
}

fn functions(machine: &Machine) -> impl Iterator<Item = CapSlot> + use<> {
    let first = SLOT_DEVICE_FIRST.0;
    let all = (first..first + machine.info.device_count).map(CapSlot);
    all.filter(|device| read(*device, DeviceField::Kind, 0) == DeviceKind::Pci as u64)
}

fn nics(machine: &Machine) -> impl Iterator<Item = CapSlot> + use<> {
    functions(machine).filter(|device| read(*device, DeviceField::Identity, 0) == E1000)
}

fn of_class(machine: &Machine, class: u64) -> Option<CapSlot> {
    functions(machine).find(|device| read(*device, DeviceField::Class, 0) >> 8 == class)
}

fn store(address: u64, value: u32) {
    // SAFETY: registers or memory that the case has mapped, 4-byte aligned.
    unsafe { (address as *mut u32).write_volatile(value) };
}

fn load(address: u64) -> u32 {
    // SAFETY: as above.
    unsafe { (address as *const u32).read_volatile() }
}

fn store_word(address: u64, value: u64) {
    // SAFETY: as above, 8-byte aligned.
    unsafe { (address as *mut u64).write_volatile(value) };
}

fn expect_clear(address: u64, bits: u32) -> bool {
    wait::until(|| load(address) & bits == 0)
}

fn control(device: CapSlot, operation: DeviceOperation) -> Outcome {
    // SAFETY: the function knows only frames that are bound for it.
    unsafe { call::device_control(device, operation) }
}

fn reset(device: CapSlot) -> Outcome {
    loop {
        match control(device, DeviceOperation::Reset) {
            Err(refusal) if refusal.status == Status::Again => {}
            outcome => return outcome,
        }
    }
}

/// Waits for a bell, a second at most; what it had.
fn await_bell(bell: CapSlot) -> u64 {
    let term = Term {
        product: 0,
        source: TermSource::Bell as u32,
        operator: TermOperator::AtLeast as u32,
        slot: bell.0,
        address: 0,
        value: 1,
    };
    let _ = call::sleep(&[term, clock_term(1, now_ns() + 1_000_000_000)]);
    call::bell_take(bell).unwrap_or(u64::MAX)
}

/// Memory that a function reaches: where it is mapped, and where the function sees it.
#[derive(Clone, Copy)]
struct Dma {
    at: u64,
    address: u64,
}

/// Takes memory for a function and binds it.
fn dma(device: CapSlot, frames: CapSlot, at: u64) -> Result<Dma, Refusal> {
    let first = take(frames, FRAME_COUNT)?.0;
    map(at, first, FRAME_COUNT as u32, frames, BindFlags::WRITE)?;
    // SAFETY: frames of the case only.
    let address = unsafe { call::device_dma_bind(device, frames, 0, FRAME_COUNT) }?;
    Ok(Dma { at, address })
}

/// The function gets nothing more to do, and its memory back.
fn let_go(device: CapSlot, frames: CapSlot) -> CaseResult {
    expect_ok!(reset(device));
    // SAFETY: it is at rest.
    expect_ok!(unsafe { call::device_dma_unbind(device, frames, 0, FRAME_COUNT) });
    let interrupt_count = read(device, DeviceField::InterruptCount, 0) as u32;
    for interrupt in 0..interrupt_count {
        expect_ok!(call::device_interrupt_bind(device, interrupt, SLOT_NONE));
    }
    Ok(())
}

fn places(machine: &Machine) -> CaseResult {
    for device in functions(machine) {
        let is_ide = read(device, DeviceField::Class, 0) >> 8 == CLASS_IDE;
        for region in 0..6 {
            let length = read(device, DeviceField::RegionLength, region);
            let register = read(device, DeviceField::Config, 0x10 + 4 * region);
            let is_legacy = is_ide && region < 4;
            if length == 0 || is_legacy {
                continue;
            }
            let place = if register & 1 == 1 { register & !3 } else { register & !15 };
            expect!(place != 0 && place % length.min(PAGE_SIZE) == 0);
        }
        if is_ide {
            let lengths = [8, 1, 8, 1, 16, 0];
            for (region, length) in (0..).zip(lengths) {
                expect_equal!(read(device, DeviceField::RegionLength, region), length);
                expect!(length == 0 || read(device, DeviceField::RegionIsPorts, region) == 1);
            }
            expect_equal!(read(device, DeviceField::InterruptCount, 0), 2);
        }
    }
    Ok(())
}

/// Ports of an IDE controller's first channel: command block, control, bus master.
#[derive(Clone, Copy)]
struct Ide(CapSlot);

const IDE_MASTER: u32 = 4;

impl Ide {
    fn get(self, region: u32, offset: u32, width: u32) -> u32 {
        call::device_port(self.0, region, offset, width, 0, 0).unwrap_or(u64::MAX) as u32
    }

    fn put(self, region: u32, offset: u32, width: u32, value: u32) {
        let _ = call::device_port(self.0, region, offset, width, 1, value);
    }

    fn wait_idle(self) -> bool {
        wait::until(|| self.get(1, 0, 1) & 0x80 == 0)
    }

    /// Gives the first disk a command for `count` sectors from the first on.
    fn command(self, command: u32, count: u32) {
        self.put(0, 6, 1, 0xe0);
        self.put(0, 2, 1, count);
        for offset in 3..6 {
            self.put(0, offset, 1, 0);
        }
        self.put(0, 7, 1, command);
    }

    /// Begins to read eight sectors into the second frame, by the table in the first.
    fn start_read(self, memory: Dma) {
        store(memory.at, (memory.address + PAGE_SIZE) as u32);
        store(memory.at + 4, 0x8000_0000 | PAGE_SIZE as u32);
        self.put(IDE_MASTER, 4, 4, memory.address as u32);
        self.put(IDE_MASTER, 0, 1, 8);
        self.put(IDE_MASTER, 2, 1, 6);
        self.command(0xc8, 8);
        self.put(IDE_MASTER, 0, 1, 9);
    }
}

fn has_disk(ide: Ide) -> bool {
    ide.put(0, 6, 1, 0xe0);
    let status = ide.get(1, 0, 1);
    status != 0 && status != 0xff
}

fn ide_reads(machine: &Machine) -> CaseResult {
    let Some(device) = of_class(machine, CLASS_IDE) else { return Ok(()) };
    let ide = Ide(device);
    expect_ok!(control(device, DeviceOperation::Enable));
    expect!(has_disk(ide) && ide.wait_idle());
    let bell = free_slot(0);
    expect_ok!(call::bell_create(bell, SLOT_NONE));
    expect_ok!(call::device_interrupt_bind(device, 0, bell));
    // The name of the disk: 256 words, the first of which says that it is one.
    expect_ok!(call::device_interrupt_ask(device, 0));
    ide.command(0xec, 1);
    expect_equal!(await_bell(bell), 1);
    expect_equal!(ide.get(0, 7, 1) & 0x89, 0x08);
    let words = [(); 256].map(|()| ide.get(0, 0, 2));
    expect!(words[0] & 0x8000 == 0 && words[49] & 1 << 8 != 0);
    let memory = expect_ok!(dma(device, free_slot(1), SCRATCH_BASE));
    for _ in 0..8 {
        fill(memory.at + PAGE_SIZE, 1);
        expect_ok!(call::device_interrupt_ask(device, 0));
        ide.start_read(memory);
        expect_equal!(await_bell(bell), 1);
        expect_equal!(ide.get(IDE_MASTER, 2, 1) & 7, 4);
        ide.put(IDE_MASTER, 0, 1, 8);
        expect_equal!(ide.get(0, 7, 1) & 0x81, 0);
        expect_equal!(load(memory.at + PAGE_SIZE), 0);
        expect_equal!(load(memory.at + 2 * PAGE_SIZE - 4), 0);
    }
    let_go(device, free_slot(1))
}

/// Fills frames with the pattern.
fn fill(at: u64, frame_count: u64) {
    (at..at + frame_count * PAGE_SIZE).step_by(8).for_each(|address| store_word(address, PATTERN));
}

fn is_filled(at: u64, frame_count: u64) -> bool {
    // SAFETY: mapped by the case.
    let word = |address: u64| unsafe { (address as *const u64).read_volatile() };
    (at..at + frame_count * PAGE_SIZE).step_by(8).all(|address| word(address) == PATTERN)
}

/// Registers of an e1000.
mod nic {
    pub(super) const CTRL: u64 = 0x0000;
    pub(super) const MDIC: u64 = 0x0020;
    pub(super) const ICR: u64 = 0x00c0;
    pub(super) const IMS: u64 = 0x00d0;
    pub(super) const IMC: u64 = 0x00d8;
    pub(super) const RCTL: u64 = 0x0100;
    pub(super) const TCTL: u64 = 0x0400;
    pub(super) const RDBAL: u64 = 0x2800;
    pub(super) const TDBAL: u64 = 0x3800;
    /// From a ring's base: length, head, tail.
    pub(super) const LENGTH: u64 = 0x08;
    pub(super) const HEAD: u64 = 0x10;
    pub(super) const TAIL: u64 = 0x18;
    /// Transmitted; received.
    pub(super) const TXDW: u32 = 1;
    pub(super) const RXT: u32 = 1 << 7;
    /// Enabled, promiscuous, broadcast too, without checksum.
    pub(super) const RECEIVE: u32 = 1 << 1 | 3 << 3 | 1 << 15 | 1 << 26;
}

const DESCRIPTOR_COUNT: u32 = 8;

/// A network function: its registers and its memory, the first frame of which holds both rings.
#[derive(Clone, Copy)]
struct Nic {
    registers: u64,
    memory: Dma,
}

impl Nic {
    fn get(self, register: u64) -> u32 {
        load(self.registers + register)
    }

    fn put(self, register: u64, value: u32) {
        store(self.registers + register, value);
    }

    /// Sets up both rings, with all but one receive buffer out. Reception begins a second after it was switched on
    /// first.
    fn start(self, is_looped: bool) {
        self.put(nic::IMC, u32::MAX);
        self.put(nic::CTRL, self.get(nic::CTRL) | 1 << 6);
        let loopback = if is_looped { 0x4140 } else { 0x0140 };
        self.put(nic::MDIC, loopback | 1 << 21 | 1 << 26);
        for (base, place) in [(nic::TDBAL, 0), (nic::RDBAL, 0x800)] {
            self.put(base, (self.memory.address + place) as u32);
            self.put(base + 4, 0);
            self.put(base + nic::LENGTH, 16 * DESCRIPTOR_COUNT);
            self.put(base + nic::HEAD, 0);
            self.put(base + nic::TAIL, 0);
        }
        for index in 0..u64::from(DESCRIPTOR_COUNT) {
            let buffer = self.memory.address + 2 * PAGE_SIZE + index % 4 * 2048;
            store_word(self.memory.at + 0x800 + 16 * index, buffer);
            store_word(self.memory.at + 0x808 + 16 * index, 0);
        }
        self.put(nic::TCTL, 1 << 1 | 1 << 3);
        if self.get(nic::RCTL) != nic::RECEIVE {
            self.put(nic::RCTL, nic::RECEIVE);
        }
        self.put(nic::RDBAL + nic::TAIL, DESCRIPTOR_COUNT - 1);
    }

    /// Sends a broadcast frame of 64 bytes.
    fn send(self) {
        let tail = self.get(nic::TDBAL + nic::TAIL);
        let frame = self.memory.at + PAGE_SIZE;
        store_word(frame, u64::MAX);
        store_word(frame + 8, 0x0608_0000_0000_0000);
        let descriptor = self.memory.at + 16 * u64::from(tail);
        store_word(descriptor, self.memory.address + PAGE_SIZE);
        // One descriptor, report its end.
        store_word(descriptor + 8, 64 | 0x0b << 24);
        self.put(nic::TDBAL + nic::TAIL, (tail + 1) % DESCRIPTOR_COUNT);
    }
}

/// Maps the registers and takes memory for the function, number `number` of the case.
fn open_nic(device: CapSlot, number: u64) -> Result<Nic, Refusal> {
    let registers = SCRATCH_BASE + number * STRIDE;
    // SAFETY: a scratch address of its own.
    unsafe { call::device_map(device, 0, registers) }?;
    let memory = dma(device, free_slot(8 + number as u32), registers + MEMORY)?;
    Ok(Nic { registers, memory })
}

fn nic_by_line(machine: &Machine) -> CaseResult {
    let Some(device) = nics(machine).next() else { return Ok(()) };
    let nic = expect_ok!(open_nic(device, 0));
    nic.start(true);
    expect_ok!(control(device, DeviceOperation::Enable));
    let bell = free_slot(0);
    expect_ok!(call::bell_create(bell, SLOT_NONE));
    expect_ok!(call::device_interrupt_bind(device, 0, bell));
    wait::pause(1_100_000_000);
    for round in 0..4 {
        nic.put(nic::IMS, nic::TXDW | nic::RXT);
        nic.send();
        if round == 0 {
            expect_equal!(call::bell_take(bell), Ok(0));
        }
        expect_ok!(call::device_interrupt_ask(device, 0));
        expect_equal!(await_bell(bell), 1);
        // Held back, though the cause stands, until it is asked for again.
        wait::pause(300_000);
        expect_equal!(call::bell_take(bell), Ok(0));
        expect_ok!(call::device_interrupt_ask(device, 0));
        expect_equal!(await_bell(bell), 1);
        expect!(nic.get(nic::ICR) & (nic::TXDW | nic::RXT) != 0);
        expect_equal!(nic.get(nic::RDBAL + nic::HEAD), round + 1);
        expect!(load(nic.memory.at + 0x800 + 16 * u64::from(round) + 12) & 1 == 1);
    }
    nic.put(nic::IMC, u32::MAX);
    let_go(device, free_slot(8))
}

fn shared_line(machine: &Machine) -> CaseResult {
    let Some(first) = nics(machine).next() else { return Ok(()) };
    let Some(second) = nics(machine).nth(1) else { return Ok(()) };
    let bells = [free_slot(0), free_slot(1)];
    let devices = [first, second];
    let nics = [expect_ok!(open_nic(first, 0)), expect_ok!(open_nic(second, 1))];
    for ((device, bell), nic) in devices.into_iter().zip(bells).zip(nics) {
        nic.start(true);
        expect_ok!(control(device, DeviceOperation::Enable));
        expect_ok!(call::bell_create(bell, SLOT_NONE));
        expect_ok!(call::device_interrupt_bind(device, 0, bell));
        expect_ok!(call::device_interrupt_ask(device, 0));
        nic.put(nic::IMS, nic::TXDW);
    }
    // The first raises the line and never says that it has seen that.
    nics[0].send();
    expect_equal!(await_bell(bells[0]), 1);
    expect_equal!(call::bell_take(bells[1]), Ok(0));
    for _ in 0..16 {
        nics[1].send();
        expect_equal!(await_bell(bells[1]), 1);
        let _ = nics[1].get(nic::ICR);
        expect_ok!(call::device_interrupt_ask(second, 0));
    }
    expect_equal!(call::bell_take(bells[0]), Ok(0));
    // It asks, and is told at once.
    expect_ok!(call::device_interrupt_ask(first, 0));
    expect_equal!(await_bell(bells[0]), 1);
    expect_equal!(call::bell_take(bells[1]), Ok(0));
    nics.into_iter().for_each(|nic| nic.put(nic::IMC, u32::MAX));
    let_go(first, free_slot(8))?;
    let_go(second, free_slot(9))
}

/// An AHCI controller's registers, and memory: command list, received, command table, data.
#[derive(Clone, Copy)]
struct Ahci {
    registers: u64,
    port: u64,
    memory: Dma,
}

impl Ahci {
    /// With the first port that has a disk.
    fn open(device: CapSlot, registers: u64, memory: Dma) -> Option<Self> {
        // SAFETY: a scratch address of its own.
        unsafe { call::device_map(device, 5, registers) }.ok()?;
        let registers = registers + call::device_read(device, DeviceField::RegionOffset, 5).ok()?;
        // Its last driver, firmware too, has left it running.
        store(registers + 4, 1 << 31 | 1);
        expect_clear(registers + 4, 1).then_some(())?;
        store(registers + 4, 1 << 31);
        let port = (0..6).map(|port| registers + 0x100 + 0x80 * port).find(|port| load(port + 0x28) & 15 == 3)?;
        let ahci = Self { registers, port, memory };
        for (register, place) in [(0x00, 0), (0x08, 0x400)] {
            store(port + register, (memory.address + place) as u32);
            store(port + register + 4, 0);
        }
        store(port + 0x30, u32::MAX);
        store(port + 0x10, u32::MAX);
        store(registers + 8, u32::MAX);
        // Spun up, receiving, running.
        store(port + 0x18, 1 << 1 | 1 << 4 | 1);
        store(port + 0x14, u32::MAX);
        store(registers + 4, 1 << 31 | 1 << 1);
        Some(ahci)
    }

    /// Begins to read eight sectors into the second frame.
    fn start_read(self) {
        let (at, address) = (self.memory.at, self.memory.address);
        store(at, 5 | 1 << 16);
        store(at + 4, 0);
        store(at + 8, (address + 0x800) as u32);
        store(at + 12, 0);
        store(at + 0x800, 0x27 | 0x80 << 8 | 0xc8 << 16);
        store(at + 0x804, 0x40 << 24);
        store(at + 0x808, 0);
        store(at + 0x80c, 8);
        store(at + 0x880, (address + PAGE_SIZE) as u32);
        store(at + 0x884, 0);
        store(at + 0x88c, PAGE_SIZE as u32 - 1);
        store(self.port + 0x38, 1);
    }

    fn acknowledge(self) -> u32 {
        let cause = load(self.port + 0x10);
        store(self.port + 0x10, cause);
        store(self.registers + 8, u32::MAX);
        cause
    }
}

fn ahci_by_message(machine: &Machine) -> CaseResult {
    let Some(device) = of_class(machine, CLASS_AHCI) else { return Ok(()) };
    expect_equal!(read(device, DeviceField::InterruptCount, 0), 1);
    let memory = expect_ok!(dma(device, free_slot(8), SCRATCH_BASE + MEMORY));
    expect_ok!(control(device, DeviceOperation::Enable));
    let Some(ahci) = Ahci::open(device, SCRATCH_BASE, memory) else { return Err(Failure { line: line!(), found: 0 }) };
    let bell = free_slot(0);
    expect_ok!(call::bell_create(bell, SLOT_NONE));
    expect_ok!(call::device_interrupt_bind(device, 0, bell));
    let mut interrupts = 0;
    for _ in 0..8 {
        fill(memory.at + PAGE_SIZE, 1);
        expect_ok!(call::device_interrupt_ask(device, 0));
        ahci.acknowledge();
        ahci.start_read();
        expect!(wait::until(|| {
            interrupts += call::bell_take(bell).unwrap_or(0);
            load(ahci.port + 0x38) & 1 == 0
        }));
        interrupts += await_bell(bell);
        expect_equal!(load(memory.at + PAGE_SIZE), 0);
        expect_equal!(load(memory.at + 2 * PAGE_SIZE - 4), 0);
    }
    // By message: the capability is on, its INTx off.
    expect!(interrupts >= 8);
    let at = read(device, DeviceField::Config, 0x34) as u32 & 0xfc;
    expect_equal!(read(device, DeviceField::Config, at) & 0xff, 5);
    expect!(read(device, DeviceField::Config, 4) & 1 << 10 != 0);
    expect_ok!(call::device_interrupt_ask(device, 0));
    expect!(read(device, DeviceField::Config, at) & 1 << 16 != 0);
    let_go(device, free_slot(8))?;
    expect_equal!(read(device, DeviceField::Config, at) & 1 << 16, 0);
    Ok(())
}

fn affinity(machine: &Machine) -> CaseResult {
    let Some(device) = nics(machine).next() else { return Ok(()) };
    let nic = expect_ok!(open_nic(device, 0));
    nic.start(true);
    expect_ok!(control(device, DeviceOperation::Enable));
    let bell = free_slot(0);
    expect_ok!(call::bell_create(bell, SLOT_NONE));
    for cpu in 1..=machine.cpu_count {
        expect_ok!(call::device_interrupt_bind_at(device, 0, bell, cpu));
        expect_ok!(call::device_interrupt_ask(device, 0));
        nic.put(nic::IMS, nic::TXDW);
        nic.send();
        expect_equal!(await_bell(bell), 1);
        let _ = nic.get(nic::ICR);
    }
    for cpu in [machine.cpu_count + 1, 17, u32::MAX] {
        expect_refused!(call::device_interrupt_bind_at(device, 0, bell, cpu), Status::BadArgument);
    }
    nic.put(nic::IMC, u32::MAX);
    let_go(device, free_slot(8))
}

/// Whether the function has a reset of its own: function level, by its PCI Express capability.
fn has_function_reset(device: CapSlot) -> bool {
    let config = |offset: u64| read(device, DeviceField::Config, offset as u32 & !3);
    let mut at = config(0x34) & 0xfc;
    while at != 0 && config(at) & 0xff != 0x10 {
        at = config(at) >> 8 & 0xfc;
    }
    at != 0 && config(at + 4) & 1 << 28 != 0
}

fn reset_on_demand(machine: &Machine) -> CaseResult {
    for device in functions(machine) {
        let registers = || [0x10, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x3c].map(|at| read(device, DeviceField::Config, at));
        let before = registers();
        expect_ok!(control(device, DeviceOperation::Enable));
        expect!(read(device, DeviceField::Config, 4) & 1 << 2 != 0);
        let begin_ns = now_ns();
        expect_ok!(reset(device));
        // Quiet, and where it was.
        expect_equal!(read(device, DeviceField::Config, 4) & (1 << 10 | 1 << 2), 1 << 10);
        expect!(registers() == before);
        expect!(!has_function_reset(device) || now_ns() - begin_ns >= 100_000_000);
        expect_ok!(control(device, DeviceOperation::Enable));
        expect_ok!(control(device, DeviceOperation::Disable));
    }
    Ok(())
}

const READY: usize = 0;
const CHILD_FRAMES: CapSlot = CapSlot(CHILD_SLOT_FREE.0 + 1);

/// A child that has a function, and frames for it that stay ours.
fn child_with(machine: &Machine, device: CapSlot, main: child::ChildMain, round: u64) -> Result<Child, Refusal> {
    let child = child::make(machine, 0, 16)?;
    let rights = Rights::READ | Rights::WRITE;
    call::cap_grant(device, child.environment, CHILD_SLOT_FREE, rights | Rights::CONTROL)?;
    call::cap_grant(free_slot(20), child.environment, CHILD_FRAMES, rights | Rights::DMA)?;
    child::start(&child, main, round)?;
    Ok(child)
}

/// In the child: the frames that it was given, mapped and bound.
fn child_memory() -> Option<Dma> {
    let at = CHILD_SCRATCH_BASE + MEMORY;
    let first = call::cap_read(CHILD_FRAMES, 1).ok()?;
    map(at, first, FRAME_COUNT as u32, CHILD_FRAMES, BindFlags::WRITE).ok()?;
    // SAFETY: frames for the function only.
    let address = unsafe { call::device_dma_bind(CHILD_SLOT_FREE, CHILD_FRAMES, 0, FRAME_COUNT) }.ok()?;
    Some(Dma { at, address })
}

extern "C" fn nic_child(_: u64) -> ! {
    probe::install();
    // SAFETY: an address of its own.
    let is_mapped = unsafe { call::device_map(CHILD_SLOT_FREE, 0, CHILD_SCRATCH_BASE) }.is_ok();
    if let Some(memory) = child_memory().filter(|_| is_mapped) {
        Nic { registers: CHILD_SCRATCH_BASE, memory }.start(false);
        if control(CHILD_SLOT_FREE, DeviceOperation::Enable).is_ok() {
            shared().set(READY, 1);
        }
    }
    wait::forever()
}

/// Ends environments, each with a function at work in frames of ours, and looks at the frames. `during` is called while
/// the child's function works, and once it is over; the first says whether the function reached the frames.
fn end_many(
    machine: &Machine,
    device: CapSlot,
    main: child::ChildMain,
    mut during: impl FnMut(u64, bool) -> bool,
) -> CaseResult {
    let at = SCRATCH_BASE + 4 * STRIDE;
    let mut reached = 0;
    for round in 0..ROUND_COUNT {
        let first = expect_ok!(take(free_slot(20), FRAME_COUNT)).0;
        expect_ok!(map(at, first, FRAME_COUNT as u32, free_slot(20), BindFlags::WRITE));
        fill(at, FRAME_COUNT);
        let child = expect_ok!(child_with(machine, device, main, round));
        expect!(child::await_word(&child, READY, 1));
        reached += u64::from(during(round, true) || !is_filled(at + PAGE_SIZE, FRAME_COUNT - 1));
        // SAFETY: a child of the case.
        repeat(|| unsafe { call::environment_destroy(child.environment) });
        fill(at, FRAME_COUNT);
        during(round, false);
        expect!(is_filled(at, FRAME_COUNT));
        // They are used at once.
        expect_ok!(crate::memory::unmap(at, FRAME_COUNT as u32));
        expect_ok!(call::frame_free(free_slot(20)));
        for slot in [child.processor, child.frames, child.shared_slot, child.environment] {
            // SAFETY: nothing runs with them any more.
            repeat(|| unsafe { call::cap_drop(slot) });
        }
    }
    expect!(reached > 0);
    Ok(())
}

fn nic_ends(machine: &Machine) -> CaseResult {
    let (Some(ours), Some(theirs)) = (nics(machine).next(), nics(machine).nth(1)) else { return Ok(()) };
    let nic = expect_ok!(open_nic(ours, 0));
    nic.start(false);
    expect_ok!(control(ours, DeviceOperation::Enable));
    let mut is_first = true;
    end_many(machine, theirs, nic_child, |round, is_at_work| {
        if core::mem::take(&mut is_first) {
            wait::pause(1_100_000_000);
        }
        (0..1 + round % 4).for_each(|_| nic.send());
        !is_at_work
    })?;
    let_go(ours, free_slot(8))
}

extern "C" fn disk_child(is_ahci: u64) -> ! {
    probe::install();
    let is_enabled = control(CHILD_SLOT_FREE, DeviceOperation::Enable).is_ok();
    if let Some(memory) = child_memory().filter(|_| is_enabled) {
        if call::device_read(CHILD_SLOT_FREE, DeviceField::Class, 0).unwrap_or(0) >> 8 == CLASS_AHCI {
            if let Some(ahci) = Ahci::open(CHILD_SLOT_FREE, CHILD_SCRATCH_BASE, memory) {
                ahci.start_read();
            }
        } else {
            Ide(CHILD_SLOT_FREE).start_read(memory);
        }
        shared().set(READY, 1 + is_ahci);
    }
    wait::forever()
}

fn disk_ends(machine: &Machine) -> CaseResult {
    let disk = of_class(machine, CLASS_IDE).or_else(|| of_class(machine, CLASS_AHCI));
    let Some(device) = disk else { return Ok(()) };
    end_many(machine, device, disk_child, |round, is_at_work| {
        // Now and then it is through before the end.
        let pause_ns = if is_at_work { round % 4 * 400_000 } else { 1_500_000 };
        if pause_ns != 0 {
            wait::pause(pause_ns);
        }
        false
    })
}
