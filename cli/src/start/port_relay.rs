//! Ports of the host whose address QEMU cannot forward from (IPv6): the tool takes what comes there and hands it to a
//! port of 127.0.0.1 that QEMU forwards.
//!
//! Threads of their own, because they share nothing with the rest of the run and end with the process. At most
//! [`CLIENT_COUNT_MAX`] clients of a port at a time: further connections are closed, further senders of datagrams not
//! heard until one has been silent for [`SILENCE`].

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Most clients of a port.
const CLIENT_COUNT_MAX: usize = 512;
/// A sender of datagrams that gets no answer for so long is forgotten.
const SILENCE: Duration = Duration::from_secs(120);
/// Longest datagram.
const DATAGRAM_BYTES_MAX: usize = 65_536;
/// The host has no descriptors or memory for one more: it may have some later.
const PAUSE: Duration = Duration::from_millis(50);
/// Stack of a thread that copies bytes.
const STACK_BYTES: usize = 256 << 10;

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("port".into()).stack_size(STACK_BYTES).spawn(run).map(drop)
}

/// One of so many clients, while it is there.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>) -> Option<Self> {
        let is_taken = count.fetch_add(1, Ordering::Relaxed) < CLIENT_COUNT_MAX;
        // Dropping it counts down in any case.
        let place = Self(count.clone());
        is_taken.then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes connections from now on and hands them to `inner`.
pub(crate) fn relay_connections(outer: TcpListener, inner: SocketAddrV4) -> io::Result<()> {
    spawn(move || {
        let count = Arc::<AtomicUsize>::default();
        loop {
            match outer.accept() {
                Ok((client, _)) => {
                    let Some(place) = Place::take(&count) else { continue };
                    // What there is no thread for is closed.
                    let _ = spawn(move || {
                        let _ = join(client, inner);
                        drop(place);
                    });
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    })
}

/// Copies both ways until both have ended.
fn join(client: TcpStream, inner: SocketAddrV4) -> io::Result<()> {
    let server = TcpStream::connect(inner)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    spawn(move || copy(from_client, to_server))?;
    copy(server, client);
    Ok(())
}

/// Copies until the end, which is passed on; an end in the middle ends both.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let result = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    if result.is_err() {
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

type Senders = Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>>;

/// Takes datagrams from now on and hands them to `inner`, each sender's by a socket of its own, so that answers find
/// back.
pub(crate) fn relay_datagrams(outer: UdpSocket, inner: SocketAddrV4) -> io::Result<()> {
    let outer = Arc::new(outer);
    spawn(move || {
        let senders = Senders::default();
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        loop {
            match outer.recv_from(&mut buffer) {
                // A datagram that cannot be passed on is lost, as any other may be.
                Ok((count, sender)) => {
                    let _ = socket_for(&senders, sender, &outer, inner).and_then(|it| it.send(&buffer[..count]));
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    })
}

fn socket_for(
    senders: &Senders,
    sender: SocketAddr,
    outer: &Arc<UdpSocket>,
    inner: SocketAddrV4,
) -> io::Result<Arc<UdpSocket>> {
    let mut known = senders.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(socket) = known.get(&sender) {
        return Ok(socket.clone());
    }
    if known.len() >= CLIENT_COUNT_MAX {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0")?);
    socket.connect(inner)?;
    socket.set_read_timeout(Some(SILENCE))?;
    let (answers, outer, senders) = (socket.clone(), outer.clone(), senders.clone());
    spawn(move || {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while let Ok(count) = answers.recv(&mut buffer) {
            let _ = outer.send_to(&buffer[..count], sender);
        }
        senders.lock().unwrap_or_else(PoisonError::into_inner).remove(&sender);
    })?;
    known.insert(sender, socket.clone());
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::{relay_connections, relay_datagrams};
    use std::io::{Read, Write};
    use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(address) => panic!("{address}"),
        }
    }

    #[test]
    fn connections_go_both_ways_and_end_by_halves() {
        let Ok(outer) = TcpListener::bind("[::1]:0") else { return };
        let inner = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = outer.local_addr().expect("an address");
        relay_connections(outer, v4(inner.local_addr().expect("an address"))).expect("a thread");
        let server = std::thread::spawn(move || {
            let (mut connection, _) = inner.accept().expect("a client");
            let mut text = Vec::new();
            connection.read_to_end(&mut text).expect("its question");
            text.reverse();
            connection.write_all(&text).expect("an answer");
        });
        let mut client = TcpStream::connect(place).expect("a connection");
        let question: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        client.write_all(&question).expect("a question");
        client.shutdown(Shutdown::Write).expect("its end");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an answer");
        answer.reverse();
        assert!(answer == question);
        server.join().expect("the server");
    }

    #[test]
    fn datagrams_find_back() {
        let Ok(outer) = UdpSocket::bind("[::1]:0") else { return };
        let inner = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let place = outer.local_addr().expect("an address");
        relay_datagrams(outer, v4(inner.local_addr().expect("an address"))).expect("a thread");
        let clients = [(); 2].map(|()| UdpSocket::bind("[::1]:0").expect("a port"));
        let mut buffer = [0; 16];
        for (number, client) in (1..).zip(&clients) {
            client.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
            client.send_to(&[number; 3], place).expect("a question");
        }
        for _ in &clients {
            let (count, sender) = inner.recv_from(&mut buffer).expect("a question");
            buffer[count] = 9;
            inner.send_to(&buffer[..=count], sender).expect("an answer");
        }
        for (number, client) in (1..).zip(&clients) {
            assert_eq!(client.recv_from(&mut buffer).expect("an answer"), (4, place));
            assert_eq!(buffer[..4], [number, number, number, 9]);
        }
    }
}
