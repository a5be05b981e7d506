//! A heap in a segment: blocks that are allocated and freed within transactions, so that after a crash it is as it was
//! committed.
//!
//! Sizes are rounded up to classes, four to a doubling; a freed block goes to its class's list and comes back from
//! there. What was never used lies behind the mark. Nothing is joined, so an allocation is a few words, and those words
//! lie in few pages.
//!
//! # Invariants
//!
//! - HEAP-1 A block is in one list or with the program; its head says which, and a pointer that is no block's is
//!   refused.
//! - HEAP-2 Whatever the segment holds, no word outside the heap is touched, and nothing loops.
#![forbid(unsafe_code)]

/// The words of a heap, by their offset in bytes; a store of a word is part of the running transaction.
pub trait Words {
    /// Bytes of the heap.
    fn length_bytes(&self) -> u64;
    /// The word at an offset that is a multiple of 8, inside.
    fn load(&self, at: u64) -> u64;
    /// Stores a word there.
    ///
    /// # Errors
    /// The transaction's.
    fn store(&mut self, at: u64, word: u64) -> Result<(), crate::Error>;
}

/// Why a heap did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapError {
    /// There is no heap: [`format`] it.
    NotFormatted,
    /// No room.
    Full,
    /// No block begins there, or it is free.
    NoBlock,
    /// The transaction's.
    Store(crate::Error),
}

impl From<crate::Error> for HeapError {
    fn from(error: crate::Error) -> Self {
        Self::Store(error)
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"rhinohea");
const CLASS_COUNT: u64 = 160;
const MARK_AT: u64 = 8;
const LISTS_AT: u64 = 16;
/// Where the first block's head lies: its bytes begin at a multiple of 16.
const FIRST_AT: u64 = LISTS_AT + 8 * CLASS_COUNT + 8;
/// In a head, beside the class.
const USED: u64 = 0x7573_6564 << 32;
const FREE: u64 = 0x6672_6565 << 32;

/// The class of blocks of at least so many bytes, and how many they have: 16, 32, 48, 64, 80, 96, 112, 128, 160, ….
fn class_of(bytes: u64) -> Option<(u64, u64)> {
    let bytes = bytes.max(1).checked_next_multiple_of(16)?;
    if bytes <= 128 {
        return Some((bytes / 16 - 1, bytes));
    }
    let step = 1 << (bytes - 1).ilog2().saturating_sub(2);
    let rounded = bytes.checked_next_multiple_of(step)?;
    let doubling = u64::from((rounded - 1).ilog2());
    let class = 8 + (doubling - 7) * 4 + (rounded - 1 - (1 << doubling)) / step;
    (class < CLASS_COUNT).then_some((class, rounded))
}

/// Makes an empty heap of all the words.
///
/// # Errors
/// [`HeapError::Full`] if they are too few, the transaction's.
pub fn format(words: &mut dyn Words) -> Result<(), HeapError> {
    if words.length_bytes() < FIRST_AT + 64 {
        return Err(HeapError::Full);
    }
    for class in 0..CLASS_COUNT {
        words.store(LISTS_AT + 8 * class, 0)?;
    }
    words.store(MARK_AT, FIRST_AT)?;
    Ok(words.store(0, MAGIC)?)
}

/// True if there is a heap.
pub fn is_formatted(words: &dyn Words) -> bool {
    words.length_bytes() >= FIRST_AT + 64 && words.load(0) == MAGIC
}

/// Allocates a block of at least so many bytes; answers where its bytes begin, a multiple of 16. They hold anything.
///
/// # Errors
/// [`HeapError::NotFormatted`], [`HeapError::Full`], the transaction's.
pub fn allocate(words: &mut dyn Words, bytes: u64) -> Result<u64, HeapError> {
    if !is_formatted(words) {
        return Err(HeapError::NotFormatted);
    }
    let (class, bytes) = class_of(bytes).ok_or(HeapError::Full)?;
    let list = LISTS_AT + 8 * class;
    let free = words.load(list);
    if free != 0 {
        let head = block_head(words, free).filter(|head| *head == FREE | class).ok_or(HeapError::NotFormatted)?;
        words.store(list, words.load(free))?;
        words.store(free - 8, head & !FREE | USED)?;
        return Ok(free);
    }
    let mark = words.load(MARK_AT);
    let end = mark.checked_add(16 + bytes).filter(|&end| mark >= FIRST_AT && end <= words.length_bytes());
    // Between the bytes and the next head lies a word, so that the next bytes begin at a multiple of 16 too.
    words.store(MARK_AT, end.ok_or(HeapError::Full)?)?;
    words.store(mark, USED | class)?;
    Ok(mark + 8)
}

/// Frees a block that [`allocate`] has answered.
///
/// # Errors
/// [`HeapError::NoBlock`], [`HeapError::NotFormatted`], the transaction's.
pub fn free(words: &mut dyn Words, at: u64) -> Result<(), HeapError> {
    if !is_formatted(words) {
        return Err(HeapError::NotFormatted);
    }
    let head = block_head(words, at).filter(|head| head & USED == USED && (head & !USED) < CLASS_COUNT);
    let class = head.ok_or(HeapError::NoBlock)? & !USED;
    let list = LISTS_AT + 8 * class;
    words.store(at, words.load(list))?;
    words.store(at - 8, FREE | class)?;
    Ok(words.store(list, at)?)
}

/// The head before the bytes that begin at `at`, if that is inside what was given out.
fn block_head(words: &dyn Words, at: u64) -> Option<u64> {
    let is_inside =
        at.is_multiple_of(16) && at > FIRST_AT && at < words.load(MARK_AT) && at + 8 <= words.length_bytes();
    is_inside.then(|| words.load(at - 8))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use super::*;
    use crate::fake::Draws;

    struct Plain(Vec<u64>);

    impl Words for Plain {
        fn length_bytes(&self) -> u64 {
            self.0.len() as u64 * 8
        }
        fn load(&self, at: u64) -> u64 {
            self.0[at as usize / 8]
        }
        fn store(&mut self, at: u64, word: u64) -> Result<(), crate::Error> {
            self.0[at as usize / 8] = word;
            Ok(())
        }
    }

    #[test]
    fn classes_hold_what_is_asked_and_waste_a_fifth() {
        let mut last = (0, 0);
        for bytes in 1..100_000 {
            let (class, rounded) = class_of(bytes).unwrap();
            assert!(rounded >= bytes && rounded % 16 == 0 && rounded <= bytes + 16 + bytes / 4, "{bytes}: {rounded}");
            assert!(class == last.0 && rounded == last.1 || class > last.0 && rounded > last.1 || bytes == 1);
            last = (class, rounded);
        }
        assert_eq!(class_of(u64::MAX), None);
    }

    #[test]
    fn blocks_do_not_overlap() {
        for seed in 0..50 {
            let mut draws = Draws::new(seed);
            let mut words = Plain(alloc::vec![0; 8 << 10]);
            assert_eq!(allocate(&mut words, 8), Err(HeapError::NotFormatted));
            format(&mut words).unwrap();
            let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
            for _ in 0..600 {
                let bytes = 1 + draws.below(600) as u64;
                let full = blocks.len() > 60;
                if full || draws.once_in(3) {
                    let Some(at) = blocks.keys().copied().nth(draws.below(blocks.len())) else { continue };
                    blocks.remove(&at);
                    free(&mut words, at).unwrap();
                    assert_eq!(free(&mut words, at), Err(HeapError::NoBlock));
                } else if let Ok(at) = allocate(&mut words, bytes) {
                    assert!(at % 16 == 0 && at + bytes <= words.length_bytes());
                    let before = blocks.range(..=at).next_back();
                    assert!(before.is_none_or(|(start, length)| start + length <= at));
                    assert!(blocks.range(at..).next().is_none_or(|(start, _)| at + bytes <= *start));
                    for word in 0..bytes / 8 {
                        words.store(at + word * 8, u64::MAX).unwrap();
                    }
                    blocks.insert(at, bytes);
                }
            }
            assert_eq!(free(&mut words, 24), Err(HeapError::NoBlock));
        }
    }

    #[test]
    fn a_spoilt_heap_is_refused() {
        for seed in 0..300 {
            let mut draws = Draws::new(seed);
            let mut words = Plain(alloc::vec![0; 512]);
            format(&mut words).unwrap();
            let block = allocate(&mut words, 40).unwrap();
            free(&mut words, block).unwrap();
            for _ in 0..4 {
                let at = draws.below(512);
                words.0[at] = if draws.once_in(2) { draws.number() } else { draws.below(6000) as u64 };
            }
            for _ in 0..20 {
                // Nothing panics, whatever is answered.
                let _ = allocate(&mut words, draws.below(200) as u64);
                let _ = free(&mut words, draws.below(5000) as u64);
            }
        }
    }
}
