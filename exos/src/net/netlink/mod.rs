//! Netlink sockets (netlink(7)): how programs ask for interfaces, addresses, routes, neighbours and sockets.
//!
//! - [`message`]: the bytes of messages, read and written;
//! - [`route`]: `NETLINK_ROUTE`, answered from a [`super::view::NetworkView`]; [`diagnosis`]: `NETLINK_SOCK_DIAG`;
//! - [`socket`]: the socket: ports, what waits, dumps.

pub mod diagnosis;
pub mod message;
pub mod route;
pub mod socket;

pub use socket::{Address, Netlink, Sender, Socket};
