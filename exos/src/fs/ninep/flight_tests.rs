//! Answers out of order, late, never; lanes that are all taken; carriers that break.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::{ANSWER_LIMIT_NS, Broken, Cargo, Carrier, Flights, LOOK_NS_MAX};
use crate::fs::ninep::session::Silence;
use crate::fs::readiness::{Readiness, Waiter};

/// Lanes whose answers are the messages themselves, once a test says so.
struct Echo {
    lanes: Vec<Option<(Vec<u8>, bool)>>,
    is_broken: bool,
}

impl Echo {
    fn new(lane_count: usize) -> Flights<Self> {
        Flights::new(Self { lanes: vec![None; lane_count], is_broken: false })
    }

    fn answer(&mut self, lane: usize) {
        if let Some((_, is_answered)) = &mut self.lanes[lane] {
            *is_answered = true;
        }
    }
}

impl Carrier for Echo {
    fn free_lane(&self, _: Cargo<'_>) -> Option<usize> {
        self.lanes.iter().position(Option::is_none)
    }

    fn send(&mut self, lane: usize, cargo: Cargo<'_>) -> Result<(), Broken> {
        let Cargo::One(message, _) = cargo else { return Err(Broken) };
        assert!(self.lanes[lane].is_none(), "a lane is used again only after its answer");
        self.lanes[lane] = Some((message.to_vec(), false));
        Ok(())
    }

    fn poll(&mut self) -> Result<(), Broken> {
        if self.is_broken { Err(Broken) } else { Ok(()) }
    }

    fn take(&mut self, lane: usize, reply: &mut Vec<u8>) -> Result<bool, Broken> {
        match self.lanes[lane].take_if(|(_, is_answered)| *is_answered) {
            Some((message, _)) => {
                *reply = message;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// Counts how often it was told.
#[derive(Default)]
struct Ear(AtomicUsize);

impl Ear {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Waiter for Ear {
    fn wake(&self, _: Readiness) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn answers_out_of_order_go_to_their_owners() {
    let mut flights = Echo::new(3);
    let ears: [Arc<Ear>; 3] = Default::default();
    let tickets =
        [b"a", b"b", b"c"].map(|message| flights.depart(Cargo::One(message, &[]), &mut Vec::new()).unwrap().unwrap());
    for (ticket, ear) in tickets.iter().zip(&ears) {
        flights.await_news(Some(*ticket), ear.clone());
    }
    flights.look(1);
    assert!(tickets.iter().all(|ticket| flights.take(*ticket).is_none()));
    for (place, lane) in [(0, 2), (1, 0), (2, 1)] {
        flights.carrier().answer(lane);
        flights.look(place + 2);
        assert_eq!(ears[lane].count(), 1);
        assert_eq!(ears.iter().map(|ear| ear.count()).sum::<usize>(), place as usize + 1);
        assert_eq!(flights.take(tickets[lane]), Some((Ok(()), vec![b"abc"[lane]])));
        assert_eq!(flights.take(tickets[lane]), None, "once");
    }
    assert!(flights.is_idle() && !flights.is_awaited());
}

#[test]
fn who_finds_no_lane_is_told_of_one_although_its_owner_sleeps() {
    let mut flights = Echo::new(1);
    let first = flights.depart(Cargo::One(b"1", &[]), &mut Vec::new()).unwrap().unwrap();
    assert_eq!(flights.depart(Cargo::One(b"2", &[]), &mut Vec::new()), Ok(None));
    let ear = Arc::new(Ear::default());
    flights.await_news(None, ear.clone());
    assert!(flights.is_awaited());
    flights.carrier().answer(0);
    flights.look(1);
    assert_eq!(ear.count(), 1);
    let second = flights.depart(Cargo::One(b"2", &[]), &mut Vec::new()).unwrap().unwrap();
    assert_eq!(flights.take(first), Some((Ok(()), b"1".to_vec())), "the answer is kept for its owner");
    flights.carrier().answer(0);
    flights.look(2);
    assert_eq!(flights.take(second), Some((Ok(()), b"2".to_vec())));
}

#[test]
fn an_answer_that_never_comes_ends_everything_after_time_that_was_waited() {
    let mut flights = Echo::new(2);
    let ears: [Arc<Ear>; 2] = Default::default();
    let tickets =
        [b"1", b"2"].map(|message| flights.depart(Cargo::One(message, &[]), &mut Vec::new()).unwrap().unwrap());
    flights.await_news(Some(tickets[0]), ears[0].clone());
    flights.await_news(None, ears[1].clone());
    // A machine that was stopped for an hour: one look's worth.
    let mut now_ns = 3_600_000_000_000;
    flights.look(now_ns);
    assert_eq!(flights.take(tickets[0]), None);
    for _ in 0..ANSWER_LIMIT_NS / LOOK_NS_MAX {
        now_ns += LOOK_NS_MAX;
        flights.look(now_ns);
    }
    assert_eq!(ears.each_ref().map(|ear| ear.count()), [1, 1]);
    assert!(tickets.iter().all(|ticket| flights.take(*ticket).is_some_and(|it| it.0 == Err(Silence::TimeLimit))));
    // A late answer is never looked at, and its lane not used again.
    flights.carrier().answer(0);
    flights.look(now_ns + 1);
    assert_eq!(flights.depart(Cargo::One(b"3", &[]), &mut Vec::new()), Err(Silence::TimeLimit));
}

#[test]
fn a_broken_carrier_and_a_session_that_is_given_up_tell_all() {
    for is_broken in [true, false] {
        let mut flights = Echo::new(2);
        let ear = Arc::new(Ear::default());
        let ticket = flights.depart(Cargo::One(b"1", &[]), &mut Vec::new()).unwrap().unwrap();
        flights.await_news(Some(ticket), ear.clone());
        if is_broken {
            flights.carrier().is_broken = true;
            flights.look(1);
        } else {
            flights.fail(Silence::Device);
        }
        assert_eq!(ear.count(), 1);
        assert_eq!(flights.take(ticket).map(|landed| landed.0), Some(Err(Silence::Device)));
        assert_eq!(flights.depart(Cargo::One(b"2", &[]), &mut Vec::new()), Err(Silence::Device));
    }
}

proptest! {
    /// Whatever is answered when, each waiter gets its own answer exactly once, and is told of it.
    #[test]
    fn everybody_gets_his_own_answer(steps in proptest::collection::vec((0..4_usize, 0..3_u8), 0..80)) {
        let mut flights = Echo::new(4);
        let mut waiting = Vec::new();
        for (number, (lane, step)) in steps.into_iter().enumerate() {
            match step {
                0 => {
                    let message = (number as u64).to_le_bytes();
                    if let Some(ticket) = flights.depart(Cargo::One(&message, &[]), &mut Vec::new()).unwrap() {
                        let ear = Arc::new(Ear::default());
                        flights.await_news(Some(ticket), ear.clone());
                        waiting.push((ticket, message, ear));
                    }
                }
                1 => flights.carrier().answer(lane),
                _ => flights.look(number as u64),
            }
            waiting.retain(|(ticket, message, ear)| match flights.take(*ticket) {
                Some(landed) => {
                    assert_eq!(landed, (Ok(()), message.to_vec()));
                    assert_eq!(ear.count(), 1);
                    false
                }
                None => true,
            });
        }
        (0..4).for_each(|lane| flights.carrier().answer(lane));
        flights.look(1000);
        for (ticket, message, _) in waiting {
            prop_assert_eq!(flights.take(ticket), Some((Ok(()), message.to_vec())));
        }
        prop_assert!(flights.is_idle());
    }
}
