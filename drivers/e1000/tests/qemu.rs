//! The driver against QEMU's own 82540EM and 82574L, without a guest: QEMU's test protocol (`-qtest`) gives a host
//! process the registers and the memory of the machine, and a socket of the host is the other end of the wire. Without
//! QEMU the tests say so and pass.
//!
//! This is the check that the card in `fake`, our reading of the manuals and the cards that users have agree: frames
//! both ways, checksums, segments, interrupts by line, a reset, a stop.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use aegis_e1000::fake::sum_of;
use aegis_e1000::{Limits, Model, NetCard};
use aegis_hal::fake::FakeIrq;
use aegis_hal::net::{ChecksumMeta, Frame, NetDevice, NoWindow, SegmentationMeta, TransmitMeta, Wishes};
use aegis_hal::qtest::{Folder, Machine, MachineDma, MachineMmio};

const LIMITS: Limits = Limits { receive_buffer_count: 16, transmit_buffer_count: 64, reset_poll_count_max: 100 };
const ADDRESS: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];
/// Where the test, in place of firmware, puts the registers, and how long they are.
const REGISTERS: (u32, usize) = (0xe000_0000, 0x2_0000);
/// Looks at the card before a wait counts as failed; each look is a round trip to QEMU.
const POLL_COUNT_MAX: u32 = 200_000;

type TestCard = NetCard<MachineMmio, MachineDma>;

/// A card, and the other end of its wire.
struct World {
    folder: Folder,
    socket: UnixDatagram,
    card: TestCard,
}

impl World {
    /// `None`: there is no QEMU.
    fn new(device: &str, machine: &str, expected: Model) -> Option<Self> {
        let folder = Folder::new(&format!("{device}-{machine}"));
        let path = |name: &str| folder.path().join(name).display().to_string();
        let socket = UnixDatagram::bind(path("host")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let wire = format!(
            "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            path("guest"),
            path("host")
        );
        let card = format!("{device},netdev=wire,mac=52:54:00:01:02:03,addr=4,romfile=");
        let arguments = ["-M", machine, "-netdev", &wire, "-device", &card].map(String::from);
        let machine = Machine::start(folder.path(), &arguments)?;
        let config = machine.pci_config(4, 0);
        let (vendor, device) = config.identifier();
        let model = Model::of(vendor, device).expect("a card that is known");
        assert_eq!(model, expected);
        config.enable(0, REGISTERS.0);
        // QEMU ends when nobody has the machine any more.
        drop(config);
        let registers = machine.mmio(u64::from(REGISTERS.0), REGISTERS.1);
        let card = NetCard::new(model, registers, MachineDma::new(&machine), LIMITS).expect("a card of QEMU");
        Some(Self { folder, socket, card })
    }

    fn send(&mut self, frame: &[u8], meta: TransmitMeta) {
        let frame = Frame { copied: &[&frame[..14], &frame[14..]], shared: &[], meta, token: 1 };
        self.card.transmit(&frame, &NoWindow).expect("room");
    }

    /// The next frame at the host's end.
    fn taken(&self) -> Vec<u8> {
        let mut bytes = vec![0; 70_000];
        let count = self.socket.recv(&mut bytes).expect("a frame");
        bytes.truncate(count);
        bytes
    }

    fn give(&self, frame: &[u8]) {
        self.socket.send_to(frame, self.folder.path().join("guest")).expect("QEMU listens");
    }

    /// Waits for so many frames; each with what the card says of its checksum.
    fn received(&mut self, count: usize) -> Vec<(Vec<u8>, bool)> {
        let mut frames = Vec::new();
        for _ in 0..POLL_COUNT_MAX {
            self.card
                .receive(9, &mut |frame| {
                    let mut bytes = vec![0; frame.byte_count];
                    frame.copy_out(&mut bytes).expect("within its buffer");
                    frames.push((bytes, frame.is_checksum_valid));
                })
                .expect("honest");
            if frames.len() == count {
                break;
            }
        }
        frames
    }

    fn complete(&mut self, mut count: u32) {
        for _ in 0..POLL_COUNT_MAX {
            count -= self.card.completed(&mut |token| assert_eq!(token, 1)).expect("honest");
            if count == 0 {
                return;
            }
        }
        panic!("{count} frames are not done with");
    }
}

/// A frame to the card, which drops those to others.
fn frame(seed: usize, byte_count: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..byte_count).map(|index| (index * 31 + index / 253 + seed) as u8).collect();
    bytes[..6].copy_from_slice(&ADDRESS);
    bytes
}

/// A packet of UDP or TCP over IPv4 in a frame to the card, with everything but the transport's checksum, for which
/// the pseudo-header's sum is there.
fn packet(protocol: u8, header_bytes: usize, payload: &[u8]) -> (Vec<u8>, ChecksumMeta) {
    let mut frame = frame(1, 34 + header_bytes);
    let transport_bytes = (header_bytes + payload.len()) as u16;
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&(20 + transport_bytes).to_be_bytes());
    frame[18..26].copy_from_slice(&[0, 1, 0, 0, 64, protocol, 0, 0]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = !sum_of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let offset_bytes = if protocol == 6 { 16 } else { 6 };
    if protocol == 6 {
        frame[46..48].copy_from_slice(&[0x50, 0x10]);
    } else {
        frame[38..40].copy_from_slice(&transport_bytes.to_be_bytes());
    }
    let partial = sum_of(&pseudo(&frame, transport_bytes));
    let at = 34 + usize::from(offset_bytes);
    frame[at..at + 2].copy_from_slice(&partial.to_be_bytes());
    frame.extend_from_slice(payload);
    (frame, ChecksumMeta { start_bytes: 34, offset_bytes })
}

fn pseudo(frame: &[u8], transport_bytes: u16) -> Vec<u8> {
    [&frame[26..34], &[0, frame[23]], &transport_bytes.to_be_bytes()].concat()
}

/// Whether both sums of a frame of IPv4 hold.
fn holds(frame: &[u8]) -> bool {
    let transport = &frame[34..];
    let all = [&pseudo(frame, transport.len() as u16), transport].concat();
    sum_of(&frame[14..34]) == 0xffff && sum_of(&all) == 0xffff
}

fn frames_go_both_ways(world: &mut World) {
    assert_eq!(world.card.identity().hardware_address, ADDRESS);
    assert!(world.card.has_link());
    let mut irq = FakeIrq::new();
    for round in 0..60 {
        let frames = [0, 1, 2].map(|index| frame(round + index, 60 + (round * 97 + index * 500) % 1400));
        for frame in &frames {
            world.send(frame, TransmitMeta::default());
        }
        let wishes = Wishes { received: true, completed: false };
        assert!(!world.card.ask_for_interrupt(wishes).expect("honest"));
        for frame in &frames {
            assert_eq!(world.taken(), *frame);
            world.give(frame);
        }
        let received: Vec<Vec<u8>> = world.received(3).into_iter().map(|(frame, _)| frame).collect();
        assert_eq!(received, frames, "round {round}");
        world.card.acknowledge(&mut irq).expect("honest");
        world.complete(3);
        if round % 20 == 19 {
            world.card.reset().expect("a card of QEMU");
        }
    }
    let statistics = world.card.statistics();
    assert_eq!((statistics.sent_count, statistics.received_count), (180, 180));
}

fn checksums_hold(world: &mut World) {
    for (protocol, header_bytes) in [(17, 8), (6, 20), (6, 20), (17, 8)] {
        let (frame, checksum) = packet(protocol, header_bytes, &[7; 333]);
        world.send(&frame, TransmitMeta { checksum: Some(checksum), segmentation: None });
        world.card.flush().expect("honest");
        let taken = world.taken();
        assert!(holds(&taken) && taken[..34] == frame[..34], "protocol {protocol}");
        world.complete(1);
        world.give(&taken);
        let mut wrong = taken.clone();
        wrong[100] ^= 1;
        world.give(&wrong);
        let received = world.received(2);
        assert_eq!(received[0].0, taken);
        assert!(!received[1].1, "a wrong checksum");
        if world.card.identity().offloads.segments_ip4 {
            assert!(!received[0].1, "QEMU's 82540EM looks at none");
        } else {
            assert!(received[0].1, "QEMU's 82574L looks at all");
        }
    }
}

fn segments_add_up(world: &mut World) {
    for byte_count in [1, 1000, 1001, 30_000] {
        let payload = &frame(3, byte_count.max(6))[..byte_count];
        let (frame, checksum) = packet(6, 20, payload);
        let cut = SegmentationMeta { payload_bytes: 1000, header_bytes: 54, is_ip6: false };
        world.send(&frame, TransmitMeta { checksum: Some(checksum), segmentation: Some(cut) });
        world.card.flush().expect("honest");
        let mut joined = Vec::new();
        while joined.len() < byte_count {
            let segment = world.taken();
            if segment.len() == 54 {
                // QEMU (7.2) sends one without bytes behind segments that are all full.
                continue;
            }
            assert!(holds(&segment), "{} of {byte_count} bytes", joined.len());
            let sequence = u32::from_be_bytes([segment[38], segment[39], segment[40], segment[41]]);
            let first = u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]);
            assert_eq!(sequence.wrapping_sub(first) as usize, joined.len());
            joined.extend_from_slice(&segment[54..]);
        }
        assert_eq!(joined, payload);
        world.complete(1);
    }
}

fn exercise(device: &str, machine: &str, model: Model) {
    let Some(mut world) = World::new(device, machine, model) else { return };
    frames_go_both_ways(&mut world);
    checksums_hold(&mut world);
    if world.card.identity().offloads.segments_ip4 {
        segments_add_up(&mut world);
    }
    let stopped = world.card.stop();
    assert_eq!(stopped.outcome, Ok(()));
    assert_eq!(stopped.dma.live_page_count(), 0);
}

#[test]
fn card_82540em_of_a_pc() {
    exercise("e1000", "pc", Model::Pci82540);
}

#[test]
fn card_82574l_of_q35() {
    exercise("e1000e", "q35", Model::Express82574);
}
