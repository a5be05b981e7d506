//! Filters of sockets as programs give them (`SO_ATTACH_FILTER`, `SO_GET_FILTER`). [`super::socket_option`] has the
//! calls.

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::net::filter::{Filter, INSTRUCTION_COUNT_MAX, Instruction};
use exos::net::options::SocketOptions;
use exos::reserve;

use crate::abi::bytes::{Encoder, get};
use crate::abi::user_memory::{read_array, read_vec, write_all};
use crate::call::context::Context;

/// Bytes of `struct sock_fprog`, and of `struct sock_filter`.
const PROGRAM_BYTES: u64 = 16;
const INSTRUCTION_BYTES: usize = 8;

/// Has a socket a filter from now on.
///
/// # Errors
/// `EINVAL`: no program that can be run. `EPERM`: the filter stays. `EFAULT`, `ENOMEM`.
pub(super) fn attach(context: &Context<'_>, options: &SocketOptions, (address, length): (u64, u64)) -> Result<()> {
    if length != PROGRAM_BYTES {
        return Err(Errno::EINVAL);
    }
    let program: [u8; PROGRAM_BYTES as usize] = read_array(context.memory, address)?;
    if options.is_filter_locked() {
        return Err(Errno::EPERM);
    }
    let (count, at) = (usize::from(get::u16(&program, 0)), get::u64(&program, 8));
    if at == 0 || !(1..=INSTRUCTION_COUNT_MAX).contains(&count) {
        return Err(Errno::EINVAL);
    }
    let bytes_max = INSTRUCTION_COUNT_MAX * INSTRUCTION_BYTES;
    let bytes = read_vec(context.memory, at, (count * INSTRUCTION_BYTES) as u64, bytes_max)?;
    let mut instructions: Vec<Instruction> = reserve::vector(count)?;
    instructions.extend(bytes.chunks_exact(INSTRUCTION_BYTES).map(|bytes| Instruction {
        code: get::u16(bytes, 0),
        jump_true: bytes[2],
        jump_false: bytes[3],
        constant: get::u32(bytes, 4),
    }));
    options.set_filter(Some(Filter::new(instructions)?))
}

/// Tells a socket's filter: how many instructions it has, where there is room for them also which.
///
/// # Errors
/// `EINVAL`: no room for all. `EFAULT`, `ENOMEM`.
pub(super) fn tell(
    context: &Context<'_>,
    options: &SocketOptions,
    address: u64,
    (length_address, room): (u64, usize),
) -> Result<()> {
    let filter = options.filter();
    let instructions = filter.as_ref().map_or(&[][..], |filter| filter.instructions());
    if !instructions.is_empty() && room > 0 {
        if room < instructions.len() {
            return Err(Errno::EINVAL);
        }
        let mut bytes = reserve::vector(instructions.len() * INSTRUCTION_BYTES)?;
        for one in instructions {
            let encoder = Encoder::new().u16(one.code).u8(one.jump_true).u8(one.jump_false);
            bytes.extend_from_slice(&encoder.u32(one.constant).finish());
        }
        write_all(context.memory, address, &bytes)?;
    }
    write_all(context.memory, length_address, &(instructions.len() as u32).to_le_bytes())
}

/// What `SO_ATTACH_BPF` says of a descriptor, of which none is a program's.
pub(super) fn no_program(context: &Context<'_>, options: &SocketOptions, descriptor: i32) -> Errno {
    let is_open = context.process.files.get(descriptor as u64).is_ok();
    match options.is_filter_locked() {
        true => Errno::EPERM,
        false if is_open => Errno::EINVAL,
        false => Errno::EBADF,
    }
}
