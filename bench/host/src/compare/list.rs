//! The list of programs: what a user writes, and what it means.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Most programs of a list.
const PROGRAM_COUNT_MAX: usize = 10_000;

/// One program of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Its file, from the root of the host and of the machines.
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<Vec<u8>>,
    /// As its user wrote it.
    pub(super) shown: String,
}

impl Program {
    /// Its line in the runner's list.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = self.path.as_os_str().as_bytes().to_vec();
        for word in &self.arguments {
            line.push(b'\t');
            line.extend(word);
        }
        line.push(b'\n');
        line
    }
}

/// The programs of a list, or of a directory.
///
/// # Errors
/// One line that says which file, which line, and what is wrong.
pub(super) fn read(list: &Path) -> Result<Vec<Program>, String> {
    let shown = list.display();
    let programs = if list.is_dir() {
        directory(list).map_err(|error| format!("reading {shown}: {error}"))?
    } else {
        let text = std::fs::read(list).map_err(|error| format!("reading {shown}: {error}"))?;
        parse(list, &text)?
    };
    match programs.len() {
        0 => Err(format!("{shown}: no program in it")),
        1..=PROGRAM_COUNT_MAX => Ok(programs),
        _ => Err(format!("{shown}: more than {PROGRAM_COUNT_MAX} programs")),
    }
}

/// The executable files of a directory, by name.
fn directory(directory: &Path) -> std::io::Result<Vec<Program>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        paths.push(entry?.path());
    }
    paths.sort_unstable();
    let executable = paths.into_iter().filter(|path| check(path).is_ok());
    let programs = executable.map(|path| {
        let shown = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Program { path: std::path::absolute(path)?, arguments: Vec::new(), shown })
    });
    programs.collect()
}

fn parse(list: &Path, text: &[u8]) -> Result<Vec<Program>, String> {
    let beside = list.parent().unwrap_or(Path::new(""));
    let mut programs = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(name) = words.next() else { continue };
        let shown = String::from_utf8_lossy(line).trim().to_string();
        let wrong = |why: &str| format!("{}:{}: {}: {why}", list.display(), index + 1, String::from_utf8_lossy(name));
        let path =
            std::path::absolute(beside.join(OsStr::from_bytes(name))).map_err(|error| wrong(&error.to_string()))?;
        check(&path).map_err(wrong)?;
        programs.push(Program { path, arguments: words.map(<[u8]>::to_vec).collect(), shown });
    }
    Ok(programs)
}

fn check(path: &Path) -> Result<(), &'static str> {
    match std::fs::metadata(path) {
        Err(_) => Err("no such file"),
        Ok(it) if !it.is_file() => Err("not a file"),
        Ok(it) if it.permissions().mode() & 0o111 == 0 => Err("not executable"),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use std::path::PathBuf;

    /// A directory that goes with its owner.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("aegis-list-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn put(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn words_comments_and_places() {
        let directory = Directory::new("words");
        let list = directory.put("list", "# all\n\n /bin/sh -c  true # why\n./sub\n");
        std::fs::copy("/bin/sh", directory.0.join("sub")).unwrap();
        let programs = read(&list).unwrap();
        assert_eq!(programs[0].line(), b"/bin/sh\t-c\ttrue\n");
        assert_eq!(programs[0].shown, "/bin/sh -c  true");
        assert_eq!(programs[1].path, directory.0.join("./sub"));
        assert_eq!(programs.len(), 2);
        let all = read(&directory.0).unwrap();
        assert_eq!(all.iter().map(|program| program.shown.as_str()).collect::<Vec<_>>(), ["sub"]);
    }

    #[test]
    fn what_is_wrong_is_one_line_with_its_place() {
        let directory = Directory::new("wrong");
        let missing = directory.put("missing", "/bin/sh\n./nothing x\n");
        assert!(read(&missing).unwrap_err().ends_with("missing:2: ./nothing: no such file"));
        let plain = directory.put("plain", "./missing\n");
        assert!(read(&plain).unwrap_err().ends_with("plain:1: ./missing: not executable"));
        let empty = directory.put("empty", "# nothing\n");
        assert!(read(&empty).unwrap_err().ends_with("empty: no program in it"));
        assert!(read(&directory.0).unwrap_err().ends_with("no program in it"));
        let no_list = read(&directory.0.join("list")).unwrap_err();
        assert!(no_list.starts_with("reading ") && !no_list.contains('\n'), "{no_list}");
    }
}
