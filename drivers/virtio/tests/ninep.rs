//! The 9P transport with a device that keeps to the rules, over both transports, and with one that does not.

use aegis_hal::fake::{FakeBus, FakeDma, FakeMmio};
use aegis_virtio::fake::{FakeSerial, Mischief, MmioModel, Pace, SharedSerial, mmio, pci};
use aegis_virtio::ninep::{Channel, LANE_SLOT_COUNT, Limits, SLOT_COUNT, SMALL_BYTES, WIDE_LANE, WIDE_SLOT_FIRST};
use aegis_virtio::{
    CallerFault, ConfigurationFault, DeviceFault, Interrupts, MmioTransport, PciInterrupt, PciTransport, Transport,
    VirtioError,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits { message_page_count: 3, reset_poll_count_max: 10 };

type TestChannel = Channel<MmioTransport<FakeMmio<MmioModel>>, FakeDma>;

struct World {
    bus: FakeBus,
    device: SharedSerial,
}

impl World {
    /// A device that answers each message with its bytes in reverse, but not one that begins with 0 or is empty (what a
    /// device that spoils its own queue may find there).
    fn new() -> Self {
        Self::with_tag(b"aegis0")
    }

    fn with_tag(tag: &[u8]) -> Self {
        let bus = FakeBus::new(64);
        let answer = |message: &[u8]| {
            message.first().is_some_and(|first| *first != 0).then(|| message.iter().rev().copied().collect())
        };
        let device = FakeSerial::ninep(&bus, tag, Box::new(answer));
        Self { bus, device }
    }

    fn channel(&self) -> Result<TestChannel, VirtioError> {
        let transport = MmioTransport::new(mmio(&self.device)).expect("a modern device");
        Channel::new(transport, self.bus.dma(), LIMITS)
    }

    fn assert_clean(&self) {
        assert_eq!(self.device.borrow().driver_faults, []);
        assert_eq!(self.bus.violations(), []);
    }
}

fn reversed(message: &[u8]) -> Vec<u8> {
    message.iter().rev().copied().collect()
}

fn is_large(slot: usize) -> bool {
    slot < WIDE_SLOT_FIRST && slot.is_multiple_of(LANE_SLOT_COUNT)
}

fn exchange<T: Transport>(channel: &mut Channel<T, FakeDma>) {
    let large: Vec<u8> = (0..channel.message_bytes_max()).map(|index| (index % 250) as u8 + 1).collect();
    let slot_count = WIDE_SLOT_FIRST + channel.wide_slot_count();
    for slot in 0..slot_count {
        let message = if is_large(slot) { &large[slot..] } else { &[slot as u8, 2, 3] };
        channel.put(slot, message).expect("free");
    }
    assert_eq!(channel.put(1, b"x"), Err(CallerFault::QueueFull.into()));
    channel.submit().expect("honest");
    channel.poll().expect("honest");
    let mut reply = vec![0; large.len()];
    for slot in (0..slot_count).rev() {
        let lane = (slot / LANE_SLOT_COUNT).min(WIDE_LANE);
        assert!(channel.is_answered(lane) && !channel.is_free(lane));
        let count = channel.take(slot, &mut reply).expect("answered");
        let expected = if is_large(slot) { reversed(&large[slot..]) } else { vec![3, 2, slot as u8] };
        assert_eq!(reply[..count], expected);
    }
    assert!((0..=WIDE_LANE).all(|lane| channel.is_free(lane)));
    assert_eq!(channel.take(1, &mut reply), Err(CallerFault::Chain.into()));
}

#[test]
fn messages_come_back_in_their_slots() {
    let world = World::new();
    let mut channel = world.channel().expect("honest");
    assert_eq!(channel.tag(), b"aegis0");
    for _ in 0..200 {
        exchange(&mut channel);
    }
    assert_eq!(world.device.borrow().notification_count, 200);
    assert!(!world.device.borrow().is_interrupting(), "none was asked for");
    world.assert_clean();
    assert_eq!(world.bus.live_page_count(), LIMITS.page_count());
    assert_eq!(channel.stop().outcome, Ok(()));
    assert_eq!(world.bus.live_page_count(), 0);
}

#[test]
fn a_short_queue_has_a_wide_lane_that_is_less_wide() {
    let world = World::new();
    world.device.borrow_mut().set_queue_size_max(0, 64);
    let mut channel = world.channel().expect("honest");
    assert_eq!(channel.wide_slot_count(), 32 - WIDE_SLOT_FIRST);
    exchange(&mut channel);
    assert_eq!(channel.put(32, b"x"), Err(CallerFault::Chain.into()), "there is no such slot");
    world.assert_clean();
    assert_eq!(World::new().channel().expect("honest").wide_slot_count(), SLOT_COUNT - WIDE_SLOT_FIRST);
}

#[test]
fn the_same_over_pci() {
    let world = World::new();
    let (windows, multiplier) = pci(&world.device);
    let transport = PciTransport::new(windows, multiplier, 9, PciInterrupt::Message { vector: 0 });
    let mut channel = Channel::new(transport, world.bus.dma(), LIMITS).expect("honest");
    assert_eq!(channel.tag(), b"aegis0");
    exchange(&mut channel);
    world.assert_clean();
}

#[test]
fn an_answer_that_comes_later_interrupts_if_asked_to() {
    let world = World::new();
    world.device.borrow_mut().pace = Pace::Stepped;
    let mut channel = world.channel().expect("honest");
    channel.put(0, b"abc").expect("free");
    channel.submit().expect("honest");
    channel.set_interrupts(Interrupts::Wanted).expect("a ring");
    channel.poll().expect("honest");
    assert!(!channel.is_answered(0) && channel.is_answered(1));
    world.device.borrow_mut().step();
    assert!(world.device.borrow().is_interrupting());
    let mut irq = world.device.borrow().irq.clone();
    channel.on_interrupt(&mut irq).expect("honest");
    assert_eq!(channel.answer_bytes(0), Some(3));
    assert!(!world.device.borrow().is_interrupting());
}

#[test]
fn a_message_without_an_answer_keeps_its_slot() {
    let world = World::new();
    let mut channel = world.channel().expect("honest");
    channel.put(0, &[0, 1]).expect("free");
    channel.put(1, b"x").expect("free");
    channel.submit().expect("honest");
    channel.poll().expect("honest");
    assert!(!channel.is_answered(0));
    assert_eq!(channel.answer_bytes(1), Some(1));
    assert_eq!(channel.put(0, b"again"), Err(CallerFault::QueueFull.into()));
    world.device.borrow_mut().need_reset();
    let mut irq = world.device.borrow().irq.clone();
    assert_eq!(channel.on_interrupt(&mut irq), Err(DeviceFault::NeedsReset.into()));
    assert_eq!(channel.poll(), Err(DeviceFault::NeedsReset.into()));
}

#[test]
fn what_does_not_fit_is_refused() {
    let world = World::new();
    let mut channel = world.channel().expect("honest");
    for (slot, length) in [(0, 0), (0, LIMITS.message_page_count * 4096 + 1), (1, SMALL_BYTES + 1), (SLOT_COUNT, 1)] {
        assert_eq!(channel.put(slot, &vec![1; length]), Err(CallerFault::Chain.into()));
    }
    for tag in [&b"short"[..], b"longtag", b"", &[b'x'; 300]] {
        let world = World::with_tag(tag);
        assert_eq!(world.channel().err(), Some(ConfigurationFault::MountTag.into()));
        assert_eq!(world.bus.live_page_count(), 0);
    }
    let world = World::new();
    world.device.borrow_mut().set_queue_size_max(0, 16);
    assert_eq!(world.channel().err(), Some(DeviceFault::QueueMissing { queue: 0 }.into()));
    world.device.borrow_mut().set_queue_size_max(0, 128);
    world.device.borrow_mut().refuses_reset = true;
    assert_eq!(world.channel().err(), None, "a device that was never started reads as reset");
}

fn mischief() -> impl Strategy<Value = Mischief> {
    prop_oneof![
        Just(Mischief::Behave),
        any::<u16>().prop_map(|value| Mischief::UsedIndex { queue: 0, value }),
        (0..20u16).prop_map(|count| Mischief::UsedIndexAdd { queue: 0, count }),
        (prop_oneof![0..40u32, any::<u32>()], any::<u32>()).prop_map(|(id, length_bytes)| Mischief::Return {
            queue: 0,
            id,
            length_bytes
        }),
        (any::<usize>(), any::<usize>(), proptest::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(buffer, offset, bytes)| Mischief::Scribble { buffer, offset, bytes }),
        any::<u8>().prop_map(|cause| Mischief::Interrupt { cause }),
        any::<u8>().prop_map(|value| Mischief::Status { value }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The device does anything, from the first moment: errors or wrong bytes, never more than a slot holds.
    #[test]
    fn hostile_device_never_breaks_the_driver(
        steps in proptest::collection::vec((mischief(), 0..SLOT_COUNT + 2, 0..5000usize), 0..60),
        immediate in any::<bool>(),
    ) {
        let world = World::new();
        world.device.borrow_mut().pace = if immediate { Pace::Immediate } else { Pace::Stepped };
        let mut channel = world.channel().expect("honest so far");
        for (mischief, slot, length) in &steps {
            let _ = channel.put(*slot, &vec![7; *length]);
            let _ = channel.submit();
            world.device.borrow_mut().misbehave(mischief);
            let mut irq = world.device.borrow().irq.clone();
            let _ = channel.on_interrupt(&mut irq);
            let _ = channel.poll();
            let bytes_max = if is_large(*slot) { channel.message_bytes_max() } else { SMALL_BYTES };
            let mut reply = vec![0xee; 4096 * 3 + 8];
            if let Ok(count) = channel.take(*slot, &mut reply) {
                prop_assert!(count <= bytes_max);
                prop_assert!(reply[count..].iter().all(|&byte| byte == 0xee));
            }
            prop_assert_eq!(world.bus.live_page_count(), LIMITS.page_count());
        }
        prop_assert_eq!(channel.stop().outcome, Ok(()));
        prop_assert_eq!(world.bus.live_page_count(), 0);
    }
}
