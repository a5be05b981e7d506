//! A device model for host tests: what QEMU 7.2's PIIX3 does, in as far as a driver can see it, and worse on request.
//!
//! [`FakeChannel`] is the channel with its two devices, [`ports`] its registers. It checks the driver, too: commands
//! while a device is busy, tables that cross lines of 64 KiB, accesses of the wrong width are [`DriverFault`]s. The bus
//! records what the bus master accesses and must not.
//!
//! Copied from QEMU, because a driver must live with it: a table that is too short leaves the command without an
//! interrupt and without an error; one that is too long ends with the bus master still active; with the bus master off
//! a transfer "succeeds" and moves nothing; what is written while a device is busy is dropped.

extern crate alloc;

mod ports;

pub use ports::{PortsModel, ports};

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

use aegis_hal::fake::{FakeBus, FakeIrq};

use crate::registers::{command, status};

const SECTOR: usize = 512;
const ABORTED: u8 = 1 << 2;
const DRIVE_READY: u8 = 1 << 6;
const SEEK_COMPLETE: u8 = 1 << 4;
const IDLE: u8 = DRIVE_READY | SEEK_COMPLETE;
/// Entries of a table that QEMU reads.
const TABLE_ENTRY_COUNT_MAX: usize = 512;

/// What a driver did that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverFault {
    /// An access of the wrong width, or to a port that is not there.
    Port(usize),
    /// A command while one was under way.
    Busy(u8),
    /// A command that no disk has.
    Command(u8),
    /// A table whose entry is at an odd address, crosses a line of 64 KiB, or that has no end.
    Table(u64),
    /// Data was moved when there was none.
    Data,
}

/// A disk of the model.
#[derive(Clone, Debug)]
pub struct FakeIdeDisk {
    /// Its bytes.
    pub content: Vec<u8>,
    /// What it says of itself.
    pub identity: Vec<u8>,
    /// Flushes so far.
    pub flush_count: usize,
    /// Sectors that cannot be read or written.
    pub bad: Range<u64>,
    multiple: u32,
}

impl FakeIdeDisk {
    /// A disk of sectors of zeros, as QEMU's: LBA48, Ultra DMA, 16 sectors at once, a write cache.
    #[must_use]
    pub fn new(sector_count: usize) -> Self {
        let mut disk = Self {
            content: vec![0; sector_count * SECTOR],
            identity: vec![0; SECTOR],
            flush_count: 0,
            bad: 0..0,
            multiple: 0,
        };
        let long = (sector_count as u32).min(1 << 28).to_le_bytes();
        disk.set_word(47, 0x8010);
        disk.set_word(49, 0x0b00);
        disk.set_word(53, 7);
        disk.set_word(60, u16::from_le_bytes([long[0], long[1]]));
        disk.set_word(61, u16::from_le_bytes([long[2], long[3]]));
        disk.set_word(63, 7);
        disk.set_word(83, 0x7400);
        disk.set_word(85, 0x4021);
        disk.set_word(88, 0x203f);
        disk.set_word(100, sector_count as u16);
        disk.set_word(101, (sector_count >> 16) as u16);
        disk.set_word(106, 0x6003);
        disk
    }

    /// Changes a word of what it says of itself.
    pub fn set_word(&mut self, index: usize, value: u16) {
        self.identity[2 * index..2 * index + 2].copy_from_slice(&value.to_le_bytes());
    }
}

/// What a broken or malicious channel could do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// Every look at the status sees this.
    Status(Option<u8>),
    /// Every look at the bus master sees this.
    BusMaster(Option<u8>),
    /// Writes bytes anywhere into memory that the bus master reaches.
    Scribble {
        /// Buffer, in order of allocation.
        buffer: usize,
        /// Byte offset.
        offset: usize,
        /// Bytes that are written.
        bytes: Vec<u8>,
    },
    /// Interrupts, for nothing.
    Interrupt,
    /// Forgets the command under way.
    Forget,
    /// Ends the command under way, without doing it.
    Lie,
    /// Goes on as it should.
    Behave,
}

/// Registers of the command block that are two deep.
#[derive(Clone, Copy, Debug, Default)]
struct Deep([u8; 2]);

impl Deep {
    const fn push(&mut self, value: u8) {
        self.0 = [value, self.0[0]];
    }
}

/// A transfer of the processor.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    is_read: bool,
    sector: u64,
    left: u32,
    block: u32,
}

/// The channel.
#[derive(Debug)]
pub struct FakeChannel {
    bus: FakeBus,
    /// The interrupt line.
    pub irq: FakeIrq,
    /// Devices 0 and 1.
    pub disks: [Option<FakeIdeDisk>; 2],
    /// Commands are done at [`FakeChannel::step`], and not at once.
    pub is_stepped: bool,
    /// Commands end never.
    pub hangs: bool,
    /// The function may reach memory.
    pub is_bus_master: bool,
    /// Accesses of the driver so far.
    pub access_count: u64,
    /// What the driver did wrong.
    pub driver_faults: Vec<DriverFault>,
    features: u8,
    count: Deep,
    lba: [Deep; 3],
    device: u8,
    status: u8,
    error: u8,
    control: u8,
    pending: Option<u8>,
    data: VecDeque<u8>,
    transfer: Option<Transfer>,
    master_command: u8,
    master_status: u8,
    master_table: u32,
    forced_status: Option<u8>,
    forced_master: Option<u8>,
}

/// A channel that its ports and the test share.
pub type SharedChannel = Rc<RefCell<FakeChannel>>;

impl FakeChannel {
    /// A channel with these devices.
    #[must_use]
    pub fn new(bus: &FakeBus, disks: [Option<FakeIdeDisk>; 2]) -> SharedChannel {
        Rc::new(RefCell::new(Self {
            bus: bus.clone(),
            irq: FakeIrq::new(),
            disks,
            is_stepped: false,
            hangs: false,
            is_bus_master: true,
            access_count: 0,
            driver_faults: Vec::new(),
            features: 0,
            count: Deep::default(),
            lba: [Deep::default(); 3],
            device: 0,
            status: IDLE,
            error: 0,
            control: 0,
            pending: None,
            data: VecDeque::new(),
            transfer: None,
            master_command: 0,
            master_status: 0x60,
            master_table: 0,
            forced_status: None,
            forced_master: None,
        }))
    }

    /// A disk of the channel.
    ///
    /// # Panics
    /// If it is not there.
    pub fn disk(&mut self, device: usize) -> &mut FakeIdeDisk {
        self.disks[device].as_mut().expect("a disk of the test")
    }

    /// Goes on with the command under way.
    pub fn step(&mut self) {
        if let Some(command) = self.pending
            && !self.hangs
        {
            self.perform(command);
        }
    }

    /// Does it.
    pub fn misbehave(&mut self, mischief: &Mischief) {
        match mischief {
            Mischief::Status(value) => self.forced_status = *value,
            Mischief::BusMaster(value) => self.forced_master = *value,
            Mischief::Scribble { buffer, offset, bytes } => {
                let buffers = self.bus.live_buffers();
                if let Some((address, length)) = buffers.get(buffer % buffers.len().max(1)) {
                    let offset = offset % length;
                    let count = bytes.len().min(length - offset);
                    let _ = self.bus.device_write(address + offset as u64, &bytes[..count]);
                }
            }
            Mischief::Interrupt => self.interrupt(),
            Mischief::Forget => {
                self.pending = None;
                self.status = IDLE;
            }
            Mischief::Lie => {
                if self.pending.take().is_some() {
                    self.master_status &= !1;
                    self.finish(0);
                }
            }
            Mischief::Behave => self.step(),
        }
    }

    /// It behaves from now on.
    pub fn reform(&mut self) {
        self.forced_status = None;
        self.forced_master = None;
        self.hangs = false;
        self.is_stepped = false;
    }

    fn selected(&self) -> usize {
        usize::from(self.device >> 4 & 1)
    }

    fn interrupt(&mut self) {
        if self.control & 2 == 0 {
            self.master_status |= 1 << 2;
            self.irq.set_level(true);
        }
    }

    fn finish(&mut self, error: u8) {
        self.error = error;
        self.status = IDLE | if error != 0 { status::ERROR } else { 0 };
        self.transfer = None;
        self.interrupt();
    }

    fn begin(&mut self, command: u8) {
        if self.disks[self.selected()].is_none() {
            return;
        }
        if self.status & (status::BUSY | status::DATA_REQUEST) != 0 {
            self.driver_faults.push(DriverFault::Busy(command));
            return;
        }
        self.irq.set_level(false);
        self.error = 0;
        self.status = status::BUSY;
        self.pending = Some(command);
        if !self.is_stepped {
            self.step();
        }
    }

    /// Place and number of sectors, as the command has them.
    fn range(&self, is_ext: bool) -> (u64, u32) {
        let [low, middle, high] = self.lba.map(|deep| deep.0.map(u64::from));
        let near = low[0] | middle[0] << 8 | high[0] << 16;
        let [count, count_high] = self.count.0.map(u32::from);
        if is_ext {
            let count = count | count_high << 8;
            let far = low[1] << 24 | middle[1] << 32 | high[1] << 40;
            return (near | far, if count == 0 { 1 << 16 } else { count });
        }
        (near | u64::from(self.device & 0xf) << 24, if count == 0 { 256 } else { count })
    }

    fn perform(&mut self, code: u8) {
        let selected = self.selected();
        let Some(disk) = &mut self.disks[selected] else { return };
        let (is_read, is_ext, is_dma, is_multiple) = match code {
            command::READ => (true, false, false, false),
            command::READ_EXT => (true, true, false, false),
            command::WRITE => (false, false, false, false),
            command::WRITE_EXT => (false, true, false, false),
            command::READ_MULTIPLE => (true, false, false, true),
            command::READ_MULTIPLE_EXT => (true, true, false, true),
            command::WRITE_MULTIPLE => (false, false, false, true),
            command::WRITE_MULTIPLE_EXT => (false, true, false, true),
            command::READ_DMA => (true, false, true, false),
            command::READ_DMA_EXT => (true, true, true, false),
            command::WRITE_DMA => (false, false, true, false),
            command::WRITE_DMA_EXT => (false, true, true, false),
            _ => {
                self.pending = None;
                let error = match code {
                    command::IDENTIFY => {
                        self.data = disk.identity.iter().copied().collect();
                        self.status = IDLE | status::DATA_REQUEST;
                        self.interrupt();
                        return;
                    }
                    command::SET_MULTIPLE if self.count.0[0].is_power_of_two() && self.count.0[0] <= 16 => {
                        disk.multiple = u32::from(self.count.0[0]);
                        0
                    }
                    command::SET_FEATURES if self.features == 3 => 0,
                    command::FLUSH | command::FLUSH_EXT => {
                        disk.flush_count += 1;
                        0
                    }
                    _ => {
                        self.driver_faults.push(DriverFault::Command(code));
                        ABORTED
                    }
                };
                self.finish(error);
                return;
            }
        };
        let (multiple, content_sectors, bad) = (disk.multiple, disk.content.len() / SECTOR, disk.bad.clone());
        let (sector, count) = self.range(is_ext);
        let end = sector + u64::from(count);
        if end > content_sectors as u64 || bad.start < end && sector < bad.end || is_multiple && multiple == 0 {
            self.pending = None;
            self.master_status &= !1;
            self.finish(ABORTED);
            return;
        }
        if is_dma {
            // Until the bus master is started.
            if self.master_command & 1 != 0 {
                self.pending = None;
                self.move_by_dma(is_read, sector, count);
            }
            return;
        }
        self.pending = None;
        let block = if is_multiple { multiple } else { 1 };
        self.transfer = Some(Transfer { is_read, sector, left: count, block });
        self.next_block(is_read);
    }

    /// The disk is ready for a block.
    fn next_block(&mut self, interrupts: bool) {
        let selected = self.selected();
        let (Some(transfer), Some(disk)) = (&mut self.transfer, &self.disks[selected]) else { return };
        if transfer.is_read {
            let count = transfer.block.min(transfer.left);
            let start = transfer.sector as usize * SECTOR;
            self.data = disk.content[start..start + count as usize * SECTOR].iter().copied().collect();
            transfer.sector += u64::from(count);
            transfer.left -= count;
        }
        self.status = IDLE | status::DATA_REQUEST;
        if interrupts {
            self.interrupt();
        }
    }

    fn read_data(&mut self) -> u32 {
        if self.status & status::DATA_REQUEST == 0 || self.data.len() < 4 {
            self.driver_faults.push(DriverFault::Data);
            return 0;
        }
        let mut bytes = [0; 4];
        bytes.iter_mut().for_each(|byte| *byte = self.data.pop_front().unwrap_or(0));
        if self.data.is_empty() {
            match self.transfer {
                Some(transfer) if transfer.left > 0 => self.next_block(true),
                _ => {
                    self.transfer = None;
                    self.status = IDLE;
                }
            }
        }
        u32::from_le_bytes(bytes)
    }

    fn write_data(&mut self, value: u32) {
        let selected = self.selected();
        let (Some(transfer), Some(disk)) = (&mut self.transfer, &mut self.disks[selected]) else {
            self.driver_faults.push(DriverFault::Data);
            return;
        };
        self.data.extend(value.to_le_bytes());
        let count = transfer.block.min(transfer.left);
        if self.data.len() < count as usize * SECTOR {
            return;
        }
        let start = transfer.sector as usize * SECTOR;
        for (place, byte) in disk.content[start..].iter_mut().zip(self.data.drain(..)) {
            *place = byte;
        }
        transfer.sector += u64::from(count);
        transfer.left -= count;
        if transfer.left == 0 {
            self.finish(0);
        } else {
            self.next_block(true);
        }
    }

    fn read_table(&mut self) -> Vec<(u64, usize)> {
        let mut pieces = Vec::new();
        for index in 0..TABLE_ENTRY_COUNT_MAX as u64 {
            let mut bytes = [0; 8];
            let place = u64::from(self.master_table) + 8 * index;
            if self.bus.device_read(place, &mut bytes).is_none() {
                break;
            }
            let entry = u64::from_le_bytes(bytes);
            let (address, count) = (entry & 0xffff_ffff, (entry >> 32 & 0xffff) as usize);
            let count = if count == 0 { 1 << 16 } else { count };
            if entry & (1 | 1 << 32) != 0 || (address % (1 << 16)) as usize + count > 1 << 16 {
                self.driver_faults.push(DriverFault::Table(entry));
            }
            pieces.push((address, count));
            if entry >> 63 != 0 {
                return pieces;
            }
        }
        self.driver_faults.push(DriverFault::Table(0));
        pieces
    }

    fn move_by_dma(&mut self, is_read: bool, sector: u64, count: u32) {
        let selected = self.selected();
        if is_read != (self.master_command & 1 << 3 != 0) {
            self.driver_faults.push(DriverFault::Table(u64::from(self.master_command)));
        }
        if !self.is_bus_master {
            self.finish(0);
            return;
        }
        let pieces = self.read_table();
        let Some(disk) = &mut self.disks[selected] else { return };
        let (mut at, end) = (sector as usize * SECTOR, (sector as usize + count as usize) * SECTOR);
        let mut is_longer = false;
        for (address, count) in pieces {
            let now = count.min(end - at);
            is_longer |= now < count;
            let bytes = &mut disk.content[at..at + now];
            // What is not there is a violation that the bus records.
            let _ = match is_read {
                true => self.bus.device_write(address, bytes),
                false => self.bus.device_read(address, bytes),
            };
            at += now;
        }
        if at < end {
            self.master_status &= !1;
            self.status = IDLE;
            return;
        }
        if !is_longer {
            self.master_status &= !1;
        }
        self.finish(0);
    }

    fn reset(&mut self) {
        self.status = IDLE;
        self.error = 1;
        self.device = 0;
        self.pending = None;
        self.transfer = None;
        self.data.clear();
        self.count = Deep([1, 1]);
        self.lba = [Deep([1, 1]), Deep::default(), Deep::default()];
        for disk in self.disks.iter_mut().flatten() {
            disk.multiple = 0;
        }
    }
}
