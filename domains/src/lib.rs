//! What a disk domain and whoever makes it agree on ([`layout`]), and how one is made, ended and made anew ([`make`]).
//!
//! The domain is an environment with one device function, its driver and the disk service (`aegis_service`). It is the
//! binary of this crate, a flat image in the boot bundle. Whoever has the device function's capability makes it: the
//! library OS of the only program of a machine, or the manager of pods for several.
//!
//! Invariant: the domain has nothing but what its maker gives: the device function, sessions of clients with their
//! bells, frames. What it owns ends with it, and its maker reads nothing of its memory.
#![no_std]

pub mod layout;
pub mod make;
