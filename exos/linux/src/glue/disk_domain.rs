//! The domain of the pod's disk.
//!
//! Neighbours: `domain` makes it, [`exos_linux::host::disk_session`] is the disk over one, `disk` finds device
//! functions.

use core::sync::atomic::AtomicU64;

use aegis_abi::boot::BootInfo;
use aegis_abi::{CapSlot, FrameNumber, Rights, Status};
use aegis_domains::disk_plan::{DMA_RANGE_COUNT, DRIVER_PAGE_COUNT, Plan, PlanClient, PlanExtent};
use aegis_domains::layout::buffer_slot;
use aegis_link::drivers::{Drivers, Fault, Model, PART_DISK_DOMAIN};
use aegis_proto::block::{RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE};
use aegis_rt::call;
use exos_linux::host::disk_session::{DiskPlace, SHAPE};
use exos_linux::host::session_place::SessionPlace;

use super::domain::{Domain, DomainSession, Kind, take_session};
use super::kernel;

/// Prepares a domain for a device function. The bell rings when there is something to look at. `None`: no image was
/// packed.
pub(super) fn prepare(
    info: &BootInfo,
    device: CapSlot,
    own_bell: CapSlot,
    drivers: &Drivers,
) -> Result<Option<DiskDomain>, Status> {
    let page_count = SHAPE.page_count() as u64;
    let (session, words) = take_session(page_count, page_count)?;
    let kind = Kind {
        part: PART_DISK_DOMAIN,
        driver_page_count: DRIVER_PAGE_COUNT,
        dma_range_count: DMA_RANGE_COUNT,
        device,
        own_bell,
        session_rights: Rights::empty(),
    };
    let Some(domain) = Domain::prepare(info, &kind, session.slot)? else { return Ok(None) };
    let rights = u64::from(RIGHT_READ | RIGHT_WRITE | RIGHT_DISCARD);
    let memory_frame = domain.memory_frame();
    let fault = Fault::words(drivers.disk_fault);
    let mut plan = Plan { memory_frame, key: kernel::now_ns(), fault, ..Plan::default() };
    plan.clients[0] = PlanClient { session_page_count: page_count, tickets: 1000, ..PlanClient::default() };
    plan.clients[0].extents[0] = PlanExtent { first_sector: 0, sector_count: u64::MAX, rights };
    // An IDE disk may not reach a buffer; the domain moves its bytes then.
    let buffer_rights = match drivers.disk.model {
        Model::Ide => Rights::DMA | Rights::READ | Rights::WRITE,
        _ => Rights::DMA,
    };
    Ok(Some(DiskDomain { session: DomainSession::new(domain, &plan.to_words(), words), buffer_rights }))
}

/// The domain of a disk, with what it may do with a program's memory.
pub(super) struct DiskDomain {
    session: DomainSession,
    buffer_rights: Rights,
}

impl SessionPlace for DiskDomain {
    const IS_CALLED: bool = DomainSession::IS_CALLED;

    fn words(&self) -> &[AtomicU64] {
        self.session.words()
    }
    fn ring(&self) {
        self.session.ring();
    }
    fn listen(&self) -> bool {
        self.session.listen()
    }
    fn end(&self) -> bool {
        self.session.end()
    }
    fn start(&self) -> bool {
        self.session.start()
    }
    fn is_stopped(&self) -> bool {
        self.session.is_stopped()
    }
    fn now_ns(&self) -> u64 {
        self.session.now_ns()
    }
}

impl DiskPlace for DiskDomain {
    fn give(&self, number: usize, frame: FrameNumber) -> Option<(FrameNumber, u64)> {
        let slot = kernel::program_grant_of(frame)?;
        let target = buffer_slot(0, number as u32)?;
        let (first, count) = (call::cap_read(slot, 1).ok()?, call::cap_read(slot, 2).ok()?);
        kernel::with_tables(|| call::cap_grant(slot, self.session.environment(), target, self.buffer_rights)).ok()?;
        Some((FrameNumber(first), count))
    }

    const TIMEOUT_FACTOR: u64 = 1;

    fn is_given_up(&self) -> bool {
        false
    }

    fn take_back(&self, grant: CapSlot) {
        // SAFETY: what goes is the domain's way to frames that no request names.
        let _ = kernel::with_tables(|| unsafe { call::cap_revoke(grant) });
    }
}
