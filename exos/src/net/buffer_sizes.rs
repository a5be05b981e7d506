//! How large the buffers of a socket are (`SO_SNDBUF`, `SO_RCVBUF`), by the rule that all families share: twice what a
//! program asks for is kept, within limits, as the kernel's own bookkeeping counts too on Linux (socket(7)).

use core::sync::atomic::{AtomicUsize, Ordering};

/// Both at first, where a family has no other, and what a program may set either to (`net.core.rmem_max`).
pub const DEFAULT_BYTES: usize = 212_992;
/// Least that is kept for sending.
const SEND_BYTES_MIN: usize = 4608;
/// Least that is kept for receiving.
const RECEIVE_BYTES_MIN: usize = 2304;

/// What is kept where a program asks for so much for sending.
#[must_use]
pub const fn kept_send_bytes(wanted: usize) -> usize {
    kept(wanted, SEND_BYTES_MIN)
}

/// What is kept where a program asks for so much for receiving.
#[must_use]
pub const fn kept_receive_bytes(wanted: usize) -> usize {
    kept(wanted, RECEIVE_BYTES_MIN)
}

const fn kept(wanted: usize, least: usize) -> usize {
    let doubled = 2 * if wanted < DEFAULT_BYTES { wanted } else { DEFAULT_BYTES };
    if doubled < least { least } else { doubled }
}

/// Both sizes of a socket.
pub struct BufferSizes {
    send_bytes: AtomicUsize,
    receive_bytes: AtomicUsize,
}

impl BufferSizes {
    /// Both as they are at first.
    #[must_use]
    pub const fn new() -> Self {
        Self { send_bytes: AtomicUsize::new(DEFAULT_BYTES), receive_bytes: AtomicUsize::new(DEFAULT_BYTES) }
    }

    /// `SO_SNDBUF`.
    pub fn send_bytes(&self) -> usize {
        self.send_bytes.load(Ordering::Relaxed)
    }

    /// Sets it to what is kept of `wanted`.
    pub fn set_send_bytes(&self, wanted: usize) {
        self.send_bytes.store(kept_send_bytes(wanted), Ordering::Relaxed);
    }

    /// `SO_RCVBUF`.
    pub fn receive_bytes(&self) -> usize {
        self.receive_bytes.load(Ordering::Relaxed)
    }

    /// Sets it to what is kept of `wanted`.
    pub fn set_receive_bytes(&self, wanted: usize) {
        self.receive_bytes.store(kept_receive_bytes(wanted), Ordering::Relaxed);
    }
}

impl Default for BufferSizes {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{BufferSizes, kept_receive_bytes, kept_send_bytes};

    #[test]
    fn twice_what_was_asked_for_is_kept_within_limits() {
        assert_eq!(
            [0, 2303, 2304, 5000, 212_992, usize::MAX].map(kept_send_bytes),
            [4608, 4608, 4608, 10_000, 425_984, 425_984]
        );
        assert_eq!([0, 1151, 1153].map(kept_receive_bytes), [2304, 2304, 2306]);
        let sizes = BufferSizes::new();
        sizes.set_send_bytes(5000);
        assert_eq!((sizes.send_bytes(), sizes.receive_bytes()), (10_000, 212_992));
        sizes.set_receive_bytes(1);
        assert_eq!((sizes.send_bytes(), sizes.receive_bytes()), (10_000, 2304));
    }
}
