//! Terminals: their two sides, their names, and job control at their border.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::metadata::{DeviceNumber, Timestamp};
use super::super::open_file::{OpenFile, OpenRequest};
use super::super::permission::Credentials;
use super::super::readiness::Readiness;
use super::super::transfer::Buffer;
use super::job_control::{JobControl, TerminalCaller, Verdict};
use super::modes::{Terminal, TerminalModes, WindowSize};
use super::table::{TERMINAL_COUNT_MAX, Terminals};
use super::tty::files::MasterFile;
use super::tty::{Flush, SlaveFile, Tty};
use crate::error::{Errno, Result};
use crate::sync::Mutex;
use crate::task::signal::{Signal, SignalSet};

const NOW: Timestamp = Timestamp { seconds: 5, nanoseconds: 0 };
const DEVICE: DeviceNumber = DeviceNumber { major: 0, minor: 9 };

/// Groups 10, 11 and 19 in session 10, group 20 in session 20; 19 is orphaned. Remembers what was sent.
#[derive(Default)]
struct Jobs(Mutex<Vec<(u32, Signal)>>);

impl JobControl for Jobs {
    fn signal_group(&self, group: u32, signal: Signal) {
        self.0.lock().push((group, signal));
    }

    fn signal_leader(&self, session: u32, signal: Signal) {
        self.0.lock().push((session + 1000, signal));
    }

    fn session_of_group(&self, group: u32) -> Option<u32> {
        match group {
            10 | 11 | 19 => Some(10),
            20 => Some(20),
            _ => None,
        }
    }

    fn is_orphaned(&self, group: u32) -> bool {
        group == 19
    }
}

impl Jobs {
    fn take(&self) -> Vec<(u32, Signal)> {
        core::mem::take(&mut self.0.lock())
    }
}

fn caller(group: u32) -> TerminalCaller {
    TerminalCaller { group, session: 10, is_leader: group == 10, is_root: false, deaf_to: SignalSet::EMPTY }
}

struct World {
    jobs: Arc<Jobs>,
    table: Arc<Terminals>,
}

impl World {
    fn new() -> Self {
        let (jobs, table) = (Arc::<Jobs>::default(), Terminals::new(DEVICE, 0, NOW));
        table.set_job_control(jobs.clone());
        Self { jobs, table }
    }

    fn pair(&self) -> (Arc<MasterFile>, Arc<SlaveFile>, Arc<Tty>) {
        let master = self.table.open_master(0, NOW).unwrap();
        let tty = master.terminal_side().unwrap().tty().clone();
        tty.set_locked(false);
        let slave = tty.open_slave().unwrap();
        (master, slave, tty)
    }
}

fn write(file: &dyn OpenFile, bytes: &[u8]) -> Result<usize> {
    file.write(0, &mut &bytes[..])
}

fn read(file: &dyn OpenFile) -> Result<String> {
    let mut buffer = Buffer::with_limit(4096);
    file.read(0, &mut buffer)?;
    Ok(String::from_utf8(buffer.bytes).unwrap())
}

#[test]
fn bytes_go_both_ways_through_the_discipline() {
    let world = World::new();
    let (master, slave, tty) = world.pair();
    assert_eq!((read(&*slave), read(&*master)), (Err(Errno::EAGAIN), Err(Errno::EAGAIN)));
    assert_eq!((master.readiness(), slave.readiness()), (Readiness::WRITE, Readiness::WRITE));
    assert_eq!(write(&*master, b"hi\r"), Ok(3));
    assert_eq!((master.readiness(), slave.readiness()), (Readiness::ALWAYS, Readiness::ALWAYS));
    assert_eq!((slave.readable_byte_count(), master.readable_byte_count()), (Some(3), Some(4)));
    assert_eq!((read(&*slave), read(&*master)), (Ok("hi\n".into()), Ok("hi\r\n".into())));
    assert_eq!(write(&*slave, b"out\n"), Ok(4));
    assert_eq!(read(&*master), Ok("out\r\n".into()));
    write(&*master, b"gone\n").unwrap();
    tty.flush(Flush::Both);
    assert_eq!(read(&*slave), Err(Errno::EAGAIN));
    tty.flush_master(Flush::Both);
    assert_eq!(read(&*master), Err(Errno::EAGAIN));
    tty.set_stopped(true);
    assert_eq!((write(&*slave, b"x"), slave.readiness()), (Err(Errno::EAGAIN), Readiness::empty()));
    tty.set_stopped(false);
    assert_eq!(write(&*slave, &[b'x'; 100_000]), Ok(16 * 1024 - 7));
    assert_eq!(write(&*slave, b"x"), Err(Errno::EAGAIN));
}

#[test]
fn each_side_hears_when_the_other_is_gone() {
    let world = World::new();
    let (master, slave, tty) = world.pair();
    write(&*slave, b"last").unwrap();
    drop(slave);
    assert_eq!(master.readiness(), Readiness::ALWAYS | Readiness::HANG_UP);
    assert_eq!((read(&*master), read(&*master)), (Ok("last".into()), Err(Errno::EIO)));
    let slave = tty.open_slave().unwrap();
    assert_eq!(read(&*master), Err(Errno::EAGAIN), "it is open again");
    tty.take_control(&caller(10), None, false).unwrap();
    write(&*master, b"unread\n").unwrap();
    drop(master);
    assert_eq!(world.jobs.take(), [(1010, Signal::HUP), (1010, Signal::CONT), (10, Signal::HUP)]);
    assert_eq!((read(&*slave), write(&*slave, b"x")), (Ok(String::new()), Err(Errno::EIO)));
    assert_eq!(slave.readiness(), Readiness::ALWAYS | Readiness::HANG_UP | Readiness::ERROR);
    assert_eq!(tty.open_slave().err(), Some(Errno::EIO));
    assert!(world.table.find(0).is_none() && tty.session().is_none());
}

#[test]
fn names_come_and_go_with_the_terminals() {
    let world = World::new();
    let root = world.table.root();
    let names = || {
        let mut names = Vec::new();
        root.read_directory(0, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        })
        .unwrap();
        names
    };
    let first = world.table.open_master(1000, NOW).unwrap();
    let second = world.table.open_master(0, NOW).unwrap();
    assert_eq!(names(), ["ptmx", "0", "1"]);
    let node = root.lookup(b"0").unwrap();
    let metadata = node.metadata();
    assert_eq!((metadata.uid, metadata.mode(), metadata.device_node.major), (1000, 0o020_620, 136));
    let request = OpenRequest { read: true, write: true, non_blocking: false };
    assert_eq!(node.open(request, &Credentials::ROOT).err(), Some(Errno::EIO), "locked until TIOCSPTLCK");
    first.terminal_side().unwrap().tty().set_locked(false);
    assert!(node.open(request, &Credentials::ROOT).unwrap().is_some());
    for wrong in [&b"00"[..], b"+1", b"2", b"x", b"-1"] {
        assert_eq!(root.lookup(wrong).err(), Some(Errno::ENOENT));
    }
    drop(first);
    assert_eq!(names(), ["ptmx", "1"]);
    let third = root.lookup(b"ptmx").unwrap().open(request, &Credentials::ROOT).unwrap().unwrap();
    assert_eq!(names(), ["ptmx", "0", "1"]);
    drop((second, third));
    let many: Vec<_> = (0..TERMINAL_COUNT_MAX).map(|_| world.table.open_master(0, NOW).unwrap()).collect();
    assert_eq!(world.table.open_master(0, NOW).err(), Some(Errno::ENOSPC));
    drop(many);
    assert_eq!(names(), ["ptmx"]);
}

#[test]
fn signals_go_to_the_group_in_front() {
    let world = World::new();
    let (master, _slave, tty) = world.pair();
    write(&*master, b"\x03").unwrap();
    assert_eq!(world.jobs.take(), [], "nobody is there");
    tty.take_control(&caller(10), None, false).unwrap();
    assert_eq!(tty.put_in_front(&caller(10), 11), Ok(()));
    write(&*master, b"\x03\x1a\x1c").unwrap();
    assert_eq!(world.jobs.take(), [(11, Signal::INT), (11, Signal::TSTP), (11, Signal::QUIT)]);
    let size = WindowSize { row_count: 24, column_count: 80, ..WindowSize::default() };
    tty.set_window_size(size);
    tty.set_window_size(size);
    assert_eq!((world.jobs.take(), tty.window_size()), (alloc::vec![(11, Signal::WINCH)], size));
    assert_eq!(tty.put_in_front(&caller(10), 20), Err(Errno::EPERM));
    assert_eq!(tty.put_in_front(&caller(10), 77), Err(Errno::ESRCH));
    assert_eq!(tty.put_in_front(&TerminalCaller { session: 20, ..caller(20) }, 20), Err(Errno::ENOTTY));
    assert_eq!(tty.foreground_group(), 11);
}

#[test]
fn who_is_in_the_background_is_stopped() {
    let world = World::new();
    let (_master, _slave, tty) = world.pair();
    assert_eq!(tty.judge_reader(&caller(11)), Verdict::Proceed, "it is nobody's terminal");
    tty.take_control(&caller(10), None, false).unwrap();
    assert_eq!((tty.judge_reader(&caller(10)), tty.judge_writer(&caller(11))), (Verdict::Proceed, Verdict::Proceed));
    assert_eq!(tty.judge_reader(&caller(11)), Verdict::Stopped);
    assert_eq!(tty.judge_changer(&caller(11)), Verdict::Stopped);
    assert_eq!(world.jobs.take(), [(11, Signal::TTIN), (11, Signal::TTOU)]);
    assert_eq!(tty.judge_reader(&caller(19)), Verdict::Refused);
    let deaf = TerminalCaller { deaf_to: Signal::TTIN.bit().union(Signal::TTOU.bit()), ..caller(11) };
    assert_eq!((tty.judge_reader(&deaf), tty.judge_changer(&deaf)), (Verdict::Refused, Verdict::Proceed));
    let other = TerminalCaller { session: 20, ..caller(20) };
    assert_eq!(tty.judge_reader(&other), Verdict::Proceed, "another session's business");
    let stops = TerminalModes { local: TerminalModes::DEFAULT.local | 0x100, ..TerminalModes::DEFAULT };
    tty.set_modes(stops);
    assert_eq!(tty.judge_writer(&caller(11)), Verdict::Stopped);
}

#[test]
fn a_terminal_controls_one_session() {
    let world = World::new();
    let (_master, slave, tty) = world.pair();
    assert_eq!(tty.take_control(&caller(11), None, false), Err(Errno::EPERM), "it leads nothing");
    tty.take_control(&caller(10), None, false).unwrap();
    assert_eq!(tty.take_control(&caller(10), Some(&tty), false), Ok(()), "it has it already");
    let other = TerminalCaller { group: 20, session: 20, ..caller(10) };
    assert_eq!(tty.take_control(&other, None, true), Err(Errno::EPERM));
    let root = TerminalCaller { is_root: true, ..other };
    assert_eq!(tty.take_control(&root, None, false), Err(Errno::EPERM));
    assert_eq!(tty.take_control(&root, None, true), Ok(()));
    assert!(world.table.controlling(10).is_none());
    assert_eq!(world.table.controlling(20).map(|tty| tty.index()), Some(0));
    tty.leave_control();
    assert_eq!(world.jobs.take(), [(20, Signal::HUP), (20, Signal::CONT)]);
    tty.take_control(&caller(10), None, false).unwrap();
    world.table.end_session(10);
    assert_eq!(world.jobs.take(), [(10, Signal::HUP)]);
    assert!(world.table.controlling(10).is_none());
    assert_eq!(read(&*slave), Err(Errno::EAGAIN), "a pseudo-terminal does not hang up for that");
}

#[test]
fn a_terminal_that_is_hung_up_tells_only_the_leader() {
    let world = World::new();
    let (_master, slave, tty) = world.pair();
    tty.take_control(&caller(10), None, false).unwrap();
    world.table.hang_up(11);
    assert_eq!(read(&*slave), Err(Errno::EAGAIN), "another session's is not hung up");
    world.table.hang_up(10);
    assert_eq!(world.jobs.take(), [(1010, Signal::HUP), (1010, Signal::CONT)]);
    assert_eq!((read(&*slave), write(&*slave, b"x")), (Ok(String::new()), Err(Errno::EIO)));
    assert!(world.table.controlling(10).is_none());
}

#[test]
fn packets_tell_what_happened() {
    let world = World::new();
    let (master, slave, tty) = world.pair();
    tty.set_packets(true);
    write(&*slave, b"data").unwrap();
    assert_eq!(read(&*master), Ok("\0data".into()));
    tty.set_stopped(true);
    assert_eq!(master.readiness(), Readiness::ALWAYS | Readiness::PRIORITY);
    assert_eq!(read(&*master), Ok("\x04".into()));
    tty.set_stopped(false);
    tty.flush(Flush::Input);
    assert_eq!((read(&*master), read(&*master)), (Ok("\x09".into()), Err(Errno::EAGAIN)));
    tty.set_packets(false);
    write(&*slave, b"plain").unwrap();
    assert_eq!(read(&*master), Ok("plain".into()));
}
