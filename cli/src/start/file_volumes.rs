//! `-v FILE:GUEST:ro`: a single file of the host, as it is when the machine starts.
//!
//! The server of directories shows whole directories, and one around a file would show its neighbours, so a file goes
//! into the root's image as with `--with`. That cannot be written back, which is said to whoever wants it.

use std::path::Path;

use aegis_launch::errors::Error;
use aegis_launch::root::With;

use crate::options::groups::PodOptions;
use crate::start::program::absolute;

/// Makes files among the volumes part of the root.
///
/// # Errors
/// One that is to be written.
pub(crate) fn settle_files(options: &mut PodOptions, base: &Path) -> Result<(), Error> {
    let is_file = |host: &Path| std::fs::metadata(base.join(host)).is_ok_and(|metadata| metadata.is_file());
    if let Some(file) = options.volumes.iter().find(|volume| is_file(&volume.host) && !volume.is_read_only) {
        let (host, guest) = (file.host.display(), file.guest.display());
        return Err(Error::Usage(format!(
            "-v {host}:{guest}: a single file is shown with :ro, as it is at the start; to write, show its directory"
        )));
    }
    let (files, directories) = std::mem::take(&mut options.volumes).into_iter().partition(|it| is_file(&it.host));
    options.volumes = directories;
    let files: Vec<_> = files;
    options
        .with
        .extend(files.into_iter().map(|file| With { host: absolute(&file.host, base), guest: Some(file.guest) }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::settle_files;
    use crate::options::{Command, Parsed, parse};
    use std::path::Path;

    #[test]
    fn files_become_part_of_the_root() {
        let words = ["aegis", "run", "-v", "./Cargo.toml:/c.toml:ro", "-v", "src:/src", "ls"].map(Into::into);
        let Ok(Parsed::Command(Command::Run(run))) = parse(words) else { panic!("it is a run") };
        let (mut pod, base) = (run.pod.clone(), Path::new(env!("CARGO_MANIFEST_DIR")));
        settle_files(&mut pod, base).expect("it can be shown");
        assert_eq!((pod.volumes.len(), pod.with.len()), (1, 1));
        assert_eq!(pod.with[0].host, base.join("Cargo.toml"));
        assert_eq!(pod.with[0].guest.as_deref(), Some(Path::new("/c.toml")));
        let words = ["aegis", "run", "-v", "Cargo.toml:/c.toml", "ls"].map(Into::into);
        let Ok(Parsed::Command(Command::Run(run))) = parse(words) else { panic!("it is a run") };
        let error = settle_files(&mut run.pod.clone(), base).expect_err("it would be written").to_string();
        assert!(error.contains(":ro"), "{error}");
    }
}
