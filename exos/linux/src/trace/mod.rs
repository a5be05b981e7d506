//! `--trace`: a line for each system call, in the manner of strace.
//!
//! Arguments that go in are read when the call begins, because the call may change them; those that
//! come out when it has ended. How each argument of a call is shown stands in its row of the table
//! ([`crate::abi::shape`]); calls that have none show their six registers. Reading never fails a
//! call: what cannot be read is shown as an address.

mod render;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use exos::error::{Errno, Result};

use crate::abi::errno;
use crate::abi::shape::{Answer, Shape};
use crate::call::context::{Arguments, Context};
use crate::entry::table;
use render::{render_after, render_before};

/// A call that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    number: u64,
    arguments: Arguments,
    /// The text of each argument; `None` for what is known only at the end.
    texts: Vec<Option<String>>,
}

/// Reads what goes into a call.
#[must_use]
pub fn enter(context: &Context<'_>, number: u64, arguments: Arguments) -> Pending {
    let shape = table::shape(number);
    let texts = shape.arguments.iter().enumerate();
    let texts = texts.map(|(index, format)| render_before(context, *format, &arguments, index)).collect();
    Pending { number, arguments, texts }
}

impl Pending {
    /// The line, without an end of line.
    #[must_use]
    pub fn finish(self, context: &Context<'_>, result: Result<u64>) -> String {
        let Shape { arguments: formats, answer } = table::shape(self.number);
        let mut line = match table::name(self.number) {
            Some(name) => format!("{name}("),
            None => format!("syscall_{}(", self.number),
        };
        let mut separator = "";
        for (index, (text, format)) in self.texts.into_iter().zip(formats).enumerate() {
            let text = text.unwrap_or_else(|| render_after(context, *format, &self.arguments, index, result));
            if !text.is_empty() {
                line.push_str(separator);
                line.push_str(&text);
                separator = ", ";
            }
        }
        line.push_str(") = ");
        line.push_str(&answer_text(answer, result));
        line
    }
}

fn answer_text(answer: Answer, result: Result<u64>) -> String {
    match (answer, result) {
        (Answer::Never, Ok(_)) => String::from("?"),
        (_, Err(error)) => format!("-1 {} ({})", errno_name(error), errno_text(error)),
        (Answer::Address, Ok(value)) => format!("{value:#x}"),
        (Answer::Mode, Ok(value)) => format!("{value:#o}").replacen("0o", "0", 1),
        (Answer::Number, Ok(value)) => format!("{}", value.cast_signed()),
    }
}

/// The name, with one of the two for numbers that have two.
fn errno_name(error: Errno) -> String {
    match error {
        Errno::ENOTSUP => String::from("EOPNOTSUPP"),
        other => format!("{other:?}"),
    }
}

/// What C libraries say for an error.
#[must_use]
pub fn errno_text(error: Errno) -> &'static str {
    match ERROR_TEXTS.binary_search_by_key(&errno::number(error), |row| row.0) {
        Ok(index) => ERROR_TEXTS[index].1,
        Err(_) => "Unknown error",
    }
}

/// By number, ascending; the words are those of POSIX systems' `strerror`.
const ERROR_TEXTS: &[(u32, &str)] = &[
    (1, "Operation not permitted"),
    (2, "No such file or directory"),
    (3, "No such process"),
    (4, "Interrupted system call"),
    (5, "Input/output error"),
    (6, "No such device or address"),
    (7, "Argument list too long"),
    (8, "Exec format error"),
    (9, "Bad file descriptor"),
    (10, "No child processes"),
    (11, "Resource temporarily unavailable"),
    (12, "Cannot allocate memory"),
    (13, "Permission denied"),
    (14, "Bad address"),
    (16, "Device or resource busy"),
    (17, "File exists"),
    (18, "Invalid cross-device link"),
    (19, "No such device"),
    (20, "Not a directory"),
    (21, "Is a directory"),
    (22, "Invalid argument"),
    (23, "Too many open files in system"),
    (24, "Too many open files"),
    (25, "Inappropriate ioctl for device"),
    (26, "Text file busy"),
    (27, "File too large"),
    (28, "No space left on device"),
    (29, "Illegal seek"),
    (30, "Read-only file system"),
    (31, "Too many links"),
    (32, "Broken pipe"),
    (33, "Numerical argument out of domain"),
    (34, "Numerical result out of range"),
    (35, "Resource deadlock avoided"),
    (36, "File name too long"),
    (38, "Function not implemented"),
    (39, "Directory not empty"),
    (40, "Too many levels of symbolic links"),
    (61, "No data available"),
    (71, "Protocol error"),
    (75, "Value too large for defined data type"),
    (88, "Socket operation on non-socket"),
    (89, "Destination address required"),
    (90, "Message too long"),
    (91, "Protocol wrong type for socket"),
    (92, "Protocol not available"),
    (93, "Protocol not supported"),
    (95, "Operation not supported"),
    (97, "Address family not supported by protocol"),
    (98, "Address already in use"),
    (99, "Cannot assign requested address"),
    (101, "Network is unreachable"),
    (104, "Connection reset by peer"),
    (105, "No buffer space available"),
    (106, "Transport endpoint is already connected"),
    (107, "Transport endpoint is not connected"),
    (110, "Connection timed out"),
    (111, "Connection refused"),
    (114, "Operation already in progress"),
    (115, "Operation now in progress"),
    (116, "Stale file handle"),
    (125, "Operation canceled"),
    (130, "Owner died"),
    (131, "State not recoverable"),
];
