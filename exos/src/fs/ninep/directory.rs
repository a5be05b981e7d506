//! Listing a directory of a server.
//!
//! The server's own offsets mean nothing to us (they can be any 64 bits, and an overlay wants small ones), so a
//! listing is read whole when it begins and kept while it goes on, with cookies of our own: entries count up from 1.
//! When a changed directory is read again, a name that was there before keeps its cookie, so a listing that was
//! under way neither repeats nor misses a name that was there all the time.
//!
//! A listing of an unchanging tree goes when its end was reached: a walk over everything keeps nothing. One of a
//! changing directory is kept with its inode, and read again when it begins anew. The last ones are kept for some time
//! as guesses at what will be looked up ([`super::ahead`]).
//!
//! QEMU's server looks at each entry that it read before it replies, and a whole reply fails with `ENOENT` when one has
//! gone in between. A busy directory is therefore read on in smaller replies ([`ReplyBudget`]), between whose reading
//! and looking there is hardly time.
//!
//! Limits: those of [`super::listing`]; a larger directory is `EOVERFLOW`. [`TRY_COUNT_MAX`] replies in a row may fail.

use alloc::sync::Arc;

use super::super::vnode::EntryConsumer;
use super::NinepFs;
use super::inode::NinepInode;
use super::listing::Listing;
use super::message::{ListedEntry, Reader, Request};
use super::special::SPECIAL_COOKIE_FIRST;
use crate::error::{Errno, Result};

/// What a listing of an unchanging tree has no cookie for: all of it was told.
const END_COOKIE: u64 = 1 << 40;
/// A reply of this many bytes has room for any entry.
const REPLY_BYTES_MIN: usize = 512;
/// Replies in a row in which an entry may have gone, before a listing fails.
const TRY_COUNT_MAX: u32 = 32;

impl NinepInode {
    /// Lists from `cookie` on. No lock is held while `consumer` runs.
    pub(super) fn list(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        if cookie >= END_COOKIE {
            return Ok(cookie);
        }
        let specials = &self.fs.specials;
        if cookie >= SPECIAL_COOKIE_FIRST {
            return Ok(specials.list(self.number, cookie, consumer));
        }
        let listing = self.listing(cookie == 0)?;
        let has_specials = specials.has_any(self.number);
        let mut position = cookie;
        for entry in listing.behind(cookie) {
            let is_hidden = has_specials && specials.get(self.number, entry.name).is_some();
            if !is_hidden && !consumer(entry) {
                return Ok(position);
            }
            position = entry.next_cookie;
        }
        if has_specials {
            return Ok(specials.list(self.number, position.max(SPECIAL_COOKIE_FIRST), consumer));
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
            && (!begins || (self.fs.is_fixed() && !listing.is_doubted()))
        {
            return Ok(listing.clone());
        }
        let mut listing = self.read_listing()?;
        listing.number(before.as_deref());
        let listing = Arc::new(listing);
        self.state.lock().listing = Some(listing.clone());
        self.fs.visits.begin(self.number, &listing);
        Ok(listing)
    }

    /// Reads the whole directory.
    fn read_listing(&self) -> Result<Listing> {
        let fid = self.opened(false)?;
        // The next listing opens it anew, so that it sees what is there then.
        self.close_files();
        let mut listing = Listing::default();
        let mut offset = 0;
        let mut budget = ReplyBudget::new(self.fs.session.payload_bytes_max());
        loop {
            let bytes_max = budget.bytes;
            let reply = self.fs.session.call(
                Request::ReadDirectory,
                |writer| {
                    writer.u32(fid.number()).u64(offset).u32(bytes_max as u32);
                },
                |reply| take_entries(&self.fs, Reader::of(reply.data(bytes_max)?), &mut listing),
            );
            let (next, outcome) = match reply {
                Err(Errno::ENOENT) if budget.shrinks() => continue,
                reply => reply?,
            };
            budget.grow();
            outcome?;
            match next {
                Some(next) => offset = next,
                None => return Ok(listing),
            }
        }
    }
}

/// How much of a directory is asked for at once: less when entries go meanwhile, more while none does.
struct ReplyBudget {
    bytes: usize,
    bytes_max: usize,
    failed_in_a_row: u32,
}

impl ReplyBudget {
    fn new(bytes_max: usize) -> Self {
        Self { bytes: bytes_max, bytes_max, failed_in_a_row: 0 }
    }

    /// Notes that an entry had gone; `false`: it was once too often.
    fn shrinks(&mut self) -> bool {
        self.bytes = (self.bytes / 4).max(REPLY_BYTES_MIN.min(self.bytes_max));
        self.failed_in_a_row += 1;
        self.failed_in_a_row < TRY_COUNT_MAX
    }

    fn grow(&mut self) {
        self.bytes = (self.bytes * 2).min(self.bytes_max);
        self.failed_in_a_row = 0;
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
        if let Err(error) = listing.push(fs.number_of(listed.qid), &listed) {
            return Some((next, Err(error)));
        }
    }
    Some((next, Ok(())))
}
