//! A link between two ends for tests, with time that is made up: it loses, repeats, delays, reorders and spoils what it
//! carries, as a seed has it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Numbers that look random and are the same each time (Marsaglia's xorshift).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            chance.next();
        }
        chance
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }

    /// True so many times of a thousand.
    pub(crate) fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// What a link does to what it carries, of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) late: u64,
    pub(crate) spoiled: u64,
}

/// What is under way: when it is there, to which end, its bytes.
pub(crate) struct Link<T> {
    under_way: BTreeMap<(u64, u64), (usize, T)>,
    count: u64,
    pub(crate) delay_ns: u64,
    pub(crate) faults: Faults,
    pub(crate) chance: Chance,
}

impl<T: Clone> Link<T> {
    pub(crate) fn new(seed: u64, faults: Faults, delay_ns: u64) -> Self {
        Self { under_way: BTreeMap::new(), count: 0, delay_ns, faults, chance: Chance::new(seed) }
    }

    /// Takes something for the end `to`; `spoil` changes it, and says whether anything is left of it.
    pub(crate) fn carry(&mut self, now_ns: u64, to: usize, thing: T, spoil: impl Fn(&mut T, &mut Chance) -> bool) {
        let copies = if self.chance.happens(self.faults.repeated) { 2 } else { 1 };
        for _ in 0..copies {
            if self.chance.happens(self.faults.lost) {
                continue;
            }
            let mut thing = thing.clone();
            if self.chance.happens(self.faults.spoiled) && !spoil(&mut thing, &mut self.chance) {
                continue;
            }
            let late = if self.chance.happens(self.faults.late) { self.chance.below(self.delay_ns * 4) } else { 0 };
            self.count += 1;
            self.under_way.insert((now_ns + self.delay_ns + late, self.count), (to, thing));
        }
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.under_way.keys().next().map(|(at, _)| *at)
    }

    /// All that is there by now.
    pub(crate) fn arrivals(&mut self, now_ns: u64) -> Vec<(usize, T)> {
        let later = self.under_way.split_off(&(now_ns + 1, 0));
        core::mem::replace(&mut self.under_way, later).into_values().collect()
    }
}
