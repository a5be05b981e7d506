//! The kernel's lock and its translation shootdown, under every order of memory that their atomics allow (loom).
//!
//! The sources are the kernel's own, as they are: this crate calls itself `core` and has its own atomics there, and the
//! machine's other modules around them are fakes. A frame that is taken away is a cell that loom watches: a processor
//! that still reads it through an old translation while its new owner writes it is found as a data race, also where it
//! would take a processor with weaker order than x86-64.
#![allow(unsafe_code, missing_docs, unreachable_pub, dead_code, reason = "a harness around the kernel's sources")]

extern crate self as core;

/// What the kernel's sources find as `core::sync`.
pub mod sync {
    pub mod atomic {
        use std::collections::HashMap;
        use std::sync::{Arc, Mutex, PoisonError};

        use loom::sync::atomic::AtomicU64 as Cell;
        pub use loom::sync::atomic::Ordering;

        loom::lazy_static! {
            /// loom's atomics have no constant constructor: what stands for each of ours, by its address, in this run.
            static ref CELLS: Mutex<HashMap<usize, Arc<Cell>>> = Mutex::new(HashMap::new());
        }

        fn cell(address: usize, initial: u64) -> Arc<Cell> {
            let mut cells = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(cells.entry(address).or_insert_with(|| Arc::new(Cell::new(initial))))
        }

        macro_rules! atomics {
            ($($name:ident $type:ty, $to:expr, $from:expr;)*) => { $(
                #[derive(Debug)]
                pub struct $name($type);

                impl $name {
                    pub const fn new(value: $type) -> Self {
                        Self(value)
                    }

                    fn cell(&self) -> Arc<Cell> {
                        cell(std::ptr::from_ref(self) as usize, $to(self.0))
                    }

                    pub fn load(&self, order: Ordering) -> $type {
                        $from(self.cell().load(order))
                    }

                    pub fn store(&self, value: $type, order: Ordering) {
                        self.cell().store($to(value), order);
                    }

                    pub fn swap(&self, value: $type, order: Ordering) -> $type {
                        $from(self.cell().swap($to(value), order))
                    }

                    pub fn fetch_and(&self, value: $type, order: Ordering) -> $type {
                        $from(self.cell().fetch_and($to(value), order))
                    }

                    pub fn fetch_or(&self, value: $type, order: Ordering) -> $type {
                        $from(self.cell().fetch_or($to(value), order))
                    }

                    pub fn fetch_add(&self, value: $type, order: Ordering) -> $type {
                        $from(self.cell().fetch_add($to(value), order))
                    }

                    pub fn compare_exchange(
                        &self,
                        old: $type,
                        new: $type,
                        done: Ordering,
                        failed: Ordering,
                    ) -> Result<$type, $type> {
                        let result = self.cell().compare_exchange($to(old), $to(new), done, failed);
                        result.map($from).map_err($from)
                    }

                    pub fn compare_exchange_weak(
                        &self,
                        old: $type,
                        new: $type,
                        done: Ordering,
                        failed: Ordering,
                    ) -> Result<$type, $type> {
                        self.compare_exchange(old, new, done, failed)
                    }
                }
            )* };
        }

        atomics! {
            AtomicBool bool, u64::from, |word: u64| word != 0;
            AtomicU32 u32, u64::from, |word: u64| word as u32;
            AtomicU64 u64, |word: u64| word, |word: u64| word;
        }
    }
}

pub mod hint {
    pub use loom::hint::spin_loop;
}

pub use std::{cell, fmt, marker, mem, ops, ptr};

pub mod processor {
    loom::thread_local! {
        static INDEX: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    pub fn processor_index() -> usize {
        INDEX.with(std::cell::Cell::get)
    }

    pub fn become_processor(index: usize) {
        INDEX.with(|own| own.set(index));
    }
}

pub mod instructions {
    /// Where another processor may run.
    pub fn look_again(_looks: &mut u32) {
        loom::hint::spin_loop();
    }
}

pub mod local_apic {
    /// Two processors.
    pub fn started_mask() -> u32 {
        0b11
    }
}

pub mod power {
    pub fn is_panicking() -> bool {
        false
    }
}

pub mod interrupt {
    use crate::sync::atomic::{AtomicU32, Ordering};

    static SENT: AtomicU32 = AtomicU32::new(0);

    /// The interrupted processor sees what was stored before: `local_apic.rs` has the fence that this takes.
    pub fn send_shootdown(processors: u32) {
        SENT.fetch_or(processors, Ordering::Release);
    }

    /// What a processor in ring 3 does between two instructions.
    pub fn take() {
        let own = 1 << crate::processor::processor_index();
        if SENT.load(Ordering::Acquire) & own != 0 {
            SENT.fetch_and(!own, Ordering::Relaxed);
            crate::shootdown::service();
        }
    }
}

pub mod paging {
    use std::cell::Cell;

    use crate::sync::atomic::{AtomicU64, Ordering};

    loom::thread_local! {
        /// What this processor remembers of the one page that there is; 0: nothing.
        static REMEMBERED: Cell<u64> = Cell::new(0);
    }

    /// The entry of the page: 1 or 2, the frame.
    pub static ENTRY: AtomicU64 = AtomicU64::new(1);

    pub fn flush_page(_address: u64) {
        flush_all();
    }

    pub fn flush_all() {
        REMEMBERED.with(|own| own.set(0));
    }

    /// The frame that this processor takes the page for.
    pub fn translate() -> u64 {
        if REMEMBERED.with(Cell::get) == 0 {
            let entry = ENTRY.load(Ordering::Relaxed);
            REMEMBERED.with(|own| own.set(entry));
        }
        REMEMBERED.with(Cell::get)
    }
}

#[path = "../../kernel/machine/src/x86_64/lock.rs"]
mod lock;
#[path = "../../kernel/machine/src/x86_64/shootdown.rs"]
mod shootdown;

use lock::KernelLock;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use sync::atomic::{AtomicBool, Ordering};

/// Makes what stands for the atomics, before there is a second processor.
fn begin<T>(lock: &KernelLock<T>) {
    drop(lock.lock());
    shootdown::service();
    interrupt::take();
    paging::translate();
    paging::flush_all();
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

#[test]
fn the_lock_admits_one_and_shows_what_the_last_one_left() {
    model(|| {
        let lock = Arc::new(KernelLock::new(UnsafeCell::new(0)));
        begin(&lock);
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || {
            processor::become_processor(1);
            // SAFETY: the lock is what is tested.
            other.lock().with_mut(|count| unsafe { *count += 1 });
        });
        // SAFETY: as above.
        lock.lock().with_mut(|count| unsafe { *count += 1 });
        thread.join().expect("it ends");
        // SAFETY: as above.
        assert_eq!(lock.lock().with(|count| unsafe { *count }), 2);
    });
}

/// One that comes back for the lock while another waits: both have their turns, whomever the host does not run.
#[test]
fn whoever_waits_has_its_turn() {
    model(|| {
        let lock = Arc::new(KernelLock::new(UnsafeCell::new(0)));
        begin(&lock);
        let guard = lock.lock();
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || {
            processor::become_processor(1);
            // SAFETY: the lock is what is tested.
            other.lock().with_mut(|count| unsafe { *count += 1 });
        });
        drop(guard);
        for _ in 0..2 {
            // SAFETY: as above.
            lock.lock().with_mut(|count| unsafe { *count += 1 });
        }
        thread.join().expect("it ends");
        // SAFETY: as above.
        assert_eq!(lock.lock().with(|count| unsafe { *count }), 3);
    });
}

/// Takes frame 1 away from a page while another processor may use it, and gives it to an owner that writes it.
fn take_away(waits_for_lock: bool) {
    static DONE: AtomicBool = AtomicBool::new(false);
    model(move || {
        let lock = Arc::new(KernelLock::new(()));
        begin(&lock);
        DONE.store(false, Ordering::Relaxed);
        let frames = Arc::new([UnsafeCell::new(1u64), UnsafeCell::new(2)]);
        let (other_lock, other_frames) = (Arc::clone(&lock), Arc::clone(&frames));
        let thread = thread::spawn(move || {
            processor::become_processor(1);
            for _ in 0..2 {
                interrupt::take();
                let frame = paging::translate() as usize;
                // SAFETY: reads are what the shootdown has to keep from the new owner's write.
                other_frames[frame - 1].with(|word| unsafe { assert_eq!(*word, frame as u64) });
            }
            if waits_for_lock {
                drop(other_lock.lock());
            }
            while !DONE.load(Ordering::Relaxed) {
                interrupt::take();
                hint::spin_loop();
            }
        });
        let guard = lock.lock();
        paging::ENTRY.store(2, Ordering::Relaxed);
        shootdown::shootdown(0b10, shootdown::Flush::Pages { address: 0x1000, page_count: 1 });
        // SAFETY: nobody has a translation any more, which is what is tested.
        frames[0].with_mut(|word| unsafe { *word = 7 });
        drop(guard);
        DONE.store(true, Ordering::Relaxed);
        thread.join().expect("it ends");
    });
}

#[test]
fn nobody_reads_a_frame_after_the_shootdown() {
    take_away(false);
}

#[test]
fn who_waits_for_the_lock_answers() {
    take_away(true);
}
