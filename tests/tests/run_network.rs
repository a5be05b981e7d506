//! The network of a run as its user meets it: ports of the host that lead to a server in the machine, the host's own
//! services, names, what is refused before a machine starts. Traffic stays on the host's loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use aegis_tests::programs::{Ended, aegis, is_there, remote, tool, up_tool};

/// The longest time until a server in the machine answers.
const START_LIMIT: Duration = Duration::from_secs(90);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// A machine that serves; ended when it is dropped.
struct Serving {
    child: Child,
    /// Ports of the host as they were printed, in order.
    hosts: Vec<String>,
    lines: Receiver<String>,
}

impl Serving {
    /// Starts it and waits until so many ports were printed.
    fn start(mut command: Command, port_count: usize) -> Self {
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
        let mut serving = Self { child, hosts: Vec::new(), lines };
        for _ in 0..port_count {
            let line = serving.line_with(" -> ");
            let host = line.strip_prefix("aegis: ").and_then(|rest| rest.split_once(" -> "));
            serving.hosts.push(host.unwrap_or_else(|| panic!("{line}")).0.to_owned());
        }
        serving
    }

    /// The next line that has this part.
    fn line_with(&self, part: &str) -> String {
        let deadline = Instant::now() + START_LIMIT;
        let mut seen = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(why) => panic!("no {part:?} ({why}): {seen:?}"),
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a server at that port of the host answers to a request for a file. Until the program listens, QEMU takes
/// connections and ends them.
fn fetched(host: &str, path: &str) -> String {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let answer = attempt(host, path);
        match answer {
            Some(text) if !text.is_empty() => return text,
            _ if Instant::now() > deadline => panic!("{host}{path}: no answer"),
            _ => std::thread::sleep(PAUSE),
        }
    }
}

fn attempt(host: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(host).ok()?;
    stream.set_read_timeout(Some(START_LIMIT)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The answer's body.
fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// A server on the host's loopback that says a word to whoever connects. Its port.
fn host_service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nwelcome\n");
            // Until it has ended, so that its request is not answered by a reset.
            let mut request = [0; 512];
            while client.read(&mut request).is_ok_and(|count| count > 0) {}
        }
    });
    port
}

fn text(ended: &Ended) -> String {
    String::from_utf8_lossy(&ended.output).into_owned()
}

const HTTPD: [&str; 6] = ["busybox", "httpd", "-f", "-p", "8000", "-h/etc"];

#[test]
fn a_port_of_the_host_leads_to_a_server() {
    for machine in ["microvm", "pc", "q35"] {
        let serving = Serving::start(tool(&["-M", machine, "-p", "0:8000"], &HTTPD), 1);
        assert!(serving.hosts[0].starts_with("127.0.0.1:"), "{:?}", serving.hosts);
        for _ in 0..3 {
            let answer = fetched(&serving.hosts[0], "/hostname");
            assert!(answer.starts_with("HTTP/1.") && body(&answer) == "aegis\n", "{machine}: {answer:?}");
        }
        assert!(fetched(&serving.hosts[0], "/none").contains(" 404 "));
    }
}

#[test]
fn the_hosts_python_serves_from_a_live_root() {
    if !is_there("python3") {
        return;
    }
    let command = ["python3", "-m", "http.server", "8000", "--directory", "/etc"];
    let serving = Serving::start(tool(&["--root", "/", "--network", "serve", "-p", "0:8000"], &command), 1);
    let answer = fetched(&serving.hosts[0], "/passwd");
    assert_eq!(body(&answer), std::fs::read_to_string("/etc/passwd").expect("it is there"));
    assert!(serving.line_with("GET /passwd").starts_with("10.0.2.2 "), "its client is the host");
}

/// More datagrams than the card's ring has room for, as fast as a program can send them: the sender waits, one that
/// does not wait is told so, and the card is given all that was sent (the last of it when it has room).
#[test]
fn a_flood_of_datagrams_waits_for_the_card() {
    if !is_there("python3") {
        return;
    }
    let program = "import socket, select, time\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        s.connect(('10.0.2.3', 9))\n\
        s.send(b'first')\n\
        for _ in range(20000): s.send(b'x' * 200)\n\
        s.setblocking(False)\n\
        waits = 0\n\
        for _ in range(5000):\n\
        \x20try: s.send(b'y' * 1400)\n\
        \x20except BlockingIOError:\n\
        \x20 waits += 1\n\
        \x20 assert select.select([], [s], [], 10)[1]\n\
        \x20 s.send(b'y' * 1400)\n\
        line = []\n\
        for _ in range(100):\n\
        \x20line = [l for l in open('/proc/net/dev') if 'eth0' in l][0].split()\n\
        \x20if int(line[10]) >= 25001: break\n\
        \x20time.sleep(0.1)\n\
        print('sent', int(line[10]) >= 25001, 'dropped', line[12], flush=True)\n";
    let ended = aegis(&["--root", "/", "--host-access"], &["python3", "-c", program], b"");
    assert!(text(&ended).contains("sent True dropped 0"), "{}", text(&ended));
}

/// What many connections cost goes with them: the pod's free memory is back within 1 MiB once they have ended.
#[test]
fn memory_is_back_after_many_connections() {
    const CONNECTION_COUNT: usize = 900;
    if !is_there("python3") {
        return;
    }
    let program = "import socket, selectors\n\
        s = socket.create_server(('0.0.0.0', 8000), backlog=64)\n\
        all = selectors.DefaultSelector()\n\
        all.register(s, 1)\n\
        free = lambda: [l for l in open('/proc/meminfo') if 'MemFree' in l][0].encode()\n\
        while True:\n\
        \x20for key, _ in all.select():\n\
        \x20 if key.fileobj is s:\n\
        \x20  all.register(s.accept()[0], 1)\n\
        \x20  continue\n\
        \x20 try: data = key.fileobj.recv(65536)\n\
        \x20 except OSError: data = b''\n\
        \x20 if data: key.fileobj.send(free() if data == b'free' else data)\n\
        \x20 else: all.unregister(key.fileobj), key.fileobj.close()\n";
    let serving = Serving::start(tool(&["--root", "/", "-m", "256M", "-p", "0:8000"], &["python3", "-c", program]), 1);
    let connect = |_| {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let answered = exchange(&serving.hosts[0], b"half a request");
            match answered {
                Some((stream, _)) => return stream,
                None if Instant::now() > deadline => panic!("no answer"),
                None => std::thread::sleep(PAUSE),
            }
        }
    };
    let free_kib = || {
        let (_, answer) = exchange(&serving.hosts[0], b"free").expect("it answers");
        answer.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).expect("a number")
    };
    drop(connect(0));
    let before_kib = free_kib();
    drop((0..CONNECTION_COUNT).map(connect).collect::<Vec<_>>());
    let deadline = Instant::now() + START_LIMIT;
    while free_kib() + 1024 < before_kib {
        assert!(Instant::now() < deadline, "{before_kib} KiB before, {} after", free_kib());
        std::thread::sleep(PAUSE);
    }
}

/// A connection over which something was sent and answered.
fn exchange(host: &str, request: &[u8]) -> Option<(TcpStream, String)> {
    let mut stream = TcpStream::connect(host).ok()?;
    stream.set_read_timeout(Some(START_LIMIT)).ok()?;
    stream.write_all(request).ok()?;
    let mut answer = [0; 256];
    let count = stream.read(&mut answer).ok().filter(|count| *count > 0)?;
    Some((stream, String::from_utf8_lossy(&answer[..count]).into_owned()))
}

#[test]
fn ipv6_and_datagrams_get_in() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        let serving = Serving::start(tool(&["-p", "[::1]:0:8000"], &HTTPD), 1);
        assert!(serving.hosts[0].starts_with("[::1]:"), "{:?}", serving.hosts);
        assert_eq!(body(&fetched(&serving.hosts[0], "/hostname")), "aegis\n");
    }
    if !is_there("python3") {
        return;
    }
    let program = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('', 5000))\n\
                   print('up', flush=True)\nwhile True:\n    d, a = s.recvfrom(2000)\n    s.sendto(d + b'!', a)\n";
    let command = ["python3", "-c", program];
    let serving = Serving::start(tool(&["--root", "/", "-p", "0:5000/udp"], &command), 1);
    serving.line_with("up");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.set_read_timeout(Some(START_LIMIT)).expect("a limit");
    for length in [0, 1, 1400] {
        client.send_to(&vec![b'x'; length], &serving.hosts[0]).expect("a question");
        let mut buffer = [0; 2000];
        let (count, _) = client.recv_from(&mut buffer).expect("an answer");
        assert_eq!((count, buffer[length]), (length + 1, b'!'));
    }
}

#[test]
fn the_hosts_services_are_for_those_who_may() {
    let port = host_service();
    // An address and no time limit: with a name or -T Debian's static busybox ends by SIGSEGV, on Linux too.
    let address = format!("http://10.0.2.2:{port}/");
    let command = ["busybox", "wget", "-q", "-O", "-", &address];
    let allowed = aegis(&["--host-access"], &command, b"");
    assert_eq!((allowed.status, text(&allowed).as_str()), (0, "welcome\n"), "{allowed:?}");
    for options in [&[][..], &["--network", "serve"]] {
        let refused = aegis(options, &command, b"");
        assert!(refused.status != 0 && refused.output.is_empty(), "{refused:?}");
        assert!(refused.errors.contains("refused"), "{refused:?}");
    }
    let alone = aegis(&["--network", "none"], &command, b"");
    assert!(alone.status != 0 && alone.errors.contains("unreachable"), "{alone:?}");
    if is_there("python3") {
        let program = format!("import socket; print(socket.create_connection(('host.aegis', {port}), 20).recv(8))");
        let command = ["python3", "-c", &program];
        let named = aegis(&["--root", "/", "--host-access"], &command, b"");
        assert_eq!((named.status, text(&named).as_str()), (0, "b'HTTP/1.0'\n"), "{named:?}");
    }
}

#[test]
fn names_are_the_pods() {
    let command = ["busybox", "cat", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];
    let options = ["--hostname", "box", "--add-host", "db:192.0.2.7", "--dns", "192.0.2.53", "--ip", "10.0.2.20"];
    let ended = aegis(&options, &command, b"");
    let expected = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n10.0.2.20\tbox\n\
                    10.0.2.2\thost.aegis\n192.0.2.7\tdb\nbox\nnameserver 192.0.2.53\n";
    assert_eq!((text(&ended).as_str(), ended.status), (expected, 0), "{ended:?}");
    let plain = aegis(&["--network", "none"], &command, b"");
    assert_eq!(text(&plain), "127.0.0.1\tlocalhost aegis\n::1\tlocalhost\naegis\nnameserver 10.0.2.3\n");
}

#[test]
fn frames_and_counters_are_written() {
    let port = host_service();
    let path = std::env::temp_dir().join(format!("aegis-frames-{}", std::process::id()));
    let address = format!("http://10.0.2.2:{port}/");
    let command = ["busybox", "wget", "-q", "-O", "-", &address];
    let name = path.to_string_lossy();
    let ended = aegis(&["--host-access", "--stats=json", "--pcap", &name], &command, b"");
    let frames = std::fs::read(&path).expect("QEMU wrote it");
    let _ = std::fs::remove_file(&path);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(frames.windows(7).any(|part| part == b"welcome"), "{} bytes", frames.len());
    let count = |key| aegis_tests::programs::counter(&ended.errors, key);
    assert!(count("network_received_packets") >= 4 && count("network_sent_bytes") > 200, "{}", ended.errors);
    let unused = aegis(&["--stats=json"], &["busybox", "true"], b"");
    assert!(!unused.errors.contains("network"), "{}", unused.errors);
}

#[test]
fn what_cannot_be_is_said_before_a_machine_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = taken.local_addr().expect("an address");
    for (options, part) in [
        (vec!["-p".to_owned(), format!("{}:80", host.port())], format!("aegis: -p {host}: taken by ")),
        (vec!["-p".into(), "80".into()], "a port is [ADDRESS:]HOST:GUEST".into()),
        (vec!["--network".into(), "tap=no-such-tap".into()], "aegis: --network tap: ".into()),
        (vec!["--network".into(), "none".into(), "-p".into(), "0:80".into()], "this pod has --network none".into()),
    ] {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let ended = aegis(&options, &["busybox", "true"], b"");
        assert_eq!(ended.status, 125, "{ended:?}");
        assert!(ended.errors.contains(&part) && ended.errors.lines().count() == 1, "{ended:?}");
    }
}

#[test]
fn each_pod_has_a_card_of_its_own() {
    let file = "[pod.a]\nprogram = \"busybox\"\nargs = [\"httpd\", \"-f\", \"-p\", \"80\", \"-h\", \"/etc\"]\n\
                ports = [\"0:80\"]\n\
                [pod.b]\nprogram = \"busybox\"\nargs = [\"httpd\", \"-f\", \"-p\", \"80\", \"-h\", \"/etc\"]\n\
                ports = [\"0:80\"]\n\
                [pod.c]\nprogram = \"busybox\"\nargs = [\"sleep\", \"1000\"]\n";
    let serving = Serving::start(up_tool("network", &["--name", "net"], file), 2);
    for (host, name) in serving.hosts.iter().zip(["a\n", "b\n"]) {
        assert_eq!(body(&fetched(host, "/hostname")), name);
    }
    let shown = text(&remote("network", &["ps"]));
    for host in &serving.hosts {
        assert!(shown.contains(&format!("{host} -> 80/tcp")), "{shown}");
    }
}

/// A server on the host; ended when it is dropped.
struct HostServer(Child);

impl HostServer {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for HostServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of the host's loopback that nobody has now.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port().to_string()
}

/// Runs a script on the host in a folder of its own, which it gives.
fn made(name: &str, script: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("aegis-network-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let status = Command::new("sh").args(["-ec", script]).current_dir(&folder).env("HOME", &folder).status();
    assert!(status.expect("a shell").success(), "{script}");
    folder
}

#[test]
fn programs_take_what_the_host_serves() {
    let programs = ["git", "curl", "wget", "/usr/bin/python3", "/usr/lib/git-core/git-daemon"];
    if !programs.iter().all(|program| is_there(program)) {
        return;
    }
    let helpers = concat!(env!("CARGO_MANIFEST_DIR"), "/linux/network");
    let script = format!(
        "mkdir -p src/tiny tiny; echo 'word = \"installed\"' >src/tiny/__init__.py; \
         /usr/bin/python3 {helpers}/wheel.py src tiny; head -c 30000000 /dev/urandom >f; git init -q -b main r; cd r; \
         git config user.email a@b; git config user.name a; seq 50000 >f; git add f; git commit -q -m one"
    );
    let folder = made("served", &script);
    let (git, http) = (free_port(), free_port());
    let shown = folder.display().to_string();
    let base = format!("--base-path={shown}");
    let mut daemon = Command::new("/usr/lib/git-core/git-daemon");
    daemon.args(["--listen=127.0.0.1", "--export-all", &base, &format!("--port={git}")]);
    let _servers = [
        HostServer::start(&mut daemon),
        HostServer::start(
            Command::new("/usr/bin/python3")
                .args(["-m", "http.server", &http, "--bind", "127.0.0.1"])
                .args(["--directory", &shown]),
        ),
    ];
    let deadline = Instant::now() + START_LIMIT;
    for port in [&git, &http] {
        while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
            assert!(Instant::now() < deadline, "port {port} of the host");
            std::thread::sleep(PAUSE);
        }
    }
    let script = format!(
        "set -e; cd $(mktemp -d); git clone -q git://host.aegis:{git}/r c; md5sum <c/f; \
         curl -s http://host.aegis:{http}/f | md5sum; wget -q -O - http://host.aegis:{http}/f | md5sum; \
         /usr/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --root-user-action ignore \
         --trusted-host host.aegis --index-url http://host.aegis:{http} --target p tiny; cat p/tiny/__init__.py"
    );
    let ended = aegis(&["--root", "/", "--host-access", "-m", "512M"], &["sh", "-c", &script], b"");
    let sums = "md5sum <r/f; md5sum <f; md5sum <f; cat src/tiny/__init__.py";
    let sums = Command::new("sh").args(["-c", sums]).current_dir(&folder).output().expect("a shell");
    let wanted = String::from_utf8_lossy(&sums.stdout).into_owned();
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!((ended.status, text(&ended)), (0, wanted), "{ended:?}");
}

/// An HTTP answer of so many bytes, `path` times over.
const ASYNCIO_SERVER: &str = "\
import asyncio, sys
async def serve(reader, writer):
    while line := await reader.readline():
        word = line.split()[1].decode()
        while (await reader.readline()).strip():
            pass
        body = (word * 400).encode()
        writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)
        await writer.drain()
async def main():
    server = await asyncio.start_server(serve, '0.0.0.0', 8000, backlog=200)
    print('up', flush=True)
    await server.serve_forever()
asyncio.run(main())
";

#[test]
fn many_clients_of_the_host_are_served_at_once() {
    if !is_there("/usr/bin/python3") {
        return;
    }
    let command = ["/usr/bin/python3", "-c", ASYNCIO_SERVER];
    let serving = Serving::start(tool(&["--root", "/", "-p", "0:8000"], &command), 1);
    serving.line_with("up");
    let host = serving.hosts[0].as_str();
    let ask = |number: usize| {
        let stream = TcpStream::connect(host).expect("a connection");
        stream.set_read_timeout(Some(START_LIMIT)).expect("a limit");
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut writer = stream;
        for turn in 0..10 {
            let path = format!("/{number}/{turn}");
            write!(writer, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                assert!(reader.read_line(&mut line).expect("a head") > 0, "{path}: the server went away");
            }
            let mut body = vec![0; path.len() * 400];
            reader.read_exact(&mut body).expect("a body");
            assert_eq!(body, path.repeat(400).into_bytes());
        }
    };
    std::thread::scope(|scope| {
        for number in 0..32 {
            scope.spawn(move || ask(number));
        }
    });
}
