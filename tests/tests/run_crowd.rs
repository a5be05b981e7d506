//! Thousands of processes: as many as are promised, an error when there are no more, all given back, and nothing that
//! those which are awake would notice. The programs' own answers say what is right; the host need not have room for as
//! many.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, compile, up};

fn program() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("exhaustion/crowd.c");
    let text = std::fs::read_to_string(source).expect("the program's source is in the tree");
    compile("crowd", &text, &["-O1", "-w", "-static", "-pthread"])
}

/// What the program prints in such a machine, which ends well.
fn crowd(options: &[&str], words: &[&str]) -> Option<String> {
    let program = program()?.display().to_string();
    let ended = aegis(&[&["--timeout", "300"], options].concat(), &[&[&*program], words].concat(), b"");
    let output = String::from_utf8_lossy(&ended.output).into_owned();
    assert_eq!(ended.status, 0, "{options:?} {words:?}: {output}{}", ended.errors);
    Some(output)
}

fn told(count: u32) -> String {
    format!("made {count}: all\na program beside them: 7\none is killed: 1\na round: 1\nended {}\n", count - 1)
}

#[test]
fn four_thousand_processes_in_a_gibibyte() {
    for cpus in ["1", "2"] {
        let Some(output) = crowd(&["-m", "1G", "--cpus", cpus], &["4096"]) else { return };
        assert_eq!(output, told(4096), "{cpus} processors");
    }
}

const LIMIT: &str = "first: refused as it may be
first: a program in their place: 9
first: ended all
second: refused as it may be
second: a program in their place: 9
second: ended all
as many: yes
";

#[test]
fn a_fork_that_is_one_too_many_is_refused_and_all_come_back() {
    for (memory, cpus, least) in [("32M", "1", "100"), ("64M", "2", "300"), ("1G", "1", "4200"), ("1G", "2", "4200")] {
        let Some(output) = crowd(&["-m", memory, "--cpus", cpus], &["limit", least]) else { return };
        assert_eq!(output, LIMIT, "{memory}, {cpus} processors");
    }
}

#[test]
fn a_users_limit_is_exact() {
    let round = "2000 of its own, then Resource temporarily unavailable\nended 1999\n";
    let Some(output) = crowd(&["-m", "512M"], &["user", "2000"]) else { return };
    assert_eq!(output, [round, round].concat());
}

#[test]
fn four_thousand_threads() {
    for cpus in ["1", "2"] {
        let Some(output) = crowd(&["-m", "1G", "--cpus", cpus], &["threads", "4096"]) else { return };
        assert_eq!(output, "threads 4096: all\na program beside them: 5\njoined 4096\n", "{cpus} processors");
    }
}

/// Memory comes to its end for hundreds at once, who all look for one to end.
#[test]
fn a_program_that_only_forks_ends_nobody_but_itself() {
    for cpus in ["1", "2"] {
        let Some(output) = crowd(&["-m", "64M", "--cpus", cpus], &["bomb", "3000"]) else { return };
        assert_eq!(output, "bomb: 20 in its place, ended 20, attached 1\n".repeat(2), "{cpus} processors");
    }
}

/// In instructions, so that the host's load shows in nothing.
#[test]
fn those_that_sleep_cost_those_that_are_awake_nothing() {
    let Some(output) = crowd(&["-m", "1G", "--icount"], &["cost", "4000"]) else { return };
    for (kind, percent_max) in [("fork", 125), ("round", 125), ("sleep", 150)] {
        let line = output.lines().find(|line| line.starts_with(kind)).expect("each kind has a line");
        let words: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [100, few, 4000, many] = words[..] else { panic!("{output}") };
        assert!(many * 100 <= few * percent_max, "{output}");
    }
}

/// Each pod has its share of the kernel's tables, and takes none of its neighbour's.
#[test]
fn a_pod_that_forks_without_end_leaves_its_neighbour_its_own() {
    let Some(program) = program() else { return };
    let program = program.display();
    let pod = |name: &str, words: &str, memory: &str| {
        format!("[pod.{name}]\nprogram = \"{program}\"\nargs = [{words}]\nmemory = \"{memory}\"\n")
    };
    let text = [pod("greedy", "\"limit\", \"1000\"", "600M"), pod("modest", "\"1500\"", "400M")].concat();
    let ended = up("crowd", &["--timeout", "300"], &text);
    let output = String::from_utf8_lossy(&ended.output).into_owned();
    assert_eq!(ended.status, 0, "{output}{}", ended.errors);
    let of = |pod: &str| -> String {
        let lines = output.lines().filter_map(|line| line.split_once(" | "));
        lines.filter(|(mark, _)| mark.trim_end() == pod).map(|(_, line)| format!("{line}\n")).collect()
    };
    assert_eq!(of("greedy"), LIMIT, "{output}{}", ended.errors);
    assert_eq!(of("modest"), told(1500), "{output}{}", ended.errors);
}
