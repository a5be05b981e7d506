//! The images that were used before, in the tool's cache: layers, roots, and what is known of each image.
//!
//! | place | what |
//! |---|---|
//! | `layers/DIGEST` | a layer's archive, plain, by its own digest; shared by the images that have it |
//! | `roots/DIGEST.erofs` | layers laid over each other, as a root image, by their digests and what goes with them |
//! | `roots/DIGEST.passwd`, `.group` | its accounts |
//! | `records/DIGEST.json` | an image: names, layers, root, configuration |
//!
//! Files appear by renaming. Readers hold `lock` shared and removal holds it alone, so nothing goes away under a run
//! that is putting an image together; a machine that runs has its root open.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use aegis_image::tree::{Content, FileData, LastLink};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::errors::Error;
use crate::images::accounts::{ACCOUNTS_BYTES_MAX, Accounts};
use crate::images::digest::Digest;
use crate::images::documents::{Settings, image_config};
use crate::images::engines::{self, Stored};
use crate::images::errors::{ImageError, WhileDoing};
use crate::images::flatten::Flattener;
use crate::images::layer;
use crate::images::locate::{ArchiveIndex, Located, in_directory, in_docker_archive, in_layout_archive};
use crate::images::registry;
use crate::images::source::{ImageSource, Reference};
use crate::root::pack::{Packed, Root};
use crate::root::write_image;

/// Part of a root's name: a change of what roots look like changes it.
const ROOT_FORMAT: &str = "aegis image root 2";
/// Digits of an identifier that are shown, and the fewest that name an image.
pub const ID_DIGIT_COUNT: usize = 12;
const ID_DIGIT_COUNT_MIN: usize = 4;

type Result<T> = std::result::Result<T, ImageError>;

/// The images of this user.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// An image that can be run.
#[derive(Clone, Debug)]
pub struct Image {
    /// Digest of its configuration.
    pub id: Digest,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its root image.
    pub root: PathBuf,
    /// How it wants to run.
    pub settings: Settings,
    /// Its users and groups.
    pub accounts: Accounts,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// What is known of an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Digits of its identifier.
    pub id: String,
    /// Whole names.
    pub names: Vec<String>,
    /// Digits of its layers.
    layers: Vec<String>,
    /// Digits of its root.
    root: String,
    /// Length of its root.
    pub size_bytes: u64,
    /// When it came, in seconds since the epoch.
    pub since_s: u64,
    /// The configuration's text.
    config: String,
    warnings: Vec<String>,
}

/// Whether a registry is asked for an image that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// Only for one that is not.
    IfMissing,
    /// Always.
    Always,
}

impl Store {
    /// The store in a cache.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn open(cache: Option<&Cache>) -> Result<Self> {
        let cache = cache.ok_or_else(|| {
            let error = io::Error::from(io::ErrorKind::NotFound);
            ImageError::Io(
                "images need a place: set HOME or XDG_CACHE_HOME to a directory that is writable".into(),
                error,
            )
        })?;
        Self::at(&cache.directory().join("images"))
    }

    /// The store in a directory, made if it is not there.
    ///
    /// # Errors
    /// `Io`.
    pub fn at(directory: &Path) -> Result<Self> {
        for room in ["layers", "roots", "records"] {
            let path = directory.join(room);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .while_doing(|| path.display().to_string())?;
        }
        Ok(Self { directory: directory.into() })
    }

    fn lock(&self, how: FlockOperation) -> Result<File> {
        let path = self.directory.join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.while_doing(|| path.display().to_string())?;
        rustix::fs::flock(&file, how).map_err(io::Error::from).while_doing(|| path.display().to_string())?;
        Ok(file)
    }

    /// Finds an image and has its root in the cache.
    ///
    /// # Errors
    /// What is wrong with the image, its source, or this host.
    pub fn obtain(&self, source: &ImageSource, pull: Pull) -> Result<Image> {
        let lock = self.lock(FlockOperation::LockShared)?;
        let obtained = self.obtain_locked(source, pull);
        drop(lock);
        // Layers whose digests are right and whose contents are not would stay, as many as somebody sends, and so would
        // what those have left that were killed. Where others are at it, the next one clears up.
        let is_bad = matches!(obtained, Err(ImageError::Member { .. } | ImageError::TooLarge(_)));
        if (is_bad || self.has_half_done())
            && let Ok(_lock) = self.lock(FlockOperation::NonBlockingLockExclusive)
        {
            self.sweep();
        }
        obtained
    }

    fn obtain_locked(&self, source: &ImageSource, pull: Pull) -> Result<Image> {
        match source {
            ImageSource::DockerArchive(path, name) => {
                let archive = self.archive(path)?;
                self.keep(in_docker_archive(archive, name.as_deref()).map_err(|error| at(path, error))?)
            }
            ImageSource::LayoutArchive(path, name) => {
                let archive = self.archive(path)?;
                self.keep(in_layout_archive(archive, name.as_deref()).map_err(|error| at(path, error))?)
            }
            ImageSource::Layout(path, name) => self.keep(in_directory(path, name.as_deref())?),
            ImageSource::ContainersStorage(name) => {
                let stored = engines::stored(name)?;
                let whole = stored.name.clone().unwrap_or_else(|| name.clone());
                self.take_stored(stored, |path| engines::save(&whole, path))
            }
            ImageSource::Registry(reference) => {
                let name = reference.shown();
                if pull == Pull::IfMissing
                    && let Some(found) = self.records().into_iter().find(|record| record.names.contains(&name))
                {
                    return self.image(found);
                }
                let mut located = registry::locate(reference)?;
                located.name = Some(name);
                self.keep(located)
            }
            ImageSource::Kept(name) => match self.named(name)?.0 {
                Some(record) => self.image(record),
                None => Err(unknown(name)),
            },
        }
    }

    /// The image of containers' storage under the name that it has there; it is saved if it is not here.
    fn take_stored(&self, stored: Stored, save: impl FnOnce(&Path) -> Result<()>) -> Result<Image> {
        if let Some(found) = stored.id.and_then(|id| self.record(&id)) {
            // The name may be new, or another image's until now.
            return self.image(self.remember(found, stored.name.as_deref())?);
        }
        let temporary = self.temporary("saved");
        let saved = save(&temporary).and_then(|()| {
            let file = File::open(&temporary).while_doing(|| temporary.display().to_string())?;
            let located = in_docker_archive(ArchiveIndex::new(file)?, None)?;
            self.keep(Located { name: stored.name.or_else(|| located.name.clone()), ..located })
        });
        let _ = fs::remove_file(&temporary);
        saved
    }

    fn archive(&self, path: &Path) -> Result<ArchiveIndex> {
        let file = File::open(path).while_doing(|| path.display().to_string())?;
        let metadata = file.metadata().while_doing(|| path.display().to_string())?;
        if !metadata.is_file() {
            return Err(ImageError::Source(format!("{}: not a file; oci:DIR names a directory", path.display())));
        }
        let plain = layer::plain(file, &self.temporary("plain")).map_err(|error| at(path, error))?;
        ArchiveIndex::new(plain).map_err(|error| at(path, error))
    }

    /// Unique among the processes that live now.
    fn temporary(&self, name: &str) -> PathBuf {
        self.directory.join(format!("layers/{name}.{}.tmp", std::process::id()))
    }

    fn layer_path(&self, digest: &Digest) -> PathBuf {
        self.directory.join("layers").join(digest.digits())
    }

    fn root_path(&self, digits: &str, what: &str) -> PathBuf {
        self.directory.join(format!("roots/{digits}.{what}"))
    }

    /// Has the layers and the root of a located image in the cache, and remembers it.
    fn keep(&self, located: Located) -> Result<Image> {
        let settings = located.config.config.clone().unwrap_or_default();
        let directories = directories_of(&settings);
        let root_key = root_key(&located, &directories);
        let path = self.root_path(root_key.digits(), "erofs");
        let mut warnings = Vec::new();
        if !path.is_file() {
            for (number, expected) in located.layers.iter().enumerate() {
                let layer_path = self.layer_path(&expected.diff_id);
                if !layer_path.is_file() {
                    let mut progress = Progress::new(number + 1, located.layers.len());
                    let mut contents = located.contents.open(number, expected)?;
                    let temporary = self.temporary(expected.diff_id.digits());
                    layer::store(&mut *contents, expected, &temporary, &layer_path, &mut |count| progress.tell(count))?;
                }
            }
            warnings = self.flatten(&located, &directories, &root_key)?;
        }
        let known = self.record(located.id.digits());
        let record = Record {
            id: located.id.digits().into(),
            names: known.as_ref().map(|known| known.names.clone()).unwrap_or_default(),
            layers: located.layers.iter().map(|layer| layer.diff_id.digits().into()).collect(),
            root: root_key.digits().into(),
            size_bytes: fs::metadata(&path).map_or(0, |metadata| metadata.len()),
            since_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            config: String::from_utf8_lossy(&located.config_bytes).into_owned(),
            warnings: known.as_ref().map_or(warnings, |known| known.warnings.clone()),
        };
        let is_new = known.is_none_or(|known| located.name.as_ref().is_some_and(|name| !known.names.contains(name)));
        self.image(if is_new { self.remember(record, located.name.as_deref())? } else { record })
    }

    fn flatten(&self, located: &Located, directories: &[String], key: &Digest) -> Result<Vec<String>> {
        let mut flattener = Flattener::new();
        for expected in &located.layers {
            let path = self.layer_path(&expected.diff_id);
            flattener.apply(File::open(&path).while_doing(|| path.display().to_string())?)?;
        }
        let mut warnings = Vec::new();
        if flattener.capability_count > 0 {
            let count = flattener.capability_count;
            warnings.push(format!(
                "rights of {count} programs (file capabilities) are shown and give none: they run as their user may"
            ));
        }
        let tree = flattener.finish(directories.iter().map(String::as_bytes));
        for (what, path) in [("passwd", &b"/etc/passwd"[..]), ("group", b"/etc/group")] {
            self.write(&self.root_path(key.digits(), what), &accounts_file(&tree, path))?;
        }
        let path = self.root_path(key.digits(), "erofs");
        let temporary = self.temporary("root");
        let packed = Packed { tree, warnings: Vec::new() };
        let written = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .while_doing(|| temporary.display().to_string())
            .and_then(|mut file| write_image(&packed, &mut file).map_err(of_writing))
            .and_then(|()| fs::rename(&temporary, &path).while_doing(|| path.display().to_string()));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| warnings)
    }

    /// Writes a small file that appears whole.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let temporary = self.temporary("small");
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            fs::rename(&temporary, path)
        };
        write().while_doing(|| path.display().to_string())
    }

    fn record_path(&self, digits: &str) -> PathBuf {
        self.directory.join(format!("records/{digits}.json"))
    }

    fn record(&self, digits: &str) -> Option<Record> {
        let text = fs::read_to_string(self.record_path(digits)).ok()?;
        let record: Record = serde_json::from_str(&text).ok()?;
        // What a record names becomes paths.
        let is_sound = record.layers.iter().chain([&record.id, &record.root]).all(|it| Digest::of_digits(it).is_some());
        is_sound.then_some(record)
    }

    fn store_record(&self, record: &Record) -> Result<()> {
        let text = serde_json::to_string(record).map_err(io::Error::from).while_doing(|| "writing a record".into())?;
        self.write(&self.record_path(&record.id), text.as_bytes())
    }

    /// Stores a record under a name, which no other image has any more.
    fn remember(&self, mut record: Record, name: Option<&str>) -> Result<Record> {
        if let Some(name) = name {
            for mut other in self.records().into_iter().filter(|other| other.id != record.id) {
                if other.names.iter().any(|it| it == name) {
                    other.names.retain(|it| it != name);
                    self.store_record(&other)?;
                }
            }
            record.names.retain(|it| it != name);
            record.names.push(name.into());
        }
        self.store_record(&record).map(|()| record)
    }

    /// All images, the newest first.
    pub fn records(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(self.directory.join("records")) else { return Vec::new() };
        let record = |entry: io::Result<fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            self.record(name.strip_suffix(".json")?)
        };
        let mut records: Vec<Record> = entries.filter_map(record).collect();
        records.sort_by(|one, other| (other.since_s, &one.id).cmp(&(one.since_s, &other.id)));
        records
    }

    /// The image of a name or of an identifier's first digits, and the whole name if it was one.
    fn named(&self, text: &str) -> Result<(Option<Record>, Option<String>)> {
        let records = self.records();
        let wholes: Vec<String> = [text.to_owned(), format!("localhost/{text}")]
            .iter()
            .filter_map(|it| Reference::parse(it).ok())
            .map(|reference| reference.shown())
            .collect();
        for record in &records {
            if let Some(name) = record.names.iter().find(|name| *name == text || wholes.contains(name)) {
                return Ok((Some(record.clone()), Some(name.clone())));
            }
        }
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let is_id = digits.len() >= ID_DIGIT_COUNT_MIN && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut found = records.into_iter().filter(|record| is_id && record.id.starts_with(digits));
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => {
                Err(ImageError::Source(format!("{text}: several images begin so; write more digits")))
            }
            (first, _) => Ok((first, None)),
        }
    }

    fn image(&self, record: Record) -> Result<Image> {
        let root = self.root_path(&record.root, "erofs");
        if !root.is_file() {
            let name = record.names.first().unwrap_or(&record.id);
            return Err(ImageError::Missing(format!("{name}: its root in the cache; pull it again")));
        }
        let (config, _) = image_config("the image's configuration", record.config.as_bytes())?;
        let accounts = |what: &str| {
            let file = File::open(self.root_path(&record.root, what)).ok()?;
            let mut bytes = Vec::new();
            file.take(ACCOUNTS_BYTES_MAX).read_to_end(&mut bytes).ok().map(|_| bytes)
        };
        let id = Digest::of_digits(&record.id).ok_or_else(|| ImageError::DigestForm(record.id.clone()))?;
        Ok(Image {
            id,
            name: record.names.last().cloned(),
            root,
            settings: config.config.unwrap_or_default(),
            accounts: Accounts {
                passwd: accounts("passwd").unwrap_or_default(),
                group: accounts("group").unwrap_or_default(),
            },
            warnings: record.warnings,
        })
    }

    /// Removes a name; the image with its last one, and what no other image needs. The answer says what went.
    ///
    /// # Errors
    /// There is none of this name; `Io`.
    pub fn remove(&self, text: &str) -> Result<Vec<String>> {
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        let (record, name) = self.named(text)?;
        let mut record = record.ok_or_else(|| unknown(text))?;
        let mut gone = Vec::new();
        match &name {
            Some(name) => {
                record.names.retain(|it| it != name);
                gone.push(format!("untagged {name}"));
            }
            None => gone.extend(record.names.drain(..).map(|name| format!("untagged {name}"))),
        }
        if record.names.is_empty() {
            let path = self.record_path(&record.id);
            fs::remove_file(&path).while_doing(|| path.display().to_string())?;
            gone.push(format!("deleted {}", &record.id[..ID_DIGIT_COUNT]));
        } else {
            self.store_record(&record)?;
        }
        self.sweep();
        Ok(gone)
    }

    /// Whether something was left half done, or is being made.
    fn has_half_done(&self) -> bool {
        let entries = fs::read_dir(self.directory.join("layers")).into_iter().flatten();
        entries.flatten().any(|entry| entry.file_name().as_encoded_bytes().ends_with(b".tmp"))
    }

    /// Removes layers and roots that no image has, and what was left half done.
    fn sweep(&self) {
        let records = self.records();
        let layers: BTreeSet<&str> = records.iter().flat_map(|record| &record.layers).map(String::as_str).collect();
        let roots: BTreeSet<&str> = records.iter().map(|record| record.root.as_str()).collect();
        for (room, kept) in [("layers", layers), ("roots", roots)] {
            let Ok(entries) = fs::read_dir(self.directory.join(room)) else { continue };
            for entry in entries.filter_map(io::Result::ok) {
                let name = entry.file_name();
                let stem = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
                let is_whole = !name.to_str().is_some_and(|name| name.ends_with(".tmp"));
                if !(is_whole && kept.contains(stem)) {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }
}

fn unknown(name: &str) -> ImageError {
    let forms = crate::images::source::FORMS;
    ImageError::Source(format!("{name}: no such image here (aegis images ls); say where it is: {forms}"))
}

fn at(path: &Path, error: ImageError) -> ImageError {
    match error {
        ImageError::Source(text) => ImageError::Source(format!("{}: {text}", path.display())),
        ImageError::Missing(text) => ImageError::Missing(format!("{}: {text}", path.display())),
        ImageError::Document { what, why } => ImageError::Document { what: format!("{}: {what}", path.display()), why },
        other => other,
    }
}

fn of_writing(error: Error) -> ImageError {
    match error {
        Error::Host(doing, error) => ImageError::Io(doing.into(), error),
        other => ImageError::TooLarge(other.to_string()),
    }
}

/// Directories that have to be there: where the program starts, and where it keeps data.
fn directories_of(settings: &Settings) -> Vec<String> {
    let volumes = settings.volumes.iter().flatten().map(|(path, _)| path);
    let all = settings.working_dir.iter().chain(volumes);
    all.filter(|path| path.starts_with('/') && !path.split('/').any(|name| name == "..")).cloned().collect()
}

fn root_key(located: &Located, directories: &[String]) -> Digest {
    let layers = located.layers.iter().map(|layer| format!("{}\n", layer.diff_id)).collect::<String>();
    Digest::of(format!("{ROOT_FORMAT}\n{layers}\n{}", directories.join("\n")).as_bytes())
}

/// A file of accounts; empty if there is none that could be one.
fn accounts_file(tree: &Root, path: &[u8]) -> Vec<u8> {
    let Ok(node) = tree.resolve(path, LastLink::Follow) else { return Vec::new() };
    let Content::File(data) = tree.node(node).content() else { return Vec::new() };
    let mut bytes = vec![0; data.length_bytes().min(ACCOUNTS_BYTES_MAX) as usize];
    if data.read_exact_at(0, &mut bytes).is_ok() { bytes } else { Vec::new() }
}

/// One line on a terminal that says how far a layer is.
struct Progress {
    number: usize,
    count: usize,
    shown_mib: u64,
    is_shown: bool,
}

impl Progress {
    fn new(number: usize, count: usize) -> Self {
        Self { number, count, shown_mib: 0, is_shown: io::stderr().is_terminal() }
    }

    fn tell(&mut self, byte_count: u64) {
        let mib = byte_count >> 20;
        if self.is_shown && mib > self.shown_mib {
            self.shown_mib = mib;
            eprint!("\raegis: layer {} of {}: {mib} MiB", self.number, self.count);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown_mib > 0 {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
