//! Files: what Linux programs know as paths, inodes, open file descriptions and descriptors, as policy of
//! the library OS.
//!
//! From below to above:
//! - [`metadata`]: what is known of a file besides its contents, as plain data;
//! - [`vnode`] and [`open_file`]: the traits [`vnode::Inode`], which every file system implements, and
//!   [`open_file::OpenFile`], what is open and more than its inode;
//! - [`transfer`], [`readiness`], [`page`]: how bytes, wake-ups and frames cross the border of this module;
//!   [`step`]: transfers that may wait, an attempt at a time;
//! - file systems: [`erofs_root`] (read-only root image), [`memory_fs`] (tmpfs), [`overlay`] (the second
//!   over the first), [`ninep`] (directories of the host), [`device_fs`], [`proc_fs`], [`text_fs`] (`/sys`);
//! - [`location`] and [`walk`]: mounts, directory entries, path walk, and `known_walks` that spares it;
//!   [`namespace`]: the operations on paths;
//! - [`description`]: open file descriptions over inodes and over [`pipe`]s, [`stream`]s and
//!   [`event_counter`]s; [`terminal`]: pseudo-terminals and their line discipline;
//! - [`file_lock`] and [`descriptor_table`].
//!
//! Invariants:
//! - INV-F1 No lock of this module is held while bytes go to or come from a program's memory ([`transfer`])
//!   or while a waiter is woken ([`readiness`]): both may come back here (a page fault on a mapped file, a
//!   poll).
//! - INV-F2 Names, paths and link targets are bytes. Nothing here asks for UTF-8.
//! - INV-F3 Nothing here blocks: what would wait answers `EAGAIN` and offers a wait queue.
//! - INV-F4 Time, randomness and identity of the caller are arguments.
//!
//! The oracle is Linux: `tests/linux_oracle.rs` of this crate runs the same operations on the host and
//! compares errors.

pub mod block_queue;
pub mod description;
pub mod descriptor_table;
pub mod device_fs;
pub mod erofs_root;
pub mod event_counter;
pub mod extended_attribute;
pub mod file_lock;
pub mod file_users;
pub mod group_fs;
mod known_walks;
pub mod layers;
pub mod lease;
pub mod location;
pub mod memory_fs;
pub mod metadata;
pub mod name;
mod name_table;
pub mod namespace;
pub mod ninep;
pub mod open_file;
pub mod overlay;
pub mod page;
pub mod permission;
pub mod pipe;
pub mod proc_fs;
pub mod readiness;
mod recent_entries;
pub mod ring;
pub mod seals;
pub mod spare;
pub mod step;
pub mod stream;
pub mod stream_inode;
pub mod terminal;
pub mod text_fs;
pub mod transfer;
pub mod vnode;
pub mod walk;
pub mod watch;

#[cfg(test)]
mod test_support;
#[cfg(test)]
pub(crate) use test_support::{Count, Faulty, NOW as TEST_NOW, World as TestWorld};
