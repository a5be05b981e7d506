//! Other people's tools, for what they keep and what they build: podman, skopeo, buildah.
//!
//! Their storage has no format that others may rely on, so they are asked for an archive. Each is called by its own
//! name with words of our own in front of the user's, and never through a shell.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::images::errors::{ImageError, shown};
use crate::images::source::Reference;
use crate::machine::artifacts::find_on_path;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Fewest digits that are taken for an identifier and no name.
const ID_DIGIT_COUNT_MIN: usize = 12;

type Result<T> = std::result::Result<T, ImageError>;

/// Whether a directory of PATH has this program.
fn is_there(name: &str) -> bool {
    find_on_path(OsStr::new(name)).is_some()
}

fn missing(what: &str, names: &str) -> ImageError {
    ImageError::Tool(format!(
        "{what} needs {names}, and this host has none; on Debian and Ubuntu: sudo apt install podman"
    ))
}

/// Runs a tool; its output, or what it complained about.
fn output(name: &str, words: &[&OsStr]) -> Result<String> {
    let output = Command::new(name).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| ImageError::Io(name.into(), error))?;
    if output.status.success() {
        let bytes = &output.stdout[..output.stdout.len().min(ANSWER_BYTES_MAX)];
        return Ok(String::from_utf8_lossy(bytes).trim().to_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed and said nothing");
    Err(ImageError::Tool(format!("{name}: {}", shown(line.as_bytes()))))
}

/// An image of containers' storage.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Its identifier, if a tool is here that says it.
    pub(crate) id: Option<String>,
    /// Its whole name, unless it was asked for by the identifier.
    pub(crate) name: Option<String>,
}

/// Finds out what a name stands for.
pub(crate) fn stored(name: &str) -> Result<Stored> {
    if !is_there("podman") {
        // buildah puts what it builds under this host's own names; skopeo alone knows none but whole ones.
        let own = format!("localhost/{name}");
        let names: &[&str] = if is_there("buildah") && !has_host(name) { &[&own] } else { &[name] };
        return Ok(Stored { id: None, name: whole_name(name, names) });
    }
    let format = "{{.Id}}{{range .RepoTags}} {{.}}{{end}}";
    let words = ["image", "inspect", "--format", format, "--", name].map(OsStr::new);
    output("podman", &words).map(|answer| said(name, &answer))
}

/// Reads podman's answer: the identifier, and all names of the image.
fn said(name: &str, answer: &str) -> Stored {
    let mut words = answer.split_whitespace();
    let id = words.next().map(|id| id.trim_start_matches("sha256:").to_owned());
    Stored { id, name: whole_name(name, &words.collect::<Vec<_>>()) }
}

fn has_host(name: &str) -> bool {
    name.split_once('/').is_some_and(|(host, _)| host.contains(['.', ':']) || host == "localhost")
}

/// Which of an image's names was meant: none if it was asked for by its identifier.
fn whole_name(asked: &str, names: &[&str]) -> Option<String> {
    let is_id = asked.len() >= ID_DIGIT_COUNT_MIN && asked.bytes().all(|byte| byte.is_ascii_hexdigit());
    let whole = |name: &str| Reference::parse(name).ok().map(|reference| reference.shown());
    let names: Vec<String> = names.iter().filter_map(|name| whole(name)).collect();
    let wanted = [asked.to_owned(), format!("localhost/{asked}")].map(|name| whole(&name));
    // A short name may stand for one of a registry that podman was set up to look in.
    let end = whole(&format!("localhost/{asked}")).map(|name| name.replacen("localhost", "", 1));
    let is_exact = |name: &&String| wanted.iter().flatten().any(|wanted| wanted == *name);
    let is_alike = |name: &&String| !is_id && end.as_ref().is_some_and(|end| name.ends_with(end.as_str()));
    names.iter().find(is_exact).or_else(|| names.iter().find(is_alike)).cloned()
}

/// Writes an image of containers' storage to an archive of `docker save`'s form.
pub(crate) fn save(name: &str, path: &Path) -> Result<()> {
    let from = format!("containers-storage:{name}");
    let mut to = OsStr::new("docker-archive:").to_owned();
    to.push(path);
    if is_there("skopeo") {
        return output("skopeo", &["copy".as_ref(), "--quiet".as_ref(), from.as_ref(), &to]).map(drop);
    }
    if is_there("podman") {
        let words: [&OsStr; 8] = [
            "save".as_ref(),
            "--quiet".as_ref(),
            "--format".as_ref(),
            "docker-archive".as_ref(),
            "--output".as_ref(),
            path.as_ref(),
            "--".as_ref(),
            name.as_ref(),
        ];
        return output("podman", &words).map(drop);
    }
    if is_there("buildah") {
        return output("buildah", &["push".as_ref(), "--quiet".as_ref(), name.as_ref(), &to]).map(drop);
    }
    Err(missing("containers-storage", "podman, skopeo or buildah"))
}

/// Builds a directory's Dockerfile under a name, with the user's further words.
///
/// # Errors
/// `Tool`: there is none that could, or it failed (and has said why itself).
pub fn build(name: &str, directory: &Path, file: Option<&Path>) -> Result<()> {
    let (tool, verb) = match (is_there("buildah"), is_there("podman")) {
        (true, _) => ("buildah", "bud"),
        (false, true) => ("podman", "build"),
        (false, false) => return Err(missing("building", "buildah or podman")),
    };
    let mut command = Command::new(tool);
    command.arg(verb).arg("--tag").arg(name);
    if let Some(file) = file {
        command.arg("--file").arg(file);
    }
    let status = command.arg("--").arg(directory).status().map_err(|error| ImageError::Io(tool.into(), error))?;
    if status.success() { Ok(()) } else { Err(ImageError::Tool(format!("{tool} {verb}: {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn the_name_that_was_meant_is_whole() {
        let id = "0123456789abcdef";
        for (asked, names, expected) in [
            ("web:2", "localhost/web:2", Some("localhost/web:2")),
            ("web", "quay.io/x:1 localhost/web:latest", Some("localhost/web:latest")),
            ("alpine", "docker.io/library/alpine:latest", Some("docker.io/library/alpine:latest")),
            ("fedora", "registry.fedoraproject.org/fedora:latest", Some("registry.fedoraproject.org/fedora:latest")),
            ("quay.io/x:1", "localhost/x:1 quay.io/x:1", Some("quay.io/x:1")),
            ("web:2", "localhost/web:3 localhost/other-web:2", None),
            ("0123456789ab", "localhost/web:2", None),
            ("web", "", None),
        ] {
            let found = said(asked, &format!("sha256:{id} {names}\n"));
            assert_eq!((found.id.as_deref(), found.name.as_deref()), (Some(id), expected), "{asked}");
        }
    }
}
