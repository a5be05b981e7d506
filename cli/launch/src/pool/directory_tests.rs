//! Directories as they are written, as a crash leaves them, and as somebody forges them.

use std::collections::HashSet;

use proptest::prelude::{Strategy, any, prop, proptest};

use super::{
    CHECKSUM, COPY_BYTES, COPY_OFFSETS, DATA_SECTOR, Directory, EXTENT_COUNT_MAX, Extent, Found, HEADER_BYTES,
    SECTOR_BYTES, State, UNIT_SECTORS, checksum,
};
use crate::pool::errors::PoolError;

const IMAGE_SECTORS: u64 = 64 * UNIT_SECTORS;

fn extent(name: &str, owner: Option<&str>, first_unit: u64, unit_count: u64) -> Extent {
    Extent {
        name: name.into(),
        owner: owner.map(str::to_owned),
        first_sector: first_unit.wrapping_mul(UNIT_SECTORS),
        sector_count: unit_count.wrapping_mul(UNIT_SECTORS),
        state: State::InUse,
    }
}

fn directory(generation: u64, extents: Vec<Extent>) -> Directory {
    Directory { generation, extents }
}

fn area(copies: [&[u8]; 2]) -> Vec<u8> {
    let mut bytes = vec![0; (DATA_SECTOR * SECTOR_BYTES) as usize];
    for (offset, copy) in COPY_OFFSETS.into_iter().zip(copies) {
        bytes[offset as usize..offset as usize + copy.len()].copy_from_slice(copy);
    }
    bytes
}

/// What is read, its extents held against the rules by other means than the reader's.
fn read(area: &[u8]) -> Result<Option<Found>, PoolError> {
    let found = Directory::read(area, IMAGE_SECTORS)?;
    let extents = found.iter().flat_map(|found| &found.directory.extents);
    let (mut sectors, mut names) = (HashSet::new(), HashSet::new());
    for extent in extents {
        assert!(extent.first_sector >= DATA_SECTOR && extent.sector_count > 0, "{extent:?}");
        assert!(extent.sector_count <= IMAGE_SECTORS - extent.first_sector, "{extent:?}");
        for unit in (extent.first_sector..extent.first_sector + extent.sector_count).step_by(UNIT_SECTORS as usize) {
            assert!(sectors.insert(unit), "{unit} twice");
        }
        assert!(names.insert(&extent.name) && super::is_name(&extent.name), "{extent:?}");
    }
    Ok(found)
}

#[test]
fn what_is_written_is_read() {
    let mut extents: Vec<Extent> = (1..60).map(|unit| extent(&format!("e{unit}"), Some("db"), unit, 1)).collect();
    (extents[3].state, extents[4].state, extents[5].owner) = (State::Clearing, State::Removing, None);
    let written = directory(7, extents);
    let copy = written.encode();
    let found = read(&area([&copy, &copy])).expect("sound").expect("not new");
    assert_eq!(found, Found { directory: written, is_stale: [false, false] });
    let full: Vec<Extent> =
        (0..EXTENT_COUNT_MAX as u64).map(|unit| extent(&format!("e{unit}"), None, 1 + unit, 1)).collect();
    let copy = directory(1, full).encode();
    let found = Directory::read(&area([&copy, &copy]), 1100 * UNIT_SECTORS).expect("sound").expect("not new");
    assert_eq!(found.directory.extents.len(), EXTENT_COUNT_MAX);
}

#[test]
fn the_newer_whole_copy_counts() {
    let [old, new] = [directory(7, vec![]), directory(8, vec![extent("a", None, 1, 1)])];
    let (torn, odd) = (vec![0xa5; COPY_BYTES], directory(8, vec![]).encode());
    for (copies, generation, is_stale) in [
        ([&new.encode(), &old.encode()], 8, [false, true]),
        ([&old.encode(), &new.encode()], 8, [true, false]),
        ([&torn, &old.encode()], 7, [true, false]),
        ([&new.encode(), &torn], 8, [false, true]),
    ] {
        let found = read(&area([copies[0], copies[1]])).expect("sound").expect("not new");
        assert_eq!((found.directory.generation, found.is_stale), (generation, is_stale));
    }
    for copies in [[&torn, &torn], [&new.encode(), &odd]] {
        assert!(matches!(read(&area([copies[0], copies[1]])), Err(PoolError::Damaged)));
    }
    let mut later = old.encode();
    later[8] = 2;
    assert!(matches!(read(&area([&new.encode(), &later])), Err(PoolError::Version(2))));
}

#[test]
fn only_what_was_never_used_is_new() {
    assert_eq!(read(&area([&[], &[]])).expect("zeros"), None);
    let first = Directory::first().encode();
    // A crash in the first write leaves any part of it.
    for (from, to) in [(0, 8), (0, 17), (8, 13), (40, 64), (32, 512)] {
        let mut torn = vec![0; COPY_BYTES];
        torn[from..to].copy_from_slice(&first[from..to]);
        assert_eq!(read(&area([&torn, &[]])).expect("torn"), None, "{from} to {to}");
    }
    // A boot sector, a superblock of ext4, and a directory whose only copy is damaged are not.
    let mut used = directory(1, vec![extent("a", None, 1, 1)]).encode();
    used[600] ^= 1;
    for (offset, bytes) in [(510, &[0x55, 0xaa][..]), (1080, &[0x53, 0xef]), (0, &used), (700_000, &[1])] {
        let mut area = area([&[], &[]]);
        area[offset..offset + bytes.len()].copy_from_slice(bytes);
        assert!(matches!(read(&area), Err(PoolError::Damaged)), "{offset}");
    }
}

#[test]
fn an_image_that_shrank_is_said() {
    let copy = directory(3, vec![extent("a", None, 60, 4), extent("last", None, 64, 1)]).encode();
    assert!(matches!(read(&area([&copy, &copy])), Err(PoolError::Outside(name)) if name == "last"));
}

#[test]
fn the_first_gap_that_is_large_enough_is_taken() {
    let table = directory(1, vec![extent("a", None, 4, 2), extent("b", None, 1, 1), extent("c", None, 9, 1)]);
    let place = |units: u64| table.place(units * UNIT_SECTORS, IMAGE_SECTORS + 5).map(|sector| sector / UNIT_SECTORS);
    assert_eq!([1, 2, 3, 4, 54, 55].map(place), [Some(2), Some(2), Some(6), Some(10), Some(10), None]);
    let gaps: Vec<u64> = table.gaps(IMAGE_SECTORS).map(|gap| (gap.end - gap.start) / UNIT_SECTORS).collect();
    assert_eq!(gaps, [2, 3, 54]);
}

/// Extents that may or may not be possible.
fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let unit = || proptest::prop_oneof![8 => 0_u64..70, 1 => any::<u64>()];
    let one = (0_u8..6, unit(), unit(), any::<bool>(), 0_u64..20).prop_map(|(name, first, count, owned, odd)| {
        let mut it = extent(&format!("e{name}"), owned.then_some("db"), first, count);
        it.first_sector = it.first_sector.wrapping_add(u64::from(odd == 1));
        it
    });
    prop::collection::vec(one, 0..5)
}

proptest! {
    #[test]
    fn extents_are_apart_whatever_is_written(first in extents(), second in extents(), generation in 1_u64..3) {
        let copies = [directory(2, first), directory(generation, second)].map(|it| it.encode());
        let _ = read(&area([&copies[0], &copies[1]]));
    }

    #[test]
    fn no_bytes_stop_the_reader(
        changes in prop::collection::vec((0_usize..HEADER_BYTES + 400, any::<u8>()), 0..8),
        others in prop::collection::vec((0_usize..COPY_BYTES, any::<u8>()), 0..4),
        is_sealed in any::<bool>(),
    ) {
        let good = directory(5, vec![extent("a", Some("db"), 1, 2), extent("b", None, 5, 1), extent("c", None, 7, 9)]);
        let mut copy = good.encode();
        for (at, byte) in changes.into_iter().chain(others) {
            copy[at] = byte;
        }
        if is_sealed {
            let sum = checksum(&copy);
            copy[CHECKSUM].copy_from_slice(&sum);
        }
        let _ = read(&area([&copy, &copy]));
        let found = read(&area([&good.encode(), &copy]));
        if let Ok(found) = found {
            assert!(found.is_some(), "what is there is never new");
        }
    }
}
