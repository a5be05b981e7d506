//! A log on a medium of its own: the ring, and the two status blocks that say where it starts.
#![forbid(unsafe_code)]

use alloc::vec::Vec;

use super::record::{Start, hash};
use super::ring::Ring;
use super::status::{STATUS_BYTES, STATUS_SLOT_BYTES, Status, USER_BYTES_MAX, VERSION};
use super::{Damage, LogError};
use crate::medium::{Medium, MediumError};

/// Where the ring begins.
pub const RING_OFFSET: u64 = 2 * STATUS_SLOT_BYTES;
/// Bytes of the smallest log.
pub const LOG_BYTES_MIN: u64 = RING_OFFSET + 4 * 4096;

/// A log: ring and status blocks.
#[derive(Debug)]
pub struct Log<M> {
    /// The records.
    pub ring: Ring<M>,
    generation: u64,
    user: Vec<u8>,
}

impl<M: Medium> Log<M> {
    /// Makes an empty log on a medium, in place of all that is there. `log_id` is drawn at random by the caller; `user`
    /// is kept in the status.
    ///
    /// # Errors
    /// [`LogError::Shape`], the medium's.
    pub fn create(medium: M, log_id: u64, user: &[u8]) -> Result<Self, LogError> {
        let block_bytes = medium.block_bytes() as u64;
        let capacity = medium.capacity_bytes();
        if capacity < LOG_BYTES_MIN || block_bytes > STATUS_SLOT_BYTES || user.len() > USER_BYTES_MAX {
            return Err(LogError::Shape);
        }
        // Lengths of records are words of 32 bits.
        let ring_bytes = ((capacity - RING_OFFSET) & !(block_bytes - 1)).min(1 << 32);
        let mut ring = Ring::new(medium, RING_OFFSET, ring_bytes, Start::first(log_id))?;
        // An old log's status must not survive next to the new one's ring.
        let spoilt = [0; STATUS_BYTES];
        for slot in 0..2 {
            write_slot(ring.medium(), slot, &spoilt)?;
        }
        ring.clear()?;
        let mut log = Self { ring, generation: 0, user: user.to_vec() };
        log.write_status()?;
        log.write_status()?;
        Ok(log)
    }

    /// Finds the log on a medium, and its records: replay them, make what they say last, then call [`Log::renew`].
    ///
    /// # Errors
    /// [`LogError::Damage`], [`LogError::NoMemory`].
    pub fn recover(medium: M) -> Result<Self, LogError> {
        let mut newest: Option<Status> = None;
        for slot in 0..2 {
            let mut bytes = [0; STATUS_BYTES];
            if medium.read(slot * STATUS_SLOT_BYTES, &mut bytes).is_err() {
                continue;
            }
            let status = Status::from_bytes(&bytes).filter(|status| status.generation % 2 == slot);
            if let Some(status) = status
                && newest.as_ref().is_none_or(|other| other.generation < status.generation)
            {
                newest = Some(status);
            }
        }
        let status = newest.ok_or(LogError::Damage(Damage::NoStatus))?;
        if status.version != VERSION {
            return Err(LogError::Damage(Damage::Version(status.version)));
        }
        let is_cut = u64::from(status.block_bytes) != medium.block_bytes() as u64 || status.ring_bytes < 4096;
        let ring = Ring::new(medium, RING_OFFSET, status.ring_bytes, status.start);
        let mut ring = ring.ok().filter(|_| !is_cut).ok_or(LogError::Damage(Damage::Shape))?;
        ring.recover(status.flushed_through)?;
        Ok(Self { ring, generation: status.generation, user: status.user })
    }

    /// The user's part of the status.
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// Recovery's last step (L6), when all that the records say lasts elsewhere: an empty log under a new id.
    ///
    /// # Errors
    /// The medium's; the log has to be recovered again then.
    pub fn renew(&mut self) -> Result<(), LogError> {
        let end = self.ring.end();
        let mut seed = [0; 24];
        for (place, word) in seed.chunks_exact_mut(8).zip([end.log_id, self.generation, end.sequence]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.ring.rename(hash(&seed));
        self.write_status()?;
        self.write_status()
    }

    /// Moves the start (L5): what was before it is not needed any more. It is where a record lies, or the end.
    ///
    /// # Errors
    /// The medium's; nothing was freed then, and the log is broken.
    pub fn truncate(&mut self, start: Start) -> Result<(), LogError> {
        if self.ring.is_broken() {
            return Err(LogError::Broken);
        }
        let flush = self.ring.flush_begin();
        let result = self.put_status(start, self.ring.flushed_through());
        self.ring.flush_end(flush, result)?;
        self.ring.advance(start);
        Ok(())
    }

    fn write_status(&mut self) -> Result<(), LogError> {
        let start = self.ring.start();
        Ok(self.put_status(start, self.ring.flushed_through())?)
    }

    /// Writes the slot that does not count, and flushes: it counts then.
    fn put_status(&mut self, start: Start, flushed_through: u64) -> Result<(), MediumError> {
        let generation = self.generation + 1;
        let status = Status {
            version: VERSION,
            block_bytes: self.ring.medium().block_bytes() as u32,
            generation,
            ring_bytes: self.ring.ring_bytes(),
            start,
            flushed_through,
            user: self.user.clone(),
        };
        write_slot(self.ring.medium(), generation % 2, &status.to_bytes())?;
        self.ring.medium().flush()?;
        self.generation = generation;
        Ok(())
    }
}

/// Writes a status block, as a whole block of the medium.
fn write_slot<M: Medium>(medium: &M, slot: u64, bytes: &[u8; STATUS_BYTES]) -> Result<(), MediumError> {
    let mut block = [0; STATUS_SLOT_BYTES as usize];
    block[..STATUS_BYTES].copy_from_slice(bytes);
    let length = medium.block_bytes().max(STATUS_BYTES);
    medium.write(slot * STATUS_SLOT_BYTES, &block[..length])
}
