//! Commands for a machine that runs: `ps`, `top`, `logs`, `exec`, `stop`, `tickets`.
//!
//! The tool process that runs a machine with pods listens on a socket (`place` says where); the commands are other tool
//! processes that ask there (`client`) in the frames of `wire`. On the side of the machine `desk` answers: what only
//! the kernel knows it asks the manager in the machine for (`orders`), and what only a pod's library OS knows, the pod.
//! `logs` keeps what pods wrote, `restart` says when one is started again, `payers` knows currencies and shares,
//! `channel` is the line of a pod on which processes are started in it. `verbs` and `exec` are the commands, `table`
//! what they print.
//!
//! Invariants: nobody waits for another here, neither the relay for a client nor one client for another; everything
//! that is kept for a client, a pod or the manager has a limit; what comes over a socket or from the machine is data
//! that may be wrong.

pub(crate) mod channel;
pub(crate) mod client;
pub(crate) mod desk;
pub(crate) mod exec;
pub(crate) mod logs;
pub(crate) mod orders;
pub(crate) mod payers;
pub(crate) mod place;
pub(crate) mod report;
pub(crate) mod restart;
pub(crate) mod table;
pub(crate) mod verbs;
