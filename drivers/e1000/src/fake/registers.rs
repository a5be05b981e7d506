//! The card's registers, as the driver sees them.

use aegis_hal::Width;
use aegis_hal::fake::Registers;

use super::{DriverFault, FakeCard, FakeRing, HARDWARE_ADDRESS, Mischief};
use crate::Model;
use crate::registers as reg;

impl FakeCard {
    /// What a reset loads from the card's memory.
    pub(crate) fn load_address(&mut self) {
        let mut address = HARDWARE_ADDRESS;
        if self.mischief == Some(Mischief::OtherAddress) {
            address[5] ^= 1;
        }
        let [a, b, c, d, e, f] = if self.loads_address { address } else { [0; 6] };
        self.values[reg::RAL / 4] = u32::from_le_bytes([a, b, c, d]);
        let valid = if self.loads_address { reg::RAH_VALID } else { 0 };
        self.values[reg::RAH / 4] = u32::from_le_bytes([e, f, 0, 0]) | valid;
    }

    fn ring_of(offset: usize) -> Option<(usize, usize)> {
        let within = |base: usize| (base..base + 0x20).contains(&offset).then(|| offset - base);
        within(reg::RECEIVE_RING).map(|at| (0, at)).or_else(|| within(reg::TRANSMIT_RING).map(|at| (1, at)))
    }

    fn write_ring(&mut self, direction: usize, at: usize, value: u32) {
        let is_running = if direction == 0 { self.is_receiving() } else { self.is_sending() };
        let ring = &mut self.rings[direction];
        match at {
            reg::RING_BASE_LOW => ring.base = ring.base & !0xffff_ffff | u64::from(value),
            reg::RING_BASE_HIGH => ring.base = ring.base & 0xffff_ffff | u64::from(value) << 32,
            reg::RING_LENGTH => ring.length_bytes = value,
            reg::RING_HEAD => ring.head = value,
            _ => ring.tail = value,
        }
        let FakeRing { base, length_bytes, tail, .. } = *ring;
        if at != reg::RING_TAIL && is_running {
            self.driver_faults.push(DriverFault::MovedWhileRunning);
        }
        if at == reg::RING_TAIL {
            self.notification_count += 1;
            if base % 16 != 0 || length_bytes % 128 != 0 || length_bytes == 0 {
                self.driver_faults.push(DriverFault::Ring);
            } else if tail >= length_bytes / 16 {
                self.driver_faults.push(DriverFault::Tail);
                self.rings[direction].tail = 0;
            }
            if direction == 0 {
                self.receive();
            } else if !self.is_slow {
                self.work();
            }
        }
    }

    fn write_control(&mut self, value: u32) {
        self.values[reg::CTRL / 4] = value;
        if value & reg::CTRL_RESET == 0 {
            return;
        }
        if self.mischief != Some(Mischief::NoReset) {
            self.values[reg::CTRL / 4] = value & !reg::CTRL_RESET;
        }
        // As QEMU's 82540EM: nothing but the address is as it was when the card was switched on.
        self.load_address();
    }
}

impl Registers for FakeCard {
    fn read(&mut self, offset: usize, width: Width) -> u64 {
        if width != Width::U32 {
            self.driver_faults.push(DriverFault::Register(offset));
        }
        if self.mischief == Some(Mischief::Gone) {
            return u64::MAX;
        }
        if let Some((direction, at)) = Self::ring_of(offset) {
            let ring = self.rings[direction];
            return u64::from(if at == reg::RING_HEAD { ring.head } else { ring.tail });
        }
        let value = match offset {
            reg::ICR => {
                let causes = self.causes;
                self.causes = 0;
                self.update_line();
                causes
            }
            reg::STATUS => {
                let is_enabled = self.value(reg::CTRL) & reg::CTRL_GIO_DISABLE == 0;
                let link = if self.has_link { reg::STATUS_LINK_UP } else { 0 };
                link | if is_enabled { reg::STATUS_GIO_ENABLED } else { 0 }
            }
            reg::RCTL | reg::TCTL if self.mischief == Some(Mischief::NoStop) => self.value(offset) | reg::RCTL_ENABLE,
            _ => self.value(offset),
        };
        u64::from(value)
    }

    fn write(&mut self, offset: usize, width: Width, value: u64) {
        let value = value as u32;
        if width != Width::U32 {
            self.driver_faults.push(DriverFault::Register(offset));
        }
        if let Some((direction, at)) = Self::ring_of(offset) {
            return self.write_ring(direction, at, value);
        }
        match offset {
            reg::CTRL => self.write_control(value),
            reg::ICR => self.causes &= !value,
            reg::IMS => self.mask |= value,
            reg::IMC => self.mask &= !value,
            reg::EERD => {
                let (shift, done) = if self.model == Model::Pci82540 { (8, 1 << 4) } else { (2, 1 << 1) };
                let word = (value >> shift & 0x3f) as usize;
                let bytes = HARDWARE_ADDRESS.chunks(2).nth(word).unwrap_or(&[0, 0]);
                let word = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
                self.values[offset / 4] = word << 16 | done;
            }
            reg::IVAR | reg::EIAC | reg::RFCTL | reg::MRQC | reg::TARC if self.model == Model::Pci82540 => {
                self.driver_faults.push(DriverFault::Register(offset));
            }
            _ => self.values[offset / 4] = value,
        }
        if matches!(offset, reg::RCTL | reg::TCTL) {
            self.note_running();
            self.receive();
            if !self.is_slow {
                self.work();
            }
        }
        self.update_line();
    }
}
