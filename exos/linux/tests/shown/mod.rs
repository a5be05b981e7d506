//! Which tests call a system call: our programs for Linux (`tests/linux`), which do in the machine what they do on
//! Linux, and this crate's own tests.
//!
//! Sources are read, not traced: a program counts for a call if it names it, as `SYS_name`, as `Sysno::name`, or as a
//! function of the C library that is a thin wrapper of it. So the answer is the same on every host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Functions of the C library that make a call of another name (glibc 2.36).
const WRAPPERS: &[(&str, &[&str])] = &[
    ("clock_nanosleep", &["usleep", "sleep", "nanosleep"]),
    ("clone", &["fork", "_Fork"]),
    ("clone3", &["pthread_create", "posix_spawn", "system"]),
    ("epoll_create1", &["epoll_create"]),
    ("eventfd2", &["eventfd"]),
    ("exit_group", &["exit", "_exit"]),
    ("futex", &["pthread_join", "pthread_mutex_lock", "pthread_cond_wait", "sem_wait"]),
    ("getdents64", &["readdir", "opendir", "scandir"]),
    ("mknodat", &["mkfifo", "mkfifoat", "mknod"]),
    ("newfstatat", &["stat", "lstat", "fstatat"]),
    ("openat", &["open", "fopen", "creat", "mkstemp"]),
    ("pipe2", &["pipe"]),
    ("pread64", &["pread"]),
    ("prlimit64", &["getrlimit", "setrlimit", "prlimit"]),
    ("pselect6", &["select", "pselect"]),
    ("pwrite64", &["pwrite"]),
    ("recvfrom", &["recv"]),
    ("rt_sigaction", &["sigaction", "signal"]),
    ("rt_sigpending", &["sigpending"]),
    ("rt_sigprocmask", &["sigprocmask", "pthread_sigmask"]),
    ("rt_sigqueueinfo", &["sigqueue"]),
    ("rt_sigreturn", &["sigaction"]),
    ("rt_sigsuspend", &["sigsuspend"]),
    ("rt_sigtimedwait", &["sigtimedwait", "sigwait", "sigwaitinfo"]),
    ("sendto", &["send"]),
    ("signalfd4", &["signalfd"]),
    ("tgkill", &["raise", "pthread_kill"]),
    ("umount2", &["umount"]),
    ("wait4", &["wait", "waitpid", "wait3"]),
];
/// Most tests that are named for one call.
const NAMED_COUNT_MAX: usize = 4;

/// The words of a source and the tests that they stand in.
pub(crate) struct Shown(BTreeMap<String, BTreeSet<String>>);

impl Shown {
    /// Reads the sources.
    pub(crate) fn read() -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut words: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let programs = sources(&root.join("../../tests/linux"), |name| name.ends_with(".c"));
        let families = sources(&root.join("../../tests/linux/answers"), |name| name.ends_with(".c"));
        let own = sources(&root.join("src/call"), |name| name.ends_with("_tests.rs"));
        for path in programs.into_iter().chain(families).chain(own) {
            let text = std::fs::read_to_string(&path).expect("the sources can be read");
            let test = path.file_name().expect("it is a file").to_string_lossy().into_owned();
            for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                words.entry(word.trim_start_matches("SYS_").to_string()).or_default().insert(test.clone());
            }
        }
        Self(words)
    }

    /// The tests that call `name`, as text for a table.
    pub(crate) fn of(&self, name: &str) -> String {
        let wrappers = WRAPPERS.iter().find(|(call, _)| *call == name).map_or(&[][..], |(_, functions)| functions);
        let found = std::iter::once(&name).chain(wrappers).filter_map(|word| self.0.get(*word)).flatten();
        let tests: BTreeSet<&String> = found.collect();
        let mut text = tests.iter().take(NAMED_COUNT_MAX).map(|test| test.as_str()).collect::<Vec<_>>().join(", ");
        if tests.len() > NAMED_COUNT_MAX {
            text.push_str(&format!(" and {} more", tests.len() - NAMED_COUNT_MAX));
        }
        text
    }
}

fn sources(folder: &Path, is_one: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("the folder is in the tree").map(|entry| entry.expect("readable").path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.to_str().is_some_and(&is_one)).collect();
    found.sort();
    found
}
