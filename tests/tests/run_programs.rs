//! Real programs, as Debian installed them, do in the machine what they do on the host.

use aegis_tests::programs::{aegis, counter, is_there, same};

/// A megabyte that no text tool would leave alone.
fn noise() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..1 << 20).map(|_| next()).collect()
}

#[test]
fn busybox_echoes_and_tells_its_status() {
    same(&[], &["busybox", "echo", "hello"], b"");
    same(&[], &["busybox", "sh", "-c", "exit 7"], b"");
    same(&[], &["busybox", "tr", "a-z", "A-Z"], b"abc\n");
    same(&[], &["busybox", "sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; echo $i"], b"");
}

#[test]
fn bytes_pass_unchanged() {
    same(&[], &["busybox", "cat"], &noise());
    same(&[], &["busybox", "sha256sum"], &noise());
}

#[test]
fn output_and_errors_stay_apart() {
    let found = aegis(&[], &["busybox", "sh", "-c", "echo out; echo err >&2; exit 3"], b"");
    assert_eq!((found.output.as_slice(), found.status), (&b"out\n"[..], 3));
    assert_eq!(found.errors, "err\n");
}

#[test]
fn coreutils_of_the_host_run_as_they_are() {
    same(&[], &["sha256sum", "--version"], b"");
    same(&[], &["seq", "1", "20000"], b"");
    same(&[], &["sort", "-rn"], b"3\n10\n2\n");
    same(&[], &["base64"], &noise()[..5000]);
    same(&[], &["od", "-A", "x", "-t", "x1z"], &noise()[..300]);
    same(&[], &["stat", "-c", "%F %a %s", "/usr/lib/os-release"], b"");
    let found = aegis(&[], &["ls", "-la", "/proc/self/"], b"");
    assert!(found.status == 0 && String::from_utf8_lossy(&found.output).contains("cmdline"), "{found:?}");
}

#[test]
fn interpreters_compute() {
    same(&[], &["awk", "BEGIN{for(i=0;i<1e5;i++)s+=i; print s}"], b"");
    if is_there("perl") {
        let program = r#"my %h; $h{$_ % 7}++ for 1..99; print join(",", map { "$_=$h{$_}" } sort keys %h), "\n""#;
        same(&[], &["perl", "-e", program], b"");
    }
    if is_there("sqlite3") {
        let query =
            "with recursive c(x) as (select 1 union all select x+1 from c where x<1000) select sum(x), max(x) from c";
        same(&[], &["sqlite3", ":memory:", query], b"");
    }
    if is_there("/usr/bin/python3.11") {
        let program = "import json,hashlib,re,decimal; print(json.dumps({'x': sum(range(100))}), \
                       hashlib.sha256(b'a').hexdigest(), re.sub('b', 'c', 'abc'), decimal.Decimal(1) / 7)";
        let with = ["--with", "/usr/lib/python3", "--with", "/usr/lib/python3.11"];
        same(&with, &["/usr/bin/python3.11", "-c", program], b"");
    }
}

#[test]
fn valgrind_translates_text_that_others_have_patched() {
    if is_there("valgrind") {
        let script = "for i in 1 2 3 4 5 6 7 8 9; do ls / > /dev/null; done; valgrind -q ls /etc/apt; \
                      valgrind -q sh -c 'echo a | cat; exit 3'";
        same(&["--root", "/"], &["sh", "-c", script], b"");
    }
}

#[test]
fn machines_memory_and_processors_can_be_chosen() {
    for options in [["--cpus", "4"], ["-m", "64M"], ["-m", "4G"], ["-M", "pc"], ["-M", "q35"]] {
        same(&options, &["busybox", "echo", "chosen"], b"");
    }
}

#[test]
fn what_was_counted_tells_of_programs_that_have_ended() {
    let found = aegis(&["--stats=json"], &["busybox", "sh", "-c", "busybox true; grep pgfault /proc/vmstat"], b"");
    assert_eq!(found.status, 0, "{}", found.errors);
    let shown = String::from_utf8_lossy(&found.output).into_owned();
    let faults: u64 = shown.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a row has a number");
    assert!(faults > 0, "{shown}");
    assert!(counter(&found.errors, "page_faults") >= faults, "{shown}{}", found.errors);
    for key in ["pages_mapped", "pages_copied", "memory_peak_bytes"] {
        assert!(counter(&found.errors, key) > 0, "{key}: {}", found.errors);
    }
}
