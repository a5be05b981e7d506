//! Sockets: the calls are there, address families are not yet. That is what Linux without any family answers, so C
//! libraries that ask for a name service or a log go on without one.

use exos::error::{Errno, Result};
use syscalls::Sysno;

use crate::context::{Arguments, Context};
use crate::table::{Entry, partial};

/// This family's part of the table.
pub const ENTRIES: &[Entry] =
    &[partial(Sysno::socket, "no address family", socket), partial(Sysno::socketpair, "no address family", socketpair)];

/// `SOCK_CLOEXEC | SOCK_NONBLOCK`.
const TYPE_FLAGS: u64 = 0o2_000_000 | 0o4000;
/// `SOCK_STREAM` to `SOCK_PACKET`, the last type that is defined.
const TYPE_MAX: u64 = 10;

/// `socket(2)`.
pub fn socket(_: &mut Context<'_>, [_, kind, ..]: Arguments) -> Result<u64> {
    let base = kind & 0xf;
    if kind & !(0xf | TYPE_FLAGS) != 0 || base > TYPE_MAX {
        return Err(Errno::EINVAL);
    }
    Err(Errno::EAFNOSUPPORT)
}

/// `socketpair(2)`.
pub fn socketpair(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    socket(context, arguments)
}
