//! The domain of the pod's disk: made out of the image in the boot bundle at the disk's first use, given the device
//! function, frames and bells, and made anew when it is lost.
//!
//! Neighbours: `aegis_domains` makes domains, [`exos_linux::host::disk_domain`] is the disk over one, `disk` finds
//! device functions.

use core::sync::atomic::AtomicU64;

use aegis_abi::boot::BootInfo;
use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::types::{SLOT_BUNDLE, SLOT_NONE};
use aegis_abi::{CapSlot, FrameNumber, Rights, Status};
use aegis_domains::layout::{CLIENT_COUNT_MAX, Plan, PlanClient, PlanExtent, buffer_slot};
use aegis_domains::make::{self, Image, Maker, Slots};
use aegis_image::{bundle, flat};
use aegis_link::drivers::PART_DISK_DOMAIN;
use aegis_proto::block::{RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE};
use aegis_rt::call::{self, Outcome, Refusal};
use exos::platform::FrameGrant;
use exos_linux::host::disk_domain::{DomainPlace, SHAPE};

use super::{direct, kernel};

/// Where a domain of this pod is made.
pub(crate) struct Place {
    slots: Slots,
    image: Image<'static>,
    plan: Plan,
    words: &'static [AtomicU64],
}

struct ExosMaker;

impl Maker for ExosMaker {
    fn repeat(&mut self, call: &mut dyn FnMut() -> Outcome) -> Outcome {
        kernel::with_tables(call).map_err(|status| Refusal { status, value: 0 })
    }

    fn write_page(&mut self, frame: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let to = direct::at(FrameNumber(frame), 0, PAGE_SIZE as usize);
        let count = bytes.len().min(PAGE_SIZE as usize);
        // SAFETY: a whole frame of the view, of a grant that was shown to write for a domain that does not run; no Rust
        // object lives there.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count);
            core::ptr::write_bytes(to.add(count), 0, PAGE_SIZE as usize - count);
        }
        Ok(())
    }
}

/// Takes frames that stay, shown to write, as zeros.
fn take_shown(count: u64) -> Result<FrameGrant, Status> {
    let grant = kernel::take_frames(count, 0)?;
    direct::show(grant, true).map_err(|fault| fault.status)?;
    for frame in grant.first.0..grant.first.0 + count {
        let _ = ExosMaker.write_page(frame, &[]);
    }
    Ok(grant)
}

/// Memory for a session: frames that stay, and their words.
pub(super) fn take_session(page_count: u64) -> Result<(FrameGrant, &'static [AtomicU64]), Status> {
    let session = take_shown(page_count)?;
    let word_count = (page_count * PAGE_SIZE) as usize / 8;
    // SAFETY: frames that stay shown for good, in which everybody, the other side included, reads and writes whole
    // words.
    let words =
        unsafe { core::slice::from_raw_parts(direct::address_of(session.first) as *const AtomicU64, word_count) };
    Ok((session, words))
}

impl Place {
    /// Prepares a domain for a device function. The bell rings when there is something to look at. `None`: no image was
    /// packed.
    pub(crate) fn prepare(
        info: &BootInfo,
        device: CapSlot,
        own_bell: CapSlot,
        fault_after_ns: u64,
    ) -> Result<Option<Self>, Status> {
        // SAFETY: the bundle was shown at the start, and this part is never written.
        let bundle = unsafe {
            direct::bytes(FrameNumber(info.bundle_frame), info.bundle_frame_count as usize * PAGE_SIZE as usize)
        };
        let parts = bundle::parse(bundle).ok();
        let found = parts.as_ref().and_then(|parts| Some((parts.find(PART_DISK_DOMAIN)?, parts)));
        let Some((part, parts)) = found else { return Ok(None) };
        let bytes: &'static [u8] = bundle
            .get(part.offset_bytes as usize..)
            .and_then(|rest| rest.get(..parts.contents(part).len()))
            .unwrap_or_default();
        let Ok(header) = flat::parse(bytes) else { return Ok(None) };
        let (offset, count) = (part.offset_bytes / PAGE_SIZE, part.length_bytes.div_ceil(PAGE_SIZE));
        let image_slot = kernel::next_slot();
        let rights = Rights::READ | Rights::EXECUTE | Rights::GRANT;
        kernel::with_tables(|| call::cap_derive(SLOT_BUNDLE, image_slot, rights, offset, count))?;
        let image = Image { slot: image_slot, first_frame: info.bundle_frame + offset, header, bytes };
        let memory = take_shown(image.memory_page_count())?;
        let (session, words) = take_session(SHAPE.page_count() as u64)?;
        let bell = kernel::next_slot();
        kernel::with_tables(|| call::bell_create(bell, SLOT_NONE))?;
        let mut clients = [[SLOT_NONE; 2]; CLIENT_COUNT_MAX];
        clients[0] = [session.slot, own_bell];
        let slots = Slots {
            environment: kernel::next_slot(),
            tables: kernel::next_slot(),
            processor: kernel::next_slot(),
            memory: memory.slot,
            device,
            bell,
            watch: own_bell,
            clients,
        };
        let rights = u64::from(RIGHT_READ | RIGHT_WRITE | RIGHT_DISCARD);
        let mut plan = Plan { memory_frame: memory.first.0, key: kernel::now_ns(), fault_after_ns, ..Plan::default() };
        plan.clients[0] =
            PlanClient { session_page_count: SHAPE.page_count() as u64, tickets: 1000, ..PlanClient::default() };
        plan.clients[0].extents[0] = PlanExtent { first_sector: 0, sector_count: u64::MAX, rights };
        Ok(Some(Self { slots, image, plan, words }))
    }
}

impl DomainPlace for Place {
    fn words(&self) -> &[AtomicU64] {
        self.words
    }

    fn ring(&self) {
        let _ = call::bell_ring(self.slots.bell);
    }

    fn give(&self, number: usize, frame: FrameNumber) -> Option<(FrameNumber, u64)> {
        let slot = kernel::program_grant_of(frame)?;
        let target = buffer_slot(0, number as u32)?;
        let (first, count) = (call::cap_read(slot, 1).ok()?, call::cap_read(slot, 2).ok()?);
        kernel::with_tables(|| call::cap_grant(slot, self.slots.environment, target, Rights::DMA)).ok()?;
        Some((FrameNumber(first), count))
    }

    fn take_back(&self, grant: CapSlot) {
        // SAFETY: what goes is the domain's way to frames that no request names.
        let _ = kernel::with_tables(|| unsafe { call::cap_revoke(grant) });
    }

    fn end(&self) -> bool {
        make::end(&mut ExosMaker, &self.slots) == Ok(true)
    }

    fn start(&self) -> bool {
        let is_started = make::start(&mut ExosMaker, &self.image, &self.slots, &self.plan).is_ok();
        if !is_started {
            let _ = make::end(&mut ExosMaker, &self.slots);
        }
        is_started
    }

    fn is_stopped(&self) -> bool {
        make::is_stopped(&self.slots)
    }

    fn now_ns(&self) -> u64 {
        kernel::now_ns()
    }
}
