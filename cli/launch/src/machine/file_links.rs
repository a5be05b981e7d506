//! Directories that the tool makes beside single files that are to be written, each with a hard link to its file, and
//! what becomes of those whose tool was killed.
//!
//! A tool holds its directory's lock for as long as it lives, so a directory that nobody has locked is nobody's; the
//! number in the name is no sign of that, because another namespace counts processes anew. Whoever makes a directory
//! takes away what is nobody's beside it. Of what is in there only names of files that have another one go: what a
//! program left under its last name is never deleted by a run that knows nothing of it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// What their names begin with; two numbers follow.
const PREFIX: &str = ".aegis-";
/// Names that are tried for a directory.
const TRIES: u32 = 100;
/// Most names beside a file, and in a directory, that are looked at.
const LOOK_COUNT_MAX: usize = 1 << 16;

/// A directory beside a file, with a link to it; it goes with this.
#[derive(Debug)]
pub(super) struct FileLink {
    pub(super) directory: PathBuf,
    /// Keeps the directory from others who clear up.
    _lock: File,
}

impl PartialEq for FileLink {
    fn eq(&self, other: &Self) -> bool {
        self.directory == other.directory
    }
}

impl Eq for FileLink {}

/// Copies a file with its mode, and its owner and time as far as this user may.
fn copy_whole(file: &Path, copy: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(file)?;
    std::fs::copy(file, copy)?;
    let _ = std::os::unix::fs::chown(copy, Some(metadata.uid()), Some(metadata.gid()));
    let copied = File::open(copy)?;
    metadata.modified().and_then(|modified| copied.set_modified(modified))
}

impl FileLink {
    /// One beside the file, for what is to be written to it.
    pub(super) fn make(file: &Path) -> io::Result<Self> {
        Self::make_in(file.parent().unwrap_or(Path::new("/")), file, |file, link| std::fs::hard_link(file, link))
    }

    /// One that holds a copy, for what nobody changes: where programs of this user keep what goes with them, which for
    /// an engine's container is the container's own directory.
    pub(super) fn copy(file: &Path) -> io::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
        let parent = runtime.unwrap_or_else(std::env::temp_dir);
        Self::make_in(&parent, file, copy_whole)
    }

    fn make_in(parent: &Path, file: &Path, put: impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<Self> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = file.file_name().unwrap_or_default();
        clear(parent);
        for _ in 0..TRIES {
            let number = LAST.fetch_add(1, Ordering::Relaxed);
            let directory = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Until the lock is taken it may be cleared away, which shows in the next step.
            let linked = open(&directory).and_then(|lock| {
                flock(&lock, FlockOperation::LockExclusive)?;
                put(file, &directory.join(name)).map(|()| lock)
            });
            match linked {
                Ok(lock) => return Ok(Self { directory, _lock: lock }),
                Err(error) if error.kind() == io::ErrorKind::NotFound && file.exists() => {}
                Err(error) => {
                    let _ = std::fs::remove_dir(&directory);
                    return Err(error);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for FileLink {
    fn drop(&mut self) {
        // What cannot be removed was made so by the program, and is only in the way.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn open(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::empty())?.into())
}

/// Whether a name is one of those that [`FileLink::make`] gives.
fn is_ours(name: &[u8]) -> bool {
    let numbers = name.strip_prefix(PREFIX.as_bytes()).map(|rest| rest.split(|byte| *byte == b'-'));
    numbers.is_some_and(|numbers| {
        let is_number = |text: &[u8]| (1..=10).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
        numbers.clone().count() == 2 && numbers.into_iter().all(is_number)
    })
}

/// Takes away what tools that were killed have left in a directory. What cannot be is left: it is only in the way.
fn clear(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.take(LOOK_COUNT_MAX).filter_map(io::Result::ok) {
        if is_ours(entry.file_name().as_bytes()) {
            let _ = clear_one(&entry.path());
        }
    }
}

fn clear_one(directory: &Path) -> io::Result<()> {
    let lock = open(directory)?;
    if lock.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    for entry in std::fs::read_dir(directory)?.take(LOOK_COUNT_MAX) {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && metadata.nlink() > 1 {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::{FileLink, is_ours};
    use std::fs;

    #[test]
    fn only_names_that_are_made_here_are_taken_for_such() {
        for name in [".aegis-1-0", ".aegis-4194304-17"] {
            assert!(is_ours(name.as_bytes()), "{name}");
        }
        for name in [".aegis-", ".aegis-1", ".aegis-1-", ".aegis-1-2-3", ".aegis-1-x", "aegis-1-2", ".aegis-+1-2"] {
            assert!(!is_ours(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn what_a_killed_tool_left_is_cleared_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("aegis-links-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let file = folder.join("file");
        fs::write(&file, "text").expect("writable");
        let living = FileLink::make(&file).expect("a link");
        let left = |name: &str| {
            let directory = folder.join(name);
            fs::create_dir(&directory).expect("made");
            fs::hard_link(&file, directory.join("file")).expect("linked");
            directory
        };
        // Numbers of processes that live elsewhere, or not at all, say nothing: the lock does.
        let (killed, kept, other) = (left(".aegis-1-0"), left(".aegis-99999999-1"), left(".aegis-mine"));
        fs::write(kept.join("only-here"), "data").expect("writable");
        let target = folder.join("target");
        fs::create_dir(&target).expect("made");
        fs::hard_link(&file, target.join("file")).expect("linked");
        std::os::unix::fs::symlink(&target, folder.join(".aegis-2-2")).expect("linked");
        let next = FileLink::make(&file).expect("a link");
        assert!(!killed.exists() && living.directory.join("file").exists() && next.directory.join("file").exists());
        assert!(!kept.join("file").exists() && kept.join("only-here").exists(), "the last name of data stays");
        assert!(other.join("file").exists() && target.join("file").exists(), "not ours, and not followed");
        drop((living, next));
        assert_eq!(fs::read_to_string(&file).expect("there"), "text");
        fs::remove_dir_all(folder).expect("ours");
    }
}
