//! What the tool remembers between runs, in `$XDG_CACHE_HOME/aegis` or `~/.cache/aegis`.
//!
//! Everything here can be deleted at any time, by anybody, also between two calls of this module: a run then
//! builds it again. Files appear by renaming, so a reader never sees half of one. Without a place for it,
//! runs work and remember nothing.

use std::ffi::OsString;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most bytes of root images that are kept; the least recently used go first.
const ROOT_BYTES_MAX: u64 = 2 << 30;

/// The cache directory.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// The user's cache, made if it is not there; `None` if there is no place for one.
    pub fn open() -> Option<Self> {
        let set = |name: &str| std::env::var_os(name).filter(|value| value.starts_with_slash());
        let base = match set("XDG_CACHE_HOME") {
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(set("HOME")?).join(".cache"),
        };
        Self::at(&base.join("aegis")).ok()
    }

    /// A cache in `directory`.
    pub fn at(directory: &Path) -> io::Result<Self> {
        // What a program reads is nobody else's business.
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory.join("roots"))?;
        Ok(Self { directory: directory.to_path_buf() })
    }

    /// The cache's directory; it may not exist yet.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A small text that was remembered under `name`.
    pub fn note(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(name)).ok()
    }

    /// Remembers a small text. Failing to is no failure of the run.
    pub(crate) fn set_note(&self, name: &str, text: &str) {
        let temporary = self.temporary(name);
        let written = fs::write(&temporary, text);
        if written.and_then(|()| fs::rename(&temporary, self.directory.join(name))).is_err() {
            let _ = fs::remove_file(&temporary);
        }
    }

    /// The root image that was stored under `key`; it counts as used now.
    pub fn root(&self, key: u128) -> Option<File> {
        let file = File::open(self.root_path(key)).ok()?;
        // Only the order of removal depends on it.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
        Some(file)
    }

    /// Stores what `write` writes under `key`, removes old images, and opens the new one.
    pub(crate) fn store_root<E: From<io::Error>>(
        &self,
        key: u128,
        write: impl FnOnce(&mut File) -> Result<(), E>,
    ) -> Result<File, E> {
        let temporary = self.temporary("roots/new");
        let result = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .map_err(E::from)
            .and_then(|mut file| {
                write(&mut file)?;
                fs::rename(&temporary, self.root_path(key))?;
                Ok(file)
            });
        if result.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        self.prune(ROOT_BYTES_MAX);
        result
    }

    /// Bytes of all stored root images, and how many there are.
    pub fn root_usage(&self) -> (u64, usize) {
        let images = self.images();
        (images.iter().map(|image| image.bytes).sum(), images.len())
    }

    fn root_path(&self, key: u128) -> PathBuf {
        self.directory.join(format!("roots/{key:032x}.erofs"))
    }

    /// Unique among the processes that live now; leftovers of killed ones are pruned like images.
    fn temporary(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.{}.tmp", std::process::id()))
    }

    fn images(&self) -> Vec<StoredImage> {
        let Ok(entries) = fs::read_dir(self.directory.join("roots")) else {
            return Vec::new();
        };
        let image = |entry: fs::DirEntry| {
            let metadata = entry.metadata().ok()?;
            let used = metadata.modified().ok()?;
            Some(StoredImage { used, bytes: metadata.len(), path: entry.path() })
        };
        entries.filter_map(Result::ok).filter_map(image).collect()
    }

    /// Removes images, the least recently used first, until at most `bytes_max` are left. The last one always
    /// stays.
    fn prune(&self, bytes_max: u64) {
        let mut images = self.images();
        images.sort_by_key(|image| image.used);
        let mut total: u64 = images.iter().map(|image| image.bytes).sum();
        let last = images.len().saturating_sub(1);
        for image in &images[..last] {
            if total <= bytes_max {
                break;
            }
            // A run that has the file open keeps it.
            if fs::remove_file(&image.path).is_ok() {
                total -= image.bytes;
            }
        }
    }
}

#[derive(Debug)]
struct StoredImage {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

trait StartsWithSlash {
    fn starts_with_slash(&self) -> bool;
}

impl StartsWithSlash for OsString {
    /// A relative path in these variables is to be ignored (XDG base directory specification).
    fn starts_with_slash(&self) -> bool {
        Path::new(self).is_absolute()
    }
}

/// A 128-bit FNV-1a hash: names inputs that the user owns, so it need not withstand an attacker.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher(u128);

impl Default for KeyHasher {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl KeyHasher {
    /// Adds a string of bytes; its length is part of it, so neighbours cannot run together.
    pub fn add(&mut self, bytes: &[u8]) -> &mut Self {
        self.add_u64(bytes.len() as u64);
        self.mix(bytes);
        self
    }

    /// Adds a number.
    pub fn add_u64(&mut self, value: u64) -> &mut Self {
        self.mix(&value.to_le_bytes());
        self
    }

    /// The digest of all that was added.
    pub fn key(self) -> u128 {
        self.0
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, KeyHasher};
    use std::fs::{self, File, FileTimes};
    use std::io::{self, Read, Write};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    fn scratch(name: &str) -> (Cache, PathBuf) {
        let path = std::env::temp_dir().join(format!("aegis-cache-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        (Cache::at(&path).expect("cache"), path)
    }

    fn store(cache: &Cache, key: u128, bytes: &[u8]) -> File {
        let write = |file: &mut File| file.write_all(bytes);
        cache.store_root::<io::Error>(key, write).expect("stored")
    }

    #[test]
    fn what_was_stored_is_found_again() {
        let (cache, path) = scratch("found");
        assert!(cache.root(1).is_none());
        store(&cache, 1, b"image");
        let mut text = String::new();
        cache.root(1).expect("there").read_to_string(&mut text).expect("text");
        assert_eq!(text, "image");
        cache.set_note("accel", "kvm");
        assert_eq!(cache.note("accel").as_deref(), Some("kvm"));
        assert_eq!(cache.root_usage(), (5, 1));
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let (cache, path) = scratch("failed");
        let failed = cache.store_root::<io::Error>(1, |_| Err(io::ErrorKind::StorageFull.into()));
        assert!(failed.is_err());
        assert_eq!(cache.root_usage(), (0, 0));
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let (cache, path) = scratch("prune");
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for key in 0..4u32 {
            let file = store(&cache, key.into(), &[0; 100]);
            let used = start + Duration::from_secs(u64::from(key));
            file.set_times(FileTimes::new().set_modified(used)).expect("times");
        }
        cache.root(0).expect("used again");
        cache.prune(250);
        let left: Vec<bool> = (0..4).map(|key| cache.root_path(key).exists()).collect();
        assert_eq!(left, [true, false, false, true]);
        cache.prune(0);
        assert_eq!(cache.root_usage().1, 1);
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn keys_depend_on_every_boundary() {
        let key = |parts: &[&str]| {
            let mut hasher = KeyHasher::default();
            for part in parts {
                hasher.add(part.as_bytes());
            }
            hasher.key()
        };
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["a"]), key(&["a", ""]));
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
    }
}
