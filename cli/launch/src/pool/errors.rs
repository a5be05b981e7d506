//! What can be wrong with a pool, or with what is asked of it. Each is one line behind the image's name.

use std::fmt;
use std::io;

use crate::pool::directory::{EXTENT_COUNT_MAX, UNIT_SECTORS};

/// Why nothing was done.
#[derive(Debug)]
pub enum PoolError {
    /// Nothing is there.
    Missing,
    /// Neither a file nor a block device.
    Kind,
    /// No room for a directory and an extent; bytes that it has.
    Small(u64),
    /// Another tool or machine has it.
    Busy,
    /// No copy of the directory is whole, and the image is not new.
    Damaged,
    /// The directory is of another version.
    Version(u32),
    /// An extent ends behind the image, which has become smaller.
    Outside(String),
    /// There is no such extent.
    Unknown(String),
    /// There is no such extent, and no size to make it with.
    NoSize(String),
    /// There is one of this name.
    Exists(String),
    /// It is another pod's.
    Foreign {
        /// The extent.
        name: String,
        /// Its pod.
        owner: String,
        /// The one that wants it.
        pod: String,
    },
    /// It is this pod's already, and would lose what is in it.
    Own {
        /// The extent.
        name: String,
        /// Its pod.
        owner: String,
    },
    /// It has another size.
    Size {
        /// The extent.
        name: String,
        /// What it has.
        sector_count: u64,
    },
    /// No gap is so large.
    Full {
        /// The extent to be made.
        name: String,
        /// Largest gap.
        gap_sectors: u64,
    },
    /// The directory is full.
    Count,
    /// The host refused.
    Host(&'static str, io::Error),
}

impl fmt::Display for PoolError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => out.write_str("there is no such file; truncate -s 10G FILE makes an empty one"),
            Self::Kind => out.write_str("neither a file nor a block device"),
            Self::Small(bytes) => write!(out, "its size, {bytes} bytes, is too small for a pool: at least 2 MiB"),
            Self::Busy => out.write_str("another machine or tool uses it; a pool is one machine's at a time"),
            Self::Damaged => out.write_str("it holds something, and no whole directory of a pool; it was not touched"),
            Self::Version(version) => write!(out, "its directory has version {version}, which this tool does not know"),
            Self::Outside(name) => write!(out, "extent {name} ends behind the image, which has become smaller"),
            Self::Unknown(name) => write!(out, "there is no extent {name}"),
            Self::NoSize(name) => write!(out, "there is no extent {name}; with a size it is made: pool:{name},size=1G"),
            Self::Exists(name) => write!(out, "there is an extent {name} already"),
            Self::Foreign { name, owner, pod } => {
                write!(
                    out,
                    "extent {name} belongs to pod {owner}; `aegis pool give IMAGE {name} {pod}` clears it and "
                )?;
                write!(out, "hands it over")
            }
            Self::Own { name, owner } => write!(out, "extent {name} belongs to pod {owner}; nothing was cleared"),
            Self::Size { name, sector_count } => {
                write!(out, "extent {name} has {}, and its size does not change", mebibytes(*sector_count))
            }
            Self::Full { name, gap_sectors } => {
                write!(out, "no room for extent {name}: {} are free in one piece", mebibytes(*gap_sectors))
            }
            Self::Count => write!(out, "it has {EXTENT_COUNT_MAX} extents, which is the most"),
            Self::Host(doing, error) => write!(out, "{doing}: {error}"),
        }
    }
}

fn mebibytes(sector_count: u64) -> String {
    format!("{} MiB", sector_count / UNIT_SECTORS)
}
