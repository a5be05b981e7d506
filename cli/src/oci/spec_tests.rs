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
    spec.plan(Path::new("/b"), true).map_err(|error| error.to_string())
}

fn words(plan: &Plan) -> String {
    plan.words.iter().map(|word| format!("{}|", word.to_string_lossy())).collect()
}

#[test]
fn a_container_becomes_the_words_of_a_run() {
    let plain = plan(|_| {}).expect("a plan");
    assert_eq!(
        words(&plain),
        "aegis|run|--quiet|--first-process|--root|/b/rootfs|--write-root|-w|/w|--network|none|-e|PATH=/bin|-e|A=b c|\
         --|sh|-c|x y|"
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
    let folder = std::env::temp_dir().join(format!("aegis-spec-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("rootfs/run/lock")).expect("writable");
    std::fs::create_dir_all(folder.join("rootfs/empty")).expect("writable");
    let mounts = serde_json::json!([
        { "destination": "/run", "type": "tmpfs", "options": ["rw", "tmpcopyup"] },
        { "destination": "/empty", "type": "tmpfs", "options": ["rw", "tmpcopyup", "noexec"] },
        { "destination": "/cache/", "type": "tmpfs", "options": ["size=65536k", "mode=755", "nodev"] },
    ]);
    let plan = |change: &dyn Fn(&mut serde_json::Value)| {
        plan(|config| {
            config["root"]["path"] = folder.join("rootfs").to_str().into();
            config["mounts"] = mounts.clone();
            change(config);
        })
    };
    let text = words(&plan(&|_| {}).expect("a plan"));
    assert!(text.contains("|--tmpfs|/empty|--tmpfs|/cache:size=65536k,mode=755|-w|"), "{text}");
    assert!(!text.contains("/run") && !text.contains("read-only"), "what the root has there is seen: {text}");
    let sealed = words(&plan(&|config| config["root"]["readonly"] = true.into()).expect("a plan"));
    assert!(sealed.contains("|--tmpfs|/run|--tmpfs|/empty|") && sealed.contains("|--read-only|--|"), "{sealed}");
    let annotated = |kind: &str, read_only: bool| {
        plan(&|config| {
            config["annotations"] = serde_json::json!({ "aegis.root": kind });
            config["root"]["readonly"] = read_only.into();
        })
    };
    assert!(words(&annotated("written", false).expect("a plan")).contains("|--write-root|"));
    for text in [sealed, words(&annotated("memory", false).expect("a plan"))] {
        assert!(!text.contains("write-root"), "{text}");
    }
    assert!(annotated("written", true).expect_err("sealed").contains("read-only"));
    assert!(annotated("x", false).expect_err("no such").contains("written or memory"));
    std::fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn rights_and_limits_are_kept() {
    let plain = plan(|_| {}).expect("a plan");
    assert_eq!(plain.rights, aegis_link::rights::Rights::default());
    let full = plan(|config| {
        let process = &mut config["process"];
        process["capabilities"] = serde_json::json!({ "bounding": ["CAP_KILL"], "effective": ["CAP_KILL"] });
        process["rlimits"] = serde_json::json!([{ "type": "RLIMIT_NOFILE", "soft": 20, "hard": 30 }]);
        process["noNewPrivileges"] = true.into();
        process["oomScoreAdj"] = (-5).into();
        process["user"]["umask"] = 0o77.into();
    });
    let rights = full.expect("a plan").rights;
    assert_eq!(rights.capabilities.map(|sets| sets.bounding), Some(1 << 5));
    assert_eq!((rights.limits[0].resource, rights.limits[0].soft), (7, 20));
    assert_eq!((rights.no_new_privileges, rights.out_of_memory_adjust, rights.umask), (true, Some(-5), Some(0o77)));
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
    let cases: [(Change, &str); 13] = [
        (|it| it["process"]["rlimits"] = serde_json::json!([{ "type": "X", "soft": 1, "hard": 1 }]), "rlimits"),
        (
            |it| {
                let options = serde_json::json!(["size=x"]);
                it["mounts"] = serde_json::json!([{ "destination": "/x", "type": "tmpfs", "options": options }]);
            },
            "mounts: /x",
        ),
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
