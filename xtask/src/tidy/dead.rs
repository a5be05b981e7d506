//! The law against dead files: a source file that nothing reaches is read by people alone, and is wrong soon.
//!
//! A Rust file is reached as the root of a crate, by the `mod` that leads to it, or by its name in a string of a Rust
//! file of its folder or a manifest (`#[path]`, `include!`). Another source file is reached by its name in any other
//! text, or with its folder: programs that are compiled or run by the list of a folder.

use std::collections::BTreeSet;

use super::finding::Finding;
use crate::lexer::Kind;
use crate::source::{Source, code_tokens, module_folder};

/// How names of source files end that are not Rust.
const ENDINGS: [&str; 11] = [".s", ".S", ".asm", ".ld", ".c", ".h", ".sh", ".py", ".pl", ".js", ".css"];
/// Files that Cargo begins with.
const ROOTS: [&str; 3] = ["lib.rs", "main.rs", "build.rs"];
/// Folders each of whose files is a crate.
const ROOT_FOLDERS: [&str; 4] = ["tests", "benches", "examples", "bin"];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let crates: BTreeSet<&str> = sources.iter().filter_map(|source| source.path.strip_suffix("/Cargo.toml")).collect();
    let reached: BTreeSet<String> = sources.iter().filter(|source| source.is_rust()).flat_map(reached_by).collect();
    let is_named_outside = |name: &str, inside: &str| {
        sources.iter().any(|source| !source.path.starts_with(inside) && source.text.contains(name))
    };
    // Text is searched for a folder once, not for each of its files.
    let homes: BTreeSet<&str> = sources.iter().filter(|source| is_other(source)).map(Source::folder).collect();
    let named: BTreeSet<&str> =
        homes.into_iter().filter(|folder| !folder.is_empty() && is_named_outside(folder, folder)).collect();
    let is_dead = |source: &&Source| {
        let name = source.path.rsplit('/').next().unwrap_or_default();
        if source.is_rust() {
            !is_root(source.folder(), name, &crates)
                && !reached.contains(&source.path)
                && !is_in_manifest(source, sources)
        } else {
            is_other(source) && !named.contains(source.folder()) && !is_named_outside(name, &source.path)
        }
    };
    let finding =
        |source: &Source| Finding::new(&source.path, 0, "dead-file", "nothing reaches this file: use it, or remove it");
    sources.iter().filter(is_dead).map(finding).collect()
}

/// A source file that is not Rust.
fn is_other(source: &Source) -> bool {
    ENDINGS.iter().any(|ending| source.path.ends_with(ending))
}

fn is_root(folder: &str, name: &str, crates: &BTreeSet<&str>) -> bool {
    let inside = |folder: &str| crates.iter().any(|place| folder.starts_with(place));
    let (above, last) = folder.rsplit_once('/').unwrap_or(("", folder));
    let in_own_folder = || above.rsplit('/').next().is_some_and(|parent| ROOT_FOLDERS.contains(&parent));
    inside(folder)
        && match name {
            "build.rs" => crates.contains(folder),
            _ if ROOTS.contains(&name) => last == "src" || in_own_folder(),
            _ => ROOT_FOLDERS.contains(&last) && !above.is_empty() && (crates.contains(above) || last == "bin"),
        }
}

/// Paths of the files that a Rust file leads to, whether they exist or not.
fn reached_by(source: &Source) -> Vec<String> {
    let folder = module_folder(&source.path);
    let mut found = Vec::new();
    let code = code_tokens(&source.tokens());
    for window in code.windows(2) {
        match window {
            [word, name] if word.is("mod") && name.kind == Kind::Word => {
                // One that stands inside another has that one's name in its path.
                let is_own = |module: &&str| code.iter().any(|token| token.is(module));
                let outer = code.windows(3).filter(|it| it[0].is("mod") && it[2].is("{")).map(|it| it[1].text);
                let folders =
                    std::iter::once(folder.clone()).chain(outer.filter(is_own).map(|it| format!("{folder}/{it}")));
                found.extend(
                    folders.flat_map(|it| [format!("{it}/{}.rs", name.text), format!("{it}/{}/mod.rs", name.text)]),
                );
            }
            [_, literal] if literal.kind == Kind::Literal && literal.text.ends_with(".rs\"") => {
                found.push(plain(&format!("{}/{}", source.folder(), literal.text.trim_matches('"'))));
            }
            _ => {}
        }
    }
    found
}

/// A path without `..`.
fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| *part != ".") {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn is_in_manifest(source: &Source, sources: &[Source]) -> bool {
    let manifests = sources.iter().filter_map(|other| Some((other.path.strip_suffix("Cargo.toml")?, &other.text)));
    let inside = manifests.filter_map(|(folder, text)| Some((source.path.strip_prefix(folder)?, text)));
    inside.into_iter().any(|(path, text)| text.contains(&format!("\"{path}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        check(&sources).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn a_module_that_none_declares_is_found() {
        let files = [
            ("a/Cargo.toml", "[[bin]]\npath = \"src/other.rs\""),
            ("a/build.rs", ""),
            ("a/src/lib.rs", "mod b; mod e { mod f; } #[path = \"x_tests.rs\"] mod tests; // mod g;"),
            ("a/src/other.rs", ""),
            ("a/src/b.rs", "mod c; const D: &str = include_str!(\"../d.rs\");"),
            ("a/src/b/c.rs", ""),
            ("a/d.rs", ""),
            ("a/src/e/f.rs", ""),
            ("a/src/x_tests.rs", ""),
            ("a/tests/one.rs", "mod common;"),
            ("a/tests/common/mod.rs", ""),
            ("a/tests/two/main.rs", ""),
        ];
        assert_eq!(dead(&files), Vec::<String>::new());
        for path in ["a/src/c.rs", "a/src/g.rs", "a/tests/common/other.rs", "a/build/build.rs", "b/src/lib.rs"] {
            assert_eq!(dead(&[&files[..], &[(path, "")]].concat()), [path]);
        }
    }

    #[test]
    fn another_source_that_no_text_names_is_found() {
        let c = ("programs/one.c", "int main() {}");
        assert_eq!(dead(&[c]), ["programs/one.c"]);
        assert_eq!(dead(&[c, ("a.md", "see one.c")]), Vec::<String>::new());
        assert_eq!(dead(&[c, ("a.rs.txt", "programs/")]), Vec::<String>::new());
        assert_eq!(dead(&[("notes.txt", "")]), Vec::<String>::new(), "no source");
    }
}
