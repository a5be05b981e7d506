//! The ring under every order of memory and every interleaving that its atomics allow (loom): capacity 2 and 3, with
//! counters that wrap, both sides asleep whenever there is nothing to do. A wake that is lost is a deadlock, which loom
//! reports; so is a slot that is read before it was written, or written before it was read.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use aegis_proto::{Consumer, Producer, PutError, RingPlace, SharedWords};
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};

/// Shared memory of which every word is loom's. The ring's two words of each line and its slots are all that is used.
struct Words(Vec<AtomicU64>);

impl Words {
    fn new(count: usize, start: u32) -> Self {
        let first = |word| if word == 0 || word == 8 { u64::from(start) } else { u64::from(start.wrapping_sub(1)) };
        Self((0..count).map(|word| AtomicU64::new(first(word))).collect())
    }
}

impl SharedWords for Words {
    fn word_count(&self) -> usize {
        self.0.len()
    }
    fn load(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }
    fn store(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }
    fn load_acquire(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Acquire)
    }
    fn store_release(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Release);
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// One side puts so many numbers, a batch at a time, the other takes them; each sleeps when it can do nothing.
fn pass(capacity: u32, count: u64, batch: u64, start: u32) {
    let words = Arc::new(Words::new(RingPlace::word_count::<1>(capacity), start));
    let place = RingPlace::new::<1>(0, capacity, &*words).unwrap();
    let (room, slots) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let producer = {
        let (words, room, slots) = (words.clone(), room.clone(), slots.clone());
        loom::thread::spawn(move || {
            let mut producer = Producer::<1>::new(place, start);
            let mut next = 0;
            while next < count {
                let end = (next + batch).min(count);
                let mut is_full = false;
                while next < end && !is_full {
                    match producer.put(&*words, &[100 + next]) {
                        Ok(()) => next += 1,
                        Err(PutError::Full) => is_full = true,
                        Err(PutError::Broken) => panic!("the consumer is honest"),
                    }
                }
                if producer.publish(&*words) {
                    slots.notify();
                }
                if is_full && !producer.ask_for_room(&*words).unwrap() {
                    room.wait();
                }
            }
        })
    };
    let mut consumer = Consumer::<1>::new(place, start);
    let mut next = 0;
    while next < count {
        let visit_count = consumer.visit(&*words).unwrap();
        for _ in 0..visit_count {
            assert_eq!(consumer.take(&*words), Some([100 + next]));
            next += 1;
        }
        if consumer.release(&*words) {
            room.notify();
        }
        if visit_count == 0 && !consumer.ask(&*words).unwrap() {
            slots.wait();
        }
    }
    producer.join().unwrap();
}

/// Every interleaving, of at most so many changes of thread where that is said.
fn model(preemption_bound: Option<usize>, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemption_bound;
    builder.max_branches = 100_000;
    builder.check(test);
}

#[test]
fn two_slots_pass_in_every_interleaving() {
    model(None, || pass(2, 2, 1, 0));
}

#[test]
fn three_numbers_pass_two_slots_over_the_wrap() {
    model(Some(3), || pass(2, 3, 1, u32::MAX));
}

#[test]
fn three_slots_pass_in_batches_over_the_wrap() {
    model(Some(3), || pass(3, 4, 2, u32::MAX - 1));
}
