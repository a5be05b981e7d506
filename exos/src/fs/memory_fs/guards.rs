//! What a change of a file's contents looks at before it is made, in one word, so that a write looks once.

use super::super::permission::{MODE_SET_GID, MODE_SET_UID};
use super::super::seals::Seals;

bitflags::bitflags! {
    /// What may be in the way of a change.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Guards: u32 {
        /// As [`Seals::SEAL`].
        const SEAL = Seals::SEAL.bits();
        /// As [`Seals::SHRINK`].
        const SHRINK = Seals::SHRINK.bits();
        /// As [`Seals::GROW`].
        const GROW = Seals::GROW.bits();
        /// As [`Seals::WRITE`] and [`Seals::FUTURE_WRITE`]: either keeps from writing.
        const WRITES = Seals::WRITE.bits() | Seals::FUTURE_WRITE.bits();
        /// As [`Seals::EXECUTE`].
        const EXECUTE = Seals::EXECUTE.bits();
        /// The permissions have set-ID bits, which end at a write by a caller that may not keep them.
        const SET_IDS = 1 << 6;
        /// A write of more than one chunk is going on: other writers, and changes of the size, wait until it is done.
        const LONG_WRITE = 1 << 7;
        /// What a write over what is there leaves to the longer way.
        const AT_ONCE = Self::WRITES.bits() | Self::GROW.bits() | Self::SET_IDS.bits() | Self::LONG_WRITE.bits();
    }
}

impl Guards {
    /// Those of a file with these seals and permissions.
    pub(super) fn new(seals: Seals, permissions: u32) -> Self {
        let has_set_ids = permissions & (MODE_SET_UID | MODE_SET_GID) != 0;
        Self::of(seals) | if has_set_ids { Self::SET_IDS } else { Self::empty() }
    }

    /// Those that are seals.
    pub(super) fn of(seals: Seals) -> Self {
        Self::from_bits_retain(seals.bits())
    }

    /// The seals among them.
    pub(super) fn seals(self) -> Seals {
        Seals::from_bits_truncate(self.bits())
    }

    /// The same with other permissions.
    pub(super) fn with_permissions(self, permissions: u32) -> Self {
        (self - Self::SET_IDS) | Self::new(Seals::empty(), permissions)
    }
}
