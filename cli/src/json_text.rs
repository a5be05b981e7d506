//! Text as a JSON string (RFC 8259, section 7).
//!
//! What the tool writes as JSON is flat enough for `format!`; only strings need care, since names and reasons come
//! from the guest.

use std::fmt::Write as _;

/// In quotes, with what JSON does not allow there escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn what_json_does_not_allow_is_escaped() {
        assert_eq!(quoted("plain, ü"), "\"plain, ü\"");
        assert_eq!(quoted("a\"b\\c\nd\u{7f}"), r#""a\"b\\c\u000ad\u007f""#);
    }
}
