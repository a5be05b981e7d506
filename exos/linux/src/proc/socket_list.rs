//! Which sockets there are: those that programs have descriptors of, each once, for `/proc/net` and netlink.
//!
//! No list of all sockets is kept, as making and ending one would pay for it; who asks for them pays, by a look at
//! every descriptor. A socket that is on the way to a program (in a message, or not accepted yet) is not seen.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use exos::error::Result;
use exos::net::{AnySocket, SocketFile};
use exos::{preempt, reserve};

use crate::task::listing::Member;

/// All sockets that these processes have descriptors of, by the number of their inode.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn sockets(members: &[Member]) -> Result<Vec<AnySocket>> {
    let mut found: Vec<AnySocket> = Vec::new();
    let mut numbers = BTreeSet::new();
    for member in members {
        preempt::offer();
        let table = member.process.files.table();
        for number in table.numbers() {
            let Ok(description) = table.get(number) else { continue };
            let Some(file) = description.extension::<SocketFile>() else { continue };
            // A set of numbers cannot be refused memory; it grows no faster than the list, which can.
            reserve::reserve(&mut found, 1)?;
            if numbers.insert(file.socket().number()) {
                found.push(file.socket().clone());
            }
        }
    }
    found.sort_by_key(AnySocket::number);
    Ok(found)
}
