//! Host directories served live: `--root DIR`, `-v`. Linux is the oracle where the command changes nothing.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use aegis_tests::programs::{Ended, aegis, compile_with, host, is_there, same, tool};

/// A folder of this test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("aegis-live-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        Self(folder)
    }

    fn put(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("the folder is ours");
        std::fs::write(path, contents).expect("the folder is ours");
    }

    fn get(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(name)).ok()
    }

    /// The value of `-v` that shows it at `/v`.
    fn volume(&self, flags: &str) -> String {
        format!("{}:/v{flags}", self.0.display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn succeeds(ended: Ended) -> String {
    assert_eq!((ended.status, ended.errors.as_str()), (0, ""), "{ended:?}");
    String::from_utf8(ended.output).expect("text")
}

/// Without a network, whose names would lie over the host's in `/etc`.
const LIVE_ROOT: [&str; 4] = ["--root", "/", "--network", "none"];

#[test]
fn the_hosts_own_system_is_the_root() {
    for command in [
        &["true"][..],
        &["sh", "-c", "cd /; echo *; cd usr; echo b*; exit 3"],
        &["ls", "/etc"],
        &["ls", "-lnL", "/usr/bin/env", "/etc/passwd"],
        &["cat", "/etc/passwd", "/etc/group"],
        &["cat", "/etc/no-such-file"],
        &["readlink", "/bin", "/usr/bin/awk"],
        &["readlink", "-f", "/bin/sh"],
        &["stat", "-c", "%n %F %a %u %g %s %Y %h", "/etc/passwd", "/usr", "/bin", "/etc/alternatives"],
        &["find", "/etc", "-newer", "/no/such"],
        &["wc", "-c", "/bin/busybox"],
        &["md5sum", "/usr/bin/perl", "/etc/services"],
        &["busybox", "find", "/etc", "-name", "*.conf", "-type", "f"],
        &["python3", "-c", "import json, hashlib, decimal; print(json.dumps({'x': hashlib.md5(b'a').hexdigest()}))"],
        &["perl", "-MList::Util=sum", "-e", "print sum(1..100), qq(\\n)"],
    ] {
        if is_there(command[0]) {
            same(&LIVE_ROOT, command, b"");
        }
    }
}

#[test]
fn a_walk_over_etc_finds_what_the_host_has() {
    let sorted = |ended: &Ended| {
        let mut lines: Vec<String> = String::from_utf8_lossy(&ended.output).lines().map(str::to_string).collect();
        lines.sort_unstable();
        lines
    };
    let command = ["find", "/etc", "/usr/share/perl", "-printf", "%p %y %s %m\\n"];
    let found = aegis(&LIVE_ROOT, &command, b"");
    let expected = host(&command, b"");
    // A user that may not read everything is told so on both sides.
    assert_eq!(found.status, expected.status, "{}", found.errors);
    let (found, expected) = (sorted(&found), sorted(&expected));
    assert!(expected.len() > 100 && found == expected);
}

#[test]
fn the_same_on_the_machines_with_pci() {
    let folder = Folder::new("pci");
    folder.put("f", "over pci\n");
    for machine in ["pc", "q35"] {
        let options = ["-M", machine, "--root", "/", "-v", &folder.volume("")];
        let script = "read x < /v/f; echo $x > /v/g; exec cat /v/f";
        let text = succeeds(aegis(&options, &["busybox", "sh", "-c", script], b""));
        assert_eq!(text, "over pci\n");
        assert_eq!(folder.get("g").as_deref(), Some("over pci\n"));
    }
}

#[test]
fn writes_over_a_live_root_stay_in_memory() {
    let folder = Folder::new("over");
    folder.put("etc/kept", "host\n");
    folder.put("etc/gone", "host\n");
    std::fs::create_dir_all(folder.0.join("bin")).expect("the folder is ours");
    std::fs::copy("/bin/busybox", folder.0.join("bin/busybox")).expect("busybox is static");
    let root = folder.0.display().to_string();
    let script = "cd /etc; echo guest >> kept; echo new > made; \
                  while read line; do echo $line; done < kept; : > gone; echo *; exec busybox rm -r /etc";
    let options = ["--network", "none", "--root", &root];
    let text = succeeds(aegis(&options, &["/bin/busybox", "sh", "-c", script], b""));
    assert_eq!(text, "host\nguest\ngone kept made\n");
    assert_eq!(folder.get("etc/kept").as_deref(), Some("host\n"));
    assert_eq!(folder.get("etc/gone").as_deref(), Some("host\n"));
    assert_eq!(folder.get("etc/made"), None);
    let names = |folder: &Path| std::fs::read_dir(folder).expect("the folder is ours").count();
    assert_eq!((names(&folder.0), names(&folder.0.join("etc"))), (2, 2), "no trace of /dev, /proc, /tmp");
}

#[test]
fn a_packed_root_needs_nothing_live() {
    let folder = Folder::new("packed");
    folder.put("file", "packed\n");
    std::fs::copy("/bin/busybox", folder.0.join("busybox")).expect("busybox is static");
    let root = folder.0.display().to_string();
    for options in [&["--root", &root, "--pack"][..], &["--root", &root, "--with", "/etc/services"]] {
        let line = aegis(&[options, &["--dry-run"]].concat(), &["/busybox", "cat", "/file"], b"");
        assert!(!succeeds(line).contains("fsdev"));
        assert_eq!(succeeds(aegis(options, &["/busybox", "cat", "/file"], b"")), "packed\n");
    }
}

#[test]
fn a_directory_changes_in_both_directions() {
    let folder = Folder::new("both");
    folder.put("from-host", "first\n");
    // Each line of input is a turn: the host has changed something, the guest looks and answers.
    let script = "while read turn; do \
                  if [ -e /v/from-host ]; then read x < /v/from-host; else x=gone; fi; \
                  echo \"$turn $x\" > /v/from-guest; echo \"$x\"; done";
    let options = ["-v", &folder.volume("")];
    let mut run = tool(&options, &["busybox", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    let mut input = run.stdin.take().expect("a pipe");
    let mut output = BufReader::new(run.stdout.take().expect("a pipe"));
    let mut turn = |name: &str, expected: &str| {
        writeln!(input, "{name}").expect("the program reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("the program answers");
        assert_eq!(line.trim_end(), expected, "{name}");
        assert_eq!(folder.get("from-guest"), Some(format!("{name} {expected}\n")));
    };
    turn("a", "first");
    folder.put("from-host", "second, longer\n");
    turn("b", "second, longer");
    std::fs::remove_file(folder.0.join("from-host")).expect("it is there");
    turn("c", "gone");
    folder.put("new", "by another name\n");
    std::fs::rename(folder.0.join("new"), folder.0.join("from-host")).expect("the folder is ours");
    turn("d", "by another name");
    drop(input);
    assert!(run.wait().expect("the tool ends").success());
}

#[test]
fn what_was_asked_ahead_is_forgotten_when_the_host_says_something() {
    let folder = Folder::new("ahead");
    (0..40).for_each(|number| folder.put(&format!("f{number:02}"), ""));
    // Each turn goes through the first names of a listing, so the others are asked for too; then the host changes one
    // and says so, and the guest looks at it at once.
    let script = "cd /v; while :; do for f in *; do [ -s $f ]; [ $f = f05 ] && break; done; \
                  echo ready; read name || exit 0; if [ -s $name ]; then echo full; else echo empty; fi; \
                  if [ -e $name ]; then echo there; else echo gone; fi; done";
    let options = ["-v", &folder.volume("")];
    let mut run = tool(&options, &["busybox", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    let mut input = run.stdin.take().expect("a pipe");
    let mut output = BufReader::new(run.stdout.take().expect("a pipe"));
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).expect("the program answers");
        line.trim_end().to_owned()
    };
    for number in 6..26 {
        let name = format!("f{number:02}");
        assert_eq!(line(), "ready");
        let is_removed = number % 2 == 0;
        if is_removed {
            std::fs::remove_file(folder.0.join(&name)).expect("it is there");
        } else {
            folder.put(&name, "new");
        }
        writeln!(input, "{name}").expect("the program reads");
        let expected = if is_removed { ["empty", "gone"] } else { ["full", "there"] };
        assert_eq!([line(), line()], expected, "{name}");
    }
    drop(input);
    assert!(run.wait().expect("the tool ends").success());
}

#[test]
fn a_pass_over_a_directory_that_changes_meanwhile_finds_what_stays() {
    let folder = Folder::new("churn");
    (0..600).for_each(|number| folder.put(&format!("stays{number:03}"), "12345"));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let listed = std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| folder.0.join(name);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for number in 0..50 {
                    let (here, there) = (at(&format!("stays{number:03}-x")), at(&format!("moved{number}")));
                    let _ = std::fs::write(&here, "1");
                    let _ = std::fs::rename(&here, &there);
                    let _ = std::os::unix::fs::symlink("/etc/passwd", &here);
                    let _ = std::fs::remove_file(&there).and_then(|()| std::fs::remove_file(&here));
                }
                std::thread::yield_now();
            }
        });
        let script = "for i in 1 2 3; do find /v -type f -size -2 -name 'stays???' 2>/dev/null | wc -l; done; \
                      ls -l /v 2>/dev/null | grep -c ' 5 .*stays...$'";
        let ended = aegis(&["-v", &folder.volume("")], &["busybox", "sh", "-c", script], b"");
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        ended
    });
    assert_eq!(String::from_utf8_lossy(&listed.output), "600\n600\n600\n600\n", "{listed:?}");
}

#[test]
fn programs_that_are_killed_in_a_pass_leave_the_directory_usable() {
    let folder = Folder::new("killed");
    (0..600).for_each(|number| folder.put(&format!("f{number:03}"), "12345"));
    // Wherever the kill meets them; each leaves what was asked ahead, and more fids than a server has would be used.
    let script = "for i in $(seq 40); do ls -l /v > /dev/null & find /v -size +1k > /dev/null & usleep $((i * 2000)); \
                  kill -9 $! %1 2>/dev/null; wait; done; ls -l /v | grep -c ' 5 .*f...$'";
    let ended = aegis(&["-v", &folder.volume("")], &["busybox", "sh", "-c", script], b"");
    assert_eq!(String::from_utf8_lossy(&ended.output), "600\n", "{ended:?}");
}

#[test]
fn what_programs_do_to_a_directory_is_done_on_the_host() {
    let folder = Folder::new("changes");
    folder.put("old", "contents\n");
    let options = ["-v", &folder.volume("")];
    let run = |command: &[&str]| succeeds(aegis(&options, command, b"input\n"));
    run(&["busybox", "mkdir", "-p", "/v/a/b"]);
    run(&["busybox", "mv", "/v/old", "/v/a/b/new"]);
    run(&["busybox", "ln", "-s", "b/new", "/v/a/link"]);
    run(&["busybox", "ln", "/v/a/b/new", "/v/hard"]);
    run(&["busybox", "chmod", "640", "/v/hard"]);
    run(&["busybox", "touch", "-d", "2001-02-03 04:05:06", "/v/a"]);
    run(&["busybox", "dd", "of=/v/big", "if=/dev/zero", "bs=100000", "count=3", "status=none"]);
    run(&["busybox", "truncate", "-s", "5", "/v/big"]);
    run(&["busybox", "tee", "-a", "/v/hard"]);
    assert_eq!(run(&["busybox", "cat", "/v/a/link"]), "contents\ninput\n");
    assert_eq!(folder.get("a/b/new").as_deref(), Some("contents\ninput\n"));
    let metadata = std::fs::metadata(folder.0.join("hard")).expect("it is there");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_link(folder.0.join("a/link")).expect("a link"), Path::new("b/new"));
    assert_eq!(folder.get("big").as_deref(), Some("\0\0\0\0\0"));
    let seconds = |path| std::os::unix::fs::MetadataExt::mtime(&std::fs::metadata(folder.0.join(path)).expect("there"));
    assert_eq!(seconds("a"), 981_173_106);
    run(&["busybox", "rm", "-r", "/v/a", "/v/big", "/v/hard"]);
    assert_eq!(std::fs::read_dir(&folder.0).expect("the folder is ours").count(), 0);
}

#[test]
fn shared_mappings_reach_the_host() {
    if !is_there("/usr/bin/python3") {
        return;
    }
    let folder = Folder::new("mapped");
    folder.put("m", vec![b'.'; 10_000]);
    let program = "import mmap, os\n\
                   f = open('/v/m', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[5000:5005] = b'guest'\n\
                   m.flush(); assert os.pread(f.fileno(), 5, 5000) == b'guest'; m[0:3] = b'end'\n\
                   import tempfile; t = tempfile.TemporaryFile(dir='/v'); t.write(b'x' * 9000); t.seek(0)\n\
                   print(len(t.read()), os.listdir('/v'))";
    let options = ["--root", "/", "-v", &folder.volume("")];
    assert_eq!(succeeds(aegis(&options, &["python3", "-c", program], b"")), "9000 ['m']\n");
    let text = folder.get("m").expect("it is there");
    assert_eq!((&text[..4], &text[4999..5006], text.len()), ("end.", ".guest.", 10_000));
}

#[test]
fn a_read_only_directory_refuses_changes() {
    let folder = Folder::new("ro");
    folder.put("f", "fixed\n");
    let options = ["-v", &folder.volume(":ro")];
    for words in [
        &["touch", "/v/new"][..],
        &["mkdir", "/v/new"],
        &["rm", "/v/f"],
        &["mv", "/v/f", "/v/g"],
        &["chmod", "600", "/v/f"],
        &["tee", "/v/f"],
        &["truncate", "-s", "0", "/v/f"],
    ] {
        let ended = aegis(&options, &[&["busybox"], words].concat(), b"x\n");
        assert!(ended.status != 0 && ended.errors.contains("Read-only file system"), "{words:?} {ended:?}");
    }
    assert_eq!(succeeds(aegis(&options, &["busybox", "cat", "/v/f"], b"")), "fixed\n");
    assert_eq!(folder.get("f").as_deref(), Some("fixed\n"));
    assert_eq!(std::fs::read_dir(&folder.0).expect("the folder is ours").count(), 1);
    // The server refuses by itself too, whatever the machine asks.
    let line = succeeds(aegis(&[&options[..], &["--dry-run"]].concat(), &["busybox", "true"], b""));
    assert!(line.contains("readonly=on"), "{line}");
}

#[test]
fn links_lead_nowhere_else_on_the_host() {
    let folder = Folder::new("links");
    folder.put("served/inside", "inside\n");
    folder.put("secret", "secret\n");
    let served = folder.0.join("served");
    symlink("../secret", served.join("relative")).expect("the folder is ours");
    symlink(folder.0.join("secret"), served.join("absolute")).expect("the folder is ours");
    symlink("..", served.join("up")).expect("the folder is ours");
    symlink("inside", served.join("good")).expect("the folder is ours");
    let volume = format!("{}:/v", served.display());
    let cat = |path: &str| aegis(&["-v", &volume], &["busybox", "cat", path], b"");
    assert_eq!(succeeds(cat("/v/good")), "inside\n");
    for path in ["/v/relative", "/v/absolute", "/v/up/secret", "/v/../secret", "/v/up/links/secret"] {
        let ended = cat(path);
        assert!(ended.status == 1 && ended.errors.contains("No such file"), "{path} {ended:?}");
    }
    let listed = succeeds(aegis(&["-v", &volume], &["busybox", "ls", "/v/up/"], b""));
    assert!(!listed.contains("secret") && listed.contains("proc"), "the machine's own root: {listed}");
}

#[test]
fn several_directories_and_their_places() {
    let (first, second) = (Folder::new("first"), Folder::new("second"));
    first.put("who", "first\n");
    second.put("who", "second\n");
    let at = |folder: &Folder, place: &str| format!("{}:{place}", folder.0.display());
    let volumes = [at(&first, "/srv/deep/er"), at(&second, "/srv/deep/er/inner:ro"), at(&first, "/again:ro")];
    std::fs::create_dir(first.0.join("inner")).expect("the folder is ours");
    let options = ["-v", &volumes[0], "-v", &volumes[1], "-v", &volumes[2], "-w", "/srv/deep"];
    let command = ["busybox", "cat", "er/who", "er/inner/who", "/again/who", "er/inner/../who"];
    assert_eq!(succeeds(aegis(&options, &command, b"")), "first\nsecond\nfirst\nfirst\n");
    let many: Vec<String> = (0..16).map(|number| at(&first, &format!("/many/{number}"))).collect();
    let options: Vec<&str> = many.iter().flat_map(|volume| ["-v", volume]).collect();
    assert_eq!(succeeds(aegis(&options, &["busybox", "cat", "/many/15/who"], b"")), "first\n");
}

#[test]
fn a_single_file_is_written_and_its_neighbours_are_not_shown() {
    let folder = Folder::new("file");
    folder.put("conf", "old\n");
    folder.put("secret", "secret\n");
    let volume = format!("{}:/etc/deep/app.conf", folder.0.join("conf").display());
    let script = "cat /etc/deep/app.conf; ls /etc/deep; echo more >> /etc/deep/app.conf; \
                  exec 2>/dev/null; mv /etc/deep/app.conf /tmp/x || echo busy; rm /etc/deep/app.conf || echo busy";
    let shown = succeeds(aegis(&["-v", &volume], &["busybox", "sh", "-c", script], b""));
    assert_eq!(shown, "old\napp.conf\nbusy\nbusy\n");
    assert_eq!(folder.get("conf").as_deref(), Some("old\nmore\n"));
    let script = "echo short > /etc/deep/app.conf; stat -c %s /etc/deep/app.conf";
    assert_eq!(succeeds(aegis(&["-v", &volume], &["busybox", "sh", "-c", script], b"")), "6\n");
    assert_eq!(folder.get("conf").as_deref(), Some("short\n"));
    assert_eq!(std::fs::read_dir(&folder.0).expect("the folder is ours").count(), 2, "nothing is left beside it");
}

#[test]
fn wrong_directories_are_named_before_the_start() {
    for (volume, expected) in [("/dev/null:/p", "only files and directories"), ("/no/such:/p", "/no/such: ")] {
        let ended = aegis(&["-v", volume], &["busybox", "true"], b"");
        assert!(ended.status == 125 && ended.errors.contains(expected), "{ended:?}");
    }
}

/// Three threads: two hand a word to each other for ever, the third asks the host for one file after the other, until
/// the two came on during ten of the calls. Whether they do in a certain call depends on how soon the host answers;
/// that a wait holds up nobody is shown without luck in `exos/src/fs/ninep/waiting_tests.rs`.
const MEANWHILE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int word, is_over;

static void *play(void *side) {
    int mine = (int)(long)side;
    while (!is_over) {
        int now = word;
        if ((now & 1) != mine) { syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, now, NULL); continue; }
        __sync_fetch_and_add(&word, 1);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
    }
    __sync_fetch_and_add(&word, 1);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 9);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t players[2];
    char path[300], bytes[10];
    int count = 0, moved = 0;
    struct stat status;
    for (long side = 0; side < 2; side++) pthread_create(&players[side], NULL, play, (void *)side);
    for (; moved < 10; count++) {
        sprintf(path, "/v/deep/%d", count % 200);
        int before = word, result = stat(path, &status);
        moved += word != before;
        int file = open(path, O_RDONLY);
        if (result || file < 0 || read(file, bytes, 10) != 3) { puts("a file is wrong"); _exit(1); }
        close(file);
    }
    is_over = 1;
    for (int side = 0; side < 2; side++) pthread_join(players[side], NULL);
    puts("others ran meanwhile");
    return 0;
}
"#;

#[test]
fn who_asks_the_host_does_not_stop_the_other_threads() {
    let folder = Folder::new("meanwhile");
    for number in 0..200 {
        folder.put(&format!("deep/{number}"), "abc");
    }
    let Some(program) = compile_with("gcc", "meanwhile", MEANWHILE, &["-O1", "-static", "-pthread"]) else { return };
    for processors in ["1", "2"] {
        let options = ["--cpus", processors, "-v", &folder.volume("")];
        let text = succeeds(aegis(&options, &[&program.display().to_string()], b""));
        assert_eq!(text, "others ran meanwhile\n");
    }
}

#[test]
fn many_processes_ask_the_host_at_once() {
    let folder = Folder::new("many");
    for number in 0..60 {
        folder.put(&format!("{number}"), format!("{number}\n").repeat(3000));
    }
    let script = "for i in 0 1 2 3 4 5; do \
                  (for f in /v/*; do busybox md5sum < $f; done | busybox md5sum) & done; wait; \
                  busybox md5sum /v/* | busybox md5sum";
    for processors in ["1", "3"] {
        let options = ["--cpus", processors, "-v", &folder.volume("")];
        let text = succeeds(aegis(&options, &["busybox", "sh", "-c", script], b""));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{text}");
        assert!(lines[..6].iter().all(|line| *line == lines[0]), "{text}");
    }
}
