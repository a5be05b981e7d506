//! Which process of the host has a port: Linux's tables of sockets name a socket's number, and each process's
//! descriptors the sockets that it has.
//!
//! What this user may not see stays unseen: of another user's process only the user is known.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aegis_launch::machine::network::Protocol;

/// States in which a TCP socket keeps its port from others: `TCP_LISTEN`.
const LISTEN: &str = "0A";

/// A socket that has the port.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    inode: u64,
    uid: u32,
}

/// The process that keeps `host` from being taken, in words.
pub(crate) fn owner_of(protocol: Protocol, host: SocketAddr) -> Option<String> {
    let name = protocol.name();
    let tables = [format!("/proc/net/{name}"), format!("/proc/net/{name}6")];
    let find = |path: &String| entry_in(&fs::read_to_string(path).ok()?, protocol, host);
    let entry = tables.iter().find_map(find)?;
    Some(process_with(entry.inode).unwrap_or_else(|| format!("a process of user {}", entry.uid)))
}

/// The first socket in a table that has the port, at this address or at any.
fn entry_in(table: &str, protocol: Protocol, host: SocketAddr) -> Option<Entry> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        let is_holding = protocol == Protocol::Udp || *words.get(3)? == LISTEN;
        let address = address_of(address)?;
        let is_same = address == host.ip() || address.is_unspecified() || host.ip().is_unspecified();
        if u16::from_str_radix(port, 16) != Ok(host.port()) || !is_holding || !is_same {
            return None;
        }
        Some(Entry { uid: words.get(7)?.parse().ok()?, inode: words.get(9)?.parse().ok()? })
    })
}

/// Words of 32 bits in hexadecimal digits, each in the host's byte order.
fn address_of(digits: &str) -> Option<IpAddr> {
    if !digits.is_ascii() {
        return None;
    }
    let mut bytes = Vec::new();
    for word in digits.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let four = || <[u8; 4]>::try_from(bytes.as_slice()).ok().map(|it| IpAddr::V4(Ipv4Addr::from(it)));
    four()
        .or_else(|| <[u8; 16]>::try_from(bytes.as_slice()).ok().map(|it| IpAddr::V6(Ipv6Addr::from(it)).to_canonical()))
}

/// The process that has the socket, if this user may see it.
fn process_with(inode: u64) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let is_wanted =
            |it: &fs::DirEntry| fs::read_link(it.path()).is_ok_and(|link| link.as_os_str() == wanted.as_str());
        if descriptors.flatten().any(|it| is_wanted(&it)) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (process {number})", name.trim_end().escape_default()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Entry, entry_in, owner_of};
    use aegis_launch::machine::network::Protocol;
    use std::net::TcpListener;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0 100 0 0 10 0
   3: what is this
";

    #[test]
    fn sockets_that_listen_are_found() {
        let find = |host: &str| entry_in(TABLE, Protocol::Tcp, host.parse().expect("an address"));
        assert_eq!(find("127.0.0.1:8080"), Some(Entry { inode: 4711, uid: 1000 }));
        assert_eq!(find("0.0.0.0:8080"), Some(Entry { inode: 4711, uid: 1000 }));
        assert_eq!(find("127.0.0.2:8080"), None);
        assert_eq!(find("127.0.0.2:80"), Some(Entry { inode: 4712, uid: 0 }));
        assert_eq!(find("127.0.0.1:8081"), None, "a connection");
    }

    #[test]
    fn this_process_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let owner = owner_of(Protocol::Tcp, listener.local_addr().expect("an address")).expect("an owner");
            assert!(owner.ends_with(&format!("(process {})", std::process::id())), "{owner}");
        }
    }
}
