//! What a pod sees of this host: its system, and the directory where the tool was called.

use std::path::{Path, PathBuf};

use aegis_launch::errors::Error;
use aegis_launch::machine::mounts::Volume;
use aegis_launch::root::system;
use clap::{Args, ValueEnum};

/// Directories that a pod has itself: no directory of the host can be shown over them.
const OWN_DIRECTORIES: [&str; 3] = ["/dev", "/proc", "/sys"];

/// `--here`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Here {
    /// Nothing in it changes.
    Ro,
    /// The program may write there, as the user of the tool.
    Rw,
}

// What of the host a pod sees without being told each directory. (No documentation comment: clap would make it the text
// of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ViewOptions {
    /// Show the current directory, and start in it; read-only unless =rw
    #[arg(
        long,
        value_name = "rw",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "ro",
        hide_possible_values = true
    )]
    pub(crate) here: Option<Here>,
    /// Show nothing of this host's system: the program and the libraries that it needs are all that there is
    #[arg(long)]
    pub(crate) bare: bool,
}

impl ViewOptions {
    /// The current directory as it is to be shown, if it is.
    ///
    /// # Errors
    /// One that cannot be.
    pub(crate) fn volume(&self, current: &Path) -> Result<Option<Volume>, Error> {
        let Some(here) = self.here else { return Ok(None) };
        if current == Path::new("/") {
            return Err(Error::Usage("--here in / would show the whole host; --root / does so".into()));
        }
        if let Some(own) = OWN_DIRECTORIES.iter().find(|own| current.starts_with(own)) {
            return Err(Error::Usage(format!("--here: {own} is the machine's own; call it from another directory")));
        }
        let is_read_only = here == Here::Ro;
        Ok(Some(Volume { host: current.into(), guest: current.into(), is_read_only }))
    }

    /// Directories of the system that are shown to a pod without a root of its own.
    pub(crate) fn system(&self) -> Vec<PathBuf> {
        if self.bare { Vec::new() } else { system::directories() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Here, ViewOptions};
    use std::path::Path;

    #[test]
    fn the_current_directory_is_shown_where_it_is() {
        let here = |here| ViewOptions { here, bare: false };
        let volume = here(Some(Here::Ro)).volume(Path::new("/home/eve/x")).expect("fits").expect("one");
        assert!(volume.is_read_only && volume.host == volume.guest && volume.guest == Path::new("/home/eve/x"));
        assert!(!here(Some(Here::Rw)).volume(Path::new("/srv")).expect("fits").expect("one").is_read_only);
        assert_eq!(here(None).volume(Path::new("/")).expect("none"), None);
        for path in ["/", "/dev/shm", "/proc", "/sys/kernel"] {
            let error = here(Some(Here::Rw)).volume(Path::new(path)).expect_err("it cannot be shown").to_string();
            assert!(error.contains("--here"), "{error}");
        }
        assert!(ViewOptions { here: None, bare: true }.system().is_empty());
    }
}
