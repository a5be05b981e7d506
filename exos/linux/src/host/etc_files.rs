//! `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` as they are in this pod: over the root's own files, which stay
//! as they are. Where what is written is written to the root itself, they are mounted there, each a file in memory.
//!
//! The tool says which of them are the pod's (a file that its user named stays in any case). Name servers are the
//! root's own if there are some that can be reached: not those of a loopback interface that is another machine's.
//!
//! A root in which they cannot be made runs without them: whoever needs them sees what is missing.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use aegis_link::config::{Config, Flags};
use aegis_link::network::NetworkFlags;
use exos::error::{Errno, Result};
use exos::fs::location::{MountDescription, MountFlags};
use exos::fs::metadata::{FileKind, Timestamp};
use exos::fs::namespace::{Namespace, OpenHow};
use exos::fs::permission::Credentials;
use exos::fs::transfer::Buffer;
use exos::fs::vnode::{Creation, InodeRef, NewNode, WritePosition};
use exos::fs::walk::{Caller, LookupFlags};

/// Of a file that is longer no more is looked at.
const FILE_BYTES_MAX: usize = 64 << 10;
/// What the tool puts into roots that it packs: the user network's, which another network has not.
const USER_NETWORKS: &[u8] = b"nameserver 10.0.2.3\n";
/// Permissions of all three.
const PERMISSIONS: u32 = 0o644;

/// Makes the files that the configuration asks for; `/etc/resolv.conf` if it is to have what a DHCP server names.
///
/// With a `store`, an empty directory in memory, the files are in it and mounted over the root's.
pub fn make(namespace: &Arc<Namespace>, store: Option<InodeRef>, config: &Config, now: Timestamp) -> Option<InodeRef> {
    let credentials = Credentials::ROOT;
    let caller = Caller { root: namespace.root(), credentials: &credentials, umask: 0, now };
    let files = EtcFiles { namespace, store, caller };
    if config.flags.contains(Flags::HOSTS) {
        files.put(b"/etc/hosts", &hosts(config));
    }
    if config.flags.contains(Flags::HOSTNAME) {
        files.put(b"/etc/hostname", &[config.hostname.as_slice(), b"\n"].concat());
    }
    if let Some(text) = name_servers(config)
        && (config.flags.contains(Flags::NAME_SERVERS)
            || !files.read(b"/etc/resolv.conf").is_ok_and(|text| names_reachable(&text)))
    {
        files.put(b"/etc/resolv.conf", text.as_bytes());
    }
    let network = config.network.as_ref()?;
    let is_leased = network.flags.contains(NetworkFlags::DHCP)
        && network.name_servers.is_empty()
        && !config.flags.contains(Flags::KEEP_NAME_SERVERS)
        && !files.read(b"/etc/resolv.conf").is_ok_and(|text| text != USER_NETWORKS && names_reachable(&text));
    if is_leased { files.replace(b"/etc/resolv.conf", b"").ok() } else { None }
}

/// Says in `/etc/resolv.conf` what a lease named. The file is in memory, so this waits for nothing.
pub fn name_leased(file: &InodeRef, servers: impl Iterator<Item = Ipv4Addr>, now: Timestamp) {
    let text: String = servers.map(|server| format!("nameserver {server}\n")).collect();
    // Without memory there are no names.
    let _ = file.truncate(0, now).and_then(|()| file.write_at(WritePosition::At(0), &mut text.as_bytes(), now));
}

struct EtcFiles<'a> {
    namespace: &'a Arc<Namespace>,
    store: Option<InodeRef>,
    caller: Caller<'a>,
}

impl EtcFiles<'_> {
    fn read(&self, path: &[u8]) -> Result<Vec<u8>> {
        let file = self.namespace.open(&self.caller, self.namespace.root(), path, &OpenHow::READ)?;
        let mut buffer = Buffer::with_limit(FILE_BYTES_MAX);
        while file.read(&mut buffer, self.caller.now)? > 0 {}
        Ok(buffer.bytes)
    }

    /// Puts a file into place of whatever is there, unless it says the same. See the module's head about failures.
    fn put(&self, path: &[u8], text: &[u8]) {
        if self.read(path).is_ok_and(|there| there == text) {
            return;
        }
        let _ = self.replace(path, text);
    }

    /// Mounts a file that says this over the one that a path leads to, which is made if it is not there.
    fn cover(&self, store: &InodeRef, path: &[u8], text: &[u8]) -> Result<InodeRef> {
        let (namespace, now) = (self.namespace, self.caller.now);
        let place = match namespace.lookup(&self.caller, namespace.root(), path, LookupFlags::FOLLOW) {
            Err(Errno::ENOENT) => {
                namespace.create(&self.caller, namespace.root(), path, NewNode::Regular, PERMISSIONS)?
            }
            found => found?,
        };
        if place.inode().kind() != FileKind::Regular {
            return Err(Errno::EINVAL);
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let file = store.create(name, NewNode::Regular, Creation { permissions: PERMISSIONS, uid: 0, gid: 0, now })?;
        let mut source = text;
        file.write_at(WritePosition::At(0), &mut source, now)?;
        let flags = MountFlags::NO_SET_ID | MountFlags::NO_DEVICES;
        namespace.mount(&place, file.clone(), MountDescription { kind: "tmpfs", source: "tmpfs", flags });
        Ok(file)
    }

    /// What is there is removed and not written to: it may be a link, or lead out of the root.
    fn replace(&self, path: &[u8], text: &[u8]) -> Result<InodeRef> {
        let root = self.namespace.root();
        match self.namespace.create(&self.caller, root, b"/etc", NewNode::Directory, 0o755) {
            Ok(_) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        if let Some(store) = &self.store {
            return self.cover(store, path, text);
        }
        match self.namespace.unlink(&self.caller, root, path) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        let made = self.namespace.create(&self.caller, root, path, NewNode::Regular, PERMISSIONS)?;
        let mut source = text;
        made.inode().write_at(WritePosition::At(0), &mut source, self.caller.now)?;
        Ok(made.inode().clone())
    }
}

/// The pod itself, and what the run names. The pod's name stands for the card's address if that is known, so that a
/// server that binds to its name can be reached.
fn hosts(config: &Config) -> Vec<u8> {
    let mut text = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_vec();
    let mut line = |address: IpAddr, name: &[u8]| {
        text.extend_from_slice(format!("{address}\t").as_bytes());
        text.extend_from_slice(name);
        text.push(b'\n');
    };
    let own = config.network.iter().flat_map(|network| &network.addresses).map(|it| it.address);
    let own = own.into_iter().find(IpAddr::is_ipv4).unwrap_or(IpAddr::from([127, 0, 1, 1]));
    if !config.hostname.is_empty() {
        line(own, &config.hostname);
    }
    config.names.iter().for_each(|entry| line(entry.address, &entry.name));
    text
}

/// Whom to ask, if anybody is known.
fn name_servers(config: &Config) -> Option<String> {
    let servers = &config.network.as_ref()?.name_servers;
    if servers.is_empty() || config.flags.contains(Flags::KEEP_NAME_SERVERS) {
        return None;
    }
    Some(servers.iter().map(|server| format!("nameserver {server}\n")).collect())
}

/// Whether it names a server at another machine (resolv.conf(5)).
fn names_reachable(text: &[u8]) -> bool {
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| core::str::from_utf8(line).ok());
    let servers = lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        // A zone (`fe80::1%eth0`) names an interface of another machine.
        address.parse::<IpAddr>().ok()
    });
    let is_elsewhere = |address: IpAddr| !address.to_canonical().is_loopback() && !address.is_unspecified();
    servers.into_iter().any(is_elsewhere)
}

#[cfg(test)]
mod tests {
    use super::{make, name_leased, names_reachable};
    use aegis_link::config::{Config, Flags};
    use aegis_link::network::{HostEntry, Network, NetworkFlags, Prefixed};
    use alloc::string::String;
    use exos::fs::metadata::Timestamp;
    use exos::fs::namespace::OpenHow;
    use exos::fs::transfer::Buffer;

    use crate::testing::pod::World;

    fn read(world: &World, path: &str) -> Option<String> {
        let file = world.open(path, &OpenHow::READ).ok()?;
        let mut buffer = Buffer::with_limit(4096);
        file.read(&mut buffer, Timestamp::default()).expect("it can be read");
        Some(String::from_utf8(buffer.bytes).expect("text"))
    }

    fn with_card() -> Config {
        let address = |text: &str| text.parse().expect("an address");
        Config {
            network: Some(Network {
                addresses: alloc::vec![Prefixed { address: address("10.0.2.15"), prefix_bits: 24 }],
                name_servers: alloc::vec![address("10.0.2.3")],
                ..Network::default()
            }),
            names: alloc::vec![HostEntry { name: b"host.aegis".to_vec(), address: address("10.0.2.2") }],
            flags: Flags::HOSTS | Flags::HOSTNAME,
            hostname: b"web".to_vec(),
            ..Config::default()
        }
    }

    fn made(world: &World, config: &Config) {
        make(&world.pod.system.files.namespace, None, config, Timestamp::default());
    }

    #[test]
    fn names_of_a_lease_are_written_where_none_are_known() {
        let world = World::new();
        let mut config = with_card();
        let network = config.network.as_mut().expect("a card");
        network.name_servers.clear();
        network.flags |= NetworkFlags::DHCP;
        // What the tool packs is the user network's.
        made(&world, &with_card());
        assert_eq!(read(&world, "/etc/resolv.conf").map(String::into_bytes).as_deref(), Some(super::USER_NETWORKS));
        let file =
            make(&world.pod.system.files.namespace, None, &config, Timestamp::default()).expect("the lease's file");
        assert_eq!(read(&world, "/etc/resolv.conf").as_deref(), Some(""));
        let servers = ["10.1.0.53", "10.1.0.54"].map(|text| text.parse().expect("an address"));
        name_leased(&file, servers.into_iter(), Timestamp::default());
        let both = "nameserver 10.1.0.53\nnameserver 10.1.0.54\n";
        assert_eq!(read(&world, "/etc/resolv.conf").as_deref(), Some(both));
        name_leased(&file, servers.into_iter().take(1), Timestamp::default());
        assert_eq!(read(&world, "/etc/resolv.conf").as_deref(), Some("nameserver 10.1.0.53\n"));
        // What the root names stays, once it does.
        assert!(make(&world.pod.system.files.namespace, None, &config, Timestamp::default()).is_none());
    }

    #[test]
    fn a_root_that_is_written_keeps_its_own_files() {
        let world = World::new();
        let namespace = &world.pod.system.files.namespace;
        let own = [&b"/etc/hosts"[..], b"/etc/hostname"];
        let root = super::EtcFiles {
            store: None,
            namespace,
            caller: exos::fs::walk::Caller {
                root: namespace.root(),
                credentials: &exos::fs::permission::Credentials::ROOT,
                umask: 0,
                now: Timestamp::default(),
            },
        };
        root.put(own[0], b"the root's");
        let before = root.read(own[0]);
        let identity = exos::fs::memory_fs::Identity {
            device: exos::fs::metadata::DeviceNumber { major: 0, minor: 99 },
            magic: 0x0102_1994,
        };
        let limits = exos::fs::memory_fs::Limits { bytes_max: u64::MAX, inode_count_max: 8 };
        let creation = exos::fs::vnode::Creation { permissions: 0o755, uid: 0, gid: 0, now: Timestamp::default() };
        let pool = world.pod.system.shared.pool().clone();
        let store = exos::fs::memory_fs::MemoryFs::create(pool, identity, limits, creation).expect("room");
        make(namespace, Some(store), &with_card(), Timestamp::default());
        assert!(read(&world, "/etc/hosts").expect("a file").contains("\tweb\n"));
        assert_eq!(read(&world, "/etc/hostname").as_deref(), Some("web\n"));
        for path in ["/etc/hosts", "/etc/hostname"] {
            let place =
                namespace.lookup(&root.caller, namespace.root(), path.as_bytes(), exos::fs::walk::LookupFlags::FOLLOW);
            namespace.unmount(&place.expect("mounted")).expect("it is the root of a mount");
        }
        assert_eq!(root.read(own[0]), before);
        assert_eq!(root.read(own[1]).as_deref(), Ok(&b""[..]), "a place to mount at");
    }

    #[test]
    fn nothing_is_made_unasked() {
        let world = World::new();
        made(&world, &Config::default());
        for path in ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"] {
            assert_eq!(read(&world, path), None, "{path}");
        }
    }

    #[test]
    fn the_pod_knows_itself_and_the_host() {
        let world = World::new();
        made(&world, &with_card());
        let hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n10.0.2.15\tweb\n\
                     10.0.2.2\thost.aegis\n";
        assert_eq!(read(&world, "/etc/hosts").as_deref(), Some(hosts));
        assert_eq!(read(&world, "/etc/hostname").as_deref(), Some("web\n"));
        assert_eq!(read(&world, "/etc/resolv.conf").as_deref(), Some("nameserver 10.0.2.3\n"));
        made(&world, &Config { network: None, ..with_card() });
        assert!(read(&world, "/etc/hosts").expect("a file").contains("\n127.0.1.1\tweb\n"), "without a card");
    }

    #[test]
    fn name_servers_of_the_root_stay_if_they_can_be_reached() {
        let world = World::new();
        made(&world, &with_card());
        let put = |text: &[u8]| {
            let files = super::EtcFiles {
                store: None,
                namespace: &world.pod.system.files.namespace,
                caller: super::Caller {
                    root: world.pod.system.files.namespace.root(),
                    credentials: &super::Credentials::ROOT,
                    umask: 0,
                    now: Timestamp::default(),
                },
            };
            files.put(b"/etc/resolv.conf", text);
        };
        let own = "search x\nnameserver 192.0.2.1\n";
        put(own.as_bytes());
        made(&world, &with_card());
        assert_eq!(read(&world, "/etc/resolv.conf").as_deref(), Some(own));
        let mut asked = with_card();
        asked.flags |= Flags::NAME_SERVERS;
        made(&world, &asked);
        assert_eq!(read(&world, "/etc/resolv.conf").as_deref(), Some("nameserver 10.0.2.3\n"));
        let local = "nameserver 127.0.0.53\n";
        put(local.as_bytes());
        let mut kept = with_card();
        kept.flags |= Flags::KEEP_NAME_SERVERS;
        made(&world, &kept);
        assert_eq!(read(&world, "/etc/resolv.conf").as_deref(), Some(local));
        made(&world, &with_card());
        assert_eq!(read(&world, "/etc/resolv.conf").as_deref(), Some("nameserver 10.0.2.3\n"));
    }

    #[test]
    fn loopback_is_another_machines() {
        for text in [
            "",
            "nameserver",
            "nameserver 127.0.0.53",
            "nameserver ::1\nnameserver 127.0.0.1",
            "#nameserver 192.0.2.1",
            "nameserver ::ffff:127.0.0.1",
            "nameserver fe80::1%eth0",
            "nameserver x",
            "nameserver 0.0.0.0",
        ] {
            assert!(!names_reachable(text.as_bytes()), "{text:?}");
        }
        assert!(names_reachable(b"\xff\nnameserver 127.0.0.1\n nameserver\t2001:db8::1 # two\n"));
    }
}
