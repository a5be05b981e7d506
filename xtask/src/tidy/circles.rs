//! The law against circles: files that use each other in a loop can only be read together, so few may. A circle is
//! as large as the number of its files; a crate with a larger one than the limit has a ratchet that only shrinks.

use std::collections::BTreeMap;

use super::config::Config;
use super::finding::Finding;
use crate::modules::Graph;

pub(super) fn check(graphs: &BTreeMap<String, Graph>, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, graph) in graphs {
        let largest = graph.circles().into_iter().next().unwrap_or_default();
        let (files, limit) = (largest.len(), config.circle_files);
        let allowed = config.circle_ratchet.get(folder).copied();
        let message = match allowed {
            None if files > limit => {
                let names: Vec<&str> = largest.into_iter().collect();
                format!("{files} files use each other in a circle, the limit is {limit}: {}", names.join(" "))
            }
            Some(allowed) if files > allowed => {
                format!("a circle of {files} files, there were {allowed}: `cargo xtask circles {folder}` shows it")
            }
            Some(allowed) if files <= limit => format!("no circle above {limit}: remove its exception of {allowed}"),
            Some(allowed) if files < allowed => {
                format!("its largest circle has {files} files: lower {allowed} to that")
            }
            _ => continue,
        };
        findings.push(Finding::new(folder, 0, "circles", message));
    }
    for folder in config.circle_ratchet.keys().filter(|folder| !graphs.contains_key(*folder)) {
        findings.push(Finding::new("tidy.toml", 0, "circles", format!("{folder} is no crate: remove its exception")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::rules;
    use super::*;
    use crate::modules;
    use crate::source::Source;

    fn found(limit: usize, ratchet: &[(&str, usize)]) -> usize {
        let sources = [
            Source::new("a/Cargo.toml", ""),
            Source::new("a/src/lib.rs", "mod b; mod c;"),
            Source::new("a/src/b.rs", "use crate::c::C; pub struct B;"),
            Source::new("a/src/c.rs", "use crate::b::B; pub struct C;"),
        ];
        let circle_ratchet = ratchet.iter().map(|(folder, files)| (folder.to_string(), *files)).collect();
        let config = Config { circle_files: limit, circle_ratchet, ..Config::default() };
        let findings = check(&modules::graphs(&sources), &config);
        assert!(rules(&findings).iter().all(|found| *found == (0, "circles")));
        findings.len()
    }

    #[test]
    fn a_circle_above_the_limit_is_found_and_a_ratchet_only_shrinks() {
        assert_eq!(found(2, &[]), 0);
        assert_eq!(found(1, &[]), 1);
        assert_eq!(found(1, &[("a", 2)]), 0);
        assert_eq!(found(0, &[("a", 1)]), 1, "grown");
        assert_eq!(found(1, &[("a", 3)]), 1, "shrunk");
        assert_eq!(found(2, &[("a", 2)]), 1, "no longer needed");
        assert_eq!(found(2, &[("b", 2)]), 1, "no crate");
    }
}
