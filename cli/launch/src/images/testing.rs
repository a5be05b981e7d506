//! Archives and images for tests, made byte by byte, so that wrong ones can be made too.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::images::digest::Digest;

/// A folder that goes when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("aegis-images-{}-{name}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("writable");
        std::fs::write(&path, bytes).expect("writable");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tar archive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

impl Tar {
    /// A member of any type, whatever its name is.
    pub(crate) fn raw(mut self, kind: u8, path: &str, link: &str, contents: &[u8]) -> Self {
        let mut header = tar::Header::new_ustar();
        {
            let old = header.as_old_mut();
            old.name[..path.len()].copy_from_slice(path.as_bytes());
            old.linkname[..link.len()].copy_from_slice(link.as_bytes());
            old.linkflag = [kind];
        }
        header.set_mode(0o644);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1_700_000_000);
        header.set_size(contents.len() as u64);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.contents(contents)
    }

    /// A header of the test's own, and contents.
    pub(crate) fn header(mut self, header: &tar::Header, contents: &[u8]) -> Self {
        self.0.extend_from_slice(header.as_bytes());
        self.contents(contents)
    }

    fn contents(mut self, contents: &[u8]) -> Self {
        self.0.extend_from_slice(contents);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, path: &str, contents: &[u8]) -> Self {
        self.raw(b'0', path, "", contents)
    }

    pub(crate) fn directory(self, path: &str) -> Self {
        self.raw(b'5', path, "", b"")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.raw(b'2', path, target, b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.raw(b'1', path, target, b"")
    }

    /// An extended header of these records.
    pub(crate) fn pax(self, records: &[(&str, &str)]) -> Self {
        let record = |(key, value): &(&str, &str)| {
            let rest = key.len() + value.len() + 3;
            let length = (1..=20).map(|digits| rest + digits).find(|sum| sum.to_string().len() + rest == *sum);
            format!("{} {key}={value}\n", length.expect("a length"))
        };
        let bytes: String = records.iter().map(record).collect();
        self.raw(b'x', "pax", "", bytes.as_bytes())
    }

    /// The archive with its end.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }

    pub(crate) fn open(self) -> File {
        open(&self.bytes())
    }
}

/// A nameless file with these bytes.
pub(crate) fn open(bytes: &[u8]) -> File {
    let mut file = crate::machine::boot::memory_file("test").expect("a file in memory");
    file.write_all(bytes).expect("written");
    file.rewind().expect("rewound");
    file
}

/// The configuration of an image with these layers.
pub(crate) fn config(layers: &[Vec<u8>], settings: &str) -> String {
    let ids: Vec<String> = layers.iter().map(|layer| format!("\"{}\"", Digest::of(layer))).collect();
    format!(
        "{{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{settings},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[{}]}}}}",
        ids.join(",")
    )
}

/// A descriptor of a blob.
pub(crate) fn descriptor(kind: &str, blob: &[u8]) -> String {
    format!("{{\"mediaType\":\"{kind}\",\"digest\":\"{}\",\"size\":{}}}", Digest::of(blob), blob.len())
}

/// Configuration and manifest of an image whose layers are transported as they are.
pub(crate) fn manifest(layers: &[Vec<u8>], settings: &str) -> (String, String) {
    let config = config(layers, settings);
    let kind = "application/vnd.oci.image.layer.v1.tar";
    let all: Vec<String> = layers.iter().map(|layer| descriptor(kind, layer)).collect();
    let of_config = descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes());
    let manifest = format!("{{\"schemaVersion\":2,\"config\":{of_config},\"layers\":[{}]}}", all.join(","));
    (config, manifest)
}

/// Writes a layout with one image to a directory.
pub(crate) fn layout(directory: &Path, layers: &[Vec<u8>], settings: &str) {
    let (config, manifest) = manifest(layers, settings);
    let blobs = directory.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).expect("writable");
    let all = layers.iter().map(Vec::as_slice).chain([config.as_bytes(), manifest.as_bytes()]);
    for blob in all {
        std::fs::write(blobs.join(Digest::of(blob).digits()), blob).expect("writable");
    }
    let entry = descriptor("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    let index = format!("{{\"schemaVersion\":2,\"manifests\":[{entry}]}}");
    std::fs::write(directory.join("index.json"), index).expect("writable");
}
