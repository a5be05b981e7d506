//! System V message queues: `msgget`, `msgsnd`, `msgrcv`, `msgctl`.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::ipc::message_queue::{Look, Message, MessageQueues, ReceiveRequest, Receiving, Selection, Sending};
use exos::task::schedule::Task;

use super::ipc_object::{
    Asker, IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, OWNERSHIP_BYTES, encode_ownership, id_of, making,
    read_ownership,
};
use crate::abi::bytes::{Encoder, get};
use crate::abi::user_memory::{read_array, read_exact, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::caller::Restart;

entries! {
    msgget;
    msgsnd;
    msgrcv;
    msgctl;
}

/// Bytes before a message's text: its type.
const KIND_BYTES: u64 = 8;

/// `msgget(2)`.
pub fn msgget(context: &mut Context<'_>, [key, flags, ..]: Arguments) -> Result<u64> {
    let asker = Asker::new(context);
    let id = context.system.ipc.messages.get(&asker.caller(), key as u32 as i32, making(flags), flags as u32)?;
    Ok(id as u64)
}

/// An object that was there when the call began is gone.
fn gone(error: Errno) -> Errno {
    if error == Errno::EINVAL { Errno::EIDRM } else { error }
}

/// `msgsnd(2)`.
pub fn msgsnd(context: &mut Context<'_>, [id, address, length, flags, ..]: Arguments) -> Result<u64> {
    context.restart = Restart::UnlessHandler;
    let kind = i64::from_le_bytes(read_array(context.memory, address)?);
    let memory = context.memory;
    let (asker, queues) = (Asker::new(context), &context.system.ipc.messages);
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    let id = id_of(id)?;
    let text = address.wrapping_add(KIND_BYTES);
    let mut message = queues.message(kind, length, |bytes| read_exact(memory, text, bytes))?;
    let mut is_first = true;
    loop {
        let waiter = Arc::<Task>::downgrade(&context.thread.task);
        let sending = queues.send(&asker.caller(), id, message, flags & IPC_NOWAIT != 0, waiter);
        let sending = sending.map_err(|error| if is_first { error } else { gone(error) })?;
        is_first = false;
        let wait = match sending {
            Sending::Done => return Ok(0),
            Sending::Waits(wait, unsent) => {
                message = unsent;
                wait
            }
        };
        loop {
            if let Some(outcome) = wait.outcome() {
                outcome?;
                break;
            }
            if let Err(error) = context.wait(None) {
                return match wait.outcome() {
                    Some(Err(removed)) => Err(removed),
                    _ => Err(error),
                };
            }
        }
    }
}

/// `msgrcv(2)`.
pub fn msgrcv(context: &mut Context<'_>, [id, address, room, kind, flags, _]: Arguments) -> Result<u64> {
    const MSG_NOERROR: u64 = 0o10_000;
    const MSG_EXCEPT: u64 = 0o20_000;
    const MSG_COPY: u64 = 0o40_000;
    context.restart = Restart::UnlessHandler;
    let id = id_of(id)?;
    let room_bytes = usize::try_from(room).ok().filter(|room| *room <= isize::MAX as usize).ok_or(Errno::EINVAL)?;
    let (copies, no_wait) = (flags & MSG_COPY != 0, flags & IPC_NOWAIT != 0);
    if copies && (flags & MSG_EXCEPT != 0 || !no_wait) {
        return Err(Errno::EINVAL);
    }
    let selection = match kind as i64 {
        place if copies => Selection::Place(place),
        0 => Selection::Any,
        kind if kind < 0 => Selection::UpTo(kind.saturating_neg()),
        kind if flags & MSG_EXCEPT != 0 => Selection::NotEqual(kind),
        kind => Selection::Equal(kind),
    };
    let request = ReceiveRequest { selection, room_bytes, cuts: flags & MSG_NOERROR != 0, copies, no_wait };
    let message = receive(context, id, request)?;
    write_all(context.memory, address, &message.kind.to_le_bytes())?;
    let text = &message.bytes[..message.bytes.len().min(room_bytes)];
    write_all(context.memory, address.wrapping_add(KIND_BYTES), text)?;
    Ok(text.len() as u64)
}

fn receive(context: &mut Context<'_>, id: i32, request: ReceiveRequest) -> Result<Message> {
    let asker = Asker::new(context);
    let queues: &MessageQueues = &context.system.ipc.messages;
    let mut is_first = true;
    loop {
        let waiter = Arc::<Task>::downgrade(&context.thread.task);
        let receiving = queues.receive(&asker.caller(), id, request, waiter);
        let receiving = receiving.map_err(|error| if is_first { error } else { gone(error) })?;
        is_first = false;
        let wait = match receiving {
            Receiving::Done(message) => return Ok(message),
            Receiving::Waits(wait) => wait,
        };
        loop {
            let outcome = match wait.outcome() {
                Some(outcome) => outcome,
                None => match context.wait(None) {
                    Ok(()) => continue,
                    Err(error) => wait.give_up().unwrap_or(Err(error)),
                },
            };
            match outcome {
                // The queue was changed: permissions are looked at again.
                Err(Errno::EAGAIN) => break,
                outcome => return outcome,
            }
        }
    }
}

/// `msgctl(2)`.
pub fn msgctl(context: &mut Context<'_>, [id, command, buffer, ..]: Arguments) -> Result<u64> {
    const MSG_STAT: u32 = 11;
    const MSG_INFO: u32 = 12;
    const MSG_STAT_ANY: u32 = 13;
    const BYTES_MAX_OFFSET: usize = OWNERSHIP_BYTES + 40;
    let asker = Asker::new(context);
    let (id, caller, queues) = (id_of(id)?, asker.caller(), &context.system.ipc.messages);
    match command as u32 {
        IPC_RMID => queues.remove(&caller, id)?,
        IPC_SET => {
            let owner = read_ownership(context.memory, buffer)?;
            let bytes: [u8; BYTES_MAX_OFFSET + 8] = read_array(context.memory, buffer)?;
            queues.set(&caller, id, owner, get::u64(&bytes, BYTES_MAX_OFFSET))?;
        }
        IPC_STAT => return status(context, id, Look::Number, buffer),
        MSG_STAT => return status(context, id, Look::Index, buffer),
        MSG_STAT_ANY => return status(context, id, Look::Any, buffer),
        IPC_INFO | MSG_INFO => return figures(context, command as u32 == IPC_INFO, buffer),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `struct msqid64_ds`. Looked up by index, the number is the answer.
fn status(context: &Context<'_>, id: i32, look: Look, buffer: u64) -> Result<u64> {
    let asker = Asker::new(context);
    let status = context.system.ipc.messages.status(&asker.caller(), id, look)?;
    let bytes = encode_ownership(&status.ownership, status.id)
        .u64(status.sent_s)
        .u64(status.received_s)
        .u64(status.changed_s)
        .u64(status.bytes)
        .u64(status.message_count)
        .u64(status.bytes_max)
        .u32(status.sender_pid)
        .u32(status.receiver_pid)
        .zero_to(120)
        .finish();
    write_all(context.memory, buffer, &bytes)?;
    Ok(if look == Look::Number { 0 } else { status.id as u64 })
}

/// `struct msginfo`; the highest index in use.
fn figures(context: &Context<'_>, is_limits: bool, buffer: u64) -> Result<u64> {
    /// What Linux says that nobody counts any more: `MSGPOOL`, `MSGMAP`, `MSGSSZ`, `MSGTQL`, `MSGSEG`.
    const POOL: u32 = 512_000;
    const MAP: u32 = 16_384;
    const SEGMENT_BYTES: u32 = 16;
    const HEADERS: u32 = 16_384;
    const SEGMENTS: u16 = 0xffff;
    let figures = context.system.ipc.messages.figures();
    let limits = figures.limits;
    let (pool, map, headers) =
        if is_limits { (POOL, MAP, HEADERS) } else { (figures.queue_count, figures.message_count, figures.bytes) };
    let words =
        [pool, map, limits.message_bytes_max, limits.queue_bytes, limits.queue_count_max, SEGMENT_BYTES, headers];
    let bytes = words.into_iter().fold(Encoder::new(), Encoder::u32).u16(SEGMENTS).zero_to(32).finish();
    write_all(context.memory, buffer, &bytes)?;
    Ok(u64::from(figures.index_last))
}
