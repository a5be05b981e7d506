//! Families of small answers (`tests/linux/answers`): what calls refuse, and what follows from what, line by line as on
//! the host.
//!
//! All families are one program, so that a machine is started once for each number of processors.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use aegis_tests::programs::{aegis, compile_with, host};

/// The program of all families; `None` without a compiler.
fn build() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux/answers");
    let main = std::fs::read_to_string(folder.join("main.c")).expect("the program's source is in the tree");
    let include = format!("-I{}", folder.display());
    let mut sources: Vec<String> = std::fs::read_dir(&folder)
        .expect("the families are in the tree")
        .map(|entry| entry.expect("a family").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "c") && !path.ends_with("main.c"))
        .map(|path| path.display().to_string())
        .collect();
    sources.sort();
    let mut options = vec!["-O1", "-w", "-static", "-pthread", &include];
    options.extend(sources.iter().map(String::as_str));
    compile_with("gcc", "answers", &main, &options)
}

/// The lines that are not the same, each with the family it stands in.
fn differences(expected: &str, found: &str) -> Vec<String> {
    let mut family = "";
    let mut answers = Vec::new();
    let (mut left, mut right) = (expected.lines(), found.lines());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return answers,
            (Some(left), Some(right)) if left == right => {
                family = left.strip_prefix("== ").unwrap_or(family);
            }
            (left, right) => answers.push(format!("{family}: {left:?} on the host, {right:?} here")),
        }
    }
}

fn same_with(processors: &str) {
    let Some(program) = build() else { return };
    let command = [program.to_str().expect("a path of letters")];
    // Once at a time: what one of them locks on the host, as `/dev/null`, another would find locked.
    let expected = {
        static ON_HOST: Mutex<()> = Mutex::new(());
        let _alone = ON_HOST.lock().expect("nobody panics with it");
        host(&command, b"")
    };
    let found = aegis(&["--cpus", processors], &command, b"");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found_lines = differences(&text(&expected.output), &text(&found.output));
    assert!(found_lines.is_empty(), "{}\n{}", found_lines[..found_lines.len().min(20)].join("\n"), found.errors);
    assert_eq!(found.status, expected.status);
}

#[test]
fn answers_on_one_processor() {
    same_with("1");
}

#[test]
fn answers_on_two_processors() {
    same_with("2");
}
