//! `--disk` and `--io-order`: images of the host that are a pod's disks, and the order of what is asked of them.
//!
//! Words are read here; whether there are such files is found out when the machine is made ([`DiskImage::check`]).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use aegis_launch::machine::disks::{DiskImage, SERIAL_BYTES_MAX, absolute};
use aegis_launch::pool::directory::{SECTOR_BYTES, UNIT_SECTORS};
use aegis_link::disks::{DISK_COUNT_MAX, DiskFlags, Disks, IDE_DISK_COUNT_MAX, KERNEL_DISK_COUNT_MAX, RequestOrder};
use aegis_link::drivers::{Driver, Model, Placement};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::options::values::{parse_bytes, parse_name};

/// How a disk is written.
const FORM: &str = "PATH[,ro][,serial=TEXT]";

// The disks of a pod: on the command line, and in a table of `aegis up`'s file. (No documentation comment: clap would
// make it the text of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DiskOptions {
    /// Make a raw image of the host a disk: /dev/vda, /dev/vdb, ... (repeatable)
    #[arg(
        long = "disk",
        value_name = "PATH[,ro][,serial=TEXT]",
        value_parser = OsStringValueParser::new().try_map(parse_disk_here)
    )]
    pub(crate) disks: Vec<DiskImage>,
    /// Those that are extents of the machine's pool, in the order of their places.
    #[arg(skip)]
    pub(crate) extents: Vec<PoolDisk>,
    /// Order of the requests to disks [default: deadline; elevator for ide]
    #[arg(long = "io-order", value_name = "fifo|elevator|deadline|program", value_parser = parse_order)]
    pub(crate) order: Option<RequestOrder>,
}

impl DiskOptions {
    /// What the library OS is told of them.
    pub(crate) fn config(&self) -> Disks {
        let flags = |is_read_only| if is_read_only { DiskFlags::READ_ONLY } else { DiskFlags::empty() };
        let mut disks: Vec<DiskFlags> = self.disks.iter().map(|disk| flags(disk.is_read_only)).collect();
        for extent in &self.extents {
            disks.insert(extent.place.min(disks.len()), DiskFlags::POOLED | flags(extent.is_read_only));
        }
        Disks { disks, order: self.order }
    }

    /// Looks at them.
    ///
    /// # Errors
    /// A file that cannot be a disk, or one too many for devices that this driver drives.
    pub(crate) fn check(&self, driver: Driver) -> Result<(), aegis_launch::errors::Error> {
        let Driver { placement, model } = driver;
        let count_max = match (placement, model) {
            // A domain has the whole controller, and one disk.
            (Placement::Domain, Model::Ide) => 1,
            (_, Model::Ide) => IDE_DISK_COUNT_MAX,
            (Placement::Kernel, _) => KERNEL_DISK_COUNT_MAX,
            _ => DISK_COUNT_MAX,
        };
        if self.disks.len() > count_max {
            let (placement, model) = (placement.name(), model.name());
            let text = format!("--disk: at most {count_max} with disk={placement}:{model}");
            return Err(aegis_launch::errors::Error::Usage(text));
        }
        if self.disks.len() + self.extents.len() > DISK_COUNT_MAX {
            let text = format!("disk: a pod has at most {DISK_COUNT_MAX}, those of the pool among them");
            return Err(aegis_launch::errors::Error::Usage(text));
        }
        self.disks.iter().try_for_each(DiskImage::check)
    }
}

/// A disk of a pod that is an extent of the machine's pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolDisk {
    /// The extent.
    pub(crate) name: String,
    pub(crate) is_read_only: bool,
    /// Its size, by which it is made if it is not there.
    pub(crate) sector_count: Option<u64>,
    /// Its place among all disks of the pod.
    pub(crate) place: usize,
    /// Where it stands in the file, in bytes.
    pub(crate) at: usize,
}

/// What a disk of the pool begins with.
const POOL_PREFIX: &str = "pool:";
/// How one is written.
const POOL_FORM: &str = "pool:NAME[,size=SIZE][,ro]";

impl PoolDisk {
    /// Reads one; `None` for a disk that is none of the pool's.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, String>> {
        Some(Self::parse_words(text.strip_prefix(POOL_PREFIX)?))
    }

    fn parse_words(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        let name = parse_name(name).map_err(|why| format!("{POOL_FORM}: NAME has {why}"))?;
        let mut disk = Self { name, is_read_only: false, sector_count: None, place: 0, at: 0 };
        for word in words {
            match word.split_once('=') {
                None if word == "ro" => disk.is_read_only = true,
                Some(("size", size)) => disk.sector_count = Some(parse_extent_size(size)?),
                _ => return Err(format!("{word}: a disk of the pool is {POOL_FORM}")),
            }
        }
        Ok(disk)
    }
}

/// The size of an extent, in sectors.
pub(crate) fn parse_extent_size(text: &str) -> Result<u64, String> {
    let sector_count = parse_bytes(text)? / SECTOR_BYTES;
    if sector_count == 0 || !sector_count.is_multiple_of(UNIT_SECTORS) {
        return Err(format!("{text}: an extent has whole MiB, such as 4G"));
    }
    Ok(sector_count)
}

/// `--disk`, whose path begins where the tool was started.
fn parse_disk_here(text: OsString) -> Result<DiskImage, String> {
    if text.as_bytes().starts_with(POOL_PREFIX.as_bytes()) {
        let text = text.display();
        return Err(format!("a pool is for the pods of `aegis up`; a file that is called so is ./{text}"));
    }
    parse_disk(text, &std::env::current_dir().unwrap_or_else(|_| "/".into()))
}

/// A disk, whose path begins at `base`.
pub(crate) fn parse_disk(text: OsString, base: &Path) -> Result<DiskImage, String> {
    let bytes = text.as_bytes();
    let mut words = bytes.split(|byte| *byte == b',');
    let path = PathBuf::from(OsString::from_vec(words.next().unwrap_or_default().to_vec()));
    if path.as_os_str().is_empty() {
        return Err(FORM.into());
    }
    let mut disk = DiskImage { path: absolute(&path, base), is_read_only: false, serial: None, failures: None };
    for word in words {
        let text = std::str::from_utf8(word).map_err(|_| FORM.to_owned())?;
        match text.split_once('=') {
            None if text == "ro" => disk.is_read_only = true,
            Some(("serial", serial)) => disk.serial = Some(parse_serial(serial)?),
            // For tests: rules of QEMU's blkdebug.
            Some(("failures", rules)) => disk.failures = Some(absolute(Path::new(rules), base)),
            _ => return Err(format!("{text}: a disk is {FORM}")),
        }
    }
    Ok(disk)
}

fn parse_serial(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_plain || !(1..=SERIAL_BYTES_MAX).contains(&text.len()) {
        return Err(format!("a serial number has 1 to {SERIAL_BYTES_MAX} letters, digits, '-', '_' or '.'"));
    }
    Ok(text.to_owned())
}

/// `--io-order`.
pub(crate) fn parse_order(text: &str) -> Result<RequestOrder, String> {
    let names = RequestOrder::ALL.map(RequestOrder::name).join(", ");
    let order = RequestOrder::ALL.into_iter().find(|order| order.name() == text);
    order.ok_or_else(|| format!("an order is one of {names}"))
}

#[cfg(test)]
mod tests {
    use super::{DiskOptions, PoolDisk, parse_disk, parse_disk_here, parse_order};
    use aegis_link::disks::{DISK_COUNT_MAX, DiskFlags, RequestOrder};
    use aegis_link::drivers::{Driver, Model, Placement};

    #[test]
    fn words_are_read() {
        let disk = parse_disk("/a/b.raw,ro,serial=A-1".into(), "/c".as_ref()).expect("a disk");
        assert_eq!(
            (disk.path.to_str(), disk.is_read_only, disk.serial.as_deref()),
            (Some("/a/b.raw"), true, Some("A-1"))
        );
        assert_eq!(parse_disk("x".into(), "/c".as_ref()).expect("a disk").path.to_str(), Some("/c/x"));
        for text in ["", ",ro", "x,rw", "x,serial=", "x,serial=a b", "x,serial=012345678901234567890", "x,ro=1"] {
            assert!(parse_disk(text.into(), "/c".as_ref()).is_err(), "{text}");
        }
        assert_eq!(parse_order("program"), Ok(RequestOrder::Program));
        assert!(parse_order("noop").is_err_and(|text| text.contains("fifo, elevator, deadline, program")));
        let why = parse_disk_here("pool:db".into()).expect_err("a run has no pool");
        assert_eq!(why, "a pool is for the pods of `aegis up`; a file that is called so is ./pool:db");
        assert!(parse_disk_here("./pool:db".into()).is_ok());
    }

    fn of_pool(text: &str) -> PoolDisk {
        PoolDisk::parse(text).expect("the pool's").expect("understood")
    }

    #[test]
    fn disks_of_the_pool_are_read() {
        let disk = of_pool("pool:db-1,size=4G,ro");
        assert_eq!((disk.name.as_str(), disk.sector_count, disk.is_read_only), ("db-1", Some(8 << 20), true));
        assert_eq!((of_pool("pool:x").sector_count, of_pool("pool:x").is_read_only), (None, false));
        assert!(PoolDisk::parse("./pool:x").is_none() && PoolDisk::parse("x").is_none());
        for (text, part) in [
            ("pool:", "NAME has 1 to 32 letters"),
            ("pool:a/b", "NAME has"),
            ("pool:a,rw", "rw: a disk of the pool is pool:NAME[,size=SIZE][,ro]"),
            ("pool:a,serial=1", "serial=1: a disk of the pool is"),
            ("pool:a,size=0", "whole MiB"),
            ("pool:a,size=1000K", "1000K: an extent has whole MiB"),
            ("pool:a,size=big", "a number with K, M or G"),
            ("pool:a,size=99999999T", "too large"),
        ] {
            let why = PoolDisk::parse(text).expect("the pool's").expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn the_pools_disks_stand_where_they_were_written() {
        let own = parse_disk("/own,ro".into(), "/".as_ref()).expect("a disk");
        let at = |place, text| PoolDisk { place, ..of_pool(text) };
        let extents = vec![at(0, "pool:a"), at(2, "pool:b,ro")];
        let options = DiskOptions { disks: vec![own.clone(), own], extents, order: None };
        let (pooled, read_only) = (DiskFlags::POOLED, DiskFlags::READ_ONLY);
        assert_eq!(options.config().disks, [pooled, read_only, pooled | read_only, read_only]);
        let extents = vec![of_pool("pool:a"); DISK_COUNT_MAX + 1];
        let options = DiskOptions { disks: Vec::new(), extents, order: None };
        let driver = Driver { placement: Placement::Library, model: Model::Virtio };
        assert!(options.check(driver).is_err_and(|why| why.to_string().contains("at most 16")));
    }
}
