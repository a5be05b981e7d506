//! Which disks a run has, and their nodes below `/dev`, with Linux's names and numbers: `vda` and so on for virtio,
//! `sda` for those at a PC's own controller.

use alloc::vec::Vec;

use aegis_link::config::Config;
use aegis_link::disks::{DiskFlags, RequestOrder};
use aegis_link::drivers::Model;
use exos::block::OrderPolicy;
use exos::block::device::{DiskDescription, Disks};
use exos::error::Result;
use exos::fs::memory_fs::ensure_node;
use exos::fs::metadata::{DeviceNumber, Timestamp};
use exos::fs::namespace::Namespace;
use exos::fs::vnode::{Creation, InodeRef, NewNode};

/// Majors of virtio's disks, the first that Linux gives out as it needs them, and of SCSI's; each disk has 16 minors.
const VIRTIO_MAJOR: u32 = 254;
const SCSI_MAJOR: u32 = 8;
const MINORS_PER_DISK: u32 = 16;

/// The disks of a run.
pub fn descriptions(config: &Config) -> Vec<DiskDescription> {
    let (prefix, major) =
        if config.drivers.disk.model == Model::Ide { ("sd", SCSI_MAJOR) } else { ("vd", VIRTIO_MAJOR) };
    let order = config.disks.order.map(|order| match order {
        RequestOrder::Fifo => OrderPolicy::Fifo,
        RequestOrder::Elevator => OrderPolicy::Elevator,
        RequestOrder::Deadline => OrderPolicy::Deadline,
        RequestOrder::Program => OrderPolicy::Program,
    });
    let disks = config.disks.disks.iter().zip(0..);
    let describe = |(flags, index): (&DiskFlags, u32)| DiskDescription {
        name: alloc::format!("{prefix}{}", char::from(b'a' + index as u8)),
        number: DeviceNumber { major, minor: index * MINORS_PER_DISK },
        is_read_only: flags.contains(DiskFlags::READ_ONLY),
        order,
    };
    disks.map(describe).collect()
}

/// Makes their nodes below `root`, which becomes `/dev`.
pub(super) fn populate(root: &InodeRef, disks: &Disks, now: Timestamp) -> Result<()> {
    for device in disks.all() {
        let description = device.description();
        let creation = Creation { permissions: 0o660, uid: 0, gid: 6, now };
        ensure_node(root, description.name.as_bytes(), NewNode::BlockDevice(description.number), creation)?;
    }
    Ok(())
}

/// Puts them behind their numbers.
pub(super) fn register(namespace: &Namespace, disks: &Disks) {
    disks.behind().for_each(|(number, device)| namespace.register_block_device(number, device));
}
