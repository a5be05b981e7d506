//! Where running machines are found: a directory of the user's own, with a socket for each machine by its name.
//!
//! The directory is `$XDG_RUNTIME_DIR/aegis`, or `/tmp/aegis-UID`; only its owner may enter it, or it is not used. A
//! machine's socket exists while its tool listens; one that a killed tool left behind is recognised, because nothing
//! answers there, and taken away. A tool holds a lock while it takes or gives a name, so two do not take the same.

use std::fmt;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use aegis_link::pods::is_name;
use rustix::fs::{FlockOperation, flock};

use crate::remote::{record, socket};

const LOCK: &str = ".lock";
const SUFFIX: &str = "sock";
/// Machines that are given the same name without being asked: `name`, `name-2`, ….
const SAME_NAME_COUNT_MAX: u32 = 99;
/// Longest name that is made of a file's, so that a number fits behind it.
const STEM_BYTES_MAX: usize = 28;

/// Why a machine has no place.
#[derive(Debug)]
pub(crate) enum AddressError {
    /// The directory cannot be used.
    Directory(PathBuf, io::Error),
    /// It is there, but is not this user's alone.
    NotPrivate(PathBuf),
    /// A machine of this name runs.
    Taken(String),
    /// The socket cannot be made.
    Socket(PathBuf, io::Error),
}

impl fmt::Display for AddressError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path, error) | Self::Socket(path, error) => write!(out, "{}: {error}", path.display()),
            Self::NotPrivate(path) => write!(out, "{}: not a directory of this user's alone", path.display()),
            Self::Taken(name) => write!(out, "a machine called {name} runs already"),
        }
    }
}

/// How a machine wants to be called.
#[derive(Clone, Debug)]
pub(crate) enum NameChoice {
    /// So and not otherwise.
    Exactly(String),
    /// So, or with a number.
    About(String),
}

impl NameChoice {
    /// What `--name` says, or what the file is called.
    pub(crate) fn new(name: Option<&str>, file: &Path) -> Self {
        if let Some(name) = name {
            return Self::Exactly(name.to_owned());
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let name: String = stem.chars().map(plain).take(STEM_BYTES_MAX).collect();
        let name = name.trim_start_matches('-');
        Self::About(if is_name(name) { name.to_owned() } else { "machine".to_owned() })
    }

    /// The name that is tried first.
    pub(crate) fn first(&self) -> String {
        let (Self::Exactly(name) | Self::About(name)) = self;
        name.clone()
    }

    fn candidates(&self) -> Vec<String> {
        match self {
            Self::Exactly(name) => vec![name.clone()],
            Self::About(name) => {
                let numbered = (2..=SAME_NAME_COUNT_MAX).map(|number| format!("{name}-{number}"));
                std::iter::once(name.clone()).chain(numbered).collect()
            }
        }
    }
}

/// The directory, made if it is not there.
fn directory() -> Result<PathBuf, AddressError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let user = rustix::process::geteuid().as_raw();
    let path = match runtime {
        Some(runtime) => runtime.join("aegis"),
        None => PathBuf::from(format!("/tmp/aegis-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(AddressError::Directory(path, error)),
        _ => {}
    }
    match std::fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 => Ok(path),
        Ok(_) => Err(AddressError::NotPrivate(path)),
        Err(error) => Err(AddressError::Directory(path, error)),
    }
}

fn locked(directory: &Path) -> Result<File, AddressError> {
    let path = directory.join(LOCK);
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.and_then(|file| Ok(flock(&file, FlockOperation::LockExclusive).map(|()| file)?));
    lock.map_err(|error| AddressError::Directory(path, error))
}

/// Whether somebody listens there; a socket where nobody does is taken away.
fn is_alive(path: &Path) -> bool {
    match socket::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // If it stays, binding says so.
            let _ = std::fs::remove_file(path);
            false
        }
        // More callers wait there than fit. Any other error is no sign of life; if something is there, binding says so.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        Ok(_) => true,
    }
}

/// A machine's place, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Address {
    /// Non-blocking.
    pub(crate) listener: UnixListener,
    /// The machine's name.
    pub(crate) name: String,
    path: PathBuf,
}

impl Address {
    /// Takes a place.
    pub(crate) fn take(wanted: &NameChoice) -> Result<Self, AddressError> {
        let directory = directory()?;
        let _lock = locked(&directory)?;
        let candidates = wanted.candidates();
        let free = candidates.iter().map(|name| (name, socket_of(&directory, name))).find(|(_, path)| !is_alive(path));
        let Some((name, path)) = free else {
            return Err(AddressError::Taken(candidates.first().cloned().unwrap_or_default()));
        };
        let listener = socket::bind(&path).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        // Another machine of this name is meant from now on.
        let _ = std::fs::remove_file(record::place_of(&path));
        match listener {
            Ok(listener) => Ok(Self { listener, name: name.clone(), path }),
            Err(error) => Err(AddressError::Socket(path, error)),
        }
    }
}

impl Address {
    /// Where the machine's record is left.
    pub(crate) fn record(&self) -> PathBuf {
        record::place_of(&self.path)
    }
}

/// The machines that have ended and left a record, by name, the newest first.
pub(crate) fn ended() -> Result<Vec<(String, PathBuf)>, AddressError> {
    directory().map(|directory| record::all(&directory))
}

impl Drop for Address {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn socket_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.{SUFFIX}"))
}

/// The machines that run, by name.
pub(crate) fn running() -> Result<Vec<(String, PathBuf)>, AddressError> {
    let directory = directory()?;
    let _lock = locked(&directory)?;
    let entries = std::fs::read_dir(&directory).map_err(|error| AddressError::Directory(directory, error))?;
    let mut found: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.strip_suffix('.')?.to_owned();
            (is_name(&name) && is_alive(&path)).then_some((name, path))
        })
        .collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{NameChoice, is_alive};
    use std::path::Path;

    #[test]
    fn only_who_answers_lives() {
        let folder = std::env::temp_dir().join(format!("aegis-alive-{}", std::process::id()));
        let folder = folder.join("x".repeat(120));
        std::fs::create_dir_all(&folder).expect("writable");
        let path = folder.join("a.sock");
        assert!(!is_alive(&path), "nothing is there");
        let listener = super::socket::bind(&path).expect("bound");
        assert!(is_alive(&path));
        drop(listener);
        assert!(!is_alive(&path) && !path.exists(), "what was left is taken away");
        assert!(!is_alive(&folder.join("n".repeat(200))), "no socket can have this name");
        std::fs::remove_dir_all(folder.parent().expect("ours")).expect("ours");
    }

    #[test]
    fn names_come_of_files_and_are_plain() {
        let first = |file: &str| NameChoice::new(None, Path::new(file)).candidates()[0].clone();
        assert_eq!(first("/x/shop.toml"), "shop");
        assert_eq!(first("my shop.v2.toml"), "my-shop-v2");
        assert_eq!(first("-.toml"), "machine");
        assert_eq!(first(&format!("{}.toml", "x".repeat(50))), "x".repeat(28));
        let all = NameChoice::new(None, Path::new("a.toml")).candidates();
        assert_eq!((all.len(), all[1].as_str()), (99, "a-2"));
        assert_eq!(NameChoice::new(Some("b"), Path::new("a.toml")).candidates(), ["b"]);
    }
}
