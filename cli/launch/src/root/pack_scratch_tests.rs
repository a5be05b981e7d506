//! Help for the tests of packing: a directory of their own on the host, and a look into trees.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use aegis_image::tree::{Content, FileData, LastLink};

use super::Root;

/// An empty directory that is removed with all below it at the end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one; its path is canonical.
    pub(crate) fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("aegis-test-{}-{number}", std::process::id());
        let path = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Its path, or a path in it.
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        if below.is_empty() { self.0.clone() } else { self.0.join(below) }
    }

    /// Writes a file in it, and the directories above.
    pub(crate) fn write(&self, below: &str, contents: &[u8]) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The contents of the file at a path of a tree, links followed; `None` if there is no file.
pub(crate) fn contents(tree: &Root, path: impl AsRef<Path>) -> Option<Vec<u8>> {
    let path = super::bytes_of(path.as_ref());
    let node = tree.resolve(path, LastLink::Follow).ok()?;
    let Content::File(data) = tree.node(node).content() else {
        return None;
    };
    let mut bytes = vec![0; data.length_bytes() as usize];
    data.read_exact_at(0, &mut bytes).unwrap();
    Some(bytes)
}

/// The target of the link at a path of a tree; `None` if there is no link.
pub(crate) fn link(tree: &Root, path: impl AsRef<Path>) -> Option<Vec<u8>> {
    let node = tree.resolve(super::bytes_of(path.as_ref()), LastLink::Keep).ok()?;
    match tree.node(node).content() {
        Content::Symlink(target) => Some(target.clone()),
        _ => None,
    }
}
