//! The inverse lottery: which holder loses a unit of a resource that is divided by space, such as a page of memory.
//!
//! Of `n` holders with `t` of `T` tickets, one loses with the chance (1 - t/T) / (n - 1), times the part of the
//! resource that it holds: the more tickets the rarer, the more units the more often. Linear in the number of holders:
//! it is asked when a unit is taken from somebody, not on a switch.

use crate::random::Random;

/// Most holders that [`loser`] counts.
pub const HOLDER_COUNT_MAX: usize = 1 << 20;

/// A holder: tickets, and units held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its tickets, or its value.
    pub tickets: u32,
    /// The units that it holds; a holder of none loses none.
    pub units: u32,
}

/// Picks the loser; `None` if none holds a unit. A holder of all tickets loses only what no other has.
///
/// # Panics
/// With more than `HOLDER_COUNT_MAX` holders.
pub fn loser(holders: &[Holder], random: &mut impl Random) -> Option<usize> {
    assert!(holders.len() <= HOLDER_COUNT_MAX, "a stated limit");
    // 2^20 holders of 2^32 tickets: below 2^52; times 2^32 units and 2^20 holders: wider than 64 bits, so scaled below.
    let tickets: u64 = holders.iter().map(|holder| u64::from(holder.tickets)).sum();
    let weight = |holder: &Holder| u128::from(tickets - u64::from(holder.tickets)) * u128::from(holder.units);
    let total: u128 = holders.iter().map(weight).sum();
    if total == 0 {
        // One holder of all tickets, or nobody with any: by units alone.
        let units: u64 = holders.iter().map(|holder| u64::from(holder.units)).sum();
        if units == 0 {
            return None;
        }
        return at(holders.iter().map(|holder| u128::from(holder.units)), u128::from(random.below(units)));
    }
    at(holders.iter().map(weight), below_wide(total, random))
}

fn at(mut weights: impl Iterator<Item = u128>, number: u128) -> Option<usize> {
    let mut rest = number;
    weights.position(|weight| {
        let is_it = rest < weight;
        rest = rest.saturating_sub(weight);
        is_it
    })
}

/// A number below `end` (not 0): words of as many bits as `end` has, until one is below it.
fn below_wide(end: u128, random: &mut impl Random) -> u128 {
    if let Ok(end) = u64::try_from(end) {
        return u128::from(random.below(end));
    }
    let mask = u128::MAX >> end.leading_zeros();
    loop {
        let number = (u128::from(random.next_word()) << 64 | u128::from(random.next_word())) & mask;
        if number < end {
            return number;
        }
    }
}
