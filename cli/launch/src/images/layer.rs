//! A layer on its way into the cache: decompressed, checked by both of its digests, stored under the second.
//!
//! What is stored is the plain tar archive under the digest of its own bytes (`diff_id`), so layers are shared by all
//! images, however each was compressed. Nothing appears under its name before both digests were right.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

use crate::images::digest::{Digest, HashingReader};
use crate::images::errors::{ImageError, WhileDoing};

/// Longest layer, decompressed.
pub(crate) const LAYER_BYTES_MAX: u64 = 32 << 30;
/// Up to here any ratio of contents to layer is believed.
pub(crate) const UNSUSPICIOUS_BYTES: u64 = 128 << 20;
/// Beyond that, contents are at most so many times as long.
pub(crate) const RATIO_MAX: u64 = 200;
const BUFFER_BYTES: usize = 128 * 1024;
/// Formats by their first bytes.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// zstd's frames without contents: 0x184d2a50 to 0x184d2a5f.
const ZSTD_SKIP_MAGIC: [u8; 3] = [0x2a, 0x4d, 0x18];

/// What is known of a layer before it is read.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// Digest and length as it is transported, unless the format has none.
    pub(crate) blob: Option<(Digest, u64)>,
    /// Digest of the decompressed archive.
    pub(crate) diff_id: Digest,
}

/// Writes a layer's archive to `path`, by way of `temporary`.
///
/// # Errors
/// `Digest`, `Size`, `TooLarge`, `Member` for damaged compression, `Io`. Nothing is left behind then.
pub(crate) fn store(
    source: &mut dyn Read,
    expected: &Expected,
    temporary: &Path,
    path: &Path,
    tell: &mut dyn FnMut(u64),
) -> Result<(), ImageError> {
    let stored = write(source, expected, temporary, tell)
        .and_then(|()| std::fs::rename(temporary, path).while_doing(|| format!("storing {}", path.display())));
    if stored.is_err() {
        let _ = std::fs::remove_file(temporary);
    }
    stored
}

fn write(
    source: &mut dyn Read,
    expected: &Expected,
    temporary: &Path,
    tell: &mut dyn FnMut(u64),
) -> Result<(), ImageError> {
    let what = || format!("layer {}", expected.diff_id);
    let blob_bytes_max = expected.blob.as_ref().map_or(LAYER_BYTES_MAX, |(_, size)| *size);
    // One byte more than there should be, so that too much is noticed.
    let mut source = BufReader::with_capacity(BUFFER_BYTES, HashingReader::new(source.take(blob_bytes_max + 1)));
    let file = File::options().write(true).create(true).truncate(true).open(temporary);
    let mut sink = Sink {
        file: BufWriter::with_capacity(BUFFER_BYTES, file.while_doing(|| format!("writing {}", temporary.display()))?),
        hash: HashingReader::new(io::empty()),
        byte_count: 0,
    };
    decompress(&mut source, &mut sink, &what, tell)?;
    // What follows the last frame belongs to the blob.
    io::copy(&mut source, &mut io::sink()).while_doing(|| format!("reading {}", what()))?;
    let source = source.into_inner();
    if let Some((digest, size)) = &expected.blob {
        if source.byte_count() != *size {
            return Err(ImageError::Size { what: what(), expected: *size, found: source.byte_count() });
        }
        check(&what(), digest, source.finish())?;
    }
    sink.file.flush().while_doing(|| format!("writing {}", temporary.display()))?;
    check(&what(), &expected.diff_id, sink.hash.finish())
}

fn check(what: &str, expected: &Digest, found: Digest) -> Result<(), ImageError> {
    if *expected == found {
        return Ok(());
    }
    Err(ImageError::Digest { what: what.into(), expected: expected.to_string(), found: found.to_string() })
}

/// A whole archive without its compression: the file itself, or what was in it, in a file that has no name any more.
///
/// # Errors
/// As for [`store`].
pub(crate) fn plain(mut file: File, temporary: &Path) -> Result<File, ImageError> {
    let mut start = [0; 4];
    let count = file.read(&mut start).while_doing(|| "reading an archive".into())?;
    file.rewind().while_doing(|| "reading an archive".into())?;
    if !start[..count].starts_with(&GZIP_MAGIC) && !is_zstd(&start[..count]) {
        return Ok(file);
    }
    let what = || temporary.display().to_string();
    let plain = File::options().read(true).write(true).create(true).truncate(true).open(temporary).while_doing(what)?;
    std::fs::remove_file(temporary).while_doing(what)?;
    let copy = plain.try_clone().while_doing(what)?;
    let mut sink = Sink {
        file: BufWriter::with_capacity(BUFFER_BYTES, copy),
        hash: HashingReader::new(io::empty()),
        byte_count: 0,
    };
    let file: &mut dyn Read = &mut file;
    let mut source = BufReader::with_capacity(BUFFER_BYTES, HashingReader::new(file.take(LAYER_BYTES_MAX)));
    decompress(&mut source, &mut sink, &|| "the archive".into(), &mut |_| {})?;
    sink.file.flush().while_doing(what)?;
    Ok(plain)
}

/// Where a layer's archive goes, with its digest.
struct Sink {
    file: BufWriter<File>,
    hash: HashingReader<io::Empty>,
    byte_count: u64,
}

type Source<'a> = BufReader<HashingReader<io::Take<&'a mut dyn Read>>>;

fn decompress(
    source: &mut Source<'_>,
    sink: &mut Sink,
    what: &dyn Fn() -> String,
    tell: &mut dyn FnMut(u64),
) -> Result<(), ImageError> {
    let start = source.fill_buf().while_doing(|| format!("reading {}", what()))?;
    if start.starts_with(&GZIP_MAGIC) {
        let mut decoder = MultiGzDecoder::new(source);
        return copy(&mut decoder, |decoder| decoder.get_ref().get_ref().byte_count(), sink, what, tell);
    }
    if is_zstd(start) {
        return frames(source, sink, what, tell);
    }
    copy(source, |source| source.get_ref().byte_count(), sink, what, tell)
}

fn is_zstd(start: &[u8]) -> bool {
    start.starts_with(&ZSTD_MAGIC) || (start.len() >= 4 && start[0] & 0xf0 == 0x50 && start[1..4] == ZSTD_SKIP_MAGIC)
}

/// All frames of zstd, those without contents too.
fn frames(
    source: &mut Source<'_>,
    sink: &mut Sink,
    what: &dyn Fn() -> String,
    tell: &mut dyn FnMut(u64),
) -> Result<(), ImageError> {
    while !source.fill_buf().while_doing(|| format!("reading {}", what()))?.is_empty() {
        match StreamingDecoder::new(&mut *source) {
            Ok(mut decoder) => {
                copy(&mut decoder, |decoder| decoder.get_ref().get_ref().byte_count(), sink, what, tell)?
            }
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                let skipped = io::copy(&mut source.by_ref().take(length.into()), &mut io::sink());
                if skipped.while_doing(|| format!("reading {}", what()))? != u64::from(length) {
                    return Err(ImageError::Member { path: what(), why: "its compression ends too early".into() });
                }
            }
            Err(error) => {
                return Err(ImageError::Member { path: what(), why: format!("damaged compression: {error}") });
            }
        }
    }
    Ok(())
}

/// Copies what a decoder gives, and stops where it becomes too much for what went in.
fn copy<R: Read>(
    decoder: &mut R,
    taken: impl Fn(&R) -> u64,
    sink: &mut Sink,
    what: &dyn Fn() -> String,
    tell: &mut dyn FnMut(u64),
) -> Result<(), ImageError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = decoder.read(&mut buffer);
        let count = read.map_err(|error| ImageError::Member { path: what(), why: format!("damaged: {error}") })?;
        if count == 0 {
            return Ok(());
        }
        sink.byte_count += count as u64;
        let taken_bytes = taken(decoder);
        if sink.byte_count > LAYER_BYTES_MAX || is_bomb(sink.byte_count, taken_bytes) {
            return Err(ImageError::TooLarge(format!(
                "{}: {} bytes and more out of {taken_bytes}; at most {RATIO_MAX} times as much is believed, and {} GiB",
                what(),
                sink.byte_count,
                LAYER_BYTES_MAX >> 30
            )));
        }
        sink.hash.pass(&buffer[..count]);
        sink.file.write_all(&buffer[..count]).while_doing(|| "writing a layer to the cache".into())?;
        tell(taken_bytes);
    }
}

/// Whether so many bytes out of so few are an attack.
pub(crate) fn is_bomb(content_bytes: u64, stored_bytes: u64) -> bool {
    content_bytes > UNSUSPICIOUS_BYTES && content_bytes / RATIO_MAX > stored_bytes
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
