//! The kernel contract, used by both of its sides: the kernel and every library OS.
//!
//! Only types, numbers and their encodings live here: no logic, no unsafe code, no allocation. A change of this crate is a
//! change of the contract and of `docs/abi.md`.
#![no_std]
#![forbid(unsafe_code)]

pub mod boot;
pub mod layout;
