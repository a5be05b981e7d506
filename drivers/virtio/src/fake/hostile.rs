//! A device that does what it should not, one piece of [`Mischief`] at a time, between steps of
//! honest behaviour.

extern crate alloc;

use alloc::vec::Vec;

use super::FakeSerial;

/// Something that a broken or malicious device could do. Indices are taken modulo what there is, so
/// that any numbers will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// Writes a queue's used index.
    UsedIndex {
        /// Queue.
        queue: u16,
        /// New value.
        value: u16,
    },
    /// Adds to a queue's used index without filling the elements.
    UsedIndexAdd {
        /// Queue.
        queue: u16,
        /// Entries that are added.
        count: u16,
    },
    /// Returns a buffer: one never given, one given twice, one of any length.
    Return {
        /// Queue.
        queue: u16,
        /// Claimed identifier.
        id: u32,
        /// Claimed length in bytes.
        length_bytes: u32,
    },
    /// Writes bytes anywhere into memory that the device reaches: rings, descriptors, payload.
    Scribble {
        /// Buffer, in order of allocation.
        buffer: usize,
        /// Byte offset.
        offset: usize,
        /// Bytes that are written.
        bytes: Vec<u8>,
    },
    /// Sends any bytes as a control message.
    Control {
        /// The message.
        bytes: Vec<u8>,
    },
    /// Raises its interrupt for any cause.
    Interrupt {
        /// Content of the interrupt status register.
        cause: u8,
    },
    /// Changes its status register.
    Status {
        /// New value.
        value: u8,
    },
    /// Does nothing wrong for once.
    Behave,
}

impl FakeSerial {
    /// Does it.
    pub fn misbehave(&mut self, mischief: &Mischief) {
        let queue_count = self.queues.len() as u16;
        match mischief {
            Mischief::UsedIndex { queue, value } => {
                self.write_used_index(*queue % queue_count, *value);
            }
            Mischief::UsedIndexAdd { queue, count } => {
                let queue = *queue % queue_count;
                let current = self.queues[usize::from(queue)].used_index;
                self.write_used_index(queue, current.wrapping_add(*count));
            }
            Mischief::Return { queue, id, length_bytes } => {
                self.push_used(*queue % queue_count, *id, *length_bytes);
                self.interrupt_for(*queue % queue_count);
            }
            Mischief::Scribble { buffer, offset, bytes } => {
                let buffers = self.bus.live_buffers();
                if buffers.is_empty() {
                    return;
                }
                let (address, length) = buffers[buffer % buffers.len()];
                let offset = offset % length;
                let count = bytes.len().min(length - offset);
                let _ = self.bus.device_write(address + offset as u64, &bytes[..count]);
            }
            Mischief::Control { bytes } => self.send_control_bytes(bytes),
            Mischief::Interrupt { cause } => self.raise(*cause),
            Mischief::Status { value } => self.status = *value,
            Mischief::Behave => self.step(),
        }
    }

    fn write_used_index(&mut self, index: u16, value: u16) {
        let queue = &mut self.queues[usize::from(index)];
        if queue.ready {
            queue.used_index = value;
            let _ = self.bus.device_write(queue.used + 2, &value.to_le_bytes());
        }
    }
}
