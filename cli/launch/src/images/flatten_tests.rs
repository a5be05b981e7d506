//! Layers over each other: whiteouts, links, owners, and attacks.

use super::{Flattener, KEPT_BYTES_MAX};
use crate::images::testing::Tar;
use crate::root::pack::Root;
use aegis_image::tree::{Content, FileData, LastLink};

fn flat(layers: impl IntoIterator<Item = Tar>) -> Result<Root, String> {
    let mut flattener = Flattener::new();
    for layer in layers {
        flattener.apply(layer.open()).map_err(|error| error.to_string())?;
    }
    Ok(flattener.finish(std::iter::empty()))
}

fn text(root: &Root, path: &str) -> Option<String> {
    let node = root.resolve(path.as_bytes(), LastLink::Keep).ok()?;
    Some(match root.node(node).content() {
        Content::File(data) => {
            let mut bytes = vec![0; data.length_bytes() as usize];
            data.read_exact_at(0, &mut bytes).expect("read");
            String::from_utf8(bytes).expect("text")
        }
        Content::Symlink(target) => format!("-> {}", String::from_utf8_lossy(target)),
        Content::Directory(entries) => {
            let names = entries.keys().map(|name| String::from_utf8_lossy(name).into_owned());
            names.collect::<Vec<_>>().join(" ")
        }
        other => format!("{other:?}"),
    })
}

#[test]
fn whiteouts_hide_what_is_below_and_not_what_is_beside_them() {
    let lower = Tar::default().directory("a").file("a/old", b"old").file("a/kept", b"kept").file("b/x", b"x");
    let upper = Tar::default()
        .file("a/new", b"new")
        .file("a/old", b"again")
        .file("a/.wh.old", b"")
        .file("b/y", b"y")
        .file("b/.wh..wh..opq", b"")
        .file("c/.wh.nothing", b"")
        .file("a/.wh..wh.plnk", b"");
    let root = flat([lower, upper]).expect("a root");
    assert_eq!(text(&root, "a").expect("a"), "kept new old");
    assert_eq!(text(&root, "a/old").expect("old"), "again");
    assert_eq!(text(&root, "b").expect("b"), "y");
    assert_eq!(text(&root, "c"), None, "a whiteout makes no directory");
}

#[test]
fn the_last_of_several_members_stays() {
    let layer = Tar::default()
        .file("f", b"1")
        .file("f", b"2")
        .file("d/in", b"x")
        .file("d", b"now a file")
        .symlink("l", "/etc")
        .directory("l")
        .file("l/in", b"y");
    let root = flat([layer]).expect("a root");
    assert_eq!(text(&root, "f").expect("f"), "2");
    assert_eq!(text(&root, "d").expect("d"), "now a file");
    assert_eq!(text(&root, "l").expect("l"), "in", "a directory takes a link's place");
}

#[test]
fn links_lead_nowhere_but_into_the_tree() {
    let layer = Tar::default()
        .symlink("out", "/../../etc")
        .file("out/file", b"inside")
        .symlink("up", "../../../..")
        .file("up/top", b"top")
        .file("/absolute", b"a")
        .hard_link("also", "/absolute")
        .hard_link("link", "out");
    let root = flat([layer]).expect("a root");
    assert_eq!(text(&root, "etc/file").expect("followed"), "inside");
    assert_eq!(text(&root, "top").expect("top"), "top");
    assert_eq!(text(&root, "also").expect("also"), "a");
    assert_eq!(text(&root, "link").expect("a link to a link"), "-> /../../etc");
}

#[test]
fn hard_links_reach_lower_layers_and_owners_stay() {
    let root = flat([Tar::default().file("f", b"x"), Tar::default().hard_link("g", "f").file(".wh.f", b"")]);
    assert!(root.expect_err("hidden first").contains("a hard link to f, which is not there"));
    let root = flat([Tar::default().file("f", b"x"), Tar::default().hard_link("g", "f")]).expect("a root");
    let node = |path: &str| root.resolve(path.as_bytes(), LastLink::Keep).expect("there");
    assert_eq!(node("f"), node("g"));
    let attributes = root.node(node("g")).attributes;
    assert_eq!((attributes.uid, attributes.gid, attributes.permissions), (7, 8, 0o644));
}

#[test]
fn attacks_meet_an_error_by_name() {
    for (layer, why) in [
        (Tar::default().file("../out", b""), "leads out by .."),
        (Tar::default().file("a/../../out", b""), "leads out by .."),
        (Tar::default().file("a/../b", b""), "leads out by .."),
        (Tar::default().hard_link("f", "../../etc/shadow"), "leads out by .."),
        (Tar::default().hard_link("f", "etc/shadow"), "not there"),
        (Tar::default().directory("d").hard_link("f", "d"), "a hard link to a directory"),
        (Tar::default().symlink("a", "b").symlink("b", "a").file("a/f", b""), "too many symbolic links"),
        (Tar::default().file("f", b"").file("f/g", b""), "not a directory"),
        (Tar::default().symlink(".", "/etc"), "the root is a directory"),
        (Tar::default().file(".wh.", b""), "a whiteout of nothing"),
        (Tar::default().file(".wh...", b""), "a whiteout of nothing"),
        (Tar::default().file(".wh.a/b", b""), "below the whiteout"),
        (Tar::default().raw(b'V', "v", "", b""), "a kind of member"),
        (Tar::default().symlink("l", ""), "target"),
        (Tar::default().pax(&[("path", &"n".repeat(300))]).file("f", b""), "too long"),
    ] {
        let error = flat([layer]).expect_err(why);
        assert!(error.contains(why), "{error}, not {why}");
    }
    // What a lower layer has made a link is none of the host's either.
    let layers = [Tar::default().symlink("a", "b").symlink("b", "a"), Tar::default().file("a/.wh.f", b"")];
    assert!(flat(layers).expect_err("a loop").contains("too many symbolic links"));
}

#[test]
fn a_billion_zeros_in_a_hole_are_too_many() {
    let layer = Tar::default().pax(&[("GNU.sparse.map", "0,0"), ("GNU.sparse.size", "1000000000")]).file("zeros", b"");
    assert!(flat([layer]).expect_err("a bomb").contains("sparse files of 1000000000"));
    let layer = Tar::default().pax(&[("GNU.sparse.map", "9,1"), ("GNU.sparse.size", "12")]).file("few", b"x");
    assert_eq!(text(&flat([layer]).expect("a root"), "few").expect("few"), "\0\0\0\0\0\0\0\0\0x\0\0");
}

#[test]
fn names_and_links_count_together() {
    let fits = |spare_bytes: u64, layer: Tar| {
        let mut flattener = Flattener::new();
        flattener.kept_bytes = KEPT_BYTES_MAX - spare_bytes;
        flattener.apply(layer.open()).map_err(|error| error.to_string())
    };
    let link = || Tar::default().symlink("name", "target");
    fits(10, link()).expect("it fits");
    assert!(fits(9, link()).expect_err("a byte too many").contains("names, links and attributes of more than 256 MiB"));
    // Over each other too: what is hidden was kept, and costs time.
    fits(20, link().symlink("name", "target")).expect("they fit");
    fits(19, link().symlink("name", "target")).expect_err("a byte too many");
    let holes = || Tar::default().pax(&[("GNU.sparse.map", "1,1,3,1"), ("GNU.sparse.size", "9")]).file("f", b"xy");
    fits(49, holes()).expect("two pieces");
    fits(48, holes()).expect_err("a byte too many");
    let long = Tar::default().raw(b'K', "././@LongLink", "", &[b'x'; 4000]).symlink("l", "t");
    fits(4000, long).expect_err("a long target");
}

#[test]
fn device_nodes_are_entries_of_the_tree_alone() {
    let mut header = tar::Header::new_ustar();
    header.set_path("null").expect("a name");
    header.set_entry_type(tar::EntryType::Char);
    header.set_mode(0o666);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_device_major(1).expect("a number");
    header.set_device_minor(3).expect("a number");
    header.set_cksum();
    let root = flat([Tar::default().header(&header, b"")]).expect("a root");
    assert!(text(&root, "null").expect("there").contains("major: 1, minor: 3"));
    header.set_device_major(0o7777).expect("a number");
    header.set_device_minor(0o7_777_777).expect("a number");
    header.set_cksum();
    assert!(flat([Tar::default().header(&header, b"")]).expect_err("no such number").contains("a device of a number"));
}

#[test]
fn extended_attributes_are_those_of_the_last_member() {
    let xattr = |name: &str| format!("SCHILY.xattr.{name}");
    let (user, rights) = (xattr("user.a"), xattr("security.capability"));
    let lower = Tar::default()
        .pax(&[(&user, "1"), (&rights, "r"), (&xattr("system.posix_acl_access"), "left out")])
        .file("f", b"x")
        .hard_link("g", "f")
        .pax(&[(&user, "of d")])
        .directory("d")
        .pax(&[(&user, "of e")])
        .directory("e")
        .file("plain", b"y");
    let upper = Tar::default().directory("d").file("e/in", b"");
    let root = flat([lower, upper]).expect("a root");
    let of = |path: &str| root.node(root.resolve(path.as_bytes(), LastLink::Keep).expect("there")).extended();
    let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    assert_eq!(of("f"), [pair("security.capability", "r"), pair("user.a", "1")]);
    assert_eq!((of("g"), of("e")), (of("f"), &[pair("user.a", "of e")][..]));
    assert!(of("d").is_empty() && of("plain").is_empty());
    let large = "v".repeat(70_000);
    let error = flat([Tar::default().pax(&[(&user, &large)]).file("f", b"")]).expect_err("too large");
    assert!(error.contains("extended attributes of more than 65536 bytes"), "{error}");
}
