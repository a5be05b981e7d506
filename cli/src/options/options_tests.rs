//! The command line as users write it.

use std::time::Duration;

use aegis_launch::machine::accel::AccelChoice;
use aegis_launch::machine::mounts::Volume;
use aegis_launch::machine::qemu::MachineKind;
use aegis_launch::root::With;
use aegis_link::config::Tickets;

use super::{Command, Parsed, RunOptions, StatsFormat, parse};

fn words(line: &str) -> Vec<std::ffi::OsString> {
    std::iter::once("aegis").chain(line.split_whitespace()).map(Into::into).collect()
}

fn run(line: &str) -> RunOptions {
    match parse(words(line)) {
        Ok(Parsed::Command(Command::Run(options))) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    match parse(words(line)) {
        Err(text) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn defaults() {
    let options = run("run busybox");
    assert_eq!(options.program_words(), ["busybox"]);
    assert_eq!(options.pod.memory, 256 << 20);
    assert_eq!((options.cpus, options.machine.accel), (1, AccelChoice::Auto));
    assert_eq!(options.machine.kind, None);
    assert_eq!(options.pod.working_directory, None);
    assert!(options.stats.is_none() && options.machine.timeout.is_none() && options.pod.root.is_none());
}

#[test]
fn everything_behind_the_program_is_the_programs() {
    let options = run("run --verbose ls -la -m 3 --cpus 99 --help -- x");
    let expected = ["ls", "-la", "-m", "3", "--cpus", "99", "--help", "--", "x"];
    assert_eq!(options.program_words(), expected);
    assert!(options.machine.verbose);
    assert_eq!(run("run -- ls -l").program_words(), ["ls", "-l"]);
}

#[test]
fn every_option_of_a_run() {
    let options = run(
        "run --root /r --pack -v /h:/g:ro --volume .:/x --with /a:/b --with /c -e A=1 -e B= -w /tmp -m 64M --cpus 4 \
         --accel tcg -M q35 --icount=3 --seed 7 --timeout 1.5 --dry-run --stats=json --trace -q true",
    );
    assert_eq!(options.pod.root.as_deref(), Some(std::path::Path::new("/r")));
    let with = |host: &str, guest: Option<&str>| With { host: host.into(), guest: guest.map(Into::into) };
    assert_eq!(options.pod.with, [with("/a", Some("/b")), with("/c", None)]);
    let volume =
        |host: &str, guest: &str, is_read_only| Volume { host: host.into(), guest: guest.into(), is_read_only };
    assert_eq!(options.pod.volumes, [volume("/h", "/g", true), volume(".", "/x", false)]);
    assert!(options.pod.pack);
    assert_eq!(options.pod.environment, ["A=1", "B="]);
    assert_eq!((options.pod.memory, options.cpus), (64 << 20, 4));
    assert_eq!((options.machine.accel, options.machine.kind), (AccelChoice::Tcg, Some(MachineKind::Q35)));
    assert_eq!((options.machine.icount, options.machine.seed), (Some(3), Some(7)));
    assert!(options.machine.dry_run && options.trace && options.machine.quiet);
    assert_eq!(options.machine.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(options.stats, Some(StatsFormat::Json));
}

#[test]
fn tickets_are_of_the_pod_or_of_a_currency() {
    let tickets = |amount, currency: &str| Some(Tickets { amount, currency: currency.into() });
    assert_eq!(run("run ls").tickets, None);
    assert_eq!(run("run --tickets 300 ls").tickets, tickets(300, ""));
    assert_eq!(run("run --tickets 1099511627775.a-B_9 ls").tickets, tickets((1 << 40) - 1, "a-B_9"));
}

#[test]
fn stats_does_not_eat_the_program() {
    let options = run("run --stats ls");
    assert_eq!((options.stats, options.program_words()), (Some(StatsFormat::Text), &["ls".into()][..]));
}

#[test]
fn memory_sizes() {
    for (text, mib) in [("64M", 64), ("64m", 64), ("4G", 4096), ("1GiB", 1024), ("65536K", 64)] {
        assert_eq!(run(&format!("run -m {text} ls")).pod.memory, mib << 20, "{text}");
    }
    assert_eq!(run("run -qm1G help").program_words(), ["help"]);
    assert_eq!(run("run -m67108864 ls").pod.memory, 64 << 20);
    for text in ["0", "1M", "64", "x", "64X", "65G", "99999999999T", "-1", "1.5G", ""] {
        let mut line = words("run");
        line.extend(["-m".into(), text.into(), "ls".into()]);
        assert!(parse(line).is_err(), "{text}");
    }
}

#[test]
fn wrong_lines_are_refused_in_one_line() {
    for line in [
        "run",
        "run --bogus ls",
        "run -x ls",
        "run --cpus 0 ls",
        "run --cpus 9 ls",
        "run --accel xen ls",
        "run -M isapc ls",
        "run --timeout 0 ls",
        "run --timeout -1 ls",
        "run --timeout soon ls",
        "run --stats=xml ls",
        "run -e =x ls",
        "run -q --verbose ls",
        "run -v /a:b ls",
        "run --pack ls",
        "run --tickets 0 ls",
        "run --tickets -5 ls",
        "run --tickets +5 ls",
        "run --tickets 1099511627776 ls",
        "run --tickets 99999999999999999999 ls",
        "run --tickets 5. ls",
        "run --tickets 5.base ls",
        "run --tickets 5.a.b ls",
        "run --tickets .shop ls",
        "run --driver net=moon ls",
        "walk ls",
    ] {
        let text = refusal(line);
        assert!(!text.is_empty() && !text.contains('\n'), "{line}: {text:?}");
    }
    assert!(refusal("run -m 1M ls").contains("at least 8M"));
    assert!(refusal("run --tickets 0 ls").contains("from 1 to 1099511627775"));
    assert!(refusal("run --tickets 1.2 ls").contains("a letter first"));
    assert!(refusal("run --bogus ls").contains("--bogus"));
    assert!(refusal("run --timout 3 ls").contains("--timeout"), "a near miss gets a hint");
}

#[test]
fn help_is_there() {
    for line in ["--help", "run --help", "-h"] {
        assert!(matches!(parse(words(line)), Ok(Parsed::Help(_))), "{line}");
    }
    assert!(matches!(parse(words("")), Ok(Parsed::Nothing(_))));
    assert!(matches!(parse(words("doctor")), Ok(Parsed::Command(Command::Doctor))));
    assert!(matches!(parse(words("version")), Ok(Parsed::Command(Command::Version))));
}

#[test]
fn up_takes_a_file_and_what_belongs_to_the_machine() {
    let up = |line: &str| match parse(words(line)) {
        Ok(Parsed::Command(Command::Up(options))) => *options,
        other => panic!("{line}: {other:?}"),
    };
    let options = up("up shop.toml");
    assert_eq!(options.file, std::path::Path::new("shop.toml"));
    assert_eq!((options.machine.accel, options.machine.kind), (AccelChoice::Auto, None));
    let options = up("up --accel tcg -M q35 --icount --timeout 3 --dry-run -q shop.toml");
    assert_eq!(options.machine.kind, Some(MachineKind::Q35));
    assert_eq!((options.machine.icount, options.machine.seed), (Some(0), None));
    assert!(options.machine.dry_run && options.machine.quiet);
    for line in ["up", "up a b", "up --cpus 2 a", "up --root / a"] {
        let text = refusal(line);
        assert!(!text.is_empty() && !text.contains('\n'), "{line}: {text:?}");
    }
}
