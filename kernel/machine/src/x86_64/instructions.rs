//! Single instructions as functions, and the processor features that are turned on at start.
//!
//! Sources: Intel SDM vol. 2 (instructions), vol. 3, 2.5 (control registers), 2.6 (XCR0), vol. 4 (model-specific
//! registers).
#![allow(unsafe_code, reason = "privileged instructions exist in assembly only")]

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::sync::atomic::{AtomicBool, Ordering};

const EFER: u32 = 0xc000_0080;
const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const SYSCALL_FLAG_MASK: u32 = 0xc000_0084;
const FS_BASE: u32 = 0xc000_0100;
const GS_BASE: u32 = 0xc000_0101;
const KERNEL_GS_BASE: u32 = 0xc000_0102;
const PAT: u32 = 0x277;

/// Entries 0..=7: write-back, write-combining, uncached-, uncached, then write-back, write-protected, uncached-,
/// write-through.
///
/// As Linux has it: PWT alone selects write-combining, PCD with PWT selects uncached.
const PAT_VALUE: u64 = 0x0407_0506_0007_0106;

/// Processor features that change what the machine does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) large_gib_pages: bool,
    pub(crate) smap: bool,
    pub(crate) fsgsbase: bool,
    pub(crate) protection_keys: bool,
    pub(crate) xsaveopt: bool,
}

/// Looks at a word that another processor will change, of which one says so to the processor (PAUSE).
const LOOKS_PER_PAUSE: u32 = 64;

/// What is done between two looks at such a word; `looks` counts them. PAUSE on each would be dear in a virtual
/// machine: some monitors give the processor away for it, and QEMU's translator leaves the translated code and takes a
/// lock that the other processor needs, too. On none, one that emulates its processors in turn would never get to the
/// other.
pub(crate) fn look_again(looks: &mut u32) {
    *looks = looks.wrapping_add(1);
    let _ = looks.is_multiple_of(LOOKS_PER_PAUSE).then(core::hint::spin_loop);
}

/// Answer of CPUID.
pub(crate) fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    __cpuid_count(leaf, subleaf)
}

/// Reads a model-specific register that the caller knows to exist.
pub(crate) fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading a register that exists has no effect on memory; one that does not exist panics by #GP.
    unsafe { asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The value must keep what the rest of the kernel relies on: mappings, entry points, the processor's GS base.
pub(crate) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller vouches for the value.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack));
    }
}

/// Stores a byte to a port.
///
/// # Safety
/// The device at the port must not be made to change memory that Rust owns.
pub(crate) unsafe fn out8(port: u16, value: u8) {
    // SAFETY: the caller vouches for the device.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

/// Loads a byte from a port.
///
/// # Safety
/// As for [`out8`].
pub(crate) unsafe fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: the caller vouches for the device.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Stores a half word to a port.
///
/// # Safety
/// As for [`out8`].
pub(crate) unsafe fn out16(port: u16, value: u16) {
    // SAFETY: the caller vouches for the device.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags)) };
}

/// Loads a half word from a port.
///
/// # Safety
/// As for [`out8`].
pub(crate) unsafe fn in16(port: u16) -> u16 {
    let value: u16;
    // SAFETY: the caller vouches for the device.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Stores a word to a port.
///
/// # Safety
/// As for [`out8`].
pub(crate) unsafe fn out32(port: u16, value: u32) {
    // SAFETY: the caller vouches for the device.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) };
}

/// Loads a word from a port.
///
/// # Safety
/// As for [`out8`].
pub(crate) unsafe fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: the caller vouches for the device.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The time-stamp counter.
#[must_use]
pub fn read_tsc() -> u64 {
    // SAFETY: no memory effect; CR4.TSD stays clear.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Loads from a memory-mapped register.
///
/// # Safety
/// `address` must be a mapped device register.
pub(crate) unsafe fn mmio_read(address: u64) -> u32 {
    // SAFETY: the caller vouches for the address.
    unsafe { core::ptr::with_exposed_provenance::<u32>(address as usize).read_volatile() }
}

/// Stores to a memory-mapped register.
///
/// # Safety
/// As for [`mmio_read`]; the device must not be made to change memory that Rust owns.
pub(crate) unsafe fn mmio_write(address: u64, value: u32) {
    // SAFETY: the caller vouches for the address and the device.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(address as usize).write_volatile(value) }
}

/// The address of the last page fault.
pub(crate) fn read_cr2() -> u64 {
    let value: u64;
    // SAFETY: a plain register read.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The page-table root with its flags.
pub(crate) fn read_cr3() -> u64 {
    let value: u64;
    // SAFETY: a plain register read.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Loads the page-table root, dropping all translations that are not global.
///
/// # Safety
/// The root must map the kernel as the final tables do.
pub(crate) unsafe fn write_cr3(value: u64) {
    // SAFETY: the caller vouches for the tables.
    unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Drops the translation of one page.
pub(crate) fn invalidate_page(address: u64) {
    // SAFETY: forgetting a translation changes no memory; the next access walks the tables.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Stops this processor for ever.
pub(crate) fn halt_forever() -> ! {
    loop {
        // SAFETY: with interrupts off, `hlt` only waits (for an NMI at most).
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Turns on what the processor offers: protection, vector instructions, `syscall`, the page attribute table.
pub(crate) fn enable_features() -> Features {
    const CR0_SET: u64 = 1 << 1 | 1 << 5 | 1 << 16 | 1 << 18; // MP, NE, WP, AM
    const CR0_CLEAR: u64 = 1 << 2 | 1 << 3 | 1 << 29 | 1 << 30; // EM, TS, NW, CD
    // PAE, MCE, PGE, OSFXSR, OSXMMEXCPT, OSXSAVE
    const CR4_ALWAYS: u64 = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 9 | 1 << 10 | 1 << 18;
    let basic = cpuid(1, 0);
    let extended = cpuid(7, 0);
    let amd = cpuid(0x8000_0001, 0);
    assert!(basic.ecx >> 26 & 1 == 1, "the processor has no XSAVE; use -cpu max");
    assert!(amd.edx >> 20 & 1 == 1 && amd.edx >> 11 & 1 == 1, "the processor has no NX or no SYSCALL; use -cpu max");
    let features = Features {
        large_gib_pages: amd.edx >> 26 & 1 == 1,
        smap: extended.ebx >> 20 & 1 == 1,
        fsgsbase: extended.ebx & 1 == 1,
        protection_keys: extended.ecx >> 3 & 1 == 1,
        xsaveopt: cpuid(0xd, 1).eax & 1 == 1,
    };
    let mut cr4 = CR4_ALWAYS;
    cr4 |= u64::from(extended.ecx >> 2 & 1) << 11; // UMIP
    cr4 |= u64::from(features.fsgsbase) << 16;
    cr4 |= u64::from(extended.ebx >> 7 & 1) << 20; // SMEP
    cr4 |= u64::from(features.smap) << 21;
    cr4 |= u64::from(features.protection_keys) << 22;
    // SAFETY: every bit is offered by CPUID; the boot tables map the kernel as supervisor pages, so WP, SMEP and SMAP
    // change nothing for it.
    unsafe {
        asm!("mov {t}, cr0", "or {t}, {set}", "and {t}, {keep}", "mov cr0, {t}",
             t = out(reg) _, set = in(reg) CR0_SET, keep = in(reg) !CR0_CLEAR, options(nostack));
        asm!("mov cr4, {}", in(reg) cr4, options(nostack));
        write_msr(PAT, PAT_VALUE);
        write_msr(EFER, read_msr(EFER) | 1 | 1 << 11); // SCE, NXE
    }
    HAS_BASE_INSTRUCTIONS.store(features.fsgsbase, Ordering::Relaxed);
    features
}

/// Points `syscall` at `entry`, with the selectors of [`crate::descriptor`].
///
/// # Safety
/// `entry` must be the kernel's system-call entry.
pub(crate) unsafe fn set_syscall_entry(entry: u64) {
    use crate::descriptor::{KERNEL_CODE, SYSRET_BASE};
    /// CF to OF without the reserved bits, IOPL, NT, RF, AC, ID: everything that a program can set.
    const CLEARED: u64 = 0x0025_7fd5;
    // SAFETY: the caller vouches for the entry; the selectors are those of the loaded table.
    unsafe {
        write_msr(STAR, u64::from(SYSRET_BASE) << 48 | u64::from(KERNEL_CODE) << 32);
        write_msr(LSTAR, entry);
        write_msr(SYSCALL_FLAG_MASK, CLEARED);
    }
}

/// Sets the GS base of ring 0 to the processor's state and that of ring 3 to 0.
///
/// # Safety
/// `address` must be this processor's state.
pub(crate) unsafe fn set_kernel_gs(address: u64) {
    // SAFETY: the caller vouches for the address.
    unsafe {
        write_msr(GS_BASE, address);
        write_msr(KERNEL_GS_BASE, 0);
    }
}

/// The FS and GS bases of user mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserBases {
    /// FS base: a program's thread pointer.
    pub fs: u64,
    /// GS base: the library OS's control page, unless the program took it.
    pub gs: u64,
}

/// Whether the bases are reached by instructions of their own. Set before user mode runs.
static HAS_BASE_INSTRUCTIONS: AtomicBool = AtomicBool::new(false);

/// The bases as user mode has them now; it can change them without the kernel.
#[must_use]
#[inline]
pub fn user_bases() -> UserBases {
    if !HAS_BASE_INSTRUCTIONS.load(Ordering::Relaxed) {
        return UserBases { fs: read_msr(FS_BASE), gs: read_msr(KERNEL_GS_BASE) };
    }
    let (fs, gs);
    // SAFETY: CR4.FSGSBASE is set; between the two exchanges nothing is addressed by GS, interrupts are off, and an NMI
    // finds its processor by its stack.
    unsafe {
        asm!("rdfsbase {fs}", "swapgs", "rdgsbase {gs}", "swapgs",
             fs = out(reg) fs, gs = out(reg) gs, options(nomem, nostack, preserves_flags));
    }
    UserBases { fs, gs }
}

/// Loads the bases where they are others than `loaded`, which are there; one that is not canonical is loaded as 0,
/// because hardware refuses it.
#[inline]
pub fn set_user_bases(bases: UserBases, loaded: UserBases) {
    let canonical = |address: u64| {
        if address as i64 >> 47 == (address as i64 >> 63) { address } else { 0 }
    };
    let has_instructions = HAS_BASE_INSTRUCTIONS.load(Ordering::Relaxed);
    // SAFETY: ring 0 uses neither FS nor the inactive GS base; the values are canonical, so no fault; else as above.
    unsafe {
        if bases.fs != loaded.fs {
            let fs = canonical(bases.fs);
            match has_instructions {
                true => asm!("wrfsbase {}", in(reg) fs, options(nomem, nostack, preserves_flags)),
                false => write_msr(FS_BASE, fs),
            }
        }
        if bases.gs != loaded.gs {
            let gs = canonical(bases.gs);
            match has_instructions {
                true => {
                    asm!("swapgs", "wrgsbase {}", "swapgs", in(reg) gs, options(nomem, nostack, preserves_flags));
                }
                false => write_msr(KERNEL_GS_BASE, gs),
            }
        }
    }
}
