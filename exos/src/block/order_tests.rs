//! The order against a model that looks at everything each time.

use alloc::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::block::disk::SECTOR_BYTES;
use crate::block::fake::fake_limits;
use crate::block::request::{RequestMemory, RequestOwner};
use crate::error::Result;
use crate::mem::pinned::{FramePiece, Pieces};
use aegis_abi::FrameNumber;

struct Nobody;

impl RequestOwner for Nobody {
    fn done(&self, _: u64, _: Result<()>) {}
}

fn request(operation: DiskOperation, first_sector: u64, count: u32, class: PriorityClass, token: u64) -> BlockRequest {
    let piece = FramePiece { first: FrameNumber(1), offset_bytes: 0, length_bytes: count * SECTOR_BYTES };
    let pieces = if operation.has_memory() { Pieces::One(piece) } else { Pieces::None };
    let is_flush = operation == DiskOperation::Flush;
    let (first_sector, sector_count) = if is_flush { (0, 0) } else { (first_sector, count) };
    let memory = RequestMemory::OfOwner(pieces);
    BlockRequest { operation, first_sector, sector_count, memory, class, owner: Arc::new(Nobody), token }
}

fn tokens(group: &Group) -> Vec<u64> {
    group.requests().map(|request| request.token).collect()
}

/// What waits, as a list of lists in the order in which they came.
struct Model {
    policy: OrderPolicy,
    groups: Vec<ModelGroup>,
    head: u64,
}

struct ModelGroup {
    operation: DiskOperation,
    class: PriorityClass,
    start: u64,
    count: u32,
    tokens: Vec<u64>,
    expires_ns: u64,
}

impl ModelGroup {
    fn end(&self) -> u64 {
        self.start + u64::from(self.count)
    }

    fn takes(&self, next: &Self, limits: &DiskLimits) -> bool {
        self.operation == next.operation
            && self.operation.has_memory()
            && self.class == next.class
            && self.end() == next.start
            && self.count + next.count <= limits.sector_count_max
            && self.tokens.len() + next.tokens.len() <= usize::from(limits.segment_count_max)
    }
}

impl Model {
    fn insert(&mut self, mut new: ModelGroup, limits: &DiskLimits) {
        if self.policy == OrderPolicy::Fifo {
            return self.groups.push(new);
        }
        let candidates = if self.policy == OrderPolicy::Program {
            self.groups.len().saturating_sub(1)..self.groups.len()
        } else {
            0..self.groups.len()
        };
        for index in candidates.clone() {
            if self.groups[index].takes(&new, limits) {
                let group = &mut self.groups[index];
                group.count += new.count;
                group.tokens.append(&mut new.tokens);
                return;
            }
        }
        if self.policy != OrderPolicy::Program
            && let Some(index) = candidates.into_iter().find(|index| new.takes(&self.groups[*index], limits))
        {
            let group = &mut self.groups[index];
            (group.start, group.count) = (new.start, group.count + new.count);
            new.tokens.append(&mut group.tokens);
            group.tokens = new.tokens;
            return;
        }
        self.groups.push(new);
    }

    fn take_next(&mut self, now_ns: u64) -> Option<Vec<u64>> {
        let is_program = self.policy == OrderPolicy::Program;
        let class = self.groups.iter().map(|group| group.class).min()?;
        let of_class = |group: &ModelGroup| is_program || group.class == class;
        let numbers = (0..self.groups.len()).filter(|number| of_class(&self.groups[*number]));
        let oldest = numbers.clone().min_by_key(|number| (self.groups[*number].expires_ns, *number))?;
        let is_sorted = matches!(self.policy, OrderPolicy::Elevator | OrderPolicy::Deadline);
        let chosen = if !is_sorted || self.groups[oldest].expires_ns <= now_ns {
            oldest
        } else {
            numbers
                .min_by_key(|number| (self.groups[*number].start < self.head, self.groups[*number].start, *number))?
        };
        let group = self.groups.remove(chosen);
        if group.operation != DiskOperation::Flush {
            self.head = group.end();
        }
        Some(group.tokens)
    }
}

fn operations() -> impl Strategy<Value = DiskOperation> {
    prop_oneof![
        6 => Just(DiskOperation::Read),
        4 => Just(DiskOperation::Write),
        1 => Just(DiskOperation::Flush),
        1 => Just(DiskOperation::Discard),
    ]
}

fn classes() -> impl Strategy<Value = PriorityClass> {
    prop_oneof![
        1 => Just(PriorityClass::RealTime),
        4 => Just(PriorityClass::BestEffort),
        1 => Just(PriorityClass::Idle),
    ]
}

proptest! {
    #[test]
    fn the_order_is_that_of_the_model(
        policy in prop::sample::select(OrderPolicy::ALL.map(|(_, policy)| policy).to_vec()),
        steps in prop::collection::vec((operations(), 0_u64..24, 1_u32..4, classes(), 0_u64..3, 0_u64..9), 1..80),
    ) {
        let limits = fake_limits(1 << 12);
        let (mut pending, mut now_ns) = (Pending::new(policy), 0);
        let mut model = Model { policy, groups: Vec::new(), head: 0 };
        for (token, (operation, start, count, class, takes, passed_ms)) in steps.into_iter().enumerate() {
            let token = token as u64;
            now_ns += passed_ms * 1_000_000;
            let request = request(operation, start * 2, count * 2, class, token);
            let patience_ns = if operation == DiskOperation::Flush { 0 } else { policy.patience_ns(operation) };
            let expires_ns = if patience_ns == 0 { 0 } else { now_ns + patience_ns };
            let (start, count) = (request.first_sector, request.sector_count);
            let class = if policy == OrderPolicy::Program { PriorityClass::BestEffort } else { class };
            // Of another class nothing joins, whatever the order.
            let own_class = request.class;
            pending.insert(Group::new(request), &limits, now_ns);
            let class = if policy == OrderPolicy::Program { own_class } else { class };
            model.insert(ModelGroup { operation, class, start, count, tokens: vec![token], expires_ns }, &limits);
            for _ in 0..takes {
                let group = pending.take_next(now_ns);
                let lengths = group.as_ref().map(|group| {
                    (group.sector_count(), group.requests().map(|request| request.sector_count).sum::<u32>())
                });
                prop_assert!(lengths.is_none_or(|(all, parts)| all == parts));
                prop_assert_eq!(group.as_ref().map(tokens), model.take_next(now_ns));
            }
        }
        while let Some(group) = pending.take_next(now_ns) {
            prop_assert_eq!(Some(tokens(&group)), model.take_next(now_ns));
        }
        prop_assert!(model.groups.is_empty() && pending.is_empty());
        prop_assert!(pending.by_start.is_empty() && pending.by_end.is_empty() && pending.by_expiry.is_empty());
    }
}

#[test]
fn what_is_put_back_goes_first() {
    let limits = fake_limits(1 << 12);
    for (_, policy) in OrderPolicy::ALL {
        let mut pending = Pending::new(policy);
        for (token, sector) in [(0, 500), (1, 100), (2, 300)] {
            let read = request(DiskOperation::Read, sector, 8, PriorityClass::BestEffort, token);
            pending.insert(Group::new(read), &limits, 0);
        }
        let first = pending.take_next(1).unwrap();
        let wanted = tokens(&first);
        pending.put_back(first);
        assert_eq!(tokens(&pending.take_next(1).unwrap()), wanted, "{policy:?}");
    }
}

#[test]
fn a_changed_policy_orders_what_waits_anew() {
    let limits = fake_limits(1 << 12);
    let mut pending = Pending::new(OrderPolicy::Fifo);
    for (token, sector) in [(0, 16), (1, 8), (2, 0)] {
        let read = request(DiskOperation::Read, sector, 8, PriorityClass::BestEffort, token);
        pending.insert(Group::new(read), &limits, 0);
    }
    pending.set_policy(OrderPolicy::Elevator, &limits, 0);
    assert_eq!(tokens(&pending.take_next(0).unwrap()), [2, 1, 0]);
    assert!(pending.is_empty());
}

#[test]
fn a_group_is_no_larger_than_the_disk_takes() {
    let limits = fake_limits(1 << 12);
    let mut pending = Pending::new(OrderPolicy::Elevator);
    for token in 0..9 {
        let read = request(DiskOperation::Read, token * 16, 16, PriorityClass::BestEffort, token);
        pending.insert(Group::new(read), &limits, 0);
    }
    let mut lengths = Vec::new();
    while let Some(group) = pending.take_next(0) {
        lengths.push(group.sector_count());
    }
    assert_eq!(lengths, [64, 64, 16]);
}

#[test]
fn policies_have_names() {
    for (name, policy) in OrderPolicy::ALL {
        assert_eq!((OrderPolicy::named(name), policy.name()), (Some(policy), name));
    }
    assert_eq!(OrderPolicy::named("noop"), None);
}
