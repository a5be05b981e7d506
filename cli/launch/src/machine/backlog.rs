//! Room for clients of the host that come at once.
//!
//! QEMU's user network listens at each port with a backlog of one (libslirp), and no option changes that: of 32
//! clients that connect in the same moment some wait for seconds, and the host resets others. The tool has started
//! QEMU, so Linux lets it have QEMU's own listening sockets (pidfd_getfd(2)), and listening once more with another
//! backlog is what changes it (listen(2)).
//!
//! Where the host does not allow that (a kernel before 5.6, a container without ptrace) all stays as QEMU has it.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::net::{getsockname, listen, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Connections that may wait for QEMU.
const BACKLOG: i32 = 1024;
/// QEMU listens before the machine starts; after so long it is not looked at any more.
const LIMIT: Duration = Duration::from_secs(20);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Has a process listen with room at these addresses, once it listens there: in a thread of its own, which ends with
/// that. Failures change nothing.
pub(super) fn widen(process: Pid, addresses: impl IntoIterator<Item = SocketAddrV4>) {
    let mut missing: BTreeSet<SocketAddrV4> = addresses.into_iter().collect();
    let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return };
    if missing.is_empty() {
        return;
    }
    let run = move || {
        let begun = Instant::now();
        while !missing.is_empty() && begun.elapsed() < LIMIT && look(process, &handle, &mut missing).is_some() {
            thread::sleep(PAUSE);
        }
    };
    // Without a thread all stays as it is.
    let _ = thread::Builder::new().name("backlog".into()).spawn(run);
}

/// Looks at the process's sockets once. `None`: that is not allowed, or the process has ended.
fn look(process: Pid, handle: &OwnedFd, missing: &mut BTreeSet<SocketAddrV4>) -> Option<()> {
    for entry in std::fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).ok()?.flatten() {
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|_| is_socket) else {
            continue;
        };
        match pidfd_getfd(handle, number, PidfdGetfdFlags::empty()) {
            Ok(socket) => widen_one(&socket, missing),
            // Closed since.
            Err(rustix::io::Errno::BADF) => {}
            Err(_) => return None,
        }
    }
    Some(())
}

fn widen_one(socket: &OwnedFd, missing: &mut BTreeSet<SocketAddrV4>) {
    let address = getsockname(socket).ok().and_then(|address| SocketAddrV4::try_from(address).ok());
    if let Some(address) = address
        && sockopt::socket_acceptconn(socket) == Ok(true)
        && missing.contains(&address)
        && listen(socket, BACKLOG).is_ok()
    {
        missing.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{SocketAddr, TcpListener};

    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::look;

    #[test]
    fn sockets_that_listen_are_found_by_their_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("it was bound to IPv4") };
        let other = "127.0.0.1:1".parse().unwrap();
        let mut missing = BTreeSet::from([address, other]);
        let handle = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        if look(getpid(), &handle, &mut missing).is_none() {
            eprintln!("this host does not let a process have another's descriptors: not tried");
            return;
        }
        assert_eq!(missing, BTreeSet::from([other]));
    }
}
