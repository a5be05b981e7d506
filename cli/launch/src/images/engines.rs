//! Other people's tools, for what they keep and what they build: podman, skopeo, buildah.
//!
//! Their storage has no format that others may rely on, so they are asked for an archive. Each is called by its own
//! name with words of our own in front of the user's, and never through a shell.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::images::errors::{ImageError, shown};

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

type Result<T> = std::result::Result<T, ImageError>;

/// Whether a directory of PATH has this program.
fn is_there(name: &str) -> bool {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search).any(|directory| directory.join(name).is_file())
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

/// The identifier of an image that podman has; `None` if podman is not here to say.
pub(crate) fn identifier(name: &str) -> Result<Option<String>> {
    if !is_there("podman") {
        return Ok(None);
    }
    let words = ["image", "inspect", "--format", "{{.Id}}", "--", name].map(OsStr::new);
    output("podman", &words).map(|id| Some(id.trim_start_matches("sha256:").to_owned()))
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
