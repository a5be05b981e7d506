//! Watched memory in the kernel's placement: the operations, and the page between a program and the extension.
//!
//! A program *places* a range of its pages in the kernel and *closes* pages of it; the extension opens a page at its
//! first touch, copies it to a shadow before a store if the program has shadows there, and writes the touch down. All
//! places are addresses in the program's own space, which are looked up again at each touch: what is not there, is not
//! writable, or is full has its fault go to the library OS, as though nobody were placed here.
//!
//! The page of notes, in words: [`WORD_OWNER`], [`WORD_TOUCH_COUNT`], [`WORD_SHADOW_COUNT`], and from
//! [`WORD_TOUCH_FIRST`] on a [`Touch`] each.

/// The thread pointer (FS base) of the one thread whose touches are answered here; 0: nobody's are.
pub const WORD_OWNER: usize = 0;
/// Touches written down; the program takes them and sets this to 0.
pub const WORD_TOUCH_COUNT: usize = 1;
/// Shadows in use, from the first on; the program sets this to 0 when it needs none any more.
pub const WORD_SHADOW_COUNT: usize = 2;
/// The first touch.
pub const WORD_TOUCH_FIRST: usize = 8;
/// Touches that the page of notes holds.
pub const TOUCH_COUNT_MAX: usize = 512 - WORD_TOUCH_FIRST;
/// Shadows that a range can have.
pub const SHADOW_COUNT_MAX: u64 = TOUCH_COUNT_MAX as u64;
/// Pages that one call closes.
pub const CLOSE_PAGE_COUNT_MAX: u64 = 512;

/// An operation; the words behind it are in the order of its description, the rest is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelCall {
    /// Address `first`, `second` pages: touches of them are answered here from now on, with the notes at address
    /// `third` and `fifth` shadows from address `fourth` on, 0 for none. What was placed there before is not any more.
    Place = 32,
    /// Address `first`: the range that begins there is not placed here any more. Pages that are closed stay closed to
    /// the processor, until the library OS maps them anew.
    Forget = 33,
    /// Address `first`, `second` pages of a range that is placed here: closes them to stores, and to loads too if
    /// `third` is 1.
    Close = 34,
}

impl KernelCall {
    /// The operation of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Place, Self::Forget, Self::Close].into_iter().find(|call| *call as u64 == number)
    }
}

/// A touch as it stands in the notes: page of the range (from bit 16 on), shadow and one (bits 1 to 15), store (bit 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Counted from the range's first.
    pub page: u64,
    /// The shadow that has what was there before.
    pub shadow: Option<u64>,
    /// A store; else a load.
    pub is_store: bool,
}

impl Touch {
    /// Its word.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.page << 16 | self.shadow.map_or(0, |shadow| (shadow + 1) << 1) | u64::from(self.is_store)
    }

    /// What a word says, whoever wrote it.
    #[must_use]
    pub fn of_word(word: u64) -> Self {
        Self { page: word >> 16, shadow: (word >> 1 & 0x7fff).checked_sub(1), is_store: word & 1 != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelCall, SHADOW_COUNT_MAX, Touch};

    #[test]
    fn a_touch_comes_back_from_its_word() {
        for shadow in [None, Some(0), Some(SHADOW_COUNT_MAX - 1)] {
            for (page, is_store) in [(0, false), (1 << 40, true)] {
                let touch = Touch { page, shadow, is_store };
                assert_eq!(Touch::of_word(touch.to_word()), touch);
            }
        }
    }

    #[test]
    fn operations_have_their_numbers() {
        for call in [KernelCall::Place, KernelCall::Forget, KernelCall::Close] {
            assert_eq!(KernelCall::from_number(call as u64), Some(call));
        }
        assert_eq!(KernelCall::from_number(35), None);
        for number in 0..64 {
            let known = [
                crate::block::KernelCall::from_number(number).is_some(),
                crate::net::KernelCall::from_number(number).is_some(),
                KernelCall::from_number(number).is_some(),
            ];
            assert!(known.iter().filter(|is_known| **is_known).count() <= 1, "{number} means two things");
        }
    }
}
