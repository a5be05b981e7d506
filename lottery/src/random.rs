//! Where chance comes from.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

/// A source of uniformly distributed words.
pub trait Random {
    /// The next word.
    fn next_word(&mut self) -> u64;

    /// A number below `end` (not 0), each with the same chance.
    ///
    /// The word is scaled, not divided (Lemire 2019), and drawn again where scaling would favour some numbers: a
    /// remainder would be biased, and dividing costs more than the words that are thrown away.
    fn below(&mut self, end: u64) -> u64 {
        let mut product = u128::from(self.next_word()) * u128::from(end);
        if (product as u64) < end {
            let threshold = end.wrapping_neg() % end.max(1);
            while (product as u64) < threshold {
                product = u128::from(self.next_word()) * u128::from(end);
            }
        }
        (product >> 64) as u64
    }
}

impl<R: Random + ?Sized> Random for &mut R {
    fn next_word(&mut self) -> u64 {
        (**self).next_word()
    }
}

/// A generator that cannot be foreseen without the key, however many draws are seen: the keyed hash SipHash-2-4 of a
/// counter.
///
/// The same key gives the same words, so that a run can be repeated. All zero bits is the generator of key 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyed {
    key: [u64; 2],
    count: u64,
}

impl Keyed {
    /// The generator of a key.
    #[must_use]
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key, count: 0 }
    }
}

impl Random for Keyed {
    fn next_word(&mut self) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u64(self.count);
        self.count = self.count.wrapping_add(1);
        hasher.finish()
    }
}
/// Words that are spread evenly: of any number in a row each part of all words gets its due to within a few. For draws
/// whose sum matters and that nobody gains by foreseeing.
///
/// Multiples of the golden section, whose discrepancy is the least of all such sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    word: u64,
}

impl Spread {
    /// The sequence that begins here.
    #[must_use]
    pub const fn new(word: u64) -> Self {
        Self { word }
    }
}

impl Random for Spread {
    fn next_word(&mut self) -> u64 {
        self.word = self.word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.word
    }
}
