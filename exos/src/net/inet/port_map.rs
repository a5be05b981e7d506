//! A map by port number: two steps of 256, so that a look costs two loads whatever ports a program chooses.
//!
//! A page of 256 is there while one of its ports is, so a few ports cost a few KiB, and all of them half a MiB.
//!
//! Neighbour: [`super::ports`].

use alloc::boxed::Box;
use alloc::vec::Vec;

const PAGE_COUNT: usize = 256;

struct Page<T> {
    places: [Option<Box<T>>; 256],
    count: usize,
}

/// The map.
pub(super) struct PortMap<T> {
    /// None at all, or all of them.
    pages: Vec<Option<Box<Page<T>>>>,
}

impl<T> Default for PortMap<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

fn place_of(port: u16) -> (usize, usize) {
    (usize::from(port >> 8), usize::from(port & 0xff))
}

impl<T: Default> PortMap<T> {
    /// What a port has.
    #[inline]
    pub(super) fn get(&self, port: u16) -> Option<&T> {
        let (page, place) = place_of(port);
        self.pages.get(page)?.as_ref()?.places[place].as_deref()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, port: u16) -> Option<&mut T> {
        let (page, place) = place_of(port);
        self.pages.get_mut(page)?.as_mut()?.places[place].as_deref_mut()
    }

    /// Whether a port has something.
    pub(super) fn contains(&self, port: u16) -> bool {
        self.get(port).is_some()
    }

    /// What a port has from now on.
    pub(super) fn get_or_default(&mut self, port: u16) -> &mut T {
        let (page, place) = place_of(port);
        if self.pages.is_empty() {
            self.pages.resize_with(PAGE_COUNT, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new(Page { places: [const { None }; 256], count: 0 }));
        let entry = &mut page.places[place];
        page.count += usize::from(entry.is_none());
        entry.get_or_insert_default()
    }

    /// Takes away what a port has.
    pub(super) fn remove(&mut self, port: u16) {
        let (page, place) = place_of(port);
        let Some(slot) = self.pages.get_mut(page) else { return };
        let Some(own) = slot else { return };
        own.count -= usize::from(own.places[place].take().is_some());
        if own.count == 0 {
            *slot = None;
        }
    }

    /// What the ports have, by number.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten().flat_map(|page| page.places.iter().flatten().map(|entry| &**entry))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::PortMap;

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((any::<bool>(), any::<u16>(), any::<u32>()), 0..300)) {
            let (mut map, mut model) = (PortMap::<u32>::default(), BTreeMap::new());
            for (removes, port, value) in steps {
                // Few ports, so that they meet.
                let port = port & 0x0707;
                if removes {
                    map.remove(port);
                    model.remove(&port);
                } else {
                    *map.get_or_default(port) = value;
                    model.insert(port, value);
                }
                prop_assert_eq!((map.get(port), map.contains(port)), (model.get(&port), model.contains_key(&port)));
                prop_assert_eq!(map.values().collect::<Vec<_>>(), model.values().collect::<Vec<_>>());
            }
            model.keys().for_each(|port| map.remove(*port));
            prop_assert!(map.pages.iter().all(Option::is_none));
        }
    }
}
