//! Files that are Linux's own and no file system's: what has a descriptor because a system call says so.
//!
//! Files of file systems, pipes and sockets are in `exos::fs` and `exos::net`; [`crate::call`] decodes calls on all.
//!
//! | module | holds |
//! |---|---|
//! | [`files`], [`paths`] | a pod's name space, and a process's view of it; paths that a program names |
//! | [`owner`] | the process that is signalled when something happens to an open file |
//! | [`epoll`], [`timerfd`], [`signalfd`], [`pidfd`], [`message_queue`] | the files of those calls |
//! | [`uring`] | a ring of `io_uring`: its queues, and requests that wait |
//! | [`seen_descriptors`] | what a thread need not look up again |
//! | [`lottery_programs`] | the programs that are in every pod |

pub mod epoll;
pub mod files;
pub mod lottery_programs;
pub mod message_queue;
pub mod owner;
pub mod paths;
pub mod pidfd;
pub mod seen_descriptors;
pub mod signalfd;
pub mod timerfd;
pub mod uring;
