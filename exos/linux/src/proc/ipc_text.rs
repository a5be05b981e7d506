//! `/proc/sysvipc`, and the limits of those objects below `sys/kernel` and `sys/fs/mqueue`.

use exos::error::{Errno, Result};
use exos::fs::proc_fs::SystemText;
use exos::ipc::Ipc;

use super::text::{Text, put};

/// The most that a limit which counts operations, messages or objects can be set to.
const COUNT_MAX: u64 = 65_536;

/// `sysvipc/shm`.
pub(super) fn segments(ipc: &Ipc, out: &mut Text<'_>) {
    out.raw(b"       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime");
    out.raw(b"      dtime      ctime                   rss                  swap\n");
    for segment in ipc.segments.list() {
        let owner = segment.ownership;
        put!(out, "{:10} {:10}  {:4o} {:21} ", owner.key, segment.id, owner.mode, segment.bytes);
        put!(out, "{:5} {:5}  {:5} ", segment.creator_pid, segment.last_pid, segment.attached_count);
        put!(out, "{:5} {:5} {:5} {:5} ", owner.uid, owner.gid, owner.creator_uid, owner.creator_gid);
        put!(out, "{:10} {:10} {:10} ", segment.attached_s, segment.detached_s, segment.changed_s);
        put!(out, "{:21} {:21}\n", segment.resident_count * 4096, 0);
    }
}

/// `sysvipc/sem`.
pub(super) fn semaphores(ipc: &Ipc, out: &mut Text<'_>) {
    out.raw(b"       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n");
    for set in ipc.semaphores.list() {
        let owner = set.ownership;
        put!(out, "{:10} {:10}  {:4o} {:10} ", owner.key, set.id, owner.mode, set.length);
        put!(out, "{:5} {:5} {:5} {:5} ", owner.uid, owner.gid, owner.creator_uid, owner.creator_gid);
        put!(out, "{:10} {:10}\n", set.operated_s, set.changed_s);
    }
}

/// `sysvipc/msg`.
pub(super) fn messages(ipc: &Ipc, out: &mut Text<'_>) {
    out.raw(b"       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime");
    out.raw(b"      rtime      ctime\n");
    for queue in ipc.messages.list() {
        let owner = queue.ownership;
        put!(
            out,
            "{:10} {:10}  {:4o}  {:10} {:10} ",
            owner.key,
            queue.id,
            owner.mode,
            queue.bytes,
            queue.message_count
        );
        put!(out, "{:5} {:5} ", queue.sender_pid, queue.receiver_pid);
        put!(out, "{:5} {:5} {:5} {:5} ", owner.uid, owner.gid, owner.creator_uid, owner.creator_gid);
        put!(out, "{:10} {:10} {:10}\n", queue.sent_s, queue.received_s, queue.changed_s);
    }
}

/// One limit, or the four of semaphores.
pub(super) fn limit(ipc: &Ipc, text: SystemText, out: &mut Text<'_>) {
    let memory = ipc.segments.figures().limits;
    let messages = ipc.messages.figures().limits;
    let queues = ipc.queues.limits();
    let value = match text {
        SystemText::QueueMessageCount => u64::from(queues.message_count),
        SystemText::QueueMessageCountMax => u64::from(queues.message_count_max),
        SystemText::QueueMessageBytes => u64::from(queues.message_bytes),
        SystemText::QueueMessageBytesMax => u64::from(queues.message_bytes_max),
        SystemText::QueueCountMax => u64::from(queues.queue_count_max),
        SystemText::MessageBytesMax => u64::from(messages.message_bytes_max),
        SystemText::MessageQueueBytes => u64::from(messages.queue_bytes),
        SystemText::MessageQueueCountMax => u64::from(messages.queue_count_max),
        SystemText::SharedMemoryPages => memory.page_count_max,
        SystemText::SharedMemoryMax => memory.segment_bytes_max,
        SystemText::SharedMemoryCountMax => u64::from(memory.segment_count_max),
        _ => {
            let limits = ipc.semaphores.figures().limits;
            put!(out, "{}\t{}\t", limits.set_length_max, limits.semaphore_count_max);
            put!(out, "{}\t{}\n", limits.operation_count_max, limits.set_count_max);
            return;
        }
    };
    put!(out, "{value}\n");
}

/// The numbers of a line.
fn numbers<const N: usize>(value: &[u8]) -> Result<[u64; N]> {
    let mut words = core::str::from_utf8(value).map_err(|_| Errno::EINVAL)?.split_ascii_whitespace();
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = words.next().and_then(|word| word.parse().ok()).ok_or(Errno::EINVAL)?;
    }
    Ok(numbers)
}

/// A number from `range`. `EINVAL`.
fn within(number: u64, range: core::ops::RangeInclusive<u64>) -> Result<u32> {
    if range.contains(&number) { u32::try_from(number).map_err(|_| Errno::EINVAL) } else { Err(Errno::EINVAL) }
}

/// Takes a limit that a program wrote. `EINVAL`; `EPERM`: it is no limit of these.
pub(super) fn set_limit(ipc: &Ipc, text: SystemText, value: &[u8]) -> Result<()> {
    match text {
        SystemText::SemaphoreLimits => set_semaphores(ipc, value),
        SystemText::SharedMemoryPages | SystemText::SharedMemoryMax | SystemText::SharedMemoryCountMax => {
            let [number] = numbers(value)?;
            let mut limits = ipc.segments.figures().limits;
            match text {
                SystemText::SharedMemoryPages => limits.page_count_max = number,
                SystemText::SharedMemoryMax => limits.segment_bytes_max = number,
                _ => limits.segment_count_max = within(number, 0..=32_768)?,
            }
            ipc.segments.set_limits(limits);
            Ok(())
        }
        SystemText::MessageBytesMax | SystemText::MessageQueueBytes | SystemText::MessageQueueCountMax => {
            let [number] = numbers(value)?;
            let mut limits = ipc.messages.figures().limits;
            match text {
                SystemText::MessageBytesMax => limits.message_bytes_max = within(number, 0..=i32::MAX as u64)?,
                SystemText::MessageQueueBytes => limits.queue_bytes = within(number, 0..=i32::MAX as u64)?,
                _ => limits.queue_count_max = within(number, 0..=32_768)?,
            }
            ipc.messages.set_limits(limits);
            Ok(())
        }
        _ => set_queues(ipc, text, value),
    }
}

fn set_semaphores(ipc: &Ipc, value: &[u8]) -> Result<()> {
    let [length, count, operations, sets] = numbers(value)?;
    let mut limits = ipc.semaphores.figures().limits;
    limits.set_length_max = within(length, 0..=COUNT_MAX)?;
    limits.semaphore_count_max = within(count, 0..=i32::MAX as u64)?;
    limits.operation_count_max = within(operations, 0..=COUNT_MAX)?;
    limits.set_count_max = within(sets, 0..=32_768)?;
    ipc.semaphores.set_limits(limits);
    Ok(())
}

fn set_queues(ipc: &Ipc, text: SystemText, value: &[u8]) -> Result<()> {
    const BYTES_MAX: u64 = 16 << 20;
    let mut limits = ipc.queues.limits();
    let field = match text {
        SystemText::QueueMessageCount => &mut limits.message_count,
        SystemText::QueueMessageCountMax => &mut limits.message_count_max,
        SystemText::QueueMessageBytes => &mut limits.message_bytes,
        SystemText::QueueMessageBytesMax => &mut limits.message_bytes_max,
        SystemText::QueueCountMax => &mut limits.queue_count_max,
        _ => return Err(Errno::EPERM),
    };
    let [number] = numbers(value)?;
    let range = match text {
        SystemText::QueueMessageBytes | SystemText::QueueMessageBytesMax => 128..=BYTES_MAX,
        SystemText::QueueCountMax => 0..=COUNT_MAX,
        _ => 1..=COUNT_MAX,
    };
    *field = within(number, range)?;
    ipc.queues.set_limits(limits);
    Ok(())
}
