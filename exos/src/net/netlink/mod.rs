//! Netlink sockets (netlink(7)): how programs ask for interfaces, addresses, routes, neighbours and sockets.
//!
//! - [`message`]: the bytes of messages, read and written;
//! - [`route`]: `NETLINK_ROUTE`, answered from a [`super::view::NetworkView`]; [`diagnosis`]: `NETLINK_SOCK_DIAG`;
//! - [`change`]: requests that change the network; `event`: what groups are told when it has changed;
//! - [`socket`]: the socket: ports, what waits, dumps.

pub mod change;
pub mod diagnosis;
mod event;
pub mod message;
pub mod route;
pub mod socket;

pub use socket::{Address, Netlink, Sender, Socket};
