//! Which names of a listing a program will ask for next.
//!
//! Three orders are looked at: that of the listing, that of the names, that of the inode numbers. Where a name follows
//! closely on the one before in one of them, those behind it in the same order are the guess. The place in the
//! listing's own order is found by a look at what follows; the other two need an index, which is made when so many
//! names were not found that it costs as much as they did.
//!
//! Limits: an index has four words of 32 bits for each entry; where there is no memory for it, or there are more than
//! [`INDEX_COUNT_MAX`] entries, there is none.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::listing::Listing;

/// Names that may be left out.
const GAP_MAX: usize = 4;
/// An index is made when one in so many names was not found.
const INDEX_SHARE: usize = 64;

/// Entries of a listing that an index is made for; sorting them keeps a processor.
const INDEX_COUNT_MAX: usize = 1 << 17;

/// An order of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As they are listed.
    Listed,
    /// By the names' bytes.
    Named,
    /// By inode numbers.
    Numbered,
}

/// Positions by rank, and ranks by position.
struct Ranks {
    positions: Vec<u32>,
    ranks: Vec<u32>,
}

impl Ranks {
    fn new<K: Ord>(count: usize, key: impl Fn(usize) -> K) -> Option<Self> {
        let mut positions = Vec::new();
        positions.try_reserve_exact(count).ok()?;
        positions.extend(0..count as u32);
        positions.sort_unstable_by_key(|position| key(*position as usize));
        let mut ranks = Vec::new();
        ranks.try_reserve_exact(count).ok()?;
        ranks.resize(count, 0);
        for (rank, position) in positions.iter().enumerate() {
            ranks[*position as usize] = rank as u32;
        }
        Some(Self { positions, ranks })
    }
}

struct Index {
    named: Ranks,
    numbered: Ranks,
}

/// A place in a listing.
pub(super) struct Guess {
    listing: Arc<Listing>,
    index: Option<Index>,
    /// Names that were not found without an index.
    missed_count: usize,
    /// Of the name that was asked for last.
    position: Option<usize>,
    /// The order that the last name followed in.
    order: Order,
}

impl Guess {
    pub(super) fn new(listing: Arc<Listing>) -> Self {
        Self { listing, index: None, missed_count: 0, position: None, order: Order::Listed }
    }

    pub(super) fn listing(&self) -> &Arc<Listing> {
        &self.listing
    }

    /// The name at a position was asked for.
    pub(super) fn go_to(&mut self, position: usize) {
        self.position = Some(position);
    }

    /// A name is asked for: the order in which it follows on the one before.
    pub(super) fn meet(&mut self, name: &[u8]) -> Option<Order> {
        let before = self.position;
        let position = self.find(name)?;
        if before == Some(position) {
            return None;
        }
        self.position = Some(position);
        let orders = [self.order, Order::Listed, Order::Named, Order::Numbered];
        let order = orders.into_iter().find(|order| self.follows(*order, before, position))?;
        self.order = order;
        Some(order)
    }

    /// The last name's position, and those that follow it, `count` in all at most.
    pub(super) fn following(&self, order: Order, count: usize) -> impl Iterator<Item = usize> {
        let first = self.position.and_then(|position| self.rank(order, position));
        let end = self.listing.count();
        let ranks = first.map_or(0..0, |first| first..first.saturating_add(count).min(end));
        ranks.filter_map(move |rank| self.position_at(order, rank))
    }

    fn find(&mut self, name: &[u8]) -> Option<usize> {
        let next = self.position.map_or(0, |position| position + 1);
        let mut near = self.position.into_iter().chain(next..next + GAP_MAX);
        if let Some(position) = near.find(|position| self.listing.name_at(*position) == Some(name)) {
            return Some(position);
        }
        if self.index.is_none() {
            self.missed_count += 1;
            let count = self.listing.count();
            if self.missed_count * INDEX_SHARE < count || count > INDEX_COUNT_MAX {
                return None;
            }
            self.index = Index::new(&self.listing);
        }
        let named = &self.index.as_ref()?.named.positions;
        let place =
            named.binary_search_by_key(&name, |position| self.listing.name_at(*position as usize).unwrap_or(b""));
        place.ok().map(|place| named[place] as usize)
    }

    fn follows(&self, order: Order, before: Option<usize>, position: usize) -> bool {
        let Some(rank) = self.rank(order, position) else { return false };
        match before.map(|before| self.rank(order, before)) {
            None => rank < GAP_MAX,
            Some(None) => false,
            Some(Some(before)) => (before + 1..=before + GAP_MAX).contains(&rank),
        }
    }

    fn ranks(&self, order: Order) -> Option<&Ranks> {
        let index = self.index.as_ref()?;
        match order {
            Order::Listed => None,
            Order::Named => Some(&index.named),
            Order::Numbered => Some(&index.numbered),
        }
    }

    fn rank(&self, order: Order, position: usize) -> Option<usize> {
        match order {
            Order::Listed => Some(position),
            _ => self.ranks(order)?.ranks.get(position).map(|rank| *rank as usize),
        }
    }

    fn position_at(&self, order: Order, rank: usize) -> Option<usize> {
        match order {
            Order::Listed => Some(rank),
            _ => self.ranks(order)?.positions.get(rank).map(|position| *position as usize),
        }
    }
}

impl Index {
    fn new(listing: &Listing) -> Option<Self> {
        let count = listing.count();
        let named = Ranks::new(count, |position| listing.name_at(position).unwrap_or(b""))?;
        let numbered = Ranks::new(count, |position| listing.number_at(position).unwrap_or(0))?;
        Some(Self { named, numbered })
    }
}
