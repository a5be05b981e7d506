//! The drivers of console, card and disk against the devices of a real QEMU, without a guest: QEMU's test
//! protocol (`-qtest`) gives a host process the registers and the memory of the machine, and the
//! driver does not notice the difference.
//!
//! This is the check that the device model in `fake` and our reading of the specification agree
//! with the device that users have. Without QEMU the tests say so and pass.

mod block;
mod host_ends;
mod net;
mod transport;

use aegis_hal::DmaBuffer;
use aegis_hal::fake::FakeIrq;
use aegis_hal::qtest::{Machine, MachineDma};
use aegis_virtio::Transport;
use aegis_virtio::console::{Console, Limits, PortId, PortState};
use aegis_virtio::device::Stopped;
use host_ends::HostEnds;

const LIMITS: Limits =
    Limits { port_count_max: 5, receive_buffer_count: 8, transmit_buffer_count: 16, reset_poll_count_max: 100 };

/// Looks at the device before a wait counts as failed; each look is a round trip to QEMU.
const POLL_COUNT_MAX: u32 = 100_000;

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + index / 253 + seed) as u8).collect()
}

/// Streams through all ports of a console; both transports pass through here.
fn exercise<T: Transport>(transport: T, machine: Machine, host: &HostEnds) {
    let input = pattern(400_000, 1);
    let output = pattern(400_000, 2);
    let connected = host.serve(input.clone());
    let dma = MachineDma::new(&machine);
    let mut console = Console::new(transport, dma, LIMITS).expect("a device of QEMU");
    let names: [&[u8]; 4] = [b"aegis.stdin", b"aegis.stdout", b"aegis.stderr", b"aegis.control"];
    console.wait_for_ports(&names, 1000).expect("four ports");
    for (number, name) in (1..).zip(names) {
        assert_eq!(console.port_by_name(name), Some(PortId::new(number)));
    }
    assert_eq!(console.ignored_count(), 0);
    let [stdin, stdout, stderr, control] = [1, 2, 3, 4].map(PortId::new);

    // Output and input at once, as far as either goes.
    let mut irq = FakeIrq::new();
    let (mut sent, mut received, mut bytes) = (0, Vec::new(), [0; 5000]);
    for round in 0..POLL_COUNT_MAX {
        sent += console.write(stdout, &output[sent..]).expect("honest");
        let count = console.read(stdin, &mut bytes).expect("honest");
        received.extend_from_slice(&bytes[..count]);
        if round % 3 == 0 {
            let _ = console.on_interrupt(&mut irq).expect("honest");
        }
        if sent == output.len() && console.at_end(stdin).expect("honest") {
            break;
        }
    }
    assert_eq!((sent, received.len()), (output.len(), input.len()));
    assert!(received == input);
    for _ in 0..POLL_COUNT_MAX {
        if console.read(control, &mut bytes) == Ok(0) && console.at_end(control) == Ok(true) {
            break;
        }
    }
    assert_eq!(console.at_end(control), Ok(true), "nothing was sent");
    assert_eq!(console.write(stderr, b"apart\n"), Ok(6));
    console.drain(stdout, POLL_COUNT_MAX).expect("honest");
    console.drain(stderr, POLL_COUNT_MAX).expect("honest");

    let Stopped { transport, dma, outcome } = console.stop();
    assert_eq!(outcome, Ok(()));
    assert_eq!(dma.live_page_count(), 0);
    // The same device once more, as after a restart of the driver.
    let mut console = Console::new(transport, dma, LIMITS).expect("a device of QEMU");
    console.wait_for_ports(&names, 1000).expect("four ports");
    let _ = console.poll().expect("honest");
    assert_eq!(console.state(stdin), PortState::Waiting, "its host end is closed for good");
    assert_eq!(console.write(stderr, b"again\n"), Ok(6));
    console.drain(stderr, POLL_COUNT_MAX).expect("honest");
    let stopped = console.stop();
    assert_eq!(stopped.outcome, Ok(()));

    // Ends QEMU, and so the streams.
    drop((stopped, machine));
    assert!(connected.stdout.join().expect("no panic") == output);
    assert_eq!(connected.stderr.join().expect("no panic"), b"apart\nagain\n");
    drop((connected.stdin.join().expect("no panic"), connected.control));
}

#[test]
fn console_of_microvm_over_mmio() {
    let host = HostEnds::new("mmio");
    let mut arguments: Vec<String> =
        ["-M", "microvm", "-global", "virtio-mmio.force-legacy=false"].map(String::from).into();
    arguments.extend(host.arguments("virtio-serial-device,max_ports=5"));
    let Some(machine) = Machine::start(host.directory(), &arguments) else {
        return;
    };
    let transport = transport::of_microvm(&machine, 3);
    exercise(transport, machine, &host);
}

#[test]
fn console_of_q35_over_pci() {
    let host = HostEnds::new("pci");
    let mut arguments: Vec<String> = ["-M", "q35"].map(String::from).into();
    let device = "virtio-serial-pci-non-transitional,max_ports=5,addr=4";
    arguments.extend(host.arguments(device));
    let Some(machine) = Machine::start(host.directory(), &arguments) else {
        return;
    };
    let transport = transport::of_q35(&machine, 3);
    exercise(transport, machine, &host);
}

#[test]
fn memory_of_the_machine_behaves_as_dma_memory() {
    let host = HostEnds::new("memory");
    let arguments = ["-M", "microvm"].map(String::from);
    let Some(machine) = Machine::start(host.directory(), &arguments) else {
        return;
    };
    let mut dma = MachineDma::new(&machine);
    let mut buffer = aegis_hal::Dma::allocate(&mut dma, 1).expect("the first page");
    buffer.copy_in(5, b"hello").expect("in bounds");
    let mut bytes = [0; 4];
    buffer.copy_out(6, &mut bytes).expect("in bounds");
    assert_eq!(&bytes, b"ello");
    assert!(buffer.copy_in(4092, b"hello").is_err());
}
