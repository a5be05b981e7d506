//! `aegis run` from outside, with a script in QEMU's place: what users see of standard streams, exit
//! statuses, signals, time limits, and that nothing is left running; and that a pool is one machine's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen soon.
const SOON: Duration = Duration::from_secs(20);

/// A scratch directory with what a run needs.
struct World {
    directory: PathBuf,
}

impl World {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("aegis-run-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("kernel.elf"), b"fake").unwrap();
        std::fs::write(directory.join("exos.elf"), tiny_elf()).unwrap();
        Self { directory }
    }

    fn tool(&self, scenario: &str, status: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aegis"));
        command.args(words).stdin(Stdio::null());
        command.env("AEGIS_QEMU", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_qemu.sh"));
        command.env("AEGIS_ARTIFACTS", &self.directory);
        command.env("XDG_CACHE_HOME", self.directory.join("cache"));
        command.env("FAKE_DIR", &self.directory);
        command.env("FAKE_QEMU", scenario).env("FAKE_STATUS", status);
        command
    }

    fn run(&self, scenario: &str, status: &str, options: &[&str]) -> Output {
        let words = [&["run", "--accel", "tcg"], options, &["true"]].concat();
        self.tool(scenario, status, &words).output().unwrap()
    }

    /// The fake QEMU of this world has ended.
    fn assert_no_machine_left(&self) {
        let pid = std::fs::read_to_string(self.directory.join("pid")).unwrap();
        let process = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
        let deadline = Instant::now() + SOON;
        while Instant::now() < deadline {
            // A zombie has ended too: its new parent has not yet asked.
            match std::fs::read_to_string(&process) {
                Ok(stat) if !stat.contains(") Z ") => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        panic!("process {pid} still runs");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A started tool, which does not outlive a test that fails.
struct Tool(Child);

impl Tool {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // It has ended in a test that went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl std::ops::Deref for Tool {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Tool {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// The smallest static ELF file that can become a flat image: one executable segment at address 0.
fn tiny_elf() -> Vec<u8> {
    let mut elf = vec![0; 4096];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut put = |offset: usize, bytes: &[u8]| {
        elf[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    put(16, &3u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(20, &1u32.to_le_bytes());
    put(24, &0x200u64.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(52, &64u16.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &1u16.to_le_bytes());
    put(58, &64u16.to_le_bytes());
    put(64, &1u32.to_le_bytes());
    put(68, &5u32.to_le_bytes());
    put(96, &4096u64.to_le_bytes());
    put(104, &4096u64.to_le_bytes());
    put(112, &4096u64.to_le_bytes());
    elf
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
}

fn wait(child: &mut Child) -> i32 {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("the tool did not end");
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

#[test]
fn output_error_and_status_come_through_apart() {
    let world = World::new("exit");
    let output = world.run("exit", "7", &[]);
    assert_status(&output, 7);
    assert_eq!(text(&output.stdout), "out\n");
    let errors = text(&output.stderr);
    assert!(errors.contains("err\n"), "{errors}");
    assert!(errors.contains("exos: openat2: not there (ENOSYS)\n"), "{errors}");
    assert!(!errors.contains("only with --verbose") && !errors.contains("kernel:"), "{errors}");
}

#[test]
fn a_terminals_signals_do_not_reach_qemu() {
    let world = World::new("session");
    world.run("exit", "0", &[]);
    let read = |name: &str| std::fs::read_to_string(world.directory.join(name)).unwrap();
    // The leader of its own session has no part in the terminal's process groups.
    assert_eq!(read("session"), read("pid"));
}

#[test]
fn quiet_and_verbose() {
    let world = World::new("voices");
    let quiet = world.run("exit", "0", &["-q"]);
    assert_eq!(text(&quiet.stderr), "err\n");
    let verbose = text(&world.run("exit", "0", &["--verbose"]).stderr);
    for expected in ["only with --verbose", "kernel: fake machine", "-chardev socket,id=control"] {
        assert!(verbose.contains(expected), "{expected}: {verbose}");
    }
}

#[test]
fn statistics_come_last() {
    let world = World::new("stats");
    let errors = text(&world.run("exit", "3", &["--stats=json", "-q"]).stderr);
    let line = errors.lines().last().unwrap();
    assert!(line.starts_with("{\"status\":3,\"accelerator\":\"tcg\","), "{line}");
    assert!(line.contains("\"first_output_us\":"), "{line}");
    assert!(line.ends_with("\"guest\":{\"boot_ns\":1500000,\"page_faults\":3}}"), "{line}");
    let table = text(&world.run("exit", "0", &["--stats", "-q"]).stderr);
    assert!(table.contains("start to first output") && table.contains("1.500 ms"), "{table}");
}

#[test]
fn a_signals_victim_and_a_failed_start_have_their_line() {
    let world = World::new("reports");
    let killed = world.run("killed", "", &[]);
    assert_status(&killed, 139);
    assert_eq!(text(&killed.stderr), "aegis: store to 0x0 at main+0x4\n");
    let fail = world.run("fail", "", &[]);
    assert_status(&fail, 127);
    assert_eq!(text(&fail.stderr), "aegis: foo: not found in the root\n");
}

#[test]
fn a_mebibyte_of_input_comes_back_the_same() {
    let world = World::new("echo");
    let input: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let words = ["run", "--accel", "tcg", "cat"];
    let mut command = world.tool("echo", "", &words);
    command.env("FAKE_BYTES", input.len().to_string());
    let mut child = Tool::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    let copy = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy).unwrap());
    // The tool reads no input that the program does not take, so the output must be read meanwhile.
    let mut back = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    writer.join().unwrap();
    assert_eq!((wait(&mut child), errors.as_str()), (0, "eof 1048576"));
    assert!(back == input, "{} bytes came back", back.len());
}

#[test]
fn output_behind_the_ending_line_is_not_lost_to_a_slow_reader() {
    let world = World::new("burst");
    let words = ["run", "--accel", "tcg", "cat"];
    let mut command = world.tool("burst", "", &words);
    command.env("FAKE_BYTES", "300000");
    let mut child = Tool::start(command.stdout(Stdio::piped()));
    let mut stdout = child.stdout.take().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut bytes = Vec::new();
    stdout.read_to_end(&mut bytes).unwrap();
    assert_eq!((bytes.len(), wait(&mut child)), (300_000, 0));
}

#[test]
fn a_program_learns_that_nobody_reads_its_output_and_decides() {
    for (answer, status) in [("killed 13 0", 141), ("exit 5", 5)] {
        let world = World::new(&format!("closed-{status}"));
        let mut command = world.tool("closed", answer, &["run", "--accel", "tcg", "yes"]);
        let mut child = Tool::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut some = [0; 16];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        assert_eq!(wait(&mut child), status);
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(errors, "closed 2 32");
        world.assert_no_machine_left();
    }
}

#[test]
fn a_full_device_is_told_to_the_program_and_to_the_user() {
    for (answer, status) in [("exit 0", 125), ("exit 4", 4)] {
        let world = World::new(&format!("full-{status}"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let words = ["run", "--accel", "tcg", "yes"];
        let output = world.tool("closed", answer, &words).stdout(full).output().unwrap();
        assert_status(&output, status);
        let errors = text(&output.stderr);
        assert!(errors.starts_with("closed 2 28"), "{errors}");
        assert_eq!(errors.contains("aegis: standard output: No space left"), status == 125, "{errors}");
        world.assert_no_machine_left();
    }
}

#[test]
fn the_time_limit_ends_the_machine_even_if_nobody_reads() {
    let world = World::new("timeout");
    for scenario in ["sleep", "silent", "endless"] {
        let words = ["run", "--accel", "tcg", "--timeout", "0.5", "true"];
        let mut child = Tool::start(world.tool(scenario, "", &words).stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!(wait(&mut child), 124, "{scenario}");
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(errors, "aegis: ended by --timeout after 0.5 s\n", "{scenario}");
        world.assert_no_machine_left();
    }
}

fn start_and_wait_until_ready(world: &World, scenario: &str, status: &str) -> (Tool, impl BufRead + use<>) {
    let words = ["run", "--accel", "tcg", "true"];
    let mut child = Tool::start(world.tool(scenario, status, &words).stdout(Stdio::piped()));
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, stdout)
}

#[test]
fn the_first_signal_reaches_the_program() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-USR1", 10)] {
        let world = World::new(&format!("signal{number}"));
        let (mut child, mut stdout) = start_and_wait_until_ready(&world, "signal", "");
        send(&child, signal);
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("signal {number}\n"));
        assert_eq!(wait(&mut child), 5);
    }
}

#[test]
fn the_second_signal_ends_the_machine() {
    let world = World::new("second");
    let (mut child, mut stdout) = start_and_wait_until_ready(&world, "signal", "stubborn");
    send(&child, "-INT");
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "signal 2\n");
    send(&child, "-TERM");
    assert_eq!(wait(&mut child), 143);
    world.assert_no_machine_left();
}

#[test]
fn a_signal_before_hello_ends_the_machine() {
    let world = World::new("early");
    let mut child = Tool::start(&mut world.tool("silent", "", &["run", "--accel", "tcg", "true"]));
    let deadline = Instant::now() + SOON;
    while !world.directory.join("pid").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    send(&child, "-TERM");
    assert_eq!(wait(&mut child), 143);
    world.assert_no_machine_left();
}

#[test]
fn a_pool_is_one_machines_at_a_time() {
    let world = World::new("pool");
    for part in ["pods.elf", "disk-domain.elf"] {
        std::fs::write(world.directory.join(part), tiny_elf()).unwrap();
    }
    let [image, file] = ["pool.img", "m.toml"].map(|name| world.directory.join(name).display().to_string());
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let text_of_file = "[disk.pool]\nimage = \"pool.img\"\n[pod.a]\nprogram = \"true\"\ndisk = [\"pool:db,size=4M\"]\n\
                        [pod.b]\nprogram = \"true\"\n";
    std::fs::write(&file, text_of_file).unwrap();
    let up = ["up", "--accel", "tcg", &file];
    let mut child = Tool::start(world.tool("silent", "", &up).stderr(Stdio::null()));
    let deadline = Instant::now() + SOON;
    while !world.directory.join("pid").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let arguments = std::fs::read_to_string(world.directory.join("arguments")).unwrap();
    assert!(arguments.ends_with(
        "\n-device\nvirtio-blk-device,bus=virtio-mmio-bus.8,drive=pool,num-queues=1,queue-size=256,discard=on,\
         write-zeroes=on,werror=report,rerror=report\n"
    ));
    let said = |words: &[&str], status: i32| {
        let output = world.tool("silent", "", words).output().unwrap();
        assert_status(&output, status);
        text(if status == 0 { &output.stdout } else { &output.stderr })
    };
    let busy = format!("aegis: {image}: another machine or tool uses it; a pool is one machine's at a time\n");
    assert_eq!(said(&up, 125), busy);
    assert_eq!(said(&["pool", "rm", &image, "db"], 125), busy);
    assert!(said(&["pool", "ls", &image], 0).contains("db    a            4 MiB  in use\n"));
    send(&child, "-TERM");
    assert_eq!(wait(&mut child), 143);
    world.assert_no_machine_left();
    said(&["pool", "rm", &image, "db"], 0);
    assert_eq!(said(&["pool", "ls", &image], 0), "NAME  POD           SIZE  STATE\n");
}

#[test]
fn a_tool_that_is_killed_takes_the_machine_with_it() {
    let world = World::new("sigkill");
    let (mut child, _stdout) = start_and_wait_until_ready(&world, "sleep", "");
    send(&child, "-KILL");
    wait(&mut child);
    world.assert_no_machine_left();
}

#[test]
fn a_machine_that_does_not_go_down_is_ended() {
    let world = World::new("linger");
    let output = world.run("linger", "", &[]);
    assert_status(&output, 0);
    world.assert_no_machine_left();
}

#[test]
fn a_machine_that_ends_by_itself_is_the_tools_failure() {
    let world = World::new("status");
    for (status, expected) in [
        ("0", "the machine reset itself (triple fault)"),
        ("1", "QEMU ended with status 1: cannot set up guest memory 'microvm.ram'"),
        ("33", "went down without saying how the program ended"),
        ("35", "the kernel panicked"),
        ("37", "the kernel stopped the library OS"),
    ] {
        let output = world.run("status", status, &[]);
        assert_status(&output, 125);
        let errors = text(&output.stderr);
        assert!(errors.lines().last().unwrap().contains(expected), "{errors}");
        let shows_log = errors.contains("kernel: fake machine");
        assert_eq!(shows_log, status != "1", "{errors}");
    }
    let output = world.run("kvm", "", &[]);
    assert_status(&output, 125);
    assert!(text(&output.stderr).contains("use --accel tcg"));
    let output = world.run("version", "", &[]);
    assert_status(&output, 125);
    assert!(text(&output.stderr).contains("version 99"));
}

#[test]
fn rubbish_on_the_control_port_is_survived() {
    let world = World::new("garbage");
    let output = world.run("garbage", "", &[]);
    assert_status(&output, 4);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn what_can_be_known_beforehand_starts_no_machine() {
    let world = World::new("before");
    let at = |name: &str| world.directory.join(name).to_string_lossy().into_owned();
    std::fs::write(at("garbage.img"), [0xa5; 9000]).unwrap();
    std::fs::write(at("text"), "hello\n").unwrap();
    assert!(Command::new("chmod").args(["755", &at("text")]).status().unwrap().success());
    for (words, status, expected) in [
        (vec!["run", "surely-no-such-program"], 127, "not found on this host's PATH"),
        (vec!["run", "/no/such/program"], 127, "no such file"),
        (vec!["run", "/etc"], 126, "is a directory"),
        (vec!["run", &at("text")], 126, "no #!"),
        (vec!["run", "--root", &at("garbage.img"), "true"], 125, "garbage.img"),
        (vec!["run", "--root", "/no/such/root", "true"], 125, "/no/such/root"),
        (vec!["run", "--with", "/no/such/file", "true"], 125, "/no/such/file"),
        (vec!["run", "-m", "1K", "true"], 125, "at least 8M"),
        (vec!["run", "-w", "here", "true"], 125, "absolute path"),
        (vec!["run", "--accel", "kvm", "--icount", "true"], 125, "--icount needs"),
        (vec!["run", "--bogus", "true"], 125, "--bogus"),
    ] {
        let output = world.tool("exit", "0", &words).output().unwrap();
        assert_status(&output, status);
        let errors = text(&output.stderr);
        assert!(errors.starts_with("aegis: ") && errors.contains(expected), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    assert!(!world.directory.join("pid").exists());
}

#[test]
fn the_dry_run_prints_the_line_that_a_run_uses() {
    let world = World::new("dry");
    let options = ["--dry-run", "-m", "64M", "--cpus", "4"];
    let output = world.run("exit", "0", &options);
    assert_status(&output, 0);
    let shown = text(&output.stdout);
    assert!(!world.directory.join("pid").exists());
    for expected in ["fake_qemu.sh -accel tcg", " -smp 4 ", " -M microvm,acpi=on "] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert_status(&world.run("exit", "0", &options[1..]), 0);
    let used = std::fs::read_to_string(world.directory.join("arguments")).unwrap();
    let used = used.lines().collect::<Vec<_>>().join(" ");
    assert_eq!(without_key(shown.trim_end().split_once(' ').unwrap().1), without_key(&used));
}

/// A command line without the key of the lottery, which is another in every run.
fn without_key(line: &str) -> String {
    let (before, rest) = line.split_once("lottery=").expect("every machine has a key");
    let after = rest.trim_start_matches(|letter: char| letter.is_ascii_hexdigit());
    assert_eq!(rest.len() - after.len(), 32, "{line}");
    [before, after].concat()
}

#[test]
fn a_missing_part_is_named() {
    let world = World::new("missing");
    let kernel = world.directory.join("kernel.elf");
    std::fs::remove_file(&kernel).unwrap();
    let output = world.run("exit", "0", &[]);
    assert_status(&output, 125);
    assert!(text(&output.stderr).contains(&*kernel.to_string_lossy()));
    std::fs::write(&kernel, b"fake").unwrap();
    let words = ["run", "--accel", "tcg", "true"];
    let output = world.tool("exit", "0", &words).env("AEGIS_QEMU", "no-such-qemu").output().unwrap();
    assert_status(&output, 125);
    assert!(text(&output.stderr).contains("apt install qemu-system-x86"));
    assert!(Path::new("/bin/bash").exists(), "the fake QEMU is a bash script");
}
