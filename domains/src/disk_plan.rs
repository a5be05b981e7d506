//! What a disk domain is told by its maker.

use crate::layout::{CLIENT_COUNT_MAX, PLAN_WORD_COUNT_MAX};

/// Most extents of a client that the plan has room for.
pub const PLAN_EXTENT_COUNT_MAX: usize = 4;
/// Pages of the driver's memory.
pub const DRIVER_PAGE_COUNT: u64 = 160;

/// An extent of the plan. A size of [`u64::MAX`] is that of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanExtent {
    /// First sector on the disk.
    pub first_sector: u64,
    /// Sectors.
    pub sector_count: u64,
    /// `aegis_proto::block::RIGHT_` bits.
    pub rights: u64,
}

/// A client of the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanClient {
    /// Pages of its session.
    pub session_page_count: u64,
    /// Its tickets.
    pub tickets: u64,
    /// Its extents, those without sectors aside.
    pub extents: [PlanExtent; PLAN_EXTENT_COUNT_MAX],
}

/// What a domain is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// First frame of what the maker gave.
    pub memory_frame: u64,
    /// Key of the draws.
    pub key: u64,
    /// For tests: it faults after so long; 0: it does not.
    pub fault_after_ns: u64,
    /// Clients, those without a session aside.
    pub clients: [PlanClient; CLIENT_COUNT_MAX],
}

const WORD_COUNT_OF_CLIENT: usize = 2 + 3 * PLAN_EXTENT_COUNT_MAX;
/// Words of a plan.
pub const PLAN_WORD_COUNT: usize = 4 + CLIENT_COUNT_MAX * WORD_COUNT_OF_CLIENT;
const _: () = assert!(PLAN_WORD_COUNT <= PLAN_WORD_COUNT_MAX);
const MAGIC: u64 = u64::from_le_bytes(*b"AEGISDSK");

impl Plan {
    /// The plan's page.
    #[must_use]
    pub fn to_words(&self) -> [u64; PLAN_WORD_COUNT] {
        let mut words = [0; PLAN_WORD_COUNT];
        words[..4].copy_from_slice(&[MAGIC, self.memory_frame, self.key, self.fault_after_ns]);
        for (client, words) in self.clients.iter().zip(words[4..].chunks_exact_mut(WORD_COUNT_OF_CLIENT)) {
            words[..2].copy_from_slice(&[client.session_page_count, client.tickets]);
            for (extent, words) in client.extents.iter().zip(words[2..].chunks_exact_mut(3)) {
                words.copy_from_slice(&[extent.first_sector, extent.sector_count, extent.rights]);
            }
        }
        words
    }

    /// What a page says; `None`: it is no plan.
    #[must_use]
    pub fn from_words(words: &[u64; PLAN_WORD_COUNT]) -> Option<Self> {
        let mut plan = Self { memory_frame: words[1], key: words[2], fault_after_ns: words[3], ..Self::default() };
        for (client, words) in plan.clients.iter_mut().zip(words[4..].chunks_exact(WORD_COUNT_OF_CLIENT)) {
            (client.session_page_count, client.tickets) = (words[0], words[1]);
            for (extent, words) in client.extents.iter_mut().zip(words[2..].chunks_exact(3)) {
                *extent = PlanExtent { first_sector: words[0], sector_count: words[1], rights: words[2] };
            }
        }
        (words[0] == MAGIC).then_some(plan)
    }
}
