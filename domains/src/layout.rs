//! Slots, addresses and pages on which a domain and its maker agree.

use aegis_abi::CapSlot;
use aegis_abi::layout::{BOOT_INFO_BASE, LIBOS_BASE};

/// Most clients of a domain.
pub const CLIENT_COUNT_MAX: usize = 9;
/// Slots of each client for buffers.
pub const BUFFER_SLOT_COUNT: u32 = 256;

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
pub const STACK_PAGE_COUNT: u64 = 128;
/// Frames of the save area: no upcall is taken.
pub const SAVE_AREA_PAGE_COUNT: u64 = 1;
/// Where the driver's memory is.
pub const DRIVER_BASE: u64 = LIBOS_BASE + (1 << 32);
/// Where registers are mapped.
pub const DEVICE_BASE: u64 = LIBOS_BASE + (128 << 30);
/// Where a page is whose bytes the processor moves.
pub const COPY_BASE: u64 = LIBOS_BASE + (3 << 32);
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
/// The driver's memory, of as many pages as the domain takes ([`crate::make::Image`]); behind it is what the image
/// writes.
pub const PAGE_DRIVER: u64 = PAGE_STACK + STACK_PAGE_COUNT;
/// What a domain does wrong, for tests, as its plan says it: the kernel stops it.
pub const MISDEED_FAULT: u64 = 1;
/// It does nothing any more.
pub const MISDEED_HANG: u64 = 2;
/// It writes what cannot be into the session of its client.
pub const MISDEED_LIE: u64 = 3;
/// Most words of a plan.
pub const PLAN_WORD_COUNT_MAX: usize = 512;
