//! What fits no other family: the system's name and totals, randomness, process options, futexes of a single thread.

use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::preempt;
use exos::task::capability::Capability;

use super::capability;
use crate::abi::bytes::Encoder;
use crate::abi::linux::LINUX_REBOOT_MAGIC1;
use crate::abi::linux::{
    ARCH_SET_FS, PR_GET_CHILD_SUBREAPER, PR_GET_DUMPABLE, PR_GET_IO_FLUSHER, PR_GET_NAME, PR_GET_NO_NEW_PRIVS,
    PR_GET_PDEATHSIG, PR_GET_SECCOMP, PR_GET_THP_DISABLE, PR_GET_TID_ADDRESS, PR_GET_TIMERSLACK, PR_GET_TIMING,
    PR_GET_TSC, PR_MCE_KILL, PR_MCE_KILL_GET, PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_IO_FLUSHER, PR_SET_MM,
    PR_SET_MM_AUXV, PR_SET_MM_MAP, PR_SET_MM_MAP_SIZE, PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG,
    PR_SET_THP_DISABLE, PR_SET_TIMERSLACK, PR_SET_TIMING, PR_SET_TSC, PR_TASK_PERF_EVENTS_DISABLE,
    PR_TASK_PERF_EVENTS_ENABLE,
};
use crate::abi::user_memory::{CHUNK_BYTES, read_vec, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::process::{TIMER_SLACK_NS, thread_flag};
use crate::task::system::{RELEASE, VERSION};

entries! {
    uname(SystemName);
    sethostname(BufferIn(1), Size);
    setdomainname;
    sysinfo(Pointer);
    getrandom(BufferOut, Size, Set(RANDOM_FLAGS));
    arch_prctl(Word(ARCH_OPERATIONS), Pointer): "GS belongs to exos";
    prctl(Word(PROCESS_OPTIONS), Hex, Hex, Hex, Hex): "the options that programs set on themselves";
    membarrier(Int, Hex);
    personality: "only PER_LINUX; of its flags ADDR_NO_RANDOMIZE has an effect";
    syslog: "an empty log";
    reboot: "never permitted";
    swapon = not_permitted: "never permitted";
    swapoff = not_permitted: "never permitted";
    acct = not_permitted: "never permitted";
    vhangup();
}

/// Bytes of a field of `struct utsname`.
const NAME_BYTES: usize = 65;
/// Longest host or domain name.
const HOST_NAME_BYTES_MAX: usize = 64;

/// `uname(2)`.
pub fn uname(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    let bytes = Encoder::new()
        .string(b"Linux", NAME_BYTES)
        .string(&context.system.hostname.lock(), NAME_BYTES)
        .string(RELEASE, NAME_BYTES)
        .string(VERSION, NAME_BYTES)
        .string(b"x86_64", NAME_BYTES)
        .string(&context.system.domain_name.lock(), NAME_BYTES)
        .finish();
    write_all(context.memory, address, &bytes)?;
    Ok(0)
}

/// `sethostname(2)`.
pub fn sethostname(context: &mut Context<'_>, [address, length, ..]: Arguments) -> Result<u64> {
    *context.system.hostname.lock() = read_name(context, address, length)?;
    Ok(0)
}

/// `setdomainname(2)`.
pub fn setdomainname(context: &mut Context<'_>, [address, length, ..]: Arguments) -> Result<u64> {
    *context.system.domain_name.lock() = read_name(context, address, length)?;
    Ok(0)
}

fn read_name(context: &Context<'_>, address: u64, length: u64) -> Result<alloc::vec::Vec<u8>> {
    if !context.can(Capability::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    read_vec(context.memory, address, length, HOST_NAME_BYTES_MAX)
}

/// `sysinfo(2)`.
pub fn sysinfo(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    let (total, free) = context.system.memory_bytes();
    let bytes = Encoder::new()
        .u64(context.now_ns() / 1_000_000_000)
        .u64(0)
        .u64(0)
        .u64(0)
        .u64(total)
        .u64(free)
        .zero_to(80)
        .u16(1)
        .zero_to(104)
        .u32(1)
        .zero_to(112)
        .finish();
    write_all(context.memory, address, &bytes)?;
    Ok(0)
}

/// Bytes that a program asks for as a seed, at most.
const SEED_BYTES_MAX: usize = 64;

/// `getrandom(2)`: never blocks, as the seed is there from the start.
pub fn getrandom(context: &mut Context<'_>, [address, length, flags, ..]: Arguments) -> Result<u64> {
    // GRND_NONBLOCK 1, GRND_RANDOM 2, GRND_INSECURE 4; the last two exclude each other.
    if flags & !7 != 0 || flags & 6 == 6 {
        return Err(Errno::EINVAL);
    }
    let length = length.min(crate::abi::user_memory::MAX_RW_COUNT);
    if length <= SEED_BYTES_MAX as u64 {
        fill_random::<SEED_BYTES_MAX>(context, address, length)
    } else {
        fill_random::<CHUNK_BYTES>(context, address, length)
    }
}

/// `N` bytes at a time.
fn fill_random<const N: usize>(context: &mut Context<'_>, address: u64, length: u64) -> Result<u64> {
    let mut done = 0;
    let mut chunk = [0; N];
    while done < length {
        let step = (length - done).min(N as u64) as usize;
        context.system.kernel.random(&mut chunk[..step]);
        let count = match context.memory.copy_out(address.wrapping_add(done), &chunk[..step]) {
            Ok(count) => count,
            Err(_) if done > 0 => 0,
            Err(error) => return Err(error),
        };
        done += count as u64;
        if count < step || (done < length && preempt::unless_signalled().is_err()) {
            break;
        }
    }
    if done == 0 && length > 0 { Err(Errno::EFAULT) } else { Ok(done) }
}

/// `arch_prctl(2)`. GS belongs to exos; `docs/adr/0002-gs-belongs-to-the-library-os.md`.
pub fn arch_prctl(context: &mut Context<'_>, [operation, address, ..]: Arguments) -> Result<u64> {
    const ARCH_SET_GS: u64 = 0x1001;
    const ARCH_GET_FS: u64 = 0x1003;
    const ARCH_GET_GS: u64 = 0x1004;
    const ARCH_GET_CPUID: u64 = 0x1011;
    const ARCH_SET_CPUID: u64 = 0x1012;
    match operation {
        ARCH_SET_FS if address >= aegis_abi::layout::PROGRAM_END => Err(Errno::EPERM),
        ARCH_SET_FS => {
            context.system.platform.set_fs_base(address);
            Ok(0)
        }
        ARCH_GET_FS => {
            write_all(context.memory, address, &context.system.platform.fs_base().to_le_bytes())?;
            Ok(0)
        }
        ARCH_GET_GS => {
            write_all(context.memory, address, &0u64.to_le_bytes())?;
            Ok(0)
        }
        // Whether CPUID may be executed: always, and nothing here could take it away.
        ARCH_GET_CPUID => Ok(1),
        ARCH_SET_CPUID => Err(Errno::ENODEV),
        ARCH_SET_GS if address == 0 => Ok(0),
        ARCH_SET_GS => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// `prctl(2)`: the options that programs set on themselves.
pub fn prctl(context: &mut Context<'_>, [option, argument, third, fourth, fifth, _]: Arguments) -> Result<u64> {
    match option {
        PR_SET_NAME => {
            let name = read_string_prefix(context, argument)?;
            *context.thread.name.lock() = name;
            Ok(0)
        }
        PR_GET_NAME => {
            let name = Encoder::new().string(&context.thread.name.lock(), 16).finish();
            write_all(context.memory, argument, &name)?;
            Ok(0)
        }
        PR_GET_DUMPABLE => Ok(u64::from(context.process.space().dumpable())),
        PR_SET_DUMPABLE if argument <= 1 => {
            context.process.space().set_dumpable(argument as u8);
            Ok(0)
        }
        PR_SET_PDEATHSIG if argument <= 64 => {
            context.process.parent_death_signal.store(argument as u8, Ordering::Relaxed);
            Ok(0)
        }
        PR_GET_PDEATHSIG => {
            let number = u32::from(context.process.parent_death_signal.load(Ordering::Relaxed));
            write_all(context.memory, argument, &number.to_le_bytes())?;
            Ok(0)
        }
        PR_SET_CHILD_SUBREAPER => {
            context.process.is_subreaper.store(argument != 0, Ordering::Relaxed);
            Ok(0)
        }
        PR_GET_CHILD_SUBREAPER => {
            let is_subreaper = u32::from(context.process.is_subreaper.load(Ordering::Relaxed));
            write_all(context.memory, argument, &is_subreaper.to_le_bytes())?;
            Ok(0)
        }
        PR_GET_SECCOMP => Ok(0),
        PR_GET_NO_NEW_PRIVS if [argument, third, fourth, fifth] == [0; 4] => {
            Ok(u64::from(context.thread.identities.lock().has_no_new_privileges))
        }
        PR_SET_NO_NEW_PRIVS if argument == 1 && [third, fourth, fifth] == [0; 3] => {
            context.thread.change_identities(context.system, context.process, |identities| {
                identities.has_no_new_privileges = true;
                Ok(0)
            })
        }
        _ => quiet_option(context, option, [argument, third, fourth, fifth]),
    }
}

/// The options of `prctl(2)` that are kept and change little.
fn quiet_option(context: &Context<'_>, option: u64, arguments: [u64; 4]) -> Result<u64> {
    let [argument, third, fourth, fifth] = arguments;
    match option {
        // The processor's counter may be read; nothing here could forbid it.
        PR_GET_TSC => write_all(context.memory, argument, &1_u32.to_le_bytes()).map(|()| 0),
        PR_SET_TSC if argument == 1 => Ok(0),
        // Nobody has such events.
        PR_TASK_PERF_EVENTS_DISABLE | PR_TASK_PERF_EVENTS_ENABLE => Ok(0),
        PR_MCE_KILL => set_memory_faults(context, arguments),
        PR_MCE_KILL_GET if arguments == [0; 4] => Ok(memory_faults(context.thread.flags.load(Ordering::Relaxed))),
        PR_SET_MM => set_places(context, [argument, third, fourth, fifth]),
        PR_SET_IO_FLUSHER | PR_GET_IO_FLUSHER if !context.can(Capability::SYS_RESOURCE) => Err(Errno::EPERM),
        PR_GET_IO_FLUSHER if arguments == [0; 4] => {
            Ok(u64::from(context.thread.flags.load(Ordering::Relaxed) & thread_flag::IO_FLUSHER))
        }
        PR_SET_IO_FLUSHER if argument <= 1 && arguments[1..] == [0; 3] => {
            match argument {
                0 => context.thread.flags.fetch_and(!thread_flag::IO_FLUSHER, Ordering::Relaxed),
                _ => context.thread.flags.fetch_or(thread_flag::IO_FLUSHER, Ordering::Relaxed),
            };
            Ok(0)
        }
        PR_GET_TIMING => Ok(0),
        // Only statistical timing, as on Linux.
        PR_SET_TIMING if argument == 0 => Ok(0),
        PR_GET_TIMERSLACK => Ok(context.thread.timer_slack_ns.load(Ordering::Relaxed)),
        PR_SET_TIMERSLACK => {
            let slack_ns = if argument as i64 <= 0 { TIMER_SLACK_NS } else { argument };
            context.thread.timer_slack_ns.store(slack_ns, Ordering::Relaxed);
            Ok(0)
        }
        PR_GET_TID_ADDRESS => {
            let address = *context.thread.clear_tid_address.lock();
            write_all(context.memory, argument, &address.to_le_bytes())?;
            Ok(0)
        }
        PR_SET_THP_DISABLE if arguments[1..] == [0; 3] => {
            context.process.has_no_large_pages.store(argument != 0, Ordering::Relaxed);
            context.process.space().lock().set_no_large_pages(argument != 0);
            Ok(0)
        }
        PR_GET_THP_DISABLE if arguments == [0; 4] => {
            Ok(u64::from(context.process.has_no_large_pages.load(Ordering::Relaxed)))
        }
        _ => capability::option(context, option, arguments),
    }
}

/// `PR_MCE_KILL_EARLY`, `_LATE` and `_DEFAULT`, as a thread has chosen.
fn memory_faults(flags: u8) -> u64 {
    match (flags & thread_flag::MCE_PROCESS != 0, flags & thread_flag::MCE_EARLY != 0) {
        (false, _) => 2,
        (true, is_early) => u64::from(is_early),
    }
}

/// `PR_MCE_KILL`: kept, as no memory is found broken here.
fn set_memory_faults(context: &Context<'_>, arguments: [u64; 4]) -> Result<u64> {
    let chosen = match arguments {
        // `PR_MCE_KILL_CLEAR`, and `PR_MCE_KILL_SET` to each of the three.
        [0, 0, 0, 0] | [1, 2, 0, 0] => 0,
        [1, 1, 0, 0] => thread_flag::MCE_PROCESS | thread_flag::MCE_EARLY,
        [1, 0, 0, 0] => thread_flag::MCE_PROCESS,
        _ => return Err(Errno::EINVAL),
    };
    let flags = &context.thread.flags;
    let kept = flags.load(Ordering::Relaxed) & thread_flag::IO_FLUSHER;
    flags.store(kept | chosen, Ordering::Relaxed);
    Ok(0)
}

/// `PR_SET_MM`: what would be changed is where the parts of a program are said to lie, which is not kept.
fn set_places(context: &Context<'_>, [what, value, third, fourth]: [u64; 4]) -> Result<u64> {
    /// Bytes of `struct prctl_mm_map`.
    const MAP_BYTES: u32 = 104;
    if fourth != 0 || third != 0 && !matches!(what, PR_SET_MM_AUXV | PR_SET_MM_MAP | PR_SET_MM_MAP_SIZE) {
        return Err(Errno::EINVAL);
    }
    match what {
        PR_SET_MM_MAP_SIZE => write_all(context.memory, value, &MAP_BYTES.to_le_bytes()).map(|()| 0),
        PR_SET_MM_MAP => Err(Errno::EINVAL),
        _ if !context.can(Capability::SYS_RESOURCE) => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// The bits of a personality that say whose programs: 0 is Linux.
const KIND: u32 = 0xff;

/// At most 15 bytes of a name.
fn read_string_prefix(context: &Context<'_>, address: u64) -> Result<alloc::vec::Vec<u8>> {
    let mut bytes = [0; 16];
    let count = context.memory.copy_in(address, &mut bytes)?;
    let end = bytes[..count].iter().position(|byte| *byte == 0);
    match end {
        None if count < 16 => Err(Errno::EFAULT),
        end => Ok(bytes[..end.unwrap_or(15).min(15)].to_vec()),
    }
}

/// `membarrier(2)`: the calling processor is ordered by the call; the others, if there are any, are made to be.
pub fn membarrier(context: &mut Context<'_>, [command, flags, ..]: Arguments) -> Result<u64> {
    const GLOBAL: u64 = 1;
    const PRIVATE: u64 = 8;
    const REGISTER_PRIVATE: u64 = 16;
    let registered = &context.process.has_registered_barriers;
    let order = || match context.system.processor_count {
        0 | 1 => Ok(0),
        _ => context.system.platform.order_everywhere().map(|()| 0),
    };
    match command {
        _ if flags != 0 => Err(Errno::EINVAL),
        0 => Ok(GLOBAL | PRIVATE | REGISTER_PRIVATE),
        GLOBAL => order(),
        PRIVATE if registered.load(Ordering::Relaxed) => order(),
        PRIVATE => Err(Errno::EPERM),
        REGISTER_PRIVATE => {
            registered.store(true, Ordering::Relaxed);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `personality(2)`: kept for programs that ask; what has an effect is [`crate::task::process::ADDR_NO_RANDOMIZE`].
pub fn personality(context: &mut Context<'_>, [persona, ..]: Arguments) -> Result<u64> {
    const ASK: u32 = u32::MAX;
    let process = &context.process;
    let before = match persona as u32 {
        ASK => process.persona.load(Ordering::Relaxed),
        // Another kernel's programs would need other calls.
        persona if persona & KIND != 0 => return Err(Errno::EINVAL),
        persona => process.persona.swap(persona, Ordering::Relaxed),
    };
    Ok(u64::from(before))
}

/// `syslog(2)`: an empty log.
pub fn syslog(context: &mut Context<'_>, [kind, address, length, ..]: Arguments) -> Result<u64> {
    /// `SYSLOG_ACTION_READ_ALL` and `SYSLOG_ACTION_SIZE_BUFFER`, which every process may ask.
    const HARMLESS: [u64; 2] = [3, 10];
    let may_control = context.can(Capability::SYSLOG) || context.can(Capability::SYS_ADMIN);
    let (kind, length) = (u64::from(kind as u32), length as u32 as i32);
    match kind {
        _ if !may_control && !HARMLESS.contains(&kind) => Err(Errno::EPERM),
        // Reading, and reading with clearing.
        2..=4 if address == 0 || length < 0 => Err(Errno::EINVAL),
        // The console's level.
        8 if !(1..=8).contains(&length) => Err(Errno::EINVAL),
        0..=10 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `vhangup(2)`: the session's terminal.
pub fn vhangup(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    if !context.can(Capability::SYS_TTY_CONFIG) {
        return Err(Errno::EPERM);
    }
    let session = *context.process.session.lock();
    context.system.files.terminals.hang_up(session);
    Ok(0)
}

/// `reboot(2)`: a pod does not manage the machine; only a privileged caller with wrong magic words is told so.
pub fn reboot(context: &mut Context<'_>, [first, second, ..]: Arguments) -> Result<u64> {
    /// `LINUX_REBOOT_MAGIC2` and its successors.
    const SECOND: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];
    let is_right = first as u32 == LINUX_REBOOT_MAGIC1 && SECOND.contains(&(second as u32));
    if context.can(Capability::SYS_BOOT) && !is_right { Err(Errno::EINVAL) } else { Err(Errno::EPERM) }
}

/// `swapon(2)` and its like: a pod does not manage the machine.
pub fn not_permitted(_: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Err(Errno::EPERM)
}
