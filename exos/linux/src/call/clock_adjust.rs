//! Setting and steering the realtime clock: `settimeofday`, `adjtimex`, `clock_adjtime`.
//!
//! Realtime is the machine's monotonic clock and an offset that the pod keeps, so a step is a change of that offset.
//! Its rate is the processor's counter's, which nobody steers: what would steer it is refused, and what is reported is
//! what Linux reports of a clock that nothing has synchronised.

use alloc::vec::Vec;

use exos::error::{Errno, Result};
use exos::task::capability::Capability;

use super::time::{check_settable, clock_ns, is_processor_clock, set_realtime};
use crate::abi::bytes::{Encoder, get};
use crate::abi::linux::CLOCK_REALTIME;
use crate::abi::time as abi;
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::{Arguments, Context};
use crate::call::entry::entries;

entries! {
    settimeofday;
    adjtimex: "the clock is read and stepped, not steered";
    clock_adjtime: "as adjtimex";
}

const NS_PER_SECOND: i64 = 1_000_000_000;
const NS_PER_MICROSECOND: i64 = 1000;

/// `struct timex`.
const STATE_BYTES: usize = 208;
/// `ADJ_SETOFFSET`, `ADJ_MICRO`, `ADJ_NANO`, and what `adjtime(3)` asks with: `ADJ_OFFSET_SINGLESHOT`,
/// `ADJ_OFFSET_SS_READ`.
const ADJ_SETOFFSET: u32 = 0x100;
const ADJ_MICRO: u32 = 0x1000;
const ADJ_NANO: u32 = 0x2000;
const ADJ_OFFSET_SINGLESHOT: u32 = 0x8001;
const ADJ_OFFSET_SS_READ: u32 = 0xa001;
/// `STA_UNSYNC` and `TIME_ERROR`.
const STA_UNSYNC: u32 = 0x40;
const TIME_ERROR: u64 = 5;
/// The largest error that is reported, in microseconds.
const ERROR_US: u64 = 16_000_000;
/// Largest steering of the rate, in millionths shifted by 16.
const TOLERANCE: u64 = 500 << 16;
const TICK_US: u64 = 10_000;
const TIME_CONSTANT: u64 = 2;

/// Moves the realtime clock. `EPERM`.
fn step(context: &Context<'_>, by_ns: i64) -> Result<()> {
    if !context.can(Capability::SYS_TIME) {
        return Err(Errno::EPERM);
    }
    context.system.step_realtime(by_ns);
    Ok(())
}

/// `settimeofday(2)`: a time zone is kept and told back.
pub fn settimeofday(context: &mut Context<'_>, [time, zone, ..]: Arguments) -> Result<u64> {
    let wanted_ns = (time != 0).then(|| abi::read_timeval(context.memory, time)).transpose()?;
    let zone = (zone != 0).then(|| read_array::<8>(context.memory, zone)).transpose()?;
    check_settable(context, wanted_ns.unwrap_or(0))?;
    if let Some(zone) = zone {
        const MINUTES_MAX: u32 = 15 * 60;
        let minutes_west = get::i32(&zone, 0);
        if minutes_west.unsigned_abs() > MINUTES_MAX {
            return Err(Errno::EINVAL);
        }
        let before = context.system.time_zone.lock().replace(zone);
        if before.is_none() && wanted_ns.is_none() {
            // The first zone says by how much the machine's clock shows a local time, as on Linux.
            step(context, i64::from(minutes_west) * 60 * NS_PER_SECOND)?;
        }
    }
    if let Some(wanted_ns) = wanted_ns {
        set_realtime(context, wanted_ns)?;
    }
    Ok(0)
}

/// `adjtimex(2)`.
pub fn adjtimex(context: &mut Context<'_>, [address, ..]: Arguments) -> Result<u64> {
    let request: [u8; STATE_BYTES] = read_array(context.memory, address)?;
    let modes = get::u32(&request, 0);
    let is_nanoseconds = modes & ADJ_NANO != 0;
    match modes {
        0 | ADJ_OFFSET_SS_READ => {}
        _ if !context.can(Capability::SYS_TIME) => return Err(Errno::EPERM),
        // What Linux does little by little is done at once, so that nothing is ever left of it to report.
        ADJ_OFFSET_SINGLESHOT => step(context, (get::u64(&request, 8) as i64).saturating_mul(NS_PER_MICROSECOND))?,
        _ if modes & !(ADJ_SETOFFSET | ADJ_NANO | ADJ_MICRO) == 0 => {
            if modes & ADJ_SETOFFSET != 0 {
                let target_ns = context.system.realtime_ns().checked_add_signed(offset_ns(&request, is_nanoseconds)?);
                set_realtime(context, target_ns.ok_or(Errno::EINVAL)?)?;
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    write_all(context.memory, address, &state(context, modes, is_nanoseconds))?;
    Ok(TIME_ERROR)
}

/// `clock_adjtime(2)`.
pub fn clock_adjtime(context: &mut Context<'_>, [id, address, ..]: Arguments) -> Result<u64> {
    if id == CLOCK_REALTIME {
        return adjtimex(context, [address, 0, 0, 0, 0, 0]);
    }
    read_array::<STATE_BYTES>(context.memory, address)?;
    if !is_processor_clock(id) {
        clock_ns(context, id)?;
    }
    Err(Errno::EOPNOTSUPP)
}

/// The step that is asked for. `EINVAL`: a part of a second that is none.
fn offset_ns(request: &[u8], is_nanoseconds: bool) -> Result<i64> {
    let (seconds, part) = (get::u64(request, 72) as i64, get::u64(request, 80) as i64);
    let part_ns = if is_nanoseconds { Some(part) } else { part.checked_mul(NS_PER_MICROSECOND) };
    let part_ns = part_ns.filter(|part_ns| (0..NS_PER_SECOND).contains(part_ns)).ok_or(Errno::EINVAL)?;
    seconds.checked_mul(NS_PER_SECOND).and_then(|ns| ns.checked_add(part_ns)).ok_or(Errno::EINVAL)
}

/// `struct timex` of a clock that runs free.
fn state(context: &Context<'_>, modes: u32, is_nanoseconds: bool) -> Vec<u8> {
    let now_ns = context.system.realtime_ns();
    let part_ns = now_ns % NS_PER_SECOND as u64;
    let encoder = Encoder::new().u32(modes).u32(0).u64(0).u64(0).u64(ERROR_US).u64(ERROR_US);
    let encoder = encoder.u32(STA_UNSYNC).u32(0).u64(TIME_CONSTANT).u64(1).u64(TOLERANCE);
    let encoder = encoder.u64(now_ns / NS_PER_SECOND as u64).u64(if is_nanoseconds { part_ns } else { part_ns / 1000 });
    encoder.u64(TICK_US).zero_to(STATE_BYTES).finish()
}
