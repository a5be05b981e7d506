//! Registries: an image's documents and layers by HTTPS, as OCI's distribution specification has it.
//!
//! Who is trusted: nobody. What a registry sends is checked by its digest like everything else; credentials go to the
//! registry and to where it says that tokens are made, and not along with a redirect to another host (CVE-2020-15157);
//! the addresses in a manifest (`urls`) are not looked at. Without TLS only this host itself is talked to.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;
use ureq::http::{Response, StatusCode, Uri};

use crate::images::digest::Digest;
use crate::images::documents::{DOCUMENT_BYTES_MAX, accepted_types, document};
use crate::images::errors::{ImageError, shown};
use crate::images::locate::{Blobs, Located, from_document};
use crate::images::source::Reference;

const REDIRECT_COUNT_MAX: usize = 5;
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// For a whole blob.
const BODY_LIMIT: Duration = Duration::from_secs(3600);
/// Longest file of credentials, and longest answer with a token.
const SMALL_BYTES_MAX: u64 = 1 << 20;

type Result<T> = std::result::Result<T, ImageError>;
type Answer = Response<ureq::Body>;

/// Asks a registry for an image's documents.
///
/// # Errors
/// What it answered, or what is wrong with the image.
pub(crate) fn locate(reference: &Reference) -> Result<Located> {
    let client = Client::new(reference);
    let place = match (&reference.digest, &reference.tag) {
        (Some(digest), _) => digest.to_string(),
        (None, Some(tag)) => tag.clone(),
        (None, None) => "latest".into(),
    };
    let (bytes, announced) = client.manifest(&place, reference.digest.as_ref())?;
    let first = document(&format!("manifest of {}", reference.shown()), &bytes, announced.as_deref())?;
    from_document(client, first, None)
}

struct Client {
    agent: Agent,
    /// `https://HOST/v2/NAME`.
    base: String,
    shown: String,
    host: String,
    name: String,
    /// `Authorization` for the registry, once it is known.
    authorization: std::cell::RefCell<Option<String>>,
}

/// Whether a host of an address is this one, by name or number.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Client {
    fn new(reference: &Reference) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_LIMIT))
            .timeout_recv_response(Some(ANSWER_LIMIT))
            .timeout_recv_body(Some(BODY_LIMIT))
            .user_agent(concat!("aegis/", env!("CARGO_PKG_VERSION")));
        let host = if reference.host == "docker.io" { "registry-1.docker.io" } else { &reference.host };
        let scheme = if is_loopback(host) { "http" } else { "https" };
        Self {
            agent: config.build().into(),
            base: format!("{scheme}://{host}/v2/{}", reference.name),
            shown: reference.shown(),
            host: reference.host.clone(),
            name: reference.name.clone(),
            authorization: None.into(),
        }
    }

    fn failed(&self, why: impl std::fmt::Display) -> ImageError {
        ImageError::Registry(format!("{}: {why}", self.shown))
    }

    /// A manifest, and its type as the registry has it.
    fn manifest(&self, place: &str, digest: Option<&Digest>) -> Result<(Vec<u8>, Option<String>)> {
        let answer = self.get(&format!("{}/manifests/{place}", self.base), Some(&accepted_types()))?;
        let header = |name: &str| answer.headers().get(name)?.to_str().ok().map(str::to_owned);
        let kind = header("content-type").map(|it| it.split(';').next().unwrap_or_default().trim().to_owned());
        let kind = kind.filter(|kind| kind.starts_with("application/vnd."));
        let said = header("docker-content-digest").and_then(|text| Digest::parse(&text).ok());
        let bytes = self.small(answer, DOCUMENT_BYTES_MAX)?;
        let found = Digest::of(&bytes);
        match digest.or(said.as_ref()) {
            Some(expected) if *expected != found => {
                let what = format!("manifest of {}", self.shown);
                Err(ImageError::Digest { what, expected: expected.to_string(), found: found.to_string() })
            }
            _ => Ok((bytes, kind)),
        }
    }

    fn small(&self, answer: Answer, bytes_max: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = answer.into_body().into_reader().take(bytes_max + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.failed(error))?;
        if bytes.len() as u64 > bytes_max {
            return Err(ImageError::TooLarge(format!("{}: an answer of more than {bytes_max} bytes", self.shown)));
        }
        Ok(bytes)
    }

    /// Asks for something of the registry's, with a token where it wants one.
    fn get(&self, address: &str, accept: Option<&str>) -> Result<Answer> {
        let mut is_second = false;
        loop {
            let (answer, is_own) = self.follow(address, accept)?;
            match answer.status() {
                StatusCode::OK => return Ok(answer),
                // Of another host a challenge would be a way to the registry's password.
                StatusCode::UNAUTHORIZED if is_own && !is_second => {
                    let challenges = answer.headers().get_all("www-authenticate").iter();
                    let challenges: Vec<String> =
                        challenges.filter_map(|it| it.to_str().ok().map(str::to_owned)).collect();
                    let authorization = self.answer_challenge(&challenges)?;
                    *self.authorization.borrow_mut() = Some(authorization);
                    is_second = true;
                }
                StatusCode::NOT_FOUND => return Err(self.failed("the registry has no such image")),
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    let why = "the registry refuses access; is the name right? (podman login HOST stores a password)";
                    return Err(self.failed(why));
                }
                StatusCode::TOO_MANY_REQUESTS => {
                    return Err(self.failed("the registry says: too many requests; wait, or log in"));
                }
                status => return Err(self.failed(format!("the registry answered {status}"))),
            }
        }
    }

    /// One request, and where it leads; whether who answered in the end is who was asked.
    fn follow(&self, address: &str, accept: Option<&str>) -> Result<(Answer, bool)> {
        let mut here: Uri = address.parse().map_err(|_| self.failed("not an address"))?;
        let own = here.authority().cloned();
        for _ in 0..=REDIRECT_COUNT_MAX {
            let mut request = self.agent.get(&here);
            if let Some(accept) = accept {
                request = request.header("accept", accept);
            }
            let is_own = here.authority() == own.as_ref();
            if is_own && let Some(authorization) = self.authorization.borrow().as_deref() {
                request = request.header("authorization", authorization);
            }
            let answer = request.call().map_err(|error| self.failed(error))?;
            if !answer.status().is_redirection() {
                return Ok((answer, is_own));
            }
            let location = answer.headers().get("location").and_then(|it| it.to_str().ok()).unwrap_or_default();
            let whole = match (location.starts_with('/'), here.scheme_str(), here.authority()) {
                (true, Some(scheme), Some(authority)) => format!("{scheme}://{authority}{location}"),
                _ => location.to_owned(),
            };
            let next: Uri = whole.parse().map_err(|_| self.failed("a redirect to no address"))?;
            let is_allowed = match next.scheme_str() {
                Some("https") => true,
                // A registry elsewhere has no business with what listens here.
                Some("http") => here.scheme_str() == Some("http") && next.host().is_some_and(is_loopback),
                _ => false,
            };
            if !is_allowed {
                return Err(self.failed(format!("a redirect to {}, without TLS", shown(whole.as_bytes()))));
            }
            here = next;
        }
        Err(self.failed(format!("more than {REDIRECT_COUNT_MAX} redirects")))
    }

    /// The value of `Authorization` that a challenge asks for.
    fn answer_challenge(&self, challenges: &[String]) -> Result<String> {
        let login = login(&self.host);
        for challenge in challenges {
            let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
            if scheme.eq_ignore_ascii_case("basic") {
                let login = login.ok_or_else(|| self.failed("the registry wants a password: podman login HOST"))?;
                return Ok(format!("Basic {login}"));
            }
            if scheme.eq_ignore_ascii_case("bearer") {
                return self.token(&parameters(rest), login.as_deref()).map(|token| format!("Bearer {token}"));
            }
        }
        Err(self.failed("the registry wants a proof of identity of a kind that is not known"))
    }

    fn token(&self, parameters: &BTreeMap<String, String>, login: Option<&str>) -> Result<String> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let realm: Uri = parameters
            .get("realm")
            .and_then(|realm| realm.parse().ok())
            .ok_or_else(|| self.failed("the registry does not say where tokens are made"))?;
        let host = realm.host().unwrap_or_default();
        let is_plain = realm.scheme_str() == Some("http") && is_loopback(host) && is_loopback(&self.host);
        if realm.scheme_str() != Some("https") && !is_plain {
            return Err(self.failed("tokens are made without TLS"));
        }
        let scope = parameters.get("scope").cloned().unwrap_or_else(|| format!("repository:{}:pull", self.name));
        let mut request = self.agent.get(&realm).query("scope", scope);
        if let Some(service) = parameters.get("service") {
            request = request.query("service", service);
        }
        if let Some(login) = login {
            request = request.header("authorization", format!("Basic {login}"));
        }
        let answer = request.call().map_err(|error| self.failed(error))?;
        if answer.status() != StatusCode::OK {
            return Err(self.failed(format!("no token: {} answered {}", shown(host.as_bytes()), answer.status())));
        }
        let bytes = self.small(answer, SMALL_BYTES_MAX)?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|_| self.failed("an answer without a token"))?;
        let token = token.token.or(token.access_token).unwrap_or_default();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if is_token { Ok(token) } else { Err(self.failed("an answer without a token")) }
    }
}

/// `KEY="VALUE",KEY=VALUE` of a challenge.
fn parameters(mut text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while let Some((key, rest)) = text.split_once('=') {
        let key = key.trim_matches([' ', ',']).to_ascii_lowercase();
        let (value, rest) = match rest.strip_prefix('"') {
            Some(rest) => rest.split_once('"').unwrap_or((rest, "")),
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        found.insert(key, value.to_owned());
        text = rest;
    }
    found
}

impl Blobs for Client {
    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + '_>> {
        let answer = self.get(&format!("{}/blobs/{digest}", self.base), None)?;
        Ok(Box::new(answer.into_body().into_reader()))
    }

    fn document(&self, digest: &Digest) -> Result<Box<dyn Read + '_>> {
        let (bytes, _) = self.manifest(&digest.to_string(), Some(digest))?;
        Ok(Box::new(std::io::Cursor::new(bytes)))
    }
}

/// Name and password for a registry, in base 64, as `podman login` and `docker login` leave them.
fn login(host: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Logins {
        #[serde(default)]
        auths: BTreeMap<String, Login>,
    }
    #[derive(Deserialize)]
    struct Login {
        auth: Option<String>,
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let files = [
        variable("REGISTRY_AUTH_FILE"),
        variable("XDG_RUNTIME_DIR").map(|path| path.join("containers/auth.json")),
        variable("HOME").map(|path| path.join(".docker/config.json")),
    ];
    let keys = match host {
        "docker.io" => vec!["docker.io", "https://index.docker.io/v1/", "index.docker.io"],
        host => vec![host],
    };
    files.into_iter().flatten().find_map(|path| {
        let mut bytes = Vec::new();
        std::fs::File::open(path).ok()?.take(SMALL_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let logins: Logins = serde_json::from_slice(&bytes).ok()?;
        let auth = keys.iter().find_map(|key| logins.auths.get(*key)?.auth.clone())?;
        let is_base_64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        auth.bytes().all(is_base_64).then_some(auth).filter(|auth| !auth.is_empty())
    })
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
