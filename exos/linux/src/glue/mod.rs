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
//! | 4 MiB .. | [`PROCESSOR_BASE`]: control pages and save areas of further processors |
//! | 64 GiB .. | [`HEAP_BASE`]: exos's heap, 2 MiB pages |
//! | 112 GiB | [`ORDER_PAGE`]: a page that is bound and unbound |
//! | 128 GiB .. | [`DEVICE_BASE`]: device registers |
//! | 192 GiB .. | [`STACK_BASE`]: stacks of threads and idle processors, with guards |
//! | 1 TiB .. | [`DIRECT_BASE`]: the direct view, frame n at n * 4096 |
#![allow(unsafe_code, reason = "this is the one place of exos where the machine is touched; see each module")]

pub(crate) mod call_words;
pub(crate) mod devices;
pub(crate) mod direct;
pub(crate) mod disk;
pub(crate) mod disk_domain;
mod disk_kernel;
mod disk_pool;
mod domain;
pub(crate) mod entry;
pub(crate) mod fast;
pub(crate) mod fiber;
pub(crate) mod heap;
mod ide_disk;
pub(crate) mod idle;
pub(crate) mod kernel;
pub(crate) mod lock_wait;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod net_card;
mod net_domain;
mod net_kernel;
pub(crate) mod pod;
pub(crate) mod preemption;
pub(crate) mod processor;
pub(crate) mod run;
pub(crate) mod shares;
pub(crate) mod shortage;
pub(crate) mod slab;
pub(crate) mod stack;
pub(crate) mod user;
pub(crate) mod vector;

use aegis_abi::layout::LIBOS_BASE;

/// Where the heap begins.
pub(crate) const HEAP_BASE: u64 = LIBOS_BASE + (64 << 30);
/// Most bytes of heap.
pub(crate) const HEAP_BYTES_MAX: u64 = 32 << 30;
/// Where a page is bound for a moment (`stack::order_everywhere`).
pub(crate) const ORDER_PAGE: u64 = LIBOS_BASE + (112 << 30);
/// Where the pages of processors 1 and up are.
pub(crate) const PROCESSOR_BASE: u64 = LIBOS_BASE + (4 << 20);
pub(crate) const STACK_BASE: u64 = LIBOS_BASE + (192 << 30);
/// Library word with the number of the processor.
pub(crate) const WORD_PROCESSOR: usize = aegis_rt::upcall::WORD_FREE_FIRST;
/// Library word with the address of the fiber that runs, 0 for none.
pub(crate) const WORD_FIBER: usize = aegis_rt::upcall::WORD_FREE_FIRST + 1;
/// Library word with the address of what is kept of the processor, 0 until that has joined.
pub(crate) const WORD_PROCESSOR_PLACE: usize = aegis_rt::upcall::WORD_FREE_FIRST + 2;
/// Where device registers are mapped.
pub(crate) const DEVICE_BASE: u64 = LIBOS_BASE + (128 << 30);
/// Where the direct view begins: the frame with number n is at `DIRECT_BASE + n * 4096`.
pub(crate) const DIRECT_BASE: u64 = LIBOS_BASE + (1 << 40);
/// First frame number that the direct view cannot show (the window has 3 TiB left for it).
pub(crate) const DIRECT_FRAME_COUNT: u64 = (3 << 40) >> 12;
