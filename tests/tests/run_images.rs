//! Images in a machine: what `podman run` would do with the same words.

use std::path::{Path, PathBuf};

use aegis_tests::programs::{Ended, aegis, host};

/// An archive as `docker save` writes it: busybox, a user with groups, a file of that user's, and a whiteout.
struct Archive {
    folder: PathBuf,
}

fn must(command: &[&str]) -> String {
    let ended = host(command, b"");
    assert_eq!(ended.status, 0, "{command:?}: {}", ended.errors);
    String::from_utf8(ended.output).expect("text")
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("below a folder")).expect("writable");
    std::fs::write(path, text).expect("writable");
}

impl Archive {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("aegis-image-{}-{test}", std::process::id()));
        let (lower, upper, saved) = (folder.join("lower"), folder.join("upper"), folder.join("saved"));
        for path in [lower.join("bin"), lower.join("tmp"), saved.clone()] {
            std::fs::create_dir_all(path).expect("writable");
        }
        std::fs::copy(must(&["which", "busybox"]).trim(), lower.join("bin/busybox")).expect("busybox is there");
        for name in ["sh", "id", "env", "cat", "ls", "pwd", "echo"] {
            std::os::unix::fs::symlink("busybox", lower.join("bin").join(name)).expect("writable");
        }
        write(&lower.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:33:44::/srv:/bin/sh\n");
        write(&lower.join("etc/group"), "root:x:0:\nweb:x:44:\nlog:x:4:web\n");
        write(&lower.join("etc/gone"), "x");
        write(&upper.join("etc/.wh.gone"), "");
        write(&upper.join("srv/own"), "mine\n");
        let tar = |from: &Path, to: &str, owner: &str| {
            let (from, to) = (from.display().to_string(), saved.join(to).display().to_string());
            let (user, group) = (format!("--owner={owner}"), format!("--group={owner}"));
            must(&["tar", "-C", &from, &user, &group, "--numeric-owner", "-cf", &to, "."]);
            must(&["sha256sum", &to]).split(' ').next().expect("digits").to_owned()
        };
        let (one, two) = (tar(&lower, "one.tar", "0"), tar(&upper, "two.tar", "33"));
        write(
            &saved.join("config.json"),
            &format!(
                r#"{{"architecture":"amd64","os":"linux","config":{{"User":"web","Env":["PATH=/bin","A=image"],
                "Entrypoint":["/bin/sh","-c"],"Cmd":["id; pwd; echo $A $HOME; cat /srv/own; ls /etc"],
                "WorkingDir":"/work"}},"rootfs":{{"type":"layers","diff_ids":["sha256:{one}","sha256:{two}"]}}}}"#
            ),
        );
        let list = r#"[{"Config":"config.json","RepoTags":["web:1"],"Layers":["one.tar","two.tar"]}]"#;
        write(&saved.join("manifest.json"), list);
        let archive = folder.join("web.tar").display().to_string();
        must(&["tar", "-C", &saved.display().to_string(), "-cf", &archive, "."]);
        Self { folder }
    }

    fn run(&self, options: &[&str], words: &[&str]) -> Ended {
        let source = format!("docker-archive:{}", self.folder.join("web.tar").display());
        let all: Vec<&str> = ["--quiet", "--image", &source].iter().chain(options).copied().collect();
        aegis(&all, words, b"")
    }

    fn prints(&self, options: &[&str], words: &[&str], output: &str, status: i32) {
        let ended = self.run(options, words);
        let text = String::from_utf8_lossy(&ended.output).into_owned();
        assert_eq!((text.as_str(), ended.status), (output, status), "{options:?} {words:?}: {}", ended.errors);
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn an_image_runs_as_it_says() {
    let archive = Archive::new("says");
    let lines = "uid=33(web) gid=44(web) groups=4(log),44(web)\n/work\nimage /srv\nmine\n";
    let ended = archive.run(&[], &[]);
    let text = String::from_utf8_lossy(&ended.output).into_owned();
    assert!(text.starts_with(lines) && !text.contains("gone"), "{text} {}", ended.errors);
    assert_eq!(ended.status, 0);
}

#[test]
fn what_the_user_says_wins() {
    let archive = Archive::new("wins");
    archive.prints(&[], &["exit 7"], "", 7);
    archive.prints(&["-e", "A=mine", "-w", "/srv"], &["echo $A; pwd"], "mine\n/srv\n", 0);
    archive.prints(&["-u", "0"], &["id -u; id -G"], "0\n0\n", 0);
    archive.prints(&["--user", "web:4"], &["id -g; id -G"], "4\n4\n", 0);
    archive.prints(&["--entrypoint", "/bin/echo"], &["a", "b"], "a b\n", 0);
    archive.prints(&["--entrypoint", ""], &["id", "-u"], "33\n", 0);
    let ended = archive.run(&["-u", "nobody"], &[]);
    assert!(ended.status == 126 && ended.errors.contains("nobody"), "{}", ended.errors);
    let ended = archive.run(&["--entrypoint", ""], &["nosuch"]);
    assert_eq!(ended.status, 127, "{}", ended.errors);
}

#[test]
fn an_archive_of_docker_is_no_root_and_says_what_is() {
    let archive = Archive::new("root");
    let path = archive.folder.join("web.tar").display().to_string();
    let ended = aegis(&["--root", &path], &["/bin/sh"], b"");
    assert!(ended.status == 125 && ended.errors.contains("--image docker-archive:"), "{}", ended.errors);
}
