//! Archives in every form of tar, and archives that are none.

use super::{Member, Members, time};
use crate::images::errors::ImageError;
use crate::images::testing::{Tar, open};
use crate::root::pack::Segment;
use proptest::prelude::*;
use std::fs::File;

fn all(file: &File) -> Result<Vec<Member>, ImageError> {
    let mut members = Members::new(file)?;
    let mut found = Vec::new();
    while let Some(member) = members.next()? {
        found.push(member);
    }
    Ok(found)
}

fn error(tar: Tar) -> String {
    all(&tar.open()).expect_err("refused").to_string()
}

#[test]
fn extended_headers_belong_to_the_next_member_and_win() {
    let long = "d/".repeat(100) + "f";
    let tar = Tar::default()
        .pax(&[("path", &long), ("uid", "70000"), ("gid", "5"), ("mtime", "12.5"), ("size", "3")])
        .raw(b'0', "short", "", b"abc")
        .file("plain", b"x");
    let found = all(&tar.open()).expect("members");
    assert_eq!(found[0].path, long.as_bytes());
    assert_eq!((found[0].uid, found[0].gid, found[0].mtime_s, found[0].mtime_ns), (70_000, 5, 12, 500_000_000));
    assert_eq!((found[1].path.as_slice(), found[1].uid, found[1].stored_bytes), (&b"plain"[..], 7, 1));
}

#[test]
fn long_names_of_gnu_are_read() {
    let tar = Tar::default()
        .raw(b'L', "././@LongLink", "", b"a/long/name\0")
        .raw(b'K', "././@LongLink", "", b"a/long/target\0")
        .symlink("short", "t");
    let found = all(&tar.open()).expect("members");
    assert_eq!((found[0].path.as_slice(), found[0].link.as_slice()), (&b"a/long/name"[..], &b"a/long/target"[..]));
}

#[test]
fn what_is_too_much_is_refused_before_it_is_kept() {
    let mut giant = tar::Header::new_ustar();
    giant.as_old_mut().name[0] = b'x';
    giant.as_old_mut().linkflag = [b'x'];
    giant.set_size(8 << 30);
    giant.set_cksum();
    assert!(error(Tar::default().header(&giant, b"")).contains("extended headers of more than"));
    let many = (0..3000).fold(Tar::default(), |tar, _| tar.pax(&[("comment", &"y".repeat(400))]));
    assert!(error(many.file("f", b"")).contains("extended headers of more than"));
    assert!(error(Tar::default().pax(&[("path", &"p/".repeat(2100))]).file("f", b"")).contains("a path of more than"));
    assert!(error(Tar::default().pax(&[("uid", "4294967296")]).file("f", b"")).contains("uid"));
    assert!(error(Tar::default().pax(&[("size", "99999999")]).file("f", b"")).contains("ends inside"));
    assert!(error(Tar::default().raw(b'x', "p", "", b"9999 path=x\n").file("f", b"")).contains("extended header"));
    assert!(error(Tar::default().raw(b'g', "p", "", b"12 path=abc\n").file("f", b"")).contains("for all"));
    assert!(error(Tar::default().pax(&[("path", "a\0b")]).file("f", b"")).contains("zero byte"));
    let mut cut = Tar::default().file("f", b"abc").0;
    cut.truncate(513);
    assert!(all(&open(&cut)).expect_err("cut").to_string().contains("inside a member"));
    assert!(all(&open(&[7; 600])).expect_err("no header").to_string().contains("no header"));
}

#[test]
fn headers_for_all_count_where_a_members_own_says_nothing() {
    let global = |records: &[u8]| Tar::default().raw(b'g', "g", "", records).0;
    let mut tar = Tar::default().pax(&[("uid", "5")]);
    tar.0.extend(global(b"9 uid=70\n9 gid=80\n11 mtime=1\n"));
    let mut tar = tar.file("own", b"").file("plain", b"");
    tar.0.extend(global(b"9 gid=81\n41 SCHILY.xattr.security.capability=some\n"));
    let found = all(&tar.file("later", b"").open()).expect("members");
    let said = |member: &Member| (member.uid, member.gid, member.has_file_capabilities);
    assert_eq!(found.iter().map(said).collect::<Vec<_>>(), [(5, 80, false), (70, 80, false), (70, 81, true)]);
    // What each member would have to read again is short.
    let long = [&b"1007 mtime="[..], &[b'0'; 995], b"\n"].concat();
    assert!(error(Tar(global(&long)).file("f", b"")).contains("mtime"));
    let file = Tar(global(&[&b"1007 other="[..], &[b'0'; 995], b"\n"].concat())).open();
    let mut members = Members::new(&file).expect("members");
    assert!(members.next().expect("an end").is_none() && members.global.is_empty(), "nothing is kept for nothing");
}

#[test]
fn sparse_files_are_read_in_every_form() {
    let expected = |start: u64| {
        vec![
            Segment { offset_bytes: 1024, length_bytes: 3, stored_at: start },
            Segment { offset_bytes: 4096, length_bytes: 2, stored_at: start + 3 },
        ]
    };
    let first = Tar::default()
        .pax(&[("GNU.sparse.map", "1024,3,4096,2"), ("GNU.sparse.size", "9000"), ("GNU.sparse.name", "holes")])
        .file("x", b"abcde");
    let found = all(&first.open()).expect("members");
    assert_eq!(found[0].path, b"holes");
    assert_eq!(found[0].sparse, Some((9000, expected(found[0].offset_bytes))));

    let mut map = b"2\n1024\n3\n4096\n2\n".to_vec();
    map.resize(512, 0);
    map.extend_from_slice(b"abcde");
    let second = Tar::default()
        .pax(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.name", "holes"),
            ("GNU.sparse.realsize", "9000"),
        ])
        .file("x", &map);
    let found = all(&second.open()).expect("members");
    assert_eq!(found[0].sparse, Some((9000, expected(found[0].offset_bytes + 512))));

    for map in ["1024,3,4096", "4096,2,1024,3", "1024,3,8999,2", "1024,18446744073709551615,1,1", "1024,30,4096,2"] {
        let tar = Tar::default().pax(&[("GNU.sparse.map", map), ("GNU.sparse.size", "9000")]).file("x", b"abcde");
        assert!(error(tar).contains("map of a sparse file"), "{map}");
    }
}

#[test]
fn times_before_the_epoch_and_with_fractions() {
    assert_eq!(time(b"1.000000001"), Some((1, 1)));
    assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
    assert_eq!(time(b"5"), Some((5, 0)));
    assert_eq!(time(b"x"), None);
    assert_eq!(time(b"1.-5"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in an archive, reading it ends.
    #[test]
    fn garbage_is_an_end_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..2048),
        at in 0..1500_usize,
        value in any::<u8>(),
    ) {
        let _ = all(&open(&bytes));
        let good = Tar::default().pax(&[("path", "a"), ("mtime", "1")]).file("f", b"abc").symlink("l", "f");
        let mut good = good.bytes();
        good[at] = value;
        let _ = all(&open(&good));
    }
}
