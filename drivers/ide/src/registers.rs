//! The ports of a channel: the command block, the control port, and its half of the bus master.
//!
//! Where a port is reached by a call to the kernel, each access is a few hundred instructions, so what is known not to
//! have changed is not written again: the selected device, and the bus master's direction and table.
//! [`Registers::access_count`] is what tests hold that against.

use core::cell::Cell;

use aegis_hal::{AccessError, Port, Width};

/// The ports of the command block (ATA/ATAPI-6, clause 7).
pub(crate) mod port {
    pub(crate) const DATA: usize = 0;
    pub(crate) const FEATURES: usize = 1;
    pub(crate) const COUNT: usize = 2;
    pub(crate) const LBA_LOW: usize = 3;
    pub(crate) const LBA_MIDDLE: usize = 4;
    pub(crate) const LBA_HIGH: usize = 5;
    pub(crate) const DEVICE: usize = 6;
    /// Read: clears the interrupt. Write: begins a command.
    pub(crate) const STATUS: usize = 7;
}

/// Bits of the status.
pub(crate) mod status {
    pub(crate) const BUSY: u8 = 1 << 7;
    pub(crate) const FAULT: u8 = 1 << 5;
    pub(crate) const DATA_REQUEST: u8 = 1 << 3;
    pub(crate) const ERROR: u8 = 1;
    /// No device drives the bus.
    pub(crate) const FLOATING: u8 = 0xff;
}

/// Commands.
pub(crate) mod command {
    pub(crate) const READ: u8 = 0x20;
    pub(crate) const READ_EXT: u8 = 0x24;
    pub(crate) const WRITE: u8 = 0x30;
    pub(crate) const WRITE_EXT: u8 = 0x34;
    pub(crate) const READ_MULTIPLE: u8 = 0xc4;
    pub(crate) const READ_MULTIPLE_EXT: u8 = 0x29;
    pub(crate) const WRITE_MULTIPLE: u8 = 0xc5;
    pub(crate) const WRITE_MULTIPLE_EXT: u8 = 0x39;
    pub(crate) const SET_MULTIPLE: u8 = 0xc6;
    pub(crate) const READ_DMA: u8 = 0xc8;
    pub(crate) const READ_DMA_EXT: u8 = 0x25;
    pub(crate) const WRITE_DMA: u8 = 0xca;
    pub(crate) const WRITE_DMA_EXT: u8 = 0x35;
    pub(crate) const FLUSH: u8 = 0xe7;
    pub(crate) const FLUSH_EXT: u8 = 0xea;
    pub(crate) const IDENTIFY: u8 = 0xec;
    pub(crate) const SET_FEATURES: u8 = 0xef;
}

/// The feature that sets a transfer mode, and the modes' families.
pub(crate) const SET_TRANSFER_MODE: u8 = 0x03;
pub(crate) const MODE_MULTIWORD: u8 = 0x20;
pub(crate) const MODE_ULTRA: u8 = 0x40;

/// Bits of the control port.
pub(crate) const CONTROL_RESET: u8 = 1 << 2;
pub(crate) const CONTROL_NO_INTERRUPT: u8 = 1 << 1;

/// The device register: LBA, and bits that old devices want.
const DEVICE_LBA: u8 = 0xe0;
const DEVICE_SECOND: u8 = 1 << 4;

/// The bus master ("Programming Interface for Bus Master IDE Controller", 1.0).
mod bus_master {
    pub(super) const COMMAND: usize = 0;
    pub(super) const STATUS: usize = 2;
    pub(super) const TABLE: usize = 4;
    pub(super) const START: u8 = 1;
    /// From the disk into memory.
    pub(super) const INTO_MEMORY: u8 = 1 << 3;
    pub(super) const ACTIVE: u8 = 1;
    pub(super) const ERROR: u8 = 1 << 1;
    pub(super) const INTERRUPT: u8 = 1 << 2;
    /// Which devices were set up for it: kept.
    pub(super) const CAPABLE: u8 = 3 << 5;
}

/// Accesses of 100 ns and more that are at least the 400 ns for which a status is not to be believed.
const SETTLE_ACCESS_COUNT: u32 = 4;
/// The same for the 5 us of a reset.
const RESET_ACCESS_COUNT: u32 = 50;

/// What the bus master says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BusMasterStatus(u8);

impl BusMasterStatus {
    pub(crate) const fn is_active(self) -> bool {
        self.0 & bus_master::ACTIVE != 0
    }

    pub(crate) const fn has_error(self) -> bool {
        self.0 & bus_master::ERROR != 0
    }

    pub(crate) const fn has_interrupt(self) -> bool {
        self.0 & bus_master::INTERRUPT != 0
    }
}

/// The ranges of ports that a channel has.
#[derive(Debug)]
pub struct Ports<P> {
    /// The command block: eight ports (0x1f0, 0x170).
    pub command: P,
    /// The control port, which is the first of its range (0x3f6, 0x376).
    pub control: P,
    /// The function's bus master, if there is one.
    pub bus_master: Option<P>,
    /// Where this channel's half of it begins: 0, or 8 for the second channel.
    pub bus_master_offset: usize,
}

/// The ports, and what was last written.
#[derive(Debug)]
pub(crate) struct Registers<P> {
    ports: Ports<P>,
    device: Option<u8>,
    direction: Option<u8>,
    table: Option<u32>,
    access_count: Cell<u64>,
}

impl<P: Port> Registers<P> {
    pub(crate) const fn new(ports: Ports<P>) -> Self {
        Self { ports, device: None, direction: None, table: None, access_count: Cell::new(0) }
    }

    pub(crate) const fn has_bus_master(&self) -> bool {
        self.ports.bus_master.is_some()
    }

    pub(crate) fn into_ports(self) -> Ports<P> {
        self.ports
    }

    /// Accesses so far.
    pub(crate) fn access_count(&self) -> u64 {
        self.access_count.get()
    }

    fn count(&self) {
        self.access_count.set(self.access_count.get() + 1);
    }

    pub(crate) fn get(&self, port: usize) -> Result<u8, AccessError> {
        self.count();
        Ok(self.ports.command.input(port, Width::U8)? as u8)
    }

    pub(crate) fn put(&mut self, port: usize, value: u8) -> Result<(), AccessError> {
        self.count();
        self.ports.command.output(port, Width::U8, u32::from(value))
    }

    /// The status, without the side effect.
    pub(crate) fn alternate_status(&self) -> Result<u8, AccessError> {
        self.count();
        Ok(self.ports.control.input(0, Width::U8)? as u8)
    }

    fn control(&mut self, value: u8) -> Result<(), AccessError> {
        self.count();
        self.ports.control.output(0, Width::U8, u32::from(value))
    }

    /// Words of data, as many as `into` has.
    pub(crate) fn read_data(&self, into: &mut [u8]) -> Result<(), AccessError> {
        self.access_count.set(self.access_count.get() + into.len() as u64 / 4);
        self.ports.command.input_run(port::DATA, into)
    }

    pub(crate) fn write_data(&mut self, from: &[u8]) -> Result<(), AccessError> {
        self.access_count.set(self.access_count.get() + from.len() as u64 / 4);
        self.ports.command.output_run(port::DATA, from)
    }

    /// Selects a device, and four bits of a place; whether it is another device than before.
    pub(crate) fn select(&mut self, device: u8, lba_top: u8) -> Result<bool, AccessError> {
        let value = DEVICE_LBA | if device == 0 { 0 } else { DEVICE_SECOND } | lba_top & 0xf;
        let before = self.device.replace(value);
        if before == Some(value) {
            return Ok(false);
        }
        self.put(port::DEVICE, value)?;
        let is_other = before.is_none_or(|before| (before ^ value) & DEVICE_SECOND != 0);
        if is_other {
            self.settle(SETTLE_ACCESS_COUNT)?;
        }
        Ok(is_other)
    }

    fn settle(&self, access_count: u32) -> Result<(), AccessError> {
        for _ in 0..access_count {
            self.alternate_status()?;
        }
        Ok(())
    }

    /// Waits until nothing is busy; `None`: it stays busy.
    pub(crate) fn wait(&self, poll_count_max: u32) -> Result<Option<u8>, AccessError> {
        for _ in 0..poll_count_max {
            let status = self.alternate_status()?;
            if status & status::BUSY == 0 {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }

    /// Stops the bus master, and resets both devices; false: they stay busy, or the bus master stays at work.
    pub(crate) fn reset(&mut self, poll_count_max: u32) -> Result<bool, AccessError> {
        self.device = None;
        self.direction = None;
        self.table = None;
        if self.has_bus_master() {
            self.stop_bus_master(false)?;
        }
        self.control(CONTROL_RESET | CONTROL_NO_INTERRUPT)?;
        self.settle(RESET_ACCESS_COUNT)?;
        self.control(0)?;
        self.settle(RESET_ACCESS_COUNT)?;
        let is_idle = self.wait(poll_count_max)?.is_some();
        if !self.has_bus_master() {
            return Ok(is_idle);
        }
        self.clear_bus_master(BusMasterStatus(0))?;
        Ok(is_idle && !self.bus_master_status()?.is_active())
    }

    /// Lets nothing interrupt any more.
    pub(crate) fn silence(&mut self) -> Result<(), AccessError> {
        self.control(CONTROL_NO_INTERRUPT)
    }

    fn bus_master(&mut self, register: usize, width: Width, value: u32) -> Result<(), AccessError> {
        self.count();
        let offset = self.ports.bus_master_offset + register;
        self.ports.bus_master.as_mut().map_or(Ok(()), |ports| ports.output(offset, width, value))
    }

    /// What the bus master is to do when it is started.
    pub(crate) fn prepare_bus_master(&mut self, table: u32, is_into_memory: bool) -> Result<(), AccessError> {
        let direction = if is_into_memory { bus_master::INTO_MEMORY } else { 0 };
        if self.table.replace(table) != Some(table) {
            self.bus_master(bus_master::TABLE, Width::U32, table)?;
        }
        if self.direction.replace(direction) == Some(direction) {
            return Ok(());
        }
        self.bus_master(bus_master::COMMAND, Width::U8, u32::from(direction))
    }

    pub(crate) fn start_bus_master(&mut self, is_into_memory: bool) -> Result<(), AccessError> {
        let direction = if is_into_memory { bus_master::INTO_MEMORY } else { 0 };
        self.bus_master(bus_master::COMMAND, Width::U8, u32::from(direction | bus_master::START))
    }

    /// The direction stays.
    pub(crate) fn stop_bus_master(&mut self, is_into_memory: bool) -> Result<(), AccessError> {
        let direction = if is_into_memory { bus_master::INTO_MEMORY } else { 0 };
        self.bus_master(bus_master::COMMAND, Width::U8, u32::from(direction))
    }

    pub(crate) fn bus_master_status(&self) -> Result<BusMasterStatus, AccessError> {
        self.count();
        let offset = self.ports.bus_master_offset + bus_master::STATUS;
        let status = self.ports.bus_master.as_ref().map_or(Ok(0), |ports| ports.input(offset, Width::U8))?;
        Ok(BusMasterStatus(status as u8))
    }

    /// Forgets interrupt and error.
    pub(crate) fn clear_bus_master(&mut self, was: BusMasterStatus) -> Result<(), AccessError> {
        let value = was.0 & bus_master::CAPABLE | bus_master::INTERRUPT | bus_master::ERROR;
        self.bus_master(bus_master::STATUS, Width::U8, u32::from(value))
    }
}
