//! An image becomes options and words of a pod: its root, its command, its environment, its user.
//!
//! What the user says wins over what the image says, as with `podman run`: words behind the image replace its
//! arguments, `--entrypoint` replaces its program and drops its arguments, `-e`, `-w` and `-u` replace theirs.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use aegis_launch::cache::Cache;
use aegis_launch::errors::Error;
use aegis_launch::images::Settings;
use aegis_launch::images::accounts::Accounts;
use aegis_launch::images::errors::ImageError;
use aegis_launch::images::source::ImageSource;
use aegis_launch::images::store::{Pull, Store};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use serde_json::Value;

use crate::options::groups::PodOptions;
use crate::options::health::HealthCheck;
use crate::options::image::{ImageOptions, PullChoice};
use crate::options::network::parse_publications;
use crate::options::values::{parse_signal, parse_temporary};

/// Longest file of accounts that is read of a root that is a directory.
const ACCOUNTS_BYTES_MAX: u64 = 1 << 20;

/// Takes over what the pod's image says, where it has one, and finds out its user. The answer is what the user should
/// know.
///
/// # Errors
/// The image cannot be had, has no command, or has no such user.
pub(crate) fn settle(options: &mut PodOptions, words: &mut Vec<OsString>, base: &Path) -> Result<Vec<String>, Error> {
    let Some(source) = &options.image.image else {
        options.image.health_check = options.image.health.settle(options.image.health_check.take());
        if let Some(numbers) = options.image.numbers.take() {
            options.image.identity = numbers;
        } else if let Some(user) = &options.image.user {
            // Without a root of its own a program sees this host's accounts.
            let root = options.root.as_deref().or((!options.view.bare).then_some(Path::new("/")));
            let accounts = accounts_of_root(root, base);
            options.image.identity = accounts.identity(user)?;
            add_groups(&mut options.image, &accounts)?;
        }
        return Ok(Vec::new());
    };
    let store = Store::open(Cache::open().as_ref())?;
    let image = match (source, options.image.pull) {
        (ImageSource::Registry(reference), PullChoice::Never) => {
            store.obtain(&ImageSource::Kept(reference.shown()), Pull::IfMissing)?
        }
        (source, PullChoice::Always) => store.obtain(source, Pull::Always)?,
        (source, _) => store.obtain(source, Pull::IfMissing)?,
    };
    let settings = &image.settings;
    *words = command(settings, options.image.entrypoint.as_deref(), words)?;
    let user = options.image.user.as_deref().or(settings.user.as_deref()).unwrap_or_default();
    let identity = image.accounts.identity(user)?;
    options.environment = environment(settings, identity.home.as_deref(), options);
    options.image.identity = identity;
    add_groups(&mut options.image, &image.accounts)?;
    // What the user says comes last, and counts.
    let labels = settings.labels.iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    options.image.labels.splice(0..0, labels);
    if options.read_only {
        let volumes = settings.volumes.iter().flatten().map(|(path, _)| path.trim_end_matches('/'));
        let is_free = |path: &&str| !options.volumes.iter().any(|volume| volume.guest == Path::new(path));
        let volumes = volumes.filter(is_free).map(parse_temporary).filter_map(Result::ok).collect::<Vec<_>>();
        options.temporaries.splice(0..0, volumes);
    }
    if options.working_directory.is_none() {
        let directory = settings.working_dir.as_deref().unwrap_or_default();
        options.working_directory = Some(Path::new("/").join(directory));
    }
    let mut warnings = image.warnings;
    if options.image.stop_signal.is_none() {
        match stop_signal(settings) {
            Ok(signal) => options.image.stop_signal = signal,
            Err(why) => warnings.push(format!("the image's StopSignal is passed over: {why}")),
        }
    }
    let own = settings.healthcheck.as_ref().map_or(Ok(None), HealthCheck::of_image).unwrap_or_else(|why| {
        warnings.push(format!("the image's Healthcheck is passed over: {why}"));
        None
    });
    let said = options.image.health_check.take();
    options.image.health_check = options.image.health.settle(said.or(own));
    if options.image.publish_all {
        publish(settings, options)?;
    }
    (options.root, options.image.accounts) = (Some(image.root), Some(image.accounts));
    Ok(warnings)
}

/// Groups of `--group-add`.
fn add_groups(options: &mut ImageOptions, accounts: &Accounts) -> Result<(), Error> {
    for group in &options.groups {
        let number = accounts.group_number(group)?;
        if !options.identity.groups.contains(&number) {
            options.identity.groups.push(number);
        }
    }
    Ok(())
}

/// The program and its arguments.
fn command(settings: &Settings, entrypoint: Option<&str>, given: &[OsString]) -> Result<Vec<OsString>, Error> {
    let own = |words: &Option<Vec<String>>| words.iter().flatten().map(OsString::from).collect::<Vec<_>>();
    let first = match entrypoint {
        None => own(&settings.entrypoint),
        Some("") => Vec::new(),
        Some(text) => match serde_json::from_str::<Vec<String>>(text) {
            Ok(words) => words.into_iter().map(OsString::from).collect(),
            Err(_) => vec![text.into()],
        },
    };
    let rest = match (given, entrypoint) {
        ([], None) => own(&settings.cmd),
        (given, _) => given.to_vec(),
    };
    let words: Vec<OsString> = first.into_iter().chain(rest).collect();
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err(Error::Usage("the image names no program; write one behind the options".into())),
    }
}

/// Home and host name, then the image's variables, then the user's: of several values the last counts.
fn environment(settings: &Settings, home: Option<&[u8]>, options: &PodOptions) -> Vec<OsString> {
    let home = home.map_or_else(|| b"/".to_vec(), <[u8]>::to_vec);
    let hostname = options.network.hostname.clone().unwrap_or_else(|| "aegis".into());
    let own = [OsString::from_vec([&b"HOME="[..], &home].concat()), format!("HOSTNAME={hostname}").into()];
    let images = settings.env.iter().flatten().filter(|it| it.find('=').is_some_and(|at| at > 0)).map(OsString::from);
    own.into_iter().chain(images).chain(options.environment.iter().cloned()).collect()
}

/// What tells the image's program to end, if it says so.
fn stop_signal(settings: &Settings) -> Result<Option<u8>, String> {
    match &settings.stop_signal {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => parse_signal(text).map(Some),
        Some(other) => parse_signal(&other.to_string()).map(Some),
    }
}

fn publish(settings: &Settings, options: &mut PodOptions) -> Result<(), Error> {
    for port in settings.exposed_ports.iter().flatten().map(|(port, _)| port) {
        let range = parse_publications(&format!("0:{port}"));
        let range = range.map_err(|why| ImageError::Source(format!("the image exposes {port:?}: {why}")))?;
        options.network.add_publication(range);
    }
    Ok(())
}

/// The accounts of a root that is a directory; none of another, where numbers are known and names are not.
fn accounts_of_root(root: Option<&Path>, base: &Path) -> Accounts {
    let Some(root) = root.map(|root| base.join(root)) else { return Accounts::default() };
    let read = |name: &str| file_in_root(&root, name).unwrap_or_default();
    Accounts { passwd: read("etc/passwd"), group: read("etc/group") }
}

/// The beginning of a plain file of a root, with links followed as a program in it would; nothing of what is none.
fn file_in_root(root: &Path, name: &str) -> Option<Vec<u8>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let found = openat2(root.as_fd(), name, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
    // Opened for reading only once it is known to be no device and no pipe.
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(ACCOUNTS_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{accounts_of_root, command, settle};
    use crate::verb::up_file::plain_options;
    use aegis_launch::images::Settings;
    use aegis_launch::images::accounts::Identity;
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    /// A root whose accounts call user 0 `1000`, and a folder beside it.
    fn root(name: &str) -> (PathBuf, PathBuf) {
        let folder = std::env::temp_dir().join(format!("aegis-accounts-{}-{name}", std::process::id()));
        let root = folder.join("root");
        std::fs::create_dir_all(root.join("etc")).expect("writable");
        std::fs::write(root.join("etc/passwd"), "1000:x:0:0::/:/bin/sh\n").expect("writable");
        (folder, root)
    }

    #[test]
    fn numbers_of_an_engine_are_no_names_of_the_root() {
        let (folder, root) = root("numbers");
        let mut options = plain_options(1 << 20);
        let numbers = Identity { uid: 1000, gid: 7, groups: vec![8], home: None };
        (options.root, options.image.numbers) = (Some(root.clone()), Some(numbers.clone()));
        settle(&mut options, &mut Vec::new(), Path::new("/")).expect("settled");
        assert_eq!(options.image.identity, numbers);
        options.image.user = Some("1000".into());
        settle(&mut options, &mut Vec::new(), Path::new("/")).expect("settled");
        assert_eq!(options.image.identity.uid, 0, "what a user types may be a name");
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn accounts_are_the_roots_own_wherever_links_lead() {
        let (folder, root) = root("links");
        let (passwd, outside) = (root.join("etc/passwd"), folder.join("outside"));
        std::fs::write(&outside, "out:x:5:5::/:/bin/sh\n").expect("writable");
        std::fs::write(root.join("inside"), "in:x:6:6::/:/bin/sh\n").expect("writable");
        for (target, expected) in [
            (outside.clone(), ""),
            ("../../outside".into(), ""),
            ("/inside".into(), "in:x:6:6::/:/bin/sh\n"),
            ("../../../inside".into(), "in:x:6:6::/:/bin/sh\n"),
        ] {
            std::fs::remove_file(&passwd).expect("ours");
            std::os::unix::fs::symlink(&target, &passwd).expect("writable");
            let found = accounts_of_root(Some(Path::new("root")), &folder).passwd;
            assert_eq!(String::from_utf8_lossy(&found), expected, "{}", target.display());
        }
        std::fs::remove_dir_all(folder).expect("ours");
    }

    fn words(entry: &[&str], cmd: &[&str], entrypoint: Option<&str>, given: &[&str]) -> Option<Vec<OsString>> {
        let list = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        let settings = Settings { entrypoint: list(entry), cmd: list(cmd), ..Settings::default() };
        let given: Vec<OsString> = given.iter().map(OsString::from).collect();
        command(&settings, entrypoint, &given).ok()
    }

    #[test]
    fn words_come_together_as_podman_puts_them() {
        let is = |found: Option<Vec<OsString>>, expected: &[&str]| assert_eq!(found.expect("a command"), expected);
        is(words(&["/entry"], &["a"], None, &[]), &["/entry", "a"]);
        is(words(&["/entry"], &["a"], None, &["b", "c"]), &["/entry", "b", "c"]);
        is(words(&[], &["sh"], None, &["b"]), &["b"]);
        is(words(&["/entry"], &["a"], Some("/x"), &[]), &["/x"]);
        is(words(&["/entry"], &["a"], Some("/x"), &["b"]), &["/x", "b"]);
        is(words(&["/entry"], &["a"], Some("[\"/x\",\"y\"]"), &["b"]), &["/x", "y", "b"]);
        is(words(&["/entry"], &["a"], Some(""), &["b"]), &["b"]);
        assert_eq!(words(&["/entry"], &["a"], Some(""), &[]), None);
        assert_eq!(words(&[], &[], None, &[]), None);
    }
}
