//! The kernel's pure state machine: every kernel call, upcall and scheduling decision, over a
//! [`Machine`] trait.
//!
//! There is no unsafe code here and no allocation: tables are fixed, memory for an environment's
//! tables comes from frames that were donated for it (INV-2), and every loop is bounded by a table,
//! by a stated limit, or by the caller's own donated memory. The same code runs in the kernel over
//! the real machine (`kernel/src`) and in the tests over plain memory.
//!
//! | module | holds |
//! |---|---|
//! | `entry` | kernel entry and exit |
//! | `boot` | from the glue's findings to the first environment |
//! | `call` | the kernel calls, by family |
//! | `capability`, `delete` | tables and derivation; revocation and what goes with it |
//! | `space`, `spaces` | page tables; address spaces |
//! | `environment`, `share`, `reclaim` | environments; their parts of the tables; quota taken back |
//! | `processor`, `schedule`, `predicate` | upcalls; slices; sleeping |
//! | `funding` | tickets and currencies of environments and processors; the winner of the next slice |
//! | `bell`, `gate`, `device` | notification; protected control transfer; device functions |
//! | `state` | the whole state |
//! | `object` | each object by itself, the ownership of frames among them |
//! | `outcome`, [`machine`], [`id`] | what becomes of a call; what the core needs of the machine; names of objects |
//!
//! A module knows those below it. Above `state` each adds to what the [`State`] can do; what an object is, and can do
//! alone, stands in `object`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

/// Structs whose fields say what they begin with; `EMPTY` is all of that. One that takes a part says how it is made.
macro_rules! begins {
    ($(#[$attribute:meta])* pub(crate) struct $name:ident {
        $($(#[$about:meta])* $visibility:vis $field:ident: $type:ty = $begin:expr,)*
    }) => {
        $(#[$attribute])*
        pub(crate) struct $name { $($(#[$about])* $visibility $field: $type,)* }

        impl $name {
            pub(crate) const EMPTY: Self = Self { $($field: $begin,)* };
        }
    };
    ($(#[$attribute:meta])* pub struct $name:ident<$life:lifetime, $part:ident> = $make:ident($given:ident) {
        $($(#[$about:meta])* $visibility:vis $field:ident: $type:ty = $begin:expr,)*
    }) => {
        $(#[$attribute])*
        pub struct $name<$life, $part> { $($(#[$about])* $visibility $field: $type,)* }

        impl<$part> $name<'_, $part> {
            /// All zero bits but the part that is given, so that a static costs nothing in the image.
            pub const fn $make($given: $part) -> Self {
                Self { $($field: $begin,)* }
            }
        }
    };
}

mod bell;
mod boot;
mod call;
mod capability;
mod delete;
mod device;
mod entry;
mod environment;
mod funding;
mod gate;
pub mod id;
pub mod machine;
mod object;
mod outcome;
mod predicate;
mod processor;
mod reclaim;
mod schedule;
mod share;
mod space;
mod spaces;
mod state;
#[cfg(test)]
mod tests;

pub use boot::{BootError, FirstEnvironment, Setup};
pub use entry::{Context, Decision};
pub use id::{CpuId, DeviceId, EnvironmentId, Id, ProcessorId};
pub use machine::{Extension, Holders, Machine, StopReport};
pub use object::{
    BlockEntry, DEPTH_MAX, DeviceDescription, FrameEntry, Pages, Region, SAVE_AREA_FRAME_COUNT_MAX, SLOT_COUNT_MAX,
    SLOTS_PER_FRAME, Tables,
};
pub use space::{Flush, Place};
pub use state::State;
