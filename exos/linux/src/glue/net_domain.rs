//! The domain of the pod's network card.
//!
//! Neighbours: `domain` makes it, [`exos_linux::host::card_session`] is the card over one, `net_card` finds device
//! functions.

use core::sync::atomic::AtomicU64;

use aegis_abi::boot::BootInfo;
use aegis_abi::{CapSlot, Rights, Status};
use aegis_domains::net_plan::{DRIVER_PAGE_COUNT, Plan};
use aegis_hal::DmaRegion;
use aegis_link::drivers::PART_NET_DOMAIN;
use exos_linux::host::card_session::{CardPlace, SHAPE};

use super::domain::{Domain, Kind, session_bytes, take_session};
use super::kernel;

/// Where a domain of this pod is made.
pub(crate) struct Place {
    domain: Domain,
    plan: Plan,
    words: &'static [AtomicU64],
}

impl Place {
    /// Prepares a domain for a device function, with the bytes of its session's frames. The bell rings when there is
    /// something to look at. `None`: no image was packed.
    pub(crate) fn prepare(
        info: &BootInfo,
        device: CapSlot,
        own_bell: CapSlot,
        fault_after_ns: u64,
    ) -> Result<Option<(Self, DmaRegion)>, Status> {
        let (session_page_count, word_page_count) = (SHAPE.page_count() as u64, SHAPE.word_page_count() as u64);
        let (session, words) = take_session(session_page_count, word_page_count)?;
        let kind = Kind {
            part: PART_NET_DOMAIN,
            driver_page_count: DRIVER_PAGE_COUNT,
            device,
            own_bell,
            session_rights: Rights::DMA,
        };
        let domain = Domain::prepare(info, &kind, session.slot)?;
        let made = domain.zip(session_bytes(session, word_page_count)).map(|(domain, bytes)| {
            let plan =
                Plan { memory_frame: domain.memory_frame(), fault_after_ns, session_page_count, word_page_count };
            (Self { domain, plan, words }, bytes)
        });
        Ok(made)
    }
}

impl CardPlace for Place {
    const IS_CALLED: bool = false;

    fn words(&self) -> &[AtomicU64] {
        self.words
    }

    fn ring(&self) {
        self.domain.ring();
    }

    fn listen(&self) -> bool {
        false
    }

    fn end(&self) -> bool {
        self.domain.end()
    }

    fn start(&self) -> bool {
        self.domain.start(&self.plan.to_words())
    }

    fn is_stopped(&self) -> bool {
        self.domain.is_stopped()
    }

    fn now_ns(&self) -> u64 {
        kernel::now_ns()
    }
}
