//! Look-ups that may be known against walks that are done, after every change of a fixed sequence.

use alloc::format;
use alloc::string::String;

use crate::error::{Errno, Result};
use crate::fs::location::{Location, MountFlags};
use crate::fs::namespace::OwnerChange;
use crate::fs::permission::Credentials;
use crate::fs::test_support::{LARGE, World, described, tmpfs_root};
use crate::fs::vnode::{NewNode, RenameMode};
use crate::fs::walk::{Caller, Last, LookupFlags, Walk};

const NAMES: [&str; 4] = ["a", "b", "c", "dd"];

/// Numbers that are the same in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len() as u64) as usize]
    }

    fn path(&mut self) -> String {
        let mut path = String::new();
        for _ in 0..=self.below(3) {
            path.push('/');
            path.push_str(self.name());
        }
        path
    }
}

/// One change, which may well be refused.
fn change(world: &World, sequence: &mut Sequence) {
    let (caller, root, namespace) = (world.caller(), &world.root, &world.namespace);
    let (first, second) = (sequence.path(), sequence.path());
    let (old, new) = (first.as_bytes(), second.as_bytes());
    let found = namespace.lookup(&caller, root, old, LookupFlags::NO_FOLLOW);
    let make = |node| namespace.create(&caller, root, old, node, 0o755).map(drop);
    // Nobody cares what became of it.
    let _: Result<()> = match sequence.below(16) {
        0..4 => make(NewNode::Directory),
        4 => make(NewNode::Regular),
        5 => make(NewNode::Symlink(new)),
        6 => make(NewNode::Symlink(b"../c")),
        7 => namespace.unlink(&caller, root, old),
        8 => namespace.remove_directory(&caller, root, old),
        9 | 10 => namespace.rename(&caller, (root, old), (root, new), RenameMode::Replace),
        11 => namespace.rename(&caller, (root, old), (root, new), RenameMode::Exchange),
        12 => found.and_then(|found| namespace.set_permissions(&caller, &found, [0o700, 0o755, 0o711][old.len() % 3])),
        13 => found.and_then(|found| {
            namespace.set_owner(&caller, &found, OwnerChange { uid: Some(old.len() as u32 % 2 * 5), gid: None })
        }),
        14 => found.map(|found| {
            if found.is_directory() && namespace.mounts().len() < 4 {
                namespace.mount(&found, tmpfs_root(&world.pool, 40, LARGE), described(MountFlags::empty()));
            }
        }),
        _ => found.and_then(|found| namespace.unmount(&found)),
    };
}

/// Looks a path up twice by the name space and once by a walk; how often it was known.
fn compare(world: &World, caller: &Caller<'_>, start: &Location, path: &str, flags: LookupFlags) -> usize {
    let walked: Result<Location> = Walk::new(caller, start, path.as_bytes()).and_then(|walk| walk.finish(flags));
    let begin = if path.starts_with('/') { caller.root } else { start };
    let may_search_all = || caller.credentials.may_search_all();
    let known = world.namespace.lookup_known(begin, path.as_bytes(), flags, may_search_all);
    if let Some(known) = &known {
        assert_eq!(Ok(known), walked.as_ref(), "{path} {flags:?} was known");
    }
    for _ in 0..2 {
        assert_eq!(world.namespace.lookup(caller, start, path.as_bytes(), flags), walked, "{path} {flags:?}");
    }
    usize::from(known.is_some())
}

/// The same for the directory of a name that is never there.
fn compare_parent(world: &World, caller: &Caller<'_>, start: &Location, path: &str) -> usize {
    let path = format!("{path}/nothing");
    let known = world.namespace.known_parent(caller, start, path.as_bytes());
    let walked = Walk::new(caller, start, path.as_bytes()).and_then(|mut walk| {
        let last = walk.to_last()?;
        Ok((walk.here().clone(), last))
    });
    if let Some((parent, name)) = &known {
        assert_eq!(Ok((parent.clone(), (Last::Name((*name).into()), false))), walked, "{path} was known");
    }
    for _ in 0..2 {
        let refusal = world.namespace.unlink(caller, start, path.as_bytes());
        assert_eq!(refusal, Err(walked.as_ref().err().copied().unwrap_or(Errno::ENOENT)), "{path}");
    }
    usize::from(known.is_some())
}

#[test]
fn what_is_known_is_what_a_walk_finds() {
    let world = World::tmpfs();
    let mut sequence = Sequence(1);
    let somebody = Credentials::of_user(5, 5);
    let (mut known_count, mut known_parent_count, mut found_count) = (0, 0, 0);
    for _ in 0..3_000 {
        change(&world, &mut sequence);
        let place = sequence.path();
        let start = world.namespace.lookup(&world.caller(), &world.root, place.as_bytes(), LookupFlags::DIRECTORY);
        let start = start.unwrap_or_else(|_| world.root.clone());
        for _ in 0..6 {
            let path = sequence.path();
            let path = match sequence.below(5) {
                0 => format!("{path}/"),
                1 => format!("{path}/../{}", sequence.name()),
                2 => path[1..].into(),
                3 => format!("{}/../{}", &path[1..], sequence.name()),
                _ => path,
            };
            let flags = LookupFlags { follow: sequence.below(2) == 0, directory: sequence.below(3) == 0 };
            for credentials in [&world.credentials, &somebody] {
                for root in [&world.root, &start] {
                    let caller = Caller { root, credentials, ..world.caller() };
                    known_count += compare(&world, &caller, &start, &path, flags);
                    known_parent_count += compare_parent(&world, &caller, &start, &path);
                    found_count += 1;
                }
            }
        }
    }
    assert!(known_count * 50 > found_count, "{known_count} of {found_count} were known");
    assert!(known_parent_count * 50 > found_count, "{known_parent_count} of {found_count} directories were known");
}

#[test]
fn a_removed_file_is_not_kept_alive() {
    let world = World::tmpfs();
    world.put("/file", b"contents");
    let free = || world.root.inode().statistics().free_inode_count;
    let find = || world.namespace.lookup(&world.caller(), &world.root, b"/file", LookupFlags::FOLLOW);
    for _ in 0..3 {
        find().unwrap();
    }
    assert!(world.namespace.lookup_known(&world.root, b"/file", LookupFlags::FOLLOW, || false).is_some());
    let before = free();
    world.namespace.unlink(&world.caller(), &world.root, b"/file").unwrap();
    assert_eq!((find().err(), free()), (Some(Errno::ENOENT), before + 1));
    world.put("/file", b"other");
    assert_eq!(find().unwrap().inode().size_bytes(), 5);
}

#[test]
fn long_paths_are_found_though_not_kept() {
    let world = World::tmpfs();
    let name = "x".repeat(super::PATH_BYTES_KEPT_MAX);
    world.put(&format!("/{name}"), b"");
    let path = format!("/{name}");
    for _ in 0..3 {
        assert!(world.namespace.lookup(&world.caller(), &world.root, path.as_bytes(), LookupFlags::FOLLOW).is_ok());
    }
    assert!(world.namespace.lookup_known(&world.root, path.as_bytes(), LookupFlags::FOLLOW, || true).is_none());
}
