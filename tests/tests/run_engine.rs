//! The runtime of other engines, played as conmon plays it: a caller that inherits the container's process, gives it
//! pipes, reads its pid file, and waits for it.

use std::io::{Read, Write, pipe};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use aegis_tests::programs::{host, remote_tool};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

/// As long as podman's and containerd's are.
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A bundle, a root of the runtime, and where they lie.
struct Engine {
    folder: PathBuf,
}

impl Engine {
    fn new(test: &str) -> Self {
        set_child_subreaper(Some(getpid())).expect("Linux");
        let folder = std::env::temp_dir().join(format!("aegis-engine-{}-{test}", std::process::id()));
        let bin = folder.join("bundle/rootfs/bin");
        std::fs::create_dir_all(&bin).expect("writable");
        std::fs::create_dir_all(folder.join("data")).expect("writable");
        let found = String::from_utf8(host(&["which", "busybox"], b"").output).expect("text");
        std::fs::copy(found.trim(), bin.join("busybox")).expect("busybox is there");
        for name in ["sh", "cat", "sleep", "id", "hostname"] {
            symlink("busybox", bin.join(name)).expect("writable");
        }
        Self { folder }
    }

    /// Writes the configuration: a shell with this script.
    fn config(&self, script: &str, more: &str) -> &Self {
        let data = self.folder.join("data");
        let config = format!(
            r#"{{"ociVersion":"1.0.2","root":{{"path":"rootfs"}},"hostname":"box",
            "process":{{"args":["sh","-c","{script}"],"cwd":"/","env":["PATH=/bin","A=b"],
            "user":{{"uid":0,"gid":0,"additionalGids":[4,5]}}}},
            "mounts":[{{"destination":"/proc","type":"proc"}},
            {{"destination":"/data","type":"bind","source":"{}","options":["rbind","rw"]}}],
            "linux":{{"namespaces":[{{"type":"pid"}},{{"type":"network"}}]}}{more}}}"#,
            data.display()
        );
        std::fs::write(self.folder.join("bundle/config.json"), config).expect("writable");
        self
    }

    fn verb(&self, words: &[&str]) -> Command {
        let root = self.folder.join("run").display().to_string();
        let all: Vec<&str> = ["oci", "--root", &root, "--accel", "tcg"].iter().chain(words).copied().collect();
        remote_tool("engine", &all)
    }

    fn run(&self, words: &[&str]) -> Output {
        self.verb(words).stdin(Stdio::null()).output().expect("the runtime starts")
    }

    fn fails(&self, words: &[&str], text: &str) {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && errors.contains(text), "{words:?}: {errors}");
    }

    fn works(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    fn status(&self, id: &str) -> String {
        let state = self.works(&["state", id]);
        let said = state.split("\"status\": \"").nth(1).and_then(|rest| rest.split('"').next());
        said.unwrap_or("?").into()
    }

    /// Creates a container with this input; its process, and where its output comes.
    fn create(&self, id: &str, input: &[u8]) -> Container {
        let (from, mut to) = pipe().expect("a pipe");
        let (output, ours) = pipe().expect("a pipe");
        let (errors, theirs) = pipe().expect("a pipe");
        let pid_file = self.folder.join("pid").display().to_string();
        let bundle = self.folder.join("bundle").display().to_string();
        let mut create = self.verb(&["create", "--bundle", &bundle, "--pid-file", &pid_file, id]);
        let status = create.stdin(from).stdout(ours).stderr(theirs).status().expect("the runtime starts");
        drop(create);
        assert!(status.success());
        to.write_all(input).expect("there is room");
        let pid = std::fs::read_to_string(pid_file).expect("written").parse().expect("a number");
        Container { pid: Pid::from_raw(pid).expect("a process"), output, errors }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Container {
    pid: Pid,
    output: std::io::PipeReader,
    errors: std::io::PipeReader,
}

impl Container {
    /// Output, errors, and status as an engine makes it.
    fn end(mut self) -> (String, String, i32) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output).expect("text");
        self.errors.read_to_string(&mut errors).expect("text");
        (output, errors, wait(self.pid))
    }
}

/// What an engine says of an end: the status, or 128 and the signal.
fn wait(pid: Pid) -> i32 {
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).expect("a child").expect("it ended");
    status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0))
}

#[test]
fn a_container_lives_as_its_engine_says() {
    let engine = Engine::new("life");
    engine.config("echo out; echo err >&2; id; hostname; cat; echo $A > /data/f; exit 7", "");
    let container = engine.create(ID, b"input\n");
    assert_eq!(engine.status(ID), "created");
    engine.fails(&["exec", ID, "id"], "container not running");
    engine.works(&["start", ID]);
    engine.fails(&["start", ID], "not created");
    let (output, errors, status) = container.end();
    assert_eq!(output, "out\nuid=0 gid=0 groups=4,5\nbox\ninput\n");
    assert_eq!((errors.as_str(), status), ("err\n", 7));
    assert_eq!(std::fs::read_to_string(engine.folder.join("data/f")).expect("written"), "b\n");
    assert_eq!(engine.status(ID), "stopped");
    engine.fails(&["kill", "--all", ID, "9"], "container not running");
    engine.works(&["delete", ID]);
    engine.works(&["delete", "--force", ID]);
    engine.fails(&["state", ID], "does not exist");
    assert_eq!(std::fs::read_dir(engine.folder.join("run")).expect("there").count(), 0, "nothing is left behind");
}

#[test]
fn signals_and_further_programs_reach_a_container() {
    let engine = Engine::new("signals");
    engine.config("trap 'echo got; exit 3' USR1; trap 'echo term' TERM; echo up; while true; do sleep 0.1; done", "");
    let mut container = engine.create(ID, b"");
    engine.works(&["start", ID]);
    let process = engine.folder.join("process.json");
    let text = r#"{"args":["sh","-c","echo in; id -u; id -G; exit 5"],"cwd":"/","env":["PATH=/bin"],
        "user":{"uid":33,"gid":44,"additionalGids":[55,66]}}"#;
    std::fs::write(&process, text).expect("writable");
    let exec = engine.run(&["exec", "--process", &process.display().to_string(), ID]);
    assert_eq!((exec.status.code(), exec.stdout.as_slice()), (Some(5), &b"in\n33\n44 55 66\n"[..]));
    let pid_file = engine.folder.join("exec-pid").display().to_string();
    engine.works(&["exec", "--process", &process.display().to_string(), "--detach", "--pid-file", &pid_file, ID]);
    let pid = std::fs::read_to_string(pid_file).expect("written").parse().expect("a number");
    assert_eq!(wait(Pid::from_raw(pid).expect("a process")), 5);
    assert_eq!(engine.works(&["ps", "--format", "json", ID]).trim(), format!("[{}]", container.pid.as_raw_nonzero()));
    engine.fails(&["delete", ID], "not stopped");
    engine.works(&["kill", ID, "15"]);
    let mut first = [0; 8];
    container.output.read_exact(&mut first).expect("its answer");
    assert_eq!(&first, b"up\nterm\n");
    engine.works(&["kill", ID, "USR1"]);
    let (output, _, status) = container.end();
    assert_eq!((output.as_str(), status), ("got\n", 3));
    engine.works(&["delete", ID]);
}

#[test]
fn a_container_can_be_ended_at_any_time() {
    let engine = Engine::new("ends");
    engine.config("sleep 1000", "");
    let (running, created) = (engine.create("r", b""), engine.create("n", b""));
    engine.works(&["start", "r"]);
    engine.works(&["kill", "r", "KILL"]);
    assert_eq!(running.end().2, 137);
    engine.works(&["delete", "--force", "n"]);
    assert_eq!(created.end().2, 137);
    engine.works(&["delete", "r"]);
    engine.fails(&["pause", "r"], "not supported");
}

#[test]
fn a_create_that_is_killed_leaves_nothing() {
    let engine = Engine::new("killed");
    let bundle = engine.folder.join("bundle").display().to_string();
    let mark = engine.folder.join("mark");
    let hook = engine.folder.join("hook");
    std::fs::write(
        &hook,
        format!("#!/bin/sh\necho $$ > {0}.new && mv {0}.new {0} && exec sleep 1000\n", mark.display()),
    )
    .expect("writable");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    engine.config("true", &format!(r#","hooks":{{"createRuntime":[{{"path":"{}"}}]}}"#, hook.display()));
    let mut create =
        engine.verb(&["create", "--bundle", &bundle, "c"]).stdin(Stdio::null()).spawn().expect("it starts");
    let pause = std::time::Duration::from_millis(10);
    while !mark.exists() {
        assert!(create.try_wait().expect("a child").is_none(), "the hook runs until it is killed");
        std::thread::sleep(pause);
    }
    let state = std::fs::read_to_string(engine.folder.join("run/c/state.json")).expect("hooks come behind it");
    let monitor = state.split("\"pid\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).expect("it is there");
    create.kill().expect("it runs");
    create.wait().expect("it ends");
    assert_eq!(wait(Pid::from_raw(monitor.parse().expect("a number")).expect("a process")), 125);
    let hook = std::fs::read_to_string(&mark).expect("written");
    let hook = Pid::from_raw(hook.trim().parse().expect("a number")).expect("a process");
    rustix::process::kill_process(hook, rustix::process::Signal::KILL).expect("it sleeps");
    wait(hook);
    let mut left = std::fs::read_dir(engine.folder.join("run")).expect("there");
    assert!(left.next().is_none(), "nothing of it is left");
    engine.fails(&["state", "c"], "does not exist");
}

#[test]
fn a_root_is_read_only_where_the_engine_says_so() {
    let engine = Engine::new("sealed");
    engine.config(
        "echo x > /x; echo y > /run/y && cat /run/y; echo z > /data/z; busybox grep -c ' / overlay ro' /proc/mounts",
        "",
    );
    let path = engine.folder.join("bundle/config.json");
    let text = std::fs::read_to_string(&path).expect("written");
    let text = text.replace(r#""path":"rootfs""#, r#""path":"rootfs","readonly":true"#);
    let run = r#""mounts":[{"destination":"/run","type":"tmpfs","options":["tmpcopyup"]},"#;
    std::fs::write(&path, text.replace(r#""mounts":["#, run)).expect("writable");
    let container = engine.create(ID, b"");
    engine.works(&["start", ID]);
    let (output, errors, status) = container.end();
    assert_eq!((output.as_str(), status), ("y\n1\n", 0), "{errors}");
    assert!(errors.contains("/x: Read-only file system"), "{errors}");
    assert_eq!(std::fs::read_to_string(engine.folder.join("data/z")).expect("written"), "z\n");
    engine.works(&["delete", ID]);
}

#[test]
fn what_a_container_writes_is_in_its_root() {
    let engine = Engine::new("written");
    let rootfs = engine.folder.join("bundle/rootfs");
    let run = |id: &str, script: &str, annotation: &str| {
        engine.config(script, &format!(r#","annotations":{{"aegis.root":"{annotation}"}}"#));
        let container = engine.create(id, b"");
        engine.works(&["start", id]);
        let ended = container.end();
        engine.works(&["delete", id]);
        ended
    };
    let write = "echo one > /f; busybox mkdir -p /d/e; busybox ln -s f /d/l; busybox mkfifo /p; (echo through > /p) & \
                 cat /p; busybox test -p /p && echo fifo; busybox grep -c box /etc/hosts; \
                 busybox ls / | busybox grep -c p";
    let (output, errors, status) = run("w", write, "written");
    assert_eq!((output.as_str(), status), ("through\nfifo\n1\n3\n", 0), "{errors}");
    assert_eq!(std::fs::read_to_string(rootfs.join("f")).expect("written"), "one\n");
    assert!(
        rootfs.join("d/e").is_dir() && std::fs::read_link(rootfs.join("d/l")).is_ok_and(|to| to.as_os_str() == "f")
    );
    let hosts = std::fs::read_to_string(rootfs.join("etc/hosts")).expect("a place to mount at");
    assert_eq!(hosts, "", "what is the run's own is not written to the root");
    // As when an engine starts it again; and what the host did meanwhile is there.
    std::fs::write(rootfs.join("g"), "two\n").expect("writable");
    let (output, errors, status) = run("a", "cat /f /g; busybox rm /f; echo three > /g", "written");
    assert_eq!((output.as_str(), status), ("one\ntwo\n", 0), "{errors}");
    assert!(!rootfs.join("f").exists());
    let (output, errors, status) = run("m", "cat /g; echo four > /g; cat /g", "memory");
    assert_eq!((output.as_str(), status), ("three\nfour\n", 0), "{errors}");
    assert_eq!(std::fs::read_to_string(rootfs.join("g")).expect("written"), "three\n");
}

#[test]
fn a_program_begins_with_the_rights_that_its_engine_says() {
    let engine = Engine::new("rights");
    let script = "ulimit -n; ulimit -Hn; umask; cat /proc/self/oom_score_adj; \
                  busybox grep -E '^(CapEff|CapBnd|NoNew)' /proc/self/status; busybox stat -c %a /t; \
                  busybox dd if=/dev/zero of=/t/f bs=1k count=100 2>/dev/null; busybox stat -c %s /t/f";
    engine.config(script, "");
    let path = engine.folder.join("bundle/config.json");
    let text = std::fs::read_to_string(&path).expect("written");
    let rights = r#""process":{"capabilities":{"bounding":["CAP_KILL","CAP_CHOWN"]},"noNewPrivileges":true,
        "oomScoreAdj":7,"rlimits":[{"type":"RLIMIT_NOFILE","soft":100,"hard":200}],"#;
    let tmpfs = r#""mounts":[{"destination":"/t","type":"tmpfs","options":["size=64k","mode=750"]},"#;
    let text = text.replace(r#""process":{"#, rights).replace(r#""mounts":["#, tmpfs);
    std::fs::write(&path, text.replace(r#""uid":0"#, r#""umask":63,"uid":0"#)).expect("writable");
    let container = engine.create(ID, b"");
    engine.works(&["start", ID]);
    let (output, errors, status) = container.end();
    let expected = "100\n200\n0077\n7\nCapEff:\t0000000000000021\nCapBnd:\t0000000000000021\nNoNewPrivs:\t1\n\
                    750\n65536\n";
    assert_eq!((output.as_str(), status), (expected, 0), "{errors}");
    engine.works(&["delete", ID]);
}

#[test]
fn what_cannot_be_kept_fails_at_create_and_leaves_nothing() {
    let engine = Engine::new("refused");
    let bundle = engine.folder.join("bundle").display().to_string();
    engine.config("true", r#","hooks":{"prestart":[{"path":"/bin/false"}]}"#);
    engine.fails(&["create", "--bundle", &bundle, "c"], "hook /bin/false");
    engine.config("true", r#","hooks":{"startContainer":[{"path":"/bin/true"}]}"#);
    engine.fails(&["create", "--bundle", &bundle, "c"], "startContainer");
    std::fs::remove_file(engine.folder.join("bundle/rootfs/bin/sh")).expect("there");
    engine.config("true", "");
    engine.fails(&["create", "--bundle", &bundle, "c"], "executable file not found in $PATH");
    engine.fails(&["create", "--bundle", "/no/such", "c"], "/no/such");
    assert!(std::fs::read_dir(engine.folder.join("run")).is_ok_and(|mut all| all.next().is_none()));
}
