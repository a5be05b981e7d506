//! The tables of folders against the tree: what README and ARCHITECTURE name exists, and what exists is named.
//!
//! README's table has each folder at the top that holds files; the tables under ARCHITECTURE's "Rooms" have the folders
//! below. A folder with sources counts as named there if it lies in a named one or one of its own is; a crate's tests
//! and examples need no name.

use std::collections::BTreeSet;

use super::config::Config;
use super::finding::Finding;
use crate::source::Source;

/// Folders that are what they are called, wherever they are.
const PLAIN: [&str; 3] = ["tests", "examples", "benches"];

pub(super) fn check(sources: &[Source], config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let folders: BTreeSet<&str> = sources.iter().flat_map(|source| ancestors(&source.path)).collect();
    let tables =
        [(&config.folders_manual, config.folders_heading.as_str()), (&config.rooms_manual, &config.rooms_heading)];
    let [top, rooms] = tables.map(|(manual, heading)| {
        let text = sources.iter().find(|source| source.path == *manual).map_or("", |source| source.text.as_str());
        let named = named(text, heading);
        for (line, name) in named.iter().filter(|(_, name)| !folders.contains(name)) {
            findings.push(Finding::new(manual, *line, "rooms", format!("there is no folder {name}")));
        }
        named.into_iter().map(|(_, name)| name).collect::<Vec<&str>>()
    });
    for folder in folders.iter().filter(|folder| !folder.contains('/') && !folder.starts_with('.')) {
        if !top.contains(folder) {
            let message = format!("the folder {folder}/ is not in the table under \"{}\"", config.folders_heading);
            findings.push(Finding::new(&config.folders_manual, 0, "rooms", message));
        }
    }
    let with_sources = sources.iter().filter(|source| source.is_code() || source.path.ends_with(".c"));
    let homes: BTreeSet<&str> = with_sources.filter_map(|source| Some(source.path.rsplit_once('/')?.0)).collect();
    for home in homes {
        let is_plain = home.split('/').skip(1).any(|part| PLAIN.contains(&part));
        let is_named = rooms.iter().any(|room| lies_in(home, room) || lies_in(room, home));
        if !is_plain && !is_named {
            let message = format!("the folder {home} is in no room under \"{}\"", config.rooms_heading);
            findings.push(Finding::new(&config.rooms_manual, 0, "rooms", message));
        }
    }
    findings
}

fn lies_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The folders that a file lies in, one in the other.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

/// Line and name of every folder in the first column of the tables of a section.
fn named<'a>(text: &'a str, heading: &str) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (line, number) in text.lines().zip(1..) {
        if line.starts_with('#') {
            is_inside = line.trim_start_matches('#').trim() == heading;
        } else if let Some(cell) = line.strip_prefix('|').and_then(|row| row.split('|').next())
            && is_inside
        {
            // Names stand between back quotes: each second piece.
            let names = cell.split('`').skip(1).step_by(2);
            found.extend(names.map(|name| (number, name.trim_end_matches('/'))));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::rules;
    use super::*;

    fn found(readme: &str, rooms: &str) -> Vec<(usize, &'static str)> {
        let config = Config {
            folders_manual: "README.md".to_string(),
            folders_heading: "The tree".to_string(),
            rooms_manual: "A.md".to_string(),
            rooms_heading: "Rooms".to_string(),
            ..Config::default()
        };
        let files = ["a/src/lib.rs", "a/src/b/c/d.rs", "a/src/e/f.rs", "a/tests/g.rs", ".ci/run"];
        let mut sources: Vec<Source> = files.iter().map(|path| Source::new(path, "")).collect();
        sources.push(Source::new("README.md", readme));
        sources.push(Source::new("A.md", rooms));
        rules(&check(&sources, &config))
    }

    const README: &str = "## The tree\n\n| folder | what |\n|---|---|\n| `a/` | `x/` |\n";
    const ROOMS: &str = "# A\n## Rooms\n| room | holds |\n| `a/src/b`, `a/src/e` | `y` |\n## Other\n| `z` | |\n";

    #[test]
    fn a_folder_without_a_name_and_a_name_without_a_folder_are_found() {
        assert_eq!(found(README, ROOMS), []);
        assert_eq!(found("", ROOMS), [(0, "rooms")]);
        assert_eq!(found(&README.replace("`a/`", "`a/`, `b/`"), ROOMS), [(5, "rooms")]);
        assert_eq!(found(README, &ROOMS.replace(", `a/src/e`", "")), [(0, "rooms")]);
        assert_eq!(found(README, &ROOMS.replace("`a/src/e`", "`a/src/f`")), [(4, "rooms"), (0, "rooms")]);
        assert_eq!(found(README, &ROOMS.replace("`a/src/b`, `a/src/e`", "`a`")), []);
    }
}
