//! Disks as a program meets them: bytes in and out against the host's file, past the page cache and through it, what is
//! refused, errors that the host's side tells of, ends of programs while transfers run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use aegis_tests::programs::{Ended, aegis, compile, is_there, up};

/// Drivers and the name of their first disk.
const DISKS: [(&str, &str); 6] = [
    ("disk=library:virtio", "/dev/vda"),
    ("disk=library:ide", "/dev/sda"),
    ("disk=domain:virtio", "/dev/vda"),
    ("disk=domain:ide", "/dev/sda"),
    ("disk=kernel:virtio", "/dev/vda"),
    ("disk=kernel:ide", "/dev/sda"),
];
const DISK_BYTES: usize = 8 << 20;

/// An image of the host, gone at the end.
struct Image(PathBuf);

impl Image {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-{name}-{}.raw", std::process::id()));
        let bytes: Vec<u8> = (0..DISK_BYTES as u64 / 8)
            .flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
            .collect();
        std::fs::write(&path, bytes).expect("a file of the host");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain name")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).expect("it was made")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn busybox(options: &[&str], words: &[&str], input: &[u8]) -> Ended {
    aegis(options, &[&["busybox"], words].concat(), input)
}

fn read(options: &[&str], disk: &str, more: &[&str]) -> Vec<u8> {
    let input = format!("if={disk}");
    let ended = busybox(options, &[&["dd", input.as_str(), "status=none"], more].concat(), b"");
    assert_eq!(ended.status, 0, "{}", ended.errors);
    ended.output
}

#[test]
fn what_is_read_is_what_the_host_has() {
    if !is_there("busybox") {
        return;
    }
    for (driver, disk) in DISKS {
        let image = Image::new("read");
        let options = ["--driver", driver, "--disk", image.path()];
        for more in [&["bs=64k"][..], &["bs=1M", "iflag=direct"], &["bs=4096", "count=64", "iflag=direct"]] {
            let output = read(&options, disk, more);
            assert!(!output.is_empty() && image.bytes().starts_with(&output), "{driver} {more:?}");
        }
    }
}

#[test]
fn what_is_written_is_in_the_hosts_file() {
    if !is_there("busybox") {
        return;
    }
    for (driver, disk) in DISKS {
        let image = Image::new("write");
        let options = ["--driver", driver, "--disk", image.path()];
        let wanted: Vec<u8> = (0..1_000_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let output = format!("of={disk}");
        let before = image.bytes();
        // 1,000,000 bytes are no whole pages: the rest of the last one stays.
        let ended = busybox(&options, &["dd", &output, "bs=10000", "conv=notrunc,fsync", "seek=1"], &wanted);
        assert_eq!(ended.status, 0, "{driver}: {}", ended.errors);
        let after = image.bytes();
        assert!(after[10_000..1_010_000] == wanted[..], "{driver}");
        assert!(after[..10_000] == before[..10_000] && after[1_010_000..] == before[1_010_000..], "{driver}");
    }
}

#[test]
fn what_cannot_be_a_disk_is_said_before_a_machine_starts() {
    let odd = Image::new("odd");
    std::fs::OpenOptions::new().write(true).open(&odd.0).and_then(|file| file.set_len(1000)).expect("it is ours");
    let directory = std::env::temp_dir();
    for (disk, part) in [
        (odd.path(), "no multiple of 512"),
        ("/nowhere/t.raw", "there is no such file"),
        (directory.to_str().expect("a plain name"), "--disk"),
    ] {
        let ended = aegis(&["--disk", disk], &["true"], b"");
        assert_eq!(ended.status, 125, "{disk}: {}", ended.errors);
        assert!(ended.errors.contains(part), "{disk}: {}", ended.errors);
    }
}

#[test]
fn a_read_only_disk_is_not_opened_for_writing() {
    if !is_there("busybox") {
        return;
    }
    let image = Image::new("ro");
    let before = image.bytes();
    let disk = format!("{},ro", image.path());
    let ended = busybox(&["--disk", &disk], &["dd", "of=/dev/vda", "conv=notrunc"], b"x");
    assert!(ended.status != 0 && image.bytes() == before, "{}", ended.errors);
    assert!(before.starts_with(&read(&["--disk", &disk], "/dev/vda", &["bs=4k", "count=1"])));
}

#[test]
fn several_disks_have_names_in_their_order() {
    if !is_there("busybox") {
        return;
    }
    let (first, second) = (Image::new("first"), Image::new("second"));
    let mut file = std::fs::OpenOptions::new().write(true).open(&second.0).expect("it is ours");
    file.write_all(b"second").expect("it is ours");
    for machine in ["microvm", "pc", "q35"] {
        let options = ["-M", machine, "--disk", first.path(), "--disk", second.path()];
        assert_eq!(read(&options, "/dev/vdb", &["bs=6", "count=1"]), b"second", "{machine}");
        assert_eq!(read(&options, "/dev/vda", &["bs=6", "count=1"]), first.bytes()[..6], "{machine}");
    }
}

/// Rules of QEMU's blkdebug: the first write, or every read of the sector, fails.
fn rules(name: &str, event: &str, error: u32, sector: Option<u64>) -> PathBuf {
    let path = std::env::temp_dir().join(format!("aegis-{name}-{}.rules", std::process::id()));
    let place = sector.map_or(String::new(), |sector| format!("sector = \"{sector}\"\n"));
    let text = format!(
        "[inject-error]\nevent = \"{event}\"\nerrno = \"{error}\"\n{place}once = \"off\"\nimmediately = \"off\"\n"
    );
    std::fs::write(&path, text).expect("a file of the host");
    path
}

fn with_rules(image: &Image, rules: &Path) -> String {
    format!("{},failures={}", image.path(), rules.display())
}

#[test]
fn an_error_of_the_host_is_one_of_the_program_and_stops_nothing() {
    if !is_there("busybox") {
        return;
    }
    let image = Image::new("errors");
    let rules = rules("eio", "read_aio", 5, Some(2048));
    let disk = with_rules(&image, &rules);
    let options = ["--disk", disk.as_str()];
    let bad = busybox(&options, &["dd", "if=/dev/vda", "bs=4096", "skip=256", "count=1", "iflag=direct"], b"");
    assert!(bad.status != 0 && bad.errors.contains("Input/output error"), "{}", bad.errors);
    // Read ahead over it, and the pages before it are there.
    let good = read(&options, "/dev/vda", &["bs=4096", "count=256"]);
    assert!(image.bytes().starts_with(&good) && good.len() == 1 << 20);
    let _ = std::fs::remove_file(rules);
}

#[test]
fn a_full_disk_of_the_host_is_an_error_of_fsync() {
    if !is_there("busybox") {
        return;
    }
    let image = Image::new("full");
    let rules = rules("enospc", "write_aio", 28, None);
    let disk = with_rules(&image, &rules);
    let ended = busybox(&["--disk", &disk], &["dd", "of=/dev/vda", "conv=notrunc,fsync"], &[1; 4096]);
    assert!(ended.status != 0, "{}", ended.errors);
    let _ = std::fs::remove_file(rules);
}

#[test]
fn programs_share_a_disk_and_one_may_be_killed() {
    if !is_there("busybox") {
        return;
    }
    let image = Image::new("shared");
    let script = "dd if=$0 of=/dev/null bs=4096 iflag=direct 2>/dev/null & first=$!
        dd if=$0 of=/dev/null bs=64k 2>/dev/null & second=$!
        kill -9 $first; wait $second; echo $?; dd if=$0 bs=1M iflag=direct 2>/dev/null | md5sum";
    let whole = busybox(&[], &["md5sum"], &image.bytes());
    for (driver, disk) in DISKS {
        let options = ["--driver", driver, "--disk", image.path()];
        let ended = busybox(&options, &["sh", "-c", script, disk], b"");
        assert_eq!(ended.output, [b"0\n", &whole.output[..]].concat(), "{driver}: {}", ended.errors);
    }
}

/// Runs the program that checks blocks, for so many seconds: what the tool says besides.
fn verify(options: &[&str], disk: &str, seconds: &str) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("disks/verify.c");
    let text = std::fs::read_to_string(source).expect("the program's source is in the tree");
    let program = compile("verify", &text, &["-O1", "-static", "-pthread"])?.display().to_string();
    static TURN: AtomicU32 = AtomicU32::new(0);
    let image = Image::new(&format!("verify-{}", TURN.fetch_add(1, Ordering::Relaxed)));
    std::fs::OpenOptions::new().write(true).open(&image.0).and_then(|it| it.set_len(16 << 20)).expect("ours");
    let options = [&["--disk", image.path()][..], options].concat();
    let ended = aegis(&options, &[&program, disk, seconds], b"");
    assert_eq!((&ended.output[..], ended.status), (&b"ok\n"[..], 0), "{options:?}: {}", ended.errors);
    Some(ended.errors)
}

/// Each block holds what was written to it last, with sixteen threads at it, also where the driver faults every 100 ms.
#[test]
fn every_block_is_what_was_written_last_though_the_driver_is_lost() {
    for (driver, disk) in DISKS {
        for processors in ["1", "2"] {
            let options = ["--cpus", processors, "--driver", driver];
            let Some(errors) = verify(&options, disk, "2") else { return };
            assert!(!errors.contains("started anew"), "{options:?}: {errors}");
            if driver.contains("domain") {
                let options = [&options[..], &["--fault-disk-domain", "100"]].concat();
                let errors = verify(&options, disk, "2").unwrap_or_default();
                // The line of the fourth restart says that there were so many.
                assert!(errors.contains("started anew (4)"), "{options:?}: {errors}");
            }
        }
    }
}

/// The same with a domain that does nothing any more, and one that writes what cannot be into the session.
#[test]
fn a_driver_that_hangs_or_lies_is_lost_like_one_that_faults() {
    for (driver, disk) in DISKS.into_iter().filter(|(driver, _)| driver.contains("domain")) {
        for (fault, seconds) in [("300:hang", "5"), ("100:lie", "2")] {
            let Some(errors) = verify(&["--driver", driver, "--fault-disk-domain", fault], disk, seconds) else {
                return;
            };
            assert!(errors.contains("started anew"), "{driver} {fault}: {errors}");
        }
    }
}

#[test]
fn placements_say_how_many_disks_they_drive() {
    let image = Image::new("many");
    for (driver, count) in [("disk=domain:ide", 1), ("disk=library:ide", 2), ("disk=kernel", 4)] {
        let disks = ["--disk", image.path()].repeat(count + 1);
        let ended = aegis(&[&["--driver", driver][..], &disks].concat(), &["true"], b"");
        let part = format!("at most {count} with disk=");
        assert!(ended.status == 125 && ended.errors.contains(&part), "{driver}: {}", ended.errors);
    }
}

#[test]
fn both_channels_are_driven_in_the_kernel() {
    if !is_there("busybox") {
        return;
    }
    let (first, second) = (Image::new("channel-0"), Image::new("channel-1"));
    let mut file = std::fs::OpenOptions::new().write(true).open(&second.0).expect("it is ours");
    file.write_all(b"second").expect("it is ours");
    let options = ["--driver", "disk=kernel:ide", "--disk", first.path(), "--disk", second.path()];
    assert!(second.bytes() == read(&options, "/dev/sdb", &["bs=64k"]));
    assert!(first.bytes() == read(&options, "/dev/sda", &["bs=64k"]));
}

#[test]
fn a_pod_that_is_trusted_with_devices_has_disks() {
    if !is_there("busybox") {
        return;
    }
    let image = Image::new("up");
    let file = |drivers: &str| {
        let (program, args) =
            ("program = \"busybox\"", "args = [\"dd\", \"if=/dev/vda\", \"bs=64k\", \"of=/tmp/copy\"]");
        let disk = format!("disk = [\"{}\"]", image.path());
        format!("[machine]\ntrust_devices = true\n[pod.a]\n{program}\n{args}\n{disk}\n{drivers}\n")
    };
    for machine in ["microvm", "pc", "q35"] {
        let ended = up("disk", &["-M", machine], &file(""));
        assert_eq!(ended.status, 0, "{machine}: {}", ended.errors);
    }
    let ended = up("disk", &[], &file("drivers = [\"disk=library:ide\"]"));
    assert!(ended.status == 125 && ended.errors.contains("is no pod's own"), "{}", ended.errors);
}

/// Pods that are trusted with devices have a disk each, wherever its driver is; each sees its own.
#[test]
fn pods_have_disks_in_every_placement() {
    if !is_there("busybox") {
        return;
    }
    let images = ["a", "b"].map(|name| {
        let image = Image::new(&format!("pod-{name}"));
        let mut file = std::fs::OpenOptions::new().write(true).open(&image.0).expect("it is ours");
        file.write_all(name.as_bytes()).expect("it is ours");
        image
    });
    let pod = |name: &str, image: &Image, driver: &str| {
        let args = "[\"sh\", \"-c\", \"dd if=/dev/vda bs=64k 2>/dev/null | md5sum\"]";
        let disk = image.path();
        format!("[pod.{name}]\nprogram = \"busybox\"\nargs = {args}\ndisk = [\"{disk}\"]\ndrivers = [\"{driver}\"]\n")
    };
    let sums = images.each_ref().map(|image| busybox(&[], &["md5sum"], &image.bytes()).output);
    for drivers in [["disk=domain"; 2], ["disk=kernel"; 2], ["disk=library", "disk=domain"]] {
        let both = [pod("a", &images[0], drivers[0]), pod("b", &images[1], drivers[1])].concat();
        let ended = up("disk-placements", &[], &format!("[machine]\ntrust_devices = true\n{both}"));
        assert_eq!(ended.status, 0, "{drivers:?}: {}", ended.errors);
        let text = String::from_utf8_lossy(&ended.output).into_owned();
        for (name, sum) in ["a", "b"].into_iter().zip(&sums) {
            let line = String::from_utf8_lossy(sum).trim().to_owned();
            assert!(text.lines().any(|it| it.starts_with(name) && it.contains(&line)), "{drivers:?} {name}: {text}");
        }
        let ended = up("disk-placements", &[], &both);
        let part = "trust_devices = true in [machine]";
        assert!(ended.status == 125 && ended.errors.contains(part), "{drivers:?}: {}", ended.errors);
    }
    let mixed = [pod("a", &images[0], "disk=kernel"), pod("b", &images[1], "disk=library")].concat();
    let ended = up("disk-placements", &[], &format!("[machine]\ntrust_devices = true\n{mixed}"));
    assert!(ended.status == 125 && ended.errors.contains("the kernel drives all disks"), "{}", ended.errors);
}
