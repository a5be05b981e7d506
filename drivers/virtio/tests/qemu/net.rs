//! The network card of a real QEMU, whose other end is a socket of the host: frames go both ways, over both transports,
//! before and after a reset.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use aegis_hal::fake::FakeIrq;
use aegis_hal::net::{Frame, NetDevice, NoWindow, TransmitMeta, Wishes};
use aegis_hal::qtest::{Machine, MachineDma};
use aegis_virtio::Transport;
use aegis_virtio::net::{DEVICE_TYPE_NET, Limits, NetCard};

use crate::host_ends::HostEnds;
use crate::{POLL_COUNT_MAX, pattern, transport};

const LIMITS: Limits = Limits { receive_buffer_count: 16, transmit_buffer_count: 8, reset_poll_count_max: 100 };
const ADDRESS: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

/// The host's end of the wire, and what QEMU has to be told of it.
fn wire(host: &HostEnds) -> (UnixDatagram, Vec<String>) {
    let path = |name: &str| host.directory().join(name).display().to_string();
    let socket = UnixDatagram::bind(path("wire-host")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let backend = format!(
        "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
        path("wire-guest"),
        path("wire-host")
    );
    (socket, ["-netdev".into(), backend].into())
}

/// A frame to the card, which drops those to others.
fn frame(seed: usize, byte_count: usize) -> Vec<u8> {
    let mut bytes = pattern(byte_count, seed);
    bytes[..6].copy_from_slice(&ADDRESS);
    bytes
}

fn exercise<T: Transport>(transport: T, machine: &Machine, socket: &UnixDatagram, guest: &str) {
    let mut card = NetCard::new(transport, MachineDma::new(machine), LIMITS).expect("a device of QEMU");
    assert_eq!(card.identity().hardware_address, ADDRESS);
    assert_eq!(card.identity().packet_bytes_max, 1500);
    assert!(card.has_link());
    let mut irq = FakeIrq::new();
    let mut bytes = [0; 2000];
    for round in 0..30 {
        let frames = [0, 1, 2].map(|index| frame(round + index, 60 + (round * 97 + index * 500) % 1400));
        for frame in &frames {
            let frame =
                Frame { copied: &[&frame[..14], &frame[14..]], shared: &[], meta: TransmitMeta::default(), token: 1 };
            card.transmit(&frame, &NoWindow).expect("room");
        }
        let must_look = card.ask_for_interrupt(Wishes { received: true, completed: false }).expect("honest");
        assert!(!must_look);
        for frame in &frames {
            let count = socket.recv(&mut bytes).expect("a frame");
            assert_eq!(bytes[..count], frame[..]);
            socket.send_to(frame, guest).expect("QEMU listens");
        }
        let mut received = Vec::new();
        for _ in 0..POLL_COUNT_MAX {
            card.receive(9, &mut |frame| {
                let count = frame.copy_out(&mut bytes).expect("within its buffers");
                received.push(bytes[..count].to_vec());
            })
            .expect("honest");
            if received.len() == frames.len() {
                break;
            }
        }
        assert_eq!(received, frames);
        card.acknowledge(&mut irq).expect("honest");
        while card.completed(&mut |token| assert_eq!(token, 1)).expect("honest") == 0 {}
        if round % 10 == 9 {
            card.reset().expect("a device of QEMU");
        }
    }
    let statistics = card.statistics();
    assert_eq!((statistics.sent_count, statistics.received_count), (90, 90));
    assert!(statistics.notification_count <= 2 * 30 + 3, "{statistics:?}");
    let stopped = card.stop();
    assert_eq!(stopped.outcome, Ok(()));
    assert_eq!(stopped.dma.live_page_count(), 0);
}

#[test]
fn card_of_microvm_over_mmio() {
    let host = HostEnds::new("net-mmio");
    let (socket, mut arguments) = wire(&host);
    arguments.extend(["-M", "microvm", "-global", "virtio-mmio.force-legacy=false"].map(String::from));
    arguments.extend(["-device".into(), "virtio-net-device,netdev=wire,mac=52:54:00:01:02:03".into()]);
    let Some(machine) = Machine::start(host.directory(), &arguments) else {
        return;
    };
    let transport = transport::of_microvm(&machine, DEVICE_TYPE_NET);
    exercise(transport, &machine, &socket, &host.directory().join("wire-guest").display().to_string());
}

#[test]
fn card_of_q35_over_pci() {
    let host = HostEnds::new("net-pci");
    let (socket, mut arguments) = wire(&host);
    arguments.extend(["-M", "q35"].map(String::from));
    let device = "virtio-net-pci-non-transitional,netdev=wire,mac=52:54:00:01:02:03,addr=4,romfile=";
    arguments.extend(["-device".into(), device.into()]);
    let Some(machine) = Machine::start(host.directory(), &arguments) else {
        return;
    };
    let transport = transport::of_q35(&machine, DEVICE_TYPE_NET);
    exercise(transport, &machine, &socket, &host.directory().join("wire-guest").display().to_string());
}
