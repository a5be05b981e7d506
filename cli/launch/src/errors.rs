//! Everything that can go wrong before or around a run, and the exit status that says so.
//!
//! The tool keeps the statuses that a user knows from `timeout`, `env` and the shells: 124 for an ended time
//! limit, 125 for a failure of the tool itself, 126 for something that is there but cannot be executed, 127
//! for something that is not there. Every error prints as one line. How a *program* ended is not an error:
//! see `ending`.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::images::errors::ImageError;
use crate::pool::errors::PoolError;
use crate::root::pack::PackError;

/// Exit status: `--timeout` ended the program.
pub const STATUS_TIMEOUT: u8 = 124;
/// Exit status: the tool, the machine, or an option of the run is to blame, not the program.
pub const STATUS_TOOL: u8 = 125;
/// Exit status: the program is there but is not something that can be executed.
pub(crate) const STATUS_NOT_EXECUTABLE: u8 = 126;
/// Exit status: there is no such program.
pub(crate) const STATUS_NOT_FOUND: u8 = 127;
/// Added to a signal's number to make an exit status.
pub const STATUS_SIGNAL_BASE: u8 = 128;

/// Why a run did not take place.
#[derive(Debug)]
pub enum Error {
    /// The command line is wrong; the text says what and how it should be.
    Usage(String),
    /// PROGRAM has no `/` and no directory of PATH holds it.
    ProgramNotOnPath(OsString),
    /// PROGRAM is a path and nothing is there.
    ProgramMissing(PathBuf),
    /// PROGRAM is there and cannot be executed.
    ProgramUnfit(PathBuf, Unfit),
    /// The root cannot be made: `--root` or `--with` names something that cannot be used.
    Root(PackError),
    /// The image cannot be had or used.
    Image(Box<ImageError>),
    /// The pool in this image cannot be had, or not as it was asked for.
    Pool(PathBuf, PoolError),
    /// The root was made but not written.
    RootWrite(String),
    /// The kernel or exos is not where it should be.
    ArtifactMissing(PathBuf),
    /// The kernel or exos is there but is not what it should be.
    ArtifactBad(PathBuf, String),
    /// There is no QEMU.
    QemuMissing(OsString),
    /// KVM was asked for and does not work here.
    KvmUnusable(String),
    /// Something is wrong with this pod of several.
    Pod(String, Box<Error>),
    /// The host refused an operation that the tool needs.
    Host(&'static str, io::Error),
}

impl Error {
    /// The exit status of the tool for this error.
    pub fn status(&self) -> u8 {
        match self {
            Self::ProgramNotOnPath(_) | Self::ProgramMissing(_) => STATUS_NOT_FOUND,
            Self::ProgramUnfit(..) => STATUS_NOT_EXECUTABLE,
            Self::Image(error) if matches!(**error, ImageError::User(_)) => STATUS_NOT_EXECUTABLE,
            Self::Pod(_, error) => error.status(),
            Self::Usage(_)
            | Self::Root(_)
            | Self::Image(_)
            | Self::Pool(..)
            | Self::RootWrite(_)
            | Self::ArtifactMissing(_)
            | Self::ArtifactBad(..)
            | Self::QemuMissing(_)
            | Self::KvmUnusable(_)
            | Self::Host(..) => STATUS_TOOL,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => write!(out, "{text}"),
            Self::ProgramNotOnPath(name) => {
                write!(out, "{}: not found on this host's PATH", name.display())?;
                // As an image's name and tag are written, and hardly a program's name.
                let is_tagged = name.as_encoded_bytes().contains(&b':');
                write!(out, "{}", if is_tagged { "; an image is run by --image (docs/guide/images.md)" } else { "" })
            }
            Self::ProgramMissing(path) => write!(out, "{}: no such file", path.display()),
            Self::ProgramUnfit(path, why) => write!(out, "{}: {why}", path.display()),
            Self::Root(error) => write!(out, "{error}"),
            Self::Image(error) => write!(out, "{error}"),
            Self::Pool(path, error) => write!(out, "{}: {error}", path.display()),
            Self::RootWrite(why) => write!(out, "writing the root image: {why}"),
            Self::ArtifactMissing(path) => {
                write!(out, "{}: not there; build it with `cargo xtask build`, or run ./aegis", path.display())
            }
            Self::ArtifactBad(path, why) => {
                write!(out, "{}: {why}; build it again with `cargo xtask build`", path.display())
            }
            Self::QemuMissing(name) => {
                write!(out, "{}: not found; on Debian and Ubuntu: sudo apt install qemu-system-x86", name.display())
            }
            Self::KvmUnusable(why) => write!(out, "--accel kvm: {why}"),
            Self::Pod(name, error) => write!(out, "{name}: {error}"),
            Self::Host(doing, error) => write!(out, "{doing}: {error}"),
        }
    }
}

/// Why a file cannot be executed by this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A directory.
    Directory,
    /// A device, socket or pipe.
    Special,
    /// No execute permission for this user, or no read permission.
    Permission,
    /// No bytes.
    Empty,
    /// Text without a first line that names an interpreter.
    Text,
    /// The first line names an interpreter that is not there.
    Interpreter(String),
    /// Neither ELF nor a script.
    Unknown,
    /// ELF that ends before its own tables say.
    Truncated,
    /// ELF for another processor.
    Machine(u16),
    /// ELF for 32-bit processors.
    Narrow,
    /// ELF with the other byte order.
    ByteOrder,
    /// A relocatable object or a core file.
    Object,
    /// A shared object without an entry point.
    Library,
}

impl fmt::Display for Unfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => out.write_str("is a directory"),
            Self::Special => out.write_str("is not a regular file"),
            Self::Permission => out.write_str("permission denied"),
            Self::Empty => out.write_str("cannot be executed: the file is empty"),
            Self::Text => out.write_str("cannot be executed: a text file whose first line has no #!"),
            Self::Interpreter(path) => {
                write!(out, "cannot be executed: its interpreter {path} is not there")
            }
            Self::Unknown => out.write_str("cannot be executed: neither ELF nor a script"),
            Self::Truncated => out.write_str("cannot be executed: the ELF file is truncated"),
            Self::Machine(number) => match machine_name(*number) {
                Some(name) => write!(out, "cannot be executed: an ELF file for {name}, and this machine is x86-64"),
                None => write!(out, "cannot be executed: an ELF file for machine {number}, and this one is x86-64"),
            },
            Self::Narrow => out.write_str("cannot be executed: a 32-bit ELF file"),
            Self::ByteOrder => out.write_str("cannot be executed: a big-endian ELF file"),
            Self::Object => out.write_str("cannot be executed: an ELF file that is not a program"),
            Self::Library => out.write_str("cannot be executed: a shared library"),
        }
    }
}

/// Names for the `e_machine` numbers that a user may meet.
fn machine_name(number: u16) -> Option<&'static str> {
    Some(match number {
        2 | 18 | 43 => "SPARC",
        3 => "32-bit x86",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "64-bit PowerPC",
        22 => "S/390",
        40 => "32-bit ARM",
        183 => "AArch64",
        243 => "RISC-V",
        247 => "BPF",
        258 => "LoongArch",
        _ => return None,
    })
}

impl std::error::Error for Error {}

impl From<PackError> for Error {
    fn from(error: PackError) -> Self {
        Self::Root(error)
    }
}

impl From<ImageError> for Error {
    fn from(error: ImageError) -> Self {
        Self::Image(Box::new(error))
    }
}

/// Names the operation that an I/O error interrupted.
pub trait Doing<T> {
    /// Wraps the error of `self` into [`Error::Host`].
    fn doing(self, what: &'static str) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|error| Error::Host(what, error))
    }
}

impl<T> Doing<T> for Result<T, rustix::io::Errno> {
    fn doing(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|error| Error::Host(what, error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, PackError, Unfit};

    #[test]
    fn every_class_has_its_status_and_one_line() {
        let cases = [
            (Error::Usage("x".into()), 125),
            (Error::ProgramNotOnPath("foo".into()), 127),
            (Error::ProgramMissing("./foo".into()), 127),
            (Error::ProgramUnfit("/etc".into(), Unfit::Directory), 126),
            (Error::Root(PackError::UnknownFormat("r".into())), 125),
            (Error::RootWrite("no space".into()), 125),
            (Error::ArtifactMissing("kernel.elf".into()), 125),
            (Error::QemuMissing("qemu".into()), 125),
            (Error::Host("memfd", std::io::ErrorKind::OutOfMemory.into()), 125),
        ];
        for (error, status) in cases {
            assert_eq!(error.status(), status, "{error}");
            assert!(!error.to_string().contains('\n'));
        }
        assert_eq!(Error::ProgramNotOnPath("foo".into()).to_string(), "foo: not found on this host's PATH");
        assert!(Error::ProgramNotOnPath("alpine:3".into()).to_string().contains("--image"));
    }
}
