//! The words of the contract: names of frames and slots, rights, capability types, status.

use bitflags::bitflags;

/// The physical name of a 4 KiB frame: physical address / 4096.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FrameNumber(pub u64);

impl FrameNumber {
    /// The physical address of the frame's first byte.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 << crate::layout::PAGE_SHIFT
    }
}

/// An index into the caller's capability table. Slot 0 is always empty and stands for "none" where a call allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CapSlot(pub u32);

/// No capability.
pub const SLOT_NONE: CapSlot = CapSlot(0);
/// Every environment: its own environment capability.
pub const SLOT_SELF: CapSlot = CapSlot(1);
/// First environment: its first virtual processor.
pub const SLOT_FIRST_PROCESSOR: CapSlot = CapSlot(2);
/// First environment: the machine.
pub const SLOT_MACHINE: CapSlot = CapSlot(3);
/// First environment: the bundle's frames, as one range.
pub const SLOT_BUNDLE: CapSlot = CapSlot(4);
/// First environment: its control page, save area and boot information page, in this order.
pub const SLOT_FIRST_FRAMES: CapSlot = CapSlot(5);
/// First environment: the first device function; the others follow. See `BootInfo::device_count`.
pub const SLOT_DEVICE_FIRST: CapSlot = CapSlot(16);

bitflags! {
    /// What a capability allows. A derived capability never has more than its source.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rights: u32 {
        /// Map readable, read words by predicate, read state.
        const READ = 1 << 0;
        /// Map writable.
        const WRITE = 1 << 1;
        /// Map executable.
        const EXECUTE = 1 << 2;
        /// Give to another environment.
        const GRANT = 1 << 3;
        /// Let a device reach these frames.
        const DMA = 1 << 4;
        /// Manage: change an environment, address space, processor, gate, bell or device; power the machine off.
        const CONTROL = 1 << 5;
        /// Ring a bell.
        const RING = 1 << 6;
        /// Take a bell's count, sleep on it.
        const WAIT = 1 << 7;
        /// Call through a gate.
        const CALL = 1 << 8;
        /// Put capabilities into this environment's table.
        const RECEIVE = 1 << 9;
        /// Write to the kernel's log.
        const LOG = 1 << 10;
    }
}

numbered! {
    /// What a capability names.
    pub enum CapType {
        /// Empty slot.
        Null = 0,
        /// A range of frames.
        Frames = 1,
        /// An environment.
        Environment = 2,
        /// A virtual processor.
        Processor = 3,
        /// A bell.
        Bell = 4,
        /// A gate for protected control transfer.
        Gate = 5,
        /// A device function.
        Device = 6,
        /// The machine: log and power.
        Machine = 7,
        /// An address space of an environment.
        Space = 8,
    }
}

/// The side that has to change something before the call can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Nobody: the call did its work.
    Nobody,
    /// The caller's arguments.
    Caller,
    /// The caller's authority: it lacks a capability or right.
    Authority,
    /// A stated limit or the machine's memory.
    Resource,
    /// The other party of the call.
    Peer,
    /// Nobody: repeat the call to continue.
    Time,
}

/// The outcome of a call, in RAX. The payload in RDX is meaningful as the call's page in `docs/abi.md` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No such call number.
    UnknownCall = 0x0101,
    /// An argument is out of range; RDX holds its index (0 is RDI), or that of a list's entry.
    BadArgument = 0x0102,
    /// A pointer is outside the caller's windows, misaligned or not mapped.
    BadAddress = 0x0103,
    /// The target slot already holds a capability.
    SlotInUse = 0x0104,
    /// The object is not in a state in which the call makes sense.
    WrongState = 0x0105,
    /// The slot is beyond the table or empty.
    BadSlot = 0x0201,
    /// The capability names another type of object.
    WrongType = 0x0202,
    /// The capability lacks a right that the call needs.
    MissingRight = 0x0203,
    /// No frames left, or none that fit.
    NoFrames = 0x0301,
    /// The environment's donated frames are used up: donate more.
    NoTables = 0x0302,
    /// A table of objects or the environment's share of it is full.
    TableFull = 0x0303,
    /// Still mapped, pinned, or the origin of other capabilities.
    Busy = 0x0401,
    /// The other party ended before it replied.
    PeerGone = 0x0402,
    /// The gate's processor cannot take a call now.
    PeerBusy = 0x0403,
    /// A bounded part of the work was done: call again with the same arguments (`Bind`: from the entry that RDX names).
    Again = 0x0501,
    /// A sleep ended because an upcall became pending.
    Interrupted = 0x0502,
}

impl Status {
    /// Every status, for decoding and for tests.
    pub const ALL: [Status; 17] = [
        Status::Ok,
        Status::UnknownCall,
        Status::BadArgument,
        Status::BadAddress,
        Status::SlotInUse,
        Status::WrongState,
        Status::BadSlot,
        Status::WrongType,
        Status::MissingRight,
        Status::NoFrames,
        Status::NoTables,
        Status::TableFull,
        Status::Busy,
        Status::PeerGone,
        Status::PeerBusy,
        Status::Again,
        Status::Interrupted,
    ];

    /// Decodes RAX; an unknown word is `None`.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Status> {
        Self::ALL.into_iter().find(|status| *status as u64 == word)
    }

    /// The side that has to act. The second byte of the number is the blame's class.
    #[must_use]
    pub const fn blame(self) -> Blame {
        match self as u64 >> 8 {
            0 => Blame::Nobody,
            1 => Blame::Caller,
            2 => Blame::Authority,
            3 => Blame::Resource,
            4 => Blame::Peer,
            _ => Blame::Time,
        }
    }
}
