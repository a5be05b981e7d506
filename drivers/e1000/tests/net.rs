//! The driver with a card that keeps to the rules, and with one that does not.

use aegis_e1000::fake::{FakeCard, HARDWARE_ADDRESS, Mischief, SharedCard, sum_of};
use aegis_e1000::{BUFFER_BYTES, CardFault, E1000Error, Limits, Model, NetCard};
use aegis_hal::fake::{FakeBus, FakeDma, FakeMmio};
use aegis_hal::net::{
    ChecksumMeta, DmaWindow, Frame, NetDevice, NoWindow, Place, SegmentationMeta, TransmitError, TransmitMeta, Wishes,
};
use aegis_hal::{DeviceAddress, Dma, DmaBuffer};
use proptest::prelude::*;

const LIMITS: Limits = Limits { receive_buffer_count: 16, transmit_buffer_count: 64, reset_poll_count_max: 10 };
const MODELS: [Model; 2] = [Model::Pci82540, Model::Express82574];

type TestCard = NetCard<FakeMmio<FakeCard>, FakeDma>;

struct World {
    bus: FakeBus,
    device: SharedCard,
    model: Model,
}

impl World {
    fn new(model: Model) -> Self {
        let bus = FakeBus::new(256);
        let device = FakeCard::new(&bus, model);
        Self { bus, device, model }
    }

    fn card(&self) -> Result<TestCard, E1000Error> {
        NetCard::new(self.model, FakeCard::registers(&self.device), self.bus.dma(), LIMITS)
    }

    fn misbehave(&self, mischief: Mischief) {
        self.device.borrow_mut().mischief = Some(mischief);
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.device.borrow_mut().sent)
    }

    fn assert_clean(&self) {
        assert_eq!(self.device.borrow().driver_faults, []);
        assert_eq!(self.bus.violations(), []);
    }
}

fn pattern(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 + seed) as u8).collect()
}

fn send(card: &mut TestCard, frame: &[u8], meta: TransmitMeta, token: u32) -> Result<(), TransmitError<E1000Error>> {
    let (first, rest) = frame.split_at(frame.len().min(14));
    card.transmit(&Frame { copied: &[first, rest], shared: &[], meta, token }, &NoWindow)
}

fn plain(card: &mut TestCard, frame: &[u8], token: u32) -> Result<(), TransmitError<E1000Error>> {
    send(card, frame, TransmitMeta::default(), token)
}

fn received(card: &mut TestCard) -> Result<Vec<(Vec<u8>, bool)>, E1000Error> {
    let mut frames = Vec::new();
    card.receive(1000, &mut |frame| {
        let mut bytes = vec![0; frame.byte_count + 3];
        let count = frame.copy_out(&mut bytes).expect("within its buffers");
        assert_eq!(count, frame.byte_count);
        bytes.truncate(count);
        frames.push((bytes, frame.is_checksum_valid));
    })?;
    Ok(frames)
}

fn completed(card: &mut TestCard) -> Vec<u32> {
    let mut tokens = Vec::new();
    card.completed(&mut |token| tokens.push(token)).expect("honest");
    tokens
}

#[test]
fn frames_go_both_ways_with_a_notification_for_each_batch() {
    for model in MODELS {
        let world = World::new(model);
        let mut card = world.card().expect("honest");
        assert_eq!(card.identity().hardware_address, HARDWARE_ADDRESS);
        assert!(card.has_link());
        let before = world.device.borrow().notification_count;
        for round in 0..200usize {
            let frames: Vec<_> = (0..8).map(|index| pattern(round + index, 60 + (round * 8 + index) % 1400)).collect();
            for (index, frame) in frames.iter().enumerate() {
                plain(&mut card, frame, index as u32).expect("room");
                world.device.borrow_mut().arrive(frame);
            }
            assert_eq!(world.sent(), Vec::<Vec<u8>>::new(), "not before the flush");
            card.flush().expect("honest");
            assert_eq!(world.sent(), frames);
            let bytes: Vec<_> = received(&mut card).expect("honest").into_iter().map(|(bytes, _)| bytes).collect();
            assert_eq!(bytes, frames);
            assert_eq!(completed(&mut card), Vec::from_iter(0..8));
        }
        world.assert_clean();
        let statistics = card.statistics();
        assert_eq!((statistics.sent_count, statistics.received_count), (1600, 1600));
        assert_eq!(statistics.sent_bytes, statistics.received_bytes);
        let count = world.device.borrow().notification_count - before;
        assert!(count <= 200 + 1600 / 4, "{count} notifications of 200 batches");
        assert!(!world.device.borrow().irq.is_masked(), "no interrupt was asked for");
        assert_eq!(card.stop().outcome, Ok(()));
        assert_eq!(world.bus.live_page_count(), 0);
        world.assert_clean();
    }
}

#[test]
fn the_address_is_in_the_cards_memory_too() {
    for model in MODELS {
        let world = World::new(model);
        world.device.borrow_mut().loads_address = false;
        world.device.borrow_mut().load_for_test();
        assert_eq!(world.card().expect("honest").identity().hardware_address, HARDWARE_ADDRESS);
        world.assert_clean();
    }
}

#[test]
fn an_interrupt_comes_once_for_each_time_that_it_was_asked_for() {
    for model in MODELS {
        let world = World::new(model);
        let mut card = world.card().expect("honest");
        let mut irq = world.device.borrow().irq.clone();
        let count = || aegis_hal::Irq::count(&world.device.borrow().irq);
        world.device.borrow_mut().arrive(&pattern(1, 60));
        assert_eq!(count(), 0);
        let wishes = Wishes { received: true, completed: false };
        assert_eq!(card.ask_for_interrupt(wishes), Ok(true), "one is there");
        assert_eq!(received(&mut card).expect("honest").len(), 1);
        assert_eq!(card.ask_for_interrupt(wishes), Ok(false));
        assert_eq!(count(), 0);
        world.device.borrow_mut().arrive(&pattern(2, 60));
        assert_eq!(count(), 1);
        card.acknowledge(&mut irq).expect("honest");
        world.device.borrow_mut().arrive(&pattern(3, 60));
        assert_eq!(count(), 1, "not asked for again");
        assert_eq!(received(&mut card).expect("honest").len(), 2);
        world.device.borrow_mut().is_slow = true;
        plain(&mut card, &pattern(4, 60), 7).expect("room");
        assert_eq!(card.ask_for_interrupt(Wishes { received: false, completed: true }), Ok(false));
        world.device.borrow_mut().work();
        assert_eq!(count(), 2);
        card.acknowledge(&mut irq).expect("honest");
        assert_eq!(completed(&mut card), [7]);
        world.device.borrow_mut().has_link = false;
        world.device.borrow_mut().raise(1 << 2);
        assert_eq!(count(), 3, "the link's is always asked for");
        assert!(card.has_link());
        card.acknowledge(&mut irq).expect("honest");
        assert!(!card.has_link());
        world.assert_clean();
    }
}

#[test]
fn checksums_are_filled_in_with_a_context_for_each_kind() {
    for model in MODELS {
        let world = World::new(model);
        let mut card = world.card().expect("honest");
        for (index, offset_bytes) in [16, 16, 6, 6, 16].into_iter().enumerate() {
            let mut frame = pattern(index, 90 + index);
            let meta =
                TransmitMeta { checksum: Some(ChecksumMeta { start_bytes: 34, offset_bytes }), segmentation: None };
            send(&mut card, &frame, meta, 0).expect("room");
            card.flush().expect("honest");
            let place = 34 + usize::from(offset_bytes);
            let sum = !sum_of(&frame[34..]);
            frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(world.sent(), [frame]);
        }
        assert_eq!(completed(&mut card).len(), 5);
        let far =
            TransmitMeta { checksum: Some(ChecksumMeta { start_bytes: 250, offset_bytes: 6 }), segmentation: None };
        assert_eq!(send(&mut card, &pattern(0, 300), far, 0), Err(TransmitError::Frame));
        world.assert_clean();
    }
}

/// A TCP packet of IPv4 or IPv6 as the stack hands it over to be cut.
fn packet(is_ip6: bool, payload: &[u8]) -> (Vec<u8>, TransmitMeta) {
    let ip_bytes = if is_ip6 { 40 } else { 20 };
    let start = 14 + ip_bytes;
    let mut frame = pattern(3, start + 20);
    frame.extend_from_slice(payload);
    let ip_length = frame.len() - 14;
    match is_ip6 {
        true => frame[18..20].copy_from_slice(&((ip_length - 40) as u16).to_be_bytes()),
        false => frame[16..18].copy_from_slice(&(ip_length as u16).to_be_bytes()),
    }
    let transport_bytes = (frame.len() - start) as u16;
    let partial = sum_of(&[&pseudo(&frame, is_ip6)[..], &transport_bytes.to_be_bytes()].concat());
    frame[start + 16..start + 18].copy_from_slice(&partial.to_be_bytes());
    let meta = TransmitMeta {
        checksum: Some(ChecksumMeta { start_bytes: start as u16, offset_bytes: 16 }),
        segmentation: Some(SegmentationMeta { payload_bytes: 100, header_bytes: start as u16 + 20, is_ip6 }),
    };
    (frame, meta)
}

/// Addresses and protocol.
fn pseudo(frame: &[u8], is_ip6: bool) -> Vec<u8> {
    let addresses = if is_ip6 { &frame[22..54] } else { &frame[26..34] };
    [addresses, &[0, 6]].concat()
}

#[test]
fn long_packets_become_segments_that_add_up() {
    let world = World::new(Model::Pci82540);
    let mut card = world.card().expect("honest");
    for is_ip6 in [false, true] {
        for byte_count in [1, 99, 100, 101, 5000, 60_000] {
            let payload = pattern(5, byte_count);
            let (frame, meta) = packet(is_ip6, &payload);
            send(&mut card, &frame, meta, 1).expect("room");
            card.flush().expect("honest");
            let sent = world.sent();
            assert_eq!(sent.len(), byte_count.div_ceil(100));
            let header_bytes = frame.len() - byte_count;
            let start = header_bytes - 20;
            for (number, segment) in sent.iter().enumerate() {
                let mut sum = pseudo(segment, is_ip6);
                sum.extend_from_slice(&((segment.len() - start) as u16).to_be_bytes());
                sum.extend_from_slice(&segment[start..]);
                assert_eq!(sum_of(&sum), 0xffff, "segment {number} of {byte_count}");
                assert!(is_ip6 || sum_of(&segment[14..34]) == 0xffff);
            }
            let joined: Vec<u8> = sent.iter().flat_map(|it| it[header_bytes..].iter().copied()).collect();
            assert_eq!(joined, payload);
            assert_eq!(completed(&mut card), [1]);
        }
    }
    world.assert_clean();
    let (frame, meta) = packet(false, &[1; 200]);
    let mut bad = meta;
    bad.segmentation = meta.segmentation.map(|cut| SegmentationMeta { payload_bytes: 0, ..cut });
    assert_eq!(send(&mut card, &frame, bad, 0), Err(TransmitError::Frame));
    bad.segmentation = meta.segmentation.map(|cut| SegmentationMeta { header_bytes: 40, ..cut });
    assert_eq!(send(&mut card, &frame, bad, 0), Err(TransmitError::Frame));
    bad = TransmitMeta { checksum: None, ..meta };
    assert_eq!(send(&mut card, &frame, bad, 0), Err(TransmitError::Frame));
    let world = World::new(Model::Express82574);
    let mut card = world.card().expect("honest");
    assert_eq!(send(&mut card, &frame, meta, 0), Err(TransmitError::Frame));
}

struct Window(u64, u64);

impl DmaWindow for Window {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        let end = place.offset.checked_add(u64::from(place.length_bytes))?;
        (end <= self.1).then_some(DeviceAddress(self.0 + place.offset))
    }
}

#[test]
fn pieces_are_taken_from_where_they_lie() {
    let world = World::new(Model::Pci82540);
    let mut card = world.card().expect("honest");
    let mut shared = world.bus.dma().allocate(3).expect("pages");
    shared.copy_in(0, &pattern(9, 12_288)).expect("within");
    let window = Window(shared.device_address().0, 12_288);
    let (header, meta) = packet(false, &[]);
    let places = [Place { offset: 10, length_bytes: 9000 }, Place { offset: 3, length_bytes: 1 }];
    let frame = Frame { copied: &[&header], shared: &places, meta, token: 5 };
    card.transmit(&frame, &window).expect("room");
    card.flush().expect("honest");
    let joined: Vec<u8> = world.sent().iter().flat_map(|it| it[54..].iter().copied()).collect();
    assert_eq!(joined, [&pattern(9, 12_288)[10..9010], &pattern(9, 4)[3..]].concat());
    for place in [Place { offset: 10_000, length_bytes: 9000 }, Place { offset: 0, length_bytes: 0 }] {
        let frame = Frame { copied: &[&header], shared: &[place], meta, token: 5 };
        assert_eq!(card.transmit(&frame, &window), Err(TransmitError::Frame));
    }
    assert_eq!(completed(&mut card), [5]);
    world.assert_clean();
}

#[test]
fn a_full_ring_says_so_until_frames_are_done_with() {
    let world = World::new(Model::Pci82540);
    let mut card = world.card().expect("honest");
    world.device.borrow_mut().is_slow = true;
    for token in 0..62 {
        plain(&mut card, &pattern(0, 100), token).expect("room");
    }
    assert_eq!(card.room(), 0);
    assert_eq!(plain(&mut card, &[1; 60], 64), Err(TransmitError::Full));
    card.flush().expect("honest");
    assert_eq!(completed(&mut card), []);
    world.device.borrow_mut().work();
    assert_eq!(completed(&mut card), Vec::from_iter(0..62));
    assert_eq!(card.room(), 31);
    plain(&mut card, &[1; 60], 64).expect("room");
    assert_eq!(card.statistics().full_count, 1);
    assert_eq!(plain(&mut card, &[], 0), Err(TransmitError::Frame));
    assert_eq!(plain(&mut card, &pattern(0, 1519), 0), Err(TransmitError::Frame));
    world.assert_clean();
}

#[test]
fn a_reset_tells_of_lost_frames_and_starts_again() {
    for model in MODELS {
        let world = World::new(model);
        let mut card = world.card().expect("honest");
        world.device.borrow_mut().is_slow = true;
        for token in 0..5 {
            plain(&mut card, &pattern(0, 100), token).expect("room");
        }
        world.device.borrow_mut().arrive(&pattern(1, 60));
        card.reset().expect("honest");
        assert_eq!(card.room(), 0);
        assert_eq!(plain(&mut card, &pattern(0, 100), 9), Err(TransmitError::Full));
        assert_eq!(completed(&mut card), [0, 1, 2, 3, 4]);
        world.device.borrow_mut().is_slow = false;
        assert_eq!(received(&mut card).expect("honest").len(), 0);
        for round in 0..100 {
            let frame = pattern(round, 200);
            plain(&mut card, &frame, 1).expect("room");
            card.flush().expect("honest");
            assert_eq!(world.sent(), std::slice::from_ref(&frame));
            world.device.borrow_mut().arrive(&frame);
            assert_eq!(received(&mut card).expect("honest")[0].0, frame);
            assert_eq!(completed(&mut card), [1]);
        }
        world.assert_clean();
    }
}

#[test]
fn what_the_card_says_of_checksums_is_passed_on() {
    let world = World::new(Model::Express82574);
    let mut card = world.card().expect("honest");
    for last in [0, 1, 2] {
        world.device.borrow_mut().arrive(&[&pattern(0, 99)[..], &[last]].concat());
    }
    let valid: Vec<bool> = received(&mut card).expect("honest").into_iter().map(|(_, is_valid)| is_valid).collect();
    assert_eq!(valid, [true, false, false]);
    let world = World::new(Model::Pci82540);
    let mut card = world.card().expect("honest");
    world.device.borrow_mut().arrive(&[0; 100]);
    assert!(!received(&mut card).expect("honest")[0].1);
}

#[test]
fn a_card_that_breaks_the_rules_fails_until_it_is_reset() {
    for length in [0, BUFFER_BYTES as u16 + 1, u16::MAX] {
        let world = World::new(Model::Pci82540);
        let mut card = world.card().expect("honest");
        world.misbehave(Mischief::Length(length));
        world.device.borrow_mut().arrive(&pattern(0, 60));
        let fault = E1000Error::from(CardFault::FrameLength { byte_count: length });
        assert!(card.has_received());
        assert_eq!(received(&mut card), Err(fault));
        assert_eq!(plain(&mut card, &pattern(0, 60), 0), Err(TransmitError::Broken(fault)));
        assert_eq!((card.flush(), card.has_link(), card.has_received()), (Err(fault), false, false));
        world.device.borrow_mut().mischief = None;
        card.reset().expect("honest again");
        world.device.borrow_mut().arrive(&pattern(0, 60));
        assert_eq!(received(&mut card).expect("honest").len(), 1);
    }
}

#[test]
fn frames_in_pieces_and_damaged_ones_are_dropped() {
    for mischief in [Mischief::NoEnd, Mischief::Damaged] {
        let world = World::new(Model::Pci82540);
        let mut card = world.card().expect("honest");
        world.misbehave(mischief);
        for _ in 0..500 {
            world.device.borrow_mut().arrive(&pattern(0, 60));
            assert_eq!(received(&mut card), Ok(Vec::new()));
        }
        world.device.borrow_mut().mischief = None;
        world.device.borrow_mut().arrive(&pattern(0, 60));
        world.device.borrow_mut().arrive(&pattern(1, 60));
        let frames = received(&mut card).expect("honest");
        // The first ends what was in pieces.
        assert_eq!(frames.len(), if mischief == Mischief::NoEnd { 1 } else { 2 });
        assert_eq!(card.statistics().receive_error_count, if mischief == Mischief::NoEnd { 1 } else { 500 });
        world.assert_clean();
    }
}

#[test]
fn a_line_that_is_stuck_ends_the_card_and_stays_masked() {
    for model in MODELS {
        let world = World::new(model);
        let mut card = world.card().expect("honest");
        let mut irq = world.device.borrow().irq.clone();
        world.misbehave(Mischief::StuckLine);
        world.device.borrow_mut().raise(0);
        // Where something happens, interrupts are no storm.
        for round in 0..20_000 {
            card.acknowledge(&mut irq).expect("frames come");
            world.device.borrow_mut().arrive(&pattern(round, 60));
            assert_eq!(received(&mut card).expect("honest").len(), 1);
        }
        let before = aegis_hal::Irq::count(&irq);
        let outcome = (0..20_000).find_map(|_| card.acknowledge(&mut irq).err());
        assert_eq!(outcome, Some(CardFault::Storm.into()));
        assert_eq!(aegis_hal::Irq::count(&irq) - before, 10_000);
        assert!(irq.is_masked());
        world.device.borrow_mut().mischief = None;
        card.reset().expect("honest again");
        card.acknowledge(&mut irq).expect("honest again");
    }
}

#[test]
fn a_card_that_does_not_start_or_stop_says_why() {
    for (mischief, fault) in [
        (Mischief::Gone, CardFault::Gone),
        (Mischief::NoReset, CardFault::ResetTimeout),
        (Mischief::NoStop, CardFault::ResetTimeout),
    ] {
        let world = World::new(Model::Express82574);
        world.misbehave(mischief);
        assert_eq!(world.card().err(), Some(fault.into()), "{mischief:?}");
        assert_eq!(world.bus.live_page_count(), 0);
        let world = World::new(Model::Express82574);
        let mut card = world.card().expect("honest");
        world.misbehave(mischief);
        assert_eq!(card.reset(), Err(fault.into()));
        assert!(card.completed(&mut |_| ()).is_err());
        assert_eq!(card.stop().outcome, Err(fault.into()));
        assert_eq!(world.bus.quarantined_buffer_count(), 4, "it may still reach them");
        assert_eq!(world.bus.violations(), []);
    }
    let world = World::new(Model::Pci82540);
    let mut card = world.card().expect("honest");
    world.misbehave(Mischief::OtherAddress);
    assert_eq!(card.reset(), Err(CardFault::Changed.into()));
    let window = FakeMmio::new(world.device.clone(), 0x4000);
    assert!(matches!(NetCard::new(world.model, window, world.bus.dma(), LIMITS).err(), Some(E1000Error::Window(_))));
}

/// What a hostile card, or its user, does next.
#[derive(Clone, Debug)]
enum Step {
    Arrive(usize),
    Receive,
    Send(usize, u8),
    Flush,
    Complete,
    Ask(bool, bool),
    Acknowledge,
    Reset,
    Mischief(u8),
    /// Bytes anywhere in memory that the card reaches.
    Scribble(prop::sample::Index, prop::sample::Index, Vec<u8>),
    /// A register's value.
    Register(prop::sample::Index, u32),
    Work,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..3000_usize).prop_map(Step::Arrive),
        Just(Step::Receive),
        (0..4000_usize, any::<u8>()).prop_map(|(count, kind)| Step::Send(count, kind)),
        Just(Step::Flush),
        Just(Step::Complete),
        any::<(bool, bool)>().prop_map(|(received, completed)| Step::Ask(received, completed)),
        Just(Step::Acknowledge),
        Just(Step::Reset),
        any::<u8>().prop_map(Step::Mischief),
        (any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(buffer, place, bytes)| Step::Scribble(buffer, place, bytes)),
        (any::<prop::sample::Index>(), any::<u32>()).prop_map(|(register, value)| Step::Register(register, value)),
        Just(Step::Work),
    ];
    prop::collection::vec(step, 1..120)
}

fn scribble(world: &World, buffer: prop::sample::Index, place: prop::sample::Index, bytes: &[u8]) {
    let buffers = world.bus.live_buffers();
    if buffers.is_empty() {
        return;
    }
    let (base, length_bytes) = buffers[buffer.index(buffers.len())];
    let count = bytes.len().min(length_bytes);
    let offset = place.index(length_bytes - count + 1);
    world.bus.device_write(base + offset as u64, &bytes[..count]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the card does: no panic, no loop without end, a fault stays until a reset, every token is told at most
    /// once, and memory comes back or is in quarantine.
    #[test]
    fn nothing_a_card_does_harms(steps in steps(), is_express in any::<bool>()) {
        let world = World::new(if is_express { Model::Express82574 } else { Model::Pci82540 });
        let mut card = world.card().expect("honest so far");
        let mut irq = world.device.borrow().irq.clone();
        let (mut next_token, mut told) = (0, Vec::new());
        let mut has_failed = false;
        for step in steps {
            let outcome = match step {
                Step::Arrive(count) => {
                    world.device.borrow_mut().arrive(&pattern(count, count.min(2048)));
                    continue;
                }
                Step::Receive => received(&mut card).map(|_| ()),
                Step::Send(count, kind) => {
                    let (frame, meta) = match kind {
                        0..100 => (pattern(1, count.min(1518)), TransmitMeta::default()),
                        100..150 => packet(kind % 2 == 0, &pattern(2, count)),
                        _ => (pattern(3, count), TransmitMeta {
                            checksum: Some(ChecksumMeta { start_bytes: u16::from(kind), offset_bytes: 16 }),
                            segmentation: None,
                        }),
                    };
                    match send(&mut card, &frame, meta, next_token) {
                        Ok(()) => { next_token += 1; Ok(()) }
                        Err(TransmitError::Broken(error)) => Err(error),
                        Err(_) => continue,
                    }
                }
                Step::Flush => card.flush(),
                Step::Complete => card.completed(&mut |token| told.push(token)).map(|_| ()),
                Step::Ask(received, completed) => card.ask_for_interrupt(Wishes { received, completed }).map(|_| ()),
                Step::Acknowledge => card.acknowledge(&mut irq),
                Step::Reset => {
                    let outcome = card.reset();
                    has_failed = outcome.is_err();
                    outcome
                }
                Step::Mischief(number) => {
                    world.device.borrow_mut().mischief = match number % 12 {
                        0 => Some(Mischief::Gone),
                        1 => Some(Mischief::NoReset),
                        2 => Some(Mischief::NoStop),
                        3 => Some(Mischief::Length(u16::from(number) << 4)),
                        4 => Some(Mischief::NoEnd),
                        5 => Some(Mischief::Silent),
                        6 => Some(Mischief::OtherAddress),
                        _ => None,
                    };
                    continue;
                }
                Step::Scribble(buffer, place, bytes) => { scribble(&world, buffer, place, &bytes); continue }
                Step::Register(register, value) => {
                    world.device.borrow_mut().scribble(register.index(0x8000), value);
                    continue
                }
                Step::Work => { world.device.borrow_mut().work(); continue }
            };
            prop_assert!(!has_failed || outcome.is_err(), "a fault stays");
            has_failed = outcome.is_err();
        }
        told.sort_unstable();
        let count = told.len();
        told.dedup();
        prop_assert_eq!(told.len(), count, "a token twice");
        prop_assert!(told.iter().all(|token| *token < next_token));
        world.device.borrow_mut().mischief = None;
        let stopped = card.stop();
        prop_assert!(stopped.outcome.is_err() || world.bus.live_page_count() == 0);
    }
}
