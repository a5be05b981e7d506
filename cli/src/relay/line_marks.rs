//! Lines that say whose they are: the output of several pods on one stream.
//!
//! A line of a pod is passed on when it is complete, with the pod's mark in front, so that lines of two pods are never
//! mixed. What is longer than [`LINE_BYTES_MAX`] is cut into several lines, and what has no newline at the end of a
//! pod gets one.

/// Longest line that is kept together, mark aside: what a pipe takes in one piece, less room for the mark.
pub(crate) const LINE_BYTES_MAX: usize = 4000;

/// Marks the lines of one stream.
#[derive(Debug)]
pub(crate) struct Marker {
    mark: String,
    partial: Vec<u8>,
}

impl Marker {
    /// A marker; `mark` stands in front of every line.
    pub(crate) fn new(mark: String) -> Self {
        Self { mark, partial: Vec::new() }
    }

    /// Takes bytes in, adds the lines that they complete to `lines`.
    pub(crate) fn push(&mut self, bytes: &[u8], lines: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            while self.partial.len() > LINE_BYTES_MAX {
                let rest = self.partial.split_off(LINE_BYTES_MAX);
                self.finish(lines);
                self.partial = if rest == b"\n" { Vec::new() } else { rest };
            }
            if self.partial.ends_with(b"\n") {
                self.finish(lines);
            }
        }
    }

    /// Lines of this marker without the mark.
    pub(crate) fn unmarked(&self, lines: &[u8]) -> Vec<u8> {
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        lines.flat_map(|line| line.strip_prefix(self.mark.as_bytes()).unwrap_or(line)).copied().collect()
    }

    /// The stream has ended: what is left becomes a line.
    pub(crate) fn finish(&mut self, lines: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return;
        }
        lines.extend_from_slice(self.mark.as_bytes());
        lines.append(&mut self.partial);
        if !lines.ends_with(b"\n") {
            lines.push(b'\n');
        }
    }
}

/// The marks of pods: their names, as wide as the widest.
pub(crate) fn marks(names: &[String]) -> Vec<String> {
    let width = names.iter().map(String::len).max().unwrap_or(0);
    names.iter().map(|name| format!("{name:width$} | ")).collect()
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, Marker, marks};

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        let stream = b"one\n\ntwo\r\nlast";
        for cut in 0..=stream.len() {
            let mut marker = Marker::new("a | ".into());
            let mut lines = Vec::new();
            marker.push(&stream[..cut], &mut lines);
            marker.push(&stream[cut..], &mut lines);
            assert_eq!(lines, b"a | one\na | \na | two\r\n", "cut {cut}");
            marker.finish(&mut lines);
            marker.finish(&mut lines);
            assert_eq!(lines, b"a | one\na | \na | two\r\na | last\n", "cut {cut}");
        }
    }

    #[test]
    fn long_lines_are_cut_and_lose_nothing() {
        for length in [LINE_BYTES_MAX - 1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 3 * LINE_BYTES_MAX + 7] {
            let mut text = vec![b'x'; length];
            text.push(b'\n');
            let (mut marker, mut lines) = (Marker::new("> ".into()), Vec::new());
            marker.push(&text, &mut lines);
            marker.finish(&mut lines);
            let pieces: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
            assert_eq!(pieces.len(), length.div_ceil(LINE_BYTES_MAX), "{length}");
            assert_eq!(pieces.iter().map(|piece| piece.len() - 2).sum::<usize>(), length);
            assert!(pieces.iter().all(|piece| piece.starts_with(b"> ") && piece.len() <= LINE_BYTES_MAX + 2));
        }
    }

    #[test]
    fn marks_have_one_width() {
        assert_eq!(marks(&["web".into(), "worker".into()]), ["web    | ", "worker | "]);
        assert_eq!(marks(&["a".into()]), ["a | "]);
    }
}
