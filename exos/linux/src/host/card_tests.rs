//! The interface over virtio's driver and its fake device, which may be hostile.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use aegis_hal::fake::{FakeBus, FakeDma, FakeIrq, FakeMmio};
use aegis_virtio::fake::{FakeSerial, Mischief, MmioModel, Pace, SharedSerial, mmio};
use aegis_virtio::net::{Limits, NetCard};
use aegis_virtio::{MmioTransport, VirtioError};
use exos::net::inet::wire::{ChecksumPlace, InterfaceFull, Reception, Transmission};
use exos::sync::Mutex;
use proptest::prelude::*;

use super::{Card, CardDriver, KEPT_ROOM, byte_at};

const LIMITS: Limits = Limits { receive_buffer_count: 16, transmit_buffer_count: 64, reset_poll_count_max: 10 };
const HEADER_BYTES: usize = 12;

type TestDevice = NetCard<MmioTransport<FakeMmio<MmioModel>>, FakeDma>;

struct TestDriver {
    card: TestDevice,
    irq: FakeIrq,
}

impl CardDriver for TestDriver {
    type Device = TestDevice;

    fn device(&mut self) -> &mut TestDevice {
        &mut self.card
    }

    fn hear(&mut self) -> Result<bool, VirtioError> {
        self.card.acknowledge(&mut self.irq).map(|()| true)
    }

    fn end(self) {
        assert_eq!(self.card.stop().outcome, Ok(()));
    }
}

struct World {
    bus: FakeBus,
    device: SharedSerial,
    card: Card<TestDriver>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new() -> Self {
        let bus = FakeBus::new(256);
        let device = FakeSerial::net(&bus);
        let transport = MmioTransport::new(mmio(&device)).expect("a modern device");
        let card = NetCard::new(transport, bus.dma(), LIMITS).expect("an honest device");
        let irq = device.borrow().irq.clone();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let log = {
            let lines = lines.clone();
            Box::new(move |line: &str| lines.lock().push(String::from(line)))
        };
        Self { card: Card::new(TestDriver { card, irq }, log), bus, device, lines }
    }

    fn is_up(&self) -> bool {
        self.card.is_up.load(Ordering::Relaxed)
    }
}

#[test]
fn frames_go_and_come_and_too_long_ones_are_counted() {
    let world = World::new();
    let parts: [&[u8]; 3] = [&[1; 14], &[], &[2; 50]];
    assert_eq!(world.card.take(&parts, Transmission::default()), Ok(()));
    assert!(world.device.borrow_mut().wire().sent.is_empty(), "it lies");
    world.card.show();
    assert_eq!(world.device.borrow_mut().wire().sent[0][HEADER_BYTES..], [[1; 14].as_slice(), &[2; 50]].concat());
    for length in [100, 2000, 13, 200] {
        world.device.borrow_mut().arrive(&vec![length as u8; length]);
    }
    assert!(world.card.has_news());
    let mut frame = [0; 1514];
    let expected = |byte_count| Some(Reception { byte_count, is_checksum_valid: false });
    assert_eq!(world.card.give(&mut frame), expected(100));
    assert_eq!(world.card.give(&mut frame), expected(200));
    assert_eq!(world.card.give(&mut frame), None);
    assert_eq!(world.card.dropped_count.load(Ordering::Relaxed), 2);
    assert_eq!(world.card.taken_count(), 4);
    assert!(world.lines.lock().is_empty() && !world.card.has_news());
}

#[test]
fn offloads_reach_the_card() {
    let world = World::new();
    assert!(world.card.identity.fills_checksums);
    assert_eq!(world.card.identity.segmented_bytes_max, 65_535);
    let mut headers = [0; 66];
    headers[34 + 12] = 8 << 4;
    let payload = vec![7; 20_000];
    let transmission = Transmission {
        checksum: Some(ChecksumPlace { start_bytes: 34, offset_bytes: 16 }),
        segment_bytes: 1448,
        is_ipv6: false,
    };
    assert_eq!(world.card.take(&[&headers[..14], &headers[14..], &payload], transmission), Ok(()));
    world.card.show();
    let sent = world.device.borrow_mut().wire().sent.remove(0);
    assert_eq!(sent[..HEADER_BYTES], [1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0]);
    assert_eq!(byte_at(&[&[1], &[], &[2, 3]], 2), Some(3));
    assert_eq!(byte_at(&[&[1], &[], &[2, 3]], 3), None);
}

#[test]
fn a_full_card_says_so_and_an_interrupt_tells_of_room() {
    let world = World::new();
    world.device.borrow_mut().pace = Pace::Stepped;
    let send = || world.card.take(&[&[1; 60]], Transmission::default());
    for _ in 0..64 {
        assert_eq!(send(), Ok(()));
    }
    assert_eq!(world.device.borrow().notification_count, 2, "of the receive buffers, and of half of the frames");
    assert_eq!(send(), Err(InterfaceFull));
    assert!(!world.card.ask());
    world.device.borrow_mut().step();
    assert!(world.device.borrow().is_interrupting());
    assert!(world.card.hear());
    assert_eq!(send(), Ok(()));
    world.device.borrow_mut().lower_all();
    assert!(!world.card.ask());
    world.device.borrow_mut().step();
    assert!(!world.device.borrow().is_interrupting(), "nobody waits for room");
    world.device.borrow_mut().arrive(&[1; 60]);
    assert!(world.device.borrow().is_interrupting());
}

#[test]
fn whoever_waits_for_room_is_told_once_there_is() {
    let world = World::new();
    world.device.borrow_mut().pace = Pace::Stepped;
    assert!(world.card.holds(1000), "as many as there ever is");
    let mut taken_count = 0;
    while world.card.holds(1) {
        assert_eq!(world.card.take(&[&[1; 60]], Transmission::default()), Ok(()));
        taken_count += 1;
    }
    assert_eq!(taken_count, 64 - KEPT_ROOM);
    assert!(world.card.has_news(), "whoever looks next is to look for room");
    assert!(!world.card.has_news() && !world.card.holds(1) && !world.card.ask());
    world.device.borrow_mut().step();
    assert!(world.device.borrow().is_interrupting() && world.card.hear());
    (0..64).for_each(|_| world.device.borrow_mut().step());
    assert!(world.card.holds(64), "it is empty");
    world.card.has_news();
    assert!(!world.card.has_news(), "nobody waits any more");
}

#[test]
fn a_link_that_goes_is_seen_at_its_interrupt() {
    let world = World::new();
    assert!(world.is_up());
    world.device.borrow_mut().set_link(false);
    assert!(world.card.hear() && !world.is_up());
    world.device.borrow_mut().set_link(true);
    assert!(world.card.hear() && world.is_up());
}

#[test]
fn a_card_that_lies_ends_with_one_line() {
    let world = World::new();
    world.device.borrow_mut().misbehave(&Mischief::UsedIndexAdd { queue: 0, count: 1000 });
    let mut frame = [0; 1514];
    assert_eq!(world.card.give(&mut frame), None);
    assert!(!world.is_up());
    assert_eq!(world.bus.live_page_count(), 0, "it is stopped, and its memory is nobody's");
    for _ in 0..3 {
        assert_eq!(world.card.take(&[&[1; 60]], Transmission::default()), Ok(()), "swallowed");
        world.card.show();
        assert!(!world.card.ask() && !world.card.hear() && !world.card.has_news());
        assert_eq!(world.card.give(&mut frame), None);
    }
    let lines = world.lines.lock();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("the network card has failed"));
}

fn mischief() -> impl Strategy<Value = Mischief> {
    let queue = 0..3u16;
    prop_oneof![
        6 => Just(Mischief::Behave),
        1 => (queue.clone(), any::<u16>()).prop_map(|(queue, value)| Mischief::UsedIndex { queue, value }),
        2 => (queue, prop_oneof![0..80u32, any::<u32>()], any::<u32>())
            .prop_map(|(queue, id, length_bytes)| Mischief::Return { queue, id, length_bytes }),
        2 => (any::<usize>(), any::<usize>(), proptest::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(buffer, offset, bytes)| Mischief::Scribble { buffer, offset, bytes }),
        1 => any::<u8>().prop_map(|value| Mischief::Status { value }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever the device does, the interface answers, and at most one line is written.
    #[test]
    fn no_card_does_more_than_end(steps in proptest::collection::vec((mischief(), 0..5u8, 1..3000usize), 0..60)) {
        let world = World::new();
        let mut frame = [0; 1514];
        for (mischief, act, count) in &steps {
            world.device.borrow_mut().arrive(&vec![3; *count]);
            world.device.borrow_mut().misbehave(mischief);
            match act {
                0 => prop_assert!(world.card.give(&mut frame).is_none_or(|it| it.byte_count <= frame.len())),
                1 => drop(world.card.take(&[&[1; 14], &vec![2; *count]], Transmission::default())),
                2 => world.card.show(),
                3 => drop(world.card.hear()),
                _ => drop(world.card.ask()),
            }
            prop_assert!(world.lines.lock().len() <= 1);
            prop_assert_eq!(world.bus.live_page_count() == 0, !world.lines.lock().is_empty());
        }
    }
}
