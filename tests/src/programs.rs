//! Runs Linux programs with the host tool and compares them with the same command on the host.
//!
//! Linux is the oracle: standard output and status of `aegis run COMMAND` must be those of `COMMAND`. Every run has a
//! time limit that the tool enforces, so a test that hangs ends by itself.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds that one run may take on a busy machine under emulation.
const TIME_LIMIT_S: &str = "120";

/// What a program printed, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// Standard output.
    pub output: Vec<u8>,
    /// Standard error.
    pub errors: String,
    /// Exit status; 128 + n for a signal, as a shell says it.
    pub status: i32,
}

/// Runs `aegis run OPTIONS… COMMAND…` with `input`.
///
/// # Panics
/// If the artefacts are missing: `cargo xtask build` makes them.
#[must_use]
pub fn aegis(options: &[&str], command: &[&str], input: &[u8]) -> Ended {
    ended(&finish(&mut tool(options, command), input))
}

/// Runs `aegis up OPTIONS… FILE` with this text as the file, in a folder of its own.
///
/// # Panics
/// If the artefacts are missing, or the temporary folder cannot be written.
#[must_use]
pub fn up(name: &str, options: &[&str], text: &str) -> Ended {
    ended(&finish(&mut up_tool(name, options, text), b""))
}

/// The command that [`up`] runs.
///
/// # Panics
/// As [`up`].
#[must_use]
pub fn up_tool(name: &str, options: &[&str], text: &str) -> Command {
    let folder = up_folder(name);
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let file = folder.join("machine.toml");
    std::fs::write(&file, text).expect("the temporary folder is writable");
    let mut run = verb("up");
    if !options.contains(&"--timeout") {
        run.args(["--timeout", TIME_LIMIT_S]);
    }
    run.args(options).arg(file).env("XDG_RUNTIME_DIR", folder);
    run
}

/// The folder that [`up`] writes to; machines of other tests are not to be seen there.
#[must_use]
pub fn up_folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("aegis-up-{}-{name}", std::process::id()))
}

/// A command `aegis WORDS…` for the machine that [`up_tool`] started with this name.
///
/// # Panics
/// If the artefacts are missing.
#[must_use]
pub fn remote_tool(name: &str, words: &[&str]) -> Command {
    let mut run = bare_tool();
    run.args(words).env("XDG_RUNTIME_DIR", up_folder(name));
    run
}

/// Runs [`remote_tool`].
///
/// # Panics
/// As [`remote_tool`].
#[must_use]
pub fn remote(name: &str, words: &[&str]) -> Ended {
    remote_with(name, words, b"")
}

/// The same with `input`.
///
/// # Panics
/// As [`remote_tool`].
#[must_use]
pub fn remote_with(name: &str, words: &[&str], input: &[u8]) -> Ended {
    ended(&finish(&mut remote_tool(name, words), input))
}

/// The command `aegis run OPTIONS… COMMAND…`, for tests that hold its streams or send it signals themselves.
///
/// # Panics
/// If the artefacts are missing.
#[must_use]
pub fn tool(options: &[&str], command: &[&str]) -> Command {
    let mut run = verb("run");
    if !options.contains(&"--timeout") {
        run.args(["--timeout", TIME_LIMIT_S]);
    }
    run.args(options).arg("--").args(command);
    run
}

fn bare_tool() -> Command {
    let folder = crate::machine::artefact_folder();
    let tool = folder.join("aegis");
    assert!(tool.exists(), "{} is missing: run `cargo xtask build`", tool.display());
    let mut run = Command::new(tool);
    run.env("AEGIS_ARTIFACTS", folder);
    run
}

fn verb(verb: &str) -> Command {
    let mut run = bare_tool();
    run.args([verb, "--accel", "tcg"]);
    run
}

/// Runs `COMMAND…` on the host, in the environment that the machine gives to programs.
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn host(command: &[&str], input: &[u8]) -> Ended {
    let mut run = Command::new(command[0]);
    run.args(&command[1..]).env_clear().env("HOME", "/root").env("LANG", "C.UTF-8");
    run.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    ended(&finish(&mut run, input))
}

/// Demands that a command does in the machine what it does on the host.
///
/// # Panics
/// That is how a test fails.
pub fn same(options: &[&str], command: &[&str], input: &[u8]) {
    if let Some(difference) = difference(options, command, input, &host(command, input)) {
        panic!("{difference}");
    }
}

/// Runs a command in the machine; what it did there that it did not do on the host, where it ended as `expected`.
#[must_use]
pub fn difference(options: &[&str], command: &[&str], input: &[u8], expected: &Ended) -> Option<String> {
    let is_same = |left: &Ended, right: &Ended| (&left.output, left.status) == (&right.output, right.status);
    let found = aegis(options, command, input);
    // Linux moves bytes of terminals when it comes to it: about one run in 300 shows another order there.
    if is_same(&found, expected) || is_same(&found, &host(command, input)) {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
    Some(format!(
        "{command:?}\n host {} {}\naegis {} {}\n{}",
        expected.status,
        text(&expected.output),
        found.status,
        text(&found.output),
        found.errors,
    ))
}

/// Whether a program is on this host; says so if a test is left out for it.
#[must_use]
pub fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = Path::new(program).is_file() && program.contains('/')
        || std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !is_there {
        println!("left out: {program} is not on this host");
    }
    is_there
}

/// Compiles a C program; `None`, with a line, where there is no compiler.
///
/// # Panics
/// If the compiler refuses it.
#[must_use]
pub fn compile(name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    compile_with("gcc", name, source, options)
}

/// Compiles a program with this compiler; `None`, with a line, where it is not installed.
///
/// # Panics
/// If the compiler refuses it.
#[must_use]
pub fn compile_with(compiler: &str, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    if !is_there(compiler) {
        return None;
    }
    let folder = std::env::temp_dir().join(format!("aegis-tests-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    // Tests run side by side: what another one is running now must not change under it.
    static COMPILED_COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COMPILED_COUNT.fetch_add(1, Ordering::Relaxed);
    let (text, fresh) = (folder.join(format!("source-{number}.c")), folder.join(format!("fresh-{number}")));
    std::fs::write(&text, source).expect("the temporary folder is writable");
    let status = Command::new(compiler).args(options).arg("-o").args([&fresh, &text]).arg("-lm").status();
    assert!(status.expect("the compiler runs").success(), "{name} does not compile");
    let program = folder.join(name);
    std::fs::rename(&fresh, &program).expect("the temporary folder is writable");
    Some(program)
}

/// Starts a command, feeds it and waits. A program that does not read its input is no error.
fn finish(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let mut pipe = child.stdin.take().expect("standard input is a pipe");
    let bytes = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = pipe.write_all(&bytes);
    });
    let output = child.wait_with_output().expect("the child can be waited for");
    writer.join().expect("the writer does not panic");
    output
}

fn ended(output: &Output) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    let by_signal = output.status.signal().map(|number| 128 + number);
    Ended {
        output: output.stdout.clone(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status.code().or(by_signal).unwrap_or(-1),
    }
}

/// A counter of `--stats=json`, which is the last line on standard error.
///
/// # Panics
/// What follows the key is no number.
#[must_use]
pub fn counter(errors: &str, key: &str) -> u64 {
    let line = errors.lines().last().unwrap_or_default();
    let Some((_, rest)) = line.split_once(&format!("\"{key}\":")) else { return 0 };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number follows a key")
}
