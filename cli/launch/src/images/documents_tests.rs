//! Documents as others make them, and as an attacker would.

use super::{Descriptor, Document, choose, document, image_config};
use crate::images::errors::ImageError;

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn blob(more: &str) -> String {
    format!("{{\"digest\":\"{DIGEST}\",\"size\":3{more}}}")
}

fn entries(of: &[String]) -> Vec<Descriptor> {
    let text = format!("{{\"schemaVersion\":2,\"manifests\":[{}]}}", of.join(","));
    match document("index", text.as_bytes(), None).expect("an index") {
        Document::Index(entries) => entries,
        Document::Manifest { .. } => panic!("an index"),
    }
}

#[test]
fn a_document_is_one_thing() {
    let manifest = format!("\"config\":{0},\"layers\":[{0}]", blob(""));
    let read = |body: &str, announced: Option<&str>| {
        document("it", format!("{{\"schemaVersion\":2,{body}}}").as_bytes(), announced)
    };
    assert!(matches!(read(&manifest, Some(MANIFEST)), Ok(Document::Manifest { .. })));
    assert!(matches!(read(&manifest, None), Ok(Document::Manifest { .. })));
    for (body, announced) in [
        (manifest.as_str(), Some(INDEX)),
        (&format!("{manifest},\"manifests\":[]"), None),
        (&format!("\"mediaType\":\"{INDEX}\",{manifest}"), None),
        (&format!("\"mediaType\":\"{MANIFEST}\",\"manifests\":[]"), None),
        (&format!("\"mediaType\":\"{MANIFEST}\",{manifest}"), Some(INDEX)),
        (&format!("{manifest},\"layers\":[]"), None),
        (&format!("\"fsLayers\":[],{manifest}"), None),
        ("\"layers\":[]", None),
        (
            &manifest.replace("\"digest\"", "\"mediaType\":\"application/vnd.cncf.helm.config.v1+json\",\"digest\""),
            None,
        ),
    ] {
        assert!(matches!(read(body, announced), Err(ImageError::Document { .. })), "{body}");
    }
    for bytes in [&b""[..], b"[]", b"{}", b"{\"schemaVersion\":1}", &[b'['; 100_000]] {
        assert!(document("it", bytes, None).is_err());
    }
    let many = vec![blob(""); 128].join(",");
    let many = format!("\"config\":{},\"layers\":[{many}]", blob(""));
    assert!(matches!(read(&many, None), Err(ImageError::TooLarge(_))));
}

#[test]
fn an_index_gives_the_image_for_this_machine() {
    let platform = |os: &str, architecture: &str| {
        blob(&format!(",\"platform\":{{\"os\":\"{os}\",\"architecture\":\"{architecture}\"}}"))
    };
    let named = |name: &str| blob(&format!(",\"annotations\":{{\"org.opencontainers.image.ref.name\":\"{name}\"}}"));
    let found = entries(&[platform("linux", "arm64"), platform("linux", "amd64"), platform("unknown", "unknown")]);
    let chosen = choose("it", &found, None).expect("ours");
    assert_eq!(chosen.platform.as_ref().map(|it| it.architecture.as_str()), Some("amd64"));
    let error = choose("it", &entries(&[platform("linux", "arm64")]), None).expect_err("not ours");
    assert!(error.to_string().contains("linux/arm64"), "{error}");
    let found = entries(&[named("v1"), named("docker.io/x/y:v2")]);
    assert!(choose("it", &found, Some("v1")).is_ok() && choose("it", &found, Some("v2")).is_ok());
    let error = choose("it", &found, Some("v3")).expect_err("no such name");
    assert!(error.to_string().contains("there are: v1"), "{error}");
    assert!(choose("it", &entries(&[]), None).is_err());
}

#[test]
fn configurations_are_of_images_for_this_machine() {
    let read = |text: &str| image_config("it", text.as_bytes());
    let (config, ids) = read(&format!(
        "{{\"os\":\"linux\",\"config\":{{\"User\":\"web\",\"Cmd\":null,\"Env\":[\"A=b\"],\
         \"ExposedPorts\":{{\"80/tcp\":{{}}}}}},\
         \"rootfs\":{{\"diff_ids\":[\"{DIGEST}\"]}}}}"
    ))
    .expect("a configuration");
    let settings = config.config.expect("settings");
    assert_eq!((settings.user.as_deref(), settings.cmd, ids.len()), (Some("web"), None, 1));
    assert!(matches!(read("{\"architecture\":\"arm64\",\"rootfs\":{}}"), Err(ImageError::Platform(_))));
    assert!(matches!(read("{\"os\":\"windows\",\"rootfs\":{}}"), Err(ImageError::Platform(_))));
    assert!(matches!(read("{\"rootfs\":{\"diff_ids\":[\"../x\"]}}"), Err(ImageError::DigestForm(_))));
    assert!(read("{}").is_err());
}

#[test]
fn what_nobody_reads_refuses_no_image() {
    let settings =
        r#"{"User":"u","Labels":{"a":1,"b":null},"StopSignal":15,"Healthcheck":{"Test":"x","Interval":"1s"}}"#;
    let text = format!("{{\"config\":{settings},\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[]}}}}");
    let (config, _) = image_config("it", text.as_bytes()).expect("an image");
    assert_eq!(config.config.expect("settings").user.as_deref(), Some("u"));
}
