//! Looking on: events, waiting, figures, what a pod was started with, pages and metrics over HTTP; and what is known of
//! a machine that has ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use aegis_tests::programs::{Ended, remote, remote_tool, up_tool};
use aegis_tests::up::{Up, shell};

const LISTENS: &str = "trap \"echo told; exit 4\" TERM; echo ready; while true; do sleep 0.05; done";
const QUITS: &str = "trap \"echo quit; exit 5\" QUIT; trap \"\" TERM; echo ready; while true; do sleep 0.05; done";

fn text(ended: &Ended) -> String {
    String::from_utf8_lossy(&ended.output).into_owned()
}

/// A GET of this path, with further lines in its head; the whole answer.
fn get(address: &str, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn pods_are_watched_while_they_run_and_known_when_they_have_ended() {
    let pods = [shell("a", LISTENS, "tmpfs = [\"/run\"]"), shell("b", QUITS, "stop_signal = \"QUIT\"")];
    let mut machine = Up::start("watched", &[], &pods.concat());
    machine.wait_for(&["a | ready", "b | ready"]);
    let mut waits = remote_tool("watched", &["wait", "a", "b"]).stdout(Stdio::piped()).spawn().expect("it starts");

    let shown = text(&machine.ask(&["stats", "--no-stream"]));
    assert!(shown.starts_with("POD ") && shown.lines().count() == 3, "{shown}");
    let shown = text(&machine.ask(&["stats", "--no-stream", "--json", "b"]));
    assert!(
        shown.lines().count() == 1 && shown.contains("\"pod\":\"b\"") && shown.contains("\"processes\":"),
        "{shown}"
    );
    let shown = text(&machine.ask(&["inspect", "a"]));
    for part in ["\"program\": \"/", "\"state\": \"running\"", "\"tmpfs\": [", "\"stop_signal\": 15"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(machine.ask(&["inspect", "x"]).errors.contains("no such pod"));
    for words in [&["top", "--once", "--json"][..], &["tickets", "--json"], &["memory", "--json"]] {
        let shown = text(&machine.ask(words));
        assert!(shown.starts_with("{\"machine\":\"machine\",\"pods\":["), "{words:?}: {shown}");
    }
    assert_eq!(machine.ask(&["kill", "-s", "WINCH", "a"]).status, 0, "it does not notice");

    assert_eq!(machine.ask(&["stop", "b"]).status, 0, "by its own signal, the other one it does not hear");
    let shown = text(&machine.ask(&["events", "--once"]));
    let words: Vec<String> =
        shown.lines().map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")).collect();
    for event in ["a running", "b running", "b stop", "b exit (status 5)"] {
        assert!(words.iter().any(|it| it == event), "{event} in {shown}");
    }
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end(), ("b | quit\na | told\n".to_owned(), 5));
    let mut statuses = String::new();
    waits.stdout.take().expect("a pipe").read_to_string(&mut statuses).expect("text");
    assert_eq!((statuses.as_str(), waits.wait().expect("it ends").code()), ("4\n5\n", Some(0)));

    // Now it has ended.
    assert_eq!(text(&remote("watched", &["wait", "b", "a"])), "5\n4\n");
    assert_eq!(text(&remote("watched", &["logs", "b"])), "ready\nquit\n");
    assert!(text(&remote("watched", &["logs"])).contains("a | told\n"));
    assert!(text(&remote("watched", &["ps", "-a"])).contains("ended (4)"));
    assert!(!text(&remote("watched", &["ps"])).contains("ended"));
    assert!(text(&remote("watched", &["inspect", "a"])).contains("\"status\": 4"));
    let unknown = remote("watched", &["logs", "--machine", "machine", "x"]);
    assert!(unknown.status == 125, "{unknown:?}");

    // Others that run have no such pods, so who names one means the machine that has ended.
    let mut one = Up::start("watched", &["--name", "one"], &shell("c", LISTENS, ""));
    one.wait_for(&["c | ready"]);
    assert_eq!(text(&remote("watched", &["wait", "b"])), "5\n");
    assert_eq!(text(&remote("watched", &["logs", "a"])), "ready\ntold\n");
    let mut two = Up::start("watched", &["--name", "two"], &shell("d", LISTENS, ""));
    two.wait_for(&["d | ready"]);
    assert_eq!(text(&remote("watched", &["logs", "b"])), "ready\nquit\n");
    assert_eq!(remote("watched", &["stop", "d"]).status, 0, "the machine that has it is found");
    assert_eq!(two.end().1, 4);
    assert_eq!(remote("watched", &["stop", "c"]).status, 0);
    assert_eq!(one.end().1, 4);
}

#[test]
fn browsers_and_collectors_are_served_and_cannot_hold_up_anything() {
    let mut command = up_tool("served", &["--metrics", "127.0.0.1:0"], &shell("a", LISTENS, ""));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool starts");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("text");
    let address = line.trim_end().rsplit("http://").next().unwrap_or_default().trim_end_matches('/').to_owned();
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut ready = String::new();
    output.read_line(&mut ready).expect("text");
    assert_eq!(ready, "a | ready\n", "{line}");

    // Who says nothing keeps nobody from being served, nor commands from being heard.
    let silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(&address).expect("it is let in")).collect();
    let page = get(&address, "/", "");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("<title>aegis</title>"), "{page}");
    assert!(page.contains("Content-Security-Policy: default-src 'none'") && !page.contains("http://"), "{page}");
    assert!(get(&address, "/page.js", "").contains("report.json") && get(&address, "/page.css", "").contains("body"));
    let metrics = get(&address, "/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
    assert!(metrics.contains("application/openmetrics-text") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(metrics.contains("aegis_pod_running{machine=\"machine\",name=\"a\"} 1\n"), "{metrics}");
    assert!(get(&address, "/metrics", "").contains("container_cpu_usage_seconds_total{"));
    let report = get(&address, "/report.json", "");
    assert!(report.contains("\"pod\":\"a\"") && !report.contains("trap "), "no words of processes: {report}");
    assert!(get(&address, "/etc/passwd", "").starts_with("HTTP/1.1 404 "));
    let mut stream = TcpStream::connect(&address).expect("it is let in");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains("<title>"), "{answer}");

    assert_eq!(remote("served", &["stop"]).status, 0);
    drop(silent);
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
    let refused = up_tool("served", &["--metrics", "0.0.0.0:0"], &shell("a", "true", "")).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("loopback"));
}
