//! Guarded functions: a device that one domain owns and another drives, without having to be trusted.
//!
//! A driver tells a virtio device physical addresses. Where nothing translates them, the driver reaches all memory. So
//! the *guard* keeps the device: its registers, its descriptor tables and its available rings. The *driver* has a
//! window of memory and describes its buffers in rings of its own, by their places in the window. On each notification,
//! which is a call to the guard, the guard reads what is new there, once, checks and translates it, and writes it into
//! rings that the driver cannot write ([`function`], [`shadow`]). Nothing is copied but descriptors.
//!
//! What the device writes needs no guard: the used ring names chains by the numbers that the driver gave them, and lies
//! in pages that the driver only reads. So completions cost no call; the guard looks at them when it is called next,
//! and believes them no further than its own record goes.
//!
//! The driver's side is [`GuardedTransport`], one more [`crate::Transport`]: drivers do not know it from others.
//!
//! # Invariants
//!
//! - GUARD-1 A descriptor that the device can see lies within the driver's window, whole, and does not change from the
//!   moment in which it is shown until the device has returned its chain.
//! - GUARD-2 What the driver can write is read once for each use, by value; nothing is decided by what was read before.
//! - GUARD-3 A request takes a number of steps that is bounded by the size of a queue.
//! - GUARD-4 A driver that breaks a rule loses its device, which is reset at once; nobody else notices.
//!
//! # Layout of a function's memory
//!
//! | pages | driver | guard | device |
//! |---|---|---|---|
//! | window | reads, writes | | reads, writes |
//! | rings, one page for each queue: descriptors, then the available ring | reads, writes | reads | |
//! | used rings, one page for each queue | reads | reads, clears | writes |
//! | the device's descriptors and available rings | | writes | reads |

mod function;
mod shadow;
mod transport;

pub use function::{FunctionMemory, GuardedFunction};
pub use transport::{Guard, GuardedTransport};

use crate::console::DEVICE_TYPE_CONSOLE;
use crate::net::{self, DEVICE_TYPE_NET};
use crate::ninep::DEVICE_TYPE_NINEP;

/// Largest queue of a guarded function.
pub const GUARDED_QUEUE_SIZE_MAX: usize = 64;
/// Most queues of a guarded function.
pub const GUARDED_QUEUE_COUNT_MAX: usize = 14;

/// A request: operation, function, three arguments.
pub type Request = [u64; 5];
/// An answer: one of [`outcome`], and two values.
pub type Answer = [u64; 3];

/// What can be asked of the guard.
pub mod operation {
    /// What the function is. Values: its type (0: there is no such function); pages in its window | queues << 32.
    pub const DESCRIBE: u64 = 0;
    /// The status register.
    pub const STATUS: u64 = 1;
    /// Writes the status register: value.
    pub const SET_STATUS: u64 = 2;
    /// The features that can be taken.
    pub const FEATURES: u64 = 3;
    /// Takes features: bits.
    pub const SET_FEATURES: u64 = 4;
    /// The largest size of a queue: index. 0: there is no such queue.
    pub const QUEUE_SIZE_MAX: u64 = 5;
    /// Sets up a queue: index, size, address of its descriptors, which has to be its page of rings.
    pub const ENABLE_QUEUE: u64 = 6;
    /// Looks at a queue's rings: index.
    pub const KICK: u64 = 7;
    /// Lowers the interrupt and asks for the next. Value: bit 0 a queue's, bit 1 a change of configuration.
    pub const INTERRUPT: u64 = 8;
    /// Four bytes of the configuration: offset.
    pub const CONFIG: u64 = 9;
}

/// How a request ended.
pub mod outcome {
    /// As asked.
    pub const DONE: u64 = 0;
    /// An argument, or the time of the request, was wrong; nothing happened.
    pub const REFUSED: u64 = 1;
    /// The function has failed and needs a reset.
    pub const FAILED: u64 = 2;
}

/// What a function of a type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Pages for buffers.
    pub window_page_count: usize,
    /// Queues that the function has at most.
    pub queue_count: usize,
}

impl Geometry {
    /// Of a console with six ports, as many buffers as its driver has.
    pub const CONSOLE: Self = Self { window_page_count: 124, queue_count: 14 };
    /// Of a 9P transport with four lanes of 132 KiB each way, and its small messages.
    pub const NINEP: Self = Self { window_page_count: 273, queue_count: 1 };
    /// Of a network card with as many buffers in each direction as a guarded queue has descriptors.
    pub const NET: Self = Self {
        window_page_count: 2 * GUARDED_QUEUE_SIZE_MAX * net::BUFFER_BYTES / aegis_hal::PAGE_BYTES,
        queue_count: 2,
    };

    /// Of this type; `None`: it cannot be guarded, because what its requests mean is not known here.
    #[must_use]
    pub const fn of(device_type: u32) -> Option<Self> {
        match device_type {
            DEVICE_TYPE_CONSOLE => Some(Self::CONSOLE),
            DEVICE_TYPE_NINEP => Some(Self::NINEP),
            DEVICE_TYPE_NET => Some(Self::NET),
            _ => None,
        }
    }

    /// Pages that the driver writes: window and rings.
    #[must_use]
    pub const fn driver_page_count(&self) -> usize {
        self.window_page_count + self.queue_count
    }

    /// Pages of the device's descriptors and available rings.
    #[must_use]
    pub const fn device_page_count(&self) -> usize {
        (self.queue_count * shadow::DEVICE_BYTES).div_ceil(aegis_hal::PAGE_BYTES)
    }

    /// Where a queue's rings begin, as the driver tells addresses.
    #[must_use]
    pub const fn ring_address(&self, queue: usize) -> u64 {
        ((self.window_page_count + queue) * aegis_hal::PAGE_BYTES) as u64
    }
}
