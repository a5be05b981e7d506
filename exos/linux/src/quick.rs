//! Short ways through the calls that programs make most, for when there is nothing special about them.
//!
//! A short way has the caller's registers and makes no [`crate::context::Context`]. It answers what the call answers,
//! or `None` where the call would wait, is about a file that is not plain, or is refused: then nothing has been done
//! but what the call may do twice, and the handler of the table does it all. So each is a part of its handler, never
//! another opinion: a case that is not here is slower and nothing else.
//!
//! Neighbours: `glue/fast.rs`, which comes here from rewritten sites, and [`crate::call::file_transfer`].

use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::fs::vnode::Timestamp;

use crate::abi::time::{CLOCK_MONOTONIC, CLOCK_REALTIME, timespec};
use crate::call::file_transfer::one;
use crate::deliver::Target;
use crate::user::{UserReader, UserWriter, write_all};

/// What a call answers, if its short way knows.
pub type Answer = Option<Result<u64>>;

/// What a transfer came to. One that would wait or raises a signal is the handler's.
#[inline]
fn settled(outcome: Result<usize>) -> Answer {
    match outcome {
        Ok(count) => Some(Ok(count as u64)),
        Err(Errno::EAGAIN | Errno::EINTR | Errno::EPIPE) => None,
        Err(error) => Some(Err(error)),
    }
}

#[inline]
fn now(caller: &Target<'_>) -> Timestamp {
    Timestamp::from_ns(caller.system.realtime_ns())
}

/// `read(2)`, `pread64(2)`: with an offset or at the description's own.
#[inline(always)]
fn read_from(caller: &Target<'_>, frame: &UpcallFrame, offset: Option<u64>) -> Answer {
    let description = caller.process.files.get(frame.rdi).ok()?;
    if !description.is_plain() || !description.is_readable() {
        return None;
    }
    let extents = one(frame.rsi, frame.rdx).ok()?;
    let mut writer = UserWriter::new(caller.memory, &extents);
    settled(match offset {
        None => description.read(&mut writer, || now(caller)),
        Some(offset) => description.read_at(offset, &mut writer, || now(caller)),
    })
}

/// `write(2)`, `pwrite64(2)`.
#[inline(always)]
fn write_to(caller: &Target<'_>, frame: &UpcallFrame, offset: Option<u64>) -> Answer {
    let files = &caller.process.files;
    let description = files.get(frame.rdi).ok()?;
    if !description.is_plain() || !description.is_writable() || files.size_limit_bytes() != u64::MAX {
        return None;
    }
    let extents = one(frame.rsi, frame.rdx).ok()?;
    let mut reader = UserReader::new(caller.memory, &extents);
    settled(match offset {
        None => description.write(&mut reader, || now(caller)),
        Some(offset) => description.write_at(offset, &mut reader, || now(caller)),
    })
}

/// An offset that is not negative.
#[inline]
fn offset_of(frame: &UpcallFrame) -> Option<u64> {
    Some(frame.r10).filter(|offset| *offset <= i64::MAX as u64)
}

/// `read(2)`.
#[inline(always)]
pub fn read(caller: &Target<'_>, frame: &UpcallFrame) -> Answer {
    read_from(caller, frame, None)
}

/// `write(2)`.
#[inline(always)]
pub fn write(caller: &Target<'_>, frame: &UpcallFrame) -> Answer {
    write_to(caller, frame, None)
}

/// `pread64(2)`.
#[inline(always)]
pub fn pread64(caller: &Target<'_>, frame: &UpcallFrame) -> Answer {
    read_from(caller, frame, Some(offset_of(frame)?))
}

/// `pwrite64(2)`.
#[inline(always)]
pub fn pwrite64(caller: &Target<'_>, frame: &UpcallFrame) -> Answer {
    write_to(caller, frame, Some(offset_of(frame)?))
}

/// `clock_gettime(2)` of the clocks that everybody asks for.
#[inline(always)]
pub fn clock_gettime(caller: &Target<'_>, frame: &UpcallFrame) -> Answer {
    let ns = match frame.rdi {
        CLOCK_REALTIME => caller.system.realtime_ns(),
        CLOCK_MONOTONIC => caller.system.kernel.now_ns(),
        _ => return None,
    };
    Some(write_all(caller.memory, frame.rsi, &timespec(ns)).map(|()| 0))
}
