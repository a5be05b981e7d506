//! What must be written down: a section of `docs/abi.md` for every call, one of `docs/dependencies.md` for every
//! crate of others.

use super::config::Config;
use super::{Finding, arrows};
use crate::lexer::{Kind, Token};
use crate::source::{Source, closing, code_tokens};

/// What the section of a call has to speak of.
const CALL_TOPICS: [&str; 3] = ["rights", "errors", "cost"];

pub(super) fn check(sources: &[Source], config: &Config) -> Vec<Finding> {
    let text = |path: &str| sources.iter().find(|source| source.path == path).map(|source| source.text.as_str());
    let mut findings = Vec::new();
    if let Some(contract) = sources.iter().find(|source| source.path == config.calls_source) {
        let code = code_tokens(&contract.tokens());
        let calls = calls(&code);
        if calls.is_empty() {
            let message = "no `calls! { number Name { … } }` was found: mend this or the lint";
            findings.push(Finding::new(&contract.path, 0, "calls-manual", message));
        }
        let manual = text(&config.calls_manual).unwrap_or_default();
        check_calls(&calls, contract, manual, config, &mut findings);
    }
    let dependencies = text("Cargo.toml").map(arrows::workspace_dependencies).unwrap_or_default();
    let manual = text(&config.dependencies_manual).unwrap_or_default();
    check_dependencies(&dependencies, manual, config, &mut findings);
    findings
}

fn check_calls(calls: &[Token<'_>], contract: &Source, manual: &str, config: &Config, findings: &mut Vec<Finding>) {
    let sections = sections(manual);
    for call in calls {
        let name = normal(call.text);
        let is_it = |heading: &str| heading.split_whitespace().any(|word| normal(word) == name);
        let Some((line, _, body)) = sections.iter().find(|(_, heading, _)| is_it(heading)) else {
            let message = format!("{} has no section in {}", call.text, config.calls_manual);
            findings.push(Finding::new(&contract.path, call.line, "calls-manual", message));
            continue;
        };
        let body = body.to_lowercase();
        for topic in CALL_TOPICS.iter().filter(|topic| !body.contains(*topic)) {
            let message = format!("the section of {} does not speak of {topic}", call.text);
            findings.push(Finding::new(&config.calls_manual, *line, "calls-manual", message));
        }
    }
}

fn check_dependencies(dependencies: &[String], manual: &str, config: &Config, findings: &mut Vec<Finding>) {
    let sections = sections(manual);
    for name in dependencies {
        if !sections.iter().any(|(_, heading, _)| heading == name) {
            let message = format!("{name} has no section: what for, why this one, cost");
            findings.push(Finding::new(&config.dependencies_manual, 0, "dependencies-manual", message));
        }
    }
    for (line, heading, _) in sections.iter().filter(|(_, heading, _)| !dependencies.contains(heading)) {
        let message = format!("{heading} is no dependency of the workspace");
        findings.push(Finding::new(&config.dependencies_manual, *line, "dependencies-manual", message));
    }
}

/// Names in `calls! { 0 Null { … } 1 CapDerive { … } … }`.
fn calls<'a>(code: &[Token<'a>]) -> Vec<Token<'a>> {
    let is_use = |window: &[Token<'_>]| window[0].is("calls") && window[1].is("!") && window[2].is("{");
    let Some(open) = code.windows(3).position(is_use).map(|index| index + 2) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    let mut index = open + 1;
    while index + 1 < code.len() {
        match code[index].text {
            "}" => break,
            "{" | "[" | "(" => index = closing(code, index).unwrap_or(code.len()),
            _ if code[index].kind == Kind::Literal && code[index + 1].kind == Kind::Word => {
                names.push(code[index + 1]);
            }
            _ => {}
        }
        index += 1;
    }
    names
}

/// Line, heading without its marks, and body of every section of second level or below.
fn sections(manual: &str) -> Vec<(usize, String, String)> {
    let mut found: Vec<(usize, String, String)> = Vec::new();
    for (index, line) in manual.lines().enumerate() {
        if line.starts_with("##") {
            let heading = line.trim_start_matches('#').trim().trim_matches('`').to_string();
            found.push((index + 1, heading, String::new()));
        } else if let Some((_, _, body)) = found.last_mut() {
            body.push_str(line);
            body.push('\n');
        }
    }
    found
}

/// `FrameAllocate`, `frame_allocate` and `` `frame-allocate` `` are the same name.
fn normal(name: &str) -> String {
    name.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::{fixture, rules};
    use super::*;

    const CONTRACT: &str = "calls! {\n  /// Nothing.\n  0 Null {}\n  1 FrameFree { slot: [u8; 3] }\n}";

    fn found(contract: &str, manual: &str) -> Vec<(usize, &'static str)> {
        let mut sources = fixture("abi/call.rs", contract);
        sources.extend(fixture("abi.md", manual));
        let config =
            Config { calls_source: "abi/call.rs".to_string(), calls_manual: "abi.md".to_string(), ..Config::default() };
        rules(&check(&sources, &config))
    }

    #[test]
    fn a_call_without_its_section_is_found() {
        let full = "## 0 `Null`\nRights: none. Errors: none. Cost: 1.\n## `frame_free`\nRights, errors, cost.\n";
        assert_eq!(found(CONTRACT, full), []);
        assert_eq!(found(CONTRACT, &full.replace("frame_free", "frame")), [(4, "calls-manual")]);
        assert_eq!(found(CONTRACT, &full.replace("Cost: 1", "")), [(1, "calls-manual")]);
        assert_eq!(found(CONTRACT, ""), [(3, "calls-manual"), (4, "calls-manual")]);
    }

    #[test]
    fn a_contract_that_the_lint_cannot_read_is_found() {
        assert_eq!(found("enum Call { Null }", ""), [(0, "calls-manual")]);
    }

    #[test]
    fn dependencies_and_their_sections_are_matched_both_ways() {
        let mut sources = fixture("Cargo.toml", "[workspace.dependencies]\nbitflags = \"2\"\nspin = \"1\"");
        sources.extend(fixture("d.md", "# Dependencies\n\n## bitflags\n\n## gone\n"));
        let config = Config { dependencies_manual: "d.md".to_string(), ..Config::default() };
        let findings = check(&sources, &config);
        assert_eq!(rules(&findings), [(0, "dependencies-manual"), (5, "dependencies-manual")]);
    }
}
