//! Environments as data: what one owns and may use. How they stop and end is in `environment.rs` above, what is asked
//! back of them in `reclaim.rs`, what moves between their shares of the tables in `share.rs`.

use core::num::NonZeroU32;

use aegis_abi::call::StopReason;
use aegis_abi::counter::COUNTER_COUNT;
use aegis_abi::share::{TABLE_COUNT, Table};
use aegis_abi::types::{FrameNumber, Rights, Status};
use aegis_lottery::{CurrencyId, TicketId};

use super::capability::{CapRef, TABLE_FRAME_COUNT_MAX};
use super::frame::{FrameKind, FrameTable};
use crate::id::{
    BELL_COUNT_MAX, BellId, DMA_BINDING_COUNT_MAX, ENVIRONMENT_COUNT_MAX, EnvironmentId, GATE_COUNT_MAX, Named,
    PROCESSOR_COUNT_MAX, SPACE_COUNT_MAX,
};
use crate::machine::StopReport;

/// Rights of the capability for a new environment.
pub(crate) const ENVIRONMENT_RIGHTS: Rights =
    Rights::READ.union(Rights::CONTROL).union(Rights::RECEIVE).union(Rights::GRANT);

/// What freeing one of its frames by itself costs of an entry's budget: some 80 instructions.
pub(crate) const FREE_COST: usize = 24;

/// Entries of each table, in the order of [`Table`].
pub(crate) type Counts = [u16; TABLE_COUNT];
/// All entries, but that of the first environment itself.
pub(crate) const WHOLE: Counts = [
    ENVIRONMENT_COUNT_MAX as u16 - 1,
    SPACE_COUNT_MAX as u16,
    PROCESSOR_COUNT_MAX as u16,
    BELL_COUNT_MAX as u16,
    GATE_COUNT_MAX as u16,
    DMA_BINDING_COUNT_MAX as u16,
];

begins! {
    /// What was asked of an environment.
    #[derive(Clone, Copy)]
    pub(crate) struct Reclaim {
        /// When the kernel takes what is missing; 0: nothing was asked.
        pub(crate) deadline_ns: u64 = 0,
        /// First and number of the frames in hand.
        pub(crate) in_hand: (u64, u64) = (0, 0),
        /// From where their mappings are still to be broken.
        pub(crate) cursor: u64 = 0,
        /// Slots before this one had nothing to take.
        pub(crate) slot: u32 = 0,
        /// Nothing is left that is not pinned.
        pub(crate) takes_pinned: bool = false,
    }
}

begins! {
    /// An environment.
    pub(crate) struct Environment {
        /// 0: the table entry is free. Also the owner of its frames.
        pub(crate) serial: u32 = 0,
        pub(crate) parent: Option<EnvironmentId> = None,
        pub(crate) root: FrameNumber = FrameNumber(0),
        /// Frames of the capability table, by number.
        pub(crate) table: [Option<NonZeroU32>; TABLE_FRAME_COUNT_MAX] = [None; TABLE_FRAME_COUNT_MAX],
        /// First of the donated frames that are not in use.
        donated_head: u32 = 0,
        pub(crate) donated_count: u64 = 0,
        pub(crate) frames_owned: u64 = 0,
        pub(crate) frame_quota: u64 = 0,
        /// Its reason is `Running` while it runs.
        pub(crate) stop: StopReport = StopReport::RUNNING,
        /// Rung when it stops, and when its payer has ended. With the capabilities for the environment and for the
        /// bell.
        pub(crate) watch: Option<(Named<BellId>, [CapRef; 2])> = None,
        pub(crate) is_ending: bool = false,
        /// While ending: its address spaces are gone.
        pub(crate) has_no_space: bool = false,
        /// While ending: device functions, in order, that it does not drive any more.
        pub(crate) devices_released: usize = 0,
        /// Has ever mapped a device's region.
        pub(crate) maps_devices: bool = false,
        pub(crate) counters: [u64; COUNTER_COUNT] = [0; COUNTER_COUNT],
        /// Time that processors used which are unmade.
        pub(crate) time_used_ns: u64 = 0,
        /// Time that whichever of its processors wins the next draw is charged for.
        pub(crate) debt_ns: u64 = 0,
        /// What it missed before that and has not won by.
        pub(crate) missed_ns: u64 = 0,
        /// `State::paid_ns` when a processor of it, or of an environment that it pays for, last took part in a draw.
        pub(crate) present_ns: u64 = 0,
        /// Entries of each table that it may use, what it passed on not counted.
        pub(crate) share: Counts = [0; TABLE_COUNT],
        /// Entries that it uses.
        pub(crate) used: Counts = [0; TABLE_COUNT],
        pub(crate) reclaim: Reclaim = Reclaim::EMPTY,
        /// What its processors and the environments that it makes are funded in; the base stands for none.
        pub(crate) currency: CurrencyId = CurrencyId::BASE,
        pub(crate) ticket: Option<TicketId> = None,
        /// Whose currency the ticket is of; the first environment's is of the base.
        pub(crate) payer: Option<EnvironmentId> = None,
    }
}

impl Environment {
    /// Adds a frame that is its own already to what its tables may use.
    #[inline(always)]
    pub(crate) fn donate(&mut self, frame: FrameNumber, frames: &mut FrameTable<'_>) {
        frames.set(frame, FrameKind::Donated, self.serial);
        frames.set_next(frame, self.donated_head);
        // Frame numbers fit into 32 bits; frame 0 is never given to anybody.
        (self.donated_head, self.donated_count) = (frame.0 as u32, self.donated_count + 1);
    }

    /// The first of the donated frames that are not in use; it is in no list any more.
    #[inline(always)]
    pub(crate) fn pop_donated(&mut self, frames: &FrameTable<'_>) -> Option<FrameNumber> {
        self.donated_count = self.donated_count.checked_sub(1)?;
        let frame = FrameNumber(u64::from(self.donated_head));
        self.donated_head = frames.next(frame);
        Some(frame)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.reason != StopReason::Running
    }

    /// Frames that it owns and may not any more.
    pub(crate) fn excess(&self) -> u64 {
        self.frames_owned.saturating_sub(self.frame_quota)
    }

    /// Frames that it may still take.
    pub(crate) fn frames_left(&self) -> u64 {
        self.frame_quota.saturating_sub(self.frames_owned)
    }
}

impl Environment {
    /// Entries of a table that it may still use.
    pub(crate) fn entries_left(&self, table: Table) -> u16 {
        self.share[table as usize].saturating_sub(self.used[table as usize])
    }

    /// Refuses if it has used its share up.
    pub(crate) fn check_share(&self, table: Table) -> Result<(), Status> {
        if self.entries_left(table) == 0 { Err(Status::TableFull) } else { Ok(()) }
    }

    /// Counts an entry that it uses, or does not use any more.
    pub(crate) fn count_entry(&mut self, table: Table, is_used: bool) {
        let used = &mut self.used[table as usize];
        debug_assert!(is_used || *used != 0, "every entry was counted");
        *used = if is_used { *used + 1 } else { *used - 1 };
    }
}
