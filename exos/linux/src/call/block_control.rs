//! `ioctl` on disks.

use core::mem::offset_of;

use exos::block::disk::{DiskLimits, DiskOperation, SECTOR_BYTES};
use exos::block::file::DiskFile;
use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::task::capability::Capability;

use crate::abi::linux::{
    BLKALIGNOFF, BLKBSZGET, BLKBSZSET, BLKDISCARD, BLKDISCARDZEROES, BLKFLSBUF, BLKFRAGET, BLKFRASET, BLKGETSIZE,
    BLKGETSIZE64, BLKIOMIN, BLKIOOPT, BLKPBSZGET, BLKRAGET, BLKRASET, BLKROGET, BLKROSET, BLKROTATIONAL, BLKRRPART,
    BLKSECTGET, BLKSSZGET, BLKZEROOUT,
};
use crate::abi::user_memory::{read_words, write_all};
use crate::call::context::Context;

/// `struct hd_geometry`.
#[repr(C)]
struct Geometry {
    heads: u8,
    sectors: u8,
    cylinders: u16,
    start: u64,
}

/// `HDIO_GETGEO`.
const HDIO_GETGEO: u32 = 0x0301;
/// Heads and sectors of a track where a disk has none, as Linux makes them up.
const HEADS: u64 = 16;
const TRACK_SECTORS: u64 = 63;

/// `ioctl` on a disk; `None`: none of a disk's.
pub(super) fn request(
    context: &Context<'_>,
    description: &Description,
    file: &DiskFile,
    number: u32,
    argument: u64,
) -> Option<Result<()>> {
    let outcome = match number {
        BLKFLSBUF | BLKROSET | BLKRASET | BLKFRASET | BLKRRPART if !context.can(Capability::SYS_ADMIN) => {
            Err(Errno::EACCES)
        }
        BLKFLSBUF => file.flush_pages(),
        BLKDISCARD | BLKZEROOUT => change(context, description, file, number, argument),
        BLKBSZSET => set_block_bytes(context, file, argument),
        BLKRASET | BLKFRASET => {
            file.device().set_read_ahead_sectors(argument);
            Ok(())
        }
        // There are no partitions to read anew.
        BLKRRPART | BLKROSET => Err(Errno::EINVAL),
        _ => return read(context, file, number, argument),
    };
    Some(outcome)
}

/// What can be asked of a disk.
fn read(context: &Context<'_>, file: &DiskFile, number: u32, argument: u64) -> Option<Result<()>> {
    let limits = match file.device().limits() {
        Ok(limits) => limits,
        Err(error) => return Some(Err(error)),
    };
    let word = |value: u64| write_all(context.memory, argument, &value.to_le_bytes());
    let half = |value: u32| write_all(context.memory, argument, &value.to_le_bytes());
    let quarter = |value: u16| write_all(context.memory, argument, &value.to_le_bytes());
    Some(match number {
        BLKGETSIZE64 => word(limits.sector_count * u64::from(SECTOR_BYTES)),
        BLKGETSIZE => word(limits.sector_count),
        BLKROGET => half(u32::from(limits.is_read_only)),
        BLKSSZGET => half(limits.logical_block_bytes),
        BLKPBSZGET => half(limits.physical_block_bytes),
        BLKIOMIN => half(limits.physical_block_bytes),
        BLKIOOPT | BLKALIGNOFF | BLKDISCARDZEROES => half(0),
        BLKBSZGET => half(file.device().block_bytes()),
        BLKRAGET | BLKFRAGET => word(file.device().read_ahead_sectors()),
        BLKROTATIONAL => quarter(u16::from(limits.is_rotational)),
        BLKSECTGET => quarter(limits.sector_count_max.min(u32::from(u16::MAX)) as u16),
        HDIO_GETGEO => geometry(&limits).and_then(|bytes| write_all(context.memory, argument, &bytes)),
        _ => return None,
    })
}

fn geometry(limits: &DiskLimits) -> Result<[u8; size_of::<Geometry>()]> {
    let mut bytes = [0; size_of::<Geometry>()];
    bytes[offset_of!(Geometry, heads)] = HEADS as u8;
    bytes[offset_of!(Geometry, sectors)] = TRACK_SECTORS as u8;
    let cylinders = (limits.sector_count / (HEADS * TRACK_SECTORS)) as u16;
    bytes[offset_of!(Geometry, cylinders)..][..2].copy_from_slice(&cylinders.to_le_bytes());
    Ok(bytes)
}

/// `BLKDISCARD`, `BLKZEROOUT`: a range of bytes, its begin and its length.
fn change(context: &Context<'_>, description: &Description, file: &DiskFile, number: u32, argument: u64) -> Result<()> {
    if !description.is_writable() {
        return Err(Errno::EBADF);
    }
    let operation = if number == BLKDISCARD { DiskOperation::Discard } else { DiskOperation::WriteZeroes };
    if number == BLKDISCARD && file.device().limits()?.discard.is_none() {
        return Err(Errno::EOPNOTSUPP);
    }
    let [offset, count] = read_words(context.memory, argument)?;
    file.change_range(operation, offset, count)
}

fn set_block_bytes(context: &Context<'_>, file: &DiskFile, argument: u64) -> Result<()> {
    if !context.can(Capability::SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    let bytes = u32::from_le_bytes(crate::abi::user_memory::read_array(context.memory, argument)?);
    let least = file.device().limits()?.logical_block_bytes;
    if !bytes.is_power_of_two() || !(least.max(512)..=4096).contains(&bytes) {
        return Err(Errno::EINVAL);
    }
    file.device().set_block_bytes(bytes);
    Ok(())
}
