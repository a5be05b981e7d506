//! Several pods in one machine: marked lines, statuses, and that none of them reaches or hurts another.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use aegis_tests::programs::{Ended, compile, host, up, up_tool};
use aegis_tests::up::Up;

/// The lines of one pod, without its mark, in order.
fn lines_of(text: &str, pod: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.split_once(" | "));
    lines.filter(|(mark, _)| mark.trim_end() == pod).map(|(_, line)| line.to_owned()).collect()
}

fn output_of(ended: &Ended, pod: &str) -> Vec<String> {
    lines_of(&String::from_utf8_lossy(&ended.output), pod)
}

/// A pod that runs a script of busybox's shell.
fn shell(name: &str, script: &str, more: &str) -> String {
    format!("[pod.{name}]\nprogram = \"busybox\"\nargs = [\"sh\", \"-c\", '''{script}''']\nmemory = \"32M\"\n{more}\n")
}

#[test]
fn two_pods_run_beside_each_other_and_their_lines_are_marked() {
    let script = "for i in 1 2 3; do echo line $i; done; echo error >&2; cat; uname -n; printf last";
    let text = format!(
        "{}{}",
        shell("a", script, "env = { X = \"1\" }"),
        shell("worker", "echo \"$X\"; pwd", "workdir = \"/tmp\"")
    );
    for machine in ["microvm", "q35"] {
        let ended = up("two", &["-M", machine], &text);
        assert_eq!(ended.status, 0, "{machine} {ended:?}");
        assert_eq!(output_of(&ended, "a"), ["line 1", "line 2", "line 3", "a", "last"], "{machine}");
        assert_eq!(output_of(&ended, "worker"), ["", "/tmp"], "{machine}");
        assert_eq!(lines_of(&ended.errors, "a"), ["error"], "{machine}");
        let all = String::from_utf8_lossy(&ended.output).into_owned();
        assert!(all.lines().all(|line| line.starts_with("a      | ") || line.starts_with("worker | ")), "{all}");
        assert!(all.ends_with('\n'), "{all:?}");
    }
}

#[test]
fn the_first_failure_is_the_status_and_each_end_is_told() {
    let text = [
        shell("slow", "sleep 1; exit 3", ""),
        shell("quick", "exit 4", ""),
        shell("good", "sleep 1; sleep 1; echo done", ""),
    ];
    let ended = up("first", &[], &text.concat());
    assert_eq!(ended.status, 4, "{ended:?}");
    assert_eq!(lines_of(&ended.errors, "quick"), ["aegis: ended with status 4"]);
    assert_eq!(lines_of(&ended.errors, "slow"), ["aegis: ended with status 3"]);
    assert_eq!(output_of(&ended, "good"), ["done"]);
    let missing = format!("{}{}", shell("a", "true", ""), "[pod.b]\nprogram = \"/x\"\nroot = \"/usr\"\n");
    let ended = up("missing", &[], &missing);
    assert_eq!(ended.status, 127, "{ended:?}");
    assert!(lines_of(&ended.errors, "b").concat().contains("/x"), "{ended:?}");
}

#[test]
fn one_pod_alone_is_a_machine_too() {
    let ended = up("alone", &[], &shell("only", "echo here; exit 9", ""));
    assert_eq!((ended.status, output_of(&ended, "only")), (9, vec!["here".to_owned()]), "{ended:?}");
}

const HUNGRY: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint main(void) { \
                      for (;;) { char *p = malloc(1 << 20); if (!p) return 3; memset(p, 1, 1 << 20); } }\n";

#[test]
fn a_pod_that_runs_out_of_its_memory_does_not_touch_the_others() {
    let Some(hungry) = compile("hungry", HUNGRY, &["-O1", "-static"]) else { return };
    let hungry = format!("[pod.hungry]\nprogram = \"{}\"\nmemory = \"24M\"\n", hungry.display());
    // The others take what is theirs while the first is at its end.
    let script = "dd if=/dev/zero of=/tmp/f bs=1M count=12 2>/dev/null; sleep 1; wc -c < /tmp/f; free -m | sed -n 2p";
    let text = format!("{hungry}{}{}", shell("b", script, ""), shell("c", script, ""));
    for processors in ["1", "2"] {
        let ended = up("hungry", &[], &format!("[machine]\ncpus = {processors}\n{text}"));
        assert_eq!(ended.status, 137, "{ended:?}");
        assert!(lines_of(&ended.errors, "hungry").concat().contains("out of memory"), "{ended:?}");
        for pod in ["b", "c"] {
            let lines = output_of(&ended, pod);
            assert_eq!(lines[0], "12582912", "{ended:?}");
            assert_eq!(lines[1].split_whitespace().nth(1), Some("32"), "its own memory and no other: {ended:?}");
            assert_eq!(lines_of(&ended.errors, pod), [""; 0], "{ended:?}");
        }
    }
}

/// Takes its own library OS apart: the entry points that the kernel calls are gone, and nobody is left to say so.
/// Before, it writes what a library OS that gives up leaves as its last words, with what a terminal would obey.
const SUICIDE: &str = "#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\nint main(void) { \
                       puts(\"before\"); fflush(stdout); usleep(200000); \
                       strcpy((char *)0xffff800000004000, \"last words\\nof\\33[2J two lines\"); \
                       volatile unsigned long *control = (void *)0xffff800000003000; \
                       for (int i = 4; i < 12; i++) control[i] = 0; getppid(); return 0; }\n";

#[test]
fn a_pod_whose_library_os_is_destroyed_ends_alone() {
    let Some(suicide) = compile("suicide", SUICIDE, &["-O1", "-static"]) else { return };
    let suicide = format!("[pod.gone]\nprogram = \"{}\"\nmemory = \"24M\"\n", suicide.display());
    let text = format!("{suicide}{}", shell("stays", "sleep 1; sleep 1; sh -c 'echo still here'", ""));
    let ended = up("gone", &[], &text);
    assert_eq!(ended.status, 125, "{ended:?}");
    assert_eq!(output_of(&ended, "gone"), ["before"]);
    assert_eq!(output_of(&ended, "stays"), ["still here"]);
    assert!(ended.errors.contains("gone: ended without saying how"), "{ended:?}");
    assert!(ended.errors.contains("pods: gone: stopped by the kernel: reason 1"), "{ended:?}");
    assert!(ended.errors.contains("pods: gone: last words"), "{ended:?}");
    assert!(ended.errors.contains("pods: gone: of?[2J two lines"), "{ended:?}");
}

/// Computes from one time of the machine's clock to another, and says how much of that was its own, in ms.
const OWN_TIME: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <time.h>\n\
    static long ms(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); \
        return t.tv_sec * 1000 + t.tv_nsec / 1000000; }\n\
    int main(int argc, char **argv) { long begin = atol(argv[1]), end = atol(argv[2]); \
        while (ms(CLOCK_MONOTONIC) < begin); long own = ms(CLOCK_PROCESS_CPUTIME_ID); \
        while (ms(CLOCK_MONOTONIC) < end); printf(\"%ld\\n\", ms(CLOCK_PROCESS_CPUTIME_ID) - own); }\n";

#[test]
fn the_time_of_other_pods_is_not_a_programs_own() {
    let Some(program) = compile("own-time", OWN_TIME, &["-O1", "-static"]) else { return };
    let (begin_ms, end_ms) = (1000, 2000);
    let pod = |name| {
        format!("[pod.{name}]\nprogram = {:?}\nargs = [\"{begin_ms}\", \"{end_ms}\"]\nmemory = \"24M\"\n", program)
    };
    let text = format!("[machine]\ncpus = 1\n{}{}", pod("a"), pod("b"));
    let ended = up("own-time", &["--icount"], &text);
    let own = |pod| output_of(&ended, pod).concat().parse::<u64>().unwrap_or_else(|_| panic!("{ended:?}"));
    let (a, b) = (own("a"), own("b"));
    // What either waited for the other is nobody's; a slice at each end may be counted whole.
    assert!((a + b).abs_diff(end_ms - begin_ms) <= 30, "{a} and {b} ms of {}", end_ms - begin_ms);
    assert!(a > 0 && b > 0, "{a} and {b} ms");
}

#[test]
fn directories_belong_to_the_pod_that_asked_for_them() {
    let folder = std::env::temp_dir().join(format!("aegis-up-shares-{}", std::process::id()));
    for (name, text) in [("one/who", "first\n"), ("two/who", "second\n")] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("the temporary folder is writable");
        std::fs::write(path, text).expect("the temporary folder is writable");
    }
    let volume = |name: &str, end: &str| format!("volumes = ['{}:/v{end}']", folder.join(name).display());
    let text = format!(
        "[machine]\ncpus = 2\n{}{}{}",
        shell("a", "cat /v/who; echo written > /v/new; ls /", &volume("one", "")),
        shell("b", "cat /v/who; echo no > /v/new || echo refused", &volume("two", ":ro")),
        shell("c", "ls /v || echo nothing", ""),
    );
    for machine in ["microvm", "pc"] {
        let ended = up("shares", &["-M", machine], &text);
        assert_eq!(output_of(&ended, "a")[0], "first", "{machine} {ended:?}");
        assert_eq!(output_of(&ended, "b"), ["second", "refused"], "{machine} {ended:?}");
        assert_eq!(output_of(&ended, "c"), ["nothing"], "{machine} {ended:?}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("one/new")).expect("the pod wrote it"), "written\n");
    assert!(!folder.join("two/new").exists());
}

/// Counts until the machine's clock says that it is enough; the machine's clock is everybody's.
const COUNTER: &str = "#include <stdio.h>\n#include <time.h>\nint main(void) { struct timespec t; long count = 0; \
                       do { clock_gettime(CLOCK_MONOTONIC, &t); count++; } while (t.tv_sec < 1); \
                       printf(\"%ld\\n\", count); return 0; }\n";

/// With `--icount` time is instructions and the key of the draws is fixed, so this run is the same everywhere. It is
/// judged as the statistic that it is: a thousand draws, and four standard deviations.
#[test]
fn processor_time_follows_the_tickets() {
    let Some(counter) = compile("counter", COUNTER, &["-O1", "-static"]) else { return };
    let pod = |name: &str, tickets: u64| {
        format!("[pod.{name}]\nprogram = \"{}\"\nmemory = \"16M\"\ntickets = {tickets}\n", counter.display())
    };
    let text = format!("[machine]\nslice_ms = 1\n{}{}{}", pod("a", 3), pod("b", 2), pod("c", 1));
    let ended = up("tickets", &["--icount"], &text);
    assert_eq!(ended.status, 0, "{ended:?}");
    let counts = ["a", "b", "c"].map(|pod| output_of(&ended, pod)[0].parse::<f64>().expect("a number"));
    let sum: f64 = counts.iter().sum();
    for (count, share) in counts.iter().zip([3.0 / 6.0, 2.0 / 6.0, 1.0 / 6.0]) {
        // Not all of the second is theirs: fewer draws than this would make the interval wider.
        let draws = 800.0;
        let deviation = f64::sqrt(share * (1.0 - share) / draws);
        let found = count / sum;
        assert!((found - share).abs() < 4.0 * deviation, "{found} of {share}: {counts:?}");
    }
}

/// As above. The first two share a currency, funded by another one that has as many tickets as the third pod: without
/// currencies they would have much less, and the third much more.
#[test]
fn pods_of_a_currency_share_its_part() {
    let Some(counter) = compile("counter", COUNTER, &["-O1", "-static"]) else { return };
    let pod = |name: &str, more: &str| {
        format!("[pod.{name}]\nprogram = \"{}\"\nmemory = \"16M\"\n{more}\n", counter.display())
    };
    let currencies = "[currency.shop]\nfunds = \"all\"\ntickets = 7\n[currency.all]\n";
    let [a, b] = ["tickets = 100\ncurrency = \"shop\"", "tickets = 300\ncurrency = \"shop\""];
    let text = format!("[machine]\nslice_ms = 1\n{}{}{}{currencies}", pod("a", a), pod("b", b), pod("c", ""));
    let ended = up("currencies", &["--icount"], &text);
    assert_eq!(ended.status, 0, "{ended:?}");
    let counts = ["a", "b", "c"].map(|pod| output_of(&ended, pod)[0].parse::<f64>().expect("a number"));
    let sum: f64 = counts.iter().sum();
    for (count, share) in counts.iter().zip([1.0 / 8.0, 3.0 / 8.0, 1.0 / 2.0]) {
        let deviation = f64::sqrt(share * (1.0 - share) / 800.0);
        let found = count / sum;
        assert!((found - share).abs() < 4.5 * deviation, "{found} of {share}: {counts:?}");
    }
}

#[test]
fn a_signal_reaches_every_pod() {
    let script = "trap \"echo told; exit 0\" TERM; echo ready; while true; do sleep 0.05; done";
    let text = format!("{}{}", shell("a", script, ""), shell("b", script, ""));
    let mut command = up_tool("signal", &[], &text);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the tool starts");
    let mut output = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    for _ in 0..2 {
        line.clear();
        output.read_line(&mut line).expect("text");
        assert!(line.ends_with("| ready\n"), "{line}");
    }
    let told = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(told.expect("kill runs").success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    let mut lines: Vec<&str> = rest.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a | told", "b | told"]);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_is_wrong_is_said_before_anything_starts() {
    for (text, word) in [
        ("[pod.a]\nprogram = \"busybox\"\nrestart = \"maybe\"\n", "line 3: restart: \"no\""),
        ("[pod.a]\nprogram = \"surely-not-there\"\n", "a: surely-not-there: not found"),
        ("[machine]\nmemory = \"64M\"\n[pod.a]\nprogram = \"busybox\"\n", "[machine] memory is 64 MiB"),
        ("[machine]\ncores = 2\n", "line 2: cores: unknown"),
        ("[pod.a]\nprogram = \"busybox\"\ncurrency = \"x\"\n", "line 3: currency: x: no such currency"),
        ("[currency.x]\nfunds = \"x\"\n[pod.a]\nprogram = \"busybox\"\n", "line 2: funds: a cycle, x funds x"),
    ] {
        let ended = up("wrong", &[], text);
        assert!(matches!(ended.status, 125 | 127), "{ended:?}");
        assert!(ended.errors.contains(word) && ended.errors.lines().count() == 1, "{ended:?}");
        assert_eq!(ended.output, b"");
    }
}

#[test]
fn many_pods_get_a_machine_with_room_for_them() {
    let pods = (0..13).map(|number| {
        let script = format!("i=0; while [ $i -lt 50 ]; do echo line $i of {number}; i=$((i+1)); done");
        shell(&format!("p{number}"), &script, "").replace("32M", "16M")
    });
    let text = pods.collect::<String>();
    let ended = up("many", &[], &text);
    assert_eq!(ended.status, 0, "{ended:?}");
    for number in 0..13 {
        let expected: Vec<String> = (0..50).map(|line| format!("line {line} of {number}")).collect();
        assert_eq!(output_of(&ended, &format!("p{number}")), expected);
    }
    // Each would need a page of register blocks of its own.
    let ended = up("no-room", &["-M", "microvm", "--trust-devices"], &text);
    assert!(ended.status == 125 && ended.errors.contains("no room"), "{ended:?}");
}

#[test]
fn pods_that_are_trusted_drive_their_devices_themselves() {
    // A folder of its own: where others make and remove files, `ls` finds names that are gone.
    let folder = std::env::temp_dir().join(format!("aegis-trusted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder in the temporary one");
    let volume = format!("volumes = ['{}:/v:ro']", folder.display());
    let pods = [shell("a", "ls /v > /dev/null && echo a", &volume), shell("b", "echo b", "")].concat();
    for machine in ["microvm", "q35"] {
        for (text, options, word) in [
            (pods.clone(), &["-M", machine, "--verbose"][..], "the manager guards them"),
            (pods.clone(), &["-M", machine, "--verbose", "--trust-devices"], "nothing confines them"),
            (
                format!("[machine]\ntrust_devices = true\n{pods}"),
                &["-M", machine, "--verbose"],
                "nothing confines them",
            ),
        ] {
            let ended = up("trusted", options, &text);
            assert_eq!(ended.status, 0, "{ended:?}");
            assert_eq!((output_of(&ended, "a"), output_of(&ended, "b")), (vec!["a".into()], vec!["b".into()]));
            assert!(ended.errors.contains(word), "{ended:?}");
        }
    }
    std::fs::remove_dir(&folder).expect("nobody wrote into it");
}

#[test]
fn pods_are_started_again_as_the_file_says() {
    let folder = std::env::temp_dir().join(format!("aegis-up-again-{}", std::process::id()));
    for machine in ["microvm", "q35"] {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let script = "echo x >> /v/runs; set -- $(wc -l /v/runs); echo run $1; ls /left 2>&1; touch /left; \
                      cat; echo no newline >&2; printf end; [ $1 -ge 3 ]";
        let volume = format!("volumes = ['{}:/v']\nrestart = \"on-failure\"", folder.display());
        let restart = "restart = \"always:2\"\ncurrency = \"x\"\n[currency.x]";
        let pods = [shell("a", script, &volume), shell("b", "exit 4", restart), shell("c", "exit 0", "")];
        let ended = up("again", &["-M", machine], &pods.concat());
        assert_eq!(ended.status, 4, "{machine} {ended:?}");
        let run = |number: u32| [format!("run {number}"), "ls: /left: No such file or directory".into(), "end".into()];
        assert_eq!(output_of(&ended, "a"), [run(1), run(2), run(3)].concat(), "{machine}");
        let told = |line: &str| lines_of(&ended.errors, "b").iter().filter(|found| found.contains(line)).count();
        assert_eq!((told("aegis: ended with status 4"), told("starts again in 0.1 s (1 of 2)")), (3, 1), "{ended:?}");
        assert_eq!((told("(2 of 2)"), told("not started again: it was, 2 times in a row")), (1, 1), "{ended:?}");
    }
}

#[test]
fn a_pod_that_the_kernel_stopped_is_started_again_too() {
    let Some(suicide) = compile("suicide-again", SUICIDE, &["-O1", "-static"]) else { return };
    let suicide = format!("[pod.gone]\nprogram = \"{}\"\nrestart = \"on-failure:1\"\n", suicide.display());
    let text = format!("{suicide}{}", shell("other", "true", "restart = \"on-failure\""));
    let ended = up("gone-again", &[], &text);
    assert_eq!(ended.status, 125, "{ended:?}");
    assert_eq!(output_of(&ended, "gone"), ["before", "before"], "{ended:?}");
    assert!(ended.errors.contains("not started again: it was, 1 times in a row"), "{ended:?}");
}

#[test]
fn pods_start_when_what_they_depend_on_has_come_so_far() {
    let found = host(&["/bin/sh", "-c", "command -v busybox"], b"");
    let found = String::from_utf8_lossy(&found.output);
    let health =
        format!("health = \"test -e /tmp/well\"\nhealth_interval = \"0.1\"\nwith = [\"{}:/bin/sh\"]", found.trim_end());
    let pods = [
        shell("last", "echo last", "depends_on = [\"well:service_healthy\", \"first\"]"),
        shell("well", "touch /tmp/well; sleep 1000", &health),
        shell("first", "echo first", "depends_on = [\"before:service_completed_successfully\"]"),
        shell("before", "sleep 0.2; echo before", ""),
    ];
    let mut machine = Up::start("depends", &[], &pods.concat());
    machine.wait_for(&["before | before"]);
    // The last one waits for the first one's start, not for what it writes.
    machine.wait_for(&["first  | first", "last   | last"]);
    let shown = machine.ask(&["events", "--once"]);
    let shown = String::from_utf8_lossy(&shown.output);
    let place = |event: &str| shown.find(event).unwrap_or_else(|| panic!("{event} in {shown}"));
    assert!(place(" before exit") < place(" first start") && place(" well healthy") < place(" last start"), "{shown}");
    assert!(!shown[..place(" last start")].contains(" last "), "it has no life before: {shown}");
    let shown = machine.ask(&["ps", "--json"]);
    assert!(!String::from_utf8_lossy(&shown.output).contains("\"restarts\":1"), "none was started again");
    assert_eq!(machine.ask(&["stop"]).status, 0);
    assert_eq!(machine.end().1, 143);
}

#[test]
fn a_pod_whose_dependency_fails_is_not_started_and_the_machine_ends() {
    let pods = [
        shell("bad", "exit 3", ""),
        shell("next", "echo next", "depends_on = [\"bad:service_completed_successfully\"]\nrestart = \"always\""),
        shell("far", "echo far", "depends_on = [\"next\"]"),
        shell("beside", "echo beside", "depends_on = [\"bad\"]"),
    ];
    let ended = up("depends-bad", &[], &pods.concat());
    assert_eq!((ended.status, output_of(&ended, "next").len(), output_of(&ended, "far").len()), (3, 0, 0));
    assert_eq!(output_of(&ended, "beside"), ["beside"]);
    for line in ["aegis: was not started: bad has failed", "aegis: was not started: next could not be"] {
        assert!(ended.errors.contains(line), "{}", ended.errors);
    }
}

#[test]
fn a_machine_with_a_pod_that_waits_can_be_stopped() {
    let pods = [
        shell("on", "trap 'exit 0' TERM; echo on; while true; do sleep 0.05; done", ""),
        shell("late", "echo late", "depends_on = [\"on:service_completed_successfully\"]"),
    ];
    let mut machine = Up::start("depends-stop", &[], &pods.concat());
    machine.wait_for(&["on   | on"]);
    assert!(machine.ask(&["exec", "late", "true"]).errors.contains("late: waits for other pods"));
    machine.terminate();
    assert_eq!(machine.end(), (String::new(), 125), "one was not started");
}
