//! The kernel's command line: words separated by blanks, each `key` or `key=value`.
//!
//! QEMU adds words of its own (`virtio_mmio.device=…`), so words that nobody asks for are ignored.

/// The value of the last `key=value` word; an empty string for a bare `key`.
#[must_use]
pub fn value<'line>(line: &'line str, key: &str) -> Option<&'line str> {
    let mut words = line.split_ascii_whitespace().map(|word| word.split_once('=').unwrap_or((word, "")));
    words.rfind(|(name, _)| *name == key).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_key_and_the_last_wins() {
        let line = "log=info quiet  log=debug x=a=b";
        assert_eq!(value(line, "log"), Some("debug"));
        assert_eq!(value(line, "quiet"), Some(""));
        assert_eq!(value(line, "x"), Some("a=b"));
        assert_eq!(value(line, "lo"), None);
    }
}
