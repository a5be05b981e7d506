//! Options of what is made from the command line itself: completion and manual.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Shells whose completion can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

/// `aegis completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// Of which shell
    pub(crate) shell: KnownShell,
}

/// `aegis man`.
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Where the pages are written, one for each verb
    pub(crate) directory: PathBuf,
}
