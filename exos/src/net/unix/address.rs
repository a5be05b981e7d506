//! Names of sockets, and the socket of each.
//!
//! A name in the file system is an inode: the table holds its number, and the socket that has it keeps the inode
//! alive, so that no other file can get that number meanwhile. A path that leads to an inode without an entry here is
//! a name that a closed socket left behind: nobody listens (`ECONNREFUSED`).

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use super::SocketKind;
use super::socket::Socket;
use crate::error::{Errno, Result};
use crate::fs::metadata::DeviceNumber;
use crate::fs::vnode::InodeRef;
use crate::sync::Mutex;

/// Longest name of either kind (`sun_path`).
pub const NAME_BYTES_MAX: usize = 108;
/// Names that `autobind` chooses from: five hexadecimal digits.
const AUTOMATIC_COUNT: u32 = 1 << 20;

/// A socket's name as programs give and get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A path, without its NUL, as it was given to `bind`.
    Path(Vec<u8>),
    /// A name that is in no file system.
    Abstract(Vec<u8>),
}

/// What a name is found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The inode that a path leads to.
    Inode(DeviceNumber, u64),
    /// The name itself, which sockets of each kind have for themselves.
    Abstract(SocketKind, Vec<u8>),
}

impl Key {
    pub(super) fn of_inode(inode: &InodeRef) -> Self {
        let metadata = inode.metadata();
        Self::Inode(metadata.device, metadata.inode_number)
    }
}

/// The socket of each name.
#[derive(Default)]
pub(super) struct Names {
    table: Mutex<BTreeMap<Key, Weak<Socket>>>,
    next_automatic: AtomicU32,
}

impl Names {
    /// The socket of that name.
    pub(super) fn find(&self, key: &Key) -> Option<Arc<Socket>> {
        self.table.lock().get(key).and_then(Weak::upgrade)
    }

    /// Gives a name to a socket.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub(super) fn add(&self, key: Key, socket: &Arc<Socket>) -> Result<()> {
        let mut table = self.table.lock();
        if table.get(&key).is_some_and(|holder| holder.strong_count() > 0) {
            return Err(Errno::EADDRINUSE);
        }
        table.insert(key, Arc::downgrade(socket));
        Ok(())
    }

    /// Gives a name that nobody has.
    ///
    /// # Errors
    /// `ENOSPC`: all are taken.
    pub(super) fn add_automatic(&self, socket: &Arc<Socket>) -> Result<Vec<u8>> {
        for _ in 0..AUTOMATIC_COUNT {
            let number = self.next_automatic.fetch_add(1, Ordering::Relaxed) % AUTOMATIC_COUNT;
            let name = alloc::format!("{number:05x}").into_bytes();
            if self.add(Key::Abstract(socket.kind(), name.clone()), socket).is_ok() {
                return Ok(name);
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Takes a name away.
    pub(super) fn remove(&self, key: &Key) {
        self.table.lock().remove(key);
    }
}
