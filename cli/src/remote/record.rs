//! What a machine that has ended was: its last report and what its pods wrote, for `aegis logs`, `ps -a`, `wait` and
//! `inspect`.
//!
//! A file beside the sockets (`address`), `NAME.ended`, that appears whole when the machine ends and goes when another
//! takes the name. A line of JSON each: first the report, then what was kept of the logs. It is as private as the
//! sockets are, at most [`RECORD_COUNT_MAX`] of them stay, and each is bounded by what is kept of logs.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use aegis_link::pods::is_name;
use serde::{Deserialize, Serialize};

use super::report::{MachineReport, json};
use super::request::Bytes;

/// Records that are kept; the oldest go.
const RECORD_COUNT_MAX: usize = 16;
/// Most bytes of one that are read: what 13 pods may have written, each byte as six characters, and their reports.
const RECORD_BYTES_MAX: u64 = 64 << 20;
const SUFFIX: &str = "ended";

/// A line of a pod's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedLine {
    pub(crate) pod: String,
    /// It was written to standard error.
    pub(crate) error: bool,
    pub(crate) text: Bytes,
}

/// A machine that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) report: MachineReport,
    pub(crate) lines: Vec<RecordedLine>,
}

/// Where the record of the machine with this socket is.
pub(crate) fn place_of(socket: &Path) -> PathBuf {
    socket.with_extension(SUFFIX)
}

impl Record {
    /// Leaves it there, and takes away the oldest if there are many.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn write(&self, place: &Path) -> io::Result<()> {
        let temporary = place.with_extension(format!("{}.tmp", std::process::id()));
        let write = || {
            let mut out = io::BufWriter::new(fs::File::create(&temporary)?);
            writeln!(out, "{}", json(&self.report))?;
            for line in &self.lines {
                writeln!(out, "{}", json(line))?;
            }
            out.into_inner().map_err(|error| error.into_error())?;
            fs::rename(&temporary, place)
        };
        let written = write();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        if let Some(directory) = place.parent() {
            prune(directory);
        }
        written
    }

    /// Reads one.
    ///
    /// # Errors
    /// The host's; or it is no record.
    pub(crate) fn read(place: &Path) -> io::Result<Self> {
        let mut lines = BufReader::new(fs::File::open(place)?.take(RECORD_BYTES_MAX)).lines();
        let first = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        let report = serde_json::from_str(&first)?;
        let lines = lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect::<io::Result<_>>()?;
        Ok(Self { report, lines })
    }
}

/// All records of a directory, the newest first.
pub(crate) fn all(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(directory).map(|entries| entries.filter_map(Result::ok).collect::<Vec<_>>());
    let mut found: Vec<_> = entries
        .unwrap_or_default()
        .into_iter()
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?.strip_suffix('.')?.to_owned();
            let modified = entry.metadata().ok()?.modified().ok()?;
            is_name(&name).then_some((modified, name, path))
        })
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, name, path)| (name, path)).collect()
}

fn prune(directory: &Path) {
    for (_, path) in all(directory).into_iter().skip(RECORD_COUNT_MAX) {
        // Another tool may have been faster.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::{RECORD_COUNT_MAX, Record, RecordedLine, all, place_of};
    use crate::remote::report::tests::machine;
    use crate::remote::request::Bytes;

    #[test]
    fn records_are_read_back_and_few_stay() {
        let folder = std::env::temp_dir().join(format!("aegis-records-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("writable");
        let text = Bytes((0..=255).collect());
        let lines = vec![RecordedLine { pod: "web".into(), error: true, text }];
        let record = Record { report: machine(), lines };
        let place = place_of(&folder.join("shop.sock"));
        record.write(&place).expect("written");
        assert_eq!(Record::read(&place).expect("its own"), record);
        assert_eq!(all(&folder), [("shop".to_owned(), place.clone())]);
        std::fs::write(folder.join("bad.ended"), "{").expect("writable");
        assert!(Record::read(&folder.join("bad.ended")).is_err());
        for number in 0..RECORD_COUNT_MAX + 3 {
            record.write(&folder.join(format!("m{number}.ended"))).expect("written");
        }
        assert_eq!(all(&folder).len(), RECORD_COUNT_MAX);
        std::fs::remove_dir_all(folder).expect("ours");
    }
}
