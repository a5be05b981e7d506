//! First-in first-out queues of processors, each of which is in one at most.

use crate::id::{Id, PROCESSOR_COUNT_MAX, ProcessorId};

/// Successor of each processor in the one queue that it is in.
pub(crate) struct Links([Option<ProcessorId>; PROCESSOR_COUNT_MAX]);

impl Links {
    pub(crate) const EMPTY: Self = Self([None; PROCESSOR_COUNT_MAX]);

    pub(crate) fn after(&self, processor: ProcessorId) -> Option<ProcessorId> {
        self.0[processor.index()]
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
        links.0[processor.index()] = None;
        match self.tail {
            Some(tail) => links.0[tail.index()] = Some(processor),
            None => self.head = Some(processor),
        }
        self.tail = Some(processor);
    }

    pub(crate) fn pop(&mut self, links: &mut Links) -> Option<ProcessorId> {
        let first = self.head?;
        self.head = links.0[first.index()].take();
        if self.head.is_none() {
            self.tail = None;
        }
        Some(first)
    }

    /// Takes `processor` out if it is in this queue.
    pub(crate) fn remove(&mut self, links: &mut Links, processor: ProcessorId) -> bool {
        let mut previous: Option<ProcessorId> = None;
        let mut at = self.head;
        while let Some(current) = at {
            let next = links.0[current.index()];
            if current == processor {
                match previous {
                    Some(previous) => links.0[previous.index()] = next,
                    None => self.head = next,
                }
                if next.is_none() {
                    self.tail = previous;
                }
                links.0[current.index()] = None;
                return true;
            }
            previous = at;
            at = next;
        }
        false
    }

    pub(crate) fn first(&self) -> Option<ProcessorId> {
        self.head
    }

    pub(crate) fn members<'q>(&self, links: &'q Links) -> impl Iterator<Item = ProcessorId> + 'q {
        core::iter::successors(self.head, |p| links.after(*p))
    }
}
