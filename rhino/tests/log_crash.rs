//! The log against every crash: a run of appends, flushes and truncations on a recording disk; at each point, with the
//! writes that were not flushed lost, done or torn, it is recovered, also with crashes inside of recovery and several
//! in a row. What was flushed is there, what is there is what was appended, and nothing is called damage.
//!
//! It has teeth: the same run with one kind of flush left out is caught.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::cell::Cell;

use rhino::fake::{Disk, Draws, Image};
use rhino::log::{Damage, LOG_BYTES_MIN, Log, LogError, Start};

/// A small ring, so that it wraps every few records.
const DISK_BYTES: usize = LOG_BYTES_MIN as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Commit,
    Truncation,
    Renewal,
}

/// What holds from a point on.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    point: usize,
    /// This record and all before it last.
    flushed: u64,
    /// Records below this number may be gone.
    start: u64,
}

struct Run {
    disk: Disk,
    log: Log<Disk>,
    /// Payloads by number, from the first on that may still be asked for.
    records: Vec<(u64, Vec<u8>)>,
    marks: Vec<Start>,
    promises: Vec<Promise>,
}

impl Run {
    fn begin(image: Image, omitted: Option<Kind>) -> Self {
        let disk = Disk::from_image(image);
        let mut log = Log::recover(disk.clone()).unwrap();
        let promise = Promise { point: 0, flushed: 0, start: log.ring.end().sequence };
        omit(&disk, omitted == Some(Kind::Renewal), 2);
        log.renew().unwrap();
        let mut run = Self { disk, log, records: Vec::new(), marks: Vec::new(), promises: vec![promise] };
        run.promise(0, promise.start);
        run
    }

    fn promise(&mut self, flushed: u64, start: u64) {
        let last = *self.promises.last().unwrap();
        let promise =
            Promise { point: self.disk.point(), flushed: last.flushed.max(flushed), start: last.start.max(start) };
        self.promises.push(promise);
    }

    fn step(&mut self, draws: &mut Draws, omitted: Option<Kind>) {
        match draws.below(8) {
            0..4 => {
                let payload: Vec<u8> = (0..draws.below(2400)).map(|_| draws.number() as u8).collect();
                let mark = self.log.ring.end();
                match self.log.ring.append(7, &[&payload]) {
                    Ok(appended) => {
                        self.records.push((appended.sequence, payload));
                        self.marks.push(mark);
                    }
                    Err(error) => {
                        assert_eq!(error, LogError::Full);
                        self.truncate(draws, omitted);
                    }
                }
            }
            4..7 => {
                omit(&self.disk, omitted == Some(Kind::Commit), 1);
                self.log.ring.flush().unwrap();
                self.promise(self.log.ring.last_sequence(), 0);
            }
            _ => self.truncate(draws, omitted),
        }
    }

    fn truncate(&mut self, draws: &mut Draws, omitted: Option<Kind>) {
        let start = self.log.ring.start().sequence;
        self.marks.retain(|mark| mark.sequence >= start);
        let choice = draws.below(self.marks.len() + 1);
        let mark = self.marks.get(choice).copied().unwrap_or_else(|| self.log.ring.end());
        // Its user has made everything before it last elsewhere, for which it has to be flushed here.
        omit(&self.disk, omitted == Some(Kind::Commit), 1);
        self.log.ring.flush().unwrap();
        self.promise(self.log.ring.last_sequence(), mark.sequence);
        omit(&self.disk, omitted == Some(Kind::Truncation), 1);
        self.log.truncate(mark).unwrap();
    }

    /// What a crash at `point` must leave.
    fn promised(&self, point: usize) -> Promise {
        // A promise is made behind the call that keeps it, but for the start, which is given up before.
        let flushed = self.promises.iter().rfind(|promise| promise.point <= point).unwrap().flushed;
        let start = self.promises.iter().rfind(|promise| promise.point <= point).unwrap().start;
        Promise { point, flushed, start }
    }
}

/// Has the next flushes be answered and not done.
fn omit(disk: &Disk, is_omitted: bool, count: u64) {
    let next = disk.counts().flushes;
    for number in next..next + if is_omitted { count } else { 0 } {
        disk.lie_about_flush(number);
    }
}

/// Numbers and payloads.
type Records = Vec<(u64, Vec<u8>)>;

/// What recovery finds: the first number that it has, and the payloads.
fn find(disk: Disk) -> Result<(Log<Disk>, u64, Records), LogError> {
    let log = Log::recover(disk)?;
    let mut found = Vec::new();
    let start = log.ring.start();
    log.ring.replay::<LogError>(start, log.ring.last_sequence(), |head, place, payload| {
        assert_eq!((head.kind, head.sequence), (7, place.sequence));
        found.push((head.sequence, payload.to_vec()));
        Ok(())
    })?;
    Ok((log, start.sequence, found))
}

/// Judges what was found after a crash; a violation is a text.
fn judge(run: &Run, promise: Promise, first: u64, found: &[(u64, Vec<u8>)]) -> Result<(), String> {
    if first > promise.start {
        return Err(format!("records from {} on are needed, they begin at {first}", promise.start));
    }
    let last = found.last().map_or(first - 1, |record| record.0);
    if last < promise.flushed {
        return Err(format!("record {} was flushed, {last} is the last", promise.flushed));
    }
    for record in found {
        // Records of earlier runs were judged there.
        let known = run.records.iter().find(|known| known.0 == record.0);
        if known.is_some_and(|known| known.1 != record.1) {
            return Err(format!("record {} is another", record.0));
        }
        if known.is_none() && record.0 >= run.promises[0].start {
            return Err(format!("record {} was never appended", record.0));
        }
    }
    Ok(())
}

/// Crashes a run at every point, and recovery at every point of it; answers states, violations, and an image to go on
/// with.
fn crash(run: &Run, draws: &mut Draws, subset_count: usize) -> (usize, Vec<String>, Image) {
    let state_count = Cell::new(0);
    let mut violations = Vec::new();
    let mut kept = run.disk.image();
    for point in 0..=run.disk.point() {
        let promise = run.promised(point);
        let mut inner_draws = Draws::new(draws.number());
        run.disk.each_crash(point, subset_count, draws, &mut |image| {
            state_count.set(state_count.get() + 1);
            let disk = Disk::from_image(image.clone());
            let verdict = match find(disk.clone()) {
                Err(error) => Err(format!("{error:?}")),
                Ok((mut log, first, found)) => judge(run, promise, first, &found).and_then(|()| {
                    log.renew().map_err(|error| format!("renewal: {error:?}"))?;
                    again(&disk, &found, &state_count, &mut inner_draws)
                }),
            };
            violations.extend(verdict.err().map(|text| format!("point {point}: {text}")));
            if inner_draws.once_in(40) {
                kept = image;
            }
        });
    }
    (state_count.get(), violations, kept)
}

/// Crashes a recovery at every point: it finds the same, or nothing any more.
fn again(disk: &Disk, found: &[(u64, Vec<u8>)], states: &Cell<usize>, draws: &mut Draws) -> Result<(), String> {
    let mut verdict = Ok(());
    for point in 0..=disk.point() {
        disk.each_crash(point, 16, draws, &mut |image| {
            states.set(states.get() + 1);
            match find(Disk::silent(image)) {
                Err(error) => verdict = Err(format!("in recovery, point {point}: {error:?}")),
                Ok((_, _, after)) if after.is_empty() || after == found => {}
                Ok(_) => verdict = Err(format!("in recovery, point {point}: others are found")),
            }
        });
    }
    verdict
}

/// Runs and crashes, several lives in a row; answers states and violations.
fn lives(seed: u64, life_count: usize, step_count: usize, omitted: Option<Kind>) -> (usize, Vec<String>) {
    let mut draws = Draws::new(seed);
    let disk = Disk::new(DISK_BYTES);
    Log::create(disk.clone(), draws.number(), b"user").unwrap();
    let mut image = disk.image();
    let (mut state_count, mut violations) = (0, Vec::new());
    for _ in 0..life_count {
        let mut run = Run::begin(image, omitted);
        for _ in 0..step_count {
            run.step(&mut draws, omitted);
        }
        let (states, found, kept) = crash(&run, &mut draws, 64);
        state_count += states;
        violations.extend(found);
        if !violations.is_empty() {
            break;
        }
        image = kept;
    }
    (state_count, violations)
}

#[test]
fn no_crash_loses_what_was_flushed() {
    let mut states = 0;
    for seed in 0..12 {
        let (count, violations) = lives(seed, 3, 14, None);
        assert!(violations.is_empty(), "seed {seed}: {} violations, first: {}", violations.len(), violations[0]);
        states += count;
    }
    assert!(states > 10_000, "{states} states");
}

#[test]
#[ignore = "half a million states: minutes without optimisation"]
fn no_crash_of_half_a_million_loses_what_was_flushed() {
    let (mut states, mut seed) = (0, 1000);
    while states < 500_000 {
        let (count, violations) = lives(seed, 5, 24, None);
        assert!(violations.is_empty(), "seed {seed}: {} violations, first: {}", violations.len(), violations[0]);
        states += count;
        seed += 1;
    }
    println!("{states} states, 0 violations");
}

#[test]
fn leaving_out_a_flush_is_caught() {
    for omitted in [Kind::Commit, Kind::Truncation, Kind::Renewal] {
        let caught = (0..40).any(|seed| !lives(seed, 4, 14, Some(omitted)).1.is_empty());
        assert!(caught, "{omitted:?}: nothing noticed that its flush was left out");
    }
}

/// Bits that rot in what was flushed, with something behind it, are damage and no shorter log.
#[test]
fn damage_in_the_middle_is_an_error() {
    let disk = Disk::new(DISK_BYTES);
    let mut log = Log::create(disk.clone(), 5, b"").unwrap();
    for length in [10, 900, 300, 40] {
        log.ring.append(1, &[&vec![7; length]]).unwrap();
        log.ring.flush().unwrap();
    }
    log.ring.append(1, &[b"not flushed, but it says what was"]).unwrap();
    let image = disk.image();
    let end = 8192 + log.ring.used_bytes() as usize;
    let mut damaged = 0;
    for at in (8192..end - 512).step_by(37) {
        let mut spoilt = image.clone();
        spoilt.bytes[at] ^= 1 << (at % 8);
        match Log::recover(Disk::silent(spoilt)) {
            Err(LogError::Damage(Damage::Middle { .. })) => damaged += 1,
            Err(error) => panic!("{error:?}"),
            Ok(log) => assert_eq!(log.ring.last_sequence(), 5, "byte {at}: cut in silence"),
        }
    }
    assert!(damaged > 50, "{damaged}");
    // One status block is enough, none is no log, and another version is one.
    for (slots, expected) in [(vec![0, 4096], Damage::NoStatus), (vec![0], Damage::Shape), (vec![4096], Damage::Shape)]
    {
        let mut spoilt = image.clone();
        for at in &slots {
            spoilt.bytes[at + 20] ^= 1;
        }
        match Log::recover(Disk::silent(spoilt)) {
            Err(error) => assert_eq!((error, slots.len()), (LogError::Damage(expected), 2)),
            Ok(log) => assert_eq!((log.ring.last_sequence(), slots.len()), (5, 1)),
        }
    }
}

/// A status slot that rots leads to the older one: then all is there, or it is damage; never an older state in silence.
#[test]
fn an_older_status_is_no_older_state() {
    for seed in 0..30 {
        let mut draws = Draws::new(seed);
        let disk = Disk::new(DISK_BYTES);
        let mut log = Log::create(disk.clone(), draws.number(), b"").unwrap();
        if draws.once_in(2) {
            log.ring.append(1, &[b"before"]).unwrap();
            log.ring.flush().unwrap();
            log = Log::recover(disk.clone()).unwrap();
            log.renew().unwrap();
        }
        for _ in 0..draws.below(40) {
            let payload = vec![1; draws.below(3000)];
            if log.ring.append(1, &[&payload]) == Err(LogError::Full) {
                log.truncate(log.ring.end()).unwrap();
                log.ring.append(1, &[&payload]).unwrap();
            }
            log.ring.flush().unwrap();
        }
        let last = log.ring.last_sequence();
        for slot in 0..2 {
            let mut image = disk.image();
            image.bytes[slot * 4096 + 100] ^= 1;
            match Log::recover(Disk::silent(image)) {
                Ok(log) => assert_eq!(log.ring.last_sequence(), last, "seed {seed}"),
                Err(error) => assert!(matches!(error, LogError::Damage(Damage::Middle { .. })), "{error:?}"),
            }
        }
    }
}

/// Whatever a medium holds, recovery ends.
#[test]
fn garbage_is_refused_or_read() {
    for seed in 0..200 {
        let mut draws = Draws::new(seed);
        let disk = Disk::new(DISK_BYTES);
        let mut log = Log::create(disk.clone(), 9, b"").unwrap();
        for _ in 0..4 {
            log.ring.append(1, &[&vec![3; draws.below(900)]]).unwrap();
            log.ring.flush().unwrap();
        }
        let mut image = disk.image();
        for _ in 0..=draws.below(30) {
            let at = draws.below(image.bytes.len());
            image.bytes[at] = draws.number() as u8;
        }
        match Log::recover(Disk::silent(image)) {
            Ok(log) => assert!(log.ring.last_sequence() <= 4),
            Err(error) => assert!(matches!(error, LogError::Damage(_)), "{error:?}"),
        }
    }
}
