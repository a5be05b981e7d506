//! What the micro program says, read line by line; `bench/micro/main.c` describes the lines.
//!
//! A Linux console may put lines of the kernel in between: what is not understood is skipped, and only
//! `done` with the right number makes the output whole.

use super::result::Cell;

/// What has been read of one machine.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Output {
    /// Rows that have ended, in their order.
    pub(crate) rows: Vec<(String, Cell)>,
    /// The row that has begun and not ended.
    pub(crate) running: Option<String>,
    /// `done` came, and the number of rows agrees.
    pub(crate) is_whole: bool,
    /// A line that says that program and tool do not fit, if one came.
    pub(crate) problem: Option<String>,
}

impl Output {
    /// Takes a line.
    pub(crate) fn push(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["start", name] => self.running = Some((*name).to_string()),
            ["row", name, nanoseconds, _count] if self.is_running(name) => match nanoseconds.parse::<f64>() {
                Ok(value) if value.is_finite() && value >= 0.0 => {
                    self.end(name, Cell::Values(vec![value]));
                }
                _ => self.problem = Some(format!("cannot read {line:?}")),
            },
            ["na", name, number, what @ ..] if self.is_running(name) => {
                let what = what.join(" ");
                self.end(name, Cell::NotAvailable(reason(number, &what)));
            }
            ["unknown", name] => self.problem = Some(format!("it knows no row {name}")),
            ["done", count] => {
                self.is_whole = self.running.is_none() && count.parse() == Ok(self.rows.len());
            }
            _ => {}
        }
    }

    fn is_running(&self, name: &str) -> bool {
        self.running.as_deref() == Some(name)
    }

    fn end(&mut self, name: &str, cell: Cell) {
        self.rows.push((name.to_string(), cell));
        self.running = None;
    }
}

/// Errors that a young system gives, by their names in errno(3).
const ERRNO_NAMES: [(i32, &str); 14] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (4, "EINTR"),
    (5, "EIO"),
    (9, "EBADF"),
    (10, "ECHILD"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (22, "EINVAL"),
    (24, "EMFILE"),
    (38, "ENOSYS"),
    (95, "EOPNOTSUPP"),
    (97, "EAFNOSUPPORT"),
];

/// `38` and `fork` make `fork: ENOSYS`; a negative number is a signal, whose name `what` is.
fn reason(number: &str, what: &str) -> String {
    let Ok(number) = number.parse::<i32>() else {
        return format!("{what}: {number}");
    };
    if number < 0 {
        return what.to_string();
    }
    match ERRNO_NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => format!("{what}: {name}"),
        None => format!("{what}: errno {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Output, reason};
    use crate::result::Cell;

    fn read(text: &str) -> Output {
        let mut output = Output::default();
        text.lines().for_each(|line| output.push(line));
        output
    }

    #[test]
    fn rows_and_what_cannot_run() {
        let output =
            read("start a\nrow a 312.500 4096\n[    1.2] random: crng init done\nstart b\nna b 38 fork\ndone 2\n");
        assert!(output.is_whole && output.problem.is_none());
        assert_eq!(output.rows[0], ("a".into(), Cell::Values(vec![312.5])));
        assert_eq!(output.rows[1], ("b".into(), Cell::NotAvailable("fork: ENOSYS".into())));
    }

    #[test]
    fn nothing_is_whole_without_its_end() {
        let output = read("start a\nrow a 1 1\nstart b\n");
        assert!(!output.is_whole);
        assert_eq!(output.running.as_deref(), Some("b"));
        assert!(!read("start a\nrow a 1 1\ndone 2\n").is_whole);
        assert!(!read("start a\ndone 0\n").is_whole);
    }

    #[test]
    fn rubbish_is_not_a_figure() {
        assert!(read("start a\nrow a nan 1\n").problem.is_some());
        assert!(read("start a\nrow a -1 1\n").problem.is_some());
        assert!(read("row a 1 1\n").rows.is_empty());
        assert!(read("unknown x\n").problem.is_some());
    }

    #[test]
    fn reasons_name_errors() {
        assert_eq!(reason("38", "fork"), "fork: ENOSYS");
        assert_eq!(reason("110", "connect"), "connect: errno 110");
        assert_eq!(reason("-11", "Segmentation fault"), "Segmentation fault");
    }
}
