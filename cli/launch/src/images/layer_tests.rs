//! Every compression, both digests, and bombs.

use super::{Expected, is_bomb, plain, store};
use crate::images::digest::Digest;
use crate::images::errors::ImageError;
use crate::images::testing::{Folder, open};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Read, Write};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

/// One frame of zstd that stores its bytes as they are: 128 KiB at most.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000];
    frame.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    frame.extend_from_slice(&((bytes.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    frame.extend_from_slice(bytes);
    frame
}

fn expected(blob: &[u8], plain: &[u8]) -> Expected {
    Expected { blob: Some((Digest::of(blob), blob.len() as u64)), diff_id: Digest::of(plain) }
}

fn stored(blob: &[u8], expected: &Expected) -> Result<Vec<u8>, ImageError> {
    let folder = Folder::new("layer");
    let (temporary, path) = (folder.0.join("t"), folder.0.join("l"));
    let outcome = store(&mut &*blob, expected, &temporary, &path, &mut |_| {});
    assert!(!temporary.exists(), "nothing half done stays");
    assert_eq!(path.exists(), outcome.is_ok(), "nothing wrong appears");
    outcome.map(|()| std::fs::read(&path).expect("there"))
}

#[test]
fn every_compression_gives_the_archive() {
    let (one, two) = (b"first half, ".repeat(50), b"second half".repeat(70));
    let whole = [one.clone(), two.clone()].concat();
    let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"???"].concat();
    let blobs = [
        whole.clone(),
        gzip(&whole),
        [gzip(&one), gzip(&two)].concat(),
        zstd(&whole),
        [skipped.clone(), zstd(&one), skipped, zstd(&two)].concat(),
    ];
    for blob in blobs {
        assert_eq!(stored(&blob, &expected(&blob, &whole)).expect("a layer"), whole);
    }
}

#[test]
fn both_digests_and_the_length_are_checked() {
    let (whole, other) = (b"archive".to_vec(), b"another".to_vec());
    let blob = gzip(&whole);
    let wrong = |expected: &Expected| stored(&blob, expected).expect_err("wrong");
    let right = expected(&blob, &whole);
    assert!(matches!(wrong(&expected(&blob, &other)), ImageError::Digest { .. }));
    let blob_wrong = Expected { blob: Some((Digest::of(&other), blob.len() as u64)), ..right.clone() };
    assert!(matches!(wrong(&blob_wrong), ImageError::Digest { .. }));
    for length in [0, blob.len() as u64 - 1, blob.len() as u64 + 1] {
        let length_wrong = Expected { blob: Some((Digest::of(&blob), length)), ..right.clone() };
        assert!(stored(&blob, &length_wrong).is_err(), "{length}");
    }
    let cut = &blob[..blob.len() - 4];
    assert!(matches!(stored(cut, &expected(cut, &whole)), Err(ImageError::Member { .. })));
    assert!(stored(&zstd(&whole)[..10], &right).is_err());
}

#[test]
fn a_billion_zeros_are_not_unpacked() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::copy(&mut std::io::repeat(0).take(300 << 20), &mut encoder).expect("in memory");
    let blob = encoder.finish().expect("in memory");
    let error = stored(&blob, &expected(&blob, b"")).expect_err("a bomb");
    assert!(matches!(&error, ImageError::TooLarge(text) if text.contains("200 times")), "{error}");
    assert!(!is_bomb(100 << 20, 1) && !is_bomb(1 << 30, 10 << 20) && is_bomb(1 << 30, 1 << 20));
}

#[test]
fn a_compressed_archive_becomes_a_plain_one() {
    let folder = Folder::new("plain");
    let temporary = folder.0.join("t");
    for bytes in [b"plain".to_vec(), gzip(b"plain"), zstd(b"plain")] {
        let mut text = String::new();
        let mut file = plain(open(&bytes), &temporary).expect("a file");
        std::io::Seek::rewind(&mut file).expect("rewound");
        file.read_to_string(&mut text).expect("text");
        assert_eq!(text, "plain");
        assert!(!temporary.exists());
    }
}
