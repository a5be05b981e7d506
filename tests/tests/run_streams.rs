//! Standard streams and signals between the host and a program in the machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aegis_tests::programs::{aegis, same, tool};

/// SIGINT and SIGTERM by `kill`'s names and by number.
const SIGNALS: [(&str, i32); 2] = [("-INT", 2), ("-TERM", 15)];

fn start(command: &[&str]) -> Child {
    let mut run = tool(&[], command);
    let run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run.spawn().expect("the tool starts")
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// Status and standard error.
fn end(mut child: Child) -> (Option<i32>, String) {
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("the tool can be waited for");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn ready(child: &mut Child) {
    let mut line = String::new();
    // Byte by byte, so that nothing is taken away from what is read later.
    let stdout = child.stdout.as_mut().expect("standard output is a pipe");
    BufReader::with_capacity(1, stdout).read_line(&mut line).expect("a line of text");
    assert_eq!(line, "ready\n");
}

#[test]
fn many_mebibytes_pass_unchanged() {
    let mut word = 1_u64;
    let words = std::iter::repeat_with(|| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    });
    let input: Vec<u8> = words.take(2 << 20).flatten().collect();
    let found = aegis(&[], &["busybox", "cat"], &input);
    assert!(found.output == input, "{} of {} bytes came back", found.output.len(), input.len());
}

#[test]
fn a_slow_reader_loses_nothing() {
    let mut child = start(&["seq", "1", "200000"]);
    let mut stdout = child.stdout.take().expect("standard output is a pipe");
    let (mut text, mut chunk) = (Vec::new(), [0; 30_000]);
    loop {
        std::thread::sleep(Duration::from_millis(3));
        match stdout.read(&mut chunk).expect("the pipe can be read") {
            0 => break,
            count => text.extend_from_slice(&chunk[..count]),
        }
    }
    let expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert!(text == expected.as_bytes());
    assert_eq!(end(child), (Some(0), String::new()));
}

#[test]
fn input_is_there_as_it_comes() {
    let mut child = start(&["busybox", "cat"]);
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
    for text in ["one\n", "two\n", "three\n"] {
        stdin.write_all(text.as_bytes()).expect("the program reads");
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the program answers");
        assert_eq!(line, text);
    }
    drop(stdin);
    assert_eq!(end(child), (Some(0), String::new()));
}

#[test]
fn who_writes_to_nobody_gets_sigpipe_or_the_error() {
    for (script, status, errors) in [
        ("while echo text; do :; done; exit 3", 141, ""),
        ("trap '' PIPE; while echo text 2>/dev/null; do :; done; echo lost >&2; exit 5", 5, "lost\n"),
    ] {
        let mut child = start(&["busybox", "sh", "-c", script]);
        let mut some = [0; 100];
        child.stdout.take().expect("standard output is a pipe").read_exact(&mut some).expect("some text");
        assert_eq!(end(child), (Some(status), errors.to_string()));
    }
}

#[test]
fn output_and_errors_of_one_file_keep_their_order() {
    let script = "for i in $(seq 100); do echo out$i; echo error$i >&2; done";
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut run = tool(&[], &["busybox", "sh", "-c", script]);
    let errors = writer.try_clone().expect("its end twice");
    let mut child = run.stdin(Stdio::null()).stdout(writer).stderr(errors).spawn().expect("the tool starts");
    // The command keeps its copies of the pipe's end.
    drop(run);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("the pipe can be read");
    assert!(child.wait().expect("it ends").success());
    let lines: Vec<&str> = text.lines().collect();
    let wanted: Vec<String> = (1..=100).flat_map(|i| [format!("out{i}"), format!("error{i}")]).collect();
    assert_eq!(lines[..200], wanted, "{text}");
}

#[test]
fn the_clock_that_is_set_is_the_clock_that_is_read() {
    // By the call and by the vDSO.
    let script = "date -s @1000 > /dev/null && now=$(date +%s) && [ $now -ge 1000 ] && [ $now -lt 2000 ] \
                  && adjtimex | grep -o 'time.tv_sec: *[0-9]*'";
    let found = aegis(&[], &["busybox", "sh", "-c", script], b"");
    let text = String::from_utf8_lossy(&found.output);
    let seconds: u64 = text.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a time");
    assert!((1000..2000).contains(&seconds), "{text}");
}

#[test]
fn a_full_device_is_the_programs_error() {
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("the host has /dev/full");
    let run = |command: &[&str]| tool(&[], command).stdout(full()).output().expect("the tool starts");
    let output = run(&["seq", "1", "1000000"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "seq: write error: No space left on device\n");
    assert_eq!(output.status.code(), Some(1));
    // Over before the host refuses the bytes: the tool has to say it.
    let output = run(&["busybox", "echo", "text"]);
    assert!(matches!(output.status.code(), Some(1 | 125)) && !output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_first_signal_is_the_programs_and_the_second_the_machines() {
    for (name, number) in SIGNALS {
        let script = "trap 'exit 9' INT TERM; echo ready; while :; do :; done";
        let mut child = start(&["busybox", "sh", "-c", script]);
        ready(&mut child);
        send(name, &child);
        assert_eq!(end(child), (Some(9), String::new()), "handled {name}");

        // Not a shell's `read`: busybox notes a SIGINT that comes just before its poll(), and then waits for input.
        let mut child = start(&["busybox", "cat"]);
        child.stdin.as_mut().expect("standard input is a pipe").write_all(b"ready\n").expect("the program reads");
        ready(&mut child);
        send(name, &child);
        let mut rest = Vec::new();
        child.stdout.take().expect("a pipe").read_to_end(&mut rest).expect("the end of the output");
        assert_eq!(end(child), (Some(128 + number), String::new()), "default {name}");

        let mut child = start(&["busybox", "sh", "-c", "trap '' INT TERM; echo ready; while :; do :; done"]);
        ready(&mut child);
        send(name, &child);
        std::thread::sleep(Duration::from_millis(200));
        assert!(child.try_wait().expect("it is ours").is_none(), "ignored {name}");
        send(name, &child);
        assert_eq!(end(child), (Some(128 + number), String::new()), "second {name}");
    }
}

#[test]
fn long_arguments_and_odd_bytes_arrive() {
    let long = "x".repeat(130_000);
    let command = [&["busybox", "sh", "-c", "echo ${#1} $#", "name"][..], &[long.as_str(); 8]].concat();
    same(&[], &command, b"");
    let many = vec!["a"; 20_000];
    same(&[], &[&["busybox", "sh", "-c", "echo $#", "name"][..], &many].concat(), b"");
    same(&[], &["busybox", "printf", "%s|", "", " ", "\n", "ü\u{1}", "--"], b"");
    let variable = format!("LONG={long}");
    let found = aegis(&["-e", &variable], &["busybox", "sh", "-c", "echo ${#LONG}"], b"");
    assert_eq!(found.output, b"130000\n");
}
