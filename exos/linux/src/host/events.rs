//! What the host does to a program: signals and the terminal's size; and what it asks about a pod: its processes.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::task::process::Process;
use crate::task::system::System;

/// Most processes that are told of at a time.
pub const PROCESS_LINE_COUNT_MAX: usize = 256;
/// Most bytes of a process's arguments that are told.
const COMMAND_BYTES_MAX: usize = 512;

/// A signal from the host tool, as `kill` from outside the process tree would send it.
pub fn raise_from_host(process: &Process, number: u8) {
    if let Ok(signal) = Signal::new(u64::from(number)) {
        let payload = SignalPayload::Sender { pid: 0, uid: 0, value: 0 };
        process.raise(signal, SignalInfo { code: 0, errno: 0, payload });
    }
}

/// The host's terminal has a new size.
pub fn resize(process: &Process, rows: u16, columns: u16) {
    if !process.files.set_window(rows, columns) {
        process.raise(Signal::WINCH, SignalInfo::default());
    }
}

/// Moves what was typed on the host's terminal, if exos does its line discipline: what asks for a signal gets it also
/// while nobody reads.
pub fn move_terminal_bytes(process: &Process) {
    if let Some(terminal) = process.files.terminal() {
        terminal.pump();
    }
}

/// Bytes that programs wrote to such a terminal and that have not been passed on.
#[must_use]
pub fn pending_terminal_bytes(process: &Process) -> usize {
    process.files.terminal().map_or(0, |terminal| terminal.pending_bytes())
}

/// What the host is told of each process, for as many as are told of (`docs/control-port.md`).
#[must_use]
pub fn process_lines(system: &System) -> Vec<String> {
    let now_ns = system.kernel.now_ns();
    let processes = system.processes.all().take(PROCESS_LINE_COUNT_MAX);
    processes.map(|process| process_line(&process, now_ns)).collect()
}

fn process_line(process: &Process, now_ns: u64) -> String {
    let runs = || process.threads.lock().iter().any(|thread| thread.time.is_running());
    let state = match () {
        () if process.has_ended() => 'Z',
        () if process.pause.lock().stopped_by.is_some() => 'T',
        () if runs() => 'R',
        () => 'S',
    };
    // The holder of the memory's lock will have given it back when the host asks again.
    let resident_bytes = process.space().try_resident_pages().unwrap_or(0) * 4096;
    let mut command = process.image.lock().arguments.join(&b' ');
    command.truncate(COMMAND_BYTES_MAX);
    let (pid, parent, used_ns) = (process.pid, process.visible_parent(), process.used_ns(now_ns));
    format!("{pid} {parent} {state} {used_ns} {resident_bytes} {}", String::from_utf8_lossy(&command))
}
