//! The identity of a process: numbers, users, groups, sessions, limits.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::task::capability::Capability;
use exos::task::limits::{Limit, Resource};

use crate::abi::bytes::{Encoder, get};
use crate::abi::time::timeval;
use crate::abi::user_memory::{read_array, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::identities::Identities;
use crate::task::process::Process;
use crate::task::timers::arm_processor_limit;

entries! {
    getpid();
    gettid();
    getppid();
    getuid();
    geteuid();
    getgid();
    getegid();
    setuid(Int);
    setgid(Int);
    setreuid;
    setregid;
    setresuid(Int, Int, Int);
    setresgid(Int, Int, Int);
    getresuid;
    getresgid;
    setfsuid;
    setfsgid;
    getgroups(Size, Pointer);
    setgroups(Size, Pointer);
    getpgid(Int);
    getpgrp();
    setpgid(Int, Int);
    getsid(Int);
    setsid();
    prlimit64(Int, Word(RESOURCES), Limit, LimitOut);
    getrlimit(Word(RESOURCES), LimitOut);
    setrlimit(Word(RESOURCES), Limit);
    getrusage(Int, Pointer): "processor time and peak memory only";
}

/// "Leave as it is" in `setresuid` and its like.
const KEEP: u32 = u32::MAX;
/// Most supplementary groups.
const GROUP_COUNT_MAX: u64 = 65_536;

/// `getpid(2)`.
pub fn getpid(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(u64::from(context.process.pid))
}

/// `gettid(2)`.
pub fn gettid(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(u64::from(context.thread.tid()))
}

/// `getppid(2)`.
pub fn getppid(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(u64::from(context.process.visible_parent()))
}

/// `getuid(2)`.
pub fn getuid(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(u64::from(context.thread.identities.lock().uid[0]))
}

/// `geteuid(2)`.
pub fn geteuid(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(u64::from(context.thread.identities.lock().uid[1]))
}

/// `getgid(2)`.
pub fn getgid(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(u64::from(context.thread.identities.lock().gid[0]))
}

/// `getegid(2)`.
pub fn getegid(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(u64::from(context.thread.identities.lock().gid[1]))
}

/// Changes the identity of the calling thread.
fn change(context: &Context<'_>, change: impl FnOnce(&mut Identities) -> Result<u64>) -> Result<u64> {
    context.thread.change_identities(context.system, context.process, change)
}

/// Sets real, effective and saved identity as `setresuid` does; the one for files follows the effective one.
fn set_three(identity: &mut [u32; 4], wanted: [u32; 3], is_privileged: bool) -> Result<()> {
    for value in wanted {
        if value != KEEP && !is_privileged && !identity[..3].contains(&value) {
            return Err(Errno::EPERM);
        }
    }
    for (slot, value) in identity.iter_mut().zip(wanted) {
        if value != KEEP {
            *slot = value;
        }
    }
    identity[3] = identity[1];
    Ok(())
}

/// `setresuid(2)`: the capabilities follow.
pub fn setresuid(context: &mut Context<'_>, [real, effective, saved, ..]: Arguments) -> Result<u64> {
    change(context, |identities| {
        let (is_privileged, before) = (identities.can(Capability::SETUID), identities.uid);
        set_three(&mut identities.uid, [real as u32, effective as u32, saved as u32], is_privileged)?;
        let after = identities.uid;
        identities.capabilities.follow_user(before, after);
        Ok(0)
    })
}

/// `setresgid(2)`.
pub fn setresgid(context: &mut Context<'_>, [real, effective, saved, ..]: Arguments) -> Result<u64> {
    change(context, |identities| {
        let is_privileged = identities.can(Capability::SETGID);
        set_three(&mut identities.gid, [real as u32, effective as u32, saved as u32], is_privileged)?;
        Ok(0)
    })
}

/// `setuid(2)`: all three with privilege, else the effective one.
pub fn setuid(context: &mut Context<'_>, [uid, ..]: Arguments) -> Result<u64> {
    let other = if context.can(Capability::SETUID) { uid } else { u64::from(KEEP) };
    check_identity(uid)?;
    setresuid(context, [other, uid, other, 0, 0, 0])
}

/// `setgid(2)`.
pub fn setgid(context: &mut Context<'_>, [gid, ..]: Arguments) -> Result<u64> {
    let other = if context.can(Capability::SETGID) { gid } else { u64::from(KEEP) };
    check_identity(gid)?;
    setresgid(context, [other, gid, other, 0, 0, 0])
}

fn check_identity(value: u64) -> Result<()> {
    if value as u32 == KEEP { Err(Errno::EINVAL) } else { Ok(()) }
}

/// What `setreuid` makes of an identity: the real one becomes the real or effective one that was, and the saved one
/// follows the effective one unless only that changed, to what the real one was.
fn set_two(identity: &mut [u32; 4], [real, effective]: [u32; 2], is_privileged: bool) -> Result<()> {
    let [old_real, old_effective, ..] = *identity;
    let is_own = real == KEEP || real == old_real || real == old_effective;
    if !is_privileged && !is_own {
        return Err(Errno::EPERM);
    }
    let follows = real != KEEP || (effective != KEEP && effective != old_real);
    let after = if effective == KEEP { old_effective } else { effective };
    if effective != KEEP && !is_privileged && !identity[..3].contains(&effective) {
        return Err(Errno::EPERM);
    }
    // The real identity was looked at above; the new effective one is allowed as the saved one.
    set_three(identity, [real, effective, if follows { after } else { KEEP }], true)
}

/// `setreuid(2)`: the capabilities follow.
pub fn setreuid(context: &mut Context<'_>, [real, effective, ..]: Arguments) -> Result<u64> {
    change(context, |identities| {
        let (is_privileged, before) = (identities.can(Capability::SETUID), identities.uid);
        set_two(&mut identities.uid, [real as u32, effective as u32], is_privileged)?;
        let after = identities.uid;
        identities.capabilities.follow_user(before, after);
        Ok(0)
    })
}

/// `setregid(2)`.
pub fn setregid(context: &mut Context<'_>, [real, effective, ..]: Arguments) -> Result<u64> {
    change(context, |identities| {
        let is_privileged = identities.can(Capability::SETGID);
        set_two(&mut identities.gid, [real as u32, effective as u32], is_privileged)?;
        Ok(0)
    })
}

fn write_three(context: &Context<'_>, addresses: [u64; 3], identity: [u32; 4]) -> Result<u64> {
    for (address, value) in addresses.into_iter().zip(identity) {
        write_all(context.memory, address, &value.to_le_bytes())?;
    }
    Ok(0)
}

/// `getresuid(2)`.
pub fn getresuid(context: &mut Context<'_>, [real, effective, saved, ..]: Arguments) -> Result<u64> {
    let identity = context.thread.identities.lock().uid;
    write_three(context, [real, effective, saved], identity)
}

/// `getresgid(2)`.
pub fn getresgid(context: &mut Context<'_>, [real, effective, saved, ..]: Arguments) -> Result<u64> {
    let identity = context.thread.identities.lock().gid;
    write_three(context, [real, effective, saved], identity)
}

/// `setfsuid(2)`: answers the identity before.
pub fn setfsuid(context: &mut Context<'_>, [uid, ..]: Arguments) -> Result<u64> {
    change(context, |identities| {
        let before = identities.uid[3];
        if uid as u32 != KEEP && (identities.can(Capability::SETUID) || identities.uid.contains(&(uid as u32))) {
            identities.uid[3] = uid as u32;
            identities.capabilities.follow_file_user(before, uid as u32);
        }
        Ok(u64::from(before))
    })
}

/// `setfsgid(2)`.
pub fn setfsgid(context: &mut Context<'_>, [gid, ..]: Arguments) -> Result<u64> {
    change(context, |identities| {
        let before = identities.gid[3];
        if gid as u32 != KEEP && (identities.can(Capability::SETGID) || identities.gid.contains(&(gid as u32))) {
            identities.gid[3] = gid as u32;
        }
        Ok(u64::from(before))
    })
}

/// `getgroups(2)`.
pub fn getgroups(context: &mut Context<'_>, [count, address, ..]: Arguments) -> Result<u64> {
    let groups = context.thread.identities.lock().groups.clone();
    if (count as u32 as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    if count as u32 != 0 {
        if groups.len() > count as u32 as usize {
            return Err(Errno::EINVAL);
        }
        let encoder = groups.iter().fold(Encoder::new(), |encoder, group| encoder.u32(*group));
        write_all(context.memory, address, &encoder.finish())?;
    }
    Ok(groups.len() as u64)
}

/// `setgroups(2)`.
pub fn setgroups(context: &mut Context<'_>, [count, address, ..]: Arguments) -> Result<u64> {
    if !context.can(Capability::SETGID) {
        return Err(Errno::EPERM);
    }
    if count > GROUP_COUNT_MAX {
        return Err(Errno::EINVAL);
    }
    let bytes = read_vec(context.memory, address, count * 4, GROUP_COUNT_MAX as usize * 4)?;
    let mut groups: Vec<u32> = bytes.chunks_exact(4).map(|chunk| get::u32(chunk, 0)).collect();
    if groups.contains(&u32::MAX) {
        return Err(Errno::EINVAL);
    }
    // As on Linux, which then looks for one by halves.
    groups.sort_unstable();
    change(context, |identities| {
        identities.groups = groups;
        Ok(0)
    })
}

/// The process that `pid` names; 0 is the caller.
fn find(context: &Context<'_>, pid: u64) -> Result<Arc<Process>> {
    match pid as u32 {
        0 => Ok(context.process.clone()),
        pid if pid == context.process.pid => Ok(context.process.clone()),
        pid => context.system.processes.named(pid).ok_or(Errno::ESRCH),
    }
}

/// `getpgid(2)`.
pub fn getpgid(context: &mut Context<'_>, [pid, ..]: Arguments) -> Result<u64> {
    Ok(u64::from(*find(context, pid)?.group.lock()))
}

/// `getpgrp(2)`.
pub fn getpgrp(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Ok(u64::from(*context.process.group.lock()))
}

/// `setpgid(2)`: of the caller, or of a child that has not called `execve`.
pub fn setpgid(context: &mut Context<'_>, [pid, group, ..]: Arguments) -> Result<u64> {
    if (group as u32 as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    if (pid as u32 as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let target = find(context, pid)?;
    if pid as u32 != 0 && pid as u32 != target.pid {
        // A thread's number.
        return Err(Errno::EINVAL);
    }
    let own_session = *context.process.session.lock();
    let target_session = *target.session.lock();
    if target.pid != context.process.pid {
        if target.parent() != context.process.pid {
            return Err(Errno::ESRCH);
        }
        if target_session != own_session {
            return Err(Errno::EPERM);
        }
        if target.has_executed.load(Ordering::Relaxed) {
            return Err(Errno::EACCES);
        }
    }
    let wanted = if group as u32 == 0 { target.pid } else { group as u32 };
    let is_there = || context.system.processes.in_group(wanted).any(|one| *one.session.lock() == own_session);
    if target_session == target.pid || wanted != target.pid && !is_there() {
        return Err(Errno::EPERM);
    }
    *target.group.lock() = wanted;
    Ok(0)
}

/// `getsid(2)`.
pub fn getsid(context: &mut Context<'_>, [pid, ..]: Arguments) -> Result<u64> {
    Ok(u64::from(*find(context, pid)?.session.lock()))
}

/// `setsid(2)`.
pub fn setsid(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    let pid = context.process.pid;
    let own_group = *context.process.group.lock();
    if own_group == pid || context.system.processes.in_group(pid).next().is_some() {
        return Err(Errno::EPERM);
    }
    *context.process.session.lock() = pid;
    *context.process.group.lock() = pid;
    context.process.has_left_terminal.store(false, Ordering::Relaxed);
    Ok(u64::from(pid))
}

fn encode_limit(limit: Limit) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&limit.soft.to_le_bytes());
    bytes[8..].copy_from_slice(&limit.hard.to_le_bytes());
    bytes
}

/// Most descriptors that a process may be allowed, as `/proc/sys/fs/nr_open` tells it.
const OPEN_FILES_MAX: u64 = 1 << 20;

/// `prlimit64(2)`.
pub fn prlimit64(context: &mut Context<'_>, [pid, resource, new, old, ..]: Arguments) -> Result<u64> {
    let target = find(context, pid)?;
    let own = context.thread.identities.lock().uid;
    if !context.can(Capability::SYS_RESOURCE) && target.identities.lock().uid[..3] != own[..3] {
        return Err(Errno::EPERM);
    }
    let resource = resource as u32 as usize;
    let before = target.limits.lock().get(resource)?;
    if new != 0 {
        let bytes: [u8; 16] = read_array(context.memory, new)?;
        let limit = Limit { soft: get::u64(&bytes, 0), hard: get::u64(&bytes, 8) };
        if resource == Resource::OpenFiles as usize && limit.hard > OPEN_FILES_MAX {
            return Err(Errno::EPERM);
        }
        let is_privileged = context.can(Capability::SYS_RESOURCE);
        target.limits.lock().set(resource, limit, is_privileged)?;
        arm_processor_limit(context.system, &target);
        target.files.apply_limits(&target.limits.lock());
        target.space().apply_limits(&target.limits.lock());
    }
    if old != 0 {
        write_all(context.memory, old, &encode_limit(before))?;
    }
    Ok(0)
}

/// `getrlimit(2)`.
pub fn getrlimit(context: &mut Context<'_>, [resource, address, ..]: Arguments) -> Result<u64> {
    let limit = context.process.limits.lock().get(resource as u32 as usize)?;
    write_all(context.memory, address, &encode_limit(limit))?;
    Ok(0)
}

/// `setrlimit(2)`.
pub fn setrlimit(context: &mut Context<'_>, [resource, address, ..]: Arguments) -> Result<u64> {
    prlimit64(context, [0, resource, address, 0, 0, 0])
}

/// `getrusage(2)`.
pub fn getrusage(context: &mut Context<'_>, [who, address, ..]: Arguments) -> Result<u64> {
    // RUSAGE_SELF 0, RUSAGE_THREAD 1, RUSAGE_CHILDREN -1.
    let used = match who as u32 as i32 {
        0 => context.process.used_time(context.now_ns()),
        1 => context.thread.time.used_time(context.now_ns()),
        -1 => context.process.times.lock().children,
        _ => return Err(Errno::EINVAL),
    };
    let resident_kib = match who as u32 as i32 {
        -1 => context.process.times.lock().children_peak_bytes / 1024,
        _ => context.process.peak_bytes() / 1024,
    };
    let times = [timeval(used.user_ns()), timeval(used.system_ns)];
    let bytes = Encoder::new().raw(&times[0]).raw(&times[1]).u64(resident_kib).zero_to(144).finish();
    write_all(context.memory, address, &bytes)?;
    Ok(0)
}
