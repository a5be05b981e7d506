//! The client of suite `net`: what one operation of a row is, and how long it takes from the host.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Longest time of one answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Until a program in the machine takes requests, and between two attempts.
const START_MAX: Duration = Duration::from_secs(120);
const START_PAUSE: Duration = Duration::from_millis(200);
/// An answer that is not longer after this time is whole.
const CALM: Duration = Duration::from_millis(300);
/// Bytes of a stream (bench/net/server.c).
pub(super) const STREAM_BYTES: usize = 4 << 20;
/// A stream is counted in pieces of this size.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Operations that are not measured, before those that are.
pub(super) const WARM_COUNT: u32 = 100;
/// Only round trips of datagrams may be lost, and only so many.
const LOST_MAX: u32 = 20;

/// What one operation of a row is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A datagram of so many bytes there and back, so many of them under way.
    Datagrams { bytes: usize, under_way: u32 },
    /// Bytes of one connection there and back.
    Bytes(usize),
    /// A connection, a byte there and back, and its end.
    Connections,
    /// A piece of a stream to the server.
    In,
    /// A piece of a stream from it.
    Out,
    /// A request and its answer, on so many connections at once, so many requests at a time on each.
    Requests { port: usize, text: &'static str, connections: u32, depth: u32 },
}

/// The host's end of a machine's ports, in the order of [`super::PORTS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(pub(crate) [u16; super::PORTS.len()]);

impl Client {
    fn address(self, index: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.0[index]).into()
    }

    /// The time of one operation of `count`.
    pub(crate) fn operations(self, kind: Kind, count: u32) -> Result<Duration, String> {
        let took = match kind {
            Kind::Datagrams { bytes, under_way } => self.datagrams(bytes, under_way, count),
            Kind::Bytes(bytes) => self.bytes(bytes, count),
            Kind::Connections => self.connections(count),
            Kind::In => self.stream_in(),
            Kind::Out => self.stream_out(),
            Kind::Requests { port, text, connections, depth } => self.requests(port, text, connections, depth, count),
        };
        Ok(took.map_err(|error| error.to_string())? / count)
    }

    /// Waits until a program in the machine answers a request, which it does not before it has started.
    pub(super) fn wait_for(self, port: usize, text: &str) -> Result<(), String> {
        let deadline = Instant::now() + START_MAX;
        loop {
            match self.answer_bytes(port, text) {
                Ok(count) if count > 0 => return Ok(()),
                _ if Instant::now() > deadline => return Err("the program does not answer".into()),
                _ => std::thread::sleep(START_PAUSE),
            }
        }
    }

    /// Begins (`<`) or ends (`>`) what is counted.
    pub(crate) fn mark(self, mark: u8) -> io::Result<()> {
        let socket = self.datagram_socket()?;
        socket.send(&[mark])?;
        socket.recv(&mut [0; 8]).map(drop)
    }

    fn datagram_socket(self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(self.address(0))?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(socket)
    }

    fn datagrams(self, bytes: usize, under_way: u32, count: u32) -> io::Result<Duration> {
        let socket = self.datagram_socket()?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        let mut buffer = vec![b'x'; bytes];
        let mut lost = 0;
        let mut exchange = |count: u32, under_way: u32| -> io::Result<Duration> {
            let begin = Instant::now();
            (0..under_way).try_for_each(|_| socket.send(&buffer).map(drop))?;
            let (mut received, mut sent) = (0, under_way);
            while received < count {
                match socket.recv(&mut buffer) {
                    Ok(_) => received += 1,
                    Err(_) if lost < LOST_MAX => lost += 1,
                    Err(error) => return Err(error),
                }
                if sent < count || received + 1 >= sent {
                    socket.send(&buffer)?;
                    sent += 1;
                }
            }
            Ok(begin.elapsed())
        };
        exchange(WARM_COUNT, 1)?;
        exchange(count, under_way)
    }

    fn connection(self, index: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address(index))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(stream)
    }

    fn bytes(self, bytes: usize, count: u32) -> io::Result<Duration> {
        let mut stream = self.connection(1)?;
        let mut buffer = vec![b'x'; bytes];
        let mut exchange = |count: u32| -> io::Result<Duration> {
            let begin = Instant::now();
            for _ in 0..count {
                stream.write_all(&buffer)?;
                stream.read_exact(&mut buffer)?;
            }
            Ok(begin.elapsed())
        };
        exchange(WARM_COUNT)?;
        exchange(count)
    }

    fn connections(self, count: u32) -> io::Result<Duration> {
        let exchange = |count: u32| -> io::Result<Duration> {
            let begin = Instant::now();
            for _ in 0..count {
                let mut stream = self.connection(1)?;
                stream.write_all(b"x")?;
                stream.read_exact(&mut [0])?;
            }
            Ok(begin.elapsed())
        };
        exchange(WARM_COUNT)?;
        exchange(count)
    }

    fn stream_in(self) -> io::Result<Duration> {
        let mut stream = self.connection(2)?;
        let piece = vec![b'x'; PIECE_BYTES];
        let begin = Instant::now();
        (0..STREAM_BYTES / PIECE_BYTES).try_for_each(|_| stream.write_all(&piece))?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_exact(&mut [0])?;
        Ok(begin.elapsed())
    }

    fn stream_out(self) -> io::Result<Duration> {
        let mut stream = self.connection(3)?;
        let mut piece = vec![0; PIECE_BYTES];
        let begin = Instant::now();
        let mut total = 0;
        while total < STREAM_BYTES {
            match stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => total += count,
            }
        }
        Ok(begin.elapsed())
    }

    /// How long an answer is.
    fn answer_bytes(self, port: usize, text: &str) -> io::Result<usize> {
        let mut stream = self.connection(port)?;
        stream.write_all(text.as_bytes())?;
        let mut buffer = vec![0; PIECE_BYTES];
        let mut total = stream.read(&mut buffer)?;
        stream.set_read_timeout(Some(CALM))?;
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            total += count;
        }
        Ok(total)
    }

    /// All connections are asked, then all are read: while the client reads one the others are under way.
    fn requests(self, port: usize, text: &str, connections: u32, depth: u32, count: u32) -> io::Result<Duration> {
        let answer_bytes = self.answer_bytes(port, text)?;
        let asked = text.repeat(depth as usize);
        let mut answer = vec![0; answer_bytes * depth as usize];
        let mut streams = (0..connections).map(|_| self.connection(port)).collect::<io::Result<Vec<_>>>()?;
        let mut exchange = |count: u32| -> io::Result<Duration> {
            let begin = Instant::now();
            for _ in 0..rounds(connections, depth, count) {
                streams.iter_mut().try_for_each(|stream| stream.write_all(asked.as_bytes()))?;
                streams.iter_mut().try_for_each(|stream| stream.read_exact(&mut answer))?;
            }
            Ok(begin.elapsed())
        };
        exchange(WARM_COUNT)?;
        exchange(count)
    }
}

/// How often all connections are asked for so many requests.
fn rounds(connections: u32, depth: u32, count: u32) -> u32 {
    count.div_ceil(connections * depth)
}

/// How many operations `operations` does besides those that it is asked for.
pub(crate) fn more_operations(kind: Kind, count: u32) -> u32 {
    match kind {
        Kind::In | Kind::Out => 0,
        Kind::Requests { connections, depth, .. } => {
            let of = |count| rounds(connections, depth, count) * connections * depth;
            // The one that says how long an answer is.
            of(WARM_COUNT) + of(count) + 1 - count
        }
        _ => WARM_COUNT,
    }
}

#[cfg(test)]
mod tests {
    use super::{Client, Kind, more_operations};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn requests_are_answered_and_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let kind = Kind::Requests { port: 0, text: "ask\n", connections: 3, depth: 4 };
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut asked = [0; 4];
                    while stream.read_exact(&mut asked).is_ok() && stream.write_all(b"answer").is_ok() {}
                });
            }
        });
        let client = Client([port; super::super::PORTS.len()]);
        client.wait_for(0, "ask\n").unwrap();
        assert!(client.operations(kind, 24).unwrap().as_nanos() > 0);
        assert_eq!(more_operations(kind, 24), 108 + 1);
        assert_eq!(more_operations(kind, 25), 108 + 1 + 11);
        assert_eq!(more_operations(Kind::In, 64), 0);
    }
}
