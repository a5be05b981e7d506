//! A pod's disks, as QEMU is told: each is a raw image on the host, or a socket behind which a server speaks NBD.
//!
//! QEMU reports errors to the machine instead of stopping it (its default stops the machine when the host's disk is
//! full), caches in the host's page cache, writes holes where the machine discards or writes zeros, and holds a lock on
//! the file, so that no two machines write to it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use aegis_link::drivers::Model;

use crate::errors::Error;

/// Bytes of a sector: images have whole ones.
const SECTOR_BYTES: u64 = 512;
/// Longest serial number, which is what virtio has room for.
pub const SERIAL_BYTES_MAX: usize = 20;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskImage {
    /// Its image: a file or a block device of the host, or the socket of a server.
    pub path: PathBuf,
    /// Nothing is written to it.
    pub is_read_only: bool,
    /// What it calls itself.
    pub serial: Option<String>,
    /// For tests: rules by which QEMU's `blkdebug` fails requests.
    pub failures: Option<PathBuf>,
}

impl DiskImage {
    /// Looks whether QEMU can have it.
    ///
    /// # Errors
    /// It is missing, of a wrong kind or size, or must not be opened so; the text says which.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Usage(format!("--disk {}: {why}", self.path.display())));
        if self.is_socket() {
            return Ok(());
        }
        let mut file = match self.open() {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return wrong("there is no such file; truncate -s 1G FILE makes an empty one".into());
            }
            Err(error) => return wrong(error.to_string()),
        };
        let kind = match file.metadata() {
            Ok(metadata) => metadata.file_type(),
            Err(error) => return wrong(error.to_string()),
        };
        if !kind.is_file() && !kind.is_block_device() {
            return wrong("neither a file nor a block device".into());
        }
        match file.seek(SeekFrom::End(0)) {
            Ok(0) => wrong("it is empty".into()),
            Ok(size) if !size.is_multiple_of(SECTOR_BYTES) => {
                wrong(format!("its size, {size} bytes, is no multiple of {SECTOR_BYTES}"))
            }
            Ok(_) => Ok(()),
            Err(error) => wrong(error.to_string()),
        }
    }

    /// Whether it is a socket: QEMU connects to it, and the server knows the rest.
    fn is_socket(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|it| it.file_type().is_socket())
    }

    fn open(&self) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(!self.is_read_only).open(&self.path)
    }

    /// The nodes that QEMU reads and writes it through; the last is called `name`.
    pub(crate) fn nodes(&self, name: &str) -> Vec<OsString> {
        let read_only = if self.is_read_only { "on" } else { "off" };
        let common = format!("read-only={read_only},discard=unmap,cache.direct=off,cache.no-flush=off");
        let driver = if self.is_socket() { "driver=nbd,server.type=unix" } else { "driver=file" };
        let place = if self.is_socket() { "server.path" } else { "filename" };
        let mut file = OsString::from(format!("{driver},node-name={name}-file,{common},{place}="));
        file.push(escaped(self.path.as_os_str()));
        let mut nodes = vec![file];
        let mut below = format!("{name}-file");
        if let Some(rules) = &self.failures {
            let mut node =
                OsString::from(format!("driver=blkdebug,node-name={name}-debug,image={below},{common},config="));
            node.push(escaped(rules.as_os_str()));
            nodes.push(node);
            below = format!("{name}-debug");
        }
        nodes.push(format!("driver=raw,node-name={name},{common},file={below}").into());
        nodes
    }

    /// What a device of `model` is told besides what it is and where.
    pub(crate) fn device_options(&self, name: &str, model: Model) -> String {
        let serial = self.serial.as_ref().map_or(String::new(), |serial| format!(",serial={serial}"));
        let own = match model {
            Model::Virtio => ",num-queues=1,queue-size=256,discard=on,write-zeroes=on",
            _ => "",
        };
        format!(",drive={name}{serial}{own},werror=report,rerror=report")
    }
}

/// A name in an option of QEMU's: a comma is written twice.
fn escaped(name: &OsStr) -> OsString {
    let bytes = name.as_bytes().iter().flat_map(|byte| std::iter::repeat_n(*byte, 1 + usize::from(*byte == b',')));
    OsString::from_vec(bytes.collect())
}

/// An absolute name, which QEMU takes for a file whatever it looks like.
#[must_use]
pub fn absolute(path: &Path, base: &Path) -> PathBuf {
    base.join(path)
}

#[cfg(test)]
mod tests {
    use super::DiskImage;
    use aegis_link::drivers::Model;
    use std::path::PathBuf;

    fn image(path: impl Into<PathBuf>) -> DiskImage {
        DiskImage { path: path.into(), is_read_only: false, serial: None, failures: None }
    }

    #[test]
    fn a_socket_is_a_server() {
        let path = std::env::temp_dir().join(format!("aegis-disks-{}.sock", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let disk = image(&path);
        assert!(disk.check().is_ok());
        let node = disk.nodes("d0").remove(0).into_string().expect("text");
        assert!(node.starts_with("driver=nbd,server.type=unix,node-name=d0-file,read-only=off,"), "{node}");
        assert!(node.ends_with(&format!(",server.path={}", path.display())), "{node}");
        drop(listener);
        std::fs::remove_file(&path).expect("a socket of the test");
    }

    #[test]
    fn what_cannot_be_a_disk_is_said_before_the_start() {
        let directory = std::env::temp_dir().join(format!("aegis-disks-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = |name: &str, size: u64| {
            let path = directory.join(name);
            std::fs::File::create(&path).and_then(|file| file.set_len(size)).expect("a file");
            path
        };
        let said = |path: PathBuf| image(path).check().map_err(|error| error.to_string());
        assert_eq!(said(file("whole", 1 << 20)), Ok(()));
        assert!(said(file("odd", 1000)).is_err_and(|text| text.contains("1000 bytes, is no multiple of 512")));
        assert!(said(file("none", 0)).is_err_and(|text| text.contains("it is empty")));
        assert!(said(directory.join("missing")).is_err_and(|text| text.contains("there is no such file")));
        assert!(said("/dev/null".into()).is_err_and(|text| text.contains("neither a file nor")));
        std::fs::remove_dir_all(&directory).expect("it was made above");
    }

    #[test]
    fn commas_and_rules_are_told() {
        let mut disk = DiskImage { is_read_only: true, serial: Some("S1".into()), ..image("/a,b") };
        let nodes = |disk: &DiskImage| {
            disk.nodes("d0").into_iter().map(|node| node.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert!(
            nodes(&disk)[0].ends_with("read-only=on,discard=unmap,cache.direct=off,cache.no-flush=off,filename=/a,,b")
        );
        assert_eq!(nodes(&disk).len(), 2);
        disk.failures = Some("/rules".into());
        assert!(nodes(&disk)[1].starts_with("driver=blkdebug,node-name=d0-debug,image=d0-file"));
        assert!(nodes(&disk)[2].ends_with("file=d0-debug"));
        assert!(disk.device_options("d0", Model::Ide).starts_with(",drive=d0,serial=S1,werror=report"));
    }
}
