//! The roots of suite `apps`: programs of the host with the libraries they need, and what the generator wrote.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aegis_launch::cache::KeyHasher;
use aegis_launch::errors::Error;
use aegis_launch::root::HOSTNAME;
use aegis_launch::root::pack::Packed;
use aegis_launch::root::pack_host::HostRoot;

use super::super::compile;
use super::super::failure::{Failure, last_line};
use super::super::system::Machines;
use super::super::tree_images::RootFiles;
use super::rows::{AppRoot, ROWS, SCRIPTS, host_path};

/// The launcher's place in every root.
pub(super) const LAUNCHER: &str = "/bench/launch";

/// What roots are made from.
#[derive(Debug)]
pub(super) struct Workshop {
    cache: PathBuf,
    launcher: PathBuf,
    /// Scripts and the launcher's rows.
    scripts: PathBuf,
    generator: PathBuf,
}

impl Workshop {
    /// Compiles what is needed, if that has not been done yet.
    pub(super) fn open(machines: &Machines) -> Result<Self, Failure> {
        let generator = compile::generate(&machines.cache)?;
        let launcher = compile::launch(&machines.cache)?;
        let scripts = machines.cache.join(format!("bench-{:032x}", scripts_key()));
        whole_directory(&scripts, write_scripts)?;
        Ok(Self { cache: machines.cache.clone(), launcher, scripts, generator })
    }

    /// The files of a root, made if they are not in the cache; `Err` in the answer says which program is missing here.
    pub(super) fn root(&self, root: &AppRoot) -> Result<Result<RootFiles, String>, Failure> {
        let missing = root.programs.iter().find(|program| !Path::new(&host_path(program)).exists());
        if let Some(program) = missing {
            return Ok(Err(format!("{program} is not on this host (apt install {})", root.package)));
        }
        let packed = self.tree(root)?;
        RootFiles::of(&self.cache, root.name, &packed).map(Ok)
    }

    fn tree(&self, root: &AppRoot) -> Result<Packed, Failure> {
        let search = std::env::var_os("PATH").unwrap_or_default();
        let mut tree = HostRoot::minimal(HOSTNAME, &search);
        for program in root.programs {
            tree.add_program(Path::new(&host_path(program))).map_err(Error::Root)?;
        }
        for path in root.host_files.iter().flat_map(|pattern| matching(pattern)) {
            tree.with(&path, None).map_err(Error::Root)?;
        }
        tree.with(&self.launcher, Some(LAUNCHER.as_bytes())).map_err(Error::Root)?;
        let rows = self.scripts.join("rows");
        for row in ROWS.iter().filter(|row| row.root == root.name) {
            let guest = format!("/bench/rows/{}", row.name);
            tree.with(&rows.join(row.name), Some(guest.as_bytes())).map_err(Error::Root)?;
        }
        for name in root.bench_files {
            let is_script = SCRIPTS.iter().any(|(script, _)| script == name);
            let file = if is_script { self.scripts.join(name) } else { self.generated(name)? };
            tree.with(&file, Some(format!("/bench/{name}").as_bytes())).map_err(Error::Root)?;
        }
        Ok(tree.finish().map_err(Error::Root)?)
    }

    /// What the generator writes under this name. It lies beside the generator, which has a directory of its own for
    /// each version.
    fn generated(&self, name: &str) -> Result<PathBuf, Failure> {
        let directory = self.generator.with_file_name(format!("data-{name}"));
        whole_directory(&directory, |directory| generate(&self.generator, directory, name))?;
        Ok(directory.join(name))
    }
}

/// Files and directories of the host that a pattern of [`AppRoot::host_files`] names, in order.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let path = Path::new(pattern);
    let (Some(prefix), Some(directory)) = (pattern.strip_suffix('*'), path.parent()) else {
        return vec![path.to_path_buf()];
    };
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.to_string_lossy().starts_with(prefix));
    found.sort_unstable();
    found
}

/// Makes a directory that appears when it is whole; does nothing if it is there.
fn whole_directory(path: &Path, fill: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    let failed = |error| Failure::file("writing", path.into(), error);
    let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
    let made = fs::create_dir_all(&fresh).map_err(failed).and_then(|()| fill(&fresh));
    let made = made.and_then(|()| match fs::rename(&fresh, path) {
        // Another run was faster; what it made is the same.
        Err(_) if path.is_dir() => Ok(()),
        renamed => renamed.map_err(failed),
    });
    let _ = fs::remove_dir_all(&fresh);
    made
}

fn generate(generator: &Path, directory: &Path, name: &str) -> Result<(), Failure> {
    let output = Command::new(generator).arg(directory).arg(name).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::File("starting", generator.into(), error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::Generate(last_line(&String::from_utf8_lossy(&output.stderr)))),
    }
}

fn write_scripts(directory: &Path) -> Result<(), Failure> {
    let rows = directory.join("rows");
    let write = || -> io::Result<()> {
        fs::create_dir_all(&rows)?;
        for (name, text) in SCRIPTS {
            fs::write(directory.join(name), text)?;
        }
        ROWS.iter().try_for_each(|row| fs::write(rows.join(row.name), row.file()))
    };
    write().map_err(|error| Failure::file("writing", directory.into(), error))
}

fn scripts_key() -> u128 {
    let mut hasher = KeyHasher::default();
    for (name, text) in SCRIPTS {
        hasher.add(name.as_bytes()).add(text.as_bytes());
    }
    for row in &ROWS {
        hasher.add(row.name.as_bytes()).add(row.file().as_bytes());
    }
    hasher.key()
}

#[cfg(test)]
mod tests {
    use super::{matching, whole_directory};
    use crate::failure::Failure;
    use std::fs;
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("aegis-apps-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn patterns_name_what_begins_like_them() {
        let directory = scratch("pattern");
        for name in ["python3", "python3.11", "perl"] {
            fs::write(directory.join(name), "").unwrap();
        }
        let found = matching(&format!("{}/python3*", directory.display()));
        assert_eq!(found, [directory.join("python3"), directory.join("python3.11")]);
        assert_eq!(matching("/a/b"), [PathBuf::from("/a/b")]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_directory_is_whole_or_not_there() {
        let scratch = scratch("whole");
        let path = scratch.join("data");
        let half = |directory: &std::path::Path| {
            fs::write(directory.join("half"), "").unwrap();
            Err(Failure::Generate("No space left on device".into()))
        };
        assert!(whole_directory(&path, half).is_err());
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
        whole_directory(&path, |directory| {
            fs::write(directory.join("all"), "").unwrap();
            Ok(())
        })
        .unwrap();
        whole_directory(&path, half).unwrap();
        assert!(path.join("all").is_file() && !path.join("half").exists());
        fs::remove_dir_all(scratch).unwrap();
    }
}
