//! Chance for tests: the same from the same seed.
#![forbid(unsafe_code)]

/// Draws numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// Draws that begin with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.number() % end as u64) as usize }
    }

    /// True once in `count`.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}
