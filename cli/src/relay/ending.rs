//! From everything that is known about a run's end to the tool's exit status and the lines that explain it.
//!
//! Pure, so that the whole table can be tested. The order of belief: what exos reported, then what the tool
//! itself did to the machine (time limit, second signal), then how QEMU ended. A program that ended well although
//! its output could not be written has not done what the user asked for; that is told as the tool's failure.

use std::io;
use std::time::Duration;

use aegis_launch::errors::{STATUS_SIGNAL_BASE, STATUS_TIMEOUT, STATUS_TOOL};
use aegis_launch::machine::process::QemuEnd;
use aegis_link::control::{Report, VERSION};

/// QEMU's exit status after the kernel's clean power-off (exit code 0x10).
pub(crate) const QEMU_POWER_OFF: i32 = 33;
/// QEMU's exit status after a kernel panic (0x11).
pub(crate) const QEMU_PANIC: i32 = 35;
/// QEMU's exit status after the kernel stopped the first environment (0x12).
pub(crate) const QEMU_STOPPED: i32 = 37;

/// Why the tool ended the machine, where it did.
#[derive(Debug)]
pub(crate) enum Cause {
    /// `--timeout` was reached.
    Timeout(Duration),
    /// The user or the system insisted with this signal.
    Signal(u8),
    /// KVM cannot go on with the machine.
    KvmFailed,
    /// No `hello` in this time.
    BootLimit(Duration),
    /// `hello` named another protocol version.
    Version(u32),
}

/// Everything that is known about the end of a run.
#[derive(Debug)]
pub(crate) struct Ending {
    /// What exos said, if it did.
    pub(crate) report: Option<Report>,
    /// What the tool did to the machine, if it did.
    pub(crate) cause: Option<Cause>,
    /// Why bytes of standard output were lost, other than that nobody reads them any more.
    pub(crate) output_error: Option<io::Error>,
    pub(crate) qemu: QemuEnd,
    /// What QEMU wrote to its standard error.
    pub(crate) qemu_errors: String,
}

/// The tool's answer to an [`Ending`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The exit status.
    pub(crate) status: u8,
    /// A line for standard error.
    pub(crate) line: Option<String>,
    /// The end of the kernel's log should be shown above the line.
    pub(crate) shows_log: bool,
}

impl Ending {
    /// Decides status and message.
    pub(crate) fn verdict(&self) -> Verdict {
        if let Some(report) = &self.report {
            return self.verdict_of_report(report);
        }
        match &self.cause {
            Some(cause) => verdict_of_cause(cause),
            None => self.verdict_of_machine(),
        }
    }

    fn verdict_of_report(&self, report: &Report) -> Verdict {
        let (status, line) = match (outcome(report), &self.output_error) {
            ((0, None), Some(error)) => (STATUS_TOOL, Some(format!("standard output: {error}"))),
            (outcome, _) => outcome,
        };
        if self.qemu == QemuEnd::Exited(QEMU_PANIC) {
            let line = "the kernel panicked after the program had ended".to_string();
            return Verdict { status, line: Some(line), shows_log: true };
        }
        Verdict { status, line, shows_log: false }
    }

    fn verdict_of_machine(&self) -> Verdict {
        let (line, shows_log) = match self.qemu {
            QemuEnd::Exited(QEMU_PANIC) => ("the kernel panicked".to_string(), true),
            QemuEnd::Exited(QEMU_STOPPED) => ("the kernel stopped the library OS".to_string(), true),
            QemuEnd::Exited(QEMU_POWER_OFF) => {
                ("the machine went down without saying how the program ended".to_string(), true)
            }
            QemuEnd::Exited(0) => ("the machine reset itself (triple fault)".to_string(), true),
            QemuEnd::Exited(status) => {
                (with_errors(format!("QEMU ended with status {status}"), &self.qemu_errors), false)
            }
            QemuEnd::Killed(signal) => {
                (with_errors(format!("QEMU was ended by signal {signal}"), &self.qemu_errors), false)
            }
        };
        Verdict { status: STATUS_TOOL, line: Some(line), shows_log }
    }
}

/// What a report comes to: the status, and the line for the user.
pub(crate) fn outcome(report: &Report) -> (u8, Option<String>) {
    match report {
        Report::Exit(status) => (*status, None),
        Report::Killed { signal, text, .. } => (STATUS_SIGNAL_BASE + signal, (!text.is_empty()).then(|| text.clone())),
        Report::Fail { status, text } => (*status, Some(text.clone())),
    }
}

/// The tool's answer to the end of a machine with several pods, whose own lines were shown as they came: the status of
/// the pod that failed first; where a pod did not say how it ended, that, or what became of the machine.
pub(crate) fn verdict_of_pods(
    names: &[String],
    reports: &[Option<Report>],
    first_failure: Option<usize>,
    machine: Ending,
) -> Verdict {
    let silent = names.iter().zip(reports).filter(|(_, report)| report.is_none());
    let silent: Vec<&str> = silent.map(|(name, _)| name.as_str()).collect();
    let failed = first_failure.and_then(|number| reports.get(number)?.as_ref()).map(|report| outcome(report).0);
    if silent.is_empty() {
        // What is left is what a single program's good end does not hide either.
        return Ending { report: Some(Report::Exit(failed.unwrap_or(0))), ..machine }.verdict();
    }
    if machine.cause.is_some() || machine.qemu != QemuEnd::Exited(QEMU_POWER_OFF) {
        return machine.verdict();
    }
    let line = format!("{}: ended without saying how", silent.join(", "));
    Verdict { status: failed.unwrap_or(STATUS_TOOL), line: Some(line), shows_log: true }
}

fn verdict_of_cause(cause: &Cause) -> Verdict {
    let (status, line, shows_log) = match cause {
        Cause::Timeout(limit) => {
            (STATUS_TIMEOUT, Some(format!("ended by --timeout after {} s", limit.as_secs_f64())), false)
        }
        Cause::Signal(signal) => (STATUS_SIGNAL_BASE + signal, None, false),
        Cause::KvmFailed => (STATUS_TOOL, Some("KVM cannot run this machine here; use --accel tcg".into()), false),
        Cause::BootLimit(limit) => {
            (STATUS_TOOL, Some(format!("the machine did not come up in {} s", limit.as_secs())), true)
        }
        Cause::Version(version) => {
            let line = format!("exos speaks version {version} of the control port, not {VERSION}; build again");
            (STATUS_TOOL, Some(line), false)
        }
    };
    Verdict { status, line, shows_log }
}

/// QEMU's own words are part of the one line: its first line that is not a warning, without its program name.
fn with_errors(what: String, errors: &str) -> String {
    let lines = || errors.lines().filter(|line| !line.trim().is_empty());
    match lines().find(|line| !line.contains("warning:")).or_else(|| lines().next()) {
        Some(line) => {
            let text = line.split_once(": ").map_or(line, |(_, text)| text);
            format!("{what}: {text}")
        }
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, Ending, QemuEnd, Report, verdict_of_pods};
    use std::time::Duration;

    fn ending(report: Option<Report>, cause: Option<Cause>, qemu: QemuEnd) -> Ending {
        Ending { report, cause, output_error: None, qemu, qemu_errors: String::new() }
    }

    const OFF: QemuEnd = QemuEnd::Exited(33);

    #[test]
    fn the_programs_own_end_is_the_status() {
        assert_eq!(ending(Some(Report::Exit(7)), None, OFF).verdict().status, 7);
        let killed = Report::Killed { signal: 11, core: true, text: "store to 0x0".into() };
        let verdict = ending(Some(killed), None, OFF).verdict();
        assert_eq!((verdict.status, verdict.line.as_deref()), (139, Some("store to 0x0")));
        let fail = Report::Fail { status: 126, text: "x: is empty".into() };
        let verdict = ending(Some(fail), None, OFF).verdict();
        assert_eq!((verdict.status, verdict.line.as_deref()), (126, Some("x: is empty")));
    }

    #[test]
    fn a_report_outlives_a_late_time_limit_but_a_panic_is_shown() {
        let late = Some(Cause::Timeout(Duration::from_secs(1)));
        assert_eq!(ending(Some(Report::Exit(0)), late, QemuEnd::Killed(9)).verdict().status, 0);
        let verdict = ending(Some(Report::Exit(3)), None, QemuEnd::Exited(35)).verdict();
        assert_eq!((verdict.status, verdict.shows_log), (3, true));
    }

    #[test]
    fn what_the_tool_did_has_its_status() {
        for (cause, status) in [
            (Cause::Timeout(Duration::from_millis(1500)), 124),
            (Cause::Signal(2), 130),
            (Cause::Signal(15), 143),
            (Cause::KvmFailed, 125),
            (Cause::BootLimit(Duration::from_secs(60)), 125),
            (Cause::Version(99), 125),
        ] {
            let text = format!("{cause:?}");
            let verdict = ending(None, Some(cause), QemuEnd::Killed(9)).verdict();
            assert_eq!(verdict.status, status, "{text}");
        }
    }

    #[test]
    fn lost_output_is_a_failure_that_a_good_status_does_not_hide() {
        for (report, expected) in [(0, 125), (3, 3)] {
            let mut it = ending(Some(Report::Exit(report)), None, OFF);
            it.output_error = Some(std::io::Error::from_raw_os_error(28));
            let verdict = it.verdict();
            assert_eq!((verdict.status, verdict.line.is_some()), (expected, report == 0));
        }
    }

    #[test]
    fn a_machine_that_ends_by_itself_is_the_tools_failure() {
        for (qemu, shows_log) in [
            (QemuEnd::Exited(0), true),
            (QemuEnd::Exited(1), false),
            (OFF, true),
            (QemuEnd::Exited(35), true),
            (QemuEnd::Exited(37), true),
            (QemuEnd::Killed(9), false),
        ] {
            let verdict = ending(None, None, qemu).verdict();
            assert_eq!((verdict.status, verdict.shows_log), (125, shows_log), "{qemu:?}");
            assert!(verdict.line.is_some());
        }
    }

    #[test]
    fn of_several_pods_the_first_failure_counts() {
        let names = ["a", "b", "c"].map(String::from);
        let all = |statuses: [u8; 3]| statuses.map(|status| Some(Report::Exit(status))).to_vec();
        let verdict = |reports: &[Option<Report>], first, cause, qemu| {
            verdict_of_pods(&names, reports, first, ending(None, cause, qemu))
        };
        assert_eq!(verdict(&all([0, 0, 0]), None, None, OFF), ending(Some(Report::Exit(0)), None, OFF).verdict());
        assert_eq!(verdict(&all([3, 0, 4]), Some(2), None, OFF).status, 4);
        let mut reports = all([0, 0, 7]);
        reports[1] = None;
        let found = verdict(&reports, Some(2), None, OFF);
        assert_eq!((found.status, found.shows_log), (7, true));
        assert_eq!(found.line.as_deref(), Some("b: ended without saying how"));
        assert_eq!(verdict(&reports[..2], None, None, OFF).status, 125);
        let late = Some(Cause::Timeout(Duration::from_secs(1)));
        assert_eq!(verdict(&reports, Some(2), late, QemuEnd::Killed(9)).status, 124);
        assert_eq!(verdict(&reports, Some(2), None, QemuEnd::Exited(35)).status, 125);
        let mut lost = ending(None, None, OFF);
        lost.output_error = Some(std::io::Error::from_raw_os_error(28));
        assert_eq!(verdict_of_pods(&names, &all([0, 0, 0]), None, lost).status, 125);
    }

    #[test]
    fn qemus_own_words_are_in_the_line() {
        let mut it = ending(None, None, QemuEnd::Exited(1));
        it.qemu_errors = "qemu: warning: x\nqemu: cannot set up guest memory\nmore\n".into();
        assert_eq!(it.verdict().line.as_deref(), Some("QEMU ended with status 1: cannot set up guest memory"));
    }
}
