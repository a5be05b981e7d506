//! `unsafe` stands only where `tidy.toml` allows it, with its reason right above it; `unwrap()` stands only in tests.
//!
//! Above means: the comment that ends on the line before, attributes and the first lines of the same statement apart.
//! That is stricter than clippy's rule (which is on as well) and also sees `unsafe impl`, macro bodies and code for
//! other targets.

use super::config::Config;
use super::finding::Finding;
use crate::lexer::{Kind, Token};
use crate::source::{Source, closing, code_tokens};

/// How many lines of a statement may stand between its comment and its `unsafe`.
const STATEMENT_LINES_MAX: usize = 4;

pub(super) fn check(sources: &[Source], config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let code = code_tokens(&source.tokens());
        check_unsafe(source, &code, config, &mut findings);
        check_unwrap(source, &code, config, &mut findings);
    }
    findings
}

fn check_unsafe(source: &Source, code: &[Token<'_>], config: &Config, findings: &mut Vec<Finding>) {
    let is_allowed = starts_with_any(&source.path, &config.unsafe_allowed);
    let trait_impls = trait_impls(code);
    for (index, token) in code.iter().enumerate() {
        if !token.is("unsafe") || token.kind != Kind::Word {
            continue;
        }
        if !is_allowed {
            let message = "unsafe is not allowed here (tidy.toml, [unsafe])";
            findings.push(Finding::new(&source.path, token.line, "unsafe-place", message));
        }
        let problem = match subject(code, index) {
            Subject::Function => {
                let inherits = trait_impls.iter().any(|(open, close)| (*open..*close).contains(&index));
                let is_documented = inherits || above(source, token.line, "# Safety");
                (!is_documented).then_some(("safety-docs", "say `# Safety` in its documentation"))
            }
            Subject::Trait => {
                let is_documented =
                    above(source, token.line, "# Safety") || above(source, token.line, "# Implementation safety");
                (!is_documented).then_some(("safety-docs", "say `# Safety` in its documentation"))
            }
            Subject::Code => {
                (!above(source, token.line, "SAFETY:")).then_some(("safety-comment", "say `// SAFETY:` right above it"))
            }
            Subject::Declaration => None,
        };
        if let Some((rule, message)) = problem {
            findings.push(Finding::new(&source.path, token.line, rule, message));
        }
    }
}

/// What an `unsafe` belongs to.
enum Subject {
    /// A block or an implementation: it claims something.
    Code,
    /// A function: it asks something of its callers.
    Function,
    /// A trait: it asks something of its implementors.
    Trait,
    /// `unsafe fn()` as a type, `#[unsafe(no_mangle)]`, a foreign block: nothing that a comment could discharge here.
    Declaration,
}

fn subject(code: &[Token<'_>], index: usize) -> Subject {
    let mut rest = code[index + 1..].iter().filter(|token| token.kind != Kind::Literal);
    let mut is_foreign = false;
    loop {
        match rest.next().map(|token| token.text) {
            Some("extern") => is_foreign = true,
            Some("async" | "const") => {}
            Some("fn") => {
                return match rest.next() {
                    Some(name) if name.kind == Kind::Word => Subject::Function,
                    // A macro's `fn $name`.
                    Some(name) if name.is("$") => Subject::Function,
                    _ => Subject::Declaration,
                };
            }
            Some("trait") => return Subject::Trait,
            Some("{") if is_foreign => return Subject::Declaration,
            Some("{" | "impl") => return Subject::Code,
            _ => return Subject::Declaration,
        }
    }
}

/// Ranges of tokens inside `impl Trait for Type`, whose methods inherit their documentation.
fn trait_impls(code: &[Token<'_>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (index, token) in code.iter().enumerate() {
        let starts_item = index == 0 || matches!(code[index - 1].text, "{" | "}" | ";" | "]" | "unsafe");
        if !token.is("impl") || !starts_item {
            continue;
        }
        let Some(open) = (index..code.len()).find(|&open| code[open].is("{")) else {
            continue;
        };
        // `for<'a>` belongs to a bound.
        let is_trait = (index..open).any(|at| code[at].is("for") && !code[at + 1].is("<"));
        if is_trait && let Some(close) = closing(code, open) {
            found.push((open, close));
        }
    }
    found
}

/// Whether a comment with `text` in it stands on or right above `line`.
fn above(source: &Source, line: usize, text: &str) -> bool {
    let lines: Vec<&str> = source.text.lines().collect();
    let is_comment = |line: &str| line.starts_with("//") || line.starts_with("/*") || line.starts_with('*');
    let trailing = |line: &str| line.find("//").is_some_and(|at| line[at..].contains(text));
    if trailing(lines[line - 1]) {
        return true;
    }
    let mut statement_lines = 0;
    let mut in_attribute = false;
    for candidate in lines[..line - 1].iter().rev().map(|line| line.trim()) {
        if is_comment(candidate) {
            if candidate.contains(text) {
                return true;
            }
        } else if in_attribute || candidate.starts_with("#[") {
            in_attribute = !candidate.starts_with("#[");
        } else if candidate.ends_with(")]") || candidate == "]" {
            // The last line of an attribute over several lines.
            in_attribute = true;
        } else {
            statement_lines += 1;
            let ends_earlier =
                candidate.is_empty() || candidate.ends_with([';', '{', '}']) || statement_lines > STATEMENT_LINES_MAX;
            if ends_earlier {
                return false;
            }
        }
    }
    false
}

fn check_unwrap(source: &Source, code: &[Token<'_>], config: &Config, findings: &mut Vec<Finding>) {
    if !starts_with_any(&source.path, &config.unwrap_banned) {
        return;
    }
    let test_lines = source.test_lines();
    for window in code.windows(3) {
        let is_call = window[0].is(".") && window[1].is("unwrap") && window[2].is("(");
        if is_call && !test_lines[window[1].line - 1] {
            let message = "no unwrap() outside tests: return an error, or expect(\"INV-…\") with the invariant";
            findings.push(Finding::new(&source.path, window[1].line, "unwrap", message));
        }
    }
}

fn starts_with_any(path: &str, prefixes: &[String]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::finding::{fixture, rules};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let config = Config {
            unsafe_allowed: vec!["rt/".to_string()],
            unwrap_banned: vec!["kernel/".to_string()],
            ..Config::default()
        };
        rules(&check(&fixture(path, text), &config))
    }

    #[test]
    fn unsafe_outside_its_places_is_found() {
        let text = "fn a() {\n    // SAFETY: no.\n    unsafe { b() }\n}\n";
        assert_eq!(found("exos/src/a.rs", text), [(3, "unsafe-place")]);
        assert_eq!(found("rt/src/a.rs", text), []);
        assert_eq!(found("exos/src/a.rs", "// unsafe { }\nconst A: &str = \"unsafe {\";"), []);
        assert_eq!(found("exos/src/a.rs", "#[unsafe(no_mangle)]\nfn a() {}"), [(1, "unsafe-place")]);
    }

    #[test]
    fn a_block_without_its_reason_is_found() {
        assert_eq!(found("rt/a.rs", "fn a() {\n  unsafe { b() }\n}"), [(2, "safety-comment")]);
        assert_eq!(found("rt/a.rs", "// SAFETY: x.\nlet y = 1;\nunsafe { b() }"), [(3, "safety-comment")]);
        assert_eq!(found("rt/a.rs", "// SAFETY: x.\n\nunsafe { b() }"), [(3, "safety-comment")]);
        assert_eq!(found("rt/a.rs", "unsafe impl Send for A {}"), [(1, "safety-comment")]);
        assert_eq!(found("rt/a.rs", "macro_rules! m { () => {\n  unsafe { b() }\n} }"), [(2, "safety-comment")]);
        let second = "// SAFETY: x.\nunsafe impl Send for A {}\nunsafe impl Sync for A {}";
        assert_eq!(found("rt/a.rs", second), [(3, "safety-comment")]);
    }

    #[test]
    fn a_block_with_its_reason_is_not() {
        for text in [
            "// SAFETY: x.\nunsafe { b() }",
            "// SAFETY: x,\n// and y.\nlet z =\n    unsafe { b() };",
            "// SAFETY: x.\n#[allow(\n    a\n)]\nunsafe { b() }",
            "let z = unsafe { b() }; // SAFETY: x.",
            "unsafe extern \"C\" {}",
        ] {
            assert_eq!(found("rt/a.rs", text), [], "{text}");
        }
    }

    #[test]
    fn an_unsafe_function_or_trait_without_safety_docs_is_found() {
        assert_eq!(found("rt/a.rs", "/// Does.\nunsafe fn a() {}"), [(2, "safety-docs")]);
        assert_eq!(found("rt/a.rs", "unsafe extern \"C\" fn a() {}"), [(1, "safety-docs")]);
        assert_eq!(found("rt/a.rs", "pub unsafe trait A {}"), [(1, "safety-docs")]);
        assert_eq!(found("rt/a.rs", "impl A {\n unsafe fn a() {}\n}"), [(2, "safety-docs")]);
        let documented = "/// Does.\n///\n/// # Safety\n/// Never.\n#[inline]\npub unsafe fn a() {}";
        assert_eq!(found("rt/a.rs", documented), []);
        assert_eq!(found("rt/a.rs", "type A = unsafe extern \"C\" fn(u8);"), []);
        let inherited = "// SAFETY: x.\nunsafe impl T for A {\n\n  unsafe fn a() {}\n}";
        assert_eq!(found("rt/a.rs", inherited), []);
    }

    #[test]
    fn unwrap_outside_tests_is_found() {
        let text = "fn a() { b().unwrap(); c().unwrap_or(0); }\n#[test]\nfn t() { b().unwrap(); }\n";
        assert_eq!(found("kernel/src/a.rs", text), [(1, "unwrap")]);
        assert_eq!(found("cli/src/a.rs", text), []);
    }
}
