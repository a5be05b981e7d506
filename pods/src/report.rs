//! Lines on the kernel's log, which is all that the manager has to say something with.

use core::fmt::{Arguments, Write};

use aegis_abi::types::SLOT_MACHINE;
use aegis_rt::call;

/// Longest line; what is longer is cut.
const LINE_BYTES_MAX: usize = 256;

struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // The last byte is the newline's.
        let room = LINE_BYTES_MAX - 1 - self.length;
        let taken = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.length..self.length + taken.len()].copy_from_slice(taken);
        self.length += taken.len();
        Ok(())
    }
}

/// Writes one line.
pub(crate) fn say(text: Arguments<'_>) {
    let mut line = Line { bytes: [0; LINE_BYTES_MAX], length: 0 };
    let _ = write!(line, "pods: {text}");
    line.bytes[line.length] = b'\n';
    // There is nobody to tell if the log is refused.
    let _ = call::machine_log(SLOT_MACHINE, &line.bytes[..=line.length]);
}
