//! The runtime's verbs, as far as they need no machine.

use super::hooks;
use super::spec::Hook;
use super::words;
use serde_json::json;
use std::ffi::OsString;

#[test]
fn the_runtime_is_known_by_name_or_verb() {
    let list = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    assert_eq!(words(&list("/usr/bin/aegis-oci state x")), Some(&list("state x")[..]));
    assert_eq!(words(&list("aegis oci state x")), Some(&list("state x")[..]));
    assert_eq!(words(&list("aegis run x")), None);
    assert_eq!(words(&list("aegis run oci")), None);
}

#[test]
fn hooks_get_the_state_and_have_a_time() {
    let folder = std::env::temp_dir().join(format!("aegis-hooks-{}", std::process::id()));
    let out = folder.join("out");
    std::fs::create_dir_all(&folder).expect("writable");
    let hook = |script: &str, timeout| Hook {
        path: "/bin/sh".into(),
        args: ["sh", "-c", script, "x"].map(Into::into).to_vec(),
        env: Some(vec![format!("OUT={}", out.display()), "PATH=/usr/bin:/bin".into()]),
        timeout,
    };
    hooks::run(&[hook("cat > $OUT", None)], &json!({ "id": "c" })).expect("it ran");
    assert_eq!(std::fs::read_to_string(&out).expect("written"), "{\"id\":\"c\"}");
    let error = hooks::run(&[hook("exit 3", None), hook("rm $OUT", None)], &json!({})).expect_err("failed");
    assert!(error.to_string().contains("exit status: 3") && out.exists(), "{error}");
    let error = hooks::run(&[hook("exec sleep 100", Some(0))], &json!({})).expect_err("too long");
    assert!(error.to_string().contains("timeout"), "{error}");
    // More than a pipe holds, which nobody reads, and more time than there is.
    let state = json!({ "annotations": "x".repeat(1 << 20) });
    let error = hooks::run(&[hook("exec sleep 100", Some(0))], &state).expect_err("too long");
    assert!(error.to_string().contains("timeout"), "{error}");
    hooks::run(&[hook("test $(wc -c) -gt 1000000", Some(u64::MAX))], &state).expect("it ran");
    std::fs::remove_dir_all(folder).expect("ours");
}
