//! The source files of the checkout, and which of their lines are tests.
//!
//! A file is all test if its place says so (a `tests` or `benches` folder, a module declared under `#[cfg(test)]`, or
//! by convention `tests.rs`), else the items under `#[cfg(test)]` and `#[test]` are. The limits that hold "without
//! tests" and the lints that spare tests ask here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::errors::Error;
use crate::lexer::{self, Token};

/// Folders that hold no sources of ours.
const SKIPPED: [&str; 3] = ["target", ".git", ".cache"];

/// A text file of the checkout.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Relative to the checkout, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// True if all of it is test code.
    pub(crate) is_test: bool,
}

impl Source {
    /// A file by itself; whether it is a test is taken from its place only.
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let is_test = is_test_place(path) || text.lines().any(|line| line == "#![cfg(test)]");
        Source { path: path.to_string(), text: text.to_string(), is_test }
    }

    /// Where it lies; empty for the top.
    pub(crate) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Rust, assembly, linker scripts.
    pub(crate) fn is_code(&self) -> bool {
        [".rs", ".S", ".s", ".asm", ".ld"].iter().any(|ending| self.path.ends_with(ending))
    }

    pub(crate) fn tokens(&self) -> Vec<Token<'_>> {
        lexer::tokens(&self.text)
    }

    /// For every line, whether it is test code. Index 0 is line 1.
    pub(crate) fn test_lines(&self) -> Vec<bool> {
        let mut lines = vec![self.is_test; self.text.lines().count()];
        if self.is_test || !self.is_rust() {
            return lines;
        }
        let code = code_tokens(&self.tokens());
        for index in 0..code.len() {
            if let Some((last, is_test)) = attribute(&code, index)
                && is_test
            {
                let end = item_end(&code, last + 1);
                let last_line = code.get(end).map_or(lines.len(), |token| token.line);
                lines[code[index].line - 1..last_line].fill(true);
            }
        }
        lines
    }
}

/// Every file under `root` that is text and ours, in order of path.
pub(crate) fn read_all(root: &Path) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    walk(root, "", &mut sources)?;
    let test_modules: BTreeSet<String> = sources.iter().flat_map(declared_test_modules).collect();
    for source in &mut sources {
        let inside = |module: &String| {
            source.path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        source.is_test |= test_modules.iter().any(inside);
    }
    Ok(sources)
}

fn walk(root: &Path, folder: &str, sources: &mut Vec<Source>) -> Result<(), Error> {
    let place = root.join(folder);
    let mut names: Vec<(String, fs::FileType)> = fs::read_dir(&place)
        .map_err(Error::io(&place))?
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.file_type().ok()?)))
        .collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, kind) in names {
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            walk(root, &path, sources)?;
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(root.join(&path))
        {
            sources.push(Source::new(&path, &text));
        }
    }
    Ok(())
}

/// Tokens that are not comments.
pub(crate) fn code_tokens<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    tokens.iter().filter(|token| !token.is_comment()).copied().collect()
}

/// If an outer attribute starts at `index`: the index of its `]`, and whether it marks test code.
pub(crate) fn attribute(code: &[Token<'_>], index: usize) -> Option<(usize, bool)> {
    if !code[index].is("#") || !code.get(index + 1)?.is("[") {
        return None;
    }
    let end = closing(code, index + 1)?;
    let words: Vec<&str> = code[index + 2..end].iter().map(|token| token.text).collect();
    let is_test = match words.as_slice() {
        ["test"] => true,
        ["cfg", "(", condition @ ..] => condition.contains(&"test") && !condition.contains(&"not"),
        _ => false,
    };
    Some((end, is_test))
}

/// Index of the bracket that closes the one at `open`.
pub(crate) fn closing(code: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in code.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// Index of the last token of the item that starts at `start`, further attributes included: its `}` or `;`.
fn item_end(code: &[Token<'_>], start: usize) -> usize {
    let mut index = start;
    while index < code.len() {
        match code[index].text {
            "{" => return closing(code, index).unwrap_or(code.len()),
            "(" | "[" => index = closing(code, index).unwrap_or(code.len()),
            ";" => return index,
            _ => {}
        }
        index += 1;
    }
    index
}

fn is_test_place(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let in_package_of_tests = path.starts_with("tests/");
    in_package_of_tests
        || matches!(name, "tests.rs" | "test.rs")
        || name.ends_with("_tests.rs")
        || parts.any(|folder| matches!(folder, "tests" | "benches"))
}

/// Where the modules lie that a file declares.
pub(crate) fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_root = matches!(name, "lib.rs" | "main.rs" | "mod.rs" | "build.rs") || folder.ends_with("/tests");
    if is_root { folder.to_string() } else { path.trim_end_matches(".rs").to_string() }
}

/// Paths without `.rs` of the modules that a file declares under `#[cfg(test)]` and keeps elsewhere.
fn declared_test_modules(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    let folder = module_folder(&source.path);
    let code = code_tokens(&source.tokens());
    let mut found = Vec::new();
    for index in 0..code.len() {
        if let Some((mut end, true)) = attribute(&code, index) {
            while let Some((next, _)) = code.get(end + 1).and_then(|_| attribute(&code, end + 1)) {
                end = next;
            }
            if let [module, name, semicolon, ..] = &code[end + 1..]
                && module.is("mod")
                && semicolon.is(";")
            {
                found.push(format!("{folder}/{}", name.text));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(text: &str) -> String {
        let lines = Source::new("kernel/src/a.rs", text).test_lines();
        lines.iter().map(|is_test| if *is_test { 'T' } else { '.' }).collect()
    }

    #[test]
    fn items_under_cfg_test_are_tests() {
        assert_eq!(marks("fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}"), ".TTTT.");
        assert_eq!(marks("#[cfg(test)]\nextern crate std;\nfn c() {}"), "TT.");
        assert_eq!(marks("#[test]\n#[ignore]\nfn a(x: [u8; 3]) {\n}\nfn c() {}"), "TTTT.");
        assert_eq!(marks("#[cfg(all(test, unix))]\nfn a() {}\n"), "TT");
        assert_eq!(marks("#[cfg(not(test))]\nfn a() {}\n"), "..");
        assert_eq!(marks("// #[cfg(test)]\nfn a() {}\n"), "..");
    }

    #[test]
    fn places_of_tests_are_known() {
        for path in ["tests/guest/src/main.rs", "exos/tests/x.rs", "exos/src/vm/tests.rs", "a/b_tests.rs"] {
            assert!(Source::new(path, "").is_test, "{path}");
        }
        for path in ["kernel/src/main.rs", "exos/src/attests.rs"] {
            assert!(!Source::new(path, "").is_test, "{path}");
        }
    }

    #[test]
    fn modules_declared_for_tests_are_found() {
        let root = Source::new("a/src/lib.rs", "#[cfg(test)]\n#[allow(x)]\nmod model;\nmod real;");
        assert_eq!(declared_test_modules(&root), ["a/src/model"]);
        let nested = Source::new("a/src/vm.rs", "#[cfg(test)] mod oracle;");
        assert_eq!(declared_test_modules(&nested), ["a/src/vm/oracle"]);
    }
}
