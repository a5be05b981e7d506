//! Processes and threads, on one and on several processors: C programs that look closely, and shells that run scripts.
//! The host is the oracle, as everywhere.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, compile_with, host, is_there, same};

fn build(program: &str, name: &str, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux").join(program).with_extension("c");
    let text = std::fs::read_to_string(&source).expect("the program's source is in the tree");
    let options = [&["-O1", "-w", "-pthread"], options].concat();
    compile_with(compiler, &format!("{program}-{name}"), &text, &options)
}

/// In three builds, on one, two and four processors.
fn same_on_processors(program: &str) {
    let builds: [(&str, &str, &[&str], &[&str]); 3] = [
        ("pie", "gcc", &["-pie", "-fPIE"], &["1", "2", "4"]),
        ("static", "gcc", &["-static"], &["1"]),
        ("musl", "musl-gcc", &[], &["2"]),
    ];
    for (name, compiler, options, processor_counts) in builds {
        let Some(path) = build(program, name, compiler, options) else { continue };
        for processors in processor_counts {
            same(&["--with", "/bin/sh", "--cpus", processors], &[&path.display().to_string()], b"");
        }
    }
}

#[test]
fn processes() {
    same_on_processors("processes");
}

#[test]
fn address_spaces_pass_on_nothing_of_a_process() {
    same_on_processors("heirs");
}

#[test]
fn threads() {
    same_on_processors("threads");
}

#[test]
fn what_one_thread_unmaps_is_gone_for_all() {
    let Some(path) = build("unmaps", "static", "gcc", &["-static"]) else { return };
    let program = path.display().to_string();
    same(&["--cpus", "1"], &[&program], b"");
    same(&["--cpus", "2"], &[&program, "300"], b"");
    same(&["--cpus", "4"], &[&program], b"");
}

#[test]
fn a_thread_that_runs_a_program_becomes_the_first() {
    same_on_processors("exchanged");
}

#[test]
fn waits_end_as_on_linux() {
    same_on_processors("waits");
}

#[test]
fn a_program_that_loads_gs_goes_on() {
    same_on_processors("segments");
}

/// What this is about shows only sometimes, where the host's processors are busy with others for moments.
#[test]
fn a_thread_that_is_moved_while_it_waits_for_a_lock_goes() {
    let Some(path) = build("moved", "static", "gcc", &["-static"]) else { return };
    for count in ["2", "4"] {
        same(&["--cpus", count], &[&path.display().to_string(), count, "700"], b"");
    }
}

#[test]
fn locks() {
    same_on_processors("locks");
}

#[test]
fn stops_and_what_undoes_them() {
    same_on_processors("stops");
}

#[test]
fn nothing_runs_on_between_a_stop_and_the_end() {
    let Some(path) = build("stopped_kill", "static", "gcc", &["-static", "-pthread"]) else { return };
    for count in ["1", "2", "4"] {
        same(&["--cpus", count], &[&path.display().to_string(), "200"], b"");
    }
}

#[test]
fn what_two_processes_do_crosswise_ends() {
    let Some(path) = build("crossed", "static", "gcc", &["-static"]) else { return };
    same(&["--cpus", "2"], &[&path.display().to_string()], b"");
    // An instance that is being closed must not close a circle either: that shows with many rounds only.
    same(&["--cpus", "2"], &[&path.display().to_string(), "60000", "epolls"], b"");
}

const SCRIPTS: &[&str] = &[
    "echo a | cat",
    "for i in $(seq 1 200); do echo $i; done | grep 7 | sort -r | head -3; (exit 3); echo $?",
    "x=$(echo hi); echo [$x]; y=`echo deep $(echo deeper)`; echo $y",
    "cat <<EOF\nhere $(echo document)\nEOF",
    "sleep 0.05 & wait $!; echo $?; (sleep 0.01; exit 4) & wait $!; echo $?",
    "trap 'echo bye' EXIT; trap 'echo usr1' USR1; kill -USR1 $$; sh -c 'kill -TERM $$'; echo $?",
    "for i in 1 2 3 4 5 6 7 8; do (echo $i; exit $i) | cat & done | sort; wait; echo done",
    "yes | head -n 1000 | wc -l; echo ${PIPESTATUS:-none} | wc -c",
    "f() { echo in $1; return 5; }; f x | cat; f y; echo $?",
    "seq 1 50 | xargs -n 1 -P 4 echo | sort -n | tail -1",
    "mkdir /tmp/t$$ && cd /tmp/t$$ && seq 1 2000 > a && gzip < a | gunzip | cmp - a && echo same; rm -r /tmp/t$$",
    "mkdir /tmp/u$$ && cd /tmp/u$$ && mkdir d && echo one > d/x && echo two > d/y && tar cf - d | (mkdir e; cd e; \
     tar xf -) && cat e/d/x e/d/y; rm -r /tmp/u$$",
    "exec 3>&1; (echo to three >&3) | cat; echo out; echo err >&2",
    "i=0; while [ $i -lt 30 ]; do i=$((i+1)); true; /bin/true; done; echo $i",
    "set -e; (false) || echo caught; false; echo never",
    "env -i A=b /bin/sh -c 'echo $A'; env A=c sh -c 'echo $A'",
    "timeout 5 echo text; timeout 0.05 sleep 5; echo $?",
];

const TOOLS: &[&str] = &[
    "sh", "cat", "seq", "grep", "sort", "head", "sleep", "yes", "wc", "tail", "xargs", "gzip", "gunzip", "cmp", "rm",
    "mkdir", "tar", "true", "false", "echo", "env", "timeout",
];

/// Options that put Debian's tools into the machine.
fn with_tools() -> Vec<String> {
    let find = |name: &&str| {
        ["/usr/bin", "/bin"].iter().map(|folder| format!("{folder}/{name}")).find(|path| Path::new(path).exists())
    };
    TOOLS.iter().filter_map(find).flat_map(|path| ["--with".to_owned(), path]).collect()
}

#[test]
fn shells_run_scripts() {
    let tools = with_tools();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    for shell in ["dash", "bash"] {
        if !is_there(shell) {
            continue;
        }
        let path = format!("/bin/{shell}");
        for (index, script) in SCRIPTS.iter().enumerate() {
            let processors = ["1", "2", "4"][index % 3];
            let options = [&["--cpus", processors][..], &tools].concat();
            same(&options, &[&path, "-c", script], b"");
        }
    }
}

#[test]
fn busybox_runs_scripts() {
    if !is_there("busybox") {
        return;
    }
    let is_short = |script: &str| !["gunzip", "xargs", "env"].iter().any(|tool| script.contains(tool));
    for script in SCRIPTS.iter().filter(|script| is_short(script)) {
        same(&["--cpus", "2"], &["busybox", "sh", "-c", script], b"");
    }
}

/// What is made goes away: after many of everything the same again fits, in memory that would not hold it twice.
#[test]
fn nothing_is_left_behind() {
    let program = "i=0; while [ $i -lt 500 ]; do (echo $i | cat > /dev/null); i=$((i+1)); done; echo $i";
    let found = aegis(&["-m", "64M"], &["busybox", "sh", "-c", program], b"");
    assert_eq!((found.output.as_slice(), found.status), (&b"500\n"[..], 0), "{found:?}");
}

/// Forks, pipes, threads, and processes that are killed while they hold locks and descriptors: the program itself
/// demands that memory and descriptors are back where they were. A capability that stayed for each would show in their
/// number.
#[test]
fn many_of_everything_and_kills_leave_nothing() {
    let Some(path) = build("baseline", "many", "gcc", &["-pie", "-fPIE"]) else { return };
    let path = path.display().to_string();
    for (processors, rounds) in [("1", "2"), ("2", "3")] {
        let command = [path.as_str(), "50", rounds];
        let expected = host(&command, b"");
        let found = aegis(&["--cpus", processors, "--stats", "--timeout", "300"], &command, b"");
        assert_eq!((&found.output, found.status), (&expected.output, expected.status), "{found:?}");
        let is_count = |line: &&str| line.trim_start().starts_with("capabilities");
        let line = found.errors.lines().find(is_count).expect("statistics tell of capabilities");
        let capabilities = line.split_whitespace().last().and_then(|count| count.parse::<u64>().ok());
        assert!(capabilities.is_some_and(|count| count < 150), "{line}");
    }
}

/// Four hundred processes fit into the memory that a run has unless told otherwise. Each takes a few entries of the
/// kernel's tables, and the frames for these run out at any of them.
#[test]
fn hundreds_wait_at_once() {
    let Some(path) = build("children", "static", "gcc", &["-static"]) else { return };
    same(&[], &[&path.display().to_string(), "400"], b"");
}

/// Memory comes to its end for the next process that asks, but the one that holds most has to go.
#[test]
fn the_largest_goes_when_memory_ends() {
    let small = "(while :; do (:); done) &";
    let script = format!("{small} for i in 1 2 3 4 5; do tail /dev/zero; echo $?; done; kill $!; wait $!; echo $?");
    for processors in ["1", "2"] {
        let found = aegis(&["-m", "48M", "--cpus", processors], &["busybox", "sh", "-c", &script], b"");
        assert_eq!((found.output.as_slice(), found.status), (&b"137\n137\n137\n137\n137\n143\n"[..], 0), "{found:?}");
    }
}

/// The first process's end is the run's, whatever else still runs.
#[test]
fn the_first_process_ends_the_run() {
    let found = aegis(&[], &["busybox", "sh", "-c", "sleep 1000 & while :; do :; done & echo started; exit 6"], b"");
    assert_eq!((found.output.as_slice(), found.status), (&b"started\n"[..], 6), "{found:?}");
}
