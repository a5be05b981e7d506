//! Memory calls: numbers and flags of Linux, as calls of `exos::mem`.

use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::mem::{
    Advice, AreaFlags, AreaLabel, MapBacking, MapRequest, Movement, Placement, ProtectReach, Protection, RemapRequest,
    SyncMode,
};
use exos::preempt;
use exos::task::capability::Capability;

use super::file_cut::drop_from_all;
use crate::abi::linux::{
    MAP_32BIT, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB, MAP_LOCKED, MAP_NONBLOCK,
    MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, PROT_GROWSDOWN,
    PROT_GROWSUP, PROT_SEM,
};
use crate::abi::linux::{
    MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, MS_ASYNC,
    MS_INVALIDATE, MS_SYNC,
};
use crate::abi::user_memory::write_all;
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;
use crate::task::process::Process;
use crate::task::profile;

entries! {
    mmap(Pointer, Size, Set(PROTECTIONS), Set(MAP_FLAGS), Descriptor, Hex) -> Address;
    munmap(Pointer, Size);
    mprotect(Pointer, Size, Set(PROTECTIONS));
    pkey_alloc;
    pkey_free;
    pkey_mprotect;
    mremap(Pointer, Size, Size, Set(REMAP_FLAGS), Pointer) -> Address: "MREMAP_DONTUNMAP of private anonymous memory";
    brk(Pointer) -> Address;
    madvise(Pointer, Size, Word(ADVICES)): "hints have no effect";
    msync(Pointer, Size, Set(SYNC_FLAGS));
    mincore;
    mlock(Pointer, Size): "accounted; nothing is ever paged out";
    mlock2: "accounted; nothing is ever paged out";
    munlock(Pointer, Size): "accounted; nothing is ever paged out";
    mlockall: "accounted; nothing is ever paged out";
    munlockall: "accounted; nothing is ever paged out";
}

/// Flags of long ago that every kernel passes over: `MAP_DENYWRITE`, `MAP_EXECUTABLE`, `MAP_UNINITIALIZED`, `MAP_FILE`.
const MAP_PASSED_OVER: u64 = 0x0800 | 0x1000 | 0x400_0000;
/// `MAP_HUGE_2MB`, `MAP_HUGE_1GB`: sizes of pages, which mean nothing without `MAP_HUGETLB`.
const MAP_SIZES: u64 = 31 << 26;
/// What `MAP_SHARED_VALIDATE` accepts.
const MAP_KNOWN: u64 = MAP_TYPE
    | MAP_SIZES
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_32BIT
    | MAP_GROWSDOWN
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_FIXED_NOREPLACE
    | MAP_PASSED_OVER;

/// The rights in `prot`; bits without a meaning to `mmap` are passed over, as on Linux.
fn protection(prot: u64) -> Protection {
    Protection::from_bits_truncate((prot & 7) as u8)
}

/// `mmap(2)`.
pub fn mmap(context: &mut Context<'_>, [address, length, prot, flags, descriptor, offset]: Arguments) -> Result<u64> {
    let is_shared = match flags & MAP_TYPE {
        MAP_SHARED => true,
        MAP_SHARED_VALIDATE if flags & MAP_ANONYMOUS != 0 => return Err(Errno::EINVAL),
        MAP_SHARED_VALIDATE if flags & !MAP_KNOWN != 0 => return Err(Errno::EOPNOTSUPP),
        MAP_SHARED_VALIDATE => true,
        MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    if flags & MAP_HUGETLB != 0 {
        // No pages are set aside for huge mappings, which is what this error says.
        return Err(Errno::ENOMEM);
    }
    if offset % 4096 != 0 {
        return Err(Errno::EINVAL);
    }
    if (offset >> 12).checked_add(length.div_ceil(4096)).is_none_or(|end| end > 1 << 52) {
        return Err(Errno::EOVERFLOW);
    }
    let placement = if flags & MAP_FIXED_NOREPLACE != 0 {
        Placement::FixedNoReplace(address)
    } else if flags & MAP_FIXED != 0 {
        Placement::Fixed(address)
    } else if flags & MAP_32BIT != 0 {
        Placement::Low
    } else {
        Placement::Hint(address)
    };
    let backing = if flags & MAP_ANONYMOUS != 0 {
        MapBacking::Anonymous
    } else {
        check_reach(offset, length)?;
        context.process.files.mapping(descriptor, offset, is_shared, protection(prot).contains(Protection::WRITE))?
    };
    let mut area_flags = AreaFlags::empty();
    area_flags.set(AreaFlags::GROWS_DOWN, flags & MAP_GROWSDOWN != 0);
    area_flags.set(AreaFlags::NO_RESERVE, flags & MAP_NORESERVE != 0);
    area_flags.set(AreaFlags::LOCKED, flags & MAP_LOCKED != 0);
    let mapped = context.process.space().lock().map(MapRequest {
        placement,
        length,
        protection: protection(prot),
        is_shared,
        flags: area_flags,
        populate: flags & MAP_POPULATE != 0 && flags & MAP_NONBLOCK == 0,
        backing,
        label: AreaLabel::None,
    })?;
    if protection(prot).contains(Protection::EXECUTE) {
        profile::tell(context.system, &context.process.space(), mapped, mapped.saturating_add(length));
    }
    Ok(mapped)
}

/// Files end at the largest offset. `EOVERFLOW`.
fn check_reach(offset: u64, length: u64) -> Result<()> {
    let end = offset.checked_add(length.next_multiple_of(4096));
    if end.is_some_and(|end| end <= i64::MAX as u64) { Ok(()) } else { Err(Errno::EOVERFLOW) }
}

/// `munmap(2)`.
pub fn munmap(context: &mut Context<'_>, [address, length, ..]: Arguments) -> Result<u64> {
    context.process.space().unmap(address, length)?;
    Ok(0)
}

/// `mprotect(2)`.
pub fn mprotect(context: &mut Context<'_>, [address, length, prot, ..]: Arguments) -> Result<u64> {
    protect(context.process, [address, length, prot])
}

/// `mprotect`, which never waits.
pub(crate) fn protect(process: &Process, [address, length, prot]: [u64; 3]) -> Result<u64> {
    if prot & !(7 | PROT_SEM | PROT_GROWSDOWN | PROT_GROWSUP) != 0 || prot & PROT_GROWSUP != 0 {
        return Err(Errno::EINVAL);
    }
    let reach = if prot & PROT_GROWSDOWN != 0 { ProtectReach::GrowsDown } else { ProtectReach::Range };
    process.space().lock().protect(address, length, protection(prot), reach)?;
    Ok(0)
}

/// `pkey_alloc(2)`: there are no protection keys, and this is what Linux says on processors without them: the first
/// time `EINVAL`, afterwards `ENOSPC`.
pub fn pkey_alloc(context: &mut Context<'_>, [flags, rights, ..]: Arguments) -> Result<u64> {
    const RIGHTS: u64 = 3;
    if flags != 0 || rights & !RIGHTS != 0 {
        return Err(Errno::EINVAL);
    }
    let was_asked = context.process.was_key_asked.swap(true, Ordering::Relaxed);
    Err(if was_asked { Errno::ENOSPC } else { Errno::EINVAL })
}

/// `pkey_free(2)`.
pub fn pkey_free(_: &mut Context<'_>, _: Arguments) -> Result<u64> {
    Err(Errno::EINVAL)
}

/// `pkey_mprotect(2)`: without a key as `mprotect`.
pub fn pkey_mprotect(context: &mut Context<'_>, [address, length, prot, key, ..]: Arguments) -> Result<u64> {
    let is_empty = address.is_multiple_of(4096) && length == 0;
    if key as u32 as i32 != -1 && !is_empty {
        return Err(Errno::EINVAL);
    }
    mprotect(context, [address, length, prot, 0, 0, 0])
}

/// `mremap(2)`.
pub fn mremap(
    context: &mut Context<'_>,
    [address, old_length, new_length, flags, new_address, _]: Arguments,
) -> Result<u64> {
    if flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 {
        return Err(Errno::EINVAL);
    }
    let movement = match flags & (MREMAP_MAYMOVE | MREMAP_FIXED) {
        0 => Movement::Never,
        MREMAP_MAYMOVE => Movement::Anywhere,
        MREMAP_FIXED => return Err(Errno::EINVAL),
        _ => Movement::To(new_address),
    };
    context.process.space().lock().remap(RemapRequest {
        address,
        old_length,
        new_length,
        movement,
        keeps_old: flags & MREMAP_DONTUNMAP != 0,
    })
}

/// `brk(2)`.
pub fn brk(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    Ok(context.process.space().lock().set_break(address))
}

/// `madvise(2)`.
pub fn madvise(context: &mut Context<'_>, [address, length, advice, ..]: Arguments) -> Result<u64> {
    let advice = match advice {
        0..=3 | 12 | 13 | 16 | 17 | 25 => Advice::Hint,
        20 | 21 => Advice::LeaveEarly,
        14 => Advice::Large,
        15 => Advice::NoLarge,
        4 => Advice::DontNeed,
        8 => Advice::Free,
        9 => Advice::Remove,
        10 => Advice::DontFork,
        11 => Advice::DoFork,
        18 => Advice::WipeOnFork,
        19 => Advice::KeepOnFork,
        22 => Advice::PopulateRead,
        23 => Advice::PopulateWrite,
        24 => Advice::DontNeedLocked,
        _ => return Err(Errno::EINVAL),
    };
    if advice == Advice::Remove {
        return remove_pages(context, address, length);
    }
    context.process.space().lock().advise(address, length, advice)?;
    Ok(0)
}

/// `MADV_REMOVE`: other processes that map the file lose the pages too.
fn remove_pages(context: &Context<'_>, address: u64, length: u64) -> Result<u64> {
    let memory = context.process.space();
    let shown = memory.lock().file_pages(address);
    memory.lock().advise(address, length, Advice::Remove)?;
    if let Some((file, first_index)) = shown {
        let end = first_index.saturating_add(length.div_ceil(4096));
        drop_from_all(context.system, file, &(first_index..end), true);
    }
    Ok(0)
}

/// `msync(2)`.
pub fn msync(context: &mut Context<'_>, [address, length, flags, ..]: Arguments) -> Result<u64> {
    if flags & !(MS_ASYNC | MS_INVALIDATE | MS_SYNC) != 0 || flags & (MS_ASYNC | MS_SYNC) == MS_ASYNC | MS_SYNC {
        return Err(Errno::EINVAL);
    }
    let mode = if flags & MS_SYNC != 0 { SyncMode::Now } else { SyncMode::Later };
    if address % 4096 == 0 && length > u64::MAX - 4095 {
        // Rounded up to pages it is nothing.
        return Ok(0);
    }
    context.process.space().lock().sync(address, length, mode, flags & MS_INVALIDATE != 0)?;
    Ok(0)
}

/// `mincore(2)`.
pub fn mincore(context: &mut Context<'_>, [address, length, vector, ..]: Arguments) -> Result<u64> {
    // A range may be as long as all of a program's memory, of which none has to be there.
    const STEP_BYTES: u64 = 64 << 20;
    let mut done = 0;
    loop {
        let start = address.checked_add(done).ok_or(Errno::ENOMEM)?;
        let step = (length - done).min(STEP_BYTES);
        let resident = context.process.space().lock().resident(start, step)?;
        write_all(context.memory, vector.wrapping_add(done / 4096), &resident)?;
        done += step;
        if done == length {
            return Ok(0);
        }
        preempt::unless_killed()?;
    }
}

/// `mlock(2)`.
pub fn mlock(context: &mut Context<'_>, [address, length, ..]: Arguments) -> Result<u64> {
    context.process.space().lock().lock(address, length, false)?;
    Ok(0)
}

/// `mlock2(2)`.
pub fn mlock2(context: &mut Context<'_>, [address, length, flags, ..]: Arguments) -> Result<u64> {
    if flags & !MLOCK_ONFAULT != 0 {
        return Err(Errno::EINVAL);
    }
    context.process.space().lock().lock(address, length, flags & MLOCK_ONFAULT != 0)?;
    Ok(0)
}

/// `munlock(2)`.
pub fn munlock(context: &mut Context<'_>, [address, length, ..]: Arguments) -> Result<u64> {
    context.process.space().lock().unlock(address, length)?;
    Ok(0)
}

/// `mlockall(2)`.
pub fn mlockall(context: &mut Context<'_>, [flags, ..]: Arguments) -> Result<u64> {
    if flags == 0 || flags == MCL_ONFAULT || flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 {
        return Err(Errno::EINVAL);
    }
    let may_exceed = context.can(Capability::IPC_LOCK);
    let memory = context.process.space();
    let mut space = memory.lock();
    space.lock_all(flags & MCL_CURRENT != 0, flags & MCL_FUTURE != 0, flags & MCL_ONFAULT != 0, may_exceed)?;
    Ok(0)
}

/// `munlockall(2)`.
pub fn munlockall(context: &mut Context<'_>, _: Arguments) -> Result<u64> {
    context.process.space().lock().unlock_all()?;
    Ok(0)
}
