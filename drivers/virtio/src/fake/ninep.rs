//! The device model as a 9P transport: one queue, whose messages a function of the test answers.

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use aegis_hal::fake::FakeBus;

use super::{DeviceQueue, FakeSerial, SharedSerial};
use crate::console::DEVICE_TYPE_CONSOLE;
use crate::device::{FEATURE_ACCESS_PLATFORM, FEATURE_VERSION_1};
use crate::net::DEVICE_TYPE_NET;
use crate::ninep::{DEVICE_TYPE_NINEP, FEATURE_MOUNT_TAG};

/// Answers a message; `None` keeps it for ever.
pub type Answer = dyn FnMut(&[u8]) -> Option<Vec<u8>>;

/// What makes the model a 9P device.
pub(super) struct Responder {
    tag: Vec<u8>,
    answer: Box<Answer>,
}

impl core::fmt::Debug for Responder {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Responder").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl FakeSerial {
    /// A 9P device with this mount tag on `bus`; its queue size is QEMU's.
    #[must_use]
    pub fn ninep(bus: &FakeBus, tag: &[u8], answer: Box<Answer>) -> SharedSerial {
        let device = Self::new(bus, 1, Vec::new());
        {
            let mut device = device.borrow_mut();
            device.offered = FEATURE_VERSION_1 | FEATURE_ACCESS_PLATFORM | FEATURE_MOUNT_TAG | 1 << 29;
            device.queues = vec![DeviceQueue { size_max: 128, ..DeviceQueue::default() }];
            device.responder = Some(Responder { tag: tag.to_vec(), answer });
        }
        device
    }

    pub(super) fn device_type(&self) -> u32 {
        match (&self.responder, &self.net) {
            (Some(_), _) => DEVICE_TYPE_NINEP,
            (None, Some(_)) => DEVICE_TYPE_NET,
            (None, None) => self.block_type().unwrap_or(DEVICE_TYPE_CONSOLE),
        }
    }

    /// A word of the configuration of a 9P device: length and bytes of the tag, all ones beyond (as QEMU).
    pub(super) fn ninep_config(&self, offset: usize) -> Option<u64> {
        let tag = &self.responder.as_ref()?.tag;
        let mut bytes = (tag.len() as u16).to_le_bytes().to_vec();
        bytes.extend_from_slice(tag);
        let word = bytes.get(offset..offset + 4).and_then(|word| word.try_into().ok());
        Some(u64::from(word.map_or(u32::MAX, u32::from_le_bytes)))
    }

    /// Takes all messages of the queue and answers them.
    pub(super) fn respond(&mut self, queue: u16) {
        let mut is_answered = false;
        while let Some((head, pieces)) = self.pop_available(queue) {
            let message = self.gather(&pieces);
            let Some(responder) = &mut self.responder else { return };
            if let Some(reply) = (responder.answer)(&message) {
                self.scatter(&pieces, &reply);
                self.push_used(queue, u32::from(head), reply.len() as u32);
                is_answered = true;
            }
        }
        if is_answered {
            self.interrupt_for(queue);
        }
    }
}
