//! A name that was removed is gone, also if a walk looks it up meanwhile.

extern crate std;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use super::Entry;
use crate::error::{Errno, Result};
use crate::fs::location::MountFlags;
use crate::fs::metadata::{FileSystemStatistics, Metadata, Timestamp};
use crate::fs::name_table::hash_of;
use crate::fs::namespace::{OpenFlags, OpenHow};
use crate::fs::test_support::{BY_ROOT, LARGE, NOW, World, described, pool, tmpfs_root};
use crate::fs::vnode::{Inode, InodeRef, NewNode, RenameMode, is_same};
use crate::fs::walk::{LookupFlags, Restriction};
use crate::reserve::{Level, set_level};
use crate::sync::Mutex;

/// A directory in which a name is removed just after it was found.
struct Racing {
    below: InodeRef,
    entry: Mutex<Option<Arc<Entry>>>,
}

impl Inode for Racing {
    fn metadata(&self) -> Metadata {
        self.below.metadata()
    }
    fn statistics(&self) -> FileSystemStatistics {
        self.below.statistics()
    }
    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        let found = self.below.lookup(name)?;
        if let Some(entry) = self.entry.lock().take() {
            self.below.unlink(name, NOW)?;
            entry.detach(name, &found);
        }
        Ok(found)
    }
}

/// A directory in which names are looked up while the file system has moved them and nobody knows it yet. `asks`: it is
/// one whose names others can change.
struct Moving {
    below: InodeRef,
    asks: bool,
    entry: Mutex<Option<Arc<Entry>>>,
    found: Mutex<std::vec::Vec<Option<Arc<Entry>>>>,
}

impl Inode for Moving {
    fn metadata(&self) -> Metadata {
        self.below.metadata()
    }
    fn statistics(&self) -> FileSystemStatistics {
        self.below.statistics()
    }
    fn is_steady(&self) -> bool {
        !self.asks
    }
    fn confirms(&self, name: &[u8], inode: &InodeRef) -> bool {
        self.lookup(name).is_ok_and(|found| is_same(&found, inode))
    }
    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        self.below.lookup(name)
    }
    fn rename(&self, old: &[u8], _: &InodeRef, new: &[u8], mode: RenameMode, now: Timestamp) -> Result<()> {
        self.below.rename(old, &self.below, new, mode, now)?;
        let entry = self.entry.lock().clone().expect("the test set it");
        *self.found.lock() = [old, new].map(|name| entry.child(name).ok()).into();
        Ok(())
    }
}

#[test]
fn a_directory_that_is_moved_has_one_entry_all_the_while() {
    for asks in [false, true] {
        let below = tmpfs_root(&pool(), 30, LARGE);
        for name in [&b"a"[..], b"empty", b"c"] {
            below.create(name, NewNode::Directory, BY_ROOT).expect("there is room");
        }
        let moving = Arc::new(Moving { below, asks, entry: Mutex::new(None), found: Mutex::default() });
        let world = World::over(pool(), moving.clone());
        *moving.entry.lock() = Some(world.root.entry().clone());
        let child = |name: &[u8]| world.root.entry().child(name).ok();
        let moved = |old: &[u8], new: &[u8], mode| {
            let (first, second) = (child(old), child(new));
            let done = world.namespace.rename(&world.caller(), (&world.root, old), (&world.root, new), mode);
            assert_eq!(done, Ok(()));
            let (left, came) = (child(old), child(new));
            let is_one = |one: &Option<Arc<Entry>>, other: &Option<Arc<Entry>>| {
                one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
            };
            assert!(is_one(&first, &came), "the directory at its new name");
            assert!(first.is_some_and(|first| !first.is_deleted()));
            assert!(mode == RenameMode::Replace || is_one(&second, &left), "what came back");
            let found = moving.found.lock();
            let (here, there) = (&found[0], &found[1]);
            // What was known of the old name before is no harm: it is the same entry.
            assert!(here.is_none() || is_one(here, &came) || is_one(here, &left));
            assert!(is_one(there, &came) || is_one(there, &second));
            assert!(!asks || (is_one(there, &came) && is_one(here, &left)), "a server is asked each time");
        };
        moved(b"a", b"b", RenameMode::Replace);
        moved(b"b", b"empty", RenameMode::Replace);
        moved(b"empty", b"c", RenameMode::Exchange);
    }
}

#[test]
fn a_look_up_that_a_removal_overtook_is_not_remembered() {
    let below = tmpfs_root(&pool(), 30, LARGE);
    below.create(b"name", NewNode::Regular, BY_ROOT).expect("there is room");
    let racing = Arc::new(Racing { below, entry: Mutex::new(None) });
    let entry = Entry::new(racing.clone(), None, b"", false);
    *racing.entry.lock() = Some(entry.clone());
    assert_eq!(entry.child(b"name").err(), Some(Errno::ENOENT));
    assert!(entry.known_child(b"name", hash_of(b"name")).is_none());
}

#[test]
fn what_was_removed_is_not_kept() {
    let world = World::tmpfs();
    world.namespace.create(&world.caller(), &world.root, b"/name", NewNode::Regular, 0o600).expect("there is room");
    let found = world.root.child(b"name").expect("it was created");
    world.namespace.unlink(&world.caller(), &world.root, b"/name").expect("it is there");
    found.mount().remember(found.entry());
    let entry = Arc::downgrade(found.entry());
    drop(found);
    assert!(entry.upgrade().is_none(), "nobody can reach it any more");
}

/// A long directory that has no memory to know more of its children by: files are found, and gone when they are
/// removed; directories are not, because all processes in one have to be in the same.
#[test]
fn what_is_found_while_memory_is_short_is_not_kept_when_its_name_goes() {
    const KNOWN_COUNT: usize = 224;
    let world = World::tmpfs();
    let (caller, root) = (world.caller(), &world.root);
    world.namespace.create(&caller, root, b"/in", NewNode::Directory, 0o755).expect("there is room");
    let find = |path: &[u8]| world.namespace.lookup(&caller, root, path, LookupFlags::FOLLOW);
    let inside = find(b"/in").expect("it was created");
    let create = |name: &str, node| inside.inode().create(name.as_bytes(), node, BY_ROOT).expect("there is room");
    let names: std::vec::Vec<_> = (0..KNOWN_COUNT).map(|number| std::format!("{number}")).collect();
    names.iter().for_each(|name| drop(create(name, NewNode::Directory)));
    create("name", NewNode::Regular);
    create("other", NewNode::Directory);
    set_level(Level::Short);
    let known: std::vec::Vec<_> =
        names.iter().map(|name| inside.child(name.as_bytes()).expect("it is there")).collect();
    assert!(known.iter().zip(&names).all(|(known, name)| inside.child(name.as_bytes()).as_ref() == Ok(known)));
    assert_eq!(find(b"/in/other").err(), Some(Errno::ENOMEM));
    let held = find(b"/in/name").expect("it is there");
    assert!(held.entry().is_passing());
    (0..3).for_each(|_| assert_eq!(find(b"/in/name").map(|_| ()), Ok(())));
    world.namespace.unlink(&caller, root, b"/in/name").expect("it is there");
    assert_eq!(find(b"/in/name").err(), Some(Errno::ENOENT));
    let entry = Arc::downgrade(held.entry());
    drop(held);
    assert!(entry.upgrade().is_none(), "nobody can reach it any more");
    let made = world.namespace.create(&caller, root, b"/in/new", NewNode::Regular, 0o600);
    assert_eq!((made.err(), find(b"/in/new").err()), (Some(Errno::ENOMEM), Some(Errno::ENOENT)));
    set_level(Level::Whole);
    assert_eq!(world.namespace.create(&caller, root, b"/in/new", NewNode::Regular, 0o600).map(|_| ()), Ok(()));
}

/// The program `namerace.c` in small: one that removes and creates beside three that look.
#[test]
fn names_beside_look_ups_on_several_processors() {
    const ROUND_COUNT: usize = 3_000;
    let world = World::tmpfs();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = world.namespace.lookup(&world.caller(), &world.root, b"/name", LookupFlags::FOLLOW);
                }
            });
        }
        let outcome = (0..ROUND_COUNT).try_for_each(|_| {
            world.namespace.create(&world.caller(), &world.root, b"/name", NewNode::Regular, 0o600)?;
            world.namespace.unlink(&world.caller(), &world.root, b"/name")?;
            match world.namespace.lookup(&world.caller(), &world.root, b"/name", LookupFlags::FOLLOW) {
                Err(Errno::ENOENT) => Ok(()),
                _ => Err(Errno::EEXIST),
            }
        });
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(outcome, Ok(()));
    });
}

#[test]
fn what_lies_under_a_place_is_told_by_where_it_is_now() {
    let world = World::tmpfs();
    let caller = world.caller();
    for path in [&b"/top"[..], b"/top/in", b"/top/in/deep", b"/out"] {
        world.namespace.create(&caller, &world.root, path, NewNode::Directory, 0o755).expect("there is room");
    }
    let find = |path: &[u8]| world.namespace.lookup(&caller, &world.root, path, LookupFlags::FOLLOW).expect("there");
    let (top, deep) = (find(b"/top"), find(b"/top/in/deep"));
    assert!(deep.is_under(&top) && top.is_under(&top) && deep.is_under(&world.root) && !top.is_under(&deep));
    let other = tmpfs_root(&pool(), 31, LARGE);
    other.create(b"name", NewNode::Regular, BY_ROOT).expect("there is room");
    world.namespace.mount(&deep, other, described(MountFlags::empty()));
    let (mounted, name) = (find(b"/top/in/deep"), find(b"/top/in/deep/name"));
    assert!(name.is_under(&top) && name.is_under(&mounted) && !name.is_under(&find(b"/out")));
    let (old, new) = ((&world.root, &b"/top/in"[..]), (&world.root, &b"/out/in"[..]));
    world.namespace.rename(&caller, old, new, RenameMode::Replace).expect("nothing is in the way");
    assert!(!name.is_under(&top) && name.is_under(&find(b"/out")) && name.is_under(&mounted));
}

/// The program `walks_that_may_not_leave` in small: one that moves a directory out and back beside walks through it.
#[test]
fn a_walk_does_not_end_outside_though_its_directory_is_moved_out() {
    const ROUND_COUNT: usize = 20_000;
    let world = World::tmpfs();
    for path in [&b"/top"[..], b"/top/in", b"/top/in/deep", b"/out"] {
        world.namespace.create(&world.caller(), &world.root, path, NewNode::Directory, 0o755).expect("there is room");
    }
    world.put("/out/secret", b"text");
    let top = world.namespace.lookup(&world.caller(), &world.root, b"/top", LookupFlags::FOLLOW).expect("there");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let places = [(&world.root, &b"/top/in"[..]), (&world.root, &b"/out/in"[..])];
            while !is_over.load(Ordering::Relaxed) {
                let _ = world.namespace.rename(&world.caller(), places[0], places[1], RenameMode::Replace);
                let _ = world.namespace.rename(&world.caller(), places[1], places[0], RenameMode::Replace);
            }
        });
        let create = OpenHow { flags: OpenFlags::CREATE, ..OpenHow::READ };
        let outcome = (0..ROUND_COUNT).all(|round| {
            let (path, how) = match round % 2 {
                0 => (&b"in/deep/../../secret"[..], OpenHow::READ),
                _ => (&b"in/deep/../../made"[..], create),
            };
            let how = OpenHow { restriction: Restriction::BENEATH, ..how };
            let opened = world.namespace.open(&world.caller(), &top, path, &how);
            opened.map_or(true, |opened| round % 2 == 1 && opened.location().is_under(&top))
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(outcome);
    });
}
