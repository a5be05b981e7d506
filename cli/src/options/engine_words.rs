//! Words that users of other engines type: what they mean there and is so here in any case, and files of variables.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use aegis_launch::errors::Error;
use clap::Args;

use crate::options::mounts::{Mount, parse_mount};
use crate::options::values::{parse_bytes, parse_name, parse_variable, with_values};

/// Longest file of variables that is read, and most variables in one.
const FILE_BYTES_MAX: u64 = 1 << 20;
const VARIABLE_COUNT_MAX: usize = 16 << 10;

// What docker and podman call so. (No documentation comment: clap would make it the text of the command.)
#[allow(missing_docs, reason = "see above")]
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct EngineWordOptions {
    /// Standard input reaches the program in any case: nothing changes
    #[arg(short = 'i', long)]
    pub(crate) interactive: bool,
    /// Nothing of a run is kept in any case: nothing changes
    #[arg(long)]
    pub(crate) rm: bool,
    /// Call the run so: `aegis ps`, `logs`, `exec` and `stop` find it by this name; its input is empty
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Run in the background, under --name or the program's own name, which is printed
    #[arg(short = 'd', long, conflicts_with = "terminal")]
    pub(crate) detach: bool,
    /// Set the variables of a file: NAME=VALUE or NAME on each line, # begins a comment (repeatable)
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// As -v or --tmpfs, in other words: type=bind|volume|tmpfs,source=HOST,target=GUEST[,readonly] (repeatable)
    #[arg(long = "mount", value_name = "WORDS", value_parser = parse_mount)]
    pub(crate) mounts: Vec<Mount>,
    /// Most that /dev/shm holds [default: what the program may use]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) shm_size: Option<u64>,
}

impl EngineWordOptions {
    /// The variables of the files, in order.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is none.
    pub(crate) fn variables(&self) -> Result<Vec<OsString>, Error> {
        let mut variables = Vec::new();
        for file in &self.env_file {
            let wrong = |why: &dyn std::fmt::Display| Error::Usage(format!("--env-file {}: {why}", file.display()));
            variables.extend(read(file).map_err(|why| wrong(&why))?);
            if variables.len() > VARIABLE_COUNT_MAX {
                return Err(wrong(&format!("more than {VARIABLE_COUNT_MAX} variables")));
            }
        }
        Ok(variables)
    }
}

fn read(file: &Path) -> Result<Vec<OsString>, String> {
    let metadata = std::fs::metadata(file).map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(format!("not a file of at most {} KiB", FILE_BYTES_MAX >> 10));
    }
    parse(&std::fs::read_to_string(file).map_err(|error| error.to_string())?)
}

/// The variables of a text; one without a value is copied from the environment, if it is there.
fn parse(text: &str) -> Result<Vec<OsString>, String> {
    let mut variables = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let name = line.split('=').next().unwrap_or_default();
        if name.is_empty() || name.contains(char::is_whitespace) || line.contains('\0') {
            return Err(format!("line {}: NAME=VALUE is wanted", number + 1));
        }
        match line.contains('=') {
            true => variables.push(line.into()),
            false => variables.extend(parse_variable(name.into()).ok()),
        }
    }
    Ok(with_values(variables, std::env::vars_os()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_are_variables() {
        let text = "# note\n\nA=1\n  B=x y=z # kept\r\nC=\nPATH\nNO_SUCH_VARIABLE_AT_ALL\n";
        let list = parse(text).expect("variables");
        assert_eq!(list[..3], ["A=1", "B=x y=z # kept", "C="]);
        assert!(list.len() == 4 && list[3].to_string_lossy().starts_with("PATH="));
        for wrong in ["=x", "a b=c", "x\0=y"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
