//! How a client reaches a service that is placed in the kernel: the operations of the one call that an extended kernel
//! has for all of its extension, those of cards behind those of disks. What a bell says elsewhere is said by a call.

/// An operation; the words behind it are in the order of its description, the rest is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCall {
    /// Card number `first`: starts it if nobody has yet. Value: its device function, counted from the first.
    Find = 16,
    /// Card `first`, frame `second`, `third` frames: a range that the caller has bound for the function, exactly, is
    /// the caller's session.
    Attach = 17,
    /// Card `first`: does everything that can be done now. Value: 1 if there may be more at once.
    Visit = 18,
    /// Card `first`: the same; then the function may interrupt when there is something. Value: 1 if there is already.
    Ask = 19,
    /// Card `first`: the caller's session ends.
    Detach = 20,
}

impl KernelCall {
    /// The operation of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        use KernelCall::{Ask, Attach, Detach, Find, Visit};
        [Find, Attach, Visit, Ask, Detach].into_iter().find(|call| *call as u64 == number)
    }
}
