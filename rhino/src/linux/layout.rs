//! Where a database's segment and log lie: in a file and another beside it, or on one disk.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{FileMedium, is_disk};
use super::memory::{Mapped, lock_file, random};
use crate::bytes::{put, u32_at, u64_at};
use crate::error::Error;
use crate::log::{LOG_BYTES_MIN, hash};
use crate::medium::{Medium, MediumError};
use crate::memory::PAGE_BYTES;
use crate::store::{AREA_BYTES_MAX, Options, Report, Store};

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a log that is made beside a file.
    pub log_bytes: u64,
    /// The store's.
    pub options: Options,
}

impl Default for Settings {
    fn default() -> Self {
        Self { log_bytes: LOG_BYTES_USUAL, options: Options::default() }
    }
}

/// A store over files, or a disk.
pub(super) type FileStore = Store<Arc<FileMedium>, Mapped>;

const LOG_BYTES_USUAL: u64 = 16 << 20;
const DISK_MAGIC: u64 = u64::from_le_bytes(*b"rhinodsk");
const DISK_VERSION: u32 = 1;
/// The head's block, and what of it is used.
const HEAD_BYTES: usize = 4096;
const HASH_AT: usize = 40;

pub(super) fn io_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull => Error::Medium(MediumError::NoSpace),
        io::ErrorKind::AlreadyExists | io::ErrorKind::WouldBlock => Error::Busy,
        io::ErrorKind::NotFound => Error::NoSegment,
        io::ErrorKind::OutOfMemory => Error::NoMemory,
        io::ErrorKind::InvalidInput => Error::OutOfRange,
        _ => Error::Medium(MediumError::Io),
    }
}

/// What lies beside a file: its log, its area.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Bytes of a disk's parts, in their order.
#[derive(Clone, Copy)]
struct Lengths {
    segment: u64,
    log: u64,
    area: u64,
}

/// The parts of a database.
struct Parts {
    log: Arc<FileMedium>,
    segment: Arc<FileMedium>,
    area: Option<Arc<FileMedium>>,
}

impl Parts {
    fn of_disk(disk: &FileMedium, lengths: Lengths) -> Result<Self, MediumError> {
        let mut first = HEAD_BYTES as u64;
        let mut next = |length: u64| {
            let part = disk.part(first, length)?;
            first += length;
            Ok::<_, MediumError>(Arc::new(part))
        };
        let (segment, log) = (next(lengths.segment)?, next(lengths.log)?);
        let area = if lengths.area > 0 { Some(next(lengths.area)?) } else { None };
        Ok(Self { log, segment, area })
    }

    /// Makes the log: what the segment holds is the first state.
    fn create(self, options: Options) -> Result<(), Error> {
        let log_id = random().map_err(io_error)?;
        let segments = std::vec![self.segment];
        match self.area {
            Some(area) => Store::<_, Mapped>::create_doubled(self.log, segments, area, log_id, options).map(drop),
            None => Store::<_, Mapped>::create(self.log, segments, log_id, options).map(drop),
        }
    }

    fn open(self, options: Options) -> Result<(Arc<FileMedium>, FileStore, Report), Error> {
        let (log, segments) = (Arc::clone(&self.log), std::vec![self.segment]);
        let (store, report) = match self.area {
            Some(area) => Store::open_doubled(self.log, segments, area, options)?,
            None => Store::open(self.log, segments, options)?,
        };
        Ok((log, store, report))
    }
}

/// Makes a database of zeros, with an area if it is to be doubled.
pub(super) fn create(path: &Path, bytes: u64, is_doubled: bool) -> Result<(), Error> {
    if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES as u64) {
        return Err(Error::OutOfRange);
    }
    if is_disk(path) {
        return create_on_disk(path, bytes, is_doubled);
    }
    FileMedium::create(path, bytes).map_err(io_error)?;
    if is_doubled {
        let area = beside(path, ".area");
        let _ = fs::remove_file(&area);
        FileMedium::create(&area, AREA_BYTES_MAX).map_err(io_error)?;
    }
    Ok(())
}

fn create_on_disk(path: &Path, segment: u64, is_doubled: bool) -> Result<(), Error> {
    let disk = FileMedium::open_disk(path).map_err(io_error)?;
    lock_file(disk.descriptor()).map_err(io_error)?;
    if read_head(&disk)?.is_some() {
        return Err(Error::Busy);
    }
    let area = if is_doubled { AREA_BYTES_MAX } else { 0 };
    let used = segment.checked_add(HEAD_BYTES as u64 + area);
    let rest = used.and_then(|used| disk.capacity_bytes().checked_sub(used)).unwrap_or(0);
    let log = rest.min(LOG_BYTES_USUAL) & !(PAGE_BYTES as u64 - 1);
    if log < LOG_BYTES_MIN {
        return Err(Error::Medium(MediumError::NoSpace));
    }
    let parts = Parts::of_disk(&disk, Lengths { segment, log, area })?;
    parts.segment.clear()?;
    parts.create(Options::default())?;
    // The head comes last: there is a database when all of it is there.
    let mut head = [0; HEAD_BYTES];
    put(&mut head, 0, &DISK_MAGIC.to_le_bytes());
    put(&mut head, 8, &DISK_VERSION.to_le_bytes());
    for (place, length) in [segment, log, area].into_iter().enumerate() {
        put(&mut head, 16 + 8 * place, &length.to_le_bytes());
    }
    let sealed = hash(&head[..HASH_AT]);
    put(&mut head, HASH_AT, &sealed.to_le_bytes());
    disk.write(0, &head)?;
    Ok(disk.flush()?)
}

/// How long the parts are, if there is a database on the disk.
fn read_head(disk: &FileMedium) -> Result<Option<Lengths>, Error> {
    let mut head = [0; HEAD_BYTES];
    disk.read(0, &mut head)?;
    let is_whole = u64_at(&head, 0) == DISK_MAGIC && u64_at(&head, HASH_AT) == hash(&head[..HASH_AT]);
    let [segment, log, area] = [16, 24, 32].map(|at| u64_at(&head, at));
    Ok((is_whole && u32_at(&head, 8) == DISK_VERSION).then_some(Lengths { segment, log, area }))
}

/// Opens a database, and makes the log of a file if there is none; the log's medium is for flushes without the store.
pub(super) fn open(path: &Path, settings: Settings) -> Result<(Arc<FileMedium>, FileStore, Report), Error> {
    if is_disk(path) {
        let disk = FileMedium::open_disk(path).map_err(io_error)?;
        lock_file(disk.descriptor()).map_err(io_error)?;
        let lengths = read_head(&disk)?.ok_or(Error::NoSegment)?;
        return Parts::of_disk(&disk, lengths)?.open(settings.options);
    }
    let segment = Arc::new(FileMedium::open(path).map_err(io_error)?);
    lock_file(segment.descriptor()).map_err(io_error)?;
    let (log_path, area_path) = (beside(path, ".log"), beside(path, ".area"));
    let area = if area_path.exists() { Some(FileMedium::open(&area_path).map_err(io_error)?) } else { None };
    let area = area.map(Arc::new);
    if !log_path.exists() {
        // It has its name when it is whole.
        let draft = log_path.with_extension("log-draft");
        let _ = fs::remove_file(&draft);
        let log = Arc::new(FileMedium::create(&draft, settings.log_bytes).map_err(io_error)?);
        Parts { log, segment: Arc::clone(&segment), area: area.clone() }.create(settings.options)?;
        fs::rename(&draft, &log_path).map_err(io_error)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error)?;
    }
    let log = Arc::new(FileMedium::open(&log_path).map_err(io_error)?);
    Parts { log, segment, area }.open(settings.options)
}
