//! `unsafe` stands only where `tidy.toml` allows it.
//!
//! That its reason stands right above it is clippy's to see (`undocumented_unsafe_blocks`, `missing_safety_doc`), as
//! that `unwrap()` stands only in tests (`unwrap_used`). Clippy does not know places.

use super::config::Config;
use super::finding::Finding;
use crate::lexer::Kind;
use crate::source::{Source, code_tokens};

pub(super) fn check(sources: &[Source], config: &Config) -> Vec<Finding> {
    let is_allowed = |source: &&Source| config.unsafe_allowed.iter().any(|place| source.path.starts_with(place));
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() && !is_allowed(source)) {
        let code = code_tokens(&source.tokens());
        for token in code.iter().filter(|token| token.is("unsafe") && token.kind == Kind::Word) {
            let message = "unsafe is not allowed here (tidy.toml, [unsafe])";
            findings.push(Finding::new(&source.path, token.line, "unsafe-place", message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::{fixture, rules};
    use super::*;

    #[test]
    fn unsafe_outside_its_places_is_found() {
        let config = Config { unsafe_allowed: vec!["rt/".to_string()], ..Config::default() };
        let found = |path: &str, text: &str| rules(&check(&fixture(path, text), &config));
        let text = "fn a() {\n    // SAFETY: no.\n    unsafe { b() }\n}\n";
        assert_eq!(found("exos/src/a.rs", text), [(3, "unsafe-place")]);
        assert_eq!(found("rt/src/a.rs", text), []);
        assert_eq!(found("exos/src/a.rs", "// unsafe { }\nconst A: &str = \"unsafe {\";"), []);
        assert_eq!(found("exos/src/a.rs", "#[unsafe(no_mangle)]\nfn a() {}"), [(1, "unsafe-place")]);
    }
}
