//! `execve`. The other threads of the process end first; what is shared or borrowed is left behind, and the new program
//! starts in memory of its own.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::fs::readiness::Readiness;
use exos::load::mapping_base;
use exos::mem::FileIdentity;
use exos::preempt::{self, Pace};
use exos::reserve;
use exos::task::limits::Resource;
use exos::task::signal::Signal;

use crate::abi::bytes::get;
use crate::abi::linux::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use crate::abi::user_memory::{STRING_BYTES_MAX, STRING_STEP_BYTES, UserMemory, read_array, read_string};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::file::paths::{Access, find_at, read_path};
use crate::task::exec::{ExecRequest, prepare, start};
use crate::task::exit::{give_memory_back, release_thread_words};
use crate::task::memory::{Space, space_limits};
use crate::task::process::Ending;

entries! {
    execve(Path, Strings, StringCount);
    execveat(At, Path, Strings, StringCount, Set(AT_FLAGS));
}

/// Bytes of arguments and environment that any program may have, and that none may have more of.
const STRINGS_BYTES: core::ops::RangeInclusive<u64> = 128 << 10..=6 << 20;

/// Reads an array of strings that ends with a null pointer; a null array is empty.
pub(super) fn read_strings(memory: &dyn UserMemory, array: u64, room: &mut usize) -> Result<Vec<Vec<u8>>> {
    let (mut strings, mut pace) = (Vec::new(), Pace::default());
    let mut position = array;
    if array == 0 {
        return Ok(strings);
    }
    loop {
        let bytes: [u8; 8] = read_array(memory, position)?;
        let address = get::u64(&bytes, 0);
        if address == 0 {
            break;
        }
        let text = read_string(memory, address, STRING_BYTES_MAX - 1, Errno::E2BIG)?;
        *room = room.checked_sub(text.len() + 9).ok_or(Errno::E2BIG)?;
        reserve::check()?;
        reserve::reserve(&mut strings, 1)?;
        if pace.is_due_after(1 + text.len() / STRING_STEP_BYTES) {
            preempt::unless_killed()?;
        }
        strings.push(text);
        position = position.checked_add(8).ok_or(Errno::EFAULT)?;
    }
    Ok(strings)
}

/// `execve(2)`.
pub fn execve(context: &mut Context<'_>, [path, arguments, environment, ..]: Arguments) -> Result<u64> {
    execute_at(context, path, [arguments, environment])
}

/// As `execve(2)`, for a call that is more than that.
pub(super) fn execute_at(context: &mut Context<'_>, path: u64, strings: [u64; 2]) -> Result<u64> {
    execute(context, [AT_FDCWD as u64, path, 0], strings)
}

/// `execveat(2)`.
pub fn execveat(
    context: &mut Context<'_>,
    [directory, path, arguments, environment, flags, _]: Arguments,
) -> Result<u64> {
    execute(context, [directory, path, flags], [arguments, environment])
}

fn execute(context: &mut Context<'_>, file: [u64; 3], [arguments, environment]: [u64; 2]) -> Result<u64> {
    // A quarter of the stack that they are put on.
    let stack_bytes = context.process.limits.lock().soft(Resource::Stack);
    let mut room = (stack_bytes / 4).clamp(*STRINGS_BYTES.start(), *STRINGS_BYTES.end()) as usize;
    let arguments = read_strings(context.memory, arguments, &mut room)?;
    let environment = read_strings(context.memory, environment, &mut room)?;
    let access = Access::new(context);
    let [directory, address, flags] = file;
    let found = find_at(context, &access, directory, address, flags, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)?;
    let (path, is_path_lost) = name_of(context, directory, address)?;
    let request = ExecRequest { path, is_path_lost, arguments, environment };
    let current = context.process.files.current();
    let prepared = prepare(context.system, &access, &current, found, request).map_err(|error| error.errno())?;
    let stack_limit_bytes = space_limits(&context.process.limits.lock()).stack_bytes;
    prepared.check_strings(stack_limit_bytes)?;
    context.replaces_registers = true;
    if !end_other_threads(context) {
        return Ok(0);
    }
    let space = fresh_space(context, prepared.identity())?;
    if context.thread.tid() != context.process.pid {
        context.thread.become_first(context.system, context.process);
    }
    context.process.work.end(context.process);
    release_thread_words(context);
    context.thread.has_left_locks.store(false, Ordering::Release);
    let before = context.process.replace_space(space.clone());
    context.process.note_peak(before.resident_peak_bytes());
    context.system.platform.enter_space(&space);
    let started = start(context.system, context.process, context.thread, prepared, context.frame);
    give_memory_back(context.system, context.process, before);
    context.process.has_executed.store(true, Ordering::Relaxed);
    context.process.has_registered_barriers.store(false, Ordering::Relaxed);
    if let Err(error) = started {
        // The old program is gone and the new one does not fit: nothing is left to return to.
        let text = alloc::format!("execve: {error}");
        context.process.end(Ending::Killed { signal: Signal::KILL, has_core: false, text });
    }
    Ok(0)
}

/// The name under which a program is run, and whether it is gone when that runs: what a path leads to from a descriptor
/// has the name of the descriptor before it.
fn name_of(context: &Context<'_>, directory: u64, address: u64) -> Result<(Vec<u8>, bool)> {
    let path = if address == 0 { Vec::new() } else { read_path(context, address)?.to_vec() };
    if directory as i32 == AT_FDCWD || path.first() == Some(&b'/') {
        return Ok((path, false));
    }
    let mut name = alloc::format!("/dev/fd/{}", directory as i32).into_bytes();
    if !path.is_empty() {
        name.push(b'/');
        name.extend_from_slice(&path);
    }
    Ok((name, context.process.files.table().close_on_exec(directory as u32)?))
}

/// Memory for the new program, with the limits of the process.
fn fresh_space(context: &mut Context<'_>, program: FileIdentity) -> Result<Arc<Space>> {
    let limits = context.process.limits.lock().clone();
    let base = mapping_base(limits.soft(Resource::Stack), 0);
    let (kernel, shared) = (&context.system.kernel, &context.system.shared);
    let space = Space::create(kernel, shared, base, space_limits(&limits), Some(program));
    let space = space.inspect_err(|_| context.replaces_registers = false)?;
    space.lock().set_no_large_pages(context.process.has_no_large_pages.load(Ordering::Relaxed));
    Ok(Arc::new(space))
}

/// Ends the other threads and waits until they have left. False: the process itself has to end.
fn end_other_threads(context: &mut Context<'_>) -> bool {
    let _registration = context.watch(&context.process.changes, Readiness::READ);
    loop {
        let others: Vec<_> = context.process.threads.lock().clone();
        if others.len() <= 1 {
            return !context.process.has_ended();
        }
        if context.process.has_ended() || context.thread.is_ending.load(Ordering::Acquire) {
            return false;
        }
        for other in others.iter().filter(|other| other.tid() != context.thread.tid()) {
            other.is_ending.store(true, Ordering::Release);
            other.summon();
        }
        context.system.platform.wait(None);
    }
}
