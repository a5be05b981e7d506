//! Which edges of the program an input took.
//!
//! The compiler's pass counts in tables of one byte per edge and tells each module's table to
//! `__sanitizer_cov_8bit_counters_init` before `main`. Several threads may count: a count that is lost is not missed,
//! and a test that searches runs alone.
#![allow(unsafe_code, reason = "the compiler's counters are raw tables")]

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// Tables (codegen units) that are looked at.
const TABLE_COUNT_MAX: usize = 4096;

/// A module's counters, as bytes that anybody may change at any time.
struct Table {
    first: AtomicPtr<AtomicU8>,
    length: AtomicUsize,
}

static TABLES: [Table; TABLE_COUNT_MAX] =
    [const { Table { first: AtomicPtr::new(core::ptr::null_mut()), length: AtomicUsize::new(0) } }; TABLE_COUNT_MAX];
static TABLE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Called by every module that was compiled with counters.
///
/// # Safety
///
/// `[first, end)` are bytes that live as long as the program.
// SAFETY: nobody else defines this name: it is the runtime's side of the compiler's pass, and this is the runtime.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(first: *mut u8, end: *mut u8) {
    let length = end as usize - first as usize;
    let is_known = || TABLES.iter().any(|table| table.first.load(Ordering::Relaxed).cast() == first);
    if length == 0 || is_known() {
        return;
    }
    let index = TABLE_COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some(table) = TABLES.get(index) {
        table.first.store(first.cast(), Ordering::Relaxed);
        table.length.store(length, Ordering::Relaxed);
    }
}

/// Counters of all modules, one after the other.
fn counters() -> impl Iterator<Item = &'static [AtomicU8]> {
    let count = TABLE_COUNT.load(Ordering::Relaxed).min(TABLE_COUNT_MAX);
    TABLES[..count].iter().map(|table| {
        let (first, length) = (table.first.load(Ordering::Relaxed), table.length.load(Ordering::Relaxed));
        // SAFETY: the module said so when it was initialised; a byte may be read and written as an atomic one.
        unsafe { core::slice::from_raw_parts(first, length) }
    })
}

/// What was taken so far: for each edge the orders of magnitude in which it was counted.
#[derive(Debug)]
pub(crate) struct Coverage {
    seen: Vec<u8>,
    taken_count: usize,
}

impl Coverage {
    pub(crate) fn new() -> Self {
        Self { seen: vec![0; counters().map(<[AtomicU8]>::len).sum()], taken_count: 0 }
    }

    pub(crate) fn begin(&mut self) {
        counters().flatten().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Takes what was counted since `begin`; whether anything of it is new.
    pub(crate) fn end(&mut self) -> bool {
        let mut is_new = false;
        for (seen, counter) in self.seen.iter_mut().zip(counters().flatten()) {
            let count = counter.load(Ordering::Relaxed);
            if count == 0 {
                continue;
            }
            let magnitude = 1 << count.ilog2();
            if *seen & magnitude == 0 {
                self.taken_count += usize::from(*seen == 0);
                *seen |= magnitude;
                is_new = true;
            }
        }
        is_new
    }

    pub(crate) fn edge_count(&self) -> usize {
        self.seen.len()
    }

    pub(crate) fn taken_count(&self) -> usize {
        self.taken_count
    }
}
