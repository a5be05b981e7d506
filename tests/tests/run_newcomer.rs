//! What a newcomer types (`tests/newcomer/commands.list`, and `habits.list` for a shell's lines), and what a program
//! without a root of its own cannot reach.
//!
//! Linux is the oracle: output, status and the names of the files that are left, each in a copy of the same folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use aegis_tests::programs::{aegis, is_there, tool};

/// How a line of the list says that the next one is known to differ, and why.
const KNOWN: &str = "# differs: ";

/// What a terminal's environment has of this one: what `make` and cargo add to it is not what a newcomer types in.
const ENVIRONMENT: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR"];

/// A line of the list.
struct Line {
    options: String,
    command: String,
    /// Why its answer is another, where the list says that it is.
    known: Option<String>,
}

fn lines() -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("newcomer/commands.list");
    let text = std::fs::read_to_string(path).expect("the list is there");
    let (mut lines, mut known) = (Vec::new(), None);
    for line in text.lines().filter(|line| !line.is_empty()) {
        if line.starts_with('#') {
            known = line.strip_prefix(KNOWN).map(str::to_owned);
            continue;
        }
        let (options, command) = line.split_once(char::is_whitespace).expect("options and a command");
        let (options, command) = (options.trim_start_matches('-').to_owned(), command.trim().to_owned());
        lines.push(Line { options, command, known: known.take() });
    }
    lines
}

/// A copy of the folder that the lines stand in.
fn copied(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("aegis-newcomer-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("newcomer/folder");
    for entry in std::fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), folder.join(entry.file_name())).expect("a copy");
    }
    folder
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

fn answer(command: &mut Command, folder: &Path) -> (Output, BTreeSet<String>) {
    let output = command.current_dir(folder).stdin(Stdio::null()).output().expect("it starts");
    (output, names(folder))
}

/// A shell in a terminal's environment.
fn shell(text: &str) -> Command {
    let mut shell = Command::new("sh");
    let kept = ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    shell.args(["-c", text]).env_clear().envs(kept);
    shell
}

/// What differs, if something does.
fn difference(number: usize, line: &Line) -> Option<String> {
    let (here, there) = (copied(&format!("{number}-host")), copied(&format!("{number}-aegis")));
    let (expected, left) = answer(&mut shell(&format!("exec {}", line.command)), &here);
    let options: Vec<&str> = if line.options.is_empty() { Vec::new() } else { vec![&line.options] };
    let options: Vec<String> = options.iter().map(|option| format!("--{option}")).collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    // As typed: the shell takes the line apart, and the tool gets the words.
    let run = tool(&options, &[]);
    let mut typed = shell(&format!("exec \"$@\" {}", line.command));
    typed.arg("sh").arg(run.get_program()).args(run.get_args());
    for (name, value) in run.get_envs() {
        if let Some(value) = value {
            typed.env(name, value);
        }
    }
    let (found, found_left) = answer(&mut typed, &there);
    let _ = (std::fs::remove_dir_all(here), std::fs::remove_dir_all(there));
    shown_difference(&line.command, (&expected, &left), (&found, &found_left))
}

/// Both answers, if they are not the same.
fn shown_difference(
    command: &str,
    (expected, left): (&Output, &BTreeSet<String>),
    (found, found_left): (&Output, &BTreeSet<String>),
) -> Option<String> {
    let is_alike = (expected.status.code(), &expected.stdout, left) == (found.status.code(), &found.stdout, found_left);
    (!is_alike).then(|| {
        format!(
            "{command}\n  host:  {:?} {:?} {left:?}\n  aegis: {:?} {:?} {found_left:?} {:?}",
            expected.status.code(),
            String::from_utf8_lossy(&expected.stdout),
            found.status.code(),
            String::from_utf8_lossy(&found.stdout),
            String::from_utf8_lossy(&found.stderr)
        )
    })
}

#[test]
fn what_is_typed_as_on_the_host_does_what_it_does_there() {
    let (mut count, mut known_count, mut differences) = (0, 0, Vec::new());
    for (number, line) in lines().iter().enumerate() {
        let program = line.command.split_whitespace().next().unwrap_or_default();
        if program != "no-such-program" && !is_there(program) {
            println!("left out: {program} is not on this host");
            continue;
        }
        count += 1;
        let found = difference(number, line);
        match (&line.known, found) {
            (None, found) => differences.extend(found),
            (Some(why), Some(_)) => {
                println!("known: {}: {why}", line.command);
                known_count += 1;
            }
            (Some(_), None) => println!("known to differ, and does not: {}", line.command),
        }
    }
    println!("{count} commands, {known_count} differ as the list says, {} otherwise", differences.len());
    assert!(count > 20, "too little is on this host");
    assert!(differences.is_empty(), "of {count} differ:\n{}", differences.join("\n"));
}

/// Words of `habits.list` that stand before what is to run, and the options that they are.
const PREFIXES: [(&str, &[&str]); 3] = [("run", &[]), ("here", &["--here"]), ("write", &["--here=rw"])];

/// The prefixes as functions of a shell: nothing on the host, and the tool in a machine.
fn functions(is_host: bool) -> (String, Vec<(std::ffi::OsString, std::ffi::OsString)>) {
    let (mut text, mut variables) = (String::new(), Vec::new());
    for (name, options) in PREFIXES {
        let run = tool(options, &[]);
        let words = std::iter::once(run.get_program()).chain(run.get_args());
        let quoted = words.map(|word| format!("'{}' ", word.to_string_lossy())).collect::<String>();
        text.push_str(&format!("{name}() {{ {}\"$@\"; }}\n", if is_host { "" } else { &quoted }));
        variables = run.get_envs().filter_map(|(name, value)| Some((name.into(), value?.into()))).collect();
    }
    (text, variables)
}

#[test]
fn a_shells_line_with_the_tool_in_it_does_what_it_does_without() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("newcomer/habits.list");
    let text = std::fs::read_to_string(path).expect("the list is there");
    let (mut count, mut differences) = (0, Vec::new());
    for (number, line) in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_prefix = |word: &str| PREFIXES.iter().any(|(name, _)| *name == word);
        let missing = words.windows(2).find(|pair| is_prefix(pair[0]) && !is_there(pair[1]));
        if let Some(pair) = missing {
            println!("left out: {} is not on this host", pair[1]);
            continue;
        }
        count += 1;
        let run = |is_host: bool| {
            let folder = copied(&format!("habit-{number}-{is_host}"));
            let (prelude, variables) = functions(is_host);
            let answered = answer(shell(&format!("{prelude}{line}")).envs(variables), &folder);
            let _ = std::fs::remove_dir_all(folder);
            answered
        };
        let ((expected, left), (found, found_left)) = (run(true), run(false));
        differences.extend(shown_difference(line, (&expected, &left), (&found, &found_left)));
    }
    println!("{count} lines, {} differ", differences.len());
    assert!(count > 20, "too little is on this host");
    assert!(differences.is_empty(), "of {count} differ:\n{}", differences.join("\n"));
}

#[test]
fn what_is_not_the_system_is_out_of_reach() {
    let folder = std::env::temp_dir().join(format!("aegis-secret-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let token = "a-token-that-nobody-shows";
    std::fs::write(folder.join("secret"), token).expect("a file");
    let secret = folder.join("secret").display().to_string();
    let script = format!(
        "s={secret}; up=../../../../../../../..
         for p in $s /usr/..$s /usr/bin/../..$s /opt/..$s /proc/1/root$s /proc/self/root/usr/$up$s /usr/$up$s; do
             cat $p 2>/dev/null
         done
         ln -s /usr/$up$s /tmp/a; ln -s $up$s /tmp/b; cat /tmp/a /tmp/b 2>/dev/null
         mkdir /usr/made; ln -s ../..$s /usr/made/c; cat /usr/made/c 2>/dev/null; cd /usr/made; cat ../..$s 2>/dev/null
         cat /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh/ssh_host_* /etc/machine-id 2>/dev/null
         ls -A /root /home /srv /mnt /media /run /var/lib 2>/dev/null | grep -v :
         grep -c . /etc/passwd >/dev/null && grep '[$]' /etc/passwd /etc/group
         echo x >/usr/bin/env && echo written >&2; exit 0"
    );
    let ended = aegis(&[], &["sh", "-c", &script], b"");
    let _ = std::fs::remove_dir_all(folder);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(String::from_utf8_lossy(&ended.output).trim(), "", "something of the host showed");
    let env = std::fs::read("/usr/bin/env").expect("the host's");
    assert_ne!(env, b"x\n", "a write stays in the machine");
}

#[test]
fn a_file_that_is_not_shown_is_named() {
    let folder = copied("advice");
    let run = |options: &[&str]| {
        let mut run = tool(options, &["cat", "README.md"]);
        run.current_dir(&folder).stdin(Stdio::null()).output().expect("the tool runs")
    };
    let hidden = run(&[]);
    let told = String::from_utf8_lossy(&hidden.stderr).into_owned();
    assert!(hidden.status.code() == Some(1) && told.contains("--here shows the current directory"), "{told}");
    assert!(!String::from_utf8_lossy(&run(&["-q"]).stderr).contains("aegis:"));
    let shown = run(&["--here"]);
    assert!(shown.status.success() && shown.stdout.starts_with(b"A first line"), "{shown:?}");
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_named_run_has_its_own_output_and_may_have_a_terminal() {
    let runtime = copied("named");
    let run = |options: &[&str], words: &[&str]| {
        let mut run = tool(options, words);
        let ended = run.env("XDG_RUNTIME_DIR", &runtime).stdin(Stdio::null()).output().expect("the tool runs");
        (ended.status.code(), String::from_utf8_lossy(&ended.stdout).into_owned())
    };
    let plain = run(&["--name", "plain"], &["sh", "-c", "echo one; echo two; exit 3"]);
    assert_eq!(plain, (Some(3), "one\ntwo\n".to_owned()), "no marks where there is one pod");
    let (status, shown) = run(&["-it", "--rm", "--name", "shell"], &["sh", "-c", "tty; exit 4"]);
    assert_eq!((status, shown.trim()), (Some(4), "/dev/pts/0"));
    let _ = std::fs::remove_dir_all(runtime);
}
