//! The two queues of a ring, in memory that the program writes at any time.
//!
//! Of its words each is read once for each use; an index is an allegation that is masked or checked before anything is
//! done with it. The head of the submission queue and the tail of the completion queue are exos's: what the program
//! makes of them there is not looked at. Completions that do not fit wait here in their order (`IORING_FEAT_NODROP`),
//! at most [`OVERFLOW_COUNT_MAX`]; the program is told by a flag that it has to ask for them.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use exos::error::Result;
use exos::mem::FramePool;
use exos::mem::ring_memory::RingMemory;
use exos::reserve;

use crate::abi::uring::{CQE_BYTES, Cqe, SQE_BYTES, Sqe, place};

/// Most entries of a submission queue; a completion queue has twice as many.
pub const ENTRY_COUNT_MAX: u32 = 1 << 15;
/// Completions that wait for room, at most.
pub const OVERFLOW_COUNT_MAX: usize = 1 << 16;
/// `IORING_SQ_CQ_OVERFLOW`.
const SQ_OVERFLOW: u32 = 2;
/// `IORING_CQ_EVENTFD_DISABLED`.
const CQ_SILENT: u32 = 1;

/// The memory of a ring, and how long its queues are: powers of two.
pub struct Queues {
    rings: Arc<RingMemory>,
    sqes: Arc<RingMemory>,
    sq_count: u32,
    cq_count: u32,
    array: usize,
}

/// exos's ends of the queues.
#[derive(Default)]
pub struct Ends {
    sq_head: u32,
    sq_dropped: u32,
    cq_tail: u32,
    /// The program's head as it was last looked at: completions that it has taken since make more room.
    cq_head: u32,
    overflow: VecDeque<Cqe>,
    lost_count: u32,
    /// Some were lost since that was last told.
    has_lost: bool,
}

impl Queues {
    /// Queues of so many entries.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(pool: &Arc<FramePool>, [sq_count, cq_count]: [u32; 2]) -> Result<Self> {
        let array = (place::CQES + cq_count as usize * CQE_BYTES).next_multiple_of(64);
        let rings = RingMemory::new(pool, array + sq_count as usize * 4, "anon_inode:[io_uring]")?;
        let sqes = RingMemory::new(pool, sq_count as usize * SQE_BYTES, "anon_inode:[io_uring]")?;
        for (place, word) in [
            (place::SQ_MASK, sq_count - 1),
            (place::CQ_MASK, cq_count - 1),
            (place::SQ_COUNT, sq_count),
            (place::CQ_COUNT, cq_count),
        ] {
            rings.store(place, word);
        }
        Ok(Self { rings, sqes, sq_count, cq_count, array })
    }

    /// Entries of both.
    #[must_use]
    pub fn counts(&self) -> [u32; 2] {
        [self.sq_count, self.cq_count]
    }

    /// Where the array of the submission queue begins.
    #[must_use]
    pub fn array(&self) -> u32 {
        self.array as u32
    }

    /// What is mapped: the rings, and the entries of the submission queue.
    #[must_use]
    pub fn memory(&self) -> [&Arc<RingMemory>; 2] {
        [&self.rings, &self.sqes]
    }

    /// Entries that the program has put in and that were not taken; never more than there are.
    #[must_use]
    pub fn submitted_count(&self, ends: &Ends) -> u32 {
        self.rings.load(place::SQ_TAIL).wrapping_sub(ends.sq_head).min(self.sq_count)
    }

    /// Takes the next entry, which is there; `None`: what stands in its place names none.
    #[inline]
    pub fn next_sqe(&self, ends: &mut Ends) -> Option<Sqe> {
        let place = (ends.sq_head & (self.sq_count - 1)) as usize;
        ends.sq_head = ends.sq_head.wrapping_add(1);
        let index = self.rings.load(self.array + place * 4);
        if index >= self.sq_count {
            ends.sq_dropped = ends.sq_dropped.wrapping_add(1);
            self.rings.store(place::SQ_DROPPED, ends.sq_dropped);
            return None;
        }
        let mut bytes = [0; SQE_BYTES];
        self.sqes.read(index as usize * SQE_BYTES, &mut bytes);
        Some(Sqe::decode(&bytes))
    }

    /// Tells the program what was taken.
    pub fn show_taken(&self, ends: &Ends) {
        self.rings.store(place::SQ_HEAD, ends.sq_head);
    }

    /// Places that are free.
    #[inline]
    fn room(&self, ends: &mut Ends) -> u32 {
        let used = |ends: &Ends| ends.cq_tail.wrapping_sub(ends.cq_head).min(self.cq_count);
        if used(ends) == self.cq_count {
            ends.cq_head = self.rings.load(place::CQ_HEAD);
        }
        self.cq_count - used(ends)
    }

    #[inline]
    fn put(&self, ends: &mut Ends, cqe: &Cqe) {
        let index = (ends.cq_tail & (self.cq_count - 1)) as usize;
        self.rings.write(place::CQES + index * CQE_BYTES, &cqe.encode());
        ends.cq_tail = ends.cq_tail.wrapping_add(1);
        self.rings.store(place::CQ_TAIL, ends.cq_tail);
    }

    /// Puts a completion in, or has it wait.
    #[inline]
    pub fn post(&self, ends: &mut Ends, cqe: Cqe) {
        if ends.overflow.is_empty() && self.room(ends) > 0 {
            self.put(ends, &cqe);
        } else {
            self.post_later(ends, cqe);
        }
    }

    #[cold]
    fn post_later(&self, ends: &mut Ends, cqe: Cqe) {
        let count = ends.overflow.len();
        if count >= OVERFLOW_COUNT_MAX || reserve::reserve_queue(&mut ends.overflow, 1).is_err() {
            ends.lost_count = ends.lost_count.wrapping_add(1);
            ends.has_lost = true;
            self.rings.store(place::CQ_OVERFLOW, ends.lost_count);
            return;
        }
        ends.overflow.push_back(cqe);
        if count == 0 {
            self.rings.store(place::SQ_FLAGS, SQ_OVERFLOW);
        }
    }

    /// Moves completions that wait to where there is room now.
    pub fn flush(&self, ends: &mut Ends) {
        if ends.overflow.is_empty() {
            return;
        }
        while self.room(ends) > 0
            && let Some(cqe) = ends.overflow.pop_front()
        {
            self.put(ends, &cqe);
        }
        if ends.overflow.is_empty() {
            ends.overflow = VecDeque::new();
            self.rings.store(place::SQ_FLAGS, 0);
        }
    }

    /// Completions that the program has not taken, as its head says.
    #[must_use]
    pub fn completed_count(&self, ends: &Ends) -> u32 {
        ends.cq_tail.wrapping_sub(self.rings.load(place::CQ_HEAD))
    }

    /// Whether there is something for the program to take, or to ask for.
    #[must_use]
    pub fn has_completions(&self, ends: &Ends) -> bool {
        self.completed_count(ends) != 0 || !ends.overflow.is_empty()
    }

    /// Whether completions were lost since this was last asked.
    pub fn take_lost(&self, ends: &mut Ends) -> bool {
        core::mem::take(&mut ends.has_lost)
    }

    /// Whether the program does not want its eventfd to be told.
    #[must_use]
    pub fn is_bell_silent(&self) -> bool {
        self.rings.load(place::CQ_FLAGS) & CQ_SILENT != 0
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::{Ends, Queues};
    use crate::abi::bytes::get;
    use crate::abi::uring::{Cqe, SQE_BYTES, place};
    use crate::testing::calls::World;

    fn queues(world: &World) -> Queues {
        Queues::new(&world.pod.system.pool, [4, 8]).unwrap()
    }

    proptest! {
        /// Against a queue: completions come in their order, none is lost, whatever waits for room.
        #[test]
        fn completions_keep_their_order(steps in proptest::collection::vec(0_u8..5, 1..300)) {
            let world = World::new();
            let (queues, mut ends, mut model) = (queues(&world), Ends::default(), VecDeque::new());
            let [rings, _] = queues.memory();
            let (mut next, mut head) = (0, 0_u32);
            for step in steps {
                match step {
                    0..=2 => {
                        queues.post(&mut ends, Cqe { user_data: next, result: 0, flags: 0 });
                        model.push_back(next);
                        next += 1;
                    }
                    3 => queues.flush(&mut ends),
                    _ if head != rings.load(place::CQ_TAIL) => {
                        let mut bytes = [0; 16];
                        rings.read(place::CQES + (head & 7) as usize * 16, &mut bytes);
                        prop_assert_eq!(Some(get::u64(&bytes, 0)), model.pop_front());
                        head = head.wrapping_add(1);
                        rings.store(place::CQ_HEAD, head);
                    }
                    _ => {}
                }
                prop_assert!(queues.completed_count(&ends) <= 8);
                prop_assert_eq!(queues.has_completions(&ends), !model.is_empty());
            }
        }

        /// A program that writes any words: nothing beyond the rings is read or written, and nothing is endless.
        #[test]
        fn any_words_are_only_words(
            words in proptest::collection::vec((0_usize..120, proptest::num::u32::ANY), 1..200),
        ) {
            let world = World::new();
            let (queues, mut ends) = (queues(&world), Ends::default());
            let [rings, _] = queues.memory();
            for (index, word) in words {
                rings.store(index * 4, word);
                let count = queues.submitted_count(&ends);
                prop_assert!(count <= 4);
                for _ in 0..count {
                    let _ = queues.next_sqe(&mut ends);
                }
                queues.post(&mut ends, Cqe { user_data: 1, result: 0, flags: 0 });
                queues.flush(&mut ends);
            }
            prop_assert!(ends.overflow.len() <= 200);
        }
    }

    #[test]
    fn entries_are_taken_by_the_array() {
        let world = World::new();
        let (queues, mut ends) = (queues(&world), Ends::default());
        let [rings, sqes] = queues.memory();
        for (index, data) in [7_u64, 8, 9, 10].into_iter().enumerate() {
            sqes.write(index * SQE_BYTES + 32, &data.to_le_bytes());
        }
        for (index, entry) in [2, 4, 0, 3].into_iter().enumerate() {
            rings.store(queues.array() as usize + index * 4, entry);
        }
        rings.store(place::SQ_TAIL, 3);
        assert_eq!(queues.submitted_count(&ends), 3);
        let taken: Vec<_> = (0..3).map(|_| queues.next_sqe(&mut ends).map(|sqe| sqe.user_data)).collect();
        assert_eq!(taken, [Some(9), None, Some(7)]);
        assert_eq!((queues.submitted_count(&ends), rings.load(place::SQ_DROPPED)), (0, 1));
        queues.show_taken(&ends);
        assert_eq!(rings.load(place::SQ_HEAD), 3);
    }
}
