//! The root image of a run: what goes in, and whether it has to be written at all.
//!
//! Sources become a tree (`pack` and its neighbours), which is cheap because contents are not read. The
//! tree's *fingerprint* covers names, attributes and where contents are with their lengths and times, so an
//! unchanged source finds its image in the cache and no content is read. An archive or image alone is known
//! by its own file and not even opened.

mod closure;
mod closure_cache;
pub mod pack;
mod pack_dir;
pub mod pack_host;
mod pack_image;
mod pack_tar;
pub mod system;

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aegis_image::erofs::write::Layout;
use aegis_image::tree::{Content, FileData, NodeId};

use crate::cache::{Cache, KeyHasher};
use crate::errors::{Doing, Error};
use crate::machine::boot::{RootImage, memory_file};
use crate::root::pack::{HostData, Packed, Root, RootKind, WriteSink};
use crate::root::pack_dir::pack_dir;
use crate::root::pack_host::{HostRoot, split_with};
use crate::root::pack_image::pack_image;
use crate::root::pack_tar::pack_tar;

/// `--with HOST[:GUEST]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct With {
    /// File or directory of the host.
    pub host: PathBuf,
    /// Its absolute path in the machine; by default the host's.
    pub guest: Option<PathBuf>,
}

/// Parses `--with`.
///
/// # Errors
/// What is wrong with it.
pub fn parse_with(text: OsString) -> Result<With, String> {
    if text.is_empty() {
        return Err("HOST is empty".into());
    }
    let (host, guest) = split_with(&text);
    Ok(With { host, guest: guest.map(|path| OsString::from_vec(path).into()) })
}

/// Part of every key: a change of what images look like changes it, and old ones are not found any more.
const FORMAT: &[u8] = b"aegis root 1";
/// What the machine is called, in the root and by `uname`.
pub const HOSTNAME: &[u8] = b"aegis";
/// Name of the note that lists images which were checked and found sound.
const CHECKED_NOTE: &str = "checked-images";
/// How many of them are remembered.
const CHECKED_COUNT_MAX: usize = 64;
/// Bytes that are written at a time.
const WRITE_BUFFER_BYTES: usize = 256 * 1024;

/// Where the root comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// This program of the host, and what it needs.
    Program(&'a Path),
    /// The same where the host's system shows below: with what is shown of `/etc`.
    InSystem(&'a Path),
    /// Nothing: what is added shows over this host's own root.
    OverHost,
    /// `--root`, packed.
    Given(&'a Path),
}

/// Whether a `--root` that may be served live is one: a directory is.
pub fn is_directory(path: &Path) -> Result<bool, Error> {
    Ok(pack::classify(path)? == RootKind::Directory)
}

/// A root image, and what the user should know about it.
#[derive(Debug)]
pub struct Prepared {
    /// The image, in the cache or of this run alone.
    pub image: RootImage,
    /// What was left out.
    pub warnings: Vec<String>,
    /// It was found in the cache.
    pub was_cached: bool,
}

/// Makes or finds the image.
pub fn prepare(source: Source<'_>, with: &[With], cache: Option<&Cache>) -> Result<Prepared, Error> {
    let kind = match source {
        Source::Program(_) | Source::InSystem(_) | Source::OverHost => None,
        Source::Given(path) => Some((path, pack::classify(path)?)),
    };
    if let (Some((path, RootKind::Image)), []) = (kind, with) {
        return given_image(path, cache);
    }
    // An archive alone is known by its file; anything else by the tree.
    let archive_key = match (kind, with) {
        (Some((path, RootKind::Tar)), []) => Some(file_key(path)?),
        _ => None,
    };
    if let Some(file) = archive_key.and_then(|key| cache?.root(key)) {
        return Ok(Prepared { image: image_of(file)?, warnings: Vec::new(), was_cached: true });
    }
    let packed = pack_all(source, kind, with)?;
    let warnings = packed.warnings.iter().map(ToString::to_string).collect();
    let key = archive_key.unwrap_or_else(|| fingerprint(&packed.tree));
    if let Some(file) = cache.and_then(|cache| cache.root(key)) {
        return Ok(Prepared { image: image_of(file)?, warnings, was_cached: true });
    }
    let file = match cache {
        Some(cache) => match cache.store_root(key, |file| write_image(&packed, file)) {
            // A cache that is full or read-only must not stop the run.
            Err(Error::Host(..)) => write_to_memory(&packed)?,
            other => other?,
        },
        None => write_to_memory(&packed)?,
    };
    Ok(Prepared { image: image_of(file)?, warnings, was_cached: false })
}

/// The tree of everything that goes in.
fn pack_all(source: Source<'_>, given: Option<(&Path, RootKind)>, with: &[With]) -> Result<Packed, Error> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut root = match (source, given) {
        (Source::Program(program) | Source::InSystem(program), _) => {
            let mut root = HostRoot::minimal(HOSTNAME, &search);
            root.add_program(program)?;
            if matches!(source, Source::InSystem(_)) {
                system::add_usual(&mut root, program, &search)?;
                system::add_etc(&mut root, Path::new("/etc"), rustix::process::getuid().as_raw())?;
            }
            root
        }
        (Source::OverHost, _) => HostRoot::over_host(&search)?,
        (Source::Given(path), given) => {
            let packed = match given.map(|(_, kind)| kind) {
                Some(RootKind::Directory) => pack_dir(path)?,
                Some(RootKind::Tar) => pack_tar(path)?,
                Some(RootKind::Image) | None => pack_image(path)?,
            };
            if with.is_empty() {
                return Ok(packed);
            }
            HostRoot::over(packed, &search)
        }
    };
    for With { host, guest } in with {
        root.with(host, guest.as_deref().map(pack::bytes_of))?;
    }
    Ok(root.finish()?)
}

/// An image that the user made is used as it is, once everything in it has been checked.
fn given_image(path: &Path, cache: Option<&Cache>) -> Result<Prepared, Error> {
    let key = format!("{:032x}", file_key(path)?);
    let notes = cache.and_then(|cache| cache.note(CHECKED_NOTE)).unwrap_or_default();
    let was_cached = notes.lines().any(|line| line == key);
    if !was_cached {
        pack::check_image(path)?;
        if let Some(cache) = cache {
            let old = notes.lines().take(CHECKED_COUNT_MAX - 1).map(|line| format!("{line}\n"));
            cache.set_note(CHECKED_NOTE, &format!("{key}\n{}", old.collect::<String>()));
        }
    }
    let file = File::open(path).doing("opening the root image")?;
    Ok(Prepared { image: image_of(file)?, warnings: Vec::new(), was_cached })
}

fn image_of(file: File) -> Result<RootImage, Error> {
    let size_bytes = file.metadata().doing("reading the root image")?.len();
    Ok(RootImage { file, size_bytes })
}

fn write_to_memory(packed: &Packed) -> Result<File, Error> {
    let mut file = memory_file("aegis-root")?;
    write_image(packed, &mut file)?;
    Ok(file)
}

/// Writes a root as an EROFS image.
pub fn write_image(packed: &Packed, file: &mut File) -> Result<(), Error> {
    use aegis_image::erofs::write::WriteError;
    let what = "writing the root image";
    let layout = Layout::new(&packed.tree).ok_or_else(|| Error::RootWrite("more than an image can hold".into()))?;
    let mut sink = WriteSink(BufWriter::with_capacity(WRITE_BUFFER_BYTES, &mut *file));
    layout.write(&mut sink).map_err(|error| match error {
        WriteError::Sink(error) => Error::Host(what, error),
        other => Error::RootWrite(other.to_string()),
    })?;
    sink.0.flush().doing(what)
}

impl From<io::Error> for Error {
    /// For the cache, which is generic over its caller's errors.
    fn from(error: io::Error) -> Self {
        Self::Host("writing to the cache", error)
    }
}

/// Names a file of the host by its place and everything that changes when it is written.
fn file_key(path: &Path) -> Result<u128, Error> {
    let whole = std::fs::canonicalize(path).doing("reading the root")?;
    let metadata = std::fs::metadata(&whole).doing("reading the root")?;
    let mut hasher = KeyHasher::default();
    hasher.add(FORMAT).add(whole.as_os_str().as_bytes());
    add_metadata(&mut hasher, &metadata);
    Ok(hasher.key())
}

fn add_metadata(hasher: &mut KeyHasher, metadata: &Metadata) {
    hasher.add_u64(metadata.dev()).add_u64(metadata.ino()).add_u64(metadata.len());
    hasher.add(&metadata.mtime().to_le_bytes()).add(&metadata.mtime_nsec().to_le_bytes());
    hasher.add(&metadata.ctime().to_le_bytes()).add(&metadata.ctime_nsec().to_le_bytes());
}

/// Names a tree. Walks it in the order of names with a stack of its own; a node met again is a hard link.
pub fn fingerprint(tree: &Root) -> u128 {
    let mut hasher = KeyHasher::default();
    hasher.add(FORMAT);
    let mut stack: Vec<NodeId> = vec![tree.root()];
    let mut seen = std::collections::HashMap::new();
    while let Some(id) = stack.pop() {
        let met = seen.len() as u64;
        if let Some(number) = seen.get(&id) {
            hasher.add(b"again").add_u64(*number);
            continue;
        }
        seen.insert(id, met);
        let node = tree.node(id);
        let attributes = &node.attributes;
        hasher.add_u64(attributes.permissions.into());
        hasher.add_u64(u64::from(attributes.uid) << 32 | u64::from(attributes.gid));
        hasher.add(&attributes.mtime_s.to_le_bytes()).add_u64(attributes.mtime_ns.into());
        match node.content() {
            Content::Directory(entries) => {
                hasher.add(b"directory").add_u64(entries.len() as u64);
                for (name, child) in entries {
                    hasher.add(name);
                    stack.push(*child);
                }
            }
            Content::File(data) => add_data(&mut hasher, data),
            Content::Symlink(target) => {
                hasher.add(b"link").add(target);
            }
            Content::CharacterDevice(number) => {
                hasher.add(b"character").add_u64(number.major.into()).add_u64(number.minor.into());
            }
            Content::BlockDevice(number) => {
                hasher.add(b"block").add_u64(number.major.into()).add_u64(number.minor.into());
            }
            Content::Fifo => {
                hasher.add(b"fifo");
            }
            Content::Socket => {
                hasher.add(b"socket");
            }
        }
    }
    hasher.key()
}

fn add_data(hasher: &mut KeyHasher, data: &HostData) {
    hasher.add_u64(data.length_bytes());
    let mut add_file = |metadata: io::Result<Metadata>| match metadata {
        Ok(metadata) => add_metadata(hasher, &metadata),
        // It will fail when it is read, and nothing will be stored.
        Err(_) => drop(hasher.add(b"unreadable")),
    };
    match data {
        HostData::Bytes(bytes) => drop(hasher.add(b"bytes").add(bytes)),
        HostData::Path { path, .. } => {
            // The node's own time may be another than the file's, so ask the file.
            add_file(std::fs::metadata(path));
            hasher.add(path.as_os_str().as_bytes());
        }
        HostData::Piece { file, offset_bytes, .. } => {
            add_file(file.metadata());
            hasher.add_u64(*offset_bytes);
        }
        HostData::Sparse { file, segments, .. } => {
            add_file(file.metadata());
            for segment in segments {
                hasher.add_u64(segment.offset_bytes).add_u64(segment.length_bytes).add_u64(segment.stored_at);
            }
        }
    }
}

/// Where `-w` may point: an absolute path, which the machine checks.
pub fn working_directory(path: &Path) -> Result<PathBuf, Error> {
    if path.is_absolute() {
        Ok(path.to_path_buf())
    } else {
        Err(Error::Usage(format!("-w {}: must be an absolute path", path.display())))
    }
}
