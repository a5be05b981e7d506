//! The dynamic linker's cache `/etc/ld.so.cache`: which file a library's name stands for.
//!
//! glibc documents the format only in its source (`sysdeps/generic/dl-cache.h`): a header with the word
//! `glibc-ld.so.cache1.1`, entries of 24 bytes with flags and offsets of name and path, then the strings. Old hosts
//! put an older format in front, which is skipped. A damaged cache is an empty one: the linker's directories remain.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
/// Flags of a glibc library for x86-64: `FLAG_ELF_LIBC6` and `FLAG_X8664_LIB64`.
const FLAGS_X86_64: u32 = 0x0303;

/// Paths by library name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LibraryCache {
    paths: HashMap<Vec<u8>, Vec<PathBuf>>,
}

impl LibraryCache {
    /// Reads a cache file's contents.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self { paths: parse(bytes).unwrap_or_default() }
    }

    /// The paths that a name stands for, in the order of the file; those for newer processors are among them.
    pub(crate) fn find(&self, name: &[u8]) -> impl Iterator<Item = &Path> {
        // The general variant comes last in the file, and it is the one whose needs count for all.
        self.paths.get(name).into_iter().flatten().rev().map(PathBuf::as_path)
    }
}

fn parse(bytes: &[u8]) -> Option<HashMap<Vec<u8>, Vec<PathBuf>>> {
    let start = bytes.windows(MAGIC.len()).position(|window| window == MAGIC)?;
    let cache = &bytes[start..];
    let count = u32_at(cache, 20)? as usize;
    let entries_end = count.checked_mul(ENTRY_BYTES)?.checked_add(HEADER_BYTES)?;
    let entries = cache.get(HEADER_BYTES..entries_end)?;
    let mut paths: HashMap<Vec<u8>, Vec<PathBuf>> = HashMap::new();
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        if u32_at(entry, 0)? == FLAGS_X86_64 {
            let name = string_at(cache, u32_at(entry, 4)?)?;
            let path = string_at(cache, u32_at(entry, 8)?)?;
            let path = PathBuf::from(OsStr::from_bytes(path));
            paths.entry(name.to_vec()).or_default().push(path);
        }
    }
    Some(paths)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset.checked_add(4)?)?;
    word.try_into().ok().map(u32::from_le_bytes)
}

fn string_at(bytes: &[u8], offset: u32) -> Option<&[u8]> {
    let tail = bytes.get(offset as usize..)?;
    let end = tail.iter().position(|byte| *byte == 0)?;
    Some(&tail[..end])
}

#[cfg(test)]
mod tests {
    use super::{ENTRY_BYTES, HEADER_BYTES, LibraryCache, MAGIC};
    use std::path::Path;

    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        let mut strings = Vec::new();
        let strings_start = HEADER_BYTES + entries.len() * ENTRY_BYTES;
        for (flags, name, path) in entries {
            bytes.extend_from_slice(&flags.to_le_bytes());
            for string in [name, path] {
                let offset = (strings_start + strings.len()) as u32;
                bytes.extend_from_slice(&offset.to_le_bytes());
                strings.extend_from_slice(string.as_bytes());
                strings.push(0);
            }
            bytes.extend_from_slice(&[0; 12]);
        }
        bytes.extend_from_slice(&strings);
        bytes
    }

    #[test]
    fn finds_libraries_for_this_machine_only() {
        let bytes = cache(&[
            (0x0303, "liba.so", "/lib/hwcaps/liba.so"),
            (0x0303, "liba.so", "/lib/liba.so"),
            (0x0803, "libb.so", "/lib32/libb.so"),
        ]);
        for cache in [&bytes[..], &[&b"ld.so-1.7.0\0\0"[..], &bytes].concat()] {
            let cache = LibraryCache::parse(cache);
            let found: Vec<_> = cache.find(b"liba.so").collect();
            assert_eq!(found, [Path::new("/lib/liba.so"), Path::new("/lib/hwcaps/liba.so")]);
            assert_eq!(cache.find(b"libb.so").count(), 0);
        }
    }

    #[test]
    fn damage_gives_an_empty_cache() {
        let bytes = cache(&[(0x0303, "liba.so", "/lib/liba.so")]);
        for length in 0..bytes.len() {
            let _ = LibraryCache::parse(&bytes[..length]);
        }
        for offset in MAGIC.len()..bytes.len() {
            let mut bad = bytes.clone();
            bad[offset] ^= 0xff;
            let _ = LibraryCache::parse(&bad).find(b"liba.so").count();
        }
        assert_eq!(LibraryCache::parse(b"").find(b"liba.so").count(), 0);
    }
}
