//! Programs that go through directories: how many waits that costs, and that nothing old is shown.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::cache::PageCache;
use super::fake_server::FakeServer;
use super::message::R_ERROR;
use super::{ATTRIBUTE_AGE_NS_MAX, Consistency, Options, attach};
use crate::error::Errno;
use crate::fake::FakeMachine;
use crate::fs::metadata::{DeviceNumber, FileKind};
use crate::fs::test_support::NOW;
use crate::fs::transfer::Buffer;
use crate::fs::vnode::{InodeRef, WritePosition};
use crate::mem::frames::FramePool;

const WALK: u8 = 110;
const ATTRIBUTES: u8 = 24;
/// Messages at once that a real device takes.
const MANY: usize = 48;

struct Rig {
    server: Arc<FakeServer>,
    machine: Arc<FakeMachine>,
    root: InodeRef,
    _cache: Arc<PageCache>,
}

/// Kind, size and version of a file.
type Seen = (FileKind, u64, u64);

impl Rig {
    fn new(consistency: Consistency) -> Self {
        Self::with_many(consistency, MANY)
    }

    fn with_many(consistency: Consistency, many: usize) -> Self {
        let (server, machine) = (FakeServer::with_many(many), FakeMachine::new());
        machine.set_now_ns(1_000_000_000);
        let pool = FramePool::new(machine.clone(), machine.clone(), 64 << 20);
        let cache = PageCache::new(&pool);
        let options = Options { device: DeviceNumber { major: 0, minor: 9 }, consistency, uid: 0, layer: 0 };
        let root = attach(server.clone(), &pool, &cache, options).unwrap();
        Self { server, machine, root, _cache: cache }
    }

    fn fill(&self, count: usize) {
        for number in 0..count {
            self.server.put(&name(number), &[1]);
        }
    }

    fn names(&self) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        self.root
            .read_directory(0, &mut |entry| {
                names.push(entry.name.to_vec());
                true
            })
            .unwrap();
        names
    }

    fn stat(&self, name: &[u8]) -> Result<Seen, Errno> {
        let metadata = self.root.lookup(name)?.metadata();
        let version = u64::try_from(metadata.modified.seconds).unwrap();
        Ok((metadata.kind, metadata.size_bytes, version))
    }

    fn later(&self) {
        use crate::platform::Kernel;
        self.machine.set_now_ns(self.machine.now_ns() + ATTRIBUTE_AGE_NS_MAX + 1);
    }

    /// Waits that it costs to `stat` all of these.
    fn cost(&self, names: impl IntoIterator<Item = Vec<u8>>) -> u64 {
        let before = self.server.wait_count();
        for name in names {
            assert_eq!(self.stat(&name).ok(), self.server.seen(core::str::from_utf8(&name).unwrap()));
        }
        self.server.wait_count() - before
    }
}

fn name(number: usize) -> String {
    format!("f{number:04}")
}

#[test]
fn a_pass_over_a_directory_waits_seldom_in_each_order() {
    for consistency in [Consistency::Fixed, Consistency::Checked] {
        let rig = Rig::new(consistency);
        // So that names and numbers have different orders.
        for number in 0..3000 {
            rig.server.put(&name(number * 11 % 3000), &[1]);
        }
        let mut names = rig.names();
        let most = 2 * 3000 / 32 + 12;
        let cost = rig.cost(names.iter().cloned());
        assert!(cost <= most, "{consistency:?}: as listed: {cost}");
        // The other orders are found after so many names in vain as make an index worth it.
        for (what, most) in [("by name", most), ("by number", most + 200)] {
            let rig = Rig::new(consistency);
            for number in 0..3000 {
                rig.server.put(&name(number * 11 % 3000), &[1]);
            }
            let _ = rig.names();
            if what == "by name" {
                names.sort_unstable();
            } else {
                names = (0..3000).map(|number| name(number * 11 % 3000).into_bytes()).collect();
            }
            let cost = rig.cost(names.iter().cloned());
            assert!(cost <= most, "{consistency:?}: {what}: {cost}");
        }
    }
}

#[test]
fn what_is_known_needs_no_walk() {
    let rig = Rig::new(Consistency::Checked);
    rig.fill(200);
    let names = rig.names();
    let held: Vec<InodeRef> = names.iter().map(|name| rig.root.lookup(name).unwrap()).collect();
    rig.later();
    let walks = rig.server.tree.lock().counts[&WALK];
    let before = rig.server.wait_count();
    for (name, child) in names.iter().zip(&held).skip(1) {
        assert!(rig.root.confirms(name, child));
    }
    assert!(rig.server.wait_count() - before < 24);
    assert_eq!(rig.server.tree.lock().counts[&WALK], walks);
    rig.server.remove("f0150");
    rig.server.make("f0150", FileKind::Symlink, b"f0001");
    rig.later();
    let kept: Vec<usize> = (0..200).filter(|place| !rig.root.confirms(&names[*place], &held[*place])).collect();
    assert_eq!(kept, [150]);
}

#[test]
fn names_in_no_order_cost_what_they_did() {
    let (rig, naive) = (Rig::new(Consistency::Checked), Rig::with_many(Consistency::Checked, 0));
    let mut costs = [0; 2];
    for (rig, cost) in [&rig, &naive].into_iter().zip(&mut costs) {
        rig.fill(500);
        let _ = rig.names();
        *cost = rig.cost((0..500).map(|number| name(number * 211 % 500).into_bytes()));
    }
    assert!(costs[0] <= costs[1] + 8, "{costs:?}");
    // Each file is read once it is found: what was asked for before is of no use, and that is learnt.
    let [mut requests, mut waits] = [[0; 2]; 2];
    for (place, rig) in [&rig, &naive].into_iter().enumerate() {
        let names = rig.names();
        let before = (rig.server.request_count(), rig.server.wait_count());
        for name in names {
            let file = rig.root.lookup(&name).unwrap();
            assert_eq!(file.read_at(0, &mut Buffer::with_limit(10)), Ok(1));
        }
        requests[place] = rig.server.request_count() - before.0;
        waits[place] = rig.server.wait_count() - before.1;
    }
    assert!(requests[0] < requests[1] * 5 / 4, "{requests:?}");
    assert!(waits[0] < waits[1] * 21 / 20, "{waits:?}");
}

#[test]
fn what_the_host_says_is_believed_at_once_and_what_it_does_not_after_a_while() {
    let rig = Rig::new(Consistency::Checked);
    rig.fill(100);
    let _ = rig.names();
    rig.stat(b"f0000").unwrap();
    rig.server.put("f0003", &[2; 50]);
    assert_eq!(rig.stat(b"f0003").unwrap().1, 1, "nobody has said so");
    rig.server.note_news();
    assert_eq!(rig.stat(b"f0003").unwrap().1, 50);
    rig.server.put("f0004", &[2; 60]);
    rig.later();
    assert_eq!(rig.stat(b"f0004").unwrap().1, 60);
    // Any other request brings news: here a name that the listing has not, and the pod's own change.
    rig.server.remove("f0005");
    rig.server.put("flag", b"");
    assert!(rig.stat(b"flag").is_ok());
    assert_eq!(rig.stat(b"f0005"), Err(Errno::ENOENT));
    let file = rig.root.lookup(b"f0006").unwrap();
    file.write_at(WritePosition::At(0), &mut &b"0123456789"[..], NOW).unwrap();
    assert_eq!(rig.stat(b"f0006").unwrap().1, 10);
    rig.root.unlink(b"f0007", NOW).unwrap();
    assert_eq!(rig.stat(b"f0007"), Err(Errno::ENOENT));
}

#[test]
fn fids_come_back() {
    for (many, kept_max) in [(MANY, 64), (16, 32)] {
        let rig = Rig::with_many(Consistency::Checked, many);
        rig.fill(2000);
        for _ in 0..3 {
            for name in rig.names() {
                rig.stat(&name).unwrap();
                rig.machine.set_now_ns(crate::platform::Kernel::now_ns(&*rig.machine) + 100_000);
            }
            // The served directory's own, what is told ahead, and what waits for a request to go along with.
            assert!(rig.server.fid_count() <= kept_max + 2 * many, "{}", rig.server.fid_count());
        }
    }
}

#[test]
fn a_server_without_room_for_fids_gets_back_what_was_told_ahead() {
    let rig = Rig::new(Consistency::Checked);
    rig.fill(200);
    let _ = rig.names();
    let mut held: Vec<InodeRef> = (0..40).map(|number| rig.root.lookup(name(number).as_bytes()).unwrap()).collect();
    for number in 0..20_000 {
        rig.server.put(&format!("x{number}"), b"");
        match rig.root.lookup(format!("x{number}").as_bytes()) {
            Ok(inode) => held.push(inode),
            Err(error) => {
                assert_eq!(error, Errno::ENFILE);
                break;
            }
        }
    }
    assert_eq!(held.len(), super::FID_COUNT_MAX as usize - 1, "all but the served directory's");
    held.clear();
    assert!(rig.stat(b"f0001").is_ok());
}

#[test]
fn nonsense_among_many_ends_the_session() {
    for (kind, place) in [(WALK, 0), (WALK, 5), (ATTRIBUTES, 0), (ATTRIBUTES, 6)] {
        let rig = Rig::new(Consistency::Checked);
        rig.fill(50);
        let _ = rig.names();
        let mut left: u32 = place;
        rig.server.spoil(Box::new(move |met, mut reply| {
            if met == kind && left == 0 {
                reply[5] ^= 1;
            }
            left = if met == kind { left.wrapping_sub(1) } else { left };
            Some(reply)
        }));
        assert_eq!(rig.stat(b"f0000"), Err(Errno::EIO), "{kind} {place}");
        rig.server.tree.lock().spoil = None;
        let before = rig.server.wait_count();
        assert_eq!(rig.stat(b"f0001"), Err(Errno::EIO));
        assert_eq!(rig.server.wait_count(), before, "nobody is asked any more");
    }
}

#[test]
fn an_error_of_one_is_nobody_elses() {
    let rig = Rig::new(Consistency::Checked);
    rig.fill(50);
    let _ = rig.names();
    let mut count = 0;
    rig.server.spoil(Box::new(move |kind, mut reply| {
        count += u32::from(kind == ATTRIBUTES);
        if kind == ATTRIBUTES && count == 4 {
            reply.truncate(7);
            reply.extend(13_u32.to_le_bytes());
            (reply[0], reply[4]) = (11, R_ERROR);
        }
        Some(reply)
    }));
    // The fourth question is for the third file; the first is for the directory.
    for number in 0..50 {
        assert!(rig.stat(name(number).as_bytes()).is_ok(), "{number}: and it was asked for again by itself");
    }
}

#[derive(Clone, Debug)]
enum Step {
    List,
    /// `stat` of so many names from one on.
    Pass {
        from: usize,
        count: usize,
    },
    Host {
        number: usize,
        change: u8,
        is_said: bool,
    },
    Write {
        number: usize,
    },
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0..FILES;
    let step = prop_oneof![
        1 => Just(Step::List),
        6 => (0..FILES, 1..FILES).prop_map(|(from, count)| Step::Pass { from, count }),
        4 => (number.clone(), 0..4_u8, any::<bool>())
            .prop_map(|(number, change, is_said)| Step::Host { number, change, is_said }),
        1 => number.prop_map(|number| Step::Write { number }),
        1 => Just(Step::Wait),
    ];
    proptest::collection::vec(step, 1..60)
}

const FILES: usize = 40;

/// What each name was since anything of it had to be believed.
struct Past(Vec<Vec<Option<Seen>>>);

impl Past {
    fn note(&mut self, server: &FakeServer) {
        for (number, states) in self.0.iter_mut().enumerate() {
            states.push(server.seen(&name(number)));
        }
    }

    fn end(&mut self, server: &FakeServer) {
        self.0.iter_mut().for_each(Vec::clear);
        self.note(server);
    }
}

fn change(server: &FakeServer, number: usize, change: u8) {
    let name = name(number);
    if change > 0 && server.seen(&name).is_some() {
        server.remove(&name);
    }
    match change {
        0 => server.put(&name, &alloc::vec![3; number + 2]),
        1 => server.make(&name, FileKind::Symlink, b"f0000"),
        2 => server.make(&name, FileKind::Directory, b""),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Against a client that asks for each name: what is seen is what is there, or what was there since the host last
    /// said something, the pod did something else or 10 ms passed.
    #[test]
    fn answers_are_those_of_single_questions(steps in steps()) {
        let rig = Rig::new(Consistency::Checked);
        rig.fill(FILES);
        let mut past = Past(alloc::vec![Vec::new(); FILES]);
        past.end(&rig.server);
        for step in steps {
            match step {
                Step::List => {
                    let _ = rig.names();
                    past.end(&rig.server);
                }
                Step::Pass { from, count } => {
                    for number in from..(from + count).min(FILES) {
                        let seen = rig.stat(name(number).as_bytes()).ok();
                        prop_assert!(past.0[number].contains(&seen), "{number}: {seen:?} of {:?}", past.0[number]);
                    }
                }
                Step::Host { number, change: kind, is_said } => {
                    change(&rig.server, number, kind);
                    past.note(&rig.server);
                    if is_said {
                        rig.server.note_news();
                        past.end(&rig.server);
                    }
                }
                Step::Write { number } => {
                    let found = rig.root.lookup(name(number).as_bytes());
                    if let Ok(file) = found.map_err(drop) {
                        let _ = file.write_at(WritePosition::At(0), &mut &[9; 99][..], NOW);
                    }
                    past.note(&rig.server);
                }
                Step::Wait => {
                    rig.later();
                    past.end(&rig.server);
                }
            }
            prop_assert!(rig.server.fid_count() < 3 * MANY + FILES);
        }
    }
}
