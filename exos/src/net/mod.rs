//! Sockets, as policy of the library OS.
//!
//! - [`unix`]: local sockets; [`inet`]: TCP and UDP, so far over the loopback interface alone;
//! - [`packet`]: frames as they are (packet(7));
//! - [`file`]: the file that a descriptor of a socket is for, whichever family it has;
//! - [`view`]: the network as programs look at it; [`netlink`]: how they ask for it (netlink(7));
//! - [`filter`]: which packets a socket takes, as its program says (`SO_ATTACH_FILTER`);
//! - [`options`]: what all of them keep for `getsockopt`; [`buffer_sizes`]: how much they hold.

pub mod buffer_sizes;
pub mod file;
pub mod filter;
pub mod inet;
pub mod netlink;
pub mod options;
pub mod packet;
pub mod unix;
pub mod view;

pub use file::{AnySocket, SocketFile};

/// Which half of a connection to end (`shutdown`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// `SHUT_RD`.
    pub receiving: bool,
    /// `SHUT_WR`.
    pub sending: bool,
}
