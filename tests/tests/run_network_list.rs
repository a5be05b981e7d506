//! The lines of `tests/linux/network.list`: commands that use the network of one machine, each with output and status
//! as on the host. One machine runs many lines, because what costs time here is a machine's start.
//!
//! Linux is the oracle, in a network namespace of its own where this user may make one, so that ports that are taken
//! on the host, and its addresses, are no part of what is compared. Programs that the host lacks can be in folders
//! that `AEGIS_PROGRAMS` names (`dpkg -x` of Debian's packages), separated by colons.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use aegis_tests::programs::{is_there, tool};

/// Where the host and the machine look for programs first to last.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Machines that share the lines.
const MACHINE_COUNT: usize = 2;
/// Lines of which a machine takes all its time are run by `make network` alone.
const SLOW: &str = "slow-";

/// One line of the list.
struct Line {
    name: String,
    command: String,
}

/// What a line printed, and its status as text.
type Answers = Vec<(String, String)>;

#[test]
fn each_line_ends_as_on_linux() {
    compare(&Places::new(), |name| !name.starts_with(SLOW));
}

#[test]
#[ignore = "takes minutes: make network"]
fn each_slow_line_ends_as_on_linux() {
    let mut places = Places::new();
    places.compile_go();
    compare(&places, |name| name.starts_with(SLOW));
}

/// Runs the lines with such names on both sides and demands that no one differs.
fn compare(places: &Places, is_wanted: impl Fn(&str) -> bool) {
    let only = std::env::var("AEGIS_LINES").unwrap_or_default();
    let lines: Vec<Line> = places.lines().into_iter().filter(|line| is_wanted(&line.name)).collect();
    let lines: Vec<Line> =
        lines.into_iter().filter(|line| only.is_empty() || only.split(',').any(|one| one == line.name)).collect();
    let mut shares: Vec<Vec<&Line>> = (0..MACHINE_COUNT).map(|_| Vec::new()).collect();
    lines.iter().enumerate().for_each(|(index, line)| shares[index % MACHINE_COUNT].push(line));
    let differences: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = shares
            .iter()
            .enumerate()
            .filter(|(_, share)| !share.is_empty())
            .map(|(index, share)| scope.spawn(move || places.differences(index, share)))
            .collect();
        runs.into_iter().flat_map(|run| run.join().expect("a machine ran")).collect()
    });
    println!("{} lines, {} differences", lines.len(), differences.len());
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

/// Folders of this run.
struct Places {
    helpers: PathBuf,
    scratch: PathBuf,
    /// What `AEGIS_PROGRAMS` names.
    programs: Vec<String>,
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

impl Places {
    fn new() -> Self {
        let helpers = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux/network");
        let scratch = std::env::temp_dir().join(format!("aegis-lines-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).expect("the temporary folder is writable");
        let programs = std::env::var("AEGIS_PROGRAMS").unwrap_or_default();
        let programs = programs.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned).collect();
        Self { helpers, scratch, programs }
    }

    /// Compiles network/web.go on the host, where this user has Go: in a machine it would take many minutes.
    fn compile_go(&mut self) {
        if !is_there("go") {
            return;
        }
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(self.scratch.join("usr/bin/aegis-web")).arg(self.helpers.join("web.go"));
        assert!(go.env("CGO_ENABLED", "0").status().expect("it starts").success(), "{go:?}");
        self.programs.push(self.scratch.display().to_string());
    }

    /// `PATH` with the folders of `AEGIS_PROGRAMS` at its end.
    fn path(&self) -> String {
        let mut path = PATH.to_owned();
        for folder in &self.programs {
            for inner in ["usr/bin", "usr/sbin", "bin", "sbin"] {
                let _ = write!(path, ":{folder}/{inner}");
            }
        }
        path
    }

    fn libraries(&self) -> String {
        let folders = self
            .programs
            .iter()
            .flat_map(|folder| ["usr/lib", "lib"].map(|inner| format!("{folder}/{inner}/x86_64-linux-gnu")));
        folders.collect::<Vec<_>>().join(":")
    }

    /// The lines whose programs are there; the others are named.
    fn lines(&self) -> Vec<Line> {
        let list = self.helpers.with_file_name("network.list");
        let text = std::fs::read_to_string(&list).expect("tests/linux/network.list is there");
        let path = self.path();
        let is_there = |program: &&str| path.split(':').any(|folder| Path::new(folder).join(program).is_file());
        let mut lines = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let parts = line.split_once(" [").and_then(|(name, rest)| Some((name, rest.split_once("] ")?)));
            let (name, (programs, command)) = parts.unwrap_or_else(|| panic!("no NAME [PROGRAMS] COMMAND: {line}"));
            let missing: Vec<&str> = programs.split(' ').filter(|program| !is_there(program)).collect();
            if missing.is_empty() {
                lines.push(Line { name: name.to_owned(), command: command.to_owned() });
            } else {
                println!("left out: {name}: {} is not on this host", missing.join(", "));
            }
        }
        lines
    }

    /// Runs a share of the lines on both sides; a text for each that differs.
    fn differences(&self, index: usize, lines: &[&Line]) -> Vec<String> {
        let list = self.scratch.join(format!("lines-{index}"));
        let text: String = lines.iter().map(|line| format!("{}\t{}\n", line.name, line.command)).collect();
        std::fs::write(&list, text).expect("the temporary folder is writable");
        let expected = self.on_the_host(&list);
        let found = self.in_a_machine(&list);
        let of = |answers: &Answers, name: &str| {
            answers.iter().find(|(other, _)| other == name).map_or("(none)\n".to_owned(), |(_, text)| text.clone())
        };
        let mut differences = Vec::new();
        for line in lines {
            let (expected, found) = (of(&expected.0, &line.name), of(&found.0, &line.name));
            if expected != found {
                differences.push(format!("{}: {}\n host {expected}aegis {found}", line.name, line.command));
            }
        }
        if !differences.is_empty() {
            differences.push(format!("errors of this machine: {}", found.1));
        }
        differences
    }

    fn words(&self, list: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        vec!["sh".into(), text(&self.helpers.join("lines.sh")), text(&self.helpers), text(list)]
    }

    fn on_the_host(&self, list: &Path) -> (Answers, String) {
        let own = |prefix: &[&str]| {
            let mut command = Command::new(prefix[0]);
            command.args(&prefix[1..]);
            command
        };
        let namespace = [&["unshare", "-n"][..], &["unshare", "-rn"]].into_iter().find(|prefix| {
            own(prefix).arg("true").stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success())
        });
        let mut run = match namespace {
            Some(prefix) => {
                let mut run = own(prefix);
                run.args(["sh", "-c", "ip link set lo up; exec \"$@\"", "sh"]);
                run
            }
            None => own(&["env"]),
        };
        run.args(self.words(list)).env_clear().env("HOME", "/root").env("PATH", self.path());
        if !self.programs.is_empty() {
            run.env("LD_LIBRARY_PATH", self.libraries());
        }
        answers(&mut run)
    }

    fn in_a_machine(&self, list: &Path) -> (Answers, String) {
        let shown = |folder: &Path| format!("{0}:{0}", folder.display());
        let mut options: Vec<String> =
            ["--root", "/", "--network", "none", "-m", "1G", "--timeout", "900"].map(String::from).into();
        let folders = self.programs.iter().map(Path::new).chain([&*self.scratch, &*self.helpers]);
        folders.for_each(|folder| options.extend(["-v".into(), shown(folder)]));
        options.extend(["-e".into(), format!("PATH={}", self.path())]);
        if !self.programs.is_empty() {
            options.extend(["-e".into(), format!("LD_LIBRARY_PATH={}", self.libraries())]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let words = self.words(list);
        answers(&mut tool(&options, &words.iter().map(String::as_str).collect::<Vec<_>>()))
    }
}

/// Runs lines.sh and takes what it printed apart.
fn answers(run: &mut Command) -> (Answers, String) {
    let ended = run.stdin(std::process::Stdio::null()).output().expect("it starts");
    let text = String::from_utf8_lossy(&ended.stdout);
    let mut answers = Answers::new();
    for line in text.lines() {
        match (line.strip_prefix("=== "), answers.last_mut()) {
            (Some(name), _) => answers.push((name.to_owned(), String::new())),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    (answers, String::from_utf8_lossy(&ended.stderr).into_owned())
}
