//! Memory that both sides of a queue read and write, as words of 64 bits: [`SharedWords`].

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Shared memory. Each access is one word, whole; a place beyond the end reads as 0 and takes nothing.
pub trait SharedWords {
    /// Words that there are.
    fn word_count(&self) -> usize;
    /// A word; nothing is said of its order among other accesses.
    fn load(&self, word: usize) -> u64;
    /// Sets a word, in whatever order.
    fn store(&self, word: usize, value: u64);
    /// Words that follow each other; as [`Self::load`], each.
    #[inline]
    fn load_run<const W: usize>(&self, first: usize) -> [u64; W] {
        core::array::from_fn(|index| self.load(first + index))
    }
    /// Sets words that follow each other; as [`Self::store`], each.
    #[inline]
    fn store_run<const W: usize>(&self, first: usize, values: &[u64; W]) {
        for (index, value) in values.iter().enumerate() {
            self.store(first + index, *value);
        }
    }
    /// A word; what the other side did before it set it is seen afterwards.
    fn load_acquire(&self, word: usize) -> u64;
    /// Sets a word, after everything that was done before.
    fn store_release(&self, word: usize, value: u64);
    /// Everything before is seen by all before anything behind it is read.
    fn fence(&self);
}

/// Memory that was mapped: whoever makes the slice knows that it stays.
impl SharedWords for [AtomicU64] {
    #[inline]
    fn word_count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn load(&self, word: usize) -> u64 {
        self.get(word).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn store(&self, word: usize, value: u64) {
        if let Some(word) = self.get(word) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn load_run<const W: usize>(&self, first: usize) -> [u64; W] {
        load_all(self.get(first..).and_then(|words| words.first_chunk()))
    }

    #[inline]
    fn store_run<const W: usize>(&self, first: usize, values: &[u64; W]) {
        store_all(self.get(first..).and_then(|words| words.first_chunk()), values);
    }

    #[inline]
    fn load_acquire(&self, word: usize) -> u64 {
        self.get(word).map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline]
    fn store_release(&self, word: usize, value: u64) {
        if let Some(word) = self.get(word) {
            word.store(value, Ordering::Release);
        }
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The values of words that follow each other, each read once; zeros where there are none.
#[inline]
pub fn load_all<const W: usize>(words: Option<&[AtomicU64; W]>) -> [u64; W] {
    words.map_or([0; W], |words| core::array::from_fn(|index| words[index].load(Ordering::Relaxed)))
}

/// Sets words that follow each other, if they are there.
#[inline]
pub fn store_all<const W: usize>(words: Option<&[AtomicU64; W]>, values: &[u64; W]) {
    for (word, value) in words.into_iter().flatten().zip(values) {
        word.store(*value, Ordering::Relaxed);
    }
}
