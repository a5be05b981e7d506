//! Structures as bytes: an encoder that writes fields in order, little-endian, at natural alignment where asked, and
//! its reverse.
//!
//! A program's structure is an allegation: it is copied whole, then decoded from the copy.

use alloc::vec::Vec;

/// Longest structure that is built often: `struct stat`.
const USUAL_BYTES: usize = 144;

/// Builds a structure.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

macro_rules! put {
    ($($name:ident: $type:ty),*) => {
        $(
            /// Appends one field.
            #[must_use]
            pub fn $name(mut self, value: $type) -> Self {
                self.bytes.extend_from_slice(&value.to_le_bytes());
                self
            }
        )*
    };
}

impl Encoder {
    /// An empty structure, with room for most that there are.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(USUAL_BYTES) }
    }

    put!(u8: u8, u16: u16, u32: u32, i32: i32, u64: u64, i64: i64);

    /// Appends raw bytes.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends zeros up to `offset` from the start.
    #[must_use]
    pub fn zero_to(mut self, offset: usize) -> Self {
        assert!(self.bytes.len() <= offset, "a structure field lies behind");
        self.bytes.resize(offset, 0);
        self
    }

    /// Appends `text` cut or zero-filled to `length` bytes, always ending in a zero.
    #[must_use]
    pub fn string(mut self, text: &[u8], length: usize) -> Self {
        let end = self.bytes.len() + length;
        self.bytes.extend_from_slice(&text[..text.len().min(length - 1)]);
        self.bytes.resize(end, 0);
        self
    }

    /// The structure.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

macro_rules! get {
    ($($name:ident: $type:ty),*) => {
        $(
            /// The field at `offset`; zero beyond the end.
            #[must_use]
            pub fn $name(bytes: &[u8], offset: usize) -> $type {
                let mut field = [0; size_of::<$type>()];
                if let Some(from) = bytes.get(offset..offset + size_of::<$type>()) {
                    field.copy_from_slice(from);
                }
                <$type>::from_le_bytes(field)
            }
        )*
    };
}

/// Readers of single fields.
pub mod get {
    get!(u16: u16, u32: u32, i32: i32, u64: u64, i64: i64);
}

#[cfg(test)]
mod tests {
    use super::{Encoder, get};

    #[test]
    fn fields_come_back() {
        let bytes = Encoder::new().u16(1).zero_to(8).u64(7).i32(-2).string(b"abcdef", 4).finish();
        assert_eq!(bytes.len(), 24);
        assert_eq!(get::u16(&bytes, 0), 1);
        assert_eq!(get::u64(&bytes, 8), 7);
        assert_eq!(get::i32(&bytes, 16), -2);
        assert_eq!(&bytes[20..], b"abc\0");
        assert_eq!(get::u64(&bytes, 20), 0);
    }
}
