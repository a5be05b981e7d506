//! Directories that show under a root where the root itself has nothing: an image's program over the host's system.
//!
//! The *upper* tree is an image in memory, the *lower* ones are attached when a name is looked for that the image has
//! not, so a program that finds all it needs in its image never waits for them. A directory of both shows the names
//! of both, and of a name that both have the upper's; everything else of it (owner, permissions, times, number) is the
//! upper's. A name that is a character device 0:0 in the upper tree is absent in both (as on overlayfs), so that what
//! is known not to be there asks nobody. Nothing changes through it: [`super::overlay`] lies above and keeps what is
//! written.
//!
//! Invariants: the trees do not change (or are taken as such), and number their inodes apart from each other
//! ([`super::ninep::Options::layer`]). Cookies of the upper tree and of the lower ones stay below [`LOWER_COOKIES`].
//!
//! Limits: directories more than [`DEPTH_MAX`] below the root show the upper tree alone.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, Protection};
use super::vnode::{DirectoryEntry, EntryConsumer, Inode, InodeRef};
use crate::error::{Errno, Result};
use crate::sync::Mutex;

/// Deepest directory that shows two trees.
pub const DEPTH_MAX: usize = 64;
/// Cookies of lower entries begin here.
const LOWER_COOKIES: u64 = 1 << 47;
/// Cookies of layers that the upper root has no directory for.
const LAYER_COOKIES: u64 = 1 << 46;

/// Attaches a lower tree; the answer is its root, a directory.
pub type Attach = dyn Fn() -> Result<InodeRef> + Send + Sync;

/// A lower tree.
pub struct Layer {
    /// The name in the root under which it shows; empty: it is the root's own lower half.
    pub name: Box<[u8]>,
    attach: Box<Attach>,
    /// Its root, or why there is none, once somebody asked.
    root: Mutex<Option<Result<InodeRef>>>,
}

impl Layer {
    /// A tree that `attach` gets when it is needed; it is asked once.
    #[must_use]
    pub fn new(name: &[u8], attach: Box<Attach>) -> Self {
        Self { name: name.into(), attach, root: Mutex::new(None) }
    }

    fn root(&self) -> Result<InodeRef> {
        self.root.lock().get_or_insert_with(|| (self.attach)()).clone()
    }
}

/// Where the lower half of a directory is.
enum Below {
    /// There is none.
    Nothing,
    /// It is a layer's root.
    Layer(Arc<Layer>),
    /// It has this name in the lower half of that directory.
    Name(Arc<Merged>, Box<[u8]>),
}

/// A directory with names of two trees.
struct Merged {
    upper: InodeRef,
    below: Below,
    /// The lower half, once somebody asked; `None` in it: there is none.
    lower: Mutex<Option<Option<InodeRef>>>,
    /// Layers that show in it under their names; only the root's.
    layers: Vec<Arc<Layer>>,
    depth: usize,
    own: alloc::sync::Weak<Self>,
}

/// `upper`, a directory, over the layers.
#[must_use]
pub fn over(upper: InodeRef, layers: Vec<Layer>) -> InodeRef {
    let mut layers: Vec<Arc<Layer>> = layers.into_iter().map(Arc::new).collect();
    let below = match layers.iter().position(|layer| layer.name.is_empty()) {
        Some(place) => Below::Layer(layers.swap_remove(place)),
        None => Below::Nothing,
    };
    Merged::make(upper, below, layers, 0)
}

impl Merged {
    fn make(upper: InodeRef, below: Below, layers: Vec<Arc<Layer>>, depth: usize) -> Arc<Self> {
        let make = |own: &alloc::sync::Weak<Self>| Self {
            upper,
            below,
            lower: Mutex::new(None),
            layers,
            depth,
            own: own.clone(),
        };
        Arc::new_cyclic(make)
    }

    /// The lower half, which is looked for now if nobody has yet.
    fn lower(&self) -> Result<Option<InodeRef>> {
        if let Some(known) = &*self.lower.lock() {
            return Ok(known.clone());
        }
        let found = match &self.below {
            Below::Nothing => None,
            Below::Layer(layer) => Some(layer.root()?),
            // At most as deep as `DEPTH_MAX`.
            Below::Name(parent, name) => match parent.lower()?.map(|lower| lower.lookup(name)) {
                None | Some(Err(Errno::ENOENT)) => None,
                Some(found) => Some(found?).filter(|found| found.kind() == FileKind::Directory),
            },
        };
        *self.lower.lock() = Some(found.clone());
        Ok(found)
    }

    fn layer(&self, name: &[u8]) -> Option<&Arc<Layer>> {
        self.layers.iter().find(|layer| *layer.name == *name)
    }

    /// The upper tree's inode of that name; inside, `None` if it says that there is none in any tree.
    fn in_upper(&self, name: &[u8]) -> Result<Option<InodeRef>> {
        self.upper.lookup(name).map(|found| (!is_whiteout(&found)).then_some(found))
    }

    fn upper_has(&self, name: &[u8]) -> Result<bool> {
        match self.upper.lookup(name) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists layers without a directory in the upper root, behind the one of that number.
    fn list_layers(&self, first: usize, consumer: &mut EntryConsumer<'_>) -> Result<Option<u64>> {
        for (number, layer) in self.layers.iter().enumerate().skip(first) {
            if self.upper_has(&layer.name)? {
                continue;
            }
            let entry = DirectoryEntry {
                name: &layer.name,
                inode_number: layer.root()?.inode_number(),
                kind: FileKind::Directory,
                next_cookie: LAYER_COOKIES + number as u64 + 1,
            };
            if !consumer(entry) {
                return Ok(Some(LAYER_COOKIES + number as u64));
            }
        }
        Ok(None)
    }

    /// Lists what the lower half alone has.
    fn list_lower(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        let Some(lower) = self.lower()? else { return Ok(LOWER_COOKIES | cookie) };
        let mut failure = None;
        let reached = lower.read_directory(cookie, &mut |entry| {
            match self.upper_has(entry.name) {
                Ok(false) if self.layer(entry.name).is_none() => {}
                Ok(_) => return true,
                Err(error) => {
                    failure = Some(error);
                    return false;
                }
            }
            consumer(DirectoryEntry { next_cookie: LOWER_COOKIES | entry.next_cookie, ..entry })
        })?;
        failure.map_or(Ok(LOWER_COOKIES | reached), Err)
    }
}

fn is_whiteout(inode: &InodeRef) -> bool {
    inode.kind() == FileKind::CharacterDevice && inode.metadata().device_node == DeviceNumber { major: 0, minor: 0 }
}

impl Inode for Merged {
    fn metadata(&self) -> Metadata {
        self.upper.metadata()
    }

    fn inode_number(&self) -> u64 {
        self.upper.inode_number()
    }

    fn device(&self) -> DeviceNumber {
        self.upper.device()
    }

    fn protection(&self) -> Protection {
        self.upper.protection()
    }

    fn kind(&self) -> FileKind {
        FileKind::Directory
    }

    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        let found = match self.in_upper(name) {
            Ok(found) => found.ok_or(Errno::ENOENT)?,
            Err(Errno::ENOENT) => {
                return match self.layer(name) {
                    Some(layer) => layer.root(),
                    None => self.lower()?.ok_or(Errno::ENOENT)?.lookup(name),
                };
            }
            Err(error) => return Err(error),
        };
        if found.kind() != FileKind::Directory || self.depth >= DEPTH_MAX {
            return Ok(found);
        }
        let below = match (self.layer(name), &self.below) {
            (Some(layer), _) => Below::Layer(layer.clone()),
            (None, Below::Nothing) => return Ok(found),
            (None, _) => Below::Name(self.own.upgrade().ok_or(Errno::EIO)?, name.into()),
        };
        Ok(Self::make(found, below, Vec::new(), self.depth + 1))
    }

    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        if cookie >= LOWER_COOKIES {
            return self.list_lower(cookie - LOWER_COOKIES, consumer);
        }
        let mut is_full = false;
        if cookie < LAYER_COOKIES {
            let reached = self.upper.read_directory(cookie, &mut |entry| {
                let is_absent =
                    entry.kind == FileKind::CharacterDevice && matches!(self.in_upper(entry.name), Ok(None));
                is_full = !is_absent && !consumer(entry);
                !is_full
            })?;
            if is_full {
                return Ok(reached);
            }
        }
        let first = usize::try_from(cookie.saturating_sub(LAYER_COOKIES)).unwrap_or(usize::MAX);
        match self.list_layers(first, consumer)? {
            Some(reached) => Ok(reached),
            None => self.list_lower(0, consumer),
        }
    }

    fn ends_at(&self, cookie: u64) -> bool {
        let known = self.lower.lock().clone();
        match known {
            Some(Some(lower)) => cookie >= LOWER_COOKIES && lower.ends_at(cookie - LOWER_COOKIES),
            Some(None) => cookie >= LOWER_COOKIES,
            None => false,
        }
    }

    fn statistics(&self) -> FileSystemStatistics {
        self.upper.statistics()
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
