//! Waiting for others: by giving the processor up, with a limit far above what any case needs.

use aegis_abi::sleep::{Term, TermOperator, TermSource};
use aegis_abi::types::SLOT_NONE;
use aegis_rt::{call, clock};

/// How long, and how many turns, a case waits before it fails. Only a failing case gets near both: on a host that is
/// busy with others a long time passes in few turns.
const LIMIT_NS: u64 = 20_000_000_000;
const LIMIT_TURNS: u64 = 5_000;

/// Nanoseconds since the kernel's start.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the kernel maps the system page in every environment.
    let page = unsafe { clock::system_page() };
    clock::nanoseconds_at(page, clock::time_stamp())
}

/// The slice length.
pub(crate) fn slice_ns() -> u64 {
    // SAFETY: as above.
    unsafe { clock::system_page() }.slice_ns
}

/// Yields until the condition holds; false if the limit came first.
pub(crate) fn until(mut condition: impl FnMut() -> bool) -> bool {
    let (limit, mut turns) = (now_ns() + LIMIT_NS, 0);
    while !condition() {
        turns += 1;
        if turns > LIMIT_TURNS && now_ns() > limit {
            return false;
        }
        let _ = call::yield_to(SLOT_NONE);
    }
    true
}

/// A term that holds from a time on.
pub(crate) fn clock_term(product: u32, deadline_ns: u64) -> Term {
    Term {
        product,
        source: TermSource::Clock as u32,
        operator: TermOperator::AtLeast as u32,
        slot: 0,
        address: 0,
        value: deadline_ns,
    }
}

/// Sleeps for a time.
pub(crate) fn pause(duration_ns: u64) {
    let deadline = now_ns() + duration_ns;
    while now_ns() < deadline {
        let _ = call::sleep(&[clock_term(0, deadline)]);
    }
}

/// Sleeps for ever: where child and thread functions end.
pub(crate) fn forever() -> ! {
    loop {
        let _ = call::sleep(&[clock_term(0, u64::MAX)]);
        // Something is pending that nobody asked for.
        let _ = aegis_rt::control::take_pending();
    }
}
