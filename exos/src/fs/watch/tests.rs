//! What is not compared with Linux by `tests/linux/inotify.c`: limits, and watchers that are told
//! nothing.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{EVENT_COUNT_MAX, INSTANCE_COUNT_MAX, Watcher, event};
use crate::error::Errno;
use crate::fs::description::StatusFlags;
use crate::fs::namespace::{Access, OpenFlags};
use crate::fs::open_file::OpenFile;
use crate::fs::test_support::{NOW, World};
use crate::fs::transfer::Buffer;
use crate::fs::vnode::{NewNode, RenameMode};
use crate::fs::walk::LookupFlags;

/// Events as watch, mask, cookie and name.
fn events(watcher: &Watcher) -> Vec<(i32, u32, u32, Vec<u8>)> {
    let mut buffer = Buffer::with_limit(1 << 20);
    let mut events = Vec::new();
    if watcher.read(0, &mut buffer).is_err() {
        return events;
    }
    let mut bytes = &buffer.bytes[..];
    let word = |bytes: &[u8], index: usize| u32::from_ne_bytes(bytes[index * 4..][..4].try_into().unwrap());
    while !bytes.is_empty() {
        let length = word(bytes, 3) as usize;
        let name = bytes[16..16 + length].iter().copied().take_while(|byte| *byte != 0).collect();
        events.push((word(bytes, 0) as i32, word(bytes, 1), word(bytes, 2), name));
        bytes = &bytes[16 + length..];
    }
    events
}

fn masks(watcher: &Watcher) -> Vec<u32> {
    events(watcher).into_iter().map(|(_, mask, _, _)| mask).collect()
}

fn watch(world: &World, watcher: &Arc<Watcher>, path: &str, mask: u32) -> Result<i32, Errno> {
    let flags = LookupFlags::FOLLOW;
    let found = world.namespace.lookup(&world.caller(), &world.root, path.as_bytes(), flags)?;
    watcher.add(found.inode(), mask)
}

fn unlink(world: &World, path: &str) {
    world.namespace.unlink(&world.caller(), &world.root, path.as_bytes()).unwrap();
}

#[test]
fn the_end_of_a_file_is_told_when_nobody_holds_it() {
    let world = World::tmpfs();
    let watcher = world.namespace.watches().watcher().unwrap();
    let file = world.create("/file");
    assert_eq!(watch(&world, &watcher, "/file", event::ALL), Ok(1));
    unlink(&world, "/file");
    assert_eq!(masks(&watcher), [event::ATTRIB]);
    drop(file);
    assert_eq!(masks(&watcher), [event::CLOSE_WRITE, event::DELETE_SELF, event::IGNORED]);
    assert_eq!(watcher.remove(1), Err(Errno::EINVAL));
    assert!(world.namespace.watches().is_idle());
}

#[test]
fn a_file_with_another_name_is_not_gone() {
    let world = World::tmpfs();
    world.put("/a", b"x");
    let (old, new) = ((&world.root, &b"/a"[..]), (&world.root, &b"/b"[..]));
    world.namespace.link(&world.caller(), old, false, new).unwrap();
    let watcher = world.namespace.watches().watcher().unwrap();
    watch(&world, &watcher, "/a", event::ALL).unwrap();
    unlink(&world, "/a");
    assert_eq!(masks(&watcher), [event::ATTRIB]);
    unlink(&world, "/b");
    assert_eq!(masks(&watcher), [event::ATTRIB, event::DELETE_SELF, event::IGNORED]);
}

#[test]
fn moves_of_two_have_their_own_cookies() {
    let world = World::tmpfs();
    for name in ["/a", "/b"] {
        world.namespace.create(&world.caller(), &world.root, name.as_bytes(), NewNode::Directory, 0o755).unwrap();
    }
    let watcher = world.namespace.watches().watcher().unwrap();
    watch(&world, &watcher, "/", event::MOVED_FROM | event::MOVED_TO).unwrap();
    let (old, new) = ((&world.root, &b"/a"[..]), (&world.root, &b"/b"[..]));
    world.namespace.rename(&world.caller(), old, new, RenameMode::Exchange).unwrap();
    let told = events(&watcher);
    let names: Vec<_> = told.iter().map(|event| event.3.as_slice()).collect();
    assert_eq!(names, [b"a", b"b", b"b", b"a"]);
    assert!(told[0].2 == told[1].2 && told[2].2 == told[3].2 && told[0].2 != told[2].2);
}

#[test]
fn too_many_events_are_one_overflow() {
    let world = World::tmpfs();
    let watcher = world.namespace.watches().watcher().unwrap();
    world.put("/a", b"x");
    watch(&world, &watcher, "/a", event::ACCESS | event::OPEN).unwrap();
    let file = world.open("/a", Access::Read, OpenFlags::empty(), StatusFlags::empty()).unwrap();
    for _ in 0..EVENT_COUNT_MAX {
        file.read_at(0, &mut Buffer::with_limit(1), NOW).unwrap();
        drop(world.open("/a", Access::Read, OpenFlags::empty(), StatusFlags::empty()).unwrap());
    }
    assert_eq!(watcher.readable_byte_count(), Some((EVENT_COUNT_MAX + 1) * 16));
    let told = events(&watcher);
    assert_eq!(told.last(), Some(&(-1, event::OVERFLOW, 0, Vec::new())));
    assert_eq!(told.len(), EVENT_COUNT_MAX + 1);
}

#[test]
fn watchers_are_limited_and_leave_nothing() {
    let world = World::tmpfs();
    let table = world.namespace.watches();
    let watchers: Vec<_> = (0..INSTANCE_COUNT_MAX).map(|_| table.watcher().unwrap()).collect();
    assert_eq!(table.watcher().err(), Some(Errno::EMFILE));
    watch(&world, &watchers[0], "/", event::ALL).unwrap();
    assert_eq!(watch(&world, &watchers[0], "/", event::OPEN | event::MASK_CREATE), Err(Errno::EEXIST));
    drop(watchers);
    assert!(table.is_idle() && table.watcher().is_ok());
}
