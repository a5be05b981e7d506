//! A machine with pods that runs while a test asks it (`aegis up`).

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::programs::{Ended, remote, up_tool};

/// The text of a pod that runs a script of busybox's shell; `more` are further keys.
#[must_use]
pub fn shell(name: &str, script: &str, more: &str) -> String {
    format!("[pod.{name}]\nprogram = \"busybox\"\nargs = [\"sh\", \"-c\", '''{script}''']\nmemory = \"32M\"\n{more}\n")
}

/// A machine that runs; it ends with its test.
#[derive(Debug)]
pub struct Up {
    name: &'static str,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Up {
    /// Starts it, with this text as its file, in a folder of this name.
    ///
    /// # Panics
    /// As [`up_tool`].
    #[must_use]
    pub fn start(name: &'static str, options: &[&str], text: &str) -> Self {
        let mut command = up_tool(name, options, text);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the tool starts");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Self { name, child, output }
    }

    /// Waits until all these lines have come, marks included.
    ///
    /// # Panics
    /// If the machine ends before.
    pub fn wait_for(&mut self, lines: &[&str]) {
        let mut left = lines.to_vec();
        while !left.is_empty() {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("text") > 0, "the machine ended before {left:?}");
            left.retain(|wanted| *wanted != line.trim_end());
        }
    }

    /// Runs `aegis WORDS…` for it.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> Ended {
        remote(self.name, words)
    }

    /// Ends it as a supervisor does: with one SIGTERM.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn terminate(&self) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(status.expect("there is a kill").success());
    }

    /// What is left of the output, and the status.
    ///
    /// # Panics
    /// If it is no text.
    #[must_use]
    pub fn end(mut self) -> (String, i32) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        (rest, self.child.wait().expect("it ends").code().unwrap_or(-1))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Ended already, unless a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
