//! Why a chore did not end well, and what may be asked for.

use std::path::{Path, PathBuf};

/// The commands.
pub(crate) const USAGE: &str = "\
usage: cargo xtask <command>

  build [--profile release|dev]   guest binaries and the host tool, into target/aegis
  bench-programs                  the programs of `aegis bench rhino`, into target/aegis; minutes, the first time
  compare                         tests/linux/*.c on Aegis and on a Linux guest (`aegis test`); needs apt's network once
  attack [--minutes N]            the programs of tests/attacks beside an honest one, on 1, 2 and 4 processors
  disk-model FILE SOCKET          FILE as a disk with seek times (a model) behind a socket, by NBD, for QEMU
  fuzz [--calls N | --seconds S] [--seed N] [--input FILE]
                                  searches for calls of the kernel core that break something; ten seconds, if not told
  images [WORD…]                  the lines of tests/images/commands.list, or those with a word in them, in podman's
                                  containers and in Aegis; makes images of Debian's packages, once
  network [--programs FOLDER[:FOLDER…]] [NAME…]
                                  tests/linux/network.list on Aegis against the host; programs that this host lacks are
                                  taken from folders into which Debian's packages were unpacked
  repeat [--times N] [--cpus LIST] [NAME…]
                                  tests/commands on Aegis, many times in a row, against the host; takes hours
  stress [--cpus LIST] [--seconds N] [--memory SIZE] [--limit SECONDS] [NAME…]
                                  the stressors of Debian's stress-ng on Aegis, one after another; half an hour
  suites bash|busybox|coreutils|cpython SOURCES [--limit SECONDS] [--cpus N] [--memory SIZE] [--user NUMBER]
         [--locales FOLDER] [NAME…]
                                  the suite of a real program on this host and on Aegis (tests/suites); up to an hour
  test                            build, unit tests on the host, tidy, then the suites that boot QEMU
  tidy [--fast]                   style as a test: rustfmt, clippy (not with --fast), limits and laws of tidy.toml
  count                           lines per folder
  circles [FOLDER]                files that use each other in a loop; of one crate, with the names that tie them
  toolchain                       which compiler and linker build the guest binaries

environment: AEGIS_TOOLCHAIN=prebuilt|build-std forces how core and alloc come about; CARGO_TARGET_DIR is honoured
(artefacts are in target/aegis of the checkout all the same). See docs/building.md.";

/// Why a chore did not end well. Each names what the developer can do something about.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line is none of those in [`USAGE`].
    Usage,
    /// A file or folder of the checkout could not be read or written.
    Io { what: PathBuf, error: std::io::Error },
    /// A program could not be started.
    Start { program: String, error: std::io::Error },
    /// A program ended with a failure; its own output has said why.
    Failed { what: String },
    /// No compiler can build the guest binaries; the text says what was looked at.
    Toolchain(String),
    /// The build ended well but did not make this binary.
    Artefact { name: String },
    /// `tidy.toml` or a `Cargo.toml` is not what the reader understands.
    Config { what: PathBuf, problem: String },
    /// So many findings were printed.
    Untidy { count: usize },
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Usage => write!(out, "not a command\n\n{USAGE}"),
            Error::Io { what, error } => write!(out, "{}: {error}", what.display()),
            Error::Start { program, error } => write!(out, "cannot start {program}: {error}"),
            Error::Failed { what } => write!(out, "{what} failed"),
            Error::Toolchain(problem) => write!(out, "{problem}"),
            Error::Artefact { name } => write!(
                out,
                "the build made no binary for {name}: is its [[bin]] name in Cargo.toml as docs/building.md says?"
            ),
            Error::Config { what, problem } => write!(out, "{}: {problem}", what.display()),
            Error::Untidy { count } => write!(out, "{count} finding(s)"),
        }
    }
}

impl Error {
    /// Wraps an input or output error with the file or folder it is about.
    pub(crate) fn io(what: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |error| Error::Io { what: what.to_path_buf(), error }
    }
}
