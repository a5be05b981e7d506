//! A pod's network as the host makes it: its card for QEMU, what the library OS is told of it, and ports of the host
//! that are held until QEMU takes them.
//!
//! Everything that can be known to fail is found out here, before a machine starts: a port that something else has, a
//! tap interface that is not there or not this user's, addresses that contradict each other. Between the moment at
//! which a port is let go and that at which QEMU takes it somebody else may come; QEMU's own message says so then.
//!
//! In QEMU's user network the host itself answers: at the router's address with its own loopback, and so does any
//! address there that QEMU gives no other meaning, in both families, and link-local. Those networks are named to the
//! library OS, which lets no program connect there unless `--host-access` is said.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::Path;

use aegis_launch::errors::{Doing, Error};
use aegis_launch::machine::network::{Backend, Card, Forward, HARDWARE_ADDRESS_DEFAULT, Protocol, UserNetwork};
use aegis_launch::root::HOSTNAME;
use aegis_link::config::Flags;
use aegis_link::drivers::Model;
use aegis_link::network::{HostEntry, Network, NetworkFlags, Prefixed};

use crate::options::groups::{MachineOptions, PodOptions};
use crate::options::network::{NetworkChoice, NetworkOptions, PORT_COUNT_MAX, Publication};
use crate::start::port_owner::owner_of;
use crate::start::port_relay::{relay_connections, relay_datagrams};
use crate::start::tap;

/// The pod's usual address, and its network's length.
const POD_ADDRESS: Prefixed = Prefixed { address: IpAddr::V4(Ipv4Addr::new(10, 0, 2, 15)), prefix_bits: 24 };
/// The network that QEMU's user network is for IPv6, and what is in it: host, name server, pod.
const IPV6_NETWORK: Ipv6Addr = Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0);
const IPV6_HOST: Ipv6Addr = Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 2);
const IPV6_NAME_SERVER: Ipv6Addr = Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 3);
const IPV6_POD: Prefixed =
    Prefixed { address: IpAddr::V6(Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0x15)), prefix_bits: 64 };
const IPV6_LINK_LOCAL: Prefixed =
    Prefixed { address: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), prefix_bits: 64 };
/// The name by which the host is known in the pod.
const HOST_NAME: &[u8] = b"host.aegis";
/// Files of `/etc` that are the pod's own, and the switches that say so.
const ETC_FILES: [(&str, Flags); 3] =
    [("/etc/hosts", Flags::HOSTS), ("/etc/hostname", Flags::HOSTNAME), ("/etc/resolv.conf", Flags::NAME_SERVERS)];

/// A pod's network.
#[derive(Debug)]
pub(crate) struct PodNetwork {
    /// The card, for QEMU.
    pub(crate) card: Card,
    /// What the library OS is told.
    pub(crate) config: Network,
    /// Ports of the host that lead to the pod.
    pub(crate) ports: Vec<Port>,
}

/// A port of the host, held.
#[derive(Debug)]
pub(crate) struct Port {
    /// With the port that was chosen.
    pub(crate) publication: Publication,
    /// Whether the tool chose it.
    pub(crate) is_chosen: bool,
    holder: Holder,
    /// What is between it and QEMU, where QEMU cannot forward from there.
    inner: Option<(SocketAddrV4, Holder)>,
}

/// Keeps a port from others.
#[derive(Debug)]
enum Holder {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

/// A port that QEMU does not forward from.
pub(crate) struct Relayed {
    outer: Holder,
    inner: SocketAddrV4,
}

impl Port {
    /// Lets it go, for QEMU to take. What is left is for the tool to do once QEMU has taken it.
    pub(crate) fn release(self) -> Option<Relayed> {
        let (inner, _) = self.inner?;
        Some(Relayed { outer: self.holder, inner })
    }

    /// Where QEMU listens for it, if it does.
    pub(crate) fn listening(&self) -> Option<SocketAddrV4> {
        let forward = self.forward()?;
        matches!(self.holder, Holder::Tcp(_)).then_some(forward.host)
    }

    /// Where QEMU forwards from.
    fn forward(&self) -> Option<Forward> {
        let host = match (&self.inner, self.publication.host) {
            (Some((inner, _)), _) => *inner,
            (None, SocketAddr::V4(host)) => host,
            (None, SocketAddr::V6(_)) => return None,
        };
        let Publication { protocol, pod_port, .. } = self.publication;
        Some(Forward { protocol, host, pod_port })
    }
}

impl Relayed {
    /// Begins.
    pub(crate) fn start(self) -> Result<(), Error> {
        match self.outer {
            Holder::Tcp(outer) => relay_connections(outer, self.inner),
            Holder::Udp(outer) => relay_datagrams(outer, self.inner),
        }
        .doing("relaying a port")
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Publication { protocol, host, pod_port } = self.publication;
        write!(out, "{host} -> {pod_port}/{}", protocol.name())
    }
}

impl PodNetwork {
    /// Makes it; `None` for a pod without a card.
    ///
    /// Without `--network` it is the user network, but for runs in which instructions are counted: timers of QEMU's
    /// network would be part of what is compared. A QEMU that has no user network has none where nobody asks for it.
    ///
    /// `model` is the card's, if a driver was named.
    ///
    /// # Errors
    /// See the module's head.
    pub(crate) fn make(
        options: &NetworkOptions,
        machine: &MachineOptions,
        model: Option<Model>,
        chance: &[u8; 32],
        has_user_network: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, Error> {
        let needs_card = options.publications().next().is_some() || options.pcap.is_some() || model.is_some();
        let choice = match &options.network {
            None if machine.icount.is_some() && !needs_card => &NetworkChoice::None,
            None => &NetworkChoice::User,
            Some(choice) => choice,
        };
        check(options, choice, model)?;
        if matches!(choice, NetworkChoice::User | NetworkChoice::Serve) && !has_user_network() {
            if options.network.is_none() && !needs_card && !options.host_access {
                return Ok(None);
            }
            return Err(Error::Usage(
                "this QEMU was built without its user network (libslirp): take another QEMU (AEGIS_QEMU), \
                 --network tap or --network none"
                    .into(),
            ));
        }
        let mut config = Network::default();
        config.flags.set(NetworkFlags::HOST_ACCESS, options.host_access);
        let (backend, ports) = match choice {
            NetworkChoice::None => return Ok(None),
            NetworkChoice::User | NetworkChoice::Serve => {
                let ports = take_ports(options)?;
                let mut network = user_network(options, &mut config)?;
                network.is_restricted = *choice == NetworkChoice::Serve;
                network.forwards = ports.iter().filter_map(Port::forward).collect();
                (Backend::User(network), ports)
            }
            NetworkChoice::Tap(name) => {
                outer_addresses(options, &mut config);
                (Backend::Tap(tap::find(name.as_deref())?), Vec::new())
            }
            NetworkChoice::Socket(path) => {
                user_network(options, &mut config)?;
                (Backend::Socket(path.clone()), Vec::new())
            }
            NetworkChoice::Lan(path) => {
                outer_addresses(options, &mut config);
                (Backend::Socket(path.clone()), Vec::new())
            }
        };
        if *choice == NetworkChoice::Serve && options.dns.is_empty() {
            // Nobody would answer.
            config.name_servers.clear();
        }
        if let Some(path) = &options.pcap {
            check_writable(path)?;
        }
        let card = Card {
            model: model.unwrap_or_default(),
            hardware_address: options.mac.unwrap_or_else(|| hardware_address(&backend, chance)),
            backend,
            capture: options.pcap.clone(),
        };
        Ok(Some(Self { card, config, ports }))
    }
}

/// Names for `/etc/hosts`: the host's, where it has an address, and those that were given.
pub(crate) fn names(options: &PodOptions, network: Option<&PodNetwork>) -> Vec<HostEntry> {
    let host = network.and_then(|network| match &network.card.backend {
        Backend::User(user) => Some(user.host),
        Backend::Tap(_) | Backend::Socket(_) => None,
    });
    let host = host.map(|host| HostEntry { name: HOST_NAME.to_vec(), address: host.into() });
    host.into_iter().chain(options.network.add_host.iter().cloned()).collect()
}

/// Which files of `/etc` are the pod's own: those that have something to say, but for what the user put there.
pub(crate) fn etc_files(options: &PodOptions, hostname: &[u8], network: Option<&PodNetwork>) -> Flags {
    let given = &options.network;
    let mut flags = Flags::empty();
    // The usual name is in the root that the tool packs, and in no image.
    let is_told = hostname != HOSTNAME || !given.add_host.is_empty() || options.image.image.is_some();
    let has_names = network.is_some() || is_told;
    flags.set(Flags::HOSTS | Flags::HOSTNAME, has_names);
    flags.set(Flags::NAME_SERVERS, !given.dns.is_empty());
    let with = options.with.iter().filter_map(|with| with.guest.as_deref().or(Some(&with.host)));
    let volumes = options.volumes.iter().map(|volume| volume.guest.as_path());
    for place in with.chain(volumes) {
        for (path, flag) in ETC_FILES {
            if Path::new(path).starts_with(place) {
                flags.remove(flag);
                flags.set(
                    Flags::KEEP_NAME_SERVERS,
                    flags.contains(Flags::KEEP_NAME_SERVERS) || flag == Flags::NAME_SERVERS,
                );
            }
        }
    }
    flags
}

/// What contradicts itself.
fn check(options: &NetworkOptions, choice: &NetworkChoice, model: Option<Model>) -> Result<(), Error> {
    let wrong = |text: String| Err(Error::Usage(text));
    let is_user = matches!(choice, NetworkChoice::User | NetworkChoice::Serve);
    if options.publications().next().is_some() && !is_user {
        return wrong(match choice {
            NetworkChoice::None => "-p: this pod has --network none; ports lead to it with user or serve".into(),
            _ => "-p: only with --network user or serve; with tap the program's ports are at its own address".into(),
        });
    }
    if options.publications().count() > PORT_COUNT_MAX {
        return wrong(format!("-p: more than {PORT_COUNT_MAX} ports"));
    }
    if *choice == NetworkChoice::None {
        let given = [
            (options.host_access, "--host-access"),
            (options.pcap.is_some(), "--pcap"),
            (!options.dns.is_empty(), "--dns"),
            (!options.ip.is_empty(), "--ip"),
            (options.mac.is_some(), "--mac"),
            (model.is_some(), "--driver net"),
        ];
        if let Some((_, name)) = given.into_iter().find(|(is_given, _)| *is_given) {
            return wrong(format!("{name}: this pod has --network none"));
        }
    }
    if options.host_access && !matches!(choice, NetworkChoice::User | NetworkChoice::Socket(_)) {
        return wrong(match choice {
            NetworkChoice::Serve => "--host-access: --network serve lets nothing out; use --network user".into(),
            _ => "--host-access: only with --network user; with tap the host has addresses of its own".into(),
        });
    }
    if !options.gateway.is_empty() && !matches!(choice, NetworkChoice::Tap(_) | NetworkChoice::Lan(_)) {
        return wrong("--gateway: only with --network tap; the user network has a router of its own".into());
    }
    for is_family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
        if options.gateway.iter().filter(|it| is_family(it)).count() > 1 {
            return wrong("--gateway: one address of each family".into());
        }
        if options.ip.iter().filter(|it| is_family(&it.address)).count() > 1 {
            return wrong("--ip: one address of each family".into());
        }
    }
    Ok(())
}

/// The user network's addresses, which all follow from the pod's.
fn user_network(options: &NetworkOptions, config: &mut Network) -> Result<UserNetwork, Error> {
    let given = |is_family: fn(&IpAddr) -> bool| options.ip.iter().find(|it| is_family(&it.address)).copied();
    let own = given(IpAddr::is_ipv4).unwrap_or(POD_ADDRESS);
    let own6 = given(IpAddr::is_ipv6).unwrap_or(IPV6_POD);
    let IpAddr::V4(pod) = own.address else { return Err(Error::Usage("--ip: no IPv4 address".into())) };
    let mask = u32::MAX << (32 - u32::from(own.prefix_bits));
    let network = pod.to_bits() & mask;
    let place = |number: u32| Ipv4Addr::from_bits(network.wrapping_add(number));
    let (host, name_server) = (place(2), place(3));
    let is_free = ![place(0), place(1), host, name_server, Ipv4Addr::from_bits(network | !mask)].contains(&pod);
    if own.prefix_bits > 28 || own.prefix_bits < 8 || !is_free {
        return Err(Error::Usage(format!(
            "--ip {pod}/{}: in the user network it is of 8 to 28 bits, and {}, {host}, {name_server} are taken in it",
            own.prefix_bits,
            place(1),
        )));
    }
    let is_in_network = |it: Ipv6Addr| it.segments()[..4] == IPV6_NETWORK.segments()[..4];
    let in_network = |it: Prefixed| matches!(it.address, IpAddr::V6(it) if is_in_network(it));
    if !in_network(own6)
        || own6.prefix_bits != 64
        || [IPV6_HOST, IPV6_NAME_SERVER].map(IpAddr::V6).contains(&own6.address)
    {
        return Err(Error::Usage(format!(
            "--ip: an IPv6 address of the user network is in {IPV6_NETWORK}/64, not 2 or 3"
        )));
    }
    config.addresses = vec![own, own6];
    config.gateways = vec![host.into(), IPV6_HOST.into()];
    config.name_servers = if options.dns.is_empty() { vec![name_server.into()] } else { options.dns.clone() };
    let network = Ipv4Addr::from_bits(network);
    config.host_networks = vec![
        Prefixed { address: network.into(), prefix_bits: own.prefix_bits },
        Prefixed { address: IPV6_NETWORK.into(), prefix_bits: 64 },
        IPV6_LINK_LOCAL,
    ];
    let prefix_bits = own.prefix_bits;
    Ok(UserNetwork { network, prefix_bits, host, name_server, pod, is_restricted: false, forwards: Vec::new() })
}

/// Addresses in a network that is not ours: those that were given, or DHCP's.
fn outer_addresses(options: &NetworkOptions, config: &mut Network) {
    config.addresses.clone_from(&options.ip);
    config.gateways.clone_from(&options.gateway);
    config.name_servers.clone_from(&options.dns);
    config.flags.set(NetworkFlags::DHCP, !options.ip.iter().any(|it| it.address.is_ipv4()));
}

/// In the user network every pod is alone; on a tap's network there are others.
fn hardware_address(backend: &Backend, chance: &[u8; 32]) -> [u8; 6] {
    match backend {
        Backend::Tap(_) => [0x52, 0x54, 0x00, chance[16], chance[17], chance[18]],
        Backend::User(_) | Backend::Socket(_) => HARDWARE_ADDRESS_DEFAULT,
    }
}

/// QEMU makes the file, or empties it.
fn check_writable(path: &Path) -> Result<(), Error> {
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| Error::Usage(format!("--pcap {}: {error}", path.display())))
}

/// Takes all ports, and chooses those that may be any.
fn take_ports(options: &NetworkOptions) -> Result<Vec<Port>, Error> {
    let mut ports: Vec<Port> = Vec::new();
    // What is named comes first, so that no port is chosen that is asked for.
    let (named, any): (Vec<_>, Vec<_>) = options.publications().partition(|it| it.host.port() != 0);
    for publication in named.into_iter().chain(any) {
        ports.push(take(publication)?);
    }
    Ok(ports)
}

fn take(mut publication: Publication) -> Result<Port, Error> {
    let is_chosen = publication.host.port() == 0;
    let (host, holder) = hold(publication.protocol, publication.host).map_err(|error| refusal(publication, &error))?;
    publication.host = host;
    let inner = if host.is_ipv6() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        match hold(publication.protocol, any).doing("taking a port")? {
            (SocketAddr::V4(inner), holder) => Some((inner, holder)),
            (SocketAddr::V6(_), _) => None,
        }
    } else {
        None
    };
    Ok(Port { publication, is_chosen, holder, inner })
}

/// Takes a port, or any if it is 0.
fn hold(protocol: Protocol, host: SocketAddr) -> std::io::Result<(SocketAddr, Holder)> {
    match protocol {
        Protocol::Tcp => TcpListener::bind(host).and_then(|it| Ok((it.local_addr()?, Holder::Tcp(it)))),
        Protocol::Udp => UdpSocket::bind(host).and_then(|it| Ok((it.local_addr()?, Holder::Udp(it)))),
    }
}

/// Why a port cannot be had, and what would help.
fn refusal(publication: Publication, error: &std::io::Error) -> Error {
    use std::io::ErrorKind;
    let Publication { protocol, host, .. } = publication;
    let name = protocol.name();
    Error::Usage(match error.kind() {
        ErrorKind::AddrInUse => match owner_of(protocol, host) {
            Some(owner) => format!("-p {host}: taken by {owner}; end that, or choose another {name} port (0 for any)"),
            None => format!("-p {host}: something else has this {name} port; choose another one (0 for any)"),
        },
        ErrorKind::AddrNotAvailable => format!("-p {host}: this host has no address {}", host.ip()),
        ErrorKind::PermissionDenied => {
            format!("-p {host}: this user may not take {name} ports below 1024; choose a higher one (0 for any)")
        }
        _ => format!("-p {host}: {error}"),
    })
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
