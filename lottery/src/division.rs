//! Units of a resource that is divided by space, moved between its holders round by round.
//!
//! A part has a guaranteed and a greatest size. What it wants beyond what it holds comes from what is free, and then,
//! unit by unit, from the part that the inverse lottery names ([`loser`]). The part that asks takes part in that draw
//! as all others do: a unit that it would lose to itself does not move, nor do units that two would exchange within a
//! round. So where all ask alike, parts come to weigh in inverse proportion to their chances of losing: `(T - t) / T`
//! of part `t` of all tickets `T`.
//!
//! No part loses what it is guaranteed. What costs its holder more than the asker gains is asked for only by parts in
//! need: of others a part gives what it says that it can spare. A part in need gets what others can spare, then what
//! they hold, then, where only those are left that are in need as well, takes its chance among them. A part that is
//! asked already is not asked again: what would come from it comes in a later round.

use crate::inverse::{Holder, loser};
use crate::random::Random;

/// Most parts of a division.
pub const PART_COUNT_MAX: usize = 16;

/// How a part stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Tickets of the part.
    pub tickets: u32,
    /// Units that it keeps whatever others want.
    pub guaranteed: u32,
    /// Units that it holds at most.
    pub limit: u32,
    /// Units that it holds, or may take without asking.
    pub held: u32,
    /// What it is drawn by, in a measure that is the same for all parts: what it uses of those.
    pub weight: u32,
    /// Units that it wants beyond those.
    pub wanted: u32,
    /// Units that it can give without harm, by its own account.
    pub spare: u32,
    /// It cannot go on without what it wants.
    pub is_in_need: bool,
    /// It is asked for units already, or is to get some.
    pub is_busy: bool,
}

/// What a round moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Units that each part gives.
    pub losses: [u32; PART_COUNT_MAX],
    /// Units that each part gets.
    pub gains: [u32; PART_COUNT_MAX],
    /// Parts in need that get nothing, now or later, unless others change what they do.
    pub is_refused: [bool; PART_COUNT_MAX],
}

/// The loser of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    Loser(usize),
    /// Nobody now; it is worth asking again.
    Later,
    Nobody,
}

/// Divides once: each part gets at most `step` of the units that it wants. `free` units are held by none; parts in need
/// are first at them, then the part behind `first`, and so on round. Parts that want units themselves are asked by
/// others that only want some if the round `is_exchange`.
pub fn divide(
    parts: &[Part],
    mut free: u32,
    step: u32,
    first: usize,
    is_exchange: bool,
    random: &mut impl Random,
) -> Round {
    let parts = &parts[..parts.len().min(PART_COUNT_MAX)];
    let mut round = Round::default();
    let in_turn = || (0..parts.len()).map(|index| (first + index) % parts.len());
    let needy = in_turn().filter(|index| parts[*index].is_in_need);
    for asker in needy.chain(in_turn().filter(|index| !parts[*index].is_in_need)) {
        let part = &parts[asker];
        for _ in 0..part.wanted.min(part.limit.saturating_sub(part.held)).min(step) {
            if free > 0 {
                free -= 1;
            } else {
                match pick(parts, &round, asker, is_exchange, random) {
                    Pick::Loser(giver) if giver != asker => round.losses[giver] += 1,
                    Pick::Loser(_) if !part.is_in_need => continue,
                    Pick::Later => break,
                    Pick::Loser(_) | Pick::Nobody => {
                        round.is_refused[asker] = part.is_in_need && round.gains[asker] == 0;
                        break;
                    }
                }
            }
            round.gains[asker] += 1;
        }
        // More than its limit it never gets.
        round.is_refused[asker] |= part.is_in_need && part.held >= part.limit;
    }
    for (loss, gain) in round.losses.iter_mut().zip(&mut round.gains) {
        (*loss, *gain) = (loss.saturating_sub(*gain), gain.saturating_sub(*loss));
    }
    round
}

/// The part that loses the next unit for `asker`.
fn pick(parts: &[Part], round: &Round, asker: usize, is_exchange: bool, random: &mut impl Random) -> Pick {
    let is_in_need = parts[asker].is_in_need;
    let has_more = |index: usize| index != asker && parts[index].held - round.losses[index] > parts[index].guaranteed;
    let can_spare = |index: usize| round.losses[index] < parts[index].spare;
    let is_content = |index: usize| parts[index].wanted == 0 || is_exchange;
    let one_of = |random: &mut _, counts: &dyn Fn(usize) -> bool, with_asker: bool| {
        let is_asked = |index: usize| has_more(index) && !parts[index].is_busy && counts(index);
        let mut holders = [Holder::default(); PART_COUNT_MAX];
        for (index, (holder, part)) in holders.iter_mut().zip(parts).enumerate() {
            let takes_part = is_asked(index) || with_asker && index == asker;
            // As at the round's beginning: otherwise a part that is drawn later would lose less than its due.
            *holder = Holder { tickets: part.tickets, units: if takes_part { part.weight.max(1) } else { 0 } };
        }
        (0..parts.len()).any(is_asked).then(|| loser(&holders[..parts.len()], random)).flatten()
    };
    let found = if is_in_need {
        one_of(random, &|index| can_spare(index) && !parts[index].is_in_need, false)
            .or_else(|| one_of(random, &|index| !parts[index].is_in_need, false))
            .or_else(|| one_of(random, &|_| is_exchange, true))
    } else {
        one_of(random, &|index| can_spare(index) && is_content(index), true)
    };
    match found {
        Some(index) => Pick::Loser(index),
        None if is_in_need && (0..parts.len()).any(has_more) => Pick::Later,
        None => Pick::Nobody,
    }
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
            weight: held,
            wanted: 0,
            spare: u32::MAX,
            is_in_need: false,
            is_busy: false,
        }
    }

    impl Part {
        /// Has it use all that it holds after a round.
        fn hold(&mut self, gain: u32, loss: u32) {
            self.held = self.held + gain - loss;
            self.weight = self.held;
        }
    }

    /// Lets all parts ask for a step in each round, from whatever they hold at first; what each holds in the mean.
    fn shares(mut parts: [Part; 3], step: u32, round_count: usize) -> [f64; 3] {
        let mut random = Keyed::new([7, 9]);
        let mut sums = [0u64; 3];
        for number in 0..2 * round_count {
            parts.iter_mut().for_each(|part| part.wanted = step);
            let round = divide(&parts, 0, step, number, true, &mut random);
            for (index, part) in parts.iter_mut().enumerate() {
                part.hold(round.gains[index], round.losses[index]);
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
                assert!((share / due - 1.0).abs() < 0.01, "{begin:?}: {share} of {due}");
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
            let round = divide(&parts, 0, 64, number, true, &mut Keyed::new([number as u64, 0]));
            for (index, part) in parts.iter_mut().enumerate() {
                part.hold(round.gains[index], round.losses[index]);
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
        let round = divide(&parts, 0, 100, 0, true, &mut random);
        assert!(round.losses[1] <= 3 && round.gains[0] == round.losses[1]);
        parts[0].is_in_need = true;
        let round = divide(&parts, 0, 100, 0, true, &mut random);
        assert_eq!((round.losses[1], round.gains[0], round.losses[0]), (10, 10, 0));
        parts[1].guaranteed = 4;
        assert_eq!(divide(&parts, 0, 100, 0, true, &mut random).losses[1], 6);
    }

    #[test]
    fn what_is_nobodys_goes_first_to_who_is_in_need_and_then_in_turn() {
        let mut parts = [part(1, 0), part(1, 0), part(1, 0)];
        parts.iter_mut().for_each(|part| part.wanted = 4);
        let mut random = Keyed::new([3, 4]);
        assert_eq!(divide(&parts, 6, 4, 1, true, &mut random).gains[..3], [0, 4, 2]);
        parts[0].is_in_need = true;
        assert_eq!(divide(&parts, 6, 4, 1, true, &mut random).gains[..3], [4, 2, 0]);
        assert_eq!(divide(&[], 6, 4, 0, true, &mut random).gains, [0; 16]);
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
                weight: below(300),
                wanted: below(300),
                spare: below(300),
                is_in_need: below(2) == 0,
                is_busy: below(2) == 0,
            });
            let (count, free, step) = (below(21) as usize, below(100), below(50));
            let parts = &parts[..count];
            let round = divide(parts, free, step, number, number % 2 == 0, &mut random);
            let [gained, lost] = [round.gains, round.losses].map(|counts| counts.iter().sum::<u32>());
            assert!(gained >= lost && gained - lost <= free);
            for (index, part) in parts.iter().take(16).enumerate() {
                let (gain, loss) = (round.gains[index], round.losses[index]);
                assert!(gain <= step.min(part.wanted));
                assert!(gain == 0 || part.held + gain <= part.limit);
                assert!(loss == 0 || !part.is_busy && part.held - loss >= part.guaranteed);
            }
        }
    }

    #[test]
    fn need_takes_what_is_spare_first_and_waits_for_who_gives_already() {
        let mut random = Keyed::new([8, 9]);
        let mut parts = [part(1, 10), part(1, 100), part(1, 20)];
        (parts[0].wanted, parts[0].is_in_need) = (16, true);
        (parts[1].spare, parts[2].spare) = (0, 8);
        let round = divide(&parts, 0, 16, 0, false, &mut random);
        assert_eq!((round.losses[2] >= 8, round.gains[0], round.is_refused[0]), (true, 16, false));
        // The only one that has something gives already: it is worth waiting for.
        (parts[1].is_busy, parts[2].held) = (true, 0);
        let round = divide(&parts, 0, 16, 0, false, &mut random);
        assert_eq!((round.gains[0], round.is_refused[0]), (0, false));
        parts[1].held = 0;
        assert!(divide(&parts, 0, 16, 0, false, &mut random).is_refused[0], "nobody has anything");
        parts[0].limit = 10;
        assert!(divide(&parts, 50, 16, 0, false, &mut random).is_refused[0], "its own limit");
    }

    #[test]
    fn of_those_in_need_tickets_say_who_is_refused() {
        let mut random = Keyed::new([10, 11]);
        let mut parts = [part(900, 50), part(100, 50)];
        parts.iter_mut().for_each(|part| (part.wanted, part.is_in_need) = (1, true));
        let mut refusals = [0; 2];
        for number in 0..1000 {
            let round = divide(&parts, 0, 1, number, true, &mut random);
            refusals.iter_mut().zip(round.is_refused).for_each(|(count, is_refused)| *count += u32::from(is_refused));
        }
        assert!(refusals[0] < 200 && refusals[1] > 800, "{refusals:?}");
        assert_eq!(divide(&parts, 0, 1, 0, false, &mut random).is_refused[..2], [false; 2], "not in each round");
    }

    #[test]
    fn spread_draws_stay_at_the_fixed_point() {
        let mut random = crate::random::Spread::new(17);
        let mut parts = [part(300, 30), part(200, 30), part(100, 30)];
        let due = [90.0 * 2.0 / 4.7, 90.0 * 1.5 / 4.7, 90.0 * 1.2 / 4.7];
        for number in 0..2000 {
            parts.iter_mut().for_each(|part| part.wanted = 4);
            let round = divide(&parts, 0, 4, number, true, &mut random);
            for (index, part) in parts.iter_mut().enumerate() {
                part.hold(round.gains[index], round.losses[index]);
                let distance = (f64::from(part.held) - due[index]).abs();
                assert!(number < 60 || distance < 2.0, "{number}: {index} holds {}", part.held);
            }
        }
    }
}
