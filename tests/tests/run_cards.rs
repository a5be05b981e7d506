//! Each card that there is a driver for, as a program meets it: echoes, TCP in and out, datagrams, a long transfer; and
//! what happens to a machine whose pod ends while frames come. Traffic stays on the host's loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use aegis_tests::programs::{aegis, host, is_there, tool, up, up_tool};

/// Values of `--driver`.
const CARDS: [&str; 9] = [
    "net=library:virtio",
    "net=library:e1000",
    "net=library:e1000e",
    "net=domain:virtio",
    "net=domain:e1000",
    "net=domain:e1000e",
    "net=kernel:virtio",
    "net=kernel:e1000",
    "net=kernel:e1000e",
];
/// Of these, those that a pod among several can have: its library OS drives them.
const LIBRARY_CARDS: [&str; 3] = [CARDS[0], CARDS[1], CARDS[2]];
/// Bytes of the long transfer.
const LONG_BYTES: usize = 100_000_000;
/// The longest time until a server in the machine answers.
const START_LIMIT: Duration = Duration::from_secs(90);
/// Until one answer of several tries.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
const HTTPD: [&str; 6] = ["busybox", "httpd", "-f", "-p", "8000", "-h/etc"];

/// The tool while it runs; ended when it is dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool starts");
        let (sender, lines) = channel();
        let (output, errors) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        for stream in [Box::new(output) as Box<dyn Read + Send>, Box::new(errors)] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Self { child, lines }
    }

    /// The next line that has this part.
    fn line_with(&self, part: &str) -> String {
        let deadline = Instant::now() + START_LIMIT;
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(why) => panic!("no {part:?} ({why}): {seen:?}"),
            }
        }
    }

    /// A port of the host, as it is printed.
    fn port(&self) -> String {
        let line = self.line_with(" -> ");
        let host = line.strip_prefix("aegis: ").and_then(|rest| rest.split_once(" -> "));
        host.unwrap_or_else(|| panic!("{line}")).0.to_owned()
    }

    /// Asks it to end, as a user does; its status.
    fn end(mut self) -> Option<i32> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill");
        assert!(asked.success());
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status.code();
            }
            std::thread::sleep(PAUSE);
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a server at that port of the host answers to a request for `/hostname`.
fn fetched(host: &str) -> String {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let answer = attempt(host).unwrap_or_default();
        match answer.split_once("\r\n\r\n") {
            Some((_, body)) => return body.to_owned(),
            None if Instant::now() > deadline => panic!("{host}: no answer"),
            None => std::thread::sleep(PAUSE),
        }
    }
}

fn attempt(host: &str) -> Option<String> {
    let mut stream = TcpStream::connect(host).ok()?;
    // QEMU takes a connection in while its pod is not there; then another is made.
    stream.set_read_timeout(Some(ATTEMPT_LIMIT)).ok()?;
    write!(stream, "GET /hostname HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// A server on the host's loopback that sends these bytes to whoever connects. Its port.
fn host_service(bytes: Arc<Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = write!(client, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
            let _ = client.write_all(&bytes);
            let mut request = [0; 512];
            while client.read(&mut request).is_ok_and(|count| count > 0) {}
        }
    });
    port
}

#[test]
fn echoes_and_a_long_transfer_come_back_whole() {
    let mut state = 1_u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(LONG_BYTES)
    .collect();
    let sum = host(&["busybox", "md5sum"], &bytes);
    let port = host_service(Arc::new(bytes));
    let script = format!(
        "ping -c 2 -s 1000 10.0.2.2 | grep received; wget -q -O - http://10.0.2.2:{port}/ | md5sum; \
         grep eth0 /proc/net/dev | awk '{{ print \"dropped\", $5, $13 }}'"
    );
    for card in CARDS {
        let ended = aegis(&["--driver", card, "--host-access"], &["busybox", "sh", "-c", &script], b"");
        let text = String::from_utf8_lossy(&ended.output).into_owned();
        let expected = format!(
            "2 packets transmitted, 2 packets received, 0% packet loss\n{}dropped 0 0\n",
            String::from_utf8_lossy(&sum.output)
        );
        assert_eq!((text, ended.status), (expected, 0), "{card}: {}", ended.errors);
    }
}

/// A domain that faults again and again while bytes come in: what was under way is lost, and no byte of a connection.
/// QEMU's cards of Intel's have no link for a while after each start, so it is virtio's.
#[test]
fn connections_outlive_the_domain_of_their_card() {
    let bytes: Vec<u8> = (0..40_000_000_u32).map(|index| (index ^ (index >> 9)) as u8).collect();
    let sum = host(&["busybox", "md5sum"], &bytes);
    let port = host_service(Arc::new(bytes));
    // Several times: one may be over before the first fault.
    let script = format!("for turn in 1 2 3; do wget -q -O - http://10.0.2.2:{port}/ | md5sum; done");
    let options = ["--driver", "net=domain:virtio", "--host-access", "--fault-net-domain", "700"];
    let ended = aegis(&options, &["busybox", "sh", "-c", &script], b"");
    assert_eq!((&ended.output, ended.status), (&sum.output.repeat(3), 0), "{}", ended.errors);
    assert!(ended.errors.contains("was lost and is started anew"), "{}", ended.errors);
}

/// The same with a domain that hangs, which its client finds out by frames that are not taken, and one that lies.
#[test]
fn a_card_whose_domain_hangs_or_lies_is_there_again() {
    let bytes: Vec<u8> = (0..10_000_000_u32).map(|index| (index ^ (index >> 9)) as u8).collect();
    let sum = host(&["busybox", "md5sum"], &bytes);
    let port = host_service(Arc::new(bytes));
    let script = format!("for turn in 1 2 3 4 5 6 7 8 9; do wget -q -O - http://10.0.2.2:{port}/ | md5sum; done");
    // Longer than a sender's timer for what is lost, so that something gets on in between.
    for fault in ["1500:hang", "1500:lie"] {
        let options = ["--driver", "net=domain:virtio", "--host-access", "--fault-net-domain", fault];
        let ended = aegis(&options, &["busybox", "sh", "-c", &script], b"");
        assert_eq!((&ended.output, ended.status), (&sum.output.repeat(9), 0), "{fault}: {}", ended.errors);
        assert!(ended.errors.contains("was lost and is started anew"), "{fault}: {}", ended.errors);
    }
}

/// What the domain took of the processor is in the statistics.
#[test]
fn a_cards_domain_is_in_the_statistics() {
    let options = ["--driver", "net=domain:virtio", "--stats=json"];
    let ended = aegis(&options, &["busybox", "ping", "-c", "1", "10.0.2.2"], b"");
    let has = |key: &str| ended.errors.contains(&format!("\"{key}\":"));
    assert!(has("net_domain_ns") && has("net_domain_starts") && !has("disk_domain_ns"), "{ended:?}");
}

/// Pods that are trusted with devices have a card each, wherever its driver is.
#[test]
fn pods_have_cards_in_every_placement() {
    let pod = |name: &str, card: &str| {
        format!(
            "[pod.{name}]\nprogram = \"busybox\"\nargs = [\"httpd\", \"-f\", \"-p\", \"80\", \"-h\", \"/etc\"]\n\
             ports = [\"0:80\"]\ndrivers = [\"{card}\"]\n"
        )
    };
    let trusted = "[machine]\ntrust_devices = true\n".to_owned();
    for cards in [&["net=domain:virtio", "net=domain:virtio"][..], &["net=domain:e1000"], &["net=kernel:virtio"]] {
        let pods: String = ["a", "b"].iter().zip(cards).map(|(name, card)| pod(name, card)).collect();
        let serving = Running::start(up_tool("cards-placed", &[], &(trusted.clone() + &pods)));
        let ports: Vec<_> = cards.iter().map(|_| serving.port()).collect();
        for (name, port) in ["a\n", "b\n"].into_iter().zip(&ports) {
            assert_eq!(fetched(port), name, "{cards:?}");
        }
    }
    let both = trusted + &pod("a", "net=kernel") + &pod("b", "net=library");
    let ended = up("cards-placed", &[], &both);
    assert!(ended.status == 125 && ended.errors.contains("the kernel drives one card"), "{ended:?}");
}

#[test]
fn ports_of_the_host_lead_in() {
    for card in CARDS {
        let serving = Running::start(tool(&["--driver", card, "-p", "0:8000"], &HTTPD));
        let port = serving.port();
        for _ in 0..3 {
            assert_eq!(fetched(&port), "aegis\n", "{card}");
        }
    }
    let serving = Running::start(tool(&["-M", "pc", "--driver", CARDS[2], "-p", "0:8000"], &HTTPD));
    assert_eq!(fetched(&serving.port()), "aegis\n", "82574L on PCI");
}

const ECHO: &str = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', 5000))\n\
                    print('up', flush=True)\nwhile True:\n    d, a = s.recvfrom(2000)\n    s.sendto(d + b'!', a)\n";

#[test]
fn datagrams_are_echoed() {
    if !is_there("python3") {
        return;
    }
    for card in CARDS {
        let options = ["--root", "/", "--driver", card, "-p", "0:5000/udp"];
        let serving = Running::start(tool(&options, &["python3", "-c", ECHO]));
        let port = serving.port();
        serving.line_with("up");
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        client.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
        for length in [0, 1, 63, 1400] {
            let mut buffer = [0; 2000];
            // A datagram may be lost, as on every network.
            let count = (0..10).find_map(|_| {
                client.send_to(&vec![b'x'; length], &port).expect("a question");
                client.recv(&mut buffer).ok()
            });
            assert_eq!((count, buffer[length]), (Some(length + 1), b'!'), "{card}");
        }
    }
}

/// Sends datagrams to a port until it is dropped.
struct Flood(Arc<AtomicBool>);

impl Flood {
    fn start(host: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (host, flag) = (host.to_owned(), is_over.clone());
        std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            while !flag.load(Ordering::Relaxed) {
                for _ in 0..200 {
                    let _ = socket.send_to(&[7; 1400], &host);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self(is_over)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A program that takes no datagram, so that the card's ring is full when it ends.
const DEAF: &str = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', 5000))\n\
                    print('up', flush=True)\ns.recvfrom(2000)\nprint('full', flush=True)\nwhile True: pass\n";

#[test]
fn a_pod_ends_while_its_rings_are_full() {
    if !is_there("python3") {
        return;
    }
    for card in CARDS {
        let options = ["--root", "/", "--driver", card, "-p", "0:5000/udp"];
        let serving = Running::start(tool(&options, &["python3", "-c", DEAF]));
        let port = serving.port();
        serving.line_with("up");
        let _flood = Flood::start(&port);
        serving.line_with("full");
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(serving.end(), Some(128 + 15), "{card}");
    }
}

/// A pod whose program ends again and again while datagrams come: the next one finds a card that the kernel has
/// stopped and that nobody has reset. The other pod does not notice.
#[test]
fn a_card_serves_the_pod_that_comes_after() {
    for card in LIBRARY_CARDS {
        let file = format!(
            "[machine]\ntrust_devices = true\n\
             [pod.a]\nprogram = \"busybox\"\nargs = [\"sh\", \"-c\", \"httpd -p 80 -h /etc; sleep 6\"]\n\
             ports = [\"0:80\", \"0:5000/udp\"]\ndrivers = [\"{card}\"]\nrestart = \"always\"\n\
             [pod.b]\nprogram = \"busybox\"\nargs = [\"httpd\", \"-f\", \"-p\", \"80\", \"-h\", \"/etc\"]\n\
             ports = [\"0:80\"]\ndrivers = [\"{card}\"]\n"
        );
        let serving = Running::start(up_tool(&format!("cards-{}", card.len()), &[], &file));
        let ports = [serving.port(), serving.port(), serving.port()];
        let _flood = Flood::start(&ports[1]);
        for _ in 0..3 {
            assert_eq!(fetched(&ports[0]), "a\n", "{card}");
            assert_eq!(fetched(&ports[2]), "b\n", "{card}");
            serving.line_with("again");
        }
        assert_eq!(fetched(&ports[0]), "a\n", "{card}");
    }
}

#[test]
fn what_cannot_be_is_said_before_a_machine_starts() {
    for (options, part) in [
        (&["-M", "microvm", "--driver", "net=kernel"][..], "--driver net: kernel needs -M pc or q35"),
        (&["-M", "microvm", "--driver", "net=library:e1000"], "e1000 needs -M pc or q35"),
        (&["--network", "none", "--driver", "net=library:e1000"], "this pod has --network none"),
        (&["--driver", "net=library:ide"], "a driver's model is one of virtio, e1000, e1000e"),
    ] {
        let ended = aegis(options, &["busybox", "true"], b"");
        assert_eq!((ended.status, ended.errors.lines().count()), (125, 1), "{ended:?}");
        assert!(ended.errors.contains(part), "{ended:?}");
    }
    for (card, part) in [
        ("net=library:e1000", "e1000 is not guarded"),
        ("net=domain", "net=domain needs trust_devices"),
        ("net=kernel", "net=kernel needs trust_devices"),
    ] {
        let file = format!("[pod.a]\nprogram = \"busybox\"\nports = [\"0:80\"]\ndrivers = [\"{card}\"]\n");
        let ended = up("cards-guarded", &[], &file);
        assert!(ended.status == 125 && ended.errors.contains(part), "{ended:?}");
    }
}
