//! `execve`, `exit` and what belongs to ending. Making processes comes with pods.

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::task::signal::Signal;
use syscalls::Sysno;

use crate::abi::bytes::get;
use crate::context::{Arguments, Context};
use crate::files::{AT_EMPTY_PATH, AT_NO_FOLLOW, Access, CURRENT_DIRECTORY, read_path, start_of};
use crate::process::Ending;
use crate::program::{Wish, prepare, start};
use crate::table::{Entry, full, partial};
use crate::user::{STRING_BYTES_MAX, UserMemory, read_array, read_string};

/// This family's part of the table.
pub const ENTRIES: &[Entry] = &[
    full(Sysno::execve, execve),
    partial(Sysno::execveat, "not of a descriptor without a path", execveat),
    full(Sysno::exit, exit),
    full(Sysno::exit_group, exit),
    partial(Sysno::wait4, "there are no children", wait4),
    partial(Sysno::waitid, "there are no children", wait4),
];

/// Most bytes of arguments and environment that are read.
const STRINGS_BYTES_MAX: usize = 6 << 20;

/// Reads an array of strings that ends with a null pointer; a null array is empty.
fn read_strings(memory: &dyn UserMemory, array: u64, room: &mut usize) -> Result<Vec<Vec<u8>>> {
    let mut strings = Vec::new();
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
        strings.push(text);
        position = position.checked_add(8).ok_or(Errno::EFAULT)?;
    }
    Ok(strings)
}

/// `execve(2)`.
pub fn execve(context: &mut Context<'_>, [path, arguments, environment, ..]: Arguments) -> Result<u64> {
    execute(context, CURRENT_DIRECTORY as u64, path, [arguments, environment])
}

/// `execveat(2)`.
pub fn execveat(
    context: &mut Context<'_>,
    [directory, path, arguments, environment, flags, _]: Arguments,
) -> Result<u64> {
    if flags & !(AT_EMPTY_PATH | AT_NO_FOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    execute(context, directory, path, [arguments, environment])
}

fn execute(context: &mut Context<'_>, directory: u64, path: u64, [arguments, environment]: [u64; 2]) -> Result<u64> {
    let path = read_path(context, path)?;
    let mut room = STRINGS_BYTES_MAX;
    let arguments = read_strings(context.memory, arguments, &mut room)?;
    let environment = read_strings(context.memory, environment, &mut room)?;
    let access = Access::new(context);
    let from = start_of(context, directory, &path)?;
    let wish = Wish { path, arguments, environment };
    let prepared = prepare(context.system, &access, &from, wish).map_err(|error| error.errno())?;
    context.replaces_registers = true;
    if let Err(error) = start(context.system, context.process, context.thread, prepared, context.frame) {
        // The old program is gone and the new one does not fit: nothing is left to return to.
        let text = alloc::format!("execve: {error}");
        context.process.end(Ending::Killed { signal: Signal::KILL, has_core: false, text });
    }
    Ok(0)
}

/// `exit(2)` and `exit_group(2)`: with one thread they are the same.
pub fn exit(context: &mut Context<'_>, [status, ..]: Arguments) -> Result<u64> {
    context.process.end(Ending::Exited(status as u8));
    Ok(0)
}

/// `wait4(2)` and `waitid(2)` of a process without children.
pub fn wait4(_: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Err(Errno::ECHILD)
}
