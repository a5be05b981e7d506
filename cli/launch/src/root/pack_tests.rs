//! What a root option names is found out by looking, and what cannot be used is refused with a reason.

use super::scratch::Scratch;
use super::{PackError, RootKind, check_image, classify};

#[test]
fn kinds_are_told_by_contents() {
    let scratch = Scratch::new();
    let image = scratch.write("image", &crate::root::pack_image::tests::small_image());
    assert_eq!(classify(&scratch.path("")).unwrap(), RootKind::Directory);
    assert_eq!(classify(&image).unwrap(), RootKind::Image);
    let gzip = scratch.write("gzip", b"\x1f\x8b\x08");
    assert_eq!(classify(&gzip).unwrap(), RootKind::Tar);
    for (contents, expected) in [
        (&b""[..], "not a directory, a tar file or an EROFS image"),
        (b"#!/bin/sh\n", "not a directory, a tar file or an EROFS image"),
        (&[0; 2048], "not a directory, a tar file or an EROFS image"),
        (b"\xfd7zXZ\0", "compressed with xz"),
        (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
        (b"BZh9", "compressed with bzip2"),
    ] {
        let path = scratch.write("file", contents);
        let error = classify(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(matches!(classify(&scratch.path("none")), Err(PackError::Io { .. })));
    assert!(matches!(classify("/dev/null".as_ref()), Err(PackError::UnknownFormat(_))));
}

#[test]
fn images_are_checked_whole() {
    let scratch = Scratch::new();
    let mut bytes = crate::root::pack_image::tests::small_image();
    let good = scratch.write("good", &bytes);
    assert_eq!(check_image(&good).unwrap(), bytes);
    // The format of the second inode.
    bytes[4096 + 64 + 64] ^= 0x0e;
    let bad = scratch.write("bad", &bytes);
    assert!(matches!(check_image(&bad), Err(PackError::Image { .. })));
    let short = scratch.write("short", &bytes[..bytes.len() - 1]);
    assert!(check_image(&short).unwrap_err().to_string().contains("truncated"));
}
