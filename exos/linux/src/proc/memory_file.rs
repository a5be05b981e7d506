//! `mem` and `pagemap` of a process: its memory, and how each of its pages is there (`fs/proc/base.c`,
//! `fs/proc/task_mmu.c`).
//!
//! Both are of the address space that the process had when the file was opened: a program that it starts later is
//! not seen through it, and they keep no memory. Bytes pass through a buffer, so that the space is not locked while
//! the caller's own memory is touched. Unlike on Linux a store obeys what the process itself may do.

use alloc::sync::Weak;
use alloc::vec::Vec;

use aegis_abi::layout::{PAGE_SHIFT, PROGRAM_END};
use exos::error::{Errno, Result};
use exos::fs::open_file::{OpenFile, SeekSupport};
use exos::fs::transfer::{Destination, Source};
use exos::mem::PresentPage;
use exos::preempt::Pace;

use crate::task::memory::Space;

/// Bytes that are moved at a time.
const PIECE_BYTES: usize = 4096;
/// Bits of an entry of `pagemap`: present; a page of a file or of shared memory. Whether one process alone maps a
/// page (bit 56) is not known here and never said.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
const ENTRY_BYTES: u64 = 8;

/// `mem`.
pub(super) struct MemoryFile(pub(super) Weak<Space>);

/// `pagemap`. Which frames they are is not told: that part of an entry is 0, as for most on Linux.
pub(super) struct PageMapFile(pub(super) Weak<Space>);

impl OpenFile for MemoryFile {
    fn read(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        let Some(space) = self.0.upgrade() else { return Ok(0) };
        let wanted = destination.remaining();
        let mut buffer = alloc::vec![0; PIECE_BYTES.min(wanted)];
        let (mut moved, mut pace) = (0, Pace::default());
        while moved < wanted {
            let length = buffer.len().min(wanted - moved);
            let Some(address) = offset.checked_add(moved as u64) else { break };
            let there = space.lock().read(address, &mut buffer[..length]).unwrap_or(0);
            let put = destination.put(&buffer[..there]);
            moved += put;
            if put < there && moved == 0 {
                return Err(Errno::EFAULT);
            }
            if put < length || pace.page_unless_killed().is_err() {
                break;
            }
        }
        if moved == 0 && wanted > 0 { Err(Errno::EIO) } else { Ok(moved) }
    }

    fn write(&self, offset: u64, source: &mut dyn Source) -> Result<usize> {
        let Some(space) = self.0.upgrade() else { return Ok(0) };
        let wanted = source.remaining();
        let mut buffer = alloc::vec![0; PIECE_BYTES.min(wanted)];
        let (mut moved, mut pace) = (0, Pace::default());
        while moved < wanted {
            let length = buffer.len().min(wanted - moved);
            let Some(address) = offset.checked_add(moved as u64) else { break };
            let taken = source.take(&mut buffer[..length]);
            if taken == 0 && moved == 0 {
                return Err(Errno::EFAULT);
            }
            let put = space.lock().write(address, &buffer[..taken]).unwrap_or(0);
            moved += put;
            if put < length || pace.page_unless_killed().is_err() {
                break;
            }
        }
        if moved == 0 && wanted > 0 { Err(Errno::EIO) } else { Ok(moved) }
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Offsets
    }
}

impl OpenFile for PageMapFile {
    fn read(&self, offset: u64, destination: &mut dyn Destination) -> Result<usize> {
        let wanted = destination.remaining();
        if !offset.is_multiple_of(ENTRY_BYTES) || !(wanted as u64).is_multiple_of(ENTRY_BYTES) {
            return Err(Errno::EINVAL);
        }
        let Some(space) = self.0.upgrade() else { return Ok(0) };
        let end = PROGRAM_END >> PAGE_SHIFT;
        let (mut page, mut moved, mut pace) = (offset / ENTRY_BYTES, 0, Pace::default());
        while moved < wanted && page < end {
            let count = ((wanted - moved) as u64 / ENTRY_BYTES).min(PIECE_BYTES as u64 / ENTRY_BYTES).min(end - page);
            let bytes = entries(&space, page, count);
            let put = destination.put(&bytes);
            moved += put;
            page += count;
            if put < bytes.len() && moved == 0 {
                return Err(Errno::EFAULT);
            }
            if put < bytes.len() || pace.page_unless_killed().is_err() {
                break;
            }
        }
        Ok(moved)
    }

    fn write(&self, _: u64, _: &mut dyn Source) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    fn seek_support(&self) -> SeekSupport {
        SeekSupport::Offsets
    }
}

fn entries(space: &Space, first: u64, count: u64) -> Vec<u8> {
    let space = space.lock();
    let entry = |page| match space.present_page(page) {
        None => 0,
        Some(PresentPage::File) => PRESENT | OF_FILE,
        Some(PresentPage::Anonymous) => PRESENT,
    };
    (first..first + count).flat_map(|page| u64::to_le_bytes(entry(page))).collect()
}
