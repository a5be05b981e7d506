//! The kernel contract, used by both of its sides: the kernel and every library OS.
//!
//! Only types, numbers and their encodings live here: no logic, no unsafe code, no allocation. A change of this crate
//! is a change of the contract and of `docs/abi.md`.
#![no_std]
#![forbid(unsafe_code)]

/// Declares an enumeration that comes over the boundary as a number.
macro_rules! numbered {
    ($(#[$meta:meta])* pub enum $name:ident { $( $(#[$doc:meta])* $variant:ident = $number:literal, )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $name { $( $(#[$doc])* $variant = $number, )* }

        impl $name {
            /// The one with this number.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$variant), )*
                    _ => None,
                }
            }
        }
    };
}

pub mod boot;
pub mod call;
pub mod counter;
pub mod device;
pub mod layout;
pub mod memory;
pub mod share;
pub mod sleep;
pub mod types;
pub mod upcall;

pub use types::{Blame, CapSlot, CapType, FrameNumber, Rights, Status};

/// Version of the contract; raised with every change that is not purely additive.
pub const ABI_VERSION: u32 = 1;
