//! Files as they are written for compose, and what is not kept of them.

use super::{Compose, read};
use crate::options::image::PullChoice;
use crate::verb::up_dependencies::{Condition, Dependency};
use aegis_launch::images::source::ImageSource;
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aegis-compose-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("writable");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn compose(folder: &Path, text: &str) -> Result<Compose, String> {
    let data = folder.join("data").display().to_string();
    let environment = [("XDG_DATA_HOME".to_owned(), data), ("TAG".into(), "7".into()), ("GIVEN".into(), "g".into())];
    read(text, folder, environment.into_iter())
}

#[test]
fn a_service_becomes_a_pod() {
    let folder = Folder::new("pod");
    std::fs::write(folder.0.join("vars"), "A=file\nF='f f'\n").expect("writable");
    std::fs::write(folder.0.join(".env"), "PORT=8080\nTAG=never\n").expect("writable");
    let text = r#"
name: shop
services:
  web:
    image: registry.example/web:${TAG}
    command: serve --all "two words"
    entrypoint: ["/entry", "-x"]
    environment: { A: b, GIVEN: , ABSENT: , N: 5 }
    env_file: vars
    ports: ["${PORT}:80", "127.0.0.1:53:53/udp", { target: 90, published: "9090" }]
    volumes: ["./in:/in:ro", "db:/var/lib/db", "/anonymous"]
    user: web:log
    working_dir: /srv
    hostname: box
    mem_limit: 64m
    cpu_shares: 2048
    restart: on-failure:3
    depends_on: [other]
  other:
    image: oci:./layout
    network_mode: none
volumes:
  db:
"#;
    let found = compose(&folder.0, text).expect("understood");
    assert_eq!(found.notes, Vec::<String>::new());
    let (web, other) = (&found.file.pods[0], &found.file.pods[1]);
    assert!(
        matches!(&web.options.image.image, Some(ImageSource::Registry(it)) if it.shown() == "registry.example/web:7")
    );
    assert_eq!(web.words, ["serve", "--all", "two words"]);
    assert_eq!(web.options.image.entrypoint.as_deref(), Some("[\"/entry\",\"-x\"]"));
    assert_eq!(web.options.environment, ["A=file", "F=f f", "A=b", "GIVEN=g", "N=5"]);
    assert_eq!(web.options.network.publications().count(), 3);
    let volumes: Vec<_> = web.options.volumes.iter().map(|it| (it.host.clone(), it.is_read_only)).collect();
    assert_eq!(volumes, [(folder.0.join("./in"), true), (folder.0.join("data/aegis/volumes/shop_db"), false)]);
    assert_eq!(found.directories, [folder.0.join("./in"), folder.0.join("data/aegis/volumes/shop_db")]);
    assert!(volumes.iter().all(|(path, _)| !path.exists()), "reading makes nothing");
    assert_eq!(web.options.image.user.as_deref(), Some("web:log"));
    assert_eq!((web.options.memory, web.tickets, other.tickets), (64 << 20, 2048, 1024));
    assert!(web.restart.is_ever() && !other.restart.is_ever());
    assert!(matches!(&other.options.image.image, Some(ImageSource::Layout(path, None)) if path.is_absolute()));
}

#[test]
fn flags_are_true_or_false_and_nothing_else() {
    let folder = Folder::new("flags");
    let volume = |value: &str| {
        format!("services:\n  a:\n    image: x\n    volumes: [{{source: ./d, target: /d, read_only: {value}}}]\n")
    };
    for (value, expected) in [("true", true), ("True", true), ("TRUE", true), ("'true'", true), ("False", false)] {
        let found = compose(&folder.0, &volume(value)).expect(value);
        assert_eq!(found.file.pods[0].options.volumes[0].is_read_only, expected, "{value}");
    }
    for value in ["yes", "1", "tRUE", "''", "[true]"] {
        let error = compose(&folder.0, &volume(value)).expect_err(value);
        assert!(error.contains("line 4: volumes: read_only"), "{error}");
    }
    let service = |line: &str| compose(&folder.0, &format!("services:\n  a:\n    image: x\n    {line}\n"));
    for (line, expected) in [("./d:/d:ro", true), ("./d:/d:z,ro", true), ("./d:/d:rw", false), ("./d:/d", false)] {
        let found = service(&format!("volumes: ['{line}']")).expect(line);
        assert_eq!(found.file.pods[0].options.volumes[0].is_read_only, expected, "{line}");
    }
    for line in ["volumes: ['./d:/d:RO']", "volumes: ['./d:/d:ro:x']", "tty: maybe", "privileged: 'no'"] {
        service(line).expect_err(line);
    }
    for line in ["privileged: TRUE", "env_file: [{path: none, required: TRUE}]"] {
        service(line).expect_err(line);
    }
    for line in ["privileged: False", "devices: []", "env_file: [{path: none, required: False}]", "tty: FALSE"] {
        assert_eq!(service(line).expect(line).notes, Vec::<String>::new(), "{line}");
    }
}

#[test]
fn volumes_of_a_project_stay_in_their_folder() {
    let parent = Folder::new("projects");
    let text = |name: &str| format!("{name}services:\n  a: {{image: x, volumes: ['db:/d']}}\n");
    for name in ["../../x", "/x", "X", "a/b", "-a", "''", "..", "a.b", "[a]"] {
        let error = compose(&parent.0, &text(&format!("name: {name}\n"))).expect_err(name);
        assert!(error.starts_with("line 1: name:"), "{error}");
    }
    for (folder, expected) in [("My.App", "myapp_db"), ("__x-1", "x-1_db")] {
        let folder = parent.0.join(folder);
        let found = compose(&folder, &text("")).expect("understood");
        assert_eq!(found.directories, [folder.join("data/aegis/volumes").join(expected)]);
    }
    assert!(compose(&parent.0.join("..."), &text("")).expect_err("no name").contains("name:"));
}

#[test]
fn what_may_change_and_what_ends_a_service_is_kept() {
    let folder = Folder::new("ends");
    let text = "services:\n  a:\n    image: x\n    read_only: true\n    tmpfs: [/run, '/var/x:rw']\n    \
                stop_signal: SIGQUIT\n    volumes: [{type: tmpfs, target: /cache}]\n";
    let found = compose(&folder.0, text).expect("understood");
    let options = &found.file.pods[0].options;
    assert!(found.notes.is_empty() && options.read_only, "{:?}", found.notes);
    let places: Vec<_> = options.temporaries.iter().map(|it| it.path.as_slice()).collect();
    assert_eq!(options.image.stop_signal, Some(3));
    assert_eq!(places, [&b"/run"[..], b"/var/x", b"/cache"]);
    for line in ["tmpfs: /", "tmpfs: '/x:size=1x'", "stop_signal: NONE", "read_only: 1"] {
        compose(&folder.0, &format!("services:\n  a:\n    image: x\n    {line}\n")).expect_err(line);
    }
}

#[test]
fn health_checks_are_read() {
    let folder = Folder::new("health");
    let read = |check: &str| {
        let text = format!("services:\n  a:\n    image: x\n    healthcheck: {check}\n");
        let options = compose(&folder.0, &text).map(|found| found.file.pods[0].options.image.clone())?;
        Ok::<_, String>(options.health.settle(options.health_check))
    };
    let check = read("{test: curl x, interval: 1m1.5s, timeout: 500ms, retries: 4}").expect("sound").expect("one");
    assert_eq!(check.words, ["/bin/sh", "-c", "curl x"]);
    assert_eq!((check.interval.as_millis(), check.timeout.as_millis(), check.retries), (61_500, 500, 4));
    assert_eq!(read("{test: [CMD, a, b]}").expect("sound").expect("one").words, ["a", "b"]);
    assert_eq!((read("{test: [NONE]}"), read("{disable: true, test: x}")), (Ok(None), Ok(None)));
    for wrong in ["[]", "{test: [x]}", "{interval: 5}", "{interval: 1x}", "{retries: 0}", "{disable: maybe}"] {
        read(wrong).expect_err(wrong);
    }
}

#[test]
fn what_a_service_waits_for_is_kept() {
    let folder = Folder::new("waits");
    let text = "services:\n  a:\n    image: x\n    depends_on:\n      b:\n        condition: \
                service_completed_successfully\n      c: {condition: service_healthy, required: false}\n      \
                d: {required: false}\n  b: {image: x, depends_on: [c]}\n\
                \x20 c: {image: x}\n  d: {image: x, profiles: [p]}\n";
    let found = compose(&folder.0, text).expect("understood");
    let one = |pod, condition, is_required| Dependency { pod, condition, is_required };
    let expected = [one(1, Condition::Completed, true), one(2, Condition::Healthy, false)];
    assert_eq!((found.file.pods[0].dependencies.as_slice(), found.notes.len()), (&expected[..], 0));
    assert_eq!(found.file.pods[1].dependencies, [one(2, Condition::Started, true)]);
}

#[test]
fn each_key_that_is_not_kept_is_named_with_its_line() {
    let folder = Folder::new("named");
    let text = "services:\n  a:\n    image: x\n    cap_add: [ALL]\n    healthcheck: {test: x, start_interval: 1s}\n    \
                depends_on: {b: {condition: service_healthy, restart: true}}\n    environment: [A=$NOWHERE]\n  b: \
                {image: y}\n\
                networks: {}\nx-mine: 1\nvolumes: {v: {external: true}}\n";
    let notes = compose(&folder.0, text).expect("understood").notes.join("\n");
    for part in [
        "line 4: services.a.cap_add is not kept",
        "line 5: services.a.healthcheck.start_interval is not kept",
        "line 6: services.a.depends_on.b.restart is not kept",
        "networks is not kept",
        "NOWHERE is not set",
    ] {
        assert!(notes.contains(part), "{part} in {notes}");
    }
    assert!(!notes.contains("x-mine") && notes.contains("volumes.v.external is not kept"));
    for (line, key) in [
        ("pull_policy: daily", "pull_policy: daily"),
        ("tty: true", "tty"),
        ("stdin_open: True", "stdin_open"),
        ("init: true", "init"),
        ("container_name: c", "container_name"),
        ("labels: [a=b]", "labels"),
        ("expose: ['80']", "expose"),
        ("ports: [{target: 80, mode: host}]", "ports.mode"),
        ("volumes: [{type: bind, source: ., target: /d, bind: {propagation: shared}}]", "volumes.bind"),
        ("deploy: {resources: {limits: {memory: 64m}, reservations: {memory: 1g}}}", "deploy.resources.reservations"),
    ] {
        let text = format!("services:\n  a:\n    image: x\n    {line}\n");
        let notes = compose(&folder.0, &text).expect(line).notes;
        assert_eq!(notes, [format!("line 4: services.a.{key} is not kept")]);
    }
    for (policy, expected) in [("always", PullChoice::Always), ("never", PullChoice::Never)] {
        let text = format!("services:\n  a: {{image: x, pull_policy: {policy}}}\n");
        assert_eq!(compose(&folder.0, &text).expect(policy).file.pods[0].options.image.pull, expected);
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let folder = Folder::new("wrong");
    let service = |text: &str| format!("services:\n  a:\n    image: x\n    {text}\n");
    for (text, part) in [
        (service("privileged: true"), "line 4: privileged"),
        (service("devices: [/dev/kvm]"), "line 4: devices"),
        (service("ports: [nonsense]"), "line 4: ports"),
        (service("volumes: ['a b:/x']"), "line 4: volumes"),
        (service("volumes: ['./x:../y']"), "line 4: volumes"),
        (service("command: \"it's\""), "line 4: command"),
        (service("env_file: missing"), "line 4: env_file"),
        (service("mem_limit: much"), "line 4: mem_limit"),
        (service("restart: perhaps"), "line 4: restart"),
        (service("depends_on: [b]"), "line 4: depends_on: b: there is none"),
        (service("depends_on: {a: {condition: service_healthy}}"), "line 4: depends_on: a waits for itself"),
        (
            service("depends_on: {a: {condition: healthy}}"),
            "line 4: depends_on: a: condition: healthy: service_started",
        ),
        (service("hostname: ${X:?is needed}"), "is needed"),
        ("services:\n  a:\n    build: .\n".into(), "aegis images build"),
        ("services:\n  a: {command: x}\n".into(), "no image"),
        ("services:\n  a.b: {image: x}\n".into(), "a service's name"),
        ("services: {}\n".into(), "no services"),
        ("x: [\n".into(), "line"),
        ("services:\n  a: {image: x, profiles: [p]}\n".into(), "profile"),
        ("services:\n  a: {image: ../X}\n".into(), "image"),
    ] {
        let error = compose(&folder.0, &text).expect_err(part);
        assert!(error.contains(part), "{error}, without {part}");
    }
}
