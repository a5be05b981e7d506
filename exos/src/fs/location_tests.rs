//! A name that was removed is gone, whoever looks it up meanwhile.

extern crate std;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use super::Entry;
use crate::error::{Errno, Result};
use crate::fs::test_support::{BY_ROOT, LARGE, NOW, World, pool, tmpfs_root};
use crate::fs::vnode::{FileSystemStatistics, Inode, InodeRef, Metadata, NewNode};
use crate::fs::walk::LookupFlags;
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

#[test]
fn a_look_up_that_a_removal_overtook_is_not_remembered() {
    let below = tmpfs_root(&pool(), 30, LARGE);
    below.create(b"name", NewNode::Regular, BY_ROOT).expect("there is room");
    let racing = Arc::new(Racing { below, entry: Mutex::new(None) });
    let entry = Entry::new(racing.clone(), None, b"", false);
    *racing.entry.lock() = Some(entry.clone());
    assert_eq!(entry.child(b"name").err(), Some(Errno::ENOENT));
    assert!(entry.known_child(b"name").is_none());
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
