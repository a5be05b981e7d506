//! Extents of the machine's pool: sessions and memory for transfers that the manager has mapped, and three bells.
//!
//! The service is the manager's to end and to start. What a pod does about one that does not answer is to ring the bell
//! of doubt, whereupon the manager looks; and to begin its own session anew, which the service takes when it is there.
//!
//! Neighbours: `pods/src/pool.rs` makes all this, [`exos_linux::host::pooled_disk`] is the disk over it, `disk` opens
//! one at its first use.
#![allow(unsafe_code, reason = "memory that the manager has mapped")]

use core::sync::atomic::AtomicU64;

use aegis_abi::layout::PAGE_SIZE;
use aegis_abi::{CapSlot, FrameNumber};
use aegis_link::pods::{
    POOL_BASE, POOL_BUFFER_PAGE_COUNT, POOL_EXTENT_COUNT_MAX, POOL_SESSION_PAGE_COUNT, POOL_STRIDE, SLOT_POOL_BELL,
    SLOT_POOL_DOUBT, SLOT_POOL_SERVICE,
};
use aegis_proto::block::Client;
use aegis_rt::call;
use exos::mem::pinned::FramePiece;
use exos_linux::host::disk_session::{DiskPlace, SHAPE};
use exos_linux::host::pooled_disk::{TRANSFER_PAGE_COUNT, Transfers};
use exos_linux::host::session_place::SessionPlace;

use super::{direct, kernel};

const _: () = assert!(SHAPE.page_count() as u64 <= POOL_SESSION_PAGE_COUNT);
const _: () = assert!(TRANSFER_PAGE_COUNT <= POOL_BUFFER_PAGE_COUNT);

/// The bell that rings for all extents, if this pod has any.
pub(super) fn bell() -> Option<CapSlot> {
    call::cap_read(SLOT_POOL_BELL, 0).is_ok().then_some(SLOT_POOL_BELL)
}

/// An extent of the pool, by its number among the pod's.
pub(super) struct Extent {
    base: u64,
}

impl Extent {
    /// `None`: this pod has no such extent.
    pub(super) fn find(number: usize) -> Option<Self> {
        let is_there = number < POOL_EXTENT_COUNT_MAX && bell().is_some();
        is_there.then(|| Self { base: POOL_BASE + number as u64 * POOL_STRIDE })
    }

    /// Calls with each part of a piece that lies in one frame: the frame's bytes, the bytes for its transfer, how many.
    fn for_each_part(&self, offset_bytes: u64, piece: &FramePiece, mut act: impl FnMut(*mut u8, *mut u8, usize)) {
        let (mut done, length) = (0, u64::from(piece.length_bytes));
        let first = self.base + POOL_SESSION_PAGE_COUNT * PAGE_SIZE + offset_bytes;
        while done < length && offset_bytes + done < POOL_BUFFER_PAGE_COUNT * PAGE_SIZE {
            let at = u64::from(piece.offset_bytes) + done;
            let count = (PAGE_SIZE - at % PAGE_SIZE).min(length - done);
            let frame = FrameNumber(piece.first.0 + at / PAGE_SIZE);
            act(
                direct::at(frame, (at % PAGE_SIZE) as usize, count as usize),
                (first + done) as *mut u8,
                count as usize,
            );
            done += count;
        }
    }
}

impl SessionPlace for Extent {
    const IS_CALLED: bool = false;

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the manager has mapped a session there for as long as the pod is, in which everybody, the other side
        // included, reads and writes whole words; `find` has counted.
        unsafe {
            core::slice::from_raw_parts(
                self.base as *const AtomicU64,
                (POOL_SESSION_PAGE_COUNT * PAGE_SIZE) as usize / 8,
            )
        }
    }

    fn ring(&self) {
        let _ = call::bell_ring(SLOT_POOL_SERVICE);
    }

    fn listen(&self) -> bool {
        false
    }

    fn end(&self) -> bool {
        let _ = call::bell_ring(SLOT_POOL_DOUBT);
        // What is under way reaches its own memory for transfers alone, and no session is taken before that has ended.
        true
    }

    fn start(&self) -> bool {
        self.ring();
        true
    }

    fn is_stopped(&self) -> bool {
        self.is_given_up()
    }

    fn now_ns(&self) -> u64 {
        kernel::now_ns()
    }
}

impl DiskPlace for Extent {
    fn give(&self, number: usize, _: FrameNumber) -> Option<(FrameNumber, u64)> {
        // The manager has given it to the service.
        (number == 0).then_some((FrameNumber(0), POOL_BUFFER_PAGE_COUNT))
    }

    fn take_back(&self, _: CapSlot) {}

    // Neighbours with more tickets may come first for long.
    const TIMEOUT_FACTOR: u64 = 5;

    fn is_given_up(&self) -> bool {
        Client::is_given_up(self.words())
    }
}

impl Transfers for Extent {
    fn put(&self, offset_bytes: u64, piece: &FramePiece) {
        self.for_each_part(offset_bytes, piece, |program, transfer, count| {
            // SAFETY: bytes of a program's frame, which is the request's (DSK-3), and of memory for transfers in which
            // no Rust object lies; what of them changes meanwhile is the program's or the service's doing.
            unsafe { core::ptr::copy_nonoverlapping(program, transfer, count) };
        });
    }

    fn take(&self, offset_bytes: u64, piece: &FramePiece) {
        self.for_each_part(offset_bytes, piece, |program, transfer, count| {
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(transfer, program, count) };
        });
    }
}
