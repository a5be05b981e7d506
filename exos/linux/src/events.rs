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
    process.files.set_window(rows, columns);
    process.raise(Signal::WINCH, SignalInfo::default());
}
