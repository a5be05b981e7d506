//! Memory policies as on a machine with one node: `get_mempolicy`, `set_mempolicy`, `mbind`, `migrate_pages`,
//! `move_pages`, `set_mempolicy_home_node`.
//!
//! All memory is of node 0, so every policy that Linux would accept is followed already and pages are where they are
//! to be. A thread's policy is kept and comes to what it makes; a range's is checked and not kept.

use alloc::sync::Arc;

use exos::error::{Errno, Result};
use exos::mem::AddressSpace;
use exos::task::capability::Capability;

use super::pidfd::may_trace;
use crate::abi::errno::number;
use crate::abi::linux::{
    MPOL_BIND, MPOL_DEFAULT, MPOL_F_ADDR, MPOL_F_MEMS_ALLOWED, MPOL_F_NODE, MPOL_INTERLEAVE, MPOL_LOCAL,
    MPOL_PREFERRED, MPOL_PREFERRED_MANY,
};
use crate::abi::linux::{
    MPOL_F_NUMA_BALANCING, MPOL_F_RELATIVE_NODES, MPOL_F_STATIC_NODES, MPOL_MF_MOVE, MPOL_MF_MOVE_ALL, MPOL_MF_STRICT,
};
use crate::abi::user_memory::{read_array, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::memory_policy::MemoryPolicy;
use crate::task::process::Process;

const NOT_KEPT: &str = "checked and not kept: `get_mempolicy` tells the default of every address";

entries! {
    get_mempolicy(Pointer, Pointer, Size, Pointer, Hex): "one node; `mbind` leaves nothing to tell";
    set_mempolicy(Hex, Pointer, Size);
    mbind(Pointer, Size, Hex, Pointer, Size, Hex): NOT_KEPT;
    set_mempolicy_home_node(Pointer, Size, Int, Hex): "checked, without the range's policy";
    migrate_pages(Int, Size, Pointer, Pointer);
    move_pages(Int, Size, Pointer, Pointer, Pointer, Hex);
}

const FLAGS: u32 = MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING;
/// The nodes that there are, and how many could be (`MAX_NUMNODES` of a usual kernel).
const EXISTING: u64 = 1;
const NODE_COUNT_MAX: u64 = 64;
/// Most bits of a set of nodes that a program may pass.
const MASK_BITS_MAX: u64 = 4096 * 8;
const PAGE_BYTES: u64 = 4096;

/// A set of nodes of the program's: `bits` is one more than it has bits.
fn read_nodes(context: &Context<'_>, address: u64, bits: u64) -> Result<u64> {
    let bits = bits.wrapping_sub(1);
    if bits == 0 || address == 0 {
        return Ok(0);
    }
    if bits > MASK_BITS_MAX {
        return Err(Errno::EINVAL);
    }
    let bytes = read_vec(context.memory, address, bits.div_ceil(64) * 8, MASK_BITS_MAX as usize / 8)?;
    let is_set = |bit: u64| bytes[(bit / 8) as usize] & 1 << (bit % 8) != 0;
    if (NODE_COUNT_MAX..bits).any(is_set) {
        return Err(Errno::EINVAL);
    }
    Ok((0..bits.min(NODE_COUNT_MAX)).filter(|bit| is_set(*bit)).fold(0, |nodes, bit| nodes | 1 << bit))
}

/// What is wrong with a mode whatever the nodes are: `EINVAL`.
fn check_mode(mode: u32) -> Result<()> {
    let (plain, flags) = (mode & !FLAGS, mode & FLAGS);
    let is_both = flags & (MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES) == MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES;
    let is_bad = plain > MPOL_PREFERRED_MANY || is_both || flags & MPOL_F_NUMA_BALANCING != 0 && plain != MPOL_BIND;
    if is_bad { Err(Errno::EINVAL) } else { Ok(()) }
}

/// The policy that a mode and nodes ask for.
fn new_policy(mode: u32, nodes: u64) -> Result<MemoryPolicy> {
    check_mode(mode)?;
    let (plain, flags) = (mode & !FLAGS, mode & FLAGS);
    let is_fixed = flags & (MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES) != 0;
    match plain {
        MPOL_DEFAULT if nodes == 0 => return Ok(MemoryPolicy::default()),
        MPOL_PREFERRED | MPOL_LOCAL if nodes == 0 && !is_fixed => {
            return Ok(MemoryPolicy { mode: MPOL_LOCAL, nodes: 0 });
        }
        MPOL_DEFAULT | MPOL_LOCAL => return Err(Errno::EINVAL),
        _ => {}
    }
    // Relative to the nodes that there are, every node is the one.
    let used = if flags & MPOL_F_RELATIVE_NODES != 0 && nodes != 0 { EXISTING } else { nodes & EXISTING };
    if used == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(MemoryPolicy { mode: plain | flags, nodes: if is_fixed { nodes } else { used } })
}

/// `get_mempolicy(2)`.
pub fn get_mempolicy(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    let [mode, mask, bits, address, flags, _] = arguments;
    let is_bad = mask != 0 && bits < u64::from(EXISTING.count_ones())
        || flags & !(MPOL_F_NODE | MPOL_F_ADDR | MPOL_F_MEMS_ALLOWED) != 0;
    if is_bad || flags & MPOL_F_MEMS_ALLOWED != 0 && flags != MPOL_F_MEMS_ALLOWED {
        return Err(Errno::EINVAL);
    }
    let policy = *context.thread.memory_policy.lock();
    let answer = match flags {
        MPOL_F_MEMS_ALLOWED => MemoryPolicy { mode: 0, nodes: EXISTING },
        _ if flags & MPOL_F_ADDR == 0 && address != 0 => return Err(Errno::EINVAL),
        _ if flags & MPOL_F_ADDR != 0 && context.process.space().lock().area_at(address).is_none() => {
            return Err(Errno::EFAULT);
        }
        MPOL_F_ADDR => MemoryPolicy::default(),
        0 => policy,
        _ if flags & MPOL_F_ADDR != 0 => {
            // The page is there afterwards, as on Linux, and of node 0.
            read_array::<1>(context.memory, address)?;
            MemoryPolicy::default()
        }
        _ if policy.mode & !FLAGS == MPOL_INTERLEAVE => MemoryPolicy { mode: 0, ..policy },
        _ => return Err(Errno::EINVAL),
    };
    if mode != 0 {
        write_all(context.memory, mode, &answer.mode.to_le_bytes())?;
    }
    if mask != 0 {
        write_nodes(context, mask, bits, answer.nodes)?;
    }
    Ok(0)
}

/// As many whole words as `bits` asks for, the first of which has nodes.
fn write_nodes(context: &Context<'_>, address: u64, bits: u64, nodes: u64) -> Result<()> {
    let length = bits.saturating_sub(1).div_ceil(64).saturating_mul(8);
    if length > PAGE_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut bytes = alloc::vec![0; length as usize];
    if let Some(first) = bytes.first_chunk_mut() {
        *first = nodes.to_le_bytes();
    }
    write_all(context.memory, address, &bytes)
}

/// `set_mempolicy(2)`.
pub fn set_mempolicy(context: &mut Context<'_>, [mode, mask, bits, ..]: Arguments) -> Result<u64> {
    check_mode(mode as u32)?;
    let policy = new_policy(mode as u32, read_nodes(context, mask, bits)?)?;
    *context.thread.memory_policy.lock() = policy;
    Ok(0)
}

/// The pages of a range: `EINVAL` if it does not begin at one or wraps, `None` if there are none.
fn range_of(start: u64, length: u64) -> Result<Option<core::ops::Range<u64>>> {
    let length = length.checked_next_multiple_of(PAGE_BYTES).unwrap_or(0);
    let end = start.checked_add(length).filter(|_| start.is_multiple_of(PAGE_BYTES)).ok_or(Errno::EINVAL)?;
    Ok((end > start).then_some(start..end))
}

/// Whether any and whether all of a range is mapped.
fn coverage(space: &AddressSpace, range: &core::ops::Range<u64>) -> (bool, bool) {
    let parts = space.areas().map(|area| area.end().min(range.end).saturating_sub(area.start().max(range.start)));
    let covered: u64 = parts.sum();
    (covered > 0, covered == range.end - range.start)
}

/// `mbind(2)`.
pub fn mbind(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    let [start, length, mode, mask, bits, flags] = arguments;
    // Linux looks at the mode and reads the nodes before it looks at the rest.
    check_mode(mode as u32)?;
    let nodes = read_nodes(context, mask, bits)?;
    if flags & !(MPOL_MF_STRICT | MPOL_MF_MOVE | MPOL_MF_MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MPOL_MF_MOVE_ALL != 0 && !context.can(Capability::SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let Some(range) = range_of(start, length)? else {
        return Ok(0);
    };
    let policy = new_policy(mode as u32, nodes)?;
    let (is_any, is_all) = coverage(&context.process.space().lock(), &range);
    let is_mapped = if policy.mode == MPOL_DEFAULT { is_any } else { is_all };
    if is_mapped { Ok(0) } else { Err(Errno::EFAULT) }
}

/// `set_mempolicy_home_node(2)`.
pub fn set_mempolicy_home_node(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    let [start, length, node, flags, ..] = arguments;
    if !start.is_multiple_of(PAGE_BYTES) || flags != 0 || node != 0 {
        return Err(Errno::EINVAL);
    }
    let Some(range) = range_of(start, length)? else {
        return Ok(0);
    };
    let (is_any, _) = coverage(&context.process.space().lock(), &range);
    if is_any { Ok(0) } else { Err(Errno::ENOENT) }
}

/// The process whose pages are meant, if the caller may look into it; 0 is the caller.
fn target(context: &Context<'_>, pid: u64) -> Result<Arc<Process>> {
    let pid = pid as u32;
    if pid == 0 {
        return Ok(context.process.clone());
    }
    let mut all = context.system.processes.all();
    let found = all.find(|process| process.pid == pid || process.thread(pid).is_some());
    let process = found.ok_or(Errno::ESRCH)?;
    if may_trace(context, &process) { Ok(process) } else { Err(Errno::EPERM) }
}

/// `migrate_pages(2)`: there is only one node to come from and to go to.
pub fn migrate_pages(context: &mut Context<'_>, [pid, bits, from, to, ..]: Arguments) -> Result<u64> {
    read_nodes(context, from, bits)?;
    let to = read_nodes(context, to, bits)?;
    target(context, pid)?;
    match to {
        _ if to & !EXISTING != 0 && !context.can(Capability::SYS_NICE) => Err(Errno::EPERM),
        _ if to & EXISTING == 0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

/// `move_pages(2)`: tells where pages are, which is where they can be.
pub fn move_pages(context: &mut Context<'_>, arguments: Arguments) -> Result<u64> {
    let [pid, count, pages, nodes, statuses, flags] = arguments;
    let flags = u64::from(flags as u32);
    if flags & !(MPOL_MF_MOVE | MPOL_MF_MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MPOL_MF_MOVE_ALL != 0 && !context.can(Capability::SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let process = target(context, pid)?;
    let space = process.space();
    for index in 0..count {
        let at = |base: u64, bytes: u64| base.wrapping_add(index.wrapping_mul(bytes));
        let page = u64::from_le_bytes(read_array(context.memory, at(pages, 8))?);
        if nodes != 0 && i32::from_le_bytes(read_array(context.memory, at(nodes, 4))?) != 0 {
            return Err(Errno::ENODEV);
        }
        if context.process.has_ended() {
            return Err(Errno::EINTR);
        }
        let status = status_of(&space.lock(), page);
        write_all(context.memory, at(statuses, 4), &status.to_le_bytes())?;
    }
    Ok(0)
}

/// The node of a page, or the error that stands for there being none.
fn status_of(space: &AddressSpace, address: u64) -> i32 {
    let error = |errno| -(number(errno) as i32);
    match space.frame_at(address) {
        _ if space.area_at(address).is_none() => error(Errno::EFAULT),
        None => error(Errno::ENOENT),
        Some((frame, _)) if space.pool().is_zero_frame(frame) => error(Errno::EFAULT),
        Some(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use exos::error::Errno;

    use super::{MemoryPolicy, new_policy};
    use crate::abi::linux::MPOL_BIND;
    use crate::abi::linux::MPOL_INTERLEAVE;
    use crate::abi::linux::MPOL_LOCAL;
    use crate::abi::linux::{MPOL_F_RELATIVE_NODES, MPOL_F_STATIC_NODES};

    fn made(mode: u32, nodes: u64) -> Result<(u32, u64), Errno> {
        new_policy(mode, nodes).map(|MemoryPolicy { mode, nodes }| (mode, nodes))
    }

    #[test]
    fn policies_are_those_of_one_node() {
        assert_eq!(made(0, 0), Ok((0, 0)));
        assert_eq!(made(0, 1), Err(Errno::EINVAL));
        assert_eq!(made(1, 0), Ok((MPOL_LOCAL, 0)));
        assert_eq!(made(MPOL_LOCAL, 1), Err(Errno::EINVAL));
        assert_eq!(made(MPOL_BIND, 0), Err(Errno::EINVAL));
        assert_eq!(made(MPOL_BIND, 3), Ok((MPOL_BIND, 1)));
        assert_eq!(made(MPOL_BIND, 2), Err(Errno::EINVAL));
        assert_eq!(made(MPOL_BIND | MPOL_F_STATIC_NODES, 3), Ok((MPOL_BIND | MPOL_F_STATIC_NODES, 3)));
        assert_eq!(made(MPOL_INTERLEAVE | MPOL_F_RELATIVE_NODES, 2), Ok((MPOL_INTERLEAVE | MPOL_F_RELATIVE_NODES, 2)));
        assert_eq!(made(MPOL_BIND | MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES, 1), Err(Errno::EINVAL));
        assert_eq!(made(7, 1), Err(Errno::EINVAL));
    }
}
