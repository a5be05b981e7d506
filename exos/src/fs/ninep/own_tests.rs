//! A root of the pod's own, and nodes that its server cannot make.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::cache::PageCache;
use super::fake_server::FakeServer;
use super::message::R_ERROR;
use super::{Consistency, OWN_AGE_NS_MAX, Options, attach};
use crate::error::Errno;
use crate::fake::FakeMachine;
use crate::fs::description::StatusFlags;
use crate::fs::metadata::{DeviceNumber, FileKind};
use crate::fs::namespace::{Access, OpenFlags};
use crate::fs::test_support::{NOW, World, contents};
use crate::fs::vnode::{DirectoryEntry, InodeRef, NewNode, RenameMode};
use crate::fs::walk::LookupFlags;
use crate::mem::frames::FramePool;
use crate::platform::Kernel;

const GET_ATTRIBUTES: u8 = 24;
const MAKE_NODE: u8 = 18;
const WALK: u8 = 110;

struct Rig {
    server: Arc<FakeServer>,
    machine: Arc<FakeMachine>,
    root: InodeRef,
    world: World,
}

fn rig(consistency: Consistency) -> Rig {
    let (server, machine) = (FakeServer::new(), FakeMachine::new());
    machine.set_now_ns(1_000);
    let pool = FramePool::new(machine.clone(), machine.clone(), 64 << 20);
    let device = DeviceNumber { major: 0, minor: 1 };
    let options = Options { device, consistency, uid: 0, layer: 0 };
    let root = attach(server.clone(), &pool, &PageCache::new(&pool), options).unwrap();
    let world = World::over(pool, root.clone());
    Rig { server, machine, root, world }
}

impl Rig {
    fn kind(&self, path: &str) -> Result<FileKind, Errno> {
        let world = &self.world;
        let found = world.namespace.lookup(&world.caller(), &world.root, path.as_bytes(), LookupFlags::NO_FOLLOW);
        found.map(|location| location.inode().kind())
    }

    fn make(&self, path: &str, node: NewNode<'_>) -> Result<(), Errno> {
        let world = &self.world;
        world.namespace.create(&world.caller(), &world.root, path.as_bytes(), node, 0o600).map(drop)
    }

    fn unlink(&self, path: &str) -> Result<(), Errno> {
        self.world.namespace.unlink(&self.world.caller(), &self.world.root, path.as_bytes())
    }

    fn rename(&self, old: &str, new: &str, mode: RenameMode) -> Result<(), Errno> {
        let (caller, root) = (self.world.caller(), &self.world.root);
        self.world.namespace.rename(&caller, (root, old.as_bytes()), (root, new.as_bytes()), mode)
    }

    fn names(&self, path: &str) -> Vec<Vec<u8>> {
        let plain = (OpenFlags::empty(), StatusFlags::empty());
        let directory = self.world.open(path, Access::Read, plain.0, plain.1).unwrap();
        let mut names = Vec::new();
        let mut list = |entry: DirectoryEntry<'_>| {
            names.push(entry.name.to_vec());
            true
        };
        directory.read_directory(&self.world.root, &mut list, NOW).unwrap();
        names.split_off(2)
    }

    fn asked(&self) -> u64 {
        self.server.request_count()
    }

    /// QEMU's of Debian 12: what it makes as a special file it removes again.
    fn refuse_nodes(&self) {
        let server = self.server.clone();
        self.server.spoil(Box::new(move |kind, reply| {
            let _ = &server;
            let refused = [&[11, 0, 0, 0, R_ERROR], &reply[5..7], &[6, 0, 0, 0]].concat();
            Some(if kind == MAKE_NODE { refused } else { reply })
        }));
    }
}

#[test]
fn names_of_a_tree_of_our_own_are_asked_for_once() {
    let rig = rig(Consistency::Own);
    rig.server.make("d", FileKind::Directory, b"");
    rig.server.put("d/f", b"one");
    assert_eq!(rig.world.get("/d/f").unwrap(), b"one");
    assert_eq!(rig.kind("/d/none"), Err(Errno::ENOENT));
    let before = rig.asked();
    for _ in 0..10 {
        assert_eq!(rig.kind("/d/f"), Ok(FileKind::Regular));
        assert_eq!(rig.kind("/d/none"), Err(Errno::ENOENT));
    }
    assert_eq!(rig.asked(), before);
    // What the host does is seen in time.
    rig.server.put("d/none", b"here");
    rig.server.remove("d/f");
    rig.machine.set_now_ns(rig.machine.now_ns() + OWN_AGE_NS_MAX);
    assert_eq!(rig.kind("/d/none"), Ok(FileKind::Regular));
    assert_eq!(rig.kind("/d/f"), Err(Errno::ENOENT));
}

#[test]
fn whoever_speaks_to_the_pod_is_believed_at_once() {
    let rig = rig(Consistency::Own);
    assert_eq!(rig.kind("/f"), Err(Errno::ENOENT));
    rig.server.put("f", b"copied");
    assert_eq!(rig.kind("/f"), Err(Errno::ENOENT), "believed");
    rig.server.note_input();
    assert_eq!(rig.world.get("/f").unwrap(), b"copied");
    rig.server.put("f", b"again and longer");
    rig.server.note_input();
    assert_eq!(rig.world.get("/f").unwrap(), b"again and longer");
}

#[test]
fn what_the_pod_changes_it_knows_at_once() {
    let rig = rig(Consistency::Own);
    assert_eq!(rig.kind("/f"), Err(Errno::ENOENT));
    rig.world.put("/f", b"new");
    assert_eq!(rig.world.get("/f").unwrap(), b"new");
    rig.rename("/f", "/g", RenameMode::Replace).unwrap();
    assert_eq!((rig.kind("/f"), rig.kind("/g")), (Err(Errno::ENOENT), Ok(FileKind::Regular)));
    rig.make("/d", NewNode::Directory).unwrap();
    rig.rename("/g", "/d/g", RenameMode::Replace).unwrap();
    assert_eq!(rig.names("/d"), [b"g"]);
    assert_eq!(rig.kind("/g"), Err(Errno::ENOENT));
    rig.unlink("/d/g").unwrap();
    assert_eq!(rig.kind("/d/g"), Err(Errno::ENOENT));
    rig.make("/d/g", NewNode::Directory).unwrap();
    assert_eq!(rig.kind("/d/g"), Ok(FileKind::Directory));
    assert_eq!(rig.server.data("d/g"), Some(Vec::new()));
}

#[test]
fn an_answer_that_a_change_overtook_is_not_kept() {
    let rig = rig(Consistency::Own);
    // While one thread is told that the name is not there, another makes it.
    let root = rig.root.clone();
    let mut is_first = true;
    rig.server.spoil(Box::new(move |kind, reply| {
        let _ = &root;
        if kind == WALK && core::mem::take(&mut is_first) {
            let root = crate::fs::vnode::downcast::<super::inode::NinepInode>(&root).unwrap();
            root.fs.beliefs.change(1, b"f");
        }
        Some(reply)
    }));
    assert_eq!(rig.kind("/f"), Err(Errno::ENOENT));
    rig.server.put("f", b"made");
    assert_eq!(rig.kind("/f"), Ok(FileKind::Regular));
}

#[test]
fn pages_that_were_written_are_not_read_again() {
    let rig = rig(Consistency::Own);
    rig.server.put("f", &alloc::vec![7; 100_000]);
    let file = rig.world.open("/f", Access::ReadWrite, OpenFlags::empty(), StatusFlags::empty()).unwrap();
    let reads = || rig.server.tree.lock().counts.get(&116).copied().unwrap_or(0);
    crate::fs::test_support::contents(&file).unwrap();
    let before = reads();
    for place in 0..20 {
        assert_eq!(file.write_at(place * 4096, &mut &b"x"[..], NOW), Ok(1));
        rig.server.note_input();
        crate::fs::test_support::contents(&file).unwrap();
    }
    assert_eq!(reads(), before);
    rig.server.put("f", b"the host's");
    rig.server.note_input();
    assert_eq!(rig.world.get("/f").unwrap(), b"the host's");
}

#[test]
fn beliefs_are_bounded() {
    let rig = rig(Consistency::Own);
    for number in 0..super::beliefs::BELIEF_COUNT_MAX + 100 {
        assert_eq!(rig.kind(&alloc::format!("/f{number}")), Err(Errno::ENOENT));
    }
    let before = rig.asked();
    assert_eq!(rig.kind("/f0"), Err(Errno::ENOENT));
    assert!(rig.asked() > before, "all went when there were too many");
}

#[test]
fn attributes_of_a_directory_follow_its_changes() {
    let rig = rig(Consistency::Own);
    rig.make("/d", NewNode::Directory).unwrap();
    let modified = || rig.root.lookup(b"d").unwrap().metadata().modified;
    let before = modified();
    rig.world.put("/d/f", b"");
    let made = modified();
    assert_ne!(before, made);
    let asked = || rig.server.tree.lock().counts[&GET_ATTRIBUTES];
    let count = asked();
    assert_eq!(modified(), made);
    assert_eq!(asked(), count);
    rig.unlink("/d/f").unwrap();
    assert_ne!(modified(), made);
}

#[test]
fn nodes_that_the_server_refuses_are_in_memory() {
    for consistency in [Consistency::Own, Consistency::Checked] {
        let rig = rig(consistency);
        rig.server.make("d", FileKind::Directory, b"");
        rig.server.put("d/a", b"");
        rig.refuse_nodes();
        rig.server.remove("d/a");
        rig.make("/d/p", NewNode::Fifo).unwrap();
        // The fake server has made it; QEMU's removes it.
        rig.server.remove("d/p");
        assert_eq!(rig.kind("/d/p"), Ok(FileKind::Fifo));
        assert_eq!(rig.server.data("d/p"), None);
        assert_eq!(rig.make("/d/p", NewNode::Regular), Err(Errno::EEXIST));
        assert_eq!(rig.names("/d"), [b"p"]);
        let remove_directory = || rig.world.namespace.remove_directory(&rig.world.caller(), &rig.world.root, b"/d");
        assert_eq!(remove_directory(), Err(Errno::ENOTEMPTY));
        rig.world.put("/d/f", b"a file");
        assert_eq!(rig.rename("/d/p", "/d/f", RenameMode::NoReplace), Err(Errno::EEXIST));
        rig.rename("/d/p", "/d/f", RenameMode::Replace).unwrap();
        assert_eq!(rig.names("/d"), [b"f"]);
        assert_eq!((rig.kind("/d/f"), rig.server.data("d/f")), (Ok(FileKind::Fifo), None));
        rig.world.put("/g", b"over it");
        rig.rename("/g", "/d/f", RenameMode::Replace).unwrap();
        assert_eq!(rig.world.get("/d/f").unwrap(), b"over it");
        rig.make("/d/s", NewNode::Socket).unwrap();
        rig.server.remove("d/s");
        assert_eq!(rig.names("/d"), [b"f", b"s"]);
        rig.unlink("/d/s").unwrap();
        assert_eq!(rig.kind("/d/s"), Err(Errno::ENOENT));
        rig.unlink("/d/f").unwrap();
        remove_directory().unwrap();
        let device = rig.make("/null", NewNode::CharacterDevice(DeviceNumber { major: 1, minor: 3 }));
        let expected = if consistency == Consistency::Own { Ok(()) } else { Err(Errno::ENXIO) };
        assert_eq!(device, expected);
    }
}

#[test]
fn what_several_append_at_once_is_all_there() {
    for consistency in [Consistency::Own, Consistency::Checked] {
        let rig = rig(consistency);
        rig.world.put("/log", b"");
        let files: Vec<_> = (0..4)
            .map(|_| rig.world.open("/log", Access::Write, OpenFlags::empty(), StatusFlags::APPEND).unwrap())
            .collect();
        std::thread::scope(|scope| {
            for file in &files {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(file.write(&mut &b"line\n"[..], NOW), Ok(5));
                    }
                });
            }
        });
        assert_eq!(rig.server.data("log").unwrap(), b"line\n".repeat(800));
    }
}

/// QEMU's fids are paths. A file of several names goes by the one it was walked by last, which another file may have by
/// now.
#[test]
fn a_file_of_several_names_is_walked_to_by_the_one_that_is_meant() {
    let rig = rig(Consistency::Own);
    let (world, plain) = (&rig.world, StatusFlags::empty());
    world.put("/b", b"old");
    let (caller, root) = (world.caller(), &world.root);
    world.namespace.link(&caller, (root, b"/b"), false, (root, b"/b2")).unwrap();
    world.put("/t", b"new");
    assert_eq!(rig.kind("/b2"), Ok(FileKind::Regular));
    rig.rename("/t", "/b", RenameMode::Replace).unwrap();
    world.open("/b2", Access::ReadWrite, OpenFlags::TRUNCATE, plain).unwrap();
    assert_eq!((rig.server.data("b"), rig.server.data("b2")), (Some(b"new".to_vec()), Some(Vec::new())));
    world.put("/b2", b"again");
    assert_eq!(world.get("/b").unwrap(), b"new");
    rig.unlink("/b").unwrap();
    assert_eq!(world.get("/b2").unwrap(), b"again");
}

#[test]
fn what_is_done_to_a_file_without_a_name_is_done_to_no_other() {
    let rig = rig(Consistency::Own);
    let (world, plain) = (&rig.world, StatusFlags::empty());
    world.put("/f", &[7; 10_000]);
    world.put("/g", b"another");
    let file = world.open("/f", Access::ReadWrite, OpenFlags::empty(), plain).unwrap();
    assert_eq!(file.write_at(0, &mut &b"x"[..], NOW), Ok(1));
    rig.rename("/g", "/f", RenameMode::Replace).unwrap();
    file.truncate(&world.credentials, 5_000, NOW).unwrap();
    file.truncate(&world.credentials, 12_000, NOW).unwrap();
    assert_eq!(rig.server.data("f"), Some(b"another".to_vec()));
    let found = contents(&file).unwrap();
    assert_eq!((found.len(), &found[..5_000][4_990..], &found[5_000..]), (12_000, &[7; 10][..], &[0; 7_000][..]));
    // One that has another name is said to be gone until that is met.
    world.put("/h", b"two");
    let (caller, root) = (world.caller(), &world.root);
    world.namespace.link(&caller, (root, b"/h"), false, (root, b"/h2")).unwrap();
    let file = world.open("/h", Access::ReadWrite, OpenFlags::empty(), plain).unwrap();
    rig.unlink("/h").unwrap();
    world.put("/h", b"other");
    assert_eq!(file.truncate(&world.credentials, 0, NOW), Err(Errno::ENOENT));
    assert_eq!(rig.kind("/h2"), Ok(FileKind::Regular));
    file.truncate(&world.credentials, 1, NOW).unwrap();
    assert_eq!((rig.server.data("h"), rig.server.data("h2")), (Some(b"other".to_vec()), Some(b"t".to_vec())));
}

/// The server's clock tells the time of the pod's own writes; a second later a change of times is somebody else's.
#[test]
fn a_change_by_the_host_is_seen_though_the_pod_wrote_before() {
    let rig = rig(Consistency::Own);
    rig.world.put("/flag", b"0");
    assert_eq!(rig.world.get("/flag").unwrap(), b"0");
    rig.machine.set_now_ns(rig.machine.now_ns() + 30 * OWN_AGE_NS_MAX);
    rig.server.put("flag", b"1");
    assert_eq!(rig.world.get("/flag").unwrap(), b"1");
}

#[test]
fn a_directory_with_a_node_in_memory_is_not_empty() {
    let rig = rig(Consistency::Own);
    rig.refuse_nodes();
    rig.make("/a", NewNode::Directory).unwrap();
    rig.make("/b", NewNode::Directory).unwrap();
    rig.make("/b/p", NewNode::Fifo).unwrap();
    assert_eq!(rig.rename("/a", "/b", RenameMode::Replace), Err(Errno::ENOTEMPTY));
    rig.unlink("/b/p").unwrap();
    assert_eq!(rig.rename("/a", "/b", RenameMode::Replace), Ok(()));
}
