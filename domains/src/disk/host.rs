//! What the service needs of the domain: sessions that are mapped, memory that is bound for the disk, bells.
//!
//! Memory of clients is reached by the disk alone. Where it cannot (an IDE disk reaches even addresses below 4 GiB) the
//! processor moves the bytes, and a page of the client's is mapped for that, one at a time; so buffers of such disks
//! are given to read and write, those of others for the device only.
#![allow(
    unsafe_code,
    reason = "pages of clients are bound for the disk, and mapped where the disk does not reach them"
)]

use core::cell::Cell;
use core::sync::atomic::AtomicU64;

use aegis_abi::CapSlot;
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::memory::{BindEntry, BindFlags};
use aegis_abi::types::SLOT_SELF;
use aegis_domains::layout::{BUFFER_SLOT_COUNT, CLIENT_COUNT_MAX, COPY_BASE, SLOT_DEVICE, buffer_slot, client_slots};
use aegis_hal::DeviceAddress;
use aegis_hal::block::BlockMemory;
use aegis_hal::net::{DmaWindow, Place};
use aegis_rt::call;
use aegis_service::disk::{Buffer, Host};

/// Frames of a buffer that is bound; 0 frames: there is none of this number.
#[derive(Clone, Copy)]
struct Bound {
    first_frame: u64,
    page_count: u32,
}

/// What the service needs: places are device addresses.
pub(crate) struct DomainHost {
    sessions: [&'static [AtomicU64]; CLIENT_COUNT_MAX],
    bound: [[Bound; BUFFER_SLOT_COUNT as usize]; CLIENT_COUNT_MAX],
    /// The frame that is mapped at [`COPY_BASE`]; 0: none is known to be.
    copied: Cell<u64>,
}

impl DomainHost {
    pub(crate) const fn new(sessions: [&'static [AtomicU64]; CLIENT_COUNT_MAX]) -> Self {
        const NONE: Bound = Bound { first_frame: 0, page_count: 0 };
        Self { sessions, bound: [[NONE; BUFFER_SLOT_COUNT as usize]; CLIENT_COUNT_MAX], copied: Cell::new(0) }
    }

    /// A client's session, for as long as the domain is.
    pub(crate) fn session(&self, client: usize) -> &'static [AtomicU64] {
        self.sessions.get(client).copied().unwrap_or_default()
    }

    /// Wakes the first client.
    pub(crate) fn wake_first(&self) {
        let _ = call::bell_ring(client_slots(0)[1]);
    }

    /// The domain's slot of the buffer that a frame is in.
    fn slot_of(&self, frame: u64) -> Option<CapSlot> {
        let holds =
            |bound: &Bound| frame >= bound.first_frame && frame - bound.first_frame < u64::from(bound.page_count);
        self.bound.iter().enumerate().find_map(|(client, buffers)| {
            let number = buffers.iter().position(holds)?;
            buffer_slot(client, number as u32)
        })
    }

    /// Maps the page that an address is in; where the byte is then.
    fn show(&self, address: u64) -> Option<*mut u8> {
        let (frame, offset) = (address / PAGE_SIZE, address % PAGE_SIZE);
        if self.copied.get() != frame {
            let entry = BindEntry::map(COPY_BASE, frame, 1, self.slot_of(frame)?, BindFlags::WRITE);
            // SAFETY: a place that is used for nothing else.
            unsafe { call::bind(SLOT_SELF, &[entry]) }.ok()?;
            self.copied.set(frame);
        }
        Some((COPY_BASE + offset) as *mut u8)
    }

    /// Calls with each part of a place that lies in one page: where it is mapped, how many bytes were before, how many
    /// it has. False: a page is not there.
    fn for_each_part(&self, place: Place, mut act: impl FnMut(*mut u8, usize, usize)) -> bool {
        let (mut done, length) = (0, place.length_bytes as usize);
        while done < length {
            let address = place.offset + done as u64;
            let count = ((PAGE_SIZE - address % PAGE_SIZE) as usize).min(length - done);
            let Some(at) = self.show(address) else { return false };
            act(at, done, count);
            done += count;
        }
        true
    }
}

impl DmaWindow for DomainHost {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        Some(DeviceAddress(place.offset))
    }
}

impl BlockMemory for DomainHost {
    fn copy_in(&self, place: Place, from: &[u8]) -> bool {
        from.len() == place.length_bytes as usize
            && self.for_each_part(place, |to, done, count| {
                // SAFETY: a page that is mapped to write and of which no Rust object is; its client takes what it finds
                // there. One that was taken away meanwhile is a fault, at which the domain ends.
                unsafe { core::ptr::copy_nonoverlapping(from[done..done + count].as_ptr(), to, count) };
            })
    }

    fn copy_out(&self, place: Place, into: &mut [u8]) -> bool {
        into.len() == place.length_bytes as usize
            && self.for_each_part(place, |from, done, count| {
                // SAFETY: as above; what a client changes meanwhile goes to its own sectors, one way or the other.
                unsafe { core::ptr::copy_nonoverlapping(from, into[done..done + count].as_mut_ptr(), count) };
            })
    }
}

impl Host for DomainHost {
    type Words = [AtomicU64];

    fn words(&self, client: usize) -> &[AtomicU64] {
        self.session(client)
    }

    fn wake(&mut self, client: usize) {
        let _ = call::bell_ring(client_slots(client)[1]);
    }

    fn bind(&mut self, client: usize, buffer: Buffer) -> Option<u64> {
        let slot = buffer_slot(client, buffer.slot)?;
        // Once: ranges that the disk may reach are few, and others' too.
        self.bound.get(client)?.get(buffer.slot as usize).filter(|bound| bound.page_count == 0)?;
        // SAFETY: a client's frames, of which nothing is mapped here but to be copied; the kernel checks that they are
        // as many.
        let address = unsafe { call::device_dma_bind(SLOT_DEVICE, slot, 0, u64::from(buffer.page_count)) }.ok()?;
        let bound = self.bound.get_mut(client)?.get_mut(buffer.slot as usize)?;
        *bound = Bound { first_frame: address / PAGE_SIZE, page_count: buffer.page_count };
        Some(address)
    }

    fn unbind(&mut self, client: usize, buffer: Buffer, _: u64) {
        let Some(slot) = buffer_slot(client, buffer.slot) else { return };
        self.copied.set(0);
        if let Some(bound) = self.bound.get_mut(client).and_then(|all| all.get_mut(buffer.slot as usize)) {
            bound.page_count = 0;
        }
        // SAFETY: as above; the disk is done with it.
        let _ = unsafe { call::device_dma_unbind(SLOT_DEVICE, slot, 0, u64::from(buffer.page_count)) };
    }

    fn release(&mut self, _: usize) {}
}
