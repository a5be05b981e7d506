//! Options of a pod's network: what its card is connected to, which ports of the host lead to it, and its names.
//!
//! Words are read here, and what contradicts itself is refused; what the host can do of it is found out when the
//! network is made (`crate::start::network`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use aegis_launch::machine::network::Protocol;
use aegis_link::config::HOSTNAME_BYTES_MAX;
use aegis_link::network::{HostEntry, Prefixed, is_host_name};
use clap::Args;

/// Most ports of a pod.
pub(crate) const PORT_COUNT_MAX: usize = 1024;
/// What a card is connected to, in words.
const CHOICES: &str = "user, none, serve, tap or tap=INTERFACE";
/// How a port is written.
const PORT_FORM: &str = "[ADDRESS:]HOST:GUEST[/udp], such as 8080:80 or [::1]:8080:80";

/// What a pod's card is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NetworkChoice {
    /// QEMU's user network: out to wherever this user gets, in by forwarded ports.
    User,
    /// Nothing: there is no card.
    None,
    /// The user network with the way out cut: forwarded ports only.
    Serve,
    /// A tap interface of the host, by name or the first that is this user's.
    Tap(Option<String>),
    /// For tests: a peer at a Unix socket.
    Socket(PathBuf),
    /// The same as a network that is not ours, as behind a tap interface: with DHCP.
    Lan(PathBuf),
}

/// `-p`: one port of the host, or none in particular, that leads to one of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    /// Of which protocol.
    pub(crate) protocol: Protocol,
    /// Address and port on the host; port 0 for whichever is free.
    pub(crate) host: SocketAddr,
    /// Port of the pod.
    pub(crate) pod_port: u16,
}

/// What one `-p` says: a port, or as many as its range has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range(pub(crate) Vec<Publication>);

// The network of a pod: on the command line, and in a table of `aegis up`'s file. (No documentation comment: clap would
// make it the text of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NetworkOptions {
    /// Let this port of the host lead to a port of the program (repeatable); HOST 0 is any, and printed
    #[arg(short = 'p', long = "publish", value_name = "[ADDRESS:]HOST:GUEST[/udp]", value_parser = parse_publications)]
    publications: Vec<Range>,
    /// What the network card is connected to: user (out as you, in by -p), none, serve (in by -p only), a tap interface
    #[arg(long, value_name = "user|none|serve|tap[=IF]", value_parser = parse_choice)]
    pub(crate) network: Option<NetworkChoice>,
    /// Let programs connect to this host's own loopback, as 10.0.2.2 or host.aegis
    #[arg(long)]
    pub(crate) host_access: bool,
    /// Write all frames of the network card to this file, for tcpdump and Wireshark
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Ask this name server instead of the host's (repeatable)
    #[arg(long, value_name = "ADDRESS", value_parser = parse_name_server)]
    pub(crate) dns: Vec<IpAddr>,
    /// Let NAME stand for this address in /etc/hosts (repeatable)
    #[arg(long, value_name = "NAME:ADDRESS", value_parser = parse_host_entry)]
    pub(crate) add_host: Vec<HostEntry>,
    /// Address of the network card, one of each family [default: 10.0.2.15/24; with tap by DHCP]
    #[arg(long, value_name = "ADDRESS[/BITS]", value_parser = parse_address)]
    pub(crate) ip: Vec<Prefixed>,
    /// Router to other networks, with tap and --ip: one of each family
    #[arg(long, value_name = "ADDRESS", value_parser = parse_router)]
    pub(crate) gateway: Vec<IpAddr>,
    /// Ethernet address of the network card
    #[arg(long, value_name = "ADDRESS", value_parser = parse_hardware_address)]
    pub(crate) mac: Option<[u8; 6]>,
    /// Name of the machine, as programs see it [default: aegis]
    #[arg(long, value_name = "NAME", value_parser = parse_hostname)]
    pub(crate) hostname: Option<String>,
}

impl NetworkOptions {
    /// Ports of the host that lead to the pod.
    pub(crate) fn publications(&self) -> impl Iterator<Item = Publication> {
        self.publications.iter().flat_map(|range| &range.0).copied()
    }

    /// Adds a port.
    pub(crate) fn add_publication(&mut self, range: Range) {
        self.publications.push(range);
    }

    /// Sets the ports.
    pub(crate) fn publish(&mut self, publications: Vec<Range>) {
        self.publications = publications;
    }
}

/// `--network`.
pub(crate) fn parse_choice(text: &str) -> Result<NetworkChoice, String> {
    Ok(match text.split_once('=').map_or((text, None), |(kind, rest)| (kind, Some(rest))) {
        ("user", None) => NetworkChoice::User,
        ("none", None) => NetworkChoice::None,
        ("serve", None) => NetworkChoice::Serve,
        ("tap", None) => NetworkChoice::Tap(None),
        ("tap", Some(name)) if is_interface_name(name) => NetworkChoice::Tap(Some(name.to_owned())),
        ("tap", Some(_)) => return Err("an interface's name has 1 to 15 characters, none of them / or a space".into()),
        ("socket", Some(path)) if !path.is_empty() => NetworkChoice::Socket(path.into()),
        ("lan", Some(path)) if !path.is_empty() => NetworkChoice::Lan(path.into()),
        _ => return Err(format!("one of {CHOICES}")),
    })
}

/// As Linux has it (`dev_valid_name`).
fn is_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':'))
}

/// `-p`: a port, or a range of as many on both sides.
pub(crate) fn parse_publications(text: &str) -> Result<Range, String> {
    let (ports, protocol) = match text.rsplit_once('/') {
        None => (text, Protocol::Tcp),
        Some((ports, "tcp")) => (ports, Protocol::Tcp),
        Some((ports, "udp")) => (ports, Protocol::Udp),
        Some((_, other)) => return Err(format!("/{other}: ports are those of /tcp or /udp")),
    };
    let (front, pod) = ports.rsplit_once(':').ok_or_else(|| format!("a port is {PORT_FORM}"))?;
    let (address, host) = front.rsplit_once(':').map_or((None, front), |(address, host)| (Some(address), host));
    let address = address.map_or(Ok(Ipv4Addr::LOCALHOST.into()), parse_bracketed)?;
    let (pod_first, pod_count) = parse_ports(pod)?;
    let (host_first, host_count) = parse_ports(host)?;
    if pod_first == 0 {
        return Err("GUEST is a port of the program, from 1 to 65535".into());
    }
    if host_first == 0 && host_count > 1 {
        return Err("HOST is 0 for any port, or a range that begins with 1 or more".into());
    }
    if host_first != 0 && host_count != pod_count {
        return Err(format!("{host_count} of the host and {pod_count} of the program: ranges are equally long"));
    }
    if pod_count > PORT_COUNT_MAX {
        return Err(format!("{pod_count} ports; at most {PORT_COUNT_MAX}"));
    }
    // No longer than PORT_COUNT_MAX, and both ends are ports.
    let one = |offset: u16| Publication {
        protocol,
        host: SocketAddr::new(address, if host_first == 0 { 0 } else { host_first + offset }),
        pod_port: pod_first + offset,
    };
    Ok(Range((0..pod_count as u16).map(one).collect()))
}

/// An IPv4 address, or an IPv6 address in brackets.
fn parse_bracketed(text: &str) -> Result<IpAddr, String> {
    let wrong = || format!("{text}: no address; IPv6 is written in brackets: {PORT_FORM}");
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').and_then(|text| text.parse().ok()).map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    }
    .ok_or_else(wrong)
}

/// First port and how many there are.
fn parse_ports(text: &str) -> Result<(u16, usize), String> {
    let number = |text: &str| -> Result<u16, String> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number).ok_or_else(|| format!("{text:?}: no port; a port is {PORT_FORM}"))
    };
    let Some((first, last)) = text.split_once('-') else { return Ok((number(text)?, 1)) };
    let (first, last) = (number(first)?, number(last)?);
    match last.checked_sub(first) {
        Some(steps) => Ok((first, 1 + usize::from(steps))),
        None => Err(format!("{text}: a range goes from the lower port to the higher")),
    }
}

/// `--add-host`; the name ends at the first colon, and an IPv6 address may be in brackets.
pub(crate) fn parse_host_entry(text: &str) -> Result<HostEntry, String> {
    let (name, address) = text.split_once(':').ok_or("NAME:ADDRESS, such as db:192.0.2.7")?;
    if !is_host_name(name.as_bytes()) {
        return Err(format!("{name:?}: a name is without spaces and not empty"));
    }
    let plain = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let address = plain.parse().map_err(|_| format!("{address:?}: no address; NAME:ADDRESS, such as db:192.0.2.7"))?;
    Ok(HostEntry { name: name.into(), address })
}

/// A name server.
pub(crate) fn parse_name_server(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "an address such as 192.0.2.1".to_owned())
}

/// `--gateway`.
pub(crate) fn parse_router(text: &str) -> Result<IpAddr, String> {
    let address = text.parse().ok().filter(|it: &IpAddr| !it.is_unspecified() && !it.is_multicast());
    address.filter(|it| !it.is_loopback()).ok_or_else(|| "a router's address, such as 192.0.2.1".to_owned())
}

/// `--ip`; a network is as long as is usual if nothing is said.
pub(crate) fn parse_address(text: &str) -> Result<Prefixed, String> {
    const FORM: &str = "an address and the bits of its network, such as 10.0.2.15/24 or fec0::15/64";
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().map_err(|_| FORM.to_owned())?;
    let usual = if address.is_ipv4() { 24 } else { 64 };
    let bits = bits.map_or(Ok(usual), |bits| bits.parse().map_err(|_| FORM.to_owned()))?;
    let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
    Prefixed::new(address, bits).filter(|_| is_host && bits > 0).ok_or_else(|| FORM.to_owned())
}

/// `--mac`: six bytes in hexadecimal digits; the address of a single card.
pub(crate) fn parse_hardware_address(text: &str) -> Result<[u8; 6], String> {
    let form = || "six bytes such as 52:54:00:12:34:56, the first of them even".to_owned();
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        let digits = parts.next().filter(|it| it.len() == 2 && it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        *byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(form)?;
    }
    let is_single = address[0] & 1 == 0 && address != [0; 6];
    if parts.next().is_none() && is_single { Ok(address) } else { Err(form()) }
}

/// `--hostname`.
pub(crate) fn parse_hostname(text: &str) -> Result<String, String> {
    if text.len() <= HOSTNAME_BYTES_MAX && is_host_name(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    Err(format!("a host name has 1 to {HOSTNAME_BYTES_MAX} characters and no space"))
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
