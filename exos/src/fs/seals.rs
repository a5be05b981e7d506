//! Seals of files in memory (memfd_create(2)): what may not happen to a file any more, for good.

use crate::error::Result;

bitflags::bitflags! {
    /// What may not happen to a file any more (fcntl(2), `F_ADD_SEALS`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Seals: u32 {
        /// No further seals.
        const SEAL = 1 << 0;
        /// The size may not shrink.
        const SHRINK = 1 << 1;
        /// The size may not grow.
        const GROW = 1 << 2;
        /// Contents may not change.
        const WRITE = 1 << 3;
        /// Contents may not change except through writable mappings that exist already.
        const FUTURE_WRITE = 1 << 4;
        /// The permissions to execute may not change.
        const EXECUTE = 1 << 5;
    }
}

/// A file that can be sealed.
pub trait Sealable {
    /// The seals so far.
    fn get(&self) -> Seals;

    /// Adds seals. That no writable shared mapping exists when `WRITE` is added, the caller has seen to.
    ///
    /// # Errors
    /// `EPERM`: sealed against it.
    fn add(&self, seals: Seals) -> Result<()>;
}
