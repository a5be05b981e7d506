//! A full check of an image: every reachable directory, name, inode and link target is read once.
//!
//! The host tool runs it over images that it did not build, so that garbage is refused with a reason before a machine
//! starts. Linux needs no such check and a library OS does not run it: [`super::read`] is safe on any bytes. Checked
//! here and only here is what a reader can live without: order of names, entry types, `.` and `..`.
//!
//! The time is linear in the image's length even for a hostile one: a directory is entered once, and entries are
//! counted against how many the image has room for.

use alloc::collections::BTreeSet;
use alloc::vec;

use super::DIRENT_BYTES;
use super::FileKind;
use super::read::{Damage, Image, Inode, ReadError};

/// What a sound image holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Directories.
    pub directory_count: u64,
    /// Names in them, without `.` and `..`.
    pub name_count: u64,
    /// Names of regular files whose data can be mapped from the image.
    pub mappable_count: u64,
    /// Bytes of regular files, a hard link counted at each name.
    pub file_bytes: u64,
}

/// Checks a whole image.
///
/// # Errors
/// The first thing that is damaged or unsupported.
pub fn check(image: &Image<'_>) -> Result<Summary, ReadError> {
    let mut summary = Summary::default();
    let mut entries_left = image.bytes().len() / DIRENT_BYTES;
    let mut seen = BTreeSet::from([image.root()]);
    let mut pending = vec![(image.root(), image.root())];
    while let Some((number, parent)) = pending.pop() {
        let directory = image.inode(number)?;
        summary.directory_count += 1;
        let mut previous: Option<&[u8]> = None;
        let mut dots_seen = 0;
        for entry in image.entries(&directory, 0)? {
            let entry = entry?;
            entries_left = entries_left.checked_sub(1).ok_or(ReadError::Corrupt(Damage::SharedDirectories))?;
            if previous.is_some_and(|previous| previous >= entry.name) {
                return Err(ReadError::Corrupt(Damage::NameOrder));
            }
            previous = Some(entry.name);
            if let b"." | b".." = entry.name {
                dots_seen += 1;
                let expected = if entry.name == b"." { number } else { parent };
                if entry.number != expected {
                    return Err(ReadError::Corrupt(Damage::DotEntries));
                }
                continue;
            }
            summary.name_count += 1;
            let inode = image.inode(entry.number)?;
            image.extended(&inode).try_for_each(|attribute| attribute.map(|_| ()))?;
            if entry.kind.is_some_and(|kind| kind != inode.kind) {
                return Err(ReadError::Corrupt(Damage::EntryType));
            }
            if inode.kind == FileKind::Directory {
                // A second name for a directory would make a cycle possible; Linux refuses such trees too.
                if !seen.insert(entry.number) {
                    return Err(ReadError::Corrupt(Damage::SharedDirectories));
                }
                pending.push((entry.number, number));
            } else {
                check_file(image, &inode, &mut summary)?;
            }
        }
        if dots_seen != 2 {
            return Err(ReadError::Corrupt(Damage::DotEntries));
        }
    }
    Ok(summary)
}

fn check_file(image: &Image<'_>, inode: &Inode, summary: &mut Summary) -> Result<(), ReadError> {
    match inode.kind {
        FileKind::Regular => {
            // Saturating: many names may share the blocks of one large file.
            summary.file_bytes = summary.file_bytes.saturating_add(inode.size_bytes);
            summary.mappable_count += u64::from(image.extent(inode).is_some());
        }
        FileKind::Symlink => {
            image.read_link(inode)?;
        }
        _ => {}
    }
    Ok(())
}
