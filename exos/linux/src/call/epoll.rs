//! The calls of epoll; what they work on is [`crate::file::epoll`].

use alloc::sync::Arc;

use aegis_abi::layout::PROGRAM_END;
use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::readiness::Readiness;

use super::poll::{read_deadline, restore_mask};
use super::signal::install_optional_mask;
use crate::abi::bytes::get;
use crate::abi::linux::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use crate::abi::linux::{EPOLLET, EPOLLEXCLUSIVE, EPOLLWAKEUP, O_CLOEXEC, POLLERR, POLLHUP, POLLIN, POLLOUT};
use crate::abi::user_memory::{UserMemory, read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::epoll::{Epoll, Report};
use crate::task::caller::Restart;
use crate::task::process::Process;

entries! {
    epoll_create;
    epoll_create1(Set(EPOLL_FLAGS));
    epoll_ctl(Descriptor, Word(EPOLL_OPERATIONS), Descriptor, Pointer);
    epoll_wait(Descriptor, Pointer, Int, Int);
    epoll_pwait(Descriptor, Pointer, Int, Int, SignalSetIn, Size);
    epoll_pwait2;
}

/// Bytes of `struct epoll_event`, which is packed on x86-64.
const EVENT_BYTES: usize = 12;
/// Most events that one call may ask for.
const EVENT_COUNT_MAX: u64 = i32::MAX as u64 / EVENT_BYTES as u64;

/// `epoll_create(2)`: the size is only checked.
pub fn epoll_create(context: &mut Context<'_>, [size, ..]: Arguments) -> Result<u64> {
    if size as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    epoll_create1(context, [0; 6])
}

/// `epoll_create1(2)`.
pub fn epoll_create1(context: &mut Context<'_>, [flags, ..]: Arguments) -> Result<u64> {
    if u64::from(flags as u32) & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let namespace = &context.system.files.namespace;
    let status = StatusFlags::empty();
    let now = crate::file::paths::now(context);
    let description = namespace.anonymous("anon_inode:[eventpoll]", Epoll::new(), status, now);
    context.process.files.add(description, flags & O_CLOEXEC != 0)
}

/// The instance behind a description. `EINVAL`: it is something else.
fn instance(description: &Description) -> Result<&Epoll> {
    description.extension::<Epoll>().ok_or(Errno::EINVAL)
}

/// `epoll_ctl(2)`.
pub fn epoll_ctl(context: &mut Context<'_>, [epoll, operation, descriptor, event, ..]: Arguments) -> Result<u64> {
    let operation = operation as u32;
    let (events, data) = if operation == EPOLL_CTL_DEL {
        (0, 0)
    } else {
        let bytes: [u8; EVENT_BYTES] = read_array(context.memory, event)?;
        (get::u32(&bytes, 0) & !EPOLLWAKEUP, get::u64(&bytes, 4))
    };
    let own = context.process.files.get(epoll)?;
    let watched = context.process.files.get(descriptor)?;
    if own.is_path_only() || watched.is_path_only() {
        return Err(Errno::EBADF);
    }
    if watched.wait_queue().is_none() {
        return Err(Errno::EPERM);
    }
    let instance = instance(&own)?;
    if Arc::ptr_eq(&own, &watched) {
        return Err(Errno::EINVAL);
    }
    if operation != EPOLL_CTL_DEL && events & EPOLLEXCLUSIVE != 0 {
        let allowed = POLLIN | POLLOUT | POLLERR | POLLHUP | EPOLLET | EPOLLEXCLUSIVE;
        let is_nested = watched.extension::<Epoll>().is_some();
        if operation != EPOLL_CTL_ADD || is_nested || events & !allowed != 0 {
            return Err(Errno::EINVAL);
        }
    }
    let descriptor = descriptor as u32;
    match operation {
        EPOLL_CTL_ADD => instance.add(&own, descriptor, &watched, events, data)?,
        EPOLL_CTL_DEL => instance.remove(descriptor, &watched)?,
        EPOLL_CTL_MOD => instance.modify(descriptor, &watched, events, data)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// The description to wait for, once the other arguments are found good.
#[inline]
fn check_wait(process: &Process, [epoll, address, count]: [u64; 3]) -> Result<Arc<Description>> {
    let count = u64::try_from(count as i32).map_err(|_| Errno::EINVAL)?;
    if count == 0 || count > EVENT_COUNT_MAX {
        return Err(Errno::EINVAL);
    }
    let end = address.checked_add(count * EVENT_BYTES as u64);
    if end.is_none_or(|end| end > PROGRAM_END) {
        return Err(Errno::EFAULT);
    }
    let description = process.files.get(epoll)?;
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    Ok(description)
}

/// Events that are encoded before they are written.
const HELD_COUNT: usize = 4;

/// Where found events go.
struct Events<'a> {
    memory: &'a dyn UserMemory,
    address: u64,
    held: [[u8; EVENT_BYTES]; HELD_COUNT],
    held_count: usize,
}

/// A `struct epoll_event`.
#[inline]
fn event_bytes((events, data): Report) -> [u8; EVENT_BYTES] {
    let mut event = [0; EVENT_BYTES];
    event[..4].copy_from_slice(&events.to_le_bytes());
    event[4..].copy_from_slice(&data.to_le_bytes());
    event
}

impl<'a> Events<'a> {
    fn new(memory: &'a dyn UserMemory, address: u64) -> Self {
        Self { memory, address, held: [[0; EVENT_BYTES]; HELD_COUNT], held_count: 0 }
    }

    #[inline]
    fn put(&mut self, report: Report) -> Result<()> {
        if self.held_count == HELD_COUNT {
            self.flush()?;
        }
        self.held[self.held_count] = event_bytes(report);
        self.held_count += 1;
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        let bytes = self.held[..self.held_count].as_flattened();
        write_all(self.memory, self.address, bytes)?;
        self.address += bytes.len() as u64;
        self.held_count = 0;
        Ok(())
    }
}

/// Writes what an instance has to report now; how many events.
#[inline]
fn report(instance: &Epoll, memory: &dyn UserMemory, address: u64, count: u64) -> Result<u64> {
    if let Some(report) = instance.only() {
        return write_all(memory, address, &event_bytes(report)).map(|()| 1);
    }
    let mut events = Events::new(memory, address);
    let found = instance.take(count as usize, |report| events.put(report))?;
    if found > 0 {
        events.flush()?;
    }
    Ok(found as u64)
}

/// `epoll_wait` without waiting.
#[inline]
pub(crate) fn look(process: &Process, memory: &dyn UserMemory, arguments: [u64; 3]) -> Result<u64> {
    let description = check_wait(process, arguments)?;
    let [_, address, count] = arguments;
    report(instance(&description)?, memory, address, count)
}

fn wait_until(context: &mut Context<'_>, arguments: [u64; 3], deadline_ns: Option<u64>) -> Result<u64> {
    let description = check_wait(context.process, arguments)?;
    let [_, address, count] = arguments;
    let instance = instance(&description)?;
    let mut watching = None;
    loop {
        let told_count = instance.queue().told_count();
        let found = report(instance, context.memory, address, count)?;
        if found > 0 {
            return Ok(found);
        }
        if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
            if deadline_ns == Some(0) && context.system.platform.look() {
                return report(instance, context.memory, address, count);
            }
            // A waiter that alone was told takes it, or leaves in time for the next to be told.
            return if watching.take().is_some() { report(instance, context.memory, address, count) } else { Ok(0) };
        }
        if watching.is_none() {
            watching = context.watch_unless_told(instance.queue(), Readiness::all(), told_count);
            if watching.is_none() {
                continue;
            }
        }
        if let Err(error) = context.wait(deadline_ns) {
            // As at the end of the time; and as on Linux, what is ready counts before the signal does.
            drop(watching);
            if context.process.has_ended() {
                // What is told once is another's to take.
                return Err(error);
            }
            let found = report(instance, context.memory, address, count)?;
            return if found > 0 { Ok(found) } else { Err(error) };
        }
    }
}

/// The deadline of a timeout in milliseconds; negative is none.
fn deadline_ms(context: &Context<'_>, timeout_ms: u64) -> Option<u64> {
    let timeout_ms = u64::try_from(timeout_ms as i32).ok()?;
    // A call that does not wait need not know the time.
    Some(if timeout_ms == 0 { 0 } else { context.now_ns().saturating_add(timeout_ms * 1_000_000) })
}

/// `epoll_wait(2)`: never starts again after a signal.
pub fn epoll_wait(context: &mut Context<'_>, [epoll, address, count, timeout_ms, ..]: Arguments) -> Result<u64> {
    let deadline_ns = deadline_ms(context, timeout_ms);
    wait_until(context, [epoll, address, count], deadline_ns)
}

/// `epoll_pwait(2)`.
pub fn epoll_pwait(
    context: &mut Context<'_>,
    [epoll, address, count, timeout_ms, mask, mask_size]: Arguments,
) -> Result<u64> {
    let deadline_ns = deadline_ms(context, timeout_ms);
    wait_masked(context, [epoll, address, count], deadline_ns, [mask, mask_size])
}

/// `epoll_pwait2(2)`: the timeout is a `timespec`.
pub fn epoll_pwait2(
    context: &mut Context<'_>,
    [epoll, address, count, timeout, mask, mask_size]: Arguments,
) -> Result<u64> {
    let deadline_ns = read_deadline(context, timeout)?;
    wait_masked(context, [epoll, address, count], deadline_ns, [mask, mask_size])
}

fn wait_masked(
    context: &mut Context<'_>,
    arguments: [u64; 3],
    deadline_ns: Option<u64>,
    [mask, mask_size]: [u64; 2],
) -> Result<u64> {
    install_optional_mask(context, mask, mask_size)?;
    context.restart = Restart::Never;
    let outcome = wait_until(context, arguments, deadline_ns);
    restore_mask(context, &outcome);
    outcome
}
