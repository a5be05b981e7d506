//! Bytes of a program's memory by address, without going through the processor's view of it.
//!
//! For the loader, which writes the memory of a program that does not run yet, for another
//! process's memory, and wherever a direct access is not possible. Rights are checked as the
//! processor would; missing pages are resolved as by a fault.

use aegis_abi::FrameNumber;
use aegis_abi::layout::{PAGE_SHIFT, PAGE_SIZE};
use alloc::vec::Vec;

use crate::error::{Errno, Result};
use crate::mem::area::Access;
use crate::mem::fault::FaultOutcome;
use crate::mem::page_map::PageFlags;
use crate::mem::source::Wait;
use crate::mem::space::AddressSpace;

impl AddressSpace {
    /// The frame behind `address`, resolved for `access`. `Err` is what a fault would end in.
    pub fn frame_for(
        &mut self,
        address: u64,
        access: Access,
        wait: Wait,
    ) -> core::result::Result<FrameNumber, FaultOutcome> {
        let page = address >> PAGE_SHIFT;
        // One fault brings the page; the second look finds it, unless memory ended in between.
        for _ in 0..2 {
            let is_allowed = self.areas.find(address).is_some_and(|area| area.protection.allows(access));
            if let Some(entry) = self.pages.get(page).filter(|_| is_allowed)
                && (access != Access::Write || entry.has(PageFlags::WRITE))
            {
                return Ok(entry.frame());
            }
            match self.handle_fault(address, access, wait) {
                FaultOutcome::Resolved { .. } => {}
                outcome => return Err(outcome),
            }
        }
        Err(FaultOutcome::OutOfMemory)
    }

    /// Copies from `address` on: how many bytes were there to be read. `EFAULT` if not one was.
    pub fn read(&mut self, address: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let (next, length) = piece(address, done, into.len())?;
            let Ok(frame) = self.frame_for(next, Access::Read, Wait::Allowed) else {
                break;
            };
            let part = &mut into[done..done + length];
            self.pool.bytes().read(frame, (next % PAGE_SIZE) as usize, part);
            done += length;
        }
        if done == 0 && !into.is_empty() { Err(Errno::EFAULT) } else { Ok(done) }
    }

    /// Copies to `address` on: how many bytes could be written. `EFAULT` if not one could.
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < from.len() {
            let (next, length) = piece(address, done, from.len())?;
            let Ok(frame) = self.frame_for(next, Access::Write, Wait::Allowed) else {
                break;
            };
            let part = &from[done..done + length];
            self.pool.bytes().write(frame, (next % PAGE_SIZE) as usize, part);
            done += length;
        }
        if done == 0 && !from.is_empty() { Err(Errno::EFAULT) } else { Ok(done) }
    }

    /// Copies all bytes or fails with `EFAULT`.
    pub fn read_exact(&mut self, address: u64, into: &mut [u8]) -> Result<()> {
        let length = into.len();
        if self.read(address, into)? == length { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// Copies all bytes or fails with `EFAULT`.
    pub fn write_all(&mut self, address: u64, from: &[u8]) -> Result<()> {
        if self.write(address, from)? == from.len() { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// The bytes up to a zero byte, which must come within `length_max` bytes (`ENAMETOOLONG`);
    /// `EFAULT` if memory ends first.
    pub fn read_string(&mut self, address: u64, length_max: usize) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut buffer = [0; 256];
        while text.len() < length_max {
            let wanted = buffer.len().min(length_max - text.len());
            let next = address.checked_add(text.len() as u64).ok_or(Errno::EFAULT)?;
            let count = self.read(next, &mut buffer[..wanted])?;
            if let Some(end) = buffer[..count].iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&buffer[..end]);
                return Ok(text);
            }
            text.extend_from_slice(&buffer[..count]);
        }
        Err(Errno::ENAMETOOLONG)
    }
}

/// Where the next piece begins and how long it is, inside one page.
fn piece(address: u64, done: usize, total: usize) -> Result<(u64, usize)> {
    let next = address.checked_add(done as u64).ok_or(Errno::EFAULT)?;
    let left_in_page = (PAGE_SIZE - next % PAGE_SIZE) as usize;
    Ok((next, left_in_page.min(total - done)))
}
