//! The back end for Linux: files, `mprotect`, SIGSEGV. Processes that are killed run this test program again.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, missing_docs, clippy::unwrap_used, reason = "a test of mapped memory")]

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rhino::linux::{Client, Database, Mapping, Service, Settings};
use rhino::{Detector, Durability, Error, MemoryError, PAGE_BYTES, Restore};

const DETECTORS: [Detector; 4] = [Detector::SetRange, Detector::Page, Detector::Diff, Detector::DirtyBits];
const PAGE_COUNT: usize = 16;

/// A database of its own for each test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("rhino-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Database::create(&folder.join("data"), (PAGE_COUNT * PAGE_BYTES) as u64).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("data")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path, detector: Detector) -> (Database, Mapping) {
    let settings = Settings { log_bytes: 1 << 20, ..Settings::default() };
    // A child that another test has just forked holds the lock until it executes its program.
    let held = |database: &Result<Database, Error>| matches!(database, Err(Error::Busy));
    let tries = std::iter::repeat_with(|| {
        thread::sleep(std::time::Duration::from_millis(1));
        Database::open(path, settings)
    });
    let database = tries.take(2000).find(|database| !held(database)).expect("held for seconds").unwrap();
    let mapping = database.map(0, PAGE_COUNT, detector, 0).unwrap();
    (database, mapping)
}

fn word(mapping: &Mapping, index: usize) -> *mut u64 {
    assert!(index * 8 < mapping.length());
    // SAFETY: inside.
    unsafe { mapping.address().cast::<u64>().add(index) }
}

fn load(mapping: &Mapping, index: usize) -> u64 {
    // SAFETY: mapped.
    unsafe { word(mapping, index).read_volatile() }
}

fn store(mapping: &Mapping, index: usize, value: u64) {
    // SAFETY: mapped.
    unsafe { word(mapping, index).write_volatile(value) }
}

#[test]
fn stores_last_when_they_were_committed() {
    let has_dirty_bits = exos_native::call::version().is_ok();
    for detector in DETECTORS.into_iter().filter(|detector| has_dirty_bits || *detector != Detector::DirtyBits) {
        let place = Place::new(&format!("last-{detector:?}"));
        for round in 0..4 {
            let (database, mapping) = open(&place.path(), detector);
            let transaction = database.begin(Restore::Yes).unwrap();
            for index in (0..4096).step_by(512) {
                transaction.set_range(&mapping, index as u64 * 8, 8).unwrap();
                assert_eq!(load(&mapping, index), round * 10);
                store(&mapping, index, (round + 1) * 10);
            }
            transaction.commit(Durability::Flush).unwrap();
            // An abort, and one that is dropped, leave nothing.
            for is_dropped in [false, true] {
                let transaction = database.begin(Restore::Yes).unwrap();
                transaction.set_range(&mapping, 8 * 512, 8).unwrap();
                store(&mapping, 512, 99);
                if is_dropped { drop(transaction) } else { transaction.abort().unwrap() }
            }
            let transaction = database.begin(Restore::Yes).unwrap();
            assert_eq!(load(&mapping, 512), (round + 1) * 10);
            transaction.commit(Durability::Flush).unwrap();
            if round == 2 {
                database.checkpoint().unwrap();
            }
        }
    }
}

/// Loads and stores by call need no declaration, and mix with plain ones on the same page, in either order.
#[test]
fn stores_by_call_are_as_good_as_plain_ones() {
    let has_dirty_bits = exos_native::call::version().is_ok();
    for detector in DETECTORS.into_iter().filter(|detector| has_dirty_bits || *detector != Detector::DirtyBits) {
        let place = Place::new(&format!("calls-{detector:?}"));
        for round in 0..3_u64 {
            let (database, mapping) = open(&place.path(), detector);
            for is_kept in [false, true] {
                let transaction = database.begin(Restore::Yes).unwrap();
                let value = |index: u64| if is_kept { round * 100 + index } else { 7 };
                // Words 0 and 1 by call, then 2 plainly, then 3 by call; two pages at once.
                transaction.write(&mapping, 0, &value(0).to_le_bytes()).unwrap();
                transaction.write(&mapping, 8, &value(1).to_le_bytes()).unwrap();
                transaction.set_range(&mapping, 16, 8).unwrap();
                store(&mapping, 2, value(2));
                transaction.write(&mapping, 24, &value(3).to_le_bytes()).unwrap();
                transaction.write(&mapping, PAGE_BYTES as u64 - 8, &[5; 16]).unwrap();
                let mut word = [0; 8];
                transaction.read(&mapping, 16, &mut word).unwrap();
                assert_eq!((u64::from_le_bytes(word), load(&mapping, 1)), (value(2), value(1)));
                if is_kept { transaction.commit(Durability::Flush) } else { transaction.abort() }.unwrap();
                let transaction = database.begin(Restore::Yes).unwrap();
                let found: Vec<u64> = (0..4).map(|index| load(&mapping, index)).collect();
                let expected = |index: u64| match (is_kept, round) {
                    (true, _) => round * 100 + index,
                    (false, 0) => 0,
                    (false, _) => (round - 1) * 100 + index,
                };
                assert_eq!(found, (0..4).map(expected).collect::<Vec<u64>>(), "{detector:?}");
                let error = transaction.write(&mapping, mapping.length() as u64 - 4, &[0; 8]).unwrap_err();
                assert_eq!(error, Error::OutOfRange);
                transaction.commit(Durability::Flush).unwrap();
            }
        }
        let (database, mapping) = open(&place.path(), Detector::Diff);
        let _transaction = database.begin(Restore::Yes).unwrap();
        assert_eq!((load(&mapping, 511), load(&mapping, 512)), (0x0505_0505_0505_0505, 0x0505_0505_0505_0505));
    }
}

/// Blocks of a segment that were spoilt while they were written come back from the area; without it nothing is opened.
#[test]
fn a_doubled_database_repairs_what_was_spoilt() {
    let place = Place::new("doubled");
    let path = place.0.join("twice");
    Database::create_doubled(&path, (PAGE_COUNT * PAGE_BYTES) as u64).unwrap();
    let (database, mapping) = open(&path, Detector::Diff);
    let transaction = database.begin(Restore::Yes).unwrap();
    (0..PAGE_COUNT).for_each(|page| store(&mapping, page * 512 + 70, page as u64 + 1));
    transaction.commit(Durability::Flush).unwrap();
    database.checkpoint().unwrap();
    drop((mapping, database));
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for page in [0, 3, PAGE_COUNT - 1] {
        file.write_all_at(&[0xee; 512], (page * PAGE_BYTES + 512) as u64).unwrap();
    }
    let (database, mapping) = open(&path, Detector::Diff);
    let transaction = database.begin(Restore::Yes).unwrap();
    assert!((0..PAGE_COUNT).all(|page| load(&mapping, page * 512 + 70) == page as u64 + 1));
    assert!((0..PAGE_COUNT).all(|page| load(&mapping, page * 512 + 71) == 0));
    drop(transaction);
    drop((mapping, database));
    fs::rename(place.0.join("twice.area"), place.0.join("away")).unwrap();
    assert!(matches!(Database::open(&path, Settings::default()), Err(Error::Damage(_))));
}

#[test]
fn who_has_no_dirty_bits_is_told() {
    if exos_native::call::version().is_ok() {
        return;
    }
    let place = Place::new("dirty");
    let database = Database::open(&place.path(), Settings::default()).unwrap();
    let refused = database.map(0, PAGE_COUNT, Detector::DirtyBits, 0).unwrap_err();
    assert_eq!(refused, Error::Memory(MemoryError::Unsupported));
    assert_eq!(database.map(0, PAGE_COUNT, Detector::Diff, 0).unwrap().length(), PAGE_COUNT * PAGE_BYTES);
}

#[test]
fn one_process_has_a_database() {
    let place = Place::new("one");
    let (database, mapping) = open(&place.path(), Detector::Diff);
    assert_eq!(Database::open(&place.path(), Settings::default()).unwrap_err(), Error::Busy);
    assert_eq!(Database::open(Path::new("/nowhere/at/all"), Settings::default()).unwrap_err(), Error::NoSegment);
    assert_eq!(database.map(0, 1, Detector::Diff, 0).unwrap_err(), Error::Busy);
    assert_eq!(database.map(15, 2, Detector::Diff, 0).unwrap_err(), Error::OutOfRange);
    let transaction = database.begin(Restore::Yes).unwrap();
    assert_eq!(database.begin(Restore::Yes).unwrap_err(), Error::Busy);
    drop(transaction);
    drop(mapping);
    drop(database);
    drop(open(&place.path(), Detector::Page));
}

/// Two threads of one process would have each other's pages: the second is refused at once, and may try again.
#[test]
fn a_second_thread_is_refused_and_harmless() {
    let place = Place::new("threads");
    let (database, mapping) = open(&place.path(), Detector::Diff);
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let transaction = database.begin(Restore::Yes).unwrap();
            store(&mapping, 0, 7);
            barrier.wait();
            barrier.wait();
            store(&mapping, 600, 9);
            transaction.commit(Durability::Flush).unwrap();
            barrier.wait();
        });
        barrier.wait();
        assert_eq!(database.begin(Restore::Yes).unwrap_err(), Error::Busy);
        barrier.wait();
        barrier.wait();
        let transaction = database.begin(Restore::Yes).unwrap();
        assert_eq!((load(&mapping, 0), load(&mapping, 600)), (7, 9));
        transaction.commit(Durability::Flush).unwrap();
    });
    drop((mapping, database));
    let (database, mapping) = open(&place.path(), Detector::Diff);
    let transaction = database.begin(Restore::Yes).unwrap();
    assert_eq!((load(&mapping, 0), load(&mapping, 600)), (7, 9), "what was committed lasts");
    drop(transaction);
}

#[test]
fn a_mapping_that_goes_before_its_transaction_keeps_nothing_open() {
    let place = Place::new("early");
    let (database, mapping) = open(&place.path(), Detector::Diff);
    let transaction = database.begin(Restore::Yes).unwrap();
    store(&mapping, 0, 7);
    drop(mapping);
    transaction.commit(Durability::Flush).unwrap();
    drop(database);
    let (database, mapping) = open(&place.path(), Detector::Diff);
    let transaction = database.begin(Restore::Yes).unwrap();
    assert_eq!(load(&mapping, 0), 7);
    drop(transaction);
}

#[test]
fn a_transaction_that_is_too_large_tells_so() {
    let place = Place::new("large");
    let settings = Settings { log_bytes: 64 << 10, ..Settings::default() };
    let database = Database::open(&place.path(), settings).unwrap();
    let mapping = database.map(0, PAGE_COUNT, Detector::Page, 0).unwrap();
    let transaction = database.begin(Restore::Yes).unwrap();
    for page in 0..PAGE_COUNT {
        store(&mapping, page * 512, 5);
    }
    let error = transaction.commit(Durability::Flush).unwrap_err();
    assert!(matches!(error, Error::LogFull | Error::TooLarge), "{error:?}");
    let transaction = database.begin(Restore::Yes).unwrap();
    assert!((0..PAGE_COUNT).all(|page| load(&mapping, page * 512) == 0));
    store(&mapping, 0, 6);
    transaction.commit(Durability::Flush).unwrap();
}

/// Pages that do not fit into the budget go to their segment, uncommitted ones too, and come back.
#[test]
fn more_pages_than_memory() {
    for detector in [Detector::Page, Detector::Diff] {
        let place = Place::new(&format!("steal-{detector:?}"));
        let mut settings = Settings { log_bytes: 1 << 20, ..Settings::default() };
        settings.options.frame_count_max = 6;
        let database = Database::open(&place.path(), settings).unwrap();
        let mapping = database.map(0, PAGE_COUNT, detector, 0).unwrap();
        for is_committed in [false, true, false] {
            let transaction = database.begin(Restore::Yes).unwrap();
            for round in 1..3 {
                for page in 0..PAGE_COUNT {
                    store(&mapping, page * 512 + 1, if is_committed { round } else { 77 });
                }
            }
            if is_committed { transaction.commit(Durability::Flush) } else { transaction.abort() }.unwrap();
        }
        assert!(database.counters().steal_count > 10);
        let transaction = database.begin(Restore::Yes).unwrap();
        assert!((0..PAGE_COUNT).all(|page| load(&mapping, page * 512 + 1) == 2));
        drop(transaction);
    }
}

/// Runs a test of this program that ends by a signal, on a database; answers the signal.
fn run_child(name: &str, path: &Path) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--test-threads=1"]).env("RHINO_TEST_PATH", path);
    command.output().unwrap().status.signal()
}

fn child_path() -> PathBuf {
    PathBuf::from(env::var_os("RHINO_TEST_PATH").expect("a test that another one runs"))
}

#[test]
#[ignore = "another test runs it"]
fn child_dies_in_a_transaction() {
    let (database, mapping) = open(&child_path(), Detector::Page);
    let transaction = database.begin(Restore::Yes).unwrap();
    store(&mapping, 3, 33);
    transaction.commit(Durability::Flush).unwrap();
    let _transaction = database.begin(Restore::Yes).unwrap();
    store(&mapping, 3, 44);
    std::process::abort();
}

#[test]
fn a_process_that_dies_leaves_nothing_of_its_transaction() {
    let place = Place::new("dies");
    assert_eq!(run_child("child_dies_in_a_transaction", &place.path()), Some(libc::SIGABRT));
    let (database, mapping) = open(&place.path(), Detector::Diff);
    assert_eq!((database.report().replayed_count, database.report().undone_count), (1, 1));
    let _transaction = database.begin(Restore::Yes).unwrap();
    assert_eq!(load(&mapping, 3), 33);
}

#[test]
#[ignore = "another test runs it"]
fn child_stores_without_a_transaction() {
    let (_database, mapping) = open(&child_path(), Detector::Diff);
    store(&mapping, 0, 1);
}

#[test]
#[ignore = "another test runs it"]
fn child_stores_what_it_has_not_declared() {
    let (database, mapping) = open(&child_path(), Detector::SetRange);
    let _transaction = database.begin(Restore::Yes).unwrap();
    store(&mapping, 0, 1);
}

#[test]
fn mistakes_end_the_program() {
    let place = Place::new("mistakes");
    for name in ["child_stores_without_a_transaction", "child_stores_what_it_has_not_declared"] {
        assert_eq!(run_child(name, &place.path()), Some(libc::SIGSEGV), "{name}");
    }
}

/// A service in a thread, for as long as `body` runs.
fn with_service(name: &str, body: impl FnOnce(&Path)) {
    with_service_of(name, usize::MAX, body);
}

fn with_service_of(name: &str, frame_count_max: usize, body: impl FnOnce(&Path)) {
    let place = Place::new(name);
    let socket = place.0.join("socket");
    let mut settings = Settings { log_bytes: 1 << 20, ..Settings::default() };
    settings.options.frame_count_max = frame_count_max;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (ready, started) = mpsc::channel();
        let (is_over, socket, path) = (&is_over, &socket, place.path());
        scope.spawn(move || {
            let mut service = Service::new(&path, socket, settings).unwrap();
            ready.send(()).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                service.turn(Duration::from_millis(20)).unwrap();
            }
        });
        started.recv().unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(socket)));
        is_over.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}

fn client_word(client: &Client, index: usize) -> *mut u64 {
    assert!(index * 8 < client.length());
    // SAFETY: inside.
    unsafe { client.address().cast::<u64>().add(index) }
}

fn client_load(client: &Client, index: usize) -> u64 {
    // SAFETY: mapped.
    unsafe { client_word(client, index).read_volatile() }
}

fn client_store(client: &Client, index: usize, value: u64) {
    // SAFETY: mapped.
    unsafe { client_word(client, index).write_volatile(value) }
}

/// Address spaces that use one database: a counter that all increase after reading it, which is an upgrade of locks and
/// so a deadlock each time that two do it at once. The one that is chosen tries again.
#[test]
fn clients_that_deadlock_try_again() {
    with_service("deadlock", |socket| {
        let (deadlocks, longest_us) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..3 {
                let (deadlocks, longest_us) = (&deadlocks, &longest_us);
                scope.spawn(move || {
                    let client = Client::connect(socket, DETECTORS[1 + number % 2]).unwrap();
                    let mut count = 0;
                    while count < 40 {
                        client.begin().unwrap();
                        let before = client_load(&client, 0);
                        thread::yield_now();
                        let start = Instant::now();
                        client_store(&client, 0, before + 1);
                        // A victim knows it when the store is done.
                        if client.failure().is_some() {
                            let waited = start.elapsed().as_micros() as usize;
                            longest_us.fetch_max(waited, Ordering::Relaxed);
                        }
                        client_store(&client, 512 * (1 + number), before);
                        match client.commit(if count % 4 == 0 { Durability::Flush } else { Durability::Lazy }) {
                            Ok(()) => count += 1,
                            Err(error) => {
                                assert_eq!(error, Error::Deadlock);
                                deadlocks.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        let client = Client::connect(socket, Detector::Diff).unwrap();
        client.begin().unwrap();
        assert_eq!(client_load(&client, 0), 120);
        client.commit(Durability::Flush).unwrap();
        let counts = [&deadlocks, &longest_us].map(|count| count.load(Ordering::Relaxed));
        println!("{} deadlocks, the longest was told after {} us", counts[0], counts[1]);
    });
}

/// Two that have read a page and want to write it: the younger is told when it asks, the older goes on.
#[test]
fn the_younger_of_two_is_told_when_it_asks() {
    with_service("upgrade", |socket| {
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let client = Client::connect(socket, Detector::Diff).unwrap();
                client.begin().unwrap();
                assert_eq!(client_load(&client, 0), 0);
                barrier.wait();
                barrier.wait();
                client_store(&client, 0, 1);
                client.commit(Durability::Flush).unwrap();
            });
            let client = Client::connect(socket, Detector::Diff).unwrap();
            barrier.wait();
            client.begin().unwrap();
            assert_eq!(client_load(&client, 0), 0);
            barrier.wait();
            // The other waits by now, or will find the circle itself: the younger loses either way.
            thread::sleep(Duration::from_millis(20));
            let start = Instant::now();
            client_store(&client, 0, 2);
            println!("the victim was told after {} us", start.elapsed().as_micros());
            assert_eq!(client.failure(), Some(Error::Deadlock));
            assert_eq!(client.commit(Durability::Flush), Err(Error::Deadlock));
            client.begin().unwrap();
            assert_eq!(client_load(&client, 0), 1);
            client.commit(Durability::Flush).unwrap();
        });
    });
}

#[test]
#[ignore = "another test runs it"]
fn child_of_a_service_dies_in_a_transaction() {
    let client = Client::connect(&child_path(), Detector::Diff).unwrap();
    client.begin().unwrap();
    client_store(&client, 9, 90);
    client.commit(Durability::Flush).unwrap();
    client.begin().unwrap();
    client_store(&client, 9, 91);
    std::process::abort();
}

/// A process that waits for a page which another one holds that is killed gets it as it was.
#[test]
fn a_client_that_dies_leaves_nothing_and_holds_nothing() {
    with_service("client-dies", |socket| {
        let client = Client::connect(socket, Detector::Page).unwrap();
        assert_eq!(run_child("child_of_a_service_dies_in_a_transaction", socket), Some(libc::SIGABRT));
        client.begin().unwrap();
        assert_eq!(client_load(&client, 9), 90);
        client.abort().unwrap();
    });
}

/// A service keeps to its frames: pages that no live transaction has touched go and come back. A transaction that
/// touches more is refused, and leaves nothing.
#[test]
fn a_service_has_more_pages_than_frames() {
    for detector in [Detector::Page, Detector::Diff] {
        with_service_of(&format!("frames-{detector:?}"), 6, |socket| {
            let clients = [detector, Detector::SetRange].map(|detector| Client::connect(socket, detector).unwrap());
            for round in 1..4 {
                for page in 0..PAGE_COUNT {
                    let client = &clients[page % 2];
                    client.begin().unwrap();
                    client.set_range((page * PAGE_BYTES) as u64, 8).unwrap();
                    let before = client_load(client, page * 512);
                    assert_eq!(before, if round == 1 { 0 } else { (round - 1) * 100 + page as u64 });
                    client_store(client, page * 512, round * 100 + page as u64);
                    client.commit(if page % 3 == 0 { Durability::Lazy } else { Durability::Flush }).unwrap();
                }
                let client = &clients[0];
                client.begin().unwrap();
                (0..PAGE_COUNT).for_each(|page| client_store(client, page * 512, 9999));
                assert_eq!(client.commit(Durability::Flush), Err(Error::Memory(MemoryError::NoMemory)));
            }
        });
    }
}

/// Bytes that are no requests end their sender alone.
#[test]
fn garbage_ends_its_client() {
    with_service("garbage", |socket| {
        for byte in [0, 0xff] {
            let mut stream = UnixStream::connect(socket).unwrap();
            stream.write_all(&[byte; 200]).unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
        }
        let client = Client::connect(socket, Detector::SetRange).unwrap();
        assert_eq!(client.commit(Durability::Flush), Err(Error::NoTransaction));
        client.begin().unwrap();
        client.set_range(8, 8).unwrap();
        client_store(&client, 1, 3);
        client.commit(Durability::Flush).unwrap();
    });
}
