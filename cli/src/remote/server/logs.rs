//! What pods wrote, as far as it is kept: the last [`POD_BYTES_MAX`] bytes of each, in whole lines.
//!
//! Lines of all pods are numbered as they come, so that a reader that follows has a place in the log and not a copy of
//! it: one that is slow loses lines that are no longer kept, is told how many, and holds up nobody.

use std::collections::VecDeque;

/// Bytes that are kept of each pod.
pub(crate) const POD_BYTES_MAX: usize = 256 * 1024;
/// What a line costs besides its bytes.
const LINE_BYTES: usize = 32;

/// A line of a pod, with its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// It was written to standard error.
    pub(crate) is_error: bool,
    pub(crate) text: Vec<u8>,
    number: u64,
}

#[derive(Debug, Default)]
struct PodLog {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Number behind the last line that is no longer kept.
    lost_before: u64,
}

/// The logs of all pods.
#[derive(Debug)]
pub(crate) struct Logs {
    pods: Vec<PodLog>,
    next: u64,
}

/// Where a reader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    next: u64,
    /// By pod: up to where the reader knows of lines that are no longer kept.
    told: Vec<u64>,
}

/// What a reader gets next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// This line, of this pod.
    Line(usize, &'a Line),
    /// Some lines of this pod were not kept.
    Lost(usize),
    /// There is nothing yet.
    Nothing,
}

impl Logs {
    /// Empty logs.
    pub(crate) fn new(pod_count: usize) -> Self {
        Self { pods: (0..pod_count).map(|_| PodLog::default()).collect(), next: 1 }
    }

    /// Keeps whole lines of a pod.
    pub(crate) fn keep(&mut self, pod: usize, is_error: bool, text: &[u8]) {
        let Some(log) = self.pods.get_mut(pod) else { return };
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            log.bytes += line.len() + LINE_BYTES;
            log.lines.push_back(Line { is_error, text: line.to_vec(), number: self.next });
            self.next += 1;
        }
        while log.bytes > POD_BYTES_MAX {
            let Some(line) = log.lines.pop_front() else { break };
            log.bytes -= line.text.len() + LINE_BYTES;
            log.lost_before = line.number + 1;
        }
    }

    /// Where a reader begins who wants the last `count` lines of `pod`, or of all. It expects none that are long gone.
    pub(crate) fn position_of_last(&self, pod: Option<usize>, count: u64) -> Position {
        let wanted = self.pods.iter().enumerate().filter(|(number, _)| pod.is_none_or(|pod| pod == *number));
        let mut numbers: Vec<u64> = wanted.flat_map(|(_, log)| &log.lines).map(|line| line.number).collect();
        numbers.sort_unstable_by(|left, right| right.cmp(left));
        let next = match count.checked_sub(1).map(|place| numbers.get(usize::try_from(place).unwrap_or(usize::MAX))) {
            None => self.next,
            Some(first) => first.copied().unwrap_or(0),
        };
        Position { next, told: self.pods.iter().map(|log| log.lost_before).collect() }
    }

    /// What a reader of `pod`, or of all, gets next; its position moves on.
    pub(crate) fn read(&self, pod: Option<usize>, position: &mut Position) -> Next<'_> {
        let all = || self.pods.iter().enumerate().filter(|(number, _)| pod.is_none_or(|pod| pod == *number));
        let is_news = |log: &PodLog, told: u64| log.lost_before > position.next && log.lost_before > told;
        if let Some((number, log)) = all().find(|(number, log)| is_news(log, position.told[*number])) {
            position.told[number] = log.lost_before;
            return Next::Lost(number);
        }
        let after = |log: &'_ PodLog| log.lines.partition_point(|line| line.number < position.next);
        let first = all().filter_map(|(number, log)| Some((number, log.lines.get(after(log))?)));
        match first.min_by_key(|(_, line)| line.number) {
            Some((number, line)) => {
                position.next = line.number + 1;
                Next::Line(number, line)
            }
            None => {
                position.next = self.next;
                Next::Nothing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Logs, Next, POD_BYTES_MAX, Position};

    fn texts(logs: &Logs, pod: Option<usize>, position: &mut Position) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            match logs.read(pod, position) {
                Next::Line(pod, line) => found.push(format!("{pod} {}", String::from_utf8_lossy(&line.text).trim())),
                Next::Lost(pod) => found.push(format!("{pod} lost")),
                Next::Nothing => return found,
            }
        }
    }

    fn beginning(logs: &Logs) -> Position {
        logs.position_of_last(None, u64::MAX)
    }

    #[test]
    fn lines_come_in_order_and_a_reader_goes_on_where_it_was() {
        let mut logs = Logs::new(2);
        let (mut all, mut one) = (beginning(&logs), beginning(&logs));
        logs.keep(0, false, b"a\nb\n");
        logs.keep(1, true, b"c\n");
        assert_eq!(texts(&logs, None, &mut all), ["0 a", "0 b", "1 c"]);
        assert_eq!(texts(&logs, Some(1), &mut one), ["1 c"]);
        logs.keep(0, false, b"d\n");
        logs.keep(9, false, b"nobody\n");
        assert_eq!(texts(&logs, None, &mut all), ["0 d"]);
        assert_eq!(texts(&logs, Some(1), &mut one), [""; 0]);
    }

    #[test]
    fn a_reader_begins_at_the_last_lines() {
        let mut logs = Logs::new(2);
        logs.keep(0, false, b"a\nb\n");
        logs.keep(1, false, b"c\n");
        logs.keep(0, false, b"d\n");
        let last = |pod, count| texts(&logs, pod, &mut logs.position_of_last(pod, count));
        assert_eq!(last(None, 2), ["1 c", "0 d"]);
        assert_eq!(last(Some(0), 2), ["0 b", "0 d"]);
        assert_eq!((last(None, 0), last(Some(1), 1)), (vec![], vec!["1 c".to_owned()]));
        assert_eq!((last(None, 9).len(), last(None, u64::MAX).len()), (4, 4));
        let mut position = logs.position_of_last(None, 0);
        logs.keep(1, false, b"e\n");
        assert_eq!(texts(&logs, None, &mut position), ["1 e"]);
    }

    #[test]
    fn a_pod_that_writes_much_loses_its_own_lines_only() {
        let mut logs = Logs::new(2);
        let mut slow = beginning(&logs);
        logs.keep(1, false, b"first\n");
        assert_eq!(texts(&logs, None, &mut slow), ["1 first"]);
        logs.keep(1, false, b"kept\n");
        for number in 0..POD_BYTES_MAX / 10 {
            logs.keep(0, false, format!("{number}\n").as_bytes());
        }
        assert!(logs.pods[0].bytes <= POD_BYTES_MAX && logs.pods[0].lost_before > 0);
        let found = texts(&logs, Some(1), &mut beginning(&logs));
        assert_eq!(found, ["1 first", "1 kept"]);
        let found = texts(&logs, None, &mut slow);
        assert_eq!(found[..2], ["0 lost", "1 kept"], "and nobody else's");
        assert_eq!(found.last(), Some(&format!("0 {}", POD_BYTES_MAX / 10 - 1)));
    }
}
