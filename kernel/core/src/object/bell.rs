//! Bells as data: `bell.rs` above rings them.

use super::capability::CapRef;
use crate::id::{EnvironmentId, Named, ProcessorId};

/// The virtual processor that a bell makes an upcall at, with the capability for it.
pub(crate) type Called = Option<(Named<ProcessorId>, CapRef)>;

begins! {
    /// A bell.
    pub(crate) struct Bell {
        /// 0: the table entry is free.
        pub(crate) serial: u64 = 0,
        pub(crate) owner: Option<EnvironmentId> = None,
        pub(crate) count: u64 = 0,
        pub(crate) processor: Called = None,
        /// Terms of sleepers that wait for it.
        pub(crate) waiter_count: u32 = 0,
        /// When it is rung by the clock; 0: not.
        pub(crate) deadline_ns: u64 = 0,
        /// The capability with which that was said.
        pub(crate) deadline_with: Option<CapRef> = None,
    }
}
