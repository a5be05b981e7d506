//! The words of a dialect that the tree once spoke: no type, module or constant is named by one of them.
//!
//! `docs/glossary.md` says what is said instead. Names of functions are let alone: those of tests are sentences.

use super::config::Config;
use super::finding::Finding;
use super::words::split;
use crate::source::Source;

/// What a name is declared with.
const KEYWORDS: [&str; 7] = ["struct", "enum", "trait", "type", "mod", "const", "static"];

pub(super) fn check(sources: &[Source], config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let in_folder = |source: &&Source| config.dialect_folders.iter().any(|folder| source.path.starts_with(folder));
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")).filter(in_folder) {
        for (index, line) in source.text.lines().enumerate() {
            let Some(name) = declared(line) else { continue };
            for word in split(name).iter().filter(|word| config.dialect.contains(word)) {
                let message = format!("'{word}' in {name} is not a word of the field (docs/glossary.md)");
                findings.push(Finding::new(&source.path, index + 1, "dialect", message));
            }
        }
    }
    findings
}

/// The name that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    let name = words.next()?.split(|character: char| !character.is_alphanumeric() && character != '_').next()?;
    KEYWORDS.contains(&keyword).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::finding::{fixture, rules};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let list = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        let config = Config { dialect_folders: list(&["exos/"]), dialect: list(&["wish"]), ..Config::default() };
        rules(&check(&fixture(path, text), &config))
    }

    #[test]
    fn a_declared_name_is_found() {
        for text in ["struct Wish {", "pub(crate) struct OldWish;", "pub mod wish;", "    const WISH_MAX: u8 = 1;"] {
            assert_eq!(found("exos/src/a.rs", text), [(1, "dialect")], "{text}");
        }
    }

    #[test]
    fn other_words_uses_and_places_are_not() {
        for text in ["struct Wishful;", "use a::Wish;", "fn a_wish_is_kept() {}", "// struct Wish", "wish"] {
            assert_eq!(found("exos/src/a.rs", text), [], "{text}");
        }
        assert_eq!(found("kernel/src/a.rs", "struct Wish;"), []);
    }
}
