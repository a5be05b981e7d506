//! What of a configuration a machine keeps, and what is refused.

use super::{Network, Plan, Spec};
use aegis_launch::images::accounts::Identity;
use std::path::Path;

fn plan(change: impl FnOnce(&mut serde_json::Value)) -> Result<Plan, String> {
    let mut config = serde_json::json!({
        "ociVersion": "1.0.2",
        "root": { "path": "rootfs" },
        "process": {
            "args": ["sh", "-c", "x y"], "cwd": "/w", "env": ["PATH=/bin", "A=b c"],
            "user": { "uid": 5, "gid": 6, "additionalGids": [7] },
        },
        "linux": { "namespaces": [{ "type": "network" }] },
    });
    change(&mut config);
    let spec =
        Spec::parse(Path::new("config.json"), config.to_string().as_bytes()).map_err(|error| error.to_string())?;
    spec.plan(Path::new("/b")).map_err(|error| error.to_string())
}

fn words(plan: &Plan) -> String {
    plan.words.iter().map(|word| format!("{}|", word.to_string_lossy())).collect()
}

#[test]
fn a_container_becomes_the_words_of_a_run() {
    let plain = plan(|_| {}).expect("a plan");
    assert_eq!(
        words(&plain),
        "aegis|run|--quiet|--root|/b/rootfs|-w|/w|--network|none|-e|PATH=/bin|-e|A=b c|--|sh|-c|x y|"
    );
    assert_eq!((plain.network, plain.has_terminal), (Network::None, false));
    assert_eq!(plain.identity, Identity { uid: 5, gid: 6, groups: vec![7], home: None });
    let full = plan(|config| {
        config["hostname"] = "box".into();
        config["process"]["terminal"] = true.into();
        config["linux"]["namespaces"] = serde_json::json!([{ "type": "network", "path": "/run/netns/x" }]);
        config["linux"]["resources"] = serde_json::json!({
            "memory": { "limit": 67_108_864 }, "cpu": { "shares": 512, "quota": 150_000, "period": 100_000 },
        });
        config["mounts"] = serde_json::json!([
            { "destination": "/proc", "type": "proc" },
            { "destination": "/tmp", "type": "tmpfs" },
            { "destination": "/etc/hosts", "type": "bind", "source": "/x/hosts" },
            { "destination": "/data", "type": "none", "source": "here", "options": ["rbind", "ro"] },
        ]);
    })
    .expect("a plan");
    let text = words(&full);
    for part in
        ["|-v|/b/here:/data:ro|", "|--hostname|box|", "|-m|67108864|", "|--cpus|2|", "|--tickets|512|", "|-t|--|"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("/etc/hosts"));
    assert_eq!(full.network, Network::Joined("/run/netns/x".into()));
}

#[test]
fn what_may_change_is_as_the_engine_says() {
    let mounts = serde_json::json!([
        { "destination": "/run", "type": "tmpfs", "options": ["rw", "tmpcopyup"] },
        { "destination": "/cache/", "type": "tmpfs" },
    ]);
    let plain = plan(|config| config["mounts"] = mounts.clone()).expect("a plan");
    assert!(words(&plain).contains("|--tmpfs|/cache|-w|") && !words(&plain).contains("read-only"), "{plain:?}");
    assert!(!words(&plain).contains("/run"), "what the root has there is seen, and may be written over");
    let sealed = plan(|config| {
        config["root"]["readonly"] = true.into();
        config["mounts"] = mounts;
    });
    let text = words(&sealed.expect("a plan"));
    assert!(text.contains("|--tmpfs|/run|--tmpfs|/cache|") && text.contains("|--read-only|--|"), "{text}");
}

#[test]
fn ports_that_an_annotation_names_lead_in() {
    let with = |ports: &str, namespaces: serde_json::Value| {
        plan(|config| {
            config["annotations"] = serde_json::json!({ "aegis.ports": ports });
            config["linux"]["namespaces"] = namespaces;
        })
    };
    let joined = || serde_json::json!([{ "type": "network", "path": "/run/netns/x" }]);
    let text = words(&with("80, 53/udp,9000-9010/tcp", joined()).expect("a plan"));
    let expected = "|--network|user|-p|0.0.0.0:80:80|-p|0.0.0.0:53:53/udp|-p|0.0.0.0:9000-9010:9000-9010|";
    assert!(text.contains(expected), "{text}");
    assert!(words(&with("80", serde_json::json!([])).expect("a plan")).contains("0.0.0.0:80:80"));
    for wrong in ["", "80,", "x", "80/sctp", "127.0.0.1:80", "80 -v /:/x"] {
        assert!(with(wrong, joined()).expect_err(wrong).contains("aegis.ports"), "{wrong}");
    }
    let none = serde_json::json!([{ "type": "network" }]);
    assert!(with("80", none).expect_err("no network").contains("no network"));
}

#[test]
fn what_cannot_be_kept_is_named() {
    type Change = fn(&mut serde_json::Value);
    let cases: [(Change, &str); 11] = [
        (|it| it["ociVersion"] = "2.0.0".into(), "ociVersion"),
        (|it| it["process"]["args"] = serde_json::json!([]), "process.args"),
        (|it| it["process"]["cwd"] = "w".into(), "process.cwd"),
        (|it| it["process"]["user"]["uid"] = u32::MAX.into(), "process.user: 4294967295"),
        (
            |it| it["process"]["user"]["additionalGids"] = serde_json::json!([2_147_483_648_u32]),
            "process.user: 2147483648",
        ),
        (|it| it["linux"]["namespaces"] = serde_json::json!([{ "type": "user" }]), "user"),
        (|it| it["linux"]["devices"] = serde_json::json!([{ "path": "/dev/kvm" }]), "/dev/kvm"),
        (|it| it["mounts"] = serde_json::json!([{ "destination": "/x", "type": "nfs" }]), "nfs"),
        (|it| it["mounts"] = serde_json::json!([{ "destination": "/x", "type": "proc" }]), "usual place"),
        (|it| it["mounts"] = serde_json::json!([{ "destination": "../x", "type": "bind" }]), "absolute path"),
        (|it| it["hooks"] = serde_json::json!({ "startContainer": [{ "path": "/x" }] }), "startContainer"),
    ];
    for (change, part) in cases {
        let error = plan(change).expect_err(part);
        assert!(error.contains(part), "{error}, without {part}");
    }
}
