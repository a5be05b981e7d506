//! Memory that moves between pods while they run: who needs more gets what is nobody's or idle elsewhere, up to its
//! limit, and meets an end of memory only there. Times are the guest's, which with `--icount` is instructions.

use aegis_tests::programs::{Ended, up};

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
