//! The runtime's command line: flags before and after the verb, as `--key value` or `--key=value`.
//!
//! Engines write flags of other runtimes too; one that is not known and stands before the verb is passed over.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::oci::errors::{OciError, Result};

/// Flags that have a value, and what they are short for.
const WITH_VALUE: [(&str, &str); 14] = [
    ("--root", "root"),
    ("--log", "log"),
    ("--log-format", "log-format"),
    ("--bundle", "bundle"),
    ("-b", "bundle"),
    ("--pid-file", "pid-file"),
    ("--console-socket", "console-socket"),
    ("--preserve-fds", "preserve-fds"),
    ("--process", "process"),
    ("-p", "process"),
    ("--format", "format"),
    ("--cgroup-manager", "cgroup-manager"),
    ("--accel", "accel"),
    ("--resources", "resources"),
];
/// Flags without one.
const PLAIN: [(&str, &str); 15] = [
    ("--all", "all"),
    ("-a", "all"),
    ("--force", "force"),
    ("--detach", "detach"),
    ("-d", "detach"),
    ("--systemd-cgroup", ""),
    ("--no-pivot", ""),
    ("--no-new-keyring", ""),
    ("--debug", ""),
    // What the process says of a terminal counts.
    ("--tty", ""),
    ("-t", ""),
    ("--version", "version"),
    ("-v", "version"),
    ("--help", "help"),
    ("-h", "help"),
];

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) verb: Option<String>,
    /// What follows the verb and is no flag.
    pub(crate) rest: Vec<OsString>,
    values: Vec<(&'static str, OsString)>,
    plain: Vec<&'static str>,
    /// Flags that were passed over.
    pub(crate) unknown: Vec<String>,
}

impl Words {
    /// Reads them, without the program's name.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut found = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let text = word.to_str().unwrap_or_default();
            if text == "--" {
                found.rest.extend(words.by_ref());
            } else if text.starts_with('-') && text.len() > 1 {
                found.flag(text, &mut words)?;
            } else if found.verb.is_none() {
                found.verb = Some(word.to_string_lossy().into_owned());
            } else {
                found.rest.push(word);
            }
        }
        Ok(found)
    }

    fn flag(&mut self, text: &str, words: &mut impl Iterator<Item = OsString>) -> Result<()> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        // One letter means two things.
        let name = match (name, self.verb.as_deref()) {
            ("-f", Some("delete")) => "--force",
            ("-f", _) => "--format",
            (name, _) => name,
        };
        if let Some((_, key)) = WITH_VALUE.iter().find(|(flag, _)| *flag == name) {
            let value = value.map(OsString::from).or_else(|| words.next());
            let value = value.ok_or_else(|| OciError::Usage(format!("{name}: a value is missing")))?;
            self.values.push((key, value));
        } else if let Some((_, key)) = PLAIN.iter().find(|(flag, _)| *flag == name) {
            if value != Some("false") {
                self.plain.push(key);
            }
        } else if self.verb.is_none() {
            self.unknown.push(name.to_owned());
        } else {
            return Err(OciError::Usage(format!("{name}: no flag of {}", self.verb.as_deref().unwrap_or_default())));
        }
        Ok(())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.plain.contains(&key)
    }

    pub(crate) fn value(&self, key: &str) -> Option<&OsString> {
        self.values.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    pub(crate) fn path(&self, key: &str) -> Option<PathBuf> {
        self.value(key).filter(|value| !value.as_bytes().is_empty()).map(PathBuf::from)
    }

    /// The container's identifier.
    pub(crate) fn id(&self) -> Result<String> {
        let id = self.rest.first().ok_or_else(|| OciError::Usage("which container?".into()))?;
        Ok(id.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::Words;

    fn read(line: &str) -> Words {
        Words::read(line.split_whitespace().map(Into::into)).expect(line)
    }

    #[test]
    fn engines_are_understood() {
        let podman = read("--log-format=json --log /l --cgroup-manager disabled create --bundle /b --pid-file /p ID");
        assert_eq!((podman.verb.as_deref(), podman.id().expect("an id").as_str()), (Some("create"), "ID"));
        assert_eq!((podman.path("bundle"), podman.path("log")), (Some("/b".into()), Some("/l".into())));
        let shim = read("--root /r --log /l --log-format json --systemd-cgroup kill --all ID 9");
        assert!(shim.has("all") && shim.rest == ["ID", "9"] && shim.path("root") == Some("/r".into()));
        assert!(read("delete -f ID").has("force"));
        let exec = read("exec --pid-file /p --process /f --tty --detach --console-socket /c ID");
        assert!(exec.has("detach") && exec.path("process") == Some("/f".into()));
        assert_eq!(read("ps -f json ID").path("format"), Some("json".into()));
        assert_eq!(read("--rootless=true --criu x state ID").unknown, ["--rootless", "--criu"]);
        assert!(Words::read(["state", "--what", "ID"].map(Into::into)).is_err());
        assert!(Words::read(["create", "--bundle"].map(Into::into)).is_err());
    }
}
