//! One line for a user whose program ended with an error after it was given a file that the machine does not show.
//!
//! What the program did is not known here, so this is a guess: a word that names something of this host, which is not
//! to be found by that word in the machine.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::start::program::absolute;

/// Words that are looked at.
const WORD_COUNT_MAX: usize = 64;
/// Longest word that is taken for a path.
const WORD_BYTES_MAX: usize = 4095;
/// What a shell calls a descriptor that it has opened for a program.
const DESCRIPTORS: &[u8] = b"/dev/fd/";
/// Directories that are the machine's own.
const OWN_DIRECTORIES: [&str; 5] = ["/dev", "/proc", "/sys", "/etc", "/tmp"];

/// Where a pod's words lead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// Directories and files of this host that the machine shows at their own paths.
    pub(crate) same: Vec<PathBuf>,
    /// Paths in the machine at which something else is.
    pub(crate) others: Vec<PathBuf>,
    /// Where the program started.
    pub(crate) working_directory: PathBuf,
    /// All of this host, or nothing of it by intent: there is nothing to say.
    pub(crate) is_clear: bool,
}

/// What to say about the words of a program that failed, called in `current`.
pub(crate) fn advice(words: &[OsString], shown: &Shown, current: &Path) -> Option<String> {
    if shown.is_clear {
        return None;
    }
    let words = words.iter().skip(1).take(WORD_COUNT_MAX);
    if let Some(word) = words.clone().find(|word| word.as_bytes().starts_with(DESCRIPTORS)) {
        // `<(…)` of a shell.
        return Some(format!(
            "{}: of descriptors only 0, 1 and 2 reach the machine: write to a file, or let a shell there do it",
            word.to_string_lossy().escape_debug()
        ));
    }
    let mut words =
        words.filter(|word| !word.is_empty() && word.len() <= WORD_BYTES_MAX && !word.as_bytes().contains(&0));
    let word = words.find(|word| !word.as_bytes().starts_with(b"-") && is_missed(Path::new(word), shown, current))?;
    let path = Path::new(word);
    let name = word.to_string_lossy();
    let name = name.escape_debug();
    Some(if !path.is_absolute() && !path.as_os_str().as_bytes().starts_with(b"..") {
        format!("{name} is a file of this host that the machine does not show: --here shows the current directory")
    } else {
        format!("{name} is a file of this host that the machine does not show: -v HOST:GUEST shows a directory")
    })
}

/// Whether the host has a file there, and the machine has not.
fn is_missed(word: &Path, shown: &Shown, current: &Path) -> bool {
    let host = absolute(word, current);
    let guest = absolute(word, &shown.working_directory);
    let is_below = |path: &Path, directory: &Path| path.starts_with(directory);
    // `.` and `/` are everywhere.
    if host == current || host == Path::new("/") || std::fs::symlink_metadata(&host).is_err() {
        return false;
    }
    let is_same = host == guest && shown.same.iter().any(|directory| is_below(&host, directory));
    let is_other = shown.others.iter().any(|place| is_below(&guest, place) || is_below(place, &guest));
    let is_own = OWN_DIRECTORIES.iter().any(|own| is_below(&guest, Path::new(own)));
    let is_pods = is_own && word.is_absolute() && !is_below(&guest, Path::new("/tmp"));
    !(is_same || is_other || is_pods)
}

#[cfg(test)]
mod tests {
    use super::{Shown, advice};
    use std::ffi::OsString;
    use std::path::Path;

    fn said(words: &[&str], shown: &Shown, current: &Path) -> Option<String> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        advice(&words, shown, current)
    }

    #[test]
    fn a_file_that_is_here_and_not_there_is_named() {
        let folder = std::env::temp_dir().join(format!("aegis-advice-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        std::fs::write(folder.join("README.md"), "text").expect("a file");
        let shown = Shown { same: vec!["/usr".into()], working_directory: "/".into(), ..Shown::default() };
        let line = said(&["cat", "-n", "README.md"], &shown, &folder).expect("advice");
        assert!(line.starts_with("README.md is a file of this host") && line.contains("--here"), "{line}");
        let whole = folder.join("README.md").display().to_string();
        assert!(said(&["cat", &whole], &shown, Path::new("/")).expect("advice").contains("-v HOST:GUEST"));
        for words in
            [&["cat", "none"][..], &["cat", "/usr/bin"], &["ls", "."], &["ls", "/"], &["cat", "/proc/self"], &["cat"]]
        {
            assert_eq!(said(words, &shown, &folder), None, "{words:?}");
        }
        let line = said(&["comm", "/dev/fd/63", "README.md"], &shown, &folder).expect("advice");
        assert!(line.starts_with("/dev/fd/63: of descriptors only"), "{line}");
        let here = Shown { same: vec![folder.clone()], working_directory: folder.clone(), ..Shown::default() };
        assert_eq!(said(&["cat", "README.md"], &here, &folder), None);
        let clear = Shown { is_clear: true, ..shown };
        assert_eq!(said(&["cat", "README.md"], &clear, &folder), None);
        std::fs::remove_dir_all(folder).expect("it is there");
    }
}
