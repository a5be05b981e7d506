//! Files as programs see them: flags of `open` and of the `…at` calls, commands, and the structures that tell about
//! files.
//!
//! Sources: `asm-generic/fcntl.h`, `linux/fcntl.h`, `asm/stat.h`, `linux/stat.h`, `asm-generic/statfs.h`,
//! `asm-generic/ioctls.h`, `asm-generic/termbits.h`.

use alloc::vec::Vec;

use exos::fs::description::StatusFlags;
use exos::fs::location::{Location, MountFlags};
use exos::fs::metadata::{FileKind, FileSystemStatistics, Metadata, Timestamp};
use exos::fs::namespace::PSEUDO_DEVICE;
use exos::fs::terminal::modes::{TerminalModes, WindowSize};
use exos::fs::vnode::NAME_BYTES_MAX;

use super::bytes::{Encoder, get};
use crate::abi::linux::{
    __O_SYNC, __O_TMPFILE, FASYNC, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC, O_EXCL,
    O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_TRUNC, STATX_ATTR_MOUNT_ROOT,
    STATX_BASIC_STATS, STATX_BTIME, STATX_MNT_ID,
};

/// The flags that a description keeps, in both languages.
const STATUS: &[(u64, StatusFlags)] = &[
    (O_APPEND, StatusFlags::APPEND),
    (O_NONBLOCK, StatusFlags::NON_BLOCKING),
    (O_DSYNC, StatusFlags::DATA_SYNC),
    (FASYNC, StatusFlags::ASYNC),
    (O_DIRECT, StatusFlags::DIRECT),
    (O_DIRECTORY, StatusFlags::DIRECTORY),
    (O_NOFOLLOW, StatusFlags::NO_FOLLOW),
    (O_NOATIME, StatusFlags::NO_ACCESS_TIME),
    (__O_SYNC, StatusFlags::SYNC),
    (O_PATH, StatusFlags::PATH_ONLY),
    (__O_TMPFILE, StatusFlags::UNNAMED),
];

/// Every flag that `open` knows (`VALID_OPEN_FLAGS`).
pub const O_KNOWN: u64 = O_ACCMODE
    | O_CREAT
    | O_EXCL
    | O_NOCTTY
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | O_DSYNC
    | FASYNC
    | O_DIRECT
    | O_LARGEFILE
    | O_DIRECTORY
    | O_NOFOLLOW
    | O_NOATIME
    | O_CLOEXEC
    | __O_SYNC
    | O_PATH
    | __O_TMPFILE;
/// What goes together with `O_PATH`.
pub const O_WITH_PATH_ONLY: u64 = O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC;

/// The flags of a description among `open`'s flags.
#[must_use]
pub fn status_flags(flags: u64) -> StatusFlags {
    let mut status = StatusFlags::empty();
    for (number, flag) in STATUS {
        status.set(*flag, flags & number != 0);
    }
    // O_SYNC includes O_DSYNC.
    status.set(StatusFlags::DATA_SYNC, flags & (O_DSYNC | __O_SYNC) != 0);
    status
}

/// The numbers of a description's flags.
#[must_use]
pub fn status_number(status: StatusFlags) -> u64 {
    STATUS.iter().filter(|(_, flag)| status.contains(*flag)).map(|(number, _)| number).sum()
}

/// Requests of `ioctl` that are handled together.
pub mod request {
    use crate::abi::linux::{
        TCFLSH, TCSBRK, TCSBRKP, TCSETA, TCSETAF, TCSETAW, TCSETS, TCSETS2, TCSETSF, TCSETSF2, TCSETSW, TCSETSW2,
        TCXONC, TIOCCBRK, TIOCSBRK,
    };

    /// `TCSETS`, `TCSETSW`, `TCSETSF`.
    pub const SET_MODES: [u32; 3] = [TCSETS, TCSETSW, TCSETSF];
    /// `TCSETA`, `TCSETAW`, `TCSETAF`.
    pub const SET_SHORT_MODES: [u32; 3] = [TCSETA, TCSETAW, TCSETAF];
    /// `TCSETS2`, `TCSETSW2`, `TCSETSF2`.
    pub const SET_MODES_2: [u32; 3] = [TCSETS2, TCSETSW2, TCSETSF2];
    /// `TCSBRK`, `TCXONC`, `TCFLSH`, and the breaks that no terminal here can send: `TCSBRKP`, `TIOCSBRK`, `TIOCCBRK`.
    pub const LINE_CONTROL: [u32; 6] = [TCSBRK, TCXONC, TCFLSH, TCSBRKP, TIOCSBRK, TIOCCBRK];
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
    let metadata = location.inode().metadata();
    let time = |encoder: Encoder, time: Timestamp| encoder.i64(time.seconds).u32(time.nanoseconds).u32(0);
    let mask = STATX_BASIC_STATS | STATX_MNT_ID | if metadata.created.is_some() { STATX_BTIME } else { 0 };
    let attributes = if location.is_mount_root() { STATX_ATTR_MOUNT_ROOT } else { 0 };
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
        .u64(STATX_ATTR_MOUNT_ROOT);
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
    const ST_VALID: u64 = 0x20;
    const ST_NOATIME: u64 = 0x400;
    const ST_RELATIME: u64 = 0x1000;
    let mut flag_bits = ST_VALID;
    for (flag, bit) in [
        (MountFlags::READ_ONLY, 1),
        (MountFlags::NO_SET_ID, 2),
        (MountFlags::NO_DEVICES, 4),
        (MountFlags::NO_EXECUTE, 8),
    ] {
        flag_bits |= if flags.contains(flag) { bit } else { 0 };
    }
    flag_bits |= if flags.contains(MountFlags::NO_ACCESS_TIME) { ST_NOATIME } else { ST_RELATIME };
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
    use exos::fs::metadata::{DeviceNumber, FileKind, FileSystemStatistics, Metadata, Timestamp};
    use exos::fs::terminal::modes::TerminalModes;

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
