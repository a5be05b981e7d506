//! How a client reaches a service that is placed in the kernel: the operations of the one call that an extended kernel
//! has for all of its extension. The session is the same; what a bell says elsewhere is said by a call.

/// An operation; the words behind it are in the order of its description, the rest is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCall {
    /// Disk number `first`: starts it if nobody has yet. Value: its device function, counted from the first, and in the
    /// upper half which of the function's interrupts is the disk's.
    Find = 0,
    /// Disk `first`, frame `second`, `third` frames: a range that the caller has bound for the function, exactly, is
    /// number `fourth` from now on, which is what a buffer's slot names; one that has the number already is refused.
    Register = 1,
    /// Disk `first`, frame `second`, `third` frames: such a range is the caller's session.
    Attach = 2,
    /// Disk `first`: does everything that can be done now. Value: 1 if there may be more at once.
    Visit = 3,
    /// Disk `first`: the same; then the function may interrupt when there is something. Value: 1 if there is already.
    Ask = 4,
    /// Disk `first`: resets a disk that hangs. Value: resets so far.
    Watch = 5,
    /// Disk `first`: the caller's session and ranges end.
    Detach = 6,
}

impl KernelCall {
    /// The value of [`KernelCall::Find`].
    #[must_use]
    pub const fn found(function: u32, interrupt: u32) -> u64 {
        function as u64 | (interrupt as u64) << 32
    }

    /// The operation of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        use KernelCall::{Ask, Attach, Detach, Find, Register, Visit, Watch};
        [Find, Register, Attach, Visit, Ask, Watch, Detach].into_iter().find(|call| *call as u64 == number)
    }
}
