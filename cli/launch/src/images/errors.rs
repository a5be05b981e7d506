//! Why an image cannot be had: its maker's fault, its words', the registry's, or this host's.

use std::fmt;
use std::io;

/// Why there is no image. Its `Display` is one line, and says what to do where the user can do something.
#[derive(Debug)]
pub enum ImageError {
    /// The words that name the image are wrong.
    Source(String),
    /// The host refused something.
    Io(String, io::Error),
    /// A digest that is none, before it was used for anything.
    DigestForm(String),
    /// A blob is not the one that its digest names.
    Digest {
        /// Which blob.
        what: String,
        /// Its digest by the document that names it.
        expected: String,
        /// Its digest by its bytes.
        found: String,
    },
    /// A blob has another length than the document that names it says.
    Size {
        /// Which blob.
        what: String,
        /// By the document.
        expected: u64,
        /// As far as it was read.
        found: u64,
    },
    /// A document of the image is not as the format has it.
    Document {
        /// Which document.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something that a document names is not there.
    Missing(String),
    /// A member of an archive has no place in a root, or the archive is damaged.
    Member {
        /// The member's path, or where the archive is damaged.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// More than an image may hold: a limit, by name.
    TooLarge(String),
    /// The image is for other machines.
    Platform(String),
    /// The image's user, or the one that was asked for, is not in its accounts.
    User(String),
    /// A registry's answer.
    Registry(String),
    /// Another tool is needed, or failed.
    Tool(String),
}

impl fmt::Display for ImageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(text)
            | Self::TooLarge(text)
            | Self::Platform(text)
            | Self::User(text)
            | Self::Registry(text)
            | Self::Tool(text) => out.write_str(text),
            Self::Io(doing, error) => write!(out, "{doing}: {error}"),
            Self::DigestForm(text) => {
                write!(out, "{}: not a digest; one is sha256: and 64 hexadecimal digits", shown(text.as_bytes()))
            }
            Self::Digest { what, expected, found } => {
                write!(out, "{what}: wrong digest: it should be {expected}, and is {found}; fetch the image again")
            }
            Self::Size { what, expected, found } => {
                write!(out, "{what}: wrong size: it should be {expected} bytes, and is {found} or more")
            }
            Self::Document { what, why } => write!(out, "{what}: {why}"),
            Self::Missing(what) => write!(out, "{what}: not in the image, which is incomplete"),
            Self::Member { path, why } => write!(out, "hostile or damaged layer: {path}: {why}"),
        }
    }
}

impl std::error::Error for ImageError {}

/// Longest text of an image's that a message repeats.
const SHOWN_BYTES_MAX: usize = 200;

/// Bytes of an image as a message shows them: bounded, and without anything that a terminal acts on.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let mut text: String = String::from_utf8_lossy(cut).escape_debug().collect();
    if cut.len() < bytes.len() {
        text.push_str("...");
    }
    text
}

/// Names what the host was asked to do.
pub(crate) trait WhileDoing<T> {
    /// Wraps an I/O error.
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T, ImageError>;
}

impl<T> WhileDoing<T> for io::Result<T> {
    fn while_doing(self, what: impl FnOnce() -> String) -> Result<T, ImageError> {
        self.map_err(|error| ImageError::Io(what(), error))
    }
}
