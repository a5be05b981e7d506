//! A tree of files in two forms: as an EROFS image for Aegis and as an initramfs for Linux.
//!
//! Both lie in the cache under the tree's fingerprint, so an unchanged host finds them there. Times of files are kept
//! in both, because Python compares them.

use std::fs::{self, File, FileTimes};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aegis_launch::errors::Error;
use aegis_launch::root::pack::Packed;
use aegis_launch::root::{fingerprint, write_image};

use super::cpio;
use super::failure::Failure;

const WRITE_BUFFER_BYTES: usize = 1 << 20;
/// Roots that were not used for so long are removed.
const UNUSED_MAX: Duration = Duration::from_secs(7 * 86_400);

/// A root in both forms.
#[derive(Clone, Debug)]
pub(crate) struct RootFiles {
    /// For `aegis run --root`.
    pub(crate) image: PathBuf,
    /// For QEMU's `-initrd`.
    pub(crate) initramfs: PathBuf,
    /// Of the files in it, in MiB: what a machine needs on top of its memory for programs.
    pub(crate) size_mib: u32,
}

impl RootFiles {
    /// Both forms of `packed`, made if they are not in `cache`.
    pub(crate) fn of(cache: &Path, name: &str, packed: &Packed) -> Result<Self, Failure> {
        let directory = cache.join("apps");
        let stem = format!("{name}-{:032x}", fingerprint(&packed.tree));
        let image = directory.join(format!("{stem}.erofs"));
        let initramfs = directory.join(format!("{stem}.cpio"));
        fs::create_dir_all(&directory).map_err(|error| Failure::file("writing", directory.clone(), error))?;
        if !image.is_file() || !initramfs.is_file() {
            remove_unused(&directory);
            write(&image, |file| match write_image(packed, file) {
                Err(Error::Host(_, error)) => Err(WriteError::Io(error)),
                other => other.map_err(WriteError::Tool),
            })?;
            write(&initramfs, |file| {
                let out = BufWriter::with_capacity(WRITE_BUFFER_BYTES, file);
                cpio::write_root(&packed.tree, out).map_err(WriteError::Io)
            })?;
        }
        let used = |path: &Path| -> io::Result<u64> {
            let file = File::open(path)?;
            // Only what is removed some day depends on it.
            let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
            Ok(file.metadata()?.len())
        };
        let bytes = used(&image).and_then(|_| used(&initramfs));
        let bytes = bytes.map_err(|error| Failure::file("reading", initramfs.clone(), error))?;
        Ok(Self { image, initramfs, size_mib: u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX) })
    }
}

enum WriteError {
    Io(io::Error),
    Tool(Error),
}

/// Writes a file that appears when it is whole.
fn write(path: &Path, contents: impl FnOnce(&mut File) -> Result<(), WriteError>) -> Result<(), Failure> {
    let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = File::create(&fresh).map_err(WriteError::Io).and_then(|mut file| contents(&mut file));
    let written = written.and_then(|()| fs::rename(&fresh, path).map_err(WriteError::Io));
    written.map_err(|error| {
        let _ = fs::remove_file(&fresh);
        match error {
            WriteError::Io(error) => Failure::file("writing", path.into(), error),
            WriteError::Tool(error) => Failure::Tool(error),
        }
    })
}

/// Removes what nobody has used for a week: roots of other versions of this tool or of the host's programs.
fn remove_unused(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let is_old = |entry: &fs::DirEntry| {
        let age = entry.metadata().and_then(|it| it.modified()).ok().and_then(|it| it.elapsed().ok());
        age.is_some_and(|age| age > UNUSED_MAX)
    };
    // One that cannot be removed only takes room.
    entries.filter(is_old).for_each(|entry| drop(fs::remove_file(entry.path())));
}
