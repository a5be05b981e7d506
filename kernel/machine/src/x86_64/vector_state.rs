//! Vector and floating-point state of contexts: saved to and restored from a frame, in the standard XSAVE layout.
//!
//! The kernel is soft-float code and never touches these registers, so they stay loaded across kernel entries and
//! move only when the kernel gives the processor to another context. What XCR0 enables is limited so that the area
//! fits one frame.
#![allow(unsafe_code, reason = "vector state instructions")]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aegis_abi::FrameNumber;
use aegis_abi::layout::PAGE_SIZE;

use super::instructions::{Features, cpuid};
use super::memory;
use super::processor::ContextPlaces;

const X87_SSE: u64 = 0b11;
const AVX: u64 = 1 << 2;
const AVX_512: u64 = 0b111 << 5;
const PROTECTION_KEYS: u64 = 1 << 9;
/// Word of the area whose low half is MXCSR.
const MXCSR_WORD: usize = 3;
/// All exceptions masked: the state after reset and at the start of a Linux program.
const MXCSR_INITIAL: u64 = 0x1f80;
/// Word of the area that holds the x87 control word; FCW as after FINIT.
const FCW_INITIAL: u64 = 0x37f;

/// Half of the mask that names every component; the processor takes those of them that are enabled.
const ALL: u32 = u32::MAX;

static MASK: AtomicU64 = AtomicU64::new(0);
static OPTIMISED: AtomicBool = AtomicBool::new(false);

/// Chooses what is saved and enables it on the boot processor.
pub(crate) fn initialize(features: Features) {
    let leaf = cpuid(0xd, 0);
    let offered = u64::from(leaf.edx) << 32 | u64::from(leaf.eax);
    let mut mask = X87_SSE;
    for candidate in [AVX, AVX_512, if features.protection_keys { PROTECTION_KEYS } else { 0 }] {
        let needs_avx = candidate == AVX_512 && mask & AVX == 0;
        if candidate != 0 && offered & candidate == candidate && !needs_avx {
            enable(mask | candidate);
            // CPUID 0xd.0 EBX: bytes for what XCR0 enables now.
            if u64::from(cpuid(0xd, 0).ebx) <= PAGE_SIZE {
                mask |= candidate;
            }
        }
    }
    MASK.store(mask, Ordering::Relaxed);
    apply(features);
}

/// Enables on this processor what [`initialize`] chose.
pub(crate) fn apply(features: Features) {
    OPTIMISED.store(features.xsaveopt, Ordering::Relaxed);
    enable(MASK.load(Ordering::Relaxed));
    // SAFETY: resets registers that the kernel does not use.
    unsafe { asm!("fninit", options(nomem, nostack)) };
}

fn enable(mask: u64) {
    // SAFETY: the mask is a subset of what CPUID offers, with x87 set and AVX-512 only with AVX.
    unsafe {
        asm!("xsetbv", in("ecx") 0, in("eax") mask as u32, in("edx") (mask >> 32) as u32, options(nomem, nostack));
    }
}

/// XCR0: the state components that are saved.
#[must_use]
pub fn vector_state_mask() -> u64 {
    MASK.load(Ordering::Relaxed)
}

/// Saves this processor's vector state to a context's frame, which [`vector_initialize`] prepared.
#[inline]
pub fn vector_save(places: &ContextPlaces) {
    let area = places.vector_state;
    // SAFETY: the area is a whole frame of memory, page-aligned, and the enabled components fit it. Without a context
    // it is page 0, where nobody may map anything.
    unsafe {
        if OPTIMISED.load(Ordering::Relaxed) {
            asm!("xsaveopt64 [{}]", in(reg) area, in("eax") ALL, in("edx") ALL, options(nostack));
        } else {
            asm!("xsave64 [{}]", in(reg) area, in("eax") ALL, in("edx") ALL, options(nostack));
        }
    }
}

/// Loads a context's vector state. If the frame held no valid state, that would be a fault of the kernel.
#[inline]
pub fn vector_restore(places: &ContextPlaces) {
    // SAFETY: the area is a whole frame of memory.
    unsafe { asm!("xrstor64 [{}]", in(reg) places.vector_state, in("eax") ALL, in("edx") ALL, options(nostack)) };
}

/// Makes a frame hold the initial state: what a program starts with.
pub fn vector_initialize(frame: FrameNumber) {
    memory::physical_zero(frame);
    memory::physical_store_words(frame, 0, [FCW_INITIAL]);
    memory::physical_store_words(frame, MXCSR_WORD, [MXCSR_INITIAL]);
}
