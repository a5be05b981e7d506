//! `compose.yaml` for `aegis up`: each service becomes a pod, and each key that is not kept is named.
//!
//! | file | what |
//! |---|---|
//! | `yaml` | the document as values with lines |
//! | `interpolate` | `$NAME` in values, and files of variables |
//! | `service` | one service into a pod |
//!
//! The answer is what `aegis up`'s own file comes to (`verb::up_file`), so everything behind it is the same.

mod interpolate;
mod service;
mod yaml;

use std::path::{Path, PathBuf};

use aegis_link::pods::POD_COUNT_MAX;

use crate::compose::interpolate::{Variables, read_variables};
use crate::compose::service::Service;
use crate::compose::yaml::{Node, Value, Wrong, parse};
use crate::verb::up_file::UpFile;

/// A file that was understood, and what the user should know of it.
#[derive(Debug)]
pub(crate) struct Compose {
    pub(crate) file: UpFile,
    /// What is not kept, a line each.
    pub(crate) notes: Vec<String>,
    /// Directories of volumes that are not there and are to be made.
    pub(crate) directories: Vec<PathBuf>,
}

/// Whether a file is compose's by its name.
pub(crate) fn is_compose(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Reads a file's text; `environment` wins over the folder's `.env`.
///
/// # Errors
/// One line, with the line of the file.
pub(crate) fn read(
    text: &str,
    folder: &Path,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Compose, String> {
    let mut values = std::collections::BTreeMap::new();
    if let Ok(text) = std::fs::read_to_string(folder.join(".env")) {
        let found = read_variables(&text).map_err(|why| format!(".env: {why}"))?;
        values.extend(found.into_iter().filter_map(|(name, value)| Some((name, value?))));
    }
    values.extend(environment);
    let mut reader = Reader {
        variables: Variables::new(values),
        folder: folder.into(),
        project: None,
        notes: Vec::new(),
        directories: Vec::new(),
    };
    let file = reader.file(text).map_err(|(line, why)| format!("line {line}: {why}"))?;
    for name in &reader.variables.missing {
        reader.notes.push(format!("{name} is not set, and counts as empty"));
    }
    Ok(Compose { file, notes: reader.notes, directories: reader.directories })
}

/// What is known while a file is read.
struct Reader {
    variables: Variables,
    folder: PathBuf,
    project: Option<String>,
    notes: Vec<String>,
    directories: Vec<PathBuf>,
}

impl Reader {
    fn file(&mut self, text: &str) -> Result<UpFile, Wrong> {
        let root = self.filled(parse(text)?)?;
        let Value::Map(keys) = root.value else { return Err((root.line, "a file has services:".into())) };
        let mut services = Vec::new();
        for (key, node) in &keys {
            match (key.as_str(), &node.value) {
                ("services", Value::Map(all)) => services = all.clone(),
                ("services", _) => return Err((node.line, "services: a map of services is wanted".into())),
                ("name", Value::Scalar(name, _)) if is_project(name) => self.project = Some(name.clone()),
                ("name", _) => {
                    return Err((node.line, "name: small letters, digits, - and _, a letter or digit first".into()));
                }
                // It says nothing (and compose says so).
                ("version", _) => {}
                ("volumes", Value::Map(all)) => self.named_volumes(all),
                ("volumes", _) if node.is_null() => {}
                (key, _) if key.starts_with("x-") => {}
                (key, _) => self.ignored(node.line, key),
            }
        }
        if services.is_empty() {
            return Err((root.line, "no services".into()));
        }
        let (mut pods, mut dependencies) = (Vec::new(), Vec::new());
        for (name, node) in services {
            if let Some((pod, written)) = Service::new(self, &name, node.line).read(&node)? {
                pods.push(pod);
                dependencies.push(written);
            }
        }
        if pods.is_empty() {
            return Err((root.line, "every service has a profile that is not in COMPOSE_PROFILES".into()));
        }
        if pods.len() > POD_COUNT_MAX {
            return Err((root.line, format!("{} services; a machine has at most {POD_COUNT_MAX} pods", pods.len())));
        }
        let mut file = UpFile {
            cpus: 1,
            memory: None,
            slice_ms: None,
            trusts_devices: false,
            pods,
            currencies: Vec::new(),
            pool: None,
            pool_fault: None,
        };
        file.settle(&dependencies)?;
        Ok(file)
    }

    /// A value with its variables filled in; keys stay.
    fn filled(&mut self, node: Node) -> Result<Node, Wrong> {
        let line = node.line;
        let value = match node.value {
            Value::Scalar(text, is_plain) => {
                Value::Scalar(self.variables.fill(&text).map_err(|why| (line, why))?, is_plain)
            }
            Value::List(list) => Value::List(list.into_iter().map(|it| self.filled(it)).collect::<Result<_, _>>()?),
            Value::Map(map) => {
                let one = |(key, node)| Ok((key, self.filled(node)?));
                Value::Map(map.into_iter().map(one).collect::<Result<_, Wrong>>()?)
            }
        };
        Ok(Node { line, value })
    }

    fn ignored(&mut self, line: usize, key: &str) {
        self.notes.push(format!("line {line}: {key} is not kept"));
    }

    /// A named volume is a directory, whatever its own keys say.
    fn named_volumes(&mut self, all: &[(String, Node)]) {
        for (name, node) in all {
            let Value::Map(keys) = &node.value else { continue };
            for (key, value) in keys {
                self.ignored(value.line, &format!("volumes.{name}.{key}"));
            }
        }
    }

    /// The project's name, which becomes part of a path: what the file says, or what of its folder's can be one.
    fn project(&self) -> Result<String, String> {
        if let Some(name) = &self.project {
            return Ok(name.clone());
        }
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name: String = folder.chars().filter(|letter| is_project(&format!("a{letter}"))).collect();
        let name = name.trim_start_matches(['-', '_']);
        if is_project(name) { Ok(name.into()) } else { Err("volumes with names want the file to have a name:".into()) }
    }
}

/// Whether this is a project's name by compose's rule.
fn is_project(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.bytes().next().is_some_and(is_plain) && name.bytes().all(|byte| is_plain(byte) || b"-_".contains(&byte))
}

#[cfg(test)]
#[path = "compose_tests.rs"]
mod tests;
