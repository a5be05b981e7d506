//! `cargo xtask suites`: the suite of a real program on this host and on Aegis, test by test.
//!
//! What a suite is, is told by a script of `tests/suites`, which is the same on both: it prints a line when a test
//! begins, what the test says, and a line with its status. A finding is a test whose status differs. The sources are
//! the user's to fetch (`docs/internals/real-suites.md`). It is no part of `cargo xtask test`: a suite takes up to an
//! hour where no KVM is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::build::{self, Profile};
use crate::errors::Error;

/// Seconds that a test may take, unless told.
const LIMIT_S: &str = "60";
/// Processors of the machine, unless told.
const CPUS: &str = "2";
/// Memory of the machine, unless told.
const MEMORY: &str = "1G";
/// What the programs find of the environment, on both sides.
const ENVIRONMENT: [(&str, &str); 3] = [("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"), ("HOME", "/root"), ("LANG", "C")];
/// What the scripts print before and after a test.
const BEGIN: &str = "@begin ";
const END: &str = "@end ";
/// Lines of a test that are shown where its status differs.
const SHOWN_LINES: usize = 12;

/// What the command line says.
#[derive(Debug)]
struct Settings<'a> {
    suite: &'a str,
    sources: PathBuf,
    limit: &'a str,
    cpus: &'a str,
    memory: &'a str,
    user: Option<&'a str>,
    locales: Option<&'a str>,
    names: Vec<&'a str>,
}

/// What became of a test. Where nothing stands for a status, the machine or the script ended first.
#[derive(Debug, PartialEq)]
struct Outcome {
    name: String,
    status: Option<String>,
    said: Vec<String>,
}

/// Builds all, runs the suite here and there, and fails if a status differs.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), Error> {
    let settings = parse(words)?;
    build::build(root, Profile::Release)?;
    let here = on_host(root, &settings)?;
    if here.is_empty() {
        return Err(Error::Failed { what: format!("no test of {} began on this host; the suite", settings.suite) });
    }
    let there = on_aegis(root, &settings)?;
    let differing = report(&here, &there);
    if differing == 0 { Ok(()) } else { Err(Error::Failed { what: format!("{differing} test(s) that differ") }) }
}

fn parse<'a>(words: &[&'a str]) -> Result<Settings<'a>, Error> {
    let [suite, sources, rest @ ..] = words else { return Err(Error::Usage) };
    let mut settings = Settings {
        suite,
        sources: PathBuf::from(sources),
        limit: LIMIT_S,
        cpus: CPUS,
        memory: MEMORY,
        user: None,
        locales: None,
        names: Vec::new(),
    };
    if suite.starts_with('-') || suite.contains('/') || !settings.sources.is_absolute() {
        return Err(Error::Usage);
    }
    let mut rest = rest.iter().copied();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or(Error::Usage);
        match word {
            "--limit" => settings.limit = value()?,
            "--cpus" => settings.cpus = value()?,
            "--memory" => settings.memory = value()?,
            "--user" => settings.user = Some(value()?),
            "--locales" => settings.locales = Some(value()?),
            name if !name.starts_with('-') => settings.names.push(name),
            _ => return Err(Error::Usage),
        }
    }
    Ok(settings)
}

/// The words that run the suite's script, which lies in the folder `scripts`, in a new folder below `/tmp`.
fn script(settings: &Settings<'_>, scripts: &str) -> Vec<String> {
    let user = settings.user.map(|number| format!("setpriv --reuid={number} --regid={number} --groups={number},9999 "));
    let line = format!(
        "folder=$(mktemp -d /tmp/suite.XXXXXX) && chmod 777 $folder && cd $folder || exit 125
         {}sh {scripts}/{}.sh \"$@\"; cd / && rm -rf $folder",
        user.unwrap_or_default(),
        settings.suite,
    );
    let mut words: Vec<String> = ["sh", "-c", &line, "sh"].map(str::to_string).to_vec();
    words.push(settings.sources.display().to_string());
    words.push(settings.limit.to_string());
    words.extend(settings.names.iter().map(|name| name.to_string()));
    words
}

/// Without a terminal and with the environment that programs have on Aegis.
fn on_host(root: &Path, settings: &Settings<'_>) -> Result<Vec<Outcome>, Error> {
    let scripts = root.join("tests/suites").display().to_string();
    let mut command = Command::new("setsid");
    command.arg("-w").args(script(settings, &scripts)).env_clear().envs(ENVIRONMENT);
    command.envs(settings.locales.map(|folder| ("LOCPATH", folder)));
    outcomes(&mut command)
}

fn on_aegis(root: &Path, settings: &Settings<'_>) -> Result<Vec<Outcome>, Error> {
    let mut command = Command::new(root.join("aegis"));
    command.args(["run", "-m", settings.memory, "--cpus", settings.cpus, "-q", "-v"]);
    command.arg(format!("{}:/suites:ro", root.join("tests/suites").display()));
    // Sources are shown where they are on the host; an interpreter needs the whole of its installation.
    let shown = settings.sources.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let shown = if shown.ends_with("bin") { shown.parent().unwrap_or(shown) } else { shown };
    command.arg("-v").arg(format!("{0}:{0}:ro", shown.display()));
    if let Some(folder) = settings.locales {
        command.args(["-v", &format!("{folder}:{folder}:ro"), "-e", &format!("LOCPATH={folder}")]);
    }
    for (name, value) in ENVIRONMENT {
        command.args(["-e", &format!("{name}={value}")]);
    }
    command.args(script(settings, "/suites"));
    outcomes(&mut command)
}

fn outcomes(command: &mut Command) -> Result<Vec<Outcome>, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| Error::Start { program, error })?;
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

fn read(text: &str) -> Vec<Outcome> {
    let mut tests: Vec<Outcome> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix(BEGIN) {
            tests.push(Outcome { name: name.to_string(), status: None, said: Vec::new() });
        } else if let Some(test) = tests.last_mut() {
            match line.strip_prefix(END) {
                Some(status) => test.status = Some(status.to_string()),
                None => test.said.push(line.to_string()),
            }
        }
    }
    tests
}

/// Prints the tests that differ and how many are good on each side; says how many differ.
fn report(here: &[Outcome], there: &[Outcome]) -> usize {
    let good = |tests: &[Outcome]| tests.iter().filter(|test| test.status.as_deref() == Some("0")).count();
    let mut differing = 0;
    for test in here {
        let other = there.iter().find(|other| other.name == test.name);
        let status = other.and_then(|other| other.status.as_deref());
        if status == test.status.as_deref() {
            continue;
        }
        differing += 1;
        let text = |status: Option<&str>| status.unwrap_or("did not end").to_string();
        println!("{}: host {}, Aegis {}", test.name, text(test.status.as_deref()), text(status));
        let said = other.map(|other| other.said.as_slice()).unwrap_or_default();
        said[said.len().saturating_sub(SHOWN_LINES)..].iter().for_each(|line| println!("    {line}"));
    }
    println!("host: {} tests, {} good; Aegis: {}, {} good", here.len(), good(here), there.len(), good(there));
    differing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_suite_its_sources_settings_and_names() {
        let settings = parse(&["bash", "/src/bash", "--limit", "7", "run-test", "--user", "1000"]).unwrap();
        assert_eq!((settings.suite, settings.limit, settings.user), ("bash", "7", Some("1000")));
        assert_eq!(settings.names, ["run-test"]);
        for wrong in [&["bash"][..], &["bash", "relative"], &["../bash", "/src"], &["bash", "/src", "--limit"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_test_that_did_not_end_differs_and_so_does_one_that_is_missing() {
        let here = read("before\n@begin a\n@end 0\n@begin b\nsaid\n@end 1\n@begin c\n@end 0\n");
        assert_eq!(here[1], Outcome { name: "b".into(), status: Some("1".into()), said: vec!["said".into()] });
        let there = read("@begin a\n@end 0\n@begin b\n");
        assert_eq!(report(&here, &here), 0);
        assert_eq!(report(&here, &there), 2);
    }
}
