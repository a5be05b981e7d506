//! The domain of the pod's disk.
//!
//! Neighbours: `domain` makes it, [`exos_linux::host::disk_session`] is the disk over one, `disk` finds device
//! functions.

use aegis_abi::boot::BootInfo;
use aegis_abi::{CapSlot, FrameNumber, Rights, Status};
use aegis_domains::disk_plan::{DRIVER_PAGE_COUNT, Plan, PlanClient, PlanExtent};
use aegis_domains::layout::buffer_slot;
use aegis_link::drivers::PART_DISK_DOMAIN;
use aegis_proto::block::{RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE};
use aegis_rt::call;
use exos_linux::host::disk_session::{DiskPlace, SHAPE};

use super::domain::{Domain, DomainSession, Kind, take_session};
use super::kernel;

/// Prepares a domain for a device function. The bell rings when there is something to look at. `None`: no image was
/// packed.
pub(super) fn prepare(
    info: &BootInfo,
    device: CapSlot,
    own_bell: CapSlot,
    fault_after_ns: u64,
) -> Result<Option<DomainSession>, Status> {
    let page_count = SHAPE.page_count() as u64;
    let (session, words) = take_session(page_count, page_count)?;
    let kind = Kind {
        part: PART_DISK_DOMAIN,
        driver_page_count: DRIVER_PAGE_COUNT,
        device,
        own_bell,
        session_rights: Rights::empty(),
    };
    let Some(domain) = Domain::prepare(info, &kind, session.slot)? else { return Ok(None) };
    let rights = u64::from(RIGHT_READ | RIGHT_WRITE | RIGHT_DISCARD);
    let memory_frame = domain.memory_frame();
    let mut plan = Plan { memory_frame, key: kernel::now_ns(), fault_after_ns, ..Plan::default() };
    plan.clients[0] = PlanClient { session_page_count: page_count, tickets: 1000, ..PlanClient::default() };
    plan.clients[0].extents[0] = PlanExtent { first_sector: 0, sector_count: u64::MAX, rights };
    Ok(Some(DomainSession::new(domain, &plan.to_words(), words)))
}

impl DiskPlace for DomainSession {
    fn give(&self, number: usize, frame: FrameNumber) -> Option<(FrameNumber, u64)> {
        let slot = kernel::program_grant_of(frame)?;
        let target = buffer_slot(0, number as u32)?;
        let (first, count) = (call::cap_read(slot, 1).ok()?, call::cap_read(slot, 2).ok()?);
        kernel::with_tables(|| call::cap_grant(slot, self.environment(), target, Rights::DMA)).ok()?;
        Some((FrameNumber(first), count))
    }

    fn take_back(&self, grant: CapSlot) {
        // SAFETY: what goes is the domain's way to frames that no request names.
        let _ = kernel::with_tables(|| unsafe { call::cap_revoke(grant) });
    }
}
