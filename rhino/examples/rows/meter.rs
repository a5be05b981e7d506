//! What is measured, and how a result is said.
//!
//! A window is open between [`start`] and [`stop`]. Its time is that of the processor's own counter, which is read
//! without a system call on every system; its instructions are counted from outside, by the plugin of QEMU's
//! translator, which finds the marks in a section of their own, and says a sum for each result that is said. What
//! [`start`] and [`stop`] execute inside is a return and a call.
#![allow(unsafe_code, reason = "marks are made by the assembler")]

use core::arch::asm;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rhino::Error;

/// Rounds in time, of which the median counts.
const ROUND_COUNT: usize = 15;
/// How long it is looked how fast the counter counts.
const CALIBRATION: Duration = Duration::from_millis(50);

/// Kinds of marks (bench/trace/trace.c).
const CLOCK: u64 = 0;
const ARM: u64 = 1;
const DISARM: u64 = 2;

static BEGUN: AtomicU64 = AtomicU64::new(0);
static SUM: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn mark<const KIND: u64>() {
    // SAFETY: no instruction: the place of the next one is written to a section that is not loaded.
    unsafe {
        asm!(
            ".pushsection aegis_marks, \"\", @progbits",
            ".quad 2f, {kind}",
            ".popsection",
            "2:",
            kind = const KIND,
            options(nostack, preserves_flags),
        );
    }
}

fn ticks() -> u64 {
    // SAFETY: every processor of x86-64 counts.
    unsafe { _rdtsc() }
}

/// Opens a window.
#[inline(never)]
pub(crate) fn start() {
    BEGUN.store(ticks(), Ordering::Relaxed);
    mark::<CLOCK>();
}

/// Closes it. A handler of faults may.
#[inline(never)]
pub(crate) fn stop() {
    mark::<CLOCK>();
    let time = ticks().wrapping_sub(BEGUN.load(Ordering::Relaxed));
    SUM.fetch_add(time, Ordering::Relaxed);
}

/// What a result is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub(crate) row: &'a str,
    pub(crate) series: &'a str,
    pub(crate) param: &'a str,
}

/// Says a result; `extra` is pairs of names and numbers.
pub(crate) fn say(name: Name<'_>, operations: usize, seconds: f64, extra: &[(&str, u64)]) {
    let extra: Vec<String> = extra.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    println!(
        "{{\"row\":\"{}\",\"series\":\"{}\",\"param\":\"{}\",\"operations\":{operations},\"seconds\":{seconds:.9},\
         \"instructions\":null,\"extra\":{{{}}}}}",
        name.row,
        name.series,
        name.param,
        extra.join(",")
    );
}

/// Says that there is no figure, and why.
pub(crate) fn say_none(name: Name<'_>, error: Error) {
    println!(
        "{{\"row\":\"{}\",\"series\":\"{}\",\"param\":\"{}\",\"operations\":0,\"seconds\":0,\"instructions\":null,\
         \"extra\":{{\"error\":\"{error:?}\"}}}}",
        name.row, name.series, name.param
    );
}

/// Measures.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    pub(crate) is_counted: bool,
    /// The rows that are measured, if not all are: `ROW`, or `ROW:PARAM`.
    pub(crate) rows: Vec<String>,
    tick_s: f64,
}

impl Meter {
    pub(crate) fn new(is_counted: bool) -> Self {
        let (from, clock) = (ticks(), Instant::now());
        thread::sleep(CALIBRATION);
        Self {
            is_counted,
            rows: Vec::new(),
            tick_s: clock.elapsed().as_secs_f64() / ticks().wrapping_sub(from).max(1) as f64,
        }
    }

    /// Seconds that windows were open while `body` ran.
    pub(crate) fn once(&self, body: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        SUM.store(0, Ordering::Relaxed);
        if self.is_counted {
            mark::<ARM>();
        }
        body()?;
        if self.is_counted {
            mark::<DISARM>();
        }
        Ok(SUM.load(Ordering::Relaxed) as f64 * self.tick_s)
    }

    /// Says what `round` comes to, which opens windows for `operations` of them: in time the median of some rounds,
    /// counted the second. Answers the seconds; none of a row that is not wanted.
    pub(crate) fn row(
        &self,
        name: Name<'_>,
        operations: usize,
        extra: &[(&str, u64)],
        mut round: impl FnMut() -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let is_it = |wanted: &String| *wanted == name.row || *wanted == format!("{}:{}", name.row, name.param);
        if !self.rows.is_empty() && !self.rows.iter().any(is_it) {
            return Ok(0.0);
        }
        let mut times = Vec::new();
        if self.is_counted {
            round()?;
            times.push(self.once(round)?);
        } else {
            for _ in 0..ROUND_COUNT {
                times.push(self.once(&mut round)?);
            }
            times.sort_by(f64::total_cmp);
        }
        let seconds = times[times.len() / 2];
        say(name, operations, seconds, extra);
        Ok(seconds)
    }
}
