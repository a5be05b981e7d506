//! An image in a directory or an archive of the host: its documents read and checked, its layers not yet.
//!
//! Paths out of an image are never paths of the host: in an archive they are names of members, in a directory they are
//! made of a digest, which is digits.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tar::EntryType;

use crate::images::digest::{Digest, read_checked};
use crate::images::documents::{
    DOCUMENT_BYTES_MAX, Descriptor, Document, IMAGE_NAME, ImageConfig, REFERENCE_NAME, archived_images, choose,
    document, image_config,
};
use crate::images::errors::{ImageError, WhileDoing, shown};
use crate::images::layer::Expected;
use crate::images::members::Members;
use crate::images::source::Reference;

/// Indexes within indexes that are followed.
const NESTING_MAX: usize = 4;
/// Links within an archive that are followed.
const LINK_FOLLOW_MAX: usize = 8;

type Result<T> = std::result::Result<T, ImageError>;

/// An image whose documents were read.
pub(crate) struct Located {
    /// Digest of its configuration, which is its identifier.
    pub(crate) id: Digest,
    /// The configuration's text.
    pub(crate) config_bytes: Vec<u8>,
    pub(crate) config: ImageConfig,
    /// Its layers, the lowest first.
    pub(crate) layers: Vec<Expected>,
    /// Its name, where it has a whole one.
    pub(crate) name: Option<String>,
    pub(crate) contents: Box<dyn LayerContents>,
}

/// Where the bytes of layers are.
pub(crate) trait LayerContents {
    /// Opens a layer, as it is transported.
    fn open(&self, number: usize, layer: &Expected) -> Result<Box<dyn Read + '_>>;
}

/// Blobs by digest.
pub(crate) trait Blobs {
    /// Opens a blob.
    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + '_>>;

    /// Opens an index or a manifest, which registries keep apart.
    fn document(&self, digest: &Digest) -> Result<Box<dyn Read + '_>> {
        self.blob(digest)
    }
}

impl<B: Blobs> LayerContents for B {
    fn open(&self, _: usize, layer: &Expected) -> Result<Box<dyn Read + '_>> {
        let (digest, _) = layer.blob.as_ref().ok_or_else(|| ImageError::Missing(format!("layer {}", layer.diff_id)))?;
        self.blob(digest)
    }
}

/// A layout's index or manifest, followed to an image.
pub(crate) fn from_document<B: Blobs + 'static>(blobs: B, first: Document, name: Option<&str>) -> Result<Located> {
    let (mut found, mut name) = (first, name.map(str::to_owned));
    let mut whole_name = None;
    for _ in 0..=NESTING_MAX {
        match found {
            Document::Manifest { config, layers } => return from_manifest(blobs, &config, &layers, whole_name),
            Document::Index(entries) => {
                let chosen = choose("index.json", &entries, name.as_deref())?.clone();
                name = None;
                let names = [IMAGE_NAME, REFERENCE_NAME].into_iter().filter_map(|key| chosen.annotation(key));
                let names = names.filter(|it| it.contains('/')).map(str::to_owned);
                whole_name = whole_name.or_else(|| names.into_iter().next());
                let digest = chosen.digest()?;
                let what = format!("manifest {digest}");
                let bytes = {
                    let mut reader = blobs.document(&digest)?;
                    read_checked(&mut *reader, &what, &digest, chosen.size, DOCUMENT_BYTES_MAX)?
                };
                found = document(&what, &bytes, chosen.media_type.as_deref())?;
            }
        }
    }
    let why = format!("indexes within indexes, more than {NESTING_MAX} deep");
    Err(ImageError::Document { what: "index.json".into(), why })
}

/// An image by its manifest.
pub(crate) fn from_manifest<B: Blobs + 'static>(
    blobs: B,
    config: &Descriptor,
    layers: &[Descriptor],
    name: Option<String>,
) -> Result<Located> {
    let id = config.digest()?;
    let what = format!("configuration {id}");
    let config_bytes = {
        let mut reader = blobs.blob(&id)?;
        read_checked(&mut *reader, &what, &id, config.size, DOCUMENT_BYTES_MAX)?
    };
    let (config, diff_ids) = image_config(&what, &config_bytes)?;
    if diff_ids.len() != layers.len() {
        let why = format!("{} layers, and the manifest has {}", diff_ids.len(), layers.len());
        return Err(ImageError::Document { what, why });
    }
    let layer = |(descriptor, diff_id): (&Descriptor, Digest)| {
        if let Some(kind) = descriptor.media_type.as_deref().filter(|kind| !is_layer(kind)) {
            let why = format!("layers of the type {} are not read", shown(kind.as_bytes()));
            return Err(ImageError::Document { what: "manifest".into(), why });
        }
        Ok(Expected { blob: Some((descriptor.digest()?, descriptor.size)), diff_id })
    };
    let layers = layers.iter().zip(diff_ids).map(layer).collect::<Result<Vec<_>>>()?;
    Ok(Located { id, config_bytes, config, layers, name: name.as_deref().and_then(whole), contents: Box::new(blobs) })
}

/// A name with everything that it leaves out; `None` if it is no name.
fn whole(name: &str) -> Option<String> {
    Reference::parse(name).ok().map(|reference| reference.shown())
}

/// Whether a media type is that of a layer: a tar archive, plain or compressed.
fn is_layer(kind: &str) -> bool {
    let rest = kind
        .strip_prefix("application/vnd.oci.image.layer.v1.tar")
        .or_else(|| kind.strip_prefix("application/vnd.oci.image.layer.nondistributable.v1.tar"))
        .or_else(|| kind.strip_prefix("application/vnd.docker.image.rootfs.diff.tar"))
        .or_else(|| kind.strip_prefix("application/vnd.docker.image.rootfs.foreign.diff.tar"));
    matches!(rest, Some("" | "+gzip" | "+zstd" | ".gzip" | ".zstd"))
}

/// A directory in OCI's layout.
struct LayoutDirectory(PathBuf);

impl Blobs for LayoutDirectory {
    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + '_>> {
        let path = self.0.join("blobs/sha256").join(digest.digits());
        // A pipe or a device would be waited for.
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(ImageError::Missing(format!("{}, as a file", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ImageError::Missing(path.display().to_string()));
            }
            Err(error) => return Err(ImageError::Io(path.display().to_string(), error)),
        }
        Ok(Box::new(File::open(&path).while_doing(|| path.display().to_string())?))
    }
}

/// Locates an image in a directory in OCI's layout.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn in_directory(directory: &Path, name: Option<&str>) -> Result<Located> {
    let path = directory.join("index.json");
    let what = || format!("{} (a layout has an index.json)", path.display());
    let mut bytes = Vec::new();
    let file = File::open(&path).while_doing(what)?;
    file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes).while_doing(what)?;
    let index = index(&bytes)?;
    from_document(LayoutDirectory(directory.into()), index, name)
}

fn index(bytes: &[u8]) -> Result<Document> {
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        return Err(ImageError::TooLarge(format!("index.json: more than {DOCUMENT_BYTES_MAX} bytes")));
    }
    document("index.json", bytes, None)
}

/// The members of an archive by name.
pub(crate) struct ArchiveIndex {
    file: Arc<File>,
    members: HashMap<String, Entry>,
}

enum Entry {
    Piece { offset_bytes: u64, length_bytes: u64 },
    Link(String),
}

impl ArchiveIndex {
    /// Goes through a plain tar archive.
    pub(crate) fn new(file: File) -> Result<Self> {
        let mut members = HashMap::new();
        let mut all = Members::new(&file)?;
        while let Some(member) = all.next()? {
            // Names that are not text, or lead out, are none that a document can name.
            let Some(path) = std::str::from_utf8(&member.path).ok().and_then(|path| below("", path)) else { continue };
            let above = path.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
            let target = || std::str::from_utf8(&member.link).ok().map(str::to_owned);
            let entry = match member.kind {
                EntryType::Regular | EntryType::Continuous if member.sparse.is_none() => {
                    Some(Entry::Piece { offset_bytes: member.offset_bytes, length_bytes: member.stored_bytes })
                }
                EntryType::Symlink => target().and_then(|target| below(&above, &target)).map(Entry::Link),
                EntryType::Link => target().and_then(|target| below("", &target)).map(Entry::Link),
                _ => None,
            };
            if let Some(entry) = entry {
                members.insert(path, entry);
            }
        }
        Ok(Self { file: Arc::new(file), members })
    }

    fn piece(&self, path: &str) -> Result<PieceReader> {
        let missing = || ImageError::Missing(shown(path.as_bytes()));
        let mut here = below("", path).ok_or_else(missing)?;
        for _ in 0..=LINK_FOLLOW_MAX {
            match self.members.get(&here).ok_or_else(missing)? {
                Entry::Link(target) => here.clone_from(target),
                Entry::Piece { offset_bytes, length_bytes } => {
                    let file = Arc::clone(&self.file);
                    return Ok(PieceReader { file, offset_bytes: *offset_bytes, left_bytes: *length_bytes });
                }
            }
        }
        Err(ImageError::Member { path: shown(path.as_bytes()), why: "links that lead to each other".into() })
    }

    fn has(&self, path: &str) -> bool {
        self.members.contains_key(path)
    }

    fn small(&self, path: &str) -> Result<Vec<u8>> {
        let mut piece = self.piece(path)?;
        if piece.left_bytes > DOCUMENT_BYTES_MAX {
            let text = format!("{}: more than {DOCUMENT_BYTES_MAX} bytes", shown(path.as_bytes()));
            return Err(ImageError::TooLarge(text));
        }
        let mut bytes = Vec::new();
        piece.read_to_end(&mut bytes).while_doing(|| shown(path.as_bytes()))?;
        Ok(bytes)
    }
}

/// A path as it is named from a directory, without `.` and `..`; `None` if it leads out.
fn below(directory: &str, path: &str) -> Option<String> {
    let start = if path.starts_with('/') { "" } else { directory };
    let mut names: Vec<&str> = start.split('/').filter(|name| !name.is_empty()).collect();
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        match name {
            ".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}

impl Blobs for ArchiveIndex {
    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + '_>> {
        Ok(Box::new(self.piece(&format!("blobs/sha256/{}", digest.digits()))?))
    }
}

/// A range of a file.
struct PieceReader {
    file: Arc<File>,
    offset_bytes: u64,
    left_bytes: u64,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..wanted], self.offset_bytes)?;
        if count == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset_bytes += count as u64;
        self.left_bytes -= count as u64;
        Ok(count)
    }
}

/// Locates an image in an archive of OCI's layout.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn in_layout_archive(archive: ArchiveIndex, name: Option<&str>) -> Result<Located> {
    let index = index(&archive.small("index.json")?)?;
    from_document(archive, index, name)
}

/// Locates an image in an archive that `docker save` or `podman save` wrote.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn in_docker_archive(archive: ArchiveIndex, name: Option<&str>) -> Result<Located> {
    if !archive.has("manifest.json") {
        let hint = if archive.has("index.json") { "; it is one of OCI's layout: oci-archive:FILE" } else { "" };
        return Err(ImageError::Source(format!("no manifest.json, so not an archive of docker save{hint}")));
    }
    let images = archived_images(&archive.small("manifest.json")?)?;
    let tags = |it: &crate::images::documents::ArchivedImage| it.repo_tags.clone().unwrap_or_default();
    let is_named = |it: &&crate::images::documents::ArchivedImage| {
        name.is_none_or(|name| tags(it).iter().any(|tag| tag == name || whole(tag) == whole(name)))
    };
    let named: Vec<_> = images.iter().filter(is_named).collect();
    let [image] = named[..] else {
        let all: Vec<String> = images.iter().flat_map(tags).map(|tag| shown(tag.as_bytes())).take(8).collect();
        let text = if named.is_empty() { "no such image in the archive" } else { "several images in the archive" };
        return Err(ImageError::Source(format!("{text}; add :NAME (there are: {})", all.join(", "))));
    };
    let config_bytes = archive.small(&image.config)?;
    let id = Digest::of(&config_bytes);
    let stem = image.config.rsplit('/').next().unwrap_or_default();
    let said = Digest::of_digits(stem.strip_suffix(".json").unwrap_or(stem));
    if let Some(said) = said.filter(|said| *said != id) {
        let (expected, found) = (said.to_string(), id.to_string());
        return Err(ImageError::Digest { what: "the image's configuration".into(), expected, found });
    }
    let (config, diff_ids) = image_config("the image's configuration", &config_bytes)?;
    let paths = image.layers.clone().unwrap_or_default();
    if paths.len() != diff_ids.len() {
        let why = format!("{} layers, and the configuration has {}", paths.len(), diff_ids.len());
        return Err(ImageError::Document { what: "manifest.json".into(), why });
    }
    let layers = diff_ids.into_iter().map(|diff_id| Expected { blob: None, diff_id }).collect();
    let name = tags(image).iter().find_map(|tag| whole(tag));
    let contents = Box::new(ArchivedLayers { archive, paths });
    Ok(Located { id, config_bytes, config, layers, name, contents })
}

/// Layers that `manifest.json` names.
struct ArchivedLayers {
    archive: ArchiveIndex,
    paths: Vec<String>,
}

impl LayerContents for ArchivedLayers {
    fn open(&self, number: usize, layer: &Expected) -> Result<Box<dyn Read + '_>> {
        let path = self.paths.get(number).ok_or_else(|| ImageError::Missing(layer.diff_id.to_string()))?;
        Ok(Box::new(self.archive.piece(path)?))
    }
}
