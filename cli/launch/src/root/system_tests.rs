//! What of a host's `/etc` is shown, and what of its accounts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{add_etc, holds, small_groups, small_users};
use aegis_image::tree::{Content, LastLink};

use crate::root::pack::scratch::{Scratch, contents, link};
use crate::root::pack_host::HostRoot;

const PASSWD: &[u8] = b"root:$6$hash:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n\
    eve:x:1000:1000:Eve, Room 7,555:/home/eve:/bin/bash\nbob:x:1001:1001:Bob:/home/bob:/bin/zsh\n\
    nobody:x:65534:65534:nobody:/:/bin/false\nbroken:line\n\n";

#[test]
fn secrets_and_what_is_not_listed_stay_out() {
    let scratch = Scratch::new();
    let shown = ["etc/ssl/openssl.cnf", "etc/os-release", "etc/python3.11/sitecustomize.py", "etc/ssl/certs/a.pem"];
    let hidden = [
        "etc/shadow",
        "etc/sudoers",
        "etc/ssh/ssh_host_rsa_key",
        "etc/ssl/private/server.pem",
        "etc/ssl/server.key",
        "etc/nginx/.htpasswd",
        "etc/nginx/db.password",
        "etc/machine-id",
        "etc/unknown.conf",
        "etc/wireguard/wg0.conf",
    ];
    for path in shown.iter().chain(&hidden) {
        fs::set_permissions(scratch.write(path, b"text"), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let unreadable = scratch.write("etc/nginx/nginx.conf", b"secret");
    fs::set_permissions(unreadable, fs::Permissions::from_mode(0o640)).unwrap();
    let locked = scratch.write("etc/vim/vimrc", b"secret");
    fs::set_permissions(locked.parent().unwrap(), fs::Permissions::from_mode(0o750)).unwrap();
    let large = scratch.write("etc/services", b"");
    fs::File::options().write(true).open(large).unwrap().set_len(2 << 20).unwrap();
    fs::create_dir_all(scratch.path("etc/alternatives")).unwrap();
    symlink("/root/.ssh/id_rsa", scratch.path("etc/alternatives/key")).unwrap();
    scratch.write("etc/passwd", PASSWD);
    scratch.write("etc/group", b"root:x:0:\nusers:x:100:bob,eve\neve:x:1000:\nbob:x:1001:\n");
    let mut root = HostRoot::minimal(b"aegis", OsStr::new(""));
    add_etc(&mut root, &scratch.path("etc"), 1000).unwrap();
    let tree = root.finish().unwrap().tree;
    for path in shown {
        assert_eq!(contents(&tree, Path::new("/").join(path)).unwrap(), b"text", "{path}");
    }
    for path in hidden.iter().chain(&["etc/nginx/nginx.conf", "etc/vim/vimrc", "etc/services"]) {
        assert_eq!(contents(&tree, Path::new("/").join(path)), None, "{path}");
    }
    assert_eq!(link(&tree, "/etc/alternatives/key").unwrap(), b"/root/.ssh/id_rsa", "a link is a link");
    let users = contents(&tree, "/etc/passwd").unwrap();
    assert!(users.starts_with(b"root:x:0:0:"), "{}", users.escape_ascii());
    assert_eq!(contents(&tree, "/etc/group").unwrap(), b"root:x:0:\nusers:x:100:eve\neve:x:1000:\n");
}

#[test]
fn of_people_the_own_account_stays() {
    let (lines, names) = small_users(PASSWD, 1000);
    let text = String::from_utf8(lines).unwrap();
    assert_eq!(names, [&b"root"[..], b"daemon", b"eve", b"nobody"].map(<[u8]>::to_vec));
    assert!(!text.contains("hash") && !text.contains("Room") && !text.contains("bob"), "{text}");
    assert!(text.contains("eve:x:1000:1000::/home/eve:/bin/bash\n"), "{text}");
    assert!(!String::from_utf8(small_users(PASSWD, 0).0).unwrap().contains("eve"));
    let many: String = (0..2000).map(|number| format!("u{number}:x:{}:0::/:/\n", number % 999)).collect();
    assert_eq!(small_users(many.as_bytes(), 0).1.len(), super::ACCOUNT_COUNT_MAX);
    assert_eq!(small_groups(b"x:y\nn:x:99999999999:\n", &[], None), b"");
}

#[test]
fn a_path_is_judged_by_its_beginning() {
    let shown = [PathBuf::from("/usr")];
    assert!(holds(&shown, Path::new("/usr/bin/env")));
    assert!(!holds(&shown, Path::new("/usrx")) && !holds(&shown, Path::new("/root/usr")));
    assert!(!holds(&shown, Path::new("/opt/none")));
}

#[test]
fn what_is_not_there_is_noted() {
    let scratch = Scratch::new();
    scratch.write("a/tool", b"text");
    scratch.write("b/other", b"text");
    symlink("b", scratch.path("link")).unwrap();
    let mut root = HostRoot::minimal(b"aegis", OsStr::new(""));
    for path in ["a/tool", "link/tool", "none/deep/tool", "b/other/x"] {
        root.add_absence(&scratch.path(path)).unwrap();
    }
    let tree = root.finish().unwrap().tree;
    let is_absent = |path: &str| {
        let path = scratch.path(path);
        let found = tree.resolve(path.to_str().unwrap().as_bytes(), LastLink::Keep);
        found.is_ok_and(|node| matches!(tree.node(node).content(), Content::CharacterDevice(_)))
    };
    assert!(is_absent("b/tool") && is_absent("none") && !is_absent("a/tool") && !is_absent("b/other"));
    assert_eq!(link(&tree, scratch.path("link")).unwrap(), b"b", "the way there is the host's");
}
