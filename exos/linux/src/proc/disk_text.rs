//! What is told of disks: `/sys/block`, `/proc/partitions` and `/proc/diskstats`, in Linux's formats.
//!
//! A file that says what a disk is starts it, as opening it does; `/proc/diskstats` does not.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::block::OrderPolicy;
use exos::block::device::{DiskDevice, Disks};
use exos::block::disk::{DiskLimits, RangeLimits, SECTOR_BYTES};
use exos::block::statistics::{KindStatistics, Statistics};
use exos::error::Result;
use exos::fs::text_fs::Entry;

use super::text::{Text, put};

const NS_PER_MS: u64 = 1_000_000;

/// Files of a disk that say what it is.
const FILES: [&str; 22] = [
    "alignment_offset",
    "capability",
    "discard_alignment",
    "hidden",
    "removable",
    "ro",
    "size",
    "queue/discard_granularity",
    "queue/discard_max_bytes",
    "queue/hw_sector_size",
    "queue/logical_block_size",
    "queue/max_hw_sectors_kb",
    "queue/max_sectors_kb",
    "queue/max_segment_size",
    "queue/max_segments",
    "queue/minimum_io_size",
    "queue/optimal_io_size",
    "queue/physical_block_size",
    "queue/rotational",
    "queue/nr_requests",
    "queue/write_cache",
    "queue/write_zeroes_max_bytes",
];

/// The files of all disks below `/sys`.
pub(crate) fn files(disks: &Disks) -> Vec<(Vec<u8>, Entry)> {
    let mut files = Vec::new();
    for device in disks.all() {
        let name = device.description().name.clone();
        let folder = format!("devices/virtual/block/{name}");
        let mut put = |path: &str, entry| files.push((format!("{folder}/{path}").into_bytes(), entry));
        for file in FILES {
            put(file, live(device, move |device| Ok(format!("{}\n", fact(&device.limits()?, file)))));
        }
        let number = device.description().number;
        put("dev", Entry::Text(format!("{}:{}\n", number.major, number.minor).into_bytes()));
        put("range", Entry::Text(b"16\n".to_vec()));
        put("stat", live(device, |device| Ok(format!("{}\n", figures(&device.statistics())))));
        put("queue/read_ahead_kb", live(device, |device| Ok(format!("{}\n", device.read_ahead_sectors() / 2))));
        put("queue/scheduler", live(device, |device| Ok(scheduler(device.queue()?.policy()))));
        put("subsystem", Entry::Link(b"../../../../class/block".to_vec()));
        for place in ["block", "class/block"] {
            let up = if place == "block" { ".." } else { "../.." };
            files.push((format!("{place}/{name}").into_bytes(), Entry::Link(format!("{up}/{folder}").into_bytes())));
        }
    }
    files
}

fn live(device: &Arc<DiskDevice>, make: impl Fn(&DiskDevice) -> Result<String> + Send + Sync + 'static) -> Entry {
    let device = device.clone();
    Entry::Live(Arc::new(move || make(&device).map(String::into_bytes)))
}

fn fact(limits: &DiskLimits, file: &str) -> String {
    let bytes = |range: Option<RangeLimits>| {
        range.map_or(0, |range| u64::from(range.sector_count_max) * u64::from(SECTOR_BYTES))
    };
    let kib = u64::from(limits.sector_count_max) * u64::from(SECTOR_BYTES) / 1024;
    let number = match file {
        "ro" => u64::from(limits.is_read_only),
        "size" => limits.sector_count,
        "queue/discard_granularity" => {
            limits.discard.map_or(0, |range| u64::from(range.alignment_sectors.max(1)) * u64::from(SECTOR_BYTES))
        }
        "queue/discard_max_bytes" => bytes(limits.discard),
        "queue/write_zeroes_max_bytes" => bytes(limits.write_zeroes),
        "queue/hw_sector_size" | "queue/logical_block_size" => u64::from(limits.logical_block_bytes),
        "queue/physical_block_size" | "queue/minimum_io_size" => u64::from(limits.physical_block_bytes),
        "queue/max_hw_sectors_kb" | "queue/max_sectors_kb" => kib,
        "queue/max_segment_size" => u64::from(limits.segment_bytes_max),
        "queue/max_segments" => u64::from(limits.segment_count_max),
        "queue/rotational" => u64::from(limits.is_rotational),
        "queue/nr_requests" => u64::from(limits.depth),
        "queue/write_cache" => {
            return String::from(if limits.has_write_cache { "write back" } else { "write through" });
        }
        _ => 0,
    };
    format!("{number}")
}

/// All orders, the one in force in brackets.
fn scheduler(policy: OrderPolicy) -> String {
    let names = OrderPolicy::ALL.map(|(name, other)| if other == policy { format!("[{name}]") } else { name.into() });
    format!("{}\n", names.join(" "))
}

/// The figures of `Documentation/admin-guide/iostats.rst`.
fn figures(statistics: &Statistics) -> String {
    let kind = |kind: &KindStatistics| {
        format!("{:8} {:8} {:8} {:8}", kind.request_count, 0, kind.sector_count, kind.busy_ns / NS_PER_MS)
    };
    let Statistics { read, write, discard, flush, under_way_count, busy_ns, weighted_ns, .. } = statistics;
    format!(
        "{} {} {under_way_count:8} {:8} {:8} {} {:8} {:8}",
        kind(read),
        kind(write),
        busy_ns / NS_PER_MS,
        weighted_ns / NS_PER_MS,
        kind(discard),
        flush.request_count,
        flush.busy_ns / NS_PER_MS,
    )
}

/// `/proc/diskstats`.
pub(super) fn statistics(disks: &Disks, out: &mut Text<'_>) {
    for device in disks.all() {
        let description = device.description();
        let words = figures(&device.statistics());
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        put!(out, "{:4} {:7} {} {words}\n", description.number.major, description.number.minor, description.name);
    }
}

/// `/proc/partitions`: whole disks, as there are no partitions.
pub(super) fn partitions(disks: &Disks, out: &mut Text<'_>) {
    if disks.all().is_empty() {
        return;
    }
    out.raw(b"major minor  #blocks  name\n\n");
    for device in disks.all() {
        let description = device.description();
        let block_count = device.size_bytes().unwrap_or(0) / 1024;
        let number = description.number;
        put!(out, "{:4}  {:7} {block_count:10} {}\n", number.major, number.minor, description.name);
    }
}
