//! `--disk` and `--io-order`: images of the host that are a pod's disks, and the order of what is asked of them.
//!
//! Words are read here; whether there are such files is found out when the machine is made ([`DiskImage::check`]).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use aegis_launch::machine::disks::{DiskImage, SERIAL_BYTES_MAX, absolute};
use aegis_link::disks::{DISK_COUNT_MAX, DiskFlags, Disks, IDE_DISK_COUNT_MAX, KERNEL_DISK_COUNT_MAX, RequestOrder};
use aegis_link::drivers::{Driver, Model, Placement};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

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
    /// Order of the requests to disks [default: deadline; elevator for ide]
    #[arg(long = "io-order", value_name = "fifo|elevator|deadline|program", value_parser = parse_order)]
    pub(crate) order: Option<RequestOrder>,
}

impl DiskOptions {
    /// What the library OS is told of them.
    pub(crate) fn config(&self) -> Disks {
        let flags = |disk: &DiskImage| if disk.is_read_only { DiskFlags::READ_ONLY } else { DiskFlags::empty() };
        Disks { disks: self.disks.iter().map(flags).collect(), order: self.order }
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
        self.disks.iter().try_for_each(DiskImage::check)
    }
}

/// `--disk`, whose path begins where the tool was started.
fn parse_disk_here(text: OsString) -> Result<DiskImage, String> {
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
    use super::{parse_disk, parse_order};
    use aegis_link::disks::RequestOrder;

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
    }
}
