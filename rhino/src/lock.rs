//! Locks on pages: strict two-phase, with a graph of who waits for whom.
//!
//! A request is granted, or waits in the order of coming; one that holds the page for reading and wants to write goes
//! before those that hold nothing. If waiting would close a circle, the youngest in it is the *victim*: it is told at
//! its next request, aborts, and tries again. Two readers that both want to write are the usual circle.
//!
//! As long as one transaction alone asks for anything, what it holds is noted in a list ([`Alone`]) and nothing is
//! looked up: that is most programs, most of the time. The first that comes beside it has the list made into the table.
//!
//! # Invariants
//!
//! - LOCK-1 A page has one writer, or readers only.
//! - LOCK-2 No circle of waits lasts: each is found by the request that closes it.
//! - LOCK-3 Locks are given back all at once ([`LockTable::release`]), never one by one.
#![forbid(unsafe_code)]

use alloc::collections::BTreeSet;
use alloc::collections::btree_map::{BTreeMap, Entry};
use alloc::vec::Vec;
use core::iter;

/// A page of a segment: segment, page.
pub type PageName = (u32, u64);

/// What a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Loads.
    Read,
    /// Loads and stores.
    Write,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lock is held.
    Granted,
    /// Ask again when locks were released.
    Wait,
    /// The asker is the victim of a deadlock.
    Victim,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    transaction: u64,
    page: PageName,
    mode: Mode,
}

/// Who holds a page: one, as a rule, which needs no memory of its own.
#[derive(Debug)]
struct Holders {
    first: (u64, Mode),
    others: Vec<(u64, Mode)>,
}

impl Holders {
    fn iter(&self) -> impl Iterator<Item = &(u64, Mode)> {
        iter::once(&self.first).chain(&self.others)
    }

    /// Gives a transaction this mode.
    fn set(&mut self, transaction: u64, mode: Mode) {
        match iter::once(&mut self.first).chain(&mut self.others).find(|holder| holder.0 == transaction) {
            Some(holder) => holder.1 = mode,
            None => self.others.push((transaction, mode)),
        }
    }

    /// Takes a transaction out; true if nobody is left.
    fn remove(&mut self, transaction: u64) -> bool {
        self.others.retain(|holder| holder.0 != transaction);
        if self.first.0 != transaction {
            return false;
        }
        match self.others.pop() {
            Some(other) => self.first = other,
            None => return true,
        }
        false
    }
}

/// What a transaction holds that is the only one. Pages may stand there more than once.
#[derive(Debug)]
struct Alone {
    transaction: u64,
    locks: Vec<(PageName, Mode)>,
    /// With so many, those that stand there again are taken out.
    limit: usize,
}

/// The least [`Alone::limit`].
const ALONE_LIMIT_MIN: usize = 256;

impl Alone {
    fn new(transaction: u64) -> Self {
        Self { transaction, locks: Vec::new(), limit: ALONE_LIMIT_MIN }
    }

    fn add(&mut self, page: PageName, mode: Mode) {
        if self.locks.len() >= self.limit {
            // The strongest of a page comes first, and stays.
            self.locks.sort_unstable_by(|left, right| left.0.cmp(&right.0).then(right.1.cmp(&left.1)));
            self.locks.dedup_by_key(|lock| lock.0);
            self.limit = ALONE_LIMIT_MIN.max(2 * self.locks.len());
        }
        self.locks.push((page, mode));
    }
}

/// All locks of a store. Transactions are numbers; a larger one is younger.
#[derive(Debug, Default)]
pub struct LockTable {
    /// Then nobody holds anything by the table.
    alone: Option<Alone>,
    holders: BTreeMap<PageName, Holders>,
    /// What each transaction is a holder of, each page once.
    held: BTreeMap<u64, Vec<PageName>>,
    /// In the order of coming; a transaction waits for one page at a time.
    waiters: Vec<Waiter>,
    victims: BTreeSet<u64>,
    release_count: u64,
}

impl LockTable {
    /// What a transaction holds of a page, by the table.
    fn mode(&self, transaction: u64, page: PageName) -> Option<Mode> {
        let holders = self.holders.get(&page)?;
        holders.iter().find(|holder| holder.0 == transaction).map(|holder| holder.1)
    }

    /// Grows whenever a request that waits may be granted or refused: ask again then.
    pub fn release_count(&self) -> u64 {
        self.release_count
    }

    /// True if the transaction was chosen to break a deadlock.
    pub fn is_victim(&self, transaction: u64) -> bool {
        self.victims.contains(&transaction)
    }

    /// Asks for a lock.
    pub fn lock(&mut self, transaction: u64, page: PageName, mode: Mode) -> Answer {
        if self.holders.is_empty() && self.waiters.is_empty() && self.victims.is_empty() {
            let alone = self.alone.get_or_insert_with(|| Alone::new(transaction));
            if alone.transaction == transaction {
                alone.add(page, mode);
                return Answer::Granted;
            }
            self.end_alone();
        }
        if self.is_victim(transaction) {
            return Answer::Victim;
        }
        if self.waiters.is_empty() && self.take_free(transaction, page, mode) {
            return Answer::Granted;
        }
        let held = self.mode(transaction, page);
        if held.is_some_and(|held| held >= mode) {
            return Answer::Granted;
        }
        let place = self.waiters.iter().position(|waiter| waiter.transaction == transaction);
        let request = Waiter { transaction, page, mode };
        let place = match place {
            Some(place) if self.waiters[place].page == page => {
                self.waiters[place] = request;
                place
            }
            Some(place) => {
                self.waiters.remove(place);
                self.waiters.push(request);
                self.waiters.len() - 1
            }
            None => {
                self.waiters.push(request);
                self.waiters.len() - 1
            }
        };
        if self.blockers(place).is_empty() {
            self.waiters.remove(place);
            match self.holders.entry(page) {
                Entry::Vacant(free) => _ = free.insert(Holders { first: (transaction, mode), others: Vec::new() }),
                Entry::Occupied(known) => known.into_mut().set(transaction, mode),
            }
            if held.is_none() {
                self.held.entry(transaction).or_default().push(page);
            }
            return Answer::Granted;
        }
        self.break_circles(transaction);
        if self.is_victim(transaction) { Answer::Victim } else { Answer::Wait }
    }

    /// Another comes beside the one that was alone.
    #[cold]
    fn end_alone(&mut self) {
        let Some(Alone { transaction, locks, .. }) = self.alone.take() else { return };
        for (page, mode) in locks {
            self.take_free(transaction, page, mode);
        }
    }

    /// Takes a lock that nobody else holds, where nobody waits for anything; false if it is not such a one.
    fn take_free(&mut self, transaction: u64, page: PageName, mode: Mode) -> bool {
        match self.holders.entry(page) {
            Entry::Vacant(free) => {
                free.insert(Holders { first: (transaction, mode), others: Vec::new() });
                self.held.entry(transaction).or_default().push(page);
                true
            }
            Entry::Occupied(known) => {
                let known = known.into_mut();
                let is_own = known.first.0 == transaction && known.others.is_empty();
                if is_own {
                    known.first.1 = known.first.1.max(mode);
                }
                is_own
            }
        }
    }

    /// The transactions that a waiting request waits for.
    fn blockers(&self, place: usize) -> Vec<u64> {
        let request = self.waiters[place];
        let conflicts = |mode: Mode| mode == Mode::Write || request.mode == Mode::Write;
        let holders = self.holders.get(&request.page);
        let mut blockers: Vec<u64> = holders
            .into_iter()
            .flat_map(Holders::iter)
            .filter(|holder| holder.0 != request.transaction && conflicts(holder.1))
            .map(|holder| holder.0)
            .collect();
        // Who holds the page already waits for nobody that does not.
        if self.mode(request.transaction, request.page).is_none() {
            let before = self.waiters[..place].iter();
            let same = before.filter(|waiter| waiter.page == request.page && conflicts(waiter.mode));
            blockers.extend(same.map(|waiter| waiter.transaction));
        }
        blockers
    }

    /// Chooses victims until `transaction` is in no circle.
    fn break_circles(&mut self, transaction: u64) {
        while let Some(circle) = self.circle(transaction) {
            let victim = circle.into_iter().max().unwrap_or(transaction);
            self.victims.insert(victim);
            // It waits for nothing any more; what it holds it holds until it has aborted.
            self.waiters.retain(|waiter| waiter.transaction != victim);
            self.release_count += 1;
        }
    }

    /// A circle of waits through a transaction.
    fn circle(&self, transaction: u64) -> Option<Vec<u64>> {
        // Depth first; each transaction is visited once, and has at most one request.
        let mut path: Vec<(u64, Vec<u64>)> = Vec::new();
        let mut seen = BTreeSet::new();
        let waits = |of: u64| {
            let place = self.waiters.iter().position(|waiter| waiter.transaction == of);
            place.map(|place| self.blockers(place)).unwrap_or_default()
        };
        path.push((transaction, waits(transaction)));
        while let Some((_, rest)) = path.last_mut() {
            let Some(next) = rest.pop() else {
                path.pop();
                continue;
            };
            if next == transaction {
                return Some(path.iter().map(|step| step.0).collect());
            }
            if seen.insert(next) {
                path.push((next, waits(next)));
            }
        }
        None
    }

    /// Gives back all that a transaction holds and asks for: it has ended.
    pub fn release(&mut self, transaction: u64) {
        self.alone.take_if(|alone| alone.transaction == transaction);
        for page in self.held.remove(&transaction).unwrap_or_default() {
            if let Entry::Occupied(mut known) = self.holders.entry(page)
                && known.get_mut().remove(transaction)
            {
                known.remove();
            }
        }
        self.waiters.retain(|waiter| waiter.transaction != transaction);
        self.victims.remove(&transaction);
        self.release_count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Draws;

    const PAGE: PageName = (0, 1);
    const OTHER: PageName = (0, 2);

    #[test]
    fn readers_share_and_writers_do_not() {
        let mut locks = LockTable::default();
        assert_eq!(locks.lock(1, PAGE, Mode::Read), Answer::Granted);
        assert_eq!(locks.lock(2, PAGE, Mode::Read), Answer::Granted);
        assert_eq!(locks.lock(3, PAGE, Mode::Write), Answer::Wait);
        // Who comes behind a waiting writer waits too, so that it gets its turn.
        assert_eq!(locks.lock(4, PAGE, Mode::Read), Answer::Wait);
        locks.release(1);
        assert_eq!(locks.lock(3, PAGE, Mode::Write), Answer::Wait);
        locks.release(2);
        assert_eq!(locks.lock(4, PAGE, Mode::Read), Answer::Wait);
        assert_eq!(locks.lock(3, PAGE, Mode::Write), Answer::Granted);
        locks.release(3);
        assert_eq!(locks.lock(4, PAGE, Mode::Read), Answer::Granted);
    }

    #[test]
    fn two_readers_that_want_to_write_are_a_deadlock() {
        let mut locks = LockTable::default();
        assert_eq!(locks.lock(1, PAGE, Mode::Read), Answer::Granted);
        assert_eq!(locks.lock(2, PAGE, Mode::Read), Answer::Granted);
        assert_eq!(locks.lock(1, PAGE, Mode::Write), Answer::Wait);
        assert_eq!(locks.lock(2, PAGE, Mode::Write), Answer::Victim);
        assert_eq!(locks.lock(1, PAGE, Mode::Write), Answer::Wait);
        locks.release(2);
        assert_eq!(locks.lock(1, PAGE, Mode::Write), Answer::Granted);
    }

    #[test]
    fn the_youngest_is_the_victim() {
        let mut locks = LockTable::default();
        assert_eq!(locks.lock(1, PAGE, Mode::Write), Answer::Granted);
        assert_eq!(locks.lock(2, OTHER, Mode::Write), Answer::Granted);
        assert_eq!(locks.lock(2, PAGE, Mode::Write), Answer::Wait);
        let before = locks.release_count();
        assert_eq!(locks.lock(1, OTHER, Mode::Read), Answer::Wait);
        assert!(locks.release_count() > before, "the victim sleeps on");
        assert_eq!(locks.lock(2, PAGE, Mode::Write), Answer::Victim);
        locks.release(2);
        assert_eq!(locks.lock(1, OTHER, Mode::Read), Answer::Granted);
    }

    #[test]
    fn what_one_alone_holds_others_wait_for() {
        let mut locks = LockTable::default();
        for round in 0..3 {
            for page in 0..1000 {
                let mode = if round == 1 && page % 2 == 0 { Mode::Write } else { Mode::Read };
                assert_eq!(locks.lock(1, (0, page), mode), Answer::Granted);
            }
        }
        let noted = locks.alone.as_ref().map(|alone| alone.locks.len());
        assert!(noted.is_some_and(|noted| noted <= 2 * 1000 + ALONE_LIMIT_MIN), "{noted:?}");
        assert_eq!(locks.lock(2, (0, 7), Mode::Read), Answer::Granted);
        assert_eq!(locks.lock(2, (0, 1000), Mode::Write), Answer::Granted);
        assert_eq!(locks.lock(2, (0, 8), Mode::Read), Answer::Wait);
        // That closes the circle, and the younger is the victim.
        assert_eq!(locks.lock(1, (0, 1000), Mode::Read), Answer::Wait);
        assert_eq!(locks.lock(2, (0, 8), Mode::Read), Answer::Victim);
        locks.release(2);
        assert_eq!(locks.lock(1, (0, 1000), Mode::Read), Answer::Granted);
        locks.release(1);
        // The next is alone again.
        assert_eq!(locks.lock(3, (0, 8), Mode::Write), Answer::Granted);
        assert!(locks.alone.is_some() && locks.holders.is_empty());
    }

    /// Transactions that want random pages: LOCK-1 holds, and somebody can always go on.
    #[test]
    fn somebody_can_always_go_on() {
        for seed in 0..300 {
            let mut draws = Draws::new(seed);
            let mut locks = LockTable::default();
            let mut next = 8;
            let mut live: Vec<(u64, Option<(PageName, Mode)>)> = (0..6).map(|number| (number, None)).collect();
            let mut stalled_count = 0;
            for _ in 0..200 {
                let mut moved = false;
                for slot in &mut live {
                    let (page, mode) = slot.1.unwrap_or_else(|| {
                        let mode = if draws.once_in(2) { Mode::Read } else { Mode::Write };
                        ((0, draws.below(4) as u64), mode)
                    });
                    slot.1 = Some((page, mode));
                    match locks.lock(slot.0, page, mode) {
                        Answer::Wait => continue,
                        Answer::Granted => slot.1 = None,
                        Answer::Victim => {
                            locks.release(slot.0);
                            *slot = (next, None);
                            next += 1;
                        }
                    }
                    moved = true;
                    if draws.once_in(5) && slot.1.is_none() {
                        locks.release(slot.0);
                        slot.0 = next;
                        next += 1;
                    }
                }
                // Of a round in which all wait the last request has made a victim, which is told in the next.
                stalled_count = if moved { 0 } else { stalled_count + 1 };
                assert!(stalled_count < 2, "seed {seed}: all wait");
                for holders in locks.holders.values() {
                    let writers = holders.iter().filter(|holder| holder.1 == Mode::Write).count();
                    assert!(writers == 0 || holders.others.is_empty(), "seed {seed}: {holders:?}");
                }
            }
        }
    }
}
