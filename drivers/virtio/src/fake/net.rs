//! The device model as a network card: frames in and out, with or without what a backend can do to them.

extern crate alloc;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use aegis_hal::fake::FakeBus;

use super::{DeviceQueue, FakeSerial, SharedSerial};
use crate::device::{FEATURE_ACCESS_PLATFORM, FEATURE_VERSION_1};
use crate::net::{FEATURE_MERGED_BUFFERS, FEATURES};
use crate::queue::FEATURE_EVENT_INDEX;

const HEADER_BYTES: usize = 12;
const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;

/// What makes the model a network card: the host's end of the wire.
#[derive(Clone, Debug)]
pub struct NetHost {
    /// Its address.
    pub hardware_address: [u8; 6],
    /// Content of the configuration's status.
    pub link: u16,
    /// Content of the configuration's longest packet.
    pub packet_bytes_max: u16,
    /// Frames that the driver sent, each behind its header of twelve bytes.
    pub sent: Vec<Vec<u8>>,
    /// Frames that wait for buffers, each behind the first ten bytes of its header.
    pub incoming: VecDeque<Vec<u8>>,
    /// Frames that were too long for one buffer, where they may not lie in several.
    pub dropped_count: usize,
}

impl FakeSerial {
    /// A network card on `bus` with all features; its queue sizes are QEMU's.
    #[must_use]
    pub fn net(bus: &FakeBus) -> SharedSerial {
        let device = Self::new(bus, 1, Vec::new());
        {
            let mut device = device.borrow_mut();
            device.offered = FEATURE_VERSION_1 | FEATURE_ACCESS_PLATFORM | FEATURE_EVENT_INDEX | FEATURES;
            device.queues = vec![DeviceQueue { size_max: 256, ..DeviceQueue::default() }; 3];
            device.net = Some(NetHost {
                hardware_address: [0x52, 0x54, 0, 0x12, 0x34, 0x56],
                link: 1,
                packet_bytes_max: 1500,
                sent: Vec::new(),
                incoming: VecDeque::new(),
                dropped_count: 0,
            });
        }
        device
    }

    /// The host's end of the wire.
    ///
    /// # Panics
    /// If the model is no network card.
    pub fn wire(&mut self) -> &mut NetHost {
        self.net.as_mut().expect("a card of the test")
    }

    /// A frame comes from the wire, without anything to say of it.
    pub fn arrive(&mut self, frame: &[u8]) {
        self.arrive_with(0, frame);
    }

    /// The same, with flags in its header.
    pub fn arrive_with(&mut self, flags: u8, frame: &[u8]) {
        let mut bytes = vec![0; HEADER_BYTES - 2];
        bytes[0] = flags;
        bytes.extend_from_slice(frame);
        self.wire().incoming.push_back(bytes);
        self.settle();
    }

    /// The link comes or goes.
    pub fn set_link(&mut self, is_up: bool) {
        self.wire().link = u16::from(is_up);
        self.raise(2);
    }

    /// A word of the configuration of a card.
    pub(super) fn net_config(&self, offset: usize) -> Option<u64> {
        let net = self.net.as_ref()?;
        let mut bytes = net.hardware_address.to_vec();
        bytes.extend_from_slice(&net.link.to_le_bytes());
        bytes.extend_from_slice(&1u16.to_le_bytes());
        bytes.extend_from_slice(&net.packet_bytes_max.to_le_bytes());
        let word = bytes.get(offset..offset + 4).and_then(|word| word.try_into().ok());
        Some(u64::from(word.map_or(u32::MAX, u32::from_le_bytes)))
    }

    /// Takes all frames of the transmit queue.
    pub(super) fn take_frames(&mut self) {
        while let Some((head, pieces)) = self.pop_available(TRANSMIT_QUEUE) {
            let frame = self.gather(&pieces);
            self.wire().sent.push(frame);
            self.push_used(TRANSMIT_QUEUE, u32::from(head), 0);
        }
        self.interrupt_for(TRANSMIT_QUEUE);
    }

    /// Hands out what waits, as far as there are buffers.
    pub(super) fn deliver_frames(&mut self) {
        let mut is_delivered = false;
        while let Some(bytes) = self.net.as_ref().and_then(|net| net.incoming.front().cloned()) {
            match self.deliver_frame(&bytes) {
                Some(is_taken) => is_delivered |= is_taken,
                None => break,
            }
            self.wire().incoming.pop_front();
        }
        if is_delivered {
            self.interrupt_for(RECEIVE_QUEUE);
        }
    }

    /// Whether a frame was taken or dropped; `None`: there are too few buffers.
    fn deliver_frame(&mut self, bytes: &[u8]) -> Option<bool> {
        let merges = self.accepted & FEATURE_MERGED_BUFFERS != 0;
        let mut chains = Vec::new();
        let mut room = 0;
        while room < bytes.len() + 2 {
            let Some((head, pieces)) = self.pop_available(RECEIVE_QUEUE) else {
                let queue = &mut self.queues[usize::from(RECEIVE_QUEUE)];
                queue.available_index = queue.available_index.wrapping_sub(chains.len() as u16);
                return None;
            };
            let length: usize = pieces.iter().map(|piece| piece.length_bytes as usize).sum();
            if !merges && length < bytes.len() + 2 || length == 0 {
                let queue = &mut self.queues[usize::from(RECEIVE_QUEUE)];
                queue.available_index = queue.available_index.wrapping_sub(1);
                self.wire().dropped_count += 1;
                return Some(false);
            }
            room += length;
            chains.push((head, pieces, length));
        }
        let (header, frame) = bytes.split_at(HEADER_BYTES - 2);
        let mut all = header.to_vec();
        all.extend_from_slice(&(chains.len() as u16).to_le_bytes());
        all.extend_from_slice(frame);
        let mut rest = &all[..];
        for (head, pieces, length) in chains {
            let (now, later) = rest.split_at(rest.len().min(length));
            self.scatter(&pieces, now);
            self.push_used(RECEIVE_QUEUE, u32::from(head), now.len() as u32);
            rest = later;
        }
        Some(true)
    }
}
