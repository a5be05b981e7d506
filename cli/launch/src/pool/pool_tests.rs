//! Changes of a pool on a medium that records what is asked of it: what each crash leaves.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use super::directory::{DATA_SECTOR, EXTENT_COUNT_MAX, Extent, SECTOR_BYTES, State, UNIT_SECTORS};
use super::errors::PoolError;
use super::{Medium, Pool, look};

const UNIT_BYTES: usize = (UNIT_SECTORS * SECTOR_BYTES) as usize;
/// The directory and three units.
const IMAGE_BYTES: usize = 4 * UNIT_BYTES;
/// What pod `a` writes, and what an image has that was used for something else.
const OF_A: u8 = 0xaa;
const OF_OTHERS: u8 = 0x55;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Clear(usize, usize),
    Sync,
}

impl Step {
    /// What of it is there after a crash: bytes from where to where, of all.
    fn parts(&self) -> Vec<(usize, usize)> {
        let length = match self {
            Self::Write(_, bytes) => bytes.len(),
            Self::Clear(_, length) => *length,
            Self::Sync => 0,
        };
        let sector = (SECTOR_BYTES as usize).min(length);
        vec![(0, 0), (0, length), (0, sector), (sector, length)]
    }

    fn apply(&self, bytes: &mut [u8], (from, to): (usize, usize)) {
        match self {
            Self::Write(offset, new) => bytes[offset + from..offset + to].copy_from_slice(&new[from..to]),
            Self::Clear(offset, _) => bytes[offset + from..offset + to].fill(0),
            Self::Sync => {}
        }
    }
}

#[derive(Clone, Debug)]
struct Disk {
    bytes: Vec<u8>,
    steps: Vec<Step>,
}

impl Disk {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, steps: Vec::new() }
    }

    fn record(&mut self, step: Step) -> io::Result<()> {
        step.apply(&mut self.bytes, step.parts()[1]);
        self.steps.push(step);
        Ok(())
    }
}

impl Medium for &mut Disk {
    fn size_bytes(&mut self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        bytes.copy_from_slice(&self.bytes[offset as usize..offset as usize + bytes.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.record(Step::Write(offset as usize, bytes.to_vec()))
    }

    fn clear(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.record(Step::Clear(offset as usize, length as usize))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.record(Step::Sync)
    }
}

/// Calls `check` with each state that a crash in the course of these steps can leave, on a medium that keeps what was
/// flushed, and of the rest any part.
fn crashes(before: &[u8], steps: &[Step], mut check: impl FnMut(Vec<u8>)) {
    let mut kept = before.to_vec();
    let mut pending: Vec<&Step> = Vec::new();
    for step in steps {
        if matches!(step, Step::Sync) {
            pending.drain(..).for_each(|step| step.apply(&mut kept, step.parts()[1]));
            continue;
        }
        pending.push(step);
        let mut states = vec![kept.clone()];
        for step in &pending {
            let grown = states.iter().flat_map(|state| {
                step.parts().into_iter().map(|part| {
                    let mut state = state.clone();
                    step.apply(&mut state, part);
                    state
                })
            });
            states = grown.collect();
        }
        states.into_iter().for_each(&mut check);
    }
    assert!(pending.is_empty(), "a change ends with a flush");
    check(kept);
}

/// Whose extents are ready, each held against the invariant: what is in use has its owner's bytes or none.
fn ready(bytes: &[u8]) -> Vec<(String, Option<String>)> {
    let mut disk = Disk::new(bytes.to_vec());
    let extents = look(&mut &mut disk).expect("a pool");
    assert!(disk.steps.is_empty(), "looking changes nothing");
    let ready = extents.into_iter().filter(|extent| extent.state == State::InUse);
    let checked = ready.inspect(|extent| {
        let found = contents(bytes, extent);
        let is_all = |byte| found == vec![byte; found.len()];
        let is_of_a = extent.owner.as_deref() == Some("a");
        assert!(is_all(0) || is_of_a && is_all(OF_A), "{extent:?} has foreign bytes");
    });
    checked.map(|extent| (extent.name, extent.owner)).collect()
}

fn contents<'a>(bytes: &'a [u8], extent: &Extent) -> &'a [u8] {
    let first = (extent.first_sector * SECTOR_BYTES) as usize;
    &bytes[first..first + (extent.sector_count * SECTOR_BYTES) as usize]
}

/// Does `change` with a pool, and looks at what each crash leaves, also a crash of the repair: the table before it or
/// after it, and nobody's bytes in another's hands.
fn survives(before: &[u8], change: impl Fn(&mut Pool<&mut Disk>)) -> Vec<u8> {
    let mut disk = Disk::new(before.to_vec());
    change(&mut Pool::open(&mut disk).expect("a pool"));
    let ends = [ready(before), ready(&disk.bytes)];
    // Most repairs are alike.
    let mut seen = [HashSet::new(), HashSet::new()];
    let mut is_new = |depth: usize, bytes: &[u8]| {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        seen[depth].insert(hasher.finish())
    };
    crashes(before, &disk.steps, |state| {
        if !is_new(0, &state) {
            return;
        }
        ready(&state);
        let mut again = Disk::new(state.clone());
        Pool::open(&mut again).expect("a crash leaves a pool");
        assert!(ends.contains(&ready(&again.bytes)), "{:?} is neither of {ends:?}", ready(&again.bytes));
        crashes(&state, &again.steps, |state| {
            if !is_new(1, &state) {
                return;
            }
            ready(&state);
            let mut third = Disk::new(state);
            Pool::open(&mut third).expect("a crash of the repair leaves a pool");
            assert!(ends.contains(&ready(&third.bytes)));
        });
    });
    disk.bytes
}

/// An image without a directory whose data is somebody's.
fn used_image() -> Vec<u8> {
    let mut bytes = vec![0; UNIT_BYTES];
    bytes.resize(IMAGE_BYTES, OF_OTHERS);
    bytes
}

/// The extent of `a`, of one unit, with its bytes.
fn image_of_a() -> Vec<u8> {
    let mut disk = Disk::new(used_image());
    let mut pool = Pool::open(&mut disk).expect("new");
    let extent = pool.take("data", "a", Some(UNIT_SECTORS)).expect("room");
    let first = (extent.first_sector * SECTOR_BYTES) as usize;
    disk.bytes[first..first + UNIT_BYTES].fill(OF_A);
    disk.bytes
}

#[test]
fn a_new_pool_survives_every_crash() {
    survives(&used_image(), |_| {});
}

#[test]
fn an_extent_is_made_or_not() {
    let bytes = survives(&image_of_a(), |pool| drop(pool.take("more", "b", Some(2 * UNIT_SECTORS)).expect("room")));
    assert_eq!(ready(&bytes).len(), 2);
}

#[test]
fn who_gets_an_extent_finds_zeros() {
    let bytes = survives(&image_of_a(), |pool| pool.give("data", "b").expect("it is there"));
    assert_eq!(ready(&bytes), [("data".to_owned(), Some("b".to_owned()))]);
    let extent = look(&mut &mut Disk::new(bytes.clone())).expect("a pool").remove(0);
    assert!(contents(&bytes, &extent).iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_freed_is_zeros_first() {
    let bytes = survives(&image_of_a(), |pool| pool.remove("data").expect("it is there"));
    assert!(ready(&bytes).is_empty());
    assert!(bytes[UNIT_BYTES..2 * UNIT_BYTES].iter().all(|byte| *byte == 0));
    assert!(bytes[2 * UNIT_BYTES..].iter().all(|byte| *byte == OF_OTHERS), "the rest was nobody's to touch");
}

#[test]
fn an_extent_is_its_first_users() {
    let mut disk = Disk::new(used_image());
    let mut pool = Pool::open(&mut disk).expect("new");
    assert!(matches!(pool.take("data", "a", None), Err(PoolError::NoSize(_))));
    let made = pool.create("data", None, 1).expect("room");
    assert_eq!((made.sector_count, made.owner.as_deref()), (UNIT_SECTORS, None));
    let taken = pool.take("data", "a", Some(UNIT_SECTORS - 1)).expect("its first user");
    assert_eq!((taken.first_sector, taken.owner.as_deref()), (DATA_SECTOR, Some("a")));
    let steps = pool.medium().steps.len();
    assert_eq!(pool.take("data", "a", None).expect("its owner"), taken);
    assert_eq!(pool.medium().steps.len(), steps, "what is as it was is not written");
    let why = pool.take("data", "b", None).expect_err("another's").to_string();
    assert!(why.contains("belongs to pod a; `aegis pool give IMAGE data b`"), "{why}");
    let why = pool.take("data", "a", Some(UNIT_SECTORS + 1)).expect_err("larger").to_string();
    assert_eq!(why, "extent data has 1 MiB, and its size does not change");
    assert!(matches!(pool.create("data", None, 1), Err(PoolError::Exists(_))));
    for count in [3 * UNIT_SECTORS, u64::MAX] {
        let why = pool.create("more", None, count).expect_err("too large").to_string();
        assert_eq!(why, "no room for extent more: 2 MiB are free in one piece");
    }
    assert!(matches!(pool.give("none", "a"), Err(PoolError::Unknown(_))));
    assert!(matches!(pool.give("data", "a"), Err(PoolError::Own { .. })));
    assert_eq!(pool.medium().steps.len(), steps, "what is refused changes nothing");
    assert!(matches!(pool.remove("none"), Err(PoolError::Unknown(_))));
}

#[test]
fn a_copy_that_is_damaged_costs_nothing() {
    let good = image_of_a();
    for offset in [0, UNIT_BYTES / 2] {
        let mut bytes = good.clone();
        bytes[offset + 32..offset + 4096].fill(0xee);
        let mut disk = Disk::new(bytes);
        Pool::open(&mut disk).expect("the other copy is whole");
        assert!(disk.bytes == good, "the copy is mended");
    }
    let mut bytes = good;
    [32, UNIT_BYTES / 2 + 32].into_iter().for_each(|at| bytes[at] ^= 1);
    let mut disk = Disk::new(bytes);
    assert!(matches!(Pool::open(&mut disk), Err(PoolError::Damaged)));
    assert!(disk.steps.is_empty(), "what is not understood is not written to");
}

#[test]
fn there_is_room_for_so_many() {
    let mut disk = Disk::new(vec![0; 2 * UNIT_BYTES - 1]);
    assert!(matches!(Pool::open(&mut disk), Err(PoolError::Small(_))));
    let mut disk = Disk::new(vec![0; IMAGE_BYTES]);
    let mut pool = Pool::open(&mut disk).expect("new");
    let many = (0..EXTENT_COUNT_MAX as u64).map(|number| Extent {
        name: format!("e{number}"),
        owner: None,
        first_sector: DATA_SECTOR + number * UNIT_SECTORS,
        sector_count: UNIT_SECTORS,
        state: State::InUse,
    });
    pool.directory.extents = many.collect();
    assert!(matches!(pool.create("more", None, 1), Err(PoolError::Count)));
}
