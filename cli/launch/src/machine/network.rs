//! A pod's network card and what it is connected to, as QEMU is told.
//!
//! Three backends: QEMU's user network, in which QEMU itself speaks TCP and UDP with the host's sockets (no rights
//! needed, ports of the host can be forwarded into it); a tap interface of the host; and for tests a socket at whose
//! other end somebody plays the network frame by frame.
//!
//! Of the card's options: the receive queue is as long as QEMU lets it be, so that a burst fits; QEMU has nothing to
//! announce after a migration that never happens; on PCI it has no firmware of its own, which would boot from there.

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use aegis_link::drivers::Model;

use crate::cache::{Cache, KeyHasher};

/// The card's Ethernet address, unless something else is said: QEMU's own first one.
pub const HARDWARE_ADDRESS_DEFAULT: [u8; 6] = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

/// A card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// What card it is.
    pub model: Model,
    /// What it is connected to.
    pub backend: Backend,
    /// Its Ethernet address.
    pub hardware_address: [u8; 6],
    /// Where all its frames are written, in tcpdump's format.
    pub capture: Option<PathBuf>,
}

/// What a card is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// QEMU's user network.
    User(UserNetwork),
    /// A tap interface of the host, by name.
    Tap(String),
    /// A Unix socket on which somebody listens; frames come and go behind their length (u32, big-endian).
    Socket(PathBuf),
}

/// QEMU's user network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNetwork {
    /// Its IPv4 network.
    pub network: Ipv4Addr,
    /// Length of its prefix.
    pub prefix_bits: u8,
    /// The address in it at which the host answers, which is the router too.
    pub host: Ipv4Addr,
    /// Name server.
    pub name_server: Ipv4Addr,
    /// The pod's address.
    pub pod: Ipv4Addr,
    /// Only forwarded ports lead anywhere.
    pub is_restricted: bool,
    /// Ports of the host that lead to the pod.
    pub forwards: Vec<Forward>,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// The name that QEMU and `-p` use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A port of the host that leads to one of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Of which protocol.
    pub protocol: Protocol,
    /// Address and port on the host. QEMU forwards no IPv6.
    pub host: SocketAddrV4,
    /// Port of the pod.
    pub pod_port: u16,
}

impl Card {
    /// The value of `-netdev`, for a backend of this name.
    pub(crate) fn netdev(&self, name: &str) -> OsString {
        let words = match &self.backend {
            Backend::User(network) => network.netdev(name),
            Backend::Tap(interface) => {
                format!("tap,id={name},ifname={},script=no,downscript=no", doubled_text(interface))
            }
            Backend::Socket(path) => {
                let mut words = OsString::from(format!("stream,id={name},server=off,addr.type=unix,addr.path="));
                words.push(doubled(path.as_os_str()));
                return words;
            }
        };
        words.into()
    }

    /// What stands behind the device's kind and bus in the value of `-device`.
    pub(crate) fn device_options(&self, name: &str) -> String {
        let [a, b, c, d, e, f] = self.hardware_address;
        let hardware_address = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        let own = match self.model {
            Model::Virtio => ",rx_queue_size=1024,guest_announce=off",
            _ => "",
        };
        format!(",netdev={name},mac={hardware_address}{own}")
    }

    /// The value of `-object` that writes all frames to a file.
    pub(crate) fn capture_object(&self, name: &str) -> Option<OsString> {
        let path = self.capture.as_ref()?;
        let mut words = OsString::from(format!("filter-dump,id={name}-capture,netdev={name},file="));
        words.push(doubled(path.as_os_str()));
        Some(words)
    }
}

impl UserNetwork {
    fn netdev(&self, name: &str) -> String {
        let Self { network, prefix_bits, host, name_server, pod, .. } = self;
        let mut words = format!("user,id={name},net={network}/{prefix_bits},host={host},dns={name_server}");
        words.push_str(&format!(",dhcpstart={pod}"));
        if self.is_restricted {
            words.push_str(",restrict=on");
        }
        for Forward { protocol, host, pod_port } in &self.forwards {
            let protocol = protocol.name();
            words.push_str(&format!(",hostfwd={protocol}:{}:{}-{pod}:{pod_port}", host.ip(), host.port()));
        }
        words
    }
}

/// How long QEMU has to name its backends, and how long one looks away meanwhile.
const ASKING_MS_MAX: u64 = 5000;
const ASKING_STEP_MS: u64 = 2;
/// Name of what is remembered of QEMU's backends.
const NOTE: &str = "netdev";

/// Whether this QEMU has a user network: a build may lack it. Asked once and remembered for this file. One that does
/// not start says so better when it is started.
pub fn has_user_network(qemu: &Path, cache: Option<&Cache>) -> bool {
    let mut hasher = KeyHasher::default();
    hasher.add(qemu.as_os_str().as_bytes());
    if let Ok(metadata) = std::fs::metadata(qemu) {
        hasher.add_u64(metadata.len()).add(&metadata.mtime().to_le_bytes()).add(&metadata.mtime_nsec().to_le_bytes());
    }
    let key = format!("{:032x}", hasher.key());
    let known = cache.and_then(|cache| cache.note(NOTE)).and_then(|note| verdict_in(&note, &key));
    known.unwrap_or_else(|| {
        let Some(has_it) = ask(qemu, ASKING_MS_MAX) else { return true };
        if let Some(cache) = cache {
            cache.set_note(NOTE, &format!("{key} {}\n", if has_it { "user" } else { "none" }));
        }
        has_it
    })
}

fn verdict_in(note: &str, key: &str) -> Option<bool> {
    match note.trim_end().split_once(' ') {
        Some((known, "user")) if known == key => Some(true),
        Some((known, "none")) if known == key => Some(false),
        _ => None,
    }
}

/// `None`: it does not say so in that time.
fn ask(qemu: &Path, limit_ms: u64) -> Option<bool> {
    let mut command = Command::new(qemu);
    command.args(["-netdev", "help"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    for _ in 0..limit_ms / ASKING_STEP_MS {
        if child.try_wait().ok()?.is_some() {
            let output = child.wait_with_output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            return output.status.success().then(|| text.lines().any(|line| line.trim() == "user"));
        }
        std::thread::sleep(Duration::from_millis(ASKING_STEP_MS));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// A value for QEMU's options, in which a comma is written twice.
fn doubled(text: &OsStr) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    for byte in text.as_bytes() {
        bytes.extend_from_slice(if *byte == b',' { b",," } else { std::slice::from_ref(byte) });
    }
    OsString::from_vec(bytes)
}

fn doubled_text(text: &str) -> String {
    text.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::{
        Backend, Card, Forward, HARDWARE_ADDRESS_DEFAULT, Protocol, UserNetwork, ask, has_user_network, verdict_in,
    };
    use crate::cache::Cache;
    use aegis_link::drivers::Model;
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;

    fn card(backend: Backend) -> Card {
        Card { model: Model::Virtio, backend, hardware_address: HARDWARE_ADDRESS_DEFAULT, capture: None }
    }

    #[test]
    fn the_user_network_forwards_ports() {
        let forward =
            |protocol, host: &str, pod_port| Forward { protocol, host: host.parse().expect("an address"), pod_port };
        let mut network = UserNetwork {
            network: Ipv4Addr::new(10, 0, 2, 0),
            prefix_bits: 24,
            host: Ipv4Addr::new(10, 0, 2, 2),
            name_server: Ipv4Addr::new(10, 0, 2, 3),
            pod: Ipv4Addr::new(10, 0, 2, 15),
            is_restricted: false,
            forwards: vec![forward(Protocol::Tcp, "127.0.0.1:8080", 80), forward(Protocol::Udp, "0.0.0.0:5353", 53)],
        };
        assert_eq!(
            card(Backend::User(network.clone())).netdev("net0"),
            "user,id=net0,net=10.0.2.0/24,host=10.0.2.2,dns=10.0.2.3,dhcpstart=10.0.2.15,\
             hostfwd=tcp:127.0.0.1:8080-10.0.2.15:80,hostfwd=udp:0.0.0.0:5353-10.0.2.15:53"
        );
        network.is_restricted = true;
        network.forwards.clear();
        let words = card(Backend::User(network)).netdev("net0");
        assert!(words.to_string_lossy().ends_with(",dhcpstart=10.0.2.15,restrict=on"), "{words:?}");
    }

    #[test]
    fn a_qemu_is_asked_once() {
        assert_eq!(verdict_in("abc user\n", "abc"), Some(true));
        assert_eq!(verdict_in("abc none\n", "abc"), Some(false));
        assert_eq!((verdict_in("abc user", "abd"), verdict_in("", ""), verdict_in("abc x", "abc")), (None, None, None));
        let folder = std::env::temp_dir().join(format!("aegis-netdev-{}", std::process::id()));
        let cache = Cache::at(&folder).expect("a folder");
        let (qemu, asked) = (folder.join("qemu"), folder.join("asked"));
        let script = format!("#!/bin/sh\necho >> {}\necho Available:; echo tap\n", asked.display());
        std::fs::write(&qemu, script).expect("a file");
        std::fs::set_permissions(&qemu, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        assert!(!has_user_network(&qemu, Some(&cache)) && !has_user_network(&qemu, Some(&cache)));
        assert_eq!(std::fs::read_to_string(&asked).expect("it was asked").lines().count(), 1);
        assert!(has_user_network(&folder.join("no-qemu"), Some(&cache)), "its start will say more");
        std::fs::write(&qemu, "#!/bin/sh\nexec sleep 60\n").expect("a file");
        assert_eq!(ask(&qemu, 50), None, "it says nothing");
        std::fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn names_with_commas_stay_one_value() {
        assert_eq!(card(Backend::Tap("t,0".into())).netdev("n"), "tap,id=n,ifname=t,,0,script=no,downscript=no");
        let mut card = card(Backend::Socket("/tmp/a,b".into()));
        assert_eq!(card.netdev("n"), "stream,id=n,server=off,addr.type=unix,addr.path=/tmp/a,,b");
        assert_eq!(card.capture_object("n"), None);
        card.capture = Some("/tmp/x,y".into());
        let object = card.capture_object("n").expect("a capture");
        assert_eq!(object, "filter-dump,id=n-capture,netdev=n,file=/tmp/x,,y");
        assert_eq!(card.device_options("n"), ",netdev=n,mac=52:54:00:12:34:56,rx_queue_size=1024,guest_announce=off");
        card.model = Model::E1000e;
        assert_eq!(card.device_options("n"), ",netdev=n,mac=52:54:00:12:34:56");
    }
}
