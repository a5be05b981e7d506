//! The kernel's command line: words separated by blanks, each `key` or `key=value`.
//!
//! QEMU adds words of its own (`virtio_mmio.device=…`), so words that nobody asks for are ignored.

/// The value of the last `key=value` word; an empty string for a bare `key`.
#[must_use]
pub fn value<'line>(line: &'line str, key: &str) -> Option<&'line str> {
    values(line, key).last()
}

/// The values of every `key=value` word, in order.
pub fn values<'line, 'key>(line: &'line str, key: &'key str) -> impl Iterator<Item = &'line str> + use<'line, 'key> {
    line.split_ascii_whitespace().filter_map(move |word| match word.split_once('=') {
        Some((name, value)) if name == key => Some(value),
        None if word == key => Some(""),
        _ => None,
    })
}

/// A virtio-mmio block that the monitor put on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioMmioWord {
    /// Physical address.
    pub address: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// Interrupt line (GSI).
    pub interrupt: u32,
}

/// Decodes `SIZE@ADDRESS:IRQ` (size with an optional K or M suffix, numbers as in C).
#[must_use]
pub fn parse_virtio_mmio(value: &str) -> Option<VirtioMmioWord> {
    let (size, rest) = value.split_once('@')?;
    let mut parts = rest.split(':');
    let address = number(parts.next()?)?;
    let interrupt = u32::try_from(number(parts.next()?)?).ok()?;
    let (digits, scale) = match size.as_bytes().last()? {
        b'k' | b'K' => (&size[..size.len() - 1], 1024),
        b'm' | b'M' => (&size[..size.len() - 1], 1024 * 1024),
        _ => (size, 1),
    };
    Some(VirtioMmioWord { address, length_bytes: number(digits)?.checked_mul(scale)?, interrupt })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
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
        assert_eq!(values(line, "log").count(), 2);
    }

    #[test]
    fn virtio_mmio_words_are_decoded() {
        let expected = VirtioMmioWord { address: 0xfeb0_0e00, length_bytes: 512, interrupt: 12 };
        assert_eq!(parse_virtio_mmio("512@0xfeb00e00:12"), Some(expected));
        assert_eq!(parse_virtio_mmio("4K@1048576:3:7").map(|word| word.length_bytes), Some(4096));
        for bad in ["", "512", "512@", "512@0x", "@1:2", "512@1:x", "99999999999999999999@1:2"] {
            assert_eq!(parse_virtio_mmio(bad), None, "{bad}");
        }
    }
}
