//! A name as tables keep it: nearly always short, and then without memory of its own.
//!
//! A file that is made and removed puts its name into the directory's table, its entry and its parent's table of
//! entries. A block of the heap for each costs more than the rest of the step.

use alloc::sync::Arc;
use core::borrow::Borrow;
use core::ops::Deref;

/// Longest name that needs no block: with it a [`Name`] takes four words.
const SHORT_BYTES_MAX: usize = 30;

/// A name in a directory, 1 to 255 bytes.
#[derive(Clone)]
pub enum Name {
    /// Kept in place, without a heap block.
    Short(u8, [u8; SHORT_BYTES_MAX]),
    /// In a block that copies share.
    Long(Arc<[u8]>),
}

/// Copies `N` to twice as many bytes by their first and their last `N`; false, with nothing copied, for others.
#[inline]
fn put_ends<const N: usize>(place: &mut [u8], name: &[u8]) -> bool {
    let ends = (name.first_chunk::<N>(), name.last_chunk::<N>());
    let (Some(first), Some(last)) = ends else { return false };
    if name.len() > 2 * N {
        return false;
    }
    if let Some(begin) = place.first_chunk_mut::<N>() {
        *begin = *first;
    }
    if let Some(end) = place.last_chunk_mut::<N>() {
        *end = *last;
    }
    true
}

/// Copies a name to the beginning of a place that is no shorter: nearly always few bytes, without a call.
#[inline]
pub fn put_name(place: &mut [u8], name: &[u8]) {
    let place = &mut place[..name.len()];
    let is_put = put_ends::<8>(place, name) || put_ends::<4>(place, name) || put_ends::<16>(place, name);
    if !(is_put || put_ends::<2>(place, name) || put_ends::<1>(place, name)) {
        place.copy_from_slice(name);
    }
}

impl From<&[u8]> for Name {
    #[inline]
    fn from(name: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES_MAX];
        if name.len() > SHORT_BYTES_MAX {
            return Self::Long(name.into());
        }
        put_name(&mut bytes, name);
        Self::Short(name.len() as u8, bytes)
    }
}

impl Deref for Name {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::Long(name) => name,
        }
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(&alloc::string::String::from_utf8_lossy(self))
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, SHORT_BYTES_MAX};
    use alloc::vec::Vec;

    #[test]
    fn every_length_is_kept_as_it_is() {
        for length in 0..2 * SHORT_BYTES_MAX {
            let bytes: Vec<u8> = (1..=length as u8).collect();
            let name = Name::from(&bytes[..]);
            assert_eq!(*name, *bytes);
            assert_eq!(name, name.clone());
            assert_eq!(matches!(name, Name::Short(..)), length <= SHORT_BYTES_MAX);
            assert_ne!(name, Name::from(&b"\0"[..]));
        }
        assert!(Name::from(&b"a"[..]) < Name::from(&b"aa"[..]) && Name::from(&b"b"[..]) > Name::from(&b"aa"[..]));
        assert_eq!(size_of::<Name>(), 32);
    }
}
