//! Why a verb of the runtime failed. Engines look for words in these texts, so some are as runc has them.

use std::fmt;
use std::io;
use std::path::PathBuf;

use aegis_launch::errors::Error;

/// Why a verb failed.
#[derive(Debug)]
pub(crate) enum OciError {
    /// The command line.
    Usage(String),
    /// There is no such container.
    DoesNotExist(String),
    /// It is there, and not in the state that the verb needs.
    State(String, &'static str),
    /// The configuration asks for what a machine cannot keep.
    Cannot(String),
    /// The program is not in the root.
    NoProgram(String),
    /// A document is not what it should be.
    Document(PathBuf, String),
    /// A hook failed.
    Hook(String, String),
    /// The host said no.
    Io(String, io::Error),
    /// The process that keeps the container said this.
    Monitor(String),
    /// The tool's own errors.
    Tool(Error),
}

pub(crate) type Result<T> = std::result::Result<T, OciError>;

impl fmt::Display for OciError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Cannot(text) | Self::Monitor(text) => out.write_str(text),
            Self::DoesNotExist(id) => write!(out, "container {id} does not exist"),
            Self::State(id, why) => write!(out, "container {id}: {why}"),
            Self::NoProgram(name) => write!(out, "exec: \"{name}\": executable file not found in $PATH"),
            Self::Document(path, why) => write!(out, "{}: {why}", path.display()),
            Self::Hook(path, why) => write!(out, "hook {path}: {why}"),
            Self::Io(doing, error) => write!(out, "{doing}: {error}"),
            Self::Tool(error) => write!(out, "{error}"),
        }
    }
}

impl From<Error> for OciError {
    fn from(error: Error) -> Self {
        Self::Tool(error)
    }
}

/// Names what the host was asked to do.
pub(crate) trait WhileDoing<T> {
    /// Wraps an error of the host.
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> WhileDoing<T> for std::result::Result<T, E> {
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| OciError::Io(what(), error.into()))
    }
}
