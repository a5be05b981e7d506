//! Address spaces as data: `spaces.rs` above makes and ends them, `space.rs` writes their page tables.

use aegis_abi::types::FrameNumber;

use crate::id::EnvironmentId;
use crate::machine::Holders;

begins! {
    /// An address space that is not a home space.
    pub(crate) struct Space {
        /// 0: the table entry is free.
        pub(crate) serial: u64 = 0,
        pub(crate) environment: Option<EnvironmentId> = None,
        /// Of a free entry: how far it is to the next free one behind the entry that follows, so that zeros are a list
        /// of all.
        pub(crate) next_free: u16 = 0,
        /// A frame number: there are thousands of spaces, and these fit into 32 bits.
        pub(crate) root: u32 = 0,
    }
}

/// The page tables of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Whose space it is, and whose donated frames its tables are.
    pub environment: EnvironmentId,
    /// The frame of the topmost.
    pub root: FrameNumber,
}

impl Tables {
    /// The processors that may hold a translation: the library OS window is in every space of the environment.
    pub(crate) fn holders(&self, is_window: bool) -> Holders {
        if is_window { Holders::Environment(self.environment) } else { Holders::Root(self.root) }
    }
}
