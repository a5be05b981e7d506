//! What is done with the client of DHCP: its questions are sent, what it is given is taken.

use core::net::{IpAddr, Ipv4Addr};

use super::super::interface::InterfaceAddress;
use super::super::wire::Segment;
use super::dhcp::Heard;
use super::local::Origin;
use super::output::Cutting;
use super::packet::protocol;
use super::report::HOP_LIMIT;
use super::state::{ANY_V4, Card, Stack};

/// Ports of clients and servers.
const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;

impl Stack {
    /// Takes in a datagram if it is an answer for the client; false: it is none.
    pub(super) fn take_lease(&self, datagram: &[u8]) -> bool {
        let Some((header, message)) = datagram.split_first_chunk::<8>() else { return false };
        let ports = [u16::from_be_bytes([header[0], header[1]]), u16::from_be_bytes([header[2], header[3]])];
        let Some(card) = self.card().filter(|_| ports == [SERVER_PORT, CLIENT_PORT]) else { return false };
        let (own, now_ns) = (card.identity.hardware_address, self.now_ns());
        let (heard, due_ns) = {
            let mut dhcp = self.dhcp.lock();
            let Some(_) = dhcp.due_ns() else { return false };
            (dhcp.hear(message, own, now_ns), dhcp.due_ns())
        };
        match heard {
            Heard::Nothing => {}
            Heard::Offer => {
                let request = self.dhcp.lock().message(own);
                self.send_to_servers(&request);
            }
            Heard::Lease(lease) => {
                let mut local = self.local.lock();
                local.forget_lease();
                let address = InterfaceAddress { address: IpAddr::V4(lease.address), prefix_bits: lease.prefix_bits };
                local.add_address(address, Origin::Leased, lease.until_ns, now_ns);
                if let Some(router) = lease.router {
                    local.add_way(ANY_V4, Some(IpAddr::V4(router)), Origin::Leased, lease.until_ns);
                }
            }
            Heard::Lost => self.local.lock().forget_lease(),
        }
        self.note_change();
        due_ns.into_iter().for_each(|due_ns| self.arm(due_ns));
        true
    }

    /// Sends the question that is due.
    pub(super) fn ask_for_lease(&self, card: &Card, now_ns: u64) {
        let number = self.random_number();
        let question = self.dhcp.lock().question(card.identity.hardware_address, number, now_ns);
        if let Some(question) = question {
            self.send_to_servers(&question);
        }
    }

    fn send_to_servers(&self, message: &[u8]) {
        let mut header = [0; 8];
        header[..2].copy_from_slice(&CLIENT_PORT.to_be_bytes());
        header[2..4].copy_from_slice(&SERVER_PORT.to_be_bytes());
        header[4..6].copy_from_slice(&((8 + message.len()) as u16).to_be_bytes());
        let all = IpAddr::V4(Ipv4Addr::BROADCAST);
        let segment = Segment {
            source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            destination: all,
            protocol: protocol::UDP,
            header: &header,
            checksum_offset_bytes: Some(6),
            payload: &[message],
            segment_bytes: 0,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            is_whole: false,
        };
        // What is lost is asked again.
        let _ = self.send_by(all, &segment, Cutting::Anywhere);
    }
}
