//! What a domain and whoever makes it agree on ([`layout`]; [`disk_plan`], [`net_plan`]), and how one is made, ended
//! and made anew ([`make`]).
//!
//! A domain is an environment with one device function, its driver and the service of it (`aegis_service`). There is a
//! binary of this crate for each kind, a flat image in the boot bundle; what they have in common is `function`. Whoever
//! has the device function's capability makes it: the library OS of the only program of a machine, or the manager of
//! pods for several.
//!
//! Invariant: the domain has nothing but what its maker gives: the device function, sessions of clients with their
//! bells, frames. What it owns ends with it, and its maker reads nothing of its memory.
#![no_std]

pub mod disk_plan;
#[cfg(target_os = "none")]
pub mod function;
pub mod ide;
pub mod layout;
pub mod make;
pub mod net_plan;
