//! What `aegis pool` does to an image, and what it prints.

use std::path::PathBuf;

use super::{json_line, look, pool, table};
use crate::options::{Command, Parsed, parse};
use aegis_launch::pool::directory::Extent;
use aegis_launch::pool::medium::ImageFile;

/// An image of 16 MiB, gone at the end.
struct Image(PathBuf);

impl Image {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-pool-verb-{name}-{}.img", std::process::id()));
        std::fs::File::create(&path).and_then(|file| file.set_len(16 << 20)).expect("a file");
        Self(path)
    }

    /// Does `aegis pool WORDS`, with the image where `IMAGE` stands.
    fn pool(&self, words: &str) -> Result<u8, String> {
        let words = words.split(' ').map(|word| if word == "IMAGE" { self.0.clone().into() } else { word.into() });
        match parse(["aegis".into(), "pool".into()].into_iter().chain(words))? {
            Parsed::Command(Command::Pool(options)) => pool(&options).map_err(|error| error.to_string()),
            other => panic!("no verb of a pool: {other:?}"),
        }
    }

    fn extents(&self) -> Vec<Extent> {
        look(&mut ImageFile::look(&self.0).expect("an image")).expect("a pool")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn extents_are_made_shown_given_and_removed() {
    let image = Image::new("life");
    assert_eq!(table(&image.extents()), ["NAME  POD           SIZE  STATE"]);
    assert_eq!(image.pool("create IMAGE db --size 4M --pod database"), Ok(0));
    assert_eq!(image.pool("create -s 1M IMAGE spare"), Ok(0));
    let lines = [
        "NAME   POD               SIZE  STATE",
        "db     database         4 MiB  in use",
        "spare  -                1 MiB  in use",
    ];
    assert_eq!(table(&image.extents()), lines);
    let first: serde_json::Value = serde_json::from_str(&json_line(&image.extents()[0])).expect("JSON");
    let wanted = serde_json::json!({
        "name": "db", "pod": "database", "size_bytes": 4 << 20, "first_sector": 2048, "sector_count": 8192,
        "state": "in use",
    });
    assert_eq!(first, wanted);
    assert!(json_line(&image.extents()[1]).contains("\"pod\":null"));
    assert_eq!(image.pool("give IMAGE db web"), Ok(0));
    assert_eq!(image.extents()[0].owner.as_deref(), Some("web"));
    assert!(image.pool("rm IMAGE db none").is_err_and(|why| why.ends_with("there is no extent none")));
    assert_eq!(image.extents().len(), 2, "all or none");
    assert_eq!(image.pool("rm IMAGE db spare"), Ok(0));
    assert!(image.extents().is_empty());
    assert_eq!(image.pool("ls IMAGE --json"), Ok(0));
}

#[test]
fn what_cannot_be_is_said_in_a_line() {
    let image = Image::new("wrong");
    assert_eq!(image.pool("create IMAGE db -s 1M"), Ok(0));
    let held = ImageFile::lock(&image.0).expect("nobody has it");
    assert!(image.pool("rm IMAGE db").is_err_and(|why| why.contains("another machine or tool uses it")));
    assert_eq!(image.pool("ls IMAGE"), Ok(0), "it can be looked at");
    drop(held);
    for (words, part) in [
        ("create IMAGE db -s 1M", "there is an extent db already"),
        ("create IMAGE more -s 1G", "no room for extent more: 14 MiB are free in one piece"),
        ("create IMAGE more", "--size"),
        ("create IMAGE more -s 1K", "whole MiB"),
        ("create IMAGE a/b -s 1M", "1 to 32 letters"),
        ("give IMAGE none web", "there is no extent none"),
        ("ls /nowhere/x", "/nowhere/x: there is no such file; truncate -s 10G FILE"),
        ("ls /dev/null", "neither a file nor a block device"),
    ] {
        let why = image.pool(words).expect_err(words);
        assert!(why.contains(part) && !why.contains('\n'), "{words}: {why}");
    }
    std::fs::write(&image.0, vec![7; 16 << 20]).expect("something else");
    assert!(image.pool("create IMAGE x -s 1M").is_err_and(|why| why.contains("no whole directory of a pool")));
    assert!(std::fs::read(&image.0).expect("a file").iter().all(|byte| *byte == 7));
}
