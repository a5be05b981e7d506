//! A client's session with a disk service: requests one way, completions the other, in memory of the client.
//!
//! - BQ-1 Requests complete in any order. A flush covers every write that had *completed* when the flush was submitted,
//!   and no other. There are no barriers: order is the client's affair.
//! - BQ-2 A slot, the list that it names and the memory of a write stay as they are until the request's completion was
//!   consumed. So a service that takes another's place finds in its clients' memory what was under way, and begins it
//!   again: from the oldest slot whose completion was not consumed, without those that the client marked as done.
//!
//! Memory is registered, not sent: the client gives the service a capability, says in the table of buffers which, and
//! then names (buffer, byte). [`Session`] is the service's side, [`Client`] the other; neither believes the other.

mod client;
mod kernel;
mod session;
mod words;

pub use crate::state::State;
pub use client::{Client, SubmitError};
pub use kernel::{KernelCall, Visits};
pub use session::{Offence, Session};
pub use words::{
    BUFFER_COUNT_MAX, Buffer, Completion, DEPTH_MAX, Description, EXTENT_COUNT_MAX, Extent, INDIRECT_PAGE_COUNT_MAX,
    INLINE_SEGMENT_COUNT, Limit, Operation, Outcome, RIGHT_DISCARD, RIGHT_READ, RIGHT_WRITE, Request,
    SEGMENT_COUNT_MAX, Segment, Segments, Shape,
};
