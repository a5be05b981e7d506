//! A pool: one image of the host, of which several pods of a machine have an extent each (ADR 0111).
//!
//! - [`directory`]: what the image's directory says, as a pure function of its bytes (`FORMAT.md`).
//! - [`medium`]: the image itself, its size, its locks, and how a part of it becomes zeros.
//! - [`errors`]: what can be wrong.
//!
//! This file has the changes, each as a series of writes and flushes of which every prefix is a sound pool. The
//! invariant: an extent that the directory says is in use has bytes of its owner or zeros. That is why an extent is
//! cleared when it is made, though what is free was cleared when it became so: the image may have held other things
//! before it was a pool.

pub mod directory;
pub mod errors;
pub mod medium;

use std::io;

use crate::pool::directory::{
    COPY_OFFSETS, DATA_SECTOR, Directory, EXTENT_COUNT_MAX, Extent, SECTOR_BYTES, State, UNIT_SECTORS,
};
use crate::pool::errors::PoolError;

/// What a pool is on.
pub trait Medium {
    /// Bytes of it.
    fn size_bytes(&mut self) -> io::Result<u64>;
    /// Fills `bytes` from there.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes there.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes zeros of a range.
    fn clear(&mut self, offset: u64, length: u64) -> io::Result<()>;
    /// Returns when all that was written survives a loss of power.
    fn sync(&mut self) -> io::Result<()>;
}

/// A pool that is open to be changed.
#[derive(Debug)]
pub struct Pool<M> {
    medium: M,
    directory: Directory,
    image_sectors: u64,
}

impl<M: Medium> Pool<M> {
    /// Opens a pool, makes one of a new image, and ends what a crash has left half done.
    ///
    /// # Errors
    /// The image is not a pool, or the host refuses.
    pub fn open(mut medium: M) -> Result<Self, PoolError> {
        let (found, image_sectors) = read(&mut medium)?;
        let (directory, is_stale) = match found {
            Some(found) => (found.directory, found.is_stale),
            None => (Directory::first(), [true, true]),
        };
        let mut pool = Self { medium, directory, image_sectors };
        pool.write(is_stale)?;
        while let Some(extent) = pool.directory.extents.iter().find(|extent| extent.state != State::InUse) {
            let name = extent.name.clone();
            pool.finish(&name)?;
        }
        Ok(pool)
    }

    /// The extents.
    pub fn extents(&self) -> &[Extent] {
        &self.directory.extents
    }

    /// The medium.
    pub fn medium(&mut self) -> &mut M {
        &mut self.medium
    }

    /// Makes an extent.
    ///
    /// # Errors
    /// There is one, or no room, or the host refuses.
    pub fn create(&mut self, name: &str, owner: Option<&str>, sector_count: u64) -> Result<Extent, PoolError> {
        if self.directory.position(name).is_some() {
            return Err(PoolError::Exists(name.to_owned()));
        }
        if self.directory.extents.len() >= EXTENT_COUNT_MAX {
            return Err(PoolError::Count);
        }
        let sector_count = whole_units(sector_count);
        let Some(first_sector) = self.directory.place(sector_count, self.image_sectors) else {
            let gaps = self.directory.gaps(self.image_sectors).map(|gap| gap.end - gap.start);
            return Err(PoolError::Full { name: name.to_owned(), gap_sectors: gaps.max().unwrap_or(0) });
        };
        let owner = owner.map(str::to_owned);
        let extent = Extent { name: name.to_owned(), owner, first_sector, sector_count, state: State::Clearing };
        self.directory.extents.push(extent);
        self.commit()?;
        self.finish(name)?;
        self.extent(name)
    }

    /// The extent of a pod, made if it is not there and a size is said.
    ///
    /// # Errors
    /// It is another pod's, has another size, or cannot be made.
    pub fn take(&mut self, name: &str, pod: &str, sector_count: Option<u64>) -> Result<Extent, PoolError> {
        let Some(index) = self.directory.position(name) else {
            let sector_count = sector_count.ok_or_else(|| PoolError::NoSize(name.to_owned()))?;
            return self.create(name, Some(pod), sector_count);
        };
        let extent = &mut self.directory.extents[index];
        if let Some(owner) = extent.owner.as_ref().filter(|owner| *owner != pod) {
            let (name, owner) = (name.to_owned(), owner.clone());
            return Err(PoolError::Foreign { name, owner, pod: pod.to_owned() });
        }
        if sector_count.is_some_and(|count| whole_units(count) != extent.sector_count) {
            return Err(PoolError::Size { name: name.to_owned(), sector_count: extent.sector_count });
        }
        if extent.owner.is_none() {
            // It is zeros since it was made.
            extent.owner = Some(pod.to_owned());
            self.commit()?;
        }
        self.extent(name)
    }

    /// Clears an extent and gives it to another pod.
    ///
    /// # Errors
    /// There is none, or it is that pod's, or the host refuses.
    pub fn give(&mut self, name: &str, pod: &str) -> Result<(), PoolError> {
        if self.extent(name)?.owner.is_some_and(|owner| owner == pod) {
            return Err(PoolError::Own { name: name.to_owned(), owner: pod.to_owned() });
        }
        self.begin(name, State::Clearing, Some(pod))
    }

    /// Clears an extent and frees its sectors.
    ///
    /// # Errors
    /// There is none, or the host refuses.
    pub fn remove(&mut self, name: &str) -> Result<(), PoolError> {
        self.begin(name, State::Removing, None)
    }

    fn extent(&self, name: &str) -> Result<Extent, PoolError> {
        let index = self.directory.position(name).ok_or_else(|| PoolError::Unknown(name.to_owned()))?;
        Ok(self.directory.extents[index].clone())
    }

    fn begin(&mut self, name: &str, state: State, owner: Option<&str>) -> Result<(), PoolError> {
        let index = self.directory.position(name).ok_or_else(|| PoolError::Unknown(name.to_owned()))?;
        let extent = &mut self.directory.extents[index];
        (extent.state, extent.owner) = (state, owner.map(str::to_owned));
        self.commit()?;
        self.finish(name)
    }

    /// Clears an extent whose state says so, and then has the directory say what it is for.
    fn finish(&mut self, name: &str) -> Result<(), PoolError> {
        let Some(index) = self.directory.position(name) else { return Ok(()) };
        let Extent { first_sector, sector_count, state, .. } = self.directory.extents[index];
        let clearing = |error| PoolError::Host("clearing an extent", error);
        self.medium.clear(first_sector * SECTOR_BYTES, sector_count * SECTOR_BYTES).map_err(clearing)?;
        self.medium.sync().map_err(clearing)?;
        match state {
            State::InUse | State::Clearing => self.directory.extents[index].state = State::InUse,
            State::Removing => drop(self.directory.extents.remove(index)),
        }
        self.commit()
    }

    /// Writes a changed directory.
    fn commit(&mut self) -> Result<(), PoolError> {
        self.directory.advance();
        self.write([true; 2])
    }

    /// Writes these copies, one after the other.
    fn write(&mut self, copies: [bool; 2]) -> Result<(), PoolError> {
        let bytes = self.directory.encode();
        let writing = |error| PoolError::Host("writing the directory", error);
        for (offset, _) in COPY_OFFSETS.into_iter().zip(copies).filter(|(_, is_wanted)| *is_wanted) {
            self.medium.write(offset, &bytes).map_err(writing)?;
            self.medium.sync().map_err(writing)?;
        }
        Ok(())
    }
}

/// A size rounded up to what an extent can have.
fn whole_units(sector_count: u64) -> u64 {
    sector_count.max(1).checked_next_multiple_of(UNIT_SECTORS).unwrap_or(u64::MAX)
}

/// What an image's directory says now; a new image has no extents. Nothing is written.
///
/// # Errors
/// The image is not a pool, or the host refuses.
pub fn look(medium: &mut impl Medium) -> Result<Vec<Extent>, PoolError> {
    Ok(read(medium)?.0.map_or_else(Vec::new, |found| found.directory.extents))
}

fn read(medium: &mut impl Medium) -> Result<(Option<directory::Found>, u64), PoolError> {
    let reading = |error| PoolError::Host("reading the directory", error);
    let size_bytes = medium.size_bytes().map_err(reading)?;
    let image_sectors = size_bytes / SECTOR_BYTES;
    if image_sectors < DATA_SECTOR + UNIT_SECTORS {
        return Err(PoolError::Small(size_bytes));
    }
    let mut area = vec![0; (DATA_SECTOR * SECTOR_BYTES) as usize];
    medium.read(0, &mut area).map_err(reading)?;
    Ok((Directory::read(&area, image_sectors)?, image_sectors))
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
