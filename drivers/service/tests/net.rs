//! The service of a card against a naive model: every frame that a client sends reaches the card once, whole and in
//! order, every frame that comes in reaches the client, a card that breaks or a service that is lost loses what was
//! under way and nothing else. And a client that writes anything into its own memory ends itself, names no memory but
//! its own, and costs a bounded time.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use aegis_hal::fake::{FakeBuffer, FakeBus};
use aegis_hal::net::{
    DmaWindow, Frame, NetIdentity, NetStatistics, Offloads, Received, ReceivedPiece, TransmitError, Wishes,
};
use aegis_hal::{Dma, DmaBuffer};
use aegis_proto::net::{Client, SendError, Shape, State, Transmission};
use aegis_service::net::{Health, NetDevice, NetHost, NetService};
use proptest::prelude::*;

const SHAPE: Shape = Shape { capacity: 8, transmit_page_count: 2 };
/// Frames that the card has room for.
const CARD_ROOM: usize = 5;

/// A card that does what it is told to.
struct Card {
    bus: FakeBus,
    buffer: FakeBuffer,
    incoming: VecDeque<Vec<u8>>,
    under_way: VecDeque<(u32, Vec<u8>)>,
    lost: Vec<u32>,
    /// Whole frames, as they left.
    sent: Vec<Vec<u8>>,
    breaks: bool,
    reset_count: u32,
    is_asked: bool,
}

impl Card {
    fn complete(&mut self) {
        let done = self.under_way.drain(..).collect::<Vec<_>>();
        self.lost.extend(done.iter().map(|(token, _)| *token));
        self.sent.extend(done.into_iter().map(|(_, bytes)| bytes));
    }
}

impl NetDevice for Card {
    type Buffer = FakeBuffer;
    type Error = ();

    fn identity(&self) -> NetIdentity {
        NetIdentity { hardware_address: [2; 6], packet_bytes_max: 9000, offloads: Offloads::default() }
    }
    fn has_link(&self) -> bool {
        true
    }
    fn statistics(&self) -> NetStatistics {
        NetStatistics::default()
    }
    fn has_received(&self) -> bool {
        !self.incoming.is_empty()
    }
    fn receive(&mut self, budget: u32, sink: &mut impl FnMut(&Received<'_, FakeBuffer>)) -> Result<u32, ()> {
        let count = self.incoming.len().min(budget as usize);
        for bytes in self.incoming.drain(..count) {
            let stored = bytes.len().min(4096);
            self.buffer.copy_in(0, &bytes[..stored]).map_err(|_| ())?;
            let piece = ReceivedPiece { buffer: &self.buffer, offset: 0, byte_count: stored };
            sink(&Received { pieces: &[piece], byte_count: stored, is_checksum_valid: false });
        }
        Ok(count as u32)
    }
    fn room(&self) -> usize {
        CARD_ROOM - self.under_way.len()
    }
    fn transmit(&mut self, frame: &Frame<'_>, window: &impl DmaWindow) -> Result<(), TransmitError<()>> {
        if core::mem::take(&mut self.breaks) {
            return Err(TransmitError::Broken(()));
        }
        if self.under_way.len() == CARD_ROOM {
            return Err(TransmitError::Full);
        }
        let mut bytes = frame.copied.concat();
        for place in frame.shared {
            let mut piece = vec![0; place.length_bytes as usize];
            let address = window.device_address(*place).ok_or(TransmitError::Frame)?;
            // What is not the client's is a violation, which the test looks for.
            self.bus.device_read(address.0, &mut piece).ok_or(TransmitError::Frame)?;
            bytes.extend(piece);
        }
        self.under_way.push_back((frame.token, bytes));
        Ok(())
    }
    fn completed(&mut self, done: &mut impl FnMut(u32)) -> Result<u32, ()> {
        let told = core::mem::take(&mut self.lost);
        told.iter().for_each(|token| done(*token));
        Ok(told.len() as u32)
    }
    fn flush(&mut self) -> Result<(), ()> {
        Ok(())
    }
    fn ask_for_interrupt(&mut self, wishes: Wishes) -> Result<bool, ()> {
        self.is_asked |= wishes.received;
        Ok((wishes.received && self.has_received()) || (wishes.completed && !self.lost.is_empty()))
    }
    fn reset(&mut self) -> Result<(), ()> {
        self.reset_count += 1;
        self.is_asked = false;
        self.lost.extend(self.under_way.drain(..).map(|(token, _)| token));
        Ok(())
    }
}

struct TestHost {
    words: Vec<AtomicU64>,
    bytes: FakeBuffer,
    wake_count: u32,
}

impl NetHost<FakeBuffer> for TestHost {
    type Words = [AtomicU64];
    fn session(&mut self) -> Option<(&[AtomicU64], &mut FakeBuffer)> {
        Some((&self.words, &mut self.bytes))
    }
    fn wake(&mut self) {
        self.wake_count += 1;
    }
}

struct Test {
    bus: FakeBus,
    client: Client,
    service: NetService<Card, TestHost>,
    /// What the client has sent, and what has come in for it, oldest first.
    sent: Vec<Vec<u8>>,
    came: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
    next: u8,
    /// Somebody writes into the session besides.
    is_damaged: bool,
}

impl Test {
    fn new() -> Self {
        let bus = FakeBus::new(64);
        let mut dma = bus.dma();
        let words: Vec<AtomicU64> = (0..SHAPE.word_page_count() * 512).map(|_| AtomicU64::new(0)).collect();
        let client = Client::new(&words[..], SHAPE, 2).unwrap();
        let host = TestHost { words, bytes: dma.allocate(SHAPE.byte_page_count()).unwrap(), wake_count: 0 };
        let card = Card {
            bus: bus.clone(),
            buffer: dma.allocate(1).unwrap(),
            incoming: VecDeque::new(),
            under_way: VecDeque::new(),
            lost: Vec::new(),
            sent: Vec::new(),
            breaks: false,
            reset_count: 0,
            is_asked: false,
        };
        let mut service = NetService::new(card, host);
        service.attach().unwrap();
        let mut test =
            Self { bus, client, service, sent: vec![], came: vec![], received: vec![], next: 0, is_damaged: false };
        assert_eq!(test.client.state(&test.service.host().words[..]), State::Up);
        assert_eq!(test.client.description(&test.service.host().words[..]).packet_bytes_max, 2030);
        test
    }

    fn frame(&mut self, byte_count: usize) -> Vec<u8> {
        self.next = self.next.wrapping_add(1);
        vec![self.next; byte_count]
    }

    /// Whether there was room.
    fn send(&mut self, byte_count: usize) -> bool {
        let bytes = self.frame(byte_count);
        let host = self.service.host();
        let room = match self.client.reserve(&host.words[..], byte_count as u32) {
            Ok(room) => room,
            Err(error) => {
                assert!(self.is_damaged || error == SendError::Full, "{error:?}");
                return false;
            }
        };
        host.bytes.copy_in(room.offset_bytes as usize, &bytes).unwrap();
        let frame = Transmission { offset_bytes: 0, length_bytes: 0, checksum: None, segmentation: None };
        match self.client.send(&host.words[..], room, frame) {
            Ok(()) => self.sent.push(bytes),
            Err(error) => {
                assert!(self.is_damaged || error == SendError::Full, "{error:?}");
                return false;
            }
        }
        true
    }

    fn come(&mut self, byte_count: usize) {
        let bytes = self.frame(byte_count);
        self.came.push(bytes.clone());
        self.service.device().incoming.push_back(bytes);
    }

    fn take(&mut self) {
        let host = self.service.host();
        while let Some(frame) = self.client.receive(&host.words[..]).unwrap() {
            let mut bytes = vec![0; frame.length_bytes];
            host.bytes.copy_out(frame.offset_bytes, &mut bytes).unwrap();
            self.received.push(bytes);
        }
        let _ = self.client.release(&host.words[..]);
    }

    fn publish(&mut self) {
        let _ = self.client.publish(&self.service.host().words[..]);
    }

    /// Until nothing moves any more.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.publish();
            self.service.visit(0);
            self.service.device().complete();
            self.service.visit(0);
            self.take();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Send(u16),
    Publish,
    Visit,
    Complete,
    Come(u16),
    Take,
    Ask,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..3000u16).prop_map(Action::Send),
        2 => Just(Action::Publish),
        4 => Just(Action::Visit),
        2 => Just(Action::Complete),
        3 => (1..2048u16).prop_map(Action::Come),
        2 => Just(Action::Take),
        1 => Just(Action::Ask),
    ]
}

fn act(test: &mut Test, action: Action) {
    match action {
        Action::Send(byte_count) => {
            test.send(usize::from(byte_count));
        }
        Action::Publish => test.publish(),
        Action::Visit => {
            test.service.visit(0);
        }
        Action::Complete => test.service.device().complete(),
        Action::Come(byte_count) => test.come(usize::from(byte_count)),
        Action::Take => test.take(),
        Action::Ask => {
            test.service.ask(0);
        }
    }
}

proptest! {
    #[test]
    fn frames_arrive_whole_and_in_order(actions in prop::collection::vec(action(), 1..300)) {
        let mut test = Test::new();
        for action in actions {
            act(&mut test, action);
        }
        test.settle();
        prop_assert_eq!(&test.service.device().sent, &test.sent);
        prop_assert_eq!(&test.received, &test.came);
        prop_assert!(!test.client.has_under_way() || test.client.room(&test.service.host().words[..]) == Ok(4));
        prop_assert!(!test.service.ask(0));
        prop_assert_eq!(test.bus.violations(), vec![]);
    }

    #[test]
    fn a_client_that_writes_anything_ends_itself_alone(
        writes in prop::collection::vec((0..SHAPE.word_page_count() * 512, any::<u64>(), any::<bool>()), 1..60),
    ) {
        let mut test = Test::new();
        test.is_damaged = true;
        for (word, value, is_small) in writes {
            // Small numbers go further.
            let value = if is_small { value % 5000 } else { value };
            test.service.host().words[word % 700].store(value, Ordering::Relaxed);
            test.send(100);
            test.publish();
            test.come(64);
            for _ in 0..4 {
                let visit = test.service.visit(0);
                prop_assert!(visit.sent_count <= 64 && visit.received_count <= 64);
                test.service.ask(0);
                test.service.device().complete();
            }
        }
        prop_assert_eq!(test.service.health(), Health::Up);
        prop_assert_eq!(test.bus.violations(), vec![]);
        // Whoever comes next is served.
        let client = Client::new(&test.service.host().words[..], SHAPE, 4).unwrap();
        test.service.detach().unwrap();
        test.service.attach().unwrap();
        prop_assert_eq!(client.state(&test.service.host().words[..]), State::Up);
    }
}

#[test]
fn a_card_that_breaks_is_reset_and_goes_on() {
    let mut test = Test::new();
    assert!(test.send(100));
    assert!(!test.service.ask(0));
    test.service.device().breaks = true;
    test.publish();
    test.service.visit(1);
    assert_eq!(test.service.device().reset_count, 1);
    assert!(test.service.device().is_asked, "whoever sleeps since it was asked is told by the card that came back");
    test.settle();
    assert_eq!(test.service.health(), Health::Up);
    // The frame at which it broke is lost, and its slot is the client's again: nothing is under way for ever.
    assert!(!test.client.has_under_way() || test.client.room(&test.service.host().words[..]).is_ok());
    assert_eq!(test.client.under_way_count(), 0);
    assert!(test.send(200));
    test.settle();
    assert_eq!(test.service.device().sent.last().unwrap().len(), 200);
}

#[test]
fn a_card_that_breaks_too_often_is_dead() {
    let mut test = Test::new();
    for _ in 0..20 {
        test.send(100);
        test.publish();
        test.service.device().breaks = true;
        test.service.visit(1);
    }
    assert_eq!(test.service.health(), Health::Dead);
    assert_eq!(test.client.state(&test.service.host().words[..]), State::Ended);
    // It is not lost for good: the client begins anew, and so does the card.
    test.service.device().breaks = false;
    test.service.revive().unwrap();
    test.client.restart(&test.service.host().words[..], 4);
    test.service.attach().unwrap();
    assert_eq!(test.client.state(&test.service.host().words[..]), State::Up);
    assert!(test.send(200));
    test.settle();
    assert_eq!(test.service.device().sent.last().unwrap().len(), 200);
    assert_eq!(test.service.health(), Health::Up);
}

#[test]
fn what_the_client_has_no_room_for_stays_with_the_card() {
    let mut test = Test::new();
    for _ in 0..30 {
        test.come(60);
    }
    for _ in 0..5 {
        test.service.visit(0);
    }
    assert_eq!(test.service.device().incoming.len(), 30 - SHAPE.capacity as usize);
    // It is asked for no interrupt that nobody can act on.
    assert!(!test.service.ask(0));
    test.settle();
    assert_eq!(test.received, test.came);
}
