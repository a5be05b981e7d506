//! A registry on loopback: tokens, redirects, lies.

use super::{Client, is_loopback, locate, parameters};
use crate::images::digest::Digest;
use crate::images::errors::ImageError;
use crate::images::source::Reference;
use crate::images::testing::{Tar, manifest};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a stub says to a path: status line, further headers, body.
type Answers = BTreeMap<String, (&'static str, String, Vec<u8>)>;

/// A registry on loopback that answers from a table, and notes who asked for what with which proof.
struct Stub {
    port: u16,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Stub {
    fn start(answers: impl FnOnce(u16) -> Answers, is_guarded: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (answers, asked) = (answers(port), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serve(&stream, &answers, is_guarded, port, &noted);
            }
        });
        Self { port, asked }
    }

    fn reference(&self, rest: &str) -> Reference {
        Reference::parse(&format!("127.0.0.1:{}/{rest}", self.port)).expect("a reference")
    }
}

fn serve(mut stream: &TcpStream, answers: &Answers, is_guarded: bool, port: u16, noted: &Mutex<Vec<(String, String)>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let proof = headers.iter().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default().to_owned();
    noted.lock().expect("not poisoned").push((path.clone(), proof.clone()));
    let challenge = format!(
        "WWW-Authenticate: Bearer realm=\"http://127.0.0.1:{port}/token\",\
         service=\"stub\",scope=\"repository:x:pull\"\r\n"
    );
    let missing = ("404 Not Found", String::new(), Vec::new());
    let (status, more, body) = match path.split('?').next() {
        Some("/token") => ("200 OK", String::new(), b"{\"token\":\"secret\"}".to_vec()),
        Some(path) if path.starts_with("/v2/") && is_guarded && proof != "Bearer secret" => {
            ("401 Unauthorized", challenge, Vec::new())
        }
        path => answers.get(path.unwrap_or_default()).cloned().unwrap_or(missing),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{more}Connection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

fn image(prefix: &str) -> (Answers, Vec<u8>) {
    let layer = Tar::default().file("f", b"x").bytes();
    let (config, manifest) = manifest(std::slice::from_ref(&layer), "{}");
    let ok = |body: &[u8]| ("200 OK", String::new(), body.to_vec());
    let blob = |body: &[u8]| (format!("{prefix}/blobs/{}", Digest::of(body)), ok(body));
    let answers = [
        (format!("{prefix}/manifests/latest"), ok(manifest.as_bytes())),
        (format!("{prefix}/manifests/{}", Digest::of(manifest.as_bytes())), ok(manifest.as_bytes())),
        blob(config.as_bytes()),
        blob(&layer),
    ];
    (answers.into_iter().collect(), layer)
}

fn layer_of(located: &crate::images::locate::Located) -> Vec<u8> {
    let mut bytes = Vec::new();
    located.contents.open(0, &located.layers[0]).expect("a layer").read_to_end(&mut bytes).expect("read");
    bytes
}

#[test]
fn an_image_is_fetched_with_and_without_a_token() {
    for is_guarded in [false, true] {
        let stub = Stub::start(|_| image("/v2/x").0, is_guarded);
        let located = locate(&stub.reference("x")).expect("an image");
        assert_eq!(layer_of(&located), image("/v2/x").1);
        let asked = stub.asked.lock().expect("not poisoned");
        assert_eq!(asked.iter().any(|(path, _)| path.starts_with("/token")), is_guarded);
    }
}

#[test]
fn a_redirect_gets_no_proof_and_only_over_tls_or_loopback() {
    let (mut answers, layer) = image("/v2/x");
    let elsewhere =
        Stub::start(|_| [("/blob".to_owned(), ("200 OK", String::new(), layer.clone()))].into_iter().collect(), false);
    let blob = format!("/v2/x/blobs/{}", Digest::of(&layer));
    let to = |address: String| ("307 Temporary Redirect", format!("Location: {address}\r\n"), Vec::new());
    answers.insert(blob.clone(), to(format!("http://127.0.0.1:{}/blob", elsewhere.port)));
    let stub = Stub::start(|_| answers.clone(), true);
    assert_eq!(layer_of(&locate(&stub.reference("x")).expect("an image")), layer);
    assert_eq!(*elsewhere.asked.lock().expect("not poisoned"), [("/blob".to_owned(), String::new())]);

    for address in ["http://192.0.2.1/blob", "file:///etc/passwd", "ftp://x/y", "", "//"] {
        answers.insert(blob.clone(), to(address.into()));
        let stub = Stub::start(|_| answers.clone(), false);
        let located = locate(&stub.reference("x")).expect("documents");
        assert!(located.contents.open(0, &located.layers[0]).is_err(), "{address}");
    }
    let stub = Stub::start(
        |port| {
            answers.insert(blob.clone(), to(format!("http://127.0.0.1:{port}{blob}")));
            answers
        },
        false,
    );
    let located = locate(&stub.reference("x")).expect("documents");
    let error = located.contents.open(0, &located.layers[0]).err().expect("a circle");
    assert!(error.to_string().contains("redirects"), "{error}");
}

#[test]
fn a_challenge_of_another_host_is_not_answered() {
    let (mut answers, layer) = image("/v2/x");
    // It refuses everything, and wants tokens made where it listens itself.
    let elsewhere = Stub::start(|_| Answers::new(), true);
    let blob = format!("/v2/x/blobs/{}", Digest::of(&layer));
    let location = format!("Location: http://127.0.0.1:{}/v2/blob\r\n", elsewhere.port);
    answers.insert(blob, ("307 Temporary Redirect", location, Vec::new()));
    let stub = Stub::start(|_| answers, true);
    let located = locate(&stub.reference("x")).expect("documents");
    let error = located.contents.open(0, &located.layers[0]).err().expect("refused");
    assert!(error.to_string().contains("refuses access"), "{error}");
    assert_eq!(*elsewhere.asked.lock().expect("not poisoned"), [("/v2/blob".to_owned(), String::new())]);
}

#[test]
fn a_lying_registry_is_noticed() {
    let (answers, _) = image("/v2/x");
    let digest = format!("sha256:{}", "0".repeat(64));
    let wrong = format!("/v2/x/manifests/{digest}");
    let answers: Answers =
        answers.into_iter().flat_map(|(path, answer)| [(path, answer.clone()), (wrong.clone(), answer)]).collect();
    let stub = Stub::start(|_| answers, false);
    let error = locate(&stub.reference(&format!("x@{digest}"))).err().expect("another manifest");
    assert!(matches!(error, ImageError::Digest { .. }), "{error}");
    let error = locate(&stub.reference("nothing")).err().expect("not there");
    assert!(error.to_string().contains("no such image"), "{error}");
}

#[test]
fn only_this_host_is_talked_to_without_tls() {
    for (host, expected) in [
        ("localhost:5000", true),
        ("127.0.0.1", true),
        ("127.9.9.9:1", true),
        ("[::1]:5000", true),
        ("localhost.example.com", false),
        ("127.0.0.1.example.com", false),
        ("10.0.0.1:5000", false),
    ] {
        assert_eq!(is_loopback(host), expected, "{host}");
    }
    let base = |text: &str| Client::new(&Reference::parse(text).expect(text)).base;
    assert_eq!(base("nginx"), "https://registry-1.docker.io/v2/library/nginx");
    assert_eq!(base("localhost:5000/x"), "http://localhost:5000/v2/x");
}

#[test]
fn challenges_are_taken_apart() {
    let found = parameters("realm=\"https://a/b?c=d,e\",service=x, scope=\"repository:a:pull,push\"");
    let expected = [("realm", "https://a/b?c=d,e"), ("scope", "repository:a:pull,push"), ("service", "x")];
    assert!(found.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(expected));
}
