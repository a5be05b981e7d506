//! VIRTIO-2: whatever the device does, the driver returns. And the opposite: with an honest device,
//! however bytes are cut into pieces and however device and driver are interleaved, what comes out
//! is what went in.

mod common;

use aegis_virtio::console::{Limits, PortId};
use aegis_virtio::fake::{Mischief, Pace};
use common::{STDIN, STDOUT, TestConsole, World};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Poll,
    Interrupt,
    Read(u8, usize),
    Write(u8, usize),
    Queue(u8, usize),
    Flush(u8),
    Pending(u8),
    Arm(u8),
    AtEnd(u8),
    Readable(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let port = 0..9u8;
    prop_oneof![
        3 => Just(Act::Poll),
        1 => Just(Act::Interrupt),
        1 => (port.clone(), 0..9000usize).prop_map(|(port, count)| Act::Read(port, count)),
        1 => (port.clone(), 0..90_000usize).prop_map(|(port, count)| Act::Write(port, count)),
        1 => (port.clone(), 0..9000usize).prop_map(|(port, count)| Act::Queue(port, count)),
        1 => port.clone().prop_map(Act::Flush),
        1 => port.clone().prop_map(Act::Pending),
        1 => port.clone().prop_map(Act::Arm),
        1 => port.clone().prop_map(Act::AtEnd),
        1 => port.prop_map(Act::Readable),
    ]
}

fn control_message() -> impl Strategy<Value = Vec<u8>> {
    let well_formed = (0..10u32, 0..9u16, 0..3u16, proptest::collection::vec(any::<u8>(), 0..200)).prop_map(
        |(port, event, value, rest)| {
            let mut bytes = port.to_le_bytes().to_vec();
            bytes.extend(event.to_le_bytes());
            bytes.extend(value.to_le_bytes());
            bytes.extend(rest);
            bytes
        },
    );
    prop_oneof![well_formed, proptest::collection::vec(any::<u8>(), 0..300)]
}

fn mischief() -> impl Strategy<Value = Mischief> {
    let queue = 0..12u16;
    prop_oneof![
        8 => Just(Mischief::Behave),
        1 => (queue.clone(), any::<u16>())
            .prop_map(|(queue, value)| Mischief::UsedIndex { queue, value }),
        1 => (queue.clone(), 0..20u16)
            .prop_map(|(queue, count)| Mischief::UsedIndexAdd { queue, count }),
        2 => (queue, prop_oneof![0..40u32, any::<u32>()], any::<u32>())
            .prop_map(|(queue, id, length_bytes)| Mischief::Return { queue, id, length_bytes }),
        2 => (any::<usize>(), any::<usize>(), proptest::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(buffer, offset, bytes)| Mischief::Scribble { buffer, offset, bytes }),
        4 => control_message().prop_map(|bytes| Mischief::Control { bytes }),
        1 => any::<u8>().prop_map(|cause| Mischief::Interrupt { cause }),
        1 => any::<u8>().prop_map(|value| Mischief::Status { value }),
    ]
}

/// Does one thing; results do not matter here, only that there is one.
fn perform(world: &World, console: &mut TestConsole, act: &Act) {
    let id = PortId::new;
    match *act {
        Act::Poll => {
            let _ = console.poll();
        }
        Act::Interrupt => {
            let mut irq = world.device.borrow().irq.clone();
            let _ = console.on_interrupt(&mut irq);
        }
        Act::Read(port, count) => {
            let mut bytes = vec![0xee; count + 8];
            if let Ok(filled) = console.read(id(port), &mut bytes[..count]) {
                assert!(filled <= count);
                assert!(bytes[filled..].iter().all(|&byte| byte == 0xee));
            }
        }
        Act::Write(port, count) => {
            if let Ok(taken) = console.write(id(port), &vec![1; count]) {
                assert!(taken <= count);
            }
        }
        Act::Queue(port, count) => drop(console.queue(id(port), &vec![2; count])),
        Act::Flush(port) => drop(console.flush(id(port))),
        Act::Pending(port) => drop(console.pending_tx(id(port))),
        Act::Arm(port) => drop(console.arm_tx(id(port))),
        Act::AtEnd(port) => drop(console.at_end(id(port))),
        Act::Readable(port) => drop(console.readable_bytes(id(port))),
    }
}

/// Of a stream in these tests, in either direction.
const STREAM_BYTES_MAX: usize = 30_000;

/// A byte a round each way, twice over: a driver that needs more has stopped.
const ROUND_COUNT_MAX: usize = 2 * STREAM_BYTES_MAX + 1000;

/// Sends `output` and receives `input`, cut into `pieces` (bytes to read, bytes to write, what to do in the
/// round) by an honest device that takes `room` bytes a round. Both must arrive unchanged and end.
fn exchange(input: &[u8], output: &[u8], pieces: &[(usize, usize, u8)], immediate: bool, room: usize) {
    let world = World::new();
    let mut console = world.ready_console();
    {
        let mut device = world.device.borrow_mut();
        device.pace = if immediate { Pace::Immediate } else { Pace::Stepped };
        device.port(1).input.extend(input);
        device.port(1).close_after_input = true;
    }
    let mut received = Vec::new();
    let mut sent = 0;
    let mut at_end = false;
    for round in 0..ROUND_COUNT_MAX {
        let (read_bytes, write_bytes, choice) = pieces[round % pieces.len()];
        world.device.borrow_mut().port(2).output_room = room;
        if choice & 1 != 0 {
            let piece = &output[sent..output.len().min(sent + write_bytes)];
            sent += if choice & 2 != 0 { console.write(STDOUT, piece) } else { console.queue(STDOUT, piece) }
                .expect("honest");
        }
        if choice & 4 != 0 {
            at_end = console.at_end(STDIN).expect("honest");
            let mut bytes = vec![0; read_bytes];
            let count = console.read(STDIN, &mut bytes).expect("honest");
            assert!(!(at_end && count > 0), "a byte after the end");
            received.extend_from_slice(&bytes[..count]);
        }
        if round >= pieces.len() {
            // Cuttings that never read or write must end too.
            sent += console.write(STDOUT, &output[sent..]).expect("honest");
            let mut bytes = vec![0; read_bytes];
            let count = console.read(STDIN, &mut bytes).expect("honest");
            received.extend_from_slice(&bytes[..count]);
            at_end = console.at_end(STDIN).expect("honest");
            console.flush(STDOUT).expect("honest");
        }
        world.device.borrow_mut().step();
        if at_end && sent == output.len() && console.pending_tx(STDOUT) == Ok(0) {
            break;
        }
        let _ = console.poll().expect("honest");
    }
    assert!(at_end);
    assert!(received == input);
    assert!(world.device.borrow_mut().port(2).output == output);
    world.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The device does anything, from the first moment.
    #[test]
    fn hostile_device_never_breaks_the_driver(
        steps in proptest::collection::vec((mischief(), act()), 0..80),
        immediate in any::<bool>(),
        shakes_hands in any::<bool>(),
    ) {
        let world = World::new();
        world.device.borrow_mut().pace = if immediate { Pace::Immediate } else { Pace::Stepped };
        let mut console = world.console();
        if shakes_hands {
            for _ in 0..4 {
                world.device.borrow_mut().step();
                let _ = console.poll().expect("honest so far");
            }
        }
        for (mischief, act) in &steps {
            world.device.borrow_mut().misbehave(mischief);
            perform(&world, &mut console, act);
            prop_assert!(world.bus.live_page_count() <= Limits::default().page_count_max());
        }
        // However it ended, memory comes back after a reset that works.
        prop_assert_eq!(console.stop().outcome, Ok(()));
        prop_assert_eq!(world.bus.live_page_count(), 0);
    }

    /// What the device says of itself before it runs is garbage.
    #[test]
    fn hostile_configuration_never_breaks_the_set_up(
        port_count_max in any::<u32>(),
        offered in any::<u64>(),
        sizes in proptest::collection::vec(any::<u16>(), 12),
    ) {
        let world = World::new();
        {
            let mut device = world.device.borrow_mut();
            device.port_count_max = port_count_max;
            device.offered = offered | 1 << 32 | 1 << 1;
            for (queue, size_max) in (0..).zip(sizes) {
                device.set_queue_size_max(queue, size_max);
            }
        }
        let transport = aegis_virtio::MmioTransport::new(aegis_virtio::fake::mmio(&world.device))
            .expect("a modern device");
        let made = aegis_virtio::console::Console::new(
            transport, world.bus.dma(), Limits::default());
        if let Ok(mut console) = made {
            let _ = console.poll();
            prop_assert_eq!(console.stop().outcome, Ok(()));
        }
        prop_assert_eq!(world.bus.live_page_count(), 0);
    }

    /// Any cutting of the streams, any interleaving of an honest device: both streams arrive
    /// unchanged and end where they end.
    #[test]
    fn streams_arrive_unchanged(
        input in proptest::collection::vec(any::<u8>(), 0..STREAM_BYTES_MAX),
        output in proptest::collection::vec(any::<u8>(), 0..STREAM_BYTES_MAX),
        pieces in proptest::collection::vec((1..9000usize, 1..9000usize, 0..8u8), 1..40),
        immediate in any::<bool>(),
        room in 1..50_000usize,
    ) {
        exchange(&input, &output, &pieces, immediate, room);
    }
}

/// The slowest cutting: the program reads and the device takes one byte a round.
#[test]
fn streams_of_single_bytes_arrive_unchanged() {
    let bytes: Vec<u8> = (0..STREAM_BYTES_MAX).map(|index| (index % 251) as u8).collect();
    for immediate in [false, true] {
        exchange(&bytes, &bytes, &[(1, 1, 0)], immediate, 1);
    }
}
