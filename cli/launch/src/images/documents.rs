//! The JSON documents of an image: index, manifest, configuration, and docker's list of an archive.
//!
//! Pure: bytes in, values out. What an attacker could use is refused: a document that is an index and a manifest at
//! once (CVE-2021-41190), a media type that contradicts the one it was announced with, configurations that belong to
//! something else than an image.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::images::digest::Digest;
use crate::images::errors::{ImageError, shown};

/// Longest document that is read.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Most layers of an image.
const LAYER_COUNT_MAX: usize = 127;
/// Most entries of an index that are looked at.
const INDEX_ENTRY_COUNT_MAX: usize = 1024;
/// The annotation by which a layout names its images.
pub(crate) const REFERENCE_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation in which containerd and docker keep the whole name.
pub(crate) const IMAGE_NAME: &str = "io.containerd.image.name";

const CONFIG_TYPES: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
const INDEX_TYPES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFEST_TYPES: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// What a registry is asked for, in the form of its header `Accept`.
pub(crate) fn accepted_types() -> String {
    [MANIFEST_TYPES, INDEX_TYPES].concat().join(", ")
}

/// A blob by name.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: Option<String>,
    digest: String,
    pub(crate) size: u64,
    pub(crate) platform: Option<Platform>,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    pub(crate) fn digest(&self) -> Result<Digest, ImageError> {
        Digest::parse(&self.digest)
    }

    /// The value of an annotation.
    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        Some(self.annotations.as_ref()?.get(name)?)
    }
}

/// The machines that an image is for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Platform {
    architecture: String,
    os: String,
}

impl Platform {
    fn is_ours(&self) -> bool {
        self.os == "linux" && self.architecture == "amd64"
    }
}

/// An index or a manifest.
#[derive(Debug)]
pub(crate) enum Document {
    /// Images for several platforms, or of several names.
    Index(Vec<Descriptor>),
    /// One image.
    Manifest {
        /// Its configuration.
        config: Descriptor,
        /// Its layers, the lowest first.
        layers: Vec<Descriptor>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: Option<u64>,
    media_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    #[serde(rename = "fsLayers")]
    fs_layers: Option<Value>,
}

fn wrong(what: &str, why: impl Into<String>) -> ImageError {
    ImageError::Document { what: what.into(), why: why.into() }
}

fn json<'a, T: Deserialize<'a>>(what: &str, bytes: &'a [u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| wrong(what, shown(error.to_string().as_bytes())))
}

/// Reads an index or a manifest that was announced with a media type.
///
/// # Errors
/// `Document`, `TooLarge`.
pub(crate) fn document(what: &str, bytes: &[u8], announced: Option<&str>) -> Result<Document, ImageError> {
    let raw: RawDocument = json(what, bytes)?;
    if raw.fs_layers.is_some() || raw.schema_version == Some(1) {
        return Err(wrong(what, "a manifest of schema 1, which nobody makes any more; push or copy the image again"));
    }
    if raw.schema_version != Some(2) {
        return Err(wrong(what, "no schemaVersion 2, so neither an index nor a manifest of an image"));
    }
    let said: Vec<&str> = [raw.media_type.as_deref(), announced].into_iter().flatten().collect();
    if let [own, announced] = said[..]
        && own != announced
    {
        return Err(wrong(
            what,
            format!("announced as {} and says that it is {}", shown_text(announced), shown_text(own)),
        ));
    }
    let is_said = |types: [&str; 2]| said.iter().all(|it| types.contains(it));
    match (raw.manifests, raw.config, raw.layers) {
        (Some(entries), None, None) if is_said(INDEX_TYPES) => {
            if entries.len() > INDEX_ENTRY_COUNT_MAX {
                return Err(ImageError::TooLarge(format!("{what}: more than {INDEX_ENTRY_COUNT_MAX} entries")));
            }
            Ok(Document::Index(entries))
        }
        (None, Some(config), Some(layers)) if is_said(MANIFEST_TYPES) => manifest(what, config, layers),
        (Some(_), _, _) if raw_is_both(&said) => Err(wrong(what, "an index that says it is something else")),
        (Some(_), _, _) => Err(wrong(what, "an index and a manifest at once")),
        (None, Some(_), Some(_)) => Err(wrong(what, "a manifest that says it is something else")),
        _ => Err(wrong(what, "neither an index nor a manifest of an image")),
    }
}

fn raw_is_both(said: &[&str]) -> bool {
    !said.is_empty() && !said.iter().all(|it| INDEX_TYPES.contains(it))
}

fn shown_text(text: &str) -> String {
    shown(text.as_bytes())
}

fn manifest(what: &str, config: Descriptor, layers: Vec<Descriptor>) -> Result<Document, ImageError> {
    if let Some(kind) = config.media_type.as_deref().filter(|kind| !CONFIG_TYPES.contains(kind)) {
        return Err(wrong(what, format!("not an image of files: its configuration is {}", shown_text(kind))));
    }
    if layers.len() > LAYER_COUNT_MAX {
        let count = layers.len();
        return Err(ImageError::TooLarge(format!("{what}: {count} layers; an image has at most {LAYER_COUNT_MAX}")));
    }
    Ok(Document::Manifest { config, layers })
}

/// The entry of an index for this machine: by name where one is given, then by platform.
///
/// # Errors
/// `Missing`, `Platform`, `Source`.
pub(crate) fn choose<'a>(
    what: &str,
    entries: &'a [Descriptor],
    name: Option<&str>,
) -> Result<&'a Descriptor, ImageError> {
    let is_attestation = |entry: &&Descriptor| entry.platform.as_ref().is_some_and(|platform| platform.os == "unknown");
    let is_named = |entry: &&Descriptor| match name {
        None => true,
        Some(name) => {
            let names = [REFERENCE_NAME, IMAGE_NAME].map(|key| entry.annotation(key));
            let is_it = |it: &str| it == name || it.rsplit_once(':').is_some_and(|(_, tag)| tag == name);
            names.into_iter().flatten().any(is_it)
        }
    };
    let named: Vec<&Descriptor> = entries.iter().filter(is_named).filter(|it| !is_attestation(it)).collect();
    if named.is_empty() {
        return Err(match name {
            None => wrong(what, "the index has no image"),
            Some(name) => ImageError::Source(format!("{what}: no image of the name {name}{}", names_of(entries))),
        });
    }
    let ours: Vec<&Descriptor> =
        named.iter().copied().filter(|it| it.platform.as_ref().is_none_or(Platform::is_ours)).collect();
    let Some(first) = ours.first() else {
        let has = named.iter().filter_map(|it| it.platform.as_ref());
        let has: Vec<String> = has.map(|it| shown_text(&format!("{}/{}", it.os, it.architecture))).take(8).collect();
        return Err(ImageError::Platform(format!("{what}: for {}, and this machine is linux/amd64", has.join(", "))));
    };
    let digests: std::collections::BTreeSet<&str> = ours.iter().map(|it| it.digest.as_str()).collect();
    let is_by_platform = ours.iter().all(|it| it.platform.is_some());
    if digests.len() > 1 && !is_by_platform {
        return Err(ImageError::Source(format!("{what}: several images; add :TAG{}", names_of(entries))));
    }
    Ok(first)
}

fn names_of(entries: &[Descriptor]) -> String {
    let names = entries.iter().filter_map(|it| it.annotation(REFERENCE_NAME));
    let names: Vec<String> = names.map(shown_text).take(8).collect();
    if names.is_empty() { String::new() } else { format!(" (there are: {})", names.join(", ")) }
}

/// What an image says about itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ImageConfig {
    architecture: Option<String>,
    os: Option<String>,
    /// How its program runs.
    #[serde(default)]
    pub(crate) config: Option<Settings>,
    rootfs: RootFs,
}

#[derive(Clone, Debug, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

/// How an image wants its program to run. A field that is missing and one that is null are alike.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Settings {
    /// User and group, by name or number.
    pub user: Option<String>,
    /// `NAME=value`.
    pub env: Option<Vec<String>>,
    /// First words of the command.
    pub entrypoint: Option<Vec<String>>,
    /// What follows, unless the user says something.
    pub cmd: Option<Vec<String>>,
    /// Where the program starts.
    pub working_dir: Option<String>,
    /// Ports that it listens on, such as `80/tcp`.
    pub exposed_ports: Option<BTreeMap<String, Value>>,
    /// Directories that hold its data.
    pub volumes: Option<BTreeMap<String, Value>>,
    /// What tells its program to end, by name or number.
    pub stop_signal: Option<Value>,
    /// How to look whether its program is well.
    pub healthcheck: Option<Value>,
    /// What its maker says of it.
    pub labels: Option<BTreeMap<String, Value>>,
}

/// Reads an image's configuration and checks that the image is for this machine.
///
/// # Errors
/// `Document`, `Platform`, `TooLarge`, `DigestForm`.
pub(crate) fn image_config(what: &str, bytes: &[u8]) -> Result<(ImageConfig, Vec<Digest>), ImageError> {
    let config: ImageConfig = json(what, bytes)?;
    let os = config.os.as_deref().filter(|os| !os.is_empty()).unwrap_or("linux");
    let architecture = config.architecture.as_deref().filter(|it| !it.is_empty()).unwrap_or("amd64");
    if (os, architecture) != ("linux", "amd64") {
        let (os, architecture) = (shown_text(os), shown_text(architecture));
        return Err(ImageError::Platform(format!("an image for {os}/{architecture}, and this machine is linux/amd64")));
    }
    let ids = config.rootfs.diff_ids.as_deref().unwrap_or_default();
    if ids.len() > LAYER_COUNT_MAX {
        return Err(ImageError::TooLarge(format!("{what}: more than {LAYER_COUNT_MAX} layers")));
    }
    let ids = ids.iter().map(|text| Digest::parse(text)).collect::<Result<_, _>>()?;
    Ok((config, ids))
}

/// An image in an archive of `docker save`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ArchivedImage {
    pub(crate) config: String,
    #[serde(default)]
    pub(crate) repo_tags: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) layers: Option<Vec<String>>,
}

/// Reads `manifest.json` of such an archive.
///
/// # Errors
/// `Document`.
pub(crate) fn archived_images(bytes: &[u8]) -> Result<Vec<ArchivedImage>, ImageError> {
    json("manifest.json", bytes)
}

#[cfg(test)]
#[path = "documents_tests.rs"]
mod tests;
