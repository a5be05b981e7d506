//! What differs between two versions of a page.
#![forbid(unsafe_code)]

use core::ops::Range;

use super::entry::ENTRY_BYTES;
use crate::memory::{PAGE_BYTES, Page};

/// Bytes that are compared at once: pages are mostly equal, and equal parts are passed over fast.
const PART_BYTES: usize = 512;
const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = 8;

/// Calls `each` with the ranges of words that differ, in their order. Two that are closer together than the head of an
/// entry is long are one.
pub(super) fn runs<E>(old: &Page, new: &Page, mut each: impl FnMut(Range<usize>) -> Result<(), E>) -> Result<(), E> {
    let mut run: Option<Range<usize>> = None;
    let is_unequal = |at: &usize| old[*at..at + PART_BYTES] != new[*at..at + PART_BYTES];
    let parts = (0..PAGE_BYTES).step_by(PART_BYTES).filter(is_unequal);
    for line in parts.flat_map(|part| (part..part + PART_BYTES).step_by(LINE_BYTES)) {
        if old[line..line + LINE_BYTES] == new[line..line + LINE_BYTES] {
            continue;
        }
        for at in (line..line + LINE_BYTES).step_by(WORD_BYTES) {
            if old[at..at + WORD_BYTES] == new[at..at + WORD_BYTES] {
                continue;
            }
            match &mut run {
                Some(run) if at - run.end <= ENTRY_BYTES => run.end = at + WORD_BYTES,
                _ => {
                    if let Some(done) = run.replace(at..at + WORD_BYTES) {
                        each(done)?;
                    }
                }
            }
        }
    }
    run.map_or(Ok(()), each)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::fake::Draws;

    #[test]
    fn runs_make_the_new_page_of_the_old_one() {
        for seed in 0..500 {
            let mut draws = Draws::new(seed);
            let old: Page = core::array::from_fn(|_| draws.number() as u8);
            let mut new = old;
            for _ in 0..draws.below(20) {
                let (at, length) = (draws.below(PAGE_BYTES), draws.below(100));
                for byte in new.iter_mut().skip(at).take(length) {
                    *byte = draws.number() as u8;
                }
            }
            let mut made = old;
            let mut found: Vec<Range<usize>> = Vec::new();
            runs::<()>(&old, &new, |run| {
                made[run.clone()].copy_from_slice(&new[run.clone()]);
                found.push(run);
                Ok(())
            })
            .unwrap();
            assert_eq!(made, new);
            assert!(found.windows(2).all(|pair| pair[0].end + ENTRY_BYTES < pair[1].start));
            assert!(found.iter().all(|run| old[run.clone()] != new[run.clone()]));
        }
    }
}
