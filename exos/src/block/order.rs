//! Requests that a disk has no room for yet: which of them become one, and which goes next.
//!
//! A [`Group`] is one request to the disk: a request, or several that are neighbours there. [`Pending`] keeps groups;
//! what the next is, is an [`OrderPolicy`]:
//!
//! - `fifo`: each request as it came, those of a better class first;
//! - `program`: as they came, whatever their class, but a request that goes on where the last one ends joins it;
//! - `elevator`: upwards over the disk and then from its beginning, neighbours joined; what waits for too long first;
//! - `deadline`: the same, and "too long" is 5 ms for a read and 50 ms for a write.
//!
//! Between classes the better one goes first; only `program` does not look. A flush moves no head and names no sectors,
//! so it goes before others of its class.
//!
//! Invariants: a group is in all of the trees or in none; nothing here waits, tells or has a clock.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::disk::{DiskLimits, DiskOperation};
use super::request::{BlockRequest, PriorityClass};

/// Groups that are looked at for a neighbour, of those that end (or begin) where a request begins (or ends).
const NEIGHBOUR_COUNT_MAX: usize = 8;
/// Number of the first group; what is put back comes before it.
const NUMBER_FIRST: u64 = 1 << 62;
/// Most requests of a group.
pub(super) const GROUP_REQUEST_COUNT_MAX: usize = 256;

/// Which request goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderPolicy {
    /// As they came.
    Fifo,
    /// Upwards over the disk.
    Elevator,
    /// Upwards, but none waits for long.
    #[default]
    Deadline,
    /// As they came, neighbours joined.
    Program,
}

impl OrderPolicy {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 4] =
        [("fifo", Self::Fifo), ("elevator", Self::Elevator), ("deadline", Self::Deadline), ("program", Self::Program)];

    /// The one that is called so.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
    }

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }

    /// How long a request waits for others that are better placed.
    fn patience_ns(self, operation: DiskOperation) -> u64 {
        match (self, operation) {
            (Self::Fifo | Self::Program, _) => 0,
            (Self::Elevator, _) => 1_000_000_000,
            (Self::Deadline, DiskOperation::Read) => 5_000_000,
            (Self::Deadline, _) => 50_000_000,
        }
    }

    fn is_sorted(self) -> bool {
        matches!(self, Self::Elevator | Self::Deadline)
    }
}

/// One request to the disk: neighbours in the order of their sectors.
pub(super) struct Group {
    pub(super) first: BlockRequest,
    pub(super) rest: Vec<BlockRequest>,
    sector_count: u32,
    piece_count: usize,
    /// It stays as it is: a part of one that has failed as a whole.
    is_alone: bool,
}

impl Group {
    pub(super) fn new(request: BlockRequest) -> Self {
        let (sector_count, piece_count) = (request.sector_count, request.memory.pieces().len());
        Self { first: request, rest: Vec::new(), sector_count, piece_count, is_alone: false }
    }

    /// One that never joins others.
    pub(super) fn alone(request: BlockRequest) -> Self {
        Self { is_alone: true, ..Self::new(request) }
    }

    pub(super) fn operation(&self) -> DiskOperation {
        self.first.operation
    }

    pub(super) fn first_sector(&self) -> u64 {
        self.first.first_sector
    }

    pub(super) fn sector_count(&self) -> u32 {
        self.sector_count
    }

    pub(super) fn end_sector(&self) -> u64 {
        self.first_sector().saturating_add(u64::from(self.sector_count))
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &BlockRequest> {
        core::iter::once(&self.first).chain(&self.rest)
    }

    /// Keeps the memory of all of them for ever.
    pub(super) fn keep_for_ever(&mut self) {
        core::iter::once(&mut self.first).chain(&mut self.rest).for_each(BlockRequest::keep_for_ever);
    }

    pub(super) fn into_requests(self) -> impl Iterator<Item = BlockRequest> {
        core::iter::once(self.first).chain(self.rest)
    }

    /// Whether `next`, which begins where this ends, may join it.
    pub(super) fn takes(&self, next: &Self, limits: &DiskLimits) -> bool {
        let sector_count = u64::from(self.sector_count) + u64::from(next.sector_count);
        self.operation() == next.operation()
            && self.operation().has_memory()
            && self.first.class == next.first.class
            && self.end_sector() == next.first_sector()
            && !self.is_alone
            && !next.is_alone
            && sector_count <= u64::from(limits.sector_count_max)
            && self.piece_count + next.piece_count <= usize::from(limits.segment_count_max)
            && self.rest.len() + next.rest.len() + 2 <= GROUP_REQUEST_COUNT_MAX
    }

    /// Joins `next` to this if that is allowed and there is memory for it; gives it back otherwise.
    pub(super) fn join(&mut self, next: Self, limits: &DiskLimits) -> Option<Self> {
        if !self.takes(&next, limits) || self.rest.try_reserve(1 + next.rest.len()).is_err() {
            return Some(next);
        }
        self.sector_count += next.sector_count;
        self.piece_count += next.piece_count;
        self.rest.push(next.first);
        self.rest.extend(next.rest);
        None
    }
}

/// A group that waits.
struct Waiting {
    group: Group,
    class: PriorityClass,
    expires_ns: u64,
}

type Key = (PriorityClass, u64, u64);

/// All groups that wait.
pub(super) struct Pending {
    policy: OrderPolicy,
    /// By number, which is the order in which they came.
    groups: BTreeMap<u64, Waiting>,
    /// By class, and then by when they have waited for too long.
    by_expiry: BTreeSet<Key>,
    /// By class and first sector, and by class and end; without flushes.
    by_start: BTreeSet<Key>,
    by_end: BTreeSet<Key>,
    next_number: u64,
    /// Behind what went last.
    head: u64,
}

impl Pending {
    pub(super) fn new(policy: OrderPolicy) -> Self {
        Self {
            policy,
            groups: BTreeMap::new(),
            by_expiry: BTreeSet::new(),
            by_start: BTreeSet::new(),
            by_end: BTreeSet::new(),
            next_number: NUMBER_FIRST,
            head: 0,
        }
    }

    pub(super) fn policy(&self) -> OrderPolicy {
        self.policy
    }

    /// From now on; what waits is put in the new order.
    pub(super) fn set_policy(&mut self, policy: OrderPolicy, limits: &DiskLimits, now_ns: u64) {
        self.policy = policy;
        let (by_expiry, by_start, by_end) = (&mut self.by_expiry, &mut self.by_start, &mut self.by_end);
        by_expiry.clear();
        by_start.clear();
        by_end.clear();
        for waiting in core::mem::take(&mut self.groups).into_values() {
            self.insert(waiting.group, limits, now_ns);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds a group, or joins it to its neighbours.
    pub(super) fn insert(&mut self, group: Group, limits: &DiskLimits, now_ns: u64) {
        let Some(group) = self.join(group, limits) else { return };
        let number = self.next_number;
        self.next_number += 1;
        self.place(number, group, now_ns);
    }

    /// Puts back a group that the disk had no room for: it goes first.
    pub(super) fn put_back(&mut self, group: Group) {
        let number = self.groups.first_key_value().map_or(self.next_number, |(first, _)| *first) - 1;
        self.head = group.first_sector();
        let class = self.class_of(&group);
        self.enter(number, Waiting { group, class, expires_ns: 0 });
    }

    fn class_of(&self, group: &Group) -> PriorityClass {
        if self.policy == OrderPolicy::Program { PriorityClass::BestEffort } else { group.first.class }
    }

    fn place(&mut self, number: u64, group: Group, now_ns: u64) {
        let class = self.class_of(&group);
        let patience_ns = self.policy.patience_ns(group.operation());
        // Where the order is that of arrival, nothing but the number counts.
        let expires_ns = if patience_ns == 0 { 0 } else { now_ns.saturating_add(patience_ns) };
        let expires_ns =
            if group.operation() == DiskOperation::Flush && self.policy.is_sorted() { 0 } else { expires_ns };
        self.enter(number, Waiting { group, class, expires_ns });
    }

    fn enter(&mut self, number: u64, waiting: Waiting) {
        let class = waiting.class;
        self.by_expiry.insert((class, waiting.expires_ns, number));
        if waiting.group.operation() != DiskOperation::Flush {
            self.by_start.insert((class, waiting.group.first_sector(), number));
            self.by_end.insert((class, waiting.group.end_sector(), number));
        }
        self.groups.insert(number, waiting);
    }

    fn leave(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.groups.remove(&number)?;
        self.by_expiry.remove(&(waiting.class, waiting.expires_ns, number));
        self.by_start.remove(&(waiting.class, waiting.group.first_sector(), number));
        self.by_end.remove(&(waiting.class, waiting.group.end_sector(), number));
        Some(waiting)
    }

    /// Joins a group to one that waits, behind or before it, if the policy has it; gives it back otherwise.
    fn join(&mut self, group: Group, limits: &DiskLimits) -> Option<Group> {
        match self.policy {
            OrderPolicy::Fifo => Some(group),
            OrderPolicy::Program => {
                let Some(&last) = self.groups.keys().next_back() else { return Some(group) };
                self.join_behind(last, group, limits)
            }
            OrderPolicy::Elevator | OrderPolicy::Deadline => self.join_neighbour(group, limits),
        }
    }

    fn join_neighbour(&mut self, mut group: Group, limits: &DiskLimits) -> Option<Group> {
        if !group.operation().has_memory() {
            return Some(group);
        }
        let class = self.class_of(&group);
        let at = |sector| (class, sector, 0)..=(class, sector, u64::MAX);
        let mut numbers = [0; NEIGHBOUR_COUNT_MAX];
        let count = fill(&mut numbers, self.by_end.range(at(group.first_sector())));
        for &number in &numbers[..count] {
            group = self.join_behind(number, group, limits)?;
        }
        let count = fill(&mut numbers, self.by_start.range(at(group.end_sector())));
        for &number in &numbers[..count] {
            let Some(waiting) = self.groups.get(&number) else { continue };
            if !group.takes(&waiting.group, limits) {
                continue;
            }
            let Some(Waiting { group: next, class, expires_ns }) = self.leave(number) else { continue };
            // The waiting one keeps its place in time. Without memory for it both wait as they are.
            match group.join(next, limits) {
                None => {
                    self.enter(number, Waiting { group, class, expires_ns });
                    return None;
                }
                Some(next) => self.enter(number, Waiting { group: next, class, expires_ns }),
            }
        }
        Some(group)
    }

    fn join_behind(&mut self, number: u64, next: Group, limits: &DiskLimits) -> Option<Group> {
        let Some(waiting) = self.groups.get_mut(&number) else { return Some(next) };
        let (class, old_end) = (waiting.class, waiting.group.end_sector());
        let refused = waiting.group.join(next, limits);
        if refused.is_none() {
            let end = waiting.group.end_sector();
            self.by_end.remove(&(class, old_end, number));
            self.by_end.insert((class, end, number));
        }
        refused
    }

    /// The group that goes next.
    pub(super) fn take_next(&mut self, now_ns: u64) -> Option<Group> {
        let &(class, expires_ns, oldest) = self.by_expiry.first()?;
        let number = if !self.policy.is_sorted() || expires_ns <= now_ns {
            oldest
        } else {
            let upwards = self.by_start.range((class, self.head, 0)..=(class, u64::MAX, u64::MAX));
            let from_start = self.by_start.range((class, 0, 0)..=(class, u64::MAX, u64::MAX));
            upwards.chain(from_start).next().map_or(oldest, |(.., number)| *number)
        };
        let group = self.leave(number)?.group;
        if group.operation() != DiskOperation::Flush {
            self.head = group.end_sector();
        }
        Some(group)
    }
}

fn fill<'a>(numbers: &mut [u64], keys: impl Iterator<Item = &'a Key>) -> usize {
    let mut count = 0;
    for (place, (.., number)) in numbers.iter_mut().zip(keys) {
        *place = *number;
        count += 1;
    }
    count
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
