//! How the arguments and the result of each call are shown: a table, one row a call.

use syscalls::Sysno;

use super::render::{Answer, Format, Names};

/// How one call is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) arguments: &'static [Format],
    pub(super) answer: Answer,
}

/// For calls that are not in the table.
const UNKNOWN: Shape = Shape { arguments: &[Format::Hex; 6], answer: Answer::Number };

/// The shape of a call.
pub(super) fn shape_of(number: u64) -> &'static Shape {
    let found = usize::try_from(number).ok().and_then(Sysno::new);
    let row = found.and_then(|number| SHAPES.iter().find(|row| row.0 == number));
    row.map_or(&UNKNOWN, |row| &row.1)
}

macro_rules! shapes {
    ($($name:ident($($format:expr),*) $(-> $answer:ident)?;)*) => {
        &[$((Sysno::$name, Shape { arguments: &[$($format),*], answer: shapes!(@ $($answer)?) })),*]
    };
    (@) => { Answer::Number };
    (@ $answer:ident) => { Answer::$answer };
}

use Format::{
    Action, ActionOut, At, BufferIn, BufferOut, Descriptor, Device, Entries, Hex, Int, Limit, LimitOut, Long, Mode,
    OpenFlags, OpenMode, PairOut, Path, Pointer, PollSet, Set, SignalNumber, SignalSetIn, SignalSetOut, Size, StatOut,
    StringCount, Strings, SystemName, TextOut, TimeIn, TimeOut, VectorIn, VectorOut, Word,
};

/// The calls.
pub(super) const SHAPES: &[(Sysno, Shape)] = shapes! {
    read(Descriptor, BufferOut, Size);
    write(Descriptor, BufferIn(2), Size);
    pread64(Descriptor, BufferOut, Size, Long);
    pwrite64(Descriptor, BufferIn(2), Size, Long);
    readv(Descriptor, VectorOut(2), Size);
    writev(Descriptor, VectorIn(2), Size);
    preadv(Descriptor, VectorOut(2), Size, Long);
    pwritev(Descriptor, VectorIn(2), Size, Long);
    open(Path, OpenFlags, OpenMode(1));
    openat(At, Path, OpenFlags, OpenMode(2));
    creat(Path, Mode);
    close(Descriptor);
    close_range(Size, Size, Set(CLOSE_RANGE_FLAGS));
    stat(Path, StatOut);
    lstat(Path, StatOut);
    fstat(Descriptor, StatOut);
    newfstatat(At, Path, StatOut, Set(AT_FLAGS));
    statx(At, Path, Set(AT_FLAGS), Set(STATX_MASK), Pointer);
    statfs(Path, Pointer);
    fstatfs(Descriptor, Pointer);
    access(Path, Set(ACCESSES));
    faccessat(At, Path, Set(ACCESSES));
    faccessat2(At, Path, Set(ACCESSES), Set(AT_FLAGS));
    lseek(Descriptor, Long, Word(SEEK_ORIGINS));
    fcntl(Descriptor, Word(FCNTL_COMMANDS), Hex);
    ioctl(Descriptor, Word(IOCTLS), Pointer);
    dup(Descriptor);
    dup2(Descriptor, Descriptor);
    dup3(Descriptor, Descriptor, Set(FILE_FLAGS));
    pipe(PairOut);
    pipe2(PairOut, Set(FILE_FLAGS));
    getcwd(TextOut, Size);
    chdir(Path);
    fchdir(Descriptor);
    chroot(Path);
    mkdir(Path, Mode);
    mkdirat(At, Path, Mode);
    mknod(Path, Mode, Device);
    mknodat(At, Path, Mode, Device);
    rmdir(Path);
    unlink(Path);
    unlinkat(At, Path, Set(UNLINK_FLAGS));
    rename(Path, Path);
    renameat(At, Path, At, Path);
    renameat2(At, Path, At, Path, Set(RENAME_FLAGS));
    link(Path, Path);
    linkat(At, Path, At, Path, Set(AT_FLAGS));
    symlink(Path, Path);
    symlinkat(Path, At, Path);
    readlink(Path, BufferOut, Size);
    readlinkat(At, Path, BufferOut, Size);
    chmod(Path, Mode);
    fchmod(Descriptor, Mode);
    fchmodat(At, Path, Mode);
    chown(Path, Int, Int);
    lchown(Path, Int, Int);
    fchown(Descriptor, Int, Int);
    fchownat(At, Path, Int, Int, Set(AT_FLAGS));
    utimensat(At, Path, Pointer, Set(AT_FLAGS));
    truncate(Path, Long);
    ftruncate(Descriptor, Long);
    fallocate(Descriptor, Hex, Long, Long);
    fsync(Descriptor);
    fdatasync(Descriptor);
    flock(Descriptor, Set(FLOCK_OPERATIONS));
    fadvise64(Descriptor, Long, Size, Int);
    umask(Mode) -> Mode;
    getdents64(Descriptor, Entries, Size);
    sendfile(Descriptor, Descriptor, Pointer, Size);
    copy_file_range(Descriptor, Pointer, Descriptor, Pointer, Size, Hex);
    poll(PollSet(1), Size, Int);
    ppoll(PollSet(1), Size, TimeIn, SignalSetIn, Size);
    select(Int, Pointer, Pointer, Pointer, Pointer);
    pselect6(Int, Pointer, Pointer, Pointer, TimeIn, Pointer);
    epoll_create1(Set(EPOLL_FLAGS));
    epoll_ctl(Descriptor, Word(EPOLL_OPERATIONS), Descriptor, Pointer);
    epoll_wait(Descriptor, Pointer, Int, Int);
    epoll_pwait(Descriptor, Pointer, Int, Int, SignalSetIn, Size);
    eventfd2(Int, Set(EVENT_FLAGS));
    memfd_create(Path, Set(MEMFD_FLAGS));
    mmap(Pointer, Size, Set(PROTECTIONS), Set(MAP_FLAGS), Descriptor, Hex) -> Address;
    munmap(Pointer, Size);
    mprotect(Pointer, Size, Set(PROTECTIONS));
    mremap(Pointer, Size, Size, Set(REMAP_FLAGS), Pointer) -> Address;
    madvise(Pointer, Size, Word(ADVICES));
    msync(Pointer, Size, Set(SYNC_FLAGS));
    mlock(Pointer, Size);
    munlock(Pointer, Size);
    brk(Pointer) -> Address;
    execve(Path, Strings, StringCount);
    execveat(At, Path, Strings, StringCount, Set(AT_FLAGS));
    exit(Int) -> Never;
    exit_group(Int) -> Never;
    wait4(Int, Pointer, Hex, Pointer);
    fork();
    vfork();
    getpid();
    gettid();
    getppid();
    getuid();
    geteuid();
    getgid();
    getegid();
    setuid(Int);
    setgid(Int);
    setresuid(Int, Int, Int);
    setresgid(Int, Int, Int);
    setgroups(Size, Pointer);
    getgroups(Size, Pointer);
    getpgrp();
    getpgid(Int);
    setpgid(Int, Int);
    getsid(Int);
    setsid();
    getrlimit(Word(RESOURCES), LimitOut);
    setrlimit(Word(RESOURCES), Limit);
    prlimit64(Int, Word(RESOURCES), Limit, LimitOut);
    getrusage(Int, Pointer);
    kill(Int, SignalNumber);
    tkill(Int, SignalNumber);
    tgkill(Int, Int, SignalNumber);
    rt_sigaction(SignalNumber, Action, ActionOut, Size);
    rt_sigprocmask(Word(MASK_CHANGES), SignalSetIn, SignalSetOut, Size);
    rt_sigpending(SignalSetOut, Size);
    rt_sigsuspend(SignalSetIn, Size);
    rt_sigtimedwait(SignalSetIn, Pointer, TimeIn, Size);
    rt_sigreturn();
    sigaltstack(Pointer, Pointer);
    pause();
    alarm(Size);
    clock_gettime(Word(CLOCKS), TimeOut);
    clock_getres(Word(CLOCKS), TimeOut);
    clock_nanosleep(Word(CLOCKS), Set(TIMER_FLAGS), TimeIn, Pointer);
    nanosleep(TimeIn, Pointer);
    gettimeofday(Pointer, Pointer);
    time(Pointer);
    times(Pointer);
    uname(SystemName);
    sysinfo(Pointer);
    getrandom(BufferOut, Size, Set(RANDOM_FLAGS));
    arch_prctl(Word(ARCH_OPERATIONS), Pointer);
    prctl(Word(PROCESS_OPTIONS), Hex, Hex, Hex, Hex);
    set_tid_address(Pointer);
    set_robust_list(Pointer, Size);
    rseq(Pointer, Size, Hex, Hex);
    futex(Pointer, Word(FUTEX_OPERATIONS), Int, Pointer);
    sched_yield();
    sched_rr_get_interval(Int, Pointer);
    sched_setattr(Int, Pointer, Hex);
    sched_getattr(Int, Pointer, Size, Hex);
    ioprio_set(Int, Int, Hex);
    ioprio_get(Int, Int);
    get_mempolicy(Pointer, Pointer, Size, Pointer, Hex);
    set_mempolicy(Hex, Pointer, Size);
    mbind(Pointer, Size, Hex, Pointer, Size, Hex);
    set_mempolicy_home_node(Pointer, Size, Int, Hex);
    migrate_pages(Int, Size, Pointer, Pointer);
    move_pages(Int, Size, Pointer, Pointer, Pointer, Hex);
    unshare(Hex);
    setns(Descriptor, Hex);
    vhangup();
    pidfd_send_signal(Descriptor, SignalNumber, Pointer, Hex);
    sched_getaffinity(Int, Size, Pointer);
    sched_setaffinity(Int, Size, Pointer);
    membarrier(Int, Hex);
    sethostname(BufferIn(1), Size);
};

#[rustfmt::skip]
const AT_FLAGS: Names = &[
    (0x100, "AT_SYMLINK_NOFOLLOW"), (0x200, "AT_EACCESS"), (0x400, "AT_SYMLINK_FOLLOW"), (0x800, "AT_NO_AUTOMOUNT"),
    (0x1000, "AT_EMPTY_PATH"), (0x2000, "AT_STATX_FORCE_SYNC"), (0x4000, "AT_STATX_DONT_SYNC"),
];
const UNLINK_FLAGS: Names = &[(0x200, "AT_REMOVEDIR")];
const CLOSE_RANGE_FLAGS: Names = &[(2, "CLOSE_RANGE_UNSHARE"), (4, "CLOSE_RANGE_CLOEXEC")];
#[rustfmt::skip]
const STATX_MASK: Names = &[
    (0xfff, "STATX_ALL"), (0x7ff, "STATX_BASIC_STATS"), (1, "STATX_TYPE"), (2, "STATX_MODE"), (4, "STATX_NLINK"),
    (8, "STATX_UID"), (0x10, "STATX_GID"), (0x20, "STATX_ATIME"), (0x40, "STATX_MTIME"), (0x80, "STATX_CTIME"),
    (0x100, "STATX_INO"), (0x200, "STATX_SIZE"), (0x400, "STATX_BLOCKS"), (0x800, "STATX_BTIME"),
    (0x1000, "STATX_MNT_ID"),
];
const SEEK_ORIGINS: Names = &[(0, "SEEK_SET"), (1, "SEEK_CUR"), (2, "SEEK_END"), (3, "SEEK_DATA"), (4, "SEEK_HOLE")];
#[rustfmt::skip]
const FCNTL_COMMANDS: Names = &[
    (0, "F_DUPFD"), (1, "F_GETFD"), (2, "F_SETFD"), (3, "F_GETFL"), (4, "F_SETFL"), (5, "F_GETLK"), (6, "F_SETLK"),
    (7, "F_SETLKW"), (8, "F_SETOWN"), (9, "F_GETOWN"), (36, "F_OFD_GETLK"), (37, "F_OFD_SETLK"), (38, "F_OFD_SETLKW"),
    (1030, "F_DUPFD_CLOEXEC"), (1031, "F_SETPIPE_SZ"), (1032, "F_GETPIPE_SZ"), (1033, "F_ADD_SEALS"),
    (1034, "F_GET_SEALS"),
];
const RENAME_FLAGS: Names = &[(1, "RENAME_NOREPLACE"), (2, "RENAME_EXCHANGE"), (4, "RENAME_WHITEOUT")];
const FLOCK_OPERATIONS: Names = &[(1, "LOCK_SH"), (2, "LOCK_EX"), (4, "LOCK_NB"), (8, "LOCK_UN")];
const EPOLL_OPERATIONS: Names = &[(1, "EPOLL_CTL_ADD"), (2, "EPOLL_CTL_DEL"), (3, "EPOLL_CTL_MOD")];
const MEMFD_FLAGS: Names = &[(1, "MFD_CLOEXEC"), (2, "MFD_ALLOW_SEALING"), (4, "MFD_HUGETLB")];
const PROTECTIONS: Names =
    &[(0, "PROT_NONE"), (1, "PROT_READ"), (2, "PROT_WRITE"), (4, "PROT_EXEC"), (0x100_0000, "PROT_GROWSDOWN")];
#[rustfmt::skip]
const MAP_FLAGS: Names = &[
    (3, "MAP_SHARED_VALIDATE"), (1, "MAP_SHARED"), (2, "MAP_PRIVATE"), (0x10, "MAP_FIXED"), (0x20, "MAP_ANONYMOUS"),
    (0x40, "MAP_32BIT"), (0x100, "MAP_GROWSDOWN"), (0x800, "MAP_DENYWRITE"), (0x1000, "MAP_EXECUTABLE"),
    (0x2000, "MAP_LOCKED"), (0x4000, "MAP_NORESERVE"), (0x8000, "MAP_POPULATE"), (0x1_0000, "MAP_NONBLOCK"),
    (0x2_0000, "MAP_STACK"), (0x4_0000, "MAP_HUGETLB"), (0x8_0000, "MAP_SYNC"), (0x10_0000, "MAP_FIXED_NOREPLACE"),
];
const REMAP_FLAGS: Names = &[(1, "MREMAP_MAYMOVE"), (2, "MREMAP_FIXED"), (4, "MREMAP_DONTUNMAP")];
#[rustfmt::skip]
const ADVICES: Names = &[
    (0, "MADV_NORMAL"), (1, "MADV_RANDOM"), (2, "MADV_SEQUENTIAL"), (3, "MADV_WILLNEED"), (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"), (9, "MADV_REMOVE"), (10, "MADV_DONTFORK"), (11, "MADV_DOFORK"), (12, "MADV_MERGEABLE"),
    (14, "MADV_HUGEPAGE"), (15, "MADV_NOHUGEPAGE"), (16, "MADV_DONTDUMP"), (17, "MADV_DODUMP"),
    (18, "MADV_WIPEONFORK"), (19, "MADV_KEEPONFORK"), (20, "MADV_COLD"), (21, "MADV_PAGEOUT"),
    (22, "MADV_POPULATE_READ"), (23, "MADV_POPULATE_WRITE"),
];
const SYNC_FLAGS: Names = &[(1, "MS_ASYNC"), (2, "MS_INVALIDATE"), (4, "MS_SYNC")];
#[rustfmt::skip]
const RESOURCES: Names = &[
    (0, "RLIMIT_CPU"), (1, "RLIMIT_FSIZE"), (2, "RLIMIT_DATA"), (3, "RLIMIT_STACK"), (4, "RLIMIT_CORE"),
    (5, "RLIMIT_RSS"), (6, "RLIMIT_NPROC"), (7, "RLIMIT_NOFILE"), (8, "RLIMIT_MEMLOCK"), (9, "RLIMIT_AS"),
    (10, "RLIMIT_LOCKS"), (11, "RLIMIT_SIGPENDING"), (12, "RLIMIT_MSGQUEUE"), (13, "RLIMIT_NICE"),
    (14, "RLIMIT_RTPRIO"), (15, "RLIMIT_RTTIME"),
];
const MASK_CHANGES: Names = &[(0, "SIG_BLOCK"), (1, "SIG_UNBLOCK"), (2, "SIG_SETMASK")];
const TIMER_FLAGS: Names = &[(1, "TIMER_ABSTIME")];
const RANDOM_FLAGS: Names = &[(1, "GRND_NONBLOCK"), (2, "GRND_RANDOM"), (4, "GRND_INSECURE")];
#[rustfmt::skip]
const ARCH_OPERATIONS: Names = &[
    (0x1001, "ARCH_SET_GS"), (0x1002, "ARCH_SET_FS"), (0x1003, "ARCH_GET_FS"), (0x1004, "ARCH_GET_GS"),
    (0x1011, "ARCH_GET_CPUID"), (0x1012, "ARCH_SET_CPUID"), (0x3001, "ARCH_CET_STATUS"),
];
#[rustfmt::skip]
const FUTEX_OPERATIONS: Names = &[
    (0, "FUTEX_WAIT"), (1, "FUTEX_WAKE"), (128, "FUTEX_WAIT_PRIVATE"), (129, "FUTEX_WAKE_PRIVATE"),
    (9, "FUTEX_WAIT_BITSET"), (137, "FUTEX_WAIT_BITSET_PRIVATE"), (138, "FUTEX_WAKE_BITSET_PRIVATE"),
    (393, "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME"), (132, "FUTEX_CMP_REQUEUE_PRIVATE"),
    (134, "FUTEX_LOCK_PI_PRIVATE"), (135, "FUTEX_UNLOCK_PI_PRIVATE"),
];
const ACCESSES: Names = &[(0, "F_OK"), (4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
const FILE_FLAGS: Names = &[(0o2_000_000, "O_CLOEXEC"), (0o4000, "O_NONBLOCK"), (0o40_000, "O_DIRECT")];
const EPOLL_FLAGS: Names = &[(0o2_000_000, "EPOLL_CLOEXEC")];
const EVENT_FLAGS: Names = &[(1, "EFD_SEMAPHORE"), (0o2_000_000, "EFD_CLOEXEC"), (0o4000, "EFD_NONBLOCK")];
#[rustfmt::skip]
const CLOCKS: Names = &[
    (0, "CLOCK_REALTIME"), (1, "CLOCK_MONOTONIC"), (2, "CLOCK_PROCESS_CPUTIME_ID"), (3, "CLOCK_THREAD_CPUTIME_ID"),
    (4, "CLOCK_MONOTONIC_RAW"), (5, "CLOCK_REALTIME_COARSE"), (6, "CLOCK_MONOTONIC_COARSE"), (7, "CLOCK_BOOTTIME"),
    (8, "CLOCK_REALTIME_ALARM"), (9, "CLOCK_BOOTTIME_ALARM"), (11, "CLOCK_TAI"),
];
#[rustfmt::skip]
const IOCTLS: Names = &[
    (0x5401, "TCGETS"), (0x5402, "TCSETS"), (0x5403, "TCSETSW"), (0x5404, "TCSETSF"), (0x540e, "TIOCSCTTY"),
    (0x540f, "TIOCGPGRP"), (0x5410, "TIOCSPGRP"), (0x5413, "TIOCGWINSZ"), (0x5414, "TIOCSWINSZ"), (0x541b, "FIONREAD"),
    (0x5421, "FIONBIO"), (0x5422, "TIOCNOTTY"), (0x5429, "TIOCGSID"), (0x5450, "FIONCLEX"), (0x5451, "FIOCLEX"),
    (0x5452, "FIOASYNC"), (0x4004_9409, "FICLONE"),
];
#[rustfmt::skip]
const PROCESS_OPTIONS: Names = &[
    (1, "PR_SET_PDEATHSIG"), (2, "PR_GET_PDEATHSIG"), (3, "PR_GET_DUMPABLE"), (4, "PR_SET_DUMPABLE"),
    (15, "PR_SET_NAME"), (16, "PR_GET_NAME"), (21, "PR_GET_SECCOMP"), (22, "PR_SET_SECCOMP"),
    (23, "PR_CAPBSET_READ"), (38, "PR_SET_NO_NEW_PRIVS"), (39, "PR_GET_NO_NEW_PRIVS"), (0x5356_4d41, "PR_SET_VMA"),
];
