//! This virtual processor's control page, reached through GS.
//!
//! A library OS keeps what it must find at every entry in the page's `library` words: they are its processor-local
//! storage.
#![allow(unsafe_code, reason = "GS-relative access is the only way to the control page that needs no free register")]

use aegis_abi::upcall::{ControlPage, UpcallKind};
use core::mem::offset_of;

/// Defines a reader of a 64-bit control page field.
macro_rules! field {
    ($(#[$doc:meta])* $name:ident, $field:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name() -> u64 {
            let value: u64;
            // SAFETY: GS base is the control page, which stays mapped for the processor's life.
            unsafe {
                core::arch::asm!("mov {}, gs:[{}]", out(reg) value, const offset_of!(ControlPage, $field),
                    options(nostack, readonly, preserves_flags));
            }
            value
        }
    };
}

field!(/// The page's own address.
    control_address, control_address);
field!(/// One past the save area.
    save_area_top, save_area_top);
field!(/// The save area's first byte.
    save_area_base, save_area_base);
field!(/// Time that it lost to others.
    preempted_ns, preempted_ns);
field!(/// Frames that the creator asks for.
    revocation_frame_count, revocation_frame_count);
field!(/// Frames taken by force so far.
    repossessed_count, repossessed_count);

/// Most words of the library OS's own.
const LIBRARY_WORD_COUNT: usize = 64;

/// Word `INDEX` of the library OS's own words.
#[must_use]
#[inline(always)]
pub fn library_word<const INDEX: usize>() -> u64 {
    const { assert!(INDEX < LIBRARY_WORD_COUNT) };
    let value: u64;
    // SAFETY: inside the control page.
    unsafe {
        core::arch::asm!("mov {}, gs:[{}]", out(reg) value, const offset_of!(ControlPage, library) + 8 * INDEX,
            options(nostack, readonly, preserves_flags));
    }
    value
}

/// Sets word `INDEX` of the library OS's own words.
#[inline(always)]
pub fn set_library_word<const INDEX: usize>(value: u64) {
    const { assert!(INDEX < LIBRARY_WORD_COUNT) };
    // SAFETY: inside the control page, in the part that is the library OS's own.
    unsafe {
        core::arch::asm!("mov gs:[{}], {}", const offset_of!(ControlPage, library) + 8 * INDEX, in(reg) value,
            options(nostack, preserves_flags));
    }
}

/// Sets the entry point of `kind`; 0 for none.
pub fn set_entry(kind: UpcallKind, address: u64) {
    // SAFETY: inside the control page; the kernel checks the address at each delivery.
    unsafe {
        core::arch::asm!("mov gs:[{} + {}*8], {}",
            const offset_of!(ControlPage, entries), in(reg) kind as u64, in(reg) address,
            options(nostack, preserves_flags));
    }
}

/// Holds asynchronous upcalls back (true) or lets them come.
pub fn set_masked(masked: bool) {
    // SAFETY: inside the control page.
    unsafe {
        core::arch::asm!("mov dword ptr gs:[{}], {:e}",
            const offset_of!(ControlPage, masked), in(reg) u32::from(masked),
            options(nostack, preserves_flags));
    }
}

/// Whether some kind was held back.
#[inline]
pub fn has_pending() -> bool {
    let bits: u32;
    // SAFETY: inside the control page.
    unsafe {
        core::arch::asm!("mov {:e}, dword ptr gs:[{}]", out(reg) bits, const offset_of!(ControlPage, pending),
            options(nostack, preserves_flags));
    }
    bits != 0
}

/// Takes the kinds that were held back: bit n stands for kind n.
pub fn take_pending() -> u32 {
    let bits: u32;
    // SAFETY: inside the control page; exchange with memory is atomic against the kernel's setting of bits.
    unsafe {
        core::arch::asm!("xchg dword ptr gs:[{}], {:e}",
            const offset_of!(ControlPage, pending), inlateout(reg) 0_u32 => bits,
            options(nostack, preserves_flags));
    }
    bits
}
