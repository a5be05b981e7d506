//! The names of one file: what it defines, what it brings in by `use`, and each path that is written in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{Kind, Token};
use crate::source::{Source, code_tokens};

/// Segments of a path.
pub(super) type Path = Vec<String>;

/// Words that are followed by the name that they define.
const DEFINING: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];

/// What is known of a file's names, tests left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    defined: BTreeSet<String>,
    /// By the name that it has here.
    imports: BTreeMap<String, Path>,
    globs: Vec<Path>,
    /// What is only handed on, by `pub use`: names are found through it, but it is no use of them.
    handed_on: BTreeSet<Path>,
    /// Paths of two segments or more outside of `use`.
    written: BTreeSet<Path>,
}

impl Names {
    pub(super) fn read(source: &Source) -> Names {
        let tests = source.test_lines();
        let mut code = code_tokens(&source.tokens());
        code.retain(|token| !tests.get(token.line - 1).copied().unwrap_or(false));
        let mut names = Names::default();
        let mut index = 0;
        while index < code.len() {
            index = names.read_at(&code, index);
        }
        names
    }

    pub(super) fn defines(&self, name: &str) -> bool {
        self.defined.contains(name)
    }

    /// Where a name was brought in from.
    pub(super) fn imported(&self, name: &str) -> Option<&Path> {
        self.imports.get(name)
    }

    pub(super) fn globs(&self) -> impl Iterator<Item = &Path> {
        self.globs.iter()
    }

    /// Every path, and whether a `use` names it.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&Path, bool)> {
        let used = self.imports.values().chain(&self.globs).filter(|path| !self.handed_on.contains(*path));
        let used = used.map(|path| (path, true));
        used.chain(self.written.iter().map(|path| (path, false)))
    }

    /// Reads what begins at `index`; the index of what comes after it.
    fn read_at(&mut self, code: &[Token<'_>], index: usize) -> usize {
        let token = code[index];
        if token.kind != Kind::Word {
            return index + 1;
        }
        if let [open, within, ..] = &code[index + 1..]
            && token.is("pub")
            && open.is("(")
            && within.is("in")
        {
            // Where a name is seen is no use of what is named there.
            let end = code[index..].iter().position(|token| token.is(")"));
            return end.map_or(code.len(), |end| index + end);
        }
        if token.is("use") {
            let mut tree = Tree::default();
            let end = tree.read(code, index + 1, &Path::new());
            if code[..index].last().is_some_and(|before| before.is("pub") || before.is(")")) {
                self.handed_on.extend(tree.imports.values().chain(&tree.globs).cloned());
            }
            self.imports.append(&mut tree.imports);
            self.globs.append(&mut tree.globs);
            return end;
        }
        let next = code.get(index + 1);
        if let Some(name) = next.filter(|next| next.kind == Kind::Word && DEFINING.contains(&token.text)) {
            self.defined.insert(name.text.to_string());
            return index + 2;
        }
        if let [mark, name, ..] = &code[index + 1..]
            && token.is("macro_rules")
            && mark.is("!")
        {
            self.defined.insert(name.text.to_string());
            return index + 3;
        }
        let mut path = vec![token.text.to_string()];
        let mut end = index + 1;
        while let Some(word) = segment(code, end) {
            path.push(word.to_string());
            end += 3;
        }
        if path.len() > 1 {
            self.written.insert(path);
        }
        end
    }
}

/// What one `use` brings in.
#[derive(Default)]
struct Tree {
    imports: BTreeMap<String, Path>,
    globs: Vec<Path>,
}

impl Tree {
    /// Reads a tree of `use` under `prefix`; the index of the `;`, `,` or `}` after it, or one past its own brace or
    /// star.
    fn read(&mut self, code: &[Token<'_>], mut index: usize, prefix: &Path) -> usize {
        let mut path = prefix.clone();
        while let Some(token) = code.get(index) {
            if token.is("{") {
                index += 1;
                while let Some(token) = code.get(index).filter(|token| !token.is("}")) {
                    index = if token.is(",") { index + 1 } else { self.read(code, index, &path) };
                }
                return index + 1;
            }
            if token.is("*") {
                self.globs.push(path);
                return index + 1;
            }
            if token.is("as") {
                let name = code.get(index + 1).map_or("_", |token| token.text);
                self.import(name, path);
                return index + 2;
            }
            if token.kind == Kind::Word {
                path.push(token.text.to_string());
            } else if !token.is(":") {
                break;
            }
            index += 1;
        }
        self.import("", path);
        index
    }

    /// `name` is empty where the path's own last word is the name.
    fn import(&mut self, name: &str, mut path: Path) {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = match name {
            "" => path.last().cloned().unwrap_or_default(),
            // Several traits may be brought in without a name.
            "_" => path.join("::"),
            name => name.to_string(),
        };
        self.imports.insert(name, path);
    }
}

/// The word after `::` at `index`.
fn segment<'a>(code: &[Token<'a>], index: usize) -> Option<&'a str> {
    match code.get(index..index + 3)? {
        [first, second, word] if first.is(":") && second.is(":") && word.kind == Kind::Word => Some(word.text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        Names::read(&Source::new("a/src/b.rs", text))
    }

    fn shown(text: &str) -> Vec<String> {
        names(text)
            .paths()
            .map(|(path, is_use)| format!("{}{}", if is_use { "use " } else { "" }, path.join("::")))
            .collect()
    }

    #[test]
    fn trees_of_use_are_taken_apart() {
        assert_eq!(
            shown("use a::{b::{self, C as D}, e::*, F};\nuse g;"),
            ["use a::b::C", "use a::F", "use a::b", "use g", "use a::e"]
        );
        assert_eq!(names("use a::B as _; use a::{C as _, D};").imports.len(), 3);
        assert_eq!(names("use a::B as C;").imported("C").unwrap(), &["a", "B"]);
        assert_eq!(shown("pub use a::B; pub(crate) use c::*; use d::E;"), ["use d::E"]);
    }

    #[test]
    fn definitions_and_paths_are_seen() {
        let text = "pub struct A; macro_rules! m { () => {} } fn f(x: a::B) -> c::d::E { f::<g::H>(x) }";
        assert_eq!(shown(text), ["a::B", "c::d::E", "g::H"]);
        assert!(["A", "m", "f"].iter().all(|name| names(text).defines(name)));
    }
}
