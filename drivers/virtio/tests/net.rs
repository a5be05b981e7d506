//! The network card with a device that keeps to the rules, over both transports, and with one that does not.

use std::collections::VecDeque;

use aegis_hal::DeviceAddress;
use aegis_hal::fake::{FakeBus, FakeDma, FakeMmio};
use aegis_hal::net::{
    ChecksumMeta, DmaWindow, Frame, NetDevice, NoWindow, Place, SegmentationMeta, TransmitError, TransmitMeta, Wishes,
};
use aegis_virtio::fake::{FakeSerial, Mischief, MmioModel, Pace, SharedSerial, mmio, pci};
use aegis_virtio::net::{BUFFER_BYTES, DEVICE_TYPE_NET, Limits, NetCard};
use aegis_virtio::{DeviceFault, MmioTransport, PciInterrupt, PciTransport, Transport, VirtioError};
use proptest::prelude::*;

const LIMITS: Limits = Limits { receive_buffer_count: 16, transmit_buffer_count: 64, reset_poll_count_max: 10 };
const HEADER_BYTES: usize = 12;
const EVENT_INDEX: u64 = 1 << 29;
const MERGED_BUFFERS: u64 = 1 << 15;
const OFFLOADS: u64 = 1 | 1 << 1 | 1 << 11 | 1 << 12;

type TestCard = NetCard<MmioTransport<FakeMmio<MmioModel>>, FakeDma>;

struct World {
    bus: FakeBus,
    device: SharedSerial,
}

impl World {
    fn new() -> Self {
        let bus = FakeBus::new(256);
        let device = FakeSerial::net(&bus);
        Self { bus, device }
    }

    fn without(features: u64) -> Self {
        let world = Self::new();
        world.device.borrow_mut().offered &= !features;
        world
    }

    fn card(&self) -> Result<TestCard, VirtioError> {
        let transport = MmioTransport::new(mmio(&self.device)).expect("a modern device");
        NetCard::new(transport, self.bus.dma(), LIMITS)
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.device.borrow_mut().wire().sent)
    }

    fn assert_clean(&self) {
        assert_eq!(self.device.borrow().driver_faults, []);
        assert_eq!(self.bus.violations(), []);
    }
}

fn pattern(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 + seed) as u8).collect()
}

fn send<T: Transport>(
    card: &mut NetCard<T, FakeDma>,
    frame: &[u8],
    token: u32,
) -> Result<(), TransmitError<VirtioError>> {
    let (first, rest) = frame.split_at(frame.len().min(14));
    let frame = Frame { copied: &[first, rest], shared: &[], meta: TransmitMeta::default(), token };
    card.transmit(&frame, &NoWindow)
}

fn received<T: Transport>(card: &mut NetCard<T, FakeDma>) -> Vec<(Vec<u8>, bool)> {
    let mut frames = Vec::new();
    let mut sink = |frame: &aegis_hal::net::Received<'_, _>| {
        let mut bytes = vec![0; frame.byte_count + 3];
        let count = frame.copy_out(&mut bytes).expect("within its buffers");
        assert_eq!(count, frame.byte_count);
        bytes.truncate(count);
        frames.push((bytes, frame.is_checksum_valid));
    };
    card.receive(1000, &mut sink).expect("honest");
    frames
}

fn completed<T: Transport>(card: &mut NetCard<T, FakeDma>) -> Vec<u32> {
    let mut tokens = Vec::new();
    card.completed(&mut |token| tokens.push(token)).expect("honest");
    tokens
}

fn exchange<T: Transport>(world: &World, card: &mut NetCard<T, FakeDma>) {
    assert_eq!(card.identity().hardware_address, [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    assert_eq!(card.identity().packet_bytes_max, 1500);
    assert!(card.has_link());
    for round in 0..200usize {
        let frames: Vec<_> = (0..8).map(|index| pattern(round + index, 60 + (round * 8 + index) % 1400)).collect();
        for (index, frame) in frames.iter().enumerate() {
            send(card, frame, index as u32).expect("room");
            world.device.borrow_mut().arrive(frame);
        }
        assert_eq!(world.sent(), Vec::<Vec<u8>>::new(), "not before the flush");
        card.flush().expect("honest");
        let sent: Vec<_> = world.sent().into_iter().map(|frame| frame[HEADER_BYTES..].to_vec()).collect();
        assert_eq!(sent, frames);
        assert_eq!(received(card), frames.into_iter().map(|frame| (frame, false)).collect::<Vec<_>>());
        let mut tokens = completed(card);
        tokens.sort_unstable();
        assert_eq!(tokens, Vec::from_iter(0..8));
    }
    world.assert_clean();
    let statistics = card.statistics();
    assert_eq!((statistics.sent_count, statistics.received_count), (1600, 1600));
    assert_eq!(statistics.sent_bytes, statistics.received_bytes);
    assert!(!world.device.borrow().is_interrupting(), "none was asked for");
}

#[test]
fn frames_go_both_ways_with_a_notification_for_each_batch() {
    let world = World::new();
    let mut card = world.card().expect("honest");
    let before = world.device.borrow().notification_count;
    exchange(&world, &mut card);
    let count = world.device.borrow().notification_count - before;
    assert!(count <= 2 * 200 + 200, "{count} notifications of 200 batches");
    assert_eq!(card.stop().outcome, Ok(()));
    assert_eq!(world.bus.live_page_count(), 0);
}

#[test]
fn the_same_over_pci_and_without_any_feature_that_can_be_missing() {
    let world = World::new();
    let (windows, multiplier) = pci(&world.device);
    let transport = PciTransport::new(windows, multiplier, DEVICE_TYPE_NET, PciInterrupt::Message { vector: 0 });
    let mut card = NetCard::new(transport, world.bus.dma(), LIMITS).expect("honest");
    exchange(&world, &mut card);
    let world = World::without(EVENT_INDEX | MERGED_BUFFERS | OFFLOADS | 1 << 3 | 1 << 16);
    let mut card = world.card().expect("honest");
    exchange(&world, &mut card);
    assert_eq!(card.identity().offloads, Default::default());
}

#[test]
fn a_full_queue_says_so_until_frames_are_done_with() {
    let world = World::new();
    let mut card = world.card().expect("honest");
    world.device.borrow_mut().pace = Pace::Stepped;
    for token in 0..64 {
        send(&mut card, &pattern(0, 100), token).expect("room");
    }
    assert_eq!(send(&mut card, &[1; 60], 64), Err(TransmitError::Full));
    card.flush().expect("honest");
    assert_eq!(completed(&mut card), []);
    assert!(!card.ask_for_interrupt(Wishes { received: false, completed: true }).expect("honest"));
    world.device.borrow_mut().step();
    assert!(world.device.borrow().is_interrupting());
    let mut irq = world.device.borrow().irq.clone();
    card.acknowledge(&mut irq).expect("honest");
    assert_eq!(completed(&mut card).len(), 64);
    send(&mut card, &[1; 60], 64).expect("room");
    world.assert_clean();
}

#[test]
fn an_interrupt_comes_once_for_each_time_it_is_asked_for() {
    for features in [0, EVENT_INDEX] {
        let world = World::without(features);
        let mut card = world.card().expect("honest");
        let wishes = Wishes { received: true, completed: false };
        for _ in 0..70_000 / 16 {
            assert!(!card.ask_for_interrupt(wishes).expect("honest"));
            world.device.borrow_mut().arrive(&[7; 60]);
            assert!(world.device.borrow().is_interrupting());
            assert!(card.ask_for_interrupt(wishes).expect("honest"), "one is there");
            let mut irq = world.device.borrow().irq.clone();
            card.acknowledge(&mut irq).expect("honest");
            assert!(!world.device.borrow().is_interrupting());
            assert_eq!(received(&mut card).len(), 1);
            for _ in 0..15 {
                world.device.borrow_mut().arrive(&[7; 60]);
                assert_eq!(received(&mut card).len(), 1);
            }
            assert!(!world.device.borrow().is_interrupting(), "nobody asked again");
        }
        world.assert_clean();
    }
}

#[test]
fn offloads_are_said_in_the_header() {
    let world = World::new();
    let mut card = world.card().expect("honest");
    let offloads = card.identity().offloads;
    assert!(offloads.fills_checksums && offloads.checks_checksums && offloads.segments_ip4 && offloads.segments_ip6);
    let checksum = Some(ChecksumMeta { start_bytes: 0x0122, offset_bytes: 16 });
    let large = pattern(3, 60_000);
    let segmentation = Some(SegmentationMeta { payload_bytes: 1448, header_bytes: 66, is_ip6: true });
    let frame = |copied, meta| Frame { copied, shared: &[], meta, token: 5 };
    let short = [&large[..70]];
    card.transmit(&frame(&short, TransmitMeta { checksum, segmentation: None }), &NoWindow).expect("room");
    let parts = [&large[..14], &large[14..66], &large[66..40_000], &large[40_000..]];
    card.transmit(&frame(&parts, TransmitMeta { checksum, segmentation }), &NoWindow).expect("room");
    let refused = card.transmit(&frame(&parts, TransmitMeta { checksum, segmentation: None }), &NoWindow);
    assert_eq!(refused, Err(TransmitError::Frame), "too long to go whole");
    let refused = card.transmit(&frame(&parts, TransmitMeta { checksum: None, segmentation }), &NoWindow);
    assert_eq!(refused, Err(TransmitError::Frame), "segments need checksums");
    card.flush().expect("honest");
    let sent = world.sent();
    assert_eq!(sent[0][..HEADER_BYTES], [1, 0, 0, 0, 0, 0, 0x22, 1, 16, 0, 0, 0]);
    assert_eq!(sent[1][..HEADER_BYTES], [1, 4, 66, 0, 0xa8, 5, 0x22, 1, 16, 0, 0, 0]);
    assert_eq!(sent[1][HEADER_BYTES..], large);
    world.device.borrow_mut().arrive_with(1, &[1; 60]);
    world.device.borrow_mut().arrive_with(2, &[1; 60]);
    assert_eq!(received(&mut card).iter().map(|frame| frame.1).collect::<Vec<_>>(), [true, true]);
    world.assert_clean();
    let mut plain = World::without(OFFLOADS).card().expect("honest");
    let refused = plain.transmit(&frame(&short, TransmitMeta { checksum, segmentation: None }), &NoWindow);
    assert_eq!(refused, Err(TransmitError::Frame));
}

#[test]
fn frames_longer_than_a_buffer_lie_in_several() {
    let world = World::new();
    world.device.borrow_mut().wire().packet_bytes_max = 9000;
    let mut card = world.card().expect("honest");
    assert_eq!(card.identity().packet_bytes_max, 9000);
    for count in [BUFFER_BYTES - HEADER_BYTES, BUFFER_BYTES - HEADER_BYTES + 1, 4096, 9014, 3, 2 * BUFFER_BYTES] {
        let frame = pattern(count, count);
        world.device.borrow_mut().arrive(&frame);
        assert_eq!(received(&mut card), [(frame, false)]);
    }
    let tiny = World::without(MERGED_BUFFERS);
    tiny.device.borrow_mut().wire().packet_bytes_max = 9000;
    let mut card = tiny.card().expect("honest");
    assert_eq!(usize::from(card.identity().packet_bytes_max), BUFFER_BYTES - HEADER_BYTES - 14 - 4);
    tiny.device.borrow_mut().arrive(&pattern(1, 4000));
    tiny.device.borrow_mut().arrive(&pattern(1, 400));
    assert_eq!(received(&mut card), [(pattern(1, 400), false)]);
    assert_eq!(tiny.device.borrow_mut().wire().dropped_count, 1);
    world.assert_clean();
    tiny.assert_clean();
}

/// Memory of a client: one buffer of the bus.
struct Window(u64, u64);

impl DmaWindow for Window {
    fn device_address(&self, place: Place) -> Option<DeviceAddress> {
        let end = place.offset.checked_add(u64::from(place.length_bytes))?;
        (end <= self.1).then_some(DeviceAddress(self.0 + place.offset))
    }
}

#[test]
fn pieces_in_shared_memory_are_not_copied() {
    let world = World::new();
    let mut card = world.card().expect("honest");
    let mut dma = world.bus.dma();
    let buffer = aegis_hal::Dma::allocate(&mut dma, 1).expect("memory of the test");
    let address = aegis_hal::DmaBuffer::device_address(&buffer);
    let payload = pattern(9, 4096);
    world.bus.device_write(address.0, &payload).expect("memory of the test");
    let window = Window(address.0, 4096);
    let shared = [Place { offset: 10, length_bytes: 100 }, Place { offset: 1000, length_bytes: 1000 }];
    let frame = Frame { copied: &[&[1; 54]], shared: &shared, meta: TransmitMeta::default(), token: 77 };
    card.transmit(&frame, &window).expect("room");
    let outside = [Place { offset: 4000, length_bytes: 100 }];
    assert_eq!(card.transmit(&Frame { shared: &outside, ..frame }, &window), Err(TransmitError::Frame));
    assert_eq!(card.transmit(&frame, &NoWindow), Err(TransmitError::Frame));
    card.flush().expect("honest");
    let sent = world.sent();
    assert_eq!(sent.len(), 1);
    let expected: Vec<u8> = [&[1; 54], &payload[10..110], &payload[1000..2000]].concat();
    assert_eq!(sent[0][HEADER_BYTES..], expected);
    assert_eq!(completed(&mut card), [77]);
    world.assert_clean();
}

#[test]
fn the_link_comes_and_goes() {
    let world = World::new();
    let mut card = world.card().expect("honest");
    let mut irq = world.device.borrow().irq.clone();
    for is_up in [false, true, false] {
        world.device.borrow_mut().set_link(is_up);
        card.acknowledge(&mut irq).expect("honest");
        assert_eq!(card.has_link(), is_up);
    }
    world.device.borrow_mut().need_reset();
    assert_eq!(card.acknowledge(&mut irq), Err(DeviceFault::NeedsReset.into()));
    assert_eq!(card.flush(), Err(DeviceFault::NeedsReset.into()));
}

#[test]
fn a_reset_tells_of_what_was_lost_and_goes_on() {
    let world = World::new();
    let mut card = world.card().expect("honest");
    let pages = world.bus.live_page_count();
    for _ in 0..3 {
        world.device.borrow_mut().pace = Pace::Stepped;
        for token in 40..45 {
            send(&mut card, &pattern(1, 3 * usize::from(token as u8)), token).expect("room");
        }
        card.flush().expect("honest");
        world.device.borrow_mut().misbehave(&Mischief::UsedIndexAdd { queue: 0, count: 900 });
        assert_eq!(card.receive(1, &mut |_| ()), Err(DeviceFault::UsedIndex { queue: 0 }.into()));
        assert!(!card.has_link());
        assert_eq!(
            send(&mut card, &[1; 60], 1),
            Err(TransmitError::Broken(DeviceFault::UsedIndex { queue: 0 }.into()))
        );
        card.reset().expect("honest again");
        assert_eq!(send(&mut card, &[1; 60], 1), Err(TransmitError::Full), "tokens are told first");
        let mut tokens = completed(&mut card);
        tokens.sort_unstable();
        assert_eq!(tokens, [40, 41, 42, 43, 44]);
        world.device.borrow_mut().pace = Pace::Immediate;
        world.device.borrow_mut().arrive(&pattern(5, 500));
        assert_eq!(received(&mut card), [(pattern(5, 500), false)]);
        send(&mut card, &[1; 60], 1).expect("room");
        card.flush().expect("honest");
        assert_eq!(world.sent().len(), 1);
        assert_eq!(completed(&mut card), [1]);
        assert_eq!(world.bus.live_page_count(), pages);
    }
    world.device.borrow_mut().wire().hardware_address[5] ^= 1;
    assert_eq!(card.reset(), Err(DeviceFault::Changed.into()));
    assert_eq!(card.flush(), Err(DeviceFault::Changed.into()));
    world.device.borrow_mut().refuses_reset = true;
    assert!(card.reset().is_err());
    world.assert_clean();
}

#[test]
fn a_device_that_cannot_be_a_card_is_refused() {
    let refused = |change: &dyn Fn(&mut FakeSerial)| {
        let world = World::new();
        change(&mut world.device.borrow_mut());
        let error = world.card().expect_err("refused");
        assert_eq!(world.bus.live_page_count(), 0);
        world.assert_clean();
        error
    };
    assert_eq!(refused(&|card| card.wire().hardware_address[0] = 1), DeviceFault::HardwareAddress.into());
    assert_eq!(refused(&|card| card.wire().hardware_address = [0; 6]), DeviceFault::HardwareAddress.into());
    assert_eq!(refused(&|card| card.set_queue_size_max(1, 0)), DeviceFault::QueueMissing { queue: 1 }.into());
    assert!(matches!(refused(&|card| card.offered &= !(1 << 5)), VirtioError::Configuration(_)));
    assert_eq!(refused(&|card| card.refuses_features = true), DeviceFault::FeaturesRefused.into());
    for (said, believed) in [(0, 1500), (67, 1500), (68, 68), (1500, 1500), (u16::MAX, u16::MAX)] {
        let world = World::new();
        world.device.borrow_mut().wire().packet_bytes_max = said;
        assert_eq!(world.card().expect("honest").identity().packet_bytes_max, believed);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Send(usize),
    Flush,
    Receive(u32),
    Completed,
    Ask(bool, bool),
    Acknowledge,
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..1600usize).prop_map(Act::Send),
        4 => Just(Act::Flush),
        4 => (0..40u32).prop_map(Act::Receive),
        2 => Just(Act::Completed),
        1 => any::<(bool, bool)>().prop_map(|(received, completed)| Act::Ask(received, completed)),
        1 => Just(Act::Acknowledge),
        1 => Just(Act::Reset),
    ]
}

fn perform(world: &World, card: &mut TestCard, act: &Act) {
    match *act {
        Act::Send(count) => drop(send(card, &vec![7; count], count as u32)),
        Act::Flush => drop(card.flush()),
        Act::Receive(budget) => {
            let mut sink = |frame: &aegis_hal::net::Received<'_, _>| {
                let mut bytes = vec![0; 70_000];
                let count = frame.copy_out(&mut bytes).expect("within its buffers");
                assert!(count == frame.byte_count && count > 0 && count <= 16 * BUFFER_BYTES);
            };
            if let Ok(count) = card.receive(budget, &mut sink) {
                assert!(count <= budget);
            }
        }
        Act::Completed => drop(card.completed(&mut |_| ())),
        Act::Ask(received, completed) => drop(card.ask_for_interrupt(Wishes { received, completed })),
        Act::Acknowledge => {
            let mut irq = world.device.borrow().irq.clone();
            let _ = card.acknowledge(&mut irq);
        }
        Act::Reset => drop(card.reset()),
    }
}

fn mischief() -> impl Strategy<Value = Mischief> {
    let queue = 0..3u16;
    prop_oneof![
        8 => Just(Mischief::Behave),
        1 => (queue.clone(), any::<u16>()).prop_map(|(queue, value)| Mischief::UsedIndex { queue, value }),
        1 => (queue.clone(), 0..20u16).prop_map(|(queue, count)| Mischief::UsedIndexAdd { queue, count }),
        3 => (queue, prop_oneof![0..80u32, any::<u32>()], prop_oneof![0..3000u32, any::<u32>()])
            .prop_map(|(queue, id, length_bytes)| Mischief::Return { queue, id, length_bytes }),
        3 => (any::<usize>(), any::<usize>(), proptest::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(buffer, offset, bytes)| Mischief::Scribble { buffer, offset, bytes }),
        1 => any::<u8>().prop_map(|cause| Mischief::Interrupt { cause }),
        1 => any::<u8>().prop_map(|value| Mischief::Status { value }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// The device does anything, from the first moment: errors or wrong bytes, never a panic or a wild access; and a
    /// card that was ended by it begins again when the device behaves.
    #[test]
    fn hostile_device_never_breaks_the_driver(
        steps in proptest::collection::vec((mischief(), act(), 0..4000usize), 0..60),
        immediate in any::<bool>(),
        missing in prop_oneof![Just(0), Just(EVENT_INDEX), Just(MERGED_BUFFERS)],
    ) {
        let world = World::without(missing);
        world.device.borrow_mut().pace = if immediate { Pace::Immediate } else { Pace::Stepped };
        let mut card = world.card().expect("honest so far");
        let pages = world.bus.live_page_count();
        for (mischief, act, count) in &steps {
            world.device.borrow_mut().arrive(&vec![3; *count + 1]);
            world.device.borrow_mut().misbehave(mischief);
            perform(&world, &mut card, act);
            prop_assert_eq!(world.bus.live_page_count(), pages);
        }
        card.reset().expect("a device that behaves");
        let _ = completed(&mut card);
        world.device.borrow_mut().wire().incoming.clear();
        while !received(&mut card).is_empty() {
            world.device.borrow_mut().wire().incoming.clear();
        }
        world.device.borrow_mut().pace = Pace::Immediate;
        world.device.borrow_mut().arrive(&[9; 99]);
        prop_assert_eq!(received(&mut card), vec![(vec![9; 99], false)]);
        prop_assert_eq!(card.stop().outcome, Ok(()));
        prop_assert_eq!(world.bus.live_page_count(), 0);
    }

    /// With an honest device every frame arrives once, whole and in order, in both directions, however the two are
    /// interleaved.
    #[test]
    fn nothing_is_lost_or_doubled(
        steps in proptest::collection::vec((0..3u8, prop_oneof![1..80usize, 1..1600usize]), 0..300),
        immediate in any::<bool>(),
        missing in prop_oneof![Just(0), Just(EVENT_INDEX), Just(MERGED_BUFFERS)],
    ) {
        let world = World::without(missing);
        world.device.borrow_mut().pace = if immediate { Pace::Immediate } else { Pace::Stepped };
        let mut card = world.card().expect("honest");
        let (mut to_come, mut to_go) = (VecDeque::new(), VecDeque::new());
        let (mut token, mut under_way) = (0u32, VecDeque::new());
        for (index, (kind, count)) in steps.iter().enumerate() {
            let frame = pattern(index, (*count).min(1518));
            match kind {
                0 => {
                    world.device.borrow_mut().arrive(&frame);
                    to_come.push_back((frame, false));
                }
                1 => match send(&mut card, &frame, token) {
                    Ok(()) => {
                        to_go.push_back(frame);
                        under_way.push_back(token);
                        token += 1;
                    }
                    Err(error) => prop_assert_eq!(error, TransmitError::Full),
                },
                _ => {
                    card.flush().expect("honest");
                    world.device.borrow_mut().step();
                }
            }
            if count % 3 == 0 {
                for frame in received(&mut card) {
                    prop_assert_eq!(Some(frame), to_come.pop_front());
                }
                for token in completed(&mut card) {
                    prop_assert_eq!(Some(token), under_way.pop_front());
                }
            }
            for frame in world.sent() {
                prop_assert_eq!(Some(frame[HEADER_BYTES..].to_vec()), to_go.pop_front());
            }
        }
        for _ in 0..2 * steps.len() + 2 {
            card.flush().expect("honest");
            world.device.borrow_mut().step();
            for frame in received(&mut card) {
                prop_assert_eq!(Some(frame), to_come.pop_front());
            }
        }
        for token in completed(&mut card) {
            prop_assert_eq!(Some(token), under_way.pop_front());
        }
        for frame in world.sent() {
            prop_assert_eq!(Some(frame[HEADER_BYTES..].to_vec()), to_go.pop_front());
        }
        prop_assert!(to_come.is_empty() && to_go.is_empty() && under_way.is_empty());
        world.assert_clean();
    }
}
