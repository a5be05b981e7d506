//! The words that name an image: `TRANSPORT:WHERE`, as podman and skopeo have them.
//!
//! Pure.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::images::digest::Digest;
use crate::images::errors::{ImageError, shown};

/// The transports, for messages.
pub const FORMS: &str =
    "docker-archive:FILE, oci:DIR[:TAG], oci-archive:FILE[:TAG], containers-storage:NAME or docker://HOST/NAME[:TAG]";

/// Where an image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// A tar file that `docker save` or `podman save` wrote; the image of this name in it.
    DockerArchive(PathBuf, Option<String>),
    /// A directory in OCI's layout; the image of this name in it.
    Layout(PathBuf, Option<String>),
    /// A tar file of such a directory.
    LayoutArchive(PathBuf, Option<String>),
    /// What podman, buildah and skopeo keep.
    ContainersStorage(String),
    /// A registry.
    Registry(Reference),
    /// An image that was used or pulled before: its name, or its identifier's first digits.
    Kept(String),
}

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Host, with a port if it has one.
    pub host: String,
    /// Name in the registry.
    pub name: String,
    /// Tag.
    pub tag: Option<String>,
    /// Digest of its manifest.
    pub digest: Option<Digest>,
}

impl Reference {
    /// The whole name, as lists show it.
    pub fn shown(&self) -> String {
        let tag = self.tag.as_ref().map(|tag| format!(":{tag}")).unwrap_or_default();
        let digest = self.digest.as_ref().map(|digest| format!("@{digest}")).unwrap_or_default();
        format!("{}/{}{tag}{digest}", self.host, self.name)
    }

    /// Reads `HOST/NAME[:TAG][@DIGEST]`. Without a host it is Docker's registry, and there a bare name is `library`'s.
    ///
    /// # Errors
    /// `Source`, `DigestForm`.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let wrong = |why: &str| ImageError::Source(format!("{}: {why}", shown(text.as_bytes())));
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(Digest::parse(digest)?)),
            None => (text, None),
        };
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag.to_owned())),
            _ => (rest, None),
        };
        let is_host = |it: &str| it.contains(['.', ':']) || it == "localhost";
        let (host, name) = match path.split_once('/') {
            Some((host, name)) if is_host(host) => (host, name.to_owned()),
            Some(_) => ("docker.io", path.to_owned()),
            None => ("docker.io", format!("library/{path}")),
        };
        let is_word = |it: &str| {
            let is_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
            !it.is_empty() && !it.starts_with(['.', '_', '-']) && it.bytes().all(is_byte)
        };
        if name.len() > 255 || !name.split('/').all(is_word) {
            return Err(wrong("an image's name is words of a-z, 0-9, . _ and - with / between them"));
        }
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        if host.len() > 255 || !host.bytes().all(is_host_byte) {
            return Err(wrong("no name of a host"));
        }
        let is_tag_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if tag.as_ref().is_some_and(|tag| tag.is_empty() || tag.len() > 128 || !tag.bytes().all(is_tag_byte)) {
            return Err(wrong("a tag is letters, digits, . _ and -"));
        }
        let tag = tag.or_else(|| digest.is_none().then(|| "latest".into()));
        Ok(Self { host: host.into(), name, tag, digest })
    }
}

/// Reads an image's name.
///
/// # Errors
/// What is wrong with it.
pub fn parse_source(text: OsString) -> Result<ImageSource, ImageError> {
    let bytes = text.as_bytes();
    let rest = |prefix: &str| bytes.strip_prefix(prefix.as_bytes()).map(|rest| OsString::from_vec(rest.to_vec()));
    let named = |what: &str, rest: OsString| {
        if rest.is_empty() {
            return Err(ImageError::Source(format!("{what}: a path is missing; one of {FORMS}")));
        }
        Ok(with_name(rest))
    };
    if let Some(rest) = rest("docker-archive:") {
        return named("docker-archive", rest).map(|(path, name)| ImageSource::DockerArchive(path, name));
    }
    if let Some(rest) = rest("oci:") {
        return named("oci", rest).map(|(path, name)| ImageSource::Layout(path, name));
    }
    if let Some(rest) = rest("oci-archive:") {
        return named("oci-archive", rest).map(|(path, name)| ImageSource::LayoutArchive(path, name));
    }
    let text = text.to_str().ok_or_else(|| ImageError::Source(format!("not a name; one of {FORMS}")))?;
    if let Some(name) = text.strip_prefix("containers-storage:") {
        let is_plain = !name.is_empty() && !name.starts_with('-') && !name.contains(char::is_whitespace);
        let wrong = || ImageError::Source("containers-storage: the name of an image that podman has is missing".into());
        return is_plain.then(|| ImageSource::ContainersStorage(name.into())).ok_or_else(wrong);
    }
    if let Some(rest) = text.strip_prefix("docker://") {
        return Reference::parse(rest).map(ImageSource::Registry);
    }
    if text.is_empty() || text.contains("://") {
        return Err(ImageError::Source(format!("{}: a source is one of {FORMS}", shown(text.as_bytes()))));
    }
    Ok(ImageSource::Kept(text.into()))
}

/// `PATH[:NAME]`: a path that is there as a whole has no name behind it.
fn with_name(text: OsString) -> (PathBuf, Option<String>) {
    let bytes = text.as_bytes();
    let has_whole = Path::new(&text).exists();
    let colon = bytes.iter().position(|byte| *byte == b':').filter(|_| !has_whole);
    let parts = colon.and_then(|colon| {
        let name = std::str::from_utf8(&bytes[colon + 1..]).ok()?;
        let path = PathBuf::from(OsString::from_vec(bytes[..colon].to_vec()));
        (!name.is_empty() && !path.as_os_str().is_empty()).then(|| (path, Some(name.to_owned())))
    });
    parts.unwrap_or_else(|| (PathBuf::from(&text), None))
}

#[cfg(test)]
mod tests {
    use super::{ImageSource, Reference, parse_source};

    fn parse(text: &str) -> ImageSource {
        parse_source(text.into()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_transport_is_known() {
        assert_eq!(parse("docker-archive:/a.tar"), ImageSource::DockerArchive("/a.tar".into(), None));
        assert_eq!(parse("oci:dir"), ImageSource::Layout("dir".into(), None));
        assert_eq!(parse("oci:dir:v1"), ImageSource::Layout("dir".into(), Some("v1".into())));
        assert_eq!(
            parse("oci-archive:x.tar:docker.io/a:b"),
            ImageSource::LayoutArchive("x.tar".into(), Some("docker.io/a:b".into()))
        );
        assert_eq!(parse("containers-storage:web"), ImageSource::ContainersStorage("web".into()));
        assert_eq!(parse("nginx"), ImageSource::Kept("nginx".into()));
        for text in
            ["", "oci:", "http://x/y", "containers-storage:", "containers-storage:-x", "docker://", "docker://A/B"]
        {
            assert!(parse_source(text.into()).is_err(), "{text}");
        }
    }

    #[test]
    fn registries_and_their_defaults() {
        let shown = |text: &str| Reference::parse(text).expect(text).shown();
        assert_eq!(shown("nginx"), "docker.io/library/nginx:latest");
        assert_eq!(shown("a/b:1"), "docker.io/a/b:1");
        assert_eq!(shown("127.0.0.1:5000/x"), "127.0.0.1:5000/x:latest");
        assert_eq!(shown("localhost/x/y:z"), "localhost/x/y:z");
        let digest = format!("sha256:{}", "0".repeat(64));
        assert_eq!(shown(&format!("quay.io/x@{digest}")), format!("quay.io/x@{digest}"));
        for text in ["q.io/../x", "q.io/x:..%2f/", "q.io/X", "q.io/x@sha256:1", "a b.c/x", "q.io/x:", "q.io/"] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }
}
