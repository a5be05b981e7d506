//! What is kept of names among many, by inodes that stay and by such that do not, and what goes.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::{Entry, PLACE_COUNT_MAX, PLACE_COUNT_MIN, RecentEntries};
use crate::error::Result;
use crate::fs::location::Location;
use crate::fs::metadata::{FileSystemStatistics, Metadata};
use crate::fs::name_table::hash_of;
use crate::fs::test_support::{BY_ROOT, LARGE, World, pool, tmpfs_root};
use crate::fs::vnode::{Inode, InodeRef, NewNode};
use crate::reserve::{Level, set_level};

/// An inode whose file system does not keep it.
struct Passing(InodeRef);

impl Inode for Passing {
    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }
    fn statistics(&self) -> FileSystemStatistics {
        self.0.statistics()
    }
    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        Ok(Arc::new(Self(self.0.lookup(name)?)))
    }
}

fn names(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| format!("{number}").into_bytes())
}

/// Looks all names of a directory up for so many rounds; the entries that somebody holds still.
fn walked(directory: &Location, count: usize, rounds: usize) -> Vec<Weak<Entry>> {
    for name in (0..rounds).flat_map(|_| names(count)) {
        directory.child(&name).expect("it was created");
    }
    let known = names(count).filter_map(|name| directory.entry().known_child(&name, hash_of(&name)));
    known.map(|entry| Arc::downgrade(&entry)).collect()
}

#[test]
fn names_among_many_stay_known_until_they_are_removed() {
    const COUNT: usize = 3000;
    let world = World::tmpfs();
    for name in names(COUNT) {
        world.namespace.create(&world.caller(), &world.root, &name, NewNode::Regular, 0o600).expect("there is room");
    }
    let known = walked(&world.root, COUNT, 40);
    assert!(known.len() > COUNT * 3 / 4, "{} of {COUNT}", known.len());
    for name in names(COUNT) {
        world.namespace.unlink(&world.caller(), &world.root, &name).expect("it is there");
    }
    assert!(known.iter().all(|entry| entry.strong_count() == 0), "nobody can reach them any more");
}

#[test]
fn inodes_that_nobody_else_keeps_are_no_more_than_ever() {
    const COUNT: usize = 3000;
    let pool = pool();
    let below = tmpfs_root(&pool, 30, LARGE);
    for name in names(COUNT) {
        below.create(&name, NewNode::Regular, BY_ROOT).expect("there is room");
    }
    let world = World::over(pool, Arc::new(Passing(below)));
    let known = walked(&world.root, COUNT, 40);
    assert!((PLACE_COUNT_MIN / 4..=PLACE_COUNT_MIN).contains(&known.len()), "{}", known.len());
}

/// Entries of both kinds, and no end of them.
#[test]
fn whatever_goes_in_can_be_taken_out_and_the_table_has_an_end() {
    let root = tmpfs_root(&pool(), 30, LARGE);
    let kept = |_| Entry::of_root(root.clone());
    let passing = |_| Entry::of_root(Arc::new(Passing(root.clone())));
    let mut table = RecentEntries::default();
    let entries: Vec<_> = (0..3 * PLACE_COUNT_MAX).map(kept).collect();
    let others: Vec<_> = (0..PLACE_COUNT_MIN).map(passing).collect();
    assert!(table.take(&entries[0]).is_none());
    set_level(Level::Short);
    entries.iter().for_each(|entry| drop(table.put(entry)));
    assert_eq!(table.places.len(), PLACE_COUNT_MIN, "not while memory is short");
    set_level(Level::Whole);
    for entry in (0..4).flat_map(|_| &entries) {
        table.put(entry);
    }
    assert_eq!(table.places.len(), PLACE_COUNT_MAX);
    others.iter().for_each(|entry| drop(table.put(entry)));
    let all: Vec<_> = table.places.iter().flatten().cloned().collect();
    assert!(all.len() > PLACE_COUNT_MAX / 2);
    for entry in all {
        assert!(table.take(&entry).is_some_and(|taken| Arc::ptr_eq(&taken, &entry)));
        assert!(table.take(&entry).is_none());
    }
    assert!(table.places.iter().all(Option::is_none));
}

/// Chance would fill 0.632 of them.
#[test]
fn blocks_in_any_distance_are_spread_over_the_places() {
    for distance in (64..8192).step_by(16) {
        let addresses = (0..PLACE_COUNT_MAX as u64).map(|block| 0x7f12_3456_7890 + block * distance);
        let places =
            addresses.map(|address| super::hash_of_address(address) >> (64 - PLACE_COUNT_MAX.trailing_zeros()));
        let count = places.collect::<BTreeSet<_>>().len();
        assert!(count > PLACE_COUNT_MAX * 6 / 10, "{count} places of blocks of {distance}");
    }
}
