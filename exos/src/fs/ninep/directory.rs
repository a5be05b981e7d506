//! Listing a directory of a server.
//!
//! The server's own offsets mean nothing to us (they can be any 64 bits, and an overlay wants small ones), so a
//! listing is read whole when it begins and kept while it goes on, with cookies of our own: entries count up from 1.
//! When a changed directory is read again, a name that was there before keeps its cookie, so a listing that was
//! under way neither repeats nor misses a name that was there all the time.
//!
//! A listing of an unchanging tree goes when its end was reached: a walk over everything keeps nothing. One of a
//! changing directory is kept with its inode, and read again when it begins anew.
//!
//! Limits: [`ENTRY_COUNT_MAX`] entries and [`NAME_BYTES_TOTAL_MAX`] bytes of names; a larger directory is `EOVERFLOW`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::metadata::FileKind;
use super::super::vnode::{DirectoryEntry, EntryConsumer};
use super::NinepFs;
use super::inode::NinepInode;
use super::message::{ListedEntry, Reader, Request};
use crate::error::{Errno, Result};

/// Most entries of a directory.
const ENTRY_COUNT_MAX: usize = 1 << 20;
/// Most bytes of names in a directory.
const NAME_BYTES_TOTAL_MAX: usize = 32 << 20;
/// What a listing of an unchanging tree has no cookie for: all of it was told.
const END_COOKIE: u64 = 1 << 40;

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

    fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.name_start as usize;
        &self.names[start..start + usize::from(entry.name_bytes)]
    }

    fn push(&mut self, fs: &NinepFs, listed: &ListedEntry<'_>) -> Result<()> {
        let is_full = self.entries.len() >= ENTRY_COUNT_MAX || self.names.len() >= NAME_BYTES_TOTAL_MAX;
        if is_full {
            return Err(Errno::EOVERFLOW);
        }
        self.entries.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.names.try_reserve(listed.name.len()).map_err(|_| Errno::ENOMEM)?;
        self.entries.push(Entry {
            cookie: 0,
            inode_number: fs.number_of(listed.qid),
            kind: listed.kind,
            name_start: self.names.len() as u32,
            // The reader lets no longer name through.
            name_bytes: listed.name.len() as u8,
        });
        self.names.extend_from_slice(listed.name);
        Ok(())
    }

    /// Gives cookies: names that `before` had keep theirs.
    fn number(&mut self, before: Option<&Self>) {
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

impl NinepInode {
    /// Lists from `cookie` on. No lock is held while `consumer` runs.
    pub(super) fn list(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        if cookie >= END_COOKIE {
            return Ok(cookie);
        }
        let listing = self.listing(cookie == 0)?;
        let first = listing.entries.partition_point(|entry| entry.cookie <= cookie);
        let mut position = cookie;
        for entry in &listing.entries[first..] {
            let accepted = consumer(DirectoryEntry {
                name: listing.name(entry),
                inode_number: entry.inode_number,
                kind: entry.kind,
                next_cookie: entry.cookie,
            });
            if !accepted {
                return Ok(position);
            }
            position = entry.cookie;
        }
        if self.fs.is_fixed() {
            self.state.lock().listing = None;
            return Ok(END_COOKIE);
        }
        Ok(position)
    }

    /// The listing that goes on, or a new one.
    fn listing(&self, begins: bool) -> Result<Arc<Listing>> {
        let before = self.state.lock().listing.clone();
        if let Some(listing) = &before
            && (!begins || (self.fs.is_fixed() && !listing.is_doubted))
        {
            return Ok(listing.clone());
        }
        let mut listing = self.read_listing()?;
        listing.number(before.as_deref());
        let listing = Arc::new(listing);
        self.state.lock().listing = Some(listing.clone());
        Ok(listing)
    }

    /// Reads the whole directory.
    fn read_listing(&self) -> Result<Listing> {
        let fid = self.opened(false)?;
        // The next listing opens it anew, so that it sees what is there then.
        self.close_files();
        let mut listing = Listing::default();
        let mut offset = 0;
        loop {
            let payload_bytes_max = self.fs.session.payload_bytes_max();
            let (next, outcome) = self.fs.session.call(
                Request::ReadDirectory,
                |writer| {
                    writer.u32(fid.number()).u64(offset).u32(payload_bytes_max as u32);
                },
                |reply| take_entries(&self.fs, Reader::of(reply.data(payload_bytes_max)?), &mut listing),
            )?;
            outcome?;
            match next {
                Some(next) => offset = next,
                None => return Ok(listing),
            }
        }
    }
}

/// Takes the entries of one reply; the answer is where to go on, if there were any.
fn take_entries(fs: &NinepFs, mut reader: Reader<'_>, listing: &mut Listing) -> Option<(Option<u64>, Result<()>)> {
    let mut next = None;
    while !reader.is_empty() {
        let listed = ListedEntry::read(&mut reader)?;
        next = Some(listed.next_offset);
        if matches!(listed.name, b"." | b"..") {
            continue;
        }
        if let Err(error) = listing.push(fs, &listed) {
            return Some((next, Err(error)));
        }
    }
    Some((next, Ok(())))
}
