//! Rings and sessions against a peer that writes anything at any time: it is found out or it is obeyed within bounds,
//! and nothing panics.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use aegis_proto::block::{
    Client, Completion, Description, Extent, Operation, Outcome, RIGHT_READ, Request, SEGMENT_COUNT_MAX, Segment,
    Segments, Session, Shape, State, SubmitError,
};
use aegis_proto::{Consumer, Producer, PutError, RingPlace, VISIT_SLOT_COUNT_MAX};
use proptest::prelude::*;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

const DISK: Description = Description {
    logical_block_bytes: 512,
    physical_block_bytes: 4096,
    segment_count_max: 16,
    segment_bytes_max: 65536,
    sector_count_max: 1024,
    has_write_cache: true,
    is_rotational: false,
    depth: 32,
    discard: None,
    write_zeroes: None,
};

fn read(tag: u64) -> Request {
    let (segment, none) = (Segment { buffer: 1, offset_bytes: 4096, length_bytes: 4096 }, Segment::default());
    Request {
        operation: Operation::Read,
        extent: 0,
        first_sector: tag,
        sector_count: 8,
        segments: Segments::Inline([segment, none, none, none], 1),
        tag,
    }
}

/// What a test does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put,
    Publish,
    Take,
    Release,
    Ask,
    /// The other side writes a word.
    Scribble(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![any::<u64>(), 0..8_u64, (u64::from(u32::MAX) - 8)..=u64::from(u32::MAX)];
    prop_oneof![
        4 => Just(Step::Put),
        4 => Just(Step::Publish),
        4 => Just(Step::Take),
        4 => Just(Step::Release),
        2 => Just(Step::Ask),
        2 => (0..64_usize, value).prop_map(|(word, value)| Step::Scribble(word, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Honest sides pass everything in order, whatever the capacity and wherever the counters begin.
    #[test]
    fn everything_passes_in_order(
        capacity in 1..9_u32,
        start in prop_oneof![Just(0), any::<u32>(), (u32::MAX - 9)..=u32::MAX],
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let memory = words(RingPlace::word_count::<2>(capacity));
        memory[0].store(u64::from(start), Ordering::Relaxed);
        memory[8].store(u64::from(start), Ordering::Relaxed);
        let place = RingPlace::new::<2>(0, capacity, &*memory).unwrap();
        let (mut producer, mut consumer) = (Producer::<2>::new(place, start), Consumer::<2>::new(place, start));
        let (mut put, mut published, mut taken) = (VecDeque::new(), 0, 0);
        let mut next = 0;
        for step in steps {
            match step {
                Step::Put => match producer.put(&*memory, &[next, !next]) {
                    Ok(()) => {
                        put.push_back(next);
                        next += 1;
                        prop_assert!(put.len() + taken <= capacity as usize);
                    }
                    Err(error) => {
                        prop_assert_eq!(error, PutError::Full);
                        prop_assert_eq!(put.len() + taken, capacity as usize);
                    }
                },
                Step::Publish => {
                    let _ = producer.publish(&*memory);
                    published = put.len();
                }
                Step::Take => {
                    let count = consumer.visit(&*memory).unwrap();
                    prop_assert_eq!(count as usize, published);
                    if let Some([word, inverse]) = consumer.take(&*memory) {
                        prop_assert_eq!(Some(word), put.pop_front());
                        prop_assert_eq!(inverse, !word);
                        published -= 1;
                        taken += 1;
                    }
                }
                Step::Release => {
                    let _ = consumer.release(&*memory);
                    taken = 0;
                }
                Step::Ask => prop_assert_eq!(consumer.ask(&*memory).unwrap(), published > 0),
                Step::Scribble(..) => {}
            }
        }
    }

    /// A hostile peer: no panic, no more slots than the capacity, and whoever is broken stays so.
    #[test]
    fn nothing_that_is_written_breaks_a_side(
        capacity in 1..9_u32,
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let memory = words(RingPlace::word_count::<1>(capacity));
        let place = RingPlace::new::<1>(0, capacity, &*memory).unwrap();
        let (mut producer, mut consumer) = (Producer::<1>::new(place, 0), Consumer::<1>::new(place, 0));
        let mut is_broken = false;
        for step in steps {
            match step {
                Step::Put => {
                    let _ = producer.put(&*memory, &[7]);
                }
                Step::Publish => {
                    let _ = producer.publish(&*memory);
                }
                Step::Take => match consumer.visit(&*memory) {
                    Ok(count) => {
                        prop_assert!(!is_broken);
                        prop_assert!(count <= capacity.min(VISIT_SLOT_COUNT_MAX));
                        prop_assert_eq!(consumer.take(&*memory).is_some(), count > 0);
                    }
                    Err(_) => is_broken = true,
                },
                Step::Release => {
                    let _ = consumer.release(&*memory);
                }
                Step::Ask => {
                    is_broken |= consumer.ask(&*memory).is_err();
                    let _ = producer.ask_for_room(&*memory);
                }
                Step::Scribble(word, value) => {
                    if let Some(word) = memory.get(word) {
                        word.store(value, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Whatever a slot says, what is taken for a request is one, and is the same when it is written again.
    #[test]
    fn a_session_takes_any_memory(content in proptest::collection::vec(any::<u64>(), 64), seed in any::<u64>()) {
        let shape = Shape { depth: 4, indirect_page_count: 1 };
        let memory = words(shape.page_count() * 512);
        let mut client = Client::new(&*memory, shape, 2).unwrap();
        let mut session = Session::attach(&*memory).unwrap();
        let mut state = seed;
        for value in content {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let word = (state >> 33) as usize % memory.len();
            memory[word].store(value, Ordering::Relaxed);
            let _ = client.submit(&*memory, &read(value));
            let _ = client.publish(&*memory);
            if let Ok(count) = session.visit(&*memory) {
                prop_assert!(count <= shape.depth);
                for _ in 0..count {
                    if let Ok(Some((position, request))) = session.take(&*memory) {
                        if let Segments::Listed(page, count) = request.segments {
                            prop_assert!(count <= SEGMENT_COUNT_MAX);
                            let _ = session.listed(&*memory, page, count);
                        }
                        let _ = session.complete(&*memory, Completion { position, tag: value, outcome: Outcome::Done });
                    }
                }
            }
            let _ = session.publish(&*memory);
            let before = client.under_way_count();
            let mut told = 0;
            let _ = client.poll(&*memory, &mut |_, _| told += 1);
            prop_assert_eq!(client.under_way_count() + told, before);
        }
        let _ = Session::attach(&*memory);
    }
}

/// What the client tells of a request, once each.
#[test]
fn a_service_that_takes_anothers_place_finds_what_was_under_way() {
    let shape = Shape { depth: 4, indirect_page_count: 0 };
    let memory = words(shape.page_count() * 512);
    let mut client = Client::new(&*memory, shape, 2).unwrap();
    assert_eq!(client.state(&*memory), State::Down);
    let mut first = Session::attach(&*memory).unwrap();
    first.announce(&*memory, &DISK, &[Extent { sector_count: 100, rights: RIGHT_READ }]);
    assert_eq!(client.state(&*memory), State::Up);
    assert_eq!(client.description(&*memory), DISK);
    assert_eq!(client.extent(&*memory, 0), Extent { sector_count: 100, rights: RIGHT_READ });
    assert_eq!(client.extent(&*memory, 1), Extent::default());
    for tag in 10..14 {
        assert_eq!(client.submit(&*memory, &read(tag)), Ok(()));
    }
    assert_eq!(client.submit(&*memory, &read(14)), Err(SubmitError::Full));
    assert!(client.publish(&*memory));
    assert_eq!(first.visit(&*memory), Ok(4));
    for tag in 10..14 {
        assert_eq!(first.take(&*memory), Ok(Some((tag as u32 - 10, read(tag)))));
    }
    // The second ends first; the others are under way when the service is lost.
    first.complete(&*memory, Completion { position: 1, tag: 11, outcome: Outcome::Done }).unwrap();
    let _ = first.publish(&*memory);
    let mut told = Vec::new();
    assert_eq!(client.poll(&*memory, &mut |tag, outcome| told.push((tag, outcome))), Ok(1));
    assert_eq!(told, [(11, Outcome::Done)]);
    assert_eq!(client.submit(&*memory, &read(15)), Err(SubmitError::Full), "the oldest holds its slot");
    client.recover(&*memory, 4);
    assert_eq!(client.state(&*memory), State::Down);
    let mut second = Session::attach(&*memory).unwrap();
    second.announce(&*memory, &DISK, &[]);
    assert_eq!(second.visit(&*memory), Ok(4));
    let taken: Vec<_> = (0..4).filter_map(|_| second.take(&*memory).unwrap()).collect();
    assert_eq!(taken, [(0, read(10)), (2, read(12)), (3, read(13))]);
    for (position, request) in taken {
        second.complete(&*memory, Completion { position, tag: request.tag, outcome: Outcome::Input }).unwrap();
    }
    assert!(!second.publish(&*memory), "nobody has asked");
    told.clear();
    assert_eq!(client.poll(&*memory, &mut |tag, outcome| told.push((tag, outcome))), Ok(3));
    assert_eq!(told, [(10, Outcome::Input), (12, Outcome::Input), (13, Outcome::Input)]);
    assert_eq!(client.under_way_count(), 0);
    assert_eq!(client.submit(&*memory, &read(16)), Ok(()));
}

/// A completion of a request that is not under way, told twice, or under another name.
#[test]
fn a_service_that_lies_is_found_out() {
    let lies: [&[(u32, u64)]; 3] = [&[(1, 20)], &[(0, 20), (0, 20)], &[(0, 21)]];
    for lie in lies {
        let shape = Shape { depth: 4, indirect_page_count: 0 };
        let memory = words(shape.page_count() * 512);
        let mut client = Client::new(&*memory, shape, 2).unwrap();
        let mut session = Session::attach(&*memory).unwrap();
        client.submit(&*memory, &read(20)).unwrap();
        let _ = client.publish(&*memory);
        for (position, tag) in lie {
            let completion = Completion { position: *position, tag: *tag, outcome: Outcome::Done };
            session.complete(&*memory, completion).unwrap();
        }
        let _ = session.publish(&*memory);
        let mut told = 0;
        assert!(client.poll(&*memory, &mut |_, _| told += 1).is_err());
        assert!(told <= 1);
    }
}
