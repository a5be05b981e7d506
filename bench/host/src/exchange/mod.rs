//! `aegis test --frames`: scripted exchanges of frames, played by a peer on the host to Linux and to Aegis in the same
//! QEMU, with the same card and the same program behind it.
//!
//! The scripts are data (`script`). `build` makes the peer's frames, `read` says what the guest's are, `flow` counts
//! both from 0, `link` is the wire, `player` plays, `known` holds the list of differences, `page` the document. A
//! script holds what Linux answers: one that Linux itself does not pass is wrong. What Aegis does not pass is on the
//! list, with the reason, or an error; so is what the list has and Aegis passes.

mod build;
mod flow;
mod known;
mod link;
mod machine;
mod nasty;
mod page;
mod player;
mod read;
mod script;
mod words;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::system::System;
use known::Known;
use machine::Machines;
use nasty::Chance;
use player::{Difference, Player};
use script::Script;

/// How often a script is played again that was not passed: a busy host makes a machine late now and then.
const ATTEMPT_COUNT: u32 = 3;
/// Where the list of differences lies beside the scripts.
const KNOWN_NAME: &str = "differences.list";
/// The script that shows that a machine still speaks, and after how many others.
const ALIVE: &str = "udp-echo";
const ALIVE_EVERY: u32 = 20;
/// How the files of scripts end.
const EXTENSION: &str = "frames";

/// What `aegis test --frames` is told.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) folder: &'a Path,
    /// Scripts whose names contain this.
    pub(crate) name: Option<&'a str>,
    /// Slow ones too.
    pub(crate) has_slow: bool,
    /// Play to Linux.
    pub(crate) has_linux: bool,
    /// Play to Aegis.
    pub(crate) has_aegis: bool,
    /// What Linux does is written into the scripts.
    pub(crate) is_blessing: bool,
    /// Mutations of the scripts' frames to Aegis instead: a seed, and for how many seconds.
    pub(crate) nasty: Option<(u64, u32)>,
}

/// A file of scripts.
#[derive(Debug)]
struct File {
    path: PathBuf,
    scripts: Vec<Script>,
}

/// Plays all; how many lines of the table are errors.
pub(crate) fn run(wanted: &Wanted<'_>) -> Result<usize, String> {
    let files = read_folder(wanted.folder)?;
    let known = Known::read(&wanted.folder.join(KNOWN_NAME))?;
    let is_played = |script: &&Script| {
        wanted.name.is_none_or(|name| script.name.contains(name)) && (wanted.has_slow || !script.is_slow)
    };
    if let Some((seed, seconds)) = wanted.nasty {
        return run_nastily(&files, seed, seconds);
    }
    let machines = Machines::prepare(wanted.has_aegis).map_err(|failure| failure.to_string())?;
    let mut error_count = 0;
    let linux = match wanted.has_linux {
        true => play_all(&machines, System::LinuxTuned, &files, &is_played, wanted.is_blessing)?,
        false => Vec::new(),
    };
    for (script, difference) in &linux {
        if let Some(it) = difference {
            error_count += 1;
            println!("wrong    {}: Linux: {}", script.name, shown(it));
        }
    }
    if !wanted.has_aegis {
        println!("{} scripts, {error_count} of them not as Linux answers", linux.len());
        return Ok(error_count);
    }
    let aegis = play_all(&machines, System::Aegis, &files, &is_played, false)?;
    let (mut same_count, mut known_count) = (0, 0);
    for (script, difference) in &aegis {
        match (difference, known.reason(&script.name)) {
            (None, None) => {
                same_count += 1;
                println!("same     {}", script.name);
            }
            (Some(it), Some(reason)) => {
                known_count += 1;
                println!("known    {}: {reason}\n         {}", script.name, shown(it));
            }
            (Some(it), None) => {
                error_count += 1;
                println!("differs  {}: {}\n         {}", script.name, script.title, shown(it));
            }
            (None, Some(_)) => {
                error_count += 1;
                println!("too much {}: it is on the list of differences and there is none", script.name);
            }
        }
    }
    println!("{} scripts: {same_count} the same, {known_count} known differences, {error_count} errors", aegis.len());
    Ok(error_count)
}

/// Plays mutations to Aegis; how often its machine was lost.
fn run_nastily(files: &[File], seed: u64, seconds: u32) -> Result<usize, String> {
    let machines = Machines::prepare(true).map_err(|failure| failure.to_string())?;
    let told = |failure: Failure| format!("{}: {failure}", System::Aegis.title());
    let scripts: Vec<&Script> = files.iter().flat_map(|file| &file.scripts).filter(|it| !it.is_slow).collect();
    let alive = scripts.iter().find(|script| script.name == ALIVE).ok_or(format!("{ALIVE}: no such script"))?;
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let mut chance = Chance(seed);
    let (mut frame_count, mut lost_count, mut round) = (0, 0, 0);
    let mut player = machines.start(System::Aegis).map_err(told)?;
    player.order("limit 30")?;
    while Instant::now() < end {
        round += 1;
        let script = scripts[chance.below(scripts.len())];
        let mut played = player.play_nastily(script, &mut chance).map(|count| frame_count += count);
        if played.is_ok() && round % ALIVE_EVERY == 0 {
            played = match player.play_patiently(alive)? {
                None => Ok(()),
                Some(it) => Err(format!("no way there and back: {}", shown(&it))),
            };
        }
        let Err(why) = played else { continue };
        lost_count += 1;
        println!("lost     in round {round} of seed {seed}, after {frame_count} frames, {}: {why}", script.name);
        println!("         {}", player.end().trim());
        player = machines.start(System::Aegis).map_err(told)?;
        player.order("limit 30")?;
    }
    player.end();
    println!("seed {seed}: {round} scripts, {frame_count} mutations, the machine lost {lost_count} times");
    Ok(lost_count)
}

fn shown(difference: &Difference) -> String {
    format!("line {}: expected {}; found {}", difference.line_number, difference.expected, difference.found)
}

/// The scripts of a folder, file by file.
fn read_folder(folder: &Path) -> Result<Vec<File>, String> {
    let failed = |error: std::io::Error| format!("reading {}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort_unstable();
    paths.retain(|path| path.extension().is_some_and(|it| it == EXTENSION));
    let mut files = Vec::new();
    for path in paths {
        let wrong = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let scripts = script::read(&text).map_err(wrong)?;
        files.push(File { path, scripts });
    }
    Ok(files)
}

/// What became of each script.
type Outcome<'a> = Vec<(&'a Script, Option<Difference>)>;

fn play_all<'a>(
    machines: &Machines,
    system: System,
    files: &'a [File],
    is_played: &impl Fn(&&Script) -> bool,
    is_blessing: bool,
) -> Result<Outcome<'a>, String> {
    let told = |failure: Failure| format!("{}: {failure}", system.title());
    let mut player = machines.start(system).map_err(told)?;
    let mut outcome = Vec::new();
    for file in files {
        player.corrections = is_blessing.then(Vec::new);
        for script in file.scripts.iter().filter(is_played) {
            let played = attempts(&mut player, script);
            match played {
                Ok(difference) => outcome.push((script, difference)),
                Err(why) => {
                    let found = format!("the machine was lost: {why}; {}", player.end().trim());
                    outcome.push((script, Some(Difference { line_number: 0, expected: String::new(), found })));
                    player = machines.start(system).map_err(told)?;
                    player.corrections = is_blessing.then(Vec::new);
                }
            }
        }
        if let Some(corrections) = player.corrections.take() {
            correct(&file.path, &corrections)?;
        }
    }
    player.end();
    Ok(outcome)
}

fn attempts(player: &mut Player, script: &Script) -> Result<Option<Difference>, String> {
    let first = player.play(script)?;
    if first.is_none() || player.corrections.is_some() {
        return Ok(first);
    }
    for _ in 1..ATTEMPT_COUNT {
        if player.play(script)?.is_none() {
            return Ok(None);
        }
    }
    // The others came upon what the first one had left.
    Ok(first)
}

/// Writes what Linux did into a file of scripts.
fn correct(path: &Path, corrections: &[(usize, String)]) -> Result<(), String> {
    if corrections.is_empty() {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    for (line_number, line) in corrections {
        // A line that stands for several cannot be replaced by one.
        if let Some(old) = lines.get_mut(line_number - 1).filter(|old| !old.starts_with('@')) {
            *old = line.clone();
        }
    }
    std::fs::write(path, lines.join("\n") + "\n").map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::flow::Flows;
    use super::link::peer_addresses;
    use super::script::{self, Action};
    use super::{Known, build, page, read_folder};
    use std::collections::BTreeSet;
    use std::path::Path;

    fn folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/frames")
    }

    #[test]
    fn every_frame_of_every_script_can_be_built() {
        let mut flows = Flows::new(1, peer_addresses());
        for file in read_folder(&folder()).unwrap() {
            for script in file.scripts {
                for step in script.steps {
                    let text = match step.action {
                        Action::Send(text) => text,
                        Action::Repeat(_, text) => script::turn(&text, 1),
                        _ => continue,
                    };
                    let words: Vec<&str> = text.split_whitespace().collect();
                    let built = build::frame(&words, &mut flows);
                    assert!(built.is_ok(), "{}:{}: {}", file.path.display(), step.line_number, built.unwrap_err());
                }
            }
        }
    }

    #[test]
    fn names_are_unique_and_the_list_names_scripts() {
        let files = read_folder(&folder()).unwrap();
        let mut names = BTreeSet::new();
        for script in files.iter().flat_map(|file| &file.scripts) {
            assert!(names.insert(script.name.as_str()), "{} twice", script.name);
        }
        let known = Known::read(&folder().join(super::KNOWN_NAME)).unwrap();
        for name in known.names() {
            assert!(names.contains(name), "{name} is on the list of differences and no script");
        }
    }

    #[test]
    fn the_page_is_what_scripts_and_list_say() {
        let known = Known::read(&folder().join(super::KNOWN_NAME)).unwrap();
        let text = page::write(&read_folder(&folder()).unwrap(), &known);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/network-exchanges.md");
        if std::env::var_os("AEGIS_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let held = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(held == text, "docs/network-exchanges.md is old: AEGIS_BLESS=1 writes it anew");
    }
}
