//! A terminal for a container: its master goes to the engine by the console socket, its other end is the standard
//! streams of the process that stands for the container.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::oci::errors::{Result, WhileDoing};
use crate::remote::socket::connect;

/// Makes a terminal, sends its master to the socket, and makes it this process's own; the process leads a session.
pub(crate) fn take(socket: &Path) -> Result<()> {
    let what = || "making a terminal".to_owned();
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).while_doing(what)?;
    grantpt(&master).while_doing(what)?;
    unlockpt(&master).while_doing(what)?;
    let name = ptsname(&master, Vec::new()).while_doing(what)?;
    let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
    let slave = slave.while_doing(what)?;
    // The machine has the line discipline.
    let mut modes = tcgetattr(&slave).while_doing(what)?;
    modes.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &modes).while_doing(what)?;
    let stream = connect(socket).while_doing(|| format!("console socket {}", socket.display()))?;
    let fds = [master.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&stream, &[IoSlice::new(name.as_bytes())], &mut control, SendFlags::NOSIGNAL)
        .while_doing(|| format!("console socket {}", socket.display()))?;
    rustix::process::ioctl_tiocsctty(&slave).while_doing(what)?;
    rustix::stdio::dup2_stdin(&slave).while_doing(what)?;
    rustix::stdio::dup2_stdout(&slave).while_doing(what)?;
    rustix::stdio::dup2_stderr(&slave).while_doing(what)
}
