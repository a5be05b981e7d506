//! First-in first-out queues of processors, each of which is in one at most. What is in a queue comes out of its
//! middle without a walk: a queue can have all processors of the machine, and those of many owners.

use crate::id::{Id, PROCESSOR_COUNT_MAX, ProcessorId};

begins! {
    /// Neighbours of each processor in the one queue that it is in; of others, what they were.
    pub(crate) struct Links {
        next: [Option<ProcessorId>; PROCESSOR_COUNT_MAX] = [None; PROCESSOR_COUNT_MAX],
        /// Of a queue's first it says nothing.
        previous: [Option<ProcessorId>; PROCESSOR_COUNT_MAX] = [None; PROCESSOR_COUNT_MAX],
    }
}

impl Links {
    pub(crate) fn after(&self, processor: ProcessorId) -> Option<ProcessorId> {
        self.next[processor.index()]
    }
}

begins! {
    /// A first-in first-out queue of processors.
    #[derive(Clone, Copy)]
    pub(crate) struct Queue {
        head: Option<ProcessorId> = None,
        tail: Option<ProcessorId> = None,
    }
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn push(&mut self, links: &mut Links, processor: ProcessorId) {
        (links.next[processor.index()], links.previous[processor.index()]) = (None, self.tail);
        match self.tail.replace(processor) {
            Some(tail) => links.next[tail.index()] = Some(processor),
            None => self.head = Some(processor),
        }
    }

    pub(crate) fn pop(&mut self, links: &Links) -> Option<ProcessorId> {
        let first = self.head?;
        self.head = links.after(first);
        if self.head.is_none() {
            self.tail = None;
        }
        Some(first)
    }

    /// Takes out a processor that is in this queue.
    pub(crate) fn remove(&mut self, links: &mut Links, processor: ProcessorId) {
        debug_assert!(self.members(links).any(|member| member == processor), "it is in this queue");
        let next = links.after(processor);
        let previous = links.previous[processor.index()].filter(|_| self.head != Some(processor));
        *previous.map_or(&mut self.head, |previous| &mut links.next[previous.index()]) = next;
        *next.map_or(&mut self.tail, |next| &mut links.previous[next.index()]) = previous;
    }

    pub(crate) fn first(&self) -> Option<ProcessorId> {
        self.head
    }

    pub(crate) fn members<'q>(&self, links: &'q Links) -> impl Iterator<Item = ProcessorId> + use<'q> {
        core::iter::successors(self.head, |p| links.after(*p))
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// Against a list that is searched: whatever leaves from wherever, also what was in another queue before.
    #[test]
    fn queues_keep_their_order_whatever_leaves() {
        const NONE: Vec<ProcessorId> = Vec::new();
        let (mut links, mut queues, mut lists) = (Links::EMPTY, [Queue::EMPTY; 3], [NONE; 3]);
        let mut random = 1_u64;
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % limit
        };
        for _ in 0..20_000 {
            let (to, id) = (below(3), ProcessorId::from_index(below(9)).expect("there are as many"));
            let place = (0..3).find_map(|at| Some((at, lists[at].iter().position(|it| *it == id)?)));
            match place {
                None => {
                    queues[to].push(&mut links, id);
                    lists[to].push(id);
                }
                Some((at, 0)) if below(2) == 0 => {
                    assert_eq!(queues[at].pop(&links), Some(lists[at].remove(0)));
                }
                Some((at, index)) => {
                    queues[at].remove(&mut links, id);
                    lists[at].remove(index);
                }
            }
            for (queue, list) in queues.iter().zip(&lists) {
                assert_eq!(queue.members(&links).collect::<Vec<_>>(), *list);
                assert_eq!((queue.first(), queue.is_empty()), (list.first().copied(), list.is_empty()));
                assert_eq!(queue.tail, list.last().copied());
            }
        }
    }
}
