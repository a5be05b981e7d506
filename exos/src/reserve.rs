//! The reserve of exos's heap, as allocating code sees it.
//!
//! exos is full of small allocations that cannot fail in Rust (`push`, `Arc::new`, an entry of a tree). They do not
//! fail because the heap keeps blocks aside that it opens only for them, and because a call that could make more of
//! something asks first whether the reserve is whole:
//!
//! - A system call that makes or enlarges something is refused at its entry while the reserve is not whole
//!   (`exos_linux::entry::gate`). It has done nothing then.
//! - One call that was let in allocates less than [`CALL_BYTES_MAX`] in blocks that cannot fail, and makes at most one
//!   table of the pod's double, which is no longer than [`LARGE_BYTES`] then. What a program chooses the size or number
//!   of is allocated by [`vector`], `try_reserve` or after [`check`], and fails.
//! - Calls that give something up, end, wait or tell are let in always. While less than half of the reserve is left, a
//!   thread that holds no lock makes room first (`exos_linux::task::out_of_memory`).
//!
//! Neighbours: `exos/linux/src/glue/heap.rs`, which has the blocks and says how much is left.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::error::{Errno, Result};

/// Blocks of the reserve, where there is memory enough.
pub const BLOCK_COUNT: usize = 12;
/// Blocks of it at least.
const BLOCK_COUNT_MIN: usize = 4;
/// Of how many frames of programs' memory one block is kept back: of 12 MiB and more all are.
const FRAMES_PER_BLOCK: u64 = 256;
/// Bytes of each small block.
pub const BLOCK_BYTES: usize = 64 << 10;
/// One more, for a vector that doubles: nothing larger is taken from the reserve.
pub const LARGE_BYTES: usize = 256 << 10;
/// What one call allocates at most in blocks that cannot fail.
pub const CALL_BYTES_MAX: usize = BLOCK_BYTES;

/// Entries of a tree that are added between two looks at the reserve.
const STEP_COUNT: usize = 128;

/// How much of the reserve is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Less than half.
    Low,
    /// Not all.
    Short,
    /// No block is open.
    Whole,
}

impl Level {
    /// With so many blocks of `size` left, and the large one or not.
    #[must_use]
    pub const fn of(size: ReserveSize, block_count: usize, has_large: bool) -> Self {
        if block_count >= size.block_count && (has_large || !size.has_large) {
            Self::Whole
        } else if block_count >= size.block_count / 2 {
            Self::Short
        } else {
            Self::Low
        }
    }
}

/// What the reserve is when it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveSize {
    /// Small blocks that are kept back.
    pub block_count: usize,
    /// Whether there is the large one.
    pub has_large: bool,
}

impl ReserveSize {
    /// Where memory is enough.
    pub const ALL: Self = Self { block_count: BLOCK_COUNT, has_large: true };

    /// Where programs may have so many frames. Nothing that the large block is for becomes as long in a small pod.
    #[must_use]
    pub fn of(frame_count: u64) -> Self {
        let block_count = (frame_count / FRAMES_PER_BLOCK).min(BLOCK_COUNT as u64) as usize;
        Self { block_count: block_count.max(BLOCK_COUNT_MIN), has_large: block_count == BLOCK_COUNT }
    }
}

#[cfg(not(test))]
mod state {
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::Level;
    use crate::sync::Once;

    static LEVEL: AtomicU8 = AtomicU8::new(Level::Whole as u8);
    static REFILL: Once<fn()> = Once::new();

    #[inline]
    pub(super) fn get() -> Level {
        match LEVEL.load(Ordering::Relaxed) {
            whole if whole == Level::Whole as u8 => Level::Whole,
            short if short == Level::Short as u8 => Level::Short,
            _ => Level::Low,
        }
    }

    pub(super) fn set(level: Level) {
        LEVEL.store(level as u8, Ordering::Relaxed);
    }

    pub(super) fn set_refill(refill: fn()) {
        REFILL.call_once(|| refill);
    }

    pub(super) fn refill() {
        if let Some(refill) = REFILL.get() {
            refill();
        }
    }
}

/// Tests run side by side, each in a thread with a heap of its own, as it were.
#[cfg(test)]
mod state {
    use core::cell::Cell;

    use super::Level;

    std::thread_local! {
        static LEVEL: Cell<Level> = const { Cell::new(Level::Whole) };
    }

    pub(super) fn get() -> Level {
        LEVEL.get()
    }

    pub(super) fn set(level: Level) {
        LEVEL.set(level);
    }

    pub(super) fn set_refill(_: fn()) {}

    pub(super) fn refill() {}
}

/// How much is left, as the heap last said.
#[must_use]
#[inline]
pub fn level() -> Level {
    state::get()
}

/// The heap has opened or closed blocks.
pub fn set_level(level: Level) {
    state::set(level);
}

/// Names what closes blocks again and says how many are; the first call counts.
pub fn set_refill(refill: fn()) {
    state::set_refill(refill);
}

/// How much is left, after an attempt to have all of it.
#[must_use]
#[inline]
pub fn refilled_level() -> Level {
    match level() {
        Level::Whole => Level::Whole,
        _ => refilled(),
    }
}

#[cold]
fn refilled() -> Level {
    state::refill();
    level()
}

/// For code that is about to keep more for a program, in the middle of a call.
///
/// # Errors
/// `ENOMEM` while the reserve is not whole.
#[inline]
pub fn check() -> Result<()> {
    if level() == Level::Whole { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// An empty vector with room for `length` elements, of a number that a program chooses.
///
/// # Errors
/// `ENOMEM`.
pub fn vector<T>(length: usize) -> Result<Vec<T>> {
    let mut made = Vec::new();
    reserve(&mut made, length)?;
    Ok(made)
}

/// Room for `more` elements behind those of a vector that a program makes grow.
///
/// # Errors
/// `ENOMEM`; the vector is as it was.
#[inline]
pub fn reserve<T>(vector: &mut Vec<T>, more: usize) -> Result<()> {
    if vector.capacity() - vector.len() >= more {
        return Ok(());
    }
    check()?;
    vector.try_reserve(more).map_err(|_| Errno::ENOMEM)
}

/// The same for a queue.
///
/// # Errors
/// `ENOMEM`; the queue is as it was.
#[inline]
pub fn reserve_queue<T>(queue: &mut VecDeque<T>, more: usize) -> Result<()> {
    if queue.capacity() - queue.len() >= more {
        return Ok(());
    }
    check()?;
    queue.try_reserve(more).map_err(|_| Errno::ENOMEM)
}

/// A copy of what may be long.
///
/// # Errors
/// `ENOMEM`.
pub fn copy<T: Clone>(elements: &[T]) -> Result<Vec<T>> {
    let mut copy = vector(elements.len())?;
    copy.extend_from_slice(elements);
    Ok(copy)
}

/// A tree of entries in ascending order, of a number that a program chooses.
///
/// # Errors
/// `ENOMEM`.
pub fn tree<K: Ord, V>(entries: impl Iterator<Item = (K, V)>) -> Result<BTreeMap<K, V>> {
    let mut entries = entries.peekable();
    check()?;
    let mut made: BTreeMap<K, V> = entries.by_ref().take(STEP_COUNT).collect();
    while entries.peek().is_some() {
        check()?;
        made.extend(entries.by_ref().take(STEP_COUNT));
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_COUNT, Level, ReserveSize, check, reserve, set_level, vector};
    use crate::error::Errno;

    #[test]
    fn half_of_the_reserve_is_for_what_must_not_fail() {
        let all = ReserveSize::ALL;
        assert_eq!(Level::of(all, BLOCK_COUNT, true), Level::Whole);
        assert_eq!(Level::of(all, BLOCK_COUNT, false), Level::Short);
        assert_eq!(Level::of(all, BLOCK_COUNT - 1, true), Level::Short);
        assert_eq!(Level::of(all, BLOCK_COUNT / 2, false), Level::Short);
        assert_eq!(Level::of(all, BLOCK_COUNT / 2 - 1, true), Level::Low);
        assert_eq!(Level::of(all, 0, true), Level::Low);
    }

    #[test]
    fn a_small_pod_has_a_small_reserve() {
        assert_eq!(ReserveSize::of(u64::MAX), ReserveSize::ALL);
        assert_eq!(ReserveSize::of((12 << 20) / 4096), ReserveSize::ALL);
        assert_eq!(ReserveSize::of((12 << 20) / 4096 - 1), ReserveSize { block_count: 11, has_large: false });
        let least = ReserveSize { block_count: 4, has_large: false };
        assert_eq!([ReserveSize::of(0), ReserveSize::of(400)], [least; 2]);
        let levels = [4, 3, 2, 1].map(|block_count| Level::of(least, block_count, false));
        assert_eq!(levels, [Level::Whole, Level::Short, Level::Short, Level::Low]);
    }

    #[test]
    fn vectors_do_not_grow_while_the_reserve_is_open() {
        let mut some = vector::<u64>(4).expect("there is room");
        set_level(Level::Short);
        assert_eq!(check(), Err(Errno::ENOMEM));
        assert_eq!(vector::<u8>(1).err(), Some(Errno::ENOMEM));
        assert_eq!(reserve(&mut some, 4), Ok(()), "there was room before");
        assert_eq!(reserve(&mut some, 1 << 20), Err(Errno::ENOMEM));
        set_level(Level::Whole);
        assert_eq!(reserve(&mut some, usize::MAX / 16), Err(Errno::ENOMEM), "more than there can be");
        assert_eq!(reserve(&mut some, 100), Ok(()));
    }
}
