//! User-side runtime: the only `syscall` stubs, upcall entries and resume. Deliberately not a library OS.
//!
//! Everybody in ring 3 that talks to the kernel links this: exos, the small library OS, the suites. It holds no
//! policy and no state; what an upcall means is decided by the functions of [`upcall::UpcallHandlers`] that the
//! library OS registers.
//!
//! Calls that can pull memory out from under Rust ([`call::bind`] and friends) are `unsafe`; everything else is safe,
//! because the kernel checks every argument.
#![no_std]

pub mod call;
pub mod clock;
pub mod control;
pub mod gate;
pub mod upcall;

pub use aegis_abi as abi;
