//! The entries against an ordered map alone.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{PageMap, RUN_LENGTH_MAX};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Insert(u64),
    /// Inserts at the end of what lies in a row from the start.
    Append,
    Take(u64, u64),
    /// Takes out all from an index on.
    Cut(u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (0u64..24).prop_map(Change::Insert),
        5 => Just(Change::Append),
        1 => (0u64..24, 0u64..8).prop_map(|(start, length)| Change::Take(start, length)),
        1 => (0u64..24).prop_map(Change::Cut),
    ]
}

fn taken(model: &mut BTreeMap<u64, usize>, start: u64, end: u64) -> Vec<usize> {
    let indices: Vec<u64> = model.keys().copied().filter(|index| (start..end).contains(index)).collect();
    indices.into_iter().filter_map(|index| model.remove(&index)).collect()
}

proptest! {
    #[test]
    fn entries_are_those_of_an_ordered_map(changes in proptest::collection::vec(change(), 0..60)) {
        let (mut map, mut model) = (PageMap::default(), BTreeMap::new());
        for (value, change) in changes.into_iter().enumerate() {
            match change {
                Change::Insert(index) => {
                    map.insert(index, value);
                    model.insert(index, value);
                }
                Change::Append => {
                    let index = (0..).find(|index| !model.contains_key(index)).unwrap();
                    map.insert(index, value);
                    model.insert(index, value);
                }
                Change::Take(start, length) => {
                    let end = start + length;
                    prop_assert_eq!(map.take(start..end).collect::<Vec<_>>(), taken(&mut model, start, end));
                }
                Change::Cut(start) => {
                    let all = map.take(start..u64::MAX).collect::<Vec<_>>();
                    prop_assert_eq!(all, taken(&mut model, start, u64::MAX));
                }
            }
            prop_assert_eq!(map.is_empty(), model.is_empty());
            for index in 0..90 {
                prop_assert_eq!(map.get(index), model.get(&index));
                prop_assert_eq!(map.count_below(index), model.range(..index).count() as u64);
                prop_assert_eq!(map.next_index(index), model.range(index..).next().map(|(next, _)| *next));
            }
            prop_assert!(map.others.keys().all(|index| *index >= map.run.len() as u64));
        }
    }
}

#[test]
fn a_run_has_an_end_and_far_pages_cost_no_run() {
    let mut map = PageMap::default();
    let end = RUN_LENGTH_MAX as u64 + 2;
    for index in 0..end {
        map.insert(index, index);
    }
    map.insert(u64::MAX, 7);
    assert_eq!((map.run.len(), map.others.len()), (RUN_LENGTH_MAX, 3));
    assert!((0..end).all(|index| map.get(index) == Some(&index)));
    assert_eq!((map.get(u64::MAX), map.get(end), map.count_below(u64::MAX)), (Some(&7), None, end));
    assert_eq!(map.take(0..end).count() as u64, end);
    assert_eq!((map.run.capacity(), map.next_index(0)), (0, Some(u64::MAX)));
}
