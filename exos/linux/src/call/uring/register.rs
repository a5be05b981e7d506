//! `io_uring_register`: what a ring is told once, so that requests need not say it each time.

use alloc::sync::Arc;
use alloc::vec::Vec;

use aegis_abi::layout::PROGRAM_END;
use exos::error::{Errno, Result};
use exos::fs::event_counter::EventCounter;
use exos::reserve;

use super::control::{file_for_table, update_files};
use super::ring_of;
use crate::abi::bytes::get;
use crate::abi::uring::{opcode, setup};
use crate::abi::user_memory::{Extent, read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::file::uring::Ring;

/// Places of a table of files, and of buffers.
const FILE_COUNT_MAX: u64 = 1 << 15;
const BUFFER_COUNT_MAX: u64 = 1 << 14;
/// Bytes of a registered buffer.
const BUFFER_BYTES_MAX: u64 = 1 << 30;

/// `IORING_REGISTER_*`, `IORING_UNREGISTER_*`.
mod operation {
    pub(super) const BUFFERS: u32 = 0;
    pub(super) const NO_BUFFERS: u32 = 1;
    pub(super) const FILES: u32 = 2;
    pub(super) const NO_FILES: u32 = 3;
    pub(super) const BELL: u32 = 4;
    pub(super) const NO_BELL: u32 = 5;
    pub(super) const FILES_UPDATE: u32 = 6;
    pub(super) const BELL_FOR_LATER: u32 = 7;
    pub(super) const PROBE: u32 = 8;
    pub(super) const ENABLE: u32 = 12;
    pub(super) const FILES2: u32 = 13;
    pub(super) const FILES_UPDATE2: u32 = 14;
    pub(super) const BUFFERS2: u32 = 15;
    pub(super) const WORKERS: u32 = 19;
}

/// `io_uring_register(2)`.
pub(super) fn io_uring_register(
    context: &mut Context<'_>,
    [descriptor, operation, address, count, ..]: Arguments,
) -> Result<u64> {
    let description = context.process.files.get(descriptor)?;
    let ring = ring_of(&description)?;
    let count = u64::from(count as u32);
    match operation as u32 {
        operation::BUFFERS => register_buffers(context, &ring, address, count).map(|()| 0),
        operation::NO_BUFFERS if address == 0 && count == 0 => {
            let before = ring.registered().buffers.take();
            before.map(|_| 0).ok_or(Errno::ENXIO)
        }
        operation::FILES => register_files(context, &ring, address, count).map(|()| 0),
        operation::NO_FILES if address == 0 && count == 0 => {
            let before = ring.registered().files.take();
            before.map(|_| 0).ok_or(Errno::ENXIO)
        }
        operation::BELL | operation::BELL_FOR_LATER if count == 1 => {
            let bell = u32::from_le_bytes(read_array(context.memory, address)?);
            let bell = context.process.files.get(bell.into())?;
            bell.extension::<EventCounter>().ok_or(Errno::EINVAL)?;
            ring.set_bell(Some(bell), operation as u32 == operation::BELL_FOR_LATER).map(|()| 0)
        }
        operation::NO_BELL if address == 0 && count == 0 => ring.set_bell(None, false).map(|()| 0),
        operation::FILES_UPDATE => {
            let bytes: [u8; 16] = read_array(context.memory, address)?;
            if get::u32(&bytes, 4) != 0 || count == 0 {
                return Err(Errno::EINVAL);
            }
            update_files(context, &ring, get::u32(&bytes, 0).into(), get::u64(&bytes, 8), count)
        }
        operation::PROBE => probe(context, address, count).map(|()| 0),
        operation::ENABLE if address == 0 && count == 0 => {
            if ring.flags() & setup::R_DISABLED == 0 || !ring.is_disabled() {
                return Err(Errno::EBADFD);
            }
            ring.enable();
            Ok(0)
        }
        operation::FILES2 | operation::BUFFERS2 => register_tagged(context, &ring, operation as u32, address, count),
        operation::FILES_UPDATE2 => {
            let bytes: [u8; 32] = read_array(context.memory, address)?;
            let (is_plain, tags) = (get::u32(&bytes, 4) == 0 && get::u32(&bytes, 28) == 0, get::u64(&bytes, 16));
            if count != 32 || !is_plain || tags != 0 {
                return Err(Errno::EINVAL);
            }
            let places = u64::from(get::u32(&bytes, 24));
            update_files(context, &ring, get::u32(&bytes, 0).into(), get::u64(&bytes, 8), places)
        }
        // Requests have no workers: there are none to be limited.
        operation::WORKERS if count == 2 => {
            read_array::<8>(context.memory, address)?;
            write_all(context.memory, address, &[0; 8])?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Buffers of an array of `struct iovec`.
fn register_buffers(context: &Context<'_>, ring: &Arc<Ring>, address: u64, count: u64) -> Result<()> {
    if ring.registered().buffers.is_some() {
        return Err(Errno::EBUSY);
    }
    if count == 0 || count > BUFFER_COUNT_MAX {
        return Err(Errno::EINVAL);
    }
    let mut buffers = reserve::vector(count as usize)?;
    for index in 0..count {
        let entry = match address {
            // Places that are filled later.
            0 => [0; 16],
            address => read_array(context.memory, address.wrapping_add(index * 16))?,
        };
        let (start, length) = (get::u64(&entry, 0), get::u64(&entry, 8));
        if start == 0 && length == 0 {
            buffers.push(None);
            continue;
        }
        if start == 0 || length == 0 || length > BUFFER_BYTES_MAX {
            return Err(Errno::EFAULT);
        }
        if start.checked_add(length).is_none_or(|end| end > PROGRAM_END) {
            return Err(Errno::EOVERFLOW);
        }
        // Both ends are there, as Linux finds when it pins them.
        read_array::<1>(context.memory, start)?;
        read_array::<1>(context.memory, start + length - 1)?;
        buffers.push(Some(Extent { address: start, length }));
    }
    let mut registered = ring.registered();
    if registered.buffers.is_some() {
        return Err(Errno::EBUSY);
    }
    registered.buffers = Some(buffers);
    Ok(())
}

/// Files of an array of descriptors, of which -1 leaves a place empty; without an array all are.
fn register_files(context: &Context<'_>, ring: &Arc<Ring>, address: u64, count: u64) -> Result<()> {
    if ring.registered().files.is_some() {
        return Err(Errno::EBUSY);
    }
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    if count > FILE_COUNT_MAX || count > context.process.files.descriptor_limit().into() {
        return Err(Errno::EMFILE);
    }
    let mut files: Vec<_> = reserve::vector(count as usize)?;
    for index in 0..count {
        let descriptor = match address {
            0 => u32::MAX,
            address => u32::from_le_bytes(read_array(context.memory, address.wrapping_add(index * 4))?),
        };
        files.push(if descriptor == u32::MAX { None } else { Some(file_for_table(context, descriptor)?) });
    }
    let mut registered = ring.registered();
    if registered.files.is_some() {
        drop(registered);
        return Err(Errno::EBUSY);
    }
    registered.files = Some(files);
    Ok(())
}

/// `struct io_uring_rsrc_register`: tags are not told, so none are taken.
fn register_tagged(
    context: &Context<'_>,
    ring: &Arc<Ring>,
    operation: u32,
    address: u64,
    byte_count: u64,
) -> Result<u64> {
    const SPARSE: u32 = 1;
    if byte_count != 32 {
        return Err(Errno::EINVAL);
    }
    let bytes: [u8; 32] = read_array(context.memory, address)?;
    let (count, flags, reserved) = (get::u32(&bytes, 0), get::u32(&bytes, 4), get::u64(&bytes, 8));
    let (data, tags) = (get::u64(&bytes, 16), get::u64(&bytes, 24));
    let is_sparse = flags & SPARSE != 0;
    if flags & !SPARSE != 0 || reserved != 0 || count == 0 || tags != 0 || (is_sparse && data != 0) {
        return Err(Errno::EINVAL);
    }
    match operation {
        operation::FILES2 => register_files(context, ring, data, count.into())?,
        _ => register_buffers(context, ring, data, count.into())?,
    }
    Ok(0)
}

/// What requests there are (`struct io_uring_probe`).
fn probe(context: &Context<'_>, address: u64, count: u64) -> Result<()> {
    const HEADER_BYTES: usize = 16;
    const ENTRY_BYTES: usize = 8;
    const SUPPORTED: u16 = 1;
    if count > 256 {
        return Err(Errno::EINVAL);
    }
    let count = (count as usize).min(opcode::END as usize);
    let mut bytes = alloc::vec![0; HEADER_BYTES + count * ENTRY_BYTES];
    for place in (0..bytes.len()).step_by(ENTRY_BYTES) {
        if read_array::<ENTRY_BYTES>(context.memory, address + place as u64)? != [0; ENTRY_BYTES] {
            return Err(Errno::EINVAL);
        }
    }
    (bytes[0], bytes[1]) = (opcode::END - 1, count as u8);
    for (number, entry) in bytes[HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES).enumerate() {
        entry[0] = number as u8;
        if opcode::ALL.contains(&(number as u8)) {
            entry[2..4].copy_from_slice(&SUPPORTED.to_le_bytes());
        }
    }
    write_all(context.memory, address, &bytes)
}
