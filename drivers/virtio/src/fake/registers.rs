//! The device model behind the registers of both transports.

extern crate alloc;

use alloc::rc::Rc;
use core::cell::RefCell;

use aegis_hal::Width;
use aegis_hal::fake::{FakeMmio, Registers};

use super::{DriverFault, FakeSerial, SharedSerial};
use crate::PciWindows;
use crate::console::CONFIG_PORT_COUNT_MAX;
use crate::transport_mmio::{MAGIC, VERSION, register};
use crate::transport_pci::common;

/// Bytes of a virtio-mmio slot of QEMU.
const MMIO_BYTES: usize = 0x200;
/// Bytes between notification addresses, as QEMU's default.
const NOTIFY_MULTIPLIER: usize = 4;

/// Selectors, which belong to the registers and not to the device.
#[derive(Debug, Default)]
struct Selected {
    device_features: u32,
    driver_features: u32,
    queue: u16,
    /// The MSI-X vector written last, if the device has it.
    vector: u16,
}

/// Entries of the PCI function's MSI-X table.
const VECTOR_COUNT: u16 = 2;

/// A virtio-mmio slot with the device in it.
#[must_use]
pub fn mmio(device: &SharedSerial) -> FakeMmio<MmioModel> {
    let model = MmioModel { device: Rc::clone(device), selected: Selected::default() };
    FakeMmio::new(Rc::new(RefCell::new(model)), MMIO_BYTES)
}

/// The device as a PCI function: its windows and the multiplier for notifications.
#[must_use]
pub fn pci(device: &SharedSerial) -> (PciWindows<FakeMmio<PciWindowModel>>, u32) {
    let selected = Rc::new(RefCell::new(Selected::default()));
    let queue_count = device.borrow().queues.len();
    let window = |kind, length_bytes| {
        let model = PciWindowModel { device: Rc::clone(device), selected: Rc::clone(&selected), kind };
        FakeMmio::new(Rc::new(RefCell::new(model)), length_bytes)
    };
    let windows = PciWindows {
        common: window(PciWindowKind::Common, common::LENGTH as usize),
        notify: window(PciWindowKind::Notify, NOTIFY_MULTIPLIER * queue_count),
        isr: window(PciWindowKind::Isr, 1),
        device: window(PciWindowKind::Device, 64),
    };
    (windows, NOTIFY_MULTIPLIER as u32)
}

/// Registers of virtio-mmio version 2.
#[derive(Debug)]
pub struct MmioModel {
    device: SharedSerial,
    selected: Selected,
}

/// Which of the windows a [`PciWindowModel`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PciWindowKind {
    /// Common configuration.
    Common,
    /// Notifications.
    Notify,
    /// Interrupt status.
    Isr,
    /// Device configuration.
    Device,
}

/// One window of the modern PCI interface.
#[derive(Debug)]
pub struct PciWindowModel {
    device: SharedSerial,
    selected: Rc<RefCell<Selected>>,
    kind: PciWindowKind,
}

impl FakeSerial {
    fn offered_half(&self, select: u32) -> u64 {
        match select {
            0 => self.offered & 0xffff_ffff,
            1 => self.offered >> 32,
            _ => 0,
        }
    }

    fn accept_half(&mut self, select: u32, value: u64) {
        match select {
            0 => self.accepted = self.accepted & !0xffff_ffff | value,
            1 => self.accepted = self.accepted & 0xffff_ffff | value << 32,
            _ => self.driver_faults.push(DriverFault::Features { value }),
        }
    }

    fn queue_size_max(&self, queue: u16) -> u16 {
        self.queues.get(usize::from(queue)).map_or(0, |queue| queue.size_max)
    }

    /// Writes half of one of the three addresses; `part` counts halves in the order of
    /// [`crate::QueueAddresses`].
    fn set_address_half(&mut self, queue: u16, part: usize, value: u64) {
        let Some(slot) = self.queues.get_mut(usize::from(queue)).filter(|queue| !queue.ready) else {
            self.driver_faults.push(DriverFault::QueueSetup { queue });
            return;
        };
        let address = match part / 2 {
            0 => &mut slot.descriptors,
            1 => &mut slot.available,
            _ => &mut slot.used,
        };
        *address =
            if part.is_multiple_of(2) { *address & !0xffff_ffff | value } else { *address & 0xffff_ffff | value << 32 };
    }

    fn config(&mut self, offset: usize) -> u64 {
        let word = self.ninep_config(offset).or_else(|| self.net_config(offset));
        if let Some(word) = word.or_else(|| self.block_config(offset)) {
            return word;
        }
        if offset == CONFIG_PORT_COUNT_MAX {
            return u64::from(self.port_count_max);
        }
        0
    }

    fn set_queue_size(&mut self, queue: u16, value: u64) {
        if let Some(queue) = self.queues.get_mut(usize::from(queue)) {
            queue.size = value as u16;
        }
    }

    fn bad_register(&mut self, offset: usize) -> u64 {
        self.driver_faults.push(DriverFault::Register { offset });
        0
    }

    fn read_status(&self) -> u64 {
        u64::from(self.status)
    }
}

impl Registers for MmioModel {
    fn read(&mut self, offset: usize, width: Width) -> u64 {
        let mut device = self.device.borrow_mut();
        if offset >= register::CONFIG {
            return device.config(offset - register::CONFIG);
        }
        if width != Width::U32 {
            return device.bad_register(offset);
        }
        match offset {
            register::MAGIC => u64::from(MAGIC),
            register::VERSION => u64::from(VERSION),
            register::DEVICE_ID => u64::from(device.device_type()),
            register::DEVICE_FEATURES => device.offered_half(self.selected.device_features),
            // As QEMU: virtio-mmio tells its general limit, not the queue's, unless a test lowered
            // it.
            register::QUEUE_SIZE_MAX => match device.queue_size_max(self.selected.queue) {
                32 | 128 => 1024,
                other => u64::from(other),
            },
            register::QUEUE_READY => {
                device.queues.get(usize::from(self.selected.queue)).map_or(0, |queue| u64::from(queue.ready))
            }
            register::INTERRUPT_STATUS => u64::from(device.interrupt_status),
            register::STATUS => device.read_status(),
            _ => device.bad_register(offset),
        }
    }

    fn write(&mut self, offset: usize, width: Width, value: u64) {
        let mut device = self.device.borrow_mut();
        if width != Width::U32 {
            device.bad_register(offset);
            return;
        }
        let queue = self.selected.queue;
        match offset {
            register::DEVICE_FEATURES_SELECT => self.selected.device_features = value as u32,
            register::DRIVER_FEATURES_SELECT => self.selected.driver_features = value as u32,
            register::DRIVER_FEATURES => device.accept_half(self.selected.driver_features, value),
            register::QUEUE_SELECT => self.selected.queue = value as u16,
            register::QUEUE_SIZE => device.set_queue_size(queue, value),
            register::QUEUE_READY => device.set_ready(queue),
            register::QUEUE_NOTIFY => device.notify(value as u16),
            register::INTERRUPT_ACKNOWLEDGE => device.lower(value as u8),
            register::STATUS => device.write_status(value as u8),
            0x080 | 0x084 => device.set_address_half(queue, (offset - 0x080) / 4, value),
            0x090 | 0x094 => device.set_address_half(queue, 2 + (offset - 0x090) / 4, value),
            0x0a0 | 0x0a4 => device.set_address_half(queue, 4 + (offset - 0x0a0) / 4, value),
            _ => {
                device.bad_register(offset);
            }
        }
    }
}

impl Registers for PciWindowModel {
    fn read(&mut self, offset: usize, width: Width) -> u64 {
        let mut device = self.device.borrow_mut();
        let selected = self.selected.borrow();
        match (self.kind, offset, width) {
            (PciWindowKind::Common, common::DEVICE_FEATURE, Width::U32) => {
                device.offered_half(selected.device_features)
            }
            (PciWindowKind::Common, common::STATUS, Width::U8) => device.read_status(),
            (PciWindowKind::Common, common::QUEUE_SIZE, Width::U16) => u64::from(device.queue_size_max(selected.queue)),
            (PciWindowKind::Common, common::QUEUE_NOTIFY_OFF, Width::U16) => u64::from(selected.queue),
            (PciWindowKind::Common, common::CONFIG_MSIX_VECTOR | common::QUEUE_MSIX_VECTOR, Width::U16) => {
                u64::from(selected.vector)
            }
            (PciWindowKind::Isr, 0, Width::U8) => {
                let cause = device.interrupt_status;
                device.lower(cause);
                u64::from(cause)
            }
            (PciWindowKind::Device, ..) => device.config(offset),
            _ => device.bad_register(offset),
        }
    }

    fn write(&mut self, offset: usize, width: Width, value: u64) {
        let mut device = self.device.borrow_mut();
        let mut selected = self.selected.borrow_mut();
        let queue = selected.queue;
        match (self.kind, offset, width) {
            (PciWindowKind::Common, common::DEVICE_FEATURE_SELECT, Width::U32) => {
                selected.device_features = value as u32;
            }
            (PciWindowKind::Common, common::DRIVER_FEATURE_SELECT, Width::U32) => {
                selected.driver_features = value as u32;
            }
            (PciWindowKind::Common, common::DRIVER_FEATURE, Width::U32) => {
                device.accept_half(selected.driver_features, value);
            }
            (PciWindowKind::Common, common::STATUS, Width::U8) => device.write_status(value as u8),
            (PciWindowKind::Common, common::QUEUE_SELECT, Width::U16) => {
                selected.queue = value as u16;
            }
            (PciWindowKind::Common, common::QUEUE_SIZE, Width::U16) => {
                device.set_queue_size(queue, value);
            }
            (PciWindowKind::Common, common::CONFIG_MSIX_VECTOR | common::QUEUE_MSIX_VECTOR, Width::U16) => {
                let vector = value as u16;
                selected.vector = if vector < VECTOR_COUNT { vector } else { u16::MAX };
            }
            (PciWindowKind::Common, common::QUEUE_ENABLE, Width::U16) => device.set_ready(queue),
            (PciWindowKind::Common, common::QUEUE_DESCRIPTORS..common::END, Width::U32) => {
                let part = (offset - common::QUEUE_DESCRIPTORS) / 4;
                device.set_address_half(queue, part, value);
            }
            (PciWindowKind::Notify, _, Width::U16) if offset == NOTIFY_MULTIPLIER * value as usize => {
                device.notify(value as u16);
            }
            _ => {
                device.bad_register(offset);
            }
        }
    }
}
