//! `cargo xtask images`: the lines of `tests/images/commands.list` in podman's containers and in Aegis's machines.
//!
//! Podman is the oracle: each line runs twice in a shell, in an empty folder of its own, where `box` is `podman` and
//! where it is `aegis`, and output and status have to be the same. It is no part of `cargo xtask test`: the images
//! are made of Debian's packages (`tests/images/make`), which takes minutes and a network, and podman wants root.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::build::{self, Profile};
use crate::errors::Error;
use crate::process;

/// Where the images are, for podman.
const PREFIX: &str = "localhost/aegis-test";
/// The images that are made.
const IMAGES: [&str; 6] = ["debian", "small", "nginx", "redis", "postgres", "node"];
/// A line that takes longer hangs.
const LIMIT_S: &str = "180";
/// How a line of the list says that the next one is known to differ, and why.
const KNOWN: &str = "# differs: ";
/// Programs without which nothing can be compared.
const NEEDED: [&str; 5] = ["podman", "buildah", "skopeo", "debootstrap", "runc"];
/// The engine's words before and behind its verb. crun refuses hosts with both versions of control groups; a limit of
/// files above this host's own cannot be had in a container's either.
const PODMAN: &str = r#"go() {
    exec podman --runtime runc run --network none --ulimit nofile=$(ulimit -Hn) --ulimit nproc=4096 "$@"
}
box() {
    verb=$1; shift
    case $verb in
    run) (go "$@") ;;
    end) podman rm -f -t 0 "$@" >/dev/null 2>&1 ;;
    *) podman --runtime runc $verb "$@" ;;
    esac
}
export -f go box
"#;
const AEGIS: &str = r#"go() {
    exec "$AEGIS" run --network none "$@"
}
box() {
    verb=$1; shift
    case $verb in
    run) (go "$@") ;;
    end) "$AEGIS" kill "$@" >/dev/null 2>&1 ;;
    *) "$AEGIS" $verb "$@" ;;
    esac
}
export -f go box
"#;

/// Which of the two a line runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Podman,
    Aegis,
}

/// Makes the images and runs the lines that have one of `names` in them, or all.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<(), Error> {
    let missing: Vec<&str> = NEEDED.into_iter().filter(|name| !is_there(name)).collect();
    if !missing.is_empty() {
        eprintln!("==> cannot be compared here, without {}", missing.join(", "));
        return Ok(());
    }
    build::build(root, Profile::Release)?;
    let folder = root.join("tests/images");
    process::run_loudly("tests/images/make", &mut Command::new(folder.join("make")))?;
    let list = folder.join("commands.list");
    let text = std::fs::read_to_string(&list).map_err(Error::io(&list))?;
    let (mut count, mut known_count, mut different) = (0, 0, Vec::new());
    let mut known = None;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        if line.starts_with('#') {
            known = line.strip_prefix(KNOWN);
            continue;
        }
        let why = known.take();
        if !names.is_empty() && !names.iter().any(|name| line.contains(name)) {
            continue;
        }
        count += 1;
        let found = difference(root, number + 1, line)?;
        match (why, found) {
            (None, None) => eprintln!("==> same: {line}"),
            (None, Some(text)) => {
                eprintln!("==> DIFFERS: {text}");
                different.push(number + 1);
            }
            (Some(why), Some(_)) => {
                eprintln!("==> differs as the list says: {line}\n    {why}");
                known_count += 1;
            }
            (Some(_), None) => eprintln!("==> is said to differ, and does not: {line}"),
        }
    }
    println!("{count} commands, {known_count} differ as the list says, {} otherwise", different.len());
    if different.is_empty() { Ok(()) } else { Err(Error::Failed { what: format!("commands.list {different:?}") }) }
}

fn is_there(name: &str) -> bool {
    Command::new(name).arg("--version").stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Both answers, if they are not the same.
fn difference(root: &Path, number: usize, line: &str) -> Result<Option<String>, Error> {
    let expected = answer(root, number, line, Side::Podman)?;
    let found = answer(root, number, line, Side::Aegis)?;
    let is_alike = (expected.status.code(), &expected.stdout) == (found.status.code(), &found.stdout);
    let shown = |output: &Output| {
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        format!("{:?} {text:?}\n           {errors:?}", output.status.code())
    };
    Ok((!is_alike).then(|| format!("{line}\n    podman {}\n    aegis  {}", shown(&expected), shown(&found))))
}

fn answer(root: &Path, number: usize, line: &str, side: Side) -> Result<Output, Error> {
    let folder = build::artefact_dir(root).join("images").join(number.to_string());
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    let prelude = if side == Side::Podman { PODMAN } else { AEGIS };
    let mut shell = Command::new("timeout");
    shell.args(["-s", "KILL", LIMIT_S, "bash", "-c"]).arg(format!("{prelude}{}", with_images(line, &folder, side)?));
    shell.current_dir(&folder).stdin(Stdio::null());
    shell.env("AEGIS", build::artefact_dir(root).join("aegis")).env("AEGIS_ARTIFACTS", build::artefact_dir(root));
    shell.env("N", format!("aegis-test-{}-{number}", std::process::id())).env("A", "here").env_remove("B");
    shell.env("TERM", "xterm").env("SHELL", "/bin/bash");
    // What a line leaves running may keep its output, which nobody waits for so.
    let (path, errors) = (folder.with_extension("out"), folder.with_extension("err"));
    let file = |path: &Path| std::fs::File::create(path).map_err(Error::io(path));
    shell.stdout(file(&path)?).stderr(file(&errors)?);
    let status = shell.status().map_err(|error| Error::Start { program: "timeout".into(), error })?;
    let read = |path: &Path| std::fs::read(path).map_err(Error::io(path));
    Ok(Output { status, stdout: read(&path)?, stderr: read(&errors)? })
}

/// The line with `@NAME` and `@SOURCE:NAME` as the image's name where it is podman's, and as the options that name it
/// where it is ours.
fn with_images(line: &str, folder: &Path, side: Side) -> Result<String, Error> {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('@') {
        let end = rest[at + 1..].find(|letter: char| !letter.is_ascii_alphanumeric() && !":-".contains(letter));
        let word = &rest[at + 1..end.map_or(rest.len(), |end| at + 1 + end)];
        let (kind, name) = word.rsplit_once(':').unwrap_or(("containers-storage", word));
        text.push_str(&rest[..at]);
        rest = &rest[at + 1 + word.len()..];
        if !IMAGES.contains(&name) {
            text.push('@');
            text.push_str(word);
        } else if side == Side::Podman {
            text.push_str(&format!("{PREFIX}/{name}:1"));
        } else {
            text.push_str(&format!("--image {}", source(kind, name, folder)?));
            // Ours has to be told where its own options end.
            text.push_str(if rest.starts_with(" -") { " --" } else { "" });
        }
    }
    Ok(text + rest)
}

/// Where ours takes the image from: podman's storage, or a copy that skopeo makes of it beside the lines' folders.
fn source(kind: &str, name: &str, folder: &Path) -> Result<String, Error> {
    let stored = format!("containers-storage:{PREFIX}/{name}:1");
    let beside = |ending: &str| -> PathBuf { folder.with_file_name(format!("{name}{ending}")) };
    let (path, words) = match kind {
        "docker-archive" => (beside(".tar"), format!("docker-archive:{}", beside(".tar").display())),
        "oci" => (beside("-layout"), format!("oci:{}:1", beside("-layout").display())),
        "oci-archive" => (beside("-oci.tar"), format!("oci-archive:{}:1", beside("-oci.tar").display())),
        _ => return Ok(stored),
    };
    if !path.exists() {
        // What skopeo calls an image of an archive is not what it is found by.
        let target = if kind == "docker-archive" { format!("{words}:{name}:1") } else { words.clone() };
        process::run_quietly("skopeo copy", Command::new("skopeo").args(["copy", "-q", &stored, &target]))?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::{Side, with_images};
    use std::path::Path;

    #[test]
    fn images_are_named_as_each_side_names_them() {
        let text = |side| with_images("box run -e A @debian sh; echo a@b", Path::new("/x"), side).unwrap();
        assert_eq!(text(Side::Podman), "box run -e A localhost/aegis-test/debian:1 sh; echo a@b");
        let ours = "box run -e A --image containers-storage:localhost/aegis-test/debian:1 sh; echo a@b";
        assert_eq!(text(Side::Aegis), ours);
    }
}
