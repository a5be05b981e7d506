//! System V semaphores: `semget`, `semop`, `semtimedop`, `semctl`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::ipc::semaphore::{Attempt, Look, Operation, Question};
use exos::task::schedule::Task;

use super::ipc_object::{
    Asker, IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, encode_ownership, id_of, making, read_ownership,
};
use crate::abi::bytes::{Encoder, get};
use crate::abi::time::read_timespec;
use crate::abi::user_memory::{read_exact, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;

entries! {
    semget;
    semop;
    semtimedop;
    semctl;
}

/// Bytes of `struct sembuf`.
const OPERATION_BYTES: usize = 6;
/// `SEM_UNDO`.
const SEM_UNDO: u16 = 0x1000;

/// `semget(2)`.
pub fn semget(context: &mut Context<'_>, [key, length, flags, ..]: Arguments) -> Result<u64> {
    let asker = Asker::new(context);
    let (key, length) = (key as u32 as i32, length as u32 as i32);
    let id = context.system.ipc.semaphores.get(&asker.caller(), key, length, making(flags), flags as u32)?;
    Ok(id as u64)
}

/// `semop(2)`.
pub fn semop(context: &mut Context<'_>, [id, operations, count, ..]: Arguments) -> Result<u64> {
    semtimedop(context, [id, operations, count, 0, 0, 0])
}

/// `semtimedop(2)`: it never starts again after a handler.
pub fn semtimedop(context: &mut Context<'_>, [id, operations, count, timeout, ..]: Arguments) -> Result<u64> {
    let limit = context.system.ipc.semaphores.figures().limits.operation_count_max;
    let count = u64::from(count as u32);
    if count > u64::from(limit) {
        return Err(Errno::E2BIG);
    }
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    let operations = read_operations(context, operations, count as usize)?;
    let id = id_of(id)?;
    let deadline_ns = match timeout {
        0 => None,
        timeout => Some(context.now_ns().saturating_add(read_timespec(context.memory, timeout)?)),
    };
    let asker = Asker::new(context);
    let waiter = Arc::<Task>::downgrade(&context.thread.task);
    let semaphores = &context.system.ipc.semaphores;
    let Attempt::Waits(wait) = semaphores.operate(&asker.caller(), id, operations, waiter)? else { return Ok(0) };
    loop {
        if let Some(outcome) = wait.outcome() {
            return outcome.map(|()| 0);
        }
        let stopped = if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            Err(Errno::EAGAIN)
        } else {
            context.wait(deadline_ns)
        };
        if let Err(error) = stopped {
            return wait.give_up().unwrap_or(Err(error)).map(|()| 0);
        }
    }
}

/// An array of `struct sembuf`.
fn read_operations(context: &Context<'_>, address: u64, count: usize) -> Result<Vec<Operation>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count * OPERATION_BYTES).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(count * OPERATION_BYTES, 0);
    read_exact(context.memory, address, &mut bytes)?;
    let mut operations = Vec::new();
    operations.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    operations.extend(bytes.chunks_exact(OPERATION_BYTES).map(|entry| {
        let flags = get::u16(entry, 4);
        Operation {
            number: get::u16(entry, 0),
            change: get::u16(entry, 2) as i16,
            no_wait: u64::from(flags) & IPC_NOWAIT != 0,
            undoes: flags & SEM_UNDO != 0,
        }
    }));
    Ok(operations)
}

/// `semctl(2)`.
pub fn semctl(context: &mut Context<'_>, [id, number, command, argument, ..]: Arguments) -> Result<u64> {
    const GETPID: u32 = 11;
    const GETVAL: u32 = 12;
    const GETALL: u32 = 13;
    const GETNCNT: u32 = 14;
    const GETZCNT: u32 = 15;
    const SETVAL: u32 = 16;
    const SETALL: u32 = 17;
    const SEM_STAT: u32 = 18;
    const SEM_INFO: u32 = 19;
    const SEM_STAT_ANY: u32 = 20;
    let asker = Asker::new(context);
    let (id, caller, semaphores) = (id_of(id)?, asker.caller(), &context.system.ipc.semaphores);
    let ask = |question| semaphores.ask(&caller, id, number as u32 as i32, question).map(u64::from);
    match command as u32 {
        GETPID => return ask(Question::Process),
        GETVAL => return ask(Question::Value),
        GETNCNT => return ask(Question::WaitersForMore),
        GETZCNT => return ask(Question::WaitersForZero),
        IPC_STAT => return status(context, id, Look::Number, argument),
        SEM_STAT => return status(context, id, Look::Index, argument),
        SEM_STAT_ANY => return status(context, id, Look::Any, argument),
        IPC_INFO | SEM_INFO => return figures(context, command as u32 == IPC_INFO, argument),
        GETALL => {
            let values = semaphores.values(&caller, id)?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(values.len() * 2).map_err(|_| Errno::ENOMEM)?;
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            write_all(context.memory, argument, &bytes)?;
        }
        SETALL => {
            let count = semaphores.length_to_set(&caller, id)?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(count * 2).map_err(|_| Errno::ENOMEM)?;
            bytes.resize(count * 2, 0);
            read_exact(context.memory, argument, &mut bytes)?;
            let values: Vec<u16> = bytes.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
            semaphores.set_values(&caller, id, &values)?;
        }
        SETVAL => semaphores.set_value(&caller, id, number as u32 as i32, argument as u32 as i32)?,
        IPC_RMID => semaphores.remove(&caller, id)?,
        IPC_SET => {
            let (uid, gid, mode) = read_ownership(context.memory, argument)?;
            semaphores.set_owner(&caller, id, uid, gid, mode)?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `struct semid64_ds`. Looked up by index, the number is the answer.
fn status(context: &Context<'_>, id: i32, look: Look, buffer: u64) -> Result<u64> {
    let asker = Asker::new(context);
    let status = context.system.ipc.semaphores.status(&asker.caller(), id, look)?;
    let bytes = encode_ownership(&status.ownership, status.id)
        .u64(status.operated_s)
        .u64(0)
        .u64(status.changed_s)
        .u64(0)
        .u64(u64::from(status.length))
        .zero_to(104)
        .finish();
    write_all(context.memory, buffer, &bytes)?;
    Ok(if look == Look::Number { 0 } else { status.id as u64 })
}

/// `struct seminfo`; the highest index in use.
fn figures(context: &Context<'_>, is_limits: bool, buffer: u64) -> Result<u64> {
    const UNDO_BYTES: u32 = 20;
    const VALUE_MAX: u32 = 32_767;
    let figures = context.system.ipc.semaphores.figures();
    let limits = figures.limits;
    let (undo_bytes, exit_max) =
        if is_limits { (UNDO_BYTES, VALUE_MAX) } else { (figures.set_count, figures.semaphore_count) };
    let words = [
        limits.semaphore_count_max,
        limits.set_count_max,
        limits.semaphore_count_max,
        limits.semaphore_count_max,
        limits.set_length_max,
        limits.operation_count_max,
        limits.operation_count_max,
        undo_bytes,
        VALUE_MAX,
        exit_max,
    ];
    let bytes = words.into_iter().fold(Encoder::new(), Encoder::u32).finish();
    write_all(context.memory, buffer, &bytes)?;
    Ok(u64::from(figures.index_last))
}
