//! Names and what they lead to, found by a hash of the whole name.
//!
//! A walk looks a name up in each directory of its path, so a look-up is a hash, nearly always one place, and one
//! comparison; an ordered map compares several names. The order of names means nothing here: directories are listed by
//! their file systems. Places follow one another without gaps from where a name's hash puts it (linear probing), and a
//! removal moves back those that may move, so nothing has to be marked as removed.
//!
//! Programs choose how many names there are, and a table is one block of memory: [`NameTable::make_room`] can fail, and
//! goes before [`NameTable::insert_at`]. A short table ([`SHORT_PLACE_COUNT`]) grows in any case: most directories have
//! few names, and a walk that comes to one has to find them there again.
//!
//! Neighbour: [`super::location`], whose entries know their children by it.

use alloc::vec::Vec;

use super::name::Name;
use crate::error::{Errno, Result};
use crate::reserve;

/// Fewest places of a table that is not empty.
const PLACE_COUNT_MIN: usize = 4;
/// Most places of a table that is made of exos's reserve where there is no other memory.
const SHORT_PLACE_COUNT: usize = 256;
/// Most names that a table is made ready for at a time: what the exchange of two names may need.
pub(super) const MORE_MAX: usize = 2;

struct Named<V> {
    hash: u64,
    name: Name,
    value: V,
}

/// A table of names.
pub(super) struct NameTable<V> {
    /// None, or a power of two, of which a quarter is free; an eighth where there is no memory for more.
    places: Vec<Option<Named<V>>>,
    count: usize,
}

impl<V> Default for NameTable<V> {
    fn default() -> Self {
        Self { places: Vec::new(), count: 0 }
    }
}

/// A hash of a name: eight bytes at a time are multiplied into it, to twice as many bits, whose halves are mixed. The
/// low half alone would not do: its lowest bits, by which places are chosen, depend on the first of the bytes only, and
/// names that differ in their last letter are what directories are full of.
#[inline]
pub(super) fn hash_of(name: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(MULTIPLIER);
        product as u64 ^ (product >> 64) as u64
    };
    let (chunks, _) = name.as_chunks::<8>();
    let hash = chunks.iter().fold(name.len() as u64, |hash, chunk| mix(hash, u64::from_le_bytes(*chunk)));
    mix(hash, last_word(name))
}

/// The last eight bytes, or all where there are fewer, in an order of its own: with the length and the words before,
/// it says what the name is.
#[inline]
fn last_word(name: &[u8]) -> u64 {
    if let Some(last) = name.last_chunk::<8>() {
        return u64::from_le_bytes(*last);
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
    }
    match name {
        [] => 0,
        [only] => u64::from(*only),
        [first, .., last] => u64::from(*first) | u64::from(name[1]) << 8 | u64::from(*last) << 16,
    }
}

/// Whether two names are the same, without a call.
#[inline]
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0).all(|(a, b)| a == b)
        && last_word(one) == last_word(other)
}

impl<V> NameTable<V> {
    /// Names.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Where a name is, or else the free place where it would be. The table has places.
    #[inline]
    fn find(&self, hash: u64, name: &[u8]) -> (usize, bool) {
        let mask = self.places.len() - 1;
        let mut index = hash as usize & mask;
        while let Some(named) = &self.places[index] {
            if named.hash == hash && is_same(&named.name, name) {
                return (index, true);
            }
            index = (index + 1) & mask;
        }
        (index, false)
    }

    /// What a name leads to.
    #[inline]
    pub(super) fn get(&self, name: &[u8]) -> Option<&V> {
        if self.count == 0 {
            return None;
        }
        let (index, _) = self.find(hash_of(name), name);
        self.places[index].as_ref().map(|named| &named.value)
    }

    /// The same of a name with this hash, to be changed.
    #[inline]
    pub(super) fn get_mut_at(&mut self, hash: u64, name: &[u8]) -> Option<&mut V> {
        if self.count == 0 {
            return None;
        }
        let (index, _) = self.find(hash, name);
        self.places[index].as_mut().map(|named| &mut named.value)
    }

    /// Of the names with this hash, the one that leads to what is `right`.
    #[inline]
    pub(super) fn find_by(&self, hash: u64, right: impl Fn(&V) -> bool) -> Option<(&Name, &V)> {
        let mask = self.places.len().checked_sub(1)?;
        let mut index = hash as usize & mask;
        while let Some(named) = self.places.get(index)? {
            if named.hash == hash && right(&named.value) {
                return Some((&named.name, &named.value));
            }
            index = (index + 1) & mask;
        }
        None
    }

    /// What all names lead to; they are forgotten.
    pub(super) fn take_values(&mut self) -> impl Iterator<Item = V> + use<V> {
        self.count = 0;
        core::mem::take(&mut self.places).into_iter().flatten().map(|named| named.value)
    }

    /// Sees to it that so many more names, at most [`MORE_MAX`], have a place.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline]
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        if (self.count + more) * 4 > self.places.len() * 3 { self.grow(more) } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<()> {
        debug_assert!(more <= MORE_MAX, "twice as many places hold no more");
        // A directory that has more than a few names has some more than those, nearly always.
        let times = if self.places.len() == PLACE_COUNT_MIN { 4 } else { 2 };
        let place_count = (self.places.len() * times).max(PLACE_COUNT_MIN);
        let is_grown = self.refill(place_count) || self.grow_of_reserve(place_count);
        if is_grown || (self.count + more) * 8 <= self.places.len() * 7 { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    fn grow_of_reserve(&mut self, place_count: usize) -> bool {
        let is_short = place_count <= SHORT_PLACE_COUNT;
        if is_short {
            self.move_to(Vec::with_capacity(place_count), place_count);
        }
        is_short
    }

    /// As [`Self::make_room`] for one name, for which there was room that others may have taken since: they leave an
    /// eighth of a long table.
    pub(super) fn make_sure_of_room(&mut self) {
        let has_room = self.make_room(1).is_ok() || self.count + 1 < self.places.len();
        debug_assert!(has_room, "whoever has room made puts in one name");
    }

    /// Leads a name with this hash to `value`; what it led to before is returned. There must be room.
    #[inline]
    pub(super) fn insert_at(&mut self, hash: u64, name: &[u8], value: V) -> Option<V> {
        let (index, _) = self.find(hash, name);
        if let Some(known) = &mut self.places[index] {
            return Some(core::mem::replace(&mut known.value, value));
        }
        self.count += 1;
        self.places[index] = Some(Named { hash, name: name.into(), value });
        None
    }

    /// What a name with this hash leads to: the default from now on, if it led to nothing. There must be room.
    #[inline]
    pub(super) fn get_or_insert_at(&mut self, hash: u64, name: &[u8]) -> &mut V
    where
        V: Default,
    {
        let (index, is_known) = self.find(hash, name);
        self.count += usize::from(!is_known);
        let named = || Named { hash, name: name.into(), value: V::default() };
        &mut self.places[index].get_or_insert_with(named).value
    }

    /// Takes a name out.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<V> {
        self.remove_if(name, |_| true)
    }

    /// Takes a name out if what it leads to is `good`.
    pub(super) fn remove_if(&mut self, name: &[u8], good: impl FnOnce(&V) -> bool) -> Option<V> {
        if self.count == 0 {
            return None;
        }
        let (free, _) = self.find(hash_of(name), name);
        let taken = self.places[free].take_if(|named| good(&named.value))?;
        self.count -= 1;
        self.close_gap(free);
        Some(taken.value)
    }

    /// Moves those behind a place that has become free to where a look-up will find them.
    fn close_gap(&mut self, mut free: usize) {
        let mask = self.places.len() - 1;
        let mut index = (free + 1) & mask;
        while let Some(named) = &self.places[index] {
            let distance = index.wrapping_sub(named.hash as usize) & mask;
            if distance >= index.wrapping_sub(free) & mask {
                self.places.swap(free, index);
                free = index;
            }
            index = (index + 1) & mask;
        }
    }

    /// Keeps the names whose values `keeps` says to keep.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&V) -> bool) {
        let mut index = 0;
        while let Some(place) = self.places.get(index) {
            if place.as_ref().is_none_or(|named| keeps(&named.value)) {
                index += 1;
                continue;
            }
            self.places[index] = None;
            self.count -= 1;
            // The name that comes to stand here is looked at next.
            self.close_gap(index);
        }
        // Without memory for a shorter table the long one stays.
        self.refill((self.count * 2).next_power_of_two().max(PLACE_COUNT_MIN));
    }

    /// Moves all names to a table of so many places; false, and nothing has changed, if there is no memory for it.
    fn refill(&mut self, place_count: usize) -> bool {
        let Ok(places) = reserve::vector(place_count) else { return false };
        self.move_to(places, place_count);
        true
    }

    /// Moves all names to a table of so many places, which is empty as yet.
    fn move_to(&mut self, mut places: Vec<Option<Named<V>>>, place_count: usize) {
        places.resize_with(place_count, || None);
        for named in core::mem::replace(&mut self.places, places).into_iter().flatten() {
            let (index, _) = self.find(named.hash, &named.name);
            self.places[index] = Some(named);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NameTable, hash_of};
    use crate::error::Errno;
    use crate::reserve::{Level, set_level};
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn insert<V>(table: &mut NameTable<V>, name: &[u8], value: V) -> Option<V> {
        table.insert_at(hash_of(name), name, value)
    }

    /// Every step of a fixed sequence of changes against an ordered map.
    #[test]
    fn a_table_answers_as_a_map_does() {
        let (mut table, mut map) = (NameTable::default(), BTreeMap::new());
        let mut state = 1_u64;
        for step in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = state >> 33;
            let name: Vec<u8> = (0..number % 23).map(|place| (number % 40 + place) as u8).collect();
            match number / 64 % 8 {
                0..4 => {
                    table.make_room(1).unwrap();
                    assert_eq!(insert(&mut table, &name, step), map.insert(name.clone(), step));
                }
                4..7 => assert_eq!(table.remove(&name), map.remove(&name)),
                _ if step % 100 == 0 => {
                    table.retain(|value| value % 3 != 0);
                    map.retain(|_, value| *value % 3 != 0);
                }
                _ => {}
            }
            assert_eq!(table.get(&name), map.get(&name));
            assert_eq!(table.len(), map.len());
        }
        assert!(map.iter().all(|(name, value)| table.get(name) == Some(value)));
        assert!(!map.is_empty());
    }

    /// Places are chosen by the lowest bits, and few names should share one.
    #[test]
    fn names_that_are_alike_are_far_apart() {
        let texts: [fn(usize) -> String; 4] = [
            |number| format!("/tmp/scale{number}"),
            |number| format!("{number:04}"),
            |number| format!("entry{number:06}.txt"),
            |number| format!("d{number}/of/a/longer/one"),
        ];
        for text in texts {
            for bits in [8, 10, 12] {
                let mut taken = alloc::vec![0; 1 << bits];
                for number in 0..1 << bits {
                    taken[hash_of(text(number).as_bytes()) as usize % (1 << bits)] += 1;
                }
                let free = taken.iter().filter(|count| **count == 0).count();
                // By chance 37 of a hundred stay free, and one of four thousand gets seven.
                assert!(free * 100 < (1 << bits) * 45, "{} {bits}: {free}", text(1));
                assert!(taken.iter().all(|count| *count <= 9), "{} {bits}", text(1));
            }
        }
    }

    #[test]
    fn what_a_name_leads_to_is_made_once() {
        let mut table = NameTable::<u8>::default();
        for (name, before) in [(b"a", 0), (b"b", 0), (b"a", 1), (b"a", 2)] {
            table.make_room(1).unwrap();
            let value = table.get_or_insert_at(hash_of(name), name);
            assert_eq!(*value, before);
            *value += 1;
        }
        assert_eq!((table.len(), table.get(b"a")), (2, Some(&3)));
        assert_eq!((table.remove(b"b"), table.len()), (Some(1), 1));
    }

    #[test]
    fn an_empty_table_has_nothing() {
        let mut table = NameTable::<u8>::default();
        assert_eq!(table.get(b""), None);
        assert_eq!((table.remove(b"a"), table.len()), (None, 0));
        table.make_room(1).unwrap();
        assert_eq!(insert(&mut table, b"", 1), None);
        assert_eq!(insert(&mut table, b"", 2), Some(1));
        assert_eq!((table.get(b"").copied(), table.remove(b""), table.len()), (Some(2), Some(2), 0));
        table.retain(|_| true);
        assert_eq!(table.get(b""), None);
    }

    #[test]
    fn a_table_that_cannot_grow_fills_up_refuses_and_goes_on_later() {
        let mut table = NameTable::default();
        let fill = |table: &mut NameTable<u32>, numbers: core::ops::Range<u32>| {
            for number in numbers {
                table.make_room(1).map_err(|error| (error, number))?;
                insert(table, &number.to_le_bytes(), number);
            }
            Ok(())
        };
        set_level(Level::Short);
        // Of the reserve up to 256 places, of which seven eighths may be used.
        assert_eq!(fill(&mut table, 0..1000), Err((Errno::ENOMEM, 224)));
        assert!((0..224).all(|number: u32| table.get(&number.to_le_bytes()) == Some(&number)));
        table.retain(|number| number % 2 == 0);
        assert_eq!(table.len(), 112);
        set_level(Level::Whole);
        assert_eq!(fill(&mut table, 224..1000), Ok(()));
        let is_there = |number: &u32| table.get(&number.to_le_bytes()) == Some(number);
        assert_eq!((0..1000).filter(is_there).count(), 112 + 776);
    }

    #[test]
    fn who_made_room_has_it_though_others_took_theirs_since_and_there_is_no_memory() {
        for count in (0..40_u32).chain(180..240) {
            let mut table = NameTable::default();
            for number in 0..count {
                table.make_room(1).expect("there is memory");
                insert(&mut table, &number.to_le_bytes(), number);
            }
            set_level(Level::Short);
            if table.make_room(1).is_err() {
                set_level(Level::Whole);
                continue;
            }
            let mut others = 1000_u32..;
            while table.make_room(1).is_ok() {
                let other = others.next().expect("numbers do not end");
                insert(&mut table, &other.to_le_bytes(), other);
            }
            table.make_sure_of_room();
            insert(&mut table, b"mine", 7);
            set_level(Level::Whole);
            // Names that are not there end the search at a free place.
            assert_eq!((table.get(b"mine"), table.get(b"none")), (Some(&7), None));
        }
    }
}
