//! Descriptors that a caller left open: none of them may reach a process that outlives this one, because engines wait
//! until the last copy of a pipe is closed.
#![allow(unsafe_code, reason = "there is no safe interface for close_range")]

/// From here on descriptors are not standard streams.
const FIRST: libc::c_uint = 3;

/// Has the kernel close every descriptor but the standard streams in programs that are started from here on.
pub(super) fn keep_to_oneself() {
    // SAFETY: the call takes three numbers and changes flags of descriptors alone; it closes none, so nothing that owns
    // one is affected. It fails before Linux 5.11, where descriptors stay as they were.
    let _ = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_uint)
    };
}
