//! The host's system as a program without a root of its own finds it: which directories are shown, and what of `/etc`.
//!
//! [`directories`] are served live and read-only, whole, each by a server of its own that nothing outside can be
//! reached through; they show where the image has nothing. Everything else of the host stays out: homes, `/root`,
//! `/tmp`, `/var`, `/srv`, `/run`, mounts elsewhere.
//!
//! `/etc` is a mixture of what programs need and what is nobody's business, so its part goes into the image, by three
//! rules that all must agree: the name at the top is in [`ETC`]; everybody may read the file and search the
//! directories above it; no name on the way is one of [`SECRET_NAMES`] or ends as [`SECRET_ENDS`] do. Links are taken
//! as links: what they lead to is found in the machine, or not.
//!
//! Accounts are made small: those of the system with names and numbers, so that owners have names, and of people only
//! the user of the tool. There never is a password among them.
//!
//! Limits: [`FILE_COUNT_MAX`] files of `/etc`, [`FILE_BYTES_MAX`] bytes of one, [`TOTAL_BYTES_MAX`] of all; what is
//! beyond stays out.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::root::pack::{PackError, attributes_of};
use crate::root::pack_host::HostRoot;

/// Directories of the system. On most hosts all but the first two are links into `/usr`, which are no directories.
const DIRECTORIES: [&str; 10] =
    ["/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu"];

/// What of `/etc` is shown: names, or their beginnings with a `*` behind them.
const ETC: [&str; 68] = [
    "ImageMagick*",
    "OpenCL",
    "R",
    "X11",
    "alternatives",
    "apache2",
    "bash.bashrc",
    "bash_completion*",
    "bashrc",
    "ca-certificates*",
    "crypto-policies",
    "dconf",
    "debian_version",
    "emacs",
    "erlang",
    "ethertypes",
    "fonts",
    "gai.conf",
    "ghc",
    "glvnd",
    "groff",
    "gtk-*",
    "host.conf",
    "inputrc",
    "iproute2",
    "issue",
    "java*",
    "jvm*",
    "ld.so.conf*",
    "libnl-3",
    "lighttpd",
    "locale.alias",
    "locale.conf",
    "lsb-release",
    "lua*",
    "magic*",
    "mailcap",
    "manpath.config",
    "maven",
    "mime.types",
    "mke2fs.conf",
    "mono",
    "nanorc",
    "netconfig",
    "networks",
    "nginx",
    "octave*",
    "openal",
    "papersize",
    "perl",
    "php*",
    "pki",
    "postgresql-common",
    "profile*",
    "protocols",
    "python*",
    "rpc",
    "screenrc",
    "services",
    "sgml",
    "shells",
    "ssl",
    "terminfo",
    "texmf",
    "timezone",
    "vim",
    "xattr.conf",
    "xml",
];

/// Names that never are shown, wherever they are.
const SECRET_NAMES: [&str; 6] = ["private", "secrets", "keys", ".htpasswd", ".netrc", "auth.conf.d"];
/// How names end that never are shown.
const SECRET_ENDS: [&str; 9] = [".key", ".keytab", ".p12", ".pfx", ".kdbx", "passwd", "password", "shadow", "_key"];

/// Most files of `/etc` in the image, the length of one, and of all.
const FILE_COUNT_MAX: usize = 4096;
const FILE_BYTES_MAX: u64 = 1 << 20;
const TOTAL_BYTES_MAX: u64 = 8 << 20;
/// Most lines of accounts, and the file's length that is looked at.
const ACCOUNT_COUNT_MAX: usize = 512;
/// Directories of PATH that are looked at.
const SEARCH_COUNT_MAX: usize = 64;
/// Numbers of people's accounts begin here (login.defs(5)), and that of nobody.
const PEOPLE_START: u32 = 1000;
const NOBODY: u32 = 65534;

/// The directories that this host has, as they are served.
pub fn directories() -> Vec<PathBuf> {
    let has_files = |path: &&Path| {
        // A link is in the image, and leads to one of the others.
        fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
            && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
    };
    DIRECTORIES.iter().map(Path::new).filter(has_files).map(Path::to_path_buf).collect()
}

/// Whether a path of the host is below one of the directories, as it is written.
pub fn holds(directories: &[PathBuf], path: &Path) -> bool {
    let starts = |directory: &str| path.starts_with(directory);
    // Also where they are links.
    DIRECTORIES.iter().any(|directory| starts(directory))
        && (directories.iter().any(|it| path.starts_with(it)) || {
            let target = fs::canonicalize(path);
            target.is_ok_and(|target| directories.iter().any(|it| target.starts_with(it)))
        })
}

/// Puts into a root what nearly every program looks for as it starts, and what it does not find, so that it starts
/// without a question to the host: where its name is looked for, and what tells of its language.
pub(crate) fn add_usual(root: &mut HostRoot, program: &Path, search: &OsStr) -> Result<(), PackError> {
    if let Some(name) = program.file_name() {
        let before = |directory: &PathBuf| program.parent() != Some(directory);
        for directory in std::env::split_paths(search).take(SEARCH_COUNT_MAX).take_while(before) {
            if DIRECTORIES.iter().any(|shown| directory.starts_with(shown)) && is_plain(&directory) {
                root.add_absence(&directory.join(name))?;
            }
        }
    }
    ["/usr/lib/locale/locale-archive", "/usr/lib/locale/C.UTF-8"]
        .into_iter()
        .try_for_each(|path| root.add_absence(Path::new(path)))?;
    let there = ["/usr/share/locale/locale.alias", "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache"];
    there.into_iter().try_for_each(|path| root.add_if_there(Path::new(path)))
}

fn is_plain(path: &Path) -> bool {
    path.components().skip(1).all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// Puts what is shown of `/etc` into a root.
pub(crate) fn add_etc(root: &mut HostRoot, etc: &Path, own_uid: u32) -> Result<(), PackError> {
    let accounts = |file: &str| fs::read(etc.join(file)).unwrap_or_default();
    let (users, names) = small_users(&accounts("passwd"), own_uid);
    if !users.is_empty() {
        root.add_text("/etc/passwd", &users)?;
        root.add_text("/etc/group", &small_groups(&accounts("group"), &names, own_gid(&users, own_uid)))?;
    }
    let (mut file_count, mut total_bytes) = (0, 0);
    let mut pending: Vec<(PathBuf, Vec<u8>)> = vec![(etc.to_path_buf(), b"/etc".to_vec())];
    while let Some((directory, guest)) = pending.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort_unstable();
        for path in paths {
            let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
            if (directory == etc && !is_listed(name)) || is_secret(name) {
                continue;
            }
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let guest = [&guest, name].join(&b'/');
            if !is_public(&metadata) || file_count >= FILE_COUNT_MAX {
                continue;
            }
            if metadata.is_dir() {
                root.add_directory(&guest, attributes_of(&metadata))?;
                pending.push((path, guest));
                continue;
            }
            let length_bytes = if metadata.is_file() { metadata.len() } else { 0 };
            if length_bytes > FILE_BYTES_MAX || total_bytes + length_bytes > TOTAL_BYTES_MAX {
                continue;
            }
            file_count += 1;
            total_bytes += length_bytes;
            root.add_file(&path, &metadata, &guest)?;
        }
    }
    Ok(())
}

fn is_listed(name: &[u8]) -> bool {
    let fits = |entry: &&str| match entry.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning.as_bytes()),
        None => name == entry.as_bytes(),
    };
    ETC.iter().any(fits) || name.ends_with(b"-release")
}

fn is_secret(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name == secret.as_bytes())
        || SECRET_ENDS.iter().any(|end| name.ends_with(end.as_bytes()))
}

/// Whether everybody may see it: a file, a link, or a directory.
fn is_public(metadata: &Metadata) -> bool {
    match metadata.mode() {
        _ if metadata.is_symlink() => true,
        mode if metadata.is_dir() => mode & 0o005 == 0o005,
        mode => metadata.is_file() && mode & 0o004 != 0,
    }
}

/// Lines of passwd(5) without people but the one of that number, and the names that stayed.
fn small_users(text: &[u8], own_uid: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut lines, mut names) = (Vec::new(), Vec::new());
    for line in text.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [name, _, uid, gid, real_name, home, shell] = fields[..] else { continue };
        let Some(number) = number_of(uid) else { continue };
        if !is_kept(number, own_uid) || name.is_empty() || names.len() >= ACCOUNT_COUNT_MAX {
            continue;
        }
        let real_name = if number < PEOPLE_START { real_name } else { b"" };
        lines.extend_from_slice(&[name, b"x", uid, gid, real_name, home, shell].join(&b':'));
        lines.push(b'\n');
        names.push(name.to_vec());
    }
    (lines, names)
}

/// Lines of group(5) likewise, with those members alone that stayed.
fn small_groups(text: &[u8], names: &[Vec<u8>], own_gid: Option<u32>) -> Vec<u8> {
    let (mut lines, mut count) = (Vec::new(), 0);
    for line in text.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [name, _, gid, members] = fields[..] else { continue };
        let Some(number) = number_of(gid) else { continue };
        if !is_kept(number, own_gid.unwrap_or(0)) || name.is_empty() || count >= ACCOUNT_COUNT_MAX {
            continue;
        }
        let members: Vec<&[u8]> =
            members.split(|byte| *byte == b',').filter(|member| names.iter().any(|name| name == member)).collect();
        lines.extend_from_slice(&[name, b"x", gid, &members.join(&b',')].join(&b':'));
        lines.push(b'\n');
        count += 1;
    }
    lines
}

fn own_gid(users: &[u8], own_uid: u32) -> Option<u32> {
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':').skip(2);
        (number_of(fields.next()?)? == own_uid).then(|| number_of(fields.next()?)).flatten()
    })
}

fn is_kept(number: u32, own: u32) -> bool {
    number < PEOPLE_START || number == NOBODY || number == own
}

fn number_of(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
