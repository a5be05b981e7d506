//! The device model behind its ports.

extern crate alloc;

use alloc::rc::Rc;
use core::cell::RefCell;

use aegis_hal::Width;
use aegis_hal::fake::{FakePort, Registers};

use super::{DriverFault, FakeChannel, SharedChannel};
use crate::Ports;
use crate::registers::port;

/// Which range of ports a [`PortsModel`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Command,
    Control,
    BusMaster,
}

/// A range of ports of a channel.
#[derive(Debug)]
pub struct PortsModel {
    channel: SharedChannel,
    range: Range,
}

/// The ports of a channel.
#[must_use]
pub fn ports(channel: &SharedChannel) -> Ports<FakePort<PortsModel>> {
    let model =
        |range, count| FakePort::new(Rc::new(RefCell::new(PortsModel { channel: Rc::clone(channel), range })), count);
    Ports {
        command: model(Range::Command, 8),
        control: model(Range::Control, 1),
        bus_master: Some(model(Range::BusMaster, 8)),
        bus_master_offset: 0,
    }
}

impl FakeChannel {
    fn look(&self) -> u8 {
        let is_there = self.disks[self.selected()].is_some();
        self.forced_status.unwrap_or(if is_there { self.status } else { 0 })
    }

    fn write_command(&mut self, offset: usize, value: u8) {
        match offset {
            port::FEATURES => self.features = value,
            port::COUNT => self.count.push(value),
            port::LBA_LOW | port::LBA_MIDDLE | port::LBA_HIGH => self.lba[offset - port::LBA_LOW].push(value),
            port::DEVICE => self.device = value,
            _ => self.begin(value),
        }
    }

    fn write_control(&mut self, value: u8) {
        if self.control & 4 == 0 && value & 4 != 0 {
            self.reset();
        }
        self.control = value;
    }

    fn write_master(&mut self, offset: usize, value: u8) {
        match offset {
            0 => {
                let starts = self.master_command & 1 == 0 && value & 1 != 0;
                self.master_command = value & 9;
                self.bus.set_device_running(value & 1 != 0);
                if starts {
                    self.master_status |= 1;
                    if !self.is_stepped {
                        self.step();
                    }
                } else if value & 1 == 0 {
                    self.master_status &= !1;
                }
            }
            2 => self.master_status = self.master_status & 1 | value & 0x60 | self.master_status & !value & 6,
            _ => self.driver_faults.push(DriverFault::Port(offset)),
        }
    }
}

impl Registers for PortsModel {
    fn read(&mut self, offset: usize, width: Width) -> u64 {
        let mut channel = self.channel.borrow_mut();
        channel.access_count += 1;
        match (self.range, offset, width) {
            (Range::Command, port::DATA, Width::U32) => u64::from(channel.read_data()),
            (Range::Command, port::STATUS, Width::U8) => {
                channel.irq.set_level(false);
                u64::from(channel.look())
            }
            (Range::Command, port::LBA_MIDDLE | port::LBA_HIGH, Width::U8) => {
                u64::from(channel.lba[offset - port::LBA_LOW].0[0])
            }
            (Range::Command, 1, Width::U8) => u64::from(channel.error),
            (Range::Control, 0, Width::U8) => u64::from(channel.look()),
            (Range::BusMaster, 2, Width::U8) => u64::from(channel.forced_master.unwrap_or(channel.master_status)),
            _ => {
                channel.driver_faults.push(DriverFault::Port(offset));
                0
            }
        }
    }

    fn write(&mut self, offset: usize, width: Width, value: u64) {
        let mut channel = self.channel.borrow_mut();
        channel.access_count += 1;
        match (self.range, offset, width) {
            (Range::Command, port::DATA, Width::U32) => channel.write_data(value as u32),
            (Range::Command, 1.., Width::U8) => channel.write_command(offset, value as u8),
            (Range::Control, 0, Width::U8) => channel.write_control(value as u8),
            (Range::BusMaster, 4, Width::U32) => channel.master_table = value as u32 & !3,
            (Range::BusMaster, _, Width::U8) => channel.write_master(offset, value as u8),
            _ => channel.driver_faults.push(DriverFault::Port(offset)),
        }
    }
}
