//! What is special about terminals: `ioctl` on both sides of one, and opening.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use exos::error::{Errno, Result};
use exos::fs::description::Description;
use exos::fs::location::Location;
use exos::fs::metadata::DeviceNumber;
use exos::fs::namespace::{Access as OpenAccess, OpenFlags, OpenHow};
use exos::fs::step::TransferCaller;
use exos::fs::terminal::job_control::{TerminalCaller, Verdict};
use exos::fs::terminal::modes::Terminal;
use exos::fs::terminal::tty::{Flush, Side, Tty};
use exos::fs::walk::LookupFlags;

use crate::abi::file::{self as abi, request};
use crate::abi::linux::{
    O_ACCMODE, O_CLOEXEC, O_NOCTTY, TCFLSH, TCSETAF, TCSETSF, TCSETSF2, TCXONC, TIOCEXCL, TIOCGETD, TIOCGEXCL,
    TIOCGPGRP, TIOCGPKT, TIOCGPTLCK, TIOCGPTN, TIOCGPTPEER, TIOCGSID, TIOCGSOFTCAR, TIOCNOTTY, TIOCNXCL, TIOCOUTQ,
    TIOCPKT, TIOCSCTTY, TIOCSETD, TIOCSIG, TIOCSPGRP, TIOCSPTLCK, TIOCSSOFTCAR, TIOCSTI, TIOCVHANGUP,
};
use crate::abi::user_memory::{read_array, write_all};
use crate::call::context::Context;
use crate::file::paths::Access;
use crate::task::caller::Restart;

/// `/dev/tty`.
const CONTROLLING_TERMINAL: DeviceNumber = DeviceNumber { major: 5, minor: 0 };

/// Turns a verdict into what the call answers. A stopped thread tries again when it goes on.
fn obey(context: &mut Context<'_>, verdict: Verdict) -> Result<()> {
    match verdict {
        Verdict::Proceed => Ok(()),
        Verdict::Refused => Err(Errno::EIO),
        Verdict::Stopped => {
            context.restart = Restart::UnlessHandlerForbids;
            Err(Errno::EINTR)
        }
    }
}

/// Opens what answered `ENXIO`, if it is `/dev/tty` and the caller's session has a terminal.
pub(super) fn open_controlling(
    context: &Context<'_>,
    access: &Access,
    start: &Location,
    path: &[u8],
    how: &OpenHow,
) -> Result<Arc<Description>> {
    let location = access.find(start, path, true, false)?;
    if location.inode().metadata().device_node != CONTROLLING_TERMINAL {
        return Err(Errno::ENXIO);
    }
    let files = &context.system.files;
    let tty = files.terminals.controlling(context.terminal_caller().session).ok_or(Errno::ENXIO)?;
    Ok(access.namespace().open_as(location, how, tty.open_slave()?))
}

/// A leader without a terminal that opens one gets it, unless it asked not to. `EBUSY`: a process has it for itself.
pub(super) fn adopt(context: &Context<'_>, description: &Description, flags: u64) -> Result<()> {
    let Some(side @ Side::Slave(_)) = description.terminal_side() else { return Ok(()) };
    let caller = context.terminal_caller();
    if side.tty().is_exclusive() && !caller.is_root {
        return Err(Errno::EBUSY);
    }
    if flags & O_NOCTTY == 0 && caller.is_leader && side.tty().session().is_none() {
        let other = context.system.files.terminals.controlling(caller.session);
        // Failing to is no error of open's.
        let _ = side.tty().take_control(&caller, other.as_ref(), false);
    }
    Ok(())
}

/// Fails unless `tty` is the caller's controlling terminal; the master side need not be.
fn check_own(side: Side<'_>, caller: &TerminalCaller) -> Result<()> {
    match side {
        Side::Slave(_) if side.tty().session() != Some(caller.session) => Err(Errno::ENOTTY),
        _ => Ok(()),
    }
}

/// Requests that change a terminal: from the background they stop the caller.
fn is_change(number: u32) -> bool {
    request::SET_MODES.contains(&number)
        || request::SET_SHORT_MODES.contains(&number)
        || request::SET_MODES_2.contains(&number)
        || request::LINE_CONTROL.contains(&number)
        || matches!(number, TCFLSH | TIOCSPGRP)
}

/// `ioctl` on a side of a terminal.
pub(super) fn request(
    context: &mut Context<'_>,
    description: &Description,
    side: Side<'_>,
    number: u32,
    address: u64,
) -> Result<u64> {
    let caller = context.terminal_caller();
    if side.is_hung_up() {
        return Err(if number == TIOCSPGRP { Errno::ENOTTY } else { Errno::EIO });
    }
    let tty = side.tty();
    if matches!(side, Side::Slave(_)) && is_change(number) {
        let verdict = tty.judge_changer(&caller);
        // As on Linux, a process that may not put a group in front has no terminal to do so.
        let refusal = if number == TIOCSPGRP { Errno::ENOTTY } else { Errno::EIO };
        obey(context, verdict).map_err(|error| if error == Errno::EIO { refusal } else { error })?;
    }
    match side {
        Side::Master(_) => match master_request(context, tty, number, address) {
            Err(Errno::ENOTTY) => {}
            outcome => return outcome,
        },
        Side::Slave(_) => {}
    }
    match session_request(context, side, &caller, number, address) {
        Err(Errno::ENOTTY) if !is_about_session(number) => {}
        outcome => return outcome.map(|()| 0),
    }
    let memory = context.memory;
    match line_request(context, tty, &caller, number, address) {
        Err(Errno::ENOTTY) => {}
        outcome => return outcome.map(|()| 0),
    }
    match number {
        TIOCGPTPEER => return Err(Errno::EIO),
        TIOCOUTQ => {
            // What one side of a pair writes is the other's at once.
            let is_screen = matches!(side, Side::Slave(_)) && tty.has_screen();
            let count = if is_screen { tty.pending_output() } else { 0 };
            write_all(memory, address, &(count as u32).to_le_bytes())?;
        }
        TCFLSH => {
            let what = match address {
                0 => Flush::Input,
                1 => Flush::Output,
                2 => Flush::Both,
                _ => return Err(Errno::EINVAL),
            };
            match side {
                Side::Slave(_) => tty.flush(what),
                Side::Master(_) => tty.flush_master(what),
            }
        }
        TCXONC => match address {
            0 => tty.set_stopped(true),
            1 => tty.set_stopped(false),
            2 | 3 if matches!(side, Side::Slave(_)) => tty.send_flow(address == 2),
            2 | 3 => {}
            _ => return Err(Errno::EINVAL),
        },
        TCSETSF | TCSETAF | TCSETSF2 => {
            super::file_control::terminal_request(context, description.terminal()?, number, address)?;
            tty.flush(Flush::Input);
        }
        other => super::file_control::terminal_request(context, description.terminal()?, other, address)?,
    }
    Ok(0)
}

/// What is about the line itself: its discipline, its carrier, exclusive use, what is typed by a program. `ENOTTY`:
/// another request.
fn line_request(context: &Context<'_>, tty: &Tty, caller: &TerminalCaller, number: u32, address: u64) -> Result<()> {
    let memory = context.memory;
    match number {
        TIOCSTI => {
            let is_own = tty.session() == Some(caller.session);
            if !is_own && !caller.is_root {
                return Err(Errno::EPERM);
            }
            let [byte] = read_array(memory, address)?;
            tty.type_byte(byte);
        }
        TIOCVHANGUP if !caller.is_root => return Err(Errno::EPERM),
        TIOCVHANGUP => tty.hang_up(false),
        TIOCEXCL => tty.set_exclusive(true),
        TIOCNXCL => tty.set_exclusive(false),
        TIOCGEXCL => write_all(memory, address, &u32::from(tty.is_exclusive()).to_le_bytes())?,
        // There is one discipline, and no carrier to be lost.
        TIOCGETD => write_all(memory, address, &[0; 4])?,
        TIOCGSOFTCAR => write_all(memory, address, &0u32.to_le_bytes())?,
        TIOCSETD => match u32::from_le_bytes(read_array(memory, address)?) {
            0 => {}
            _ => return Err(Errno::EINVAL),
        },
        TIOCSSOFTCAR => drop(read_array::<4>(memory, address)?),
        _ => return Err(Errno::ENOTTY),
    }
    Ok(())
}

/// Requests that [`session_request`] answers.
fn is_about_session(number: u32) -> bool {
    matches!(number, TIOCSPGRP | TIOCGPGRP | TIOCGSID | TIOCSCTTY | TIOCNOTTY)
}

/// What is about the session that a terminal controls. `ENOTTY`: another request, or not the caller's terminal.
fn session_request(
    context: &Context<'_>,
    side: Side<'_>,
    caller: &TerminalCaller,
    number: u32,
    address: u64,
) -> Result<()> {
    let (tty, memory) = (side.tty(), context.memory);
    match number {
        TIOCSPGRP => {
            let group = i32::from_le_bytes(read_array(memory, address)?);
            let group = u32::try_from(group).map_err(|_| Errno::EINVAL)?;
            check_own(side, caller)?;
            tty.put_in_front(caller, group)
        }
        TIOCGPGRP => {
            check_own(side, caller)?;
            write_all(memory, address, &tty.foreground_group().to_le_bytes())
        }
        TIOCGSID => {
            check_own(side, caller)?;
            let session = tty.session().ok_or(Errno::ENOTTY)?;
            write_all(memory, address, &session.to_le_bytes())
        }
        TIOCSCTTY => {
            let other = context.system.files.terminals.controlling(caller.session);
            let other = other.filter(|other| !Arc::ptr_eq(other, tty));
            tty.take_control(caller, other.as_ref(), address == 1)
        }
        TIOCNOTTY => {
            check_own(side, caller)?;
            if caller.is_leader {
                tty.leave_control();
            } else {
                context.process.has_left_terminal.store(true, Ordering::Relaxed);
            }
            Ok(())
        }
        _ => Err(Errno::ENOTTY),
    }
}

/// What only the master side answers.
fn master_request(context: &mut Context<'_>, tty: &Tty, number: u32, address: u64) -> Result<u64> {
    let memory = context.memory;
    let put = |value: u32| write_all(memory, address, &value.to_le_bytes());
    match number {
        TIOCGPTN => put(tty.index())?,
        TIOCSPTLCK => tty.set_locked(i32::from_le_bytes(read_array(memory, address)?) != 0),
        TIOCGPTLCK => put(u32::from(tty.is_locked()))?,
        TIOCPKT => tty.set_packets(i32::from_le_bytes(read_array(memory, address)?) != 0),
        TIOCGPKT => put(u32::from(tty.has_packets()))?,
        TIOCSIG => tty.send_signal(address)?,
        TIOCGPTPEER => return open_peer(context, tty, address),
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// `TIOCGPTPEER`: the slave side, whatever is mounted where.
fn open_peer(context: &mut Context<'_>, tty: &Tty, flags: u64) -> Result<u64> {
    let access = Access::new(context);
    let path = alloc::format!("/dev/pts/{}", tty.index());
    let root = access.namespace().root().clone();
    let follow = LookupFlags { follow: true, directory: false };
    let location = access.namespace().lookup(&access.caller(), &root, path.as_bytes(), follow)?;
    let how = OpenHow {
        access: match flags & O_ACCMODE {
            0 => OpenAccess::Read,
            1 => OpenAccess::Write,
            _ => OpenAccess::ReadWrite,
        },
        flags: OpenFlags::empty(),
        status: abi::status_flags(flags),
        ..OpenHow::READ
    };
    let description = access.namespace().open_at(&access.caller(), location, &how)?;
    adopt(context, &description, flags)?;
    context.process.files.add(description, flags & O_CLOEXEC != 0)
}
