//! What other engines' words make of places in a pod: `--mount`, volumes without a directory of this host (`-v /data`)
//! and volumes by name (`-v data:/data`), which are directories below `~/.local/share/aegis/volumes`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use aegis_launch::errors::{Doing, Error};
use aegis_launch::machine::mounts::Volume;
use aegis_link::config::Temporary;

use crate::options::engine_words::EngineWordOptions;
use crate::options::groups::PodOptions;
use crate::options::mounts::Mount;

/// What can be written to in a read-only root of an image, as with podman.
const READ_ONLY_PLACES: [&str; 3] = ["/run", "/tmp", "/var/tmp"];

/// Where the directories of volumes by name are.
#[derive(Clone, Debug)]
pub(crate) struct VolumesFolder(Option<PathBuf>);

impl VolumesFolder {
    /// `$XDG_DATA_HOME/aegis/volumes`, or below `~/.local/share`.
    pub(crate) fn of_user() -> Self {
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
        Self(data.map(|data| data.join("aegis/volumes")))
    }
}

/// Puts what `--mount` and `--shm-size` say among the volumes and the directories in memory, and gives each volume its
/// directory, which is made if it is not there and `makes` says so. Only where the root is an image a name is a
/// volume's: else it is a directory's, as `-v` has always taken it.
///
/// # Errors
/// A directory that cannot be made.
pub(crate) fn settle_places(
    options: &mut PodOptions,
    words: &EngineWordOptions,
    folder: &VolumesFolder,
    makes: bool,
) -> Result<(), Error> {
    if let Some(size_max_bytes) = words.shm_size {
        options.temporaries.push(Temporary { size_max_bytes, ..Temporary::new(b"/dev/shm") });
    }
    for mount in &words.mounts {
        match mount.clone() {
            Mount::Directory(volume) => options.volumes.push(volume),
            Mount::Memory(temporary) => options.temporaries.push(temporary),
        }
    }
    let has_image = options.image.image.is_some();
    if has_image && options.read_only {
        let places = READ_ONLY_PLACES.map(|path| Temporary::new(path.as_bytes()));
        let is_free = |it: &Temporary| {
            let at = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path) == it.path;
            !options.temporaries.iter().any(|other| at(&other.path))
                && !options.volumes.iter().any(|volume| at(volume.guest.as_os_str().as_bytes()))
        };
        let places: Vec<_> = places.into_iter().filter(is_free).collect();
        options.temporaries.extend(places);
    }
    for volume in std::mem::take(&mut options.volumes) {
        if volume.host == Path::new("") {
            // Of a volume that nobody can name again, nothing would be found again.
            let path = volume.guest.display().to_string();
            options.temporaries.push(Temporary { permissions: 0o755, ..Temporary::new(path.as_bytes()) });
            continue;
        }
        let host = match volume_name(&volume.host).filter(|_| has_image) {
            Some(name) => directory_of(name, folder, makes)?,
            None => volume.host,
        };
        options.volumes.push(Volume { host, ..volume });
    }
    Ok(())
}

/// The name, if it is one and no path.
fn volume_name(host: &Path) -> Option<&str> {
    let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    host.to_str()
        .filter(|text| text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(is_byte))
}

fn directory_of(name: &str, folder: &VolumesFolder, makes: bool) -> Result<PathBuf, Error> {
    let folder = folder.0.as_ref();
    let path = folder.ok_or_else(|| Error::Usage(format!("-v {name}: where is HOME, which volumes are below?")))?;
    let path = path.join(name);
    if makes {
        std::fs::create_dir_all(&path).doing("making a volume")?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::{VolumesFolder, settle_places};
    use crate::options::{Command, Parsed, parse};
    use std::path::{Path, PathBuf};

    fn settled(words: &[&str], folder: &Path) -> (Vec<PathBuf>, Vec<String>) {
        let words = ["aegis", "run"].iter().chain(words).map(Into::into);
        let Ok(Parsed::Command(Command::Run(run))) = parse(words) else { panic!("it is a run") };
        let mut pod = run.pod.clone();
        let folder = VolumesFolder(Some(folder.into()));
        settle_places(&mut pod, &run.engine_words, &folder, true).expect("made");
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let places = pod.temporaries.iter().map(|it| format!("{} {:o}", text(&it.path), it.permissions));
        (pod.volumes.iter().map(|volume| volume.host.clone()).collect(), places.collect())
    }

    #[test]
    fn volumes_have_directories_by_name_and_memory_without_one() {
        let folder = std::env::temp_dir().join(format!("aegis-places-{}", std::process::id()));
        let image = ["--image", "oci:x"];
        let run = |words: &[&str]| settled(&[&image, words, &["true"]].concat(), &folder);
        let (hosts, places) = run(&["-v", "data.1:/d", "-v", "./x:/x", "-v", "/anonymous", "-v", "/usr:/u:ro"]);
        assert_eq!(hosts, [folder.join("data.1"), "./x".into(), "/usr".into()]);
        assert!(folder.join("data.1").is_dir() && places == ["/anonymous 755"], "{places:?}");
        let (hosts, places) = run(&[
            "--mount",
            "type=bind,source=/usr,target=/u,readonly",
            "--mount",
            "type=volume,src=v,dst=/v",
            "--mount",
            "type=tmpfs,destination=/t,tmpfs-mode=700",
        ]);
        assert_eq!((hosts, places), (vec!["/usr".into(), folder.join("v")], vec!["/t 700".into()]));
        let (_, places) = run(&["--read-only", "--tmpfs", "/tmp:mode=700", "-v", "/usr:/var/tmp"]);
        assert_eq!(places, ["/tmp 700", "/run 1777"]);
        let (hosts, _) = settled(&["-v", "data:/d", "true"], &folder);
        assert_eq!(hosts, [PathBuf::from("data")], "without an image it is a directory here");
        std::fs::remove_dir_all(folder).expect("ours");
    }
}
