//! Where a packet's payload begins (`SKF_AD_PAY_OFFSET`), as far as programs ask for it: behind the headers of IPv4 or
//! IPv6 and of the transport.

use super::Packet;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// The offset of the payload from the program's byte 0; 0: not known.
pub(super) fn payload_offset(packet: &Packet<'_>) -> u32 {
    offset_of(packet).unwrap_or(0)
}

fn offset_of(packet: &Packet<'_>) -> Option<u32> {
    let byte = |at: usize| {
        let mut byte = [0];
        packet.read(at, &mut byte).then_some(byte[0])
    };
    let network = packet.network_bytes;
    let (protocol, transport, is_later_piece) = match packet.protocol {
        IPV4 => {
            let header_bytes = usize::from(byte(network)? & 0xf) * 4;
            let offset = u16::from_be_bytes([byte(network + 6)?, byte(network + 7)?]) & 0x1fff;
            (byte(network + 9)?, network + header_bytes, offset != 0)
        }
        IPV6 => (byte(network + 6)?, network + 40, false),
        _ => return None,
    };
    let header_bytes = match protocol {
        _ if is_later_piece => 0,
        6 => usize::from(byte(transport + 12)? >> 4).max(5) * 4,
        // ICMP, IGMP, UDP, ICMPv6, UDP-Lite.
        1 | 2 | 17 | 58 | 136 => 8,
        // DCCP, SCTP.
        33 | 132 => 12,
        _ => 0,
    };
    u32::try_from((transport + header_bytes).checked_sub(packet.begin_bytes)?).ok()
}
