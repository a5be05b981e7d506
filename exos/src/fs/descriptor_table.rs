//! File descriptors: small numbers for open descriptions, as one process (or several that share the table)
//! sees them.
//!
//! A plain structure; code that shares it locks it. What leaves the table is returned, so that its last reference is
//! dropped without the lock. The limit (`RLIMIT_NOFILE`) is an argument because it can change at any time.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::description::Description;
use crate::error::{Errno, Result};
use crate::reserve;

/// Most descriptors in a table, whatever the limit says (`/proc/sys/fs/nr_open`).
pub const DESCRIPTOR_COUNT_MAX: u32 = 1 << 20;

/// A descriptor: a number in a [`DescriptorTable`].
pub type DescriptorNumber = u32;

#[derive(Clone)]
struct Slot {
    description: Arc<Description>,
    close_on_exec: bool,
}

/// Descriptors that are closed at a time: closing must not fail for want of memory.
pub const CLOSED_COUNT_MAX: usize = 1024;

/// The descriptors of a process.
#[derive(Default)]
pub struct DescriptorTable {
    slots: Vec<Option<Slot>>,
    /// No slot below this one is free.
    first_free: usize,
}

impl DescriptorTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same descriptions under the same numbers, for another process. `ENOMEM`.
    pub fn copy(&self) -> Result<Self> {
        Ok(Self { slots: reserve::copy(&self.slots)?, first_free: self.first_free })
    }

    /// The description of a descriptor.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&self, number: DescriptorNumber) -> Result<Arc<Description>> {
        self.slot(number).map(|slot| slot.description.clone())
    }

    /// The lowest free number, at least `minimum` and below `limit`, becomes a descriptor for `description`.
    ///
    /// # Errors
    /// `EMFILE`: none is free. `EINVAL`: `minimum` is not below the limit. `ENOMEM`.
    pub fn add(
        &mut self,
        description: Arc<Description>,
        close_on_exec: bool,
        minimum: DescriptorNumber,
        limit: u32,
    ) -> Result<DescriptorNumber> {
        let limit = limit.min(DESCRIPTOR_COUNT_MAX);
        if minimum > 0 && minimum >= limit {
            return Err(Errno::EINVAL);
        }
        let from = self.first_free.max(minimum as usize);
        let free = (from..self.slots.len()).find(|index| self.slots[*index].is_none());
        let number = free.unwrap_or(self.slots.len().max(from)) as u32;
        if number >= limit {
            return Err(Errno::EMFILE);
        }
        self.put(number, Slot { description, close_on_exec })?;
        if minimum as usize <= self.first_free {
            self.first_free = number as usize + 1;
        }
        Ok(number)
    }

    /// Makes `new` a descriptor for what `old` is one for (`dup2`, `dup3` with different numbers). What
    /// `new` was is returned.
    ///
    /// # Errors
    /// `EBADF`: `old` is not open, or `new` is not below the limit. `ENOMEM`.
    pub fn duplicate_to(
        &mut self,
        old: DescriptorNumber,
        new: DescriptorNumber,
        close_on_exec: bool,
        limit: u32,
    ) -> Result<Option<Arc<Description>>> {
        if new >= limit.min(DESCRIPTOR_COUNT_MAX) {
            return Err(Errno::EBADF);
        }
        let description = self.get(old)?;
        self.put(new, Slot { description, close_on_exec })
    }

    /// Closes a descriptor; the description is returned.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn remove(&mut self, number: DescriptorNumber) -> Result<Arc<Description>> {
        self.slot(number)?;
        let taken = self.slots.get_mut(number as usize).and_then(Option::take);
        self.first_free = self.first_free.min(number as usize);
        taken.map(|slot| slot.description).ok_or(Errno::EBADF)
    }

    /// Whether a number below `limit` is free.
    pub fn has_room(&self, limit: usize) -> bool {
        let below = self.slots.len().min(limit);
        below < limit || self.slots[self.first_free.min(below)..below].iter().any(Option::is_none)
    }

    /// Closes descriptors from `first` to `last`, or marks all of them, as `close_range` does. The closed ones
    /// are returned, no more than [`CLOSED_COUNT_MAX`] at a time: until there are none.
    ///
    /// # Errors
    /// `EINVAL`: `first` is above `last`.
    pub fn remove_range(
        &mut self,
        first: DescriptorNumber,
        last: DescriptorNumber,
        only_mark: bool,
    ) -> Result<Vec<Arc<Description>>> {
        if first > last {
            return Err(Errno::EINVAL);
        }
        let mut closed = Vec::new();
        let end = (last as usize).saturating_add(1).min(self.slots.len());
        for index in (first as usize).min(end)..end {
            if closed.len() == CLOSED_COUNT_MAX {
                break;
            }
            if only_mark {
                if let Some(slot) = &mut self.slots[index] {
                    slot.close_on_exec = true;
                }
            } else if let Some(slot) = self.slots[index].take() {
                self.first_free = self.first_free.min(index);
                closed.push(slot.description);
            }
        }
        Ok(closed)
    }

    /// Closes what is to be closed on `execve`, and returns it, no more than [`CLOSED_COUNT_MAX`] at a time: until
    /// there is none.
    pub fn remove_for_exec(&mut self) -> Vec<Arc<Description>> {
        let mut closed = Vec::new();
        for (index, place) in self.slots.iter_mut().enumerate() {
            if closed.len() == CLOSED_COUNT_MAX {
                break;
            }
            if let Some(slot) = place.take_if(|slot| slot.close_on_exec) {
                self.first_free = self.first_free.min(index);
                closed.push(slot.description);
            }
        }
        closed
    }

    /// Everything that is open, once for each descriptor.
    pub fn into_all(self) -> impl Iterator<Item = Arc<Description>> {
        self.slots.into_iter().flatten().map(|slot| slot.description)
    }

    /// Whether a descriptor is closed on `execve` (`F_GETFD`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close_on_exec(&self, number: DescriptorNumber) -> Result<bool> {
        self.slot(number).map(|slot| slot.close_on_exec)
    }

    /// Sets that (`F_SETFD`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_close_on_exec(&mut self, number: DescriptorNumber, value: bool) -> Result<()> {
        let place = self.slots.get_mut(number as usize).and_then(Option::as_mut);
        place.map(|slot| slot.close_on_exec = value).ok_or(Errno::EBADF)
    }

    /// The open numbers, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = DescriptorNumber> + '_ {
        let open = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        open.map(|(index, _)| index as u32)
    }

    /// One more than the highest number ever open: what `/proc/self/status` calls `FDSize`.
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, number: DescriptorNumber) -> Result<&Slot> {
        self.slots.get(number as usize).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    fn put(&mut self, number: DescriptorNumber, slot: Slot) -> Result<Option<Arc<Description>>> {
        let index = number as usize;
        if index >= self.slots.len() {
            let missing = index + 1 - self.slots.len();
            reserve::reserve(&mut self.slots, missing)?;
            self.slots.resize(index + 1, None);
        }
        Ok(self.slots[index].replace(slot).map(|before| before.description))
    }
}

#[cfg(test)]
mod tests {
    use super::DescriptorTable;
    use crate::error::Errno;
    use crate::fs::test_support::World;
    use alloc::sync::Arc;

    #[test]
    fn the_lowest_free_number_is_taken() {
        let file = World::tmpfs().create("/f");
        let mut table = DescriptorTable::new();
        for expected in 0..3 {
            assert_eq!(table.add(file.clone(), false, 0, 8), Ok(expected));
        }
        table.remove(1).unwrap();
        assert_eq!(table.add(file.clone(), false, 5, 8), Ok(5));
        assert_eq!(table.add(file.clone(), false, 0, 8), Ok(1));
        assert_eq!(table.add(file.clone(), false, 0, 8), Ok(3));
        assert_eq!(table.add(file.clone(), false, 0, 8), Ok(4));
        assert_eq!(table.add(file.clone(), false, 0, 8), Ok(6));
        assert_eq!(table.add(file.clone(), false, 0, 7), Err(Errno::EMFILE));
        assert_eq!(table.add(file.clone(), false, 8, 8), Err(Errno::EINVAL));
        assert_eq!(table.remove(7).err(), Some(Errno::EBADF));
    }

    #[test]
    fn duplicates_share_the_description_but_not_the_flag() {
        let world = World::tmpfs();
        let (file, other) = (world.create("/f"), world.create("/g"));
        let mut table = DescriptorTable::new();
        table.add(file.clone(), true, 0, 8).unwrap();
        table.add(other.clone(), false, 0, 8).unwrap();
        let replaced = table.duplicate_to(0, 1, false, 8).unwrap();
        assert!(Arc::ptr_eq(&replaced.unwrap(), &other));
        assert!(Arc::ptr_eq(&table.get(1).unwrap(), &file));
        assert_eq!((table.close_on_exec(0), table.close_on_exec(1)), (Ok(true), Ok(false)));
        assert_eq!(table.duplicate_to(0, 8, false, 8).err(), Some(Errno::EBADF));
        assert_eq!(table.duplicate_to(5, 1, false, 8).err(), Some(Errno::EBADF));
        let mut child = table.copy().unwrap();
        assert_eq!(child.remove_for_exec().len(), 1);
        assert_eq!(child.numbers().collect::<alloc::vec::Vec<_>>(), [1]);
        assert_eq!(child.add(other, false, 0, 8), Ok(0));
        assert_eq!(table.remove_range(0, u32::MAX, true).unwrap().len(), 0);
        assert_eq!(table.close_on_exec(1), Ok(true));
        assert_eq!(table.remove_range(1, u32::MAX, false).unwrap().len(), 1);
        assert_eq!(table.remove_range(1, 0, false).err(), Some(Errno::EINVAL));
    }
}
