//! Files as users write them.

use std::ffi::OsString;
use std::path::Path;

use super::{UpFile, parse};
use crate::options::network::NetworkChoice;
use crate::verb::up_dependencies::{Condition, Dependency};

fn good(text: &str) -> UpFile {
    parse(text, Path::new("/f")).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    match parse(text, Path::new("/f")) {
        Err(error) => error.to_string(),
        Ok(file) => panic!("{text}: {file:?}"),
    }
}

#[test]
fn a_pod_needs_only_a_program() {
    let file = good("[pod.web]\nprogram = \"busybox\"\n");
    assert_eq!((file.cpus, file.memory, file.slice_ms), (1, None, None));
    let pod = &file.pods[0];
    assert_eq!((pod.name.as_str(), pod.tickets, pod.options.memory), ("web", 1000, 256 << 20));
    assert_eq!(pod.words, ["busybox"]);
    assert_eq!(pod.options.working_directory.as_deref(), Some(Path::new("/")));
    assert!(pod.options.view.bare, "a pod sees nothing of the host unasked");
    assert!(pod.options.root.is_none() && !pod.options.pack && pod.options.environment.is_empty());
}

#[test]
fn a_pod_has_a_card_if_its_table_says_so() {
    let options = |keys: &str| {
        let mut file = good(&format!("[pod.a]\nprogram = \"ls\"\n{keys}"));
        file.pods.remove(0).options.network
    };
    assert_eq!(options("").network, Some(NetworkChoice::None));
    assert_eq!(options("network = \"tap=t\"").network, Some(NetworkChoice::Tap(Some("t".into()))));
    let given = options(
        "ports = [\"8080:80\", \"0:53-54/udp\"]\nhost_access = true\ndns = [\"192.0.2.1\"]\nhosts = [\"db:192.0.2.7\"]",
    );
    assert_eq!((given.network.clone(), given.publications().count()), (None, 3));
    assert!(given.host_access && given.dns.len() == 1 && given.add_host[0].name == b"db");
    let given = options(
        "network = \"user\"\nip = [\"10.9.0.7/24\", \"fec0::7\"]\nmac = \"02:00:00:00:00:07\"\nhostname = \"w\"\n\
         pcap = \"w.pcap\"\ngateway = [\"10.9.0.1\"]",
    );
    assert_eq!((given.ip.len(), given.ip[0].prefix_bits, given.gateway.len()), (2, 24, 1));
    assert_eq!((given.mac, given.hostname.as_deref()), (Some([2, 0, 0, 0, 0, 7]), Some("w")));
    assert!(given.pcap.is_some_and(|path| path.is_absolute() && path.ends_with("w.pcap")));
    for (keys, part) in [
        ("drivers = [\"net=kernel:ide\"]", "drivers: net: a driver's model is one of virtio, e1000, e1000e"),
        ("ip = \"10.9.0.7\"", "ip: a list of strings is wanted"),
        ("ip = [\"10.9.0\"]", "ip: an address"),
        ("mac = \"2\"", "mac: "),
        ("hostname = \"a b\"", "hostname: "),
        ("ports = \"8080:80\"", "ports: a list of strings is wanted"),
        ("ports = [\"80\"]", "line 3: ports: a port is [ADDRESS:]HOST:GUEST"),
        ("network = \"lan\"", "network: one of user, none, serve"),
        ("host_access = 1", "host_access: true or false is wanted"),
        ("dns = [\"x\"]", "dns: an address"),
        ("hosts = [\"db\"]", "hosts: NAME:ADDRESS"),
        ("port = 1", "known here: program, args"),
    ] {
        let why = refusal(&format!("[pod.a]\nprogram = \"ls\"\n{keys}\n"));
        assert!(why.contains(part), "{keys}: {why}");
    }
}

#[test]
fn every_key() {
    let file = good(
        r#"
[machine]
cpus = 4
memory = "2G"
slice_ms = 1

[pod.zebra]
program = "sh"
args = ["-c", "true"]
root = "root/../r"
pack = true
volumes = ["data:/data:ro", "/abs:/x"]
with = ["./conf:/etc/conf"]
env = { A = "1", B = "" }
workdir = "/tmp"
memory = "64M"
tickets = 3

[pod.a]
program = "ls"
memory = 33554432
[pod.a.env]
C = "x y"
"#,
    );
    assert_eq!((file.cpus, file.memory, file.slice_ms), (4, Some(2 << 30), Some(1)));
    let names: Vec<&str> = file.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["zebra", "a"], "the file's order, not the alphabet's");
    let pod = &file.pods[0];
    assert_eq!(pod.words, ["sh", "-c", "true"]);
    assert_eq!(pod.options.root.as_deref(), Some(Path::new("/f/r")));
    assert!(pod.options.pack);
    let volumes: Vec<_> = pod.options.volumes.iter().map(|it| (it.host.as_path(), it.is_read_only)).collect();
    assert_eq!(volumes, [(Path::new("/f/data"), true), (Path::new("/abs"), false)]);
    assert_eq!(pod.options.with[0].host, Path::new("/f/conf"));
    assert_eq!(pod.options.environment, [OsString::from("A=1"), OsString::from("B=")]);
    assert_eq!((pod.options.memory, pod.tickets), (64 << 20, 3));
    assert_eq!(file.pods[1].options.memory, 32 << 20);
    assert_eq!(file.pods[1].options.environment, [OsString::from("C=x y")]);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    const POD: &str = "[pod.a]\nprogram = \"ls\"\n";
    for (text, line, word) in [
        ("", 1, "no pod"),
        ("[machine]\ncpus = 1\n", 1, "no pod"),
        ("[pod.a]\n", 1, "no program"),
        ("[pod.a]\nprogram = \"\"\n", 2, "empty"),
        ("[pod.a]\nprogram = 3\n", 2, "string"),
        ("[pod.\"a b\"]\nprogram = \"ls\"\n", 1, "name"),
        ("pod = 3\n", 1, "table"),
        ("[pods.a]\nprogram = \"ls\"\n", 1, "pods: unknown"),
        ("[pod.a]\nprogram = \"ls\"\nporgram = 1\n", 3, "porgram: unknown"),
        (&format!("[machine]\ncpu = 1\n{POD}"), 2, "cpu: unknown"),
        (&format!("[machine]\ncpus = 9\n{POD}"), 2, "1 to 8"),
        (&format!("[machine]\ncpus = \"2\"\n{POD}"), 2, "whole number"),
        (&format!("[machine]\nslice_ms = 0\n{POD}"), 2, "1 to 100"),
        (&format!("[machine]\nmemory = \"1M\"\n{POD}"), 2, "at least 8M"),
        (&format!("{POD}tickets = 0\n"), 3, "tickets"),
        (&format!("{POD}tickets = -5\n"), 3, "tickets"),
        (&format!("{POD}tickets = 99999999999\n"), 3, "tickets"),
        (&format!("{POD}tickets = 1.5\n"), 3, "tickets"),
        (&format!("{POD}memory = \"64X\"\n"), 3, "memory"),
        (&format!("{POD}memory = -1\n"), 3, "memory"),
        (&format!("{POD}args = \"-l\"\n"), 3, "list of strings"),
        (&format!("{POD}args = [\n  \"-l\",\n  3,\n]\n"), 5, "string"),
        (&format!("{POD}volumes = [\"/a\"]\n"), 3, "HOST:GUEST"),
        (&format!("{POD}pack = true\n"), 1, "pack needs a root"),
        (&format!("{POD}env = [\"A=1\"]\n"), 3, "table"),
        (&format!("{POD}env = {{ \"A=\" = \"1\" }}\n"), 3, "name"),
        (&format!("{POD}restart = \"maybe\"\n"), 3, "restart: \"no\""),
        (&format!("{POD}currency = \"shop\"\n"), 3, "currency: shop: no such currency; write [currency.shop]"),
        (&format!("{POD}currency = 3\n"), 3, "string"),
        (&format!("{POD}[currency.shop]\ntickets = 0\n"), 4, "1 to 2147483648"),
        (&format!("{POD}[currency.shop]\ntickets = -1\n"), 4, "1 to 2147483648"),
        (&format!("{POD}[currency.shop]\ntickets = 2147483649\n"), 4, "1 to 2147483648"),
        (&format!("{POD}[currency.shop]\nfund = \"x\"\n"), 4, "fund: unknown; known here: tickets, funds"),
        (&format!("{POD}[currency.shop]\nfunds = \"x\"\n"), 4, "funds: x: no such currency"),
        (&format!("{POD}[currency.shop]\nfunds = \"shop\"\n"), 4, "a cycle, shop funds shop"),
        (&format!("{POD}[currency.x]\nfunds = \"y\"\n[currency.y]\nfunds = \"x\"\n"), 4, "a cycle, x funds y funds x"),
        (&format!("{POD}[currency.a]\n"), 3, "a: a pod and a currency cannot have one name"),
        (&format!("{POD}[currency.base]\n"), 3, "base: the machine's own"),
        (&format!("{POD}[currency.\"a b\"]\n"), 3, "a currency's name"),
        (&format!("{POD}[currency.shop]\n[currency.shop]\n"), 4, "redefinition"),
        (&format!("{POD}program = \"ls\"\n"), 3, "duplicate"),
        ("[pod.a\n", 1, ""),
        ("[pod.a]\nprogram = \"ls\nargs = []\n", 2, ""),
    ] {
        let found = refusal(text);
        assert!(found.starts_with(&format!("line {line}: ")) && found.contains(word), "{text:?}: {found}");
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn currencies_pay_for_pods_and_for_each_other() {
    let file = good(
        r#"
[pod.a1]
program = "ls"
tickets = 100
currency = "a"
[pod.rest]
program = "ls"
currency = "base"
[currency.a]
tickets = 7
funds = "all"
[currency.all]
"#,
    );
    let names: Vec<_> = file.currencies.iter().map(|it| (it.name.as_str(), it.tickets, it.payer)).collect();
    assert_eq!(names, [("all", 1000, None), ("a", 7, Some(0))]);
    assert_eq!(file.pods.iter().map(|pod| pod.payer).collect::<Vec<_>>(), [Some(1), None]);
    assert!(good("[pod.web]\nprogram = \"busybox\"\n").currencies.is_empty());
}

#[test]
fn there_is_a_limit_of_pods() {
    let pods = |count: usize| (0..count).map(|n| format!("[pod.p{n}]\nprogram = \"ls\"\n")).collect::<String>();
    assert_eq!(good(&pods(13)).pods.len(), 13);
    assert!(refusal(&pods(14)).contains("at most 13"));
}

#[test]
fn pods_wait_for_others() {
    let pods = |keys: &str| format!("[pod.a]\nprogram = \"x\"\n{keys}[pod.b]\nprogram = \"x\"\n");
    let file = good(&pods("depends_on = [\"b:service_healthy\"]\n"));
    let expected = [Dependency { pod: 1, condition: Condition::Healthy, is_required: true }];
    assert_eq!((file.pods[0].dependencies.as_slice(), file.pods[1].dependencies.len()), (&expected[..], 0));
    for (keys, part) in [
        ("depends_on = \"b\"\n", "line 3: depends_on: a list of strings is wanted"),
        ("depends_on = [\"c\"]\n", "line 3: depends_on: c: there is none"),
        ("depends_on = [\"a\"]\n", "line 3: depends_on: a waits for itself"),
        ("depends_on = [\"b:well\"]\n", "line 3: depends_on: well: service_started"),
    ] {
        let error = refusal(&pods(keys));
        assert!(error.contains(part), "{error}, without {part}");
    }
}
