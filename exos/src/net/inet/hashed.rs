//! A map by keyed hash (SipHash-1-3), whose cost nobody can drive up by a choice of keys, and which fails to grow
//! rather than fail.
//!
//! Entries lie in one vector and are chained by number; buckets are doubled when there are as many entries as buckets.
//!
//! Neighbour: [`super::ports`].

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use crate::error::Result;
use crate::reserve;

/// Ends a chain.
const NONE: u32 = u32::MAX;
/// Buckets at first.
const BUCKET_COUNT_MIN: usize = 64;

struct Entry<K, V> {
    hash: u64,
    next: u32,
    /// `None`: free.
    pair: Option<(K, V)>,
}

/// The map.
pub(super) struct Hashed<K, V> {
    key: [u64; 2],
    buckets: Vec<u32>,
    entries: Vec<Entry<K, V>>,
    /// Chain of free entries.
    free: u32,
    count: usize,
}

impl<K: Hash + Eq, V> Hashed<K, V> {
    /// An empty map under a key that nobody knows.
    pub(super) fn new(key: [u64; 2]) -> Self {
        Self { key, buckets: Vec::new(), entries: Vec::new(), free: NONE, count: 0 }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn hash(&self, key: &K) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        key.hash(&mut hasher);
        hasher.finish()
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn find(&self, key: &K) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let hash = self.hash(key);
        let mut at = self.buckets[self.bucket(hash)];
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.hash == hash && entry.pair.as_ref().is_some_and(|(known, _)| known == key) {
                return Some(at as usize);
            }
            at = entry.next;
        }
        None
    }

    /// What a key has.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries[self.find(key)?].pair.as_ref().map(|(_, value)| value)
    }

    /// Whether a key has something.
    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// Room for one more.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn reserve(&mut self) -> Result<()> {
        if self.free == NONE {
            reserve::reserve(&mut self.entries, 1)?;
        }
        if self.count < self.buckets.len() {
            return Ok(());
        }
        let bucket_count = (self.buckets.len() * 2).max(BUCKET_COUNT_MIN);
        let mut buckets = reserve::vector(bucket_count)?;
        buckets.resize(bucket_count, NONE);
        self.buckets = buckets;
        for at in 0..self.entries.len() {
            if self.entries[at].pair.is_some() {
                let bucket = self.bucket(self.entries[at].hash);
                self.entries[at].next = core::mem::replace(&mut self.buckets[bucket], at as u32);
            }
        }
        Ok(())
    }

    /// Gives a key something.
    ///
    /// # Errors
    /// `ENOMEM`: it has none yet, and there is no room.
    pub(super) fn insert(&mut self, key: K, value: V) -> Result<()> {
        if let Some(at) = self.find(&key) {
            self.entries[at].pair = Some((key, value));
            return Ok(());
        }
        self.reserve()?;
        let hash = self.hash(&key);
        let bucket = self.bucket(hash);
        let entry = Entry { hash, next: self.buckets[bucket], pair: Some((key, value)) };
        let at = match self.free {
            NONE => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
            free => {
                self.free = self.entries[free as usize].next;
                self.entries[free as usize] = entry;
                free as usize
            }
        };
        self.buckets[bucket] = at as u32;
        self.count += 1;
        Ok(())
    }

    /// Takes away what a key has.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key)?;
        let (next, bucket) = (self.entries[at].next, self.bucket(self.entries[at].hash));
        if self.buckets[bucket] == at as u32 {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket] as usize;
            while self.entries.get(before)?.next != at as u32 {
                before = self.entries[before].next as usize;
            }
            self.entries[before].next = next;
        }
        self.entries[at].next = core::mem::replace(&mut self.free, at as u32);
        self.count -= 1;
        let (_, value) = self.entries[at].pair.take()?;
        if self.count == 0 {
            // What many connections cost goes back with the last of them.
            (self.buckets, self.entries, self.free) = (Vec::new(), Vec::new(), NONE);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::Hashed;
    use crate::error::Errno;
    use crate::reserve::{Level, set_level};

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0..3u8, 0..200u16, any::<u32>()), 0..2000)) {
            let (mut map, mut model) = (Hashed::new([1, 2]), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    _ => {
                        prop_assert_eq!(map.insert(key, value), Ok(()));
                        model.insert(key, value);
                    }
                }
                prop_assert_eq!((map.get(&key), map.len()), (model.get(&key), model.len()));
            }
            for key in 0..200 {
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.remove(&key), model.remove(&key));
            }
            prop_assert_eq!((map.len(), map.entries.capacity()), (0, 0));
        }
    }

    #[test]
    fn without_memory_it_stays_as_it_was() {
        let mut map = Hashed::new([1, 2]);
        set_level(Level::Short);
        assert_eq!(map.insert(1, 1), Err(Errno::ENOMEM));
        set_level(Level::Whole);
        assert_eq!(map.insert(1, 1), Ok(()));
        set_level(Level::Short);
        assert_eq!((map.insert(1, 2), map.get(&1)), (Ok(()), Some(&2)));
        set_level(Level::Whole);
    }
}
