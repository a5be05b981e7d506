//! What a process and a thread are, apart from their memory and files: signals, credentials, limits.
//!
//! Pure bookkeeping. How a signal looks on a stack and which number an error has is the personality's (`exos/linux`).

pub mod capability;
pub mod earliest;
pub mod futex;
pub mod limits;
pub mod lock;
pub mod schedule;
pub mod signal;
pub mod timer;
pub mod weight;
