//! What whoever joins a container's mount namespace sees: its root, and what is bound there.
//!
//! Engines enter the namespace of a container's process to copy files to and from it (`podman cp`). A machine needs
//! none, and its tool must go on seeing the host; but if the process that the engine knows were in the host's
//! namespace, the engine would copy to and from the *host*. So that process's main thread has a mount namespace of its
//! own, with the container's root as its root, and waits there; a thread beside it, which keeps the host's, runs the
//! machine.
//!
//! The root is hostile: places to bind at are found and made by descriptors below it, and no link leads out.
#![allow(unsafe_code, reason = "unshare and mount have no safe interface")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2};
use rustix::process::pivot_root;

/// A file or directory of the host, and where it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) host: PathBuf,
    pub(crate) place: PathBuf,
    pub(crate) is_read_only: bool,
}

/// Gives the calling thread a mount namespace whose root is `root`, with what is bound in it. What cannot be bound is
/// left out: the machine shows it all the same, and only an engine that copies misses it.
///
/// # Errors
/// The host's.
pub(crate) fn enter(root: &Path, bound: &[Bound]) -> io::Result<()> {
    // SAFETY: the calling thread gets a file system context and a mount namespace of its own; no descriptor changes,
    // and no other thread sees any of it.
    let outcome = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    check(outcome)?;
    // What is unmounted on the host goes here too, and nothing that is mounted here shows there.
    mount(None, c"/", libc::MS_SLAVE | libc::MS_REC)?;
    let path = CString::new(root.as_os_str().as_bytes())?;
    mount(Some(&path), &path, libc::MS_BIND | libc::MS_REC)?;
    mount(None, &path, libc::MS_PRIVATE | libc::MS_REC)?;
    let directory = open(root)?;
    for one in bound {
        let _ = bind(&directory, one);
    }
    std::env::set_current_dir(root)?;
    pivot_root(".", ".")?;
    // SAFETY: a path that ends in NUL; what lies over the new root is the host's tree, of which nothing is used here.
    check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })?;
    std::env::set_current_dir("/")
}

/// Gives the calling thread a host name of its own, which those see who join its UTS namespace.
///
/// # Errors
/// The host's.
pub(crate) fn name_host(name: &str) -> io::Result<()> {
    // SAFETY: the calling thread gets a UTS namespace of its own; nothing else of it changes.
    check(unsafe { libc::unshare(libc::CLONE_NEWUTS) })?;
    // SAFETY: as many bytes of the name as there are are read.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn bind(root: &OwnedFd, bound: &Bound) -> io::Result<()> {
    let host = open(&bound.host)?;
    let is_directory = FileType::from_raw_mode(fstat(&host)?.st_mode) == FileType::Directory;
    let place = place(root, &bound.place, is_directory)?;
    let by_descriptor = |file: &OwnedFd| CString::new(format!("/proc/self/task/{}/fd/{}", thread(), file.as_raw_fd()));
    let (from, to) = (by_descriptor(&host)?, by_descriptor(&place)?);
    mount(Some(&from), &to, libc::MS_BIND | libc::MS_REC)?;
    if bound.is_read_only {
        // The descriptor leads below the mount; its name leads to it, without links since it was just walked so.
        let again = walk(root, &bound.place)?;
        mount(None, &by_descriptor(&again)?, libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY)?;
    }
    Ok(())
}

/// This thread's number.
fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn walk(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let path = path.strip_prefix("/").unwrap_or(path);
    Ok(openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)?)
}

/// What is at a path of the root, made if it is not there.
fn place(root: &OwnedFd, path: &Path, is_directory: bool) -> io::Result<OwnedFd> {
    let mut here = PathBuf::from("/");
    let names: Vec<_> = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    for (number, name) in names.iter().enumerate() {
        let above = here.clone();
        here.push(name);
        match walk(root, &here) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => {
                found?;
                continue;
            }
        }
        let above = if number == 0 { root.try_clone()? } else { walk(root, &above)? };
        if number + 1 < names.len() || is_directory {
            mkdirat(&above, name.as_os_str(), Mode::from_raw_mode(0o755))?;
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(&above, name.as_os_str(), flags, Mode::from_raw_mode(0o644))?;
            drop(File::from(file));
        }
    }
    walk(root, &here)
}

fn mount(source: Option<&CStr>, target: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let source = source.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the paths end in NUL and live across the call; no type and no data are given with these flags.
    check(unsafe { libc::mount(source, target.as_ptr(), std::ptr::null(), flags, std::ptr::null()) })
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::{Bound, enter, open, place};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("aegis-view-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("root")).expect("writable");
        folder
    }

    #[test]
    fn places_are_made_below_the_root_wherever_links_lead() {
        let folder = folder("places");
        let root = folder.join("root");
        symlink("../../..", root.join("up")).expect("writable");
        symlink("/inside", root.join("over")).expect("writable");
        fs::create_dir(root.join("inside")).expect("writable");
        let directory = open(&root).expect("there");
        place(&directory, "/a/b".as_ref(), true).expect("made");
        place(&directory, "/over/x/file".as_ref(), false).expect("made");
        place(&directory, "/up/y".as_ref(), true).expect("made");
        assert!(root.join("a/b").is_dir() && root.join("inside/x/file").is_file() && root.join("y").is_dir());
        assert!(!folder.join("y").exists());
        fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn whoever_joins_sees_the_root_and_what_is_bound() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("passed over: mount namespaces want root");
            return;
        }
        let folder = folder("join");
        fs::create_dir(folder.join("data")).expect("writable");
        fs::write(folder.join("data/f"), "bound").expect("writable");
        let bound = Bound { host: folder.join("data"), place: "/d/e".into(), is_read_only: true };
        let root = folder.join("root");
        // A thread has a view of its own, so the test's others go on with the host's.
        let seen = std::thread::spawn(move || {
            enter(&root, &[bound]).expect("entered");
            let names: Vec<_> = fs::read_dir("/").expect("a root").flatten().map(|it| it.file_name()).collect();
            let changed = fs::write("/d/e/f", "x").is_ok();
            (names, fs::read_to_string("/d/e/f").expect("bound"), changed, fs::write("/made", "x").is_ok())
        });
        let (names, text, changed, made) = seen.join().expect("it ended");
        assert_eq!((names.as_slice(), text.as_str()), (&["d".into()][..], "bound"));
        assert!(made && !changed && folder.join("root/made").exists());
        fs::remove_dir_all(folder).expect("ours");
    }
}
