//! What a machine says while it runs a list; `bench/compare/each.c` describes the lines.
//!
//! A Linux console may put lines of the kernel in between: what is not understood, or is not of the program that
//! runs, is passed over.

/// What a program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// What it wrote to standard output.
    pub(super) output: Vec<u8>,
    /// What it wrote to standard error.
    pub(super) errors: Vec<u8>,
    pub(super) end: End,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By `exit`.
    Exited(i32),
    /// By a signal; whether there would be a core file.
    Killed(i32, bool),
    /// It was killed after the time that it may take.
    Late,
    /// It was killed because it wrote too much.
    Much,
    /// It took the machine with it; the text says how.
    Lost(String),
}

impl Outcome {
    /// Whether it ended by itself: two that did not are not the same.
    pub(super) fn is_an_end(&self) -> bool {
        matches!(self.end, End::Exited(_) | End::Killed(..))
    }
}

/// What has been read of one machine.
#[derive(Debug)]
pub(super) struct Transcript {
    first: usize,
    /// The programs that have ended, from the first on.
    pub(super) outcomes: Vec<Outcome>,
    running: Option<(Vec<u8>, Vec<u8>)>,
    /// All have run.
    pub(super) is_done: bool,
}

impl Transcript {
    pub(super) fn new(first: usize) -> Self {
        Self { first, outcomes: Vec::new(), running: None, is_done: false }
    }

    /// Whether the runner has said anything.
    pub(super) fn has_begun(&self) -> bool {
        self.is_done || self.running.is_some() || !self.outcomes.is_empty()
    }

    /// Takes a line.
    pub(super) fn push(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (Some(word), number) = (words.next(), words.next()) else { return };
        if word == "done" && number.is_none() && self.running.is_none() {
            self.is_done = true;
            return;
        }
        let is_this = number.and_then(|it| it.parse().ok()) == Some(self.first + self.outcomes.len());
        if !is_this {
            return;
        }
        let rest = words.next();
        match (word, rest, &mut self.running) {
            ("begin", None, None) => self.running = Some((Vec::new(), Vec::new())),
            ("out", Some(text), Some((output, _))) => unescape(text, output),
            ("err", Some(text), Some((_, errors))) => unescape(text, errors),
            ("end", Some(status), Some(_)) => {
                if let Ok(status) = status.parse() {
                    self.end(end_of(status));
                }
            }
            ("late", None, Some(_)) => self.end(End::Late),
            ("much", None, Some(_)) => self.end(End::Much),
            _ => {}
        }
    }

    /// The machine is gone: the program that ran took it along, or the next one would have.
    pub(super) fn lose(&mut self, why: &str) {
        self.end(End::Lost(why.to_string()));
    }

    fn end(&mut self, end: End) {
        let (output, errors) = self.running.take().unwrap_or_default();
        self.outcomes.push(Outcome { output, errors, end });
    }
}

/// What a status of wait means.
fn end_of(status: i32) -> End {
    match status & 0x7f {
        0 => End::Exited(status >> 8 & 0xff),
        signal => End::Killed(signal, status & 0x80 != 0),
    }
}

/// Adds what `text` stands for; what is broken is kept as it is, and will differ.
fn unescape(text: &str, into: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *byte == b'\\');
        let value = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        into.push(value.unwrap_or(*byte));
        rest = if value.is_some() { &after[2..] } else { after };
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Outcome, Transcript};

    fn heard(first: usize, text: &str) -> Transcript {
        let mut heard = Transcript::new(first);
        text.lines().for_each(|line| heard.push(line));
        heard
    }

    fn outcome(output: &[u8], errors: &[u8], end: End) -> Outcome {
        Outcome { output: output.into(), errors: errors.into(), end }
    }

    #[test]
    fn programs_in_their_order() {
        let text = "[ 0.1] noise\nbegin 3\nout 3 a\\20b\\0a\nout 4 x\nerr 3 \\5c!\nout 3 c\nend 3 512\n\
                    begin 4\nend 4 139\nbegin 5\nlate 5\nbegin 6\nmuch 6\ndone\n";
        let heard = heard(3, text);
        assert!(heard.is_done);
        assert_eq!(heard.outcomes[0], outcome(b"a b\nc", b"\\!", End::Exited(2)));
        assert_eq!(heard.outcomes[1].end, End::Killed(11, true));
        assert_eq!((&heard.outcomes[2].end, &heard.outcomes[3].end), (&End::Late, &End::Much));
        assert!(heard.outcomes[1].is_an_end() && !heard.outcomes[2].is_an_end());
    }

    #[test]
    fn a_machine_that_goes_is_the_running_programs_end() {
        let mut heard = heard(0, "begin 0\nend 0 0\nbegin 1\nout 1 x\n");
        assert!(heard.has_begun() && !heard.is_done);
        heard.lose("it ended");
        assert_eq!(heard.outcomes[1], outcome(b"x", b"", End::Lost("it ended".into())));
        assert!(!Transcript::new(0).has_begun());
    }

    #[test]
    fn done_in_the_middle_is_a_programs_word() {
        assert!(!heard(0, "begin 0\ndone\n").is_done);
        assert!(heard(0, "done\n").outcomes.is_empty());
    }
}
