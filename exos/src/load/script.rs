//! The first line of a script: `#!interpreter [argument]`.
//!
//! Pure text; opening the interpreter, once or repeatedly, is the caller's part. As Linux's `fs/binfmt_script.c` reads
//! it: the first 256 bytes count, all that follows the interpreter's name is one argument, trailing blanks are dropped.

use alloc::vec::Vec;

use crate::error::{Errno, Result};

/// Bytes of a file that decide what it is.
pub const HEAD_BYTES: usize = 256;
/// How many times one `execve` may go from a script to its interpreter; one more is `ELOOP`.
pub const SCRIPT_REWRITES_MAX: usize = 5;

/// What the first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptLine {
    /// Path of the interpreter as written.
    pub interpreter: Vec<u8>,
    /// Its argument, if there is one.
    pub argument: Option<Vec<u8>>,
}

/// Reads the first line of a file from its first bytes (at most [`HEAD_BYTES`] count): `None` if it
/// is no script; `ENOEXEC` if it names no interpreter, or one whose name is cut off; `EACCES` if the file ends
/// before the name.
pub fn parse_script(head: &[u8]) -> Option<Result<ScriptLine>> {
    head.starts_with(b"#!").then(|| parse_line(head))
}

/// The arguments of the interpreter: its path, its argument, the script's path, and the script's
/// arguments without the first.
#[must_use]
pub fn script_arguments(line: &ScriptLine, script: &[u8], arguments: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut rewritten = Vec::with_capacity(arguments.len() + 2);
    rewritten.push(line.interpreter.clone());
    rewritten.extend(line.argument.clone());
    rewritten.push(script.to_vec());
    rewritten.extend(arguments.iter().skip(1).cloned());
    rewritten
}

fn parse_line(head: &[u8]) -> Result<ScriptLine> {
    let mut buffer = [0; HEAD_BYTES];
    let length = head.len().min(HEAD_BYTES);
    buffer[..length].copy_from_slice(&head[..length]);
    let body = &buffer[2..];
    let line = match body.iter().position(|&byte| byte == b'\n') {
        Some(end) => &body[..end],
        None => cut_line(body)?,
    };
    let line = trim_end(trim_start(line));
    if line.is_empty() {
        return Err(Errno::ENOEXEC);
    }
    if line[0] == 0 {
        // A name without a letter is the working directory's, and that cannot be executed.
        return Err(Errno::EACCES);
    }
    let name_end = line.iter().position(|&byte| is_blank(byte) || byte == 0);
    let (name, rest) = line.split_at(name_end.unwrap_or(line.len()));
    let argument = match rest.first() {
        Some(&byte) if byte != 0 => until_zero(trim_start(rest)),
        _ => &[],
    };
    Ok(ScriptLine { interpreter: name.to_vec(), argument: (!argument.is_empty()).then(|| argument.to_vec()) })
}

/// A line without an end in the buffer: usable if the interpreter's name surely ends in it.
fn cut_line(body: &[u8]) -> Result<&[u8]> {
    let usable = &body[..body.len() - 1];
    let name = trim_start(usable);
    if name.iter().any(|&byte| is_blank(byte) || byte == 0) { Ok(usable) } else { Err(Errno::ENOEXEC) }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| !is_blank(byte)).unwrap_or(text.len());
    &text[start..]
}

fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| !is_blank(byte)).map_or(0, |last| last + 1);
    &text[..end]
}

fn until_zero(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::{ScriptLine, parse_script, script_arguments};
    use crate::error::Errno;

    fn parsed(head: &[u8]) -> Option<Result<(String, Option<String>), Errno>> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("ASCII");
        parse_script(head).map(|line| line.map(|line| (text(line.interpreter), line.argument.map(text))))
    }

    fn line(interpreter: &str, argument: Option<&str>) -> Option<Result<(String, Option<String>), Errno>> {
        Some(Ok((interpreter.into(), argument.map(Into::into))))
    }

    #[test]
    fn lines_as_linux_reads_them() {
        assert_eq!(parsed(b"\x7fELF"), None);
        assert_eq!(parsed(b"#"), None);
        assert_eq!(parsed(b"#!/bin/sh\necho"), line("/bin/sh", None));
        assert_eq!(parsed(b"#! \t /bin/sh  -e  -u \t\nx"), line("/bin/sh", Some("-e  -u")));
        assert_eq!(parsed(b"#!/usr/bin/env python3\n"), line("/usr/bin/env", Some("python3")));
        assert_eq!(parsed(b"#!/bin/sh"), line("/bin/sh", None));
        assert_eq!(parsed(b"#!sh"), line("sh", None));
        for broken in [&b"#!\n/bin/sh"[..], b"#!  \t\n"] {
            assert_eq!(parsed(broken), Some(Err(Errno::ENOEXEC)), "{broken:?}");
        }
        for cut in [&b"#!"[..], b"#!   "] {
            assert_eq!(parsed(cut), Some(Err(Errno::EACCES)), "{cut:?}");
        }
    }

    #[test]
    fn a_long_line_counts_up_to_255_bytes() {
        let mut long = b"#!/bin/sh ".to_vec();
        long.resize(300, b'a');
        let expected = "a".repeat(245);
        assert_eq!(parsed(&long), line("/bin/sh", Some(&expected)));
        let mut endless = b"#!/".to_vec();
        endless.resize(300, b'b');
        assert_eq!(parsed(&endless), Some(Err(Errno::ENOEXEC)));
        endless[254] = b' ';
        assert!(matches!(parsed(&endless), Some(Ok((name, None))) if name.len() == 252));
    }

    #[test]
    fn the_script_takes_the_place_of_the_first_argument() {
        let line = ScriptLine { interpreter: b"/bin/sh".to_vec(), argument: Some(b"-e".to_vec()) };
        let arguments = [b"zero".to_vec(), b"one".to_vec()];
        let rewritten = script_arguments(&line, b"./run", &arguments);
        assert_eq!(rewritten, [&b"/bin/sh"[..], b"-e", b"./run", b"one"]);
    }
}
