//! POSIX message queues: `mq_open`, `mq_unlink`, `mq_timedsend`, `mq_timedreceive`, `mq_notify`, `mq_getsetattr`.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::fs::description::{Description, StatusFlags};
use exos::fs::metadata::{FileKind, Protection};
use exos::fs::open_file::OpenRequest;
use exos::fs::permission::{AccessMask, Credentials};
use exos::ipc::posix_queue::{
    Capacity, Maker, Notification, PRIORITY_COUNT, PosixQueue, Receiving, Sending, check_name,
};
use exos::task::capability::Capability;
use exos::task::limits::Resource;
use exos::task::schedule::Task;
use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::abi::bytes::{Encoder, get};
use crate::abi::file::status_flags;
use crate::abi::linux::{O_ACCMODE, O_CREAT, O_EXCL, O_NONBLOCK, SI_MESGQ, SIGEV_NONE, SIGEV_SIGNAL};
use crate::abi::time::read_timespec;
use crate::abi::user_memory::{read_array, read_exact, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::message_queue::QueueFile;
use crate::file::paths::read_path;
use crate::task::caller::Restart;

entries! {
    mq_open;
    mq_unlink;
    mq_timedsend;
    mq_timedreceive;
    mq_notify: "no SIGEV_THREAD: C libraries want a netlink socket for it";
    mq_getsetattr;
}

/// Bytes of `struct mq_attr`.
const ATTRIBUTES_BYTES: usize = 64;
/// Permission bits of the directory that all queues are in: only the owner of one can take its name away.
const MODE_BITS: u64 = 0o7777;

fn credentials(context: &Context<'_>) -> Credentials {
    context.thread.identities.lock().for_files()
}

fn protection(queue: &PosixQueue) -> Protection {
    let Maker { uid, gid, permissions, .. } = queue.owner;
    Protection { kind: FileKind::Regular, permissions, uid, gid }
}

/// `mq_open(2)`: the name comes without its slash.
pub fn mq_open(context: &mut Context<'_>, [name, flags, mode, attributes, ..]: Arguments) -> Result<u64> {
    let capacity = match attributes {
        0 => None,
        address => {
            let bytes: [u8; ATTRIBUTES_BYTES] = read_array(context.memory, address)?;
            // Negative numbers are beyond all limits.
            Some(Capacity { message_count: get::u64(&bytes, 8), message_bytes: get::u64(&bytes, 16) })
        }
    };
    let name = read_path(context, name)?;
    check_name(&name)?;
    context.process.files.check_room()?;
    let (mask, request) = match flags & O_ACCMODE {
        0 => (AccessMask::READ, OpenRequest { read: true, write: false, non_blocking: false }),
        1 => (AccessMask::WRITE, OpenRequest { read: false, write: true, non_blocking: false }),
        2 => (AccessMask::READ | AccessMask::WRITE, OpenRequest { read: true, write: true, non_blocking: false }),
        _ => return Err(Errno::EINVAL),
    };
    let credentials = credentials(context);
    let queues = &context.system.ipc.queues;
    let (queue, is_new) = if flags & O_CREAT == 0 {
        (queues.find(&name)?, false)
    } else {
        let maker = Maker {
            uid: credentials.uid,
            gid: credentials.gid,
            permissions: (mode & MODE_BITS) as u32 & !context.process.files.umask(),
            bytes_max: context.process.limits.lock().soft(Resource::MessageQueue),
            may_exceed: context.can(Capability::SYS_RESOURCE),
        };
        queues.find_or_make(&name, maker, capacity)?
    };
    if !is_new {
        if flags & O_CREAT != 0 && flags & O_EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        credentials.check(protection(&queue), mask)?;
    }
    let shown = [b"/", &*name].concat();
    let now = crate::file::paths::now(context);
    let status = status_flags(flags & O_NONBLOCK);
    let namespace = &context.system.files.namespace;
    let description = namespace.anonymous_for(request, &shown, QueueFile::new(queue), status, now);
    context.process.files.add(description, true)
}

/// `mq_unlink(2)`.
pub fn mq_unlink(context: &mut Context<'_>, [name, ..]: Arguments) -> Result<u64> {
    let name = read_path(context, name)?;
    check_name(&name)?;
    let credentials = credentials(context);
    // The directory is root's, and sticky.
    let may = |queue: &PosixQueue| {
        let owns = credentials.uid == queue.owner.uid || credentials.can(Capability::FOWNER);
        if owns { Ok(()) } else { Err(Errno::EPERM) }
    };
    context.system.ipc.queues.unlink(&name, may)?;
    Ok(0)
}

/// The queue behind a descriptor. `EBADF`: it is something else.
fn queue_of(context: &Context<'_>, descriptor: u64) -> Result<(Arc<Description>, Arc<PosixQueue>)> {
    let description = context.process.files.get(descriptor)?;
    if description.is_path_only() {
        return Err(Errno::EBADF);
    }
    let queue = description.extension::<QueueFile>().map(|file| file.queue().clone()).ok_or(Errno::EBADF)?;
    Ok((description, queue))
}

/// When a wait ends, on the monotonic clock; the program says it on the realtime one.
fn deadline(context: &Context<'_>, timeout: u64) -> Result<Option<u64>> {
    if timeout == 0 {
        return Ok(None);
    }
    let ns = read_timespec(context.memory, timeout)?;
    let left_ns = ns.saturating_sub(context.system.realtime_ns());
    Ok(Some(context.now_ns().saturating_add(left_ns)))
}

/// Waits once more. `ETIMEDOUT`, `EINTR`.
fn wait_once(context: &mut Context<'_>, deadline_ns: Option<u64>) -> Result<()> {
    if deadline_ns.is_some_and(|deadline_ns| context.now_ns() >= deadline_ns) {
        return Err(Errno::ETIMEDOUT);
    }
    context.wait(deadline_ns)
}

/// `mq_timedsend(2)`.
pub fn mq_timedsend(
    context: &mut Context<'_>,
    [descriptor, address, length, priority, timeout, _]: Arguments,
) -> Result<u64> {
    context.restart = Restart::UnlessHandlerForbids;
    let deadline_ns = deadline(context, timeout)?;
    let priority = u32::try_from(priority).ok().filter(|priority| *priority < PRIORITY_COUNT).ok_or(Errno::EINVAL)?;
    let (description, queue) = queue_of(context, descriptor)?;
    if !description.is_writable() {
        return Err(Errno::EBADF);
    }
    let memory = context.memory;
    let message = queue.message(priority, length, |bytes| read_exact(memory, address, bytes))?;
    let waiter = Arc::<Task>::downgrade(&context.thread.task);
    let wait = match queue.send(message, description.is_non_blocking(), waiter)? {
        Sending::Done(notification) => {
            if let Some(notification) = notification {
                tell(context, notification);
            }
            return Ok(0);
        }
        Sending::Waits(wait) => wait,
    };
    while !wait.is_sent() {
        if let Err(error) = wait_once(context, deadline_ns) {
            return if wait.give_up() { Ok(0) } else { Err(error) };
        }
    }
    Ok(0)
}

/// Tells a process of a message.
fn tell(context: &Context<'_>, notification: Notification) {
    let Some(process) = context.system.processes.get(notification.pid) else { return };
    let Some(Ok(signal)) = notification.signal.map(|number| Signal::new(u64::from(number))) else { return };
    let uid = context.thread.identities.lock().uid[0];
    let payload = SignalPayload::Sender { pid: context.process.pid, uid, value: notification.value };
    process.raise(signal, SignalInfo { code: SI_MESGQ, errno: 0, payload });
}

/// `mq_timedreceive(2)`.
pub fn mq_timedreceive(
    context: &mut Context<'_>,
    [descriptor, address, room, priority, timeout, _]: Arguments,
) -> Result<u64> {
    context.restart = Restart::UnlessHandlerForbids;
    let deadline_ns = deadline(context, timeout)?;
    let (description, queue) = queue_of(context, descriptor)?;
    if !description.is_readable() {
        return Err(Errno::EBADF);
    }
    if room < queue.capacity.message_bytes {
        return Err(Errno::EMSGSIZE);
    }
    let waiter = Arc::<Task>::downgrade(&context.thread.task);
    let message = match queue.receive(description.is_non_blocking(), waiter)? {
        Receiving::Done(message) => message,
        Receiving::Waits(wait) => loop {
            if let Some(message) = wait.outcome() {
                break message;
            }
            if let Err(error) = wait_once(context, deadline_ns) {
                break wait.give_up().ok_or(error)?;
            }
        },
    };
    if priority != 0 {
        write_all(context.memory, priority, &message.priority.to_le_bytes())?;
    }
    write_all(context.memory, address, &message.bytes)?;
    Ok(message.bytes.len() as u64)
}

/// `mq_notify(2)`.
pub fn mq_notify(context: &mut Context<'_>, [descriptor, event, ..]: Arguments) -> Result<u64> {
    const EVENT_BYTES: usize = 64;
    let wanted = match event {
        0 => None,
        address => {
            let bytes: [u8; EVENT_BYTES] = read_array(context.memory, address)?;
            let signal = match get::u32(&bytes, 12) {
                SIGEV_SIGNAL => Some(u8::try_from(get::u32(&bytes, 8)).map_err(|_| Errno::EINVAL)?),
                SIGEV_NONE => None,
                _ => return Err(Errno::EINVAL),
            };
            if signal.is_some_and(|number| number > 64) {
                return Err(Errno::EINVAL);
            }
            Some(Notification { pid: context.process.pid, signal, value: get::u64(&bytes, 0) })
        }
    };
    let (_, queue) = queue_of(context, descriptor)?;
    match wanted {
        None => queue.forget_notification(context.process.pid),
        Some(notification) => {
            queue.notify(notification)?;
            context.process.files.note_notification(context.process.pid);
        }
    }
    Ok(0)
}

/// `mq_getsetattr(2)`.
pub fn mq_getsetattr(context: &mut Context<'_>, [descriptor, new, old, ..]: Arguments) -> Result<u64> {
    let flags = match new {
        0 => None,
        address => {
            let bytes: [u8; ATTRIBUTES_BYTES] = read_array(context.memory, address)?;
            Some(get::u64(&bytes, 0))
        }
    };
    if flags.is_some_and(|flags| flags & !O_NONBLOCK != 0) {
        return Err(Errno::EINVAL);
    }
    let (description, queue) = queue_of(context, descriptor)?;
    let before = if description.is_non_blocking() { O_NONBLOCK } else { 0 };
    let count = queue.message_count();
    if let Some(flags) = flags {
        let mut status = description.status();
        status.set(StatusFlags::NON_BLOCKING, flags != 0);
        description.set_status(status);
    }
    if old != 0 {
        let Capacity { message_count, message_bytes } = queue.capacity;
        let encoder = Encoder::new().u64(before).u64(message_count).u64(message_bytes).u64(count);
        write_all(context.memory, old, &encoder.zero_to(ATTRIBUTES_BYTES).finish())?;
    }
    Ok(0)
}
