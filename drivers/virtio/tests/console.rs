//! The console driver with a device that keeps to the rules, over both transports.

mod common;

use aegis_hal::fake::FakeBus;
use aegis_virtio::console::{BUFFER_BYTES, Console, Limits, PortId, PortState};
use aegis_virtio::fake::{FakeSerial, HostPort, Pace, mmio, pci};
use aegis_virtio::{
    Blame, CallerFault, ConfigurationFault, DeviceFault, MmioTransport, PciInterrupt, PciTransport, VirtioError,
};
use common::{NAMES, STDERR, STDIN, STDOUT, World};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

#[test]
fn handshake_finds_all_ports_with_three_notifications() {
    let world = World::new();
    let mut console = world.console();
    assert_eq!(console.port_by_name(b"aegis.stdin"), None);
    let names = NAMES.map(str::as_bytes);
    console.wait_for_ports(&names, 10).expect("an immediate device");
    assert_eq!(world.device.borrow().notification_count, 3);
    for (number, name) in (1..).zip(NAMES) {
        let port = PortId::new(number);
        assert_eq!(console.port_by_name(name.as_bytes()), Some(port));
        assert_eq!(console.state(port), PortState::Open);
        assert!(world.device.borrow_mut().port(u32::from(number)).guest_open);
    }
    assert_eq!(console.state(PortId::new(0)), PortState::Absent);
    assert_eq!(console.state(PortId::new(200)), PortState::Absent);
    assert_eq!(console.ignored_count(), 0);
    world.assert_clean();
    // Rings of twelve queues and the control pages: nothing for data before it is used.
    assert_eq!(world.bus.live_page_count(), 12 + 2);
}

#[test]
fn names_are_compared_up_to_the_at_sign() {
    let ports = [(1, "aegis.stdinx"), (2, "aegis.stdin@12"), (3, "aegis.stderr@"), (4, "aegis")];
    let ports = ports.map(|(number, name)| HostPort::named(number, name));
    let world = World::with_ports(5, ports.into());
    let mut console = world.console();
    console.wait_for_ports(&[b"aegis.stdin", b"aegis.stderr"], 10).expect("an immediate device");
    assert_eq!(console.port_by_name(b"aegis.stdin"), Some(STDOUT));
    assert_eq!(console.port_by_name(b"aegis.stderr"), Some(STDERR));
    assert_eq!(console.port_by_name(b"aegis.stdout"), None);
    world.assert_clean();
}

#[test]
fn handshake_works_with_a_device_that_answers_later() {
    let world = World::new();
    world.device.borrow_mut().pace = Pace::Stepped;
    let mut console = world.console();
    let mut poll_count = 0;
    while !(1..5).all(|number| console.is_open(PortId::new(number))) {
        let _ = console.poll().expect("honest");
        world.device.borrow_mut().step();
        poll_count += 1;
        assert!(poll_count < 10);
    }
    assert_eq!(world.device.borrow().notification_count, 3);
    world.assert_clean();
}

#[test]
fn eight_named_console_ports_lose_no_message() {
    let ports = (0..8)
        .map(|number| {
            let mut port = HostPort::named(number, &format!("port{number}"));
            port.is_console = number == 0;
            port
        })
        .collect();
    let world = World::with_ports(31, ports);
    let mut console = world.console();
    for _ in 0..4 {
        let _ = console.poll().expect("honest");
    }
    for number in 0..8 {
        let name = format!("port{number}");
        assert_eq!(console.port_by_name(name.as_bytes()), Some(PortId::new(number)));
        assert!(console.is_open(PortId::new(number)));
    }
    world.assert_clean();
}

#[test]
fn ports_beyond_the_limit_and_names_too_long_are_ignored_and_counted() {
    let long = "x".repeat(65);
    let ports = vec![
        HostPort::named(1, &long),
        HostPort::named(2, &"y".repeat(64)),
        HostPort::named(9, "far"),
        HostPort::named(3, &"z".repeat(300)),
    ];
    let world = World::with_ports(31, ports);
    let mut console = world.console();
    for _ in 0..4 {
        let _ = console.poll().expect("honest");
    }
    assert_eq!(console.port_by_name("y".repeat(64).as_bytes()), Some(PortId::new(2)));
    assert_eq!(console.port_by_name(long.as_bytes()), None);
    assert_eq!(console.port_by_name(b"far"), None);
    assert!(console.is_open(PortId::new(1)), "a port without a usable name still works");
    assert_eq!(console.ignored_count(), 3);
    assert_eq!(console.write(PortId::new(9), b"x"), Err(CallerFault::Port.into()));
}

#[test]
fn output_arrives_whole_and_small_pieces_share_a_notification() {
    let world = World::new();
    let mut console = world.ready_console();
    let before = world.device.borrow().notification_count;
    for piece in pattern(1000).chunks(10) {
        assert_eq!(console.queue(STDOUT, piece), Ok(10));
    }
    assert_eq!(console.pending_tx(STDOUT), Ok(1000));
    console.flush(STDOUT).expect("honest");
    assert_eq!(world.device.borrow().notification_count, before + 1);
    assert_eq!(world.device.borrow_mut().port(2).output, pattern(1000));
    assert_eq!(console.pending_tx(STDOUT), Ok(0));
    // Separate streams stay apart, and an interrupt is raised for neither.
    world.device.borrow_mut().lower_all();
    assert_eq!(console.write(STDERR, b"error"), Ok(5));
    assert_eq!(world.device.borrow_mut().port(3).output, b"error");
    assert!(!world.device.borrow().is_interrupting());
    world.assert_clean();
}

#[test]
fn large_output_needs_one_notification_per_sixteen_buffers() {
    let world = World::new();
    let mut console = world.ready_console();
    let before = world.device.borrow().notification_count;
    let data = pattern(1 << 20);
    assert_eq!(console.write(STDOUT, &data), Ok(data.len()));
    assert_eq!(world.device.borrow_mut().port(2).output, data);
    assert_eq!(world.device.borrow().notification_count - before, (1 << 20) / BUFFER_BYTES / 16);
    world.assert_clean();
}

#[test]
fn writer_without_room_is_told_by_interrupt() {
    let world = World::new();
    let mut console = world.ready_console();
    world.device.borrow_mut().port(2).output_room = 0;
    let data = pattern(20 * BUFFER_BYTES);
    assert_eq!(console.write(STDOUT, &data), Ok(16 * BUFFER_BYTES));
    assert_eq!(console.write(STDOUT, &data), Ok(0));
    assert_eq!(console.pending_tx(STDOUT), Ok(16 * BUFFER_BYTES));
    assert!(!console.poll().expect("honest").writable.contains(STDOUT));
    world.device.borrow_mut().lower_all();
    world.device.borrow_mut().port(2).output_room = BUFFER_BYTES + 1;
    world.device.borrow_mut().step();
    let mut irq = world.device.borrow().irq.clone();
    assert!(irq.is_masked());
    let events = console.on_interrupt(&mut irq).expect("honest");
    assert!(events.writable.contains(STDOUT));
    assert!(!irq.is_masked());
    assert_eq!(console.write(STDOUT, &data[16 * BUFFER_BYTES..]), Ok(BUFFER_BYTES));
    world.device.borrow_mut().port(2).output_room = usize::MAX;
    world.device.borrow_mut().step();
    assert_eq!(console.write(STDOUT, &data[17 * BUFFER_BYTES..]), Ok(3 * BUFFER_BYTES));
    console.drain(STDOUT, 10).expect("honest");
    assert_eq!(world.device.borrow_mut().port(2).output, data);
    world.assert_clean();
}

#[test]
fn drain_can_wait_for_a_slow_host_by_interrupt() {
    let world = World::new();
    let mut console = world.ready_console();
    world.device.borrow_mut().port(2).output_room = 0;
    assert_eq!(console.write(STDOUT, b"last words"), Ok(10));
    assert_eq!(console.drain(STDOUT, 5), Err(DeviceFault::Silent.into()));
    world.device.borrow_mut().lower_all();
    assert_eq!(console.arm_tx(STDOUT), Ok(10));
    world.device.borrow_mut().port(2).output_room = usize::MAX;
    world.device.borrow_mut().step();
    assert!(world.device.borrow().is_interrupting());
    // Somebody else's look at the queue must not swallow the event.
    assert_eq!(console.pending_tx(STDOUT), Ok(0));
    assert!(console.poll().expect("honest").writable.contains(STDOUT));
    assert_eq!(console.arm_tx(STDOUT), Ok(0));
    world.assert_clean();
}

#[test]
fn input_is_not_fetched_before_it_is_wanted_and_then_arrives_whole() {
    let world = World::new();
    let data = pattern(300_000);
    world.device.borrow_mut().port(1).input.extend(&data);
    let mut console = world.ready_console();
    assert_eq!(world.device.borrow_mut().port(1).input.len(), data.len());
    let before = world.device.borrow().notification_count;
    let mut received = Vec::new();
    let mut chunk = [0; 1777];
    loop {
        let count = console.read(STDIN, &mut chunk).expect("honest");
        if count == 0 {
            break;
        }
        received.extend_from_slice(&chunk[..count]);
    }
    assert_eq!((received.len(), world.device.borrow().driver_faults.clone()), (data.len(), vec![]));
    assert!(received == data);
    let notification_count = world.device.borrow().notification_count - before;
    assert!(notification_count <= 2 + data.len() / (4 * BUFFER_BYTES));
    assert_eq!(console.at_end(STDIN), Ok(false));
    world.assert_clean();
}

#[test]
fn reader_is_told_by_interrupt_and_the_end_comes_after_the_last_byte() {
    let world = World::new();
    let mut console = world.ready_console();
    console.start_receiving(STDIN).expect("honest");
    world.device.borrow_mut().lower_all();
    {
        let mut device = world.device.borrow_mut();
        let port = device.port(1);
        port.input.extend(b"abc\n");
        port.close_after_input = true;
        device.step();
    }
    let mut irq = world.device.borrow().irq.clone();
    let events = console.on_interrupt(&mut irq).expect("honest");
    assert!(events.readable.contains(STDIN) && events.changed.contains(STDIN));
    assert_eq!(console.readable_bytes(STDIN), Ok(4));
    assert_eq!(console.at_end(STDIN), Ok(false));
    let mut bytes = [0; 3];
    assert_eq!(console.read(STDIN, &mut bytes), Ok(3));
    assert_eq!(console.readable_bytes(STDIN), Ok(1));
    assert_eq!(console.at_end(STDIN), Ok(false));
    assert_eq!(console.read(STDIN, &mut bytes), Ok(1));
    assert_eq!(console.read(STDIN, &mut bytes), Ok(0));
    assert_eq!(console.at_end(STDIN), Ok(true));
    assert_eq!(console.state(STDIN), PortState::Closed);
    world.assert_clean();
}

#[test]
fn bytes_that_came_with_the_end_are_seen_before_it() {
    let world = World::new();
    let mut console = world.ready_console();
    console.start_receiving(STDIN).expect("honest");
    world.device.borrow_mut().port(1).input.extend(b"last");
    world.device.borrow_mut().step();
    world.device.borrow_mut().host_close(1);
    assert_eq!(console.at_end(STDIN), Ok(false));
    assert_eq!(console.read(STDIN, &mut [0; 9]), Ok(4));
    assert_eq!(console.at_end(STDIN), Ok(true));
}

#[test]
fn bursts_of_half_the_control_buffers_lose_no_message() {
    let world = World::new();
    let mut console = world.ready_console();
    for round in 0..50 {
        // Ends on another state than the last round's, which one lost message would hide.
        for _ in 0..16 - round % 2 {
            let mut device = world.device.borrow_mut();
            if device.port(2).host_open {
                device.host_close(2);
            } else {
                device.host_open(2);
            }
        }
        let _ = console.poll().expect("honest");
        let is_open = world.device.borrow_mut().port(2).host_open;
        assert_eq!(console.is_open(STDOUT), is_open, "round {round}");
    }
    world.assert_clean();
}

#[test]
fn closed_and_removed_hosts_are_told_apart_from_slow_ones() {
    let world = World::new();
    world.device.borrow_mut().port(2).host_open = false;
    let mut console = world.ready_console();
    assert_eq!(console.state(STDOUT), PortState::Waiting);
    assert_eq!(console.write(STDOUT, b"early"), Ok(0));
    world.device.borrow_mut().host_open(2);
    assert!(console.poll().expect("honest").changed.contains(STDOUT));
    assert_eq!(console.write(STDOUT, b"first"), Ok(5));
    world.device.borrow_mut().port(2).output_room = 0;
    assert_eq!(console.write(STDOUT, b"lost"), Ok(4));
    world.device.borrow_mut().host_close(2);
    assert!(console.poll().expect("honest").changed.contains(STDOUT));
    let closed = console.write(STDOUT, b"x").expect_err("closed");
    assert_eq!((closed, closed.blame()), (VirtioError::HostClosed, Blame::Peer));
    console.drain(STDOUT, 10).expect("the device drops what nobody reads");
    world.device.borrow_mut().port(2).output_room = usize::MAX;
    world.device.borrow_mut().host_open(2);
    let _ = console.poll().expect("honest");
    assert_eq!(console.write(STDOUT, b"again"), Ok(5));
    assert_eq!(world.device.borrow_mut().port(2).output, b"firstagain");
    world.device.borrow_mut().remove_port(3);
    let _ = console.poll().expect("honest");
    assert_eq!(console.state(STDERR), PortState::Removed);
    assert_eq!(console.write(STDERR, b"x"), Err(VirtioError::HostClosed));
    assert_eq!(console.at_end(STDERR), Ok(true));
    assert_eq!(console.port_by_name(b"aegis.stderr"), None);
    world.assert_clean();
}

#[test]
fn memory_that_runs_out_is_an_error_first_and_slowness_later() {
    let world = World::new();
    let mut console = world.ready_console();
    let left = 512 - world.bus.live_page_count();
    let mut dma = world.bus.dma();
    let hoard = aegis_hal::Dma::allocate(&mut dma, left).expect("what is left");
    let error = console.write(STDOUT, b"x").expect_err("no memory");
    assert_eq!(error.blame(), Blame::Memory);
    assert!(console.read(STDIN, &mut [0; 4]).is_err());
    aegis_hal::Dma::release(&mut dma, hoard);
    let hoard = aegis_hal::Dma::allocate(&mut dma, left - 2).expect("all but two");
    world.device.borrow_mut().port(2).output_room = 0;
    assert_eq!(console.write(STDOUT, &pattern(3 * BUFFER_BYTES)), Ok(2 * BUFFER_BYTES));
    world.device.borrow_mut().port(2).output_room = usize::MAX;
    world.device.borrow_mut().step();
    assert_eq!(console.write(STDOUT, &pattern(9 * BUFFER_BYTES)), Ok(9 * BUFFER_BYTES));
    drop(hoard);
}

#[test]
fn stop_gives_all_memory_back_after_the_device_and_the_console_can_start_again() {
    let world = World::new();
    let mut console = world.ready_console();
    console.write(STDOUT, &pattern(10_000)).expect("honest");
    console.read(STDIN, &mut [0; 10]).expect("honest");
    let stopped = console.stop();
    assert_eq!(stopped.outcome, Ok(()));
    assert_eq!(world.bus.live_page_count(), 0);
    let mut console = Console::new(stopped.transport, stopped.dma, Limits::default()).expect("honest");
    console.wait_for_ports(&[b"aegis.stdout"], 10).expect("an immediate device");
    let _ = console.poll().expect("honest");
    assert_eq!(console.write(STDOUT, b"!"), Ok(1));
    world.assert_clean();
}

#[test]
fn device_that_does_not_stop_keeps_its_memory_in_quarantine() {
    let world = World::new();
    let console = world.ready_console();
    world.device.borrow_mut().refuses_reset = true;
    let limits = Limits::default();
    assert_eq!(console.stop().outcome, Err(DeviceFault::ResetTimeout.into()));
    assert_eq!(world.bus.quarantined_buffer_count(), 14);
    assert_eq!(world.bus.live_page_count(), 14);
    let transport = MmioTransport::new(mmio(&world.device)).expect("a modern device");
    let again = Console::new(transport, world.bus.dma(), limits);
    assert_eq!(again.err(), Some(DeviceFault::ResetTimeout.into()));
    world.assert_clean();
}

#[test]
fn set_up_fails_with_the_one_to_blame_and_without_a_leak() {
    type Spoil = fn(&mut FakeSerial);
    let cases: [(Spoil, VirtioError); 5] = [
        (|device| device.offered &= !(1 << 32), ConfigurationFault::FeaturesMissing { bits: 1 << 32 }.into()),
        (|device| device.offered &= !2, ConfigurationFault::FeaturesMissing { bits: 2 }.into()),
        (|device| device.refuses_features = true, DeviceFault::FeaturesRefused.into()),
        (|device| device.set_queue_size_max(6, 0), DeviceFault::QueueMissing { queue: 6 }.into()),
        (|device| device.refuses_reset = true, DeviceFault::ResetTimeout.into()),
    ];
    for (spoil, expected) in cases {
        let world = World::new();
        let first = world.console();
        assert!(first.stop().outcome.is_ok());
        if expected == DeviceFault::ResetTimeout.into() {
            // Only a device that runs can fail to stop.
            std::mem::forget(world.console());
        }
        let before = world.bus.live_page_count();
        spoil(&mut world.device.borrow_mut());
        let transport = MmioTransport::new(mmio(&world.device)).expect("a modern device");
        let result = Console::new(transport, world.bus.dma(), Limits::default());
        assert_eq!(result.err(), Some(expected));
        assert_eq!(world.bus.live_page_count(), before);
    }
}

#[test]
fn features_taken_are_version_1_access_platform_and_multiport() {
    let world = World::new();
    let console = world.console();
    assert_eq!(world.device.borrow().accepted_features(), 1 << 33 | 1 << 32 | 1 << 1);
    drop(console);
    let world = World::new();
    world.device.borrow_mut().offered = 1 << 32 | 1 << 1;
    let console = world.console();
    assert_eq!(world.device.borrow().accepted_features(), 1 << 32 | 1 << 1);
    drop(console);
}

#[test]
fn small_queues_work_too() {
    let world = World::new();
    for queue in 0..12 {
        world.device.borrow_mut().set_queue_size_max(queue, [1, 3, 8, 2][usize::from(queue % 4)]);
    }
    let mut console = world.console();
    let names = NAMES.map(str::as_bytes);
    // QEMU drops messages that find no buffer; with these queues some do, and the wait ends by its
    // bound.
    let _ = console.wait_for_ports(&names, 50);
    let port = (1..5).map(PortId::new).find(|&port| console.is_open(port));
    let port = port.expect("not all messages are dropped");
    let data = pattern(100_000);
    assert_eq!(console.write(port, &data), Ok(data.len()));
    world.device.borrow_mut().port(u32::from(port.number())).input.extend(&data);
    let mut received = vec![0; data.len()];
    let mut filled = 0;
    for _ in 0..1000 {
        filled += console.read(port, &mut received[filled..]).expect("honest");
    }
    assert!(received == data);
    world.assert_clean();
}

#[test]
fn needs_reset_is_reported_until_the_console_is_stopped() {
    let world = World::new();
    let mut console = world.ready_console();
    world.device.borrow_mut().need_reset();
    let mut irq = world.device.borrow().irq.clone();
    let needs_reset = Err(DeviceFault::NeedsReset.into());
    assert_eq!(console.on_interrupt(&mut irq), needs_reset);
    assert_eq!(console.poll(), needs_reset);
    assert_eq!(console.stop().outcome, Ok(()));
}

#[test]
fn revoked_interrupt_is_a_configuration_fault() {
    let world = World::new();
    let mut console = world.ready_console();
    let mut irq = world.device.borrow().irq.clone();
    irq.revoke();
    let error = console.on_interrupt(&mut irq).expect_err("revoked");
    assert_eq!(error.blame(), Blame::Configuration);
}

#[test]
fn pages_never_exceed_what_the_limits_say() {
    let limits = Limits { port_count_max: 5, receive_buffer_count: 3, transmit_buffer_count: 2, ..Limits::default() };
    let world = World::new();
    let mut console = world.console_with(limits);
    console.wait_for_ports(&NAMES.map(str::as_bytes), 10).expect("an immediate device");
    let _ = console.poll().expect("honest");
    for number in 1..5 {
        world.device.borrow_mut().port(number).output_room = 0;
        let port = PortId::new(number as u8);
        assert_eq!(console.write(port, &pattern(9 * BUFFER_BYTES)), Ok(2 * BUFFER_BYTES));
        console.start_receiving(port).expect("honest");
    }
    // Port 0 has queues but does not exist.
    assert_eq!(limits.page_count_max(), world.bus.live_page_count() + 5);
}

#[test]
fn pci_carries_the_same_console() {
    for interrupt in [PciInterrupt::Line, PciInterrupt::Message { vector: 1 }] {
        let bus = FakeBus::new(512);
        let device = FakeSerial::new(&bus, 3, vec![HostPort::named(1, "in"), HostPort::named(2, "out")]);
        let (windows, multiplier) = pci(&device);
        let transport = PciTransport::new(windows, multiplier, 3, interrupt);
        let mut console = Console::new(transport, bus.dma(), Limits::default()).expect("an honest device");
        console.wait_for_ports(&[b"in", b"out"], 10).expect("an immediate device");
        let _ = console.poll().expect("honest");
        assert_eq!(console.write(STDOUT, b"hello"), Ok(5));
        device.borrow_mut().port(1).input.extend(b"world");
        console.start_receiving(STDIN).expect("honest");
        let mut irq = device.borrow().irq.clone();
        assert!(console.on_interrupt(&mut irq).expect("honest").readable.contains(STDIN));
        let mut bytes = [0; 9];
        assert_eq!(console.read(STDIN, &mut bytes), Ok(5));
        assert_eq!(device.borrow_mut().port(2).output, b"hello");
        assert_eq!(console.stop().outcome, Ok(()));
        assert_eq!(device.borrow().driver_faults, []);
        assert_eq!(bus.violations(), []);
        assert_eq!(bus.live_page_count(), 0);
    }
}

#[test]
fn pci_without_a_vector_left_is_a_configuration_fault() {
    let bus = FakeBus::new(512);
    let device = FakeSerial::new(&bus, 3, vec![]);
    let (windows, multiplier) = pci(&device);
    let transport = PciTransport::new(windows, multiplier, 3, PciInterrupt::Message { vector: 2 });
    let error = Console::new(transport, bus.dma(), Limits::default()).err();
    assert_eq!(error, Some(ConfigurationFault::InterruptVector.into()));
}

#[test]
fn pci_notification_outside_the_window_is_the_devices_fault() {
    let bus = FakeBus::new(512);
    let device = FakeSerial::new(&bus, 3, vec![]);
    let (windows, _) = pci(&device);
    let transport = PciTransport::new(windows, 0x1000_0000, 3, PciInterrupt::Line);
    let error = Console::new(transport, bus.dma(), Limits::default()).err();
    assert_eq!(error, Some(DeviceFault::NotifyOffset { queue: 2 }.into()));
    assert_eq!(bus.live_page_count(), 0);
}
