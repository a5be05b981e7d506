//! Commands for a machine that runs: they find it, show it, change it and end it, and nothing that comes over its
//! socket or from its pods hurts it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use aegis_tests::programs::{Ended, compile, remote, remote_tool, up_folder, up_tool};
use aegis_tests::up::{Up, shell};

#[test]
fn a_pod_that_is_stopped_is_not_started_again() {
    let restart = "restart = \"always\"";
    let mut machine =
        Up::start("not-again", &[], &[shell("a", LISTENS, restart), shell("b", LISTENS, restart)].concat());
    machine.wait_for(&["a | ready", "b | ready"]);
    assert_eq!(machine.ask(&["stop", "a"]).status, 0);
    assert!(text(&machine.ask(&["ps"])).contains("ended (0)"));
    assert_eq!(machine.ask(&["stop"]).status, 0);
    let (rest, status) = machine.end();
    assert_eq!((rest.as_str(), status), ("a | told\nb | told\n", 0));
}

#[test]
fn a_pod_that_does_not_hear_ends_after_the_grace() {
    let mut machine = Up::start("unheard", &[], &[shell("a", LISTENS, ""), shell("b", DEAF, "")].concat());
    machine.wait_for(&["a | ready", "b | ready"]);
    machine.terminate();
    let (rest, status) = machine.end();
    assert_eq!((rest.as_str(), status), ("a | told\n", 137));
}

const LISTENS: &str = "trap \"echo told; exit 0\" TERM; echo ready; while true; do sleep 0.05; done";
const DEAF: &str = "trap \"\" TERM; echo ready; while true; do sleep 0.05; done";

fn text(ended: &Ended) -> String {
    String::from_utf8_lossy(&ended.output).into_owned()
}

/// The words of the line that begins with `first`.
fn words(text: &str, first: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(first));
    line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn pods_are_shown_funded_and_stopped() {
    let pods = [shell("a", LISTENS, "tickets = 3000"), shell("b", DEAF, ""), shell("c", "exit 0", "")];
    let mut machine = Up::start("shown", &[], &pods.concat());
    machine.wait_for(&["a | ready", "b | ready"]);

    let shown = text(&machine.ask(&["ps", "--json"]));
    assert!(shown.starts_with("[{\"machine\":\"machine\",\"pods\":[{\"pod\":\"a\","), "{shown}");
    assert!(shown.contains("\"tickets\":3000") && shown.contains("\"state\":\"running\""), "{shown}");
    let shown = text(&machine.ask(&["ps"]));
    assert_eq!(shown.lines().count(), 4, "{shown}");
    let shown = text(&machine.ask(&["ps", "-p"]));
    let first =
        |pod: &str| shown.lines().any(|line| line.contains(&format!(" {pod} ")) && line.contains(" sh -c trap "));
    assert!(first("a") && first("b"), "{shown}");

    assert_eq!(machine.ask(&["tickets", "a", "1000"]).status, 0);
    assert_eq!(words(&text(&machine.ask(&["tickets"])), "a")[1], "1000");
    let top = text(&machine.ask(&["top", "--once"]));
    assert_eq!(words(&top, "a")[1..3], ["running", "1000"], "{top}");
    for (command, why) in [
        (&["tickets", "a", "0"][..], "from 1 to"),
        (&["tickets", "a", "-1"], "from 1 to"),
        (&["tickets", "a", "2147483649"], "from 1 to"),
        (&["tickets", "a", "many"], "from 1 to"),
        (&["tickets", "a"], "required"),
        (&["tickets", "x", "1"], "x: no such pod; there are a, b, c"),
        (&["stop", "a", "x"], "no such pod"),
        (&["logs", "x"], "no such pod"),
        (&["ps", "--machine", "other"], "no machine called other"),
    ] {
        let ended = machine.ask(command);
        assert!(ended.status == 125 && ended.errors.contains(why), "{command:?} {ended:?}");
    }
    assert_eq!(words(&text(&machine.ask(&["tickets"])), "a")[1], "1000", "nothing of that changed anything");

    assert_eq!(machine.ask(&["stop", "--grace", "0", "b"]).status, 0, "SIGTERM is ignored, SIGKILL is not");
    let shown = text(&machine.ask(&["ps"]));
    assert!(shown.contains("ended (137)") && shown.contains(" running "), "{shown}");
    assert_eq!(machine.ask(&["tickets", "b", "5"]).errors.trim(), "aegis: b: has ended");
    assert_eq!(machine.ask(&["stop"]).status, 0);
    let (rest, status) = machine.end();
    assert_eq!((rest.as_str(), status), ("a | told\n", 137));
    let ended = remote("shown", &["stop"]);
    assert!(ended.status == 125 && ended.errors.contains("no machine with pods runs"), "{ended:?}");
}

#[test]
fn currencies_are_shown_and_funded() {
    let in_shop = "tickets = 300\ncurrency = \"shop\"";
    let pods = [shell("a", LISTENS, in_shop), shell("b", LISTENS, ""), "[currency.shop]\ntickets = 500\n".into()];
    let mut machine = Up::start("currencies", &[], &pods.concat());
    machine.wait_for(&["a | ready", "b | ready"]);
    let tickets = |machine: &Up, of: &str| words(&text(&machine.ask(&["tickets"])), of)[1..].join(" ");
    assert_eq!(tickets(&machine, "a"), "300.shop 33.3 %");
    assert_eq!(tickets(&machine, "shop"), "500 33.3 %");
    assert_eq!(machine.ask(&["tickets", "shop", "3000"]).status, 0);
    assert_eq!([tickets(&machine, "a"), tickets(&machine, "b")], ["300.shop 75.0 %", "1000 25.0 %"]);
    let top = text(&machine.ask(&["top", "--once"]));
    assert!(words(&top, "a")[1..5] == ["running", "300.shop", "75.0", "%"], "{top}");
    assert_eq!(words(&top, "shop")[1..3], ["3000", "75.0"], "{top}");
    let shown = text(&machine.ask(&["ps", "--json"]));
    assert!(shown.contains("\"currencies\":[{\"name\":\"shop\",\"tickets\":3000,"), "{shown}");
    for (command, why) in [
        (&["tickets", "shop", "0"][..], "from 1 to"),
        (&["tickets", "shop", "-1"], "from 1 to"),
        (&["tickets", "shop", "2147483649"], "from 1 to"),
        (&["tickets", "x", "1"], "x: no such pod; there are a, b; currencies are shop"),
        (&["stop", "shop"], "shop: no such pod"),
    ] {
        let ended = machine.ask(command);
        assert!(ended.status == 125 && ended.errors.contains(why), "{command:?} {ended:?}");
    }
    assert_eq!(tickets(&machine, "shop"), "3000 75.0 %", "nothing of that changed anything");
    assert_eq!(machine.ask(&["stop", "b"]).status, 0);
    assert_eq!(tickets(&machine, "a"), "300.shop 100.0 %");
    assert_eq!(machine.ask(&["tickets", "b", "5"]).errors.trim(), "aegis: b: has ended");
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end(), ("b | told\na | told\n".into(), 0));
}

#[test]
fn what_pods_wrote_can_be_read_again_and_followed() {
    let pods = [shell("a", LISTENS, ""), shell("b", "echo one; echo two >&2; printf last; exit 3", "")];
    let mut machine = Up::start("logs", &[], &pods.concat());
    machine.wait_for(&["a | ready"]);
    let mut follower = remote_tool("logs", &["logs", "-f", "a"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut followed = BufReader::new(follower.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    followed.read_line(&mut line).expect("text");
    assert_eq!(line, "ready\n");
    // It ends when the pod has, and all that it wrote has been passed on.
    let ended = machine.ask(&["logs", "-f", "b"]);
    assert_eq!((ended.status, text(&ended)), (0, "one\nlast\n".into()), "{ended:?}");
    assert_eq!(ended.errors, "two\naegis: ended with status 3\n");
    let all = machine.ask(&["logs"]);
    let mut lines: Vec<String> = text(&all).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["a | ready", "b | last", "b | one"]);
    assert_eq!(machine.ask(&["stop", "a"]).status, 0);
    let mut rest = String::new();
    followed.read_to_string(&mut rest).expect("text");
    assert_eq!((rest.as_str(), follower.wait().expect("it ends").code()), ("told\n", Some(0)));
    assert_eq!(machine.end().1, 3);
}

#[test]
fn machines_have_names_and_leave_nothing_behind() {
    let folder = up_folder("names").join("aegis");
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("it is ours");
    // A tool that was killed leaves its socket.
    drop(UnixListener::bind(folder.join("machine.sock")).expect("a socket"));
    let pods = shell("a", LISTENS, "");
    let mut first = Up::start("names", &[], &pods);
    first.wait_for(&["a | ready"]);
    let mut second = Up::start("names", &[], &pods);
    second.wait_for(&["a | ready"]);
    let mut third = Up::start("names", &["--name", "third"], &pods);
    third.wait_for(&["a | ready"]);
    let shown = text(&first.ask(&["ps"]));
    let names: Vec<&str> = shown.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["machine", "machine-2", "third"], "{shown}");
    let ended = first.ask(&["tickets"]);
    assert!(ended.errors.contains("several machines run, say --machine with one of machine, machine-2, third"));
    let taken = up_tool("names", &["--name", "third"], &pods).output().expect("the tool starts");
    assert_eq!(String::from_utf8_lossy(&taken.stderr), "aegis: a machine called third runs already\n");
    for (machine, name) in [(first, "machine"), (second, "machine-2"), (third, "third")] {
        assert_eq!(machine.ask(&["stop", "--machine", name]).status, 0);
        assert_eq!(machine.end(), ("a | told\n".to_owned(), 0));
    }
    let mut left: Vec<_> =
        std::fs::read_dir(&folder).expect("it is there").flatten().map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, [".lock", "machine-2.ended", "machine.ended", "third.ended"], "what they were, and no more");
}

#[test]
fn nobody_at_the_socket_can_hold_up_the_machine_or_others() {
    let mut machine = Up::start("foreign", &[], &shell("a", LISTENS, ""));
    machine.wait_for(&["a | ready"]);
    let path = up_folder("foreign").join("aegis/machine.sock");
    let silent: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&path).expect("it listens")).collect();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5000], b"\x03\0\0\0\x01abc", b"\0\0\0\0\x10"] {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        // The machine may have hung up by then.
        let _ = stream.write_all(garbage);
        let mut answer = Vec::new();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut answer);
    }
    assert_eq!(machine.ask(&["ps"]).status, 0);
    let many: Vec<UnixStream> = (0..40).filter_map(|_| UnixStream::connect(&path).ok()).collect();
    let ended = machine.ask(&["tickets"]);
    assert!(ended.status == 125 && ended.errors.contains("more than 32 commands"), "{ended:?}");
    drop((silent, many));
    // Hanging up is seen before the next command is.
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end(), ("a | told\n".to_owned(), 0));
}

/// Takes the kernel's word away that something came for its library OS, and computes.
const DEAF_EXOS: &str = "#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); \
                         volatile unsigned *masked = (void *)0xffff800000003018; for (;;) *masked = 1; }\n";
/// Takes its own library OS apart.
const SUICIDE: &str = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts(\"ready\"); fflush(stdout); \
                       usleep(200000); volatile unsigned long *control = (void *)0xffff800000003000; \
                       for (int i = 4; i < 12; i++) control[i] = 0; getppid(); return 0; }\n";

#[test]
fn a_pod_whose_library_os_does_not_answer_is_seen_and_taken_apart() {
    let (Some(deaf), Some(gone)) =
        (compile("deaf-exos", DEAF_EXOS, &["-O1", "-static"]), compile("gone", SUICIDE, &["-O1", "-static"]))
    else {
        return;
    };
    let pod = |name: &str, program: &std::path::Path| {
        format!("[pod.{name}]\nprogram = \"{}\"\nmemory = \"24M\"\n", program.display())
    };
    let pods = [pod("deaf", &deaf), pod("gone", &gone), shell("a", LISTENS, "")];
    let mut machine = Up::start("deaf", &[], &pods.concat());
    machine.wait_for(&["deaf | ready", "gone | ready", "a    | ready"]);
    // The kernel stops it in its own time; a machine that has ended has none of them.
    let mut shown = text(&machine.ask(&["ps"]));
    while !shown.contains(" crashed ") {
        assert!(shown.contains(" running "), "{shown}");
        shown = text(&machine.ask(&["ps"]));
    }
    assert_eq!(machine.ask(&["stop", "--grace", "0", "deaf"]).status, 0);
    let shown = text(&machine.ask(&["ps"]));
    assert_eq!([" crashed ", " stopped "].map(|state| shown.matches(state).count()), [1, 1], "{shown}");
    assert_eq!(machine.ask(&["stop"]).status, 0);
    let (rest, status) = machine.end();
    assert_eq!((rest.as_str(), status), ("a    | told\n", 125));
}
