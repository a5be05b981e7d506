//! The store against every crash: each detector, with and without steal, truncation, a log that wraps; at each write
//! and flush of a run the unflushed writes are lost, done or torn, and recovery is crashed too. What is found is a
//! state that was committed, not older than the last that was flushed.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod world;

use std::cell::Cell;

use rhino::fake::{Disk, Draws, Image};
use rhino::log::LOG_BYTES_MIN;
use rhino::{Detector, Restore};
use world::{Setting, World};

const DETECTORS: [Detector; 4] = [Detector::SetRange, Detector::Page, Detector::Diff, Detector::DirtyBits];

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for detector in DETECTORS {
        // A small log wraps and is full often.
        let small = LOG_BYTES_MIN as usize + if detector == Detector::Page { 48 << 10 } else { 0 };
        for (frame_count_max, is_doubled) in [(usize::MAX, false), (7, false), (4, false), (7, true), (4, true)] {
            for (truncate_percent, log_bytes) in [(30, small), (101, small + (32 << 10))] {
                let restore = if frame_count_max == 7 { Restore::No } else { Restore::Yes };
                let (lying_part, lying_flush) = (None, None);
                settings.push(Setting {
                    detector,
                    frame_count_max,
                    truncate_percent,
                    log_bytes,
                    restore,
                    is_doubled,
                    lying_part,
                    lying_flush,
                });
            }
        }
    }
    settings
}

#[derive(Default)]
struct Sum {
    states: usize,
    steals: u64,
    truncations: u64,
    undone: u64,
    commits: u64,
    violations: Vec<String>,
}

/// Crashes a life at every point, and recovery at every point of it.
fn crash(world: &World, draws: &mut Draws, subset_count: usize, sum: &mut Sum) -> Image {
    let setting = world.setting;
    let mut kept = world.disk.image();
    let states = Cell::new(0);
    for point in world.promises[0].point..=world.disk.point() {
        if !sum.violations.is_empty() {
            break;
        }
        let (first, last) = world.allowed(point);
        let mut inner = Draws::new(draws.number());
        world.disk.each_crash(point, subset_count, draws, &mut |image| {
            states.set(states.get() + 1);
            let disk = setting.disk(image.clone());
            let verdict = match setting.open(&disk) {
                Err(error) => Err(format!("{error:?}")),
                Ok((_, report)) => {
                    sum.undone += report.undone_count;
                    let found = setting.segments(&disk.image());
                    if world.states[first..=last].contains(&found) {
                        again(setting, &disk, &found, &states, &mut inner)
                    } else {
                        let which = world.states.iter().position(|state| *state == found);
                        Err(format!("states {first} to {last} are allowed, {which:?} is found"))
                    }
                }
            };
            sum.violations.extend(verdict.err().map(|text| format!("{setting:?} point {point}: {text}")));
            if inner.once_in(40) {
                kept = image;
            }
        });
    }
    sum.states += states.get();
    kept
}

/// Crashes a recovery: the next one finds the same.
fn again(setting: Setting, disk: &Disk, found: &[u8], states: &Cell<usize>, draws: &mut Draws) -> Result<(), String> {
    let mut verdict = Ok(());
    for point in 0..=disk.point() {
        disk.each_crash(point, 4, draws, &mut |image| {
            states.set(states.get() + 1);
            let disk = Disk::silent(image);
            match setting.open(&disk) {
                Err(error) => verdict = Err(format!("in recovery, point {point}: {error:?}")),
                Ok(_) if setting.segments(&disk.image()) == found => {}
                Ok(_) => verdict = Err(format!("in recovery, point {point}: another state")),
            }
        });
    }
    verdict
}

/// Lives in a row, each from what a crash of the one before left.
fn lives(setting: Setting, seed: u64, (life_count, step_count, subset_count): (usize, usize, usize), sum: &mut Sum) {
    let mut draws = Draws::new(seed);
    let honest = Setting { lying_part: None, lying_flush: None, ..setting };
    let disk = honest.blank();
    drop(honest.create(&disk, draws.number()));
    let mut image = disk.image();
    for _ in 0..life_count {
        let mut world = World::begin_life(setting, image);
        for _ in 0..step_count {
            world.step(&mut draws);
        }
        let counters = world.counters();
        sum.steals += counters.steal_count;
        sum.truncations += counters.truncation_count;
        sum.commits += counters.commit_count;
        world.setting = honest;
        image = crash(&world, &mut draws, subset_count, sum);
        if !sum.violations.is_empty() {
            return;
        }
    }
}

fn check(sum: &Sum) {
    let violations = &sum.violations;
    assert!(violations.is_empty(), "{} violations, first: {}", violations.len(), violations[0]);
}

#[test]
fn every_crash_leaves_a_committed_state() {
    let mut sum = Sum::default();
    for (index, setting) in settings().into_iter().enumerate() {
        lives(setting, index as u64, (1, 14, 2), &mut sum);
        check(&sum);
    }
    println!("{} states, {} commits, {} steals, {} truncations", sum.states, sum.commits, sum.steals, sum.truncations);
    assert!(sum.states > 5_000 && sum.steals > 5 && sum.truncations > 5 && sum.undone > 10);
}

#[test]
#[ignore = "half a million states: minutes without optimisation"]
fn every_crash_of_half_a_million_leaves_a_committed_state() {
    let mut sum = Sum::default();
    let mut seed = 1000;
    while sum.states < 600_000 {
        for setting in settings() {
            lives(setting, seed, (3, 40, 16), &mut sum);
            check(&sum);
            seed += 1;
        }
    }
    println!(
        "{} states, {} commits, {} steals, {} truncations, {} undone; 0 violations",
        sum.states, sum.commits, sum.steals, sum.truncations, sum.undone
    );
}

#[test]
fn leaving_out_flushes_is_caught() {
    for setting in
        settings().into_iter().filter(|setting| setting.frame_count_max == 4 && setting.truncate_percent == 30)
    {
        let [log, first, _, area] = setting.parts().map(|(first, _)| first);
        for part in [log, first].into_iter().chain(setting.is_doubled.then_some(area)) {
            let is_caught = (0..20).any(|seed| {
                let mut sum = Sum::default();
                lives(Setting { lying_part: Some(part), ..setting }, seed, (1, 24, 4), &mut sum);
                !sum.violations.is_empty()
            });
            assert!(is_caught, "{setting:?}: part {part} is never flushed, and nothing is noticed");
        }
    }
}

/// Runs without crashes, long ones: every load is compared with the model.
#[test]
fn what_is_loaded_is_what_was_stored() {
    for (index, setting) in settings().into_iter().enumerate() {
        for seed in 0..3 {
            let mut draws = Draws::new(seed * 100 + index as u64);
            let disk = setting.blank();
            drop(setting.create(&disk, draws.number()));
            let mut world = World::begin_life(setting, disk.image());
            for _ in 0..300 {
                world.step(&mut draws);
            }
        }
    }
}
