//! From ports to disks: reset, signature, identity, modes (ATA/ATAPI-6, clauses 9.1 to 9.3, and 8.15, 8.37, 8.39).
//!
//! Everything here polls, and is bounded by counts.

use aegis_hal::Port;

use crate::IdeError;
use crate::identity::{IDENTITY_BYTES, Identity};
use crate::registers::{Registers, SET_TRANSFER_MODE, command, port, status};

/// What a device leaves in the two middle registers when it was reset and is a disk.
const SIGNATURE_DISK: [u8; 2] = [0, 0];

/// A device that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) identity: Identity,
    /// Sectors of a block of PIO: 1 where "multiple" cannot be set.
    pub(crate) pio_sectors: u8,
    /// DMA can be used.
    pub(crate) has_dma: bool,
}

/// The disk that is device `device` of a channel that was just reset; `None`: there is none.
pub(crate) fn find<P: Port>(
    registers: &mut Registers<P>,
    device: u8,
    poll_count_max: u32,
) -> Result<Option<Found>, IdeError> {
    registers.select(device, 0)?;
    let Some(state) = registers.wait(poll_count_max)? else { return Ok(None) };
    let signature = [registers.get(port::LBA_MIDDLE)?, registers.get(port::LBA_HIGH)?];
    if state == 0 || state == status::FLOATING || signature != SIGNATURE_DISK {
        return Ok(None);
    }
    let Some(state) = issue(registers, command::IDENTIFY, poll_count_max)? else { return Ok(None) };
    if state & (status::ERROR | status::FAULT) != 0 || state & status::DATA_REQUEST == 0 {
        return Ok(None);
    }
    let mut bytes = [0; IDENTITY_BYTES];
    registers.read_data(&mut bytes)?;
    let identity = Identity::parse(&bytes).ok_or(IdeError::Layout)?;
    Ok(Some(set_modes(registers, identity, poll_count_max)?))
}

fn set_modes<P: Port>(
    registers: &mut Registers<P>,
    identity: Identity,
    poll_count_max: u32,
) -> Result<Found, IdeError> {
    let mut is_set = |feature: u8, count: u8, command: u8| {
        registers.put(port::FEATURES, feature)?;
        registers.put(port::COUNT, count)?;
        let state = issue(registers, command, poll_count_max)?;
        Ok::<_, IdeError>(state.is_some_and(|state| state & (status::ERROR | status::FAULT) == 0))
    };
    let multiple = identity.multiple_sectors;
    let has_multiple = multiple > 1 && is_set(0, multiple, command::SET_MULTIPLE)?;
    let has_dma = match identity.dma_mode {
        Some(mode) => is_set(SET_TRANSFER_MODE, mode, command::SET_FEATURES)?,
        None => false,
    };
    Ok(Found { identity, pio_sectors: if has_multiple { multiple } else { 1 }, has_dma })
}

/// A command that moves nothing, or one block; its status.
fn issue<P: Port>(registers: &mut Registers<P>, command: u8, poll_count_max: u32) -> Result<Option<u8>, IdeError> {
    registers.put(port::STATUS, command)?;
    if registers.wait(poll_count_max)?.is_none() {
        return Ok(None);
    }
    // Which clears the interrupt, too.
    Ok(Some(registers.get(port::STATUS)?))
}
