//! Which file of a crate uses which: the arrows between files, read from `use` lines and paths.
//!
//! A path is followed to the file that defines what it names, through re-exports and globs, so that a `mod.rs` that
//! only hands names on has no arrows of its own. Tests are left out, `mod` declarations are no arrows, and a macro's
//! body is read as any other text. Types reached by a method alone leave no arrow: a name has to be written down.
//! `tidy::circles` looks for circles in what this makes; `cargo xtask circles` prints them.

mod paths;

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;
use paths::{Names, Path};

/// A re-export that leads through more modules than this leads nowhere.
const HOPS_MAX: usize = 16;

/// The files of one crate, and what ties them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    /// By path of the file that uses, by path of the one that is used: the names that are taken.
    pub(crate) arrows: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

/// A file as a module.
struct Module<'a> {
    path: &'a str,
    names: Names,
}

/// Modules of a crate by their path in it; the root's is empty.
type Modules<'a> = BTreeMap<Path, Module<'a>>;

/// One graph for each crate, by its folder. Binaries and libraries of one folder are one crate here.
pub(crate) fn graphs(sources: &[Source]) -> BTreeMap<String, Graph> {
    let manifests = sources.iter().filter_map(|source| source.path.strip_suffix("/Cargo.toml"));
    manifests.map(|folder| (folder.to_string(), graph(folder, sources))).collect()
}

fn graph(folder: &str, sources: &[Source]) -> Graph {
    let prefix = format!("{folder}/src/");
    let mut modules = Modules::new();
    for source in sources.iter().filter(|source| source.is_rust() && !source.is_test) {
        if let Some(path) = source.path.strip_prefix(&prefix) {
            modules.insert(module_path(path), Module { path: &source.path, names: Names::read(source) });
        }
    }
    let mut graph = Graph::default();
    for (place, module) in &modules {
        for (path, is_use) in module.names.paths() {
            let Some((found, is_module)) = resolve(&modules, place, path, HOPS_MAX) else { continue };
            // A module that is brought in by its name is used where a path goes through it.
            if found == place || (is_use && is_module) {
                continue;
            }
            let used = graph.arrows.entry(module.path.to_string()).or_default();
            let name = path.last().cloned().unwrap_or_default();
            used.entry(modules[found].path.to_string()).or_default().insert(name);
        }
    }
    graph
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`; `lib.rs` and `main.rs` the root.
fn module_path(file: &str) -> Path {
    let mut parts: Path = file.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// The module in which what `path` names is defined, as seen from `place`, and whether a module is what it names.
/// `None`: another crate's, or a name that is in scope without a path.
fn resolve<'a>(modules: &'a Modules<'_>, place: &Path, path: &[String], hops: usize) -> Option<(&'a Path, bool)> {
    let hops = hops.checked_sub(1)?;
    let (first, mut rest) = path.split_first()?;
    let mut here = match first.as_str() {
        "crate" => Path::new(),
        "self" => place.clone(),
        "super" => {
            let mut here = place.clone();
            here.pop()?;
            while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
                here.pop()?;
                rest = after;
            }
            here
        }
        _ if modules.contains_key(&child(place, first)) => child(place, first),
        _ => {
            let import = modules.get(place)?.names.imported(first)?;
            // What a name was brought in from is an arrow of its own `use`; here it is only gone through.
            let through: Path = import.iter().chain(rest).cloned().collect();
            return (import.first() != Some(first)).then(|| resolve(modules, place, &through, hops)).flatten();
        }
    };
    while let Some((next, after)) = rest.split_first() {
        let inner = child(&here, next);
        if modules.contains_key(&inner) {
            here = inner;
            rest = after;
            continue;
        }
        return item(modules, &here, rest, hops).map(|found| (found.0, found.1));
    }
    modules.get_key_value(&here).map(|(found, _)| (found, true))
}

/// Where the item `rest[0]` of the module `here` is defined.
fn item<'a>(modules: &'a Modules<'_>, here: &Path, rest: &[String], hops: usize) -> Option<(&'a Path, bool)> {
    let (found, module) = modules.get_key_value(here)?;
    let name = rest.first()?;
    if module.names.defines(name) {
        return Some((found, false));
    }
    if let Some(import) = module.names.imported(name) {
        let through: Path = import.iter().chain(&rest[1..]).cloned().collect();
        return resolve(modules, here, &through, hops);
    }
    let globs = module.names.globs().filter_map(|glob| resolve(modules, here, glob, hops));
    let defines = |place: &&Path| modules.get(*place).is_some_and(|module| module.names.defines(name));
    let by_glob = globs.filter(|(_, is_module)| *is_module).map(|(place, _)| place).find(defines);
    Some((by_glob.unwrap_or(found), false))
}

fn child(place: &Path, name: &str) -> Path {
    place.iter().cloned().chain([name.to_string()]).collect()
}

impl Graph {
    /// Sets of files each of which reaches every other of its set, largest first; a file by itself is none.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.arrows.keys().map(|file| (file.as_str(), self.reach(file))).collect();
        let mut circles: Vec<BTreeSet<&str>> = Vec::new();
        for (file, behind) in &reached {
            if !behind.contains(file) || circles.iter().any(|circle| circle.contains(file)) {
                continue;
            }
            let comes_back = |other: &&&str| reached.get(**other).is_some_and(|behind| behind.contains(file));
            circles.push(behind.iter().filter(comes_back).copied().collect());
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// All files that arrows lead to from `file`; itself, if they lead back.
    fn reach(&self, file: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut ahead = vec![file];
        while let Some(next) = ahead.pop() {
            for used in self.arrows.get(next).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(used.as_str()) {
                    ahead.push(used);
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph_of(files: &[(&str, &str)]) -> Graph {
        let mut sources = vec![Source::new("a/Cargo.toml", "")];
        sources.extend(files.iter().map(|(path, text)| Source::new(&format!("a/src/{path}"), text)));
        graphs(&sources).remove("a").unwrap()
    }

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph_of(files);
        let short = |path: &str| path.trim_start_matches("a/src/").trim_end_matches(".rs").to_string();
        let pairs = graph.arrows.iter().flat_map(|(from, used)| used.keys().map(move |to| (from, to)));
        pairs.map(|(from, to)| format!("{} {}", short(from), short(to))).collect()
    }

    #[test]
    fn paths_of_every_kind_are_arrows_to_the_file_that_defines() {
        let files =
            |text| [("lib.rs", "mod b; mod c;"), ("b.rs", text), ("c.rs", "pub mod d; pub fn f() {}"), ("c/d.rs", "")];
        assert_eq!(arrows(&files("use crate::c::f;")), ["b c"]);
        assert_eq!(arrows(&files("use super::c::{self, d::{G, H as I}};")), ["b c/d"]);
        assert_eq!(arrows(&files("use crate::c as e; fn g() { e::d::x(); }")), ["b c/d"]);
        assert_eq!(arrows(&files("fn g() { crate::c::f(); }")), ["b c"]);
        assert_eq!(arrows(&files("use other::c::f; fn g() { c::f(); }")), Vec::<String>::new());
        assert_eq!(
            arrows(&files("// use crate::c::f;\n#[cfg(test)] mod tests { use crate::c::f; }")),
            Vec::<String>::new()
        );
        assert_eq!(arrows(&[("lib.rs", "mod b; fn f() { b::g(); }"), ("b.rs", "")]), ["lib b"]);
    }

    #[test]
    fn a_name_that_is_handed_on_leads_to_its_own_file() {
        let own = [
            ("lib.rs", "mod b; mod e;"),
            ("b/mod.rs", "mod c; mod d; pub use c::T; pub use d::*;"),
            ("b/c.rs", "pub struct T;"),
        ];
        let files = |user| [own.as_slice(), &[("b/d.rs", "pub fn u() {}"), ("e.rs", user)]].concat();
        assert_eq!(arrows(&files("use crate::b::T;")), ["e b/c"]);
        assert_eq!(arrows(&files("use crate::b::u;")), ["e b/d"]);
    }

    #[test]
    fn a_circle_is_found_whole_and_once() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d; use a::A;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::a::A; use crate::d::D; pub struct C;"),
            ("d.rs", "pub struct D;"),
        ];
        let graph = graph_of(&files);
        let circles = graph.circles();
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].iter().copied().collect::<Vec<_>>(), ["a/src/a.rs", "a/src/b.rs", "a/src/c.rs"]);
        let line = [&files[..3], &[("c.rs", "pub struct C;")]].concat();
        assert_eq!(graph_of(&line).circles().len(), 0);
    }

    #[test]
    fn an_endless_re_export_ends() {
        assert_eq!(
            arrows(&[("lib.rs", "mod b; pub use b::T;"), ("b.rs", "pub use crate::T; fn f(x: T) { T::n() }")]).len(),
            0
        );
    }
}
