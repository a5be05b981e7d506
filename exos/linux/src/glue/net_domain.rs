//! The domain of the pod's network card.
//!
//! Neighbours: `domain` makes it, [`exos_linux::host::card_session`] is the card over one, `net_card` finds device
//! functions.

use aegis_abi::boot::BootInfo;
use aegis_abi::{CapSlot, Rights, Status};
use aegis_domains::net_plan::{DMA_RANGE_COUNT, DRIVER_PAGE_COUNT, Plan};
use aegis_hal::DmaRegion;
use aegis_link::drivers::{Fault, PART_NET_DOMAIN};
use exos_linux::host::card_session::SHAPE;

use super::domain::{Domain, DomainSession, Kind, session_bytes, take_session};

/// Prepares a domain for a device function, with the bytes of its session's frames. The bell rings when there is
/// something to look at. `None`: no image was packed.
pub(super) fn prepare(
    info: &BootInfo,
    device: CapSlot,
    own_bell: CapSlot,
    fault: Option<Fault>,
) -> Result<Option<(DomainSession, DmaRegion)>, Status> {
    let (session_page_count, word_page_count) = (SHAPE.page_count() as u64, SHAPE.word_page_count() as u64);
    let (session, words) = take_session(session_page_count, word_page_count)?;
    let kind = Kind {
        part: PART_NET_DOMAIN,
        driver_page_count: DRIVER_PAGE_COUNT,
        dma_range_count: DMA_RANGE_COUNT,
        device,
        own_bell,
        session_rights: Rights::DMA,
    };
    let domain = Domain::prepare(info, &kind, session.slot)?;
    Ok(domain.zip(session_bytes(session, word_page_count)).map(|(domain, bytes)| {
        let memory_frame = domain.memory_frame();
        let plan = Plan { memory_frame, fault: Fault::words(fault), session_page_count, word_page_count };
        (DomainSession::new(domain, &plan.to_words(), words), bytes)
    }))
}
