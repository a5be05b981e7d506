//! The list of differences: `NAME: REASON` on a line each. It may only shrink: a script that Aegis passes may not stand
//! on it, and there are no more lines than [`COUNT_MAX`].

use std::collections::BTreeMap;
use std::path::Path;

/// Most differences. Lowered with each that goes.
const COUNT_MAX: usize = 0;

/// The list.
#[derive(Debug)]
pub(super) struct Known(BTreeMap<String, String>);

impl Known {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("reading {}: {error}", path.display()))?;
        let mut reasons = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || format!("{}: NAME: REASON: {line}", path.display());
            let (name, reason) = line.split_once(": ").ok_or_else(wrong)?;
            if reasons.insert(name.to_string(), reason.to_string()).is_some() {
                return Err(format!("{}: {name}: twice", path.display()));
            }
        }
        if reasons.len() > COUNT_MAX {
            return Err(format!("{}: {} differences; at most {COUNT_MAX}", path.display(), reasons.len()));
        }
        Ok(Self(reasons))
    }

    pub(super) fn reason(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
