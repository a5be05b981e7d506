//! What a disk domain is told by its maker.

use crate::layout::{CLIENT_COUNT_MAX, PLAN_WORD_COUNT_MAX};

/// Most extents of a client that the plan has room for.
pub const PLAN_EXTENT_COUNT_MAX: usize = 4;
/// Ranges that its disk may reach: one of its own and one for each buffer.
pub const DMA_RANGE_COUNT: u32 = 128;
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
    /// For tests: what it does wrong ([`crate::layout::MISDEED_FAULT`] and its like; 0: nothing), and after how many
    /// nanoseconds.
    pub fault: [u64; 2],
    /// The channel whose first disk it is, of an IDE controller; a virtio disk is a function's only one.
    pub channel: u64,
    /// Clients offer their sessions by themselves, whenever they begin: those that there are at the start are not taken
    /// as they stand.
    pub clients_offer: bool,
    /// Clients, those without a session aside.
    pub clients: [PlanClient; CLIENT_COUNT_MAX],
}

const FIRST_CLIENT_WORD: usize = 7;
const WORD_COUNT_OF_CLIENT: usize = 2 + 3 * PLAN_EXTENT_COUNT_MAX;
/// Words of a plan.
pub const PLAN_WORD_COUNT: usize = FIRST_CLIENT_WORD + CLIENT_COUNT_MAX * WORD_COUNT_OF_CLIENT;
const _: () = assert!(PLAN_WORD_COUNT <= PLAN_WORD_COUNT_MAX);
const MAGIC: u64 = u64::from_le_bytes(*b"AEGISDSK");

impl Plan {
    /// The plan's page.
    #[must_use]
    pub fn to_words(&self) -> [u64; PLAN_WORD_COUNT] {
        let mut words = [0; PLAN_WORD_COUNT];
        let offers = u64::from(self.clients_offer);
        let first = [MAGIC, self.memory_frame, self.key, self.fault[0], self.fault[1], self.channel, offers];
        words[..FIRST_CLIENT_WORD].copy_from_slice(&first);
        for (client, words) in
            self.clients.iter().zip(words[FIRST_CLIENT_WORD..].chunks_exact_mut(WORD_COUNT_OF_CLIENT))
        {
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
        let [magic, memory_frame, key, kind, after_ns, channel, offers] = *words.first_chunk::<FIRST_CLIENT_WORD>()?;
        let fault = [kind, after_ns];
        let mut plan = Self { memory_frame, key, fault, channel, clients_offer: offers != 0, ..Self::default() };
        for (client, words) in
            plan.clients.iter_mut().zip(words[FIRST_CLIENT_WORD..].chunks_exact(WORD_COUNT_OF_CLIENT))
        {
            (client.session_page_count, client.tickets) = (words[0], words[1]);
            for (extent, words) in client.extents.iter_mut().zip(words[2..].chunks_exact(3)) {
                *extent = PlanExtent { first_sector: words[0], sector_count: words[1], rights: words[2] };
            }
        }
        (magic == MAGIC).then_some(plan)
    }
}
