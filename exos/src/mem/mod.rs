//! Memory policy: the pod's frames, address spaces, and what a page fault means.
//!
//! The kernel names frames and checks each binding; everything else about a program's memory is
//! decided here:
//!
//! - [`frames`] takes frames from the kernel in chunks and counts the uses of each;
//! - [`space`] is an address space: areas ([`area`], `area_list`) and known pages (`page_map`), with `mmap`,
//!   `munmap`, `brk`; [`protect`], [`remap`], [`advise`] are the other calls, [`fork`] clones by
//!   copy on write, [`user`] reads and writes bytes;
//! - [`fault`] resolves faults, many pages at a time where that pays ([`window`]), and `first_faults` those that come
//!   again; `large` is for large pages, `kept` has the spaces between two processes, and `deferred_unmap` unmaps
//!   without the lock;
//! - [`shared`] is what all address spaces of a pod have in common;
//! - [`native`] is what a program may decide by itself, through the native interface;
//! - [`rewrite`] patches system-call sites (`crate::rewrite` decides);
//! - [`source`] is the seam to files.
//!
//! What an address space is made of stands below [`space`], in files that do not know it; what it does with that stands
//! above, as blocks of methods: in the files of the calls, and in the files `in_space` below those of the parts.
//!
//! Semantics and error codes are Linux 6.1's. Invariants: an area never overlaps another; every
//! known page lies in an area and holds one reference to its frame; a frame is released only after
//! the kernel has removed the mapping that went with the reference.

pub mod advise;
pub mod area;
mod area_list;
mod area_runs;
mod binder;
mod deferred_unmap;
pub mod fault;
pub(crate) mod first_faults;
pub mod fork;
pub mod frames;
pub mod handlers;
mod kept;
mod large;
pub mod native;
mod page_map;
pub mod patched_text;
mod pieces;
pub mod pinned;
pub mod protect;
pub mod remap;
mod rewrite;
pub mod ring_memory;
pub mod shared;
pub mod source;
pub mod space;
pub mod user;
pub mod watched;
pub mod window;

#[cfg(test)]
mod error_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod kept_tests;
#[cfg(test)]
mod large_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod native_tests;
#[cfg(test)]
mod rewrite_tests;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod watched_tests;

pub use advise::{Advice, SyncMode};
pub use area::{Access, Area, AreaFlags, AreaLabel, Protection};
pub use deferred_unmap::DeferredUnmap;
pub use fault::{FaultOutcome, SegvReason};
pub use frames::{FixedRun, FramePool, FrameRef, FrameStatistics};
pub use handlers::Handler;
pub use native::Change;
pub use page_map::census::{PresentPage, PresentPages, SHARE_SHIFT};
pub use protect::ProtectReach;
pub use remap::{Movement, RemapRequest};
pub use rewrite::TRAMPOLINE_ROOM_BYTES;
pub use shared::SharedState;
pub use source::{
    FileIdentity, FilePage, FixedPages, PageError, PageIntent, PageSource, SharedMemory, Wait, WantedPage,
};
pub use space::{AddressSpace, FaultCounts, MapBacking, MapRequest, Placement, SpaceLimits, SpaceTotals};
pub use watched::Watch;
