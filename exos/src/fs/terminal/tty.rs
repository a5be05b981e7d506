//! A terminal: a line discipline between a master side (a terminal emulator, the host) and slave sides (programs).
//!
//! Every step takes the discipline's lock for itself alone; signals and wake-ups go out without it (INV-F1). A slave
//! side that was open when the terminal hung up stays so: it belongs to an older *generation*.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::super::readiness::{Readiness, WaitQueue};
use super::console::Screen;
use super::discipline::LineDiscipline;
use super::job_control::{JobControl, TerminalCaller, Verdict};
use super::modes::{Terminal, TerminalModes, WindowSize, local};
use crate::error::{Errno, Result};
use crate::sync::Mutex;
use crate::task::signal::Signal;

pub mod files;

/// Everything that waiters may wait for.
const ALL: Readiness = Readiness::ALWAYS.union(Readiness::HANG_UP).union(Readiness::ERROR).union(Readiness::PRIORITY);

/// Packet mode's status bits (`TIOCPKT_*`).
mod packet {
    pub(super) const FLUSH_READ: u8 = 1;
    pub(super) const FLUSH_WRITE: u8 = 2;
    pub(super) const STOP: u8 = 4;
    pub(super) const START: u8 = 8;
    pub(super) const NO_STOP: u8 = 0x10;
    pub(super) const DO_STOP: u8 = 0x20;
    pub(super) const EXTERNAL: u8 = 0x40;
}

/// The session that it controls and the group in front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Control {
    session: Option<u32>,
    /// 0 if there is none.
    foreground: u32,
}

#[derive(Default)]
struct Slaves {
    count: u32,
    was_open: bool,
}

/// A queue of a terminal (`TCFLSH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// What was typed and not read.
    Input,
    /// What was written and not shown.
    Output,
    /// Both.
    Both,
}

/// A terminal.
pub struct Tty {
    index: u32,
    discipline: Mutex<LineDiscipline>,
    window: Mutex<WindowSize>,
    control: Mutex<Control>,
    slaves: Mutex<Slaves>,
    /// Raised by every hang-up.
    generation: AtomicU32,
    is_master_gone: AtomicBool,
    is_locked: AtomicBool,
    is_exclusive: AtomicBool,
    /// Packet mode and the status to tell next.
    packet: Mutex<Option<u8>>,
    slave_queue: Arc<WaitQueue>,
    master_queue: Arc<WaitQueue>,
    jobs: Arc<dyn JobControl>,
    screen: Option<Screen>,
}

impl Tty {
    pub(super) fn new(index: u32, jobs: Arc<dyn JobControl>, window: WindowSize, screen: Option<Screen>) -> Arc<Self> {
        Arc::new(Self {
            index,
            discipline: Mutex::new(LineDiscipline::new(TerminalModes::DEFAULT)),
            window: Mutex::new(window),
            control: Mutex::default(),
            slaves: Mutex::default(),
            generation: AtomicU32::new(0),
            is_master_gone: AtomicBool::new(false),
            is_locked: AtomicBool::new(screen.is_none()),
            is_exclusive: AtomicBool::new(false),
            packet: Mutex::new(None),
            slave_queue: WaitQueue::new(),
            master_queue: WaitQueue::new(),
            jobs,
            screen,
        })
    }

    /// Its number in `/dev/pts`.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The session that it controls.
    pub fn session(&self) -> Option<u32> {
        self.control.lock().session
    }

    /// Whether its slave side cannot be opened yet (`TIOCSPTLCK`).
    pub fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Relaxed)
    }

    /// Locks or unlocks the slave side (`TIOCSPTLCK`).
    pub fn set_locked(&self, value: bool) {
        self.is_locked.store(value, Ordering::Relaxed);
    }

    /// Whether only a privileged process can open it once more (`TIOCEXCL`).
    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive.load(Ordering::Relaxed)
    }

    /// Sets or ends exclusive use (`TIOCEXCL`, `TIOCNXCL`).
    pub fn set_exclusive(&self, value: bool) {
        self.is_exclusive.store(value, Ordering::Relaxed);
    }

    /// Takes one byte as typed (`TIOCSTI`).
    pub fn type_byte(&self, byte: u8) {
        self.type_in(&[byte]);
    }

    /// Sends the group in front a signal (`TIOCSIG`).
    ///
    /// # Errors
    /// `EINVAL`: no signal that a key sends.
    pub fn send_signal(&self, number: u64) -> Result<()> {
        let signal = Signal::new(number)?;
        if !matches!(signal, Signal::INT | Signal::QUIT | Signal::TSTP) {
            return Err(Errno::EINVAL);
        }
        self.signal_foreground(signal);
        Ok(())
    }

    /// Tells the other side to stop sending, or to go on (`TCIOFF`, `TCION`).
    pub fn send_flow(&self, stops: bool) {
        self.discipline.lock().send_flow(stops);
        self.master_queue.notify(Readiness::READ);
    }

    /// Whether the master side reads packets (`TIOCPKT`).
    pub fn has_packets(&self) -> bool {
        self.packet.lock().is_some()
    }

    /// Sets or ends packet mode (`TIOCPKT`).
    pub fn set_packets(&self, value: bool) {
        let mut packet = self.packet.lock();
        if value != packet.is_some() {
            *packet = value.then_some(0);
        }
    }

    fn tell_packet(&self, status: u8) {
        let flow = packet::NO_STOP | packet::DO_STOP;
        let is_told = self.packet.lock().as_mut().map(|told| {
            let kept = if status & flow != 0 { *told & !flow } else { *told };
            *told = kept | status;
        });
        let is_told = is_told.is_some();
        if is_told {
            self.master_queue.notify(Readiness::PRIORITY | Readiness::READ);
        }
    }

    /// Whether it is the host's terminal rather than one side of a pair.
    pub fn has_screen(&self) -> bool {
        self.screen.is_some()
    }

    /// Bytes that were written and not shown (`TIOCOUTQ`).
    pub fn pending_output(&self) -> usize {
        self.discipline.lock().pending_output()
    }

    /// Moves what the host typed and what programs wrote, if this is the host's terminal.
    pub fn pump(&self) {
        if let Some(screen) = &self.screen {
            screen.pump(self);
        }
    }

    /// Whether the keyboard has ended.
    fn has_ended(&self) -> bool {
        self.screen.as_ref().is_some_and(Screen::has_ended)
    }

    /// Bytes from the keyboard; how many there was room for.
    pub(super) fn type_in(&self, bytes: &[u8]) -> usize {
        let mut done = 0;
        self.discipline.lock().begin_input();
        for byte in bytes {
            let signal = {
                let mut discipline = self.discipline.lock();
                if discipline.input_room() == 0 {
                    break;
                }
                discipline.receive(*byte)
            };
            done += 1;
            if let Some(signal) = signal {
                self.signal_foreground(signal);
            }
        }
        self.slave_queue.notify(Readiness::ALWAYS);
        self.master_queue.notify(Readiness::READ);
        done
    }

    pub(super) fn input_room(&self) -> usize {
        self.discipline.lock().input_room()
    }

    pub(super) fn take_output(&self, into: &mut [u8]) -> usize {
        self.discipline.lock().take_output(into)
    }

    pub(super) fn untake_output(&self, bytes: &[u8]) {
        self.discipline.lock().untake_output(bytes);
    }

    pub(super) fn tell_room(&self) {
        self.slave_queue.notify(Readiness::WRITE);
    }

    fn signal_foreground(&self, signal: Signal) {
        let group = self.control.lock().foreground;
        if group != 0 {
            self.jobs.signal_group(group, signal);
        }
    }

    /// Whether `caller` may read. A process in the background is stopped.
    pub fn judge_reader(&self, caller: &TerminalCaller) -> Verdict {
        self.judge(caller, Signal::TTIN)
    }

    /// Whether `caller` may write: from the background unless the modes forbid it.
    pub fn judge_writer(&self, caller: &TerminalCaller) -> Verdict {
        let stops = self.discipline.lock().modes().has_local(local::STOP_BACKGROUND);
        if stops { self.judge(caller, Signal::TTOU) } else { Verdict::Proceed }
    }

    /// Whether `caller` may change the terminal.
    pub fn judge_changer(&self, caller: &TerminalCaller) -> Verdict {
        self.judge(caller, Signal::TTOU)
    }

    fn judge(&self, caller: &TerminalCaller, signal: Signal) -> Verdict {
        let control = *self.control.lock();
        let is_in_front = control.foreground == 0 || control.foreground == caller.group;
        if control.session != Some(caller.session) || is_in_front {
            return Verdict::Proceed;
        }
        if caller.deaf_to.contains(signal) {
            return if signal == Signal::TTIN { Verdict::Refused } else { Verdict::Proceed };
        }
        if self.jobs.is_orphaned(caller.group) {
            return Verdict::Refused;
        }
        self.jobs.signal_group(caller.group, signal);
        Verdict::Stopped
    }

    /// Becomes the controlling terminal of the caller's session (`TIOCSCTTY`). `other` is the one that the session
    /// has already.
    ///
    /// # Errors
    /// `EPERM`: the caller leads no session, has another terminal, or this one is another session's.
    pub fn take_control(&self, caller: &TerminalCaller, other: Option<&Arc<Self>>, steals: bool) -> Result<()> {
        let mut control = self.control.lock();
        if caller.is_leader && control.session == Some(caller.session) {
            return Ok(());
        }
        let is_taken = control.session.is_some() && !(steals && caller.is_root);
        if !caller.is_leader || other.is_some() || is_taken {
            return Err(Errno::EPERM);
        }
        *control = Control { session: Some(caller.session), foreground: caller.group };
        Ok(())
    }

    /// Controls no session any more; the group in front hears of it (`TIOCNOTTY` by a leader).
    pub fn leave_control(&self) {
        let before = core::mem::take(&mut *self.control.lock());
        if before.foreground != 0 {
            self.jobs.signal_group(before.foreground, Signal::HUP);
            self.jobs.signal_group(before.foreground, Signal::CONT);
        }
    }

    /// Puts a group in front (`TIOCSPGRP`).
    ///
    /// # Errors
    /// `ENOTTY`: it is not the caller's terminal. `ESRCH`: there is no such group. `EPERM`: it is in another session.
    pub fn put_in_front(&self, caller: &TerminalCaller, group: u32) -> Result<()> {
        if self.session() != Some(caller.session) {
            return Err(Errno::ENOTTY);
        }
        match self.jobs.session_of_group(group) {
            None => Err(Errno::ESRCH),
            Some(session) if session != caller.session => Err(Errno::EPERM),
            Some(_) => {
                self.control.lock().foreground = group;
                Ok(())
            }
        }
    }

    /// Throws away what waits (`TCFLSH` on the slave side). As on Linux, what was written to a pseudo-terminal has
    /// arrived at its master already and stays; the host's terminal has taken only what was passed on.
    pub fn flush(&self, what: Flush) {
        {
            let mut discipline = self.discipline.lock();
            if what != Flush::Output {
                discipline.flush_input();
            }
            if what != Flush::Input && self.screen.is_some() {
                discipline.flush_output();
            }
        }
        self.tell_packet(match what {
            Flush::Input => packet::FLUSH_READ,
            Flush::Output => packet::FLUSH_WRITE,
            Flush::Both => packet::FLUSH_READ | packet::FLUSH_WRITE,
        });
        self.slave_queue.notify(Readiness::WRITE);
        self.master_queue.notify(Readiness::WRITE);
    }

    /// The same on the master side, whose input is what was written to the other.
    pub fn flush_master(&self, what: Flush) {
        if what != Flush::Output {
            self.discipline.lock().flush_output();
            self.slave_queue.notify(Readiness::WRITE);
        }
    }

    /// Stops output, or lets it go on (`TCXONC`).
    pub fn set_stopped(&self, is_stopped: bool) {
        {
            let mut discipline = self.discipline.lock();
            if is_stopped {
                discipline.stop();
            } else {
                discipline.restart();
            }
        }
        self.tell_packet(if is_stopped { packet::STOP } else { packet::START });
        self.slave_queue.notify(Readiness::WRITE);
        self.master_queue.notify(Readiness::READ);
    }

    /// The session's leader has ended: the group in front is told, and a pseudo-terminal controls nobody any more. The
    /// host's terminal hangs up, as one with a line does.
    pub(super) fn lose_leader(&self) {
        if self.screen.is_some() {
            return self.hang_up(false);
        }
        let before = core::mem::take(&mut *self.control.lock());
        if before.foreground != 0 {
            self.jobs.signal_group(before.foreground, Signal::HUP);
        }
    }

    /// The other end is gone: all slave sides that are open now read the end and write nothing, and the session is
    /// told: its leader, and the group in the foreground as well unless the leader is to do that.
    pub fn hang_up(&self, tells_foreground: bool) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        let before = core::mem::take(&mut *self.control.lock());
        if let Some(session) = before.session {
            self.jobs.signal_leader(session, Signal::HUP);
            self.jobs.signal_leader(session, Signal::CONT);
        }
        if before.foreground != 0 && tells_foreground {
            self.jobs.signal_group(before.foreground, Signal::HUP);
        }
        self.slave_queue.notify(ALL);
        self.master_queue.notify(ALL);
    }

    /// A slave side.
    ///
    /// # Errors
    /// `EIO`: it is locked, or its master is gone.
    pub fn open_slave(self: &Arc<Self>) -> Result<Arc<SlaveFile>> {
        if self.is_locked() || self.is_master_gone.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        let mut slaves = self.slaves.lock();
        slaves.count += 1;
        slaves.was_open = true;
        drop(slaves);
        Ok(Arc::new(SlaveFile { tty: self.clone(), generation: self.generation.load(Ordering::Relaxed) }))
    }

    /// Whether every slave side that there was is closed.
    fn has_lost_slaves(&self) -> bool {
        let slaves = self.slaves.lock();
        slaves.was_open && slaves.count == 0
    }
}

impl Terminal for Tty {
    fn window_size(&self) -> WindowSize {
        *self.window.lock()
    }

    fn set_window_size(&self, size: WindowSize) {
        let before = core::mem::replace(&mut *self.window.lock(), size);
        if before != size {
            self.signal_foreground(Signal::WINCH);
        }
    }

    fn modes(&self) -> TerminalModes {
        *self.discipline.lock().modes()
    }

    fn set_modes(&self, modes: TerminalModes) {
        let status = {
            let mut discipline = self.discipline.lock();
            let is_external = modes.has_local(local::EXTERNAL) || discipline.modes().has_local(local::EXTERNAL);
            let had_flow = discipline.has_usual_flow();
            discipline.set_modes(modes);
            let flow = match (had_flow, discipline.has_usual_flow()) {
                (true, false) => packet::NO_STOP,
                (false, true) => packet::DO_STOP,
                _ => 0,
            };
            flow | if is_external { packet::EXTERNAL } else { 0 }
        };
        if status != 0 {
            self.tell_packet(status);
        }
        self.slave_queue.notify(Readiness::ALWAYS);
        self.master_queue.notify(Readiness::READ);
    }

    fn foreground_group(&self) -> u32 {
        self.control.lock().foreground
    }

    fn set_foreground_group(&self, group: u32) {
        self.control.lock().foreground = group;
    }

    fn signals_itself(&self) -> bool {
        true
    }

    fn pump(&self) {
        Self::pump(self);
    }

    fn pending_bytes(&self) -> usize {
        Self::pump(self);
        self.pending_output()
    }
}

/// A side of a terminal, as calls about terminals see it.
#[derive(Clone, Copy)]
pub enum Side<'a> {
    /// The program's.
    Slave(&'a SlaveFile),
    /// The emulator's.
    Master(&'a Arc<Tty>),
}

impl<'a> Side<'a> {
    /// The terminal.
    pub fn tty(self) -> &'a Arc<Tty> {
        match self {
            Self::Slave(file) => &file.tty,
            Self::Master(tty) => tty,
        }
    }

    /// Whether it hung up while this side was open.
    pub fn is_hung_up(self) -> bool {
        matches!(self, Self::Slave(file) if file.is_hung_up())
    }
}

/// An open slave side.
pub struct SlaveFile {
    tty: Arc<Tty>,
    generation: u32,
}

impl SlaveFile {
    fn is_hung_up(&self) -> bool {
        self.tty.generation.load(Ordering::Relaxed) != self.generation
    }
}

impl Drop for SlaveFile {
    fn drop(&mut self) {
        let is_last = {
            let mut slaves = self.tty.slaves.lock();
            slaves.count -= 1;
            slaves.count == 0
        };
        if is_last {
            self.tty.master_queue.notify(ALL);
        }
    }
}
