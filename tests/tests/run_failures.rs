//! What cannot run says so in one line, with the status that a shell would give; what dies, dies by name.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use aegis_tests::programs::{aegis, compile};

const CRASH: &str = "static void store(int *p) { *p = 1; }\nint main(void) { store(0); return 0; }\n";
const HUNGRY: &str = "#include <stdlib.h>\n#include <string.h>\nint main(void) { for (;;) { char *p = malloc(1 << 20); \
                      if (!p) return 3; memset(p, 1, 1 << 20); } }\n";
const SIGNALS: &str = r#"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
static sigjmp_buf back;
static volatile sig_atomic_t alarms;
static void fault(int n, siginfo_t *i, void *c) { (void)n; (void)c; siglongjmp(back, i->si_addr == (void *)8 ? 1 : 2); }
static void on_alarm(int n) { (void)n; alarms++; }
int main(void) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = fault;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &a, 0);
    double kept = 1.5;
    int came = sigsetjmp(back, 1);
    if (!came) *(volatile int *)8 = 1;
    a.sa_handler = on_alarm;
    a.sa_flags = 0;
    sigaction(SIGALRM, &a, 0);
    struct itimerval every = {{0, 10000}, {0, 10000}}, off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, 0);
    while (alarms < 3) kept += 0.0;
    setitimer(ITIMER_REAL, &off, 0);
    printf("%d %.1f %d\n", came, kept, alarms >= 3);
    fflush(stdout);
    raise(SIGTERM);
    return 0;
}
"#;

fn file(name: &str, contents: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("aegis-tests-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let path = folder.join(name);
    std::fs::write(&path, contents).expect("the temporary folder is writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

fn status_of(program: &Path) -> (i32, usize) {
    let found = aegis(&[], &[&program.display().to_string()], b"");
    (found.status, found.errors.lines().count())
}

#[test]
fn what_is_no_program_is_126_or_127_with_one_line() {
    let busybox = std::fs::read("/bin/busybox").expect("busybox is installed");
    let mut other = busybox[..4096].to_vec();
    other[18] = 40;
    assert_eq!(status_of(Path::new("no-such-program-anywhere")), (127, 1));
    assert_eq!(status_of(&file("text", b"just words\n")), (126, 1));
    assert_eq!(status_of(&file("empty", b"")), (126, 1));
    assert_eq!(status_of(&file("truncated", &busybox[..50_000])), (126, 1));
    assert_eq!(status_of(&file("other-machine", &other)), (126, 1));
}

#[test]
fn a_root_of_garbage_is_125() {
    let garbage = file("garbage", &[0x5a; 300_000]);
    let found = aegis(&["--root", &garbage.display().to_string()], &["busybox", "true"], b"");
    assert_eq!((found.status, found.errors.lines().count()), (125, 1), "{found:?}");
}

#[test]
fn a_null_store_is_139_and_says_where() {
    for options in [&["-static"][..], &["-no-pie"], &["-pie"]] {
        let Some(program) = compile("crash", CRASH, options) else { return };
        let found = aegis(&[], &[&program.display().to_string()], b"");
        assert_eq!(found.status, 139, "{found:?}");
        assert!(found.errors.contains("SIGSEGV") && found.errors.contains("store+0x"), "{}", found.errors);
    }
}

#[test]
fn memory_that_runs_out_ends_the_program_by_name() {
    let Some(program) = compile("hungry", HUNGRY, &["-static", "-O1"]) else { return };
    let found = aegis(&["-m", "64M"], &[&program.display().to_string()], b"");
    assert!(found.status == 3 || found.status == 137 && found.errors.contains("out of memory"), "{found:?}");
}

#[test]
fn handlers_timers_and_default_actions_work() {
    let Some(program) = compile("handlers", SIGNALS, &["-O1"]) else { return };
    let found = aegis(&[], &[&program.display().to_string()], b"");
    assert_eq!((found.output.as_slice(), found.status), (&b"1 1.5 1\n"[..], 143), "{found:?}");
}

#[test]
fn the_time_limit_is_124() {
    let found = aegis(&["--timeout", "2"], &["busybox", "sh", "-c", "while :; do :; done"], b"");
    assert_eq!(found.status, 124, "{found:?}");
}
