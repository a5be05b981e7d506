//! Files that a run leaves: whole or not at all.
//!
//! What is written goes into a neighbour first and takes the place of the file by renaming, so a reader, a full disk or
//! a killed tool never makes half a file of figures. Whether a file can be written is tried before anything is
//! measured, because a run takes minutes.

use std::fs;
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// Refuses a place where nothing can be written.
pub(crate) fn try_place(path: &Path) -> Result<(), Failure> {
    if is_special(path) {
        return Ok(());
    }
    let neighbour = neighbour(path);
    let tried = fs::write(&neighbour, b"");
    let _ = fs::remove_file(&neighbour);
    tried.map_err(|error| Failure::file("writing", path.into(), error))
}

/// Replaces the file by `text`.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::file("writing", path.into(), error);
    if is_special(path) {
        return fs::write(path, text).map_err(failed);
    }
    // A link stays one: what it names is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let neighbour = neighbour(&target);
    let written = fs::write(&neighbour, text).and_then(|()| fs::rename(&neighbour, &target));
    written.map_err(|error| {
        let _ = fs::remove_file(&neighbour);
        failed(error)
    })
}

/// Something that is there and cannot be replaced by a file: a pipe, a device. A directory is refused in writing.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| !it.is_file())
}

fn neighbour(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::{replace, try_place};
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let directory = std::env::temp_dir().join(format!("aegis-files-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("it");
        fs::write(&path, "a long text before").unwrap();
        let link = directory.join("link");
        std::os::unix::fs::symlink("it", &link).unwrap();
        try_place(&link).unwrap();
        replace(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "no neighbour is left");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn no_place_is_found_out_beforehand() {
        assert!(try_place(Path::new("/nonexistent/it")).is_err());
        assert!(replace(Path::new("/nonexistent/it"), "x").is_err());
        assert!(try_place(Path::new("/dev/null")).is_ok());
        assert!(replace(Path::new("/dev/null"), "x").is_ok());
        assert!(replace(Path::new("/"), "x").is_err(), "a directory");
    }
}
