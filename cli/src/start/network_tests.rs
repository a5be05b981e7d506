//! Networks as the tool makes them, and every reason against one.

use std::net::{TcpListener, UdpSocket};

use aegis_launch::machine::network::{Backend, Card};
use aegis_link::config::Flags;
use aegis_link::network::{Network, NetworkFlags};
use clap::Parser;

use super::{PodNetwork, etc_files, names};
use crate::options::groups::{MachineOptions, PodOptions};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    pod: PodOptions,
    #[command(flatten)]
    machine: MachineOptions,
}

fn line(words: &str) -> Line {
    Line::try_parse_from(std::iter::once("x").chain(words.split_whitespace())).unwrap_or_else(|why| panic!("{why}"))
}

fn make(words: &str) -> Result<Option<PodNetwork>, String> {
    let words = std::iter::once("x").chain(words.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    PodNetwork::make(&line.pod.network, &line.machine, None, &[7; 32], &|| true).map_err(|error| error.to_string())
}

fn made(words: &str) -> PodNetwork {
    make(words).unwrap_or_else(|why| panic!("{words}: {why}")).unwrap_or_else(|| panic!("{words}: no card"))
}

fn refusal(words: &str) -> String {
    make(words).map(|_| ()).expect_err(words)
}

/// Where the card leads, as QEMU is told.
fn user(card: &Card) -> (String, bool) {
    match &card.backend {
        Backend::User(it) => {
            (format!("{}/{} {} {} {}", it.network, it.prefix_bits, it.host, it.name_server, it.pod), it.is_restricted)
        }
        other => panic!("{other:?}"),
    }
}

fn addresses(config: &Network) -> Vec<String> {
    config.addresses.iter().map(|it| format!("{}/{}", it.address, it.prefix_bits)).collect()
}

#[test]
fn there_is_a_user_network_unless_said() {
    let network = made("");
    assert_eq!(user(&network.card), ("10.0.2.0/24 10.0.2.2 10.0.2.3 10.0.2.15".into(), false));
    assert_eq!(addresses(&network.config), ["10.0.2.15/24", "fec0::15/64"]);
    assert_eq!(network.config.name_servers, ["10.0.2.3".parse::<std::net::IpAddr>().expect("an address")]);
    assert!(network.config.flags.is_empty() && network.ports.is_empty());
    assert_eq!(network.config.host_networks.len(), 3);
    assert!(make("--network none").expect("no card").is_none());
    assert!(make("--icount").expect("no card").is_none(), "timers of QEMU's network would be counted");
    assert!(make("--icount -p 0:80").expect("a card").is_some());
}

#[test]
fn a_qemu_may_have_no_network() {
    let make = |words: &str| {
        let line = line(words);
        let made = PodNetwork::make(&line.pod.network, &line.machine, None, &[7; 32], &|| false);
        made.map(|network| network.is_some()).map_err(|error| error.to_string())
    };
    assert_eq!(make(""), Ok(false), "nobody asked for one");
    for words in ["--network user", "--network serve", "-p 0:80", "--host-access", "--pcap /tmp/x"] {
        assert!(make(words).expect_err(words).contains("built without its user network"), "{words}");
    }
}

#[test]
fn serving_lets_nothing_out() {
    let network = made("--network serve -p 0:80");
    assert!(user(&network.card).1);
    assert!(network.config.name_servers.is_empty());
    assert!(made("--host-access").config.flags.contains(NetworkFlags::HOST_ACCESS));
}

#[test]
fn everything_follows_from_the_pods_address() {
    let network = made(
        "--ip 192.168.7.20/27 --ip fec0::77 --dns 192.0.2.1 --dns 2001:db8::1 --add-host db:192.0.2.7 \
         --mac 02:00:00:00:00:01",
    );
    assert_eq!(user(&network.card).0, "192.168.7.0/27 192.168.7.2 192.168.7.3 192.168.7.20");
    assert_eq!(addresses(&network.config), ["192.168.7.20/27", "fec0::77/64"]);
    assert_eq!(network.config.name_servers.len(), 2);
    assert_eq!(network.card.hardware_address, [2, 0, 0, 0, 0, 1]);
    for words in
        ["--ip 10.0.2.2", "--ip 10.0.2.3", "--ip 10.0.2.0", "--ip 10.0.2.255", "--ip 10.0.2.5/30", "--ip 10.0.2.5/4"]
    {
        assert!(refusal(words).contains("are taken in it"), "{words}");
    }
    for words in ["--ip 2001:db8::1", "--ip fec0::2", "--ip fec0::3", "--ip fec0::15/48"] {
        assert!(refusal(words).contains("fec0::/64"), "{words}");
    }
}

#[test]
fn files_that_the_user_named_stay() {
    let card = made("");
    let files = |words: &str| etc_files(&line(words).pod, b"aegis", Some(&card));
    let both = Flags::HOSTS | Flags::HOSTNAME;
    assert_eq!(files(""), both);
    assert_eq!(files("--dns 192.0.2.1"), both | Flags::NAME_SERVERS);
    assert_eq!(files("--with x:/etc/hosts"), Flags::HOSTNAME);
    assert_eq!(files("--with /etc/hosts --with x:/etc/host"), Flags::HOSTNAME);
    assert_eq!(files("-v .:/etc --dns 192.0.2.1"), Flags::KEEP_NAME_SERVERS);
    assert_eq!(files("--with r:/etc/resolv.conf"), both | Flags::KEEP_NAME_SERVERS);
    assert_eq!(etc_files(&line("").pod, b"aegis", None), Flags::empty());
    assert_eq!(etc_files(&line("").pod, b"web", None), both);
    assert_eq!(etc_files(&line("--add-host db:127.0.0.9").pod, b"aegis", None), both);
    let known = |words: &str, network| {
        names(&line(words).pod, network).iter().map(|it| it.address.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(known("--add-host db:192.0.2.7", Some(&card)), ["10.0.2.2", "192.0.2.7"]);
    assert_eq!(known("--add-host db:192.0.2.7", None), ["192.0.2.7"]);
}

#[test]
fn ports_are_held_until_they_are_let_go() {
    let network = made("-p 0:80 -p 0:53/udp");
    let hosts: Vec<_> = network.ports.iter().map(|port| port.publication.host).collect();
    assert!(network.ports.iter().all(|port| port.is_chosen) && hosts.iter().all(|host| host.port() != 0));
    assert!(TcpListener::bind(hosts[0]).is_err() && UdpSocket::bind(hosts[1]).is_err());
    assert_eq!(network.ports[0].to_string(), format!("{} -> 80/tcp", hosts[0]));
    assert!(network.ports.into_iter().all(|port| port.release().is_none()), "QEMU forwards both");
    assert!(TcpListener::bind(hosts[0]).is_ok() && UdpSocket::bind(hosts[1]).is_ok());
}

#[test]
fn ipv6_is_relayed_to_what_is_forwarded() {
    let network = match make("-p [::1]:0:80 -p [::1]:0:53/udp") {
        Err(why) if why.contains("has no address") => return,
        made => made.expect("ports").expect("a card"),
    };
    let Backend::User(user) = &network.card.backend else { panic!("no user network") };
    for (port, forward) in network.ports.iter().zip(&user.forwards) {
        assert!(port.publication.host.is_ipv6() && forward.host.ip().is_loopback());
        assert_eq!((forward.protocol, forward.pod_port), (port.publication.protocol, port.publication.pod_port));
    }
    assert_eq!((network.ports.len(), user.forwards.len()), (2, 2));
    assert_eq!(network.ports.into_iter().filter_map(super::Port::release).count(), 2);
}

#[test]
fn a_port_that_is_taken_is_somebodys() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let why = refusal(&format!("-p {port}:80"));
    let owner = format!("(process {})", std::process::id());
    assert!(why.starts_with(&format!("-p 127.0.0.1:{port}: taken by ")) && why.contains(&owner), "{why}");
    assert!(why.ends_with("(0 for any)"), "{why}");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    assert!(refusal(&format!("-p {free}:80 -p {free}:81")).contains("taken by"), "twice the same");
    assert!(refusal("-p 192.0.2.1:0:80").contains("has no address 192.0.2.1"));
}

#[test]
fn contradictions_are_refused() {
    for (words, part) in [
        ("--network none -p 0:80", "-p: this pod has --network none"),
        ("--network none --host-access", "--host-access: this pod has --network none"),
        ("--network none --pcap /tmp/x", "--pcap: this pod"),
        ("--network none --dns 1.1.1.1", "--dns: this pod"),
        ("--network none --ip 10.0.2.9", "--ip: this pod"),
        ("--network none --mac 02:00:00:00:00:01", "--mac: this pod"),
        ("--network tap=x -p 0:80", "-p: only with --network user or serve"),
        ("--network serve --host-access", "--host-access: --network serve lets nothing out"),
        ("--network tap=x --host-access", "--host-access: only with --network user"),
        ("--gateway 10.0.2.2", "--gateway: only with --network tap"),
        ("--network tap=x --gateway 192.0.2.1 --gateway 192.0.2.2", "--gateway: one address of each family"),
        ("--ip 10.0.2.9 --ip 10.0.2.10", "--ip: one address of each family"),
        ("--network tap=aegis-no-such", "--network tap: "),
        ("--pcap /no/such/folder/x", "--pcap /no/such/folder/x: "),
        ("-p 1-600:1-600 -p 1001-1600:1-600", "more than 1024 ports"),
    ] {
        let why = refusal(words);
        assert!(why.contains(part), "{words}: {why}");
    }
}
