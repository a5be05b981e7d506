//! `mounts` and `mountinfo` (`fs/proc_namespace.c`), from the name space's mounts as the process's
//! root sees them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::fs::location::{Location, Mount, MountFlags};

use super::text::{Text, put};
use crate::task::system::System;

/// Bytes that would end a field.
const SPECIAL_IN_PATH: &[u8] = b" \t\n\\";
const SPECIAL_IN_SOURCE: &[u8] = b" \t\n\\#";

/// Where a mount is as seen from `root`; `None` if it is not below it.
fn path_of(mount: &Mount, root: &Location) -> Option<Vec<u8>> {
    let path = match mount.covers() {
        None if root.is_mount_root() && root.mount().id == mount.id => return Some(b"/".to_vec()),
        None => return None,
        Some(covered) => covered.path_from(root),
    };
    path.starts_with(b"/").then_some(path)
}

fn seen_mounts(system: &System, root: &Location) -> Vec<(Arc<Mount>, Vec<u8>)> {
    let mounts = system.files.namespace.mounts().into_iter();
    mounts.filter_map(|mount| path_of(&mount, root).map(|path| (mount, path))).collect()
}

/// `rw,nosuid,nodev,noexec,relatime`.
fn options(flags: MountFlags) -> String {
    let mut text = String::from(if flags.contains(MountFlags::READ_ONLY) { "ro" } else { "rw" });
    let named =
        [(MountFlags::NO_SET_ID, ",nosuid"), (MountFlags::NO_DEVICES, ",nodev"), (MountFlags::NO_EXECUTE, ",noexec")];
    for (flag, name) in named {
        if flags.contains(flag) {
            text.push_str(name);
        }
    }
    text.push_str(if flags.contains(MountFlags::NO_ACCESS_TIME) { ",noatime" } else { ",relatime" });
    text
}

/// `mounts`.
pub(super) fn mounts(system: &System, root: &Location, out: &mut Text<'_>) {
    for (mount, path) in seen_mounts(system, root) {
        out.escaped(mount.description.source.as_bytes(), SPECIAL_IN_SOURCE);
        out.raw(b" ");
        out.escaped(&path, SPECIAL_IN_PATH);
        put!(out, " {} {} 0 0\n", mount.description.kind, options(mount.flags()));
    }
}

/// `mountinfo`.
pub(super) fn mount_info(system: &System, root: &Location, out: &mut Text<'_>) {
    for (mount, path) in seen_mounts(system, root) {
        let parent = mount.covers().map_or(mount.id, |covered| covered.mount().id);
        let device = mount.root().inode().metadata().device;
        put!(out, "{} {parent} {}:{} / ", mount.id, device.major, device.minor);
        out.escaped(&path, SPECIAL_IN_PATH);
        put!(out, " {} - {} ", options(mount.flags()), mount.description.kind);
        out.escaped(mount.description.source.as_bytes(), SPECIAL_IN_SOURCE);
        let state = if mount.flags().contains(MountFlags::READ_ONLY) { "ro" } else { "rw" };
        put!(out, " {state}\n");
    }
}
