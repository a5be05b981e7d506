//! `ioctl` on sockets that is about interfaces and ports rather than the file (netdevice(7)): `SIOCGIF*`, `SIOCSIF*`,
//! `SIOCETHTOOL`, `SIOCATMARK`. Any socket will do, but for IPv4 addresses, of which one for IPv4 is asked.
//!
//! What would change an interface is `EPERM` without the right, asked for first; with it, the card's goes up and down,
//! what is so already is fine and everything else `EOPNOTSUPP`.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use exos::error::{Errno, Result};
use exos::net::AnySocket;
use exos::net::inet::interface::{InterfaceAddress, InterfaceStatus};
use exos::net::inet::stack::Alteration;
use exos::net::inet::{Family, Protocol};
use exos::net::view::{NetworkView, broadcast_of, interface_flag, mask_of};
use exos::reserve;
use exos::task::capability::Capability;

use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::AF_INET;
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::Context;

/// Numbers of requests (`linux/sockios.h`).
mod request {
    pub(super) const SIOCATMARK: u32 = 0x8905;
    pub(super) const SIOCADDRT: u32 = 0x890b;
    pub(super) const SIOCDELRT: u32 = 0x890c;
    pub(super) const SIOCGIFNAME: u32 = 0x8910;
    pub(super) const SIOCGIFCONF: u32 = 0x8912;
    pub(super) const SIOCGIFFLAGS: u32 = 0x8913;
    pub(super) const SIOCSIFFLAGS: u32 = 0x8914;
    pub(super) const SIOCGIFADDR: u32 = 0x8915;
    pub(super) const SIOCSIFADDR: u32 = 0x8916;
    pub(super) const SIOCGIFDSTADDR: u32 = 0x8917;
    pub(super) const SIOCSIFDSTADDR: u32 = 0x8918;
    pub(super) const SIOCGIFBRDADDR: u32 = 0x8919;
    pub(super) const SIOCSIFBRDADDR: u32 = 0x891a;
    pub(super) const SIOCGIFNETMASK: u32 = 0x891b;
    pub(super) const SIOCSIFNETMASK: u32 = 0x891c;
    pub(super) const SIOCGIFMETRIC: u32 = 0x891d;
    pub(super) const SIOCGIFMTU: u32 = 0x8921;
    pub(super) const SIOCSIFMTU: u32 = 0x8922;
    pub(super) const SIOCSIFNAME: u32 = 0x8923;
    pub(super) const SIOCSIFHWADDR: u32 = 0x8924;
    pub(super) const SIOCGIFHWADDR: u32 = 0x8927;
    pub(super) const SIOCGIFSLAVE: u32 = 0x8929;
    pub(super) const SIOCADDMULTI: u32 = 0x8931;
    pub(super) const SIOCDELMULTI: u32 = 0x8932;
    pub(super) const SIOCGIFINDEX: u32 = 0x8933;
    pub(super) const SIOCSIFHWBROADCAST: u32 = 0x8937;
    pub(super) const SIOCGIFTXQLEN: u32 = 0x8942;
    pub(super) const SIOCSIFTXQLEN: u32 = 0x8943;
    pub(super) const SIOCETHTOOL: u32 = 0x8946;
    pub(super) const SIOCOUTQNSD: u32 = 0x894b;
    pub(super) const SIOCGIFMAP: u32 = 0x8970;
    pub(super) const SIOCSIFMAP: u32 = 0x8971;
    /// What changes something.
    pub(super) const CHANGES: [u32; 12] = [
        SIOCSIFFLAGS,
        SIOCSIFMTU,
        SIOCSIFNAME,
        SIOCSIFHWADDR,
        SIOCADDMULTI,
        SIOCDELMULTI,
        SIOCSIFHWBROADCAST,
        SIOCSIFTXQLEN,
        SIOCSIFMAP,
        SIOCADDRT,
        SIOCDELRT,
        0x891e,
    ];
    /// The same of IPv4.
    pub(super) const ADDRESS_CHANGES: [u32; 4] = [SIOCSIFADDR, SIOCSIFDSTADDR, SIOCSIFBRDADDR, SIOCSIFNETMASK];
    /// What IPv4 is asked.
    pub(super) const ADDRESSES: [u32; 4] = [SIOCGIFADDR, SIOCGIFDSTADDR, SIOCGIFBRDADDR, SIOCGIFNETMASK];
}

/// Bytes of `struct ifreq`, of the name in it and where the rest is.
const REQUEST_BYTES: usize = 40;
const NAME_BYTES: usize = 16;
/// How many packets wait for a card (`txqueuelen`).
const QUEUE_LENGTH: i32 = 1000;

/// Answers a request. `None`: it is none of these.
pub(super) fn control(context: &Context<'_>, socket: &AnySocket, number: u32, address: u64) -> Option<Result<()>> {
    use request::{
        ADDRESS_CHANGES, ADDRESSES, CHANGES, SIOCADDRT, SIOCATMARK, SIOCDELRT, SIOCETHTOOL, SIOCGIFCONF, SIOCGIFFLAGS,
        SIOCGIFHWADDR, SIOCGIFINDEX, SIOCGIFMAP, SIOCGIFMETRIC, SIOCGIFMTU, SIOCGIFNAME, SIOCGIFSLAVE, SIOCGIFTXQLEN,
        SIOCOUTQNSD,
    };
    let is_v4 = matches!(socket, AnySocket::Inet(socket) if socket.family() == Family::V4);
    let is_tcp = matches!(socket, AnySocket::Inet(socket) if socket.protocol() == Protocol::Tcp);
    let outcome = match number {
        SIOCATMARK if is_tcp => at_mark(context, socket, address),
        SIOCOUTQNSD if is_tcp => unsent(context, socket, address),
        SIOCGIFCONF => configuration(context, address),
        SIOCADDRT | SIOCDELRT if !matches!(socket, AnySocket::Inet(_)) => return None,
        SIOCGIFNAME | SIOCGIFFLAGS | SIOCGIFMETRIC | SIOCGIFMTU | SIOCGIFHWADDR | SIOCGIFINDEX | SIOCGIFTXQLEN
        | SIOCGIFMAP | SIOCGIFSLAVE | SIOCETHTOOL => ask(context, number, address),
        number if ADDRESSES.contains(&number) && is_v4 => ask(context, number, address),
        number if CHANGES.contains(&number) || ADDRESS_CHANGES.contains(&number) && is_v4 => {
            change(context, number, address)
        }
        _ => return None,
    };
    Some(outcome)
}

/// Whether the next byte is the urgent one.
fn at_mark(context: &Context<'_>, socket: &AnySocket, address: u64) -> Result<()> {
    let is_there = matches!(socket, AnySocket::Inet(socket) if socket.is_at_mark());
    write_all(context.memory, address, &i32::from(is_there).to_le_bytes())
}

/// Bytes that have not been sent yet.
fn unsent(context: &Context<'_>, socket: &AnySocket, address: u64) -> Result<()> {
    let count = socket.unreceived_bytes()? as u32;
    write_all(context.memory, address, &count.to_le_bytes())
}

fn is_v4(own: &&InterfaceAddress) -> bool {
    own.address.is_ipv4()
}

/// `sockaddr_in` without a port.
fn v4_bytes(address: Ipv4Addr) -> Vec<u8> {
    Encoder::new().u16(AF_INET).u16(0).raw(&address.octets()).zero_to(16).finish()
}

/// `SIOCGIFCONF`: all IPv4 addresses that there is room for; how many bytes they take, if there is no place for them.
fn configuration(context: &Context<'_>, address: u64) -> Result<()> {
    let head: [u8; 16] = read_array(context.memory, address)?;
    let (room, place) = (get::i32(&head, 0), get::u64(&head, 8));
    let room = usize::try_from(room).unwrap_or(0);
    let view = NetworkView::of(&context.system.files.inet)?;
    let mut bytes = Vec::new();
    for interface in &view.interfaces {
        for own in interface.addresses.iter().filter(is_v4) {
            let IpAddr::V4(v4) = own.address else { continue };
            if place != 0 && bytes.len() + REQUEST_BYTES > room {
                break;
            }
            reserve::reserve(&mut bytes, REQUEST_BYTES)?;
            let name = Encoder::new().string(interface.name.as_bytes(), NAME_BYTES).raw(&v4_bytes(v4));
            bytes.extend_from_slice(&name.zero_to(REQUEST_BYTES).finish());
        }
    }
    if place != 0 {
        write_all(context.memory, place, &bytes)?;
    }
    write_all(context.memory, address, &(bytes.len() as u32).to_le_bytes())
}

/// The name in a request: up to a colon, behind which it would be an address's.
fn name_of(bytes: &[u8]) -> &[u8] {
    let name = bytes[..NAME_BYTES - 1].split(|byte| *byte == 0).next().unwrap_or_default();
    name.split(|byte| *byte == b':').next().unwrap_or_default()
}

/// What is asked about one interface.
fn ask(context: &Context<'_>, number: u32, address: u64) -> Result<()> {
    use request::{
        SIOCETHTOOL, SIOCGIFFLAGS, SIOCGIFHWADDR, SIOCGIFINDEX, SIOCGIFMAP, SIOCGIFMETRIC, SIOCGIFMTU, SIOCGIFNAME,
        SIOCGIFSLAVE, SIOCGIFTXQLEN,
    };
    let bytes: [u8; REQUEST_BYTES] = read_array(context.memory, address)?;
    let view = NetworkView::of(&context.system.files.inet)?;
    if number == SIOCGIFNAME {
        let found = view.by_index(get::u32(&bytes, NAME_BYTES)).ok_or(Errno::ENODEV)?;
        let name = Encoder::new().string(found.name.as_bytes(), NAME_BYTES).finish();
        return write_all(context.memory, address, &[&name, &bytes[NAME_BYTES..]].concat());
    }
    let interface = view.by_name(name_of(&bytes)).ok_or(Errno::ENODEV)?;
    let number_bytes = |value: i32| value.to_le_bytes().to_vec();
    let value = match number {
        SIOCGIFFLAGS => (interface.flags() as u16).to_le_bytes().to_vec(),
        SIOCGIFMETRIC => number_bytes(0),
        SIOCGIFMTU => number_bytes(interface.packet_bytes_max as i32),
        SIOCGIFINDEX => number_bytes(interface.index as i32),
        SIOCGIFTXQLEN => number_bytes(QUEUE_LENGTH),
        SIOCGIFMAP => Encoder::new().zero_to(24).finish(),
        SIOCGIFHWADDR => {
            let kind = Encoder::new().u16(interface.hardware_kind());
            kind.raw(&interface.hardware_address).zero_to(16).finish()
        }
        SIOCETHTOOL => return ask_card(context, interface, get::u64(&bytes, NAME_BYTES)),
        SIOCGIFSLAVE => return Err(Errno::EINVAL),
        _ => v4_bytes(address_of(interface, number, &bytes)?),
    };
    let rest = &bytes[NAME_BYTES + value.len()..];
    write_all(context.memory, address, &[&bytes[..NAME_BYTES], &value, rest].concat())
}

/// One of an interface's IPv4 addresses: the one that is named in the request, if one is, else the first.
/// `EADDRNOTAVAIL`: it has none.
fn address_of(interface: &InterfaceStatus, number: u32, bytes: &[u8]) -> Result<Ipv4Addr> {
    use request::{SIOCGIFBRDADDR, SIOCGIFNETMASK};
    let octets = [bytes[20], bytes[21], bytes[22], bytes[23]];
    let named = (get::u16(bytes, NAME_BYTES) == AF_INET).then(|| IpAddr::from(octets));
    // No address has a name of its own, which would be behind a colon.
    if bytes[..NAME_BYTES].contains(&b':') {
        return Err(Errno::EADDRNOTAVAIL);
    }
    let mut all = interface.addresses.iter().filter(is_v4);
    let first = all.clone().next().ok_or(Errno::EADDRNOTAVAIL)?;
    let own = all.find(|own| Some(own.address) == named).unwrap_or(first);
    let IpAddr::V4(v4) = own.address else { return Err(Errno::EADDRNOTAVAIL) };
    Ok(match number {
        SIOCGIFNETMASK => mask_of(own.prefix_bits),
        SIOCGIFBRDADDR if interface.is_loopback => Ipv4Addr::UNSPECIFIED,
        SIOCGIFBRDADDR => broadcast_of(own).unwrap_or(Ipv4Addr::UNSPECIFIED),
        _ => v4,
    })
}

/// `SIOCETHTOOL`: whether it is connected is all that a card tells.
fn ask_card(context: &Context<'_>, interface: &InterfaceStatus, place: u64) -> Result<()> {
    const ETHTOOL_GLINK: u32 = 10;
    let command = u32::from_le_bytes(read_array(context.memory, place)?);
    if command != ETHTOOL_GLINK {
        return Err(Errno::EOPNOTSUPP);
    }
    let value = u32::from(interface.is_running);
    write_all(context.memory, place.wrapping_add(4), &value.to_le_bytes())
}

/// What would change an interface.
fn change(context: &Context<'_>, number: u32, address: u64) -> Result<()> {
    use request::{SIOCADDRT, SIOCDELRT, SIOCSIFADDR, SIOCSIFFLAGS, SIOCSIFMTU, SIOCSIFTXQLEN};
    let bytes: [u8; REQUEST_BYTES] = read_array(context.memory, address)?;
    if !context.can(Capability::NET_ADMIN) {
        return Err(Errno::EPERM);
    }
    if [SIOCADDRT, SIOCDELRT].contains(&number) {
        return Err(Errno::EOPNOTSUPP);
    }
    let view = NetworkView::of(&context.system.files.inet)?;
    let interface = view.by_name(name_of(&bytes)).ok_or(Errno::ENODEV)?;
    let wanted = get::u32(&bytes, NAME_BYTES);
    let is_so = match number {
        SIOCSIFFLAGS => (wanted ^ interface.flags()) & interface_flag::UP == 0,
        SIOCSIFMTU => wanted == interface.packet_bytes_max,
        SIOCSIFTXQLEN => wanted == QUEUE_LENGTH as u32,
        SIOCSIFADDR => {
            let octets = [bytes[20], bytes[21], bytes[22], bytes[23]];
            interface.addresses.iter().any(|own| own.address == IpAddr::from(octets))
        }
        _ => false,
    };
    match number {
        _ if is_so => Ok(()),
        SIOCSIFFLAGS if !interface.is_loopback => {
            let files = &context.system.files;
            files.inet.stack().change(Alteration::SetUp(wanted & interface_flag::UP != 0))?;
            files.netlink.tell_changes();
            Ok(())
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}
