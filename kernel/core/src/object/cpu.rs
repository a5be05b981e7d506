//! Physical processors as data: the virtual processor that has one, until when, and the payer. Slices are given in
//! `schedule.rs` above.

use crate::id::ProcessorId;

begins! {
    /// A physical processor.
    pub(crate) struct Cpu {
        /// The registers of `current` are in the trap frame.
        pub(crate) is_live: bool = false,
        /// The timer may have to be set anew.
        pub(crate) is_deadline_stale: bool = false,
        /// When the timer fires. Sooner than needed is harmless, and setting it is dear in a virtual machine.
        pub(crate) armed_ns: u64 = 0,
        pub(crate) current: Option<ProcessorId> = None,
        /// `current` when the kernel was entered.
        pub(crate) entered: Option<ProcessorId> = None,
        /// The virtual processor that had it before.
        pub(crate) last: Option<ProcessorId> = None,
        /// Takes the rest of the slice.
        pub(crate) hand_off: Option<ProcessorId> = None,
        /// Gave its slice up to a draw's winner, so is not in the next draw.
        pub(crate) gave_way: Option<ProcessorId> = None,
        /// Woke and won the next slice: of several processors another may have taken it meanwhile.
        pub(crate) winner: Option<ProcessorId> = None,
        /// No processor that wakes wins a slice here before then.
        pub(crate) wake_draw_ns: u64 = 0,
        /// A processor woke here that is drawn for then.
        pub(crate) has_woken: bool = false,
        /// The payer of the slice under way.
        pub(crate) payer: Option<ProcessorId> = None,
        /// The payer was given the rest of another's slice.
        pub(crate) is_given: bool = false,
        /// Since when nobody has been charged.
        pub(crate) uncharged_ns: u64 = 0,
        pub(crate) slice_end_ns: u64 = 0,
        /// The slice is over and its holder must be gone by then; 0: it is not over.
        pub(crate) limit_ns: u64 = 0,
        /// How often the limit was missed.
        pub(crate) missed_count: u32 = 0,
        /// Since when `current` has it.
        pub(crate) dispatched_ns: u64 = 0,
    }
}
