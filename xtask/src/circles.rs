//! `cargo xtask circles [FOLDER]`: files that use each other in a loop, and by which names.

use std::path::Path;

use crate::errors::Error;
use crate::modules::{self, Graph};
use crate::source;

/// Prints the circles of all crates, or of the one in `folder`, with every arrow in them.
pub(crate) fn print(root: &Path, folder: Option<&str>) -> Result<(), Error> {
    let graphs = modules::graphs(&source::read_all(root)?);
    for (name, graph) in graphs.iter().filter(|(name, _)| folder.is_none_or(|folder| folder == name.as_str())) {
        print_one(name, graph, folder.is_some());
    }
    Ok(())
}

fn print_one(folder: &str, graph: &Graph, with_names: bool) {
    for circle in graph.circles() {
        println!("{folder}: {} files", circle.len());
        for file in &circle {
            let short = |path: &str| path.strip_prefix(folder).unwrap_or(path).trim_start_matches("/src/").to_string();
            println!("  {}", short(file));
            let used = graph.arrows.get(*file).into_iter().flatten();
            for (other, names) in used.filter(|(other, _)| with_names && circle.contains(other.as_str())) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                println!("    -> {}: {}", short(other), names.join(" "));
            }
        }
    }
}
