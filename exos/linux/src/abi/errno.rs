//! Error numbers of Linux on x86-64 (`asm-generic/errno-base.h`, `asm-generic/errno.h`).

use exos::error::Errno;

/// The positive number of an error.
#[must_use]
pub const fn number(errno: Errno) -> u32 {
    match errno {
        Errno::EPERM => 1,
        Errno::ENOENT => 2,
        Errno::ESRCH => 3,
        Errno::EINTR => 4,
        Errno::EIO => 5,
        Errno::ENXIO => 6,
        Errno::E2BIG => 7,
        Errno::ENOEXEC => 8,
        Errno::EBADF => 9,
        Errno::ECHILD => 10,
        Errno::EAGAIN => 11,
        Errno::ENOMEM => 12,
        Errno::EACCES => 13,
        Errno::EFAULT => 14,
        Errno::EBUSY => 16,
        Errno::EEXIST => 17,
        Errno::EXDEV => 18,
        Errno::ENODEV => 19,
        Errno::ENOTBLK => 15,
        Errno::ENOTDIR => 20,
        Errno::EISDIR => 21,
        Errno::EINVAL => 22,
        Errno::ENFILE => 23,
        Errno::EMFILE => 24,
        Errno::ENOTTY => 25,
        Errno::ETXTBSY => 26,
        Errno::EFBIG => 27,
        Errno::ENOSPC => 28,
        Errno::ESPIPE => 29,
        Errno::EROFS => 30,
        Errno::EMLINK => 31,
        Errno::EPIPE => 32,
        Errno::EDOM => 33,
        Errno::ERANGE => 34,
        Errno::EDEADLK => 35,
        Errno::ENAMETOOLONG => 36,
        Errno::ENOLCK => 37,
        Errno::ENOSYS => 38,
        Errno::ENOTEMPTY => 39,
        Errno::ELOOP => 40,
        Errno::ENOMSG => 42,
        Errno::EIDRM => 43,
        Errno::ENODATA => 61,
        Errno::EPROTO => 71,
        Errno::EOVERFLOW => 75,
        Errno::ESTALE => 116,
        Errno::ECANCELED => 125,
        Errno::EOWNERDEAD => 130,
        Errno::ENOTRECOVERABLE => 131,
        of_sockets => socket_number(of_sockets),
    }
}

/// The numbers of what sockets say; all others are above.
const fn socket_number(errno: Errno) -> u32 {
    match errno {
        Errno::ENOTSOCK => 88,
        Errno::EDESTADDRREQ => 89,
        Errno::EMSGSIZE => 90,
        Errno::EPROTOTYPE => 91,
        Errno::ENOPROTOOPT => 92,
        Errno::EPROTONOSUPPORT => 93,
        Errno::ESOCKTNOSUPPORT => 94,
        Errno::EOPNOTSUPP | Errno::ENOTSUP => 95,
        Errno::EAFNOSUPPORT => 97,
        Errno::EADDRINUSE => 98,
        Errno::EADDRNOTAVAIL => 99,
        Errno::ENETDOWN => 100,
        Errno::ENETUNREACH => 101,
        Errno::EHOSTUNREACH => 113,
        Errno::EHOSTDOWN => 112,
        Errno::ENONET => 64,
        Errno::ECONNABORTED => 103,
        Errno::ECONNRESET => 104,
        Errno::ENOBUFS => 105,
        Errno::EISCONN => 106,
        Errno::ENOTCONN => 107,
        Errno::ETOOMANYREFS => 109,
        Errno::ETIMEDOUT => 110,
        Errno::EBADR => 53,
        Errno::ETIME => 62,
        Errno::EBADFD => 77,
        Errno::ECONNREFUSED => 111,
        Errno::EALREADY => 114,
        Errno::EINPROGRESS => 115,
        _ => 22,
    }
}

/// RAX of a system call that failed: the negated number.
#[must_use]
pub const fn to_word(errno: Errno) -> u64 {
    (number(errno) as u64).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::number;
    use exos::error::Errno;

    #[test]
    fn only_invalid_arguments_have_the_number_of_invalid_arguments() {
        for errno in [Errno::ENOTSOCK, Errno::ECONNREFUSED, Errno::EALREADY, Errno::EINPROGRESS, Errno::EIDRM] {
            assert_ne!(number(errno), number(Errno::EINVAL), "{errno:?}");
        }
    }
}
