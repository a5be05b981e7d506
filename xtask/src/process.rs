//! Runs other programs: quietly while they are quick and succeed, with their output when they are slow or fail.
//!
//! Everything printed here goes to standard error. `./aegis` builds on behalf of a program whose standard output is
//! data.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::errors::Error;

/// How long a step may take before the user is told what is going on.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `command` to its end and returns its standard output. Its standard error is shown from the moment that it has
/// taken longer than two seconds, or after it failed.
pub(crate) fn run_quietly(label: &str, command: &mut Command) -> Result<Vec<u8>, Error> {
    if std::io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start(command)?;
    let collector = child.stdout.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| bytes).unwrap_or_default()
        })
    });
    let (sender, lines) = channel();
    if let Some(pipe) = child.stderr.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    let unseen = forward_when_slow(label, &lines);
    let status = child.wait().map_err(start_error(command))?;
    let output = collector.and_then(|thread| thread.join().ok()).unwrap_or_default();
    if status.success() {
        return Ok(output);
    }
    for line in unseen {
        eprintln!("{line}");
    }
    Err(Error::Failed { what: label.to_string() })
}

/// Runs `command` with this process's own standard output and error.
pub(crate) fn run_loudly(label: &str, command: &mut Command) -> Result<(), Error> {
    command.stdin(Stdio::null());
    let status = start(command)?.wait().map_err(start_error(command))?;
    if status.success() { Ok(()) } else { Err(Error::Failed { what: label.to_string() }) }
}

/// Standard output of a short question such as `rustc --version`, trimmed; `None` if it could not be answered.
pub(crate) fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}

/// Reads lines until their writer is gone. Returns those that were held back because it was all over soon enough.
fn forward_when_slow(label: &str, lines: &Receiver<String>) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut held_back = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => held_back.push(line),
            Err(RecvTimeoutError::Disconnected) => return held_back,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    eprintln!("{label} ...");
    for line in held_back.drain(..) {
        eprintln!("{line}");
    }
    for line in lines {
        eprintln!("{line}");
    }
    Vec::new()
}

fn start(command: &mut Command) -> Result<Child, Error> {
    command.spawn().map_err(start_error(command))
}

fn start_error(command: &Command) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let program = command.get_program().to_string_lossy().into_owned();
    move |error| Error::Start { program, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_of_a_quick_success_is_returned() {
        let output = run_quietly("echo", &mut shell("echo out; echo err >&2"));
        assert_eq!(output.unwrap(), b"out\n");
    }

    #[test]
    fn a_failure_is_an_error_that_names_the_step() {
        let error = run_quietly("the step", &mut shell("exit 3")).unwrap_err();
        assert_eq!(error.to_string(), "the step failed");
        assert!(run_loudly("the step", &mut shell("exit 3")).is_err());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run_quietly("x", &mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"));
        assert_eq!(answer(&mut Command::new("no-such-program-here")), None);
    }

    #[test]
    fn an_answer_is_trimmed_and_only_given_on_success() {
        assert_eq!(answer(&mut shell("echo ' yes '")).as_deref(), Some("yes"));
        assert_eq!(answer(&mut shell("echo no; exit 1")), None);
    }
}
