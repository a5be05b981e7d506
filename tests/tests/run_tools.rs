//! Debian's everyday tools: output and status as on the host.

use std::path::PathBuf;

use aegis_tests::programs::{is_there, same};

/// A small tree of files for tools to work on, the same path on the host and in the machine.
fn tree(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("aegis-tools-{}-{test}", std::process::id()));
    std::fs::create_dir_all(folder.join("sub/deep")).expect("the temporary folder is writable");
    let numbers: String = (1..=3000).map(|n| format!("{n} {}\n", n * 7919 % 3001)).collect();
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 21) as u8).collect();
    for (name, contents) in [
        ("text", &b"alpha\nbeta\ngamma beta\n"[..]),
        ("table", b"3 c\n1 a\n2 b\n1 a\n"),
        ("sub/numbers", numbers.as_bytes()),
        ("sub/deep/bytes", &bytes),
        ("empty", b""),
    ] {
        std::fs::write(folder.join(name), contents).expect("the temporary folder is writable");
    }
    let _ = std::os::unix::fs::symlink("text", folder.join("link"));
    folder
}

/// Runs each command, words separated by spaces, `@` for the tree's path; `'` keeps words together.
fn all_same(test: &str, commands: &[&str]) {
    let folder = tree(test).display().to_string();
    for command in commands {
        let mut words = Vec::new();
        for (index, part) in command.split('\'').enumerate() {
            match index % 2 {
                0 => {
                    words.extend(part.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('@', &folder)))
                }
                _ => words.push(part.to_string()),
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if is_there(words[0]) {
            same(&["--with", &folder], &words, b"two words\nand more\n");
        }
    }
    std::fs::remove_dir_all(folder).expect("the tree is ours");
}

#[test]
fn busybox_reads_files() {
    all_same(
        "busybox-read",
        &[
            "busybox grep -n beta @/text @/link",
            "busybox sed -n s/beta/B&/gp @/text",
            "busybox awk '{ s += $1 * $2 } END { print s, NR }' @/sub/numbers",
            "busybox sort -n @/table",
            "busybox uniq -c @/table",
            "busybox wc @/text @/sub/numbers @/empty",
            "busybox md5sum @/sub/deep/bytes",
            "busybox sha1sum @/sub/deep/bytes @/missing",
            "busybox gzip -c @/sub/numbers",
            "busybox tar cf - -C @ text sub/numbers",
            "busybox dd if=@/sub/deep/bytes bs=777 count=11 skip=3",
            "busybox od -x @/text",
            "busybox xxd @/text",
            "busybox hexdump -C @/text",
            "busybox head -n 3 @/sub/numbers",
            "busybox tail -c 30 @/sub/numbers",
            "busybox cut -d ' ' -f 2 @/table",
            "busybox stat -c '%s %F %a %h' @/text @/link",
            "busybox readlink -f @/link",
            "busybox cmp @/text @/table",
            "busybox diff @/text @/table",
            "busybox ls -1 @",
        ],
    );
}

#[test]
fn busybox_computes_and_tells() {
    all_same(
        "busybox-tell",
        &[
            "busybox id",
            "busybox whoami",
            "busybox date -u -d @0",
            "busybox seq 1 10",
            "busybox factor 1234567890123",
            "busybox expr 3 + 4 '*' 5",
            "busybox test 3 -gt 4",
            "busybox printf '%05d %s' 42 text",
            "busybox base64",
            "busybox rev",
            "busybox tac",
            "busybox fold -w 3",
            "busybox cal 2 2024",
            "busybox ls /nonexistent",
            "busybox nosuchapplet",
            "busybox sleep 0.01",
            "busybox sh -c 'kill -9 $$'",
            "busybox sh -c 'kill -TERM $$; echo alive'",
            "busybox sh -c 'trap \"echo term\" TERM; kill -TERM $$; echo after'",
            "busybox sh -c 'read a b; echo [$b] [$a]; exit 4'",
            "busybox sh -c 'for i in 1 2 3; do echo $i > /tmp/aegis-$i; done; read x < /tmp/aegis-2; echo $x; \
             exec rm /tmp/aegis-1 /tmp/aegis-2 /tmp/aegis-3'",
            "busybox sh -c 'exec busybox echo replaced'",
            "busybox sh -c nosuchcommand",
            "dash -c 'i=0; while [ $i -lt 500 ]; do i=$((i+1)); done; echo $i; exit 4'",
            "bash --norc -c 'a=(1 2 3); declare -A m; m[x]=5; echo ${#a[@]} ${m[x]}; [[ abc =~ b ]] && echo \
             {1..5}; exit 2'",
        ],
    );
}

#[test]
fn coreutils() {
    all_same(
        "coreutils",
        &[
            "sha512sum @/sub/deep/bytes",
            "b2sum @/sub/deep/bytes",
            "cksum @/sub/deep/bytes",
            "sort -k2n @/sub/numbers",
            "join @/table @/table",
            "comm @/text @/text",
            "paste -d, @/text @/table",
            "nl @/text",
            "tac @/text",
            "fold -w 2 @/text",
            "ls -la /usr/lib/os-release",
            "stat -c '%n %s %F %a' @/text @/link",
            "readlink -f @/link",
            "cp -v @/text @/missing/copy",
            "mkdir -v @/sub",
            "rm -v @/missing",
            "head -c 10000 /dev/zero",
            "dd if=/dev/zero bs=64k count=4 status=none",
            "factor 123456789012345678 97",
            "numfmt --to=iec 1234567",
            "expr 2 '*' 21",
            "printf '%s %d' a 5",
            "date -u -d '2024-02-29 12:00:00' +%A",
            "id",
            "tty",
            "arch",
            "truncate -s -1 @/missing/x",
            "false",
            "cat @/text - @/missing",
            "cut -c 2-4 @/text",
            "tr -d a",
            "env -i A=1 /usr/bin/env",
        ],
    );
}

#[test]
fn other_tools() {
    all_same(
        "others",
        &[
            "grep -c beta @/text",
            "grep -P '^g\\w+' @/text",
            "sed -e s/a/A/ @/text",
            "find @ -name text",
            "diff -u @/text @/table",
            "cmp @/text @/table",
            "tar cf - -C @ text",
            "gzip -c @/sub/numbers",
            "bzip2 -c @/sub/numbers",
            "xz -c @/text",
            "file --version",
            "git --version",
            "git hash-object @/text",
            "openssl dgst -sha256 @/sub/deep/bytes",
            "openssl prime 1000003",
            "jq -n -c '[range(5)] | add'",
            "lua5.4 -e 'local s = 0 for i = 1, 1000 do s = s + i end print(s, 1 / 3)'",
            "luajit -e 'local s = 0 for i = 1, 1e6 do s = s + i end print(s)'",
            "gawk 'BEGIN { for (i = 0; i < 1000; i++) a[i % 10] += i; print length(a), a[7], strftime(\"%Y\", 0, 1) }'",
            "mawk 'BEGIN { while (i < 1000) s += i++; print s, substr(\"hello\", 2, 3) }'",
            "perl -e 'my $t = \"the quick fox\"; print length($1), \" \" while $t =~ /(\\w+)/g; print scalar \
             gmtime 1e9; exit 9'",
            "perl -e '$SIG{ALRM} = sub { die \"alarm\\n\" }; alarm 1; eval { 1 while 1 }; print \"got $@\"'",
            "perl -e 'open my $f, \">\", \"/tmp/aegis-perl\" or die; print $f \"x\" x 5000; close $f; print \
             -s \"/tmp/aegis-perl\"; unlink \"/tmp/aegis-perl\"'",
            "sqlite3 :memory: 'create table t(a, b); insert into t values (1, \"x\"), (2, \"y\"); select * \
             from t order by a desc'",
            "sqlite3 /tmp/aegis-sqlite 'create table t(a); insert into t values (1), (2); select sum(a) from \
             t; pragma integrity_check; drop table t'",
        ],
    );
    let _ = std::fs::remove_file("/tmp/aegis-sqlite");
}

#[test]
fn python_with_its_library() {
    if !is_there("/usr/bin/python3.11") {
        return;
    }
    let with = ["--with", "/usr/lib/python3", "--with", "/usr/lib/python3.11"];
    for program in [
        "import random,struct,zlib,math,datetime; random.seed(1); \
         print(random.random(), struct.pack('<IH', 1, 2), zlib.crc32(b'a'), math.factorial(30), \
          datetime.date(2024, 2, 29))",
        "import sqlite3; c = sqlite3.connect(':memory:'); c.execute('create table t(a)'); \
         c.executemany('insert into t values(?)', [(i,) for i in range(99)]); \
         print(c.execute('select sum(a) from t').fetchone())",
        "import tempfile,os,mmap; f = tempfile.NamedTemporaryFile(); f.truncate(8192); m = \
         mmap.mmap(f.fileno(), 8192); \
         m[0:3] = b'abc'; print(open(f.name, 'rb').read(3), os.path.getsize(f.name))",
        "import select,os; r, w = os.pipe(); os.write(w, b'x'); p = select.epoll(); p.register(r, 1); \
         print(p.poll(0) == [(r, 1)])",
        "import signal,time; signal.signal(signal.SIGALRM, lambda *a: print('alarm')); \
         signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(0.2)",
        "raise ValueError('x')",
        "import ctypes; ctypes.string_at(0)",
        "a = [0] * 10 ** 11",
    ] {
        same(&with, &["/usr/bin/python3.11", "-c", program], b"");
    }
}
