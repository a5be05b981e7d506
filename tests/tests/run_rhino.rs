//! Recoverable memory in the machine: the bank of `rhino/examples` keeps its sum, whatever ends it, and host and
//! machine read each other's files.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, host};

const BANK: &str = env!("CARGO_BIN_EXE_bank");

/// A folder that the machine has too.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("aegis-rhino-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        Self(folder)
    }

    fn path(&self) -> String {
        self.0.join("bank").display().to_string()
    }

    fn volume(&self) -> String {
        format!("{0}:{0}", self.0.display())
    }

    /// Runs the bank in the machine; what it printed.
    fn bank(&self, options: &[&str], words: &[&str]) -> String {
        let path = self.path();
        let command: Vec<&str> = [BANK, words[0], &path].into_iter().chain(words[1..].iter().copied()).collect();
        let volume = self.volume();
        let options: Vec<&str> = ["-v", &volume].into_iter().chain(options.iter().copied()).collect();
        let found = aegis(&options, &command, b"");
        let text = String::from_utf8_lossy(&found.output).into_owned();
        assert_eq!(found.status, 0, "{words:?}: {text}{}", found.errors);
        text
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A folder that stays behind is no reason to fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a workload in the machine, which checks itself; its lines.
fn workload(name: &str, program: &str, words: &[&str]) -> Vec<String> {
    let place = Place::new(name);
    let path = place.path();
    let command: Vec<&str> =
        std::iter::once(program).chain(words.iter().map(|word| if *word == "PATH" { &path } else { *word })).collect();
    let found = aegis(&["-v", &place.volume()], &command, b"");
    let text = String::from_utf8_lossy(&found.output).into_owned();
    assert_eq!(found.status, 0, "{text}{}", found.errors);
    text.lines().map(str::to_string).collect()
}

/// Each detector, dirty bits among them here, cold and hot.
#[test]
fn oo7_visits_all_parts_and_keeps_what_it_changed() {
    let lines = workload("oo7", env!("CARGO_BIN_EXE_oo7"), &["tiny", "PATH", "4000", "T2A"]);
    assert_eq!(lines.len(), 4 * 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("{\"row\":\"oo7\"") && line.contains("\"operations\":10935,")));
}

#[test]
fn tpca_adds_up_and_is_one_write_and_one_flush() {
    let lines = workload("tpca", env!("CARGO_BIN_EXE_tpca"), &["PATH", "60", "12"]);
    assert_eq!(lines.len(), 3 * 5, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("\"sums_are_right\":1")));
    let once = |line: &&String| line.contains("\"log_writes_per_commit\":1,\"log_flushes_per_commit\":1,");
    // Page-grain logging writes the old pages before.
    assert_eq!(lines.iter().filter(once).count(), 3 * 4, "{lines:?}");
}

/// A raw disk, past all caches: whatever ends the bank there, its sum is right, in the next machine too.
#[test]
fn a_bank_on_a_disk_keeps_its_sum() {
    let place = Place::new("disk");
    let image = place.0.join("image");
    let file = std::fs::File::create(&image).expect("the folder is writable");
    file.set_len(24 << 20).expect("a hole");
    let disk = image.display().to_string();
    for driver in ["disk=library", "disk=domain", "disk=kernel"] {
        let bank = |words: &[&str]| {
            let command: Vec<&str> =
                [BANK, words[0], "/dev/vda"].into_iter().chain(words[1..].iter().copied()).collect();
            let found = aegis(&["--driver", driver, "--disk", &disk], &command, b"");
            (found.status, String::from_utf8_lossy(&found.output).into_owned() + &found.errors)
        };
        file.set_len(0).and_then(|()| file.set_len(24 << 20)).expect("a hole");
        let (status, text) = bank(&["check"]);
        assert!(status != 0 && text.contains("NoSegment"), "{driver}: {text}");
        let (status, text) = bank(&["create", "500"]);
        assert_eq!(status, 0, "{driver}: {text}");
        // There is one: it is not made again.
        assert!(bank(&["create", "500"]).1.contains("Busy"), "{driver}");
        let (status, text) = bank(&["kill", "6"]);
        assert!(status == 0 && text.contains("6 kills, 0 wrong"), "{driver}: {text}");
        let (status, text) = bank(&["check"]);
        assert!(status == 0 && text.contains("sum 512000, expected 512000"), "{driver}: {text}");
    }
}

fn host_checks(path: &str) {
    let found = host(&[BANK, "check", path], b"");
    assert_eq!(found.status, 0, "{}", String::from_utf8_lossy(&found.output));
}

#[test]
fn every_detector_keeps_the_sum() {
    for (detector, cpus) in [("set-range", "1"), ("page", "2"), ("diff", "2"), ("dirty-bits", "1"), ("diff", "1")] {
        let place = Place::new(detector);
        assert_eq!(host(&[BANK, "create", &place.path(), "500"], b"").status, 0);
        let text = place.bank(&["--cpus", cpus], &["run", "2", detector]);
        let count: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a count");
        assert!(count > 10, "{detector}: {text}");
        host_checks(&place.path());
        // Accounts fill whole pages.
        assert!(place.bank(&[], &["check"]).contains("sum 512000, expected 512000"));
    }
}

#[test]
fn page_differences_are_found_in_the_kernel() {
    for cpus in ["1", "2"] {
        let place = Place::new(&format!("kernel-{cpus}"));
        place.bank(&[], &["create", "500"]);
        let options = ["--watch", "kernel", "--cpus", cpus];
        let text = place.bank(&options, &["run", "2", "diff"]);
        let count: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a count");
        assert!(count > 10, "{text}");
        assert!(place.bank(&options, &["kill", "10"]).ends_with("10 kills, 0 wrong\n"));
        host_checks(&place.path());
    }
}

#[test]
fn a_bank_that_is_killed_keeps_its_sum() {
    let place = Place::new("killed");
    place.bank(&[], &["create", "500"]);
    assert!(place.bank(&["--cpus", "2"], &["kill", "30"]).ends_with("30 kills, 0 wrong\n"));
    host_checks(&place.path());
    assert!(Path::new(&place.path()).exists());
}
