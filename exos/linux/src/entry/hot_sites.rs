//! Which `syscall` sites trap often enough to be worth rewriting.
//!
//! Rewriting costs some tens of thousands of instructions (finding the function, decoding it, copying its page), a
//! trap a few hundred; most sites of a short program trap once or twice. So sites are counted in a small
//! direct-mapped table, and one that has trapped [`HOT_TRAP_COUNT`] times is tried. A collision only delays.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Traps after which a site is tried.
pub const HOT_TRAP_COUNT: u32 = 8;
const LINE_COUNT: usize = 256;
/// Lines that are cleared together.
const GROUP_LINES: usize = LINE_COUNT / u64::BITS as usize;
const COUNT_BITS: u32 = 8;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;

/// What is to be done about a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// The site is new here.
    New,
    /// Leave the site alone.
    Cold,
    /// Try to rewrite it; it will not be asked for again while it stays in the table.
    Hot,
}

/// Counts by return address, its lowest bits as a tag above the count: words, as each process has and clears the table.
/// Sites that look alike are tried early.
#[derive(Debug)]
pub struct TrapCounts {
    lines: [AtomicU32; LINE_COUNT],
    /// Bit n: a site was counted in the n-th [`GROUP_LINES`] lines. Most programs trap at few sites, and what two
    /// processors note at once may be lost, which leaves a count to the next program.
    used: AtomicU64,
}

impl Default for TrapCounts {
    fn default() -> Self {
        Self { lines: [const { AtomicU32::new(0) }; LINE_COUNT], used: AtomicU64::new(0) }
    }
}

impl TrapCounts {
    /// Forgets all sites: another program is at their addresses.
    pub fn clear(&self) {
        let mut used = self.used.swap(0, Ordering::Relaxed);
        while used != 0 {
            let first = used.trailing_zeros() as usize * GROUP_LINES;
            used &= used - 1;
            self.lines[first..first + GROUP_LINES].iter().for_each(|line| line.store(0, Ordering::Relaxed));
        }
    }

    /// Counts a trap whose `syscall` ends at `return_address`. Counts that two processors make at once may be lost.
    pub fn count(&self, return_address: u64) -> Heat {
        let index = (return_address ^ return_address >> 8) as usize % LINE_COUNT;
        let line = &self.lines[index];
        let (word, tag) = (line.load(Ordering::Relaxed), (return_address as u32) << COUNT_BITS);
        if word & !COUNT_MASK != tag || word == 0 {
            line.store(tag | 1, Ordering::Relaxed);
            let used = self.used.load(Ordering::Relaxed);
            self.used.store(used | 1 << (index / GROUP_LINES), Ordering::Relaxed);
            return Heat::New;
        }
        let count = word & COUNT_MASK;
        if count >= HOT_TRAP_COUNT {
            return Heat::Cold;
        }
        line.store(word + 1, Ordering::Relaxed);
        if count + 1 == HOT_TRAP_COUNT { Heat::Hot } else { Heat::Cold }
    }
}

#[cfg(test)]
mod tests {
    use super::{HOT_TRAP_COUNT, Heat, TrapCounts};

    #[test]
    fn a_site_is_new_once_and_hot_once() {
        let counts = TrapCounts::default();
        let heats: Vec<Heat> = (0..20).map(|_| counts.count(0x40_1234)).collect();
        assert_eq!(heats[0], Heat::New);
        assert_eq!(heats.iter().filter(|heat| **heat == Heat::Hot).count(), 1);
        assert_eq!(heats[HOT_TRAP_COUNT as usize - 1], Heat::Hot);
    }

    #[test]
    fn an_address_whose_tag_is_nought_is_counted_like_any_other() {
        let counts = TrapCounts::default();
        let heats: Vec<Heat> = (0..20).map(|_| counts.count(0x7f_0000_0000)).collect();
        assert_eq!((heats[0], heats[1]), (Heat::New, Heat::Cold));
        assert_eq!(heats.iter().position(|heat| *heat == Heat::Hot), Some(HOT_TRAP_COUNT as usize - 1));
    }

    #[test]
    fn sites_are_new_again_when_all_are_forgotten() {
        let counts = TrapCounts::default();
        for _ in 0..3 {
            let heats: Vec<Heat> = (0..256).map(|site| counts.count(0x1234_0000 + site)).collect();
            assert_eq!(heats, [Heat::New; 256]);
            assert_eq!(counts.count(0x1234_0000), Heat::Cold);
            counts.clear();
        }
    }

    #[test]
    fn a_collision_begins_again() {
        let counts = TrapCounts::default();
        let other = (0x40_1235..).find(|address: &u64| (address ^ address >> 8) % 256 == (0x40_1234 ^ 0x4012) % 256);
        let other = other.expect("one of 256 addresses");
        counts.count(0x40_1234);
        assert_eq!(counts.count(other), Heat::New);
        assert_eq!(counts.count(0x40_1234), Heat::New);
    }
}
