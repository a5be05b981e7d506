//! Everything in exos that is unsafe: the traits of `exos::platform` over `aegis-rt`, the heap, copies to and from
//! the program's memory, upcall entry, and the mapped device registers.
//!
//! The rest of the crate is safe code over these. The window's layout is decided here (the kernel fixes only what
//! `aegis_abi::layout` says):
//!
//! | offset in the window | what |
//! |---|---|
//! | 0 .. 2 MiB | boot pages, control page and save area of processor 0 (`aegis_abi::layout`) |
//! | 16 MiB .. | the image |
//! | 64 GiB .. | [`HEAP_BASE`]: exos's heap, 2 MiB pages |
//! | 128 GiB .. | [`DEVICE_BASE`]: device registers |
//! | 1 TiB .. | [`DIRECT_BASE`]: the direct view, frame n at n * 4096 |
#![allow(unsafe_code, reason = "this is the one place of exos where the machine is touched; see each module")]

pub(crate) mod devices;
pub(crate) mod direct;
pub(crate) mod entry;
pub(crate) mod fast;
pub(crate) mod heap;
pub(crate) mod kernel;
pub(crate) mod machine;
pub(crate) mod run;
pub(crate) mod shares;
pub(crate) mod user;

use aegis_abi::layout::LIBOS_BASE;

/// Where the heap begins.
pub(crate) const HEAP_BASE: u64 = LIBOS_BASE + (64 << 30);
/// Most bytes of heap.
pub(crate) const HEAP_BYTES_MAX: u64 = 32 << 30;
/// Where device registers are mapped.
pub(crate) const DEVICE_BASE: u64 = LIBOS_BASE + (128 << 30);
/// Where the direct view begins: the frame with number n is at `DIRECT_BASE + n * 4096`.
pub(crate) const DIRECT_BASE: u64 = LIBOS_BASE + (1 << 40);
/// First frame number that the direct view cannot show (the window has 3 TiB left for it).
pub(crate) const DIRECT_FRAME_COUNT: u64 = (3 << 40) >> 12;
