//! What is set of an inode besides its contents, and how it is decided.

use super::vnode::{Protection, Timestamp};
use crate::error::Result;

/// What to set; `None` leaves it. The time of change is always set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits, at most 0o7777.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub accessed: Option<Timestamp>,
    /// Last change of contents.
    pub modified: Option<Timestamp>,
}

/// Says what is to be set of an inode with this owner and these permissions; `None`: nothing. It is called under the
/// inode's lock, so it looks at nothing else that has one.
pub type Decision<'a> = dyn FnMut(Protection) -> Result<Option<SetAttributes>> + 'a;
