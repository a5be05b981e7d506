//! Several pods on one image of the host (`[disk.pool]`): each has its part and nothing else, what it wrote is there
//! the next time, its driver may be lost, and who does wrong hurts itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use aegis_tests::programs::{Ended, compile_with, is_there, up};

/// An image of the host, gone at the end.
struct Image(PathBuf);

impl Image {
    fn new(name: &str, mib: u64) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-pool-{name}-{}.img", std::process::id()));
        let made = std::fs::File::create(&path).and_then(|file| file.set_len(mib << 20));
        made.expect("a file of the host");
        Self(path)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).expect("it was made")
    }

    /// The table of a machine's file, and what is said of the machine.
    fn table(&self, machine: &str) -> String {
        format!("[machine]\n{machine}\n[disk.pool]\nimage = \"{}\"\n", self.0.display())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn pod(name: &str, disk: &str, script: &str) -> String {
    format!("[pod.{name}]\nprogram = \"busybox\"\nargs = [\"sh\", \"-c\", '''{script}''']\ndisk = [\"{disk}\"]\n")
}

/// What a pod printed.
fn lines_of(ended: &Ended, pod: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&ended.output);
    let lines = text.lines().filter_map(|line| line.split_once(" | "));
    lines.filter(|(mark, _)| mark.trim_end() == pod).map(|(_, line)| line.to_owned()).collect()
}

fn shown(ended: &Ended) -> String {
    format!("status {}\n{}{}", ended.status, String::from_utf8_lossy(&ended.output), ended.errors)
}

/// A program of the tests' own; `None` where there is no compiler.
fn program(path: &str, flags: &[&str]) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&path).expect("the source is in the tree");
    let name = path.file_stem()?.to_str()?.to_owned();
    let include = format!("-I{}", path.parent()?.display());
    let flags = [flags, &["-O1", "-static", "-pthread", &include]].concat();
    Some(compile_with("gcc", &format!("pool-{name}"), &text, &flags)?.display().to_string())
}

fn count_of(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part).count()
}

#[test]
fn each_pod_has_its_part_and_finds_it_again() {
    if !is_there("busybox") {
        return;
    }
    let image = Image::new("parts", 64);
    let script = |mark: &str| {
        format!(
            "blockdev --getsize64 /dev/vda; head -c 8 /dev/vda | tr -d '\\0'; echo; \
             yes {mark} | head -c 4194304 | dd of=/dev/vda bs=64k conv=fsync 2>/dev/null; \
             yes {mark} | dd of=/dev/vda bs=1M seek=8 2>&1 | grep -c 'No space'; \
             head -c 4194304 /dev/vda | md5sum"
        )
    };
    let (red, blue) = (script("red"), script("blue"));
    let sum_of = |mark: &str| {
        let command = format!("yes {mark} | head -c 4194304 | md5sum");
        String::from_utf8(Command::new("sh").args(["-c", &command]).output().expect("a shell").stdout).expect("text")
    };
    for (machine, options) in [("", &["-M", "pc"][..]), ("", &[]), ("cpus = 2", &["-M", "q35"])] {
        let file = [
            image.table(machine),
            pod("a", "pool:red,size=8M", &red),
            // In the other order the second time: parts are by name.
            pod("b", "pool:blue,size=8M", &blue),
        ];
        let ended = up("pool-parts", options, &file.concat());
        assert_eq!(ended.status, 0, "{}", shown(&ended));
        for (name, mark) in [("a", "red"), ("b", "blue")] {
            let lines = lines_of(&ended, name);
            let found = format!("{mark}\n").repeat(2);
            let before = if options == ["-M", "pc"] { "" } else { &found[..found.find('\n').unwrap_or(0)] };
            assert_eq!(lines[..2], ["8388608", before], "{name}: {}", shown(&ended));
            assert!(lines.contains(&"1".to_owned()), "the end is an error: {}", shown(&ended));
            assert_eq!(lines.last().map(String::as_str), Some(sum_of(mark).trim_end()), "{}", shown(&ended));
        }
    }
    let bytes = image.bytes();
    assert!(count_of(&bytes, b"red\n") >= 1 << 20 && count_of(&bytes, b"blue\n") >= 800_000);
}

#[test]
fn a_pod_that_may_not_write_does_not_and_one_of_another_name_has_nothing() {
    if !is_there("busybox") {
        return;
    }
    let image = Image::new("rights", 32);
    let write = "echo secret | dd of=/dev/vda conv=fsync 2>&1 | grep -c 'copied\\|out'";
    let ended = up("pool-rights", &[], &[image.table(""), pod("a", "pool:x,size=4M", write)].concat());
    assert_eq!(ended.status, 0, "{}", shown(&ended));
    let script = "head -n 1 /dev/vda; echo wrong 2>/dev/null > /dev/vda || echo refused";
    let ended = up("pool-rights", &[], &[image.table(""), pod("a", "pool:x,ro", script)].concat());
    assert_eq!(lines_of(&ended, "a"), ["secret", "refused"], "{}", shown(&ended));
    let ended = up("pool-rights", &[], &[image.table(""), pod("b", "pool:x", "head -n 1 /dev/vda")].concat());
    assert!(ended.status == 125 && ended.output.is_empty(), "{}", shown(&ended));
    assert_eq!(count_of(&image.bytes(), b"secret\n"), 1);
}

/// Two pods with sixteen threads each, and a driver that faults, hangs or lies meanwhile.
#[test]
fn every_block_is_what_was_written_last_though_the_driver_is_lost() {
    let Some(verify) = program("disks/verify.c", &[]) else { return };
    let image = Image::new("verify", 64);
    let pods: String = ["a", "b"]
        .map(|name| {
            let disk = format!("pool:{name},size=16M");
            format!("[pod.{name}]\nprogram = \"{verify}\"\nargs = [\"/dev/vda\", \"3\"]\ndisk = [\"{disk}\"]\n")
        })
        .concat();
    for (cpus, fault) in [("1", None), ("2", None), ("1", Some("100")), ("2", Some("600:lie")), ("2", Some("600:hang"))]
    {
        let options = fault.map_or(Vec::new(), |fault| vec!["--fault-pool", fault]);
        let ended = up("pool-verify", &options, &(image.table(&format!("cpus = {cpus}")) + &pods));
        assert_eq!(ended.status, 0, "{cpus} {fault:?}: {}", shown(&ended));
        for name in ["a", "b"] {
            assert!(lines_of(&ended, name).contains(&"ok".to_owned()), "{cpus} {fault:?}: {}", shown(&ended));
        }
        assert_eq!(ended.errors.contains("started anew"), fault.is_some(), "{cpus} {fault:?}: {}", shown(&ended));
    }
}

#[test]
fn who_forges_its_session_hurts_itself_alone() {
    let Some((verify, attack)) = program("disks/verify.c", &[]).zip(program("attacks/pool.c", &["-w"])) else { return };
    let image = Image::new("attack", 64);
    let pods = format!(
        "[pod.honest]\nprogram = \"{verify}\"\nargs = [\"/dev/vda\", \"4\"]\ndisk = [\"pool:h,size=16M\"]\n\
         depends_on = [\"hostile\", \"beside\"]\n\
         [pod.hostile]\nprogram = \"{attack}\"\nargs = [\"8000\", \"0\"]\ndisk = [\"pool:e,size=16M\"]\n\
         [pod.beside]\nprogram = \"{attack}\"\nargs = [\"8000\", \"32768\"]\ndisk = [\"pool:f,size=16M\"]\n"
    );
    for cpus in ["1", "2"] {
        let ended = up("pool-attack", &[], &(image.table(&format!("cpus = {cpus}")) + &pods));
        assert!(lines_of(&ended, "honest").contains(&"ok".to_owned()), "{cpus}: {}", shown(&ended));
        for name in ["hostile", "beside"] {
            let lines = lines_of(&ended, name);
            assert!(lines.iter().any(|line| line.contains("forged")), "{cpus} {name}: {}", shown(&ended));
        }
        // Nobody's doubts have ended a service that works.
        assert!(!ended.errors.contains("started anew"), "{cpus}: {}", shown(&ended));
    }
}

/// A pod that ends in the middle of its transfers and is started again finds its disk.
#[test]
fn a_pod_that_is_started_again_has_its_part_again() {
    if !is_there("busybox") {
        return;
    }
    let image = Image::new("again", 64);
    let script = "head -c 3 /dev/vda | tr -d '\\0'; echo; echo new | dd of=/dev/vda conv=fsync 2>/dev/null; \
                  for i in 1 2 3; do while :; do dd if=/dev/zero of=/dev/vda bs=64k seek=$((i * 32)) count=32 \
                  oflag=direct 2>/dev/null; done & done; sleep 0.7; exit 1";
    let other = "for i in $(seq 30); do yes other | head -c 1048576 | dd of=/dev/vda bs=64k conv=fsync 2>/dev/null; \
                 head -c 1048576 /dev/vda | md5sum; sleep 0.1; done | sort -u | wc -l";
    let file = [
        image.table("cpus = 2"),
        pod("a", "pool:a,size=8M", script) + "restart = \"on-failure:3\"\n",
        pod("b", "pool:b,size=8M", other),
    ];
    let ended = up("pool-again", &[], &file.concat());
    assert_eq!(lines_of(&ended, "b"), ["1"], "{}", shown(&ended));
    assert_eq!(lines_of(&ended, "a"), ["", "new", "new", "new"], "{}", shown(&ended));
}
