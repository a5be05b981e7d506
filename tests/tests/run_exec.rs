//! `aegis exec`: programs that are started in a running pod, their streams, signals, ends, and what becomes of them
//! when somebody goes away. No test looks at the clock: each waits for words that say how far things are.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use aegis_tests::programs::{Ended, compile, remote_tool, remote_with};
use aegis_tests::up::{Up, shell};

/// Says that it is there, and ends when it is told.
const LISTENS: &str = "trap \"exit 0\" TERM; echo ready; while true; do sleep 0.05; done";

fn text(ended: &Ended) -> String {
    String::from_utf8_lossy(&ended.output).into_owned()
}

/// Runs a script in a pod.
fn script(machine: &Up, pod: &str, script: &str) -> (String, String, i32) {
    let ended = machine.ask(&["exec", pod, "busybox", "sh", "-c", script]);
    (text(&ended), ended.errors, ended.status)
}

/// A session whose streams the test holds.
struct Session {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn start(name: &str, words: &[&str]) -> Self {
        let mut command = remote_tool(name, &[&["exec"], words].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the tool starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Self { child, input, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn say(&mut self, text: &str) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(text.as_bytes()).expect("it listens");
    }

    fn kill(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = std::process::Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("there is kill").success());
    }

    /// What is left of output and errors, and the status.
    fn end(mut self) -> (String, String, Option<i32>) {
        drop(self.input.take());
        let (mut rest, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut rest).expect("text");
        self.child.stderr.take().expect("it is a pipe").read_to_string(&mut errors).expect("text");
        (rest, errors, self.child.wait().expect("it ends").code())
    }
}

#[test]
fn streams_and_statuses_are_the_commands_own() {
    let pods =
        [shell("a", LISTENS, "env = { COLOUR = \"red\", SIZE = \"1\" }\nworkdir = \"/tmp\""), shell("b", "exit 4", "")];
    let mut machine = Up::start("exec", &[], &pods.concat());
    machine.wait_for(&["a | ready"]);
    let said = |output: &str, errors: &str, status| (output.to_owned(), errors.to_owned(), status);
    assert_eq!(script(&machine, "a", "echo out; echo err >&2; exit 7"), said("out\n", "err\n", 7));
    assert_eq!(script(&machine, "a", "echo $COLOUR $SIZE; pwd"), said("red 1\n/tmp\n", "", 0));
    let groups = "set -- $(cat /proc/$$/stat); [ $1 = $5 -a $1 = $6 ] && echo $4 $PPID";
    assert_eq!(script(&machine, "a", groups), said("1 1\n", "", 0), "it leads a group and a session of its own");
    assert_eq!(script(&machine, "a", "kill -9 $$"), said("", "", 137));
    assert_eq!(script(&machine, "a", "printf 'no line'; kill -TERM $$"), said("no line", "", 143));
    // A process that keeps the streams does not keep the session.
    assert_eq!(script(&machine, "a", "sleep 1000 & echo done"), said("done\n", "", 0));

    let set = ["exec", "-e", "COLOUR=blue", "-w", "/", "-u", "12:34", "a", "busybox", "sh", "-c"];
    let ended =
        machine.ask(&[&set[..], &["echo $COLOUR $SIZE; pwd; id -u; id -g; echo \"$@\"", "x", "-c", "", "--"]].concat());
    assert_eq!((text(&ended).as_str(), ended.status), ("blue 1\n/\n12\n34\n-c  --\n", 0), "{ended:?}");
    for (words, status, why) in [
        (&["exec", "a", "nothing", "x"][..], 127, "nothing: not found"),
        (&["exec", "a", "/tmp/x"], 127, "/tmp/x: not found"),
        (&["exec", "a", "/etc"], 126, "/etc: cannot be executed (no execute permission, or not a regular file)"),
        (&["exec", "-w", "/none", "a", "busybox"], 125, "the working directory /none cannot be used (ENOENT)"),
        (&["exec", "-w", "none", "a", "busybox"], 125, "the working directory must be an absolute path"),
        (&["exec", "x", "true"], 125, "x: no such pod; there are a, b"),
        (&["exec", "b", "busybox"], 125, "b: has ended"),
        (&["exec", "--machine", "other", "a", "busybox"], 125, "no machine called other runs; there is machine"),
    ] {
        let ended = machine.ask(words);
        let expected = format!("aegis: {why}\n");
        assert_eq!(
            (ended.errors.as_str(), ended.status, ended.output.len()),
            (expected.as_str(), status, 0),
            "{words:?}"
        );
    }
    assert_eq!(machine.ask(&["exec", "a"]).status, 125, "no program");
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end(), (String::new(), 4));
}

#[test]
fn much_travels_both_ways_beside_what_the_pod_writes() {
    for (name, cpus) in [("exec-much-1", 1), ("exec-much-4", 4)] {
        let writes = "trap \"exit 0\" TERM; echo ready; while true; do echo line; sleep 0.01; done";
        let text = format!("[machine]\ncpus = {cpus}\n{}", shell("a", writes, ""));
        let mut machine = Up::start(name, &[], &text);
        machine.wait_for(&["a | ready"]);
        let input: Vec<u8> = (0..600_000_u32).flat_map(|number| number.to_le_bytes()).collect();
        let ended = remote_with(name, &["exec", "-i", "a", "busybox", "cat"], &input);
        assert!((ended.status, ended.output == input) == (0, true), "{} {}", ended.status, ended.output.len());
        // Without -i there is nothing to read, and with it nobody has to.
        let ended = remote_with(name, &["exec", "a", "busybox", "wc", "-c"], &input);
        assert_eq!((ended.output.as_slice(), ended.status), (&b"0\n"[..], 0));
        let ended = remote_with(name, &["exec", "-i", "a", "busybox", "true"], &input);
        assert_eq!((ended.errors.as_str(), ended.status), ("", 0));
        machine.wait_for(&["a | line", "a | line"]);
        assert_eq!(machine.ask(&["stop"]).status, 0);
        assert_eq!(machine.end().1, 0);
    }
}

#[test]
fn sessions_do_not_wait_for_each_other_and_have_a_limit() {
    let mut machine = Up::start("exec-many", &[], &format!("[machine]\ncpus = 2\n{}", shell("a", LISTENS, "")));
    machine.wait_for(&["a | ready"]);
    // Nobody reads what the first one writes, and it does not end.
    let mut all = vec![Session::start("exec-many", &["a", "busybox", "yes"])];
    assert_eq!(all[0].line(), "y");
    all.extend((1..16).map(|_| Session::start("exec-many", &["-i", "a", "busybox", "cat"])));
    for (number, session) in all.iter_mut().enumerate().skip(1).rev() {
        session.say(&format!("to {number}\n"));
        assert_eq!(session.line(), format!("to {number}"));
    }
    let ended = machine.ask(&["exec", "a", "busybox", "true"]);
    assert_eq!((ended.status, ended.errors.as_str()), (125, "aegis: more than 16 sessions at a time in one pod\n"));
    assert_eq!(all.pop().map(Session::end), Some((String::new(), String::new(), Some(0))));
    assert_eq!(machine.ask(&["exec", "a", "busybox", "true"]).status, 0);
    // A reader that goes away is a broken pipe for the program.
    let Session { mut child, output, .. } = all.swap_remove(0);
    drop(output);
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 13));
    for session in all {
        assert_eq!(session.end().2, Some(0));
    }
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end().1, 0);
}

#[test]
fn signals_and_hang_ups_reach_the_process_group() {
    let mut machine = Up::start("exec-signals", &[], &shell("a", LISTENS, ""));
    machine.wait_for(&["a | ready"]);
    let tells = "trap 'echo told; exit 5' TERM; echo there; while true; do sleep 0.05; done";
    let mut session = Session::start("exec-signals", &["a", "busybox", "sh", "-c", tells]);
    assert_eq!(session.line(), "there");
    session.kill("-TERM");
    // The shell says on standard error, perhaps, how what it waited for has ended.
    let (rest, _, status) = session.end();
    assert_eq!((rest.as_str(), status), ("told\n", Some(5)));
    // By default it ends what it reaches, also what the shell waits for.
    let mut session = Session::start("exec-signals", &["a", "busybox", "sh", "-c", "echo there; sleep 1000; echo no"]);
    assert_eq!(session.line(), "there");
    session.kill("-USR1");
    let (rest, errors, status) = session.end();
    assert_eq!((rest.as_str(), status), ("", Some(138)), "{errors}");
    // The second one ends the tool, whatever the program makes of it. (The shell would say on standard error, which is
    // gone then, how what it waits for has ended.)
    let deaf = "exec 2>/dev/null; trap 'echo told; trap \"\" TERM' TERM; trap 'echo gone > /tmp/deaf; exit' HUP; \
                echo there; while true; do sleep 0.05; done";
    let mut session = Session::start("exec-signals", &["a", "busybox", "sh", "-c", deaf]);
    assert_eq!(session.line(), "there");
    session.kill("-TERM");
    assert_eq!(session.line(), "told");
    session.kill("-TERM");
    assert_eq!(session.end().2, Some(143));
    // A tool that is killed says nothing, and the program hears of it.
    let mut session =
        Session::start("exec-signals", &["-i", "a", "busybox", "sh", "-c", &deaf.replace("deaf", "killed")]);
    assert_eq!(session.line(), "there");
    session.kill("-KILL");
    session.end();
    let waits = "for f in deaf killed; do while [ ! -s /tmp/$f ]; do sleep 0.05; done; cat /tmp/$f; done";
    assert_eq!(script(&machine, "a", waits).0, "gone\ngone\n");
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end().1, 0);
}

#[test]
fn a_pod_that_ends_takes_its_sessions_along_and_comes_back_without() {
    let pods = shell("a", LISTENS, "restart = \"always\"");
    let mut machine = Up::start("exec-end", &[], &pods);
    for _ in 0..3 {
        machine.wait_for(&["a | ready"]);
        let mut session = Session::start("exec-end", &["-i", "a", "busybox", "cat"]);
        session.say("here\n");
        assert_eq!(session.line(), "here");
        // That they were killed is perhaps heard before that the pod has ended.
        let (_, errors, status) = script(&machine, "a", "kill -TERM 1; sleep 1000");
        assert!(status == 137 && ["", "aegis: a: has ended\n"].contains(&errors.as_str()), "{errors} {status}");
        assert_eq!(session.end().2, Some(137));
    }
    machine.wait_for(&["a | ready"]);
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end().1, 0);
}

#[test]
fn a_session_can_have_a_terminal() {
    let mut machine = Up::start("exec-tty", &[], &shell("a", LISTENS, ""));
    machine.wait_for(&["a | ready"]);
    let typed = |words: &[&str], keys: &[u8]| {
        let ended = remote_with("exec-tty", &[&["exec", "-it", "a", "busybox"], words].concat(), keys);
        (text(&ended), ended.status)
    };
    assert_eq!(typed(&["tty"], b""), ("/dev/pts/0\r\n".into(), 0));
    // Keys come as if typed: lines are edited and echoed, and their end is a key too.
    assert_eq!(typed(&["cat"], b"abc\x7fd\n"), ("abc\x08 \x08d\r\nabd\r\n".into(), 0));
    assert_eq!(typed(&["sleep", "1000"], b"\x03").1, 130);
    let ended =
        machine.ask(&["exec", "-t", "a", "busybox", "sh", "-c", "echo out; echo err >&2; : > /dev/tty && exit 3"]);
    assert_eq!((text(&ended).as_str(), ended.errors.as_str(), ended.status), ("out\r\nerr\r\n", "", 3));
    // A hang-up takes the foreground along.
    let mut session = Session::start(
        "exec-tty",
        &["-it", "a", "busybox", "sh", "-c", "trap 'echo gone > /tmp/gone; exit' HUP; echo there; read x"],
    );
    assert_eq!(session.line(), "there");
    session.kill("-KILL");
    session.end();
    assert_eq!(script(&machine, "a", "while [ ! -s /tmp/gone ]; do sleep 0.05; done; cat /tmp/gone").0, "gone\n");
    assert_eq!(script(&machine, "a", "ls /dev/pts").0, "ptmx\n", "no terminal is left");
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end().1, 0);
}

/// Takes the kernel's word away that something came for its library OS, and computes.
const DEAF_EXOS: &str = "#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); \
                         volatile unsigned *masked = (void *)0xffff800000003018; for (;;) *masked = 1; }\n";

#[test]
fn a_pod_that_does_not_answer_holds_up_nobody_else() {
    let Some(deaf) = compile("deaf-exec", DEAF_EXOS, &["-O1", "-static"]) else { return };
    let deaf = format!("[pod.deaf]\nprogram = \"{}\"\nmemory = \"24M\"\n", deaf.display());
    let mut machine = Up::start("exec-deaf", &[], &[deaf, shell("a", LISTENS, "")].concat());
    machine.wait_for(&["deaf | ready", "a    | ready"]);
    let session = Session::start("exec-deaf", &["deaf", "true"]);
    assert_eq!(script(&machine, "a", "echo well"), ("well\n".into(), String::new(), 0));
    assert_eq!(machine.ask(&["stop", "--grace", "0", "deaf"]).status, 0);
    // It may have come to answer before.
    let (_, errors, status) = session.end();
    assert!(matches!(status, Some(127 | 137)), "{errors} {status:?}");
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end().1, 125);
}
