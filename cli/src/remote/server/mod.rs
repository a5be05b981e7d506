//! The server of a running machine: answers commands at its socket.
//!
//! The relay drives it: it waits for the server's descriptors with its own and calls [`ControlServer::handle`] and
//! [`ControlServer::tick`]. Nothing here waits. A client has one request at a time; what it costs to answer one is
//! bounded, and so is what is kept of answers that a client does not take.
//!
//! | file | what |
//! |---|---|
//! | `state` | what is known; the types of all |
//! | `serving` | descriptors, clients, requests, the manager's answers |
//! | `report`, `stopping`, `restarting`, `tickets`, `log_reading`, `sessions` | one job each |
//! | `depending`, `events`, `health`, `inspecting` | one job each too |
//! | `web` | callers that speak HTTP |
//! | `orders`, `channel` | the lines to the manager, and to a pod for its sessions |
//! | `logs`, `restart`, `payers` | what pods wrote, when one is started again, which currency pays: pure |

pub(crate) mod channel;
mod depending;
mod events;
mod health;
mod inspecting;
mod log_reading;
mod logs;
mod orders;
pub(crate) mod payers;
mod report;
pub(crate) mod restart;
mod restarting;
mod serving;
pub(crate) mod sessions;
mod state;
mod stopping;
mod tickets;
pub(crate) mod web;

pub(crate) use serving::ServerSlot;
pub(crate) use state::ControlServer;

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
