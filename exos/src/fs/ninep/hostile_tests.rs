//! Servers that answer nonsense, or nothing: an error each time, never a panic, never a request without an end.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::cache::PageCache;
use super::fake_server::FakeServer;
use super::message::{Attributes, ListedEntry, R_ERROR, Reader};
use super::{Consistency, Options, attach};
use crate::error::{Errno, Result};
use crate::fake::FakeMachine;
use crate::fs::metadata::{DeviceNumber, FileKind, SetAttributes};
use crate::fs::test_support::{BY_ROOT, NOW};
use crate::fs::transfer::Buffer;
use crate::fs::vnode::{InodeRef, NewNode, RenameMode, WritePosition};
use crate::mem::frames::FramePool;
use crate::mem::source::PageIntent;

fn served(consistency: Consistency) -> (Arc<FakeServer>, Result<InodeRef>) {
    let server = FakeServer::new();
    server.make("d", FileKind::Directory, b"");
    server.put("d/f", &[7; 30_000]);
    server.make("l", FileKind::Symlink, b"d/f");
    let root = attach_to(&server, consistency);
    (server, root)
}

fn attach_to(server: &Arc<FakeServer>, consistency: Consistency) -> Result<InodeRef> {
    let machine = FakeMachine::new();
    let pool = FramePool::new(machine.clone(), machine, 64 << 20);
    let cache = PageCache::new(&pool);
    let options = Options { device: DeviceNumber { major: 0, minor: 9 }, consistency, uid: 0, layer: 0 };
    attach(server.clone(), &pool, &cache, options)
}

/// Everything that can be asked of a tree; the answers do not matter.
fn use_everything(root: &InodeRef) {
    let _ = root.metadata();
    let _ = root.statistics();
    let _ = root.read_directory(0, &mut |entry| {
        assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'));
        true
    });
    // In the order of the listing, so that the second is asked for with the first.
    let _ = root.lookup(b"d").map(|directory| directory.metadata());
    let _ = root.lookup(b"l").map(|link| link.read_link());
    let Ok(directory) = root.lookup(b"d") else { return };
    let _ = directory.create(b"new", NewNode::Regular, BY_ROOT);
    let _ = directory.create(b"sub", NewNode::Directory, BY_ROOT);
    let _ = directory.rename(b"new", &directory, b"newer", RenameMode::Replace, NOW);
    let _ = directory.unlink(b"newer", NOW);
    let _ = directory.remove_directory(b"sub", NOW);
    let Ok(file) = directory.lookup(b"f") else { return };
    let _ = directory.confirms(b"f", &file);
    let _ = file.read_at(0, &mut Buffer::with_limit(100_000));
    let _ = file.write_at(WritePosition::End, &mut &[1; 5000][..], NOW);
    let _ = file.page(1, PageIntent::WriteShared);
    let _ = file.truncate(100, NOW);
    let _ = file.set_attributes(SetAttributes { permissions: Some(0o600), ..Default::default() }, NOW);
    let _ = directory.link(b"hard", &file, NOW);
    let _ = file.sync();
    let _ = root.sync_file_system();
}

/// A way to spoil a reply.
#[derive(Clone, Debug)]
enum Spoiled {
    /// As it should be.
    Not,
    /// Cut off after so many bytes, with or without the size to go with it.
    Cut(usize, bool),
    Changed(Vec<(usize, u8)>),
    /// A word of four bytes changed: counts, sizes, offsets.
    Word(usize, u32),
    /// Something else altogether.
    Other(Vec<u8>),
    /// No answer.
    Silence,
}

fn spoiled() -> impl Strategy<Value = Spoiled> {
    prop_oneof![
        12 => Just(Spoiled::Not),
        2 => (0..60usize, any::<bool>()).prop_map(|(length, fixes)| Spoiled::Cut(length, fixes)),
        2 => proptest::collection::vec((0..200usize, any::<u8>()), 1..6).prop_map(Spoiled::Changed),
        2 => (7..160usize, prop_oneof![Just(u32::MAX), Just(0), any::<u32>()])
            .prop_map(|(at, word)| Spoiled::Word(at, word)),
        1 => proptest::collection::vec(any::<u8>(), 0..100).prop_map(Spoiled::Other),
        1 => Just(Spoiled::Silence),
    ]
}

fn apply(spoiled: &Spoiled, mut reply: Vec<u8>) -> Option<Vec<u8>> {
    match spoiled {
        Spoiled::Not => {}
        Spoiled::Cut(length, fixes) => {
            reply.truncate(*length);
            let size = reply.len() as u32;
            if let (true, Some(head)) = (*fixes, reply.get_mut(..4)) {
                head.copy_from_slice(&size.to_le_bytes());
            }
        }
        Spoiled::Changed(changes) => {
            for (at, byte) in changes {
                if let Some(place) = reply.get_mut(*at) {
                    *place = *byte;
                }
            }
        }
        Spoiled::Word(at, word) => {
            if let Some(place) = reply.get_mut(*at..*at + 4) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        Spoiled::Other(bytes) => reply = bytes.clone(),
        Spoiled::Silence => return None,
    }
    Some(reply)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Any reply to any request.
    #[test]
    fn nonsense_is_an_error(
        plan in proptest::collection::vec(spoiled(), 1..60),
        is_fixed in any::<bool>(),
        many_count_max in prop_oneof![Just(0), Just(16), Just(48)],
    ) {
        let consistency = if is_fixed { Consistency::Fixed } else { Consistency::Checked };
        let server = FakeServer::with_many(many_count_max);
        server.make("d", FileKind::Directory, b"");
        server.put("d/f", &[7; 30_000]);
        server.make("l", FileKind::Symlink, b"d/f");
        let mut index = 0;
        server.spoil(Box::new(move |_, reply| {
            index += 1;
            apply(&plan[(index - 1) % plan.len()], reply)
        }));
        if let Ok(root) = attach_to(&server, consistency) {
            use_everything(&root);
        }
        prop_assert!(server.request_count() < 2000);
    }

    /// The reader of replies takes any bytes.
    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Reader::open(&bytes);
        let _ = Attributes::read(Reader::of(&bytes));
        let mut reader = Reader::of(&bytes);
        while ListedEntry::read(&mut reader).is_some() {}
        let _ = Reader::of(&bytes).target();
        if let Some(data) = Reader::of(&bytes).data(64) {
            prop_assert!(data.len() <= 64);
        }
    }
}

#[test]
fn each_kind_of_nonsense_is_eio_from_then_on() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 6] = [
        ("wrong tag", |reply| reply[5] ^= 1),
        ("wrong type", |reply| reply[4] = 99),
        ("short message", |reply| reply.truncate(6)),
        ("size too large", |reply| reply[0] ^= 0x40),
        ("nothing", Vec::clear),
        ("too many fields told", |reply| {
            reply.truncate(8);
            reply[0] = 8;
        }),
    ];
    for (what, change) in changes {
        let (server, root) = served(Consistency::Checked);
        let root = root.unwrap();
        server.spoil(Box::new(move |_, mut reply| {
            change(&mut reply);
            Some(reply)
        }));
        assert_eq!(root.lookup(b"d").err(), Some(Errno::EIO), "{what}");
        server.tree.lock().spoil = None;
        let before = server.request_count();
        assert_eq!(root.lookup(b"d").err(), Some(Errno::EIO), "{what}");
        assert_eq!(server.request_count(), before, "{what}: nobody is asked any more");
    }
}

#[test]
fn a_walk_that_is_refused_though_it_was_done_is_refused_again() {
    let (server, root) = served(Consistency::Checked);
    let root = root.unwrap();
    let mut is_first = true;
    server.spoil(Box::new(move |kind, mut reply| {
        if kind == 110 && core::mem::take(&mut is_first) {
            // ENOENT, as the server says it.
            reply.truncate(7);
            reply.extend(2_u32.to_le_bytes());
            (reply[0], reply[4]) = (11, R_ERROR);
        }
        Some(reply)
    }));
    assert_eq!(root.lookup(b"d").err(), Some(Errno::ENOENT));
    assert_eq!(root.lookup(b"d").err(), Some(Errno::EINVAL), "the server has the number still");
    server.tree.lock().spoil = None;
    assert_eq!(root.metadata().kind, FileKind::Directory, "the session goes on");
}

#[test]
fn more_data_than_asked_for_is_nonsense() {
    let (server, root) = served(Consistency::Fixed);
    let file = root.unwrap().lookup(b"d").unwrap().lookup(b"f").unwrap();
    server.spoil(Box::new(|kind, mut reply| {
        if kind == 116 {
            reply.resize(reply.len() + 40_000, 1);
            let (size, count) = (reply.len() as u32, (reply.len() - 11) as u32);
            reply[..4].copy_from_slice(&size.to_le_bytes());
            reply[7..11].copy_from_slice(&count.to_le_bytes());
        }
        Some(reply)
    }));
    assert_eq!(file.read_at(0, &mut Buffer::with_limit(100)), Err(Errno::EIO));
}

#[test]
fn a_server_that_dies_is_eio_for_everything() {
    let (server, root) = served(Consistency::Checked);
    let root = root.unwrap();
    let file = root.lookup(b"d").unwrap().lookup(b"f").unwrap();
    file.page(0, PageIntent::WriteShared).unwrap();
    server.spoil(Box::new(|_, _| None));
    assert_eq!(root.lookup(b"x").err(), Some(Errno::EIO));
    assert_eq!(root.read_directory(0, &mut |_| true), Err(Errno::EIO));
    assert_eq!(file.sync(), Err(Errno::EIO));
    assert_eq!(file.write_at(WritePosition::At(0), &mut &b"x"[..], NOW), Err(Errno::EIO));
    assert_eq!(root.sync_file_system(), Err(Errno::EIO));
    // What is at hand can still be read.
    assert_eq!(file.read_at(0, &mut Buffer::with_limit(100)), Ok(100));
    assert_eq!(file.metadata().size_bytes, 30_000);
}

#[test]
fn errors_without_a_name_here_are_eio() {
    for (number, expected) in [
        (2_u32, Errno::ENOENT),
        (13, Errno::EACCES),
        (30, Errno::EROFS),
        (11, Errno::EIO),
        (0, Errno::EIO),
        (70_000, Errno::EIO),
    ] {
        let (server, root) = served(Consistency::Checked);
        let root = root.unwrap();
        server.spoil(Box::new(move |_, reply| {
            let mut error = [11, 0, 0, 0, R_ERROR, reply[5], reply[6]].to_vec();
            error.extend(number.to_le_bytes());
            Some(error)
        }));
        assert_eq!(root.lookup(b"x").err(), Some(expected), "{number}");
        server.tree.lock().spoil = None;
        assert!(root.lookup(b"d").is_ok(), "an honest error ends nothing");
    }
}

#[test]
fn a_server_of_another_kind_is_refused() {
    for (what, at, byte) in [("another dialect", 13, b'X'), ("messages too short", 8, 0), ("no answer to that", 4, 7)] {
        let server = FakeServer::new();
        server.spoil(Box::new(move |_, mut reply| {
            reply[at] = byte;
            if at == 8 {
                reply[7] = 100;
            }
            Some(reply)
        }));
        assert_eq!(attach_to(&server, Consistency::Fixed).err(), Some(Errno::EIO), "{what}");
    }
    assert_eq!(attach_to(&FakeServer::with_messages(100), Consistency::Fixed).err(), Some(Errno::EIO));
}

#[test]
fn byte_by_byte_comes_to_an_end() {
    let (server, root) = served(Consistency::Fixed);
    server.tree.lock().read_bytes_max = 1;
    let file = root.unwrap().lookup(b"d").unwrap().lookup(b"f").unwrap();
    assert_eq!(file.read_at(0, &mut Buffer::with_limit(100)), Err(Errno::EIO));
}

#[test]
fn a_listing_without_an_end_is_refused() {
    let (server, root) = served(Consistency::Fixed);
    let root = root.unwrap();
    // Listed again and again, until somebody has had enough of it.
    server.put(&"x".repeat(255), b"");
    let mut first: Option<Vec<u8>> = None;
    server.spoil(Box::new(move |kind, reply| {
        if kind != 40 {
            return Some(reply);
        }
        Some(first.get_or_insert(reply).clone())
    }));
    // The tag is the same each time, so the replies fit; only their number tells.
    assert_eq!(root.read_directory(0, &mut |_| true), Err(Errno::EOVERFLOW));
}
