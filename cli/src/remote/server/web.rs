//! `--metrics`: a page, its data and OpenMetrics over HTTP, for who looks on from a browser or collects figures.
//!
//! Only to be had at an address of this host's loopback, which every user of this host reaches: so nothing is told that
//! is a pod's own (no command lines, no output), nothing can be changed, and what is kept for a caller has limits of
//! its own, apart from those of commands. A name other than a loopback one in `Host` is refused, so that no page of
//! elsewhere reads this by a name that it has led here.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use aegis_launch::errors::{Doing, Error};

use super::state::{Client, ControlServer, Job};
use crate::relay::pod_link::PodLink;
use crate::relay::stream::Stream;
use crate::remote::metrics::{Format, metrics};
use crate::remote::report::{MachineReport, json};

/// Callers at the same time; further ones wait to be let in.
pub(super) const WEB_COUNT_MAX: usize = 8;
/// Reports at the same time that are made for callers; who asks for more is told to come again.
const WEB_REPORT_COUNT_MAX: usize = 4;
/// Longest request without a body, which none has.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// From a caller's coming to its going.
const WEB_LIMIT: Duration = Duration::from_secs(15);

const PAGE: &str = include_str!("../page/page.html");
const SCRIPT: &str = include_str!("../page/page.js");
const STYLE: &str = include_str!("../page/page.css");
/// The page's own files alone: nothing of elsewhere, nothing written in between.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// What is to be made of a report that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Metrics(Format),
    Report,
}

/// A caller that speaks HTTP.
#[derive(Debug)]
pub(super) struct Web {
    head: Vec<u8>,
    deadline: Instant,
    wanted: Option<Wanted>,
    is_head_only: bool,
}

impl Web {
    /// One that has come now.
    pub(super) fn new(now: Instant) -> Self {
        Self { head: Vec::new(), deadline: now + WEB_LIMIT, wanted: None, is_head_only: false }
    }
}

/// Where callers come in.
#[derive(Debug)]
pub(crate) struct WebPlace {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl WebPlace {
    /// Listens there.
    ///
    /// # Errors
    /// It is no address of the loopback, or cannot be had.
    pub(crate) fn take(address: SocketAddr) -> Result<Self, Error> {
        let what = || format!("--metrics {address}");
        if !address.ip().is_loopback() {
            let text = format!("{}: only an address of this host's loopback, such as 127.0.0.1:9100", what());
            return Err(Error::Usage(text));
        }
        let listener = TcpListener::bind(address).map_err(|error| Error::Usage(format!("{}: {error}", what())))?;
        listener.set_nonblocking(true).doing("listening for --metrics")?;
        let address = listener.local_addr().doing("listening for --metrics")?;
        Ok(Self { listener, address })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A request that was understood.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    is_head_only: bool,
    path: &'a str,
    accepts_openmetrics: bool,
}

/// Reads a request's head; the error is the status of the answer.
fn understood(head: &str) -> Result<Asked<'_>, &'static str> {
    const BAD: &str = "400 Bad Request";
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version)) = (first.next(), first.next(), first.next()) else {
        return Err(BAD);
    };
    if !version.starts_with("HTTP/1.") || first.next().is_some() {
        return Err(BAD);
    }
    let is_head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err("405 Method Not Allowed"),
    };
    let (mut host, mut accepts_openmetrics) = (None, false);
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(BAD)?;
        match name.to_ascii_lowercase().as_str() {
            "host" if host.is_some() => return Err(BAD),
            "host" => host = Some(value.trim()),
            "accept" => accepts_openmetrics |= value.contains("application/openmetrics-text"),
            _ => {}
        }
    }
    if !host.is_some_and(is_loopback_name) {
        return Err("403 Forbidden");
    }
    let path = target.split('?').next().unwrap_or_default();
    Ok(Asked { is_head_only, path, accepts_openmetrics })
}

/// `localhost`, or an address of the loopback, with a port or without.
fn is_loopback_name(host: &str) -> bool {
    let is_loopback = |text: &str| text.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let is_port = |text: &str| text.is_empty() || text.parse::<u16>().is_ok();
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return is_loopback(address) && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    is_port(port) && (name.eq_ignore_ascii_case("localhost") || is_loopback(name))
}

/// An answer with its head.
fn answer(status: &str, kind: &str, body: &str, is_head_only: bool) -> Vec<u8> {
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: \
         no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: {POLICY}\r\n\r\n",
        body.len()
    );
    if !is_head_only {
        text.push_str(body);
    }
    text.into_bytes()
}

impl ControlServer {
    /// Lets callers of HTTP in there.
    pub(crate) fn with_web(mut self, place: Option<WebPlace>) -> Self {
        self.web = place;
        self
    }

    pub(super) fn web_count(&self) -> usize {
        self.clients.values().filter(|client| client.web.is_some()).count()
    }

    pub(super) fn accept_web(&mut self) {
        let Some(Ok((stream, _))) = self.web.as_ref().map(|place| place.listener.accept()) else { return };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        self.last_client += 1;
        // All that is done with it is reading and writing.
        let stream = Stream::new(UnixStream::from(OwnedFd::from(stream)));
        let client = Client { web: Some(Web::new(Instant::now())), ..Client::new(stream) };
        self.clients.insert(self.last_client, client);
    }

    /// Something has come from a caller of HTTP.
    pub(super) fn read_web(&mut self, number: u64, links: &mut [PodLink]) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let mut buffer = [0; 4096];
        let length = match client.stream.read(&mut buffer) {
            Ok(None) => return,
            Ok(Some(length)) if length > 0 => length,
            _ => {
                client.is_over = true;
                client.stream.clear();
                return;
            }
        };
        let Some(web) = client.web.as_mut().filter(|_| !client.is_over && matches!(client.job, Job::Nothing)) else {
            return;
        };
        web.head.extend_from_slice(&buffer[..length]);
        let end = web.head.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let head = match end {
            Some(end) => String::from_utf8_lossy(&web.head[..end]).into_owned(),
            None if web.head.len() > HEAD_BYTES_MAX => {
                return self.answer_web(number, "431 Request Header Fields Too Large", "text/plain", "");
            }
            None => return,
        };
        match understood(&head) {
            Err(status) => self.answer_web(number, status, "text/plain; charset=utf-8", status),
            Ok(asked) => {
                web.is_head_only = asked.is_head_only;
                let format = if asked.accepts_openmetrics { Format::OpenMetrics } else { Format::Text };
                match asked.path {
                    "/" => self.answer_web(number, "200 OK", "text/html; charset=utf-8", PAGE),
                    "/page.js" => self.answer_web(number, "200 OK", "text/javascript; charset=utf-8", SCRIPT),
                    "/page.css" => self.answer_web(number, "200 OK", "text/css; charset=utf-8", STYLE),
                    "/metrics" => self.ask_for_web(number, Wanted::Metrics(format), links),
                    "/report.json" => self.ask_for_web(number, Wanted::Report, links),
                    _ => self.answer_web(number, "404 Not Found", "text/plain; charset=utf-8", "404 Not Found"),
                }
            }
        }
    }

    fn ask_for_web(&mut self, number: u64, wanted: Wanted, links: &mut [PodLink]) {
        let reports = self.clients.values().filter(|it| it.web.is_some() && matches!(it.job, Job::Report(_)));
        if reports.count() >= WEB_REPORT_COUNT_MAX || !self.orders.takes(self.report_order_count()) {
            const BUSY: &str = "503 Service Unavailable";
            return self.answer_web(number, BUSY, "text/plain; charset=utf-8", BUSY);
        }
        if let Some(web) = self.clients.get_mut(&number).and_then(|client| client.web.as_mut()) {
            web.wanted = Some(wanted);
        }
        // It begins a report, which is answered when that is there.
        let _ = self.ask_all(number, Some(links));
    }

    /// The report is there.
    pub(super) fn report_to_web(&mut self, number: u64, mut report: MachineReport) {
        let wanted = self.clients.get(&number).and_then(|client| client.web.as_ref()?.wanted);
        match wanted {
            Some(Wanted::Metrics(format)) => {
                self.answer_web(number, "200 OK", format.kind(), &metrics(&report, format));
            }
            Some(Wanted::Report) => {
                // What a process was called with is not everybody's business.
                let processes = report.pods.iter_mut().flat_map(|pod| &mut pod.processes);
                processes.for_each(|process| process.command.clear());
                self.answer_web(number, "200 OK", "application/json", &json(&report));
            }
            None => {}
        }
    }

    fn answer_web(&mut self, number: u64, status: &str, kind: &str, body: &str) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let is_head_only = client.web.as_ref().is_some_and(|web| web.is_head_only);
        client.job = Job::Nothing;
        client.stream.send(&answer(status, kind, body, is_head_only));
        client.is_over = true;
    }

    /// Lets go of callers whose time is over.
    pub(super) fn end_late_callers(&mut self, now: Instant) {
        let is_late = |client: &Client| client.web.as_ref().is_some_and(|web| now >= web.deadline);
        self.clients.retain(|_, client| !is_late(client));
    }

    /// When [`ControlServer::end_late_callers`] has something to do.
    pub(super) fn web_time(&self) -> Option<Instant> {
        self.clients.values().filter_map(|client| client.web.as_ref().map(|web| web.deadline)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, WebPlace, answer, is_loopback_name, understood};

    #[test]
    fn requests_are_understood_or_refused() {
        let head = "GET /metrics?x=1 HTTP/1.1\r\nhost: 127.0.0.1:9100\r\nAccept: application/openmetrics-text;q=1\r\n";
        assert_eq!(understood(head), Ok(Asked { is_head_only: false, path: "/metrics", accepts_openmetrics: true }));
        assert_eq!(understood("HEAD / HTTP/1.0\r\nHost: localhost").map(|it| it.is_head_only), Ok(true));
        for (head, status) in [
            ("POST / HTTP/1.1\r\nHost: localhost", "405"),
            ("GET / HTTP/1.1\r\nHost: evil.example", "403"),
            ("GET / HTTP/1.1", "403"),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost", "400"),
            ("GET / HTTP/1.1\r\nno colon", "400"),
            ("GET /", "400"),
            ("GET / x HTTP/1.1", "400"),
            ("", "400"),
        ] {
            assert!(understood(head).is_err_and(|it| it.starts_with(status)), "{head}");
        }
    }

    #[test]
    fn only_names_of_the_loopback_are_taken() {
        for name in ["localhost", "LocalHost:80", "127.0.0.1", "127.1.2.3:9100", "[::1]", "[::1]:9100"] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["", "10.0.0.1", "a.localhost", "127.0.0.1.evil.example", "localhost:x", "[::1]x", "[10.0.0.1]"] {
            assert!(!is_loopback_name(name), "{name}");
        }
        assert!(WebPlace::take("0.0.0.0:0".parse().expect("an address")).is_err());
        assert!(WebPlace::take("127.0.0.1:0".parse().expect("an address")).is_ok_and(|it| it.address.port() > 0));
    }

    #[test]
    fn answers_say_how_long_they_are() {
        let text = String::from_utf8(answer("200 OK", "text/plain", "abc", false)).expect("text");
        assert!(text.contains("\r\nContent-Length: 3\r\n") && text.ends_with("\r\n\r\nabc"), "{text}");
        let text = String::from_utf8(answer("200 OK", "text/plain", "abc", true)).expect("text");
        assert!(text.contains("\r\nContent-Length: 3\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    }
}
