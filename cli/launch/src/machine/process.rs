//! The QEMU process: its sockets, its start, and the promise that it never outlives the tool.
//!
//! Three things keep the promise. QEMU runs in a session of its own, so a terminal's Ctrl-C reaches the tool
//! alone. The kernel of the host kills QEMU when the tool's thread that started it dies, however that comes
//! (`PR_SET_PDEATHSIG`); only the tool's main thread starts processes. And dropping a [`Machine`] kills and reaps it.
#![allow(unsafe_code, reason = "Command::pre_exec is the only way to prepare the child before QEMU runs")]

use std::ffi::OsString;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};

use crate::errors::{Doing, Error};
use crate::machine::qemu::PortFds;

/// The guest's descriptors get numbers from here on, so that the command line is the same in every run.
const GUEST_FD_MIN: RawFd = 100;

/// The tool's ends of a pod's four ports, all non-blocking.
#[derive(Debug)]
pub struct PodEnds {
    /// Port 1.
    pub stdin: UnixStream,
    /// Port 2.
    pub stdout: UnixStream,
    /// Port 3.
    pub stderr: UnixStream,
    /// Port 4.
    pub control: UnixStream,
}

/// The tool's ends of all sockets.
#[derive(Debug)]
pub struct HostEnds {
    /// The pods' ports.
    pub pods: Vec<PodEnds>,
    /// The kernel's log, non-blocking too.
    pub log: UnixStream,
}

/// The guest's ends, which QEMU inherits, and the bundle.
#[derive(Debug)]
pub struct GuestEnds {
    pods: Vec<[OwnedFd; 4]>,
    log: OwnedFd,
    others: Vec<OwnedFd>,
}

impl GuestEnds {
    /// The numbers of the pods' ports for the command line.
    pub fn port_fds(&self) -> Vec<PortFds> {
        let ports = |[stdin, stdout, stderr, control]: &[OwnedFd; 4]| PortFds {
            stdin: stdin.as_raw_fd(),
            stdout: stdout.as_raw_fd(),
            stderr: stderr.as_raw_fd(),
            control: control.as_raw_fd(),
        };
        self.pods.iter().map(ports).collect()
    }

    /// The number of the log's socket.
    pub fn log_fd(&self) -> RawFd {
        self.log.as_raw_fd()
    }

    /// Lets QEMU inherit another descriptor; the answer is its number there.
    pub fn add(&mut self, fd: &OwnedFd) -> Result<RawFd, Error> {
        let copy = fcntl_dupfd_cloexec(fd, GUEST_FD_MIN).doing("preparing the machine's files")?;
        let number = copy.as_raw_fd();
        self.others.push(copy);
        Ok(number)
    }

    fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        self.pods.iter().flatten().chain([&self.log]).chain(&self.others)
    }
}

/// Makes the socket pairs: four for each pod, and the log's.
pub fn sockets(pod_count: usize) -> Result<(HostEnds, GuestEnds), Error> {
    let pair = || -> Result<(UnixStream, OwnedFd), Error> {
        let (host, guest) = UnixStream::pair().doing("making the machine's sockets")?;
        host.set_nonblocking(true).doing("making the machine's sockets")?;
        let guest = fcntl_dupfd_cloexec(&guest, GUEST_FD_MIN).doing("making the machine's sockets")?;
        Ok((host, guest))
    };
    let (mut host_pods, mut guest_pods) = (Vec::new(), Vec::new());
    for _ in 0..pod_count {
        let (stdin, guest_stdin) = pair()?;
        let (stdout, guest_stdout) = pair()?;
        let (stderr, guest_stderr) = pair()?;
        let (control, guest_control) = pair()?;
        host_pods.push(PodEnds { stdin, stdout, stderr, control });
        guest_pods.push([guest_stdin, guest_stdout, guest_stderr, guest_control]);
    }
    let (log, guest_log) = pair()?;
    Ok((HostEnds { pods: host_pods, log }, GuestEnds { pods: guest_pods, log: guest_log, others: Vec::new() }))
}

/// How the QEMU process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QemuEnd {
    /// QEMU's own exit status.
    Exited(i32),
    /// Signal that ended QEMU.
    Killed(i32),
}

/// A running QEMU.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    end: Option<QemuEnd>,
}

impl Machine {
    /// Starts QEMU. The guest's ends are closed here afterwards, so that the host's ends see the end of the
    /// stream when QEMU ends.
    pub fn start(qemu: &Path, arguments: &[OsString], guest: GuestEnds) -> Result<Self, Error> {
        let parent = getpid();
        let mut command = Command::new(qemu);
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let prepare = move || prepare_child(&guest, parent);
        // SAFETY: the closure only makes system calls (`setsid`, `prctl`, `getppid`, `fcntl`) through
        // wrappers that neither allocate nor lock, which is what may be done between fork and exec.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::QemuMissing(qemu.into()),
            _ => Error::Host("starting QEMU", error),
        })?;
        // `command` owns the closure and with it the guest's ends.
        drop(command);
        Ok(Self { child, end: None })
    }

    /// Has QEMU take clients that come at once to these ports, which it forwards from ([`super::backlog`]).
    pub fn widen_backlogs(&self, hosts: impl IntoIterator<Item = SocketAddrV4>) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            super::backlog::widen(pid, hosts);
        }
    }

    /// QEMU's standard error; answers once.
    pub fn take_errors(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// How QEMU ended, if it has.
    pub fn poll_end(&mut self) -> io::Result<Option<QemuEnd>> {
        if self.end.is_none() {
            self.end = self.child.try_wait()?.map(|status| match status.code() {
                Some(code) => QemuEnd::Exited(code),
                None => QemuEnd::Killed(status.signal().unwrap_or(0)),
            });
        }
        Ok(self.end)
    }

    /// Ends QEMU at once. Its end is then seen by [`Machine::poll_end`].
    pub fn kill(&mut self) {
        // The only failure is that it has ended already.
        let _ = self.child.kill();
    }

    /// Stops QEMU where it is.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a stopped QEMU go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if self.end.is_none() {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            // Not yet reaped, so the number is still QEMU's; a failure means that it has just ended.
            if let Some(pid) = pid {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.kill();
            // A killed process can be waited for; if not, there is nothing left to do.
            let _ = self.child.wait();
        }
    }
}

/// Runs in the child between fork and exec.
fn prepare_child(guest: &GuestEnds, parent: Pid) -> io::Result<()> {
    rustix::process::setsid()?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The tool may have died before the line above; then nobody would send the signal.
    if getppid() != Some(parent) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    for fd in guest.all() {
        let flags = fcntl_getfd(fd)?;
        fcntl_setfd(fd, flags - FdFlags::CLOEXEC)?;
    }
    Ok(())
}
