//! Memory that moves between pods while they run: who needs more gets what is nobody's or idle elsewhere, up to its
//! limit, and meets an end of memory only there. Times are the guest's, which with `--icount` is instructions.

use aegis_tests::programs::{Ended, compile, up};

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
    let script = "dd if=/dev/zero of=/tmp/f bs=1M count=150 2>/dev/null && wc -c < /tmp/f; \
                  dd if=/dev/zero of=/dev/shm/g bs=1M count=150 2>&1 | grep -o 'No space.*'; rm /tmp/f; \
                  dd if=/dev/zero of=/tmp/h bs=1M count=100 2>/dev/null && echo again";
    let text = [shell("a", script, "32M/192M"), shell("b", "sleep 1; echo there", "24M")].concat();
    for options in [&["--icount"][..], &["--icount", "-M", "q35"]] {
        let ended = up("files", options, &text);
        assert_eq!(ended.status, 0, "{ended:?}");
        assert_eq!(lines_of(&ended, "a"), ["157286400", "No space left on device", "again"], "{ended:?}");
        assert_eq!(lines_of(&ended, "b"), ["there"]);
    }
}

/// Touches so many MiB of new memory and says how many milliseconds that took, after a second in which others have
/// taken theirs.
const TOUCHES: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <sys/mman.h>\n#include <time.h>\n\
    #include <unistd.h>\n\
    static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);\n\
        return t.tv_sec * 1000 + t.tv_nsec / 1000000; }\n\
    int main(int count, char **words) { sleep(1); long size = atol(words[1]) << 20, start = now();\n\
        char *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
        if (at == MAP_FAILED) { puts(\"refused\"); return 1; }\n\
        for (long i = 0; i < size; i += 4096) at[i] = 1;\n\
        printf(\"%ld\\n\", now() - start); return 0; }\n";

/// A pod that has given its files up and sleeps has frames that nobody uses.
#[test]
fn idle_memory_is_there_for_who_needs_it_within_a_quarter_of_a_second() {
    let Some(program) = compile("touches", TOUCHES, &["-O1", "-static"]) else { return };
    let idle = "dd if=/dev/zero of=/tmp/f bs=1M count=120 2>/dev/null; rm /tmp/f; sleep 3; echo slept";
    let busy = format!("[pod.busy]\nprogram = \"{}\"\nargs = [\"90\"]\nmemory = \"24M/160M\"\n", program.display());
    // 24 MiB and its library OS for each, and what the idle one takes first.
    let text = format!("[machine]\nmemory = \"208M\"\n{}{busy}", shell("idle", idle, "24M/160M"));
    let ended = up("idle-to-busy", &["--icount"], &text);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(lines_of(&ended, "idle"), ["slept"], "{ended:?}");
    let took_ms: u64 = lines_of(&ended, "busy")[0].parse().expect("a number");
    assert!(took_ms < 250, "90 MiB took {took_ms} ms");
}

/// Anonymous memory meets its end at the limit and not before, and then only the one who wanted it.
#[test]
fn anonymous_memory_grows_up_to_the_limit() {
    let Some(program) = compile("touches", TOUCHES, &["-O1", "-static"]) else { return };
    let pod = |name: &str, count: u32| {
        let program = program.display();
        format!("[pod.{name}]\nprogram = \"{program}\"\nargs = [\"{count}\"]\nmemory = \"24M/128M\"\n")
    };
    let ended = up("anonymous", &["--icount"], &[pod("fits", 110), pod("hungry", 134)].concat());
    assert!(lines_of(&ended, "fits")[0].parse::<u64>().is_ok(), "{ended:?}");
    assert!(lines_of(&ended, "hungry").iter().all(|line| line == "refused"), "{ended:?}");
    assert_ne!(ended.status, 0, "{ended:?}");
}
