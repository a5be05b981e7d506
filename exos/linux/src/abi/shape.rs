//! What the words of a system call are, so that a trace can show them: numbers, paths, flags with names, structures.
//!
//! A call's row in the table has its [`Shape`]; [`crate::trace`] shows words by it.

/// Values with their names. In a set, a name of several bits stands before those of its parts.
pub type Names = &'static [(u64, &'static str)];

/// How an argument is shown; indexes name the argument with a length or a count.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// A signed 32-bit number.
    Int,
    /// A signed 64-bit number.
    Long,
    /// An unsigned number.
    Size,
    /// Bits.
    Hex,
    /// An address, or `NULL`.
    Pointer,
    /// A descriptor.
    Descriptor,
    /// A directory's descriptor, or `AT_FDCWD`.
    At,
    /// A path.
    Path,
    /// Permission bits, with the kind of file if there is one.
    Mode,
    /// `O_*` of `open`.
    OpenFlags,
    /// Permission bits that count only if the flags in that argument create a file.
    OpenMode(usize),
    /// One of several values.
    Word(Names),
    /// Bits with names.
    Set(Names),
    /// A signal.
    SignalNumber,
    /// A device number.
    Device,
    /// A buffer with its length in that argument.
    BufferIn(usize),
    /// Buffers, as many as that argument says.
    VectorIn(usize),
    /// `struct timespec`.
    TimeIn,
    /// `struct rlimit`.
    Limit,
    /// A signal set.
    SignalSetIn,
    /// `struct sigaction`.
    Action,
    /// `struct pollfd`, as many as that argument says.
    PollSet(usize),
    /// An array of strings.
    Strings,
    /// How many strings there are in an array.
    StringCount,
    /// A buffer, as long as the result.
    BufferOut,
    /// A string, as long as the result with its zero byte.
    TextOut,
    /// Buffers that are filled with as many bytes as the result.
    VectorOut(usize),
    /// `struct stat`.
    StatOut,
    /// `struct timespec`.
    TimeOut,
    /// `struct rlimit`.
    LimitOut,
    /// A signal set.
    SignalSetOut,
    /// `struct sigaction`.
    ActionOut,
    /// Two descriptors.
    PairOut,
    /// Directory entries, as many bytes as the result.
    Entries,
    /// `struct utsname`.
    SystemName,
}

/// How a result is shown.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// A signed number.
    Number,
    /// An address.
    Address,
    /// Permission bits.
    Mode,
    /// The call does not return.
    Never,
}

/// How one call is shown.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Formats of its arguments, at most six.
    pub arguments: &'static [Format],
    /// Format of what it returns.
    pub answer: Answer,
}

/// A shape from the formats of the arguments: without them, six registers.
macro_rules! shape {
    ($(-> $answer:ident)?) => {
        $crate::abi::shape::Shape {
            arguments: &[$crate::abi::shape::Format::Hex; 6],
            answer: $crate::abi::shape::shape!(@answer $($answer)?),
        }
    };
    (($($format:ident $(($names:ident))? $(($index:literal))?),*) $(-> $answer:ident)?) => {
        $crate::abi::shape::Shape {
            arguments: &[
                $($crate::abi::shape::Format::$format $(($crate::abi::shape::$names))? $(($index))?),*
            ],
            answer: $crate::abi::shape::shape!(@answer $($answer)?),
        }
    };
    (@answer) => { $crate::abi::shape::Answer::Number };
    (@answer $answer:ident) => { $crate::abi::shape::Answer::$answer };
}
pub(crate) use shape;

#[rustfmt::skip]
pub(crate) const AT_FLAGS: Names = &[
    (0x100, "AT_SYMLINK_NOFOLLOW"), (0x200, "AT_EACCESS"), (0x400, "AT_SYMLINK_FOLLOW"), (0x800, "AT_NO_AUTOMOUNT"),
    (0x1000, "AT_EMPTY_PATH"), (0x2000, "AT_STATX_FORCE_SYNC"), (0x4000, "AT_STATX_DONT_SYNC"),
];
pub(crate) const UNLINK_FLAGS: Names = &[(0x200, "AT_REMOVEDIR")];
pub(crate) const CLOSE_RANGE_FLAGS: Names = &[(2, "CLOSE_RANGE_UNSHARE"), (4, "CLOSE_RANGE_CLOEXEC")];
#[rustfmt::skip]
pub(crate) const STATX_MASK: Names = &[
    (0xfff, "STATX_ALL"), (0x7ff, "STATX_BASIC_STATS"), (1, "STATX_TYPE"), (2, "STATX_MODE"), (4, "STATX_NLINK"),
    (8, "STATX_UID"), (0x10, "STATX_GID"), (0x20, "STATX_ATIME"), (0x40, "STATX_MTIME"), (0x80, "STATX_CTIME"),
    (0x100, "STATX_INO"), (0x200, "STATX_SIZE"), (0x400, "STATX_BLOCKS"), (0x800, "STATX_BTIME"),
    (0x1000, "STATX_MNT_ID"),
];
pub(crate) const SEEK_ORIGINS: Names =
    &[(0, "SEEK_SET"), (1, "SEEK_CUR"), (2, "SEEK_END"), (3, "SEEK_DATA"), (4, "SEEK_HOLE")];
#[rustfmt::skip]
pub(crate) const FCNTL_COMMANDS: Names = &[
    (0, "F_DUPFD"), (1, "F_GETFD"), (2, "F_SETFD"), (3, "F_GETFL"), (4, "F_SETFL"), (5, "F_GETLK"), (6, "F_SETLK"),
    (7, "F_SETLKW"), (8, "F_SETOWN"), (9, "F_GETOWN"), (36, "F_OFD_GETLK"), (37, "F_OFD_SETLK"), (38, "F_OFD_SETLKW"),
    (1030, "F_DUPFD_CLOEXEC"), (1031, "F_SETPIPE_SZ"), (1032, "F_GETPIPE_SZ"), (1033, "F_ADD_SEALS"),
    (1034, "F_GET_SEALS"),
];
pub(crate) const RENAME_FLAGS: Names = &[(1, "RENAME_NOREPLACE"), (2, "RENAME_EXCHANGE"), (4, "RENAME_WHITEOUT")];
pub(crate) const FLOCK_OPERATIONS: Names = &[(1, "LOCK_SH"), (2, "LOCK_EX"), (4, "LOCK_NB"), (8, "LOCK_UN")];
pub(crate) const EPOLL_OPERATIONS: Names = &[(1, "EPOLL_CTL_ADD"), (2, "EPOLL_CTL_DEL"), (3, "EPOLL_CTL_MOD")];
pub(crate) const MEMFD_FLAGS: Names = &[(1, "MFD_CLOEXEC"), (2, "MFD_ALLOW_SEALING"), (4, "MFD_HUGETLB")];
pub(crate) const PROTECTIONS: Names =
    &[(0, "PROT_NONE"), (1, "PROT_READ"), (2, "PROT_WRITE"), (4, "PROT_EXEC"), (0x100_0000, "PROT_GROWSDOWN")];
#[rustfmt::skip]
pub(crate) const MAP_FLAGS: Names = &[
    (3, "MAP_SHARED_VALIDATE"), (1, "MAP_SHARED"), (2, "MAP_PRIVATE"), (0x10, "MAP_FIXED"), (0x20, "MAP_ANONYMOUS"),
    (0x40, "MAP_32BIT"), (0x100, "MAP_GROWSDOWN"), (0x800, "MAP_DENYWRITE"), (0x1000, "MAP_EXECUTABLE"),
    (0x2000, "MAP_LOCKED"), (0x4000, "MAP_NORESERVE"), (0x8000, "MAP_POPULATE"), (0x1_0000, "MAP_NONBLOCK"),
    (0x2_0000, "MAP_STACK"), (0x4_0000, "MAP_HUGETLB"), (0x8_0000, "MAP_SYNC"), (0x10_0000, "MAP_FIXED_NOREPLACE"),
];
pub(crate) const REMAP_FLAGS: Names = &[(1, "MREMAP_MAYMOVE"), (2, "MREMAP_FIXED"), (4, "MREMAP_DONTUNMAP")];
#[rustfmt::skip]
pub(crate) const ADVICES: Names = &[
    (0, "MADV_NORMAL"), (1, "MADV_RANDOM"), (2, "MADV_SEQUENTIAL"), (3, "MADV_WILLNEED"), (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"), (9, "MADV_REMOVE"), (10, "MADV_DONTFORK"), (11, "MADV_DOFORK"), (12, "MADV_MERGEABLE"),
    (14, "MADV_HUGEPAGE"), (15, "MADV_NOHUGEPAGE"), (16, "MADV_DONTDUMP"), (17, "MADV_DODUMP"),
    (18, "MADV_WIPEONFORK"), (19, "MADV_KEEPONFORK"), (20, "MADV_COLD"), (21, "MADV_PAGEOUT"),
    (22, "MADV_POPULATE_READ"), (23, "MADV_POPULATE_WRITE"),
];
pub(crate) const SYNC_FLAGS: Names = &[(1, "MS_ASYNC"), (2, "MS_INVALIDATE"), (4, "MS_SYNC")];
#[rustfmt::skip]
pub(crate) const RESOURCES: Names = &[
    (0, "RLIMIT_CPU"), (1, "RLIMIT_FSIZE"), (2, "RLIMIT_DATA"), (3, "RLIMIT_STACK"), (4, "RLIMIT_CORE"),
    (5, "RLIMIT_RSS"), (6, "RLIMIT_NPROC"), (7, "RLIMIT_NOFILE"), (8, "RLIMIT_MEMLOCK"), (9, "RLIMIT_AS"),
    (10, "RLIMIT_LOCKS"), (11, "RLIMIT_SIGPENDING"), (12, "RLIMIT_MSGQUEUE"), (13, "RLIMIT_NICE"),
    (14, "RLIMIT_RTPRIO"), (15, "RLIMIT_RTTIME"),
];
pub(crate) const MASK_CHANGES: Names = &[(0, "SIG_BLOCK"), (1, "SIG_UNBLOCK"), (2, "SIG_SETMASK")];
pub(crate) const TIMER_FLAGS: Names = &[(1, "TIMER_ABSTIME")];
pub(crate) const RANDOM_FLAGS: Names = &[(1, "GRND_NONBLOCK"), (2, "GRND_RANDOM"), (4, "GRND_INSECURE")];
#[rustfmt::skip]
pub(crate) const ARCH_OPERATIONS: Names = &[
    (0x1001, "ARCH_SET_GS"), (0x1002, "ARCH_SET_FS"), (0x1003, "ARCH_GET_FS"), (0x1004, "ARCH_GET_GS"),
    (0x1011, "ARCH_GET_CPUID"), (0x1012, "ARCH_SET_CPUID"), (0x3001, "ARCH_CET_STATUS"),
];
#[rustfmt::skip]
pub(crate) const FUTEX_OPERATIONS: Names = &[
    (0, "FUTEX_WAIT"), (1, "FUTEX_WAKE"), (128, "FUTEX_WAIT_PRIVATE"), (129, "FUTEX_WAKE_PRIVATE"),
    (9, "FUTEX_WAIT_BITSET"), (137, "FUTEX_WAIT_BITSET_PRIVATE"), (138, "FUTEX_WAKE_BITSET_PRIVATE"),
    (393, "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME"), (132, "FUTEX_CMP_REQUEUE_PRIVATE"),
    (134, "FUTEX_LOCK_PI_PRIVATE"), (135, "FUTEX_UNLOCK_PI_PRIVATE"),
];
pub(crate) const ACCESSES: Names = &[(0, "F_OK"), (4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
pub(crate) const FILE_FLAGS: Names = &[(0o2_000_000, "O_CLOEXEC"), (0o4000, "O_NONBLOCK"), (0o40_000, "O_DIRECT")];
pub(crate) const EPOLL_FLAGS: Names = &[(0o2_000_000, "EPOLL_CLOEXEC")];
pub(crate) const EVENT_FLAGS: Names = &[(1, "EFD_SEMAPHORE"), (0o2_000_000, "EFD_CLOEXEC"), (0o4000, "EFD_NONBLOCK")];
#[rustfmt::skip]
pub(crate) const CLOCKS: Names = &[
    (0, "CLOCK_REALTIME"), (1, "CLOCK_MONOTONIC"), (2, "CLOCK_PROCESS_CPUTIME_ID"), (3, "CLOCK_THREAD_CPUTIME_ID"),
    (4, "CLOCK_MONOTONIC_RAW"), (5, "CLOCK_REALTIME_COARSE"), (6, "CLOCK_MONOTONIC_COARSE"), (7, "CLOCK_BOOTTIME"),
    (8, "CLOCK_REALTIME_ALARM"), (9, "CLOCK_BOOTTIME_ALARM"), (11, "CLOCK_TAI"),
];
#[rustfmt::skip]
pub(crate) const IOCTLS: Names = &[
    (0x5401, "TCGETS"), (0x5402, "TCSETS"), (0x5403, "TCSETSW"), (0x5404, "TCSETSF"), (0x540e, "TIOCSCTTY"),
    (0x540f, "TIOCGPGRP"), (0x5410, "TIOCSPGRP"), (0x5413, "TIOCGWINSZ"), (0x5414, "TIOCSWINSZ"), (0x541b, "FIONREAD"),
    (0x5421, "FIONBIO"), (0x5422, "TIOCNOTTY"), (0x5429, "TIOCGSID"), (0x5450, "FIONCLEX"), (0x5451, "FIOCLEX"),
    (0x5452, "FIOASYNC"), (0x4004_9409, "FICLONE"),
];
#[rustfmt::skip]
pub(crate) const PROCESS_OPTIONS: Names = &[
    (1, "PR_SET_PDEATHSIG"), (2, "PR_GET_PDEATHSIG"), (3, "PR_GET_DUMPABLE"), (4, "PR_SET_DUMPABLE"),
    (15, "PR_SET_NAME"), (16, "PR_GET_NAME"), (21, "PR_GET_SECCOMP"), (22, "PR_SET_SECCOMP"),
    (23, "PR_CAPBSET_READ"), (38, "PR_SET_NO_NEW_PRIVS"), (39, "PR_GET_NO_NEW_PRIVS"), (0x5356_4d41, "PR_SET_VMA"),
];
