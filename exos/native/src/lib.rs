//! The native interface of exos: what a Linux program on Aegis may decide about its own memory and its own part of
//! the processor, which no Linux has.
//!
//! A program installs its own handler for faults in a range ([`fault::handle_faults`]): exos enters it on the faulting
//! thread's stack, and it returns to the interrupted instruction by itself, without a system call. It changes many
//! ranges in one call ([`call::apply`]), reads the accessed and dirty bits of its page table ([`call::pages`]), and is
//! asked what to give up when memory runs out ([`fault::handle_shortage`]). Garbage collectors, transactions over
//! mapped data and pagers of their own are built from these. It says how many tickets each of its threads has
//! ([`call::set_tickets`]), as often as it likes, by what it knows of its own work.
//!
//! Everything else stays Linux: these are six system-call numbers that Linux answers with `ENOSYS`, so one binary can
//! ask ([`call::version`]) and do without. C programs include `include/exos.h`, which says the same; a test compares
//! them. The other side is `exos/linux/src/call/native.rs`, which takes numbers and layouts from [`abi`].
#![no_std]

pub mod abi;
#[cfg(target_os = "linux")]
pub mod call;
#[cfg(target_os = "linux")]
pub mod fault;
