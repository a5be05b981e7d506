//! What the table of system calls is made of. Each family lists its calls as entries; [`crate::entry::table`], above
//! all families, lists these.

use syscalls::Sysno;

use crate::call::context::Handler;

/// How much of a call is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As on Linux.
    Full,
    /// As on Linux but for this.
    Partial(&'static str),
}

/// One call.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its number.
    pub number: Sysno,
    /// How much of it is there.
    pub state: State,
    /// What does it.
    pub handler: Handler,
}

/// A call that is there whole.
pub(crate) const fn full(number: Sysno, handler: Handler) -> Entry {
    Entry { number, state: State::Full, handler }
}

/// A call of which something is missing.
pub(crate) const fn partial(number: Sysno, missing: &'static str, handler: Handler) -> Entry {
    Entry { number, state: State::Partial(missing), handler }
}
