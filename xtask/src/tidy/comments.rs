//! Comments that say why, and nothing else: no code that was switched off, no promise without an issue to hold it.
//!
//! Whether a comment is code is guessed from its beginning and end. The guess leans to silence: prose that ends in a
//! semicolon is left alone unless it begins as a statement does.

use super::finding::Finding;
use crate::lexer::{self, Kind};
use crate::source::Source;

/// Words that promise; each needs an issue's number on the same line.
const PROMISES: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

/// How a line of Rust begins.
const KEYWORDS: [&str; 21] = [
    "let ", "if ", "else ", "for ", "while ", "loop ", "match ", "return ", "use ", "mod ", "pub ", "fn ", "impl ",
    "struct ", "enum ", "const ", "static ", "unsafe ", "type ", "trait ", "} else",
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (line, text, kind) in comment_lines(source) {
            if let Some(promise) = unbacked_promise(text) {
                let message = format!("{promise} needs the number of its issue (#12), or to be done");
                findings.push(Finding::new(&source.path, line, "promise", message));
            }
            if kind == Kind::Comment && source.is_rust() && is_code(text) {
                let message = "this is code: remove it, or say in words what it was to tell";
                findings.push(Finding::new(&source.path, line, "commented-out-code", message));
            }
        }
    }
    findings
}

/// Every line of every comment, without its marks.
fn comment_lines(source: &Source) -> Vec<(usize, &str, Kind)> {
    let is_script = [".sh", ".toml", "Makefile", "aegis", ".ci/run", "scripts/cargo"];
    if source.is_rust() {
        let tokens = lexer::tokens(&source.text);
        let comments = tokens.iter().filter(|token| token.is_comment());
        return comments
            .flat_map(|token| {
                let lines = token.text.lines().enumerate();
                lines.map(|(index, text)| (token.line + index, text.trim_matches(['/', '*', '!', ' ']), token.kind))
            })
            .collect();
    }
    let marks: &[&str] = if source.is_code() {
        &["//", "/*", "#"]
    } else if is_script.iter().any(|ending| source.path.ends_with(ending)) {
        &["#"]
    } else {
        &[]
    };
    let lines = source.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let at = marks.iter().filter_map(|mark| line.find(mark)).min()?;
            Some((index + 1, &line[at..], Kind::Comment))
        })
        .collect()
}

fn unbacked_promise(text: &str) -> Option<&'static str> {
    let is_backed = text.split('#').skip(1).any(|after| after.starts_with(|c: char| c.is_ascii_digit()));
    let mut words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
    let promise = words.find_map(|word| PROMISES.into_iter().find(|promise| *promise == word))?;
    (!is_backed).then_some(promise)
}

fn is_code(text: &str) -> bool {
    let text = text.trim();
    let begins_as_statement = KEYWORDS.iter().any(|keyword| text.starts_with(keyword));
    let ends_as_block = text.ends_with('{') || text == "}" || text == "};" || text == "})" || text == "});";
    let has_operator = ["::", "=", "(", "let "].iter().any(|sign| text.contains(sign));
    match text.strip_suffix(';') {
        Some(_) if begins_as_statement && has_operator => true,
        Some(statement) => is_call_or_assignment(statement),
        None => ends_as_block && (begins_as_statement || text.starts_with('}') || text.contains('(')),
    }
}

/// `a.b::c(…)`, `a.b = …` with nothing but a name before the sign.
fn is_call_or_assignment(statement: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || "_.:&*!".contains(character);
    let name_end = statement.find(|character| !is_name(character)).unwrap_or(statement.len());
    let (name, rest) = statement.split_at(name_end);
    let is_assignment = [" = ", " += ", " -= ", " |= ", " &= "].iter().any(|sign| rest.starts_with(sign));
    !name.is_empty() && (is_assignment || (rest.starts_with('(') && rest.ends_with([')', '?'])))
}

#[cfg(test)]
mod tests {
    use super::super::finding::{fixture, rules};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        rules(&check(&fixture(path, text)))
    }

    #[test]
    fn a_promise_without_an_issue_is_found() {
        assert_eq!(found("a.rs", "fn a() {}\n// TODO: later\n"), [(2, "promise")]);
        assert_eq!(found("a.rs", "/* one\n FIXME */"), [(2, "promise")]);
        assert_eq!(found("a.rs", "/// XXX"), [(1, "promise")]);
        assert_eq!(found("a.sh", "echo # HACK"), [(1, "promise")]);
        assert_eq!(found("kernel/a.S", "nop // TODO"), [(1, "promise")]);
        assert_eq!(found("a.rs", "// TODO(#12): later\n// TODOS, mktemp.XXXXXX\nconst A: &str = \"TODO\";"), []);
    }

    #[test]
    fn commented_out_code_is_found() {
        for text in [
            "// let a = 1;",
            "// foo.bar(1, 2);",
            "// self.count += 1;",
            "// if a == b {",
            "// }",
            "// use std::fs;",
            "/* return map(a)?; */",
            "// println!(\"x\");",
        ] {
            assert_eq!(found("a.rs", text), [(1, "commented-out-code")], "{text}");
        }
    }

    #[test]
    fn prose_and_examples_in_documentation_are_not() {
        for text in [
            "// Use the first frame;",
            "// the kernel maps it (once);",
            "// let it be",
            "// if it is full, the caller waits;",
            "// Status 0 = success, others blame; see abi.",
            "/// let a = 1;",
            "//! foo(1);",
        ] {
            assert_eq!(found("a.rs", text), [], "{text}");
        }
    }
}
