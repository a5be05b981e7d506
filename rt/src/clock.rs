//! Time without a kernel call: the system page's formula over the time-stamp counter.
#![allow(unsafe_code, reason = "reads the system page that the kernel maps, and the time-stamp counter")]

use aegis_abi::boot::SystemPage;
use aegis_abi::layout::SYSTEM_PAGE_BASE;

/// The system page of an environment that the kernel's loader or its creator set up.
///
/// # Safety
/// The page must be mapped at [`SYSTEM_PAGE_BASE`].
#[must_use]
pub unsafe fn system_page() -> &'static SystemPage {
    // SAFETY: mapped by contract; the kernel wrote it before any environment ran and never changes it.
    unsafe { &*(SYSTEM_PAGE_BASE as *const SystemPage) }
}

/// Nanoseconds since the kernel's start at time-stamp `tsc`.
#[must_use]
pub fn nanoseconds_at(page: &SystemPage, tsc: u64) -> u64 {
    let elapsed = u128::from(tsc.wrapping_sub(page.clock_base_tsc));
    let scaled = (elapsed * u128::from(page.clock_multiplier)) >> page.clock_shift;
    page.clock_base_ns.wrapping_add(scaled as u64)
}

/// As [`nanoseconds_at`], for callers that ask often: the shift is less than 64, as the kernel takes it itself.
#[must_use]
#[inline(always)]
pub fn nanoseconds_soon_at(page: &SystemPage, tsc: u64) -> u64 {
    let elapsed = u128::from(tsc.wrapping_sub(page.clock_base_tsc));
    let scaled = (elapsed * u128::from(page.clock_multiplier)) >> (page.clock_shift % 64);
    page.clock_base_ns.wrapping_add(scaled as u64)
}

/// The time-stamp counter.
#[must_use]
pub fn time_stamp() -> u64 {
    // SAFETY: available in user mode; the kernel leaves CR4.TSD clear.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::{SystemPage, nanoseconds_at, nanoseconds_soon_at};

    #[test]
    fn the_formula_keeps_precision_for_years() {
        let page = SystemPage {
            clock_base_ns: 5,
            clock_base_tsc: 1000,
            clock_multiplier: 1 << 31,
            clock_shift: 32,
            ..SystemPage::default()
        };
        for at in [nanoseconds_at, nanoseconds_soon_at] {
            assert_eq!(at(&page, 1000), 5);
            assert_eq!(at(&page, 1000 + (1 << 62)), 5 + (1 << 61));
        }
    }
}
