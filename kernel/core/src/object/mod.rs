//! The objects of the kernel: what each is, and what may be done to it alone.
//!
//! Nothing here knows the whole state. What objects do to each other and to the machine is in the modules above, of
//! the same names; there the state of an object changes by what stands here, which asserts that it may.

mod bell;
pub(crate) mod capability;
mod cpu;
mod device;
mod environment;
mod frame;
mod funding;
mod gate;
mod predicate;
mod processor;
mod queue;
mod sleepers;
mod space;

pub use capability::{DEPTH_MAX, SLOT_COUNT_MAX, SLOTS_PER_FRAME};
pub use device::{DeviceDescription, Region};
pub use frame::{BlockEntry, FrameEntry};
pub use processor::{Pages, SAVE_AREA_FRAME_COUNT_MAX};
pub use space::Tables;

pub(crate) use bell::{Alarms, Bell, Called};
pub(crate) use capability::{
    CapRef, Capability, Cover, DYING, FILLING, Found, FrameRange, Live, REVOKING, SLOT_COST, TABLE_FRAME_COUNT_MAX,
    check_first_word, kind_from_word, named, usable_word,
};
pub(crate) use cpu::Cpu;
pub(crate) use device::{Device, DmaBinding, FunctionState, HeldDevices, Route};
pub(crate) use environment::{ENVIRONMENT_RIGHTS, Environment, FREE_COST, Reclaim, WHOLE};
pub(crate) use frame::{FrameKind, FrameTable, Search};
pub(crate) use funding::{Funding, KernelLottery, ReadySet};
pub(crate) use gate::{Call, Gate, copy_message, save_call};
pub(crate) use predicate::{CheckedTerm, Predicate, Source};
pub(crate) use processor::{
    PROCESSOR_RIGHTS, Processor, SLEEP_ENDING_KINDS, USER_FLAGS, control_word, start_registers,
};
pub(crate) use queue::{Links, Queue};
pub(crate) use sleepers::{Sleepers, WORD_POLL_NS};
pub(crate) use space::Space;
