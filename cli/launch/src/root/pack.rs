//! Root images from what is on the host: the common part of directories, tar files and host programs.
//!
//! All sources become one [`Root`], a tree whose files are read only when the image is written. Neighbours: `pack_dir`
//! walks directories, `pack_tar` reads archives, `pack_image` takes images apart, `pack_host` puts single host files
//! with what they need into a root. None of them knows the command line.
//!
//! Ownership, permissions, times, links and device nodes are taken over as they are. What cannot be taken over but
//! leaves the rest usable is a [`Warning`]; a source that cannot be used at all is a [`PackError`].

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aegis_image::Sink;
use aegis_image::erofs;
use aegis_image::tree::{Attributes, Content, FileData, NodeId, Tree, TreeError};

/// A root whose file contents are on the host.
pub type Root = Tree<HostData>;

/// Attributes of directories that a source implies but does not describe.
pub const IMPLIED_DIRECTORY: Attributes = Attributes::root_owned(0o755);

/// Where the contents of a file are.
#[derive(Clone, Debug)]
pub enum HostData {
    /// Here.
    Bytes(Vec<u8>),
    /// All of a host file, opened when it is read, so that a large root does not need as many open files.
    Path {
        /// The file.
        path: PathBuf,
        /// Its length when it was found.
        length_bytes: u64,
    },
    /// A range of an open file: a member of an archive.
    Piece {
        /// The archive.
        file: Arc<File>,
        /// Where the member starts.
        offset_bytes: u64,
        /// Length of the member.
        length_bytes: u64,
    },
    /// Pieces of an open file with nothing between them: a sparse member of an archive.
    Sparse {
        /// The archive.
        file: Arc<File>,
        /// Length of the member.
        length_bytes: u64,
        /// What is not zero, in order and without overlap.
        segments: Vec<Segment>,
    },
}

/// A piece of a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it is in the file.
    pub offset_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
    /// Where it is in the archive.
    pub stored_at: u64,
}

/// A host file that could not be read while the image was written.
#[derive(Debug)]
pub struct DataError {
    path: Option<PathBuf>,
    error: io::Error,
}

impl fmt::Display for DataError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(formatter, "{}: {}", path.display(), self.error),
            None => write!(formatter, "archive: {}", self.error),
        }
    }
}

impl std::error::Error for DataError {}

impl FileData for HostData {
    type Error = DataError;

    fn length_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Path { length_bytes, .. } | Self::Piece { length_bytes, .. } | Self::Sparse { length_bytes, .. } => {
                *length_bytes
            }
        }
    }

    fn read_exact_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), DataError> {
        match self {
            Self::Bytes(bytes) => {
                let start = offset_bytes as usize;
                buffer.copy_from_slice(&bytes[start..start + buffer.len()]);
                Ok(())
            }
            Self::Path { path, .. } => File::open(path)
                .and_then(|file| file.read_exact_at(buffer, offset_bytes))
                .map_err(|error| DataError { path: Some(path.clone()), error }),
            Self::Piece { file, offset_bytes: start, .. } => {
                file.read_exact_at(buffer, start + offset_bytes).map_err(|error| DataError { path: None, error })
            }
            Self::Sparse { file, segments, .. } => {
                buffer.fill(0);
                let end = offset_bytes + buffer.len() as u64;
                let first = segments.partition_point(|it| it.offset_bytes + it.length_bytes <= offset_bytes);
                for segment in segments[first..].iter().take_while(|it| it.offset_bytes < end) {
                    let from = segment.offset_bytes.max(offset_bytes);
                    let to = (segment.offset_bytes + segment.length_bytes).min(end);
                    let part = &mut buffer[(from - offset_bytes) as usize..(to - offset_bytes) as usize];
                    let stored_at = segment.stored_at + (from - segment.offset_bytes);
                    file.read_exact_at(part, stored_at).map_err(|error| DataError { path: None, error })?;
                }
                Ok(())
            }
        }
    }
}

/// A packed root and what was left out of it.
#[derive(Debug)]
pub struct Packed {
    /// The files.
    pub tree: Root,
    /// In the order in which they arose.
    pub warnings: Vec<Warning>,
}

/// Something that is not in the root as the user may expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A file or directory that this user cannot read; left out.
    Unreadable(PathBuf),
    /// A shared object or interpreter that was not found on the host.
    MissingLibrary {
        /// Its name as the needing file has it.
        name: String,
        /// The file that needs it.
        needed_by: PathBuf,
    },
    /// A member of an archive that has no place in the root; left out.
    Member {
        /// Its path in the archive.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path) => {
                write!(formatter, "{}: not readable, left out of the root", path.display())
            }
            Self::MissingLibrary { name, needed_by } => {
                write!(formatter, "{name}: not found, needed by {}", needed_by.display())
            }
            Self::Member { path, reason } => write!(formatter, "{path}: {reason}, left out"),
        }
    }
}

/// Why there is no root.
#[derive(Debug)]
pub enum PackError {
    /// The host said no.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The answer of the host.
        error: io::Error,
    },
    /// A path does not fit into the root.
    Tree {
        /// The path in the root.
        path: PathBuf,
        /// The rule that it breaks.
        error: TreeError,
    },
    /// Compressed in a way that is not supported.
    Compression {
        /// The archive.
        path: PathBuf,
        /// The format's name.
        format: &'static str,
    },
    /// Neither directory nor tar file nor image.
    UnknownFormat(PathBuf),
    /// An archive of a container's image, which is no root by itself.
    ContainerImage {
        /// The archive.
        path: PathBuf,
        /// What `--image` calls it.
        transport: &'static str,
    },
    /// A damaged archive.
    Archive {
        /// The archive.
        path: PathBuf,
        /// The damage, for the user.
        reason: String,
    },
    /// A damaged or unsupported image.
    Image {
        /// The image.
        path: PathBuf,
        /// The damage, or the feature.
        error: erofs::read::ReadError,
    },
}

impl PackError {
    /// For `map_err` after a host call on `path`.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::Io { path: path.to_path_buf(), error }
    }

    /// For `map_err` after a change of the tree at `path`.
    pub fn tree(path: &Path) -> impl FnOnce(TreeError) -> Self + '_ {
        move |error| Self::Tree { path: path.to_path_buf(), error }
    }
}

impl fmt::Display for PackError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(formatter, "{}: {error}", path.display()),
            Self::Tree { path, error } => write!(formatter, "{}: {error}", path.display()),
            Self::Compression { path, format } => write!(
                formatter,
                "{}: compressed with {format}; decompress it first (plain tar and gzip are read)",
                path.display()
            ),
            Self::UnknownFormat(path) => {
                write!(formatter, "{}: not a directory, a tar file or an EROFS image", path.display())
            }
            Self::ContainerImage { path, transport } => {
                let path = path.display();
                write!(formatter, "{path}: the image of a container; run it with --image {transport}:{path}")
            }
            Self::Archive { path, reason } => {
                write!(formatter, "{}: damaged archive: {reason}", path.display())
            }
            Self::Image { path, error } => write!(formatter, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for PackError {}

/// What a root option names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootKind {
    /// A directory: `pack_dir`.
    Directory,
    /// A tar file, plain or compressed with gzip: `pack_tar`.
    Tar,
    /// An EROFS image, to be used as it is: [`check_image`], or `pack_image` to add to it.
    Image,
}

/// Finds out by its first bytes what a path is.
///
/// # Errors
/// `Io`, `Compression`, `UnknownFormat`.
pub(crate) fn classify(path: &Path) -> Result<RootKind, PackError> {
    let metadata = std::fs::metadata(path).map_err(PackError::io(path))?;
    if metadata.is_dir() {
        return Ok(RootKind::Directory);
    }
    if !metadata.is_file() {
        return Err(PackError::UnknownFormat(path.to_path_buf()));
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(PackError::io(path))?;
    file.take(4096).read_to_end(&mut start).map_err(PackError::io(path))?;
    let compressed = |format| Err(PackError::Compression { path: path.to_path_buf(), format });
    let super_block = start.get(erofs::SUPER_OFFSET..).unwrap_or_default();
    if super_block.starts_with(&erofs::SUPER_MAGIC.to_le_bytes()) {
        return Ok(RootKind::Image);
    }
    if start.starts_with(&crate::root::pack_tar::GZIP_MAGIC) || crate::root::pack_tar::is_header(&start) {
        return Ok(RootKind::Tar);
    }
    if start.starts_with(b"\xfd7zXZ\0") {
        return compressed("xz");
    }
    if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return compressed("zstd");
    }
    if start.starts_with(b"BZh") {
        return compressed("bzip2");
    }
    Err(PackError::UnknownFormat(path.to_path_buf()))
}

/// Reads an image whole and checks everything in it.
///
/// # Errors
/// `Io`, `Image`.
pub(crate) fn check_image(path: &Path) -> Result<Vec<u8>, PackError> {
    let bytes = std::fs::read(path).map_err(PackError::io(path))?;
    let checked = erofs::read::Image::open(&bytes).and_then(|image| erofs::check::check(&image).map(|_| ()));
    match checked {
        Ok(()) => Ok(bytes),
        Err(error) => Err(PackError::Image { path: path.to_path_buf(), error }),
    }
}

/// A [`Sink`] over anything the standard library can write to.
#[derive(Debug)]
pub(crate) struct WriteSink<W>(pub W);

impl<W: Write> Sink for WriteSink<W> {
    type Error = io::Error;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), io::Error> {
        self.0.write_all(bytes)
    }
}

/// The attributes of a host file.
pub(crate) fn attributes_of(metadata: &Metadata) -> Attributes {
    Attributes {
        permissions: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime_s: metadata.mtime(),
        // Always below 1e9.
        mtime_ns: metadata.mtime_nsec() as u32,
    }
}

/// Puts a node at a name, over what is there: directories are merged, other nodes replaced.
///
/// # Errors
/// `IsDirectory` if the new node is none and a directory with entries is in its place; what `Tree::add` says.
pub fn place(
    tree: &mut Root,
    directory: NodeId,
    name: &[u8],
    attributes: Attributes,
    content: Content<HostData>,
) -> Result<NodeId, TreeError> {
    if let Some(existing) = tree.lookup(directory, name) {
        match (tree.node(existing).content(), &content) {
            (Content::Directory(_), Content::Directory(_)) => {
                tree.set_attributes(existing, attributes);
                return Ok(existing);
            }
            (Content::Directory(entries), _) if !entries.is_empty() => {
                return Err(TreeError::IsDirectory);
            }
            _ => tree.remove(directory, name)?,
        }
    }
    tree.add(directory, name, attributes, content)
}

/// Bytes of a path for the tree.
pub(crate) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
#[path = "pack_scratch_tests.rs"]
pub mod scratch;

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
