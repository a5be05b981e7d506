//! Directories of two trees against a model of paths, and when the lower one is asked.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::{DEPTH_MAX, Layer, over};
use crate::error::{Errno, Result};
use crate::fs::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata};
use crate::fs::test_support::{BY_ROOT, LARGE, NOW, pool, tmpfs_root};
use crate::fs::transfer::Buffer;
use crate::fs::vnode::{Creation, DirectoryEntry, EntryConsumer, Inode, InodeRef, NewNode, WritePosition};

/// A directory in memory with cookies as those of an image: small.
struct Small(InodeRef);

const COOKIES: u64 = 1 << 48;

impl Small {
    fn over(inode: InodeRef) -> InodeRef {
        if inode.kind() == FileKind::Directory { Arc::new(Self(inode)) } else { inode }
    }
}

impl Inode for Small {
    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }
    fn statistics(&self) -> FileSystemStatistics {
        self.0.statistics()
    }
    fn lookup(&self, name: &[u8]) -> Result<InodeRef> {
        self.0.lookup(name).map(Self::over)
    }
    fn create(&self, name: &[u8], node: NewNode<'_>, creation: Creation) -> Result<InodeRef> {
        self.0.create(name, node, creation).map(Self::over)
    }
    fn read_directory(&self, cookie: u64, consumer: &mut EntryConsumer<'_>) -> Result<u64> {
        let begin = if cookie == 0 { 0 } else { cookie + COOKIES };
        let reached = self.0.read_directory(begin, &mut |entry| {
            consumer(DirectoryEntry { next_cookie: entry.next_cookie - COOKIES, ..entry })
        });
        reached.map(|cookie| cookie.saturating_sub(COOKIES))
    }
}

/// What a tree has: a file with these contents, or a directory.
type Model = BTreeMap<String, Option<u8>>;

fn find(root: &InodeRef, path: &str) -> Result<InodeRef> {
    path.split('/').filter(|name| !name.is_empty()).try_fold(root.clone(), |here, name| here.lookup(name.as_bytes()))
}

/// Makes what the model says; what cannot be is left out of both.
fn tree(wanted: &[(Vec<u8>, Option<u8>)]) -> (InodeRef, Model) {
    let (root, mut model) = (Small::over(tmpfs_root(&pool(), 30, LARGE)), Model::new());
    for (names, contents) in wanted {
        let mut here = root.clone();
        let mut path = String::new();
        for (place, name) in names.iter().enumerate() {
            path = alloc::format!("{path}/{}", char::from(*name));
            let is_file = contents.is_some() && place + 1 == names.len();
            let node = if is_file { NewNode::Regular } else { NewNode::Directory };
            match here.create(&[*name], node, BY_ROOT) {
                Ok(made) => {
                    if let (true, Some(byte)) = (is_file, contents) {
                        made.write_at(WritePosition::At(0), &mut &[*byte][..], NOW).unwrap();
                    }
                    model.insert(path.clone(), contents.filter(|_| is_file));
                    here = made;
                }
                Err(_) => here = here.lookup(&[*name]).unwrap(),
            }
            if here.kind() != FileKind::Directory {
                break;
            }
        }
    }
    (root, model)
}

/// What both show together: the upper's names, and the lower's below directories that are the upper's too.
fn merged(upper: &Model, lower: &Model) -> Model {
    let mut all = upper.clone();
    for (path, contents) in lower {
        let parents = path.match_indices('/').map(|(end, _)| &path[..end]).filter(|parent| !parent.is_empty());
        if parents.into_iter().all(|parent| !matches!(upper.get(parent), Some(Some(_)))) {
            all.entry(path.clone()).or_insert(*contents);
        }
    }
    all
}

/// Everything below a directory, listed so many entries at a time.
fn walk(directory: &InodeRef, path: &str, step: usize, out: &mut Model) {
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let mut taken = 0;
        cookie = directory
            .read_directory(cookie, &mut |entry| {
                if taken == step {
                    return false;
                }
                taken += 1;
                assert!(entry.next_cookie < 1 << 48, "an overlay's own cookies lie above");
                names.push((entry.name.to_vec(), entry.kind));
                true
            })
            .unwrap();
        if taken == 0 {
            break;
        }
        assert!(!directory.ends_at(0));
    }
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "a name was listed twice");
    for (name, kind) in names {
        let path = alloc::format!("{path}/{}", String::from_utf8(name.clone()).unwrap());
        let found = directory.lookup(&name).unwrap();
        assert_eq!(found.kind(), kind);
        if kind == FileKind::Directory {
            out.insert(path.clone(), None);
            walk(&found, &path, step, out);
        } else {
            let mut buffer = Buffer::with_limit(8);
            found.read_at(0, &mut buffer).unwrap();
            out.insert(path, buffer.bytes.first().copied());
        }
    }
}

fn wanted() -> impl Strategy<Value = Vec<(Vec<u8>, Option<u8>)>> {
    let path = proptest::collection::vec(b'a'..b'e', 1..5);
    proptest::collection::vec((path, proptest::option::of(any::<u8>())), 0..12)
}

proptest! {
    #[test]
    fn two_trees_show_what_the_model_says(upper in wanted(), lower in wanted(), step in 1_usize..5, named: bool) {
        let ((upper, of_upper), (lower, of_lower)) = (tree(&upper), tree(&lower));
        let name: &[u8] = if named { b"b" } else { b"" };
        let of_lower = if named {
            let below = of_lower.iter().map(|(path, contents)| (alloc::format!("/b{path}"), *contents));
            below.chain([("/b".into(), None)]).collect()
        } else {
            of_lower
        };
        let root = over(upper, alloc::vec![Layer::new(name, Box::new(move || Ok(lower.clone())))]);
        let mut seen = Model::new();
        walk(&root, "", step, &mut seen);
        prop_assert_eq!(&seen, &merged(&of_upper, &of_lower));
        prop_assert!(root.lookup(b"x").is_err_and(|error| error == Errno::ENOENT));
    }
}

#[test]
fn what_the_upper_tree_has_asks_nobody() {
    let (upper, _) = tree(&[(b"ab".to_vec(), Some(1)), (b"cd".to_vec(), None)]);
    let (lower, _) = tree(&[(b"ax".to_vec(), Some(2))]);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let attach = move || {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(lower.clone())
    };
    let root = over(upper, alloc::vec![Layer::new(b"", Box::new(attach))]);
    assert!(find(&root, "a/b").is_ok() && find(&root, "c/d").is_ok());
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    assert!(find(&root, "a/x").is_ok());
    assert!(find(&root, "a/y").is_err() && find(&root, "z").is_err());
    assert_eq!(asked.load(Ordering::Relaxed), 1, "it is attached once");
}

#[test]
fn what_is_noted_as_absent_is_nowhere() {
    let (upper, _) = tree(&[(b"ab".to_vec(), Some(1))]);
    let nothing = NewNode::CharacterDevice(DeviceNumber { major: 0, minor: 0 });
    find(&upper, "a").unwrap().create(b"x", nothing, BY_ROOT).unwrap();
    let null = NewNode::CharacterDevice(DeviceNumber { major: 1, minor: 3 });
    find(&upper, "a").unwrap().create(b"n", null, BY_ROOT).unwrap();
    let (lower, _) = tree(&[(b"ax".to_vec(), Some(2)), (b"ay".to_vec(), Some(3))]);
    let root = over(upper, alloc::vec![Layer::new(b"", Box::new(move || Ok(lower.clone())))]);
    assert_eq!(find(&root, "a/x").err(), Some(Errno::ENOENT));
    assert!(find(&root, "a/y").is_ok());
    let mut names = Vec::new();
    let mut list = |entry: DirectoryEntry<'_>| {
        names.push(entry.name.to_vec());
        true
    };
    find(&root, "a").unwrap().read_directory(0, &mut list).unwrap();
    names.sort();
    assert_eq!(names, [b"b", b"n", b"y"]);
}

#[test]
fn a_layer_that_cannot_be_attached_is_an_error_of_its_names_alone() {
    let (upper, _) = tree(&[(b"ab".to_vec(), Some(1))]);
    let root = over(upper, alloc::vec![Layer::new(b"a", Box::new(|| Err(Errno::EIO)))]);
    assert!(find(&root, "a/b").is_ok());
    assert_eq!(find(&root, "a/x").err(), Some(Errno::EIO));
    assert_eq!(find(&root, "x").err(), Some(Errno::ENOENT));
    assert_eq!(root.lookup(b"a").unwrap().read_directory(0, &mut |_| true).err(), Some(Errno::EIO));
}

#[test]
fn deep_directories_show_the_upper_tree() {
    let names = alloc::vec![b'a'; DEPTH_MAX + 8];
    let with = |last: u8| [names.clone(), alloc::vec![last]].concat();
    let ((upper, _), (lower, _)) =
        (tree(&[(with(b'u'), Some(1))]), tree(&[(with(b'l'), Some(2)), (b"al".to_vec(), Some(3))]));
    let root = over(upper, alloc::vec![Layer::new(b"", Box::new(move || Ok(lower.clone())))]);
    let path = "a/".repeat(names.len());
    assert!(find(&root, &alloc::format!("{path}u")).is_ok());
    assert_eq!(find(&root, &alloc::format!("{path}l")).err(), Some(Errno::ENOENT));
    assert!(find(&root, "a/l").is_ok());
}
