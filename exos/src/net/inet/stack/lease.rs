//! What is done with the client of DHCP: its questions are sent, what it is given is taken.

use core::net::{IpAddr, Ipv4Addr};
use core::sync::atomic::Ordering;

use super::super::interface::InterfaceAddress;
use super::super::wire::Segment;
use super::dhcp::Heard;
use super::local::Origin;
use super::output::Cutting;
use super::packet::protocol;
use super::report::HOP_LIMIT;
use super::state::{Card, Stack};

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
                self.send_to_servers(&request, None);
            }
            Heard::Lease(lease) => {
                *self.leased_servers.lock() = lease.name_servers;
                let bytes_max = lease.packet_bytes_max.map_or(0, u32::from);
                self.v4_bytes_max.store(bytes_max, Ordering::Relaxed);
                let mut local = self.local.lock();
                local.forget_lease();
                let address = InterfaceAddress { address: IpAddr::V4(lease.address), prefix_bits: lease.prefix_bits };
                local.add_address(address, Origin::Leased, lease.until_ns, now_ns);
                for (network, prefix_bits, router) in lease.routes.into_iter().flatten() {
                    let network = InterfaceAddress { address: IpAddr::V4(network), prefix_bits };
                    let gateway = (!router.is_unspecified()).then_some(IpAddr::V4(router));
                    local.add_way(network, gateway, Origin::Leased, lease.until_ns);
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
        let (question, renewal) = {
            let mut dhcp = self.dhcp.lock();
            (dhcp.question(card.identity.hardware_address, number, now_ns), dhcp.renewal(now_ns))
        };
        if let Some(question) = question {
            self.send_to_servers(&question, renewal);
        }
    }

    /// Whether an address is asked for by DHCP and there is none yet.
    pub fn awaits_lease(&self) -> bool {
        let is_asked = self.configuration().is_some_and(|configuration| configuration.uses_dhcp);
        is_asked && self.card().is_some() && !self.local.lock().has_lease()
    }

    /// Name servers that a lease names.
    pub fn leased_name_servers(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        self.leased_servers.lock().into_iter().flatten()
    }

    /// Sends to all servers, or from an own address to one.
    fn send_to_servers(&self, message: &[u8], renewal: Option<(Ipv4Addr, Ipv4Addr)>) {
        let mut header = [0; 8];
        header[..2].copy_from_slice(&CLIENT_PORT.to_be_bytes());
        header[2..4].copy_from_slice(&SERVER_PORT.to_be_bytes());
        header[4..6].copy_from_slice(&((8 + message.len()) as u16).to_be_bytes());
        let (source, to) = renewal.unwrap_or((Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));
        let segment = Segment {
            source: IpAddr::V4(source),
            destination: IpAddr::V4(to),
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
        let _ = match renewal {
            Some(_) => self.send(&segment, Cutting::Anywhere),
            None => self.send_by(IpAddr::V4(to), &segment, Cutting::Anywhere),
        };
    }
}
