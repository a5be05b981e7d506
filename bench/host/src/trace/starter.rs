//! How a traced machine is started, and what goes wrong on the host where one is.

use std::path::Path;

use aegis_launch::errors::Error;

use super::super::failure::Failure;
use super::super::guest::Line;

/// What a line starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    /// This tool, which starts QEMU.
    Tool,
    /// QEMU.
    Qemu,
}

pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::file("reading", path.into(), error))
}

/// The words that make `aegis run` pass words on to QEMU, or QEMU's own.
pub(crate) fn add_qemu_words(line: &mut Line, starter: Starter, words: [String; 2]) {
    match starter {
        Starter::Tool => {
            // Behind the verb.
            let words = words.map(|word| format!("--qemu-word={word}").into());
            line.arguments.splice(1..1, words);
        }
        Starter::Qemu => line.arguments.extend(words.map(Into::into)),
    }
}

/// What went wrong on the host.
pub(crate) fn host(doing: &'static str) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::Tool(Error::Host(doing, error))
}
