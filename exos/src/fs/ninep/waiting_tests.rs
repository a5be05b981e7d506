//! Several requests at once: answers that are late, out of order, never, somebody else's; what can be done meanwhile.
//!
//! Nothing here measures time: a server holds requests until the test lets them go, and tells when it holds them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::cache::PageCache;
use super::fake_server::FakeServer;
use super::inode::NinepInode;
use super::message::CLUNK_BYTES;
use super::session::{COMPANION_COUNT_MAX, Requester, Silence};
use super::{Consistency, Options, attach};
use crate::error::Errno;
use crate::fake::FakeMachine;
use crate::fs::memory_fs::{Identity, Limits};
use crate::fs::metadata::{DeviceNumber, FileKind};
use crate::fs::overlay::{OVERLAY_MAGIC, over_live};
use crate::fs::test_support::NOW;
use crate::fs::transfer::Buffer;
use crate::fs::vnode::{InodeRef, WritePosition, downcast};
use crate::mem::frames::FramePool;
use crate::mem::source::PageIntent;

const READ: u8 = 116;
/// After this long a test has failed.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Server {
    /// Types of requests that are held, once each.
    to_hold: Vec<u8>,
    /// Replies of requests that are held, in the order in which they came; taken by their owners when they may go.
    held: Vec<Held>,
    has_ended: bool,
}

struct Held {
    reply: Vec<u8>,
    may_go: bool,
}

/// A server that keeps some answers back.
struct SlowServer {
    fast: Arc<FakeServer>,
    desk: Mutex<Server>,
    changed: Condvar,
}

impl SlowServer {
    fn new() -> Arc<Self> {
        let fast = FakeServer::new();
        fast.put("a", &[1; 20_000]);
        fast.put("b", &[2; 20_000]);
        fast.make("d", FileKind::Directory, b"");
        fast.put("d/c", &[3; 20_000]);
        Arc::new(Self { fast, desk: Mutex::default(), changed: Condvar::new() })
    }

    fn desk(&self) -> MutexGuard<'_, Server> {
        self.desk.lock().expect("no test panics with it")
    }

    fn hold(&self, kinds: &[u8]) {
        self.desk().to_hold.extend_from_slice(kinds);
    }

    /// Comes back when so many requests are held.
    fn await_held(&self, count: usize) {
        let waited = self.changed.wait_timeout_while(self.desk(), LIMIT, |desk| desk.held.len() < count);
        let (desk, outcome) = waited.expect("no test panics with it");
        drop(desk);
        assert!(!outcome.timed_out(), "nobody asked");
    }

    /// Changes what is held.
    fn with_held(&self, work: impl FnOnce(&mut Vec<Held>)) {
        work(&mut self.desk().held);
        self.changed.notify_all();
    }

    fn let_go(&self, place: usize) {
        self.with_held(|held| held[place].may_go = true);
    }
}

impl Requester for SlowServer {
    fn message_bytes_max(&self) -> usize {
        self.fast.message_bytes_max()
    }

    fn request(&self, message: &[u8], companions: &[[u8; CLUNK_BYTES]], reply: &mut Vec<u8>) -> Result<(), Silence> {
        self.fast.request(message, companions, reply)?;
        let mut desk = self.desk();
        let Some(place) = desk.to_hold.iter().position(|kind| *kind == message[4]) else {
            return if desk.has_ended { Err(Silence::Device) } else { Ok(()) };
        };
        desk.to_hold.remove(place);
        let place = desk.held.len();
        desk.held.push(Held { reply: reply.clone(), may_go: false });
        self.changed.notify_all();
        let waited = self.changed.wait_while(desk, |desk| !desk.held[place].may_go && !desk.has_ended);
        let desk = waited.expect("no test panics with it");
        if !desk.held[place].may_go {
            return Err(Silence::Device);
        }
        reply.clone_from(&desk.held[place].reply);
        Ok(())
    }

    fn give_up(&self) {
        self.desk().has_ended = true;
        self.changed.notify_all();
    }
}

struct World {
    server: Arc<SlowServer>,
    pool: Arc<FramePool>,
    root: InodeRef,
}

impl World {
    fn new(consistency: Consistency) -> Self {
        let machine = FakeMachine::new();
        let pool = FramePool::new(machine.clone(), machine, 64 << 20);
        let cache = PageCache::new(&pool);
        let server = SlowServer::new();
        let options = Options { device: DeviceNumber { major: 0, minor: 9 }, consistency, uid: 0, layer: 0 };
        let root = attach(server.clone(), &pool, &cache, options).expect("an honest server");
        Self { server, pool, root }
    }

    /// The same under a writable layer in memory, as a root is.
    fn layered(&self) -> InodeRef {
        let limits = Limits { bytes_max: 4 << 20, inode_count_max: 1000 };
        let identity = Identity { device: DeviceNumber { major: 0, minor: 1 }, magic: OVERLAY_MAGIC };
        over_live(self.pool.clone(), identity, limits, &self.root).expect("a directory")
    }
}

fn read(file: &InodeRef, offset: u64) -> Result<Vec<u8>, Errno> {
    let mut buffer = Buffer::with_limit(10);
    file.read_at(offset, &mut buffer)?;
    Ok(buffer.bytes)
}

/// What can be done with a tree while one request of `busy` is held: everything else.
fn goes_on(root: &InodeRef, busy: &InodeRef) {
    assert_eq!(busy.metadata().size_bytes, 20_000);
    assert!(busy.resident_page(4).is_none());
    assert_eq!(read(&root.lookup(b"b").unwrap(), 5), Ok([2; 10].to_vec()));
    let directory = root.lookup(b"d").unwrap();
    assert_eq!(read(&directory.lookup(b"c").unwrap(), 15_000), Ok([3; 10].to_vec()));
    assert_eq!(root.lookup(b"nothing").err(), Some(Errno::ENOENT));
    let mut count = 0;
    root.read_directory(0, &mut |_| {
        count += 1;
        true
    })
    .unwrap();
    assert_eq!(count, 3);
}

#[test]
fn a_read_that_waits_stops_nobody_else() {
    for consistency in [Consistency::Fixed, Consistency::Checked] {
        for is_layered in [false, true] {
            let world = World::new(consistency);
            let root = if is_layered { world.layered() } else { world.root.clone() };
            let file = root.lookup(b"a").unwrap();
            world.server.hold(&[READ]);
            thread::scope(|scope| {
                let reader = scope.spawn(|| read(&file, 0));
                world.server.await_held(1);
                goes_on(&root, &file);
                // Another thread that needs the same page asks for itself.
                assert_eq!(read(&file, 0), Ok([1; 10].to_vec()));
                world.server.let_go(0);
                assert_eq!(reader.join().unwrap(), Ok([1; 10].to_vec()));
            });
        }
    }
}

#[test]
fn pages_that_somebody_else_has_just_read_are_there() {
    let world = World::new(Consistency::Fixed);
    let file = world.root.lookup(b"a").unwrap();
    let own = downcast::<NinepInode>(&file).unwrap();
    // All of the run, and one page of it, came between the look for the page and its reading.
    for (read_before, run, wanted) in [(0, 0..4, 1), (4 * 4096, 3..5, 4)] {
        read(&file, read_before).unwrap();
        let frame = own.read_run(run, wanted).expect("the page is there");
        assert_eq!(file.resident_page(wanted).map(|page| page.frame.frame()), Some(frame.frame()));
    }
}

#[test]
fn a_page_fault_and_a_write_that_wait_do_not_hold_the_file() {
    for is_write in [false, true] {
        let world = World::new(Consistency::Fixed);
        let root = world.layered();
        let file = root.lookup(b"a").unwrap();
        world.server.hold(&[READ]);
        let offset = if is_write { 4 * 4096 } else { 0 };
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                if is_write {
                    file.write_at(WritePosition::At(offset), &mut &[9; 3][..], NOW).unwrap();
                } else {
                    file.page(offset / 4096, PageIntent::Read).unwrap();
                }
            });
            world.server.await_held(1);
            assert_eq!(file.metadata().size_bytes, 20_000, "its lock is free");
            goes_on(&root, &file);
            world.server.let_go(0);
            waiter.join().unwrap();
        });
        let expected = if is_write { [9, 9, 9, 1, 1, 1, 1, 1, 1, 1] } else { [1; 10] };
        assert_eq!(read(&file, offset), Ok(expected.to_vec()));
    }
}

#[test]
fn answers_out_of_order_are_each_for_their_own_request() {
    let world = World::new(Consistency::Fixed);
    let files = [b"a", b"b"].map(|name| world.root.lookup(name).unwrap());
    world.server.hold(&[READ, READ]);
    thread::scope(|scope| {
        let first = scope.spawn(|| read(&files[0], 0));
        world.server.await_held(1);
        let second = scope.spawn(|| read(&files[1], 0));
        world.server.await_held(2);
        world.server.let_go(1);
        assert_eq!(second.join().unwrap(), Ok([2; 10].to_vec()));
        world.server.let_go(0);
        assert_eq!(first.join().unwrap(), Ok([1; 10].to_vec()));
    });
}

#[test]
fn somebody_elses_answer_ends_the_session_for_all_who_wait() {
    let world = World::new(Consistency::Checked);
    let directory = world.root.lookup(b"d").unwrap();
    let files = [world.root.lookup(b"a"), world.root.lookup(b"b"), directory.lookup(b"c")].map(Result::unwrap);
    world.server.hold(&[READ, READ, READ]);
    thread::scope(|scope| {
        let mut readers = Vec::new();
        for (count, file) in files.iter().enumerate() {
            readers.push(scope.spawn(|| read(file, 0)));
            world.server.await_held(count + 1);
        }
        // The first two answers change places; the third never comes.
        world.server.with_held(|held| {
            let (first, second) = held.split_at_mut(1);
            core::mem::swap(&mut first[0].reply, &mut second[0].reply);
            held[0].may_go = true;
        });
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Err(Errno::EIO));
        }
    });
    assert_eq!(world.root.lookup(b"a").err(), Some(Errno::EIO));
    assert_eq!(read(&files[0], 0), Err(Errno::EIO));
}

#[test]
fn tags_of_requests_that_wait_are_nobody_elses() {
    let world = World::new(Consistency::Checked);
    let file = world.root.lookup(b"a").unwrap();
    let tags: Arc<Mutex<Vec<u16>>> = Arc::default();
    let seen = tags.clone();
    world.server.hold(&[READ]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&file, 0));
        world.server.await_held(1);
        let held_tag = u16::from_le_bytes(world.server.desk().held[0].reply[5..7].try_into().unwrap());
        world.server.fast.spoil(Box::new(move |_, reply| {
            seen.lock().unwrap().push(u16::from_le_bytes(reply[5..7].try_into().unwrap()));
            Some(reply)
        }));
        for _ in 0..50 {
            world.root.lookup(b"b").unwrap();
        }
        assert!(
            tags.lock().unwrap().iter().all(|tag| !(held_tag..=held_tag + COMPANION_COUNT_MAX as u16).contains(tag))
        );
        world.server.let_go(0);
        assert_eq!(reader.join().unwrap(), Ok([1; 10].to_vec()));
    });
    assert!(tags.lock().unwrap().len() >= 50);
}
