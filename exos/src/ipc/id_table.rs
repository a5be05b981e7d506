//! Objects by number and by key, numbered as Linux numbers them.
//!
//! A number is an index plus a sequence number times 32768. Indices are given in a row that begins again at the start
//! (after 64 of them, or half as many again as there are objects), and each new round has another sequence number: so
//! the number of an object that is gone is not given again for a long while, and does not name its successor.
//!
//! Invariants: `keys` is sorted and names exactly the slots that have a key; `used` counts the slots that are taken.

use alloc::vec::Vec;

use crate::error::{Errno, Result};

/// Bits of a number that are the index.
const INDEX_BITS: u32 = 15;
/// More objects than this no table has, whatever its limit.
pub const COUNT_MAX: usize = 1 << INDEX_BITS;
/// Sequence numbers: as many as keep numbers positive.
const SEQUENCE_COUNT: u32 = (i32::MAX as u32) >> INDEX_BITS;
/// Indices are given in rounds of at least this many.
const ROUND_MIN: usize = 64;
/// `IPC_PRIVATE`: no key.
pub const KEY_PRIVATE: i32 = 0;

struct Slot<T> {
    sequence: u32,
    key: i32,
    object: T,
}

/// Objects of one kind, by identifier.
pub struct IdTable<T> {
    slots: Vec<Option<Slot<T>>>,
    /// Key and index.
    keys: Vec<(i32, usize)>,
    used: usize,
    next_index: usize,
    last_index: Option<usize>,
    sequence: u32,
}

impl<T> Default for IdTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), keys: Vec::new(), used: 0, next_index: 0, last_index: None, sequence: 0 }
    }
}

fn id_of(index: usize, sequence: u32) -> i32 {
    (sequence << INDEX_BITS) as i32 | index as i32
}

impl<T> IdTable<T> {
    /// Objects that there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.used
    }

    /// The highest index in use.
    #[must_use]
    pub fn index_last(&self) -> Option<usize> {
        self.slots.iter().rposition(Option::is_some)
    }

    /// Adds the object that `make` makes of its number, if there are fewer than `limit`. `ENOSPC`, `ENOMEM`.
    pub fn add(&mut self, key: i32, limit: usize, make: impl FnOnce(i32) -> T) -> Result<i32> {
        let limit = limit.min(COUNT_MAX);
        if self.used >= limit {
            return Err(Errno::ENOSPC);
        }
        let round = (self.used * 3 / 2).max(ROUND_MIN).min(limit);
        let index = self.free_index(round).ok_or(Errno::ENOSPC)?;
        let missing = (index + 1).saturating_sub(self.slots.len());
        self.slots.try_reserve(missing).map_err(|_| Errno::ENOMEM)?;
        self.keys.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        if self.last_index.is_some_and(|last| index <= last) {
            self.sequence = (self.sequence + 1) % SEQUENCE_COUNT;
        }
        self.last_index = Some(index);
        self.next_index = index + 1;
        self.used += 1;
        self.slots.extend((0..missing).map(|_| None));
        let (sequence, id) = (self.sequence, id_of(index, self.sequence));
        self.slots[index] = Some(Slot { sequence, key, object: make(id) });
        if key != KEY_PRIVATE {
            let place = self.keys.partition_point(|entry| entry.0 < key);
            self.keys.insert(place, (key, index));
        }
        Ok(id)
    }

    /// The first free index of a round from the next on, or from the start.
    fn free_index(&self, round: usize) -> Option<usize> {
        let is_free = |index: &usize| self.slots.get(*index).is_none_or(Option::is_none);
        (self.next_index..round).find(is_free).or_else(|| (0..round).find(is_free))
    }

    /// The number of the object with a key.
    #[must_use]
    pub fn find(&self, key: i32) -> Option<i32> {
        let place = self.keys.binary_search_by_key(&key, |entry| entry.0).ok()?;
        let index = self.keys[place].1;
        self.slots.get(index)?.as_ref().map(|slot| id_of(index, slot.sequence))
    }

    fn index_of(&self, id: i32) -> Result<usize> {
        let word = u32::try_from(id).map_err(|_| Errno::EINVAL)?;
        let index = word as usize % COUNT_MAX;
        match self.slots.get(index) {
            Some(Some(slot)) if slot.sequence == word >> INDEX_BITS => Ok(index),
            _ => Err(Errno::EINVAL),
        }
    }

    /// An object. `EINVAL`: there is none with this number.
    pub fn get(&self, id: i32) -> Result<&T> {
        let index = self.index_of(id)?;
        self.slots[index].as_ref().map(|slot| &slot.object).ok_or(Errno::EINVAL)
    }

    /// The same to change it.
    pub fn get_mut(&mut self, id: i32) -> Result<&mut T> {
        let index = self.index_of(id)?;
        self.slots[index].as_mut().map(|slot| &mut slot.object).ok_or(Errno::EINVAL)
    }

    /// The object at an index, whatever its sequence number: the index is the lower bits of `id`. `EINVAL`.
    pub fn at_index(&self, id: i32) -> Result<(i32, &T)> {
        let index = usize::try_from(id).map_err(|_| Errno::EINVAL)? % COUNT_MAX;
        match self.slots.get(index) {
            Some(Some(slot)) => Ok((id_of(index, slot.sequence), &slot.object)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Takes an object out.
    pub fn remove(&mut self, id: i32) -> Option<T> {
        self.forget_key(id);
        let index = self.index_of(id).ok()?;
        self.used -= 1;
        self.slots[index].take().map(|slot| slot.object)
    }

    /// An object stays, but its key is free.
    pub fn forget_key(&mut self, id: i32) {
        let Ok(index) = self.index_of(id) else { return };
        if let Some(slot) = &mut self.slots[index] {
            let key = core::mem::replace(&mut slot.key, KEY_PRIVATE);
            if key != KEY_PRIVATE
                && let Ok(place) = self.keys.binary_search_by_key(&key, |entry| entry.0)
            {
                self.keys.remove(place);
            }
        }
    }

    /// All objects with their numbers, by index.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let slot = slot.as_ref()?;
            Some((id_of(index, slot.sequence), &slot.object))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{IdTable, KEY_PRIVATE};
    use crate::error::Errno;

    #[test]
    fn numbers_go_up_and_come_again_with_another_sequence() {
        let mut table = IdTable::default();
        let ids: Vec<i32> = (0..64).map(|_| table.add(KEY_PRIVATE, 100, |id| id).unwrap()).collect();
        assert_eq!(ids, (0..64).collect::<Vec<i32>>());
        for id in &ids[..4] {
            assert_eq!(table.remove(*id), Some(*id));
        }
        assert_eq!(table.add(KEY_PRIVATE, 100, |id| id), Ok(64), "there is room behind: the round is 90 long");
        for id in &ids[4..] {
            table.remove(*id);
        }
        assert_eq!(table.add(KEY_PRIVATE, 100, |id| id), Ok(32_768));
        assert_eq!(table.get(0), Err(Errno::EINVAL));
        assert_eq!(table.at_index(0), Ok((32_768, &32_768)));
    }

    #[test]
    fn one_that_comes_and_goes_has_another_number_each_time() {
        let mut table = IdTable::default();
        let mut seen = Vec::new();
        for _ in 0..1000 {
            let id = table.add(7, 10, |_| ()).unwrap();
            assert_eq!(table.find(7), Some(id));
            assert!(!seen.contains(&id));
            seen.push(id);
            table.remove(id);
            assert_eq!(table.find(7), None);
        }
    }

    #[test]
    fn the_limit_holds_and_bad_numbers_are_refused() {
        let mut table = IdTable::default();
        for key in 1..=3 {
            table.add(key, 3, |_| key).unwrap();
        }
        assert_eq!(table.add(9, 3, |_| 9), Err(Errno::ENOSPC));
        for id in [-1, i32::MIN, i32::MAX, 3, 32_768] {
            assert_eq!(table.get(id), Err(Errno::EINVAL), "{id}");
        }
        let id = table.find(2).unwrap();
        table.forget_key(id);
        assert_eq!((table.find(2), table.get(id)), (None, Ok(&2)));
        assert_eq!(table.count(), 3);
        assert_eq!(table.iter().map(|(_, object)| *object).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
