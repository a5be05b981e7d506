//! `io_uring`: rings are made, submitted to, waited for.
//!
//! | module | holds |
//! |---|---|
//! | [`prepare`] | what a request may say, and what is read of the program's memory before the call returns |
//! | [`issue`] | what a request does, an attempt at a time |
//! | [`transfer`] | reads and writes, sockets |
//! | [`control`] | timeouts, cancellations, provided buffers, files of the ring's table |
//! | [`register`] | `io_uring_register` |
//!
//! A ring and what waits there are in [`crate::file::uring`].

mod control;
mod issue;
mod prepare;
mod register;
mod transfer;

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::readiness::Readiness;
use exos::preempt;
use exos::reserve;

use self::register::io_uring_register;
use super::poll::restore_mask;
use super::signal::install_optional_mask;
use crate::abi::bytes::get;
use crate::abi::time::read_timespec;
use crate::abi::uring::{PARAMS_BYTES, Sqe, enter, opcode, params, setup, sqe_flag};
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::uring::queues::{ENTRY_COUNT_MAX, Queues};
use crate::file::uring::requests::{Chain, Owner, Request};
use crate::file::uring::{Ring, code};
use crate::task::caller::Restart;

entries! {
    io_uring_setup: "no SQPOLL, IOPOLL, SQE128, CQE32";
    io_uring_enter: "of requests those that IORING_REGISTER_PROBE tells; no registered ring";
    io_uring_register: "buffers, files, eventfd, probe, enabling";
}

/// The ring of a description. `EOPNOTSUPP`: it is something else.
fn ring_of(description: &Description) -> Result<Arc<Ring>> {
    let ring = description.extension::<Ring>().ok_or(Errno::EOPNOTSUPP)?;
    ring.itself().ok_or(Errno::EOPNOTSUPP)
}

/// The length of a queue that is asked for. `EINVAL`.
fn length_of(wanted: u32, count_max: u32, is_clamped: bool) -> Result<u32> {
    match wanted {
        0 => Err(Errno::EINVAL),
        wanted if wanted <= count_max => Ok(wanted.next_power_of_two()),
        _ if is_clamped => Ok(count_max),
        _ => Err(Errno::EINVAL),
    }
}

/// `io_uring_setup(2)`.
pub fn io_uring_setup(context: &mut Context<'_>, [count, address, ..]: Arguments) -> Result<u64> {
    let bytes: [u8; PARAMS_BYTES] = read_array(context.memory, address)?;
    let (cq_wanted, flags) = (get::u32(&bytes, 4), get::u32(&bytes, 8));
    let thread = [12, 16, 24].map(|place| get::u32(&bytes, place));
    let is_reserved = bytes[28..40].iter().any(|byte| *byte != 0);
    let lone = flags & setup::DEFER_TASKRUN != 0 && flags & setup::SINGLE_ISSUER == 0;
    if is_reserved || flags & !setup::ALL != 0 || lone {
        return Err(Errno::EINVAL);
    }
    let is_clamped = flags & setup::CLAMP != 0;
    let sq_count = length_of(count as u32, ENTRY_COUNT_MAX, is_clamped)?;
    let cq_count = match flags & setup::CQSIZE {
        0 => 2 * sq_count,
        _ => length_of(cq_wanted, 2 * ENTRY_COUNT_MAX, is_clamped)?,
    };
    if cq_count < sq_count {
        return Err(Errno::EINVAL);
    }
    if flags & setup::ATTACH_WQ != 0 {
        ring_of(&*context.process.files.get(thread[2].into())?).map_err(|_| Errno::EINVAL)?;
    }
    let queues = Queues::new(&context.system.pool, [sq_count, cq_count])?;
    let told = params(flags, queues.counts(), queues.array(), thread);
    let ring = Ring::new(queues, flags, issue::go_on);
    context.process.work.add(&ring.as_work())?;
    context.system.processes.note_timed(context.process);
    // As on Linux, before there is a descriptor that would have to be taken back.
    write_all(context.memory, address, &told)?;
    let now = crate::file::paths::now(context);
    let namespace = &context.system.files.namespace;
    let description = namespace.anonymous("anon_inode:[io_uring]", ring, StatusFlags::empty(), now);
    context.process.files.add(description, true)
}

/// What waiting for completions is bounded by.
#[derive(Default)]
struct Bounds {
    mask: u64,
    mask_bytes: u64,
    /// Where a time is, if there is one.
    time: u64,
}

fn read_bounds(context: &Context<'_>, flags: u64, argument: u64, byte_count: u64) -> Result<Bounds> {
    const BYTES: u64 = 24;
    if flags & enter::EXT_ARG == 0 {
        return Ok(Bounds { mask: argument, mask_bytes: byte_count, time: 0 });
    }
    if byte_count != BYTES {
        return Err(Errno::EINVAL);
    }
    let bytes: [u8; BYTES as usize] = read_array(context.memory, argument)?;
    if get::u32(&bytes, 12) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Bounds { mask: get::u64(&bytes, 0), mask_bytes: get::u32(&bytes, 8).into(), time: get::u64(&bytes, 16) })
}

/// `io_uring_enter(2)`.
pub fn io_uring_enter(
    context: &mut Context<'_>,
    [descriptor, count, least, flags, argument, byte_count]: Arguments,
) -> Result<u64> {
    let (flags, count) = (u64::from(flags as u32), count as u32);
    if flags & !enter::ALL != 0 {
        return Err(Errno::EINVAL);
    }
    let description = context.process.files.get(descriptor)?;
    let ring = ring_of(&description)?;
    if ring.is_disabled() {
        return Err(Errno::EBADFD);
    }
    let mut submitted = 0;
    if count > 0 {
        // What a transfer says of starting again is not the call's.
        submitted = submit(context, &ring, count)?;
        context.restart = Restart::Never;
        if submitted != count {
            return Ok(submitted.into());
        }
    }
    if flags & enter::GETEVENTS == 0 {
        return Ok(submitted.into());
    }
    let outcome = read_bounds(context, flags, argument, byte_count)
        .and_then(|bounds| await_completions(context, &ring, least as u32, &bounds));
    if submitted > 0 { Ok(submitted.into()) } else { outcome }
}

/// The process and thread that submit.
fn owner_of(context: &Context<'_>) -> Owner {
    Owner { process: Arc::downgrade(context.process), thread: Arc::downgrade(context.thread) }
}

/// Takes up to `count` entries and begins what they say: how many were taken.
fn submit(context: &mut Context<'_>, ring: &Arc<Ring>, count: u32) -> Result<u32> {
    context.process.work.add(&ring.as_work())?;
    context.system.processes.note_timed(context.process);
    let mut taken = 0;
    let wanted = ring.submitted_count(count);
    while taken < wanted {
        let (chain, chain_count, is_refused) = take_chain(context, ring, wanted - taken);
        taken += chain_count;
        if let Some(chain) = chain
            && let Some(chain) = ring.begin(chain, || owner_of(context))
        {
            issue::drive(context, ring, chain);
        }
        let goes_on = !is_refused || ring.flags() & setup::SUBMIT_ALL != 0;
        if !goes_on || preempt::unless_killed().is_err() {
            break;
        }
    }
    ring.with_ends(|queues, ends| queues.show_taken(ends));
    ring.start_disks(|| context.now_ns());
    context.process.work.run(&context.caller);
    ring.tell(false);
    Ok(taken)
}

/// Takes the next entry and those that are linked to it, at most `room`. How many, and whether the submission ends with
/// them as the last is refused, or its place names none.
fn take_chain(context: &mut Context<'_>, ring: &Arc<Ring>, room: u32) -> (Option<Chain>, u32, bool) {
    let Some(sqe) = ring.with_ends(|queues, ends| queues.next_sqe(ends)) else { return (None, 0, true) };
    let mut chain = Chain { first: prepared(context, ring, sqe, None), ..Chain::default() };
    let (mut count, mut last) = (1, sqe);
    let mut is_refused = chain.first.refusal < 0;
    while last.flags & sqe_flag::LINKS != 0 && count < room && reserve::reserve_queue(&mut chain.rest, 1).is_ok() {
        let Some(sqe) = ring.with_ends(|queues, ends| queues.next_sqe(ends)) else { return (Some(chain), count, true) };
        count += 1;
        let request = prepared(context, ring, sqe, Some(&last));
        is_refused = request.refusal < 0 || is_refused;
        chain.rest.push_back(request);
        last = sqe;
    }
    let is_last_refused = chain.rest.back().unwrap_or(&chain.first).refusal < 0;
    if is_refused && chain.first.refusal == 0 {
        chain.first.refusal = code(Errno::ECANCELED);
    }
    (Some(chain), count, is_last_refused)
}

/// A request, with why it is refused if it is.
fn prepared(context: &mut Context<'_>, ring: &Arc<Ring>, sqe: Sqe, before: Option<&Sqe>) -> Request {
    let mut request = Request { sqe, ..Request::default() };
    let is_bound = sqe.opcode == opcode::LINK_TIMEOUT;
    let may_bound = before.is_some_and(|before| before.opcode != opcode::LINK_TIMEOUT);
    let outcome =
        if is_bound && !may_bound { Err(Errno::EINVAL) } else { prepare::prepare(context, ring, &mut request) };
    if let Err(error) = outcome {
        request.refusal = code(error);
    }
    request
}

/// Waits until there are `least` completions. As on Linux, what ends the wait before counts only if there is none.
fn await_completions(context: &mut Context<'_>, ring: &Arc<Ring>, least: u32, bounds: &Bounds) -> Result<u64> {
    let [_, cq_count] = ring.queues().counts();
    let least = least.min(cq_count);
    let deadline_ns = match bounds.time {
        0 => None,
        time => Some(context.now_ns().saturating_add(read_timespec(context.memory, time)?)),
    };
    install_optional_mask(context, bounds.mask, bounds.mask_bytes)?;
    let outcome = await_count(context, ring, least, deadline_ns);
    let outcome = match outcome {
        Err(_) if ring.completed_count() > 0 => Ok(0),
        outcome => outcome,
    };
    restore_mask(context, &outcome);
    if ring.with_ends(|queues, ends| queues.take_lost(ends)) && outcome.is_ok() {
        return Err(Errno::EBADR);
    }
    outcome
}

fn await_count(context: &mut Context<'_>, ring: &Arc<Ring>, least: u32, deadline_ns: Option<u64>) -> Result<u64> {
    let mut watching = None;
    loop {
        if ring.completed_count() >= least {
            return Ok(0);
        }
        if watching.is_none() {
            watching = Some(context.watch(ring.queue(), Readiness::READ));
        } else {
            context.wait(deadline_ns)?;
        }
        ring.look();
        context.process.work.run(&context.caller);
        if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) && ring.completed_count() < least {
            return Err(Errno::ETIME);
        }
    }
}
