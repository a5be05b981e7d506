//! New inputs out of old ones.

use crate::InputShape;

/// Changes to one input at most.
const CHANGE_COUNT_MAX: usize = 8;

/// Random numbers that follow from a seed (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 64 bits.
    pub fn next_word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.next_word() >> 11) % end as u64) as usize
    }
}

/// Makes inputs.
#[derive(Debug)]
pub(crate) struct Mutator {
    shape: InputShape,
    pub(crate) random: Random,
}

impl Mutator {
    pub(crate) fn new(shape: InputShape, seed: u64) -> Self {
        Self { shape, random: Random::new(seed) }
    }

    /// A changed copy of one of the inputs that were kept, or, now and then, one out of nothing.
    pub(crate) fn next(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        let mut input = if kept.is_empty() || self.random.below(100) == 0 {
            self.records(self.shape.record_count_max / 4)
        } else {
            self.choose(kept).clone()
        };
        for _ in 0..=self.random.below(CHANGE_COUNT_MAX) {
            self.change(&mut input, kept);
        }
        input.truncate(self.shape.record_count_max * self.shape.record_bytes);
        input
    }

    /// Any input, those that were kept of late more often.
    fn choose<'k>(&mut self, kept: &'k [Vec<u8>]) -> &'k Vec<u8> {
        let index = self.random.below(kept.len());
        let index = if self.random.below(2) == 0 { index.max(self.random.below(kept.len())) } else { index };
        &kept[index]
    }

    fn records(&mut self, count_max: usize) -> Vec<u8> {
        let count = 1 + self.random.below(count_max.max(1));
        (0..count * self.shape.record_bytes).map(|_| self.random.next_word() as u8).collect()
    }

    fn change(&mut self, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
        let record = self.shape.record_bytes;
        let count = input.len() / record;
        if count == 0 {
            *input = self.records(4);
            return;
        }
        let at = self.random.below(count) * record;
        let some = (1 + self.random.below(8)).min(count - at / record) * record;
        match self.random.below(10) {
            0 | 1 => {
                let byte = self.random.below(input.len());
                input[byte] = self.random.next_word() as u8;
            }
            2 => {
                let byte = self.random.below(input.len());
                input[byte] ^= 1 << self.random.below(8);
            }
            3 => {
                let byte = self.random.below(input.len());
                let step = 1 + self.random.below(4) as u8;
                input[byte] = if step.is_multiple_of(2) {
                    input[byte].wrapping_add(step)
                } else {
                    input[byte].wrapping_sub(step)
                };
            }
            4 => drop(input.drain(at..at + some)),
            5 => {
                // The same again, here or elsewhere: what takes several calls is repeated so.
                let copy = input[at..at + some].to_vec();
                let to = self.random.below(count + 1) * record;
                input.splice(to..to, copy);
            }
            6 => {
                let new = self.records(3);
                input.splice(at..at, new);
            }
            7 => {
                // One byte of all records alike: the actor, or the object.
                let column = self.random.below(record);
                let value = input[at + column];
                let to = (at + some).min(input.len());
                input[at..to].iter_mut().skip(column).step_by(record).for_each(|byte| *byte = value);
            }
            _ if !kept.is_empty() => {
                let other = self.choose(kept);
                let from = self.random.below(other.len() / record + 1) * record;
                let to = (from + (1 + self.random.below(32)) * record).min(other.len());
                let end = if self.random.below(2) == 0 { at } else { (at + some).min(input.len()) };
                input.splice(at..end, other[from..to].iter().copied());
            }
            _ => input.extend(self.records(3)),
        }
    }
}
