//! Paths resolve in the root just as on the host.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use aegis_image::tree::LastLink;

use super::{HostRoot, split_with};
use crate::root::pack::scratch::{Scratch, contents, link};
use crate::root::pack::{IMPLIED_DIRECTORY, PackError, Packed, Root, Warning, bytes_of};
use crate::root::pack_dir::pack_dir;

fn empty() -> HostRoot {
    let packed = Packed { tree: Root::new(IMPLIED_DIRECTORY), warnings: Vec::new() };
    HostRoot::over(packed, OsStr::new("/usr/bin"))
}

#[test]
fn links_on_the_way_are_taken_over() {
    let scratch = Scratch::new();
    let file = scratch.write("real/dir/file-1.2", b"text");
    symlink("file-1.2", scratch.path("real/dir/file")).unwrap();
    symlink("real/dir/../dir", scratch.path("link")).unwrap();
    symlink(scratch.path("link/file"), scratch.path("far")).unwrap();
    let mut root = empty();
    let path = root.add_program(&scratch.path("far")).unwrap();
    assert_eq!(path, bytes_of(&scratch.path("far")));
    let tree = root.finish().unwrap().tree;
    assert_eq!(contents(&tree, scratch.path("far")).unwrap(), b"text");
    assert_eq!(link(&tree, scratch.path("link")).unwrap(), b"real/dir/../dir");
    assert_eq!(link(&tree, scratch.path("real/dir/file")).unwrap(), b"file-1.2");
    assert_eq!(link(&tree, &file), None);
    let loop_path = scratch.path("loop");
    symlink("loop", &loop_path).unwrap();
    assert!(matches!(empty().with(&loop_path, None), Err(PackError::Io { .. })));
}

#[test]
fn a_directory_goes_to_its_own_path_or_another() {
    let scratch = Scratch::new();
    scratch.write("dir/sub/file", b"text");
    symlink("sub/file", scratch.path("dir/inside")).unwrap();
    symlink("dir", scratch.path("link")).unwrap();
    let mut root = empty();
    root.with(&scratch.path("link"), None).unwrap();
    root.with(&scratch.path("link"), Some(b"/data")).unwrap();
    root.with(&scratch.path("dir/sub/file"), Some(b"/etc/renamed")).unwrap();
    root.with(&scratch.path("dir/sub/file"), Some(b"/etc/")).unwrap();
    let tree = root.finish().unwrap().tree;
    assert_eq!(link(&tree, scratch.path("link")).unwrap(), b"dir", "the link itself");
    assert_eq!(contents(&tree, scratch.path("link/sub/file")).unwrap(), b"text", "its target");
    assert_eq!(contents(&tree, "/data/inside").unwrap(), b"text");
    assert_eq!(contents(&tree, "/etc/renamed").unwrap(), b"text");
    assert_eq!(contents(&tree, "/etc/file").unwrap(), b"text");
    assert!(matches!(empty().with(&scratch.path("none"), None), Err(PackError::Io { .. })));
}

#[test]
fn named_files_win_over_the_root_and_needed_ones_do_not() {
    let scratch = Scratch::new();
    let file = scratch.write("host", b"host");
    scratch.write("root/etc/file", b"root");
    scratch.write("root/other/host", b"root");
    symlink("other", scratch.path("root/link")).unwrap();
    let given = pack_dir(&scratch.path("root")).unwrap();
    let mut root = HostRoot::over(given, OsStr::new(""));
    root.with(&file, Some(b"/etc/file")).unwrap();
    root.with(&file, Some(b"/link/new")).unwrap();
    let tree = root.finish().unwrap().tree;
    assert_eq!(contents(&tree, "/etc/file").unwrap(), b"host");
    assert_eq!(contents(&tree, "/other/new").unwrap(), b"host", "through the root's own link");
    assert_eq!(contents(&tree, "/other/host").unwrap(), b"root");
}

#[test]
fn a_roots_own_directory_in_place_of_a_host_link_is_respected() {
    let scratch = Scratch::new();
    scratch.write("real/file", b"text");
    symlink("real", scratch.path("link")).unwrap();
    let mut root = empty();
    let own = root.tree.ensure_directory(bytes_of(&scratch.path("link")), IMPLIED_DIRECTORY);
    root.with(&scratch.path("link/file"), None).unwrap();
    assert_eq!(contents(&root.tree, scratch.path("link/file")).unwrap(), b"text");
    assert_eq!(root.tree.resolve(bytes_of(&scratch.path("link")), LastLink::Keep), own);
}

#[test]
fn arguments_are_split_at_the_guest_path() {
    let scratch = Scratch::new();
    let odd = scratch.write("a:/b", b"");
    let split = |argument: &str| split_with(OsStr::new(argument));
    assert_eq!(split("/a/b"), ("/a/b".into(), None));
    assert_eq!(split("rel:/b"), ("rel".into(), Some(b"/b".to_vec())));
    assert_eq!(split("/a:b:/c/d"), ("/a:b".into(), Some(b"/c/d".to_vec())));
    assert_eq!(split("/a:b"), ("/a:b".into(), None));
    assert_eq!(split(":/b"), (":/b".into(), None));
    assert_eq!(split_with(odd.as_os_str()), (odd, None), "an existing path is taken whole");
}

#[test]
fn the_minimal_root_has_what_programs_expect() {
    let scratch = Scratch::new();
    let own_hosts = scratch.write("hosts", b"own");
    let mut root = HostRoot::minimal(b"guest", OsStr::new("/usr/bin"));
    root.with(&own_hosts, Some(b"/etc/hosts")).unwrap();
    let tree = root.finish().unwrap().tree;
    assert_eq!(contents(&tree, "/etc/hostname").unwrap(), b"guest\n");
    assert_eq!(contents(&tree, "/etc/hosts").unwrap(), b"own", "named files win");
    for path in ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/resolv.conf"] {
        assert!(contents(&tree, path).is_some_and(|text| !text.is_empty()), "{path}");
    }
    let permissions = |path: &[u8]| {
        let node = tree.resolve(path, LastLink::Follow).unwrap();
        assert!(tree.node(node).is_directory());
        tree.node(node).attributes.permissions
    };
    for path in [&b"/dev"[..], b"/proc", b"/sys", b"/root", b"/home", b"/run"] {
        permissions(path);
    }
    assert_eq!(permissions(b"/tmp"), 0o1777);
    assert_eq!(permissions(b"/var/tmp"), 0o1777);
    assert!(tree.resolve(b"/etc/shadow", LastLink::Keep).is_err(), "no passwords");
}

/// The list that the host's own linker gives, if there is one.
fn listed_by_ldd(program: &Path) -> Option<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    Some(words.map(String::from).collect())
}

#[test]
fn real_programs_find_all_their_libraries() {
    for program in ["/bin/ls", "/usr/bin/perl", "/usr/bin/python3"] {
        let program = Path::new(program);
        let libraries = listed_by_ldd(program).unwrap_or_default();
        if libraries.is_empty() {
            println!("skipped: no {} or no ldd here", program.display());
            continue;
        }
        let mut root = HostRoot::minimal(b"guest", OsStr::new("/usr/bin"));
        let guest = root.add_program(program).unwrap();
        let packed = root.finish().unwrap();
        let missing = |warning: &Warning| matches!(warning, Warning::MissingLibrary { .. });
        assert!(!packed.warnings.iter().any(missing), "{:?}", packed.warnings);
        for path in libraries.iter().map(Path::new).chain([program]) {
            let expected = fs::read(path).unwrap();
            assert_eq!(contents(&packed.tree, path).as_ref(), Some(&expected), "{path:?}");
        }
        assert_eq!(guest, bytes_of(program));
    }
}
