//! Slots, addresses and the plan's page, on which a disk domain and its maker agree.

use aegis_abi::CapSlot;
use aegis_abi::layout::{BOOT_INFO_BASE, LIBOS_BASE};

/// Most clients of a domain.
pub const CLIENT_COUNT_MAX: usize = 4;
/// Slots of each client for buffers.
pub const BUFFER_SLOT_COUNT: u32 = 256;
/// Most extents of a client that the plan has room for.
pub const PLAN_EXTENT_COUNT_MAX: usize = 4;

/// The domain's slot: frames that its maker gave, to write and for the device.
pub const SLOT_MEMORY: CapSlot = CapSlot(5);
/// The domain's slot: the bell that clients ring, and its own alarm.
pub const SLOT_BELL: CapSlot = CapSlot(6);
/// The domain's slot: the frames of the image, not to write.
pub const SLOT_IMAGE: CapSlot = CapSlot(7);
/// The domain's slot: the device function.
pub const SLOT_DEVICE: CapSlot = CapSlot(16);
const SLOT_CLIENT_FIRST: u32 = 64;
const SLOT_BUFFER_FIRST: u32 = 256;

/// The domain's slots of a client: frames of the session, and the bell that wakes it.
#[must_use]
pub const fn client_slots(client: usize) -> [CapSlot; 2] {
    let first = SLOT_CLIENT_FIRST + 2 * client as u32;
    [CapSlot(first), CapSlot(first + 1)]
}

/// The domain's slot of a client's buffer; `None`: there is none of this number.
#[must_use]
pub const fn buffer_slot(client: usize, number: u32) -> Option<CapSlot> {
    if number >= BUFFER_SLOT_COUNT || client >= CLIENT_COUNT_MAX {
        return None;
    }
    Some(CapSlot(SLOT_BUFFER_FIRST + client as u32 * BUFFER_SLOT_COUNT + number))
}

/// Where the plan is, not to write.
pub const PLAN_BASE: u64 = BOOT_INFO_BASE;
/// Where the stack begins.
pub const STACK_BASE: u64 = LIBOS_BASE + (4 << 20);
/// Pages of the stack.
pub const STACK_PAGE_COUNT: u64 = 48;
/// Frames of the save area: no upcall is taken.
pub const SAVE_AREA_PAGE_COUNT: u64 = 1;
/// Where the driver's memory is.
pub const DRIVER_BASE: u64 = LIBOS_BASE + (1 << 32);
/// Where registers are mapped.
pub const DEVICE_BASE: u64 = LIBOS_BASE + (128 << 30);
const SESSION_BASE: u64 = LIBOS_BASE + (2 << 32);

/// Where the session of a client is.
#[must_use]
pub const fn session_base(client: usize) -> u64 {
    SESSION_BASE + ((client as u64) << 24)
}

/// Places in the frames that the maker gave, in pages.
pub const PAGE_CONTROL: u64 = 0;
/// The save area.
pub const PAGE_SAVE_AREA: u64 = 1;
/// The plan.
pub const PAGE_PLAN: u64 = PAGE_SAVE_AREA + SAVE_AREA_PAGE_COUNT;
/// The stack.
pub const PAGE_STACK: u64 = PAGE_PLAN + 1;
/// The driver's memory.
pub const PAGE_DRIVER: u64 = PAGE_STACK + STACK_PAGE_COUNT;
/// Pages of the driver's memory.
pub const DRIVER_PAGE_COUNT: u64 = 160;
/// What the image writes.
pub const PAGE_DATA: u64 = PAGE_DRIVER + DRIVER_PAGE_COUNT;

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
