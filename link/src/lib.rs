//! The contract between the host tool, the manager of pods and the pods' library OS: what each tells the others, and
//! how it is written.
//!
//! | module | from, to | carried by |
//! |---|---|---|
//! | [`config`] | tool, library OS: what to run | the bundle |
//! | [`network`] | tool, library OS: what the pod's card is connected to | in [`config`] |
//! | [`drivers`] | tool, library OS: who drives its card and disks | in [`config`] |
//! | [`pods`] | tool, manager: which pods there are and what belongs to each | the bundle |
//! | [`frame`] | all: how what follows is cut into messages | every line |
//! | [`control`] | tool and library OS: greeting, ends, signals, messages | the control port, as text |
//! | [`sessions`] | tool and library OS: processes that are started in a running pod | the sessions' port |
//! | [`orders`] | tool and manager: how pods are, and changes | the second serial port |
//! | [`phase`] | all: where in its life a pod is | answers of the manager, reports |
//! | [`memory`] | library OS and manager: memory that is wanted and granted | a page that both map |
//!
//! Pure: no module touches a device or a file descriptor, so that each runs on both ends and in tests. `no_std` with
//! `alloc`; manager and tool read plans and orders without memory.
//!
//! Invariants:
//! - INV-L1 No end believes the other: no input makes a reader panic, overflow or loop without end, and whatever is
//!   kept of it has a limit.
//! - INV-L2 Text from the machine reaches a terminal only without control characters ([`control::printable`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
pub mod control;
pub mod disks;
pub mod drivers;
pub mod frame;
pub mod memory;
pub mod network;
mod numbered;
pub mod orders;
pub mod phase;
pub mod pods;
pub mod rights;
pub mod sessions;
