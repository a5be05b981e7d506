//! The network's words as users write them, and what is wrong with wrong ones.

use std::net::IpAddr;

use aegis_launch::machine::network::Protocol;
use aegis_link::network::Prefixed;

use super::{
    NetworkChoice, Publication, Range, parse_address, parse_choice, parse_hardware_address, parse_host_entry,
    parse_hostname, parse_publications,
};

fn one(protocol: Protocol, host: &str, pod_port: u16) -> Publication {
    Publication { protocol, host: host.parse().expect("an address and a port"), pod_port }
}

#[test]
fn ports_are_published_on_loopback_unless_said() {
    for (text, expected) in [
        ("8080:80", one(Protocol::Tcp, "127.0.0.1:8080", 80)),
        ("8080:80/tcp", one(Protocol::Tcp, "127.0.0.1:8080", 80)),
        ("0:80", one(Protocol::Tcp, "127.0.0.1:0", 80)),
        ("53:5353/udp", one(Protocol::Udp, "127.0.0.1:53", 5353)),
        ("0.0.0.0:8080:80", one(Protocol::Tcp, "0.0.0.0:8080", 80)),
        ("[::1]:8080:80", one(Protocol::Tcp, "[::1]:8080", 80)),
        ("[::]:0:53/udp", one(Protocol::Udp, "[::]:0", 53)),
    ] {
        assert_eq!(parse_publications(text), Ok(Range(vec![expected])), "{text}");
    }
}

#[test]
fn ranges_are_equally_long() {
    let range = parse_publications("8000-8002:9000-9002/udp").expect("a range").0;
    assert_eq!(range.len(), 3);
    assert_eq!(range[2], one(Protocol::Udp, "127.0.0.1:8002", 9002));
    let chosen = parse_publications("0:9000-9001").expect("any ports").0;
    assert_eq!(chosen[1], one(Protocol::Tcp, "127.0.0.1:0", 9001));
    assert_eq!(parse_publications("1-1:65535-65535").map(|it| it.0.len()), Ok(1));
}

#[test]
fn every_wrong_port_is_explained() {
    for (text, part) in [
        ("", "a port is"),
        ("80", "a port is"),
        ("8080:", "no port"),
        (":80", "no port"),
        ("a:80", "no port"),
        ("+1:80", "no port"),
        ("65536:80", "no port"),
        ("80:0", "from 1 to 65535"),
        ("80:80/sctp", "/tcp or /udp"),
        ("::1:8080:80", "in brackets"),
        ("[::1:8080:80", "in brackets"),
        ("[127.0.0.1]:8080:80", "in brackets"),
        ("localhost:8080:80", "in brackets"),
        ("8000-8002:9000", "equally long"),
        ("8000:9000-9002", "equally long"),
        ("8002-8000:1-3", "lower port to the higher"),
        ("0-2:1-3", "HOST is 0"),
        ("1-2000:1-2000", "at most 1024"),
        ("0-65535:0-65535", "from 1 to 65535"),
    ] {
        let why = parse_publications(text).expect_err(text);
        assert!(why.contains(part), "{text}: {why}");
    }
}

#[test]
fn networks_have_names() {
    for (text, expected) in [
        ("user", NetworkChoice::User),
        ("none", NetworkChoice::None),
        ("serve", NetworkChoice::Serve),
        ("tap", NetworkChoice::Tap(None)),
        ("tap=tap0", NetworkChoice::Tap(Some("tap0".into()))),
        ("socket=/tmp/s", NetworkChoice::Socket("/tmp/s".into())),
        ("lan=/tmp/s", NetworkChoice::Lan("/tmp/s".into())),
    ] {
        assert_eq!(parse_choice(text), Ok(expected), "{text}");
    }
    for text in
        ["", "bridge", "user=x", "none=", "tap=", "tap=a/b", "tap=a b", "tap=..", "tap=0123456789abcdef", "socket"]
    {
        assert!(parse_choice(text).is_err(), "{text}");
    }
}

#[test]
fn names_and_addresses() {
    let entry = parse_host_entry("db:192.0.2.7").expect("an entry");
    assert_eq!((entry.name.as_slice(), entry.address), (&b"db"[..], IpAddr::from([192, 0, 2, 7])));
    for text in ["six:fec0::7", "six:[fec0::7]"] {
        assert!(parse_host_entry(text).expect(text).address.is_ipv6(), "{text}");
    }
    for text in ["", "db", "db:", ":1.2.3.4", "a b:1.2.3.4", "#a:1.2.3.4", "db:1.2.3", "db:other"] {
        assert!(parse_host_entry(text).is_err(), "{text}");
    }
    let address = |text: &str, prefix_bits| Prefixed { address: text.parse().expect("an address"), prefix_bits };
    assert_eq!(parse_address("10.0.2.20"), Ok(address("10.0.2.20", 24)));
    assert_eq!(parse_address("192.168.7.9/28"), Ok(address("192.168.7.9", 28)));
    assert_eq!(parse_address("fec0::20"), Ok(address("fec0::20", 64)));
    for text in
        ["", "x", "10.0.2.20/33", "10.0.2.20/0", "10.0.2.20/", "fec0::1/129", "0.0.0.0", "224.0.0.1", "127.0.0.1"]
    {
        assert!(parse_address(text).is_err(), "{text}");
    }
    assert_eq!(parse_hardware_address("52:54:00:ab:CD:01"), Ok([0x52, 0x54, 0, 0xab, 0xcd, 1]));
    for text in
        ["", "52:54:00:12:34", "52:54:00:12:34:56:78", "53:54:00:12:34:56", "00:00:00:00:00:00", "52:54:0:12:34:56"]
    {
        assert!(parse_hardware_address(text).is_err(), "{text}");
    }
    assert_eq!(parse_hostname("web-1"), Ok("web-1".into()));
    assert!(parse_hostname("").is_err() && parse_hostname("a b").is_err() && parse_hostname(&"a".repeat(65)).is_err());
}
