//! What records do to segments: used by recovery, truncation, and to find what a page was.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::Segment;
use super::double::{Area, write_pages};
use super::entry::{self, Entry, KIND_ABORT, KIND_COMMIT, KIND_HOLD};
use crate::error::Error;
use crate::lock::PageName;
use crate::log::{Appended, Damage, HEAD_BYTES, Head, Ring};
use crate::medium::Medium;
use crate::memory::{PAGE_BYTES, Page};

/// Pages that recovery and truncation keep before they write them.
pub(super) const CACHE_PAGE_COUNT: usize = 1024;
/// Pages that are written when there are so many.
const WRITE_PAGE_COUNT: usize = 64;

/// A hold: where its record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub position: u64,
    pub sequence: u64,
}

/// What is known of transactions that have not ended, while records are read in their order.
#[derive(Debug, Default)]
pub(super) struct Replayer {
    holds: BTreeMap<u64, Vec<Hold>>,
    /// Records that were commits.
    pub commit_count: u64,
}

impl Replayer {
    /// Takes the next record: has `apply` store what it makes of segments, in order, with the record's number.
    pub(super) fn record<M: Medium>(
        &mut self,
        ring: &Ring<M>,
        segments: &[u64],
        (head, place, payload): (&Head, Appended, &[u8]),
        apply: &mut dyn FnMut(Entry<'_>, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let transaction = entry::transaction(payload);
        match head.kind {
            KIND_HOLD => {
                entry::entries(payload, head.sequence, segments)?;
                let hold = Hold { position: place.position, sequence: place.sequence };
                self.holds.entry(transaction).or_default().push(hold);
                Ok(())
            }
            KIND_COMMIT => {
                for hold in self.holds.remove(&transaction).unwrap_or_default() {
                    each_entry(ring, segments, hold, false, &mut |entry| apply(entry, head.sequence))?;
                }
                self.commit_count += 1;
                let entries = entry::entries(payload, head.sequence, segments)?;
                entries.into_iter().try_for_each(|entry| apply(entry, head.sequence))
            }
            KIND_ABORT => {
                let holds = self.holds.remove(&transaction).unwrap_or_default();
                undo(ring, segments, &holds, &mut |entry| apply(entry, head.sequence))
            }
            _ => Err(Error::Damage(Damage::Nonsense { sequence: head.sequence })),
        }
    }

    /// The log ends here: what has not ended is undone. Answers how many transactions that were.
    pub(super) fn finish<M: Medium>(
        self,
        ring: &Ring<M>,
        segments: &[u64],
        apply: &mut dyn FnMut(Entry<'_>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        for holds in self.holds.values() {
            undo(ring, segments, holds, apply)?;
        }
        Ok(self.holds.len() as u64)
    }
}

/// Stores the old bytes of holds, the last first.
pub(super) fn undo<M: Medium>(
    ring: &Ring<M>,
    segments: &[u64],
    holds: &[Hold],
    apply: &mut dyn FnMut(Entry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    holds.iter().rev().try_for_each(|&hold| each_entry(ring, segments, hold, true, apply))
}

/// The old or the new entries of a hold; the old ones from the last to the first.
fn each_entry<M: Medium>(
    ring: &Ring<M>,
    segments: &[u64],
    hold: Hold,
    is_old: bool,
    apply: &mut dyn FnMut(Entry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut record = Vec::new();
    let missing = Error::Damage(Damage::Middle { sequence: hold.sequence, position: hold.position });
    let head = ring.read(hold.position, hold.sequence, &mut record)?.ok_or(missing)?;
    let payload = record.get(HEAD_BYTES..HEAD_BYTES + head.payload_bytes as usize).ok_or(missing)?;
    let mut entries = entry::entries(payload, hold.sequence, segments)?;
    entries.retain(|entry| entry.is_old == is_old);
    if is_old {
        entries.reverse();
    }
    entries.into_iter().try_for_each(apply)
}

/// Calls `each` with the parts of an entry that lie in one page each: page, offset in it, bytes.
pub(super) fn each_part(
    entry: Entry<'_>,
    each: &mut impl FnMut(PageName, usize, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut offset = entry.offset;
    let mut rest = entry.bytes;
    while !rest.is_empty() {
        let inside = (offset % PAGE_BYTES as u64) as usize;
        let (part, after) = rest.split_at(rest.len().min(PAGE_BYTES - inside));
        each((entry.segment, offset / PAGE_BYTES as u64), inside, part)?;
        offset += part.len() as u64;
        rest = after;
    }
    Ok(())
}

/// Pages of segments on their way to the medium: read once, changed, written once unless there are too many. Since
/// everything is stored in order, a page that is written early and read again ends the same.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pages: BTreeMap<PageName, Box<Page>>,
    order: VecDeque<PageName>,
}

impl Cache {
    /// Stores bytes into a page.
    pub(super) fn store<M: Medium>(
        &mut self,
        (segments, area): (&[Segment<M>], &mut Option<Area<M>>),
        name: PageName,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Error> {
        if !self.pages.contains_key(&name) {
            while self.pages.len() >= CACHE_PAGE_COUNT {
                self.write_oldest(segments, area)?;
            }
            let mut page = Box::new([0; PAGE_BYTES]);
            segments[name.0 as usize].read(name.1, &mut page)?;
            self.pages.insert(name, page);
            self.order.push_back(name);
        }
        if let Some(page) = self.pages.get_mut(&name) {
            page[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Somebody else has written a newer version of the page.
    pub(super) fn forget(&mut self, name: PageName) {
        self.pages.remove(&name);
    }

    fn write_oldest<M: Medium>(&mut self, segments: &[Segment<M>], area: &mut Option<Area<M>>) -> Result<(), Error> {
        let names: Vec<PageName> = self.order.drain(..self.order.len().min(WRITE_PAGE_COUNT)).collect();
        let pages = names.iter().filter_map(|name| Some((*name, &**self.pages.get(name)?)));
        write_pages(area, segments, &pages.collect::<Vec<_>>())?;
        names.iter().for_each(|name| {
            self.pages.remove(name);
        });
        Ok(())
    }

    /// Writes all that is left.
    pub(super) fn write_all<M: Medium>(
        &mut self,
        segments: &[Segment<M>],
        area: &mut Option<Area<M>>,
    ) -> Result<(), Error> {
        let pages = core::mem::take(&mut self.pages);
        let pages: Vec<(PageName, &Page)> = pages.iter().map(|(name, page)| (*name, &**page)).collect();
        write_pages(area, segments, &pages)?;
        self.order.clear();
        Ok(())
    }
}
