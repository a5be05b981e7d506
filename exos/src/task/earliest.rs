//! One clock for many: the earliest of the times that processors want something to ring.
//!
//! A processor that wants it earlier than it is says so and sets the clock. Two that do so at once may set it in the
//! other order than they said it, and the later time would stand, for ever if it is far. So a processor that has set
//! the clock looks whether it is wanted earlier by now, and sets it again. The last one that set it has then seen that
//! none wants it earlier, or another that does has said so since, and comes after it.
//!
//! Neighbour: `exos/linux/src/glue/processor.rs`, whose clocks are the kernel's bells.

use core::sync::atomic::{AtomicU64, Ordering};

/// No time.
pub const NEVER: u64 = u64::MAX;

/// Has a clock ring at `wanted`, unless it will ring before: `earliest` is when it will, `set` sets it.
#[inline]
pub fn arm(earliest: &AtomicU64, wanted: u64, set: impl Fn(u64)) {
    if earliest.fetch_min(wanted, Ordering::AcqRel) > wanted {
        set_earliest(earliest, wanted, set);
    }
}

fn set_earliest(earliest: &AtomicU64, mut wanted: u64, set: impl Fn(u64)) {
    loop {
        set(wanted);
        match earliest.load(Ordering::Acquire) {
            earlier if earlier < wanted => wanted = earlier,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NEVER, arm};
    use core::cell::Cell;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn a_later_time_that_was_wanted_first_and_set_last_does_not_stand() {
        let (earliest, rung) = (AtomicU64::new(NEVER), Cell::new(NEVER));
        let is_overtaken = Cell::new(false);
        arm(&earliest, 1_000_000, |far| {
            if !is_overtaken.replace(true) {
                arm(&earliest, 10, |soon| rung.set(soon));
            }
            rung.set(far);
        });
        assert_eq!(rung.get(), 10);
        arm(&earliest, 20, |_| panic!("it rings before"));
        arm(&earliest, 5, |soon| rung.set(soon));
        assert_eq!(rung.get(), 5);
    }
}
