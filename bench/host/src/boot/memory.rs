//! The least memory of a machine with which `busybox true` runs to its end, to the MiB.
//!
//! Found by halving between a size that is too little and one that is enough, so it is the least one if more memory
//! never hurts. What counts is QEMU's `-m`, the whole machine: kernel, page tables, root and program.

use std::path::Path;
use std::time::Duration;

use super::super::failure::{Failure, last_line};
use super::super::guest::{Event, Guest, Limits, Line};
use super::super::linux::TUNED;
use super::super::progress;
use super::super::system::{Machines, aegis_line};
use super::{MEMORY_MIB, Way, linux_line};

/// Of one try. A machine with too little memory mostly says so at once; some stay silent.
const LIMITS: Limits = Limits { silence: Duration::from_secs(20), total: Duration::from_secs(20) };
/// Most tries: one for the upper end, then one for each halving of it.
const TRY_COUNT_MAX: u32 = 1 + MEMORY_MIB.ilog2();
/// What Linux says when its first process has ended with status 0.
const LINUX_SUCCESS: &str = "Attempted to kill init! exitcode=0x00000000";

/// The least memory in MiB.
///
/// # Errors
/// Also the machine with the most memory does not run the program.
pub(super) fn least_mib(machines: &Machines, way: &Way, busybox: &Path, initramfs: &Path) -> Result<u32, Failure> {
    let mut try_count = 0;
    let mut attempt = |memory_mib: u32| {
        try_count += 1;
        progress::say(&format!("least memory of {}, try {try_count} of {TRY_COUNT_MAX}", way.title()));
        let line = line(machines, way, busybox, initramfs, memory_mib);
        match way {
            Way::Aegis(_) => runs_on_aegis(&line),
            Way::Linux(_) => runs_on_linux(&line),
        }
    };
    search(MEMORY_MIB, &mut attempt).map_err(|failure| match failure {
        SearchFailure::Host(failure) => failure,
        SearchFailure::Never(why) => Failure::NotUp(way.title(), format!("with {MEMORY_MIB} MiB: {why}")),
    })
}

/// Whether a try ran the program, and what was said if not.
type Attempt = Result<(), String>;

#[derive(Debug)]
enum SearchFailure {
    Host(Failure),
    Never(String),
}

/// The least size up to `most` that is enough.
fn search(most: u32, attempt: &mut impl FnMut(u32) -> Result<Attempt, Failure>) -> Result<u32, SearchFailure> {
    attempt(most).map_err(SearchFailure::Host)?.map_err(SearchFailure::Never)?;
    let (mut too_little, mut enough) = (0, most);
    while enough - too_little > 1 {
        let middle = too_little.midpoint(enough);
        match attempt(middle).map_err(SearchFailure::Host)? {
            Ok(()) => enough = middle,
            Err(_) => too_little = middle,
        }
    }
    Ok(enough)
}

/// A machine of this size. On Linux the line is the tuned one, but for the level that lets the kernel say how its
/// first process ended.
pub(super) fn line(machines: &Machines, way: &Way, busybox: &Path, initramfs: &Path, memory_mib: u32) -> Line {
    match way {
        Way::Aegis(kind) => {
            let machine_memory = format!("{memory_mib}M");
            let options = ["-M", kind, "-q", "--machine-memory", &machine_memory];
            aegis_line(&machines.tool, MEMORY_MIB, &options, vec![busybox.into(), "true".into()])
        }
        Way::Linux(kernel) => {
            let append = format!("{TUNED} loglevel=1 rdinit=/busybox -- true");
            linux_line(machines, kernel, initramfs, memory_mib, append)
        }
    }
}

fn runs_on_aegis(line: &Line) -> Result<Attempt, Failure> {
    let ending = Guest::start(line, LIMITS)?.finish_by_itself();
    Ok(if ending.status == Some(0) { Ok(()) } else { Err(last_line(&ending.errors)) })
}

fn runs_on_linux(line: &Line) -> Result<Attempt, Failure> {
    let mut guest = Guest::start(line, LIMITS)?;
    let mut last = String::new();
    loop {
        match guest.next() {
            Event::Line(line, _) if line.ends_with(LINUX_SUCCESS) => return Ok(Ok(())),
            Event::Line(line, _) => last = line,
            Event::End => break,
            Event::Limit(why) => return Ok(Err(why.into())),
        }
    }
    let errors = guest.finish();
    Ok(Err(if errors.trim().is_empty() { last } else { last_line(&errors) }))
}

#[cfg(test)]
mod tests {
    use super::{SearchFailure, TRY_COUNT_MAX, search};

    #[test]
    fn every_least_size_is_found_within_the_tries() {
        for least in 1..=256 {
            let mut tries = 0;
            let found = search(256, &mut |size| {
                tries += 1;
                Ok(if size >= least { Ok(()) } else { Err("too little".into()) })
            });
            assert_eq!(found.unwrap(), least);
            assert!(tries <= TRY_COUNT_MAX, "{tries}");
        }
    }

    #[test]
    fn what_never_runs_is_a_failure() {
        let found = search(256, &mut |_| Ok(Err("it is broken".into())));
        assert!(matches!(found, Err(SearchFailure::Never(why)) if why == "it is broken"));
    }
}
