//! The commands of `tests/commands`, as Debian installed what they need, many times in a row on one, two and four
//! processors: each time output and status of the host. No part of `make test`, because it takes hours: `make repeat`.
//!
//! A new file there is a new command. Scripts are executed as they are; a program in Go or Java is compiled on the host
//! first, because a compiler under emulation takes minutes. What a command prints may not depend on time or order.

use std::path::{Path, PathBuf};
use std::process::Command;

use aegis_tests::programs::{Ended, difference, host, is_there};

/// How often each command runs for each number of processors, unless `AEGIS_REPEAT_TIMES` says otherwise.
const TIMES: usize = 50;
/// Numbers of processors, unless `AEGIS_REPEAT_CPUS` names others.
const CPUS: &str = "1,2,4";

/// One file of `tests/commands`.
struct Case {
    name: String,
    words: Vec<String>,
}

#[test]
#[ignore = "takes hours: make repeat"]
fn every_command_ends_as_on_the_host_every_time() {
    let times = std::env::var("AEGIS_REPEAT_TIMES").map_or(TIMES, |text| text.parse().expect("a number of times"));
    let cpus = std::env::var("AEGIS_REPEAT_CPUS").unwrap_or_else(|_| CPUS.to_string());
    let only = std::env::var("AEGIS_REPEAT_ONLY").unwrap_or_default();
    let scratch = std::env::temp_dir().join(format!("aegis-commands-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("the temporary folder is writable");
    let mut failure_count = 0;
    let mut case_count = 0;
    for file in files() {
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if !only.is_empty() && !only.split(',').any(|wanted| wanted == name) {
            continue;
        }
        case_count += 1;
        let Some(words) = prepare(&file, &scratch) else { continue };
        let case = Case { name, words };
        let command: Vec<&str> = case.words.iter().map(String::as_str).collect();
        let expected = host(&command, b"");
        for count in cpus.split(',') {
            failure_count += repeat(&case, &command, &expected, count, times);
        }
    }
    std::fs::remove_dir_all(&scratch).expect("the scratch folder is ours");
    assert!(case_count > 0, "no file of tests/commands is named {only}");
    assert_eq!(failure_count, 0, "runs that differed");
}

/// How many runs differed; each is printed.
fn repeat(case: &Case, command: &[&str], expected: &Ended, cpus: &str, times: usize) -> usize {
    let mut differed = 0;
    for run in 1..=times {
        if let Some(text) = difference(&["--root", "/", "--cpus", cpus], command, b"", expected) {
            differed += 1;
            println!("{} --cpus {cpus}, run {run}: {text}", case.name);
        }
    }
    println!("{:20} --cpus {cpus}: {} of {times} as on the host", case.name, times - differed);
    differed
}

/// The files of `tests/commands` in the order of their names; what several of them use is in a folder.
fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("commands");
    let entries = std::fs::read_dir(&folder).expect("tests/commands is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// The command that runs a file; `None`, with a line, if what it needs is not on this host.
fn prepare(file: &Path, scratch: &Path) -> Option<Vec<String>> {
    let text = |path: &Path| path.display().to_string();
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("go") => {
            let program = scratch.join("goroutines");
            compile(Command::new("go").env("CGO_ENABLED", "0").args(["build", "-o"]).args([&program, file]))?;
            Some(vec![text(&program)])
        }
        Some("java") => {
            compile(Command::new("javac").arg("-d").args([scratch, file]))?;
            let class = file.file_stem()?.to_str()?.to_string();
            Some(vec!["java".to_string(), "-cp".to_string(), text(scratch), class])
        }
        _ => {
            let script = std::fs::read_to_string(file).expect("a script is text");
            let interpreter = script.strip_prefix("#!")?.split_whitespace().next()?.to_string();
            let is_complete = is_there(&interpreter) && needs(&script).iter().all(|program| is_there(program));
            is_complete.then(|| vec![text(file)])
        }
    }
}

/// Programs that a script names in a line `# Needs: NAME…`.
fn needs(script: &str) -> Vec<&str> {
    script.lines().filter_map(|line| line.strip_prefix("# Needs: ")).flat_map(str::split_whitespace).collect()
}

/// Whether a compiler, if it is there, took its source.
fn compile(command: &mut Command) -> Option<()> {
    is_there(&command.get_program().to_string_lossy()).then_some(())?;
    assert!(command.status().expect("a compiler starts").success(), "{command:?} failed");
    Some(())
}
