//! Linux's asynchronous input and output: `io_setup` and its kin.
//!
//! As on Linux a transfer of a file, a pipe or a socket is done by the call that submits it, which waits where there is
//! something to wait for; its event is there when the call returns. Polls wait by themselves
//! ([`crate::task::aio`]). What is wrong with a request is the call's answer, what becomes of its transfer the event's.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::block::queue::BlockQueue;
use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::event_counter::EventCounter;
use exos::fs::proc_fs::SystemText;
use exos::fs::readiness::Readiness;
use exos::mem::{AreaFlags, AreaLabel, MapBacking, MapRequest, Placement, Protection};
use exos::preempt;
use exos::reserve;

use super::direct::{self, Direct};
use super::file_sync::sync_description;
use super::file_transfer::{How, check_end, one, read_as, write_as};
use super::poll::{read_deadline, restore_mask};
use super::signal::install_optional_mask;
use crate::abi::bytes::get;
use crate::abi::errno::to_word;
use crate::abi::user_memory::{Extent, read_array, read_extents, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::aio::{AioContext, BATCH_COUNT, Bell, EVENT_BYTES, Ticket, ring_bell};

entries! {
    io_setup;
    io_destroy;
    io_submit;
    io_getevents;
    io_pgetevents;
    io_cancel: "of polls, as all else is done when it has been submitted";
}

/// Bytes of `struct iocb`, and where its key is.
const REQUEST_BYTES: usize = 64;
const KEY_OFFSET: u64 = 8;
/// `IOCB_FLAG_RESFD`, `IOCB_FLAG_IOPRIO`.
const FLAG_BELL: u32 = 1;
const FLAG_PRIORITY: u32 = 2;

/// `IOCB_CMD_*`.
mod operation {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const SYNC: u16 = 2;
    pub(super) const DATA_SYNC: u16 = 3;
    pub(super) const POLL: u16 = 5;
    pub(super) const READ_VECTOR: u16 = 7;
    pub(super) const WRITE_VECTOR: u16 = 8;
}

/// `struct iocb`, copied.
struct Request {
    ticket: Ticket,
    flags: u64,
    operation: u16,
    description: Arc<Description>,
    buffer: u64,
    length: u64,
    offset: u64,
    bell: Bell,
}

/// The context that a program names, which its ring has to be at.
fn context_at(context: &Context<'_>, name: u64) -> Result<Arc<AioContext>> {
    read_array::<4>(context.memory, name).map_err(|_| Errno::EINVAL)?;
    context.process.space().async_contexts.get(name).ok_or(Errno::EINVAL)
}

/// `io_setup(2)`.
pub fn io_setup(context: &mut Context<'_>, [count, place, ..]: Arguments) -> Result<u64> {
    let before = u64::from_le_bytes(read_array(context.memory, place)?);
    if before != 0 || count as u32 == 0 {
        return Err(Errno::EINVAL);
    }
    let system = context.system;
    let limit = system.listing.settings.get(SystemText::AsyncCountMax).unwrap_or(0).cast_unsigned();
    let made = AioContext::new(&system.pool, &system.async_account, (count as u32, limit), system.processor_count)?;
    let space = context.process.space();
    let (source, length) = (made.memory().clone(), made.memory().byte_count() as u64);
    let address = space.lock().map(MapRequest {
        placement: Placement::Hint(0),
        length,
        protection: Protection::READ | Protection::WRITE,
        is_shared: true,
        flags: AreaFlags::empty(),
        populate: true,
        backing: MapBacking::File { source, offset_bytes: 0, is_readable: true, is_writable: true },
        label: AreaLabel::None,
    })?;
    let told = space.async_contexts.add(address, &made);
    let told = told.and_then(|()| write_all(context.memory, place, &address.to_le_bytes()));
    if told.is_err() {
        let _ = space.async_contexts.remove(address);
        space.unmap(address, length)?;
    }
    told.map(|()| 0)
}

/// `io_destroy(2)`.
pub fn io_destroy(context: &mut Context<'_>, [name, ..]: Arguments) -> Result<u64> {
    context_at(context, name)?;
    let space = context.process.space();
    let ended = space.async_contexts.remove(name).ok_or(Errno::EINVAL)?;
    space.unmap(name, ended.memory().byte_count() as u64)?;
    Ok(0)
}

/// `io_submit(2)`.
pub fn io_submit(context: &mut Context<'_>, [name, count, list, ..]: Arguments) -> Result<u64> {
    let count = u64::try_from(count as i64).map_err(|_| Errno::EINVAL)?;
    let ring = context_at(context, name)?;
    let mut disks = Disks::default();
    let outcome = submit_all(context, &ring, [count.min(u64::from(ring.length())), list], &mut disks);
    disks.start(context.now_ns());
    outcome
}

/// Lists of disks to which requests were submitted that are to be started.
#[derive(Default)]
struct Disks(Vec<Arc<BlockQueue>>);

impl Disks {
    fn note(&mut self, queue: Arc<BlockQueue>) {
        if !self.0.iter().any(|other| Arc::ptr_eq(other, &queue)) {
            self.0.push(queue);
        }
    }

    fn start(&self, now_ns: u64) {
        self.0.iter().for_each(|queue| queue.start(now_ns));
    }
}

fn submit_all(
    context: &mut Context<'_>,
    ring: &Arc<AioContext>,
    [count, list]: [u64; 2],
    disks: &mut Disks,
) -> Result<u64> {
    let mut done = 0;
    let mut addresses = [[0; 8]; BATCH_COUNT];
    let (mut batch_start, mut batch_end) = (0, 0);
    while done < count {
        if done == batch_end {
            (batch_start, batch_end) = (done, done + read_addresses(context, &mut addresses, list, done, count));
        }
        let address = addresses.get((done - batch_start) as usize).filter(|_| done < batch_end).ok_or(Errno::EFAULT);
        let outcome = address.and_then(|address| submit_one(context, ring, u64::from_le_bytes(*address), disks));
        match outcome {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        if preempt::unless_killed().is_err() {
            break;
        }
    }
    Ok(done)
}

/// Reads the addresses of the next requests, as many as there is room for: how many could be read.
fn read_addresses(context: &Context<'_>, into: &mut [[u8; 8]; BATCH_COUNT], list: u64, done: u64, count: u64) -> u64 {
    let place = list.wrapping_add(done * 8);
    let wanted = (count - done).min(BATCH_COUNT as u64) as usize;
    let read = context.memory.copy_in(place, into[..wanted].as_flattened_mut());
    read.map_or(0, |byte_count| byte_count as u64 / 8)
}

fn submit_one(context: &mut Context<'_>, ring: &Arc<AioContext>, address: u64, disks: &mut Disks) -> Result<()> {
    let bytes: [u8; REQUEST_BYTES] = read_array(context.memory, address)?;
    let (length, is_reserved) = (get::u64(&bytes, 32), get::u64(&bytes, 48) != 0);
    if is_reserved || length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    ring.begin()?;
    let outcome = read_request(context, address, &bytes).and_then(|request| start(context, ring, request, disks));
    if outcome.is_err() {
        ring.abandon();
    }
    outcome
}

fn read_request(context: &Context<'_>, address: u64, bytes: &[u8]) -> Result<Request> {
    let files = &context.process.files;
    let description = files.get(get::u32(bytes, 20).into())?;
    let flags = get::u32(bytes, 56);
    let bell = if flags & FLAG_BELL == 0 {
        None
    } else {
        let bell = files.get(get::u32(bytes, 60).into())?;
        bell.extension::<EventCounter>().ok_or(Errno::EINVAL)?;
        Some(bell)
    };
    write_all(context.memory, address + KEY_OFFSET, &[0; 4])?;
    if flags & FLAG_PRIORITY != 0 {
        check_priority(get::u16(bytes, 18))?;
    }
    Ok(Request {
        ticket: Ticket { data: get::u64(bytes, 0), request: address },
        flags: get::u32(bytes, 12).into(),
        operation: get::u16(bytes, 16),
        description,
        buffer: get::u64(bytes, 24),
        length: get::u64(bytes, 32),
        offset: get::u64(bytes, 40),
        bell,
    })
}

/// A priority of input and output: none, or one of three classes.
fn check_priority(priority: u16) -> Result<()> {
    match (priority >> 13, priority & 0x1fff) {
        (0, 0) | (3, _) => Ok(()),
        (1 | 2, 0..=7) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Does a request, or lets it wait.
fn start(context: &mut Context<'_>, ring: &Arc<AioContext>, request: Request, disks: &mut Disks) -> Result<()> {
    let description = &request.description;
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    let has_more = request.buffer | request.offset | request.length | request.flags != 0;
    let outcome = match request.operation {
        operation::READ | operation::READ_VECTOR | operation::WRITE | operation::WRITE_VECTOR => {
            match transfer(context, description, &request)? {
                Moved::Now(outcome) => outcome,
                Moved::ByDisk(direct) => {
                    reserve::check()?;
                    let number = ring.give(request.ticket, direct.byte_count(), request.bell)?;
                    let given = direct.submit(context, (ring.clone(), number));
                    disks.note(given.inspect_err(|_| ring.take_back(number))?);
                    return Ok(());
                }
            }
        }
        operation::SYNC | operation::DATA_SYNC if has_more => return Err(Errno::EINVAL),
        operation::SYNC | operation::DATA_SYNC => match sync_description(description) {
            Err(Errno::EINVAL) => return Err(Errno::EINVAL),
            outcome => outcome,
        },
        operation::POLL => {
            let has_more = request.offset | request.length | request.flags != 0;
            let events = u16::try_from(request.buffer).map_err(|_| Errno::EINVAL)?;
            if has_more {
                return Err(Errno::EINVAL);
            }
            return ring.poll(request.ticket, (request.description, events.into()), request.bell);
        }
        _ => return Err(Errno::EINVAL),
    };
    let outcome = outcome.unwrap_or_else(|error| match error {
        // Its signal is seen to when the call returns; an event cannot start a call again.
        Errno::EINTR => to_word(Errno::EINTR),
        error => to_word(error),
    });
    ring.complete(&request.ticket, outcome.cast_signed());
    ring_bell(&request.bell);
    Ok(())
}

/// What became of a transfer where it was submitted.
enum Moved {
    /// It is done.
    Now(Result<u64>),
    /// A disk is to do it.
    ByDisk(Direct),
}

/// A transfer. The outer error is the submission's, the inner one the transfer's.
fn transfer(context: &mut Context<'_>, description: &Arc<Description>, request: &Request) -> Result<Moved> {
    let is_read = matches!(request.operation, operation::READ | operation::READ_VECTOR);
    let is_open = if is_read { description.is_readable() } else { description.is_writable() };
    if !is_open {
        return Err(Errno::EBADF);
    }
    let (single, several): ([Extent; 1], Vec<Extent>);
    let extents = if matches!(request.operation, operation::READ | operation::WRITE) {
        single = one(request.buffer, request.length)?;
        &single[..]
    } else {
        several = read_extents(context.memory, request.buffer, request.length)?;
        &several[..]
    };
    let offset = if description.is_stream() { None } else { Some(request.offset) };
    if request.offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    check_end(Some(request.offset), extents.iter().map(|extent| extent.length).sum())?;
    if let (Some(offset), 0) = (offset, request.flags) {
        match direct::prepare(context, description, extents, offset, is_read) {
            Ok(None) => {}
            Ok(Some(direct)) => return Ok(Moved::ByDisk(direct)),
            Err(error) => return Ok(Moved::Now(Err(error))),
        }
    }
    let how = How { offset, flags: request.flags, may_wait: !description.is_non_blocking() };
    let outcome = if is_read { read_as } else { write_as }(context, description, extents, how);
    // Flags that are not there are the submission's error.
    if outcome == Err(Errno::EOPNOTSUPP) { Err(Errno::EOPNOTSUPP) } else { Ok(Moved::Now(outcome)) }
}

/// `io_getevents(2)`.
pub fn io_getevents(context: &mut Context<'_>, [name, least, most, events, timeout, _]: Arguments) -> Result<u64> {
    let deadline_ns = read_deadline(context, timeout)?;
    get_events(context, name, [least, most, events], deadline_ns)
}

/// `io_pgetevents(2)`: the last argument points at a mask's address and size.
pub fn io_pgetevents(context: &mut Context<'_>, [name, least, most, events, timeout, mask]: Arguments) -> Result<u64> {
    let deadline_ns = read_deadline(context, timeout)?;
    let (mask, mask_bytes) = if mask == 0 {
        (0, 0)
    } else {
        let bytes: [u8; 16] = read_array(context.memory, mask)?;
        (get::u64(&bytes, 0), get::u64(&bytes, 8))
    };
    install_optional_mask(context, mask, mask_bytes)?;
    let outcome = get_events(context, name, [least, most, events], deadline_ns);
    restore_mask(context, &outcome);
    outcome
}

fn get_events(
    context: &mut Context<'_>,
    name: u64,
    [least, most, events]: [u64; 3],
    deadline_ns: Option<u64>,
) -> Result<u64> {
    let ring = context_at(context, name)?;
    if least as i64 > most as i64 || (least as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    let (mut done, mut watching) = (0, None);
    loop {
        ring.look();
        done = take_events(context, &ring, (done, most), events)?;
        if done >= least {
            return Ok(done);
        }
        if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            return Ok(done);
        }
        if watching.is_none() {
            watching = Some(context.watch(ring.queue(), Readiness::READ));
            continue;
        }
        match context.wait(deadline_ns) {
            Ok(()) => {}
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

/// Moves events to the program, `most` of them with those that it has: how many it has then.
fn take_events(context: &Context<'_>, ring: &AioContext, (mut done, most): (u64, u64), events: u64) -> Result<u64> {
    let mut batch = [[0; EVENT_BYTES]; BATCH_COUNT];
    while done < most {
        let room = (most - done).min(BATCH_COUNT as u64) as usize;
        let count = match ring.take(&mut batch[..room]) {
            Ok(0) => break,
            Err(_) if done > 0 => break,
            taken => taken?,
        };
        let place = events.wrapping_add(done * EVENT_BYTES as u64);
        if let Err(error) = write_all(context.memory, place, batch[..count].as_flattened()) {
            ring.put_back(count);
            return if done > 0 { Ok(done) } else { Err(error) };
        }
        done += count as u64;
        if preempt::unless_killed().is_err() {
            break;
        }
    }
    Ok(done)
}

/// `io_cancel(2)`.
pub fn io_cancel(context: &mut Context<'_>, [name, request, ..]: Arguments) -> Result<u64> {
    let key = u32::from_le_bytes(read_array(context.memory, request.wrapping_add(KEY_OFFSET))?);
    if key != 0 {
        return Err(Errno::EINVAL);
    }
    let ring = context_at(context, name)?;
    if ring.cancel(request) { Err(Errno::EINPROGRESS) } else { Err(Errno::EINVAL) }
}
