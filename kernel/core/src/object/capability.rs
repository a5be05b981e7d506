//! Capabilities as data: what an entry of a table holds, in words and decoded. The tables, and the tree of derivation
//! that runs through them, are in `capability.rs` above.

use core::num::NonZeroU32;

use aegis_abi::types::{CapType, FrameNumber, Rights, Status};

use crate::id::{EnvironmentId, Id, Named, SPACE_COUNT_MAX};

/// Entries in one frame of a capability table.
pub const SLOTS_PER_FRAME: u32 = 64;
/// Slots of an environment that hold capabilities of all types: what searches look at.
pub const SLOT_COUNT_MAX: u32 = 4096;
/// One behind the slots that follow, one for each address space there can be. They hold what `SpaceCreate` makes and
/// nothing else: no search is for that, so they make none longer.
pub(crate) const SPACE_SLOT_END: u32 = SLOT_COUNT_MAX + SPACE_COUNT_MAX as u32;
/// Frames in a full table.
pub(crate) const TABLE_FRAME_COUNT_MAX: usize = SPACE_SLOT_END.div_ceil(SLOTS_PER_FRAME) as usize;
/// Most generations from an original to a derived capability.
pub const DEPTH_MAX: u8 = 64;
/// What looking at a slot costs of an entry's budget.
pub(crate) const SLOT_COST: usize = 4;
/// Frames are still being zeroed; `cursor` counts those done.
pub(crate) const FILLING: u8 = 1 << 0;
/// Being deleted; `cursor` says how far its mappings are broken.
pub(crate) const DYING: u8 = 1 << 1;
/// Its descendants are being deleted.
pub(crate) const REVOKING: u8 = 1 << 2;
/// Rights of an original frames capability.
pub(crate) const FRAME_RIGHTS: Rights =
    Rights::READ.union(Rights::WRITE).union(Rights::EXECUTE).union(Rights::GRANT).union(Rights::DMA);

/// Where a capability is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CapRef {
    pub(crate) environment: EnvironmentId,
    pub(crate) slot: u32,
}

impl CapRef {
    fn pack(reference: Option<Self>) -> u64 {
        reference.map_or(0, |r| (r.environment.index() as u64 + 1) << 16 | u64::from(r.slot))
    }

    fn unpack(word: u32) -> Option<Self> {
        let word = NonZeroU32::new(word)?.get();
        Some(Self {
            environment: EnvironmentId::from_index((word >> 16).checked_sub(1)? as usize)?,
            slot: word & 0xffff,
        })
    }
}

/// Frames that a capability authorises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRange {
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl FrameRange {
    pub(crate) fn contains(&self, first: u64, count: u64) -> bool {
        first >= self.first && first <= self.end && count <= self.end - first
    }
}

/// A capability, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) kind: CapType,
    pub(crate) flags: u8,
    pub(crate) depth: u8,
    pub(crate) rights: Rights,
    /// Frames: the first. Objects: index | serial << 16.
    pub(crate) object: u64,
    /// Frames: how many.
    pub(crate) count: u64,
    pub(crate) parent: Option<CapRef>,
    pub(crate) child: Option<CapRef>,
    pub(crate) next: Option<CapRef>,
    pub(crate) previous: Option<CapRef>,
    pub(crate) cursor: u64,
}

impl Capability {
    /// From the first words of an entry; `None` if it is empty.
    #[inline(always)]
    pub(crate) fn from_words([first, object, count, up, across, cursor]: [u64; 6]) -> Option<Self> {
        let kind = Some(kind_from_word(first)).filter(|kind| *kind != CapType::Null)?;
        Some(Self {
            kind,
            flags: (first >> 8) as u8,
            depth: (first >> 16) as u8,
            rights: Rights::from_bits_truncate((first >> 32) as u32),
            object,
            count,
            parent: CapRef::unpack(up as u32),
            child: CapRef::unpack((up >> 32) as u32),
            next: CapRef::unpack(across as u32),
            previous: CapRef::unpack((across >> 32) as u32),
            cursor,
        })
    }

    /// As an entry holds it.
    #[inline(always)]
    pub(crate) fn to_words(self) -> [u64; 6] {
        [
            self.kind as u64
                | u64::from(self.flags) << 8
                | u64::from(self.depth) << 16
                | u64::from(self.rights.bits()) << 32,
            self.object,
            self.count,
            CapRef::pack(self.parent) | CapRef::pack(self.child) << 32,
            CapRef::pack(self.next) | CapRef::pack(self.previous) << 32,
            self.cursor,
        ]
    }

    fn original(kind: CapType, rights: Rights, object: u64, count: u64) -> Self {
        Self {
            kind,
            flags: 0,
            depth: 0,
            rights,
            object,
            count,
            parent: None,
            child: None,
            next: None,
            previous: None,
            cursor: 0,
        }
    }

    pub(crate) fn frames(first: FrameNumber, count: u64) -> Self {
        Self::original(CapType::Frames, FRAME_RIGHTS, first.0, count)
    }

    pub(crate) fn object<I: Id>(kind: CapType, rights: Rights, named: Named<I>) -> Self {
        let object = named.id.index() as u64 | named.serial << 16;
        Self::original(kind, rights, object, 0)
    }

    /// Frames: whether the capability authorises `rights` on `[first, first + count)`.
    pub(crate) fn covers(&self, first: u64, count: u64, rights: Rights) -> bool {
        self.kind == CapType::Frames
            && self.flags & (DYING | FILLING) == 0
            && self.rights.contains(rights)
            && FrameRange { first: self.object, end: self.object + self.count }.contains(first, count)
    }
}

/// What an object word names.
pub(crate) fn named<I: Id>(object: u64) -> Option<Named<I>> {
    Some(Named { id: I::from_index((object & 0xffff) as usize)?, serial: object >> 16 })
}

/// A mask, and what it leaves of the first word of a capability with a type and rights that can be used.
pub(crate) const fn usable_word(kind: CapType, rights: Rights) -> (u64, u64) {
    let rights = (rights.bits() as u64) << 32;
    (0xff | ((DYING | FILLING) as u64) << 8 | rights, kind as u64 | rights)
}

/// Whether the entry with this first word is of a type, has rights, and can be used.
pub(crate) fn check_first_word(word: u64, kind: CapType, rights: Rights) -> Result<(), Status> {
    // Nearly always it can, which one comparison says.
    let (mask, usable) = usable_word(kind, rights);
    if word & mask == usable {
        return Ok(());
    }
    match kind_from_word(word) {
        CapType::Null => Err(Status::BadSlot),
        found if found != kind => Err(Status::WrongType),
        _ if !Rights::from_bits_truncate((word >> 32) as u32).contains(rights) => Err(Status::MissingRight),
        _ if (word >> 8) as u8 & (DYING | FILLING) != 0 => Err(Status::WrongState),
        _ => Ok(()),
    }
}

pub(crate) fn kind_from_word(word: u64) -> CapType {
    CapType::from_number(word as u32 & 0xff).unwrap_or(CapType::Null)
}

/// A capability, and where it is.
pub(crate) type Found = (CapRef, Capability);

/// What a slot names and what is still there, or why not.
pub(crate) type Live<T> = Result<T, Status>;

begins! {
    /// What the last search for authority found: the same for all of these frames.
    pub(crate) struct Cover {
        pub(crate) range: FrameRange = FrameRange { first: 0, end: 0 },
        pub(crate) rights: Rights = Rights::empty(),
        pub(crate) is_covered: bool = false,
    }
}

impl Cover {
    #[inline(always)]
    pub(crate) fn knows(&self, (first, count): (u64, u64), rights: Rights) -> bool {
        self.rights == rights && self.range.contains(first, count)
    }
}
