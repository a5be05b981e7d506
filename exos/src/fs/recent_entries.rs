//! The entries of a mount that were used lately: a cache in which an entry's address says its place.
//!
//! A program that walks among more names than there are places would have each entry made anew each time. So the places
//! become twice as many whenever entries have pushed out as many others as there are places, to [`PLACE_COUNT_MAX`].
//! That is for inodes that their file system keeps anyway ([`super::vnode::Inode::is_kept`]), of which an entry is the
//! smaller part; all others share [`PLACE_COUNT_MIN`] places of the table, as many as ever, since an entry keeps its
//! inode and its inode may keep much (a number at a server, what was read).
//!
//! INV: an entry is in the place that [`RecentEntries::place_of`] says or in none, also when the table has grown:
//! places are the first bits of a hash, so a place becomes two that nobody else shares, and what stands in it goes to
//! one of them. Inodes do not change whether they are kept.
//!
//! Neighbour: [`super::location`], which says what goes in, and takes out what loses its name.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::location::Entry;
use crate::reserve::{self, Level};

/// Fewest places of a table that is not empty; how many there are for inodes that nobody else keeps.
const PLACE_COUNT_MIN: usize = 1 << PLACE_BITS_MIN;
const PLACE_BITS_MIN: u32 = 9;
/// Most places.
const PLACE_COUNT_MAX: usize = 1 << 13;

fn is_kept(entry: &Arc<Entry>) -> bool {
    entry.inode().is_kept()
}

/// Multiplies by the golden ratio (Knuth), folds and multiplies again; the first bits are for use. One multiplication
/// is not enough: it puts addresses that lie in some distances from each other into few places.
const fn hash_of_address(address: u64) -> u64 {
    const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let spread = address.wrapping_mul(RATIO);
    (spread ^ (spread >> 32)).wrapping_mul(RATIO)
}

/// The table.
#[derive(Default)]
pub(super) struct RecentEntries {
    /// None, or a power of two.
    places: Vec<Option<Arc<Entry>>>,
    /// Entries that might have stayed in a longer table, and left since it had its length.
    displaced_count: usize,
}

impl RecentEntries {
    fn place_of(&self, entry: &Arc<Entry>) -> usize {
        let hash = hash_of_address(Arc::as_ptr(entry).addr() as u64);
        let bits = self.places.len().trailing_zeros();
        if is_kept(entry) {
            (hash >> (u64::BITS - bits)) as usize
        } else {
            ((hash >> (u64::BITS - PLACE_BITS_MIN)) as usize) << (bits - PLACE_BITS_MIN)
        }
    }

    /// Puts an entry in; what it pushed out.
    pub(super) fn put(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        if self.places.is_empty() {
            self.places.resize(PLACE_COUNT_MIN, None);
        } else if self.displaced_count > self.places.len() {
            self.grow();
        }
        let place = self.place_of(entry);
        let before = self.places.get_mut(place)?.replace(entry.clone());
        let might_stay = before.as_ref().is_some_and(is_kept) && is_kept(entry);
        self.displaced_count += usize::from(might_stay);
        before
    }

    /// Takes an entry out, if it is there.
    pub(super) fn take(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.place_of(entry);
        self.places.get_mut(place)?.take_if(|known| Arc::ptr_eq(known, entry))
    }

    /// Twice as many places, if there is memory for them.
    #[cold]
    fn grow(&mut self) {
        self.displaced_count = 0;
        let place_count = self.places.len() * 2;
        if place_count > PLACE_COUNT_MAX || reserve::level() != Level::Whole {
            return;
        }
        let Ok(mut places) = reserve::vector(place_count) else { return };
        places.resize_with(place_count, || None);
        for entry in core::mem::replace(&mut self.places, places).into_iter().flatten() {
            let place = self.place_of(&entry);
            self.places[place] = Some(entry);
        }
    }
}

#[cfg(test)]
#[path = "recent_entries_tests.rs"]
mod tests;
