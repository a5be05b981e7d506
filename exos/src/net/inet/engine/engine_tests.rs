//! Two engines over a link that loses, repeats and reorders: all bytes come through in order, both ends end, nothing
//! stalls. One engine against segments that mean harm.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::control::ControlBlock;
use super::header::{Header, flag};
use super::link::{Chance, Faults, Link};
use super::{Engine, Outlet, Terms, Tuning, Verdict};
use crate::net::inet::tcp_state::TcpState;

type Sent = (Header, Vec<u8>);

#[derive(Default)]
struct Sink {
    sent: Vec<Sent>,
    room: Option<usize>,
}

impl Outlet for Sink {
    fn has_room(&self) -> bool {
        self.room.is_none_or(|room| self.sent.len() < room)
    }

    fn send(&mut self, header: &Header, payload: [&[u8]; 2]) {
        self.sent.push((*header, payload.concat()));
    }
}

const TUNING: Tuning = Tuning {
    has_no_delay: false,
    is_corked: false,
    is_urgent_inline: false,
    receive_bytes_max: 65_535,
    send_bytes_max: 65_536,
};

fn terms(number: usize) -> Terms {
    let firsts = [0xffff_f000, 0x7fff_fff0];
    Terms {
        send_next: firsts[number],
        receive_next: firsts[1 - number],
        send_window_bytes: 65_535,
        window_shifts: Some((7, 7)),
        segment_bytes_max: 1448,
        has_sack: true,
        has_ecn: false,
        times: Some((77, 0)),
        round_trip_ns: Some(20_000_000),
    }
}

fn byte(end: usize, at: usize) -> u8 {
    (at as u32).wrapping_mul(2_654_435_761).wrapping_add(end as u32 * 97).to_be_bytes()[0]
}

struct Side {
    engine: ControlBlock,
    total: usize,
    given: usize,
    taken: usize,
    is_closed: bool,
}

impl Side {
    fn new(number: usize, total: usize, tuning: &Tuning) -> Self {
        let send_window_bytes = tuning.receive_bytes_max.min(65_535) as u32;
        let terms = Terms { send_window_bytes, ..terms(number) };
        Self { engine: ControlBlock::new(&terms, tuning, 5_000_000_000), total, given: 0, taken: 0, is_closed: false }
    }

    fn act(&mut self, number: usize, other_total: usize, chance: &mut Chance) {
        let wanted = (self.total - self.given).min(1 + chance.below(9000) as usize);
        let given = &mut self.given;
        self.engine
            .fill(wanted, &mut |room| {
                for (place, at) in room.iter_mut().zip(*given..) {
                    *place = byte(number, at);
                }
                *given += room.len();
                room.len()
            })
            .expect("there is memory");
        if self.given == self.total && !self.is_closed {
            self.is_closed = true;
            self.engine.close();
        }
        let taken = &mut self.taken;
        self.engine.drain(1 + chance.below(9000) as usize, &mut |bytes| {
            for byte_taken in bytes {
                assert_eq!(*byte_taken, byte(1 - number, *taken), "at {taken} of end {number}");
                *taken += 1;
            }
            bytes.len()
        });
        assert!(self.taken <= other_total);
    }

    fn is_done(&self, other_total: usize) -> bool {
        self.is_closed
            && self.taken == other_total
            && self.engine.has_seen_end()
            && matches!(self.engine.state(), TcpState::TimeWait | TcpState::Close)
    }
}

/// How long it takes, in milliseconds.
fn run(seed: u64, faults: Faults, totals: [usize; 2], tuning: &Tuning) -> u64 {
    let mut link: Link<Sent> = Link::new(seed, faults, 10_000_000);
    let mut sides = [Side::new(0, totals[0], tuning), Side::new(1, totals[1], tuning)];
    let mut now_ns = 5_000_000_000;
    let begun_ns = now_ns;
    let mut chance = Chance::new(seed ^ 0x5555);
    loop {
        for (to, (header, payload)) in link.arrivals(now_ns) {
            let mut sink = Sink::default();
            let verdict = sides[to].engine.arrive(&header, &payload, now_ns, &mut sink);
            assert_eq!(verdict, Verdict::Taken);
            sink.sent.drain(..).for_each(|sent| link.carry(now_ns, 1 - to, sent, |_, _| false));
        }
        let mut next_ns = None;
        for number in 0..2 {
            let side = &mut sides[number];
            side.act(number, totals[1 - number], &mut chance);
            let mut sink = Sink { room: Some(1 + chance.below(20) as usize), ..Sink::default() };
            side.engine.transmit(now_ns, &mut sink);
            sink.sent.drain(..).for_each(|sent| link.carry(now_ns, 1 - number, sent, |_, _| false));
            if chance.happens(20) {
                side.engine.rest();
            }
            let waits = side.given < side.total && side.engine.send_room() > 0 || side.engine.readable_bytes() > 0;
            let due = side.engine.deadline_ns(now_ns).map(|due| due.max(now_ns + 100_000));
            let own = if waits { Some(now_ns + 1_000_000) } else { due };
            next_ns = [next_ns, own].into_iter().flatten().min();
        }
        if (0..2).all(|number| sides[number].is_done(totals[1 - number])) {
            break;
        }
        let state = |side: &Side| (side.engine.state(), side.given, side.taken, side.engine.report());
        now_ns = [next_ns, link.deadline_ns()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| panic!("seed {seed}: stalled: {:?} {:?}", state(&sides[0]), state(&sides[1])))
            .max(now_ns + 1);
        assert!(
            now_ns - begun_ns < 600_000_000_000,
            "seed {seed}: too slow: {:?} {:?}",
            state(&sides[0]),
            state(&sides[1])
        );
    }
    (now_ns - begun_ns) / 1_000_000
}

#[test]
fn bytes_come_through_a_good_link_at_once() {
    let took_ms = run(1, Faults::default(), [500_000, 3], &TUNING);
    assert!(took_ms < 2000, "{took_ms} ms");
}

#[test]
fn bytes_come_through_bad_links() {
    for seed in 0..300 {
        let mut chance = Chance::new(seed + 1000);
        let faults = Faults {
            lost: chance.below(80),
            repeated: chance.below(60),
            late: chance.below(200),
            spoiled: chance.below(20),
        };
        let totals = [chance.below(60_000) as usize, chance.below(60_000) as usize];
        let tuning = Tuning {
            has_no_delay: chance.happens(500),
            is_corked: chance.happens(200),
            is_urgent_inline: false,
            receive_bytes_max: 2048 + chance.below(66_000) as usize,
            send_bytes_max: 2048 + chance.below(66_000) as usize,
        };
        run(seed, faults, totals, &tuning);
    }
}

/// What an engine sends at a time, where all is to be sent.
fn sent(engine: &mut ControlBlock, now_ns: u64) -> Vec<Sent> {
    let mut sink = Sink::default();
    engine.transmit(now_ns, &mut sink);
    sink.sent
}

fn acknowledgement(byte_count: u32, answered_ms: u32) -> Header {
    Header {
        sequence: terms(0).receive_next,
        acknowledgement: terms(0).send_next.wrapping_add(byte_count),
        flags: flag::ACK,
        window: 1000,
        times: Some((1, answered_ms.wrapping_add(77))),
        ..Header::default()
    }
}

const MS: u64 = 1_000_000;

/// An engine that has sent ten segments, and the time.
fn full_engine() -> (ControlBlock, u64) {
    let now_ns = 5_000 * MS;
    let mut engine = ControlBlock::new(&terms(0), &TUNING, now_ns);
    assert_eq!(engine.fill(60_000, &mut |room| room.len()), Ok(60_000));
    assert_eq!(sent(&mut engine, now_ns).len(), 10);
    (engine, now_ns)
}

#[test]
fn what_was_late_and_not_lost_leaves_the_window() {
    for (answered_ms, window_count) in [(5000, 10), (6000, 4)] {
        let (mut engine, mut now_ns) = full_engine();
        let mut repeated = 0;
        while repeated < 2 {
            now_ns = engine.deadline_ns(now_ns).unwrap();
            repeated +=
                sent(&mut engine, now_ns).iter().filter(|segment| segment.0.sequence == terms(0).send_next).count();
        }
        assert_eq!(engine.report().congestion_window_count, 1);
        let header = acknowledgement(3 * 1448, answered_ms);
        assert_eq!(engine.arrive(&header, &[], now_ns + MS, &mut Sink::default()), Verdict::Taken);
        assert_eq!(engine.report().congestion_window_count.min(10), window_count, "answered {answered_ms}");
    }
}

#[test]
fn after_a_loss_less_is_under_way() {
    let (mut engine, now_ns) = full_engine();
    let mut header = acknowledgement(0, 5000);
    let number = |segments: u32| terms(0).send_next.wrapping_add(segments * 1448);
    header.sack[0] = Some((number(1), number(4)));
    engine.arrive(&header, &[], now_ns + MS, &mut Sink::default());
    let again = sent(&mut engine, now_ns + MS);
    assert_eq!(again.iter().map(|segment| segment.0.sequence).collect::<Vec<_>>(), [number(0)]);
    engine.arrive(&acknowledgement(10 * 1448, 5001), &[], now_ns + 20 * MS, &mut Sink::default());
    assert_eq!(sent(&mut engine, now_ns + 20 * MS).len(), 7, "{:?}", engine.report());
}

#[test]
fn the_last_segment_is_asked_after_once_before_the_timeout() {
    let (mut engine, now_ns) = full_engine();
    let asked_ns = engine.deadline_ns(now_ns).unwrap();
    assert_eq!(asked_ns - now_ns, 42 * MS);
    let first = sent(&mut engine, asked_ns);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].0.sequence, terms(0).send_next.wrapping_add(10 * 1448), "what is new");
    let timeout_ns = engine.deadline_ns(asked_ns).unwrap();
    assert!(timeout_ns - asked_ns >= 200 * MS);
    assert_eq!(sent(&mut engine, timeout_ns)[0].0.sequence, terms(0).send_next);
}

fn any_header() -> impl Strategy<Value = Header> {
    let near = prop_oneof![-3i32..3, -70_000i32..140_000, any::<i32>()];
    let times = prop::option::of((-3i32..3, any::<u32>()));
    (near.clone(), near, 0u8..64, any::<u16>(), times).prop_map(|(sequence, acknowledgement, flags, window, times)| {
        Header {
            sequence: terms(0).receive_next.wrapping_add(sequence as u32),
            acknowledgement: terms(0).send_next.wrapping_add(acknowledgement as u32),
            flags: flags | if flags & 32 != 0 { flag::ACK } else { 0 },
            window,
            times: times.map(|(time, answer)| (time as u32, answer)),
            ..Header::default()
        }
    })
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(Header, usize),
    Give(usize),
    Take(usize),
    Close,
    Rest,
    Wait(u64),
    Path(u16),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any_header(), prop_oneof![Just(0), 0usize..3000, 60_000usize..66_000])
            .prop_map(|(header, count)| Step::Arrive(header, count)),
        2 => (0usize..70_000).prop_map(Step::Give),
        2 => (0usize..70_000).prop_map(Step::Take),
        1 => Just(Step::Close),
        1 => Just(Step::Rest),
        2 => (0u64..3_000_000_000).prop_map(Step::Wait),
        1 => any::<u16>().prop_map(Step::Path),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// No panic, no endless sending, no more bytes than there is room for.
    #[test]
    fn no_segment_does_harm(steps in prop::collection::vec(any_step(), 1..60)) {
        let mut engine = ControlBlock::new(&terms(0), &TUNING, 1_000_000);
        let mut now_ns = 1_000_000;
        for step in steps {
            let mut sink = Sink::default();
            match step {
                Step::Arrive(header, count) => {
                    let payload = alloc::vec![7; count];
                    if engine.arrive(&header, &payload, now_ns, &mut sink) == Verdict::Reset {
                        let _ = engine.reset_header();
                    }
                }
                Step::Give(count) => drop(engine.fill(count, &mut |room| room.len())),
                Step::Take(count) => drop(engine.drain(count, &mut |bytes| bytes.len())),
                Step::Close => engine.close(),
                Step::Rest => engine.rest(),
                Step::Wait(ns) => now_ns += ns,
                Step::Path(bytes) => engine.set_segment_bytes_max(bytes),
            }
            engine.transmit(now_ns, &mut sink);
            prop_assert!(sink.sent.len() < 200);
            prop_assert!(engine.readable_bytes() <= 65_536);
            for (header, payload) in &sink.sent {
                prop_assert!(payload.len() <= 1448);
                prop_assert!(header.has(flag::ACK));
            }
            let _ = (engine.deadline_ns(now_ns), engine.report(), engine.state(), engine.unacknowledged_bytes());
        }
    }
}
