//! The side of Linux: a directory on the host.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use exos::error::Errno;
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom};

use super::generate::{self, FileStep, Flags, Operation};
use super::{Described, Initial, Outcome, START, initial_tree};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Host {
    top: PathBuf,
    start: OwnedFd,
}

fn errno_of(error: rustix::io::Errno) -> Errno {
    use rustix::io::Errno as Host;
    const NAMES: [(Host, Errno); 22] = [
        (Host::PERM, Errno::EPERM),
        (Host::NOENT, Errno::ENOENT),
        (Host::NXIO, Errno::ENXIO),
        (Host::BADF, Errno::EBADF),
        (Host::AGAIN, Errno::EAGAIN),
        (Host::ACCESS, Errno::EACCES),
        (Host::BUSY, Errno::EBUSY),
        (Host::EXIST, Errno::EEXIST),
        (Host::XDEV, Errno::EXDEV),
        (Host::NODEV, Errno::ENODEV),
        (Host::NOTDIR, Errno::ENOTDIR),
        (Host::ISDIR, Errno::EISDIR),
        (Host::INVAL, Errno::EINVAL),
        (Host::FBIG, Errno::EFBIG),
        (Host::SPIPE, Errno::ESPIPE),
        (Host::MLINK, Errno::EMLINK),
        (Host::PIPE, Errno::EPIPE),
        (Host::NAMETOOLONG, Errno::ENAMETOOLONG),
        (Host::NOTEMPTY, Errno::ENOTEMPTY),
        (Host::LOOP, Errno::ELOOP),
        (Host::OVERFLOW, Errno::EOVERFLOW),
        (Host::OPNOTSUPP, Errno::EOPNOTSUPP),
    ];
    let found = NAMES.iter().find(|row| row.0 == error);
    found.unwrap_or_else(|| panic!("an error without a name here: {error:?}")).1
}

fn outcome<T>(result: rustix::io::Result<T>, good: impl FnOnce(T) -> Outcome) -> Outcome {
    match result {
        Ok(value) => good(value),
        Err(error) => Outcome::Failed(errno_of(error)),
    }
}

fn done<T>(result: rustix::io::Result<T>) -> Outcome {
    outcome(result, |_| Outcome::Done)
}

fn to_oflags(flags: Flags) -> OFlags {
    let mut bits = OFlags::NONBLOCK | OFlags::CLOEXEC;
    bits |= match (flags.read, flags.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    for (is_set, flag) in [
        (flags.create, OFlags::CREATE),
        (flags.exclusive, OFlags::EXCL),
        (flags.truncate, OFlags::TRUNC),
        (flags.append, OFlags::APPEND),
        (flags.directory, OFlags::DIRECTORY),
        (flags.no_follow, OFlags::NOFOLLOW),
        (flags.path_only, OFlags::PATH),
    ] {
        bits.set(flag, is_set);
    }
    bits
}

/// The bytes that step `index` of an operation writes.
pub(crate) fn pattern(index: usize, length: u64) -> Vec<u8> {
    (0..length).map(|byte| (byte as usize * 7 + index * 31 + 1) as u8).collect()
}

impl Host {
    pub(crate) fn new(seed: u64) -> Self {
        let shared_memory = PathBuf::from("/dev/shm");
        let base = if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let top = base.join(format!("exos-oracle-{}-{seed}-{number}", std::process::id()));
        let start = START.iter().fold(top.clone(), |path, name| path.join(name));
        std::fs::create_dir_all(&start).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let start = fs::open(&start, flags, Mode::empty()).unwrap();
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let host = Self { top, start };
        host.fill();
        host
    }

    fn at(&self) -> BorrowedFd<'_> {
        self.start.as_fd()
    }

    fn fill(&self) {
        for (path, what) in initial_tree() {
            let at = self.at();
            match what {
                Initial::Directory => fs::mkdirat(at, path, Mode::from_raw_mode(0o755)).unwrap(),
                Initial::File(bytes) => {
                    let flags = OFlags::CREATE | OFlags::WRONLY;
                    let file = fs::openat(at, path, flags, Mode::from_raw_mode(0o644)).unwrap();
                    assert_eq!(rustix::io::write(&file, &bytes).unwrap(), bytes.len());
                }
                Initial::Link(target) => {
                    fs::linkat(at, target, at, path, AtFlags::empty()).unwrap();
                }
                Initial::Symlink(target) => fs::symlinkat(target, at, path).unwrap(),
                Initial::Fifo => {
                    let mode = Mode::from_raw_mode(0o644);
                    fs::mknodat(at, path, FileType::Fifo, mode, 0).unwrap();
                }
            }
        }
    }

    pub(crate) fn run(&self, operation: &Operation) -> Outcome {
        let at = self.at();
        match operation {
            Operation::Open { path, flags, steps } => {
                let opened = fs::openat(at, path, to_oflags(*flags), Mode::from_raw_mode(0o666));
                outcome(opened, |file| {
                    let run = |(index, step): (usize, &FileStep)| run_step(&file, index, *step);
                    Outcome::Steps(steps.iter().enumerate().map(run).collect())
                })
            }
            Operation::MakeDirectory(path) => done(fs::mkdirat(at, path, Mode::from_raw_mode(0o777))),
            Operation::RemoveDirectory(path) => done(fs::unlinkat(at, path, AtFlags::REMOVEDIR)),
            Operation::Unlink(path) => done(fs::unlinkat(at, path, AtFlags::empty())),
            Operation::Rename(old, new, mode) => {
                let flags = match mode {
                    generate::Mode::Replace => RenameFlags::empty(),
                    generate::Mode::NoReplace => RenameFlags::NOREPLACE,
                    generate::Mode::Exchange => RenameFlags::EXCHANGE,
                };
                done(fs::renameat_with(at, old, at, new, flags))
            }
            Operation::Link(old, new, follow) => {
                let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                done(fs::linkat(at, old, at, new, flags))
            }
            Operation::Symlink(target, path) => done(fs::symlinkat(target, at, path)),
            Operation::MakeFifo(path) => done(fs::mknodat(at, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0)),
            Operation::ReadLink(path) => {
                outcome(fs::readlinkat(at, path, Vec::new()), |target| Outcome::Bytes(target.into_bytes()))
            }
            Operation::Stat(path, follow) => {
                let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                outcome(fs::statat(at, path, flags), |stat| Outcome::Number(stat.st_mode.into()))
            }
            Operation::Truncate(path, size_bytes) => {
                // There is no `truncateat`; opening for writing gives the same errors for what is tested.
                let flags = OFlags::WRONLY | OFlags::NONBLOCK;
                let file = fs::openat(at, path, flags, Mode::empty());
                match file {
                    Ok(file) => done(fs::ftruncate(file, *size_bytes)),
                    Err(rustix::io::Errno::NXIO) => Outcome::Failed(Errno::EINVAL),
                    Err(error) => Outcome::Failed(errno_of(error)),
                }
            }
            Operation::SetPermissions(path, permissions) => {
                done(fs::chmodat(at, path, Mode::from_raw_mode(*permissions), AtFlags::empty()))
            }
        }
    }

    pub(crate) fn tree(&self) -> Vec<Described> {
        let mut described = Vec::new();
        let top = fs::open(&self.top, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        describe(top.as_fd(), "", &mut described);
        described.sort();
        described
    }
}

fn describe(directory: BorrowedFd<'_>, prefix: &str, out: &mut Vec<Described>) {
    for entry in fs::Dir::read_from(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap();
        if matches!(name, "." | "..") {
            continue;
        }
        let path = format!("{prefix}{name}");
        let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let kind = FileType::from_raw_mode(stat.st_mode);
        let content = match kind {
            FileType::RegularFile => {
                let file = fs::openat(directory, name, OFlags::RDONLY, Mode::empty()).unwrap();
                let mut bytes = vec![0; stat.st_size as usize];
                let count = rustix::io::pread(&file, &mut bytes[..], 0).unwrap();
                assert_eq!(count, bytes.len());
                bytes
            }
            FileType::Symlink => fs::readlinkat(directory, name, Vec::new()).unwrap().into_bytes(),
            _ => Vec::new(),
        };
        let is_directory = kind == FileType::Directory;
        out.push(Described {
            path: path.clone(),
            mode: stat.st_mode,
            link_count: stat.st_nlink,
            size_bytes: if is_directory { 0 } else { stat.st_size as u64 },
            content,
        });
        if is_directory {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY;
            let below = fs::openat(directory, name, flags, Mode::empty()).unwrap();
            describe(below.as_fd(), &format!("{path}/"), out);
        }
    }
}

fn run_step(file: &OwnedFd, index: usize, step: FileStep) -> Outcome {
    let read = |length: u64, at: Option<u64>| {
        let mut bytes = vec![0; length as usize];
        let count = match at {
            Some(offset) => rustix::io::pread(file, &mut bytes[..], offset),
            None => rustix::io::read(file, &mut bytes[..]),
        };
        outcome(count, |count| Outcome::Bytes(bytes[..count].to_vec()))
    };
    let count = |result| outcome(result, |count: usize| Outcome::Number(count as u64));
    let seek = |from| outcome(fs::seek(file, from), Outcome::Number);
    // rustix takes offsets that cannot be negative; such seeks are not Linux's to judge.
    let signed = |make: fn(i64) -> SeekFrom, distance| seek(make(distance));
    let allocate = |flags, offset, length| done(fs::fallocate(file, flags, offset, length));
    match step {
        FileStep::Read(length) => read(length, None),
        FileStep::ReadAt(offset, length) => read(length, Some(offset)),
        FileStep::Write(length) => count(rustix::io::write(file, &pattern(index, length))),
        FileStep::WriteAt(offset, length) => count(rustix::io::pwrite(file, &pattern(index, length), offset)),
        FileStep::SeekStart(distance) => seek(SeekFrom::Start(distance.max(0).cast_unsigned())),
        FileStep::SeekCurrent(distance) => signed(SeekFrom::Current, distance),
        FileStep::SeekEnd(distance) => signed(SeekFrom::End, distance),
        FileStep::SeekData(offset) => seek(SeekFrom::Data(offset)),
        FileStep::SeekHole(offset) => seek(SeekFrom::Hole(offset)),
        FileStep::Truncate(size_bytes) => done(fs::ftruncate(file, size_bytes)),
        FileStep::Extend(offset, length) => allocate(FallocateFlags::empty(), offset, length),
        FileStep::KeepSize(offset, length) => allocate(FallocateFlags::KEEP_SIZE, offset, length),
        FileStep::PunchHole(offset, length) => {
            let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
            allocate(flags, offset, length)
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.top);
    }
}
