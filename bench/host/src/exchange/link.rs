//! The wire between the player and the guest's card: QEMU's `stream` backend, frames behind their lengths on a Unix
//! socket.
//!
//! A thread takes frames as they come and answers what every neighbour answers (ARP, neighbour discovery) at once,
//! unless a script wants to see to it, so the guest never waits for the player's own pace.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::build::{PROTOCOL_ICMPV6, TYPE_ARP, TYPE_IPV6, finished, pseudo_sum, sum_of};
use super::words::{PEER_MAC, address, is_peers};
use crate::failure::Failure;

/// Longest frame that is taken.
const FRAME_BYTES_MAX: usize = 1 << 17;
/// How long a frame may wait for QEMU.
const SEND_MAX: Duration = Duration::from_secs(2);
/// A topic that is not answered: ARP.
pub(super) const MUTE_ARP: u8 = 1;
/// A topic that is not answered: neighbour discovery.
pub(super) const MUTE_ND: u8 = 2;

/// A frame and when it came.
pub(super) type Arrived = (Instant, Vec<u8>);

/// The wire.
#[derive(Debug)]
pub(super) struct Link {
    outward: Outward,
    frames: Receiver<Arrived>,
    muted: Arc<AtomicU8>,
}

/// The way to the guest, once QEMU has connected.
type Outward = Arc<Mutex<Option<UnixStream>>>;

impl Link {
    /// Listens at `path` for a machine's QEMU.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::file("opening", path.to_path_buf(), error);
        let listener = UnixListener::bind(path).map_err(failed)?;
        let (sender, frames) = channel();
        let muted = Arc::new(AtomicU8::new(0));
        let outward = Outward::default();
        let (shared, mask) = (Arc::clone(&outward), Arc::clone(&muted));
        std::thread::spawn(move || listen(&listener, &shared, &mask, &sender));
        Ok(Self { outward, frames, muted })
    }

    /// The words for QEMU that connect a network.
    pub(super) fn backend(path: &Path) -> String {
        format!("stream,server=off,addr.type=unix,addr.path={}", path.display())
    }

    /// Sends a frame. One that QEMU does not take is lost, as on any wire.
    pub(super) fn send(&self, frame: &[u8]) {
        send(&self.outward, frame);
    }

    /// The next frame within `limit`.
    pub(super) fn next(&self, limit: Duration) -> Option<Arrived> {
        self.frames.recv_timeout(limit).ok()
    }

    /// What is not answered from now on ([`MUTE_ARP`], [`MUTE_ND`]).
    pub(super) fn mute(&self, topics: u8) {
        self.muted.store(topics, Ordering::Relaxed);
    }

    pub(super) fn mute_also(&self, topics: u8) {
        self.muted.fetch_or(topics, Ordering::Relaxed);
    }
}

fn send(outward: &Outward, frame: &[u8]) {
    let mut outward = outward.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(stream) = outward.as_mut() else { return };
    let whole = [&(frame.len() as u32).to_be_bytes()[..], frame].concat();
    if stream.write_all(&whole).is_err() {
        // Half a frame may have gone: what follows would be read as anything.
        *outward = None;
    }
}

fn listen(listener: &UnixListener, outward: &Outward, muted: &AtomicU8, sender: &Sender<Arrived>) {
    let Ok((mut stream, _)) = listener.accept() else { return };
    let is_limited = stream.set_write_timeout(Some(SEND_MAX)).is_ok();
    let Some(writer) = stream.try_clone().ok().filter(|_| is_limited) else { return };
    *outward.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    loop {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let length = u32::from_be_bytes(length) as usize;
        let mut frame = vec![0; length.min(FRAME_BYTES_MAX)];
        if length > FRAME_BYTES_MAX || stream.read_exact(&mut frame).is_err() {
            return;
        }
        if let Some(answer) = neighbour_answer(&frame, muted.load(Ordering::Relaxed)) {
            send(outward, &answer);
        }
        if sender.send((Instant::now(), frame)).is_err() {
            return;
        }
    }
}

/// The answer to a question for one of the peer's Ethernet addresses.
fn neighbour_answer(frame: &[u8], muted: u8) -> Option<Vec<u8>> {
    let kind = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
    match kind {
        TYPE_ARP if muted & MUTE_ARP == 0 => {
            let packet = frame.get(14..42)?;
            let target = Ipv4Addr::from(<[u8; 4]>::try_from(&packet[24..28]).ok()?);
            if packet[7] != 1 || !is_peers(IpAddr::V4(target)) {
                return None;
            }
            let parts: [&[u8]; 7] = [
                &frame[6..12],
                &PEER_MAC,
                &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
                &PEER_MAC,
                &target.octets(),
                &packet[8..14],
                &packet[14..18],
            ];
            Some(parts.concat())
        }
        TYPE_IPV6 if muted & MUTE_ND == 0 => {
            let packet = frame.get(14..)?;
            let asks = *packet.get(6)? == PROTOCOL_ICMPV6 && *packet.get(40)? == 135;
            let target = Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(48..64)?).ok()?);
            let source = Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?);
            if !asks || !is_peers(IpAddr::V6(target)) || source.is_unspecified() {
                return None;
            }
            Some(advertisement(&frame[6..12], target, source))
        }
        _ => None,
    }
}

fn advertisement(to_mac: &[u8], own: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let mut message = [&[136, 0, 0, 0, 0x60, 0, 0, 0][..], &own.octets(), &[2, 1], &PEER_MAC].concat();
    let sum = finished(sum_of(&message) + pseudo_sum((own.into(), to.into()), PROTOCOL_ICMPV6, message.len()));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let length = (message.len() as u16).to_be_bytes();
    let parts: [&[u8]; 9] = [
        to_mac,
        &PEER_MAC,
        &TYPE_IPV6.to_be_bytes(),
        &[0x60, 0, 0, 0],
        &length,
        &[PROTOCOL_ICMPV6, 255],
        &own.octets(),
        &to.octets(),
        &message,
    ];
    parts.concat()
}

/// The peer's ordinary addresses.
pub(super) fn peer_addresses() -> [IpAddr; 2] {
    let of = |name| address(name).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    [of("peer"), of("peer6")]
}
