//! Walks that were done before, and where they led.
//!
//! Programs ask for the same paths again and again. A walk looks at every component: whether one may search the
//! directory, what the name leads to, whether that is a link or something is mounted there. All of it stays as it is
//! until a name moves, a directory's permissions change or a mount comes or goes. So a successful walk that was done
//! twice is kept under the path as it was given and the place where it started, and the next one is a hash, a
//! comparison and one word that says that nothing of that kind has happened since.
//!
//! Invariants:
//! - A change of what walks depend on calls [`KnownWalks::forget_all`] after it is made and before its caller is
//!   answered. Names that come change no walk that led somewhere, and a file whose name is removed is told by its own
//!   entry ([`Entry::is_deleted`]), so neither forgets anything. An entry that cannot be told is not kept
//!   ([`Entry::is_passing`]).
//! - A walk is kept with the generation that was current before it began.
//! - Only walks through directories whose names and permissions change by the name space alone are kept
//!   ([`super::vnode::Inode::is_steady`]), and only for callers that may search all of them: any, or the privileged.
//! - Nothing is kept alive: places hold entries weakly. A mount is held until the next [`KnownWalks::forget_all`] that
//!   is told to let go.
//!
//! Limits: [`PLACE_COUNT`] walks of paths of at most [`PATH_BYTES_KEPT_MAX`] bytes. A place that is in use by another
//! processor is passed over, so nobody waits here.
//! Neighbours: [`super::walk`], which says what a walk depended on, and [`super::namespace`].

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use super::location::{Entry, Location, Mount};
use super::name_table::{hash_of, is_same};
use super::walk::LookupFlags;
use crate::sync::Mutex;

/// Walks that are kept.
const PLACE_COUNT: usize = 256;
/// Longest path of a walk that is kept.
pub(super) const PATH_BYTES_KEPT_MAX: usize = 120;

/// The callers that may do a walk again without looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walkers {
    /// Everybody may search every directory of it.
    All,
    /// Callers that may search any directory.
    Privileged,
}

/// The place where walks start, told by its entry, which must be alive: another one that comes after it may have the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start(usize);

impl Start {
    /// The key of a place in the name space.
    #[must_use]
    #[inline]
    pub fn at(place: &Location) -> Self {
        Self(Arc::as_ptr(place.entry()).addr())
    }

    /// What [`Self::number`] told.
    #[must_use]
    #[inline]
    pub fn from_number(number: usize) -> Self {
        Self(number)
    }

    /// To be kept in an atomic word.
    #[must_use]
    pub fn number(self) -> usize {
        self.0
    }
}

/// A walk: from where, by which path, to what of it.
#[derive(Clone, Copy)]
pub(super) struct Route<'a> {
    /// Where it starts: the root for an absolute path.
    pub(super) start: Start,
    pub(super) path: &'a [u8],
    /// What is done at its end.
    pub(super) flags: LookupFlags,
}

impl Route<'_> {
    /// A hash of all of it. Two starts and two kinds of end differ in it nearly always, and are compared besides.
    #[inline]
    fn hash(&self) -> u64 {
        hash_of(self.path) ^ (self.start.0 as u64 >> 4) ^ u64::from(self.end()) << 32
    }

    #[inline]
    fn end(&self) -> u8 {
        u8::from(self.flags.follow) | u8::from(self.flags.directory) << 1
    }
}

struct Known {
    generation: u64,
    /// Held weakly, so that its address is not another's.
    start: Weak<Entry>,
    path: [u8; PATH_BYTES_KEPT_MAX],
    path_length: u8,
    end: u8,
    walkers: Walkers,
    entry: Weak<Entry>,
    mount: Arc<Mount>,
}

/// In cache lines of its own: two processors that walk to different places do not meet.
#[derive(Default)]
#[repr(align(64))]
struct Place {
    /// Hash of the walk that is kept or was done last.
    hash: u64,
    known: Option<Known>,
}

/// The walks of a name space.
pub(super) struct KnownWalks {
    generation: AtomicU64,
    places: Box<[Mutex<Place>]>,
}

impl KnownWalks {
    pub(super) fn new() -> Self {
        Self { generation: AtomicU64::new(0), places: (0..PLACE_COUNT).map(|_| Mutex::default()).collect() }
    }

    /// The number of what walks find now: taken before a walk that is to be kept.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Says that walks may lead elsewhere from now on, or may not be done any more.
    pub(super) fn forget_all(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The same, and lets go of mounts.
    pub(super) fn release_mounts(&self) {
        self.forget_all();
        for place in &self.places {
            let known = place.lock().known.take();
            drop(known);
        }
    }

    /// Where a walk leads, if that is known for this user.
    #[inline]
    pub(super) fn find(&self, route: &Route<'_>, may_search_all: impl FnOnce() -> bool) -> Option<Location> {
        self.find_with(route, may_search_all, |entry, mount| Location::of_parts(mount.clone(), entry))
    }

    /// As [`Self::find`], where only the entry matters: what all walks share is not written.
    #[inline]
    pub(super) fn find_entry(&self, route: &Route<'_>, may_search_all: impl FnOnce() -> bool) -> Option<Arc<Entry>> {
        self.find_with(route, may_search_all, |entry, _| entry)
    }

    #[inline]
    fn find_with<R>(
        &self,
        route: &Route<'_>,
        may_search_all: impl FnOnce() -> bool,
        found: impl FnOnce(Arc<Entry>, &Arc<Mount>) -> R,
    ) -> Option<R> {
        let hash = route.hash();
        let place = self.places.get(hash as usize % PLACE_COUNT)?.try_lock()?;
        if place.hash != hash {
            return None;
        }
        let known = place.known.as_ref()?;
        let is_it = known.generation == self.generation()
            && known.start.as_ptr().addr() == route.start.0
            && known.end == route.end()
            && (known.walkers == Walkers::All || may_search_all())
            && is_same(known.path.get(..usize::from(known.path_length))?, route.path);
        if !is_it {
            return None;
        }
        let entry = known.entry.upgrade().filter(|entry| !entry.is_deleted())?;
        Some(found(entry, &known.mount))
    }

    /// A walk from `start` that began in `generation` has led to `found`. It is kept if it was the last of its place
    /// before.
    pub(super) fn keep(
        &self,
        (route, start): (&Route<'_>, &Location),
        walkers: Walkers,
        generation: u64,
        found: &Location,
    ) {
        if route.path.len() > PATH_BYTES_KEPT_MAX || found.entry().is_passing() {
            return;
        }
        let hash = route.hash();
        let Some(mut place) = self.places.get(hash as usize % PLACE_COUNT).and_then(Mutex::try_lock) else { return };
        if place.hash != hash {
            place.hash = hash;
            return;
        }
        let mut path = [0; PATH_BYTES_KEPT_MAX];
        path[..route.path.len()].copy_from_slice(route.path);
        let before = place.known.replace(Known {
            generation,
            start: Arc::downgrade(start.entry()),
            path,
            path_length: route.path.len() as u8,
            end: route.end(),
            walkers,
            entry: Arc::downgrade(found.entry()),
            mount: found.mount().clone(),
        });
        drop(place);
        drop(before);
    }
}

#[cfg(test)]
mod tests;
