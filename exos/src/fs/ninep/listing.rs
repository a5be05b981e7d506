//! What a directory of a server held when it was read: entries with cookies, and their names.
//!
//! Limits: [`ENTRY_COUNT_MAX`] entries and [`NAME_BYTES_TOTAL_MAX`] bytes of names.
//! Neighbours: [`super::directory`], which reads it; [`super::guess`], which guesses by it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::metadata::FileKind;
use super::super::vnode::DirectoryEntry;
use super::message::ListedEntry;
use crate::error::{Errno, Result};

/// Most entries of a directory.
const ENTRY_COUNT_MAX: usize = 1 << 20;
/// Most bytes of names in a directory.
const NAME_BYTES_TOTAL_MAX: usize = 32 << 20;

/// An entry; its name is in [`Listing::names`].
#[derive(Clone, Copy)]
struct Entry {
    cookie: u64,
    inode_number: u64,
    kind: FileKind,
    name_start: u32,
    name_bytes: u8,
}

/// What a directory held when it was read.
#[derive(Clone, Default)]
pub(super) struct Listing {
    /// In the order of their cookies.
    entries: Vec<Entry>,
    names: Vec<u8>,
    next_cookie: u64,
    is_doubted: bool,
}

impl Listing {
    /// The same, to be read again when a listing begins.
    pub(super) fn doubted(&self) -> Self {
        Self { is_doubted: true, ..self.clone() }
    }

    pub(super) fn is_doubted(&self) -> bool {
        self.is_doubted
    }

    /// The entries behind a cookie.
    pub(super) fn behind(&self, cookie: u64) -> impl Iterator<Item = DirectoryEntry<'_>> {
        let first = self.entries.partition_point(|entry| entry.cookie <= cookie);
        self.entries[first..].iter().map(|entry| DirectoryEntry {
            name: self.name(entry),
            inode_number: entry.inode_number,
            kind: entry.kind,
            next_cookie: entry.cookie,
        })
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.name_start as usize;
        &self.names[start..start + usize::from(entry.name_bytes)]
    }

    /// How many entries there are.
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The name of an entry, by its place in the order of cookies.
    pub(super) fn name_at(&self, position: usize) -> Option<&[u8]> {
        self.entries.get(position).map(|entry| self.name(entry))
    }

    /// The inode number of an entry.
    pub(super) fn number_at(&self, position: usize) -> Option<u64> {
        self.entries.get(position).map(|entry| entry.inode_number)
    }

    /// One more entry, without a cookie yet.
    ///
    /// # Errors
    /// `EOVERFLOW`: it is too many. `ENOMEM`.
    pub(super) fn push(&mut self, inode_number: u64, listed: &ListedEntry<'_>) -> Result<()> {
        let is_full = self.entries.len() >= ENTRY_COUNT_MAX || self.names.len() >= NAME_BYTES_TOTAL_MAX;
        if is_full {
            return Err(Errno::EOVERFLOW);
        }
        self.entries.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.names.try_reserve(listed.name.len()).map_err(|_| Errno::ENOMEM)?;
        self.entries.push(Entry {
            cookie: 0,
            inode_number,
            kind: listed.kind,
            name_start: self.names.len() as u32,
            // The reader lets no longer name through.
            name_bytes: listed.name.len() as u8,
        });
        self.names.extend_from_slice(listed.name);
        Ok(())
    }

    /// Gives cookies: names that `before` had keep theirs.
    pub(super) fn number(&mut self, before: Option<&Self>) {
        let known: BTreeMap<&[u8], u64> = before
            .map(|it| it.entries.iter().map(|entry| (it.name(entry), entry.cookie)).collect())
            .unwrap_or_default();
        let mut next_cookie = before.map_or(1, |it| it.next_cookie);
        let mut entries = core::mem::take(&mut self.entries);
        for entry in &mut entries {
            entry.cookie = known.get(self.name(entry)).copied().unwrap_or_else(|| {
                next_cookie += 1;
                next_cookie - 1
            });
        }
        if before.is_some() {
            entries.sort_unstable_by_key(|entry| entry.cookie);
        }
        self.entries = entries;
        self.next_cookie = next_cookie;
    }
}
