//! Images on this host: their kinds, their locks, their holes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{ImageFile, write_zeros};
use crate::pool::directory::UNIT_SECTORS;
use crate::pool::errors::PoolError;
use crate::pool::{Medium, Pool, look};

/// A folder of the test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-pool-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn image(&self, size_bytes: u64) -> PathBuf {
        let path = self.0.join("pool.img");
        File::create(&path).and_then(|file| file.set_len(size_bytes)).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_no_image_is_said() {
    let folder = Folder::new("kinds");
    let said = |path: &Path| ImageFile::lock(path).map(drop).expect_err("no image").to_string();
    assert!(said(&folder.0.join("missing")).contains("truncate -s 10G FILE"));
    assert!(said(&folder.0).contains("neither a file nor a block device"));
    assert!(said(Path::new("/dev/null")).contains("neither a file nor a block device"));
}

#[test]
fn one_at_a_time_changes_an_image() {
    let folder = Folder::new("locks");
    let path = folder.image(8 << 20);
    let mut first = ImageFile::lock(&path).expect("nobody has it");
    assert!(matches!(ImageFile::lock(&path), Err(PoolError::Busy)));
    first.let_machine_in().expect("unlocked");
    assert!(matches!(ImageFile::lock(&path), Err(PoolError::Busy)), "its machine runs");
    assert!(look(&mut ImageFile::look(&path).expect("to be read")).expect("new").is_empty());
    drop(first);
    assert!(ImageFile::lock(&path).is_ok());
}

#[test]
fn a_rehearsal_writes_nothing() {
    let folder = Folder::new("rehearsal");
    let path = folder.image(8 << 20);
    let mut pool = Pool::open(ImageFile::look(&path).expect("to be read")).expect("new");
    let extent = pool.take("data", "a", Some(4 * UNIT_SECTORS)).expect("room");
    pool.medium().let_machine_in().expect("nothing to do");
    assert_eq!((extent.first_sector, extent.sector_count), (UNIT_SECTORS, 4 * UNIT_SECTORS));
    assert!(std::fs::read(&path).expect("a file").iter().all(|byte| *byte == 0));
}

#[test]
fn clearing_leaves_zeros_and_the_size() {
    let folder = Folder::new("holes");
    let path = folder.image(0);
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    file.write_all_at(&vec![7; 8 << 20], 0).expect("written");
    let mut image = ImageFile::lock(&path).expect("nobody has it");
    image.clear(2 << 20, 3 << 20).expect("cleared");
    write_zeros(&file, 6 << 20, (1 << 20) + 1).expect("cleared");
    image.sync().expect("flushed");
    let bytes = std::fs::read(&path).expect("a file");
    let is_cleared = |at: usize| (2 << 20..5 << 20).contains(&at) || (6 << 20..(7 << 20) + 1).contains(&at);
    assert_eq!((bytes.len(), file.metadata().expect("a file").size()), (8 << 20, 8 << 20));
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == if is_cleared(at) { 0 } else { 7 }));
}
