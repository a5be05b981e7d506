//! The memory of another process: `process_vm_readv`, `process_vm_writev`.
//!
//! Bytes pass through a buffer a page at a time, so that at most one of the two address spaces is locked: the other
//! process's by [`Remote`], the caller's own by its page faults.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::fs::transfer::{Destination, Source};
use exos::preempt::Pace;

use super::pidfd::may_trace;
use crate::abi::user_memory::{Extent, UserMemory, UserReader, UserWriter, read_extents};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::memory::Space;
use crate::task::process::Process;

entries! {
    process_vm_readv;
    process_vm_writev;
}

/// Bytes that are moved at a time.
const PIECE_BYTES: usize = 4096;

/// A process's memory by its address space, whichever process runs.
struct Remote(Arc<Space>);

impl UserMemory for Remote {
    fn copy_in(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        self.0.lock().read(address, into)
    }

    fn copy_out(&self, address: u64, from: &[u8]) -> Result<usize> {
        self.0.lock().write(address, from)
    }

    /// No signal is delivered to a process that does not run.
    fn save_vector(&self, _: u64, _: (u64, usize)) -> Result<()> {
        Err(Errno::EFAULT)
    }

    fn load_vector(&self, _: u64, _: (u64, usize)) -> Result<()> {
        Err(Errno::EFAULT)
    }
}

/// The process that a process or thread number names.
fn find(context: &Context<'_>, pid: u64) -> Result<Arc<Process>> {
    context.system.processes.named(pid as u32).ok_or(Errno::ESRCH)
}

/// The two sides of a transfer.
struct Sides {
    remote: Remote,
    /// Extents of the caller's memory.
    here: Vec<Extent>,
    /// Extents of the other's.
    there: Vec<Extent>,
}

/// Looks both sides up; `None`: nothing is to be moved.
fn open(
    context: &Context<'_>,
    [pid, local, local_count, remote, remote_count, flags]: Arguments,
) -> Result<Option<Sides>> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let is_empty = |extents: &[Extent]| extents.iter().all(|extent| extent.length == 0);
    let here = read_extents(context.memory, local, local_count)?;
    if is_empty(&here) {
        return Ok(None);
    }
    let there = read_extents(context.memory, remote, remote_count)?;
    if is_empty(&there) {
        return Ok(None);
    }
    let process = find(context, pid)?;
    if process.has_ended() {
        return Err(Errno::ESRCH);
    }
    let space = process.space();
    if !may_trace(context, &process) {
        return Err(Errno::EPERM);
    }
    if !Arc::ptr_eq(&space, &process.space()) {
        // Another program has begun meanwhile, of which that is not known.
        return Err(Errno::ESRCH);
    }
    Ok(Some(Sides { remote: Remote(space), here, there }))
}

/// Moves what both sides have room for. `EFAULT`: not one byte could be moved.
fn transfer(source: &mut dyn Source, destination: &mut dyn Destination) -> Result<u64> {
    let wanted = source.remaining().min(destination.remaining());
    let mut buffer = alloc::vec![0; PIECE_BYTES.min(wanted)];
    let (mut moved, mut pace) = (0, Pace::default());
    while moved < wanted {
        let length = buffer.len().min(wanted - moved);
        let there = source.take(&mut buffer[..length]);
        let put = destination.put(&buffer[..there]);
        moved += put;
        if put < length || pace.page_unless_killed().is_err() {
            break;
        }
    }
    if moved == 0 && wanted > 0 { Err(Errno::EFAULT) } else { Ok(moved as u64) }
}

/// `process_vm_readv(2)`.
pub fn process_vm_readv(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    let Some(Sides { remote, here, there }) = open(context, arguments)? else { return Ok(0) };
    transfer(&mut UserReader::new(&remote, &there), &mut UserWriter::new(context.memory, &here))
}

/// `process_vm_writev(2)`.
pub fn process_vm_writev(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    let Some(Sides { remote, here, there }) = open(context, arguments)? else { return Ok(0) };
    transfer(&mut UserReader::new(context.memory, &here), &mut UserWriter::new(&remote, &there))
}
