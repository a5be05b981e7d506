//! Memory that moves between pods while they run: a pod that needs more gets what is free or idle elsewhere, up to its
//! limit, and meets an end of memory only there. Times are the guest's, which with `--icount` is instructions.

use std::path::Path;

use aegis_tests::programs::{Ended, compile_with, up, up_folder};

/// The lines of one pod's standard output, without its mark.
fn lines_of(ended: &Ended, pod: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&ended.output).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(" | "));
    lines.filter(|(mark, _)| mark.trim_end() == pod).map(|(_, line)| line.to_owned()).collect()
}

/// A pod that runs a script of busybox's shell.
fn shell(name: &str, script: &str, memory: &str) -> String {
    format!("[pod.{name}]\nprogram = \"busybox\"\nargs = [\"sh\", \"-c\", '''{script}''']\nmemory = \"{memory}\"\n")
}

/// Without `[machine] memory` there is enough for all limits.
#[test]
fn files_in_memory_grow_up_to_the_limit() {
    let script = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.min; stat -f -c %b /dev/shm; \
                  dd if=/dev/zero of=/tmp/f bs=1M count=150 2>/dev/null && wc -c < /tmp/f; \
                  dd if=/dev/zero of=/dev/shm/g bs=1M count=150 2>&1 | grep -o 'No space.*'; rm /tmp/f; \
                  dd if=/dev/zero of=/tmp/h bs=1M count=100 2>/dev/null && echo again";
    let text = [shell("a", script, "32M/192M"), shell("b", "sleep 1; echo there", "24M")].concat();
    for options in [&["--icount"][..], &["--icount", "-M", "q35"]] {
        let ended = up("files", options, &text);
        assert_eq!(ended.status, 0, "{ended:?}");
        // What the file says, to the byte.
        let [most, guaranteed, blocks] = [192 << 20, 32 << 20, 192 << 8].map(|count: u64| count.to_string());
        let said = [&most, &guaranteed, &blocks, "157286400", "No space left on device", "again"];
        assert_eq!(lines_of(&ended, "a"), said, "{ended:?}");
        assert_eq!(lines_of(&ended, "b"), ["there"]);
    }
}

/// A static program of `tests/memory`, compiled for one test; `None` where there is no compiler.
fn program(test: &str, name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = folder.join("memory").join(name).with_extension("c");
    let text = std::fs::read_to_string(source).expect("the source is in the tree");
    let include = format!("-I{}", folder.join("attacks").display());
    let path = compile_with("gcc", &format!("{test}-{name}"), &text, &["-O1", "-static", "-w", &include])?;
    Some(path.display().to_string())
}

/// A pod that runs such a program.
fn pod(name: &str, program: &str, arguments: &[&str], memory: &str, tickets: u32) -> String {
    format!("[pod.{name}]\nprogram = \"{program}\"\nargs = {arguments:?}\nmemory = \"{memory}\"\ntickets = {tickets}\n")
}

/// The numbers of the first line of a pod.
fn numbers_of(ended: &Ended, pod: &str) -> Vec<u64> {
    let line = lines_of(ended, pod).into_iter().next().unwrap_or_else(|| panic!("{pod} said nothing: {ended:?}"));
    line.split_whitespace().map(|word| word.parse().unwrap_or_else(|_| panic!("{pod}: {ended:?}"))).collect()
}

/// A pod that filled all memory of the machine with files, gave them up and sleeps holds frames that nobody uses, and
/// nobody else has any: its files met no room.
#[test]
fn idle_memory_is_there_for_who_needs_it_within_a_quarter_of_a_second() {
    let Some(program) = program("idle", "touches") else { return };
    let idle = "dd if=/dev/zero of=/tmp/f bs=1M count=300 2>&1 | grep -o 'No space.*'; rm /tmp/f; cut -d. -f1 \
                /proc/uptime; sleep 4; echo slept";
    let busy = pod("busy", &program, &["80", "2500"], "24M/160M", 1000);
    let text = format!("[machine]\nmemory = \"208M\"\n{}{busy}", shell("idle", idle, "24M/360M"));
    let ended = up("idle-to-busy", &["--icount"], &text);
    assert_eq!(ended.status, 0, "{ended:?}");
    let said = lines_of(&ended, "idle");
    assert_eq!((said[0].as_str(), said[2].as_str()), ("No space left on device", "slept"), "{ended:?}");
    assert!(said[1].parse::<u64>().expect("seconds") < 2, "it was idle when memory was wanted: {ended:?}");
    let [took_ms, worst_ms] = numbers_of(&ended, "busy")[..] else { panic!("{ended:?}") };
    println!("80 MiB, 24 of its own: {took_ms} ms, {worst_ms} at once at most");
    assert!(took_ms < 250, "{took_ms} ms");
}

/// A pod that does not answer loses its frames when its time is over, and others get on as before meanwhile.
#[test]
fn a_pod_that_does_not_give_loses_its_frames_in_time_and_disturbs_nobody() {
    const GIVE_MS: u64 = 1000;
    let programs = ["keeper", "touches", "windows"].map(|name| program("keeps", name));
    let [Some(keeper), Some(touches), Some(windows)] = programs else { return };
    let text = [
        "[machine]\nmemory = \"204M\"\nslice_ms = 1\n".to_owned(),
        pod("keeper", &keeper, &["3000"], "24M/400M", 1000),
        pod("needy", &touches, &["60", "1500"], "24M/160M", 100_000),
        pod("other", &windows, &["1000", "2750"], "24M", 100_000),
    ];
    let ended = up("keeper", &["--icount", "--timeout", "300"], &text.concat());
    assert_eq!(lines_of(&ended, "keeper"), ["keeps"], "{ended:?}");
    let [took_ms, worst_ms] = numbers_of(&ended, "needy")[..] else { panic!("{ended:?}") };
    // The first two windows are before, the last two after.
    let counts = numbers_of(&ended, "other");
    let before = (counts[0] + counts[1]) as f64 / 2.0;
    let during = counts[2..].iter().sum::<u64>() as f64 / counts[2..].len() as f64;
    println!("{took_ms} ms, {worst_ms} at once at most; {before} before, {during} during: {counts:?}");
    assert!((GIVE_MS / 2..GIVE_MS + 20).contains(&worst_ms), "{worst_ms} ms: {ended:?}");
    assert!(during >= before * 0.97, "{during} of {before}");
}

/// Three that read twice as much as there is for them, with a pause behind each piece, hold what the inverse lottery
/// says: a pod with `t` of `T` tickets loses a page with the chance `T - t`, so holdings are as 1/(T - t).
fn three_scanners_hold_what_is_due(test: &str, pause_us: u32) {
    let Some(scanner) = program(test, "scanner") else { return };
    let folder = up_folder(test).join("data");
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let file = std::fs::File::create(folder.join("data")).expect("the temporary folder is writable");
    file.set_len(100 << 20).expect("a file with nothing in it");
    let tickets = [("three", 3), ("two", 2), ("one", 1)];
    let one = |(number, (name, tickets)): (usize, &(&str, u32))| {
        let volume = format!("volumes = [\"{}:/data\"]\n", folder.display());
        let arguments = [number.to_string(), "3".to_owned(), pause_us.to_string()];
        pod(name, &scanner, &arguments.each_ref().map(String::as_str), "16M/400M", tickets * 1000) + &volume
    };
    let pods: String = tickets.iter().enumerate().map(one).collect();
    let ended = up(test, &["--icount", "--timeout", "500"], &format!("[machine]\nmemory = \"200M\"\n{pods}"));
    assert_eq!(ended.status, 0, "{ended:?}");
    let held = tickets.map(|(name, _)| numbers_of(&ended, name)[0] as f64);
    let (all, due) = (held.iter().sum::<f64>(), tickets.map(|(_, count)| 1.0 / (6.0 - f64::from(count))));
    let due_sum: f64 = due.iter().sum();
    for (held, due) in held.iter().zip(due) {
        let (share, due) = (held / all, due / due_sum);
        println!("{held} frames: {share:.4}, due {due:.4}");
        assert!((share / due - 1.0).abs() < 0.05, "{share} of {due}: {ended:?}");
    }
}

#[test]
fn three_that_scan_twice_their_memory_hold_what_their_tickets_say() {
    three_scanners_hold_what_is_due("scanners", 3000);
}

/// The same with all time used, and so at speeds that their tickets say too.
#[test]
#[ignore = "reads ten gigabytes by 9P, for minutes of a busy host; the paced one is the same division"]
fn three_that_scan_without_a_pause_hold_what_their_tickets_say() {
    three_scanners_hold_what_is_due("busy-scanners", 0);
}

/// Anonymous memory meets its end at the limit and not before, and then only the one that wanted it.
#[test]
fn anonymous_memory_grows_up_to_the_limit() {
    let Some(program) = program("anonymous", "touches") else { return };
    let pod = |name: &str, count: &str| pod(name, &program, &[count, "1000"], "24M/128M", 1000);
    let ended = up("anonymous", &["--icount"], &[pod("fits", "110"), pod("hungry", "134")].concat());
    assert_eq!(numbers_of(&ended, "fits").len(), 2, "{ended:?}");
    assert!(lines_of(&ended, "hungry").iter().all(|line| line == "refused"), "{ended:?}");
    assert_ne!(ended.status, 0, "{ended:?}");
}
