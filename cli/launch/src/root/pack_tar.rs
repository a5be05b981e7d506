//! Tar files as roots, plain or compressed with gzip (what `docker export` and distributions give).
//!
//! Nothing is unpacked to disk: members are read from the archive when the image is written; a compressed archive is
//! first decompressed into a temporary file that has no name any more. Paths are resolved inside the root as `tar`
//! would resolve them inside its target directory; none can lead out of it. Later members win over earlier ones.
//!
//! Limits: [`SPOOL_BYTES_MAX`] after decompression. Sparse members of the old GNU form are read; what else has no
//! place in a root is left out with a warning.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aegis_image::tree::{Attributes, Content, DeviceNumber, LastLink, NodeId, TreeError};
use tar::EntryType;

use crate::root::pack::{HostData, IMPLIED_DIRECTORY, PackError, Packed, Root, Warning, place};

/// First bytes of a gzip file.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Longest decompressed archive in bytes.
const SPOOL_BYTES_MAX: u64 = 64 << 30;
/// Longest sparse member in bytes; it is expanded in memory.
const SPARSE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a tar header.
const HEADER_BYTES: usize = 512;

/// Packs a tar file.
///
/// # Errors
/// `Io`; `Archive` if it is damaged or empty; `Tree` if there are too many files.
pub(crate) fn pack_tar(path: &Path) -> Result<Packed, PackError> {
    let mut file = File::open(path).map_err(PackError::io(path))?;
    let mut magic = [0; GZIP_MAGIC.len()];
    let is_gzip = file.read_exact(&mut magic).is_ok() && magic == GZIP_MAGIC;
    file.rewind().map_err(PackError::io(path))?;
    if is_gzip {
        file = spool(path, file)?;
    }
    let file = Arc::new(file);
    let length_bytes = file.metadata().map_err(PackError::io(path))?.len();
    let unpacker = Unpacker {
        path,
        tree: Root::new(IMPLIED_DIRECTORY),
        warnings: Vec::new(),
        file: Arc::clone(&file),
        length_bytes,
    };
    unpacker.run(&file)
}

/// True if this looks like a tar header: its checksum is right. Other than the magic word, old archives have that too.
pub(crate) fn is_header(start: &[u8]) -> bool {
    let Some(header) = start.get(..HEADER_BYTES) else {
        return false;
    };
    let stored = header[148..156].iter().skip_while(|byte| **byte == b' ');
    let digits = stored.take_while(|byte| (b'0'..=b'7').contains(byte));
    let expected = digits.fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
    let sum = header
        .iter()
        .enumerate()
        .fold(0_u32, |sum, (index, byte)| sum + u32::from(if (148..156).contains(&index) { b' ' } else { *byte }));
    header[0] != 0 && sum == expected
}

/// Decompresses into a nameless temporary file.
fn spool(path: &Path, compressed: File) -> Result<File, PackError> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!("aegis-{}-{number}.tar", std::process::id());
    let spool_path = std::env::temp_dir().join(name);
    let mut spool = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&spool_path)
        .map_err(PackError::io(&spool_path))?;
    std::fs::remove_file(&spool_path).map_err(PackError::io(&spool_path))?;
    let decoder = flate2::read::MultiGzDecoder::new(io::BufReader::new(compressed));
    let damaged = |reason: String| PackError::Archive { path: path.to_path_buf(), reason };
    let copied = io::copy(&mut decoder.take(SPOOL_BYTES_MAX + 1), &mut spool);
    let copied = copied.map_err(|error| damaged(error.to_string()))?;
    if copied > SPOOL_BYTES_MAX {
        return Err(damaged(format!("more than {SPOOL_BYTES_MAX} bytes after decompression")));
    }
    spool.seek(SeekFrom::Start(0)).map_err(PackError::io(&spool_path))?;
    Ok(spool)
}

struct Unpacker<'a> {
    path: &'a Path,
    tree: Root,
    warnings: Vec<Warning>,
    file: Arc<File>,
    length_bytes: u64,
}

impl Unpacker<'_> {
    fn run(mut self, file: &File) -> Result<Packed, PackError> {
        let mut archive = tar::Archive::new(file);
        let entries = archive.entries_with_seek().map_err(|error| self.damaged(&error))?;
        let mut member_count = 0_u64;
        for entry in entries {
            let mut entry = entry.map_err(|error| self.damaged(&error))?;
            member_count += 1;
            self.member(&mut entry)?;
        }
        if member_count == 0 {
            let reason = "it has no members".to_string();
            return Err(PackError::Archive { path: self.path.to_path_buf(), reason });
        }
        // A root has no file of these names at its top; an archive of an image has nothing else.
        let form = [("manifest.json", "docker-archive"), ("oci-layout", "oci-archive")];
        let is_there = |name: &str| self.tree.lookup(self.tree.root(), name.as_bytes()).is_some();
        let has_programs = ["bin", "usr", "etc", "sbin"].into_iter().any(is_there);
        if let Some((_, transport)) = form.into_iter().find(|(name, _)| !has_programs && is_there(name)) {
            return Err(PackError::ContainerImage { path: self.path.to_path_buf(), transport });
        }
        Ok(Packed { tree: self.tree, warnings: self.warnings })
    }

    fn damaged(&self, error: &io::Error) -> PackError {
        PackError::Archive { path: self.path.to_path_buf(), reason: error.to_string() }
    }

    fn member(&mut self, entry: &mut tar::Entry<'_, &File>) -> Result<(), PackError> {
        let path = entry.path_bytes().into_owned();
        let header = entry.header();
        let attributes = Attributes {
            permissions: (header.mode().map_err(|error| self.damaged(&error))? & 0o7777) as u16,
            uid: header.uid().unwrap_or(0) as u32,
            gid: header.gid().unwrap_or(0) as u32,
            mtime_s: header.mtime().unwrap_or(0).cast_signed(),
            mtime_ns: 0,
        };
        let device = DeviceNumber {
            major: header.device_major().ok().flatten().unwrap_or(0),
            minor: header.device_minor().ok().flatten().unwrap_or(0),
        };
        let content = match header.entry_type() {
            EntryType::Regular | EntryType::Continuous => Content::File(self.piece(entry)?),
            EntryType::GNUSparse => Content::File(self.sparse(entry)?),
            EntryType::Directory => Content::empty_directory(),
            EntryType::Symlink => Content::Symlink(link_name(entry)),
            EntryType::Char => Content::CharacterDevice(device),
            EntryType::Block => Content::BlockDevice(device),
            EntryType::Fifo => Content::Fifo,
            EntryType::Link => return self.hard_link(&path, &link_name(entry)),
            EntryType::XGlobalHeader => return Ok(()),
            _ => {
                self.leave_out(&path, "a kind of member that a root cannot hold");
                return Ok(());
            }
        };
        let is_directory = matches!(content, Content::Directory(_));
        let Some((directory, name)) = self.parent(&path)? else {
            // The archive's own top directory.
            if is_directory {
                self.tree.set_attributes(self.tree.root(), attributes);
            }
            return Ok(());
        };
        if is_directory && self.leads_to_directory(&path) {
            // Like tar, keep a link to a directory when the archive has a directory of that name.
            let existing = self.tree.resolve(&path, LastLink::Follow).map_err(self.at(&path))?;
            self.tree.set_attributes(existing, attributes);
            return Ok(());
        }
        match place(&mut self.tree, directory, &name, attributes, content) {
            Ok(_) => Ok(()),
            Err(TreeError::TooManyNodes) => Err(self.at(&path)(TreeError::TooManyNodes)),
            Err(_) => {
                self.leave_out(&path, "its name or target is invalid or taken by a directory");
                Ok(())
            }
        }
    }

    fn leads_to_directory(&self, path: &[u8]) -> bool {
        let node = self.tree.resolve(path, LastLink::Follow);
        node.is_ok_and(|node| self.tree.node(node).is_directory())
    }

    fn piece(&self, entry: &tar::Entry<'_, &File>) -> Result<HostData, PackError> {
        let (offset_bytes, length_bytes) = (entry.raw_file_position(), entry.size());
        // Skipping by seek does not notice a missing end.
        if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > self.length_bytes) {
            return Err(self.damaged(&io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(HostData::Piece { file: Arc::clone(&self.file), offset_bytes, length_bytes })
    }

    fn sparse(&self, entry: &mut tar::Entry<'_, &File>) -> Result<HostData, PackError> {
        let mut bytes = Vec::new();
        let read = entry.take(SPARSE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.damaged(&error))?;
        if bytes.len() as u64 > SPARSE_BYTES_MAX {
            return Err(self.damaged(&io::ErrorKind::FileTooLarge.into()));
        }
        Ok(HostData::Bytes(bytes))
    }

    fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), PackError> {
        let Ok(node) = self.tree.resolve(target, LastLink::Keep) else {
            self.leave_out(path, "a hard link to nothing");
            return Ok(());
        };
        let Some((directory, name)) = self.parent(path)? else {
            return Ok(());
        };
        match self.tree.lookup(directory, &name) {
            Some(existing) if existing == node => return Ok(()),
            Some(existing) if !self.tree.node(existing).is_directory() => {
                self.tree.remove(directory, &name).map_err(self.at(path))?;
            }
            _ => {}
        }
        if self.tree.link(directory, &name, node).is_err() {
            self.leave_out(path, "a hard link to or over a directory");
        }
        Ok(())
    }

    /// The directory that holds a member, made if it is missing, and the member's name in it; `None` for the root.
    fn parent(&mut self, path: &[u8]) -> Result<Option<(NodeId, Vec<u8>)>, PackError> {
        let names = path.split(|byte| *byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !name.is_empty() && *name != b".").collect();
        let Some((last, above)) = names.split_last() else {
            return Ok(None);
        };
        if *last == b".." {
            return Ok(None);
        }
        let above = above.join(&b'/');
        let directory = self.tree.ensure_directory(&above, IMPLIED_DIRECTORY);
        match directory {
            Ok(directory) => Ok(Some((directory, last.to_vec()))),
            Err(error) => Err(self.at(path)(error)),
        }
    }

    fn at(&self, path: &[u8]) -> impl FnOnce(TreeError) -> PackError + use<> {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        move |error| PackError::Tree { path, error }
    }

    fn leave_out(&mut self, path: &[u8], reason: &'static str) {
        let path = String::from_utf8_lossy(path).into_owned();
        self.warnings.push(Warning::Member { path, reason });
    }
}

fn link_name(entry: &tar::Entry<'_, &File>) -> Vec<u8> {
    entry.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default()
}

#[cfg(test)]
#[path = "pack_tar_tests.rs"]
mod tests;
