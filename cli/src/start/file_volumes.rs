//! `-v FILE:GUEST:ro`: a single file of the host, as it is when the machine starts.
//!
//! Such a file goes into the root's image as with `--with`, which needs nothing of the host afterwards. One that is to
//! be written is served (`aegis_launch::machine::mounts`).

use std::path::Path;

use aegis_launch::machine::mounts::Volume;
use aegis_launch::root::With;

use crate::options::groups::PodOptions;
use crate::start::program::absolute;

/// Makes files among the volumes part of the root that nothing is to change.
pub(crate) fn settle_files(options: &mut PodOptions, base: &Path) {
    let is_file = |host: &Path| std::fs::metadata(base.join(host)).is_ok_and(|metadata| metadata.is_file());
    let volumes = std::mem::take(&mut options.volumes).into_iter();
    // A root that is written is the host's own, and nothing goes into it.
    let is_packed = |it: &Volume| it.is_read_only && is_file(&it.host) && !options.write_root;
    let (files, served) = volumes.partition(is_packed);
    options.volumes = served;
    let files: Vec<_> = files;
    options
        .with
        .extend(files.into_iter().map(|file| With { host: absolute(&file.host, base), guest: Some(file.guest) }));
}

#[cfg(test)]
mod tests {
    use super::settle_files;
    use crate::options::{Command, Parsed, parse};
    use std::path::Path;

    #[test]
    fn files_that_do_not_change_become_part_of_the_root() {
        let words = ["aegis", "run", "-v", "./Cargo.toml:/c.toml:ro", "-v", "src:/src", "-v", "Cargo.toml:/w", "ls"];
        let Ok(Parsed::Command(Command::Run(run))) = parse(words.map(Into::into)) else { panic!("it is a run") };
        let (mut pod, base) = (run.pod.clone(), Path::new(env!("CARGO_MANIFEST_DIR")));
        settle_files(&mut pod, base);
        assert_eq!((pod.volumes.len(), pod.with.len()), (2, 1));
        assert_eq!(pod.with[0].host, base.join("Cargo.toml"));
        assert_eq!(pod.with[0].guest.as_deref(), Some(Path::new("/c.toml")));
    }
}
