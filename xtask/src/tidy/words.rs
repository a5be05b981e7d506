//! INV-1 as a lint: in `kernel/` and `abi/`, nothing names what only a library OS knows.
//!
//! Text, comments and identifiers are cut into words alike (`FilePath`, `file_path` and `file path` are the same two
//! words). It is the vocabulary that shows first when policy slips into the kernel. An allowed phrase is matched
//! exactly and taken out before.

use super::config::Config;
use super::finding::Finding;
use crate::source::Source;

pub(super) fn check(sources: &[Source], config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| is_checked(source, config)) {
        for (index, line) in source.text.lines().enumerate() {
            let mut line = line.to_string();
            for phrase in &config.word_phrases {
                line = line.replace(phrase.as_str(), " ");
            }
            for word in split(&line).iter().filter(|word| config.words.contains(word)) {
                let message = format!("'{word}' is not a word of the kernel (INV-1)");
                findings.push(Finding::new(&source.path, index + 1, "banned-word", message));
            }
        }
    }
    findings
}

fn is_checked(source: &Source, config: &Config) -> bool {
    let name = source.path.rsplit('/').next().unwrap_or_default();
    let in_folder = |folder: &String| source.path.starts_with(folder.as_str());
    config.word_folders.iter().any(in_folder)
        && !config.word_skipped.iter().any(|skipped| skipped == name)
        && (source.is_code() || name.ends_with(".md") || name.ends_with(".toml"))
}

/// Words in lower case, parts of identifiers by themselves. A capital after a small letter begins a word.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut previous_is_small = false;
    for character in line.chars().chain([' ']) {
        let begins = !character.is_alphabetic() || (character.is_uppercase() && previous_is_small);
        if begins && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphabetic() {
            word.extend(character.to_lowercase());
        }
        previous_is_small = character.is_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::finding::{fixture, rules};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let list = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        let config = Config {
            word_folders: list(&["kernel/"]),
            words: list(&["file", "path", "process"]),
            word_phrases: list(&["no file, process or path", "#[path"]),
            word_skipped: list(&["build.rs"]),
            ..Config::default()
        };
        rules(&check(&fixture(path, text), &config))
    }

    #[test]
    fn a_banned_word_is_found_however_it_is_written() {
        for text in ["//! The file.", "struct FilePath;", "fn open_file() {}", "const PATH: u8 = 1;", "\"process\""] {
            assert!(!found("kernel/src/a.rs", text).is_empty(), "{text}");
        }
        assert_eq!(found("kernel/kernel.ld", "/* file */"), [(1, "banned-word")]);
    }

    #[test]
    fn other_words_places_and_allowed_phrases_are_not() {
        for text in ["profile", "processor", "It holds no file, process or path.", "#[path = \"a.rs\"]"] {
            assert_eq!(found("kernel/src/a.rs", text), [], "{text}");
        }
        assert_eq!(found("exos/src/a.rs", "file"), []);
        assert_eq!(found("kernel/build.rs", "file"), []);
    }
}
