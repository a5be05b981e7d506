//! The dependency law: which crate of ours may know which, read from every `Cargo.toml`; and what those that
//! everybody has to trust may take from others.

use std::collections::{BTreeMap, BTreeSet};

use super::config::Config;
use super::finding::Finding;
use crate::source::Source;
use crate::toml::{self, Table, Value};

/// One crate of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Manifest {
    path: String,
    name: String,
    dependencies: BTreeSet<String>,
    dev_dependencies: BTreeSet<String>,
}

pub(super) fn check(sources: &[Source], config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut manifests = Vec::new();
    for source in sources.iter().filter(|source| is_manifest(source)) {
        match toml::parse(&source.text) {
            Ok(document) => manifests.extend(Manifest::new(&source.path, &document)),
            Err(problem) => findings.push(Finding::new(&source.path, 0, "manifest", problem)),
        }
    }
    let ours: BTreeSet<&str> = manifests.iter().map(|manifest| manifest.name.as_str()).collect();
    for manifest in &manifests {
        manifest.check(&ours, config, &mut findings);
    }
    if manifests.len() > config.crates {
        let message = format!("{} crates, the limit is {}", manifests.len(), config.crates);
        findings.push(Finding::new("Cargo.toml", 0, "crate-count", message));
    }
    for name in config.arrows.keys().filter(|name| !ours.contains(name.as_str())) {
        let message = format!("[arrows] names {name}, which is no crate of the workspace");
        findings.push(Finding::new("tidy.toml", 0, "arrows", message));
    }
    findings
}

/// Crates of others that the workspace's manifest names; each must be in the manual of dependencies.
pub(super) fn workspace_dependencies(manifest: &str) -> Vec<String> {
    let document = toml::parse(manifest).unwrap_or_default();
    let dependencies = document
        .get("workspace")
        .and_then(Value::as_table)
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(Value::as_table);
    let is_other = |value: &Value| value.as_table().is_none_or(|details| !details.contains_key("path"));
    let others = dependencies.into_iter().flatten().filter(|(_, value)| is_other(value));
    others.map(|(name, value)| package_name(name, value)).collect()
}

fn is_manifest(source: &Source) -> bool {
    source.path.ends_with("/Cargo.toml")
}

impl Manifest {
    /// `None` for one without a package.
    fn new(path: &str, document: &Table) -> Option<Manifest> {
        let package = document.get("package")?.as_table()?;
        let mut manifest = Manifest {
            path: path.to_string(),
            name: package.get("name")?.as_str()?.to_string(),
            ..Manifest::default()
        };
        manifest.add(document);
        for target in document.get("target").and_then(Value::as_table).into_iter().flatten() {
            manifest.add(target.1.as_table()?);
        }
        Some(manifest)
    }

    fn add(&mut self, document: &Table) {
        let names = |key: &str| -> Vec<String> {
            let table = document.get(key).and_then(Value::as_table);
            table.into_iter().flatten().map(|(name, value)| package_name(name, value)).collect()
        };
        self.dependencies.extend(names("dependencies"));
        self.dependencies.extend(names("build-dependencies"));
        self.dev_dependencies.extend(names("dev-dependencies"));
    }

    fn check(&self, ours: &BTreeSet<&str>, config: &Config, findings: &mut Vec<Finding>) {
        let Some(allowed) = config.arrows.get(&self.name) else {
            let message = format!("{} has no line in [arrows] of tidy.toml", self.name);
            findings.push(Finding::new(&self.path, 0, "arrows", message));
            return;
        };
        let listed = |table: &BTreeMap<String, Vec<String>>, name: &String| {
            table.get(&self.name).is_some_and(|names| names.contains(name))
        };
        for name in self.dependencies.union(&self.dev_dependencies) {
            let is_ours = ours.contains(name.as_str());
            let only_dev = !self.dependencies.contains(name);
            let is_allowed = match (is_ours, only_dev) {
                (true, false) => allowed.contains(name),
                (true, true) => allowed.contains(name) || listed(&config.dev_arrows, name),
                (false, true) => true,
                (false, false) => !config.external.contains_key(&self.name) || listed(&config.external, name),
            };
            if !is_allowed {
                let message = format!("{} may not depend on {name} (tidy.toml)", self.name);
                findings.push(Finding::new(&self.path, 0, "arrows", message));
            }
        }
    }
}

/// What a dependency is really called: `x = { package = "y" }` is y.
fn package_name(name: &str, value: &Value) -> String {
    let renamed = value.as_table().and_then(|details| details.get("package")).and_then(Value::as_str);
    renamed.unwrap_or(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::finding::{fixture, rules};
    use super::*;

    fn workspace(kernel: &str) -> Vec<Source> {
        let mut sources = fixture("kernel/Cargo.toml", &format!("[package]\nname = \"kernel\"\n{kernel}"));
        sources.extend(fixture("exos/Cargo.toml", "[package]\nname = \"exos\""));
        sources.extend(fixture("abi/Cargo.toml", "[package]\nname = \"abi\""));
        sources
    }

    fn config() -> Config {
        let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        Config {
            crates: 3,
            arrows: BTreeMap::from([
                ("abi".to_string(), list(&[])),
                ("exos".to_string(), list(&["abi"])),
                ("kernel".to_string(), list(&["abi"])),
            ]),
            external: BTreeMap::from([("kernel".to_string(), list(&["bitflags"]))]),
            ..Config::default()
        }
    }

    fn found(kernel: &str) -> Vec<(usize, &'static str)> {
        rules(&check(&workspace(kernel), &config()))
    }

    #[test]
    fn an_arrow_against_the_law_is_found() {
        for section in ["dependencies", "build-dependencies", "dev-dependencies", "target.'cfg(x)'.dependencies"] {
            for entry in ["exos.workspace = true", "e = { package = \"exos\", path = \"../exos\" }"] {
                assert_eq!(found(&format!("[{section}]\n{entry}")), [(0, "arrows")], "{section} {entry}");
            }
        }
        assert_eq!(found("[dependencies]\nabi.workspace = true\nbitflags = \"2\""), []);
    }

    #[test]
    fn a_dependency_that_a_trusted_crate_may_not_have_is_found() {
        assert_eq!(found("[dependencies]\nserde = \"1\""), [(0, "arrows")]);
        assert_eq!(found("[dev-dependencies]\nproptest = \"1\""), []);
    }

    #[test]
    fn unknown_crates_and_too_many_are_found() {
        let mut sources = workspace("");
        sources.extend(fixture("more/Cargo.toml", "[package]\nname = \"more\""));
        assert_eq!(rules(&check(&sources, &config())), [(0, "arrows"), (0, "crate-count")]);
        assert_eq!(rules(&check(&workspace("")[1..], &config())), [(0, "arrows")]);
        assert_eq!(rules(&check(&fixture("a/Cargo.toml", "x = 1.5"), &Config::default())), [(0, "manifest")]);
    }

    #[test]
    fn crates_of_others_are_told_from_ours() {
        let text = r#"
            [workspace.dependencies]
            bitflags = "2"
            abi = { path = "abi" }
            x = { package = "y", version = "1" }
        "#;
        assert_eq!(workspace_dependencies(text), ["bitflags", "y"]);
    }
}
