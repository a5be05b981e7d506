//! What a request does, an attempt at a time. An attempt never waits for its file: where there is nothing, the chain is
//! parked at the ring until the file tells of a change.

use alloc::sync::Arc;

use aegis_abi::upcall::UpcallFrame;
use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::readiness::Readiness;
use exos::preempt;
use exos::reserve;

use super::control;
use super::owner_of;
use super::prepare::{POLL_MULTI, has_file};
use super::transfer;
use crate::abi::linux::{POLLERR, POLLHUP};
use crate::abi::poll::{events_of, interest_of};
use crate::abi::uring::{Cqe, Sqe, cqe_flag, opcode, sqe_flag};
use crate::call::context::Context;
use crate::call::direct::Direct;
use crate::call::file_metadata::statx;
use crate::call::file_path::{linkat, mkdirat, renameat2, symlinkat, unlinkat};
use crate::call::file_sync::{fadvise, sync_description};
use crate::call::file_transfer::allocate;
use crate::call::memory::madvise;
use crate::call::socket::{shutdown_by, socket_of};
use crate::call::{epoll, socket};
use crate::file::epoll::Epoll;
use crate::file::uring::requests::{Chain, Kept, Marks, Request};
use crate::file::uring::{Ring, code};
use crate::task::caller::Caller;

/// What an attempt came to.
pub(super) enum Outcome {
    /// It is over.
    Done {
        /// A number, or a negative error.
        result: i32,
        /// [`cqe_flag`].
        flags: u32,
        /// What is linked to it does not go on.
        is_failure: bool,
    },
    /// One completion of several; the next attempt follows, or waits.
    Shot {
        /// A number.
        result: i32,
        /// [`cqe_flag`] besides `MORE`.
        flags: u32,
        /// For what the next attempt waits.
        interest: Option<Readiness>,
    },
    /// Nothing can be done until the file is ready for this.
    Wait(Readiness),
    /// A disk is to do it.
    Device(Direct),
    /// It ends by its time, or when so many requests have been completed.
    Sleep,
}

impl Outcome {
    /// Of a call's answer.
    #[inline]
    pub(super) fn of(answer: Result<u64>) -> Self {
        match answer {
            Ok(result) => Self::Done { result: result as i32, flags: 0, is_failure: false },
            Err(error) => Self::Done { result: code(error), flags: 0, is_failure: true },
        }
    }

    /// The same, with what was found on the way.
    pub(super) fn of_outcome(outcome: Result<Self>) -> Self {
        outcome.unwrap_or_else(|error| Self::of(Err(error)))
    }
}

/// Goes on with a chain that waited, for a thread of its process.
pub(super) fn go_on(ring: &Arc<Ring>, caller: &Caller<'_>, chain: Chain) {
    let mut frame = UpcallFrame::default();
    let mut context = Context::new(caller, &mut frame);
    drive(&mut context, ring, chain);
    ring.start_disks(|| context.now_ns());
}

/// The open file of a request. `EBADF`.
fn file_of(context: &Context<'_>, ring: &Arc<Ring>, sqe: &Sqe) -> Result<Arc<Description>> {
    let file = if sqe.has(sqe_flag::FIXED_FILE) {
        ring.file(sqe.descriptor).ok_or(Errno::EBADF)?
    } else {
        context.process.files.get(sqe.descriptor.into())?
    };
    if file.is_path_only() { Err(Errno::EBADF) } else { Ok(file) }
}

/// Does a chain as far as it can be done now; what is left of it waits at the ring.
pub(super) fn drive(context: &mut Context<'_>, ring: &Arc<Ring>, mut chain: Chain) {
    loop {
        if chain.first.refusal < 0 {
            let refusal = chain.first.refusal;
            match ring.finish(chain, (refusal, 0), true) {
                Some(next) => chain = next,
                None => return,
            }
            continue;
        }
        let (outcome, told_count) = attempt_first(context, ring, &mut chain.first);
        let interest = match outcome {
            Outcome::Done { result, flags, is_failure } => match ring.finish(chain, (result, flags), is_failure) {
                Some(next) => {
                    chain = next;
                    continue;
                }
                None => return,
            },
            Outcome::Shot { result, flags, interest } => {
                let user_data = chain.first.sqe.user_data;
                ring.post(Cqe { user_data, result, flags: flags | cqe_flag::MORE });
                match interest {
                    Some(interest) => Some(interest),
                    None if preempt::unless_killed().is_ok() => continue,
                    None => Some(Readiness::EVENTS),
                }
            }
            Outcome::Wait(interest) => Some(interest),
            Outcome::Sleep => None,
            Outcome::Device(direct) => match give(context, ring, chain, direct) {
                Some(next) => {
                    chain = next;
                    continue;
                }
                None => return,
            },
        };
        match park(context, ring, chain, interest, told_count) {
            Ok(_) => return,
            Err((again, None)) => chain = again,
            Err((refused, Some(error))) => match ring.finish(refused, (code(error), 0), true) {
                Some(next) => chain = next,
                None => return,
            },
        }
    }
}

/// An attempt at a request, and what its file had told before.
fn attempt_first(context: &mut Context<'_>, ring: &Arc<Ring>, request: &mut Request) -> (Outcome, u64) {
    if !has_file(request.sqe.opcode) {
        return (attempt_without_file(context, ring, request), 0);
    }
    let found = request.file.take().map_or_else(|| file_of(context, ring, &request.sqe), Ok);
    let file = match found {
        Ok(file) => file,
        Err(error) => return (Outcome::of(Err(error)), 0),
    };
    let told_count = file.wait_queue().map_or(0, |queue| queue.told_count());
    let outcome = attempt(context, ring, request, &file);
    request.file = Some(file);
    (outcome, told_count)
}

/// Gives a disk what it is to do, and has the chain wait for it. What goes on at once, as the disk did not take it.
fn give(context: &Context<'_>, ring: &Arc<Ring>, mut chain: Chain, direct: Direct) -> Option<Chain> {
    chain.first.done = direct.byte_count() as u32;
    let marks = Marks {
        user_data: chain.first.sqe.user_data,
        opcode: chain.first.sqe.opcode,
        file: chain.first.file.as_ref().map(|file| file.number()),
        deadline_ns: None,
        target: None,
        is_at_device: true,
    };
    let parked = ring.park(chain, (None, Readiness::empty()), 0, (owner_of(context), marks));
    let (chain, error) = match parked {
        Err((chain, error)) => (chain, error.unwrap_or(Errno::EIO)),
        Ok(number) => match direct.submit(context, (ring.clone(), number)) {
            Ok(queue) => {
                ring.note_disk(&queue);
                return None;
            }
            Err(error) => (ring.take_back(number)?, error),
        },
    };
    ring.finish(chain, (code(error), 0), true)
}

/// Has a chain wait for its file and its time.
#[expect(clippy::result_large_err, reason = "the chain comes back as it is; there may be no memory to box it in")]
fn park(
    context: &mut Context<'_>,
    ring: &Arc<Ring>,
    mut chain: Chain,
    interest: Option<Readiness>,
    told_count: u64,
) -> core::result::Result<(), (Chain, Option<Errno>)> {
    let now_ns = context.now_ns();
    let bound = match interest {
        None => Some(&mut chain.first.kept),
        Some(_) if chain.is_bounded() => chain.rest.front_mut().map(|bound| &mut bound.kept),
        Some(_) => None,
    };
    let deadline_ns = match bound {
        Some(Kept::Time { ns, is_point }) => {
            if !core::mem::replace(is_point, true) {
                *ns = now_ns.saturating_add(*ns);
            }
            Some(*ns)
        }
        _ => None,
    };
    let sqe = &chain.first.sqe;
    let counts = interest.is_none() && sqe.offset != 0;
    let marks = Marks {
        user_data: sqe.user_data,
        opcode: sqe.opcode,
        file: chain.first.file.as_ref().map(|file| file.number()),
        deadline_ns,
        target: counts.then(|| ring.target_after(sqe.offset as u32)),
        is_at_device: false,
    };
    let file = chain.first.file.clone();
    let queue = file.as_ref().and_then(|file| file.wait_queue());
    if interest.is_some() && queue.is_none() {
        return Err((chain, Some(Errno::EAGAIN)));
    }
    let place = (queue, interest.unwrap_or_default());
    ring.park(chain, place, told_count, (owner_of(context), marks))?;
    if deadline_ns.is_some() {
        context.system.platform.arm_timer(deadline_ns);
    }
    Ok(())
}

/// An attempt at a request about an open file.
fn attempt(context: &mut Context<'_>, ring: &Arc<Ring>, request: &mut Request, file: &Arc<Description>) -> Outcome {
    let sqe = request.sqe;
    match sqe.opcode {
        opcode::READ | opcode::READV | opcode::READ_FIXED => transfer::transfer(context, ring, request, file, true),
        opcode::WRITE | opcode::WRITEV | opcode::WRITE_FIXED => transfer::transfer(context, ring, request, file, false),
        opcode::SEND | opcode::RECV => transfer::bytes(context, ring, request, file),
        opcode::SENDMSG | opcode::RECVMSG => transfer::message(context, request, file),
        opcode::ACCEPT => transfer::accept(context, ring, request, file),
        opcode::CONNECT => transfer::connect(context, request, file),
        opcode::POLL_ADD => poll(ring, &sqe, file),
        opcode::SHUTDOWN => Outcome::of(socket_of(file).and_then(|socket| shutdown_by(&socket, sqe.length.into()))),
        opcode::FSYNC | opcode::SYNC_FILE_RANGE => Outcome::of(sync_description(file)),
        opcode::FALLOCATE => Outcome::of(
            reserve::check().and_then(|()| allocate(context, file, [sqe.length.into(), sqe.offset, sqe.address])),
        ),
        opcode::FADVISE => Outcome::of(fadvise(file, sqe.length.into(), sqe.call_flags.into())),
        _ => Outcome::of(Err(Errno::EINVAL)),
    }
}

/// `POLL_ADD`.
fn poll(ring: &Arc<Ring>, sqe: &Sqe, file: &Arc<Description>) -> Outcome {
    let events = sqe.call_flags | POLLERR | POLLHUP;
    let found = events_of(file.readiness()) & events;
    let interest = interest_of(events);
    if found == 0 {
        return if file.wait_queue().is_some() { Outcome::Wait(interest) } else { Outcome::of(Err(Errno::EINVAL)) };
    }
    // One whose completions are the cause of others of its own is told once.
    let is_circle = ring.is_bell(file) || file.extension::<Ring>().is_some() || file.extension::<Epoll>().is_some();
    if sqe.length & POLL_MULTI == 0 || is_circle || file.wait_queue().is_none() {
        return Outcome::of(Ok(found.into()));
    }
    Outcome::Shot { result: found as i32, flags: 0, interest: Some(interest) }
}

/// An attempt at a request that is not about an open file.
fn attempt_without_file(context: &mut Context<'_>, ring: &Arc<Ring>, request: &mut Request) -> Outcome {
    let sqe = request.sqe;
    let (descriptor, length, flags) = (u64::from(sqe.descriptor), u64::from(sqe.length), u64::from(sqe.call_flags));
    if matches!(sqe.opcode, opcode::NOP) {
        return Outcome::of(Ok(0));
    }
    let answer = match sqe.opcode {
        opcode::TIMEOUT => return Outcome::Sleep,
        // One that comes after nothing that waits has nothing to bound.
        opcode::LINK_TIMEOUT => Err(Errno::ECANCELED),
        opcode::TIMEOUT_REMOVE => control::remove_timeout(context, ring, &sqe),
        opcode::POLL_REMOVE => control::remove_poll(context, ring, &sqe),
        opcode::ASYNC_CANCEL => control::cancel(context, ring, &sqe),
        opcode::PROVIDE_BUFFERS => control::provide(ring, &sqe),
        opcode::REMOVE_BUFFERS => {
            ring.remove_buffers(sqe.buffer, descriptor as usize).map(|count| count as u64).ok_or(Errno::ENOENT)
        }
        opcode::FILES_UPDATE => control::update_files(context, ring, sqe.offset, sqe.address, length),
        opcode::CLOSE => control::close(context, ring, &sqe),
        opcode::STATX => statx(context, [descriptor, sqe.address, flags, length, sqe.offset, 0]),
        opcode::UNLINKAT => unlinkat(context, [descriptor, sqe.address, flags, 0, 0, 0]),
        opcode::MADVISE => madvise(context, [sqe.address, length, flags, 0, 0, 0]),
        // The rest makes something.
        _ => match reserve::check() {
            Err(error) => Err(error),
            Ok(()) => attempt_to_make(context, ring, &sqe),
        },
    };
    Outcome::of(answer)
}

fn attempt_to_make(context: &mut Context<'_>, ring: &Arc<Ring>, sqe: &Sqe) -> Result<u64> {
    let (descriptor, length, flags) = (u64::from(sqe.descriptor), u64::from(sqe.length), u64::from(sqe.call_flags));
    match sqe.opcode {
        opcode::OPENAT | opcode::OPENAT2 => control::open(context, ring, sqe),
        opcode::RENAMEAT => renameat2(context, [descriptor, sqe.address, length, sqe.offset, flags, 0]),
        opcode::MKDIRAT => mkdirat(context, [descriptor, sqe.address, length, 0, 0, 0]),
        opcode::SYMLINKAT => symlinkat(context, [sqe.address, descriptor, sqe.offset, 0, 0, 0]),
        opcode::LINKAT => linkat(context, [descriptor, sqe.address, length, sqe.offset, flags, 0]),
        opcode::EPOLL_CTL => epoll::epoll_ctl(context, [descriptor, length, sqe.offset, sqe.address, 0, 0]),
        opcode::SOCKET => {
            let made = socket::socket(context, [descriptor, sqe.offset, length, 0, 0, 0])?;
            control::install_made(context, ring, made, sqe.file_index)
        }
        _ => Err(Errno::EINVAL),
    }
}
