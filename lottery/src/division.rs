//! Who gets and who gives units of a resource that is divided by space, round by round.
//!
//! A part has a guaranteed and a greatest size. What it wants beyond what it holds comes from what nobody holds, and
//! then, unit by unit, from whoever the inverse lottery names ([`loser`]). The one who asks takes part in that draw as
//! all others do: a unit that it would lose to itself does not move. So where all ask alike, parts come to hold units
//! in inverse proportion to their chances of losing: `(T - t) / T` of part `t` of all tickets `T`.
//!
//! Nobody loses what it is guaranteed. What costs its holder more than the asker gains is asked for only by those in
//! need: of others a part gives what it says that it can spare.

use crate::inverse::{Holder, loser};
use crate::random::Random;

/// Most parts of a division.
pub const PART_COUNT_MAX: usize = 16;

/// How a part stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its tickets.
    pub tickets: u32,
    /// Units that it keeps whatever others want.
    pub guaranteed: u32,
    /// Units that it holds at most.
    pub limit: u32,
    /// Units that it holds, or may take without asking.
    pub held: u32,
    /// Units that it wants beyond those.
    pub wanted: u32,
    /// Units that it can give without harm, by its own account.
    pub spare: u32,
    /// It cannot go on without what it wants.
    pub is_in_need: bool,
    /// It can be asked now.
    pub is_asked: bool,
}

/// What a round moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Units that each part gives.
    pub losses: [u32; PART_COUNT_MAX],
    /// Units that each part gets.
    pub gains: [u32; PART_COUNT_MAX],
}

/// Divides once: each part gets at most `step` of the units that it wants. `free` units are nobody's; whoever is in
/// need is first at them, then the part behind `first`, and so on round.
pub fn divide(parts: &[Part], free: u32, step: u32, first: usize, random: &mut impl Random) -> Round {
    let count = parts.len().min(PART_COUNT_MAX);
    let parts = &parts[..count];
    let mut round = Round::default();
    let mut free = free;
    let in_turn = || (0..count).map(|index| (first + index) % count);
    let needy = in_turn().filter(|index| parts[*index].is_in_need);
    for asker in needy.chain(in_turn().filter(|index| !parts[*index].is_in_need)) {
        let part = &parts[asker];
        for _ in 0..part.wanted.min(part.limit.saturating_sub(part.held)).min(step) {
            if free > 0 {
                free -= 1;
            } else {
                match pick(parts, &round, asker, random) {
                    Some(giver) if giver != asker => round.losses[giver] += 1,
                    Some(_) => continue,
                    None => break,
                }
            }
            round.gains[asker] += 1;
        }
    }
    round
}

/// Who loses the next unit for `asker`; `None`: nobody has one to lose.
fn pick(parts: &[Part], round: &Round, asker: usize, random: &mut impl Random) -> Option<usize> {
    let mut holders = [Holder::default(); PART_COUNT_MAX];
    let mut has_other = false;
    for (index, (part, holder)) in parts.iter().zip(&mut holders).enumerate() {
        let left = part.held.saturating_sub(round.losses[index]);
        let can_spare = round.losses[index] < part.spare || parts[asker].is_in_need;
        let is_asked = index == asker || part.is_asked && left > part.guaranteed && can_spare;
        has_other |= is_asked && index != asker;
        // Who is in need gains nothing by losing to itself.
        let counts = is_asked && !(index == asker && part.is_in_need);
        *holder = Holder { tickets: part.tickets, units: if counts { left } else { 0 } };
    }
    if has_other { loser(&holders[..parts.len()], random) } else { None }
}

#[cfg(test)]
mod tests {
    use super::{Part, divide};
    use crate::random::{Keyed, Random};

    fn part(tickets: u32, held: u32) -> Part {
        Part {
            tickets,
            guaranteed: 0,
            limit: 1 << 20,
            held,
            wanted: 0,
            spare: u32::MAX,
            is_in_need: false,
            is_asked: true,
        }
    }

    /// Lets all parts ask for a step in each round, from whatever they hold at first; what each holds in the mean.
    fn shares(mut parts: [Part; 3], step: u32, round_count: usize) -> [f64; 3] {
        let mut random = Keyed::new([7, 9]);
        let mut sums = [0u64; 3];
        for number in 0..2 * round_count {
            parts.iter_mut().for_each(|part| part.wanted = step);
            let round = divide(&parts, 0, step, number, &mut random);
            for (index, part) in parts.iter_mut().enumerate() {
                part.held = part.held + round.gains[index] - round.losses[index];
                sums[index] += if number >= round_count { u64::from(part.held) } else { 0 };
            }
        }
        let all: u64 = sums.iter().sum();
        sums.map(|sum| sum as f64 / all as f64)
    }

    #[test]
    fn three_that_always_want_more_reach_the_fixed_point() {
        // Chances of losing 1/2, 2/3, 5/6 a unit: shares as 2 : 3/2 : 6/5.
        let due = [2.0 / 4.7, 1.5 / 4.7, 1.2 / 4.7];
        for begin in [[1000, 1000, 1000], [3000, 0, 0], [0, 0, 3000]] {
            let parts = [part(300, begin[0]), part(200, begin[1]), part(100, begin[2])];
            for (share, due) in shares(parts, 16, 2000).into_iter().zip(due) {
                assert!((share / due - 1.0).abs() < 0.05, "{begin:?}: {share} of {due}");
            }
        }
    }

    #[test]
    fn the_guaranteed_part_is_kept_and_the_limit_is_not_passed() {
        let mut parts = [part(1000, 100), part(1, 100), part(1, 100)];
        parts[1].guaranteed = 90;
        parts[0].limit = 150;
        for number in 0..1000 {
            parts[0].wanted = 7;
            let round = divide(&parts, 0, 64, number, &mut Keyed::new([number as u64, 0]));
            for (index, part) in parts.iter_mut().enumerate() {
                part.held = part.held + round.gains[index] - round.losses[index];
            }
        }
        assert_eq!(parts[0].held, 150);
        assert!(parts[1].held >= 90, "{parts:?}");
    }

    #[test]
    fn only_who_is_in_need_gets_what_is_not_spare() {
        let mut parts = [part(1, 10), part(1, 10)];
        parts[1].spare = 3;
        parts[0].wanted = 20;
        let mut random = Keyed::new([1, 2]);
        let round = divide(&parts, 0, 100, 0, &mut random);
        assert!(round.losses[1] <= 3 && round.gains[0] == round.losses[1]);
        parts[0].is_in_need = true;
        let round = divide(&parts, 0, 100, 0, &mut random);
        assert_eq!((round.losses[1], round.gains[0], round.losses[0]), (10, 10, 0));
        parts[1].guaranteed = 4;
        assert_eq!(divide(&parts, 0, 100, 0, &mut random).losses[1], 6);
    }

    #[test]
    fn what_is_nobodys_goes_first_to_who_is_in_need_and_then_in_turn() {
        let mut parts = [part(1, 0), part(1, 0), part(1, 0)];
        parts.iter_mut().for_each(|part| part.wanted = 4);
        let mut random = Keyed::new([3, 4]);
        assert_eq!(divide(&parts, 6, 4, 1, &mut random).gains[..3], [0, 4, 2]);
        parts[0].is_in_need = true;
        assert_eq!(divide(&parts, 6, 4, 1, &mut random).gains[..3], [4, 2, 0]);
        assert_eq!(divide(&[], 6, 4, 0, &mut random).gains, [0; 16]);
    }

    #[test]
    fn nothing_is_made_or_lost_whatever_the_parts_are() {
        let mut random = Keyed::new([5, 6]);
        for number in 0..3000 {
            let mut below = |end: u64| random.below(end) as u32;
            let parts: [Part; 20] = core::array::from_fn(|_| Part {
                tickets: below(2000),
                guaranteed: below(300),
                limit: below(300),
                held: below(300),
                wanted: below(300),
                spare: below(300),
                is_in_need: below(2) == 0,
                is_asked: below(2) == 0,
            });
            let (count, free, step) = (below(21) as usize, below(100), below(50));
            let parts = &parts[..count];
            let round = divide(parts, free, step, number, &mut random);
            let [gained, lost] = [round.gains, round.losses].map(|counts| counts.iter().sum::<u32>());
            assert!(gained >= lost && gained - lost <= free);
            for (index, part) in parts.iter().take(16).enumerate() {
                let (gain, loss) = (round.gains[index], round.losses[index]);
                assert!(gain <= step.min(part.wanted));
                assert!(gain == 0 || part.held + gain <= part.limit);
                assert!(loss == 0 || part.is_asked && part.held - loss >= part.guaranteed);
            }
        }
    }
}
