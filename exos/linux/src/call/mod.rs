//! The system calls, one file a family. Each handler decodes its arguments, asks a policy of exos, and encodes the
//! answer.

pub mod aio;
mod block_control;
pub mod capability;
pub mod clock_adjust;
pub mod context;
mod direct;
pub mod entry;
pub mod epoll;
pub mod eventfd;
pub mod exec;
pub mod extended_attribute;
pub mod file_control;
pub mod file_copy;
mod file_cut;
pub mod file_descriptor;
pub mod file_metadata;
mod file_owner;
pub mod file_path;
pub mod file_sync;
#[cfg(test)]
mod file_tests;
pub mod file_transfer;
pub mod futex;
pub mod identity;
pub mod inet_control;
mod inet_message;
pub mod inet_option;
pub mod inet_socket;
mod interface_control;
pub mod ipc_object;
pub mod lottery;
pub mod memory;
pub mod memory_policy;
pub mod message;
pub mod message_queue;
pub mod miscellany;
pub mod namespace;
pub mod native;
mod netlink_socket;
mod packet_socket;
pub mod pidfd;
pub mod poll;
#[cfg(test)]
mod poll_tests;
pub mod posix_queue;
pub mod priority;
#[cfg(test)]
mod priority_tests;
pub mod process;
pub mod process_memory;
pub mod ptrace;
pub mod schedule;
pub mod semaphore;
pub mod shared_memory;
pub mod signal;
pub mod socket;
mod socket_filter;
pub mod socket_option;
pub mod splice;
mod terminal;
pub mod time;
pub mod timer;
pub mod uring;
pub(crate) mod waiting;
pub mod watch;
