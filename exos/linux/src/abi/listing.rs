//! Entries of a directory as `getdents64` and the old `getdents` lay them out, on their way to the program.
//!
//! Most directories fit where a listing begins, so they cost no memory of the heap. What is full goes behind what came
//! before; there may be no memory for that, and then the listing is as if there were no more room.
//!
//! Source: `linux/dirent.h`, which no header exports: getdents(2).

use alloc::vec::Vec;

use exos::fs::name::put_name;
use exos::fs::transfer::Destination;
use exos::fs::vnode::DirectoryEntry;
use exos::reserve;

use super::bytes::get;
use super::file::entry_type;

/// Bytes that most directories need no more of, and more than the longest entry.
const BEGUN_BYTES: usize = 512;
/// Offsets of `d_off`, `d_reclen` and what follows, in both forms.
const NEXT_OFFSET: usize = 8;
const LENGTH_OFFSET: usize = 16;
const REST_OFFSET: usize = 18;

/// Which of the two structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryForm {
    /// `struct linux_dirent`: the type is the last byte.
    Old,
    /// `struct linux_dirent64`: the type stands before the name.
    Wide,
}

/// What a call lists.
pub struct Listing {
    form: EntryForm,
    /// Bytes that may still be appended.
    room_bytes: usize,
    before: Vec<u8>,
    /// Zero from `begun_count` on.
    begun: [u8; BEGUN_BYTES],
    begun_count: usize,
}

impl Listing {
    /// An empty one with room for so many bytes.
    #[must_use]
    pub fn new(form: EntryForm, room_bytes: usize) -> Self {
        Self { form, room_bytes, before: Vec::new(), begun: [0; BEGUN_BYTES], begun_count: 0 }
    }

    /// Bytes of its entries.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.before.len() + self.begun_count
    }

    /// Appends an entry; false, with nothing appended, if there is no room for it.
    #[inline]
    pub fn push(&mut self, entry: &DirectoryEntry<'_>) -> bool {
        let (name_offset, tail_bytes) = match self.form {
            EntryForm::Old => (REST_OFFSET, 2),
            EntryForm::Wide => (REST_OFFSET + 1, 1),
        };
        let length = (name_offset + entry.name.len() + tail_bytes).next_multiple_of(8);
        if length > self.room_bytes || !self.make_room(length) {
            return false;
        }
        let Some(place) = self.begun.get_mut(self.begun_count..self.begun_count + length) else { return false };
        let Some((head, rest)) = place.split_first_chunk_mut::<REST_OFFSET>() else { return false };
        head[..NEXT_OFFSET].copy_from_slice(&entry.inode_number.to_le_bytes());
        head[NEXT_OFFSET..LENGTH_OFFSET].copy_from_slice(&entry.next_cookie.to_le_bytes());
        head[LENGTH_OFFSET..].copy_from_slice(&(length as u16).to_le_bytes());
        let type_offset = if self.form == EntryForm::Wide { 0 } else { rest.len() - 1 };
        rest[type_offset] = entry_type(entry.kind);
        put_name(&mut rest[name_offset - REST_OFFSET..], entry.name);
        self.begun_count += length;
        self.room_bytes -= length;
        true
    }

    /// Gives all of it to the program; answers how many bytes of whole entries it has, and, if not all could be
    /// written, where the directory goes on behind the last of them.
    pub fn write(&self, destination: &mut dyn Destination) -> (usize, Option<u64>) {
        let begun = &self.begun[..self.begun_count];
        let mut written = 0;
        if !self.before.is_empty() {
            written = destination.put(&self.before);
        }
        if written == self.before.len() {
            written += destination.put(begun);
        }
        if written == self.byte_count() {
            return (written, None);
        }
        whole_entries(self.before.iter().chain(begun).take(written).copied())
    }

    /// Sees to it that `length` bytes fit into what is begun.
    #[inline]
    fn make_room(&mut self, length: usize) -> bool {
        self.begun_count + length <= BEGUN_BYTES || self.turn_over(length)
    }

    #[cold]
    fn turn_over(&mut self, length: usize) -> bool {
        if length > BEGUN_BYTES || reserve::reserve(&mut self.before, self.begun_count).is_err() {
            return false;
        }
        self.before.extend_from_slice(&self.begun[..self.begun_count]);
        self.begun = [0; BEGUN_BYTES];
        self.begun_count = 0;
        true
    }
}

/// Bytes of the entries that are there whole, and where the directory goes on behind the last one.
fn whole_entries(bytes: impl Iterator<Item = u8>) -> (usize, Option<u64>) {
    let bytes: Vec<u8> = bytes.collect();
    let (mut count, mut next) = (0, None);
    while bytes.len() >= count + LENGTH_OFFSET + 2 {
        let length = usize::from(get::u16(&bytes, count + LENGTH_OFFSET));
        if length == 0 || bytes.len() < count + length {
            break;
        }
        next = Some(get::u64(&bytes, count + NEXT_OFFSET));
        count += length;
    }
    (count, next)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;
    use alloc::vec::Vec;

    use exos::fs::metadata::FileKind;
    use exos::fs::transfer::SliceDestination;
    use exos::fs::vnode::DirectoryEntry;

    use super::{EntryForm, Listing, get};

    /// What of a listing comes to a place of so many bytes.
    fn written(listing: &Listing, byte_count: usize) -> (Vec<u8>, (usize, Option<u64>)) {
        let mut bytes = vec![0xff; byte_count];
        let answer = listing.write(&mut SliceDestination::new(&mut bytes));
        (bytes, answer)
    }

    fn entry(name: &[u8], next_cookie: u64) -> DirectoryEntry<'_> {
        DirectoryEntry { name, inode_number: 5, kind: FileKind::Directory, next_cookie }
    }

    #[test]
    fn entries_are_packed_to_eight_bytes() {
        let mut wide = Listing::new(EntryForm::Wide, 63);
        assert!(wide.push(&entry(b"hello", 9)) && !wide.push(&entry(b"hello", 9)));
        let (bytes, answer) = written(&wide, 32);
        assert_eq!(answer, (32, None));
        assert_eq!((get::u64(&bytes, 0), get::u64(&bytes, 8)), (5, 9));
        assert_eq!((get::u16(&bytes, 16), bytes[18]), (32, 4));
        assert_eq!(&bytes[19..], b"hello\0\0\0\0\0\0\0\0");
        let mut old = Listing::new(EntryForm::Old, 32);
        assert!(old.push(&entry(b"hello", 9)));
        let (bytes, _) = written(&old, 32);
        assert_eq!((get::u16(&bytes, 16), &bytes[18..24], bytes[31]), (32, &b"hello\0"[..], 4));
        // A name of four bytes fills its 24 bytes exactly in both.
        for (form, end) in [(EntryForm::Wide, [b'r', 0]), (EntryForm::Old, [0, 4])] {
            let mut listing = Listing::new(form, 24);
            assert!(listing.push(&entry(b"four", 9)));
            assert_eq!(written(&listing, 24).0[22..], end);
        }
    }

    #[test]
    fn names_of_all_lengths_in_a_long_listing_come_out_as_they_went_in() {
        let names: Vec<String> = (1..=255).map(|length| "abcdefg".chars().cycle().take(length).collect()).collect();
        for form in [EntryForm::Wide, EntryForm::Old] {
            let mut listing = Listing::new(form, 1 << 16);
            for (index, name) in names.iter().enumerate() {
                assert!(listing.push(&entry(name.as_bytes(), index as u64)));
            }
            let (bytes, (count, next)) = written(&listing, 1 << 16);
            assert_eq!((count, next), (listing.byte_count(), None));
            let mut offset = 0;
            for (index, name) in names.iter().enumerate() {
                let length = usize::from(get::u16(&bytes, offset + 16));
                let start = offset + if form == EntryForm::Wide { 19 } else { 18 };
                assert_eq!(&bytes[start..start + name.len()], name.as_bytes());
                assert_eq!(bytes[start + name.len()], 0, "{form:?} {}", name.len());
                assert_eq!((get::u64(&bytes, offset + 8), length % 8), (index as u64, 0));
                offset += length;
            }
            assert_eq!(offset, count);
        }
    }

    #[test]
    fn memory_that_ends_gets_whole_entries() {
        let mut listing = Listing::new(EntryForm::Wide, 1 << 12);
        for cookie in 1..=40 {
            assert!(listing.push(&entry(b"a name of 24 characters.", cookie)));
        }
        let entry_bytes = 48;
        assert_eq!(listing.byte_count(), 40 * entry_bytes);
        assert_eq!(written(&listing, entry_bytes - 1).1, (0, None));
        assert_eq!(written(&listing, 3 * entry_bytes + 47).1, (3 * entry_bytes, Some(3)));
        assert_eq!(written(&listing, 39 * entry_bytes).1, (39 * entry_bytes, Some(39)));
    }
}
