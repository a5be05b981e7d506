//! Uses of a file that others have to know of: mappings, descriptions that write, programs that run.
//!
//! Writing and running exclude each other (`ETXTBSY`): both are counted first and looked at then, so that of two that
//! come at once at least one finds the other. Mappings are counted so that cutting a file short, which has to reach
//! every address space that maps it, costs nothing for one that is not mapped.

use core::sync::atomic::{AtomicU32, Ordering};

/// The counts of one file.
#[derive(Debug, Default)]
pub struct FileUsers {
    mapping_count: AtomicU32,
    writer_count: AtomicU32,
    runner_count: AtomicU32,
}

impl FileUsers {
    /// Counts a mapping (`true`), or that one is gone.
    pub fn count_mapping(&self, is_new: bool) {
        count(&self.mapping_count, is_new);
    }

    /// Counts a description that writes, or that one is gone.
    pub fn count_writer(&self, is_new: bool) {
        count(&self.writer_count, is_new);
    }

    /// Counts a program that runs, or that one is gone.
    pub fn count_runner(&self, is_new: bool) {
        count(&self.runner_count, is_new);
    }

    /// Whether something may map it.
    pub fn is_mapped(&self) -> bool {
        self.mapping_count.load(Ordering::SeqCst) > 0
    }

    /// Whether something has it open for writing.
    pub fn is_written(&self) -> bool {
        self.writer_count.load(Ordering::SeqCst) > 0
    }

    /// Whether it is a program that runs.
    pub fn is_run(&self) -> bool {
        self.runner_count.load(Ordering::SeqCst) > 0
    }
}

fn count(counter: &AtomicU32, is_new: bool) {
    match is_new {
        true => counter.fetch_add(1, Ordering::SeqCst),
        false => counter.fetch_sub(1, Ordering::SeqCst),
    };
}
