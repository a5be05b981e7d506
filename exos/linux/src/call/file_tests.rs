//! The calls on files as a program makes them: numbers, structures, and which error comes first.

use exos::error::Errno::{
    self, E2BIG, EAGAIN, EBADF, EEXIST, EFAULT, EFBIG, EINTR, EINVAL, EISDIR, ELOOP, EMFILE, ENAMETOOLONG, ENODATA,
    ENOENT, ENOSPC, ENOTDIR, ENOTTY, EPERM, EPIPE, ERANGE, EROFS, ESPIPE, EXDEV,
};
use exos::task::signal::{Disposition, Signal, SignalInfo};
use syscalls::Sysno;

use crate::abi::bytes::{Encoder, get};
use crate::task::caller::Restart;
use crate::testing::calls::{HERE, NOWHERE, REALTIME_S, START_NS, World};

const WRITE_ONLY: u64 = 1;
const READ_WRITE: u64 = 2;
const CREATE: u64 = 0o100;
const EXCLUSIVE: u64 = 0o200;
const NON_BLOCKING: u64 = 0o4000;
const DIRECTORY: u64 = 0o200_000;
const NO_FOLLOW: u64 = 0o400_000;
const CLOSE_ON_EXEC: u64 = 0o2_000_000;
const PATH_ONLY: u64 = 0o10_000_000;
const MINUS_ONE: u64 = u64::MAX;

/// A directory, a file of five bytes and a link to it.
fn furnished() -> World {
    let world = World::new();
    assert_eq!(world.call(Sysno::mkdir, [world.path("/d"), 0o755]), Ok(0));
    let file = world.open("/d/f", CREATE | WRITE_ONLY).expect("creates");
    assert_eq!(world.write(file, b"hello"), Ok(5));
    assert_eq!(world.call(Sysno::close, [file]), Ok(0));
    assert_eq!(world.call(Sysno::symlink, [world.path("f"), world.path("/d/l")]), Ok(0));
    world
}

#[test]
fn open_gives_the_lowest_descriptor_and_linuxs_errors() {
    let world = furnished();
    let open = |path, flags| world.open(path, flags);
    assert_eq!(open("/d/f", 0), Ok(3));
    assert_eq!(open("/d/l", 0), Ok(4));
    assert_eq!(world.call(Sysno::close, [3u64]), Ok(0));
    assert_eq!(open("/d", DIRECTORY), Ok(3));
    for (path, flags, error) in [
        ("", 0, ENOENT),
        ("/d/none", 0, ENOENT),
        ("/d/f", CREATE | EXCLUSIVE, EEXIST),
        ("/d/f", DIRECTORY, ENOTDIR),
        ("/d/l", NO_FOLLOW, ELOOP),
        ("/d", WRITE_ONLY, EISDIR),
        ("/d/f/x", 0, ENOTDIR),
        ("/d/none/x", CREATE, ENOENT),
        ("/d", 0o20_000_000 | DIRECTORY, EINVAL),
        ("/d", 0o20_000_000 | READ_WRITE, EINVAL),
    ] {
        assert_eq!(open(path, flags), Err(error), "{path} {flags:o}");
    }
    let long = "x".repeat(256);
    assert_eq!(open(&long, 0), Err(ENAMETOOLONG));
    assert_eq!(open(&"y/".repeat(2048), 0), Err(ENAMETOOLONG));
    assert_eq!(world.call(Sysno::open, [NOWHERE, 0]), Err(EFAULT));
    // The path is read before the directory is looked at, and an absolute one does not need it.
    let openat = |directory, path| world.call(Sysno::openat, [directory, path, 0]);
    assert_eq!(openat(99, NOWHERE), Err(EFAULT));
    assert_eq!(openat(99, world.path("f")), Err(EBADF));
    assert_eq!(openat(99, world.path("")), Err(ENOENT));
    assert_eq!(openat(99, world.path("/d/f")), Ok(5));
    assert_eq!(openat(3, world.path("f")), Ok(6));
    assert_eq!(openat(6, world.path("f")), Err(ENOTDIR));
}

#[test]
fn a_full_table_is_noticed_before_a_file_is_made() {
    let world = World::new();
    let limits = Encoder::new().u64(4).u64(4).finish();
    assert_eq!(world.call(Sysno::setrlimit, [7, world.put(&limits)]), Ok(0));
    assert_eq!(world.open("/a", CREATE), Ok(3));
    assert_eq!(world.open("/b", CREATE), Err(EMFILE));
    assert_eq!(world.call(Sysno::access, [world.path("/b"), 0]), Err(ENOENT));
    assert_eq!(world.call(Sysno::dup, [3u64]), Err(EMFILE));
    assert_eq!(world.call(Sysno::dup2, [3u64, 4]), Err(EBADF));
    assert_eq!(world.call(Sysno::fcntl, [3u64, 0, 4]), Err(EINVAL));
    assert_eq!(world.call(Sysno::pipe, [world.room(8)]), Err(EMFILE));
    assert_eq!(world.call(Sysno::close, [2u64]), Ok(0));
    // One place is not enough for two ends, and the first is given back.
    assert_eq!(world.call(Sysno::pipe, [world.room(8)]), Err(EMFILE));
    assert_eq!(world.open("/a", 0), Ok(2));
}

#[test]
fn openat2_refuses_what_it_does_not_know() {
    let world = furnished();
    let how = |flags: u64, mode: u64, resolve: u64| {
        world.put(&Encoder::new().u64(flags).u64(mode).u64(resolve).u64(0).finish())
    };
    let path = world.path("/d/f");
    let call = |how, size| world.call(Sysno::openat2, [HERE, path, how, size]);
    assert_eq!(call(how(0, 0, 0), 24), Ok(3));
    assert_eq!(call(how(0, 0, 0), 32), Ok(4));
    assert_eq!(call(how(0, 0, 0), 23), Err(EINVAL));
    assert_eq!(call(how(0, 0, 0), 4097), Err(E2BIG));
    assert_eq!(call(how(0, 0o644, 0), 24), Err(EINVAL));
    assert_eq!(call(how(1 << 40, 0, 0), 24), Err(EINVAL));
    assert_eq!(call(how(CREATE, 0o10_000, 0), 24), Err(EINVAL));
    assert_eq!(call(how(0, 0, 0x40), 24), Err(EINVAL));
    assert_eq!(call(how(0, 0, 0x18), 24), Err(EINVAL));
    assert_eq!(call(how(0, 0, 0x20), 24), Err(EAGAIN));
    let newer = world.put(&Encoder::new().u64(0).u64(0).u64(0).u64(1).finish());
    assert_eq!(call(newer, 32), Err(E2BIG));
    // In a root of its own, even `/` and `..` stay inside.
    assert_eq!(world.open("/d", 0), Ok(5));
    let in_root = |path| world.call(Sysno::openat2, [5, world.path(path), how(0, 0, 0x10), 24]);
    assert_eq!(in_root("/../../f"), Ok(6));
    assert_eq!(in_root("/d/f"), Err(ENOENT));
}

#[test]
fn status_flags_are_shown_as_they_were_given() {
    let world = furnished();
    let flags_of = |descriptor: u64| world.call(Sysno::fcntl, [descriptor, 3, 0]);
    world.open("/d/f", READ_WRITE | 0o2000 | CLOSE_ON_EXEC).expect("opens");
    assert_eq!(flags_of(3), Ok(0o102_002));
    assert_eq!(world.call(Sysno::fcntl, [3u64, 1, 0]), Ok(1));
    assert_eq!(world.call(Sysno::fcntl, [3u64, 4, NON_BLOCKING | CREATE]), Ok(0));
    assert_eq!(flags_of(3), Ok(0o104_002));
    assert_eq!(world.call(Sysno::ioctl, [3u64, 0x5421, world.put(&[0; 4])]), Ok(0));
    assert_eq!(flags_of(3), Ok(0o100_002));
    assert_eq!(world.call(Sysno::ioctl, [3u64, 0x5450, 0]), Ok(0));
    assert_eq!(world.call(Sysno::fcntl, [3u64, 1, 0]), Ok(0));
    world.open("/d/l", PATH_ONLY | NO_FOLLOW | READ_WRITE).expect("opens");
    assert_eq!(flags_of(4), Ok(PATH_ONLY | NO_FOLLOW));
    // Only a place: little can be done with it.
    assert_eq!(world.read(4, 1), Err(EBADF));
    assert_eq!(world.call(Sysno::ioctl, [4u64, 0x5401, 0]), Err(EBADF));
    assert_eq!(world.call(Sysno::fcntl, [4u64, 5, NOWHERE]), Err(EBADF));
    assert_eq!(world.call(Sysno::fchmod, [4u64, 0]), Err(EBADF));
    let stat = world.room(144);
    assert_eq!(world.call(Sysno::fstat, [4u64, stat]), Ok(0));
    assert_eq!(get::u32(&world.get(stat, 144), 24), 0o120_777);
    let pipe = world.room(8);
    assert_eq!(world.call(Sysno::pipe2, [pipe, NON_BLOCKING | CLOSE_ON_EXEC]), Ok(0));
    assert_eq!((flags_of(5), flags_of(6)), (Ok(NON_BLOCKING), Ok(NON_BLOCKING | WRITE_ONLY)));
    assert_eq!(world.call(Sysno::fcntl, [5u64, 77, 0]), Err(EINVAL));
    assert_eq!(world.call(Sysno::fcntl, [9u64, 77, 0]), Err(EBADF));
}

#[test]
fn duplicates_follow_dup_dup2_dup3_and_close_range() {
    let world = furnished();
    world.open("/d/f", 0).expect("opens");
    assert_eq!(world.call(Sysno::dup, [3u64]), Ok(4));
    assert_eq!(world.call(Sysno::dup2, [3u64, 3]), Ok(3));
    assert_eq!(world.call(Sysno::dup2, [9u64, 9]), Err(EBADF));
    assert_eq!(world.call(Sysno::dup3, [3u64, 3, 0]), Err(EINVAL));
    assert_eq!(world.call(Sysno::dup3, [3u64, 7, 1]), Err(EINVAL));
    assert_eq!(world.call(Sysno::dup3, [3u64, 7, CLOSE_ON_EXEC]), Ok(7));
    assert_eq!(world.call(Sysno::fcntl, [7u64, 1, 0]), Ok(1));
    assert_eq!(world.call(Sysno::dup2, [3u64, MINUS_ONE]), Err(EBADF));
    assert_eq!(world.call(Sysno::fcntl, [3u64, 1030, 6]), Ok(6));
    assert_eq!(world.read(7, 2), Ok(b"he".to_vec()));
    assert_eq!(world.read(4, 9), Ok(b"llo".to_vec()));
    assert_eq!(world.call(Sysno::close_range, [6, MINUS_ONE, 0]), Ok(0));
    assert_eq!(world.call(Sysno::close, [7u64]), Err(EBADF));
    assert_eq!(world.call(Sysno::close_range, [4, 3, 0]), Err(EINVAL));
    assert_eq!(world.call(Sysno::close_range, [3, 3, 1]), Err(EINVAL));
    assert_eq!(world.call(Sysno::close, [MINUS_ONE]), Err(EBADF));
}

#[test]
fn stat_tells_the_same_by_all_names() {
    let world = furnished();
    let (a, b) = (world.room(144), world.room(144));
    let path = world.path("/d/l");
    assert_eq!(world.call(Sysno::stat, [path, a]), Ok(0));
    let bytes = world.get(a, 144);
    assert_eq!((get::u32(&bytes, 24), get::u64(&bytes, 48)), (0o100_644, 5));
    assert_eq!(get::i64(&bytes, 72), REALTIME_S as i64 + 5);
    world.open("/d/f", 0).expect("opens");
    assert_eq!(world.call(Sysno::fstat, [3u64, b]), Ok(0));
    assert_eq!(world.get(b, 144), bytes);
    let empty = world.path("");
    assert_eq!(world.call(Sysno::newfstatat, [3u64, empty, b, 0x1000]), Ok(0));
    assert_eq!(world.get(b, 144), bytes);
    assert_eq!(world.call(Sysno::newfstatat, [3u64, empty, b, 0]), Err(ENOENT));
    assert_eq!(world.call(Sysno::newfstatat, [HERE, path, b, 0x100]), Ok(0));
    assert_eq!(get::u32(&world.get(b, 144), 24), 0o120_777);
    assert_eq!(world.call(Sysno::newfstatat, [HERE, path, b, 0x400]), Err(EINVAL));
    assert_eq!(world.call(Sysno::stat, [path, NOWHERE]), Err(EFAULT));
    let x = world.room(256);
    assert_eq!(world.call(Sysno::statx, [HERE, path, 0, 0x7ff, x]), Ok(0));
    let extended = world.get(x, 256);
    assert_eq!(get::u32(&extended, 0) & 0x7ff, 0x7ff);
    assert_eq!(get::u16(&extended, 28), 0o100_644);
    assert_eq!(get::u64(&extended, 32), get::u64(&bytes, 8));
    assert_eq!((get::u64(&extended, 40), get::i64(&extended, 64)), (5, REALTIME_S as i64 + 5));
    assert_eq!(world.call(Sysno::statx, [HERE, path, 0x6000, 0, x]), Err(EINVAL));
    assert_eq!(world.call(Sysno::statx, [HERE, path, 0, 1 << 31, x]), Err(EINVAL));
    let fs = world.room(120);
    assert_eq!(world.call(Sysno::statfs, [world.path("/proc"), fs]), Ok(0));
    assert_eq!(get::u64(&world.get(fs, 120), 0), 0x9fa0);
    assert_eq!(world.call(Sysno::fstatfs, [3u64, fs]), Ok(0));
}

#[test]
fn getdents_lists_in_parts() {
    let world = furnished();
    world.open("/d", 0).expect("opens");
    let buffer = world.room(1024);
    let list = |room: u64| world.call(Sysno::getdents64, [3, buffer, room]);
    assert_eq!(list(23), Err(EINVAL));
    // `.` and `..` take 24 bytes each, `f` and `l` as well.
    assert_eq!(list(50), Ok(48));
    let bytes = world.get(buffer, 48);
    assert_eq!((&bytes[19..21], bytes[18]), (&b".\0"[..], 4));
    assert_eq!(list(1024), Ok(48));
    assert_eq!(list(1024), Ok(0));
    assert_eq!(world.call(Sysno::lseek, [3u64, 0, 0]), Ok(0));
    assert_eq!(world.call(Sysno::getdents, [3, buffer, 1024]), Ok(96));
    let bytes = world.get(buffer, 96);
    assert_eq!((&bytes[48 + 18..48 + 20], bytes[48 + 23]), (&b"f\0"[..], 8));
    assert_eq!(world.call(Sysno::lseek, [3u64, 0, 0]), Ok(0));
    assert_eq!(world.call(Sysno::getdents64, [3, NOWHERE, 1024]), Err(EFAULT));
    assert_eq!(list(1024), Ok(96));
    world.open("/d/f", 0).expect("opens");
    assert_eq!(world.call(Sysno::getdents64, [4, buffer, 1024]), Err(ENOTDIR));
    assert_eq!(world.call(Sysno::getdents64, [9, buffer, 1024]), Err(EBADF));
}

#[test]
fn directories_are_entered_and_told() {
    let world = furnished();
    let buffer = world.room(64);
    let current = || {
        let length = world.call(Sysno::getcwd, [buffer, 64])?;
        Ok::<_, Errno>(world.get(buffer, length as usize))
    };
    assert_eq!(current(), Ok(b"/\0".to_vec()));
    assert_eq!(world.call(Sysno::chdir, [world.path("d")]), Ok(0));
    assert_eq!(current(), Ok(b"/d\0".to_vec()));
    assert_eq!(world.call(Sysno::getcwd, [buffer, 2]), Err(ERANGE));
    assert_eq!(world.call(Sysno::getcwd, [NOWHERE, 64]), Err(EFAULT));
    assert_eq!(world.call(Sysno::chdir, [world.path("f")]), Err(ENOTDIR));
    assert_eq!(world.call(Sysno::mkdir, [world.path("e"), 0o7777]), Ok(0));
    assert_eq!(world.call(Sysno::chdir, [world.path("e")]), Ok(0));
    assert_eq!(world.call(Sysno::rmdir, [world.path("../e")]), Ok(0));
    assert_eq!(current(), Err(ENOENT));
    assert_eq!(world.open("x", CREATE), Err(ENOENT));
    world.open("/d", 0).expect("opens");
    assert_eq!(world.call(Sysno::fchdir, [3u64]), Ok(0));
    assert_eq!(world.call(Sysno::fchdir, [0u64]), Err(ENOTDIR));
    assert_eq!(world.call(Sysno::chroot, [world.path(".")]), Ok(0));
    assert_eq!(current(), Ok(b"/\0".to_vec()));
    assert_eq!(world.open("/../f", 0), Ok(4));
    assert_eq!(world.call(Sysno::umask, [0o7077u64]), Ok(0o022));
    assert_eq!(world.call(Sysno::umask, [0u64]), Ok(0o077));
}

#[test]
fn names_are_made_moved_and_removed() {
    let world = furnished();
    let path = |text| world.path(text);
    let buffer = world.room(8);
    assert_eq!(world.call(Sysno::readlink, [path("/d/l"), buffer, 8]), Ok(1));
    assert_eq!(world.call(Sysno::readlink, [path("/d/l"), buffer, 0]), Err(EINVAL));
    assert_eq!(world.call(Sysno::readlink, [path("/d/f"), buffer, 8]), Err(EINVAL));
    assert_eq!(world.call(Sysno::readlinkat, [HERE, path(""), buffer, 8]), Err(ENOENT));
    assert_eq!(world.call(Sysno::link, [path("/d/f"), path("/d/g")]), Ok(0));
    assert_eq!(world.call(Sysno::link, [path("/d"), path("/e")]), Err(EPERM));
    assert_eq!(world.call(Sysno::link, [path("/d/f"), path("/dev/g")]), Err(EXDEV));
    assert_eq!(world.call(Sysno::linkat, [HERE, path("/d/f"), HERE, path("/h"), 1]), Err(EINVAL));
    let rename = |old, new, flags: u64| world.call(Sysno::renameat2, [HERE, path(old), HERE, path(new), flags]);
    assert_eq!(rename("/d/g", "/d/f", 1), Err(EEXIST));
    assert_eq!(rename("/d/g", "/d/h", 3), Err(EINVAL));
    assert_eq!(rename("/d/g", "/d/h", 4), Err(EINVAL));
    assert_eq!(rename("/d/g", "/d/h", 1), Ok(0));
    assert_eq!(rename("/d", "/d/x", 0), Err(EINVAL));
    assert_eq!(world.call(Sysno::unlink, [path("/d")]), Err(EISDIR));
    assert_eq!(world.call(Sysno::unlinkat, [HERE, path("/d/h"), 0x100]), Err(EINVAL));
    assert_eq!(world.call(Sysno::unlinkat, [HERE, path("/d/h"), 0x200]), Err(ENOTDIR));
    assert_eq!(world.call(Sysno::unlink, [path("/d/h")]), Ok(0));
    assert_eq!(world.call(Sysno::mknod, [path("/p"), 0o010_644, 0]), Ok(0));
    assert_eq!(world.call(Sysno::mknod, [path("/q"), 0o040_644, 0]), Err(EPERM));
    assert_eq!(world.call(Sysno::mknod, [path("/q"), 0o170_644, 0]), Err(EINVAL));
    assert_eq!(world.call(Sysno::symlink, [path(""), path("/q")]), Err(ENOENT));
    assert_eq!(world.call(Sysno::getxattr, [path("/d/f"), path("user.x"), 0, 0]), Err(ENODATA));
    assert_eq!(world.call(Sysno::getxattr, [path("/none"), path("user.x"), 0, 0]), Err(ENOENT));
    assert_eq!(world.call(Sysno::listxattr, [path("/d/f"), 0, 0]), Ok(0));
}

#[test]
fn times_are_set_by_every_call() {
    let world = furnished();
    let path = world.path("/d/f");
    let stat = world.room(144);
    let times = || {
        assert_eq!(world.call(Sysno::stat, [path, stat]), Ok(0));
        let bytes = world.get(stat, 144);
        let ns = |at| get::i64(&bytes, at) * 1_000_000_000 + get::i64(&bytes, at + 8);
        (ns(72), ns(88))
    };
    let pair = |a: i64, b: i64, c: i64, d: i64| world.put(&Encoder::new().i64(a).i64(b).i64(c).i64(d).finish());
    assert_eq!(world.call(Sysno::utimensat, [HERE, path, pair(1, 2, 3, 4), 0]), Ok(0));
    assert_eq!(times(), (1_000_000_002, 3_000_000_004));
    assert_eq!(world.call(Sysno::utimensat, [HERE, path, pair(9, 0x3fff_fffe, -3, 0), 0]), Ok(0));
    assert_eq!(times(), (1_000_000_002, -3_000_000_000));
    assert_eq!(world.call(Sysno::utimes, [path, pair(5, 6, 7, 8)]), Ok(0));
    assert_eq!(times(), (5_000_006_000, 7_000_008_000));
    assert_eq!(world.call(Sysno::utimes, [path, pair(5, 1_000_000, 7, 8)]), Err(EINVAL));
    assert_eq!(world.call(Sysno::utime, [path, pair(11, 12, 0, 0)]), Ok(0));
    assert_eq!(times(), (11_000_000_000, 12_000_000_000));
    let none = world.path("/none");
    // Linux finds the file before it looks at the nanoseconds, unless there is nothing to do.
    let bad = pair(0, 2_000_000_000, 0, 0);
    assert_eq!(world.call(Sysno::utimensat, [HERE, none, bad, 0]), Err(ENOENT));
    assert_eq!(world.call(Sysno::utimensat, [HERE, path, bad, 0]), Err(EINVAL));
    let omit = pair(0, 0x3fff_fffe, 0, 0x3fff_fffe);
    assert_eq!(world.call(Sysno::utimensat, [HERE, none, omit, 0]), Ok(0));
    assert_eq!(world.call(Sysno::utimensat, [HERE, 0, 0, 0]), Err(EFAULT));
    world.open("/d/f", 0).expect("opens");
    assert_eq!(world.call(Sysno::utimensat, [3, 0, 0, 0x100]), Err(EINVAL));
    assert_eq!(world.call(Sysno::utimensat, [3, 0, 0, 0]), Ok(0));
    let now = (REALTIME_S * 1_000_000_000 + START_NS) as i64;
    assert_eq!(times(), (now, now));
}

#[test]
fn permissions_are_checked_with_the_right_identity() {
    let world = furnished();
    let path = world.path("/d/f");
    assert_eq!(world.call(Sysno::access, [path, 7]), Err(Errno::EACCES));
    assert_eq!(world.call(Sysno::access, [path, 6]), Ok(0));
    assert_eq!(world.call(Sysno::access, [path, 8]), Err(EINVAL));
    assert_eq!(world.call(Sysno::chmod, [path, 0o600]), Ok(0));
    // Real user 1000, effective user still 0.
    assert_eq!(world.call(Sysno::setresuid, [1000, 0, 0]), Ok(0));
    assert_eq!(world.call(Sysno::access, [path, 4]), Err(Errno::EACCES));
    assert_eq!(world.call(Sysno::faccessat2, [HERE, path, 4, 0x200]), Ok(0));
    assert_eq!(world.call(Sysno::faccessat2, [HERE, path, 4, 1]), Err(EINVAL));
    assert_eq!(world.call(Sysno::chown, [path, 1000, u64::from(u32::MAX)]), Ok(0));
    assert_eq!(world.call(Sysno::access, [path, 4]), Ok(0));
    assert_eq!(world.call(Sysno::setresuid, [1000, 1000, 1000]), Ok(0));
    assert_eq!(world.call(Sysno::chown, [path, 0, 0]), Err(EPERM));
    assert_eq!(world.call(Sysno::chroot, [world.path("/d")]), Err(EPERM));
}

#[test]
fn transfers_check_the_descriptor_then_the_memory() {
    let world = furnished();
    world.open("/d/f", READ_WRITE).expect("opens");
    let call = |number, address, length| world.call(number, [3u64, address, length]);
    assert_eq!(call(Sysno::read, NOWHERE, 5), Err(EFAULT));
    assert_eq!(call(Sysno::read, NOWHERE, 0), Ok(0));
    assert_eq!(call(Sysno::read, 1, u64::MAX), Err(EFAULT));
    assert_eq!(world.call(Sysno::read, [9u64, NOWHERE, 5]), Err(EBADF));
    assert_eq!(world.read(3, 99), Ok(b"hello".to_vec()));
    assert_eq!(world.read(3, 99), Ok(alloc::vec![]));
    assert_eq!(call(Sysno::write, NOWHERE, 5), Err(EFAULT));
    let buffer = world.room(16);
    let at = |number, offset| world.call(number, [3, buffer, 3, offset]);
    assert_eq!(at(Sysno::pread64, 3), Ok(2));
    assert_eq!(at(Sysno::pread64, MINUS_ONE), Err(EINVAL));
    assert_eq!(at(Sysno::pwrite64, 10), Ok(3));
    let parts = Encoder::new().u64(buffer).u64(2).u64(buffer + 4).u64(2).finish();
    let parts = world.put(&parts);
    assert_eq!(world.call(Sysno::preadv, [3, parts, 2, 0]), Ok(4));
    assert_eq!(world.get(buffer, 6), b"he\0\0ll"[..6].to_vec());
    assert_eq!(world.call(Sysno::writev, [1, parts, 2]), Ok(4));
    assert_eq!(world.streams[1].bytes.lock().make_contiguous(), b"hell");
    assert_eq!(world.call(Sysno::readv, [3, parts, 1025]), Err(EINVAL));
    assert_eq!(world.call(Sysno::readv, [3, parts, 0]), Ok(0));
    assert_eq!(world.call(Sysno::preadv2, [3, parts, 2, MINUS_ONE, 0, 0]), Ok(4));
    assert_eq!(world.call(Sysno::preadv2, [3, parts, 2, 0, 0, 8]), Ok(4));
    assert_eq!(world.call(Sysno::preadv2, [3, parts, 2, 0, 0, 0x1000]), Err(Errno::EOPNOTSUPP));
    assert_eq!(world.call(Sysno::lseek, [3u64, 0, 2]), Ok(13));
    assert_eq!(world.call(Sysno::lseek, [3u64, 0, 9]), Err(EINVAL));
    assert_eq!(world.call(Sysno::lseek, [0u64, 0, 9]), Err(EINVAL));
    assert_eq!(world.call(Sysno::lseek, [0u64, 0, 1]), Err(ESPIPE));
    world.open("/d", 0).expect("opens");
    assert_eq!(world.read(4, 1), Err(EISDIR));
    world.open("/d/f", 0).expect("opens");
    assert_eq!(world.call(Sysno::write, [5u64, NOWHERE, 1]), Err(EBADF));
    assert_eq!(world.call(Sysno::ftruncate, [5u64, 0]), Err(EINVAL));
    assert_eq!(world.call(Sysno::ftruncate, [3u64, MINUS_ONE]), Err(EINVAL));
    assert_eq!(world.call(Sysno::truncate, [world.path("/d"), 0]), Err(EISDIR));
    assert_eq!(world.call(Sysno::fsync, [0u64]), Err(EINVAL));
    assert_eq!(world.call(Sysno::fsync, [3u64]), Ok(0));
}

#[test]
fn copies_between_descriptors_move_the_right_offsets() {
    let world = furnished();
    world.open("/d/f", READ_WRITE).expect("opens");
    world.open("/d/g", CREATE | READ_WRITE).expect("opens");
    let offset = world.put(&1u64.to_le_bytes());
    assert_eq!(world.call(Sysno::sendfile, [4u64, 3, offset, 99]), Ok(4));
    assert_eq!(get::u64(&world.get(offset, 8), 0), 5);
    assert_eq!(world.call(Sysno::lseek, [3u64, 0, 1]), Ok(0));
    assert_eq!(world.call(Sysno::sendfile, [4u64, 3, 0, 2]), Ok(2));
    assert_eq!(world.call(Sysno::lseek, [3u64, 0, 1]), Ok(2));
    assert_eq!(world.call(Sysno::lseek, [4u64, 0, 0]), Ok(0));
    assert_eq!(world.read(4, 99), Ok(b"ellohe".to_vec()));
    assert_eq!(world.call(Sysno::sendfile, [3u64, 0, 0, 9]), Err(EINVAL));
    let copy = |from, to, length: u64| world.call(Sysno::copy_file_range, [3u64, from, 3, to, length, 0]);
    let at = |offset: u64| world.put(&offset.to_le_bytes());
    assert_eq!(copy(at(0), at(4), 5), Err(EINVAL));
    assert_eq!(copy(at(0), at(5), 5), Ok(5));
    assert_eq!(world.call(Sysno::lseek, [3u64, 0, 0]), Ok(0));
    assert_eq!(world.read(3, 99), Ok(b"hellohello".to_vec()));
}

#[test]
fn the_file_size_limit_cuts_writes_and_raises_a_signal() {
    let world = furnished();
    let limits = Encoder::new().u64(8).u64(8).finish();
    assert_eq!(world.call(Sysno::setrlimit, [1, world.put(&limits)]), Ok(0));
    world.open("/d/f", WRITE_ONLY | 0o2000).expect("opens");
    assert_eq!(world.write(3, b"abcdef"), Ok(3));
    let pending = || world.pod.process.signals.lock().pending.set().contains(Signal::XFSZ);
    assert!(!pending());
    assert_eq!(world.write(3, b"x"), Err(EFBIG));
    assert!(pending());
    assert_eq!(world.write(3, b""), Ok(0));
    assert_eq!(world.call(Sysno::ftruncate, [3u64, 9]), Err(EFBIG));
    assert_eq!(world.call(Sysno::ftruncate, [3u64, 8]), Ok(0));
}

#[test]
fn a_pipe_waits_and_breaks() {
    let world = World::new();
    let ends = world.room(8);
    assert_eq!(world.call(Sysno::pipe, [ends]), Ok(0));
    assert_eq!(get::u64(&world.get(ends, 8), 0), 3 | 4 << 32);
    // A reader waits until something comes.
    let writer = world.pod.process.files.get(4).expect("is open");
    world.during_wait(|| {});
    world.during_wait(move || {
        let now = exos::fs::metadata::Timestamp::default();
        assert_eq!(writer.write(&mut &b"abc"[..], now), Ok(3));
    });
    assert_eq!(world.read(3, 9), Ok(b"abc".to_vec()));
    assert_eq!(world.waits(), [None, None]);
    assert_eq!(*world.restart.lock(), Restart::UnlessHandlerForbids);
    // Bytes that cannot be delivered are not lost.
    assert_eq!(world.write(4, b"xyz"), Ok(3));
    assert_eq!(world.call(Sysno::read, [3, NOWHERE, 3]), Err(EFAULT));
    let count = world.room(4);
    assert_eq!(world.call(Sysno::ioctl, [3, 0x541b, count]), Ok(0));
    assert_eq!(world.get(count, 4), [3, 0, 0, 0]);
    assert_eq!(world.read(3, 9), Ok(b"xyz".to_vec()));
    // A signal ends the wait.
    let process = world.pod.process.clone();
    world.during_wait(move || process.raise(Signal::TERM, SignalInfo::default()));
    assert_eq!(world.read(3, 9), Err(EINTR));
    assert_eq!(world.read(3, 9), Err(EINTR));
    assert_eq!(world.call(Sysno::fcntl, [3, 4, NON_BLOCKING]), Ok(0));
    assert_eq!(world.read(3, 9), Err(EAGAIN));
    // Nobody reads any more.
    assert_eq!(world.call(Sysno::close, [3u64]), Ok(0));
    assert_eq!(world.write(4, b""), Ok(0));
    assert_eq!(world.write(4, b"x"), Err(EPIPE));
    assert!(world.pod.process.signals.lock().pending.set().contains(Signal::PIPE));
    assert_eq!(world.call(Sysno::pipe, [NOWHERE]), Err(EFAULT));
    assert_eq!(world.call(Sysno::dup, [4u64]), Ok(3));
    assert_eq!(world.call(Sysno::fcntl, [4u64, 1032, 0]), Ok(65536));
    assert_eq!(world.call(Sysno::fcntl, [4u64, 1031, 5000]), Ok(8192));
    assert_eq!(world.call(Sysno::fcntl, [0u64, 1032, 0]), Err(EBADF));
}

#[test]
fn an_ignored_signal_ends_no_wait() {
    let world = World::new();
    let ends = world.room(8);
    assert_eq!(world.call(Sysno::pipe, [ends]), Ok(0));
    let ignore = Disposition { handler: 1, ..Disposition::default() };
    world.pod.process.signals.lock().dispositions.set(Signal::TERM, ignore).expect("can be set");
    let process = world.pod.process.clone();
    world.during_wait(move || process.raise(Signal::TERM, SignalInfo::default()));
    let process = world.pod.process.clone();
    world.during_wait(move || drop(process.files.table().remove(4)));
    assert_eq!(world.read(3, 9), Ok(alloc::vec![]));
}

#[test]
fn a_named_pipe_waits_for_its_other_end() {
    let world = World::new();
    assert_eq!(world.call(Sysno::mknod, [world.path("/p"), 0o010_644, 0]), Ok(0));
    assert_eq!(world.open("/p", WRITE_ONLY | NON_BLOCKING), Err(Errno::ENXIO));
    assert_eq!(world.open("/p", NON_BLOCKING), Ok(3));
    assert_eq!(world.open("/p", WRITE_ONLY), Ok(4));
    assert_eq!(world.call(Sysno::close_range, [3, 4, 0]), Ok(0));
    let process = world.pod.process.clone();
    world.during_wait(move || process.raise(Signal::TERM, SignalInfo::default()));
    assert_eq!(world.open("/p", 0), Err(EINTR));
    assert_eq!(world.open("/p", READ_WRITE), Ok(3));
}

#[test]
fn record_locks_belong_to_the_process() {
    let world = furnished();
    world.open("/d/f", READ_WRITE).expect("opens");
    world.open("/d/f", READ_WRITE).expect("opens");
    let lock = |kind: u16, start: i64, length: i64, pid: i32| {
        world.put(&Encoder::new().u16(kind).u16(0).zero_to(8).i64(start).i64(length).i32(pid).zero_to(32).finish())
    };
    let control = |descriptor: u64, command: u64, lock: u64| world.call(Sysno::fcntl, [descriptor, command, lock]);
    assert_eq!(control(3, 6, lock(1, 0, 10, 0)), Ok(0));
    // The same process, by another description: no conflict.
    assert_eq!(control(4, 6, lock(1, 0, 0, 0)), Ok(0));
    // A description's lock conflicts with the process's.
    assert_eq!(control(4, 37, lock(0, 5, 1, 0)), Err(EAGAIN));
    assert_eq!(control(4, 37, lock(0, 5, 1, 7)), Err(EINVAL));
    let probe = lock(0, 5, 1, 0);
    assert_eq!(control(4, 36, probe), Ok(0));
    let found = world.get(probe, 32);
    assert_eq!((get::u16(&found, 0), get::u64(&found, 8), get::u64(&found, 16)), (1, 0, 0));
    assert_eq!(get::i32(&found, 24), 1);
    // Closing any descriptor of the file gives the process's locks up.
    assert_eq!(world.call(Sysno::dup, [3u64]), Ok(5));
    assert_eq!(world.call(Sysno::close, [5u64]), Ok(0));
    assert_eq!(control(4, 37, lock(1, 5, 1, 0)), Ok(0));
    assert_eq!(control(3, 6, lock(0, 5, 1, 0)), Err(EAGAIN));
    let probe = lock(1, 0, 0, 0);
    assert_eq!(control(3, 5, probe), Ok(0));
    assert_eq!(get::i32(&world.get(probe, 32), 24), -1);
    let process = world.pod.process.clone();
    world.during_wait(move || drop(process.files.table().remove(4)));
    assert_eq!(control(3, 7, lock(0, 5, 1, 0)), Ok(0));
    for (bytes, error) in [
        (lock(7, 0, 0, 0), EINVAL),
        (lock(1, -1, 0, 0), EINVAL),
        (lock(1, 3, -4, 0), EINVAL),
        (lock(1, i64::MAX, 2, 0), Errno::EOVERFLOW),
        (NOWHERE, EFAULT),
    ] {
        assert_eq!(control(3, 6, bytes), Err(error));
    }
    world.open("/d/f", 0).expect("opens");
    assert_eq!(control(4, 6, lock(1, 0, 0, 0)), Err(EBADF));
    assert_eq!(control(4, 6, lock(0, 0, 0, 0)), Ok(0));
}

#[test]
fn whole_file_locks_belong_to_the_description() {
    let world = furnished();
    world.open("/d/f", 0).expect("opens");
    world.open("/d/f", 0).expect("opens");
    let flock = |descriptor: u64, operation: u64| world.call(Sysno::flock, [descriptor, operation]);
    assert_eq!(flock(3, 2), Ok(0));
    assert_eq!(flock(4, 1 | 4), Err(EAGAIN));
    assert_eq!(flock(4, 3), Err(EINVAL));
    assert_eq!(flock(9, 1), Err(EBADF));
    let process = world.pod.process.clone();
    world.during_wait(move || drop(process.files.table().remove(3)));
    assert_eq!(flock(4, 1), Ok(0));
    assert_eq!(flock(4, 8), Ok(0));
}

#[test]
fn terminals_answer_and_others_are_none() {
    use aegis_link::config::{Config, Flags};
    let world = World::with_config(Config {
        flags: Flags::STDIN_IS_TERMINAL | Flags::STDOUT_IS_TERMINAL,
        terminal_rows: 25,
        terminal_columns: 80,
        ..Config::default()
    });
    let buffer = world.room(64);
    let ioctl = |descriptor: u64, number: u64| world.call(Sysno::ioctl, [descriptor, number, buffer]);
    assert_eq!(ioctl(1, 0x5413), Ok(0));
    assert_eq!(world.get(buffer, 8), [25, 0, 80, 0, 0, 0, 0, 0]);
    assert_eq!(ioctl(0, 0x5401), Ok(0));
    assert_eq!(get::u32(&world.get(buffer, 4), 0), 0x500);
    assert_eq!(ioctl(0, 0x5402), Ok(0));
    assert_eq!(ioctl(0, 0x802c_542a), Ok(0));
    assert_eq!(get::u32(&world.get(buffer + 36, 4), 0), 38_400);
    assert_eq!(ioctl(0, 0x540f), Ok(0));
    assert_eq!(get::u32(&world.get(buffer, 4), 0), 1);
    assert_eq!(ioctl(2, 0x5401), Err(ENOTTY));
    assert_eq!(ioctl(0, 0x9999), Err(ENOTTY));
    assert_eq!(ioctl(9, 0x5401), Err(EBADF));
}

#[test]
fn memory_files_are_sealed() {
    let world = World::new();
    let create = |name, flags: u64| world.call(Sysno::memfd_create, [world.path(name), flags]);
    assert_eq!(create("m", 3), Ok(3));
    assert_eq!(create("n", 0), Ok(4));
    assert_eq!(create("n", 4), Err(EINVAL));
    assert_eq!(create(&"x".repeat(250), 0), Err(EINVAL));
    assert_eq!(world.write(3, b"data"), Ok(4));
    assert_eq!(world.call(Sysno::fcntl, [3u64, 1033, 2 | 4]), Ok(0));
    assert_eq!(world.call(Sysno::fcntl, [3u64, 1034, 0]), Ok(6));
    assert_eq!(world.call(Sysno::ftruncate, [3u64, 0]), Err(EPERM));
    assert_eq!(world.call(Sysno::fcntl, [4u64, 1033, 2]), Err(EPERM));
    assert_eq!(world.call(Sysno::fcntl, [3u64, 1033, 64]), Err(EINVAL));
    assert_eq!(world.call(Sysno::fcntl, [0u64, 1034, 0]), Err(EINVAL));
    let text = world.room(144);
    let path = world.path("/proc/self/fd/3");
    assert_eq!(world.call(Sysno::readlink, [path, text, 64]), Ok(18));
    assert_eq!(world.get(text, 18), b"/memfd:m (deleted)");
    assert_eq!(world.call(Sysno::eventfd2, [3u64, 0x10]), Err(EINVAL));
    assert_eq!(world.call(Sysno::eventfd2, [3u64, 1]), Ok(5));
    assert_eq!(world.call(Sysno::fstat, [5, text]), Ok(0));
    assert_eq!(get::u32(&world.get(text, 64), 24), 0o600);
    assert_eq!(world.read(5, 8), Ok(1u64.to_le_bytes().to_vec()));
}

#[test]
fn a_read_only_root_has_places_in_memory() {
    use aegis_link::config::{Config, Flags, Temporary};
    let small = Temporary { permissions: 0o700, size_max_bytes: 8192, ..Temporary::new(b"/small") };
    let world = World::with_config(Config {
        flags: Flags::READ_ONLY_ROOT,
        temporaries: vec![Temporary::new(b"/run"), Temporary::new(b"/deep/er"), small],
        ..Config::default()
    });
    let make = |name| world.call(Sysno::mkdir, [world.path(name), 0o755]);
    assert_eq!([make("/x"), make("/deep/x")], [Err(EROFS); 2]);
    assert_eq!([make("/run/x"), make("/deep/er/x"), make("/dev/shm/x")], [Ok(0); 3]);
    let status = world.room(144);
    assert_eq!(world.call(Sysno::stat, [world.path("/small"), status]), Ok(0));
    assert_eq!(get::u32(&world.get(status, 64), 24), 0o40700);
    let file = world.open("/small/x", CREATE | WRITE_ONLY).expect("it is made");
    let written = [(); 4].map(|()| world.write(file, &[7; 4096]));
    assert!(written[0] == Ok(4096) && written[3] == Err(ENOSPC), "{written:?}");
}
