//! `io_uring`'s structures and numbers (`linux/io_uring.h`), as far as they are used.

use crate::abi::bytes::{Encoder, get};

/// Bytes of `struct io_uring_sqe`, `struct io_uring_cqe`, `struct io_uring_params`.
pub const SQE_BYTES: usize = 64;
/// See above.
pub const CQE_BYTES: usize = 16;
/// See above.
pub const PARAMS_BYTES: usize = 120;

/// `IORING_OFF_CQ_RING`, `IORING_OFF_SQES`: what `mmap` maps where; the submission queue is at 0.
pub const COMPLETIONS_OFFSET: u64 = 0x800_0000;
/// See above.
pub const SQES_OFFSET: u64 = 0x1000_0000;

macro_rules! opcodes {
    ($($name:ident = $number:literal)*) => {
        $(
            #[doc = concat!("`IORING_OP_", stringify!($name), "`.")]
            pub const $name: u8 = $number;
        )*
        /// All that are done here.
        pub const ALL: &[u8] = &[$($number),*];
    };
}

/// `IORING_OP_*`.
pub mod opcode {
    opcodes! {
        NOP = 0 READV = 1 WRITEV = 2 FSYNC = 3 READ_FIXED = 4 WRITE_FIXED = 5 POLL_ADD = 6 POLL_REMOVE = 7
        SYNC_FILE_RANGE = 8 SENDMSG = 9 RECVMSG = 10 TIMEOUT = 11 TIMEOUT_REMOVE = 12 ACCEPT = 13 ASYNC_CANCEL = 14
        LINK_TIMEOUT = 15 CONNECT = 16 FALLOCATE = 17 OPENAT = 18 CLOSE = 19 FILES_UPDATE = 20 STATX = 21 READ = 22
        WRITE = 23 FADVISE = 24 MADVISE = 25 SEND = 26 RECV = 27 OPENAT2 = 28 EPOLL_CTL = 29 PROVIDE_BUFFERS = 31
        REMOVE_BUFFERS = 32 SHUTDOWN = 34 RENAMEAT = 35 UNLINKAT = 36 MKDIRAT = 37 SYMLINKAT = 38 LINKAT = 39
        SOCKET = 45
    }
    /// One more than the highest that Linux 6.1 has.
    pub const END: u8 = 49;
}

/// `IOSQE_*`.
pub mod sqe_flag {
    /// The descriptor is a place in the ring's table.
    pub const FIXED_FILE: u8 = 1;
    /// Begins when all before it have ended.
    pub const DRAIN: u8 = 2;
    /// The next begins when this has succeeded.
    pub const LINK: u8 = 4;
    /// The next begins when this has ended.
    pub const HARDLINK: u8 = 8;
    /// It need not be tried at once.
    pub const ASYNC: u8 = 16;
    /// It takes one of the buffers that were provided.
    pub const BUFFER_SELECT: u8 = 32;
    /// Success is not told.
    pub const CQE_SKIP_SUCCESS: u8 = 64;
    /// All of them.
    pub const ALL: u8 = 127;
    /// Those that tie it to the next.
    pub const LINKS: u8 = LINK | HARDLINK;
}

/// `IORING_CQE_F_*`.
pub mod cqe_flag {
    /// The upper half names a provided buffer.
    pub const BUFFER: u32 = 1;
    /// There will be more of this request.
    pub const MORE: u32 = 2;
}

/// `IORING_SETUP_*`.
pub mod setup {
    /// `cq_entries` says how long the completion queue is.
    pub const CQSIZE: u32 = 1 << 3;
    /// Too long is as long as can be.
    pub const CLAMP: u32 = 1 << 4;
    /// Workers are shared with another ring.
    pub const ATTACH_WQ: u32 = 1 << 5;
    /// Nothing is done before the ring is enabled.
    pub const R_DISABLED: u32 = 1 << 6;
    /// An error does not end a submission.
    pub const SUBMIT_ALL: u32 = 1 << 7;
    /// How completions interrupt the program.
    pub const COOP_TASKRUN: u32 = 1 << 8;
    /// `IORING_SQ_TASKRUN` is told.
    pub const TASKRUN_FLAG: u32 = 1 << 9;
    /// One thread submits.
    pub const SINGLE_ISSUER: u32 = 1 << 12;
    /// Completions come when they are waited for.
    pub const DEFER_TASKRUN: u32 = 1 << 13;
    /// Those that are taken.
    pub const ALL: u32 = CQSIZE
        | CLAMP
        | ATTACH_WQ
        | R_DISABLED
        | SUBMIT_ALL
        | COOP_TASKRUN
        | TASKRUN_FLAG
        | SINGLE_ISSUER
        | DEFER_TASKRUN;
}

/// `IORING_FEAT_*` that hold: `SINGLE_MMAP`, `NODROP`, `SUBMIT_STABLE`, `RW_CUR_POS`, `CUR_PERSONALITY`, `FAST_POLL`,
/// `POLL_32BITS`, `EXT_ARG`, `NATIVE_WORKERS`, `RSRC_TAGS`, `CQE_SKIP`, `LINKED_FILE`.
pub const FEATURES: u32 =
    1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;

/// `IORING_ENTER_*`.
pub mod enter {
    /// It waits for completions.
    pub const GETEVENTS: u64 = 1;
    /// The thread that submits is woken; there is none.
    pub const SQ_WAKEUP: u64 = 2;
    /// It waits for room; there always is.
    pub const SQ_WAIT: u64 = 4;
    /// The last argument is a structure with a time.
    pub const EXT_ARG: u64 = 8;
    /// Those that are taken.
    pub const ALL: u64 = GETEVENTS | SQ_WAKEUP | SQ_WAIT | EXT_ARG;
}

/// `IORING_TIMEOUT_*`.
pub mod timeout {
    /// The time is a point of time.
    pub const ABS: u32 = 1;
    /// The timeout is changed (of `TIMEOUT_REMOVE`).
    pub const UPDATE: u32 = 2;
    /// By the clock that goes on in sleep.
    pub const BOOTTIME: u32 = 4;
    /// By the time of day.
    pub const REALTIME: u32 = 8;
    /// It is a linked one that is changed.
    pub const LINK_UPDATE: u32 = 16;
    /// That it expired is no failure.
    pub const ETIME_SUCCESS: u32 = 32;
    /// The clocks, of which one is named.
    pub const CLOCKS: u32 = BOOTTIME | REALTIME;
}

/// `IORING_ASYNC_CANCEL_*`.
pub mod cancel {
    /// All that match.
    pub const ALL: u32 = 1;
    /// By the descriptor.
    pub const FD: u32 = 2;
    /// Any request.
    pub const ANY: u32 = 4;
    /// The descriptor is a place in the ring's table.
    pub const FD_FIXED: u32 = 8;
}

/// `struct io_uring_sqe`, copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqe {
    /// [`opcode`].
    pub opcode: u8,
    /// [`sqe_flag`].
    pub flags: u8,
    /// Priority, or flags of the request.
    pub priority: u16,
    /// Descriptor.
    pub descriptor: u32,
    /// Offset, or a second address.
    pub offset: u64,
    /// Address.
    pub address: u64,
    /// Length.
    pub length: u32,
    /// Flags of the call that it stands for.
    pub call_flags: u32,
    /// What comes back.
    pub user_data: u64,
    /// A registered buffer, or a group of provided ones.
    pub buffer: u16,
    /// Credentials that were registered.
    pub personality: u16,
    /// A second descriptor, or a place in the ring's table.
    pub file_index: u32,
    /// A third address.
    pub address3: u64,
}

impl Sqe {
    /// Of the structure's bytes.
    #[must_use]
    #[inline]
    pub fn decode(bytes: &[u8; SQE_BYTES]) -> Self {
        Self {
            opcode: bytes[0],
            flags: bytes[1],
            priority: get::u16(bytes, 2),
            descriptor: get::u32(bytes, 4),
            offset: get::u64(bytes, 8),
            address: get::u64(bytes, 16),
            length: get::u32(bytes, 24),
            call_flags: get::u32(bytes, 28),
            user_data: get::u64(bytes, 32),
            buffer: get::u16(bytes, 40),
            personality: get::u16(bytes, 42),
            file_index: get::u32(bytes, 44),
            address3: get::u64(bytes, 48),
        }
    }

    /// Whether it has a flag.
    #[must_use]
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// `struct io_uring_cqe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// Of its request.
    pub user_data: u64,
    /// A number, or a negative error.
    pub result: i32,
    /// [`cqe_flag`].
    pub flags: u32,
}

impl Cqe {
    /// As the program finds it.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u8; CQE_BYTES] {
        let mut bytes = [0; CQE_BYTES];
        bytes[..8].copy_from_slice(&self.user_data.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.result.to_le_bytes());
        bytes[12..].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }
}

/// Where the words of the rings are, from the start of their memory.
pub mod place {
    /// Submission queue: what was taken.
    pub const SQ_HEAD: usize = 0;
    /// Submission queue: what the program has put in.
    pub const SQ_TAIL: usize = 64;
    /// Completion queue: what the program has taken.
    pub const CQ_HEAD: usize = 128;
    /// Completion queue: what was put in.
    pub const CQ_TAIL: usize = 192;
    /// Length less one, of both.
    pub const SQ_MASK: usize = 256;
    /// See above.
    pub const CQ_MASK: usize = 260;
    /// Length, of both.
    pub const SQ_COUNT: usize = 264;
    /// See above.
    pub const CQ_COUNT: usize = 268;
    /// Places of the array that named no entry.
    pub const SQ_DROPPED: usize = 272;
    /// `IORING_SQ_*`.
    pub const SQ_FLAGS: usize = 276;
    /// `IORING_CQ_*`, the program's.
    pub const CQ_FLAGS: usize = 280;
    /// Completions that were lost.
    pub const CQ_OVERFLOW: usize = 284;
    /// The completions; the array of the submission queue comes behind them.
    pub const CQES: usize = 320;
}

/// `struct io_uring_params` as it is told, of a ring so long with its array there.
#[must_use]
pub fn params(flags: u32, [sq_count, cq_count]: [u32; 2], array: u32, thread: [u32; 3]) -> [u8; PARAMS_BYTES] {
    let [processor, idle, workers] = thread;
    let words = Encoder::new().u32(sq_count).u32(cq_count).u32(flags).u32(processor).u32(idle).u32(FEATURES);
    let words = words.u32(workers).u32(0).u32(0).u32(0);
    let submission = [
        place::SQ_HEAD,
        place::SQ_TAIL,
        place::SQ_MASK,
        place::SQ_COUNT,
        place::SQ_FLAGS,
        place::SQ_DROPPED,
        array as usize,
        0,
        0,
        0,
    ];
    let completion = [
        place::CQ_HEAD,
        place::CQ_TAIL,
        place::CQ_MASK,
        place::CQ_COUNT,
        place::CQ_OVERFLOW,
        place::CQES,
        place::CQ_FLAGS,
        0,
        0,
        0,
    ];
    let words = submission.iter().chain(&completion).fold(words, |words, place| words.u32(*place as u32));
    let mut bytes = [0; PARAMS_BYTES];
    bytes.copy_from_slice(&words.finish());
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Cqe, FEATURES, Sqe, params};
    use crate::abi::bytes::get;

    #[test]
    fn structures_are_where_linux_has_them() {
        let bytes = core::array::from_fn(|index| index as u8);
        let sqe = Sqe::decode(&bytes);
        assert_eq!((sqe.opcode, sqe.flags, sqe.priority, sqe.descriptor), (0, 1, 0x302, 0x706_0504));
        assert_eq!((sqe.length, sqe.call_flags, sqe.buffer), (0x1b1a_1918, 0x1f1e_1d1c, 0x2928));
        assert_eq!((sqe.personality, sqe.file_index), (0x2b2a, 0x2f2e_2d2c));
        let cqe = Cqe { user_data: 7, result: -1, flags: 2 }.encode();
        assert_eq!((get::u64(&cqe, 0), get::i32(&cqe, 8), get::u32(&cqe, 12)), (7, -1, 2));
        let told = params(8, [4, 8], 448, [0; 3]);
        assert_eq!([0, 4, 8, 20].map(|at| get::u32(&told, at)), [4, 8, 8, FEATURES]);
        // sq_off.array, cq_off.head, cq_off.cqes.
        assert_eq!([64, 80, 100].map(|at| get::u32(&told, at)), [448, 128, 320]);
    }
}
