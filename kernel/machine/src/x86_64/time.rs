//! Time: the time-stamp counter's scale, the clock, and the one-shot timer.
//!
//! The counter's frequency comes from KVM's clock page where there is one, else from the local APIC's timer, which
//! counts nanoseconds in every QEMU machine, emulated or not. The measurement runs while the boot goes on and takes
//! half a millisecond in all.
#![allow(unsafe_code, reason = "a page that the monitor writes")]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::instructions::{cpuid, read_tsc, write_msr};
use super::local_apic;
use crate::IMAGE_BASE;
use crate::clock::{self, ClockSample, ClockScale};

/// Shortest measurement.
const CALIBRATION_NS: u64 = 500_000;
/// Readings of which the one with the least time between is taken.
const READING_COUNT: usize = 8;

static BASE_TSC: AtomicU64 = AtomicU64::new(0);
static MULTIPLIER: AtomicU64 = AtomicU64::new(0);
static SHIFT: AtomicU32 = AtomicU32::new(0);

/// A measurement that has begun, or its result.
#[derive(Debug)]
pub(crate) enum Calibration {
    Known(u64),
    Measuring(ClockSample),
}

/// Begins to measure the counter's frequency.
pub(crate) fn start_calibration() -> Calibration {
    if let Some(hz) = kvm_tsc_hz() {
        return Calibration::Known(hz);
    }
    local_apic::start_free_running();
    Calibration::Measuring(sample())
}

/// Ends the measurement and starts the clock, whose zero is `base_tsc`.
pub(crate) fn finish_calibration(calibration: Calibration, base_tsc: u64) -> ClockScale {
    let hz = match calibration {
        Calibration::Known(hz) => hz,
        Calibration::Measuring(start) => loop {
            let end = sample();
            if end.reference_ns - start.reference_ns >= CALIBRATION_NS {
                let counts_ns = monitor_signature() == *b"TCGTCGTCGTCG";
                break clock::tsc_hz(start, end, counts_ns).unwrap_or(clock::NS_PER_SECOND);
            }
        },
    };
    local_apic::stop_timer();
    local_apic::initialize();
    let scale = ClockScale::new(hz, base_tsc);
    BASE_TSC.store(scale.base_tsc, Ordering::Relaxed);
    MULTIPLIER.store(scale.multiplier, Ordering::Relaxed);
    SHIFT.store(scale.shift, Ordering::Relaxed);
    scale
}

#[inline(never)]
fn sample() -> ClockSample {
    let mut best = ClockSample { tsc: 0, reference_ns: 0 };
    let mut best_ticks = u64::MAX;
    // One copy of the loop's body: an emulator takes its time to translate code that it sees for the first time, and
    // a reading in such code says nothing.
    for _ in 0..core::hint::black_box(READING_COUNT) {
        let before = read_tsc();
        let left = local_apic::timer_current();
        let ticks = read_tsc().saturating_sub(before);
        if ticks < best_ticks {
            best_ticks = ticks;
            best = ClockSample { tsc: before + ticks / 2, reference_ns: u64::from(u32::MAX - left) };
        }
    }
    best
}

/// The name of the monitor that runs this virtual machine (CPUID 0x4000_0000).
fn monitor_signature() -> [u8; 12] {
    let mut signature = [0; 12];
    if cpuid(1, 0).ecx >> 31 & 1 == 1 {
        let leaf = cpuid(0x4000_0000, 0);
        for (bytes, register) in signature.chunks_exact_mut(4).zip([leaf.ebx, leaf.ecx, leaf.edx]) {
            bytes.copy_from_slice(&register.to_le_bytes());
        }
    }
    signature
}

/// The frequency that KVM's clock page implies (Linux, Documentation/virt/kvm/x86/msr.rst, MSR_KVM_SYSTEM_TIME_NEW).
fn kvm_tsc_hz() -> Option<u64> {
    const CLOCK_NEW: u32 = 1 << 3;
    const SYSTEM_TIME_NEW: u32 = 0x4b56_4d01;
    #[repr(C, align(64))]
    struct ClockPage(UnsafeCell<[u32; 8]>);
    // SAFETY: only the boot processor reads it, volatile, after the monitor wrote it.
    unsafe impl Sync for ClockPage {}
    static PAGE: ClockPage = ClockPage(UnsafeCell::new([0; 8]));

    if monitor_signature() != *b"KVMKVMKVM\0\0\0" || cpuid(0x4000_0001, 0).eax & CLOCK_NEW == 0 {
        return None;
    }
    let physical = PAGE.0.get() as u64 - IMAGE_BASE;
    // SAFETY: the monitor writes 32 bytes of a page that nothing else uses, until the second write.
    let words = unsafe {
        write_msr(SYSTEM_TIME_NEW, physical | 1);
        let words = PAGE.0.get().read_volatile();
        write_msr(SYSTEM_TIME_NEW, 0);
        words
    };
    let shift = (words[7] & 0xff) as u8 as i8;
    clock::tsc_hz_of_scale(words[6], shift)
}

/// Nanoseconds since the kernel's first instruction.
#[must_use]
pub fn now_ns() -> u64 {
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let (base_tsc, multiplier, shift) = (load(&BASE_TSC), load(&MULTIPLIER), SHIFT.load(Ordering::Relaxed));
    ClockScale { base_tsc, base_ns: 0, multiplier, shift, tsc_hz: 0 }.ns_at(read_tsc())
}

/// Interrupts this processor with [`VECTOR_TIMER`](super::VECTOR_TIMER) after `ns`, replacing an earlier request.
///
/// A wait beyond 4.2 s ends early; the kernel looks at the clock and asks again.
pub fn timer_set_ns(ns: u64) {
    local_apic::start_timer(ns.clamp(1, u64::from(u32::MAX)) as u32);
}

/// Takes back [`timer_set_ns`].
pub fn timer_stop() {
    local_apic::stop_timer();
}
