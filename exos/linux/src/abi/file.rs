//! Files as programs see them: flags of `open` and of the `…at` calls, commands, and the structures that tell about
//! files.
//!
//! Sources: `asm-generic/fcntl.h`, `linux/fcntl.h`, `asm/stat.h`, `linux/stat.h`, `asm-generic/statfs.h`,
//! `asm-generic/ioctls.h`, `asm-generic/termbits.h`.

use alloc::vec::Vec;

use exos::fs::description::StatusFlags;
use exos::fs::location::{Location, MountFlags};
use exos::fs::namespace::PSEUDO_DEVICE;
use exos::fs::stream::{TerminalModes, WindowSize};
use exos::fs::vnode::{FileKind, FileSystemStatistics, Metadata, NAME_BYTES_MAX, Timestamp};

use super::bytes::{Encoder, get};

/// `O_ACCMODE`.
pub const O_ACCESS_MODE: u64 = 3;
/// `O_CREAT`.
pub const O_CREATE: u64 = 0o100;
/// `O_EXCL`.
pub const O_EXCLUSIVE: u64 = 0o200;
/// `O_NOCTTY`.
pub const O_NO_CONTROLLING_TERMINAL: u64 = 0o400;
/// `O_TRUNC`.
pub const O_TRUNCATE: u64 = 0o1000;
/// `O_NONBLOCK`.
pub const O_NON_BLOCKING: u64 = 0o4000;
/// `O_DIRECT`.
pub const O_DIRECT: u64 = 0o40000;
/// `O_LARGEFILE`: without effect on 64-bit machines, but `F_GETFL` shows it.
pub const O_LARGE_FILE: u64 = 0o100_000;
/// `O_DIRECTORY`.
pub const O_DIRECTORY: u64 = 0o200_000;
/// `O_NOFOLLOW`.
pub const O_NO_FOLLOW: u64 = 0o400_000;
/// `O_CLOEXEC`.
pub const O_CLOSE_ON_EXEC: u64 = 0o2_000_000;
/// `O_PATH`.
pub const O_PATH_ONLY: u64 = 0o10_000_000;
/// `__O_TMPFILE`, which comes with `O_DIRECTORY`.
pub const O_UNNAMED: u64 = 0o20_000_000;
/// Half of `O_SYNC`; the other half is `O_DSYNC`.
const O_SYNC_ONLY: u64 = 0o4_000_000;
const O_DATA_SYNC: u64 = 0o10_000;

/// The flags that a description keeps, in both languages.
const STATUS: &[(u64, StatusFlags)] = &[
    (0o2000, StatusFlags::APPEND),
    (O_NON_BLOCKING, StatusFlags::NON_BLOCKING),
    (O_DATA_SYNC, StatusFlags::DATA_SYNC),
    (0o20_000, StatusFlags::ASYNC),
    (O_DIRECT, StatusFlags::DIRECT),
    (O_DIRECTORY, StatusFlags::DIRECTORY),
    (O_NO_FOLLOW, StatusFlags::NO_FOLLOW),
    (0o1_000_000, StatusFlags::NO_ACCESS_TIME),
    (O_SYNC_ONLY, StatusFlags::SYNC),
    (O_PATH_ONLY, StatusFlags::PATH_ONLY),
    (O_UNNAMED, StatusFlags::UNNAMED),
];

/// Every flag that `open` knows (`VALID_OPEN_FLAGS`).
pub const O_KNOWN: u64 = O_ACCESS_MODE
    | O_CREATE
    | O_EXCLUSIVE
    | O_NO_CONTROLLING_TERMINAL
    | O_TRUNCATE
    | 0o2000
    | O_NON_BLOCKING
    | O_DATA_SYNC
    | 0o20_000
    | O_DIRECT
    | O_LARGE_FILE
    | O_DIRECTORY
    | O_NO_FOLLOW
    | 0o1_000_000
    | O_CLOSE_ON_EXEC
    | O_SYNC_ONLY
    | O_PATH_ONLY
    | O_UNNAMED;
/// What goes together with `O_PATH`.
pub const O_WITH_PATH_ONLY: u64 = O_DIRECTORY | O_NO_FOLLOW | O_PATH_ONLY | O_CLOSE_ON_EXEC;

/// The flags of a description among `open`'s flags.
#[must_use]
pub fn status_flags(flags: u64) -> StatusFlags {
    let mut status = StatusFlags::empty();
    for (number, flag) in STATUS {
        status.set(*flag, flags & number != 0);
    }
    // O_SYNC includes O_DSYNC.
    status.set(StatusFlags::DATA_SYNC, flags & (O_DATA_SYNC | O_SYNC_ONLY) != 0);
    status
}

/// The numbers of a description's flags.
#[must_use]
pub fn status_number(status: StatusFlags) -> u64 {
    STATUS.iter().filter(|(_, flag)| status.contains(*flag)).map(|(number, _)| number).sum()
}

/// `AT_SYMLINK_NOFOLLOW` and its kin are in [`crate::file::files`]; this is `AT_STATX_SYNC_TYPE`, two bits that must
/// not both be set.
pub const AT_STATX_SYNC_TYPE: u64 = 0x6000;
/// `AT_EACCESS`.
pub const AT_EFFECTIVE_ACCESS: u64 = 0x200;

/// Commands of `fcntl`.
pub mod control {
    /// `F_DUPFD`.
    pub const DUPLICATE: u64 = 0;
    /// `F_GETFD`.
    pub const GET_DESCRIPTOR_FLAGS: u64 = 1;
    /// `F_SETFD`.
    pub const SET_DESCRIPTOR_FLAGS: u64 = 2;
    /// `F_GETFL`.
    pub const GET_STATUS: u64 = 3;
    /// `F_SETFL`.
    pub const SET_STATUS: u64 = 4;
    /// `F_GETLK`.
    pub const GET_LOCK: u64 = 5;
    /// `F_SETLK`.
    pub const SET_LOCK: u64 = 6;
    /// `F_SETLKW`.
    pub const SET_LOCK_WAIT: u64 = 7;
    /// `F_SETOWN`.
    pub const SET_OWNER: u64 = 8;
    /// `F_GETOWN`.
    pub const GET_OWNER: u64 = 9;
    /// `F_SETSIG`.
    pub const SET_SIGNAL: u64 = 10;
    /// `F_GETSIG`.
    pub const GET_SIGNAL: u64 = 11;
    /// `F_SETOWN_EX`.
    pub const SET_OWNER_KIND: u64 = 15;
    /// `F_GETOWN_EX`.
    pub const GET_OWNER_KIND: u64 = 16;
    /// `F_SETLEASE`.
    pub const SET_LEASE: u64 = 1024;
    /// `F_GETLEASE`.
    pub const GET_LEASE: u64 = 1025;
    /// `F_NOTIFY`.
    pub const NOTIFY: u64 = 1026;
    /// `F_OFD_GETLK`.
    pub const GET_DESCRIPTION_LOCK: u64 = 36;
    /// `F_OFD_SETLK`.
    pub const SET_DESCRIPTION_LOCK: u64 = 37;
    /// `F_OFD_SETLKW`.
    pub const SET_DESCRIPTION_LOCK_WAIT: u64 = 38;
    /// `F_DUPFD_CLOEXEC`.
    pub const DUPLICATE_CLOSE_ON_EXEC: u64 = 1030;
    /// `F_SETPIPE_SZ`.
    pub const SET_PIPE_SIZE: u64 = 1031;
    /// `F_GETPIPE_SZ`.
    pub const GET_PIPE_SIZE: u64 = 1032;
    /// `F_ADD_SEALS`.
    pub const ADD_SEALS: u64 = 1033;
    /// `F_GET_SEALS`.
    pub const GET_SEALS: u64 = 1034;
    /// `F_DUPFD_QUERY`.
    pub const IS_DUPLICATE_OF: u64 = 1027;
}

/// Requests of `ioctl`.
pub mod request {
    /// `FIGETBSZ`.
    pub const GET_BLOCK_SIZE: u32 = 2;
    /// `FIOQSIZE`.
    pub const GET_SIZE: u32 = 0x5460;
    /// `FICLONE`.
    pub const CLONE_FILE: u32 = 0x4004_9409;
    /// `FICLONERANGE`.
    pub const CLONE_RANGE: u32 = 0x4020_940d;
    /// `TCGETS`.
    pub const GET_MODES: u32 = 0x5401;
    /// `TCSETS`, `TCSETSW`, `TCSETSF`.
    pub const SET_MODES: [u32; 3] = [0x5402, 0x5403, 0x5404];
    /// `TCGETA`.
    pub const GET_SHORT_MODES: u32 = 0x5405;
    /// `TCSETA`, `TCSETAW`, `TCSETAF`.
    pub const SET_SHORT_MODES: [u32; 3] = [0x5406, 0x5407, 0x5408];
    /// `TCSETAF`.
    pub const SET_SHORT_MODES_FLUSHING: u32 = 0x5408;
    /// `TIOCGLCKTRMIOS`.
    pub const GET_LOCKED_MODES: u32 = 0x5456;
    /// `TCGETS2`.
    pub const GET_MODES_2: u32 = 0x802c_542a;
    /// `TCSETS2`, `TCSETSW2`, `TCSETSF2`.
    pub const SET_MODES_2: [u32; 3] = [0x402c_542b, 0x402c_542c, 0x402c_542d];
    /// `TCSBRK`, `TCXONC`, `TCFLSH`, and the breaks that no terminal here can send: `TCSBRKP`, `TIOCSBRK`, `TIOCCBRK`.
    pub const LINE_CONTROL: [u32; 6] = [0x5409, 0x540a, 0x540b, 0x5425, 0x5427, 0x5428];
    /// `TIOCVHANGUP`.
    pub const HANG_UP: u32 = 0x5437;
    /// `TIOCSCTTY`.
    pub const SET_CONTROLLING_TERMINAL: u32 = 0x540e;
    /// `TIOCGPGRP`.
    pub const GET_FOREGROUND_GROUP: u32 = 0x540f;
    /// `TIOCSPGRP`.
    pub const SET_FOREGROUND_GROUP: u32 = 0x5410;
    /// `TIOCGWINSZ`.
    pub const GET_WINDOW_SIZE: u32 = 0x5413;
    /// `TIOCSWINSZ`.
    pub const SET_WINDOW_SIZE: u32 = 0x5414;
    /// `FIONREAD`.
    pub const GET_READABLE_COUNT: u32 = 0x541b;
    /// `FIONBIO`.
    pub const SET_NON_BLOCKING: u32 = 0x5421;
    /// `TIOCGSID`.
    pub const GET_SESSION: u32 = 0x5429;
    /// `TCSETSF`.
    pub const SET_MODES_FLUSHING: u32 = 0x5404;
    /// `TCSETSF2`.
    pub const SET_MODES_2_FLUSHING: u32 = 0x402c_542d;
    /// `TCXONC`.
    pub const FLOW: u32 = 0x540a;
    /// `TCFLSH`.
    pub const FLUSH: u32 = 0x540b;
    /// `TIOCOUTQ`, `SIOCOUTQ`.
    pub const GET_UNSENT_COUNT: u32 = 0x5411;
    /// `TIOCSTI`.
    pub const TYPE_IN: u32 = 0x5412;
    /// `TIOCEXCL`.
    pub const MAKE_EXCLUSIVE: u32 = 0x540c;
    /// `TIOCNXCL`.
    pub const END_EXCLUSIVE: u32 = 0x540d;
    /// `TIOCGEXCL`.
    pub const GET_EXCLUSIVE: u32 = 0x8004_5440;
    /// `TIOCGSOFTCAR`.
    pub const GET_SOFT_CARRIER: u32 = 0x5419;
    /// `TIOCSSOFTCAR`.
    pub const SET_SOFT_CARRIER: u32 = 0x541a;
    /// `TIOCSETD`.
    pub const SET_DISCIPLINE: u32 = 0x5423;
    /// `TIOCGETD`.
    pub const GET_DISCIPLINE: u32 = 0x5424;
    /// `TIOCSIG`.
    pub const SEND_SIGNAL: u32 = 0x4004_5436;
    /// `TIOCPKT`.
    pub const SET_PACKETS: u32 = 0x5420;
    /// `TIOCNOTTY`.
    pub const GIVE_UP_CONTROL: u32 = 0x5422;
    /// `TIOCGPTN`.
    pub const GET_NUMBER: u32 = 0x8004_5430;
    /// `TIOCSPTLCK`.
    pub const SET_LOCK: u32 = 0x4004_5431;
    /// `TIOCGPKT`.
    pub const GET_PACKETS: u32 = 0x8004_5438;
    /// `TIOCGPTLCK`.
    pub const GET_LOCK: u32 = 0x8004_5439;
    /// `TIOCGPTPEER`.
    pub const OPEN_PEER: u32 = 0x5441;
    /// `FIONCLEX`.
    pub const KEEP_ON_EXEC: u32 = 0x5450;
    /// `FIOCLEX`.
    pub const CLOSE_ON_EXEC: u32 = 0x5451;
    /// `FIOASYNC`.
    pub const SET_ASYNC: u32 = 0x5452;
    /// `FIOSETOWN`.
    pub const SET_OWNER: u32 = 0x8901;
    /// `SIOCSPGRP`.
    pub const SET_SOCKET_GROUP: u32 = 0x8902;
    /// `FIOGETOWN`.
    pub const GET_OWNER: u32 = 0x8903;
    /// `SIOCGPGRP`.
    pub const GET_SOCKET_GROUP: u32 = 0x8904;
}

/// Bytes of `struct stat`.
pub const STAT_BYTES: usize = 144;
/// Bytes of `struct statx`.
pub const STATX_BYTES: usize = 256;
/// Bytes of `struct statfs`.
pub const STATFS_BYTES: usize = 120;
/// Bytes of `struct flock`.
pub const LOCK_BYTES: usize = 32;
/// `st_blksize`: what is efficient to read at once.
const BLOCK_BYTES: u32 = 4096;

/// `st_mode`. What has no name and is no pipe or socket (`anon_inode:[…]`) has no type on Linux.
fn mode(metadata: &Metadata) -> u32 {
    if metadata.kind == FileKind::Regular && metadata.device == PSEUDO_DEVICE {
        metadata.permissions
    } else {
        metadata.mode()
    }
}

/// `struct stat`.
#[must_use]
pub fn stat(metadata: &Metadata) -> [u8; STAT_BYTES] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let time = |time: Timestamp| [time.seconds as u64, u64::from(time.nanoseconds)];
    let [accessed_s, accessed_ns] = time(metadata.accessed);
    let [modified_s, modified_ns] = time(metadata.modified);
    let [changed_s, changed_ns] = time(metadata.changed);
    words([
        metadata.device.encoded(),
        metadata.inode_number,
        u64::from(metadata.link_count),
        pair(mode(metadata), metadata.uid),
        pair(metadata.gid, 0),
        metadata.device_node.encoded(),
        metadata.size_bytes,
        u64::from(BLOCK_BYTES),
        metadata.block_count,
        accessed_s,
        accessed_ns,
        modified_s,
        modified_ns,
        changed_s,
        changed_ns,
        0,
        0,
        0,
    ])
}

/// A structure that is all words.
#[inline]
fn words<const WORD_COUNT: usize, const BYTE_COUNT: usize>(words: [u64; WORD_COUNT]) -> [u8; BYTE_COUNT] {
    const { assert!(WORD_COUNT * 8 == BYTE_COUNT) };
    let mut bytes = [0; BYTE_COUNT];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// `struct statx` with all that is known, whatever was asked for, as Linux fills it.
#[must_use]
pub fn statx(location: &Location) -> Vec<u8> {
    const BASIC: u32 = 0x7ff;
    const CREATED: u32 = 0x800;
    const MOUNT_ID: u32 = 0x1000;
    const ATTRIBUTE_MOUNT_ROOT: u64 = 0x2000;
    let metadata = location.inode().metadata();
    let time = |encoder: Encoder, time: Timestamp| encoder.i64(time.seconds).u32(time.nanoseconds).u32(0);
    let mask = BASIC | MOUNT_ID | if metadata.created.is_some() { CREATED } else { 0 };
    let attributes = if location.is_mount_root() { ATTRIBUTE_MOUNT_ROOT } else { 0 };
    let encoder = Encoder::new()
        .u32(mask)
        .u32(BLOCK_BYTES)
        .u64(attributes)
        .u32(metadata.link_count)
        .u32(metadata.uid)
        .u32(metadata.gid)
        .u16(mode(&metadata) as u16)
        .u16(0)
        .u64(metadata.inode_number)
        .u64(metadata.size_bytes)
        .u64(metadata.block_count)
        .u64(ATTRIBUTE_MOUNT_ROOT);
    let encoder = time(encoder, metadata.accessed);
    let encoder = time(encoder, metadata.created.unwrap_or_default());
    let encoder = time(encoder, metadata.changed);
    time(encoder, metadata.modified)
        .u32(metadata.device_node.major)
        .u32(metadata.device_node.minor)
        .u32(metadata.device.major)
        .u32(metadata.device.minor)
        .u64(u64::from(location.mount().id))
        .zero_to(STATX_BYTES)
        .finish()
}

/// `struct statfs`.
#[must_use]
pub fn statfs(statistics: &FileSystemStatistics, flags: MountFlags) -> Vec<u8> {
    const VALID: u64 = 0x20;
    const NO_ACCESS_TIME: u64 = 0x400;
    const RELATIVE_ACCESS_TIME: u64 = 0x1000;
    let mut flag_bits = VALID;
    for (flag, bit) in [
        (MountFlags::READ_ONLY, 1),
        (MountFlags::NO_SET_ID, 2),
        (MountFlags::NO_DEVICES, 4),
        (MountFlags::NO_EXECUTE, 8),
    ] {
        flag_bits |= if flags.contains(flag) { bit } else { 0 };
    }
    flag_bits |= if flags.contains(MountFlags::NO_ACCESS_TIME) { NO_ACCESS_TIME } else { RELATIVE_ACCESS_TIME };
    Encoder::new()
        .u64(statistics.magic)
        .u64(statistics.block_bytes)
        .u64(statistics.block_count)
        .u64(statistics.free_block_count)
        .u64(statistics.free_block_count)
        .u64(statistics.inode_count)
        .u64(statistics.free_inode_count)
        .u64(0)
        .u64(NAME_BYTES_MAX as u64)
        .u64(statistics.block_bytes)
        .u64(flag_bits)
        .zero_to(STATFS_BYTES)
        .finish()
}

/// `d_type` of a kind: the type bits of the mode, shifted.
#[must_use]
pub fn entry_type(kind: FileKind) -> u8 {
    (kind.mode_bits() >> 12) as u8
}

/// `struct winsize`.
#[must_use]
pub fn window_size(size: WindowSize) -> Vec<u8> {
    Encoder::new().u16(size.row_count).u16(size.column_count).u16(size.width_pixels).u16(size.height_pixels).finish()
}

/// The reverse of [`window_size`].
#[must_use]
pub fn read_window_size(bytes: &[u8; 8]) -> WindowSize {
    WindowSize {
        row_count: get::u16(bytes, 0),
        column_count: get::u16(bytes, 2),
        width_pixels: get::u16(bytes, 4),
        height_pixels: get::u16(bytes, 6),
    }
}

/// Bytes of a `struct termio`, and control characters in it.
pub const SHORT_MODES_BYTES: usize = 18;
const SHORT_CHARACTER_COUNT: usize = 8;

/// `struct termios` of the kernel, 36 bytes.
#[must_use]
pub fn terminal_modes(modes: &TerminalModes) -> Vec<u8> {
    Encoder::new()
        .u32(modes.input)
        .u32(modes.output)
        .u32(modes.control)
        .u32(modes.local)
        .u8(modes.line)
        .raw(&modes.characters)
        .finish()
}

/// `struct termio`, the older form: 18 bytes.
#[must_use]
pub fn short_terminal_modes(modes: &TerminalModes) -> Vec<u8> {
    let flags = [modes.input, modes.output, modes.control, modes.local].map(|flags| flags as u16);
    let encoder = flags.into_iter().fold(Encoder::new(), Encoder::u16).u8(modes.line);
    encoder.raw(&modes.characters[..SHORT_CHARACTER_COUNT]).zero_to(SHORT_MODES_BYTES).finish()
}

/// Puts a `struct termio` over the lower halves of what is there.
pub fn read_short_terminal_modes(bytes: &[u8; SHORT_MODES_BYTES], modes: &mut TerminalModes) {
    let TerminalModes { input, output, control, local, line, characters } = modes;
    for (place, flags) in [input, output, control, local].into_iter().enumerate() {
        *flags = *flags & !0xffff | u32::from(get::u16(bytes, 2 * place));
    }
    *line = bytes[8];
    characters[..SHORT_CHARACTER_COUNT].copy_from_slice(&bytes[9..9 + SHORT_CHARACTER_COUNT]);
}

/// The reverse of [`terminal_modes`].
#[must_use]
pub fn read_terminal_modes(bytes: &[u8; 36]) -> TerminalModes {
    let mut characters = [0; 19];
    characters.copy_from_slice(&bytes[17..]);
    TerminalModes {
        input: get::u32(bytes, 0),
        output: get::u32(bytes, 4),
        control: get::u32(bytes, 8),
        local: get::u32(bytes, 12),
        line: bytes[16],
        characters,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        STAT_BYTES, STATFS_BYTES, get, read_short_terminal_modes, read_terminal_modes, short_terminal_modes, stat,
        statfs, status_flags, status_number, terminal_modes,
    };
    use exos::fs::description::StatusFlags;
    use exos::fs::location::MountFlags;
    use exos::fs::stream::TerminalModes;
    use exos::fs::vnode::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, Timestamp};

    #[test]
    fn stat_has_the_layout_of_linux() {
        let time = |seconds| Timestamp { seconds, nanoseconds: 7 };
        let bytes = stat(&Metadata {
            device: DeviceNumber { major: 8, minor: 257 },
            inode_number: 11,
            kind: FileKind::CharacterDevice,
            permissions: 0o4755,
            link_count: 3,
            uid: 1,
            gid: 2,
            device_node: DeviceNumber { major: 1, minor: 3 },
            size_bytes: 4097,
            block_count: 16,
            accessed: time(100),
            modified: time(-200),
            changed: time(300),
            created: None,
        });
        assert_eq!(bytes.len(), STAT_BYTES);
        assert_eq!(get::u64(&bytes, 0), 0x10_0801);
        assert_eq!(get::u64(&bytes, 8), 11);
        assert_eq!(get::u64(&bytes, 16), 3);
        assert_eq!(get::u32(&bytes, 24), 0o024_755);
        assert_eq!((get::u32(&bytes, 28), get::u32(&bytes, 32)), (1, 2));
        assert_eq!(get::u64(&bytes, 40), 0x103);
        assert_eq!(get::u64(&bytes, 48), 4097);
        assert_eq!((get::u64(&bytes, 56), get::u64(&bytes, 64)), (4096, 16));
        assert_eq!((get::i64(&bytes, 72), get::u64(&bytes, 80)), (100, 7));
        assert_eq!(get::i64(&bytes, 88), -200);
        assert_eq!(get::i64(&bytes, 104), 300);
    }

    #[test]
    fn status_flags_come_back() {
        assert_eq!(status_number(StatusFlags::all()), 0o35_676_000);
        for flag in StatusFlags::all().iter().filter(|flag| status_number(*flag) != 0) {
            let back = status_flags(status_number(flag));
            assert!(back.contains(flag));
        }
        assert!(status_flags(0o4_000_000).contains(StatusFlags::DATA_SYNC));
    }

    #[test]
    fn terminal_modes_come_back() {
        let bytes = terminal_modes(&TerminalModes::DEFAULT);
        let array: [u8; 36] = bytes.try_into().expect("36 bytes");
        assert_eq!(read_terminal_modes(&array), TerminalModes::DEFAULT);
        let short = short_terminal_modes(&TerminalModes { input: 0x1_2345, line: 7, ..TerminalModes::DEFAULT });
        let mut modes = TerminalModes { input: 0x6_0000, ..TerminalModes::DEFAULT };
        modes.characters = [9; 19];
        read_short_terminal_modes(&short.try_into().expect("18 bytes"), &mut modes);
        assert_eq!((modes.input, modes.line, modes.local), (0x6_2345, 7, TerminalModes::DEFAULT.local));
        assert_eq!(modes.characters[..9], [3, 28, 127, 21, 4, 0, 1, 0, 9]);
    }

    #[test]
    fn statfs_has_the_layout_of_linux() {
        let statistics = FileSystemStatistics {
            magic: 0x0102_1994,
            block_bytes: 4096,
            block_count: 10,
            free_block_count: 4,
            inode_count: 20,
            free_inode_count: 5,
        };
        let bytes = statfs(&statistics, MountFlags::READ_ONLY);
        assert_eq!(bytes.len(), STATFS_BYTES);
        assert_eq!((get::u64(&bytes, 0), get::u64(&bytes, 64)), (0x0102_1994, 255));
        assert_eq!((get::u64(&bytes, 32), get::u64(&bytes, 48)), (4, 5));
        assert_eq!(get::u64(&bytes, 80), 0x1021);
    }
}
