//! `/sys/class/net`: what interfaces are, a file for each fact, in sysfs's formats.
//!
//! Which interfaces there are is known when the pod starts; what they are like is looked up when a file is read, and
//! not before, as that finds the card.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::text_fs::Entry;
use exos::net::inet::interface::{ETHERNET_NAME, InterfaceStatus, LOOPBACK};
use exos::net::view::NetworkView;

use super::ProcFacts;

/// Files of an interface, `statistics` apart.
const FILES: [&str; 29] = [
    "addr_assign_type",
    "addr_len",
    "address",
    "broadcast",
    "carrier",
    "carrier_changes",
    "carrier_down_count",
    "carrier_up_count",
    "dev_id",
    "dev_port",
    "dormant",
    "duplex",
    "flags",
    "gro_flush_timeout",
    "ifalias",
    "ifindex",
    "iflink",
    "link_mode",
    "mtu",
    "name_assign_type",
    "napi_defer_hard_irqs",
    "netdev_group",
    "operstate",
    "proto_down",
    "speed",
    "testing",
    "tx_queue_len",
    "type",
    "uevent",
];
/// Files of `statistics`, each with its place in `struct rtnl_link_stats64`.
const STATISTICS: [(&str, usize); 24] = [
    ("rx_packets", 0),
    ("tx_packets", 1),
    ("rx_bytes", 2),
    ("tx_bytes", 3),
    ("rx_errors", 4),
    ("tx_errors", 5),
    ("rx_dropped", 6),
    ("tx_dropped", 7),
    ("multicast", 8),
    ("collisions", 9),
    ("rx_length_errors", 10),
    ("rx_over_errors", 11),
    ("rx_crc_errors", 12),
    ("rx_frame_errors", 13),
    ("rx_fifo_errors", 14),
    ("rx_missed_errors", 15),
    ("tx_aborted_errors", 16),
    ("tx_carrier_errors", 17),
    ("tx_fifo_errors", 18),
    ("tx_heartbeat_errors", 19),
    ("tx_window_errors", 20),
    ("rx_compressed", 21),
    ("tx_compressed", 22),
    ("rx_nohandler", 23),
];

impl ProcFacts {
    /// The files of all interfaces, of which the card's is one if there `is_card`.
    pub(crate) fn interface_files(self: &Arc<Self>, is_card: bool) -> Vec<(Vec<u8>, Entry)> {
        let mut files = Vec::new();
        let card = is_card.then_some((ETHERNET_NAME, "virtio0"));
        for (name, device) in [Some((LOOPBACK.name, "virtual")), card].into_iter().flatten() {
            let folder = format!("devices/{device}/net/{name}");
            let mut put = |path: &str, entry| files.push((format!("{folder}/{path}").into_bytes(), entry));
            for file in FILES {
                put(file, self.live(name, move |interface| fact(interface, file)));
            }
            for (file, place) in STATISTICS {
                let make = move |interface: &InterfaceStatus| Ok(number(interface.statistics()[place]));
                put(&format!("statistics/{file}"), self.live(name, make));
            }
            put("subsystem", Entry::Link(b"../../../../class/net".to_vec()));
            let link = format!("../../devices/{device}/net/{name}").into_bytes();
            files.push((format!("class/net/{name}").into_bytes(), Entry::Link(link)));
        }
        files
    }

    /// A text that is made from what an interface is like when it is read. `ENODEV`: there is none with that name.
    fn live(
        self: &Arc<Self>,
        name: &'static str,
        make: impl Fn(&InterfaceStatus) -> Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Entry {
        let facts = Arc::downgrade(self);
        Entry::Live(Arc::new(move || {
            let system = facts.upgrade().ok_or(Errno::ENODEV)?.system()?;
            let view = NetworkView::of(&system.files.inet)?;
            make(view.by_name(name.as_bytes()).ok_or(Errno::ENODEV)?)
        }))
    }
}

fn number(value: impl core::fmt::Display) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

fn octets([a, b, c, d, e, f]: [u8; 6]) -> Vec<u8> {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}\n").into_bytes()
}

/// What a file says. `EINVAL`: it says nothing of a loopback interface.
fn fact(interface: &InterfaceStatus, file: &str) -> Result<Vec<u8>> {
    /// Flags that are not of the interface itself but of what it is connected to.
    const SEEN_FLAGS: u32 = 0xffff & !0x40;
    let changes = u8::from(!interface.is_loopback);
    Ok(match file {
        "addr_len" => number(6),
        "address" => octets(interface.hardware_address),
        "broadcast" => octets(interface.hardware_broadcast()),
        "carrier" => number(u8::from(interface.is_running)),
        "carrier_changes" | "carrier_up_count" => number(changes),
        "dev_id" => number("0x0"),
        "duplex" | "speed" if interface.is_loopback => return Err(Errno::EINVAL),
        "duplex" => number("unknown"),
        "speed" => number(-1),
        "flags" => number(format_args!("{:#x}", interface.flags() & SEEN_FLAGS)),
        "ifalias" => Vec::new(),
        "ifindex" | "iflink" => number(interface.index),
        "mtu" => number(interface.packet_bytes_max),
        "name_assign_type" => number(if interface.is_loopback { 2 } else { 1 }),
        "operstate" => number(match (interface.is_loopback, interface.is_running) {
            (true, _) => "unknown",
            (false, true) => "up",
            (false, false) => "down",
        }),
        "tx_queue_len" => number(1000),
        "type" => number(interface.hardware_kind()),
        "uevent" => number(format_args!("INTERFACE={}\nIFINDEX={}", interface.name, interface.index)),
        _ => number(0),
    })
}
