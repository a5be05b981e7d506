//! `cargo xtask stress`: the stressors of Debian's stress-ng one after another, with a time limit for each.
//!
//! What is looked for is a stressor that ends the machine, or never ends itself. What a stressor says of itself is
//! shown and no failure: some need what only a privileged Linux has. As many as possible run in one machine; the next
//! begins a new one after a stressor that took its machine along. The limit is of the host's clock and generous: it
//! tells what hangs from what is slow on a busy host, no more.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::build::{self, Profile};
use crate::errors::Error;
use crate::process;

/// The classes whose stressors run unless stressors are named. Those of other names are about the processor alone.
const CLASSES: [&str; 6] = ["os", "vm", "ipc", "scheduler", "filesystem", "pipe"];
/// Numbers of processors, unless told.
const CPUS: &str = "1,2";
/// Seconds for which each stressor works, unless told.
const SECONDS: &str = "3";
/// Memory of the machine, unless told.
const MEMORY: &str = "256M";
/// Seconds of the host that a stressor may take, its preparations included, unless told.
const LIMIT_S: u64 = 90;
/// How long a machine that is told to end may take before it is killed.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Lines before the end of a stressor that are shown if it did not end well.
const SHOWN_LINES: usize = 12;
/// What the script in the machine prints before and after a stressor.
const BEGIN: &str = "@begin ";
const END: &str = "@end ";

/// What the command line says.
struct Settings<'a> {
    cpus: &'a str,
    seconds: &'a str,
    memory: &'a str,
    limit: Duration,
    names: Vec<String>,
}

/// What became of a machine.
enum Outcome {
    /// All of its stressors ended.
    Done,
    /// So many ended; the next one did not.
    Lost { ended_count: usize },
}

/// Builds all, then runs the stressors named, or those of [`CLASSES`]. Words are `--cpus LIST`, `--seconds N`,
/// `--memory SIZE`, `--limit SECONDS`, and stressors' names.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), Error> {
    let mut settings = parse(words)?;
    if settings.names.is_empty() {
        settings.names = stressors()?;
    }
    build::build(root, Profile::Release)?;
    let mut lost = Vec::new();
    for cpus in settings.cpus.split(',') {
        let mut left = settings.names.as_slice();
        while !left.is_empty() {
            match machine(root, &settings, cpus, left)? {
                Outcome::Done => break,
                Outcome::Lost { ended_count } => {
                    lost.push(format!("{} --cpus {cpus}", left[ended_count]));
                    left = &left[ended_count + 1..];
                }
            }
        }
    }
    if lost.is_empty() { Ok(()) } else { Err(Error::Failed { what: lost.join(", ") }) }
}

fn parse<'a>(words: &[&'a str]) -> Result<Settings<'a>, Error> {
    let limit = Duration::from_secs(LIMIT_S);
    let mut settings = Settings { cpus: CPUS, seconds: SECONDS, memory: MEMORY, limit, names: Vec::new() };
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or(Error::Usage);
        match word {
            "--cpus" => settings.cpus = value()?,
            "--seconds" => settings.seconds = value()?,
            "--memory" => settings.memory = value()?,
            "--limit" => settings.limit = Duration::from_secs(value()?.parse().map_err(|_| Error::Usage)?),
            name if !name.starts_with('-') => settings.names.push(name.to_string()),
            _ => return Err(Error::Usage),
        }
    }
    Ok(settings)
}

/// The stressors of all classes that this version of stress-ng has, each once.
fn stressors() -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for class in CLASSES {
        let question = format!("{class}?");
        let answer = process::answer(Command::new("stress-ng").args(["--class", &question])).unwrap_or_default();
        // A class that this version does not know lists the classes.
        if let Some((_, list)) = answer.split_once("stressors:") {
            names.extend(list.split_whitespace().map(str::to_string));
        }
    }
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err(Error::Failed { what: "stress-ng --class os? (is stress-ng installed?)".to_string() });
    }
    Ok(names)
}

/// Runs stressors in one machine until one does not end.
fn machine(root: &Path, settings: &Settings<'_>, cpus: &str, names: &[String]) -> Result<Outcome, Error> {
    let script = format!(
        "for name in {}; do echo \"{BEGIN}$name\"
         stress-ng --temp-path /tmp --$name 1 -t {} 2>&1
         echo \"{END}$?\"; done",
        names.join(" "),
        settings.seconds,
    );
    let mut tool = Command::new(root.join("aegis"));
    tool.args(["run", "--root", "/", "-m", settings.memory, "--cpus", cpus, "-w", "/tmp", "sh", "-c", &script]);
    tool.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tool.spawn().map_err(|error| Error::Start { program: "aegis".to_string(), error })?;
    let (sender, lines) = channel();
    if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
        forward(output, sender.clone());
        forward(errors, sender);
    }
    let ended_count = watch(&lines, settings.limit, cpus, names.len());
    if ended_count < names.len() {
        finish(&mut child);
        return Ok(Outcome::Lost { ended_count });
    }
    finish(&mut child);
    Ok(Outcome::Done)
}

/// Sends the lines of a stream on, until there are no more.
fn forward(stream: impl Read + Send + 'static, sender: Sender<String>) {
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_string();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
}

/// Prints a line for each stressor, and says how many of `count` ended in time.
fn watch(lines: &Receiver<String>, limit: Duration, cpus: &str, count: usize) -> usize {
    let (mut ended_count, mut name, mut begun) = (0, "the start".to_string(), Instant::now());
    let mut said: Vec<String> = Vec::new();
    let report = |name: &str, outcome: &str, begun: Instant, said: &[String], is_shown: bool| {
        println!("{name:16} --cpus {cpus}: {outcome}, {:.1} s", begun.elapsed().as_secs_f64());
        let first = said.len().saturating_sub(SHOWN_LINES);
        said[first..].iter().filter(|_| is_shown).for_each(|line| println!("    {line}"));
    };
    while ended_count < count {
        match lines.recv_timeout((begun + limit).saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(next) = line.strip_prefix(BEGIN) {
                    (name, begun) = (next.to_string(), Instant::now());
                    said.clear();
                } else if let Some(status) = line.strip_prefix(END) {
                    report(&name, &format!("status {status}"), begun, &said, status != "0");
                    (ended_count, begun) = (ended_count + 1, Instant::now());
                } else {
                    said.push(line);
                }
            }
            Err(why) => {
                let is_late = why == RecvTimeoutError::Timeout;
                report(&name, if is_late { "HANGS" } else { "ENDED THE MACHINE" }, begun, &said, true);
                return ended_count;
            }
        }
    }
    ended_count
}

/// Waits a little for a machine to end by itself, then ends it.
fn finish(child: &mut Child) {
    let deadline = Instant::now() + LAST_WORDS;
    while Instant::now() < deadline {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // A tool that is gone already is what is wanted.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_settings_and_names() {
        let settings = parse(&["--cpus", "4", "pipe", "--limit", "7", "vm"]).unwrap();
        assert_eq!((settings.cpus, settings.limit), ("4", Duration::from_secs(7)));
        assert_eq!(settings.names, ["pipe", "vm"]);
        assert!(parse(&["--cpus"]).is_err());
        assert!(parse(&["--what"]).is_err());
    }

    #[test]
    fn ended_stressors_are_counted_until_one_hangs_or_takes_the_machine_along() {
        let (sender, lines) = channel();
        for line in ["@begin pipe", "@end 0", "@begin vm", "said", "@end 3", "@begin kill"] {
            sender.send(line.to_string()).unwrap();
        }
        assert_eq!(watch(&lines, Duration::from_millis(20), "1", 4), 2);
        drop(sender);
        assert_eq!(watch(&lines, Duration::from_secs(1000), "1", 2), 0);
    }
}
