//! Commands for a machine that runs: `ps`, `top`, `logs`, `exec`, `stop`, `tickets`, `memory`.
//!
//! The tool process that runs a machine with pods listens on a socket (`address` says where); the commands are other
//! tool processes that ask there (`client`) in the frames of `aegis_link::frame`. On the side of the machine `server`
//! answers: what only the kernel knows it asks the manager in the machine for, and what only a pod's library OS knows,
//! the pod. `request` is what is asked, `report` what is told of machine, pods and processes. `verbs`, `watching` and
//! `exec` are the commands, `table` and `metrics` what is printed, `page/` what a browser shows, `shares` what tickets
//! are worth, `record` what a machine that has ended leaves, `socket` paths that are long.
//!
//! Invariants: nobody waits for another here, neither the relay for a client nor one client for another; everything
//! that is kept for a client, a pod or the manager has a limit; what comes over a socket or from the machine is data
//! that may be wrong.

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod exec;
mod keys;
mod metrics;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod shares;
pub(crate) mod socket;
pub(crate) mod table;
pub(crate) mod verbs;
pub(crate) mod watching;
