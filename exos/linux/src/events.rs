//! What the host does to a program: signals and the terminal's size.

use exos::task::signal::{Signal, SignalInfo, SignalPayload};

use crate::process::Process;

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
