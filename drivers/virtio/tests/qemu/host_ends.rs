//! The host's ends of a console's ports: sockets, as the host tool has them.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;

use aegis_hal::qtest::Folder;

/// The host's ends of the four ports: sockets, as the host tool has them.
pub(crate) struct HostEnds {
    folder: Folder,
    listeners: Vec<UnixListener>,
}

/// The host's ends after QEMU has connected to them.
pub(crate) struct Connected {
    /// Gives back the socket when everything has been sent and no more is to come.
    pub(crate) stdin: JoinHandle<UnixStream>,
    /// Gives what came until QEMU ended.
    pub(crate) stdout: JoinHandle<Vec<u8>>,
    /// Gives what came until QEMU ended.
    pub(crate) stderr: JoinHandle<Vec<u8>>,
    /// Nothing was sent and no more is to come.
    pub(crate) control: UnixStream,
}

/// The ports by number, from 1.
const PORTS: [&str; 4] = ["stdin", "stdout", "stderr", "control"];

impl HostEnds {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Folder::new(&format!("virtio-{name}"));
        let listeners = PORTS.map(|port| UnixListener::bind(folder.path().join(port)).expect("a socket")).into();
        Self { folder, listeners }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.folder.path()
    }

    /// Arguments for a serial device with the four ports on it.
    pub(crate) fn arguments(&self, device: &str) -> Vec<String> {
        let mut arguments: Vec<String> = ["-device".into(), device.into()].into();
        for (number, name) in (1..).zip(PORTS) {
            let path = self.directory().join(name);
            let chardev = format!("socket,id={name},path={}", path.display());
            let port = format!("virtserialport,nr={number},name=aegis.{name},chardev={name}");
            arguments.extend(["-chardev".into(), chardev, "-device".into(), port]);
        }
        arguments
    }

    /// Accepts QEMU's connections and serves them: sends `input`, collects what comes.
    pub(crate) fn serve(&self, input: Vec<u8>) -> Connected {
        let accept = |number: usize| self.listeners[number].accept().expect("QEMU connects").0;
        let (mut stdin, control) = (accept(0), accept(3));
        let collect = |mut stream: UnixStream| {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).expect("a socket");
                all
            })
        };
        let (stdout, stderr) = (collect(accept(1)), collect(accept(2)));
        // Half a close, not a whole one: at a whole one QEMU drops what it has not read yet.
        control.shutdown(Shutdown::Write).expect("a socket");
        let stdin = std::thread::spawn(move || {
            stdin.write_all(&input).expect("a socket");
            stdin.shutdown(Shutdown::Write).expect("a socket");
            stdin
        });
        Connected { stdin, stdout, stderr, control }
    }
}
