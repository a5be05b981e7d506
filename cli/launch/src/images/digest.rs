//! Digests of blobs: read, shown, taken of bytes as they pass.
//!
//! A digest becomes part of a path of the host, so nothing else than 64 lower-case hexadecimal digits ever is one.
//! SHA-256 is the one algorithm that images use in practice; others are refused by name.

use std::fmt;
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use crate::images::errors::ImageError;

/// Digits of a SHA-256 digest.
const DIGIT_COUNT: usize = 64;

/// A SHA-256 digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    /// Reads `sha256:` and 64 digits.
    ///
    /// # Errors
    /// `DigestForm`.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let digits = text.strip_prefix("sha256:").ok_or_else(|| ImageError::DigestForm(text.into()))?;
        Self::of_digits(digits).ok_or_else(|| ImageError::DigestForm(text.into()))
    }

    /// The digest that these digits are.
    pub(crate) fn of_digits(digits: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (digits.len() == DIGIT_COUNT && digits.bytes().all(is_digit)).then(|| Self(digits.into()))
    }

    /// The digest of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_hash(&Sha256::digest(bytes))
    }

    fn of_hash(hash: &[u8]) -> Self {
        Self(hash.iter().fold(String::with_capacity(DIGIT_COUNT), |text, byte| text + &format!("{byte:02x}")))
    }

    /// Its digits.
    pub fn digits(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sha256:{}", self.0)
    }
}

/// Takes the digest and the length of what is read through it.
pub(crate) struct HashingReader<R> {
    inner: R,
    hash: Sha256,
    byte_count: u64,
}

impl<R> HashingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), byte_count: 0 }
    }

    /// Bytes that were read so far.
    pub(crate) fn byte_count(&self) -> u64 {
        self.byte_count
    }

    /// Counts bytes that came another way.
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.byte_count += bytes.len() as u64;
    }

    /// The digest of what was read.
    pub(crate) fn finish(self) -> Digest {
        Digest::of_hash(&self.hash.finalize())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        self.byte_count += count as u64;
        Ok(count)
    }
}

/// Reads a small blob whole and checks its length and digest.
///
/// # Errors
/// `TooLarge`, `Size`, `Digest`, `Io`.
pub(crate) fn read_checked(
    reader: &mut dyn Read,
    what: &str,
    digest: &Digest,
    size_bytes: u64,
    bytes_max: u64,
) -> Result<Vec<u8>, ImageError> {
    if size_bytes > bytes_max {
        return Err(ImageError::TooLarge(format!("{what}: {size_bytes} bytes; at most {bytes_max} are read")));
    }
    let mut bytes = Vec::new();
    let read = reader.take(size_bytes + 1).read_to_end(&mut bytes);
    read.map_err(|error| ImageError::Io(format!("reading {what}"), error))?;
    if bytes.len() as u64 != size_bytes {
        return Err(ImageError::Size { what: what.into(), expected: size_bytes, found: bytes.len() as u64 });
    }
    let found = Digest::of(&bytes);
    if found == *digest {
        Ok(bytes)
    } else {
        Err(ImageError::Digest { what: what.into(), expected: digest.to_string(), found: found.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::{Digest, HashingReader, read_checked};
    use crate::images::errors::ImageError;
    use std::io::Read;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn only_digests_are_digests() {
        assert_eq!(Digest::parse(EMPTY).expect("a digest"), Digest::of(b""));
        for text in ["", "sha256:", "../../etc/passwd", "sha256:../../../../etc/passwd", "sha512:00", &EMPTY[7..]] {
            assert!(matches!(Digest::parse(text), Err(ImageError::DigestForm(_))), "{text}");
        }
        assert!(Digest::parse(&EMPTY.to_uppercase().replace("SHA", "sha")).is_err());
    }

    #[test]
    fn small_blobs_are_checked_whole() {
        let digest = Digest::of(b"blob");
        assert_eq!(read_checked(&mut &b"blob"[..], "it", &digest, 4, 10).expect("right"), b"blob");
        let wrong = |bytes: &[u8], size| read_checked(&mut &*bytes, "it", &digest, size, 10).expect_err("wrong");
        assert!(matches!(wrong(b"blub", 4), ImageError::Digest { .. }));
        assert!(matches!(wrong(b"blob", 3), ImageError::Size { .. }));
        assert!(matches!(wrong(b"blob", 5), ImageError::Size { .. }));
        assert!(matches!(wrong(b"blob", 11), ImageError::TooLarge(_)));
    }

    #[test]
    fn what_passes_is_hashed() {
        let mut reader = HashingReader::new(&b"abc"[..]);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("read");
        assert_eq!((reader.byte_count(), reader.finish()), (3, Digest::of(b"abc")));
    }
}
