//! Extended attributes of one file in memory: names and values, in the order in which they came.
//!
//! Invariant: names and values of a file together are at most [`FILE_BYTES_MAX`], as on a file system whose inodes have
//! a block for them. The name space decides which may be read or set (`namespace/extended.rs`).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::vnode::Inode;
use crate::error::{Errno, Result};

/// Most bytes of names and values of one file; beyond them `ENOSPC`.
pub const FILE_BYTES_MAX: usize = 64 * 1024;
/// Longest name, with its prefix.
pub const NAME_BYTES_MAX: usize = 255;

/// Whether an attribute may or must be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeChange {
    /// Either.
    Any,
    /// It must not (`XATTR_CREATE`).
    Create,
    /// It must (`XATTR_REPLACE`).
    Replace,
    /// It must and must not (both).
    Never,
}

/// A name and its value.
type Attribute = (Box<[u8]>, Box<[u8]>);

/// A file's attributes.
#[derive(Debug, Default)]
pub struct ExtendedAttributes {
    entries: Vec<Attribute>,
}

impl ExtendedAttributes {
    /// Those of a file that a layer in memory lies over.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOSPC`; `EIO` for a damaged image.
    pub fn of_base(base: &dyn Inode) -> Result<Self> {
        let mut all = Self::default();
        let names = base.extended_attribute_names()?;
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            all.set(name, &base.extended_attribute(name)?, AttributeChange::Any)?;
        }
        Ok(all)
    }

    /// The value of one.
    ///
    /// # Errors
    /// `ENODATA`.
    pub fn get(&self, name: &[u8]) -> Result<Vec<u8>> {
        let place = self.place_of(name).ok_or(Errno::ENODATA)?;
        copy(&[&self.entries[place].1])
    }

    /// Sets one.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`: as `change` says. `ENOSPC`, `ENOMEM`.
    pub fn set(&mut self, name: &[u8], value: &[u8], change: AttributeChange) -> Result<()> {
        let place = self.place_of(name);
        match (place, change) {
            (Some(_), AttributeChange::Create | AttributeChange::Never) => return Err(Errno::EEXIST),
            (None, AttributeChange::Replace | AttributeChange::Never) => return Err(Errno::ENODATA),
            _ => {}
        }
        let before = place.map_or(0, |place| name.len() + self.entries[place].1.len());
        if self.byte_count() - before + name.len() + value.len() > FILE_BYTES_MAX {
            return Err(Errno::ENOSPC);
        }
        let value = copy(&[value])?.into_boxed_slice();
        if let Some(place) = place {
            self.entries[place].1 = value;
            return Ok(());
        }
        let name = copy(&[name])?.into_boxed_slice();
        self.entries.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.entries.push((name, value));
        Ok(())
    }

    /// Takes one away.
    ///
    /// # Errors
    /// `ENODATA`.
    pub fn remove(&mut self, name: &[u8]) -> Result<()> {
        let place = self.place_of(name).ok_or(Errno::ENODATA)?;
        self.entries.remove(place);
        Ok(())
    }

    /// Their names, each with a zero byte behind it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn names(&self) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        let length = self.entries.iter().map(|(name, _)| name.len() + 1).sum();
        names.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        for (name, _) in &self.entries {
            names.extend_from_slice(name);
            names.push(0);
        }
        Ok(names)
    }

    fn place_of(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|(other, _)| **other == *name)
    }

    fn byte_count(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// Parts one behind the other.
///
/// # Errors
/// `ENOMEM`.
pub fn copy(parts: &[&[u8]]) -> Result<Vec<u8>> {
    let mut copied = Vec::new();
    copied.try_reserve_exact(parts.iter().map(|part| part.len()).sum()).map_err(|_| Errno::ENOMEM)?;
    parts.iter().for_each(|part| copied.extend_from_slice(part));
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::{AttributeChange, ExtendedAttributes, FILE_BYTES_MAX};
    use crate::error::Errno;

    #[test]
    fn values_are_kept_within_the_limit() {
        let mut attributes = ExtendedAttributes::default();
        assert_eq!(attributes.set(b"a", b"1", AttributeChange::Replace), Err(Errno::ENODATA));
        assert_eq!(attributes.set(b"a", b"1", AttributeChange::Create), Ok(()));
        assert_eq!(attributes.set(b"a", b"2", AttributeChange::Create), Err(Errno::EEXIST));
        assert_eq!(attributes.set(b"a", b"2", AttributeChange::Never), Err(Errno::EEXIST));
        assert_eq!(attributes.set(b"z", b"2", AttributeChange::Never), Err(Errno::ENODATA));
        assert_eq!(attributes.set(b"b", b"", AttributeChange::Any), Ok(()));
        assert_eq!(attributes.set(b"c", &alloc::vec![0; FILE_BYTES_MAX], AttributeChange::Any), Err(Errno::ENOSPC));
        assert_eq!(attributes.set(b"a", &alloc::vec![7; FILE_BYTES_MAX - 2], AttributeChange::Any), Ok(()));
        assert_eq!(attributes.set(b"a", b"3", AttributeChange::Any), Ok(()));
        assert_eq!((attributes.get(b"a"), attributes.names()), (Ok(b"3".to_vec()), Ok(b"a\0b\0".to_vec())));
        assert_eq!((attributes.remove(b"a"), attributes.remove(b"a")), (Ok(()), Err(Errno::ENODATA)));
        assert_eq!(attributes.get(b"a"), Err(Errno::ENODATA));
    }
}
